// SPDX-License-Identifier: GPL-2.0
/*
 * ranks BYTES CALLS...: a process on each CPU maps, touches and unmaps so much, so often, at the same
 * time as all others, for each size between two markers: the first, the second (at most seven).
 */
#define _GNU_SOURCE
#include <err.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "alloc/marker.h"

#define PAGE 4096
/* Before: all ranks together leave blocks of the whole pool unclean, and stocks are filled. */
#define WARM_UP (512UL << 20)
/* The file of the page that all have in common. */
#define MEETING 9

static atomic_int *arrived;
static int nr;

/* All are here: @turn-th time. */
static void meet(int turn)
{
	atomic_fetch_add(arrived, 1);
	while (atomic_load(arrived) < turn * nr)
		sched_yield();
}

static void cycles(int calls, size_t bytes)
{
	while (calls--) {
		char *mem;

		MARKER(128);
		mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (mem == MAP_FAILED)
			err(1, "mmap of %zu bytes", bytes);
		for (size_t at = 0; at < bytes; at += PAGE)
			mem[at] = 1;
		MARKER(128);
		if (munmap(mem, bytes))
			err(1, "munmap");
	}
}

static void mark(int number)
{
	switch (number) {
	case 0: MARKER(0); break;
	case 1: MARKER(1); break;
	case 2: MARKER(2); break;
	case 3: MARKER(3); break;
	case 4: MARKER(4); break;
	case 5: MARKER(5); break;
	case 6: MARKER(6); break;
	default: MARKER(7); break;
	}
}

static void rank(int cpu, int sizes, char **arg)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		err(1, "CPU %d", cpu);
	for (int i = 0; i < sizes; i++) {
		size_t bytes = strtoul(arg[2 * i], NULL, 0);

		cycles(1 + WARM_UP / bytes, bytes);
		meet(2 * i + 1);
		mark(i + 1);
		cycles(atoi(arg[2 * i + 1]), bytes);
		mark(0);
		meet(2 * i + 2);
	}
}

int main(int argc, char **argv)
{
	const char *which = getenv("RANK");
	int status = 0, failed = 0, fd = MEETING;

	if (argc < 3 || argc > 15 || !(argc & 1))
		errx(2, "usage: ranks BYTES CALLS..., at most seven pairs");
	nr = sysconf(_SC_NPROCESSORS_ONLN);
	if (!which) {
		fd = memfd_create("meeting", 0);
		if (fd < 0 || ftruncate(fd, PAGE) || dup2(fd, MEETING) < 0)
			err(1, "memfd");
	}
	arrived = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, MEETING, 0);
	if (arrived == MAP_FAILED)
		err(1, "mmap");
	if (which) {
		rank(atoi(which), argc / 2, argv + 1);
		return 0;
	}
	/* Each executes the program anew, as ranks do: they have no memory in common. */
	for (int cpu = 0; cpu < nr; cpu++) {
		pid_t pid = fork();
		char number[16];

		if (pid < 0)
			err(1, "fork");
		if (pid)
			continue;
		snprintf(number, sizeof(number), "%d", cpu);
		setenv("RANK", number, 1);
		execv("/proc/self/exe", argv);
		err(1, "exec");
	}
	while (wait(&status) > 0)
		failed |= status;
	return failed ? 1 : 0;
}
