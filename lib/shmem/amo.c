// SPDX-License-Identifier: LGPL-2.1-or-later
/* Atomics: the processor's own, on the other PE's memory. */
#include "internal.h"

#define ORDER	__ATOMIC_SEQ_CST

/* Without and with a context. */
#define BOTH(X, ...)	BARE(X, __VA_ARGS__) IN_CTX(X, __VA_ARGS__)

#define FETCH(ctx_, CTX, PE, name, T) \
	API(T, ctx_##name, (CTX const T *source, int pe)) \
	{ \
		T old; \
		__atomic_load(THERE(source, PE), &old, ORDER); \
		return old; \
	}
#define FETCH_NBI(ctx_, CTX, PE, name, T) \
	API(void, ctx_##name, (CTX T *fetch, const T *source, int pe)) \
	{ \
		__atomic_load(THERE(source, PE), fetch, ORDER); \
	}
#define SET(ctx_, CTX, PE, name, T) \
	API(void, ctx_##name, (CTX T *dest, T value, int pe)) \
	{ \
		__atomic_store(THERE(dest, PE), &value, ORDER); \
	}
#define SWAP(ctx_, CTX, PE, name, T) \
	API(T, ctx_##name, (CTX T *dest, T value, int pe)) \
	{ \
		T old; \
		__atomic_exchange(THERE(dest, PE), &value, &old, ORDER); \
		return old; \
	}
#define SWAP_NBI(ctx_, CTX, PE, name, T) \
	API(void, ctx_##name, (CTX T *fetch, T *dest, T value, int pe)) \
	{ \
		__atomic_exchange(THERE(dest, PE), &value, fetch, ORDER); \
	}
#define CSWAP(ctx_, CTX, PE, name, T) \
	API(T, ctx_##name, (CTX T *dest, T cond, T value, int pe)) \
	{ \
		__atomic_compare_exchange_n(THERE(dest, PE), &cond, value, 0, ORDER, ORDER); \
		return cond; \
	}
#define CSWAP_NBI(ctx_, CTX, PE, name, T) \
	API(void, ctx_##name, (CTX T *fetch, T *dest, T cond, T value, int pe)) \
	{ \
		__atomic_compare_exchange_n(THERE(dest, PE), &cond, value, 0, ORDER, ORDER); \
		*fetch = cond; \
	}
/* op: what the processor does: add, and, or, xor. */
#define CHANGE(ctx_, CTX, PE, name, T, op) \
	API(void, ctx_##name, (CTX T *dest, T value, int pe)) \
	{ \
		__atomic_fetch_##op(THERE(dest, PE), value, ORDER); \
	}
#define FETCH_CHANGE(ctx_, CTX, PE, name, T, op) \
	API(T, ctx_##name, (CTX T *dest, T value, int pe)) \
	{ \
		return __atomic_fetch_##op(THERE(dest, PE), value, ORDER); \
	}
#define FETCH_CHANGE_NBI(ctx_, CTX, PE, name, T, op) \
	API(void, ctx_##name, (CTX T *fetch, T *dest, T value, int pe)) \
	{ \
		*fetch = __atomic_fetch_##op(THERE(dest, PE), value, ORDER); \
	}
#define INC(ctx_, CTX, PE, name, T) \
	API(void, ctx_##name, (CTX T *dest, int pe)) \
	{ \
		__atomic_fetch_add(THERE(dest, PE), 1, ORDER); \
	}
#define FETCH_INC(ctx_, CTX, PE, name, T) \
	API(T, ctx_##name, (CTX T *dest, int pe)) \
	{ \
		return __atomic_fetch_add(THERE(dest, PE), 1, ORDER); \
	}
#define FETCH_INC_NBI(ctx_, CTX, PE, name, T) \
	API(void, ctx_##name, (CTX T *fetch, T *dest, int pe)) \
	{ \
		*fetch = __atomic_fetch_add(THERE(dest, PE), 1, ORDER); \
	}

#define EXTENDED(name, T, ...) \
	BOTH(FETCH, name##_atomic_fetch, T) \
	BOTH(FETCH_NBI, name##_atomic_fetch_nbi, T) \
	BOTH(SET, name##_atomic_set, T) \
	BOTH(SWAP, name##_atomic_swap, T) \
	BOTH(SWAP_NBI, name##_atomic_swap_nbi, T)
#define CHANGES(name, T, op) \
	BOTH(CHANGE, name##_atomic_##op, T, op) \
	BOTH(FETCH_CHANGE, name##_atomic_fetch_##op, T, op) \
	BOTH(FETCH_CHANGE_NBI, name##_atomic_fetch_##op##_nbi, T, op)
#define AMO(name, T, ...) \
	CHANGES(name, T, add) \
	BOTH(CSWAP, name##_atomic_compare_swap, T) \
	BOTH(CSWAP_NBI, name##_atomic_compare_swap_nbi, T) \
	BOTH(INC, name##_atomic_inc, T) \
	BOTH(FETCH_INC, name##_atomic_fetch_inc, T) \
	BOTH(FETCH_INC_NBI, name##_atomic_fetch_inc_nbi, T)
#define OLD_EXTENDED(name, T, ...) \
	BARE(FETCH, name##_fetch, T) \
	BARE(SET, name##_set, T) \
	BARE(SWAP, name##_swap, T)
#define OLD_AMO(name, T, ...) \
	BARE(CSWAP, name##_cswap, T) \
	BARE(FETCH_CHANGE, name##_fadd, T, add) \
	BARE(FETCH_INC, name##_finc, T) \
	BARE(CHANGE, name##_add, T, add) \
	BARE(INC, name##_inc, T)

SHMEMI_EXTENDED(EXTENDED, )
SHMEMI_AMO_ALIASES(EXTENDED, )
SHMEMI_AMO(AMO, )
SHMEMI_AMO_ALIASES(AMO, )
SHMEMI_BITWISE(CHANGES, and)
SHMEMI_BITWISE(CHANGES, or)
SHMEMI_BITWISE(CHANGES, xor)
SHMEMI_BIT_ALIASES(CHANGES, and)
SHMEMI_BIT_ALIASES(CHANGES, or)
SHMEMI_BIT_ALIASES(CHANGES, xor)
SHMEMI_INTS(OLD_EXTENDED, )
SHMEMI_REALS(OLD_EXTENDED, )
SHMEMI_INTS(OLD_AMO, )
