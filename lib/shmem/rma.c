// SPDX-License-Identifier: LGPL-2.1-or-later
/* Puts and gets: loads and stores. All of them are complete when they return. */
#include "internal.h"

/* Arguments in the order of the callers' own. */
static __attribute__((noinline)) void put_bytes(void *dest, const void *source, size_t nelems, int pe, const char *what,
						size_t unit)
{
	size_t bytes = span(nelems, 1, 1, unit);

	memcpy(there(what, dest, bytes, pe), source, bytes);
}

static __attribute__((noinline)) void get_bytes(void *dest, const void *source, size_t nelems, int pe, const char *what,
						size_t unit)
{
	size_t bytes = span(nelems, 1, 1, unit);

	memcpy(dest, there(what, source, bytes, pe), bytes);
}

/* A word without a further call. */
static inline __attribute__((always_inline)) void put(const char *what, void *dest, const void *source, size_t nelems, size_t unit,
						    int pe)
{
	if (__builtin_expect(8 % unit == 0 && nelems == 8 / unit, 1))
		memcpy(there(what, dest, 8, pe), source, 8);
	else
		put_bytes(dest, source, nelems, pe, what, unit);
}

static inline __attribute__((always_inline)) void get(const char *what, void *dest, const void *source, size_t nelems, size_t unit,
						    int pe)
{
	if (__builtin_expect(8 % unit == 0 && nelems == 8 / unit, 1))
		memcpy(dest, there(what, source, 8, pe), 8);
	else
		get_bytes(dest, source, nelems, pe, what, unit);
}

static void put_signal(const char *what, void *dest, const void *source, size_t bytes, uint64_t *sig_addr,
		       uint64_t signal, int sig_op, int pe)
{
	uint64_t *word = there(what, sig_addr, sizeof(*sig_addr), pe);

	put_bytes(dest, source, bytes, pe, what, 1);
	/* memcpy() may have used non-temporal stores. */
	__builtin_ia32_sfence();
	if (sig_op == SHMEM_SIGNAL_SET)
		__atomic_store_n(word, signal, __ATOMIC_RELEASE);
	else if (sig_op == SHMEM_SIGNAL_ADD)
		__atomic_fetch_add(word, signal, __ATOMIC_RELEASE);
	else
		die(what, "%d is no signal operation: SHMEM_SIGNAL_SET or SHMEM_SIGNAL_ADD", sig_op);
}

/* name stands before "put", bits behind it; an element has unit bytes. */
#define PUT(ctx_, CTX, PE, name, T, unit) \
	API(void, ctx_##name, (CTX T *dest, const T *source, size_t nelems, int pe)) \
	{ \
		put(__func__, dest, source, nelems, unit, PE); \
	}
#define GET(ctx_, CTX, PE, name, T, unit) \
	API(void, ctx_##name, (CTX T *dest, const T *source, size_t nelems, int pe)) \
	{ \
		get(__func__, dest, source, nelems, unit, PE); \
	}
#define PUT_SIGNAL(ctx_, CTX, PE, name, T, unit) \
	API(void, ctx_##name, \
	    (CTX T *dest, const T *source, size_t nelems, uint64_t *sig_addr, uint64_t signal, int sig_op, int pe)) \
	{ \
		put_signal(__func__, dest, source, span(nelems, 1, 1, unit), sig_addr, signal, sig_op, PE); \
	}
#define BLOCK(WAY, name, bits, T, unit) \
	WAY(PUT, name##put##bits, T, unit) \
	WAY(PUT, name##put##bits##_nbi, T, unit) \
	WAY(GET, name##get##bits, T, unit) \
	WAY(GET, name##get##bits##_nbi, T, unit) \
	WAY(PUT_SIGNAL, name##put##bits##_signal, T, unit) \
	WAY(PUT_SIGNAL, name##put##bits##_signal_nbi, T, unit)

#define IPUT(ctx_, CTX, PE, name, T, E) \
	API(void, ctx_##name, \
	    (CTX T *dest, const T *source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems, int pe)) \
	{ \
		E *to = there(__func__, dest, span(nelems, dst, sst, sizeof(E)), PE); \
		const E *from = source; \
		for (size_t i = 0; i < nelems; i++) \
			to[i * (size_t)dst] = from[i * (size_t)sst]; \
	}
#define IGET(ctx_, CTX, PE, name, T, E) \
	API(void, ctx_##name, \
	    (CTX T *dest, const T *source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems, int pe)) \
	{ \
		const E *from = there(__func__, source, span(nelems, sst, dst, sizeof(E)), PE); \
		E *to = dest; \
		for (size_t i = 0; i < nelems; i++) \
			to[i * (size_t)dst] = from[i * (size_t)sst]; \
	}
#define STRIDED(WAY, name, bits, T, E) \
	WAY(IPUT, name##iput##bits, T, E) \
	WAY(IGET, name##iget##bits, T, E)

#define ONE(ctx_, CTX, PE, name, T) \
	API(void, ctx_##name##_p, (CTX T *dest, T value, int pe)) \
	{ \
		*THERE(dest, PE) = value; \
	} \
	API(T, ctx_##name##_g, (CTX const T *source, int pe)) \
	{ \
		return *THERE(source, PE); \
	}

#define TYPED(name, T, WAY) \
	WAY(ONE, name, T) \
	BLOCK(WAY, name##_, , T, sizeof(T)) \
	STRIDED(WAY, name##_, , T, T)
#define SIZED(bits, T, WAY) \
	BLOCK(WAY, , bits, void, sizeof(T)) \
	STRIDED(WAY, , bits, void, T)

SHMEMI_RMA(TYPED, BARE)
SHMEMI_RMA(TYPED, IN_CTX)
SHMEMI_RMA_ALIASES(TYPED, BARE)
SHMEMI_RMA_ALIASES(TYPED, IN_CTX)
SHMEMI_SIZES(SIZED, BARE)
SHMEMI_SIZES(SIZED, IN_CTX)
BLOCK(BARE, , mem, void, 1)
BLOCK(IN_CTX, , mem, void, 1)
