// SPDX-License-Identifier: GPL-2.0
/*
 * mremap for a registered process: in place if there is room, otherwise the mapping
 * moves.
 */
#include <linux/pkeys.h>

#include "hook.h"
#include "hpmmap.h"
#include "as/own/ctx.h"
#include "as/map/file.h"
#include "as/map/policy.h"
#include "as/map/range.h"
#include "as/map/vma.h"
#include "as/store/store.h"
#include "as/change/change.h"
#include "as/change/fit.h"
#include "as/change/handback.h"
#include "as/change/place.h"
#include "call/step/extent.h"
#include "call/step/fresh.h"
#include "call/step/handle.h"
#include "call/step/remap.h"
#include "call/sys.h"

/* Fills in what the mapping at r->addr is; false if it is not ours. */
static bool remap_lookup(struct hpmmap_ctx *ctx, struct hpmmap_remap *r)
{
	struct vm_area_struct *vma;
	bool ours;

	mmap_read_lock(ctx->mm);
	vma = vma_lookup(ctx->mm, r->addr);
	ours = vma && hpmmap_vma_is_ours(vma);
	if (ours) {
		if (hpmmap_vma_is_stack(ctx, vma))
			r->map_flags |= MAP_STACK;
		r->grows = hpmmap_vma_grows(ctx, vma);
		r->vm_flags = vma->vm_flags;
		r->vm_end = vma->vm_end;
		r->pkey = vma_pkey(vma);
		r->sealed = compat_vma_is_sealed(vma);
		hpmmap_placement_get(ctx->job, vma, &r->place);
		r->bound = hpmmap_policy_copy(vma, &r->policy);
	}
	mmap_read_unlock(ctx->mm);
	if (!ours)
		return false;
	r->prot = hpmmap_vma_prot(r->vm_flags);
	if (r->vm_flags & VM_LOCKED)
		r->map_flags |= MAP_LOCKED;
	if (r->vm_flags & VM_NORESERVE)
		r->map_flags |= MAP_NORESERVE;
	return true;
}

/*
 * Grows although the pools have too little: pages of Linux stand in for the
 * blocks at the first touch. Not what is to be locked: Linux fills that before
 * the store knows of it.
 */
static unsigned long grow_short(struct hpmmap_ctx *ctx, const struct hpmmap_remap *r,
				unsigned long addr, unsigned long len)
{
	struct hpmmap_change c = HPMMAP_CHANGE(ctx, addr, addr + len);
	unsigned long mapped;

	if (!r->prot || r->map_flags & MAP_NORESERVE ||
	    (r->vm_flags | ctx->mm->def_flags) & VM_LOCKED ||
	    hpmmap_change_begin_new(&c) ||
	    !hpmmap_linux_may_help(ctx, hpmmap_store_missing(ctx, addr,
							     addr + len)))
		return -ENOMEM;
	if (hpmmap_range_is_taken(ctx, addr, addr + len))
		return -EEXIST;
	/* Before it may be written to. */
	hpmmap_change_renew(&c);
	mapped = hpmmap_vma_map(ctx, addr, len, r->prot, r->map_flags |
				MAP_FIXED_NOREPLACE);
	if (IS_ERR_VALUE(mapped))
		return mapped;
	/* Before there are blocks: later they may be on the wrong node. */
	if (r->bound)
		hpmmap_policy_set(ctx, addr, len, &r->policy);
	hpmmap_change_settle(&c, HPMMAP_FRESH, NULL);
	return mapped;
}

/* Grows at the end of the mapping; -EEXIST if that is not possible. */
static long grow_in_place(struct hpmmap_ctx *ctx, const struct hpmmap_remap *r)
{
	unsigned long end = r->addr + r->old_len;
	unsigned long len = r->new_len - r->old_len;
	struct hpmmap_change c = HPMMAP_CHANGE(ctx, end, end + len, .intact = HPMMAP_END_LAST,
					       .lazy = true);
	unsigned long mapped;
	bool fresh;
	long ret;

	if (end != r->vm_end || end + len < end || end + len > TASK_SIZE ||
	    hpmmap_store_is_pinned(ctx, end, end + len, true, &fresh) ||
	    !hpmmap_policy_fits(ctx, &r->place, end, end + len, true))
		return -EEXIST;
	mapped = hpmmap_map_fresh(ctx, end, len, r->prot, r->map_flags, false,
				  NULL);
	if (mapped == -ENOMEM)
		mapped = grow_short(ctx, r, end, len);
	if (IS_ERR_VALUE(mapped))
		return mapped;
	ret = hpmmap_remap_copy_advice(ctx, r, end, len);
	if (!ret)
		ret = hpmmap_remap_copy_lock(ctx, r, end, len);
	if (!ret && r->bound && !hpmmap_policy_place(ctx, end, end + len))
		ret = -ENOMEM;
	if (ret) {
		hpmmap_unmap(ctx, end, len);
		return ret;
	}
	/* One mapping now: its first slot may have one entry. */
	if (!r->bound)
		c.end = ALIGN(end, SLOT_SIZE);
	hpmmap_change_settle(&c, HPMMAP_KEPT, NULL);
	return r->addr;
}

static bool target_is_valid(const struct hpmmap_remap *r)
{
	if (offset_in_page(r->new_addr) || r->new_len > TASK_SIZE ||
	    r->new_addr > TASK_SIZE - r->new_len ||
	    r->old_len > TASK_SIZE - r->addr)
		return false;
	return r->addr + r->old_len <= r->new_addr ||
	       r->new_addr + r->new_len <= r->addr;
}

/*
 * What is about to be unmapped may be Linux's, and watched by a task that is told: in the old place
 * beyond the first mapping, or in the new place. Never what is to be moved.
 */
static long unwatch(const struct hpmmap_remap *r)
{
	bool fixed = r->flags & MREMAP_FIXED;
	long ret;

	/* It will be refused. */
	if (!r->old_len || (fixed && !target_is_valid(r)))
		return 0;
	ret = hpmmap_range_unwatch(r->addr + min(r->old_len, r->new_len),
				   r->addr + r->old_len);
	if (!ret && fixed)
		ret = hpmmap_range_unwatch(r->new_addr, r->new_addr + r->new_len);
	return ret;
}

static long remap_ours(struct hpmmap_ctx *ctx, struct hpmmap_remap *r)
{
	bool fixed = r->flags & MREMAP_FIXED, mixed;
	long ret;

	if (!fixed && r->old_len >= r->new_len) {
		if (r->old_len == r->new_len)
			return r->addr;
		ret = hpmmap_unmap(ctx, r->addr + r->new_len, r->old_len - r->new_len);
		return ret ? ret : r->addr;
	}
	/* As for private memory: a copy of it cannot be had this way. */
	if ((fixed && !target_is_valid(r)) || !r->old_len)
		return -EINVAL;
	/* What does not move may be anything. */
	mixed = min(r->old_len, r->new_len) > r->vm_end - r->addr;
	if (mixed && !hpmmap_remap_is_mixed(ctx, r))
		return -EFAULT;
	if (r->new_len > r->old_len &&
	    hpmmap_data_exceeds_limit(ctx, 0, r->new_len - r->old_len,
				      r->prot))
		return -ENOMEM;
	if (mixed)
		return hpmmap_remap_mixed(ctx, r);
	if (fixed)
		return hpmmap_remap_move(ctx, r, r->new_addr);

	ret = grow_in_place(ctx, r);
	/* What is locked may find pages of Linux elsewhere. */
	if (ret != -EEXIST && (ret != -ENOMEM || ctx->job->strict))
		return ret;
	if (!(r->flags & MREMAP_MAYMOVE))
		return -ENOMEM;
	return hpmmap_remap_anywhere(ctx, r, hpmmap_remap_move);
}

/*
 * Linux answers what is wrong with the arguments, and moves its own, perhaps
 * over some of ours. Without ctx->ops.
 */
static long remap_linux(struct hpmmap_ctx *ctx, const struct pt_regs *regs)
{
	unsigned long to = regs->r8, len = PAGE_ALIGN(regs->dx);
	unsigned long from = regs->di, old_len = PAGE_ALIGN(regs->si);
	struct hpmmap_change old = HPMMAP_CHANGE(ctx, from + len, from + old_len);
	struct hpmmap_change new = HPMMAP_CHANGE(ctx, to, to + len);
	/* What it shrinks by may be more than one mapping. */
	bool shrinks = !offset_in_page(from) && len < old_len &&
		       from + old_len > from;
	bool fixed = regs->r10 & MREMAP_FIXED && !offset_in_page(to) && len &&
		     to + len > to;
	long ret = shrinks ? hpmmap_change_begin_apart(&old) : 0;

	if (ret)
		return ret;
	ret = fixed ? hpmmap_change_begin_apart(&new) : 0;
	if (ret) {
		hpmmap_change_settle_apart(&old, HPMMAP_NOTHING);
		return ret;
	}
	ret = hpmmap_call_orig(HPMMAP_CALL_MREMAP, regs);
	if (shrinks)
		hpmmap_change_settle_apart(&old, HPMMAP_CUT);
	if (fixed)
		hpmmap_change_settle_apart(&new, HPMMAP_CUT);
	return ret;
}

static bool args_are_valid(const struct hpmmap_remap *r)
{
	if (r->flags & ~(MREMAP_FIXED | MREMAP_MAYMOVE | MREMAP_DONTUNMAP))
		return false;
	if (r->flags & (MREMAP_FIXED | MREMAP_DONTUNMAP) &&
	    !(r->flags & MREMAP_MAYMOVE))
		return false;
	if (r->flags & MREMAP_DONTUNMAP && r->old_len != r->new_len)
		return false;
	return !offset_in_page(r->addr) && r->new_len &&
	       r->addr < TASK_SIZE && r->old_len <= TASK_SIZE - r->addr;
}

/* Newer kernels move several mappings one by one, and would stop at ours. */
static bool moves_several(struct hpmmap_ctx *ctx, const struct hpmmap_remap *r)
{
	return r->flags & MREMAP_FIXED && r->old_len == r->new_len && target_is_valid(r) &&
	       hpmmap_range_has_ours(ctx, r->addr, r->addr + r->old_len);
}

static struct hpmmap_remap remap_of(const struct pt_regs *regs)
{
	return (struct hpmmap_remap){
		.addr = regs->di,
		.old_len = PAGE_ALIGN(regs->si),
		.new_len = PAGE_ALIGN(regs->dx),
		.flags = regs->r10,
		.new_addr = regs->r8,
	};
}

/* HPMMAP_NO_ANSWER: the mapping is not ours any more, since it was unmapped or handed back. */
static long handle_mremap(struct hpmmap_ctx *ctx, enum hpmmap_call call,
			  const struct pt_regs *regs)
{
	struct hpmmap_remap r = remap_of(regs);

	if (!remap_lookup(ctx, &r))
		return HPMMAP_NO_ANSWER;
	return r.sealed ? -EPERM : remap_ours(ctx, &r);
}

static long mremap_apart(struct hpmmap_ctx *ctx, enum hpmmap_call call,
			 const struct pt_regs *regs)
{
	struct hpmmap_remap r = remap_of(regs);
	long ret;

	if (!args_are_valid(&r))
		return remap_linux(ctx, regs);
	ret = hpmmap_extent_mremap(ctx, &r);
	while (ret == HPMMAP_NO_ANSWER) {
		if (!hpmmap_range_has_ours(ctx, r.addr, r.addr + 1))
			return moves_several(ctx, &r) ? -EFAULT : remap_linux(ctx, regs);
		/* Only Linux can leave the mapping of private memory behind. */
		if (r.flags & MREMAP_DONTUNMAP &&
		    (!(r.flags & MREMAP_FIXED) || target_is_valid(&r)))
			return hpmmap_handback(ctx, r.addr, r.addr + r.old_len, false, false) ?:
			       remap_linux(ctx, regs);
		ret = unwatch(&r) ?: hpmmap_handle_in(ctx, call, regs, handle_mremap);
		if (ret == HPMMAP_NO_ANSWER && signal_pending(current))
			ret = -ERESTARTNOINTR;
		cond_resched();
	}
	return ret;
}

long hpmmap_sys_mremap(const struct pt_regs *regs)
{
	unsigned int was = hpmmap_rights_keep();
	long ret = hpmmap_handle(HPMMAP_CALL_MREMAP, regs, mremap_apart);

	current->personality = was;
	return ret;
}
