// SPDX-License-Identifier: GPL-2.0
/* Threads: concurrent mapping calls, locks in pool memory, TLS, signals. */
#include "common.h"

#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define NR_THREADS	8

static void run_threads(void *(*fn)(void *arg), size_t nr)
{
	pthread_t thread[NR_THREADS];

	for (size_t i = 0; i < nr; i++)
		thread[i] = start_thread(fn, (void *)i);
	for (size_t i = 0; i < nr; i++)
		join_thread(thread[i]);
}

/* A generator of its own per thread: the sequence does not depend on others. */
static uint32_t next(uint32_t *state)
{
	*state = *state * 1664525 + 1013904223;
	return *state >> 8;
}

/* ---- Everything at once ------------------------------------------------ */

struct held {
	char *addr;
	size_t len;
	uint64_t seed;
	bool by_malloc;
};

static void obtain(struct held *held, uint32_t *state, uint64_t seed)
{
	static const size_t lens[] = {
		KB(4), KB(12), KB(64), KB(132), KB(512), MB(1), MB(2), MB(2) + KB(4),
	};

	held->len = lens[next(state) % ARRAY_SIZE(lens)];
	held->seed = seed;
	held->by_malloc = next(state) % 3 == 0;
	if (held->by_malloc) {
		held->addr = malloc(held->len);
		CHECK(held->addr != NULL);
	} else {
		held->addr = map_anon(held->len);
		CHECK_EQ(*(uint64_t *)(void *)held->addr, 0);
		CHECK_EQ(*(uint64_t *)(void *)(held->addr + held->len - 8), 0);
	}
	stamp(held->addr, held->len, seed);
}

static void give_up(struct held *held)
{
	verify_stamp(held->addr, held->len, held->seed);
	if (held->by_malloc)
		free(held->addr);
	else
		unmap(held->addr, held->len);
	held->addr = NULL;
}

static void disturb(struct held *held, uint32_t *state)
{
	size_t pages = held->len / PAGE;
	char *page;

	if (held->by_malloc || pages < 3)
		return;
	page = held->addr + (next(state) % pages) * PAGE;
	switch (next(state) % 3) {
	case 0:
		CHECK_OK(mprotect(page, PAGE, PROT_NONE));
		CHECK_OK(mprotect(page, PAGE, RW));
		break;
	case 1:
		CHECK_OK(mprotect(page, PAGE, PROT_READ));
		CHECK_OK(mprotect(held->addr, held->len, RW));
		break;
	default:
		held->addr = mremap(held->addr, held->len, held->len + KB(260),
				    MREMAP_MAYMOVE);
		CHECK_OK(held->addr);
		verify_stamp(held->addr, held->len, held->seed);
		held->len += KB(260);
		stamp(held->addr, held->len, held->seed);
		break;
	}
}

static void *all_calls(void *arg)
{
	struct held held[6] = { { .addr = NULL } };
	uint32_t state = (uint32_t)(uintptr_t)arg * 7919 + 1;

	for (uint64_t n = 0; n < 100; n++) {
		struct held *one = &held[next(&state) % ARRAY_SIZE(held)];

		if (!one->addr)
			obtain(one, &state, n * NR_THREADS + (uintptr_t)arg);
		else if (next(&state) % 2)
			disturb(one, &state);
		else
			give_up(one);
	}
	for (size_t i = 0; i < ARRAY_SIZE(held); i++)
		if (held[i].addr)
			give_up(&held[i]);
	return NULL;
}

static void eight_threads_use_all_calls(void)
{
	run_threads(all_calls, NR_THREADS);
}

/* ---- Neighbours in one slot -------------------------------------------- */

#define NR_NEIGHBOURS	2

static char *shared_slot;
static atomic_bool neighbours_stop;

static void *use_all_but_one_page(void *arg)
{
	uint64_t seed = (uintptr_t)arg + 1;
	/* The threads take turns at the pages, but none has the first sixteen. */
	size_t first = 16 + (size_t)arg;

	for (uint64_t n = 0; !atomic_load(&neighbours_stop); n++) {
		for (size_t page = first; page < SLOT / PAGE; page += NR_NEIGHBOURS)
			*(volatile uint64_t *)(void *)(shared_slot + page * PAGE) =
				seed * 1000003 + n;
		for (size_t page = first; page < SLOT / PAGE; page += NR_NEIGHBOURS)
			CHECK_EQ(*(volatile uint64_t *)(void *)(shared_slot + page * PAGE),
				 seed * 1000003 + n);
	}
	return NULL;
}

/* What happens to a page is nothing to those who use its neighbours. */
static void calls_beside_pages_in_use(void)
{
	pthread_t thread[NR_NEIGHBOURS];
	char *base = free_range(3 * SLOT);
	volatile uint64_t *word;

	map_flags(base, 3 * SLOT, RW, ANON | MAP_FIXED_NOREPLACE);
	stamp(base, 3 * SLOT, 1);
	shared_slot = base + SLOT;
	atomic_store(&neighbours_stop, false);
	for (size_t i = 0; i < ARRAY_SIZE(thread); i++)
		thread[i] = start_thread(use_all_but_one_page, (void *)i);
	for (size_t n = 0; n < 80; n++) {
		char *page = shared_slot + (n % 16) * PAGE;

		word = (volatile uint64_t *)(void *)page;
		*word = n + 1;
		CHECK_OK(mprotect(page, PAGE, PROT_NONE));
		CHECK_OK(mprotect(page, PAGE, PROT_READ));
		CHECK_EQ(*word, n + 1);
		CHECK_OK(mprotect(page, PAGE, RW));
		CHECK_EQ(*word, n + 1);
		CHECK_OK(madvise(page, PAGE, MADV_DONTNEED));
		CHECK_EQ(*word, 0);
		*word = n + 1;
		unmap(page, PAGE);
		map_flags(page, PAGE, RW, ANON | MAP_FIXED_NOREPLACE);
		CHECK_EQ(*word, 0);
		map_flags(page, PAGE, RW, ANON | MAP_FIXED);
	}
	atomic_store(&neighbours_stop, true);
	for (size_t i = 0; i < ARRAY_SIZE(thread); i++)
		join_thread(thread[i]);
	CHECK_TOUCH(base, 3 * SLOT);
	check_2m(base, 3 * SLOT);
	unmap(base, 3 * SLOT);
}

static void *write_words(void *arg)
{
	volatile uint64_t *words = arg;

	for (uint64_t n = 1; !atomic_load(&neighbours_stop); n++)
		for (size_t i = 0; i < PAGE / sizeof(*words); i++)
			words[i] = n % 2 ? 0x1111111111111111 : 0x2222222222222222;
	return NULL;
}

/* A word of what is discarded while it is written to is zero, or what was written, and no mixture. */
static void words_are_discarded_whole(void)
{
	char *page = map_anon(PAGE);
	volatile uint64_t *words = (void *)page;
	pthread_t thread;

	atomic_store(&neighbours_stop, false);
	thread = start_thread(write_words, page);
	for (size_t n = 0; n < 1000; n++) {
		CHECK_OK(madvise(page, PAGE, MADV_DONTNEED));
		for (size_t i = 0; i < PAGE / sizeof(*words); i++) {
			uint64_t got = words[i];

			if (got && got != 0x1111111111111111 && got != 0x2222222222222222)
				FAIL("%#llx was never written", (unsigned long long)got);
		}
	}
	atomic_store(&neighbours_stop, true);
	join_thread(thread);
	unmap(page, PAGE);
}

/* ---- Stacks ------------------------------------------------------------ */

/* Whole slots would wait for a touch even at the end of a stack. */
static void skip_with_first_touch(void)
{
	if (getenv("HPMMAP_TEST_FIRST_TOUCH"))
		SKIP("launched with --placement first-touch");
}

/* What the process holds more than before; 0 natively. */
static uint64_t more_held(uint64_t before)
{
	return registered() ? context_value("held_bytes") - before : 0;
}

/* A stack that is mapped as threads map theirs: all but its end waits. */
static char *map_stack(size_t len)
{
	uint64_t before = registered() ? context_value("held_bytes") : 0;
	char *p = map_flags(NULL, len + PAGE, PROT_NONE, ANON | MAP_STACK) + PAGE;

	CHECK_OK(mprotect(p, len, RW));
	CHECK_EQ(vma_count(p, len), 1);
	if (registered())
		CHECK_EQ(more_held(before), SLOT);
	CHECK_TOUCH(p + len - KB(128), KB(128));
	return p;
}

static void unmap_stack(char *p, size_t len)
{
	unmap(p - PAGE, len + PAGE);
}

/* One fault for each 2 MB that it grows by, and none afterwards. */
static void stacks_grow_by_slots(void)
{
	struct totals before;
	char *p;

	skip_with_first_touch();
	p = map_stack(MB(8));
	before = totals_now();

	for (char *at = p + MB(8) - PAGE; at >= p; at -= PAGE)
		*(volatile char *)at = 1;
	if (registered())
		CHECK(totals_now().user - before.user <= 3);
	CHECK_TOUCH(p, MB(8));
	unmap_stack(p, MB(8));

	/* Where no slot is covered wholly, too. */
	p = map_flags(NULL, MB(1), RW, ANON | MAP_STACK);
	before = totals_now();
	stamp(p, MB(1), 1);
	if (registered())
		CHECK(totals_now().user - before.user <= 1);
	CHECK_TOUCH(p, MB(1));
	unmap(p, MB(1));
}

/* Without a guard between them, stacks that touch are one mapping. */
static void stacks_without_guards(void)
{
	char *p = free_range(MB(14));

	skip_with_first_touch();
	for (int i = 3; i--;) {
		char *stack = p + KB(512) + i * MB(4);
		uint64_t before = registered() ? context_value("held_bytes") : 0;

		map_flags(stack, MB(4), RW, ANON | MAP_STACK | MAP_FIXED_NOREPLACE);
		if (registered())
			CHECK(more_held(before) <= SLOT);
		CHECK_TOUCH(stack + MB(4) - KB(128), KB(128));
	}
	unmap(p + KB(512), MB(12));
}

/* Who needs a part first may be the kernel. */
static void stacks_grow_for_the_kernel(void)
{
	char *p, buf[PAGE];
	struct iovec local = { buf, PAGE }, remote = { NULL, PAGE };
	int fds[2];

	skip_with_first_touch();
	p = map_stack(MB(8));
	remote.iov_base = p + MB(3);
	CHECK_OK(pipe(fds));
	CHECK_EQ(write(fds[1], p + MB(1), PAGE), PAGE);
	CHECK_EQ(read(fds[0], p + MB(5), PAGE), PAGE);
	verify_zero(p + MB(5), PAGE);
	memset(buf, 1, PAGE);
	CHECK_EQ(process_vm_readv(getpid(), &local, 1, &remote, 1, 0), PAGE);
	verify_zero(buf, PAGE);
	CHECK_OK(mlock(p, MB(8)));
	CHECK_TOUCH(p, MB(8));
	CHECK_OK(munlock(p, MB(8)));
	close(fds[0]);
	close(fds[1]);
	unmap_stack(p, MB(8));

	p = map_flags(NULL, MB(8), RW, ANON | MAP_STACK | MAP_POPULATE);
	CHECK_TOUCH(p, MB(8));
	unmap(p, MB(8));
}

/* It is a stack still when it was cut, moved, or inherited. */
static void stacks_stay_stacks(void)
{
	uint64_t before;
	char *p, *q;
	pid_t pid;

	skip_with_first_touch();
	p = map_stack(MB(8));
	CHECK_OK(mprotect(p + MB(4), PAGE, PROT_NONE));
	CHECK_OK(mprotect(p + MB(4), PAGE, RW));
	CHECK_EQ(vma_count(p, MB(8)), 1);
	fill(p + MB(5), PAGE, 2);
	pid = fork_child();
	if (pid == 0) {
		verify(p + MB(5), PAGE, 2, 0);
		before = registered() ? context_value("held_bytes") : 0;
		fill(p + MB(1), PAGE, 3);
		if (registered())
			CHECK_EQ(more_held(before), SLOT);
		CHECK_TOUCH(p, MB(2));
		_exit(0);
	}
	expect_success(pid);
	verify_zero(p + MB(1), PAGE);

	before = registered() ? context_value("held_bytes") : 0;
	q = mremap(p, MB(8), MB(64), MREMAP_MAYMOVE);
	CHECK_OK(q);
	verify(q + MB(5), PAGE, 2, 0);
	verify_zero(q + MB(40), PAGE);
	if (registered())
		CHECK(more_held(before) <= MB(8));
	CHECK_EQ(vma_count(q, MB(64)), 1);
	unmap(q, MB(64));
	if (q != p)
		unmap(p - PAGE, PAGE);
}

/* ---- The first touch --------------------------------------------------- */

#define TOUCHED_LEN	(8 * SLOT)

static _Atomic uint64_t *touched;
static atomic_int at_the_line;

/* Each thread has one word of each page, and all begin with the same blocks. */
static void *touch_everything(void *arg)
{
	size_t nth = (size_t)arg;
	size_t per_page = PAGE / sizeof(*touched);

	atomic_fetch_add(&at_the_line, 1);
	while (atomic_load(&at_the_line) < NR_THREADS)
		sched_yield();
	for (size_t page = 0; page < TOUCHED_LEN / PAGE; page++) {
		_Atomic uint64_t *word = &touched[page * per_page + nth];

		CHECK_EQ(atomic_load(word), 0);
		atomic_store(word, page * NR_THREADS + nth + 1);
	}
	return NULL;
}

static void touch_at_once(int flags)
{
	size_t per_page = PAGE / sizeof(*touched);
	char *base = free_range(TOUCHED_LEN);

	map_flags(base, TOUCHED_LEN, RW, ANON | MAP_FIXED_NOREPLACE | flags);
	touched = (void *)base;
	atomic_store(&at_the_line, 0);
	run_threads(touch_everything, NR_THREADS);
	/* Nothing was cleared after it was written. */
	for (size_t page = 0; page < TOUCHED_LEN / PAGE; page++)
		for (size_t nth = 0; nth < per_page; nth++)
			CHECK_EQ(atomic_load(&touched[page * per_page + nth]),
				 nth < NR_THREADS ? page * NR_THREADS + nth + 1 : 0);
	unmap(base, TOUCHED_LEN);
}

static void eight_threads_touch_the_same_blocks(void)
{
	for (int round = 0; round < 4; round++) {
		touch_at_once(0);
		touch_at_once(MAP_NORESERVE);
	}
}

/* ---- Whole blocks ------------------------------------------------------ */

/* Fresh memory is zero whoever had it before, and is nobody else's. */
static void *map_whole_blocks(void *arg)
{
	uint64_t seed = (uintptr_t)arg + 1;

	for (uint64_t n = 0; n < 12; n++) {
		size_t len = SLOT * (1 + n % 3) + (n % 2) * PAGE;
		char *p = map_anon(len);

		for (size_t off = 0; off < len; off += PAGE) {
			CHECK_EQ(*(uint64_t *)(void *)(p + off), 0);
			CHECK_EQ(*(uint64_t *)(void *)(p + off + PAGE - 8), 0);
		}
		stamp(p, len, seed * 100 + n);
		CHECK_OK(mprotect(p, len / 2 & ~(PAGE - 1), PROT_READ));
		sched_yield();
		verify_stamp(p, len, seed * 100 + n);
		unmap(p, len);
	}
	return NULL;
}

static void eight_threads_map_whole_blocks(void)
{
	run_threads(map_whole_blocks, NR_THREADS);
}

/* ---- Creation ----------------------------------------------------------- */

static __thread uint64_t tls_word = 0x1234;
static __thread char tls_block[KB(64)];
static pthread_key_t key;
static atomic_int destroyed;

static void destroy(void *value)
{
	(void)value;
	atomic_fetch_add(&destroyed, 1);
}

static void *use_tls(void *arg)
{
	CHECK_EQ(tls_word, 0x1234);
	verify_zero(tls_block, sizeof(tls_block));
	tls_word = (uintptr_t)arg;
	fill(tls_block, sizeof(tls_block), (uintptr_t)arg);
	CHECK_EQ(pthread_setspecific(key, tls_block), 0);
	errno = (int)(uintptr_t)arg;
	sched_yield();
	CHECK_EQ(errno, (int)(uintptr_t)arg);
	CHECK(pthread_getspecific(key) == tls_block);
	CHECK_EQ(tls_word, (uintptr_t)arg);
	verify(tls_block, sizeof(tls_block), (uintptr_t)arg, 0);
	return NULL;
}

static void thread_local_storage(void)
{
	tls_word = 77;
	atomic_store(&destroyed, 0);
	CHECK_EQ(pthread_key_create(&key, destroy), 0);
	for (int round = 0; round < 4; round++)
		run_threads(use_tls, NR_THREADS);
	CHECK_EQ(atomic_load(&destroyed), 4 * NR_THREADS);
	CHECK_EQ(tls_word, 77);
	CHECK_EQ(pthread_key_delete(key), 0);
	tls_word = 0x1234;
}

static void *return_argument(void *arg)
{
	char local[KB(32)];

	fill(local, sizeof(local), (uintptr_t)arg);
	verify(local, sizeof(local), (uintptr_t)arg, 0);
	return arg;
}

static void create_and_join_200(void)
{
	for (uintptr_t i = 0; i < 200; i++) {
		pthread_t thread = start_thread(return_argument, (void *)i);
		void *result;

		CHECK_EQ(pthread_join(thread, &result), 0);
		CHECK_EQ((uintptr_t)result, i);
	}
}

/* Sizes that glibc has no finished thread's stack for. */
static void create_with_many_stack_sizes(void)
{
	pthread_attr_t attr;

	CHECK_EQ(pthread_attr_init(&attr), 0);
	for (size_t i = 0; i < 24; i++) {
		size_t size = KB(192) + i * i * KB(28);
		pthread_t thread;
		void *result;

		CHECK_EQ(pthread_attr_setstacksize(&attr, size), 0);
		CHECK_EQ(pthread_attr_setguardsize(&attr, (i % 4) * PAGE), 0);
		CHECK_EQ(pthread_create(&thread, &attr, return_argument, (void *)i), 0);
		CHECK_EQ(pthread_join(thread, &result), 0);
		CHECK_EQ((uintptr_t)result, i);
	}
	pthread_attr_destroy(&attr);
}

/* ---- Locks --------------------------------------------------------------- */

struct locks {
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	pthread_barrier_t barrier;
	pthread_rwlock_t rwlock;
	uint64_t counter;
	uint64_t turn;
	size_t nr;
};

static struct locks *locks;

static void init_locks(struct locks *at, size_t nr, int shared)
{
	pthread_mutexattr_t mutex;
	pthread_condattr_t cond;
	pthread_barrierattr_t barrier;
	pthread_rwlockattr_t rwlock;

	at->counter = 0;
	at->turn = 0;
	at->nr = nr;
	CHECK_EQ(pthread_mutexattr_init(&mutex), 0);
	CHECK_EQ(pthread_condattr_init(&cond), 0);
	CHECK_EQ(pthread_barrierattr_init(&barrier), 0);
	CHECK_EQ(pthread_rwlockattr_init(&rwlock), 0);
	CHECK_EQ(pthread_mutexattr_setpshared(&mutex, shared), 0);
	CHECK_EQ(pthread_condattr_setpshared(&cond, shared), 0);
	CHECK_EQ(pthread_barrierattr_setpshared(&barrier, shared), 0);
	CHECK_EQ(pthread_rwlockattr_setpshared(&rwlock, shared), 0);
	CHECK_EQ(pthread_mutex_init(&at->mutex, &mutex), 0);
	CHECK_EQ(pthread_cond_init(&at->cond, &cond), 0);
	CHECK_EQ(pthread_barrier_init(&at->barrier, &barrier, (unsigned int)nr), 0);
	CHECK_EQ(pthread_rwlock_init(&at->rwlock, &rwlock), 0);
}

static void use_locks(struct locks *at, size_t me)
{
	pthread_barrier_wait(&at->barrier);
	for (int i = 0; i < 300; i++) {
		CHECK_EQ(pthread_mutex_lock(&at->mutex), 0);
		at->counter++;
		CHECK_EQ(pthread_mutex_unlock(&at->mutex), 0);
	}
	/* In turns, so that everybody sleeps and is woken. */
	for (uint64_t i = 0; i < 20; i++) {
		CHECK_EQ(pthread_mutex_lock(&at->mutex), 0);
		while (at->turn != i * at->nr + me)
			CHECK_EQ(pthread_cond_wait(&at->cond, &at->mutex), 0);
		at->turn++;
		CHECK_EQ(pthread_cond_broadcast(&at->cond), 0);
		CHECK_EQ(pthread_mutex_unlock(&at->mutex), 0);
	}
	pthread_barrier_wait(&at->barrier);
	CHECK_EQ(pthread_rwlock_rdlock(&at->rwlock), 0);
	CHECK_EQ(at->counter, at->nr * 300);
	CHECK_EQ(pthread_rwlock_unlock(&at->rwlock), 0);
	CHECK_EQ(pthread_rwlock_wrlock(&at->rwlock), 0);
	at->turn++;
	CHECK_EQ(pthread_rwlock_unlock(&at->rwlock), 0);
}

static void *use_locks_in_thread(void *arg)
{
	use_locks(locks, (size_t)arg);
	return NULL;
}

static void check_locks_of_threads(char *memory, size_t off, int shared)
{
	locks = (struct locks *)(void *)(memory + off);
	init_locks(locks, 4, shared);
	run_threads(use_locks_in_thread, 4);
	CHECK_EQ(locks->counter, 4 * 300);
	CHECK_EQ(locks->turn, 4 * 20 + 4);
}

static void locks_between_threads(void)
{
	char *p = map_anon(MB(4));

	check_locks_of_threads(p, 0, PTHREAD_PROCESS_PRIVATE);
	check_locks_of_threads(p, 0, PTHREAD_PROCESS_SHARED);
	check_locks_of_threads(p, MB(2) + PAGE + 64, PTHREAD_PROCESS_SHARED);
	/* In a slot that small entries map. */
	CHECK_OK(mprotect(p + MB(1), PAGE, PROT_NONE));
	check_locks_of_threads(p, MB(1) + PAGE, PTHREAD_PROCESS_SHARED);
	check_locks_of_threads(p, MB(1) + PAGE, PTHREAD_PROCESS_PRIVATE);
	unmap(p, MB(4));
}

static void locks_on_heap_and_stack(void)
{
	char on_stack[sizeof(struct locks) + 64];
	char *on_heap = malloc(KB(64));

	CHECK(on_heap != NULL);
	check_locks_of_threads(on_heap, KB(8), PTHREAD_PROCESS_SHARED);
	check_locks_of_threads((char *)(((uintptr_t)on_stack + 63) & ~63UL), 0,
			       PTHREAD_PROCESS_SHARED);
	free(on_heap);
}

static void locks_between_processes(void)
{
	char *p = map_flags(NULL, MB(2), RW, MAP_SHARED | MAP_ANONYMOUS);
	pid_t pid[3];

	locks = (struct locks *)(void *)(p + PAGE);
	init_locks(locks, 4, PTHREAD_PROCESS_SHARED);
	for (size_t i = 0; i < 3; i++) {
		pid[i] = fork_child();
		if (pid[i] == 0) {
			use_locks(locks, i + 1);
			_exit(0);
		}
	}
	use_locks(locks, 0);
	for (size_t i = 0; i < 3; i++)
		expect_success(pid[i]);
	CHECK_EQ(locks->turn, 4 * 20 + 4);
	unmap(p, MB(2));
}

/* FUTEX_WAIT = 0 and FUTEX_WAKE = 1, both of the kind between processes. */
static long futex(void *addr, int op, int value)
{
	return syscall(SYS_futex, addr, op, value, NULL, NULL, 0);
}

static void wake_in_child(void *arg)
{
	/* The word is the child's own copy: nobody waits on it. */
	CHECK_EQ(futex(arg, 1, 1), 0);
}

static atomic_int *futex_word;

static void *wait_on_word(void *arg)
{
	(void)arg;
	while (atomic_load(futex_word) == 0)
		if (futex(futex_word, 0, 0) != 0 && errno != EAGAIN && errno != EINTR)
			FAIL("FUTEX_WAIT: %s", errno_name(errno));
	return NULL;
}

/* Private memory: a child's futex is not its parent's. */
static void futexes_are_private_after_fork(void)
{
	pthread_t thread;
	char *p = map_anon(MB(2));

	futex_word = (atomic_int *)(void *)(p + MB(1));
	atomic_store(futex_word, 0);
	thread = start_thread(wait_on_word, NULL);
	/* The waiter sleeps sooner or later; a child's wake must find nobody. */
	for (int i = 0; i < 5; i++)
		in_child(wake_in_child, futex_word);
	atomic_store(futex_word, 1);
	CHECK_OK(futex(futex_word, 1, 1));
	join_thread(thread);
	CHECK_ERR(futex(futex_word, 0, 7), EAGAIN);
	unmap(p, MB(2));
}

static pthread_mutex_t *robust;

static void init_robust(void *at)
{
	pthread_mutexattr_t attr;

	robust = at;
	CHECK_EQ(pthread_mutexattr_init(&attr), 0);
	CHECK_EQ(pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST), 0);
	CHECK_EQ(pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED), 0);
	CHECK_EQ(pthread_mutex_init(robust, &attr), 0);
}

static void expect_owner_died(void)
{
	CHECK_EQ(pthread_mutex_lock(robust), EOWNERDEAD);
	CHECK_EQ(pthread_mutex_consistent(robust), 0);
	CHECK_EQ(pthread_mutex_unlock(robust), 0);
	CHECK_EQ(pthread_mutex_lock(robust), 0);
	CHECK_EQ(pthread_mutex_unlock(robust), 0);
}

static void *lock_and_leave(void *arg)
{
	(void)arg;
	CHECK_EQ(pthread_mutex_lock(robust), 0);
	return NULL;
}

static void robust_mutexes(void)
{
	char *p = map_anon(MB(2));
	char *shared = map_flags(NULL, PAGE, RW, MAP_SHARED | MAP_ANONYMOUS);
	pid_t pid;

	init_robust(p + PAGE + 64);
	join_thread(start_thread(lock_and_leave, NULL));
	expect_owner_died();

	init_robust(shared);
	pid = fork_child();
	if (pid == 0) {
		lock_and_leave(NULL);
		raise(SIGKILL);
	}
	expect_signal(pid, SIGKILL);
	expect_owner_died();
	unmap(p, MB(2));
	unmap(shared, PAGE);
}

/* ---- Signals -------------------------------------------------------------- */

static __thread char *alternate;
static __thread volatile sig_atomic_t handled;

static void on_signal(int sig)
{
	char local[KB(8)];

	if (local < alternate || local >= alternate + KB(128))
		FAIL("the handler is not on its stack");
	fill(local, sizeof(local), (uint64_t)sig);
	verify(local, sizeof(local), (uint64_t)sig, 0);
	handled++;
}

static void *signals_in_thread(void *arg)
{
	stack_t stack = { .ss_size = KB(128) };

	(void)arg;
	alternate = map_anon(KB(128));
	stack.ss_sp = alternate;
	CHECK_OK(sigaltstack(&stack, NULL));
	handled = 0;
	for (int i = 0; i < 50; i++)
		CHECK_EQ(pthread_kill(pthread_self(), SIGUSR1), 0);
	CHECK_EQ(handled, 50);
	stack.ss_flags = SS_DISABLE;
	CHECK_OK(sigaltstack(&stack, NULL));
	unmap(alternate, KB(128));
	return NULL;
}

static void signals_on_alternate_stacks(void)
{
	struct sigaction action = { .sa_flags = SA_ONSTACK };
	struct sigaction old;

	action.sa_handler = on_signal;
	CHECK_OK(sigaction(SIGUSR1, &action, &old));
	run_threads(signals_in_thread, NR_THREADS);
	CHECK_OK(sigaction(SIGUSR1, &old, NULL));
}

/* ---- Arenas --------------------------------------------------------------- */

static void *churn(void *arg)
{
	enum { NR = 200 };
	char *block[NR] = { NULL };
	size_t len[NR] = { 0 };
	uint32_t state = (uint32_t)(uintptr_t)arg + 17;

	for (uint64_t n = 0; n < 4000; n++) {
		size_t i = next(&state) % NR;

		if (block[i]) {
			CHECK_EQ((unsigned char)block[i][0], i & 0xff);
			CHECK_EQ((unsigned char)block[i][len[i] - 1], i & 0xff);
			free(block[i]);
			block[i] = NULL;
			continue;
		}
		len[i] = 16 + next(&state) % (n % 16 ? 2000 : 200000);
		block[i] = malloc(len[i]);
		CHECK(block[i] != NULL);
		block[i][0] = (char)i;
		block[i][len[i] - 1] = (char)i;
	}
	for (size_t i = 0; i < NR; i++)
		free(block[i]);
	return NULL;
}

static void malloc_in_all_threads(void)
{
	run_threads(churn, NR_THREADS);
}

/* ---- A thread that others wait for ---------------------------------------- */

#define GIVE_UP_S 30

/* Each page that is missed it gives, and maps memory for its work. */
static void *serve_pages(void *arg)
{
	int fd = *(int *)arg;

	for (uint64_t i = 0; i < 3; i++) {
		struct uffdio_zeropage zero = { .range.len = PAGE };
		struct uffd_msg msg;
		char *p;

		CHECK_EQ(read(fd, &msg, sizeof(msg)), sizeof(msg));
		p = map_anon(MB(4));
		stamp(p, MB(4), i);
		unmap(p, MB(4));
		zero.range.start = msg.arg.pagefault.address & ~(uint64_t)(PAGE - 1);
		CHECK_OK(ioctl(fd, UFFDIO_ZEROPAGE, &zero));
	}
	return NULL;
}

static void calls_wait_for_a_thread_that_maps(void)
{
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	pthread_t server;
	char *p;

	if (fd < 0)
		SKIP("no userfaultfd");
	CHECK_OK(ioctl(fd, UFFDIO_API, &api));
	/* Shared memory that is only reserved stays Linux's, whoever maps it. */
	p = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(p != MAP_FAILED);
	reg.range.start = (uintptr_t)p;
	reg.range.len = 3 * PAGE;
	CHECK_OK(ioctl(fd, UFFDIO_REGISTER, &reg));
	server = start_thread(serve_pages, &fd);
	/* Who waits for the other one waits for ever. */
	alarm(GIVE_UP_S);
	CHECK_OK(madvise(p, PAGE, MADV_POPULATE_READ));
	CHECK_OK(mlock(p + PAGE, PAGE));
	CHECK_EQ(p[2 * PAGE], 0);
	join_thread(server);
	alarm(0);
	CHECK_OK(munmap(p, 3 * PAGE));
	close(fd);
}

/* ---- Tables that go --------------------------------------------------------- */

/*
 * From 6.14 on MADV_DONTNEED frees the tables that it empties, and by way of
 * io_uring it is the kernel's alone. Others may fill the same tables now.
 */
#define EMPTIED_SLOTS	2UL
#define EMPTIED_LEN	(EMPTIED_SLOTS * SLOT)

static struct {
	char *addr;
	int ring;
	struct io_uring_params params;
	char *sq;
	char *cq;
	struct io_uring_sqe *sqes;
	atomic_bool stop;
} emptied;

static uint32_t *emptied_word(char *base, uint32_t off)
{
	return (uint32_t *)(void *)(base + off);
}

static void *empty_tables(void *arg)
{
	struct io_uring_params *params = &emptied.params;
	uint32_t *tail = emptied_word(emptied.sq, params->sq_off.tail);

	(void)arg;
	for (size_t n = 0; !atomic_load(&emptied.stop); n++) {
		uint32_t slot = *tail & (params->sq_entries - 1);

		emptied.sqes[slot] = (struct io_uring_sqe){
			.opcode = IORING_OP_MADVISE,
			.addr = (uintptr_t)emptied.addr + n % EMPTIED_SLOTS * SLOT,
			.len = SLOT,
			.fadvise_advice = MADV_DONTNEED,
		};
		emptied_word(emptied.sq, params->sq_off.array)[slot] = slot;
		__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
		CHECK_EQ(syscall(SYS_io_uring_enter, emptied.ring, 1, 1,
				 IORING_ENTER_GETEVENTS, NULL, 0), 1);
		__atomic_store_n(emptied_word(emptied.cq, params->cq_off.head), (uint32_t)n + 1,
				 __ATOMIC_RELEASE);
	}
	return NULL;
}

/* A call that changes nothing, but what is not mapped is mapped after it. */
static void *fill_tables(void *arg)
{
	struct sched_param param = { 0 };

	(void)arg;
	/* So that who empties a table runs in the middle of who fills it. */
	CHECK_OK(sched_setscheduler(0, SCHED_IDLE, &param));
	for (int n = 0; n < 150; n++)
		CHECK_OK(madvise(emptied.addr, EMPTIED_LEN, MADV_DODUMP));
	return NULL;
}

static void tables_are_emptied_by_another_thread(void)
{
	pthread_t thread;

	memset(&emptied, 0, sizeof(emptied));
	emptied.ring = (int)syscall(SYS_io_uring_setup, 4, &emptied.params);
	if (emptied.ring < 0)
		SKIP("io_uring_setup: %s", errno_name(errno));
	emptied.sq = mmap(NULL, emptied.params.sq_off.array + 4 * sizeof(uint32_t), RW, MAP_SHARED,
			  emptied.ring, IORING_OFF_SQ_RING);
	CHECK_OK(emptied.sq);
	emptied.cq = mmap(NULL, emptied.params.cq_off.cqes +
			  emptied.params.cq_entries * sizeof(struct io_uring_cqe), RW, MAP_SHARED,
			  emptied.ring, IORING_OFF_CQ_RING);
	CHECK_OK(emptied.cq);
	emptied.sqes = mmap(NULL, 4 * sizeof(*emptied.sqes), RW, MAP_SHARED, emptied.ring,
			    IORING_OFF_SQES);
	CHECK_OK(emptied.sqes);
	emptied.addr = map_flags(free_range(EMPTIED_LEN), EMPTIED_LEN, RW,
				 ANON | MAP_FIXED_NOREPLACE);
	/* Tables of 4 KB entries, for good. */
	CHECK_OK(madvise(emptied.addr, EMPTIED_LEN, MADV_NOHUGEPAGE));
	thread = start_thread(empty_tables, NULL);
	run_threads(fill_tables, 4);
	atomic_store(&emptied.stop, true);
	join_thread(thread);
	close(emptied.ring);
	/* The kernel's own checks look at the tables now. */
	unmap(emptied.addr, EMPTIED_LEN);
}

int main(void)
{
	static const struct test tests[] = {
		T(eight_threads_use_all_calls),
		T(calls_beside_pages_in_use),
		T(words_are_discarded_whole),
		T(eight_threads_touch_the_same_blocks),
		T(eight_threads_map_whole_blocks),
		T(thread_local_storage),
		T(create_and_join_200),
		T(create_with_many_stack_sizes),
		T(locks_between_threads),
		T(locks_on_heap_and_stack),
		T(locks_between_processes),
		T(futexes_are_private_after_fork),
		T(robust_mutexes),
		T(signals_on_alternate_stacks),
		T(malloc_in_all_threads),
		T(stacks_grow_by_slots),
		T(stacks_grow_for_the_kernel),
		T(stacks_without_guards),
		T(stacks_stay_stacks),
		T(calls_wait_for_a_thread_that_maps),
		T(tables_are_emptied_by_another_thread),
	};

	return RUN_GROUP("sem_threads", tests);
}
