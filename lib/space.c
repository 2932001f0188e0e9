// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Spaces: where the memory of a process is, and windows onto all of it.
 *
 * Linux maps a program into three distant places: the program and its heap, mmap(2)'s area,
 * and the stack. One window onto all 128 TB would leave no room for a second one, so each
 * place is a zone. The windows onto a peer's zones are in 1 TB of addresses below programs with
 * random addresses, which nothing else uses. They are congruent modulo 1 GB, so page tables
 * of both sides are cut at the same places.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "internal.h"

#define GB		((uintptr_t)1 << 30)
#define TB		((uintptr_t)1 << 40)
#define IMAGE_BYTES	(256 * GB)
#define MMAP_BYTES	(512 * GB)
#define STACK_BYTES	(256 * GB)
#define SLOTS_START	(16 * TB)
/* Programs with random addresses begin after two thirds of 128 TB. */
#define SLOTS_END	(85 * TB)
#define NR_SLOTS	((SLOTS_END - SLOTS_START) / TB)
/*
 * The end of a program's memory with page tables of four levels. Not the start of the last
 * gigabyte: one stack in sixteen lies in that.
 */
#define TASK_END	(128 * TB - 4096)

static pthread_mutex_t space_lock = PTHREAD_MUTEX_INITIALIZER;
/* This process's space; its id is 0 until it is published. */
static struct hpmmap_space own;
static pid_t own_pid;
static bool slot_is_used[NR_SLOTS];

static uintptr_t down(uintptr_t address)
{
	return address & -GB;
}

static void set_zone(struct hpmmap_space *space, int i, uintptr_t start, uintptr_t bytes)
{
	space->zone[i].start = start;
	space->zone[i].bytes = bytes;
}

static int first_object(struct dl_phdr_info *info, size_t size, void *image)
{
	(void)size;
	*(uintptr_t *)image = info->dlpi_addr;
	return 1;
}

static int describe(struct hpmmap_space *space)
{
	uintptr_t program = getauxval(AT_PHDR), heap = (uintptr_t)sbrk(0);
	uintptr_t mapped = getauxval(AT_BASE), stack = getauxval(AT_RANDOM), bytes;
	struct rlimit limit;
	uintptr_t image = 0;

	dl_iterate_phdr(first_object, &image);
	space->image = image;
	/* The loader is mapped first; a static program has none. */
	if (!mapped) {
		void *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (page == MAP_FAILED)
			return -1;
		munmap(page, 4096);
		mapped = (uintptr_t)page;
	}
	/* If the loader was started as a program it is not near the heap. */
	if (program > heap || heap - program > IMAGE_BYTES / 2)
		program = heap;
	set_zone(space, 0, down(program), IMAGE_BYTES);
	/* With an unlimited stack addresses grow upwards, from a third of 128 TB. */
	if (mapped < SLOTS_END)
		set_zone(space, 1, down(mapped), MMAP_BYTES);
	else
		set_zone(space, 1, down(mapped) + 2 * GB - MMAP_BYTES, MMAP_BYTES);
	/* Arguments and environment are above what AT_RANDOM points to. */
	if (getrlimit(RLIMIT_STACK, &limit) != 0)
		return -1;
	bytes = limit.rlim_cur < STACK_BYTES - 2 * GB ? limit.rlim_cur : STACK_BYTES - 2 * GB;
	set_zone(space, 2, down(stack - bytes), down(stack) + GB - down(stack - bytes));
	return 0;
}

/* A child publishes its own space; its parent's slots are free in the child. */
static void forget_parent(void)
{
	if (own_pid == getpid())
		return;
	own_pid = getpid();
	own.id = 0;
	for (size_t i = 0; i < NR_SLOTS; i++)
		slot_is_used[i] = false;
}

PUBLIC int hpmmap_space_publish(struct hpmmap_space *space)
{
	int ret = 0;

	pthread_mutex_lock(&space_lock);
	forget_parent();
	if (!own.id) {
		ret = describe(&own);
		if (!ret) {
			int64_t id = hpmmap_publish(NULL, SIZE_MAX, 0600);

			if (id == -1)
				ret = -1;
			else
				own.id = id;
		}
	}
	if (!ret)
		*space = own;
	pthread_mutex_unlock(&space_lock);
	return ret;
}

PUBLIC int hpmmap_space_has(const struct hpmmap_space *space, const void *ptr, size_t bytes)
{
	for (int i = 0; i < HPMMAP_ZONES; i++) {
		uint64_t off = (uintptr_t)ptr - space->zone[i].start;

		if (off < space->zone[i].bytes && bytes <= space->zone[i].bytes - off)
			return 1;
	}
	return 0;
}

static void detach_zones(struct hpmmap_peer *peer)
{
	for (int i = 0; i < HPMMAP_ZONES; i++)
		if (peer->zone[i].bytes)
			hpmmap_detach((void *)(peer->zone[i].start + peer->zone[i].delta));
}

/* Attaches all zones into the slot, or none. */
static int attach_zones(struct hpmmap_peer *peer, const struct hpmmap_space *space, uintptr_t slot)
{
	for (int i = 0; i < HPMMAP_ZONES; i++) {
		uintptr_t start = space->zone[i].start, bytes = space->zone[i].bytes;
		void *at;
		int err;

		if (start + bytes > TASK_END)
			bytes = TASK_END - start;
		at = attach_at(space->id, start, bytes, 0, (void *)slot);
		if (!at) {
			err = errno;
			detach_zones(peer);
			errno = err;
			return -1;
		}
		peer->zone[i].start = start;
		peer->zone[i].bytes = bytes;
		peer->zone[i].delta = slot - start;
		slot += space->zone[i].bytes;
	}
	return 0;
}

static bool is_valid(const struct hpmmap_space *space)
{
	static const uintptr_t most[] = { IMAGE_BYTES, MMAP_BYTES, STACK_BYTES };

	for (int i = 0; i < HPMMAP_ZONES; i++)
		if (space->zone[i].bytes - 1 >= most[i] || space->zone[i].start >= TASK_END ||
		    (space->zone[i].start | space->zone[i].bytes) & (GB - 1))
			return false;
	return space->id > 0;
}

static bool overlaps_own(uintptr_t slot)
{
	for (int i = 0; i < HPMMAP_ZONES; i++)
		if (own.zone[i].start < slot + TB && slot < own.zone[i].start + own.zone[i].bytes)
			return true;
	return false;
}

PUBLIC struct hpmmap_peer *hpmmap_peer_attach(const struct hpmmap_space *space)
{
	struct hpmmap_space mine;
	struct hpmmap_peer *peer;
	bool found = false;

	if (!is_valid(space)) {
		errno = EINVAL;
		return NULL;
	}
	/* No window may overlap the caller's own zones. */
	if (hpmmap_space_publish(&mine) != 0)
		return NULL;
	peer = calloc(1, sizeof(*peer));
	if (!peer)
		return NULL;
	peer->image_delta = space->image - mine.image;
	if (space->id == mine.id) {
		peer->zone[0].bytes = UINTPTR_MAX;
		return peer;
	}
	pthread_mutex_lock(&space_lock);
	errno = ENOMEM;
	for (size_t i = 0; i < NR_SLOTS && !found; i++) {
		uintptr_t slot = SLOTS_START + i * TB;

		if (slot_is_used[i] || overlaps_own(slot))
			continue;
		found = attach_zones(peer, space, slot) == 0;
		slot_is_used[i] = found;
		/* A mapping is in the way: try the next slot. */
		if (!found && errno != EEXIST)
			break;
	}
	pthread_mutex_unlock(&space_lock);
	if (!found) {
		int err = errno == EEXIST ? ENOMEM : errno;

		free(peer);
		errno = err;
		return NULL;
	}
	return peer;
}

static void *or_efault(void *ptr)
{
	if (!ptr)
		errno = EFAULT;
	return ptr;
}

PUBLIC void *hpmmap_peer_ptr(const struct hpmmap_peer *peer, const void *ptr)
{
	return or_efault(peer_ptr(peer, ptr));
}

PUBLIC void *hpmmap_peer_static(const struct hpmmap_peer *peer, const void *ptr)
{
	return or_efault(peer_ptr(peer, (void *)((uintptr_t)ptr + peer->image_delta)));
}

PUBLIC int hpmmap_peer_detach(struct hpmmap_peer *peer)
{
	uintptr_t first = peer->zone[0].start + peer->zone[0].delta;

	if (peer->zone[0].bytes != UINTPTR_MAX) {
		detach_zones(peer);
		pthread_mutex_lock(&space_lock);
		slot_is_used[(first - SLOTS_START) / TB] = false;
		pthread_mutex_unlock(&space_lock);
	}
	free(peer);
	return 0;
}
