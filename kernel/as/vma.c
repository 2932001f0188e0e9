// SPDX-License-Identifier: GPL-2.0
/*
 * Mappings of ours: where there is room for one, and what it would need.
 */
#include <linux/mman.h>
#include <linux/sched/signal.h>

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
