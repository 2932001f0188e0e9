// SPDX-License-Identifier: GPL-2.0
/*
 * Puts and gets of OpenSHMEM, each function with each type, on the heap and on static variables, over sizes, with
 * and without a context; signals; the heap's own functions. Each PE writes to the next one.
 */
#include "check.h"

#define MOST	4096
static const size_t sizes[] = { 0, 1, 2, 3, 8, 17, 255, 1024, MOST };
#define NR_SIZES	(sizeof(sizes) / sizeof(sizes[0]))

/* Static, and of a few alignments. */
static char static_room[MOST * 16 + 64] __attribute__((aligned(64)));
static char *heap_room;
static uint64_t sig;
static shmem_ctx_t ctx;
static int next, before;

/* The i-th value that a PE writes. */
#define VALUE(T, pe, i)	((T)((pe) * 7 + (int)((i) * 3 % 101) + 1))

/* All PEs have written to room: of the PE before, at stride, the rest is untouched. */
#define EXPECT(T, what, room, n, stride, pe) \
	do { \
		const T *is = (const T *)(room); \
		for (size_t i = 0; i < (n); i++) \
			CHECK(is[i * (stride)] == VALUE(T, pe, i), "%s, %zu of %zu", what, i, (size_t)(n)); \
		CHECK((n) * (stride) >= MOST || ((const char *)&is[(n) * (stride)])[0] == 0x55, "%s wrote behind %zu", what, \
		      (size_t)(n)); \
	} while (0)

static void clean(void *room)
{
	shmem_barrier_all();
	memset(room, 0x55, sizeof(static_room));
	sig = 0;
	shmem_barrier_all();
}

/* One put with its arguments, checked by the PE that it went to. */
#define TRY_PUT(T, room, n, call) \
	do { \
		clean(room); \
		call; \
		shmem_barrier_all(); \
		EXPECT(T, #call, room, n, 1, before); \
	} while (0)
/* The own copy holds this PE's values; a get brings the next one's. */
#define TRY_GET(T, room, n, call) \
	do { \
		memset(got, 0x55, sizeof(got)); \
		call; \
		EXPECT(T, #call, got, n, 1, next); \
	} while (0)

#define TEST(name, T, ...) \
	static void test_##name(char *room) \
	{ \
		static T local[MOST], got[MOST + 1]; \
		T *dest = (T *)room; \
		for (size_t i = 0; i < MOST; i++) \
			local[i] = VALUE(T, me, i); \
		for (size_t s = 0; s < NR_SIZES; s++) { \
			size_t n = sizes[s]; \
			TRY_PUT(T, room, n, shmem_##name##_put(dest, local, n, next)); \
			TRY_PUT(T, room, n, shmem_ctx_##name##_put(ctx, dest, local, n, next)); \
			TRY_PUT(T, room, n, shmem_##name##_put_nbi(dest, local, n, next); shmem_quiet()); \
			TRY_PUT(T, room, n, shmem_ctx_##name##_put_nbi(ctx, dest, local, n, next); shmem_ctx_quiet(ctx)); \
			TRY_PUT(T, room, n, shmem_##name##_iput(dest, local, 1, 1, n, next)); \
			TRY_PUT(T, room, n, shmem_putmem(dest, local, n * sizeof(T), next)); \
			clean(room); \
			shmem_##name##_put_signal(dest, local, n, &sig, 5 + n, SHMEM_SIGNAL_SET, next); \
			CHECK(shmem_signal_wait_until(&sig, SHMEM_CMP_EQ, 5 + n) == 5 + n); \
			EXPECT(T, "put_signal", room, n, 1, before); \
			clean(room); \
			shmem_ctx_##name##_put_signal_nbi(ctx, dest, local, n, &sig, 5, SHMEM_SIGNAL_ADD, next); \
			shmem_##name##_put_signal_nbi(dest, local, n, &sig, 6, SHMEM_SIGNAL_ADD, next); \
			CHECK(shmem_signal_wait_until(&sig, SHMEM_CMP_GE, 11) == 11); \
			CHECK(shmem_signal_fetch(&sig) == 11); \
			EXPECT(T, "put_signal_nbi", room, n, 1, before); \
			clean(room); \
			memcpy(dest, local, n * sizeof(T)); \
			shmem_barrier_all(); \
			TRY_GET(T, room, n, shmem_##name##_get(got, dest, n, next)); \
			TRY_GET(T, room, n, shmem_ctx_##name##_get(ctx, got, dest, n, next)); \
			TRY_GET(T, room, n, shmem_##name##_get_nbi(got, dest, n, next); shmem_quiet()); \
			TRY_GET(T, room, n, shmem_ctx_##name##_get_nbi(ctx, got, dest, n, next); shmem_quiet()); \
			TRY_GET(T, room, n, shmem_##name##_iget(got, dest, 1, 1, n, next)); \
			TRY_GET(T, room, n, shmem_getmem(got, dest, n * sizeof(T), next)); \
			TRY_GET(T, room, n, shmem_ctx_getmem_nbi(ctx, got, dest, n * sizeof(T), next)); \
		} \
		/* Elements 0, 3, 6, ... from every other one. */ \
		clean(room); \
		for (size_t i = 0; i < 200; i++) \
			got[2 * i] = VALUE(T, me, i); \
		shmem_##name##_iput(dest, got, 3, 2, 200, next); \
		shmem_barrier_all(); \
		for (size_t i = 0; i < 200; i++) { \
			CHECK(dest[3 * i] == VALUE(T, before, i), #name "_iput %zu", i); \
			CHECK(((char *)&dest[3 * i + 1])[0] == 0x55, #name "_iput, gap %zu", i); \
		} \
		memset(got, 0x55, sizeof(got)); \
		shmem_ctx_##name##_iget(ctx, got, dest, 2, 3, 200, next); \
		for (size_t i = 0; i < 200; i++) { \
			CHECK(got[2 * i] == VALUE(T, me, i), #name "_iget %zu", i); \
			CHECK(((char *)&got[2 * i + 1])[0] == 0x55, #name "_iget, gap %zu", i); \
		} \
		clean(room); \
		shmem_##name##_p(&dest[1], VALUE(T, me, 1), next); \
		shmem_ctx_##name##_p(ctx, &dest[2], VALUE(T, me, 2), next); \
		shmem_barrier_all(); \
		CHECK(dest[1] == VALUE(T, before, 1) && dest[2] == VALUE(T, before, 2), #name "_p"); \
		CHECK(((char *)&dest[3])[0] == 0x55 && ((char *)dest)[0] == 0x55, #name "_p wrote beside"); \
		CHECK(shmem_##name##_g(&dest[1], next) == VALUE(T, me, 1), #name "_g"); \
		CHECK(shmem_ctx_##name##_g(ctx, &dest[2], next) == VALUE(T, me, 2), #name "_g"); \
		shmem_barrier_all(); \
	}
SHMEMI_RMA(TEST, )
SHMEMI_RMA_ALIASES(TEST, )

#define TEST_SIZE(bits, T, ...) \
	static void test_##bits(char *room) \
	{ \
		static char local[128 * (bits / 8)], got[sizeof(local)]; \
		for (size_t i = 0; i < sizeof(local); i++) \
			local[i] = VALUE(char, me, i); \
		TRY_PUT(char, room, sizeof(local), shmem_put##bits(room, local, 128, next)); \
		TRY_PUT(char, room, sizeof(local), shmem_ctx_put##bits##_nbi(ctx, room, local, 128, next)); \
		TRY_PUT(char, room, sizeof(local), shmem_iput##bits(room, local, 1, 1, 128, next)); \
		clean(room); \
		shmem_put##bits##_signal(room, local, 128, &sig, 1, SHMEM_SIGNAL_SET, next); \
		shmem_signal_wait_until(&sig, SHMEM_CMP_NE, 0); \
		EXPECT(char, "put" #bits "_signal", room, sizeof(local), 1, before); \
		clean(room); \
		memcpy(room, local, sizeof(local)); \
		shmem_barrier_all(); \
		memset(got, 0, sizeof(got)); \
		shmem_get##bits(got, room, 128, next); \
		for (size_t i = 0; i < sizeof(got); i++) \
			CHECK(got[i] == VALUE(char, next, i), "get" #bits " %zu", i); \
		memset(got, 0, sizeof(got)); \
		shmem_ctx_iget##bits(ctx, got, room, 2, 1, 64, next); \
		for (size_t i = 0; i < 64 * sizeof(T); i++) \
			CHECK(got[i / sizeof(T) * 2 * sizeof(T) + i % sizeof(T)] == VALUE(char, next, i), "iget" #bits " %zu", i); \
	}
SHMEMI_SIZES(TEST_SIZE, )

#define RUN(name, T, ...) \
	test_##name(heap_room); \
	test_##name(static_room);

static void generics(void)
{
	static long l[4];
	static float f[4];
	long lv = me + 1, lgot = 0;
	float fv[2] = { 1.5F + (float)me, 2.5F + (float)me };

	shmem_barrier_all();
	shmem_put(l, &lv, 1, next);
	shmem_p(&l[1], lv + 1, next);
	shmem_put(ctx, f, fv, 2, next);
	shmem_put_signal(&l[2], &lv, 1, &sig, 77, SHMEM_SIGNAL_SET, next);
	shmem_signal_wait_until(&sig, SHMEM_CMP_EQ, 77);
	shmem_barrier_all();
	CHECK(l[0] == before + 1 && l[1] == before + 2 && l[2] == before + 1);
	CHECK(f[0] == 1.5F + (float)before && f[1] == 2.5F + (float)before);
	CHECK(shmem_g((const long *)&l[1], next) == me + 2);
	CHECK(shmem_g(ctx, &f[1], next) == fv[1]);
	shmem_get(&lgot, l, 1, next);
	CHECK(lgot == me + 1);
	shmem_barrier_all();
}

/* All PEs have the same offsets; what is freed is used again; exhausted is NULL. */
static void heap(void)
{
	static uintptr_t offset[256];
	char *first = shmem_malloc(1), *a, *b, *c;

	CHECK(shmem_malloc(0) == NULL);
	CHECK(shmem_malloc((size_t)1 << 50) == NULL);
	CHECK(shmem_calloc(SIZE_MAX / 2, 4) == NULL);
	CHECK(shmem_align(48, 8) == NULL);
	a = shmem_align(4096, 100);
	CHECK(a && (uintptr_t)a % 4096 == 0);
	b = shmem_align(2 << 20, 100);
	CHECK(b && (uintptr_t)b % (2 << 20) == 0);
	shmem_free(b);
	c = shmem_calloc(1000, 8);
	for (int i = 0; i < 8000; i++)
		CHECK(c[i] == 0);
	memset(c, me + 1, 8000);
	offset[me] = (uintptr_t)(c - first);
	shmem_barrier_all();
	for (int pe = 0; pe < npes; pe++)
		CHECK(shmem_ulong_g(&offset[me], pe) == 0 || pe == me);
	for (int pe = 0; pe < npes; pe++)
		CHECK(shmem_ulong_g(&offset[pe], pe) == offset[me], "offset of PE %d", pe);
	c = shmem_realloc(c, 100000);
	CHECK(c && c[0] == me + 1 && c[7999] == me + 1);
	CHECK(shmem_realloc(c, (size_t)1 << 50) == NULL);
	CHECK(shmem_char_g(&c[7999], next) == next + 1);
	shmem_free(c);
	CHECK(shmem_realloc(NULL, 64) != NULL);
	b = shmem_malloc_with_hints(100, SHMEM_MALLOC_ATOMICS_REMOTE);
	CHECK(b != NULL);
	CHECK(shmem_realloc(b, 0) == NULL);
	shmem_free(NULL);
	/* What is freed becomes one again, in whatever order. */
	for (int i = 0; i < 100; i++) {
		char *part[3], *all;

		for (int at = 0; at < 3; at++)
			part[at] = shmem_malloc(13 << 20);
		for (int at = 0; at < 3; at++)
			shmem_free(part[(i + (i & 8 ? at : 3 - at)) % 3]);
		all = shmem_malloc(39 << 20);
		CHECK(all != NULL, "round %d", i);
		shmem_free(all);
	}
	shmem_free(a);
	shmem_free(first);
}

static void addresses(void)
{
	static int variable;
	int local = 0, *there;

	CHECK(shmem_addr_accessible(&variable, next) && shmem_addr_accessible(heap_room, next));
	CHECK(!shmem_addr_accessible(&local, next) && !shmem_addr_accessible(&variable, npes));
	CHECK(shmem_pe_accessible(0) && !shmem_pe_accessible(npes) && !shmem_pe_accessible(-1));
	CHECK(shmem_ptr(&local, next) == NULL && shmem_ptr(&variable, npes) == NULL);
	CHECK(shmem_ptr(&variable, me) == &variable);
	there = shmem_ptr(&variable, next);
	*there = me + 100;
	shmem_barrier_all();
	CHECK(variable == before + 100);
	shmem_barrier_all();
}

int main(void)
{
	int major = 0, minor = 0;
	char name[SHMEM_MAX_NAME_LEN];

	begin();
	next = (me + 1) % npes;
	before = (me + npes - 1) % npes;
	shmem_info_get_version(&major, &minor);
	shmem_info_get_name(name);
	CHECK(major == 1 && minor == 5 && strcmp(name, SHMEM_VENDOR_STRING) == 0);
	CHECK(shmem_ctx_create(0, &ctx) == 0);
	heap_room = shmem_align(64, sizeof(static_room));
	SHMEMI_RMA(RUN, )
	SHMEMI_RMA_ALIASES(RUN, )
	SHMEMI_SIZES(RUN, )
	generics();
	addresses();
	shmem_ctx_destroy(ctx);
	shmem_free(heap_room);
	heap();
	return end();
}
