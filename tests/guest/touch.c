// SPDX-License-Identifier: GPL-2.0
/*
 * Memory is populated when the call that requests it returns: no page fault in
 * 1 GB of mmap, 256 MB of heap, and with --stacks eager in 7 MB of main stack and of
 * thread stacks, which take one for each 2 MB otherwise.
 * Built twice: touch_dynamic and touch_static.
 */
#include "common.h"

#include <alloca.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define HEAP_BYTES	MB(256)
#define STACK_BYTES	MB(7)
/* What ran before a test may have used this much at the top of a stack. */
#define STACK_USED	KB(512)
#define NR_THREADS	4

static size_t mmap_bytes(void)
{
	const char *mb = getenv("HPMMAP_TEST_MB");
	unsigned long n = mb ? strtoul(mb, NULL, 10) : 1024;

	if (n == 0)
		FAIL("HPMMAP_TEST_MB is \"%s\", not a number of MB above 0", mb);
	return MB(n);
}

static void touch(void *addr, size_t len)
{
	for (size_t off = 0; off < len; off += PAGE)
		((volatile char *)addr)[off] = 1;
}

/* Registered only; everything that ran in between must have run before. */
static void check_totals(struct totals before)
{
	struct totals after = totals_now();

	CHECK_EQ(after.user - before.user, 0);
	CHECK_EQ(after.kernel - before.kernel, 0);
}

/* What this program relies on: where there are faults, they are counted. */
static void counters_count_faults(void)
{
	const size_t len = 16 * PAGE;
	struct totals before, after;
	int fd = memfd_create("touch", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	char *p;

	if (!watch_available() && !registered())
		SKIP("perf_event_open is not permitted and there is no module");
	/* Memory of a file that can be sealed stays Linux's: perf counts, the module does not. */
	CHECK_OK(fd);
	CHECK_OK(ftruncate(fd, (off_t)len));
	p = mmap(NULL, len, RW, MAP_SHARED, fd, 0);
	CHECK_OK(p);
	watch_begin();
	touch(p, len);
	watch_end();
	if (watch_available()) {
		CHECK(watch_user_faults(p, len) > 0);
		CHECK_EQ(watch_user_faults(p + len, PAGE), 0);
	}
	unmap(p, len);
	close(fd);

	/* A reservation gets memory when it is used. */
	p = map_flags(NULL, GB(1), RW, ANON | MAP_NORESERVE);
	before = totals_now();
	watch_begin();
	touch(p + MB(8), PAGE);
	watch_end();
	after = totals_now();
	if (watch_available())
		CHECK_EQ(watch_user_faults(p, GB(1)), 1);
	if (registered())
		CHECK_EQ(after.user - before.user, 1);
	unmap(p, GB(1));
}

static void use_reservation(void *arg)
{
	char *p = map_flags(NULL, MB(8), RW, ANON | MAP_NORESERVE);

	(void)arg;
	CHECK_TOUCH(p, MB(4));
}

static void use_small_entries(void *arg)
{
	int fd = memfd_create("touch", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	char *p;

	(void)arg;
	CHECK_OK(fd);
	CHECK_OK(ftruncate(fd, (off_t)MB(4)));
	p = mmap(NULL, MB(4), RW, MAP_SHARED, fd, 0);
	CHECK_OK(p);
	touch(p, MB(4));
	check_2m(p, MB(4));
}

/* The checks themselves fail where there is something to find. */
static void checks_can_fail(void)
{
	static void (*const wrong[])(void *arg) = {
		use_reservation, use_small_entries,
	};

	skip_unless_registered();
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		pid_t pid = fork_child();

		if (pid == 0) {
			CHECK(freopen("/dev/null", "w", stdout) != NULL);
			if (i == 0 && !watch_available())
				_exit(CHILD_FAILED);
			if (i == 1 && !maps_2m())
				_exit(CHILD_FAILED);
			wrong[i](NULL);
			_exit(0);
		}
		expect_exit(pid, CHILD_FAILED);
	}
}

/* How many faults the stack of a thread may take when it is used down to here. */
static size_t stack_faults(size_t len)
{
	const char *stacks = getenv("HPMMAP_TEST_STACKS");

	return stacks && strcmp(stacks, "eager") == 0 ? 0 : len / SLOT + 1;
}

static void touch_down(char *p, size_t len)
{
	for (size_t off = len; off >= PAGE; off -= PAGE)
		((volatile char *)p)[off - 1] = 1;
}

static void __attribute__((noinline)) touch_stack(size_t len, bool fresh)
{
	char *p = alloca(len);
	size_t unused = len > STACK_USED ? len - STACK_USED : 0;

	/* Not initialised, for all that the compiler knows. */
	__asm__ volatile("" : : "r"(p) : "memory");
	if (fresh)
		verify_zero(p, unused);
	touch_down(p, len);
	watch_begin();
	touch_down(p, len);
	EXPECT_NO_FAULTS(p, len);
}

/* It is memory of Linux, which a fork has made read-only, too. */
static void main_stack(void)
{
	struct rlimit limit;
	struct totals before;

	CHECK_OK(getrlimit(RLIMIT_STACK, &limit));
	if (limit.rlim_cur < MB(8))
		SKIP("RLIMIT_STACK is below 8 MB");
	touch_stack(KB(16), false);
	before = totals_now();
	touch_stack(STACK_BYTES, true);
	check_totals(before);
}

static void mmap_large(void)
{
	size_t len = mmap_bytes();
	uint64_t linux_bytes = 0;
	struct totals before;
	char *p;

	p = map_anon(PAGE);
	watch_begin();
	verify_zero(p, PAGE);
	touch(p, PAGE);
	watch_end();
	unmap(p, PAGE);

	if (registered())
		linux_bytes = context_value("linux_bytes");
	p = map_anon(len);
	before = totals_now();
	watch_begin();
	verify_zero(p, len);
	touch(p, len);
	EXPECT_NO_FAULTS(p, len);
	check_totals(before);
	check_2m(p, len);
	if (registered()) {
		CHECK_EQ(context_value("linux_bytes"), linux_bytes);
		CHECK(context_value("held_bytes") >= len);
	}
	unmap(p, len);
}

static void heap_by_sbrk(void)
{
	const size_t step = MB(4) + 4 * PAGE;
	const size_t steps = HEAP_BYTES / step + 1;
	char *start = sbrk(0);
	struct totals before = { 0, 0 };

	CHECK_OK(start);
	for (size_t i = 0; i < steps; i++) {
		char *p = sbrk((intptr_t)step);

		CHECK_OK(p);
		CHECK(p == start + i * step);
		if (i == 1)
			before = totals_now();
		watch_begin();
		verify_zero(p, step);
		touch(p, step);
		EXPECT_NO_FAULTS(p, step);
	}
	check_totals(before);
	check_2m(start, steps * step);
	CHECK_OK(sbrk(-(intptr_t)(steps * step)));
	CHECK(sbrk(0) == start);
}

static void heap_by_malloc(void)
{
	const size_t step = MB(1);
	static char *block[HEAP_BYTES / MB(1)];
	struct totals before = { 0, 0 };
	char *large;

	/* The largest threshold there is, so that the blocks come from brk. */
	CHECK_EQ(mallopt(M_MMAP_THRESHOLD, (int)MB(32)), 1);
	for (size_t i = 0; i < ARRAY_SIZE(block); i++) {
		block[i] = malloc(step);
		CHECK(block[i] != NULL);
		if (i == 1)
			before = totals_now();
		watch_begin();
		touch(block[i], step);
		EXPECT_NO_FAULTS(block[i], step);
	}
	check_totals(before);
	check_2m(block[0], (size_t)(block[ARRAY_SIZE(block) - 1] - block[0]));
	for (size_t i = 0; i < ARRAY_SIZE(block); i++)
		free(block[i]);
	CHECK(malloc_trim(0) >= 0);

	large = malloc(MB(64));
	CHECK(large != NULL);
	before = totals_now();
	watch_begin();
	verify_zero(large, MB(64));
	touch(large, MB(64));
	EXPECT_NO_FAULTS(large, MB(64));
	check_totals(before);
	check_2m(large, MB(64));
	free(large);
}

struct worker {
	pthread_barrier_t *together;
	size_t touch_bytes;
	bool by_address;
	char *stack;
};

static void __attribute__((noinline)) touch_below(struct worker *worker)
{
	char *p = alloca(worker->touch_bytes);

	worker->stack = p;
	if (worker->by_address)
		watch_begin();
	touch_down(p, worker->touch_bytes);
	if (!worker->by_address)
		return;
	watch_end();
	if (registered() && watch_available())
		CHECK(watch_user_faults(p, worker->touch_bytes) <=
		      stack_faults(worker->touch_bytes));
}

/* All threads live at once, so that each has a stack of its own. */
static void *use_stack(void *arg)
{
	struct worker *worker = arg;

	touch_below(worker);
	pthread_barrier_wait(worker->together);
	pthread_barrier_wait(worker->together);
	return NULL;
}

static void run_workers(size_t nr, size_t stack_bytes, size_t touch_bytes,
			bool by_address)
{
	struct worker worker[NR_THREADS];
	pthread_t thread[NR_THREADS];
	pthread_barrier_t together;
	pthread_attr_t attr;
	struct totals before;

	CHECK_EQ(pthread_barrier_init(&together, NULL, (unsigned int)nr + 1), 0);
	CHECK_EQ(pthread_attr_init(&attr), 0);
	CHECK_EQ(pthread_attr_setstacksize(&attr, stack_bytes), 0);
	before = totals_now();
	for (size_t i = 0; i < nr; i++) {
		worker[i] = (struct worker){
			.together = &together,
			.touch_bytes = touch_bytes,
			.by_address = by_address,
		};
		CHECK_EQ(pthread_create(&thread[i], &attr, use_stack, &worker[i]), 0);
	}
	pthread_barrier_wait(&together);
	/* Opening the record of each thread takes faults of its own. */
	if (!by_address && touch_bytes >= STACK_BYTES && !stack_faults(touch_bytes))
		check_totals(before);
	for (size_t i = 0; i < nr && !stack_faults(touch_bytes); i++)
		check_2m(worker[i].stack, touch_bytes);
	pthread_barrier_wait(&together);
	for (size_t i = 0; i < nr; i++)
		join_thread(thread[i]);
	pthread_attr_destroy(&attr);
	pthread_barrier_destroy(&together);
}

/*
 * glibc hands out stacks of finished threads again if they are large enough;
 * each round asks for more than the one before, so the stacks are new.
 */
static void thread_stacks(void)
{
	run_workers(1, KB(256), KB(64), false);
	run_workers(NR_THREADS, MB(8), STACK_BYTES, false);
	run_workers(NR_THREADS, MB(9) + 3 * PAGE, STACK_BYTES, true);
}

int main(void)
{
	static const struct test tests[] = {
		T(counters_count_faults),
		T(checks_can_fail),
		T(main_stack),
		T(thread_stacks),
		T(mmap_large),
		T(heap_by_sbrk),
		T(heap_by_malloc),
	};

	return RUN_GROUP(program_invocation_short_name, tests);
}
