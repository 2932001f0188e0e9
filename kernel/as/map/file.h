/* SPDX-License-Identifier: GPL-2.0 */
/* The file of a context. */
#ifndef _HPMMAP_AS_MAP_FILE_H
#define _HPMMAP_AS_MAP_FILE_H

#include "as/own/ctx.h"

/* What mappings of the files do, which lies above them. */
extern const struct vm_operations_struct *hpmmap_vm_ops;

/* Of contexts and windows, and of hpmmapfs: whose mappings show blocks. */
extern const struct address_space_operations hpmmap_aops, hpmmap_fs_aops;

/* Of a stack, what has memory before it is touched. */
#define STACK_GIVEN_BYTES (128UL << 10)

/*
 * Where the part of a stack begins that has memory at once. Slots are given as a whole. Those
 * below get their blocks when they are touched, by one fault each: most stacks never grow that
 * far.
 */
static inline unsigned long hpmmap_stack_given(unsigned long start, unsigned long end)
{
	return max(start, (end - STACK_GIVEN_BYTES) & SLOT_MASK);
}

struct file *hpmmap_file_alloc(void);
void hpmmap_file_put(struct hpmmap_ctx *ctx);
struct file *hpmmap_file_window(const struct file_operations *fops, struct address_space *mapping);
void hpmmap_file_window_end(void);
int hpmmap_file_window_mapping(struct address_space *mapping);
void hpmmap_file_mapping_init(struct address_space *mapping,
			      const struct address_space_operations *ops);
unsigned long hpmmap_file_map_named(struct hpmmap_ctx *ctx, enum hpmmap_name name,
			       unsigned long addr, unsigned long len,
			       unsigned long prot, unsigned long flags);
unsigned long hpmmap_vma_map(struct hpmmap_ctx *ctx, unsigned long addr,
			     unsigned long len, unsigned long prot,
			     unsigned long flags);
enum hpmmap_name hpmmap_file_name(const struct file *file);
bool hpmmap_vma_is_stack(const struct hpmmap_ctx *ctx, const struct vm_area_struct *vma);
bool hpmmap_vma_grows(const struct hpmmap_ctx *ctx, const struct vm_area_struct *vma);
unsigned long hpmmap_vma_given(const struct hpmmap_ctx *ctx, const struct vm_area_struct *vma);
const char *hpmmap_vma_dump_name(struct vm_area_struct *vma);
void hpmmap_vma_own_file(struct hpmmap_ctx *ctx);
int hpmmap_vmops_init(void);

#endif /* _HPMMAP_AS_MAP_FILE_H */
