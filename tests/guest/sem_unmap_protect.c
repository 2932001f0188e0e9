// SPDX-License-Identifier: GPL-2.0
/* munmap(2) and mprotect(2) at the granularity of a page. */
#include "common.h"

#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define USED	MB(8)

static const struct piece {
	size_t off;
	size_t len;
} pieces[] = {
	{ 0, KB(4) },
	{ KB(4), KB(4) },
	{ MB(1), KB(8) },
	{ MB(2) - KB(4), KB(4) },
	{ MB(2) - KB(4), KB(8) },
	{ MB(2), MB(2) },
	{ MB(3), MB(2) },
	{ MB(1), MB(4) + KB(4) },
	{ 0, MB(4) },
	{ MB(6), MB(2) },
	{ MB(8) - KB(4), KB(4) },
};

/* A mapping of its own that starts on a slot; nothing is mapped around it. */
static char *map_filled(void)
{
	char *room = free_range(USED + 2 * SLOT);
	char *base = map_flags(room + SLOT, USED, RW, ANON | MAP_FIXED_NOREPLACE);

	fill(base, USED, 5);
	return base;
}

static void verify_around(const char *base, const struct piece *piece)
{
	size_t end = piece->off + piece->len;

	watch_begin();
	verify(base, piece->off, 5, 0);
	verify(base + end, USED - end, 5, end);
	watch_end();
	EXPECT_NO_FAULTS(base, piece->off);
	EXPECT_NO_FAULTS(base + end, USED - end);
}

static void write_around(char *base, const struct piece *piece)
{
	size_t end = piece->off + piece->len;

	CHECK_TOUCH(base, piece->off);
	CHECK_TOUCH(base + end, USED - end);
}

static void holes(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
		const struct piece *piece = &pieces[i];
		char *base = map_filled();
		char *hole = base + piece->off;

		unmap(hole, piece->len);
		CHECK_READ_SEGV(hole, SEGV_MAPERR);
		CHECK_WRITE_SEGV(hole + piece->len - 1, SEGV_MAPERR);
		verify_around(base, piece);
		write_around(base, piece);
		/* Mapped again it is new memory. */
		map_flags(hole, piece->len, RW, ANON | MAP_FIXED_NOREPLACE);
		watch_begin();
		verify_zero(hole, piece->len);
		EXPECT_NO_FAULTS(hole, piece->len);
		verify_around(base, piece);
		unmap(base, USED);
		CHECK_READ_SEGV(base, SEGV_MAPERR);
		CHECK_READ_SEGV(base + USED - 1, SEGV_MAPERR);
	}
}

static void many_holes(void)
{
	char *base = map_filled();

	/* Every second page of a slot and its neighbours. */
	for (size_t off = MB(1); off < MB(5); off += 2 * PAGE)
		unmap(base + off, PAGE);
	for (size_t off = MB(1); off < MB(5); off += 2 * PAGE) {
		watch_begin();
		verify(base + off + PAGE, PAGE, 5, off + PAGE);
		EXPECT_NO_FAULTS(base + off + PAGE, PAGE);
	}
	for (size_t off = MB(1); off < MB(5); off += 64 * PAGE)
		CHECK_READ_SEGV(base + off, SEGV_MAPERR);
	verify(base, MB(1), 5, 0);
	verify(base + MB(5), MB(3), 5, MB(5));
	/* Ranges with holes can be unmapped; so can what is not mapped at all. */
	CHECK_OK(munmap(base, USED));
	CHECK_OK(munmap(base, USED));
	CHECK_EQ(vma_count(base, USED), 0);
}

static void unmap_beyond_the_mapping(void)
{
	char *base = map_filled();

	unmap(base - SLOT, SLOT + PAGE);
	CHECK_READ_SEGV(base, SEGV_MAPERR);
	unmap(base + USED - PAGE, SLOT);
	CHECK_READ_SEGV(base + USED - PAGE, SEGV_MAPERR);
	watch_begin();
	verify(base + PAGE, USED - 2 * PAGE, 5, PAGE);
	EXPECT_NO_FAULTS(base + PAGE, USED - 2 * PAGE);
	unmap(base, USED);
}

static void unmap_errors(void)
{
	char *base = map_filled();

	CHECK_ERR(munmap(base + 1, PAGE), EINVAL);
	CHECK_ERR(munmap(base, 0), EINVAL);
	CHECK_ERR(munmap((void *)(1UL << 56), PAGE), EINVAL);
	CHECK_ERR(munmap(base, (size_t)-PAGE), EINVAL);
	verify(base, USED, 5, 0);
	/* The length is rounded up. */
	unmap(base, 1);
	CHECK_READ_SEGV(base + PAGE - 1, SEGV_MAPERR);
	verify(base + PAGE, USED - PAGE, 5, PAGE);
	unmap(base, USED);
}

static void guard_pages(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
		const struct piece *piece = &pieces[i];
		char *base = map_filled();
		char *guard = base + piece->off;

		CHECK_OK(mprotect(guard, piece->len, PROT_NONE));
		CHECK_READ_SEGV(guard, SEGV_ACCERR);
		CHECK_WRITE_SEGV(guard, SEGV_ACCERR);
		CHECK_READ_SEGV(guard + piece->len - 1, SEGV_ACCERR);
		verify_around(base, piece);
		write_around(base, piece);
		/* Opened again it has its content. */
		CHECK_OK(mprotect(guard, piece->len, RW));
		watch_begin();
		verify(base, USED, 5, 0);
		EXPECT_NO_FAULTS(base, USED);
		CHECK_TOUCH(base, USED);
		CHECK_EQ(vma_count(base, USED), 1);
		check_2m(base, USED);
		unmap(base, USED);
	}
}

/*
 * There is no instruction left to go on with, and nothing that a process which ends
 * could take apart; what it had comes back all the same.
 */
static void unmap_everything(void)
{
	char *p = map_anon(MB(4));
	pid_t pid;

	fill(p, MB(4), 1);
	pid = fork_child();
	if (!pid) {
		fill(p, MB(4), 2);
		munmap(NULL, 0x7ffffffff000);
		_exit(0);
	}
	expect_signal(pid, SIGSEGV);
	verify(p, MB(4), 1, 0);
	CHECK_TOUCH(p, MB(4));
	unmap(p, MB(4));
}

static void read_only(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
		const struct piece *piece = &pieces[i];
		char *base = map_filled();
		char *part = base + piece->off;

		CHECK_OK(mprotect(part, piece->len, PROT_READ));
		watch_begin();
		verify(base, USED, 5, 0);
		EXPECT_NO_FAULTS(base, USED);
		CHECK_WRITE_SEGV(part, SEGV_ACCERR);
		CHECK_WRITE_SEGV(part + piece->len - 1, SEGV_ACCERR);
		write_around(base, piece);
		verify(base, USED, 5, 0);
		CHECK_OK(mprotect(part, piece->len, RW));
		CHECK_TOUCH(base, USED);
		verify(base, USED, 5, 0);
		check_2m(base, USED);
		unmap(base, USED);
	}
}

/* The way of allocators: reserve, then commit and decommit page by page. */
static void commit_step_by_step(void)
{
	char *room = free_range(MB(6));
	char *base = map_flags(room, MB(6), PROT_NONE,
			       ANON | MAP_NORESERVE | MAP_FIXED_NOREPLACE);
	const size_t step = KB(132);
	size_t done;

	for (done = 0; done + step <= MB(6); done += step) {
		CHECK_OK(mprotect(base + done, step, RW));
		watch_begin();
		verify_zero(base + done, step);
		fill(base + done, step, done);
		EXPECT_NO_FAULTS(base, done + step);
		CHECK_READ_SEGV(base + done + step, SEGV_ACCERR);
	}
	for (size_t off = 0; off < done; off += step) {
		watch_begin();
		verify(base + off, step, off, 0);
		EXPECT_NO_FAULTS(base + off, step);
	}
	check_2m(base, done);
	unmap(base, MB(6));
}

static void alternating_protections(void)
{
	char *base = map_filled();

	for (size_t off = 0; off < USED; off += 256 * PAGE)
		CHECK_OK(mprotect(base + off, PAGE, PROT_NONE));
	for (size_t off = 0; off < USED; off += 256 * PAGE) {
		CHECK_READ_SEGV(base + off, SEGV_ACCERR);
		watch_begin();
		verify(base + off + PAGE, 255 * PAGE, 5, off + PAGE);
		EXPECT_NO_FAULTS(base + off + PAGE, 255 * PAGE);
	}
	CHECK_OK(mprotect(base, USED, PROT_READ));
	watch_begin();
	verify(base, USED, 5, 0);
	EXPECT_NO_FAULTS(base, USED);
	CHECK_WRITE_SEGV(base + MB(3), SEGV_ACCERR);
	CHECK_OK(mprotect(base, USED, RW));
	CHECK_TOUCH(base, USED);
	CHECK_EQ(vma_count(base, USED), 1);
	check_2m(base, USED);
	verify(base, USED, 5, 0);
	unmap(base, USED);
}

/* mov $value, %eax; ret */
static void write_function(unsigned char *at, uint32_t value)
{
	at[0] = 0xb8;
	memcpy(at + 1, &value, sizeof(value));
	at[5] = 0xc3;
}

static uint32_t call_function(const unsigned char *at)
{
	uint32_t (*function)(void);

	memcpy(&function, &at, sizeof(function));
	return function();
}

static void generated_code(void)
{
	static const size_t offs[] = { 0, PAGE, MB(2), MB(5) + 3 * PAGE };
	char *base = map_filled();

	for (size_t i = 0; i < ARRAY_SIZE(offs); i++) {
		unsigned char *at = (unsigned char *)base + offs[i];

		for (uint32_t round = 0; round < 2; round++) {
			write_function(at, 1000 + round);
			CHECK_OK(mprotect(at, PAGE, PROT_READ | PROT_EXEC));
			watch_begin();
			CHECK_EQ(call_function(at), 1000 + round);
			EXPECT_NO_FAULTS(at, PAGE);
			CHECK_WRITE_SEGV(at, SEGV_ACCERR);
			CHECK_OK(mprotect(at, PAGE, RW));
		}
	}
	verify(base + 2 * PAGE, MB(2) - 2 * PAGE, 5, 2 * PAGE);
	unmap(base, USED);

	base = map_flags(NULL, MB(2), RW | PROT_EXEC, ANON);
	write_function((unsigned char *)base + MB(1), 7);
	CHECK_EQ(call_function((unsigned char *)base + MB(1)), 7);
	check_2m(base, MB(2));
	unmap(base, MB(2));
}

static void protect_errors(void)
{
	char *base = map_filled();

	CHECK_ERR(mprotect(base + 1, PAGE, PROT_READ), EINVAL);
	CHECK_ERR(mprotect(base, PAGE, 0x1000), EINVAL);
	CHECK_ERR(mprotect(base, PAGE, PROT_READ | PROT_GROWSDOWN | PROT_GROWSUP),
		  EINVAL);
	CHECK_ERR(mprotect(base, PAGE, PROT_READ | PROT_GROWSDOWN), EINVAL);
	CHECK_ERR(mprotect(base, (size_t)-PAGE, PROT_READ), ENOMEM);
	CHECK_OK(mprotect(base, 0, PROT_NONE));
	CHECK_TOUCH(base, USED);
	verify(base, USED, 5, 0);

	/* What lies before a hole changes, what lies after it does not. */
	unmap(base + MB(3), PAGE);
	CHECK_ERR(mprotect(base + MB(3), PAGE, PROT_READ), ENOMEM);
	CHECK_ERR(mprotect(base + MB(2), MB(2), PROT_READ), ENOMEM);
	CHECK_WRITE_SEGV(base + MB(2), SEGV_ACCERR);
	CHECK_WRITE_SEGV(base + MB(3) - PAGE, SEGV_ACCERR);
	CHECK_TOUCH(base, MB(2));
	CHECK_TOUCH(base + MB(3) + PAGE, USED - MB(3) - PAGE);
	watch_begin();
	verify(base, MB(3), 5, 0);
	EXPECT_NO_FAULTS(base, MB(3));
	verify(base + MB(3) + PAGE, USED - MB(3) - PAGE, 5, MB(3) + PAGE);
	/* The length is rounded up. */
	CHECK_OK(mprotect(base, PAGE + 1, PROT_NONE));
	CHECK_READ_SEGV(base + 2 * PAGE - 1, SEGV_ACCERR);
	verify(base + 2 * PAGE, MB(1), 5, 2 * PAGE);
	unmap(base, USED);
}

static void two_mappings_at_once(void)
{
	char *room = free_range(MB(8));
	char *base = map_flags(room, MB(3), RW, ANON | MAP_FIXED_NOREPLACE);

	map_flags(room + MB(3), MB(5), PROT_READ, ANON | MAP_FIXED_NOREPLACE);
	fill(base, MB(3), 5);
	CHECK_OK(mprotect(base + MB(1), MB(4), RW));
	watch_begin();
	verify_zero(base + MB(3), MB(5));
	fill(base + MB(3), MB(2), 6);
	EXPECT_NO_FAULTS(base, MB(8));
	CHECK_WRITE_SEGV(base + MB(5), SEGV_ACCERR);
	verify(base, MB(3), 5, 0);
	unmap(base + MB(1), MB(5));
	CHECK_EQ(vma_count(base + MB(1), MB(5)), 0);
	verify(base, MB(1), 5, 0);
	verify_zero(base + MB(6), MB(2));
	unmap(room, MB(8));
}

int main(void)
{
	static const struct test tests[] = {
		T(holes),
		T(many_holes),
		T(unmap_beyond_the_mapping),
		T(unmap_errors),
		T(guard_pages),
		T(unmap_everything),
		T(read_only),
		T(commit_step_by_step),
		T(alternating_protections),
		T(generated_code),
		T(protect_errors),
		T(two_mappings_at_once),
	};

	return RUN_GROUP("sem_unmap_protect", tests);
}
