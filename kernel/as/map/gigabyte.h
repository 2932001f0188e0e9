/* SPDX-License-Identifier: GPL-2.0 */
/* Entries of 1 GB. */
#ifndef _HPMMAP_AS_MAP_GIGABYTE_H
#define _HPMMAP_AS_MAP_GIGABYTE_H

#include <linux/mm.h>

/* Slots of one entry of 1 GB. */
#define GIGABYTE_SLOTS (PUD_SIZE >> SLOT_SHIFT)

int hpmmap_gigabytes_begin(void);
void hpmmap_gigabytes_exit(void);
const char *hpmmap_gigabytes_possible(void);

pud_t *hpmmap_gigabyte_find(struct mm_struct *mm, unsigned long addr);
bool hpmmap_gigabyte_may(struct vm_area_struct *vma, unsigned long addr);
bool hpmmap_gigabyte_is_done(struct vm_area_struct *vma, unsigned long addr);
bool hpmmap_gigabyte_set(struct vm_area_struct *vma, unsigned long addr, struct folio *first);
bool hpmmap_gigabyte_protect(struct mm_struct *mm, unsigned long addr);
bool hpmmap_gigabyte_is_alone(struct mm_struct *mm, unsigned long addr, struct folio *first);
bool hpmmap_gigabyte_unprotect(struct vm_area_struct *vma, unsigned long addr);
bool hpmmap_gigabyte_join(struct vm_area_struct *vma, unsigned long addr, struct folio *first);
void hpmmap_gigabytes_drop(struct vm_area_struct *vma, unsigned long start, unsigned long end);
void hpmmap_gigabyte_split(struct vm_area_struct *vma, unsigned long addr);

#endif /* _HPMMAP_AS_MAP_GIGABYTE_H */
