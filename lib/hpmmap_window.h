/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * libhpmmap: the memory of other processes of this node by plain loads and stores.
 *
 * Three layers, each on the one before:
 *
 *   windows  publish a range of memory, attach what another process has published
 *   spaces   the same of all memory of a process: a few zones, and a peer's addresses turned into one's own
 *   jobs     the ranks of a job find each other; put, get, fence and barrier in SHMEM's sense
 *
 * Sizes and offsets are in bytes. Functions that return int return 0, or -1 with errno set; those that
 * return a pointer, NULL with errno set. All may be called by several threads at once, but for those
 * that begin and end a job. Nothing is inherited over fork(2): a child has no windows, no
 * peers and no job.
 *
 * What a window shows is what its target has there at the moment: memory that comes later appears, and
 * touching what is not there, or not for this access, gives SIGBUS. When the target ends, or
 * executes another program, all of its windows do so.
 *
 * ENOENT and ENODEV of any function: there is no /dev/xpmem, that is no HPMMAP on this machine.
 */
#ifndef HPMMAP_WINDOW_H
#define HPMMAP_WINDOW_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Windows ------------------------------------------------------------- */

/* flags of hpmmap_attach(): the window cannot be written to. */
#define HPMMAP_ATTACH_READONLY	0x1

/*
 * Publishes [start, start + bytes), both multiples of 4096, for processes of the same user; SIZE_MAX as bytes
 * is all of the address space from start on. mode has bits of chmod(2): 0400 to read, 0200 to write; other users
 * need theirs, and the administrator's permission. Returns a number for hpmmap_attach(), positive,
 * or -1. EINVAL: misaligned, empty, an unknown mode; EACCES: this process is not dumpable; ENOMEM.
 */
int64_t hpmmap_publish(void *start, size_t bytes, unsigned int mode);

/* Takes it back, out of all windows, too. ENOENT: there is none; EACCES: it is another process's. */
int hpmmap_unpublish(int64_t id);

/*
 * Maps bytes, rounded up to 4096, from offset, a multiple of 4096, of what is published. EINVAL: not within it, misaligned, an
 * unknown flag; ENOENT: not published any more; EACCES: not for this access, or its process may not be traced; ENOMEM.
 */
void *hpmmap_attach(int64_t id, size_t offset, size_t bytes, unsigned int flags);

/* Unmaps the whole window that begins at this address. EINVAL: none begins there. */
int hpmmap_detach(void *address);

/* ---- Spaces -------------------------------------------------------------- */

#define HPMMAP_ZONES	3

/*
 * A process's address space as others have to know it. Plain data without pointers: send it by whatever means
 * there are. Which memory is in the zones: the program with its heap, 256 GB; what mmap(2) returns without being
 * told where, 512 GB; the first thread's stack, as far as its limit goes and no more than 256 GB.
 */
struct hpmmap_space {
	int64_t id;		/* of hpmmap_publish() */
	uint64_t image;		/* where the program begins; see hpmmap_peer_static() */
	struct {
		uint64_t start;
		uint64_t bytes;
	} zone[HPMMAP_ZONES];
};

struct hpmmap_peer;

/* Publishes the caller's memory, for the same user, once in each process, and describes it. ENOMEM. */
int hpmmap_space_publish(struct hpmmap_space *space);

/* Is [ptr, ptr + bytes) within one zone? 1 or 0. */
int hpmmap_space_has(const struct hpmmap_space *space, const void *ptr, size_t bytes);

/*
 * Attaches all zones of another process; a space of the caller's own needs no windows. It takes address space, 1 TB of it,
 * and memory only for what is touched. 64 peers at least have room. EINVAL: not such a space; ENOMEM: no room,
 * also by RLIMIT_AS; ENOENT, EACCES as hpmmap_attach().
 */
struct hpmmap_peer *hpmmap_peer_attach(const struct hpmmap_space *space);

/* Where the caller has what the peer has at ptr. EFAULT: it is in no zone of the peer. */
void *hpmmap_peer_ptr(const struct hpmmap_peer *peer, const void *ptr);

/* Where the caller has the peer's copy of a global or static variable of the program, &variable: both run the same one. EFAULT. */
void *hpmmap_peer_static(const struct hpmmap_peer *peer, const void *ptr);

/* Takes the windows away. Nobody may use the peer any more. */
int hpmmap_peer_detach(struct hpmmap_peer *peer);

/* ---- Jobs ---------------------------------------------------------------- */

#define HPMMAP_JOB_RANKS	64
#define HPMMAP_JOB_SECONDS	120

/*
 * Becomes a rank of a job, of which a process can have one at a time, and waits until all ranks of this node
 * have. With name NULL, rank and size are not looked at, and the environment of Open MPI, MPICH or Slurm tells
 * all three: the rank on this node, and how many the job has on it. Else ranks are 0 to size - 1, and the name,
 * of at most 128 characters without a slash, is the same for all ranks and for no other job of this user
 * at the same time.
 *
 * EINVAL: a wrong number or name, or nothing in the environment; EALREADY: the process has a job; EEXIST: another
 * process has this rank; ESRCH: a rank has ended; ETIMEDOUT: one has not come within HPMMAP_JOB_SECONDS; ENOMEM.
 */
int hpmmap_job_join(const char *name, int rank, int size);

/* Leaves it, and detaches all. Others' calls may fail with ESRCH from now on, so call hpmmap_barrier() before. ENOTCONN: there is no job. */
int hpmmap_job_leave(void);

/* -1 and ENOTCONN: there is no job. */
int hpmmap_job_rank(void);
int hpmmap_job_size(void);

/*
 * Where the caller has what a rank has at ptr, its own address: a look-up among three zones and an addition. The first call for a rank
 * attaches it. EINVAL: no such rank; EFAULT: in no zone of it; ENOTCONN; otherwise as hpmmap_peer_attach().
 */
void *hpmmap_remote_ptr(int rank, const void *ptr);

/* The same of a global or static variable of the program that all ranks run: the caller's own address of it. */
void *hpmmap_remote_static(int rank, const void *ptr);

/*
 * Copy to and from a rank's memory, dest and source being its own address there. bytes may be 0. They are done when the call
 * returns, but another rank may see the writes of two puts in another order without a fence between. The ranges must not overlap. Errors as hpmmap_remote_ptr().
 */
int hpmmap_put(int rank, void *dest, const void *source, size_t bytes);
int hpmmap_get(int rank, void *dest, const void *source, size_t bytes);

/* What was written to any rank before is seen before what is written after. */
void hpmmap_fence(void);

/*
 * Waits until all ranks have called it; what any of them wrote before is seen by all after. ESRCH: a rank has ended
 * or left, and no later barrier succeeds; ENOTCONN.
 */
int hpmmap_barrier(void);

#ifdef __cplusplus
}
#endif

#endif
