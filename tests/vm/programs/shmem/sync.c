// SPDX-License-Identifier: GPL-2.0
/*
 * OpenSHMEM's atomics, waits, locks, order, teams and contexts, each function with each type, on the heap and on
 * static variables.
 */
#include <pthread.h>

#include "check.h"

#define ROUNDS	200
/* Of what goes wrong only if two CPUs do it at the same time. */
#define RACES	(npes == 2 ? 20000 : ROUNDS)

static int next, before;
static void *heap_room;
static uint64_t static_room[16];
static shmem_ctx_t ctx;

/* Sets the variable at all PEs, of which each has then set its own. */
#define START(T, to) \
	do { \
		shmem_barrier_all(); \
		*x = (T)(to); \
		shmem_barrier_all(); \
	} while (0)
/* What this PE's neighbour did to it is there. */
#define FOUND(what, value) \
	do { \
		shmem_barrier_all(); \
		CHECK(*x == (value), "%s", what); \
		shmem_barrier_all(); \
	} while (0)

#define EXTENDED(name, T, ...) \
	static void extended_##name(T *x) \
	{ \
		T old = 0; \
		START(T, me + 1); \
		CHECK(shmem_##name##_atomic_fetch(x, next) == (T)(next + 1)); \
		CHECK(shmem_ctx_##name##_atomic_fetch(ctx, x, next) == (T)(next + 1)); \
		shmem_##name##_atomic_fetch_nbi(&old, x, next); \
		shmem_quiet(); \
		CHECK(old == (T)(next + 1)); \
		START(T, 0); \
		shmem_##name##_atomic_set(x, (T)(me + 5), next); \
		FOUND(#name "_atomic_set", (T)(before + 5)); \
		CHECK(shmem_##name##_atomic_swap(x, (T)(me + 9), next) == (T)(me + 5)); \
		FOUND(#name "_atomic_swap", (T)(before + 9)); \
		shmem_ctx_##name##_atomic_swap_nbi(ctx, &old, x, (T)(me + 3), next); \
		shmem_ctx_quiet(ctx); \
		CHECK(old == (T)(me + 9)); \
		FOUND(#name "_atomic_swap_nbi", (T)(before + 3)); \
	}
#define FETCHING(name, T, op, from, value, result) \
	START(T, from); \
	shmem_##name##_atomic_##op(x, value, next); \
	FOUND(#name "_atomic_" #op, (T)(result)); \
	START(T, from); \
	CHECK(shmem_##name##_atomic_fetch_##op(x, value, next) == (T)(from)); \
	FOUND(#name "_atomic_fetch_" #op, (T)(result)); \
	START(T, from); \
	shmem_ctx_##name##_atomic_fetch_##op##_nbi(ctx, &old, x, value, next); \
	shmem_ctx_quiet(ctx); \
	CHECK(old == (T)(from)); \
	FOUND(#name "_atomic_fetch_" #op "_nbi", (T)(result));
#define AMO(name, T, ...) \
	static void amo_##name(T *x) \
	{ \
		T old = 0; \
		FETCHING(name, T, add, 40, 2, 42) \
		START(T, 7); \
		CHECK(shmem_##name##_atomic_compare_swap(x, 8, 9, next) == 7); \
		FOUND(#name "_atomic_compare_swap", 7); \
		CHECK(shmem_ctx_##name##_atomic_compare_swap(ctx, x, 7, 9, next) == 7); \
		FOUND(#name "_atomic_compare_swap", 9); \
		shmem_##name##_atomic_compare_swap_nbi(&old, x, 9, 1, next); \
		shmem_quiet(); \
		CHECK(old == 9); \
		FOUND(#name "_atomic_compare_swap_nbi", 1); \
		shmem_##name##_atomic_inc(x, next); \
		FOUND(#name "_atomic_inc", 2); \
		CHECK(shmem_##name##_atomic_fetch_inc(x, next) == 2); \
		shmem_ctx_##name##_atomic_fetch_inc_nbi(ctx, &old, x, next); \
		shmem_quiet(); \
		CHECK(old == 3); \
		FOUND(#name "_atomic_fetch_inc_nbi", 4); \
		/* All PEs at one variable: nothing is lost. */ \
		START(T, 0); \
		for (int i = 0; i < ROUNDS; i++) { \
			shmem_##name##_atomic_add(x, 2, 0); \
			shmem_##name##_atomic_inc(x, 0); \
		} \
		shmem_barrier_all(); \
		CHECK(shmem_##name##_g(x, 0) == (T)(3 * ROUNDS * npes)); \
	}
#define BITWISE(name, T, ...) \
	static void bitwise_##name(T *x) \
	{ \
		T old = 0; \
		FETCHING(name, T, and, 0x3f, 0x71, 0x31) \
		FETCHING(name, T, or, 0x30, 0x41, 0x71) \
		FETCHING(name, T, xor, 0x3f, 0x71, 0x4e) \
	}
#define OLD_EXTENDED(name, T, ...) \
	static void old_extended_##name(T *x) \
	{ \
		START(T, 1); \
		CHECK(shmem_##name##_swap(x, 2, next) == 1); \
		CHECK(shmem_##name##_fetch(x, next) == 2); \
		shmem_##name##_set(x, 3, next); \
		FOUND(#name "_set", 3); \
	}
#define OLD_AMO(name, T, ...) \
	static void old_amo_##name(T *x) \
	{ \
		START(T, 1); \
		CHECK(shmem_##name##_cswap(x, 1, 4, next) == 1); \
		CHECK(shmem_##name##_fadd(x, 4, next) == 4); \
		CHECK(shmem_##name##_finc(x, next) == 8); \
		shmem_##name##_add(x, 10, next); \
		shmem_##name##_inc(x, next); \
		FOUND(#name "_inc", 20); \
	}
/* The PE before writes after a while. */
#define WAITS(name, T, ...) \
	static void waits_##name(T *x) \
	{ \
		static T many[8], values[8]; \
		static int status[8]; \
		size_t found[8], n; \
		START(T, 1); \
		CHECK(shmem_##name##_test(x, SHMEM_CMP_EQ, 1) && !shmem_##name##_test(x, SHMEM_CMP_NE, 1)); \
		CHECK(shmem_##name##_test(x, SHMEM_CMP_GE, 1) && !shmem_##name##_test(x, SHMEM_CMP_GT, 1)); \
		CHECK(shmem_##name##_test(x, SHMEM_CMP_LE, 1) && !shmem_##name##_test(x, SHMEM_CMP_LT, 1)); \
		shmem_barrier_all(); \
		shmem_##name##_p(x, 20, next); \
		shmem_##name##_wait_until(x, SHMEM_CMP_EQ, 20); \
		for (int i = 0; i < 8; i++) { \
			many[i] = 0; \
			status[i] = i == 0 || i == 3; \
			values[i] = (T)(i + 1); \
		} \
		CHECK(shmem_##name##_test_any(many, 8, status, SHMEM_CMP_NE, 0) == SIZE_MAX); \
		CHECK(shmem_##name##_test_some(many, 8, found, status, SHMEM_CMP_NE, 0) == 0); \
		CHECK(!shmem_##name##_test_all(many, 8, status, SHMEM_CMP_NE, 0)); \
		CHECK(shmem_##name##_test_all(many, 0, NULL, SHMEM_CMP_NE, 0)); \
		CHECK(shmem_##name##_wait_until_any(many, 0, NULL, SHMEM_CMP_NE, 0) == SIZE_MAX); \
		CHECK(shmem_##name##_wait_until_some(many, 0, found, NULL, SHMEM_CMP_NE, 0) == 0); \
		shmem_barrier_all(); \
		shmem_##name##_p(&many[3], 4, next); \
		shmem_##name##_p(&many[5], 6, next); \
		CHECK(shmem_##name##_wait_until_any(many, 8, status, SHMEM_CMP_NE, 0) == 5); \
		CHECK(shmem_##name##_test_any_vector(many, 8, status, SHMEM_CMP_EQ, values) == 5); \
		n = shmem_##name##_wait_until_some(many, 8, found, NULL, SHMEM_CMP_GT, 0); \
		CHECK(n == 2 && found[0] == 3 && found[1] == 5, "%zu", n); \
		n = shmem_##name##_test_some_vector(many, 8, found, NULL, SHMEM_CMP_EQ, values); \
		CHECK(n == 2 && found[0] == 3 && found[1] == 5, "%zu", n); \
		n = shmem_##name##_wait_until_any_vector(many, 8, NULL, SHMEM_CMP_EQ, values); \
		CHECK(n == 3 || n == 5); \
		CHECK(shmem_##name##_wait_until_some_vector(many, 8, found, status, SHMEM_CMP_EQ, values) == 1); \
		shmem_barrier_all(); \
		for (int i = 0; i < 8; i++) \
			shmem_##name##_p(&many[i], (T)(i + 1), next); \
		shmem_##name##_wait_until_all_vector(many, 8, NULL, SHMEM_CMP_EQ, values); \
		shmem_##name##_wait_until_all(many, 8, status, SHMEM_CMP_GE, 2); \
		CHECK(shmem_##name##_test_all_vector(many, 8, NULL, SHMEM_CMP_EQ, values)); \
		CHECK(shmem_##name##_test_all(many, 8, NULL, SHMEM_CMP_LE, 8)); \
		shmem_barrier_all(); \
	}
SHMEMI_EXTENDED(EXTENDED, )
SHMEMI_AMO_ALIASES(EXTENDED, )
SHMEMI_AMO(AMO, )
SHMEMI_AMO_ALIASES(AMO, )
SHMEMI_BITWISE(BITWISE, )
SHMEMI_BIT_ALIASES(BITWISE, )
SHMEMI_INTS(OLD_EXTENDED, )
SHMEMI_REALS(OLD_EXTENDED, )
SHMEMI_INTS(OLD_AMO, )
SHMEMI_SYNC(WAITS, )
SHMEMI_AMO_ALIASES(WAITS, )

#define RUN(name, T, what) \
	what##_##name(heap_room); \
	what##_##name((T *)static_room);

static void generics(void)
{
	static int i;
	static double d;
	static uint64_t u;

	shmem_barrier_all();
	shmem_atomic_add(&i, 3, next);
	shmem_atomic_set(ctx, &d, 1.5, next);
	shmem_atomic_or(&u, 8, next);
	shmem_wait_until(&i, SHMEM_CMP_EQ, 3);
	shmem_wait_until(&u, SHMEM_CMP_EQ, 8);
	shmem_barrier_all();
	CHECK(d == 1.5 && shmem_atomic_fetch(&d, next) == 1.5 && shmem_atomic_fetch_inc(ctx, &i, next) == 3);
	shmem_barrier_all();
	CHECK(shmem_test(&i, SHMEM_CMP_EQ, 4));
	shmem_barrier_all();
	CHECK(shmem_finc(&i, next) == 4);
	shmem_sync(SHMEM_TEAM_WORLD);
}

/* One PE at a time holds the lock: what it counts without atomics is right. */
static void locks(void)
{
	static long lock, count;
	long seen;

	for (int i = 0; i < RACES; i++) {
		if (i % 4 == 3) {
			while (shmem_test_lock(&lock))
				;
		} else {
			shmem_set_lock(&lock);
		}
		seen = shmem_long_g(&count, 0);
		shmem_long_p(&count, seen + 1, 0);
		shmem_quiet();
		CHECK(shmem_test_lock(&lock) == 1);
		shmem_clear_lock(&lock);
	}
	shmem_barrier_all();
	CHECK(shmem_long_g(&count, 0) == (long)npes * RACES, "%ld", shmem_long_g(&count, 0));
}

/* Two PEs that look at each other's flag: after quiet one of them sees the other's. And puts stay in order. */
static void order(void)
{
	static long flag, seen[2], data[64], ready;

	for (int i = 1; i <= RACES && npes > 1; i++) {
		shmem_barrier_all();
		if (me < 2) {
			shmem_long_p(&flag, i, 1 - me);
			shmem_quiet();
			shmem_long_p(&seen[me], flag == i, 0);
			shmem_long_p(&seen[me], flag == i, 1);
		}
		shmem_barrier_all();
		CHECK(me > 1 || seen[0] || seen[1], "round %d", i);
	}
	for (int i = 1; i <= ROUNDS; i++) {
		shmem_barrier_all();
		for (int at = 0; at < 64; at++)
			shmem_long_p(&data[at], i, next);
		shmem_fence();
		shmem_long_p(&ready, i, next);
		shmem_long_wait_until(&ready, SHMEM_CMP_EQ, i);
		for (int at = 0; at < 64; at++)
			CHECK(data[at] == i, "%d of round %d", at, i);
	}
}

static void teams(void)
{
	static long value;
	shmem_team_t even = SHMEM_TEAM_WORLD, back, x, y, one, of_ctx;
	shmem_team_config_t config = { .num_contexts = 3 };
	shmem_ctx_t team_ctx = SHMEM_CTX_INVALID;
	int evens = (npes + 1) / 2, width = npes > 2 ? 3 : 1;

	CHECK(shmem_team_my_pe(SHMEM_TEAM_WORLD) == me && shmem_team_n_pes(SHMEM_TEAM_SHARED) == npes);
	CHECK(shmem_team_my_pe(SHMEM_TEAM_INVALID) == -1 && shmem_team_n_pes(SHMEM_TEAM_INVALID) == -1);
	CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 2, evens, &config, SHMEM_TEAM_NUM_CONTEXTS, &even) == 0);
	CHECK((even == SHMEM_TEAM_INVALID) == (me % 2 == 1));
	if (even != SHMEM_TEAM_INVALID) {
		CHECK(shmem_team_my_pe(even) == me / 2 && shmem_team_n_pes(even) == evens);
		config.num_contexts = 0;
		CHECK(shmem_team_get_config(even, SHMEM_TEAM_NUM_CONTEXTS, &config) == 0 && config.num_contexts == 3);
		CHECK(shmem_team_translate_pe(even, evens - 1, SHMEM_TEAM_WORLD) == 2 * (evens - 1));
		CHECK(shmem_team_translate_pe(SHMEM_TEAM_WORLD, 0, even) == 0);
		CHECK(npes < 2 || shmem_team_translate_pe(SHMEM_TEAM_WORLD, 1, even) == -1);
		CHECK(shmem_team_translate_pe(even, evens, SHMEM_TEAM_WORLD) == -1);
		/* A context counts PEs as its team does. */
		CHECK(shmem_team_create_ctx(even, SHMEM_CTX_PRIVATE, &team_ctx) == 0);
		CHECK(shmem_ctx_get_team(team_ctx, &of_ctx) == 0 && of_ctx == even);
		shmem_ctx_long_p(team_ctx, &value, me + 50, (me / 2 + 1) % evens);
		CHECK(shmem_ctx_long_g(team_ctx, &value, me / 2) == value);
		CHECK(shmem_team_sync(even) == 0);
		CHECK(value == (me + npes + (npes & 1) - 2) % (npes + (npes & 1)) + 50, "%ld", value);
		/* In reverse, of a team. */
		CHECK(shmem_team_split_strided(even, evens - 1, -1, evens, NULL, 0, &back) == 0);
		CHECK(shmem_team_my_pe(back) == evens - 1 - me / 2);
		CHECK(shmem_team_translate_pe(back, 0, SHMEM_TEAM_WORLD) == 2 * (evens - 1));
		shmem_team_destroy(back);
		shmem_team_destroy(even);
	}
	CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, npes + 1, NULL, 0, &even) != 0 && even == SHMEM_TEAM_INVALID);
	CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 0, 2, NULL, 0, &even) != 0);
	CHECK(shmem_team_split_strided(SHMEM_TEAM_INVALID, 0, 1, 1, NULL, 0, &even) != 0);
	CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, npes - 1, 0, 1, NULL, 0, &one) == 0);
	CHECK((one != SHMEM_TEAM_INVALID) == (me == npes - 1));
	shmem_team_destroy(one);
	CHECK(shmem_team_split_2d(SHMEM_TEAM_WORLD, width, NULL, 0, &x, NULL, 0, &y) == 0);
	CHECK(shmem_team_my_pe(x) == me % width && shmem_team_my_pe(y) == me / width);
	CHECK(shmem_team_n_pes(x) == (npes - me / width * width < width ? npes % width : width));
	CHECK(shmem_team_n_pes(y) == (npes - me % width + width - 1) / width);
	CHECK(shmem_team_sync(x) == 0 && shmem_team_sync(y) == 0);
	shmem_team_destroy(x);
	shmem_team_destroy(y);
	CHECK(shmem_team_split_2d(SHMEM_TEAM_WORLD, 0, NULL, 0, &x, NULL, 0, &y) != 0 && x == SHMEM_TEAM_INVALID);
	/* Slots come back. */
	for (int i = 0; i < 200; i++) {
		CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, npes, NULL, 0, &one) == 0, "team %d", i);
		shmem_team_destroy(one);
	}
	shmem_barrier_all();
}

/* Too many teams at a time: nonzero at all PEs, and the rest goes on. Those of one PE are not counted. */
static void many_teams(void)
{
	shmem_team_t team[100];
	int n = 0;

	while (n < 99 && shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, npes, NULL, 0, &team[n]) == 0)
		n++;
	CHECK(npes == 1 ? n == 99 : n == 64 && team[n] == SHMEM_TEAM_INVALID, "%d", n);
	while (n)
		shmem_team_destroy(team[--n]);
	shmem_barrier_all();
}

/* So are halves of a split: no PE has a team if one has none. */
static void many_grids(void)
{
	shmem_team_t x[70], y[70];
	static long all[256];
	int n = 0, failed = 0, range = npes < 3 ? npes : 3, counted = 0, most;

	for (int i = 0; i < npes; i += range)
		counted += range > 1 && npes - i > 1;
	for (int i = 0; i < range; i++)
		counted += i + range < npes;
	most = counted ? 64 / counted : 70;
	while (n < 70 && !failed) {
		failed = shmem_team_split_2d(SHMEM_TEAM_WORLD, 3, NULL, 0, &x[n], NULL, 0, &y[n]);
		n += !failed;
	}
	CHECK(counted ? failed && x[n] == SHMEM_TEAM_INVALID && y[n] == SHMEM_TEAM_INVALID : !failed, "%d", n);
	for (int i = 0; i < npes; i++)
		shmem_long_p(&all[me], n, i);
	shmem_barrier_all();
	for (int i = 0; i < npes; i++)
		CHECK(all[i] == n && n == most, "%d: %ld, %d", i, all[i], n);
	while (n--) {
		shmem_team_destroy(x[n]);
		shmem_team_destroy(y[n]);
	}
	shmem_barrier_all();
}

/* Each of them gets its turn, also if two places take turns to ask. */
static void any_has_its_turn(void)
{
	long ones[3] = { 1, 1, 1 }, found[4][3] = { 0 };

	for (int i = 0; i < 64; i++) {
		found[0][shmem_long_wait_until_any(ones, 3, NULL, SHMEM_CMP_EQ, 1)]++;
		found[1][shmem_long_test_any(ones, 3, NULL, SHMEM_CMP_EQ, 1)]++;
		found[2][shmem_long_wait_until_any_vector(ones, 3, NULL, SHMEM_CMP_EQ, ones)]++;
		found[3][shmem_long_test_any_vector(ones, 3, NULL, SHMEM_CMP_EQ, ones)]++;
	}
	for (int i = 0; i < 12; i++)
		CHECK(found[i / 3][i % 3] > 10, "%d: %ld", i, found[i / 3][i % 3]);
}

static long counters[4];

static void *count(void *number)
{
	long *counter = &counters[(long)number];
	shmem_ctx_t own;

	CHECK(shmem_ctx_create(SHMEM_CTX_PRIVATE, &own) == 0);
	for (int i = 0; i < ROUNDS; i++)
		shmem_ctx_long_atomic_inc(own, counter, next);
	shmem_ctx_destroy(own);
	return NULL;
}

static void threads(void)
{
	pthread_t thread[4];
	int provided = -1;

	shmem_query_thread(&provided);
	CHECK(provided == SHMEM_THREAD_MULTIPLE);
	for (long i = 0; i < 4; i++)
		pthread_create(&thread[i], NULL, count, (void *)i);
	for (int i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
	shmem_barrier_all();
	for (int i = 0; i < 4; i++)
		CHECK(counters[i] == ROUNDS, "%ld", counters[i]);
}

int main(void)
{
	begin();
	next = (me + 1) % npes;
	before = (me + npes - 1) % npes;
	CHECK(shmem_ctx_create(SHMEM_CTX_SERIALIZED, &ctx) == 0);
	heap_room = shmem_malloc(128);
	SHMEMI_EXTENDED(RUN, extended)
	SHMEMI_AMO_ALIASES(RUN, extended)
	SHMEMI_AMO(RUN, amo)
	SHMEMI_AMO_ALIASES(RUN, amo)
	SHMEMI_BITWISE(RUN, bitwise)
	SHMEMI_BIT_ALIASES(RUN, bitwise)
	SHMEMI_INTS(RUN, old_extended)
	SHMEMI_REALS(RUN, old_extended)
	SHMEMI_INTS(RUN, old_amo)
	SHMEMI_SYNC(RUN, waits)
	SHMEMI_AMO_ALIASES(RUN, waits)
	generics();
	locks();
	order();
	teams();
	many_teams();
	many_grids();
	any_has_its_turn();
	threads();
	return end();
}
