/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The counts of the programs of noise.bpf.c. src/counts.rs is made from this file. */
#ifndef HPMMAP_BPF_NOISE_H
#define HPMMAP_BPF_NOISE_H

#include <linux/types.h>

/* Rows of /proc/interrupts that have tracepoints. Device interrupts have numbers instead. */
enum vector {
	VECTOR_LOC = 0,
	VECTOR_RES = 1,
	VECTOR_CAL = 2,
	VECTOR_IWI = 3,
	VECTOR_TRM = 4,
	VECTOR_THR = 5,
	VECTOR_DFR = 6,
	VECTOR_SPU = 7,
	VECTOR_PLT = 8,
	VECTOR_COUNT = 9,
};

#define SOFTIRQS	10
/* Bits of the kernel's TICK_DEP_MASK_*: POSIX timer, perf events, scheduler, clock, RCU, RCU's
 * expedited grace periods. */
#define TICK_REASONS	6

struct hits {
	__u64 count;
	/* Part of the count: a task of the job was running. */
	__u64 in_job;
};

/* The task that runs on a CPU. */
enum who {
	WHO_IDLE = 0,
	WHO_JOB = 1,
	/* The process that started the job, and the one that counts. */
	WHO_LAUNCHER = 2,
	WHO_OTHER = 3,
	/* Of a process of the job that has exited. */
	WHO_ENDING = 4,
};

struct cpu_counts {
	/* Set by the recorder; nothing is counted on other CPUs but migrations. */
	__u64 measured;
	/* Since when the present task has been running. */
	__u64 since_ns;
	__u64 who;
	__u64 job_ns;
	/* Switches to tasks of the job. */
	__u64 arrivals;
	/* Switches to tasks that are not the job's. */
	__u64 others;
	/* Part of them: a task of the job could have gone on. */
	__u64 preemptions;
	/* Moves of the job's tasks that this CPU made; to and from any CPU. */
	__u64 migrations;
	/* Facts without room. */
	__u64 lost;
	struct hits vectors[VECTOR_COUNT];
	struct hits softirqs[SOFTIRQS];
	/* Ticks that could not be stopped on a CPU of nohz_full=, by reason. */
	__u64 tick_reasons[TICK_REASONS];
};

struct other_key {
	__u32 cpu;
	char comm[16];
};

struct other_counts {
	__u64 switches;
	__u64 preemptions;
	__u64 ns;
};

struct noise_control {
	/* The recorder's namespace of process numbers, and two processes in it. */
	__u64 namespace_dev;
	__u64 namespace_ino;
	/* Its children from now on are the job. */
	__u32 launcher;
	/* The process that counts. */
	__u32 recorder;
	/* Other tasks count even before the job has come to a CPU, and after its end. */
	__u32 whole_time;
	/* Counting is on. */
	__u32 on;
	/* Processes of the job that exist. */
	__u64 processes;
};

#endif
