// SPDX-License-Identifier: GPL-2.0
/* Mappings of files of hpmmapfs: population, calls that change them, and changes of the file. */
#include "shared.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <linux/userfaultfd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void touch_all(char *p, size_t len, bool write)
{
	for (volatile char *at = p; at < p + len; at += PAGE) {
		if (write)
			*at = *at;
		else
			(void)*at;
	}
}

/* ---- What is there at once -------------------------------------------------- */

static void writable(void)
{
	char *p;
	int fd;

	fs_any();
	fd = new_file("a", MB(16));
	p = map_shared(fd, MB(16));
	if (fs_of_pools())
		CHECK_EQ((uintptr_t)p % SLOT, 0);
	check_eager(p, MB(16));
	watch_begin();
	touch_all(p, MB(16), true);
	EXPECT_EAGER(p, MB(16));
	verify_zero(p, MB(16));
	fill(p, MB(16), 1);
	verify_file(fd, 0, MB(16), 1, 0);
	unmap(p, MB(16));
	/* A part, at an offset: aligned in the same way. */
	p = map_file(fd, MB(5), RW, MAP_SHARED, MB(3));
	if (fs_of_pools())
		CHECK_EQ((uintptr_t)p % SLOT, MB(1));
	watch_begin();
	touch_all(p, MB(5), true);
	EXPECT_EAGER(p, MB(5));
	check_eager(p, MB(5));
	verify(p, MB(5), 1, MB(3));
	unmap(p, MB(5));
	/* A few pages. */
	p = map_file(fd, 3 * PAGE, RW, MAP_SHARED, MB(2) - PAGE);
	watch_begin();
	touch_all(p, 3 * PAGE, true);
	EXPECT_EAGER(p, 3 * PAGE);
	verify(p, 3 * PAGE, 1, MB(2) - PAGE);
	unmap(p, 3 * PAGE);
	fs_end_with(fd, "a");
}

static void read_only(void)
{
	char *p;
	int fd;

	fs_any();
	fd = new_file("a", MB(8));
	p = map_shared(fd, MB(8));
	fill(p, MB(8), 1);
	unmap(p, MB(8));
	close(fd);
	fd = open(in_fs("a"), O_RDONLY | O_CLOEXEC);
	CHECK_OK(fd);
	CHECK_ERR(mmap(NULL, MB(8), RW, MAP_SHARED, fd, 0), EACCES);
	p = map_file(fd, MB(8), PROT_READ, MAP_SHARED, 0);
	check_eager(p, MB(8));
	watch_begin();
	touch_all(p, MB(8), false);
	EXPECT_EAGER(p, MB(8));
	verify(p, MB(8), 1, 0);
	CHECK_WRITE_SEGV(p + MB(3), SEGV_ACCERR);
	CHECK_ERR(mprotect(p, MB(2), RW), EACCES);
	unmap(p, MB(8));
	close(fd);
	/* Of a file that may be written to it becomes writable, and the other way round. */
	fd = open(in_fs("a"), O_RDWR | O_CLOEXEC);
	CHECK_OK(fd);
	p = map_file(fd, MB(8), PROT_READ, MAP_SHARED, 0);
	CHECK_OK(mprotect(p, MB(8), RW));
	watch_begin();
	touch_all(p, MB(8), true);
	EXPECT_EAGER(p, MB(8));
	CHECK_OK(mprotect(p, MB(8), PROT_READ));
	CHECK_WRITE_SEGV(p, SEGV_ACCERR);
	CHECK_WRITE_SEGV(p + MB(8) - 1, SEGV_ACCERR);
	verify(p, MB(8), 1, 0);
	unmap(p, MB(8));
	p = map_file(fd, MB(8), PROT_NONE, MAP_SHARED, 0);
	CHECK_READ_SEGV(p, SEGV_ACCERR);
	CHECK_OK(mprotect(p, MB(8), RW));
	verify(p, MB(8), 1, 0);
	unmap(p, MB(8));
	close(fd);
	fd = open(in_fs("a"), O_WRONLY | O_CLOEXEC);
	CHECK_OK(fd);
	CHECK_ERR(mmap(NULL, MB(8), PROT_READ, MAP_SHARED, fd, 0), EACCES);
	fs_end_with(fd, "a");
}

/* At addresses that do not go with the file's blocks. */
static void askew(void)
{
	char *room = free_range(MB(12)), *p;
	int fd;

	fs_any();
	fd = new_file("a", MB(8));
	p = mmap(room + MB(1) + PAGE, MB(8), RW, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0);
	CHECK(p == room + MB(1) + PAGE);
	watch_begin();
	touch_all(p, MB(8), true);
	EXPECT_EAGER(p, MB(8));
	fill(p, MB(8), 1);
	verify_file(fd, 0, MB(8), 1, 0);
	/* The same blocks by another mapping, in whole. */
	p = map_shared(fd, MB(8));
	verify(p, MB(8), 1, 0);
	fill(p, MB(8), 2);
	verify(room + MB(1) + PAGE, MB(8), 2, 0);
	unmap(room + MB(1) + PAGE, MB(8));
	unmap(p, MB(8));
	CHECK_ERR(mmap(NULL, MB(2), RW, MAP_SHARED, fd, 12), EINVAL);
	CHECK_ERR(mmap(NULL, 0, RW, MAP_SHARED, fd, 0), EINVAL);
	CHECK_ERR(mmap(NULL, MB(2), RW, MAP_SHARED | MAP_GROWSDOWN, fd, 0), EINVAL);
	CHECK_ERR(mmap(NULL, MB(2), RW, MAP_SHARED_VALIDATE | 0x80000 /* MAP_SYNC */, fd, 0), EOPNOTSUPP);
	fs_end_with(fd, "a");
}

/* Beyond the end of the file, and with its end. */
static void beyond_the_end(void)
{
	char *p;
	int fd;

	fs_any();
	fd = new_file("a", MB(2) + PAGE + 1);
	p = map_shared(fd, MB(16));
	watch_begin();
	touch_all(p, MB(2) + 2 * PAGE, true);
	EXPECT_EAGER(p, MB(2) + 2 * PAGE);
	CHECK_BUS(p + MB(4));
	CHECK_BUS(p + MB(16) - 1);
	CHECK_BUS(p + MB(2) + 2 * PAGE);
	CHECK_BUS(p + MB(4) - 1);
	memset(p, 1, MB(2) + PAGE + 1);
	/* It grows under the mapping, by whoever. */
	CHECK_OK(truncate(in_fs("a"), (off_t)MB(8)));
	touch_all(p, MB(8), true);
	verify_zero(p + MB(2) + 2 * PAGE, MB(6) - 2 * PAGE);
	CHECK_EQ(p[MB(2) + PAGE], 1);
	CHECK_BUS(p + MB(8));
	fill(p, MB(8), 2);
	CHECK_OK(ftruncate(fd, (off_t)MB(4) + 5));
	verify(p, MB(4), 2, 0);
	CHECK_EQ(probe_write(p + MB(4) + PAGE - 1).sig, 0);
	CHECK_BUS(p + MB(4) + PAGE);
	CHECK_BUS(p + MB(6));
	CHECK_OK(ftruncate(fd, 0));
	CHECK_BUS(p);
	/* The kernel's own accesses fail, and signal nothing. */
	CHECK_ERR(read(open("/dev/zero", O_RDONLY | O_CLOEXEC), p, 100), EFAULT);
	unmap(p, MB(16));
	close(fd);
	/* A mapping of an empty file, and one far behind the end. */
	fd = open(in_fs("a"), O_RDWR | O_CLOEXEC);
	p = map_shared(fd, MB(4));
	CHECK_BUS(p);
	CHECK_OK(ftruncate(fd, (off_t)MB(4)));
	touch_all(p, MB(4), true);
	unmap(p, MB(4));
	p = map_file(fd, MB(4), RW, MAP_SHARED, GB(100));
	CHECK_BUS(p);
	unmap(p, MB(4));
	fs_end_with(fd, "a");
}

/* ---- Private mappings -------------------------------------------------------- */

static void private_mappings(void)
{
	char *p, *q;
	pid_t pid;
	int fd;

	fs_any();
	fd = new_file("a", MB(8));
	p = map_shared(fd, MB(8));
	fill(p, MB(8), 1);
	q = map_file(fd, MB(8), RW, MAP_PRIVATE, 0);
	verify(q, MB(8), 1, 0);
	fill(q + MB(2) - PAGE, 2 * PAGE, 5);
	q[MB(6)] = 77;
	verify(p, MB(8), 1, 0);
	verify_file(fd, 0, MB(8), 1, 0);
	/* What the other writes does not reach what was written to. */
	fill(p, MB(8), 2);
	verify(q + MB(2) - PAGE, 2 * PAGE, 5, 0);
	CHECK_EQ(q[MB(6)], 77);
	pid = fork_child();
	if (pid == 0) {
		verify(q + MB(2) - PAGE, 2 * PAGE, 5, 0);
		memset(q + MB(2), 9, PAGE);
		p[MB(7)] = 66;
		_exit(0);
	}
	expect_success(pid);
	verify(q + MB(2) - PAGE, 2 * PAGE, 5, 0);
	CHECK_EQ(p[MB(7)], 66);
	/* A punch leaves the copies, the end of the file does not. */
	CHECK_OK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)MB(8)));
	verify(q + MB(2) - PAGE, 2 * PAGE, 5, 0);
	verify_zero(p, MB(8));
	CHECK_OK(madvise(q, MB(8), MADV_DONTNEED));
	verify_zero(q, MB(8));
	memset(q, 3, MB(8));
	CHECK_OK(ftruncate(fd, (off_t)MB(2)));
	CHECK_BUS(q + MB(2));
	CHECK_EQ(q[MB(1)], 3);
	CHECK_OK(ftruncate(fd, (off_t)MB(8)));
	verify_zero(q + MB(4), MB(4));
	unmap(p, MB(8));
	unmap(q, MB(8));
	/* Of a file that may only be read. */
	close(fd);
	fd = open(in_fs("a"), O_RDONLY | O_CLOEXEC);
	q = map_file(fd, MB(8), RW, MAP_PRIVATE, 0);
	memset(q, 1, MB(8));
	verify_file_zero(fd, 0, MB(8));
	CHECK_OK(mprotect(q + MB(3), MB(1), PROT_READ));
	CHECK_WRITE_SEGV(q + MB(3), SEGV_ACCERR);
	CHECK_EQ(q[MB(3)], 1);
	unmap(q, MB(8));
	fs_end_with(fd, "a");
}

/* ---- Parts --------------------------------------------------------------------- */

static void parts(void)
{
	char *p, *moved;
	int fd;

	fs_any();
	fd = new_file("a", MB(8));
	p = map_shared(fd, MB(8));
	fill(p, MB(8), 1);
	CHECK_OK(mprotect(p + MB(1), PAGE, PROT_READ));
	CHECK_WRITE_SEGV(p + MB(1), SEGV_ACCERR);
	CHECK_EQ(probe_write(p + MB(1) - 1).sig, 0);
	CHECK_EQ(probe_write(p + MB(1) + PAGE).sig, 0);
	CHECK_OK(mprotect(p + MB(3), MB(2), PROT_NONE));
	CHECK_READ_SEGV(p + MB(3), SEGV_ACCERR);
	CHECK_READ_SEGV(p + MB(5) - 1, SEGV_ACCERR);
	CHECK_OK(mprotect(p, MB(8), RW));
	verify(p, MB(8), 1, 0);

	unmap(p + MB(2) + PAGE, PAGE);
	CHECK_READ_SEGV(p + MB(2) + PAGE, SEGV_MAPERR);
	unmap(p + MB(5), MB(2));
	CHECK_READ_SEGV(p + MB(6), SEGV_MAPERR);
	verify(p, MB(2) + PAGE, 1, 0);
	verify(p + MB(2) + 2 * PAGE, MB(3) - 2 * PAGE, 1, MB(2) + 2 * PAGE);
	verify(p + MB(7), MB(1), 1, MB(7));
	verify_file(fd, 0, MB(8), 1, 0);
	CHECK(mmap(p, MB(8), RW, MAP_SHARED | MAP_FIXED, fd, 0) == p);
	verify(p, MB(8), 1, 0);
	check_eager(p, MB(8));

	/* Moved, in whole and in part, larger and smaller. */
	moved = mremap(p, MB(8), MB(16), MREMAP_MAYMOVE);
	CHECK(moved != MAP_FAILED);
	verify(moved, MB(8), 1, 0);
	CHECK_BUS(moved + MB(8));
	CHECK_OK(ftruncate(fd, (off_t)MB(16)));
	touch_all(moved, MB(16), true);
	p = mremap(moved, MB(16), MB(4), 0);
	CHECK(p == moved);
	CHECK_READ_SEGV(p + MB(4), SEGV_MAPERR);
	moved = free_range(MB(8)) + PAGE;
	CHECK(mremap(p + MB(1), MB(2), MB(2), MREMAP_MAYMOVE | MREMAP_FIXED, moved) == moved);
	verify(moved, MB(2), 1, MB(1));
	verify(p, MB(1), 1, 0);
	verify(p + MB(3), MB(1), 1, MB(3));
	CHECK_READ_SEGV(p + MB(2), SEGV_MAPERR);
	fill(moved, MB(2), 2);
	verify_file(fd, MB(1), MB(2), 2, 0);
	unmap(moved, MB(2));
	/* One more mapping of the same. */
	moved = mremap(p, 0, MB(1), MREMAP_MAYMOVE);
	CHECK(moved != MAP_FAILED && moved != p);
	verify(moved, MB(1), 1, 0);
	moved[0] = 55;
	CHECK_EQ(p[0], 55);
	unmap(moved, MB(1));
	unmap(p, MB(4));
	fs_end_with(fd, "a");
}

/* Beside the process's own memory, which in a job is of the pools, too; calls for all of it. */
static void beside_other_memory(void)
{
	char *room = free_range(MB(16)), *p;
	int fd;

	fs_any();
	fd = new_file("a", MB(4));
	map_flags(room, MB(16), RW, ANON | MAP_FIXED_NOREPLACE);
	fill(room, MB(16), 1);
	p = room + MB(4) + PAGE;
	CHECK(mmap(p, MB(4), RW, MAP_SHARED | MAP_FIXED, fd, 0) == p);
	verify_zero(p, MB(4));
	fill(p, MB(4), 2);
	verify(room, MB(4) + PAGE, 1, 0);
	verify(p + MB(4), MB(8) - PAGE, 1, MB(8) + PAGE);
	CHECK_OK(mprotect(room, MB(16), PROT_READ));
	CHECK_WRITE_SEGV(p, SEGV_ACCERR);
	CHECK_WRITE_SEGV(room, SEGV_ACCERR);
	CHECK_OK(mprotect(room, MB(16), RW));
	CHECK_OK(madvise(room, MB(16), MADV_DONTNEED));
	verify_zero(room, MB(4) + PAGE);
	verify(p, MB(4), 2, 0);
	verify_zero(p + MB(4), MB(8) - PAGE);
	CHECK_OK(mlock(room, MB(4) + 2 * PAGE));
	CHECK_OK(munlock(room, MB(16)));
	/* The other way round: anonymous memory over the mapping. */
	map_flags(p + PAGE, MB(2), RW, ANON | MAP_FIXED);
	verify_zero(p + PAGE, MB(2));
	fill(p + PAGE, MB(2), 3);
	verify(p, PAGE, 2, 0);
	verify(p + MB(2) + PAGE, MB(2) - PAGE, 2, MB(2) + PAGE);
	verify_file(fd, 0, MB(4), 2, 0);
	unmap(room, MB(16));
	verify_file(fd, 0, MB(4), 2, 0);
	fs_end_with(fd, "a");
}

/* ---- Several processes ------------------------------------------------------------ */

static void shared_by_children(void)
{
	int fd, up[2], down[2];
	char *p, *q;
	pid_t pid;

	fs_any();
	fd = new_file("a", MB(8));
	p = map_shared(fd, MB(8));
	fill(p, MB(8), 1);
	CHECK_OK(pipe(up));
	CHECK_OK(pipe(down));
	pid = fork_child();
	if (pid == 0) {
		watch_begin();
		touch_all(p, MB(8), true);
		watch_end();
		verify(p, MB(8), 1, 0);
		tell(up[1]);
		await(down[0]);
		verify(p, MB(8), 2, 0);
		/* By another mapping of its own, and a child of its own. */
		q = map_shared(fd, MB(8));
		if (fork_child() == 0) {
			fill(q, MB(8), 3);
			_exit(0);
		}
		wait(NULL);
		verify(p, MB(8), 3, 0);
		unmap(p, MB(8));
		tell(up[1]);
		await(down[0]);
		verify(q, MB(8), 4, 0);
		_exit(0);
	}
	await(up[0]);
	fill(p, MB(8), 2);
	tell(down[1]);
	await(up[0]);
	verify(p, MB(8), 3, 0);
	fill(p, MB(8), 4);
	tell(down[1]);
	expect_success(pid);
	/* Not inherited. */
	CHECK_OK(madvise(p, MB(2), MADV_DONTFORK));
	pid = fork_child();
	if (pid == 0) {
		CHECK_READ_SEGV(p, SEGV_MAPERR);
		CHECK_EQ(probe_read(p + MB(2)).sig, 0);
		_exit(0);
	}
	expect_success(pid);
	CHECK_ERR(madvise(p, MB(2), MADV_WIPEONFORK), EINVAL);
	unmap(p, MB(8));
	close(fd);
	for (int i = 0; i < 2; i++) {
		close(up[i]);
		close(down[i]);
	}
	CHECK_OK(unlink(in_fs("a")));
	fs_end();
}

static long futex(uint32_t *word, int op, uint32_t value)
{
	struct timespec timeout = { .tv_sec = 60 };

	return syscall(SYS_futex, word, op, value, op == FUTEX_WAIT ? &timeout : NULL, NULL, 0);
}

/* Waited for in one mapping, woken in another; mutexes of all kinds. */
static void futexes(void)
{
	static const int protocols[] = { PTHREAD_PRIO_NONE, PTHREAD_PRIO_INHERIT };
	int fd;
	char *p;

	fs_any();
	fd = new_file("a", MB(4));
	p = map_shared(fd, MB(4));
	for (size_t at = 64; at < MB(4); at += MB(1) + PAGE) {
		uint32_t *word = (void *)(p + at);
		pid_t pid = fork_child();

		if (pid == 0) {
			char *q = map_file(fd, MB(4), RW, MAP_SHARED, 0);
			uint32_t *mine = (void *)(q + at);

			__atomic_store_n(mine, 1, __ATOMIC_SEQ_CST);
			while (__atomic_load_n(mine, __ATOMIC_SEQ_CST) == 1)
				if (futex(mine, FUTEX_WAIT, 1) != 0 && errno != EAGAIN && errno != EINTR)
					FAIL("FUTEX_WAIT: %s", errno_name(errno));
			_exit(0);
		}
		while (!__atomic_load_n(word, __ATOMIC_SEQ_CST))
			pause_ms(1);
		pause_ms(20);
		__atomic_store_n(word, 2, __ATOMIC_SEQ_CST);
		CHECK_OK(futex(word, FUTEX_WAKE, 1));
		expect_success(pid);
	}
	for (size_t i = 0; i < ARRAY_SIZE(protocols); i++) {
		pthread_mutex_t *mutex = (void *)(p + MB(3));
		volatile long *counter = (void *)(p + 8);
		pthread_mutexattr_t attr;
		pid_t pids[3];

		*counter = 0;
		CHECK_EQ(pthread_mutexattr_init(&attr), 0);
		CHECK_EQ(pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED), 0);
		CHECK_EQ(pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST), 0);
		CHECK_EQ(pthread_mutexattr_setprotocol(&attr, protocols[i]), 0);
		CHECK_EQ(pthread_mutex_init(mutex, &attr), 0);
		for (size_t n = 0; n < ARRAY_SIZE(pids); n++) {
			pids[n] = fork_child();
			for (int k = 0; pids[n] == 0 && k < 2000; k++) {
				int err = pthread_mutex_lock(mutex);

				if (err == EOWNERDEAD)
					err = pthread_mutex_consistent(mutex);
				CHECK_EQ(err, 0);
				++*counter;
				/* One dies with the mutex. */
				if (n == 0 && k == 1000)
					_exit(0);
				CHECK_EQ(pthread_mutex_unlock(mutex), 0);
			}
			if (pids[n] == 0)
				_exit(0);
		}
		for (size_t n = 0; n < ARRAY_SIZE(pids); n++)
			expect_success(pids[n]);
		CHECK_EQ(*counter, 1001 + 2 * 2000);
	}
	unmap(p, MB(4));
	fs_end_with(fd, "a");
}

/* ---- Advice, locks, others that look ------------------------------------------------------- */

static void advice(void)
{
	static const int harmless[] = {
		MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED, MADV_DONTNEED, MADV_COLD,
		MADV_PAGEOUT, MADV_DONTDUMP, MADV_DODUMP, MADV_POPULATE_READ, MADV_POPULATE_WRITE,
	};
	static const int may_be_refused[] = {
		MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_MERGEABLE, MADV_UNMERGEABLE, 25 /* MADV_COLLAPSE */,
	};
	char *p;
	int fd;

	fs_any();
	fd = new_file("a", MB(8));
	p = map_shared(fd, MB(8));
	fill(p, MB(8), 1);
	for (size_t i = 0; i < ARRAY_SIZE(harmless); i++) {
		CHECK_OK(madvise(p + PAGE, MB(3), harmless[i]));
		verify(p, MB(8), 1, 0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(may_be_refused); i++) {
		madvise(p, MB(8), may_be_refused[i]);
		verify(p, MB(8), 1, 0);
	}
	CHECK_ERR(madvise(p, MB(8), MADV_FREE), EINVAL);
	CHECK_OK(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
	CHECK_OK(fsync(fd));
	CHECK_OK(msync(p, MB(8), MS_SYNC));
	CHECK_OK(msync(p, MB(8), MS_INVALIDATE | MS_ASYNC));
	verify(p, MB(8), 1, 0);
	if (geteuid() == 0) {
		int drop = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);

		CHECK_OK(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
		if (drop >= 0 && write(drop, "3", 1) != 1)
			note("drop_caches: %s", errno_name(errno));
		close(drop);
		verify_file(fd, 0, MB(8), 1, 0);
		verify(p, MB(8), 1, 0);
	}
	CHECK_OK(madvise(p + MB(1), MB(2), MADV_REMOVE));
	verify(p, MB(1), 1, 0);
	verify_zero(p + MB(1), MB(2));
	verify(p + MB(3), MB(5), 1, MB(3));
	CHECK_EQ(size_of(fd), MB(8));
	CHECK_OK(ftruncate(fd, (off_t)MB(2)));
	CHECK_ERR(madvise(p, MB(8), MADV_POPULATE_WRITE), EFAULT);
	unmap(p, MB(8));
	fs_end_with(fd, "a");
}

static void locked(void)
{
	struct rlimit limit, old;
	unsigned char vec[MB(8) / PAGE];
	char *p;
	int fd;

	fs_any();
	fd = new_file("a", MB(8));
	p = map_shared(fd, MB(8));
	fill(p, MB(8), 1);
	CHECK_OK(mlock(p + MB(1), MB(4)));
	CHECK_OK(mlock2(p + MB(6), MB(1), MLOCK_ONFAULT));
	verify(p, MB(8), 1, 0);
	CHECK_OK(mincore(p, MB(8), vec));
	for (size_t i = 0; fs_of_pools() && i < sizeof(vec); i++)
		CHECK(vec[i] & 1);
	unmap(p + MB(2), MB(1));
	CHECK_OK(munlock(p, MB(2)));
	CHECK_OK(ftruncate(fd, (off_t)MB(4)));
	CHECK_BUS(p + MB(4));
	CHECK_OK(ftruncate(fd, (off_t)MB(8)));
	unmap(p, MB(8));
	p = mmap(NULL, MB(8), RW, MAP_SHARED | MAP_LOCKED | MAP_POPULATE, fd, 0);
	CHECK_OK(p);
	verify(p, MB(2), 1, 0);
	unmap(p, MB(8));
	CHECK_OK(mlockall(MCL_FUTURE));
	p = map_shared(fd, MB(8));
	verify(p, MB(2), 1, 0);
	CHECK_OK(munlockall());
	unmap(p, MB(8));
	if (geteuid() != 0) {
		CHECK_OK(getrlimit(RLIMIT_MEMLOCK, &old));
		limit = old;
		limit.rlim_cur = MB(1);
		CHECK_OK(setrlimit(RLIMIT_MEMLOCK, &limit));
		p = map_shared(fd, MB(8));
		CHECK_ERR(mlock(p, MB(8)), ENOMEM);
		unmap(p, MB(8));
		CHECK_OK(setrlimit(RLIMIT_MEMLOCK, &old));
	}
	fs_end_with(fd, "a");
}

static void userfaultfd_is_refused(void)
{
	static const uint64_t modes[] = {
		UFFDIO_REGISTER_MODE_MISSING, UFFDIO_REGISTER_MODE_WP, UFFDIO_REGISTER_MODE_MINOR,
	};
	struct uffdio_api api = { .api = UFFD_API };
	int uffd, fd;
	char *p;

	skip_unless_of_pools();
	uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	if (uffd < 0)
		SKIP("userfaultfd: %s", errno_name(errno));
	CHECK_OK(ioctl(uffd, UFFDIO_API, &api));
	fs_any();
	fd = new_file("a", MB(4));
	p = map_shared(fd, MB(4));
	fill(p, MB(4), 1);
	for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
		struct uffdio_register reg = { { (uintptr_t)p, MB(4) }, modes[i], 0 };

		CHECK_ERR(ioctl(uffd, UFFDIO_REGISTER, &reg), EINVAL);
		reg.range.start += PAGE;
		reg.range.len = PAGE;
		CHECK_ERR(ioctl(uffd, UFFDIO_REGISTER, &reg), EINVAL);
	}
	verify(p, MB(4), 1, 0);
	CHECK_OK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)MB(4)));
	verify_zero(p, MB(4));
	unmap(p, MB(4));
	close(fd);
	fs_end_with(uffd, "a");
}

/* Wherever the policy of a mapping wants memory, it is there already. */
static void memory_policies(void)
{
	unsigned long nodes = 1;
	char *p;
	int fd;

	fs_any();
	fd = new_file("a", MB(8));
	p = map_shared(fd, MB(8));
	fill(p, MB(8), 1);
	for (int mode = 1; mode <= 3; mode++) {
		CHECK_OK(syscall(SYS_mbind, p + MB(1), MB(4), mode, &nodes, 8, 0));
		verify(p, MB(8), 1, 0);
		/* MPOL_MF_MOVE: what cannot move stays. */
		syscall(SYS_mbind, p, MB(8), mode, &nodes, 8, 2);
		verify(p, MB(8), 1, 0);
	}
	CHECK_OK(syscall(SYS_mbind, p, MB(8), 0, NULL, 0, 0));
	unmap(p, MB(8));
	fs_end_with(fd, "a");
}

/* A program that lies there runs, and is busy while it does. */
static void programs_run_from_it(void)
{
	char self[KB(64)];
	int from, fd, status;
	ssize_t n;
	pid_t pid;

	fs_any();
	from = open("/bin/true", O_RDONLY | O_CLOEXEC);
	CHECK_OK(from);
	fd = new_file("program", 0);
	CHECK_OK(fchmod(fd, 0755));
	while ((n = read(from, self, sizeof(self))) > 0)
		CHECK_EQ(write(fd, self, (size_t)n), n);
	close(from);
	pid = fork_child();
	if (pid == 0) {
		execl(in_fs("program"), "program", NULL);
		_exit(errno == ETXTBSY ? 0 : 1);
	}
	expect_success(pid);
	close(fd);
	for (int i = 0; i < 3; i++) {
		pid = fork_child();
		if (pid == 0) {
			execl(in_fs("program"), "program", NULL);
			_exit(1);
		}
		status = wait_child(pid);
		CHECK_EQ(status, 0);
	}
	CHECK_OK(unlink(in_fs("program")));
	fs_end();
}

/* ---- Unmounted ------------------------------------------------------------------------------ */

static void busy_while_in_use(void)
{
	char path[PATH_MAX];
	char *p;
	int fd;

	fs_mount("size=64M");
	snprintf(path, sizeof(path), "%s", fs_dir());
	fd = new_file("a", MB(4));
	CHECK_ERR(umount(path), EBUSY);
	p = map_shared(fd, MB(4));
	close(fd);
	CHECK_ERR(umount(path), EBUSY);
	fill(p, MB(4), 1);
	/* Out of sight; who has it goes on. */
	CHECK_OK(umount2(path, MNT_DETACH));
	CHECK_ERR(open(in_fs("a"), O_RDWR | O_CLOEXEC), ENOENT);
	verify(p, MB(4), 1, 0);
	if (fork_child() == 0) {
		fill(p, MB(4), 2);
		_exit(0);
	}
	CHECK(wait(NULL) > 0);
	verify(p, MB(4), 2, 0);
	CHECK_OK(madvise(p, MB(4), MADV_REMOVE));
	verify_zero(p, MB(4));
	if (fs_of_pools()) {
		uint64_t before = pool_value("free_bytes");

		unmap(p, MB(4));
		await_pool_free(before + MB(4));
	} else {
		unmap(p, MB(4));
	}
	/* Files that are left in it go with it, with names and without. */
	if (fs_of_pools()) {
		uint64_t before = pool_value("free_bytes");

		fs_mount("size=64M");
		close(new_file("b", MB(16)));
		CHECK_OK(link(in_fs("b"), in_fs("c")));
		CHECK_OK(mkdir(in_fs("d"), 0700));
		close(new_file("d/e", MB(2)));
		CHECK_OK(umount(fs_dir()));
		CHECK_OK(rmdir(fs_dir()));
		await_pool_free(before);
	}
}

int main(void)
{
	static const struct test tests[] = {
		T(writable),
		T(read_only),
		T(askew),
		T(beyond_the_end),
		T(private_mappings),
		T(parts),
		T(beside_other_memory),
		T(shared_by_children),
		T(futexes),
		T(advice),
		T(locked),
		T(userfaultfd_is_refused),
		T(memory_policies),
		T(programs_run_from_it),
		T(busy_while_in_use),
	};

	return RUN_GROUP("sem_shared_maps", tests);
}
