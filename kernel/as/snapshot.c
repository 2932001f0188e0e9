// SPDX-License-Identifier: GPL-2.0
/*
 * The snapshot of a fork: what a child gets of its parent's memory.
 *
 * Linux would share the memory for good, for to it our mappings are shared
 * ones. So the child gets a store of its own while the address space is
 * duplicated, in vm_ops->open: with the same blocks, which from then on
 * nobody writes to (share.c), or with copies where that cannot be. As on Linux, the
 * snapshot is of one moment: where a mapping is copied, the access of other threads
 * to it is taken away first, and who needs it waits for mmap_lock until the fork is
 * done.
 */
#include <linux/mm.h>
#include <linux/sched/signal.h>

#include "hpmmap.h"
#include "mem/block.h"
#include "as/ctx.h"
#include "as/life.h"
#include "as/pgmap.h"
#include "as/snapshot.h"
#include "as/store.h"
#include "as/vma.h"
#include "as/zap.h"

/* Is the caller forking, and its address space not copied yet? */
bool hpmmap_is_forking(struct hpmmap_ctx *ctx)
{
	return READ_ONCE(ctx->fork.task) == current;
}

static bool has_other_threads(struct mm_struct *mm)
{
	return atomic_read(&mm->mm_users) > 1;
}

/* A block of the parent's mapping is about to be copied; mmap_lock held for writing. */
static void fork_copies(struct hpmmap_ctx *parent, struct vm_area_struct *vma)
{
	parent->fork.repair = true;
	/* Nothing comes back while mmap_lock is held. */
	if (parent->fork.zapped == vma)
		return;
	parent->fork.zapped = vma;
	/* With a userfaultfd Linux copies the entries that it finds to the child. */
	if (has_other_threads(vma->vm_mm) || userfaultfd_armed(vma))
		compat_zap(vma, vma->vm_start, vma->vm_end - vma->vm_start);
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
			    other->vm_flags & (VM_DONTCOPY | VM_WIPEONFORK))
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
	if (xa_load(&child->store, slot) == block)
		return true;
	if (end - start == SLOT_SIZE)
		hpmmap_pgmap_protect(vma, start);
	else
		hpmmap_slot_zap(parent, slot);
	if (hpmmap_block_is_pinned(block)) {
		/* Others may have it since an earlier fork. */
		if (!hpmmap_slot_is_marked(parent, slot))
			hpmmap_pgmap_unprotect(vma, start, block->folio);
		return false;
	}
	atomic_inc(&block->users);
	if (hpmmap_store_insert(child, slot, block)) {
		atomic_dec(&block->users);
		child->doomed = true;
		return true;
	}
	atomic_long_inc(&child->nr_held);
	xa_set_mark(&parent->store, slot, SLOT_SHARED);
	/* Nobody's offset. */
	block->folio->mapping = NULL;
	return true;
}

/*
 * Give a child the contents of a mapping.
 * @parent: whose contents; its mmap_lock is held for writing
 * @child: who gets them; not running yet
 * @vma: mapping of the parent
 *
 * Blocks are shared where that is possible and copied otherwise. Without
 * memory the child is doomed.
 */
static void snapshot(struct hpmmap_ctx *parent, struct hpmmap_ctx *child,
			   struct vm_area_struct *vma)
{
	struct hpmmap_block *src, *dst;
	unsigned long slot;

	mutex_lock(&parent->lock);
	mutex_lock_nested(&child->lock, SINGLE_DEPTH_NESTING);
	xa_for_each_range(&parent->store, slot, src, slot_of(vma->vm_start),
			  slot_of(vma->vm_end - 1)) {
		unsigned int first, nr;

		slot_clip(slot, vma->vm_start, vma->vm_end, &first, &nr);
		if (!hpmmap_block_has_fresh(src, first, nr))
			continue;
		dst = xa_load(&child->store, slot);
		if ((!dst || dst == src) && can_share(parent, vma, slot, src) &&
		    share_slot(parent, child, vma, slot, src))
			continue;
		if (fatal_signal_pending(current)) {
			child->doomed = true;
			break;
		}
		fork_copies(parent, vma);
		dst = hpmmap_store_get(child, vma, slot, src, NULL, true);
		if (!dst || hpmmap_block_copy(&child->owner, dst, first, src, first,
					      nr)) {
			child->doomed = true;
			break;
		}
		cond_resched();
	}
	mutex_unlock(&child->lock);
	mutex_unlock(&parent->lock);
}

/* Gives a new address space its context, once. */
static void child_publish(struct hpmmap_ctx *child, struct mm_struct *mm)
{
	if (child->mm)
		return;
	refcount_inc(&child->refs);
	hpmmap_ctx_publish(child, mm);
}

/**
 * hpmmap_fork_open() - a mapping was duplicated
 * @vma: the duplicate; mmap_lock of its address space is held for writing
 *
 * Of many who split mappings of their own, or others' (userfaultfd), only the
 * caller's own fork matters: it holds both mmap_locks.
 */
void hpmmap_fork_open(struct vm_area_struct *vma)
{
	struct hpmmap_ctx *parent, *child;
	struct vm_area_struct *old;

	if (vma->vm_mm == current->mm)
		return;
	parent = hpmmap_ctx_get(current->mm);
	if (!parent)
		return;
	if (hpmmap_is_forking(parent)) {
		child = parent->fork.child;
		child_publish(child, vma->vm_mm);
		old = vma_lookup(parent->mm, vma->vm_start);
		if (child->mm == vma->vm_mm && old &&
		    !(vma->vm_flags & VM_WIPEONFORK))
			snapshot(parent, child, old);
	}
	hpmmap_ctx_put(parent);
}
