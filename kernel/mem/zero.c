// SPDX-License-Identifier: GPL-2.0
/*
 * Zeroing free blocks.
 *
 * A free block is clean if all of it is zero. Others are zeroed by who adds
 * memory, or by a thread of the node, of the lowest priority: those that
 * processes left which are gone, and did not zero themselves, and where clean ones
 * are short those of live processes. Who gets one that is not clean zeroes it: the
 * user who soils too many (see alloc.c), and everybody where no clean one is left.
 */
#include <linux/kthread.h>
#include <linux/sched/isolation.h>
#include <linux/sched/signal.h>
#include <linux/topology.h>

#include "hpmmap.h"
#include "mem/block.h"
#include "mem/buddy.h"
#include "mem/node.h"
#include "mem/nodes.h"
#include "mem/pool.h"
#include "trace.h"

/* Blocks that are out of the allocator to be zeroed, for one caller. */
#define LAUNDER_BATCH 16

/* How long clean blocks are short before the thread does something about it. */
#define SHORT_TICKS HZ

/* While this is not 0, no free block leaves the allocator to be zeroed. */
static atomic_t launder_stops;
/* For who waits until those that have left are back. */
static DECLARE_WAIT_QUEUE_HEAD(launder_wait);

/**
 * unclean_take() - take blocks that are free and not clean out of the allocator
 * @pn: the pool, its lock held; it may be released for a moment
 * @nr: how many, at most
 * @unit: out: the first one
 *
 * Return: how many follow each other there; 0 if there is none, or somebody needs all
 * that are free in the allocator.
 */
unsigned int unclean_take(struct pool_node *pn, unsigned long nr,
			  unsigned long *unit)
{
	struct pool_chunk *chunk;
	unsigned int got;

	lockdep_assert_held(&pn->lock);
	while (nr_unclean(pn) && !atomic_read(&launder_stops)) {
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

/* No more is owed than there is: those who owe most need not pay what others did. */
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
 * Free blocks to be zeroed that follow each other, out of the allocator; with
 * @soiled_only no more than are the thread's. Returns how many.
 */
static unsigned int launder_take(struct pool_node *pn, unsigned long nr,
				 bool soiled_only, struct hpmmap_block **first)
{
	unsigned int got = 0, i;
	unsigned long unit;

	spin_lock(&pn->lock);
	/* Some may have been handed out meanwhile. */
	pn->nr_soiled = min(pn->nr_soiled, nr_unclean(pn));
	if (soiled_only)
		nr = min(nr, pn->nr_soiled);
	if (nr)
		got = unclean_take(pn, nr, &unit);
	if (got)
		*first = block_of(pn, unit);
	pn->nr_soiled -= min_t(unsigned long, got, pn->nr_soiled);
	pn->nr_out += got;
	for (i = 0; i < got; i++)
		++*out_of(pn, unit + i);
	owed_trim(pn);
	spin_unlock(&pn->lock);
	return got;
}

static unsigned int launder(struct pool_node *pn, unsigned long nr,
			    bool soiled_only)
{
	struct hpmmap_block *blocks;
	unsigned int n, i;

	n = launder_take(pn, min_t(unsigned long, nr, LAUNDER_BATCH),
			 soiled_only, &blocks);
	if (!n)
		return 0;
	for (i = 0; i < n; i++) {
		hpmmap_block_zero(&blocks[i]);
		blocks[i].zeroed = true;
	}
	trace_hpmmap_zero(blocks->nid, n);
	spin_lock(&pn->lock);
	for (i = 0; i < n; i++) {
		--*out_of(pn, unit_of(&blocks[i]));
		/* Of an error somebody has learned meanwhile. */
		if (unlikely(blocks[i].bad)) {
			block_retire(pn, &blocks[i]);
			continue;
		}
		hpmmap_buddy_free(&pn->buddy, unit_of(&blocks[i]), 0);
		hpmmap_buddy_free(&pn->clean, unit_of(&blocks[i]), 0);
	}
	/* Pairs with count_to_come(): free before it is not out. */
	smp_wmb();
	WRITE_ONCE(pn->nr_out, pn->nr_out - n);
	spin_unlock(&pn->lock);
	wake_up_all(&launder_wait);
	return n;
}

/**
 * hpmmap_pool_launder() - zero free blocks
 * @nid: of this node, which has a pool
 * @nr: how many, at most
 *
 * Takes long. The thread of the node does what is left when the caller is being
 * killed, or somebody needs all free blocks at this moment.
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
		hpmmap_pool_soiled(nid, nr);
}

/**
 * hpmmap_pool_soiled() - free blocks are to be zeroed by the thread of their node
 * @nid: the node
 * @nr: how many
 */
void hpmmap_pool_soiled(int nid, unsigned long nr)
{
	struct pool_node *pn = pool_node_find(nid);

	spin_lock(&pn->lock);
	pn->nr_soiled += nr;
	spin_unlock(&pn->lock);
	wake_up(&pn->work);
}

/* Who has taken some to zero them is seen here, or has seen the stop. */
static bool all_are_back(void)
{
	bool ret = true;
	int nid;

	for_each_online_node(nid) {
		struct pool_node *pn = pool_node_find(nid);

		if (!pn)
			continue;
		spin_lock(&pn->lock);
		ret = !pn->nr_out;
		spin_unlock(&pn->lock);
		if (!ret)
			break;
	}
	return ret;
}

/**
 * hpmmap_pool_launder_stop() - have all free blocks in the allocator
 *
 * Waits for those that are being zeroed; several callers do not wait for each
 * other.
 *
 * Return: 0, until hpmmap_pool_launder_go(); or -EINTR for a process that is being
 * killed.
 */
int hpmmap_pool_launder_stop(void)
{
	atomic_inc(&launder_stops);
	if (!wait_event_killable(launder_wait, all_are_back()))
		return 0;
	hpmmap_pool_launder_go();
	return -EINTR;
}

void hpmmap_pool_launder_go(void)
{
	int nid;

	if (!atomic_dec_and_test(&launder_stops))
		return;
	for_each_online_node(nid) {
		struct pool_node *pn = pool_node_find(nid);

		if (pn)
			wake_up(&pn->work);
	}
}

/* Of all that is free less than a quarter is clean, and it is worth the while. */
static bool is_short(const struct pool_node *pn)
{
	return pn->clean.nr_free < pn->buddy.nr_free / 4 &&
	       nr_unclean(pn) > pn->buddy.nr_total / 8;
}

/* Blocks have been taken or given up: are clean ones short? */
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

/* Live processes gave up much. They may be about to take it again. */
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

/* Block by block, so that an allocation finds all the others. */
static int zeroer_fn(void *data)
{
	struct pool_node *pn = data;

	set_user_nice(current, MAX_NICE);
	while (!kthread_should_stop()) {
		wait_event_idle(pn->work,
				(!atomic_read(&launder_stops) &&
				 (zeroer_has_soiled(pn) || READ_ONCE(pn->hurry))) ||
				kthread_should_stop());
		if (READ_ONCE(pn->hurry))
			zeroer_wait(pn);
		launder(pn, 1, true);
		cond_resched();
	}
	return 0;
}

/* CPUs of the node, but none that is kept free of threads of the kernel. */
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

/* If there is no memory left. */
void zeroer_stop(struct pool_node *pn)
{
	lockdep_assert_held(&hpmmap_pool_mutex);
	if (!pn->zeroer || !list_empty(&pn->chunks))
		return;
	kthread_stop(pn->zeroer);
	pn->zeroer = NULL;
}
