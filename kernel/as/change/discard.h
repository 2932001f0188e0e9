/* SPDX-License-Identifier: GPL-2.0 */
/* Discarding contents. */
#ifndef _HPMMAP_AS_CHANGE_DISCARD_H
#define _HPMMAP_AS_CHANGE_DISCARD_H

void hpmmap_store_renew(struct hpmmap_ctx *ctx, unsigned long start,
			unsigned long end, bool lazy);
void hpmmap_discard_begin(struct hpmmap_ctx *ctx);
void hpmmap_store_refresh(struct hpmmap_ctx *ctx, unsigned long start,
			  unsigned long end);
void hpmmap_store_drop_linux(struct hpmmap_ctx *ctx, unsigned long start,
			     unsigned long end);
int hpmmap_store_discard(struct hpmmap_ctx *ctx, unsigned long start,
			 unsigned long end, bool accessible);

#endif /* _HPMMAP_AS_CHANGE_DISCARD_H */
