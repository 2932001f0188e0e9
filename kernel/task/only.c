// SPDX-License-Identifier: GPL-2.0
/*
 * Which of the programs of a job are registered: those that a pattern matches. The
 * others are members without a context, so that what they start may be registered.
 */
#include <linux/binfmts.h>
#include <linux/glob.h>

#include "hpmmap.h"
#include "task/exec.h"

/* Strings one after the other, the last one ended by a second zero. */
static bool patterns_are_right(const char *patterns, u32 bytes)
{
	const char *end = patterns + bytes, *at;

	if (end[-1])
		return false;
	for (at = patterns; at < end; at += strlen(at) + 1)
		if (!*at)
			return false;
	return true;
}

/*
 * A copy of the patterns of a launch, @bytes in all with their zeros, with an empty string
 * behind the last one, to be freed by kfree(); NULL if there are none; or an errno of
 * HPMMAP_IOC_LAUNCH.
 */
char *hpmmap_only_get(u64 user, u32 bytes)
{
	char *patterns;

	if (!bytes)
		return user ? ERR_PTR(-EINVAL) : NULL;
	if (!user || bytes > HPMMAP_LAUNCH_ONLY_MAX_BYTES)
		return ERR_PTR(-EINVAL);
	patterns = kzalloc(bytes + 1, GFP_KERNEL_ACCOUNT);
	if (!patterns)
		return ERR_PTR(-ENOMEM);
	if (copy_from_user(patterns, u64_to_user_ptr(user), bytes)) {
		kfree(patterns);
		return ERR_PTR(-EFAULT);
	}
	if (!patterns_are_right(patterns, bytes)) {
		kfree(patterns);
		return ERR_PTR(-EINVAL);
	}
	return patterns;
}

static bool matches(const char *pattern, const char *path)
{
	return glob_match(pattern, strchr(pattern, '/') ? path : kbasename(path));
}

/*
 * Is a program to be registered? @patterns: as hpmmap_only_get() returned them, or NULL:
 * all are. A script is meant as well as its interpreter. May sleep, and takes milliseconds
 * for patterns made for that.
 */
bool hpmmap_only_wants(const char *patterns, const struct linux_binprm *bprm)
{
	const char *at;

	if (!patterns)
		return true;
	for (at = patterns; *at; at += strlen(at) + 1) {
		if (matches(at, bprm->filename) ||
		    (bprm->interp != bprm->filename && matches(at, bprm->interp)))
			return true;
		cond_resched();
	}
	return false;
}
