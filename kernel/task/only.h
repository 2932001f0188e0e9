/* SPDX-License-Identifier: GPL-2.0 */
/* Which of the programs of a job are registered. */
#ifndef _HPMMAP_TASK_ONLY_H
#define _HPMMAP_TASK_ONLY_H

#include <linux/types.h>

struct linux_binprm;

char *hpmmap_only_get(u64 user, u32 bytes);
bool hpmmap_only_wants(const char *patterns, const struct linux_binprm *bprm);

#endif /* _HPMMAP_TASK_ONLY_H */
