/* SPDX-License-Identifier: GPL-2.0 */
/* Mappings of a context's file. */
#ifndef _HPMMAP_AS_MAP_VMA_H
#define _HPMMAP_AS_MAP_VMA_H

#include <linux/mm.h>

#include "as/own/ctx.h"
#include "as/map/file.h"

static inline bool hpmmap_vma_is_ours(const struct vm_area_struct *vma)
{
	return vma->vm_ops == hpmmap_vm_ops;
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

#endif /* _HPMMAP_AS_MAP_VMA_H */
