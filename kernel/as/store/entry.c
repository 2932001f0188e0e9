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
#include "hpmmap.h"
#include "mem/block/block.h"
#include "mem/pool/pool.h"
#include "as/own/ctx.h"
#include "as/own/stats.h"
#include "as/map/gigabyte.h"
#include "as/map/pgmap.h"
#include "as/map/vma.h"
#include "as/store/entry.h"
#include "as/store/freeze.h"
#include "as/store/store.h"
#include "trace.h"

/* Mapped at once at most. */
#define RUN_SLOTS 512UL

/* Without a pause. */
#define RUN_BATCH 16

/*
 * The block that entries of a slot may show until the lock is released, or NULL. Of a
 * draft these are the pages that were copied.
 * @write: they permit writes
 */
static struct hpmmap_block *mappable(struct hpmmap_ctx *ctx, unsigned long slot, bool write)
{
	struct hpmmap_block *block;

	lockdep_assert_held(&ctx->lock);
	block = hpmmap_store_load(ctx, slot);
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

/*
 * Maps a slot by one entry. @vma: a mapping of ours, or of a window, that covers the slot,
 * at @addr; its mmap_lock is held. @pmdp: the entry there. @write: as the mapping allows;
 * otherwise read-only. ctx->lock is held.
 *
 * Returns whether an entry was made; not where there is one already, nor where the slot
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
static __always_inline struct hpmmap_block *
run_block(struct hpmmap_ctx *ctx, struct xa_state *xas, unsigned long slot, bool shared,
	  struct list_head *blocks)
{
	struct hpmmap_block *block;

	lockdep_assert_held(&ctx->lock);
	if (hpmmap_has_runs(ctx)) {
		hpmmap_store(ctx, slot, slot);
		xas_reset(xas);
	}
	xas_lock(xas);
	/* No other task changes the tree: the next slot is mostly in the same node. */
	if (xas_valid(xas) && xas->xa_index + 1 == slot) {
		block = xas_next(xas);
	} else {
		xas_set(xas, slot);
		block = xas_load(xas);
	}
	if (block && shared && xas_get_mark(xas, SLOT_SHARED))
		block = ERR_PTR(-EBUSY);
	if (block || !blocks || list_empty(blocks)) {
		xas_unlock(xas);
		return IS_ERR_OR_NULL(block) || !block->folio ? NULL : block;
	}
	block = hpmmap_list_take(blocks, slot);
	for (;;) {
		xas_store(xas, block);
		xas_unlock(xas);
		if (likely(!xas_error(xas)))
			break;
		if (!xas_nomem(xas, GFP_KERNEL)) {
			list_add(&block->link, blocks);
			return NULL;
		}
		xas_lock(xas);
	}
	hpmmap_block_attach(block, ctx->file->f_mapping, slot);
	/* It does not wait for a touch. */
	atomic_long_inc(&ctx->nr_held);
	hpmmap_count_placed(ctx, block, 1);
	return block;
}

/*
 * The first folio of a gigabyte that one entry may map, or NULL. Slots get blocks from @blocks, or,
 * with NULL, have theirs already. @later: out: it may be so some time.
 */
static struct folio *gigabyte_of(struct hpmmap_ctx *ctx, unsigned long addr,
				 struct xa_state *xas, struct list_head *blocks, bool *later)
{
	struct folio *first = NULL;
	unsigned long i;

	*later = false;
	for (i = 0; i < GIGABYTE_SLOTS; i++) {
		struct hpmmap_block *block = run_block(ctx, xas, slot_of(addr) + i, false, blocks);
		bool shared = block && (block->draft || hpmmap_slot_is_marked(ctx, slot_of(addr) + i));

		*later = shared;
		if (!block || shared)
			return NULL;
		first = first ?: block->folio;
		if (folio_pfn(block->folio) != folio_pfn(first) + (i << SLOT_ORDER) ||
		    hpmmap_block_is_hurt(block))
			return NULL;
		/* One that is locked may be being cleared. */
		*later = folio_test_locked(block->folio);
		if (*later)
			return NULL;
		if (!hpmmap_pages_are(block->stale, false))
			hpmmap_block_fill(&ctx->owner, block, 0, SLOT_PAGES);
	}
	return IS_ALIGNED(folio_pfn(first), GIGABYTE_SLOTS << SLOT_ORDER) ? first : NULL;
}

/*
 * Commits a gigabyte, of which nothing is mapped. Returns whether one entry can map it. Where not,
 * slots may have got their blocks.
 */
static bool run_gigabyte(struct hpmmap_ctx *ctx, struct vm_area_struct *vma, unsigned long addr,
			 struct xa_state *xas, struct list_head *blocks)
{
	struct hpmmap_block *run = blocks ? list_first_entry_or_null(blocks, struct hpmmap_block, link) :
					    NULL;
	bool later;

	if (!hpmmap_gigabyte_may(vma, addr) ||
	    hpmmap_pgmap_slot(vma->vm_mm, addr) != HPMMAP_ENTRY_NONE)
		return false;
	return (run && run->run && run->slot == slot_of(addr) && hpmmap_run_add(ctx, run)) ||
	       gigabyte_of(ctx, addr, xas, blocks, &later);
}

/**
 * hpmmap_entry_1g() - map by one entry what entries of 2 MB map, or none
 * @ctx: the context, ctx->ops held, and mmap_lock for writing
 * @vma: accessible mapping of ours that is not locked, and may have large entries
 * @addr: start of a gigabyte that it covers
 *
 * Return: 0; -EAGAIN where that may be possible later, -EINVAL where it is not.
 */
int hpmmap_entry_1g(struct hpmmap_ctx *ctx, struct vm_area_struct *vma, unsigned long addr)
{
	XA_STATE(xas, &ctx->store.blocks, slot_of(addr));
	struct hpmmap_block *run;
	struct folio *first = NULL;
	bool later = true, joins;
	int ret = -EINVAL;

	lockdep_assert_held(&ctx->ops);
	mmap_assert_write_locked(ctx->mm);
	mutex_lock(&ctx->lock);
	run = hpmmap_run_load(ctx, slot_of(addr));
	/*
	 * Nothing of a run is cleared by another task, or in another entry. One of its blocks may be
	 * damaged by now: blocks are counted as doomed before they are looked for under ctx->lock.
	 */
	if (run && !hpmmap_pool_is_sound(run->nid))
		run = NULL;
	if (ctx->frozen.end <= ctx->frozen.start)
		first = run ? run->folio : gigabyte_of(ctx, addr, &xas, NULL, &later);
	joins = hpmmap_pgmap_slot(ctx->mm, addr) == HPMMAP_ENTRY_2M;
	if (first && hpmmap_gigabyte_set(vma, addr, first, ctx->file->f_mapping)) {
		atomic_long_inc(joins ? &ctx->stats.joins_1g : &ctx->stats.entries_1g);
		if (joins)
			trace_hpmmap_gigabyte(ctx->id, addr, true);
		ret = 0;
	} else if (later) {
		ret = -EAGAIN;
	}
	mutex_unlock(&ctx->lock);
	return ret;
}

/*
 * Commits whole slots from @start to @end, within a mapping that can be mapped so, with
 * @blocks for those that have none, and maps them by one entry each: the way of most
 * memory, without the core's fault path. ctx->ops and mmap_lock are held. It ends where
 * anything is out of the ordinary. @large: in: gigabytes are left to hpmmap_entry_1g(); out: it ended
 * before one.
 *
 * Returns the end of what is committed and mapped.
 */
unsigned long hpmmap_entry_run(struct hpmmap_ctx *ctx, struct vm_area_struct *vma, unsigned long start,
			       unsigned long end, struct list_head *blocks, bool *large)
{
	XA_STATE(xas, &ctx->store.blocks, slot_of(start));
	struct folio *folio = NULL;
	unsigned long addr, stop, nr = 0;
	unsigned int made = 0;
	pmd_t *pmdp = NULL;
	bool shared, inserted, gigabytes = ctx->job->gigabytes, whole = *large && gigabytes;

	lockdep_assert_held(&ctx->ops);
	lockdep_assert_held(&ctx->mm->mmap_lock);
	/* Others want the lock, too. */
	stop = min(end, start + RUN_SLOTS * SLOT_SIZE);
	*large = false;
	mutex_lock(&ctx->lock);
	shared = xa_marked(&ctx->store.blocks, SLOT_SHARED);
	for (addr = start; addr < stop; addr += SLOT_SIZE) {
		struct hpmmap_block *block;

		if (fatal_signal_pending(current))
			break;
		/* It may be split at any time: then there is a table, of its own. */
		if (gigabytes && hpmmap_gigabyte_is_done(vma, addr)) {
			pmdp = NULL;
			continue;
		}
		*large = whole && !(addr & ~PUD_MASK) && end - addr >= PUD_SIZE &&
			 run_gigabyte(ctx, vma, addr, &xas, blocks);
		if (*large)
			break;
		if (!pmdp || !(addr & ~PUD_MASK))
			pmdp = hpmmap_pgmap_pmd(ctx->mm, addr);
		else
			pmdp++;
		if (!pmdp)
			break;
		if (!pmd_none(READ_ONCE(*pmdp))) {
			if (hpmmap_pgmap_is_done(vma, pmdp))
				continue;
			break;
		}
		/* Looked up as mappable() does, for many slots. */
		block = run_block(ctx, &xas, slot_of(addr), shared, blocks);
		HPMMAP_ASSERT(!block || block == mappable(ctx, slot_of(addr), true));
		if (!block)
			break;
		if (!hpmmap_pages_are(block->stale, false))
			hpmmap_block_fill(&ctx->owner, block, 0, SLOT_PAGES);
		/* A fault may be clearing it. */
		folio_lock(block->folio);
		inserted = !hpmmap_block_is_hurt(block) &&
			   hpmmap_pgmap_insert_2m(vma, addr, pmdp, block->folio, true);
		folio_unlock(block->folio);
		if (!inserted)
			break;
		folio = block->folio;
		nr += SLOT_PAGES;
		/* To clear a block takes longer, and pauses. */
		hpmmap_every(&made, RUN_BATCH);
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

	/* Entries beside a mapping would never be taken away. */
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

/*
 * Maps what a read by the program would map, in an accessible mapping of ours. mmap_lock is
 * held.
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

/*
 * Maps what the store has for a part of one slot of an accessible mapping of ours. @nowait:
 * without waiting. Without memory for page tables, where a table is freed at the same time,
 * and where the slot is shared, the rest is left to later faults. mmap_lock is held,
 * ctx->lock is not.
 */
void hpmmap_entry_fill(struct hpmmap_ctx *ctx, struct vm_area_struct *vma,
		       unsigned long start, unsigned long end, bool nowait)
{
	unsigned int flags = fill_flags(vma);
	pmd_t *pmdp;

	lockdep_assert_held(&vma->vm_mm->mmap_lock);
	if (hpmmap_pgmap_slot(vma->vm_mm, start) == HPMMAP_ENTRY_1G)
		return;
	pmdp = hpmmap_pgmap_pmd(vma->vm_mm, start);
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

/*
 * Maps pages @first to @first + @nr of a slot, which are the block's own, where a fault is,
 * as far as its mapping goes: by entries of 4 KB, whatever the mapping covers; none without
 * a table for them. ctx->lock and mmap_lock are held.
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

/*
 * Maps what a fault in a mapping of ours is for. @around: also what is ready beside it,
 * where the slot cannot have one entry: the other pages would take a fault each. Not what
 * is locked, for only the core's path knows what mlock wants, nor what a userfaultfd
 * watches. ctx->lock and mmap_lock are held.
 *
 * Returns 0 if the fault has mapped it, VM_FAULT_NOPAGE (another task has meanwhile, or the
 * fault will come again), VM_FAULT_HWPOISON, VM_FAULT_OOM, or VM_FAULT_RETRY for one that
 * must not wait.
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

/*
 * Maps @nr pages of one slot, from the target's address @va on, at @addr of a window, by
 * entries of 4 KB; none without a table for them. All of it is in the table of the fault,
 * and committed where it is of the pools. @write: the entries allow writes. The target's
 * ctx->lock and the window's mmap_lock are held. Returns how many entries were made.
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

/*
 * Gives the right to write back for a slot that a mapping of ours covers. ctx->lock and
 * mmap_lock are held. Returns whether the entry was changed. The TLB may have the old one:
 * the program would take a fault for it.
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

/*
 * The same for a gigabyte from its first slot on, which @xas has, if all of it is mapped by one entry
 * and shared with nobody. @xas has its last slot then.
 */
static bool restore_gigabyte(struct hpmmap_ctx *ctx, struct vm_area_struct *vma,
			     struct xa_state *xas, unsigned long start, bool *flush)
{
	struct hpmmap_block *first = xas_load(xas), *block;
	XA_STATE(look, &ctx->store.blocks, xas->xa_index);
	unsigned long i;

	lockdep_assert_held(&ctx->lock);
	if (start & ~PUD_MASK || !first->folio)
		return false;
	for (i = 0, block = xas_load(&look); i < GIGABYTE_SLOTS; i++, block = xas_next(&look))
		if (!block || block->draft || hpmmap_block_is_shared(block))
			return false;
	/* As in is_alone(): what left a pin behind is not a sharer any more. */
	if (!hpmmap_gigabyte_is_alone(ctx->mm, start, first->folio))
		return false;
	for (i = 1, block = first;; i++, block = xas_next(xas)) {
		xas_clear_mark(xas, SLOT_SHARED);
		hpmmap_block_attach(block, ctx->file->f_mapping, xas->xa_index);
		if (i == GIGABYTE_SLOTS)
			break;
	}
	*flush |= hpmmap_gigabyte_unprotect(vma, start);
	return true;
}

/*
 * Slots that are not shared any more are written to in place again, from *slot on; out: where to
 * go on. @rest: out: @nr slots, HPMMAP_RESTORE_MOST at most, that are not shared and not done:
 * with a draft, which is the last, with pins, without one entry. @drafts: NULL, or out: there are
 * drafts that are not shared, which are left out. @flush: set if stale entries may have to be
 * flushed. ctx->lock and mmap_lock are held. Waits for no lock. Returns 1, or 0 if there are no
 * more marked slots.
 */
int hpmmap_entry_restore(struct hpmmap_ctx *ctx, unsigned long *slot,
			 unsigned long *rest, unsigned int *nr, bool *drafts,
			 bool *flush)
{
	XA_STATE(xas, &ctx->store.blocks, *slot);
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
		if (unlikely(hpmmap_gigabyte_find(ctx->mm, start))) {
			/* To split it sleeps. */
			if (!restore_gigabyte(ctx, vma, &xas, start, flush))
				goto rest;
			looks = 0;
			continue;
		}
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
