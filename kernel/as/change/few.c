// SPDX-License-Identifier: GPL-2.0
/*
 * Slots that only a few pages are asked for of.
 *
 * The bss of a shared library is mostly some pages, at an address that cannot be
 * chosen; so is what an allocator or a runtime makes accessible of each of its
 * reservations, or what a buffer of a power of two needs for a header. A block for
 * each would be most of what a small program costs. They have pages of Linux instead,
 * all of them at once and never on a list of those that are reclaimed. When more is
 * mapped in the slot it gets a block.
 */
#include "hpmmap.h"
#include "mem/block/block.h"
#include "mem/block/nodes.h"
#include "mem/pool/pool.h"
#include "as/own/ctx.h"
#include "as/own/reserve.h"
#include "as/own/stats.h"
#include "as/map/policy.h"
#include "as/map/vma.h"
#include "as/store/store.h"
#include "as/store/unmap.h"
#include "as/change/commit.h"
#include "as/change/few.h"

/* Is it part of a library that ld.so has mapped? */
static bool is_library(struct vm_area_struct *vma)
{
	return vma->vm_file && !(vma->vm_flags & VM_SHARED) &&
	       !hpmmap_vma_is_ours(vma);
}

/* A mapping of ours of which nothing has been made accessible. */
static bool is_reserved(struct vm_area_struct *vma)
{
	return hpmmap_vma_is_ours(vma) && !vma_policy(vma) &&
	       !(vma->vm_flags & (VM_ACCESS_FLAGS | VM_LOCKED));
}

/*
 * Is a range one that cannot be put elsewhere? What goes on from a slot with a block
 * is growing, and going to fill the next one, too.
 */
static bool stands_apart(struct hpmmap_ctx *ctx, unsigned long start,
			 unsigned long end)
{
	struct vm_area_struct *vma = vma_lookup(ctx->mm, start);
	struct hpmmap_block *before = NULL;

	if (!(start & ~SLOT_MASK))
		before = hpmmap_store_load(ctx, slot_of(start) - 1);
	return vma && vma->vm_end >= end && !(before && !hpmmap_block_is_few(before)) &&
	       (is_library(vma) || is_reserved(vma));
}

/* Has anything of a slot been given memory? */
static bool slot_is_in_use(struct hpmmap_ctx *ctx, unsigned long slot)
{
	unsigned long from = slot << SLOT_SHIFT, to = from + SLOT_SIZE;
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, ctx->mm, from);

	for_each_vma_range(vmi, vma, to)
		if (hpmmap_vma_is_ours(vma) && !is_reserved(vma))
			return true;
	return false;
}

/*
 * Does a slot that has a few pages have room for all of a range's? @more: out, how many
 * of these it has not yet; there is always room for none.
 */
static bool has_room(struct hpmmap_block *block, unsigned long slot,
		     unsigned long start, unsigned long end, unsigned int *more)
{
	unsigned int first, nr, page, used;

	slot_clip(slot, start, end, &first, &nr);
	*more = 0;
	for (page = first; page < first + nr; page++)
		*more += test_bit(page, block->stale);
	used = SLOT_PAGES - bitmap_weight(block->stale, SLOT_PAGES);
	return !*more || used + *more <= HPMMAP_FEW_IN_SLOT;
}

/* Would a page that Linux allocates here be where the job wants memory? */
static bool is_near(struct hpmmap_ctx *ctx)
{
	struct hpmmap_placement place;

	hpmmap_placement_get(ctx->job, NULL, &place);
	return node_isset(numa_mem_id(), place.nodes);
}

/* May all slots of a range have pages of Linux? */
static bool slots_take(struct hpmmap_ctx *ctx, unsigned long start,
		       unsigned long end, bool tail)
{
	unsigned long slot, last = slot_of(end - 1), pages = 0, slots = 0;
	unsigned int first, nr;

	for (slot = slot_of(start); slot <= last; slot++) {
		struct hpmmap_block *block = hpmmap_store_load(ctx, slot);

		if (block) {
			if (!hpmmap_block_is_few(block) ||
			    !has_room(block, slot, start, end, &nr))
				return false;
			pages += nr;
			continue;
		}
		if (!(tail || stands_apart(ctx, start, end)) ||
		    slot_is_in_use(ctx, slot))
			return false;
		slot_clip(slot, start, end, &first, &nr);
		pages += nr;
		slots++;
	}
	return !pages ||
	       (hpmmap_block_may_be_few(&ctx->owner, pages, slots) && is_near(ctx));
}

/* @tail: of a new mapping, otherwise something is mapped there now. */
static bool begin(struct hpmmap_ctx *ctx, unsigned long start,
		  unsigned long end, bool tail)
{
	bool ret, failed = false;
	unsigned long slot;

	if (ctx->job->strict || end - start > HPMMAP_FEW_IN_SLOT * PAGE_SIZE)
		return false;
	mmap_read_lock(ctx->mm);
	mutex_lock(&ctx->lock);
	ret = slots_take(ctx, start, end, tail);
	for (slot = slot_of(start); ret && slot <= slot_of(end - 1); slot++) {
		ret = hpmmap_store_load(ctx, slot) ||
		      hpmmap_store_insert_few(ctx, slot);
		failed = !ret;
	}
	mutex_unlock(&ctx->lock);
	mmap_read_unlock(ctx->mm);
	/* What the others have got nothing will be mapped in. */
	if (failed)
		hpmmap_store_take_back(ctx, start, end, false);
	return ret;
}

/*
 * A range is about to get memory, a few pages: a mapping there is to be replaced, or made
 * accessible. Returns whether its slots have ordinary pages from now on, also those where
 * nothing is mapped in the end: see hpmmap_change_settle(). Not under strict. ctx->ops is
 * held.
 */
bool hpmmap_few_begin(struct hpmmap_ctx *ctx, unsigned long start,
		      unsigned long end)
{
	lockdep_assert_held(&ctx->ops);
	return begin(ctx, start, end, false);
}

/*
 * The same of what a new mapping, where nothing is yet, has beyond whole slots: a buffer of
 * a power of two, and the C library's header before it, would hold a block more. False,
 * too, where its other slots may be shared with others.
 */
bool hpmmap_few_begin_tail(struct hpmmap_ctx *ctx, unsigned long start,
			   unsigned long end)
{
	unsigned long tail = end & SLOT_MASK;

	lockdep_assert_held(&ctx->ops);
	if (start & ~SLOT_MASK || start >= tail || tail == end ||
	    !begin(ctx, tail, end, true))
		return false;
	hpmmap_few_end(ctx, start, tail, false);
	return true;
}

/*
 * A block for a slot that has a few pages. @wait: whether to wait for pins; false when
 * that was in vain. What is pinned goes on with pages of Linux: all that is mapped in
 * the slot has them at the call, too. Returns whether the pools had none.
 */
static bool get_block(struct hpmmap_ctx *ctx, unsigned long slot, bool *wait)
{
	struct hpmmap_placement place;
	struct hpmmap_block *block;
	bool done = false;
	LIST_HEAD(one);

	mmap_read_lock(ctx->mm);
	block = hpmmap_store_load(ctx, slot);
	/* A touch may just replace one whose contents were lost. */
	if (!block) {
		mmap_read_unlock(ctx->mm);
		return false;
	}
	hpmmap_placement_copy(ctx, NULL, slot, block, &place);
	mmap_read_unlock(ctx->mm);
	if (hpmmap_reserve(ctx, &place, slot, 1, false, &one))
		return true;
	block = hpmmap_list_take(&one, slot);
	if (!mmap_write_lock_killable(ctx->mm)) {
		done = hpmmap_store_replace(ctx, slot, block, wait);
		mmap_write_unlock(ctx->mm);
	}
	if (!done) {
		list_add(&block->link, &one);
		hpmmap_pool_free_unused(&one);
	}
	return false;
}

/* Without a block its pages stand in for one from now on. */
static void stand_in(struct hpmmap_ctx *ctx, unsigned long slot)
{
	struct hpmmap_block *block;

	mutex_lock(&ctx->lock);
	block = hpmmap_store_load(ctx, slot);
	if (block && block->few) {
		hpmmap_block_few_end(&ctx->owner, block);
		xa_clear_mark(&ctx->store.blocks, slot, SLOT_FEW);
	}
	mutex_unlock(&ctx->lock);
	hpmmap_count_fallback(ctx, HPMMAP_FALLBACK_BLOCK, SLOT_SIZE);
}

/*
 * Has a slot, or the address space, too little room for what is becoming accessible in
 * the slot? One that had pages and gave them up is a slot that has a few, too.
 */
static bool is_full(struct hpmmap_ctx *ctx, unsigned long slot,
		    unsigned long start, unsigned long end)
{
	struct hpmmap_block *block;
	unsigned int more;
	bool ret;

	mutex_lock(&ctx->lock);
	block = hpmmap_store_load(ctx, slot);
	ret = block && hpmmap_block_is_few(block) &&
	      (!has_room(block, slot, start, end, &more) ||
	       (more && !hpmmap_block_may_be_few(&ctx->owner, more, 0)));
	mutex_unlock(&ctx->lock);
	return ret;
}

/*
 * Slots are going to have more than a few pages: a range is about to be mapped anew, or to
 * become accessible. @full: only slots that have too little room for it. ctx->ops is held.
 */
void hpmmap_few_end(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end,
		    bool full)
{
	unsigned long slot = slot_of(start), last = slot_of(end - 1);
	bool wait = true, vain = false;

	lockdep_assert_held(&ctx->ops);
	if (!xa_marked(&ctx->store.blocks, SLOT_FEW))
		return;
	for (; !fatal_signal_pending(current) &&
	       xa_find(&ctx->store.blocks, &slot, last, SLOT_FEW); slot++) {
		if (full && !is_full(ctx, slot, start, end))
			continue;
		if (get_block(ctx, slot, &wait))
			stand_in(ctx, slot);
		hpmmap_vma_repair(ctx, slot << SLOT_SHIFT,
				  (slot + 1) << SLOT_SHIFT, &vain);
		cond_resched();
	}
}
