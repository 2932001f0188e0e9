/* SPDX-License-Identifier: GPL-2.0 */
/* Shared memory without a name that becomes Linux's. */
#ifndef _HPMMAP_CALL_BECOME_H
#define _HPMMAP_CALL_BECOME_H

#include <linux/types.h>

struct file;

bool hpmmap_become_linux(unsigned int fd);
int hpmmap_range_becomes_linux(unsigned long start, unsigned long end, bool zeros);

#endif /* _HPMMAP_CALL_BECOME_H */
