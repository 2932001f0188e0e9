// SPDX-License-Identifier: GPL-2.0
/*
 * Regions of a launch, as the program finds them, and processes made by libhpmmap.
 *
 * regions check: every region of HPMMAP_REGIONS is zero, resident, on its NUMA node and bound to it, and
 * ordinary memory: a fork, mprotect and munmap work. As root hpmmap_runs() tells the node. Prints them.
 * regions library FIXED: processes of libhpmmap; FIXED is this program, linked to 0x400000.
 */
#include <dirent.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hpmmap.h"
#include "hpmmap_window.h"

#define PAGE	4096UL
#define SLOT	HPMMAP_BLOCK_BYTES

#define CHECK(what) do { if (!(what)) errx(1, "line %d: not %s (%s)", __LINE__, #what, strerror(errno)); } while (0)

/* ---- The program -------------------------------------------------------- */

static long touched(const char *start, size_t bytes)
{
	unsigned char *resident = malloc(bytes / PAGE);
	long sum = 0;

	CHECK(mincore((void *)start, bytes, resident) == 0);
	for (size_t i = 0; i < bytes / PAGE; i++)
		sum += resident[i] & 1;
	free(resident);
	return sum;
}

/* The NUMA node of a physical address, by the list of the pools. */
static int node_of(uint64_t address)
{
	static struct hpmmap_pool_range ranges[256];
	struct hpmmap_pool_list list = {
		.size = sizeof(list), .ranges = (uintptr_t)ranges, .nr = 256, .range_size = sizeof(ranges[0]),
	};
	int fd = open(HPMMAP_DEVICE_PATH, O_RDWR | O_CLOEXEC);

	CHECK(fd >= 0 && ioctl(fd, HPMMAP_IOC_POOL_LIST, &list) == 0);
	close(fd);
	for (uint32_t i = 0; i < list.nr; i++)
		if (address - ranges[i].start < ranges[i].length)
			return ranges[i].node;
	return -1;
}

static void check_runs(char *start, size_t bytes, int node)
{
	static struct hpmmap_physical runs[4096];
	size_t nr = 4096;
	int fd = hpmmap_runs(start, bytes, runs, &nr);

	CHECK(fd >= 0);
	for (size_t i = 0; i < nr; i++) {
		int found = node_of(runs[i].address);

		if (found < 0 || (node >= 0 && found != node))
			errx(1, "%#llx is of NUMA node %d, not %d", (unsigned long long)runs[i].address, found, node);
	}
	close(fd);
}

static void check_policy(char *start, size_t bytes, int node)
{
	unsigned long nodes[16] = { 0 };
	int mode = -1, found = -1;

	for (size_t at = 0; at < bytes; at += SLOT) {
		CHECK(syscall(SYS_get_mempolicy, &found, NULL, 0, start + at, MPOL_F_NODE | MPOL_F_ADDR) == 0);
		CHECK(node < 0 || found == node);
	}
	CHECK(syscall(SYS_get_mempolicy, &mode, nodes, 8 * sizeof(nodes), start, MPOL_F_ADDR) == 0);
	CHECK(node < 0 || (mode == MPOL_BIND && nodes[0] == 1UL << node));
}

static void check_fork(char *start, size_t bytes, int node)
{
	int status;
	pid_t pid;

	for (size_t at = 0; at < bytes; at += SLOT)
		start[at] = 1;
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		for (size_t at = 0; at < bytes; at += SLOT) {
			CHECK(start[at] == 1);
			start[at] = 2;
		}
		/* Copies are where the region is bound to. */
		check_policy(start, bytes, node);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	for (size_t at = 0; at < bytes; at += SLOT)
		CHECK(start[at] == 1);
}

static void check_region(char *start, size_t bytes, int node)
{
	char *again;

	CHECK(touched(start, bytes) == (long)(bytes / PAGE));
	for (size_t at = 0; at < bytes; at += 8)
		CHECK(*(uint64_t *)(start + at) == 0);
	check_policy(start, bytes, node);
	if (geteuid() == 0)
		check_runs(start, bytes, node);
	check_fork(start, bytes < 32 * SLOT ? bytes : 32 * SLOT, node);
	CHECK(mprotect(start, PAGE, PROT_READ) == 0 && mprotect(start, PAGE, PROT_READ | PROT_WRITE) == 0);
	*start = 3;
	/* The last slot, a part of a slot, and something else there. */
	CHECK(munmap(start + bytes - SLOT, SLOT) == 0);
	again = mmap(start + bytes - SLOT, PAGE, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	CHECK(again == start + bytes - SLOT && *again == 0);
	if (bytes > SLOT)
		CHECK(munmap(start + PAGE, PAGE) == 0 && *start == 3);
}

static int check(void)
{
	char *at = getenv("HPMMAP_REGIONS"), *end;

	CHECK(at && *at);
	printf("%s\n", at);
	for (; *at; at = end + (*end == ',')) {
		uintptr_t start = strtoull(at, &end, 16);
		size_t bytes;
		int node = -1;

		CHECK(*end == '+');
		bytes = strtoull(end + 1, &end, 16);
		if (*end == '@')
			node = (int)strtol(end + 1, &end, 10);
		CHECK(!*end || *end == ',');
		check_region((char *)start, bytes, node);
	}
	return 0;
}

/* ---- The library --------------------------------------------------------- */

extern char **environ;

static struct hpmmap_process *create(const char *path, const char *word)
{
	char *argv[] = { (char *)path, (char *)word, NULL };
	struct hpmmap_process *proc = hpmmap_process_create(path, argv, environ, 0);

	CHECK(proc);
	return proc;
}

static void expect_refused(struct hpmmap_process *proc, int want)
{
	int status;

	errno = 0;
	if (hpmmap_process_start(proc) != -1 || errno != want)
		errx(1, "start: %s, not %s", strerror(errno), strerror(want));
	/* It has ended, and there is no zombie. */
	CHECK(kill(hpmmap_process_pid(proc), 0) == -1 && errno == ESRCH);
	CHECK(hpmmap_process_wait(proc, &status) == 0);
	CHECK(hpmmap_process_kill(proc, SIGTERM) == -1 && errno == ESRCH);
	hpmmap_process_free(proc);
}

static bool is_allowed(pid_t pid, int cpu)
{
	cpu_set_t set;

	CHECK(sched_getaffinity(pid, sizeof(set), &set) == 0);
	return CPU_COUNT(&set) == 1 && CPU_ISSET(cpu, &set);
}

static int library(const char *self, const char *fixed)
{
	char *where = (char *)0x200000000000UL;
	unsigned int cpu = 1;
	struct hpmmap_process *proc, *other;
	int status;

	/* Two regions with an address, in any order, and two without. */
	proc = create(self, "check");
	CHECK(kill(hpmmap_process_pid(proc), 0) == 0);
	CHECK(hpmmap_region_add(proc, 16 * SLOT, where, 1) == where);
	CHECK(hpmmap_region_add(proc, 4 * SLOT, where - 4 * SLOT, 0) == where - 4 * SLOT);
	CHECK(hpmmap_region_add(proc, SLOT, NULL, 1) == (void *)0x120000000000UL);
	CHECK(hpmmap_region_add(proc, SLOT, NULL, -1) == (void *)(0x120000000000UL + SLOT));
	CHECK(!hpmmap_region_add(proc, SLOT, where + SLOT, 0) && errno == EINVAL);
	CHECK(!hpmmap_region_add(proc, SLOT + PAGE, NULL, 0) && errno == EINVAL);
	CHECK(!hpmmap_region_add(proc, SLOT, (void *)PAGE, 0) && errno == EINVAL);
	CHECK(!hpmmap_region_add(proc, 1UL << 47, NULL, 0) && errno == EINVAL);
	CHECK(hpmmap_process_wait(proc, &status) == -1 && errno == EINVAL);
	CHECK(hpmmap_process_cpus(proc, &cpu, 1) == 0 && is_allowed(hpmmap_process_pid(proc), 1));
	other = create(self, "check");
	CHECK(hpmmap_process_start(proc) == 0);
	CHECK(hpmmap_process_start(proc) == -1 && errno == EALREADY);
	CHECK(hpmmap_process_wait(proc, &status) == 0 && status == 0);
	CHECK(hpmmap_process_wait(proc, &status) == 0 && status == 0);
	hpmmap_process_free(proc);
	/* Never started. */
	hpmmap_process_free(other);
	hpmmap_process_free(NULL);

	/* It is the program, on its CPU, until it is killed. */
	proc = create("/bin/sleep", "1000");
	CHECK(hpmmap_region_add(proc, 32 * SLOT, where, 0) == where);
	CHECK(hpmmap_process_cpus(proc, &cpu, 1) == 0);
	CHECK(hpmmap_process_start(proc) == 0 && is_allowed(hpmmap_process_pid(proc), 1));
	CHECK(hpmmap_process_kill(proc, SIGKILL) == 0 && hpmmap_process_wait(proc, &status) == 0);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	hpmmap_process_free(proc);

	/* What cannot be. */
	proc = create(self, "check");
	CHECK(hpmmap_region_add(proc, 1UL << 40, NULL, 0));
	expect_refused(proc, ENOMEM);
	proc = create(fixed, "check");
	CHECK(hpmmap_region_add(proc, SLOT, (void *)0x400000UL, 0));
	expect_refused(proc, EEXIST);
	proc = create(self, "check");
	CHECK(hpmmap_region_add(proc, SLOT, NULL, 500));
	expect_refused(proc, EINVAL);
	proc = create("/no/such/program", "check");
	CHECK(hpmmap_region_add(proc, SLOT, NULL, 0));
	expect_refused(proc, ENOENT);
	proc = create(self, "check");
	CHECK(hpmmap_process_kill(proc, SIGKILL) == 0);
	usleep(300 * 1000);
	expect_refused(proc, ESRCH);
	CHECK(!hpmmap_process_create(self, environ, environ, 1U << 31) && errno == EINVAL);
	for (int i = 0; i < HPMMAP_LAUNCH_MAX_REGIONS + 1; i++) {
		if (!i)
			proc = create("/bin/true", NULL);
		CHECK(!hpmmap_region_add(proc, SLOT, NULL, i % 2) == (i == HPMMAP_LAUNCH_MAX_REGIONS));
	}
	CHECK(hpmmap_process_start(proc) == 0 && hpmmap_process_wait(proc, &status) == 0 && status == 0);
	hpmmap_process_free(proc);

	/* Without regions it is a launch. */
	proc = create("/bin/true", NULL);
	CHECK(hpmmap_process_start(proc) == 0 && hpmmap_process_wait(proc, &status) == 0 && status == 0);
	hpmmap_process_free(proc);
	CHECK(waitpid(-1, &status, WNOHANG) == -1 && errno == ECHILD);
	puts("library: all as it should be");
	return 0;
}

/* A creator that ends takes a process that waits with it. */
static int orphan(void)
{
	struct hpmmap_process *proc = create("/bin/true", NULL);

	printf("%d\n", (int)hpmmap_process_pid(proc));
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "check"))
		return check();
	if (argc == 2 && !strcmp(argv[1], "orphan"))
		return orphan();
	if (argc == 3 && !strcmp(argv[1], "library"))
		return library(argv[0], argv[2]);
	errx(2, "usage: regions check | orphan | library FIXED");
}
