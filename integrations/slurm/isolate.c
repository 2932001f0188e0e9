// SPDX-License-Identifier: GPL-2.0
/*
 * --hpmmap=isolate: the CPUs of a batch job become a partition (docs/partitions.md). Its cgroup is
 * the job's own, with the CPUs that Slurm has given it, so nothing changes for Slurm. hpmmap
 * partition makes and undoes it, and records what it changes of the host.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "plugin.h"

#define RECORDS "/run/hpmmap/partitions"
#define PREFIX "slurm_"
#define MAX_SECONDS 60
/* For all that a prolog undoes of others. */
#define MAX_STALE_SECONDS 60
#define MAX_NAME 32

/* Where the command may be, whatever the caller's PATH says. */
static const char *commands[] = {
	"/usr/local/sbin/hpmmap", "/usr/local/bin/hpmmap", "/usr/sbin/hpmmap", "/usr/bin/hpmmap",
};

static void name_of(char *name, uint32_t job)
{
	snprintf(name, MAX_NAME, PREFIX "%u", job);
}

/* Reads what the command says until it ends; false: it does not end. */
static bool read_all(int from, char *said, size_t room)
{
	struct pollfd poller = { .fd = from, .events = POLLIN };
	size_t length = 0;
	ssize_t got = 1;
	char rest[256];

	while (got > 0) {
		int ready = poll(&poller, 1, MAX_SECONDS * 1000);

		if (ready < 0 && errno == EINTR)
			continue;
		if (ready <= 0)
			break;
		got = length + 1 < room ? read(from, said + length, room - 1 - length) :
					  read(from, rest, sizeof(rest));
		if (got > 0 && length + 1 < room)
			length += got;
	}
	said[length] = '\0';
	return got <= 0;
}

/*
 * Runs hpmmap partition with these words, as root. Its first line of errors is in said, which is
 * empty if it did what it was asked.
 */
static void partition(const char *const words[], char *said, size_t room)
{
	char *argv[8] = { "hpmmap", "partition" };
	char *env[] = { "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", NULL };
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attributes;
	int ends[2], error, status = 0;
	sigset_t none;
	pid_t pid;

	for (size_t i = 0; words[i] && i + 3 < sizeof(argv) / sizeof(argv[0]); i++)
		argv[i + 2] = (char *)words[i];
	if (pipe2(ends, O_CLOEXEC)) {
		snprintf(said, room, "%s", strerror(errno));
		return;
	}
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_adddup2(&files, ends[1], 2);
	posix_spawnattr_init(&attributes);
	sigemptyset(&none);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
	error = ENOENT;
	for (size_t i = 0; error == ENOENT && i < sizeof(commands) / sizeof(commands[0]); i++)
		error = posix_spawn(&pid, commands[i], &files, &attributes, argv, env);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&attributes);
	close(ends[1]);
	if (error) {
		snprintf(said, room, "cannot start hpmmap: %s", strerror(error));
	} else {
		if (!read_all(ends[0], said, room)) {
			kill(pid, SIGKILL);
			snprintf(said, room, "hpmmap partition took more than %d seconds", MAX_SECONDS);
		}
		if (waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status))
			*said = '\0';
		else if (!*said)
			snprintf(said, room, "hpmmap partition failed");
	}
	close(ends[0]);
	said[strcspn(said, "\n")] = '\0';
}

/* Without the name of the command, which the line has already. */
static const char *reason(const char *said)
{
	return strncmp(said, "hpmmap: ", 8) ? said : said + 8;
}

bool is_isolated(int cgroup)
{
	char text[16];

	return read_of_cgroup(cgroup, "cpuset.cpus.partition", text, sizeof(text)) && !strcmp(text, "isolated\n");
}

void isolate(int cgroup, uint32_t job)
{
	char link[32], path[4200] = "", name[MAX_NAME], said[512];
	const char *words[] = { "create", name, "--of-cgroup", path + strlen(CGROUPS), NULL };

	/* An earlier step of the job has done it. */
	if (is_isolated(cgroup))
		return;
	name_of(name, job);
	snprintf(link, sizeof(link), "/proc/self/fd/%d", cgroup);
	if (readlink(link, path, sizeof(path) - 1) < (ssize_t)strlen(CGROUPS)) {
		say("the job's CPUs are not isolated: the job has no cgroup of its own (proctrack/cgroup, cgroup v2)");
		return;
	}
	partition(words, said, sizeof(said));
	/* Another step may have done it meanwhile. */
	if (*said && !is_isolated(cgroup))
		say("the job's CPUs are not isolated: %s", reason(said));
}

void end_isolation(uint32_t job)
{
	char name[MAX_NAME], path[sizeof(RECORDS) + MAX_NAME], said[512];
	const char *words[] = { "delete", name, "--kill", NULL };

	name_of(name, job);
	snprintf(path, sizeof(path), RECORDS "/%s", name);
	if (access(path, F_OK))
		return;
	partition(words, said, sizeof(said));
	if (*said)
		slurm_error("hpmmap: job %u has ended, but its CPUs are still isolated: %s; run 'hpmmap partition delete %s --kill'",
			    job, reason(said), name);
}

/* Is it what name_of() gives? An administrator's partition may begin in the same way. */
static bool is_of_job(const char *name)
{
	size_t length = strlen(PREFIX);

	return !strncmp(name, PREFIX, length) && name[length] &&
	       strspn(name + length, "0123456789") == strlen(name + length);
}

/* Of a job that runs it is refused: the partition has processes. */
void end_stale_isolations(uint32_t job)
{
	time_t end = time(NULL) + MAX_STALE_SECONDS;
	DIR *records = opendir(RECORDS);
	char own[MAX_NAME], said[512];
	struct dirent *entry;

	name_of(own, job);
	/* Others that are left the next prolog undoes. */
	while (records && time(NULL) < end && (entry = readdir(records))) {
		const char *words[] = { "delete", entry->d_name, NULL };

		if (is_of_job(entry->d_name) && strcmp(entry->d_name, own))
			partition(words, said, sizeof(said));
	}
	if (records)
		closedir(records);
}

/* The first CPU of the core that this one belongs to. */
static int core_of(int cpu)
{
	char path[96];
	int first = cpu;
	FILE *file;

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
	file = fopen(path, "re");
	if (file && fscanf(file, "%d", &first) != 1)
		first = cpu;
	if (file)
		fclose(file);
	return first;
}

/* The part of one task among several, whole cores if they suffice. */
static void part_of(cpu_set_t *part, const cpu_set_t *all, unsigned int task, unsigned int nr_tasks)
{
	int cpus[CPU_SETSIZE], cores[CPU_SETSIZE];
	unsigned int nr = 0, last;

	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		cores[cpu] = CPU_ISSET(cpu, all) ? core_of(cpu) : -1;
	for (int core = 0; core < CPU_SETSIZE; core++)
		for (int cpu = core; cpu < CPU_SETSIZE; cpu++)
			if (cores[cpu] == core)
				cpus[nr++] = cpu;
	CPU_ZERO(part);
	if (!nr)
		return;
	last = (task + 1) * nr / nr_tasks;
	for (unsigned int at = task * nr / nr_tasks; at < last; at++)
		CPU_SET(cpus[at], part);
	/* More tasks than CPUs. */
	if (!CPU_COUNT(part))
		CPU_SET(cpus[task % nr], part);
}

void spread(unsigned int task, unsigned int nr_tasks)
{
	cpu_set_t bound, all, part;

	memset(&all, 0xff, sizeof(all));
	if (nr_tasks < 2 || sched_getaffinity(0, sizeof(bound), &bound) ||
	    sched_setaffinity(0, sizeof(all), &all) || sched_getaffinity(0, sizeof(all), &all))
		return;
	part_of(&part, &all, task, nr_tasks);
	sched_setaffinity(0, sizeof(bound), CPU_EQUAL(&bound, &all) && CPU_COUNT(&part) ? &part : &bound);
}
