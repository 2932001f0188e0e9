/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * HPMMAP: memory of offlined memory blocks for registered processes.
 *
 * The only contract between the module and user space.
 */
#ifndef _UAPI_HPMMAP_H
#define _UAPI_HPMMAP_H

#include <linux/ioctl.h>
#include <linux/types.h>

/**
 * DOC: General ioctl format
 *
 * The device is /dev/hpmmap. Every ioctl takes one struct whose first member
 * is __u32 size, the size of the struct as the caller knows it. A larger
 * struct is accepted if the bytes that the module does not know are zero; a
 * smaller one is accepted down to the first published size, and the rest reads
 * as zero. All addresses and lengths are in bytes.
 *
 * The errnos mean the same for every ioctl:
 *
 *  - ENOTTY: the command number is not known.
 *  - E2BIG: the struct is larger than the module's and the rest is not zero, or
 *    size is more than 4096.
 *  - EINVAL: size is too small, or a value is wrong in any state of the
 *    machine (alignment, an empty range, a wrong page size).
 *  - EOPNOTSUPP: an unknown flag is set or a reserved member is not zero.
 *  - EPERM: the command needs a capability in the initial user namespace
 *    (CAP_SYS_ADMIN, where it names no other).
 *  - EFAULT: memory that a pointer points to cannot be read or written.
 *  - ENOMEM: no kernel memory; for HPMMAP_IOC_LAUNCH also: no pool memory.
 *
 * Further errnos are listed with their commands.
 */

#define HPMMAP_DEVICE_PATH	"/dev/hpmmap"
#define HPMMAP_SYSFS_PATH	"/sys/kernel/hpmmap"
#define HPMMAP_CONTEXTS_PATH	"/proc/hpmmap"

/* Increased by one when a member or command is added. */
#define HPMMAP_ABI_VERSION	6

/* The unit of allocation: one 2 MB block. */
#define HPMMAP_BLOCK_BYTES	(1ULL << 21)
/* The largest contiguous run that is handed out. */
#define HPMMAP_LARGE_BYTES	(1ULL << 30)

#define HPMMAP_IOC_MAGIC	0xB6

/**
 * struct hpmmap_info - HPMMAP_IOC_INFO
 * @size: sizeof(struct hpmmap_info)
 * @flags: must be 0
 * @abi_version: out: HPMMAP_ABI_VERSION of the module
 * @__reserved: must be 0
 * @memory_block_bytes: out: granularity of HPMMAP_IOC_POOL_ADD, in bytes
 *	(the size of a memory section; a memory block of sysfs is a
 *	multiple of it)
 * @features: out: HPMMAP_FEATURE_*
 */
struct hpmmap_info {
	__u32 size;
	__u32 flags;
	__u32 abi_version;
	__u32 __reserved;
	__aligned_u64 memory_block_bytes;
	__aligned_u64 features;
};
#define HPMMAP_IOC_INFO		_IOWR(HPMMAP_IOC_MAGIC, 0, struct hpmmap_info)

/* Bit 0 is free: no module has set it. */
/* Jobs are in sysfs, and stay there while the file that launched them is open. */
#define HPMMAP_FEATURE_JOBS	(1ULL << 1)
/* Limits of cgroups and in percent, and HPMMAP_IOC_LIMIT_LIST. */
#define HPMMAP_FEATURE_LIMITS	(1ULL << 2)

/**
 * struct hpmmap_pool_add - HPMMAP_IOC_POOL_ADD: hand over offline memory
 * @size: sizeof(struct hpmmap_pool_add)
 * @flags: HPMMAP_POOL_F_*
 * @start: physical start address, a multiple of memory_block_bytes
 * @length: length, a multiple of memory_block_bytes, not 0
 * @node: in: the NUMA node the caller expects, or -1 for any;
 *	out: the node the memory belongs to
 * @__reserved: must be 0
 *
 * Needs CAP_SYS_ADMIN. The whole range must have been set offline through
 * /sys/devices/system/memory/memoryN/state. From success until
 * HPMMAP_IOC_POOL_REMOVE the memory cannot be set online.
 *
 * Errors: EBUSY (part of the range is online or about to be), EEXIST (part of
 * it is in a pool already), ENXIO (no memory there), EXDEV (the memory is on
 * another node than @node; @node then holds the right one).
 */
struct hpmmap_pool_add {
	__u32 size;
	__u32 flags;
	__aligned_u64 start;
	__aligned_u64 length;
	__s32 node;
	__u32 __reserved;
};
#define HPMMAP_IOC_POOL_ADD	_IOWR(HPMMAP_IOC_MAGIC, 1, struct hpmmap_pool_add)

/* The memory was in ZONE_MOVABLE: a note for setting it online again. */
#define HPMMAP_POOL_F_MOVABLE	(1U << 0)

/**
 * struct hpmmap_pool_remove - HPMMAP_IOC_POOL_REMOVE: give memory up
 * @size: sizeof(struct hpmmap_pool_remove)
 * @flags: must be 0
 * @start: physical start address, as for HPMMAP_IOC_POOL_ADD
 * @length: length; the range may be part of one that was added
 * @busy_bytes: out: bytes of the range that jobs hold (EBUSY)
 * @pinned_bytes: out: bytes that no job holds but that a device or another
 *	process has still pinned (EBUSY)
 * @bad_bytes: out: bytes of blocks with memory errors; since ABI 2
 *
 * Needs CAP_SYS_ADMIN. All or nothing. After success the range can be set
 * online again, except sections that contain a block with a memory error: these
 * stay offline and cannot be added again (ENXIO).
 *
 * Errors: ENOENT (part of the range is in no pool), EBUSY (in use), ENOSPC (without it the
 * NUMA node has too little for what was promised; since ABI 5).
 */
struct hpmmap_pool_remove {
	__u32 size;
	__u32 flags;
	__aligned_u64 start;
	__aligned_u64 length;
	__aligned_u64 busy_bytes;
	__aligned_u64 pinned_bytes;
	__aligned_u64 bad_bytes;
};
#define HPMMAP_IOC_POOL_REMOVE	_IOWR(HPMMAP_IOC_MAGIC, 2, struct hpmmap_pool_remove)

/**
 * struct hpmmap_pool_range - one element of HPMMAP_IOC_POOL_LIST
 * @start: physical start address
 * @length: length; always one memory section (memory_block_bytes)
 * @free_bytes: bytes that are not held
 * @pinned_bytes: bytes that no job holds but that are still pinned
 * @node: NUMA node
 * @flags: HPMMAP_POOL_F_* given when it was added
 * @bad_bytes: bytes of blocks with memory errors, which are never handed out;
 *	since ABI 2
 */
struct hpmmap_pool_range {
	__aligned_u64 start;
	__aligned_u64 length;
	__aligned_u64 free_bytes;
	__aligned_u64 pinned_bytes;
	__s32 node;
	__u32 flags;
	__aligned_u64 bad_bytes;
};
#define HPMMAP_POOL_RANGE_MIN_SIZE	40

/**
 * struct hpmmap_pool_list - HPMMAP_IOC_POOL_LIST
 * @size: sizeof(struct hpmmap_pool_list)
 * @flags: must be 0
 * @ranges: pointer to an array of struct hpmmap_pool_range
 * @nr: in: length of the array (0: only count); out: number of existing
 *	ranges. If the array is too short it holds the first ones, in order
 *	of address.
 * @range_size: sizeof(struct hpmmap_pool_range) as the caller knows it, a
 *	multiple of 8, at most 4096; 0: HPMMAP_POOL_RANGE_MIN_SIZE. Members that
 *	the module does not know read as zero. Reserved before ABI 2.
 *
 * Errors: EINVAL (@range_size).
 */
struct hpmmap_pool_list {
	__u32 size;
	__u32 flags;
	__aligned_u64 ranges;
	__u32 nr;
	__u32 range_size;
};
#define HPMMAP_IOC_POOL_LIST	_IOWR(HPMMAP_IOC_MAGIC, 3, struct hpmmap_pool_list)

/**
 * struct hpmmap_region - memory at an address of each program of a launch
 * @start: virtual start address, a multiple of HPMMAP_BLOCK_BYTES, not 0
 * @length: length, a multiple of HPMMAP_BLOCK_BYTES, not 0
 * @node: the NUMA node that it is bound to, one of the launch's; -1: placed as other memory
 * @__reserved: must be 0
 */
struct hpmmap_region {
	__aligned_u64 start;
	__aligned_u64 length;
	__s32 node;
	__u32 __reserved;
};

/**
 * struct hpmmap_launch - HPMMAP_IOC_LAUNCH: register the calling process
 * @size: sizeof(struct hpmmap_launch)
 * @flags: HPMMAP_LAUNCH_F_*
 * @page_size: 2 MB (HPMMAP_BLOCK_BYTES) or 1 GB (HPMMAP_LARGE_BYTES); 0 is 2 MB
 * @nodemask: pointer to an array of 64-bit words, bit n of word w stands for
 *	node 64 * w + n; 0: all nodes
 * @nodemask_bits: number of valid bits in @nodemask, at most 1024
 * @__reserved: must be 0
 * @job_id: out: number of the new job, shown in sysfs
 * @only: pointer to patterns, one after the other, each of at least one character
 *	and ended by a zero byte; 0: none. Since ABI 3
 * @only_bytes: their total length, at most HPMMAP_LAUNCH_ONLY_MAX_BYTES; 0: none
 * @nr_regions: length of @regions, at most HPMMAP_LAUNCH_MAX_REGIONS. Reserved before ABI 6
 * @static_bytes: size of the static region of each program, a multiple of @page_size, at most
 *	HPMMAP_LAUNCH_STATIC_MAX_BYTES; 0: none. Since ABI 5
 * @regions: pointer to an array of struct hpmmap_region, in order of address; 0: none. Since ABI 6
 *
 * The process becomes the first of a new job. Nothing changes for it until
 * its next successful execve(2): from then on its private anonymous memory
 * comes from the pools. The registration survives further execve(2) calls and
 * is inherited over fork(2), unless HPMMAP_LAUNCH_F_NO_INHERIT is set. A
 * set-user-ID or 32-bit program ends it.
 *
 * With patterns, only programs that match one of them are registered. Other programs
 * use ordinary memory, but they and the programs that they execute belong to the job.
 * A pattern with a slash is compared with the path that was given to execve(2) (for a
 * script also with the interpreter's path), another one with its last component. "*",
 * "?" and "[...]" mean the same as in a shell, but they also match a slash and a dot.
 *
 * A static region is pool memory that is mapped before the first instruction of each registered
 * program. brk(2) and mmap(2) of private, readable and writable memory give parts of it, and
 * munmap(2) takes them back, without a change of a mapping; freed parts stay accessible. mmap(2)
 * beyond it fails with HPMMAP_LAUNCH_F_STRICT, and otherwise works as without a region. A program
 * whose region cannot be had is killed with HPMMAP_LAUNCH_F_STRICT, and otherwise has none.
 *
 * Regions are ordinary private memory of the pools that each registered program has mapped and
 * bound before its first instruction. The launch takes the memory for the first program. A program
 * is killed if a region overlaps what Linux has mapped, or if a later program finds no memory.
 *
 * The open file keeps the last job that was launched by it: its counters can be
 * read in sysfs until its last process has ended and the file is closed in all
 * processes.
 *
 * Memory comes from the nodes of @nodemask. Among these the memory policy of
 * the mapping (mbind(2)) decides, or else that of the thread
 * (set_mempolicy(2)); a cpuset's nodes restrict it further. Without a
 * policy the node of the calling CPU comes first, then the nearest ones, unless
 * HPMMAP_LAUNCH_F_INTERLEAVE or HPMMAP_LAUNCH_F_FIRST_TOUCH is set. If a policy
 * leaves none of the nodes there is no memory, as if they were exhausted.
 *
 * Errors: EINVAL also for malformed patterns, and for @static_bytes or @regions with
 * HPMMAP_LAUNCH_F_FIRST_TOUCH; ENODEV (no node of @nodemask has a pool), ENOMEM (too little for
 * @regions; with HPMMAP_LAUNCH_F_STRICT: the pools of these nodes are exhausted or have less than
 * @static_bytes, or a limit of the user or the cgroup is reached), EAGAIN (the user has 32768 jobs,
 * or 1024 without a process that open files keep), EBUSY (a live patch holds a system
 * call that has to be hooked; see the kernel log).
 */
struct hpmmap_launch {
	__u32 size;
	__u32 flags;
	__aligned_u64 page_size;
	__aligned_u64 nodemask;
	__u32 nodemask_bits;
	__u32 __reserved;
	__aligned_u64 job_id;
	__aligned_u64 only;
	__u32 only_bytes;
	__u32 nr_regions;
	__aligned_u64 static_bytes;
	__aligned_u64 regions;
};
#define HPMMAP_IOC_LAUNCH	_IOWR(HPMMAP_IOC_MAGIC, 4, struct hpmmap_launch)

#define HPMMAP_LAUNCH_ONLY_MAX_BYTES	256
#define HPMMAP_LAUNCH_STATIC_MAX_BYTES	(1ULL << 46)
#define HPMMAP_LAUNCH_MAX_REGIONS	16

/* ENOMEM when the pools are exhausted, instead of a fallback to ordinary memory. */
#define HPMMAP_LAUNCH_F_STRICT		(1U << 0)
/* Programs that child processes execute are not registered. */
#define HPMMAP_LAUNCH_F_NO_INHERIT	(1U << 1)
/* Spread the blocks over the nodes in turn. */
#define HPMMAP_LAUNCH_F_INTERLEAVE	(1U << 2)
/*
 * Text, data and bss of the programs come from the pools, too, and shared
 * libraries are mapped in advance.
 */
#define HPMMAP_LAUNCH_F_IMAGE		(1U << 3)
/*
 * A mapping has its blocks from the beginning, but a 2 MB block that it covers
 * wholly is mapped only at the first touch, with one page fault. It then comes
 * from the node of the touching CPU if that has a free one. EINVAL together with
 * HPMMAP_LAUNCH_F_INTERLEAVE or a page_size of 1 GB.
 */
#define HPMMAP_LAUNCH_F_FIRST_TOUCH	(1U << 4)
/*
 * Stacks are populated at once: each mapping with MAP_STACK, and 8 MB or RLIMIT_STACK of
 * the main stack. Otherwise a mapping with MAP_STACK has the 2 MB blocks with its uppermost
 * 128 KB. The rest is populated 2 MB at a time, with one page fault each; if the pools are
 * exhausted then, with ordinary memory, even with HPMMAP_LAUNCH_F_STRICT. The main stack is
 * ordinary memory, has 128 KB and grows as usual.
 */
#define HPMMAP_LAUNCH_F_EAGER_STACKS	(1U << 5)
/*
 * Shared memory without a name in a file system (mmap with MAP_SHARED and
 * MAP_ANONYMOUS, memfd_create, shmget) is ordinary memory. Otherwise it comes from
 * the pools, and outlives the job as on Linux.
 */
#define HPMMAP_LAUNCH_F_SHARED_LINUX	(1U << 6)

/**
 * DOC: Limits
 *
 * Blocks are charged to a user and to a cgroup of the unified hierarchy (v2), with
 * all its ancestors except the root. User ID and cgroup of the process decide when it
 * gets an address space of its own: by execve(2), fork(2), or the launch of a marked
 * program. A setuid(2) or a move to another cgroup counts from then on. Blocks that
 * a fork leaves shared stay charged as before until they are freed. The user that
 * makes a user namespace is charged for all users in it; in one that root has made,
 * each user is charged.
 *
 * A user without a limit has the default limit, which is half of all pool memory
 * unless another one is set; root has none. Cgroups have no limit unless one is set,
 * and it ends with the cgroup. A limit in percent is a share of all pool memory and
 * follows its size. A user or cgroup above a new limit keeps its memory but gets no
 * more.
 */

/**
 * struct hpmmap_limit_set - HPMMAP_IOC_LIMIT_SET: limit a user or a cgroup
 * @size: sizeof(struct hpmmap_limit_set)
 * @flags: HPMMAP_LIMIT_F_*
 * @uid: user ID in the initial user namespace; 0 with HPMMAP_LIMIT_F_DEFAULT or
 *	HPMMAP_LIMIT_F_CGROUP
 * @cgroup_fd: with HPMMAP_LIMIT_F_CGROUP the cgroup's directory, opened;
 *	otherwise 0
 * @bytes: limit, a multiple of HPMMAP_BLOCK_BYTES; HPMMAP_LIMIT_NONE;
 *	HPMMAP_LIMIT_INHERIT, except for the default; with
 *	HPMMAP_LIMIT_F_PERCENT 1 to 100
 *
 * Needs CAP_SYS_ADMIN.
 *
 * Errors: EBADF (@cgroup_fd is not a directory of the unified hierarchy),
 * ENOENT (the cgroup was removed), EINVAL also for the root of the hierarchy and
 * more than 64 levels below it, where memory counts for the ancestor at that level.
 */
struct hpmmap_limit_set {
	__u32 size;
	__u32 flags;
	__u32 uid;
	__s32 cgroup_fd;
	__aligned_u64 bytes;
};
#define HPMMAP_IOC_LIMIT_SET	_IOWR(HPMMAP_IOC_MAGIC, 5, struct hpmmap_limit_set)

/* For all users without a limit of their own. */
#define HPMMAP_LIMIT_F_DEFAULT	(1U << 0)
/* For a cgroup, with its descendants. */
#define HPMMAP_LIMIT_F_CGROUP	(1U << 1)
/* A share of all pool memory. */
#define HPMMAP_LIMIT_F_PERCENT	(1U << 2)
#define HPMMAP_LIMIT_NONE	(~0ULL)
/* No limit of its own: the default for a user, none for a cgroup. */
#define HPMMAP_LIMIT_INHERIT	(~0ULL - 1)

/**
 * struct hpmmap_limit_entry - one element of HPMMAP_IOC_LIMIT_LIST
 * @flags: HPMMAP_LIMIT_F_*
 * @uid: user ID of a user's limit
 * @cgroup_id: inode number of the directory, for a cgroup's limit
 * @rule: @bytes of HPMMAP_IOC_LIMIT_SET; HPMMAP_LIMIT_INHERIT if none was set
 * @limit_bytes: the limit that follows from @rule now, or HPMMAP_LIMIT_NONE
 * @held_bytes: bytes charged; 0 for the default
 */
struct hpmmap_limit_entry {
	__u32 flags;
	__u32 uid;
	__aligned_u64 cgroup_id;
	__aligned_u64 rule;
	__aligned_u64 limit_bytes;
	__aligned_u64 held_bytes;
};

/**
 * struct hpmmap_limit_list - HPMMAP_IOC_LIMIT_LIST
 * @size: sizeof(struct hpmmap_limit_list)
 * @flags: must be 0
 * @entries: pointer to an array of struct hpmmap_limit_entry
 * @nr: in: length of the array (0: only count); out: number of existing
 *	entries, of which the array holds as many as it can
 * @__reserved: must be 0
 *
 * The default comes first, then users and cgroups that have a limit, hold memory or
 * have jobs: all with CAP_SYS_ADMIN, otherwise the caller and the cgroups it is in.
 */
struct hpmmap_limit_list {
	__u32 size;
	__u32 flags;
	__aligned_u64 entries;
	__u32 nr;
	__u32 __reserved;
};
#define HPMMAP_IOC_LIMIT_LIST	_IOWR(HPMMAP_IOC_MAGIC, 6, struct hpmmap_limit_list)

/**
 * struct hpmmap_promise - pool memory of one NUMA node
 * @node: the NUMA node; -1, in an array of one element: spread evenly over all pools
 * @__reserved: must be 0
 * @bytes: a multiple of HPMMAP_BLOCK_BYTES
 */
struct hpmmap_promise {
	__s32 node;
	__u32 __reserved;
	__aligned_u64 bytes;
};

/* Of HPMMAP_IOC_PROMISE_SET and LIST: the launch that the open file keeps; a launch. */
#define HPMMAP_PROMISE_F_LAUNCH	(1U << 3)

/**
 * struct hpmmap_promise_set - HPMMAP_IOC_PROMISE_SET: promise pool memory
 * @size: sizeof(struct hpmmap_promise_set)
 * @flags: HPMMAP_LIMIT_F_CGROUP, HPMMAP_PROMISE_F_LAUNCH, or 0 for a user
 * @uid: user ID in the initial user namespace; otherwise 0
 * @cgroup_fd: with HPMMAP_LIMIT_F_CGROUP the cgroup's directory, opened; otherwise 0
 * @promises: pointer to an array of struct hpmmap_promise, each for another NUMA node
 * @nr: its length; 0: nothing is promised any more
 * @node: out with ENOSPC: the NUMA node where it cannot be kept, or -1
 * @room_bytes: out with ENOSPC: what could be promised there, or on all together
 *
 * Since ABI 5. While a user, cgroup or launch holds less of a NUMA node than is promised to it,
 * no other gets the free memory that it lacks. Only memory errors break a promise. It ends
 * with the cgroup or launch, is no limit, and limits hold within it. It replaces what was
 * promised before, all or nothing.
 *
 * Memory counts for the promises of its cgroup and all cgroups above, or, where none of these
 * has one of the NUMA node, for that of its user. Each is taken out of the next one above. A
 * promise to a launch is taken out of what counts for the launching process. Needs
 * CAP_SYS_ADMIN, except for a launch whose promise can be taken out of others as a whole.
 *
 * Errors: ENOSPC (it cannot be kept), EDQUOT (without CAP_SYS_ADMIN: with other launches it would be
 * more than the limit of its user or of one of its cgroups), ENXIO (the NUMA node has no pool),
 * EBADF, ENOENT as for HPMMAP_IOC_LIMIT_SET, EINVAL also if the file keeps no launch.
 */
struct hpmmap_promise_set {
	__u32 size;
	__u32 flags;
	__u32 uid;
	__s32 cgroup_fd;
	__aligned_u64 promises;
	__u32 nr;
	__s32 node;
	__aligned_u64 room_bytes;
};
#define HPMMAP_IOC_PROMISE_SET	_IOWR(HPMMAP_IOC_MAGIC, 8, struct hpmmap_promise_set)

/**
 * struct hpmmap_promise_entry - one element of HPMMAP_IOC_PROMISE_LIST
 * @flags: as those of struct hpmmap_promise_set
 * @uid: the user, or that of the launch
 * @id: inode number of the cgroup's directory, or number of the launch
 * @node: the NUMA node
 * @__reserved: 0
 * @promised_bytes: what is promised of it
 * @held_bytes: what is held of it and counts for the promise
 */
struct hpmmap_promise_entry {
	__u32 flags;
	__u32 uid;
	__aligned_u64 id;
	__s32 node;
	__u32 __reserved;
	__aligned_u64 promised_bytes;
	__aligned_u64 held_bytes;
};

/**
 * struct hpmmap_promise_list - HPMMAP_IOC_PROMISE_LIST
 * @size: sizeof(struct hpmmap_promise_list)
 * @flags: must be 0
 * @entries: pointer to an array of struct hpmmap_promise_entry
 * @nr: in: length of the array, of which 65536 elements are used at most; out: number of
 *	existing entries
 * @__reserved: must be 0
 *
 * Since ABI 5. All promises with CAP_SYS_ADMIN, otherwise those of the caller, of the cgroups it
 * is in, and of its user's launches.
 */
struct hpmmap_promise_list {
	__u32 size;
	__u32 flags;
	__aligned_u64 entries;
	__u32 nr;
	__u32 __reserved;
};
#define HPMMAP_IOC_PROMISE_LIST	_IOWR(HPMMAP_IOC_MAGIC, 9, struct hpmmap_promise_list)

/**
 * struct hpmmap_run - one element of HPMMAP_IOC_RUNS
 * @address: physical start address
 * @length: length
 */
struct hpmmap_run {
	__aligned_u64 address;
	__aligned_u64 length;
};

/**
 * struct hpmmap_runs - HPMMAP_IOC_RUNS: where memory of the calling process is
 * @size: sizeof(struct hpmmap_runs)
 * @flags: must be 0
 * @start: virtual start address, a multiple of 4096
 * @length: length, a multiple of 4096, not 0
 * @runs: pointer to an array of struct hpmmap_run
 * @nr: in: length of the array; out with success and EMSGSIZE: number of runs there are
 * @__reserved: must be 0
 *
 * Needs CAP_SYS_RAWIO. Since ABI 4. The runs follow each other as the memory does in the
 * range. They are as long as they can be, and together as long as the range.
 *
 * The pages stay where they are, and are no other process's, until the file is closed: by
 * all processes that have it, after munmap(2), execve(2) and the end of the process, too.
 * The range is pinned for long and for writing, as for RDMA, and counts as VmPin of
 * /proc/PID/status, again if it is pinned already. Each call pins; there is no other way
 * to unpin than to close the file.
 *
 * The memory may be that of the pools or ordinary memory: whatever can be pinned so.
 *
 * Errors: EMSGSIZE (there are more runs than the array holds, or than 1048576), EFAULT also if part of the
 * range is not mapped, cannot be written to, or cannot be pinned for long, as memory of a
 * device; ENOMEM also if more than RLIMIT_MEMLOCK would be pinned, without CAP_IPC_LOCK;
 * EINTR (the process is being killed). Nothing is pinned then.
 */
struct hpmmap_runs {
	__u32 size;
	__u32 flags;
	__aligned_u64 start;
	__aligned_u64 length;
	__aligned_u64 runs;
	__u32 nr;
	__u32 __reserved;
};
#define HPMMAP_IOC_RUNS		_IOWR(HPMMAP_IOC_MAGIC, 7, struct hpmmap_runs)

/**
 * DOC: Mark of a program
 *
 * A program file with a mark registers itself when it is executed, as if
 * HPMMAP_IOC_LAUNCH had been called before, if its user may open the device.
 * The mark is in the ELF header: in e_flags, the 32 bits from byte 48 on, which
 * x86-64 does not use and which are 0 without a mark. The upper half is the
 * magic number, the lower half holds options. A mark with options that the
 * module does not know, or that HPMMAP_IOC_LAUNCH would refuse together, is
 * ignored.
 */
#define HPMMAP_MARK_MAGIC	0x484d0000
#define HPMMAP_MARK_MAGIC_MASK	0xffff0000
/*
 * static_bytes: 0, or a power of two: HPMMAP_BLOCK_BYTES, shifted by one less than these bits are.
 * Less than page_size is page_size. Since ABI 5.
 */
#define HPMMAP_MARK_STATIC_SHIFT	10
#define HPMMAP_MARK_STATIC_MASK		(0x1fU << HPMMAP_MARK_STATIC_SHIFT)
/* page_size 1 GB; otherwise 2 MB. */
#define HPMMAP_MARK_F_1G	(1U << 15)
/* The others are the flags of HPMMAP_IOC_LAUNCH. */
#define HPMMAP_MARK_LAUNCH_FLAGS	(HPMMAP_LAUNCH_F_STRICT | \
					 HPMMAP_LAUNCH_F_NO_INHERIT | \
					 HPMMAP_LAUNCH_F_INTERLEAVE | \
					 HPMMAP_LAUNCH_F_IMAGE | \
					 HPMMAP_LAUNCH_F_FIRST_TOUCH | \
					 HPMMAP_LAUNCH_F_EAGER_STACKS | \
					 HPMMAP_LAUNCH_F_SHARED_LINUX)
#define HPMMAP_MARK_OPTIONS	(HPMMAP_MARK_LAUNCH_FLAGS | \
				 HPMMAP_MARK_STATIC_MASK | HPMMAP_MARK_F_1G)

/**
 * DOC: Reuse of a process's own memory
 *
 * Private anonymous memory mapped by mmap(2) with MAP_UNINITIALIZED (0x4000000;
 * Linux ignores it on machines with an MMU) may have old contents of the calling
 * process. On munmap(2) it is kept for the process, and is returned without
 * zeroing to requests with the flag. Requests without it always get zeros; so do
 * pages that a mapping grows by (mremap(2)) and pages after MADV_DONTNEED. Memory
 * that never had the flag is not kept. Kept memory never reaches another process,
 * a child, or the program after execve(2).
 *
 * Memory that a process has mapped with the flag and memory kept for it, in blocks
 * of 2 MB, are together never more than it had mapped with the flag at its peak.
 * Kept memory counts as held by the user. It is taken back, from one process after
 * the other, before any request is refused for want of memory.
 *
 * The flag has no effect on memory that is only reserved (PROT_NONE, or
 * MAP_NORESERVE without MAP_POPULATE), on ordinary memory, and in jobs with
 * HPMMAP_LAUNCH_F_FIRST_TOUCH.
 */

/*
 * madvise(2): as if the range had been mapped with MAP_UNINITIALIZED; its
 * contents stay. Memory that a child shares at the moment is left out.
 * EINVAL: not page aligned, or part of the range is not memory of the module.
 * ENOMEM: part of it is not mapped. Nothing is done then.
 */
#define HPMMAP_MADV_REUSE	0x48505201

#endif /* _UAPI_HPMMAP_H */
