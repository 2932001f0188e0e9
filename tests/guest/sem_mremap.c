// SPDX-License-Identifier: GPL-2.0
/* mremap(2): growing, shrinking, moving, errors. */
#include "common.h"
#include "at_once.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

/* A filled mapping on a slot with room behind it. */
static char *map_filled(size_t len, size_t room)
{
	char *base = free_range(len + room);

	map_flags(base, len, RW, ANON | MAP_FIXED_NOREPLACE);
	fill(base, len, 5);
	return base;
}

/* The range holds the fill up to len, zero after it, all without a fault. */
static void check_grown(char *p, size_t len, size_t new_len)
{
	watch_begin();
	verify(p, len, 5, 0);
	verify_zero(p + len, new_len - len);
	EXPECT_NO_FAULTS(p, new_len);
	CHECK_TOUCH(p, new_len);
	check_2m(p, new_len);
}

static const struct sizes {
	size_t len;
	size_t new_len;
} sizes[] = {
	{ KB(4), KB(8) },
	{ KB(4), MB(2) },
	{ MB(1), MB(5) },
	{ MB(2), MB(2) + KB(4) },
	{ MB(2), MB(4) },
	{ MB(2) - KB(4), MB(6) },
	{ MB(3) + KB(4), MB(9) },
};

static void grow_in_place(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		const struct sizes *s = &sizes[i];
		char *p = map_filled(s->len, MB(16));

		CHECK(mremap(p, s->len, s->new_len, 0) == p);
		check_grown(p, s->len, s->new_len);
		CHECK_EQ(vma_count(p, s->new_len), 1);
		unmap(p, s->new_len);
	}
}

/* A neighbour right behind forces the move. */
static void grow_by_moving(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		const struct sizes *s = &sizes[i];
		char *p = map_filled(s->len, MB(16));
		char *blocker = map_flags(p + s->len, PAGE, PROT_READ,
					  ANON | MAP_FIXED_NOREPLACE);
		char *q;

		CHECK_ERR(mremap(p, s->len, s->new_len, 0), ENOMEM);
		verify(p, s->len, 5, 0);
		q = mremap(p, s->len, s->new_len, MREMAP_MAYMOVE);
		CHECK_OK(q);
		CHECK(q != p);
		if (registered() && s->new_len >= SLOT && !in_region(q))
			CHECK_EQ((uintptr_t)q % SLOT, 0);
		check_grown(q, s->len, s->new_len);
		CHECK_READ_SEGV(p, SEGV_MAPERR);
		CHECK_READ_SEGV(p + s->len - 1, SEGV_MAPERR);
		verify_zero(blocker, PAGE);
		unmap(blocker, PAGE);
		unmap(q, s->new_len);
	}
}

static void shrink(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		const struct sizes *s = &sizes[i];
		char *p = map_filled(s->new_len, 0);

		CHECK(mremap(p, s->new_len, s->len, 0) == p);
		watch_begin();
		verify(p, s->len, 5, 0);
		EXPECT_NO_FAULTS(p, s->len);
		CHECK_READ_SEGV(p + s->len, SEGV_MAPERR);
		CHECK_READ_SEGV(p + s->new_len - 1, SEGV_MAPERR);
		check_2m(p, s->len);
		/* Grown again the tail is new memory. */
		CHECK(mremap(p, s->len, s->new_len, 0) == p);
		check_grown(p, s->len, s->new_len);
		unmap(p, s->new_len);
	}
}

static void same_length_stays(void)
{
	char *p = map_filled(MB(3), 0);

	CHECK(mremap(p, MB(3), MB(3), 0) == p);
	CHECK(mremap(p, MB(3), MB(3), MREMAP_MAYMOVE) == p);
	CHECK_TOUCH(p, MB(3));
	verify(p, MB(3), 5, 0);
	unmap(p, MB(3));
}

/*
 * Moves the first len bytes of a mapping onto an occupied range that starts
 * shift bytes off a slot.
 */
static void move_onto(size_t len, size_t new_len, size_t shift)
{
	char *p = map_filled(MB(8), 0);
	char *room = free_range(MB(16));
	char *target = room + SLOT + shift;

	map_flags(room, MB(16), RW, ANON | MAP_FIXED_NOREPLACE);
	fill(room, MB(16), 6);
	CHECK(mremap(p, len, new_len, MREMAP_MAYMOVE | MREMAP_FIXED, target) == target);
	watch_begin();
	verify(target, len < new_len ? len : new_len, 5, 0);
	if (new_len > len)
		verify_zero(target + len, new_len - len);
	verify(room, SLOT + shift, 6, 0);
	verify(target + new_len, MB(14) - shift - new_len, 6, SLOT + shift + new_len);
	verify(p + len, MB(8) - len, 5, len);
	watch_end();
	EXPECT_NO_FAULTS(room, MB(16));
	EXPECT_NO_FAULTS(p + len, MB(8) - len);
	CHECK_TOUCH(room, MB(16));
	CHECK_TOUCH(p + len, MB(8) - len);
	CHECK_READ_SEGV(p, SEGV_MAPERR);
	CHECK_READ_SEGV(p + len - 1, SEGV_MAPERR);
	verify(target, len < new_len ? len : new_len, 5, 0);
	unmap(p, MB(8));
	unmap(room, MB(16));
}

static void fixed_onto_an_occupied_range(void)
{
	move_onto(MB(4), MB(4), 0);
	move_onto(MB(2), MB(6), 0);
	move_onto(MB(5), MB(2), 0);
	move_onto(PAGE, PAGE, 0);
	move_onto(MB(3) + PAGE, MB(3) + PAGE, 0);
}

static void fixed_to_shifted_addresses(void)
{
	move_onto(MB(4), MB(4), PAGE);
	move_onto(MB(4), MB(6), MB(1));
	move_onto(PAGE, PAGE, 5 * PAGE);
	move_onto(MB(2), MB(2), MB(2) - PAGE);
	move_onto(MB(5) + PAGE, MB(2), 3 * PAGE);
}

/* There and back again; the last place is one with 2 MB entries. */
static void shifted_and_back(void)
{
	char *p = map_filled(MB(4), 0);
	char *room = free_range(MB(8));

	CHECK(mremap(p, MB(4), MB(4), MREMAP_MAYMOVE | MREMAP_FIXED, room + PAGE) ==
	      room + PAGE);
	CHECK_TOUCH(room + PAGE, MB(4));
	CHECK(mremap(room + PAGE, MB(4), MB(4), MREMAP_MAYMOVE | MREMAP_FIXED, p) == p);
	CHECK_TOUCH(p, MB(4));
	verify(p, MB(4), 5, 0);
	unmap(p, MB(4));
}

static atomic_int moving;

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

/* How long it takes at most to read all mappings while the other thread moves memory. */
static void *look_at_mappings(void *arg)
{
	static char buf[KB(64)];
	double *longest = arg;

	while (moving < 2) {
		int fd = open("/proc/self/maps", O_RDONLY);
		double since = seconds(), took;

		CHECK_OK(fd);
		while (read(fd, buf, sizeof(buf)) > 0)
			;
		close(fd);
		took = seconds() - since;
		if (moving && took > *longest)
			*longest = took;
	}
	return NULL;
}

/* What has to be copied takes long, and who only looks does not wait for all of it. */
static void copies_keep_nobody_out(void)
{
	double longest = 0, since, all;
	pthread_t thread;
	char *p, *room;

	moving = 0;
	thread = start_thread(look_at_mappings, &longest);
	p = map_filled(MB(128), 0);
	room = free_range(MB(130));
	moving = 1;
	since = seconds();
	CHECK(mremap(p, MB(128), MB(128), MREMAP_MAYMOVE | MREMAP_FIXED,
		     room + PAGE) == room + PAGE);
	all = seconds() - since;
	moving = 2;
	join_thread(thread);
	note("of %.1f ms somebody waited %.1f at once", all * 1e3, longest * 1e3);
	/* Linux copies nothing. */
	if (registered())
		CHECK(longest < all / 2);
	verify(room + PAGE, MB(128), 5, 0);
	unmap(room + PAGE, MB(128));
}

/* Nobody could write to the new place before: who does has found what moved there. */
static void written_where_it_moves(void)
{
	for (int i = 0; i < 16; i++) {
		pthread_t threads[AT_ONCE_THREADS];
		char *p, *room, *to;

		at_once_start(threads);
		p = map_filled(MB(4), 0);
		room = free_range(MB(6));
		to = room + (i & 1 ? PAGE : 0);
		map_flags(to, MB(4), RW, ANON | MAP_FIXED_NOREPLACE);
		fill(to, MB(4), 7);
		CHECK_OK(mprotect(to, MB(4), PROT_NONE));
		at_once_place = to;
		CHECK(mremap(p, MB(4), MB(4), MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
		at_once_check(threads, to);
		verify(to + AT_ONCE_THREADS * PAGE, MB(4) - AT_ONCE_THREADS * PAGE, 5,
		       AT_ONCE_THREADS * PAGE);
		unmap(to, MB(4));
	}
}

/*
 * A futex with priority inheritance has its page brought without waiting. Memory that is
 * one mapping with what moves, and lies elsewhere, is none of that.
 */
#define FUTEXES 12

static void *lock_meanwhile(void *arg)
{
	char *const *from = arg;

	while (!moving)
		;
	for (int i = 0; i < FUTEXES && moving == 1; i++) {
		int *futex = (int *)(*from + i * SLOT);

		CHECK_OK(syscall(SYS_futex, futex, FUTEX_LOCK_PI | FUTEX_PRIVATE_FLAG, 0, NULL, NULL, 0));
		CHECK_OK(syscall(SYS_futex, futex, FUTEX_UNLOCK_PI | FUTEX_PRIVATE_FLAG, 0, NULL, NULL, 0));
		usleep(10000);
	}
	return NULL;
}

static void locks_beside_what_moves(void)
{
	const size_t len = MB(96), rest = FUTEXES * SLOT;
	char *p, *room, *locks;
	pthread_t thread;

	moving = 0;
	thread = start_thread(lock_meanwhile, &locks);
	p = free_range(len + rest);
	map_flags(p, len + rest, RW, ANON | MAP_NORESERVE | MAP_FIXED_NOREPLACE);
	fill(p, len, 5);
	room = free_range(len + SLOT);
	locks = p + len;
	moving = 1;
	CHECK(mremap(p, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, room + PAGE) ==
	      room + PAGE);
	moving = 2;
	join_thread(thread);
	verify(room + PAGE, len, 5, 0);
	unmap(p + len, rest);
	unmap(room + PAGE, len);
}

/* The word that tells of its end lies where it moves to, when all are killed. */
static void *told_of_the_end(void *arg)
{
	char *const *to = arg;

	syscall(SYS_set_tid_address, *to + MB(100));
	moving = 1;
	for (;;)
		pause();
	return NULL;
}

#define KILLED_LEN MB(160)

static void move_and_be_killed(int fd)
{
	char *p = map_anon(KILLED_LEN), *room = free_range(KILLED_LEN + SLOT);

	start_thread(told_of_the_end, &room);
	while (!moving)
		usleep(1000);
	tell(fd);
	mremap(p, KILLED_LEN, KILLED_LEN, MREMAP_MAYMOVE | MREMAP_FIXED, room + PAGE);
	tell(fd);
	for (;;)
		pause();
}

/*
 * How long it takes until a process is gone that is killed after a part of its move, or,
 * if that is 0, when it is done, and how long that took, then.
 */
static double kill_it(double after, double *all)
{
	double since, took;
	int fds[2];
	pid_t pid;

	moving = 0;
	CHECK_OK(pipe(fds));
	pid = fork_child();
	if (!pid)
		move_and_be_killed(fds[1]);
	await(fds[0]);
	since = seconds();
	if (after) {
		usleep(after * 1e6);
	} else {
		await(fds[0]);
		*all = seconds() - since;
	}
	since = seconds();
	CHECK_OK(kill(pid, SIGKILL));
	expect_signal(pid, SIGKILL);
	took = seconds() - since;
	close(fds[0]);
	close(fds[1]);
	return took;
}

static double least(double a, double b)
{
	return a < b ? a : b;
}

/*
 * Who is killed need not wait until all is copied. On a busy machine each try may be late, but one that
 * had to wait would always be.
 */
static void killed_while_it_moves(void)
{
	double all = 1e9, alone = 1e9, took = 1e9, one;

	for (int i = 0; i < 4; i++) {
		alone = least(alone, kill_it(0, &one));
		all = least(all, one);
	}
	for (int i = 0; i < 40 && took >= alone + all / 2; i++)
		took = least(took, kill_it(all / 6 + 1e-6, NULL));
	note("a move of %.1f ms; killed in it, its process was gone in %.1f, after it in %.1f",
	     all * 1e3, took * 1e3, alone * 1e3);
	if (registered())
		CHECK(took < alone + all / 2);
}

static void move_from_the_middle(void)
{
	static const struct {
		size_t off;
		size_t len;
	} pieces[] = {
		{ PAGE, PAGE },
		{ MB(1), MB(2) },
		{ MB(2), MB(2) },
		{ MB(2) + PAGE, MB(4) },
		{ MB(8) - PAGE, PAGE },
	};

	for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
		size_t off = pieces[i].off, len = pieces[i].len;
		char *p = map_filled(MB(8), 0);
		char *target = free_range(MB(8));

		CHECK(mremap(p + off, len, len, MREMAP_MAYMOVE | MREMAP_FIXED,
			     target) == target);
		watch_begin();
		verify(target, len, 5, off);
		verify(p, off, 5, 0);
		verify(p + off + len, MB(8) - off - len, 5, off + len);
		watch_end();
		EXPECT_NO_FAULTS(target, len);
		EXPECT_NO_FAULTS(p, MB(8));
		CHECK_READ_SEGV(p + off, SEGV_MAPERR);
		/* The place it left is free and zero when mapped again. */
		map_flags(p + off, len, RW, ANON | MAP_FIXED_NOREPLACE);
		watch_begin();
		verify_zero(p + off, len);
		fill(p + off, len, 7);
		EXPECT_NO_FAULTS(p + off, len);
		verify(target, len, 5, off);
		unmap(p, MB(8));
		unmap(target, len);
	}
}

static void keeps_the_protection(void)
{
	char *p = map_filled(MB(4), 0);
	char *blocker = map_flags(p + MB(4), PAGE, PROT_READ,
				  ANON | MAP_FIXED_NOREPLACE);
	char *q;

	CHECK_OK(mprotect(p, MB(4), PROT_READ));
	q = mremap(p, MB(4), MB(6), MREMAP_MAYMOVE);
	CHECK_OK(q);
	verify(q, MB(4), 5, 0);
	verify_zero(q + MB(4), MB(2));
	CHECK_WRITE_SEGV(q, SEGV_ACCERR);
	CHECK_WRITE_SEGV(q + MB(6) - 1, SEGV_ACCERR);
	unmap(blocker, PAGE);
	unmap(q, MB(6));
}

static void moves_a_reservation(void)
{
	char *p = map_flags(NULL, GB(64), PROT_NONE, ANON | MAP_NORESERVE);
	char *q = mremap(p, GB(64), GB(128), MREMAP_MAYMOVE);

	CHECK_OK(q);
	CHECK_READ_SEGV(q, SEGV_ACCERR);
	CHECK_READ_SEGV(q + GB(128) - 1, SEGV_ACCERR);
	CHECK_OK(mprotect(q + GB(100), MB(4), RW));
	watch_begin();
	verify_zero(q + GB(100), MB(4));
	EXPECT_NO_FAULTS(q + GB(100), MB(4));
	unmap(q, GB(128));
}

static void errors(void)
{
	const int fixed = MREMAP_MAYMOVE | MREMAP_FIXED;
	char *p = map_filled(MB(4), MB(16));
	char *target = p + MB(8);

	CHECK_ERR(mremap(p + 1, PAGE, PAGE, 0), EINVAL);
	CHECK_ERR(mremap(p, MB(4), 0, 0), EINVAL);
	CHECK_ERR(mremap(p, MB(4), MB(4), 0x100), EINVAL);
	CHECK_ERR(mremap(p, MB(4), MB(4), MREMAP_FIXED, target), EINVAL);
	CHECK_ERR(mremap(p, MB(4), MB(4), fixed, target + 1), EINVAL);
	CHECK_ERR(mremap(p, MB(4), MB(4), fixed, p + MB(2)), EINVAL);
	CHECK_ERR(mremap(p, MB(4), MB(4), fixed, p), EINVAL);
	CHECK_ERR(mremap(p + MB(2), MB(2), MB(4), fixed, p), EINVAL);
	CHECK_ERR(mremap(p, MB(4), MB(4), fixed, (void *)(1UL << 56)), EINVAL);
	CHECK_ERR(mremap(p, MB(4), MB(4), MREMAP_MAYMOVE | MREMAP_DONTUNMAP, p + MB(1)),
		  EINVAL);
	CHECK_ERR(mremap(p, MB(4), MB(4), MREMAP_MAYMOVE | MREMAP_DONTUNMAP, p + MB(8) + 1),
		  EINVAL);
	CHECK_ERR(mremap(p, MB(4), MB(4), MREMAP_DONTUNMAP, NULL), EINVAL);
	CHECK_ERR(mremap(p, MB(4), MB(5), MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL),
		  EINVAL);
	/* Not mapped; reaches beyond what is mapped. */
	CHECK_ERR(mremap(target, PAGE, 2 * PAGE, MREMAP_MAYMOVE), EFAULT);
	CHECK_ERR(mremap(p, MB(6), MB(8), MREMAP_MAYMOVE), EFAULT);
	/* More than there is room for. */
	CHECK_ERR(mremap(p, MB(4), (1UL << 47) - MB(4), MREMAP_MAYMOVE), ENOMEM);
	CHECK_ERR(mremap(p, MB(4), (1UL << 47) - MB(4), 0), ENOMEM);
	CHECK_TOUCH(p, MB(4));
	verify(p, MB(4), 5, 0);
	CHECK_READ_SEGV(p + MB(4), SEGV_MAPERR);
	unmap(p, MB(4));
}

/* Only shared memory can be mapped a second time. */
static void old_length_zero(void)
{
	char *p = map_filled(MB(2), 0);
	char *shared, *again;

	CHECK_ERR(mremap(p, 0, MB(2), MREMAP_MAYMOVE), EINVAL);
	verify(p, MB(2), 5, 0);
	unmap(p, MB(2));

	shared = map_flags(NULL, MB(2), RW, MAP_SHARED | MAP_ANONYMOUS);
	fill(shared, MB(2), 1);
	again = mremap(shared, 0, MB(2), MREMAP_MAYMOVE);
	CHECK_OK(again);
	verify(again, MB(2), 1, 0);
	fill(again, MB(2), 2);
	verify(shared, MB(2), 2, 0);
	unmap(shared, MB(2));
	unmap(again, MB(2));
}

/* Grows several vectors in turn, as an application's arrays would. */
static void realloc_patterns(void)
{
	enum { NR = 4 };
	uint64_t *vector[NR] = { NULL };
	size_t len[NR] = { 0 };

	for (int round = 0; round < 40; round++) {
		for (size_t i = 0; i < NR; i++) {
			size_t more = KB(4) + KB(52) * (size_t)(round + 1) + i * 136;
			size_t old = len[i] / sizeof(uint64_t);
			size_t n;

			vector[i] = realloc(vector[i], len[i] + more);
			CHECK(vector[i] != NULL);
			len[i] += more;
			for (n = old; n < len[i] / sizeof(uint64_t); n++)
				vector[i][n] = n * 31 + i;
		}
	}
	for (size_t i = 0; i < NR; i++) {
		CHECK_TOUCH(vector[i], len[i]);
		for (size_t n = 0; n < len[i] / sizeof(uint64_t); n++)
			CHECK_EQ(vector[i][n], n * 31 + i);
		/* Down to a tenth and up again: the tenth stays. */
		vector[i] = realloc(vector[i], len[i] / 10);
		CHECK(vector[i] != NULL);
		vector[i] = realloc(vector[i], len[i]);
		CHECK(vector[i] != NULL);
		for (size_t n = 0; n < len[i] / 10 / sizeof(uint64_t); n++)
			CHECK_EQ(vector[i][n], n * 31 + i);
		free(vector[i]);
	}
}

/* A mapping moves with its key, also if that is free by now. */
static void keys_that_are_free(void)
{
	char *p = map_anon(MB(4)), *to = free_range(MB(4));
	int key = pkey_alloc(0, 0);

	if (key < 0)
		SKIP("no protection keys");
	fill(p, MB(4), 1);
	CHECK_OK(pkey_mprotect(p, MB(4), RW, key));
	CHECK_OK(pkey_free(key));
	CHECK(mremap(p, MB(4), MB(4), MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
	verify(to, MB(4), 1, 0);
	CHECK_OK(pkey_mprotect(to, MB(4), RW, 0));
	unmap(to, MB(4));
}

/* Linux's before ours: all of it moves, or nothing. */
static void moves_as_a_whole(void)
{
	char *p = map_filled(MB(8), 0), *to = free_range(MB(8)), *at;

	CHECK_OK(madvise(p, MB(2), MADV_WIPEONFORK));
	CHECK_OK(madvise(p, MB(2), MADV_KEEPONFORK));
	at = mremap(p, MB(8), MB(8), MREMAP_MAYMOVE | MREMAP_FIXED, to);
	if (at == MAP_FAILED) {
		CHECK(errno == EFAULT);
		at = p;
	}
	verify(at, MB(8), 5, 0);
	unmap(at, MB(8));
}

int main(void)
{
	static const struct test tests[] = {
		T(grow_in_place),
		T(grow_by_moving),
		T(shrink),
		T(same_length_stays),
		T(fixed_onto_an_occupied_range),
		T(fixed_to_shifted_addresses),
		T(shifted_and_back),
		T(copies_keep_nobody_out),
		T(written_where_it_moves),
		T(locks_beside_what_moves),
		T(killed_while_it_moves),
		T(move_from_the_middle),
		T(keeps_the_protection),
		T(moves_a_reservation),
		T(errors),
		T(old_length_zero),
		T(realloc_patterns),
		T(keys_that_are_free),
		T(moves_as_a_whole),
	};

	return RUN_GROUP("sem_mremap", tests);
}
