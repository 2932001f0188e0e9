// SPDX-License-Identifier: GPL-2.0
/*
 * fork(2) and its relatives: private memory stays private, both ways.
 *
 * Parent and child share memory until one of them writes, so while both live
 * the first write to each 2 MB may be a fault; afterwards there are none.
 */
#include "common.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define USED	(MB(6) + 3 * PAGE)

/* Set once per test: ends of pipes between parent and child. */
struct link {
	int to_child[2];
	int to_parent[2];
};

static void open_link(struct link *link)
{
	CHECK_OK(pipe(link->to_child));
	CHECK_OK(pipe(link->to_parent));
}

static void close_link(struct link *link)
{
	for (int i = 0; i < 2; i++) {
		close(link->to_child[i]);
		close(link->to_parent[i]);
	}
}

static void private_both_ways(void)
{
	struct link link;
	char *p = map_anon(USED);
	pid_t pid;

	fill(p, USED, 1);
	open_link(&link);
	pid = fork_child();
	if (pid == 0) {
		verify(p, USED, 1, 0);
		tell(link.to_parent[1]);
		/* The parent has written since. */
		await(link.to_child[0]);
		verify(p, USED, 1, 0);
		fill(p, USED, 3);
		CHECK_TOUCH(p, USED);
		check_2m(p, USED);
		tell(link.to_parent[1]);
		await(link.to_child[0]);
		verify(p, USED, 3, 0);
		_exit(0);
	}
	await(link.to_parent[0]);
	fill(p, USED, 2);
	CHECK_TOUCH(p, USED);
	check_2m(p, USED);
	tell(link.to_child[1]);
	await(link.to_parent[0]);
	verify(p, USED, 2, 0);
	tell(link.to_child[1]);
	expect_success(pid);
	CHECK_TOUCH(p, USED);
	verify(p, USED, 2, 0);
	check_2m(p, USED);
	close_link(&link);
	unmap(p, USED);
}

static void child_is_registered_and_mapped(void *arg)
{
	char *p = arg;
	char *q;

	CHECK(registered());
	fill(p, USED, 2);
	CHECK_TOUCH(p, USED);
	check_2m(p, USED);
	CHECK_EQ(context_value("linux_bytes"), 0);
	q = map_anon(MB(4));
	CHECK_TOUCH(q, MB(4));
	check_2m(q, MB(4));
}

static void children_inherit(void)
{
	char *p;

	skip_unless_registered();
	p = map_anon(USED);
	fill(p, USED, 1);
	in_child(child_is_registered_and_mapped, p);
	unmap(p, USED);
}

/* ---- Snapshot while a thread of the parent writes -------------------- */

#define SNAP_BYTES	MB(5)
#define SNAP_ROUNDS	12
#define PAGE_WORDS	(PAGE / sizeof(uint64_t))

static atomic_bool writer_stop;
static atomic_ulong writer_rounds;

/* Generation after generation, each page upwards word by word. */
static void *writer(void *arg)
{
	volatile uint64_t *p = arg;

	for (uint64_t gen = 1; !atomic_load(&writer_stop); gen++) {
		for (size_t n = 0; n < SNAP_BYTES / sizeof(*p); n++)
			p[n] = gen;
		atomic_fetch_add(&writer_rounds, 1);
	}
	return NULL;
}

/* As one moment has it: some words of a generation, then the one before. */
static void check_pages(const uint64_t *p)
{
	for (size_t page = 0; page < SNAP_BYTES / PAGE; page++) {
		const uint64_t *words = p + page * PAGE_WORDS;

		for (size_t n = 1; n < PAGE_WORDS; n++)
			if (words[n] > words[n - 1])
				FAIL("page %zu: word %zu is of generation %llu, the one before it of %llu",
				     page, n, (unsigned long long)words[n],
				     (unsigned long long)words[n - 1]);
		if (words[0] - words[PAGE_WORDS - 1] > 1)
			FAIL("page %zu: generations %llu to %llu", page,
			     (unsigned long long)words[PAGE_WORDS - 1],
			     (unsigned long long)words[0]);
	}
}

static uint64_t checksum(const uint64_t *p)
{
	uint64_t sum = 0;

	for (size_t n = 0; n < SNAP_BYTES / sizeof(*p); n++)
		sum = sum * 31 + p[n];
	return sum;
}

/* All of it as one moment has it. */
static void check_moment(const uint64_t *p)
{
	size_t nr = SNAP_BYTES / sizeof(*p);

	for (size_t n = 1; n < nr; n++)
		if (p[n] > p[n - 1])
			FAIL("word %zu is of generation %llu, the one before it of %llu", n,
			     (unsigned long long)p[n], (unsigned long long)p[n - 1]);
	CHECK(p[0] - p[nr - 1] <= 1);
}

/* @pinned: of one slot somebody refers to a page, so that it is copied. */
static void snapshots(bool pinned)
{
	uint64_t *p = map_anon(SNAP_BYTES);
	struct iovec page = { (char *)p + MB(3), PAGE };
	struct link link;
	pthread_t thread;
	int pipes[2];

	CHECK_OK(pipe(pipes));
	if (pinned)
		CHECK_EQ(vmsplice(pipes[1], &page, 1, 0), PAGE);
	atomic_store(&writer_stop, false);
	thread = start_thread(writer, p);
	open_link(&link);
	for (int round = 0; round < SNAP_ROUNDS; round++) {
		unsigned long seen;
		pid_t pid = fork_child();

		if (pid == 0) {
			uint64_t sum = checksum(p);

			check_pages(p);
			if (pinned)
				check_moment(p);
			tell(link.to_parent[1]);
			await(link.to_child[0]);
			CHECK_EQ(checksum(p), sum);
			_exit(0);
		}
		await(link.to_parent[0]);
		/* The writer has been everywhere before the child looks again. */
		seen = atomic_load(&writer_rounds);
		while (atomic_load(&writer_rounds) < seen + 2)
			usleep(1000);
		tell(link.to_child[1]);
		expect_success(pid);
	}
	atomic_store(&writer_stop, true);
	join_thread(thread);
	/* A draft is settled 20 ms after the child's end; a touch before that is a fault. */
	usleep(200 * 1000);
	CHECK_TOUCH(p, SNAP_BYTES);
	close(pipes[0]);
	close(pipes[1]);
	close_link(&link);
	unmap(p, SNAP_BYTES);
}

static void snapshot_while_a_thread_writes(void)
{
	snapshots(false);
}

/* Linux copies what is pinned while others write to it. */
static void snapshot_of_what_is_pinned(void)
{
	skip_unless_registered();
	snapshots(true);
}

/* ---- Families --------------------------------------------------------- */

static void grandchild(void *arg)
{
	char *p = arg;

	verify(p, USED, 2, 0);
	fill(p, USED, 3);
	CHECK_TOUCH(p, USED);
}

static void child_with_child(void *arg)
{
	char *p = arg;

	verify(p, USED, 1, 0);
	fill(p, USED, 2);
	in_child(grandchild, p);
	verify(p, USED, 2, 0);
	CHECK_TOUCH(p, USED);
}

static void grandchildren(void)
{
	char *p = map_anon(USED);

	fill(p, USED, 1);
	in_child(child_with_child, p);
	verify(p, USED, 1, 0);
	unmap(p, USED);
}

#define GENERATIONS	80

/* More of them than an end looks after at once: each writes to a page of its own. */
static void generation(char *p, size_t nr)
{
	pid_t pid;

	for (size_t i = 0; i < GENERATIONS; i++)
		CHECK_EQ(p[i * PAGE], i < nr ? 2 : 1);
	p[nr * PAGE] = 2;
	if (nr + 1 < GENERATIONS) {
		pid = fork_child();
		if (pid == 0) {
			generation(p, nr + 1);
			_exit(0);
		}
		expect_success(pid);
	}
	for (size_t i = 0; i < GENERATIONS; i++)
		CHECK_EQ(p[i * PAGE], i <= nr ? 2 : 1);
}

static void many_generations(void)
{
	char *p = map_anon(MB(2));

	for (size_t i = 0; i < GENERATIONS; i++)
		p[i * PAGE] = 1;
	generation(p, 0);
	CHECK_TOUCH(p, MB(2));
	unmap(p, MB(2));
}

static void child_survives_its_parent(void)
{
	struct link link;
	char *p = map_anon(USED);
	char result = 0;
	pid_t pid;

	fill(p, USED, 1);
	open_link(&link);
	pid = fork_child();
	if (pid == 0) {
		pid_t heir = fork();

		if (heir == 0) {
			await(link.to_child[0]);
			verify(p, USED, 1, 0);
			fill(p, USED, 2);
			verify(p, USED, 2, 0);
			tell(link.to_parent[1]);
			_exit(0);
		}
		_exit(heir > 0 ? 0 : CHILD_FAILED);
	}
	expect_success(pid);
	unmap(p, USED);
	/* A new mapping may get what the parents gave up, not what the heir has. */
	p = map_anon(USED);
	fill(p, USED, 9);
	tell(link.to_child[1]);
	close(link.to_parent[1]);
	CHECK_EQ(read(link.to_parent[0], &result, 1), 1);
	verify(p, USED, 9, 0);
	close_link(&link);
	unmap(p, USED);
}

static void *fork_in_thread(void *arg)
{
	char *p = arg;
	char local[PAGE];
	pid_t pid;

	fill(local, sizeof(local), 8);
	pid = fork_child();
	if (pid == 0) {
		verify(local, sizeof(local), 8, 0);
		verify(p, USED, 1, 0);
		fill(p, USED, 2);
		CHECK_TOUCH(p, USED);
		_exit(0);
	}
	expect_success(pid);
	verify(local, sizeof(local), 8, 0);
	return NULL;
}

static void fork_from_a_thread(void)
{
	char *p = map_anon(USED);

	fill(p, USED, 1);
	join_thread(start_thread(fork_in_thread, p));
	unmap(p, USED);
}

static void verify_64m(void *arg)
{
	verify_stamp(arg, MB(64), 1);
	stamp(arg, MB(64), 2);
	CHECK_TOUCH(arg, MB(64));
	verify_stamp(arg, MB(64), 2);
}

static void fork_with_64_mb(void)
{
	char *p = map_anon(MB(64));

	stamp(p, MB(64), 1);
	in_child(verify_64m, p);
	verify_stamp(p, MB(64), 1);
	CHECK_TOUCH(p, MB(64));
	unmap(p, MB(64));
}

/* Every kind of private memory there is: heap, stack, mmap at odd places. */
static void use_all_kinds(void *arg)
{
	char **kind = arg;

	for (size_t i = 0; i < 4; i++) {
		verify(kind[i], KB(200), i, 0);
		fill(kind[i], KB(200), i + 10);
		CHECK_TOUCH(kind[i], KB(200) & ~(PAGE - 1));
		verify(kind[i], KB(200), i + 10, 0);
	}
}

static void all_kinds_of_memory(void)
{
	char on_stack[KB(200)];
	char *mapping = map_anon(MB(3));
	char *kind[4] = { on_stack, malloc(KB(200)), mapping + MB(2) - 5 * PAGE,
			  mapping };

	CHECK(kind[1] != NULL);
	CHECK_OK(mprotect(mapping + MB(1), PAGE, PROT_NONE));
	for (size_t i = 0; i < 4; i++)
		fill(kind[i], KB(200), i);
	in_child(use_all_kinds, kind);
	for (size_t i = 0; i < 4; i++)
		verify(kind[i], KB(200), i, 0);
	free(kind[1]);
	unmap(mapping, MB(3));
}

static void protections_in_the_child(void *arg)
{
	char *p = arg;

	CHECK_READ_SEGV(p + MB(1), SEGV_ACCERR);
	CHECK_WRITE_SEGV(p + MB(3), SEGV_ACCERR);
	CHECK_READ_SEGV(p + MB(5), SEGV_MAPERR);
	verify(p, MB(1), 1, 0);
	CHECK_OK(mprotect(p + MB(1), MB(4), RW));
	verify(p, MB(5), 1, 0);
	fill(p, MB(5), 2);
	CHECK_TOUCH(p, MB(5));
	unmap(p, MB(1));
	CHECK_READ_SEGV(p, SEGV_MAPERR);
}

static void children_keep_protections_and_holes(void)
{
	char *p = map_anon(MB(8));

	fill(p, MB(8), 1);
	CHECK_OK(mprotect(p + MB(1), PAGE, PROT_NONE));
	CHECK_OK(mprotect(p + MB(3), MB(1), PROT_READ));
	unmap(p + MB(5), PAGE);
	in_child(protections_in_the_child, p);
	verify(p, MB(1), 1, 0);
	CHECK_READ_SEGV(p + MB(1), SEGV_ACCERR);
	CHECK_WRITE_SEGV(p + MB(3), SEGV_ACCERR);
	verify(p + MB(5) + PAGE, MB(3) - PAGE, 1, MB(5) + PAGE);
	unmap(p, MB(8));
}

static void unmap_it(void *arg)
{
	unmap(arg, USED);
}

static void a_childs_unmap_is_its_own(void)
{
	char *p = map_anon(USED);

	fill(p, USED, 1);
	in_child(unmap_it, p);
	verify(p, USED, 1, 0);
	CHECK_TOUCH(p, USED);
	unmap(p, USED);
}

static void write_shared(void *arg)
{
	char **p = arg;

	verify(p[0], MB(3), 1, 0);
	fill(p[0], MB(3), 2);
	fill(p[1], MB(3), 2);
}

static void shared_stays_shared(void)
{
	char *p[2] = {
		map_flags(NULL, MB(3), RW, MAP_SHARED | MAP_ANONYMOUS),
		map_anon(MB(3)),
	};

	fill(p[0], MB(3), 1);
	fill(p[1], MB(3), 1);
	in_child(write_shared, p);
	verify(p[0], MB(3), 2, 0);
	verify(p[1], MB(3), 1, 0);
	unmap(p[0], MB(3));
	unmap(p[1], MB(3));
}

/* ---- Programs --------------------------------------------------------- */

static void vfork_and_exec(void)
{
	char *p = map_anon(USED);
	pid_t pid;

	fill(p, USED, 1);
	for (int round = 0; round < 5; round++) {
		pid = vfork();
		if (pid == 0) {
			execl("/bin/sh", "sh", "-c", "exit 7", (char *)NULL);
			_exit(126);
		}
		CHECK_OK(pid);
		expect_exit(pid, 7);
		pid = vfork();
		if (pid == 0)
			_exit(11);
		CHECK_OK(pid);
		expect_exit(pid, 11);
		CHECK_TOUCH(p, USED);
	}
	verify(p, USED, 1, 0);
	unmap(p, USED);
}

static void spawn_and_system(void)
{
	char *const argv[] = { "sh", "-c", "exit 5", NULL };
	char *p = map_anon(USED);
	pid_t pid;

	fill(p, USED, 1);
	fflush(stdout);
	CHECK_EQ(posix_spawn(&pid, "/bin/sh", NULL, NULL, argv, environ), 0);
	expect_exit(pid, 5);
	CHECK_EQ(WEXITSTATUS(system("exit 3")), 3);
	CHECK_EQ(system("true"), 0);
	CHECK_EQ(WEXITSTATUS(system("test \"$(echo a b | wc -w)\" = 2 && exit 9")), 9);
	CHECK_TOUCH(p, USED);
	verify(p, USED, 1, 0);
	unmap(p, USED);
}

static void exec_failure_leaves_the_child_as_it_was(void)
{
	char *p = map_anon(USED);
	pid_t pid;

	fill(p, USED, 1);
	pid = fork_child();
	if (pid == 0) {
		char *const argv[] = { "nothing", NULL };

		CHECK_ERR(execv("/nonexistent/program", argv), ENOENT);
		verify(p, USED, 1, 0);
		fill(p, USED, 2);
		_exit(0);
	}
	expect_success(pid);
	CHECK_TOUCH(p, USED);
	verify(p, USED, 1, 0);
	unmap(p, USED);
}

static void statuses(void)
{
	static const int signals[] = { SIGKILL, SIGTERM, SIGABRT, SIGSEGV };
	pid_t pid;

	for (size_t i = 0; i < ARRAY_SIZE(signals); i++) {
		pid = fork_child();
		if (pid == 0) {
			raise(signals[i]);
			_exit(0);
		}
		expect_signal(pid, signals[i]);
	}
	pid = fork_child();
	if (pid == 0)
		_exit(42);
	expect_exit(pid, 42);
	CHECK_ERR(waitpid(pid, NULL, 0), ECHILD);
}

/* Killed at any moment, a child leaves its parent's memory alone. */
static void killed_children(void)
{
	char *p = map_anon(USED);

	fill(p, USED, 1);
	for (int round = 0; round < 10; round++) {
		pid_t pid = fork_child();

		if (pid == 0) {
			for (;;)
				fill(map_anon(MB(1)), MB(1), 2);
		}
		usleep((useconds_t)(round * 500));
		CHECK_OK(kill(pid, SIGKILL));
		expect_signal(pid, SIGKILL);
	}
	CHECK_TOUCH(p, USED);
	verify(p, USED, 1, 0);
	unmap(p, USED);
}

static void many_short_children(void)
{
	enum { BATCHES = 5, AT_ONCE = 10 };
	char *p = map_anon(MB(2) + PAGE);

	fill(p, MB(2) + PAGE, 1);
	for (int batch = 0; batch < BATCHES; batch++) {
		pid_t pid[AT_ONCE];

		for (size_t i = 0; i < AT_ONCE; i++) {
			pid[i] = fork_child();
			if (pid[i] == 0) {
				fill(p, PAGE, 100 + i);
				verify(p, PAGE, 100 + i, 0);
				verify(p + PAGE, MB(2), 1, PAGE);
				_exit(0);
			}
		}
		for (size_t i = 0; i < AT_ONCE; i++)
			expect_success(pid[i]);
	}
	verify(p, MB(2) + PAGE, 1, 0);
	unmap(p, MB(2) + PAGE);
}

static void *busy_thread(void *arg)
{
	volatile char *p = arg;

	while (!atomic_load(&writer_stop)) {
		char *q = map_anon(MB(2));

		q[MB(1)] = *p;
		unmap(q, MB(2));
	}
	return NULL;
}

static void forks_while_a_thread_maps(void)
{
	char *p = map_anon(USED);
	pthread_t thread;

	fill(p, USED, 1);
	atomic_store(&writer_stop, false);
	thread = start_thread(busy_thread, p);
	for (int round = 0; round < 15; round++) {
		pid_t pid = fork_child();

		if (pid == 0) {
			verify(p, USED, 1, 0);
			_exit(0);
		}
		expect_success(pid);
	}
	atomic_store(&writer_stop, true);
	join_thread(thread);
	unmap(p, USED);
}

static void pipes_carry_pool_memory(void)
{
	char *p = map_anon(MB(3));
	int fd[2];
	pid_t pid;

	fill(p, MB(3), 1);
	CHECK_OK(pipe(fd));
	pid = fork_child();
	if (pid == 0) {
		for (size_t off = 0; off < MB(3);) {
			ssize_t n = write(fd[1], p + off, MB(3) - off);

			CHECK_OK(n);
			off += (size_t)n;
		}
		_exit(0);
	}
	memset(p, 0, MB(3));
	for (size_t off = 0; off < MB(3);) {
		ssize_t n = read(fd[0], p + off, MB(3) - off);

		CHECK(n > 0);
		off += (size_t)n;
	}
	expect_success(pid);
	CHECK_TOUCH(p, MB(3));
	verify(p, MB(3), 1, 0);
	close(fd[0]);
	close(fd[1]);
	unmap(p, MB(3));
}

/* ---- Copy-on-write ---------------------------------------------------- */

#define BIG	MB(64)

static uint64_t free_bytes(void)
{
	return pool_value("free_bytes");
}

/* A fork takes no memory, many writes to a block another one, and both come back. */
static void memory_is_shared_until_written(void)
{
	struct link link;
	uint64_t before;
	char *p;
	pid_t pid;

	skip_unless_registered();
	p = map_anon(BIG);
	stamp(p, BIG, 1);
	before = free_bytes();
	open_link(&link);
	pid = fork_child();
	if (pid == 0) {
		/* Without entries of 2 MB a read copies, too. */
		if (maps_2m())
			verify_stamp(p, BIG, 1);
		tell(link.to_parent[1]);
		await(link.to_child[0]);
		fill(p + MB(6), MB(1), 2);
		fill(p + MB(20), MB(1), 2);
		tell(link.to_parent[1]);
		await(link.to_child[0]);
		verify(p + MB(6), MB(1), 2, 0);
		_exit(0);
	}
	await(link.to_parent[0]);
	/* Its stack, heap and the like. */
	CHECK(free_bytes() + MB(16) >= before);
	tell(link.to_child[1]);
	await(link.to_parent[0]);
	CHECK(free_bytes() + MB(4) <= before);
	CHECK(free_bytes() + MB(20) >= before);
	verify_stamp(p, BIG, 1);
	tell(link.to_child[1]);
	expect_success(pid);
	CHECK_TOUCH(p, BIG);
	check_2m(p, BIG);
	await_pool_free(before);
	close_link(&link);
	unmap(p, BIG);
}

/* After fork, exec and wait the parent writes without faults, in 2 MB. */
static void parent_is_as_it_was_after_exec(void)
{
	char *p = map_anon(USED);
	pid_t pid;

	for (int round = 0; round < 4; round++) {
		fill(p, USED, 1);
		pid = fork_child();
		if (pid == 0) {
			execl("/bin/sh", "sh", "-c", "exit 7", (char *)NULL);
			_exit(126);
		}
		expect_exit(pid, 7);
		CHECK_TOUCH(p, USED);
		check_2m(p, USED & ~(MB(2) - 1));
		verify(p, USED, 1, 0);
	}
	unmap(p, USED);
}

/* Each call that changes memory, in the child, of what it shares. */
static void change_what_is_shared(void *arg)
{
	char *p = arg, *q;

	/* Discarded in part and wholly. */
	CHECK_OK(madvise(p + PAGE, PAGE, MADV_DONTNEED));
	verify(p, PAGE, 1, 0);
	verify_zero(p + PAGE, PAGE);
	verify(p + 2 * PAGE, MB(2) - 2 * PAGE, 1, 2 * PAGE);
	CHECK_OK(madvise(p + MB(2), MB(2), MADV_DONTNEED));
	verify_zero(p + MB(2), MB(2));
	verify(p + MB(4), MB(4), 1, MB(4));
	/* Read-only and back: still not the parent's to write to. */
	CHECK_OK(mprotect(p + MB(4), MB(2), PROT_READ));
	verify(p + MB(4), MB(2), 1, MB(4));
	CHECK_OK(mprotect(p + MB(4), MB(2), RW));
	fill(p + MB(4), PAGE, 4);
	verify(p + MB(4) + PAGE, MB(2) - PAGE, 1, MB(4) + PAGE);
	/* Mapped over in part. */
	CHECK(mmap(p + MB(7), PAGE, RW, ANON | MAP_FIXED, -1, 0) ==
	      p + MB(7));
	verify_zero(p + MB(7), PAGE);
	verify(p + MB(6), MB(1), 1, MB(6));
	/* Moved, whole blocks and pieces. */
	q = mremap(p + MB(8), MB(4), MB(4) + PAGE, MREMAP_MAYMOVE);
	CHECK_OK(q);
	verify(q, MB(4), 1, MB(8));
	fill(q, MB(4), 5);
	q = mremap(p + MB(12) + PAGE, 3 * PAGE, MB(3), MREMAP_MAYMOVE);
	CHECK_OK(q);
	verify(q, 3 * PAGE, 1, MB(12) + PAGE);
	fill(q, MB(3), 6);
	verify(p + MB(13), MB(3), 1, MB(13));
}

static void changes_of_shared_memory(void)
{
	char *p = map_anon(MB(16));

	fill(p, MB(16), 1);
	in_child(change_what_is_shared, p);
	verify(p, MB(16), 1, 0);
	CHECK_TOUCH(p, MB(16));
	unmap(p, MB(16));
}

/* One mapping with what was there: else mremap(2) refuses it. */
static void extend_what_is_inherited(void *arg)
{
	char *p = arg;

	map_flags(p + MB(4), MB(4), RW, ANON | MAP_FIXED_NOREPLACE);
	p = mremap(p, MB(8), MB(12), MREMAP_MAYMOVE);
	CHECK(p != MAP_FAILED);
	fill(p, MB(12), 1);
	verify(p, MB(12), 1, 0);
	unmap(p, MB(12));
}

static void inherited_mappings_grow(void)
{
	char *p = free_range(MB(8));

	/* Not touched: Linux keeps apart what a child inherits with contents. */
	map_flags(p, MB(4), RW, ANON | MAP_FIXED_NOREPLACE);
	in_child(extend_what_is_inherited, p);
	unmap(p, MB(4));
}

/* The same by the parent, while the child has the snapshot. */
static void parent_changes_what_is_shared(void)
{
	struct link link;
	char *p = map_anon(MB(16));
	pid_t pid;

	fill(p, MB(16), 1);
	open_link(&link);
	pid = fork_child();
	if (pid == 0) {
		await(link.to_child[0]);
		verify(p, MB(16), 1, 0);
		fill(p, MB(16), 2);
		CHECK_TOUCH(p, MB(16));
		verify(p, MB(16), 2, 0);
		_exit(0);
	}
	change_what_is_shared(p);
	tell(link.to_child[1]);
	expect_success(pid);
	verify_zero(p + MB(2), MB(2));
	close_link(&link);
	unmap(p, MB(16));
}

/* A read into shared memory by the kernel, and through another process. */
static void kernel_writes_are_copied(void)
{
	struct link link;
	char *p = map_anon(MB(4));
	char page[PAGE];
	int fd[2];
	pid_t pid;

	fill(p, MB(4), 1);
	fill(page, PAGE, 7);
	open_link(&link);
	CHECK_OK(pipe(fd));
	pid = fork_child();
	if (pid == 0) {
		await(link.to_child[0]);
		verify(p, MB(4), 1, 0);
		_exit(0);
	}
	CHECK_EQ(write(fd[1], page, PAGE), (long)PAGE);
	CHECK_EQ(read(fd[0], p + MB(1), PAGE), (long)PAGE);
	verify(p + MB(1), PAGE, 7, 0);
	verify(p + MB(1) + PAGE, PAGE, 1, MB(1) + PAGE);
	tell(link.to_child[1]);
	expect_success(pid);
	close_link(&link);
	close(fd[0]);
	close(fd[1]);
	unmap(p, MB(4));
}

static void wiped(void *arg)
{
	char *p = arg;

	verify(p, MB(1), 1, 0);
	verify_zero(p + MB(1), MB(4));
	verify(p + MB(5), MB(3), 1, MB(5));
	fill(p, MB(8), 2);
}

static void wipe_on_fork(void)
{
	char *p = map_anon(MB(8));

	fill(p, MB(8), 1);
	CHECK_OK(madvise(p + MB(1), MB(4), MADV_WIPEONFORK));
	in_child(wiped, p);
	verify(p, MB(8), 1, 0);
	CHECK_OK(madvise(p, MB(8), MADV_KEEPONFORK));
	unmap(p, MB(8));
}

static void write_16m(void *arg)
{
	verify_stamp(arg, MB(16), 1);
	stamp(arg, MB(16), 2);
	stamp(map_anon(MB(8)), MB(8), 3);
}

static void look_at_8m(void *arg)
{
	verify_stamp(arg, MB(8), 5);
}

/*
 * Whoever takes back what the child had, and whenever: its address space may
 * not be taken apart yet.
 */
static void parent_is_as_it_was_every_time(void)
{
	char *p = map_anon(MB(8));

	stamp(p, MB(8), 5);
	for (int round = 0; round < 60; round++) {
		in_child(look_at_8m, p);
		CHECK_TOUCH(p, MB(8));
	}
	unmap(p, MB(8));
}

struct looker {
	_Atomic pid_t pid;
	atomic_bool stop;
	atomic_size_t looks;
};

/* Somebody has the child's address space in use all the time, as ps(1) for moments. */
static void *look_at_child(void *arg)
{
	struct looker *l = arg;
	char buf[PAGE], path[64];

	while (!atomic_load(&l->stop)) {
		pid_t pid = atomic_load(&l->pid);
		int fd;

		snprintf(path, sizeof(path), "/proc/%d/maps", pid);
		fd = pid ? open(path, O_RDONLY | O_CLOEXEC) : -1;
		if (fd < 0)
			continue;
		for (int i = 0; i < 100 && read(fd, buf, sizeof(buf)) > 0; i++)
			l->looks++;
		close(fd);
	}
	return NULL;
}

/*
 * A reader of the child's maps may be the last user of its address space and then unmaps it. The
 * exiting child waits for that, for 100 ms at most: a host with more to do than CPUs may exceed it
 * now and then, and the parent then takes a fault.
 */
#define LATE_ROUNDS 2

static void parent_is_as_it_was_beside_a_reader(void)
{
	struct looker l = { 0 };
	int late = 0;
	/* Below it, so that it is taken out of the page tables first. */
	char *much = mmap(NULL, MB(32), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	char *p = map_anon(MB(8));
	pthread_t thread;

	CHECK(much != MAP_FAILED);
	CHECK_OK(madvise(much, MB(32), MADV_POPULATE_WRITE));
	stamp(p, MB(8), 5);
	thread = start_thread(look_at_child, &l);
	/* On until it was looked at, on few CPUs. */
	for (int round = 0; round < 30 || (!l.looks && round < 3000); round++) {
		pid_t pid = fork_child();

		if (!pid) {
			look_at_8m(p);
			_exit(madvise(much, MB(32), MADV_POPULATE_READ) ? 1 : 0);
		}
		atomic_store(&l.pid, pid);
		expect_success(pid);
		watch_begin();
		for (size_t off = 0; off < MB(8); off += PAGE)
			((volatile char *)p)[off] = p[off];
		watch_end();
		late += registered() && watch_available() && watch_user_faults(p, MB(8));
		verify_stamp(p, MB(8), 5);
		atomic_store(&l.pid, 0);
	}
	CHECK(late <= LATE_ROUNDS || getenv("HPMMAP_TEST_AT_ONCE"));
	atomic_store(&l.stop, true);
	join_thread(thread);
	CHECK(l.looks);
	unmap(p, MB(8));
	CHECK_OK(munmap(much, MB(32)));
}

/* Of a few pages, of a slot that is cut, and of whole ones; guards follow the first and the third. */
#define TAIL	(MB(4) + 2 * PAGE)
static char *guarded_bytes[5];

static void guarded_write(char value)
{
	for (size_t i = 0; i < ARRAY_SIZE(guarded_bytes); i++)
		*guarded_bytes[i] = value;
}

static void guarded_expect(char value)
{
	for (size_t i = 0; i < ARRAY_SIZE(guarded_bytes); i++)
		if (*guarded_bytes[i] != value)
			FAIL("byte %zu is %d, not %d", i, *guarded_bytes[i], value);
}

/* With guards in a mapping fork(2) copies its page tables. */
static void guards_share_nothing(void)
{
	char *p = map_anon(TAIL), *q = map_anon(MB(8));
	pid_t pids[4];
	struct link links[ARRAY_SIZE(pids)];

	fill(p, TAIL, 1);
	fill(q, MB(8), 1);
	if (madvise(p + MB(4) + PAGE, PAGE, MADV_GUARD_INSTALL) != 0)
		SKIP("MADV_GUARD_INSTALL: %s", errno_name(errno));
	CHECK_OK(madvise(q + MB(3), PAGE, MADV_GUARD_INSTALL));
	guarded_bytes[0] = p + MB(4);
	guarded_bytes[1] = p + MB(1);
	guarded_bytes[2] = q + MB(2);
	guarded_bytes[3] = q + MB(5);
	guarded_bytes[4] = q + MB(8) - 1;
	guarded_write(0);
	for (size_t i = 0; i < ARRAY_SIZE(pids); i++) {
		open_link(&links[i]);
		pids[i] = fork_child();
		if (pids[i] == 0) {
			CHECK_READ_SEGV(p + MB(4) + PAGE, SEGV_MAPERR);
			CHECK_READ_SEGV(q + MB(3), SEGV_MAPERR);
			guarded_expect((char)i);
			guarded_write((char)(100 + i));
			tell(links[i].to_parent[1]);
			await(links[i].to_child[0]);
			guarded_expect((char)(100 + i));
			_exit(0);
		}
		await(links[i].to_parent[0]);
		guarded_expect((char)i);
		guarded_write((char)(i + 1));
	}
	for (size_t i = 0; i < ARRAY_SIZE(pids); i++) {
		tell(links[i].to_child[1]);
		expect_success(pids[i]);
		close_link(&links[i]);
	}
	guarded_expect(ARRAY_SIZE(pids));
	unmap(p, TAIL);
	unmap(q, MB(8));
}

/* All that children held is back in the pools when they are gone. */
static void children_leave_nothing_behind(void)
{
	uint64_t before;
	char *p;

	skip_unless_registered();
	p = map_anon(MB(16));
	stamp(p, MB(16), 1);
	before = pool_value("free_bytes");
	for (int round = 0; round < 5; round++)
		in_child(write_16m, p);
	await_pool_free(before);
	unmap(p, MB(16));
}

/* ---- Threads beside a clone that waits ------------------------------------------ */

#define GIVE_UP_S 30

static void *clone_vfork(void *arg)
{
	struct link *link = arg;
	/* A copy of the address space, and the clone waits until the child is gone. */
	long pid = syscall(SYS_clone, CLONE_VFORK | SIGCHLD, 0, 0, 0, 0);

	if (!pid) {
		char c;

		_exit(read(link->to_child[0], &c, 1) == 1 ? 0 : 1);
	}
	CHECK_OK(pid);
	expect_success((pid_t)pid);
	return NULL;
}

static void other_threads_call_during_vfork(void *arg)
{
	struct link link;
	pthread_t thread;
	char *p = map_anon(MB(4));

	(void)arg;
	alarm(GIVE_UP_S);
	stamp(p, MB(4), 1);
	open_link(&link);
	thread = start_thread(clone_vfork, &link);
	/* While it waits, and before and after: mostly then. */
	for (int i = 0; i < 50; i++) {
		char *q = map_anon(MB(2));

		usleep(2000);
		stamp(q, MB(2), 2);
		verify_stamp(q, MB(2), 2);
		unmap(q, MB(2));
	}
	verify_stamp(p, MB(4), 1);
	tell(link.to_child[1]);
	join_thread(thread);
	close_link(&link);
	unmap(p, MB(4));
}

struct traced {
	struct link link;
	int tid;
};

static void *fork_traced(void *arg)
{
	struct traced *t = arg;
	pid_t pid;

	t->tid = gettid();
	tell(t->link.to_parent[1]);
	await(t->link.to_child[0]);
	pid = fork_child();
	if (!pid)
		_exit(0);
	expect_success(pid);
	return NULL;
}

/* A debugger of one thread: it sees the thread fork, and takes its time. */
static void trace_a_fork(pid_t tid, int begin, int end)
{
	int status;
	pid_t pid;

	CHECK_OK(ptrace(PTRACE_SEIZE, tid, NULL, PTRACE_O_TRACEFORK));
	tell(begin);
	for (;;) {
		pid = waitpid(tid, &status, __WALL);
		CHECK_EQ(pid, tid);
		CHECK(WIFSTOPPED(status));
		if (status >> 8 == (SIGTRAP | PTRACE_EVENT_FORK << 8))
			break;
		CHECK_OK(ptrace(PTRACE_CONT, tid, NULL, 0));
	}
	tell(begin);
	await(end);
}

static void other_threads_call_during_a_stop(void *arg)
{
	char *p = map_anon(MB(4)), *q;
	struct traced t;
	pthread_t thread;
	pid_t debugger;

	(void)arg;
	alarm(GIVE_UP_S);
	stamp(p, MB(4), 1);
	open_link(&t.link);
	thread = start_thread(fork_traced, &t);
	await(t.link.to_parent[0]);
	/* Without Yama anybody of the same user may. */
	CHECK(!prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY) || errno == EINVAL);
	debugger = fork_child();
	if (!debugger) {
		alarm(GIVE_UP_S);
		trace_a_fork(t.tid, t.link.to_parent[1], t.link.to_child[0]);
		/* Its end lets the thread and the child go on. */
		_exit(0);
	}
	await(t.link.to_parent[0]);
	tell(t.link.to_child[1]);
	/* It is stopped in its fork. */
	await(t.link.to_parent[0]);
	q = map_anon(MB(4));
	stamp(q, MB(4), 2);
	verify_stamp(p, MB(4), 1);
	stamp(p, MB(4), 3);
	unmap(q, MB(4));
	verify_stamp(p, MB(4), 3);
	tell(t.link.to_child[1]);
	expect_success(debugger);
	join_thread(thread);
	close_link(&t.link);
	unmap(p, MB(4));
}

static void calls_beside_a_clone_that_waits(void)
{
	in_child(other_threads_call_during_vfork, NULL);
	in_child(other_threads_call_during_a_stop, NULL);
}

int main(void)
{
	static const struct test tests[] = {
		T(private_both_ways),
		T(children_inherit),
		T(snapshot_while_a_thread_writes),
		T(snapshot_of_what_is_pinned),
		T(grandchildren),
		T(many_generations),
		T(child_survives_its_parent),
		T(fork_from_a_thread),
		T(fork_with_64_mb),
		T(all_kinds_of_memory),
		T(children_keep_protections_and_holes),
		T(a_childs_unmap_is_its_own),
		T(shared_stays_shared),
		T(vfork_and_exec),
		T(spawn_and_system),
		T(exec_failure_leaves_the_child_as_it_was),
		T(statuses),
		T(killed_children),
		T(many_short_children),
		T(forks_while_a_thread_maps),
		T(pipes_carry_pool_memory),
		T(guards_share_nothing),
		T(children_leave_nothing_behind),
		T(memory_is_shared_until_written),
		T(parent_is_as_it_was_after_exec),
		T(parent_is_as_it_was_every_time),
		T(parent_is_as_it_was_beside_a_reader),
		T(changes_of_shared_memory),
		T(inherited_mappings_grow),
		T(parent_changes_what_is_shared),
		T(kernel_writes_are_copied),
		T(wipe_on_fork),
		T(calls_beside_a_clone_that_waits),
	};

	return RUN_GROUP("sem_fork", tests);
}
