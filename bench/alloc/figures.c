// SPDX-License-Identifier: GPL-2.0
/* What is measured, and how. Nothing here uses the heap. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "worker.h"

struct figures figures;

static int faults_fd = -1;
static uint64_t faults_before, page_tables_before, resident_before;
static uint64_t held_before, cleared_before;

void die(const char *what)
{
	fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, strerror(errno));
	exit(1);
}

void account(uint64_t *phase, uint64_t cost)
{
	*phase += cost;
	figures.calls++;
	if (cost > figures.worst_call)
		figures.worst_call = cost;
}

static uint64_t minor_and_major(void)
{
	struct rusage usage;

	if (getrusage(RUSAGE_SELF, &usage))
		die("getrusage");
	return usage.ru_minflt + usage.ru_majflt;
}

static uint64_t perf_faults(void)
{
	uint64_t count;

	if (read(faults_fd, &count, sizeof(count)) != sizeof(count))
		die("read of the page fault counter");
	return count;
}

/*
 * What getrusage counts has the pages in it that a call fills without a fault,
 * so it is asked around the touching only.
 */
const char *fault_counter_name(void)
{
	return faults_fd >= 0 ? "perf" : "getrusage";
}

/*
 * One write to each 4 KB page; @worst is the largest single one. Not inlined:
 * all passes must run the same instructions.
 */
static __attribute__((noinline)) uint64_t touch(volatile char *p, size_t size, uint64_t *worst)
{
	uint64_t start = ticks(), last = start, max = 0;

	for (size_t at = 0; at < size; at += SMALL_PAGE) {
		uint64_t now;

		p[at] = 1;
		now = ticks();
		if (now - last > max)
			max = now - last;
		last = now;
	}
	*worst = max;
	return last - start;
}

/*
 * Touches what was never touched. A second pass costs the same but finds every
 * page in place, and is taken off.
 */
void touch_new(void *p, size_t size)
{
	uint64_t pages = (size + SMALL_PAGE - 1) / SMALL_PAGE;
	uint64_t first, again, worst, warm_worst, faults = 0;

	if (faults_fd < 0)
		faults = minor_and_major();
	first = touch(p, size, &worst);
	if (faults_fd < 0)
		figures.faults += minor_and_major() - faults;
	again = touch(p, size, &warm_worst);
	figures.touch += minus(first, again);
	figures.loop += again;
	figures.touched_pages += pages;
	/* The worst warm touch may hold a timer tick: use the mean. */
	worst = minus(worst, again / pages);
	if (worst > figures.worst_touch)
		figures.worst_touch = worst;
}

/*
 * Until a timer interrupt has just ended, so that what takes less than the
 * time between two of them is not measured with one in it.
 */
void wait_for_tick(void)
{
	/* Reading the counter takes less, an interrupt more. */
	const uint64_t interrupt = 500;
	const uint64_t start = ticks(), most = 100000000;
	uint64_t last = start, now;

	do {
		now = ticks();
		if (now - last > interrupt)
			return;
		last = now;
	} while (now - start < most);
}

static size_t read_file(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t len = 0;
	ssize_t n;

	if (fd < 0)
		return 0;
	/* Some files have a part of their text for each read. */
	while ((n = read(fd, text + len, size - 1 - len)) > 0)
		len += n;
	close(fd);
	text[len] = 0;
	return len;
}

/* Of a line of /proc/self/status, in bytes; 0 without one. */
static uint64_t status_bytes(const char *status, const char *name)
{
	const char *line = strstr(status, name);

	return line ? strtoull(line + strlen(name), NULL, 10) << 10 : 0;
}

static void read_status(uint64_t *resident, uint64_t *highest, uint64_t *page_tables)
{
	char status[4096];

	if (!read_file("/proc/self/status", status, sizeof(status)))
		die("/proc/self/status");
	*resident = status_bytes(status, "VmRSS:") + status_bytes(status, "HugetlbPages:");
	*highest = status_bytes(status, "VmHWM:") + status_bytes(status, "HugetlbPages:");
	*page_tables = status_bytes(status, "VmPTE:");
}

/* Without the heap, which may be that of a measured allocator. */
static void each_entry(const char *path, void (*visit)(const char *dir, const char *name, int64_t *sum),
		       int64_t *sum)
{
	static char entries[4096];
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return;
	while ((n = getdents64(fd, entries, sizeof(entries))) > 0) {
		for (ssize_t at = 0; at < n;) {
			struct dirent64 *entry = (struct dirent64 *)(entries + at);

			visit(path, entry->d_name, sum);
			at += entry->d_reclen;
		}
	}
	close(fd);
}

static int64_t number_in(const char *dir, const char *name, const char *file)
{
	char path[512], text[32];

	snprintf(path, sizeof(path), "%s/%s/%s", dir, name, file);
	return read_file(path, text, sizeof(text)) ? strtoll(text, NULL, 10) : -1;
}

/* The file to add up. */
static const char *summed;

static void add(const char *dir, const char *name, int64_t *sum)
{
	int64_t bytes = number_in(dir, name, summed);

	if (bytes >= 0)
		*sum = (*sum < 0 ? 0 : *sum) + bytes;
}

/* A figure of this process's context; 0 where there is none. */
static uint64_t own_bytes(const char *name)
{
	static char text[65536];
	char pid[32], *at, *end;
	size_t len = strlen(name);
	uint64_t bytes = 0;

	snprintf(pid, sizeof(pid), "\npid %d\n", getpid());
	if (!read_file("/proc/hpmmap", text, sizeof(text)))
		return 0;
	at = strstr(text, pid);
	end = at ? strstr(at, "\nid ") : NULL;
	if (end)
		*end = '\0';
	for (; at; at = strchr(at + 1, '\n'))
		if (!strncmp(at + 1, name, len) && at[len + 1] == ' ')
			bytes = strtoull(at + 1 + len, NULL, 10);
	return bytes;
}

/* Memory of the pools that this process has, mapped or kept for reuse. */
static uint64_t held_now(void)
{
	return own_bytes("held_bytes");
}

/* Sum over the nodes' pools of a file in sysfs; -1 where there is none. */
int64_t pool_bytes(const char *file)
{
	int64_t sum = -1;

	summed = file;
	each_entry("/sys/kernel/hpmmap/nodes", add, &sum);
	return sum;
}

/*
 * What an earlier process left is zeroed by a thread, which is not to run beside
 * what is measured, and has nothing to do then. Where others use the pools all
 * of it need never be zero: a second without progress ends the wait.
 */
void wait_for_clean_pools(void)
{
	const struct timespec moment = { .tv_nsec = 10000000 };
	int64_t least = INT64_MAX;

	for (int i = 0, idle = 0; i < 3000 && idle < 100; i++, idle++) {
		int64_t left = pool_bytes("free_bytes") - pool_bytes("clean_bytes");

		if (left <= 0)
			return;
		if (left < least) {
			least = left;
			idle = 0;
		}
		nanosleep(&moment, NULL);
	}
}

/*
 * CPU time of all tasks so far; -1 where the kernel does not tell. That of a
 * task counts when it leaves its CPU, so this one does.
 */
int64_t tasks_ns(void)
{
	const struct timespec moment = { .tv_nsec = 1000 };
	static char text[65536];
	int64_t sum = -1;

	nanosleep(&moment, NULL);
	if (!read_file("/proc/schedstat", text, sizeof(text)))
		return -1;
	for (char *line = text; (line = strstr(line, "\ncpu")); line++) {
		uint64_t ns;

		/* The seventh number of a CPU's line. */
		if (sscanf(line, "\ncpu%*u %*u %*u %*u %*u %*u %*u %" SCNu64, &ns) != 1)
			return -1;
		sum = (sum < 0 ? 0 : sum) + ns;
	}
	return sum;
}

/* Called where a pattern holds the most. */
void figures_peak(void)
{
	uint64_t resident, highest, page_tables, held = held_now();

	read_status(&resident, &highest, &page_tables);
	if (minus(page_tables, page_tables_before) > figures.page_table_bytes)
		figures.page_table_bytes = page_tables - page_tables_before;
	if (minus(resident, resident_before) > figures.resident_bytes)
		figures.resident_bytes = resident - resident_before;
	if (minus(held, held_before) > figures.held_bytes)
		figures.held_bytes = held - held_before;
}

void figures_begin(void)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_SW_PAGE_FAULTS,
	};
	uint64_t highest;
	int fd;

	/* Its own peak from here on. */
	fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, "5", 1) != 1)
		die("/proc/self/clear_refs");
	close(fd);
	read_status(&resident_before, &highest, &page_tables_before);
	held_before = held_now();
	cleared_before = own_bytes("cleared_bytes");
	figures = (struct figures){
		.base_bytes = held_before > resident_before ? held_before : resident_before,
	};
	if (faults_fd < 0)
		faults_fd = syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
	if (faults_fd >= 0)
		faults_before = perf_faults();
}

void figures_end(void)
{
	uint64_t resident, highest, page_tables;

	if (faults_fd >= 0)
		figures.faults = perf_faults() - faults_before;
	figures.cleared_bytes = minus(own_bytes("cleared_bytes"), cleared_before);
	read_status(&resident, &highest, &page_tables);
	if (minus(highest, resident_before) > figures.resident_bytes)
		figures.resident_bytes = highest - resident_before;
}
