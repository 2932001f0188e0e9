// SPDX-License-Identifier: GPL-2.0
/*
 * Runs on the host, as root, when a batch job has ended. Usually its processes are gone by then. If
 * slurmstepd was killed, Slurm has forgotten them, and they would keep pool memory and CPUs that Slurm
 * grants to other jobs: so they are killed here. A process without pool memory keeps the job's cgroup,
 * and so the promise of its grant.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "plugin.h"

#define WAIT_MICROSECONDS 100000
#define MAX_WAITS 100
/* A slurmstepd that has told Slurm of its end may still be about to go. */
#define WAITS_FOR_SLURMSTEPD 10

/**
 * struct leftover - a batch job that may have left processes on this host
 * @job: its number
 * @node: the name of this slurmd if several run on the host, or NULL
 * @is_ours: the epilog runs in the job's cgroup (RunInJob), and so does slurmstepd
 * @cgroup: the job's cgroup if it was held to its grant, or holds pool memory, and is not ours, or -1
 */
struct leftover {
	uint32_t job;
	const char *node;
	bool is_ours;
	int cgroup;
};

static bool kill_group(int cgroup)
{
	int file = openat(cgroup, "cgroup.kill", O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
	bool done = file >= 0 && write(file, "1", 1) == 1;

	if (file >= 0)
		close(file);
	return done;
}

/* A cgroup that was removed has no processes. */
static bool is_populated(int cgroup)
{
	char text[256];

	return read_of_cgroup(cgroup, "cgroup.events", text, sizeof(text)) && strstr(text, "populated 1");
}

/* Reads the next context and the PID of its process; false at the end. */
static bool next_context(FILE *contexts, unsigned long long *id, pid_t *pid)
{
	char line[128];

	while (fgets(line, sizeof(line), contexts))
		if (sscanf(line, "id %llu", id) != 1 && sscanf(line, "pid %d", pid) == 1)
			return true;
	return false;
}

/* Does this context still belong to this process? */
static bool is_context_of(unsigned long long context, pid_t pid)
{
	FILE *contexts = fopen(HPMMAP_CONTEXTS_PATH, "re");
	unsigned long long id;
	bool found = false;
	pid_t its;

	while (contexts && !found && next_context(contexts, &id, &its))
		found = id == context && its == pid;
	if (contexts)
		fclose(contexts);
	return found;
}

/*
 * Kills one process. Its PID may have been reused before pidfd_open(), so its cgroup and its
 * context are compared after it.
 */
static bool kill_one(const struct leftover *left, unsigned long long context, pid_t pid)
{
	int process = syscall(SYS_pidfd_open, pid, 0), cgroup;
	bool done = false;

	if (process < 0)
		return false;
	errno = ESRCH;
	cgroup = job_cgroup(pid, left->job, left->node);
	if (cgroup >= 0 && pid != getpid() && is_context_of(context, pid))
		done = !syscall(SYS_pidfd_send_signal, process, SIGKILL, NULL, 0);
	if (cgroup >= 0)
		close(cgroup);
	close(process);
	return done;
}

/* Kills the process of a context if it is the job's; true: it is, and may still be there. */
static bool end_one(struct leftover *left, unsigned long long context, pid_t pid, bool tell)
{
	int cgroup = pid > 0 ? job_cgroup(pid, left->job, left->node) : -1;
	bool done;

	if (cgroup < 0)
		return false;
	done = left->is_ours ? kill_one(left, context, pid) : kill_group(cgroup);
	if (tell)
		slurm_error("hpmmap: job %u has ended, but its process %d has not and holds pool memory: %s",
			    left->job, pid, done ? "killed" : strerror(errno));
	if (left->cgroup < 0 && !left->is_ours)
		left->cgroup = cgroup;
	else
		close(cgroup);
	return true;
}

/* Kills what is in the job's cgroup after some waits. False: nothing is. */
static bool end_group(const struct leftover *left, int waits)
{
	bool done;

	if (left->cgroup < 0 || !is_populated(left->cgroup))
		return false;
	if (waits < WAITS_FOR_SLURMSTEPD)
		return true;
	done = kill_group(left->cgroup);
	if (waits == WAITS_FOR_SLURMSTEPD)
		slurm_error("hpmmap: job %u has ended, but processes are left in its cgroup: %s", left->job,
			    done ? "killed" : strerror(errno));
	return true;
}

/* False: no process of the job is left, or none that holds pool memory if the cgroup is ours. */
static bool end_all(struct leftover *left, int waits)
{
	FILE *contexts = fopen(HPMMAP_CONTEXTS_PATH, "re");
	unsigned long long id = 0;
	bool any = false;
	pid_t pid;

	while (contexts && next_context(contexts, &id, &pid))
		if (end_one(left, id, pid, !waits))
			any = true;
	if (contexts)
		fclose(contexts);
	/*
	 * A context is listed by its first process: if that is gone, the others show only in the
	 * cgroup.
	 */
	return any || end_group(left, waits);
}

/* Runs on the host, as root, before the first task of a batch job. */
int slurm_spank_job_prolog(spank_t sp, int ac, char **av)
{
	uint32_t job;

	(void)ac;
	(void)av;
	if (spank_get_item(sp, S_JOB_ID, &job) == ESPANK_SUCCESS)
		end_stale_isolations(job);
	return 0;
}

int slurm_spank_job_epilog(spank_t sp, int ac, char **av)
{
	struct leftover left = { .node = getenv("SLURMD_NODENAME"), .cgroup = -1 };
	int own, waits = 0;

	(void)ac;
	(void)av;
	if (spank_get_item(sp, S_JOB_ID, &left.job) != ESPANK_SUCCESS)
		return 0;
	own = job_cgroup(getpid(), left.job, NULL);
	left.is_ours = own >= 0;
	if (own >= 0)
		close(own);
	else
		left.cgroup = find_held_cgroup(left.job, left.node);
	/*
	 * Slurm grants the next job the memory that these processes hold, so it must not start
	 * before they are gone.
	 */
	while (end_all(&left, waits) && waits++ < MAX_WAITS)
		usleep(WAIT_MICROSECONDS);
	if (waits > MAX_WAITS)
		slurm_error("hpmmap: job %u has ended, but its processes are still there after 10 seconds",
			    left.job);
	if (left.cgroup >= 0)
		close(left.cgroup);
	/* Of a job whose cgroup has this process the next prolog ends it. */
	if (!left.is_ours) {
		end_isolation(left.job);
		remove_job_cgroup(left.job, left.node);
	}
	return 0;
}
