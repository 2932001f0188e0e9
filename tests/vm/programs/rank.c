// SPDX-License-Identifier: GPL-2.0
/*
 * A rank of a partition, as root, registered with policy strict: rank NAME. Takes pool memory until
 * it is refused. Writes to NAME.told the physical runs of what it took, and the blocks that all its
 * page-table entries point to. When there is NAME.again, it checks its contents, gives a block back
 * and takes it again, which NAME.whole tells. It ends when there is NAME.end.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hpmmap_window.h"

#define PAGE	4096UL
#define BLOCK	(2UL << 20)
#define MOST	512

/* Nothing here allocates: there is no memory left. */
static unsigned char *held[MOST];
static struct hpmmap_physical runs[512];
static char maps[1 << 16];
static uint64_t entries[512];
static const char *name;
static int mark;

static unsigned char *take(void)
{
	unsigned char *block = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return block == MAP_FAILED ? NULL : memset(block, mark, BLOCK);
}

static int file(const char *suffix)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s.%s", name, suffix);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		err(1, "%s", path);
	return fd;
}

static void wait_for(const char *suffix)
{
	char path[256];

	snprintf(path, sizeof(path), "%s.%s", name, suffix);
	while (access(path, F_OK))
		usleep(100000);
}

static void tell_runs(int out, void *block)
{
	size_t nr = sizeof(runs) / sizeof(runs[0]);
	int fd = hpmmap_runs(block, BLOCK, runs, &nr);

	if (fd < 0)
		err(1, "hpmmap_runs");
	for (size_t i = 0; i < nr; i++)
		dprintf(out, "run %llu %llu\n", (unsigned long long)runs[i].address,
			(unsigned long long)runs[i].bytes);
	close(fd);
}

/* The blocks of a mapping, by its page-table entries. */
static void tell_pages(int out, int pagemap, unsigned long start, unsigned long end)
{
	uint64_t last = UINT64_MAX;
	ssize_t got;

	for (; start < end; start += got / 8 * PAGE) {
		size_t nr = (end - start) / PAGE < 512 ? (end - start) / PAGE : 512;

		got = pread(pagemap, entries, nr * 8, start / PAGE * 8);
		if (got < 8)
			err(1, "pagemap");
		for (ssize_t i = 0; i < got / 8; i++) {
			uint64_t block = (entries[i] & ((1ULL << 55) - 1)) * PAGE / BLOCK;

			if (!(entries[i] >> 63) || block == last)
				continue;
			dprintf(out, "block %llu\n", (unsigned long long)block);
			last = block;
		}
	}
}

static void tell_all_pages(int out)
{
	int from = open("/proc/self/maps", O_RDONLY), pagemap = open("/proc/self/pagemap", O_RDONLY);
	size_t length = 0;
	ssize_t got;

	if (from < 0 || pagemap < 0)
		err(1, "/proc/self");
	while ((got = read(from, maps + length, sizeof(maps) - 1 - length)) > 0)
		length += got;
	for (char *line = strtok(maps, "\n"); line; line = strtok(NULL, "\n")) {
		unsigned long start, end;

		/* The last one is of the kernel. */
		if (sscanf(line, "%lx-%lx", &start, &end) == 2 && !strstr(line, "[v"))
			tell_pages(out, pagemap, start, end);
	}
	close(from);
	close(pagemap);
}

int main(int argc, char **argv)
{
	unsigned int nr = 0, wrong = 0;
	char told[256], new[256];
	int out;

	if (argc != 2)
		errx(2, "usage: rank NAME");
	name = argv[1];
	mark = name[strlen(name) - 1];
	while (nr < MOST && (held[nr] = take()))
		nr++;
	if (nr == MOST || errno != ENOMEM)
		errx(1, "%u blocks, then %s", nr, strerrorname_np(errno));
	out = file("new");
	for (unsigned int i = 0; i < nr; i++)
		tell_runs(out, held[i]);
	tell_all_pages(out);
	close(out);
	snprintf(told, sizeof(told), "%s.told", name);
	snprintf(new, sizeof(new), "%s.new", name);
	if (rename(new, told))
		err(1, "%s", told);
	wait_for("again");
	for (unsigned int i = 0; i < nr; i++)
		for (size_t at = 0; at < BLOCK; at++)
			wrong += held[i][at] != mark;
	munmap(held[--nr], BLOCK);
	if (!take())
		err(1, "a block of its share");
	out = file("whole");
	dprintf(out, wrong ? "wrong\n" : "whole\n");
	close(out);
	wait_for("end");
	return 0;
}
