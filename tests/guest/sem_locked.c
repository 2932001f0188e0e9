// SPDX-License-Identifier: GPL-2.0
/*
 * Locked memory: Linux populates it within mmap(2), before HPMMAP has put its
 * blocks in place. A mapping must not show another block than the one that fork
 * and mremap use.
 */
#include "common.h"

#include <sys/syscall.h>
#include <unistd.h>

#define LEN	MB(8)

static void lock_future(void)
{
	CHECK_OK(mlockall(MCL_CURRENT | MCL_FUTURE));
}

static void unlock_all(void)
{
	CHECK_OK(munlockall());
}

static void fork_sees_the_content(void)
{
	char *p;
	pid_t pid;

	lock_future();
	p = map_anon(LEN);
	fill(p, LEN, 11);
	pid = fork_child();
	if (pid == 0) {
		verify(p, LEN, 11, 0);
		_exit(0);
	}
	expect_success(pid);
	unmap(p, LEN);
	unlock_all();
}

static void mremap_moves_the_content(void)
{
	char *p, *q;

	lock_future();
	p = map_anon(LEN);
	fill(p, LEN, 12);
	q = mremap(p, LEN, 4 * LEN, MREMAP_MAYMOVE);
	CHECK_OK(q);
	verify(q, LEN, 12, 0);
	verify_zero(q + LEN, 3 * LEN);
	CHECK_TOUCH(q, 4 * LEN);
	unmap(q, 4 * LEN);
	unlock_all();
}

/*
 * Grows twice where it is, which mremap does for one mapping only, goes elsewhere, and grows
 * there: it stays one that is locked as it was.
 */
static void grow(char *p)
{
	char *room = mmap(NULL, 8 * LEN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *q;

	CHECK_OK(room);
	CHECK_EQ((uintptr_t)mremap(p, LEN, 2 * LEN, 0), (uintptr_t)p);
	CHECK_EQ((uintptr_t)mremap(p, 2 * LEN, 3 * LEN, 0), (uintptr_t)p);
	q = mremap(p, 3 * LEN, 3 * LEN, MREMAP_MAYMOVE | MREMAP_FIXED, room);
	CHECK_EQ((uintptr_t)q, (uintptr_t)room);
	unmap(q + 3 * LEN, 5 * LEN);
	CHECK_EQ((uintptr_t)mremap(q, 3 * LEN, 4 * LEN, 0), (uintptr_t)q);
	CHECK_EQ((uintptr_t)mremap(q, 4 * LEN, 5 * LEN, 0), (uintptr_t)q);
	verify(q, LEN, 13, 0);
	verify_zero(q + LEN, 4 * LEN);
	unmap(q, 5 * LEN);
}

/* With room behind. */
static char *map_to_grow(void)
{
	char *p = map_anon(3 * LEN);

	unmap(p + LEN, 2 * LEN);
	fill(p, LEN, 13);
	return p;
}

static void locked_on_fault_grows(void)
{
	char *p = map_to_grow();

	CHECK_OK(mlock2(p, LEN, MLOCK_ONFAULT));
	grow(p);
}

/* What is mapped from now on is locked: what grows is not. */
static void not_locked_grows(void)
{
	char *p = map_to_grow();

	CHECK_OK(mlockall(MCL_FUTURE));
	grow(p);
	unlock_all();
}

static void locked_grows_beside_on_fault(void)
{
	char *p = map_to_grow();

	CHECK_OK(mlock(p, LEN));
	CHECK_OK(mlockall(MCL_FUTURE | MCL_ONFAULT));
	grow(p);
	unlock_all();
}

static void fixed_mapping_reads_zero(void)
{
	char *p;

	lock_future();
	p = map_anon(LEN);
	fill(p, LEN, 13);
	CHECK(map_flags(p + MB(1), MB(6), RW, ANON | MAP_FIXED) == p + MB(1));
	verify_zero(p + MB(1), MB(6));
	verify(p, MB(1), 13, 0);
	verify(p + MB(7), MB(1), 13, MB(7));
	unmap(p, LEN);
	unlock_all();
}

static void map_locked(void)
{
	char *p = map_flags(NULL, LEN, RW, ANON | MAP_LOCKED), *q;

	verify_zero(p, LEN);
	fill(p, LEN, 14);
	q = mremap(p, LEN, LEN + MB(2), MREMAP_MAYMOVE);
	CHECK_OK(q);
	verify(q, LEN, 14, 0);
	unmap(q, LEN + MB(2));
}

/* Rounded up to a slot, it would be address 0. */
/* As on Linux it stays one mapping. */
static void stack_grows_in_place(void)
{
	char *p = free_range(MB(8));

	map_flags(p, MB(4), RW, ANON | MAP_STACK | MAP_FIXED_NOREPLACE);
	fill(p, MB(4), 13);
	CHECK_OK(mlock(p, MB(4)));
	CHECK(mremap(p, MB(4), MB(6), 0) == p);
	CHECK_EQ(vma_count(p, MB(6)), 1);
	verify(p, MB(4), 13, 0);
	verify_zero(p + MB(4), MB(2));
	CHECK_OK(munlock(p, MB(6)));
	CHECK(mremap(p, MB(6), MB(8), 0) == p);
	CHECK_EQ(vma_count(p, MB(8)), 1);
	verify(p, MB(4), 13, 0);
	verify_zero(p + MB(4), MB(4));
	unmap(p, MB(8));
}

static void brk_of_the_last_address(void)
{
	long before = syscall(SYS_brk, 0);

	CHECK_EQ(syscall(SYS_brk, -1L), before);
	CHECK_EQ(syscall(SYS_brk, -4096L), before);
	CHECK_EQ(syscall(SYS_brk, 0), before);
}

int main(void)
{
	static const struct test tests[] = {
		T(fork_sees_the_content),
		T(mremap_moves_the_content),
		T(locked_on_fault_grows),
		T(not_locked_grows),
		T(locked_grows_beside_on_fault),
		T(fixed_mapping_reads_zero),
		T(map_locked),
		T(stack_grows_in_place),
		T(brk_of_the_last_address),
	};

	return RUN_GROUP("sem_locked", tests);
}
