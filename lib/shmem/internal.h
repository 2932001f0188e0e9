/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Declarations that the files of libhpmmap_shmem share. */
#ifndef HPMMAP_SHMEM_INTERNAL_H
#define HPMMAP_SHMEM_INTERNAL_H

#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "../internal.h"
#include "shmem.h"

/*
 * Defines a function: pshmem_<name>, and shmem_<name> as a weak symbol for it. The parameters are in
 * parentheses; the body follows.
 */
#define API(ret, name, params) \
	PUBLIC ret pshmem_##name params; \
	extern __typeof__(pshmem_##name) shmem_##name \
		__attribute__((weak, alias("pshmem_" #name), visibility("default"))); \
	ret pshmem_##name params

/* ---- The job --------------------------------------------------------------- */

#define MOST_PES	TABLE_RANKS
/*
 * Slots: SHMEM_TEAM_WORLD's, SHMEM_TEAM_SHARED's, other teams', active sets'. A hypercube of all PEs has 1024 sets
 * of two.
 */
#define FIRST_TEAM	2
#define FIRST_SET	(FIRST_TEAM + 64)
#define NR_SLOTS	(FIRST_SET + 2048)

/* What the PEs of a team or an active set share. */
struct slot {
	struct barrier barrier;
	/* Not 0: it is taken, by an active set with this number or by a team. */
	_Atomic uint64_t key;
	/* Of a collect: the place of the source, as all PEs with elements have it. */
	_Atomic uint64_t source;
	/* A word of each PE, for the collective that runs. */
	uint64_t word[MOST_PES] __attribute__((aligned(64)));
} __attribute__((aligned(64)));

/* How the others reach a PE's memory. */
struct access {
	/* PE 0's choice counts. */
	uint64_t heap_bytes;
	/* Windows: the publications of heap and variables; -1: none. */
	int64_t heap_id;
	int64_t image_id;
	/* Where the PE itself has them. */
	uintptr_t heap;
	uintptr_t image;
	uintptr_t image_bytes;
	/* A hash of the program's build ID; 0: it has none. */
	uint64_t build;
	/* Otherwise: a memfd with the heap and the variables behind it. */
	int fd;
	/* This PE's answer to the last question that all PEs were asked. */
	_Atomic bool is_well;
};

/* The table of a job's PEs. */
struct shared {
	struct table table;
	/* Status + 1 of shmem_global_exit(). */
	_Atomic int exiting;
	struct access access[MOST_PES];
	struct slot slot[NR_SLOTS];
};

/* This PE: what every put reads is first. npes is 0 and shared is NULL before shmem_init(), after shmem_finalize() and in a child. */
struct self {
	uint32_t npes;
	int me;
	uintptr_t heap;
	uintptr_t heap_bytes;
	/* Global and static variables of the program. */
	uintptr_t image;
	uintptr_t image_bytes;
	/* Added to an address of this PE they give where this PE sees another one's. */
	uintptr_t heap_delta[MOST_PES];
	uintptr_t image_delta[MOST_PES];
	struct shared *shared;
	uint32_t spins;
	bool has_windows;
	bool debugs;
};
extern struct self self;

/* Prints one line and ends the program with status 1. what: the function's name with pshmem_ or shmem_. */
void die(const char *what, const char *format, ...) __attribute__((noreturn, cold, format(printf, 2, 3)));
/* A PE has ended, or has called shmem_global_exit(): ends this one, too. */
void die_with(int pe) __attribute__((noreturn, cold));
/* Says why there is no such address, and ends the program. */
void die_of_address(const char *what, const void *ptr, size_t bytes, int pe) __attribute__((noreturn, cold));

static inline void need_init(const char *what)
{
	if (!self.npes)
		die(what, "shmem_init() was not called in this process");
}

/* Returns this PE's address of the memory that a PE has at the symmetric address ptr. */
static inline void *there(const char *what, const void *ptr, size_t bytes, int pe)
{
	uint32_t to = (uint32_t)pe;

	if (__builtin_expect(to < self.npes, 1)) {
		uintptr_t offset = (uintptr_t)ptr - self.heap;

		if (__builtin_expect(offset < self.heap_bytes, 1) &&
		    (__builtin_constant_p(bytes) || bytes <= self.heap_bytes - offset))
			return (void *)((uintptr_t)ptr + self.heap_delta[to]);
		offset = (uintptr_t)ptr - self.image;
		if (__builtin_expect(offset < self.image_bytes, 1) &&
		    (__builtin_constant_p(bytes) || bytes <= self.image_bytes - offset))
			return (void *)((uintptr_t)ptr + self.image_delta[to]);
		if (!bytes)
			return (void *)(uintptr_t)ptr;
	}
	die_of_address(what, ptr, bytes, pe);
}

#define THERE(ptr, pe)	((__typeof__(ptr))there(__func__, ptr, sizeof(*(ptr)), pe))

/*
 * The bytes between the first and the last of nelems elements that are stride elements apart, both included.
 * SIZE_MAX, which no object has, if a size_t cannot hold them, if it cannot hold those of other, the stride at
 * the call's other side, or if a stride is below 1.
 */
static inline size_t span(size_t nelems, ptrdiff_t stride, ptrdiff_t other, size_t unit)
{
	size_t bytes;

	if (!nelems)
		return 0;
	if (stride < 1 || other < 1 || __builtin_mul_overflow(nelems - 1, stride > other ? stride : other, &bytes) ||
	    __builtin_add_overflow(bytes, 1, &bytes) || __builtin_mul_overflow(bytes, unit, &bytes))
		return SIZE_MAX;
	return ((nelems - 1) * (size_t)stride + 1) * unit;
}

/* One step of a wait for another PE. *step counts from 0. */
void wait_step(uint32_t *step);

/* ---- Teams ----------------------------------------------------------------- */

struct team {
	int start;
	int stride;
	int size;
	int me;
	/* Of one PE: memory of this process. */
	struct slot *slot;
	shmem_team_config_t config;
	/* Contexts that are destroyed with it. */
	struct ctx *contexts;
};

struct ctx {
	struct ctx *next;
	struct team *team;
};

void teams_init(void);

/* Returns NULL for SHMEM_TEAM_INVALID. */
struct team *team_of(shmem_team_t handle);

/* The team of an active set that this PE belongs to. */
struct team *active_set(const char *what, int start, int log_stride, int size);

static inline int world_pe(const struct team *team, int i)
{
	return team->start + i * team->stride;
}

/* A context's PE in SHMEM_TEAM_WORLD. */
int pe_of_context(const char *what, shmem_ctx_t ctx, int pe);

static inline int pe_in(const char *what, shmem_ctx_t ctx, int pe)
{
	return __builtin_expect(ctx == SHMEM_CTX_DEFAULT, 1) ? pe : pe_of_context(what, ctx, pe);
}

#define PE_IN(ctx, pe)	pe_in(__func__, ctx, pe)

/*
 * Most puts, gets and atomics are defined twice, as BARE and as IN_CTX: the first without a context, the other
 * with one, whose team numbers pe.
 */
#define BARE(X, ...)	X(, , pe, __VA_ARGS__)
#define IN_CTX(X, ...)	X(ctx_, WITH_CTX, PE_IN(ctx, pe), __VA_ARGS__)
#define WITH_CTX	shmem_ctx_t ctx,

/* Waits for all PEs of the team. */
void team_barrier(struct team *team);
void barrier_all(void);

/* ---- The heap -------------------------------------------------------------- */

int heap_init(void);

#endif
