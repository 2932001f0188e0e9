// SPDX-License-Identifier: GPL-2.0
/*
 * Page tables: looking at them, and having the core fill them.
 *
 * Entries are installed by the core's own fault path, which takes the
 * references and does the accounting; nothing here writes an entry.
 */
#include <linux/mm.h>
#include <linux/pgtable.h>

#include "hpmmap.h"

/* The entry that covers a slot, or NULL where there is not even a table. */
static pmd_t *slot_pmd(struct mm_struct *mm, unsigned long addr)
{
	pgd_t *pgd;
	p4d_t *p4d;
	pud_t *pud;

	mmap_assert_locked(mm);
	pgd = pgd_offset(mm, addr);
	if (pgd_none(*pgd) || pgd_bad(*pgd))
		return NULL;
	p4d = p4d_offset(pgd, addr);
	if (p4d_none(*p4d) || p4d_bad(*p4d))
		return NULL;
	pud = pud_offset(p4d, addr);
	if (pud_none(*pud) || pud_bad(*pud))
		return NULL;
	return pmd_offset(pud, addr);
}

static enum hpmmap_entry pmd_kind(pmd_t *pmdp)
{
	pmd_t pmd;

	if (!pmdp)
		return HPMMAP_ENTRY_NONE;
	pmd = READ_ONCE(*pmdp);
	if (pmd_none(pmd))
		return HPMMAP_ENTRY_NONE;
	return pmd_leaf(pmd) ? HPMMAP_ENTRY_2M : HPMMAP_ENTRY_TABLE;
}

/**
 * hpmmap_pgmap_slot() - how a slot is mapped
 * @mm: address space, its mmap_lock held
 * @addr: an address in the slot
 */
enum hpmmap_entry hpmmap_pgmap_slot(struct mm_struct *mm, unsigned long addr)
{
	return pmd_kind(slot_pmd(mm, addr));
}

/* Entries of a table stay where they are while mmap_lock is held. */
static bool page_is_mapped(struct mm_struct *mm, unsigned long addr)
{
	pmd_t *pmdp = slot_pmd(mm, addr);

	switch (pmd_kind(pmdp)) {
	case HPMMAP_ENTRY_2M:
		return true;
	case HPMMAP_ENTRY_TABLE:
		return !pte_none(READ_ONCE(*pte_offset_kernel(pmdp, addr)));
	default:
		return false;
	}
}

/**
 * hpmmap_pgmap_fill() - map what the store has for a part of one slot
 * @vma: accessible mapping of ours; mmap_lock held
 * @start: first address
 * @end: end, in the same slot
 *
 * Without memory for page tables the rest is left to later faults.
 */
void hpmmap_pgmap_fill(struct vm_area_struct *vma, unsigned long start,
		       unsigned long end)
{
	/* As if from outside: the caller's protection keys do not matter. */
	unsigned int flags = FAULT_FLAG_REMOTE;
	unsigned long addr = start;

	if (vma->vm_flags & VM_WRITE)
		flags |= FAULT_FLAG_WRITE;
	while (addr < end) {
		if (hpmmap_pgmap_slot(vma->vm_mm, addr) == HPMMAP_ENTRY_2M)
			return;
		if (!page_is_mapped(vma->vm_mm, addr) &&
		    handle_mm_fault(vma, addr, flags, NULL) & VM_FAULT_ERROR)
			return;
		addr += PAGE_SIZE;
	}
}

static unsigned long count_ptes(pmd_t *pmdp, unsigned long start,
				unsigned long end)
{
	unsigned long addr, n = 0;

	for (addr = start; addr < end; addr += PAGE_SIZE)
		if (pte_present(READ_ONCE(*pte_offset_kernel(pmdp, addr))))
			n++;
	return n << PAGE_SHIFT;
}

/**
 * hpmmap_pgmap_count() - how much is mapped by which entries
 * @mm: address space, its mmap_lock held
 * @bytes_2m: out
 * @bytes_4k: out
 */
void hpmmap_pgmap_count(struct mm_struct *mm, unsigned long *bytes_2m,
			unsigned long *bytes_4k)
{
	struct vm_area_struct *vma;
	unsigned long addr, next;
	VMA_ITERATOR(vmi, mm, 0);

	*bytes_2m = 0;
	*bytes_4k = 0;
	for_each_vma(vmi, vma) {
		if (!hpmmap_vma_is_ours(vma))
			continue;
		for (addr = vma->vm_start; addr < vma->vm_end; addr = next) {
			pmd_t *pmdp = slot_pmd(mm, addr);

			next = min(vma->vm_end, (addr & SLOT_MASK) + SLOT_SIZE);
			switch (pmd_kind(pmdp)) {
			case HPMMAP_ENTRY_2M:
				*bytes_2m += next - addr;
				break;
			case HPMMAP_ENTRY_TABLE:
				*bytes_4k += count_ptes(pmdp, addr, next);
				break;
			case HPMMAP_ENTRY_NONE:
				break;
			}
		}
	}
}
