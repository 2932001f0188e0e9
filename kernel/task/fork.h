/* SPDX-License-Identifier: GPL-2.0 */
/* fork. */
#ifndef _HPMMAP_TASK_FORK_H
#define _HPMMAP_TASK_FORK_H

bool hpmmap_fork_child(struct task_struct *child);
pid_t hpmmap_kernel_clone(struct kernel_clone_args *args);
void hpmmap_fork_copied(struct list_head *events);

#endif /* _HPMMAP_TASK_FORK_H */
