// SPDX-License-Identifier: GPL-2.0
/*
 * The node of memory, of two nodes, by move_pages(2) for each page: the same
 * natively and under HPMMAP, unless a test says otherwise. With
 * HPMMAP_TEST_FIRST_TOUCH the launch places memory at the first touch.
 */
#include "common.h"

#include <fcntl.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define LEN	MB(32)
#define NODE(n)	(1UL << (n))
#define BOTH	(NODE(0) | NODE(1))
/* As many as a kernel may be built for: it writes that many bits. */
#define MAX_NODES 1024UL

#ifndef MPOL_PREFERRED_MANY
#define MPOL_PREFERRED_MANY 5
#endif
#ifndef MPOL_WEIGHTED_INTERLEAVE
#define MPOL_WEIGHTED_INTERLEAVE 6
#endif
#define WEIGHT "/sys/kernel/mm/mempolicy/weighted_interleave/node"

static bool first_touch;

static long set_policy(int mode, unsigned long nodes)
{
	return syscall(SYS_set_mempolicy, mode, nodes ? &nodes : NULL, nodes ? 64UL : 0UL);
}

static long bind_range(void *addr, size_t len, int mode, unsigned long nodes, unsigned int flags)
{
	return syscall(SYS_mbind, addr, len, mode, nodes ? &nodes : NULL, nodes ? 64UL : 0UL, flags);
}

/* CPU n is one of node n. */
static void run_on(int node)
{
	cpu_set_t set;
	unsigned int cpu, at;

	CPU_ZERO(&set);
	CPU_SET(node, &set);
	CHECK_OK(sched_setaffinity(0, sizeof(set), &set));
	CHECK_OK(syscall(SYS_getcpu, &cpu, &at, NULL));
	CHECK_EQ(at, node);
}

/* The state each test starts from. */
static void start(void)
{
	CHECK_OK(set_policy(MPOL_DEFAULT, 0));
	run_on(0);
}

static int node_of(void *addr)
{
	int status = -1;

	CHECK_OK(syscall(SYS_move_pages, 0, 1UL, &addr, NULL, &status, 0));
	return status;
}

/* Aligned to 2 MB, as Linux interleaves by page size and offset. */
static char *map_aligned(size_t len)
{
	return map_flags(free_range(len), len, RW, ANON | MAP_FIXED_NOREPLACE);
}

static void touch(char *addr, size_t len)
{
	for (size_t off = 0; off < len; off += PAGE)
		((volatile char *)addr)[off] = 1;
}

/* Every page lies on one of the nodes; prints and checks how many MB on each. */
static void expect_mb(const char *what, char *addr, size_t len, size_t zero, size_t one)
{
	static void *pages[MB(64) / PAGE];
	static int status[MB(64) / PAGE];
	size_t nr = len / PAGE, on[2] = { 0, 0 };

	for (size_t i = 0; i < nr; i++)
		pages[i] = addr + i * PAGE;
	CHECK_OK(syscall(SYS_move_pages, 0, nr, pages, NULL, status, 0));
	for (size_t i = 0; i < nr; i++) {
		/* Hidden by Linux to see who uses it, or to make a large page. */
		for (int tries = 100; status[i] < 0 && !registered() && tries; tries--) {
			usleep(20000);
			(void)*(volatile char *)pages[i];
			status[i] = node_of(pages[i]);
		}
		if (status[i] != 0 && status[i] != 1)
			FAIL("%s: page %zu: status %d", what, i, status[i]);
		on[status[i]] += PAGE;
	}
	note("placed: %-44s %4zu %4zu MB", what, on[0] >> 20, on[1] >> 20);
	if (on[0] != MB(zero) || on[1] != MB(one))
		FAIL("%s: not %zu and %zu MB", what, zero, one);
}

static void expect_fresh(const char *what, size_t zero, size_t one)
{
	char *p = map_aligned(LEN);

	touch(p, LEN);
	expect_mb(what, p, LEN, zero, one);
	if (!first_touch)
		CHECK_TOUCH(p, LEN);
	unmap(p, LEN);
}

/* ---- The policy of the thread -------------------------------------------- */

static void local_by_default(void)
{
	start();
	expect_fresh("default, CPU 0", 32, 0);
	run_on(1);
	expect_fresh("default, CPU 1", 0, 32);
}

static void policies_of_the_thread(void)
{
	start();
	CHECK_OK(set_policy(MPOL_BIND, NODE(1)));
	expect_fresh("set_mempolicy bind 1, CPU 0", 0, 32);
	CHECK_OK(set_policy(MPOL_BIND, BOTH));
	expect_fresh("set_mempolicy bind 0-1, CPU 0", 32, 0);
	CHECK_OK(set_policy(MPOL_BIND | MPOL_F_STATIC_NODES, NODE(1)));
	expect_fresh("set_mempolicy bind static 1, CPU 0", 0, 32);
	CHECK_OK(set_policy(MPOL_BIND | MPOL_F_RELATIVE_NODES, NODE(3)));
	expect_fresh("set_mempolicy bind relative 3, CPU 0", 0, 32);
	CHECK_OK(set_policy(MPOL_PREFERRED, NODE(1)));
	expect_fresh("set_mempolicy preferred 1, CPU 0", 0, 32);
	CHECK_OK(set_policy(MPOL_PREFERRED_MANY, NODE(1)));
	expect_fresh("set_mempolicy preferred-many 1, CPU 0", 0, 32);
	run_on(1);
	CHECK_OK(set_policy(MPOL_LOCAL, 0));
	expect_fresh("set_mempolicy local, CPU 1", 0, 32);
	CHECK_OK(set_policy(MPOL_PREFERRED, NODE(0)));
	expect_fresh("set_mempolicy preferred 0, CPU 1", 32, 0);
}

/* Registered, the slots take turns by their number. */
static void check_turns(char *p, size_t len)
{
	if (!registered())
		return;
	for (size_t off = 0; off < len; off += SLOT)
		CHECK_EQ(node_of(p + off), ((uintptr_t)p + off) / SLOT % 2);
}

static void interleaving(void)
{
	char *p;

	start();
	CHECK_OK(set_policy(MPOL_INTERLEAVE, BOTH));
	expect_fresh("set_mempolicy interleave 0-1", 16, 16);
	p = map_aligned(LEN);
	touch(p, LEN);
	check_turns(p, LEN);
	unmap(p, LEN);
	CHECK_OK(set_policy(MPOL_INTERLEAVE, NODE(1)));
	expect_fresh("set_mempolicy interleave 1", 0, 32);
}

static void weigh(const char *node, const char *weight)
{
	char path[96];
	int fd;

	snprintf(path, sizeof(path), WEIGHT "%s", node);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	CHECK_OK(fd);
	CHECK_EQ(write(fd, weight, strlen(weight)), strlen(weight));
	close(fd);
}

static void weighted_interleaving(void)
{
	start();
	if (access(WEIGHT "0", F_OK) != 0)
		SKIP("this kernel has no weighted interleaving");
	CHECK_OK(set_policy(MPOL_WEIGHTED_INTERLEAVE, BOTH));
	expect_fresh("weighted interleave 1:1", 16, 16);
	weigh("0", "3");
	weigh("1", "1");
	expect_fresh("weighted interleave 3:1", 24, 8);
	weigh("0", "1");
}

/* ---- The policy of a mapping --------------------------------------------- */

static void bound_before_touch(const char *what, int mode, unsigned long nodes, unsigned int flags,
			       size_t zero, size_t one)
{
	char *p = map_aligned(LEN);

	CHECK_OK(bind_range(p, LEN, mode, nodes, flags));
	touch(p, LEN);
	expect_mb(what, p, LEN, zero, one);
	if (mode == MPOL_INTERLEAVE)
		check_turns(p, LEN);
	if (!first_touch)
		check_2m(p, LEN);
	unmap(p, LEN);
}

static void mbind_before_touch(void)
{
	start();
	bound_before_touch("mbind bind 1", MPOL_BIND, NODE(1), 0, 0, 32);
	bound_before_touch("mbind bind 1 strict", MPOL_BIND, NODE(1), MPOL_MF_STRICT, 0, 32);
	bound_before_touch("mbind preferred 1", MPOL_PREFERRED, NODE(1), 0, 0, 32);
	bound_before_touch("mbind interleave 0-1", MPOL_INTERLEAVE, BOTH, 0, 16, 16);
	CHECK_OK(set_policy(MPOL_BIND, NODE(1)));
	bound_before_touch("mbind local, thread bound to 1, CPU 0", MPOL_LOCAL, 0, 0, 32, 0);
	bound_before_touch("mbind bind 0, thread bound to 1", MPOL_BIND, NODE(0), 0, 32, 0);
}

static void mbind_moves_contents(void)
{
	char *p;

	start();
	p = map_aligned(LEN);
	fill(p, LEN, 3);
	expect_mb("written on CPU 0", p, LEN, 32, 0);
	CHECK_OK(bind_range(p, LEN, MPOL_BIND, NODE(1), MPOL_MF_MOVE | MPOL_MF_STRICT));
	verify(p, LEN, 3, 0);
	expect_mb("mbind bind 1 move", p, LEN, 0, 32);
	CHECK_TOUCH(p, LEN);
	CHECK_OK(bind_range(p, LEN, MPOL_BIND, NODE(0), MPOL_MF_MOVE_ALL));
	verify(p, LEN, 3, 0);
	expect_mb("mbind bind 0 move-all", p, LEN, 32, 0);
	CHECK_OK(bind_range(p, LEN / 2, MPOL_BIND, NODE(1), MPOL_MF_MOVE));
	verify(p, LEN, 3, 0);
	expect_mb("mbind bind 1 move, half", p, LEN, 16, 16);
	CHECK_OK(bind_range(p, LEN, MPOL_DEFAULT, 0, 0));
	expect_mb("mbind default stays", p, LEN, 16, 16);
	verify(p, LEN, 3, 0);
	CHECK_TOUCH(p, LEN);
	check_2m(p, LEN);
	unmap(p, LEN);
}

static void expect_bound(char *addr, size_t len)
{
	for (size_t off = 0; off < len; off += MB(4)) {
		unsigned long nodes[MAX_NODES / 64] = { 0 };
		int mode = -1;

		CHECK_OK(syscall(SYS_get_mempolicy, &mode, nodes, MAX_NODES, addr + off,
				 MPOL_F_ADDR));
		CHECK_EQ(mode, MPOL_BIND);
		CHECK_EQ(nodes[0], NODE(1));
	}
}

static size_t pool_free_mb(int node);

/* What a thread's policy of the moment wants, whoever else is in the slot. */
static void small_mappings_of_other_policies(void)
{
	static const struct {
		int mode;
		unsigned long nodes;
		int on;
	} cases[] = {
		{ MPOL_BIND, NODE(0), 0 },	{ MPOL_BIND, NODE(1), 1 },
		{ MPOL_DEFAULT, 0, 0 },		{ MPOL_PREFERRED, NODE(1), 1 },
		{ MPOL_BIND, BOTH, 0 },		{ MPOL_LOCAL, 0, 0 },
		{ MPOL_INTERLEAVE, NODE(1), 1 },
	};
	enum { NR = sizeof(cases) / sizeof(cases[0]), ROUNDS = 12 };
	static char *p[ROUNDS][NR];
	const size_t len = 16 << 10;
	size_t before = 0;

	start();
	if (registered())
		before = pool_free_mb(0) + pool_free_mb(1);
	for (int i = 0; i < ROUNDS; i++)
		for (int k = 0; k < NR; k++) {
			CHECK_OK(set_policy(cases[k].mode, cases[k].nodes));
			p[i][k] = map_anon(len);
			fill(p[i][k], len, (uint64_t)(i * NR + k));
			CHECK_EQ(node_of(p[i][k]), cases[k].on);
		}
	CHECK_OK(set_policy(MPOL_DEFAULT, 0));
	/* Not a block each. */
	if (registered())
		CHECK(before - pool_free_mb(0) - pool_free_mb(1) <= 16);
	for (int i = 0; i < ROUNDS; i++)
		for (int k = 0; k < NR; k++) {
			CHECK_EQ(node_of(p[i][k]), cases[k].on);
			verify(p[i][k], len, (uint64_t)(i * NR + k), 0);
			unmap(p[i][k], len);
		}
}

/* One that may grow, behind memory of another node in the same slot. */
static void growing_mapping_of_another_policy(void)
{
	const size_t len = 16 * PAGE;
	char *p = free_range(SLOT);

	start();
	map_flags(p, PAGE, RW, ANON | MAP_FIXED_NOREPLACE);
	touch(p, PAGE);
	CHECK_EQ(node_of(p), 0);
	CHECK_OK(set_policy(MPOL_BIND, NODE(1)));
	map_flags(p + SLOT / 2, len, RW, ANON | MAP_GROWSDOWN | MAP_FIXED_NOREPLACE);
	touch(p + SLOT / 2, len);
	for (size_t off = 0; off < len; off += PAGE)
		CHECK_EQ(node_of(p + SLOT / 2 + off), 1);
	CHECK_OK(set_policy(MPOL_DEFAULT, 0));
	CHECK_EQ(node_of(p), 0);
	unmap(p, PAGE);
	unmap(p + SLOT / 2, len);
}

/* Of one slot: each part is where it is bound to, and stays there. */
static void parts_bound_to_other_nodes(void)
{
	const size_t half = 512 << 10;
	char *base = free_range(2 * SLOT), *p = base, *q;

	start();
	map_flags(p, 2 * half, RW, ANON | MAP_FIXED_NOREPLACE);
	fill(p, 2 * half, 16);
	CHECK_OK(bind_range(p, half, MPOL_BIND, NODE(0), MPOL_MF_MOVE | MPOL_MF_STRICT));
	CHECK_OK(bind_range(p + half, half, MPOL_BIND, NODE(1), MPOL_MF_MOVE | MPOL_MF_STRICT));
	CHECK_EQ(node_of(p), 0);
	CHECK_EQ(node_of(p + half), 1);
	expect_bound(p + half, half);
	verify(p, 2 * half, 16, 0);
	CHECK_OK(bind_range(p, half, MPOL_BIND, NODE(1), MPOL_MF_MOVE | MPOL_MF_STRICT));
	CHECK_OK(bind_range(p + half, half, MPOL_BIND, NODE(0), MPOL_MF_MOVE | MPOL_MF_STRICT));
	CHECK_EQ(node_of(p), 1);
	CHECK_EQ(node_of(p + half), 0);
	verify(p, 2 * half, 16, 0);
	unmap(p, 2 * half);

	/* Before the touch, without flags; then a neighbour is mapped. */
	map_flags(p, half, RW, ANON | MAP_FIXED_NOREPLACE);
	map_flags(p + half, half, RW, ANON | MAP_FIXED_NOREPLACE);
	CHECK_OK(bind_range(p + half, half, MPOL_BIND, NODE(1), 0));
	fill(p, 2 * half, 17);
	CHECK_EQ(node_of(p), 0);
	CHECK_EQ(node_of(p + half), 1);
	verify(p, 2 * half, 17, 0);
	unmap(p, 2 * half);

	/* One that grows beside others, or moves to them. */
	map_flags(p, half, RW, ANON | MAP_FIXED_NOREPLACE);
	touch(p, half);
	q = map_flags(base + SLOT, half, RW, ANON | MAP_FIXED_NOREPLACE);
	CHECK_OK(bind_range(q, half, MPOL_BIND, NODE(1), 0));
	fill(q, half, 18);
	map_flags(q + half, PAGE, RW, ANON | MAP_FIXED_NOREPLACE);
	q = mremap(q, half, 2 * half, MREMAP_MAYMOVE);
	CHECK_OK(q);
	touch(q + half, half);
	CHECK_EQ(node_of(p), 0);
	CHECK_EQ(node_of(q), 1);
	CHECK_EQ(node_of(q + half), 1);
	verify(q, half, 18, 0);
	unmap(q, 2 * half);
	unmap(base + SLOT + half, PAGE);
	unmap(p, half);
}

static void expect_default(char *addr)
{
	unsigned long nodes[MAX_NODES / 64] = { 0 };
	int mode = -1;

	CHECK_OK(syscall(SYS_get_mempolicy, &mode, nodes, MAX_NODES, addr, MPOL_F_ADDR));
	CHECK_EQ(mode, MPOL_DEFAULT);
}

/* MPOL_MF_STRICT, with and without being told to move. */
static void what_strict_answers(void)
{
	int fds[2];
	pid_t pid;
	char *p, c;

	start();
	p = map_aligned(LEN);
	CHECK_OK(bind_range(p, LEN, MPOL_BIND, NODE(1), MPOL_MF_STRICT));
	CHECK_OK(bind_range(p, LEN, MPOL_DEFAULT, 0, 0));
	unmap(p, LEN);

	p = map_aligned(LEN);
	/* The last part was touched, and that on node 0. */
	fill(p + LEN - PAGE, PAGE, 19);
	CHECK_ERR(bind_range(p, LEN, MPOL_BIND, NODE(1), MPOL_MF_STRICT), EIO);
	CHECK_ERR(bind_range(p, LEN, MPOL_INTERLEAVE, NODE(1), MPOL_MF_STRICT), EIO);
	CHECK_ERR(bind_range(p, LEN, MPOL_PREFERRED, NODE(1), MPOL_MF_STRICT), EIO);
	CHECK_ERR(bind_range(p, LEN, MPOL_LOCAL, 0, MPOL_MF_STRICT), EIO);
	CHECK_ERR(bind_range(p, LEN, MPOL_BIND, 0, MPOL_MF_STRICT), EINVAL);
	CHECK_ERR(bind_range(p, LEN, MPOL_BIND, NODE(5), MPOL_MF_STRICT), EINVAL);
	CHECK_ERR(bind_range(p, LEN, 77, NODE(1), MPOL_MF_STRICT), EINVAL);
	expect_default(p);
	CHECK_EQ(node_of(p + LEN - PAGE), 0);
	CHECK_OK(bind_range(p, LEN - SLOT, MPOL_BIND, NODE(1), MPOL_MF_STRICT));
	CHECK_OK(bind_range(p, LEN, MPOL_DEFAULT, 0, MPOL_MF_STRICT));
	CHECK_OK(bind_range(p + LEN - SLOT, SLOT, MPOL_BIND, NODE(0), MPOL_MF_STRICT));
	CHECK_OK(bind_range(p + LEN - SLOT, SLOT, MPOL_INTERLEAVE, BOTH, MPOL_MF_STRICT));
	CHECK_OK(bind_range(p + LEN - SLOT, SLOT, MPOL_INTERLEAVE, BOTH,
			    MPOL_MF_STRICT | MPOL_MF_MOVE));
	CHECK_OK(bind_range(p, LEN, MPOL_BIND, NODE(0), MPOL_MF_MOVE | MPOL_MF_STRICT));
	verify(p + LEN - PAGE, PAGE, 19, 0);
	unmap(p, LEN);

	/* Shared with a child: only MPOL_MF_MOVE_ALL moves it, and that is no failure. */
	p = map_aligned(LEN);
	fill(p, LEN, 20);
	CHECK_OK(pipe(fds));
	pid = fork_child();
	if (pid == 0) {
		close(fds[1]);
		CHECK_EQ(read(fds[0], &c, 1), 0);
		verify(p, LEN, 20, 0);
		_exit(0);
	}
	CHECK_ERR(bind_range(p, LEN, MPOL_BIND, NODE(1), MPOL_MF_STRICT), EIO);
	CHECK_OK(bind_range(p, LEN, MPOL_BIND, NODE(1), MPOL_MF_MOVE | MPOL_MF_STRICT));
	CHECK_OK(bind_range(p, LEN, MPOL_BIND, NODE(1), MPOL_MF_MOVE_ALL | MPOL_MF_STRICT));
	verify(p, LEN, 20, 0);
	expect_mb("shared with a child, mbind bind 1 move-all", p, LEN, 0, 32);
	close(fds[0]);
	close(fds[1]);
	expect_success(pid);
	verify(p, LEN, 20, 0);
	unmap(p, LEN);
}

/* Memory of HPMMAP is there before it is bound: mbind places it whatever its flags. */
static void mbind_of_what_was_touched(void)
{
	char *p;

	start();
	p = map_aligned(LEN);
	fill(p, LEN, 4);
	CHECK_ERR(bind_range(p, LEN, MPOL_BIND, NODE(1), MPOL_MF_STRICT), EIO);
	CHECK_OK(bind_range(p, LEN, MPOL_BIND, NODE(1), 0));
	expect_mb("mbind bind 1 after touch", p, LEN, registered() ? 0 : 32,
		  registered() ? 32 : 0);
	verify(p, LEN, 4, 0);
	unmap(p, LEN);
}

static void committed_later(void)
{
	char *p;

	start();
	p = map_flags(NULL, LEN, PROT_NONE, ANON);
	CHECK_OK(bind_range(p, LEN, MPOL_BIND, NODE(1), 0));
	CHECK_OK(mprotect(p, LEN, RW));
	touch(p, LEN);
	expect_mb("mbind bind 1, then mprotect", p, LEN, 0, 32);
	CHECK_OK(madvise(p, LEN, MADV_DONTNEED));
	verify_zero(p, LEN);
	touch(p, LEN);
	expect_mb("the same after MADV_DONTNEED", p, LEN, 0, 32);
	unmap(p, LEN);

	p = map_flags(free_range(LEN), LEN, RW, ANON | MAP_NORESERVE | MAP_FIXED_NOREPLACE);
	CHECK_OK(bind_range(p, LEN, MPOL_INTERLEAVE, BOTH, 0));
	touch(p, LEN);
	expect_mb("MAP_NORESERVE, mbind interleave 0-1", p, LEN, 16, 16);
	check_turns(p, LEN);
	unmap(p, LEN);
}

static void parts_of_a_slot(void)
{
	char *base = free_range(MB(8));
	char *p = map_flags(base, MB(8), RW, ANON | MAP_FIXED_NOREPLACE);

	start();
	fill(p, MB(8), 5);
	/* Each bound range has a slot of its own, and parts of others. */
	CHECK_OK(bind_range(p + MB(1), MB(4), MPOL_BIND, NODE(1), MPOL_MF_MOVE));
	verify(p, MB(8), 5, 0);
	CHECK_EQ(node_of(p + MB(2)), 1);
	CHECK_EQ(node_of(p + MB(6)), 0);
	CHECK_OK(mprotect(p + MB(3), PAGE, PROT_READ));
	CHECK_OK(mprotect(p + MB(3), PAGE, RW));
	CHECK_OK(bind_range(p + MB(3), PAGE, MPOL_BIND, NODE(1), 0));
	verify(p, MB(8), 5, 0);
	/* The other parts are Linux's, which looks at who uses them. */
	CHECK_TOUCH(p + MB(2), MB(2));
	CHECK_TOUCH(p + MB(6), MB(2));
	CHECK_ERR(bind_range(p + 1, MB(1), MPOL_BIND, NODE(1), 0), EINVAL);
	CHECK_ERR(bind_range(p, MB(1), MPOL_BIND, 0, 0), EINVAL);
	CHECK_ERR(bind_range(p, MB(1), MPOL_BIND, NODE(5), 0), EINVAL);
	CHECK_ERR(bind_range(p, MB(1), MPOL_BIND, NODE(1), 1U << 20), EINVAL);
	unmap(p + MB(2), MB(2));
	CHECK_ERR(bind_range(p, MB(8), MPOL_BIND, NODE(1), 0), EFAULT);
	verify(p, MB(2), 5, 0);
	unmap(p, MB(8));
}

static void mixed_with_a_file(void)
{
	char *base = free_range(MB(6));
	int fd = memfd_create("numa_place", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	start();
	CHECK_OK(fd);
	CHECK_OK(ftruncate(fd, (off_t)MB(2)));
	map_flags(base, MB(6), RW, ANON | MAP_FIXED_NOREPLACE);
	CHECK_OK(mmap(base + MB(2), MB(2), RW, MAP_SHARED | MAP_FIXED, fd, 0));
	fill(base, MB(6), 6);
	expect_mb("around a file", base, MB(6), 6, 0);
	CHECK_OK(bind_range(base, MB(6), MPOL_BIND, NODE(1), MPOL_MF_MOVE | MPOL_MF_STRICT));
	verify(base, MB(6), 6, 0);
	expect_mb("around a file, mbind bind 1 move", base, MB(6), 0, 6);
	close(fd);
	unmap(base, MB(6));
}

/* What a pipe refers to stays where it is. */
static void pinned_memory_stays(void)
{
	struct iovec iov;
	char got[PAGE];
	int fds[2];
	char *p;

	start();
	p = map_aligned(MB(4));
	fill(p, MB(4), 7);
	CHECK_OK(pipe(fds));
	iov = (struct iovec){ .iov_base = p + MB(1), .iov_len = PAGE };
	CHECK_EQ(vmsplice(fds[1], &iov, 1, 0), PAGE);
	CHECK_ERR(bind_range(p, MB(4), MPOL_BIND, NODE(1), MPOL_MF_MOVE | MPOL_MF_STRICT), EIO);
	verify(p, MB(4), 7, 0);
	CHECK_EQ(node_of(p + MB(1)), 0);
	CHECK_EQ(node_of(p + MB(3)), 1);
	CHECK_EQ(read(fds[0], got, PAGE), PAGE);
	CHECK_EQ(memcmp(got, p + MB(1), PAGE), 0);
	CHECK_OK(bind_range(p, MB(4), MPOL_BIND, NODE(1), MPOL_MF_MOVE | MPOL_MF_STRICT));
	CHECK_EQ(node_of(p + MB(1)), 1);
	verify(p, MB(4), 7, 0);
	CHECK_TOUCH(p, MB(4));
	close(fds[0]);
	close(fds[1]);
	unmap(p, MB(4));
}

static void policy_over_mremap(void)
{
	char *base = free_range(4 * LEN), *p, *q;

	start();
	p = map_flags(base, LEN, RW, ANON | MAP_FIXED_NOREPLACE);
	CHECK_OK(bind_range(p, LEN, MPOL_BIND, NODE(1), 0));
	fill(p, LEN, 13);
	/* Twice: what was grown is one mapping again. */
	CHECK(mremap(p, LEN, LEN + MB(8), 0) == p);
	CHECK(mremap(p, LEN + MB(8), LEN + MB(16), 0) == p);
	touch(p + LEN, MB(16));
	expect_mb("bound to 1, grown in place", p, LEN + MB(16), 0, 48);
	expect_bound(p, LEN + MB(16));
	map_flags(p + LEN + MB(16), PAGE, PROT_NONE, ANON | MAP_FIXED_NOREPLACE);
	q = mremap(p, LEN + MB(16), LEN + MB(32), MREMAP_MAYMOVE);
	CHECK_OK(q);
	CHECK(q != p);
	verify(q, LEN, 13, 0);
	touch(q + LEN, MB(32));
	expect_mb("bound to 1, moved and grown", q, LEN + MB(32), 0, 64);
	expect_bound(q, LEN + MB(32));
	if (!first_touch)
		CHECK_TOUCH(q, LEN + MB(32));
	unmap(p + LEN + MB(16), PAGE);
	unmap(q, LEN + MB(32));
}

/* ---- Questions ----------------------------------------------------------- */

static void what_the_kernel_answers(void)
{
	char line[1024], *p, *found = NULL;
	unsigned long nodes[MAX_NODES / 64] = { 0 };
	int mode = -1;
	FILE *f;

	start();
	p = map_aligned(MB(4));
	touch(p, MB(4));
	CHECK_OK(syscall(SYS_get_mempolicy, &mode, nodes, MAX_NODES, p, MPOL_F_ADDR));
	CHECK_EQ(mode, MPOL_DEFAULT);
	CHECK_OK(bind_range(p, MB(4), MPOL_BIND, NODE(1), MPOL_MF_MOVE));
	CHECK_OK(syscall(SYS_get_mempolicy, &mode, nodes, MAX_NODES, p, MPOL_F_ADDR));
	CHECK_EQ(mode, MPOL_BIND);
	CHECK_EQ(nodes[0], NODE(1));
	CHECK_OK(syscall(SYS_get_mempolicy, &mode, NULL, 0UL, p, MPOL_F_ADDR | MPOL_F_NODE));
	CHECK_EQ(mode, 1);
	f = fopen("/proc/self/numa_maps", "re");
	CHECK(f != NULL);
	while (!found && fgets(line, sizeof(line), f))
		if (strtoul(line, NULL, 16) == (uintptr_t)p)
			found = line;
	fclose(f);
	CHECK(found != NULL);
	note("%s", found);
	CHECK(strstr(found, " bind:1 ") != NULL);
	CHECK(strstr(found, " N1=1024 ") != NULL || strstr(found, " N1=2 ") != NULL);
	CHECK(strstr(found, " N0=") == NULL);
	unmap(p, MB(4));
}

/* move_pages(2) and migrate_pages(2) say so, and leave pool memory where it lies. */
static void moving_by_page(void)
{
	enum { NR = MB(4) / PAGE };
	static int node[NR], status[NR];
	static void *page[NR];
	unsigned long zero = NODE(0), one = NODE(1);
	char *p;

	if (!registered())
		SKIP("Linux moves its pages");
	start();
	p = map_aligned(MB(4));
	fill(p, MB(4), 8);
	for (size_t i = 0; i < NR; i++) {
		page[i] = p + i * PAGE;
		node[i] = 1;
		status[i] = 12345;
	}
	CHECK_OK(syscall(SYS_move_pages, 0, (unsigned long)NR, page, node, status, MPOL_MF_MOVE));
	for (size_t i = 0; i < NR; i++)
		CHECK_EQ(status[i], -EFAULT);
	expect_mb("after move_pages to 1", p, MB(4), 4, 0);
	node[0] = 5;
	CHECK_ERR(syscall(SYS_move_pages, 0, 1UL, page, node, status, MPOL_MF_MOVE), ENODEV);
	CHECK_ERR(syscall(SYS_move_pages, 0, 1UL, page, node, status, 1U << 20), EINVAL);
	CHECK_OK(syscall(SYS_migrate_pages, 0, 64UL, &zero, &one));
	verify(p, MB(4), 8, 0);
	expect_mb("after migrate_pages from 0 to 1", p, MB(4), 4, 0);
	unmap(p, MB(4));
	CHECK_EQ(node_of(p), -EFAULT);
}

/* ---- Processes and threads ------------------------------------------------ */

static void child_inherits(void *arg)
{
	char *p = arg;

	verify(p, LEN, 9, 0);
	expect_fresh("child of a thread bound to 1", 0, 32);
}

static void policy_over_fork(void)
{
	char *p;

	start();
	p = map_aligned(LEN);
	fill(p, LEN, 9);
	CHECK_OK(set_policy(MPOL_BIND, NODE(1)));
	in_child(child_inherits, p);
	CHECK_OK(set_policy(MPOL_DEFAULT, 0));
	unmap(p, LEN);
}

struct writes {
	char *at;
	char *stays;
	int on;
};

static void child_writes(void *arg)
{
	struct writes *w = arg;

	*w->at = 2;
	CHECK_EQ(node_of(w->stays), w->on);
}

/*
 * A write to one of two mappings in a slot, by the child and by the parent while
 * there is a child, leaves the other where it is.
 */
static void expect_stays(char *at, char *stays, int on)
{
	struct writes w = { at, stays, on };
	int fds[2];
	pid_t pid;
	char c;

	in_child(child_writes, &w);
	CHECK_EQ(node_of(stays), on);
	CHECK_OK(pipe(fds));
	pid = fork();
	CHECK_OK(pid);
	if (pid == 0) {
		close(fds[1]);
		_exit(read(fds[0], &c, 1) != 0);
	}
	*at = 3;
	CHECK_EQ(node_of(stays), on);
	close(fds[1]);
	CHECK_EQ(wait_child(pid), 0);
	close(fds[0]);
}

static void copies_stay_with_what_is_bound(void)
{
	const size_t half = 64 << 10;
	char *p;

	start();
	p = map_flags(free_range(SLOT), 2 * half, RW, ANON | MAP_FIXED_NOREPLACE);
	CHECK_OK(bind_range(p, half, MPOL_BIND, NODE(1), 0));
	fill(p, half, 14);
	CHECK_EQ(node_of(p), 1);
	expect_stays(p + half, p, 1);
	verify(p, half, 14, 0);
	expect_bound(p, half);
	unmap(p, 2 * half);

	/* By a policy of the thread that has changed since. */
	CHECK_OK(set_policy(MPOL_BIND, NODE(1)));
	p = map_flags(free_range(SLOT), half, RW, ANON | MAP_FIXED_NOREPLACE);
	fill(p, half, 15);
	CHECK_OK(set_policy(MPOL_DEFAULT, 0));
	map_flags(p + 2 * half, half, RW, ANON | MAP_FIXED_NOREPLACE);
	expect_stays(p + 2 * half, p, 1);
	verify(p, half, 15, 0);
	unmap(p, half);
	unmap(p + 2 * half, half);
}

/* The policy of who writes to it first from outside, a debugger say, counts on Linux only. */
static void others_do_not_place(void)
{
	char *p = map_flags(free_range(SLOT), SLOT, RW, ANON | MAP_NORESERVE | MAP_FIXED_NOREPLACE);
	char from = 5, c = 0;
	struct iovec local = { &from, 1 }, remote = { p, 1 };
	int want, fds[2];
	pid_t pid;

	start();
	want = registered() ? 0 : 1;
	CHECK_OK(pipe(fds));
	pid = fork_child();
	if (pid == 0) {
		CHECK_EQ(read(fds[0], &c, 1), 1);
		CHECK_EQ(*p, 5);
		CHECK_EQ(node_of(p), want);
		_exit(0);
	}
	CHECK_OK(set_policy(MPOL_BIND, NODE(1)));
	CHECK_EQ(process_vm_writev(pid, &local, 1, &remote, 1, 0), 1);
	CHECK_OK(set_policy(MPOL_DEFAULT, 0));
	CHECK_EQ(write(fds[1], &c, 1), 1);
	expect_success(pid);
	close(fds[0]);
	close(fds[1]);
	unmap(p, SLOT);
}

static void *bind_to_one(void *arg)
{
	char **p = arg;

	CHECK_OK(set_policy(MPOL_BIND, NODE(1)));
	*p = map_aligned(LEN);
	touch(*p, LEN);
	return NULL;
}

static void policy_is_of_one_thread(void)
{
	char *p;

	start();
	join_thread(start_thread(bind_to_one, &p));
	expect_mb("thread bound to 1", p, LEN, 0, 32);
	expect_fresh("its creator, CPU 0", 32, 0);
	unmap(p, LEN);
}

struct half {
	char *addr;
	int node;
};

static void *touch_half(void *arg)
{
	struct half *half = arg;

	run_on(half->node);
	for (size_t off = 0; off < LEN / 2; off += PAGE)
		CHECK_EQ(half->addr[off], 0);
	fill(half->addr, LEN / 2, 10 + (uint64_t)half->node);
	return NULL;
}

/* One thread maps, two initialise: Linux's first touch, HPMMAP's if it was asked for. */
static void parallel_initialisation(void)
{
	struct half half[2];
	pthread_t thread[2];
	char *p;

	start();
	p = map_aligned(LEN);
	for (int i = 0; i < 2; i++) {
		half[i] = (struct half){ p + (size_t)i * LEN / 2, i };
		thread[i] = start_thread(touch_half, &half[i]);
	}
	for (int i = 0; i < 2; i++)
		join_thread(thread[i]);
	verify(p, LEN / 2, 10, 0);
	verify(p + LEN / 2, LEN / 2, 11, 0);
	if (registered() && !first_touch)
		expect_mb("touched by threads on CPU 0 and 1", p, LEN, 32, 0);
	else
		expect_mb("touched by threads on CPU 0 and 1", p, LEN, 16, 16);
	unmap(p, LEN);
}

static void one_fault_a_block(void)
{
	char *p;

	if (!first_touch)
		SKIP("for jobs that place memory at its first touch");
	start();
	p = map_aligned(LEN);
	watch_begin();
	touch(p, LEN);
	watch_end();
	if (watch_available())
		CHECK_EQ(watch_user_faults(p, LEN), LEN / SLOT);
	check_2m(p, LEN);
	CHECK_OK(madvise(p, LEN, MADV_DONTNEED));
	verify_zero(p, LEN);
	unmap(p, LEN);

	p = map_flags(NULL, LEN, RW, ANON | MAP_POPULATE);
	CHECK_TOUCH(p, LEN);
	check_2m(p, LEN);
	unmap(p, LEN);

	p = map_flags(NULL, LEN, RW, ANON | MAP_LOCKED);
	CHECK_TOUCH(p, LEN);
	unmap(p, LEN);

	/* Untouched memory is nobody's to lose. */
	p = map_aligned(LEN);
	CHECK_OK(madvise(p, LEN, MADV_DONTNEED));
	CHECK_OK(mprotect(p + MB(4), MB(2), PROT_READ));
	CHECK_OK(mprotect(p + MB(9), PAGE, PROT_NONE));
	CHECK_OK(mprotect(p, LEN, RW));
	p = mremap(p, LEN, 2 * LEN, MREMAP_MAYMOVE);
	CHECK_OK(p);
	run_on(1);
	touch(p, MB(4));
	CHECK_EQ(node_of(p), 1);
	verify_zero(p + MB(4), 2 * LEN - MB(4));
	unmap(p, 2 * LEN);
}

/* ---- Nothing left on a node ------------------------------------------------ */

/* Free memory of the pool of a node, in MB. */
static size_t pool_free_mb(int node)
{
	char path[64];
	unsigned long long bytes;
	FILE *f;

	snprintf(path, sizeof(path), HPMMAP_SYSFS_PATH "/nodes/node%d/free_bytes", node);
	f = fopen(path, "re");
	CHECK(f != NULL);
	CHECK_EQ(fscanf(f, "%llu", &bytes), 1);
	fclose(f);
	return (size_t)(bytes >> 20);
}

static void a_bound_node_is_used_up(void)
{
	const char *policy = getenv("HPMMAP_TEST_POLICY");
	bool strict = policy && strcmp(policy, "strict") == 0;
	size_t free_one;
	char *p, *q;

	skip_unless_registered();
	start();
	free_one = pool_free_mb(1);
	CHECK_OK(set_policy(MPOL_BIND, NODE(1)));
	if (strict) {
		CHECK_ERR(mmap(NULL, MB(free_one + 2), RW, ANON, -1, 0), ENOMEM);
		p = map_anon(MB(free_one));
		CHECK_EQ(pool_free_mb(1), 0);
		CHECK_ERR(mmap(NULL, MB(2), RW, ANON, -1, 0), ENOMEM);
	} else {
		p = map_anon(MB(free_one));
		CHECK_EQ(pool_free_mb(1), 0);
		expect_fresh("bind 1, its pool used up, fallback", 0, 32);
	}
	/* At its first touch, memory may be exchanged for untouched memory. */
	if (!first_touch) {
		CHECK_OK(set_policy(MPOL_PREFERRED, NODE(1)));
		expect_fresh("preferred 1, its pool used up", 32, 0);
		CHECK_OK(set_policy(MPOL_INTERLEAVE, BOTH));
		expect_fresh("interleave 0-1, the pool of 1 used up", 32, 0);
	}
	CHECK_OK(set_policy(MPOL_DEFAULT, 0));
	/* Nowhere to move to. */
	q = map_aligned(MB(4));
	fill(q, MB(4), 12);
	if (strict) {
		CHECK_ERR(bind_range(q, MB(4), MPOL_BIND, NODE(1), MPOL_MF_MOVE | MPOL_MF_STRICT),
			  EIO);
		CHECK_OK(bind_range(q, MB(4), MPOL_BIND, NODE(1), 0));
	} else {
		CHECK_OK(bind_range(q, MB(4), MPOL_BIND, NODE(1), MPOL_MF_MOVE | MPOL_MF_STRICT));
	}
	verify(q, MB(4), 12, 0);
	expect_mb("mbind bind 1, its pool used up", q, MB(4), strict ? 4 : 0, strict ? 0 : 4);
	unmap(q, MB(4));
	/* Not touched yet: then it must not be elsewhere. */
	q = map_aligned(MB(4));
	if (first_touch) {
		CHECK_OK(bind_range(q, MB(4), MPOL_BIND, NODE(1), 0));
	} else if (strict) {
		CHECK_ERR(bind_range(q, MB(4), MPOL_BIND, NODE(1), 0), ENOMEM);
	} else {
		CHECK_OK(bind_range(q, MB(4), MPOL_BIND, NODE(1), 0));
		touch(q, MB(4));
		expect_mb("mbind bind 1 before touch, used up", q, MB(4), 0, 4);
	}
	unmap(q, MB(4));
	unmap(p, MB(free_one));
}

struct share {
	char *addr;
	size_t len;
	int node;
};

static void *touch_share(void *arg)
{
	struct share *share = arg;

	run_on(share->node);
	touch(share->addr, share->len);
	return NULL;
}

/* The whole of both pools in one mapping: blocks change places, none fails. */
static void first_touch_of_everything(void)
{
	const size_t spare = MB(16);
	struct share share[2];
	size_t zero, one, len;
	int count[2] = { 0, 0 };
	char *p;

	if (!first_touch)
		SKIP("for jobs that place memory at its first touch");
	start();
	zero = MB(pool_free_mb(0));
	one = MB(pool_free_mb(1));
	len = zero + one - spare;
	p = map_anon(len);
	CHECK(MB(pool_free_mb(0)) + MB(pool_free_mb(1)) <= spare);
	share[0] = (struct share){ p, zero - spare, 0 };
	share[1] = (struct share){ p + zero - spare, len - (zero - spare), 1 };
	for (int i = 1; i >= 0; i--)
		join_thread(start_thread(touch_share, &share[i]));
	for (size_t off = 0; off < len; off += SLOT)
		count[node_of(p + off) == (off >= zero - spare)]++;
	note("everything, %zu MB: %d blocks of node 1 first, %d where they were touched, %d not",
	     len >> 20, (int)(share[1].len / SLOT), count[1], count[0]);
	/* Thread stacks and what free memory the nodes have tip the scales. */
	CHECK((size_t)count[0] <= spare / SLOT);
	unmap(p, len);
}

int main(void)
{
	static const struct test tests[] = {
		T(local_by_default),
		T(policies_of_the_thread),
		T(interleaving),
		T(weighted_interleaving),
		T(mbind_before_touch),
		T(mbind_moves_contents),
		T(small_mappings_of_other_policies),
		T(growing_mapping_of_another_policy),
		T(parts_bound_to_other_nodes),
		T(what_strict_answers),
		T(mbind_of_what_was_touched),
		T(committed_later),
		T(parts_of_a_slot),
		T(mixed_with_a_file),
		T(pinned_memory_stays),
		T(policy_over_mremap),
		T(what_the_kernel_answers),
		T(moving_by_page),
		T(policy_over_fork),
		T(copies_stay_with_what_is_bound),
		T(others_do_not_place),
		T(policy_is_of_one_thread),
		T(parallel_initialisation),
		T(one_fault_a_block),
		T(a_bound_node_is_used_up),
		T(first_touch_of_everything),
	};

	first_touch = getenv("HPMMAP_TEST_FIRST_TOUCH") != NULL;
	return RUN_GROUP("numa_place", tests);
}
