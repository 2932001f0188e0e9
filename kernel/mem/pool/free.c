// SPDX-License-Identifier: GPL-2.0
/*
 * Taking blocks back, from their holders and from the stocks of the CPUs.
 *
 * A free block that somebody refers to is quarantined.
 */
#include <linux/rwsem.h>

#include "hpmmap.h"
#include "mem/block/account.h"
#include "mem/block/block.h"
#include "mem/block/buddy.h"
#include "mem/block/node.h"
#include "mem/block/promise.h"
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

/*
 * @nr more blocks of a node have been handed out to be mapped. Linux counts what is mapped of
 * them as mapped page cache, of which they are none: with vm.zone_reclaim_mode it would take
 * all page cache for mapped, and reclaim nothing. So they are taken off, as long as they are
 * handed out.
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
		if (unlikely(block->state == HPMMAP_BLOCK_PINNED)) {
			spin_lock(&pn->lock);
			pn->nr_pinned--;
			--*pinned_of(pn, unit_of(block));
			spin_unlock(&pn->lock);
		}
		block->account = NULL;
		block_set_state(block, HPMMAP_BLOCK_FREE);
		is_nobodys(pn, block);
		nr++;
	}
	list_cut_before(&some, list, &block->link);
	hpmmap_pool_count_mapped(nid, -(long)nr);
	spin_lock(&pn->lock);
	/* Their links mean nothing any more, but nobody gets them before the lock is released. */
	list_for_each_entry(block, &some, link) {
		if (unlikely(block->bad)) {
			block_retire(pn, block);
			continue;
		}
		/* They are elements of one array within a chunk. */
		if (n && block == first + n && block->folio == hpmmap_folio_nth(first->folio, n) &&
		    block->zeroed == first->zeroed) {
			n++;
			continue;
		}
		run_free(pn, first, n, owed);
		first = block;
		n = 1;
	}
	run_free(pn, first, n, owed);
	hpmmap_account_take(account, nid, -(long)nr);
	zeroer_hurry(pn);
	spin_unlock(&pn->lock);
	hpmmap_account_uncharge(account, nr);
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
 * Promises of cgroups that have ended are dropped. May sleep.
 *
 * Return: whether a CPU had some at hand, or a promise was dropped.
 */
bool hpmmap_pool_gather(void)
{
	return hpmmap_promises_sweep(false) | gather(false);
}

/* Leaves @nr free blocks to the thread of their node to be zeroed. */
void hpmmap_pool_soiled(int nid, unsigned long nr)
{
	gather(true);
	zeroer_add(pool_node_find(nid), nr);
}

/*
 * A block is not to be handed out any more: it becomes bad at once if it is free, otherwise when it
 * would be free, or has been zeroed. May sleep.
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

/* A pool block was given up, but is pinned; it counts as pinned until hpmmap_pool_free(). */
void hpmmap_pool_set_pinned(struct hpmmap_block *block)
{
	struct pool_node *pn = pool_node_find(block->nid);

	spin_lock(&pn->lock);
	block_set_state(block, HPMMAP_BLOCK_PINNED);
	pn->nr_pinned++;
	++*pinned_of(pn, unit_of(block));
	spin_unlock(&pn->lock);
}

/*
 * Takes pool blocks back to which only the module refers, all of them stale. Cheaper where
 * blocks that follow each other in memory do so in the list. May sleep.
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

/* Is no block of a node that is in use to be retired? */
bool hpmmap_pool_is_sound(int nid)
{
	return !READ_ONCE(pool_node_find(nid)->nr_doomed);
}

/*
 * Takes a run back, which is on no list afterwards; @soiled: a process has had it. False where that
 * cannot be: something refers to one of the blocks, or one may be bad.
 */
bool hpmmap_pool_free_run(struct hpmmap_block *first, bool soiled)
{
	int nid = first->nid;
	struct pool_node *pn = pool_node_find(nid);
	struct hpmmap_account *account = first->account;
	unsigned int *owed = owed_of(pn, account);
	struct folio *folio = first->folio;
	unsigned long i, flags = 0;

	if (!run_is_nobodys(first))
		return false;
	if (soiled)
#pragma GCC unroll 16
		for (i = 0; i < RUN_BLOCKS; i++) {
			first[i].zeroed = false;
			hpmmap_folio_nth(folio, i)->mapping = NULL;
			flags |= *folio_flags(hpmmap_folio_nth(folio, i), 0);
		}
	for (i = 0; unlikely(flags & FOLIO_USED) && i < RUN_BLOCKS; i++)
		hpmmap_folio_detach(first[i].folio);
	spin_lock(&pn->lock);
	/* One that is bad may be of this run. */
	if (pn->nr_doomed) {
		spin_unlock(&pn->lock);
		return false;
	}
	list_del_init(&first->link);
	first->run = false;
	first->account = NULL;
	run_free(pn, first, RUN_BLOCKS, owed);
	hpmmap_account_take(account, nid, -(long)RUN_BLOCKS);
	zeroer_hurry(pn);
	spin_unlock(&pn->lock);
	hpmmap_account_uncharge(account, RUN_BLOCKS);
	hpmmap_pool_count_mapped(nid, -(long)RUN_BLOCKS);
	return true;
}

/* Blocks that were allocated and never shown to anybody. May sleep. */
void hpmmap_pool_free_unused(struct list_head *list)
{
	struct hpmmap_block *block, *tmp;
	unsigned int nr = 0;
	LIST_HEAD(soiled);

	list_for_each_entry_safe(block, tmp, list, link)
		if (unlikely(block->run) && !hpmmap_pool_free_run(block, false))
			hpmmap_run_unfold(block);
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
