// SPDX-License-Identifier: GPL-2.0
/*
 * libhpmmap_jemalloc, preloaded with jemalloc and fake_reuse: checks all memory that
 * jemalloc and its hooks return, on memory full of junk. With the
 * argument "inactive", without fake_reuse: jemalloc is left alone. With
 * "layout": tests that depend on the addresses of mappings and the break.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <jemalloc/jemalloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <threads.h>
#include <unistd.h>

#define PAGE	((size_t)4096)
#define MB(n)	((size_t)(n) << 20)
#define SLOT	MB(2)

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))

static int (*ctl)(const char *, void *, size_t *, void *, size_t);

static uint64_t next(uint64_t *rng)
{
	*rng ^= *rng << 13;
	*rng ^= *rng >> 7;
	*rng ^= *rng << 17;
	return *rng >> 8;
}

static unsigned int read_unsigned(const char *name)
{
	unsigned int value;
	size_t len = sizeof(value);

	assert_int_equal(ctl(name, &value, &len, NULL, 0), 0);
	return value;
}

static extent_hooks_t *hooks_of(unsigned int arena)
{
	extent_hooks_t *hooks;
	size_t len = sizeof(hooks);
	char name[64];

	snprintf(name, sizeof(name), "arena.%u.extent_hooks", arena);
	assert_int_equal(ctl(name, &hooks, &len, NULL, 0), 0);
	return hooks;
}

static bool is_hooked(unsigned int arena)
{
	Dl_info info;

	assert_int_not_equal(dladdr((void *)hooks_of(arena)->alloc, &info), 0);
	return strstr(info.dli_fname, "libhpmmap_jemalloc") != NULL;
}

static bool is_zero(const void *p, size_t len)
{
	const unsigned char *bytes = p;

	return len == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, len - 1) == 0);
}

static size_t resident(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	size_t pages;

	assert_non_null(file);
	assert_int_equal(fscanf(file, "%*u %zu", &pages), 1);
	fclose(file);
	return pages * PAGE;
}

/* ---- Which arenas have the hooks ---------------------------------------- */

static void *arena_of_thread(void *arg)
{
	unsigned int arena;
	void *p = malloc(100);

	arena = read_unsigned("thread.arena");
	*(bool *)arg = is_hooked(arena) && p;
	free(p);
	return NULL;
}

static int arena_of_c11_thread(void *arg)
{
	arena_of_thread(arg);
	return 7;
}

static void all_arenas_are_hooked(void **state)
{
	unsigned int nr = read_unsigned("arenas.narenas"), made, again;
	char name[64];

	(void)state;
	assert_true(is_hooked(0));
	/* The one of large allocations. */
	assert_true(is_hooked(nr - 1));
	for (int i = 0; i < 8; i++) {
		pthread_t thread;
		bool hooked = false;

		assert_int_equal(pthread_create(&thread, NULL, arena_of_thread, &hooked), 0);
		assert_int_equal(pthread_join(thread, NULL), 0);
		assert_true(hooked);
	}
	for (int i = 0; i < 8; i++) {
		bool hooked = false;
		thrd_t thread;
		int result;

		assert_int_equal(thrd_create(&thread, arena_of_c11_thread, &hooked), thrd_success);
		assert_int_equal(thrd_join(thread, &result), thrd_success);
		assert_int_equal(result, 7);
		assert_true(hooked);
	}
	made = read_unsigned("arenas.create");
	assert_true(is_hooked(made));
	snprintf(name, sizeof(name), "arena.%u.destroy", made);
	assert_int_equal(ctl(name, NULL, NULL, NULL, 0), 0);
	/* jemalloc gives the number out again. */
	again = read_unsigned("arenas.create");
	assert_int_equal(again, made);
	assert_true(is_hooked(again));
}

/* ---- The hooks themselves -------------------------------------------------- */

/* An arena of which jemalloc knows nothing: its memory is the test's alone. */
#define ARENA	4031

struct extent {
	unsigned char *p;
	size_t len;
	unsigned char mark;
};

static void expect_mark(const struct extent *extent)
{
	for (size_t off = 0; off < extent->len; off += 512)
		assert_int_equal(extent->p[off], extent->mark);
	assert_int_equal(extent->p[extent->len - 1], extent->mark);
}

static void expect_apart(const struct extent *extents, size_t nr,
			 const unsigned char *p, size_t len)
{
	for (size_t i = 0; i < nr; i++)
		if (extents[i].p && p < extents[i].p + extents[i].len && extents[i].p < p + len)
			fail_msg("extents overlap: %p+%#zx and %p+%#zx", (void *)p, len,
				 (void *)extents[i].p, extents[i].len);
}

static size_t random_len(uint64_t *rng)
{
	switch (next(rng) % 4) {
	case 0:
		return SLOT * (1 + next(rng) % 3);
	case 1:
		return PAGE * (1 + next(rng) % 1200);
	default:
		return PAGE * (1 + next(rng) % 40);
	}
}

/* Calls of the hooks; "few" is for emulated guests. */
static size_t contract_ops = 12000;

static void extents_keep_the_contract(void **state)
{
	static struct extent extents[400];
	extent_hooks_t *hooks = hooks_of(0);
	uint64_t rng = 0x9e3779b97f4a7c15;
	size_t zeros = 0, grown = 0, refused = 0, pinned, pinned_len = sizeof(pinned);
	/* jemalloc 5.4 knows pinned extents. */
	bool pins = ctl("stats.pinned", &pinned, &pinned_len, NULL, 0) == 0;

	(void)state;
	for (size_t op = 0; op < contract_ops; op++) {
		struct extent *extent = &extents[next(&rng) % ARRAY_SIZE(extents)];
		size_t len = random_len(&rng);
		size_t alignment = PAGE << (next(&rng) % 8 ? 0 : next(&rng) % 11);
		bool zero = next(&rng) % 3 == 0, wanted = zero, commit = next(&rng) % 2;
		unsigned char *p;

		if (extent->p && next(&rng) % 4 == 0) {
			/* Where it stands. */
			unsigned char *end = extent->p + extent->len;

			p = hooks->alloc(hooks, end, len, PAGE, &zero, &commit, ARENA);
			if (!p) {
				assert_int_equal(zero, wanted);
				continue;
			}
			assert_ptr_equal(p, end);
			grown++;
			expect_apart(extents, ARRAY_SIZE(extents), p, len);
			if (wanted)
				assert_true(is_zero(p, len));
			assert_true(commit);
			memset(p, extent->mark, len);
			extent->len += len;
			continue;
		}
		if (extent->p) {
			size_t cut = next(&rng) % 3 ? extent->len :
				     PAGE * (1 + next(&rng) % (extent->len / PAGE));

			expect_mark(extent);
			/* A part of it, as after a split. */
			if (!hooks->dalloc(hooks, extent->p, cut, true, ARENA)) {
				extent->p += cut;
				extent->len -= cut;
				if (extent->len == 0)
					extent->p = NULL;
			} else {
				refused++;
			}
			continue;
		}
		p = hooks->alloc(hooks, NULL, len, alignment, &zero, &commit, ARENA);
		assert_non_null(p);
		/* EXTENT_ALLOC_FLAG_PINNED. */
		assert_int_equal((uintptr_t)p % PAGE, pins && len < SLOT ? 1 : 0);
		p -= (uintptr_t)p % PAGE;
		assert_int_equal((uintptr_t)p % alignment, 0);
		assert_true(commit);
		assert_true(!wanted || zero);
		expect_apart(extents, ARRAY_SIZE(extents), p, len);
		if (zero) {
			assert_true(is_zero(p, len));
			zeros++;
		}
		*extent = (struct extent){ p, len, (unsigned char)(op | 1) };
		memset(p, extent->mark, len);
	}
	assert_true(zeros > contract_ops / 24);
	assert_true(grown > contract_ops / 240);
	print_message("%zu extents zero, %zu grown, %zu refused\n", zeros, grown, refused);
	for (size_t i = 0; i < ARRAY_SIZE(extents); i++)
		if (extents[i].p)
			hooks->destroy(hooks, extents[i].p, extents[i].len, true, ARENA);
}

/* What is from the break stays; what is mapped, below it or above, does not. */
static void the_break_is_told_from_mappings(void **state)
{
	const size_t len = 4 * SLOT;
	extent_hooks_t *hooks = hooks_of(0);
	uintptr_t old = (uintptr_t)sbrk(0);
	bool zero = false, commit = true;
	unsigned char *heap, *mapped;

	(void)state;
	assert_ptr_not_equal(sbrk((intptr_t)(SLOT - old % SLOT)), (void *)-1);
	heap = sbrk((intptr_t)len);
	assert_ptr_not_equal(heap, (void *)-1);
	memset(heap, 1, len);
	mapped = hooks->alloc(hooks, NULL, len, PAGE, &zero, &commit, ARENA);
	assert_non_null(mapped);
	assert_true(hooks->merge(hooks, heap, len, mapped, len, true, ARENA));
	assert_false(hooks->merge(hooks, heap, SLOT, heap + SLOT, SLOT, true, ARENA));
	assert_true(hooks->dalloc(hooks, heap, len, true, ARENA));
	hooks->destroy(hooks, heap, len, true, ARENA);
	assert_int_equal(heap[len - 1], 1);
	assert_false(hooks->dalloc(hooks, mapped, len, true, ARENA));
	assert_int_equal(msync(mapped, len, MS_ASYNC), -1);
	assert_ptr_not_equal(sbrk((intptr_t)old - (intptr_t)(uintptr_t)sbrk(0)), (void *)-1);
}

/* ---- malloc ------------------------------------------------------------------ */

static void churn(uint64_t seed, int ops)
{
	struct extent blocks[60] = { 0 };
	uint64_t rng = seed * 0x9e3779b97f4a7c15 + 1;

	for (int op = 0; op < ops; op++) {
		struct extent *block = &blocks[next(&rng) % ARRAY_SIZE(blocks)];
		size_t len = (size_t)1 << (4 + next(&rng) % 19);

		len += next(&rng) % len;
		if (block->p && next(&rng) % 3 == 0) {
			size_t kept = len < block->len ? len : block->len;

			block->p = realloc(block->p, len);
			assert_non_null(block->p);
			block->len = kept;
			expect_mark(block);
			block->len = len;
			memset(block->p, block->mark, len);
			continue;
		}
		if (block->p) {
			expect_mark(block);
			free(block->p);
		}
		block->len = len;
		block->mark = (unsigned char)(op | 1);
		switch (next(&rng) % 4) {
		case 0:
			block->p = malloc(len);
			break;
		case 1:
			block->p = aligned_alloc(PAGE << next(&rng) % 10, len);
			break;
		default:
			block->p = calloc(1, len);
			if (block->p)
				assert_true(is_zero(block->p, len));
		}
		assert_non_null(block->p);
		memset(block->p, block->mark, len);
	}
	for (size_t i = 0; i < ARRAY_SIZE(blocks); i++)
		free(blocks[i].p);
}

static void calloc_is_zero_on_junk(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 2; seed++)
		churn(seed, 1000);
}

static void *churn_in_thread(void *arg)
{
	churn((uintptr_t)arg, 300);
	return NULL;
}

static void threads_and_forks(void **state)
{
	pthread_t thread[4];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(thread); i++)
		assert_int_equal(pthread_create(&thread[i], NULL, churn_in_thread,
						(void *)(i + 10)), 0);
	/* At whatever moment of the others: the child can allocate. */
	for (int i = 0; i < 20; i++) {
		pid_t pid = fork();
		int status;

		assert_true(pid >= 0);
		if (pid == 0) {
			alarm(60);
			churn((uint64_t)i, 30);
			_exit(0);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(thread); i++)
		assert_int_equal(pthread_join(thread[i], NULL), 0);
}

static void purge(void)
{
	unsigned int nr = read_unsigned("arenas.narenas");
	char name[64];

	for (unsigned int i = 0; i < nr; i++) {
		bool initialised;
		size_t len = sizeof(initialised);

		snprintf(name, sizeof(name), "arena.%u.initialized", i);
		if (ctl(name, &initialised, &len, NULL, 0) != 0 || !initialised)
			continue;
		snprintf(name, sizeof(name), "arena.%u.purge", i);
		assert_int_equal(ctl(name, NULL, NULL, NULL, 0), 0);
	}
}

static void what_is_free_is_given_back(void **state)
{
	unsigned char *blocks[200];
	size_t before, len = sizeof(bool);
	bool retain;

	(void)state;
	assert_int_equal(ctl("opt.retain", &retain, &len, NULL, 0), 0);
	/* jemalloc then asks for more and more ahead. */
	if (retain)
		skip();
	ctl("thread.tcache.flush", NULL, NULL, NULL, 0);
	purge();
	before = resident();
	for (size_t round = 0; round < 4; round++) {
		for (size_t i = 0; i < ARRAY_SIZE(blocks); i++) {
			size_t len = PAGE * (3 + (i * 37 + round) % 500);

			blocks[i] = malloc(len);
			assert_non_null(blocks[i]);
			memset(blocks[i], 1, len);
		}
		assert_true(resident() > before + MB(100));
		for (size_t i = 0; i < ARRAY_SIZE(blocks); i++)
			free(blocks[i]);
		ctl("thread.tcache.flush", NULL, NULL, NULL, 0);
		purge();
	}
	/* Parts of slots may be left, and what jemalloc keeps about extents. */
	if (resident() > before + MB(16))
		fail_msg("%zu MB are held, %zu MB were before", resident() >> 20, before >> 20);
}

static void jemalloc_is_left_alone(void **state)
{
	pthread_t thread;
	bool hooked = true;

	(void)state;
	assert_false(is_hooked(0));
	assert_int_equal(pthread_create(&thread, NULL, arena_of_thread, &hooked), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_false(hooked);
	assert_false(is_hooked(read_unsigned("arenas.create")));
	churn(1, 500);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest inactive[] = {
		cmocka_unit_test(jemalloc_is_left_alone),
	};
	const struct CMUnitTest layout[] = {
		cmocka_unit_test(all_arenas_are_hooked),
		cmocka_unit_test(the_break_is_told_from_mappings),
		cmocka_unit_test(what_is_free_is_given_back),
	};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_arenas_are_hooked),
		cmocka_unit_test(the_break_is_told_from_mappings),
		cmocka_unit_test(extents_keep_the_contract),
		cmocka_unit_test(calloc_is_zero_on_junk),
		cmocka_unit_test(threads_and_forks),
		cmocka_unit_test(what_is_free_is_given_back),
	};

	ctl = (int (*)(const char *, void *, size_t *, void *, size_t))dlsym(RTLD_DEFAULT, "mallctl");
	if (!ctl) {
		fprintf(stderr, "test_jemalloc: preload fake_reuse.so, libhpmmap_jemalloc.so and libjemalloc.so.2\n");
		return 1;
	}
	if (argc > 1 && strcmp(argv[1], "inactive") == 0)
		return cmocka_run_group_tests(inactive, NULL, NULL);
	if (argc > 1 && strcmp(argv[1], "layout") == 0)
		return cmocka_run_group_tests(layout, NULL, NULL);
	if (argc > 1 && strcmp(argv[1], "few") == 0)
		contract_ops = 3000;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
