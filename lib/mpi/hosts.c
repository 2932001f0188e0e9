// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Collectives of communicators that span hosts: on each host in place, between hosts by the MPI
 * library, for the leaders (or, where that is cheaper, for each rank).
 *
 * Hosts cannot ask each other whether a rank is unable to take part without a message. So every rank
 * takes part: data of a derived type, or that the others cannot see, is packed into memory that they do.
 * What differs from host to host is only what the other hosts do not notice.
 *
 * The MPI library gets memory of its own process only, never a window: that may not be pinned.
 */
#include <stdlib.h>
#include <string.h>

#include "group.h"

/*
 * Up to so many bytes between two ranks MPI_Alltoall sends one message between two hosts. That takes fewer
 * instructions than a message for each pair of ranks, but it copies the data twice more.
 */
#define ALLTOALL_TOGETHER	((size_t)128 << 10)
/* The most that is sent so from a host. */
#define ALLTOALL_MOST		((size_t)16 << 20)

/* Where the data of each host is, for the MPI library. */
struct pieces {
	int *counts;
	int *displs;
};

/* ---- Helpers ---------------------------------------------------------------- */

static int failed(MPI_Comm comm, int err)
{
	PMPI_Comm_call_errhandler(comm, err);
	return err;
}

static int result(MPI_Comm comm, int err)
{
	return err == MPI_SUCCESS ? err : failed(comm, err);
}

/* What all ranks send and receive must be as long. */
static bool is_long(size_t bytes, const void *send, int count, MPI_Datatype type)
{
	return send == MPI_IN_PLACE || (size_t)count * size_of(type) == bytes;
}

static bool is_leader(const struct group *group)
{
	return group->rank == 0;
}

static int local_rank(const struct hosts *hosts, int rank)
{
	return hosts->place[rank] - hosts->first[hosts->host[rank]];
}

static int ranks_on(const struct hosts *hosts, int host)
{
	return hosts->first[host + 1] - hosts->first[host];
}

/*
 * Memory that the ranks of this host see. No other rank may still use what the last call returned. NULL:
 * there is none.
 */
static char *scratch_of(struct hosts *hosts, size_t bytes)
{
	if (bytes > hosts->room) {
		free(hosts->scratch);
		hosts->scratch = malloc(bytes);
		hosts->room = hosts->scratch ? bytes : 0;
	}
	/* Not NULL if nothing is needed. */
	return bytes == 0 ? (char *)hosts : in_zone(hosts->scratch, bytes) ? hosts->scratch : NULL;
}

static bool is_visible(const void *buffer, size_t bytes, MPI_Datatype type)
{
	return is_plain(type) && in_zone(buffer, bytes);
}

/*
 * Converts data between two types, both in memory of this process: the library may read a message by the
 * kernel, which sees no window. MPI_Pack would take no MPI_BOTTOM in MPICH, and its errors end the program.
 */
static int convert(const struct group *group, const void *from, int from_count, MPI_Datatype from_type, void *to,
		   int to_count, MPI_Datatype to_type)
{
	return PMPI_Sendrecv(from, from_count, from_type, group->rank, 0, to, to_count, to_type, group->rank, 0, group->local,
			     MPI_STATUS_IGNORE);
}

/* Packs blocks of count elements each; bytes is the size of a block. */
static int pack(const struct group *group, void *to, const void *from, int blocks, int count, MPI_Datatype type, size_t bytes)
{
	int err = MPI_SUCCESS;
	MPI_Aint low, extent;
	char *own;

	if (is_plain(type)) {
		copy(to, from, bytes * (size_t)blocks);
		return err;
	}
	own = malloc(bytes);
	if (!own && bytes)
		return MPI_ERR_NO_MEM;
	PMPI_Type_get_extent(type, &low, &extent);
	for (int i = 0; i < blocks && err == MPI_SUCCESS; i++) {
		err = convert(group, (const char *)from + extent * count * i, count, type, own, (int)bytes, MPI_PACKED);
		copy((char *)to + bytes * (size_t)i, own, bytes);
	}
	free(own);
	return err;
}

/* Writes one block of a buffer. */
static int unpack(const struct group *group, void *to, int block, int count, MPI_Datatype type, const void *from, size_t bytes)
{
	MPI_Aint low, extent;
	char *own;
	int err;

	if (is_plain(type)) {
		copy((char *)to + bytes * (size_t)block, from, bytes);
		return MPI_SUCCESS;
	}
	own = malloc(bytes);
	if (!own && bytes)
		return MPI_ERR_NO_MEM;
	copy(own, from, bytes);
	PMPI_Type_get_extent(type, &low, &extent);
	err = convert(group, own, (int)bytes, MPI_PACKED, (char *)to + extent * count * block, count, type);
	free(own);
	return err;
}

/* The first error of two. */
static int first_of(int err, int next)
{
	return err == MPI_SUCCESS ? next : err;
}

static void publish(struct group *group, const void *send, void *recv)
{
	begin(group, &(struct part){ .send = send, .recv = recv });
}

/* A barrier after which all ranks have the leader's error. */
static int told(struct group *group, int err)
{
	if (is_leader(group))
		group->own->error = err;
	barrier(group);
	return group->control[0]->error;
}

/* The counts and offsets of bytes for each host, if each of its ranks has so many. */
static struct pieces pieces_of(const struct hosts *hosts, size_t bytes)
{
	struct pieces pieces = { hosts->counts, hosts->counts + hosts->nr };

	for (int host = 0; host < hosts->nr; host++) {
		pieces.counts[host] = (int)bytes * ranks_on(hosts, host);
		pieces.displs[host] = (int)bytes * hosts->first[host];
	}
	return pieces;
}

/* ---- Collectives -------------------------------------------------------------- */

int hosts_barrier(struct group *group, MPI_Comm comm)
{
	int err = MPI_SUCCESS;

	arrive(group);
	if (is_leader(group))
		err = group->own->error = PMPI_Barrier(group->hosts->leaders);
	depart(group);
	err = group->control[0]->error;
	return result(comm, err);
}

int hosts_bcast(struct group *group, void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm)
{
	struct hosts *hosts = group->hosts;
	size_t bytes = (size_t)count * size_of(type);
	bool here = hosts->host[root] == hosts->own;
	int source = here ? local_rank(hosts, root) : 0, err = MPI_SUCCESS, own_err = MPI_SUCCESS;
	char *data = is_visible(buffer, bytes, type) ? buffer : scratch_of(hosts, bytes);

	if (!data)
		return failed(comm, MPI_ERR_NO_MEM);
	if (hosts->rank == root && data != buffer)
		own_err = pack(group, data, buffer, 1, count, type, bytes);
	if (is_leader(group) && !here)
		err = PMPI_Bcast(data, (int)bytes, MPI_BYTE, hosts->host[root], hosts->leaders);
	publish(group, data, NULL);
	if (group->rank != source)
		copy(data, at(group, source, part_of(group, source)->send), bytes);
	if (is_leader(group) && here)
		err = PMPI_Bcast(data, (int)bytes, MPI_BYTE, hosts->host[root], hosts->leaders);
	err = told(group, err);
	if (hosts->rank != root && data != buffer)
		own_err = unpack(group, buffer, 0, count, type, data, bytes);
	return result(comm, first_of(err, own_err));
}

int hosts_reduce(struct group *group, const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, int root,
		 MPI_Comm comm)
{
	struct hosts *hosts = group->hosts;
	size_t bytes = (size_t)count * size_of(type);
	bool is_root = hosts->rank == root, is_away = hosts->host[root] == hosts->own && local_rank(hosts, root) != 0;
	const void *from = is_root && send == MPI_IN_PLACE ? recv : send;
	bool visible = is_visible(from, bytes, type);
	char *own = scratch_of(hosts, is_leader(group) ? 3 * bytes : visible ? 0 : bytes), *sum = own ? own + bytes : NULL;
	int err = MPI_SUCCESS;

	if (!own)
		return failed(comm, MPI_ERR_NO_MEM);
	if (!visible)
		from = memcpy(own, from, bytes);
	publish(group, from, sum);
	reduce_into(group, 0, count, type, op);
	barrier(group);
	if (is_leader(group))
		err = PMPI_Reduce(sum, is_root ? recv : sum + bytes, count, type, op, hosts->host[root], hosts->leaders);
	/* The root is on the leader's host, and is not the leader. */
	if (is_away) {
		err = told(group, err);
		if (is_root)
			copy(recv, at(group, 0, part_of(group, 0)->recv) + bytes, bytes);
		barrier(group);
	}
	return result(comm, err);
}

int hosts_allreduce(struct group *group, const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op,
		    MPI_Comm comm)
{
	struct hosts *hosts = group->hosts;
	size_t bytes = (size_t)count * size_of(type);
	const void *from = send == MPI_IN_PLACE ? recv : send;
	char *sum = recv, *own = NULL;
	int err = MPI_SUCCESS;

	if (!is_visible(from, bytes, type) || (is_leader(group) && !is_visible(recv, bytes, type))) {
		own = scratch_of(hosts, 2 * bytes);
		if (!own)
			return failed(comm, MPI_ERR_NO_MEM);
		from = memcpy(own, from, bytes);
		sum = own + bytes;
	}
	publish(group, from, sum);
	reduce_into(group, 0, count, type, op);
	arrive(group);
	if (is_leader(group))
		group->own->error = PMPI_Allreduce(MPI_IN_PLACE, sum, count, type, op, hosts->leaders);
	depart(group);
	if (!is_leader(group) || own)
		copy(recv, at(group, 0, part_of(group, 0)->recv), bytes);
	err = group->control[0]->error;
	barrier(group);
	return result(comm, err);
}

int hosts_allgather(struct group *group, const void *send, int send_count, MPI_Datatype send_type, void *recv,
		    int recv_count, MPI_Datatype recv_type, MPI_Comm comm)
{
	struct hosts *hosts = group->hosts;
	size_t bytes = (size_t)recv_count * size_of(recv_type), total = bytes * (size_t)hosts->size;
	struct pieces pieces = pieces_of(hosts, bytes);
	bool in_place = send == MPI_IN_PLACE;
	char *all = NULL, *dest;
	bool direct;
	int err, own_err = MPI_SUCCESS;

	if (!is_long(bytes, send, send_count, send_type))
		return failed(comm, MPI_ERR_TRUNCATE);
	/* The leader has all data in the order of hosts. */
	if (is_leader(group)) {
		all = hosts->in_order && is_visible(recv, total, recv_type) ? recv : scratch_of(hosts, total);
		if (!all)
			return failed(comm, MPI_ERR_NO_MEM);
	}
	direct = all && all == recv;
	publish(group, NULL, all);
	dest = at(group, 0, part_of(group, 0)->recv);
	if (!in_place) {
		own_err = pack(group, dest + bytes * (size_t)hosts->place[hosts->rank], send, 1, send_count, send_type, bytes);
	} else if (!direct) {
		MPI_Aint low, extent;

		PMPI_Type_get_extent(recv_type, &low, &extent);
		own_err = pack(group, dest + bytes * (size_t)hosts->place[hosts->rank],
			       (char *)recv + extent * recv_count * hosts->rank, 1, recv_count, recv_type, bytes);
	}
	arrive(group);
	if (is_leader(group))
		group->own->error = PMPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, pieces.counts, pieces.displs,
						    MPI_BYTE, hosts->leaders);
	depart(group);
	err = group->control[0]->error;
	for (int i = 0; i < hosts->size && !direct; i++)
		if (i != hosts->rank || !in_place)
			own_err = first_of(own_err, unpack(group, recv, i, recv_count, recv_type,
							   dest + bytes * (size_t)hosts->place[i], bytes));
	barrier(group);
	return result(comm, first_of(err, own_err));
}

int hosts_gather(struct group *group, const void *send, int send_count, MPI_Datatype send_type, void *recv,
		 int recv_count, MPI_Datatype recv_type, int root, MPI_Comm comm)
{
	struct hosts *hosts = group->hosts;
	bool is_root = hosts->rank == root, here = hosts->host[root] == hosts->own;
	bool is_away = here && local_rank(hosts, root) != 0;
	size_t bytes = is_root ? (size_t)recv_count * size_of(recv_type) : (size_t)send_count * size_of(send_type);
	/* The data of this host alone, or of all. */
	int base = here ? 0 : hosts->first[hosts->own], ranks = here ? hosts->size : group->size;
	size_t total = bytes * (size_t)ranks;
	struct pieces pieces = pieces_of(hosts, bytes);
	char *all = NULL, *from, *dest;
	bool direct;
	int err = MPI_SUCCESS, own_err = MPI_SUCCESS;

	if (!is_long(bytes, send, send_count, send_type))
		return failed(comm, MPI_ERR_TRUNCATE);
	if (is_leader(group)) {
		all = is_root && hosts->in_order && is_visible(recv, total, recv_type) ? recv : scratch_of(hosts, total);
		if (!all)
			return failed(comm, MPI_ERR_NO_MEM);
	}
	direct = all && all == recv;
	publish(group, NULL, all);
	from = at(group, 0, part_of(group, 0)->recv);
	dest = from + bytes * (size_t)(hosts->place[hosts->rank] - base);
	/* In place, the root's data is where it has to be. */
	if (!is_root || send != MPI_IN_PLACE)
		own_err = pack(group, dest, send, 1, send_count, send_type, bytes);
	barrier(group);
	if (is_leader(group))
		err = here ? PMPI_Gatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, pieces.counts, pieces.displs, MPI_BYTE,
					  hosts->host[root], hosts->leaders)
			   : PMPI_Gatherv(all, (int)total, MPI_BYTE, NULL, NULL, NULL, MPI_BYTE, hosts->host[root], hosts->leaders);
	if (is_away)
		err = told(group, err);
	for (int i = 0; is_root && i < hosts->size && !direct; i++)
		if (i != root || send != MPI_IN_PLACE)
			own_err = first_of(own_err, unpack(group, recv, i, recv_count, recv_type,
							   from + bytes * (size_t)hosts->place[i], bytes));
	if (is_away)
		barrier(group);
	return result(comm, first_of(err, own_err));
}

const int *hosts_rest(const struct group *group, int which, const int *counts)
{
	const struct hosts *hosts = group->hosts;
	int *rest = hosts->counts + which * hosts->size;

	for (int i = 0; i < hosts->size; i++)
		rest[i] = hosts->host[i] == hosts->own ? 0 : counts[i];
	return rest;
}

/* Messages between hosts from rank to rank. */
static int alltoall_apart(struct group *group, const void *send, int send_count, MPI_Datatype send_type, void *recv,
			  int recv_count, MPI_Datatype recv_type, MPI_Comm comm)
{
	struct hosts *hosts = group->hosts;
	int n = hosts->size, *send_counts = hosts->counts + 2 * n, *send_displs = send_counts + n;
	int *recv_counts = send_displs + n, *recv_displs = recv_counts + n;

	for (int i = 0; i < n; i++) {
		send_counts[i] = send_count;
		send_displs[i] = i * send_count;
		recv_counts[i] = recv_count;
		recv_displs[i] = i * recv_count;
	}
	return alltoallv(group, send, send_counts, send_displs, send_type, recv, recv_counts, recv_displs, recv_type, comm);
}

/* One message between two hosts: of the blocks for a rank, in the order of ranks, those from each rank. */
static int alltoall_together(struct group *group, const void *send, int send_count, MPI_Datatype send_type, void *recv,
			     int recv_count, MPI_Datatype recv_type, MPI_Comm comm)
{
	struct hosts *hosts = group->hosts;
	size_t bytes = (size_t)recv_count * size_of(recv_type), mine = bytes * (size_t)hosts->size;
	size_t total = mine * (size_t)group->size;
	struct pieces pieces = pieces_of(hosts, bytes * (size_t)group->size);
	bool in_place = send == MPI_IN_PLACE, visible = !in_place && is_visible(send, mine, send_type);
	char *own = NULL, *out = NULL, *to, *from;
	int err, own_err = MPI_SUCCESS, n = group->size;

	if (is_leader(group) || !visible) {
		own = scratch_of(hosts, mine + (is_leader(group) ? 2 * total : 0));
		if (!own)
			return failed(comm, MPI_ERR_NO_MEM);
		out = own + mine;
	}
	if (in_place)
		own_err = pack(group, own, recv, hosts->size, recv_count, recv_type, bytes);
	else if (!visible)
		own_err = pack(group, own, send, hosts->size, send_count, send_type, bytes);
	if (!visible)
		send = own;
	publish(group, send, out);
	to = at(group, 0, part_of(group, 0)->recv);
	for (int i = 0; i < hosts->size; i++) {
		int peer = local_rank(hosts, i);

		if (hosts->host[i] != hosts->own)
			copy(to + bytes * (size_t)(hosts->place[i] * n + group->rank), (const char *)send + bytes * (size_t)i, bytes);
		else
			own_err = first_of(own_err, unpack(group, recv, i, recv_count, recv_type,
							   at(group, peer, part_of(group, peer)->send) + bytes * (size_t)hosts->rank,
							   bytes));
	}
	arrive(group);
	/* On their host all has been done. */
	pieces.counts[hosts->own] = 0;
	if (is_leader(group))
		group->own->error = PMPI_Alltoallv(out, pieces.counts, pieces.displs, MPI_BYTE, out + total, pieces.counts,
						   pieces.displs, MPI_BYTE, hosts->leaders);
	depart(group);
	err = group->control[0]->error;
	from = to + total;
	for (int i = 0; i < hosts->size; i++) {
		int host = hosts->host[i];
		/* Blocks before those of its host, for the ranks before this one, and before its own. */
		int block = hosts->first[host] * n + group->rank * ranks_on(hosts, host) + local_rank(hosts, i);

		if (host != hosts->own)
			own_err = first_of(own_err, unpack(group, recv, i, recv_count, recv_type, from + bytes * (size_t)block,
							   bytes));
	}
	barrier(group);
	return result(comm, first_of(err, own_err));
}

int hosts_alltoall(struct group *group, const void *send, int send_count, MPI_Datatype send_type, void *recv,
		   int recv_count, MPI_Datatype recv_type, MPI_Comm comm)
{
	const struct hosts *hosts = group->hosts;
	size_t bytes = (size_t)recv_count * size_of(recv_type);

	if (!is_long(bytes, send, send_count, send_type))
		return failed(comm, MPI_ERR_TRUNCATE);
	if (bytes <= ALLTOALL_TOGETHER && bytes * (size_t)hosts->size * (size_t)hosts->most <= ALLTOALL_MOST)
		return alltoall_together(group, send, send_count, send_type, recv, recv_count, recv_type, comm);
	if (send == MPI_IN_PLACE)
		return PMPI_Alltoall(send, send_count, send_type, recv, recv_count, recv_type, comm);
	return alltoall_apart(group, send, send_count, send_type, recv, recv_count, recv_type, comm);
}
