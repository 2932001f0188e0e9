/* SPDX-License-Identifier: GPL-2.0 */
/* What sysfs shows of contexts. */
#ifndef _HPMMAP_AS_SHOW_H
#define _HPMMAP_AS_SHOW_H

struct hpmmap_ctx;

void hpmmap_ctx_show(struct hpmmap_ctx *ctx);
void hpmmap_ctx_hide(struct hpmmap_ctx *ctx);

#endif /* _HPMMAP_AS_SHOW_H */
