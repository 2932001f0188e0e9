// SPDX-License-Identifier: GPL-2.0
/* The methods. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <linux/mman.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "worker.h"

/* What the module takes beside Linux's own flags; see kernel/uapi/hpmmap.h. */
#ifndef MAP_UNINITIALIZED
#define MAP_UNINITIALIZED	0x4000000
#endif
#ifndef HPMMAP_MADV_REUSE
#define HPMMAP_MADV_REUSE	0x48505201
#endif

/*
 * With an advice, MADV_POPULATE_WRITE fills the region after the advice is
 * given: MAP_POPULATE would fill it before, with the wrong page size.
 */
static const struct method methods[] = {
	{ .name = "4k", .advice = MADV_NOHUGEPAGE, .no_thp = true },
	{ .name = "4k-populate", .advice = MADV_NOHUGEPAGE, .populate = true, .no_thp = true },
	{ .name = "thp", .advice = MADV_HUGEPAGE },
	{ .name = "thp-populate", .advice = MADV_HUGEPAGE, .populate = true },
	{ .name = "hugetlb", .mmap_flags = MAP_HUGETLB, .advice = -1 },
	{ .name = "hugetlb-populate", .mmap_flags = MAP_HUGETLB, .advice = -1, .populate = true },
	{ .name = "hugetlb-1g", .mmap_flags = MAP_HUGETLB | MAP_HUGE_1GB, .advice = -1 },
	/* Under `hpmmap run`: the plain calls of an unmodified program. */
	{ .name = "hpmmap", .advice = -1 },
	{ .name = "hpmmap-dirty", .advice = -1, .dirty = true },
	{ .name = "hpmmap-reuse", .mmap_flags = MAP_UNINITIALIZED, .advice = -1, .reuse = true },
	/* With `--page-size 1G`. */
	{ .name = "hpmmap-1g", .advice = -1 },
	/* With `--static`. */
	{ .name = "hpmmap-static", .advice = -1 },
	/* What Linux's own part costs at least, for `bench/run profile`. */
	{ .name = "4k-untouched", .advice = -1, .untouched = true },
	{ .name = "hugetlb-shared", .mmap_flags = MAP_POPULATE, .advice = -1, .file = true },
};

/* Of hugetlbfs, with all of its pages, for methods with @file. */
static int shared_fd = -1;

const struct method *method_find(const char *name)
{
	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
		if (!strcmp(methods[i].name, name))
			return &methods[i];
	return NULL;
}

void method_list(void)
{
	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
		fprintf(stderr, " %s", methods[i].name);
}

/*
 * A place aligned to 2 MB, which transparent huge pages need and mmap does not
 * promise; NULL where that does not matter. Nothing else of the process may
 * map memory until it is used.
 */
void *region_place(const struct method *m, size_t size)
{
	size_t span = size + LARGE_PAGE;
	char *p;

	if (m->advice != MADV_HUGEPAGE || size < LARGE_PAGE)
		return NULL;
	p = mmap(NULL, span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		die("reservation of addresses");
	if (munmap(p, span))
		die("munmap of the reservation");
	return (void *)(((uintptr_t)p + LARGE_PAGE - 1) & ~(LARGE_PAGE - 1));
}

/* What has to follow to get the method's pages in memory that is mapped. */
void region_ready(const struct method *m, void *p, size_t size)
{
	/* A kernel without huge pages needs no advice against them. */
	if (m->advice >= 0 && madvise(p, size, m->advice) && !(m->no_thp && errno == EINVAL))
		die("madvise for the page size");
	if (m->populate && madvise(p, size, MADV_POPULATE_WRITE))
		die("madvise(MADV_POPULATE_WRITE)");
}

/* The flag means nothing for memory that is only reserved. */
void region_reuse(const struct method *m, void *p, size_t size)
{
	if (m->reuse && madvise(p, size, HPMMAP_MADV_REUSE))
		die("madvise(HPMMAP_MADV_REUSE)");
}

/* What there has to be before a region of up to @size is mapped. */
void region_prepare(const struct method *m, size_t size)
{
	if (!m->file)
		return;
	size = (size + LARGE_PAGE - 1) & ~(LARGE_PAGE - 1);
	shared_fd = memfd_create("bench-alloc", MFD_HUGETLB | MFD_HUGE_2MB);
	if (shared_fd < 0 || ftruncate(shared_fd, size) || fallocate(shared_fd, 0, 0, size))
		die("a file of huge pages");
}

void *region_map(const struct method *m, size_t size, void *place)
{
	void *p = mmap(place, size, PROT_READ | PROT_WRITE,
		       (m->file ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS) | m->mmap_flags |
		       (place ? MAP_FIXED_NOREPLACE : 0), shared_fd, 0);

	if (p == MAP_FAILED)
		die("mmap");
	region_ready(m, p, size);
	return p;
}

/* Linux refuses the advice, and so does a module without reuse. */
bool reuse_is_offered(void)
{
	void *p = mmap(NULL, LARGE_PAGE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_UNINITIALIZED, -1, 0);
	bool offered;

	if (p == MAP_FAILED)
		return false;
	offered = !madvise(p, LARGE_PAGE, HPMMAP_MADV_REUSE);
	if (munmap(p, LARGE_PAGE))
		die("munmap");
	return offered;
}

/* Uses all the pools have once, so that no block of them is clean. */
void make_pool_dirty(void)
{
	size_t size = LARGE_PAGE;
	int64_t left = pool_bytes("free_bytes");
	void *p;

	if (left < 0) {
		errno = ENOENT;
		die("free_bytes of the pools");
	}
	/* A page of each block is enough, and quick. */
	for (size = left & ~(LARGE_PAGE - 1); size; size -= LARGE_PAGE) {
		p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (p == MAP_FAILED)
			continue;
		for (size_t at = 0; at < size; at += LARGE_PAGE)
			((volatile char *)p)[at] = 1;
		if (munmap(p, size))
			die("munmap");
		return;
	}
}
