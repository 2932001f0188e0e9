// SPDX-License-Identifier: GPL-2.0
/* The cgroup of a batch job, and its limit and promise of pool memory. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "plugin.h"

#ifndef POOL_FILES
#define POOL_FILES HPMMAP_SYSFS_PATH "/nodes/node*/total_bytes"
#endif

#define SLICE "/system.slice/"
#define SCOPE "slurmstepd.scope"

/*
 * Returns the end of the scope of a slurmd in path, which follows SLICE: the scope of node's
 * slurmd, or of any if node is NULL. NULL: there is none.
 */
static char *behind_scope(char *path, const char *node)
{
	char *end = path + strcspn(path, "/");
	size_t length = end - path, own = strlen(SCOPE);

	if (length < own || strncmp(end - own, SCOPE, own))
		return NULL;
	length -= own;
	if (!length)
		return end;
	if (path[length - 1] != '_')
		return NULL;
	return !node || (strlen(node) == length - 1 && !strncmp(path, node, length - 1)) ? end : NULL;
}

/*
 * Returns the path in a line of /proc/PID/cgroup, cut after the job's own cgroup; NULL: it is not
 * in the job's cgroup.
 */
static const char *job_path(char *line, uint32_t job, const char *node)
{
	char name[32], *at = line + 3;
	size_t length;

	line[strcspn(line, "\n")] = '\0';
	/* ".." stands for a cgroup outside of this cgroup namespace. */
	if (strncmp(line, "0::" SLICE, strlen("0::" SLICE)) || strstr(line, "/.."))
		return NULL;
	at = behind_scope(at + strlen(SLICE), node);
	length = snprintf(name, sizeof(name), "/job_%u", job);
	if (!at || strncmp(at, name, length) || (at[length] && at[length] != '/'))
		return NULL;
	at[length] = '\0';
	return line + 3;
}

/* Opens a directory of cgroup v2, and nothing else. */
static int open_cgroup(const char *path)
{
	int cgroup = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct statfs fs;

	if (cgroup < 0 || (!fstatfs(cgroup, &fs) && fs.f_type == CGROUP2_SUPER_MAGIC))
		return cgroup;
	close(cgroup);
	return -1;
}

int job_cgroup(pid_t pid, uint32_t job, const char *node)
{
	char name[64], line[4096], path[4200];
	const char *found = NULL;
	FILE *file;

	snprintf(name, sizeof(name), "/proc/%d/cgroup", pid);
	file = fopen(name, "re");
	if (!file)
		return -1;
	while (!found && fgets(line, sizeof(line), file))
		found = job_path(line, job, node);
	fclose(file);
	if (!found)
		return -1;
	snprintf(path, sizeof(path), CGROUPS "%s", found);
	return open_cgroup(path);
}

bool read_of_cgroup(int cgroup, const char *name, char *text, size_t room)
{
	int file = openat(cgroup, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	ssize_t length = -1;

	if (file >= 0) {
		length = read(file, text, room - 1);
		close(file);
	}
	text[length < 0 ? 0 : length] = '\0';
	return length >= 0;
}

/* The path of the job's cgroup below the scope of node's slurmd, or of one without a name. */
static void job_cgroup_path(char *path, size_t room, uint32_t job, const char *node)
{
	snprintf(path, room, CGROUPS SLICE "%s%s" SCOPE "/job_%u", node ? node : "", node ? "_" : "", job);
}

static int remove_empty(const char *path, const struct stat *stat, int kind, struct FTW *where)
{
	(void)stat;
	(void)where;
	/* One that has processes stays, with those above it. */
	if (kind == FTW_DP)
		rmdir(path);
	return 0;
}

void remove_job_cgroup(uint32_t job, const char *node)
{
	char path[512];

	for (int named = 0; named < 1 + !!node; named++) {
		job_cgroup_path(path, sizeof(path), job, named ? node : NULL);
		nftw(path, remove_empty, 8, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
	}
}

/* Returns the limit that an earlier step or the administrator has given the cgroup. */
static uint64_t limit_of(int device, int cgroup)
{
	struct hpmmap_limit_list list = { .size = sizeof(list) };
	uint64_t limit = HPMMAP_LIMIT_INHERIT;
	struct hpmmap_limit_entry *entries;
	struct stat stat;
	uint32_t room;

	if (fstat(cgroup, &stat) || ioctl(device, HPMMAP_IOC_LIMIT_LIST, &list))
		return limit;
	/* More limits may be set before the next call. */
	room = list.nr + 64;
	entries = calloc(room, sizeof(*entries));
	if (!entries)
		return limit;
	list.entries = (uintptr_t)entries;
	list.nr = room;
	if (ioctl(device, HPMMAP_IOC_LIMIT_LIST, &list))
		list.nr = 0;
	for (uint32_t i = 0; i < list.nr && i < room; i++)
		if (entries[i].flags & HPMMAP_LIMIT_F_CGROUP &&
		    entries[i].cgroup_id == stat.st_ino)
			limit = entries[i].rule;
	free(entries);
	return limit;
}

static bool set_limit(int device, int cgroup, uint64_t bytes)
{
	struct hpmmap_limit_set limit = {
		.size = sizeof(limit),
		.flags = HPMMAP_LIMIT_F_CGROUP,
		.cgroup_fd = cgroup,
		.bytes = bytes,
	};

	errno = 0;
	return cgroup >= 0 && !ioctl(device, HPMMAP_IOC_LIMIT_SET, &limit);
}

/* Replaces the cgroup's promise. With ENOSPC *room is what could be promised. */
static bool set_promise(int device, int cgroup, uint64_t bytes, uint64_t *room)
{
	struct hpmmap_promise part = { .node = -1, .bytes = bytes };
	struct hpmmap_promise_set set = {
		.size = sizeof(set),
		.flags = HPMMAP_LIMIT_F_CGROUP,
		.cgroup_fd = cgroup,
		.promises = (uintptr_t)&part,
		.nr = 1,
	};
	bool done;

	errno = 0;
	done = !ioctl(device, HPMMAP_IOC_PROMISE_SET, &set);
	*room = set.room_bytes;
	return done;
}

/* Has no NUMA node pool memory? A task that wants some is told by its launch. */
static bool is_without_pools(void)
{
	unsigned long long bytes = 0;
	glob_t nodes;
	FILE *file;

	if (glob(POOL_FILES, 0, NULL, &nodes))
		return true;
	for (size_t i = 0; i < nodes.gl_pathc && !bytes; i++) {
		file = fopen(nodes.gl_pathv[i], "re");
		if (!file || fscanf(file, "%llu", &bytes) != 1)
			bytes = 0;
		if (file)
			fclose(file);
	}
	globfree(&nodes);
	return !bytes;
}

/*
 * Promises the grant to the cgroup, spread over the NUMA nodes. The cgroup of a job that has just
 * ended may still be there, so it is tried for two seconds. What cannot be kept is only a limit,
 * and the user gets a line.
 */
static void promise(int device, int cgroup, uint64_t bytes)
{
	uint64_t room, kept;

	if (is_without_pools())
		return;
	for (int tries = 0; tries < 20; tries++) {
		if (set_promise(device, cgroup, bytes, &room))
			return;
		if (errno != ENOSPC) {
			say("of the %llu MB that the job was granted, none are kept for it here: %s",
			    (unsigned long long)(bytes >> 20), strerror(errno));
			return;
		}
		usleep(100000);
	}
	kept = room;
	if (kept && !set_promise(device, cgroup, kept, &room))
		kept = 0;
	say("of the %llu MB that the job was granted, %llu MB are kept for it here: no more is free and promised to no other",
	    (unsigned long long)(bytes >> 20), (unsigned long long)(kept >> 20));
}

/* With hold=all, a job of unknown grant may hold nothing until the next step asks again. */
static enum held hold_unknown(int device, int cgroup, const struct holding *how)
{
	uint64_t limit = cgroup >= 0 ? limit_of(device, cgroup) : HPMMAP_LIMIT_INHERIT;
	bool is_held;

	/* Another step was told meanwhile. */
	if (limit && limit != HPMMAP_LIMIT_INHERIT)
		return HELD_SOME;
	is_held = how->all && set_limit(device, cgroup, 0);
	if (is_held)
		say("Slurm's controller did not say what the job was granted, so it may hold no pool memory here; tasks run with ordinary memory");
	else if (how->is_wished || how->all)
		say("the job is not held to its grant: Slurm's controller did not say what it was granted");
	return is_held ? HELD_UNTOLD : HELD_SOME;
}

/*
 * Promises the grant to the cgroup, then sets its limit, which tells later steps that all is done: the controller
 * is asked once for each job and host, not once for each step. Two steps that come at once do the same twice.
 */
static enum held hold_to_grant(int device, int cgroup, const struct holding *how)
{
	uint64_t bytes = 0;

	if (!granted_in_time(how->job, &bytes))
		return hold_unknown(device, cgroup, how);
	if (!bytes && !how->all)
		return HELD_SOME;
	bytes -= bytes % HPMMAP_BLOCK_BYTES;
	if (bytes && cgroup >= 0)
		promise(device, cgroup, bytes);
	if (set_limit(device, cgroup, bytes))
		return bytes ? HELD_SOME : HELD_NONE;
	/* The next step tries again. The promise stays: it is what Slurm has granted. */
	say("the job is not held to the %llu MB it was granted: %s",
	    (unsigned long long)(bytes >> 20), cgroup >= 0 ? strerror(errno) :
	    "it has no cgroup of its own (proctrack/cgroup, cgroup v2)");
	return HELD_SOME;
}

static enum held hold_cgroup(int device, int cgroup, const struct holding *how)
{
	uint64_t limit = cgroup >= 0 ? limit_of(device, cgroup) : HPMMAP_LIMIT_INHERIT;

	/*
	 * With hold=all a limit of 0 may stem from a step for which the controller did not answer.
	 */
	if (limit == HPMMAP_LIMIT_INHERIT || (!limit && how->all))
		return hold_to_grant(device, cgroup, how);
	return limit ? HELD_SOME : HELD_NONE;
}

enum held hold(int device, pid_t pid, const struct holding *how)
{
	int cgroup = job_cgroup(pid, how->job, NULL);
	enum held held = hold_cgroup(device, cgroup, how);

	if (cgroup >= 0)
		close(cgroup);
	return held;
}

/* The cgroup, or -1, and it is closed, if it was not given a grant: hold=all gives others 0. */
static int if_held(int device, int cgroup)
{
	uint64_t limit = limit_of(device, cgroup);

	if (limit && limit != HPMMAP_LIMIT_INHERIT)
		return cgroup;
	close(cgroup);
	return -1;
}

int find_held_cgroup(uint32_t job, const char *node)
{
	int cgroup = -1, device = open(HPMMAP_DEVICE_PATH, O_RDWR | O_CLOEXEC);
	char path[512];

	for (int named = 0; device >= 0 && cgroup < 0 && named < 1 + !!node; named++) {
		job_cgroup_path(path, sizeof(path), job, named ? node : NULL);
		cgroup = open_cgroup(path);
		if (cgroup >= 0)
			cgroup = if_held(device, cgroup);
	}
	if (device >= 0)
		close(device);
	return cgroup;
}
