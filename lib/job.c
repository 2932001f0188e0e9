// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Jobs: the ranks of a host find each other by a table in shared memory.
 *
 * The first rank makes the table under the job's name. The last one to join removes the name, so
 * nothing stays behind however the job ends. If a rank has ended before all had joined, the
 * table is a leftover and is made anew. The barrier is two words of the table, with a futex.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

#define NAME_MAX_BYTES	128
/* Looks at the barrier before a rank sleeps, if each rank has a CPU. */
#define SPINS		2000

enum { ABSENT, HERE, LEFT };

struct table {
	/* First, so that a table of another version is recognized. */
	_Atomic uint32_t layout;
	uint32_t size;
	_Atomic uint32_t nr_joined;
	/* The barrier: the ranks that have arrived, and the number of completed rounds. */
	_Atomic uint32_t nr_arrived;
	_Atomic uint32_t round;
	struct rank {
		_Atomic uint32_t state;
		_Atomic int32_t pid;
		struct hpmmap_space space;
	} rank[HPMMAP_JOB_RANKS];
};

#define LAYOUT	(0x48504d00 + (uint32_t)sizeof(struct table) % 251)

/* The process's job, in a page that is empty in a child. */
struct job {
	struct table *table;
	int rank;
	uint32_t size;
	uint32_t spins;
	_Atomic(struct hpmmap_peer *) peer[HPMMAP_JOB_RANKS];
};

static struct job *job;
static pthread_mutex_t attach_lock = PTHREAD_MUTEX_INITIALIZER;

static int fail(int err)
{
	errno = err;
	return -1;
}

/* ---- A rank's identity ------------------------------------------------ */

static int number(const char *variable)
{
	const char *text = getenv(variable);
	char *end;
	long value;

	if (!text || !*text)
		return -1;
	value = strtol(text, &end, 10);
	/* Slurm writes 4(x2) if two nodes have four ranks each. */
	return value >= 0 && value < INT_MAX && (*end == '\0' || *end == '(' || *end == ',') ? (int)value : -1;
}

struct identity {
	char name[NAME_MAX_BYTES + 1];
	int rank;
	int size;
};

static bool set_name(struct identity *who, const char *launcher, const char *job_id, const char *step)
{
	int n;

	if (!job_id)
		return false;
	n = snprintf(who->name, sizeof(who->name), "%s.%s.%s", launcher, job_id, step ? step : "0");
	return n > 0 && (size_t)n < sizeof(who->name) && !strchr(who->name, '/');
}

static bool from_environment(struct identity *who)
{
	char parent[16];

	/* Open MPI */
	who->rank = number("OMPI_COMM_WORLD_LOCAL_RANK");
	who->size = number("OMPI_COMM_WORLD_LOCAL_SIZE");
	if (who->rank >= 0 && set_name(who, "ompi", getenv("PMIX_NAMESPACE"), NULL))
		return true;
	/*
	 * MPICH's mpiexec does not name the job: use the PID of the process that starts the ranks
	 * of a node.
	 */
	who->rank = number("MPI_LOCALRANKID");
	who->size = number("MPI_LOCALNRANKS");
	snprintf(parent, sizeof(parent), "%d", (int)getppid());
	if (who->rank >= 0 && set_name(who, "hydra", parent, NULL))
		return true;
	who->rank = number("SLURM_LOCALID");
	who->size = number("SLURM_STEP_TASKS_PER_NODE");
	return who->rank >= 0 && set_name(who, "slurm", getenv("SLURM_JOB_ID"), getenv("SLURM_STEP_ID"));
}

/* ---- The table -------------------------------------------------------- */

static bool is_alive(const struct rank *rank)
{
	return rank->state == HERE && (kill(rank->pid, 0) == 0 || errno != ESRCH);
}

/* Has a rank that joined ended or left? */
static bool somebody_is_missing(struct table *table)
{
	for (uint32_t i = 0; i < table->size; i++)
		if (table->rank[i].state != ABSENT && !is_alive(&table->rank[i]))
			return true;
	return false;
}

static bool is_named(int fd, const char *path)
{
	struct stat open_one, named;

	return fstat(fd, &open_one) == 0 && stat(path, &named) == 0 && open_one.st_ino == named.st_ino;
}

/*
 * Returns the job's table, locked: a new one, or one in which ranks wait. NULL with *again: it was
 * a leftover or has just been removed, so try once more.
 */
static struct table *open_table(const char *name, const char *path, int size, int *fd, bool *again)
{
	struct table *table;
	struct stat st;

	*again = false;
	*fd = shm_open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (*fd < 0)
		return NULL;
	if (flock(*fd, LOCK_EX) != 0 || fstat(*fd, &st) != 0)
		goto close;
	/* Not a table that another user has put there. */
	if (st.st_uid != geteuid()) {
		errno = EEXIST;
		goto close;
	}
	*again = !is_named(*fd, path);
	if (*again || (st.st_size == 0 && ftruncate(*fd, sizeof(*table)) != 0))
		goto close;
	table = mmap(NULL, sizeof(*table), PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	if (table == MAP_FAILED)
		goto close;
	if (!table->layout) {
		table->layout = LAYOUT;
		table->size = (uint32_t)size;
	}
	if (table->layout == LAYOUT && !somebody_is_missing(table)) {
		if (table->size == (uint32_t)size)
			return table;
		errno = EINVAL;
	} else {
		*again = true;
		shm_unlink(name);
	}
	munmap(table, sizeof(*table));
close:
	close(*fd);
	return NULL;
}

/* Enters this rank into the locked table. */
static int enter(struct table *table, const char *name, const struct identity *who)
{
	struct rank *rank = &table->rank[who->rank];

	if (rank->state != ABSENT)
		return fail(EEXIST);
	if (hpmmap_space_publish(&rank->space) != 0)
		return -1;
	rank->pid = getpid();
	rank->state = HERE;
	if (++table->nr_joined == table->size)
		shm_unlink(name);
	return 0;
}

static int wait_for_all(struct table *table)
{
	const struct timespec step = { .tv_nsec = 2 * 1000 * 1000 };
	time_t end = time(NULL) + HPMMAP_JOB_SECONDS;

	while (table->nr_joined < table->size) {
		if (somebody_is_missing(table))
			return fail(ESRCH);
		if (time(NULL) > end)
			return fail(ETIMEDOUT);
		nanosleep(&step, NULL);
	}
	return 0;
}

static int join_table(const struct identity *who, struct table **table)
{
	char name[NAME_MAX_BYTES + 64], path[NAME_MAX_BYTES + 80];
	bool again;
	int fd, ret, err;

	snprintf(name, sizeof(name), "/hpmmap-%u-%s", (unsigned int)geteuid(), who->name);
	snprintf(path, sizeof(path), "/dev/shm%s", name);
	do {
		*table = open_table(name, path, who->size, &fd, &again);
	} while (!*table && again);
	if (!*table)
		return -1;
	ret = enter(*table, name, who);
	err = errno;
	/* If the rank made the table but could not enter it, no other rank has to wait for it. */
	if (ret != 0 && (*table)->nr_joined == 0)
		shm_unlink(name);
	/* The mapping keeps the file open. */
	flock(fd, LOCK_UN);
	close(fd);
	if (ret == 0) {
		ret = wait_for_all(*table);
		err = errno;
		if (ret != 0)
			(*table)->rank[who->rank].state = LEFT;
	}
	if (ret != 0)
		munmap(*table, sizeof(**table));
	errno = err;
	return ret;
}

/* ---- Joining and leaving ---------------------------------------------- */

static struct job *current_job(void)
{
	struct job *now = job;

	if (now && now->table)
		return now;
	errno = ENOTCONN;
	return NULL;
}

/* Makes the page of the job, which is kept for the next job. */
static int make_job(void)
{
	void *page;

	if (job)
		return 0;
	page = mmap(NULL, sizeof(struct job), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		return -1;
	if (madvise(page, sizeof(struct job), MADV_WIPEONFORK) != 0) {
		munmap(page, sizeof(struct job));
		return -1;
	}
	job = page;
	return 0;
}

PUBLIC int hpmmap_job_join(const char *name, int rank, int size)
{
	struct identity who = { .rank = rank, .size = size };
	struct table *table;
	size_t length;

	if (job && job->table)
		return fail(EALREADY);
	if (name) {
		length = strlen(name);
		if (length == 0 || length > NAME_MAX_BYTES || strchr(name, '/'))
			return fail(EINVAL);
		memcpy(who.name, name, length + 1);
	} else if (!from_environment(&who)) {
		return fail(EINVAL);
	}
	if (who.rank < 0 || who.size < 1 || who.size > HPMMAP_JOB_RANKS || who.rank >= who.size)
		return fail(EINVAL);
	if (make_job() != 0 || join_table(&who, &table) != 0)
		return -1;
	job->rank = who.rank;
	job->size = (uint32_t)who.size;
	job->spins = sysconf(_SC_NPROCESSORS_ONLN) >= who.size ? SPINS : 0;
	job->table = table;
	return 0;
}

static void wake_all(struct table *table)
{
	syscall(SYS_futex, &table->round, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

PUBLIC int hpmmap_job_leave(void)
{
	struct job *now = current_job();

	if (!now)
		return -1;
	now->table->rank[now->rank].state = LEFT;
	wake_all(now->table);
	for (uint32_t i = 0; i < now->size; i++)
		if (now->peer[i])
			hpmmap_peer_detach(now->peer[i]);
	munmap(now->table, sizeof(*now->table));
	memset(now, 0, sizeof(*now));
	return 0;
}

PUBLIC int hpmmap_job_rank(void)
{
	struct job *now = current_job();

	return now ? now->rank : -1;
}

PUBLIC int hpmmap_job_size(void)
{
	struct job *now = current_job();

	return now ? (int)now->size : -1;
}

/* ---- The memory of a rank --------------------------------------------- */

static struct hpmmap_peer *attach_rank(int rank)
{
	struct job *now = current_job();
	struct hpmmap_peer *peer;

	if (!now)
		return NULL;
	if ((uint32_t)rank >= now->size) {
		errno = EINVAL;
		return NULL;
	}
	pthread_mutex_lock(&attach_lock);
	peer = now->peer[rank];
	if (!peer) {
		peer = hpmmap_peer_attach(&now->table->rank[rank].space);
		now->peer[rank] = peer;
	}
	pthread_mutex_unlock(&attach_lock);
	return peer;
}

static inline struct hpmmap_peer *peer_of(int rank)
{
	struct job *now = job;
	struct hpmmap_peer *peer = NULL;

	if (now && (uint32_t)rank < now->size)
		peer = atomic_load_explicit(&now->peer[rank], memory_order_acquire);
	return peer ? peer : attach_rank(rank);
}

PUBLIC void *hpmmap_remote_ptr(int rank, const void *ptr)
{
	struct hpmmap_peer *peer = peer_of(rank);

	return peer ? hpmmap_peer_ptr(peer, ptr) : NULL;
}

PUBLIC void *hpmmap_remote_static(int rank, const void *ptr)
{
	struct hpmmap_peer *peer = peer_of(rank);

	return peer ? hpmmap_peer_static(peer, ptr) : NULL;
}

PUBLIC int hpmmap_put(int rank, void *dest, const void *source, size_t bytes)
{
	void *there = hpmmap_remote_ptr(rank, dest);

	if (!there)
		return -1;
	memcpy(there, source, bytes);
	return 0;
}

PUBLIC int hpmmap_get(int rank, void *dest, const void *source, size_t bytes)
{
	const void *there = hpmmap_remote_ptr(rank, source);

	if (!there)
		return -1;
	memcpy(dest, there, bytes);
	return 0;
}

PUBLIC void hpmmap_fence(void)
{
	/* memcpy() may have used non-temporal stores. */
	__builtin_ia32_sfence();
	atomic_thread_fence(memory_order_seq_cst);
}

PUBLIC int hpmmap_barrier(void)
{
	const struct timespec second = { .tv_sec = 1 };
	struct job *now = current_job();
	struct table *table;
	uint32_t round;

	if (!now)
		return -1;
	table = now->table;
	hpmmap_fence();
	round = table->round;
	if (atomic_fetch_add(&table->nr_arrived, 1) + 1 == now->size) {
		table->nr_arrived = 0;
		table->round = round + 1;
		wake_all(table);
		return 0;
	}
	for (uint32_t i = 0; i < now->spins && table->round == round; i++)
		__builtin_ia32_pause();
	while (table->round == round) {
		if (somebody_is_missing(table) && table->round == round)
			return fail(ESRCH);
		syscall(SYS_futex, &table->round, FUTEX_WAIT, round, &second, NULL, 0);
	}
	return 0;
}
