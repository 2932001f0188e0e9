// SPDX-License-Identifier: GPL-2.0
/*
 * Reuse without zeroing: MAP_UNINITIALIZED and HPMMAP_MADV_REUSE.
 *
 * Each word that a test writes tells its writer and whether the memory had the
 * flag. Memory without the flag always reads as zero; memory with it reads as zero
 * or as what this process wrote to such memory before.
 */
#include "common.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MAP_UNINITIALIZED
#define MAP_UNINITIALIZED	0x4000000
#endif

#define FLAGGED	(ANON | MAP_UNINITIALIZED)
#define SELF	"/proc/self/exe"

/* The upper byte of a word. */
#define MARK_FLAGGED	0xf1ULL
#define MARK_PLAIN	0x9eULL

/* ---- What is written, and what may be found -------------------------- */

static uint64_t tag(uint64_t mark)
{
	return mark << 56 | (uint64_t)(uint32_t)getpid() << 24;
}

static void dirty(void *addr, size_t len, uint64_t mark)
{
	uint64_t *p = addr;
	uint64_t base = tag(mark);

	for (size_t n = 0; n < len / sizeof(*p); n++)
		p[n] = base | (n & 0xffffff);
}

static void dirty_flagged(void *addr, size_t len)
{
	dirty(addr, len, MARK_FLAGGED);
}

static void dirty_plain(void *addr, size_t len)
{
	dirty(addr, len, MARK_PLAIN);
}

/* As dirty() has left it; addr is at offset off of what was written. */
static void verify_dirty(const void *addr, size_t len, uint64_t mark, size_t off)
{
	const volatile uint64_t *p = addr;
	uint64_t base = tag(mark);

	for (size_t n = 0; n < len / sizeof(*p); n++) {
		uint64_t want = base | ((off / sizeof(*p) + n) & 0xffffff);

		if (p[n] != want)
			FAIL("content lost at %p+%#zx: %#llx, not %#llx", addr,
			     n * sizeof(*p), (unsigned long long)p[n],
			     (unsigned long long)want);
	}
}

/*
 * Checks that memory with the flag holds nothing but zeros and what this
 * process wrote to such memory. Returns how many pages came with contents.
 */
static size_t verify_own(const void *addr, size_t len)
{
	const volatile uint64_t *p = addr;
	size_t words = PAGE / sizeof(*p);
	uint64_t base = tag(MARK_FLAGGED);
	size_t reused = 0;

	for (size_t page = 0; page < len / PAGE; page++) {
		bool old = false;

		for (size_t n = page * words; n < (page + 1) * words; n++) {
			uint64_t got = p[n];

			if (got == 0)
				continue;
			if ((got & ~0xffffffULL) != base)
				FAIL("foreign content at %p+%#zx: %#llx", addr,
				     n * sizeof(*p), (unsigned long long)got);
			old = true;
		}
		reused += old;
	}
	return reused;
}

static char *map_flagged(size_t len)
{
	return map_flags(NULL, len, RW, FLAGGED);
}

/* Starts on a slot; nothing is mapped in the slots around it. */
static char *room_of(size_t len)
{
	return (char *)free_range(len + 2 * SLOT) + SLOT;
}

static char *map_at(char *addr, size_t len, int flags)
{
	return map_flags(addr, len, RW, flags | MAP_FIXED_NOREPLACE);
}

/* Leaves len bytes with contents in the process's pool. */
static void give_up_flagged(size_t len)
{
	char *p = map_flagged(len);

	verify_own(p, len);
	dirty_flagged(p, len);
	unmap(p, len);
}

static const size_t lengths[] = {
	KB(4), KB(12), KB(512), MB(2) - KB(4), MB(2), MB(2) + KB(4),
	MB(4) + KB(8), MB(9),
};

/* ---- mmap and munmap -------------------------------------------------- */

static void comes_back_without_zeroing(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		size_t len = lengths[i];
		size_t reused = 0;

		for (int round = 0; round < 4; round++) {
			char *p = map_flagged(len);

			reused += verify_own(p, len);
			watch_begin();
			dirty_flagged(p, len);
			EXPECT_NO_FAULTS(p, len);
			check_2m(p, len);
			verify_dirty(p, len, MARK_FLAGGED, 0);
			unmap(p, len);
		}
		/*
		 * From the second round on, no whole slot is new; parts of
		 * slots are kept as far as their place allows.
		 */
		if (registered() && reused < 3 * (len / SLOT) * (SLOT / PAGE))
			FAIL("%zu KB, 3 times again: %zu pages were reused, not %zu",
			     len >> 10, reused, 3 * (len / SLOT) * (SLOT / PAGE));
		if (registered() && reused == 0)
			FAIL("%zu KB, 3 times again: nothing was reused", len >> 10);
		if (!registered())
			CHECK_EQ(reused, 0);
	}
}

/* The block of the tail does not take the place of that of the whole slot. */
static void whole_slots_come_back_whole(void)
{
	size_t len = SLOT + PAGE;
	char *room = room_of(len), *p;

	give_up_flagged(len);
	for (int round = 0; round < 4; round++) {
		size_t reused;

		p = map_at(room, len, FLAGGED);
		reused = verify_own(p, len);
		if (registered() && round && reused < SLOT / PAGE)
			FAIL("round %d: %zu pages were reused, not %zu", round,
			     reused, SLOT / PAGE);
		dirty_flagged(p, len);
		unmap(p, len);
	}
}

/* A large mapping takes what small ones left, and the other way round. */
static void sizes_mix(void)
{
	char *small[8], *p;
	size_t reused = 0;

	give_up_flagged(MB(16));
	for (size_t i = 0; i < ARRAY_SIZE(small); i++) {
		small[i] = map_flagged(MB(2));
		reused += verify_own(small[i], MB(2));
		dirty_flagged(small[i], MB(2));
	}
	for (size_t i = 0; i < ARRAY_SIZE(small); i++) {
		verify_dirty(small[i], MB(2), MARK_FLAGGED, 0);
		unmap(small[i], MB(2));
	}
	p = map_flagged(MB(16));
	reused += verify_own(p, MB(16));
	if (registered())
		CHECK_EQ(reused, 2 * MB(16) / PAGE);
	unmap(p, MB(16));
}

static void without_the_flag_it_is_zero(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		size_t len = lengths[i];
		char *p;

		give_up_flagged(len);
		p = map_anon(len);
		watch_begin();
		verify_zero(p, len);
		dirty_plain(p, len);
		EXPECT_NO_FAULTS(p, len);
		unmap(p, len);
	}
}

/* The same addresses, where a block may have stayed in its slot. */
static void without_the_flag_in_the_same_place(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		size_t len = lengths[i];
		char *room = room_of(len);
		char *beside = map_at(room + len, KB(64), FLAGGED);

		dirty_flagged(beside, KB(64));
		map_at(room, len, FLAGGED);
		dirty_flagged(room, len);
		unmap(room, len);
		map_at(room, len, ANON);
		verify_zero(room, len);
		dirty_plain(room, len);
		unmap(room, len);
		map_at(room, len, FLAGGED);
		verify_own(room, len);
		verify_dirty(beside, KB(64), MARK_FLAGGED, 0);
		unmap(room, len + KB(64));
	}
}

static void what_never_had_the_flag_is_not_captured(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		size_t len = lengths[i];
		char *p = map_anon(len);

		dirty_plain(p, len);
		unmap(p, len);
		p = map_flagged(len);
		verify_own(p, len);
		unmap(p, len);
	}
}

static void heap_is_zero_and_not_captured(void)
{
	char *start, *p;

	give_up_flagged(MB(8));
	start = sbrk(0);
	CHECK_OK(sbrk(MB(8)));
	p = (char *)(((uintptr_t)start + PAGE - 1) & ~(PAGE - 1));
	verify_zero(p, MB(8) - PAGE);
	dirty_plain(p, MB(8) - PAGE);
	CHECK_OK(brk(start));
	p = map_flagged(MB(8));
	verify_own(p, MB(8));
	unmap(p, MB(8));
}

/* More than glibc keeps for later: some of them are unmapped. */
#define STACKS	8

static pthread_barrier_t all_run;

static void *use_stack(void *arg)
{
	char frame[KB(256)];

	(void)arg;
	dirty_plain(frame, sizeof(frame));
	__asm__ volatile("" : : "r"(frame) : "memory");
	pthread_barrier_wait(&all_run);
	return NULL;
}

static void stacks_are_not_captured(void)
{
	pthread_t thread[STACKS];
	char *p;

	CHECK_EQ(pthread_barrier_init(&all_run, NULL, STACKS), 0);
	for (int i = 0; i < STACKS; i++)
		thread[i] = start_thread(use_stack, NULL);
	for (int i = 0; i < STACKS; i++)
		join_thread(thread[i]);
	CHECK_EQ(pthread_barrier_destroy(&all_run), 0);
	p = map_flagged(STACKS * MB(8));
	verify_own(p, STACKS * MB(8));
	unmap(p, STACKS * MB(8));
}

/* What the core fills within mmap, and what it does not fill at all. */
static void other_ways_to_map(void)
{
	char *room, *p;

	give_up_flagged(MB(6));
	p = mmap(NULL, MB(3), RW, FLAGGED | MAP_POPULATE, -1, 0);
	CHECK_OK(p);
	verify_own(p, MB(3));
	dirty_flagged(p, MB(3));
	unmap(p, MB(3));
	p = mmap(NULL, MB(3), RW, FLAGGED | MAP_NORESERVE, -1, 0);
	CHECK_OK(p);
	verify_own(p, MB(3));
	dirty_flagged(p, MB(3));
	unmap(p, MB(3));
	p = mmap(NULL, MB(3), RW, FLAGGED | MAP_LOCKED, -1, 0);
	if (p == MAP_FAILED)
		CHECK_EQ(errno, EAGAIN);
	else {
		verify_own(p, MB(3));
		dirty_flagged(p, MB(3));
		unmap(p, MB(3));
	}
	p = mmap(NULL, MB(3), RW, ANON | MAP_LOCKED, -1, 0);
	if (p == MAP_FAILED)
		CHECK_EQ(errno, EAGAIN);
	else {
		verify_zero(p, MB(3));
		unmap(p, MB(3));
	}
	/* Read-only: it cannot have been written in the meantime. */
	p = map_flags(NULL, MB(3), PROT_READ, FLAGGED);
	verify_own(p, MB(3));
	unmap(p, MB(3));
	p = map_flags(NULL, MB(3), PROT_READ, ANON);
	verify_zero(p, MB(3));
	unmap(p, MB(3));
	/* A reservation, committed piece by piece. */
	p = map_flags(NULL, MB(8), PROT_NONE, FLAGGED | MAP_NORESERVE);
	CHECK_READ_SEGV(p, SEGV_ACCERR);
	for (size_t off = 0; off < MB(8); off += MB(1) + PAGE) {
		size_t len = MB(8) - off < MB(1) + PAGE ? MB(8) - off : MB(1) + PAGE;

		CHECK_OK(mprotect(p + off, len, RW));
		verify_own(p + off, len);
		dirty_flagged(p + off, len);
	}
	unmap(p, MB(8));
	/* Shared memory has no such flag. */
	p = mmap(NULL, MB(2), RW, MAP_SHARED | MAP_ANONYMOUS | MAP_UNINITIALIZED, -1, 0);
	CHECK_OK(p);
	verify_zero(p, MB(2));
	dirty_plain(p, MB(2));
	unmap(p, MB(2));
	/* Nor has a stack that grows down; what it grows by is new. */
	room = room_of(MB(1));
	give_up_flagged(MB(2));
	p = mmap(room, KB(64), RW, ANON | MAP_GROWSDOWN | MAP_FIXED_NOREPLACE, -1, 0);
	CHECK(p == room);
	verify_zero(p - KB(16), KB(80));
	unmap(p - KB(16), KB(80));
}

static void partial_munmap(void)
{
	static const struct {
		size_t off;
		size_t len;
	} holes[] = {
		{ 0, KB(4) }, { MB(1), KB(8) }, { MB(2) - KB(4), KB(8) },
		{ MB(2), MB(2) }, { MB(3), MB(2) }, { MB(1), MB(5) + KB(4) },
		{ MB(8) - KB(4), KB(4) },
	};

	for (size_t i = 0; i < ARRAY_SIZE(holes); i++) {
		size_t off = holes[i].off, len = holes[i].len, end = off + len;
		char *base = map_at(room_of(MB(8)), MB(8), FLAGGED);

		verify_own(base, MB(8));
		for (int plain = 0; plain < 2; plain++) {
			dirty_flagged(base, MB(8));
			unmap(base + off, len);
			CHECK_READ_SEGV(base + off, SEGV_MAPERR);
			verify_dirty(base, off, MARK_FLAGGED, 0);
			verify_dirty(base + end, MB(8) - end, MARK_FLAGGED, end);
			map_at(base + off, len, plain ? ANON : FLAGGED);
			watch_begin();
			if (plain)
				verify_zero(base + off, len);
			else
				verify_own(base + off, len);
			EXPECT_NO_FAULTS(base + off, len);
			verify_dirty(base, off, MARK_FLAGGED, 0);
			verify_dirty(base + end, MB(8) - end, MARK_FLAGGED, end);
		}
		/* The hole has no flag now: what is in it is not captured. */
		dirty_plain(base + off, len);
		unmap(base, MB(8));
		base = map_flagged(MB(8));
		verify_own(base, MB(8));
		unmap(base, MB(8));
	}
}

/* Only the rest of a mapping is left, and then another one beside it. */
static void tails(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		size_t len = lengths[i];
		char *room = room_of(len + MB(4));
		char *tail = room + len;

		map_at(room, len + KB(12), FLAGGED);
		dirty_flagged(room, len + KB(12));
		unmap(room, len);
		verify_dirty(tail, KB(12), MARK_FLAGGED, len);
		map_at(tail + KB(12), KB(12), ANON);
		verify_zero(tail + KB(12), KB(12));
		dirty_plain(tail + KB(12), KB(12));
		unmap(tail, KB(12));
		map_at(tail, KB(12), FLAGGED);
		verify_own(tail, KB(12));
		dirty_flagged(tail, KB(12));
		verify_dirty(tail + KB(12), KB(12), MARK_PLAIN, 0);
		unmap(tail, KB(24));
		map_at(tail, KB(24), FLAGGED);
		verify_own(tail, KB(24));
		unmap(tail, KB(24));
		map_at(tail, KB(24), ANON);
		verify_zero(tail, KB(24));
		unmap(tail, KB(24));
	}
}

/* Eight neighbours in one slot, each other one with the flag. */
static void flagged_beside_plain_in_a_slot(void)
{
	enum { NR = 8 };
	const size_t piece = KB(60);

	for (size_t first = 0; first < NR; first++) {
		char *room = room_of(SLOT);

		for (int round = 0; round < 2; round++) {
			for (size_t i = 0; i < NR; i++) {
				bool flag = (i + (size_t)round) % 2;
				char *p = map_at(room + i * piece, piece,
						 flag ? FLAGGED : ANON);

				if (flag)
					verify_own(p, piece);
				else
					verify_zero(p, piece);
				dirty(p, piece, flag ? MARK_FLAGGED : MARK_PLAIN);
			}
			for (size_t n = 0; n < NR; n++) {
				size_t i = (first + n * 3) % NR;

				for (size_t m = n; m < NR; m++) {
					size_t k = (first + m * 3) % NR;
					bool flag = (k + (size_t)round) % 2;

					verify_dirty(room + k * piece, piece,
						     flag ? MARK_FLAGGED : MARK_PLAIN, 0);
				}
				unmap(room + i * piece, piece);
			}
		}
		/* All of it with the flag: nothing of what had none. */
		map_at(room, SLOT, FLAGGED);
		verify_own(room, SLOT);
		unmap(room, SLOT);
	}
}

/* Memory without the flag takes the place of memory with it, in several ways. */
static void plain_where_flagged_was(void)
{
	const size_t piece = KB(64);

	for (int way = 0; way < 4; way++) {
		char *room = room_of(SLOT);
		char *middle = room + piece;
		char *p;

		map_at(room, piece, ANON);
		map_at(middle, piece, FLAGGED);
		map_at(middle + piece, piece, ANON);
		dirty_plain(room, piece);
		dirty_flagged(middle, piece);
		dirty_plain(middle + piece, piece);
		unmap(middle, piece);
		switch (way) {
		case 0:
			CHECK(mremap(room, piece, 2 * piece, 0) == room);
			verify_zero(middle, piece);
			break;
		case 1:
			p = map_anon(piece);
			dirty_plain(p, piece);
			CHECK(mremap(p, piece, piece, MREMAP_MAYMOVE | MREMAP_FIXED,
				     middle) == middle);
			break;
		case 2:
			map_flags(middle, piece, PROT_NONE, ANON | MAP_FIXED);
			CHECK_OK(mprotect(middle, piece, RW));
			verify_zero(middle, piece);
			break;
		case 3:
			map_at(middle, piece, ANON);
			verify_zero(middle, piece);
			break;
		}
		dirty_plain(middle, piece);
		verify_dirty(room, piece, MARK_PLAIN, 0);
		verify_dirty(middle + piece, piece, MARK_PLAIN, 0);
		unmap(middle, piece);
		map_at(middle, piece, FLAGGED);
		verify_own(middle, piece);
		dirty_flagged(middle, piece);
		unmap(room, piece);
		unmap(middle + piece, piece);
		unmap(middle, piece);
		p = map_flagged(SLOT);
		verify_own(p, SLOT);
		unmap(p, SLOT);
	}
}

static void fixed_over_parts(void)
{
	static const struct {
		size_t off;
		size_t len;
	} parts[] = {
		{ 0, KB(4) }, { KB(8), KB(64) }, { MB(1), MB(2) },
		{ MB(2), MB(2) }, { MB(2) - KB(4), MB(3) }, { 0, MB(6) },
	};

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		size_t off = parts[i].off, len = parts[i].len, end = off + len;
		char *base = map_at(room_of(MB(6)), MB(6), FLAGGED);

		/* Without the flag over what has it. */
		verify_own(base, MB(6));
		dirty_flagged(base, MB(6));
		map_flags(base + off, len, RW, ANON | MAP_FIXED);
		verify_zero(base + off, len);
		verify_dirty(base, off, MARK_FLAGGED, 0);
		verify_dirty(base + end, MB(6) - end, MARK_FLAGGED, end);

		/* With the flag over what never had it. */
		dirty_plain(base + off, len);
		map_flags(base + off, len, RW, FLAGGED | MAP_FIXED);
		verify_own(base + off, len);
		verify_dirty(base, off, MARK_FLAGGED, 0);
		verify_dirty(base + end, MB(6) - end, MARK_FLAGGED, end);

		/* With the flag over itself. */
		dirty_flagged(base + off, len);
		map_flags(base + off, len, RW, FLAGGED | MAP_FIXED);
		verify_own(base + off, len);

		/* And all at once: a mapping without it over all of this. */
		map_flags(base, MB(6), RW, ANON | MAP_FIXED);
		watch_begin();
		verify_zero(base, MB(6));
		EXPECT_NO_FAULTS(base, MB(6));
		dirty_plain(base, MB(6));
		unmap(base, MB(6));
	}
}

/* ---- madvise ---------------------------------------------------------- */

static void advice_errors(void)
{
	char *base = map_at(room_of(MB(4)), MB(4), ANON);
	char *p;

	dirty_plain(base, MB(4));
	CHECK_ERR(madvise(base + 1, PAGE, HPMMAP_MADV_REUSE), EINVAL);
	CHECK_ERR(madvise(base, (size_t)-1, HPMMAP_MADV_REUSE), EINVAL);
	/* The values beside it are not taken for it. */
	CHECK_ERR(madvise(base, PAGE, HPMMAP_MADV_REUSE + 1), EINVAL);
	CHECK_ERR(madvise(base, PAGE, HPMMAP_MADV_REUSE - 1), EINVAL);
	p = mmap(NULL, MB(2), RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK_OK(p);
	CHECK_ERR(madvise(p, MB(2), HPMMAP_MADV_REUSE), EINVAL);
	unmap(p, MB(2));
	if (!registered()) {
		CHECK_ERR(madvise(base, MB(4), HPMMAP_MADV_REUSE), EINVAL);
		unmap(base, MB(4));
		return;
	}
	CHECK_OK(madvise(base, MB(4), HPMMAP_MADV_REUSE));
	CHECK_OK(madvise(base, MB(4), HPMMAP_MADV_REUSE));
	verify_dirty(base, MB(4), MARK_PLAIN, 0);
	unmap(base + MB(1), PAGE);
	CHECK_ERR(madvise(base, MB(4), HPMMAP_MADV_REUSE), ENOMEM);
	verify_dirty(base, MB(1), MARK_PLAIN, 0);
	verify_dirty(base + MB(1) + PAGE, MB(3) - PAGE, MARK_PLAIN, MB(1) + PAGE);
	unmap(base, MB(4));
}

static void advice_on_a_program_file(void)
{
	struct vma vma;

	/* Text of a library: a mapping that nobody puts into a pool. */
	CHECK(vma_at((void *)(uintptr_t)getpid, &vma));
	CHECK_ERR(madvise((void *)vma.start, PAGE, HPMMAP_MADV_REUSE), EINVAL);
}

struct part {
	size_t off;
	size_t len;
};

/* In a process with an empty pool. */
static void advise_part(void *arg)
{
	const struct part *part = arg;
	size_t off = part->off, len = part->len, end = off + len;
	char *base = map_at(room_of(MB(6)), MB(6), ANON);
	size_t reused;
	char *p;

	dirty_plain(base, MB(6));
	CHECK_OK(madvise(base + off, len, HPMMAP_MADV_REUSE));
	watch_begin();
	verify_dirty(base, MB(6), MARK_PLAIN, 0);
	EXPECT_NO_FAULTS(base, MB(6));
	check_2m(base, MB(6));
	/* What is captured is only what has the flag. */
	dirty_flagged(base + off, len);
	verify_dirty(base, off, MARK_PLAIN, 0);
	verify_dirty(base + end, MB(6) - end, MARK_PLAIN, end);
	unmap(base, MB(6));
	p = map_flagged(MB(6));
	reused = verify_own(p, MB(6));
	CHECK(reused <= len / PAGE);
	if (off % SLOT == 0 && len % SLOT == 0)
		CHECK_EQ(reused, len / PAGE);
	dirty_flagged(p, MB(6));
	unmap(p, MB(6));
	p = map_anon(MB(6));
	verify_zero(p, MB(6));
	unmap(p, MB(6));
}

static void advice_changes_only_the_way_back(void)
{
	static struct part parts[] = {
		{ 0, MB(6) }, { MB(2), MB(2) }, { KB(8), KB(4) },
		{ MB(2) - KB(4), MB(2) + KB(8) },
	};

	skip_unless_registered();
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
		in_child(advise_part, &parts[i]);
}

static void discarded_memory_reads_as_zero(void)
{
	static const struct {
		size_t off;
		size_t len;
	} parts[] = {
		{ 0, KB(4) }, { MB(1), KB(8) }, { MB(2), MB(2) },
		{ MB(1), MB(4) }, { 0, MB(6) },
	};

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		size_t off = parts[i].off, len = parts[i].len, end = off + len;
		char *base = map_at(room_of(MB(6)), MB(6), FLAGGED);

		dirty_flagged(base, MB(6));
		CHECK_OK(madvise(base + off, len, MADV_DONTNEED));
		watch_begin();
		verify_zero(base + off, len);
		EXPECT_NO_FAULTS(base + off, len);
		verify_dirty(base, off, MARK_FLAGGED, 0);
		verify_dirty(base + end, MB(6) - end, MARK_FLAGGED, end);
		dirty_flagged(base + off, len);
		verify_dirty(base + off, len, MARK_FLAGGED, 0);
		CHECK_OK(madvise(base + off, len, MADV_FREE));
		verify_own(base + off, len);
		unmap(base, MB(6));
	}
}

/* ---- mremap ----------------------------------------------------------- */

static void growth_reads_as_zero(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		size_t len = lengths[i];
		char *p, *q;

		give_up_flagged(MB(24));
		/* In place. */
		p = map_at(room_of(len + MB(6)), len, FLAGGED);
		dirty_flagged(p, len);
		q = mremap(p, len, len + MB(5), 0);
		CHECK_OK(q);
		verify_dirty(q, len, MARK_FLAGGED, 0);
		watch_begin();
		verify_zero(q + len, MB(5));
		EXPECT_NO_FAULTS(q + len, MB(5));
		dirty_flagged(q, len + MB(5));
		/* Somewhere else. */
		map_at(q + len + MB(5), PAGE, ANON);
		p = mremap(q, len + MB(5), len + MB(9), MREMAP_MAYMOVE);
		CHECK_OK(p);
		CHECK(p != q);
		verify_dirty(p, len + MB(5), MARK_FLAGGED, 0);
		verify_zero(p + len + MB(5), MB(4));
		dirty_flagged(p, len + MB(9));
		unmap(q + len + MB(5), PAGE);
		unmap(p, len + MB(9));
	}
}

static void mremap_keeps_the_flag(void)
{
	char *p, *q;
	size_t reused;

	/* Moved and grown: all of it has the flag. */
	p = map_flagged(MB(4));
	dirty_flagged(p, MB(4));
	q = room_of(MB(8));
	CHECK(mremap(p, MB(4), MB(8), MREMAP_MAYMOVE | MREMAP_FIXED, q) == q);
	verify_dirty(q, MB(4), MARK_FLAGGED, 0);
	verify_zero(q + MB(4), MB(4));
	dirty_flagged(q, MB(8));
	unmap(q, MB(8));
	p = map_flagged(MB(8));
	reused = verify_own(p, MB(8));
	if (registered())
		CHECK_EQ(reused, MB(8) / PAGE);

	/* What it shrinks by goes to the pool, and is nobody else's. */
	dirty_flagged(p, MB(8));
	CHECK(mremap(p, MB(8), MB(3), 0) == p);
	verify_dirty(p, MB(3), MARK_FLAGGED, 0);
	q = map_anon(MB(8));
	verify_zero(q, MB(8));
	unmap(q, MB(8));
	unmap(p, MB(3));

	/* Without the flag it has none afterwards. */
	p = map_anon(MB(4));
	dirty_plain(p, MB(4));
	q = room_of(MB(8));
	CHECK(mremap(p, MB(4), MB(6), MREMAP_MAYMOVE | MREMAP_FIXED, q) == q);
	verify_zero(q + MB(4), MB(2));
	dirty_plain(q, MB(6));
	unmap(q, MB(6));
	p = map_flagged(MB(6));
	verify_own(p, MB(6));
	unmap(p, MB(6));
}

/* To an address off the slot, over a mapping of the other kind. */
static void mremap_over_others(void)
{
	for (int flag = 0; flag < 2; flag++) {
		uint64_t mark = flag ? MARK_FLAGGED : MARK_PLAIN;
		uint64_t other = flag ? MARK_PLAIN : MARK_FLAGGED;
		char *from = map_at(room_of(MB(6)), MB(6), flag ? FLAGGED : ANON);
		char *to = map_at(room_of(MB(6)), MB(6), flag ? ANON : FLAGGED);

		dirty(from, MB(6), mark);
		dirty(to, MB(6), other);
		CHECK(mremap(from + KB(4), MB(3), MB(3), MREMAP_MAYMOVE | MREMAP_FIXED,
			     to + KB(32)) == to + KB(32));
		verify_dirty(to, KB(32), other, 0);
		verify_dirty(to + KB(32), MB(3), mark, KB(4));
		verify_dirty(to + KB(32) + MB(3), MB(3) - KB(32), other, MB(3) + KB(32));
		verify_dirty(from, KB(4), mark, 0);
		CHECK_READ_SEGV(from + KB(4), SEGV_MAPERR);
		verify_dirty(from + KB(4) + MB(3), MB(3) - KB(4), mark, MB(3) + KB(4));
		map_at(from + KB(4), MB(3), flag ? ANON : FLAGGED);
		if (flag)
			verify_zero(from + KB(4), MB(3));
		else
			verify_own(from + KB(4), MB(3));
		unmap(from, MB(6));
		unmap(to, MB(6));
		to = map_flagged(MB(12));
		verify_own(to, MB(12));
		unmap(to, MB(12));
	}
}

/* ---- fork and exec ------------------------------------------------------ */

struct family {
	char *base;		/* with the flag, inherited */
	int to_child[2];
	int to_parent[2];
};

static void open_pipes(struct family *family)
{
	CHECK_OK(pipe(family->to_child));
	CHECK_OK(pipe(family->to_parent));
}

static void close_pipes(const struct family *family)
{
	for (int i = 0; i < 2; i++) {
		close(family->to_child[i]);
		close(family->to_parent[i]);
	}
}

static void expect_empty_pool(void *arg)
{
	char *p;

	(void)arg;
	/* Nobody's contents: the child has written nothing yet. */
	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		p = map_flagged(lengths[i]);
		verify_zero(p, lengths[i]);
		unmap(p, lengths[i]);
	}
	p = map_flagged(MB(32));
	verify_zero(p, MB(32));
	dirty_flagged(p, MB(32));
	unmap(p, MB(32));
	/* From here on it has a pool of its own. */
	p = map_flagged(MB(32));
	if (registered())
		CHECK_EQ(verify_own(p, MB(32)), MB(32) / PAGE);
	unmap(p, MB(32));
}

static void child_starts_with_an_empty_pool(void)
{
	char *p;

	for (int round = 0; round < 3; round++) {
		give_up_flagged(MB(32));
		give_up_flagged(KB(12));
		in_child(expect_empty_pool, NULL);
		/* The parent still has its own, and nothing of the child's. */
		p = map_flagged(MB(32));
		verify_own(p, MB(32));
		unmap(p, MB(32));
	}
}

/* The parent gives up what both had, and writes to what it gets in exchange. */
static void child_keeps_its_snapshot(void *arg)
{
	struct family *family = arg;
	uint64_t parent = MARK_FLAGGED << 56 | (uint64_t)(uint32_t)getppid() << 24;
	const volatile uint64_t *p = (void *)family->base;

	tell(family->to_parent[1]);
	await(family->to_child[0]);
	for (size_t n = 0; n < MB(8) / sizeof(*p); n++)
		CHECK_EQ(p[n], parent | (n & 0xffffff));
	/* Its own memory has nothing that the parent wrote since. */
	p = (void *)map_flagged(MB(8));
	verify_zero((void *)p, MB(8));
}

static void snapshot_survives_reuse_by_the_parent(void)
{
	struct family family;
	pid_t pid;
	char *p;

	open_pipes(&family);
	family.base = map_at(room_of(MB(8)), MB(8), FLAGGED);
	dirty_flagged(family.base, MB(8));
	pid = fork_child();
	if (pid == 0) {
		child_keeps_its_snapshot(&family);
		_exit(0);
	}
	await(family.to_parent[0]);
	unmap(family.base, MB(8));
	p = map_flagged(MB(8));
	verify_own(p, MB(8));
	/* Other words than the child has. */
	dirty_flagged(p, PAGE);
	dirty_flagged(p + PAGE, MB(8) - PAGE);
	tell(family.to_child[1]);
	expect_success(pid);
	close_pipes(&family);
	unmap(p, MB(8));
}

/* The child gives up what both had, and dirties all it gets. */
static void child_gives_up_its_part(void *arg)
{
	struct family *family = arg;
	char *p;

	unmap(family->base + MB(1), MB(4));
	p = map_at(family->base + MB(1), MB(4), ANON);
	verify_zero(p, MB(4));
	unmap(p, MB(4));
	p = map_at(family->base + MB(1), MB(4), FLAGGED);
	dirty_flagged(p, MB(4));
	unmap(family->base, MB(8));
	for (int i = 0; i < 4; i++) {
		p = map_flagged(MB(6));
		dirty_flagged(p, MB(6));
		unmap(p, MB(6));
	}
}

static void nothing_of_the_child_comes_back(void)
{
	struct family family = {
		.base = map_at(room_of(MB(8)), MB(8), FLAGGED),
	};
	char *p;

	dirty_flagged(family.base, MB(8));
	in_child(child_gives_up_its_part, &family);
	verify_dirty(family.base, MB(8), MARK_FLAGGED, 0);
	p = map_flagged(MB(24));
	verify_own(p, MB(24));
	unmap(p, MB(24));
	p = map_anon(MB(24));
	verify_zero(p, MB(24));
	unmap(p, MB(24));
	unmap(family.base, MB(8));
}

static void wiped_in_the_child(void *arg)
{
	verify_zero(arg, MB(4));
}

static void wipeonfork_reads_as_zero(void)
{
	char *p = map_flagged(MB(4));

	dirty_flagged(p, MB(4));
	CHECK_OK(madvise(p, MB(4), MADV_WIPEONFORK));
	in_child(wiped_in_the_child, p);
	verify_dirty(p, MB(4), MARK_FLAGGED, 0);
	unmap(p, MB(4));
}

static int program_after_exec(void)
{
	char *p = map_flagged(MB(32));

	verify_zero(p, MB(32));
	unmap(p, MB(32));
	return 0;
}

static void fill_pool_and_exec(void *arg)
{
	char *const argv[] = { SELF, "after-exec", NULL };

	(void)arg;
	give_up_flagged(MB(32));
	/* Once more with contents that a process of the same number had. */
	map_flagged(MB(8));
	execve(SELF, argv, environ);
	FAIL("execve(" SELF "): %s", errno_name(errno));
}

static void exec_empties_the_pool(void)
{
	for (int round = 0; round < 3; round++)
		in_child(fill_pool_and_exec, NULL);
}

/* ---- Threads ------------------------------------------------------------ */

#define THREADS	6

/* Sizes of a thread's mappings follow from a number of its own. */
static void *churn(void *arg)
{
	uint64_t x = (uint64_t)(uintptr_t)arg * 0x9e3779b97f4a7c15ULL + 1;

	for (int i = 0; i < 60; i++) {
		bool flag;
		size_t len;
		char *p;

		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		flag = x >> 40 & 1;
		len = ((x >> 16) % (x >> 41 & 3 ? 40 : 1100) + 1) * PAGE;
		p = map_flags(NULL, len, RW, flag ? FLAGGED : ANON);
		if (flag)
			verify_own(p, len);
		else
			verify_zero(p, len);
		dirty(p, len, flag ? MARK_FLAGGED : MARK_PLAIN);
		if (x >> 44 & 1) {
			size_t half = len / 2 & ~(PAGE - 1);

			if (half)
				unmap(p, half);
			verify_dirty(p + half, len - half,
				     flag ? MARK_FLAGGED : MARK_PLAIN, half);
			unmap(p + half, len - half);
			continue;
		}
		verify_dirty(p, len, flag ? MARK_FLAGGED : MARK_PLAIN, 0);
		unmap(p, len);
	}
	return NULL;
}

static void threads_churn(void)
{
	pthread_t thread[THREADS];

	for (size_t i = 0; i < THREADS; i++)
		thread[i] = start_thread(churn, (void *)(uintptr_t)(i + 1));
	for (size_t i = 0; i < THREADS; i++)
		join_thread(thread[i]);
}

/* One gives up what another then gets: a thread is no border. */
static void *give_up(void *arg)
{
	unmap(arg, MB(4));
	return NULL;
}

static void threads_share_the_pool(void)
{
	size_t reused = 0;

	for (int i = 0; i < 4; i++) {
		char *p = map_flagged(MB(4));

		reused += verify_own(p, MB(4));
		dirty_flagged(p, MB(4));
		join_thread(start_thread(give_up, p));
	}
	if (registered())
		CHECK(reused >= 3 * MB(4) / PAGE);
}

static atomic_bool stop;

static void *keep_forking(void *arg)
{
	(void)arg;
	while (!atomic_load(&stop)) {
		pid_t pid = fork();
		int status;

		CHECK_OK(pid);
		if (pid == 0)
			_exit(0);
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		CHECK_EQ(status, 0);
	}
	return NULL;
}

static void *churn_beside_forks(void *arg)
{
	(void)arg;
	for (size_t i = 0; i < 40; i++) {
		size_t len = lengths[i % ARRAY_SIZE(lengths)];
		char *p = map_flagged(len);

		verify_own(p, len);
		dirty_flagged(p, len);
		verify_dirty(p, len, MARK_FLAGGED, 0);
		unmap(p, len);
		p = map_anon(len);
		verify_zero(p, len);
		unmap(p, len);
	}
	return NULL;
}

/* Blocks are shared and no longer shared while others reuse them. */
static void threads_beside_forks(void)
{
	pthread_t forking, thread[2];

	atomic_store(&stop, false);
	forking = start_thread(keep_forking, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(thread); i++)
		thread[i] = start_thread(churn_beside_forks, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(thread); i++)
		join_thread(thread[i]);
	atomic_store(&stop, true);
	join_thread(forking);
}

/* ---- Size of the pool ----------------------------------------------------- */

/*
 * The pool can be seen from outside as what is missing of the pools of all
 * while nothing is mapped; some blocks may be in use for other things.
 */
#define SLACK	MB(8)

static uint64_t used_bytes(void)
{
	return pool_value("total_bytes") - pool_value("free_bytes");
}

static void expect_used(uint64_t before, uint64_t most)
{
	uint64_t used = used_bytes();

	if (used > before + most + SLACK)
		FAIL("%llu KB of the pools are used, not at most %llu KB",
		     (unsigned long long)(used >> 10),
		     (unsigned long long)((before + most + SLACK) >> 10));
}

static void limited_by_the_peak(void *arg)
{
	uint64_t before = used_bytes();
	char *p[6];

	(void)arg;
	give_up_flagged(MB(16));
	expect_used(before, MB(16));
	/* Never had the flag: it goes back at once. */
	p[0] = map_anon(MB(96));
	dirty_plain(p[0], MB(96));
	unmap(p[0], MB(96));
	expect_used(before, MB(16));
	/* The same again, in other pieces and one after the other. */
	for (int round = 0; round < 8; round++) {
		size_t off = round % 2 ? MB(6) : KB(4);

		p[0] = map_flagged(off);
		p[1] = map_flagged(MB(16) - off);
		dirty_flagged(p[0], off);
		dirty_flagged(p[1], MB(16) - off);
		unmap(p[round % 2], round % 2 ? MB(16) - off : off);
		unmap(p[!(round % 2)], round % 2 ? off : MB(16) - off);
		expect_used(before, MB(16));
	}
	/* By advice, mapping after mapping: never more than 16 MB at once. */
	for (int round = 0; round < 6 && registered(); round++) {
		p[0] = map_anon(MB(16));
		CHECK_OK(madvise(p[0], MB(16), HPMMAP_MADV_REUSE));
		dirty_flagged(p[0], MB(16));
		unmap(p[0], MB(16));
		expect_used(before, MB(16));
	}
	/* A higher peak, a larger pool. */
	for (size_t i = 0; i < ARRAY_SIZE(p); i++) {
		p[i] = map_flagged(MB(16));
		dirty_flagged(p[i], MB(16));
	}
	for (size_t i = 0; i < ARRAY_SIZE(p); i++)
		unmap(p[i], MB(16));
	expect_used(before, ARRAY_SIZE(p) * MB(16));
	p[0] = map_flagged(MB(96));
	CHECK_EQ(verify_own(p[0], MB(96)), MB(96) / PAGE);
}

static void pool_is_limited_by_the_peak(void)
{
	skip_unless_registered();
	in_child(limited_by_the_peak, NULL);
}

static void pool_ends_with_the_process(void)
{
	uint64_t free_bytes;

	skip_unless_registered();
	free_bytes = pool_value("free_bytes");
	in_child(expect_empty_pool, NULL);
	await_pool_free(free_bytes);
}

#define DONORS		3
#define DONATION	MB(96)

/* How much one process can have: all that is free or in somebody's pool. */
static void take_all(void *arg)
{
	size_t len = *(const size_t *)arg;

	for (size_t got = 0; got < len; got += MB(32)) {
		char *p = mmap(NULL, MB(32), RW, ANON, -1, 0);

		if (p == MAP_FAILED)
			FAIL("%zu MB of %zu MB: %s", got >> 20, len >> 20,
			     errno_name(errno));
		for (size_t off = 0; off < MB(32); off += PAGE)
			if (*(volatile uint64_t *)(p + off) != 0)
				FAIL("not zero at %p", (void *)(p + off));
		stamp(p, MB(32), got);
	}
	CHECK_EQ(context_value("fallbacks"), 0);
	CHECK_EQ(context_value("linux_bytes"), 0);
}

static void take_all_with_a_pool(void *arg)
{
	give_up_flagged(DONATION);
	take_all(arg);
}

struct donor {
	pid_t pid;
	int to_child[2];
	int to_parent[2];
};

/* Fills its pool, and tells afterwards whether all of it is still there. */
static void donate(const struct donor *donor)
{
	size_t reused;
	char *p;

	give_up_flagged(DONATION);
	tell(donor->to_parent[1]);
	await(donor->to_child[0]);
	p = map_flagged(DONATION);
	reused = verify_own(p, DONATION);
	CHECK_EQ(write(donor->to_parent[1], &reused, sizeof(reused)), sizeof(reused));
}

static void start_donors(struct donor *donors)
{
	for (size_t i = 0; i < DONORS; i++) {
		CHECK_OK(pipe(donors[i].to_child));
		CHECK_OK(pipe(donors[i].to_parent));
		donors[i].pid = fork_child();
		if (donors[i].pid == 0) {
			donate(&donors[i]);
			_exit(0);
		}
		await(donors[i].to_parent[0]);
	}
}

/* Pages that each donor still had. */
static void end_donors(struct donor *donors, size_t *left)
{
	for (size_t i = 0; i < DONORS; i++) {
		tell(donors[i].to_child[1]);
		CHECK_EQ(read(donors[i].to_parent[0], &left[i], sizeof(left[i])),
			 sizeof(left[i]));
		expect_success(donors[i].pid);
		for (int k = 0; k < 2; k++) {
			close(donors[i].to_child[k]);
			close(donors[i].to_parent[k]);
		}
	}
}

static void pools_are_taken_back_under_pressure(void)
{
	struct donor donors[DONORS];
	size_t left[DONORS], len;
	uint64_t free_bytes;
	int losers = 0;

	skip_unless_registered();
	free_bytes = pool_value("free_bytes");
	if (free_bytes < GB(1))
		SKIP("the pools have %llu MB free, not 1024", (unsigned long long)free_bytes >> 20);

	/* Nobody wants it: everything stays where it is. */
	start_donors(donors);
	end_donors(donors, left);
	for (size_t i = 0; i < DONORS; i++)
		CHECK_EQ(left[i], DONATION / PAGE);

	/*
	 * All that was free before they came, but for half of what is in their
	 * pools: that is more than one of them has.
	 */
	await_pool_free(free_bytes);
	start_donors(donors);
	len = (free_bytes - DONORS * DONATION / 2) / MB(32) * MB(32);
	in_child(take_all, &len);
	end_donors(donors, left);
	for (size_t i = 0; i < DONORS; i++)
		losers += left[i] < DONATION / PAGE;
	if (losers < 2)
		FAIL("under pressure the donors had %zu, %zu and %zu pages left: only %d gave",
		     left[0], left[1], left[2], losers);
	await_pool_free(free_bytes);

	/* One's own pool is no reason to refuse either. */
	len = (free_bytes - MB(64)) / MB(32) * MB(32);
	in_child(take_all_with_a_pool, &len);
	await_pool_free(free_bytes);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		T(comes_back_without_zeroing),
		T(whole_slots_come_back_whole),
		T(sizes_mix),
		T(without_the_flag_it_is_zero),
		T(without_the_flag_in_the_same_place),
		T(what_never_had_the_flag_is_not_captured),
		T(heap_is_zero_and_not_captured),
		T(stacks_are_not_captured),
		T(other_ways_to_map),
		T(partial_munmap),
		T(tails),
		T(flagged_beside_plain_in_a_slot),
		T(plain_where_flagged_was),
		T(fixed_over_parts),
		T(advice_errors),
		T(advice_on_a_program_file),
		T(advice_changes_only_the_way_back),
		T(discarded_memory_reads_as_zero),
		T(growth_reads_as_zero),
		T(mremap_keeps_the_flag),
		T(mremap_over_others),
		T(child_starts_with_an_empty_pool),
		T(snapshot_survives_reuse_by_the_parent),
		T(nothing_of_the_child_comes_back),
		T(wipeonfork_reads_as_zero),
		T(exec_empties_the_pool),
		T(threads_churn),
		T(threads_share_the_pool),
		T(threads_beside_forks),
		T(pool_is_limited_by_the_peak),
		T(pool_ends_with_the_process),
		T(pools_are_taken_back_under_pressure),
	};

	if (argc > 1 && strcmp(argv[1], "after-exec") == 0)
		return program_after_exec();
	return RUN_GROUP("sem_reuse", tests);
}
