/* SPDX-License-Identifier: GPL-2.0 */
/* The store of a context: which block stands behind which slot. */
#ifndef _HPMMAP_AS_STORE_STORE_H
#define _HPMMAP_AS_STORE_STORE_H

#include "mem/block/block.h"
#include "as/own/ctx.h"
#include "as/own/run.h"

/* Mark of a slot in the store whose block is shared, or was until lately. */
#define SLOT_SHARED XA_MARK_0

/* Mark of a slot that may be mapped page by page, or not at all, since it was copied. */
#define SLOT_SPLIT XA_MARK_1

/* Mark of a slot that needs no more than a few pages (as/change/few.c). */
#define SLOT_FEW XA_MARK_2

static inline bool hpmmap_slot_is_marked(struct hpmmap_ctx *ctx, unsigned long slot)
{
	return xa_marked(&ctx->store.blocks, SLOT_SHARED) &&
	       xa_get_mark(&ctx->store.blocks, slot, SLOT_SHARED);
}

/* What a slot's block is after a commit. */
enum hpmmap_commit {
	HPMMAP_COMMIT_OWN,		/* the context's own, as it was */
	HPMMAP_COMMIT_OWNED_NOW,	/* the context's own, shared before */
	HPMMAP_COMMIT_SHARED,		/* shared */
};
struct hpmmap_block *hpmmap_store_load(struct hpmmap_ctx *ctx,
				       unsigned long slot);
unsigned long hpmmap_store_next(struct hpmmap_ctx *ctx, unsigned long start,
				unsigned long end);
unsigned long hpmmap_store_missing(struct hpmmap_ctx *ctx, unsigned long start,
				   unsigned long end);
unsigned long hpmmap_store_count(struct hpmmap_ctx *ctx, unsigned long start,
				 unsigned long end);
unsigned long hpmmap_store_count_shared(struct hpmmap_ctx *ctx,
					unsigned long start,
					unsigned long end);
bool hpmmap_store_is_lost(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end);
bool hpmmap_store_commit(struct hpmmap_ctx *ctx, struct vm_area_struct *vma,
			 unsigned long start, unsigned long end,
			 struct list_head *blocks, enum hpmmap_commit *how);
bool hpmmap_store_is_pinned(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end,
			    bool wait, bool *fresh);
void hpmmap_store_reserve(struct hpmmap_ctx *ctx, struct vm_area_struct *vma,
			  unsigned long slot, struct list_head *blocks);
struct hpmmap_block *hpmmap_store_go_back(struct hpmmap_ctx *ctx, unsigned long slot,
					  struct hpmmap_block *draft);
void hpmmap_store_put_back(struct hpmmap_ctx *ctx, struct hpmmap_block *block);
void hpmmap_store_gained(struct hpmmap_ctx *ctx, struct hpmmap_block *block);
int hpmmap_store_fill(struct hpmmap_ctx *ctx, struct hpmmap_block *block,
		unsigned int first, unsigned int nr);
int hpmmap_store_insert(struct hpmmap_ctx *ctx, unsigned long slot,
			struct hpmmap_block *block);
bool hpmmap_store_insert_few(struct hpmmap_ctx *ctx, unsigned long slot);
bool hpmmap_store_replace(struct hpmmap_ctx *ctx, unsigned long slot,
			  struct hpmmap_block *fresh, bool *wait);
bool hpmmap_store_adopt_locked(struct hpmmap_ctx *ctx, unsigned long slot,
			struct hpmmap_block *block);
struct hpmmap_block *hpmmap_store_own(struct hpmmap_ctx *ctx,
				      struct vm_area_struct *vma,
				      unsigned long slot,
				      struct list_head *blocks,
				      unsigned int skip, unsigned int skip_nr);
struct hpmmap_block *hpmmap_store_draft(struct hpmmap_ctx *ctx,
					struct vm_area_struct *vma,
					unsigned long slot,
					struct hpmmap_block *block, bool few,
					bool part);
bool hpmmap_store_inherit(struct hpmmap_ctx *parent, struct hpmmap_ctx *child,
			  unsigned long slot, struct hpmmap_block *draft);
struct hpmmap_block *hpmmap_store_widen(struct hpmmap_ctx *ctx,
					struct vm_area_struct *vma,
					unsigned long slot,
					struct hpmmap_block *draft);
struct hpmmap_block *hpmmap_store_get(struct hpmmap_ctx *ctx,
				      struct vm_area_struct *vma,
				      unsigned long slot,
				      const struct hpmmap_block *from,
				      struct list_head *blocks, bool or_linux);

/* The block of a list that was allocated for a slot, or another. It is mostly the first. */
static inline struct hpmmap_block *hpmmap_list_take(struct list_head *blocks, unsigned long slot)
{
	struct hpmmap_block *block;
	int looks = 8;

	list_for_each_entry(block, blocks, link)
		if (block->slot == slot || !--looks)
			break;
	if (!looks || list_entry_is_head(block, blocks, link))
		block = list_first_entry(blocks, struct hpmmap_block, link);
	if (unlikely(block->run))
		hpmmap_run_unfold(block);
	__list_del(block->link.prev, block->link.next);
	INIT_LIST_HEAD(&block->link);
	return block;
}

#endif /* _HPMMAP_AS_STORE_STORE_H */
