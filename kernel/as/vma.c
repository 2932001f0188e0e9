// SPDX-License-Identifier: GPL-2.0
/*
 * Mappings of ours: where there is room for one, what it would need, and what
 * madvise(2) cannot do to it.
 */
#include <linux/mman.h>
#include <linux/sched/signal.h>

#include "hook.h"
#include "hpmmap.h"
#include "as/ctx.h"
#include "as/file.h"
#include "as/store.h"
#include "as/vma.h"

/* Hints below vm.mmap_min_addr are rounded up to it; this is its usual value. */
#define LOWEST_HINT 65536UL

/**
 * hpmmap_vma_find_hole() - choose an address
 * @hint: what the caller would like, or 0
 * @len: length
 * @flags: MAP_* flags of the caller
 * @align: power of two, at least a page
 * @phase: wanted address modulo @align
 *
 * Return: the address or an errno. It may be taken when it is used.
 */
unsigned long hpmmap_vma_find_hole(unsigned long hint, unsigned long len,
				   unsigned long flags, unsigned long align,
				   unsigned long phase)
{
	unsigned long pad = align - PAGE_SIZE;
	unsigned long addr;

	if (len + pad < len)
		return -ENOMEM;
	if (hint && hint < LOWEST_HINT)
		hint = LOWEST_HINT;
	if (mmap_read_lock_killable(current->mm))
		return -EINTR;
	addr = hint ? compat_get_unmapped_area(hint, len, flags) : 0;
	if (!hint || addr != hint)
		addr = compat_get_unmapped_area(0, len + pad, flags);
	if (IS_ERR_VALUE(addr) && pad) {
		addr = compat_get_unmapped_area(0, len, flags);
		pad = 0;
	}
	mmap_read_unlock(current->mm);
	if (IS_ERR_VALUE(addr) || addr == hint || !pad)
		return addr;
	/* The highest fitting address: what is left over stays in one piece. */
	return addr + pad - ((addr + pad - phase) & (align - 1));
}

/**
 * hpmmap_vma_count_missing() - blocks a commit of a range would need
 * @ctx: the caller's context, ctx->ops held
 * @start: first address
 * @end: end
 * @unreserved: out: how many of them are for MAP_NORESERVE mappings
 */
unsigned long hpmmap_vma_count_missing(struct hpmmap_ctx *ctx,
				       unsigned long start, unsigned long end,
				       unsigned long *unreserved)
{
	unsigned long n = 0, last = ULONG_MAX;
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, ctx->mm, start);

	lockdep_assert_held(&ctx->ops);
	mmap_read_lock(ctx->mm);
	for_each_vma_range(vmi, vma, end) {
		unsigned long lo = max(start, vma->vm_start);
		unsigned long hi = min(end, vma->vm_end), nr;

		if (!hpmmap_vma_is_ours(vma))
			continue;
		lo = max(lo, hpmmap_vma_given(ctx, vma));
		if (lo >= hi)
			continue;
		nr = hpmmap_store_missing(ctx, lo, hi);
		/* Two mappings in one slot need one block. */
		if (last == slot_of(lo) &&
		    !hpmmap_store_load(ctx, slot_of(lo)))
			nr--;
		last = slot_of(hi - 1);
		n += nr;
		if (vma->vm_flags & VM_NORESERVE)
			*unreserved += nr;
	}
	mmap_read_unlock(ctx->mm);
	return n;
}

/*
 * Advice that makes a mapping of its own of a piece, unless it is just this
 * that tells the piece from a neighbour. It has two of them.
 */
static const struct {
	vm_flags_t flag;
	int set;
	int clear;
} toggles[] = {
	{ VM_DONTDUMP, MADV_DONTDUMP, MADV_DODUMP },
	{ VM_DONTCOPY, MADV_DONTFORK, MADV_DOFORK },
	{ VM_SEQ_READ | VM_RAND_READ, MADV_SEQUENTIAL, MADV_NORMAL },
};

/* A piece of one mapping of ours, whose flags are @old. */
static long wipe_piece(struct hpmmap_ctx *ctx, unsigned long start,
		       unsigned long len, vm_flags_t old, bool wipe)
{
	struct vm_area_struct *vma;
	int i;

	for (i = 0; i < ARRAY_SIZE(toggles); i++) {
		vm_flags_t flag = toggles[i].flag;
		bool has = old & flag, alone;
		long ret;

		ret = hpmmap_madvise(start, len, has ? toggles[i].clear : toggles[i].set);
		if (ret)
			return ret;
		if (mmap_write_lock_killable(ctx->mm))
			return -EINTR;
		vma = vma_lookup(ctx->mm, start);
		alone = vma && hpmmap_vma_is_ours(vma) &&
			vma->vm_start == start && vma->vm_end == start + len;
		if (alone)
			compat_vm_flags_mod(vma, (old & flag) | (wipe ? VM_WIPEONFORK : 0),
					    flag | VM_WIPEONFORK);
		mmap_write_unlock(ctx->mm);
		if (alone)
			return 0;
		hpmmap_madvise(start, len, old & VM_RAND_READ & flag ? MADV_RANDOM :
			       has ? toggles[i].set : toggles[i].clear);
	}
	return -EAGAIN;
}

/**
 * hpmmap_vma_wipe_on_fork() - what madvise(2) cannot do to a shared mapping
 * @ctx: the caller's context, ctx->ops held
 * @start: first address, page aligned
 * @end: end, page aligned
 * @wipe: MADV_WIPEONFORK; otherwise MADV_KEEPONFORK
 *
 * Mappings are cut at both ends by an advice that they may have, which is
 * then taken back.
 *
 * Return: 0 or an errno of madvise(2).
 */
long hpmmap_vma_wipe_on_fork(struct hpmmap_ctx *ctx, unsigned long start,
			     unsigned long end, bool wipe)
{
	struct vm_area_struct *vma;
	unsigned long addr = start;
	bool hole = false;
	long ret;

	lockdep_assert_held(&ctx->ops);
	while (addr < end) {
		unsigned long lo, len;
		vm_flags_t old;
		bool ours;

		mmap_read_lock(ctx->mm);
		vma = find_vma_intersection(ctx->mm, addr, end);
		if (!vma) {
			mmap_read_unlock(ctx->mm);
			return -ENOMEM;
		}
		hole |= vma->vm_start > addr;
		lo = max(addr, vma->vm_start);
		addr = min(end, vma->vm_end);
		len = addr - lo;
		old = vma->vm_flags;
		ours = hpmmap_vma_is_ours(vma);
		mmap_read_unlock(ctx->mm);

		if (ours && !(old & VM_WIPEONFORK) == !wipe)
			continue;
		ret = ours ? wipe_piece(ctx, lo, len, old, wipe) :
			     hpmmap_madvise(lo, len, wipe ? MADV_WIPEONFORK : MADV_KEEPONFORK);
		if (ret)
			return ret;
		if (!ours)
			continue;
		/* Linux merges it with its neighbours when a flag changes. */
		if (!hpmmap_madvise(lo, len, old & VM_DONTDUMP ? MADV_DODUMP : MADV_DONTDUMP))
			hpmmap_madvise(lo, len, old & VM_DONTDUMP ? MADV_DONTDUMP : MADV_DODUMP);
	}
	return hole ? -ENOMEM : 0;
}
