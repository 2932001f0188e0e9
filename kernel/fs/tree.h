/* SPDX-License-Identifier: GPL-2.0 */
/* Directories of a mounted file system, and what is in them. */
#ifndef _HPMMAP_FS_TREE_H
#define _HPMMAP_FS_TREE_H

#include "compat.h"

struct inode;
struct super_block;

struct inode *hpmmap_fs_new(struct super_block *sb, compat_idmap *idmap,
			    struct inode *dir, umode_t mode, dev_t dev);

#endif /* _HPMMAP_FS_TREE_H */
