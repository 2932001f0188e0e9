// SPDX-License-Identifier: GPL-2.0
/*
 * The store of a context: which block stands behind which 2 MB slot.
 *
 * The slot number is the virtual address divided by 2 MB, always: a mapping
 * that moves takes its blocks to their new slots. A block stays in the store
 * as long as a mapping of ours covers any part of its slot; which of its
 * pages have a meaning for that mapping, its stale bits say.
 */
#include "hpmmap.h"
#include "mem/block/block.h"
#include "mem/block/nodes.h"
#include "as/own/ctx.h"
#include "as/own/family.h"
#include "as/own/release.h"
#include "as/own/reserve.h"
#include "as/own/reuse.h"
#include "as/own/stats.h"
#include "as/map/pgmap.h"
#include "as/map/policy.h"
#include "as/map/vma.h"
#include "as/map/window.h"
#include "as/store/draft.h"
#include "as/store/store.h"
#include "as/store/zap.h"

/* Block behind a slot, or NULL. */
struct hpmmap_block *hpmmap_store_load(struct hpmmap_ctx *ctx, unsigned long slot)
{
	return xa_load(hpmmap_store(ctx, slot, slot), slot);
}

/* First address of [start, end) whose slot has a block, or @end. */
unsigned long hpmmap_store_next(struct hpmmap_ctx *ctx, unsigned long start,
				unsigned long end)
{
	unsigned long slot = slot_of(start), last = slot_of(end - 1), i = slot / RUN_BLOCKS;
	/* In this order: what breaks a run up makes its blocks first. */
	bool run = hpmmap_has_runs(ctx) &&
		   xa_find(&ctx->store.runs, &i, last / RUN_BLOCKS, XA_PRESENT);
	bool found = xa_find(&ctx->store.blocks, &slot, last, XA_PRESENT);

	if (run)
		slot = min(found ? slot : last, i * RUN_BLOCKS);
	return run || found ? max(start, slot << SLOT_SHIFT) : end;
}

/* Slots of [start, end) without a block. */
unsigned long hpmmap_store_missing(struct hpmmap_ctx *ctx, unsigned long start,
				   unsigned long end)
{
	return slot_of(end - 1) - slot_of(start) + 1 -
	       hpmmap_store_count(ctx, start, end);
}

/* Slots of [start, end) whose block is shared, or was. */
unsigned long hpmmap_store_count_shared(struct hpmmap_ctx *ctx,
					unsigned long start, unsigned long end)
{
	struct hpmmap_block *block;
	unsigned long slot = slot_of(start), n = 0;

	for (block = xa_find(&ctx->store.blocks, &slot, slot_of(end - 1), SLOT_SHARED);
	     block; block = xa_find_after(&ctx->store.blocks, &slot,
					  slot_of(end - 1), SLOT_SHARED))
		n++;
	return n;
}

/* Slots of [start, end) with a block. */
unsigned long hpmmap_store_count(struct hpmmap_ctx *ctx, unsigned long start,
				 unsigned long end)
{
	unsigned long slot, first = slot_of(start), last = slot_of(end - 1), n;
	bool runs = hpmmap_has_runs(ctx);
	struct hpmmap_block *block;

	/* Each slot counts once. */
	if (runs)
		mutex_lock(&ctx->store.breaking);
	n = hpmmap_runs_count(ctx, first, last);
	xa_for_each_range(&ctx->store.blocks, slot, block, first, last)
		n++;
	if (runs)
		mutex_unlock(&ctx->store.breaking);
	return n;
}

/* Has a memory error destroyed what a slot of [start, end) has? */
bool hpmmap_store_is_lost(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end)
{
	struct hpmmap_block *block;
	unsigned long slot;
	bool lost = false;

	mutex_lock(&ctx->lock);
	hpmmap_for_each_block(ctx, slot, block, slot_of(start), slot_of(end - 1))
		lost |= hpmmap_block_is_lost(block);
	mutex_unlock(&ctx->lock);
	return lost;
}

/*
 * From @blocks, the pools or, if @or_linux, Linux; for a mapping, or NULL if
 * there is none yet. @from: what will be copied to it, or NULL.
 */
static struct hpmmap_block *block_take(struct hpmmap_ctx *ctx,
				       struct vm_area_struct *vma,
				       unsigned long slot,
				       const struct hpmmap_block *from,
				       struct list_head *blocks, bool or_linux)
{
	LIST_HEAD(one);

	if (!blocks || list_empty(blocks)) {
		struct hpmmap_placement place;

		if (from)
			hpmmap_placement_copy(ctx, vma, slot, from, &place);
		else
			hpmmap_placement_get(ctx->job, vma, &place);
		if (hpmmap_reserve(ctx, &place, slot, 1, false, &one)) {
			if (!or_linux)
				return NULL;
			hpmmap_count_fallback(ctx, HPMMAP_FALLBACK_BLOCK,
					      SLOT_SIZE);
			return hpmmap_block_alloc_linux(NUMA_NO_NODE);
		}
		blocks = &one;
	}
	return hpmmap_list_take(blocks, slot);
}

void hpmmap_store_put_back(struct hpmmap_ctx *ctx, struct hpmmap_block *block)
{
	if (block->folio)
		atomic_long_inc(&ctx->nr_held);
	hpmmap_block_release(ctx, block);
}

/* Whether the first touch will decide where the block of a slot lies. */
static bool awaits_touch(struct hpmmap_ctx *ctx, struct hpmmap_block *block)
{
	return ctx->job->first_touch && block->folio &&
	       bitmap_full(block->stale, SLOT_PAGES);
}

/* A block of the pools has got a slot. */
void hpmmap_store_gained(struct hpmmap_ctx *ctx, struct hpmmap_block *block)
{
	atomic_long_inc(&ctx->nr_held);
	if (!awaits_touch(ctx, block))
		hpmmap_count_placed(ctx, block, 1);
}

/* A block is about to get contents. */
int hpmmap_store_fill(struct hpmmap_ctx *ctx, struct hpmmap_block *block,
		unsigned int first, unsigned int nr)
{
	if (awaits_touch(ctx, block))
		hpmmap_count_placed(ctx, block, 1);
	return hpmmap_block_fill(&ctx->owner, block, first, nr);
}

int hpmmap_store_insert(struct hpmmap_ctx *ctx, unsigned long slot,
			struct hpmmap_block *block)
{
	int ret = hpmmap_slot_set(ctx, slot, block);

	if (ret)
		return ret;
	if (hpmmap_block_is_few(block))
		xa_set_mark(&ctx->store.blocks, slot, SLOT_FEW);
	else if (xa_marked(&ctx->store.blocks, SLOT_FEW))
		xa_clear_mark(&ctx->store.blocks, slot, SLOT_FEW);
	if (hpmmap_block_is_shared(block)) {
		xa_set_mark(&ctx->store.blocks, slot, SLOT_SHARED);
		return 0;
	}
	if (block->draft)
		xa_set_mark(&ctx->store.blocks, slot, SLOT_SHARED);
	else
		xa_clear_mark(&ctx->store.blocks, slot, SLOT_SHARED);
	if (unlikely(xa_marked(&ctx->store.blocks, SLOT_SPLIT)))
		xa_clear_mark(&ctx->store.blocks, slot, SLOT_SPLIT);
	hpmmap_block_attach(block, ctx->file->f_mapping, slot);
	return 0;
}

static struct hpmmap_block *few_take(struct hpmmap_ctx *ctx, int spare)
{
	struct hpmmap_block *block = hpmmap_block_alloc_linux(spare);

	if (!block)
		return NULL;
	block->few = true;
	atomic_long_inc(&ctx->owner.nr_few_blocks);
	return block;
}

/* Gives a slot without a block pages of Linux, as it needs no more than a few. */
bool hpmmap_store_insert_few(struct hpmmap_ctx *ctx, unsigned long slot)
{
	struct hpmmap_block *block = few_take(ctx, NUMA_NO_NODE);

	lockdep_assert_held(&ctx->lock);
	if (!block)
		return false;
	if (!hpmmap_store_insert(ctx, slot, block))
		return true;
	hpmmap_store_put_back(ctx, block);
	return false;
}

/*
 * Alone: may a block that was shared be the context's own without a copy? No other store has
 * it, and its page says so as well: each reference is the module's, or that of an entry of
 * this slot. A block that was pinned while it was shared (by a pipe, or a device that still reads
 * it) must not change.
 */
static bool is_alone(struct hpmmap_ctx *ctx, unsigned long slot,
		     struct hpmmap_block *block)
{
	unsigned long start = slot << SLOT_SHIFT;

	lockdep_assert_held(&ctx->lock);
	if (hpmmap_block_is_shared(block))
		return false;
	if (hpmmap_pgmap_others(ctx->mm, slot, block->folio) && READ_ONCE(ctx->window))
		/* Windows onto the slot are mapped anew. */
		hpmmap_window_zap(ctx, start, start + SLOT_SIZE);
	return !hpmmap_pgmap_others(ctx->mm, slot, block->folio);
}

/* Makes the block of a marked slot the context's own without a copy, if that can be. */
bool hpmmap_store_adopt_locked(struct hpmmap_ctx *ctx, unsigned long slot,
			struct hpmmap_block *block)
{
	lockdep_assert_held(&ctx->lock);
	if (block->draft || !is_alone(ctx, slot, block))
		return false;
	xa_clear_mark(&ctx->store.blocks, slot, SLOT_SHARED);
	hpmmap_block_attach(block, ctx->file->f_mapping, slot);
	return true;
}

/* The few pages of a draft go back, if the block behind it is not shared; or NULL. */
struct hpmmap_block *hpmmap_store_go_back(struct hpmmap_ctx *ctx, unsigned long slot,
					  struct hpmmap_block *draft)
{
	return is_alone(ctx, slot, draft->draft->behind) ?
	       hpmmap_draft_go_back(ctx, slot, draft) : NULL;
}

/*
 * A draft of pages of Linux is not to be completed: another block for it, unless somebody
 * would keep the old one.
 */
static bool wants_exchange(struct hpmmap_ctx *ctx, unsigned long slot,
			   struct hpmmap_block *draft)
{
	if (draft->folio)
		return false;
	hpmmap_slot_zap(ctx, slot);
	return !hpmmap_block_is_pinned(draft);
}

/* A slot has @own in place of @block, with all but @skip_nr pages of its contents. */
static struct hpmmap_block *copy_whole(struct hpmmap_ctx *ctx, unsigned long slot,
				       struct hpmmap_block *block,
				       struct hpmmap_block *own,
				       unsigned int skip, unsigned int skip_nr)
{
	unsigned int end = skip + skip_nr;

	own->slot = slot;
	if (hpmmap_block_copy(&ctx->owner, own, 0, block, 0, skip) ||
	    hpmmap_block_copy(&ctx->owner, own, end, block, end, SLOT_PAGES - end)) {
		hpmmap_store_put_back(ctx, own);
		return NULL;
	}
	/* Cannot fail: there is an entry. */
	hpmmap_store_insert(ctx, slot, own);
	if (own->folio)
		hpmmap_store_gained(ctx, own);
	atomic_long_add(SLOT_PAGES - bitmap_weight(own->stale, SLOT_PAGES),
			&ctx->nr_copied);
	hpmmap_reuse_forget(ctx, block);
	hpmmap_block_release(ctx, block);
	return own;
}

/*
 * How many pages of a slot are accessible, for whole copies: the rest of them may be asked
 * for next. More than there are where mbind(2) said where they should be.
 */
static unsigned int pages_of_slot(struct mm_struct *mm, unsigned long slot)
{
	unsigned long start = slot << SLOT_SHIFT;
	unsigned int first, nr, pages = 0;
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, mm, start);

	for_each_vma_range(vmi, vma, start + SLOT_SIZE) {
		if (!hpmmap_vma_is_ours(vma))
			continue;
		if (vma_policy(vma))
			return SLOT_PAGES + 1;
		slot_clip(slot, vma->vm_start, vma->vm_end, &first, &nr);
		if (vma->vm_flags & VM_ACCESS_FLAGS)
			pages += nr;
	}
	return pages;
}

/* For a copy with no more than a few pages, of Linux on a node that is right; or NULL. */
static struct hpmmap_block *take_few_for(struct hpmmap_ctx *ctx,
					 struct vm_area_struct *vma,
					 unsigned long slot,
					 const struct hpmmap_block *from,
					 bool whole)
{
	unsigned int pages = 1, of_slot;
	struct hpmmap_placement place;
	int nid = numa_mem_id();

	if (whole)
		pages = SLOT_PAGES - bitmap_weight(from->stale, SLOT_PAGES);
	/* A node may have no memory but that of the pools. */
	if (ctx->job->strict || pages > HPMMAP_FEW_IN_SLOT ||
	    !hpmmap_block_may_be_few(&ctx->owner, pages, 1) ||
	    !node_state(nid, N_NORMAL_MEMORY))
		return NULL;
	of_slot = pages_of_slot(vma ? vma->vm_mm : ctx->mm, slot);
	if (of_slot > (whole ? HPMMAP_FEW_IN_SLOT : SLOT_PAGES))
		return NULL;
	hpmmap_placement_copy(ctx, vma, slot, from, &place);
	return hpmmap_placement_is_right(&place, slot, nid) ?
	       few_take(ctx, nid) : NULL;
}

/*
 * The block of a slot, which may be changed afterwards: of a shared one, a
 * copy without the @skip_nr pages from @skip on. NULL where there is none, or
 * without memory. If the slot was marked, the caller
 * maps it by hpmmap_vma_slot_owned(), when ctx->lock is free.
 */
struct hpmmap_block *hpmmap_store_own(struct hpmmap_ctx *ctx,
				      struct vm_area_struct *vma,
				      unsigned long slot,
				      struct list_head *blocks,
				      unsigned int skip, unsigned int skip_nr)
{
	struct hpmmap_block *block = hpmmap_store_load(ctx, slot), *own = NULL;

	lockdep_assert_held(&ctx->lock);
	if (!block || !hpmmap_slot_is_marked(ctx, slot) || hpmmap_store_adopt_locked(ctx, slot, block))
		return block;
	if (block->draft) {
		own = hpmmap_store_go_back(ctx, slot, block);
		if (own)
			return own;
		if (!wants_exchange(ctx, slot, block))
			return hpmmap_draft_complete(ctx, slot, block);
	}
	if (!blocks)
		own = take_few_for(ctx, vma, slot, block, true);
	if (own && copy_whole(ctx, slot, block, own, skip, skip_nr)) {
		own->spare = NUMA_NO_NODE;
		return own;
	}
	own = block_take(ctx, vma, slot, block, blocks, true);
	return own ? copy_whole(ctx, slot, block, own, skip, skip_nr) : NULL;
}

/*
 * Begins to copy a shared block of the pools, no page of which is stale that @vma has of
 * it, a few pages at a time. @few: it may begin with ordinary pages; @part: @vma does not
 * cover the slot, and it has to. Nothing of the slot is mapped afterwards. As long as there
 * are a few the copies are ordinary pages: what is written to while a child lives may be
 * little of many blocks. Where the pools have nothing left all of it is copied, into
 * ordinary memory. ctx->lock and mmap_lock are held.
 *
 * Returns the slot's block, a draft or not; NULL without memory.
 */
struct hpmmap_block *hpmmap_store_draft(struct hpmmap_ctx *ctx,
					struct vm_area_struct *vma,
					unsigned long slot,
					struct hpmmap_block *block, bool few,
					bool part)
{
	struct hpmmap_block *own = NULL;

	lockdep_assert_held(&ctx->lock);
	if (few)
		own = take_few_for(ctx, vma, slot, block, false);
	if (!own && !part)
		own = block_take(ctx, vma, slot, block, NULL, true);
	if (!own)
		return NULL;
	if (!hpmmap_block_is_whole(own))
		return copy_whole(ctx, slot, block, own, 0, 0);
	if (!hpmmap_draft_begin(own, block, part)) {
		hpmmap_store_put_back(ctx, own);
		return NULL;
	}
	if (own->folio)
		hpmmap_store_gained(ctx, own);
	hpmmap_reuse_forget(ctx, block);
	/* Cannot fail: there is an entry. */
	hpmmap_store_insert(ctx, slot, own);
	return own;
}

/*
 * A child that has nothing of a slot gets a draft with the pages that its parent's has. The
 * locks of both are held. Returns false where the parent's has to be settled.
 */
bool hpmmap_store_inherit(struct hpmmap_ctx *parent, struct hpmmap_ctx *child,
			  unsigned long slot, struct hpmmap_block *draft)
{
	struct hpmmap_block *own = few_take(child, draft->spare);

	if (!own)
		return false;
	own->slot = slot;
	if (hpmmap_draft_inherit(child, own, draft)) {
		hpmmap_family_share(parent, child, draft->draft->behind);
		atomic_long_inc(&child->nr_held);
		if (!hpmmap_store_insert(child, slot, own))
			return true;
	}
	hpmmap_store_put_back(child, own);
	return false;
}

/*
 * A draft of ordinary pages has no room for more: it moves to a block of the pools, and
 * nothing of the slot is mapped afterwards. Where it is pinned it goes on as it is for now,
 * and where there is no block for good, page by page. ctx->lock and mmap_lock are held.
 * Returns the slot's block, a draft.
 */
struct hpmmap_block *hpmmap_store_widen(struct hpmmap_ctx *ctx,
					struct vm_area_struct *vma,
					unsigned long slot,
					struct hpmmap_block *draft)
{
	struct hpmmap_block *own;

	lockdep_assert_held(&ctx->lock);
	if (hpmmap_block_is_pinned(draft)) {
		draft->spare = NUMA_NO_NODE;
		return draft;
	}
	own = block_take(ctx, vma, slot, draft, NULL, false);
	if (!own) {
		draft->draft->stuck = true;
		hpmmap_block_few_end(&ctx->owner, draft);
		hpmmap_count_fallback(ctx, HPMMAP_FALLBACK_BLOCK, SLOT_SIZE);
		return draft;
	}
	/* A pin that comes at the same time finds the entry gone, or is found. */
	hpmmap_slot_zap(ctx, slot);
	if (hpmmap_block_is_pinned(draft)) {
		hpmmap_store_put_back(ctx, own);
		draft->spare = NUMA_NO_NODE;
		return draft;
	}
	hpmmap_draft_move(ctx, own, draft);
	hpmmap_store_gained(ctx, own);
	/* Cannot fail: there is an entry. */
	hpmmap_store_insert(ctx, slot, own);
	hpmmap_block_release(ctx, draft);
	return own;
}

/*
 * The block of a slot, to be changed; a new one, for what @from has or for
 * zeros, if there is none. NULL without memory.
 */
struct hpmmap_block *hpmmap_store_get(struct hpmmap_ctx *ctx,
				      struct vm_area_struct *vma,
				      unsigned long slot,
				      const struct hpmmap_block *from,
				      struct list_head *blocks, bool or_linux)
{
	struct hpmmap_block *block = hpmmap_store_load(ctx, slot);

	lockdep_assert_held(&ctx->lock);
	if (block && unlikely(hpmmap_block_is_lost(block)) &&
	    bitmap_full(block->stale, SLOT_PAGES)) {
		/* Nothing that it had means anything. */
		hpmmap_slot_set(ctx, slot, NULL);
		hpmmap_reuse_forget(ctx, block);
		hpmmap_block_release(ctx, block);
		block = NULL;
	}
	if (block)
		return hpmmap_store_own(ctx, vma, slot, blocks, 0, 0);
	block = block_take(ctx, vma, slot, from, blocks, or_linux);
	if (!block)
		return NULL;
	if (hpmmap_store_insert(ctx, slot, block)) {
		hpmmap_store_put_back(ctx, block);
		return NULL;
	}
	if (block->folio)
		hpmmap_store_gained(ctx, block);
	return block;
}

/*
 * Makes sure that a range in one slot has memory of the pools. Stale pages read as zero
 * afterwards; the others are unchanged. A slot that has ordinary memory gets no more of it. @vma:
 * the mapping, or NULL if there is none yet. @blocks: to use first, or NULL. @how: out, or NULL.
 * mmap_lock is held, or no other task uses the context yet. Returns whether the slot has a block.
 */
bool hpmmap_store_commit(struct hpmmap_ctx *ctx, struct vm_area_struct *vma,
			 unsigned long start, unsigned long end,
			 struct list_head *blocks, enum hpmmap_commit *how)
{
	enum hpmmap_commit done = HPMMAP_COMMIT_OWN;
	struct hpmmap_block *block;
	unsigned int first, nr;

	slot_clip(slot_of(start), start, end, &first, &nr);
	mutex_lock(&ctx->lock);
	block = hpmmap_store_load(ctx, slot_of(start));
	if (block && hpmmap_block_is_shared(block) &&
	    !hpmmap_block_has_stale(block, first, nr)) {
		done = HPMMAP_COMMIT_SHARED;
	} else {
		bool marked = hpmmap_slot_is_marked(ctx, slot_of(start));

		if (marked)
			done = HPMMAP_COMMIT_OWNED_NOW;
		if (!block || marked || unlikely(hpmmap_block_is_hurt(block)))
			block = hpmmap_store_get(ctx, vma, slot_of(start), NULL,
						 blocks, false);
		if (block && hpmmap_block_is_whole(block))
			hpmmap_store_fill(ctx, block, first, nr);
	}
	mutex_unlock(&ctx->lock);
	if (how)
		*how = done;
	return block;
}

/*
 * As hpmmap_store_commit(), for a slot whose contents are not made ready: that is left to
 * the first touch.
 */
void hpmmap_store_reserve(struct hpmmap_ctx *ctx, struct vm_area_struct *vma,
			  unsigned long slot, struct list_head *blocks)
{
	mutex_lock(&ctx->lock);
	hpmmap_store_get(ctx, vma, slot, NULL, blocks, false);
	mutex_unlock(&ctx->lock);
}

/*
 * Would a new mapping of a range share a pinned block? A slot that the range covers wholly
 * gets another block if need be; one that it covers in part cannot. @wait: a moment for the
 * pins to go. @fresh: out: something of the range may have contents.
 */
bool hpmmap_store_is_pinned(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end,
			    bool wait, bool *fresh)
{
	unsigned long slots[] = { slot_of(start), slot_of(end - 1) };
	bool ret = false;
	int i;

	*fresh = slots[0] != slots[1];
	if (!((start | end) & ~SLOT_MASK)) {
		*fresh = true;
		return false;
	}
	mutex_lock(&ctx->lock);
	for (i = slots[0] == slots[1]; i < ARRAY_SIZE(slots) && !ret; i++) {
		struct hpmmap_block *block = hpmmap_store_load(ctx, slots[i]);
		unsigned int first, nr;
		bool has;

		slot_clip(slots[i], start, end, &first, &nr);
		has = block && hpmmap_block_has_contents(block, first, nr);
		*fresh |= has;
		/*
		 * What is stale was not seen, nor pinned. But a
		 * pin leaves a slot that has a few pages of Linux no block, if
		 * there is a choice.
		 */
		if (block && nr < SLOT_PAGES &&
		    (has || (!wait && block->few)))
			ret = wait ? !hpmmap_block_wait_unpinned(ctx, block) :
				     hpmmap_block_is_pinned(block);
	}
	mutex_unlock(&ctx->lock);
	return ret;
}

/*
 * Another block, all of which is stale, for a slot, with the same contents. Nothing of the
 * slot is mapped afterwards. @wait: wait a moment for pins to go; false when that was in
 * vain. ctx->ops is held, and mmap_lock for writing. Returns whether it was done. A pinned
 * block stays.
 */
bool hpmmap_store_replace(struct hpmmap_ctx *ctx, unsigned long slot,
			  struct hpmmap_block *fresh, bool *wait)
{
	struct hpmmap_block *old;
	bool done = false;

	lockdep_assert_held(&ctx->ops);
	mmap_assert_write_locked(ctx->mm);
	mutex_lock(&ctx->lock);
	old = hpmmap_store_load(ctx, slot);
	if (old && old->draft)
		old = hpmmap_store_own(ctx, NULL, slot, NULL, 0, 0);
	if (!old)
		goto out;
	if (*wait)
		*wait = hpmmap_block_wait_unpinned(ctx, old);
	hpmmap_range_zap(ctx, slot << SLOT_SHIFT, (slot + 1) << SLOT_SHIFT);
	if ((hpmmap_slot_is_marked(ctx, slot) && !hpmmap_store_adopt_locked(ctx, slot, old)) ||
	    !hpmmap_block_idle(old) ||
	    hpmmap_block_copy(&ctx->owner, fresh, 0, old, 0, SLOT_PAGES))
		goto out;
	hpmmap_store_insert(ctx, slot, fresh);
	hpmmap_store_gained(ctx, fresh);
	hpmmap_reuse_forget(ctx, old);
	hpmmap_block_release(ctx, old);
	done = true;
out:
	mutex_unlock(&ctx->lock);
	return done;
}
