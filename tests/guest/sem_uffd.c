// SPDX-License-Identifier: GPL-2.0
/*
 * userfaultfd: in the process's own memory, in that of other processes, and with a
 * monitor that makes calls itself. As an ordinary user if Linux permits that.
 */
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/mempolicy.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef UFFD_FEATURE_WP_ASYNC
#define UFFD_FEATURE_WP_ASYNC (1 << 15)
#endif

#ifndef UFFDIO_MOVE
#define UFFD_FEATURE_MOVE (1 << 16)
struct uffdio_move {
	__u64 dst;
	__u64 src;
	__u64 len;
	__u64 mode;
	__s64 move;
};

#define UFFDIO_MOVE _IOWR(UFFDIO, 0x05, struct uffdio_move)
#endif

#define NOBODY 65534

static void become_nobody(void)
{
	CHECK_OK(syscall(SYS_setresgid, NOBODY, NOBODY, NOBODY));
	CHECK_OK(syscall(SYS_setresuid, NOBODY, NOBODY, NOBODY));
}

static int uffd_unregister(int fd, void *addr, size_t len)
{
	struct uffdio_range range = { (uintptr_t)addr, len };

	return ioctl(fd, UFFDIO_UNREGISTER, &range);
}

/* ---- Memory of another process -------------------------------------------------- */

/* What is done to the memory of another process must not be done by half. */
static void touch_registration(int fd, char *p)
{
	static const uint64_t modes[] = {
		UFFDIO_REGISTER_MODE_WP,
		UFFDIO_REGISTER_MODE_MISSING,
		UFFDIO_REGISTER_MODE_MINOR,
	};

	for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
		uffd_register(fd, p + MB(3), PAGE, modes[i]);
		uffd_unregister(fd, p + MB(3), PAGE);
		uffd_register(fd, p + SLOT, SLOT, modes[i]);
		uffd_unregister(fd, p + SLOT + MB(1), PAGE);
		uffd_unregister(fd, p, MB(8));
	}
}

enum there { SAME, OTHER, NOTHING, NO_NEIGHBOUR };

static void the_child_at(char *p, enum there there)
{
	if (there == OTHER)
		stamp(p, MB(8), 99);
	if (there == NOTHING)
		unmap(p, MB(8));
	/* No tables below the address either. */
	if (there == NO_NEIGHBOUR)
		unmap((char *)((uintptr_t)p & ~(uintptr_t)(GB(1) - 1)), GB(1));
}

static void child_registers_in_parent(uint64_t features, enum there there)
{
	int fd = uffd_open(features);
	char *p, *quiet;
	pid_t child;

	if (fd < 0)
		return;
	/* In a gigabyte where there is nothing else. */
	quiet = free_range(GB(3));
	p = (char *)(((uintptr_t)quiet + GB(2)) & ~(uintptr_t)(GB(1) - 1));
	p = map_flags(p, MB(8), RW, ANON | MAP_FIXED_NOREPLACE);
	stamp(p, MB(8), 1);
	child = fork_child();
	if (!child) {
		the_child_at(p, there);
		touch_registration(fd, p);
		_exit(0);
	}
	expect_success(child);
	verify_stamp(p, MB(8), 1);
	stamp(p, MB(8), 2);
	/* Once more, with the block of the child gone. */
	child = fork_child();
	if (!child) {
		verify_stamp(p, MB(8), 2);
		_exit(0);
	}
	expect_success(child);
	verify_stamp(p, MB(8), 2);
	unmap(p, MB(8));
	close(fd);
}

static void parent_registers_in_child(uint64_t features)
{
	char *p = map_anon(MB(8));
	int to_child[2], to_parent[2], fd = -1, status;
	pid_t child;
	char c = 0;

	stamp(p, MB(4), 1);
	stamp(p + MB(4), MB(4), 1);
	CHECK_OK(pipe(to_child));
	CHECK_OK(pipe(to_parent));
	/* Its userfaultfd comes by way of a table of files that both have. */
	child = (pid_t)syscall(SYS_clone, 0x400 /* CLONE_FILES */ | SIGCHLD, 0, 0, 0, 0);
	CHECK_OK(child);
	if (!child) {
		stamp(p, MB(8), 3);
		fd = uffd_open(features);
		CHECK_EQ(write(to_parent[1], &fd, sizeof(fd)), sizeof(fd));
		CHECK_EQ(read(to_child[0], &c, 1), 1);
		verify_stamp(p, MB(8), 3);
		stamp(p, MB(8), 4);
		verify_stamp(p, MB(8), 4);
		_exit(0);
	}
	CHECK_EQ(read(to_parent[0], &fd, sizeof(fd)), sizeof(fd));
	if (fd >= 0)
		touch_registration(fd, p);
	verify_stamp(p, MB(4), 1);
	unmap(p, MB(4));
	if (fd >= 0)
		touch_registration(fd, p);
	CHECK_EQ(write(to_child[1], &c, 1), 1);
	status = wait_child(child);
	CHECK(WIFEXITED(status));
	CHECK_EQ(WEXITSTATUS(status), 0);
	verify_stamp(p + MB(4), MB(4), 1);
	unmap(p + MB(4), MB(4));
	if (fd >= 0)
		close(fd);
	for (int i = 0; i < 2; i++) {
		close(to_child[i]);
		close(to_parent[i]);
	}
}

static const uint64_t feature_sets[] = {
	0,
	UFFD_FEATURE_WP_ASYNC,
	UFFD_FEATURE_WP_ASYNC | UFFD_FEATURE_EVENT_UNMAP,
};

static void others_as_nobody(void *arg)
{
	(void)arg;
	become_nobody();
	for (size_t i = 0; i < ARRAY_SIZE(feature_sets); i++) {
		for (enum there there = SAME; there <= NO_NEIGHBOUR; there++)
			child_registers_in_parent(feature_sets[i], there);
		parent_registers_in_child(feature_sets[i]);
	}
}

static void registrations_in_another_process(void)
{
	in_child(others_as_nobody, NULL);
}

/* ---- A monitor that needs calls of its own ---------------------------------------- */

#define GIVE_UP_S 30

/* Watched memory that is never ours: shared. */
struct watched {
	int fd;
	uint64_t event;
	char *p;
	size_t len;
	struct uffd_msg msg;
};

static void map_and_unmap(void)
{
	char *p = map_anon(MB(4));

	stamp(p, MB(4), 5);
	verify_stamp(p, MB(4), 5);
	CHECK_OK(mprotect(p + PAGE, PAGE, PROT_READ));
	CHECK_OK(mprotect(p + PAGE, PAGE, RW));
	p = mremap(p, MB(4), MB(6), MREMAP_MAYMOVE);
	CHECK(p != MAP_FAILED);
	unmap(p, MB(6));
}

static void *monitor(void *arg)
{
	struct watched *w = arg;
	struct pollfd pfd = { .fd = w->fd, .events = POLLIN };
	struct uffdio_zeropage zero = { .range = { (uintptr_t)w->p, w->len } };

	CHECK_EQ(poll(&pfd, 1, -1), 1);
	map_and_unmap();
	CHECK_EQ(read(w->fd, &w->msg, sizeof(w->msg)), sizeof(w->msg));
	CHECK_EQ(w->msg.event, w->event);
	if (w->event == UFFD_EVENT_PAGEFAULT)
		CHECK_OK(ioctl(w->fd, UFFDIO_ZEROPAGE, &zero));
	return NULL;
}

static pthread_t watch(struct watched *w, uint64_t feature, uint64_t event,
		       size_t len, char *at)
{
	w->fd = uffd_open(feature);
	CHECK_OK(w->fd);
	w->event = event;
	w->len = len;
	w->p = mmap(at, len, RW, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE |
		    (at ? MAP_FIXED : 0), -1, 0);
	CHECK(w->p != MAP_FAILED);
	memset(w->p, 7, len);
	CHECK_OK(uffd_register(w->fd, w->p, len, UFFDIO_REGISTER_MODE_MISSING));
	return start_thread(monitor, w);
}

static void watch_end_with(struct watched *w, pthread_t thread)
{
	join_thread(thread);
	close(w->fd);
}

static void events_as_nobody(void *arg)
{
	char *ours = map_anon(MB(8)), *target;
	struct watched w;
	pthread_t thread;

	(void)arg;
	become_nobody();
	alarm(GIVE_UP_S);
	stamp(ours, MB(8), 1);

	thread = watch(&w, UFFD_FEATURE_EVENT_UNMAP, UFFD_EVENT_UNMAP, MB(2), NULL);
	CHECK_OK(munmap(w.p, MB(2)));
	watch_end_with(&w, thread);

	/* Together with memory of ours. */
	thread = watch(&w, UFFD_FEATURE_EVENT_UNMAP, UFFD_EVENT_UNMAP, MB(2), ours);
	CHECK_OK(munmap(ours, MB(4)));
	watch_end_with(&w, thread);
	CHECK_EQ(vma_count(ours, MB(4)), 0);

	/* Mapped over: by files, by memory of ours, and by what moves there. */
	thread = watch(&w, UFFD_FEATURE_EVENT_UNMAP, UFFD_EVENT_UNMAP, MB(2), NULL);
	CHECK(mmap(w.p, MB(2), RW, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == w.p);
	watch_end_with(&w, thread);
	unmap(w.p, MB(2));

	thread = watch(&w, UFFD_FEATURE_EVENT_UNMAP, UFFD_EVENT_UNMAP, MB(2), NULL);
	CHECK(mmap(w.p, MB(2), RW, ANON | MAP_FIXED, -1, 0) == w.p);
	watch_end_with(&w, thread);
	verify_zero(w.p, MB(2));
	unmap(w.p, MB(2));

	target = map_anon(MB(2));
	stamp(target, MB(2), 8);
	thread = watch(&w, UFFD_FEATURE_EVENT_UNMAP, UFFD_EVENT_UNMAP, MB(2), NULL);
	CHECK(mremap(target, MB(2), MB(2), MREMAP_MAYMOVE | MREMAP_FIXED, w.p) == w.p);
	watch_end_with(&w, thread);
	verify_stamp(w.p, MB(2), 8);
	unmap(w.p, MB(2));

	/* Moved over memory of ours. */
	target = map_anon(MB(4));
	stamp(target, MB(4), 9);
	thread = watch(&w, UFFD_FEATURE_EVENT_REMAP, UFFD_EVENT_REMAP, MB(2), NULL);
	CHECK(mremap(w.p, MB(2), MB(2), MREMAP_MAYMOVE | MREMAP_FIXED, target) == target);
	watch_end_with(&w, thread);
	CHECK_EQ(w.msg.arg.remap.to, (uintptr_t)target);
	for (size_t i = 0; i < MB(2); i += PAGE)
		CHECK_EQ(target[i], 7);
	unmap(target, MB(2));
	CHECK_OK(madvise(target + MB(2), MB(2), MADV_DONTNEED));
	verify_zero(target + MB(2), MB(2));
	unmap(target + MB(2), MB(2));

	thread = watch(&w, UFFD_FEATURE_EVENT_REMOVE, UFFD_EVENT_REMOVE, MB(2), NULL);
	CHECK_OK(madvise(w.p, MB(2), MADV_DONTNEED));
	watch_end_with(&w, thread);
	unmap(w.p, MB(2));

	/* Together with memory of ours. */
	stamp(ours + MB(4), MB(4), 1);
	thread = watch(&w, UFFD_FEATURE_EVENT_REMOVE, UFFD_EVENT_REMOVE, MB(2), ours + MB(2));
	CHECK_OK(madvise(w.p, MB(4), MADV_DONTNEED));
	watch_end_with(&w, thread);
	verify_zero(ours + MB(4), MB(2));
	unmap(ours + MB(2), MB(6));
}

static void changes_watched_by_a_thread_that_maps(void)
{
	in_child(events_as_nobody, NULL);
}

/* Faults that are served by a thread that maps. */
static pthread_t watch_faults(struct watched *w, char *at)
{
	w->fd = uffd_open(0);
	CHECK_OK(w->fd);
	w->event = UFFD_EVENT_PAGEFAULT;
	w->len = PAGE;
	w->p = mmap(at, PAGE, RW,
		    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	CHECK(w->p == at);
	CHECK_OK(uffd_register(w->fd, w->p, PAGE, UFFDIO_REGISTER_MODE_MISSING));
	return start_thread(monitor, w);
}

static void mixed_populate(void *arg)
{
	char *ours = map_anon(MB(4));
	struct watched w;
	pthread_t thread;

	(void)arg;
	alarm(GIVE_UP_S);
	stamp(ours, MB(4), 1);
	thread = watch_faults(&w, ours + MB(1));
	CHECK_OK(madvise(ours, MB(4), MADV_POPULATE_WRITE));
	watch_end_with(&w, thread);
	thread = watch_faults(&w, ours + MB(2));
	CHECK_OK(mlock(ours, MB(4)));
	watch_end_with(&w, thread);
	verify_stamp(ours, MB(1), 1);
	CHECK_OK(munlock(ours, MB(4)));
	/* What a call about ours reads. */
	thread = watch_faults(&w, ours + MB(3));
	CHECK_OK(syscall(SYS_mbind, ours, MB(1), MPOL_PREFERRED, w.p, 64UL, 0));
	watch_end_with(&w, thread);
	unmap(ours, MB(4));
}

static void fork_with_a_monitor(void *arg)
{
	char *ours = map_anon(MB(4));
	struct watched w;
	pthread_t thread;
	pid_t child;

	(void)arg;
	alarm(GIVE_UP_S);
	stamp(ours, MB(4), 1);
	thread = watch(&w, UFFD_FEATURE_EVENT_FORK, UFFD_EVENT_FORK, MB(2), NULL);
	child = fork_child();
	if (!child) {
		verify_stamp(ours, MB(4), 1);
		_exit(0);
	}
	stamp(ours, MB(4), 2);
	expect_success(child);
	join_thread(thread);
	close((int)w.msg.arg.fork.ufd);
	close(w.fd);
	verify_stamp(ours, MB(4), 2);
	unmap(w.p, MB(2));
	unmap(ours, MB(4));
}

/* Faults of the kernel, and events of a fork, are for root. */
static void faults_served_by_a_thread_that_maps(void)
{
	in_child(mixed_populate, NULL);
}

static void forks_watched_by_a_thread_that_maps(void)
{
	in_child(fork_with_a_monitor, NULL);
}

/* ---- Memory of one's own --------------------------------------------------------- */

static struct uffd_msg read_fault(int fd)
{
	struct uffd_msg msg;

	CHECK_EQ(read(fd, &msg, sizeof(msg)), sizeof(msg));
	CHECK_EQ(msg.event, UFFD_EVENT_PAGEFAULT);
	return msg;
}

/* Fills each page that is missing with its number among those. */
static void *serve_missing(void *arg)
{
	struct watched *w = arg;
	char page[PAGE];

	for (uint64_t i = 1; i <= w->len; i++) {
		struct uffd_msg msg = read_fault(w->fd);
		struct uffdio_copy copy = {
			.dst = msg.arg.pagefault.address & ~(uint64_t)(PAGE - 1),
			.src = (uintptr_t)page,
			.len = PAGE,
		};

		memset(page, (int)i, PAGE);
		CHECK_OK(ioctl(w->fd, UFFDIO_COPY, &copy));
	}
	return NULL;
}

static void expect_bytes(const char *p, size_t len, int want)
{
	for (size_t i = 0; i < len; i += 64)
		CHECK_EQ(p[i], want);
}

static void missing_pages(void *arg)
{
	char *p = map_anon(MB(8)) + MB(1) + PAGE, *base = p - MB(1) - PAGE;
	/* Whose the counters are is not for nobody's eyes. */
	bool ours = registered();
	struct watched w = { .len = 2 };
	pthread_t thread;

	(void)arg;
	become_nobody();
	alarm(GIVE_UP_S);
	w.fd = uffd_open(0);
	stamp(base, MB(8), 1);
	/* On Linux a page that was written is not missing, whatever it has. */
	memset(base + MB(2), 0, PAGE);
	memset(base + MB(4), 0, PAGE);
	CHECK_OK(uffd_register(w.fd, p, MB(2), UFFDIO_REGISTER_MODE_MISSING));
	CHECK_OK(uffd_register(w.fd, p + MB(2), MB(2), UFFDIO_REGISTER_MODE_MISSING));
	verify_stamp(base, MB(2), 1);
	if (ours) {
		thread = start_thread(serve_missing, &w);
		expect_bytes(base + MB(2), PAGE, 1);
		expect_bytes(base + MB(4), PAGE, 2);
		join_thread(thread);
	}
	/* What is fresh is missing on both. */
	CHECK_OK(madvise(p + PAGE, 2 * PAGE, MADV_DONTNEED));
	thread = start_thread(serve_missing, &w);
	expect_bytes(p + PAGE, PAGE, 1);
	expect_bytes(p + 2 * PAGE, PAGE, 2);
	join_thread(thread);
	stamp(base, MB(8), 2);
	verify_stamp(base, MB(8), 2);
	CHECK_OK(uffd_unregister(w.fd, p, MB(4)));
	close(w.fd);
	unmap(base, MB(8));
}

static void kept(char *p, size_t len, uint64_t mode, uint64_t features)
{
	int fd = uffd_open(features);

	if (fd < 0)
		return;
	if (uffd_register(fd, p, len, mode) != 0) {
		/* Write protection may be beyond this kernel. */
		CHECK_EQ(errno, EINVAL);
		CHECK(mode != UFFDIO_REGISTER_MODE_MISSING);
	}
	close(fd);
}

static void contents_and_flags(void *arg)
{
	char *p = map_anon(MB(12)), *q;
	struct vma vma;
	pid_t child;

	(void)arg;
	become_nobody();
	alarm(GIVE_UP_S);
	stamp(p, MB(12), 1);
	/* Several mappings of several kinds at once. */
	CHECK_OK(mprotect(p + MB(3), MB(1), PROT_READ));
	CHECK_OK(mprotect(p + MB(5), PAGE, PROT_NONE));
	CHECK_OK(madvise(p + MB(7), PAGE, MADV_WIPEONFORK));
	CHECK_OK(madvise(p + MB(7) + PAGE, PAGE, MADV_DONTFORK));
	kept(p + MB(2) + PAGE, MB(6), UFFDIO_REGISTER_MODE_MISSING, 0);
	verify_stamp(p, MB(5), 1);
	CHECK_READ_SEGV(p + MB(5), SEGV_ACCERR);
	CHECK_WRITE_SEGV(p + MB(3), SEGV_ACCERR);
	CHECK(vma_at(p + MB(3), &vma));
	CHECK_EQ(vma.start, (uintptr_t)p + MB(3));
	CHECK_OK(mprotect(p + MB(5), PAGE, RW));
	CHECK_OK(mprotect(p + MB(3), MB(1), RW));
	verify_stamp(p, MB(12), 1);
	child = fork_child();
	if (!child) {
		verify_stamp(p, MB(7), 1);
		verify_zero(p + MB(7), PAGE);
		CHECK_READ_SEGV(p + MB(7) + PAGE, SEGV_MAPERR);
		_exit(0);
	}
	expect_success(child);

	/* While it is shared, by both of them. */
	q = map_anon(MB(6));
	stamp(q, MB(6), 3);
	child = fork_child();
	if (!child) {
		kept(q + MB(1), MB(3), UFFDIO_REGISTER_MODE_MISSING, 0);
		verify_stamp(q, MB(6), 3);
		stamp(q, MB(6), 4);
		verify_stamp(q, MB(6), 4);
		_exit(0);
	}
	kept(q + MB(3), PAGE, UFFDIO_REGISTER_MODE_MISSING, 0);
	verify_stamp(q, MB(6), 3);
	expect_success(child);
	stamp(q, MB(6), 5);
	verify_stamp(q, MB(6), 5);
	/* It can be mapped, cut, moved and given back as ever. */
	CHECK(mmap(q + MB(2), MB(2), RW, ANON | MAP_FIXED, -1, 0) == q + MB(2));
	verify_zero(q + MB(2), MB(2));
	q = mremap(q, MB(2), MB(3), MREMAP_MAYMOVE | MREMAP_FIXED, p + MB(8));
	CHECK(q == p + MB(8));
	unmap(p, MB(12));
}

static void write_protection(void *arg)
{
	char *p = map_anon(MB(4));

	(void)arg;
	become_nobody();
	alarm(GIVE_UP_S);
	stamp(p, MB(4), 1);
	kept(p + MB(1), MB(2), UFFDIO_REGISTER_MODE_WP, 0);
	kept(p, MB(2), UFFDIO_REGISTER_MODE_WP, UFFD_FEATURE_WP_ASYNC);
	verify_stamp(p, MB(4), 1);
	stamp(p, MB(4), 2);
	verify_stamp(p, MB(4), 2);
	CHECK_OK(mlock(p + MB(3), PAGE));
	kept(p + MB(3), PAGE, UFFDIO_REGISTER_MODE_MISSING, 0);
	verify_stamp(p, MB(4), 2);
	CHECK_OK(munlock(p + MB(3), PAGE));
	unmap(p, MB(4));
}

static void *write_a_byte(void *arg)
{
	*(char *)arg = 7;
	return NULL;
}

/* What has been written is there, also where it is zeros: each write to it is an event. */
static void protected_zeros(void)
{
	char *p = map_anon(MB(4)), *at[] = { p, p + MB(1), p + MB(3) + PAGE };
	int fd = uffd_open(0);
	struct uffdio_writeprotect protect = {
		.range = { (uintptr_t)p, MB(4) },
		.mode = UFFDIO_WRITEPROTECT_MODE_WP,
	};

	alarm(GIVE_UP_S);
	memset(p, 0, MB(4));
	p[MB(1) + 1] = 1;
	CHECK_OK(uffd_register(fd, p, MB(4), UFFDIO_REGISTER_MODE_WP));
	CHECK_OK(ioctl(fd, UFFDIO_WRITEPROTECT, &protect));
	protect.mode = 0;
	protect.range.len = PAGE;
	for (size_t i = 0; i < ARRAY_SIZE(at); i++) {
		pthread_t thread = start_thread(write_a_byte, at[i]);
		struct uffd_msg msg = read_fault(fd);

		CHECK(msg.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WP);
		CHECK_EQ(msg.arg.pagefault.address & -PAGE, (uintptr_t)at[i]);
		protect.range.start = (uintptr_t)at[i];
		CHECK_OK(ioctl(fd, UFFDIO_WRITEPROTECT, &protect));
		join_thread(thread);
		CHECK_EQ(*at[i], 7);
	}
	CHECK_EQ(p[MB(1) + 1], 1);
	verify_zero(p + PAGE, MB(1) - PAGE);
	CHECK_OK(uffd_unregister(fd, p, MB(4)));
	close(fd);
	unmap(p, MB(4));
}

/* A mapping keeps its key, also if that is free by now, or is Linux's own. */
static void keys(void *arg)
{
	char *p = map_anon(MB(4));
	int key = pkey_alloc(0, 0);

	(void)arg;
	become_nobody();
	if (key < 0)
		SKIP("no protection keys");
	stamp(p, MB(4), 1);
	CHECK_OK(pkey_mprotect(p + MB(1), MB(1), RW, key));
	CHECK_OK(pkey_free(key));
	kept(p, MB(2), UFFDIO_REGISTER_MODE_MISSING, 0);
	verify_stamp(p, MB(4), 1);
	/* Linux's own is the next one that is free: the same. */
	CHECK_OK(pkey_mprotect(p + MB(1), MB(1), RW, 0));
	CHECK_OK(mprotect(p + MB(2), MB(1), PROT_EXEC));
	kept(p + MB(2), MB(2), UFFDIO_REGISTER_MODE_MISSING, 0);
	CHECK_OK(mprotect(p + MB(2), MB(1), RW));
	verify_stamp(p, MB(4), 1);
	unmap(p, MB(4));
}

static void protection_keys(void)
{
	in_child(keys, NULL);
}

static void registrations_of_ones_own(void)
{
	in_child(missing_pages, NULL);
	in_child(contents_and_flags, NULL);
	in_child(write_protection, NULL);
}

static void handed_back_beside_writers(void)
{
	struct counting counting[2];
	pthread_t threads[2];

	for (int round = 0; round < 4; round++) {
		char *p = map_anon(MB(6));
		int fd = uffd_open(0);

		stamp(p, MB(6), 1);
		for (int i = 0; i < 2; i++)
			threads[i] = count_start(&counting[i], p + MB(3) - PAGE * i);
		usleep(2000);
		if (round % 2)
			CHECK_OK(uffd_register(fd, p + MB(1), MB(3),
					       UFFDIO_REGISTER_MODE_MISSING));
		else if (madvise(p + MB(1), MB(3), MADV_MERGEABLE) != 0)
			CHECK_EQ(errno, EINVAL);
		usleep(2000);
		for (int i = 0; i < 2; i++)
			count_end(&counting[i], threads[i]);
		verify_stamp(p, MB(2), 1);
		close(fd);
		unmap(p, MB(6));
	}
}

/*
 * The kernel writes to a futex with mmap_lock held, and comes again if that is a fault,
 * which cannot wait then.
 */
static void *wake_without_end(void *arg)
{
	struct counting *c = arg;
	uint32_t *word = (uint32_t *)c->word;

	for (; !c->stop; c->n++)
		CHECK_OK(syscall(SYS_futex, word, FUTEX_WAKE_OP_PRIVATE, 1, 1L, word,
				 FUTEX_OP(FUTEX_OP_ADD, 1, FUTEX_OP_CMP_EQ, 0)));
	return NULL;
}

static void handed_back_beside_futexes(void)
{
	for (int round = 0; round < 4; round++) {
		char *p = map_anon(MB(8));
		struct counting c = { .word = (uint64_t *)(p + MB(6)) };
		pthread_t thread;

		stamp(p, MB(8), 1);
		*c.word = 0;
		thread = start_thread(wake_without_end, &c);
		usleep(2000);
		if (madvise(p + MB(1), MB(6), MADV_MERGEABLE) != 0)
			CHECK_EQ(errno, EINVAL);
		usleep(2000);
		c.stop = true;
		join_thread(thread);
		CHECK_EQ(*c.word, c.n);
		unmap(p, MB(8));
	}
}

static void mergeable(void)
{
	uint64_t before = registered() ? context_value("fallbacks") : 0;
	char *p = map_anon(MB(4));

	stamp(p, MB(4), 1);
	if (madvise(p + MB(1), MB(1), MADV_MERGEABLE) != 0) {
		CHECK_EQ(errno, EINVAL);
		SKIP("this kernel merges nothing");
	}
	verify_stamp(p, MB(4), 1);
	CHECK_OK(madvise(p, MB(4), MADV_UNMERGEABLE));
	verify_stamp(p, MB(4), 1);
	if (registered())
		CHECK_EQ(context_value("fallbacks"), before + 1);
	unmap(p, MB(4));
}

/* A pipe that refers to a page would show the old one. */
static void referred_to_by_a_pipe(void)
{
	char *p = map_anon(MB(2)), page[PAGE];
	struct iovec iov = { p + MB(1), PAGE };
	int fd = uffd_open(0), ends[2], ret;

	stamp(p, MB(2), 1);
	CHECK_OK(pipe(ends));
	CHECK_EQ(vmsplice(ends[1], &iov, 1, 0), PAGE);
	ret = uffd_register(fd, p, MB(2), UFFDIO_REGISTER_MODE_MISSING);
	if (ret) {
		CHECK(registered());
		CHECK_EQ(errno, EBUSY);
	}
	verify_stamp(p, MB(2), 1);
	CHECK_EQ(read(ends[0], page, PAGE), PAGE);
	CHECK_EQ(memcmp(page, p + MB(1), PAGE), 0);
	if (ret)
		CHECK_OK(uffd_register(fd, p, MB(2), UFFDIO_REGISTER_MODE_MISSING));
	verify_stamp(p, MB(2), 1);
	close(fd);
	close(ends[0]);
	close(ends[1]);
	unmap(p, MB(2));
}

/* The pages of one range become those of another one. */
static void moved_by_a_userfaultfd(void)
{
	char *from = map_anon(MB(4)), *to = map_anon(MB(4));
	int fd = uffd_open(UFFD_FEATURE_MOVE);
	struct uffdio_move move = {
		.src = (uintptr_t)from + MB(1),
		.dst = (uintptr_t)to + MB(1),
		.len = MB(1),
	};

	/* Before Linux 6.8. */
	if (fd < 0)
		return;
	stamp(from, MB(4), 3);
	stamp(from + MB(1), MB(1), 4);
	/* Zeros that were written are no hole. */
	memset(from + MB(1) + PAGE, 0, PAGE);
	CHECK_OK(uffd_register(fd, to, MB(4), UFFDIO_REGISTER_MODE_MISSING));
	/* What is wrong with it, Linux says. */
	move.len++;
	CHECK_EQ(ioctl(fd, UFFDIO_MOVE, &move), -1);
	CHECK_EQ(errno, EINVAL);
	move.len--;
	CHECK_OK(ioctl(fd, UFFDIO_MOVE, &move));
	CHECK_EQ(move.move, MB(1));
	CHECK_OK(uffd_unregister(fd, to, MB(4)));
	verify_stamp(to + MB(1), PAGE, 4);
	verify_zero(to + MB(1) + PAGE, PAGE);
	verify_stamp(from, MB(1), 3);
	close(fd);
	unmap(from, MB(4));
	unmap(to, MB(4));
}

int main(void)
{
	static const struct test tests[] = {
		T(registrations_in_another_process),
		T(changes_watched_by_a_thread_that_maps),
		T(faults_served_by_a_thread_that_maps),
		T(forks_watched_by_a_thread_that_maps),
		T(registrations_of_ones_own),
		T(protected_zeros),
		T(protection_keys),
		T(handed_back_beside_writers),
		T(handed_back_beside_futexes),
		T(mergeable),
		T(referred_to_by_a_pipe),
		T(moved_by_a_userfaultfd),
	};

	return RUN_GROUP("sem_uffd", tests);
}
