/* SPDX-License-Identifier: GPL-2.0 */
/* Members: processes of a job; which programs are registered; the OOM killer. */
#ifndef _HPMMAP_TASK_EXEC_H
#define _HPMMAP_TASK_EXEC_H

#include <linux/nodemask.h>
#include <linux/types.h>

#include "uapi/hpmmap.h"

struct hpmmap_job;
struct kernel_clone_args;
struct linux_binprm;

bool hpmmap_is_member(void);
int hpmmap_probes_register(void);
void hpmmap_probes_unregister(void);
int hpmmap_launch(const struct hpmmap_launch *arg, const nodemask_t *nodes,
		  char *only, struct hpmmap_job **jobp);
int hpmmap_launch_marked(const struct hpmmap_launch *arg, bool gigabytes);
char *hpmmap_only_get(u64 user, u32 bytes);
bool hpmmap_only_wants(const char *patterns, const struct linux_binprm *bprm);
void hpmmap_mark_init(bool (*may)(void));
void hpmmap_mark_exit(void);
int hpmmap_oom_init(void);
void hpmmap_oom_exit(void);
void hpmmap_exec_begins(const struct linux_binprm *bprm);
pid_t hpmmap_clone(struct kernel_clone_args *args);

/* Whether flags of a launch or a mark want one block placed in two ways. */
static inline bool hpmmap_places_twice(u32 flags, u64 page_size)
{
	return flags & HPMMAP_LAUNCH_F_FIRST_TOUCH &&
	       (flags & HPMMAP_LAUNCH_F_INTERLEAVE ||
		page_size == HPMMAP_LARGE_BYTES);
}

#endif /* _HPMMAP_TASK_EXEC_H */
