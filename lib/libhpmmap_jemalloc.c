// SPDX-License-Identifier: GPL-2.0
/*
 * libhpmmap_jemalloc: jemalloc's extents on HPMMAP.
 *
 * Loaded in front of an unmodified jemalloc 5 (LD_PRELOAD; hpmmap run --malloc
 * jemalloc does it), it gives each arena extent hooks that map memory in whole
 * 2 MB slots, without zeroing where jemalloc does not ask for zeros, and give
 * whole slots back, which are then reused without zeroing. In a process that
 * is not registered it does nothing.
 *
 * Extents that are whole slots get a mapping of their own. The others are cut
 * from a run: a reservation of which one slot after the other is committed. What
 * is left of a slot when an extent is given back is a piece, which serves later
 * extents, or completes a slot together with its neighbours. All of it is one
 * kind of memory, so extents may be split and merged anywhere; and all that is
 * in an extent is committed, so there is no hook for committing and purging:
 * jemalloc then gives memory back where it would purge it.
 *
 * jemalloc's options retain:false and cache_oblivious:false let it ask for
 * what it needs and not more; without them this is correct, but holds more.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <jemalloc/jemalloc.h>

#include "hpmmap.h"

#ifndef MAP_UNINITIALIZED
#define MAP_UNINITIALIZED	0x4000000
#endif

#define PUBLIC	__attribute__((visibility("default")))

#define PAGE	((size_t)4096)
#define SLOT	((size_t)HPMMAP_BLOCK_BYTES)
#define RW	(PROT_READ | PROT_WRITE)
#define ANON	(MAP_PRIVATE | MAP_ANONYMOUS)

/* Address space that is reserved for a run, if one extent does not need more. */
#define RUN_BYTES	((size_t)256 << 20)
#define MAX_PIECES	128
/* Arenas that are as many apart share a source. */
#define NR_SOURCES	64
/* jemalloc's own limit (MALLOCX_ARENA_LIMIT). */
#define MAX_ARENAS	4096

/* Committed memory that is in no extent; never a whole slot. */
struct piece {
	uintptr_t start;
	uintptr_t end;
};

/*
 * Where extents come from that are not whole slots. Of the run, what lies
 * below top was handed out, what lies below committed is mapped, and up to
 * limit it is reserved.
 */
struct source {
	pthread_mutex_t lock;
	uintptr_t top;
	uintptr_t committed;
	uintptr_t limit;
	unsigned int nr_pieces;
	struct piece pieces[MAX_PIECES];
};

static struct source sources[NR_SOURCES];

static uintptr_t up(uintptr_t value, size_t alignment)
{
	return (value + alignment - 1) & ~(uintptr_t)(alignment - 1);
}

static uintptr_t slot_down(uintptr_t value)
{
	return value & ~(uintptr_t)(SLOT - 1);
}

/* ---- Mapping ---------------------------------------------------------- */

/*
 * Maps whole slots; at the given address, if it is not 0, in place of what is
 * there (MAP_FIXED) or only if it is free (MAP_FIXED_NOREPLACE). Memory that
 * must be zero is mapped without the flag and gets it afterwards, so that it
 * can be reused one day. Returns 0 on failure.
 */
static uintptr_t map(uintptr_t at, size_t size, int how, bool zero)
{
	void *p = mmap((void *)at, size, RW,
		       ANON | how | (zero ? 0 : MAP_UNINITIALIZED), -1, 0);

	if (p == MAP_FAILED)
		return 0;
	if (zero)
		madvise(p, size, HPMMAP_MADV_REUSE);
	return (uintptr_t)p;
}

/* Address space only, aligned to at least a slot. Returns 0 on failure. */
static uintptr_t reserve(size_t size, size_t alignment)
{
	size_t room = size + alignment;
	uintptr_t start, end;
	void *p;

	if (room < size)
		return 0;
	p = mmap(NULL, room, PROT_NONE, ANON | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return 0;
	start = up((uintptr_t)p, alignment);
	end = (uintptr_t)p + room;
	if (start != (uintptr_t)p)
		munmap(p, start - (uintptr_t)p);
	if (end != start + size)
		munmap((void *)(start + size), end - start - size);
	return start;
}

/* A mapping of its own, of whole slots. */
static uintptr_t map_slots(size_t size, size_t alignment, bool zero)
{
	uintptr_t p;

	if (alignment < SLOT)
		alignment = SLOT;
	/* HPMMAP aligns to slots by itself. */
	p = map(0, size, 0, zero);
	if (p == 0 || p % alignment == 0)
		return p;
	munmap((void *)p, size);
	p = reserve(size, alignment);
	if (p && !map(p, size, MAP_FIXED, zero)) {
		munmap((void *)p, size);
		return 0;
	}
	return p;
}

/* ---- Pieces ------------------------------------------------------------- */

static void remove_piece(struct source *source, unsigned int i)
{
	source->pieces[i] = source->pieces[--source->nr_pieces];
}

/* Empty ones are none; where there is no room for one, it is unmapped. */
static void add_piece(struct source *source, uintptr_t start, uintptr_t end)
{
	if (start == end)
		return;
	if (source->nr_pieces == MAX_PIECES)
		munmap((void *)start, end - start);
	else
		source->pieces[source->nr_pieces++] = (struct piece){ start, end };
}

/* Takes [start, start + size) out of the piece that holds it. */
static void cut_piece(struct source *source, unsigned int i, uintptr_t start,
		      size_t size)
{
	struct piece piece = source->pieces[i];

	/* In this order: one of the two always finds room. */
	remove_piece(source, i);
	add_piece(source, piece.start, start);
	add_piece(source, start + size, piece.end);
}

/* From the smallest piece that is large enough. Returns 0 if there is none. */
static uintptr_t take_from_pieces(struct source *source, size_t size,
				  size_t alignment)
{
	unsigned int best = MAX_PIECES;
	uintptr_t start;

	for (unsigned int i = 0; i < source->nr_pieces; i++) {
		const struct piece *piece = &source->pieces[i];

		start = up(piece->start, alignment);
		if (start > piece->end || piece->end - start < size)
			continue;
		if (best == MAX_PIECES ||
		    piece->end - piece->start <
		    source->pieces[best].end - source->pieces[best].start)
			best = i;
	}
	if (best == MAX_PIECES)
		return 0;
	start = up(source->pieces[best].start, alignment);
	cut_piece(source, best, start, size);
	return start;
}

/* ---- The run -------------------------------------------------------------- */

static bool new_run(struct source *source, size_t size, size_t alignment)
{
	size_t bytes = up(size, SLOT);
	uintptr_t start;

	if (alignment < SLOT)
		alignment = SLOT;
	if (bytes < RUN_BYTES)
		bytes = RUN_BYTES;
	start = reserve(bytes, alignment);
	if (!start)
		return false;
	if (source->committed != source->limit)
		munmap((void *)source->committed, source->limit - source->committed);
	add_piece(source, source->top, source->committed);
	source->top = source->committed = start;
	source->limit = start + bytes;
	return true;
}

static uintptr_t take_from_run(struct source *source, size_t size,
			       size_t alignment, bool zero)
{
	uintptr_t start = up(source->top, alignment);
	uintptr_t end, old_end = source->committed;

	if (start > source->limit || source->limit - start < size) {
		if (!new_run(source, size, alignment))
			return 0;
		start = old_end = source->top;
	}
	end = up(start + size, SLOT);
	if (end > old_end) {
		if (!map(old_end, end - old_end, MAP_FIXED, zero)) {
			/*
			 * There may be a hole now that others map something
			 * into: the rest of the run is nobody's any more.
			 */
			source->limit = old_end;
			return 0;
		}
		source->committed = end;
	}
	/* What an alignment skips. */
	add_piece(source, source->top, start);
	source->top = start + size;
	if (zero && start < old_end)
		memset((void *)start, 0,
		       (old_end < start + size ? old_end : start + size) - start);
	return start;
}

/* ---- Extents ---------------------------------------------------------------- */

/* Behind an extent that is to grow where it is. */
static uintptr_t take_at(struct source *source, uintptr_t at, size_t size,
			 bool zero)
{
	size_t bytes = up(size, SLOT);

	for (unsigned int i = 0; i < source->nr_pieces; i++) {
		const struct piece *piece = &source->pieces[i];

		if (piece->start != at || piece->end - at < size)
			continue;
		cut_piece(source, i, at, size);
		if (zero)
			memset((void *)at, 0, size);
		return at;
	}
	if (at == source->top && source->limit - at >= size)
		return take_from_run(source, size, PAGE, zero);
	if (at % SLOT != 0 || map(at, bytes, MAP_FIXED_NOREPLACE, zero) != at)
		return 0;
	add_piece(source, at + size, at + bytes);
	return at;
}

static void *extent_alloc(extent_hooks_t *hooks, void *new_addr, size_t size,
			  size_t alignment, bool *zero, bool *commit,
			  unsigned int arena)
{
	struct source *source = &sources[arena % NR_SOURCES];
	uintptr_t p;

	(void)hooks;
	if (!new_addr && size % SLOT == 0) {
		p = map_slots(size, alignment, *zero);
	} else {
		pthread_mutex_lock(&source->lock);
		if (new_addr) {
			p = take_at(source, (uintptr_t)new_addr, size, *zero);
		} else {
			p = take_from_pieces(source, size, alignment);
			if (p && *zero)
				memset((void *)p, 0, size);
			if (!p)
				p = take_from_run(source, size, alignment, *zero);
		}
		pthread_mutex_unlock(&source->lock);
	}
	if (p)
		*commit = true;
	return (void *)p;
}

/*
 * Gives the whole slots of the range back, together with the pieces beside it;
 * what is left of it are pieces. False if they are too many: then nothing has
 * changed.
 */
static bool give_back(struct source *source, uintptr_t start, uintptr_t end)
{
	uintptr_t from = start, to = end, first, last;
	unsigned int joined = 0;

	/* There is at most one at either end. */
	for (unsigned int i = 0; i < source->nr_pieces; i++) {
		if (source->pieces[i].end == start)
			from = source->pieces[i].start;
		else if (source->pieces[i].start == end)
			to = source->pieces[i].end;
		else
			continue;
		joined++;
	}
	first = up(from, SLOT);
	last = slot_down(to);
	if (first >= last)
		first = last = to;
	if (source->nr_pieces - joined + (from < first) + (last < to) > MAX_PIECES)
		return false;
	if (first < last && munmap((void *)first, last - first) != 0)
		return false;
	for (unsigned int i = 0; i < source->nr_pieces;) {
		if (source->pieces[i].end == start || source->pieces[i].start == end)
			remove_piece(source, i);
		else
			i++;
	}
	add_piece(source, from, first);
	add_piece(source, last, to);
	return true;
}

/* True: not given back; jemalloc keeps it for later. */
static bool extent_dalloc(extent_hooks_t *hooks, void *addr, size_t size,
			  bool committed, unsigned int arena)
{
	struct source *source = &sources[arena % NR_SOURCES];
	uintptr_t start = (uintptr_t)addr;
	bool done;

	(void)hooks;
	(void)committed;
	/* jemalloc may have taken it from the break before there were hooks. */
	if ((char *)addr < (char *)sbrk(0))
		return true;
	if (start % SLOT == 0 && size % SLOT == 0)
		return munmap(addr, size) != 0;
	pthread_mutex_lock(&source->lock);
	done = give_back(source, start, start + size);
	pthread_mutex_unlock(&source->lock);
	return !done;
}

/* Of an arena that ends: there is nobody who could keep it. */
static void extent_destroy(extent_hooks_t *hooks, void *addr, size_t size,
			   bool committed, unsigned int arena)
{
	if (extent_dalloc(hooks, addr, size, committed, arena) &&
	    (char *)addr >= (char *)sbrk(0))
		munmap(addr, size);
}

static bool extent_split(extent_hooks_t *hooks, void *addr, size_t size,
			 size_t size_a, size_t size_b, bool committed,
			 unsigned int arena)
{
	(void)hooks, (void)addr, (void)size, (void)size_a, (void)size_b;
	(void)committed, (void)arena;
	return false;
}

static bool extent_merge(extent_hooks_t *hooks, void *addr_a, size_t size_a,
			 void *addr_b, size_t size_b, bool committed,
			 unsigned int arena)
{
	(void)hooks, (void)addr_a, (void)size_a, (void)addr_b, (void)size_b;
	(void)committed, (void)arena;
	return false;
}

static extent_hooks_t extent_hooks = {
	.alloc = extent_alloc,
	.dalloc = extent_dalloc,
	.destroy = extent_destroy,
	.split = extent_split,
	.merge = extent_merge,
};

/*
 * A source that another thread was changing at the moment of a fork is left
 * to itself in the child; what was in it stays mapped there, unused.
 */
static void after_fork_in_child(void)
{
	for (size_t i = 0; i < NR_SOURCES; i++) {
		struct source *source = &sources[i];

		if (pthread_mutex_trylock(&source->lock) == 0)
			pthread_mutex_unlock(&source->lock);
		else
			*source = (struct source){ .lock = PTHREAD_MUTEX_INITIALIZER };
	}
}

/* ---- Arenas ------------------------------------------------------------------- */

typedef int mallctl_fn(const char *name, void *oldp, size_t *oldlenp, void *newp,
		       size_t newlen);
typedef int mallctlbymib_fn(const size_t *mib, size_t miblen, void *oldp,
			    size_t *oldlenp, void *newp, size_t newlen);
typedef int pthread_create_fn(pthread_t *thread, const pthread_attr_t *attr,
			      void *(*start)(void *), void *arg);

/* jemalloc's and the C library's, behind those here. */
static mallctl_fn *next_mallctl;
static mallctlbymib_fn *next_mallctlbymib;
static pthread_create_fn *next_pthread_create;

static bool active;
static atomic_bool hooked[MAX_ARENAS];
static size_t hooks_mib[3];
static size_t create_mib[2];

static void hook_arena(unsigned int arena)
{
	extent_hooks_t *hooks = &extent_hooks;
	size_t mib[3] = { hooks_mib[0], arena, hooks_mib[2] };

	if (arena < MAX_ARENAS && !atomic_exchange(&hooked[arena], true))
		next_mallctlbymib(mib, 3, NULL, NULL, &hooks, sizeof(hooks));
}

/* A thread gets its arena when it first allocates, or is asked for it. */
static void hook_own_arena(void)
{
	unsigned int arena;
	size_t len = sizeof(arena);

	if (next_mallctl("thread.arena", &arena, &len, NULL, 0) == 0)
		hook_arena(arena);
}

/*
 * The arena of allocations beyond oversize_threshold, the last one, comes into
 * being with the first of them, in whatever thread; so it is made here. jemalloc
 * then leaves it the usual decay, where it would let it give memory back at once.
 */
static void hook_oversize_arena(unsigned int nr_arenas)
{
	size_t threshold, len = sizeof(threshold);
	unsigned int own, oversize = nr_arenas - 1;
	ssize_t at_once = 0;
	char name[64];

	if (next_mallctl("opt.oversize_threshold", &threshold, &len, NULL, 0) != 0 ||
	    threshold == 0)
		return;
	len = sizeof(own);
	if (next_mallctl("thread.arena", &own, &len, &oversize, sizeof(oversize)) != 0)
		return;
	next_mallctl("thread.arena", NULL, NULL, &own, sizeof(own));
	hook_arena(oversize);
	snprintf(name, sizeof(name), "arena.%u.dirty_decay_ms", oversize);
	next_mallctl(name, NULL, NULL, &at_once, sizeof(at_once));
	snprintf(name, sizeof(name), "arena.%u.muzzy_decay_ms", oversize);
	next_mallctl(name, NULL, NULL, &at_once, sizeof(at_once));
}

static void hook_arenas(void)
{
	const char *percpu = "disabled";
	size_t len = sizeof(unsigned int);
	unsigned int nr;

	hook_own_arena();
	if (next_mallctl("arenas.narenas", &nr, &len, NULL, 0) != 0)
		return;
	hook_oversize_arena(nr);
	/* By processor there is no thread to ask. */
	len = sizeof(percpu);
	next_mallctl("opt.percpu_arena", &percpu, &len, NULL, 0);
	if (strcmp(percpu, "disabled") != 0)
		for (unsigned int i = 0; i < nr; i++)
			hook_arena(i);
}

struct start {
	void *(*fn)(void *arg);
	void *arg;
};

static void *start_hooked(void *arg)
{
	struct start start = *(struct start *)arg;

	free(arg);
	hook_own_arena();
	return start.fn(start.arg);
}

PUBLIC int pthread_create(pthread_t *thread, const pthread_attr_t *attr,
			  void *(*fn)(void *), void *arg)
{
	struct start *start;
	int err;

	if (!next_pthread_create)
		next_pthread_create = (pthread_create_fn *)dlsym(RTLD_NEXT, "pthread_create");
	start = active ? malloc(sizeof(*start)) : NULL;
	if (!start)
		return next_pthread_create(thread, attr, fn, arg);
	*start = (struct start){ fn, arg };
	err = next_pthread_create(thread, attr, start_hooked, start);
	if (err)
		free(start);
	return err;
}

/* Its number may be that of one that has ended. */
static void hook_new_arena(unsigned int arena)
{
	if (!active || arena >= MAX_ARENAS)
		return;
	atomic_store(&hooked[arena], false);
	hook_arena(arena);
}

/* Arenas that the program makes for itself, unless it brings hooks for them. */
PUBLIC int mallctl(const char *name, void *oldp, size_t *oldlenp, void *newp,
		   size_t newlen)
{
	int err;

	if (!next_mallctl)
		next_mallctl = (mallctl_fn *)dlsym(RTLD_NEXT, "mallctl");
	if (!next_mallctl)
		return ENOENT;
	err = next_mallctl(name, oldp, oldlenp, newp, newlen);
	if (err == 0 && oldp && !newp && strcmp(name, "arenas.create") == 0)
		hook_new_arena(*(const unsigned int *)oldp);
	return err;
}

PUBLIC int mallctlbymib(const size_t *mib, size_t miblen, void *oldp,
			size_t *oldlenp, void *newp, size_t newlen)
{
	int err;

	if (!next_mallctlbymib)
		next_mallctlbymib = (mallctlbymib_fn *)dlsym(RTLD_NEXT, "mallctlbymib");
	if (!next_mallctlbymib)
		return ENOENT;
	err = next_mallctlbymib(mib, miblen, oldp, oldlenp, newp, newlen);
	if (err == 0 && oldp && !newp && miblen == 2 &&
	    memcmp(mib, create_mib, sizeof(create_mib)) == 0)
		hook_new_arena(*(const unsigned int *)oldp);
	return err;
}

/* ---- Start ---------------------------------------------------------------------- */

/* Only the module knows this advice. */
static bool is_registered(void)
{
	void *p = mmap(NULL, PAGE, RW, ANON, -1, 0);
	bool known;

	if (p == MAP_FAILED)
		return false;
	known = madvise(p, PAGE, HPMMAP_MADV_REUSE) == 0;
	munmap(p, PAGE);
	return known;
}

static bool usable_jemalloc(void)
{
	typedef int nametomib_fn(const char *name, size_t *mib, size_t *miblen);
	nametomib_fn *nametomib = (nametomib_fn *)dlsym(RTLD_NEXT, "mallctlnametomib");
	size_t hooks_len = 3, create_len = 2, len;
	const char *version = "";

	next_mallctl = (mallctl_fn *)dlsym(RTLD_NEXT, "mallctl");
	next_mallctlbymib = (mallctlbymib_fn *)dlsym(RTLD_NEXT, "mallctlbymib");
	if (!nametomib || !next_mallctl || !next_mallctlbymib) {
		fprintf(stderr, "libhpmmap_jemalloc: jemalloc is not loaded: "
			"LD_PRELOAD must name libjemalloc.so.2 behind this library\n");
		return false;
	}
	len = sizeof(version);
	if (next_mallctl("version", &version, &len, NULL, 0) != 0 ||
	    strtoul(version, NULL, 10) < 5 ||
	    nametomib("arena.0.extent_hooks", hooks_mib, &hooks_len) != 0 ||
	    nametomib("arenas.create", create_mib, &create_len) != 0) {
		fprintf(stderr, "libhpmmap_jemalloc: jemalloc %s has no extent hooks: "
			"5.0 or newer is needed\n", version);
		return false;
	}
	return true;
}

__attribute__((constructor)) static void start(void)
{
	if (!is_registered() || !usable_jemalloc())
		return;
	for (size_t i = 0; i < NR_SOURCES; i++)
		sources[i].lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	if (pthread_atfork(NULL, NULL, after_fork_in_child) != 0)
		return;
	active = true;
	hook_arenas();
}
