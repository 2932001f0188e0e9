// SPDX-License-Identifier: GPL-2.0
/*
 * On which node memory lies.
 *
 * As on Linux the policy of the mapping decides (mbind), otherwise that of the
 * calling thread (set_mempolicy), otherwise the job's. Linux keeps both
 * policies; here they are read at the moment a block is needed. What a policy
 * says about a page holds for a block of 2 MB.
 */
#include <linux/capability.h>
#include <linux/cpuset.h>
#include <linux/mempolicy.h>
#include <linux/mman.h>
#include <linux/sched.h>
#include <linux/topology.h>

#include "hook.h"
#include "hpmmap.h"
#include "mem/block.h"
#include "mem/placement.h"
#include "mem/pool.h"
#include "as/ctx.h"
#include "as/job.h"
#include "as/policy.h"
#include "as/release.h"
#include "as/reserve.h"
#include "as/store.h"
#include "as/vma.h"

/* How many blocks are looked at for one to change places with. */
#define SPARE_LOOKS 1024

/* Nodes that the job leaves, and the caller's cpuset, if it is @own memory. */
static void nodes_usable(struct hpmmap_job *job, bool own, nodemask_t *nodes)
{
	int nid;

	lockdep_assert_held(&current->alloc_lock);
	*nodes = job->nodes;
	if (!own)
		return;
	/*
	 * A cpuset cannot name a node all of whose memory is in the pools, so
	 * it does not forbid it either.
	 */
	for_each_node_mask(nid, job->nodes)
		if (node_state(nid, N_MEMORY) &&
		    !node_isset(nid, cpuset_current_mems_allowed))
			node_clear(nid, *nodes);
}

static void prefer_only(struct hpmmap_placement *place, int nid)
{
	nodes_clear(place->preferred);
	if (nid != NUMA_NO_NODE && node_isset(nid, place->nodes))
		node_set(nid, place->preferred);
}

/* Of the nodes that have a pool, the nearest to the caller. */
static int nearest(const struct hpmmap_placement *place)
{
	nodemask_t tried = NODE_MASK_NONE;

	return hpmmap_pool_nearest(place->near, &place->preferred, &tried);
}

/* Takes turns at the preferred nodes, if one of them has a pool. */
static void take_turns(struct hpmmap_placement *place)
{
	nodemask_t pools;

	hpmmap_pool_nodes(&pools);
	nodes_and(pools, pools, place->preferred);
	if (nodes_empty(pools))
		return;
	place->preferred = pools;
	place->in_turn = true;
}

#ifdef CONFIG_NUMA
static void follow(struct hpmmap_placement *place, struct mempolicy *pol)
{
	switch (pol->mode) {
	case MPOL_BIND:
		nodes_and(place->nodes, place->nodes, pol->nodes);
		place->preferred = place->nodes;
		break;
	case MPOL_PREFERRED:
		place->near = first_node(pol->nodes);
		prefer_only(place, place->near);
		break;
	case MPOL_PREFERRED_MANY:
		nodes_and(place->preferred, place->nodes, pol->nodes);
		break;
	case COMPAT_MPOL_WEIGHTED_INTERLEAVE:
		place->weighted = true;
		fallthrough;
	case MPOL_INTERLEAVE:
		nodes_and(place->preferred, place->nodes, pol->nodes);
		take_turns(place);
		break;
	case MPOL_LOCAL:
		prefer_only(place, nearest(place));
		break;
	}
	if ((pol->mode == MPOL_BIND || pol->mode == MPOL_PREFERRED_MANY) &&
	    pol->home_node != NUMA_NO_NODE)
		place->near = pol->home_node;
}

static struct mempolicy *policy_of(struct vm_area_struct *vma, bool own)
{
	lockdep_assert_held(&current->alloc_lock);
	if (vma && vma->vm_policy)
		return vma->vm_policy;
	return own ? current->mempolicy : NULL;
}
#else
static void follow(struct hpmmap_placement *place, struct mempolicy *pol)
{
}

static struct mempolicy *policy_of(struct vm_area_struct *vma, bool own)
{
	return NULL;
}
#endif

/**
 * hpmmap_placement_get() - where memory for the caller should come from, now
 * @job: the job that pays
 * @vma: the mapping it is for, mmap_lock held; NULL for a new one
 * @place: out
 *
 * A debugger, say, may be the first to touch memory of another process: its own
 * policy and cpuset say nothing about that.
 */
void hpmmap_placement_get(struct hpmmap_job *job, struct vm_area_struct *vma,
			  struct hpmmap_placement *place)
{
	bool own = !vma || vma->vm_mm == current->mm;
	struct mempolicy *pol;

	place->near = numa_node_id();
	place->in_turn = false;
	place->weighted = false;
	place->large = false;
	/* Protects the thread's policy and its cpuset's nodes. */
	task_lock(current);
	nodes_usable(job, own, &place->nodes);
	place->preferred = place->nodes;
	pol = policy_of(vma, own);
	if (pol) {
		follow(place, pol);
	} else if (job->interleave) {
		take_turns(place);
		place->large = job->large;
	}
	task_unlock(current);
}

/* May a slot's memory stay on a node? */
bool hpmmap_placement_is_right(const struct hpmmap_placement *place,
			       unsigned long slot, int nid)
{
	return place->in_turn ?
	       nid == hpmmap_placement_turn(place, slot, 1, NULL) :
	       node_isset(nid, place->preferred);
}

/* Would a new mapping in a slot be placed as @place says? */
static bool slot_fits(struct hpmmap_ctx *ctx,
		      const struct hpmmap_placement *place, unsigned long slot,
		      bool strictly)
{
	unsigned long start = slot << SLOT_SHIFT;
	struct hpmmap_block *block = hpmmap_store_load(ctx, slot);
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, ctx->mm, start);

	lockdep_assert_held(&ctx->lock);
	if (block && !block->folio)
		return true;
	if (block && strictly)
		return node_isset(block->nid, place->nodes);
	if (block)
		return place->in_turn ?
		       hpmmap_placement_is_right(place, slot, block->nid) :
		       block->nid == nearest(place);
	if (strictly)
		return true;
	/* It will get the block of what mbind(2) has bound there. */
	for_each_vma_range(vmi, vma, start + SLOT_SIZE)
		if (hpmmap_vma_is_ours(vma) && vma_policy(vma))
			return false;
	return true;
}

/**
 * hpmmap_policy_fits() - may a new mapping share slots with what is there?
 * @ctx: the caller's context, ctx->ops held
 * @place: where its memory should come from
 * @start: start of the mapping
 * @end: its end
 * @strictly: anywhere but on a node that is not allowed (MPOL_BIND)
 *
 * What others have in a slot stays where it is, and so decides for all of it.
 */
bool hpmmap_policy_fits(struct hpmmap_ctx *ctx,
			const struct hpmmap_placement *place,
			unsigned long start, unsigned long end, bool strictly)
{
	unsigned long slots[] = { slot_of(start), slot_of(end - 1) };
	bool ret = true;
	int i;

	lockdep_assert_held(&ctx->ops);
	if (nr_node_ids == 1 || !((start | end) & ~SLOT_MASK))
		return true;
	mmap_read_lock(ctx->mm);
	mutex_lock(&ctx->lock);
	for (i = 0; i < ARRAY_SIZE(slots) && ret; i++) {
		unsigned int first, nr;

		slot_clip(slots[i], start, end, &first, &nr);
		ret = nr == SLOT_PAGES ||
		      slot_fits(ctx, place, slots[i], strictly);
	}
	mutex_unlock(&ctx->lock);
	mmap_read_unlock(ctx->mm);
	return ret;
}

/**
 * hpmmap_policy_apart() - a place beside others that were put apart
 * @ctx: the caller's context, ctx->ops held
 * @place: where its memory should come from
 * @len: length of a new mapping
 *
 * Return: where there may be room for it in a slot that was begun for the same
 * node by hpmmap_policy_begin_apart(), or 0.
 */
unsigned long hpmmap_policy_apart(struct hpmmap_ctx *ctx,
				  const struct hpmmap_placement *place,
				  unsigned long len)
{
	int nid = place->in_turn ? NUMA_NO_NODE : nearest(place), i;

	lockdep_assert_held(&ctx->ops);
	for (i = 0; i < ARRAY_SIZE(ctx->apart.slots); i++) {
		unsigned long next = ctx->apart.slots[i].next;

		if (!(next & ~SLOT_MASK) || ctx->apart.slots[i].nid != nid ||
		    len > SLOT_SIZE - (next & ~SLOT_MASK) ||
		    !hpmmap_policy_fits(ctx, place, next, next + len, true))
			continue;
		ctx->apart.slots[i].next += len;
		return next;
	}
	return 0;
}

/**
 * hpmmap_policy_begin_apart() - a slot of its own for a small mapping
 * @ctx: the caller's context, ctx->ops held
 * @place: where its memory should come from
 * @end: end of the mapping, behind which others may follow
 */
void hpmmap_policy_begin_apart(struct hpmmap_ctx *ctx,
			       const struct hpmmap_placement *place,
			       unsigned long end)
{
	int nid = place->in_turn ? NUMA_NO_NODE : nearest(place), i;

	lockdep_assert_held(&ctx->ops);
	for (i = 0; i < ARRAY_SIZE(ctx->apart.slots); i++)
		if (ctx->apart.slots[i].next && ctx->apart.slots[i].nid == nid)
			break;
	if (i == ARRAY_SIZE(ctx->apart.slots))
		i = ctx->apart.turn++ % ARRAY_SIZE(ctx->apart.slots);
	ctx->apart.slots[i].nid = nid;
	ctx->apart.slots[i].next = end;
}

/* On a node if the policy leaves it, the nearest to it otherwise. */
static void stay_on(struct hpmmap_placement *place, int nid)
{
	place->in_turn = false;
	place->near = nid;
	prefer_only(place, nid);
}

/**
 * hpmmap_placement_copy() - where the copy of a slot's block should come from
 * @ctx: who gets it
 * @vma: the mapping it is for, or NULL; during a fork that of the parent. The
 *	mmap_lock of its address space is held, or that of @ctx.
 * @slot: the slot
 * @from: its block
 * @place: out
 *
 * Where several mappings share the slot, a write to one of them moves none of
 * them: the copy lies where the block did, unless mbind(2) said otherwise for
 * one of them since.
 */
void hpmmap_placement_copy(struct hpmmap_ctx *ctx, struct vm_area_struct *vma,
			   unsigned long slot, const struct hpmmap_block *from,
			   struct hpmmap_placement *place)
{
	unsigned long start = slot << SLOT_SHIFT, end = start + SLOT_SIZE;
	struct vm_area_struct *other, *bound = NULL;
	VMA_ITERATOR(vmi, vma ? vma->vm_mm : ctx->mm, start);

	for_each_vma_range(vmi, other, end) {
		if (!hpmmap_vma_is_ours(other))
			continue;
		if (!from->folio || (other->vm_start <= start &&
				     other->vm_end >= end)) {
			hpmmap_placement_get(ctx->job, vma ? vma : other,
					     place);
			return;
		}
		if (!vma_policy(other))
			continue;
		bound = other;
		hpmmap_placement_get(ctx->job, bound, place);
		if (hpmmap_placement_is_right(place, slot, from->nid))
			break;
	}
	if (!bound)
		hpmmap_placement_get(ctx->job, vma, place);
	if (!bound || hpmmap_placement_is_right(place, slot, from->nid))
		stay_on(place, from->nid);
}

/* The first slot of [slot, end) whose block a mapping can keep. */
static unsigned long next_kept(struct hpmmap_ctx *ctx, unsigned long slot,
			       unsigned long end, bool renew)
{
	/* A new mapping leaves what is shared to the others. */
	while (slot < end && xa_find(&ctx->store, &slot, end - 1, XA_PRESENT) &&
	       renew && xa_get_mark(&ctx->store, slot, SLOT_SHARED))
		slot++;
	return slot < end && xa_load(&ctx->store, slot) ? slot : end;
}

/* Blocks for those slots of [slot, end) that have none to keep. */
static int alloc_missing(struct hpmmap_ctx *ctx,
			 const struct hpmmap_placement *place,
			 unsigned long slot, unsigned long end, bool renew,
			 struct list_head *out)
{
	while (slot < end) {
		unsigned long next = next_kept(ctx, slot, end, renew);
		int ret;

		ret = hpmmap_reserve(ctx, place, slot, next - slot,
					out);
		if (ret)
			return ret;
		slot = next + 1;
	}
	return 0;
}

/*
 * What is to be placed at its first touch may end up anywhere, so it is taken
 * from all nodes; slots that are covered in part are placed now.
 */
static int alloc_for_touch(struct hpmmap_ctx *ctx,
			   const struct hpmmap_placement *place,
			   unsigned long start, unsigned long end, bool renew,
			   struct list_head *out)
{
	unsigned long first = slot_of(start), last = slot_of(end - 1) + 1;
	unsigned long whole = slot_of(start + SLOT_SIZE - 1);
	unsigned long whole_end = max(whole, slot_of(end));
	struct hpmmap_placement spread = *place;
	int ret;

	if (!spread.in_turn)
		take_turns(&spread);
	ret = alloc_missing(ctx, &spread, whole, whole_end, renew, out);
	if (!ret)
		ret = alloc_missing(ctx, place, first, min(whole, last), renew,
				    out);
	if (!ret)
		ret = alloc_missing(ctx, place, whole_end, last, renew, out);
	return ret;
}

/* For a mapping, or where @vma is NULL for a new one. */
static int alloc_range(struct hpmmap_ctx *ctx, struct vm_area_struct *vma,
		       unsigned long start, unsigned long end,
		       struct list_head *out)
{
	struct hpmmap_placement place;

	if (start >= end)
		return 0;
	hpmmap_placement_get(ctx->job, vma, &place);
	if (ctx->job->first_touch)
		return alloc_for_touch(ctx, &place, start, end, !vma, out);
	return alloc_missing(ctx, &place, slot_of(start), slot_of(end - 1) + 1,
			     !vma, out);
}

/**
 * hpmmap_policy_alloc() - blocks for a new mapping
 * @ctx: the caller's context, ctx->ops held
 * @start: its start
 * @end: its end
 * @out: list they are added to: one for each slot that has none, or a shared
 *	one, which the mapping will not keep
 *
 * Return: 0, or -ENOMEM and nothing where there are not enough.
 */
int hpmmap_policy_alloc(struct hpmmap_ctx *ctx, unsigned long start,
			unsigned long end, struct list_head *out)
{
	LIST_HEAD(got);
	int ret = alloc_range(ctx, NULL, start, end, &got);

	lockdep_assert_held(&ctx->ops);
	if (ret)
		hpmmap_pool_free_list(&got);
	else
		list_splice_tail(&got, out);
	return ret;
}

/**
 * hpmmap_policy_alloc_mapped() - blocks that a commit of a range needs
 * @ctx: the caller's context, ctx->ops held
 * @start: first address
 * @end: end
 * @out: list they are added to: one for each slot of a mapping of ours that
 *	has none
 *
 * Return: 0, or -ENOMEM and nothing where there are not enough.
 */
int hpmmap_policy_alloc_mapped(struct hpmmap_ctx *ctx, unsigned long start,
			       unsigned long end, struct list_head *out)
{
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, ctx->mm, start);
	LIST_HEAD(got);
	int ret = 0;

	lockdep_assert_held(&ctx->ops);
	mmap_read_lock(ctx->mm);
	for_each_vma_range(vmi, vma, end) {
		unsigned long hi = min(end, vma->vm_end);

		if (!hpmmap_vma_is_ours(vma))
			continue;
		ret = alloc_range(ctx, vma, max(start, vma->vm_start), hi,
				  &got);
		if (ret)
			break;
		/* Two mappings in one slot need one block. */
		start = max(start, ALIGN(hi, SLOT_SIZE));
	}
	mmap_read_unlock(ctx->mm);
	if (ret)
		hpmmap_pool_free_list(&got);
	else
		list_splice_tail(&got, out);
	return ret;
}

/* First touch. */

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
		    hpmmap_block_idle(block))
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
	other = hpmmap_pool_alloc_instead(ctx->owner.account, nid, &nodes);
	if (other) {
		hpmmap_store_put(ctx, slot, other);
		hpmmap_block_release(ctx, block);
		atomic_long_inc(&ctx->nr_held);
		return other;
	}
	other = find_spare(ctx, nid, ctx->spare_slot, ULONG_MAX, &looks);
	if (!other)
		other = find_spare(ctx, nid, 0, ctx->spare_slot, &looks);
	if (!other)
		return NULL;
	hpmmap_store_put(ctx, other->slot, block);
	hpmmap_store_put(ctx, slot, other);
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
		prefer_only(&place, hpmmap_placement_turn(&place, block->slot,
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

/* What mbind(2) set, for a mapping that takes the place of another. */

#ifdef CONFIG_NUMA
/**
 * hpmmap_policy_copy() - the policy of a mapping
 * @vma: the mapping, mmap_lock held
 * @pol: out; only good for hpmmap_policy_set()
 *
 * Return: whether it has one of its own.
 */
bool hpmmap_policy_copy(struct vm_area_struct *vma, struct mempolicy *pol)
{
	lockdep_assert_held(&vma->vm_mm->mmap_lock);
	if (vma->vm_policy)
		*pol = *vma->vm_policy;
	return vma->vm_policy;
}

/* mbind(2) sets @fresh for a mapping of the caller. */
int hpmmap_vm_set_policy(struct vm_area_struct *vma, struct mempolicy *fresh)
{
	struct hpmmap_ctx *ctx = hpmmap_ctx_get(vma->vm_mm);
	const struct mempolicy *pol;

	if (!ctx)
		return 0;
	pol = ctx->bind.pol;
	/* A neighbour of the same policy may have been merged with it. */
	if (pol && fresh && ctx->bind.task == current &&
	    vma->vm_start >= ctx->bind.start && vma->vm_end <= ctx->bind.end) {
		fresh->mode = pol->mode;
		fresh->flags = pol->flags;
		fresh->nodes = pol->nodes;
		fresh->home_node = pol->home_node;
		fresh->w = pol->w;
	}
	hpmmap_ctx_put(ctx);
	return 0;
}

/**
 * hpmmap_policy_set() - give a range of ours a policy
 * @ctx: the caller's context, ctx->ops held
 * @start: first address
 * @len: length
 * @pol: the policy
 *
 * A kernel address cannot be given to mbind(2): it is told another policy,
 * which hpmmap_vm_set_policy() replaces. Without memory there is none.
 */
void hpmmap_policy_set(struct hpmmap_ctx *ctx, unsigned long start,
		       unsigned long len, const struct mempolicy *pol)
{
	struct pt_regs regs = {
		.di = start,
		.si = len,
		.dx = MPOL_LOCAL,
	};

	lockdep_assert_held(&ctx->ops);
	ctx->bind.start = start;
	ctx->bind.end = start + len;
	ctx->bind.task = current;
	ctx->bind.pol = pol;
	hpmmap_call_orig(HPMMAP_CALL_MBIND, &regs);
	ctx->bind.pol = NULL;
	/* Linux merges it with its neighbours when a flag changes. */
	regs.dx = MADV_DONTDUMP;
	hpmmap_call_orig(HPMMAP_CALL_MADVISE, &regs);
	regs.dx = MADV_DODUMP;
	hpmmap_call_orig(HPMMAP_CALL_MADVISE, &regs);
}
#else
bool hpmmap_policy_copy(struct vm_area_struct *vma, struct mempolicy *pol)
{
	return false;
}

void hpmmap_policy_set(struct hpmmap_ctx *ctx, unsigned long start,
		       unsigned long len, const struct mempolicy *pol)
{
}
#endif
