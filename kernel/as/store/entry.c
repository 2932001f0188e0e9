// SPDX-License-Identifier: GPL-2.0
/*
 * Installation: the one file that makes entries of page tables for memory of a context, its
 * own and those of windows, and the only one that makes them writable again.
 *
 * An entry shows what the store has behind an address. So it is made under the lock of the
 * store, by a function that looks the block up itself. A block that was found before the
 * lock was taken is never mapped: it may have left the store, and even its pool, meanwhile.
 * A block is unmapped before it leaves the store (hpmmap_slot_unmap()).
 */
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/sched/signal.h>
#include <linux/userfaultfd_k.h>

#include "hpmmap.h"
#include "mem/block/block.h"
#include "as/own/ctx.h"
#include "as/own/stats.h"
#include "as/map/pgmap.h"
#include "as/map/vma.h"
#include "as/store/entry.h"
#include "as/store/freeze.h"
#include "as/store/store.h"

/* Mapped at once at most. */
#define RUN_SLOTS 512UL

/*
 * The block that entries of a slot may show until the lock is released, or NULL. Of a
 * draft these are the pages that were copied.
 * @write: they let somebody write
 */
static struct hpmmap_block *mappable(struct hpmmap_ctx *ctx, unsigned long slot, bool write)
{
	struct hpmmap_block *block;

	lockdep_assert_held(&ctx->lock);
	block = xa_load(&ctx->store, slot);
	if (block && write && !block->draft && hpmmap_slot_is_marked(ctx, slot))
		return NULL;
	HPMMAP_ASSERT(!block || !write || !hpmmap_block_is_shared(block));
	return block;
}

/* Is all of a part of a slot there, in the block itself? */
static bool is_ready(struct hpmmap_block *block, unsigned int first, unsigned int nr)
{
	return !hpmmap_block_has_stale(block, first, nr) &&
	       (!block->draft ||
		find_next_bit(block->draft->left, first + nr, first) >= first + nr);
}

/**
 * hpmmap_entry_2m() - map a slot by one entry
 * @ctx: the context, its lock held
 * @slot: the slot
 * @vma: a mapping of ours, or of a window, that covers the slot; its mmap_lock held
 * @addr: where it has the slot
 * @pmdp: the entry there
 * @write: as the mapping allows; otherwise read-only
 *
 * Return: whether an entry was made; not where there is one already, nor where the slot
 * cannot be mapped so.
 */
bool hpmmap_entry_2m(struct hpmmap_ctx *ctx, unsigned long slot,
		     struct vm_area_struct *vma, unsigned long addr, pmd_t *pmdp,
		     bool write)
{
	struct hpmmap_block *block = mappable(ctx, slot, write);
	bool made;

	if (!block || !block->folio || !is_ready(block, 0, SLOT_PAGES) ||
	    hpmmap_frozen_covers(ctx, NULL, slot << SLOT_SHIFT))
		return false;
	folio_lock(block->folio);
	made = !hpmmap_block_is_hurt(block) &&
	       hpmmap_pgmap_insert_2m(vma, addr, pmdp, block->folio, write);
	folio_unlock(block->folio);
	if (made)
		compat_add_rss(vma->vm_mm, block->folio, SLOT_PAGES);
	return made;
}

/* The block of a slot of a run, a new one of @blocks if there is none. */
static struct hpmmap_block *run_block(struct hpmmap_ctx *ctx,
				      struct xa_state *xas, unsigned long slot,
				      bool shared, struct list_head *blocks)
{
	struct hpmmap_block *block;

	lockdep_assert_held(&ctx->lock);
	rcu_read_lock();
	/* Nobody else changes the tree: the next slot is mostly in the same node. */
	if (xas_valid(xas) && xas->xa_index + 1 == slot) {
		block = xas_next(xas);
	} else {
		xas_set(xas, slot);
		block = xas_load(xas);
	}
	if (block && shared && xas_get_mark(xas, SLOT_SHARED))
		block = ERR_PTR(-EBUSY);
	rcu_read_unlock();
	if (block)
		return IS_ERR(block) || !block->folio ? NULL : block;
	if (!blocks || list_empty(blocks))
		return NULL;
	block = hpmmap_list_take(blocks, xas->xa_index);
	do {
		xas_lock(xas);
		xas_store(xas, block);
		xas_unlock(xas);
	} while (xas_nomem(xas, GFP_KERNEL));
	if (xas_error(xas)) {
		list_add(&block->link, blocks);
		return NULL;
	}
	hpmmap_block_attach(block, ctx->file->f_mapping, xas->xa_index);
	hpmmap_store_gained(ctx, block);
	return block;
}

/**
 * hpmmap_entry_run() - commit whole slots and map them by one entry each
 * @ctx: the context, ctx->ops held; mmap_lock held
 * @vma: mapping that can be mapped so
 * @start: of a slot
 * @end: of a slot, within the mapping
 * @blocks: blocks for slots that have none
 *
 * The way of most memory, without the core's fault path. It ends where
 * anything is out of the ordinary.
 *
 * Return: the end of what is committed and mapped.
 */
unsigned long hpmmap_entry_run(struct hpmmap_ctx *ctx, struct vm_area_struct *vma,
			       unsigned long start, unsigned long end,
			       struct list_head *blocks)
{
	XA_STATE(xas, &ctx->store, slot_of(start));
	struct folio *folio = NULL;
	unsigned long addr, nr = 0;
	pmd_t *pmdp = NULL;
	bool shared, inserted;

	lockdep_assert_held(&ctx->ops);
	lockdep_assert_held(&ctx->mm->mmap_lock);
	/* Others want the lock, too. */
	end = min(end, start + RUN_SLOTS * SLOT_SIZE);
	mutex_lock(&ctx->lock);
	shared = xa_marked(&ctx->store, SLOT_SHARED);
	for (addr = start; addr < end; addr += SLOT_SIZE) {
		struct hpmmap_block *block;

		if (fatal_signal_pending(current))
			break;
		if (!pmdp || !(addr & ~PUD_MASK))
			pmdp = hpmmap_pgmap_pmd(ctx->mm, addr);
		else
			pmdp++;
		if (!pmdp)
			break;
		if (hpmmap_pgmap_is_done(vma, pmdp))
			continue;
		if (!pmd_none(READ_ONCE(*pmdp)))
			break;
		/* Looked up as mappable() does, for many slots. */
		block = run_block(ctx, &xas, slot_of(addr), shared, blocks);
		HPMMAP_ASSERT(!block || block == mappable(ctx, slot_of(addr), true));
		if (!block)
			break;
		if (!bitmap_empty(block->stale, SLOT_PAGES))
			hpmmap_block_fill(&ctx->owner, block, 0, SLOT_PAGES);
		/* A fault may be clearing it. */
		folio_lock(block->folio);
		inserted = !hpmmap_block_is_hurt(block) &&
			   hpmmap_pgmap_insert_2m(vma, addr, pmdp,
						  block->folio, true);
		folio_unlock(block->folio);
		if (!inserted)
			break;
		folio = block->folio;
		nr += SLOT_PAGES;
		cond_resched();
	}
	if (folio) {
		compat_add_rss(ctx->mm, folio, nr);
		atomic_long_add(nr / SLOT_PAGES, &ctx->stats.entries_2m);
	}
	mutex_unlock(&ctx->lock);
	return addr;
}

/* None entries from @ptep on, at most @most. */
static unsigned int count_none(pte_t *ptep, unsigned int most)
{
	unsigned int nr = 0;

	while (nr < most && pte_none(ptep_get(ptep + nr)))
		nr++;
	return nr;
}

/* None entries of a locked table are set for pages of @folio, which is locked, from @page on. */
static void set_entries(struct vm_area_struct *vma, pte_t *ptep, unsigned long addr,
			unsigned int nr, struct folio *folio, struct page *page)
{
	pte_t entry;

	folio_ref_add(folio, nr);
	compat_add_rmap_4k(folio, page, nr, vma);
	compat_add_rss(vma->vm_mm, folio, nr);
	for (; nr; nr--, page++, ptep++, addr += PAGE_SIZE) {
		entry = mk_pte(page, vma->vm_page_prot);
		/* As the core does it: written to sooner or later. */
		if (vma->vm_flags & VM_WRITE)
			entry = compat_pte_mkwrite(pte_mkdirty(entry));
		set_pte_at(vma->vm_mm, addr, ptep, entry);
	}
}

/* As if from outside: the caller's protection keys do not matter. */
static unsigned int fill_flags(const struct vm_area_struct *vma)
{
	return FAULT_FLAG_REMOTE | (vma->vm_flags & VM_WRITE ? FAULT_FLAG_WRITE : 0);
}

/*
 * Fills the none entries of a table for @nr pages of one folio of a block, from
 * that of @addr on: where a mapping grows most is there already. Returns how
 * many.
 */
static unsigned long fill_entries(struct vm_area_struct *vma, pmd_t *pmdp,
				  unsigned long addr, unsigned int nr,
				  struct hpmmap_block *block)
{
	struct page *page = hpmmap_block_page(block, page_in_slot(addr));
	struct folio *folio = page_folio(page);
	unsigned long made = 0;
	unsigned int i = 0, run;
	pte_t *ptep = NULL;
	spinlock_t *ptl;

	folio_lock(folio);
	if (likely(!hpmmap_block_is_hurt(block)))
		ptep = hpmmap_pgmap_table_lock(vma->vm_mm, pmdp, addr, &ptl);
	while (ptep && i < nr) {
		run = count_none(ptep + i, nr - i);
		if (run)
			set_entries(vma, ptep + i, addr + i * PAGE_SIZE, run, folio, page + i);
		made += run;
		i += max(run, 1U);
		/* What is there already goes on. */
		while (i < nr && !pte_none(ptep_get(ptep + i)))
			i++;
	}
	if (ptep)
		spin_unlock(ptl);
	folio_unlock(folio);
	return made;
}

/*
 * Maps pages of a slot by entries of 4 KB, where there is a table for them: of a block of the
 * pools all, if all of them are ready, otherwise those that are.
 */
static void fill_some(struct hpmmap_ctx *ctx, struct vm_area_struct *vma, pmd_t *pmdp,
		      unsigned long start, unsigned long end)
{
	struct hpmmap_block *block = mappable(ctx, slot_of(start), true);
	unsigned int first, nr;
	unsigned long made = 0;

	/* Entries beside a mapping are nobody's to take away. */
	HPMMAP_ASSERT(start >= end || (start >= vma->vm_start && end <= vma->vm_end));
	if (!block || start >= end || hpmmap_frozen_covers(ctx, vma, start))
		return;
	slot_clip(slot_of(start), start, end, &first, &nr);
	if (block->folio && is_ready(block, first, nr))
		made = fill_entries(vma, pmdp, start, nr, block);
	else if (!block->folio)
		for (; start < end; start += PAGE_SIZE)
			if (is_ready(block, page_in_slot(start), 1))
				made += fill_entries(vma, pmdp, start, 1, block);
	atomic_long_add(made, &ctx->stats.entries_4k);
}

/* Through the core's fault path. False without memory. */
static bool fault_in(struct vm_area_struct *vma, unsigned long addr,
		     unsigned int flags)
{
	return !(handle_mm_fault(vma, addr, flags, NULL) & VM_FAULT_ERROR);
}

/**
 * hpmmap_entry_fault_in() - what a read by the program would map
 * @vma: accessible mapping of ours; mmap_lock held
 * @addr: address
 */
void hpmmap_entry_fault_in(struct vm_area_struct *vma, unsigned long addr)
{
	lockdep_assert_held(&vma->vm_mm->mmap_lock);
	fault_in(vma, addr, FAULT_FLAG_REMOTE);
}

static bool lock(struct hpmmap_ctx *ctx, bool nowait)
{
	if (nowait)
		return mutex_trylock(&ctx->lock);
	mutex_lock(&ctx->lock);
	return true;
}

/* The first address of a part of a slot whose page is there; or @end. */
static unsigned long first_ready(struct hpmmap_ctx *ctx, struct vm_area_struct *vma,
				 unsigned long start, unsigned long end, bool nowait)
{
	struct hpmmap_block *block;
	unsigned int first, nr;

	if (start >= end || !lock(ctx, nowait))
		return end;
	block = hpmmap_frozen_covers(ctx, vma, start) ? NULL :
							mappable(ctx, slot_of(start), true);
	slot_clip(slot_of(start), start, end, &first, &nr);
	/* To clear pages takes its time. */
	if (block && (hpmmap_block_is_lost(block) ||
		      (nowait && block->folio && !is_ready(block, first, nr))))
		block = NULL;
	while (start < end && (!block || test_bit(page_in_slot(start), block->stale)))
		start = block ? start + PAGE_SIZE : end;
	mutex_unlock(&ctx->lock);
	return start;
}

/* Would an access take a fault? */
static bool is_missing(struct mm_struct *mm, unsigned long addr)
{
	pmd_t *pmdp = hpmmap_pgmap_pmd(mm, addr), pmd;
	pte_t *ptep;
	bool ret;

	rcu_read_lock();
	ptep = hpmmap_pgmap_peek(pmdp, addr, &pmd);
	ret = !ptep || pte_none(ptep_get(ptep));
	rcu_read_unlock();
	return ret;
}

/**
 * hpmmap_entry_fill() - map what the store has for a part of one slot
 * @ctx: the context, its lock not held; mmap_lock held
 * @vma: accessible mapping of ours
 * @start: first address
 * @end: end, in the same slot
 * @nowait: wait for nobody
 *
 * Without memory for page tables, where a table is freed at the same time, and where the slot
 * is shared, the rest is left to later faults.
 */
void hpmmap_entry_fill(struct hpmmap_ctx *ctx, struct vm_area_struct *vma,
		       unsigned long start, unsigned long end, bool nowait)
{
	unsigned int flags = fill_flags(vma);
	pmd_t *pmdp = hpmmap_pgmap_pmd(vma->vm_mm, start);

	lockdep_assert_held(&vma->vm_mm->mmap_lock);
	if (nowait)
		flags |= FAULT_FLAG_ALLOW_RETRY | FAULT_FLAG_RETRY_NOWAIT;
	if (hpmmap_pgmap_kind(pmdp) == HPMMAP_ENTRY_NONE) {
		start = first_ready(ctx, vma, start, end, nowait);
		if (start == end || !fault_in(vma, start, flags))
			return;
		pmdp = hpmmap_pgmap_pmd(vma->vm_mm, start);
	}
	if (hpmmap_pgmap_kind(pmdp) != HPMMAP_ENTRY_TABLE)
		return;
	/* The core's path knows what mlock wants. */
	if (vma->vm_flags & VM_LOCKED) {
		while ((start = first_ready(ctx, vma, start, end, nowait)) < end) {
			if (is_missing(vma->vm_mm, start) && !fault_in(vma, start, flags))
				break;
			start += PAGE_SIZE;
		}
		return;
	}
	if (!lock(ctx, nowait))
		return;
	fill_some(ctx, vma, pmdp, start, end);
	mutex_unlock(&ctx->lock);
}

/**
 * hpmmap_entry_fill_pages() - map some pages where a fault is
 * @ctx: the context, its lock held
 * @vmf: the fault; mmap_lock held
 * @first: the first page of the slot; those pages are the block's own
 * @nr: how many, as far as the mapping goes
 *
 * By entries of 4 KB, whatever the mapping covers; none without a table for them.
 */
void hpmmap_entry_fill_pages(struct hpmmap_ctx *ctx, struct vm_fault *vmf,
			     unsigned int first, unsigned int nr)
{
	struct vm_area_struct *vma = vmf->vma;
	unsigned long start = (vmf->address & SLOT_MASK) + first * PAGE_SIZE;

	lockdep_assert_held(&vma->vm_mm->mmap_lock);
	if (hpmmap_pgmap_table(vmf))
		fill_some(ctx, vma, vmf->pmd, max(start, vma->vm_start),
			  min(start + nr * PAGE_SIZE, vma->vm_end));
}

/* Maps all of a slot, or a page, as the core does after a fault. */
static vm_fault_t finish(struct hpmmap_ctx *ctx, struct vm_fault *vmf,
			 const struct hpmmap_block *block)
{
	bool whole = hpmmap_pgmap_is_2m(vmf);
	vm_fault_t ret;

	get_page(vmf->page);
	lock_page(vmf->page);
	/* Just now, maybe. */
	ret = hpmmap_block_is_hurt(block) ? VM_FAULT_HWPOISON : compat_finish_fault(vmf);
	unlock_page(vmf->page);
	if (!ret)
		atomic_long_inc(whole ? &ctx->stats.entries_2m : &ctx->stats.entries_4k);
	else
		put_page(vmf->page);
	vmf->page = NULL;
	return ret;
}

/**
 * hpmmap_entry_fault() - map what a fault is for
 * @ctx: the context, its lock held
 * @vmf: the fault, in a mapping of ours; mmap_lock held
 * @around: also what is ready beside it, where the slot cannot have one entry: the other pages
 *	would take a fault each. Not what is locked, for only the core's path knows what
 *	mlock wants, nor what a userfaultfd watches.
 *
 * Return: 0 if the fault has mapped it, VM_FAULT_NOPAGE (somebody else has meanwhile, or the fault
 * will come again), VM_FAULT_HWPOISON, VM_FAULT_OOM, or VM_FAULT_RETRY for one that must not wait.
 */
vm_fault_t hpmmap_entry_fault(struct hpmmap_ctx *ctx, struct vm_fault *vmf, bool around)
{
	struct vm_area_struct *vma = vmf->vma;
	unsigned int page = page_in_slot(vmf->address);
	struct hpmmap_block *block = mappable(ctx, slot_of(vmf->address), true);

	lockdep_assert_held(&vma->vm_mm->mmap_lock);
	if (!block || !is_ready(block, page, 1))
		return VM_FAULT_NOPAGE;
	vmf->page = hpmmap_block_page(block, page);
	if (vmf->flags & FAULT_FLAG_RETRY_NOWAIT && folio_test_locked(page_folio(vmf->page))) {
		vmf->page = NULL;
		return VM_FAULT_RETRY;
	}
	if (around && !(vma->vm_flags & VM_LOCKED) && !userfaultfd_armed(vma) &&
	    !hpmmap_pgmap_is_2m(vmf) && hpmmap_pgmap_table(vmf)) {
		unsigned long start = vmf->address & SLOT_MASK;
		unsigned long addr = vmf->address & PAGE_MASK;

		fill_some(ctx, vma, vmf->pmd, max(vma->vm_start, start), addr);
		fill_some(ctx, vma, vmf->pmd, addr + PAGE_SIZE,
			  min(vma->vm_end, start + SLOT_SIZE));
	}
	return finish(ctx, vmf, block);
}

/**
 * hpmmap_entry_window() - map pages of a slot in a window, wherever they lie in theirs
 * @ctx: the target's context, its lock held
 * @va: the target's address of the first page
 * @vmf: a fault in a window; its mmap_lock held
 * @addr: where the first page is to be; in the table of the fault, as is all of it
 * @nr: how many pages of the same slot; of the pools, they are committed
 * @write: somebody may write to them
 *
 * By entries of 4 KB; none without a table for them.
 *
 * Return: how many entries were made.
 */
unsigned int hpmmap_entry_window(struct hpmmap_ctx *ctx, unsigned long va,
				 struct vm_fault *vmf, unsigned long addr,
				 unsigned int nr, bool write)
{
	struct hpmmap_block *block = mappable(ctx, slot_of(va), write);

	lockdep_assert_held(&vmf->vma->vm_mm->mmap_lock);
	return block ? hpmmap_pgmap_insert_pages(vmf, addr, block, page_in_slot(va), nr,
						 write) : 0;
}

/**
 * hpmmap_entry_unprotect() - give the right to write back
 * @ctx: the context, its lock held
 * @vma: mapping of ours; mmap_lock held
 * @slot: a slot that it covers
 *
 * Return: whether the entry was changed. The TLB may know the old one: the
 * program would take a fault for it.
 */
bool hpmmap_entry_unprotect(struct hpmmap_ctx *ctx, struct vm_area_struct *vma,
			    unsigned long slot)
{
	struct hpmmap_block *block = mappable(ctx, slot, true);
	pmd_t *pmdp = hpmmap_pgmap_pmd(vma->vm_mm, slot << SLOT_SHIFT);

	return block && block->folio && pmdp &&
	       hpmmap_pgmap_unprotect(vma, slot << SLOT_SHIFT, pmdp, block->folio);
}

/* Does a mapping of ours cover all of a slot? */
static bool is_ordinary(struct vm_area_struct *vma, unsigned long start)
{
	return vma && vma->vm_start <= start && vma->vm_end - SLOT_SIZE >= start &&
	       hpmmap_vma_is_ours(vma) && hpmmap_vma_is_accessible(vma);
}

/* Is there a block behind a slot's block or in it that others have? */
static bool is_shared(const struct hpmmap_block *block)
{
	return hpmmap_block_is_shared(block->draft ? block->draft->behind : block);
}

/**
 * hpmmap_entry_restore() - slots that nobody shares any more are written to in place again
 * @ctx: the context, its lock held, and mmap_lock
 * @slot: where to begin; out: where to go on
 * @rest: out: slots, HPMMAP_RESTORE_MOST at most, that nobody shares and that are not done: with a
 *	draft, which is the last, with pins, without one entry
 * @nr: out: how many
 * @drafts: NULL, or out: there are drafts that nobody shares, which are left out
 * @flush: set if stale entries may have to be flushed
 *
 * Waits for nobody.
 *
 * Return: 1, or 0 if there are no more marked slots.
 */
int hpmmap_entry_restore(struct hpmmap_ctx *ctx, unsigned long *slot,
			 unsigned long *rest, unsigned int *nr, bool *drafts,
			 bool *flush)
{
	XA_STATE(xas, &ctx->store, *slot);
	struct vm_area_struct *vma = NULL;
	unsigned int looks = HPMMAP_RESTORE_MOST;
	unsigned long before = 0;
	struct hpmmap_block *block;
	pmd_t *pmdp = NULL;
	int ret = 0;

	lockdep_assert_held(&ctx->lock);
	*nr = 0;
	xas_lock(&xas);
	xas_for_each_marked(&xas, block, ULONG_MAX, SLOT_SHARED) {
		unsigned long start = xas.xa_index << SLOT_SHIFT;

		*slot = xas.xa_index;
		ret = !looks--;
		if (ret)
			break;
		if (is_shared(block))
			continue;
		if (block->draft && drafts) {
			*drafts = true;
			continue;
		}
		ret = !!block->draft;
		if (!vma || vma->vm_end <= start)
			vma = find_vma(ctx->mm, start);
		if (ret || !is_ordinary(vma, start))
			goto rest;
		/* Entries of one gigabyte follow each other. */
		if (pmdp && (start & PUD_MASK) == (before & PUD_MASK))
			pmdp += (start - before) >> SLOT_SHIFT;
		else
			pmdp = hpmmap_pgmap_pmd(ctx->mm, start);
		before = start;
		if (pmdp && hpmmap_pgmap_is_alone_2m(ctx->mm, pmdp, block->folio)) {
			xas_clear_mark(&xas, SLOT_SHARED);
			hpmmap_block_attach(block, ctx->file->f_mapping, xas.xa_index);
			*flush |= hpmmap_pgmap_unprotect(vma, start, pmdp, block->folio);
			continue;
		}
rest:
		rest[(*nr)++] = xas.xa_index;
		if (ret) {
			++*slot;
			break;
		}
	}
	xas_unlock(&xas);
	return ret;
}
