/* SPDX-License-Identifier: GPL-2.0 */
/* Taking memory out of the page tables. */
#ifndef _HPMMAP_AS_STORE_ZAP_H
#define _HPMMAP_AS_STORE_ZAP_H

void hpmmap_slot_zap(struct hpmmap_ctx *ctx, unsigned long slot);
void hpmmap_slot_unmap(struct hpmmap_ctx *ctx, unsigned long slot,
		       struct hpmmap_block *block);
int hpmmap_slot_set(struct hpmmap_ctx *ctx, unsigned long slot,
		    struct hpmmap_block *block);
void hpmmap_store_zap_shared(struct hpmmap_ctx *ctx, unsigned long start,
			     unsigned long end);
void hpmmap_range_zap(struct hpmmap_ctx *ctx, unsigned long start,
		     unsigned long end);

#endif /* _HPMMAP_AS_STORE_ZAP_H */
