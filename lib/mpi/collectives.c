// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * libhpmmap_mpi: collectives of MPI in place, between ranks of one host.
 *
 * Preloaded into an MPI program, it replaces some collectives through MPI's profiling interface.
 * Ranks have windows onto each other, so each reads data where it is: nothing is packed, sent or
 * copied twice. All other calls go on to the MPI library. This file has communicators that are on one
 * host, hosts.c those that span several.
 *
 * At the start of a collective each rank describes its part (struct part) in memory that the other
 * ranks see, and enters a barrier. After it all ranks know whether one of them cannot take part (a
 * derived type, a buffer in no zone): either all go on to the library or none does. A second
 * barrier ends the collective; after it buffers may change. Before the first barrier every rank
 * must decide alike, from what MPI requires to be the same at all ranks: the communicator, the
 * operation, the number of bytes.
 */
#include <limits.h>

#include "group.h"

static int ranks_of(const struct group *group)
{
	return group->hosts ? group->hosts->size : group->size;
}

/* On one host the reason does not matter: the MPI library finds it, too. */
static int error_if(bool cannot)
{
	return cannot ? MPI_ERR_OTHER : MPI_SUCCESS;
}

PUBLIC int MPI_Barrier(MPI_Comm comm)
{
	struct group *group = group_for(BARRIER, comm, 0);

	if (group && group->hosts)
		return hosts_barrier(group, comm);
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
	struct part part = { .send = buffer, .bytes = bytes };

	if (!group)
		return PMPI_Bcast(buffer, count, type, root, comm);
	if (group->hosts)
		return hosts_bcast(group, buffer, count, type, root, comm);
	part.error = error_if(!is_rank_of(group->size, root) || !is_plain(type) || !in_zone(buffer, bytes));
	if (!begin(group, &part))
		return PMPI_Bcast(buffer, count, type, root, comm);
	if (group->rank != root)
		copy(buffer, at(group, root, part_of(group, root)->send), bytes);
	barrier(group);
	return MPI_SUCCESS;
}

PUBLIC int MPI_Reduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm)
{
	size_t bytes = (size_t)count * size_of(type);
	struct group *group = is_reducible(op, type) ? group_for(REDUCE, comm, bytes) : NULL;
	bool is_root = group && group->rank == root;
	struct part part = { .send = is_root && send == MPI_IN_PLACE ? recv : send, .recv = recv, .bytes = bytes };

	if (!group)
		return PMPI_Reduce(send, recv, count, type, op, root, comm);
	if (group->hosts)
		return hosts_reduce(group, send, recv, count, type, op, root, comm);
	part.error = error_if(!is_rank_of(group->size, root) || !is_plain(type) || !in_zone(part.send, bytes) ||
			      (is_root && !in_zone(recv, bytes)));
	if (!begin(group, &part))
		return PMPI_Reduce(send, recv, count, type, op, root, comm);
	reduce_into(group, root, count, type, op);
	barrier(group);
	return MPI_SUCCESS;
}

PUBLIC int MPI_Allreduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
	size_t bytes = (size_t)count * size_of(type);
	struct group *group = is_reducible(op, type) ? group_for(ALLREDUCE, comm, bytes) : NULL;
	struct part part = { .send = send == MPI_IN_PLACE ? recv : send, .recv = recv, .bytes = bytes };

	if (!group)
		return PMPI_Allreduce(send, recv, count, type, op, comm);
	if (group->hosts)
		return hosts_allreduce(group, send, recv, count, type, op, comm);
	part.error = error_if(!is_plain(type) || !in_zone(part.send, bytes) || !in_zone(recv, bytes));
	if (!begin(group, &part))
		return PMPI_Allreduce(send, recv, count, type, op, comm);
	/* Reduce this rank's chunk and, after a barrier, copy the chunks of the others. */
	reduce_own(group, recv, count, type, op);
	barrier(group);
	copy_chunks(group, recv, count, type);
	barrier(group);
	return MPI_SUCCESS;
}

PUBLIC int MPI_Allgather(const void *send, int send_count, MPI_Datatype send_type, void *recv, int recv_count,
			 MPI_Datatype recv_type, MPI_Comm comm)
{
	size_t bytes = (size_t)recv_count * size_of(recv_type);
	struct group *group = group_for(ALLGATHER, comm, bytes);
	struct part part = { .send = send, .bytes = bytes };
	bool in_place = send == MPI_IN_PLACE;

	if (!group)
		return PMPI_Allgather(send, send_count, send_type, recv, recv_count, recv_type, comm);
	if (group->hosts)
		return hosts_allgather(group, send, send_count, send_type, recv, recv_count, recv_type, comm);
	if (in_place)
		part.send = (char *)recv + bytes * (size_t)group->rank;
	part.error = error_if(!is_plain(recv_type) || !in_zone(part.send, bytes) ||
			      (!in_place && (!is_plain(send_type) || (size_t)send_count * size_of(send_type) != bytes)));
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

PUBLIC int MPI_Gather(const void *send, int send_count, MPI_Datatype send_type, void *recv, int recv_count,
		      MPI_Datatype recv_type, int root, MPI_Comm comm)
{
	int rank = MPI_PROC_NULL, is_inter = 0;
	bool in_place = send == MPI_IN_PLACE;
	struct group *group;
	struct part part;
	size_t bytes;

	/* Between groups of ranks only some of the arguments are significant. */
	if (comm != MPI_COMM_NULL)
		PMPI_Comm_test_inter(comm, &is_inter);
	if (is_inter)
		return PMPI_Gather(send, send_count, send_type, recv, recv_count, recv_type, root, comm);
	/* Only the root has what is received, and only it may have nothing to send. */
	if (comm != MPI_COMM_NULL)
		PMPI_Comm_rank(comm, &rank);
	bytes = rank == root ? (size_t)recv_count * size_of(recv_type) : (size_t)send_count * size_of(send_type);
	group = group_for(GATHER, comm, bytes);
	if (!group)
		return PMPI_Gather(send, send_count, send_type, recv, recv_count, recv_type, root, comm);
	if (group->hosts)
		return hosts_gather(group, send, send_count, send_type, recv, recv_count, recv_type, root, comm);
	part = (struct part){ .recv = recv, .bytes = bytes };
	part.error = error_if(!is_rank_of(group->size, root) ||
			      (!in_place && (!is_plain(send_type) || (size_t)send_count * size_of(send_type) != bytes)) ||
			      (rank == root && (!is_plain(recv_type) || !in_zone(recv, bytes * (size_t)group->size))));
	if (!begin(group, &part))
		return PMPI_Gather(send, send_count, send_type, recv, recv_count, recv_type, root, comm);
	/* In place, the root's data is where it has to be. */
	if (!in_place)
		copy(at(group, root, part_of(group, root)->recv) + bytes * (size_t)rank, send, bytes);
	barrier(group);
	return MPI_SUCCESS;
}

PUBLIC int MPI_Alltoall(const void *send, int send_count, MPI_Datatype send_type, void *recv, int recv_count,
			MPI_Datatype recv_type, MPI_Comm comm)
{
	size_t bytes = (size_t)recv_count * size_of(recv_type);
	struct group *group = group_for(ALLTOALL, comm, bytes);
	struct part part = { .send = send, .bytes = bytes };

	if (!group)
		return PMPI_Alltoall(send, send_count, send_type, recv, recv_count, recv_type, comm);
	if (group->hosts)
		return hosts_alltoall(group, send, send_count, send_type, recv, recv_count, recv_type, comm);
	part.error = error_if(send == MPI_IN_PLACE || !is_plain(recv_type) || !is_plain(send_type) ||
			      (size_t)send_count * size_of(send_type) != bytes || !in_zone(send, bytes * (size_t)group->size));
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

/* Describes the data for the ranks of this host: can they copy it? */
static struct part part_for_host(const struct group *group, const void *send, const int *counts, const int *displs,
				 MPI_Datatype send_type, MPI_Datatype recv_type)
{
	struct part part = { .send = send, .counts = counts, .displs = displs };
	size_t numbers = sizeof(*displs) * (size_t)ranks_of(group);
	bool cannot = !is_plain(send_type) || !is_plain(recv_type) || !in_zone(counts, numbers) || !in_zone(displs, numbers);

	for (int i = 0; i < group->size && !cannot; i++) {
		int rank = group->ranks[i];
		size_t bytes;

		part.size = size_of(send_type);
		bytes = (size_t)counts[rank] * part.size;
		part.total += bytes;
		cannot = !in_zone((const char *)send + (ptrdiff_t)displs[rank] * (ptrdiff_t)part.size, bytes);
	}
	part.error = error_if(cannot);
	return part;
}

/* Copies what the ranks of this host have for this one, or as much of it as this one has room for. */
static int copy_from_host(const struct group *group, char *recv, const int *counts, const int *displs, size_t size)
{
	int me = group->ranks[group->rank], err = MPI_SUCCESS;

	for (int i = 0; i < group->size; i++) {
		int peer = (group->rank + i) % group->size, rank = group->ranks[peer];
		const struct part *theirs = part_of(group, peer);
		size_t sent = (size_t)((const int *)at(group, peer, theirs->counts))[me] * theirs->size;
		size_t bytes = counts[rank] < 0 ? 0 : (size_t)counts[rank] * size;
		ptrdiff_t off = (ptrdiff_t)((const int *)at(group, peer, theirs->displs))[me] * (ptrdiff_t)theirs->size;

		if (sent != bytes)
			err = MPI_ERR_TRUNCATE;
		bytes = sent < bytes ? sent : bytes;
		if (bytes)
			copy(recv + (ptrdiff_t)displs[rank] * (ptrdiff_t)size, at(group, peer, (const char *)theirs->send + off), bytes);
	}
	return err;
}

/* The average between two ranks of this host, which only all of them together know. */
static size_t average_of_all(const struct group *group)
{
	size_t total = 0, ranks = (size_t)group->size;

	for (int i = 0; i < group->size; i++)
		total += part_of(group, i)->total;
	return total / ranks / ranks;
}

/* Messages within this host by the MPI library. */
static int alltoallv_local(const struct group *group, const void *send, const int *send_counts, const int *send_displs,
			   MPI_Datatype send_type, void *recv, const int *recv_counts, const int *recv_displs,
			   MPI_Datatype recv_type)
{
	const int *all[] = { send_counts, send_displs, recv_counts, recv_displs };
	int local[4][MOST_RANKS];

	for (int i = 0; i < 4; i++)
		for (int j = 0; j < group->size; j++)
			local[i][j] = all[i][group->ranks[j]];
	return PMPI_Alltoallv(send, local[0], local[1], send_type, recv, local[2], local[3], recv_type, group->local);
}

/*
 * The messages between hosts are under way while those within a host are copied: nothing is waited for twice. Which of
 * these are copied in place is the host's own affair.
 */
int alltoallv(struct group *group, const void *send, const int *send_counts, const int *send_displs, MPI_Datatype send_type,
	      void *recv, const int *recv_counts, const int *recv_displs, MPI_Datatype recv_type, MPI_Comm comm)
{
	struct part part = part_for_host(group, send, send_counts, send_displs, send_type, recv_type);
	MPI_Request request = MPI_REQUEST_NULL;
	int refused = MPI_SUCCESS, all, err, sent;
	bool in_place;

	if (!recv_counts || !recv_displs)
		part.error = MPI_ERR_OTHER;
	if (group->hosts)
		refused = hosts_alltoallv_begin(group, send, send_counts, send_displs, send_type, recv, recv_counts, recv_displs,
						recv_type, comm, &request);
	if (refused != MPI_SUCCESS)
		part.error = REFUSED + refused;
	begin(group, &part);
	all = error_of(group);
	in_place = all == MPI_SUCCESS && is_enough(group, ALLTOALLV, average_of_all(group));
	if (in_place)
		err = copy_from_host(group, recv, recv_counts, recv_displs, size_of(recv_type));
	else if (all >= REFUSED)
		err = all - REFUSED;
	else if (group->hosts)
		err = alltoallv_local(group, send, send_counts, send_displs, send_type, recv, recv_counts, recv_displs, recv_type);
	else
		return PMPI_Alltoallv(send, send_counts, send_displs, send_type, recv, recv_counts, recv_displs, recv_type, comm);
	if (in_place && group->rank != 0)
		arrive(group);
	sent = PMPI_Wait(&request, MPI_STATUS_IGNORE);
	if (in_place) {
		if (group->rank == 0)
			arrive(group);
		depart(group);
	}
	/* The MPI library has called the error handler for the errors that it returned. */
	if (refused != MPI_SUCCESS || sent != MPI_SUCCESS)
		return refused != MPI_SUCCESS ? refused : sent;
	if (err != MPI_SUCCESS)
		PMPI_Comm_call_errhandler(comm, err);
	return err;
}

PUBLIC int MPI_Alltoallv(const void *send, const int *send_counts, const int *send_displs, MPI_Datatype send_type,
			 void *recv, const int *recv_counts, const int *recv_displs, MPI_Datatype recv_type, MPI_Comm comm)
{
	/* No rank knows the lengths of all yet. */
	struct group *group = group_for(ALLTOALLV, comm, SSIZE_MAX);

	if (!group || send == MPI_IN_PLACE)
		return PMPI_Alltoallv(send, send_counts, send_displs, send_type, recv, recv_counts, recv_displs, recv_type, comm);
	return alltoallv(group, send, send_counts, send_displs, send_type, recv, recv_counts, recv_displs, recv_type, comm);
}
