// SPDX-License-Identifier: GPL-2.0
/* libhpmmap: windows, whole address spaces, and ranks of a job. */
#include "hpmmap_window.h"
#include "peer.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define AREA	MB(4)
#define RANKS	4
/* In no zone: windows lie there. */
#define NOWHERE	((void *)TB(17))

static int variable;
static uint64_t table[RANKS * 512];

/* ---- Roles ----------------------------------------------------------- */

static void publishes(int fd)
{
	char *p = map_anon(AREA);
	int64_t id;

	fill(p, AREA, 1);
	id = hpmmap_publish(p, AREA, (unsigned int)hear(fd));
	CHECK(id > 0);
	say(fd, (uint64_t)id);
	hear(fd);
	say(fd, (unsigned char)p[MB(1) + 5]);
	hear(fd);
	CHECK_EQ(hpmmap_unpublish(id), 0);
	CHECK_ERR(hpmmap_unpublish(id), ENOENT);
	say(fd, 0);
	hear(fd);
}

/* Says what its address space is, and where it has memory of all kinds; all of it is 1, and should become 2. */
static void has_all_kinds(int fd)
{
	char stack[PAGE];
	char *at[] = { map_anon(MB(64)), malloc(100), malloc(MB(1)), stack, (char *)&variable, sbrk(0) };
	struct hpmmap_space space;

	CHECK(sbrk(PAGE) == at[5]);
	CHECK_EQ(hpmmap_space_publish(&space), 0);
	CHECK_EQ(write(fd, &space, sizeof(space)), sizeof(space));
	for (size_t i = 0; i < ARRAY_SIZE(at); i++) {
		CHECK_EQ(hpmmap_space_has(&space, at[i], 1), 1);
		*(volatile char *)at[i] = 1;
		say(fd, (uintptr_t)at[i]);
	}
	hear(fd);
	for (size_t i = 0; i < ARRAY_SIZE(at); i++)
		CHECK_EQ(*(volatile char *)at[i], 2);
	say(fd, 0);
	hear(fd);
}

const struct role roles[] = {
	{ "publishes", publishes },
	{ "has_all_kinds", has_all_kinds },
	{ NULL, NULL },
};

/* ---- Windows ----------------------------------------------------------- */

static void published(void)
{
	struct peer peer;
	int64_t id;
	char *w, *v;

	need_xpmem();
	peer = peer_start("publishes");
	id = (int64_t)ask(&peer, 0600);
	w = hpmmap_attach(id, 0, AREA, 0);
	CHECK(w);
	verify(w, AREA, 1, 0);
	v = hpmmap_attach(id, MB(1), PAGE, HPMMAP_ATTACH_READONLY);
	CHECK(v);
	CHECK_WRITE_SEGV(v, SEGV_ACCERR);
	w[MB(1) + 5] = 77;
	CHECK_EQ(v[5], 77);
	CHECK_EQ(ask(&peer, 0), 77);
	CHECK_ERR(hpmmap_detach(w + PAGE), EINVAL);
	CHECK_EQ(hpmmap_detach(w), 0);
	CHECK_READ_SEGV(w, SEGV_MAPERR);
	CHECK_ERR(hpmmap_detach(w), EINVAL);
	CHECK_EQ(v[5], 77);
	errno = 0;
	CHECK(!hpmmap_attach(id, 0, AREA, 0x80) && errno == EINVAL);
	errno = 0;
	CHECK(!hpmmap_attach(id, AREA, PAGE, 0) && errno == EINVAL);
	ask(&peer, 0);
	CHECK_SIGBUS(v);
	errno = 0;
	CHECK(!hpmmap_attach(id, 0, AREA, 0) && errno == ENOENT);
	CHECK_EQ(hpmmap_detach(v), 0);
	say(peer.fd, 0);
	peer_end(&peer);
}
PAIR(published)

/* ---- Spaces ------------------------------------------------------------ */

static void all_kinds(void)
{
	struct hpmmap_space space, highest, wrong;
	struct hpmmap_peer *them;
	struct peer peer;
	uint64_t at[6];

	need_xpmem();
	peer = peer_start("has_all_kinds");
	CHECK_EQ(recv(peer.fd, &space, sizeof(space), MSG_WAITALL), sizeof(space));
	them = hpmmap_peer_attach(&space);
	if (!them)
		FAIL("hpmmap_peer_attach: %s", errno_name(errno));
	for (size_t i = 0; i < ARRAY_SIZE(at); i++) {
		char *p;

		at[i] = hear(peer.fd);
		p = hpmmap_peer_ptr(them, (void *)(uintptr_t)at[i]);
		CHECK(p);
		/* Congruent, so that entries of 2 MB can be made. */
		CHECK_EQ(((uintptr_t)p ^ at[i]) & (GB(1) - 1), 0);
		CHECK_EQ(*p, 1);
		*p = 2;
	}
	CHECK(hpmmap_peer_static(them, &variable) == hpmmap_peer_ptr(them, (void *)(uintptr_t)at[4]));
	errno = 0;
	CHECK(!hpmmap_peer_ptr(them, NOWHERE) && errno == EFAULT);
	ask(&peer, 0);
	CHECK_EQ(hpmmap_peer_detach(them), 0);
	/* Its place is free again. */
	for (int i = 0; i < 100; i++) {
		them = hpmmap_peer_attach(&space);
		CHECK(them);
		CHECK_EQ(hpmmap_peer_detach(them), 0);
	}
	/* One stack of sixteen ends so. */
	highest = space;
	highest.zone[2].start = TB(128) - GB(1);
	highest.zone[2].bytes = GB(1);
	them = hpmmap_peer_attach(&highest);
	if (!them)
		FAIL("hpmmap_peer_attach of the highest stack: %s", errno_name(errno));
	CHECK_EQ(hpmmap_peer_detach(them), 0);
	wrong = space;
	wrong.zone[1].bytes = 0;
	errno = 0;
	CHECK(!hpmmap_peer_attach(&wrong) && errno == EINVAL);
	wrong = space;
	wrong.zone[0].start += PAGE;
	errno = 0;
	CHECK(!hpmmap_peer_attach(&wrong) && errno == EINVAL);
	wrong = space;
	wrong.zone[2].start = TB(128);
	errno = 0;
	CHECK(!hpmmap_peer_attach(&wrong) && errno == EINVAL);
	wrong = space;
	wrong.id = 0;
	errno = 0;
	CHECK(!hpmmap_peer_attach(&wrong) && errno == EINVAL);
	say(peer.fd, 0);
	peer_end(&peer);
	errno = 0;
	CHECK(!hpmmap_peer_attach(&space) && errno == ENOENT);
}
PAIR(all_kinds)

/* One's own needs no window. */
static void own_space(void)
{
	struct hpmmap_space space;
	struct hpmmap_peer *self;

	need_xpmem();
	CHECK_EQ(hpmmap_space_publish(&space), 0);
	self = hpmmap_peer_attach(&space);
	CHECK(self);
	CHECK(hpmmap_peer_ptr(self, &space) == &space);
	CHECK(hpmmap_peer_static(self, &variable) == &variable);
	CHECK_EQ(hpmmap_space_has(&space, &space, sizeof(space)), 1);
	CHECK_EQ(hpmmap_space_has(&space, NOWHERE, 1), 0);
	CHECK_EQ(hpmmap_space_has(&space, &space, TB(2)), 0);
	CHECK_EQ(hpmmap_peer_detach(self), 0);
}
SAME(own_space)

/* ---- Jobs -------------------------------------------------------------- */

static char job_name[64];

static void new_job(void)
{
	static int n;

	snprintf(job_name, sizeof(job_name), "test-%d-%d", (int)getpid(), n++);
}

static bool name_is_taken(void)
{
	char path[128];

	snprintf(path, sizeof(path), "/dev/shm/hpmmap-%u-%s", geteuid(), job_name);
	return access(path, F_OK) == 0;
}

static void start_ranks(pid_t *ranks, int nr, void (*play)(int rank))
{
	new_job();
	for (int i = 0; i < nr; i++) {
		ranks[i] = fork_child();
		if (ranks[i] == 0) {
			/* Who has failed leaves nobody behind; the debug kernel takes minutes for most_ranks. */
			alarm(1500);
			play(i);
			_exit(0);
		}
	}
}

static void join(int rank, int size)
{
	if (hpmmap_job_join(job_name, rank, size) != 0)
		FAIL("rank %d: hpmmap_job_join: %s", rank, errno_name(errno));
}

static void barrier(void)
{
	if (hpmmap_barrier() != 0)
		FAIL("hpmmap_barrier: %s", errno_name(errno));
}

/* Each writes to all others, and finds what all have written. */
static void exchanges(int rank)
{
	uint64_t *heap = malloc(MB(3)), value;
	char *theirs;
	pid_t child;
	int others;

	join(rank, RANKS);
	CHECK_EQ(hpmmap_job_rank(), rank);
	CHECK_EQ(hpmmap_job_size(), RANKS);
	CHECK_ERR(hpmmap_job_join(job_name, rank, RANKS), EALREADY);
	for (uint64_t round = 1; round <= 50; round++) {
		for (int to = 0; to < RANKS; to++) {
			uint64_t *there = hpmmap_remote_static(to, table);

			CHECK(there);
			there[rank * 512] = round << 8 | (uint64_t)rank;
		}
		barrier();
		for (int from = 0; from < RANKS; from++)
			CHECK_EQ(table[from * 512], round << 8 | (uint64_t)from);
		barrier();
	}
	/* Larger pieces, of whoever is next. */
	others = (rank + 1) % RANKS;
	table[1] = (uintptr_t)heap;
	barrier();
	CHECK(hpmmap_remote_static(others, &table[1]));
	theirs = *(char **)hpmmap_remote_static(others, &table[1]);
	barrier();
	fill(table, sizeof(table), 3);
	CHECK_EQ(hpmmap_put(others, theirs, table, 0), 0);
	fill(heap + KB(128), MB(1), (uint64_t)rank);
	barrier();
	CHECK_EQ(hpmmap_put(others, theirs + MB(2), heap + KB(128), MB(1)), 0);
	hpmmap_fence();
	barrier();
	verify((char *)heap + MB(2), MB(1), (uint64_t)((rank + RANKS - 1) % RANKS), 0);
	CHECK_EQ(hpmmap_get(others, &value, theirs + MB(1), sizeof(value)), 0);
	CHECK(hpmmap_remote_ptr(rank, heap) == heap);
	CHECK_ERR(hpmmap_put(RANKS, heap, heap, 1), EINVAL);
	CHECK_ERR(hpmmap_get(-1, heap, heap, 1), EINVAL);
	CHECK_ERR(hpmmap_put(others, NOWHERE, heap, 1), EFAULT);
	/* A child has no part in it. */
	child = fork_child();
	if (child == 0) {
		errno = 0;
		CHECK(!hpmmap_remote_ptr(others, heap) && errno == ENOTCONN);
		CHECK_ERR(hpmmap_barrier(), ENOTCONN);
		CHECK_ERR(hpmmap_job_leave(), ENOTCONN);
		_exit(0);
	}
	expect_success(child);
	barrier();
	CHECK_EQ(hpmmap_job_leave(), 0);
	CHECK_ERR(hpmmap_job_rank(), ENOTCONN);
	CHECK_ERR(hpmmap_job_size(), ENOTCONN);
	CHECK_ERR(hpmmap_barrier(), ENOTCONN);
}

static void ranks_exchange(void)
{
	pid_t ranks[RANKS];

	need_xpmem();
	start_ranks(ranks, RANKS, exchanges);
	for (int i = 0; i < RANKS; i++)
		expect_success(ranks[i]);
	CHECK(!name_is_taken());
}
SAME(ranks_exchange)

static void ends_early(int rank)
{
	join(rank, RANKS);
	barrier();
	if (rank == 1)
		_exit(0);
	if (rank == 2)
		CHECK_EQ(hpmmap_job_leave(), 0);
	else
		CHECK_ERR(hpmmap_barrier(), ESRCH);
}

static void who_ends_holds_nobody_up(void)
{
	pid_t ranks[RANKS];

	need_xpmem();
	start_ranks(ranks, RANKS, ends_early);
	for (int i = 0; i < RANKS; i++)
		expect_success(ranks[i]);
	CHECK(!name_is_taken());
}
SAME(who_ends_holds_nobody_up)

static void first_of_two(int rank)
{
	(void)rank;
	join(0, 2);
}

static void second_of_two(void *arg)
{
	(void)arg;
	CHECK_ERR(hpmmap_job_join(job_name, 0, 2), EEXIST);
	CHECK_ERR(hpmmap_job_join(job_name, 1, 3), EINVAL);
	join(1, 2);
}

/* A table that somebody who was killed has left is made anew. */
static void left_behind(void)
{
	pid_t first;

	need_xpmem();
	start_ranks(&first, 1, first_of_two);
	while (!name_is_taken())
		usleep(1000);
	usleep(100000);
	CHECK_OK(kill(first, SIGKILL));
	expect_signal(first, SIGKILL);
	CHECK(name_is_taken());
	first = fork_child();
	if (first == 0) {
		join(0, 2);
		_exit(0);
	}
	usleep(200000);
	in_child(second_of_two, NULL);
	expect_success(first);
	CHECK(!name_is_taken());
}
SAME(left_behind)

static const struct {
	const char *set[4][2];
} launchers[] = {
	{ { { "OMPI_COMM_WORLD_LOCAL_RANK", "0" }, { "OMPI_COMM_WORLD_LOCAL_SIZE", "1" }, { "PMIX_NAMESPACE", "12345" } } },
	{ { { "MPI_LOCALRANKID", "0" }, { "MPI_LOCALNRANKS", "1" } } },
	{ { { "SLURM_LOCALID", "0" }, { "SLURM_STEP_TASKS_PER_NODE", "1(x2)" }, { "SLURM_JOB_ID", "7" }, { "SLURM_STEP_ID", "3" } } },
};

static void joins_by_environment(void *arg)
{
	const char *const (*set)[2] = arg;

	clearenv();
	CHECK_ERR(hpmmap_job_join(NULL, 0, 1), EINVAL);
	for (int i = 0; i < 4 && set[i][0]; i++)
		CHECK_OK(setenv(set[i][0], set[i][1], 1));
	CHECK_EQ(hpmmap_job_join(NULL, 5, -5), 0);
	CHECK_EQ(hpmmap_job_rank(), 0);
	CHECK_EQ(hpmmap_job_size(), 1);
	CHECK_EQ(hpmmap_barrier(), 0);
	CHECK_EQ(hpmmap_job_leave(), 0);
}

static void environments(void)
{
	need_xpmem();
	for (size_t i = 0; i < ARRAY_SIZE(launchers); i++)
		in_child(joins_by_environment, (void *)launchers[i].set);
}
SAME(environments)

static void wrong_jobs(void)
{
	char long_name[200];

	need_xpmem();
	memset(long_name, 'a', sizeof(long_name));
	long_name[199] = '\0';
	CHECK_ERR(hpmmap_job_join("", 0, 1), EINVAL);
	CHECK_ERR(hpmmap_job_join("a/b", 0, 1), EINVAL);
	CHECK_ERR(hpmmap_job_join(long_name, 0, 1), EINVAL);
	CHECK_ERR(hpmmap_job_join("a", -1, 1), EINVAL);
	CHECK_ERR(hpmmap_job_join("a", 1, 1), EINVAL);
	CHECK_ERR(hpmmap_job_join("a", 0, 0), EINVAL);
	CHECK_ERR(hpmmap_job_join("a", 0, HPMMAP_JOB_RANKS + 1), EINVAL);
	CHECK_ERR(hpmmap_job_leave(), ENOTCONN);
}
SAME(wrong_jobs)

/* As many as there may be, each with windows onto all. */
#define MOST	HPMMAP_JOB_RANKS

static void sees_all(int rank)
{
	join(rank, MOST);
	variable = rank + 1;
	barrier();
	for (int i = 0; i < MOST; i++) {
		int *theirs = hpmmap_remote_static(i, &variable);

		if (!theirs)
			FAIL("rank %d has no window onto %d: %s", rank, i, errno_name(errno));
		CHECK_EQ(*theirs, i + 1);
	}
	barrier();
}

static void most_ranks(void)
{
	pid_t ranks[MOST];

	need_xpmem();
	start_ranks(ranks, MOST, sees_all);
	for (int i = 0; i < MOST; i++)
		expect_success(ranks[i]);
	CHECK(!name_is_taken());
}
SAME(most_ranks)

static const struct test tests[] = {
	T_PAIR(published),
	T_PAIR(all_kinds),
	T_SAME(own_space),
	T_SAME(ranks_exchange),
	T_SAME(who_ends_holds_nobody_up),
	T_SAME(left_behind),
	T_SAME(environments),
	T_SAME(wrong_jobs),
	T_SAME(most_ranks),
};

int main(int argc, char **argv)
{
	peer_main(argc, argv);
	return RUN_GROUP("xpmem_jobs", tests);
}
