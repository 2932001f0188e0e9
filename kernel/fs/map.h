/* SPDX-License-Identifier: GPL-2.0 */
/* Mappings of files of a mounted file system. */
#ifndef _HPMMAP_FS_MAP_H
#define _HPMMAP_FS_MAP_H

struct file;
struct vm_area_struct;

int hpmmap_fs_mmap(struct file *file, struct vm_area_struct *vma);

#endif /* _HPMMAP_FS_MAP_H */
