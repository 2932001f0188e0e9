// SPDX-License-Identifier: GPL-2.0
/*
 * A new mapping: its blocks, and what was there before.
 */
#include "hook.h"
#include "hpmmap.h"
#include "mem/block/block.h"
#include "mem/pool/pool.h"
#include "as/own/ctx.h"
#include "as/own/stats.h"
#include "as/map/file.h"
#include "as/map/range.h"
#include "as/store/freeze.h"
#include "as/store/store.h"
#include "as/change/change.h"
#include "as/change/few.h"
#include "as/change/fit.h"
#include "as/change/place.h"
#include "call/step/fresh.h"

/* What vm_mmap() is told. */
#define PASSED_MAP_FLAGS (MAP_NORESERVE | MAP_LOCKED)

/*
 * No memory until it is committed by mprotect(2) or mapped over. As on Linux nobody
 * reserves what is accessible where nothing may be overcommitted: what stands in
 * for a block is counted against no limit at its first touch.
 */
bool hpmmap_is_reservation(unsigned long prot, unsigned long flags)
{
	return !(prot & (PROT_READ | PROT_WRITE | PROT_EXEC)) ||
	       ((flags & (MAP_NORESERVE | MAP_POPULATE)) == MAP_NORESERVE &&
		compat_overcommits());
}

/*
 * Clears the blocks for the slots that a range covers wholly, before any lock
 * that others wait for is taken. Returns 0 or -EINTR if the caller is being
 * killed, and the call has to end with nothing changed.
 */
int hpmmap_blocks_clear(struct hpmmap_ctx *ctx, unsigned long start,
			 unsigned long end, struct list_head *blocks)
{
	/* Those will be cleared at their first touch. */
	if (ctx->job->first_touch)
		return 0;
	return hpmmap_pool_clear(&ctx->owner, blocks, slot_of(start + SLOT_SIZE - 1),
				 slot_of(end));
}

/* Will a new mapping find a block in a slot, and keep it? */
static bool slot_is_kept(struct hpmmap_ctx *ctx, unsigned long slot)
{
	return hpmmap_store_load(ctx, slot) &&
	       !xa_get_mark(&ctx->store.blocks, slot, SLOT_SHARED);
}

/*
 * Blocks for the slots of a new mapping that have none. They take those of
 * @ahead first, slots covered in part only what was kept for reuse, from the
 * end. Where the place is not @fixed, no whole slot has a block. @unclear: out: they
 * are not all of @ahead.
 */
static int blocks_find(struct hpmmap_ctx *ctx, unsigned long start,
		       unsigned long end, bool fixed, struct list_head *ahead,
		       struct list_head *blocks, bool *unclear)
{
	unsigned long addr = start, next;
	struct hpmmap_block *block, *last;
	unsigned int looked = 0;
	int ret = 0;

	if (!fixed && !((start | end) & ~SLOT_MASK) && ahead) {
		list_for_each_entry(block, ahead, link) {
			addr = hpmmap_block_place(block, slot_of(addr)) << SLOT_SHIFT;
			hpmmap_every(&looked, SLOT_PAGES);
		}
		list_splice_tail_init(ahead, blocks);
	}
	for (; !ret && addr < end && ahead && !list_empty(ahead); addr = next) {
		unsigned int first = page_in_slot(addr), nr;

		next = min(end, (addr & SLOT_MASK) + SLOT_SIZE);
		nr = (next - addr) >> PAGE_SHIFT;
		if ((fixed || nr < SLOT_PAGES) &&
		    slot_is_kept(ctx, slot_of(addr)))
			continue;
		block = list_first_entry(ahead, struct hpmmap_block, link);
		if (nr < SLOT_PAGES) {
			last = list_last_entry(ahead, struct hpmmap_block,
					       link);
			if (!bitmap_empty(last->reuse, SLOT_PAGES))
				block = last;
			if (bitmap_empty(block->reuse, SLOT_PAGES)) {
				ret = hpmmap_policy_alloc(ctx, addr, next,
							  blocks);
				continue;
			}
			/* Around the mapping nothing has a meaning. */
			hpmmap_block_set_stale(block, 0, first);
			hpmmap_block_set_stale(block, first + nr,
					       SLOT_PAGES - first - nr);
		}
		next = min(end, hpmmap_block_place(block, slot_of(addr)) << SLOT_SHIFT);
		list_move_tail(&block->link, blocks);
	}
	*unclear = addr < end;
	return ret || !*unclear ? ret : hpmmap_policy_alloc(ctx, addr, end, blocks);
}

/* For a range that is not mapped yet. */
static void store_commit_range(struct hpmmap_ctx *ctx, unsigned long start,
			       unsigned long end, struct list_head *blocks)
{
	unsigned long next;

	for (; start < end && !fatal_signal_pending(current); start = next) {
		next = min(end, (start & SLOT_MASK) + SLOT_SIZE);
		/* hpmmap_store_commit() wants it. */
		mmap_read_lock(ctx->mm);
		if (hpmmap_slot_is_deferred(ctx, start, next))
			hpmmap_store_reserve(ctx, NULL, slot_of(start), blocks);
		else
			hpmmap_store_commit(ctx, NULL, start, next, blocks, NULL);
		mmap_read_unlock(ctx->mm);
		cond_resched();
	}
}

/* May it have old contents of the process, and is it kept afterwards? */
bool hpmmap_wants_reuse(unsigned long prot, unsigned long flags)
{
	return flags & MAP_UNINITIALIZED && !hpmmap_is_reservation(prot, flags);
}

/* Is it a mapping of the file of stacks? */
static bool is_stack(struct hpmmap_ctx *ctx, unsigned long flags)
{
	return flags & MAP_STACK && !(flags & MAP_POPULATE) &&
	       !ctx->job->eager_stacks;
}

/* Is it a stack, most of which gets memory only when it is touched? */
bool hpmmap_wants_stack(struct hpmmap_ctx *ctx, unsigned long flags)
{
	return is_stack(ctx, flags) && !(flags & MAP_LOCKED) &&
	       !(ctx->mm->def_flags & VM_LOCKED);
}

/*
 * A touch by the caller, as MAP_POPULATE is, and as Linux fills what is locked: by pages of
 * its own where the pools have none.
 */
void hpmmap_touch_range(unsigned long addr, unsigned long len, unsigned long prot)
{
	hpmmap_madvise(addr, len, prot & PROT_WRITE ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
}

/*
 * A new mapping of zeros, all of it mapped. @flags: as given to mmap(2). @fixed: replaces
 * what is there; otherwise that is -EEXIST. @ahead: blocks that need no clearing, to use
 * first, or NULL. ctx->ops is held. Returns @addr or an errno. -ENOMEM: nothing was
 * changed, unless @fixed: what was to be replaced may be gone then.
 */
unsigned long hpmmap_map_fresh(struct hpmmap_ctx *ctx, unsigned long addr,
			       unsigned long len, unsigned long prot,
			       unsigned long flags, bool fixed,
			       struct list_head *ahead)
{
	bool locked = flags & MAP_LOCKED || ctx->mm->def_flags & VM_LOCKED;
	struct hpmmap_change c = {
		.ctx = ctx,
		.start = addr,
		.end = addr + len,
		.lazy = hpmmap_is_reservation(prot, flags),
		.reuse = hpmmap_wants_reuse(prot, flags),
		.replaces = fixed,
		.empty = addr >= ctx->hole.start && addr + len <= ctx->hole.end,
	};
	bool frozen = false, unclear = false, stack = hpmmap_wants_stack(ctx, flags);
	bool accessible = prot & (PROT_READ | PROT_WRITE | PROT_EXEC);
	unsigned long given = stack ? hpmmap_stack_given(c.start, c.end) : addr;
	unsigned long ret = -ENOMEM;
	LIST_HEAD(blocks);

	lockdep_assert_held(&ctx->ops);
	/* Linux maps it all at once, in the place of what has memory: so does it here. */
	if (fixed && locked && accessible)
		c.lazy = false;
	if (!accessible)
		c.few = true;
	else if (!locked && !c.lazy && !c.reuse && !stack)
		c.few = fixed ? hpmmap_few_begin(ctx, c.start, c.end) :
				flags & MAP_ANONYMOUS &&
				hpmmap_few_begin_tail(ctx, c.start, c.end);
	if (hpmmap_change_begin_new(&c))
		goto err_few;
	/* In a hole nothing gets contents until it is mapped. */
	c.empty |= c.blank && !fixed && !c.reuse && !ctx->reuse.nr_mapped;
	if (!c.lazy &&
	    blocks_find(ctx, given, addr + len, fixed, ahead, &blocks, &unclear)) {
		if (ctx->job->strict)
			hpmmap_count_refusal(ctx);
		goto err_few;
	}
	/* Where some of @ahead are not cleared the caller is being killed. */
	ret = unclear ? hpmmap_blocks_clear(ctx, addr, addr + len, &blocks) :
	      fatal_signal_pending(current) ? -EINTR : 0;
	if (ret)
		goto err_few;
	/*
	 * What was there means nothing any more before it may be written to. Where it
	 * would be lost if the call failed, it is frozen until that is known.
	 * Otherwise what is to be locked has its memory then, too: Linux maps it at once.
	 */
	if (c.ours) {
		ret = hpmmap_freeze(ctx, addr, addr + len, false);
		if (ret)
			goto err_few;
		frozen = true;
	} else {
		if (!fixed && (locked || !c.empty) &&
		    hpmmap_range_is_taken(ctx, addr, addr + len)) {
			ctx->hole.end = 0;
			ret = -EEXIST;
			goto err_few;
		}
		hpmmap_change_renew(&c);
		if (locked && !c.lazy)
			store_commit_range(ctx, addr, addr + len, &blocks);
	}
	ret = hpmmap_vma_map(ctx, addr, len, prot, (flags & PASSED_MAP_FLAGS) |
			     (is_stack(ctx, flags) ? MAP_STACK : 0) |
			     (fixed ? MAP_FIXED : MAP_FIXED_NOREPLACE));
	if (frozen) {
		if (!IS_ERR_VALUE(ret))
			hpmmap_change_renew(&c);
		hpmmap_thaw(ctx);
	}
	/*
	 * Where Linux has merged it with the stack above, only the call tells
	 * where it ends.
	 */
	if (!IS_ERR_VALUE(ret) && stack && !c.lazy)
		store_commit_range(ctx, given, c.end, &blocks);
	/* A mapping to be replaced may be gone even if it failed; or it has to be mapped again. */
	c.lazy |= IS_ERR_VALUE(ret);
	hpmmap_change_settle(&c, !IS_ERR_VALUE(ret) ? HPMMAP_FRESH :
			     frozen ? HPMMAP_FAILED : HPMMAP_CUT, &blocks);
	if (!IS_ERR_VALUE(ret) &&
	    ((ctx->job->first_touch && flags & MAP_POPULATE) ||
	     (frozen && locked && accessible && !c.lazy)))
		hpmmap_touch_range(addr, len, prot);
	goto out;

err_few:
	if (c.few)
		hpmmap_change_settle(&c, HPMMAP_CUT, NULL);
out:
	if (unlikely(!list_empty(&blocks)))
		hpmmap_pool_free_unused(&blocks);
	return ret;
}

/* hpmmap_map_fresh(), but -ENOMEM where a policy forbids the node of a slot. */
unsigned long hpmmap_map_where_fit(struct hpmmap_ctx *ctx,
				   const struct hpmmap_placement *place,
				   unsigned long addr, unsigned long len,
				   unsigned long prot, unsigned long flags,
				   bool fixed, struct list_head *ahead)
{
	if (!hpmmap_policy_fits(ctx, place, addr, addr + len, true))
		return -ENOMEM;
	return hpmmap_map_fresh(ctx, addr, len, prot, flags, fixed, ahead);
}
