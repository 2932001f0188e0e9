// SPDX-License-Identifier: GPL-2.0
/*
 * Taking memory of ours out of the page tables.
 */
#include <linux/mm.h>

#include "hpmmap.h"
#include "as/ctx.h"
#include "as/pgmap.h"
#include "as/store.h"
#include "as/vma.h"
#include "as/window.h"
#include "as/zap.h"

/* Nothing of a slot stays mapped by page tables, anybody's who has a window. */
void hpmmap_slot_zap(struct hpmmap_ctx *ctx, unsigned long slot)
{
	unsigned long start = slot << SLOT_SHIFT, end = start + SLOT_SIZE;
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, ctx->mm, start);

	hpmmap_window_zap(ctx, start, end);
	for_each_vma_range(vmi, vma, end) {
		unsigned long lo = max(start, vma->vm_start);

		/* Only below a mapping is it sure that the tables stay. */
		if (hpmmap_vma_is_ours(vma) &&
		    hpmmap_pgmap_slot(ctx->mm, start) != HPMMAP_ENTRY_NONE)
			compat_zap(vma, lo, min(end, vma->vm_end) - lo);
	}
}

/**
 * hpmmap_store_zap_shared() - unmap the slots of a range that are shared
 * @ctx: the context; mmap_lock held
 * @start: first address
 * @end: end
 */
void hpmmap_store_zap_shared(struct hpmmap_ctx *ctx, unsigned long start,
			     unsigned long end)
{
	unsigned long slot = slot_of(start), last = slot_of(end - 1);

	lockdep_assert_held(&ctx->mm->mmap_lock);
	if (!xa_find(&ctx->store, &slot, last, SLOT_SHARED))
		return;
	do {
		hpmmap_slot_zap(ctx, slot);
		cond_resched();
	} while (xa_find_after(&ctx->store, &slot, last, SLOT_SHARED));
}

/* Nothing of a range stays mapped by page tables of ours. */
void hpmmap_range_zap(struct hpmmap_ctx *ctx, unsigned long start,
		     unsigned long end)
{
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, ctx->mm, start);

	mmap_assert_write_locked(ctx->mm);
	hpmmap_window_zap(ctx, start, end);
	for_each_vma_range(vmi, vma, end) {
		unsigned long lo = max(start, vma->vm_start);

		if (hpmmap_vma_is_ours(vma))
			compat_zap(vma, lo, min(end, vma->vm_end) - lo);
	}
}
