// SPDX-License-Identifier: LGPL-2.1-or-later
/* Waiting for variables, order, locks. */
#include "internal.h"

/* ---- Variables --------------------------------------------------------------- */

#define IS(a, cmp, b) \
	((cmp) == SHMEM_CMP_EQ ? (a) == (b) : (cmp) == SHMEM_CMP_NE ? (a) != (b) : (cmp) == SHMEM_CMP_GT ? (a) > (b) : \
	 (cmp) == SHMEM_CMP_GE ? (a) >= (b) : (cmp) == SHMEM_CMP_LT ? (a) < (b) : (a) <= (b))

static void check(const char *what, int cmp)
{
	need_init(what);
	if (cmp < SHMEM_CMP_EQ || cmp > SHMEM_CMP_LE)
		die(what, "%d is no comparison", cmp);
}

static bool is_empty(size_t nelems, const int *status)
{
	for (size_t i = 0; i < nelems; i++)
		if (!status || !status[i])
			return false;
	return true;
}

/* A test that says no is a step of a wait, which is a loop of the program's own. Returns yes. */
static bool answer(bool yes)
{
	static __thread uint32_t step;

	if (yes)
		step = 0;
	else
		wait_step(&step);
	return yes;
}

/* Where the next call for any condition begins, so that each gets its turn: multiples of the golden ratio. */
static size_t turn(size_t nelems)
{
	static __thread uint64_t last;

	last += 0x9e3779b97f4a7c15;
	return (size_t)(((unsigned __int128)last * nelems) >> 64);
}

/* The conditions that hold now, from the first-th on: at most most indices are stored. *all: every one holds that was asked for. */
#define LOOK(name, T) \
	static size_t look_##name(const T *ivars, size_t nelems, const int *status, int cmp, const T *values, \
				  bool one_value, size_t first, size_t most, size_t *indices, bool *all) \
	{ \
		size_t found = 0; \
		*all = true; \
		for (size_t n = 0; n < nelems && found < most; n++) { \
			size_t i = n < nelems - first ? first + n : n - (nelems - first); \
			T now; \
			if (status && status[i]) \
				continue; \
			now = __atomic_load_n(&ivars[i], __ATOMIC_ACQUIRE); \
			if (!IS(now, cmp, values[one_value ? 0 : i])) \
				*all = false; \
			else if (indices) \
				indices[found++] = i; \
		} \
		return found; \
	}

/* vector: nothing, or _vector with a value for each variable. */
#define SOME(name, T, vector, VALUE, values, one_value) \
	API(int, name##_test_all##vector, (T *ivars, size_t nelems, const int *status, int cmp, VALUE)) \
	{ \
		bool all; \
		check(__func__, cmp); \
		look_##name(ivars, nelems, status, cmp, values, one_value, 0, 1, NULL, &all); \
		return answer(all); \
	} \
	API(size_t, name##_test_any##vector, (T *ivars, size_t nelems, const int *status, int cmp, VALUE)) \
	{ \
		size_t index = SIZE_MAX; \
		bool all; \
		check(__func__, cmp); \
		answer(look_##name(ivars, nelems, status, cmp, values, one_value, turn(nelems), 1, &index, &all)); \
		return index; \
	} \
	API(size_t, name##_test_some##vector, \
	    (T *ivars, size_t nelems, size_t *indices, const int *status, int cmp, VALUE)) \
	{ \
		size_t found; \
		bool all; \
		check(__func__, cmp); \
		found = look_##name(ivars, nelems, status, cmp, values, one_value, 0, SIZE_MAX, indices, &all); \
		answer(found); \
		return found; \
	} \
	API(void, name##_wait_until_all##vector, (T *ivars, size_t nelems, const int *status, int cmp, VALUE)) \
	{ \
		uint32_t step = 0; \
		bool all; \
		check(__func__, cmp); \
		for (;; wait_step(&step)) { \
			look_##name(ivars, nelems, status, cmp, values, one_value, 0, 1, NULL, &all); \
			if (all) \
				return; \
		} \
	} \
	API(size_t, name##_wait_until_any##vector, (T *ivars, size_t nelems, const int *status, int cmp, VALUE)) \
	{ \
		size_t index = SIZE_MAX, first = turn(nelems); \
		uint32_t step = 0; \
		bool all; \
		check(__func__, cmp); \
		if (is_empty(nelems, status)) \
			return SIZE_MAX; \
		while (!look_##name(ivars, nelems, status, cmp, values, one_value, first, 1, &index, &all)) \
			wait_step(&step); \
		return index; \
	} \
	API(size_t, name##_wait_until_some##vector, \
	    (T *ivars, size_t nelems, size_t *indices, const int *status, int cmp, VALUE)) \
	{ \
		uint32_t step = 0; \
		size_t found; \
		bool all; \
		check(__func__, cmp); \
		if (is_empty(nelems, status)) \
			return 0; \
		for (;; wait_step(&step)) { \
			found = look_##name(ivars, nelems, status, cmp, values, one_value, 0, SIZE_MAX, indices, &all); \
			if (found) \
				return found; \
		} \
	}

#define WAITS(name, T, ...) \
	LOOK(name, T) \
	SOME(name, T, , T cmp_value, &cmp_value, true) \
	SOME(name, T, _vector, T *cmp_values, cmp_values, false) \
	API(void, name##_wait_until, (T *ivar, int cmp, T cmp_value)) \
	{ \
		uint32_t step = 0; \
		check(__func__, cmp); \
		while (!IS(__atomic_load_n(ivar, __ATOMIC_ACQUIRE), cmp, cmp_value)) \
			wait_step(&step); \
	} \
	API(int, name##_test, (T *ivar, int cmp, T cmp_value)) \
	{ \
		check(__func__, cmp); \
		return answer(IS(__atomic_load_n(ivar, __ATOMIC_ACQUIRE), cmp, cmp_value)); \
	}
#define WAIT(name, T, ...) \
	API(void, name##_wait, (T *ivar, T cmp_value)) \
	{ \
		pshmem_##name##_wait_until(ivar, SHMEM_CMP_NE, cmp_value); \
	}

SHMEMI_SYNC(WAITS, )
SHMEMI_AMO_ALIASES(WAITS, )
SHMEMI_AND_TO_ALL(WAIT, )

API(void, wait, (long *ivar, long cmp_value))
{
	pshmem_long_wait_until(ivar, SHMEM_CMP_NE, cmp_value);
}

API(void, wait_until, (long *ivar, int cmp, long cmp_value))
{
	pshmem_long_wait_until(ivar, cmp, cmp_value);
}

API(uint64_t, signal_fetch, (const uint64_t *sig_addr))
{
	return __atomic_load_n(sig_addr, __ATOMIC_ACQUIRE);
}

API(uint64_t, signal_wait_until, (uint64_t *sig_addr, int cmp, uint64_t cmp_value))
{
	uint32_t step = 0;
	uint64_t now;

	check(__func__, cmp);
	for (;; wait_step(&step)) {
		now = __atomic_load_n(sig_addr, __ATOMIC_ACQUIRE);
		if (IS(now, cmp, cmp_value))
			return now;
	}
}

/* ---- Order -------------------------------------------------------------------- */

/* Stores are in order, except memcpy()'s non-temporal ones. */
API(void, fence, (void))
{
	__builtin_ia32_sfence();
}

API(void, quiet, (void))
{
	__builtin_ia32_mfence();
}

API(void, ctx_fence, (shmem_ctx_t ctx))
{
	(void)ctx;
	__builtin_ia32_sfence();
}

API(void, ctx_quiet, (shmem_ctx_t ctx))
{
	(void)ctx;
	__builtin_ia32_mfence();
}

/* ---- Locks --------------------------------------------------------------------- */

/*
 * First come, first served: PE 0's copy of the lock has the number of the next to come and the number
 * that is served. It is free when both are the same, as when both are 0.
 */
union ticket {
	uint64_t both;
	struct {
		uint32_t served;
		uint32_t next;
	};
};

static union ticket *ticket_of(const char *what, long *lock)
{
	return there(what, lock, sizeof(*lock), 0);
}

API(void, set_lock, (long *lock))
{
	union ticket *ticket = ticket_of(__func__, lock);
	uint32_t mine = __atomic_fetch_add(&ticket->next, 1, __ATOMIC_ACQ_REL), step = 0;

	while (__atomic_load_n(&ticket->served, __ATOMIC_ACQUIRE) != mine)
		wait_step(&step);
}

API(int, test_lock, (long *lock))
{
	union ticket *ticket = ticket_of(__func__, lock), old, new;

	old.both = __atomic_load_n(&ticket->both, __ATOMIC_ACQUIRE);
	new = old;
	new.next++;
	return !answer(old.served == old.next && __atomic_compare_exchange_n(&ticket->both, &old.both, new.both, 0,
									     __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
}

API(void, clear_lock, (long *lock))
{
	union ticket *ticket = ticket_of(__func__, lock);

	__builtin_ia32_mfence();
	__atomic_fetch_add(&ticket->served, 1, __ATOMIC_RELEASE);
}

/* ---- Caches --------------------------------------------------------------------- */

#define NOTHING(name) \
	API(void, name, (void)) \
	{ \
	}
#define NOTHING_AT(name) \
	API(void, name, (void *dest)) \
	{ \
		(void)dest; \
	}
NOTHING(set_cache_inv)
NOTHING(clear_cache_inv)
NOTHING(udcflush)
NOTHING_AT(set_cache_line_inv)
NOTHING_AT(clear_cache_line_inv)
NOTHING_AT(udcflush_line)
