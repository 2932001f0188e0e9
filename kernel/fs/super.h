/* SPDX-License-Identifier: GPL-2.0 */
/* Mounting file systems whose files are memory of the pools. */
#ifndef _HPMMAP_FS_SUPER_H
#define _HPMMAP_FS_SUPER_H

int hpmmap_fs_init(void);
void hpmmap_fs_exit(void);

#endif /* _HPMMAP_FS_SUPER_H */
