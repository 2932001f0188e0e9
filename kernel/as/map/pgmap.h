/* SPDX-License-Identifier: GPL-2.0 */
/* Page tables of our mappings. */
#ifndef _HPMMAP_AS_MAP_PGMAP_H
#define _HPMMAP_AS_MAP_PGMAP_H

/* How a slot is mapped. */
enum hpmmap_entry {
	HPMMAP_ENTRY_NONE,	/* nothing, not even a table of 4 KB entries */
	HPMMAP_ENTRY_TABLE,	/* a table of 4 KB entries */
	HPMMAP_ENTRY_2M,	/* one 2 MB entry */
	HPMMAP_ENTRY_1G,	/* an entry of 1 GB */
};

enum hpmmap_entry hpmmap_pgmap_kind(pmd_t *pmdp);
pte_t *hpmmap_pgmap_peek(pmd_t *pmdp, unsigned long addr, pmd_t *pmd);
pte_t *hpmmap_pgmap_table_lock(struct mm_struct *mm, pmd_t *pmdp, unsigned long addr,
			       spinlock_t **ptlp);
enum hpmmap_entry hpmmap_pgmap_slot(struct mm_struct *mm, unsigned long addr);
bool hpmmap_pgmap_is_2m(const struct vm_fault *vmf);
unsigned int hpmmap_pgmap_insert_pages(struct vm_fault *vmf, unsigned long addr,
				       struct hpmmap_block *block, unsigned int first,
				       unsigned int nr, bool write);
void hpmmap_pgmap_insert_locked(struct vm_fault *vmf, unsigned long addr,
				struct hpmmap_block *block, unsigned int first,
				unsigned int nr, bool write);
bool hpmmap_pgmap_table(struct vm_fault *vmf);
bool hpmmap_pgmap_insert_special(struct vm_fault *vmf, struct page *page, bool write);
pmd_t *hpmmap_pgmap_pmd(struct mm_struct *mm, unsigned long addr);
bool hpmmap_pgmap_is_done(struct vm_area_struct *vma, pmd_t *pmdp);
bool hpmmap_pgmap_insert_2m(struct vm_area_struct *vma, unsigned long addr,
			    pmd_t *pmdp, struct folio *folio, bool write);
void hpmmap_pgmap_protect(struct vm_area_struct *vma, unsigned long start);
unsigned int hpmmap_pgmap_protect_run(struct vm_area_struct *vma,
				      unsigned long start, unsigned int nr);
bool hpmmap_pgmap_unprotect(struct vm_area_struct *vma, unsigned long addr,
			    pmd_t *pmdp, struct folio *folio);
unsigned int hpmmap_pgmap_count(struct mm_struct *mm, unsigned long slot, struct folio *folio);
bool hpmmap_pgmap_is_alone_2m(struct mm_struct *mm, pmd_t *pmdp, struct folio *folio);
int hpmmap_pgmap_others(struct mm_struct *mm, unsigned long slot, struct folio *folio);

#endif /* _HPMMAP_AS_MAP_PGMAP_H */
