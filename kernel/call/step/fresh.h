/* SPDX-License-Identifier: GPL-2.0 */
/* New mappings. */
#ifndef _HPMMAP_CALL_STEP_FRESH_H
#define _HPMMAP_CALL_STEP_FRESH_H

bool hpmmap_is_reservation(unsigned long prot, unsigned long flags);
int hpmmap_blocks_clear(struct hpmmap_ctx *ctx, unsigned long start,
			 unsigned long end, struct list_head *blocks);
bool hpmmap_wants_stack(struct hpmmap_ctx *ctx, unsigned long flags);
bool hpmmap_wants_reuse(unsigned long prot, unsigned long flags);
void hpmmap_touch_range(unsigned long addr, unsigned long len, unsigned long prot);
unsigned long hpmmap_map_fresh(struct hpmmap_ctx *ctx, unsigned long addr,
			       unsigned long len, unsigned long prot,
			       unsigned long flags, bool fixed,
			       struct list_head *ahead);
unsigned long hpmmap_map_where_fit(struct hpmmap_ctx *ctx,
				   const struct hpmmap_placement *place,
				   unsigned long addr, unsigned long len,
				   unsigned long prot, unsigned long flags,
				   bool fixed, struct list_head *ahead);

#endif /* _HPMMAP_CALL_STEP_FRESH_H */
