// SPDX-License-Identifier: GPL-2.0
/*
 * The snapshot of a fork: what a child gets of its parent's memory.
 *
 * Linux would share the memory for good, for to it our mappings are shared
 * ones. So the child gets a store of its own while the address space is
 * duplicated, in vm_ops->open: with the same blocks, which are not written to
 * from then on (share.c), or with copies where that cannot be. As on Linux, the
 * snapshot is of one moment: the access of other threads to a slot that is copied is
 * taken away first, and a thread that needs it waits for mmap_lock until the fork is
 * done.
 */
#include "hpmmap.h"
#include "mem/block/block.h"
#include "as/own/ctx.h"
#include "as/own/family.h"
#include "as/map/gigabyte.h"
#include "as/map/pgmap.h"
#include "as/map/vma.h"
#include "as/map/window.h"
#include "as/store/entry.h"
#include "as/store/store.h"
#include "as/store/zap.h"
#include "as/life/life.h"
#include "as/life/snapshot.h"

/* Is the caller forking, and its address space not copied yet? */
bool hpmmap_is_forking(struct hpmmap_ctx *ctx)
{
	return READ_ONCE(ctx->fork.task) == current;
}

static bool has_other_threads(struct mm_struct *mm)
{
	return atomic_read(&mm->mm_users) > 1;
}

/*
 * A block of the parent is about to be copied. No thread writes to it from here until the
 * address space is copied, and to what is shared none can from then on: the child sees all of
 * it as it is at that moment. The slot is mapped again when the fork ends.
 */
static void fork_copies(struct hpmmap_ctx *parent, struct vm_area_struct *vma,
			unsigned long slot, const struct hpmmap_block *block)
{
	bool zap = has_other_threads(vma->vm_mm) || compat_copies_tables(vma);

	/* Nothing comes back while it is held. */
	mmap_assert_write_locked(vma->vm_mm);
	if (zap)
		hpmmap_slot_zap(parent, slot);
	/* Where a block of the pools is mapped by 4 KB entries share_slot() has zapped them. */
	if (zap || block->folio)
		xa_set_mark(&parent->store.blocks, slot, SLOT_SPLIT);
}

/*
 * Can the child have the same block, until one of them writes? Not what a
 * device may write to, nor what only one of them sees a part of.
 */
static bool can_share(struct hpmmap_ctx *parent, struct vm_area_struct *vma,
		      unsigned long slot, struct hpmmap_block *block)
{
	unsigned long start = slot << SLOT_SHIFT, end = start + SLOT_SIZE;
	struct vm_area_struct *other;
	VMA_ITERATOR(vmi, parent->mm, start);

	if (!block->folio)
		return false;
	if (vma->vm_start > start || vma->vm_end < end)
		for_each_vma_range(vmi, other, end)
			if (hpmmap_vma_is_ours(other) &&
			    other->vm_flags & VM_DONTCOPY)
				return false;
	return true;
}

/*
 * Takes the parent's right to write away and shares the block. A pin that
 * comes at the same time finds the entry changed, or is found here.
 */
static bool share_slot(struct hpmmap_ctx *parent, struct hpmmap_ctx *child,
		       struct vm_area_struct *vma, unsigned long slot,
		       struct hpmmap_block *block)
{
	unsigned long start = max(vma->vm_start, slot << SLOT_SHIFT);
	unsigned long end = min(vma->vm_end, (slot + 1) << SLOT_SHIFT);

	/* There is a second mapping in the slot. */
	if (hpmmap_store_load(child, slot) == block)
		return true;
	if (end - start == SLOT_SIZE)
		hpmmap_pgmap_protect(vma, start);
	else
		hpmmap_slot_zap(parent, slot);
	if (hpmmap_block_is_pinned(block)) {
		/* Others may have it since an earlier fork. */
		if (!hpmmap_slot_is_marked(parent, slot))
			hpmmap_entry_unprotect(parent, vma, slot);
		return false;
	}
	hpmmap_family_share(parent, child, block);
	if (hpmmap_store_insert(child, slot, block)) {
		hpmmap_family_unshare(child, block);
		child->doomed = true;
		return true;
	}
	atomic_long_inc(&child->nr_held);
	xa_set_mark(&parent->store.blocks, slot, SLOT_SHARED);
	/* It has no one offset any more. */
	block->folio->mapping = NULL;
	return true;
}

/* Slots that are shared at once. */
#define SHARE_RUN 32

/* Blocks of the pools with contents, in slots that follow each other; how many. */
static unsigned int run_find(struct hpmmap_ctx *ctx, unsigned long slot,
			     unsigned int nr, struct hpmmap_block **blocks)
{
	XA_STATE(xas, &ctx->store.blocks, slot);
	struct hpmmap_block *block;
	unsigned int n = 0;

	lockdep_assert_held(&ctx->lock);
	rcu_read_lock();
	block = xas_load(&xas);
	while (block && block->folio && !block->draft &&
	       !bitmap_full(block->stale, SLOT_PAGES)) {
		blocks[n] = block;
		if (++n == nr)
			break;
		block = xas_next(&xas);
	}
	rcu_read_unlock();
	return n;
}

/* Gives a child some blocks, of slots without one; how many. */
static unsigned int run_store(struct hpmmap_ctx *parent, struct hpmmap_ctx *child,
			      unsigned long slot, unsigned int nr,
			      struct hpmmap_block **blocks)
{
	XA_STATE(xas, &child->store.blocks, slot);
	unsigned int n = 0;

	lockdep_assert_held(&child->lock);
	do {
		xas_lock(&xas);
		while (n < nr) {
			HPMMAP_ASSERT(!xas_load(&xas));
			xas_store(&xas, blocks[n]);
			if (xas_error(&xas))
				break;
			xas_set_mark(&xas, SLOT_SHARED);
			hpmmap_family_share(parent, child, blocks[n]);
			/* It has no one offset any more. */
			blocks[n]->folio->mapping = NULL;
			if (++n < nr)
				xas_next(&xas);
		}
		xas_unlock(&xas);
	} while (xas_nomem(&xas, GFP_KERNEL));
	atomic_long_add(n, &child->nr_held);
	return n;
}

static void run_mark(struct hpmmap_ctx *ctx, unsigned long slot, unsigned int nr)
{
	XA_STATE(xas, &ctx->store.blocks, slot);

	xas_lock(&xas);
	xas_load(&xas);
	for (;;) {
		xas_set_mark(&xas, SLOT_SHARED);
		if (!--nr)
			break;
		xas_next(&xas);
	}
	xas_unlock(&xas);
}

/*
 * The way of most memory: whole slots of one mapping, some at once. It ends before
 * what is out of the ordinary. Returns how many slots are done.
 */
static unsigned int share_run(struct hpmmap_ctx *parent, struct hpmmap_ctx *child,
			      struct vm_area_struct *vma, unsigned long slot)
{
	unsigned long start = slot << SLOT_SHIFT;
	struct hpmmap_block *blocks[SHARE_RUN];
	unsigned int nr, n;

	if (start < vma->vm_start || start >= (vma->vm_end & SLOT_MASK))
		return 0;
	nr = min3((vma->vm_end - start) >> SLOT_SHIFT,
		  (PUD_SIZE - (start & ~PUD_MASK)) >> SLOT_SHIFT,
		  (unsigned long)SHARE_RUN);
	nr = run_find(parent, slot, nr, blocks);
	nr = nr ? hpmmap_pgmap_protect_run(vma, start, nr) : 0;
	for (n = 0; n < nr && !hpmmap_block_is_pinned(blocks[n]); n++)
		;
	if (!n)
		return 0;
	nr = run_store(parent, child, slot, n, blocks);
	child->doomed |= nr < n;
	if (nr)
		run_mark(parent, slot, nr);
	return nr;
}

/*
 * Does a child get a draft as well, of the same block? What little was copied is copied again,
 * and the parent goes on with its pages.
 */
static bool inherits(struct hpmmap_ctx *parent, struct hpmmap_ctx *child,
		     struct vm_area_struct *vma, unsigned long slot,
		     struct hpmmap_block *draft)
{
	struct hpmmap_block *dst = hpmmap_store_load(child, slot);
	bool copies = compat_copies_tables(vma);

	if (copies)
		hpmmap_slot_zap(parent, slot);
	/* There is a second mapping in the slot. */
	if (dst)
		return dst->draft;
	return !copies && !has_other_threads(vma->vm_mm) &&
	       can_share(parent, vma, slot, draft->draft->behind) &&
	       hpmmap_store_inherit(parent, child, slot, draft);
}

/*
 * Of a few pages, which are there at once, most were never written to: the child gets those that
 * are zero when it touches them.
 */
static bool copy(struct hpmmap_ctx *child, struct hpmmap_block *dst, struct hpmmap_block *src,
		 unsigned int first, unsigned int nr)
{
	for (; src->few && nr; first++, nr--)
		if (!hpmmap_block_is_zero(src, first) &&
		    hpmmap_block_copy(&child->owner, dst, first, src, first, 1))
			return false;
	return !hpmmap_block_copy(&child->owner, dst, first, src, first, nr);
}

/* Shares or copies what a mapping has of one slot. False without memory. */
static bool snapshot_slot(struct hpmmap_ctx *parent, struct hpmmap_ctx *child,
			  struct vm_area_struct *vma, unsigned long slot,
			  struct hpmmap_block *src)
{
	struct hpmmap_block *dst;
	unsigned int first, nr;

	slot_clip(slot, vma->vm_start, vma->vm_end, &first, &nr);
	if (!hpmmap_block_has_contents(src, first, nr))
		return true;
	if (src->draft && inherits(parent, child, vma, slot, src))
		return true;
	if (src->draft)
		src = hpmmap_store_own(parent, vma, slot, NULL, 0, 0);
	if (!src)
		return false;
	dst = hpmmap_store_load(child, slot);
	if ((!dst || dst == src) && can_share(parent, vma, slot, src) &&
	    share_slot(parent, child, vma, slot, src))
		return true;
	if (fatal_signal_pending(current))
		return false;
	fork_copies(parent, vma, slot, src);
	/* Without memory for it the child gets a block. */
	if (src->few && !dst)
		hpmmap_store_insert_few(child, slot);
	dst = hpmmap_store_get(child, vma, slot, src, NULL, true);
	return dst && copy(child, dst, src, first, nr);
}

/* What was to be shared next stays the parent's: it goes on writing to it. */
static void protect_undo(struct hpmmap_ctx *parent, struct vm_area_struct *vma, unsigned long slot)
{
	unsigned long last = min(slot_of(vma->vm_end - 1), slot + SHARE_RUN - 1);
	struct hpmmap_block *block;

	hpmmap_for_each_block(parent, slot, block, slot, last)
		if (block->folio && !hpmmap_slot_is_marked(parent, slot))
			hpmmap_entry_unprotect(parent, vma, slot);
}

/*
 * Gives a child, which does not run yet, the contents of a mapping of its parent. Without memory
 * it is doomed.
 */
static void snapshot(struct hpmmap_ctx *parent, struct hpmmap_ctx *child,
		     struct vm_area_struct *vma)
{
	unsigned long slot = slot_of(vma->vm_start);
	unsigned long last = slot_of(vma->vm_end - 1);
	struct hpmmap_block *block;

	mmap_assert_write_locked(parent->mm);
	mutex_lock(&parent->lock);
	mutex_lock_nested(&child->lock, SINGLE_DEPTH_NESTING);
	/* Nothing comes back while mmap_lock is held. */
	hpmmap_window_zap(parent, vma->vm_start, vma->vm_end);
	while (slot <= last && !child->doomed) {
		unsigned int nr;

		block = xa_find(hpmmap_store(parent, slot, last), &slot, last, XA_PRESENT);
		if (!block)
			break;
		nr = share_run(parent, child, vma, slot);
		slot += nr;
		if (!nr && !child->doomed) {
			if (!snapshot_slot(parent, child, vma, slot, block))
				child->doomed = true;
			slot += !child->doomed;
		}
		cond_resched();
	}
	if (child->doomed)
		protect_undo(parent, vma, slot);
	mutex_unlock(&child->lock);
	mutex_unlock(&parent->lock);
}

/*
 * A mapping was duplicated; mmap_lock of its address space is held for writing. Of all that
 * split mappings of their own, or others' (userfaultfd), only the caller's own fork
 * matters: it holds both mmap_locks.
 */
void hpmmap_fork_open(struct vm_area_struct *vma)
{
	struct hpmmap_ctx *parent, *child;
	struct vm_area_struct *old;

	if (vma->vm_mm == current->mm)
		return;
	parent = hpmmap_ctx_get(current->mm);
	if (parent && hpmmap_is_forking(parent)) {
		child = parent->fork.child;
		if (!child->mm) {
			refcount_inc(&child->refs);
			hpmmap_ctx_publish(child, vma->vm_mm);
		}
		old = vma_lookup(parent->mm, vma->vm_start);
		if (child->mm == vma->vm_mm && old)
			snapshot(parent, child, old);
	} else if (compat_copies_tables(vma)) {
		/* If it is a fork, no hook has seen it, and the core would copy the entries. */
		hpmmap_gigabyte_unmap(vma->vm_file->f_mapping, (loff_t)vma->vm_pgoff << PAGE_SHIFT,
				      vma->vm_end - vma->vm_start, 0);
	}
	if (parent)
		hpmmap_ctx_put(parent);
}
