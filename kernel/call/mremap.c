// SPDX-License-Identifier: GPL-2.0
/*
 * mremap for a registered process.
 *
 * Contents are found by address, so a mapping is not moved by Linux: a new
 * one is made, the blocks change their slots (what does not fill a slot is
 * copied), and the old one is unmapped.
 */
#include <linux/mempolicy.h>
#include <linux/mman.h>
#include <linux/pkeys.h>
#include <linux/sched/signal.h>
#include <linux/syscalls.h>

#include "hook.h"
#include "hpmmap.h"
#include "mem/placement.h"
#include "mem/pool.h"
#include "as/change.h"
#include "as/ctx.h"
#include "as/file.h"
#include "as/fit.h"
#include "as/freeze.h"
#include "as/move.h"
#include "as/place.h"
#include "as/policy.h"
#include "as/range.h"
#include "as/reserve.h"
#include "as/stats.h"
#include "as/store.h"
#include "as/vma.h"
#include "call/fresh.h"
#include "call/handle.h"
#include "call/sys.h"

/**
 * struct remap - one call
 * @addr: old address
 * @old_len: old length, page aligned
 * @new_len: new length, page aligned
 * @flags: MREMAP_*
 * @new_addr: new address, where it is given
 * @prot: PROT_* of the mapping
 * @map_flags: MAP_* that a new mapping needs to be like it
 * @place: where memory for it comes from
 * @bound: mbind(2) set a policy for it
 * @policy: which
 * @pkey: its protection key
 * @sealed: by mseal(2)
 * @grows: it is a stack, whose memory waits until it is touched
 * @vm_flags: its flags
 * @vm_end: its end
 */
struct remap {
	unsigned long addr;
	unsigned long old_len;
	unsigned long new_len;
	unsigned long flags;
	unsigned long new_addr;
	unsigned long prot;
	unsigned long map_flags;
	struct hpmmap_placement place;
	bool bound;
	struct mempolicy policy;
	int pkey;
	bool sealed;
	bool grows;
	vm_flags_t vm_flags;
	unsigned long vm_end;
};

/* Fills in what the mapping at r->addr is; false if it is not ours. */
static bool remap_lookup(struct hpmmap_ctx *ctx, struct remap *r)
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
 * What madvise(2), pkey_mprotect(2) and mbind(2) set holds for the new mapping,
 * too.
 */
static long copy_advice(struct hpmmap_ctx *ctx, const struct remap *r,
			unsigned long addr, unsigned long len)
{
	static const struct {
		vm_flags_t flag;
		int advice;
	} table[] = {
		{ VM_DONTCOPY, MADV_DONTFORK },
		{ VM_DONTDUMP, MADV_DONTDUMP },
		{ VM_HUGEPAGE, MADV_HUGEPAGE },
		{ VM_NOHUGEPAGE, MADV_NOHUGEPAGE },
		{ VM_SEQ_READ, MADV_SEQUENTIAL },
		{ VM_RAND_READ, MADV_RANDOM },
	};
	struct pt_regs regs = {
		.di = addr,
		.si = len,
		.dx = r->prot,
		.r10 = r->pkey,
	};
	long ret = 0;
	int i;

	if (r->bound)
		hpmmap_policy_set(ctx, addr, len, &r->policy);
	if (r->pkey)
		ret = hpmmap_call_orig(HPMMAP_CALL_PKEY_MPROTECT, &regs);
	/* A key that has been freed, or Linux's for what may only be executed. */
	if (ret == -EINVAL)
		ret = 0;

	for (i = 0; i < ARRAY_SIZE(table) && !ret; i++) {
		if (!(r->vm_flags & table[i].flag))
			continue;
		regs.dx = table[i].advice;
		ret = hpmmap_call_orig(HPMMAP_CALL_MADVISE, &regs);
	}
	if (r->vm_flags & VM_WIPEONFORK && !ret)
		ret = hpmmap_vma_wipe_on_fork(ctx, addr, addr + len, true);
	/* madvise(2) says so where a mapping cannot be split. */
	return ret == -EAGAIN ? -ENOMEM : ret;
}

/* A range of ours goes; the mappings around it stay mapped. */
static long unmap_range(struct hpmmap_ctx *ctx, unsigned long start,
			unsigned long len)
{
	struct hpmmap_change c = {
		.ctx = ctx,
		.start = start,
		.end = start + len,
	};
	long ret = vm_munmap(start, len);

	/* One end may be cut, and not the other. */
	if (!ret || ret == -ENOMEM)
		hpmmap_change_settle(&c, ret ? HPMMAP_NOTHING : HPMMAP_CUT,
				     NULL);
	return ret;
}

static bool lazy(const struct remap *r)
{
	return !r->prot || r->map_flags & MAP_NORESERVE || r->grows;
}

/*
 * Grows although the pools have too little: pages of Linux stand in for the
 * blocks at the first touch. Not what is to be locked: Linux fills that before
 * the store knows of it.
 */
static unsigned long grow_short(struct hpmmap_ctx *ctx, const struct remap *r,
				unsigned long addr, unsigned long len)
{
	struct hpmmap_change c = {
		.ctx = ctx,
		.start = addr,
		.end = addr + len,
	};
	unsigned long mapped;

	if (!r->prot || r->map_flags & MAP_NORESERVE ||
	    (r->vm_flags | ctx->mm->def_flags) & VM_LOCKED ||
	    hpmmap_change_begin_new(&c) ||
	    !hpmmap_linux_may_help(ctx, hpmmap_store_missing(ctx, addr,
							     addr + len)))
		return -ENOMEM;
	if (hpmmap_range_is_taken(ctx, addr, addr + len))
		return -EEXIST;
	/* Before somebody may write to it. */
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
static long grow_in_place(struct hpmmap_ctx *ctx, const struct remap *r)
{
	unsigned long end = r->addr + r->old_len;
	unsigned long len = r->new_len - r->old_len;
	struct hpmmap_change c = {
		.ctx = ctx,
		.start = end,
		.end = end + len,
		.intact = HPMMAP_END_LAST,
		.lazy = true,
	};
	unsigned long mapped;
	bool fresh;
	long ret;

	if (end != r->vm_end || end + len < end || end + len > TASK_SIZE ||
	    !hpmmap_store_wait_unpinned(ctx, end, end + len, &fresh) ||
	    !hpmmap_policy_fits(ctx, &r->place, end, end + len, true))
		return -EEXIST;
	mapped = hpmmap_map_fresh(ctx, end, len, r->prot, r->map_flags, false,
				  NULL);
	if (mapped == -ENOMEM)
		mapped = grow_short(ctx, r, end, len);
	if (IS_ERR_VALUE(mapped))
		return mapped;
	ret = copy_advice(ctx, r, end, len);
	if (ret) {
		unmap_range(ctx, end, len);
		return ret;
	}
	if (r->bound && !hpmmap_policy_place(ctx, end, end + len)) {
		unmap_range(ctx, end, len);
		return -ENOMEM;
	}
	/* One mapping now: its first slot may have one entry. */
	if (!r->bound)
		c.end = ALIGN(end, SLOT_SIZE);
	hpmmap_change_settle(&c, HPMMAP_KEPT, NULL);
	return r->addr;
}

/* Blocks that the new place needs beyond those that move there. */
static unsigned long count_needed(struct hpmmap_ctx *ctx,
				  const struct remap *r, unsigned long to)
{
	unsigned long len = min(r->old_len, r->new_len);
	unsigned long nr = hpmmap_store_missing(ctx, to, to + r->new_len) +
			   hpmmap_store_count_shared(ctx, to, to + r->new_len);
	bool congruent = !((r->addr ^ to) & ~SLOT_MASK);
	unsigned long start = ALIGN(r->addr, SLOT_SIZE);
	unsigned long end = (r->addr + len) & SLOT_MASK;
	unsigned long moved = 0;

	if (congruent && start < end && start >= r->addr)
		moved = hpmmap_store_count(ctx, start, end);
	if (lazy(r))
		/* At most as many as there are contents, cut differently. */
		nr = min(nr, 1 + hpmmap_store_count(ctx, r->addr,
						    r->addr + len));
	nr -= min(nr, moved);
	/* The old place is given new zeros for what moved away. */
	if (r->flags & MREMAP_DONTUNMAP && !lazy(r))
		nr += moved;
	return nr;
}

/* Takes the old mapping's entries out of the page tables. */
static long detach_old(struct hpmmap_ctx *ctx, const struct remap *r)
{
	unsigned long ret;

	if (!(r->flags & MREMAP_DONTUNMAP))
		return vm_munmap(r->addr, r->old_len);
	ret = hpmmap_vma_map(ctx, r->addr, r->old_len, r->prot, MAP_FIXED |
			     (r->map_flags & ~MAP_LOCKED));
	if (IS_ERR_VALUE(ret))
		return ret;
	copy_advice(ctx, r, r->addr, r->old_len);
	return 0;
}

/*
 * For Linux a mapping that moves is never there twice: until the old one is gone it
 * does not count against RLIMIT_AS.
 */
static void discount_old(struct hpmmap_ctx *ctx, const struct remap *r)
{
	if (!(r->flags & MREMAP_DONTUNMAP))
		hpmmap_range_discount(ctx, r->addr,
				      min(r->old_len, r->new_len));
}

/*
 * The part of an old mapping that is locked is unlocked before there is a new one, and
 * locked again if it stays: a mapping that moves is never locked twice. Memory of the
 * pools stays in place either way.
 */
static long relock_old(const struct remap *r, bool lock)
{
	struct pt_regs regs = {
		.di = r->addr,
		.si = min(r->old_len, r->vm_end - r->addr),
		.dx = r->vm_flags & VM_LOCKONFAULT ? MLOCK_ONFAULT : 0,
	};

	if (!(r->vm_flags & VM_LOCKED))
		return 0;
	return hpmmap_call_orig(lock ? HPMMAP_CALL_MLOCK2 : HPMMAP_CALL_MUNLOCK,
				&regs);
}

/* @to is free, or to be replaced where it was given. */
static long move_to(struct hpmmap_ctx *ctx, const struct remap *r,
		    unsigned long to)
{
	unsigned long len = min(r->old_len, r->new_len);
	struct hpmmap_change old = {
		.ctx = ctx,
		.start = r->addr,
		.end = r->addr + r->old_len,
		.lazy = lazy(r),
	};
	struct hpmmap_change new = {
		.ctx = ctx,
		.start = to,
		.end = to + r->new_len,
		.lazy = lazy(r),
	};
	bool fixed = r->flags & MREMAP_FIXED;
	unsigned long mapped, needed;
	LIST_HEAD(blocks);
	long ret;

	if (hpmmap_change_begin_new(&new) || hpmmap_change_begin_move(&old) ||
	    !hpmmap_policy_fits(ctx, &r->place, to, to + r->new_len, true))
		return -ENOMEM;
	needed = count_needed(ctx, r, to);
	if (hpmmap_reserve(ctx, &r->place, NO_SLOT, needed, &blocks) &&
	    !hpmmap_linux_may_help(ctx, needed)) {
		hpmmap_count_refusal(ctx);
		return -ENOMEM;
	}
	ret = relock_old(r, false);
	if (ret)
		goto out;
	/*
	 * Who comes to either place from here on waits until it has what it is to have: what
	 * is written there before would be lost.
	 */
	ret = hpmmap_freeze_moving(ctx, r->addr, len, to, r->new_len);
	if (ret) {
		relock_old(r, true);
		goto out;
	}
	discount_old(ctx, r);
	mapped = hpmmap_vma_map(ctx, to, r->new_len, r->prot, r->map_flags |
				(fixed ? MAP_FIXED : MAP_FIXED_NOREPLACE));
	/* What is unmapped from here on is counted. */
	hpmmap_range_count_again(ctx);
	ret = IS_ERR_VALUE(mapped) ? mapped : 0;
	if (ret)
		goto err_relock;
	hpmmap_change_renew(&new);
	/* Before there is anything in it that a key protects. */
	ret = copy_advice(ctx, r, to, r->new_len);
	if (!ret)
		ret = detach_old(ctx, r);
	if (ret) {
		vm_munmap(to, r->new_len);
		if (r->flags & MREMAP_DONTUNMAP)
			hpmmap_range_kill_if_lost(ctx, old.start, old.end);
		goto err_relock;
	}
	ret = hpmmap_store_move(ctx, r->addr, to, len, &blocks);
	/* Its mapping is gone, and what has not moved goes with it. */
	if (ret && ret != -EINTR)
		hpmmap_contents_lost();
	/* Zeros are in the old place before it can be reached. */
	if (r->flags & MREMAP_DONTUNMAP)
		hpmmap_change_renew(&old);
	hpmmap_thaw(ctx);
	old.replaces = true;
	hpmmap_change_settle(&old, r->flags & MREMAP_DONTUNMAP ?
			     HPMMAP_FRESH : HPMMAP_CUT, &blocks);
	hpmmap_change_settle(&new, HPMMAP_KEPT, &blocks);
	if (r->map_flags & MAP_LOCKED && !lazy(r))
		hpmmap_touch_range(to, r->new_len, r->prot);
	if (!ret)
		ret = to;
	goto out;

err_relock:
	hpmmap_thaw(ctx);
	/* What was to be replaced may be gone, or a part of the old one. */
	new.lazy = true;
	hpmmap_change_settle(&new, fixed ? HPMMAP_FAILED : HPMMAP_CUT, NULL);
	relock_old(r, true);
	old.lazy = true;
	hpmmap_change_settle(&old, HPMMAP_FAILED, NULL);
out:
	hpmmap_pool_free_unused(&blocks);
	return ret;
}

/*
 * Where in its slot the new mapping should start: where the old one does, if
 * whole slots then move without a copy; otherwise at its beginning.
 */
static unsigned long best_phase(const struct remap *r, unsigned long align)
{
	unsigned long end = r->addr + min(r->old_len, r->new_len);

	if (ALIGN(r->addr, SLOT_SIZE) + SLOT_SIZE > end)
		return 0;
	return r->addr & (align - 1);
}

static long move_anywhere(struct hpmmap_ctx *ctx, const struct remap *r,
			  unsigned long hint)
{
	unsigned long align = r->new_len >= SLOT_SIZE ? SLOT_SIZE : PAGE_SIZE;
	long ret = -EEXIST;
	int tries = 16;

	while (ret == -EEXIST && tries--) {
		unsigned long to;

		to = hpmmap_find_place(ctx, &r->place, hint, r->new_len,
				       MAP_PRIVATE | MAP_ANONYMOUS, align,
				       best_phase(r, align));
		if (IS_ERR_VALUE(to))
			return to;
		ret = move_to(ctx, r, to);
		hint = 0;
	}
	return ret == -EEXIST ? -ENOMEM : ret;
}

/* Also where it is no more than a hint. */
static bool target_is_valid(const struct remap *r)
{
	if (offset_in_page(r->new_addr) || r->new_len > TASK_SIZE ||
	    r->new_addr > TASK_SIZE - r->new_len ||
	    r->old_len > TASK_SIZE - r->addr)
		return false;
	return r->addr + r->old_len <= r->new_addr ||
	       r->new_addr + r->new_len <= r->addr;
}

/*
 * What is about to be unmapped may be Linux's, and watched by somebody who is
 * told: in the old place beyond the first mapping, or in the new place.
 */
static bool is_watched(const struct remap *r)
{
	return hpmmap_range_is_watched(r->addr + min(r->old_len, r->new_len),
				       r->addr + r->old_len) ||
	       (r->flags & MREMAP_FIXED &&
		hpmmap_range_is_watched(r->new_addr, r->new_addr + r->new_len));
}

/* The same range, never what is to be moved. */
static long unwatch(const struct remap *r)
{
	long ret;

	ret = hpmmap_range_unwatch(r->addr + min(r->old_len, r->new_len),
				   r->addr + r->old_len);
	if (!ret && r->flags & MREMAP_FIXED)
		ret = hpmmap_range_unwatch(r->new_addr,
					   r->new_addr + r->new_len);
	return ret;
}

/*
 * Is all of a range one mapping of ours, and behind it one of Linux's like it? That
 * is what becomes of one call that the pools have too little for.
 */
static bool is_mixed(struct hpmmap_ctx *ctx, const struct remap *r)
{
	struct vm_area_struct *vma;
	bool ret;

	mmap_read_lock(ctx->mm);
	vma = vma_lookup(ctx->mm, r->vm_end);
	ret = vma && vma_is_anonymous(vma) &&
	      vma->vm_end - r->addr >= min(r->old_len, r->new_len) &&
	      !((vma->vm_flags ^ r->vm_flags) & VM_ACCESS_FLAGS) &&
	      !(vma->vm_flags & (VM_SHARED | VM_GROWSDOWN));
	mmap_read_unlock(ctx->mm);
	return ret && !hpmmap_range_is_watched(r->vm_end, r->addr + r->old_len);
}

/* Linux's part of a mixed one, from @from to @to or, if that is 0, in place. */
static long remap_rest(unsigned long from, unsigned long old_len,
		       unsigned long new_len, unsigned long to)
{
	const struct pt_regs regs = {
		.di = from,
		.si = old_len,
		.dx = new_len,
		.r10 = to ? MREMAP_MAYMOVE | MREMAP_FIXED : 0,
		.r8 = to,
	};

	return hpmmap_call_orig(HPMMAP_CALL_MREMAP, &regs);
}

/* The next mapping of ours in [*start, end), as far as it lies in there. */
static bool next_ours(struct hpmmap_ctx *ctx, unsigned long *start,
		      unsigned long end, unsigned long *ours_end)
{
	struct vm_area_struct *vma;

	mmap_read_lock(ctx->mm);
	vma = hpmmap_range_first_ours(ctx->mm, *start, end);
	if (vma) {
		*start = max(*start, vma->vm_start);
		*ours_end = min(end, vma->vm_end);
	}
	mmap_read_unlock(ctx->mm);
	return vma;
}

/* What is ours of a range goes: where there is room, others may be by now. */
static void unmap_ours(struct hpmmap_ctx *ctx, unsigned long start,
		       unsigned long end)
{
	struct hpmmap_change c = {
		.ctx = ctx,
		.start = start,
		.end = end,
	};
	unsigned long addr, next;

	lockdep_assert_held(&ctx->ops);
	for (addr = start; next_ours(ctx, &addr, end, &next); addr = next)
		if (vm_munmap(addr, next - addr))
			break;
	hpmmap_change_settle(&c, HPMMAP_CUT, NULL);
}

/* Linux's part goes back to where it was, if nobody is there now. */
static void move_rest_back(struct hpmmap_ctx *ctx, const struct remap *r,
			   unsigned long from, unsigned long new_rest)
{
	unsigned long old_rest = r->addr + r->old_len - r->vm_end;
	struct hpmmap_change c = {
		.ctx = ctx,
		.start = r->vm_end,
		.end = r->vm_end + old_rest,
	};

	hpmmap_range_discount(ctx, from, new_rest);
	if (IS_ERR_VALUE(hpmmap_map_fresh(ctx, c.start, old_rest, PROT_NONE,
					  MAP_NORESERVE, false, NULL)) ||
	    IS_ERR_VALUE(remap_rest(from, new_rest, old_rest, c.start)))
		hpmmap_contents_lost();
	hpmmap_range_count_again(ctx);
	hpmmap_change_settle(&c, HPMMAP_CUT, NULL);
}

/*
 * Moves Linux's part of a mixed one. What it shrinks by may be anything, ours as
 * well: that goes first.
 */
static long move_rest(struct hpmmap_ctx *ctx, struct remap *r, unsigned long to)
{
	unsigned long nr_ours = r->vm_end - r->addr;
	long ret;

	if (r->old_len > r->new_len) {
		ret = unmap_range(ctx, r->addr + r->new_len,
				  r->old_len - r->new_len);
		if (ret)
			return ret;
		r->old_len = r->new_len;
	}
	return remap_rest(r->vm_end, r->old_len - nr_ours,
			  r->new_len - nr_ours, to + nr_ours);
}

/*
 * Both parts move, Linux's first, to a place that is taken before, so that nobody
 * else is there.
 */
static long move_mixed(struct hpmmap_ctx *ctx, const struct remap *r,
		       unsigned long to)
{
	unsigned long nr_ours = r->vm_end - r->addr;
	unsigned long new_rest = r->new_len - nr_ours;
	struct remap whole = *r, part = *r;
	struct hpmmap_change c = {
		.ctx = ctx,
		.start = to + nr_ours,
		.end = to + r->new_len,
	};
	long ret;

	discount_old(ctx, r);
	ret = hpmmap_map_fresh(ctx, to, r->new_len, PROT_NONE, MAP_NORESERVE,
			       r->flags & MREMAP_FIXED, NULL);
	if (!IS_ERR_VALUE(ret)) {
		ret = move_rest(ctx, &whole, to);
		if (IS_ERR_VALUE(ret))
			unmap_ours(ctx, to, to + r->new_len);
	}
	hpmmap_range_count_again(ctx);
	if (IS_ERR_VALUE(ret))
		return ret;
	hpmmap_change_settle(&c, HPMMAP_CUT, NULL);
	part.old_len = nr_ours;
	part.new_len = nr_ours;
	part.flags = MREMAP_MAYMOVE | MREMAP_FIXED;
	ret = move_to(ctx, &part, to);
	if (!IS_ERR_VALUE(ret))
		return ret;
	unmap_ours(ctx, to, to + r->new_len);
	move_rest_back(ctx, &whole, to + nr_ours, new_rest);
	hpmmap_range_kill_if_lost(ctx, r->addr, r->addr + whole.old_len);
	return ret;
}

/* Nothing of it is done where Linux can let its own part grow. */
static long remap_mixed(struct hpmmap_ctx *ctx, const struct remap *r)
{
	unsigned long nr_ours = r->vm_end - r->addr, to = r->new_addr;
	long ret = -EEXIST;
	int tries = 16;

	if (r->flags & MREMAP_DONTUNMAP)
		return -EFAULT;
	if (r->flags & MREMAP_FIXED)
		return move_mixed(ctx, r, to);
	ret = remap_rest(r->vm_end, r->old_len - nr_ours, r->new_len - nr_ours,
			 0);
	if (!IS_ERR_VALUE(ret)) {
		hpmmap_count_fallback(ctx, HPMMAP_FALLBACK_MMAP,
				      r->new_len - r->old_len);
		return r->addr;
	}
	if (ret != -ENOMEM || !(r->flags & MREMAP_MAYMOVE))
		return ret;
	for (ret = -EEXIST; ret == -EEXIST && tries--;) {
		to = hpmmap_find_place(ctx, &r->place, 0, r->new_len,
				       MAP_PRIVATE | MAP_ANONYMOUS, SLOT_SIZE,
				       best_phase(r, SLOT_SIZE));
		if (IS_ERR_VALUE(to))
			return to;
		ret = move_mixed(ctx, r, to);
	}
	if (!IS_ERR_VALUE(ret))
		hpmmap_count_fallback(ctx, HPMMAP_FALLBACK_MMAP,
				      r->new_len - r->old_len);
	return ret == -EEXIST ? -ENOMEM : ret;
}

static long remap_ours(struct hpmmap_ctx *ctx, struct remap *r)
{
	bool placed = r->flags & (MREMAP_FIXED | MREMAP_DONTUNMAP), mixed;
	long ret;

	if (!placed && r->old_len >= r->new_len) {
		if (r->old_len == r->new_len)
			return r->addr;
		if (is_watched(r))
			return HPMMAP_REDO;
		ret = unmap_range(ctx, r->addr + r->new_len,
				  r->old_len - r->new_len);
		return ret ? ret : r->addr;
	}
	if (placed && !target_is_valid(r))
		return -EINVAL;
	/* As for private memory: a copy of it cannot be had this way. */
	if (!r->old_len)
		return -EINVAL;
	/* What does not move may be anything. */
	mixed = min(r->old_len, r->new_len) > r->vm_end - r->addr;
	if (mixed && !is_mixed(ctx, r))
		return -EFAULT;
	if (r->new_len > r->old_len &&
	    hpmmap_data_exceeds_limit(ctx, 0, r->new_len - r->old_len,
				      r->prot))
		return -ENOMEM;
	if (is_watched(r))
		return HPMMAP_REDO;
	if (mixed)
		return remap_mixed(ctx, r);
	if (r->flags & MREMAP_FIXED)
		return move_to(ctx, r, r->new_addr);
	if (r->flags & MREMAP_DONTUNMAP)
		return move_anywhere(ctx, r, r->new_addr);

	ret = grow_in_place(ctx, r);
	/* What is locked may find pages of Linux elsewhere. */
	if (ret != -EEXIST && (ret != -ENOMEM || ctx->job->strict))
		return ret;
	if (!(r->flags & MREMAP_MAYMOVE))
		return -ENOMEM;
	return move_anywhere(ctx, r, 0);
}

/*
 * Linux answers what is wrong with the arguments, and moves its own, perhaps
 * over some of ours. Without ctx->ops.
 */
static long remap_linux(struct hpmmap_ctx *ctx, const struct pt_regs *regs)
{
	unsigned long to = regs->r8, len = PAGE_ALIGN(regs->dx);
	unsigned long from = regs->di, old_len = PAGE_ALIGN(regs->si);
	struct hpmmap_change old = {
		.ctx = ctx,
		.start = from + len,
		.end = from + old_len,
	};
	struct hpmmap_change new = { .ctx = ctx, .start = to, .end = to + len };
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

static bool args_are_valid(const struct remap *r)
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

static struct remap remap_of(const struct pt_regs *regs)
{
	return (struct remap){
		.addr = regs->di,
		.old_len = PAGE_ALIGN(regs->si),
		.new_len = PAGE_ALIGN(regs->dx),
		.flags = regs->r10,
		.new_addr = regs->r8,
	};
}

/* Of handle_mremap(): it is not ours any more. No call returns it. */
#define GONE (-ENOLINK)

static long handle_mremap(struct hpmmap_ctx *ctx, enum hpmmap_call call,
			  const struct pt_regs *regs)
{
	struct remap r = remap_of(regs);

	/* It may have been unmapped since, or handed back. */
	if (!remap_lookup(ctx, &r))
		return GONE;
	return r.sealed ? -EPERM : remap_ours(ctx, &r);
}

long hpmmap_sys_mremap(const struct pt_regs *regs)
{
	struct hpmmap_ctx *ctx = hpmmap_ctx_get(current->mm);
	struct remap r = remap_of(regs);
	long ret = GONE;

	if (!ctx)
		return hpmmap_call_orig(HPMMAP_CALL_MREMAP, regs);
	while (ret == GONE) {
		if (!args_are_valid(&r) ||
		    !hpmmap_range_has_ours(ctx, r.addr, r.addr + 1)) {
			ret = remap_linux(ctx, regs);
			break;
		}
		ret = hpmmap_handle(HPMMAP_CALL_MREMAP, regs, handle_mremap);
		if (ret == HPMMAP_REDO)
			ret = unwatch(&r) ?: GONE;
		if (ret == GONE && signal_pending(current))
			ret = -ERESTARTNOINTR;
		cond_resched();
	}
	hpmmap_ctx_put(ctx);
	return ret;
}
