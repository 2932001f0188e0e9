// SPDX-License-Identifier: GPL-2.0
/*
 * Taking memory of ours out of the page tables, and out of the store.
 */
#include "hpmmap.h"
#include "as/own/ctx.h"
#include "as/map/pgmap.h"
#include "as/map/vma.h"
#include "as/map/window.h"
#include "as/store/store.h"
#include "as/store/zap.h"

/*
 * Nothing of a range stays mapped by page tables of ours, those of windows too; nor comes back
 * while ctx->lock is held.
 */
void hpmmap_range_zap(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end)
{
	bool one = slot_of(start) == slot_of(end - 1);
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, ctx->mm, start);

	lockdep_assert_held(&ctx->mm->mmap_lock);
	hpmmap_window_zap(ctx, start, end);
	for_each_vma_range(vmi, vma, end) {
		unsigned long lo = max(start, vma->vm_start);

		/* Only below a mapping is it sure that the tables stay. */
		if (hpmmap_vma_is_ours(vma) &&
		    !(one && hpmmap_pgmap_slot(ctx->mm, lo) == HPMMAP_ENTRY_NONE))
			compat_zap(vma, lo, min(end, vma->vm_end) - lo);
	}
}

/* The same of a slot. */
void hpmmap_slot_zap(struct hpmmap_ctx *ctx, unsigned long slot)
{
	hpmmap_range_zap(ctx, slot << SLOT_SHIFT, (slot + 1) << SLOT_SHIFT);
}

/*
 * Is a block mapped where one mapping covers all of its slot? Beside mappings munmap(2) may be
 * about to remove entries: it does so with mmap_lock held for reading, and they have
 * references meanwhile.
 */
static bool __maybe_unused is_left(struct mm_struct *mm, unsigned long slot,
				   struct hpmmap_block *block)
{
	unsigned long start = slot << SLOT_SHIFT;
	struct vm_area_struct *vma = vma_lookup(mm, start);

	return block->folio && vma && vma->vm_end - SLOT_SIZE >= start &&
	       hpmmap_pgmap_count(mm, slot, block->folio);
}

/*
 * Removal: no entry of a context's page tables maps the block of a slot, which is about to
 * leave the store. This is the one place that makes sure of it, whichever mappings there
 * are, those that no hook has seen too. ctx->lock and mmap_lock are held.
 *
 * Each entry has a reference: where the module's own is the only one, no entry need be
 * looked for. What munmap(2) is about to remove, of a mapping that is gone, stays until
 * then: its reference keeps the block from its pool, and from being Alone.
 */
void hpmmap_slot_unmap(struct hpmmap_ctx *ctx, unsigned long slot,
		       struct hpmmap_block *block)
{
	lockdep_assert_held(&ctx->lock);
	if (likely(hpmmap_block_idle(block)))
		return;
	lockdep_assert_held(&ctx->mm->mmap_lock);
	hpmmap_slot_zap(ctx, slot);
	HPMMAP_ASSERT(!is_left(ctx->mm, slot, block));
}

/*
 * Changes the block of a slot, or takes it away (NULL); what becomes of the old one is the
 * caller's business. ctx->lock and mmap_lock are held. Returns 0; -ENOMEM only where the
 * slot had no block.
 */
int hpmmap_slot_set(struct hpmmap_ctx *ctx, unsigned long slot,
		    struct hpmmap_block *block)
{
	struct hpmmap_block *old = xa_load(hpmmap_store(ctx, slot, slot), slot);

	lockdep_assert_held(&ctx->lock);
	if (old && old != block)
		hpmmap_slot_unmap(ctx, slot, old);
	return xa_err(block ? xa_store(&ctx->store.blocks, slot, block, GFP_KERNEL) :
			      xa_erase(&ctx->store.blocks, slot));
}

/* Unmaps the slots of a range that are shared. mmap_lock is held. */
void hpmmap_store_zap_shared(struct hpmmap_ctx *ctx, unsigned long start,
			     unsigned long end)
{
	unsigned long slot = slot_of(start), last = slot_of(end - 1);

	lockdep_assert_held(&ctx->mm->mmap_lock);
	if (!xa_find(&ctx->store.blocks, &slot, last, SLOT_SHARED))
		return;
	do {
		hpmmap_slot_zap(ctx, slot);
		cond_resched();
	} while (xa_find_after(&ctx->store.blocks, &slot, last, SLOT_SHARED));
}
