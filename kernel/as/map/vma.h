/* SPDX-License-Identifier: GPL-2.0 */
/* Mappings of a context's file. */
#ifndef _HPMMAP_AS_MAP_VMA_H
#define _HPMMAP_AS_MAP_VMA_H

#include <linux/personality.h>

#include "as/own/ctx.h"
#include "as/map/file.h"

static inline bool hpmmap_vma_is_ours(const struct vm_area_struct *vma)
{
	return vma->vm_ops == hpmmap_vm_ops;
}

/*
 * Does a mapping show blocks, of its process, of another one (windows) or of a file? Its operations may
 * be those of System V's shared memory.
 */
static __always_inline bool hpmmap_vma_shows_blocks(const struct vm_area_struct *vma)
{
	const struct address_space_operations *ops =
		vma->vm_file ? vma->vm_file->f_mapping->a_ops : NULL;

	return vma->vm_flags & VM_MAYSHARE && (ops == &hpmmap_aops || ops == &hpmmap_fs_aops);
}

/*
 * Does each process map the files of a file system by entries of 1 GB? With pagesize=1G, which is mounted
 * when the functions of the core are redirected.
 */
static inline bool hpmmap_fs_is_1g(const struct super_block *sb)
{
	return sb->s_blocksize == PUD_SIZE;
}

/* The same for what a mapping shows. */
static inline bool hpmmap_vma_is_1g(const struct vm_area_struct *vma)
{
	return hpmmap_vma_shows_blocks(vma) && hpmmap_fs_is_1g(file_inode(vma->vm_file)->i_sb);
}

static inline bool hpmmap_vma_is_accessible(const struct vm_area_struct *vma)
{
	return vma->vm_flags & (VM_READ | VM_WRITE | VM_EXEC);
}

static inline unsigned long hpmmap_vma_prot(vm_flags_t vm_flags)
{
	return (vm_flags & VM_READ ? PROT_READ : 0) | (vm_flags & VM_WRITE ? PROT_WRITE : 0) |
	       (vm_flags & VM_EXEC ? PROT_EXEC : 0);
}

/*
 * A mapping that is made again, or moves, keeps its rights: READ_IMPLIES_EXEC is for new ones. Returns
 * the personality that the caller sets again afterwards.
 */
static inline unsigned int hpmmap_rights_keep(void)
{
	unsigned int was = current->personality;

	current->personality &= ~READ_IMPLIES_EXEC;
	return was;
}

#endif /* _HPMMAP_AS_MAP_VMA_H */
