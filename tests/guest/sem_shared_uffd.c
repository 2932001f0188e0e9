// SPDX-License-Identifier: GPL-2.0
/*
 * Shared memory without a name that a userfaultfd is to watch: it goes back to Linux, with
 * its contents, its descriptors and whoever waits in it. While another process has it, too,
 * it stays in the pools, where it cannot be watched.
 */
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/userfaultfd.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common.h"
#include "shared.h"

#define LEN MB(6)
#define TMPFS_MAGIC 0x01021994

static int uffd_open(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);

	if (fd < 0)
		SKIP("userfaultfd: %s", errno_name(errno));
	CHECK_OK(ioctl(fd, UFFDIO_API, &api));
	return fd;
}

static int watch_missing(int fd, void *addr, size_t len)
{
	struct uffdio_register reg = {
		.range = { (uintptr_t)addr, len },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};

	return ioctl(fd, UFFDIO_REGISTER, &reg);
}

/* Serves one fault with a page of ones. */
static void *serve_one(void *arg)
{
	int fd = *(int *)arg;
	struct uffd_msg msg;
	char page[PAGE];
	struct uffdio_copy copy = { .src = (uintptr_t)page, .len = PAGE };

	memset(page, 1, PAGE);
	CHECK_EQ(read(fd, &msg, sizeof(msg)), sizeof(msg));
	CHECK_EQ(msg.event, UFFD_EVENT_PAGEFAULT);
	copy.dst = msg.arg.pagefault.address & ~(uint64_t)(PAGE - 1);
	CHECK_OK(ioctl(fd, UFFDIO_COPY, &copy));
	return NULL;
}

/* A page that was taken out is missing, and is what the monitor says then. */
static void expect_served(int uffd, char *page)
{
	pthread_t thread;

	CHECK_OK(madvise(page, PAGE, MADV_REMOVE));
	thread = start_thread(serve_one, &uffd);
	CHECK_EQ(*(volatile char *)page, 1);
	join_thread(thread);
}

static int memfd(size_t len)
{
	int fd = (int)syscall(SYS_memfd_create, "watched", 0);

	CHECK_OK(fd);
	CHECK_OK(ftruncate(fd, (off_t)len));
	return fd;
}

static void memory_of_a_process(void)
{
	char *p = mmap(NULL, LEN, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int uffd = uffd_open();

	CHECK(p != MAP_FAILED);
	stamp(p, LEN, 1);
	CHECK_OK(mprotect(p + MB(4), MB(1), PROT_READ));
	CHECK_OK(watch_missing(uffd, p + MB(1), MB(2)));
	verify_stamp(p, LEN, 1);
	CHECK_WRITE_SEGV(p + MB(4), SEGV_ACCERR);
	expect_served(uffd, p + MB(2));
	CHECK_OK(mprotect(p + MB(4), MB(1), RW));
	stamp(p, LEN, 2);
	verify_stamp(p, LEN, 2);
	close(uffd);
	unmap(p, LEN);
}

static void memfd_with_all_that_has_it(void)
{
	int fd = memfd(LEN - 5), other = dup(fd), uffd = uffd_open();
	char *p = mmap(NULL, LEN, RW, MAP_SHARED, fd, 0);
	char *q = mmap(NULL, MB(2), RW, MAP_SHARED, other, MB(2));
	char *r = mmap(NULL, MB(2), RW, MAP_PRIVATE, fd, 0);
	struct stat st;
	struct statfs fs;

	CHECK(p != MAP_FAILED && q != MAP_FAILED && r != MAP_FAILED);
	CHECK_OK(fstatfs(fd, &fs));
	CHECK_EQ(fs.f_type, TMPFS_MAGIC);
	CHECK_OK(fchmod(fd, 0640));
	CHECK_OK(fcntl(fd, F_SETFL, O_APPEND));
	CHECK_EQ(lseek(fd, 4711, SEEK_SET), 4711);
	stamp(p, LEN, 3);
	CHECK_OK(watch_missing(uffd, p, MB(2)));
	/* One memory, as ever. */
	verify_stamp(p, LEN, 3);
	CHECK(memcmp(q, p + MB(2), MB(2)) == 0);
	CHECK(memcmp(r, p, MB(2)) == 0);
	stamp(q, MB(2), 4);
	CHECK(memcmp(q, p + MB(2), MB(2)) == 0);
	/* O_APPEND: at the end, wherever it is asked for. */
	CHECK_EQ(pwrite(other, "xyz", 3, 0), 3);
	CHECK_EQ(fcntl(other, F_GETFL) & O_APPEND, O_APPEND);
	CHECK_OK(fcntl(other, F_SETFL, 0));
	CHECK_EQ(pwrite(other, "xyz", 3, 8), 3);
	CHECK(memcmp(p + 8, "xyz", 3) == 0);
	CHECK(memcmp(r + 8, "xyz", 3) == 0);
	CHECK_EQ(lseek(fd, 0, SEEK_CUR), 4711);
	CHECK_OK(fstat(other, &st));
	CHECK_EQ(st.st_mode & 07777, 0640);
	CHECK_EQ(st.st_size, LEN - 5 + 3);
	expect_served(uffd, p + MB(1));
	/* A copy of one's own stays one's own. */
	r[MB(1) + PAGE] = 7;
	CHECK(p[MB(1) + PAGE] != 7);
	CHECK_OK(ftruncate(other, MB(1)));
	CHECK_OK(fstat(fd, &st));
	CHECK_EQ(st.st_size, MB(1));
	close(uffd);
	close(fd);
	close(other);
	unmap(p, LEN);
	unmap(q, MB(2));
	unmap(r, MB(2));
}

static void beside_writers(void)
{
	for (int round = 0; round < 6; round++) {
		int fd = memfd(LEN), uffd = uffd_open();
		char *p = map_shared(fd, LEN), *q = map_shared(fd, LEN);
		char *words[3] = { p + MB(1), q + MB(3) - PAGE, p + LEN - PAGE };
		struct counting counting[3];
		pthread_t threads[3];

		for (int i = 0; i < 3; i++)
			threads[i] = count_start(&counting[i], words[i]);
		usleep(3000);
		CHECK_OK(watch_missing(uffd, p + MB(2), MB(4)));
		usleep(3000);
		for (int i = 0; i < 3; i++)
			count_end(&counting[i], threads[i]);
		CHECK_EQ(*(uint64_t *)(q + MB(1)), counting[0].n);
		close(uffd);
		close(fd);
		unmap(p, LEN);
		unmap(q, LEN);
	}
}

static void *wait_at(void *arg)
{
	uint32_t *word = arg;

	while (*(volatile uint32_t *)word == 1)
		if (syscall(SYS_futex, word, FUTEX_WAIT, 1, NULL, NULL, 0) != 0)
			CHECK(errno == EAGAIN || errno == EINTR);
	return NULL;
}

/* Who waits is woken, by whoever has the memory at another address. */
static void futex_of_all(void)
{
	int fd = memfd(LEN), uffd = uffd_open();
	char *p = map_shared(fd, LEN), *q = map_shared(fd, LEN);
	uint32_t *word = (uint32_t *)(p + MB(3)), *same = (uint32_t *)(q + MB(3));
	pthread_t thread;
	long woken = 0;

	*word = 1;
	thread = start_thread(wait_at, word);
	usleep(100000);
	CHECK_OK(watch_missing(uffd, p, LEN));
	for (int i = 0; i < 100 && !woken; i++) {
		*same = 2;
		woken = syscall(SYS_futex, same, FUTEX_WAKE, 1, NULL, NULL, 0);
		CHECK_OK(woken);
		if (!woken)
			usleep(10000);
	}
	CHECK_EQ(woken, 1);
	join_thread(thread);
	close(uffd);
	close(fd);
	unmap(p, LEN);
	unmap(q, LEN);
}

static void locked(void)
{
	char *p = mmap(NULL, MB(2), RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	unsigned char there[SLOT / PAGE];
	int uffd = uffd_open();

	CHECK(p != MAP_FAILED);
	CHECK_OK(mlock(p, MB(2)));
	stamp(p, MB(2), 5);
	CHECK_OK(watch_missing(uffd, p, MB(2)));
	CHECK_OK(mincore(p, MB(2), there));
	for (size_t i = 0; i < ARRAY_SIZE(there); i++)
		CHECK(there[i] & 1);
	verify_stamp(p, MB(2), 5);
	close(uffd);
	unmap(p, MB(2));
}

/* While a child has it, Linux can watch its own; ours stays what it is. */
static void shared_with_a_child(void)
{
	int fd = memfd(LEN), uffd = uffd_open(), ready[2], done[2];
	char *p = map_shared(fd, LEN);
	pid_t child;

	stamp(p, LEN, 6);
	CHECK_OK(pipe(ready));
	CHECK_OK(pipe(done));
	child = fork_child();
	if (!child) {
		verify_stamp(p, LEN, 6);
		tell(ready[1]);
		await(done[0]);
		verify_stamp(p, LEN, 7);
		_exit(0);
	}
	await(ready[0]);
	if (registered())
		CHECK_ERR(watch_missing(uffd, p, LEN), EINVAL);
	else
		CHECK_OK(watch_missing(uffd, p, LEN));
	stamp(p, LEN, 7);
	tell(done[1]);
	expect_success(child);
	if (registered())
		CHECK_OK(watch_missing(uffd, p, LEN));
	verify_stamp(p, LEN, 7);
	expect_served(uffd, p + MB(2));
	close(uffd);
	close(fd);
	unmap(p, LEN);
}

/* What else refers to it would keep the old one. */
static void opened_once_more(void)
{
	int fd = memfd(LEN), uffd = uffd_open(), again;
	char *p = map_shared(fd, LEN), path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, O_RDWR);
	CHECK_OK(again);
	stamp(p, LEN, 8);
	if (watch_missing(uffd, p, LEN) != 0) {
		CHECK(registered());
		CHECK_EQ(errno, EINVAL);
	}
	CHECK_EQ(pwrite(again, "xyz", 3, 8), 3);
	CHECK(memcmp(p + 8, "xyz", 3) == 0);
	close(again);
	close(uffd);
	close(fd);
	unmap(p, LEN);
}

/* Who may only read it still may not write. */
static void opened_to_be_read(void)
{
	int fd = memfd(LEN), uffd = uffd_open(), other;
	char *p, path[64];

	CHECK_EQ(pwrite(fd, "xyz", 3, 8), 3);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	other = open(path, O_RDONLY);
	CHECK_OK(other);
	close(fd);
	p = map_file(other, LEN, PROT_READ, MAP_SHARED, 0);
	CHECK(memcmp(p + 8, "xyz", 3) == 0);
	CHECK_ERR(watch_missing(uffd, p, LEN), registered() ? EINVAL : EPERM);
	CHECK_ERR(pwrite(other, "abc", 3, 8), EBADF);
	CHECK_ERR(mprotect(p, LEN, RW), EACCES);
	close(uffd);
	close(other);
	unmap(p, LEN);
}

/* Counts in a file by calls, of which each takes the file from the table. */
struct calling {
	int fd;
	int out;
	off_t at;
	volatile bool stop;
	uint64_t n;
};

static void *count_by_calls(void *arg)
{
	struct calling *c = arg;

	while (!c->stop) {
		uint64_t got;

		CHECK_EQ(pread(c->fd, &got, sizeof(got), c->at), sizeof(got));
		CHECK_EQ(got, c->n);
		c->n++;
		CHECK_EQ(pwrite(c->fd, &c->n, sizeof(c->n), c->at), sizeof(c->n));
		/* In between there may be a moment in which nobody has it. */
		if (c->n % 8 == 0)
			usleep(200);
		if (c->n % 64 == 0) {
			CHECK_OK(dup2(c->fd, c->out));
			CHECK_OK(close(c->out));
		}
	}
	return NULL;
}

static void beside_calls(void)
{
	for (int round = 0; round < 6; round++) {
		int fd = memfd(LEN), uffd = uffd_open(), spare[2] = { dup(0), dup(0) };
		char *p = map_shared(fd, LEN);
		struct calling calling[2] = {
			{ .fd = fd, .out = spare[0], .at = MB(1) },
			{ .fd = fd, .out = spare[1], .at = MB(5) - PAGE },
		};
		pthread_t threads[2];

		for (int i = 0; i < 2; i++)
			threads[i] = start_thread(count_by_calls, &calling[i]);
		for (int try = 0; try < 3; try++) {
			usleep(3000);
			if (watch_missing(uffd, p + MB(2), MB(2)) == 0)
				break;
			/* There was always somebody who had it. */
			CHECK(registered());
			CHECK_EQ(errno, EINVAL);
		}
		usleep(3000);
		for (int i = 0; i < 2; i++) {
			calling[i].stop = true;
			join_thread(threads[i]);
			CHECK_EQ(*(uint64_t *)(p + calling[i].at), calling[i].n);
		}
		close(uffd);
		close(fd);
		unmap(p, LEN);
	}
}

static void *read_a_byte(void *arg)
{
	CHECK_EQ(*(volatile char *)arg, 0);
	return NULL;
}

/* A page of zeros that was written is there to be mapped. */
static void minor_zeros(void)
{
	int fd = memfd(LEN), uffd = uffd_open();
	char *p = map_shared(fd, LEN), *q = map_shared(fd, LEN);
	struct uffdio_register reg = {
		.range = { (uintptr_t)q, LEN },
		.mode = UFFDIO_REGISTER_MODE_MINOR,
	};
	struct uffdio_continue go_on = { .range = { (uintptr_t)q + MB(1), PAGE } };
	struct uffd_msg msg;
	pthread_t thread;

	/* Without an event the read below would wait for ever. */
	alarm(30);
	memset(p, 0, LEN);
	CHECK_OK(ioctl(uffd, UFFDIO_REGISTER, &reg));
	CHECK_OK(madvise(q, LEN, MADV_DONTNEED));
	thread = start_thread(read_a_byte, q + MB(1));
	CHECK_EQ(read(uffd, &msg, sizeof(msg)), sizeof(msg));
	CHECK(msg.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_MINOR);
	CHECK_OK(ioctl(uffd, UFFDIO_CONTINUE, &go_on));
	join_thread(thread);
	close(uffd);
	close(fd);
	unmap(p, LEN);
	unmap(q, LEN);
}

/* Where nothing will ever change it, nothing is waited for. */
static void refused_at_once(void)
{
	int fd = memfd(LEN), uffd = uffd_open();
	char *p = map_shared(fd, LEN);
	struct flock lock = { .l_type = F_WRLCK, .l_len = 1 };
	struct timespec begun, now;

	skip_unless_registered();
	CHECK_OK(fcntl(fd, F_SETLK, &lock));
	CHECK_OK(clock_gettime(CLOCK_MONOTONIC, &begun));
	for (int i = 0; i < 50; i++)
		CHECK_ERR(watch_missing(uffd, p, LEN), EINVAL);
	CHECK_OK(clock_gettime(CLOCK_MONOTONIC, &now));
	CHECK(now.tv_sec - begun.tv_sec < 4);
	close(uffd);
	close(fd);
	unmap(p, LEN);
}

int main(void)
{
	static const struct test tests[] = {
		T(memory_of_a_process),
		T(memfd_with_all_that_has_it),
		T(beside_writers),
		T(futex_of_all),
		T(locked),
		T(shared_with_a_child),
		T(opened_once_more),
		T(opened_to_be_read),
		T(minor_zeros),
		T(refused_at_once),
		T(beside_calls),
	};

	return RUN_GROUP("sem_shared_uffd", tests);
}
