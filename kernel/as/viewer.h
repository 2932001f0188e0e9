/* SPDX-License-Identifier: GPL-2.0 */
/* Who has windows, as the kernel's notifiers see him. */
#ifndef _HPMMAP_AS_VIEWER_H
#define _HPMMAP_AS_VIEWER_H

#include <linux/types.h>

int hpmmap_viewer_begin(void);
bool hpmmap_viewers_see_linux(void);
void hpmmap_viewers_exit(void);

#endif /* _HPMMAP_AS_VIEWER_H */
