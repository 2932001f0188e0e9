// SPDX-License-Identifier: GPL-2.0
/*
 * Sweeps the failure points of every hooked call and every ioctl.
 *
 * Each case prepares some memory and does one call repeatedly: the first time the
 * first allocation (or copy from or to user space) in the call fails, the second
 * time the second, until none has failed. The call must succeed or return a
 * plausible errno. Memory around its range must not change; the range has its old
 * contents, zeros, or is not mapped.
 *
 *	faults calls	the hooked calls; run it under "hpmmap run"
 *	faults ioctls	the ioctls, as root
 *	faults exec	launch and execve, as root
 *
 * Needs a kernel with CONFIG_FAULT_INJECTION whose attributes in debugfs are
 * set as the scenario tests/vm/debug/faults.sh does.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hpmmap.h"

#define PAGE	4096UL
#define SLOT	HPMMAP_BLOCK_BYTES
#define RW	(PROT_READ | PROT_WRITE)
#define ANON	(MAP_PRIVATE | MAP_ANONYMOUS)

/* Layout of each case: neighbour, target, neighbour; not at slot boundaries. */
#define ARENA		((char *)0x1000000000UL)
#define BEFORE_LEN	(SLOT / 2)
#define TARGET_LEN	(2 * SLOT)
#define AFTER_LEN	(SLOT / 2)
#define BEFORE		(ARENA)
#define TARGET		(ARENA + BEFORE_LEN)
#define AFTER		(TARGET + TARGET_LEN)
/* Elsewhere, for mremap: the same place in a slot, and another. */
#define ELSEWHERE	(ARENA + 64 * SLOT + BEFORE_LEN)
#define ELSEWHERE_ODD	(ARENA + 80 * SLOT + 3 * PAGE)
#define ELSEWHERE_MAX	(16 * SLOT)

/* No call has that many; if one does, something repeats without end. */
#define MAX_POINTS	20000

static int nth_fd;
static const char *case_name;
static unsigned int point;

__attribute__((format(printf, 1, 2), noreturn))
static void fail(const char *fmt, ...)
{
	va_list args;

	printf("FAIL: %s, failure point %u: ", case_name, point);
	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
	_exit(1);
}

/* ---- Contents -------------------------------------------------------- */

static sigjmp_buf probe_return;

static void on_signal(int sig)
{
	siglongjmp(probe_return, sig);
}

static uint64_t word(const char *addr)
{
	return ((uintptr_t)addr >> 12) * 0x9e3779b97f4a7c15ULL | 1;
}

/* First and last word of each page. */
static void stamp(char *addr, size_t len)
{
	for (size_t off = 0; off < len; off += PAGE) {
		uint64_t *p = (uint64_t *)(addr + off);

		p[0] = p[PAGE / 8 - 1] = word(addr + off);
	}
}

enum state { OLD, ZERO, GONE };

/* What a page at addr is, whose contents were stamped at from. */
static enum state page_state(const char *addr, const char *from)
{
	volatile const uint64_t *p = (const uint64_t *)addr;
	uint64_t first, last;

	/* The handler runs with nothing blocked, so there is no mask to restore. */
	if (sigsetjmp(probe_return, 0))
		return GONE;
	first = p[0];
	last = p[PAGE / 8 - 1];
	if (first != last)
		fail("page %p is half of one thing and half of another", addr);
	if (first == word(from))
		return OLD;
	if (first)
		fail("page %p contains %#llx", addr, (unsigned long long)first);
	return ZERO;
}

static void expect_old(const char *what, const char *addr, size_t len)
{
	for (size_t off = 0; off < len; off += PAGE)
		if (page_state(addr + off, addr + off) != OLD)
			fail("the %s lost page %zu", what, off / PAGE);
}

/* Any of the states, but nothing else; and all of it can be used. */
static void expect_sane(char *addr, size_t len)
{
	for (size_t off = 0; off < len; off += PAGE)
		page_state(addr + off, addr + off);
}

static void *map(void *addr, size_t len, int prot, int flags)
{
	void *p = mmap(addr, len, prot, ANON | flags, -1, 0);

	if (p == MAP_FAILED)
		fail("preparing %p+%zu: %s", addr, len, strerror(errno));
	return p;
}

/* ---- Injection -------------------------------------------------------- */

static void arm(unsigned int n)
{
	char text[16];
	int len = snprintf(text, sizeof(text), "%u", n);

	if (pwrite(nth_fd, text, (size_t)len, 0) != len)
		err(1, "fail-nth");
}

/* Whether a failure was injected since arm(). */
static bool disarm(void)
{
	char text[16] = { 0 };
	/* Where this fails itself, the call did not. */
	bool injected = pread(nth_fd, text, sizeof(text) - 1, 0) > 0 && atoi(text) == 0;
	int tries = 10;

	while (pwrite(nth_fd, "0", 1, 0) != 1)
		if (!--tries)
			err(1, "fail-nth");
	return injected;
}

/* ---- Hooked calls ------------------------------------------------------- */

static long result(void *p)
{
	return p == MAP_FAILED ? -1 : 0;
}

static char *moved_to;

static long do_mmap_small(void)
{
	moved_to = mmap(NULL, 3 * PAGE, RW, ANON, -1, 0);
	return result(moved_to);
}

static long do_mmap_large(void)
{
	moved_to = mmap(NULL, 3 * SLOT + PAGE, RW, ANON, -1, 0);
	return result(moved_to);
}

static long do_mmap_fixed(void)
{
	return result(mmap(TARGET, TARGET_LEN, RW, ANON | MAP_FIXED, -1, 0));
}

static long do_mmap_fixed_part(void)
{
	return result(mmap(TARGET + SLOT, 5 * PAGE, RW, ANON | MAP_FIXED, -1, 0));
}

static long do_mmap_locked(void)
{
	return result(mmap(TARGET, TARGET_LEN, RW, ANON | MAP_FIXED | MAP_LOCKED, -1, 0));
}

static long do_mmap_reservation(void)
{
	return result(mmap(TARGET, TARGET_LEN, PROT_NONE, ANON | MAP_FIXED | MAP_NORESERVE, -1, 0));
}

static long do_mmap_growsdown(void)
{
	moved_to = mmap(NULL, SLOT, RW, ANON | MAP_GROWSDOWN, -1, 0);
	return result(moved_to);
}

static long do_mmap_file(void)
{
	return result(mmap(TARGET, TARGET_LEN, PROT_READ, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
}

static long do_munmap(void)
{
	return munmap(TARGET, TARGET_LEN);
}

static long do_munmap_part(void)
{
	return munmap(TARGET + SLOT + 7 * PAGE, 5 * PAGE);
}

static long do_mprotect_part(void)
{
	return mprotect(TARGET + SLOT + 7 * PAGE, 5 * PAGE, PROT_READ);
}

static long do_mprotect_all(void)
{
	return mprotect(TARGET, TARGET_LEN, PROT_READ);
}

static long do_pkey_mprotect(void)
{
	return syscall(SYS_pkey_mprotect, TARGET, TARGET_LEN - PAGE, PROT_READ, -1);
}

static void reserve_target(void)
{
	map(TARGET, TARGET_LEN, PROT_NONE, MAP_FIXED | MAP_NORESERVE);
}

static long do_mprotect_commit(void)
{
	return mprotect(TARGET + PAGE, TARGET_LEN - 2 * PAGE, RW);
}

static long do_mremap_shrink(void)
{
	return result(mremap(TARGET, TARGET_LEN, TARGET_LEN / 2 + PAGE, 0));
}

static void unmap_upper_half(void)
{
	if (munmap(TARGET + TARGET_LEN / 2, TARGET_LEN / 2))
		fail("preparing: %s", strerror(errno));
}

static long do_mremap_grow(void)
{
	return result(mremap(TARGET, TARGET_LEN / 2, TARGET_LEN, 0));
}

static long do_mremap_move(void)
{
	moved_to = mremap(TARGET, TARGET_LEN, TARGET_LEN + 3 * SLOT, MREMAP_MAYMOVE);
	return result(moved_to);
}

static long do_mremap_fixed(void)
{
	return result(mremap(TARGET, TARGET_LEN, TARGET_LEN, MREMAP_MAYMOVE | MREMAP_FIXED, ELSEWHERE));
}

static long do_mremap_fixed_odd(void)
{
	return result(mremap(TARGET, TARGET_LEN, TARGET_LEN, MREMAP_MAYMOVE | MREMAP_FIXED, ELSEWHERE_ODD));
}

static long do_dontneed(void)
{
	return madvise(TARGET + PAGE, TARGET_LEN - 2 * PAGE, MADV_DONTNEED);
}

static long do_dontfork(void)
{
	return madvise(TARGET + SLOT + PAGE, 3 * PAGE, MADV_DONTFORK);
}

static long do_nohugepage(void)
{
	return madvise(TARGET + SLOT + PAGE, 3 * PAGE, MADV_NOHUGEPAGE);
}

static long do_populate(void)
{
	return madvise(TARGET, TARGET_LEN, MADV_POPULATE_WRITE);
}

static long do_mlock(void)
{
	return mlock(TARGET + 5 * PAGE, SLOT);
}

static long do_mlock2(void)
{
	return mlock2(TARGET + 5 * PAGE, SLOT, MLOCK_ONFAULT);
}

static void lock_target(void)
{
	if (mlock(TARGET, TARGET_LEN))
		fail("preparing: %s", strerror(errno));
}

static long do_munlock(void)
{
	return munlock(TARGET + 5 * PAGE, SLOT);
}

static long do_munlockall(void)
{
	return munlockall();
}

static long do_mbind(void)
{
	unsigned long nodes = 1;

	return syscall(SYS_mbind, TARGET + 5 * PAGE, SLOT, 2, &nodes, 2, 0);
}

static char *heap;

static void heap_small(void)
{
	heap = (char *)syscall(SYS_brk, 0);
}

static long do_brk_grow(void)
{
	return (char *)syscall(SYS_brk, heap + 5 * SLOT / 2) == heap + 5 * SLOT / 2 ? 0 : -1;
}

static void heap_large(void)
{
	heap_small();
	if (do_brk_grow())
		fail("preparing: the heap does not grow");
	memset(heap, 1, 5 * SLOT / 2);
}

static long do_brk_shrink(void)
{
	return (char *)syscall(SYS_brk, heap + PAGE) == heap + PAGE ? 0 : -1;
}

static void heap_back(void)
{
	if ((char *)syscall(SYS_brk, heap) != heap)
		fail("the heap cannot be given back");
}

static pid_t child;

/* The child looks at its snapshot, writes to it, and so does the parent. */
static void child_body(void)
{
	expect_old("child's copy", BEFORE, BEFORE_LEN);
	expect_old("child's copy", TARGET, TARGET_LEN);
	expect_old("child's copy", AFTER, AFTER_LEN);
	memset(TARGET, 0x77, TARGET_LEN);
	_exit(0);
}

static long do_fork(void)
{
	child = (pid_t)syscall(SYS_fork);
	if (child == 0)
		child_body();
	return child < 0 ? -1 : 0;
}

static long do_clone(void)
{
	child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
	if (child == 0)
		child_body();
	return child < 0 ? -1 : 0;
}

static long do_clone3(void)
{
	struct {
		uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
	} args = { .exit_signal = SIGCHLD };

	child = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
	if (child == 0)
		child_body();
	return child < 0 ? -1 : 0;
}

static long do_vfork(void)
{
	child = vfork();
	if (child == 0)
		_exit(0);
	return child < 0 ? -1 : 0;
}

/*
 * A child for which memory could not be found after it was made is killed,
 * which docs/design/fork.md says.
 */
static void wait_child(void)
{
	int status;

	if (child <= 0)
		return;
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			fail("waitpid: %s", strerror(errno));
	child = 0;
	if (status && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL))
		fail("the child ended with status %#x", (unsigned int)status);
}

/* After a fork both sides write: what is shared is taken apart. */
static char second[PAGE];
static int hold[2];

static void fork_held(void)
{
	if (pipe(hold))
		fail("preparing: %s", strerror(errno));
	child = fork();
	if (child < 0)
		fail("preparing: %s", strerror(errno));
	if (child == 0) {
		char byte;

		close(hold[1]);
		if (read(hold[0], &byte, 1) < 0)
			_exit(1);
		child_body();
	}
	close(hold[0]);
}

static long do_write_shared(void)
{
	struct iovec local = { second, PAGE }, remote = { TARGET + SLOT, PAGE };

	*(uint64_t *)second = *(uint64_t *)(second + PAGE - 8) = word(TARGET + SLOT);
	return process_vm_writev(getpid(), &local, 1, &remote, 1, 0) == (ssize_t)PAGE ? 0 : -1;
}

static void release_child(void)
{
	close(hold[1]);
	wait_child();
}

/* The kernel finds memory for a call. */
static long do_touch_reservation(void)
{
	struct iovec local = { second, PAGE }, remote = { TARGET + SLOT, PAGE };

	memset(second, 0, PAGE);
	return process_vm_writev(getpid(), &local, 1, &remote, 1, 0) == (ssize_t)PAGE ? 0 : -1;
}

static void reserve_writable(void)
{
	map(TARGET, TARGET_LEN, RW, MAP_FIXED | MAP_NORESERVE);
}

struct call {
	const char *name;
	void (*prepare)(void);
	long (*run)(void);
	void (*finish)(void);
	size_t moved_len;
	bool keeps;		/* the target keeps its contents */
};

static const struct call calls[] = {
	{ "mmap of pages", NULL, do_mmap_small, NULL, 3 * PAGE, true },
	{ "mmap of slots", NULL, do_mmap_large, NULL, 3 * SLOT + PAGE, true },
	{ "mmap MAP_FIXED", NULL, do_mmap_fixed, NULL, 0, false },
	{ "mmap MAP_FIXED of a part", NULL, do_mmap_fixed_part, NULL, 0, false },
	{ "mmap MAP_LOCKED", NULL, do_mmap_locked, NULL, 0, false },
	{ "mmap of a reservation", NULL, do_mmap_reservation, NULL, 0, false },
	{ "mmap MAP_GROWSDOWN", NULL, do_mmap_growsdown, NULL, SLOT, true },
	{ "mmap of shared memory", NULL, do_mmap_file, NULL, 0, false },
	{ "munmap", NULL, do_munmap, NULL, 0, false },
	{ "munmap of a part", NULL, do_munmap_part, NULL, 0, false },
	{ "mprotect", NULL, do_mprotect_all, NULL, 0, true },
	{ "mprotect of a part", NULL, do_mprotect_part, NULL, 0, true },
	{ "mprotect of a reservation", reserve_target, do_mprotect_commit, NULL, 0, false },
	{ "pkey_mprotect", NULL, do_pkey_mprotect, NULL, 0, true },
	{ "mremap, shrinking", NULL, do_mremap_shrink, NULL, 0, false },
	{ "mremap, growing", unmap_upper_half, do_mremap_grow, NULL, 0, false },
	{ "mremap, moving", NULL, do_mremap_move, NULL, TARGET_LEN + 3 * SLOT, false },
	{ "mremap MREMAP_FIXED", NULL, do_mremap_fixed, NULL, 0, false },
	{ "mremap MREMAP_FIXED, off a slot", NULL, do_mremap_fixed_odd, NULL, 0, false },
	{ "madvise MADV_DONTNEED", NULL, do_dontneed, NULL, 0, false },
	{ "madvise MADV_DONTFORK", NULL, do_dontfork, NULL, 0, true },
	{ "madvise MADV_NOHUGEPAGE", NULL, do_nohugepage, NULL, 0, true },
	{ "madvise MADV_POPULATE_WRITE", NULL, do_populate, NULL, 0, true },
	{ "mlock", NULL, do_mlock, NULL, 0, true },
	{ "mlock2", NULL, do_mlock2, NULL, 0, true },
	{ "munlock", lock_target, do_munlock, NULL, 0, true },
	{ "munlockall", lock_target, do_munlockall, NULL, 0, true },
	{ "mbind", NULL, do_mbind, NULL, 0, true },
	{ "brk, growing", heap_small, do_brk_grow, heap_back, 0, true },
	{ "brk, shrinking", heap_large, do_brk_shrink, heap_back, 0, true },
	{ "fork", NULL, do_fork, wait_child, 0, true },
	{ "clone", NULL, do_clone, wait_child, 0, true },
	{ "clone3", NULL, do_clone3, wait_child, 0, true },
	{ "vfork", NULL, do_vfork, wait_child, 0, true },
	{ "write to what a child shares", fork_held, do_write_shared, release_child, 0, true },
	{ "write to a reservation", reserve_writable, do_touch_reservation, NULL, 0, false },
};

/* brk tells no errno. */
static bool is_plausible(int error)
{
	switch (error) {
	case 0:
	case ENOMEM:
	case EAGAIN:
	case EFAULT:	/* a copy from or to user space was made to fail */
	case EINTR:
	case ENOSPC:	/* Linux has no inode for shared memory */
		return true;
	default:
		return false;
	}
}

static void prepare(const struct call *call)
{
	map(BEFORE, BEFORE_LEN + TARGET_LEN + AFTER_LEN, RW, MAP_FIXED);
	stamp(BEFORE, BEFORE_LEN + TARGET_LEN + AFTER_LEN);
	moved_to = NULL;
	if (call->prepare)
		call->prepare();
}

static void clean_up(const struct call *call)
{
	if (call->finish)
		call->finish();
	if (call->moved_len && moved_to && moved_to != MAP_FAILED &&
	    munmap(moved_to, call->moved_len))
		fail("munmap: %s", strerror(errno));
	if (munmap(BEFORE, BEFORE_LEN + TARGET_LEN + AFTER_LEN) ||
	    munmap(ELSEWHERE, ELSEWHERE_MAX) || munmap(ELSEWHERE_ODD, ELSEWHERE_MAX))
		fail("munmap: %s", strerror(errno));
}

/* What has moved has moved with its contents. */
static void check_moved(const struct call *call, long ret)
{
	const char *to = call->run == do_mremap_fixed ? ELSEWHERE :
			 call->run == do_mremap_fixed_odd ? ELSEWHERE_ODD :
			 call->run == do_mremap_move ? moved_to : NULL;

	if (!to || ret)
		return;
	for (size_t off = 0; off < TARGET_LEN; off += PAGE)
		if (page_state(to + off, TARGET + off) != OLD)
			fail("page %zu was lost on its way", off / PAGE);
}

/* An errno after which nothing may have changed, for calls that move. */
static void check_not_moved(const struct call *call, long ret)
{
	if (ret && (call->run == do_mremap_move || call->run == do_mremap_fixed ||
		    call->run == do_mremap_fixed_odd))
		expect_old("mapping that did not move", TARGET, TARGET_LEN);
}

/* Returns the number of failure points. */
static unsigned int sweep_call(const struct call *call)
{
	unsigned int failed = 0;
	bool injected = true;

	case_name = call->name;
	for (point = 1; injected; point++) {
		long ret;
		int error;

		if (point > MAX_POINTS)
			fail("there is no end of them");
		prepare(call);
		arm(point);
		errno = 0;
		ret = call->run();
		error = ret ? errno : 0;
		injected = disarm();
		if (ret) {
			failed++;
			if (!injected)
				fail("it failed without a failure: %s", strerror(error));
			if (!is_plausible(error))
				fail("it returned %s", strerrorname_np(error));
		}
		expect_old("neighbour before", BEFORE, BEFORE_LEN);
		expect_old("neighbour behind", AFTER, AFTER_LEN);
		if (call->keeps)
			expect_old("target", TARGET, TARGET_LEN);
		else
			expect_sane(TARGET, TARGET_LEN);
		check_moved(call, ret);
		check_not_moved(call, ret);
		clean_up(call);
	}
	printf("%-32s %4u failure points, %4u errors\n", call->name, point - 2, failed);
	fflush(stdout);
	return point - 2;
}

static void sweep_calls(const char *only)
{
	unsigned int points = 0;

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		if (!only || !strcmp(only, calls[i].name))
			points += sweep_call(&calls[i]);
	if (!points)
		fail("nothing could be made to fail: is fault injection set up?");
}

/* ---- ioctls --------------------------------------------------------------- */

static int device;
static struct hpmmap_pool_range section;

static long do_info(void)
{
	struct hpmmap_info arg = { .size = sizeof(arg) };

	return ioctl(device, HPMMAP_IOC_INFO, &arg);
}

static long do_list(void)
{
	struct hpmmap_pool_range ranges[16];
	struct hpmmap_pool_list arg = {
		.size = sizeof(arg), .ranges = (uintptr_t)ranges, .nr = 16,
	};
	long ret = ioctl(device, HPMMAP_IOC_POOL_LIST, &arg);

	if (!ret)
		section = ranges[0];
	return ret;
}

static long do_remove(void)
{
	struct hpmmap_pool_remove arg = {
		.size = sizeof(arg), .start = section.start, .length = section.length,
	};

	return ioctl(device, HPMMAP_IOC_POOL_REMOVE, &arg);
}

static long do_add(void)
{
	struct hpmmap_pool_add arg = {
		.size = sizeof(arg), .start = section.start, .length = section.length,
		.node = -1, .flags = section.flags,
	};

	return ioctl(device, HPMMAP_IOC_POOL_ADD, &arg);
}

static long do_limit(void)
{
	static uint32_t uid = 60000;
	struct hpmmap_limit_set arg = {
		.size = sizeof(arg), .uid = uid++, .bytes = SLOT,
	};

	return ioctl(device, HPMMAP_IOC_LIMIT_SET, &arg);
}

/* Until a process of its own ends: it registers itself. */
static long do_launch(void)
{
	uint64_t nodes = 1;
	struct hpmmap_launch arg = {
		.size = sizeof(arg), .nodemask = (uintptr_t)&nodes, .nodemask_bits = 64,
	};

	return ioctl(device, HPMMAP_IOC_LAUNCH, &arg);
}

/* In a child, so that it is the process that ends that undoes it. */
static bool launch_point(void)
{
	int status;
	pid_t pid = fork();

	if (pid < 0)
		fail("fork: %s", strerror(errno));
	if (pid == 0) {
		bool injected;
		long ret;
		int error;

		nth_fd = open("/proc/thread-self/fail-nth", O_RDWR);
		if (nth_fd < 0)
			err(1, "fail-nth");
		arm(point);
		ret = do_launch();
		error = errno;
		injected = disarm();
		if (ret && (!injected || !is_plausible(error)))
			fail("it returned %s", strerrorname_np(error));
		_exit(injected ? 0 : 3);
	}
	if (waitpid(pid, &status, 0) != pid || (status && status != 3 << 8))
		fail("the process ended with status %#x", (unsigned int)status);
	return status == 0;
}

/* All the ways of launching: with hooks to install, and without. */
static void sweep_launch(void)
{
	case_name = "HPMMAP_IOC_LAUNCH";
	for (point = 1; launch_point(); point++)
		if (point > MAX_POINTS)
			fail("there is no end of them");
	printf("%-32s %4u failure points\n", case_name, point - 1);
	fflush(stdout);
	if (point < 2)
		fail("nothing could be made to fail: is fault injection set up?");
}

static void sweep_ioctl(const char *name, long (*prepare_fn)(void), long (*run)(void))
{
	unsigned int failed = 0;
	bool injected = true;

	case_name = name;
	for (point = 1; injected; point++) {
		long ret;
		int error;

		if (point > MAX_POINTS)
			fail("there is no end of them");
		/* ENOENT: it failed before, so there is nothing to undo. */
		if (prepare_fn && prepare_fn() && errno != ENOENT)
			fail("preparing: %s", strerror(errno));
		arm(point);
		ret = run();
		error = errno;
		injected = disarm();
		if (ret) {
			failed++;
			if (!injected || !is_plausible(error))
				fail("it returned %s", strerrorname_np(error));
		}
	}
	printf("%-32s %4u failure points, %4u errors\n", name, point - 2, failed);
	fflush(stdout);
}

/* The last thing a sweep does succeeds, so the section is where it was. */
static long add_quietly(void)
{
	long ret = do_add();

	if (ret && errno == EEXIST) {
		errno = ENOENT;
		return -1;
	}
	return ret;
}

static void sweep_ioctls(void)
{
	device = open(HPMMAP_DEVICE_PATH, O_RDWR | O_CLOEXEC);
	if (device < 0)
		err(1, HPMMAP_DEVICE_PATH);
	case_name = "preparing";
	if (do_list())
		err(1, "HPMMAP_IOC_POOL_LIST");
	sweep_ioctl("HPMMAP_IOC_INFO", NULL, do_info);
	sweep_ioctl("HPMMAP_IOC_POOL_LIST", NULL, do_list);
	sweep_ioctl("HPMMAP_IOC_POOL_ADD", do_remove, do_add);
	sweep_ioctl("HPMMAP_IOC_POOL_REMOVE", add_quietly, do_remove);
	if (add_quietly() && errno != ENOENT)
		fail("the section cannot be added again: %s", strerror(errno));
	sweep_ioctl("HPMMAP_IOC_LIMIT_SET", NULL, do_limit);
	sweep_launch();
}

/* ---- execve ------------------------------------------------------------------ */

/*
 * The program that was executed: something may have failed behind execve's
 * back. It maps, writes and forks a little, and its stack is in order.
 */
static int after_exec(void)
{
	char stack[SLOT];
	char *p;
	int fd = open("/proc/thread-self/fail-nth", O_RDWR);
	bool injected;

	nth_fd = fd;
	if (fd < 0)
		return 4;
	injected = disarm();
	memset(stack, 1, sizeof(stack));
	p = mmap(NULL, 2 * SLOT, RW, ANON, -1, 0);
	if (p == MAP_FAILED)
		return 5;
	memset(p, 1, 2 * SLOT);
	return injected ? 0 : 3;
}

static void sweep_exec(char *self)
{
	char *const argv[] = { self, "after-exec", NULL }, *const envp[] = { NULL };
	unsigned int died = 0;
	int status = 0;

	case_name = "execve";
	device = open(HPMMAP_DEVICE_PATH, O_RDWR | O_CLOEXEC);
	if (device < 0)
		err(1, HPMMAP_DEVICE_PATH);
	for (point = 1; status != 3 << 8; point++) {
		pid_t pid;

		if (point > MAX_POINTS)
			fail("there is no end of them");
		pid = fork();
		if (pid < 0)
			fail("fork: %s", strerror(errno));
		if (pid == 0) {
			if (do_launch())
				err(6, "launch");
			nth_fd = open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);
			if (nth_fd < 0)
				err(6, "fail-nth");
			arm(point);
			execve(self, argv, envp);
			disarm();
			_exit(is_plausible(errno) ? 0 : 7);
		}
		if (waitpid(pid, &status, 0) != pid)
			fail("waitpid: %s", strerror(errno));
		/*
		 * Behind the point of no return Linux kills the process; later
		 * the loader gives up, with status 127.
		 */
		if ((WIFSIGNALED(status) && (WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGSEGV)) ||
		    status == 127 << 8)
			died++;
		else if (status && status != 3 << 8)
			fail("the program ended with status %#x", (unsigned int)status);
	}
	printf("%-32s %4u failure points, %4u did not start\n", case_name, point - 2, died);
	if (point < 3)
		fail("nothing could be made to fail: is fault injection set up?");
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_NODEFER };

	if (argc == 2 && !strcmp(argv[1], "after-exec"))
		return after_exec();
	if (argc < 2)
		errx(2, "usage: faults calls [CASE] | ioctls | exec");
	sigaction(SIGSEGV, &action, NULL);
	sigaction(SIGBUS, &action, NULL);
	nth_fd = open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);
	if (nth_fd < 0)
		err(1, "/proc/thread-self/fail-nth");
	if (!strcmp(argv[1], "calls"))
		sweep_calls(argc > 2 ? argv[2] : NULL);
	else if (!strcmp(argv[1], "ioctls"))
		sweep_ioctls();
	else if (!strcmp(argv[1], "exec"))
		sweep_exec(argv[0]);
	else
		errx(2, "usage: faults calls [CASE] | ioctls | exec");
	printf("HPMMAP-FUZZ-PASS faults %s\n", argv[1]);
	return 0;
}
