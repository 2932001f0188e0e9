/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * libhpmmap_shmem: OpenSHMEM 1.5 for the PEs (processing elements, ranks) of one host.
 *
 * The functions are those of the OpenSHMEM specification 1.5 (http://www.openshmem.org/site/Specification), the
 * deprecated ones too. What this library adds to its text:
 *
 *   units     sizes of shmem_malloc() and of functions "mem" are bytes; nelems counts elements, strides are in elements
 *   limits    256 PEs; 64 teams at a time, 64 different active sets, among all PEs
 *   symmetric memory of the heap, and global and static variables of the program, not of shared libraries
 *   errors    a PE or an address that does not exist, a call before shmem_init() or in a child of fork(2) ends the
 *             program with one line on stderr and status 1. So do sizes that a size_t cannot hold and strides
 *             below 1: the line says 18446744073709551615 bytes. Heap exhausted: NULL. Other results: hpmmap_shmem(3)
 *   order     puts, atomics and non-blocking calls are complete when they return. shmem_fence() and
 *             shmem_quiet() are processor fences
 *   threads   SHMEM_THREAD_MULTIPLE is always provided
 *
 * Each function shmem_x is a weak symbol with the strong name pshmem_x, so tools can replace it. Macros whose names
 * begin with SHMEMI_ are not part of the interface.
 */
#ifndef HPMMAP_SHMEM_H
#define HPMMAP_SHMEM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Constants ------------------------------------------------------------ */

#define SHMEM_MAJOR_VERSION		1
#define SHMEM_MINOR_VERSION		5
#define SHMEM_MAX_NAME_LEN		64
#define SHMEM_VENDOR_STRING		"HPMMAP OpenSHMEM"

enum { SHMEM_THREAD_SINGLE, SHMEM_THREAD_FUNNELED, SHMEM_THREAD_SERIALIZED, SHMEM_THREAD_MULTIPLE };
enum { SHMEM_CMP_EQ = 1, SHMEM_CMP_NE, SHMEM_CMP_GT, SHMEM_CMP_GE, SHMEM_CMP_LT, SHMEM_CMP_LE };
enum { SHMEM_SIGNAL_SET, SHMEM_SIGNAL_ADD };

#define SHMEM_CTX_PRIVATE		0x1L
#define SHMEM_CTX_SERIALIZED		0x2L
#define SHMEM_CTX_NOSTORE		0x4L
#define SHMEM_TEAM_NUM_CONTEXTS		0x1L
#define SHMEM_MALLOC_ATOMICS_REMOTE	0x1L
#define SHMEM_MALLOC_SIGNAL_REMOTE	0x2L

/* pSync and pWrk of functions of active sets are not used. */
#define SHMEM_SYNC_VALUE		0L
#define SHMEM_SYNC_SIZE			2
#define SHMEM_BARRIER_SYNC_SIZE		SHMEM_SYNC_SIZE
#define SHMEM_BCAST_SYNC_SIZE		SHMEM_SYNC_SIZE
#define SHMEM_REDUCE_SYNC_SIZE		SHMEM_SYNC_SIZE
#define SHMEM_COLLECT_SYNC_SIZE		SHMEM_SYNC_SIZE
#define SHMEM_ALLTOALL_SYNC_SIZE	SHMEM_SYNC_SIZE
#define SHMEM_ALLTOALLS_SYNC_SIZE	SHMEM_SYNC_SIZE
#define SHMEM_REDUCE_MIN_WRKDATA_SIZE	1

/* Their deprecated names. */
#define _SHMEM_MAJOR_VERSION		SHMEM_MAJOR_VERSION
#define _SHMEM_MINOR_VERSION		SHMEM_MINOR_VERSION
#define _SHMEM_MAX_NAME_LEN		SHMEM_MAX_NAME_LEN
#define _SHMEM_VENDOR_STRING		SHMEM_VENDOR_STRING
#define _SHMEM_CMP_EQ			SHMEM_CMP_EQ
#define _SHMEM_CMP_NE			SHMEM_CMP_NE
#define _SHMEM_CMP_GT			SHMEM_CMP_GT
#define _SHMEM_CMP_GE			SHMEM_CMP_GE
#define _SHMEM_CMP_LT			SHMEM_CMP_LT
#define _SHMEM_CMP_LE			SHMEM_CMP_LE
#define _SHMEM_SYNC_VALUE		SHMEM_SYNC_VALUE
#define _SHMEM_BARRIER_SYNC_SIZE	SHMEM_BARRIER_SYNC_SIZE
#define _SHMEM_BCAST_SYNC_SIZE		SHMEM_BCAST_SYNC_SIZE
#define _SHMEM_REDUCE_SYNC_SIZE		SHMEM_REDUCE_SYNC_SIZE
#define _SHMEM_COLLECT_SYNC_SIZE	SHMEM_COLLECT_SYNC_SIZE
#define _SHMEM_REDUCE_MIN_WRKDATA_SIZE	SHMEM_REDUCE_MIN_WRKDATA_SIZE

typedef struct hpmmap_shmem_ctx *shmem_ctx_t;
typedef struct hpmmap_shmem_team *shmem_team_t;
typedef struct {
	int num_contexts;	/* kept, and reported; there is no limit */
} shmem_team_config_t;

#define SHMEM_CTX_INVALID	((shmem_ctx_t)0)
#define SHMEM_CTX_DEFAULT	((shmem_ctx_t)1)
#define SHMEM_TEAM_INVALID	((shmem_team_t)0)
#define SHMEM_TEAM_WORLD	((shmem_team_t)1)
/* All PEs are on one host: the same PEs as SHMEM_TEAM_WORLD. */
#define SHMEM_TEAM_SHARED	((shmem_team_t)2)

/* ---- Types ---------------------------------------------------------------- */

/*
 * The specification's lists of types: X(its name in functions, the C type, ...). Those after _ALIASES are other
 * names of the same C types.
 */
#define SHMEMI_INTS(X, ...) X(int, int, __VA_ARGS__) X(long, long, __VA_ARGS__) X(longlong, long long, __VA_ARGS__)
#define SHMEMI_UINTS(X, ...) \
	X(uint, unsigned int, __VA_ARGS__) X(ulong, unsigned long, __VA_ARGS__) \
	X(ulonglong, unsigned long long, __VA_ARGS__)
#define SHMEMI_SHORTS(X, ...) X(short, short, __VA_ARGS__) X(ushort, unsigned short, __VA_ARGS__)
#define SHMEMI_CHARS(X, ...) \
	X(char, char, __VA_ARGS__) X(schar, signed char, __VA_ARGS__) X(uchar, unsigned char, __VA_ARGS__)
#define SHMEMI_REALS(X, ...) X(float, float, __VA_ARGS__) X(double, double, __VA_ARGS__)
#define SHMEMI_SMALL_ALIASES(X, ...) \
	X(int8, int8_t, __VA_ARGS__) X(int16, int16_t, __VA_ARGS__) \
	X(uint8, uint8_t, __VA_ARGS__) X(uint16, uint16_t, __VA_ARGS__)
#define SHMEMI_BIT_ALIASES(X, ...) \
	X(int32, int32_t, __VA_ARGS__) X(int64, int64_t, __VA_ARGS__) \
	X(uint32, uint32_t, __VA_ARGS__) X(uint64, uint64_t, __VA_ARGS__)
#define SHMEMI_SIZE_ALIASES(X, ...) X(size, size_t, __VA_ARGS__) X(ptrdiff, ptrdiff_t, __VA_ARGS__)
#define SHMEMI_COMPLEX(X, ...) X(complexf, float _Complex, __VA_ARGS__) X(complexd, double _Complex, __VA_ARGS__)

#define SHMEMI_AMO(X, ...) SHMEMI_INTS(X, __VA_ARGS__) SHMEMI_UINTS(X, __VA_ARGS__)
#define SHMEMI_AMO_ALIASES(X, ...) SHMEMI_BIT_ALIASES(X, __VA_ARGS__) SHMEMI_SIZE_ALIASES(X, __VA_ARGS__)
#define SHMEMI_EXTENDED(X, ...) SHMEMI_AMO(X, __VA_ARGS__) SHMEMI_REALS(X, __VA_ARGS__)
/* Signed ones are not in the specification; Open MPI has them. */
#define SHMEMI_BITWISE(X, ...) SHMEMI_AMO(X, __VA_ARGS__)
#define SHMEMI_SYNC(X, ...) SHMEMI_AMO(X, __VA_ARGS__) SHMEMI_SHORTS(X, __VA_ARGS__)
#define SHMEMI_RMA(X, ...) \
	SHMEMI_AMO(X, __VA_ARGS__) SHMEMI_SHORTS(X, __VA_ARGS__) SHMEMI_CHARS(X, __VA_ARGS__) \
	SHMEMI_REALS(X, __VA_ARGS__) X(longdouble, long double, __VA_ARGS__)
#define SHMEMI_RMA_ALIASES(X, ...) SHMEMI_SMALL_ALIASES(X, __VA_ARGS__) SHMEMI_AMO_ALIASES(X, __VA_ARGS__)
/* Reductions: bitwise; MAX and MIN; SUM and PROD. In _TO_ALL those of active sets. */
#define SHMEMI_AND(X, ...) \
	SHMEMI_UINTS(X, __VA_ARGS__) X(uchar, unsigned char, __VA_ARGS__) X(ushort, unsigned short, __VA_ARGS__)
#define SHMEMI_AND_ALIASES(X, ...) \
	SHMEMI_SMALL_ALIASES(X, __VA_ARGS__) SHMEMI_BIT_ALIASES(X, __VA_ARGS__) X(size, size_t, __VA_ARGS__)
#define SHMEMI_SUM(X, ...) SHMEMI_RMA(X, __VA_ARGS__) SHMEMI_COMPLEX(X, __VA_ARGS__)
#define SHMEMI_AND_TO_ALL(X, ...) X(short, short, __VA_ARGS__) SHMEMI_INTS(X, __VA_ARGS__)
#define SHMEMI_MAX_TO_ALL(X, ...) \
	SHMEMI_AND_TO_ALL(X, __VA_ARGS__) SHMEMI_REALS(X, __VA_ARGS__) X(longdouble, long double, __VA_ARGS__)
#define SHMEMI_SUM_TO_ALL(X, ...) SHMEMI_MAX_TO_ALL(X, __VA_ARGS__) SHMEMI_COMPLEX(X, __VA_ARGS__)
/* Sizes of elements in bits, each with a type of that size. */
typedef struct {
	uint64_t half[2];
} shmemi_128;
#define SHMEMI_SIZES(X, ...) \
	X(8, uint8_t, __VA_ARGS__) X(16, uint16_t, __VA_ARGS__) X(32, uint32_t, __VA_ARGS__) \
	X(64, uint64_t, __VA_ARGS__) X(128, shmemi_128, __VA_ARGS__)

/* ---- Functions ------------------------------------------------------------ */

#define SHMEMI_FN(ret, name, ...) \
	ret shmem_##name(__VA_ARGS__); \
	ret pshmem_##name(__VA_ARGS__);
/* The same with and without a context. */
#define SHMEMI_CTX_FN(ret, name, ...) \
	SHMEMI_FN(ret, name, __VA_ARGS__) \
	SHMEMI_FN(ret, ctx_##name, shmem_ctx_t ctx, __VA_ARGS__)

/* Setup, exit, query. shmem_init_thread() returns 0. */
SHMEMI_FN(void, init, void)
SHMEMI_FN(int, init_thread, int requested, int *provided)
SHMEMI_FN(void, query_thread, int *provided)
SHMEMI_FN(void, finalize, void)
SHMEMI_FN(void, global_exit, int status)
SHMEMI_FN(int, my_pe, void)
SHMEMI_FN(int, n_pes, void)
SHMEMI_FN(int, pe_accessible, int pe)
SHMEMI_FN(int, addr_accessible, const void *addr, int pe)
SHMEMI_FN(void *, ptr, const void *dest, int pe)
SHMEMI_FN(void, info_get_version, int *major, int *minor)
SHMEMI_FN(void, info_get_name, char *name)
/* Does nothing: for tools that replace it. */
SHMEMI_FN(void, pcontrol, int level, ...)

/* The symmetric heap: at least 64 bytes aligned. NULL: size is 0, or the heap is exhausted at all PEs. */
SHMEMI_FN(void *, malloc, size_t size)
SHMEMI_FN(void *, calloc, size_t count, size_t size)
SHMEMI_FN(void *, align, size_t alignment, size_t size)
SHMEMI_FN(void *, realloc, void *ptr, size_t size)
SHMEMI_FN(void *, malloc_with_hints, size_t size, long hints)
SHMEMI_FN(void, free, void *ptr)

/* Teams and contexts. Functions that return int return 0, or nonzero if there is no such team or no room. */
SHMEMI_FN(int, team_my_pe, shmem_team_t team)
SHMEMI_FN(int, team_n_pes, shmem_team_t team)
SHMEMI_FN(int, team_get_config, shmem_team_t team, long config_mask, shmem_team_config_t *config)
SHMEMI_FN(int, team_translate_pe, shmem_team_t src_team, int src_pe, shmem_team_t dest_team)
SHMEMI_FN(int, team_split_strided, shmem_team_t parent, int start, int stride, int size,
	  const shmem_team_config_t *config, long config_mask, shmem_team_t *new_team)
SHMEMI_FN(int, team_split_2d, shmem_team_t parent, int xrange, const shmem_team_config_t *xaxis_config,
	  long xaxis_mask, shmem_team_t *xaxis_team, const shmem_team_config_t *yaxis_config, long yaxis_mask,
	  shmem_team_t *yaxis_team)
SHMEMI_FN(void, team_destroy, shmem_team_t team)
SHMEMI_FN(int, team_create_ctx, shmem_team_t team, long options, shmem_ctx_t *ctx)
SHMEMI_FN(int, ctx_create, long options, shmem_ctx_t *ctx)
SHMEMI_FN(void, ctx_destroy, shmem_ctx_t ctx)
SHMEMI_FN(int, ctx_get_team, shmem_ctx_t ctx, shmem_team_t *team)

/* Puts and gets. */
#define SHMEMI_DECLARE_RMA(name, T, ...) \
	SHMEMI_CTX_FN(void, name##_p, T *dest, T value, int pe) \
	SHMEMI_CTX_FN(T, name##_g, const T *source, int pe) \
	SHMEMI_DECLARE_BLOCK(, name##_, , T) \
	SHMEMI_DECLARE_STRIDED(, name##_, , T)
#define SHMEMI_DECLARE_SIZED(bits, T, ...) \
	SHMEMI_DECLARE_BLOCK(, , bits, void) \
	SHMEMI_DECLARE_STRIDED(, , bits, void)
#define SHMEMI_DECLARE_BLOCK(x, name, bits, T) \
	SHMEMI_CTX_FN(void, name##put##bits, T *dest, const T *source, size_t nelems, int pe) \
	SHMEMI_CTX_FN(void, name##get##bits, T *dest, const T *source, size_t nelems, int pe) \
	SHMEMI_CTX_FN(void, name##put##bits##_nbi, T *dest, const T *source, size_t nelems, int pe) \
	SHMEMI_CTX_FN(void, name##get##bits##_nbi, T *dest, const T *source, size_t nelems, int pe) \
	SHMEMI_CTX_FN(void, name##put##bits##_signal, T *dest, const T *source, size_t nelems, uint64_t *sig_addr, \
		      uint64_t signal, int sig_op, int pe) \
	SHMEMI_CTX_FN(void, name##put##bits##_signal_nbi, T *dest, const T *source, size_t nelems, \
		      uint64_t *sig_addr, uint64_t signal, int sig_op, int pe)
#define SHMEMI_DECLARE_STRIDED(x, name, bits, T) \
	SHMEMI_CTX_FN(void, name##iput##bits, T *dest, const T *source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems, \
		      int pe) \
	SHMEMI_CTX_FN(void, name##iget##bits, T *dest, const T *source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems, \
		      int pe)
SHMEMI_RMA(SHMEMI_DECLARE_RMA, )
SHMEMI_RMA_ALIASES(SHMEMI_DECLARE_RMA, )
SHMEMI_SIZES(SHMEMI_DECLARE_SIZED, )
SHMEMI_DECLARE_BLOCK(, , mem, void)

/* Atomics. */
#define SHMEMI_DECLARE_EXTENDED(name, T, ...) \
	SHMEMI_CTX_FN(T, name##_atomic_fetch, const T *source, int pe) \
	SHMEMI_CTX_FN(void, name##_atomic_set, T *dest, T value, int pe) \
	SHMEMI_CTX_FN(T, name##_atomic_swap, T *dest, T value, int pe) \
	SHMEMI_CTX_FN(void, name##_atomic_fetch_nbi, T *fetch, const T *source, int pe) \
	SHMEMI_CTX_FN(void, name##_atomic_swap_nbi, T *fetch, T *dest, T value, int pe)
#define SHMEMI_DECLARE_FETCHING(op, name, T) \
	SHMEMI_CTX_FN(void, name##_atomic_##op, T *dest, T value, int pe) \
	SHMEMI_CTX_FN(T, name##_atomic_fetch_##op, T *dest, T value, int pe) \
	SHMEMI_CTX_FN(void, name##_atomic_fetch_##op##_nbi, T *fetch, T *dest, T value, int pe)
#define SHMEMI_DECLARE_AMO(name, T, ...) \
	SHMEMI_DECLARE_FETCHING(add, name, T) \
	SHMEMI_CTX_FN(T, name##_atomic_compare_swap, T *dest, T cond, T value, int pe) \
	SHMEMI_CTX_FN(void, name##_atomic_compare_swap_nbi, T *fetch, T *dest, T cond, T value, int pe) \
	SHMEMI_CTX_FN(void, name##_atomic_inc, T *dest, int pe) \
	SHMEMI_CTX_FN(T, name##_atomic_fetch_inc, T *dest, int pe) \
	SHMEMI_CTX_FN(void, name##_atomic_fetch_inc_nbi, T *fetch, T *dest, int pe)
#define SHMEMI_DECLARE_BITWISE(name, T, ...) \
	SHMEMI_DECLARE_FETCHING(and, name, T) \
	SHMEMI_DECLARE_FETCHING(or, name, T) \
	SHMEMI_DECLARE_FETCHING(xor, name, T)
/* Deprecated. */
#define SHMEMI_DECLARE_OLD_EXTENDED(name, T, ...) \
	SHMEMI_FN(T, name##_fetch, const T *source, int pe) \
	SHMEMI_FN(void, name##_set, T *dest, T value, int pe) \
	SHMEMI_FN(T, name##_swap, T *dest, T value, int pe)
#define SHMEMI_DECLARE_OLD_AMO(name, T, ...) \
	SHMEMI_FN(T, name##_cswap, T *dest, T cond, T value, int pe) \
	SHMEMI_FN(T, name##_fadd, T *dest, T value, int pe) \
	SHMEMI_FN(T, name##_finc, T *dest, int pe) \
	SHMEMI_FN(void, name##_add, T *dest, T value, int pe) \
	SHMEMI_FN(void, name##_inc, T *dest, int pe)
SHMEMI_EXTENDED(SHMEMI_DECLARE_EXTENDED, )
SHMEMI_AMO_ALIASES(SHMEMI_DECLARE_EXTENDED, )
SHMEMI_AMO(SHMEMI_DECLARE_AMO, )
SHMEMI_AMO_ALIASES(SHMEMI_DECLARE_AMO, )
SHMEMI_BITWISE(SHMEMI_DECLARE_BITWISE, )
SHMEMI_BIT_ALIASES(SHMEMI_DECLARE_BITWISE, )
SHMEMI_INTS(SHMEMI_DECLARE_OLD_EXTENDED, )
SHMEMI_REALS(SHMEMI_DECLARE_OLD_EXTENDED, )
SHMEMI_INTS(SHMEMI_DECLARE_OLD_AMO, )

/* Waiting for variables of the caller's own. */
#define SHMEMI_DECLARE_SYNC(name, T, ...) \
	SHMEMI_FN(void, name##_wait_until, T *ivar, int cmp, T cmp_value) \
	SHMEMI_FN(int, name##_test, T *ivar, int cmp, T cmp_value) \
	SHMEMI_DECLARE_SOME(wait_until, void, name, T, , T cmp_value) \
	SHMEMI_DECLARE_SOME(test, int, name, T, , T cmp_value) \
	SHMEMI_DECLARE_SOME(wait_until, void, name, T, _vector, T *cmp_values) \
	SHMEMI_DECLARE_SOME(test, int, name, T, _vector, T *cmp_values)
#define SHMEMI_DECLARE_SOME(op, ret, name, T, vector, ...) \
	SHMEMI_FN(ret, name##_##op##_all##vector, T *ivars, size_t nelems, const int *status, int cmp, __VA_ARGS__) \
	SHMEMI_FN(size_t, name##_##op##_any##vector, T *ivars, size_t nelems, const int *status, int cmp, __VA_ARGS__) \
	SHMEMI_FN(size_t, name##_##op##_some##vector, T *ivars, size_t nelems, size_t *indices, const int *status, \
		  int cmp, __VA_ARGS__)
/* Deprecated: until the variable is another value. */
#define SHMEMI_DECLARE_WAIT(name, T, ...) SHMEMI_FN(void, name##_wait, T *ivar, T cmp_value)
SHMEMI_SYNC(SHMEMI_DECLARE_SYNC, )
SHMEMI_AMO_ALIASES(SHMEMI_DECLARE_SYNC, )
SHMEMI_AND_TO_ALL(SHMEMI_DECLARE_WAIT, )
SHMEMI_FN(void, wait, long *ivar, long cmp_value)
/* Deprecated: shmem_long_wait_until(). */
SHMEMI_FN(void, wait_until, long *ivar, int cmp, long cmp_value)
SHMEMI_FN(uint64_t, signal_fetch, const uint64_t *sig_addr)
SHMEMI_FN(uint64_t, signal_wait_until, uint64_t *sig_addr, int cmp, uint64_t cmp_value)

/* Order and locks. */
SHMEMI_FN(void, fence, void)
SHMEMI_FN(void, quiet, void)
SHMEMI_FN(void, ctx_fence, shmem_ctx_t ctx)
SHMEMI_FN(void, ctx_quiet, shmem_ctx_t ctx)
SHMEMI_FN(void, set_lock, long *lock)
SHMEMI_FN(int, test_lock, long *lock)
SHMEMI_FN(void, clear_lock, long *lock)

/* Collectives. Those that return int return 0. */
#define SHMEMI_SET	int PE_start, int logPE_stride, int PE_size
SHMEMI_FN(void, barrier_all, void)
SHMEMI_FN(void, sync_all, void)
SHMEMI_FN(int, team_sync, shmem_team_t team)
SHMEMI_FN(void, barrier, SHMEMI_SET, long *pSync)
SHMEMI_FN(void, sync, SHMEMI_SET, long *pSync)
#define SHMEMI_DECLARE_COLLECTIVE(name, T, ...) SHMEMI_DECLARE_MOVES(name##_, , T)
#define SHMEMI_DECLARE_MOVES(name, bits, T) \
	SHMEMI_FN(int, name##broadcast##bits, shmem_team_t team, T *dest, const T *source, size_t nelems, int root) \
	SHMEMI_FN(int, name##collect##bits, shmem_team_t team, T *dest, const T *source, size_t nelems) \
	SHMEMI_FN(int, name##fcollect##bits, shmem_team_t team, T *dest, const T *source, size_t nelems) \
	SHMEMI_FN(int, name##alltoall##bits, shmem_team_t team, T *dest, const T *source, size_t nelems) \
	SHMEMI_FN(int, name##alltoalls##bits, shmem_team_t team, T *dest, const T *source, ptrdiff_t dst, \
		  ptrdiff_t sst, size_t nelems)
#define SHMEMI_DECLARE_OLD_MOVES(bits) \
	SHMEMI_FN(void, broadcast##bits, void *dest, const void *source, size_t nelems, int PE_root, SHMEMI_SET, \
		  long *pSync) \
	SHMEMI_FN(void, collect##bits, void *dest, const void *source, size_t nelems, SHMEMI_SET, long *pSync) \
	SHMEMI_FN(void, fcollect##bits, void *dest, const void *source, size_t nelems, SHMEMI_SET, long *pSync) \
	SHMEMI_FN(void, alltoall##bits, void *dest, const void *source, size_t nelems, SHMEMI_SET, long *pSync) \
	SHMEMI_FN(void, alltoalls##bits, void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst, \
		  size_t nelems, SHMEMI_SET, long *pSync)
#define SHMEMI_DECLARE_REDUCE(name, T, op) \
	SHMEMI_FN(int, name##_##op##_reduce, shmem_team_t team, T *dest, const T *source, size_t nreduce)
#define SHMEMI_DECLARE_TO_ALL(name, T, op) \
	SHMEMI_FN(void, name##_##op##_to_all, T *dest, const T *source, int nreduce, SHMEMI_SET, T *pWrk, long *pSync)
SHMEMI_RMA(SHMEMI_DECLARE_COLLECTIVE, )
SHMEMI_RMA_ALIASES(SHMEMI_DECLARE_COLLECTIVE, )
SHMEMI_DECLARE_MOVES(, mem, void)
SHMEMI_DECLARE_OLD_MOVES(32)
SHMEMI_DECLARE_OLD_MOVES(64)
#define SHMEMI_DECLARE_REDUCTIONS(TYPES, op) SHMEMI_##TYPES(SHMEMI_DECLARE_REDUCE, op)
SHMEMI_DECLARE_REDUCTIONS(AND, and) SHMEMI_DECLARE_REDUCTIONS(AND_ALIASES, and)
SHMEMI_DECLARE_REDUCTIONS(AND, or) SHMEMI_DECLARE_REDUCTIONS(AND_ALIASES, or)
SHMEMI_DECLARE_REDUCTIONS(AND, xor) SHMEMI_DECLARE_REDUCTIONS(AND_ALIASES, xor)
SHMEMI_DECLARE_REDUCTIONS(RMA, max) SHMEMI_DECLARE_REDUCTIONS(RMA_ALIASES, max)
SHMEMI_DECLARE_REDUCTIONS(RMA, min) SHMEMI_DECLARE_REDUCTIONS(RMA_ALIASES, min)
SHMEMI_DECLARE_REDUCTIONS(SUM, sum) SHMEMI_DECLARE_REDUCTIONS(RMA_ALIASES, sum)
SHMEMI_DECLARE_REDUCTIONS(SUM, prod) SHMEMI_DECLARE_REDUCTIONS(RMA_ALIASES, prod)
SHMEMI_AND_TO_ALL(SHMEMI_DECLARE_TO_ALL, and)
SHMEMI_AND_TO_ALL(SHMEMI_DECLARE_TO_ALL, or)
SHMEMI_AND_TO_ALL(SHMEMI_DECLARE_TO_ALL, xor)
SHMEMI_MAX_TO_ALL(SHMEMI_DECLARE_TO_ALL, max)
SHMEMI_MAX_TO_ALL(SHMEMI_DECLARE_TO_ALL, min)
SHMEMI_SUM_TO_ALL(SHMEMI_DECLARE_TO_ALL, sum)
SHMEMI_SUM_TO_ALL(SHMEMI_DECLARE_TO_ALL, prod)

/* Deprecated: caches are coherent, so these do nothing. */
SHMEMI_FN(void, set_cache_inv, void)
SHMEMI_FN(void, clear_cache_inv, void)
SHMEMI_FN(void, set_cache_line_inv, void *dest)
SHMEMI_FN(void, clear_cache_line_inv, void *dest)
SHMEMI_FN(void, udcflush, void)
SHMEMI_FN(void, udcflush_line, void *dest)
/* Deprecated names. A program that began with start_pes() is finalized at exit. */
void start_pes(int npes);
int _my_pe(void);
int _num_pes(void);
void *shmalloc(size_t size);
void *shmemalign(size_t alignment, size_t size);
void *shrealloc(void *ptr, size_t size);
void shfree(void *ptr);

#ifdef __cplusplus
}
#endif

#if !defined(__cplusplus) && defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#include <shmem_generic.h>
#endif

#endif
