/* SPDX-License-Identifier: GPL-2.0 */
/* Entries of 1 GB. */
#ifndef _HPMMAP_AS_MAP_GIGABYTE_H
#define _HPMMAP_AS_MAP_GIGABYTE_H

/* Counts of processes that are not registered. */
enum hpmmap_gigabyte_count {
	HPMMAP_GIGABYTE_ENTRIES,
	HPMMAP_GIGABYTE_SPLITS,
	HPMMAP_GIGABYTE_JOINS,
	HPMMAP_GIGABYTE_NR_COUNTS
};

extern atomic_long_t hpmmap_gigabyte_counts[HPMMAP_GIGABYTE_NR_COUNTS];

/* Slots of one entry of 1 GB. */
#define GIGABYTE_SLOTS (PUD_SIZE >> SLOT_SHIFT)

int hpmmap_gigabytes_begin(void);
void hpmmap_gigabytes_exit(void);
const char *hpmmap_gigabytes_possible(void);

/*
 * Is it an entry of 1 GB? One that nobody may access (PROT_NONE) is not present, and is one all the
 * same.
 */
static inline bool hpmmap_is_gigabyte(pud_t pud)
{
#ifdef COMPAT_GIGABYTES
	return pud_leaf(pud);
#else
	return false;
#endif
}

pud_t *hpmmap_gigabyte_pud(struct mm_struct *mm, unsigned long addr);
pud_t *hpmmap_gigabyte_find(struct mm_struct *mm, unsigned long addr);
pud_t *hpmmap_gigabyte_lock(struct mm_struct *mm, unsigned long addr, spinlock_t **ptlp);
bool hpmmap_gigabyte_may(struct vm_area_struct *vma, unsigned long addr);
bool hpmmap_gigabyte_is_done(struct vm_area_struct *vma, unsigned long addr);
bool hpmmap_gigabyte_set(struct vm_area_struct *vma, unsigned long addr, struct folio *first,
			 struct address_space *mapping);
int hpmmap_gigabyte_join(struct hpmmap_ctx *ctx, struct vm_area_struct *vma, unsigned long addr,
			 bool fresh);
void hpmmap_gigabyte_unmap(struct address_space *mapping, loff_t start, loff_t len, int even_cows);
struct page *hpmmap_gigabyte_page(struct vm_area_struct *vma, unsigned long addr);
bool hpmmap_gigabyte_protect(struct mm_struct *mm, unsigned long addr);
bool hpmmap_gigabyte_is_alone(struct mm_struct *mm, unsigned long addr, struct folio *first);
bool hpmmap_gigabyte_unprotect(struct vm_area_struct *vma, unsigned long addr);
void hpmmap_gigabyte_split(struct vm_area_struct *vma, unsigned long addr);
void hpmmap_gigabyte_join_later(struct hpmmap_ctx *ctx);
void hpmmap_gigabytes_on_split(void (*fn)(struct mm_struct *mm));

#endif /* _HPMMAP_AS_MAP_GIGABYTE_H */
