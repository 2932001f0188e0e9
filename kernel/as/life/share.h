/* SPDX-License-Identifier: GPL-2.0 */
/* Sharing of blocks since a fork. */
#ifndef _HPMMAP_AS_LIFE_SHARE_H
#define _HPMMAP_AS_LIFE_SHARE_H

int hpmmap_share_begin(struct hpmmap_ctx *parent, struct hpmmap_ctx *child);
void hpmmap_share_gone(struct hpmmap_ctx *ctx, bool here);

#endif /* _HPMMAP_AS_LIFE_SHARE_H */
