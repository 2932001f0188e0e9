/* SPDX-License-Identifier: GPL-2.0 */
/* Entries of page tables for memory of a context. */
#ifndef _HPMMAP_AS_STORE_ENTRY_H
#define _HPMMAP_AS_STORE_ENTRY_H

/* Slots that hpmmap_entry_restore() looks at. */
#define HPMMAP_RESTORE_MOST 32

bool hpmmap_entry_2m(struct hpmmap_ctx *ctx, unsigned long slot,
		     struct vm_area_struct *vma, unsigned long addr, pmd_t *pmdp,
		     bool write);
unsigned long hpmmap_entry_run(struct hpmmap_ctx *ctx, struct vm_area_struct *vma,
			       unsigned long start, unsigned long end,
			       struct list_head *blocks, bool *large);
int hpmmap_entry_1g(struct hpmmap_ctx *ctx, struct vm_area_struct *vma, unsigned long addr);
void hpmmap_entry_fill(struct hpmmap_ctx *ctx, struct vm_area_struct *vma,
		       unsigned long start, unsigned long end, bool nowait);
void hpmmap_entry_fill_pages(struct hpmmap_ctx *ctx, struct vm_fault *vmf,
			     unsigned int first, unsigned int nr);
vm_fault_t hpmmap_entry_fault(struct hpmmap_ctx *ctx, struct vm_fault *vmf, bool around);
void hpmmap_entry_fault_in(struct vm_area_struct *vma, unsigned long addr);
unsigned int hpmmap_entry_window(struct hpmmap_ctx *ctx, unsigned long va,
				 struct vm_fault *vmf, unsigned long addr,
				 unsigned int nr, bool write);
bool hpmmap_entry_unprotect(struct hpmmap_ctx *ctx, struct vm_area_struct *vma,
			    unsigned long slot);
int hpmmap_entry_restore(struct hpmmap_ctx *ctx, unsigned long *slot,
			 unsigned long *rest, unsigned int *nr, bool *drafts,
			 bool *flush);

#endif /* _HPMMAP_AS_STORE_ENTRY_H */
