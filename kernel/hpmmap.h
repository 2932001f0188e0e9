/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Private structures of the module and the lock order.
 *
 * Lock order, outermost first:
 *
 *	family->lock		what fork left shared (share.c); only ever tried, as
 *				are mmap_lock and ctx->lock under it
 *	poison_mutex		memory errors, one after the other (poison.c)
 *	hpmmap_hook_mutex	installed hooks (hook.c)
 *	ctx->ops		hooked system calls of one address space
 *	mm->mmap_lock		Linux's
 *	ctx->lock		blocks of one address space; a parent's before
 *				its child's in fork
 *	hpmmap_pool_mutex	which memory is in the pools (section.c);
 *				device_hotplug_lock, then mem_hotplug_lock, are
 *				outside of it
 *	reuse_lock, reuse.lock	spinlocks, memory kept for reuse (reuse.c)
 *	node->lock		spinlock, free blocks of a node (pool.c)
 *	spinlocks that nest in nothing else: the hash of contexts, the list
 *				of pinned blocks, the tables of accounts, the
 *				counters of a job, then those of a context
 *	members_lock, orphans_lock	raw spinlocks, for the probes (exec.c, ctx.c)
 *
 * Nothing that holds hpmmap_pool_mutex may set memory online or offline.
 *
 * Who exits or executes a program waits for nobody: it takes spinlocks that are
 * held for a bounded time, and tries all others.
 */
#ifndef _HPMMAP_H
#define _HPMMAP_H

#include <linux/bitmap.h>
#include <linux/kobject.h>
#include <linux/jump_label.h>
#include <linux/list.h>
#include <linux/llist.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/spinlock.h>
#include <linux/task_work.h>
#include <linux/timex.h>
#include <linux/types.h>
#include <linux/uidgid.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "uapi/hpmmap.h"
#include "compat.h"

#undef pr_fmt
#define pr_fmt(fmt) "hpmmap: " fmt

#define SLOT_SHIFT	21
#define SLOT_SIZE	(1UL << SLOT_SHIFT)
#define SLOT_MASK	(~(SLOT_SIZE - 1))
#define SLOT_ORDER	(SLOT_SHIFT - PAGE_SHIFT)
#define SLOT_PAGES	(1U << SLOT_ORDER)
#define LARGE_ORDER	9	/* 1 GB, in blocks */
#define NO_SLOT		ULONG_MAX

static_assert(SLOT_SIZE == HPMMAP_BLOCK_BYTES);
static_assert(SLOT_SIZE == PMD_SIZE);

static inline unsigned long slot_of(unsigned long addr)
{
	return addr >> SLOT_SHIFT;
}

static inline unsigned int page_in_slot(unsigned long addr)
{
	return (addr >> PAGE_SHIFT) & (SLOT_PAGES - 1);
}

/* The part of [start, end) that lies in a slot, as pages of the slot. */
static inline void slot_clip(unsigned long slot, unsigned long start,
			     unsigned long end, unsigned int *first,
			     unsigned int *nr)
{
	unsigned long lo = max(start, slot << SLOT_SHIFT);
	unsigned long hi = min(end, (slot + 1) << SLOT_SHIFT);

	*first = page_in_slot(lo);
	*nr = (hi - lo) >> PAGE_SHIFT;
}

/**
 * enum hpmmap_block_state - where a block of a pool is
 * @HPMMAP_BLOCK_FREE: in the buddy allocator; nobody else refers to it
 * @HPMMAP_BLOCK_HELD: charged to an account; on a caller's list or in a store
 * @HPMMAP_BLOCK_PINNED: given up by its holder, still charged, and waiting on
 *	the pinned list for somebody else's references to go
 * @HPMMAP_BLOCK_BAD: a memory error is in it; nobody's, and never handed out
 */
enum hpmmap_block_state {
	HPMMAP_BLOCK_FREE,
	HPMMAP_BLOCK_HELD,
	HPMMAP_BLOCK_PINNED,
	HPMMAP_BLOCK_BAD,
};

struct hpmmap_account;
struct hpmmap_ctx;
struct hpmmap_family;
struct hpmmap_payer;
struct kernel_clone_args;

/**
 * struct hpmmap_block - the memory behind one 2 MB slot of an address space
 * @link: list of whoever owns it (unused while in a store)
 * @folio: the order-9 folio of a pool block; NULL for Linux's memory.
 *	Immutable.
 * @pages: NULL for a pool block; otherwise SLOT_PAGES pointers to order-0
 *	pages of Linux, NULL where none was needed yet. Protected by ctx->lock.
 * @account: who is charged for a pool block that is not free
 * @ctx: the context it came from while PINNED (holds a reference)
 * @slot: its slot while in a store, protected by ctx->lock; on a list from
 *	hpmmap_pool_alloc() the one it is meant for, or NO_SLOT
 * @nid: node of a pool block. Immutable.
 * @zeroed: those of its pages that are stale are zero
 * @bad: it is not to be handed out any more; protected by node->lock
 * @foreign_pin: a store that shared it gave it up while it was pinned, maybe for
 *	the process of that store
 * @users: stores it is in. With more than one, nobody may change it, and no
 *	entry of a page table lets anybody write to it (see share.c).
 * @state: changed only by block_set_state()
 * @stale: one bit a page: the content means nothing to the current mapping and
 *	has to be cleared before anybody sees it. Protected by ctx->lock.
 * @reuse: one bit a page: the content is of the process that has the block, and
 *	it may see it again. Means something only to the context @reuse_id.
 *	Protected as @stale.
 * @reuse_id: id of the context that keeps it for reuse, or 0
 * @lost: NULL, or one bit a page: it is a copy of a page that a memory error was
 *	in, and who touches it gets SIGBUS. Protected as @stale.
 */
struct hpmmap_block {
	struct list_head link;
	struct folio *folio;
	struct page **pages;
	struct hpmmap_account *account;
	struct hpmmap_ctx *ctx;
	unsigned long slot;
	int nid;
	bool zeroed;
	bool bad;
	bool foreign_pin;
	atomic_t users;
	enum hpmmap_block_state state;
	DECLARE_BITMAP(stale, SLOT_PAGES);
	DECLARE_BITMAP(reuse, SLOT_PAGES);
	u64 reuse_id;
	unsigned long *lost;
};

/*
 * Is there a page in it that nobody may touch? The core maps no such folio by
 * one entry either.
 */
static inline bool hpmmap_block_is_hurt(const struct hpmmap_block *block)
{
	return block->folio ? folio_test_has_hwpoisoned(block->folio) :
			      !!block->lost;
}

/*
 * Blocks that who exits or executes a program zeroes itself, of those that it
 * gives up: what small programs have, and some ten milliseconds at most.
 */
#define HPMMAP_EXIT_ZEROES 16

static inline bool hpmmap_block_is_shared(const struct hpmmap_block *block)
{
	/* Who finds it alone sees what the others wrote before they left. */
	return atomic_read_acquire(&block->users) > 1;
}

/* Mark of a slot in the store whose block is shared, or was until lately. */
#define SLOT_SHARED XA_MARK_0

/**
 * enum hpmmap_timed - hooked calls whose time is taken
 */
enum hpmmap_timed {
	HPMMAP_TIMED_MMAP,
	HPMMAP_TIMED_MUNMAP,
	HPMMAP_TIMED_MREMAP,
	HPMMAP_TIMED_BRK,
	HPMMAP_NR_TIMED
};

/**
 * enum hpmmap_fault - why there is a fault in memory of ours
 * @HPMMAP_FAULT_FORK: shared since a fork, or was
 * @HPMMAP_FAULT_RESERVED: of a mapping without memory of its own until now
 * @HPMMAP_FAULT_FIRST_TOUCH: the job asked for it
 * @HPMMAP_FAULT_LINUX: a page of Linux stands in
 * @HPMMAP_FAULT_UNMAPPED: it was taken out of the page table, by another call
 *	at the moment, say
 */
enum hpmmap_fault {
	HPMMAP_FAULT_FORK,
	HPMMAP_FAULT_RESERVED,
	HPMMAP_FAULT_FIRST_TOUCH,
	HPMMAP_FAULT_LINUX,
	HPMMAP_FAULT_UNMAPPED,
	HPMMAP_NR_FAULTS
};

/**
 * enum hpmmap_fallback - for what memory of Linux is used instead
 * @HPMMAP_FALLBACK_MMAP: a mapping
 * @HPMMAP_FALLBACK_BRK: a piece of the heap
 * @HPMMAP_FALLBACK_EXEC: the stack or the image of a program
 * @HPMMAP_FALLBACK_BLOCK: one block, at a touch or for a copy
 * @HPMMAP_FALLBACK_ASKED: what a call needs Linux's own memory for
 */
enum hpmmap_fallback {
	HPMMAP_FALLBACK_MMAP,
	HPMMAP_FALLBACK_BRK,
	HPMMAP_FALLBACK_EXEC,
	HPMMAP_FALLBACK_BLOCK,
	HPMMAP_FALLBACK_ASKED,
	HPMMAP_NR_FALLBACKS
};

/**
 * enum hpmmap_reason - why memory of Linux is used instead
 * @HPMMAP_REASON_EXHAUSTED: the pools of the job's nodes have too little
 * @HPMMAP_REASON_LIMIT: the user or the cgroup may not hold so much
 * @HPMMAP_REASON_OTHER: a memory policy, a pinned block in the way, no memory
 *	of the kernel
 */
enum hpmmap_reason {
	HPMMAP_REASON_EXHAUSTED,
	HPMMAP_REASON_LIMIT,
	HPMMAP_REASON_OTHER,
	HPMMAP_NR_REASONS
};

/**
 * enum hpmmap_limited - whose limit
 * @HPMMAP_LIMITED_USER: of the user
 * @HPMMAP_LIMITED_DEFAULT: of users without one of their own
 * @HPMMAP_LIMITED_CGROUP: of the cgroup, or one above
 */
enum hpmmap_limited {
	HPMMAP_LIMITED_USER,
	HPMMAP_LIMITED_DEFAULT,
	HPMMAP_LIMITED_CGROUP,
	HPMMAP_NR_LIMITED
};

/**
 * enum hpmmap_stall - what a process waits for
 * @HPMMAP_STALL_CALLS: another hooked call of the same address space
 * @HPMMAP_STALL_ZEROING: blocks that somebody is zeroing, for want of others
 * @HPMMAP_STALL_RECLAIM: what processes keep for reuse, to be taken back
 * @HPMMAP_STALL_PINS: somebody else's references to a block
 */
enum hpmmap_stall {
	HPMMAP_STALL_CALLS,
	HPMMAP_STALL_ZEROING,
	HPMMAP_STALL_RECLAIM,
	HPMMAP_STALL_PINS,
	HPMMAP_NR_STALLS
};

/*
 * Times are in ticks of the time stamp counter. A bucket for what is below 2^FIRST,
 * four for each power of two, and one for what is 2^LAST or more.
 */
#define HPMMAP_LATENCY_FIRST 9
#define HPMMAP_LATENCY_LAST 31
#define HPMMAP_LATENCY_BUCKETS \
	((HPMMAP_LATENCY_LAST - HPMMAP_LATENCY_FIRST) * 4 + 2)

/**
 * struct hpmmap_latency - the times of one call
 * @ticks: their sum
 * @worst: the longest
 * @nr: how many, by bucket
 */
struct hpmmap_latency {
	u64 ticks;
	u64 worst;
	unsigned long nr[HPMMAP_LATENCY_BUCKETS];
};

/**
 * struct hpmmap_fault_range - faults that lie near each other
 */
struct hpmmap_fault_range {
	unsigned long start;
	unsigned long end;
	unsigned long nr;
	enum hpmmap_fault why;
	pid_t pid;
};

/**
 * struct hpmmap_stats - what a context counts for its job
 * @calls: of the hooked calls; protected by ctx->ops
 * @peak: most blocks it has held, protected by the job's lock
 * @remote: blocks placed on another node than that of the CPU; protected by
 *	ctx->lock, as is ctx->placed
 * @entries_2m: entries made in the page table
 * @lock: protects the members that follow
 * @faults: by reason
 * @fallbacks: by what for
 * @reasons: the same by reason
 * @refusals: calls that failed for want of memory of the pools
 * @nr_ranges: how many of @ranges there are
 * @nr_unlisted: faults in none of them
 * @ranges: where there were faults
 */
struct hpmmap_stats {
	struct hpmmap_latency calls[HPMMAP_NR_TIMED];
	long peak;
	unsigned long remote;
	atomic_long_t entries_2m;
	atomic_long_t entries_4k;
	spinlock_t lock;
	unsigned long faults[HPMMAP_NR_FAULTS];
	unsigned long fallbacks[HPMMAP_NR_FALLBACKS];
	unsigned long reasons[HPMMAP_NR_REASONS];
	u64 fallback_bytes;
	unsigned long refusals;
	unsigned int nr_ranges;
	unsigned long nr_unlisted;
	struct hpmmap_fault_range ranges[6];
};

/**
 * struct hpmmap_stall_total - how often and how long processes waited
 */
struct hpmmap_stall_total {
	u64 nr;
	u64 ticks;
	u64 worst;
};

/**
 * struct hpmmap_totals - what the contexts of a job have counted
 *
 * Those of a job, protected by its lock, hold what contexts that are gone have
 * left, and from @stalls to @limited_cgroup what is counted for the job itself.
 *
 * @stalls: by what for
 * @peak: blocks, see hpmmap_stats_peak()
 * @peak_one: most blocks that one context held
 * @lowest_free: least free blocks that were left, ULONG_MAX if none were taken
 * @limited: requests that a limit has refused, by whose it is
 * @limited_cgroup: the last one of a cgroup was that of this one
 * @held: and up to @pinned: what live contexts have now; not of a job itself
 * @placed: blocks by node, as struct hpmmap_ctx has them
 */
struct hpmmap_totals {
	struct hpmmap_stall_total stalls[HPMMAP_NR_STALLS];
	long peak;
	long peak_one;
	unsigned long lowest_free;
	u64 limited[HPMMAP_NR_LIMITED];
	u64 limited_cgroup;
	long held;
	long linux_pages;
	unsigned long kept;
	long pinned;
	struct hpmmap_latency calls[HPMMAP_NR_TIMED];
	u64 remote;
	u64 entries_2m;
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
	unsigned int nr_ranges;
	unsigned long nr_unlisted;
	struct hpmmap_fault_range ranges[32];
	u64 placed[];
};

/**
 * struct hpmmap_job - what one launch asked for; immutable but for its counters
 * @refs: members, contexts, and the file it was launched by
 * @id: number shown to user space
 * @account: who launched it
 * @large: place memory in 1 GB runs
 * @interleave: where no memory policy says otherwise, the nodes take turns
 * @first_touch: who touches a block first decides on its node
 * @nodes: nodes whose pools may be used, whatever a memory policy says
 * @nr_members: processes that belong to it
 * @nr_members_total: the same, and those that are gone
 * @lock: protects the members that follow, and @totals
 * @peaks: blocks that its contexts have held at most, added up
 * @contexts: those that are in use
 * @sum: what somebody who reads is adding up, or NULL; and for the how manieth
 *	time it is (stats.c)
 * @read_lock: one reads at a time
 * @totals: what is known of its memory
 * @gone: in the list of jobs to be freed
 */
struct hpmmap_job {
	refcount_t refs;
	u64 id;
	struct hpmmap_account *account;
	bool strict;
	bool no_inherit;
	bool interleave;
	bool first_touch;
	bool large;
	bool image;
	nodemask_t nodes;
	struct hpmmap_totals *totals;

	atomic_long_t nr_members;
	atomic_long_t nr_members_total;
	spinlock_t lock;
	long peaks;
	struct list_head contexts;
	struct hpmmap_totals *sum;
	unsigned long nr_sums;
	struct mutex read_lock;
	struct kobject kobj;
	struct llist_node gone;
};

/**
 * struct hpmmap_placement - where memory should come from
 * @nodes: nodes that may be used
 * @preferred: those of them to use first
 * @near: of either, the nearest to this node first
 * @in_turn: the @preferred nodes take turns, by the number of the slot
 * @weighted: they have different shares
 * @large: a turn is 1 GB where that fits
 */
struct hpmmap_placement {
	nodemask_t nodes;
	nodemask_t preferred;
	int near;
	bool in_turn;
	bool weighted;
	bool large;
};

/**
 * struct hpmmap_reuse - memory of a process that it gave up and may get again
 * @lock: protects @blocks and @nr
 * @blocks: lists by node; NULL until something is to be kept
 * @nr: how many blocks they have
 * @nr_mapped: blocks in the store that are to be kept; this and @peak are protected by
 *	ctx->lock
 * @peak: the largest @nr_mapped ever
 * @link: in the list of contexts that keep something (reuse.c)
 */
struct hpmmap_reuse {
	spinlock_t lock;
	struct list_head *blocks;
	unsigned long nr;
	unsigned long nr_mapped;
	unsigned long peak;
	struct list_head link;
};

/**
 * enum hpmmap_name - what a mapping is called in /proc/PID/maps
 * @HPMMAP_NAME_NONE: nothing
 * @HPMMAP_NAME_HEAP: up to the break
 * @HPMMAP_NAME_STACK: the main stack
 */
enum hpmmap_name {
	HPMMAP_NAME_NONE,
	HPMMAP_NAME_HEAP,
	HPMMAP_NAME_STACK,
	HPMMAP_NR_NAMES
};

/**
 * struct hpmmap_ctx - HPMMAP's half of one address space
 * @refs: the hash, sysfs, pinned blocks and lookups
 * @mm: the address space; mmgrab()bed until the teardown. Its address is the
 *	identity of the context.
 * @id: number shown to user space
 * @node: in the hash; protected by the hash's lock, read under RCU
 * @job: policy; immutable, holds a reference
 * @account: who is charged for what it gets; immutable, holds a reference
 * @job_link: in the job's list
 * @in_sum: which sum of the job it has been added to last; protected by the
 *	job's lock
 * @file: what own VMAs map, offset equal to the virtual address. Until a new
 *	child runs its VMAs have the parent's; contents are found by vma->vm_mm.
 * @named: further files of the same inode, by name, made when they are needed.
 *	Protected by @ops.
 * @image: programs and shared objects are mapped in advance; set before the
 *	program runs
 * @image_bytes: how much of the program is in memory of ours. Protected by
 *	@ops.
 * @ops: serialises the hooked calls and fork
 * @lock: protects @store and the blocks in it
 * @store: slot number -> struct hpmmap_block; marked with SLOT_SHARED
 * @spare_slot: where the search for a block to exchange goes on; protected
 *	by @lock
 * @heap_end: end of the mapped heap, a multiple of the page size; 0: the heap
 *	is Linux's. Protected by @ops.
 * @hole: whole slots that were unmapped last, if nothing was mapped since; they
 *	have no blocks. Protected by @ops.
 * @discount: pages of the mapping that mremap(2) moves, taken out of the counts of
 *	the address space (total_vm, locked_vm). Protected by @ops and mmap_lock.
 * @apart: slots begun for small mappings that would not be on their node @nid
 *	(NUMA_NO_NODE: interleaved) where others are: the first address that was
 *	not used yet, if it is in such a slot. Protected by @ops.
 * @fork: who is forking, and the context of its child; @task is read without a
 *	lock, for only the task itself sets it to itself. Protected by @ops.
 * @handback: what is being handed back to Linux, nothing if @end is 0, and who
 *	waits for that. Changed under @ops; set under mmap_lock held for writing,
 *	so who holds it sees whether anything may be mapped.
 * @nr_replacing: calls of Linux that are replacing memory of ours; rises under
 *	@ops only
 * @bind: what hpmmap_policy_set() is setting. Protected by @ops.
 * @family: those it shares blocks with, or NULL; set once
 * @kin: in the list of the family
 * @start_work: runs in a new child before its first instruction
 * @reuse: memory it gave up and may get again
 * @stats: what it counts for its job
 * @placed: blocks that slots were given, by node; protected by @lock
 * @nr_procs: processes that use the address space, as far as they are members;
 *	protected by orphans_lock (ctx.c)
 * @orphan: in the list of contexts without such a process; protected by the same
 * @bury: does what is left to do when it was torn down
 * @torn: it was torn down, so nobody hands over @soiled but who adds to it
 * @soiled: by node, blocks it gave up and that were not zeroed for it
 * @doomed: the snapshot of a fork is incomplete: the child must not run
 */
struct hpmmap_ctx {
	refcount_t refs;
	struct mm_struct *mm;
	u64 id;
	struct hlist_node node;
	unsigned int nr_procs;
	struct list_head orphan;
	struct work_struct bury;
	bool torn;
	atomic_long_t *soiled;
	struct hpmmap_job *job;
	struct hpmmap_account *account;
	struct list_head job_link;
	unsigned long in_sum;
	struct file *file;
	struct file *named[HPMMAP_NR_NAMES];
	pid_t pid;
	bool image;
	unsigned long image_bytes;

	struct mutex ops;
	struct mutex lock;
	struct xarray store;
	unsigned long spare_slot;
	unsigned long heap_end;
	struct {
		unsigned long start;
		unsigned long end;
	} hole;
	struct {
		unsigned long total;
		unsigned long locked;
	} discount;
	struct {
		struct {
			unsigned long next;
			int nid;
		} slots[8];
		unsigned int turn;
	} apart;
	struct {
		struct task_struct *task;
		struct hpmmap_ctx *child;
		bool repair;
		struct vm_area_struct *zapped;
	} fork;
	atomic_t nr_replacing;
	struct {
		unsigned long start;
		unsigned long end;
		wait_queue_head_t wait;
	} handback;
	struct {
		struct task_struct *task;
		const struct mempolicy *pol;
		unsigned long start;
		unsigned long end;
	} bind;
	struct hpmmap_family *family;
	struct list_head kin;
	struct callback_head start_work;
	struct hpmmap_reuse reuse;
	bool doomed;

	atomic_long_t nr_held;
	atomic_long_t nr_linux_pages;
	atomic_long_t nr_fallbacks;
	atomic_long_t nr_faults;
	atomic_long_t nr_faults_kernel;
	atomic_long_t nr_pinned;
	atomic_long_t nr_copied;
	atomic_long_t nr_cleared;

	struct kobject kobj;
	bool in_sysfs;
	struct rcu_head rcu;

	struct hpmmap_stats stats;
	unsigned long placed[];
};

/* account.c */
struct hpmmap_account *hpmmap_account_get_current(void);
void hpmmap_account_put(struct hpmmap_account *account);
int hpmmap_account_charge(struct hpmmap_account *account, unsigned long nr);
void hpmmap_account_charge_anyway(struct hpmmap_account *account,
				  unsigned long nr);
void hpmmap_account_uncharge(struct hpmmap_account *account, unsigned long nr);
struct hpmmap_payer *hpmmap_account_full(struct hpmmap_account *account,
					 unsigned long nr);
bool hpmmap_account_counts_for(struct hpmmap_account *account,
			       struct hpmmap_payer *payer);
kuid_t hpmmap_account_uid(const struct hpmmap_account *account);
atomic_t *hpmmap_account_jobs(struct hpmmap_account *account);
enum hpmmap_limited hpmmap_payer_kind(struct hpmmap_payer *payer,
				      u64 *id);
int hpmmap_limit_set(const struct hpmmap_limit_set *arg);
int hpmmap_limit_list(struct hpmmap_limit_entry __user *entries, u32 *nr,
		      bool all);
void hpmmap_limits_update(void);
u64 hpmmap_limit_default(void);
void hpmmap_accounts_exit(void);

/* job.c */
struct hpmmap_job *hpmmap_job_alloc(const struct hpmmap_launch *arg,
				    const nodemask_t *nodes);
struct hpmmap_job *hpmmap_job_get(struct hpmmap_job *job);
void hpmmap_job_put(struct hpmmap_job *job);
void hpmmap_job_free(struct kobject *kobj);
void hpmmap_jobs_exit(void);

/* section.c */
int hpmmap_section_init(void);
void hpmmap_section_exit(void);
int hpmmap_pool_add(u64 start, u64 length, int *node, u32 flags);
int hpmmap_pool_remove(u64 start, u64 length, u64 *busy, u64 *pinned, u64 *bad);
int hpmmap_pool_list(void __user *ranges, u32 size, u32 *nr);
u64 hpmmap_section_bytes(void);
/**
 * enum hpmmap_whose - whose a page frame is
 * @HPMMAP_WHOSE_LINUX: not the module's
 * @HPMMAP_WHOSE_NOBODYS: of a section that stays offline for a memory error
 * @HPMMAP_WHOSE_POOL: of a pool
 */
enum hpmmap_whose {
	HPMMAP_WHOSE_LINUX,
	HPMMAP_WHOSE_NOBODYS,
	HPMMAP_WHOSE_POOL,
};
bool hpmmap_section_is_known(unsigned long pfn);
enum hpmmap_whose hpmmap_section_block(unsigned long pfn,
				       struct hpmmap_block **block);
void hpmmap_section_mended(unsigned long pfn);

/* poison.c */
DECLARE_STATIC_KEY_FALSE(hpmmap_poison_key);

/* Has there been a memory error in a pool? */
static inline bool hpmmap_poison_seen(void)
{
	return static_branch_unlikely(&hpmmap_poison_key);
}

void hpmmap_poison_init(void);
void hpmmap_poison_exit(void);
void hpmmap_poison_lock(void);
void hpmmap_poison_unlock(void);
int hpmmap_poison_touch(void);
void hpmmap_poison_untouch(int cookie);

/* pool.c */
struct hpmmap_node_stat {
	u64 total;
	u64 free;
	u64 clean;
	u64 largest;
	u64 pinned;
	u64 bad;
};
void hpmmap_pool_exit(void);
void hpmmap_pool_node_free(struct kobject *kobj);
void hpmmap_pool_node_stat(int nid, struct hpmmap_node_stat *stat);
bool hpmmap_pool_has(const nodemask_t *nodes);
bool hpmmap_pool_has_free(struct hpmmap_job *job);
unsigned long hpmmap_pool_count_free(const nodemask_t *nodes);
unsigned long hpmmap_pool_count_all(void);
void hpmmap_pool_nodes(nodemask_t *nodes);
int hpmmap_pool_nearest(int nid, const nodemask_t *nodes, nodemask_t *tried);
int hpmmap_pool_alloc(struct hpmmap_ctx *ctx,
		      const struct hpmmap_placement *place, unsigned long slot,
		      unsigned long nr, struct list_head *out);
unsigned long hpmmap_pool_alloc_instead(struct hpmmap_ctx *ctx, int nid,
					const nodemask_t *nodes,
					unsigned long nr,
					struct list_head *out);
struct hpmmap_block *hpmmap_pool_alloc_clean(struct hpmmap_ctx *ctx, int nid);
void hpmmap_pool_count_mapped(int nid, long nr);
void hpmmap_pool_set_pinned(struct hpmmap_block *block);
void hpmmap_pool_free(struct list_head *list);
void hpmmap_pool_free_list(struct list_head *list);
void hpmmap_pool_retire(struct hpmmap_block *block);
void hpmmap_pool_unretire(struct hpmmap_block *block);
enum hpmmap_block_state hpmmap_pool_state(struct hpmmap_block *block);
void hpmmap_pool_launder(int nid, unsigned long nr);
void hpmmap_pool_soiled(int nid, unsigned long nr);
int hpmmap_pool_launder_stop(bool killable);
void hpmmap_pool_launder_go(void);

/* policy.c */
void hpmmap_placement_get(struct hpmmap_job *job, struct vm_area_struct *vma,
			  struct hpmmap_placement *place);
void hpmmap_placement_copy(struct hpmmap_ctx *ctx, struct vm_area_struct *vma,
			   unsigned long slot, const struct hpmmap_block *from,
			   struct hpmmap_placement *place);
int hpmmap_placement_turn(const struct hpmmap_placement *place,
			  unsigned long slot, unsigned long left,
			  unsigned long *nr);
int hpmmap_policy_alloc(struct hpmmap_ctx *ctx, unsigned long start,
			unsigned long end, struct list_head *out);
int hpmmap_policy_alloc_mapped(struct hpmmap_ctx *ctx, unsigned long start,
			       unsigned long end, struct list_head *out);
bool hpmmap_placement_is_right(const struct hpmmap_placement *place,
			       unsigned long slot, int nid);
bool hpmmap_policy_fits(struct hpmmap_ctx *ctx,
			const struct hpmmap_placement *place,
			unsigned long start, unsigned long end, bool strictly);
unsigned long hpmmap_policy_apart(struct hpmmap_ctx *ctx,
				  const struct hpmmap_placement *place,
				  unsigned long len);
void hpmmap_policy_begin_apart(struct hpmmap_ctx *ctx,
			       const struct hpmmap_placement *place,
			       unsigned long end);
bool hpmmap_policy_defers(struct hpmmap_ctx *ctx, struct hpmmap_block *block,
			  unsigned long start, unsigned long end);
struct hpmmap_block *hpmmap_policy_touch(struct hpmmap_ctx *ctx,
					 struct vm_area_struct *vma,
					 struct hpmmap_block *block);
bool hpmmap_policy_copy(struct vm_area_struct *vma, struct mempolicy *pol);
int hpmmap_vm_set_policy(struct vm_area_struct *vma, struct mempolicy *fresh);
void hpmmap_policy_set(struct hpmmap_ctx *ctx, unsigned long start,
		       unsigned long len, const struct mempolicy *pol);

/* mbind.c */
bool hpmmap_policy_place(struct hpmmap_ctx *ctx, unsigned long start,
			 unsigned long end);

bool hpmmap_policy_move(struct hpmmap_ctx *ctx, unsigned long addr, int nid,
			bool all);
int hpmmap_slot_node(struct hpmmap_ctx *ctx, unsigned long slot, bool *shared);
int hpmmap_page_node(struct hpmmap_ctx *ctx, unsigned long addr, bool *shared);
bool hpmmap_nodes_read(unsigned long max, unsigned long from,
		       nodemask_t *nodes);

/* block.c */
void hpmmap_block_prepare(struct hpmmap_block *block, unsigned long pfn,
			  int nid);
struct hpmmap_block *hpmmap_block_alloc_linux(void);
void hpmmap_block_attach(struct hpmmap_block *block,
			 struct address_space *mapping, unsigned long slot);
int hpmmap_block_write(struct hpmmap_block *block, unsigned int i,
		       const void *from);
int hpmmap_block_fill(struct hpmmap_ctx *ctx, struct hpmmap_block *block,
		      unsigned int first, unsigned int nr);
void hpmmap_block_clear_linux(struct hpmmap_ctx *ctx,
			      struct hpmmap_block *block, unsigned int first,
			      unsigned int nr);
void hpmmap_block_drop_linux(struct hpmmap_ctx *ctx, struct hpmmap_block *block,
			     unsigned int first, unsigned int nr);
void hpmmap_block_zero(struct hpmmap_block *block);
void hpmmap_block_clear(struct hpmmap_ctx *ctx, struct hpmmap_block *block);
void hpmmap_block_set_stale(struct hpmmap_block *block, unsigned int first,
			    unsigned int nr);
int hpmmap_block_copy(struct hpmmap_ctx *ctx, struct hpmmap_block *to,
		      unsigned int to_page, struct hpmmap_block *from,
		      unsigned int from_page, unsigned int nr);
bool hpmmap_block_is_lost(struct hpmmap_block *block, unsigned int i);
void hpmmap_block_mend(struct hpmmap_block *block);
void hpmmap_block_detach(struct hpmmap_block *block);
struct page *hpmmap_block_page(struct hpmmap_block *block, unsigned int i);
bool hpmmap_block_is_pinned(struct hpmmap_block *block);
bool hpmmap_block_idle(struct hpmmap_block *block);
bool hpmmap_block_wait_unpinned(struct hpmmap_ctx *ctx,
				struct hpmmap_block *block);
void hpmmap_block_release(struct hpmmap_ctx *ctx, struct hpmmap_block *block);
void hpmmap_block_release_to(struct hpmmap_ctx *ctx, struct hpmmap_block *block,
			     struct list_head *freed);
void hpmmap_pinned_poll(void);
void hpmmap_pinned_poll_some(void);
void hpmmap_pinned_exit(void);

/* reuse.c */
void hpmmap_reuse_init(struct hpmmap_ctx *ctx);
void hpmmap_reuse_exit(struct hpmmap_ctx *ctx);
void hpmmap_reuse_mark(struct hpmmap_ctx *ctx, struct hpmmap_block *block);
bool hpmmap_reuse_keep(struct hpmmap_ctx *ctx, struct hpmmap_block *block);
void hpmmap_reuse_take(struct hpmmap_ctx *ctx,
		       const struct hpmmap_placement *place, unsigned long nr,
		       struct list_head *out);
void hpmmap_reuse_return(struct hpmmap_ctx *ctx, struct list_head *blocks);
unsigned long hpmmap_reuse_kept(void);
unsigned long hpmmap_reuse_reclaim(const nodemask_t *nodes,
				   struct hpmmap_payer *payer, unsigned long nr);
void hpmmap_reuse_see(struct hpmmap_ctx *ctx, unsigned long start,
		      unsigned long end);
void hpmmap_reuse_set(struct hpmmap_ctx *ctx, unsigned long start,
		      unsigned long end);
void hpmmap_reuse_clear(struct hpmmap_ctx *ctx, unsigned long start,
			unsigned long end);

/* ctx.c */
void hpmmap_ctx_exit(void);
struct hpmmap_ctx *hpmmap_ctx_alloc(struct hpmmap_job *job);
void hpmmap_ctx_publish(struct hpmmap_ctx *ctx, struct mm_struct *mm);
void hpmmap_ctx_join(struct hpmmap_ctx *ctx);
void hpmmap_ctx_leave(struct hpmmap_ctx *ctx);
void hpmmap_ctx_soil(struct hpmmap_ctx *ctx, int nid, long nr);
struct hpmmap_ctx *hpmmap_ctx_find_rcu(struct mm_struct *mm);
struct hpmmap_ctx *hpmmap_ctx_get(struct mm_struct *mm);
void hpmmap_ctx_put(struct hpmmap_ctx *ctx);
bool hpmmap_ctx_exists(struct mm_struct *mm);
struct hpmmap_ctx **hpmmap_ctx_list(unsigned long *nr);
void hpmmap_reap(void);
bool hpmmap_reap_one(void);
void hpmmap_reap_soon(void);
extern struct workqueue_struct *hpmmap_wq;
int hpmmap_ctx_init(void);

/* store.c */
/**
 * enum hpmmap_commit - what a slot's block is after a commit
 * @HPMMAP_COMMIT_OWN: the context's own, as it was
 * @HPMMAP_COMMIT_OWNED_NOW: the context's own, shared before
 * @HPMMAP_COMMIT_SHARED: shared
 */
enum hpmmap_commit {
	HPMMAP_COMMIT_OWN,
	HPMMAP_COMMIT_OWNED_NOW,
	HPMMAP_COMMIT_SHARED,
};
struct hpmmap_block *hpmmap_store_load(struct hpmmap_ctx *ctx,
				       unsigned long slot);
unsigned long hpmmap_store_next(struct hpmmap_ctx *ctx, unsigned long start,
				unsigned long end);
unsigned long hpmmap_store_missing(struct hpmmap_ctx *ctx, unsigned long start,
				   unsigned long end);
unsigned long hpmmap_store_count(struct hpmmap_ctx *ctx, unsigned long start,
				 unsigned long end);
unsigned long hpmmap_store_count_shared(struct hpmmap_ctx *ctx,
					unsigned long start,
					unsigned long end);
struct hpmmap_block *hpmmap_store_commit(struct hpmmap_ctx *ctx,
					 struct vm_area_struct *vma,
					 unsigned long start,
					 unsigned long end,
					 struct list_head *blocks,
					 enum hpmmap_commit *how);
unsigned long hpmmap_store_map_run(struct hpmmap_ctx *ctx,
				   struct vm_area_struct *vma,
				   unsigned long start, unsigned long end,
				   struct list_head *blocks);
void hpmmap_store_renew(struct hpmmap_ctx *ctx, unsigned long start,
			unsigned long end);
bool hpmmap_store_is_pinned(struct hpmmap_ctx *ctx, unsigned long start,
			    unsigned long end, bool wait);
void hpmmap_store_refresh(struct hpmmap_ctx *ctx, unsigned long start,
			  unsigned long end);
void hpmmap_store_drop_linux(struct hpmmap_ctx *ctx, unsigned long start,
			     unsigned long end);
int hpmmap_store_discard(struct hpmmap_ctx *ctx, unsigned long start,
			 unsigned long end, bool accessible);
bool hpmmap_store_unmapped(struct hpmmap_ctx *ctx, unsigned long start,
			   unsigned long end);
bool hpmmap_store_has_orphans(struct hpmmap_ctx *ctx, unsigned long start,
			      unsigned long end);
void hpmmap_store_reconcile(struct hpmmap_ctx *ctx, unsigned long start,
			    unsigned long end);
int hpmmap_store_move(struct hpmmap_ctx *ctx, unsigned long from,
		      unsigned long to, unsigned long len,
		      struct list_head *blocks);
void hpmmap_store_snapshot(struct hpmmap_ctx *parent, struct hpmmap_ctx *child,
			   struct vm_area_struct *vma);
void hpmmap_store_put(struct hpmmap_ctx *ctx, unsigned long slot,
		      struct hpmmap_block *block);
void hpmmap_store_reserve(struct hpmmap_ctx *ctx, struct vm_area_struct *vma,
			  unsigned long slot, struct list_head *blocks);
bool hpmmap_store_replace(struct hpmmap_ctx *ctx, unsigned long slot,
			  struct hpmmap_block *fresh, bool *wait);
int hpmmap_store_exchange(struct hpmmap_ctx *ctx, unsigned long slot,
			  struct hpmmap_block *old);
void hpmmap_store_heal(struct hpmmap_ctx *ctx, unsigned long start,
		       unsigned long end);
vm_fault_t hpmmap_store_fault(struct hpmmap_ctx *ctx, struct vm_fault *vmf,
			      bool *committed, enum hpmmap_fault *why);
int hpmmap_store_access(struct hpmmap_ctx *ctx, struct vm_area_struct *vma,
			unsigned long addr, void *buf, size_t len, bool write);
int hpmmap_store_own_edges(struct hpmmap_ctx *ctx, unsigned long start,
			   unsigned long end);
void hpmmap_store_zap_shared(struct hpmmap_ctx *ctx, unsigned long start,
			     unsigned long end);
struct hpmmap_block *hpmmap_store_adopt(struct hpmmap_ctx *ctx,
					unsigned long slot);
void hpmmap_store_release_all(struct hpmmap_ctx *ctx, unsigned int nr_zero);

/* vma.c */
extern const struct vm_operations_struct hpmmap_vm_ops;
struct file *hpmmap_file_alloc(void);
void hpmmap_file_put(struct hpmmap_ctx *ctx);
static inline bool hpmmap_vma_is_ours(const struct vm_area_struct *vma)
{
	return vma->vm_ops == &hpmmap_vm_ops;
}

static inline bool hpmmap_vma_is_accessible(const struct vm_area_struct *vma)
{
	return vma->vm_flags & (VM_READ | VM_WRITE | VM_EXEC);
}

static inline unsigned long hpmmap_vma_prot(vm_flags_t vm_flags)
{
	return (vm_flags & VM_READ ? PROT_READ : 0) |
	       (vm_flags & VM_WRITE ? PROT_WRITE : 0) |
	       (vm_flags & VM_EXEC ? PROT_EXEC : 0);
}

unsigned long hpmmap_vma_count_missing(struct hpmmap_ctx *ctx,
				       unsigned long start, unsigned long end,
				       unsigned long *unreserved);
void hpmmap_vma_commit(struct hpmmap_ctx *ctx, unsigned long start,
		       unsigned long end, struct list_head *blocks);
void hpmmap_vma_repair(struct hpmmap_ctx *ctx, unsigned long start,
		       unsigned long end);
long hpmmap_vma_wipe_on_fork(struct hpmmap_ctx *ctx, unsigned long start,
			     unsigned long end, bool wipe);
void hpmmap_vma_slot_owned(struct hpmmap_ctx *ctx, unsigned long slot,
			   struct hpmmap_block *block);
bool hpmmap_vma_remap_slot(struct hpmmap_ctx *ctx, unsigned long slot,
			   struct hpmmap_block *block);
bool hpmmap_vma_restore_slot(struct hpmmap_ctx *ctx, unsigned long slot,
			     struct hpmmap_block *block);
/* The slots that a range begins and ends in. */
#define HPMMAP_END_FIRST	BIT(0)
#define HPMMAP_END_LAST		BIT(1)
unsigned int hpmmap_vma_intact_ends(struct hpmmap_ctx *ctx, unsigned long start,
				    unsigned long end);
void hpmmap_vma_repair_ends(struct hpmmap_ctx *ctx, unsigned long start,
			    unsigned long end, unsigned int intact);
void hpmmap_vma_range_changed(struct hpmmap_ctx *ctx, unsigned long start,
			      unsigned long end);
unsigned long hpmmap_vma_map(struct hpmmap_ctx *ctx, unsigned long addr,
			     unsigned long len, unsigned long prot,
			     unsigned long flags);
void hpmmap_vma_own_file(struct hpmmap_ctx *ctx);
unsigned long hpmmap_vma_find_hole(unsigned long hint, unsigned long len,
				   unsigned long flags, unsigned long align,
				   unsigned long phase);

/* pgmap.c */
/**
 * enum hpmmap_entry - how a slot is mapped
 * @HPMMAP_ENTRY_NONE: nothing, not even a table of 4 KB entries
 * @HPMMAP_ENTRY_TABLE: a table of 4 KB entries
 * @HPMMAP_ENTRY_2M: one 2 MB entry
 */
enum hpmmap_entry {
	HPMMAP_ENTRY_NONE,
	HPMMAP_ENTRY_TABLE,
	HPMMAP_ENTRY_2M,
};
enum hpmmap_entry hpmmap_pgmap_slot(struct mm_struct *mm, unsigned long addr);
unsigned long hpmmap_pgmap_fill(struct vm_area_struct *vma,
				unsigned long start, unsigned long end,
				struct hpmmap_block *block, bool nowait);
void hpmmap_pgmap_fault_in(struct vm_area_struct *vma, unsigned long addr);
pmd_t *hpmmap_pgmap_pmd(struct mm_struct *mm, unsigned long addr);
bool hpmmap_pgmap_is_done(struct vm_area_struct *vma, pmd_t *pmdp);
bool hpmmap_pgmap_insert_2m(struct vm_area_struct *vma, unsigned long addr,
			    pmd_t *pmdp, struct folio *folio);
bool hpmmap_pgmap_insert_readonly(struct vm_fault *vmf, struct folio *folio);
void hpmmap_pgmap_protect(struct vm_area_struct *vma, unsigned long start);
bool hpmmap_pgmap_unprotect(struct vm_area_struct *vma, unsigned long addr,
			    struct folio *folio);
int hpmmap_pgmap_count(struct mm_struct *mm, unsigned long *bytes_2m,
		       unsigned long *bytes_4k);

/* hook.c */
/**
 * struct hpmmap_hook - a function of the kernel that is hooked
 * @symbol: its name
 * @handler: what stands in for it
 * @orig: its address, 0 where the kernel lacks it
 * @optional: the kernel may lack it
 */
struct hpmmap_hook {
	const char *symbol;
	void *handler;
	unsigned long orig;
	bool optional;
};
enum hpmmap_call {
	HPMMAP_CALL_MMAP,
	HPMMAP_CALL_MUNMAP,
	HPMMAP_CALL_MPROTECT,
	HPMMAP_CALL_PKEY_MPROTECT,
	HPMMAP_CALL_MREMAP,
	HPMMAP_CALL_MADVISE,
	HPMMAP_CALL_BRK,
	HPMMAP_CALL_MLOCK,
	HPMMAP_CALL_MLOCK2,
	HPMMAP_CALL_MUNLOCK,
	HPMMAP_CALL_MUNLOCKALL,
	HPMMAP_CALL_MBIND,
	HPMMAP_CALL_MOVE_PAGES,
	HPMMAP_CALL_MIGRATE_PAGES,
	HPMMAP_CALL_REMAP_FILE_PAGES,
	HPMMAP_CALL_CLONE,
	HPMMAP_CALL_FORK_COPIED,
	HPMMAP_CALL_USERFAULTFD,
	HPMMAP_NR_CALLS
};
int hpmmap_hook_init(void);
void hpmmap_hook_exit(void);
int hpmmap_hook_get(void);
bool hpmmap_hook_get_another(void);
void hpmmap_hook_put(void);
bool hpmmap_hook_active(void);
long hpmmap_call_orig(enum hpmmap_call call, const struct pt_regs *regs);
long hpmmap_call_userfaultfd(struct file *file, unsigned int cmd,
			     unsigned long arg);

/* syscalls.c, mremap.c, mbind.c, migrate.c, fork.c: handlers, installed by hook.c */
long hpmmap_sys_mmap(const struct pt_regs *regs);
long hpmmap_sys_munmap(const struct pt_regs *regs);
long hpmmap_sys_mprotect(const struct pt_regs *regs);
long hpmmap_sys_pkey_mprotect(const struct pt_regs *regs);
long hpmmap_sys_mremap(const struct pt_regs *regs);
long hpmmap_sys_madvise(const struct pt_regs *regs);
long hpmmap_sys_brk(const struct pt_regs *regs);
long hpmmap_sys_mlock(const struct pt_regs *regs);
long hpmmap_sys_mlock2(const struct pt_regs *regs);
long hpmmap_sys_munlock(const struct pt_regs *regs);
long hpmmap_sys_munlockall(const struct pt_regs *regs);
long hpmmap_sys_mbind(const struct pt_regs *regs);
long hpmmap_sys_move_pages(const struct pt_regs *regs);
long hpmmap_sys_migrate_pages(const struct pt_regs *regs);
long hpmmap_sys_remap_file_pages(const struct pt_regs *regs);
pid_t hpmmap_kernel_clone(struct kernel_clone_args *args);
void hpmmap_fork_copied(struct list_head *events);
long hpmmap_userfaultfd_ioctl(struct file *file, unsigned int cmd,
			      unsigned long arg);

/* Of a handler: hpmmap_range_unwatch(), then once more. No call returns it. */
#define HPMMAP_REDO (-EPROBE_DEFER)

/* A handler with the caller's context, under ctx->ops. */
typedef long (*hpmmap_handler_t)(struct hpmmap_ctx *ctx,
				 enum hpmmap_call call,
				 const struct pt_regs *regs);
long hpmmap_handle(enum hpmmap_call call, const struct pt_regs *regs,
		   hpmmap_handler_t handler);
long hpmmap_handle_if_ours(enum hpmmap_call call, const struct pt_regs *regs,
			   hpmmap_handler_t handler);
long hpmmap_ops_lock(struct hpmmap_ctx *ctx);
void hpmmap_ops_unlock(struct hpmmap_ctx *ctx);

bool hpmmap_range_has_ours(struct hpmmap_ctx *ctx, unsigned long start,
			   unsigned long end);
bool hpmmap_range_is_watched(unsigned long start, unsigned long end);
long hpmmap_range_unwatch(unsigned long start, unsigned long end);
long hpmmap_replacing_begin(struct hpmmap_ctx *ctx);
void hpmmap_replacing_end(struct hpmmap_ctx *ctx);
void hpmmap_range_changed_after(struct hpmmap_ctx *ctx, unsigned long start,
				unsigned long end, bool ours);
bool hpmmap_data_exceeds_limit(struct hpmmap_ctx *ctx, unsigned long start,
			       unsigned long len, unsigned long prot);
unsigned long hpmmap_map_fresh(struct hpmmap_ctx *ctx, unsigned long addr,
			       unsigned long len, unsigned long prot,
			       unsigned long flags, bool fixed,
			       struct list_head *ahead);
unsigned long hpmmap_find_place(struct hpmmap_ctx *ctx,
				const struct hpmmap_placement *place,
				unsigned long hint, unsigned long len,
				unsigned long flags, unsigned long align,
				unsigned long phase);
bool hpmmap_linux_may_help(struct hpmmap_ctx *ctx, unsigned long nr);

/* exec.c */
int hpmmap_probes_register(void);
void hpmmap_probes_unregister(void);
int hpmmap_launch(const struct hpmmap_launch *arg, const nodemask_t *nodes,
		  struct hpmmap_job **jobp);
int hpmmap_launch_marked(const struct hpmmap_launch *arg);

/* Whether flags of a launch or a mark want one block placed in two ways. */
static inline bool hpmmap_places_twice(u32 flags, u64 page_size)
{
	return flags & HPMMAP_LAUNCH_F_FIRST_TOUCH &&
	       (flags & HPMMAP_LAUNCH_F_INTERLEAVE ||
		page_size == HPMMAP_LARGE_BYTES);
}

/* image.c */
void hpmmap_image_setup(struct hpmmap_ctx *ctx);
bool hpmmap_image_wants_populated(struct hpmmap_ctx *ctx, unsigned long flags);

/* mark.c */
void hpmmap_mark_init(void);
void hpmmap_mark_exit(void);

/* fork.c */
void hpmmap_fork_open(struct vm_area_struct *vma);
void hpmmap_fork_copies(struct hpmmap_ctx *parent, struct vm_area_struct *vma);
bool hpmmap_fork_child(struct task_struct *child);

/* handback.c */
long hpmmap_handback(struct hpmmap_ctx *ctx, unsigned long start,
		     unsigned long end);
long hpmmap_handback_bound(struct hpmmap_ctx *ctx, unsigned long start,
			   unsigned long end, const struct pt_regs *mbind);
int hpmmap_handback_read(struct hpmmap_ctx *ctx, unsigned long addr, void *buf);
bool hpmmap_handback_covers(struct hpmmap_ctx *ctx, struct vm_area_struct *vma);
vm_fault_t hpmmap_handback_wait(struct hpmmap_ctx *ctx, struct vm_fault *vmf);

/* oom.c */
void hpmmap_oom_init(void);
void hpmmap_oom_exit(void);

/* share.c */
int hpmmap_share_begin(struct hpmmap_ctx *parent, struct hpmmap_ctx *child);
void hpmmap_share_leave(struct hpmmap_ctx *ctx);
void hpmmap_share_alone(struct hpmmap_ctx *ctx);
void hpmmap_share_gone(struct hpmmap_ctx *ctx, bool here);
void hpmmap_share_exit(void);

/* stats.c */
void hpmmap_stats_init(struct hpmmap_stats *stats);
struct hpmmap_totals *hpmmap_stats_alloc(void);
void hpmmap_stats_peak(struct hpmmap_ctx *ctx, long nr);
void hpmmap_stats_begin(struct hpmmap_ctx *ctx);
void hpmmap_stats_fold(struct hpmmap_ctx *ctx);
int hpmmap_stats_job_add(struct hpmmap_job *job);
void hpmmap_count_fault(struct hpmmap_ctx *ctx, unsigned long addr,
			enum hpmmap_fault why);
void hpmmap_count_fallback(struct hpmmap_ctx *ctx, enum hpmmap_fallback what,
			   unsigned long bytes);
void hpmmap_count_refusal(struct hpmmap_ctx *ctx);
void hpmmap_count_stall(struct hpmmap_job *job, enum hpmmap_stall what,
			u64 since);
void hpmmap_count_free(struct hpmmap_job *job, unsigned long nr);
void hpmmap_count_limited(struct hpmmap_job *job, struct hpmmap_payer *payer);

/* A block has got a slot; ctx->lock held. */
static inline void hpmmap_count_placed(struct hpmmap_ctx *ctx, int nid)
{
	ctx->placed[nid]++;
	if (nid != numa_node_id())
		ctx->stats.remote++;
}

/* A context may hold more than before; ctx->ops or mmap_lock held. */
static inline void hpmmap_count_held(struct hpmmap_ctx *ctx)
{
	long nr = atomic_long_read(&ctx->nr_held);

	if (unlikely(nr > READ_ONCE(ctx->stats.peak)))
		hpmmap_stats_peak(ctx, nr);
}

/* A call that began at @since is done; ctx->ops held. */
static inline void hpmmap_count_call(struct hpmmap_ctx *ctx,
				     enum hpmmap_timed call, u64 since)
{
	struct hpmmap_latency *latency = &ctx->stats.calls[call];
	u64 ticks = get_cycles() - since;
	unsigned int i;

	/* The counters of two CPUs may differ. */
	if (unlikely((s64)ticks < 0))
		ticks = 0;
	if (unlikely(ticks < 1ULL << HPMMAP_LATENCY_FIRST)) {
		i = 0;
	} else if (unlikely(ticks >> HPMMAP_LATENCY_LAST)) {
		i = HPMMAP_LATENCY_BUCKETS - 1;
	} else {
		unsigned int high = __fls(ticks);

		/* The two bits below the highest. */
		i = 1 + (high - HPMMAP_LATENCY_FIRST) * 4 +
		    ((ticks >> (high - 2)) & 3);
	}
	latency->nr[i]++;
	latency->ticks += ticks;
	if (ticks > latency->worst)
		latency->worst = ticks;
}

/* sysfs.c */
struct kobject *hpmmap_sysfs_jobs(void);
int hpmmap_sysfs_init(void);
void hpmmap_sysfs_exit(void);
int hpmmap_sysfs_node_add(struct kobject *kobj, int nid);
void hpmmap_sysfs_ctx_add(struct hpmmap_ctx *ctx);
void hpmmap_sysfs_ctx_del(struct hpmmap_ctx *ctx);

/* chardev.c */
int hpmmap_chardev_init(void);
void hpmmap_chardev_exit(void);
bool hpmmap_chardev_may_open(void);

#endif /* _HPMMAP_H */
