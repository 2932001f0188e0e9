// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of kernel/mem/block/buddy.c: each function and each argument it refuses, then a
 * random comparison with the naive model of model.c.
 *
 * HPMMAP_SEED=N repeats the random part of a run that printed "seed N".
 */
#include <stdarg.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "model.h"

#define UNITS		HPMMAP_BUDDY_CHUNK_UNITS
#define MAX_ORDER	HPMMAP_BUDDY_MAX_ORDER
#define END		HPMMAP_BUDDY_NR_UNITS
#define RANDOM_STEPS	100000
#define PHASE_STEPS	500

/* Chunks 0 and 1 are there, without units; chunk 2 is not. */
struct fixture {
	struct hpmmap_buddy b;
	struct hpmmap_buddy_chunk chunk[2];
};

static int setup(void **state)
{
	struct fixture *f = test_malloc(sizeof(*f));

	memset(f, 0xa5, sizeof(*f));
	hpmmap_buddy_init(&f->b);
	for (int i = 0; i < 2; i++)
		assert_int_equal(hpmmap_buddy_chunk_insert(&f->b, &f->chunk[i],
							   i), 0);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	test_free(*state);
	return 0;
}

/* The call returns @err and changes nothing at all. */
#define assert_refused(f, err, call) do {				\
	struct fixture *before = test_malloc(sizeof(*before));		\
									\
	memcpy(before, f, sizeof(*before));				\
	assert_int_equal(call, err);					\
	assert_memory_equal(before, f, sizeof(*before));		\
	test_free(before);						\
} while (0)

static void add(struct fixture *f, unsigned long unit, unsigned long nr)
{
	assert_int_equal(hpmmap_buddy_add(&f->b, unit, nr), 0);
}

static unsigned long alloc(struct fixture *f, unsigned int order)
{
	unsigned long unit = -1UL;

	assert_int_equal(hpmmap_buddy_alloc(&f->b, order, &unit), 0);
	assert_int_equal(unit % (1UL << order), 0);
	return unit;
}

static void give_back(struct fixture *f, unsigned long unit, unsigned int order)
{
	assert_int_equal(hpmmap_buddy_free_range(&f->b, unit, 1UL << order), 0);
}

/* Allocates all of chunks 0 and 1. */
static void use_up(struct fixture *f)
{
	add(f, 0, 2 * UNITS);
	alloc(f, MAX_ORDER);
	alloc(f, MAX_ORDER);
}

static void init_is_empty(void **state)
{
	struct hpmmap_buddy b;
	unsigned long unit;

	(void)state;
	memset(&b, 0xa5, sizeof(b));
	hpmmap_buddy_init(&b);
	assert_int_equal(b.nr_total, 0);
	assert_int_equal(b.nr_free, 0);
	assert_int_equal(hpmmap_buddy_largest(&b), -1);
	assert_int_equal(hpmmap_buddy_alloc(&b, 0, &unit), -ENOMEM);
	assert_null(hpmmap_buddy_chunk_find(&b, 0));
}

static void chunk_find_knows_every_unit_of_a_chunk(void **state)
{
	struct fixture *f = *state;

	assert_ptr_equal(hpmmap_buddy_chunk_find(&f->b, 0), &f->chunk[0]);
	assert_ptr_equal(hpmmap_buddy_chunk_find(&f->b, UNITS - 1),
			 &f->chunk[0]);
	assert_ptr_equal(hpmmap_buddy_chunk_find(&f->b, UNITS), &f->chunk[1]);
	assert_null(hpmmap_buddy_chunk_find(&f->b, 2 * UNITS));
	assert_null(hpmmap_buddy_chunk_find(&f->b, END));
	assert_null(hpmmap_buddy_chunk_find(&f->b, -1UL));
}

static void chunk_insert_takes_the_last_number(void **state)
{
	struct fixture *f = *state;
	struct hpmmap_buddy_chunk last;

	assert_int_equal(hpmmap_buddy_chunk_insert(&f->b, &last,
						   HPMMAP_BUDDY_NR_CHUNKS - 1),
			 0);
	assert_ptr_equal(hpmmap_buddy_chunk_find(&f->b, END - 1), &last);
	add(f, END - UNITS, UNITS);
	assert_int_equal(alloc(f, MAX_ORDER), END - UNITS);
}

static void chunk_insert_refuses_a_number_beyond(void **state)
{
	struct fixture *f = *state;
	struct hpmmap_buddy_chunk chunk;

	assert_refused(f, -EINVAL,
		       hpmmap_buddy_chunk_insert(&f->b, &chunk,
						 HPMMAP_BUDDY_NR_CHUNKS));
	assert_refused(f, -EINVAL,
		       hpmmap_buddy_chunk_insert(&f->b, &chunk, -1UL));
}

static void chunk_insert_refuses_a_number_in_use(void **state)
{
	struct fixture *f = *state;
	struct hpmmap_buddy_chunk chunk;

	assert_refused(f, -EEXIST,
		       hpmmap_buddy_chunk_insert(&f->b, &chunk, 1));
}

static void chunk_remove_forgets_the_chunk(void **state)
{
	struct fixture *f = *state;

	add(f, 0, 2 * UNITS);
	assert_int_equal(hpmmap_buddy_remove(&f->b, 0, UNITS), 0);
	assert_int_equal(hpmmap_buddy_chunk_remove(&f->b, &f->chunk[0]), 0);
	assert_null(hpmmap_buddy_chunk_find(&f->b, 0));
	assert_ptr_equal(hpmmap_buddy_chunk_find(&f->b, UNITS), &f->chunk[1]);
	assert_int_equal(hpmmap_buddy_add(&f->b, 0, 1), -ENOENT);
	assert_int_equal(hpmmap_buddy_chunk_insert(&f->b, &f->chunk[0], 0), 0);
	add(f, 0, 1);
}

static void chunk_remove_refuses_a_present_unit(void **state)
{
	struct fixture *f = *state;

	add(f, UNITS - 1, 1);
	assert_refused(f, -EBUSY,
		       hpmmap_buddy_chunk_remove(&f->b, &f->chunk[0]));
	alloc(f, 0);
	assert_refused(f, -EBUSY,
		       hpmmap_buddy_chunk_remove(&f->b, &f->chunk[0]));
}

static void add_spans_chunks(void **state)
{
	struct fixture *f = *state;

	add(f, UNITS - 3, 5);
	assert_int_equal(f->b.nr_total, 5);
	assert_int_equal(f->b.nr_free, 5);
	assert_false(hpmmap_buddy_is_free(&f->b, UNITS - 4));
	for (unsigned long u = UNITS - 3; u < UNITS + 2; u++)
		assert_true(hpmmap_buddy_is_free(&f->b, u));
	assert_false(hpmmap_buddy_is_free(&f->b, UNITS + 2));
	assert_false(hpmmap_buddy_chunk_is_free(&f->chunk[0]));
	add(f, 0, UNITS - 3);
	assert_true(hpmmap_buddy_chunk_is_free(&f->chunk[0]));
	assert_int_equal(hpmmap_buddy_take(&f->b, 7, 0), 0);
	assert_false(hpmmap_buddy_chunk_is_free(&f->chunk[0]));
}

static void add_refuses_bad_ranges(void **state)
{
	struct fixture *f = *state;

	assert_refused(f, -EINVAL, hpmmap_buddy_add(&f->b, 0, 0));
	assert_refused(f, -EINVAL, hpmmap_buddy_add(&f->b, END, 1));
	assert_refused(f, -EINVAL, hpmmap_buddy_add(&f->b, END - 1, 2));
	assert_refused(f, -EINVAL, hpmmap_buddy_add(&f->b, 1, -1UL));
	assert_refused(f, -EINVAL, hpmmap_buddy_add(&f->b, -1UL, 1));
}

static void add_refuses_units_without_chunk(void **state)
{
	struct fixture *f = *state;

	assert_refused(f, -ENOENT, hpmmap_buddy_add(&f->b, 2 * UNITS, 1));
	assert_refused(f, -ENOENT, hpmmap_buddy_add(&f->b, 0, 2 * UNITS + 1));
	assert_refused(f, -ENOENT, hpmmap_buddy_add(&f->b, 0, END));
}

static void add_refuses_present_units(void **state)
{
	struct fixture *f = *state;

	add(f, 100, 10);
	assert_refused(f, -EEXIST, hpmmap_buddy_add(&f->b, 91, 10));
	assert_refused(f, -EEXIST, hpmmap_buddy_add(&f->b, 109, 10));
	assert_refused(f, -EEXIST, hpmmap_buddy_add(&f->b, 105, 1));
	assert_refused(f, -EEXIST, hpmmap_buddy_add(&f->b, 0, 2 * UNITS));
	add(f, 90, 10);
	add(f, 110, 10);
	while (f->b.nr_free)
		alloc(f, 0);
	assert_refused(f, -EEXIST, hpmmap_buddy_add(&f->b, 105, 1));
}

static void add_refuses_what_comes_first(void **state)
{
	struct fixture *f = *state;

	add(f, UNITS, 1);
	assert_refused(f, -EEXIST, hpmmap_buddy_add(&f->b, 0, 3 * UNITS));
	assert_int_equal(hpmmap_buddy_chunk_remove(&f->b, &f->chunk[0]), 0);
	assert_refused(f, -ENOENT, hpmmap_buddy_add(&f->b, 0, 3 * UNITS));
}

static void remove_spans_chunks(void **state)
{
	struct fixture *f = *state;

	add(f, 0, 2 * UNITS);
	assert_int_equal(hpmmap_buddy_remove(&f->b, UNITS - 3, 5), 0);
	assert_int_equal(f->b.nr_total, 2 * UNITS - 5);
	assert_int_equal(f->b.nr_free, 2 * UNITS - 5);
	assert_true(hpmmap_buddy_is_free(&f->b, UNITS - 4));
	for (unsigned long u = UNITS - 3; u < UNITS + 2; u++)
		assert_false(hpmmap_buddy_is_free(&f->b, u));
	assert_true(hpmmap_buddy_is_free(&f->b, UNITS + 2));
	assert_int_equal(hpmmap_buddy_largest(&f->b), MAX_ORDER - 1);
}

static void remove_refuses_bad_ranges(void **state)
{
	struct fixture *f = *state;

	add(f, 0, 2 * UNITS);
	assert_refused(f, -EINVAL, hpmmap_buddy_remove(&f->b, 0, 0));
	assert_refused(f, -EINVAL, hpmmap_buddy_remove(&f->b, END, 1));
	assert_refused(f, -EINVAL, hpmmap_buddy_remove(&f->b, END - 1, 2));
	assert_refused(f, -EINVAL, hpmmap_buddy_remove(&f->b, 1, -1UL));
	assert_refused(f, -EINVAL, hpmmap_buddy_remove(&f->b, -1UL, 1));
}

static void remove_refuses_absent_units(void **state)
{
	struct fixture *f = *state;

	add(f, 10, UNITS);
	assert_refused(f, -ENOENT, hpmmap_buddy_remove(&f->b, 9, 2));
	assert_refused(f, -ENOENT, hpmmap_buddy_remove(&f->b, UNITS + 9, 2));
	assert_refused(f, -ENOENT, hpmmap_buddy_remove(&f->b, 10, UNITS + 1));
	assert_refused(f, -ENOENT, hpmmap_buddy_remove(&f->b, 2 * UNITS, 1));
	add(f, UNITS + 10, UNITS - 10);
	assert_refused(f, -ENOENT, hpmmap_buddy_remove(&f->b, 10, 2 * UNITS));
}

static void remove_refuses_allocated_units(void **state)
{
	struct fixture *f = *state;

	add(f, 0, UNITS + 1);
	alloc(f, 0);
	assert_false(hpmmap_buddy_is_free(&f->b, UNITS));
	assert_refused(f, -EBUSY, hpmmap_buddy_remove(&f->b, UNITS, 1));
	assert_refused(f, -EBUSY, hpmmap_buddy_remove(&f->b, 0, UNITS + 1));
	/* Absent outweighs allocated, wherever it is. */
	assert_refused(f, -ENOENT, hpmmap_buddy_remove(&f->b, UNITS, 2));
	give_back(f, UNITS, 0);
	assert_int_equal(hpmmap_buddy_remove(&f->b, 0, UNITS + 1), 0);
	assert_int_equal(f->b.nr_total, 0);
}

static void alloc_gives_every_order_aligned(void **state)
{
	struct fixture *f = *state;

	add(f, 0, UNITS);
	for (int order = 0; order <= MAX_ORDER; order++) {
		unsigned long nr = UNITS >> order;
		unsigned char taken[UNITS] = { 0 };

		for (unsigned long i = 0; i < nr; i++) {
			unsigned long unit = alloc(f, order);

			assert_in_range(unit, 0, UNITS - 1);
			for (unsigned long u = 0; u < 1UL << order; u++)
				assert_int_equal(taken[unit + u]++, 0);
			assert_int_equal(f->b.nr_free,
					 UNITS - ((i + 1) << order));
		}
		assert_int_equal(f->b.nr_total, UNITS);
		assert_int_equal(hpmmap_buddy_largest(&f->b), -1);
		for (unsigned long i = 0; i < nr; i++)
			give_back(f, i << order, order);
		assert_int_equal(hpmmap_buddy_largest(&f->b), MAX_ORDER);
	}
}

static void alloc_refuses_too_large_an_order(void **state)
{
	struct fixture *f = *state;
	unsigned long unit = 7;

	add(f, 0, 2 * UNITS);
	assert_refused(f, -EINVAL,
		       hpmmap_buddy_alloc(&f->b, MAX_ORDER + 1, &unit));
	assert_refused(f, -EINVAL, hpmmap_buddy_alloc(&f->b, -1U, &unit));
	assert_int_equal(unit, 7);
}

static void alloc_fails_without_a_block(void **state)
{
	struct fixture *f = *state;
	unsigned long unit = 7;

	assert_refused(f, -ENOMEM, hpmmap_buddy_alloc(&f->b, 0, &unit));
	/* Four units in a row, but no aligned block of order 2. */
	add(f, 2, 4);
	assert_refused(f, -ENOMEM, hpmmap_buddy_alloc(&f->b, 2, &unit));
	assert_int_equal(unit, 7);
	assert_int_equal(alloc(f, 1), 2);
	assert_int_equal(alloc(f, 1), 4);
	assert_refused(f, -ENOMEM, hpmmap_buddy_alloc(&f->b, 0, &unit));
}

static void alloc_spares_whole_chunks(void **state)
{
	struct fixture *f = *state;
	unsigned long chunk;

	add(f, 0, 2 * UNITS);
	chunk = alloc(f, 0) / UNITS;
	for (unsigned int i = 1; i < UNITS; i++)
		assert_int_equal(alloc(f, 0) / UNITS, chunk);
	assert_int_equal(hpmmap_buddy_largest(&f->b), MAX_ORDER);
	assert_int_equal(alloc(f, MAX_ORDER), (1 - chunk) * UNITS);
}

static void alloc_takes_the_chunk_that_fits_best(void **state)
{
	struct fixture *f = *state;

	add(f, 0, 8);
	add(f, UNITS, 4);
	assert_int_equal(alloc(f, 1), UNITS);
	assert_int_equal(alloc(f, 2), 0);
	assert_int_equal(alloc(f, 1), UNITS + 2);
	assert_int_equal(alloc(f, 0), 4);
}

static void alloc_takes_the_half_that_fits_best(void **state)
{
	struct fixture *f = *state;

	add(f, 0, 64);
	add(f, 256, 8);
	add(f, 384, 2);
	assert_int_equal(alloc(f, 1), 384);
	assert_int_equal(alloc(f, 1), 256);
	assert_int_equal(alloc(f, 3), 0);
}

static void alloc_takes_the_lowest_of_equals(void **state)
{
	struct fixture *f = *state;

	add(f, 0, UNITS);
	for (unsigned int i = 0; i < UNITS; i++)
		assert_int_equal(alloc(f, 0), i);
}

static void part_of_a_chunk_is_no_whole(void **state)
{
	struct fixture *f = *state;
	unsigned long unit;

	add(f, 0, 255);
	add(f, 256, 256);
	assert_int_equal(hpmmap_buddy_largest(&f->b), 8);
	assert_int_equal(hpmmap_buddy_alloc(&f->b, MAX_ORDER, &unit), -ENOMEM);
	assert_int_equal(alloc(f, 8), 256);
	assert_int_equal(hpmmap_buddy_largest(&f->b), 7);
	give_back(f, 256, 8);
	add(f, 255, 1);
	assert_int_equal(hpmmap_buddy_largest(&f->b), MAX_ORDER);
	assert_int_equal(alloc(f, MAX_ORDER), 0);
}

static void nothing_merges_across_chunks(void **state)
{
	struct fixture *f = *state;

	add(f, UNITS / 2, UNITS);
	assert_int_equal(f->b.nr_free, UNITS);
	assert_int_equal(hpmmap_buddy_largest(&f->b), MAX_ORDER - 1);
}

static void free_takes_single_units_of_a_large_block(void **state)
{
	struct fixture *f = *state;

	add(f, 0, UNITS);
	assert_int_equal(alloc(f, MAX_ORDER), 0);
	for (unsigned int i = 0; i < UNITS; i++) {
		unsigned long unit = i * 77 % UNITS;	/* each once */

		assert_false(hpmmap_buddy_is_free(&f->b, unit));
		give_back(f, unit, 0);
		assert_true(hpmmap_buddy_is_free(&f->b, unit));
		assert_int_equal(f->b.nr_free, i + 1);
	}
	assert_int_equal(hpmmap_buddy_largest(&f->b), MAX_ORDER);
}

static void free_takes_pieces_of_any_size(void **state)
{
	struct fixture *f = *state;

	add(f, 0, UNITS);
	assert_int_equal(alloc(f, MAX_ORDER), 0);
	for (int order = 0; order < MAX_ORDER; order++) {
		give_back(f, 1UL << order, order);
		assert_int_equal(hpmmap_buddy_largest(&f->b), order);
	}
	give_back(f, 0, 0);
	assert_int_equal(hpmmap_buddy_largest(&f->b), MAX_ORDER);
}

static void free_takes_small_blocks_as_one(void **state)
{
	struct fixture *f = *state;

	add(f, 0, 4);
	for (int i = 0; i < 4; i++)
		alloc(f, 0);
	give_back(f, 0, 2);
	assert_int_equal(f->b.nr_free, 4);
	assert_int_equal(hpmmap_buddy_largest(&f->b), 2);
}

static void free_refuses_bad_blocks(void **state)
{
	struct fixture *f = *state;

	use_up(f);
	assert_refused(f, -EINVAL, hpmmap_buddy_free_range(&f->b, END, 1UL << 0));
	assert_refused(f, -EINVAL, hpmmap_buddy_free_range(&f->b, -1UL, 1UL << 0));
}

static void free_refuses_absent_units(void **state)
{
	struct fixture *f = *state;

	add(f, 0, 3);
	alloc(f, 1);
	alloc(f, 0);
	assert_refused(f, -ENOENT, hpmmap_buddy_free_range(&f->b, 3, 1UL << 0));
	assert_refused(f, -ENOENT, hpmmap_buddy_free_range(&f->b, 0, 1UL << 2));
	assert_refused(f, -ENOENT, hpmmap_buddy_free_range(&f->b, UNITS, 1UL << 0));
	assert_refused(f, -ENOENT, hpmmap_buddy_free_range(&f->b, 2 * UNITS, 1UL << 0));
}

static void free_refuses_free_units(void **state)
{
	struct fixture *f = *state;

	use_up(f);
	give_back(f, 6, 0);
	assert_refused(f, -EINVAL, hpmmap_buddy_free_range(&f->b, 6, 1UL << 0));
	assert_refused(f, -EINVAL, hpmmap_buddy_free_range(&f->b, 6, 1UL << 1));
	assert_refused(f, -EINVAL, hpmmap_buddy_free_range(&f->b, 0, 1UL << MAX_ORDER));
	give_back(f, 7, 0);
	assert_refused(f, -EINVAL, hpmmap_buddy_free_range(&f->b, 6, 1UL << 1));
}

static void alloc_unlike_spares_what_the_other_has(void **state)
{
	struct hpmmap_buddy_chunk other = { 0 };
	struct fixture *f = *state;
	struct hpmmap_buddy_chunk *chunk;
	unsigned long unit = 0;

	add(f, UNITS, UNITS);
	chunk = hpmmap_buddy_chunk_find(&f->b, UNITS);
	memset(&other.tree[UNITS], 1, UNITS);
	assert_int_equal(hpmmap_buddy_alloc_unlike(&f->b, chunk, &other, UNITS, &unit), 0);
	assert_int_equal(unit, 0);
	memset(&other.tree[UNITS + 5], 0, 3);
	other.tree[UNITS + 9] = 0;
	assert_int_equal(hpmmap_buddy_alloc_unlike(&f->b, chunk, &other, 2, &unit), 2);
	assert_int_equal(unit, UNITS + 5);
	assert_int_equal(hpmmap_buddy_alloc_unlike(&f->b, chunk, &other, UNITS, &unit), 1);
	assert_int_equal(unit, UNITS + 7);
	assert_int_equal(hpmmap_buddy_alloc_unlike(&f->b, chunk, &other, UNITS, &unit), 1);
	assert_int_equal(unit, UNITS + 9);
	assert_int_equal(f->b.nr_free, UNITS - 4);
	assert_int_equal(hpmmap_buddy_free_range(&f->b, UNITS + 5, 3), 0);
	give_back(f, UNITS + 9, 0);
	memset(&other.tree[UNITS], 0, UNITS);
	assert_int_equal(hpmmap_buddy_alloc_unlike(&f->b, chunk, &other, -1U, &unit), UNITS);
	assert_int_equal(unit, UNITS);
	assert_int_equal(f->b.nr_free, 0);
}

static void take_gives_the_block_that_was_named(void **state)
{
	struct fixture *f = *state;

	add(f, 0, UNITS);
	assert_int_equal(hpmmap_buddy_take(&f->b, 6, 1), 0);
	assert_false(hpmmap_buddy_is_free(&f->b, 6));
	assert_false(hpmmap_buddy_is_free(&f->b, 7));
	assert_int_equal(f->b.nr_free, UNITS - 2);
	assert_refused(f, -EBUSY, hpmmap_buddy_take(&f->b, 7, 0));
	assert_refused(f, -EBUSY, hpmmap_buddy_take(&f->b, 4, 2));
	assert_refused(f, -EINVAL, hpmmap_buddy_take(&f->b, 1, 1));
	assert_refused(f, -EINVAL, hpmmap_buddy_take(&f->b, 0, MAX_ORDER + 1));
	assert_refused(f, -EINVAL, hpmmap_buddy_take(&f->b, END, 0));
	assert_refused(f, -ENOENT, hpmmap_buddy_take(&f->b, 3 * UNITS, 0));
	give_back(f, 6, 1);
	assert_int_equal(hpmmap_buddy_largest(&f->b), MAX_ORDER);
}

static void free_range_spans_chunks_and_is_all_or_nothing(void **state)
{
	struct fixture *f = *state;

	use_up(f);
	assert_int_equal(hpmmap_buddy_free_range(&f->b, UNITS - 3, 5), 0);
	assert_int_equal(f->b.nr_free, 5);
	assert_refused(f, -EINVAL, hpmmap_buddy_free_range(&f->b, 0, UNITS));
	assert_refused(f, -EINVAL, hpmmap_buddy_free_range(&f->b, 0, 0));
	assert_refused(f, -EINVAL, hpmmap_buddy_free_range(&f->b, END - 1, 2));
	assert_refused(f, -ENOENT,
		       hpmmap_buddy_free_range(&f->b, UNITS + 2, 2 * UNITS));
	assert_int_equal(hpmmap_buddy_free_range(&f->b, 0, UNITS - 3), 0);
	assert_int_equal(hpmmap_buddy_largest(&f->b), MAX_ORDER);
}

static void largest_follows_every_order(void **state)
{
	struct fixture *f = *state;

	add(f, 0, UNITS);
	for (int order = MAX_ORDER - 1; order >= 0; order--) {
		alloc(f, order);
		assert_int_equal(hpmmap_buddy_largest(&f->b), order);
	}
	alloc(f, 0);
	assert_int_equal(hpmmap_buddy_largest(&f->b), -1);
}

static void is_free_answers_for_any_unit(void **state)
{
	struct fixture *f = *state;

	add(f, 0, 2);
	assert_int_equal(alloc(f, 0), 0);
	assert_false(hpmmap_buddy_is_free(&f->b, 0));
	assert_true(hpmmap_buddy_is_free(&f->b, 1));
	assert_false(hpmmap_buddy_is_free(&f->b, 2));
	assert_false(hpmmap_buddy_is_free(&f->b, 2 * UNITS));
	assert_false(hpmmap_buddy_is_free(&f->b, END + 1));
	assert_false(hpmmap_buddy_is_free(&f->b, -1UL));
}

static void count_free_adds_up_over_holes(void **state)
{
	struct fixture *f = *state;
	struct hpmmap_buddy_chunk chunk;

	/* Chunk 2 is missing between 1 and 3. */
	assert_int_equal(hpmmap_buddy_chunk_insert(&f->b, &chunk, 3), 0);
	add(f, 10, UNITS);
	add(f, 3 * UNITS, 20);
	assert_int_equal(hpmmap_buddy_count_free(&f->b, 0, END),
			 UNITS + 20);
	assert_int_equal(hpmmap_buddy_count_free(&f->b, 0, 10), 0);
	assert_int_equal(hpmmap_buddy_count_free(&f->b, 9, 3), 2);
	assert_int_equal(hpmmap_buddy_count_free(&f->b, UNITS - 1, 2), 2);
	assert_int_equal(hpmmap_buddy_count_free(&f->b, UNITS + 8,
						 2 * UNITS - 8 + 5), 7);
	assert_int_equal(alloc(f, 4), 3 * UNITS);
	assert_int_equal(hpmmap_buddy_count_free(&f->b, 3 * UNITS, UNITS), 4);
	assert_int_equal(hpmmap_buddy_count_free(&f->b, 3 * UNITS, 17), 1);
}

static void count_free_is_0_for_bad_ranges(void **state)
{
	struct fixture *f = *state;

	add(f, 0, 2 * UNITS);
	assert_int_equal(hpmmap_buddy_count_free(&f->b, 0, 0), 0);
	assert_int_equal(hpmmap_buddy_count_free(&f->b, 0, END + 1), 0);
	assert_int_equal(hpmmap_buddy_count_free(&f->b, 1, -1UL), 0);
	assert_int_equal(hpmmap_buddy_count_free(&f->b, END, 1), 0);
}

static unsigned int depth(const struct hpmmap_buddy_chunk *chunk)
{
	unsigned int left, right;

	if (!chunk)
		return 0;
	left = depth(chunk->child[0]);
	right = depth(chunk->child[1]);
	return 1 + (left > right ? left : right);
}

static void a_node_of_64_tb_works(void **state)
{
	const unsigned long nr = 1UL << 16;
	const unsigned long base = 3;
	struct hpmmap_buddy_chunk *chunk = test_malloc(nr * sizeof(*chunk));
	unsigned char *taken = test_calloc(nr, 1);
	struct hpmmap_buddy b;
	unsigned long unit;

	(void)state;
	hpmmap_buddy_init(&b);
	for (unsigned long i = 0; i < nr; i++)
		assert_int_equal(hpmmap_buddy_chunk_insert(&b, &chunk[i],
							   base + i), 0);
	/* A level holds twice as many as the one above; nr fill 17. */
	assert_in_range(depth(b.root), 1, 18);
	assert_int_equal(hpmmap_buddy_add(&b, base * UNITS, nr * UNITS), 0);
	assert_int_equal(b.nr_free, nr * UNITS);
	for (unsigned long i = 0; i < nr; i++) {
		assert_int_equal(hpmmap_buddy_alloc(&b, MAX_ORDER, &unit), 0);
		assert_in_range(unit / UNITS, base, base + nr - 1);
		assert_int_equal(taken[unit / UNITS - base]++, 0);
	}
	assert_int_equal(hpmmap_buddy_alloc(&b, 0, &unit), -ENOMEM);
	for (unsigned long i = 0; i < nr; i++)
		assert_int_equal(hpmmap_buddy_free_range(&b, (base + i) * UNITS,
						 1UL << MAX_ORDER), 0);
	assert_int_equal(hpmmap_buddy_remove(&b, base * UNITS, nr * UNITS), 0);
	/* In another order than they came in; the rest must stay reachable. */
	for (unsigned long i = 0; i < nr; i++) {
		unsigned long gone = i * 40503 % nr;	/* each once */
		unsigned long next = (i + 1) * 40503 % nr;

		assert_int_equal(hpmmap_buddy_chunk_remove(&b, &chunk[gone]),
				 0);
		assert_null(hpmmap_buddy_chunk_find(&b, (base + gone) * UNITS));
		if (i + 1 < nr)
			assert_ptr_equal(hpmmap_buddy_chunk_find(&b,
					 (base + next) * UNITS), &chunk[next]);
	}
	assert_null(b.root);
	test_free(taken);
	test_free(chunk);
}

static unsigned long pick(void *arg, unsigned long n)
{
	return nrand48(arg) % n;
}

static unsigned long random_seed(void)
{
	const char *env = getenv("HPMMAP_SEED");
	unsigned long seed;
	char *end;

	if (!env)
		return (unsigned long)time(NULL) * 1000003 + getpid();
	errno = 0;
	seed = strtoul(env, &end, 0);
	if (errno || end == env || *end)
		fail_msg("HPMMAP_SEED is '%s', not a number", env);
	return seed;
}

/*
 * The operations come in phases, so that the pool is at times nearly full,
 * nearly empty, taken apart, and all free.
 */
static const unsigned char weight[][MODEL_NR_OPS] = {
	/*
	 * insert, remove chunk, add, remove, alloc, alloc unlike, free,
	 * free any, take, free range, count
	 */
	{  2,  1,  8,  4, 10, 4, 10, 4, 10, 4, 4 },
	{  4,  0, 16,  0, 30, 2,  4, 2, 20, 1, 2 },
	{  0,  2,  0,  8,  4, 1, 30, 2,  2, 8, 2 },
	{  1, 10,  0, 40,  2, 1, 20, 2,  1, 8, 2 },
	{  4,  0, 30,  0,  1, 0, 30, 0,  1, 8, 2 },
};

static enum model_op random_op(unsigned short *rng, unsigned int phase)
{
	unsigned int sum = 0;
	unsigned int ticket;
	int op;

	for (op = 0; op < MODEL_NR_OPS; op++)
		sum += weight[phase][op];
	ticket = pick(rng, sum);
	for (op = 0; ticket >= weight[phase][op]; op++)
		ticket -= weight[phase][op];
	return op;
}

static int setup_model(void **state)
{
	struct model *m = test_malloc(sizeof(*m));

	model_init(m);
	*state = m;
	return 0;
}

static int teardown_model(void **state)
{
	model_exit(*state);
	test_free(*state);
	return 0;
}

static void random_operations_match_the_model(void **state)
{
	static const struct {
		enum model_op op;
		int err;
	} outcome[] = {
		{ MODEL_CHUNK_INSERT, 0 }, { MODEL_CHUNK_INSERT, EINVAL },
		{ MODEL_CHUNK_INSERT, EEXIST },
		{ MODEL_CHUNK_REMOVE, 0 }, { MODEL_CHUNK_REMOVE, EBUSY },
		{ MODEL_ADD, 0 }, { MODEL_ADD, EINVAL },
		{ MODEL_ADD, ENOENT }, { MODEL_ADD, EEXIST },
		{ MODEL_REMOVE, 0 }, { MODEL_REMOVE, EINVAL },
		{ MODEL_REMOVE, ENOENT }, { MODEL_REMOVE, EBUSY },
		{ MODEL_ALLOC, 0 }, { MODEL_ALLOC, EINVAL },
		{ MODEL_ALLOC, ENOMEM },
		{ MODEL_ALLOC_UNLIKE, 0 }, { MODEL_ALLOC_UNLIKE, ENOMEM },
		{ MODEL_FREE, 0 },
		{ MODEL_FREE_ANY, 0 }, { MODEL_FREE_ANY, EINVAL },
		{ MODEL_FREE_ANY, ENOENT },
		{ MODEL_COUNT, 0 },
	};
	unsigned long seed = random_seed();
	unsigned short rng[3] = { seed, seed >> 16, seed >> 32 };
	struct model *m = *state;
	unsigned int phase = 0;

	print_message("seed %lu\n", seed);
	m->pick = pick;
	m->pick_arg = rng;
	for (unsigned int i = 0; i < RANDOM_STEPS; i++) {
		if (i % PHASE_STEPS == 0)
			phase = pick(rng, sizeof(weight) / sizeof(weight[0]));
		if (!model_step(m, random_op(rng, phase)) ||
		    (i % 32 == 0 && !model_compare(m)))
			fail_msg("HPMMAP_SEED=%lu, operation %u: %s", seed, i,
				 m->failure);
	}
	if (!model_compare(m))
		fail_msg("HPMMAP_SEED=%lu, at the end: %s", seed, m->failure);

	/* The run was worth something: each outcome and order came up. */
	for (size_t i = 0; i < sizeof(outcome) / sizeof(outcome[0]); i++) {
		if (!m->seen[outcome[i].op][outcome[i].err])
			fail_msg("HPMMAP_SEED=%lu: operation %d never gave %s",
				 seed, outcome[i].op,
				 outcome[i].err ? strerror(outcome[i].err) :
				 "success");
	}
	for (int order = 0; order <= MAX_ORDER; order++) {
		if (!m->allocated[order])
			fail_msg("HPMMAP_SEED=%lu: no block of order %d", seed,
				 order);
	}
}

int main(void)
{
#define TEST(name)	cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest buddy[] = {
		cmocka_unit_test(init_is_empty),
		TEST(chunk_find_knows_every_unit_of_a_chunk),
		TEST(chunk_insert_takes_the_last_number),
		TEST(chunk_insert_refuses_a_number_beyond),
		TEST(chunk_insert_refuses_a_number_in_use),
		TEST(chunk_remove_forgets_the_chunk),
		TEST(chunk_remove_refuses_a_present_unit),
		TEST(add_spans_chunks),
		TEST(add_refuses_bad_ranges),
		TEST(add_refuses_units_without_chunk),
		TEST(add_refuses_present_units),
		TEST(add_refuses_what_comes_first),
		TEST(remove_spans_chunks),
		TEST(remove_refuses_bad_ranges),
		TEST(remove_refuses_absent_units),
		TEST(remove_refuses_allocated_units),
		TEST(alloc_gives_every_order_aligned),
		TEST(alloc_refuses_too_large_an_order),
		TEST(alloc_fails_without_a_block),
		TEST(alloc_spares_whole_chunks),
		TEST(alloc_takes_the_chunk_that_fits_best),
		TEST(alloc_takes_the_half_that_fits_best),
		TEST(alloc_takes_the_lowest_of_equals),
		TEST(part_of_a_chunk_is_no_whole),
		TEST(nothing_merges_across_chunks),
		TEST(free_takes_single_units_of_a_large_block),
		TEST(free_takes_pieces_of_any_size),
		TEST(free_takes_small_blocks_as_one),
		TEST(free_refuses_bad_blocks),
		TEST(free_refuses_absent_units),
		TEST(free_refuses_free_units),
		TEST(alloc_unlike_spares_what_the_other_has),
		TEST(take_gives_the_block_that_was_named),
		TEST(free_range_spans_chunks_and_is_all_or_nothing),
		TEST(largest_follows_every_order),
		TEST(is_free_answers_for_any_unit),
		TEST(count_free_adds_up_over_holes),
		TEST(count_free_is_0_for_bad_ranges),
		cmocka_unit_test(a_node_of_64_tb_works),
		cmocka_unit_test_setup_teardown(random_operations_match_the_model,
						setup_model, teardown_model),
	};

	return cmocka_run_group_tests(buddy, NULL, NULL);
}
