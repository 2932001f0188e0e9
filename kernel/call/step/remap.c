// SPDX-License-Identifier: GPL-2.0
/*
 * A mapping of ours goes to another place, and what a new mapping takes over from it.
 *
 * Contents are found by address, so a mapping is not moved by Linux: a new
 * one is made, the blocks change their slots (what does not fill a slot is
 * copied), and the old one is unmapped.
 *
 * What is the pools' in part and Linux's in part is one mapping to the program, which the pools
 * had too little for.
 */
#include "hook.h"
#include "hpmmap.h"
#include "mem/pool/pool.h"
#include "as/own/ctx.h"
#include "as/own/reserve.h"
#include "as/own/stats.h"
#include "as/map/file.h"
#include "as/map/policy.h"
#include "as/map/range.h"
#include "as/map/vma.h"
#include "as/store/freeze.h"
#include "as/store/move.h"
#include "as/store/store.h"
#include "as/change/change.h"
#include "as/change/fit.h"
#include "call/step/fresh.h"
#include "call/step/handle.h"
#include "call/step/remap.h"

/*
 * What madvise(2), pkey_mprotect(2) and mbind(2) set holds for the new mapping,
 * too.
 */
long hpmmap_remap_copy_advice(struct hpmmap_ctx *ctx, const struct hpmmap_remap *r,
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
	const struct pt_regs regs = { .di = addr, .si = len, .dx = r->prot, .r10 = r->pkey };
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
		ret = hpmmap_madvise(addr, len, table[i].advice);
	}
	/* madvise(2) says so where a mapping cannot be split. */
	return ret == -EAGAIN ? -ENOMEM : ret;
}

/* A range is locked as these flags of a mapping say, or not at all. */
static long lock_as(vm_flags_t flags, unsigned long addr, unsigned long len)
{
	const struct pt_regs regs = {
		.di = addr,
		.si = len,
		.dx = flags & VM_LOCKONFAULT ? MLOCK_ONFAULT : 0,
	};

	return hpmmap_call_orig(flags & VM_LOCKED ? HPMMAP_CALL_MLOCK2 : HPMMAP_CALL_MUNLOCK,
				&regs);
}

/*
 * The new mapping is locked as the old one, whatever MAP_LOCKED and mlockall(2) have made of
 * it: otherwise what grows would be another mapping than what it grows from.
 */
long hpmmap_remap_copy_lock(struct hpmmap_ctx *ctx, const struct hpmmap_remap *r,
			    unsigned long addr, unsigned long len)
{
	const vm_flags_t locks = VM_LOCKED | VM_LOCKONFAULT;
	vm_flags_t has = (ctx->mm->def_flags & locks) | (r->vm_flags & VM_LOCKED);
	vm_flags_t wants = r->vm_flags & locks;
	long ret;

	if (has == wants)
		return 0;
	ret = lock_as(wants, addr, len);
	/* It is, and cannot be filled, as on Linux. */
	if (ret == -ENOMEM && !r->prot)
		return 0;
	/* mlock(2) says so where a mapping cannot be split. */
	return ret == -EAGAIN ? -ENOMEM : ret;
}

static bool lazy(const struct hpmmap_remap *r)
{
	return !r->prot || r->map_flags & MAP_NORESERVE || r->grows;
}

/* Blocks that the new place needs beyond those that move there. */
static unsigned long count_needed(struct hpmmap_ctx *ctx,
				  const struct hpmmap_remap *r, unsigned long to)
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
	return nr - min(nr, moved);
}

/*
 * The part of an old mapping that is locked is unlocked before there is a new one, and
 * locked again if it stays: a mapping that moves is never locked twice. Memory of the
 * pools stays in place either way.
 */
static long relock_old(const struct hpmmap_remap *r, bool lock)
{
	if (!(r->vm_flags & VM_LOCKED))
		return 0;
	return lock_as(lock ? r->vm_flags : 0, r->addr, min(r->old_len, r->vm_end - r->addr));
}

/* @to is free, or to be replaced where it was given. */
long hpmmap_remap_move(struct hpmmap_ctx *ctx, const struct hpmmap_remap *r,
		       unsigned long to)
{
	unsigned long len = min(r->old_len, r->new_len);
	struct hpmmap_change old = HPMMAP_CHANGE(ctx, r->addr, r->addr + r->old_len,
						 .lazy = lazy(r));
	struct hpmmap_change new = HPMMAP_CHANGE(ctx, to, to + r->new_len, .lazy = lazy(r));
	bool fixed = r->flags & MREMAP_FIXED, whole = !((r->addr ^ to) & ~SLOT_MASK);
	unsigned long mapped, needed;
	LIST_HEAD(blocks);
	long ret;

	/* In a slot of the new place a copy of what is lost would take the rest with it. */
	if (hpmmap_store_is_lost(ctx, r->addr, r->addr + (whole ? PAGE_SIZE : len)) ||
	    hpmmap_store_is_lost(ctx, r->addr + len - PAGE_SIZE, r->addr + len))
		return -EFAULT;
	if (hpmmap_change_begin_new(&new) || hpmmap_change_begin_move(&old) ||
	    !hpmmap_policy_fits(ctx, &r->place, to, to + r->new_len, true))
		return -ENOMEM;
	needed = count_needed(ctx, r, to);
	if (hpmmap_reserve(ctx, &r->place, NO_SLOT, needed, false, &blocks) &&
	    !hpmmap_linux_may_help(ctx, needed)) {
		hpmmap_count_refusal(ctx);
		return -ENOMEM;
	}
	ret = relock_old(r, false);
	if (ret)
		goto out;
	/*
	 * A thread that comes to the new place waits until it has what it is to have. The old one
	 * is gone before anything moves.
	 */
	ret = hpmmap_freeze(ctx, to, to + r->new_len, true);
	if (ret) {
		relock_old(r, true);
		goto out;
	}
	/* To Linux a mapping that moves is never there twice. */
	hpmmap_range_discount(ctx, r->addr, len);
	mapped = hpmmap_vma_map(ctx, to, r->new_len, r->prot, r->map_flags |
				(fixed ? MAP_FIXED : MAP_FIXED_NOREPLACE));
	/* What is unmapped from here on is counted. */
	hpmmap_range_count_again(ctx);
	ret = IS_ERR_VALUE(mapped) ? mapped : 0;
	if (ret)
		goto err_relock;
	hpmmap_change_renew(&new);
	/* Before there is anything in it that a key protects. */
	ret = hpmmap_remap_copy_advice(ctx, r, to, r->new_len);
	if (!ret)
		ret = vm_munmap(r->addr, r->old_len);
	if (ret) {
		vm_munmap(to, r->new_len);
		goto err_relock;
	}
	ret = hpmmap_store_move(ctx, r->addr, to, len, &blocks);
	/* Its mapping is gone, and what has not moved goes with it. */
	if (ret && ret != -EINTR)
		hpmmap_contents_lost();
	hpmmap_thaw(ctx);
	hpmmap_change_settle(&old, HPMMAP_CUT, NULL);
	hpmmap_change_settle(&new, HPMMAP_KEPT, &blocks);
	if (r->map_flags & MAP_LOCKED && !lazy(r))
		hpmmap_touch_range(to, r->new_len, r->prot);
	/* This may fill it, too. Where it fails, it is locked in another way than it was. */
	hpmmap_remap_copy_lock(ctx, r, to, r->new_len);
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
static unsigned long phase(const struct hpmmap_remap *r, unsigned long align)
{
	unsigned long end = r->addr + min(r->old_len, r->new_len);

	if (ALIGN(r->addr, SLOT_SIZE) + SLOT_SIZE > end)
		return 0;
	return r->addr & (align - 1);
}

/* Moves a mapping by @move to where there is room. */
long hpmmap_remap_anywhere(struct hpmmap_ctx *ctx, const struct hpmmap_remap *r,
			   hpmmap_remap_move_t move)
{
	unsigned long align = r->new_len >= SLOT_SIZE ? SLOT_SIZE : PAGE_SIZE;
	long ret = -EEXIST;
	int tries = 16;

	while (ret == -EEXIST && tries--) {
		unsigned long to;

		to = hpmmap_find_place(ctx, &r->place, 0, r->new_len,
				       MAP_PRIVATE | MAP_ANONYMOUS, align, phase(r, align));
		if (IS_ERR_VALUE(to))
			return to;
		ret = move(ctx, r, to);
	}
	return ret == -EEXIST ? -ENOMEM : ret;
}

/*
 * Is all of a range one mapping of ours, and behind it one of Linux's like it? That
 * is what becomes of one call that the pools have too little for.
 */
bool hpmmap_remap_is_mixed(struct hpmmap_ctx *ctx, const struct hpmmap_remap *r)
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

/* What is ours of a range goes: where there is room, others may be by now. */
static void unmap_ours(struct hpmmap_ctx *ctx, unsigned long start,
		       unsigned long end)
{
	struct hpmmap_change c = HPMMAP_CHANGE(ctx, start, end);
	unsigned long lo = start, hi = end;

	lockdep_assert_held(&ctx->ops);
	for (; hpmmap_range_next(ctx->mm, &lo, &hi, hpmmap_vma_is_ours); lo = hi, hi = end)
		if (vm_munmap(lo, hi - lo))
			break;
	hpmmap_change_settle(&c, HPMMAP_CUT, NULL);
}

/* Linux's part goes back to where it was, if that is free. */
static void move_rest_back(struct hpmmap_ctx *ctx, const struct hpmmap_remap *r,
			   unsigned long from, unsigned long new_rest)
{
	unsigned long old_rest = r->addr + r->old_len - r->vm_end;
	struct hpmmap_change c = HPMMAP_CHANGE(ctx, r->vm_end, r->vm_end + old_rest);
	long ret;

	hpmmap_range_discount(ctx, from, new_rest);
	ret = hpmmap_map_fresh(ctx, c.start, old_rest, PROT_NONE, MAP_NORESERVE, false, NULL);
	if (!IS_ERR_VALUE(ret))
		ret = remap_rest(from, new_rest, old_rest, c.start);
	if (IS_ERR_VALUE(ret))
		hpmmap_contents_lost();
	hpmmap_range_count_again(ctx);
	hpmmap_change_settle(&c, HPMMAP_CUT, NULL);
}

/*
 * Moves Linux's part of a mixed one. What it shrinks by may be anything, ours as
 * well: that goes first.
 */
static long move_rest(struct hpmmap_ctx *ctx, struct hpmmap_remap *r, unsigned long to)
{
	unsigned long nr_ours = r->vm_end - r->addr;
	long ret;

	if (r->old_len > r->new_len) {
		ret = hpmmap_unmap(ctx, r->addr + r->new_len, r->old_len - r->new_len);
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
static long move_mixed(struct hpmmap_ctx *ctx, const struct hpmmap_remap *r,
		       unsigned long to)
{
	unsigned long nr_ours = r->vm_end - r->addr;
	unsigned long new_rest = r->new_len - nr_ours;
	struct hpmmap_remap whole = *r, part = *r;
	struct hpmmap_change c = HPMMAP_CHANGE(ctx, to + nr_ours, to + r->new_len);
	long ret;

	hpmmap_range_discount(ctx, r->addr, min(r->old_len, r->new_len));
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
	ret = hpmmap_remap_move(ctx, &part, to);
	if (!IS_ERR_VALUE(ret))
		return ret;
	unmap_ours(ctx, to, to + r->new_len);
	move_rest_back(ctx, &whole, to + nr_ours, new_rest);
	hpmmap_range_kill_if_lost(ctx, r->addr, r->addr + whole.old_len);
	return ret;
}

/* Nothing of it is done where Linux can let its own part grow. */
long hpmmap_remap_mixed(struct hpmmap_ctx *ctx, const struct hpmmap_remap *r)
{
	unsigned long nr_ours = r->vm_end - r->addr;
	long ret;

	if (r->flags & MREMAP_FIXED)
		return move_mixed(ctx, r, r->new_addr);
	ret = remap_rest(r->vm_end, r->old_len - nr_ours, r->new_len - nr_ours,
			 0);
	if (!IS_ERR_VALUE(ret)) {
		hpmmap_count_fallback(ctx, HPMMAP_FALLBACK_MMAP,
				      r->new_len - r->old_len);
		return r->addr;
	}
	if (ret != -ENOMEM || !(r->flags & MREMAP_MAYMOVE))
		return ret;
	ret = hpmmap_remap_anywhere(ctx, r, move_mixed);
	if (!IS_ERR_VALUE(ret))
		hpmmap_count_fallback(ctx, HPMMAP_FALLBACK_MMAP,
				      r->new_len - r->old_len);
	return ret;
}
