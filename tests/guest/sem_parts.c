// SPDX-License-Identifier: GPL-2.0
/*
 * Copies after a fork of slots that mappings cover in part: only pages that are touched, none
 * outside of a mapping, however the mappings change meanwhile.
 */
#include "copies.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

/* Two mappings in each slot, with nothing before, between and behind. */
#define PARTS		8
#define LOW		64
#define LOW_PAGES	336
#define HIGH		420
#define HIGH_PAGES	60

static char *low(char *p, size_t part)
{
	return p + part * SLOT + LOW * PAGE;
}

static char *high(char *p, size_t part)
{
	return p + part * SLOT + HIGH * PAGE;
}

static char *parted(void)
{
	char *p = free_range(PARTS * SLOT);

	for (size_t i = 0; i < PARTS; i++) {
		map_flags(low(p, i), LOW_PAGES * PAGE, RW, ANON | MAP_FIXED_NOREPLACE);
		map_flags(high(p, i), HIGH_PAGES * PAGE, RW, ANON | MAP_FIXED_NOREPLACE);
		stamp(low(p, i), LOW_PAGES * PAGE, 1);
		stamp(high(p, i), HIGH_PAGES * PAGE, 2);
	}
	return p;
}

static void look_at_part(char *p, size_t i)
{
	verify_stamp(low(p, i), LOW_PAGES * PAGE, 1);
	verify_stamp(high(p, i), HIGH_PAGES * PAGE, 2);
}

static void look_at_parts(char *p)
{
	for (size_t i = 0; i < PARTS; i++)
		look_at_part(p, i);
}

static void unmap_parts(char *p)
{
	/* Some are there no more. */
	CHECK_OK(munmap(p, PARTS * SLOT));
	if (registered())
		CHECK_EQ(context_value("pins_waiting"), 0);
}

/* Of what is in a slot that is mapped in part, too, only what is touched is copied. */
static void touched_pages_take_little(void)
{
	char *p = parted();
	struct holder h;
	uint64_t held_before, copied_before;
	volatile uint64_t *read;

	hold(&h, look_at_parts, p);
	held_before = held();
	copied_before = copied();
	for (size_t i = 0; i < PARTS; i++) {
		for (size_t page = 3; page < LOW_PAGES; page += 16)
			*word(low(p, i), page) = page;
		/* Of these more is copied, what lies around them. */
		for (size_t page = 8; page < LOW_PAGES; page += 80) {
			read = word(low(p, i), page);
			CHECK_EQ(*read, 0);
		}
		*word(high(p, i), HIGH_PAGES - 1) = i;
	}
	/* The stack may be, and what the runner has. */
	if (registered()) {
		CHECK(held() <= held_before + MB(4));
		CHECK(copied() - copied_before <= PARTS * 112 * PAGE + MB(4));
	}
	look_at_parts(p);
	release(&h);
	look_at_parts(p);
	for (size_t i = 0; i < PARTS; i++) {
		for (size_t page = 3; page < LOW_PAGES; page += 16)
			CHECK_EQ(*word(low(p, i), page), page);
		CHECK_EQ(*word(high(p, i), HIGH_PAGES - 1), i);
		CHECK_TOUCH(low(p, i), LOW_PAGES * PAGE);
		CHECK_TOUCH(high(p, i), HIGH_PAGES * PAGE);
	}
	unmap_parts(p);
}

static void look_at_front(char *p)
{
	verify_stamp(p, 100 * PAGE, 1);
}

/* Some pages are copied ahead: none that the mapping does not have. */
static void ahead_ends_with_the_mapping(void)
{
	char *p = free_range(2 * SLOT) + 100 * PAGE;
	struct holder h;

	for (int round = 0; round < 4; round++) {
		map_flags(p, 300 * PAGE, RW, ANON | MAP_FIXED_NOREPLACE);
		for (size_t page = 0; page < 300; page += 100)
			stamp(p + page * PAGE, 100 * PAGE, 1);
		hold(&h, look_at_front, p);
		/* In the draft, or before there is one. */
		if (round & 1)
			*word(p, 0) = 0;
		if (round & 2)
			CHECK_OK(mprotect(p + 100 * PAGE, 100 * PAGE, PROT_READ));
		else
			CHECK_OK(munmap(p + 100 * PAGE, 100 * PAGE));
		for (size_t page = 0; page < 100; page++)
			*word(p, page) = page;
		for (size_t page = 100; page < 200; page++) {
			if (round & 2)
				CHECK_WRITE_SEGV(p + page * PAGE, SEGV_ACCERR);
			else
				CHECK_READ_SEGV(p + page * PAGE, SEGV_MAPERR);
		}
		verify_stamp(p, 100 * PAGE, 1);
		verify_stamp(p + 200 * PAGE, 100 * PAGE, 1);
		/* What is gone is zeros when it comes again. */
		if (!(round & 2)) {
			map_flags(p + 100 * PAGE, 100 * PAGE, RW, ANON | MAP_FIXED_NOREPLACE);
			verify_zero(p + 100 * PAGE, 100 * PAGE);
		}
		for (size_t page = 0; page < 100; page++)
			CHECK_EQ(*word(p, page), page);
		release(&h);
		verify_stamp(p + 200 * PAGE, 100 * PAGE, 1);
		unmap(p, 300 * PAGE);
		if (registered())
			CHECK_EQ(context_value("pins_waiting"), 0);
	}
}

static char *begun_parts(struct holder *h)
{
	char *p = parted();

	hold(h, look_at_parts, p);
	for (size_t i = 0; i < PARTS; i++) {
		*word(low(p, i), 5) = 5;
		*word(low(p, i), LOW_PAGES - 1) = LOW_PAGES;
		*word(high(p, i), 0) = 9;
	}
	return p;
}

static void check_begun_part(char *p, size_t i)
{
	CHECK_EQ(*word(low(p, i), 5), 5);
	CHECK_EQ(*word(low(p, i), LOW_PAGES - 1), LOW_PAGES);
	CHECK_EQ(*word(high(p, i), 0), 9);
	look_at_part(p, i);
}

static void as_begun_parts(char *p)
{
	for (size_t i = 0; i < PARTS; i++)
		check_begun_part(p, i);
}

/* Each call that changes what a slot is mapped by, in the middle of it. */
static void calls_in_between(void)
{
	struct holder h, second;
	char *p = begun_parts(&h), *q;

	CHECK_OK(mprotect(low(p, 0) + 5 * PAGE, PAGE, PROT_READ));
	CHECK_WRITE_SEGV(low(p, 0) + 5 * PAGE, SEGV_ACCERR);
	*word(low(p, 0), 6) = 6;
	CHECK_OK(mprotect(low(p, 0) + 5 * PAGE, PAGE, PROT_NONE));
	CHECK_READ_SEGV(low(p, 0) + 5 * PAGE, SEGV_ACCERR);
	*word(low(p, 0), 7) = 7;
	CHECK_OK(mprotect(low(p, 0) + 5 * PAGE, PAGE, RW));
	check_begun_part(p, 0);
	CHECK_EQ(*word(low(p, 0), 6), 6);
	CHECK_EQ(*word(low(p, 0), 7), 7);

	/* One of two goes, and a page of the other. */
	CHECK_OK(munmap(high(p, 1), HIGH_PAGES * PAGE));
	CHECK_READ_SEGV(high(p, 1), SEGV_MAPERR);
	CHECK_OK(munmap(low(p, 1) + 5 * PAGE, PAGE));
	CHECK_READ_SEGV(low(p, 1) + 5 * PAGE, SEGV_MAPERR);
	*word(low(p, 1), 4) = 4;
	map_flags(low(p, 1) + 5 * PAGE, PAGE, RW, ANON | MAP_FIXED_NOREPLACE);
	verify_zero(low(p, 1) + 5 * PAGE, PAGE);
	map_flags(high(p, 1), HIGH_PAGES * PAGE, RW, ANON | MAP_FIXED_NOREPLACE);
	verify_zero(high(p, 1), HIGH_PAGES * PAGE);
	CHECK_EQ(*word(low(p, 1), 4), 4);
	CHECK_EQ(*word(low(p, 1), LOW_PAGES - 1), LOW_PAGES);

	/* Over a part of it, by memory and by a reservation. */
	map_flags(low(p, 2) + 5 * PAGE, 3 * PAGE, RW, ANON | MAP_FIXED);
	verify_zero(low(p, 2) + 5 * PAGE, 3 * PAGE);
	map_flags(low(p, 2) + 100 * PAGE, 50 * PAGE, PROT_NONE, ANON | MAP_FIXED);
	CHECK_READ_SEGV(low(p, 2) + 100 * PAGE, SEGV_ACCERR);
	*word(low(p, 2), 99) = 99;
	CHECK_OK(mprotect(low(p, 2) + 100 * PAGE, 50 * PAGE, RW));
	verify_zero(low(p, 2) + 100 * PAGE, 50 * PAGE);
	CHECK_EQ(*word(low(p, 2), 99), 99);
	CHECK_EQ(*word(low(p, 2), LOW_PAGES - 1), LOW_PAGES);
	CHECK_EQ(*word(high(p, 2), 0), 9);

	CHECK_OK(madvise(low(p, 3), 6 * PAGE, MADV_DONTNEED));
	verify_zero(low(p, 3), 6 * PAGE);
	CHECK_EQ(*word(low(p, 3), LOW_PAGES - 1), LOW_PAGES);
	CHECK_EQ(*word(high(p, 3), 0), 9);

	/* Away, to the same pages of a slot and to others; what was beside it stays. */
	q = free_range(2 * SLOT);
	CHECK(mremap(low(p, 4), LOW_PAGES * PAGE, LOW_PAGES * PAGE,
		     MREMAP_MAYMOVE | MREMAP_FIXED, low(q, 0)) == low(q, 0));
	CHECK(mremap(low(p, 5), LOW_PAGES * PAGE, LOW_PAGES * PAGE,
		     MREMAP_MAYMOVE | MREMAP_FIXED, q + SLOT) == q + SLOT);
	CHECK_READ_SEGV(low(p, 4), SEGV_MAPERR);
	CHECK_EQ(*word(high(p, 4), 0), 9);
	verify_stamp(high(p, 5), HIGH_PAGES * PAGE, 2);
	for (char *at = low(q, 0); at; at = at == q + SLOT ? NULL : q + SLOT) {
		CHECK_EQ(*word(at, 5), 5);
		CHECK_EQ(*word(at, LOW_PAGES - 1), LOW_PAGES);
		verify_stamp(at, LOW_PAGES * PAGE, 1);
		CHECK_TOUCH(at, LOW_PAGES * PAGE);
	}
	CHECK_OK(munmap(q, 2 * SLOT));

	/* In place: less, and more. */
	CHECK(mremap(low(p, 6), LOW_PAGES * PAGE, 100 * PAGE, 0) == low(p, 6));
	CHECK_READ_SEGV(low(p, 6) + 100 * PAGE, SEGV_MAPERR);
	for (size_t page = 6; page < 100; page++)
		*word(low(p, 6), page) = page;
	CHECK_READ_SEGV(low(p, 6) + 100 * PAGE, SEGV_MAPERR);
	CHECK(mremap(low(p, 6), 100 * PAGE, 200 * PAGE, 0) == low(p, 6));
	verify_zero(low(p, 6) + 100 * PAGE, 100 * PAGE);
	for (size_t page = 6; page < 100; page++)
		CHECK_EQ(*word(low(p, 6), page), page);

	CHECK_OK(mlock(high(p, 7), HIGH_PAGES * PAGE));
	CHECK_TOUCH(high(p, 7), HIGH_PAGES * PAGE);
	*word(low(p, 7), 6) = 6;
	CHECK_TOUCH(high(p, 7), HIGH_PAGES * PAGE);
	check_begun_part(p, 7);
	CHECK_OK(munlock(high(p, 7), HIGH_PAGES * PAGE));
	release(&h);
	check_begun_part(p, 7);
	unmap_parts(p);

	/* Another one comes. */
	p = begun_parts(&h);
	hold(&second, as_begun_parts, p);
	for (size_t i = 0; i < PARTS; i++) {
		*word(low(p, i), 6) = 6;
		*word(high(p, i), 1) = 1;
	}
	release(&h);
	as_begun_parts(p);
	release(&second);
	for (size_t i = 0; i < PARTS; i++) {
		CHECK_EQ(*word(low(p, i), 6), 6);
		CHECK_EQ(*word(high(p, i), 1), 1);
	}
	as_begun_parts(p);
	unmap_parts(p);
}

static char *heap;

static void look_at_heap(char *p)
{
	verify_stamp(p, KB(900), 1);
}

/* The break moves in a slot of which a little was copied. */
static void heap_that_ends_in_a_slot(void)
{
	struct holder h;
	char *start = sbrk(0);

	heap = (char *)(((uintptr_t)start + PAGE - 1) & ~(PAGE - 1));
	CHECK_OK(brk(heap + KB(900)));
	stamp(heap, KB(900), 1);
	hold(&h, look_at_heap, heap);
	for (size_t page = 3; page < KB(900) / PAGE; page += 16)
		*word(heap, page) = page;
	CHECK_OK(sbrk(KB(64)));
	verify_zero(heap + KB(900), KB(64));
	CHECK_OK(brk(heap + KB(400)));
	CHECK_READ_SEGV(heap + KB(400), SEGV_MAPERR);
	/* In a row, up to the break. */
	for (size_t page = 4; page < KB(400) / PAGE; page++)
		*word(heap, page) = page;
	CHECK_READ_SEGV(heap + KB(400), SEGV_MAPERR);
	CHECK_OK(brk(heap + KB(900)));
	verify_zero(heap + KB(400), KB(500));
	for (size_t page = 3; page < KB(400) / PAGE; page++)
		CHECK_EQ(*word(heap, page), page);
	verify_stamp(heap, KB(400), 1);
	release(&h);
	verify_stamp(heap, KB(400), 1);
	CHECK_OK(brk(start));
}

struct racer {
	char *p;
	size_t first;
};

static void *write_parts(void *arg)
{
	struct racer *r = arg;

	for (size_t i = 0; i < PARTS; i++) {
		for (size_t page = r->first; page < LOW_PAGES; page += 4)
			*word(low(r->p, i), page) = page;
		for (size_t page = r->first; page < HIGH_PAGES; page += 4)
			*word(high(r->p, i), page) = page;
	}
	return NULL;
}

static void threads_beside_forks(void)
{
	char *p = parted();
	struct racer racers[4];
	pthread_t threads[4];

	for (int round = 0; round < 3; round++) {
		struct holder h;

		hold(&h, look_at_parts, p);
		for (size_t i = 0; i < ARRAY_SIZE(threads); i++) {
			racers[i] = (struct racer) { p, i };
			threads[i] = start_thread(write_parts, &racers[i]);
		}
		if (round == 1)
			release(&h);
		for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
			join_thread(threads[i]);
		if (round != 1)
			release(&h);
		look_at_parts(p);
		for (size_t i = 0; i < PARTS; i++) {
			for (size_t page = 0; page < LOW_PAGES; page++)
				CHECK_EQ(*word(low(p, i), page), page);
			for (size_t page = 0; page < HIGH_PAGES; page++)
				CHECK_EQ(*word(high(p, i), page), page);
		}
	}
	unmap_parts(p);
}

/* Whoever ends first, and whatever was left. */
static void nothing_is_left(void)
{
	uint64_t before;

	skip_unless_registered();
	before = pool_value("free_bytes");
	for (int round = 0; round < 4; round++) {
		struct holder h;
		pid_t pid = 0;
		char *p;

		/* In a parent that goes without a look at them. */
		if (round > 1) {
			pid = fork_child();
			if (pid) {
				expect_success(pid);
				await_pool_free(before);
				continue;
			}
		}
		p = begun_parts(&h);
		for (size_t page = 0; page < LOW_PAGES; page++)
			*word(low(p, 0), page) = page;
		for (size_t page = 0; page < HIGH_PAGES; page++)
			*word(high(p, 0), page) = page;
		if (round & 1) {
			CHECK_OK(kill(h.pid, SIGKILL));
			expect_signal(h.pid, SIGKILL);
		}
		if (round > 1)
			_exit(0);
		for (size_t i = 0; i < PARTS; i += 2)
			CHECK_OK(munmap(low(p, i), LOW_PAGES * PAGE));
		for (size_t i = 1; i < PARTS; i += 2)
			CHECK_OK(munmap(low(p, i) + 5 * PAGE, SLOT - (LOW + 5) * PAGE));
		unmap_parts(p);
		if (!(round & 1))
			release(&h);
		await_pool_free(before);
	}
}

int main(void)
{
	static const struct test tests[] = {
		T(touched_pages_take_little),
		T(ahead_ends_with_the_mapping),
		T(calls_in_between),
		T(heap_that_ends_in_a_slot),
		T(threads_beside_forks),
		T(nothing_is_left),
	};

	return RUN_GROUP("sem_parts", tests);
}
