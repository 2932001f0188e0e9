// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Groups: made when a communicator is first used, kept as its attribute.
 *
 * MPI_Comm_free() must not wait for other ranks, and not all ways to free a communicator are functions of this library. So
 * the attribute's deletion says that this rank has left the group, and no more: it runs within the MPI library, which may
 * hold locks. A later call begins a barrier without waiting for it, and a still later one frees the group once that is
 * over.
 *
 * A waiting rank lets the MPI library make progress, since other ranks may wait for its messages.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "group.h"

/* Looks at a flag before a rank yields, if each rank has a CPU. */
#define SPINS		500
/* Yields between two calls for the library's progress. */
#define PROGRESS	4
/* Each has up to three communicators of its own. MPICH has about 2000 in all. */
#define MOST_GROUPS	256

/* What a communicator is: two ranks of one host, more of them, or ranks of several hosts. */
enum scope { TWO_RANKS, ONE_HOST, HOSTS, NR_SCOPES };

/*
 * From this many bytes on (of a rank, or between two ranks) this library takes fewer instructions
 * than the MPI library: docs/mpi.md has the figures. For MPI_Alltoallv it is the average between
 * the ranks of a host. HPMMAP_MPI_MIN_BYTES in the environment replaces all of them,
 * HPMMAP_MPI_HOSTS_MIN_BYTES those of communicators that span hosts.
 */
static size_t min_bytes[NR_SCOPES][NR_KINDS] = {
	[TWO_RANKS] = {
		[BCAST] = 16384,
		[REDUCE] = 32768,
		[ALLREDUCE] = 4096,
		[ALLGATHER] = 4096,
		[GATHER] = 32768,
		[ALLTOALL] = 4096,
		[ALLTOALLV] = 0,
	},
	[ONE_HOST] = {
		[BCAST] = 4096,
		[REDUCE] = 4096,
		[ALLREDUCE] = 1024,
		[ALLGATHER] = 512,
		[GATHER] = 4096,
		[ALLTOALL] = 512,
		[ALLTOALLV] = 0,
	},
	[HOSTS] = {
		[BCAST] = 512,
		[REDUCE] = 512,
		[ALLREDUCE] = 512,
		[ALLGATHER] = 512,
		[GATHER] = 512,
		[ALLTOALL] = 512,
		[ALLTOALLV] = 0,
	},
};

/* Each rank sends this to the others on its host when a communicator is first used. */
struct hello {
	struct hpmmap_space space;
	uint64_t control;
	/* A variable, which is ordinary memory: kernels may refuse windows onto that. */
	uint64_t variable;
	int32_t ok;
	int32_t pad;
};

struct hpmmap_space own_space;
static int keyval;
static pthread_once_t started = PTHREAD_ONCE_INIT;
static _Atomic int spins = SPINS;
/* Marks a communicator that is left to the library. */
static struct group none;
static pthread_mutex_t setup_lock = PTHREAD_MUTEX_INITIALIZER;

/* Attached peers, under setup_lock. Groups share them. Without any they stay attached for the next group. */
static struct known {
	struct known *next;
	int64_t id;
	struct hpmmap_peer *peer;
	int groups;
} *known;

/* This process's groups; none of them has begun to be freed. */
static pthread_mutex_t groups_lock = PTHREAD_MUTEX_INITIALIZER;
static struct group *groups;
static _Atomic int nr_groups;
/* MPI_Finalize() has ended all groups. It deletes their communicators' attributes later. */
static bool is_over;
/* What this thread frees. No group is made for it, though a user's callback may use it. */
static __thread const MPI_Comm *freed;

/* ---- Groups ------------------------------------------------------------ */

/* Detaches those that no group has. Caller holds setup_lock. */
static void detach_idle(void)
{
	for (struct known **at = &known; *at;) {
		struct known *one = *at;

		if (one->groups) {
			at = &one->next;
			continue;
		}
		*at = one->next;
		hpmmap_peer_detach(one->peer);
		free(one);
	}
}

/* A peer for one more group. Caller holds setup_lock. */
static struct hpmmap_peer *peer_get(const struct hpmmap_space *space)
{
	struct known *one;

	for (one = known; one && one->id != space->id;)
		one = one->next;
	if (!one) {
		one = calloc(1, sizeof(*one));
		if (!one)
			return NULL;
		one->id = space->id;
		one->peer = hpmmap_peer_attach(space);
		if (!one->peer && errno == ENOMEM) {
			detach_idle();
			one->peer = hpmmap_peer_attach(space);
		}
		if (!one->peer) {
			free(one);
			return NULL;
		}
		one->next = known;
		known = one;
	}
	one->groups++;
	return one->peer;
}

static void peers_put(const struct group *group)
{
	pthread_mutex_lock(&setup_lock);
	for (int i = 0; i < group->size; i++)
		for (struct known *one = known; one && group->peer[i]; one = one->next)
			if (one->peer == group->peer[i])
				one->groups--;
	pthread_mutex_unlock(&setup_lock);
}

/* All but the communicator of its ranks. */
static void group_free(struct group *group)
{
	if (!group)
		return;
	peers_put(group);
	if (group->hosts) {
		if (group->hosts->leaders != MPI_COMM_NULL)
			PMPI_Comm_free(&group->hosts->leaders);
		free(group->hosts->host);
		free(group->hosts->scratch);
		free(group->hosts);
	}
	free(group->own);
	free(group);
}

/* A barrier has no data. */
static void replace(size_t *bytes, size_t with)
{
	for (int kind = BCAST; kind < NR_KINDS; kind++)
		bytes[kind] = with;
}

/* Is a variable of the environment set to a number? */
static bool number_of(const char *name, size_t *number)
{
	const char *text = getenv(name);
	char *end;

	if (!text)
		return false;
	errno = 0;
	*number = strtoull(text, &end, 0);
	if (*text >= '0' && *text <= '9' && !*end && !errno)
		return true;
	fprintf(stderr, "libhpmmap_mpi: %s is not a number of bytes and is ignored: %s\n", name, text);
	return false;
}

static int on_delete(MPI_Comm comm, int key, void *value, void *unused)
{
	struct group *group = value;

	(void)comm;
	(void)key;
	(void)unused;
	if (group != &none && !is_over)
		group->has_left = true;
	return MPI_SUCCESS;
}

static void start(void);

/* Caller holds setup_lock. */
static bool attach_all(struct group *group, const struct hello *hellos)
{
	for (int i = 0; i < group->size; i++) {
		if (!hellos[i].ok)
			return false;
		group->ranks[i] = i;
		group->peer[i] = peer_get(&hellos[i].space);
		if (!group->peer[i])
			return false;
		group->control[i] = peer_ptr(group->peer[i], (void *)(uintptr_t)hellos[i].control);
		if (!is_readable(group->control[i]) ||
		    !is_readable(peer_ptr(group->peer[i], (void *)(uintptr_t)hellos[i].variable)))
			return false;
	}
	return true;
}

/* Returns the group of the ranks of a host, or NULL; other ranks may get another answer. */
static struct group *local_make(MPI_Comm local)
{
	struct hello hellos[MOST_RANKS], hello = { .ok = 0 };
	struct group *group;
	bool ok;

	group = calloc(1, sizeof(*group));
	if (group) {
		group->local = local;
		PMPI_Comm_rank(local, &group->rank);
		PMPI_Comm_size(local, &group->size);
		group->own = aligned_alloc(4096, (sizeof(*group->own) + 4095) & ~(size_t)4095);
	}
	if (group && group->own) {
		memset(group->own, 0, sizeof(*group->own));
		hello.control = (uintptr_t)group->own;
		hello.variable = (uintptr_t)&own_space;
		pthread_mutex_lock(&setup_lock);
		hello.ok = hpmmap_space_publish(&own_space) == 0 &&
			   hpmmap_space_has(&own_space, group->own, sizeof(*group->own));
		hello.space = own_space;
		pthread_mutex_unlock(&setup_lock);
	}
	ok = PMPI_Allgather(&hello, sizeof(hello), MPI_BYTE, hellos, sizeof(hello), MPI_BYTE, local) == MPI_SUCCESS;
	pthread_mutex_lock(&setup_lock);
	ok = ok && hello.ok && attach_all(group, hellos);
	pthread_mutex_unlock(&setup_lock);
	if (ok)
		return group;
	group_free(group);
	return NULL;
}

static struct hosts *hosts_alloc(MPI_Comm comm, int size)
{
	struct hosts *hosts = calloc(1, sizeof(*hosts));
	size_t n = (size_t)size;

	if (!hosts)
		return NULL;
	hosts->leaders = MPI_COMM_NULL;
	hosts->size = size;
	PMPI_Comm_rank(comm, &hosts->rank);
	hosts->host = calloc(9 * n + 1, sizeof(int));
	if (!hosts->host) {
		free(hosts);
		return NULL;
	}
	hosts->place = hosts->host + n;
	hosts->first = hosts->place + n;
	hosts->counts = hosts->first + n + 1;
	return hosts;
}

/* Finds out where all ranks are; false if the MPI library has failed. */
static bool hosts_fill(struct group *group, MPI_Comm comm)
{
	struct hosts *hosts = group->hosts;
	int of_host[2] = { 0, 0 };
	bool ok;

	/* All ranks make all calls, so that none waits for one that has failed. */
	ok = PMPI_Comm_split(comm, group->rank == 0 ? 0 : MPI_UNDEFINED, hosts->rank, &hosts->leaders) == MPI_SUCCESS;
	if (ok && group->rank == 0) {
		PMPI_Comm_set_errhandler(hosts->leaders, MPI_ERRORS_RETURN);
		PMPI_Comm_rank(hosts->leaders, &of_host[0]);
		PMPI_Comm_size(hosts->leaders, &of_host[1]);
	}
	ok = PMPI_Bcast(of_host, 2, MPI_INT, 0, group->local) == MPI_SUCCESS && ok;
	hosts->own = of_host[0];
	hosts->nr = of_host[1];
	ok = PMPI_Allgather(&hosts->own, 1, MPI_INT, hosts->host, 1, MPI_INT, comm) == MPI_SUCCESS && ok;
	if (!ok || hosts->nr == 0)
		return false;
	hosts->in_order = true;
	for (int host = 0, place = 0; host < hosts->nr; host++) {
		hosts->first[host] = place;
		for (int i = 0; i < hosts->size; i++)
			if (hosts->host[i] == host)
				hosts->place[i] = place++;
	}
	hosts->first[hosts->nr] = hosts->size;
	for (int i = 0; i < hosts->size; i++) {
		hosts->in_order = hosts->in_order && hosts->place[i] == i;
		if (hosts->host[i] == hosts->own)
			group->ranks[hosts->place[i] - hosts->first[hosts->own]] = i;
	}
	return true;
}

/* Returns a group or NULL; all ranks get the same answer. comm returns errors. */
static struct group *group_try(MPI_Comm comm, int size)
{
	/* The smallest of all ranks: is all well; the ranks on the host, negative. */
	int here = 0, mine[2], least[2] = { 0, 0 };
	struct group *group = NULL;
	MPI_Comm local;
	bool ok;

	if (PMPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local) != MPI_SUCCESS)
		local = MPI_COMM_NULL;
	if (local != MPI_COMM_NULL) {
		PMPI_Comm_set_errhandler(local, MPI_ERRORS_RETURN);
		PMPI_Comm_size(local, &here);
		if (here <= MOST_RANKS)
			group = local_make(local);
	}
	if (group && here < size)
		group->hosts = hosts_alloc(comm, size);
	mine[0] = group && (here == size || group->hosts);
	mine[1] = -here;
	ok = PMPI_Allreduce(mine, least, 2, MPI_INT, MPI_MIN, comm) == MPI_SUCCESS;
	/* A rank alone on its host has nothing to share. */
	ok = ok && least[0] && least[1] < -1;
	if (ok && group->hosts) {
		group->hosts->most = -least[1];
		mine[0] = hosts_fill(group, comm);
		ok = PMPI_Allreduce(mine, least, 1, MPI_INT, MPI_MIN, comm) == MPI_SUCCESS && least[0];
	}
	if (ok)
		return group;
	group_free(group);
	if (local != MPI_COMM_NULL)
		PMPI_Comm_free(&local);
	return NULL;
}

/* ---- Their ends ------------------------------------------------------------ */

/* Returns true if the barrier of those that leave has begun. */
static bool begin_leaving(struct group *group)
{
	if (!group->is_leaving)
		group->is_leaving = PMPI_Ibarrier(group->local, &group->leaving) == MPI_SUCCESS;
	return group->is_leaving;
}

static bool have_all_left(struct group *group)
{
	int done = 0;

	return begin_leaving(group) && PMPI_Test(&group->leaving, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done;
}

/* Frees a group that is not in the list any more and that all ranks have left. */
static void group_end(struct group *group)
{
	PMPI_Comm_free(&group->local);
	group_free(group);
	nr_groups--;
}

/* Frees the groups that all their ranks have left. */
static void end_groups(void)
{
	pthread_mutex_lock(&groups_lock);
	for (struct group **at = &groups; *at;) {
		struct group *group = *at;

		if (!group->has_left || !have_all_left(group)) {
			at = &group->next;
			continue;
		}
		*at = group->next;
		group_end(group);
	}
	pthread_mutex_unlock(&groups_lock);
}

/* A communicator's group, or NULL. */
static struct group *find_group(MPI_Comm comm)
{
	struct group *group;
	int found = 0;

	if (comm == MPI_COMM_NULL || is_over)
		return NULL;
	pthread_once(&started, start);
	PMPI_Comm_get_attr(comm, keyval, &group, &found);
	return found && group != &none ? group : NULL;
}

/* Frees a communicator: its attribute first, so that all ranks leave it before their own callbacks run. */
static int free_by(int (*function)(MPI_Comm *comm), MPI_Comm *comm, bool has_group)
{
	const MPI_Comm *outer = freed, dying = *comm;
	int err;

	if (has_group)
		PMPI_Comm_delete_attr(dying, keyval);
	freed = &dying;
	err = function(comm);
	freed = outer;
	end_groups();
	return err;
}

PUBLIC int MPI_Comm_free(MPI_Comm *comm)
{
	return free_by(PMPI_Comm_free, comm, find_group(*comm));
}

static void wait_and_end(struct group *group)
{
	if (begin_leaving(group) && PMPI_Wait(&group->leaving, MPI_STATUS_IGNORE) == MPI_SUCCESS)
		group_end(group);
}

/* It waits for the other ranks. They may end after it, so no windows onto them are left. */
PUBLIC int MPI_Comm_disconnect(MPI_Comm *comm)
{
	struct group *group = find_group(*comm), **at;
	int err;

	if (group) {
		pthread_mutex_lock(&groups_lock);
		for (at = &groups; *at != group;)
			at = &(*at)->next;
		*at = group->next;
		pthread_mutex_unlock(&groups_lock);
	}
	err = free_by(PMPI_Comm_disconnect, comm, group);
	if (group)
		wait_and_end(group);
	pthread_mutex_lock(&setup_lock);
	detach_idle();
	pthread_mutex_unlock(&setup_lock);
	return err;
}

/* All groups end, also of communicators that are not freed: a barrier must not be under way in the MPI library's end. */
static int on_finalize(MPI_Comm comm, int key, void *value, void *unused)
{
	(void)comm;
	(void)key;
	(void)value;
	(void)unused;
	is_over = true;
	for (struct group *group = groups; group; group = group->next)
		begin_leaving(group);
	while (groups) {
		struct group *group = groups;

		groups = group->next;
		wait_and_end(group);
	}
	return MPI_SUCCESS;
}

/* ---- The start ----------------------------------------------------------------- */

/*
 * MPI_Finalize() first deletes the attributes of MPI_COMM_SELF, the last one that was set first. Functions of the program
 * that run then may still use all communicators, and other ranks may wait for what they send. So the groups end in the
 * deletion of an attribute that is set before the program can set any.
 */
static void start(void)
{
	size_t bytes;
	int of_self;

	if (number_of("HPMMAP_MPI_MIN_BYTES", &bytes)) {
		replace(min_bytes[TWO_RANKS], bytes);
		replace(min_bytes[ONE_HOST], bytes);
		replace(min_bytes[HOSTS], bytes);
	}
	if (number_of("HPMMAP_MPI_HOSTS_MIN_BYTES", &bytes))
		replace(min_bytes[HOSTS], bytes);
	PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_delete, &keyval, NULL);
	PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_finalize, &of_self, NULL);
	PMPI_Comm_set_attr(MPI_COMM_SELF, of_self, NULL);
}

/* Returns what the MPI library's own start did. */
static int started_by(int err)
{
	if (err == MPI_SUCCESS)
		pthread_once(&started, start);
	return err;
}

PUBLIC int MPI_Init(int *argc, char ***argv)
{
	return started_by(PMPI_Init(argc, argv));
}

PUBLIC int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
	return started_by(PMPI_Init_thread(argc, argv, required, provided));
}

/* ---- The first call on a communicator -------------------------------------- */

/* Can all ranks have one more group? */
static bool all_have_room(MPI_Comm comm)
{
	int mine = nr_groups < MOST_GROUPS, all = 0;

	return PMPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, comm) == MPI_SUCCESS && all;
}

/* Returns a group, or none; all ranks get the same answer. */
static struct group *group_make(MPI_Comm comm)
{
	struct group *group = NULL;
	MPI_Errhandler handler, now;
	int inter, size;

	PMPI_Comm_test_inter(comm, &inter);
	PMPI_Comm_size(comm, &size);
	if (inter || size < 2)
		return &none;
	end_groups();
	/* If the MPI library fails here, the collective itself is left to it. */
	PMPI_Comm_get_errhandler(comm, &handler);
	PMPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
	if (all_have_room(comm))
		group = group_try(comm, size);
	/* Another thread may have set one in the meantime. */
	PMPI_Comm_get_errhandler(comm, &now);
	if (now == MPI_ERRORS_RETURN)
		PMPI_Comm_set_errhandler(comm, handler);
	PMPI_Errhandler_free(&now);
	PMPI_Errhandler_free(&handler);
	if (!group)
		return &none;
	pthread_mutex_lock(&groups_lock);
	group->next = groups;
	groups = group;
	pthread_mutex_unlock(&groups_lock);
	nr_groups++;
	return group;
}

static struct group *group_of(MPI_Comm comm)
{
	struct group *group;
	int found = 0;

	if (comm == MPI_COMM_NULL || is_over)
		return NULL;
	pthread_once(&started, start);
	PMPI_Comm_get_attr(comm, keyval, &group, &found);
	if (!found) {
		if (freed && *freed == comm)
			return NULL;
		group = group_make(comm);
		if (group->size > sysconf(_SC_NPROCESSORS_ONLN))
			spins = 0;
		PMPI_Comm_set_attr(comm, keyval, group);
	}
	return group == &none ? NULL : group;
}

/* Above this many the numbers that the MPI library is given are too large for an int. */
static size_t most_bytes(const struct hosts *hosts, enum kind kind)
{
	size_t ranks = (size_t)hosts->size;

	switch (kind) {
	case BCAST:
		return INT_MAX;
	case ALLGATHER:
	case GATHER:
		return INT_MAX / ranks;
	case ALLTOALL:
		return INT_MAX / ranks / (size_t)hosts->most;
	default:
		/* A negative number of elements. */
		return SSIZE_MAX;
	}
}

bool is_enough(const struct group *group, enum kind kind, size_t bytes)
{
	return bytes >= min_bytes[group->hosts ? HOSTS : group->size == 2 ? TWO_RANKS : ONE_HOST][kind];
}

struct group *group_for(enum kind kind, MPI_Comm comm, size_t bytes)
{
	struct group *group;

	pthread_once(&started, start);
	/* A communicator needs no group if its collectives are small. Without data the library checks the arguments. */
	if ((bytes == 0 && kind != BARRIER) ||
	    (bytes < min_bytes[TWO_RANKS][kind] && bytes < min_bytes[ONE_HOST][kind] && bytes < min_bytes[HOSTS][kind]))
		return NULL;
	group = group_of(comm);
	if (!group || !is_enough(group, kind, bytes) || (group->hosts && bytes > most_bytes(group->hosts, kind)))
		return NULL;
	return group;
}

/* ---- Barriers ---------------------------------------------------------- */

static bool has_come(_Atomic uint32_t *counter, uint32_t wanted)
{
	return (int32_t)(atomic_load_explicit(counter, memory_order_acquire) - wanted) >= 0;
}

static void wait_for(const struct group *group, _Atomic uint32_t *counter, uint32_t wanted)
{
	int flag;

	for (int i = 0; i < spins; i++) {
		if (has_come(counter, wanted))
			return;
		__builtin_ia32_pause();
	}
	for (unsigned int i = 1; !has_come(counter, wanted); i++) {
		if (i % PROGRESS == 0)
			PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, group->local, &flag, MPI_STATUS_IGNORE);
		sched_yield();
	}
}

void arrive(struct group *group)
{
	uint32_t wanted = ++group->barriers;

	__builtin_ia32_sfence();
	if (group->rank != 0) {
		atomic_store(&group->own->arrived, wanted);
		return;
	}
	for (int i = 1; i < group->size; i++)
		wait_for(group, &group->control[i]->arrived, wanted);
}

void depart(struct group *group)
{
	if (group->rank == 0)
		atomic_store(&group->own->released, group->barriers);
	else
		wait_for(group, &group->control[0]->released, group->barriers);
}

void publish(struct group *group, const struct part *part)
{
	group->collectives++;
	group->own->part[group->collectives & 1] = *part;
	arrive(group);
}

int error_of(const struct group *group)
{
	size_t bytes = part_of(group, group->rank)->bytes;
	int error = MPI_SUCCESS;

	for (int i = 0; i < group->size; i++) {
		const struct part *part = part_of(group, i);
		int theirs = part->error == MPI_SUCCESS && part->bytes != bytes ? MPI_ERR_TRUNCATE : part->error;

		error = theirs > error ? theirs : error;
	}
	return error;
}

bool begin(struct group *group, const struct part *part)
{
	publish(group, part);
	depart(group);
	return error_of(group) == MPI_SUCCESS;
}

/* ---- Data ---------------------------------------------------------------- */

/* From here on memcpy() bypasses the caches, which is right only for data larger than they are. */
#define COPY_LARGE	((size_t)512 << 10)

typedef char vector __attribute__((vector_size(32), aligned(1), may_alias));

/* memcpy() would use "rep movsb" for this size, which counts as one instruction for each byte. */
static __attribute__((target_clones("avx2", "default"))) void copy_vectors(char *to, const char *from, size_t bytes)
{
	for (; bytes >= 4 * sizeof(vector); bytes -= 4 * sizeof(vector)) {
		vector a = ((const vector *)from)[0], b = ((const vector *)from)[1];
		vector c = ((const vector *)from)[2], d = ((const vector *)from)[3];

		((vector *)to)[0] = a;
		((vector *)to)[1] = b;
		((vector *)to)[2] = c;
		((vector *)to)[3] = d;
		from += 4 * sizeof(vector);
		to += 4 * sizeof(vector);
	}
	memcpy(to, from, bytes);
}

void copy(void *to, const void *from, size_t bytes)
{
	if (bytes < COPY_LARGE)
		copy_vectors(to, from, bytes);
	else
		memcpy(to, from, bytes);
}

bool is_plain(MPI_Datatype type)
{
	int integers, addresses, types, combiner;
	MPI_Aint low, extent;

	if (type == MPI_DATATYPE_NULL)
		return false;
	PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
	if (combiner != MPI_COMBINER_NAMED)
		return false;
	PMPI_Type_get_extent(type, &low, &extent);
	return low == 0 && (size_t)extent == size_of(type);
}

size_t size_of(MPI_Datatype type)
{
	MPI_Count size = 0;

	if (type != MPI_DATATYPE_NULL)
		PMPI_Type_size_x(type, &size);
	return size < 0 ? 0 : (size_t)size;
}
