// SPDX-License-Identifier: GPL-2.0
/*
 * Moving blocks to where policies want them, and placing those that a thread touches first.
 */
#include "hpmmap.h"
#include "mem/block/account.h"
#include "mem/block/block.h"
#include "mem/block/nodes.h"
#include "mem/pool/pool.h"
#include "as/own/ctx.h"
#include "as/own/release.h"
#include "as/own/reserve.h"
#include "as/map/policy.h"
#include "as/map/vma.h"
#include "as/store/store.h"
#include "as/change/place.h"

static bool block_is_right(const struct hpmmap_placement *place,
			   struct hpmmap_block *block)
{
	struct page *page;
	unsigned int i;

	if (block->folio)
		return hpmmap_placement_is_right(place, block->slot,
						 block->nid);
	if (block->draft &&
	    !hpmmap_placement_is_right(place, block->slot, hpmmap_block_nid(block)))
		return false;
	hpmmap_for_each_linux_page(block, i, page)
		if (!hpmmap_placement_is_right(place, block->slot, page_to_nid(page)))
			return false;
	return true;
}

/*
 * Would others in the slot of [start, end) object to a block where @place says?
 * What has no policy of its own may be where a thread's policy wanted it.
 */
static bool others_object(struct hpmmap_ctx *ctx, unsigned long start,
			  unsigned long end,
			  const struct hpmmap_placement *place)
{
	unsigned long slot = slot_of(start);
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, ctx->mm, slot << SLOT_SHIFT);

	mmap_assert_locked(ctx->mm);
	for_each_vma_range(vmi, vma, (slot + 1) << SLOT_SHIFT) {
		struct hpmmap_placement its;

		if (!hpmmap_vma_is_ours(vma) ||
		    (max(vma->vm_start, slot << SLOT_SHIFT) >= start &&
		     min(vma->vm_end, (slot + 1) << SLOT_SHIFT) <= end))
			continue;
		if (!vma_policy(vma))
			return true;
		hpmmap_placement_get(ctx->job, vma, &its);
		if (its.in_turn != place->in_turn ||
		    !nodes_subset(place->preferred, its.preferred))
			return true;
	}
	return false;
}

/*
 * How the block of a slot lies for the mapping of ours in [start, end); if not
 * right, @place is how it should.
 */
enum hpmmap_look hpmmap_slot_look(struct hpmmap_ctx *ctx, unsigned long start,
			   unsigned long end, struct hpmmap_placement *place)
{
	enum hpmmap_look look = LOOK_RIGHT;
	struct hpmmap_block *block;
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, ctx->mm, start);

	mmap_read_lock(ctx->mm);
	mutex_lock(&ctx->lock);
	block = hpmmap_store_load(ctx, slot_of(start));
	for_each_vma_range(vmi, vma, end) {
		if (!block)
			break;
		/* No policy of its own is content with what there is. */
		if (!hpmmap_vma_is_ours(vma) || !vma_policy(vma))
			continue;
		hpmmap_placement_get(ctx->job, vma, place);
		if (block_is_right(place, block))
			break;
		look = others_object(ctx, start, end, place) ? LOOK_OTHERS : LOOK_WRONG;
		break;
	}
	mutex_unlock(&ctx->lock);
	mmap_read_unlock(ctx->mm);
	return look;
}

/*
 * A block where @place says in place of what a slot has, charged as that is. Ordinary memory
 * counts for no limit, so what takes its place has to ask.
 */
static struct hpmmap_block *block_instead(struct hpmmap_ctx *ctx,
					  unsigned long slot,
					  const struct hpmmap_placement *place)
{
	struct hpmmap_block *old, *block = NULL;
	struct hpmmap_account *account;
	bool more;

	mutex_lock(&ctx->lock);
	old = hpmmap_store_load(ctx, slot);
	more = !old || !old->folio || hpmmap_block_is_shared(old);
	if (!more)
		block = hpmmap_pool_alloc_instead(old->account, place->near,
						  &place->preferred);
	mutex_unlock(&ctx->lock);
	if (!more)
		return block;
	account = hpmmap_charged(ctx);
	if (!account)
		return NULL;
	block = hpmmap_pool_alloc_more(account, place->near, &place->preferred);
	hpmmap_account_put(account);
	return block;
}

bool hpmmap_slot_correct(struct hpmmap_ctx *ctx, unsigned long slot,
			 struct hpmmap_placement *place, bool *wait)
{
	struct hpmmap_block *block;
	bool done = false;
	LIST_HEAD(one);

	if (mmap_write_lock_killable(ctx->mm))
		return false;
	if (place->in_turn) {
		int nid = hpmmap_placement_turn(place, slot, 1, NULL);

		init_nodemask_of_node(&place->preferred, nid);
	}
	block = block_instead(ctx, slot, place);
	if (block)
		done = hpmmap_store_replace(ctx, slot, block, wait);
	if (block && !done)
		list_add(&block->link, &one);
	hpmmap_pool_free_unused(&one);
	mmap_write_unlock(ctx->mm);
	return done;
}

/* Is the block of a slot on one of these nodes? */
bool hpmmap_slot_is_on(struct hpmmap_ctx *ctx, unsigned long slot,
		       const nodemask_t *nodes)
{
	struct hpmmap_block *block;
	bool ret;

	mutex_lock(&ctx->lock);
	block = hpmmap_store_load(ctx, slot);
	ret = !block || ((block->folio || block->draft) &&
			 node_isset(hpmmap_block_nid(block), *nodes));
	mutex_unlock(&ctx->lock);
	return ret;
}

/*
 * Moves what lies in a range where its mapping does not want it; it is not mapped
 * afterwards. ctx->ops is held. Returns false if some is on a node where it must not be.
 */
bool hpmmap_policy_place(struct hpmmap_ctx *ctx, unsigned long start,
			 unsigned long end)
{
	struct hpmmap_placement place;
	bool wait = true, ret = true;
	unsigned long next;

	lockdep_assert_held(&ctx->ops);
	for (; start < end && !fatal_signal_pending(current); start = next) {
		start = hpmmap_store_next(ctx, start, end);
		if (start == end)
			break;
		next = min(end, (start & SLOT_MASK) + SLOT_SIZE);
		switch (hpmmap_slot_look(ctx, start, next, &place)) {
		case LOOK_RIGHT:
			break;
		case LOOK_WRONG:
			if (hpmmap_slot_correct(ctx, slot_of(start), &place, &wait))
				break;
			fallthrough;
		case LOOK_OTHERS:
			ret &= hpmmap_slot_is_on(ctx, slot_of(start), &place.nodes);
			break;
		}
		cond_resched();
	}
	return ret;
}

/*
 * The node of a page, NUMA_NO_NODE if it is not ours or was not placed yet. @shared: out:
 * whether it is shared since a fork.
 */
int hpmmap_page_node(struct hpmmap_ctx *ctx, unsigned long addr, bool *shared)
{
	unsigned int i = page_in_slot(addr);
	struct hpmmap_block *block;
	struct page *page = NULL;
	int nid = NUMA_NO_NODE;

	mutex_lock(&ctx->lock);
	block = hpmmap_store_load(ctx, slot_of(addr));
	if (block && !test_bit(i, block->stale))
		page = hpmmap_block_page(block, i);
	if (page) {
		nid = page_to_nid(page);
		*shared = hpmmap_block_is_shared(block);
	}
	mutex_unlock(&ctx->lock);
	return nid;
}

/* How many blocks are looked at for one to change places with. */
#define SPARE_LOOKS 1024

/*
 * Is memory placed only when it is touched? @block: a slot's, or NULL; @start, @end: what a
 * mapping covers of the slot. If so, the slot has a block, but it is not mapped before it
 * is touched. ctx->lock is held.
 */
bool hpmmap_policy_defers(struct hpmmap_ctx *ctx, struct hpmmap_block *block,
			  unsigned long start, unsigned long end)
{
	return ctx->job->first_touch && end - start == SLOT_SIZE &&
	       (!block || (block->folio &&
			   bitmap_full(block->stale, SLOT_PAGES)));
}

/* hpmmap_policy_defers() of the slot that has a range. */
bool hpmmap_slot_is_deferred(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end)
{
	bool ret;

	if (!ctx->job->first_touch)
		return false;
	mutex_lock(&ctx->lock);
	ret = hpmmap_policy_defers(ctx, hpmmap_store_load(ctx, slot_of(start)), start, end);
	mutex_unlock(&ctx->lock);
	return ret;
}

/* A slot from @from to @to whose block lies on @nid and was never seen. */
static struct hpmmap_block *find_spare(struct hpmmap_ctx *ctx, int nid,
				       unsigned long from, unsigned long to,
				       unsigned int *looks)
{
	struct hpmmap_block *block;
	unsigned long slot;

	hpmmap_for_each_block(ctx, slot, block, from, to) {
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

/* A block on @nid for the place of @block, which is not pinned. */
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

/*
 * A slot whose block hpmmap_policy_defers() is touched for the first time. The block is
 * exchanged for one that lies where the caller's policy wants it, if there is one.
 * ctx->lock and mmap_lock are held. Returns the slot's block from now on.
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
