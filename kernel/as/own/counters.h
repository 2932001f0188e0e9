/* SPDX-License-Identifier: GPL-2.0 */
/* What is counted of contexts and jobs. */
#ifndef _HPMMAP_AS_OWN_COUNTERS_H
#define _HPMMAP_AS_OWN_COUNTERS_H

#include "mem/block/payer.h"

/* Hooked calls whose time is taken. */
enum hpmmap_timed {
	HPMMAP_TIMED_MMAP,
	HPMMAP_TIMED_MUNMAP,
	HPMMAP_TIMED_MREMAP,
	HPMMAP_TIMED_BRK,
	HPMMAP_NR_TIMED
};

/* Why there is a fault in memory of ours. */
enum hpmmap_fault {
	HPMMAP_FAULT_FORK,		/* shared since a fork, or was */
	HPMMAP_FAULT_RESERVED,		/* of a mapping without memory of its own until now */
	HPMMAP_FAULT_FIRST_TOUCH,	/* the job asked for it */
	HPMMAP_FAULT_LINUX,		/* a page of Linux stands in */
	HPMMAP_FAULT_CHANGING,		/* a call of the process changes mappings just now, or forks */
	HPMMAP_FAULT_UNMAPPED,		/* something else took it out of the page table */
	HPMMAP_NR_FAULTS
};

/* What ordinary memory is used for instead. */
enum hpmmap_fallback {
	HPMMAP_FALLBACK_MMAP,	/* a mapping */
	HPMMAP_FALLBACK_BRK,	/* a piece of the heap */
	HPMMAP_FALLBACK_EXEC,	/* the image of a program */
	HPMMAP_FALLBACK_BLOCK,	/* one block, at a touch or for a copy */
	HPMMAP_FALLBACK_ASKED,	/* what a call needs Linux's own memory for */
	HPMMAP_NR_FALLBACKS
};

/* Why ordinary memory is used instead. */
enum hpmmap_reason {
	HPMMAP_REASON_EXHAUSTED,	/* the pools of the job's nodes have too little */
	HPMMAP_REASON_LIMIT,		/* the user or the cgroup may not hold so much */
	HPMMAP_REASON_OTHER,		/* a memory policy, a pinned block in the way, no memory of the kernel */
	HPMMAP_NR_REASONS
};

/* What a process waits for. */
enum hpmmap_stall {
	HPMMAP_STALL_CALLS,	/* another hooked call of the same address space */
	HPMMAP_STALL_ZEROING,	/* blocks that are being zeroed, for want of others */
	HPMMAP_STALL_RECLAIM,	/* what processes keep for reuse, to be taken back */
	HPMMAP_STALL_PINS,	/* pins of a block */
	HPMMAP_NR_STALLS
};

/* What became of a program that a member has executed. */
enum hpmmap_program_kind {
	HPMMAP_PROGRAM_REGISTERED,	/* it has a context */
	HPMMAP_PROGRAM_LEFT_OUT,	/* the launch wants it to be Linux's */
	HPMMAP_PROGRAM_SECURE,		/* set-user-ID, or another way to rights the caller has not */
	HPMMAP_PROGRAM_32BIT,		/* of another instruction set */
	HPMMAP_PROGRAM_FAILED,		/* there was no memory for a context */
	HPMMAP_NR_PROGRAM_KINDS
};

/*
 * Times are in ticks of the time stamp counter. A bucket for what is below 2^FIRST,
 * four for each power of two, and one for what is 2^LAST or more.
 */
#define HPMMAP_LATENCY_FIRST 9
#define HPMMAP_LATENCY_LAST 31
#define HPMMAP_LATENCY_BUCKETS \
	((HPMMAP_LATENCY_LAST - HPMMAP_LATENCY_FIRST) * 4 + 2)

/* The times of one call. */
struct hpmmap_latency {
	unsigned long ticks;				/* their sum */
	unsigned long worst;				/* the longest */
	unsigned long nr[HPMMAP_LATENCY_BUCKETS];	/* how many, by bucket */
};

/* Calls whose times a context keeps before its job counts them. */
#define HPMMAP_CALLS_KEPT 16

/* Calls of a context that its job has not counted yet. */
struct hpmmap_calls {
	unsigned int nr;		/* how many */
	u8 call[HPMMAP_CALLS_KEPT];	/* which, enum hpmmap_timed */
	u64 ticks[HPMMAP_CALLS_KEPT];	/* how long they took */
};

/* Faults that lie near each other. */
struct hpmmap_fault_range {
	unsigned long start;
	unsigned long end;
	unsigned long nr;
	enum hpmmap_fault why;
	pid_t pid;
};

/* What a program of a job has met with. */
struct hpmmap_program {
	/* As execve has named the process; empty: all those there was no room for. */
	char name[TASK_COMM_LEN];
	u64 address_spaces;		/* how many had it, forks included */
	u64 forks;			/* those that a fork has made */
	u64 faults;			/* in memory of ours */
	u64 faults_fork;		/* the part of them that a fork was the reason of */
	/*
	 * The part that the program brought about: reserved memory, first touch, and its calls
	 * that changed mappings.
	 */
	u64 faults_asked;
	u64 fallbacks;			/* fallbacks to ordinary memory */
	u64 refusals;			/* calls that failed */
};

#define HPMMAP_NR_PROGRAMS 16

/* What a context counts itself: on the way of most calls nothing is shared between processes. */
struct hpmmap_stats {
	/* Of its job: what its program is. Set before it is published. */
	struct hpmmap_program *program;
	bool forked;			/* a fork has made it */
	/*
	 * Blocks placed on another node than that of the CPU; protected by ctx->lock, as are
	 * ctx->placed and the following three.
	 */
	unsigned long remote;
	/* Contiguous runs that blocks were placed in, one after the other. */
	unsigned long runs;
	unsigned long run_slot;		/* the slot that would continue the last run */
	unsigned long run_pfn;		/* the memory that would */
	atomic_long_t entries_2m;	/* entries made in the page table */
	atomic_long_t entries_1g;
	atomic_long_t splits_1g;	/* entries of 1 GB that became entries of 2 MB */
	atomic_long_t joins_1g;		/* those that became one again */
	atomic_long_t entries_4k;
	struct hpmmap_calls calls;	/* the last hooked calls; protected by ctx->ops */
};

/* How often and how long processes waited. */
struct hpmmap_stall_total {
	u64 nr;
	u64 ticks;
	u64 worst;
};

/**
 * struct hpmmap_totals - what a job has counted
 *
 * Protected by the job's lock. What contexts count themselves, @calls, @placed and from @remote
 * to @cleared, is added when they are torn down.
 *
 * @calls: the hooked calls
 * @stalls: by what for
 * @peak_one: most blocks that one context held, see hpmmap_stats_peak()
 * @lowest_free: least free blocks that were left, ULONG_MAX if none were taken
 * @large_wanted: pieces of 1 GB that were asked for
 * @large_missed: those of them that were not had as such
 * @limited: requests that a limit has refused, by whose it is
 * @limited_cgroup: the last one of a cgroup was that of this one
 * @linux_pages: and up to @pinned: what live contexts have now; not of a job itself
 * @faults: by reason
 * @fallbacks: by what for
 * @reasons: the same by reason
 * @refusals: calls that failed for want of memory of the pools
 * @failures: calls that failed because Linux had no memory either
 * @nr_programs: how many of @programs there are, the last one for all others
 * @nr_ranges: how many of @ranges there are
 * @nr_unlisted: faults in none of them
 * @ranges: where there were faults
 * @placed: blocks by node, as struct hpmmap_ctx has them
 */
struct hpmmap_totals {
	struct hpmmap_latency calls[HPMMAP_NR_TIMED];
	struct hpmmap_stall_total stalls[HPMMAP_NR_STALLS];
	long peak_one;
	unsigned long lowest_free;
	u64 large_wanted;
	u64 large_missed;
	u64 limited[HPMMAP_NR_LIMITED];
	u64 limited_cgroup;
	long linux_pages;
	long few_pages;
	unsigned long kept;
	long pinned;
	u64 static_bytes;
	u64 static_used;
	u64 remote;
	u64 runs;
	u64 entries_2m;
	u64 entries_1g;
	u64 splits_1g;
	u64 joins_1g;
	u64 entries_4k;
	u64 faults_user;
	u64 faults_kernel;
	u64 copied;
	u64 cleared;
	u64 address_spaces;
	u64 faults[HPMMAP_NR_FAULTS];
	u64 fallbacks[HPMMAP_NR_FALLBACKS];
	u64 reasons[HPMMAP_NR_REASONS];
	u64 fallback_bytes;
	u64 refusals;
	u64 failures;
	unsigned int nr_programs;
	struct hpmmap_program programs[HPMMAP_NR_PROGRAMS];
	unsigned int nr_ranges;
	unsigned long nr_unlisted;
	struct hpmmap_fault_range ranges[32];
	u64 placed[];
};

#endif /* _HPMMAP_AS_OWN_COUNTERS_H */
