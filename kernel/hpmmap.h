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
#include <linux/list.h>
#include <linux/mm.h>
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

#endif /* _HPMMAP_H */
