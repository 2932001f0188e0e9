/* SPDX-License-Identifier: GPL-2.0 */
/* Mappings of a context's file. */
#ifndef _HPMMAP_AS_VMA_H
#define _HPMMAP_AS_VMA_H

#include <linux/mm.h>

#include "as/ctx.h"

struct hpmmap_block;

extern const struct vm_operations_struct hpmmap_vm_ops;
struct file *hpmmap_file_alloc(void);
void hpmmap_file_put(struct hpmmap_ctx *ctx);
static inline bool hpmmap_vma_is_ours(const struct vm_area_struct *vma)
{
	return vma->vm_ops == &hpmmap_vm_ops;
}

static inline bool hpmmap_vma_is_accessible(const struct vm_area_struct *vma)
{
	return vma->vm_flags & (VM_READ | VM_WRITE | VM_EXEC);
}

static inline unsigned long hpmmap_vma_prot(vm_flags_t vm_flags)
{
	return (vm_flags & VM_READ ? PROT_READ : 0) |
	       (vm_flags & VM_WRITE ? PROT_WRITE : 0) |
	       (vm_flags & VM_EXEC ? PROT_EXEC : 0);
}

unsigned long hpmmap_vma_count_missing(struct hpmmap_ctx *ctx,
				       unsigned long start, unsigned long end,
				       unsigned long *unreserved);
void hpmmap_vma_commit(struct hpmmap_ctx *ctx, unsigned long start,
		       unsigned long end, struct list_head *blocks);
void hpmmap_vma_repair(struct hpmmap_ctx *ctx, unsigned long start,
		       unsigned long end);
long hpmmap_vma_wipe_on_fork(struct hpmmap_ctx *ctx, unsigned long start,
			     unsigned long end, bool wipe);
void hpmmap_vma_slot_owned(struct hpmmap_ctx *ctx, unsigned long slot,
			   struct hpmmap_block *block);
bool hpmmap_vma_remap_slot(struct hpmmap_ctx *ctx, unsigned long slot,
			   struct hpmmap_block *block);
bool hpmmap_vma_restore_slot(struct hpmmap_ctx *ctx, unsigned long slot,
			     struct hpmmap_block *block);
/* The slots that a range begins and ends in. */
#define HPMMAP_END_FIRST	BIT(0)
#define HPMMAP_END_LAST		BIT(1)
unsigned int hpmmap_vma_intact_ends(struct hpmmap_ctx *ctx, unsigned long start,
				    unsigned long end);
void hpmmap_vma_repair_ends(struct hpmmap_ctx *ctx, unsigned long start,
			    unsigned long end, unsigned int intact);
void hpmmap_vma_range_changed(struct hpmmap_ctx *ctx, unsigned long start,
			      unsigned long end);
unsigned long hpmmap_vma_map(struct hpmmap_ctx *ctx, unsigned long addr,
			     unsigned long len, unsigned long prot,
			     unsigned long flags);
void hpmmap_vma_own_file(struct hpmmap_ctx *ctx);
unsigned long hpmmap_vma_find_hole(unsigned long hint, unsigned long len,
				   unsigned long flags, unsigned long align,
				   unsigned long phase);

#endif /* _HPMMAP_AS_VMA_H */
