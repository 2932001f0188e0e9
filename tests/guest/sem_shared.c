// SPDX-License-Identifier: GPL-2.0
/* Files of hpmmapfs: their size and memory, and calls that get too little memory. */
#include "shared.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- Size and memory ------------------------------------------------------ */

static void size_and_memory(void)
{
	static const size_t sizes[] = {
		1, PAGE, MB(2) - 1, MB(2), MB(2) + 1, MB(5), MB(32), MB(3), MB(2), 0, MB(8),
	};
	size_t all;
	int fd;

	fs_mount("size=64M");
	all = fs_free();
	if (fs_of_pools())
		CHECK_EQ(all, MB(64));
	fd = new_file("a", 0);
	expect_held(fd, 0);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		CHECK_OK(ftruncate(fd, (off_t)sizes[i]));
		CHECK_EQ(size_of(fd), sizes[i]);
		expect_held(fd, round_to(sizes[i], SLOT));
		if (fs_of_pools())
			await_fs_free(all - round_to(sizes[i], SLOT));
		if (fs_of_pools())
			CHECK_EQ(fs_free(), all - round_to(sizes[i], SLOT));
		verify_file_zero(fd, 0, sizes[i] < MB(3) ? sizes[i] : MB(3));
	}
	CHECK_OK(truncate(in_fs("a"), (off_t)MB(4)));
	CHECK_EQ(size_of(fd), MB(4));
	expect_held(fd, MB(4));
	close(fd);
	/* Opened anew, it is emptied. */
	fd = open(in_fs("a"), O_RDWR | O_TRUNC | O_CLOEXEC);
	CHECK_OK(fd);
	CHECK_EQ(size_of(fd), 0);
	expect_held(fd, 0);
	fs_end_with(fd, "a");
}

static void no_holes(void)
{
	off_t at;
	int fd;

	fs_any();
	fd = new_file("a", 0);
	write_at(fd, "end", 3, MB(10));
	CHECK_EQ(size_of(fd), MB(10) + 3);
	expect_held(fd, MB(12));
	verify_file_zero(fd, 0, MB(10));
	if (fs_of_pools()) {
		CHECK_EQ(lseek(fd, 0, SEEK_DATA), 0);
		CHECK_EQ(lseek(fd, (off_t)MB(5) + 7, SEEK_DATA), MB(5) + 7);
		CHECK_EQ(lseek(fd, 0, SEEK_HOLE), MB(10) + 3);
	}
	at = lseek(fd, 0, SEEK_END);
	CHECK_EQ(at, MB(10) + 3);
	CHECK_ERR(lseek(fd, at, SEEK_DATA), ENXIO);
	CHECK_ERR(lseek(fd, at + 1, SEEK_HOLE), ENXIO);
	CHECK_ERR(lseek(fd, -1, SEEK_SET), EINVAL);
	fs_end_with(fd, "a");
}

static void shrunk_and_grown(void)
{
	static const size_t ends[] = { 0, 8, PAGE - 8, PAGE, PAGE + 8, MB(2) - 8, MB(2), MB(2) + PAGE, MB(3) };
	int fd;
	char *p;

	fs_any();
	fd = new_file("a", MB(6));
	p = map_shared(fd, MB(6));
	for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
		fill(p, MB(6), i);
		CHECK_OK(ftruncate(fd, (off_t)ends[i]));
		CHECK_OK(ftruncate(fd, (off_t)MB(6)));
		verify(p, ends[i], i, 0);
		verify_zero(p + ends[i], MB(6) - ends[i]);
		verify_file_zero(fd, ends[i], MB(6) - ends[i]);
	}
	/* By a write, and by fallocate. */
	fill(p, MB(6), 50);
	CHECK_OK(ftruncate(fd, 100));
	write_at(fd, "x", 1, MB(6) - 1);
	verify_zero(p + 104, MB(6) - 112);
	fill(p, MB(6), 50);
	CHECK_OK(ftruncate(fd, 100));
	CHECK_OK(fallocate(fd, 0, 0, (off_t)MB(6)));
	verify_zero(p + 104, MB(6) - 104);
	unmap(p, MB(6));
	fs_end_with(fd, "a");
}

/* What somebody wrote behind the end of a file, in its last page, is not there when it has grown. */
static void behind_the_end(void)
{
	char *p;
	int fd;

	fs_any();
	fd = new_file("a", 100);
	p = map_shared(fd, PAGE);
	skip_unless_of_pools();
	memset(p, 1, PAGE);
	CHECK_OK(ftruncate(fd, (off_t)MB(4)));
	for (size_t i = 0; i < 100; i++)
		CHECK_EQ(p[i], 1);
	for (size_t i = 100; i < PAGE; i++)
		CHECK_EQ(p[i], 0);
	verify_file_zero(fd, 100, MB(4) - 100);
	unmap(p, PAGE);
	fs_end_with(fd, "a");
}

#define PUNCH(fd, off, len) \
	CHECK_OK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(off), (off_t)(len)))

/* A hole's memory is free for others. A touch, a write and fallocate fill it; read and a new mapping do not. */
static void holes(void)
{
	int a, b, fd[2];
	char to[KB(4)], *p, *q;

	skip_unless_of_pools();
	fs_mount("size=8M");
	CHECK_OK(pipe(fd));
	a = new_file("a", MB(8));
	p = map_shared(a, MB(8));
	fill(p, MB(8), 1);
	CHECK_OK(madvise(p + MB(1), MB(5), MADV_REMOVE));
	expect_held(a, MB(4));
	CHECK_EQ(fs_free(), MB(4));
	verify_file(a, 0, MB(1), 1, 0);
	verify_file_zero(a, MB(1), MB(5));
	q = map_shared(a, MB(8));
	expect_held(a, MB(4));
	unmap(q, MB(8));
	/* Another file has it meanwhile. */
	b = new_file("b", MB(4));
	CHECK_BUS(p + MB(2));
	CHECK_ERR(madvise(p + MB(2), MB(4), MADV_POPULATE_WRITE), EFAULT);
	CHECK_ERR(pwrite(a, "x", 1, (off_t)MB(3)), ENOSPC);
	CHECK_ERR(fallocate(a, 0, 0, (off_t)MB(8)), ENOSPC);
	CHECK_OK(ftruncate(b, (off_t)MB(2)));
	CHECK_ERR(pwrite(a, to, sizeof(to), (off_t)MB(4) - 8), ENOSPC);
	expect_held(a, MB(4));
	p[MB(5)] = 7;
	expect_held(a, MB(6));
	CHECK_BUS(p + MB(2));
	CHECK_OK(ftruncate(b, 0));
	CHECK_EQ(pwrite(a, "x", 1, (off_t)MB(3)), 1);
	expect_held(a, MB(8));
	CHECK_EQ(p[MB(3)], 'x');
	p[MB(3)] = 0;
	CHECK_EQ(p[MB(5)], 7);
	p[MB(5)] = 0;
	verify_zero(p + MB(1), MB(5));
	verify(p + MB(6), MB(2), 1, MB(6));

	/* What is pinned goes when it is not any more. */
	fill(p, MB(8), 2);
	CHECK_EQ(vmsplice(fd[1], &(struct iovec){ p + MB(2), KB(4) }, 1, 0), KB(4));
	PUNCH(a, MB(2), MB(2));
	CHECK_EQ(fs_free(), 0);
	CHECK_BUS(p + MB(2));
	CHECK_EQ(read(fd[0], to, sizeof(to)), KB(4));
	verify(to, KB(4), 2, MB(2));
	await_fs_free(MB(2));
	verify_zero(p + MB(2), MB(2));

	/* The last block goes with a hole that ends with the file, and the file may end in a hole. */
	CHECK_OK(ftruncate(a, (off_t)MB(7)));
	PUNCH(a, MB(4), MB(3));
	expect_held(a, MB(4));
	CHECK_OK(ftruncate(a, (off_t)MB(5) + 9));
	CHECK_OK(ftruncate(a, (off_t)MB(8)));
	expect_held(a, MB(6));
	verify_zero(p + MB(4), MB(4));
	PUNCH(a, 0, MB(8));
	expect_held(a, 0);
	CHECK_OK(fallocate(a, 0, MB(3), MB(2)));
	expect_held(a, MB(4));
	CHECK_OK(fallocate(a, FALLOC_FL_ZERO_RANGE, 0, MB(8)));
	expect_held(a, MB(8));
	verify_zero(p, MB(8));

	/* An option keeps the memory. */
	CHECK_OK(mount("none", fs_dir(), NULL, MS_REMOUNT, "noholes"));
	fill(p, MB(8), 3);
	PUNCH(a, MB(2), MB(2));
	expect_held(a, MB(8));
	verify_zero(p + MB(2), MB(2));
	CHECK_OK(mount("none", fs_dir(), NULL, MS_REMOUNT, "holes"));
	PUNCH(a, 0, MB(8));
	expect_held(a, 0);
	unmap(p, MB(8));
	close(b);
	CHECK_OK(unlink(in_fs("b")));
	close(fd[0]);
	close(fd[1]);
	fs_end_with(a, "a");
}

static void fallocate_modes(void)
{
	char *p;
	int fd;

	fs_mount("size=64M");
	fd = new_file("a", 0);
	CHECK_OK(fallocate(fd, 0, (off_t)MB(3), (off_t)MB(2)));
	CHECK_EQ(size_of(fd), MB(5));
	expect_held(fd, MB(6));
	CHECK_OK(fallocate(fd, 0, 0, PAGE));
	CHECK_EQ(size_of(fd), MB(5));
	CHECK_OK(posix_fallocate(fd, 0, (off_t)MB(8)));
	CHECK_EQ(size_of(fd), MB(8));
	p = map_shared(fd, MB(8));
	fill(p, MB(8), 1);

	/* Parts of blocks are zeroed in place, a whole block goes. */
	CHECK_OK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 100 * 8, PAGE));
	CHECK_OK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)MB(2), (off_t)MB(2)));
	CHECK_OK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)MB(6) + 8, (off_t)MB(100)));
	CHECK_EQ(size_of(fd), MB(8));
	expect_held(fd, MB(6));
	verify(p, 800, 1, 0);
	verify_zero(p + 800, PAGE);
	verify(p + 800 + PAGE, MB(2) - 800 - PAGE, 1, 800 + PAGE);
	verify_zero(p + MB(2), MB(2));
	verify(p + MB(4), MB(2) + 8, 1, MB(4));
	verify_zero(p + MB(6) + 8, MB(2) - 8);
	CHECK_ERR(fallocate(fd, FALLOC_FL_PUNCH_HOLE, 0, PAGE), EOPNOTSUPP);
	/* Far behind the end there is nothing to do. */
	CHECK_OK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)GB(100), (off_t)GB(100)));
	CHECK_EQ(size_of(fd), MB(8));

	CHECK_ERR(fallocate(fd, 0, 0, 0), EINVAL);
	CHECK_ERR(fallocate(fd, 0, -1, PAGE), EINVAL);
	CHECK_ERR(fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 0, (off_t)MB(2)), EOPNOTSUPP);
	CHECK_ERR(fallocate(fd, FALLOC_FL_INSERT_RANGE, 0, (off_t)MB(2)), EOPNOTSUPP);
	CHECK_ERR(fallocate(fd, 0, INT64_MAX - 5, INT64_MAX - 5), EFBIG);
	CHECK_EQ(size_of(fd), MB(8));

	if (fs_of_pools()) {
		fill(p, MB(8), 2);
		CHECK_OK(fallocate(fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, (off_t)MB(1), (off_t)MB(2)));
		verify(p, MB(1), 2, 0);
		verify_zero(p + MB(1), MB(2));
		verify(p + MB(3), MB(5), 2, MB(3));
		CHECK_OK(fallocate(fd, FALLOC_FL_ZERO_RANGE, (off_t)MB(7), (off_t)MB(2)));
		CHECK_EQ(size_of(fd), MB(9));
		CHECK_EQ(held(fd), MB(10));
		verify_file(fd, MB(6), MB(1), 2, MB(6));
		verify_file_zero(fd, MB(7), MB(2));
	}
	/* Memory behind the end, or a refusal; in no case another size, or memory that is lost. */
	CHECK_OK(ftruncate(fd, (off_t)MB(2)));
	if (fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)MB(6)) != 0)
		CHECK_EQ(errno, EOPNOTSUPP);
	CHECK_EQ(size_of(fd), MB(2));
	CHECK_OK(ftruncate(fd, (off_t)MB(2)));
	unmap(p, MB(8));
	close(fd);
	CHECK_ERR(open(in_fs("missing"), O_RDWR | O_CLOEXEC), ENOENT);
	fd = open(in_fs("a"), O_RDONLY | O_CLOEXEC);
	CHECK_OK(fd);
	CHECK_ERR(fallocate(fd, 0, 0, PAGE), EBADF);
	CHECK_ERR(ftruncate(fd, 0), EINVAL);
	fs_end_with(fd, "a");
}

/* ---- Too little ------------------------------------------------------------ */

struct state {
	size_t size;
	size_t held;
	size_t free;
	time_t seconds;
	long nanoseconds;
};

static struct state state_of(int fd)
{
	struct stat st;

	CHECK_OK(fstat(fd, &st));
	return (struct state){
		(size_t)st.st_size, (size_t)st.st_blocks * 512, fs_free(), st.st_mtim.tv_sec,
		st.st_mtim.tv_nsec,
	};
}

static void expect_state(int fd, const struct state *want)
{
	struct state now = state_of(fd);

	CHECK_EQ(now.size, want->size);
	CHECK_EQ(now.held, want->held);
	CHECK_EQ(now.free, want->free);
	CHECK_EQ(now.seconds, want->seconds);
	CHECK_EQ(now.nanoseconds, want->nanoseconds);
}

/* All ways to grow, none of which may: the file stays as it is. */
static void expect_full(int fd, size_t to)
{
	/* In a job it is memory of the pools, too. */
	size_t len = to - size_of(fd) < MB(8) ? to - size_of(fd) : MB(8);
	char *from = map_anon(len);
	struct state before = state_of(fd);

	memset(from, 1, len);
	CHECK_ERR(ftruncate(fd, (off_t)to), ENOSPC);
	expect_state(fd, &before);
	CHECK_ERR(fallocate(fd, 0, 0, (off_t)to), ENOSPC);
	expect_state(fd, &before);
	CHECK_ERR(fallocate(fd, 0, (off_t)to - PAGE, PAGE), ENOSPC);
	expect_state(fd, &before);
	CHECK_ERR(fallocate(fd, FALLOC_FL_ZERO_RANGE, (off_t)before.size, (off_t)(to - before.size)), ENOSPC);
	expect_state(fd, &before);
	CHECK_ERR(pwrite(fd, "x", 1, (off_t)to - 1), ENOSPC);
	expect_state(fd, &before);
	CHECK_ERR(pwrite(fd, from, len, (off_t)(to - len)), ENOSPC);
	expect_state(fd, &before);
	unmap(from, len);
}

static void full(void)
{
	char *p;
	int a, b;

	skip_unless_of_pools();
	fs_mount("size=16M");
	a = new_file("a", MB(10));
	b = new_file("b", 0);
	p = map_shared(a, MB(10));
	fill(p, MB(10), 1);
	expect_full(b, MB(8));
	expect_full(a, MB(18));
	verify_file(a, 0, MB(10), 1, 0);
	/* What there is can be had. */
	CHECK_OK(ftruncate(b, (off_t)MB(6)));
	expect_full(b, MB(6) + 1);
	expect_full(a, MB(10) + 1);
	CHECK_EQ(fs_free(), 0);
	/* Within its memory a file grows and shrinks. */
	CHECK_OK(ftruncate(b, (off_t)MB(4) + 1));
	CHECK_EQ(held(b), MB(6));
	CHECK_OK(ftruncate(b, (off_t)MB(6)));
	/* Overwriting needs nothing. */
	write_at(a, "x", 1, MB(9));
	CHECK_OK(fallocate(a, 0, 0, (off_t)MB(10)));
	/* Names and empty files are there for nothing. */
	for (int i = 0; i < 20; i++) {
		char name[16];

		snprintf(name, sizeof(name), "n%d", i);
		close(new_file(name, 0));
		CHECK_OK(unlink(in_fs(name)));
	}
	CHECK_OK(mkdir(in_fs("d"), 0700));
	CHECK_OK(symlink("a", in_fs("s")));
	CHECK_OK(unlink(in_fs("s")));
	CHECK_OK(rmdir(in_fs("d")));
	/* And what one gives up the other gets. */
	CHECK_OK(ftruncate(b, 0));
	CHECK_OK(ftruncate(a, (off_t)MB(16)));
	verify_file_zero(a, MB(10), MB(6));
	CHECK_OK(unlink(in_fs("a")));
	CHECK_OK(unlink(in_fs("b")));
	close(b);
	/* The mapping keeps it. */
	close(a);
	CHECK_EQ(fs_free(), 0);
	unmap(p, MB(10));
	fs_end();
}

/* Pools that have less than the mount may have. */
static void pools_used_up(void)
{
	size_t rest;
	int fd;

	skip_unless_of_pools();
	fs_mount("size=64G");
	rest = pool_value("free_bytes");
	fd = new_file("a", MB(8));
	expect_full(fd, rest + MB(64));
	verify_file_zero(fd, 0, MB(8));
	CHECK_OK(unlink(in_fs("a")));
	close(fd);
	fs_end();
}

/* A write that cannot be read from: the file is as long as what was written. */
static void bad_buffers(void)
{
	char *p = map_anon(MB(4)), *guard = p + MB(2);
	struct state before;
	ssize_t n;
	int fd;

	fs_any();
	fill(p, MB(2), 1);
	CHECK_OK(mprotect(guard, MB(2), PROT_NONE));
	fd = new_file("a", PAGE);
	before = state_of(fd);
	/* tmpfs grows all the same. */
	if (fs_of_pools()) {
		CHECK_ERR(pwrite(fd, guard, PAGE, (off_t)MB(8)), EFAULT);
		CHECK_EQ(size_of(fd), PAGE);
		CHECK_EQ(held(fd), MB(2));
	}
	n = pwrite(fd, guard - PAGE, MB(1), PAGE);
	if (n < 0) {
		CHECK_EQ(errno, EFAULT);
		CHECK_EQ(size_of(fd), PAGE);
	} else {
		CHECK_EQ(n, PAGE);
		CHECK_EQ(size_of(fd), 2 * PAGE);
		verify_file(fd, PAGE, PAGE, 1, MB(2) - PAGE);
	}
	CHECK_OK(ftruncate(fd, (off_t)MB(4)));
	verify_file_zero(fd, 2 * PAGE, MB(4) - 2 * PAGE);
	/* Into what cannot be written to. */
	CHECK_ERR(pread(fd, guard, PAGE, 0), EFAULT);
	CHECK_EQ(pread(fd, guard - PAGE, MB(1), 0), PAGE);
	CHECK_OK(ftruncate(fd, PAGE));
	expect_held(fd, before.held);
	close(fd);
	CHECK_OK(unlink(in_fs("a")));
	unmap(p, MB(4));
	fs_end();
}

static void sizes_beyond_reason(void)
{
	struct rlimit limit, old;
	int fd;

	fs_any();
	fd = new_file("a", PAGE);
	CHECK_ERR(ftruncate(fd, -1), EINVAL);
	errno = 0;
	CHECK(ftruncate(fd, INT64_MAX) != 0 || !fs_of_pools());
	if (fs_of_pools())
		CHECK(errno == EFBIG || errno == ENOSPC);
	CHECK_OK(ftruncate(fd, PAGE));
	errno = 0;
	CHECK(pwrite(fd, "x", 1, INT64_MAX - 1) == -1 || !fs_of_pools());
	CHECK_OK(ftruncate(fd, PAGE));
	CHECK_EQ(size_of(fd), PAGE);
	CHECK_ERR(pwrite(fd, "x", 1, -1), EINVAL);
	CHECK_ERR(pread(fd, &limit, 1, -1), EINVAL);
	CHECK_EQ(pread(fd, &limit, 1, (off_t)GB(100)), 0);

	CHECK_OK(getrlimit(RLIMIT_FSIZE, &old));
	limit = old;
	limit.rlim_cur = MB(4);
	CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
	CHECK_OK(setrlimit(RLIMIT_FSIZE, &limit));
	CHECK_ERR(ftruncate(fd, (off_t)MB(4) + 1), EFBIG);
	CHECK_ERR(pwrite(fd, "x", 1, (off_t)MB(4)), EFBIG);
	CHECK_ERR(fallocate(fd, 0, 0, (off_t)MB(6)), EFBIG);
	CHECK_ERR(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)MB(6)), EFBIG);
	CHECK_EQ(size_of(fd), PAGE);
	CHECK_EQ(pwrite(fd, "xyz", 3, (off_t)MB(4) - 1), 1);
	CHECK_EQ(size_of(fd), MB(4));
	CHECK_OK(setrlimit(RLIMIT_FSIZE, &old));
	CHECK(signal(SIGXFSZ, SIG_DFL) != SIG_ERR);
	fs_end_with(fd, "a");
}

/* Who is killed while a large file is made leaves all of it or nothing. */
static void killed_while_it_grows(void)
{
	size_t large, before;
	int fd;

	skip_unless_of_pools();
	fs_mount("size=1G");
	before = pool_value("free_bytes");
	large = before > MB(1100) ? MB(1000) : before / 2 / MB(2) * MB(2);
	fd = new_file("a", MB(2));
	for (unsigned int i = 0; i < 12; i++) {
		pid_t pid = fork_child();
		size_t size;

		if (pid == 0) {
			/* Both ways, and dirty, so that next time it has to be zeroed. */
			if (i % 3 == 0 && ftruncate(fd, (off_t)large) == 0)
				memset(map_shared(fd, large), 1, large);
			else if (i % 3 == 1)
				_exit(fallocate(fd, 0, 0, (off_t)large) != 0);
			else
				_exit(pwrite(fd, "x", 1, (off_t)large - 1) != 1);
			_exit(0);
		}
		nanosleep(&(struct timespec){ .tv_nsec = 3000000L << (i / 2) }, NULL);
		CHECK_OK(kill(pid, SIGKILL));
		wait_child(pid);
		size = size_of(fd);
		if (size != MB(2) && size != large)
			FAIL("the file has %zu KB", size >> 10);
		CHECK_EQ(held(fd), size);
		CHECK_OK(ftruncate(fd, (off_t)MB(2)));
		CHECK_EQ(held(fd), MB(2));
		await_fs_free(GB(1) - MB(2));
	}
	CHECK_OK(ftruncate(fd, (off_t)MB(100)));
	verify_file_zero(fd, MB(2), MB(98));
	close(fd);
	CHECK_OK(unlink(in_fs("a")));
	await_pool_free(before);
	fs_end();
}

/* Two that grow files at the same time never have more than there is, and each all or nothing. */
static void race_for_the_rest(void)
{
	int fds[4];

	skip_unless_of_pools();
	fs_mount("size=32M");
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		char name[8];

		snprintf(name, sizeof(name), "%zu", i);
		fds[i] = new_file(name, 0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		pid_t pid = fork_child();

		if (pid)
			continue;
		for (int n = 0; n < 200; n++) {
			size_t to = MB(2 * (2 + (i * 5 + (size_t)n) % 9));

			if (ftruncate(fds[i], (off_t)to) != 0) {
				CHECK_EQ(errno, ENOSPC);
				to = size_of(fds[i]);
			}
			CHECK_EQ(size_of(fds[i]), to);
			CHECK_EQ(held(fds[i]), to);
			CHECK(fs_free() <= MB(32) - to);
			/* That is growth for who has got nothing. */
			if (ftruncate(fds[i], n % 2 ? 0 : (off_t)MB(2)) != 0) {
				CHECK_EQ(errno, ENOSPC);
				CHECK_EQ(to, 0);
			}
		}
		_exit(0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		int status;

		CHECK(wait(&status) > 0);
		CHECK_EQ(status, 0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		CHECK_OK(ftruncate(fds[i], 0));
	await_fs_free(MB(32));
	CHECK_OK(ftruncate(fds[0], (off_t)MB(32)));
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		close(fds[i]);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		char name[8];

		snprintf(name, sizeof(name), "%zu", i);
		CHECK_OK(unlink(in_fs(name)));
	}
	fs_end();
}

/* Two that grow one file: it has what the larger of them asked for. */
static void two_grow_one(void)
{
	int fd;

	fs_mount("size=128M");
	fd = new_file("a", 0);
	for (int round = 0; round < 20; round++) {
		for (size_t i = 0; i < 3; i++) {
			pid_t pid = fork_child();
			char byte = (char)('a' + i);

			if (pid)
				continue;
			for (size_t n = 1; n <= 8; n++)
				write_at(fd, &byte, 1, n * MB(4) - 1 - i * PAGE);
			_exit(0);
		}
		for (size_t i = 0; i < 3; i++) {
			int status;

			CHECK(wait(&status) > 0);
			CHECK_EQ(status, 0);
		}
		CHECK_EQ(size_of(fd), MB(32));
		expect_held(fd, MB(32));
		for (size_t i = 0; i < 3; i++) {
			for (size_t n = 1; n <= 8; n++) {
				char byte = 0;

				read_at(fd, &byte, 1, n * MB(4) - 1 - i * PAGE);
				CHECK_EQ(byte, 'a' + (int)i);
			}
		}
		verify_file_zero(fd, 0, MB(1));
		CHECK_OK(ftruncate(fd, 0));
	}
	fs_end_with(fd, "a");
}

int main(void)
{
	static const struct test tests[] = {
		T(size_and_memory),
		T(no_holes),
		T(shrunk_and_grown),
		T(behind_the_end),
		T(holes),
		T(fallocate_modes),
		T(full),
		T(pools_used_up),
		T(bad_buffers),
		T(sizes_beyond_reason),
		T(killed_while_it_grows),
		T(race_for_the_rest),
		T(two_grow_one),
	};

	return RUN_GROUP("sem_shared", tests);
}
