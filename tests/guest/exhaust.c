// SPDX-License-Identifier: GPL-2.0
/*
 * Exhausted pools. HPMMAP_TEST_POLICY is the policy of the launch: "strict"
 * (calls fail with ENOMEM) or "fallback" (ordinary memory).
 */
#include "common.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define CHUNK		MB(32)
#define MAX_CHUNKS	8192

static char *chunk[MAX_CHUNKS];
static size_t nr_chunks;
/* What the last steps got of the rest, slot by slot and page by page. */
static struct {
	char *addr;
	size_t len;
} small[4096];
static size_t nr_small;

static void need_policy(bool strict)
{
	const char *policy = getenv("HPMMAP_TEST_POLICY");

	skip_unless_registered();
	if (policy && strcmp(policy, "strict") != 0 && strcmp(policy, "fallback") != 0)
		FAIL("HPMMAP_TEST_POLICY is \"%s\", neither strict nor fallback", policy);
	if (policy)
		CHECK_EQ(context_value("strict"), strcmp(policy, "strict") == 0);
	if ((context_value("strict") == 1) != strict)
		SKIP("the job is not launched with policy %s",
		     strict ? "strict" : "fallback");
}

/* mmap without the checks of map_anon(): NULL with ENOMEM when used up. */
static char *try_map(size_t len)
{
	size_t before = mapped_bytes();
	char *p = mmap(NULL, len, RW, ANON, -1, 0);

	if (p != MAP_FAILED)
		return p;
	if (errno != ENOMEM)
		FAIL("mmap of %zu KB: %s, not ENOMEM", len >> 10, errno_name(errno));
	CHECK_EQ(mapped_bytes(), before);
	return NULL;
}

static void use_up(void)
{
	while (nr_chunks < MAX_CHUNKS) {
		char *p = try_map(CHUNK);

		if (!p)
			break;
		watch_begin();
		stamp(p, CHUNK, nr_chunks);
		EXPECT_NO_FAULTS(p, CHUNK);
		chunk[nr_chunks++] = p;
	}
	if (nr_chunks == MAX_CHUNKS)
		FAIL("%d chunks of %zu MB and no end", MAX_CHUNKS, CHUNK >> 20);
	for (size_t len = SLOT; len; len = len == SLOT ? PAGE : 0) {
		while (nr_small < ARRAY_SIZE(small)) {
			char *p = try_map(len);

			if (!p)
				break;
			stamp(p, len, 7);
			small[nr_small].addr = p;
			small[nr_small++].len = len;
		}
		if (nr_small == ARRAY_SIZE(small))
			FAIL("%zu small mappings and no end", ARRAY_SIZE(small));
	}
}

static void verify_all(void)
{
	for (size_t i = 0; i < nr_chunks; i++)
		verify_stamp(chunk[i], CHUNK, i);
}

static void give_back(size_t keep)
{
	while (nr_chunks > keep) {
		nr_chunks--;
		verify_stamp(chunk[nr_chunks], CHUNK, nr_chunks);
		unmap(chunk[nr_chunks], CHUNK);
	}
}

static void give_back_small(void)
{
	while (nr_small) {
		nr_small--;
		unmap(small[nr_small].addr, small[nr_small].len);
	}
}

/* ---- strict ----------------------------------------------------------------- */

static void mmap_fails_and_recovers(void)
{
	uint64_t before;

	need_policy(true);
	before = pool_value("free_bytes");
	use_up();
	CHECK(nr_chunks > 0);
	CHECK(pool_value("free_bytes") < SLOT);
	/* Again and again the same answer, and nothing else changes. */
	for (int i = 0; i < 20; i++) {
		CHECK(try_map(CHUNK) == NULL);
		CHECK(try_map(SLOT) == NULL);
		CHECK_ERR(mmap(NULL, CHUNK, RW, ANON | MAP_POPULATE, -1, 0), ENOMEM);
	}
	verify_all();
	CHECK_EQ(context_value("linux_bytes"), 0);

	/* A chunk given back is a chunk that can be had. */
	for (int i = 0; i < 5; i++) {
		char *p;

		give_back(nr_chunks - 1);
		p = try_map(CHUNK);
		CHECK(p != NULL);
		verify_zero(p, CHUNK);
		stamp(p, CHUNK, nr_chunks);
		chunk[nr_chunks++] = p;
		CHECK(try_map(CHUNK) == NULL);
	}
	give_back_small();
	give_back(0);
	await_pool_free(before);
	CHECK_EQ(context_value("fallbacks"), 0);
}

static void other_calls_fail_with_enomem(void)
{
	char *reserved, *grow, *guard, *start;
	pid_t pid;

	need_policy(true);
	reserved = map_flags(NULL, MB(64), PROT_NONE, ANON | MAP_NORESERVE);
	grow = map_anon(MB(2));
	stamp(grow, MB(2), 3);
	guard = map_anon(MB(4));
	stamp(guard, MB(4), 4);
	start = sbrk(0);
	use_up();

	CHECK_ERR(sbrk(MB(64)), ENOMEM);
	CHECK(sbrk(0) == start);

	CHECK_ERR(mprotect(reserved, MB(64), RW), ENOMEM);
	CHECK_READ_SEGV(reserved, SEGV_ACCERR);
	CHECK_READ_SEGV(reserved + MB(64) - 1, SEGV_ACCERR);

	CHECK_ERR(mremap(grow, MB(2), MB(64), MREMAP_MAYMOVE), ENOMEM);
	verify_stamp(grow, MB(2), 3);
	CHECK_TOUCH(grow, MB(2));

	/* Nor is what would not have moved gone. */
	CHECK_ERR(mremap(guard, MB(4), MB(1), MREMAP_MAYMOVE | MREMAP_FIXED,
			 reserved + MB(32)), ENOMEM);
	verify_stamp(guard, MB(4), 4);
	CHECK_TOUCH(guard, MB(4));

	/* Needs no memory, so it works. */
	CHECK_OK(mprotect(guard + MB(1), PAGE, PROT_NONE));
	CHECK_READ_SEGV(guard + MB(1), SEGV_ACCERR);
	CHECK_OK(mprotect(guard + MB(1), PAGE, RW));
	verify_stamp(guard, MB(4), 4);
	CHECK_OK(madvise(guard, MB(2), MADV_DONTNEED));
	verify_zero(guard, MB(2));
	CHECK_OK(mmap(guard, MB(2), RW, ANON | MAP_FIXED, -1, 0));
	verify_zero(guard, MB(2));
	CHECK_TOUCH(guard, MB(4));

	/* A fork shares; what the child writes to comes from Linux. */
	pid = fork_child();
	if (pid == 0) {
		verify_all();
		fill(guard, MB(1), 9);
		verify(guard, MB(1), 9, 0);
		_exit(0);
	}
	expect_success(pid);
	verify_zero(guard, MB(2));
	verify_all();
	CHECK_TOUCH(grow, MB(2));

	give_back_small();
	give_back(0);
	/*
	 * And everything works again. The slot that the heap ends in may have got pages
	 * of Linux, when it was written to beside the child.
	 */
	CHECK_OK(sbrk(MB(16)));
	CHECK_TOUCH(start + (-(uintptr_t)start & (SLOT - 1)), MB(14));
	CHECK_OK(sbrk(-(intptr_t)MB(16)));
	CHECK_OK(mprotect(reserved, MB(16), RW));
	CHECK_TOUCH(reserved, MB(16));
	grow = mremap(grow, MB(2), MB(16), MREMAP_MAYMOVE);
	CHECK_OK(grow);
	verify_stamp(grow, MB(2), 3);
	pid = fork_child();
	if (pid == 0) {
		verify_stamp(grow, MB(2), 3);
		_exit(0);
	}
	expect_success(pid);
	unmap(grow, MB(16));
	unmap(guard, MB(4));
	unmap(reserved, MB(64));
}

static void *nothing(void *arg)
{
	return arg;
}

/* The stack is larger than what glibc keeps of finished threads. */
static int run_thread(void)
{
	pthread_t thread;
	pthread_attr_t attr;
	int err;

	CHECK_EQ(pthread_attr_init(&attr), 0);
	CHECK_EQ(pthread_attr_setstacksize(&attr, MB(64)), 0);
	err = pthread_create(&thread, &attr, nothing, NULL);
	pthread_attr_destroy(&attr);
	if (err == 0)
		join_thread(thread);
	return err;
}

static void libraries_report_the_failure(void)
{
	int err;

	need_policy(true);
	use_up();
	err = run_thread();
	CHECK(err == EAGAIN || err == ENOMEM);
	errno = 0;
	CHECK(malloc(MB(64)) == NULL);
	CHECK_EQ(errno, ENOMEM);
	CHECK_ERR(mmap(NULL, MB(4), RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0), ENOMEM);
	/* What is shared and only reserved is Linux's, and there is enough of it. */
	unmap(map_flags(NULL, MB(4), RW, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE), MB(4));
	verify_all();
	give_back_small();
	give_back(0);
	CHECK_EQ(run_thread(), 0);
}

static void fork_takes_no_memory(void)
{
	uint64_t before;
	pid_t pid;

	need_policy(true);
	before = pool_value("free_bytes");
	use_up();
	pid = fork_child();
	if (pid == 0) {
		verify_all();
		/* The first write to what is shared has to have a copy. */
		stamp(chunk[0], CHUNK, 77);
		verify_stamp(chunk[0], CHUNK, 77);
		/* But for a block that both gave up, as both wrote to it at once. */
		CHECK(context_value("linux_bytes") >= CHUNK - SLOT);
		_exit(0);
	}
	expect_success(pid);
	verify_all();
	for (size_t i = 0; i < nr_chunks; i++)
		CHECK_TOUCH(chunk[i], CHUNK);
	give_back_small();
	give_back(0);
	await_pool_free(before);
}

/* ---- fallback ----------------------------------------------------------------- */

static void map_beyond_the_pools(size_t beyond)
{
	size_t want = pool_value("free_bytes") + beyond;

	while (nr_chunks * CHUNK < want) {
		CHECK(nr_chunks < MAX_CHUNKS);
		chunk[nr_chunks] = map_anon(CHUNK);
		verify_zero(chunk[nr_chunks], PAGE);
		stamp(chunk[nr_chunks], CHUNK, nr_chunks);
		nr_chunks++;
	}
}

static void linux_memory_takes_over(void)
{
	uint64_t before, fallbacks;

	need_policy(false);
	if (meminfo("MemAvailable") < MB(512))
		SKIP("less than 512 MB of Linux memory are available");
	before = pool_value("free_bytes");
	fallbacks = context_value("fallbacks");
	map_beyond_the_pools(MB(192));
	CHECK(context_value("fallbacks") > fallbacks);
	verify_all();

	/* All calls work on either kind of memory. */
	for (size_t i = 0; i < nr_chunks; i += nr_chunks - 1) {
		char *p = chunk[i];

		CHECK_OK(mprotect(p + MB(1), PAGE, PROT_NONE));
		CHECK_READ_SEGV(p + MB(1), SEGV_ACCERR);
		CHECK_OK(mprotect(p + MB(1), PAGE, RW));
		verify_stamp(p, CHUNK, i);
		CHECK_OK(madvise(p + MB(2), MB(2) + PAGE, MADV_DONTNEED));
		verify_zero(p + MB(2), MB(2) + PAGE);
		stamp(p, CHUNK, i);
		unmap(p + MB(5), PAGE);
		CHECK_READ_SEGV(p + MB(5), SEGV_MAPERR);
		map_flags(p + MB(5), PAGE, RW, ANON | MAP_FIXED_NOREPLACE);
		verify_zero(p + MB(5), PAGE);
		stamp(p, CHUNK, i);
		verify_stamp(p, CHUNK, i);
	}
	give_back(0);
	await_pool_free(before);
	/* The pools are used again. */
	chunk[0] = map_anon(CHUNK);
	CHECK_TOUCH(chunk[0], CHUNK);
	check_2m(chunk[0], CHUNK);
	unmap(chunk[0], CHUNK);
}

static void heap_and_children_take_over(void)
{
	uint64_t before;
	char *start;
	pid_t pid;

	need_policy(false);
	if (meminfo("MemAvailable") < pool_value("free_bytes") + MB(512))
		SKIP("not enough Linux memory for a child beside the pools");
	before = pool_value("free_bytes");
	map_beyond_the_pools(MB(64));
	start = sbrk(0);
	CHECK_OK(sbrk(MB(32)));
	stamp(start, MB(32) & ~(PAGE - 1), 5);
	verify_stamp(start, MB(32), 5);
	pid = fork_child();
	if (pid == 0) {
		verify_all();
		verify_stamp(start, MB(32), 5);
		for (size_t i = 0; i < nr_chunks; i++)
			stamp(chunk[i], CHUNK, i + 1);
		stamp(start, MB(32), 6);
		verify_stamp(start, MB(32), 6);
		_exit(0);
	}
	expect_success(pid);
	verify_all();
	verify_stamp(start, MB(32), 5);
	CHECK_OK(brk(start));
	CHECK_EQ(run_thread(), 0);
	give_back(0);
	await_pool_free(before);
}

static void mappings_grow_in_place(void)
{
	uint64_t before, linux_bytes;
	char *p;
	pid_t pid;

	need_policy(false);
	if (meminfo("MemAvailable") < MB(512))
		SKIP("less than 512 MB of Linux memory are available");
	before = pool_value("free_bytes");
	p = free_range(MB(66));
	/* Its end is in the middle of a slot, and the room behind it is kept free. */
	map_flags(p, MB(1), RW, ANON | MAP_FIXED_NOREPLACE);
	stamp(p, MB(1), 3);
	map_flags(p + MB(1), MB(65), PROT_NONE, ANON | MAP_NORESERVE | MAP_FIXED_NOREPLACE);
	map_beyond_the_pools(MB(64));
	unmap(p + MB(1), MB(65));
	CHECK(mremap(p, MB(1), MB(66), 0) == p);
	verify_stamp(p, MB(1), 3);
	verify_zero(p + MB(1), MB(65));
	stamp(p, MB(66), 4);
	CHECK(context_value("linux_bytes") > 0);
	pid = fork_child();
	if (pid == 0) {
		verify_stamp(p, MB(66), 4);
		stamp(p + MB(60), MB(6), 5);
		_exit(0);
	}
	expect_success(pid);
	/* Linux gets its pages back from who discards them. */
	linux_bytes = context_value("linux_bytes");
	CHECK_OK(madvise(p + MB(34), MB(32), MADV_DONTNEED));
	CHECK(context_value("linux_bytes") < linux_bytes);
	linux_bytes = context_value("linux_bytes");
	CHECK_OK(madvise(p + MB(34), MB(32), MADV_DONTNEED));
	CHECK_EQ(context_value("linux_bytes"), linux_bytes);
	verify_zero(p + MB(34), MB(32));
	/* It is one mapping. */
	CHECK(mremap(p, MB(66), MB(34), 0) == p);
	CHECK_READ_SEGV(p + MB(34), SEGV_MAPERR);
	verify_stamp(p, MB(34), 4);
	unmap(p, MB(34));
	verify_all();
	give_back(0);
	await_pool_free(before);
}

static bool is_pool(const char *p)
{
	struct vma vma;

	CHECK(vma_at(p, &vma));
	return vma.perms[3] == 's';
}

/* Of what one call has mapped, are the first @bytes the pools', and no more? */
static void check_split(const char *p, size_t len, size_t bytes)
{
	CHECK(is_pool(p));
	CHECK(is_pool(p + bytes - PAGE));
	CHECK(!is_pool(p + bytes));
	CHECK(!is_pool(p + len - PAGE));
}

static void one_call_takes_what_there_is(void)
{
	struct rlimit limit = { .rlim_max = RLIM_INFINITY };
	uint64_t before, left, fallbacks;
	size_t len;
	char *p, *q;
	pid_t pid;

	need_policy(false);
	if (meminfo("MemAvailable") < MB(512))
		SKIP("less than 512 MB of Linux memory are available");
	before = pool_value("free_bytes");
	len = before + MB(64);
	fallbacks = context_value("fallbacks");
	p = map_anon(len);
	left = pool_value("free_bytes");
	CHECK_EQ(left, 0);
	check_split(p, len, before);
	CHECK_EQ(context_value("fallbacks"), fallbacks + 1);
	CHECK_TOUCH(p, before);
	stamp(p, len, 1);
	pid = fork_child();
	if (pid == 0) {
		verify_stamp(p, len, 1);
		_exit(0);
	}
	expect_success(pid);
	verify_stamp(p, len, 1);

	/* For who asked it is one mapping: it grows where it is, or moves. */
	q = free_range(len + MB(32));
	CHECK(mremap(p, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, q) == q);
	verify_stamp(q, len, 1);
	CHECK_READ_SEGV(p, SEGV_MAPERR);
	CHECK_READ_SEGV(p + before, SEGV_MAPERR);
	check_split(q, len, before);
	CHECK(mremap(q, len, len + MB(16), 0) == q);
	verify_stamp(q, len, 1);
	verify_zero(q + len, MB(16));
	map_flags(q + len + MB(16), PAGE, RW, ANON | MAP_FIXED_NOREPLACE);
	CHECK_ERR(mremap(q, len + MB(16), len + MB(32), 0), ENOMEM);
	/* It is not there twice. */
	limit.rlim_cur = mapped_bytes() + MB(24);
	CHECK_OK(setrlimit(RLIMIT_AS, &limit));
	p = mremap(q, len + MB(16), len + MB(32), MREMAP_MAYMOVE);
	CHECK_OK(p);
	limit.rlim_cur = RLIM_INFINITY;
	CHECK_OK(setrlimit(RLIMIT_AS, &limit));
	verify_stamp(p, len, 1);
	verify_zero(p + len, MB(32));
	unmap(q + len + MB(16), PAGE);
	CHECK_READ_SEGV(q, SEGV_MAPERR);
	CHECK_READ_SEGV(q + len, SEGV_MAPERR);
	/* Across the seam like anywhere else. */
	CHECK_OK(mprotect(p + before - PAGE, 2 * PAGE, PROT_READ));
	CHECK_ERR(mremap(p, len + MB(32), len + MB(64), MREMAP_MAYMOVE), EFAULT);
	CHECK_OK(mprotect(p + before - PAGE, 2 * PAGE, RW));
	CHECK_OK(madvise(p + before - MB(1), MB(2), MADV_DONTNEED));
	verify_zero(p + before - MB(1), MB(2));
	CHECK(mremap(p, len + MB(32), before - MB(2), 0) == p);
	CHECK_READ_SEGV(p + before - MB(2), SEGV_MAPERR);
	/* And what the child has left behind of what was copied. */
	CHECK(pool_value("free_bytes") >= MB(2));
	unmap(p, before - MB(2));
	await_pool_free(before);
}

/* A part of what is cut off is the pools', behind what is not. */
static void shrinks_as_it_moves(void)
{
	uint64_t before;
	size_t len;
	char *p, *q;

	need_policy(false);
	if (meminfo("MemAvailable") < MB(512))
		SKIP("less than 512 MB of Linux memory are available");
	before = pool_value("free_bytes");
	len = before + MB(16);
	p = free_range(len + MB(2));
	map_flags(p + len, MB(2), RW, ANON | MAP_FIXED_NOREPLACE);
	map_flags(p, len, RW, ANON | MAP_FIXED_NOREPLACE);
	CHECK_EQ(pool_value("free_bytes"), 0);
	q = free_range(len);
	check_split(p, len, before - MB(2));
	stamp(p, len, 1);
	CHECK(mremap(p, len + MB(2), len - MB(2), MREMAP_MAYMOVE | MREMAP_FIXED, q) == q);
	CHECK_READ_SEGV(p + len, SEGV_MAPERR);
	CHECK(pool_value("free_bytes") >= MB(2));
	verify_stamp(q, len - MB(2), 1);
	unmap(q, len - MB(2));
	await_pool_free(before);
}

static void other_calls_take_what_there_is(void)
{
	uint64_t before, left;
	char *reserved, *start;

	need_policy(false);
	if (meminfo("MemAvailable") < MB(512))
		SKIP("less than 512 MB of Linux memory are available");
	start = (char *)(((uintptr_t)sbrk(0) + SLOT - 1) & ~(SLOT - 1));
	CHECK_OK(brk(start));
	before = pool_value("free_bytes");
	reserved = map_flags(NULL, before + MB(32), PROT_NONE, ANON | MAP_NORESERVE);

	CHECK_OK(mprotect(reserved, before + MB(32), RW));
	stamp(reserved, before + MB(32), 2);
	CHECK_EQ(pool_value("free_bytes"), 0);
	verify_stamp(reserved, before + MB(32), 2);
	unmap(reserved, before + MB(32));
	await_pool_free(before);

	/* Replaced at an address off a slot. */
	reserved = map_flags(NULL, before + MB(32), PROT_NONE, ANON | MAP_NORESERVE);
	map_flags(reserved + PAGE, before + MB(16), RW, ANON | MAP_FIXED);
	CHECK_EQ(pool_value("free_bytes"), 0);
	check_split(reserved + PAGE, before + MB(16), before - PAGE);
	stamp(reserved + PAGE, before + MB(16), 4);
	verify_stamp(reserved + PAGE, before + MB(16), 4);
	unmap(reserved, before + MB(32));
	await_pool_free(before);

	CHECK_OK(brk(start + before + MB(16)));
	left = pool_value("free_bytes");
	CHECK_EQ(left, 0);
	CHECK_TOUCH(start, before);
	stamp(start, before + MB(16), 3);
	verify_stamp(start, before + MB(16), 3);
	CHECK_OK(brk(start));
	await_pool_free(before);
}

int main(void)
{
	static const struct test tests[] = {
		T(mmap_fails_and_recovers),
		T(other_calls_fail_with_enomem),
		T(libraries_report_the_failure),
		T(fork_takes_no_memory),
		T(linux_memory_takes_over),
		T(heap_and_children_take_over),
		T(mappings_grow_in_place),
		T(one_call_takes_what_there_is),
		T(shrinks_as_it_moves),
		T(other_calls_take_what_there_is),
	};

	return RUN_GROUP("exhaust", tests);
}
