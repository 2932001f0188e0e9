/* SPDX-License-Identifier: GPL-2.0 */
/* Files of a mounted file system. */
#ifndef _HPMMAP_FS_FILE_H
#define _HPMMAP_FS_FILE_H

struct inode;

void hpmmap_fs_file_init(struct inode *inode);

#endif /* _HPMMAP_FS_FILE_H */
