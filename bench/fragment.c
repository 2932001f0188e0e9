// SPDX-License-Identifier: GPL-2.0
/*
 * A neighbour for 'hpmmap trace': has so much memory in 4 KB pages, and gives
 * back and takes again some of them, one here and one there, so that what is
 * free is in small pieces.
 *
 *   fragment MEGABYTES
 *
 * Prints "ready" when it has all of it, and goes on until it is killed.
 */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096UL

int main(int argc, char **argv)
{
	size_t bytes = argc == 2 ? strtoul(argv[1], NULL, 10) << 20 : 0;
	char *memory;

	if (!bytes) {
		fprintf(stderr, "usage: fragment MEGABYTES\n");
		return 2;
	}
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		err(1, "mmap of %zu bytes", bytes);
	if (madvise(memory, bytes, MADV_NOHUGEPAGE))
		err(1, "MADV_NOHUGEPAGE");
	memset(memory, 1, bytes);
	/* One page of sixteen is free from the beginning. */
	for (size_t at = 0; at < bytes; at += 16 * PAGE)
		madvise(memory + at, PAGE, MADV_DONTNEED);
	puts("ready");
	fflush(stdout);
	for (;;) {
		size_t give = random() % (bytes / PAGE) * PAGE;
		size_t take = random() % (bytes / PAGE) * PAGE;

		madvise(memory + give, PAGE, MADV_DONTNEED);
		memory[take] = 1;
	}
}
