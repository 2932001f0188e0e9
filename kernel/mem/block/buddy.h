/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Buddy allocator for the 2 MB units of one NUMA node.
 *
 * Pure code: no locks, no sleeping, no memory allocation, nothing read or
 * written but the structs passed in. It builds in the kernel and, for its
 * tests, in user space.
 *
 * A unit is 2 MB of physical memory; its number is the physical address >> 21.
 * A chunk is 512 units (1 GB), aligned; its number is the physical address
 * >> 30. A block of order k is 2^k units, aligned to 2^k units.
 *
 * Locking: the caller serializes all calls that change an allocator with all
 * other calls on it. A spinlock will do.
 */
#ifndef _HPMMAP_BUDDY_H
#define _HPMMAP_BUDDY_H

#ifdef __KERNEL__
#include <linux/errno.h>
#include <linux/string.h>
#include <linux/types.h>
#else
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

typedef unsigned char u8;
#endif

#define HPMMAP_BUDDY_MAX_ORDER		9
#define HPMMAP_BUDDY_CHUNK_UNITS	(1U << HPMMAP_BUDDY_MAX_ORDER)

/* Units and chunks of the 52 bits a physical address has at most. */
#define HPMMAP_BUDDY_NR_UNITS		(1UL << (52 - 21))
#define HPMMAP_BUDDY_NR_CHUNKS		(1UL << (52 - 30))

/**
 * struct hpmmap_buddy_chunk - state of 1 GB of memory
 * @nr: number of the chunk; immutable while inserted
 * @child: the chunks below this one in the index of the allocator
 * @next: next chunk in the same bucket
 * @pprev: the pointer that points to this chunk in its bucket
 * @nr_present: number of units that are present
 * @nr_free: number of units that are free
 * @present: 1 for each unit that is present, else 0
 * @tree: complete binary tree, root at 1, children of n at 2n and 2n + 1,
 *	unit u of the chunk at 512 + u. Each node: 1 + the order of the largest
 *	free block below it, or 0 if no unit below it is free. A unit that is
 *	not present is not free. Entry 0 is not used.
 *
 * The caller provides the memory; its contents before
 * hpmmap_buddy_chunk_insert() do not matter. All members are private to the
 * allocator.
 */
struct hpmmap_buddy_chunk {
	unsigned long nr;
	struct hpmmap_buddy_chunk *child[2];
	struct hpmmap_buddy_chunk *next;
	struct hpmmap_buddy_chunk **pprev;
	unsigned int nr_present;
	unsigned int nr_free;
	u8 present[HPMMAP_BUDDY_CHUNK_UNITS];
	u8 tree[2 * HPMMAP_BUDDY_CHUNK_UNITS];
};

/**
 * struct hpmmap_buddy - an allocator
 * @root: index of the chunks, see chunk_link()
 * @bucket: the chunks by the value of the root of their tree
 * @filled: one bit for each of these: it has chunks
 * @nr_total: number of units that are present, free or not
 * @nr_free: number of units that are free
 *
 * The counters may be read; all else is private to the allocator.
 */
struct hpmmap_buddy {
	struct hpmmap_buddy_chunk *root;
	struct hpmmap_buddy_chunk *bucket[HPMMAP_BUDDY_MAX_ORDER + 2];
	unsigned int filled;
	unsigned long nr_total;
	unsigned long nr_free;
};

void hpmmap_buddy_init(struct hpmmap_buddy *b);
struct hpmmap_buddy_chunk *hpmmap_buddy_chunk_find(const struct hpmmap_buddy *b,
						   unsigned long unit);
int hpmmap_buddy_chunk_insert(struct hpmmap_buddy *b, struct hpmmap_buddy_chunk *chunk,
			      unsigned long nr);
int hpmmap_buddy_chunk_remove(struct hpmmap_buddy *b, struct hpmmap_buddy_chunk *chunk);

int hpmmap_buddy_add(struct hpmmap_buddy *b, unsigned long unit, unsigned long nr);
int hpmmap_buddy_remove(struct hpmmap_buddy *b, unsigned long unit, unsigned long nr);

int hpmmap_buddy_alloc(struct hpmmap_buddy *b, unsigned int order, unsigned long *unit);
unsigned int hpmmap_buddy_alloc_unlike(struct hpmmap_buddy *b, struct hpmmap_buddy_chunk *chunk,
				       const struct hpmmap_buddy_chunk *other,
				       unsigned int nr, unsigned long *unit);
int hpmmap_buddy_take(struct hpmmap_buddy *b, unsigned long unit, unsigned int order);
int hpmmap_buddy_free_range(struct hpmmap_buddy *b, unsigned long unit, unsigned long nr);

int hpmmap_buddy_largest(const struct hpmmap_buddy *b);
bool hpmmap_buddy_chunk_is_free(const struct hpmmap_buddy_chunk *chunk);
bool hpmmap_buddy_is_free(const struct hpmmap_buddy *b, unsigned long unit);
unsigned long hpmmap_buddy_count_free(const struct hpmmap_buddy *b,
				      unsigned long unit, unsigned long nr);

#endif /* _HPMMAP_BUDDY_H */
