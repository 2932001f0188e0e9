// SPDX-License-Identifier: GPL-2.0
/*
 * Runs in a store: gigabytes that are held as one. The slots of a run have no blocks in the store.
 * Whatever looks at one of them asks for the store by hpmmap_store(), the one place that breaks a run
 * up. It is never put together again.
 */

#include "hpmmap.h"
#include "mem/block/block.h"
#include "mem/pool/pool.h"
#include "as/own/ctx.h"
#include "as/own/run.h"
#include "as/own/stats.h"

#define for_each_run(_ctx, _i, _first, _from, _to) \
	xa_for_each_range(&(_ctx)->store.runs, _i, _first, (_from) / RUN_BLOCKS, (_to) / RUN_BLOCKS)

/*
 * Gives a run of a list to its slots, for an entry of 1 GB; all of it is zero. ctx->ops and ctx->lock
 * are held. False where a slot has a block already, without memory, and where a block may have a
 * memory error: then it stays in the list.
 */
bool hpmmap_run_add(struct hpmmap_ctx *ctx, struct hpmmap_block *first)
{
	struct list_head *before = first->link.prev;
	unsigned long slot = first->slot;

	lockdep_assert_held(&ctx->ops);
	lockdep_assert_held(&ctx->lock);
	if (xa_find(&ctx->store.blocks, &slot, slot + RUN_BLOCKS - 1, XA_PRESENT) ||
	    !hpmmap_pool_is_sound(first->nid))
		return false;
	/* A task that breaks it up, maybe at once, links the others behind it: not in the caller's list. */
	list_del_init(&first->link);
	if (xa_insert(&ctx->store.runs, first->slot / RUN_BLOCKS, first, GFP_KERNEL)) {
		list_add(&first->link, before);
		return false;
	}
	atomic_long_add(RUN_BLOCKS, &ctx->nr_held);
	hpmmap_count_placed(ctx, first, RUN_BLOCKS);
	return true;
}

/* A run becomes blocks in the store. No other task breaks it up, or gives it back. */
static void run_break(struct hpmmap_ctx *ctx, struct hpmmap_block *first)
{
	struct hpmmap_block *block;

	lockdep_assert_held(&ctx->store.breaking);
	hpmmap_run_unfold(first);
	for (block = first; block < first + RUN_BLOCKS; block++) {
		bitmap_zero(block->stale, SLOT_PAGES);
		hpmmap_block_attach(block, ctx->file->f_mapping, block->slot);
		/* A run that is half broken up would be of no use. */
		xa_store(&ctx->store.blocks, block->slot, block, GFP_KERNEL | __GFP_NOFAIL);
	}
}

/* For hpmmap_store() only. */
void hpmmap_runs_break(struct hpmmap_ctx *ctx, unsigned long from, unsigned long to)
{
	struct hpmmap_block *first;
	unsigned long i;

	if (!hpmmap_runs_count(ctx, from, to))
		return;
	mutex_lock(&ctx->store.breaking);
	for_each_run(ctx, i, first, from, to) {
		run_break(ctx, first);
		/* Without a lock its slots are looked for here, then in the blocks. */
		xa_erase(&ctx->store.runs, i);
		cond_resched();
	}
	mutex_unlock(&ctx->store.breaking);
}

/*
 * Gives runs back to the pools that lie wholly between two addresses where nothing is mapped, if
 * nothing refers to one of their blocks; others of these are broken up. ctx->ops and ctx->lock are
 * held, or the address space is gone. Returns how many blocks were given back.
 */
unsigned long hpmmap_runs_release(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end)
{
	struct hpmmap_block *first;
	unsigned long i, nr = 0;

	if (!hpmmap_has_runs(ctx))
		return 0;
	mutex_lock(&ctx->store.breaking);
	for_each_run(ctx, i, first, slot_of(start), slot_of(end - 1)) {
		int nid = first->nid;

		/* A mapping may still have a part of the first or the last slot. */
		if (i * HPMMAP_LARGE_BYTES < start || (i + 1) * HPMMAP_LARGE_BYTES > end)
			continue;
		/* It is in no store when it is free. */
		xa_erase(&ctx->store.runs, i);
		if (hpmmap_pool_free_run(first, true)) {
			hpmmap_ctx_soil(ctx, nid, RUN_BLOCKS);
			nr += RUN_BLOCKS;
		} else {
			run_break(ctx, first);
		}
		cond_resched();
	}
	mutex_unlock(&ctx->store.breaking);
	atomic_long_sub(nr, &ctx->nr_held);
	return nr;
}

/* Slots of runs in a range. */
unsigned long hpmmap_runs_count(struct hpmmap_ctx *ctx, unsigned long from, unsigned long to)
{
	struct hpmmap_block *first;
	unsigned long i, n = 0;

	for_each_run(ctx, i, first, from, to)
		n += min(to, (i + 1) * RUN_BLOCKS - 1) - max(from, i * RUN_BLOCKS) + 1;
	return n;
}

/* The slot of a block of a run, or NO_SLOT. A task that ends may give runs back meanwhile. */
unsigned long hpmmap_runs_find(struct hpmmap_ctx *ctx, const struct hpmmap_block *block)
{
	struct hpmmap_block *first;
	unsigned long i;

	xa_for_each(&ctx->store.runs, i, first)
		if (block >= first && block < first + RUN_BLOCKS)
			return i * RUN_BLOCKS + (block - first);
	return NO_SLOT;
}
