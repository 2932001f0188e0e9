/* SPDX-License-Identifier: GPL-2.0 */
/* Where a new mapping fits, and the blocks it needs. */
#ifndef _HPMMAP_AS_FIT_H
#define _HPMMAP_AS_FIT_H

#include <linux/types.h>

struct hpmmap_ctx;
struct hpmmap_placement;
struct list_head;

bool hpmmap_policy_fits(struct hpmmap_ctx *ctx,
			const struct hpmmap_placement *place,
			unsigned long start, unsigned long end, bool strictly);
unsigned long hpmmap_policy_beside_heap(struct hpmmap_ctx *ctx,
					const struct hpmmap_placement *place,
					unsigned long len);
unsigned long hpmmap_policy_apart(struct hpmmap_ctx *ctx,
				  const struct hpmmap_placement *place,
				  unsigned long len);
void hpmmap_policy_begin_apart(struct hpmmap_ctx *ctx,
			       const struct hpmmap_placement *place,
			       unsigned long end);
unsigned long hpmmap_policy_reach(struct hpmmap_ctx *ctx, unsigned long start,
				  unsigned long end, unsigned long nr,
				  bool renew);
int hpmmap_policy_alloc(struct hpmmap_ctx *ctx, unsigned long start,
			unsigned long end, struct list_head *out);
int hpmmap_policy_alloc_mapped(struct hpmmap_ctx *ctx, unsigned long start,
			       unsigned long end, struct list_head *out);

/* Of the slot that the heap begins in, what is left to small mappings. */
#define BESIDE_HEAP_BYTES (512UL << 10)

#endif /* _HPMMAP_AS_FIT_H */
