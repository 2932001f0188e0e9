/* SPDX-License-Identifier: GPL-2.0 */
/* The OOM killer. */
#ifndef _HPMMAP_TASK_OOM_H
#define _HPMMAP_TASK_OOM_H

int hpmmap_oom_init(void);
void hpmmap_oom_exit(void);

#endif /* _HPMMAP_TASK_OOM_H */
