// SPDX-License-Identifier: GPL-2.0
/*
 * Reuse: memory that a process gives up and gets again without zeroing.
 *
 * Only what a process has mapped with MAP_UNINITIALIZED, or given
 * HPMMAP_MADV_REUSE, is kept for it, and only requests with that flag see it
 * again. Whole blocks go to the context's pool when their slot is unmapped;
 * pages of a slot that stays mapped in part wait in their block. A context
 * never has more blocks, mapped and kept, than it had mapped with the flag at
 * its peak. A child begins with nothing, and what execve leaves is given up.
 *
 * After S. Valat, M. Perache and W. Jalby, "Introducing Kernel-Level Page Reuse
 * for High Performance Computing", MSPC 2013.
 */
#include "hpmmap.h"
#include "mem/block/account.h"
#include "mem/block/block.h"
#include "mem/block/nodes.h"
#include "mem/pool/pool.h"
#include "as/own/ctx.h"
#include "as/own/reuse.h"
#include "as/own/run.h"

/*
 * Contexts that may keep something, in the order in which they give. One that is
 * found with nothing leaves the list until it keeps something again.
 */
static LIST_HEAD(keepers);
static unsigned long nr_keepers;
static DEFINE_SPINLOCK(reuse_lock);

/* Blocks that are kept; no CPU's share means anything by itself. */
static DEFINE_PER_CPU(long, nr_kept);

/* Contexts that are looked at without a pause, and blocks of one of them. */
#define RECLAIM_LOOKS 64
#define GIVE_LOOKS 256

void hpmmap_reuse_init(struct hpmmap_ctx *ctx)
{
	spin_lock_init(&ctx->reuse.lock);
	INIT_LIST_HEAD(&ctx->reuse.link);
}

/* Gets a context ready to keep blocks. False without memory. */
static bool keeper_init(struct hpmmap_ctx *ctx)
{
	struct list_head *blocks;
	int nid;

	if (ctx->reuse.blocks)
		return true;
	blocks = kvmalloc_array(nr_node_ids, sizeof(*blocks), GFP_KERNEL_ACCOUNT);
	if (!blocks)
		return false;
	for (nid = 0; nid < nr_node_ids; nid++)
		INIT_LIST_HEAD(&blocks[nid]);
	ctx->reuse.blocks = blocks;
	return true;
}

/* It is going to keep something. */
static void keeper_list(struct hpmmap_ctx *ctx)
{
	if (likely(!list_empty_careful(&ctx->reuse.link)))
		return;
	spin_lock(&reuse_lock);
	if (list_empty(&ctx->reuse.link)) {
		list_add_tail(&ctx->reuse.link, &keepers);
		nr_keepers++;
	}
	spin_unlock(&reuse_lock);
}

static void keeper_unlist_locked(struct hpmmap_ctx *ctx)
{
	lockdep_assert_held(&reuse_lock);
	if (list_empty(&ctx->reuse.link))
		return;
	list_del_init(&ctx->reuse.link);
	nr_keepers--;
}

/*
 * Moves up to @nr blocks of a node to a list; with @payer those that count for it. Where
 * they are charged to several, others go behind them, so that the next look finds more.
 */
static unsigned long give_node(struct hpmmap_ctx *ctx, int nid,
			       struct hpmmap_payer *payer, unsigned long nr,
			       struct list_head *out)
{
	struct list_head *blocks = &ctx->reuse.blocks[nid];
	unsigned int looks = GIVE_LOOKS;
	unsigned long n = 0;

	spin_lock(&ctx->reuse.lock);
	while (n < nr && !list_empty(blocks)) {
		struct hpmmap_block *block;

		block = list_first_entry(blocks, struct hpmmap_block, link);
		if (!payer || hpmmap_account_counts_for(block->account, payer)) {
			list_move_tail(&block->link, out);
			n++;
		} else if (!ctx->reuse.account && --looks) {
			list_move_tail(&block->link, blocks);
		} else {
			break;
		}
	}
	ctx->reuse.nr -= n;
	spin_unlock(&ctx->reuse.lock);
	this_cpu_sub(nr_kept, n);
	hpmmap_pool_count_mapped(nid, n);
	atomic_long_sub(n, &ctx->nr_held);
	return n;
}

static unsigned long give(struct hpmmap_ctx *ctx, const nodemask_t *nodes,
			  struct hpmmap_payer *payer, unsigned long nr,
			  struct list_head *out)
{
	unsigned long n = 0;
	int nid;

	hpmmap_for_each_node(nid, *nodes)
		n += give_node(ctx, nid, payer, nr - n, out);
	return n;
}

/* A context that nothing can find keeps nothing any more. */
void hpmmap_reuse_exit(struct hpmmap_ctx *ctx)
{
	struct hpmmap_block *block;
	LIST_HEAD(blocks);

	if (!ctx->reuse.blocks)
		return;
	spin_lock(&reuse_lock);
	keeper_unlist_locked(ctx);
	spin_unlock(&reuse_lock);
	give(ctx, &node_states[N_POSSIBLE], NULL, ULONG_MAX, &blocks);
	list_for_each_entry(block, &blocks, link)
		hpmmap_ctx_soil(ctx, block->nid, 1);
	hpmmap_pool_free_unused(&blocks);
	kvfree(ctx->reuse.blocks);
	ctx->reuse.blocks = NULL;
}

/* @whole: all of it has contents that the process may see again. */
static void keep(struct hpmmap_ctx *ctx, struct hpmmap_block *block, bool whole)
{
	struct list_head *blocks = &ctx->reuse.blocks[block->nid];

	hpmmap_block_set_stale(block, 0, SLOT_PAGES);
	hpmmap_folio_detach(block->folio);
	block->reuse_id = 0;
	block->slot = NO_SLOT;
	spin_lock(&ctx->reuse.lock);
	/*
	 * The last one first: it may be in a cache. Those with less are for
	 * slots covered in part.
	 */
	if (whole)
		list_add(&block->link, blocks);
	else
		list_add_tail(&block->link, blocks);
	if (!ctx->reuse.nr++)
		ctx->reuse.account = block->account;
	else if (ctx->reuse.account != block->account)
		ctx->reuse.account = NULL;
	spin_unlock(&ctx->reuse.lock);
	this_cpu_inc(nr_kept);
	hpmmap_pool_count_mapped(block->nid, -1);
	/* Pairs with that of keeper_idle(): one of both sees it. */
	smp_mb();
	keeper_list(ctx);
}

/* A block leaves the store; returns whether it is to be kept for reuse. */
bool hpmmap_reuse_forget(struct hpmmap_ctx *ctx, struct hpmmap_block *block)
{
	if (block->reuse_id != ctx->id)
		return false;
	block->reuse_id = 0;
	ctx->reuse.nr_mapped--;
	return true;
}

/*
 * Keeps a block of the context that has left the store. ctx->lock is held. Returns whether
 * it was kept; otherwise it is to be released.
 */
bool hpmmap_reuse_keep(struct hpmmap_ctx *ctx, struct hpmmap_block *block)
{
	unsigned long stale = 0;
	unsigned int i;

	lockdep_assert_held(&ctx->lock);
	if (!block->folio || block->draft || hpmmap_block_is_hurt(block) ||
	    ctx->job->first_touch ||
	    ctx->reuse.nr + ctx->reuse.nr_mapped >= ctx->reuse.peak ||
	    hpmmap_block_is_shared(block) || !hpmmap_block_idle(block))
		return false;
	/* All that has contents has the flag. */
	for (i = 0; i < ARRAY_SIZE(block->stale); i++) {
		if (~(block->stale[i] | block->reuse[i]))
			return false;
		stale |= block->stale[i];
	}
	keep(ctx, block, !stale);
	return true;
}

/* Keeps again what hpmmap_reuse_take() gave and was not needed, up to the peak. */
void hpmmap_reuse_return(struct hpmmap_ctx *ctx, struct list_head *blocks)
{
	struct hpmmap_block *block, *tmp;
	bool whole;

	if (list_empty(blocks))
		return;
	mutex_lock(&ctx->lock);
	list_for_each_entry_safe(block, tmp, blocks, link) {
		if (bitmap_empty(block->reuse, SLOT_PAGES) ||
		    ctx->reuse.nr + ctx->reuse.nr_mapped >= ctx->reuse.peak)
			continue;
		whole = bitmap_full(block->reuse, SLOT_PAGES);
		/* What is not the process's own was zeroed for it. */
		bitmap_fill(block->reuse, SLOT_PAGES);
		list_del(&block->link);
		keep(ctx, block, whole);
		atomic_long_inc(&ctx->nr_held);
	}
	mutex_unlock(&ctx->lock);
}

/*
 * Adds up to @nr kept blocks to @out, for a mapping with the flag: with their old contents
 * and otherwise zero; those of a node with the least are its last. @place: where they
 * should lie; in turn is as good as it is.
 */
void hpmmap_reuse_take(struct hpmmap_ctx *ctx,
		       const struct hpmmap_placement *place, unsigned long nr,
		       struct list_head *out)
{
	nodemask_t tried = NODE_MASK_NONE;
	struct hpmmap_block *block, *tmp;
	LIST_HEAD(got);
	LIST_HEAD(bad);

	if (!READ_ONCE(ctx->reuse.nr))
		return;

	if (node_isset(place->near, place->preferred))
		nr -= give_node(ctx, place->near, NULL, nr, &got);
	while (nr && READ_ONCE(ctx->reuse.nr)) {
		int nid = hpmmap_pool_nearest(place->near, &place->preferred,
					      &tried);

		if (nid == NUMA_NO_NODE)
			break;
		nr -= give_node(ctx, nid, NULL, nr, &got);
	}
	list_for_each_entry_safe(block, tmp, &got, link) {
		if (fatal_signal_pending(current))
			break;
		if (hpmmap_block_is_hurt(block)) {
			list_move(&block->link, &bad);
			continue;
		}
		bitmap_andnot(block->stale, block->stale, block->reuse,
			      SLOT_PAGES);
		if (!bitmap_empty(block->stale, SLOT_PAGES))
			hpmmap_block_fill(&ctx->owner, block, 0, SLOT_PAGES);
		list_move_tail(&block->link, out);
	}
	/* Only if the caller is being killed. */
	list_splice_tail(&got, &bad);
	hpmmap_pool_free_unused(&bad);
}

/* Blocks that processes keep, on whatever node. */
unsigned long hpmmap_reuse_kept(void)
{
	long n = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		n += per_cpu(nr_kept, cpu);
	return max(n, 0L);
}

/* Whether a context keeps nothing; it is in no list then. */
static bool keeper_idle(struct hpmmap_ctx *ctx)
{
	lockdep_assert_held(&reuse_lock);
	if (READ_ONCE(ctx->reuse.nr))
		return false;
	keeper_unlist_locked(ctx);
	smp_mb();
	if (!READ_ONCE(ctx->reuse.nr))
		return true;
	list_add_tail(&ctx->reuse.link, &keepers);
	nr_keepers++;
	return false;
}

/*
 * A block of one of the next @looks contexts; returns whether there was one. Who
 * was looked at goes behind all others.
 */
static bool reclaim_one(const nodemask_t *nodes, struct hpmmap_payer *payer,
			unsigned int looks)
{
	struct hpmmap_block *block;
	struct hpmmap_ctx *ctx;
	LIST_HEAD(blocks);
	bool found = false;

	spin_lock(&reuse_lock);
	while (!found && looks-- && !list_empty(&keepers)) {
		ctx = list_first_entry(&keepers, struct hpmmap_ctx, reuse.link);
		if (keeper_idle(ctx))
			continue;
		list_move_tail(&ctx->reuse.link, &keepers);
		found = give(ctx, nodes, payer, 1, &blocks);
	}
	spin_unlock(&reuse_lock);
	block = list_first_entry_or_null(&blocks, struct hpmmap_block, link);
	if (block) {
		int nid = block->nid;

		hpmmap_pool_free_unused(&blocks);
		hpmmap_pool_soiled(nid, 1);
	}
	return found;
}

/*
 * Takes back up to @nr blocks that processes keep, in turn, of @nodes and, with @payer, of
 * those whose memory counts for it. Ends early for a process that is being killed. Returns
 * how many.
 */
unsigned long hpmmap_reuse_reclaim(const nodemask_t *nodes,
				   struct hpmmap_payer *payer, unsigned long nr)
{
	unsigned long n = 0, misses = 0;

	while (n < nr && misses < READ_ONCE(nr_keepers) &&
	       !fatal_signal_pending(current)) {
		if (reclaim_one(nodes, payer, RECLAIM_LOOKS)) {
			misses = 0;
			n++;
		} else {
			misses += RECLAIM_LOOKS;
		}
		cond_resched();
	}
	return n;
}

/*
 * A new mapping is made where memory may be kept. With the flag (@see) it sees the pages
 * that had it; otherwise they lose it. ctx->ops is held.
 */
void hpmmap_reuse_renew(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end,
			bool see)
{
	struct hpmmap_block *block;
	unsigned long slot;

	lockdep_assert_held(&ctx->ops);
	if (!ctx->reuse.nr_mapped)
		return;
	mutex_lock(&ctx->lock);
	hpmmap_for_each_block(ctx, slot, block, slot_of(start), slot_of(end - 1)) {
		unsigned int first, nr, i;

		if (block->reuse_id != ctx->id || hpmmap_block_is_shared(block))
			continue;
		slot_clip(slot, start, end, &first, &nr);
		i = first;
		if (see)
			for_each_set_bit_from(i, block->reuse, first + nr)
				clear_bit(i, block->stale);
		else
			bitmap_clear(block->reuse, first, nr);
		cond_resched();
	}
	mutex_unlock(&ctx->lock);
}

/* A block of the pools, in the store and its own, is to be kept. ctx->lock is held. */
void hpmmap_reuse_mark(struct hpmmap_ctx *ctx, struct hpmmap_block *block)
{
	lockdep_assert_held(&ctx->lock);
	if (block->reuse_id == ctx->id)
		return;
	block->reuse_id = ctx->id;
	bitmap_zero(block->reuse, SLOT_PAGES);
	ctx->reuse.nr_mapped++;
}

/* What is stale may have been of another process. */
static void set_reuse(struct hpmmap_block *block, unsigned int first,
		      unsigned int nr)
{
	unsigned int i = first;

	if (bitmap_empty(block->stale, SLOT_PAGES)) {
		bitmap_set(block->reuse, first, nr);
		return;
	}
	for_each_clear_bit_from(i, block->stale, first + nr)
		__set_bit(i, block->reuse);
}

/*
 * Memory of a range is to be kept when it is unmapped; not ordinary memory, nor what is
 * shared with a child. ctx->ops is held.
 */
void hpmmap_reuse_set(struct hpmmap_ctx *ctx, unsigned long start,
		      unsigned long end)
{
	struct hpmmap_block *block;
	unsigned int first, nr;
	unsigned long slot;

	lockdep_assert_held(&ctx->ops);
	if (ctx->job->first_touch || !keeper_init(ctx))
		return;
	mutex_lock(&ctx->lock);
	hpmmap_for_each_block(ctx, slot, block, slot_of(start),
			  slot_of(end - 1)) {
		if (!block->folio || block->draft || hpmmap_block_is_shared(block))
			continue;
		hpmmap_reuse_mark(ctx, block);
		slot_clip(slot, start, end, &first, &nr);
		set_reuse(block, first, nr);
		cond_resched();
	}
	ctx->reuse.peak = max(ctx->reuse.peak, ctx->reuse.nr_mapped);
	mutex_unlock(&ctx->lock);
}
