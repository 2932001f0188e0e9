/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Declarations that the files of libhpmmap share. */
#ifndef HPMMAP_LIB_INTERNAL_H
#define HPMMAP_LIB_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>

#include "hpmmap_window.h"

#define PUBLIC	__attribute__((visibility("default")))

/* hpmmap_attach() at an address, or anywhere if at is NULL. EEXIST: the address is not free. */
void *attach_at(int64_t id, size_t offset, size_t bytes, unsigned int flags, void *at);

/* Can this process read the byte? Where a window shows nothing, a load gives SIGBUS. */
bool is_readable(const void *address);

/* A peer: declared here so that hpmmap_remote_ptr() is one call. */
struct hpmmap_peer {
	struct {
		uintptr_t start;
		uintptr_t bytes;
		/* Added to an address of the peer it gives the caller's. */
		uintptr_t delta;
	} zone[HPMMAP_ZONES];
	/* Added to the address of a variable of the caller it gives that of the peer's. */
	uintptr_t image_delta;
};

static inline void *peer_ptr(const struct hpmmap_peer *peer, const void *ptr)
{
	for (int i = 0; i < HPMMAP_ZONES; i++)
		if ((uintptr_t)ptr - peer->zone[i].start < peer->zone[i].bytes)
			return (void *)((uintptr_t)ptr + peer->zone[i].delta);
	return NULL;
}

/* ---- identity.c ---------------------------------------------------------- */

#define IDENTITY_NAME	128
/* Room that names from the environment leave, for a prefix. */
#define IDENTITY_PREFIX	8

struct identity {
	/* Of the job; no slash. */
	char name[IDENTITY_NAME + 1];
	/* Of and among the ranks of this host. */
	int rank;
	int size;
	/* Ranks of the job on all hosts; -1: unknown. */
	int everywhere;
};

/* Returns false if the environment of Open MPI, MPICH or Slurm names no job. Numbers may be missing: -1. */
bool identity_from_environment(struct identity *who);

/* Has the launcher of an MPI library started this process, beside others if it says how many? */
bool identity_is_launched(void);

/* FNV-1a, continued from hash. */
#define HASH_START	0xcbf29ce484222325ULL
static inline uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		hash = (hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3ULL;
	return hash;
}

/* ---- table.c ------------------------------------------------------------- */

#define TABLE_RANKS	256

/* A barrier in shared memory, with a futex: ranks that have arrived, completed rounds. All zero at first. */
struct barrier {
	_Atomic uint32_t nr_arrived;
	_Atomic uint32_t round;
};

struct member {
	_Atomic enum { MEMBER_ABSENT, MEMBER_HERE, MEMBER_LEFT } state;
	_Atomic int32_t pid;
	/* When the process began, as proc(5) has it: numbers are used again. */
	uint64_t start;
};

/* The ranks of a job on this host, in memory that they share. It is the head of a larger structure. */
struct table {
	_Atomic uint32_t layout;
	uint32_t size;
	_Atomic uint32_t nr_joined;
	struct barrier all;
	struct member member[TABLE_RANKS];
};

/*
 * Joins a table of bytes bytes, at first zero, and waits until all ranks of this host have. enter() is called
 * while no other rank can enter. Returns NULL with the errno of hpmmap_job_join().
 */
struct table *table_join(const struct identity *who, size_t bytes, int (*enter)(struct table *table, int rank));

/* From now on barriers of other ranks fail. The caller unmaps the table. */
void table_leave(struct table *table, int rank);

/* Returns a rank that has joined and has ended or left, or -1. */
int table_missing(struct table *table);

/*
 * Waits until size ranks have called it. They then see what any of them wrote before. A rank looks spins times
 * before it sleeps. -1 and ESRCH: a rank of the table has ended or left.
 */
int barrier_wait(struct table *table, struct barrier *barrier, uint32_t size, uint32_t spins);

#endif
