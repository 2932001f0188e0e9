/* SPDX-License-Identifier: GPL-2.0 */
/* Marked programs. */
#ifndef _HPMMAP_TASK_MARK_H
#define _HPMMAP_TASK_MARK_H

void hpmmap_mark_init(bool (*may)(void));
void hpmmap_mark_exit(void);

#endif /* _HPMMAP_TASK_MARK_H */
