// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Processes whose memory is placed before they execute their program.
 *
 * The process is made at once and waits at a pipe, so that its CPUs can be set. It gets what is
 * asked for through the pipe, launches itself and executes the program. It reports through a
 * second pipe that execve(2) closes. What the module has made of the regions then is in the
 * counters of the launch, which the parent's open file keeps.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "hpmmap.h"
#include "internal.h"

#define VARIABLE	"HPMMAP_REGIONS="
/* START+SIZE@NODE, with a comma. */
#define VARIABLE_BYTES	(sizeof(VARIABLE) + HPMMAP_LAUNCH_MAX_REGIONS * 56)
/* Where regions without an address begin, as with hpmmap run. */
#define FIRST		0x120000000000UL
#define END		0x7ffffffff000UL

/* What the process gets; regions are in order of address. */
struct order {
	struct hpmmap_launch launch;
	struct hpmmap_region regions[HPMMAP_LAUNCH_MAX_REGIONS];
	char variable[VARIABLE_BYTES];
};

/* What it reports: the number of the launch, or an errno. */
struct report {
	uint64_t job;
	int error;
};

enum state { WAITS, RUNS, ENDED };

struct hpmmap_process {
	enum state state;
	pid_t pid;
	int status;
	/* The device, and the ends of the pipes. */
	int device;
	int order_fd;
	int report_fd;
	struct order order;
	/* Where the variable ends. */
	size_t length;
};

static int fail(int err)
{
	errno = err;
	return -1;
}

static void close_one(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void close_all(struct hpmmap_process *proc)
{
	close_one(&proc->device);
	close_one(&proc->order_fd);
	close_one(&proc->report_fd);
}

/* ---- In the process: system calls only -------------------------------- */

static bool read_all(int fd, void *to, size_t bytes)
{
	ssize_t n;

	for (char *at = to; bytes; at += n, bytes -= (size_t)n) {
		do
			n = read(fd, at, bytes);
		while (n < 0 && errno == EINTR);
		if (n <= 0)
			return false;
	}
	return true;
}

static void run(struct hpmmap_process *proc, int order_fd, int report_fd, const char *path,
		char *const argv[], char **envp, char **slot)
{
	struct order *order = &proc->order;
	struct report report = { 0 };

	/* The creator has ended, or does not want it any more. */
	if (!read_all(order_fd, order, sizeof(*order)))
		_exit(127);
	order->launch.regions = order->launch.nr_regions ? (uintptr_t)order->regions : 0;
	*slot = order->launch.nr_regions ? order->variable : NULL;
	if (ioctl(proc->device, HPMMAP_IOC_LAUNCH, &order->launch) == 0) {
		report.job = order->launch.job_id;
		if (write(report_fd, &report, sizeof(report)) == sizeof(report))
			execve(path, argv, envp);
	}
	report.error = errno;
	if (write(report_fd, &report, sizeof(report)) != sizeof(report))
		_exit(126);
	_exit(127);
}

/* ---- In the creator ---------------------------------------------------- */

/*
 * A process that waits does not execute anything, so it keeps the ends of pipes that it inherits. It is made
 * while no other thread has ends that are not to be inherited.
 */
static pthread_mutex_t creating = PTHREAD_MUTEX_INITIALIZER;

/* A copy of the environment without the variable, with room for it at *slot. */
static char **copy_environment(char *const envp[], char ***slot)
{
	size_t nr = 0, kept = 0;
	char **copy;

	while (envp[nr])
		nr++;
	copy = calloc(nr + 2, sizeof(*copy));
	for (size_t i = 0; copy && i < nr; i++)
		if (strncmp(envp[i], VARIABLE, sizeof(VARIABLE) - 1))
			copy[kept++] = envp[i];
	if (copy)
		*slot = &copy[kept];
	return copy;
}

PUBLIC struct hpmmap_process *hpmmap_process_create(const char *path, char *const argv[],
						    char *const envp[], unsigned int flags)
{
	int orders[2] = { -1, -1 }, reports[2] = { -1, -1 }, err;
	struct hpmmap_process *proc;
	char **environment, **slot;

	if (flags & ~(HPMMAP_PROCESS_STRICT | HPMMAP_PROCESS_1G)) {
		errno = EINVAL;
		return NULL;
	}
	proc = calloc(1, sizeof(*proc));
	environment = copy_environment(envp, &slot);
	if (!proc || !environment)
		goto err_free;
	proc->order.launch.size = sizeof(proc->order.launch);
	proc->order.launch.flags = flags & HPMMAP_PROCESS_STRICT ? HPMMAP_LAUNCH_F_STRICT : 0;
	proc->order.launch.page_size = flags & HPMMAP_PROCESS_1G ? HPMMAP_LARGE_BYTES : 0;
	strcpy(proc->order.variable, VARIABLE);
	proc->length = sizeof(VARIABLE) - 1;
	proc->device = open(HPMMAP_DEVICE_PATH, O_RDWR | O_CLOEXEC);
	pthread_mutex_lock(&creating);
	if (proc->device < 0 || pipe2(orders, O_CLOEXEC) != 0 || pipe2(reports, O_CLOEXEC) != 0)
		goto err_close;
	proc->pid = fork();
	if (proc->pid == 0) {
		close(orders[1]);
		close(reports[0]);
		run(proc, orders[0], reports[1], path, argv, environment, slot);
	}
	if (proc->pid < 0)
		goto err_close;
	close(orders[0]);
	close(reports[1]);
	pthread_mutex_unlock(&creating);
	proc->order_fd = orders[1];
	proc->report_fd = reports[0];
	free(environment);
	return proc;

err_close:
	err = errno;
	close_one(&proc->device);
	for (int i = 0; i < 2; i++) {
		close_one(&orders[i]);
		close_one(&reports[i]);
	}
	pthread_mutex_unlock(&creating);
	errno = err;
err_free:
	free(environment);
	free(proc);
	return NULL;
}

PUBLIC pid_t hpmmap_process_pid(const struct hpmmap_process *proc)
{
	return proc->pid;
}

/* The region that overlaps [start, start + bytes), or NULL. */
static const struct hpmmap_region *find_overlap(const struct order *order, uint64_t start, uint64_t bytes)
{
	for (uint32_t i = 0; i < order->launch.nr_regions; i++) {
		const struct hpmmap_region *r = &order->regions[i];

		if (start < r->start + r->length && r->start < start + bytes)
			return r;
	}
	return NULL;
}

PUBLIC void *hpmmap_region_add(struct hpmmap_process *proc, size_t bytes, void *address, int node)
{
	struct order *order = &proc->order;
	uint64_t unit = order->launch.page_size ? HPMMAP_LARGE_BYTES : HPMMAP_BLOCK_BYTES;
	uint64_t start = address ? (uintptr_t)address : FIRST;
	const struct hpmmap_region *other;
	uint32_t i = order->launch.nr_regions;
	char at_node[16] = "";

	errno = EINVAL;
	if (proc->state != WAITS || i == HPMMAP_LAUNCH_MAX_REGIONS || !bytes || bytes % unit ||
	    start % unit || bytes > END || node < -1)
		return NULL;
	while ((other = find_overlap(order, start, bytes)) != NULL && !address)
		start = (other->start + other->length + unit - 1) / unit * unit;
	if (other || start > END - bytes)
		return NULL;
	for (; i && order->regions[i - 1].start > start; i--)
		order->regions[i] = order->regions[i - 1];
	order->regions[i] = (struct hpmmap_region) { .start = start, .length = bytes, .node = node };
	if (node >= 0)
		snprintf(at_node, sizeof(at_node), "@%d", node);
	proc->length += (size_t)snprintf(order->variable + proc->length, VARIABLE_BYTES - proc->length,
					 "%s%#llx+%#zx%s", order->launch.nr_regions ? "," : "",
					 (unsigned long long)start, bytes, at_node);
	order->launch.nr_regions++;
	return (void *)(uintptr_t)start;
}

PUBLIC int hpmmap_process_cpus(struct hpmmap_process *proc, const unsigned int *cpus, size_t nr)
{
	size_t most = 1, bytes;
	cpu_set_t *set;
	int ret;

	if (proc->state == ENDED)
		return fail(ESRCH);
	for (size_t i = 0; i < nr; i++)
		if (cpus[i] >= most)
			most = (size_t)cpus[i] + 1;
	set = CPU_ALLOC(most);
	if (!set)
		return -1;
	bytes = CPU_ALLOC_SIZE(most);
	CPU_ZERO_S(bytes, set);
	for (size_t i = 0; i < nr; i++)
		CPU_SET_S(cpus[i], bytes, set);
	ret = sched_setaffinity(proc->pid, bytes, set);
	CPU_FREE(set);
	return ret;
}

/* Waits for the end. Returns 0, or -1 with errno. */
static int reap(struct hpmmap_process *proc)
{
	pid_t pid;

	do
		pid = waitpid(proc->pid, &proc->status, 0);
	while (pid < 0 && errno == EINTR);
	/* ECHILD: another call has waited for it, and its number may be another process's. */
	if (pid < 0 && errno != ECHILD)
		return -1;
	proc->state = ENDED;
	close_all(proc);
	return pid < 0 ? fail(ECHILD) : 0;
}

/* The process has not become the program. */
static int give_up(struct hpmmap_process *proc, int err)
{
	kill(proc->pid, SIGKILL);
	reap(proc);
	return fail(err);
}

static bool has_ended(const struct hpmmap_process *proc)
{
	siginfo_t info = { 0 };

	return waitid(P_PID, (id_t)proc->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid;
}

/* A counter of the launch; -1: it cannot be read. */
static long counter(uint64_t job, const char *name)
{
	char path[64], line[128];
	long value = -1;
	FILE *file;

	snprintf(path, sizeof(path), "/sys/kernel/hpmmap/jobs/%llu/stat", (unsigned long long)job);
	file = fopen(path, "re");
	while (file && value < 0 && fgets(line, sizeof(line), file))
		if (!strncmp(line, name, strlen(name)) && line[strlen(name)] == ' ')
			value = strtol(line + strlen(name), NULL, 10);
	if (file)
		fclose(file);
	return value;
}

/* Waits until the program has its regions. Returns 0 or an errno. */
static int wait_for_regions(const struct hpmmap_process *proc, uint64_t job)
{
	struct timespec pause = { .tv_nsec = 200 * 1000 };
	bool ended;

	for (;;) {
		/* First: what has ended has counted. */
		ended = has_ended(proc);
		if (counter(job, "programs_registered") != 0)
			return 0;
		if (counter(job, "programs_failed") > 0)
			return EEXIST;
		if (ended || counter(job, "programs_secure") > 0 || counter(job, "programs_32bit") > 0)
			return ended ? ESRCH : ENOEXEC;
		nanosleep(&pause, NULL);
		if (pause.tv_nsec < 10 * 1000 * 1000)
			pause.tv_nsec *= 2;
	}
}

/* write(2) to a pipe whose reader may have ended, without SIGPIPE. */
static bool send_order(struct hpmmap_process *proc)
{
	const struct timespec none = { 0 };
	sigset_t sigpipe, before, pending;
	bool was_pending, done;

	sigemptyset(&sigpipe);
	sigaddset(&sigpipe, SIGPIPE);
	sigpending(&pending);
	was_pending = sigismember(&pending, SIGPIPE);
	pthread_sigmask(SIG_BLOCK, &sigpipe, &before);
	/* Less than PIPE_BUF, so it is written as a whole. */
	done = write(proc->order_fd, &proc->order, sizeof(proc->order)) == sizeof(proc->order);
	if (!done && !was_pending)
		sigtimedwait(&sigpipe, NULL, &none);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return done;
}

_Static_assert(sizeof(struct order) <= 4096, "it is written to a pipe as a whole");

PUBLIC int hpmmap_process_start(struct hpmmap_process *proc)
{
	struct report report = { 0 }, last;
	int err;

	if (proc->state != WAITS)
		return fail(EALREADY);
	if (!send_order(proc))
		return give_up(proc, ESRCH);
	close_one(&proc->order_fd);
	proc->state = RUNS;
	while (read_all(proc->report_fd, &last, sizeof(last)))
		report = last;
	if (report.error || !report.job)
		return give_up(proc, report.error ? report.error : ESRCH);
	err = proc->order.launch.nr_regions ? wait_for_regions(proc, report.job) : 0;
	if (err)
		return give_up(proc, err);
	close_all(proc);
	return 0;
}

PUBLIC int hpmmap_process_wait(struct hpmmap_process *proc, int *status)
{
	if (proc->state == WAITS)
		return fail(EINVAL);
	if (proc->state == RUNS && reap(proc) != 0)
		return -1;
	*status = proc->status;
	return 0;
}

PUBLIC int hpmmap_process_kill(struct hpmmap_process *proc, int sig)
{
	return proc->state == ENDED ? fail(ESRCH) : kill(proc->pid, sig);
}

PUBLIC void hpmmap_process_free(struct hpmmap_process *proc)
{
	int err = errno;

	if (!proc)
		return;
	if (proc->state != ENDED)
		give_up(proc, 0);
	free(proc);
	errno = err;
}
