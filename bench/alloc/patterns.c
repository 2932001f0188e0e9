// SPDX-License-Identifier: GPL-2.0
/* Patterns of calls to the kernel. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "marker.h"
#include "worker.h"

/* What glibc takes for a thread, and what a thread uses of it. */
#define STACK_BYTES	(8UL << 20)
#define STACK_USED	(64UL << 10)
/* A growing heap takes this many steps. */
#define HEAP_STEPS	64
/* Mappings that a large program has beside those that are measured. */
#define CROWD		10000

/* With a hole behind each one, so that no two become one. They stay. */
void crowd_prepare(void)
{
	for (unsigned int i = 0; i < CROWD; i++) {
		char *p = mmap(NULL, 2 * SMALL_PAGE, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (p == MAP_FAILED || munmap(p + SMALL_PAGE, SMALL_PAGE))
			die("mapping one of many");
		*p = 1;
	}
}

static void map_once(const struct task *task)
{
	void *place = region_place(task->method, task->size);
	void *p;

	MARKER(1);
	p = TIMED(map, region_map(task->method, task->size, place));
	MARKER(2);
	if (!task->method->untouched)
		touch_new(p, task->size);
	MARKER(0);
	figures_peak();
	MARKER(3);
	if (TIMED(unmap, munmap(p, task->size)))
		die("munmap");
	MARKER(0);
}

void pattern_map(const struct task *task)
{
	map_once(task);
}

void pattern_cycle(const struct task *task)
{
	for (unsigned int i = 0; i < task->rounds; i++)
		map_once(task);
}

static char *set_break(char *to)
{
	return (char *)syscall(SYS_brk, to);
}

static int grow_heap(const struct task *task, char *from, size_t step)
{
	if (set_break(from + step) != from + step)
		return -1;
	region_ready(task->method, from, step);
	return 0;
}

/* A heap grows in small steps, each is touched, and is given back at once. */
void pattern_brk(const struct task *task)
{
	char *before = set_break(NULL);
	char *start = (char *)(((uintptr_t)before + LARGE_PAGE - 1) & ~(LARGE_PAGE - 1));
	size_t step = task->size / HEAP_STEPS & ~(SMALL_PAGE - 1);

	if (step < SMALL_PAGE)
		step = SMALL_PAGE;
	if (set_break(start) != start)
		die("brk");
	for (size_t at = 0; at + step <= task->size; at += step) {
		if (TIMED(map, grow_heap(task, start + at, step)))
			die("brk");
		touch_new(start + at, step);
	}
	figures_peak();
	if (TIMED(unmap, set_break(start)) != start)
		die("brk");
	if (set_break(before) != before)
		die("brk");
}

static void *grow_region(const struct task *task, char *p, size_t from, size_t to)
{
	p = mremap(p, from, to, MREMAP_MAYMOVE);
	if (p == MAP_FAILED)
		die("mremap");
	region_ready(task->method, p + from, to - from);
	return p;
}

/* An array grows by doubling, as realloc does with a large one. */
void pattern_mremap(const struct task *task)
{
	size_t size = task->size / 32;
	void *place;
	char *p;

	if (size < SMALL_PAGE)
		size = SMALL_PAGE;
	place = region_place(task->method, size);
	p = TIMED(map, region_map(task->method, size, place));
	touch_new(p, size);
	while (size < task->size) {
		p = TIMED(map, grow_region(task, p, size, 2 * size));
		touch_new(p + size, size);
		size *= 2;
	}
	figures_peak();
	if (TIMED(unmap, munmap(p, size)))
		die("munmap");
}

/* As glibc makes the stack of a thread: addresses, then memory but for a guard page. */
static char *make_stack(const struct task *task)
{
	char *p = mmap(NULL, STACK_BYTES, PROT_NONE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE | task->method->mmap_flags,
		       -1, 0);

	if (p == MAP_FAILED)
		die("mmap of a stack");
	if (mprotect(p + SMALL_PAGE, STACK_BYTES - SMALL_PAGE, PROT_READ | PROT_WRITE))
		die("mprotect of a stack");
	region_reuse(task->method, p + SMALL_PAGE, STACK_BYTES - SMALL_PAGE);
	region_ready(task->method, p + SMALL_PAGE, STACK_BYTES - SMALL_PAGE);
	return p;
}

static char *stacks[4096];

/* The list is no memory of the pattern: it is there before. */
void stacks_prepare(void)
{
	memset(stacks, 0xff, sizeof(stacks));
}

/* Threads come, use a little of their stacks, and go; as many as fit into the size. */
void pattern_stacks(const struct task *task)
{
	size_t count = task->size / STACK_BYTES;

	if (count > sizeof(stacks) / sizeof(stacks[0]))
		count = sizeof(stacks) / sizeof(stacks[0]);
	for (size_t i = 0; i < count; i++) {
		stacks[i] = TIMED(map, make_stack(task));
		touch_new(stacks[i] + STACK_BYTES - STACK_USED, STACK_USED);
	}
	figures_peak();
	for (size_t i = 0; i < count; i++)
		if (TIMED(unmap, munmap(stacks[i], STACK_BYTES)))
			die("munmap of a stack");
}
