// SPDX-License-Identifier: GPL-2.0
/*
 * Zeroing free blocks.
 *
 * A free block is clean if all of it is zero. Others are zeroed by who adds
 * memory, or by a thread of the node, of the lowest priority: those that
 * processes left which are gone, and did not zero themselves. Where only such are
 * left, who gets one zeroes it.
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

/* While this is not 0, no free block leaves the allocator to be zeroed. */
static atomic_t launder_stops;
/* For who waits until those that have left are back. */
static DECLARE_WAIT_QUEUE_HEAD(launder_wait);

static bool chunk_has_unclean(struct pool_node *pn, struct pool_chunk *chunk)
{
	unsigned long unit = chunk->buddy.nr * HPMMAP_BUDDY_CHUNK_UNITS;

	return hpmmap_buddy_count_free(&pn->buddy, unit,
				       HPMMAP_BUDDY_CHUNK_UNITS) !=
	       hpmmap_buddy_count_free(&pn->clean, unit,
				       HPMMAP_BUDDY_CHUNK_UNITS);
}

/* Up to @nr free blocks of one chunk that are not clean, out of the allocator. */
static unsigned int chunk_take_unclean(struct pool_node *pn,
				     struct pool_chunk *chunk, unsigned int nr,
				     struct hpmmap_block **out)
{
	unsigned long first = chunk->buddy.nr * HPMMAP_BUDDY_CHUNK_UNITS;
	unsigned int got = 0, looks;

	lockdep_assert_held(&pn->lock);
	for (looks = HPMMAP_BUDDY_CHUNK_UNITS; looks && got < nr; looks--) {
		unsigned int i = chunk->scan++ % HPMMAP_BUDDY_CHUNK_UNITS;

		if (!hpmmap_buddy_is_free(&pn->buddy, first + i) ||
		    hpmmap_buddy_is_free(&pn->clean, first + i))
			continue;
		hpmmap_buddy_take(&pn->buddy, first + i, 0);
		++*out_of(pn, first + i);
		out[got++] = &chunk->blocks[i];
	}
	return got;
}

/*
 * Up to @nr free blocks that are not clean, out of the allocator; with
 * @soiled_only no more than processes left that are gone.
 */
static unsigned int unclean_take(struct pool_node *pn, unsigned int nr,
			       bool soiled_only, struct hpmmap_block **out)
{
	struct pool_chunk *chunk;
	unsigned int got = 0;

	spin_lock(&pn->lock);
	while (!atomic_read(&launder_stops)) {
		unsigned long unclean = pn->buddy.nr_free - pn->clean.nr_free;

		/* Some may have been handed out meanwhile. */
		pn->nr_soiled = min(pn->nr_soiled, unclean);
		if (soiled_only)
			nr = min_t(unsigned long, nr, pn->nr_soiled);
		if (!nr || !unclean)
			break;
		chunk = list_first_entry(&pn->chunks, struct pool_chunk, link);
		if (chunk_has_unclean(pn, chunk)) {
			got = chunk_take_unclean(pn, chunk, nr, out);
			pn->nr_soiled -= min_t(unsigned long, got,
					       pn->nr_soiled);
			pn->nr_out += got;
			break;
		}
		list_move_tail(&chunk->link, &pn->chunks);
		cond_resched_lock(&pn->lock);
	}
	spin_unlock(&pn->lock);
	return got;
}

static unsigned int launder(struct pool_node *pn, unsigned int nr,
			    bool soiled_only)
{
	struct hpmmap_block *blocks[LAUNDER_BATCH];
	unsigned int n, i;

	n = unclean_take(pn, min_t(unsigned int, nr, LAUNDER_BATCH), soiled_only,
		       blocks);
	if (!n)
		return 0;
	for (i = 0; i < n; i++) {
		hpmmap_block_zero(blocks[i]);
		blocks[i]->zeroed = true;
	}
	trace_hpmmap_zero(blocks[0]->nid, n);
	spin_lock(&pn->lock);
	for (i = 0; i < n; i++) {
		--*out_of(pn, unit_of(blocks[i]));
		/* Of an error somebody has learned meanwhile. */
		if (unlikely(blocks[i]->bad)) {
			block_retire(pn, blocks[i]);
			continue;
		}
		hpmmap_buddy_free(&pn->buddy, unit_of(blocks[i]), 0);
		hpmmap_buddy_free(&pn->clean, unit_of(blocks[i]), 0);
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
		unsigned int n = launder(pn, min(nr, (unsigned long)UINT_MAX),
					 false);

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

/* Free blocks that are being zeroed; a hint without the locks. */
unsigned long hpmmap_pool_count_out(const nodemask_t *nodes)
{
	unsigned long n = 0;
	int nid;

	hpmmap_for_each_node(nid, *nodes) {
		struct pool_node *pn = pool_node_find(nid);

		if (pn)
			n += READ_ONCE(pn->nr_out);
	}
	return n;
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

static bool zeroer_has_work(struct pool_node *pn)
{
	return READ_ONCE(pn->nr_soiled) && !atomic_read(&launder_stops);
}

/* Block by block, so that an allocation finds all the others. */
static int zeroer_fn(void *data)
{
	struct pool_node *pn = data;

	set_user_nice(current, MAX_NICE);
	while (!kthread_should_stop()) {
		wait_event_idle(pn->work, zeroer_has_work(pn) ||
					  kthread_should_stop());
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
