// SPDX-License-Identifier: GPL-2.0
/* mmap(2): content, placement, fixed mappings, reservations, errors. */
#include "common.h"
#include "at_once.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static void zero_content(void)
{
	static const size_t sizes[] = {
		KB(4), KB(12), KB(64), MB(2) - KB(4), MB(2), MB(2) + KB(4),
		MB(6) + KB(8),
	};

	/* Twice: memory that was used before has to read zero as well. */
	for (int round = 0; round < 2; round++) {
		for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
			char *p = map_anon(sizes[i]);

			watch_begin();
			verify_zero(p, sizes[i]);
			fill(p, sizes[i], i);
			EXPECT_NO_FAULTS(p, sizes[i]);
			verify(p, sizes[i], i, 0);
			unmap(p, sizes[i]);
		}
	}
}

static void length_is_rounded_up(void)
{
	char *base = free_range(MB(2));
	char *p = map_flags(base, PAGE + 1, RW, ANON | MAP_FIXED_NOREPLACE);

	verify_zero(p, 2 * PAGE);
	fill(p, 2 * PAGE, 1);
	CHECK_READ_SEGV(p + 2 * PAGE, SEGV_MAPERR);
	verify(p, 2 * PAGE, 1, 0);
	unmap(p, PAGE + 1);
	CHECK_READ_SEGV(p + PAGE, SEGV_MAPERR);
}

static void large_mappings_are_aligned(void)
{
	static const size_t sizes[] = { MB(2), MB(2) + KB(4), MB(5), MB(64) };

	skip_unless_registered();
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		char *p = map_anon(sizes[i]);

		CHECK_EQ((uintptr_t)p % SLOT, 0);
		check_2m(p, sizes[i]);
		unmap(p, sizes[i]);
	}
}

static const struct piece {
	size_t off;
	size_t len;
} pieces[] = {
	{ 0, KB(4) },
	{ KB(4), KB(4) },
	{ MB(2) - KB(4), KB(4) },
	{ MB(2) - KB(4), KB(8) },
	{ MB(4), MB(2) },
	{ MB(3), MB(2) },
	{ MB(5) + KB(4), KB(64) },
	{ 0, MB(2) },
	{ MB(8) - KB(4), KB(4) },
	{ MB(6), MB(2) },
	{ MB(1), MB(6) },
	{ 0, MB(8) },
	{ MB(7), MB(4) },
	{ KB(4), MB(8) },
};

#define ROOM	MB(12)
#define USED	MB(8)

/* What of [0, USED) was outside the piece still holds the fill. */
static void verify_around(const char *base, const struct piece *piece)
{
	size_t end = piece->off + piece->len;

	verify(base, piece->off < USED ? piece->off : USED, 5, 0);
	if (end < USED)
		verify(base + end, USED - end, 5, end);
}

static void fixed_anon_over_anon(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
		const struct piece *piece = &pieces[i];
		char *base = free_range(ROOM);

		map_flags(base, USED, RW, ANON | MAP_FIXED_NOREPLACE);
		fill(base, USED, 5);
		map_flags(base + piece->off, piece->len, RW, ANON | MAP_FIXED);
		watch_begin();
		verify_zero(base + piece->off, piece->len);
		verify_around(base, piece);
		stamp(base + piece->off, piece->len, 6);
		verify_stamp(base + piece->off, piece->len, 6);
		EXPECT_NO_FAULTS(base, ROOM);
		verify_around(base, piece);
		unmap(base, ROOM);
	}
}

static void fixed_none_over_anon_and_back(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
		const struct piece *piece = &pieces[i];
		char *base = free_range(ROOM);

		map_flags(base, USED, RW, ANON | MAP_FIXED_NOREPLACE);
		fill(base, USED, 5);
		map_flags(base + piece->off, piece->len, PROT_NONE, ANON | MAP_FIXED);
		CHECK_READ_SEGV(base + piece->off, SEGV_ACCERR);
		CHECK_READ_SEGV(base + piece->off + piece->len - 1, SEGV_ACCERR);
		verify_around(base, piece);
		map_flags(base + piece->off, piece->len, RW, ANON | MAP_FIXED);
		watch_begin();
		verify_zero(base + piece->off, piece->len);
		verify_around(base, piece);
		EXPECT_NO_FAULTS(base, USED);
		unmap(base, ROOM);
	}
}

/* A file of ROOM bytes with the fill of seed 9. */
static int pattern_file(void)
{
	int fd = memfd_create("pattern", MFD_CLOEXEC);
	char *p;

	CHECK_OK(fd);
	CHECK_OK(ftruncate(fd, (off_t)ROOM));
	p = mmap(NULL, ROOM, RW, MAP_SHARED, fd, 0);
	CHECK_OK(p);
	fill(p, ROOM, 9);
	unmap(p, ROOM);
	return fd;
}

/* Nobody could write to what was there: who does has found what took its place. */
static void fixed_over_none_written_at_once(void)
{
	for (int i = 0; i < 64; i++) {
		pthread_t threads[AT_ONCE_THREADS];
		char *p;

		at_once_start(threads);
		p = map_flags(free_range(MB(16)), MB(16), RW, ANON | MAP_FIXED_NOREPLACE);
		fill(p, AT_ONCE_THREADS * PAGE, 7);
		CHECK_OK(mprotect(p, MB(16), PROT_NONE));
		at_once_place = p;
		map_flags(p, MB(16), RW, ANON | MAP_FIXED);
		at_once_check(threads, p);
		verify_zero(p + AT_ONCE_THREADS * PAGE, MB(16) - AT_ONCE_THREADS * PAGE);
		unmap(p, MB(16));
	}
}

/* A mapping that grows consists of two: nothing of it is there before it is what stays. */
static void growing_written_at_once(void)
{
	for (int i = 0; i < 64; i++) {
		pthread_t threads[AT_ONCE_THREADS];
		char *p;

		at_once_start(threads);
		p = free_range(MB(20)) + MB(4);
		if (i & 1) {
			map_flags(p, MB(16), RW, ANON | MAP_FIXED_NOREPLACE);
			fill(p, AT_ONCE_THREADS * PAGE, 7);
			CHECK_OK(mprotect(p, MB(16), PROT_NONE));
		}
		at_once_place = p;
		map_flags(p, MB(16), RW, ANON | MAP_GROWSDOWN |
			  (i & 1 ? MAP_FIXED : MAP_FIXED_NOREPLACE));
		at_once_check(threads, p);
		verify_zero(p + AT_ONCE_THREADS * PAGE, MB(16) - AT_ONCE_THREADS * PAGE);
		unmap(p, MB(16));
	}
}

/* What grows in the place of @len bytes of seed 7 at @p, from @at on: if Linux refuses it nothing has changed. */
static void grow_over(char *p, size_t len, char *at, size_t size, int refused)
{
	char *got = mmap(at, size, RW, ANON | MAP_GROWSDOWN | MAP_FIXED, -1, 0);
	int err = errno;

	if (refused)
		CHECK(got == MAP_FAILED && err == refused);
	if (got == MAP_FAILED) {
		verify(p, len, 7, 0);
		return;
	}
	CHECK(got == at);
	verify_zero(at, size);
	verify(p, (size_t)(at - p), 7, 0);
	verify(at + size, len - (size_t)(at - p) - size, 7, (size_t)(at - p) + size);
}

/* Returns what was set, or 0. */
static unsigned long set_sysctl(const char *name, unsigned long value)
{
	char path[64], text[32] = "";
	int fd;

	snprintf(path, sizeof(path), "/proc/sys/vm/%s", name);
	fd = open(path, (value ? O_RDWR : O_RDONLY) | O_CLOEXEC);
	if (fd < 0 || read(fd, text, sizeof(text) - 1) < 0)
		text[0] = '\0';
	/* What is written behind the start is ignored. */
	else if (value && (lseek(fd, 0, SEEK_SET) != 0 || dprintf(fd, "%lu", value) < 0))
		text[0] = '\0';
	close(fd);
	return strtoul(text, NULL, 10);
}

static bool set_raw_io(bool effective)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];

	CHECK_OK(syscall(SYS_capget, &head, data));
	if (effective)
		data[0].effective |= 1U << CAP_SYS_RAWIO;
	else
		data[0].effective &= ~(1U << CAP_SYS_RAWIO);
	return syscall(SYS_capset, &head, data) == 0;
}

/* Below vm.mmap_min_addr. */
static void growing_too_low(void)
{
	char *p = (char *)set_sysctl("mmap_min_addr", 0);

	if (!p)
		SKIP("there is no lowest address");
	map_flags(p, MB(3), RW, ANON | MAP_FIXED_NOREPLACE);
	fill(p, MB(3), 7);
	CHECK(set_raw_io(false));
	grow_over(p, MB(3), p - PAGE, MB(2), EPERM);
	if (!set_raw_io(true))
		note("CAP_SYS_RAWIO is gone");
	unmap(p, MB(3));
}

/* One page more than RLIMIT_AS leaves. */
static void growing_too_large(void)
{
	char *base = free_range(MB(4)), *p = base + PAGE;
	struct rlimit old, limit;
	unsigned long pages = 0;
	FILE *file;

	map_flags(p, MB(4) - PAGE, RW, ANON | MAP_FIXED_NOREPLACE);
	fill(p, MB(4) - PAGE, 7);
	CHECK_OK(getrlimit(RLIMIT_AS, &old));
	limit = old;
	file = fopen("/proc/self/statm", "re");
	CHECK(file && fscanf(file, "%lu", &pages) == 1);
	limit.rlim_cur = pages * PAGE;
	CHECK_OK(setrlimit(RLIMIT_AS, &limit));
	grow_over(p, MB(4) - PAGE, base, MB(3), ENOMEM);
	CHECK_OK(setrlimit(RLIMIT_AS, &old));
	fclose(file);
	unmap(base, MB(4));
}

/* With as many mappings as there may be, and some fewer. */
static void growing_one_too_many(void)
{
	for (unsigned long left = 0; left < 8; left++) {
		char *p = map_anon(MB(8));
		unsigned long old, nr = left;
		FILE *maps;

		fill(p, MB(8), 7);
		maps = fopen("/proc/self/maps", "re");
		CHECK(maps);
		for (int c; (c = getc(maps)) != EOF;)
			nr += c == '\n';
		fclose(maps);
		old = set_sysctl("max_map_count", nr - 3);
		if (!old)
			SKIP("vm.max_map_count cannot be set");
		grow_over(p, MB(8), p + MB(1), MB(4), 0);
		set_sysctl("max_map_count", old);
		unmap(p, MB(8));
	}
}

/* What is locked is filled while it is mapped, by who has kept the others out. */
static void fixed_and_locked_over_anon(void)
{
	char *p = map_anon(MB(4));

	fill(p, MB(4), 7);
	map_flags(p + MB(1), MB(2), RW, ANON | MAP_FIXED | MAP_LOCKED);
	watch_begin();
	verify_zero(p + MB(1), MB(2));
	EXPECT_NO_FAULTS(p, MB(4));
	verify(p, MB(1), 7, 0);
	verify(p + MB(3), MB(1), 7, MB(3));
	unmap(p, MB(4));
}

static void fixed_file_over_anon(void)
{
	static const int kinds[] = { MAP_SHARED, MAP_PRIVATE };
	int fd = pattern_file();

	for (size_t i = 0; i < 2 * ARRAY_SIZE(pieces); i++) {
		const struct piece *piece = &pieces[i / 2];
		char *base = free_range(ROOM);
		char *p;

		map_flags(base, USED, RW, ANON | MAP_FIXED_NOREPLACE);
		fill(base, USED, 5);
		p = mmap(base + piece->off, piece->len, RW, kinds[i % 2] | MAP_FIXED,
			 fd, (off_t)piece->off);
		CHECK(p == base + piece->off);
		verify(p, piece->len, 9, piece->off);
		verify_around(base, piece);
		CHECK_TOUCH(base, piece->off < USED ? piece->off : USED);
		unmap(base, ROOM);
	}
	close(fd);
}

static void fixed_anon_over_file(void)
{
	static const int kinds[] = { MAP_SHARED, MAP_PRIVATE };
	int fd = pattern_file();

	for (size_t i = 0; i < 2 * ARRAY_SIZE(pieces); i++) {
		const struct piece *piece = &pieces[i / 2];
		size_t end = piece->off + piece->len;
		char *base = mmap(NULL, ROOM, RW, kinds[i % 2], fd, 0);

		CHECK_OK(base);
		map_flags(base + piece->off, piece->len, RW, ANON | MAP_FIXED);
		watch_begin();
		verify_zero(base + piece->off, piece->len);
		fill(base + piece->off, piece->len, 6);
		EXPECT_NO_FAULTS(base + piece->off, piece->len);
		verify(base, piece->off, 9, 0);
		verify(base + end, ROOM - end, 9, end);
		unmap(base, ROOM);
	}
	close(fd);
}

static void noreplace(void)
{
	char *base = free_range(MB(8));

	map_flags(base, MB(4), RW, ANON | MAP_FIXED_NOREPLACE);
	fill(base, MB(4), 1);
	CHECK_ERR(mmap(base, MB(2), RW, ANON | MAP_FIXED_NOREPLACE, -1, 0), EEXIST);
	CHECK_ERR(mmap(base + MB(1), PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0),
		  EEXIST);
	CHECK_ERR(mmap(base + MB(4) - PAGE, 2 * PAGE, RW,
		       ANON | MAP_FIXED_NOREPLACE, -1, 0), EEXIST);
	CHECK_READ_SEGV(base + MB(4), SEGV_MAPERR);
	map_flags(base + MB(4), PAGE, RW, ANON | MAP_FIXED_NOREPLACE);
	CHECK_TOUCH(base, MB(4) + PAGE);
	verify(base, MB(4), 1, 0);
	unmap(base, MB(4) + PAGE);
}

static void hints(void)
{
	char *base = free_range(MB(16));
	char *other;

	/* A free place is taken as it is, rounded down to a page. */
	CHECK(map_flags(base, MB(4), RW, ANON) == (void *)base);
	CHECK(map_flags(base + MB(8) + PAGE, PAGE, RW, ANON) ==
	      (void *)(base + MB(8) + PAGE));
	CHECK(map_flags(base + MB(10) + 123, MB(2), RW, ANON) ==
	      (void *)(base + MB(10)));
	fill(base, MB(4), 1);
	/* An occupied one is not. */
	other = map_flags(base + MB(1), MB(2), RW, ANON);
	CHECK(other >= base + MB(4) || other + MB(2) <= base);
	verify_zero(other, MB(2));
	fill(other, MB(2), 2);
	verify(base, MB(4), 1, 0);
	CHECK_TOUCH(base + MB(8) + PAGE, PAGE);
	CHECK_TOUCH(base + MB(10), MB(2));
	unmap(other, MB(2));
	unmap(base, MB(16));
}

static void below_2g(void)
{
	char *p = map_flags(NULL, MB(4) + PAGE, RW, ANON | MAP_32BIT);

	CHECK((uintptr_t)p + MB(4) + PAGE <= GB(2));
	watch_begin();
	verify_zero(p, MB(4) + PAGE);
	fill(p, MB(4) + PAGE, 1);
	EXPECT_NO_FAULTS(p, MB(4) + PAGE);
	unmap(p, MB(4) + PAGE);
}

static uint64_t held_bytes(void)
{
	return registered() ? context_value("held_bytes") : 0;
}

/* A reservation costs nothing; pieces committed by call() do, up front. */
static void check_reservation(int prot, int flags, bool by_mprotect)
{
	static const size_t offs[] = { 0, GB(1) + PAGE, GB(512) + MB(1), TB(1) - MB(8) };
	size_t available = meminfo("MemAvailable");
	uint64_t held = held_bytes();
	char *base = mmap(NULL, TB(1), prot, flags, -1, 0);

	if (base == MAP_FAILED)
		FAIL("reserving 1 TB (%#x, %#x): %s", (unsigned int)prot,
		     (unsigned int)flags, errno_name(errno));
	CHECK_EQ(held_bytes(), held);
	CHECK(meminfo("MemAvailable") + MB(256) > available);
	for (size_t i = 0; i < ARRAY_SIZE(offs); i++) {
		char *p = base + offs[i];

		if (by_mprotect)
			CHECK_OK(mprotect(p, MB(8), RW));
		else
			map_flags(p, MB(8), RW, ANON | MAP_FIXED);
		watch_begin();
		verify_zero(p, MB(8));
		fill(p, MB(8), i);
		EXPECT_NO_FAULTS(p, MB(8));
		if (prot == PROT_NONE) {
			CHECK_READ_SEGV(p + MB(8) - (i == 3 ? MB(9) : 0), SEGV_ACCERR);
			check_2m(p, MB(8));
		}
	}
	for (size_t i = 0; i < ARRAY_SIZE(offs); i++)
		verify(base + offs[i], MB(8), i, 0);
	if (registered())
		CHECK(held_bytes() - held <= ARRAY_SIZE(offs) * MB(12));
	unmap(base, TB(1));
	if (registered())
		CHECK(held_bytes() <= held);
}

static void none_noreserve_committed_by_mprotect(void)
{
	check_reservation(PROT_NONE, ANON | MAP_NORESERVE, true);
}

static void none_noreserve_committed_by_mmap(void)
{
	check_reservation(PROT_NONE, ANON | MAP_NORESERVE, false);
}

static void none_committed_by_mprotect(void)
{
	check_reservation(PROT_NONE, ANON, true);
}

static void none_committed_by_mmap(void)
{
	check_reservation(PROT_NONE, ANON, false);
}

static void rw_noreserve_committed_by_mmap(void)
{
	check_reservation(RW, ANON | MAP_NORESERVE, false);
}

/* Linux lets a program use such memory without any further call. */
static void rw_noreserve_without_commit(void)
{
	static const size_t offs[] = { 0, MB(2) + PAGE, GB(700) + 5 * PAGE, TB(1) - PAGE };
	uint64_t held = held_bytes();
	char *base = map_flags(NULL, TB(1), RW, ANON | MAP_NORESERVE);

	for (size_t i = 0; i < ARRAY_SIZE(offs); i++) {
		verify_zero(base + offs[i], PAGE);
		fill(base + offs[i], PAGE, i);
	}
	for (size_t i = 0; i < ARRAY_SIZE(offs); i++)
		verify(base + offs[i], PAGE, i, 0);
	CHECK_OK(madvise(base, TB(1), MADV_DONTNEED));
	for (size_t i = 0; i < ARRAY_SIZE(offs); i++)
		verify_zero(base + offs[i], PAGE);
	unmap(base, TB(1));
	if (registered())
		CHECK(held_bytes() <= held);
}

/* What touching a reservation costs, and that it is there afterwards. */
static void check_reserved_faults(char *p, size_t len, uint64_t most)
{
	struct totals before = totals_now();

	stamp(p, len, 8);
	if (registered())
		CHECK(totals_now().user - before.user <= most);
	watch_begin();
	verify_stamp(p, len, 8);
	EXPECT_NO_FAULTS(p, len);
}

/* One fault for each slot, whatever part of it the mapping covers. */
static void noreserve_takes_a_fault_a_slot(void)
{
	char *base = free_range(MB(8)), *p;
	const int flags = ANON | MAP_NORESERVE | MAP_FIXED_NOREPLACE;

	p = map_flags(base, MB(1), RW, flags);
	check_reserved_faults(p, MB(1), 1);
	unmap(p, MB(1));

	p = map_flags(base + KB(512), MB(3), RW, flags);
	/* Read first, and not from its start. */
	CHECK_EQ(p[MB(1)], 0);
	check_reserved_faults(p, MB(3), 1);
	unmap(p, MB(3));

	/* What is only read is written to by a fault of its own at most. */
	p = map_flags(base, MB(1), PROT_READ, flags);
	verify_zero(p, MB(1));
	CHECK_OK(mprotect(p, MB(1), RW));
	check_reserved_faults(p, MB(1), 0);

	p = mremap(p, MB(1), MB(3), 0);
	CHECK_OK(p);
	check_reserved_faults(p, MB(3), 2);
	unmap(p, MB(3));

	/* What is locked when it is touched counts as locked, page by page. */
	p = map_flags(base, KB(64), RW, flags);
	CHECK_OK(mlock2(p, KB(64), MLOCK_ONFAULT));
	stamp(p, KB(64), 9);
	verify_stamp(p, KB(64), 9);
	unmap(p, KB(64));

	/* A slot that had a table of 4 KB entries, and is of one mapping now. */
	p = map_flags(base, MB(1), RW, flags);
	p[0] = 1;
	unmap(p, MB(1));
	p = map_flags(base, MB(2), RW, flags);
	check_reserved_faults(p, MB(2), 1);
	unmap(p, MB(2));
}

/* What the process has in pages of Linux that need no block. */
static uint64_t few_bytes(void)
{
	return registered() ? context_value("few_bytes") : 0;
}

/*
 * There are no more than @few bytes in few pages. There may be less: what was copied while a child
 * of this or of an earlier test had it, too, goes back at the first write after the child's end.
 */
static void check_few(uint64_t few)
{
	CHECK(few_bytes() <= few);
}

/*
 * A few pages over a library's mapping, as ld.so maps its bss, take no block, until
 * something else is mapped beside them.
 */
static void bss_of_a_library(void)
{
	uint64_t held = held_bytes(), few = few_bytes();
	int fd = memfd_create("library", MFD_CLOEXEC);
	char *base = free_range(MB(4)), *bss = base + KB(64), *other;
	pid_t pid;

	CHECK_OK(fd);
	CHECK_OK(ftruncate(fd, (off_t)KB(256)));
	CHECK_OK(mmap(base, KB(256), RW, MAP_PRIVATE | MAP_FIXED_NOREPLACE, fd, 0));
	close(fd);
	map_flags(bss, KB(52), RW, ANON | MAP_FIXED);
	if (registered()) {
		check_few(few + KB(52));
		CHECK_EQ(held_bytes(), held);
	}
	watch_begin();
	verify_zero(bss, KB(52));
	EXPECT_NO_FAULTS(bss, KB(52));
	CHECK_TOUCH(bss, KB(52));
	fill(bss, KB(52), 4);

	pid = fork_child();
	if (pid == 0) {
		verify(bss, KB(52), 4, 0);
		fill(bss, KB(52), 5);
		/* Of what else its parent has in few pages it has those that are not zero. */
		if (registered())
			CHECK(few_bytes() >= KB(52));
		verify(bss, KB(52), 5, 0);
		_exit(0);
	}
	fill(bss, KB(52), 6);
	expect_success(pid);
	verify(bss, KB(52), 6, 0);

	CHECK_OK(madvise(bss + KB(4), KB(8), MADV_DONTNEED));
	verify(bss, KB(4), 6, 0);
	verify_zero(bss + KB(4), KB(8));
	CHECK_OK(mprotect(bss, KB(4), PROT_READ));
	CHECK_WRITE_SEGV(bss, SEGV_ACCERR);
	CHECK_OK(mprotect(bss, KB(4), RW));
	CHECK_TOUCH(bss + KB(4), KB(48));
	fill(bss + KB(4), KB(48), 7);

	few = few_bytes();
	held = held_bytes();
	other = map_flags(base + MB(1), PAGE, RW, ANON | MAP_FIXED_NOREPLACE);
	if (registered()) {
		check_few(few - KB(52));
		CHECK_EQ(held_bytes() - held, SLOT);
	}
	verify(bss, KB(4), 6, 0);
	verify(bss + KB(4), KB(48), 7, 0);
	CHECK_TOUCH(bss, KB(52));
	CHECK_TOUCH(other, PAGE);
	unmap(other, PAGE);
	unmap(base, KB(256));
	if (registered())
		CHECK_EQ(held_bytes(), held);
}

/* Of a reservation, in slots of its own, a little is made accessible at @at. */
static char *piece_of_reservation(size_t at, size_t len)
{
	char *base = free_range(MB(8));

	map_flags(base, MB(8), PROT_NONE, ANON | MAP_NORESERVE | MAP_FIXED_NOREPLACE);
	CHECK_OK(mprotect(base + at, len, RW));
	return base;
}

/*
 * So it is with the first pieces of a reservation: the arenas of threads, the chunks
 * of a collector. One that grows has blocks.
 */
static void pieces_of_reservations(void)
{
	uint64_t held = held_bytes(), few = few_bytes();
	char *base = piece_of_reservation(0, KB(132)), *other = base + MB(5);
	pid_t pid;

	map_flags(other, KB(64), RW, ANON | MAP_FIXED);
	if (registered()) {
		check_few(few + KB(196));
		CHECK_EQ(held_bytes(), held);
	}
	watch_begin();
	verify_zero(base, KB(132));
	verify_zero(other, KB(64));
	fill(base, KB(132), 1);
	fill(other, KB(64), 2);
	EXPECT_NO_FAULTS(base, KB(132));

	pid = fork_child();
	if (pid == 0) {
		verify(base, KB(132), 1, 0);
		fill(base, KB(132), 3);
		CHECK_OK(mprotect(base, KB(512), RW));
		verify(base, KB(132), 3, 0);
		verify_zero(base + KB(132), KB(380));
		_exit(0);
	}
	expect_success(pid);
	/* What was copied of the heap may be few, too. */
	held = held_bytes();
	few = few_bytes() - (registered() ? KB(132) + KB(64) : 0);

	/* As much as a slot takes, changed there and back. */
	CHECK_OK(mprotect(base + KB(132), KB(124), RW));
	CHECK_OK(mprotect(base, KB(256), PROT_NONE));
	CHECK_READ_SEGV(base, SEGV_ACCERR);
	CHECK_OK(mprotect(base, KB(256), RW));
	verify(base, KB(132), 1, 0);
	CHECK_OK(madvise(base + KB(4), KB(8), MADV_DONTNEED));
	verify_zero(base + KB(4), KB(8));
	if (registered())
		CHECK_EQ(held_bytes(), held);

	/* Given up and taken again. */
	map_flags(other, KB(64), PROT_NONE, ANON | MAP_FIXED | MAP_NORESERVE);
	if (registered()) {
		check_few(few + KB(256));
		CHECK_EQ(held_bytes(), held);
	}
	CHECK_OK(mprotect(other, KB(64), RW));
	verify_zero(other, KB(64));
	fill(other, KB(64), 2);

	/* More than that, and on into the next slot. */
	fill(base, KB(256), 4);
	CHECK_OK(mprotect(base + KB(256), KB(4), RW));
	if (registered()) {
		check_few(few + KB(64));
		CHECK_EQ(held_bytes() - held, SLOT);
	}
	verify(base, KB(256), 4, 0);
	CHECK_OK(mprotect(base, SLOT, RW));
	CHECK_OK(mprotect(base + SLOT, KB(4), RW));
	watch_begin();
	verify_zero(base + KB(260), SLOT - KB(256));
	EXPECT_NO_FAULTS(base, SLOT + KB(4));
	if (registered())
		CHECK_EQ(held_bytes() - held, 2 * SLOT);
	verify(other, KB(64), 2, 0);
	unmap(base, MB(8));
	if (registered()) {
		check_few(few);
		CHECK_EQ(held_bytes(), held);
	}
}

/* A buffer of a power of two and a header before it: no block for what is beyond. */
static void tail_of_a_mapping(void)
{
	uint64_t held = held_bytes(), few = few_bytes();
	char *p = map_flags(free_range(MB(8)), SLOT + PAGE, RW, ANON), *grown;

	if (registered()) {
		check_few(few + PAGE);
		CHECK_EQ(held_bytes() - held, SLOT);
	}
	watch_begin();
	verify_zero(p, SLOT + PAGE);
	fill(p, SLOT + PAGE, 1);
	EXPECT_NO_FAULTS(p, SLOT + PAGE);
	/* What has all its memory gets no more. */
	CHECK_OK(mprotect(p, SLOT + PAGE, PROT_READ));
	CHECK_OK(mprotect(p, SLOT + PAGE, RW));
	if (registered())
		CHECK_EQ(held_bytes() - held, SLOT);
	grown = mremap(p, SLOT + PAGE, 2 * SLOT + PAGE, MREMAP_MAYMOVE);
	CHECK(grown != MAP_FAILED);
	verify(grown, SLOT + PAGE, 1, 0);
	watch_begin();
	verify_zero(grown + SLOT + PAGE, SLOT);
	EXPECT_NO_FAULTS(grown, 2 * SLOT + PAGE);
	unmap(grown, 2 * SLOT + PAGE);
	if (registered()) {
		check_few(few);
		CHECK_EQ(held_bytes(), held);
	}
}

/* However many there are, an address space has no more than 16 MB so. */
static void many_pieces(void)
{
	uint64_t held = held_bytes(), few = few_bytes();
	char *pieces[72];

	for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
		pieces[i] = piece_of_reservation(MB(4), KB(256));
		fill(pieces[i] + MB(4), KB(256), i);
	}
	if (registered()) {
		CHECK(few_bytes() <= MB(16));
		/* But for what went back: check_few(). */
		CHECK(few_bytes() - few + (held_bytes() - held) / 8 + KB(256) >=
		      ARRAY_SIZE(pieces) * KB(256));
	}
	for (size_t i = 0; i < ARRAY_SIZE(pieces); i++)
		verify(pieces[i] + MB(4), KB(256), i, 0);

	/* Nor by giving up half of them, using the room for others, and coming back. */
	for (size_t i = 0; i < ARRAY_SIZE(pieces) / 2; i++)
		map_flags(pieces[i] + MB(4), KB(256), PROT_NONE,
			  ANON | MAP_FIXED | MAP_NORESERVE);
	for (size_t i = 0; i < ARRAY_SIZE(pieces) / 2; i++)
		CHECK_OK(mprotect(pieces[i], KB(256), RW));
	for (size_t i = 0; i < ARRAY_SIZE(pieces) / 2; i++) {
		CHECK_OK(mprotect(pieces[i] + MB(4), KB(256), RW));
		verify_zero(pieces[i] + MB(4), KB(256));
	}
	if (registered())
		CHECK(few_bytes() <= MB(16));
	for (size_t i = 0; i < ARRAY_SIZE(pieces); i++)
		unmap(pieces[i], MB(8));
	if (registered()) {
		check_few(few);
		CHECK_EQ(held_bytes(), held);
	}
}

static void grows_down(void)
{
	char *base = free_range(MB(64));
	char *top = base + MB(64);
	char *p = map_flags(top - KB(64), KB(64), RW,
			    ANON | MAP_GROWSDOWN | MAP_FIXED_NOREPLACE);
	struct outcome got;

	verify_zero(p, KB(64));
	fill(p, KB(64), 1);
	for (int page = 1; page <= 32; page++) {
		got = probe_write(p - (size_t)page * PAGE);
		if (got.sig)
			FAIL("no growth at page %d below: signal %d code %d",
			     page, got.sig, got.code);
		verify_zero(p - (size_t)page * PAGE, PAGE);
	}
	fill(p - 32 * PAGE, 32 * PAGE, 2);
	verify(p, KB(64), 1, 0);
	verify(p - 32 * PAGE, 32 * PAGE, 2, 0);
	unmap(base, MB(64));
}

static void populate(void)
{
	char *p = map_flags(NULL, MB(3), RW, ANON | MAP_POPULATE);

	CHECK_TOUCH(p, MB(3));
	verify_zero(p, MB(3));
	unmap(p, MB(3));
}

static void locked(void)
{
	char *p = mmap(NULL, MB(3), RW, ANON | MAP_LOCKED, -1, 0);

	if (p == MAP_FAILED && (errno == EAGAIN || errno == EPERM))
		SKIP("RLIMIT_MEMLOCK is below 3 MB");
	CHECK_OK(p);
	CHECK_TOUCH(p, MB(3));
	verify_zero(p, MB(3));
	unmap(p, MB(3));
}

static void read_only_and_none(void)
{
	char *p = map_flags(NULL, MB(2), PROT_READ, ANON);
	char *none = map_flags(NULL, MB(2), PROT_NONE, ANON);

	verify_zero(p, MB(2));
	CHECK_WRITE_SEGV(p, SEGV_ACCERR);
	CHECK_WRITE_SEGV(p + MB(2) - 1, SEGV_ACCERR);
	CHECK_READ_SEGV(none, SEGV_ACCERR);
	CHECK_READ_SEGV(none + MB(2) - 1, SEGV_ACCERR);
	unmap(p, MB(2));
	unmap(none, MB(2));
}

static void write_seed_2(void *arg)
{
	fill(arg, MB(3), 2);
}

static void shared_anon_is_shared_with_children(void)
{
	char *p = map_flags(NULL, MB(3), RW, MAP_SHARED | MAP_ANONYMOUS);

	verify_zero(p, MB(3));
	fill(p, MB(3), 1);
	in_child(write_seed_2, p);
	verify(p, MB(3), 2, 0);
	unmap(p, MB(3));
}

static void private_anon_ignores_fd_and_offset(void)
{
	int fd = pattern_file();
	char *p = mmap(NULL, MB(2), RW, ANON, fd, (off_t)MB(2));

	CHECK_OK(p);
	verify_zero(p, MB(2));
	unmap(p, MB(2));
	close(fd);
}

static long raw_mmap(unsigned long addr, size_t len, int prot, int flags, int fd,
		     unsigned long off)
{
	return syscall(SYS_mmap, addr, len, prot, flags, fd, off);
}

static void errors(void)
{
	const unsigned long beyond = 1UL << 56;
	char *base = free_range(MB(4));
	unsigned long at = (unsigned long)base;

	CHECK_ERR(raw_mmap(0, 0, RW, ANON, -1, 0), EINVAL);
	CHECK_ERR(raw_mmap(at, 0, RW, ANON | MAP_FIXED, -1, 0), EINVAL);
	CHECK_ERR(raw_mmap(at + 1, PAGE, RW, ANON | MAP_FIXED, -1, 0), EINVAL);
	CHECK_ERR(raw_mmap(at + 8, PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0),
		  EINVAL);
	/* Neither shared nor private, and the validating kind without a file. */
	CHECK_ERR(raw_mmap(0, PAGE, RW, MAP_ANONYMOUS, -1, 0), EINVAL);
	CHECK_ERR(raw_mmap(0, PAGE, RW, MAP_ANONYMOUS | MAP_SHARED_VALIDATE, -1, 0),
		  EINVAL);
	/* An offset that is not a multiple of the page size. */
	CHECK_ERR(raw_mmap(0, PAGE, RW, ANON, -1, 1), EINVAL);
	CHECK_ERR(raw_mmap(0, PAGE, RW, MAP_PRIVATE, -1, 0), EBADF);
	CHECK_ERR(raw_mmap(0, (size_t)-PAGE, RW, ANON, -1, 0), ENOMEM);
	CHECK_ERR(raw_mmap(0, (size_t)-1, RW, ANON, -1, 0), ENOMEM);
	CHECK_ERR(raw_mmap(0, 1UL << 47, RW, ANON | MAP_NORESERVE, -1, 0), ENOMEM);
	CHECK_ERR(raw_mmap(beyond, PAGE, RW, ANON | MAP_FIXED, -1, 0), ENOMEM);
	CHECK_ERR(raw_mmap(beyond - MB(2), MB(4), RW, ANON | MAP_FIXED, -1, 0), ENOMEM);
	CHECK_READ_SEGV(base, SEGV_MAPERR);
}

static size_t small_size(size_t i)
{
	return PAGE * (1 + (i * 7 + i / 5) % 16);
}

static void small_mappings_are_packed(void)
{
	static char *p[512];
	uint64_t held = held_bytes();
	size_t total = 0;

	for (size_t i = 0; i < ARRAY_SIZE(p); i++) {
		p[i] = map_anon(small_size(i));
		watch_begin();
		verify_zero(p[i], small_size(i));
		fill(p[i], small_size(i), i);
		EXPECT_NO_FAULTS(p[i], small_size(i));
		total += small_size(i);
	}
	if (registered() && held_bytes() - held > 2 * total + 8 * SLOT)
		FAIL("%zu KB of small mappings hold %llu KB", total >> 10,
		     (unsigned long long)(held_bytes() - held) >> 10);
	for (size_t i = 0; i < ARRAY_SIZE(p); i++)
		verify(p[i], small_size(i), i, 0);
	for (size_t i = 0; i < ARRAY_SIZE(p); i += 2)
		unmap(p[i], small_size(i));
	for (size_t i = 1; i < ARRAY_SIZE(p); i += 2) {
		watch_begin();
		verify(p[i], small_size(i), i, 0);
		EXPECT_NO_FAULTS(p[i], small_size(i));
	}
	for (size_t i = 0; i < ARRAY_SIZE(p); i += 2) {
		p[i] = map_anon(small_size(i));
		watch_begin();
		verify_zero(p[i], small_size(i));
		fill(p[i], small_size(i), i + 1000);
		EXPECT_NO_FAULTS(p[i], small_size(i));
	}
	for (size_t i = 0; i < ARRAY_SIZE(p); i++) {
		verify(p[i], small_size(i), i % 2 ? i : i + 1000, 0);
		unmap(p[i], small_size(i));
	}
}

/* Memory given up comes back to the pool, whole or in parts. */
static void unmapped_memory_is_not_held(void)
{
	uint64_t held;
	char *p;

	skip_unless_registered();
	held = held_bytes();
	for (int round = 0; round < 8; round++) {
		p = map_anon(MB(32));
		CHECK(held_bytes() >= held + MB(30));
		stamp(p, MB(32), 1);
		unmap(p + MB(8), MB(16));
		CHECK(held_bytes() <= held + MB(18));
		verify_stamp(p, MB(8), 1);
		unmap(p, MB(32));
		CHECK(held_bytes() <= held + MB(2));
	}
}

/* A mapping without access in its place: how collectors and allocators give memory back. */
static void memory_made_a_reservation_is_not_held(void)
{
	uint64_t held;
	char *p;

	skip_unless_registered();
	p = map_anon(MB(32));
	held = held_bytes();
	stamp(p, MB(32), 1);
	stamp(p + MB(1), MB(7), 2);
	stamp(p + MB(24), MB(8), 3);
	map_flags(p + MB(8), MB(16), PROT_NONE, ANON | MAP_FIXED | MAP_NORESERVE);
	CHECK(held_bytes() <= held - MB(16));
	/* Part of a slot stays with the rest of it. */
	map_flags(p, MB(1), PROT_NONE, ANON | MAP_FIXED | MAP_NORESERVE);
	verify_stamp(p + MB(1), MB(7), 2);
	CHECK_OK(mprotect(p, MB(24), RW));
	CHECK(held_bytes() >= held);
	verify_zero(p, MB(1));
	verify_zero(p + MB(8), MB(16));
	verify_stamp(p + MB(24), MB(8), 3);
	unmap(p, MB(32));
}

/* More of them than are given back in one go, in any part of the tables that know them. */
static void many_slots_come_back_as_zeros(void)
{
	size_t len = MB(300);

	for (int round = 0; round < 3; round++) {
		char *p = map_anon(len);

		for (size_t off = 0; off < len; off += MB(2)) {
			CHECK_EQ(p[off], 0);
			CHECK_EQ(p[off + MB(1)], 0);
			p[off] = p[off + MB(1)] = 1;
		}
		unmap(p, len);
	}
}

int main(void)
{
	static const struct test tests[] = {
		T(zero_content),
		T(length_is_rounded_up),
		T(large_mappings_are_aligned),
		T(fixed_anon_over_anon),
		T(fixed_none_over_anon_and_back),
		T(fixed_over_none_written_at_once),
		T(growing_written_at_once),
		T(growing_too_low),
		T(growing_too_large),
		T(growing_one_too_many),
		T(fixed_and_locked_over_anon),
		T(fixed_file_over_anon),
		T(fixed_anon_over_file),
		T(noreplace),
		T(hints),
		T(below_2g),
		T(none_noreserve_committed_by_mprotect),
		T(none_noreserve_committed_by_mmap),
		T(none_committed_by_mprotect),
		T(none_committed_by_mmap),
		T(rw_noreserve_committed_by_mmap),
		T(rw_noreserve_without_commit),
		T(noreserve_takes_a_fault_a_slot),
		T(bss_of_a_library),
		T(pieces_of_reservations),
		T(tail_of_a_mapping),
		T(many_pieces),
		T(grows_down),
		T(populate),
		T(locked),
		T(read_only_and_none),
		T(shared_anon_is_shared_with_children),
		T(private_anon_ignores_fd_and_offset),
		T(errors),
		T(small_mappings_are_packed),
		T(unmapped_memory_is_not_held),
		T(memory_made_a_reservation_is_not_held),
		T(many_slots_come_back_as_zeros),
	};

	return RUN_GROUP("sem_mmap", tests);
}
