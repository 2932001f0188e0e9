/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The groups of libhpmmap_mpi: the ranks of a communicator that are on this host, and their barriers. */
#ifndef HPMMAP_MPI_GROUP_H
#define HPMMAP_MPI_GROUP_H

#include <mpi.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "internal.h"

/* Of a communicator on one host. */
#define MOST_RANKS	64

/*
 * Above all classes of errors: the MPI library has refused this rank's MPI_Alltoallv across hosts, so its data is not
 * there, nor are its messages.
 */
#define REFUSED		(1 << 30)

enum kind { BARRIER, BCAST, REDUCE, ALLREDUCE, ALLGATHER, GATHER, ALLTOALL, ALLTOALLV, NR_KINDS };

/* A rank's part in a collective. */
struct part {
	/* MPI_SUCCESS, or the class of the error because of which this rank cannot take part; plus REFUSED. */
	int error;
	/* Across hosts. Of a leader it decides for its host: do the leaders agree before any data is sent? */
	bool agree;
	/* Across hosts. Of a leader it decides for its host; 0 stands for one that is no rank. */
	int root;
	const void *send;
	void *recv;
	/* Where all ranks must have as many: else none takes part. */
	size_t bytes;
	/* MPI_Alltoallv: the number of elements for each rank and their offset, the size of one, and the bytes of all. */
	const int *counts;
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
	/* Of a leader: the error of all, or LEFT. Written before a release, read after it. */
	int error;
	struct part part[2];
};

/* The other hosts of a communicator. The first rank of each host is its leader. */
struct hosts {
	/* MPI_COMM_NULL on other ranks. It returns errors. */
	MPI_Comm leaders;
	/* In the communicator. */
	int rank;
	int size;
	/* The hosts, and this one's number. They are numbered in the order of their leaders. */
	int nr;
	int own;
	/* The ranks of the host that has most. */
	int most;
	/* Place and rank are the same. */
	bool in_order;
	/* Of each rank: its host, and its place if ranks are sorted by hosts. */
	int *host;
	int *place;
	/* Of each host: the place of its first rank; of all hosts: the number of ranks. */
	int *first;
	/* For arguments of the MPI library: six for each rank. */
	int *counts;
	/* Grows to what the largest collective needs. */
	char *scratch;
	size_t room;
	/* The memory that all ranks are known to have: each leader, and each other rank. */
	size_t leaders_have;
	size_t others_have;
};

/* The ranks of a communicator that are on this host. They see each other. */
struct group {
	int rank;
	int size;
	uint32_t barriers;
	uint32_t collectives;
	/*
	 * These ranks. It returns errors. Ranks send messages to themselves alone on it, and receive at once: a probe
	 * finds none, so it makes the library progress.
	 */
	MPI_Comm local;
	/* NULL if there are no others. */
	struct hosts *hosts;
	/* Their ranks in the communicator. */
	int ranks[MOST_RANKS];
	struct control *own;
	struct control *control[MOST_RANKS];
	struct hpmmap_peer *peer[MOST_RANKS];
	struct group *next;
	/* The communicator is gone. Other ranks may still look whether this one has reached the last barrier. */
	_Atomic bool has_left;
	/* A barrier of the ranks that have left; it has begun if is_leaving. */
	bool is_leaving;
	MPI_Request leaving;
};

extern struct hpmmap_space own_space;

/*
 * Returns the group if this library does the collective; the decision is the same at all ranks of
 * the communicator. bytes is as min_bytes in group.c has it.
 */
struct group *group_for(enum kind kind, MPI_Comm comm, size_t bytes);

/* Is a collective within this host worth it? */
bool is_enough(const struct group *group, enum kind kind, size_t bytes);

/* The first half of a barrier: when it returns, all ranks have called it (rank 0), or nothing is known (others). */
void arrive(struct group *group);
/* The second half: returns when rank 0 has called it. All ranks then see what any wrote before it arrived. */
void depart(struct group *group);

static inline void barrier(struct group *group)
{
	arrive(group);
	depart(group);
}

/* The first half of a barrier; this rank's part is seen after it. */
void publish(struct group *group, const struct part *part);
/* The largest error of the ranks of this host: MPI_ERR_TRUNCATE if they do not have as many bytes. */
int error_of(const struct group *group);
/* Publishes this rank's part; true if all ranks of this host can take part. */
bool begin(struct group *group, const struct part *part);

static inline bool is_rank_of(int size, int rank)
{
	return rank >= 0 && rank < size;
}

/* Returns this rank's address of another rank's buffer. */
static inline char *at(const struct group *group, int rank, const void *ptr)
{
	return peer_ptr(group->peer[rank], ptr);
}

static inline const struct part *part_of(const struct group *group, int rank)
{
	return &group->control[rank]->part[group->collectives & 1];
}

static inline bool in_zone(const void *buffer, size_t bytes)
{
	return bytes == 0 || hpmmap_space_has(&own_space, buffer, bytes);
}

/* The ranges must not overlap. */
void copy(void *to, const void *from, size_t bytes);

/* Are the elements contiguous, without gaps? */
bool is_plain(MPI_Datatype type);
/* In bytes, of an element. 0 for MPI_DATATYPE_NULL. */
size_t size_of(MPI_Datatype type);

/* ---- reduce.c ---------------------------------------------------------------- */

/* Is it a predefined operation on a type that it is defined for? */
bool is_reducible(MPI_Op op, MPI_Datatype type);
/*
 * Reduces this rank's chunk of all data (part.send) into a rank's part.recv. If both are the same there, its
 * data is in place. The ranks' data is taken in turn, from this rank on.
 */
void reduce_into(const struct group *group, int to, int count, MPI_Datatype type, MPI_Op op);
/* Reduces this rank's chunk into the same place of recv; its own data is part.send. */
void reduce_own(const struct group *group, void *recv, int count, MPI_Datatype type, MPI_Op op);
/* Copies the chunks that other ranks have reduced. */
void copy_chunks(const struct group *group, void *recv, int count, MPI_Datatype type);

/* ---- hosts.c ------------------------------------------------------------------ */

/* The functions of MPI, for communicators that span hosts. Any type and buffer. */
int hosts_barrier(struct group *group, MPI_Comm comm);
int hosts_bcast(struct group *group, void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm);
int hosts_reduce(struct group *group, const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, int root,
		 MPI_Comm comm);
int hosts_allreduce(struct group *group, const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op,
		    MPI_Comm comm);
int hosts_allgather(struct group *group, const void *send, int send_count, MPI_Datatype send_type, void *recv,
		    int recv_count, MPI_Datatype recv_type, MPI_Comm comm);
int hosts_gather(struct group *group, const void *send, int send_count, MPI_Datatype send_type, void *recv,
		 int recv_count, MPI_Datatype recv_type, int root, MPI_Comm comm);
int hosts_alltoall(struct group *group, const void *send, int send_count, MPI_Datatype send_type, void *recv,
		   int recv_count, MPI_Datatype recv_type, MPI_Comm comm);
/*
 * Starts the messages of MPI_Alltoallv to and from other hosts. Returns the class of the error if the MPI library refuses
 * the call, after the error handler. request is always to be waited for.
 */
int hosts_alltoallv_begin(const struct group *group, const void *send, const int *send_counts, const int *send_displs,
			  MPI_Datatype send_type, void *recv, const int *recv_counts, const int *recv_displs,
			  MPI_Datatype recv_type, MPI_Comm comm, MPI_Request *request);

/* ---- collectives.c -------------------------------------------------------------- */

/* MPI_Alltoallv: within this host in place, between hosts from rank to rank. */
int alltoallv(struct group *group, const void *send, const int *send_counts, const int *send_displs, MPI_Datatype send_type,
	      void *recv, const int *recv_counts, const int *recv_displs, MPI_Datatype recv_type, MPI_Comm comm);

#endif
