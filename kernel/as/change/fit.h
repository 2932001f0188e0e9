/* SPDX-License-Identifier: GPL-2.0 */
/* Where a new mapping fits, and the blocks it needs. */
#ifndef _HPMMAP_AS_CHANGE_FIT_H
#define _HPMMAP_AS_CHANGE_FIT_H

bool hpmmap_policy_fits(struct hpmmap_ctx *ctx,
			const struct hpmmap_placement *place,
			unsigned long start, unsigned long end, bool strictly);
unsigned long hpmmap_find_place(struct hpmmap_ctx *ctx,
				const struct hpmmap_placement *place,
				unsigned long hint, unsigned long len,
				unsigned long flags, unsigned long align,
				unsigned long phase);
unsigned long hpmmap_short_end(struct hpmmap_ctx *ctx,
			       const struct hpmmap_placement *place,
			       unsigned long start, unsigned long end);
int hpmmap_policy_alloc(struct hpmmap_ctx *ctx, unsigned long start,
			unsigned long end, struct list_head *out);
int hpmmap_policy_alloc_mapped(struct hpmmap_ctx *ctx, unsigned long start,
			       unsigned long end, struct list_head *out);

/* Of the slot that a random heap begins in, what is left to small mappings at least. */
#define BESIDE_HEAP_BYTES (512UL << 10)

#endif /* _HPMMAP_AS_CHANGE_FIT_H */
