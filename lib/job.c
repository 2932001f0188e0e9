// SPDX-License-Identifier: LGPL-2.1-or-later
/* Jobs: ranks that have met in a table reach each other's memory. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"

/* Looks at the barrier before a rank sleeps, if each rank has a CPU. */
#define SPINS		2000

struct job_table {
	struct table table;
	struct hpmmap_space space[HPMMAP_JOB_RANKS];
};

/* The process's job, in a page that is empty in a child. */
struct job {
	struct job_table *table;
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

static int publish(struct table *table, int rank)
{
	return hpmmap_space_publish(&((struct job_table *)table)->space[rank]);
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
		if (length == 0 || length > IDENTITY_NAME || strchr(name, '/'))
			return fail(EINVAL);
		memcpy(who.name, name, length + 1);
	} else if (!identity_from_environment(&who)) {
		return fail(EINVAL);
	}
	if (who.rank < 0 || who.size < 1 || who.size > HPMMAP_JOB_RANKS || who.rank >= who.size)
		return fail(EINVAL);
	if (make_job() != 0)
		return -1;
	table = table_join(&who, sizeof(struct job_table), publish);
	if (!table)
		return -1;
	job->rank = who.rank;
	job->size = (uint32_t)who.size;
	job->spins = sysconf(_SC_NPROCESSORS_ONLN) >= who.size ? SPINS : 0;
	job->table = (struct job_table *)table;
	return 0;
}

PUBLIC int hpmmap_job_leave(void)
{
	struct job *now = current_job();

	if (!now)
		return -1;
	table_leave(&now->table->table, now->rank);
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
		peer = hpmmap_peer_attach(&now->table->space[rank]);
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
	struct job *now = current_job();
	struct table *table;

	if (!now)
		return -1;
	table = &now->table->table;
	return barrier_wait(table, &table->all, now->size, now->spins);
}
