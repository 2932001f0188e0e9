/* SPDX-License-Identifier: GPL-2.0 */
/* Contexts: HPMMAP's half of an address space. */
#ifndef _HPMMAP_AS_OWN_CTX_H
#define _HPMMAP_AS_OWN_CTX_H

#include <linux/task_work.h>

#include "mem/block/block.h"
#include "mem/pool/pinned.h"
#include "as/own/counters.h"
#include "as/own/job.h"
#include "as/own/reuse.h"

struct hpmmap_family;
struct hpmmap_window;

/* What a mapping is called in /proc/PID/maps. */
enum hpmmap_name {
	HPMMAP_NAME_NONE,	/* nothing */
	HPMMAP_NAME_HEAP,	/* up to the break */
	HPMMAP_NAME_THREAD,	/* nothing, too; the stack of a thread, see hpmmap_stack_given() */
	HPMMAP_NR_NAMES
};

/**
 * struct hpmmap_ctx - HPMMAP's half of one address space
 * @refs: the hash, pinned blocks and lookups
 * @mm: the address space; mmgrab()bed until the teardown. Its address is the
 *	identity of the context.
 * @id: number shown to user space; set with @node
 * @node: in the hash, and
 * @next: in the list by number; protected by the hash's lock, read under RCU
 * @job: policy; immutable, holds a reference
 * @owner: of the blocks it gets: the account that is charged, and what they come to
 * @holder: of blocks it gave up that are pinned
 * @job_link: in the job's list
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
 * @graves: blocks of Linux's memory that were given up. A holder of @ops may look at some
 *	without @lock: they are freed when @ops is released
 * @store: @blocks: slot number -> struct hpmmap_block; marked with SLOT_SHARED, SLOT_SPLIT
 *	and SLOT_FEW; found by hpmmap_store(). @runs: slot number / 512 -> the first block of a
 *	run, none of whose slots has one in @blocks (as/own/run.c). @breaking: held while one is
 *	broken up or given back
 * @spare_slot: where the search for a block to exchange goes on; protected
 *	by @lock
 * @heap_end: end of the mapped heap, a multiple of the page size; 0: the heap
 *	is Linux's. Protected by @ops.
 * @heap_start: where the heap began; what is free of its slot before it has room for small
 *	mappings. Set before the program runs.
 * @hole: whole slots that were unmapped last, if nothing was mapped since; they
 *	have no blocks. Protected by @ops.
 * @discount: pages of the mapping that mremap(2) moves, taken out of the count of the
 *	address space (total_vm), and how many were locked then (locked_vm). Protected
 *	by @ops and mmap_lock. A call that is killed may leave it to the next one.
 * @apart: slots begun for small mappings that would not be on their node @nid
 *	(NUMA_NO_NODE: interleaved) where others are: the first address that was
 *	not used yet, if it is in such a slot. Protected by @ops.
 * @fork: the task that is forking, and the context of its child; @task is read without a
 *	lock, for only the task itself sets it to itself. Protected by @ops.
 * @frozen: a range whose contents are elsewhere (as/store/freeze.c); @end is 0 where there is none. Changed
 *	under @ops and @lock. @by: the task that has frozen it; it is not looked into. @nr: how often
 *	that has ended, which faults wait for. @nr_impatient: faults that kept mmap_lock meanwhile.
 * @nr_replacing: calls of Linux that are replacing memory of ours; rises under
 *	@ops only
 * @collapse: a thread will map slots by one entry again before it goes on, @slot first;
 *	@work and @slot belong to the task that has set @queued
 * @join: entries of 1 GB that were split are joined, @delay_ms after the next split; @split: one was
 *	since the work has run; a work that is queued holds a reference
 * @bind: what hpmmap_policy_set() is setting. Protected by @ops.
 * @discard: which discard is under way, see hpmmap_discard_begin(). Protected by @ops.
 * @window: what others have mapped of it, or NULL; holds a reference. Set once, under
 *	@lock, and read under that, or mmap_lock for writing.
 * @family: those it shares blocks with, or NULL; set once
 * @kin: in a list of the family
 * @again: the family is to look at it again
 * @start_work: runs in a new child before its first instruction
 * @reuse: memory it gave up and may get again
 * @region: memory that was laid out before the program ran (call/step/extent.c), from @start to @end,
 *	0 where there is none; @flags: vm_flags of its mapping. Nothing from @clean_start to
 *	@clean_end was ever used; @used bytes are, and @extents tells which, in @parts at most.
 *	Protected by @ops.
 * @stats: what it counts for its job
 * @placed: blocks that slots were given, by node; protected by @lock
 * @nr_procs: processes that use the address space, as far as they are members;
 *	protected by orphans_lock (life.c)
 * @orphan: in the list of contexts without such a process; protected by the same
 * @bury: frees it, after the last reference
 * @torn: it was torn down, so only a task that adds to @soiled hands it over
 * @soiled: by node, blocks it gave up and that were not zeroed for it
 * @shared_linux: what it shares from now on, and has no name, is ordinary memory: the job asked
 *	for that, or it has opened a userfaultfd, which cannot watch shared memory of the pools
 * @shown: it is set up, and /proc/hpmmap tells of it
 * @doomed: the snapshot of a fork is incomplete: the child must not run
 * @failed: where the page of the last memory error is, or 0; under hpmmap_poison_mutex
 */
struct hpmmap_ctx {
	refcount_t refs;
	struct mm_struct *mm;
	u64 id;
	struct hlist_node node;
	struct list_head next;
	unsigned int nr_procs;
	struct list_head orphan;
	struct work_struct bury;
	bool torn;
	atomic_long_t *soiled;
	struct hpmmap_job *job;
	struct hpmmap_owner owner;
	struct hpmmap_holder holder;
	struct list_head job_link;
	struct file *file;
	struct file *named[HPMMAP_NR_NAMES];
	pid_t pid;
	bool image;
	unsigned long image_bytes;

	struct mutex ops;
	struct mutex lock;
	struct {
		struct xarray blocks;
		struct xarray runs;
		struct mutex breaking;
	} store;
	struct llist_head graves;
	unsigned long spare_slot;
	unsigned long heap_end;
	unsigned long heap_start;
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
	} fork;
	atomic_t nr_replacing;
	struct {
		unsigned long start;
		unsigned long end;
		bool moving;
		struct task_struct *by;
		unsigned int nr;
		atomic_t nr_impatient;
		wait_queue_head_t wait;
	} frozen;
	struct {
		struct callback_head work;
		unsigned long slot;
		atomic_t queued;
	} collapse;
	struct {
		struct delayed_work work;
		unsigned int delay_ms;
		bool split;
	} join;
	struct {
		struct task_struct *task;
		const struct mempolicy *pol;
		unsigned long start;
		unsigned long end;
	} bind;
	u64 discard;
	struct hpmmap_window *window;
	struct hpmmap_family *family;
	struct list_head kin;
	bool again;
	struct callback_head start_work;
	struct hpmmap_reuse reuse;
	struct {
		unsigned long start;
		unsigned long end;
		vm_flags_t flags;
		unsigned long clean_start;
		unsigned long clean_end;
		unsigned long used;
		unsigned int parts;
		struct maple_tree extents;
	} region;
	bool doomed;
	unsigned long failed;

	atomic_long_t nr_held;
	atomic_long_t nr_fallbacks;
	atomic_long_t nr_faults;
	atomic_long_t nr_faults_kernel;
	atomic_long_t nr_pinned;
	atomic_long_t nr_copied;

	bool shared_linux;
	bool shown;
	struct rcu_head rcu;

	struct hpmmap_stats stats;
	unsigned long placed[];
};

void hpmmap_ctx_hash(struct hpmmap_ctx *ctx);
void hpmmap_ctx_unhash(struct hpmmap_ctx *ctx);
void hpmmap_ctx_torn(struct hpmmap_ctx *ctx);
void hpmmap_ctx_soil(struct hpmmap_ctx *ctx, int nid, long nr);
struct hpmmap_ctx *hpmmap_ctx_find_rcu(struct mm_struct *mm);
struct hpmmap_ctx *hpmmap_ctx_get(struct mm_struct *mm);
void hpmmap_ctx_put(struct hpmmap_ctx *ctx);
bool hpmmap_ctx_exists(struct mm_struct *mm);
bool hpmmap_ctx_has_gigabytes(struct mm_struct *mm);
struct hpmmap_ctx *hpmmap_ctx_from(u64 id);
struct hpmmap_ctx *hpmmap_ctx_next(struct hpmmap_ctx *ctx);

/* By number, with a reference to each. Those that come and go meanwhile change nothing for the others. */
#define hpmmap_for_each_ctx(_ctx) \
	for (_ctx = hpmmap_ctx_from(0); _ctx; _ctx = hpmmap_ctx_next(_ctx))

long hpmmap_ops_lock(struct hpmmap_ctx *ctx);
void hpmmap_ops_unlock(struct hpmmap_ctx *ctx);

#endif /* _HPMMAP_AS_OWN_CTX_H */
