// SPDX-License-Identifier: GPL-2.0
/*
 * On the node, as root, when a job has ended. Its processes are gone by then, but where
 * slurmstepd itself was killed: Slurm knows no more of them, and they would hold memory of
 * the pools that is granted to others next.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plugin.h"

static bool kill_group(int cgroup)
{
	int file = openat(cgroup, "cgroup.kill", O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
	bool done = file >= 0 && write(file, "1", 1) == 1;

	if (file >= 0)
		close(file);
	return done;
}

/* The process that a context in sysfs is of; 0: it is gone. */
static pid_t pid_of(const char *context)
{
	char path[96];
	FILE *file;
	int pid = 0;

	snprintf(path, sizeof(path), HPMMAP_SYSFS_PATH "/contexts/%.32s/pid", context);
	file = fopen(path, "re");
	if (!file)
		return 0;
	if (fscanf(file, "%d", &pid) != 1)
		pid = 0;
	fclose(file);
	return pid;
}

int slurm_spank_job_epilog(spank_t sp, int ac, char **av)
{
	struct dirent *entry;
	uint32_t job;
	DIR *contexts;

	(void)ac;
	(void)av;
	if (spank_get_item(sp, S_JOB_ID, &job) != ESPANK_SUCCESS)
		return 0;
	contexts = opendir(HPMMAP_SYSFS_PATH "/contexts");
	while (contexts && (entry = readdir(contexts))) {
		pid_t pid = pid_of(entry->d_name);
		int cgroup = pid ? job_cgroup(pid, job, getenv("SLURMD_NODENAME")) : -1;

		if (cgroup < 0)
			continue;
		slurm_error("hpmmap: job %u has ended, process %d of it has not and holds memory of the pools: %s",
			    job, pid, kill_group(cgroup) ? "killed" : strerror(errno));
		close(cgroup);
	}
	if (contexts)
		closedir(contexts);
	return 0;
}
