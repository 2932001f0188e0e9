/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Events that the programs send to the recorder. src/events.rs is made from this file. */
#ifndef HPMMAP_BPF_EVENTS_H
#define HPMMAP_BPF_EVENTS_H

#include <linux/types.h>

enum event_type {
	EVENT_FAULT = 1,
	EVENT_FILE = 2,
	EVENT_FORK = 3,
	EVENT_EXEC = 4,
	EVENT_EXIT = 5,
	EVENT_MERGE = 6,
	EVENT_STOLEN = 7,
};

/* What a fault did. */
enum kind {
	KIND_OTHER = 0,
	KIND_4K = 1,
	KIND_2M = 2,
	KIND_HUGETLB = 3,
	KIND_COW = 4,
	KIND_WRITE = 5,
	KIND_SWAP = 6,
	KIND_FILE = 7,
	KIND_NUMA = 8,
	KIND_MIGRATION = 9,
	KIND_SPURIOUS = 10,
	KIND_ERROR = 11,
	KIND_COUNT = 12,
};

/* The reason for which a fault waited: the first that applies. */
enum stall {
	STALL_NONE = 0,
	STALL_MERGE = 1,
	STALL_COMPACTION = 2,
	STALL_RECLAIM = 3,
	STALL_COUNT = 4,
};

/* The origin of a fault. */
enum origin {
	ORIGIN_USER = 0,
	ORIGIN_KERNEL = 1,
	/* No exception: pages filled by a call. */
	ORIGIN_CALL = 2,
	ORIGIN_COUNT = 3,
};

enum cause {
	CAUSE_RECLAIM = 0,
	CAUSE_COMPACTION = 1,
	CAUSE_MIGRATION = 2,
	CAUSE_MERGE = 3,
	CAUSE_COUNT = 4,
};

enum mapping {
	MAPPING_ANON = 0,
	MAPPING_HEAP = 1,
	MAPPING_STACK = 2,
	MAPPING_FILE = 3,
	MAPPING_SPECIAL = 4,
};

#define FAULT_F_WRITE	(1 << 0)
#define FAULT_F_EXEC	(1 << 1)
#define FAULT_F_MAJOR	(1 << 2)

struct fault_event {
	__u16 type;
	__u16 cpu;
	__u32 pid;
	__u32 tid;
	__u8 kind;
	__u8 stall;
	__u8 origin;
	__u8 flags;
	__u64 start_ns;
	__u64 cost_ns;
	/* Part of the cost: until the handler was entered, for example waiting for mmap_lock. */
	__u64 wait_ns;
	__u64 reclaim_ns;
	__u64 compaction_ns;
	__u64 migration_ns;
	__u64 address;
	__u64 map_start;
	__u64 map_end;
	__u64 map_ino;
	__u32 map_dev;
	__u8 map_class;
	/* Level of the entry that maps the page now: 1 4 KB, 2 2 MB, 3 1 GB, 0 none. */
	__u8 level;
	__u16 retries;
};

#define NAME_BYTES 64

struct file_event {
	__u16 type;
	__u16 unused;
	__u32 dev;
	__u64 ino;
	char name[NAME_BYTES];
};

/* Fork, exec, exit. */
struct task_event {
	__u16 type;
	__u16 unused;
	/* The process and thread; for a fork the new ones. */
	__u32 pid;
	__u32 tid;
	__u32 parent;
	__u64 time_ns;
	char comm[16];
};

/* A merge by khugepaged, or stolen time, also outside of a fault. */
struct time_event {
	__u16 type;
	__u16 cause;
	__u32 pid;
	__u32 tid;
	__u32 unused;
	__u64 start_ns;
	__u64 ns;
};

struct total {
	__u64 count;
	__u64 sum_ns;
	__u64 max_ns;
};

#define TOTAL_INDEX(kind, stall, origin) \
	(((kind) * STALL_COUNT + (stall)) * ORIGIN_COUNT + (origin))
#define TOTALS (KIND_COUNT * STALL_COUNT * ORIGIN_COUNT)

enum counter {
	/* Events without room in the buffer. */
	COUNTER_DROPPED = 0,
	/* Threads and processes without room: their faults are missing. */
	COUNTER_UNTRACKED = 1,
	/* Growth of the kernel's counters of the threads. */
	COUNTER_KERNEL_MINOR = 2,
	COUNTER_KERNEL_MAJOR = 3,
	/* Counted by the programs, by the kernel's rules. */
	COUNTER_MINOR = 4,
	COUNTER_MAJOR = 5,
	COUNTER_RETRIES = 6,
	COUNTER_EXCEPTIONS = 7,
	COUNTER_COUNT = 8,
};

struct control {
	/* Its first child is the recorded command. */
	__u32 recorder;
	__u32 root;
};

#endif
