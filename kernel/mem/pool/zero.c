// SPDX-License-Identifier: GPL-2.0
/*
 * Zeroing free blocks.
 *
 * A free block is clean if all of it is zero. The task that adds memory zeroes its
 * blocks. A thread of the node, of the lowest priority, zeroes blocks that ended
 * processes left, and, when clean ones are short, those of live processes. A task that
 * gets a block that is not clean zeroes it: of a user that soils too many (alloc.c), or
 * if no clean one is left.
 */
#include <linux/kthread.h>
#include <linux/sched/isolation.h>

#include "hpmmap.h"
#include "mem/block/block.h"
#include "mem/block/buddy.h"
#include "mem/block/node.h"
#include "mem/block/nodes.h"
#include "mem/pool/pool.h"
#include "trace.h"

/* Blocks that one caller takes out of the allocator at once to zero them. */
#define LAUNDER_BATCH 16

/* The thread acts after clean blocks have been short for this long. */
#define SHORT_TICKS HZ

/* Free blocks that a task has taken out of the allocator to zero them. */
struct laundry {
	/* Held while a piece of one is zeroed; within the lock of the node. */
	spinlock_t lock;
	struct list_head link;		/* in the list of the node, protected by its lock */
	/* The first; used only under @lock, and not once they are @taken_back. */
	struct hpmmap_block *blocks;
	int nid;			/* their node */
	unsigned int nr;		/* number of blocks */
	unsigned int nr_zeroed;		/* number of blocks that are done */
	/* Another task needs them and has put them back into the allocator. */
	bool taken_back;
};

/*
 * Takes @nr blocks at most out of the allocator that follow each other, and are free and not clean.
 * The lock of the node is held, and may be released for a moment. @yields: none if a task needs all free
 * blocks in the allocator. @unit: out: the first. Returns how many; 0 if there is none.
 */
unsigned int unclean_take(struct pool_node *pn, unsigned long nr, bool yields,
			  unsigned long *unit)
{
	struct pool_chunk *chunk;
	unsigned int got;

	lockdep_assert_held(&pn->lock);
	while (nr_unclean(pn) && !(yields && pn->stops)) {
		chunk = list_first_entry(&pn->chunks, struct pool_chunk, link);
		got = hpmmap_buddy_alloc_unlike(&pn->buddy, &chunk->buddy,
						&chunk->clean, nr, unit);
		if (got)
			return got;
		list_move_tail(&chunk->link, &pn->chunks);
		cond_resched_lock(&pn->lock);
	}
	return 0;
}

/* Lowers debts beyond the blocks that are not clean, the largest first. */
void owed_trim(struct pool_node *pn)
{
	unsigned int i, most, nr;

	lockdep_assert_held(&pn->lock);
	while (pn->nr_owed > nr_unclean(pn)) {
		for (i = most = 0; i < ARRAY_SIZE(pn->owed); i++)
			if (pn->owed[i] > pn->owed[most])
				most = i;
		nr = min_t(unsigned long, pn->owed[most],
			   pn->nr_owed - nr_unclean(pn));
		pn->owed[most] -= nr;
		pn->nr_owed -= nr;
	}
}

/*
 * Takes contiguous free blocks out of the allocator to zero them; with @soiled_only no more than
 * the thread should zero.
 */
static void laundry_take(struct pool_node *pn, struct laundry *l, unsigned long nr,
			 bool soiled_only)
{
	unsigned long unit;

	spin_lock(&pn->lock);
	/* Some may have been handed out since they were counted. */
	pn->nr_soiled = min(pn->nr_soiled, nr_unclean(pn));
	if (soiled_only)
		nr = min(nr, pn->nr_soiled);
	l->nr = nr ? unclean_take(pn, nr, true, &unit) : 0;
	if (l->nr) {
		l->blocks = block_of(pn, unit);
		l->nid = l->blocks->nid;
		list_add(&l->link, &pn->laundries);
	}
	pn->nr_soiled -= min_t(unsigned long, l->nr, pn->nr_soiled);
	pn->nr_out += l->nr;
	owed_trim(pn);
	spin_unlock(&pn->lock);
}

/* Returns the blocks to the allocator, those that were zeroed as clean. */
static void laundry_return(struct pool_node *pn, struct laundry *l)
{
	struct hpmmap_block *block = l->blocks;

	lockdep_assert_held(&pn->lock);
	for (; block < l->blocks + l->nr; block++) {
		block->zeroed = block < l->blocks + l->nr_zeroed;
		/* A memory error was reported meanwhile. */
		if (unlikely(block->bad)) {
			block_retire(pn, block);
			continue;
		}
		hpmmap_buddy_free_range(&pn->buddy, unit_of(block), 1);
		if (block->zeroed)
			hpmmap_buddy_free_range(&pn->clean, unit_of(block), 1);
	}
	list_del(&l->link);
	WRITE_ONCE(pn->nr_out, pn->nr_out - l->nr);
}

/* Returns how many of up to @nr blocks were zeroed. */
static unsigned int launder(struct pool_node *pn, unsigned long nr, bool soiled_only)
{
	struct laundry l = {};

	spin_lock_init(&l.lock);
	laundry_take(pn, &l, min_t(unsigned long, nr, LAUNDER_BATCH), soiled_only);
	while (l.nr_zeroed < l.nr &&
	       hpmmap_block_zero_unless(&l.blocks[l.nr_zeroed], &l.lock, &l.taken_back)) {
		spin_lock(&l.lock);
		l.nr_zeroed += !l.taken_back;
		spin_unlock(&l.lock);
	}
	if (!l.nr)
		return 0;
	if (l.nr_zeroed)
		trace_hpmmap_zero(l.nid, l.nr_zeroed);
	spin_lock(&pn->lock);
	if (!l.taken_back)
		laundry_return(pn, &l);
	spin_unlock(&pn->lock);
	return l.nr_zeroed;
}

/* Leaves free blocks to the thread to be zeroed. */
void zeroer_add(struct pool_node *pn, unsigned long nr)
{
	spin_lock(&pn->lock);
	pn->nr_soiled += nr;
	spin_unlock(&pn->lock);
	wake_up(&pn->work);
}

/*
 * Zeroes @nr free blocks at most, which takes long. Ends early if the caller is being killed
 * or a task needs all free blocks: the thread of the node does the rest.
 */
void hpmmap_pool_launder(int nid, unsigned long nr)
{
	struct pool_node *pn = pool_node_find(nid);

	while (nr && !fatal_signal_pending(current)) {
		unsigned int n = launder(pn, nr, false);

		if (!n)
			break;
		nr -= n;
	}
	if (nr)
		zeroer_add(pn, nr);
}

/*
 * Puts all free blocks of some nodes into the allocator. @nodes: out: those that have a pool,
 * for hpmmap_pool_launder_go(). A task that is zeroing blocks loses them once it is done with
 * 128 KB: it might have no CPU for long.
 */
void hpmmap_pool_launder_stop(nodemask_t *nodes)
{
	struct laundry *l, *tmp;
	int nid;

	hpmmap_for_each_node(nid, *nodes) {
		struct pool_node *pn = pool_node_find(nid);

		if (!pn) {
			node_clear(nid, *nodes);
			continue;
		}
		spin_lock(&pn->lock);
		pn->stops++;
		list_for_each_entry_safe(l, tmp, &pn->laundries, link) {
			spin_lock(&l->lock);
			l->taken_back = true;
			laundry_return(pn, l);
			/* The rest is the thread's again: the last block was not completed. */
			pn->nr_soiled += l->nr - l->nr_zeroed;
			spin_unlock(&l->lock);
		}
		spin_unlock(&pn->lock);
	}
}

void hpmmap_pool_launder_go(const nodemask_t *nodes)
{
	int nid;

	hpmmap_for_each_node(nid, *nodes) {
		struct pool_node *pn = pool_node_find(nid);

		spin_lock(&pn->lock);
		pn->stops--;
		spin_unlock(&pn->lock);
		wake_up(&pn->work);
	}
}

/* One worker helps for each 128 MB of blocks that are not clean, and this many at most. */
#define HELPER_BLOCKS 64
#define MOST_HELPERS 7

/* Blocks that several threads clear; @at, protected by @lock, is the last one taken. */
struct clearing {
	spinlock_t lock;
	struct hpmmap_owner *owner;
	struct list_head *list;
	struct list_head *at;
	unsigned long first;
	unsigned long end;
};

struct helper {
	struct work_struct work;
	struct clearing *c;
};

static inline bool is_wanted(const struct clearing *c, const struct hpmmap_block *block)
{
	/* A run is clean. */
	return !block->run &&
	       (c->first == NO_SLOT || (block->slot >= c->first && block->slot < c->end &&
					hpmmap_pages_are(block->stale, true)));
}

/* Clears the next block that is not clean; false: there is none left. */
static bool clear_next(struct clearing *c)
{
	struct hpmmap_block *block = NULL;

	spin_lock(&c->lock);
	while (!block && !list_is_last(c->at, c->list)) {
		c->at = c->at->next;
		block = list_entry(c->at, struct hpmmap_block, link);
		if (block->zeroed || !is_wanted(c, block))
			block = NULL;
	}
	spin_unlock(&c->lock);
	if (block)
		hpmmap_block_clear(c->owner, block);
	return block;
}

static void help(struct work_struct *work)
{
	while (clear_next(container_of(work, struct helper, work)->c))
		;
}

/* Clears the blocks that are not clean, with @nr helpers on a node. */
static noinline void clear_unclean(struct clearing *c, unsigned int nr, int nid)
{
	struct helper helpers[MOST_HELPERS];
	unsigned int i;

	spin_lock_init(&c->lock);
	c->at = c->list;
	for (i = 0; i < nr; i++) {
		helpers[i].c = c;
		INIT_WORK_ONSTACK(&helpers[i].work, help);
		queue_work_node(nid, hpmmap_wq, &helpers[i].work);
	}
	while (!fatal_signal_pending(current) && clear_next(c))
		;
	spin_lock(&c->lock);
	c->at = c->list->prev;
	spin_unlock(&c->lock);
	/* A helper that has not begun is not needed. */
	for (i = 0; i < nr; i++) {
		cancel_work_sync(&helpers[i].work);
		destroy_work_on_stack(&helpers[i].work);
	}
}

/*
 * Clears blocks from the pools, invisible to others, for their future owner: those for slots
 * from @first to @end that are all stale, or all of them (NO_SLOT). If many are not clean,
 * workers on the node of the memory help. Returns 0, or -EINTR if the task is being killed:
 * then some are not cleared.
 */
int hpmmap_pool_clear(struct hpmmap_owner *owner, struct list_head *list,
		      unsigned long first, unsigned long end)
{
	struct clearing c = { .owner = owner, .list = list, .first = first, .end = end };
	unsigned int nr = 0, looked = 0;
	struct hpmmap_block *block;
	int nid = NUMA_NO_NODE;

	list_for_each_entry(block, list, link) {
		hpmmap_every(&looked, SLOT_PAGES);
		if (!is_wanted(&c, block))
			continue;
		if (likely(block->zeroed)) {
			hpmmap_block_show(block);
		} else {
			nid = block->nid;
			nr++;
		}
	}
	if (nr)
		clear_unclean(&c, min3(nr / HELPER_BLOCKS, num_online_cpus() - 1,
				       (unsigned int)MOST_HELPERS), nid);
	return fatal_signal_pending(current) ? -EINTR : 0;
}

/* Is less than a quarter of the free blocks clean, and is it worth acting? */
static bool is_short(const struct pool_node *pn)
{
	return pn->clean.nr_free < pn->buddy.nr_free / 4 &&
	       nr_unclean(pn) > pn->buddy.nr_total / 8;
}

/* Called after blocks were taken or given up: notes when clean ones become short. */
void zeroer_hurry(struct pool_node *pn)
{
	lockdep_assert_held(&pn->lock);
	if (likely(!is_short(pn)) || pn->hurry)
		return;
	pn->hurry = jiffies ?: 1;
	wake_up(&pn->work);
}

static bool zeroer_has_soiled(struct pool_node *pn)
{
	return READ_ONCE(pn->nr_soiled) || kthread_should_stop();
}

/* Waits, since live processes that gave up much may take it again at once. */
static void zeroer_wait(struct pool_node *pn)
{
	unsigned long until = READ_ONCE(pn->hurry) + SHORT_TICKS;

	if (time_before(jiffies, until))
		wait_event_idle_timeout(pn->work, zeroer_has_soiled(pn), until - jiffies);
	if (time_before(jiffies, until))
		return;
	spin_lock(&pn->lock);
	pn->hurry = 0;
	if (is_short(pn))
		pn->nr_soiled = max(pn->nr_soiled,
				    nr_unclean(pn) - pn->buddy.nr_free / 2);
	spin_unlock(&pn->lock);
}

/* Zeroes block by block, so that an allocation finds all the others. */
static int zeroer_fn(void *data)
{
	struct pool_node *pn = data;

	set_user_nice(current, MAX_NICE);
	while (!kthread_should_stop()) {
		wait_event_idle(pn->work,
				(!READ_ONCE(pn->stops) &&
				 (zeroer_has_soiled(pn) || READ_ONCE(pn->hurry))) ||
				kthread_should_stop());
		if (READ_ONCE(pn->hurry))
			zeroer_wait(pn);
		launder(pn, 1, true);
		cond_resched();
	}
	return 0;
}

/* Runs the thread on CPUs of the node, except CPUs that are isolated from kernel threads. */
static void zeroer_place(struct task_struct *task, int nid)
{
	cpumask_var_t cpus;

	if (!zalloc_cpumask_var(&cpus, GFP_KERNEL))
		return;
	if (cpumask_and(cpus, cpumask_of_node(nid),
			housekeeping_cpumask(HK_TYPE_KTHREAD)))
		set_cpus_allowed_ptr(task, cpus);
	free_cpumask_var(cpus);
}

int zeroer_start(struct pool_node *pn, int nid)
{
	struct task_struct *task;

	lockdep_assert_held(&hpmmap_pool_mutex);
	if (pn->zeroer)
		return 0;
	task = kthread_create_on_node(zeroer_fn, pn, nid, "hpmmap_zero/%d",
				      nid);
	if (IS_ERR(task))
		return PTR_ERR(task);
	zeroer_place(task, nid);
	pn->zeroer = task;
	wake_up_process(task);
	return 0;
}

/* Stops the thread if the pool has no memory left. */
void zeroer_stop(struct pool_node *pn)
{
	lockdep_assert_held(&hpmmap_pool_mutex);
	if (!pn->zeroer || !list_empty(&pn->chunks))
		return;
	kthread_stop(pn->zeroer);
	pn->zeroer = NULL;
}
