/* SPDX-License-Identifier: GPL-2.0 */
/* Files that no mount has. */
#ifndef _HPMMAP_FS_INTERNAL_H
#define _HPMMAP_FS_INTERNAL_H

#include <linux/types.h>

struct file;

struct file *hpmmap_fs_file(const char *name, loff_t size, bool private);
bool hpmmap_fs_is_internal(const struct file *file);

#endif /* _HPMMAP_FS_INTERNAL_H */
