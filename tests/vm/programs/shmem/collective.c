// SPDX-License-Identifier: GPL-2.0
/*
 * OpenSHMEM's collectives, each function with each type, over sizes, by all PEs, by every other one as a team, and
 * by active sets. Results are compared with what one PE computes in the same order.
 */
#include <complex.h>

#include "check.h"

#define MOST	600
static const size_t sizes[] = { 0, 1, 2, 3, 17, MOST };
#define NR_SIZES	(sizeof(sizes) / sizeof(sizes[0]))
#define MOST_PES	16
#define GAP		0x55

/* 16 bytes for an element of the largest type, twice the elements for strides. */
static char dest_room[MOST * MOST_PES * 16 * 2 + 64] __attribute__((aligned(64)));
static char source_room[MOST * MOST_PES * 16 * 2] __attribute__((aligned(64)));
static long psync[SHMEM_SYNC_SIZE];

/* Who takes part: PEs start, start + stride, ... */
struct set {
	shmem_team_t team;
	int start;
	int stride;
	int size;
	int me;
};

#define VALUE(T, pe, i)	((T)((pe) * 5 % 11 + (int)((i) % 7) + 1))
#define CLEAN(bytes)	memset(dest_room, GAP, (bytes) + 64)
#define IS_CLEAN(at)	(*(const char *)(at) == GAP)

#define MOVES(name, T, ...) \
	static void moves_##name(const struct set *set) \
	{ \
		T *dest = (T *)dest_room, *source = (T *)source_room; \
		for (size_t s = 0; s < NR_SIZES; s++) { \
			size_t n = sizes[s], size = (size_t)set->size, at = 0, mine; \
			int root = set->size - 1; \
			for (size_t i = 0; i < n * size * 2; i++) \
				source[i] = VALUE(T, set->me, i); \
			CLEAN(n * sizeof(T)); \
			CHECK(shmem_##name##_broadcast(set->team, dest, source, n, root) == 0); \
			for (size_t i = 0; i < n; i++) \
				CHECK(dest[i] == VALUE(T, root, i), #name "_broadcast %zu of %zu", i, n); \
			CHECK(IS_CLEAN(dest + n)); \
			CLEAN(n * size * sizeof(T)); \
			CHECK(shmem_##name##_fcollect(set->team, dest, source, n) == 0); \
			for (size_t i = 0; i < n * size; i++) \
				CHECK(dest[i] == VALUE(T, (int)(i / n), i % n), #name "_fcollect %zu of %zu", i, n); \
			CHECK(IS_CLEAN(dest + n * size)); \
			/* PEs have different numbers of elements. */ \
			CLEAN(n * size * sizeof(T)); \
			mine = n * (size_t)set->me / size; \
			CHECK(shmem_##name##_collect(set->team, dest, source, mine) == 0); \
			for (int pe = 0; pe < set->size; pe++) \
				for (size_t i = 0; i < n * (size_t)pe / size; i++, at++) \
					CHECK(dest[at] == VALUE(T, pe, i), #name "_collect %zu of PE %d", i, pe); \
			CHECK(IS_CLEAN(dest + at)); \
			CLEAN(n * size * sizeof(T)); \
			CHECK(shmem_##name##_alltoall(set->team, dest, source, n) == 0); \
			for (size_t i = 0; i < n * size; i++) \
				CHECK(dest[i] == VALUE(T, (int)(i / n), (size_t)set->me * n + i % n), #name "_alltoall"); \
			CHECK(IS_CLEAN(dest + n * size)); \
			CLEAN(n * size * sizeof(T) * 2); \
			CHECK(shmem_##name##_alltoalls(set->team, dest, source, 2, 1, n) == 0); \
			for (size_t i = 0; i < n * size; i++) { \
				CHECK(dest[2 * i] == VALUE(T, (int)(i / n), (size_t)set->me * n + i % n), #name "_alltoalls"); \
				CHECK(IS_CLEAN(dest + 2 * i + 1)); \
			} \
		} \
	}
SHMEMI_RMA(MOVES, )
SHMEMI_RMA_ALIASES(MOVES, )

#define DO_and(a, b)	((a) & (b))
#define DO_or(a, b)	((a) | (b))
#define DO_xor(a, b)	((a) ^ (b))
#define DO_max(a, b)	((a) > (b) ? (a) : (b))
#define DO_min(a, b)	((a) < (b) ? (a) : (b))
#define DO_sum(a, b)	((a) + (b))
#define DO_prod(a, b)	((a) * (b))

/* In two buffers, and in place. */
#define REDUCE_BY(name, T, op, what, to, call) \
	do { \
		for (size_t i = 0; i < n; i++) \
			source[i] = VALUE(T, set->me, i); \
		CLEAN(n * sizeof(T)); \
		call; \
		for (size_t i = 0; i < n; i++) { \
			T want = VALUE(T, 0, i); \
			for (int pe = 1; pe < set->size; pe++) \
				want = (T)DO_##op(want, VALUE(T, pe, i)); \
			CHECK((to)[i] == want, #name "_" #op what " %zu of %zu", i, n); \
		} \
		if ((to) == dest) \
			CHECK(IS_CLEAN(dest + n)); \
		/* Before the next one is written to. */ \
		shmem_team_sync(set->team); \
	} while (0)
#define REDUCE(name, T, op) \
	static void reduce_##op##_##name(const struct set *set) \
	{ \
		T *dest = (T *)dest_room, *source = (T *)source_room; \
		for (size_t s = 0; s < NR_SIZES; s++) { \
			size_t n = sizes[s]; \
			REDUCE_BY(name, T, op, "_reduce", dest, \
				  CHECK(shmem_##name##_##op##_reduce(set->team, dest, source, n) == 0)); \
			REDUCE_BY(name, T, op, "_reduce in place", source, \
				  CHECK(shmem_##name##_##op##_reduce(set->team, source, source, n) == 0)); \
		} \
	}
/* Of active sets, whose strides are powers of two. */
#define TO_ALL(name, T, op) \
	static void to_all_##op##_##name(const struct set *set) \
	{ \
		T *dest = (T *)dest_room, *source = (T *)source_room; \
		static T pwrk[MOST]; \
		for (size_t s = 0; s < NR_SIZES; s++) { \
			size_t n = sizes[s]; \
			REDUCE_BY(name, T, op, "_to_all", dest, \
				  shmem_##name##_##op##_to_all(dest, source, (int)n, set->start, set->stride / 2, set->size, \
							       pwrk, psync)); \
		} \
	}
#define REDUCTIONS(op, TYPES, ALIASES, OLD) \
	SHMEMI_##TYPES(REDUCE, op) \
	SHMEMI_##ALIASES(REDUCE, op) \
	SHMEMI_##OLD(TO_ALL, op)
#define ALL_REDUCTIONS \
	REDUCTIONS(and, AND, AND_ALIASES, AND_TO_ALL) \
	REDUCTIONS(or, AND, AND_ALIASES, AND_TO_ALL) \
	REDUCTIONS(xor, AND, AND_ALIASES, AND_TO_ALL) \
	REDUCTIONS(max, RMA, RMA_ALIASES, MAX_TO_ALL) \
	REDUCTIONS(min, RMA, RMA_ALIASES, MAX_TO_ALL) \
	REDUCTIONS(sum, SUM, RMA_ALIASES, SUM_TO_ALL) \
	REDUCTIONS(prod, SUM, RMA_ALIASES, SUM_TO_ALL)
ALL_REDUCTIONS

/* Of active sets and of bytes. */
static void old(const struct set *set)
{
	const int log = set->stride / 2;
	uint32_t *d32 = (uint32_t *)dest_room, *s32 = (uint32_t *)source_room;
	uint64_t *d64 = (uint64_t *)dest_room, *s64 = (uint64_t *)source_room;
	size_t size = (size_t)set->size, n = 9, at = 0;

	for (size_t i = 0; i < 2 * n * size; i++)
		s64[i] = VALUE(uint64_t, set->me, i);
	CLEAN(n * 8);
	shmem_broadcast64(d64, s64, n, set->size - 1, set->start, log, set->size, psync);
	/* The root's own is left as it was. */
	for (size_t i = 0; i < n; i++)
		CHECK(set->me == set->size - 1 ? IS_CLEAN(&d64[i]) : d64[i] == VALUE(uint64_t, set->size - 1, i));
	shmem_barrier(set->start, log, set->size, psync);
	CLEAN(n * size * 8);
	shmem_fcollect64(d64, s64, n, set->start, log, set->size, psync);
	for (size_t i = 0; i < n * size; i++)
		CHECK(d64[i] == VALUE(uint64_t, (int)(i / n), i % n));
	CLEAN(n * size * 8);
	shmem_alltoalls64(d64, s64, 2, 1, n, set->start, log, set->size, psync);
	for (size_t i = 0; i < n * size; i++)
		CHECK(d64[2 * i] == VALUE(uint64_t, (int)(i / n), (size_t)set->me * n + i % n));
	(shmem_sync)(set->start, log, set->size, psync);
	for (size_t i = 0; i < n * size; i++)
		s32[i] = VALUE(uint32_t, set->me, i);
	CLEAN(n * size * 4);
	shmem_collect32(d32, s32, (size_t)set->me + 1, set->start, log, set->size, psync);
	for (int pe = 0; pe < set->size; pe++)
		for (size_t i = 0; i < (size_t)pe + 1; i++, at++)
			CHECK(d32[at] == VALUE(uint32_t, pe, i));
	CLEAN(n * size * 4);
	shmem_alltoall32(d32, s32, n, set->start, log, set->size, psync);
	for (size_t i = 0; i < n * size; i++)
		CHECK(d32[i] == VALUE(uint32_t, (int)(i / n), (size_t)set->me * n + i % n));
	CHECK(psync[0] == SHMEM_SYNC_VALUE && psync[1] == SHMEM_SYNC_VALUE);
	CHECK(shmem_fcollectmem(set->team, dest_room, source_room, 3) == 0);
	for (size_t i = 0; i < 3 * size; i++)
		CHECK(dest_room[i] == (i % 3 ? 0 : VALUE(char, (int)(i / 3), 0)));
	CHECK(shmem_broadcastmem(set->team, source_room, source_room, 4, 0) == 0);
	CHECK(s32[0] == VALUE(uint32_t, 0, 0));
}

/* Floats that cannot be added without rounding: all PEs have the same bits. */
static void same_bits(void)
{
	static double x[100], sum[100], first[100];

	for (int i = 0; i < 100; i++)
		x[i] = 1.0 / (3 + me * 7 + i);
	shmem_sum_reduce(SHMEM_TEAM_WORLD, sum, x, 100);
	shmem_get(first, sum, 100, 0);
	CHECK(memcmp(sum, first, sizeof(sum)) == 0);
	shmem_barrier_all();
}

#define RUN_MOVES(name, T, set)	moves_##name(set);
#define RUN_REDUCE(name, T, op)	reduce_##op##_##name(set);
#define RUN_TO_ALL(name, T, op)	to_all_##op##_##name(set);

static void run(const struct set *set)
{
	SHMEMI_RMA(RUN_MOVES, set)
	SHMEMI_RMA_ALIASES(RUN_MOVES, set)
#undef REDUCTIONS
#define REDUCTIONS(op, TYPES, ALIASES, OLD) \
	SHMEMI_##TYPES(RUN_REDUCE, op) \
	SHMEMI_##ALIASES(RUN_REDUCE, op) \
	SHMEMI_##OLD(RUN_TO_ALL, op)
	ALL_REDUCTIONS
	old(set);
}

int main(void)
{
	struct set all = { SHMEM_TEAM_WORLD, 0, 1, 0, 0 }, odd = { SHMEM_TEAM_INVALID, 1, 2, 0, 0 };

	begin();
	all.size = npes;
	all.me = me;
	run(&all);
	odd.size = npes / 2;
	odd.me = me / 2;
	if (odd.size)
		shmem_team_split_strided(SHMEM_TEAM_WORLD, 1, 2, odd.size, NULL, 0, &odd.team);
	if (odd.team != SHMEM_TEAM_INVALID)
		run(&odd);
	same_bits();
	return end();
}
