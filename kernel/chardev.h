/* SPDX-License-Identifier: GPL-2.0 */
/* /dev/hpmmap and /dev/xpmem. */
#ifndef _HPMMAP_CHARDEV_H
#define _HPMMAP_CHARDEV_H

int hpmmap_chardev_init(void);
void hpmmap_chardev_exit(void);
bool hpmmap_chardev_may_open(void);
int hpmmap_xpmem_init(void);
void hpmmap_xpmem_exit(void);

#endif /* _HPMMAP_CHARDEV_H */
