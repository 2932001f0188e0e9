// SPDX-License-Identifier: GPL-2.0
/*
 * Page faults of known numbers and kinds, for 'hpmmap trace'.
 *
 *   faults [PART...]		all parts if none is named
 *
 * Does everything twice, so that its own code and data are there the second
 * time, and prints of the second time
 *
 *   START <seconds of CLOCK_MONOTONIC>
 *   RANGE <kind> <origin> <pid> <first address> <bytes> <faults>
 */
#include <err.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE	4096UL
#define LARGE	(2UL << 20)
#define THREADS	2

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

struct range {
	const char *kind;
	const char *origin;
	pid_t pid;
	char *start;
	size_t bytes;
	int faults;
};

static struct range ranges[32];
static int nr_ranges;
static bool second;

static void expect(const char *kind, const char *origin, pid_t pid, char *start, size_t bytes, int faults)
{
	if (second)
		ranges[nr_ranges++] = (struct range){ kind, origin, pid, start, bytes, faults };
}

/* Small pages: the range is in the middle of a larger one. */
static char *map(size_t bytes, int flags, int fd)
{
	char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);

	if (p == MAP_FAILED)
		err(1, "mmap");
	return p;
}

static char *map_small(size_t pages)
{
	char *p = map(pages * PAGE, MAP_PRIVATE | MAP_ANONYMOUS, -1);

	if (madvise(p, pages * PAGE, MADV_NOHUGEPAGE))
		err(1, "MADV_NOHUGEPAGE");
	return p;
}

static void write_pages(char *p, size_t bytes, size_t step)
{
	for (size_t at = 0; at < bytes; at += step)
		((volatile char *)p)[at] = 1;
}

static void read_pages(char *p, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += PAGE)
		(void)((volatile char *)p)[at];
}

static void small(void)
{
	char *p = map_small(64);

	write_pages(p, 64 * PAGE, PAGE);
	expect("4k", "user", getpid(), p, 64 * PAGE, 64);
}

/* The zero page, then a copy of it. */
static void zero(void)
{
	char *p = map_small(8), *q = map_small(8);

	read_pages(p, 8 * PAGE);
	expect("4k", "user", getpid(), p, 8 * PAGE, 8);
	read_pages(q, 8 * PAGE);
	write_pages(q, 8 * PAGE, PAGE);
	expect("4k,cow", "user", getpid(), q, 8 * PAGE, 16);
}

static void thp(void)
{
	char *p = map(5 * LARGE, MAP_PRIVATE | MAP_ANONYMOUS, -1);

	p = (char *)(((uintptr_t)p + LARGE - 1) & ~(LARGE - 1));
	if (madvise(p, 4 * LARGE, MADV_HUGEPAGE))
		err(1, "MADV_HUGEPAGE");
	write_pages(p, 4 * LARGE, PAGE);
	expect("2m", "user", getpid(), p, 4 * LARGE, 4);
}

static void hugetlb(void)
{
	char *p = map(2 * LARGE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1);

	write_pages(p, 2 * LARGE, PAGE);
	expect("hugetlb", "user", getpid(), p, 2 * LARGE, 2);
	if (!second)
		munmap(p, 2 * LARGE);
}

static void shared(void)
{
	int fd = memfd_create("faults", MFD_ALLOW_SEALING);
	char *p;

	if (fd < 0 || ftruncate(fd, 32 * PAGE))
		err(1, "memfd");
	p = map(32 * PAGE, MAP_SHARED, fd);
	write_pages(p, 32 * PAGE, PAGE);
	expect("file", "user", getpid(), p, 32 * PAGE, 32);
	close(fd);
}

/* Pages of a file that are written become copies. */
static void private(void)
{
	int fd = memfd_create("faults", MFD_ALLOW_SEALING);
	char *p;

	if (fd < 0 || ftruncate(fd, 16 * PAGE))
		err(1, "memfd");
	p = map(16 * PAGE, MAP_PRIVATE, fd);
	write_pages(p, 16 * PAGE, PAGE);
	expect("cow", "user", getpid(), p, 16 * PAGE, 16);
	close(fd);
}

static void after_fork(void)
{
	char *p = map_small(16);
	pid_t pid;

	write_pages(p, 16 * PAGE, PAGE);
	expect("4k", "user", getpid(), p, 16 * PAGE, 16);
	pid = fork();
	if (pid < 0)
		err(1, "fork");
	if (!pid) {
		write_pages(p, 16 * PAGE, PAGE);
		_exit(0);
	}
	if (waitpid(pid, NULL, 0) != pid)
		err(1, "waitpid");
	expect("cow", "user", pid, p, 16 * PAGE, 16);
}

static void populate(void)
{
	char *p = map_small(10);

	if (madvise(p, 10 * PAGE, MADV_POPULATE_WRITE))
		err(1, "MADV_POPULATE_WRITE");
	expect("4k", "call", getpid(), p, 10 * PAGE, 10);
}

/* The kernel faults for the program. */
static void in_kernel(void)
{
	int fd = open("/dev/zero", O_RDONLY);
	char *p = map_small(4);

	if (fd < 0 || read(fd, p, 4 * PAGE) != 4 * PAGE)
		err(1, "/dev/zero");
	expect("4k", "kernel", getpid(), p, 4 * PAGE, 4);
	close(fd);
}

static void *work(void *p)
{
	write_pages(p, 16 * PAGE, PAGE);
	return NULL;
}

static void threads(void)
{
	pthread_t id[THREADS];
	char *p[THREADS];

	for (int i = 0; i < THREADS; i++) {
		p[i] = map_small(16);
		if (pthread_create(&id[i], NULL, work, p[i]))
			errx(1, "pthread_create");
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(id[i], NULL);
		expect("4k", "user", getpid(), p[i], 16 * PAGE, 16);
	}
}

/* How many pages the kernel really gives up is its own affair: at least one. */
static void swap(void)
{
	char *p = map_small(256);

	write_pages(p, 256 * PAGE, PAGE);
	if (madvise(p, 256 * PAGE, MADV_PAGEOUT))
		err(1, "MADV_PAGEOUT");
	write_pages(p, 256 * PAGE, PAGE);
	expect("4k,swap", "user", getpid(), p, 256 * PAGE, -1);
}

/* Until it is killed, for tests of what is left then. */
static void forever(void)
{
	while (second) {
		char *p = map_small(16);

		write_pages(p, 16 * PAGE, PAGE);
		munmap(p, 16 * PAGE);
		usleep(1000);
	}
}

static const struct part {
	const char *name;
	void (*run)(void);
	bool asked_only;
} parts[] = {
	{ "small", small, false },	 { "zero", zero, false },
	{ "thp", thp, false },		 { "hugetlb", hugetlb, true },
	{ "shared", shared, false },	 { "private", private, false },
	{ "fork", after_fork, false },	 { "populate", populate, false },
	{ "kernel", in_kernel, false },	 { "threads", threads, false },
	{ "swap", swap, true },		 { "forever", forever, true },
};
#define NR_PARTS (sizeof(parts) / sizeof(parts[0]))

static bool is_asked(const struct part *part, char **names)
{
	if (!*names)
		return !part->asked_only;
	for (; *names; names++)
		if (!strcmp(*names, part->name))
			return true;
	return false;
}

static void run_parts(char **names)
{
	for (size_t i = 0; i < NR_PARTS; i++)
		if (is_asked(&parts[i], names))
			parts[i].run();
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	double start;

	for (int i = 1; i < argc; i++) {
		size_t n = 0;

		while (n < NR_PARTS && strcmp(argv[i], parts[n].name))
			n++;
		if (n == NR_PARTS)
			errx(2, "unknown part '%s'", argv[i]);
	}
	/* What prints has to be there, too. */
	dprintf(STDOUT_FILENO, "FAULTS %.6f %s %p %zu %d\n", now(), "first", (void *)argv, PAGE, argc);
	run_parts(argv + 1);
	second = true;
	start = now();
	run_parts(argv + 1);
	dprintf(STDOUT_FILENO, "START %.9f\n", start);
	for (int i = 0; i < nr_ranges; i++) {
		const struct range *r = &ranges[i];

		dprintf(STDOUT_FILENO, "RANGE %s %s %d %p %zu %d\n", r->kind, r->origin, r->pid,
			(void *)r->start, r->bytes, r->faults);
	}
	/* The code that ends a program has not been used before. */
	_exit(0);
}
