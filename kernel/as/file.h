/* SPDX-License-Identifier: GPL-2.0 */
/* The file of a context. */
#ifndef _HPMMAP_AS_FILE_H
#define _HPMMAP_AS_FILE_H

#include <linux/types.h>

#include "as/ctx.h"

struct file;
struct vm_operations_struct;

extern const struct vm_operations_struct *hpmmap_vm_ops;

void hpmmap_file_init(const struct vm_operations_struct *ops);
struct file *hpmmap_file_alloc(void);
void hpmmap_file_put(struct hpmmap_ctx *ctx);
unsigned long hpmmap_file_map_named(struct hpmmap_ctx *ctx, enum hpmmap_name name,
			       unsigned long addr, unsigned long len,
			       unsigned long prot, unsigned long flags);
unsigned long hpmmap_vma_map(struct hpmmap_ctx *ctx, unsigned long addr,
			     unsigned long len, unsigned long prot,
			     unsigned long flags);
enum hpmmap_name hpmmap_file_name(const struct file *file);
void hpmmap_vma_own_file(struct hpmmap_ctx *ctx);

#endif /* _HPMMAP_AS_FILE_H */
