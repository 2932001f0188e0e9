/* SPDX-License-Identifier: GPL-2.0 */
/* What /sys/kernel/hpmmap/shared shows. */
#ifndef _HPMMAP_FS_SHOW_H
#define _HPMMAP_FS_SHOW_H

int hpmmap_fs_show_init(void);
void hpmmap_fs_show_exit(void);

#endif /* _HPMMAP_FS_SHOW_H */
