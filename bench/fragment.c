// SPDX-License-Identifier: GPL-2.0
/*
 * A neighbour that makes memory hard to get: has so much of it in 4 KB pages, and
 * gives back and takes again some of them, one here and one there, so that what is
 * free is in small pieces. With a file it also reads that over and over, so that
 * Linux keeps what is left full of the file's pages.
 *
 *   fragment MEGABYTES [FILE]
 *
 * Prints "ready" when it has all of it, and goes on until it is killed.
 */
#include <err.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096UL
#define CHUNK (1UL << 20)
/* Linux keeps some memory free whatever there is to keep. */
#define FULL 16
/* One page of its own to so many of the file. */
#define BETWEEN 16
/* With a file: so much at once, then it rests, for the job needs the CPU, too. */
#define AT_ONCE 64

static void rest(void)
{
	const struct timespec moment = { .tv_nsec = 4000000 };

	nanosleep(&moment, NULL);
}

/* Whether so little is free that Linux has to give up something for what is new. */
static int is_full(void)
{
	struct sysinfo now;

	return sysinfo(&now) || now.freeram < now.totalram / FULL;
}

/* The next piece of the file; 0 at its end, where the next call begins anew. */
static size_t read_on(int fd, char *buffer)
{
	ssize_t got = read(fd, buffer, CHUNK);

	if (got < 0)
		err(1, "read");
	if (!got && lseek(fd, 0, SEEK_SET))
		err(1, "lseek");
	return got;
}

/*
 * Fills what is free with the file, and takes pages of @memory in between, so that they
 * lie all over it; then leaves a child that keeps it full.
 */
static void keep_full(const char *path, char *memory, size_t bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char *buffer = malloc(CHUNK);
	size_t at = 0;

	if (fd < 0 || !buffer)
		err(1, "%s", path);
	while (!is_full() && read_on(fd, buffer))
		for (size_t end = at + CHUNK / BETWEEN; at < end && at < bytes; at += PAGE)
			memory[at] = 1;
	switch (fork()) {
	case -1:
		err(1, "fork");
	case 0:
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() == 1)
			exit(1);
		for (;; rest())
			read_on(fd, buffer);
	}
}

int main(int argc, char **argv)
{
	size_t bytes = argc > 1 ? strtoul(argv[1], NULL, 10) << 20 : 0;
	char *memory;

	if (!bytes || argc > 3) {
		fprintf(stderr, "usage: fragment MEGABYTES [FILE]\n");
		return 2;
	}
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		err(1, "mmap of %zu bytes", bytes);
	if (madvise(memory, bytes, MADV_NOHUGEPAGE))
		err(1, "MADV_NOHUGEPAGE");
	if (argc == 3)
		keep_full(argv[2], memory, bytes);
	memset(memory, 1, bytes);
	/* One page of sixteen is free from the beginning. */
	for (size_t at = 0; at < bytes; at += 16 * PAGE)
		madvise(memory + at, PAGE, MADV_DONTNEED);
	puts("ready");
	fflush(stdout);
	for (size_t n = 1;; n++) {
		size_t give = random() % (bytes / PAGE) * PAGE;
		size_t take = random() % (bytes / PAGE) * PAGE;

		madvise(memory + give, PAGE, MADV_DONTNEED);
		memory[take] = 1;
		if (argc == 3 && n % AT_ONCE == 0)
			rest();
	}
}
