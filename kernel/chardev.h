/* SPDX-License-Identifier: GPL-2.0 */
/* /dev/hpmmap. */
#ifndef _HPMMAP_CHARDEV_H
#define _HPMMAP_CHARDEV_H

#include <linux/types.h>

int hpmmap_chardev_init(void);
void hpmmap_chardev_exit(void);
bool hpmmap_chardev_may_open(void);

#endif /* _HPMMAP_CHARDEV_H */
