// SPDX-License-Identifier: GPL-2.0
/*
 * Traces of pseudo-random sizes: the same for every method and allocator.
 *
 * splitmix64 (Steele, Lea, Flood 2014) with a fixed seed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "worker.h"

#define SEED		UINT64_C(0x48504d4d4150)
#define MOST_LIVE	32768

/*
 * The mesh: so many new blocks, and after so many some are dropped.
 * Sizes are 4 KB times a power of two up to an eighth of all, and up to three
 * quarters of that more.
 */
#define AMR_STEPS	192
#define AMR_REGRID	32
/* Small objects: so many are made, of 16 bytes to 128 KB. */
#define MALLOC_STEPS	20000
#define MALLOC_CLASSES	13

static uint64_t state;

static uint64_t next(void)
{
	uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static struct {
	char *p;
	size_t len;
} live[MOST_LIVE];
static size_t nr_live, live_bytes;

/* The list is no memory of the pattern: it is there before. */
void traces_prepare(void)
{
	memset(live, 0xff, sizeof(live));
	nr_live = live_bytes = 0;
	state = SEED;
}

static bool in_malloc;

static int give_back(char *p, size_t len)
{
	if (!in_malloc)
		return munmap(p, len);
	free(p);
	return 0;
}

static void drop(size_t i)
{
	if (TIMED(unmap, give_back(live[i].p, live[i].len)))
		die("munmap");
	live_bytes -= live[i].len;
	live[i] = live[--nr_live];
}

static void keep(char *p, size_t len)
{
	live[nr_live].p = p;
	live[nr_live++].len = len;
	live_bytes += len;
}

static void make_room(size_t len, size_t most)
{
	while (nr_live && (live_bytes + len > most || nr_live == MOST_LIVE))
		drop(next() % nr_live);
}

static void *allocated(void *p)
{
	if (!p) {
		errno = ENOMEM;
		die("the allocator");
	}
	return p;
}

/* One block in eight comes from calloc, and one grows by half once it is touched. */
static char *new_block(size_t len, uint64_t kind)
{
	char *p;

	if (kind % 8 == 0) {
		p = allocated(TIMED(map, calloc(len, 1)));
	} else if (kind % 8 == 1 && len >= 2 * SMALL_PAGE) {
		size_t first = len / 3 * 2 & ~(SMALL_PAGE - 1);

		p = allocated(TIMED(map, malloc(first)));
		touch_new(p, first);
		p = allocated(TIMED(map, realloc(p, len)));
		touch_new(p + first, len - first);
		return p;
	} else {
		p = allocated(TIMED(map, malloc(len)));
	}
	touch_new(p, len);
	return p;
}

static void refine(const struct task *task, unsigned int levels)
{
	size_t len = SMALL_PAGE << next() % levels;
	uint64_t kind;
	void *place;
	char *p;

	len = (len + len / 4 * (next() % 4) + SMALL_PAGE - 1) & ~(SMALL_PAGE - 1);
	kind = next();
	make_room(len, task->size);
	if (in_malloc) {
		p = new_block(len, kind);
	} else {
		place = region_place(task->method, len);
		p = TIMED(map, region_map(task->method, len, place));
		touch_new(p, len);
	}
	keep(p, len);
}

static void amr(const struct task *task)
{
	unsigned int levels = 1;

	while (SMALL_PAGE << levels <= task->size / 8)
		levels++;
	for (unsigned int step = 1; step <= AMR_STEPS; step++) {
		refine(task, levels);
		if (step % 8 == 0)
			figures_peak();
		if (step % AMR_REGRID)
			continue;
		for (size_t i = nr_live; i-- > 0;)
			if (next() % 2)
				drop(i);
	}
	while (nr_live)
		drop(nr_live - 1);
}

void pattern_amr(const struct task *task)
{
	in_malloc = false;
	amr(task);
}

void pattern_amr_malloc(const struct task *task)
{
	in_malloc = true;
	amr(task);
}

void pattern_malloc(const struct task *task)
{
	in_malloc = true;
	for (unsigned int step = 1; step <= MALLOC_STEPS; step++) {
		size_t len = 16UL << next() % MALLOC_CLASSES;

		len += next() % len;
		/* What lives long and what does not are mixed. */
		if (nr_live && next() % 3 == 0)
			drop(next() % nr_live);
		make_room(len, task->size);
		keep(new_block(len, next()), len);
		if (step % 2000 == 0)
			figures_peak();
	}
	while (nr_live)
		drop(nr_live - 1);
}
