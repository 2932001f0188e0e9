/* SPDX-License-Identifier: GPL-2.0 */
/* Entries of 1 GB that were split. */
#ifndef _HPMMAP_AS_CHANGE_JOIN_H
#define _HPMMAP_AS_CHANGE_JOIN_H

struct hpmmap_ctx;

void hpmmap_join_init(struct hpmmap_ctx *ctx);
void hpmmap_join_cancel(struct hpmmap_ctx *ctx);

#endif /* _HPMMAP_AS_CHANGE_JOIN_H */
