/* SPDX-License-Identifier: GPL-2.0 */
/* fork. */
#ifndef _HPMMAP_TASK_FORK_H
#define _HPMMAP_TASK_FORK_H

#include <linux/types.h>

struct hpmmap_ctx;
struct task_struct;
struct vm_area_struct;

void hpmmap_fork_open(struct vm_area_struct *vma);
void hpmmap_fork_copies(struct hpmmap_ctx *parent, struct vm_area_struct *vma);
bool hpmmap_fork_child(struct task_struct *child);

#endif /* _HPMMAP_TASK_FORK_H */
