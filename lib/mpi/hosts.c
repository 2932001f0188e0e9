// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Collectives of communicators that span hosts: on each host in place, between hosts by the MPI
 * library, for the leaders (or, where that is cheaper, for each rank).
 *
 * Hosts cannot ask each other whether a rank is unable to take part without a message. So every rank
 * takes part: data of a derived type, or that the others cannot see, is packed into memory that they do.
 * What differs from host to host is only what the other hosts do not notice.
 *
 * A rank finds its own errors before it publishes its part, so all ranks of its host know of them, and the leader
 * sends the error ahead of the data. No leader may fail: while little memory is needed, all ranks reserve it, and
 * agree by a message of the leaders whenever they need more than ever before. A collective that needs more
 * than RESERVE_MOST has such a message of its own. If one rank has no memory, all use the MPI library.
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
#define ALLTOALL_TOGETHER	((size_t)256 << 10)
/* The most that is sent so from a host. */
#define ALLTOALL_MOST		((size_t)16 << 20)

/*
 * The most memory that a leader and another rank together reserve for collectives to come. With more data, a message
 * of the leaders costs less than to copy the data behind a head.
 */
#define RESERVE_MOST		((size_t)2 << 20)
/* Of a leader, instead of an error: all ranks use the MPI library. No class of errors. */
#define LEFT			(-1)

/* Ahead of the data from a host. */
struct head {
	/* The first error of its ranks. */
	int error;
	/* Of a rank, or between two. */
	int bytes;
};

/* What all ranks decide alike about a collective, if they have as many bytes. */
struct call {
	/* Leaders tell each other before any data is sent whether all ranks can take part. */
	bool agree;
	/* The memory that each rank reserves; 0: no more than it needs. */
	size_t leader;
	size_t other;
	/* Bytes ahead of the data from a host, 0 if the leaders agree. */
	size_t head;
	/* Memory that the ranks of this host see, or MPI_ERR_NO_MEM. */
	char *scratch;
	int error;
};

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

/* Codes of errors mean something to one rank only, classes to all. */
static int class_of(int err)
{
	if (err != MPI_SUCCESS)
		PMPI_Error_class(err, &err);
	return err;
}

/* The first error of two. */
static int first_of(int err, int next)
{
	return err == MPI_SUCCESS ? next : err;
}

/* What a rank sends and receives must be as long. */
static bool is_long(size_t bytes, const void *send, int count, MPI_Datatype type)
{
	return send == MPI_IN_PLACE || (size_t)count * size_of(type) == bytes;
}

static bool is_leader(const struct group *group)
{
	return group->rank == 0;
}

/* The part in a collective with a root, which may be no rank. */
static struct part part_with(const struct hosts *hosts, int root)
{
	bool is_right = is_rank_of(hosts->size, root);

	return (struct part){ .root = is_right ? root : 0, .error = is_right ? MPI_SUCCESS : MPI_ERR_ROOT };
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
 * Makes the memory larger that the ranks of this host see. No other rank may still use it. False: there is
 * no more, and what there was stays.
 */
static bool reserve(struct hosts *hosts, size_t bytes)
{
	char *more;

	if (bytes <= hosts->room)
		return true;
	more = calloc(1, bytes);
	if (!more || !in_zone(more, bytes)) {
		free(more);
		return false;
	}
	free(hosts->scratch);
	hosts->scratch = more;
	hosts->room = bytes;
	return true;
}

static bool is_visible(const void *buffer, size_t bytes, MPI_Datatype type)
{
	return is_plain(type) && in_zone(buffer, bytes);
}

/* Few sizes, so that ranks seldom have to agree. */
static size_t round_up(size_t bytes)
{
	size_t size = 4096;

	while (size < bytes)
		size *= 2;
	return size;
}

/*
 * leader and other are the most memory that ranks could need for a collective, the same numbers at all ranks; needed is
 * what this rank does need.
 */
static struct call call_for(const struct group *group, size_t leader, size_t other, size_t needed)
{
	struct hosts *hosts = group->hosts;
	bool is_large = leader + other > RESERVE_MOST;
	struct call call = { .agree = is_large || leader > hosts->leaders_have || other > hosts->others_have };

	if (!is_large) {
		call.leader = round_up(leader);
		call.other = round_up(other);
		needed = is_leader(group) ? call.leader : call.other;
	}
	call.head = call.agree ? 0 : sizeof(struct head);
	call.error = reserve(hosts, needed) ? MPI_SUCCESS : MPI_ERR_NO_MEM;
	call.scratch = hosts->scratch;
	return call;
}

/*
 * Publishes this rank's part. Returns the error of all ranks if they agree, or LEFT, and else that of this
 * host's ranks. A rank with another number of bytes than its leader may have decided otherwise whether to agree. It
 * follows the leader, and all ranks of the host get an error, so its own head and offsets do not matter.
 */
static int enter(struct group *group, struct call *call, struct part *part)
{
	struct hosts *hosts = group->hosts;
	int err;

	part->agree = call->agree;
	publish(group, part);
	if (is_leader(group) && call->agree) {
		long bytes = (long)part->bytes, mine[] = { error_of(group), bytes, -bytes }, all[3];

		err = class_of(PMPI_Allreduce(mine, all, 3, MPI_LONG, MPI_MAX, hosts->leaders));
		if (err == MPI_SUCCESS)
			err = all[1] != -all[2] ? MPI_ERR_TRUNCATE : all[0] == MPI_ERR_NO_MEM ? LEFT : (int)all[0];
		group->own->error = err;
	}
	depart(group);
	call->agree = part_of(group, 0)->agree;
	if (!call->agree)
		return error_of(group);
	err = group->control[0]->error;
	if (err == MPI_SUCCESS && call->leader) {
		hosts->leaders_have = call->leader > hosts->leaders_have ? call->leader : hosts->leaders_have;
		hosts->others_have = call->other > hosts->others_have ? call->other : hosts->others_have;
	}
	return err;
}

/* Is the root on this host, and not the leader? As the leader has it, after enter(). */
static bool is_root_away(const struct group *group)
{
	const struct hosts *hosts = group->hosts;
	int root = part_of(group, 0)->root;

	return hosts->host[root] == hosts->own && local_rank(hosts, root) != 0;
}

/* Do all ranks return this error before any data is sent? */
static bool is_over(const struct call *call, int err)
{
	return call->agree && err != MPI_SUCCESS;
}

/*
 * Converts data between two types, both in memory of this process: the library may read a message by the
 * kernel, which sees no window. MPI_Pack would take no MPI_BOTTOM in MPICH, and its errors end the program.
 */
static int convert(const struct group *group, const void *from, int from_count, MPI_Datatype from_type, void *to,
		   int to_count, MPI_Datatype to_type)
{
	return class_of(PMPI_Sendrecv(from, from_count, from_type, group->rank, 0, to, to_count, to_type, group->rank, 0,
				      group->local, MPI_STATUS_IGNORE));
}

/* Packs a block of bytes bytes into this rank's own memory. */
static int pack(const struct group *group, void *to, const void *from, int count, MPI_Datatype type, size_t bytes)
{
	if (!is_plain(type))
		return convert(group, from, count, type, to, (int)bytes, MPI_PACKED);
	copy(to, from, bytes);
	return MPI_SUCCESS;
}

/* Packs the blocks for all ranks. */
static int pack_all(const struct group *group, char *to, const char *from, int count, MPI_Datatype type, size_t bytes)
{
	int err = MPI_SUCCESS;
	MPI_Aint low, extent;

	PMPI_Type_get_extent(type, &low, &extent);
	for (int i = 0; i < group->hosts->size && err == MPI_SUCCESS; i++)
		err = pack(group, to + bytes * (size_t)i, from + extent * count * i, count, type, bytes);
	return err;
}

/* Writes one block of a buffer, by way of this rank's own memory, which has room for it. */
static int unpack(const struct group *group, void *to, int block, int count, MPI_Datatype type, const void *from, size_t bytes,
		  char *own)
{
	MPI_Aint low, extent;

	if (is_plain(type)) {
		copy((char *)to + bytes * (size_t)block, from, bytes);
		return MPI_SUCCESS;
	}
	if (from != own)
		copy(own, from, bytes);
	PMPI_Type_get_extent(type, &low, &extent);
	return convert(group, own, (int)bytes, MPI_PACKED, (char *)to + extent * count * block, count, type);
}

/* A barrier after which all ranks have the leader's error. */
static int told(struct group *group, int err)
{
	arrive(group);
	if (is_leader(group))
		group->own->error = err;
	depart(group);
	return group->control[0]->error;
}

/* The counts and offsets of bytes for each host, if each of its ranks has so many. */
static struct pieces pieces_of(const struct hosts *hosts, size_t bytes, size_t head)
{
	struct pieces pieces = { hosts->counts, hosts->counts + hosts->nr };

	for (int host = 0; host < hosts->nr; host++) {
		pieces.counts[host] = (int)bytes * ranks_on(hosts, host) + (int)head;
		pieces.displs[host] = (int)bytes * hosts->first[host] + (int)head * host;
	}
	return pieces;
}

/* Where a rank's block is among those of all, which begin with the head of the first host. */
static size_t offset_of(const struct hosts *hosts, const struct call *call, int rank, size_t bytes)
{
	return bytes * (size_t)hosts->place[rank] + call->head * ((size_t)hosts->host[rank] + 1);
}

static void put_head(const struct call *call, char *at, int err, size_t bytes)
{
	struct head head = { err, (int)bytes };

	if (call->head)
		memcpy(at, &head, sizeof(head));
}

/* The error that a host has sent with its data. */
static int head_error(const struct call *call, const char *at, size_t bytes)
{
	struct head head = { MPI_SUCCESS, (int)bytes };

	if (call->head)
		memcpy(&head, at, sizeof(head));
	return first_of(head.error, head.bytes == (int)bytes ? MPI_SUCCESS : MPI_ERR_TRUNCATE);
}

/* The first error that the hosts have sent. */
static int heads_error(const struct hosts *hosts, const struct call *call, const char *all, const struct pieces *pieces,
		       size_t bytes)
{
	int err = MPI_SUCCESS;

	for (int host = 0; host < hosts->nr && err == MPI_SUCCESS; host++)
		if (pieces->counts[host])
			err = head_error(call, all + pieces->displs[host], bytes);
	return err;
}

/* ---- Collectives -------------------------------------------------------------- */

int hosts_barrier(struct group *group, MPI_Comm comm)
{
	arrive(group);
	if (is_leader(group))
		group->own->error = class_of(PMPI_Barrier(group->hosts->leaders));
	depart(group);
	return result(comm, group->control[0]->error);
}

/* The leaders' part. data is behind its head. */
static int send_on(const struct group *group, const struct call *call, char *data, size_t bytes, int root, int err)
{
	char *head = data - call->head;
	int sent;

	put_head(call, head, err, bytes);
	sent = class_of(PMPI_Bcast(head, (int)(bytes + call->head), MPI_BYTE, group->hosts->host[root], group->hosts->leaders));
	return first_of(sent, head_error(call, head, bytes));
}

int hosts_bcast(struct group *group, void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm)
{
	struct hosts *hosts = group->hosts;
	size_t bytes = (size_t)count * size_of(type);
	struct part part = part_with(hosts, root);
	bool here = hosts->host[part.root] == hosts->own, visible = is_visible(buffer, bytes, type);
	struct call call = call_for(group, bytes + sizeof(struct head), bytes, visible ? 0 : bytes);
	bool direct = visible && !(is_leader(group) && call.head), receives = is_leader(group) && !here;
	int source = here ? local_rank(hosts, part.root) : 0, err, sent = MPI_SUCCESS;
	/* A leader's is behind the head. */
	char *data = direct ? buffer : call.scratch + (is_leader(group) ? call.head : 0);

	part.send = data;
	part.bytes = bytes;
	part.error = first_of(part.error, call.error);
	if (part.error == MPI_SUCCESS && hosts->rank == root && !direct)
		part.error = pack(group, data, buffer, count, type, bytes);
	if (receives && !call.agree)
		sent = send_on(group, &call, data, bytes, part.root, MPI_SUCCESS);
	err = enter(group, &call, &part);
	if (err == LEFT)
		return PMPI_Bcast(buffer, count, type, root, comm);
	if (is_over(&call, err))
		return failed(comm, err);
	if (call.agree && !here) {
		if (receives)
			sent = send_on(group, &call, data, bytes, part.root, MPI_SUCCESS);
		barrier(group);
	}
	if (err == MPI_SUCCESS && group->rank != source)
		copy(data, at(group, source, part_of(group, source)->send), bytes);
	if (is_leader(group) && here)
		sent = send_on(group, &call, data, bytes, part.root, err);
	err = first_of(err, told(group, sent));
	if (err == MPI_SUCCESS && hosts->rank != root && !direct)
		err = unpack(group, buffer, 0, count, type, data, bytes, data);
	return result(comm, err);
}

int hosts_reduce(struct group *group, const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, int root,
		 MPI_Comm comm)
{
	struct hosts *hosts = group->hosts;
	size_t bytes = (size_t)count * size_of(type);
	bool is_root = hosts->rank == root, is_away;
	const void *from = is_root && send == MPI_IN_PLACE ? recv : send;
	bool visible = is_visible(from, bytes, type);
	struct call call = call_for(group, 3 * bytes, bytes, is_leader(group) ? 3 * bytes : visible ? 0 : bytes);
	char *sum = call.scratch + bytes;
	struct part part = part_with(hosts, root);
	int err;

	part.send = from;
	part.recv = sum;
	part.bytes = bytes;
	part.error = first_of(part.error, call.error);
	if (part.error == MPI_SUCCESS && !visible)
		part.send = memcpy(call.scratch, from, bytes);
	err = enter(group, &call, &part);
	if (err == LEFT)
		return PMPI_Reduce(send, recv, count, type, op, root, comm);
	if (is_over(&call, err))
		return failed(comm, err);
	is_away = is_root_away(group);
	if (err == MPI_SUCCESS)
		reduce_into(group, 0, count, type, op);
	barrier(group);
	if (is_leader(group))
		err = first_of(err, class_of(PMPI_Reduce(sum, is_root ? recv : sum + bytes, count, type, op, hosts->host[part.root],
							 hosts->leaders)));
	if (is_away) {
		err = told(group, err);
		if (is_root && err == MPI_SUCCESS)
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
	bool visible = is_visible(from, bytes, type) && (!is_leader(group) || is_visible(recv, bytes, type));
	struct call call = call_for(group, 2 * bytes, bytes, visible ? 0 : is_leader(group) ? 2 * bytes : bytes);
	char *sum = visible ? recv : call.scratch + bytes;
	struct part part = { .send = from, .recv = sum, .bytes = bytes, .error = call.error };
	int err;

	if (call.error == MPI_SUCCESS && !visible)
		part.send = memcpy(call.scratch, from, bytes);
	err = enter(group, &call, &part);
	if (err == LEFT)
		return PMPI_Allreduce(send, recv, count, type, op, comm);
	if (is_over(&call, err))
		return failed(comm, err);
	if (err == MPI_SUCCESS)
		reduce_into(group, 0, count, type, op);
	arrive(group);
	if (is_leader(group))
		group->own->error = class_of(PMPI_Allreduce(MPI_IN_PLACE, sum, count, type, op, hosts->leaders));
	depart(group);
	err = first_of(err, group->control[0]->error);
	if (err == MPI_SUCCESS && (!is_leader(group) || !visible))
		copy(recv, at(group, 0, part_of(group, 0)->recv), bytes);
	barrier(group);
	return result(comm, err);
}

/* This rank's data for all. The others' place for it is in, or behind, memory of another process. */
struct block {
	const void *data;
	int count;
	MPI_Datatype type;
};

/* Of a call in place the data is in the buffer that receives. */
static struct block block_of(const void *send, int send_count, MPI_Datatype send_type, const void *recv, int recv_count,
			     MPI_Datatype recv_type, int rank)
{
	MPI_Aint low, extent;

	if (send != MPI_IN_PLACE)
		return (struct block){ send, send_count, send_type };
	PMPI_Type_get_extent(recv_type, &low, &extent);
	return (struct block){ (const char *)recv + extent * recv_count * rank, recv_count, recv_type };
}

/* Data of a derived type is packed into own, which has room for it. */
static int make_plain(const struct group *group, struct block *block, char *own, size_t bytes)
{
	int err = MPI_SUCCESS;

	if ((size_t)block->count * size_of(block->type) != bytes)
		return MPI_ERR_TRUNCATE;
	if (!is_plain(block->type)) {
		err = pack(group, own, block->data, block->count, block->type, bytes);
		block->data = own;
	}
	return err;
}

int hosts_allgather(struct group *group, const void *send, int send_count, MPI_Datatype send_type, void *recv,
		    int recv_count, MPI_Datatype recv_type, MPI_Comm comm)
{
	struct hosts *hosts = group->hosts;
	size_t bytes = (size_t)recv_count * size_of(recv_type), total = bytes * (size_t)hosts->size;
	struct block block = block_of(send, send_count, send_type, recv, recv_count, recv_type, hosts->rank);
	bool visible = is_leader(group) && hosts->in_order && is_visible(recv, total, recv_type);
	/* A block is ahead of those of all ranks. */
	struct call call = call_for(group, bytes + total + sizeof(struct head) * (size_t)hosts->nr, bytes,
				    is_leader(group) && !visible ? bytes + total :
				    is_plain(block.type) && is_plain(recv_type) ? 0 : bytes);
	bool direct = visible && !call.head;
	struct pieces pieces = pieces_of(hosts, bytes, call.head);
	char *own = call.scratch, *all = direct ? recv : own + bytes, *dest;
	struct part part = { .recv = all, .bytes = bytes, .error = call.error };
	int err;

	if (part.error == MPI_SUCCESS)
		part.error = make_plain(group, &block, own, bytes);
	err = enter(group, &call, &part);
	if (err == LEFT)
		return PMPI_Allgather(send, send_count, send_type, recv, recv_count, recv_type, comm);
	if (is_over(&call, err))
		return failed(comm, err);
	all = at(group, 0, part_of(group, 0)->recv);
	dest = all + offset_of(hosts, &call, hosts->rank, bytes);
	if (err == MPI_SUCCESS && dest != block.data)
		copy(dest, block.data, bytes);
	arrive(group);
	if (is_leader(group)) {
		put_head(&call, all + pieces.displs[hosts->own], err, bytes);
		err = class_of(PMPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, pieces.counts, pieces.displs, MPI_BYTE,
					       hosts->leaders));
		group->own->error = first_of(err, heads_error(hosts, &call, all, &pieces, bytes));
	}
	depart(group);
	err = group->control[0]->error;
	for (int i = 0; i < hosts->size && err == MPI_SUCCESS && !direct; i++)
		if (i != hosts->rank || send != MPI_IN_PLACE)
			err = unpack(group, recv, i, recv_count, recv_type, all + offset_of(hosts, &call, i, bytes), bytes, own);
	barrier(group);
	return result(comm, err);
}

int hosts_gather(struct group *group, const void *send, int send_count, MPI_Datatype send_type, void *recv,
		 int recv_count, MPI_Datatype recv_type, int root, MPI_Comm comm)
{
	struct hosts *hosts = group->hosts;
	struct part part = part_with(hosts, root);
	bool is_root = hosts->rank == root, here = hosts->host[part.root] == hosts->own;
	bool is_away, in_place = is_root && send == MPI_IN_PLACE;
	size_t bytes = is_root ? (size_t)recv_count * size_of(recv_type) : (size_t)send_count * size_of(send_type);
	size_t total = bytes * (size_t)hosts->size;
	struct block block = block_of(send, send_count, send_type, recv, recv_count, recv_type, hosts->rank);
	bool visible = is_leader(group) && is_root && hosts->in_order && is_visible(recv, total, recv_type);
	struct call call = call_for(group, bytes + total + sizeof(struct head) * (size_t)hosts->nr, bytes,
				    is_leader(group) && !visible ? bytes + (here ? total : bytes * (size_t)group->size) :
				    is_plain(block.type) && !(is_root && !is_plain(recv_type)) ? 0 : bytes);
	bool direct = visible && !call.head;
	struct pieces pieces = pieces_of(hosts, bytes, call.head);
	char *own = call.scratch, *all = direct ? recv : own + bytes;
	int err;

	part.recv = all;
	part.bytes = bytes;
	part.error = first_of(part.error, call.error);
	if (part.error == MPI_SUCCESS && !in_place)
		part.error = make_plain(group, &block, own, bytes);
	err = enter(group, &call, &part);
	if (err == LEFT)
		return PMPI_Gather(send, send_count, send_type, recv, recv_count, recv_type, root, comm);
	if (is_over(&call, err))
		return failed(comm, err);
	is_away = is_root_away(group);
	all = at(group, 0, part_of(group, 0)->recv);
	/* Only the root's leader has room for the data of other hosts. */
	if (!here)
		all -= pieces.displs[hosts->own];
	/* In place, the root's data is where it has to be. */
	if (err == MPI_SUCCESS && !in_place)
		copy(all + offset_of(hosts, &call, hosts->rank, bytes), block.data, bytes);
	barrier(group);
	if (is_leader(group)) {
		char *mine = all + pieces.displs[hosts->own];

		put_head(&call, mine, err, bytes);
		err = here ? PMPI_Gatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, pieces.counts, pieces.displs, MPI_BYTE,
					  hosts->host[part.root], hosts->leaders)
			   : first_of(err, PMPI_Gatherv(mine, pieces.counts[hosts->own], MPI_BYTE, NULL, NULL, NULL, MPI_BYTE,
							hosts->host[part.root], hosts->leaders));
		err = class_of(err);
		if (here)
			err = first_of(err, heads_error(hosts, &call, all, &pieces, bytes));
	}
	if (is_away)
		err = told(group, err);
	for (int i = 0; is_root && i < hosts->size && err == MPI_SUCCESS && !direct; i++)
		if (i != root || !in_place)
			err = unpack(group, recv, i, recv_count, recv_type, all + offset_of(hosts, &call, i, bytes), bytes, own);
	if (is_away)
		barrier(group);
	return result(comm, err);
}

/* The counts (send: which 0, receive: 1) without those within the host, except negative ones, which are refused. */
static const int *rest_of(const struct hosts *hosts, int which, const int *counts)
{
	int *rest = hosts->counts + which * hosts->size;

	for (int i = 0; i < hosts->size; i++)
		rest[i] = hosts->host[i] == hosts->own && counts[i] > 0 ? 0 : counts[i];
	return rest;
}

int hosts_alltoallv_begin(const struct group *group, const void *send, const int *send_counts, const int *send_displs,
			  MPI_Datatype send_type, void *recv, const int *recv_counts, const int *recv_displs,
			  MPI_Datatype recv_type, MPI_Comm comm, MPI_Request *request)
{
	const struct hosts *hosts = group->hosts;
	int err, *none = hosts->counts;

	/* MPICH reads them before it checks them. */
	if (!send_counts || !send_displs || !recv_counts || !recv_displs)
		err = failed(comm, MPI_ERR_ARG);
	else
		err = PMPI_Ialltoallv(send, rest_of(hosts, 0, send_counts), send_displs, send_type, recv,
				      rest_of(hosts, 1, recv_counts), recv_displs, recv_type, comm, request);
	if (err != MPI_SUCCESS) {
		/* The MPI library numbers these calls, so that messages of one do not get into another. */
		memset(none, 0, (size_t)hosts->size * sizeof(*none));
		PMPI_Ialltoallv(none, none, none, MPI_BYTE, none + hosts->size, none, none, MPI_BYTE, comm, request);
	}
	return class_of(err);
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
	/* From the leader to other hosts, or from them. */
	size_t total = mine * (size_t)hosts->most + sizeof(struct head) * (size_t)hosts->nr;
	bool in_place = send == MPI_IN_PLACE, visible = !in_place && is_visible(send, mine, send_type);
	struct call call = call_for(group, bytes + mine + 2 * total, bytes + mine,
				    is_leader(group) ? bytes + mine + 2 * total :
				    visible && is_plain(recv_type) ? 0 : bytes + mine);
	struct pieces pieces = pieces_of(hosts, bytes * (size_t)group->size, call.head);
	char *own = call.scratch, *packed = own + bytes, *out = packed + mine, *in;
	struct part part = { .send = visible ? send : packed, .recv = out, .bytes = bytes, .error = call.error };
	int err, sent, n = group->size;

	if (part.error == MPI_SUCCESS && !is_long(bytes, send, send_count, send_type))
		part.error = MPI_ERR_TRUNCATE;
	if (part.error == MPI_SUCCESS && !visible)
		part.error = in_place ? pack_all(group, packed, recv, recv_count, recv_type, bytes)
				      : pack_all(group, packed, send, send_count, send_type, bytes);
	err = enter(group, &call, &part);
	if (err == LEFT)
		return PMPI_Alltoall(send, send_count, send_type, recv, recv_count, recv_type, comm);
	if (is_over(&call, err))
		return failed(comm, err);
	out = at(group, 0, part_of(group, 0)->recv);
	in = out + total;
	for (int i = 0; i < hosts->size && err == MPI_SUCCESS; i++) {
		int peer = local_rank(hosts, i), host = hosts->host[i];

		if (host != hosts->own)
			copy(out + pieces.displs[host] + call.head + bytes * (size_t)(peer * n + group->rank),
			     (const char *)part.send + bytes * (size_t)i, bytes);
	}
	arrive(group);
	if (is_leader(group)) {
		/* On their host all is done without it. */
		pieces.counts[hosts->own] = 0;
		for (int host = 0; host < hosts->nr; host++)
			put_head(&call, out + pieces.displs[host], err, bytes);
		sent = class_of(PMPI_Alltoallv(out, pieces.counts, pieces.displs, MPI_BYTE, in, pieces.counts, pieces.displs,
					       MPI_BYTE, hosts->leaders));
		group->own->error = first_of(first_of(sent, err), heads_error(hosts, &call, in, &pieces, bytes));
	}
	depart(group);
	err = group->control[0]->error;
	for (int i = 0; i < hosts->size && err == MPI_SUCCESS; i++) {
		int peer = local_rank(hosts, i), host = hosts->host[i];
		const char *from = host == hosts->own ?
			at(group, peer, part_of(group, peer)->send) + bytes * (size_t)hosts->rank :
			/* Those for the ranks before this one, and those before its own. */
			in + pieces.displs[host] + call.head + bytes * (size_t)(group->rank * ranks_on(hosts, host) + peer);

		err = unpack(group, recv, i, recv_count, recv_type, from, bytes, own);
	}
	barrier(group);
	return result(comm, err);
}

int hosts_alltoall(struct group *group, const void *send, int send_count, MPI_Datatype send_type, void *recv,
		   int recv_count, MPI_Datatype recv_type, MPI_Comm comm)
{
	const struct hosts *hosts = group->hosts;
	size_t bytes = (size_t)recv_count * size_of(recv_type);

	if (bytes <= ALLTOALL_TOGETHER && bytes * (size_t)hosts->size * (size_t)hosts->most <= ALLTOALL_MOST)
		return alltoall_together(group, send, send_count, send_type, recv, recv_count, recv_type, comm);
	if (send == MPI_IN_PLACE)
		return PMPI_Alltoall(send, send_count, send_type, recv, recv_count, recv_type, comm);
	return alltoall_apart(group, send, send_count, send_type, recv, recv_count, recv_type, comm);
}
