// SPDX-License-Identifier: GPL-2.0
/*
 * windows: what a window onto another process's memory costs, in instructions.
 *
 * A child is executed anew, maps a region, writes to every page, and publishes it; the
 * parent attaches it, at once and lazily, reads from it beside process_vm_readv(2), and has
 * the child fork, unmap and map with and without a window. Each figure is that of a second
 * run: the first one finds caches of the kernel empty. Time is the time stamp counter, which
 * counts instructions in a guest as README.md says; of what the child does it is the
 * child's own.
 *
 *	windows MIB
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <x86intrin.h>

#include "../kernel/uapi/hpmmap_xpmem.h"

#define PAGE	(4UL << 10)
#define LARGE	(2UL << 20)
#define MIB	(1UL << 20)
#define COPIED	(64 * MIB)
#define GROWN	(16 * MIB)

enum wish { MAP, GROW, FORK, UNMAP, MAP_OTHER };

static int device = -1, channel;
static size_t size;

static void die(const char *what)
{
	fprintf(stderr, "windows: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t ticks(void)
{
	unsigned int aux;

	return __rdtscp(&aux);
}

static long faults(void)
{
	struct rusage usage;

	if (getrusage(RUSAGE_SELF, &usage))
		die("getrusage");
	return usage.ru_minflt + usage.ru_majflt;
}

static void touch(volatile char *p, size_t len, size_t step)
{
	for (size_t at = 0; at < len; at += step)
		p[at] = 1;
}

static char *map(void *at, size_t len)
{
	char *p = mmap(at, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS |
		       (at ? MAP_FIXED_NOREPLACE : 0), -1, 0);

	if (p == MAP_FAILED)
		die("mmap");
	return p;
}

static void command(unsigned long cmd, void *arg, const char *what)
{
	if (device < 0)
		device = open("/dev/xpmem", O_RDWR | O_CLOEXEC);
	if (device < 0 || ioctl(device, cmd, arg))
		die(what);
}

/* The child, which has the memory. */
static uint64_t grant(enum wish wish)
{
	static char *p;
	uint64_t start, answer = 0;
	pid_t child;

	switch (wish) {
	case MAP:
		/* With room below it to grow into. */
		p = map(NULL, size + GROWN) + GROWN;
		munmap(p - GROWN, GROWN);
		touch(p, size, PAGE);
		answer = (uintptr_t)p;
		break;
	case GROW:
		touch(map(p - GROWN, GROWN), GROWN, PAGE);
		break;
	case FORK:
		start = ticks();
		child = fork();
		if (!child)
			_exit(0);
		if (child < 0 || waitpid(child, NULL, 0) != child)
			die("fork");
		answer = ticks() - start;
		/* What is shared no more is the child's own again. */
		touch(p, size, LARGE);
		break;
	case UNMAP:
		start = ticks();
		munmap(p, size);
		answer = ticks() - start;
		break;
	case MAP_OTHER:
		start = ticks();
		munmap(map(NULL, COPIED), COPIED);
		answer = ticks() - start;
		break;
	}
	return answer;
}

static void serve(void)
{
	struct xpmem_cmd_make make = {
		.size = XPMEM_ABI_MAXADDR_SIZE,
		.permit_type = XPMEM_ABI_PERMIT_MODE,
		.permit_value = 0600,
	};
	uint64_t wish, answer;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	command(XPMEM_CMD_MAKE, &make, "make");
	if (write(channel, &make.segid, sizeof(make.segid)) != sizeof(make.segid))
		die("write");
	while (read(channel, &wish, sizeof(wish)) == sizeof(wish)) {
		answer = grant(wish);
		if (write(channel, &answer, sizeof(answer)) != sizeof(answer))
			die("write");
	}
	exit(0);
}

static uint64_t ask(uint64_t wish)
{
	if (write(channel, &wish, sizeof(wish)) != sizeof(wish) ||
	    read(channel, &wish, sizeof(wish)) != sizeof(wish))
		die("the child");
	return wish;
}

/* The second of two. */
static uint64_t ask_twice(uint64_t wish)
{
	ask(wish);
	return ask(wish);
}

static char *attach(int64_t apid, uint64_t at, size_t len, int flags)
{
	struct xpmem_cmd_attach cmd = { .apid = apid, .offset = at, .size = len, .flags = flags };

	command(XPMEM_CMD_ATTACH, &cmd, "attach");
	return (char *)(uintptr_t)cmd.vaddr;
}

static void detach(char *p)
{
	uint64_t at = (uintptr_t)p;

	command(XPMEM_CMD_DETACH, &at, "detach");
}

static void show(const char *what, double count)
{
	printf("%-52s %14.0f\n", what, count);
}

static void measure_attach(int64_t apid, uint64_t there)
{
	uint64_t start, cost[3] = {};
	long before = 0;
	char *p;

	for (int i = 0; i < 2; i++) {
		start = ticks();
		p = attach(apid, there, size, XPMEM_ABI_POPULATE);
		cost[0] = ticks() - start;
		before = faults();
		touch(p, size, LARGE);
		before = faults() - before;
		start = ticks();
		detach(p);
		cost[1] = ticks() - start;
	}
	show("attach, populated", cost[0]);
	show("  page faults afterwards", before);
	show("detach", cost[1]);
	for (int i = 0; i < 2; i++) {
		start = ticks();
		p = attach(apid, there, size, 0);
		cost[0] = ticks() - start;
		before = faults();
		start = ticks();
		touch(p, size, LARGE);
		cost[1] = ticks() - start;
		before = faults() - before;
		start = ticks();
		touch(p, size, LARGE);
		cost[2] = ticks() - start;
		detach(p);
	}
	show("attach, lazily", cost[0]);
	show("  first touch of each 2 MB", cost[1] - cost[2]);
	show("  page faults", before);
}

/* Reads the same from the window and by a call, in pieces. */
static void measure_pieces(const char *window, uint64_t there, pid_t child, char *to)
{
	char title[64];

	for (size_t piece = PAGE; piece <= COPIED; piece *= piece == PAGE ? 16 : 1024) {
		size_t nr = COPIED / piece < 64 ? COPIED / piece : 64;
		uint64_t start, call = 0, copy = 0;

		for (int i = 0; i < 2; i++) {
			start = ticks();
			for (size_t at = 0; at < nr * piece; at += piece) {
				struct iovec local = { to + at, piece };
				struct iovec remote = { (void *)(there + at), piece };

				if (process_vm_readv(child, &local, 1, &remote, 1, 0) !=
				    (ssize_t)piece)
					die("process_vm_readv");
			}
			call = ticks() - start;
			start = ticks();
			for (size_t at = 0; at < nr * piece; at += piece)
				memcpy(to + at, window + at, piece);
			copy = ticks() - start;
		}
		snprintf(title, sizeof(title), "read %zu KB by process_vm_readv", piece >> 10);
		show(title, (double)call / nr);
		snprintf(title, sizeof(title), "read %zu KB from a populated window", piece >> 10);
		show(title, (double)copy / nr);
	}
}

static void measure_growth(const char *window)
{
	long before = faults();

	ask(GROW);
	for (size_t at = 0; at < GROWN; at += PAGE)
		if (window[at] != 1)
			die("what has grown is not there");
	show("page faults for 16 MB that the target has grown by", faults() - before);
}

int main(int argc, char **argv)
{
	struct xpmem_cmd_get get = { .flags = XPMEM_ABI_RDWR, .permit_type = XPMEM_ABI_PERMIT_MODE };
	char number[16], *p, *to;
	uint64_t there;
	int fds[2];
	pid_t child;

	if (argc < 2)
		die("windows MIB");
	size = strtoul(argv[1], NULL, 10) * MIB;
	if (argc > 2) {
		channel = atoi(argv[2]);
		serve();
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds))
		die("socketpair");
	child = fork();
	if (!child) {
		snprintf(number, sizeof(number), "%d", fds[1]);
		close(fds[0]);
		execl("/proc/self/exe", argv[0], argv[1], number, NULL);
		die("exec");
	}
	close(fds[1]);
	channel = fds[0];
	if (read(channel, &get.segid, sizeof(get.segid)) != sizeof(get.segid))
		die("the child");

	show("target: map and unmap 64 MB, no window", ask_twice(MAP_OTHER));
	there = ask(MAP);
	show("target: fork, exit, wait, no window", ask_twice(FORK));
	command(XPMEM_CMD_GET, &get, "get");
	measure_attach(get.apid, there);
	p = attach(get.apid, there - GROWN, size + GROWN, XPMEM_ABI_POPULATE);
	to = map(NULL, COPIED);
	touch(to, COPIED, PAGE);
	measure_pieces(p + GROWN, there, child, to);
	measure_growth(p);
	show("target: map and unmap 64 MB, with a window elsewhere", ask_twice(MAP_OTHER));
	show("target: fork, exit, wait, with a window", ask_twice(FORK));
	touch(p + GROWN, size, LARGE);
	show("target: unmap all, with a window", ask(UNMAP));
	detach(p);
	ask(MAP);
	show("target: unmap all, no window", ask(UNMAP));
	return 0;
}
