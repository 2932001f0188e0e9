/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Units, and the lock order.
 *
 * Lock order, outermost first:
 *
 *	family->lock		what fork left shared (as/life/share.c); only ever tried, as
 *				are mmap_lock and ctx->lock under it
 *	hpmmap_poison_mutex	memory errors, one after the other (as/life/failure.c)
 *	hpmmap_hook_mutex	installed hooks (hook.c)
 *	ctx->ops		hooked system calls of one address space
 *	mm->mmap_lock		Linux's
 *	ctx->lock		blocks of one address space; a parent's before
 *				its child's in fork. Entries are made under it:
 *				then come a folio's lock, the store's xa_lock, and
 *				the lock of a page table
 *	ctx->store.breaking	a run that is broken up or given back (as/own/run.c)
 *	hpmmap_pool_mutex	which memory is in the pools (mem/pool/section.c);
 *				device_hotplug_lock, then mem_hotplug_lock, are
 *				outside of it
 *	stocks_rwsem		free blocks on their way to a CPU or from it (mem/pool/alloc.c);
 *				where an exit comes, only tried
 *	promises_mutex		promises, held for a bounded time (mem/block/promise.c)
 *	reuse_lock, reuse.lock	spinlocks, memory kept for reuse (as/own/reuse.c)
 *	node->lock		spinlock, free blocks of a node (mem/block/node.h); then that of
 *				a laundry (mem/pool/zero.c)
 *	spinlocks that nest in nothing else: the hash of contexts, the list
 *				of pinned blocks, stocks, blocks that several threads clear,
 *				the lists of a family, the tables of accounts, the
 *				counters of a job
 *	members_lock, orphans_lock	raw spinlocks, for the probes (task/exec.c,
 *				as/life/life.c)
 *
 * Nothing that holds hpmmap_pool_mutex may set memory online or offline.
 *
 * Who exits or executes a program waits for nobody: it takes spinlocks that are
 * held for a bounded time, and tries all others.
 *
 * The words of the comments: docs/glossary.md.
 */
#ifndef _HPMMAP_H
#define _HPMMAP_H

/*
 * What most files need of the kernel. Sources include this before the headers of the rooms, which
 * rely on it, and beside it only what is neither here nor in compat.h.
 */
#include <linux/bitmap.h>
#include <linux/bug.h>
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/delay.h>
#include <linux/file.h>
#include <linux/kobject.h>
#include <linux/list.h>
#include <linux/llist.h>
#include <linux/mempolicy.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/nodemask.h>
#include <linux/pagemap.h>
#include <linux/percpu.h>
#include <linux/rcupdate.h>
#include <linux/refcount.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/topology.h>
#include <linux/types.h>
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

struct hpmmap_account;
struct hpmmap_block;
struct hpmmap_ctx;
struct hpmmap_job;
struct hpmmap_payer;
struct hpmmap_placement;

/* For work that is not to run on a CPU only because its task asked for it. */
extern struct workqueue_struct *hpmmap_wq;

static_assert(SLOT_SIZE == HPMMAP_BLOCK_BYTES);
static_assert(SLOT_SIZE == PMD_SIZE);

/* A report on debug builds (scripts/build-module --debug); else @cond is not evaluated. */
#ifdef HPMMAP_DEBUG
#define HPMMAP_ASSERT(cond) ((void)WARN_ON_ONCE(!(cond)))
#else
#define HPMMAP_ASSERT(cond) BUILD_BUG_ON_INVALID(!(cond))
#endif

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

/*
 * In a loop that may be long: lets others run now and then, on kernels that do not
 * preempt, too. May sleep.
 */
static inline void hpmmap_every(unsigned int *nr, unsigned int most)
{
	if (++*nr < most)
		return;
	*nr = 0;
	cond_resched();
}

#endif /* _HPMMAP_H */
