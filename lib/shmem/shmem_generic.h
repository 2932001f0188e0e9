/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* OpenSHMEM's type-generic interfaces of C11. shmem.h includes it. */
#ifndef HPMMAP_SHMEM_GENERIC_H
#define HPMMAP_SHMEM_GENERIC_H

#define SHMEMI_PASTE_(a, b)	a##b
#define SHMEMI_PASTE(a, b)	SHMEMI_PASTE_(a, b)
#define SHMEMI_COUNT_(a, b, c, d, e, f, g, h, n, ...)	n
#define SHMEMI_COUNT(...)	SHMEMI_COUNT_(__VA_ARGS__, 8, 7, 6, 5, 4, 3, 2, 1, )

/* shmem_<prefix><type>_<op> for the type that ptr points to. */
#define SHMEMI_CASE(name, T, prefix, op)	, T: shmem_##prefix##name##_##op
#define SHMEMI_PICK(TYPES, prefix, op, ptr)	_Generic(*(ptr) SHMEMI_##TYPES(SHMEMI_CASE, prefix, op))
#define SHMEMI_PLAIN(TYPES, op, ptr, ...)	SHMEMI_PICK(TYPES, , op, ptr)(ptr, __VA_ARGS__)
#define SHMEMI_SECOND(TYPES, op, team, ptr, ...)	SHMEMI_PICK(TYPES, , op, ptr)(team, ptr, __VA_ARGS__)
#define SHMEMI_IN_CTX(TYPES, op, ctx, ptr, ...)	SHMEMI_PICK(TYPES, ctx_, op, ptr)(ctx, ptr, __VA_ARGS__)
/* Calls with n arguments have no context, with one more they have. */
#define SHMEMI_2_2	SHMEMI_PLAIN
#define SHMEMI_2_3	SHMEMI_IN_CTX
#define SHMEMI_3_3	SHMEMI_PLAIN
#define SHMEMI_3_4	SHMEMI_IN_CTX
#define SHMEMI_4_4	SHMEMI_PLAIN
#define SHMEMI_4_5	SHMEMI_IN_CTX
#define SHMEMI_5_5	SHMEMI_PLAIN
#define SHMEMI_5_6	SHMEMI_IN_CTX
#define SHMEMI_6_6	SHMEMI_PLAIN
#define SHMEMI_6_7	SHMEMI_IN_CTX
#define SHMEMI_7_7	SHMEMI_PLAIN
#define SHMEMI_7_8	SHMEMI_IN_CTX
#define SHMEMI_CALL(n, TYPES, op, ...)	SHMEMI_PASTE(SHMEMI_##n##_, SHMEMI_COUNT(__VA_ARGS__))(TYPES, op, __VA_ARGS__)

#define shmem_p(...)				SHMEMI_CALL(3, RMA, p, __VA_ARGS__)
#define shmem_g(...)				SHMEMI_CALL(2, RMA, g, __VA_ARGS__)
#define shmem_put(...)				SHMEMI_CALL(4, RMA, put, __VA_ARGS__)
#define shmem_get(...)				SHMEMI_CALL(4, RMA, get, __VA_ARGS__)
#define shmem_put_nbi(...)			SHMEMI_CALL(4, RMA, put_nbi, __VA_ARGS__)
#define shmem_get_nbi(...)			SHMEMI_CALL(4, RMA, get_nbi, __VA_ARGS__)
#define shmem_iput(...)				SHMEMI_CALL(6, RMA, iput, __VA_ARGS__)
#define shmem_iget(...)				SHMEMI_CALL(6, RMA, iget, __VA_ARGS__)
#define shmem_put_signal(...)			SHMEMI_CALL(7, RMA, put_signal, __VA_ARGS__)
#define shmem_put_signal_nbi(...)		SHMEMI_CALL(7, RMA, put_signal_nbi, __VA_ARGS__)

#define shmem_atomic_fetch(...)			SHMEMI_CALL(2, EXTENDED, atomic_fetch, __VA_ARGS__)
#define shmem_atomic_set(...)			SHMEMI_CALL(3, EXTENDED, atomic_set, __VA_ARGS__)
#define shmem_atomic_swap(...)			SHMEMI_CALL(3, EXTENDED, atomic_swap, __VA_ARGS__)
#define shmem_atomic_compare_swap(...)		SHMEMI_CALL(4, AMO, atomic_compare_swap, __VA_ARGS__)
#define shmem_atomic_inc(...)			SHMEMI_CALL(2, AMO, atomic_inc, __VA_ARGS__)
#define shmem_atomic_fetch_inc(...)		SHMEMI_CALL(2, AMO, atomic_fetch_inc, __VA_ARGS__)
#define shmem_atomic_add(...)			SHMEMI_CALL(3, AMO, atomic_add, __VA_ARGS__)
#define shmem_atomic_fetch_add(...)		SHMEMI_CALL(3, AMO, atomic_fetch_add, __VA_ARGS__)
#define shmem_atomic_and(...)			SHMEMI_CALL(3, BITWISE, atomic_and, __VA_ARGS__)
#define shmem_atomic_fetch_and(...)		SHMEMI_CALL(3, BITWISE, atomic_fetch_and, __VA_ARGS__)
#define shmem_atomic_or(...)			SHMEMI_CALL(3, BITWISE, atomic_or, __VA_ARGS__)
#define shmem_atomic_fetch_or(...)		SHMEMI_CALL(3, BITWISE, atomic_fetch_or, __VA_ARGS__)
#define shmem_atomic_xor(...)			SHMEMI_CALL(3, BITWISE, atomic_xor, __VA_ARGS__)
#define shmem_atomic_fetch_xor(...)		SHMEMI_CALL(3, BITWISE, atomic_fetch_xor, __VA_ARGS__)
#define shmem_atomic_fetch_nbi(...)		SHMEMI_CALL(3, EXTENDED, atomic_fetch_nbi, __VA_ARGS__)
#define shmem_atomic_swap_nbi(...)		SHMEMI_CALL(4, EXTENDED, atomic_swap_nbi, __VA_ARGS__)
#define shmem_atomic_compare_swap_nbi(...)	SHMEMI_CALL(5, AMO, atomic_compare_swap_nbi, __VA_ARGS__)
#define shmem_atomic_fetch_inc_nbi(...)		SHMEMI_CALL(3, AMO, atomic_fetch_inc_nbi, __VA_ARGS__)
#define shmem_atomic_fetch_add_nbi(...)		SHMEMI_CALL(4, AMO, atomic_fetch_add_nbi, __VA_ARGS__)
#define shmem_atomic_fetch_and_nbi(...)		SHMEMI_CALL(4, BITWISE, atomic_fetch_and_nbi, __VA_ARGS__)
#define shmem_atomic_fetch_or_nbi(...)		SHMEMI_CALL(4, BITWISE, atomic_fetch_or_nbi, __VA_ARGS__)
#define shmem_atomic_fetch_xor_nbi(...)		SHMEMI_CALL(4, BITWISE, atomic_fetch_xor_nbi, __VA_ARGS__)

/* Deprecated. */
#define SHMEMI_OLD_EXTENDED(X, ...)		SHMEMI_INTS(X, __VA_ARGS__) SHMEMI_REALS(X, __VA_ARGS__)
#define shmem_fetch(ptr, pe)			SHMEMI_PLAIN(OLD_EXTENDED, fetch, ptr, pe)
#define shmem_set(ptr, ...)			SHMEMI_PLAIN(OLD_EXTENDED, set, ptr, __VA_ARGS__)
#define shmem_swap(ptr, ...)			SHMEMI_PLAIN(OLD_EXTENDED, swap, ptr, __VA_ARGS__)
#define shmem_cswap(ptr, ...)			SHMEMI_PLAIN(INTS, cswap, ptr, __VA_ARGS__)
#define shmem_fadd(ptr, ...)			SHMEMI_PLAIN(INTS, fadd, ptr, __VA_ARGS__)
#define shmem_finc(ptr, pe)			SHMEMI_PLAIN(INTS, finc, ptr, pe)
#define shmem_add(ptr, ...)			SHMEMI_PLAIN(INTS, add, ptr, __VA_ARGS__)
#define shmem_inc(ptr, pe)			SHMEMI_PLAIN(INTS, inc, ptr, pe)

#define shmem_wait_until(ptr, ...)		SHMEMI_PLAIN(SYNC, wait_until, ptr, __VA_ARGS__)
#define shmem_wait_until_all(ptr, ...)		SHMEMI_PLAIN(SYNC, wait_until_all, ptr, __VA_ARGS__)
#define shmem_wait_until_any(ptr, ...)		SHMEMI_PLAIN(SYNC, wait_until_any, ptr, __VA_ARGS__)
#define shmem_wait_until_some(ptr, ...)		SHMEMI_PLAIN(SYNC, wait_until_some, ptr, __VA_ARGS__)
#define shmem_wait_until_all_vector(ptr, ...)	SHMEMI_PLAIN(SYNC, wait_until_all_vector, ptr, __VA_ARGS__)
#define shmem_wait_until_any_vector(ptr, ...)	SHMEMI_PLAIN(SYNC, wait_until_any_vector, ptr, __VA_ARGS__)
#define shmem_wait_until_some_vector(ptr, ...)	SHMEMI_PLAIN(SYNC, wait_until_some_vector, ptr, __VA_ARGS__)
#define shmem_test(ptr, ...)			SHMEMI_PLAIN(SYNC, test, ptr, __VA_ARGS__)
#define shmem_test_all(ptr, ...)		SHMEMI_PLAIN(SYNC, test_all, ptr, __VA_ARGS__)
#define shmem_test_any(ptr, ...)		SHMEMI_PLAIN(SYNC, test_any, ptr, __VA_ARGS__)
#define shmem_test_some(ptr, ...)		SHMEMI_PLAIN(SYNC, test_some, ptr, __VA_ARGS__)
#define shmem_test_all_vector(ptr, ...)		SHMEMI_PLAIN(SYNC, test_all_vector, ptr, __VA_ARGS__)
#define shmem_test_any_vector(ptr, ...)		SHMEMI_PLAIN(SYNC, test_any_vector, ptr, __VA_ARGS__)
#define shmem_test_some_vector(ptr, ...)	SHMEMI_PLAIN(SYNC, test_some_vector, ptr, __VA_ARGS__)

#define shmem_broadcast(...)			SHMEMI_SECOND(RMA, broadcast, __VA_ARGS__)
#define shmem_collect(...)			SHMEMI_SECOND(RMA, collect, __VA_ARGS__)
#define shmem_fcollect(...)			SHMEMI_SECOND(RMA, fcollect, __VA_ARGS__)
#define shmem_alltoall(...)			SHMEMI_SECOND(RMA, alltoall, __VA_ARGS__)
#define shmem_alltoalls(...)			SHMEMI_SECOND(RMA, alltoalls, __VA_ARGS__)
#define shmem_and_reduce(...)			SHMEMI_SECOND(AND_GENERIC, and_reduce, __VA_ARGS__)
#define shmem_or_reduce(...)			SHMEMI_SECOND(AND_GENERIC, or_reduce, __VA_ARGS__)
#define shmem_xor_reduce(...)			SHMEMI_SECOND(AND_GENERIC, xor_reduce, __VA_ARGS__)
#define shmem_max_reduce(...)			SHMEMI_SECOND(RMA, max_reduce, __VA_ARGS__)
#define shmem_min_reduce(...)			SHMEMI_SECOND(RMA, min_reduce, __VA_ARGS__)
#define shmem_sum_reduce(...)			SHMEMI_SECOND(SUM, sum_reduce, __VA_ARGS__)
#define shmem_prod_reduce(...)			SHMEMI_SECOND(SUM, prod_reduce, __VA_ARGS__)
#define SHMEMI_AND_GENERIC(X, ...) \
	SHMEMI_AND(X, __VA_ARGS__) X(int8, signed char, __VA_ARGS__) X(int16, short, __VA_ARGS__) \
	X(int32, int, __VA_ARGS__) X(int64, long, __VA_ARGS__)

/* Of a team (one argument), or of an active set. */
#define SHMEMI_SYNC_1(team)			shmem_team_sync(team)
#define SHMEMI_SYNC_4(start, stride, size, psync)	(shmem_sync)(start, stride, size, psync)
#define shmem_sync(...)				SHMEMI_PASTE(SHMEMI_SYNC_, SHMEMI_COUNT(__VA_ARGS__))(__VA_ARGS__)

#endif
