// SPDX-License-Identifier: GPL-2.0
/*
 * alloc: what does it cost to get memory, touch every page of it and give it
 * back?
 *
 * Maps a region, touches each 4 KB page once, unmaps it. The touch loop runs
 * a second time over the mapped region; that pass costs the same but finds
 * every page in place, so it is taken off. Time is the time stamp counter.
 * In a guest with one CPU and `-icount shift=0` the counter grows by one with
 * each instruction executed, in kernel and user mode, and the figures are
 * counts of instructions.
 *
 * One repetition ahead is not counted. Prints one JSON object for each of the
 * others; bench/README.md describes the members.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <linux/perf_event.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <x86intrin.h>

#include "marker.h"

#define SMALL_PAGE	(4UL << 10)
#define LARGE_PAGE	(2UL << 20)

struct method {
	const char *name;
	int mmap_flags;		/* on top of MAP_PRIVATE | MAP_ANONYMOUS */
	int advice;		/* for madvise before the first touch; -1: none */
	bool populate;		/* fill within the call, before the first touch */
};

/*
 * With an advice, MADV_POPULATE_WRITE fills the region after the advice is
 * given: MAP_POPULATE would fill it before, with the wrong page size.
 */
static const struct method methods[] = {
	{ "4k",			0,		MADV_NOHUGEPAGE, false },
	{ "4k-populate",	0,		MADV_NOHUGEPAGE, true },
	{ "thp",		0,		MADV_HUGEPAGE,	 false },
	{ "thp-populate",	0,		MADV_HUGEPAGE,	 true },
	{ "hugetlb",		MAP_HUGETLB,	-1,		 false },
	{ "hugetlb-populate",	MAP_HUGETLB | MAP_POPULATE, -1,	 false },
	/* Run under `hpmmap run`: the plain call of an unmodified program. */
	{ "hpmmap",		0,		-1,		 false },
};

struct sample {
	uint64_t map;
	uint64_t touch;		/* loop cost taken off */
	uint64_t unmap;
	uint64_t loop;
	uint64_t worst_touch;	/* cost of a touch that finds its page taken off */
	uint64_t faults;
};

static void die(const char *what)
{
	fprintf(stderr, "alloc: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* A counter of this process's page faults, user and kernel mode. */
static int open_fault_counter(void)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_SW_PAGE_FAULTS,
	};
	long fd = syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);

	if (fd < 0)
		die("perf_event_open for page faults");
	return fd;
}

static uint64_t read_fault_counter(int fd)
{
	uint64_t count;

	if (read(fd, &count, sizeof(count)) != sizeof(count))
		die("read of the page fault counter");
	return count;
}

/* Serialised, so that nothing before it is still to be counted. */
static inline uint64_t ticks(void)
{
	unsigned int aux;

	return __rdtscp(&aux);
}

/*
 * One write to each 4 KB page; @worst is the largest single one. Not inlined:
 * both passes must run the same instructions.
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

static uint64_t minus(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

/*
 * A place aligned to 2 MB, which transparent huge pages need and mmap does not
 * promise. Nothing else of the process maps memory until it is used.
 */
static void *aligned_place(size_t size)
{
	size_t span = size + LARGE_PAGE;
	char *p = mmap(NULL, span, PROT_NONE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		die("reservation of addresses");
	if (munmap(p, span))
		die("munmap of the reservation");
	return (void *)(((uintptr_t)p + LARGE_PAGE - 1) & ~(LARGE_PAGE - 1));
}

static void measure(const struct method *m, size_t size, int faults_fd,
		    struct sample *s)
{
	void *place = m->advice >= 0 ? aligned_place(size) : NULL;
	uint64_t t0, t1, t2, warm_worst, faults;
	char *p;

	faults = read_fault_counter(faults_fd);
	t0 = ticks();
	MARKER(1);
	p = mmap(place, size, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | m->mmap_flags |
		 (place ? MAP_FIXED_NOREPLACE : 0), -1, 0);
	if (p == MAP_FAILED)
		die("mmap");
	if (m->advice >= 0 && madvise(p, size, m->advice))
		die("madvise for the page size");
	if (m->populate && madvise(p, size, MADV_POPULATE_WRITE))
		die("madvise(MADV_POPULATE_WRITE)");
	MARKER(0);
	t1 = ticks();
	s->map = t1 - t0;

	MARKER(2);
	s->touch = touch(p, size, &s->worst_touch);
	MARKER(0);
	s->faults = read_fault_counter(faults_fd) - faults;
	s->loop = touch(p, size, &warm_worst);
	s->touch = minus(s->touch, s->loop);
	/* The worst warm touch may hold a timer tick: use the mean. */
	s->worst_touch = minus(s->worst_touch, s->loop / (size / SMALL_PAGE));

	t1 = ticks();
	MARKER(3);
	if (munmap(p, size))
		die("munmap");
	MARKER(0);
	t2 = ticks();
	s->unmap = t2 - t1;
}

static const struct method *find_method(const char *name)
{
	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
		if (!strcmp(methods[i].name, name))
			return &methods[i];
	return NULL;
}

static void usage(void)
{
	fputs("usage: alloc --method NAME [--size BYTES] [--repeat N]\n"
	      "methods:", stderr);
	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
		fprintf(stderr, " %s", methods[i].name);
	fputc('\n', stderr);
	exit(2);
}

static uint64_t number(const char *option, const char *text)
{
	char *end;
	unsigned long long n;

	errno = 0;
	n = strtoull(text, &end, 10);
	if (errno || !n || *end || *text == '-') {
		fprintf(stderr, "alloc: %s %s: must be a whole number above 0\n",
			option, text);
		exit(2);
	}
	return n;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "method", required_argument, NULL, 'm' },
		{ "size", required_argument, NULL, 's' },
		{ "repeat", required_argument, NULL, 'r' },
		{ 0 },
	};
	const struct method *m = NULL;
	uint64_t size = 128UL << 20, repeat = 3;
	int fd, c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 'm':
			m = find_method(optarg);
			if (!m)
				usage();
			break;
		case 's':
			size = number("--size", optarg);
			break;
		case 'r':
			repeat = number("--repeat", optarg);
			break;
		default:
			usage();
		}
	}
	if (!m || optind != argc)
		usage();
	if (size % LARGE_PAGE) {
		fprintf(stderr, "alloc: --size %" PRIu64
			": must be a multiple of %lu\n", size, LARGE_PAGE);
		return 2;
	}

	fd = open_fault_counter();
	/* The first time sets up page tables and lists that then stay. */
	measure(m, size, fd, &(struct sample){ 0 });
	for (uint64_t i = 0; i < repeat; i++) {
		struct sample s;

		measure(m, size, fd, &s);
		printf("{\"method\": \"%s\", \"repetition\": %" PRIu64
		       ", \"size_bytes\": %" PRIu64 ", \"map\": %" PRIu64
		       ", \"touch\": %" PRIu64 ", \"unmap\": %" PRIu64
		       ", \"loop\": %" PRIu64 ", \"total\": %" PRIu64
		       ", \"worst_touch\": %" PRIu64 ", \"faults\": %" PRIu64
		       "}\n",
		       m->name, i, size, s.map, s.touch, s.unmap, s.loop,
		       s.map + s.touch + s.unmap, s.worst_touch, s.faults);
		fflush(stdout);
	}
	return 0;
}
