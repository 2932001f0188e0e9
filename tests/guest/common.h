/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Helpers of the guest tests.
 *
 * Every test also passes in an ordinary process. Promises of HPMMAP alone (no page
 * faults, 2 MB entries, pool accounting) are checked if the process is registered;
 * helpers that check such a promise say so.
 */
#ifndef HPMMAP_TESTS_COMMON_H
#define HPMMAP_TESTS_COMMON_H

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/types.h>

#include "hpmmap.h"
#include "runner.h"

#define KB(n)	((size_t)(n) << 10)
#define MB(n)	((size_t)(n) << 20)
#define GB(n)	((size_t)(n) << 30)
#define TB(n)	((size_t)(n) << 40)
#define PAGE	KB(4)
#define SLOT	((size_t)HPMMAP_BLOCK_BYTES)

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

#define RW	(PROT_READ | PROT_WRITE)
#define ANON	(MAP_PRIVATE | MAP_ANONYMOUS)

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))

/* ---- Checks --------------------------------------------------------- */

/*
 * Print what went wrong, then end the test: in the test's own thread by the
 * framework, in another thread by ending the thread (join_thread() tells), in
 * a child process by _exit() (in_child() tells).
 */
_Noreturn void check_failed(const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
_Noreturn void check_skip(const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* A remark in the output; allocates nothing. */
void note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#define FAIL(...)	check_failed(__FILE__, __LINE__, __VA_ARGS__)
#define SKIP(...)	check_skip(__FILE__, __LINE__, __VA_ARGS__)

#define CHECK(cond) do {						\
	if (!(cond))							\
		FAIL("not true: %s", #cond);				\
} while (0)

#define CHECK_EQ(got, want) do {					\
	long long got_ = (long long)(got), want_ = (long long)(want);	\
									\
	if (got_ != want_)						\
		FAIL("%s is %lld (%#llx), not %lld (%#llx)", #got,	\
		     got_, got_, want_, want_);				\
} while (0)

/* For calls that return -1 or MAP_FAILED and set errno. */
#define CHECK_OK(call) do {						\
	if ((long)(call) == -1)						\
		FAIL("%s: %s", #call, errno_name(errno));		\
} while (0)

#define CHECK_ERR(call, err) do {					\
	errno = 0;							\
	if ((long)(call) != -1)						\
		FAIL("%s: succeeded, not %s", #call, errno_name(err));	\
	if (errno != (err))						\
		FAIL("%s: %s, not %s", #call, errno_name(errno),	\
		     errno_name(err));					\
} while (0)

const char *errno_name(int err);

/* ---- Groups and processes ------------------------------------------- */

/*
 * Runs the tests; ends with the line "HPMMAP-TEST-PASS <group>" if none
 * failed. Returns main()'s exit status. With HPMMAP_TEST_EXPECT=registered
 * (or native) in the environment anything else is a failure; with
 * HPMMAP_TEST_ONLY=<pattern> only some tests run and the line is not printed.
 */
int run_group(const char *group, const struct test *tests, size_t nr);
/*
 * Runs each test in a process of its own, which the variable HPMMAP_TEST_ONLY names it to: after forks a
 * process has blocks here and there, and its tests would find no gigabyte of which all is free. Each begins
 * with a clean pool: else its first blocks lie where some are clean. Returns whether one has failed.
 */
int run_each(const struct test *tests, size_t nr);

#define T(name)	{ #name, name }
#define RUN_GROUP(group, tests)	run_group(group, tests, ARRAY_SIZE(tests))

/* fork(); fails the test on an error. */
pid_t fork_child(void);
/* waitpid(); the raw status. */
int wait_child(pid_t pid);
/* Checks that the child left with status 0; skips if it skipped. */
void expect_success(pid_t pid);
void expect_exit(pid_t pid, int code);
void expect_signal(pid_t pid, int sig);
/* Runs fn(arg) in a child of its own and checks that it succeeded. */
void in_child(void (*fn)(void *arg), void *arg);
/* Exit status of a child whose check failed / that skipped. */
#define CHILD_FAILED	99
#define CHILD_SKIPPED	77

pthread_t start_thread(void *(*fn)(void *arg), void *arg);
/* Joins; checks that no check failed in any thread. */
void join_thread(pthread_t thread);

/* Of /proc/self/pagemap: bit 63 if there is a page, and its frame, for root, in the lowest 55. */
uint64_t pagemap_entry(const void *at);

/* A word that a thread counts in, and nobody else writes, while its memory changes hands. */
struct counting {
	volatile uint64_t *word;
	volatile bool stop;
	uint64_t n;
};

pthread_t count_start(struct counting *c, void *word);
/* Nothing of it was lost. */
void count_end(struct counting *c, pthread_t thread);

/* Blocks until the byte that the peer sends; see tell(). */
void await(int fd);
void tell(int fd);

/* ---- Memory --------------------------------------------------------- */

void *map_anon(size_t len);
void *map_flags(void *addr, size_t len, int prot, int flags);
void unmap(void *addr, size_t len);
/* An address, aligned to a slot, where len bytes are free at this moment: in a static region, if there is one. */
void *free_range(size_t len);

/* Pattern of 8-byte words; word n of a fill is a function of (seed, n). */
void fill(void *addr, size_t len, uint64_t seed);
/* addr is at offset off of what was filled. */
void verify(const void *addr, size_t len, uint64_t seed, size_t off);
void verify_zero(const void *addr, size_t len);
/* One word per page; cheap on large ranges. */
void stamp(void *addr, size_t len, uint64_t seed);
void verify_stamp(const void *addr, size_t len, uint64_t seed);

/* Access one byte; tells what signal came of it (sig 0: none). */
struct outcome {
	int sig;
	int code;
	void *addr;
};
struct outcome probe_read(const void *addr);
struct outcome probe_write(void *addr);
void expect_segv(struct outcome got, int code, const void *addr,
		 const char *file, int line);
#define CHECK_READ_SEGV(addr, code) \
	expect_segv(probe_read(addr), code, addr, __FILE__, __LINE__)
#define CHECK_WRITE_SEGV(addr, code) \
	expect_segv(probe_write(addr), code, addr, __FILE__, __LINE__)

/* ---- /proc and sysfs ------------------------------------------------ */

struct vma {
	uintptr_t start;
	uintptr_t end;
	char perms[8];
	char name[96];
	/* From smaps only. */
	size_t rss_bytes;
	size_t pmd_bytes;
};

/* No allocation. Returns false if no VMA holds addr. */
bool vma_at(const void *addr, struct vma *out);
/* VMAs that overlap the range. */
int vma_count(const void *addr, size_t len);
/* Sum of the sizes of all VMAs below the kernel's half. */
size_t mapped_bytes(void);
/* A field of /proc/meminfo in bytes. */
size_t meminfo(const char *field);

/* Was it launched with --static, and is an address in its region? */
bool is_static(void);
bool in_region(const void *addr);
void skip_unless_static(void);

bool registered(void);
/*
 * Waits, after a child's end, until its address space is taken apart. Mostly that is done before the parent
 * learns of the end; a worker that looks at it just then does it some time later.
 */
void await_apart(pid_t pid);
void skip_unless_registered(void);
/* What /proc/hpmmap has of this process, which must be registered. */
uint64_t context_value(const char *name);
/* What its job has counted of all its processes; 0 where that is not counted. */
uint64_t job_value(const char *name);
/* Of files and the pools, by entries of 2 MB. */
uint64_t mapped_2m_bytes(void);
/* Sum over the nodes' pools. */
uint64_t pool_value(const char *file);
/*
 * Memory that was given back a moment ago comes in pieces until it is zeroed. Waits for that, a minute at
 * most. The thread that zeroes sleeps while enough of the free memory is clean: then there is nothing to
 * wait for.
 */
void await_clean(void);
/* Waits until the pools' free bytes are at least want; fails after long. */
void await_pool_free(uint64_t want);

void pause_ms(long ms);
/* system(3) with a formatted command, which has to succeed. */
void shell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Has this kernel entries of 2 MB? With PREEMPT_RT it has not. */
bool maps_2m(void);

/*
 * Registered only: each VMA that overlaps the range is mapped in full, with
 * one 2 MB entry for every aligned 2 MB in it.
 */
void check_2m(const void *addr, size_t len);

/* ---- Page faults ---------------------------------------------------- */

/*
 * Record the page faults of the calling thread, by address. Calls do not
 * nest; a watch may be queried until the thread's next one.
 */
void watch_begin(void);
void watch_end(void);
/* False where perf_event_open(2) is not permitted. */
bool watch_available(void);
size_t watch_user_faults(const void *addr, size_t len);
size_t watch_kernel_faults(const void *addr, size_t len);
/* Ends the watch. Registered only: no fault in the range. */
void watch_expect_none(const void *addr, size_t len, const char *file, int line);
#define EXPECT_NO_FAULTS(addr, len) \
	watch_expect_none(addr, len, __FILE__, __LINE__)

/* Registered only: writing to every page of the range takes no fault. */
void check_touch(void *addr, size_t len, const char *file, int line);
#define CHECK_TOUCH(addr, len)	check_touch(addr, len, __FILE__, __LINE__)

/* Page faults of the whole address space as the module counts them. */
struct totals {
	uint64_t user;
	uint64_t kernel;
};
struct totals totals_now(void);

/* ---- userfaultfd ---------------------------------------------------- */

/* -1 where this kernel has not the features. Skips the test where it has no userfaultfd. */
int uffd_open(uint64_t features);
/* As ioctl(2). */
int uffd_register(int fd, void *addr, size_t len, uint64_t mode);

#endif
