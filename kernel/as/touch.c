// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that is placed by who touches it first.
 */
#include <linux/mm.h>

#include "hpmmap.h"
#include "mem/block.h"
#include "mem/nodes.h"
#include "mem/pool.h"
#include "as/ctx.h"
#include "as/policy.h"
#include "as/release.h"
#include "as/store.h"
#include "as/touch.h"

/* How many blocks are looked at for one to change places with. */
#define SPARE_LOOKS 1024

/**
 * hpmmap_policy_defers() - is memory placed only when it is touched?
 * @ctx: the context
 * @block: a slot's block, or NULL
 * @start: start of what a mapping covers of the slot
 * @end: its end
 *
 * If so, the slot has a block, but it is not mapped before it is touched.
 */
bool hpmmap_policy_defers(struct hpmmap_ctx *ctx, struct hpmmap_block *block,
			  unsigned long start, unsigned long end)
{
	return ctx->job->first_touch && end - start == SLOT_SIZE &&
	       (!block || (block->folio &&
			   bitmap_full(block->stale, SLOT_PAGES)));
}

/* A slot from @from to @to whose block lies on @nid and was never seen. */
static struct hpmmap_block *find_spare(struct hpmmap_ctx *ctx, int nid,
				       unsigned long from, unsigned long to,
				       unsigned int *looks)
{
	struct hpmmap_block *block;
	unsigned long slot;

	xa_for_each_range(&ctx->store, slot, block, from, to) {
		if (!*looks)
			return NULL;
		--*looks;
		ctx->spare_slot = slot;
		if (block->folio && block->nid == nid &&
		    !hpmmap_block_is_shared(block) &&
		    bitmap_full(block->stale, SLOT_PAGES) &&
		    !hpmmap_block_is_hurt(block) && hpmmap_block_idle(block))
			return block;
	}
	return NULL;
}

/* A block on @nid for the place of @block, to which nobody else refers. */
static struct hpmmap_block *exchange(struct hpmmap_ctx *ctx,
				     struct hpmmap_block *block, int nid)
{
	struct hpmmap_block *other;
	unsigned int looks = SPARE_LOOKS;
	unsigned long slot = block->slot;
	nodemask_t nodes;

	init_nodemask_of_node(&nodes, nid);
	other = hpmmap_pool_alloc_instead(block->account, nid, &nodes);
	if (other) {
		other->gone = block->gone;
		hpmmap_store_insert(ctx, slot, other);
		hpmmap_block_release(ctx, block);
		atomic_long_inc(&ctx->nr_held);
		return other;
	}
	other = find_spare(ctx, nid, ctx->spare_slot, ULONG_MAX, &looks);
	if (!other)
		other = find_spare(ctx, nid, 0, ctx->spare_slot, &looks);
	if (!other)
		return NULL;
	swap(other->gone, block->gone);
	hpmmap_store_insert(ctx, other->slot, block);
	hpmmap_store_insert(ctx, slot, other);
	return other;
}

/**
 * hpmmap_policy_touch() - a slot is touched for the first time
 * @ctx: the context, its lock held
 * @vma: the mapping; mmap_lock held
 * @block: the slot's block, which hpmmap_policy_defers()
 *
 * The block is exchanged for one that lies where the caller's policy wants it,
 * if there is one.
 *
 * Return: the slot's block from now on.
 */
struct hpmmap_block *hpmmap_policy_touch(struct hpmmap_ctx *ctx,
					 struct vm_area_struct *vma,
					 struct hpmmap_block *block)
{
	nodemask_t tried = NODE_MASK_NONE;
	struct hpmmap_placement place;
	int nid;

	lockdep_assert_held(&vma->vm_mm->mmap_lock);
	lockdep_assert_held(&ctx->lock);
	if (!hpmmap_block_idle(block))
		return block;
	hpmmap_placement_get(ctx->job, vma, &place);
	if (place.in_turn)
		hpmmap_placement_prefer(&place, hpmmap_placement_turn(&place, block->slot,
							  1, NULL));
	for (;;) {
		struct hpmmap_block *other;

		nid = hpmmap_pool_nearest(place.near, &place.preferred, &tried);
		if (nid == NUMA_NO_NODE || nid == block->nid)
			return block;
		other = exchange(ctx, block, nid);
		if (other)
			return other;
	}
}
