// SPDX-License-Identifier: GPL-2.0
/*
 * A known number of calls: counted MMAPS MIB [FORKS BLOCKS [MREMAPS BRKS]]
 *
 * Maps MMAPS pieces of MIB megabytes and writes to each page. Each of FORKS
 * children then writes to BLOCKS blocks of the first piece. MREMAPS times a
 * mapping grows by 2 MB and moves, BRKS times the heap grows by 2 MB. Prints how
 * many of the mmaps failed with ENOMEM, and the address of the first piece.
 */
#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCK (2UL << 20)

static long argument(int argc, char **argv, int i)
{
	return i < argc ? atol(argv[i]) : 0;
}

static void *map(size_t len)
{
	return mmap(NULL, len, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void write_pages(char *p, size_t len)
{
	size_t i;

	for (i = 0; i < len; i += 4096)
		*(volatile char *)(p + i) = 1;
}

static void fork_once(char *p, long blocks)
{
	pid_t pid = fork();
	int status;
	long i;

	if (pid < 0)
		err(1, "fork");
	if (!pid) {
		for (i = 0; i < blocks; i++)
			*(volatile char *)(p + i * BLOCK) = 2;
		_exit(0);
	}
	if (waitpid(pid, &status, 0) != pid || status)
		errx(1, "a child ended with %#x", status);
}

int main(int argc, char **argv)
{
	long mmaps = argument(argc, argv, 1);
	size_t len = argument(argc, argv, 2) << 20;
	long forks = argument(argc, argv, 3), blocks = argument(argc, argv, 4);
	long mremaps = argument(argc, argv, 5), brks = argument(argc, argv, 6);
	char *first = NULL;
	long failed = 0;

	for (; mmaps > 0; mmaps--) {
		char *p = map(len);

		if (p == MAP_FAILED) {
			if (errno != ENOMEM)
				err(1, "mmap");
			failed++;
			continue;
		}
		write_pages(p, len);
		if (!first)
			first = p;
	}
	for (; forks > 0; forks--)
		fork_once(first, blocks);
	if (mremaps) {
		size_t size = BLOCK;
		char *p = map(size);

		for (; p != MAP_FAILED && mremaps > 0; mremaps--) {
			p = mremap(p, size, size + BLOCK, MREMAP_MAYMOVE);
			size += BLOCK;
		}
		if (p == MAP_FAILED)
			err(1, "mremap");
		write_pages(p, size);
	}
	for (; brks > 0; brks--)
		if (sbrk(BLOCK) == (void *)-1)
			err(1, "brk");
	printf("%ld %lu\n", failed, (unsigned long)first);
	return 0;
}
