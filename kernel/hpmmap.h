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
 *	hpmmap_pool_mutex	which memory is in the pools (mem/pool/section.c);
 *				device_hotplug_lock, then mem_hotplug_lock, are
 *				outside of it
 *	stocks_rwsem		free blocks on their way to a CPU or from it (mem/pool/alloc.c);
 *				where an exit comes, only tried
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
 * Words:
 *
 *	slot		2 MB of an address space, by its number (address / 2 MB)
 *	block		2 MB of memory: of the pools, or pages of Linux that
 *			stand in for them
 *	store		which block is behind which slot of a context
 *	stale		of a page: its content means nothing to the mapping, and
 *			is cleared before anybody sees it
 *	clean		of a free block: all of it is zero
 *	soiled		free blocks that nobody has zeroed yet, to be zeroed by
 *			the thread of their node
 *	owed		by a user: blocks that its processes gave up unclean
 *	to launder	to zero free blocks
 *	shared		in several stores, since a fork; nobody may change it
 *	pinned		somebody but page tables refers to it
 *	hurt, lost	of a block: a memory error is in it, or in what it was copied from
 *	few		of a slot: pages of Linux at once, since no more than a few
 *			are asked for (as/change/few.c)
 *	draft		a copy of a shared block that has only the pages that were
 *			touched since the fork (as/store/draft.c)
 *	family		everybody who descends by fork from one execve (as/life/share.c)
 *	fresh		of a mapping or a range: mapped anew, nothing in it yet
 *	grave		where blocks wait that a call may still look at (ctx->graves)
 */
#ifndef _HPMMAP_H
#define _HPMMAP_H

#include <linux/bitmap.h>
#include <linux/bug.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/types.h>

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
