/* SPDX-License-Identifier: GPL-2.0 */
/* Files that are memory of the pools, for the floors above. */
#ifndef _HPMMAP_FS_FILES_H
#define _HPMMAP_FS_FILES_H

int hpmmap_fs_init(void);
void hpmmap_fs_exit(void);

/* Files that no mount has. */
struct file *hpmmap_fs_file(const char *name, loff_t size, bool private);
bool hpmmap_fs_is_internal(const struct file *file);

#endif /* _HPMMAP_FS_FILES_H */
