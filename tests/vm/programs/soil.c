// SPDX-License-Identifier: GPL-2.0
/*
 * Processes that write to memory and give it up; for the scenario soiling.
 *
 *   soil map MB ROUNDS		map so much, write to it, unmap it; so often
 *   soil discard MB ROUNDS	map it once, write to it, discard its contents
 *   soil fork MB ROUNDS	as map, each time in a child, which ends then
 *   soil hold MB		map it once, and check that it is zero
 *
 * Each of them says "ready" and its PID then, and waits for its end.
 */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static char *map(size_t bytes)
{
	char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		err(1, "mmap");
	return p;
}

static void check_zero(const char *p, size_t bytes)
{
	if (*p || memcmp(p, p + 1, bytes - 1))
		errx(1, "new memory is not zero");
}

static void in_child(size_t bytes)
{
	int status;
	pid_t pid = fork();

	if (pid < 0)
		err(1, "fork");
	if (!pid) {
		char *p = map(bytes);

		memset(p, 1, 1);
		if (munmap(p, bytes))
			_exit(1);
		_exit(0);
	}
	if (waitpid(pid, &status, 0) != pid || status)
		errx(1, "a child failed");
}

int main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[1] : "";
	size_t bytes = argc > 2 ? strtoul(argv[2], NULL, 0) << 20 : 0;
	unsigned long rounds = argc > 3 ? strtoul(argv[3], NULL, 0) : 1;
	int discard = !strcmp(what, "discard"), children = !strcmp(what, "fork");
	char *p = NULL;

	if (!bytes || (!discard && !children && strcmp(what, "map") && strcmp(what, "hold")))
		errx(2, "usage: soil map|discard|fork MB ROUNDS, soil hold MB");
	for (unsigned long i = 0; i < rounds; i++) {
		if (children) {
			in_child(bytes);
			continue;
		}
		if (!p)
			p = map(bytes);
		/* Some of them: it takes its time here. */
		if (i % 64 == 0)
			check_zero(p, bytes);
		if (*what == 'h')
			break;
		p[bytes - 1 - i % 4096] = p[i % 4096] = 1;
		if (discard) {
			if (madvise(p, bytes, MADV_DONTNEED))
				err(1, "madvise");
		} else {
			if (munmap(p, bytes))
				err(1, "munmap");
			p = NULL;
		}
	}
	printf("ready %d\n", getpid());
	fflush(stdout);
	pause();
	return 1;
}
