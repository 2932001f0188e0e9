// SPDX-License-Identifier: GPL-2.0
/*
 * libhpmmap_jemalloc: jemalloc's extents on HPMMAP.
 *
 * Preload it in front of an unmodified jemalloc 5 (hpmmap run --malloc jemalloc does). It gives
 * each arena extent hooks that map whole 2 MB slots, without zeroing unless jemalloc asks for
 * zeros, and that unmap whole slots, which the module then reuses without zeroing. In a process
 * that is not registered it does nothing.
 *
 * Few extents are whole slots: jemalloc 5.3 adds a page to each large one. So extents lie side by
 * side. What remains of a slot when an extent is given back is a piece. A piece serves later
 * extents, alone or with new slots behind it, or completes a slot together with its neighbours. All
 * this memory is of one kind, so extents may be split and merged anywhere, except with extents that
 * jemalloc took from the break before it had the hooks. All memory of an extent is committed, so
 * there are no hooks for committing and purging: jemalloc gives an extent back where it would purge
 * it.
 *
 * From jemalloc 5.4 on, extents smaller than a slot are pinned: giving one back frees nothing by
 * itself, so the arena keeps it for its next request instead of letting it decay. Larger ones are
 * given back as before.
 *
 * With jemalloc's option retain:false it asks for no more than it needs. Without the option the
 * library is correct, but holds more.
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
#include <threads.h>
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

/* A flag in the address that the alloc hook returns (jemalloc 5.4): the extent is pinned. */
#ifndef EXTENT_ALLOC_FLAG_PINNED
#define EXTENT_ALLOC_FLAG_PINNED	0x1U
#endif

/* Address space looked for at once, unless one extent needs more. */
#define RUN_BYTES	((size_t)256 << 20)
#define MAX_PIECES	192
/* Arenas whose numbers differ by a multiple of this share a source. */
#define NR_SOURCES	64
/* jemalloc's own limit (MALLOCX_ARENA_LIMIT). */
#define MAX_ARENAS	4096

/*
 * Mapped memory [start, end) that is in no extent, never a whole slot. If hole is beyond end, [end,
 * hole) is whole slots of address space that were free when last seen. Other code may have mapped
 * something there since.
 */
struct piece {
	uintptr_t start;
	uintptr_t end;
	uintptr_t hole;
};

/* The source of extents that are not whole slots. */
struct source {
	pthread_mutex_t lock;
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
 * Maps whole slots, at the given address if it is free. Memory that must be zero is mapped without
 * MAP_UNINITIALIZED and gets HPMMAP_MADV_REUSE afterwards, so that it can be reused later.
 * MAP_FIXED is for address space that is reserved. Returns 0 on failure.
 */
static uintptr_t map(uintptr_t at, size_t size, int fixed, bool zero)
{
	void *p = mmap((void *)at, size, RW,
		       ANON | fixed | (zero ? 0 : MAP_UNINITIALIZED), -1, 0);

	if (p == MAP_FAILED)
		return 0;
	/* The caller needs this address or none. */
	if (at && (uintptr_t)p != at) {
		munmap(p, size);
		return 0;
	}
	if (zero)
		madvise(p, size, HPMMAP_MADV_REUSE);
	return (uintptr_t)p;
}

/* Reserves address space, aligned to at least a slot. Returns 0 on failure. */
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

/* Maps whole slots as a mapping of their own. */
static uintptr_t map_slots(size_t size, size_t alignment, bool zero)
{
	uintptr_t p;

	if (alignment < SLOT)
		alignment = SLOT;
	/* HPMMAP aligns mappings to slots. */
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

/* ---- The break -------------------------------------------------------- */

typedef void *sbrk_fn(intptr_t increment);

/* The C library's sbrk(), which the one below calls. */
static _Atomic(sbrk_fn *) next_sbrk;

/* The break before it was first moved up; UINTPTR_MAX until then. */
static atomic_uintptr_t break_start = UINTPTR_MAX;

/*
 * jemalloc may take extents from the break before it has the hooks, or in an arena without them.
 * Only this wrapper can tell where the break begins: mappings lie above it, below it (with an
 * unlimited stack), or on both sides.
 */
PUBLIC void *sbrk(intptr_t increment)
{
	sbrk_fn *next = atomic_load(&next_sbrk);
	uintptr_t known;
	void *old;

	if (!next) {
		next = (sbrk_fn *)dlsym(RTLD_NEXT, "sbrk");
		atomic_store(&next_sbrk, next);
	}
	old = next(increment);
	if (old == (void *)-1 || increment <= 0)
		return old;
	known = atomic_load(&break_start);
	while ((uintptr_t)old < known)
		if (atomic_compare_exchange_weak(&break_start, &known, (uintptr_t)old))
			break;
	return old;
}

static bool is_from_break(const void *addr)
{
	return (uintptr_t)addr >= atomic_load(&break_start) &&
	       (uintptr_t)addr < (uintptr_t)sbrk(0);
}

/* ---- Pieces ------------------------------------------------------------- */

static void remove_piece(struct source *source, unsigned int i)
{
	source->pieces[i] = source->pieces[--source->nr_pieces];
}

/* An empty piece is not kept; if the table is full, the memory is unmapped. */
static void add_piece(struct source *source, uintptr_t start, uintptr_t end,
		      uintptr_t hole)
{
	if (start == hole)
		return;
	if (source->nr_pieces < MAX_PIECES)
		source->pieces[source->nr_pieces++] = (struct piece){ start, end, hole };
	else if (start != end)
		munmap((void *)start, end - start);
}

/*
 * Takes [start, start + size) out of a piece, whose end the caller may have moved over new slots.
 */
static void cut_piece(struct source *source, unsigned int i, uintptr_t start,
		      size_t size)
{
	struct piece piece = source->pieces[i];

	/* In this order one of the two always finds room. */
	remove_piece(source, i);
	add_piece(source, start + size, piece.end, piece.hole);
	add_piece(source, piece.start, start, start);
}

/*
 * Makes a piece long enough, by slots behind it. If those are in use the piece loses its hole. With
 * zero, the bytes to be taken are zero.
 */
static bool extend_piece(struct piece *piece, uintptr_t start, size_t size,
			 bool zero)
{
	uintptr_t old_end = piece->end, end = up(start + size, SLOT);

	if (start + size > old_end) {
		if (!map(old_end, end - old_end, 0, zero)) {
			piece->hole = old_end;
			return false;
		}
		piece->end = end;
	}
	if (zero && start < old_end)
		memset((void *)start, 0,
		       (old_end < start + size ? old_end : start + size) - start);
	return true;
}

/*
 * Returns the piece that fits best: the smallest that fits without its hole or, if none does, the
 * smallest with it. MAX_PIECES: there is none.
 */
static unsigned int find_piece(const struct source *source, size_t size,
			       size_t alignment)
{
	unsigned int best = MAX_PIECES, best_with_hole = MAX_PIECES;
	size_t least = SIZE_MAX, least_with_hole = SIZE_MAX;

	for (unsigned int i = 0; i < source->nr_pieces; i++) {
		const struct piece *piece = &source->pieces[i];
		uintptr_t start = up(piece->start, alignment);

		/* The bytes that alignment skips must exist too. */
		if (start > piece->end || piece->hole - start < size)
			continue;
		if (piece->end - start >= size && piece->end - piece->start < least) {
			least = piece->end - piece->start;
			best = i;
		}
		if (piece->hole - piece->start < least_with_hole) {
			least_with_hole = piece->hole - piece->start;
			best_with_hole = i;
		}
	}
	return best < MAX_PIECES ? best : best_with_hole;
}

/* Returns 0 if there is no memory. */
static uintptr_t take(struct source *source, size_t size, size_t alignment,
		      bool zero)
{
	size_t bytes = up(size, SLOT);
	size_t room = bytes < RUN_BYTES ? RUN_BYTES : bytes;
	uintptr_t start;
	unsigned int i;

	/* Each failed turn removes a hole, so the loop ends. */
	while ((i = find_piece(source, size, alignment)) < MAX_PIECES) {
		start = up(source->pieces[i].start, alignment);
		if (extend_piece(&source->pieces[i], start, size, zero)) {
			cut_piece(source, i, start, size);
			return start;
		}
		if (source->pieces[i].start == source->pieces[i].hole)
			remove_piece(source, i);
	}
	/* The kernel picks the place of a reservation, so there is room at that place. */
	start = reserve(room, alignment < SLOT ? SLOT : alignment);
	if (start) {
		munmap((void *)start, room);
		start = map(start, bytes, 0, zero);
	}
	/* The place is taken again, or there is not that much room. */
	if (!start) {
		start = map_slots(bytes, alignment, zero);
		room = bytes;
	}
	if (start)
		add_piece(source, start + size, start + bytes, start + room);
	return start;
}

/* ---- Extents ---------------------------------------------------------------- */

/* Takes memory at the end of an extent that is to grow in place. */
static uintptr_t take_at(struct source *source, uintptr_t at, size_t size,
			 bool zero)
{
	size_t bytes = up(size, SLOT);

	for (unsigned int i = 0; i < source->nr_pieces; i++) {
		if (source->pieces[i].start != at)
			continue;
		if (source->pieces[i].hole - at < size ||
		    !extend_piece(&source->pieces[i], at, size, zero))
			return 0;
		cut_piece(source, i, at, size);
		return at;
	}
	if (at % SLOT != 0 || !map(at, bytes, 0, zero))
		return 0;
	add_piece(source, at + size, at + bytes, at + bytes);
	return at;
}

/* The loaded jemalloc knows EXTENT_ALLOC_FLAG_PINNED. */
static bool knows_pinned;

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
		if (new_addr)
			p = take_at(source, (uintptr_t)new_addr, size, *zero);
		else
			p = take(source, size, alignment, *zero);
		pthread_mutex_unlock(&source->lock);
	}
	if (!p)
		return NULL;
	*commit = true;
	/* Memory that grows an extent is merged with it, and only extents of one kind merge. */
	if (knows_pinned && !new_addr && size < SLOT)
		p |= EXTENT_ALLOC_FLAG_PINNED;
	return (void *)p;
}

/*
 * Unmaps the whole slots of the range together with the pieces beside it; the rest becomes pieces.
 * False: those would be too many, or munmap() failed, and nothing has changed.
 */
static bool give_back(struct source *source, uintptr_t start, uintptr_t end)
{
	uintptr_t from = start, to = end, hole = end, first, last;
	struct piece *before = NULL;
	unsigned int joined = 0;

	/* At most one piece is at either end. */
	for (unsigned int i = 0; i < source->nr_pieces; i++) {
		struct piece *piece = &source->pieces[i];

		if (piece->end == start && piece->start != start) {
			from = piece->start;
			joined++;
		} else if (piece->start == end) {
			to = piece->end;
			hole = piece->hole;
			joined++;
		}
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
		struct piece *piece = &source->pieces[i];

		if (piece->end == start || piece->start == end)
			remove_piece(source, i);
		else
			i++;
	}
	if (first == last) {
		add_piece(source, from, to, hole);
		return true;
	}
	/* If a piece's hole ended here, the hole grows. */
	for (unsigned int i = 0; from == first && i < source->nr_pieces; i++)
		if (source->pieces[i].hole == first)
			before = &source->pieces[i];
	if (before)
		before->hole = last == to ? hole : last;
	if (last < to)
		add_piece(source, last, to, hole);
	if (!before)
		add_piece(source, from, first, last == to ? hole : last);
	return true;
}

/* True: not given back, so jemalloc keeps the extent for later. */
static bool extent_dalloc(extent_hooks_t *hooks, void *addr, size_t size,
			  bool committed, unsigned int arena)
{
	struct source *source = &sources[arena % NR_SOURCES];
	uintptr_t start = (uintptr_t)addr;
	bool done;

	(void)hooks;
	(void)committed;
	if (is_from_break(addr))
		return true;
	if (start % SLOT == 0 && size % SLOT == 0)
		return munmap(addr, size) != 0;
	pthread_mutex_lock(&source->lock);
	done = give_back(source, start, start + size);
	pthread_mutex_unlock(&source->lock);
	return !done;
}

/* For an arena that is destroyed: it cannot keep the extent. */
static void extent_destroy(extent_hooks_t *hooks, void *addr, size_t size,
			   bool committed, unsigned int arena)
{
	if (extent_dalloc(hooks, addr, size, committed, arena) && !is_from_break(addr))
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
	(void)hooks, (void)size_a, (void)size_b, (void)committed, (void)arena;
	/* Memory from the break is never given back, the other is, so they must not merge. */
	return is_from_break(addr_a) != is_from_break(addr_b);
}

static extent_hooks_t extent_hooks = {
	.alloc = extent_alloc,
	.dalloc = extent_dalloc,
	.destroy = extent_destroy,
	.split = extent_split,
	.merge = extent_merge,
};

/*
 * If another thread held the source's lock during the fork, the child starts it anew. The memory of
 * its pieces stays mapped there, unused.
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
typedef int thrd_create_fn(thrd_t *thread, thrd_start_t start, void *arg);

/* The functions of jemalloc and of the C library that the ones below call. */
static mallctl_fn *next_mallctl;
static mallctlbymib_fn *next_mallctlbymib;
static pthread_create_fn *next_pthread_create;
static thrd_create_fn *next_thrd_create;

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

/* Asking for the thread's arena gives it one, as its first allocation would. */
static void hook_own_arena(void)
{
	unsigned int arena;
	size_t len = sizeof(arena);

	if (next_mallctl("thread.arena", &arena, &len, NULL, 0) == 0)
		hook_arena(arena);
}

/*
 * jemalloc makes the arena of allocations above oversize_threshold, the last one, at the first of
 * them, in any thread. So it is made here. jemalloc then gives it the usual decay, so its decay is
 * set to 0, which is what jemalloc sets itself.
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
	/* With an arena for each CPU, no thread asks for one. */
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

struct thrd_start {
	thrd_start_t fn;
	void *arg;
};

static int thrd_start_hooked(void *arg)
{
	struct thrd_start start = *(struct thrd_start *)arg;

	free(arg);
	hook_own_arena();
	return start.fn(start.arg);
}

/* The C library's thrd_create() does not call pthread_create(). */
PUBLIC int thrd_create(thrd_t *thread, thrd_start_t fn, void *arg)
{
	struct thrd_start *start;
	int err;

	if (!next_thrd_create)
		next_thrd_create = (thrd_create_fn *)dlsym(RTLD_NEXT, "thrd_create");
	start = active ? malloc(sizeof(*start)) : NULL;
	if (!start)
		return next_thrd_create(thread, fn, arg);
	*start = (struct thrd_start){ fn, arg };
	err = next_thrd_create(thread, thrd_start_hooked, start);
	if (err != thrd_success)
		free(start);
	return err;
}

/* A new arena may have the number of one that was destroyed. */
static void hook_new_arena(unsigned int arena)
{
	if (!active || arena >= MAX_ARENAS)
		return;
	atomic_store(&hooked[arena], false);
	hook_arena(arena);
}

/* Hooks arenas that the program makes itself, unless it brings its own hooks. */
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

/* Only the module knows this advice, and only in registered processes. */
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
	size_t hooks_len = 3, create_len = 2, pinned_mib[2], pinned_len = 2, len;
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
	knows_pinned = nametomib("stats.pinned", pinned_mib, &pinned_len) == 0;
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
