// SPDX-License-Identifier: GPL-2.0
/*
 * Copies after a fork: while parent and child live, a write to a 2 MB block copies only the
 * pages that are touched. Each process always sees its own contents.
 */
#include "copies.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define SLOTS		16
#define SIZE		(SLOTS * SLOT)
#define SLOT_PAGES	(SLOT / PAGE)

static void look(const char *p, size_t len)
{
	for (size_t at = 0; at < len; at += SLOT)
		verify_stamp(p + at, SLOT, 1);
}

static void look_at_all(char *p)
{
	look(p, SIZE);
}

static char *stamped(size_t len)
{
	char *p = map_anon(len);

	/* Each slot alike. */
	for (size_t at = 0; at < len; at += SLOT)
		stamp(p + at, SLOT, 1);
	return p;
}

static void scattered_writes_copy_little(void)
{
	char *p = stamped(SIZE);
	struct holder h;
	uint64_t before;

	hold(&h, look_at_all, p);
	before = copied();
	for (size_t page = 7; page < SIZE / PAGE; page += 64)
		*word(p, page) = page;
	/* The stack, and what the runner has, are copied by 2 MB. */
	if (registered())
		CHECK(copied() - before <= SIZE / 64 * 3 / 2 + MB(4));
	release(&h);
	look(p, SIZE);
	for (size_t page = 7; page < SIZE / PAGE; page += 64)
		CHECK_EQ(*word(p, page), page);
	CHECK_TOUCH(p, SIZE);
	check_2m(p, SIZE);
	unmap(p, SIZE);
}

/* A few pages of many slots take no block each; more of one slot take one. */
static void scattered_writes_take_little(void)
{
	char *p = stamped(SIZE);
	struct holder h;
	uint64_t before;

	hold(&h, look_at_all, p);
	before = held();
	for (size_t page = 7; page < SIZE / PAGE; page += 64)
		*word(p, page) = page;
	/* The stack may be, and what the runner has. */
	CHECK(held() <= before + MB(4));
	for (size_t page = 3; page < SLOT_PAGES; page += 4)
		*word(p, page) = page;
	CHECK(held() <= before + MB(6));
	look(p, SIZE);
	release(&h);
	for (size_t page = 3; page < SLOT_PAGES; page += 4)
		CHECK_EQ(*word(p, page), page);
	for (size_t page = 7; page < SIZE / PAGE; page += 64)
		CHECK_EQ(*word(p, page), page);
	CHECK_TOUCH(p, SIZE);
	check_2m(p, SIZE);
	unmap(p, SIZE);
}

static void every_page_of_a_slot(const size_t *order, size_t most_faults)
{
	char *p = stamped(SIZE);
	struct holder h;
	uint64_t before;

	hold(&h, look_at_all, p);
	before = copied();
	watch_begin();
	for (size_t i = 0; i < SLOT_PAGES; i++)
		*word(p + 3 * SLOT, order[i]) = i;
	watch_end();
	if (registered() && watch_available())
		CHECK(watch_user_faults(p, SIZE) <= most_faults);
	if (registered())
		CHECK(copied() - before <= SLOT + MB(4));
	for (size_t i = 0; i < SLOT_PAGES; i++)
		CHECK_EQ(*word(p + 3 * SLOT, order[i]), i);
	look(p, SIZE);
	CHECK_TOUCH(p + 3 * SLOT, SLOT);
	check_2m(p + 3 * SLOT, SLOT);
	release(&h);
	unmap(p, SIZE);
}

/* One after the other: some are copied ahead. */
static void writes_in_a_row(void)
{
	size_t order[SLOT_PAGES];

	for (size_t i = 0; i < SLOT_PAGES; i++)
		order[i] = i;
	every_page_of_a_slot(order, 24);
}

static void writes_in_any_order(void)
{
	size_t order[SLOT_PAGES];

	for (size_t i = 0; i < SLOT_PAGES; i++)
		order[i] = i * 211 % SLOT_PAGES;
	every_page_of_a_slot(order, SLOT_PAGES * 2 / 3 + 2);
}

/* Of who reads beside what he has written, the whole is copied soon. */
static void reads_beside_writes(void)
{
	char *p = stamped(SIZE);
	struct holder h;

	hold(&h, look_at_all, p);
	*word(p, 100) = 1;
	watch_begin();
	look(p, SLOT);
	watch_end();
	if (registered() && watch_available())
		CHECK(watch_user_faults(p, SLOT) <= 20);
	CHECK_TOUCH(p, SLOT);
	check_2m(p, SLOT);
	CHECK_EQ(*word(p, 100), 1);
	release(&h);
	unmap(p, SIZE);
}

static void look_without_copies(char *p)
{
	uint64_t before = copied();

	look(p, SIZE);
	/* The stack, and what the runner has. */
	CHECK(copied() - before <= MB(4));
}

/* Some switch huge pages off so that little is copied. */
static void reads_copy_nothing(void)
{
	for (int off = 0; off < 2; off++) {
		struct holder h;
		char *p;

		CHECK_OK(prctl(PR_SET_THP_DISABLE, off, 0, 0, 0));
		p = stamped(SIZE);
		hold(&h, look_without_copies, p);
		release(&h);
		unmap(p, SIZE);
	}
	CHECK_OK(prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0));
}

static void add(char *p, size_t first, size_t step, uint64_t what)
{
	for (size_t page = first; page < SIZE / PAGE; page += step)
		*word(p, page) += what;
}

/* Both write, to the same pages and to others; the child has a child that does. */
static void everybody_writes(void)
{
	char *p = stamped(SIZE);
	uint64_t sum[SIZE / PAGE] = { 0 };
	unsigned int generation = 0;
	pid_t pid;

	do {
		uint64_t who = ++generation;

		pid = fork_child();
		/* Parent and child alike; then each what is its own. */
		add(p, who, 37 * who, who);
		add(p, 0, 101, pid ? 0x100 : 0x10000);
		for (size_t page = who; page < SIZE / PAGE; page += 37 * who)
			sum[page] += who;
		for (size_t page = 0; page < SIZE / PAGE; page += 101)
			sum[page] += pid ? 0x100 : 0x10000;
	} while (!pid && generation < 3);
	for (size_t page = 0; page < SIZE / PAGE; page++)
		CHECK_EQ(*word(p, page), sum[page]);
	look(p, SIZE);
	if (pid)
		expect_success(pid);
	if (generation > 1 || !pid)
		_exit(0);
	unmap(p, SIZE);
}

/* A slot of which a little was copied, while a child holds the rest. */
static char *begun(struct holder *h)
{
	char *p = stamped(SIZE);

	hold(h, look_at_all, p);
	for (size_t slot = 0; slot < SLOTS; slot++) {
		*word(p, slot * SLOT_PAGES + 5) = 5;
		*word(p, slot * SLOT_PAGES + 300) = 300;
	}
	return p;
}

static void check_begun(const char *p, size_t slots)
{
	for (size_t slot = 0; slot < slots; slot++) {
		CHECK_EQ(*word((char *)p, slot * SLOT_PAGES + 5), 5);
		CHECK_EQ(*word((char *)p, slot * SLOT_PAGES + 300), 300);
		look(p + slot * SLOT, SLOT);
	}
}

static void as_begun(char *p)
{
	check_begun(p, SLOTS);
	for (size_t slot = 0; slot < SLOTS; slot++)
		CHECK_EQ(*word(p, slot * SLOT_PAGES + 6), 0);
}

static void fork_again(void)
{
	struct holder first, second;
	char *p = begun(&first);

	hold(&second, as_begun, p);
	for (size_t slot = 0; slot < SLOTS; slot++)
		*word(p, slot * SLOT_PAGES + 6) = 6;
	release(&first);
	release(&second);
	for (size_t slot = 0; slot < SLOTS; slot++)
		CHECK_EQ(*word(p, slot * SLOT_PAGES + 6), 6);
	unmap(p, SIZE);
}

/* Each call that changes an address space, in the middle of it. */
static void calls_in_between(void)
{
	struct holder h;
	char *p = begun(&h), *q;

	CHECK_OK(mprotect(p + 5 * PAGE, PAGE, PROT_READ));
	CHECK_WRITE_SEGV(p + 5 * PAGE, SEGV_ACCERR);
	CHECK_OK(mprotect(p + 5 * PAGE, PAGE, RW));
	*word(p, 6) = 6;
	CHECK_EQ(*word(p, 5), 5);
	CHECK_EQ(*word(p, 300), 300);

	/* A page in the middle goes, and comes back as zeros. */
	CHECK_OK(munmap(p + SLOT + 5 * PAGE, PAGE));
	CHECK_READ_SEGV(p + SLOT + 5 * PAGE, SEGV_MAPERR);
	CHECK(map_flags(p + SLOT + 5 * PAGE, PAGE, RW, ANON | MAP_FIXED) ==
	      p + SLOT + 5 * PAGE);
	verify_zero(p + SLOT + 5 * PAGE, PAGE);
	CHECK_EQ(*word(p, SLOT_PAGES + 300), 300);

	/* Whole and in part, as it was and as it is. */
	CHECK_OK(madvise(p + 2 * SLOT, SLOT, MADV_DONTNEED));
	verify_zero(p + 2 * SLOT, SLOT);
	CHECK_OK(madvise(p + 3 * SLOT, 6 * PAGE, MADV_DONTNEED));
	verify_zero(p + 3 * SLOT, 6 * PAGE);
	CHECK_EQ(*word(p, 3 * SLOT_PAGES + 300), 300);

	/* To another slot, and to other pages of one. */
	q = free_range(SLOT);
	CHECK(mremap(p + 4 * SLOT, SLOT, SLOT, MREMAP_MAYMOVE | MREMAP_FIXED, q) == q);
	check_begun(q, 1);
	*word(q, 7) = 7;
	CHECK_EQ(*word(q, 7), 7);
	unmap(q, SLOT);
	q = free_range(2 * SLOT);
	CHECK(mremap(p + 5 * SLOT, SLOT, SLOT, MREMAP_MAYMOVE | MREMAP_FIXED,
		     q + PAGE) == q + PAGE);
	CHECK_EQ(*word(q + PAGE, 5), 5);
	CHECK_EQ(*word(q + PAGE, 300), 300);
	look(q + PAGE, SLOT);
	unmap(q + PAGE, SLOT);

	CHECK(map_flags(p + 6 * SLOT, SLOT, RW, ANON | MAP_FIXED) == p + 6 * SLOT);
	verify_zero(p + 6 * SLOT, SLOT);
	CHECK_OK(mlock(p + 7 * SLOT, SLOT));
	CHECK_TOUCH(p + 7 * SLOT, SLOT);
	check_begun(p + 7 * SLOT, 1);
	CHECK_OK(munlock(p + 7 * SLOT, SLOT));

	check_begun(p + 8 * SLOT, SLOTS - 8);
	release(&h);
	check_begun(p + 8 * SLOT, SLOTS - 8);
	unmap(p, SIZE);
}

/* By who comes from outside, and by the kernel. */
static uint64_t of_linux(void)
{
	return registered() ? context_value("few_bytes") + context_value("linux_bytes") : 0;
}

static void access_from_outside(void)
{
	char *big = map_anon(MB(1));
	struct holder h;
	char *p = begun(&h), buf[2 * PAGE];
	struct iovec local = { .iov_base = buf, .iov_len = sizeof(buf) }, remote;
	int fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC), pipes[2];
	uint64_t few;

	CHECK_OK(fd);
	/* From a page that was copied into one that was not. */
	CHECK_EQ(pread(fd, buf, sizeof(buf), (off_t)(p + 5 * PAGE)), sizeof(buf));
	CHECK_EQ(((uint64_t *)buf)[256], 5);
	memset(buf, 0x5a, sizeof(buf));
	CHECK_EQ(pwrite(fd, buf, sizeof(buf), (off_t)(p + 10 * PAGE)), sizeof(buf));
	CHECK(!memcmp(p + 10 * PAGE, buf, sizeof(buf)));

	remote = (struct iovec) { .iov_base = p + SLOT + 5 * PAGE, .iov_len = sizeof(buf) };
	CHECK_EQ(process_vm_readv(getpid(), &local, 1, &remote, 1, 0), sizeof(buf));
	CHECK_EQ(((uint64_t *)buf)[256], 5);
	memset(buf, 0xa5, sizeof(buf));
	CHECK_EQ(process_vm_writev(getpid(), &local, 1, &remote, 1, 0), sizeof(buf));
	CHECK(!memcmp(p + SLOT + 5 * PAGE, buf, sizeof(buf)));

	/* What a pipe has got is there after others have written, too. */
	CHECK_OK(pipe2(pipes, O_CLOEXEC));
	remote = (struct iovec) { .iov_base = p + 2 * SLOT + 4 * PAGE, .iov_len = 4 * PAGE };
	CHECK_EQ(vmsplice(pipes[1], &remote, 1, 0), 4 * PAGE);
	*word(p, 2 * SLOT_PAGES + 8) = 8;
	for (size_t page = 4; page < 8; page++) {
		CHECK_EQ(read(pipes[0], buf, PAGE), PAGE);
		CHECK_EQ(((uint64_t *)buf)[256], page == 5 ? 5 : 0);
	}
	CHECK_EQ(*word(p, 2 * SLOT_PAGES + 8), 8);

	/* Who refers to many pages at once gets a block, though a few were copied. */
	fill(big, MB(1), 9);
	local = (struct iovec) { .iov_base = big, .iov_len = MB(1) };
	remote = (struct iovec) { .iov_base = p + 2 * SLOT + 100 * PAGE, .iov_len = MB(1) };
	few = of_linux();
	CHECK_EQ(process_vm_writev(getpid(), &local, 1, &remote, 1, 0), MB(1));
	CHECK(of_linux() <= few);
	verify(p + 2 * SLOT + 100 * PAGE, MB(1), 9, 0);
	CHECK_EQ(*word(p, 2 * SLOT_PAGES + 8), 8);
	unmap(big, MB(1));

	/* One that has been copied stays where it is, whatever else is. */
	remote = (struct iovec) { .iov_base = p + 3 * SLOT + 5 * PAGE, .iov_len = PAGE };
	CHECK_EQ(vmsplice(pipes[1], &remote, 1, 0), PAGE);
	for (size_t page = 9; page < 300; page += 2)
		*word(p, 3 * SLOT_PAGES + page) = page;
	*word(p, 3 * SLOT_PAGES + 5) = 55;
	CHECK_EQ(read(pipes[0], buf, PAGE), PAGE);
	CHECK_EQ(((uint64_t *)buf)[256], 55);
	*word(p, 3 * SLOT_PAGES + 5) = 5;
	for (size_t page = 9; page < 300; page += 2)
		CHECK_EQ(*word(p, 3 * SLOT_PAGES + page), page);
	close(pipes[0]);
	close(pipes[1]);
	close(fd);
	check_begun(p + 3 * SLOT, SLOTS - 3);
	release(&h);
	check_begun(p + 3 * SLOT, SLOTS - 3);
	unmap(p, SIZE);
}

/* What is small is copied into pages of Linux, until there is more in its slot. */
static void small_copies_grow(void)
{
	char *base = free_range(2 * SLOT), *p = base;
	uint64_t few;
	pid_t pid;

	map_flags(p, KB(64), RW, ANON | MAP_FIXED_NOREPLACE);
	/* A block, for more than a few pages, and then few of them. */
	map_flags(p + KB(512), KB(512), RW, ANON | MAP_FIXED_NOREPLACE);
	fill(p, KB(64), 1);
	unmap(p + KB(512), KB(512));
	pid = fork_child();
	if (pid == 0) {
		verify(p, KB(64), 1, 0);
		fill(p, KB(64), 2);
		map_flags(p + KB(64), MB(1), RW, ANON | MAP_FIXED_NOREPLACE);
		few = of_linux();
		verify_zero(p + KB(64), MB(1));
		CHECK_EQ(of_linux(), few);
		CHECK(few <= MB(1));
		verify(p, KB(64), 2, 0);
		_exit(0);
	}
	expect_success(pid);
	few = of_linux();
	map_flags(p + KB(64), MB(3), RW, ANON | MAP_FIXED_NOREPLACE);
	CHECK(of_linux() <= few);
	CHECK_TOUCH(p, KB(64) + MB(3));
	verify(p, KB(64), 1, 0);
	unmap(p, KB(64) + MB(3));
}

struct racer {
	char *p;
	size_t first;
};

static void *write_every_fourth(void *arg)
{
	struct racer *r = arg;

	for (size_t page = r->first; page < SIZE / PAGE; page += 4)
		*word(r->p, page) = page;
	return NULL;
}

/* Threads write to the same slots while a child holds them, ends, and another comes. */
static void threads_beside_forks(void)
{
	char *p = stamped(SIZE);
	struct racer racers[4];
	pthread_t threads[4];

	for (int round = 0; round < 3; round++) {
		struct holder h;

		hold(&h, look_at_all, p);
		for (size_t i = 0; i < ARRAY_SIZE(threads); i++) {
			racers[i] = (struct racer) { p, i };
			threads[i] = start_thread(write_every_fourth, &racers[i]);
		}
		release(&h);
		for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
			join_thread(threads[i]);
		for (size_t page = 0; page < SIZE / PAGE; page++)
			CHECK_EQ(*word(p, page), page);
		look(p, SIZE);
	}
	/* Not all by 2 MB: a slot stays as it is that is completed while a call is under way. */
	CHECK_TOUCH(p, SIZE);
	unmap(p, SIZE);
}

/* What was begun, and never finished, comes back, whoever ends first. */
static void nothing_is_left(void)
{
	uint64_t before;

	skip_unless_registered();
	before = pool_value("free_bytes");
	for (int round = 0; round < 3; round++) {
		struct holder h;
		char *p = begun(&h);

		switch (round) {
		case 0:
			unmap(p, SIZE);
			release(&h);
			break;
		case 1:
			CHECK_OK(kill(h.pid, SIGKILL));
			expect_signal(h.pid, SIGKILL);
			check_begun(p, SLOTS);
			unmap(p, SIZE);
			break;
		case 2:
			CHECK_OK(kill(h.pid, SIGKILL));
			expect_signal(h.pid, SIGKILL);
			unmap(p, SIZE);
			break;
		}
		await_pool_free(before);
	}
	/* Where the parent goes without a look at them. */
	for (int round = 0; round < 2; round++) {
		struct holder h;
		pid_t pid = fork_child();

		if (!pid) {
			begun(&h);
			if (round)
				kill(h.pid, SIGKILL);
			_exit(0);
		}
		expect_success(pid);
	}
	await_pool_free(before);
}

int main(void)
{
	static const struct test tests[] = {
		T(scattered_writes_copy_little),
		T(scattered_writes_take_little),
		T(writes_in_a_row),
		T(writes_in_any_order),
		T(reads_beside_writes),
		T(reads_copy_nothing),
		T(everybody_writes),
		T(fork_again),
		T(calls_in_between),
		T(access_from_outside),
		T(small_copies_grow),
		T(threads_beside_forks),
		T(nothing_is_left),
	};

	return RUN_GROUP("sem_copies", tests);
}
