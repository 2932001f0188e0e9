// SPDX-License-Identifier: GPL-2.0
/*
 * On which node memory lies.
 *
 * As on Linux the policy of the mapping decides (mbind), otherwise that of the
 * calling thread (set_mempolicy), otherwise the job's. Linux keeps both
 * policies; here they are read at the moment a block is needed. What a policy
 * says about a page holds for a block of 2 MB.
 */
#include <linux/cpuset.h>

#include "hook.h"
#include "hpmmap.h"
#include "mem/block/block.h"
#include "mem/block/nodes.h"
#include "as/own/ctx.h"
#include "as/own/job.h"
#include "as/map/policy.h"
#include "as/map/vma.h"

/* Nodes that the job leaves, and the caller's cpuset, if it is @own memory. */
static void nodes_usable(struct hpmmap_job *job, bool own, nodemask_t *nodes)
{
	int nid;

	lockdep_assert_held(&current->alloc_lock);
	*nodes = job ? job->nodes : node_states[N_POSSIBLE];
	if (!own)
		return;
	/*
	 * A cpuset cannot name a node all of whose memory is in the pools, so
	 * it does not forbid it either.
	 */
	hpmmap_for_each_node(nid, node_states[N_MEMORY])
		if (!node_isset(nid, cpuset_current_mems_allowed))
			node_clear(nid, *nodes);
}

static void follow(struct hpmmap_placement *place, struct mempolicy *pol)
{
	switch (pol->mode) {
	case MPOL_BIND:
		nodes_and(place->nodes, place->nodes, pol->nodes);
		place->preferred = place->nodes;
		break;
	case MPOL_PREFERRED:
		place->near = first_node(pol->nodes);
		hpmmap_placement_prefer(place, place->near);
		break;
	case MPOL_PREFERRED_MANY:
		nodes_and(place->preferred, place->nodes, pol->nodes);
		break;
	case COMPAT_MPOL_WEIGHTED_INTERLEAVE:
		place->weighted = true;
		fallthrough;
	case MPOL_INTERLEAVE:
		nodes_and(place->preferred, place->nodes, pol->nodes);
		hpmmap_placement_take_turns(place);
		break;
	case MPOL_LOCAL:
		hpmmap_placement_prefer(place, hpmmap_placement_nearest(place));
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

/*
 * Where memory for the caller should come from, now. @job: pays, or NULL without one. @vma:
 * the mapping it is for, mmap_lock held; NULL for a new one. A debugger may be the first to
 * touch memory of another process: its own policy and cpuset say nothing about that.
 */
void hpmmap_placement_get(struct hpmmap_job *job, struct vm_area_struct *vma,
			  struct hpmmap_placement *place)
{
	bool own = !vma || vma->vm_mm == current->mm;
	struct mempolicy *pol;

	if (vma)
		mmap_assert_locked(vma->vm_mm);
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
	} else if (job && job->interleave) {
		hpmmap_placement_take_turns(place);
		place->large = job->large;
	}
	task_unlock(current);
}

/* May a slot's memory stay on a node? */
bool hpmmap_placement_is_right(const struct hpmmap_placement *place, unsigned long slot, int nid)
{
	return place->in_turn ? nid == hpmmap_placement_turn(place, slot, 1, NULL) :
	       node_isset(nid, place->preferred);
}

/*
 * Where the copy of a slot's block @from should come from. @vma: the mapping it is for, or
 * NULL; during a fork that of the parent. The mmap_lock of its address space is held, or
 * that of @ctx.
 *
 * Where several mappings share the slot, a write to one of them moves none of them: the
 * copy lies where the block did, unless mbind(2) said otherwise for one of them since.
 */
void hpmmap_placement_copy(struct hpmmap_ctx *ctx, struct vm_area_struct *vma,
			   unsigned long slot, const struct hpmmap_block *from,
			   struct hpmmap_placement *place)
{
	unsigned long start = slot << SLOT_SHIFT, end = start + SLOT_SIZE;
	struct vm_area_struct *other, *bound = NULL;
	VMA_ITERATOR(vmi, vma ? vma->vm_mm : ctx->mm, start);

	mmap_assert_locked(vma ? vma->vm_mm : ctx->mm);
	for_each_vma_range(vmi, other, end) {
		if (!hpmmap_vma_is_ours(other))
			continue;
		if (!from->folio || (other->vm_start <= start && other->vm_end >= end)) {
			hpmmap_placement_get(ctx->job, vma ? vma : other, place);
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
	if (from->nid != NUMA_NO_NODE &&
	    (!bound || hpmmap_placement_is_right(place, slot, from->nid))) {
		/* There if the policy leaves that node, the nearest to it otherwise. */
		place->in_turn = false;
		place->near = from->nid;
		hpmmap_placement_prefer(place, from->nid);
	}
}

/*
 * Copies the policy of a mapping, for hpmmap_policy_set() only. Returns whether it has one
 * of its own. mmap_lock is held.
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

/*
 * Gives a range of ours a policy. A kernel address cannot be given to mbind(2): it is told
 * another policy, which hpmmap_vm_set_policy() replaces. Without memory there is none.
 * ctx->ops is held.
 */
void hpmmap_policy_set(struct hpmmap_ctx *ctx, unsigned long start,
		       unsigned long len, const struct mempolicy *pol)
{
	const struct pt_regs regs = { .di = start, .si = len, .dx = MPOL_LOCAL };

	lockdep_assert_held(&ctx->ops);
	ctx->bind.start = start;
	ctx->bind.end = start + len;
	ctx->bind.task = current;
	ctx->bind.pol = pol;
	hpmmap_call_orig(HPMMAP_CALL_MBIND, &regs);
	ctx->bind.pol = NULL;
	/* Linux merges it with its neighbours when a flag changes. */
	hpmmap_madvise(start, len, MADV_DONTDUMP);
	hpmmap_madvise(start, len, MADV_DODUMP);
}
