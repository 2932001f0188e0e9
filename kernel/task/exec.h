/* SPDX-License-Identifier: GPL-2.0 */
/* Members: processes of a job; which programs are registered; the OOM killer. */
#ifndef _HPMMAP_TASK_EXEC_H
#define _HPMMAP_TASK_EXEC_H

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

/*
 * Whether a launch or a mark wants one block placed in two ways, or a region that cannot be:
 * memory that waits for its first touch is not laid out.
 */
static inline bool hpmmap_launch_contradicts(const struct hpmmap_launch *arg)
{
	u64 page_size = arg->page_size ?: HPMMAP_BLOCK_BYTES;

	return arg->static_bytes & (page_size - 1) ||
	       arg->static_bytes > HPMMAP_LAUNCH_STATIC_MAX_BYTES ||
	       arg->nr_regions > HPMMAP_LAUNCH_MAX_REGIONS || !arg->nr_regions != !arg->regions ||
	       (arg->flags & HPMMAP_LAUNCH_F_FIRST_TOUCH &&
		(arg->flags & HPMMAP_LAUNCH_F_INTERLEAVE || arg->static_bytes || arg->nr_regions ||
		 page_size == HPMMAP_LARGE_BYTES));
}

#endif /* _HPMMAP_TASK_EXEC_H */
