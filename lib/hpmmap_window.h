/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * libhpmmap: memory of other processes of this host by plain loads and stores.
 *
 * Three layers, each on the one before:
 *
 *   windows  publish a range of memory, attach what another process has published
 *   spaces   the same of all memory of a process: a few zones, and a peer's addresses turned into one's own
 *   jobs     the ranks of a job find each other; put, get, fence and barrier in SHMEM's sense
 *
 * and, beside them, the physical addresses of one's own memory, for devices, and processes whose memory
 * is placed before their first instruction.
 *
 * Sizes and offsets are in bytes. Functions that return int return 0, or -1 with errno set; those that
 * return a pointer, NULL with errno set. Several threads may call all of them at once, except those
 * that begin and end a job. A child of fork(2) inherits nothing: it has no windows, no
 * peers and no job.
 *
 * A window shows what its target has mapped at the moment of the access. Memory that the target maps
 * later appears. An access to memory that is not mapped, or not for this access, gives SIGBUS, and so
 * does every access after the target has ended or executed another program.
 *
 * ENOENT and ENODEV of any function: there is no /dev/xpmem (hpmmap_runs(), hpmmap_process_create(): /dev/hpmmap), so the module is not loaded.
 */
#ifndef HPMMAP_WINDOW_H
#define HPMMAP_WINDOW_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Windows ------------------------------------------------------------- */

/* flags of hpmmap_attach(): the window cannot be written to. */
#define HPMMAP_ATTACH_READONLY	0x1

/*
 * Publishes [start, start + bytes), both multiples of 4096, for processes of the same user. bytes
 * SIZE_MAX publishes the whole address space from start on. mode has bits of chmod(2): 0400 to
 * read, 0200 to write. Other users need their own bits, and the administrator's permission (module
 * parameter xpmem_others). Returns a positive number for hpmmap_attach(), or -1. EINVAL:
 * misaligned, empty, an unknown mode; EACCES: this process is not dumpable; ENOMEM.
 */
int64_t hpmmap_publish(void *start, size_t bytes, unsigned int mode);

/*
 * Ends a publication and takes it out of all windows. ENOENT: there is none; EACCES: it is another
 * process's.
 */
int hpmmap_unpublish(int64_t id);

/*
 * Maps bytes, rounded up to 4096, of what is published, from offset on, a multiple of 4096. EINVAL:
 * outside of it, misaligned, an unknown flag; ENOENT: not published any more; EACCES: its mode
 * forbids this access, or its process may not be traced; ENOMEM.
 */
void *hpmmap_attach(int64_t id, size_t offset, size_t bytes, unsigned int flags);

/* Unmaps the whole window that begins at this address. EINVAL: none begins there. */
int hpmmap_detach(void *address);

/* ---- Spaces -------------------------------------------------------------- */

#define HPMMAP_ZONES	3

/*
 * A description of a process's address space. It is plain data without pointers, so it can be sent
 * by any means. The zones are: the program with its heap, 256 GB; the area in which mmap(2) places
 * mappings without an address, 512 GB; the first thread's stack, up to its limit and at most 256
 * GB.
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

/* Returns 1 if [ptr, ptr + bytes) is within one zone, else 0. */
int hpmmap_space_has(const struct hpmmap_space *space, const void *ptr, size_t bytes);

/*
 * Attaches all zones of another process. It takes 1 TB of address space, and memory only for pages
 * that are touched. There is room for at least 64 peers. A space of the caller's own needs no
 * windows. EINVAL: not a valid space; ENOMEM: no room, also by RLIMIT_AS; ENOENT, EACCES as
 * hpmmap_attach().
 */
struct hpmmap_peer *hpmmap_peer_attach(const struct hpmmap_space *space);

/*
 * Returns the caller's address of the memory that the peer has at ptr. EFAULT: ptr is in no zone of
 * the peer.
 */
void *hpmmap_peer_ptr(const struct hpmmap_peer *peer, const void *ptr);

/*
 * Returns the caller's address of the peer's copy of a global or static variable. ptr is the
 * address of the caller's own copy: both run the same program. EFAULT: it is in no zone.
 */
void *hpmmap_peer_static(const struct hpmmap_peer *peer, const void *ptr);

/* Detaches the windows. The peer must not be used any more. */
int hpmmap_peer_detach(struct hpmmap_peer *peer);

/* ---- Jobs ---------------------------------------------------------------- */

#define HPMMAP_JOB_RANKS	64
#define HPMMAP_JOB_SECONDS	120

/*
 * Joins a job and waits until all ranks of this host have joined. A process can be in one job at a
 * time.
 *
 * With name NULL, rank and size are ignored: the environment of Open MPI, MPICH or Slurm gives the
 * job, the rank on this host and the number of ranks on it. Otherwise ranks are 0 to size - 1, and
 * all ranks use the same name. It has at most 128 characters and no slash, and no other job of this
 * user may use it at the same time.
 *
 * EINVAL: a wrong number or name, or nothing in the environment; EALREADY: the process has a job;
 * EEXIST: another process has this rank; ESRCH: a rank has ended; ETIMEDOUT: a rank has not joined
 * within HPMMAP_JOB_SECONDS; EACCES: a file of another user has the table's name in /dev/shm; ENOSPC: no room for
 * the table there; ENOMEM.
 */
int hpmmap_job_join(const char *name, int rank, int size);

/*
 * Leaves the job and detaches all peers. From then on barriers of other ranks fail with ESRCH, so
 * call hpmmap_barrier() before. ENOTCONN: there is no job.
 */
int hpmmap_job_leave(void);

/* Return the caller's rank and the number of ranks. -1 and ENOTCONN: there is no job. */
int hpmmap_job_rank(void);
int hpmmap_job_size(void);

/*
 * Returns the caller's address of the memory that a rank has at its own address ptr: a look-up
 * among three zones and an addition. The first call for a rank attaches it. EINVAL: no such rank;
 * EFAULT: ptr is in no zone of the rank; ENOTCONN: there is no job; otherwise as
 * hpmmap_peer_attach().
 */
void *hpmmap_remote_ptr(int rank, const void *ptr);

/*
 * The same for a global or static variable of the program, which all ranks run: ptr is the address
 * of the caller's own copy.
 */
void *hpmmap_remote_static(int rank, const void *ptr);

/*
 * Copy bytes to and from a rank's memory; dest (put) or source (get) is the rank's own address.
 * bytes may be 0. The ranges must not overlap. The copy is done when the call returns, but without
 * a fence another rank may see two puts in another order. Errors as hpmmap_remote_ptr().
 */
int hpmmap_put(int rank, void *dest, const void *source, size_t bytes);
int hpmmap_get(int rank, void *dest, const void *source, size_t bytes);

/* Other ranks see writes before the fence, to any rank, before writes after it. */
void hpmmap_fence(void);

/*
 * Waits until all ranks have called it. All ranks then see what any of them wrote before. ESRCH: a
 * rank has ended or left, and no later barrier succeeds; ENOTCONN: there is no job.
 */
int hpmmap_barrier(void);

/* ---- Devices ------------------------------------------------------------- */

/* A run of physical addresses that follow each other. */
struct hpmmap_physical {
	uint64_t address;
	uint64_t bytes;
};

/*
 * Pins [start, start + bytes), both multiples of 4096, and stores where it lies: at most *nr runs, in the order of the range.
 * *nr becomes their number. Needs CAP_SYS_RAWIO. Returns a descriptor, or -1. The memory stays where it is, and
 * is nobody else's, until all copies of the descriptor are closed. EMSGSIZE: there are *nr runs, more than the array
 * holds; EPERM; EINVAL: misaligned or empty; EFAULT: not mapped, not writable, or cannot be pinned; ENOMEM: beyond
 * RLIMIT_MEMLOCK; ENOTTY: an older module.
 */
int hpmmap_runs(void *start, size_t bytes, struct hpmmap_physical *runs, size_t *nr);

/* ---- Processes ----------------------------------------------------------- */

/* flags of hpmmap_process_create(): as hpmmap run --strict and --page-size 1G. */
#define HPMMAP_PROCESS_STRICT	0x1
#define HPMMAP_PROCESS_1G	0x2

struct hpmmap_process;

/*
 * Makes a child that waits to execute path with these arguments and variables, as by hpmmap run. It ends if
 * the caller ends before it is started. One thread at a time may use it. EINVAL: an unknown flag; ENOMEM;
 * also errors of open(2) for /dev/hpmmap and of fork(2).
 */
struct hpmmap_process *hpmmap_process_create(const char *path, char *const argv[], char *const envp[],
					     unsigned int flags);

/* Returns its process number, for cgroups and limits before it starts. */
pid_t hpmmap_process_pid(const struct hpmmap_process *proc);

/*
 * Asks for bytes of pool memory, mapped in the program before its first instruction: at address or, if
 * that is NULL, at one from 0x120000000000 on; bound to a NUMA node or, if node is -1, placed as other
 * memory. Both numbers are multiples of 2 MB, with HPMMAP_PROCESS_1G of 1 GB. Returns the address. The
 * program finds it in HPMMAP_REGIONS. EINVAL: not a multiple, an overlap, not an address of a program,
 * more than 16 regions, the process was started.
 */
void *hpmmap_region_add(struct hpmmap_process *proc, size_t bytes, void *address, int node);

/* Sets the CPUs on which the process may run. Errors of sched_setaffinity(2). */
int hpmmap_process_cpus(struct hpmmap_process *proc, const unsigned int *cpus, size_t nr);

/*
 * Takes the memory, lets the process execute its program, and waits until all regions are mapped. If that
 * fails the process has ended. ENOMEM: the pools, or a limit, have too little for the regions; EEXIST: a
 * region overlaps what Linux has placed, or is beyond RLIMIT_AS or RLIMIT_DATA; EINVAL: the NUMA node of a
 * region is none of the process's; ENOEXEC: also a set-user-ID or 32-bit program; ESRCH: it was killed;
 * EALREADY: it was started; ENODEV: there are no pools; also errors of execve(2).
 */
int hpmmap_process_start(struct hpmmap_process *proc);

/* Waits for the end of a process that was started. status is that of waitpid(2). */
int hpmmap_process_wait(struct hpmmap_process *proc, int *status);

/* Sends a signal. ESRCH: the process has ended. */
int hpmmap_process_kill(struct hpmmap_process *proc, int sig);

/* Frees the handle; kills the process if it was not waited for. NULL is nothing. */
void hpmmap_process_free(struct hpmmap_process *proc);

#ifdef __cplusplus
}
#endif

#endif
