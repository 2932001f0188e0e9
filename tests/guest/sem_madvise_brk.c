// SPDX-License-Identifier: GPL-2.0
/* madvise(2) and brk(2). */
#include "common.h"

#include <malloc.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

#ifndef MADV_GUARD_REMOVE
#define MADV_GUARD_REMOVE 103
#endif

#define USED	MB(8)

/* Starts on a slot; nothing is mapped in the slots around it. */
static char *map_filled(void)
{
	char *room = free_range(USED + 2 * SLOT);
	char *base = map_flags(room + SLOT, USED, RW, ANON | MAP_FIXED_NOREPLACE);

	fill(base, USED, 5);
	return base;
}

static const struct piece {
	size_t off;
	size_t len;
} pieces[] = {
	{ 0, KB(4) },
	{ MB(1), KB(8) },
	{ MB(2) - KB(4), KB(8) },
	{ MB(2), MB(2) },
	{ MB(3), MB(2) },
	{ MB(1), MB(5) + KB(4) },
	{ MB(8) - KB(4), KB(4) },
	{ 0, MB(8) },
};

static void verify_around(const char *base, const struct piece *piece)
{
	size_t end = piece->off + piece->len;

	verify(base, piece->off, 5, 0);
	verify(base + end, USED - end, 5, end);
}

static void dontneed_reads_back_zero(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
		const struct piece *piece = &pieces[i];
		char *base = map_filled();

		CHECK_OK(madvise(base + piece->off, piece->len, MADV_DONTNEED));
		watch_begin();
		verify_zero(base + piece->off, piece->len);
		verify_around(base, piece);
		fill(base + piece->off, piece->len, 6);
		EXPECT_NO_FAULTS(base, USED);
		verify(base + piece->off, piece->len, 6, 0);
		verify_around(base, piece);
		check_2m(base, USED);
		unmap(base, USED);
	}
}

static void dontneed_on_other_protections(void)
{
	char *base = map_filled();

	CHECK_OK(mprotect(base, MB(4), PROT_READ));
	CHECK_OK(madvise(base, MB(2) + PAGE, MADV_DONTNEED));
	verify_zero(base, MB(2) + PAGE);
	verify(base + MB(2) + PAGE, USED - MB(2) - PAGE, 5, MB(2) + PAGE);
	CHECK_OK(mprotect(base + MB(4), MB(4), PROT_NONE));
	CHECK_OK(madvise(base + MB(4), MB(3), MADV_DONTNEED));
	CHECK_READ_SEGV(base + MB(4), SEGV_ACCERR);
	CHECK_OK(mprotect(base, USED, RW));
	watch_begin();
	verify_zero(base + MB(4), MB(3));
	verify(base + MB(7), MB(1), 5, MB(7));
	EXPECT_NO_FAULTS(base + MB(4), MB(4));
	unmap(base, USED);
}

/*
 * Who has seen a zero, where there was none before, and writes there, does so after the
 * page was discarded.
 */
#define WRITERS 6

static char *_Atomic discarded;

static void *write_where_zero(void *arg)
{
	uint64_t *word;
	size_t nr = (size_t)arg;

	while (!discarded)
		;
	word = (uint64_t *)(discarded + nr * MB(1) + KB(256));
	while (__atomic_load_n(word, __ATOMIC_RELAXED))
		;
	__atomic_store_n(word, 2, __ATOMIC_RELAXED);
	return NULL;
}

static void written_while_discarded(void)
{
	for (int i = 0; i < 32; i++) {
		pthread_t threads[WRITERS];
		char *p;

		discarded = NULL;
		for (size_t w = 0; w < WRITERS; w++)
			threads[w] = start_thread(write_where_zero, (void *)w);
		p = map_filled();
		discarded = p;
		CHECK_OK(madvise(p, USED, MADV_DONTNEED));
		for (size_t w = 0; w < WRITERS; w++)
			join_thread(threads[w]);
		for (size_t w = 0; w < WRITERS; w++)
			CHECK_EQ(*(uint64_t *)(p + w * MB(1) + KB(256)), 2);
		unmap(p, USED);
	}
}

static void dontneed_locked_is_refused(void)
{
	char *base = map_filled();

	if (mlock(base, MB(2)) != 0)
		SKIP("mlock: %s", errno_name(errno));
	CHECK_ERR(madvise(base, PAGE, MADV_DONTNEED), EINVAL);
	verify(base, USED, 5, 0);
	CHECK_OK(munlock(base, MB(2)));
	CHECK_OK(madvise(base, PAGE, MADV_DONTNEED));
	verify_zero(base, PAGE);
	unmap(base, USED);
}

/* Guards keep everybody out, and what was there is gone with them. */
static void guards(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
		const struct piece *piece = &pieces[i];
		char *base = map_filled();
		char *last = base + piece->off + piece->len - 1;

		if (madvise(base + piece->off, piece->len,
			    MADV_GUARD_INSTALL) != 0)
			SKIP("MADV_GUARD_INSTALL: %s", errno_name(errno));
		CHECK_READ_SEGV(base + piece->off, SEGV_MAPERR);
		CHECK_WRITE_SEGV(last, SEGV_MAPERR);
		verify_around(base, piece);
		/* Neither of these lets anybody in. */
		CHECK_OK(madvise(base, USED, MADV_DONTNEED));
		CHECK_OK(mprotect(base, USED, PROT_READ));
		CHECK_OK(mprotect(base, USED, RW));
		CHECK_READ_SEGV(base + piece->off, SEGV_MAPERR);
		CHECK_OK(madvise(base, USED, MADV_GUARD_REMOVE));
		verify_zero(base, USED);
		fill(base, USED, 6);
		verify(base, USED, 6, 0);
		unmap(base, USED);
	}
}

/* The old page or a zero one; what is written afterwards stays. */
static void free_keeps_or_zeroes(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
		const struct piece *piece = &pieces[i];
		char *base = map_filled();

		CHECK_OK(madvise(base + piece->off, piece->len, MADV_FREE));
		for (size_t off = 0; off < piece->len; off += PAGE) {
			const char *page = base + piece->off + off;

			if (*(const uint64_t *)page == 0)
				verify_zero(page, PAGE);
			else
				verify(page, PAGE, 5, piece->off + off);
		}
		verify_around(base, piece);
		watch_begin();
		fill(base + piece->off, piece->len, 6);
		EXPECT_NO_FAULTS(base + piece->off, piece->len);
		verify(base + piece->off, piece->len, 6, 0);
		unmap(base, USED);
	}
}

/* Not for what others may see, wherever in the range that is. */
static void free_is_refused(void)
{
	char *base = map_filled();

	map_flags(base + MB(4), PAGE, RW, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED);
	base[MB(4)] = 7;
	CHECK_ERR(madvise(base, USED, MADV_FREE), EINVAL);
	CHECK_EQ(base[MB(4)], 7);
	verify(base + MB(4) + PAGE, PAGE, 5, MB(4) + PAGE);
	/* A hole before it is not what counts. */
	unmap(base + PAGE, PAGE);
	CHECK_ERR(madvise(base, USED, MADV_FREE), EINVAL);
	CHECK_ERR(madvise(base, MB(2), MADV_FREE), ENOMEM);
	unmap(base, USED);
}

static void expect_not_inherited(void *arg)
{
	char *base = arg;

	verify(base, MB(2), 5, 0);
	CHECK_READ_SEGV(base + MB(2), SEGV_MAPERR);
	CHECK_READ_SEGV(base + MB(4) + PAGE - 1, SEGV_MAPERR);
	verify(base + MB(4) + PAGE, MB(4) - PAGE, 5, MB(4) + PAGE);
}

static void expect_inherited(void *arg)
{
	verify(arg, USED, 5, 0);
}

static void dontfork(void)
{
	char *base = map_filled();

	CHECK_OK(madvise(base + MB(2), MB(2) + PAGE, MADV_DONTFORK));
	in_child(expect_not_inherited, base);
	verify(base, USED, 5, 0);
	CHECK_OK(madvise(base, USED, MADV_DOFORK));
	in_child(expect_inherited, base);
	CHECK_TOUCH(base, USED);
	unmap(base, USED);
}

static void expect_wiped(void *arg)
{
	char *base = arg;

	verify(base, MB(2), 5, 0);
	verify_zero(base + MB(2), MB(2) + PAGE);
	verify(base + MB(4) + PAGE, MB(4) - PAGE, 5, MB(4) + PAGE);
	fill(base, USED, 7);
	verify(base, USED, 7, 0);
}

static void wipeonfork(void)
{
	char *base = map_filled();

	CHECK_OK(madvise(base + MB(2), MB(2) + PAGE, MADV_WIPEONFORK));
	in_child(expect_wiped, base);
	verify(base, USED, 5, 0);
	CHECK_OK(madvise(base, USED, MADV_KEEPONFORK));
	in_child(expect_inherited, base);
	unmap(base, USED);
}

static void expect_middle_not_inherited(void *arg)
{
	char *base = arg;

	verify(base, MB(2), 5, 0);
	CHECK_READ_SEGV(base + MB(2), SEGV_MAPERR);
	verify(base + MB(4), USED - MB(4), 5, MB(4));
}

static void expect_second_wiped(void *arg)
{
	char *base = arg;

	CHECK_READ_SEGV(base, SEGV_MAPERR);
	verify_zero(base + MB(2), MB(2));
	verify(base + MB(4), USED - MB(4), 5, MB(4));
}

static void expect_first_not_inherited(void *arg)
{
	char *base = arg;

	CHECK_READ_SEGV(base, SEGV_MAPERR);
	verify(base + MB(2), USED - MB(2), 5, MB(2));
}

/* Advice about a piece is none about its neighbours, whatever theirs are. */
static void wipeonfork_beside_other_advice(void)
{
	char *base = map_filled();

	CHECK_OK(madvise(base + MB(2), MB(2), MADV_DONTFORK));
	CHECK_OK(madvise(base + MB(2), MB(2), MADV_WIPEONFORK));
	in_child(expect_middle_not_inherited, base);
	unmap(base, USED);

	base = map_filled();
	CHECK_OK(madvise(base, MB(2), MADV_DONTFORK));
	CHECK_OK(madvise(base + MB(4), MB(2), MADV_DONTDUMP));
	CHECK_OK(madvise(base + MB(2), MB(2), MADV_WIPEONFORK));
	in_child(expect_second_wiped, base);
	CHECK_OK(madvise(base + MB(2), MB(2), MADV_KEEPONFORK));
	in_child(expect_first_not_inherited, base);
	verify(base, USED, 5, 0);
	unmap(base, USED);
}

static void harmless_advice_keeps_content(void)
{
	static const struct {
		int advice;
		const char *name;
	} advices[] = {
		{ MADV_NORMAL, "NORMAL" },
		{ MADV_RANDOM, "RANDOM" },
		{ MADV_SEQUENTIAL, "SEQUENTIAL" },
		{ MADV_WILLNEED, "WILLNEED" },
		{ MADV_HUGEPAGE, "HUGEPAGE" },
		{ MADV_NOHUGEPAGE, "NOHUGEPAGE" },
		{ MADV_HUGEPAGE, "HUGEPAGE" },
		{ MADV_COLD, "COLD" },
		{ MADV_PAGEOUT, "PAGEOUT" },
		{ MADV_POPULATE_READ, "POPULATE_READ" },
		{ MADV_POPULATE_WRITE, "POPULATE_WRITE" },
		{ MADV_DONTDUMP, "DONTDUMP" },
		{ MADV_DODUMP, "DODUMP" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(advices); i++) {
		bool about_2m = advices[i].advice == MADV_HUGEPAGE ||
				advices[i].advice == MADV_NOHUGEPAGE;
		char *base = map_filled();

		if (about_2m && !maps_2m()) {
			CHECK_ERR(madvise(base, USED, advices[i].advice),
				  EINVAL);
			unmap(base, USED);
			continue;
		}
		if (madvise(base + MB(1), MB(4) + PAGE, advices[i].advice) != 0)
			FAIL("MADV_%s: %s", advices[i].name, errno_name(errno));
		verify(base, USED, 5, 0);
		if (advices[i].advice != MADV_COLD && advices[i].advice != MADV_PAGEOUT)
			CHECK_TOUCH(base, USED);
		if (madvise(base, USED, advices[i].advice) != 0)
			FAIL("MADV_%s: %s", advices[i].name, errno_name(errno));
		verify(base, USED, 5, 0);
		/* New memory next to it has nothing to do with the advice. */
		map_flags(base + USED, MB(2), RW, ANON | MAP_FIXED_NOREPLACE);
		CHECK_TOUCH(base + USED, MB(2));
		unmap(base, USED + MB(2));
	}
}

/* Without swap Linux keeps such pages where they are, mapped as they are. */
static void pageout_takes_no_faults(void)
{
	char *base;

	skip_unless_registered();
	base = map_filled();
	CHECK_OK(madvise(base, USED, MADV_COLD));
	CHECK_TOUCH(base, USED);
	CHECK_OK(madvise(base, USED, MADV_PAGEOUT));
	CHECK_TOUCH(base, USED);
	check_2m(base, USED);
	verify(base, USED, 5, 0);
	unmap(base, USED);
}

static void madvise_errors(void)
{
	char *base = map_filled();

	CHECK_ERR(madvise(base, PAGE, MADV_REMOVE), EINVAL);
	CHECK_ERR(madvise(base, MB(2), MADV_REMOVE), EINVAL);
	CHECK_ERR(madvise(base, PAGE, 9999), EINVAL);
	CHECK_ERR(madvise(base, PAGE, -1), EINVAL);
	CHECK_ERR(madvise(base + 1, PAGE, MADV_DONTNEED), EINVAL);
	CHECK_ERR(madvise(base, (size_t)-1, MADV_DONTNEED), EINVAL);
	CHECK_OK(madvise(base, 0, MADV_DONTNEED));
	CHECK_ERR(madvise(base - SLOT, PAGE, MADV_DONTNEED), ENOMEM);
	CHECK_ERR(madvise(base + USED, PAGE, MADV_WILLNEED), ENOMEM);
	CHECK_ERR(madvise(base + USED, PAGE, MADV_POPULATE_WRITE), ENOMEM);
	verify(base, USED, 5, 0);

	/* Both sides of a hole are done, and the hole is told. */
	unmap(base + MB(3), PAGE);
	CHECK_ERR(madvise(base + MB(2), MB(2), MADV_DONTNEED), ENOMEM);
	verify(base, MB(2), 5, 0);
	verify_zero(base + MB(2), MB(1));
	verify_zero(base + MB(3) + PAGE, MB(1) - PAGE);
	verify(base + MB(4), MB(4), 5, MB(4));
	CHECK_TOUCH(base, MB(3));
	CHECK_TOUCH(base + MB(3) + PAGE, MB(5) - PAGE);
	unmap(base, USED);
}

static char *page_up(char *p)
{
	return (char *)(((uintptr_t)p + PAGE - 1) & ~(PAGE - 1));
}

static char *slot_up(char *p)
{
	return (char *)(((uintptr_t)p + SLOT - 1) & ~(SLOT - 1));
}

/*
 * The tests below move the break as if nobody else did; malloc notices and
 * copes, and none of them calls it while the break is theirs.
 */
static void brk_grows_and_shrinks(void)
{
	char *start = sbrk(0);
	char *p, *kept_end;

	CHECK_OK(start);
	p = sbrk(MB(5) + 100);
	CHECK(p == start);
	CHECK(sbrk(0) == start + MB(5) + 100);
	p = page_up(start);
	watch_begin();
	verify_zero(p, MB(5) - PAGE);
	fill(p, MB(5) - PAGE, 1);
	EXPECT_NO_FAULTS(p, MB(5) - PAGE);

	/* Shrink to the middle of a page. */
	CHECK_OK(sbrk(-(intptr_t)(MB(2) + 100 + 8)));
	CHECK(sbrk(0) == start + MB(3) - 8);
	kept_end = page_up(start + MB(3) - 8);
	watch_begin();
	verify(p, (size_t)(kept_end - p), 1, 0);
	EXPECT_NO_FAULTS(p, (size_t)(kept_end - p));

	/* Beyond the break nothing is mapped. */
	CHECK_READ_SEGV(kept_end, SEGV_MAPERR);
	CHECK_READ_SEGV(slot_up(kept_end), SEGV_MAPERR);

	/* What comes back is new. */
	CHECK_OK(sbrk(MB(4)));
	watch_begin();
	verify_zero(kept_end, (size_t)(start + MB(7) - 8 - kept_end) & ~(PAGE - 1));
	verify(p, (size_t)(kept_end - p), 1, 0);
	EXPECT_NO_FAULTS(p, MB(6));
	CHECK_TOUCH(p, MB(6));
	check_2m(p, MB(6));

	CHECK_OK(brk(start));
	CHECK(sbrk(0) == start);
}

static void brk_in_small_steps(void)
{
	char *start = sbrk(0);
	const size_t step = KB(12) + 40;
	size_t len = 0;

	for (int i = 0; i < 400; i++) {
		char *p = sbrk((intptr_t)step);

		CHECK(p == start + len);
		watch_begin();
		for (size_t n = 0; n < step; n += 8)
			*(uint64_t *)(void *)(p + n) = len + n;
		EXPECT_NO_FAULTS(p, step);
		len += step;
		if (i % 5 == 4) {
			CHECK_OK(sbrk(-(intptr_t)step));
			len -= step;
		}
	}
	for (size_t n = 0; n < len; n += 8)
		CHECK_EQ(*(uint64_t *)(void *)(start + n), n);
	CHECK_OK(brk(start));
	CHECK(sbrk(0) == start);
}

static void brk_refusals(void)
{
	char *start = sbrk(0);
	char *wall;

	/* The call itself returns the break it left as it was. */
	CHECK_EQ(syscall(SYS_brk, 0), (long)start);
	CHECK_EQ(syscall(SYS_brk, 1), (long)start);
	CHECK_EQ(syscall(SYS_brk, 1UL << 56), (long)start);
	/* Rounded up, it would be 0. */
	CHECK_EQ(syscall(SYS_brk, -1UL), (long)start);
	CHECK(sbrk(0) == start);

	wall = map_flags(slot_up(start) + MB(4), PAGE, RW, ANON | MAP_FIXED_NOREPLACE);
	fill(wall, PAGE, 3);
	CHECK_ERR(sbrk(MB(8)), ENOMEM);
	CHECK(sbrk(0) == start);
	verify(wall, PAGE, 3, 0);
	CHECK_OK(sbrk(MB(1)));
	CHECK_TOUCH(page_up(start), MB(1) - PAGE);
	CHECK_OK(brk(start));
	verify(wall, PAGE, 3, 0);
	unmap(wall, PAGE);
}

/* Above the break, in its slot and behind, nothing is anybody's. */
static void room_above_the_break(void)
{
	char *start = sbrk(0), *end, *p;
	int id;

	CHECK_OK(sbrk(MB(3) + KB(100)));
	end = page_up(sbrk(0));
	fill(page_up(start), MB(3), 8);
	CHECK_ERR(msync(end, PAGE, MS_SYNC), ENOMEM);
	CHECK_ERR(mprotect(end, PAGE, PROT_READ), ENOMEM);
	CHECK_READ_SEGV(end, SEGV_MAPERR);

	/* For others to take. */
	p = map_flags(end + 4 * PAGE, PAGE, RW, ANON | MAP_FIXED_NOREPLACE);
	fill(p, PAGE, 9);
	CHECK(mmap(end + 8 * PAGE, PAGE, RW, ANON, -1, 0) == end + 8 * PAGE);
	id = shmget(IPC_PRIVATE, PAGE, 0600);
	CHECK_OK(id);
	CHECK(shmat(id, end + 12 * PAGE, 0) == end + 12 * PAGE);
	CHECK_OK(shmctl(id, IPC_RMID, NULL));

	/* The break stops a page short of it. */
	CHECK_ERR(brk(p), ENOMEM);
	CHECK_OK(brk(p - PAGE));
	fill(end, 3 * PAGE, 10);
	CHECK_OK(brk(end));
	CHECK_READ_SEGV(end, SEGV_MAPERR);
	verify(p, PAGE, 9, 0);
	unmap(p, PAGE);
	unmap(end + 8 * PAGE, PAGE);
	CHECK_OK(shmdt(end + 12 * PAGE));

	/* What comes back is new, and makes a slot whole. */
	CHECK_OK(sbrk(MB(3)));
	verify_zero(end, MB(2));
	verify(page_up(start), MB(3), 8, 0);
	check_2m(slot_up(start), MB(4));
	CHECK_OK(brk(start));
}

static void limit_data(void *arg)
{
	struct rlimit limit = { .rlim_cur = MB(1), .rlim_max = RLIM_INFINITY };
	char *start = sbrk(MB(2));

	(void)arg;
	CHECK_OK(start);
	CHECK_OK(setrlimit(RLIMIT_DATA, &limit));
	start = sbrk(0);
	CHECK_ERR(sbrk(MB(4)), ENOMEM);
	CHECK(sbrk(0) == start);
	CHECK_ERR(mmap(NULL, MB(64), RW, ANON, -1, 0), ENOMEM);
	limit.rlim_cur = RLIM_INFINITY;
	CHECK_OK(setrlimit(RLIMIT_DATA, &limit));
	CHECK_OK(sbrk(MB(4)));
	CHECK_TOUCH(page_up(start), MB(4) - PAGE);
}

static void rlimit_data(void)
{
	in_child(limit_data, NULL);
}

static void limit_address_space(void *arg)
{
	struct rlimit limit = { .rlim_max = RLIM_INFINITY };
	char *start;

	(void)arg;
	/* Room for the checks themselves, not for what they ask for. */
	limit.rlim_cur = mapped_bytes() + MB(16);
	CHECK_OK(setrlimit(RLIMIT_AS, &limit));
	start = sbrk(0);
	CHECK_ERR(mmap(NULL, MB(64), RW, ANON, -1, 0), ENOMEM);
	CHECK_ERR(sbrk(MB(64)), ENOMEM);
	CHECK(sbrk(0) == start);
	CHECK_OK(mmap(NULL, MB(4), RW, ANON, -1, 0));
}

static void rlimit_as(void)
{
	in_child(limit_address_space, NULL);
}

static void forked_heap(void *arg)
{
	char *start = arg;

	CHECK(sbrk(0) == start + MB(6));
	verify(page_up(start), MB(5), 4, 0);
	CHECK_OK(sbrk(MB(3)));
	fill(page_up(start + MB(6)), MB(3) - PAGE, 5);
	CHECK_TOUCH(page_up(start + MB(6)), MB(3) - PAGE);
	CHECK_OK(brk(start + MB(2)));
	verify(page_up(start), MB(1), 4, 0);
}

static void brk_after_fork(void)
{
	char *start = sbrk(MB(6));

	CHECK_OK(start);
	fill(page_up(start), MB(5), 4);
	in_child(forked_heap, start);
	CHECK(sbrk(0) == start + MB(6));
	verify(page_up(start), MB(5), 4, 0);
	CHECK_OK(brk(start));
}

/* As who restores a process does: the heap may be anywhere, from one call to the next. */
static void moved_break(void *arg)
{
	char *heap = sbrk(MB(3)), *p = map_anon(MB(8)), *end = p + MB(6);
	struct prctl_mm_map map = {
		.start_code = (uintptr_t)moved_break & ~(PAGE - 1),
		.start_brk = (uintptr_t)p,
		.brk = (uintptr_t)end,
		.arg_start = (uintptr_t)p,
		.arg_end = (uintptr_t)p,
		.env_start = (uintptr_t)p,
		.env_end = (uintptr_t)p,
		.exe_fd = (uint32_t)-1,
	};

	(void)arg;
	CHECK_OK(heap);
	heap = page_up(heap);
	fill(heap, MB(2), 3);
	fill(p, MB(8), 4);
	map.start_data = map.start_code;
	map.end_code = map.end_data = map.start_code + PAGE;
	map.start_stack = (uintptr_t)&map & ~(PAGE - 1);
	CHECK_OK(prctl(PR_SET_MM, PR_SET_MM_MAP, &map, sizeof(map), 0));
	CHECK_EQ(syscall(SYS_brk, p + MB(3) + PAGE), (uintptr_t)p + MB(3) + PAGE);
	CHECK_READ_SEGV(p + MB(3) + PAGE, SEGV_MAPERR);
	CHECK_READ_SEGV(end - 1, SEGV_MAPERR);
	verify(p, MB(3) + PAGE, 4, 0);
	verify(end, MB(2), 4, MB(6));
	verify(heap, MB(2), 3, 0);
	CHECK_EQ(syscall(SYS_brk, end - PAGE), (uintptr_t)end - PAGE);
	verify_zero(p + MB(3) + PAGE, MB(3) - 2 * PAGE);
	fill(p, MB(6) - PAGE, 5);
	CHECK_EQ(syscall(SYS_brk, p), (uintptr_t)p);
	CHECK_READ_SEGV(p, SEGV_MAPERR);
	verify(end, MB(2), 4, MB(6));
	verify(heap, MB(2), 3, 0);
}

static void break_moved_by_others(void)
{
	in_child(moved_break, NULL);
}

static void trim(void)
{
	enum { NR = 64 };
	char *block[NR], *keeper;
	char *before = sbrk(0);

	CHECK_EQ(mallopt(M_MMAP_THRESHOLD, (int)MB(32)), 1);
	CHECK_EQ(mallopt(M_TRIM_THRESHOLD, (int)MB(512)), 1);
	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < NR; i++) {
			block[i] = malloc(KB(300));
			CHECK(block[i] != NULL);
			fill(block[i], KB(300), i);
		}
		keeper = malloc(KB(300));
		CHECK(keeper != NULL);
		fill(keeper, KB(300), 99);
		for (size_t i = 0; i < NR; i++) {
			verify(block[i], KB(300), i, 0);
			free(block[i]);
		}
		/* Uses MADV_DONTNEED below the block that stays. */
		CHECK_EQ(malloc_trim(0), 1);
		CHECK_TOUCH(keeper, KB(300));
		verify(keeper, KB(300), 99, 0);
		free(keeper);
	}
	CHECK_EQ(malloc_trim(0), 1);
	CHECK((char *)sbrk(0) <= before + MB(1));
}

int main(void)
{
	static const struct test tests[] = {
		T(dontneed_reads_back_zero),
		T(dontneed_on_other_protections),
		T(written_while_discarded),
		T(dontneed_locked_is_refused),
		T(guards),
		T(free_keeps_or_zeroes),
		T(free_is_refused),
		T(dontfork),
		T(wipeonfork),
		T(wipeonfork_beside_other_advice),
		T(harmless_advice_keeps_content),
		T(pageout_takes_no_faults),
		T(madvise_errors),
		T(brk_grows_and_shrinks),
		T(brk_in_small_steps),
		T(brk_refusals),
		T(room_above_the_break),
		T(rlimit_data),
		T(rlimit_as),
		T(brk_after_fork),
		T(break_moved_by_others),
		T(trim),
	};

	return RUN_GROUP("sem_madvise_brk", tests);
}
