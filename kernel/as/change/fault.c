// SPDX-License-Identifier: GPL-2.0
/* Faults in memory of ours, and access from other processes. */
#include "hpmmap.h"
#include "mem/block/block.h"
#include "as/own/ctx.h"
#include "as/own/family.h"
#include "as/own/stats.h"
#include "as/map/pgmap.h"
#include "as/store/draft.h"
#include "as/store/entry.h"
#include "as/store/freeze.h"
#include "as/store/store.h"
#include "as/change/commit.h"
#include "as/change/fault.h"
#include "as/change/place.h"

/*
 * Why is a page unmapped that has memory? To be asked before ctx->lock is taken: what unmapped
 * it maps it again with that lock, and is done then. It is a call of the process, or the work of a
 * relative that has ended.
 */
static enum hpmmap_fault unmapped_by(struct hpmmap_ctx *ctx)
{
	struct hpmmap_family *family = READ_ONCE(ctx->family);

	if (mutex_is_locked(&ctx->ops))
		return HPMMAP_FAULT_CHANGING;
	return family && mutex_is_locked(&family->lock) ? HPMMAP_FAULT_FORK :
							  HPMMAP_FAULT_UNMAPPED;
}

/* Does the mapping of a fault cover all of its slot? */
static bool covers_slot(const struct vm_fault *vmf)
{
	unsigned long start = vmf->address & SLOT_MASK;

	return vmf->vma->vm_start <= start &&
	       vmf->vma->vm_end - SLOT_SIZE >= start;
}

/*
 * A shared block is mapped read-only where one entry can map all of it. What
 * is mapped by 4 KB entries is copied on the first access, whatever it is: the core would
 * make them writable, as those of any file.
 */
static bool share_readable(struct hpmmap_ctx *ctx, struct vm_fault *vmf,
			   struct hpmmap_block *block)
{
	if (vmf->flags & FAULT_FLAG_WRITE || !hpmmap_block_is_shared(block))
		return false;
	if (hpmmap_entry_2m(ctx, slot_of(vmf->address), vmf->vma,
			    vmf->address & SLOT_MASK, vmf->pmd, false))
		atomic_long_inc(&ctx->stats.entries_2m);
	return hpmmap_pgmap_kind(vmf->pmd) == HPMMAP_ENTRY_2M;
}

/*
 * Of a shared block that is written to only a few pages are copied, and mapped; of one
 * that no one entry can map those that are read as well. False if it is to be copied as a
 * whole: who refers to many pages of the latter takes one fault for all of them.
 */
static bool draft_page(struct hpmmap_ctx *ctx, struct vm_fault *vmf,
		       struct hpmmap_block *block, bool covered)
{
	unsigned long slot = slot_of(vmf->address);
	unsigned int page = page_in_slot(vmf->address);
	bool write = vmf->flags & FAULT_FLAG_WRITE, ready;
	/* A pin keeps the pages, while others are to be copied. */
	bool pins = !(vmf->flags & FAULT_FLAG_INTERRUPTIBLE);
	struct hpmmap_pages range;

	if (vmf->vma->vm_flags & VM_LOCKED || userfaultfd_armed(vmf->vma))
		return false;
	slot_clip(slot, vmf->vma->vm_start, vmf->vma->vm_end, &range.first, &range.nr);
	if (!block->draft) {
		if ((covered ? !write : pins) || !hpmmap_block_is_shared(block) ||
		    hpmmap_block_has_stale(block, range.first, range.nr))
			return false;
		block = hpmmap_store_draft(ctx, vmf->vma, slot, block, !pins,
					   !covered);
	} else if (hpmmap_draft_is_full(ctx, block, page, write, pins)) {
		block = hpmmap_store_widen(ctx, vmf->vma, slot, block);
	}
	if (!block || !block->draft)
		return false;
	ready = hpmmap_draft_copy(ctx, block, page, write, &range);
	/* Linux has no page to spare. */
	if (!ready && hpmmap_draft_may_move(block, page)) {
		block = hpmmap_store_widen(ctx, vmf->vma, slot, block);
		slot_clip(slot, vmf->vma->vm_start, vmf->vma->vm_end, &range.first,
			  &range.nr);
		ready = hpmmap_draft_copy(ctx, block, page, write, &range);
	}
	if (!ready)
		return false;
	hpmmap_entry_fill_pages(ctx, vmf, range.first, range.nr);
	/* Without a table for them nothing was mapped, and nothing would ever be. */
	return !pmd_none(READ_ONCE(*vmf->pmd));
}

/*
 * Of a slot that is shared, or was, is what the fault needs mapped now, or before the
 * thread goes on? @covered: one mapping covers it.
 */
static bool map_some(struct hpmmap_ctx *ctx, struct vm_fault *vmf,
		     struct hpmmap_block *block, bool marked, bool covered,
		     enum hpmmap_fault *why)
{
	if (covered && hpmmap_vma_collapse_soon(ctx, vmf)) {
		*why = HPMMAP_FAULT_FORK;
		return true;
	}
	if (covered && share_readable(ctx, vmf, block))
		return true;
	return marked && draft_page(ctx, vmf, block, covered);
}

/*
 * Waits, without ctx->lock, until a folio is not locked, which is cleared first if the caller has
 * locked it. Its reference keeps it from its pool.
 */
static void wait_folio(struct hpmmap_ctx *ctx, struct hpmmap_block *block, bool clear)
{
	struct folio *folio = block->folio;

	folio_get(folio);
	mutex_unlock(&ctx->lock);
	if (clear) {
		hpmmap_block_zero(block);
		folio_unlock(folio);
	} else {
		folio_wait_locked(folio);
	}
	folio_put(folio);
}

/*
 * Answers a fault; mmap_lock is held. @committed: out: false if memory had to be found first.
 * @why: out: why it was not mapped. In a block of the pools the whole part of the slot that
 * the mapping covers is made ready, and mapped. Where the pools are exhausted it is an
 * ordinary page.
 *
 * Whole blocks are cleared without ctx->lock, so that threads that touch memory first do not
 * wait for each other; the lock of the folio stands for it. Then the fault begins anew: the
 * slot may have another block.
 *
 * Returns VM_FAULT_NOPAGE (it is mapped), VM_FAULT_OOM, VM_FAULT_HWPOISON where the slot has
 * contents and they are lost, VM_FAULT_RETRY for a fault that must not wait, or as
 * hpmmap_frozen_wait().
 */
vm_fault_t hpmmap_store_fault(struct hpmmap_ctx *ctx, struct vm_fault *vmf,
			      bool *committed, enum hpmmap_fault *why)
{
	unsigned long slot = slot_of(vmf->address);
	vm_fault_t ret = VM_FAULT_OOM;
	struct hpmmap_block *block;
	unsigned int first, nr;
	bool owned = false, clear = false, covered = false, again = false;
	enum hpmmap_fault unmapped = unmapped_by(ctx);

	lockdep_assert_held(&ctx->mm->mmap_lock);
begin:
	first = page_in_slot(vmf->address);
	nr = 1;
	if (!(vmf->flags & FAULT_FLAG_RETRY_NOWAIT))
		mutex_lock(&ctx->lock);
	else if (!mutex_trylock(&ctx->lock))
		return VM_FAULT_RETRY;
	if (unlikely(hpmmap_frozen_covers(ctx, vmf->vma, vmf->address))) {
		unsigned int seen = ctx->frozen.nr;

		mutex_unlock(&ctx->lock);
		return hpmmap_frozen_wait(ctx, seen, vmf);
	}
	block = hpmmap_store_load(ctx, slot);
	/* It reads as zeros, which a core dump has as a hole. */
	if (!block && current->flags & PF_DUMPCORE) {
		ret = VM_FAULT_SIGBUS;
		goto out;
	}
	if (unlikely(block && hpmmap_block_is_lost(block)) &&
	    !bitmap_full(block->stale, SLOT_PAGES)) {
		ret = VM_FAULT_HWPOISON;
		goto out;
	}
	if (!again) {
		*committed = block;
		*why = block ? unmapped : HPMMAP_FAULT_RESERVED;
	}
	owned = hpmmap_slot_is_marked(ctx, slot);
	/* A few pages are copied for a child, and mapped when it comes to them. */
	if (owned || (block && hpmmap_block_is_few(block) && ctx->stats.forked))
		*why = HPMMAP_FAULT_FORK;
	covered = covers_slot(vmf);
	if (block && map_some(ctx, vmf, block, owned, covered, why)) {
		owned = false;
		ret = VM_FAULT_NOPAGE;
		goto out;
	}
	block = hpmmap_store_get(ctx, vmf->vma, slot, NULL, NULL, true);
	if (!block)
		goto out;
	/* Of a few pages a child has those that are not zero. */
	if (block->folio || (block->few && !ctx->stats.forked))
		slot_clip(slot, vmf->vma->vm_start, vmf->vma->vm_end, &first, &nr);
	if (hpmmap_block_has_stale(block, first, nr)) {
		*committed = false;
		if (!owned && *why != HPMMAP_FAULT_FORK)
			*why = ctx->job->first_touch ?
			       HPMMAP_FAULT_FIRST_TOUCH : HPMMAP_FAULT_RESERVED;
	}
	if (!owned && !hpmmap_block_is_whole(block))
		*why = HPMMAP_FAULT_LINUX;
	if (!owned && block->folio && nr == SLOT_PAGES &&
	    bitmap_full(block->stale, SLOT_PAGES)) {
		if (ctx->job->first_touch)
			block = hpmmap_policy_touch(ctx, vmf->vma, block);
		clear = !block->zeroed && folio_trylock(block->folio);
		if (clear) {
			if (ctx->job->first_touch)
				hpmmap_count_placed(ctx, block, 1);
			bitmap_zero(block->stale, SLOT_PAGES);
			atomic_long_add(SLOT_PAGES, &ctx->owner.nr_cleared);
		}
	}
	/* A fault of another thread may be clearing it. */
	if (clear || (block->folio && folio_test_locked(block->folio) &&
		      !(vmf->flags & FAULT_FLAG_RETRY_NOWAIT))) {
		wait_folio(ctx, block, clear);
		clear = false;
		again = true;
		goto begin;
	}
	if (hpmmap_store_fill(ctx, block, first, nr))
		goto out;
	if (owned) {
		ret = VM_FAULT_NOPAGE;
		goto out;
	}
	ret = hpmmap_entry_fault(ctx, vmf, (nr > 1 || block->few) &&
				 !(vmf->flags & FAULT_FLAG_RETRY_NOWAIT));
	/* What unmapped it was done before the question. */
	if (ret == VM_FAULT_NOPAGE && *why == HPMMAP_FAULT_UNMAPPED)
		*why = ctx->family ? HPMMAP_FAULT_FORK : HPMMAP_FAULT_CHANGING;
	ret = ret ?: VM_FAULT_NOPAGE;
out:
	mutex_unlock(&ctx->lock);
	if (owned && block && !(covered && hpmmap_vma_collapse_soon(ctx, vmf)))
		hpmmap_vma_slot_owned(ctx, slot);
	return ret;
}

/*
 * Copies from or to a page, whatever its protection; all of @len lies in one page.
 * mmap_lock is held.
 *
 * Returns 0, -ENOMEM, -EHWPOISON where the contents are lost, -EAGAIN where they are being
 * moved, or changed what is copied, or -EINTR if the caller is being killed.
 */
int hpmmap_store_access(struct hpmmap_ctx *ctx, struct vm_area_struct *vma,
			unsigned long addr, void *buf, size_t len, bool write)
{
	unsigned int i = page_in_slot(addr);
	struct hpmmap_block *block;
	int ret = -ENOMEM, cookie;
	bool owned = false;
	void *p;

	lockdep_assert_held(&ctx->mm->mmap_lock);
	if (mutex_lock_killable(&ctx->lock))
		return -EINTR;
	if (hpmmap_frozen_covers(ctx, vma, addr) && (write || ctx->frozen.moving)) {
		ret = -EAGAIN;
		goto out;
	}
	block = hpmmap_store_load(ctx, slot_of(addr));
	if (!write && (!block || test_bit(i, block->stale))) {
		memset(buf, 0, len);
		ret = 0;
		goto out;
	}
	if (write) {
		owned = hpmmap_slot_is_marked(ctx, slot_of(addr));
		block = hpmmap_store_get(ctx, vma, slot_of(addr), NULL, NULL, true);
	}
	if (!block || hpmmap_store_fill(ctx, block, i, 1))
		goto out;
	/* A fault may be clearing it. */
	if (block->folio)
		folio_wait_locked(block->folio);
	cookie = srcu_read_lock(&hpmmap_touch_srcu);
	p = page_address(hpmmap_block_page(block, i)) + offset_in_page(addr);
	ret = -EHWPOISON;
	if (hpmmap_block_is_lost(block)) {
		;
	} else if (write) {
		memcpy(p, buf, len);
		ret = 0;
	} else if (!copy_mc_to_kernel(buf, p, len)) {
		ret = 0;
	} else {
		memory_failure_queue(page_to_pfn(hpmmap_block_page(block, i)),
				     0);
	}
	srcu_read_unlock(&hpmmap_touch_srcu, cookie);
out:
	mutex_unlock(&ctx->lock);
	if (owned && block)
		hpmmap_vma_slot_owned(ctx, slot_of(addr));
	return ret;
}
