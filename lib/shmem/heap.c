// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The symmetric heap. All PEs make the same calls, so each keeps the same list of blocks, first fit, and
 * finds the same offsets. The list is private memory: a stray put does not reach it.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "internal.h"

/* Blocks begin at multiples of a cache line: no two share one. */
#define GRAIN	((size_t)64)

struct block {
	struct block *next;
	size_t offset;
	size_t bytes;
	bool is_used;
};

/* By offset; no two free blocks follow each other. */
static struct block *blocks;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct block *new_block(struct block *next, size_t offset, size_t bytes)
{
	struct block *block = malloc(sizeof(*block));

	if (block)
		*block = (struct block){ .next = next, .offset = offset, .bytes = bytes };
	return block;
}

int heap_init(void)
{
	while (blocks) {
		struct block *next = blocks->next;

		free(blocks);
		blocks = next;
	}
	blocks = new_block(NULL, 0, self.heap_bytes);
	return blocks ? 0 : -1;
}

/* Cuts a block in two; the second begins bytes behind the first. */
static bool cut(struct block *block, size_t bytes)
{
	struct block *rest;

	if (bytes == block->bytes)
		return true;
	rest = new_block(block->next, block->offset + bytes, block->bytes - bytes);
	if (!rest)
		return false;
	block->next = rest;
	block->bytes = bytes;
	return true;
}

/* Adds the next block if that is free. */
static void absorb_next(struct block *block)
{
	struct block *next = block->next;

	if (!next || next->is_used)
		return;
	block->bytes += next->bytes;
	block->next = next->next;
	free(next);
}

static void join_next(struct block *block)
{
	if (!block->is_used)
		absorb_next(block);
}

static void *take(size_t alignment, size_t bytes)
{
	bytes = (bytes + GRAIN - 1) & -GRAIN;
	for (struct block *block = blocks; block; block = block->next) {
		uintptr_t start = (self.heap + block->offset + alignment - 1) & -alignment;
		size_t skip = start - self.heap - block->offset;

		if (block->is_used || skip > block->bytes || block->bytes - skip < bytes)
			continue;
		if (skip) {
			if (!cut(block, skip))
				return NULL;
			block = block->next;
		}
		if (!cut(block, bytes))
			return NULL;
		block->is_used = true;
		return (void *)(self.heap + block->offset);
	}
	return NULL;
}

/* Makes a used block smaller, or larger if what is behind it is free. Returns false if it must move. */
static bool resize(struct block *block, size_t bytes)
{
	struct block *next = block->next;

	bytes = (bytes + GRAIN - 1) & -GRAIN;
	if (bytes > block->bytes && (!next || next->is_used || bytes - block->bytes > next->bytes))
		return false;
	absorb_next(block);
	if (!cut(block, bytes))
		die("shmem_realloc", "no memory");
	return true;
}

/* Returns the block that begins at ptr, and the one before it. */
static struct block *find(const char *what, const void *ptr, struct block **before)
{
	*before = NULL;
	for (struct block *block = blocks; block; *before = block, block = block->next)
		if (block->is_used && self.heap + block->offset == (uintptr_t)ptr)
			return block;
	die(what, "%p was not allocated in the symmetric heap, or was freed", ptr);
}

static void need_block(const char *what, const void *ptr)
{
	struct block *before;

	pthread_mutex_lock(&lock);
	find(what, ptr, &before);
	pthread_mutex_unlock(&lock);
}

/* With SHMEM_DEBUG: do all PEs ask for the same? */
static void compare(const char *what, size_t bytes)
{
	uint64_t *word = self.shared->slot[0].word;

	if (!self.debugs)
		return;
	word[self.me] = bytes;
	barrier_all();
	for (uint32_t i = 0; i < self.npes; i++)
		if (word[i] != bytes)
			die(what, "%zu bytes, but %zu at PE %u: all PEs have to ask for the same", bytes, (size_t)word[i], i);
	barrier_all();
}

static void *allocate(const char *what, size_t alignment, size_t bytes, bool zeroes)
{
	void *found = NULL;

	need_init(what);
	compare(what, bytes);
	if (!bytes)
		return NULL;
	if (bytes <= self.heap_bytes) {
		pthread_mutex_lock(&lock);
		found = take(alignment, bytes);
		pthread_mutex_unlock(&lock);
	}
	if (found && zeroes)
		memset(found, 0, bytes);
	barrier_all();
	return found;
}

API(void *, malloc, (size_t size))
{
	return allocate(__func__, GRAIN, size, false);
}

API(void *, malloc_with_hints, (size_t size, long hints))
{
	(void)hints;
	return allocate(__func__, GRAIN, size, false);
}

API(void *, calloc, (size_t count, size_t size))
{
	size_t bytes;

	if (__builtin_mul_overflow(count, size, &bytes))
		bytes = SIZE_MAX;
	return allocate(__func__, GRAIN, bytes, true);
}

API(void *, align, (size_t alignment, size_t size))
{
	if (!alignment || alignment & (alignment - 1) || alignment % sizeof(void *))
		return NULL;
	/* Heaps begin at multiples of 2 MB, but not all at the same address. */
	if (alignment > (size_t)2 << 20)
		die(__func__, "alignment %zu: at most 2 MB", alignment);
	return allocate(__func__, alignment < GRAIN ? GRAIN : alignment, size, false);
}

static void release(const char *what, void *ptr)
{
	struct block *before, *block = find(what, ptr, &before);

	block->is_used = false;
	join_next(block);
	if (before)
		join_next(before);
}

API(void, free, (void *ptr))
{
	if (!ptr)
		return;
	need_init(__func__);
	need_block(__func__, ptr);
	barrier_all();
	pthread_mutex_lock(&lock);
	release(__func__, ptr);
	pthread_mutex_unlock(&lock);
}

API(void *, realloc, (void *ptr, size_t size))
{
	struct block *before, *block;
	void *found = NULL;
	size_t old;

	if (!ptr)
		return allocate(__func__, GRAIN, size, false);
	if (!size) {
		pshmem_free(ptr);
		return NULL;
	}
	need_init(__func__);
	need_block(__func__, ptr);
	compare(__func__, size);
	barrier_all();
	pthread_mutex_lock(&lock);
	block = find(__func__, ptr, &before);
	old = block->bytes;
	if (size <= self.heap_bytes)
		found = resize(block, size) ? ptr : take(GRAIN, size);
	if (found && found != ptr) {
		memcpy(found, ptr, old);
		release(__func__, ptr);
	}
	pthread_mutex_unlock(&lock);
	barrier_all();
	return found;
}

PUBLIC void *shmalloc(size_t size)
{
	return pshmem_malloc(size);
}

PUBLIC void *shmemalign(size_t alignment, size_t size)
{
	return pshmem_align(alignment, size);
}

PUBLIC void *shrealloc(void *ptr, size_t size)
{
	return pshmem_realloc(ptr, size);
}

PUBLIC void shfree(void *ptr)
{
	pshmem_free(ptr);
}
