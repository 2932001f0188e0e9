// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that is found again in a dump.
 *
 *   marker fill NAME MEGABYTES   holds so much, each page begins with a mark
 *   marker count NAME...         how many different pages with the mark of each
 *                                name its input has
 *
 * The mark is put together when it is needed, so that the program itself has none.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096UL
#define MARK_BYTES 32
#define MAX_PAGES (1UL << 20)
#define MAX_NAMES 4
#define BUFFER (1UL << 20)

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void mark_make(char mark[MARK_BYTES], const char *name)
{
	const char *head = "DUMP";

	memset(mark, '_', MARK_BYTES);
	memcpy(mark, head, strlen(head));
	memcpy(mark + 4, "HPMMAP", 6);
	memcpy(mark + 12, name, strnlen(name, MARK_BYTES - 12));
}

static int fill(const char *name, unsigned long bytes)
{
	char mark[MARK_BYTES];
	char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		die("mmap");
	mark_make(mark, name);
	for (unsigned long i = 0; i < bytes / PAGE; i++) {
		uint64_t number = i;

		memset(memory + i * PAGE, 'a' + i % 26, PAGE);
		memcpy(memory + i * PAGE, mark, MARK_BYTES);
		memcpy(memory + i * PAGE + MARK_BYTES, &number, sizeof(number));
	}
	/* It lies on the stack only while it is looked for. */
	explicit_bzero(mark, sizeof(mark));
	printf("%s: %lu pages\n", name, bytes / PAGE);
	fflush(stdout);
	pause();
	return 0;
}

static int count(int names, char **name)
{
	const size_t whole = MARK_BYTES + sizeof(uint64_t);
	char marks[MAX_NAMES][MARK_BYTES];
	unsigned char *seen[MAX_NAMES];
	unsigned long found[MAX_NAMES] = {};
	char *buffer = malloc(BUFFER);
	size_t have = 0;
	ssize_t got;

	if (!buffer || names > MAX_NAMES)
		die("count");
	for (int n = 0; n < names; n++) {
		mark_make(marks[n], name[n]);
		seen[n] = calloc(MAX_PAGES, 1);
		if (!seen[n])
			die("calloc");
	}
	while ((got = read(STDIN_FILENO, buffer + have, BUFFER - have)) > 0) {
		char *at = buffer, *end;

		have += got;
		end = buffer + have;
		while ((at = memchr(at, 'D', end - at)) && at + whole <= end) {
			for (int n = 0; n < names; n++) {
				uint64_t number;

				if (memcmp(at, marks[n], MARK_BYTES))
					continue;
				memcpy(&number, at + MARK_BYTES, sizeof(number));
				if (number < MAX_PAGES && !seen[n][number]) {
					seen[n][number] = 1;
					found[n]++;
				}
			}
			at++;
		}
		/* What may be the beginning of one is looked at again. */
		have = at ? end - at : 0;
		memmove(buffer, end - have, have);
	}
	if (got < 0)
		die("read");
	for (int n = 0; n < names; n++)
		printf("%s=%lu%s", name[n], found[n], n + 1 < names ? " " : "\n");
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], "fill"))
		return fill(argv[2], strtoul(argv[3], NULL, 0) << 20);
	if (argc > 2 && !strcmp(argv[1], "count"))
		return count(argc - 2, argv + 2);
	fprintf(stderr, "usage: marker fill NAME MEGABYTES | count NAME...\n");
	return 2;
}
