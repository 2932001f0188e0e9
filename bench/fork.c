// SPDX-License-Identifier: GPL-2.0
/*
 * fork: what does it cost a process with much memory to start another?
 *
 * Maps a region, writes to every page of it, and then, repeatedly, forks,
 * lets the child execute a program and waits for it; afterwards every page is
 * written to once more. A second pass over the pages finds everything in
 * place and is taken off. Time is the time stamp counter, which counts
 * instructions in a guest as bench/README.md says.
 *
 * Then a child lives on, as one that saves a snapshot does, while the parent
 * writes to few pages, scattered, to more and to a quarter of them.
 *
 * Prints one JSON object for each repetition, and for each kind of writes;
 * bench/README.md describes the members. The first fork differs: afterwards
 * Linux has split what was mapped by large pages.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <x86intrin.h>

#define PAGE	(4UL << 10)
#define LARGE	(2UL << 20)

static void die(const char *what)
{
	fprintf(stderr, "fork: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t ticks(void)
{
	unsigned int aux;

	return __rdtscp(&aux);
}

static __attribute__((noinline)) uint64_t touch(volatile char *p, size_t size)
{
	uint64_t start = ticks();

	for (size_t at = 0; at < size; at += PAGE)
		p[at] = 1;
	return ticks() - start;
}

static long faults(void)
{
	struct rusage usage;

	if (getrusage(RUSAGE_SELF, &usage))
		die("getrusage");
	return usage.ru_minflt + usage.ru_majflt;
}

/* Without a program the child just ends. */
static void start_child(char *const argv[])
{
	if (argv[0]) {
		execv(argv[0], argv);
		_exit(127);
	}
	_exit(0);
}

static void measure(const char *method, volatile char *p, size_t size,
		    char *const argv[], int repetition)
{
	uint64_t t0, t1, t2, after, warm;
	long before;
	int status;
	pid_t pid;

	before = faults();
	t0 = ticks();
	pid = fork();
	if (pid < 0)
		die("fork");
	if (!pid)
		start_child(argv);
	t1 = ticks();
	if (waitpid(pid, &status, 0) != pid || status)
		die("the child");
	t2 = ticks();
	after = touch(p, size);
	before = faults() - before;
	warm = touch(p, size);
	printf("{\"method\": \"%s\", \"repetition\": %d, \"size_bytes\": %zu, "
	       "\"fork\": %" PRIu64 ", \"total\": %" PRIu64
	       ", \"after\": %" PRIu64 ", \"faults\": %ld}\n",
	       method, repetition, size, t1 - t0, t2 - t0,
	       after > warm ? after - warm : 0, before);
	fflush(stdout);
}

/* Instructions to write to one page of @every, in no order that tells the next. */
static __attribute__((noinline)) uint64_t scatter(volatile char *p, size_t size,
						  size_t every)
{
	size_t pages = size / PAGE, nr = pages / every;
	uint64_t start = ticks();

	/* The golden ratio: far apart, and each page once. */
	for (size_t i = 0, at = 0; i < nr; i++) {
		at = (at + (pages * 5 / 8 | 1)) % pages;
		p[at * PAGE] = 1;
	}
	return ticks() - start;
}

/* What a snapshot costs who goes on writing, while there is a child that has it. */
static void measure_snapshot(const char *method, volatile char *p, size_t size,
			     size_t every)
{
	int end[2], status;
	uint64_t cost, warm, gone;
	long before;
	pid_t pid;
	char byte;

	if (pipe(end))
		die("pipe");
	pid = fork();
	if (pid < 0)
		die("fork");
	if (!pid) {
		close(end[1]);
		_exit(read(end[0], &byte, 1) != 0);
	}
	before = faults();
	cost = scatter(p, size, every);
	before = faults() - before;
	warm = scatter(p, size, every);
	close(end[0]);
	gone = ticks();
	close(end[1]);
	if (waitpid(pid, &status, 0) != pid || status)
		die("the child");
	gone = ticks() - gone;
	printf("{\"method\": \"%s\", \"snapshot_writes\": %zu, \"size_bytes\": %zu, "
	       "\"writes\": %" PRIu64 ", \"gone\": %" PRIu64 ", \"faults\": %ld}\n",
	       method, size / PAGE / every, size, cost > warm ? cost - warm : 0,
	       gone, before);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	char *end, *p;
	size_t size;
	int repeat;

	if (argc < 4) {
		fputs("usage: fork METHOD BYTES REPEAT [PROGRAM ARGUMENT...]\n"
		      "methods: 4k, thp, hpmmap, hpmmap-strict\n", stderr);
		return 2;
	}
	size = strtoull(argv[2], &end, 10);
	repeat = atoi(argv[3]);
	if (*end || !size || size % LARGE || repeat < 1) {
		fputs("fork: BYTES must be a multiple of 2097152, REPEAT at least 1\n",
		      stderr);
		return 2;
	}
	p = mmap(NULL, size + LARGE, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		die("mmap");
	p = (char *)(((uintptr_t)p + LARGE - 1) & ~(LARGE - 1));
	if (strncmp(argv[1], "hpmmap", strlen("hpmmap")) &&
	    madvise(p, size, strcmp(argv[1], "thp") ? MADV_NOHUGEPAGE :
						      MADV_HUGEPAGE))
		die("madvise");
	touch(p, size);
	for (int i = 0; i < repeat; i++)
		measure(argv[1], p, size, argv + 4, i);
	for (size_t every = 1024; every; every = every / 16)
		measure_snapshot(argv[1], p, size, every);
	return 0;
}
