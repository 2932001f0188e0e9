// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * libhpmmap_mpi: collectives of MPI in place, between ranks of one host.
 *
 * Preloaded into an MPI program, it replaces some collectives through MPI's profiling interface.
 * Ranks have windows onto each other, so each reads data where it is: nothing is packed, sent or
 * copied twice. All other calls go on to the MPI library.
 *
 * At the start of a collective each rank describes its part (struct part) in memory that the other
 * ranks see, and enters a barrier. After it all ranks know whether one of them cannot take part (a
 * derived type, a buffer in no zone): either all go on to the library or none does. A second
 * barrier ends the collective; after it buffers may change. Before the first barrier every rank
 * must decide alike, from what MPI requires to be the same at all ranks: the communicator, the
 * operation, the number of bytes.
 *
 * A waiting rank lets the MPI library make progress, since other ranks may wait for its messages.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

#define MOST_RANKS	64
/* Looks at a flag before a rank yields, if each rank has a CPU. */
#define SPINS		500
/* Yields between two calls for the library's progress. */
#define PROGRESS	4

/*
 * From this many bytes on (of a rank, or between two ranks) this library takes fewer instructions
 * than the MPI library: docs/mpi.md has the figures. HPMMAP_MPI_MIN_BYTES in the environment
 * replaces all of them.
 */
enum kind { BCAST, REDUCE, ALLREDUCE, ALLGATHER, ALLTOALL, ALLTOALLV, NR_KINDS };
static size_t min_bytes[NR_KINDS] = {
	[BCAST] = 4096,
	[REDUCE] = 4096,
	[ALLREDUCE] = 2048,
	[ALLGATHER] = 2048,
	[ALLTOALL] = 2048,
	/* The bytes of all ranks together. */
	[ALLTOALLV] = 0,
};

/* A rank's part in a collective. */
struct part {
	bool cannot;
	const void *send;
	void *recv;
	/* MPI_Alltoallv: the offset of the data for each rank, and the size of an element. */
	const int *displs;
	size_t size;
	size_t total;
} __attribute__((aligned(64)));

/*
 * The memory of a rank that the others see. Two parts in turn, since one may still be read when the
 * next collective begins.
 */
struct control {
	_Atomic uint32_t arrived __attribute__((aligned(64)));
	_Atomic uint32_t released __attribute__((aligned(64)));
	struct part part[2];
};

/* A communicator whose ranks all see each other. */
struct group {
	int rank;
	int size;
	uint32_t barriers;
	uint32_t collectives;
	struct control *own;
	struct control *control[MOST_RANKS];
	struct hpmmap_peer *peer[MOST_RANKS];
};

/* Each rank sends this to the others when a communicator is first used. */
struct hello {
	struct hpmmap_space space;
	uint64_t control;
	int32_t ok;
	int32_t pad;
};

static struct hpmmap_space own_space;
static int keyval = MPI_KEYVAL_INVALID;
static int spins = SPINS;
/* Marks a communicator that is left to the library. */
static struct group none;
static pthread_mutex_t setup_lock = PTHREAD_MUTEX_INITIALIZER;

/* Attached peers: communicators share them, and they are never detached. */
static struct known {
	struct known *next;
	int64_t id;
	struct hpmmap_peer *peer;
} *known;

/* ---- Groups ------------------------------------------------------------ */

static struct hpmmap_peer *peer_of(const struct hpmmap_space *space)
{
	struct known *one;

	for (one = known; one; one = one->next)
		if (one->id == space->id)
			return one->peer;
	one = malloc(sizeof(*one));
	if (!one)
		return NULL;
	one->id = space->id;
	one->peer = hpmmap_peer_attach(space);
	if (!one->peer) {
		free(one);
		return NULL;
	}
	one->next = known;
	known = one;
	return one->peer;
}

static void group_free(struct group *group)
{
	if (!group || group == &none)
		return;
	free(group->own);
	free(group);
}

static void read_environment(void)
{
	const char *bytes = getenv("HPMMAP_MPI_MIN_BYTES");

	for (int kind = 0; bytes && kind < NR_KINDS; kind++)
		min_bytes[kind] = strtoull(bytes, NULL, 0);
}

/* Are all ranks of the communicator on this host? */
static bool is_local(MPI_Comm comm, int size)
{
	MPI_Comm local;
	int local_size = 0;

	if (PMPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local) != MPI_SUCCESS)
		return false;
	PMPI_Comm_size(local, &local_size);
	PMPI_Comm_free(&local);
	return local_size == size;
}

/* Caller holds setup_lock. */
static bool attach_all(struct group *group, const struct hello *hellos)
{
	for (int i = 0; i < group->size; i++) {
		if (!hellos[i].ok)
			return false;
		group->peer[i] = peer_of(&hellos[i].space);
		if (!group->peer[i])
			return false;
		group->control[i] = peer_ptr(group->peer[i], (void *)(uintptr_t)hellos[i].control);
		if (!group->control[i])
			return false;
	}
	return true;
}

/* Returns a group, or none; all ranks get the same answer. */
static struct group *group_make(MPI_Comm comm)
{
	struct hello hellos[MOST_RANKS], hello = { .ok = 0 };
	struct group *group;
	int inter, size, ok, all;

	PMPI_Comm_test_inter(comm, &inter);
	PMPI_Comm_size(comm, &size);
	if (inter || size < 2 || size > MOST_RANKS || !is_local(comm, size))
		return &none;
	group = calloc(1, sizeof(*group));
	if (group) {
		PMPI_Comm_rank(comm, &group->rank);
		group->size = size;
		group->own = aligned_alloc(4096, (sizeof(*group->own) + 4095) & ~(size_t)4095);
	}
	if (group && group->own) {
		memset(group->own, 0, sizeof(*group->own));
		hello.control = (uintptr_t)group->own;
		hello.ok = hpmmap_space_publish(&own_space) == 0 &&
			   hpmmap_space_has(&own_space, group->own, sizeof(*group->own));
		hello.space = own_space;
	}
	PMPI_Allgather(&hello, sizeof(hello), MPI_BYTE, hellos, sizeof(hello), MPI_BYTE, comm);
	pthread_mutex_lock(&setup_lock);
	ok = hello.ok && attach_all(group, hellos);
	pthread_mutex_unlock(&setup_lock);
	PMPI_Allreduce(&ok, &all, 1, MPI_INT, MPI_MIN, comm);
	if (all)
		return group;
	group_free(group);
	return &none;
}

static struct group *group_of(MPI_Comm comm)
{
	struct group *group;
	int found = 0;

	if (comm == MPI_COMM_NULL)
		return NULL;
	if (keyval == MPI_KEYVAL_INVALID) {
		pthread_mutex_lock(&setup_lock);
		if (keyval == MPI_KEYVAL_INVALID) {
			read_environment();
			PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &keyval, NULL);
		}
		pthread_mutex_unlock(&setup_lock);
	}
	PMPI_Comm_get_attr(comm, keyval, &group, &found);
	if (!found) {
		group = group_make(comm);
		if (group->size > sysconf(_SC_NPROCESSORS_ONLN))
			spins = 0;
		PMPI_Comm_set_attr(comm, keyval, group);
	}
	return group == &none ? NULL : group;
}

/* ---- Barriers ---------------------------------------------------------- */

static bool has_come(_Atomic uint32_t *counter, uint32_t wanted)
{
	return (int32_t)(atomic_load_explicit(counter, memory_order_acquire) - wanted) >= 0;
}

static void wait_for(_Atomic uint32_t *counter, uint32_t wanted)
{
	int flag;

	for (int i = 0; i < spins; i++) {
		if (has_come(counter, wanted))
			return;
		__builtin_ia32_pause();
	}
	for (unsigned int i = 1; !has_come(counter, wanted); i++) {
		if (i % PROGRESS == 0)
			PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE);
		sched_yield();
	}
}

/* After it all ranks see what any of them wrote before. */
static void barrier(struct group *group)
{
	uint32_t wanted = ++group->barriers;

	__builtin_ia32_sfence();
	if (group->rank == 0) {
		for (int i = 1; i < group->size; i++)
			wait_for(&group->control[i]->arrived, wanted);
		atomic_store(&group->own->released, wanted);
	} else {
		atomic_store(&group->own->arrived, wanted);
		wait_for(&group->control[0]->released, wanted);
	}
}

/* Returns this rank's address of another rank's buffer. */
static char *at(const struct group *group, int rank, const void *ptr)
{
	return peer_ptr(group->peer[rank], ptr);
}

static const struct part *part_of(const struct group *group, int rank)
{
	return &group->control[rank]->part[group->collectives & 1];
}

static bool in_zone(const void *buffer, size_t bytes)
{
	return bytes == 0 || hpmmap_space_has(&own_space, buffer, bytes);
}

/* Publishes this rank's part; true if all ranks can take part. */
static bool begin(struct group *group, const struct part *part)
{
	group->collectives++;
	group->own->part[group->collectives & 1] = *part;
	barrier(group);
	for (int i = 0; i < group->size; i++)
		if (part_of(group, i)->cannot)
			return false;
	return true;
}

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

static void copy(void *to, const void *from, size_t bytes)
{
	if (bytes < COPY_LARGE)
		copy_vectors(to, from, bytes);
	else
		memcpy(to, from, bytes);
}

/* ---- Types and operations ----------------------------------------------- */

/* Are the elements contiguous, without gaps? */
static bool is_plain(MPI_Datatype type)
{
	int integers, addresses, types, combiner, size;
	MPI_Aint low, extent;

	if (type == MPI_DATATYPE_NULL)
		return false;
	PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
	if (combiner != MPI_COMBINER_NAMED)
		return false;
	PMPI_Type_get_extent(type, &low, &extent);
	PMPI_Type_size(type, &size);
	return low == 0 && extent == size;
}

static size_t size_of(MPI_Datatype type)
{
	int size = 0;

	PMPI_Type_size(type, &size);
	return size < 0 ? 0 : (size_t)size;
}

/* Is it a predefined operation? A user's may do anything with the memory of another process. */
static bool is_known(MPI_Op op)
{
	const MPI_Op ops[] = {
		MPI_SUM, MPI_MAX, MPI_MIN, MPI_PROD, MPI_BAND, MPI_BOR, MPI_BXOR, MPI_LAND, MPI_LOR, MPI_LXOR,
	};

	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
		if (op == ops[i])
			return true;
	return false;
}

/* Returns the group if this library does the collective; the decision is the same at all ranks. */
static struct group *group_for(enum kind kind, MPI_Comm comm, size_t bytes)
{
	struct group *group = group_of(comm);

	return group && bytes >= min_bytes[kind] ? group : NULL;
}

/* ---- Collectives ---------------------------------------------------------- */

/* Other ranks may still look whether this rank has reached the last barrier. */
PUBLIC int MPI_Comm_free(MPI_Comm *comm)
{
	struct group *group = NULL;
	int found = 0;

	if (keyval != MPI_KEYVAL_INVALID && *comm != MPI_COMM_NULL)
		PMPI_Comm_get_attr(*comm, keyval, &group, &found);
	if (found && group != &none) {
		PMPI_Barrier(*comm);
		PMPI_Comm_delete_attr(*comm, keyval);
		group_free(group);
	}
	return PMPI_Comm_free(comm);
}

PUBLIC int MPI_Barrier(MPI_Comm comm)
{
	struct group *group = group_of(comm);

	/* Between two ranks the library is cheaper. */
	if (!group || group->size == 2)
		return PMPI_Barrier(comm);
	barrier(group);
	return MPI_SUCCESS;
}

PUBLIC int MPI_Bcast(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm)
{
	size_t bytes = (size_t)count * size_of(type);
	struct group *group = group_for(BCAST, comm, bytes);
	struct part part = { .send = buffer };

	if (!group)
		return PMPI_Bcast(buffer, count, type, root, comm);
	part.cannot = !is_plain(type) || !in_zone(buffer, bytes) || root < 0 || root >= group->size;
	if (!begin(group, &part))
		return PMPI_Bcast(buffer, count, type, root, comm);
	if (group->rank != root)
		copy(buffer, at(group, root, part_of(group, root)->send), bytes);
	barrier(group);
	return MPI_SUCCESS;
}

/* The elements that one rank reduces. */
struct chunk {
	size_t off;
	size_t bytes;
	int count;
};

static struct chunk chunk_of(const struct group *group, int rank, int count, size_t size)
{
	size_t n = (size_t)group->size, first = (size_t)count * (size_t)rank / n;
	size_t end = (size_t)count * ((size_t)rank + 1) / n;

	return (struct chunk){ first * size, (end - first) * size, (int)(end - first) };
}

/* Reduces the chunks of all other ranks into dest. */
static void reduce_chunk(const struct group *group, struct chunk chunk, void *dest, int but, MPI_Datatype type, MPI_Op op)
{
	for (int i = 1; i <= group->size; i++) {
		int rank = (group->rank + i) % group->size;

		if (rank != but)
			PMPI_Reduce_local(at(group, rank, part_of(group, rank)->send) + chunk.off, dest, chunk.count, type, op);
	}
}

PUBLIC int MPI_Reduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm)
{
	size_t size = size_of(type), bytes = (size_t)count * size;
	struct group *group = is_known(op) ? group_for(REDUCE, comm, bytes) : NULL;
	bool is_root = group && group->rank == root;
	struct part part = { .send = is_root && send == MPI_IN_PLACE ? recv : send, .recv = recv };
	const struct part *roots;
	struct chunk chunk;
	char *dest;

	if (!group)
		return PMPI_Reduce(send, recv, count, type, op, root, comm);
	part.cannot = !is_plain(type) || !in_zone(part.send, bytes) || (is_root && !in_zone(recv, bytes)) ||
		      root < 0 || root >= group->size;
	if (!begin(group, &part))
		return PMPI_Reduce(send, recv, count, type, op, root, comm);
	roots = part_of(group, root);
	chunk = chunk_of(group, group->rank, count, size);
	dest = at(group, root, roots->recv) + chunk.off;
	/* In place, the root's own data is there already. */
	if (roots->send == roots->recv) {
		reduce_chunk(group, chunk, dest, root, type, op);
	} else {
		copy(dest, (const char *)send + chunk.off, chunk.bytes);
		reduce_chunk(group, chunk, dest, group->rank, type, op);
	}
	barrier(group);
	return MPI_SUCCESS;
}

PUBLIC int MPI_Allreduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
	size_t size = size_of(type), bytes = (size_t)count * size;
	struct group *group = is_known(op) ? group_for(ALLREDUCE, comm, bytes) : NULL;
	struct part part = { .send = send == MPI_IN_PLACE ? recv : send, .recv = recv };
	struct chunk chunk;

	if (!group)
		return PMPI_Allreduce(send, recv, count, type, op, comm);
	part.cannot = !is_plain(type) || !in_zone(part.send, bytes) || !in_zone(recv, bytes);
	if (!begin(group, &part))
		return PMPI_Allreduce(send, recv, count, type, op, comm);
	/* Reduce this rank's chunk and, after a barrier, copy the chunks of the others. */
	chunk = chunk_of(group, group->rank, count, size);
	if (send != MPI_IN_PLACE)
		copy((char *)recv + chunk.off, (const char *)send + chunk.off, chunk.bytes);
	reduce_chunk(group, chunk, (char *)recv + chunk.off, group->rank, type, op);
	barrier(group);
	for (int i = 1; i < group->size; i++) {
		int rank = (group->rank + i) % group->size;

		chunk = chunk_of(group, rank, count, size);
		copy((char *)recv + chunk.off, at(group, rank, part_of(group, rank)->recv) + chunk.off, chunk.bytes);
	}
	barrier(group);
	return MPI_SUCCESS;
}

PUBLIC int MPI_Allgather(const void *send, int send_count, MPI_Datatype send_type, void *recv, int recv_count,
			 MPI_Datatype recv_type, MPI_Comm comm)
{
	size_t bytes = (size_t)recv_count * size_of(recv_type);
	struct group *group = group_for(ALLGATHER, comm, bytes);
	struct part part = { .send = send };
	bool in_place = send == MPI_IN_PLACE;

	if (!group)
		return PMPI_Allgather(send, send_count, send_type, recv, recv_count, recv_type, comm);
	if (in_place)
		part.send = (char *)recv + bytes * (size_t)group->rank;
	part.cannot = !is_plain(recv_type) || !in_zone(part.send, bytes) ||
		      (!in_place && (!is_plain(send_type) || (size_t)send_count * size_of(send_type) != bytes));
	if (!begin(group, &part))
		return PMPI_Allgather(send, send_count, send_type, recv, recv_count, recv_type, comm);
	for (int i = 0; i < group->size; i++) {
		int rank = (group->rank + i) % group->size;

		if (i || !in_place)
			copy((char *)recv + bytes * (size_t)rank, at(group, rank, part_of(group, rank)->send), bytes);
	}
	barrier(group);
	return MPI_SUCCESS;
}

PUBLIC int MPI_Alltoall(const void *send, int send_count, MPI_Datatype send_type, void *recv, int recv_count,
			MPI_Datatype recv_type, MPI_Comm comm)
{
	size_t bytes = (size_t)recv_count * size_of(recv_type);
	struct group *group = group_for(ALLTOALL, comm, bytes);
	struct part part = { .send = send };

	if (!group)
		return PMPI_Alltoall(send, send_count, send_type, recv, recv_count, recv_type, comm);
	part.cannot = send == MPI_IN_PLACE || !is_plain(recv_type) || !is_plain(send_type) ||
		      (size_t)send_count * size_of(send_type) != bytes || !in_zone(send, bytes * (size_t)group->size);
	if (!begin(group, &part))
		return PMPI_Alltoall(send, send_count, send_type, recv, recv_count, recv_type, comm);
	for (int i = 0; i < group->size; i++) {
		int rank = (group->rank + i) % group->size;

		copy((char *)recv + bytes * (size_t)rank,
		       at(group, rank, part_of(group, rank)->send) + bytes * (size_t)group->rank, bytes);
	}
	barrier(group);
	return MPI_SUCCESS;
}

/* Is all data for others in a zone? Adds up its bytes. */
static bool pieces_in_zone(const struct group *group, const void *send, const int *counts, const int *displs, size_t size,
			   size_t *total)
{
	bool all = in_zone(displs, sizeof(*displs) * (size_t)group->size);

	*total = 0;
	for (int i = 0; i < group->size; i++) {
		size_t bytes = (size_t)counts[i] * size;

		*total += bytes;
		all = all && in_zone((const char *)send + (ptrdiff_t)displs[i] * (ptrdiff_t)size, bytes);
	}
	return all;
}

/* The total, which only all ranks together know. */
static size_t total_of_all(const struct group *group)
{
	size_t total = 0;

	for (int i = 0; i < group->size; i++)
		total += part_of(group, i)->total;
	return total;
}

PUBLIC int MPI_Alltoallv(const void *send, const int *send_counts, const int *send_displs, MPI_Datatype send_type,
			 void *recv, const int *recv_counts, const int *recv_displs, MPI_Datatype recv_type, MPI_Comm comm)
{
	struct group *group = group_of(comm);
	size_t size = size_of(recv_type);
	struct part part = { .send = send, .displs = send_displs };

	if (!group)
		goto library;
	part.cannot = send == MPI_IN_PLACE || !is_plain(recv_type) || !is_plain(send_type);
	part.size = part.cannot ? 0 : size_of(send_type);
	part.cannot = part.cannot || !pieces_in_zone(group, send, send_counts, send_displs, part.size, &part.total);
	if (!begin(group, &part) || total_of_all(group) < min_bytes[ALLTOALLV])
		goto library;
	for (int i = 0; i < group->size; i++) {
		int rank = (group->rank + i) % group->size;
		const struct part *theirs = part_of(group, rank);
		const int *displs = (const int *)at(group, rank, theirs->displs);
		ptrdiff_t off = (ptrdiff_t)displs[group->rank] * (ptrdiff_t)theirs->size;
		size_t bytes = (size_t)recv_counts[rank] * size;

		if (bytes)
			copy((char *)recv + (ptrdiff_t)recv_displs[rank] * (ptrdiff_t)size,
			       at(group, rank, (const char *)theirs->send + off), bytes);
	}
	barrier(group);
	return MPI_SUCCESS;
library:
	return PMPI_Alltoallv(send, send_counts, send_displs, send_type, recv, recv_counts, recv_displs, recv_type, comm);
}
