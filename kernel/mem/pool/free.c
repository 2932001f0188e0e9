// SPDX-License-Identifier: GPL-2.0
/*
 * Taking blocks back, from their holders and from the stocks of the CPUs.
 *
 * A free block that somebody refers to is quarantined.
 */
#include <linux/list.h>
#include <linux/module.h>
#include <linux/rwsem.h>
#include <linux/spinlock.h>

#include "hpmmap.h"
#include "mem/block/account.h"
#include "mem/block/block.h"
#include "mem/block/buddy.h"
#include "mem/block/node.h"
#include "mem/pool/pool.h"

/*
 * How long somebody else's reference may last that is no use: of a lockless walk of page tables,
 * whose virtual CPU may be preempted.
 */
#define REF_TICKS (HZ / 50 + 1)

atomic_long_t hpmmap_pool_quarantined;

/* Of a block that has a user: does that last? Then it is bad from now on. Not under the lock. */
bool block_quarantine(struct pool_node *pn, struct hpmmap_block *block)
{
	unsigned long until = jiffies + REF_TICKS;

	while (!atomic_read(&block->users) && time_before(jiffies, until)) {
		if (has_no_user(block))
			return false;
		cpu_relax();
	}
	spin_lock(&pn->lock);
	if (!block->bad)
		pn->nr_doomed++;
	block->bad = true;
	spin_unlock(&pn->lock);
	if (!atomic_long_fetch_inc(&hpmmap_pool_quarantined))
		__module_get(THIS_MODULE);
	pr_err_once("a free block at %#llx is in use: references %d, stores %d. It is not handed out again; please report this\n",
		    PFN_PHYS(folio_pfn(block->folio)), folio_ref_count(block->folio),
		    atomic_read(&block->users));
	HPMMAP_ASSERT(false);
	return true;
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

/* Blocks that follow each other, all of them clean or none. */
static void run_free(struct pool_node *pn, struct hpmmap_block *first, unsigned long nr,
		     unsigned int *owed)
{
	struct pool_chunk *chunk;

	lockdep_assert_held(&pn->lock);
	if (!nr)
		return;
	hpmmap_buddy_free_range(&pn->buddy, unit_of(first), nr);
	if (first->zeroed) {
		hpmmap_buddy_free_range(&pn->clean, unit_of(first), nr);
		return;
	}
	chunk = chunk_of(pn, unit_of(first));
	if (!list_is_first(&chunk->link, &pn->chunks))
		list_move(&chunk->link, &pn->chunks);
	*owed += nr;
	pn->nr_owed += nr;
}

static void set_unpinned(struct pool_node *pn, struct hpmmap_block *block)
{
	spin_lock(&pn->lock);
	pn->nr_pinned--;
	--*pinned_of(pn, unit_of(block));
	spin_unlock(&pn->lock);
}

/* The first of a list, as far as they have one account and node; looked at without the lock. */
static void free_some(struct list_head *list)
{
	struct hpmmap_block *block, *first = list_first_entry(list, struct hpmmap_block, link);
	struct hpmmap_account *account = first->account;
	unsigned long n = 0, nr = 0;
	int nid = first->nid;
	struct pool_node *pn = pool_node_find(nid);
	unsigned int *owed = owed_of(pn, account);
	LIST_HEAD(some);

	list_for_each_entry(block, list, link) {
		if (nr == WITHOUT_PAUSE || block->nid != nid || block->account != account)
			break;
		if (unlikely(block->state == HPMMAP_BLOCK_PINNED))
			set_unpinned(pn, block);
		block->account = NULL;
		block_set_state(block, HPMMAP_BLOCK_FREE);
		is_nobodys(pn, block);
		nr++;
	}
	list_cut_before(&some, list, &block->link);
	hpmmap_account_uncharge(account, nr);
	hpmmap_pool_count_mapped(nid, -(long)nr);
	spin_lock(&pn->lock);
	/* Their links mean nothing any more, but nobody gets them before the lock is released. */
	list_for_each_entry(block, &some, link) {
		if (unlikely(block->bad)) {
			block_retire(pn, block);
			continue;
		}
		/* They are elements of one array within a chunk. */
		if (n && block == first + n && unit_of(block) == unit_of(first) + n &&
		    block->zeroed == first->zeroed) {
			n++;
			continue;
		}
		run_free(pn, first, n, owed);
		first = block;
		n = 1;
	}
	run_free(pn, first, n, owed);
	zeroer_hurry(pn);
	spin_unlock(&pn->lock);
}

/* To their nodes. May sleep. */
void blocks_free(struct list_head *list)
{
	while (!list_empty(list)) {
		free_some(list);
		cond_resched();
	}
}

/*
 * Held for reading while free blocks are between a node and a stock, and tried only; for writing
 * when a stock is emptied for everybody, who finds all of them then.
 */
DECLARE_RWSEM(stocks_rwsem);

/* What CPUs have at hand goes back to the nodes; returns whether there was something. */
static bool gather(bool unclean)
{
	bool ret = !down_write_trylock(&stocks_rwsem);
	LIST_HEAD(list);

	/* What exits waits for nobody, and what it soiled will be zeroed sooner or later. */
	if (ret && unclean)
		return false;
	if (ret)
		down_write(&stocks_rwsem);
	stocks_take_all(unclean, &list);
	ret |= !list_empty(&list);
	blocks_free(&list);
	up_write(&stocks_rwsem);
	return ret;
}

/**
 * hpmmap_pool_gather() - have all free blocks in the allocator, and charged to nobody
 *
 * May sleep.
 *
 * Return: whether a CPU had some at hand.
 */
bool hpmmap_pool_gather(void)
{
	return gather(false);
}

/**
 * hpmmap_pool_soiled() - free blocks are to be zeroed by the thread of their node
 * @nid: the node
 * @nr: how many
 */
void hpmmap_pool_soiled(int nid, unsigned long nr)
{
	gather(true);
	zeroer_add(pool_node_find(nid), nr);
}

/**
 * hpmmap_pool_retire() - a block is not to be handed out any more
 * @block: the block
 *
 * At once if it is free, otherwise when it would be, or has been zeroed. May sleep.
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
	hpmmap_pool_gather();
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
 *
 * May sleep.
 */
void hpmmap_pool_free(struct list_head *list)
{
	bool full;

	if (list_empty(list))
		return;
	full = stock_is_full(list) && down_read_trylock(&stocks_rwsem);
	stock_put(list, full);
	blocks_free(list);
	if (full)
		up_read(&stocks_rwsem);
}

/* Blocks that were allocated and never shown to anybody. May sleep. */
void hpmmap_pool_free_unused(struct list_head *list)
{
	struct hpmmap_block *block, *tmp;
	unsigned int nr = 0;
	LIST_HEAD(soiled);

	if (list_empty(list))
		return;
	list_for_each_entry_safe(block, tmp, list, link) {
		hpmmap_every(&nr, WITHOUT_PAUSE);
		/* All zero, if it was cleared in advance. */
		if (!bitmap_full(block->stale, SLOT_PAGES))
			block->zeroed = bitmap_empty(block->stale, SLOT_PAGES) &&
					bitmap_empty(block->reuse, SLOT_PAGES);
		/* What was kept for reuse, and then not needed. */
		if (!bitmap_empty(block->reuse, SLOT_PAGES))
			list_move_tail(&block->link, &soiled);
		block->lost = false;
		bitmap_fill(block->stale, SLOT_PAGES);
		bitmap_zero(block->reuse, SLOT_PAGES);
		block->reuse_id = 0;
		atomic_dec(&block->users);
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
