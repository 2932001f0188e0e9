// SPDX-License-Identifier: GPL-2.0
/*
 * Giving memory to mappings, and mapping again what the core has unmapped.
 *
 * Everything is mapped when a call returns, by one entry where a slot is covered by
 * one mapping.
 */
#include "hpmmap.h"
#include "mem/block/block.h"
#include "as/own/ctx.h"
#include "as/map/file.h"
#include "as/map/pgmap.h"
#include "as/map/range.h"
#include "as/map/vma.h"
#include "as/store/entry.h"
#include "as/store/store.h"
#include "as/change/commit.h"
#include "as/change/join.h"
#include "as/change/place.h"

/* What vm_mmap() can make again; see collapse_slot(). */
#define PLAIN_FLAGS (VM_READ | VM_WRITE | VM_EXEC | VM_MAYREAD | \
		     VM_MAYWRITE | VM_MAYEXEC | VM_SHARED | VM_MAYSHARE | \
		     VM_NORESERVE | VM_SOFTDIRTY)

static bool wants_collapse(struct hpmmap_ctx *ctx, struct vm_area_struct *vma, unsigned long addr)
{
	struct hpmmap_block *block;
	bool ret;

	/* Mapped anew it would take the place of what is coming there. */
	if (atomic_read(&ctx->nr_replacing))
		return false;
	if (vma->vm_start > addr || vma->vm_end - SLOT_SIZE < addr ||
	    vma->vm_flags & ~PLAIN_FLAGS || vma->anon_vma || vma_policy(vma) ||
	    ctx->mm->def_flags & VM_LOCKED || !compat_maps_2m(ctx->mm) ||
	    hpmmap_pgmap_slot(ctx->mm, addr) != HPMMAP_ENTRY_TABLE)
		return false;
	/* A fault of another thread may give the block up: ctx->lock keeps it. */
	mutex_lock(&ctx->lock);
	block = hpmmap_store_load(ctx, slot_of(addr));
	ret = block && block->folio && !hpmmap_block_is_hurt(block);
	mutex_unlock(&ctx->lock);
	return ret;
}

/*
 * Mapping the same again frees the table of 4 KB entries, and the next fill installs one of 2 MB.
 * An access in between takes a fault. Not where a task reads the address space all the time: the
 * call may be one that would not wait for it on Linux.
 */
static bool collapse_slot(struct hpmmap_ctx *ctx, unsigned long addr,
			  vm_flags_t vm_flags, enum hpmmap_name name, bool *vain)
{
	unsigned long ret;
	unsigned int was;

	if (!hpmmap_mmap_write_lock_soon(ctx->mm, vain))
		return false;
	/* A reader that comes just here is waited for, until the caller is killed. */
	mmap_write_unlock(ctx->mm);
	was = hpmmap_rights_keep();
	ret = hpmmap_file_map_named(ctx, name, addr, SLOT_SIZE,
				    hpmmap_vma_prot(vm_flags), MAP_FIXED |
				    (vm_flags & VM_NORESERVE ? MAP_NORESERVE : 0));
	current->personality = was;
	if (IS_ERR_VALUE(ret))
		hpmmap_range_kill_if_lost(ctx, addr, addr + SLOT_SIZE);
	return !IS_ERR_VALUE(ret);
}

/*
 * Commits and maps the part of a slot that one mapping covers. Returns
 * whether the slot should be collapsed.
 */
static bool commit_slot(struct hpmmap_ctx *ctx, struct vm_area_struct *vma,
			unsigned long addr, struct list_head *blocks)
{
	unsigned long slot_start = addr & SLOT_MASK;
	unsigned long lo = max(vma->vm_start, slot_start);
	unsigned long hi = min(vma->vm_end, slot_start + SLOT_SIZE);
	enum hpmmap_commit how;

	/* What is locked is there. */
	if (ctx->job->first_touch && !(vma->vm_flags & VM_LOCKED) &&
	    hpmmap_slot_is_deferred(ctx, lo, hi)) {
		hpmmap_store_reserve(ctx, vma, slot_of(addr), blocks);
		return false;
	}
	if (!hpmmap_store_commit(ctx, vma, lo, hi, blocks, &how))
		return false;
	switch (how) {
	case HPMMAP_COMMIT_SHARED:
		if (wants_collapse(ctx, vma, slot_start))
			return true;
		/* Of what is locked, a copy: it has to be there. */
		if (hi - lo == SLOT_SIZE || vma->vm_flags & VM_LOCKED)
			hpmmap_entry_fault_in(vma, lo);
		return false;
	case HPMMAP_COMMIT_OWNED_NOW:
		hpmmap_vma_slot_owned(ctx, slot_of(addr));
		break;
	case HPMMAP_COMMIT_OWN:
		/* What would go again is not made. */
		if (wants_collapse(ctx, vma, slot_start))
			return true;
		hpmmap_entry_fill(ctx, vma, lo, hi, false);
		break;
	}
	return wants_collapse(ctx, vma, slot_start);
}

/*
 * As far as whole slots can be mapped by one entry each; returns the end. @whole: a gigabyte may
 * be; @large: out: it is to be, at the end.
 */
static unsigned long commit_run(struct hpmmap_ctx *ctx, struct vm_area_struct *vma,
				unsigned long addr, unsigned long end,
				struct list_head *blocks, bool whole, bool *large)
{
	*large = false;
	/* Below that there may be slots without a block, to be left so. */
	if (addr < hpmmap_vma_given(ctx, vma))
		end = min(end, addr + SLOT_SIZE);
	end = min(ALIGN(end, SLOT_SIZE), vma->vm_end & SLOT_MASK);
	if (addr & ~SLOT_MASK || addr >= end || ctx->job->first_touch ||
	    vma->vm_flags & (VM_LOCKED | VM_NOHUGEPAGE) ||
	    !compat_maps_2m(ctx->mm))
		return addr;
	*large = whole;
	return hpmmap_entry_run(ctx, vma, addr, end, blocks, large);
}

/*
 * Where there is something to commit from *addr on: the mapping, or NULL. @vma
 * is the one before, or NULL. A reservation may have terabytes of slots without
 * a block: with @only_present they are left out, as are always those of a stack
 * that wait until they are touched.
 */
static struct vm_area_struct *commit_next(struct hpmmap_ctx *ctx,
					  struct vm_area_struct *vma,
					  unsigned long *addr,
					  unsigned long end, bool only_present)
{
	while (*addr < end && !fatal_signal_pending(current)) {
		unsigned long stop, given;

		if (!vma || vma->vm_end <= *addr)
			/* The first look is the cheaper one, and mostly enough. */
			vma = vma_lookup(ctx->mm, *addr) ?:
			      find_vma_intersection(ctx->mm, *addr, end);
		if (!vma)
			break;
		*addr = max(*addr, vma->vm_start);
		stop = min(end, vma->vm_end);
		if (!hpmmap_vma_is_ours(vma) || !hpmmap_vma_is_accessible(vma)) {
			*addr = stop;
		} else {
			given = only_present ? stop : min(stop, hpmmap_vma_given(ctx, vma));
			if (*addr < given)
				*addr = hpmmap_store_next(ctx, *addr, given);
		}
		if (*addr < stop)
			return vma;
		cond_resched();
	}
	return NULL;
}

/*
 * As commit_slot(), for what has no stale pages, and is not shared: a part of what is shared
 * would be copied whole by its fault. Waits for no lock.
 */
static void restore_part(struct hpmmap_ctx *ctx, struct vm_area_struct *vma, unsigned long addr)
{
	unsigned long start = addr & SLOT_MASK;

	hpmmap_entry_fill(ctx, vma, max(vma->vm_start, start),
			  min(vma->vm_end, start + SLOT_SIZE), true);
}

static void commit_range(struct hpmmap_ctx *ctx, unsigned long start,
			 unsigned long end, struct list_head *blocks,
			 bool only_present, bool *vain)
{
	/* Below the last there are entries of 2 MB where one of 1 GB could not be made. */
	unsigned long addr = start, next = end, small = 0;

	while (addr < end) {
		struct vm_area_struct *vma = NULL;
		enum hpmmap_name name = HPMMAP_NAME_NONE;
		vm_flags_t collapse_flags = 0;
		bool collapse = false, large = false, done;

		mmap_read_lock(ctx->mm);
		while ((vma = commit_next(ctx, vma, &addr, end, only_present))) {
			next = commit_run(ctx, vma, addr, end, blocks, addr >= small, &large);
			if (next == addr && !large) {
				next = min(vma->vm_end, (addr & SLOT_MASK) + SLOT_SIZE);
				collapse = commit_slot(ctx, vma, addr, blocks);
				collapse_flags = vma->vm_flags;
				name = hpmmap_file_name(vma->vm_file);
			}
			if (collapse || large)
				break;
			cond_resched();
			addr = next;
		}
		mmap_read_unlock(ctx->mm);
		if (large) {
			small = next + PUD_SIZE;
			addr = hpmmap_join_now(ctx, next, vain) ? small : next;
			continue;
		}
		if (!collapse)
			return;

		done = collapse_slot(ctx, addr & SLOT_MASK, collapse_flags, name, vain);
		mmap_read_lock(ctx->mm);
		vma = find_vma_intersection(ctx->mm, addr, addr + 1);
		if (vma && hpmmap_vma_is_ours(vma) && hpmmap_vma_is_accessible(vma)) {
			if (done)
				commit_slot(ctx, vma, addr, NULL);
			else
				restore_part(ctx, vma, addr);
		}
		mmap_read_unlock(ctx->mm);
		addr = next;
	}
}

/*
 * Maps a slot's block as its mappings now allow. The context need not be the caller's;
 * mmap_lock is held, ctx->lock is not. @nowait: as far as that is possible without waiting;
 * the rest is left to faults. Returns whether a TLB may have entries that allow less.
 */
bool hpmmap_vma_remap_slot(struct hpmmap_ctx *ctx, unsigned long slot, bool nowait)
{
	unsigned long start = slot << SLOT_SHIFT, end = start + SLOT_SIZE;
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, ctx->mm, start);
	bool flush = false;

	lockdep_assert_held(&ctx->mm->mmap_lock);
	for_each_vma_range(vmi, vma, end) {
		if (!hpmmap_vma_is_ours(vma) || !hpmmap_vma_is_accessible(vma))
			continue;
		if (hpmmap_pgmap_slot(ctx->mm, start) >= HPMMAP_ENTRY_2M) {
			if (!nowait)
				mutex_lock(&ctx->lock);
			else if (!mutex_trylock(&ctx->lock))
				return flush;
			flush |= hpmmap_entry_unprotect(ctx, vma, slot);
			mutex_unlock(&ctx->lock);
		} else if (nowait) {
			restore_part(ctx, vma, start);
		} else {
			commit_slot(ctx, vma, max(start, vma->vm_start), NULL);
		}
	}
	return flush;
}

/*
 * A slot's block became the context's own. While it was shared the slot was mapped
 * read-only, or not at all. A CPU that still has the read-only entry in its TLB takes one
 * fault, which the core answers without the module. mmap_lock is held, ctx->lock is not.
 */
void hpmmap_vma_slot_owned(struct hpmmap_ctx *ctx, unsigned long slot)
{
	hpmmap_vma_remap_slot(ctx, slot, false);
}

/* Slots that are mapped by one entry again at once. */
#define COLLAPSE_MOST 64

/* The next one that is marked, from a slot on, then from the first; false where there is none. */
static bool collapse_next(struct hpmmap_ctx *ctx, unsigned long *slot, bool *vain)
{
	unsigned long start;

	lockdep_assert_held(&ctx->ops);
	if (fatal_signal_pending(current))
		return false;
	if (!xa_find(&ctx->store.blocks, slot, ULONG_MAX, SLOT_SPLIT)) {
		*slot = 0;
		if (!xa_find(&ctx->store.blocks, slot, ULONG_MAX, SLOT_SPLIT))
			return false;
	}
	xa_clear_mark(&ctx->store.blocks, *slot, SLOT_SPLIT);
	/* It may be shared again by now. */
	if (hpmmap_slot_is_marked(ctx, *slot))
		return true;
	start = *slot << SLOT_SHIFT;
	commit_range(ctx, start, start + SLOT_SIZE, NULL, true, vain);
	cond_resched();
	return true;
}

/* Maps all slots with SLOT_SPLIT as their mappings allow, in vain by 4 KB; ctx->ops held. */
void hpmmap_vma_repair_split(struct hpmmap_ctx *ctx)
{
	unsigned long slot = 0;
	bool vain = false;

	while (collapse_next(ctx, &slot, &vain))
		;
}

static void collapse_work(struct callback_head *work)
{
	struct hpmmap_ctx *ctx = container_of(work, struct hpmmap_ctx,
					      collapse.work);
	unsigned int nr, left = COLLAPSE_MOST;
	unsigned long slot;
	bool vain = false;

	/* Other threads map what there is meanwhile, and do not come again. */
	do {
		nr = 0;
		if (current->mm == ctx->mm && !(current->flags & PF_EXITING) &&
		    mutex_trylock(&ctx->ops)) {
			slot = ctx->collapse.slot;
			while (nr < left && !vain && collapse_next(ctx, &slot, &vain))
				nr++;
			left -= nr;
			hpmmap_ops_unlock(ctx);
		}
		atomic_set_release(&ctx->collapse.queued, 0);
	} while (nr && left && !vain && xa_marked(&ctx->store.blocks, SLOT_SPLIT) &&
		 !atomic_cmpxchg_acquire(&ctx->collapse.queued, 0, 1));
	hpmmap_ctx_put(ctx);
}

/*
 * Slots that were copied page by page, and are complete, are mapped by one entry again,
 * first that of a fault in a mapping that covers it: when the thread returns to its
 * program. Not while calls are under way: a touch of memory waits for none. mmap_lock is
 * held. Returns whether it will be done for the slot of the fault.
 */
bool hpmmap_vma_collapse_soon(struct hpmmap_ctx *ctx, const struct vm_fault *vmf)
{
	unsigned long slot = slot_of(vmf->address);

	lockdep_assert_held(&ctx->mm->mmap_lock);
	if (likely(!xa_marked(&ctx->store.blocks, SLOT_SPLIT)) ||
	    !xa_get_mark(&ctx->store.blocks, slot, SLOT_SPLIT) ||
	    hpmmap_slot_is_marked(ctx, slot) ||
	    !(vmf->flags & FAULT_FLAG_USER) || current->mm != ctx->mm ||
	    mutex_is_locked(&ctx->ops) || atomic_cmpxchg_acquire(&ctx->collapse.queued, 0, 1))
		return false;
	ctx->collapse.slot = slot;
	init_task_work(&ctx->collapse.work, collapse_work);
	refcount_inc(&ctx->refs);
	if (!task_work_add(current, &ctx->collapse.work, TWA_RESUME))
		return true;
	/* Not the last one: the caller has one, too. */
	hpmmap_ctx_put(ctx);
	atomic_set_release(&ctx->collapse.queued, 0);
	return false;
}

/*
 * Gives memory to the accessible mappings of a range, of the caller or of a child not
 * running yet. @blocks: to use first, or NULL; @vain: as hpmmap_mmap_write_lock_soon().
 * ctx->ops is held.
 *
 * Everything is mapped when it returns, by one entry where a slot is covered by one
 * mapping; where the pools are exhausted it is left to faults. A slot is always committed
 * as far as its mapping covers it, even outside the range: the core may map all of it with
 * one entry.
 */
void hpmmap_vma_commit(struct hpmmap_ctx *ctx, unsigned long start,
		       unsigned long end, struct list_head *blocks, bool *vain)
{
	lockdep_assert_held(&ctx->ops);
	commit_range(ctx, start, end, blocks, false, vain);
}

/*
 * Maps again what the core has unmapped: it drops a 2 MB entry when a part of it changes.
 * Slots without a block stay without. ctx->ops is held.
 */
void hpmmap_vma_repair(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end, bool *vain)
{
	lockdep_assert_held(&ctx->ops);
	commit_range(ctx, start, end, NULL, true, vain);
}
