// SPDX-License-Identifier: GPL-2.0
/*
 * Slots that only a few pages are asked for of.
 *
 * The bss of a shared library is mostly some pages, at an address that cannot be
 * chosen: a block for each would be most of what a small program costs. It has
 * pages of Linux instead, all of them at once and never on a list of those that are
 * reclaimed. When anything else is mapped in the slot it gets a block.
 */
#include <linux/mm.h>
#include <linux/sched/signal.h>

#include "hpmmap.h"
#include "mem/block.h"
#include "mem/placement.h"
#include "mem/pool.h"
#include "as/commit.h"
#include "as/counters.h"
#include "as/ctx.h"
#include "as/exchange.h"
#include "as/few.h"
#include "as/policy.h"
#include "as/range.h"
#include "as/reserve.h"
#include "as/stats.h"
#include "as/store.h"
#include "as/unmap.h"
#include "as/vma.h"

/* At most, of a mapping and of a slot. */
#define FEW_AT_ONCE 16
#define FEW_IN_SLOT 32

/* Is it part of a library that ld.so has mapped? mmap_lock held. */
static bool is_library(struct mm_struct *mm, unsigned long start,
		       unsigned long end)
{
	struct vm_area_struct *vma = vma_lookup(mm, start);

	return vma && vma->vm_file && !(vma->vm_flags & VM_SHARED) &&
	       !hpmmap_vma_is_ours(vma) && vma->vm_end >= end;
}

/* May the part of a range in a slot have pages of Linux? */
static bool slot_takes(struct hpmmap_ctx *ctx, unsigned long slot,
		       unsigned long start, unsigned long end)
{
	struct hpmmap_block *block = xa_load(&ctx->store, slot);
	unsigned int first, nr;

	if (!block)
		return !hpmmap_range_first_ours(ctx->mm, slot << SLOT_SHIFT,
					   (slot + 1) << SLOT_SHIFT);
	slot_clip(slot, start, end, &first, &nr);
	return block->few && SLOT_PAGES + nr -
	       bitmap_weight(block->stale, SLOT_PAGES) <= FEW_IN_SLOT;
}

/**
 * hpmmap_few_begin() - a range is about to be mapped anew, for a few pages
 * @ctx: the caller's context, ctx->ops held
 * @start: start of a mapping that is to be replaced
 * @end: its end
 *
 * Return: whether its slots have pages of Linux from now on, also those where
 * nothing is mapped in the end: see hpmmap_change_settle(). Not under strict.
 */
bool hpmmap_few_begin(struct hpmmap_ctx *ctx, unsigned long start,
		      unsigned long end)
{
	bool ret, failed = false;
	unsigned long slot;

	lockdep_assert_held(&ctx->ops);
	if (ctx->job->strict || end - start > FEW_AT_ONCE * PAGE_SIZE)
		return false;
	mmap_read_lock(ctx->mm);
	mutex_lock(&ctx->lock);
	ret = is_library(ctx->mm, start, end);
	for (slot = slot_of(start); ret && slot <= slot_of(end - 1); slot++)
		ret = slot_takes(ctx, slot, start, end);
	for (slot = slot_of(start); ret && slot <= slot_of(end - 1); slot++) {
		ret = xa_load(&ctx->store, slot) ||
		      hpmmap_store_insert_few(ctx, slot);
		failed = !ret;
	}
	mutex_unlock(&ctx->lock);
	mmap_read_unlock(ctx->mm);
	/* What the others have got nothing will be mapped in. */
	if (failed)
		hpmmap_store_reconcile(ctx, start, end);
	return ret;
}

/* The first slot of [slot, last] that has a few pages; NO_SLOT without one. */
static unsigned long next_few(struct hpmmap_ctx *ctx, unsigned long slot,
			      unsigned long last)
{
	struct hpmmap_block *block;
	unsigned long found = NO_SLOT, at;

	mutex_lock(&ctx->lock);
	xa_for_each_range(&ctx->store, at, block, slot, last)
		if (block->few) {
			found = at;
			break;
		}
	mutex_unlock(&ctx->lock);
	return found;
}

/* @wait: whether to wait for pins; false when that was in vain. */
static bool get_block(struct hpmmap_ctx *ctx, unsigned long slot, bool *wait)
{
	struct hpmmap_placement place;
	struct hpmmap_block *block;
	bool done;
	LIST_HEAD(one);

	hpmmap_placement_get(ctx->job, NULL, &place);
	if (hpmmap_reserve(ctx, &place, slot, 1, &one))
		return false;
	block = hpmmap_list_take(&one, slot);
	done = hpmmap_store_replace(ctx, slot, block, wait);
	if (!done) {
		list_add(&block->link, &one);
		hpmmap_pool_free_unused(&one);
	}
	return done;
}

/* Without a block its pages stand in for one from now on. */
static void stand_in(struct hpmmap_ctx *ctx, unsigned long slot)
{
	struct hpmmap_block *block;

	mutex_lock(&ctx->lock);
	block = xa_load(&ctx->store, slot);
	if (block && block->few)
		hpmmap_block_few_end(&ctx->owner, block);
	mutex_unlock(&ctx->lock);
	hpmmap_count_fallback(ctx, HPMMAP_FALLBACK_BLOCK, SLOT_SIZE);
}

/**
 * hpmmap_few_end() - slots are going to have more than a few pages
 * @ctx: the caller's context, ctx->ops held
 * @start: start of a range about to be mapped anew
 * @end: its end
 */
void hpmmap_few_end(struct hpmmap_ctx *ctx, unsigned long start,
		    unsigned long end)
{
	unsigned long slot = slot_of(start), last = slot_of(end - 1);
	bool wait = true;

	lockdep_assert_held(&ctx->ops);
	if (!ctx->has_few)
		return;
	while (!fatal_signal_pending(current) &&
	       (slot = next_few(ctx, slot, last)) != NO_SLOT) {
		if (!get_block(ctx, slot, &wait))
			stand_in(ctx, slot);
		hpmmap_vma_repair(ctx, slot << SLOT_SHIFT,
				  (slot + 1) << SLOT_SHIFT);
		slot++;
		cond_resched();
	}
}
