// SPDX-License-Identifier: GPL-2.0
/*
 * Pools: the blocks of each NUMA node, and handing them out.
 *
 * Memory comes and goes by way of section.c.
 *
 * A free block is clean if all of it is zero. Clean ones are handed out first.
 * Others are zeroed by who adds memory, or by a thread of the node, of the lowest
 * priority: those that processes left which are gone, and did not zero themselves.
 * Where only such are left, who gets one zeroes it.
 */
#include <linux/kthread.h>
#include <linux/list.h>
#include <linux/log2.h>
#include <linux/sched/isolation.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/topology.h>
#include <linux/wait.h>

#include "hpmmap.h"
#include "sysfs.h"
#include "mem/account.h"
#include "mem/block.h"
#include "mem/buddy.h"
#include "mem/placement.h"
#include "mem/poison.h"
#include "mem/pool.h"
#include "as/counters.h"
#include "as/ctx.h"
#include "as/job.h"
#include "as/reuse.h"
#include "as/stats.h"
#include "trace.h"

#define CHUNK_SECTIONS (HPMMAP_BUDDY_CHUNK_UNITS / SECTION_BLOCKS)

/**
 * struct pool_chunk - one GB of physical memory
 * @buddy: the allocator's part
 * @clean: the clean blocks' part
 * @link: in the list of the node
 * @nr_sections: sections of it that are in the pool
 * @pinned: blocks of each section that are pinned
 * @out: those that are free, and out of the allocator
 * @scan: where the search for a block that is not clean goes on
 * @blocks: its blocks; those of sections not in the pool are zero
 */
struct pool_chunk {
	struct hpmmap_buddy_chunk buddy;
	struct hpmmap_buddy_chunk clean;
	struct list_head link;
	unsigned int nr_sections;
	unsigned int pinned[CHUNK_SECTIONS];
	unsigned int out[CHUNK_SECTIONS];
	unsigned int scan;
	struct hpmmap_block blocks[HPMMAP_BUDDY_CHUNK_UNITS];
};

/**
 * struct pool_node - the pool of one NUMA node
 * @lock: protects the members that follow, the state of free blocks, and how
 *	many are pinned in each section
 * @buddy: its blocks; chunks come and go under hpmmap_pool_mutex too
 * @clean: which of the free blocks are clean
 * @nr_doomed: blocks that will be bad once nobody has them any more
 * @nr_bad: bad blocks
 * @chunks: all of them, those first that have free blocks which are not clean
 * @nr_pinned: blocks that are pinned
 * @nr_out: free blocks that are out of the allocator, being zeroed
 * @nr_soiled: free blocks that are not clean and that @zeroer should zero
 * @zeroer: thread of the node; there while there is memory. Protected by
 *	hpmmap_pool_mutex.
 * @work: it waits here
 * @kobj: in sysfs
 */
struct pool_node {
	spinlock_t lock;
	struct hpmmap_buddy buddy;
	struct hpmmap_buddy clean;
	unsigned long nr_doomed;
	unsigned long nr_bad;
	struct list_head chunks;
	unsigned long nr_pinned;
	unsigned long nr_out;
	unsigned long nr_soiled;
	struct task_struct *zeroer;
	wait_queue_head_t work;
	struct kobject kobj;
};

/* A node's pool exists from its first section until the module goes. */
static struct pool_node *pool_nodes[MAX_NUMNODES];

/* Blocks that are out of the allocator to be zeroed, for one caller. */
#define LAUNDER_BATCH 16

/* While this is not 0, no free block leaves the allocator to be zeroed. */
static atomic_t launder_stops;
/* For who waits until those that have left are back. */
static DECLARE_WAIT_QUEUE_HEAD(launder_wait);

static void block_set_state(struct hpmmap_block *block,
			    enum hpmmap_block_state state)
{
	WRITE_ONCE(block->state, state);
}

static struct pool_chunk *chunk_of(struct pool_node *pn, unsigned long unit)
{
	struct hpmmap_buddy_chunk *bc;

	bc = hpmmap_buddy_chunk_find(&pn->buddy, unit);
	return bc ? container_of(bc, struct pool_chunk, buddy) : NULL;
}

static struct hpmmap_block *block_of(struct pool_node *pn, unsigned long unit)
{
	struct pool_chunk *chunk = chunk_of(pn, unit);

	return &chunk->blocks[unit % HPMMAP_BUDDY_CHUNK_UNITS];
}

static unsigned long unit_of(const struct hpmmap_block *block)
{
	return folio_pfn(block->folio) >> SLOT_ORDER;
}

/* How many blocks of a section are pinned. */
static unsigned int *pinned_of(struct pool_node *pn, unsigned long unit)
{
	struct pool_chunk *chunk = chunk_of(pn, unit);

	return &chunk->pinned[unit % HPMMAP_BUDDY_CHUNK_UNITS / SECTION_BLOCKS];
}

/* Its free blocks that are being zeroed. */
static unsigned int *out_of(struct pool_node *pn, unsigned long unit)
{
	struct pool_chunk *chunk = chunk_of(pn, unit);

	return &chunk->out[unit % HPMMAP_BUDDY_CHUNK_UNITS / SECTION_BLOCKS];
}

static struct pool_node *pool_node_get(int nid)
{
	struct pool_node *pn = pool_nodes[nid];

	lockdep_assert_held(&hpmmap_pool_mutex);
	if (pn)
		return pn;
	pn = kzalloc(sizeof(*pn), GFP_KERNEL);
	if (!pn)
		return NULL;
	spin_lock_init(&pn->lock);
	hpmmap_buddy_init(&pn->buddy);
	hpmmap_buddy_init(&pn->clean);
	INIT_LIST_HEAD(&pn->chunks);
	init_waitqueue_head(&pn->work);
	if (hpmmap_sysfs_node_add(&pn->kobj, nid)) {
		kobject_put(&pn->kobj);
		return NULL;
	}
	/* Pairs with pool_node_find(), which does without the mutex. */
	smp_store_release(&pool_nodes[nid], pn);
	return pn;
}

/* The block that a page frame of an active section belongs to. */
struct hpmmap_block *hpmmap_pool_block(int nid, unsigned long pfn)
{
	return block_of(pool_nodes[nid], pfn >> SLOT_ORDER);
}

/* The last reference to a node's kobject is gone. */
void hpmmap_pool_node_free(struct kobject *kobj)
{
	kfree(container_of(kobj, struct pool_node, kobj));
}

static struct pool_node *pool_node_find(int nid)
{
	return smp_load_acquire(&pool_nodes[nid]);
}

static unsigned int launder(struct pool_node *pn, unsigned int nr,
			    bool soiled_only);

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

static int zeroer_start(struct pool_node *pn, int nid)
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
static void zeroer_stop(struct pool_node *pn)
{
	lockdep_assert_held(&hpmmap_pool_mutex);
	if (!pn->zeroer || !list_empty(&pn->chunks))
		return;
	kthread_stop(pn->zeroer);
	pn->zeroer = NULL;
}

/* The chunk of a section, made if there is none. */
static struct pool_chunk *chunk_get(struct pool_node *pn, unsigned long unit)
{
	struct pool_chunk *chunk = chunk_of(pn, unit);

	lockdep_assert_held(&hpmmap_pool_mutex);
	if (chunk)
		return chunk;
	chunk = kvzalloc(sizeof(*chunk), GFP_KERNEL);
	if (!chunk)
		return NULL;
	spin_lock(&pn->lock);
	hpmmap_buddy_chunk_insert(&pn->buddy, &chunk->buddy,
				  unit / HPMMAP_BUDDY_CHUNK_UNITS);
	hpmmap_buddy_chunk_insert(&pn->clean, &chunk->clean,
				  unit / HPMMAP_BUDDY_CHUNK_UNITS);
	list_add(&chunk->link, &pn->chunks);
	spin_unlock(&pn->lock);
	return chunk;
}

static void chunk_put(struct pool_node *pn, struct pool_chunk *chunk)
{
	lockdep_assert_held(&hpmmap_pool_mutex);
	if (chunk->nr_sections)
		return;
	spin_lock(&pn->lock);
	hpmmap_buddy_chunk_remove(&pn->buddy, &chunk->buddy);
	hpmmap_buddy_chunk_remove(&pn->clean, &chunk->clean);
	list_del(&chunk->link);
	spin_unlock(&pn->lock);
	kvfree(chunk);
}

/**
 * hpmmap_pool_prepare() - everything of taking memory in that can fail
 * @nid: its node
 * @unit: its first block
 *
 * For one section; its blocks are not handed out yet.
 *
 * Return: 0, -ENOMEM, or -EINTR if the caller is being killed.
 */
int hpmmap_pool_prepare(int nid, unsigned long unit)
{
	struct pool_node *pn = pool_node_get(nid);
	struct pool_chunk *chunk;
	unsigned long i;
	int ret;

	if (!pn)
		return -ENOMEM;
	ret = zeroer_start(pn, nid);
	if (ret)
		return ret;
	chunk = chunk_get(pn, unit);
	if (!chunk) {
		zeroer_stop(pn);
		return -ENOMEM;
	}
	for (i = 0; i < SECTION_BLOCKS; i++) {
		struct hpmmap_block *block;

		block = &chunk->blocks[(unit + i) % HPMMAP_BUDDY_CHUNK_UNITS];
		hpmmap_block_prepare(block, (unit + i) << SLOT_ORDER, nid);
		bitmap_fill(block->stale, SLOT_PAGES);
	}
	chunk->nr_sections++;
	return 0;
}

/* Undoes hpmmap_pool_prepare(); the blocks are not in the allocator. */
void hpmmap_pool_drop(int nid, unsigned long unit)
{
	struct pool_node *pn = pool_nodes[nid];
	struct pool_chunk *chunk = chunk_of(pn, unit);

	memset(&chunk->blocks[unit % HPMMAP_BUDDY_CHUNK_UNITS], 0,
	       SECTION_BLOCKS * sizeof(chunk->blocks[0]));
	chunk->nr_sections--;
	chunk_put(pn, chunk);
	zeroer_stop(pn);
}

/* Bad blocks of a section are not in the allocator. */
static void bad_take(struct pool_node *pn, unsigned long unit)
{
	unsigned long i;

	lockdep_assert_held(&pn->lock);
	for (i = 0; i < SECTION_BLOCKS; i++) {
		if (block_of(pn, unit + i)->state != HPMMAP_BLOCK_BAD)
			continue;
		hpmmap_buddy_take(&pn->buddy, unit + i, 0);
		if (hpmmap_buddy_is_free(&pn->clean, unit + i))
			hpmmap_buddy_take(&pn->clean, unit + i, 0);
		pn->nr_bad++;
	}
}

/* Undoes bad_take(). */
static void bad_give(struct pool_node *pn, unsigned long unit)
{
	unsigned long i;

	lockdep_assert_held(&pn->lock);
	for (i = 0; i < SECTION_BLOCKS; i++) {
		if (block_of(pn, unit + i)->state != HPMMAP_BLOCK_BAD)
			continue;
		hpmmap_buddy_free(&pn->buddy, unit + i, 0);
		pn->nr_bad--;
	}
}

/* The blocks of a section can be handed out from here on. */
void hpmmap_pool_activate(int nid, unsigned long unit)
{
	struct pool_node *pn = pool_nodes[nid];
	unsigned long i;

	spin_lock(&pn->lock);
	hpmmap_buddy_add(&pn->buddy, unit, SECTION_BLOCKS);
	hpmmap_buddy_add(&pn->clean, unit, SECTION_BLOCKS);
	for (i = 0; i < SECTION_BLOCKS; i++)
		if (!block_of(pn, unit + i)->zeroed)
			hpmmap_buddy_take(&pn->clean, unit + i, 0);
	bad_take(pn, unit);
	spin_unlock(&pn->lock);
}

/*
 * Undoes hpmmap_pool_activate(); -EBUSY if one is neither free nor bad. Between
 * hpmmap_pool_launder_stop() and hpmmap_pool_launder_go().
 */
int hpmmap_pool_deactivate(int nid, unsigned long unit)
{
	struct pool_node *pn = pool_nodes[nid];
	unsigned long i;
	int ret;

	spin_lock(&pn->lock);
	bad_give(pn, unit);
	ret = hpmmap_buddy_remove(&pn->buddy, unit, SECTION_BLOCKS);
	if (ret) {
		bad_take(pn, unit);
	} else {
		for (i = 0; i < SECTION_BLOCKS; i++)
			if (!hpmmap_buddy_is_free(&pn->clean, unit + i))
				hpmmap_buddy_free(&pn->clean, unit + i, 0);
		hpmmap_buddy_remove(&pn->clean, unit, SECTION_BLOCKS);
	}
	spin_unlock(&pn->lock);
	return ret;
}

static bool chunk_is_dirty(struct pool_node *pn, struct pool_chunk *chunk)
{
	unsigned long unit = chunk->buddy.nr * HPMMAP_BUDDY_CHUNK_UNITS;

	return hpmmap_buddy_count_free(&pn->buddy, unit,
				       HPMMAP_BUDDY_CHUNK_UNITS) !=
	       hpmmap_buddy_count_free(&pn->clean, unit,
				       HPMMAP_BUDDY_CHUNK_UNITS);
}

/* Up to @nr free blocks of one chunk that are not clean, out of the allocator. */
static unsigned int chunk_take_dirty(struct pool_node *pn,
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
static unsigned int dirty_take(struct pool_node *pn, unsigned int nr,
			       bool soiled_only, struct hpmmap_block **out)
{
	struct pool_chunk *chunk;
	unsigned int got = 0;

	spin_lock(&pn->lock);
	while (!atomic_read(&launder_stops)) {
		unsigned long dirty = pn->buddy.nr_free - pn->clean.nr_free;

		/* Some may have been handed out meanwhile. */
		pn->nr_soiled = min(pn->nr_soiled, dirty);
		if (soiled_only)
			nr = min_t(unsigned long, nr, pn->nr_soiled);
		if (!nr || !dirty)
			break;
		chunk = list_first_entry(&pn->chunks, struct pool_chunk, link);
		if (chunk_is_dirty(pn, chunk)) {
			got = chunk_take_dirty(pn, chunk, nr, out);
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

	n = dirty_take(pn, min_t(unsigned int, nr, LAUNDER_BATCH), soiled_only,
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
		hpmmap_buddy_free(&pn->buddy, unit_of(blocks[i]), 0);
		hpmmap_buddy_free(&pn->clean, unit_of(blocks[i]), 0);
		--*out_of(pn, unit_of(blocks[i]));
	}
	/* Pairs with alloc_after_zeroing(): free before it is not out. */
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
static unsigned long count_out(const nodemask_t *nodes)
{
	unsigned long n = 0;
	int nid;

	for_each_node_mask(nid, *nodes) {
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
 * @killable: a fatal signal ends the wait
 *
 * Waits for those that are being zeroed; several callers do not wait for each
 * other.
 *
 * Return: 0, and hpmmap_pool_launder_go() is due, or -EINTR for a process that is
 * being killed.
 */
int hpmmap_pool_launder_stop(bool killable)
{
	atomic_inc(&launder_stops);
	if (!killable) {
		wait_event(launder_wait, all_are_back());
		return 0;
	}
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

/* Bad blocks of a section. */
static unsigned long section_bad(struct pool_node *pn, unsigned long unit)
{
	unsigned long i, n = 0;

	lockdep_assert_held(&pn->lock);
	if (!hpmmap_poison_seen())
		return 0;
	for (i = 0; i < SECTION_BLOCKS; i++)
		n += block_of(pn, unit + i)->state == HPMMAP_BLOCK_BAD;
	return n;
}

/**
 * hpmmap_pool_use() - how the blocks of an active section are used
 * @nid: its node
 * @unit: its first block
 * @use: bytes are added here
 */
void hpmmap_pool_use(int nid, unsigned long unit, struct pool_use *use)
{
	struct pool_node *pn = pool_nodes[nid];
	unsigned long free, pinned, bad;

	spin_lock(&pn->lock);
	free = hpmmap_buddy_count_free(&pn->buddy, unit, SECTION_BLOCKS) +
	       *out_of(pn, unit);
	pinned = *pinned_of(pn, unit);
	bad = section_bad(pn, unit);
	spin_unlock(&pn->lock);
	use->free += free << SLOT_SHIFT;
	use->pinned += pinned << SLOT_SHIFT;
	use->bad += bad << SLOT_SHIFT;
	use->busy += (SECTION_BLOCKS - free - pinned - bad) << SLOT_SHIFT;
}

/**
 * hpmmap_pool_node_stat() - size and use of one node's pool
 * @nid: the node; it has a pool
 * @stat: out, in bytes
 */
void hpmmap_pool_node_stat(int nid, struct hpmmap_node_stat *stat)
{
	struct pool_node *pn = pool_node_find(nid);
	int largest;

	*stat = (struct hpmmap_node_stat) {};
	/* Its files are there a moment earlier. */
	if (!pn)
		return;
	spin_lock(&pn->lock);
	stat->total = (u64)pn->buddy.nr_total << SLOT_SHIFT;
	stat->free = (u64)(pn->buddy.nr_free + pn->nr_out) << SLOT_SHIFT;
	stat->clean = (u64)pn->clean.nr_free << SLOT_SHIFT;
	stat->pinned = (u64)pn->nr_pinned << SLOT_SHIFT;
	stat->bad = (u64)pn->nr_bad << SLOT_SHIFT;
	largest = hpmmap_buddy_largest(&pn->buddy);
	spin_unlock(&pn->lock);
	stat->largest = largest < 0 ? 0 : (u64)SLOT_SIZE << largest;
}

bool hpmmap_pool_has(const nodemask_t *nodes)
{
	int nid;

	for_each_node_mask(nid, *nodes) {
		struct pool_node *pn = pool_node_find(nid);

		if (pn && READ_ONCE(pn->buddy.nr_total))
			return true;
	}
	return false;
}

/**
 * hpmmap_pool_count_mapped() - blocks have been handed out to be mapped, or not
 * @nid: their node
 * @nr: how many more
 *
 * Linux counts what is mapped of them as mapped page cache, of which they are
 * none: with vm.zone_reclaim_mode it would take all page cache for mapped, and
 * reclaim nothing. So they are taken off, as long as somebody has them.
 */
void hpmmap_pool_count_mapped(int nid, long nr)
{
	if (nr)
		mod_node_page_state(NODE_DATA(nid), NR_FILE_MAPPED,
				    -(nr << SLOT_ORDER));
}

static void take_run(struct pool_node *pn, struct hpmmap_account *account,
		     unsigned long unit, unsigned long nr,
		     struct list_head *out)
{
	struct hpmmap_block *blocks = block_of(pn, unit);
	unsigned long i;

	lockdep_assert_held(&pn->lock);
	for (i = 0; i < nr; i++) {
		block_set_state(&blocks[i], HPMMAP_BLOCK_HELD);
		blocks[i].account = account;
		atomic_set(&blocks[i].users, 1);
		list_add_tail(&blocks[i].link, out);
	}
}

/*
 * The largest run of at most @nr free blocks: of clean ones, unless a @large
 * job can have a gigabyte only of others. Returns its order, or -1.
 */
static int run_alloc(struct pool_node *pn, bool large, unsigned long nr,
		     unsigned long *unit)
{
	int any = hpmmap_buddy_largest(&pn->buddy);
	int clean = hpmmap_buddy_largest(&pn->clean);
	int most = min_t(int, ilog2(nr), LARGE_ORDER), order;
	unsigned long i;

	lockdep_assert_held(&pn->lock);
	if (any < 0)
		return -1;
	if (clean >= 0 && !(large && most == LARGE_ORDER && any > clean)) {
		order = min(clean, most);
		hpmmap_buddy_alloc(&pn->clean, order, unit);
		hpmmap_buddy_take(&pn->buddy, *unit, order);
		return order;
	}
	order = min(any, most);
	hpmmap_buddy_alloc(&pn->buddy, order, unit);
	if (clean >= 0)
		for (i = 0; i < 1UL << order; i++)
			hpmmap_buddy_take(&pn->clean, *unit + i, 0);
	return order;
}

/*
 * Up to @nr blocks of one node in as few runs as possible, clean ones first;
 * returns how many.
 */
static unsigned long node_alloc(int nid, struct hpmmap_ctx *ctx,
				unsigned long nr, struct list_head *out)
{
	struct pool_node *pn = pool_node_find(nid);
	unsigned long got = 0;
	unsigned long unit;

	if (!pn)
		return 0;
	spin_lock(&pn->lock);
	while (got < nr) {
		int order = run_alloc(pn, ctx->job->large, nr - got, &unit);

		if (order < 0)
			break;
		take_run(pn, ctx->owner.account, unit, 1UL << order, out);
		got += 1UL << order;
		cond_resched_lock(&pn->lock);
	}
	spin_unlock(&pn->lock);
	hpmmap_pool_count_mapped(nid, got);
	return got;
}

/**
 * hpmmap_pool_nearest() - the nearest node that has a pool
 * @nid: nearest to this one
 * @nodes: of these
 * @tried: but not one of these; the node is added
 *
 * Return: the node, or NUMA_NO_NODE.
 */
int hpmmap_pool_nearest(int nid, const nodemask_t *nodes, nodemask_t *tried)
{
	int best = NUMA_NO_NODE, n;

	for_each_node_mask(n, *nodes) {
		if (node_isset(n, *tried) || !pool_node_find(n))
			continue;
		if (best == NUMA_NO_NODE ||
		    node_distance(nid, n) < node_distance(nid, best))
			best = n;
	}
	if (best != NUMA_NO_NODE)
		node_set(best, *tried);
	return best;
}

static unsigned long alloc_near(struct hpmmap_ctx *ctx, int nid,
				const nodemask_t *nodes, nodemask_t *tried,
				unsigned long nr, struct list_head *out)
{
	unsigned long got = 0;

	while (got < nr) {
		int n = hpmmap_pool_nearest(nid, nodes, tried);

		if (n == NUMA_NO_NODE)
			break;
		got += node_alloc(n, ctx, nr - got, out);
	}
	return got;
}

/* Nodes that have had a pool. */
void hpmmap_pool_nodes(nodemask_t *nodes)
{
	int nid;

	nodes_clear(*nodes);
	for_each_online_node(nid)
		if (pool_node_find(nid))
			node_set(nid, *nodes);
}

/* Free blocks on some nodes; a hint without the locks. */
unsigned long hpmmap_pool_count_free(const nodemask_t *nodes)
{
	unsigned long n = 0;
	int nid;

	for_each_node_mask(nid, *nodes) {
		struct pool_node *pn = pool_node_find(nid);

		if (pn)
			n += READ_ONCE(pn->buddy.nr_free);
	}
	return n;
}

/* All blocks there are; as above. */
unsigned long hpmmap_pool_count_all(void)
{
	unsigned long n = 0;
	int nid;

	for_each_online_node(nid) {
		struct pool_node *pn = pool_node_find(nid);

		if (pn)
			n += READ_ONCE(pn->buddy.nr_total);
	}
	return n;
}

/* Could a new job get at least one block now? */
bool hpmmap_pool_has_free(struct hpmmap_job *job)
{
	if (!hpmmap_pool_count_free(&job->nodes))
		hpmmap_reap();
	if (!hpmmap_pool_count_free(&job->nodes))
		hpmmap_reuse_reclaim(&job->nodes, NULL, 1);
	return hpmmap_pool_count_free(&job->nodes) &&
	       !hpmmap_account_full(job->account, 1);
}

/* As many as there are of those that one kind of placement treats alike. */
static unsigned long alloc_alike(struct hpmmap_ctx *ctx,
				 const struct hpmmap_placement *place, int first,
				 unsigned long nr, struct list_head *out)
{
	nodemask_t tried = NODE_MASK_NONE;
	unsigned long got;

	got = alloc_near(ctx, first, &place->preferred, &tried, nr, out);
	return got + alloc_near(ctx, first, &place->nodes, &tried, nr - got,
				out);
}

static unsigned long alloc_in_turn(struct hpmmap_ctx *ctx,
				   const struct hpmmap_placement *place,
				   unsigned long slot, unsigned long nr,
				   struct list_head *out)
{
	unsigned long got = 0;

	while (got < nr) {
		unsigned long want, n;
		nodemask_t tried = NODE_MASK_NONE;
		int nid;

		nid = hpmmap_placement_turn(place, slot + got, nr - got, &want);
		n = node_alloc(nid, ctx, want, out);
		if (n < want)
			n += alloc_near(ctx, nid, &place->nodes, &tried,
					want - n, out);
		got += n;
		if (n < want)
			break;
	}
	return got;
}

/* All of them, or none. */
static bool try_alloc(struct hpmmap_ctx *ctx,
		      const struct hpmmap_placement *place, unsigned long slot,
		      unsigned long nr, struct list_head *out)
{
	unsigned long free = hpmmap_pool_count_free(&place->nodes), n;

	/* A request that cannot succeed takes nothing from others. */
	if (free < nr || hpmmap_account_charge(ctx->owner.account, nr))
		return false;
	n = place->in_turn ?
	    alloc_in_turn(ctx, place, slot == NO_SLOT ? 0 : slot, nr, out) :
	    alloc_alike(ctx, place, place->near, nr, out);
	if (n == nr) {
		hpmmap_count_free(ctx->job, free - nr);
		return true;
	}
	hpmmap_account_uncharge(ctx->owner.account, nr - n);
	hpmmap_pool_free_list(out);
	return false;
}

/* Others may get what was taken back. */
#define RECLAIM_TRIES 8

/*
 * Takes back what processes keep for reuse, if that can be of help; returns
 * whether there was some.
 */
static bool reclaim(struct hpmmap_ctx *ctx,
		    const struct hpmmap_placement *place, unsigned long nr)
{
	unsigned long free = hpmmap_pool_count_free(&place->nodes);

	if (free >= nr) {
		struct hpmmap_payer *full;

		/* It is a limit that is in the way, or was. */
		full = hpmmap_account_full(ctx->owner.account, nr);
		return hpmmap_reuse_reclaim(&node_states[N_POSSIBLE], full, nr);
	}
	if (free + hpmmap_reuse_kept() < nr)
		return false;
	return hpmmap_reuse_reclaim(&place->nodes, NULL, nr - free);
}

/* Only what is being zeroed at this moment was missing: waits for it. */
static bool alloc_after_zeroing(struct hpmmap_ctx *ctx,
				const struct hpmmap_placement *place,
				unsigned long slot, unsigned long nr,
				struct list_head *out)
{
	unsigned long nr_out = count_out(&place->nodes);
	u64 since = get_cycles();
	bool done;

	/* What came back after the first look is counted by the second. */
	smp_rmb();
	if (hpmmap_pool_count_free(&place->nodes) + nr_out < nr ||
	    hpmmap_account_full(ctx->owner.account, nr))
		return false;
	done = !hpmmap_pool_launder_stop(true);
	if (nr_out)
		hpmmap_count_stall(ctx->job, HPMMAP_STALL_ZEROING, since);
	if (!done)
		return false;
	done = try_alloc(ctx, place, slot, nr, out);
	hpmmap_pool_launder_go();
	return done;
}

/**
 * hpmmap_pool_alloc() - blocks for an address space
 * @ctx: its context, whose account is charged
 * @place: where from
 * @slot: the slot that the first one is for, the others being for those that
 *	follow; or NO_SLOT
 * @nr: how many
 * @out: list they are added to, in runs that are contiguous where possible;
 *	all their pages are stale
 *
 * May sleep.
 *
 * Return: 0, or -ENOMEM and nothing where there are not enough.
 */
int hpmmap_pool_alloc(struct hpmmap_ctx *ctx,
		      const struct hpmmap_placement *place, unsigned long slot,
		      unsigned long nr, struct list_head *out)
{
	struct hpmmap_job *job = ctx->job;
	struct hpmmap_block *block;
	LIST_HEAD(got);
	bool done, more;
	u64 since;
	int i;

	if (!nr)
		return 0;
	done = try_alloc(ctx, place, slot, nr, &got);
	for (i = 0, more = true; i < RECLAIM_TRIES && more && !done; i++) {
		more = hpmmap_reap_one();
		done = try_alloc(ctx, place, slot, nr, &got);
	}
	since = get_cycles();
	for (i = 0; i < RECLAIM_TRIES && !done; i++) {
		if (!reclaim(ctx, place, nr) || fatal_signal_pending(current))
			break;
		done = try_alloc(ctx, place, slot, nr, &got);
	}
	if (i)
		hpmmap_count_stall(job, HPMMAP_STALL_RECLAIM, since);
	if (!done)
		done = alloc_after_zeroing(ctx, place, slot, nr, &got);
	if (!done) {
		struct hpmmap_payer *full = hpmmap_account_full(ctx->owner.account, nr);

		if (full)
			hpmmap_count_limited(job, full);
		return -ENOMEM;
	}
	trace_hpmmap_alloc(job->id, nr);
	list_for_each_entry(block, &got, link)
		block->slot = slot == NO_SLOT ? NO_SLOT : slot++;
	list_splice_tail(&got, out);
	return 0;
}

/**
 * hpmmap_pool_alloc_instead() - blocks that take the place of others
 * @ctx: whose account is charged; holds at least as many, and gives them up next, so that
 *	no limit is in the way
 * @nid: the node nearest to which they should be
 * @nodes: where from, and from nowhere else
 * @nr: how many, at most
 * @out: list they are added to; all their pages are stale
 *
 * Return: how many there were.
 */
unsigned long hpmmap_pool_alloc_instead(struct hpmmap_ctx *ctx, int nid,
					const nodemask_t *nodes,
					unsigned long nr,
					struct list_head *out)
{
	nodemask_t tried = NODE_MASK_NONE;
	unsigned long n;

	n = alloc_near(ctx, nid, nodes, &tried, nr, out);
	hpmmap_account_charge_anyway(ctx->owner.account, n);
	return n;
}

/**
 * hpmmap_pool_alloc_clean() - a clean block that takes the place of another
 * @ctx: whose account is charged; gives up a block next, so that no limit is in
 *	the way
 * @nid: the node it has to lie on
 *
 * Return: the block, all of it stale, or NULL where there is none.
 */
struct hpmmap_block *hpmmap_pool_alloc_clean(struct hpmmap_ctx *ctx, int nid)
{
	struct pool_node *pn = pool_node_find(nid);
	struct hpmmap_block *block;
	unsigned long unit;
	LIST_HEAD(one);

	spin_lock(&pn->lock);
	if (pn->clean.nr_free && !run_alloc(pn, false, 1, &unit))
		take_run(pn, ctx->owner.account, unit, 1, &one);
	spin_unlock(&pn->lock);
	block = list_first_entry_or_null(&one, struct hpmmap_block, link);
	if (!block)
		return NULL;
	list_del_init(&block->link);
	hpmmap_pool_count_mapped(nid, 1);
	hpmmap_account_charge_anyway(ctx->owner.account, 1);
	return block;
}

/* A block that nobody has any more, and nobody will. */
static void block_retire(struct pool_node *pn, struct hpmmap_block *block)
{
	lockdep_assert_held(&pn->lock);
	block_set_state(block, HPMMAP_BLOCK_BAD);
	block->zeroed = false;
	pn->nr_doomed--;
	pn->nr_bad++;
}

/**
 * hpmmap_pool_retire() - a block is not to be handed out any more
 * @block: the block; between hpmmap_pool_launder_stop() and
 *	hpmmap_pool_launder_go()
 *
 * At once if it is free, otherwise when it would be.
 */
void hpmmap_pool_retire(struct hpmmap_block *block)
{
	struct pool_node *pn = pool_node_find(block->nid);
	unsigned long unit = unit_of(block);

	spin_lock(&pn->lock);
	if (!block->bad) {
		block->bad = true;
		pn->nr_doomed++;
		if (hpmmap_buddy_is_free(&pn->buddy, unit)) {
			hpmmap_buddy_take(&pn->buddy, unit, 0);
			if (hpmmap_buddy_is_free(&pn->clean, unit))
				hpmmap_buddy_take(&pn->clean, unit, 0);
			block_retire(pn, block);
		}
	}
	spin_unlock(&pn->lock);
}

/**
 * hpmmap_pool_unretire() - undo hpmmap_pool_retire()
 * @block: the block
 */
void hpmmap_pool_unretire(struct hpmmap_block *block)
{
	struct pool_node *pn = pool_node_find(block->nid);

	spin_lock(&pn->lock);
	if (block->bad && block->state == HPMMAP_BLOCK_BAD) {
		block_set_state(block, HPMMAP_BLOCK_FREE);
		hpmmap_buddy_free(&pn->buddy, unit_of(block), 0);
		pn->nr_bad--;
	} else if (block->bad) {
		pn->nr_doomed--;
	}
	block->bad = false;
	spin_unlock(&pn->lock);
}

/* What a block is; it may change at any time. */
enum hpmmap_block_state hpmmap_pool_state(struct hpmmap_block *block)
{
	return READ_ONCE(block->state);
}

/* Those of a run that will be bad; true if there were some. */
static bool run_free_slowly(struct pool_node *pn, struct hpmmap_block *first,
			    unsigned long nr)
{
	unsigned long i;

	lockdep_assert_held(&pn->lock);
	for (i = 0; i < nr && !first[i].bad; i++)
		;
	if (i == nr)
		return false;
	for (i = 0; i < nr; i++) {
		if (first[i].bad) {
			block_retire(pn, &first[i]);
			continue;
		}
		hpmmap_buddy_free(&pn->buddy, unit_of(&first[i]), 0);
		if (first[i].zeroed)
			hpmmap_buddy_free(&pn->clean, unit_of(&first[i]), 0);
	}
	return true;
}

/* Blocks that follow each other, all of one account, and all clean or not. */
static void run_free(struct hpmmap_block *first, unsigned long nr)
{
	struct pool_node *pn = pool_node_find(first->nid);
	struct hpmmap_account *account = first->account;
	unsigned long i;

	hpmmap_account_uncharge(account, nr);
	hpmmap_pool_count_mapped(first->nid, -(long)nr);
	spin_lock(&pn->lock);
	for (i = 0; i < nr; i++) {
		if (first[i].state == HPMMAP_BLOCK_PINNED) {
			pn->nr_pinned--;
			--*pinned_of(pn, unit_of(&first[i]));
		}
		first[i].account = NULL;
		block_set_state(&first[i], HPMMAP_BLOCK_FREE);
	}
	if (unlikely(pn->nr_doomed) && run_free_slowly(pn, first, nr)) {
		spin_unlock(&pn->lock);
		return;
	}
	hpmmap_buddy_free_range(&pn->buddy, unit_of(first), nr);
	if (first->zeroed)
		hpmmap_buddy_free_range(&pn->clean, unit_of(first), nr);
	else
		list_move(&chunk_of(pn, unit_of(first))->link, &pn->chunks);
	spin_unlock(&pn->lock);
}

/**
 * hpmmap_pool_set_pinned() - a block was given up, but is pinned
 * @block: a block of the pools; it counts as pinned until hpmmap_pool_free()
 */
void hpmmap_pool_set_pinned(struct hpmmap_block *block)
{
	struct pool_node *pn = pool_node_find(block->nid);

	spin_lock(&pn->lock);
	block_set_state(block, HPMMAP_BLOCK_PINNED);
	pn->nr_pinned++;
	++*pinned_of(pn, unit_of(block));
	spin_unlock(&pn->lock);
}

/**
 * hpmmap_pool_free() - take blocks back
 * @list: pool blocks to which only the module refers, all of them stale;
 *	cheaper where blocks that follow each other in memory do so here
 */
void hpmmap_pool_free(struct list_head *list)
{
	struct hpmmap_block *block, *tmp, *first = NULL;
	unsigned long nr = 0;

	list_for_each_entry_safe(block, tmp, list, link) {
		list_del_init(&block->link);
		/* They are elements of one array within a chunk. */
		if (first && block == first + nr &&
		    unit_of(block) == unit_of(first) + nr &&
		    block->account == first->account &&
		    block->zeroed == first->zeroed) {
			nr++;
			continue;
		}
		if (first)
			run_free(first, nr);
		first = block;
		nr = 1;
	}
	if (first)
		run_free(first, nr);
}

/* Blocks that were allocated and never shown to anybody. */
void hpmmap_pool_free_list(struct list_head *list)
{
	struct hpmmap_block *block, *tmp;
	LIST_HEAD(soiled);

	list_for_each_entry_safe(block, tmp, list, link) {
		/* All zero, if it was cleared in advance. */
		if (!bitmap_full(block->stale, SLOT_PAGES))
			block->zeroed = bitmap_empty(block->stale, SLOT_PAGES) &&
					bitmap_empty(block->reuse, SLOT_PAGES);
		/* What was kept for reuse, and then not needed. */
		if (!bitmap_empty(block->reuse, SLOT_PAGES))
			list_move_tail(&block->link, &soiled);
		if (unlikely(block->lost))
			hpmmap_block_mend(block);
		bitmap_fill(block->stale, SLOT_PAGES);
		bitmap_zero(block->reuse, SLOT_PAGES);
		block->reuse_id = 0;
	}
	hpmmap_pool_free(list);
	list_for_each_entry_safe(block, tmp, &soiled, link) {
		int nid = block->nid;
		LIST_HEAD(one);

		list_move(&block->link, &one);
		hpmmap_pool_free(&one);
		/* It is free before somebody may be asked to zero it. */
		hpmmap_pool_soiled(nid, 1);
	}
}

/* There is no memory in the pools any more. */
void hpmmap_pool_exit(void)
{
	int nid;

	for (nid = 0; nid < MAX_NUMNODES; nid++)
		if (pool_nodes[nid])
			kobject_put(&pool_nodes[nid]->kobj);
}
