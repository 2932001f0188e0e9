// SPDX-License-Identifier: GPL-2.0
/*
 * Page tables: looking at them, and filling them.
 *
 * Entries of 2 MB are written here, with the reference, the reverse map and the counters
 * that the core's do_set_pmd() would give them, so that the core can undo them. So is what
 * a fork shares, which the core would map with the rights of its mapping. The rest is left
 * to the core's fault handler.
 */
#include <asm/pgalloc.h>

#include "hpmmap.h"
#include "mem/block/block.h"
#include "as/map/gigabyte.h"
#include "as/map/pgmap.h"
#include "as/map/vma.h"

/* The entry of 2 MB of an address in the table that the entry of its gigabyte has, or NULL. */
static pmd_t *in_table(pud_t *pudp, unsigned long addr)
{
	pud_t pud = pudp ? READ_ONCE(*pudp) : __pud(0);

	/* One of 1 GB may go at any moment. */
	return pud_none(pud) || pud_bad(pud) ? NULL : pmd_offset(&pud, addr);
}

/*
 * The entry of 2 MB that covers the slot of an address, or NULL where there is not even a table for
 * it. The entries of the slots of one gigabyte follow each other. mmap_lock is held. An entry of
 * 1 GB is split: hpmmap_pgmap_slot() only looks.
 */
pmd_t *hpmmap_pgmap_pmd(struct mm_struct *mm, unsigned long addr)
{
	pud_t *pudp = hpmmap_gigabyte_pud(mm, addr);

	mmap_assert_locked(mm);
	if (unlikely(pudp && hpmmap_is_gigabyte(READ_ONCE(*pudp)))) {
		struct vm_area_struct *vma = vma_lookup(mm, addr);

		/* Otherwise munmap(2) is about to remove it. */
		if (vma && hpmmap_vma_shows_blocks(vma))
			hpmmap_gigabyte_split(vma, addr);
	}
	return in_table(pudp, addr);
}

/* How a slot is mapped whose entry is known; NULL: there is not even a table for it. */
enum hpmmap_entry hpmmap_pgmap_kind(pmd_t *pmdp)
{
	pmd_t pmd;

	if (!pmdp)
		return HPMMAP_ENTRY_NONE;
	pmd = READ_ONCE(*pmdp);
	if (pmd_none(pmd))
		return HPMMAP_ENTRY_NONE;
	return pmd_leaf(pmd) ? HPMMAP_ENTRY_2M : HPMMAP_ENTRY_TABLE;
}

/* How the slot of an address is mapped. mmap_lock is held. */
enum hpmmap_entry hpmmap_pgmap_slot(struct mm_struct *mm, unsigned long addr)
{
	pud_t *pudp = hpmmap_gigabyte_pud(mm, addr);

	mmap_assert_locked(mm);
	if (unlikely(pudp && hpmmap_is_gigabyte(READ_ONCE(*pudp))))
		return HPMMAP_ENTRY_1G;
	return hpmmap_pgmap_kind(in_table(pudp, addr));
}

/*
 * Tables of 4 KB entries.
 *
 * Those of 2 MB entries, and all above, stay below a mapping while mmap_lock is
 * held. Not so these: where CONFIG_PT_RECLAIM is set, MADV_DONTNEED frees one
 * that is empty, under mmap_lock for reading, if it does not go through our
 * hook. A table is freed with its lock held, after an RCU grace period.
 */

/* A table's first entry of interest, under rcu_read_lock(); NULL without one. */
pte_t *hpmmap_pgmap_peek(pmd_t *pmdp, unsigned long addr, pmd_t *pmd)
{
	*pmd = READ_ONCE(*pmdp);
	if (!pmd_present(*pmd) || pmd_leaf(*pmd) || pmd_bad(*pmd))
		return NULL;
	return pte_offset_kernel(pmd, addr);
}

/* The same with the lock of the table held, which keeps it where it is. */
pte_t *hpmmap_pgmap_table_lock(struct mm_struct *mm, pmd_t *pmdp, unsigned long addr,
			       spinlock_t **ptlp)
{
	pmd_t pmd;
	pte_t *ptep;

	rcu_read_lock();
	while ((ptep = hpmmap_pgmap_peek(pmdp, addr, &pmd))) {
		*ptlp = pte_lockptr(mm, &pmd);
		spin_lock(*ptlp);
		if (likely(pmd_same(pmd, READ_ONCE(*pmdp))))
			break;
		spin_unlock(*ptlp);
	}
	rcu_read_unlock();
	return ptep;
}

/* Is a slot mapped by one entry, as its mapping allows? mmap_lock is held. */
bool hpmmap_pgmap_is_done(struct vm_area_struct *vma, pmd_t *pmdp)
{
	pmd_t pmd = READ_ONCE(*pmdp);

	lockdep_assert_held(&vma->vm_mm->mmap_lock);
	return !pmd_none(pmd) && pmd_leaf(pmd) && (pmd_write(pmd) || !(vma->vm_flags & VM_WRITE));
}

/*
 * Maps a block, which stays in the slot now, by one entry. @vma: accessible, covers the whole
 * slot and is not locked; mmap_lock held. @pmdp: the slot's entry. @write: as the mapping
 * allows; otherwise read-only, also where the process wants no huge pages. The caller counts
 * it by compat_add_rss(), once for many. Returns false where there is something already, and where
 * the folio has as many references as it can count.
 */
bool hpmmap_pgmap_insert_2m(struct vm_area_struct *vma, unsigned long addr,
			    pmd_t *pmdp, struct folio *folio, bool write)
{
	pmd_t entry = pmd_mkhuge(pfn_pmd(folio_pfn(folio), vma->vm_page_prot));
	spinlock_t *ptl;
	bool none;

	lockdep_assert_held(&vma->vm_mm->mmap_lock);
	if (!IS_ENABLED(CONFIG_TRANSPARENT_HUGEPAGE))
		return false;
	/* As the core does it: written to sooner or later. */
	if (write && vma->vm_flags & VM_WRITE)
		entry = compat_pmd_mkwrite(pmd_mkdirty(entry));
	else if (!write)
		entry = pmd_wrprotect(entry);
	ptl = pmd_lock(vma->vm_mm, pmdp);
	none = pmd_none(*pmdp) && folio_ref_count(folio) > 0;
	if (none) {
		folio_get(folio);
		compat_add_rmap_2m(folio, vma);
		set_pmd_at(vma->vm_mm, addr, pmdp, entry);
	}
	spin_unlock(ptl);
	return none;
}

/*
 * Takes away the right to write in @nr slots of one gigabyte, all of them covered by the
 * mapping; mmap_lock held for writing. Entries of 2 MB stay, read-only. They are clean, too:
 * the core would make dirty ones writable again when a userfaultfd ends its own protection.
 * The caller flushes the TLB.
 *
 * Returns how many of them, from the first on, are done; the next is mapped by entries of 4
 * KB, or a notifier keeps a copy of the page tables.
 */
unsigned int hpmmap_pgmap_protect_run(struct vm_area_struct *vma,
				      unsigned long start, unsigned int nr)
{
	struct mm_struct *mm = vma->vm_mm;
	spinlock_t *ptl;
	unsigned int i;
	pmd_t *pmdp;

	lockdep_assert_held(&vma->vm_mm->mmap_lock);
	if (mm_has_notifiers(mm))
		return 0;
	if (hpmmap_gigabyte_protect(mm, start)) {
		smp_mb();
		return nr;
	}
	pmdp = hpmmap_pgmap_pmd(mm, start);
	/* Nothing is mapped in all of the gigabyte. */
	if (!pmdp)
		return nr;
	/* The lock is that of the table. */
	ptl = pmd_lock(mm, pmdp);
	for (i = 0; i < nr; i++, pmdp++) {
		enum hpmmap_entry kind = hpmmap_pgmap_kind(pmdp);

		if (kind == HPMMAP_ENTRY_TABLE)
			break;
		if (kind == HPMMAP_ENTRY_2M)
			set_pmd_at(mm, start + i * SLOT_SIZE, pmdp,
				   pmd_mkclean(pmd_wrprotect(*pmdp)));
	}
	spin_unlock(ptl);
	/*
	 * A lockless pin takes a reference, then looks at the entry again: either it finds the
	 * entry changed, or the caller finds the reference.
	 */
	smp_mb();
	return i;
}

/* The same for one slot, whose entries of 4 KB go. A zap tells those that have a copy of the tables. */
void hpmmap_pgmap_protect(struct vm_area_struct *vma, unsigned long start)
{
	if (hpmmap_pgmap_protect_run(vma, start, 1))
		return;
	compat_zap(vma, start, SLOT_SIZE);
	smp_mb();
}

/*
 * Gives the right to write back, by the entry @pmdp of a slot that starts at @addr, if that
 * refers to @folio. A userfaultfd's own protection stays. mmap_lock is held. Returns
 * whether the entry was changed.
 */
bool hpmmap_pgmap_unprotect(struct vm_area_struct *vma, unsigned long addr,
			    pmd_t *pmdp, struct folio *folio)
{
	struct mm_struct *mm = vma->vm_mm;
	bool changed = false;
	spinlock_t *ptl;

	lockdep_assert_held(&vma->vm_mm->mmap_lock);
	if (!(vma->vm_flags & VM_WRITE))
		return false;
	ptl = pmd_lock(mm, pmdp);
	if (hpmmap_pgmap_kind(pmdp) == HPMMAP_ENTRY_2M && !pmd_write(*pmdp) &&
	    !compat_pmd_uffd_wp(*pmdp) && pmd_pfn(*pmdp) == folio_pfn(folio)) {
		set_pmd_at(mm, addr, pmdp, pmd_mkdirty(compat_pmd_mkwrite(*pmdp)));
		changed = true;
	}
	spin_unlock(ptl);
	return changed;
}

/*
 * Entries of a slot that refer to a folio; with the lock of its table held, or NULL in *ptlp where
 * there is none. Each has a reference as long as that is so. Where nothing is mapped munmap(2) may
 * be freeing the tables, and the entries before, with mmap_lock held for reading.
 */
static unsigned int count_locked(struct mm_struct *mm, unsigned long slot,
				 struct folio *folio, spinlock_t **ptlp)
{
	unsigned long addr = slot << SLOT_SHIFT, first = folio_pfn(folio);
	unsigned int i, nr = 0;
	pte_t *ptep, pte;
	pmd_t *pmdp;
	pud_t *pudp;

	*ptlp = NULL;
	if (!find_vma_intersection(mm, addr, addr + SLOT_SIZE))
		return 0;
	pudp = hpmmap_gigabyte_lock(mm, addr, ptlp);
	if (unlikely(pudp))
		return pud_pfn(*pudp) + ((addr & ~PUD_MASK) >> PAGE_SHIFT) == first;
	pmdp = hpmmap_pgmap_pmd(mm, addr);
	if (!pmdp)
		return 0;
	ptep = hpmmap_pgmap_table_lock(mm, pmdp, addr, ptlp);
	if (!ptep) {
		*ptlp = pmd_lock(mm, pmdp);
		return hpmmap_pgmap_kind(pmdp) == HPMMAP_ENTRY_2M && pmd_pfn(*pmdp) == first;
	}
	for (i = 0; i < SLOT_PAGES; i++) {
		pte = ptep_get(ptep + i);
		nr += pte_present(pte) && pte_pfn(pte) - first < SLOT_PAGES;
	}
	return nr;
}

/* How many entries of a slot refer to a folio. mmap_lock held. */
unsigned int hpmmap_pgmap_count(struct mm_struct *mm, unsigned long slot, struct folio *folio)
{
	spinlock_t *ptl;
	unsigned int nr = count_locked(mm, slot, folio, &ptl);

	if (ptl)
		spin_unlock(ptl);
	return nr;
}

/*
 * Is a block mapped by one entry of 2 MB, with no reference beside that and the module's?
 * mmap_lock held.
 */
bool hpmmap_pgmap_is_alone_2m(struct mm_struct *mm, pmd_t *pmdp, struct folio *folio)
{
	spinlock_t *ptl = pmd_lock(mm, pmdp);
	bool ret = hpmmap_pgmap_kind(pmdp) == HPMMAP_ENTRY_2M &&
		   pmd_pfn(*pmdp) == folio_pfn(folio) && folio_ref_count(folio) == 2;

	spin_unlock(ptl);
	return ret;
}

/*
 * References to a block beside the module's and those of one slot's entries. One that comes
 * or goes meanwhile is found: in doubt there is one more. mmap_lock is held.
 */
int hpmmap_pgmap_others(struct mm_struct *mm, unsigned long slot, struct folio *folio)
{
	int refs = folio_ref_count(folio) - 1;
	spinlock_t *ptl;

	if (!refs)
		return 0;
	refs = -count_locked(mm, slot, folio, &ptl);
	refs += folio_ref_count(folio) - 1;
	if (ptl)
		spin_unlock(ptl);
	return refs;
}

/* Would the core answer a fault in a mapping of ours by an entry of 2 MB? vmf->page is set. */
bool hpmmap_pgmap_is_2m(const struct vm_fault *vmf)
{
	unsigned long start = vmf->address & SLOT_MASK;

	return PageCompound(vmf->page) && pmd_none(READ_ONCE(*vmf->pmd)) &&
	       vmf->vma->vm_start <= start && vmf->vma->vm_end - SLOT_SIZE >= start &&
	       compat_vma_maps_2m(vmf->vma);
}

/* The table that the core has allocated for a fault, put where it belongs. */
static void install_table(struct vm_fault *vmf)
{
	struct mm_struct *mm = vmf->vma->vm_mm;
	spinlock_t *ptl;

	if (!pmd_none(READ_ONCE(*vmf->pmd)) || !vmf->prealloc_pte)
		return;
	ptl = pmd_lock(mm, vmf->pmd);
	if (pmd_none(*vmf->pmd)) {
		mm_inc_nr_ptes(mm);
		/* A lockless walk finds it empty, not as it was. */
		smp_wmb();
		pmd_populate(mm, vmf->pmd, vmf->prealloc_pte);
		vmf->prealloc_pte = NULL;
	}
	spin_unlock(ptl);
}

/* The entry for a page in a window, which permits writes or not. */
static pte_t window_entry(const struct vm_area_struct *vma, struct page *page, bool write)
{
	pte_t entry = mk_pte(page, vma->vm_page_prot);

	return write ? compat_pte_mkwrite(pte_mkdirty(entry)) : pte_wrprotect(entry);
}

/* For pages of one folio of a block, which is locked. */
static unsigned int insert_run_locked(struct vm_fault *vmf, unsigned long addr,
				      struct hpmmap_block *block, unsigned int first,
				      unsigned int nr, bool write)
{
	struct page *page = hpmmap_block_page(block, first);
	struct folio *folio = page_folio(page);
	struct vm_area_struct *vma = vmf->vma;
	unsigned int i, made = 0;
	spinlock_t *ptl;
	pte_t *ptep;

	if (unlikely(hpmmap_block_is_hurt(block)))
		return 0;
	ptep = hpmmap_pgmap_table_lock(vma->vm_mm, vmf->pmd, addr, &ptl);
	for (i = 0; ptep && i < nr; i++) {
		if (!pte_none(ptep_get(ptep + i)) || folio_ref_count(folio) <= 0)
			continue;
		folio_get(folio);
		compat_add_rmap_4k(folio, page + i, 1, vma);
		set_pte_at(vma->vm_mm, addr + i * PAGE_SIZE, ptep + i,
			   window_entry(vma, page + i, write));
		made++;
	}
	if (ptep)
		spin_unlock(ptl);
	if (made)
		compat_add_rss(vma->vm_mm, folio, made);
	return made;
}

static unsigned int insert_run(struct vm_fault *vmf, unsigned long addr,
			       struct hpmmap_block *block, unsigned int first,
			       unsigned int nr, bool write)
{
	struct folio *folio = page_folio(hpmmap_block_page(block, first));
	unsigned int made;

	folio_lock(folio);
	made = insert_run_locked(vmf, addr, block, first, nr, write);
	folio_unlock(folio);
	return made;
}

/*
 * Maps @nr pages of a block from @first on in a window, by entries of 4 KB; none without a
 * table for them. @addr: where; in the table of the fault, as is all of it. The block is
 * not exchanged now, and pages of the pools are committed. @write: the entries allow
 * writes. Returns how many entries were made: none, too, for a folio with as many references as it can count.
 */
unsigned int hpmmap_pgmap_insert_pages(struct vm_fault *vmf, unsigned long addr,
				       struct hpmmap_block *block, unsigned int first,
				       unsigned int nr, bool write)
{
	unsigned int made = 0;

	lockdep_assert_held(&vmf->vma->vm_mm->mmap_lock);
	install_table(vmf);
	if (block->folio)
		return insert_run(vmf, addr, block, first, nr, write);
	/* Of Linux's memory, there may be only some pages. */
	for (; nr; nr--, first++, addr += PAGE_SIZE)
		if (!test_bit_acquire(first, block->stale))
			made += insert_run(vmf, addr, block, first, 1, write);
	return made;
}

/*
 * The same for a block of the pools whose folio is locked, none of whose pages is stale, in
 * a mapping of a file.
 */
void hpmmap_pgmap_insert_locked(struct vm_fault *vmf, unsigned long addr,
				struct hpmmap_block *block, unsigned int first,
				unsigned int nr, bool write)
{
	lockdep_assert_held(&vmf->vma->vm_mm->mmap_lock);
	install_table(vmf);
	insert_run_locked(vmf, addr, block, first, nr, write);
}

/*
 * A fault is to be answered by an entry of 4 KB, whatever the core would do. False where there
 * is no table for it.
 */
bool hpmmap_pgmap_table(struct vm_fault *vmf)
{
	install_table(vmf);
	return !pmd_none(READ_ONCE(*vmf->pmd));
}

/*
 * Maps a page of Linux in a window, without a reference: a notifier tells when the page is
 * gone. May be called with a spinlock held. Returns false without a table for it.
 */
bool hpmmap_pgmap_insert_special(struct vm_fault *vmf, struct page *page, bool write)
{
	struct vm_area_struct *vma = vmf->vma;
	unsigned long addr = vmf->address & PAGE_MASK;
	spinlock_t *ptl;
	pte_t *ptep;

	lockdep_assert_held(&vma->vm_mm->mmap_lock);
	install_table(vmf);
	ptep = hpmmap_pgmap_table_lock(vma->vm_mm, vmf->pmd, addr, &ptl);
	if (!ptep)
		return false;
	if (pte_none(ptep_get(ptep)))
		set_pte_at(vma->vm_mm, addr, ptep, pte_mkspecial(window_entry(vma, page, write)));
	spin_unlock(ptl);
	return true;
}
