// SPDX-License-Identifier: GPL-2.0
/*
 * A static region (hpmmap run --static): calls in it change no mapping, and their memory is what it
 * would be natively. Natively and without the option the same tests check themselves.
 */
#include "common.h"

#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CALLS 10000
#define LIVE 48
#define LIVE_BYTES MB(160)
#define HEAP_BYTES MB(16)

/* What a sequence of random calls has. */
struct calls {
	uint64_t random;
	uint64_t seed;
	char *at[LIVE];
	size_t len[LIVE];
	size_t bytes;
	size_t largest;
	char *heap;
	size_t heap_len;
};

static uint64_t draw(struct calls *c, uint64_t below)
{
	c->random ^= c->random << 13;
	c->random ^= c->random >> 7;
	c->random ^= c->random << 17;
	return c->random % below;
}

/* One word of each page: zero before, another afterwards. */
static void take_over(struct calls *c, char *at, size_t len)
{
	for (size_t i = 0; i < len; i += PAGE) {
		volatile uint64_t *word = (uint64_t *)(at + i) + i / PAGE % (PAGE / 8);

		if (*word)
			FAIL("%p of %zu bytes at %p is not zero", (void *)word, len, (void *)at);
		*word = c->seed + i;
	}
}

static void check_over(const struct calls *c, const char *at, size_t len)
{
	for (size_t i = 0; i < len; i += PAGE) {
		const volatile uint64_t *word = (uint64_t *)(at + i) + i / PAGE % (PAGE / 8);

		if (*word != c->seed + i)
			FAIL("%p of %zu bytes at %p is lost", (void *)word, len, (void *)at);
	}
}

static void drop(struct calls *c, int i)
{
	check_over(c, c->at[i], c->len[i]);
	unmap(c->at[i], c->len[i]);
	c->bytes -= c->len[i];
	c->at[i] = NULL;
}

/* Small ones are more frequent. */
static size_t some_len(struct calls *c)
{
	uint64_t a = draw(c, 15), b = draw(c, 15);
	size_t len = PAGE << (a < b ? a : b);

	return len == PAGE ? len : len - PAGE * draw(c, len / PAGE / 2);
}

static void move_heap(struct calls *c)
{
	size_t len = PAGE * draw(c, HEAP_BYTES / PAGE);

	if (syscall(SYS_brk, c->heap + len) != (long)(c->heap + len))
		return;
	if (len > c->heap_len)
		take_over(c, c->heap + c->heap_len, len - c->heap_len);
	c->heap_len = len;
}

/* @heap: the break moves, too; nothing else may move it then. */
static void random_calls(struct calls *c, int nr, bool heap)
{
	if (heap && !c->heap) {
		c->heap = (char *)(((uintptr_t)syscall(SYS_brk, 0) + PAGE - 1) & ~(PAGE - 1));
		CHECK_EQ(syscall(SYS_brk, c->heap), c->heap);
	}
	while (nr--) {
		int i = (int)draw(c, LIVE);

		if (heap && draw(c, 5) == 0) {
			move_heap(c);
		} else if (c->at[i]) {
			drop(c, i);
		} else {
			c->len[i] = some_len(c);
			if (c->len[i] > c->largest || c->bytes + c->len[i] > LIVE_BYTES)
				continue;
			c->at[i] = map_anon(c->len[i]);
			take_over(c, c->at[i], c->len[i]);
			c->bytes += c->len[i];
		}
	}
}

static void random_end(struct calls *c)
{
	for (int i = 0; i < LIVE; i++)
		if (c->at[i])
			drop(c, i);
	if (c->heap)
		CHECK_EQ(syscall(SYS_brk, c->heap), c->heap);
}

/* A tracepoint, counted for this thread; -1 where it cannot be. */
static int counter(const char *name, const char *filter)
{
	struct perf_event_attr attr = { .type = PERF_TYPE_TRACEPOINT, .size = sizeof(attr) };
	char path[128], text[32] = "";
	int fd;

	snprintf(path, sizeof(path), "/sys/kernel/tracing/events/%s/id", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
		SKIP("there is no %s", path);
	close(fd);
	attr.config = strtoul(text, NULL, 10);
	fd = (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
	CHECK_OK(fd);
	if (filter)
		CHECK_OK(ioctl(fd, PERF_EVENT_IOC_SET_FILTER, filter));
	return fd;
}

static uint64_t counted(int fd)
{
	uint64_t value;

	CHECK_EQ(read(fd, &value, sizeof(value)), sizeof(value));
	close(fd);
	return value;
}

static size_t read_file(const char *name, char *text, size_t size)
{
	int fd = open(name, O_RDONLY | O_CLOEXEC);
	size_t len = 0;
	ssize_t n;

	CHECK_OK(fd);
	while ((n = read(fd, text + len, size - 1 - len)) > 0)
		len += (size_t)n;
	close(fd);
	text[len] = '\0';
	return len;
}

/* The size of the page tables. */
static void vm_pte(char *line, size_t size)
{
	static char text[8192];
	char *at;

	read_file("/proc/self/status", text, sizeof(text));
	at = strstr(text, "VmPTE:");
	CHECK(at);
	snprintf(line, size, "%.*s", (int)strcspn(at, "\n"), at);
}

static void calls_change_nothing(void)
{
	static char maps[2][32768];
	static struct calls c = { .random = 1, .seed = 7, .largest = MB(64) };
	char pte[2][64];
	int faults, kernel, flushes;
	uint64_t nr;

	skip_unless_static();
	faults = counter("exceptions/page_fault_user", NULL);
	kernel = counter("exceptions/page_fault_kernel", NULL);
	/* 0: another task runs on the CPU. */
	flushes = counter("tlb/tlb_flush", "reason != 0");
	for (int i = 0; i < 2; i++) {
		read_file("/proc/self/maps", maps[i], sizeof(maps[i]));
		vm_pte(pte[i], sizeof(pte[i]));
	}
	ioctl(faults, PERF_EVENT_IOC_RESET, 0);
	ioctl(kernel, PERF_EVENT_IOC_RESET, 0);
	ioctl(flushes, PERF_EVENT_IOC_RESET, 0);
	random_calls(&c, CALLS, true);
	nr = counted(faults);
	note("%d calls: %llu faults in user mode", CALLS, (unsigned long long)nr);
	CHECK_EQ(nr, 0);
	CHECK_EQ(counted(kernel), 0);
	CHECK_EQ(counted(flushes), 0);
	read_file("/proc/self/maps", maps[1], sizeof(maps[1]));
	vm_pte(pte[1], sizeof(pte[1]));
	CHECK_EQ(strcmp(maps[0], maps[1]), 0);
	CHECK_EQ(strcmp(pte[0], pte[1]), 0);
	random_end(&c);
}

static void *thread_calls(void *arg)
{
	struct calls *c = arg;

	random_calls(c, 400, false);
	random_end(c);
	return NULL;
}

static void threads_share_it(void)
{
	static struct calls c[4];
	pthread_t threads[4];

	for (int i = 0; i < 4; i++) {
		c[i] = (struct calls) { .random = 11 + (uint64_t)i, .seed = (uint64_t)(i + 1) << 40,
					.largest = MB(1) };
		threads[i] = start_thread(thread_calls, &c[i]);
	}
	for (int i = 0; i < 4; i++)
		join_thread(threads[i]);
}

static void child_and_parent_go_on(void)
{
	static struct calls c = { .random = 21, .seed = 9, .largest = MB(2) };
	pid_t pid;

	random_calls(&c, 300, false);
	pid = fork_child();
	if (pid == 0)
		c.random = 99;
	random_calls(&c, 600, false);
	random_end(&c);
	if (pid == 0)
		_exit(0);
	expect_success(pid);
	CHECK_EQ(in_region(map_anon(PAGE)), is_static());
}

static void protected_parts_leave(void)
{
	char *p = map_anon(MB(6)), *q;

	fill(p, MB(6), 3);
	CHECK_OK(mprotect(p + MB(2), MB(2), PROT_NONE));
	CHECK_READ_SEGV(p + MB(2), SEGV_ACCERR);
	CHECK_OK(mprotect(p + MB(2), MB(1), PROT_READ));
	verify(p, MB(3), 3, 0);
	verify(p + MB(4), MB(2), 3, MB(4));
	CHECK_WRITE_SEGV(p + MB(2), SEGV_ACCERR);
	unmap(p, MB(6));
	if (!is_static())
		return;
	CHECK_READ_SEGV(p + MB(2), SEGV_MAPERR);
	q = map_anon(MB(6));
	CHECK(q + MB(6) <= p + MB(2) || q >= p + MB(4));
	verify_zero(q, MB(6));
	unmap(q, MB(6));
}

/* By a call without a hook. */
static void replaced_parts_leave(void)
{
	char *p = map_anon(MB(4));
	static char *q[1100];
	size_t nr = 0;
	int id = shmget(IPC_PRIVATE, MB(1), 0600);

	CHECK_OK(id);
	fill(p, MB(4), 4);
	CHECK(shmat(id, p + MB(1), SHM_REMAP) == p + MB(1));
	verify_zero(p + MB(1), MB(1));
	fill(p + MB(1), MB(1), 5);
	verify(p, MB(1), 4, 0);
	verify(p + MB(2), MB(2), 4, MB(2));
	unmap(p, MB(1));
	unmap(p + MB(2), MB(2));
	/* Where it was free, too, but not natively. */
	if (is_static())
		CHECK(shmat(id, p + MB(2), SHM_REMAP) == p + MB(2));
	/* All that is free in the region, by pieces that fit into each hole. */
	while (nr < (is_static() ? ARRAY_SIZE(q) : 40)) {
		q[nr] = mmap(NULL, MB(1), RW, ANON, -1, 0);
		if (q[nr] == MAP_FAILED)
			break;
		CHECK(q[nr] >= p + MB(is_static() ? 3 : 2) || q[nr] + MB(1) <= p + MB(1));
		verify_zero(q[nr], PAGE);
		stamp(q[nr], MB(1), 6);
		if (in_region(q[nr++]) != is_static())
			break;
	}
	CHECK(nr >= 40);
	verify(p + MB(1), MB(1), 5, 0);
	while (nr--)
		unmap(q[nr], MB(1));
	CHECK_OK(shmdt(p + MB(1)));
	if (is_static())
		CHECK_OK(shmdt(p + MB(2)));
	CHECK_OK(shmctl(id, IPC_RMID, NULL));
}

static void sealed_parts_stay(void)
{
	char *p = map_anon(MB(4));

	fill(p, MB(4), 4);
	if (syscall(462, p + MB(1), MB(1), 0)) {
		unmap(p, MB(4));
		SKIP("mseal(2): %s", errno_name(errno));
	}
	CHECK_ERR(munmap(p, MB(4)), EPERM);
	verify(p, MB(4), 4, 0);
	unmap(p, MB(1));
	unmap(p + MB(2), MB(2));
	verify(p + MB(1), MB(1), 4, MB(1));
}

/* First: of the lowest part in use, below which nothing was used before, and above which another one is. */
static void sizes_are_huge(void)
{
	char *above = map_anon(MB(2)), *p = map_anon(MB(2));

	fill(above, MB(2), 5);
	fill(p, MB(2), 6);
	CHECK(mremap(p, MB(2), -(size_t)PAGE, MREMAP_MAYMOVE) == MAP_FAILED);
	verify(above, MB(2), 5, 0);
	verify(p, MB(2), 6, 0);
	unmap(above, MB(2));
	unmap(p, MB(2));
}

static void moves(void)
{
	char *p = map_anon(MB(1)), *q, *in_the_way;

	fill(p, MB(1), 8);
	for (size_t len = MB(1); len < MB(32); len *= 2) {
		in_the_way = map_anon(PAGE);
		q = mremap(p, len, 2 * len, MREMAP_MAYMOVE);
		CHECK_OK(q);
		verify(q, MB(1), 8, 0);
		verify_zero(q + MB(1), 2 * len - MB(1));
		unmap(in_the_way, PAGE);
		p = q;
	}
	CHECK(mremap(p, MB(32), MB(1), 0) == p);
	CHECK(mremap(p, MB(1), MB(2), 0) == p);
	verify(p, MB(1), 8, 0);
	verify_zero(p + MB(1), MB(1));
	CHECK_ERR(mremap(p, MB(2), 0, 0), EINVAL);
	/* Below zero it is very large. */
	for (int flags = 0; flags <= MREMAP_MAYMOVE; flags++) {
		CHECK(mremap(p, MB(2), -(size_t)PAGE, flags) == MAP_FAILED);
		CHECK(mremap(p, MB(2), -GB(1), flags) == MAP_FAILED);
	}
	q = free_range(MB(2));
	CHECK(mremap(p, MB(2), MB(2), MREMAP_MAYMOVE | MREMAP_FIXED, q) == q);
	verify(q, MB(1), 8, 0);
	unmap(q, MB(2));
}

static void discards(void)
{
	char *p = map_anon(MB(4));

	fill(p, MB(4), 2);
	CHECK_OK(madvise(p + MB(1), MB(2) + PAGE, MADV_DONTNEED));
	CHECK_OK(madvise(p, MB(4), MADV_HUGEPAGE));
	verify(p, MB(1), 2, 0);
	verify_zero(p + MB(1), MB(2) + PAGE);
	verify(p + MB(3) + PAGE, MB(1) - PAGE, 2, MB(3) + PAGE);
	unmap(p + MB(1), MB(1));
	CHECK_ERR(madvise(p, MB(4), MADV_DONTNEED), ENOMEM);
	verify_zero(p, MB(1));
	verify_zero(p + MB(2), MB(2));
	CHECK_READ_SEGV(p + MB(1), SEGV_MAPERR);
	unmap(p, MB(4));
}

static void fixed(void)
{
	char *p = map_anon(MB(8));

	fill(p, MB(8), 2);
	map_flags(p + MB(1), MB(1), RW, ANON | MAP_FIXED);
	verify_zero(p + MB(1), MB(1));
	verify(p, MB(1), 2, 0);
	verify(p + MB(2), MB(6), 2, MB(2));
	unmap(p + MB(4), MB(2));
	CHECK_ERR(mmap(p + MB(3), MB(2), RW, ANON | MAP_FIXED_NOREPLACE, -1, 0), EEXIST);
	map_flags(p + MB(4), MB(1), RW, ANON | MAP_FIXED_NOREPLACE);
	verify_zero(p + MB(4), MB(1));
	/* Free, and then not the region's. */
	map_flags(p + MB(5), MB(1), PROT_READ, ANON | MAP_FIXED_NOREPLACE);
	verify_zero(p + MB(5), MB(1));
	CHECK_WRITE_SEGV(p + MB(5), SEGV_ACCERR);
	map_flags(p + MB(5), MB(2), RW, ANON | MAP_FIXED);
	verify_zero(p + MB(5), MB(2));
	verify(p + MB(7), MB(1), 2, MB(7));
	unmap(p, MB(8));
}

static void exhausted(void)
{
	const char *policy = getenv("HPMMAP_TEST_POLICY");
	char *p[64];
	size_t nr = 0;

	skip_unless_static();
	while (nr < ARRAY_SIZE(p) && (p[nr] = mmap(NULL, MB(16), RW, ANON, -1, 0)) != MAP_FAILED &&
	       in_region(p[nr]))
		nr++;
	CHECK(nr > 4 && nr < ARRAY_SIZE(p));
	if (policy && strcmp(policy, "strict") == 0) {
		CHECK(p[nr] == MAP_FAILED && errno == ENOMEM);
	} else {
		CHECK_OK(p[nr]);
		verify_zero(p[nr], MB(16));
		unmap(p[nr], MB(16));
	}
	while (nr--)
		unmap(p[nr], MB(16));
	CHECK(in_region(map_anon(MB(16))));
}

static const struct test tests[] = {
	T(sizes_are_huge),
	T(calls_change_nothing),
	T(threads_share_it),
	T(child_and_parent_go_on),
	T(protected_parts_leave),
	T(replaced_parts_leave),
	T(sealed_parts_stay),
	T(moves),
	T(discards),
	T(fixed),
	T(exhausted),
};

int main(void)
{
	return RUN_GROUP("sem_static", tests);
}
