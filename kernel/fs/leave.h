/* SPDX-License-Identifier: GPL-2.0 */
/* Files whose contents go to one of Linux. */
#ifndef _HPMMAP_FS_LEAVE_H
#define _HPMMAP_FS_LEAVE_H

#include <linux/mm.h>

struct address_space;
struct file;
struct inode;

int hpmmap_fs_thaws(void);
vm_fault_t hpmmap_fs_thaw_wait(struct vm_fault *vmf, int seen);
bool hpmmap_fs_is_frozen(struct inode *inode);
int hpmmap_fs_freeze(struct inode *inode);
void hpmmap_fs_thaw(struct inode *inode);
int hpmmap_fs_copy(struct file *file, struct address_space *to, unsigned long refs, bool zeros);

#endif /* _HPMMAP_FS_LEAVE_H */
