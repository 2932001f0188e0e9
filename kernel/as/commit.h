/* SPDX-License-Identifier: GPL-2.0 */
/* Giving memory to mappings. */
#ifndef _HPMMAP_AS_COMMIT_H
#define _HPMMAP_AS_COMMIT_H

#include <linux/bits.h>
#include <linux/types.h>

struct hpmmap_block;
struct hpmmap_ctx;
struct list_head;

/* The slots that a range begins and ends in. */
#define HPMMAP_END_FIRST	BIT(0)
#define HPMMAP_END_LAST		BIT(1)

bool hpmmap_vma_remap_slot(struct hpmmap_ctx *ctx, unsigned long slot,
			   struct hpmmap_block *block);
bool hpmmap_vma_restore_slot(struct hpmmap_ctx *ctx, unsigned long slot,
			     struct hpmmap_block *block);
void hpmmap_vma_slot_owned(struct hpmmap_ctx *ctx, unsigned long slot,
			   struct hpmmap_block *block);
int hpmmap_vma_own_edges(struct hpmmap_ctx *ctx, unsigned long start,
			 unsigned long end);
void hpmmap_vma_commit(struct hpmmap_ctx *ctx, unsigned long start,
		       unsigned long end, struct list_head *blocks);
void hpmmap_vma_repair(struct hpmmap_ctx *ctx, unsigned long start,
		       unsigned long end);
void hpmmap_vma_range_changed(struct hpmmap_ctx *ctx, unsigned long start,
			      unsigned long end);
unsigned int hpmmap_vma_intact_ends(struct hpmmap_ctx *ctx, unsigned long start,
				    unsigned long end);
void hpmmap_vma_repair_ends(struct hpmmap_ctx *ctx, unsigned long start,
			    unsigned long end, unsigned int intact);

#endif /* _HPMMAP_AS_COMMIT_H */
