// SPDX-License-Identifier: GPL-2.0
/*
 * Handing out blocks. Taking them back: free.c.
 *
 * Clean blocks are handed out first, unless the user has left too many that are
 * not. Before a request fails, contexts that keep unused blocks are asked to
 * give them back, as shrinkers are. A few blocks come from the stock of the CPU
 * (stock.c), as long as there is so much that nobody else misses them.
 */
#include <linux/log2.h>
#include <linux/timex.h>

#include "hpmmap.h"
#include "mem/block/account.h"
#include "mem/block/block.h"
#include "mem/block/buddy.h"
#include "mem/block/node.h"
#include "mem/block/nodes.h"
#include "mem/pool/pool.h"

/* Set once, before the first request. */
static const struct hpmmap_reclaimer *reclaimer;

/* Sets what takes blocks back when there are too few. */
void hpmmap_pool_set_reclaimer(const struct hpmmap_reclaimer *r)
{
	reclaimer = r;
}

/* Takes back all blocks that are held but not needed. */
void hpmmap_pool_reclaim_all(void)
{
	reclaimer->reap();
	reclaimer->reclaim(&node_states[N_POSSIBLE], NULL, ULONG_MAX);
}

/* Blocks of a run that has left the allocator, so that no lock is needed; how many there are. */
static unsigned long take_run(struct pool_node *pn, struct hpmmap_account *account,
			      struct hpmmap_block *blocks, unsigned long nr, struct list_head *out)
{
	unsigned long i, got = 0;

	for (i = 0; i < nr; i++) {
		if (unlikely(!is_nobodys(pn, &blocks[i]))) {
			spin_lock(&pn->lock);
			block_retire(pn, &blocks[i]);
			hpmmap_account_take(account, blocks[i].nid, -1);
			spin_unlock(&pn->lock);
			continue;
		}
		got++;
		block_set_state(&blocks[i], HPMMAP_BLOCK_HELD);
		blocks[i].account = account;
		blocks[i].slot = NO_SLOT;
		atomic_set(&blocks[i].users, 1);
		hpmmap_block_append(&blocks[i], out);
	}
	return got;
}

/* The same for blocks of a gigabyte, as a run; 0 where one of them is not clean or has a user. */
static unsigned long take_whole(struct hpmmap_account *account, struct hpmmap_block *first,
				struct list_head *out)
{
	const struct hpmmap_block *block;
	bool clean = true;

#pragma GCC unroll 16
	for (block = first; block < first + RUN_BLOCKS; block++)
		clean &= block->zeroed;
	if (!clean || !run_is_nobodys(first))
		return 0;
	first->run = true;
	first->account = account;
	first->slot = NO_SLOT;
	list_add_tail(&first->link, out);
	return RUN_BLOCKS;
}

/*
 * Has the user soiled blocks that others need clean? It owes more than it may hold, or it owes some
 * while half of the free blocks is not clean and will not be soon.
 */
static bool soils_too_much(const struct pool_node *pn, unsigned int owed,
			   const struct hpmmap_account *account)
{
	return owed &&
	       (nr_unclean(pn) > pn->buddy.nr_free / 2 + pn->nr_soiled ||
		owed > hpmmap_account_limit(account));
}

/* A user gets blocks that are not clean and zeroes them, so it owes less. */
static void owed_pay(struct pool_node *pn, unsigned int *owed, unsigned long nr)
{
	nr = min_t(unsigned long, nr, *owed);
	*owed -= nr;
	pn->nr_owed -= nr;
	owed_trim(pn);
}

/* A gigabyte that is free as a whole, and not clean as a whole. */
static bool unclean_gigabyte(const struct pool_node *pn, unsigned long *unit)
{
	const struct pool_chunk *chunk;

	lockdep_assert_held(&pn->lock);
	list_for_each_entry(chunk, &pn->chunks, link)
		if (hpmmap_buddy_chunk_is_free(&chunk->buddy) &&
		    !hpmmap_buddy_chunk_is_free(&chunk->clean)) {
			*unit = chunk->buddy.nr * RUN_BLOCKS;
			return true;
		}
	return false;
}

/*
 * Takes a run of at most @nr free blocks, as large as possible; returns its length. Clean ones, unless
 * the user soils too much. A large request takes a whole gigabyte before blocks in pieces.
 */
static unsigned long run_alloc(struct pool_node *pn,
			       const struct hpmmap_request *req,
			       unsigned long nr, unsigned long *unit)
{
	unsigned int *owed = owed_of(pn, req->account);
	int most = min_t(int, ilog2(nr), LARGE_ORDER), any, clean, order;
	unsigned long i, before;
	bool soils, gigabyte;

	lockdep_assert_held(&pn->lock);
	soils = soils_too_much(pn, *owed, req->account);
	if (req->clean_only && (!pn->clean.nr_free || soils))
		return 0;
	gigabyte = req->large && most == LARGE_ORDER &&
		   hpmmap_buddy_largest(&pn->buddy) == LARGE_ORDER &&
		   (!soils || unclean_gigabyte(pn, unit));
	if (pn->clean.nr_free && soils && !gigabyte) {
		i = unclean_take(pn, min_t(unsigned long, nr, *owed), false, unit);
		owed_pay(pn, owed, i);
		if (i)
			return i;
	}
	any = hpmmap_buddy_largest(&pn->buddy);
	clean = hpmmap_buddy_largest(&pn->clean);
	if (any < 0)
		return 0;
	order = min(any, most);
	before = nr_unclean(pn);
	if (gigabyte && soils) {
		hpmmap_buddy_take(&pn->buddy, *unit, LARGE_ORDER);
	} else if (clean >= 0 && (!gigabyte || clean == LARGE_ORDER)) {
		order = min(clean, most);
		hpmmap_buddy_alloc(&pn->clean, order, unit);
		hpmmap_buddy_take(&pn->buddy, *unit, order);
		return 1UL << order;
	} else {
		/* Blocks that other users soiled do not go into a stock: those users should zero them. */
		if (req->at_hand)
			order = *owed ? min(order, ilog2(*owed)) : -1;
		if (order < 0)
			return 0;
		hpmmap_buddy_alloc(&pn->buddy, order, unit);
	}
	for (i = 0; i < 1UL << order && pn->clean.nr_free; i++)
		hpmmap_buddy_take(&pn->clean, *unit + i, 0);
	owed_pay(pn, owed, before - nr_unclean(pn));
	return 1UL << order;
}

/*
 * Before run_alloc(): returns how many of @nr blocks promises to others leave. They are the
 * account's from now on, since run_alloc() may release the lock for a moment.
 */
static unsigned long take_begin(struct pool_node *pn, int nid, struct hpmmap_account *account,
				unsigned long nr)
{
	if (unlikely(pn->nr_promises))
		nr = min(nr, hpmmap_account_free(account, nid, false));
	pn->nr_taking += nr;
	hpmmap_account_take(account, nid, nr);
	return nr;
}

/* After it: of @nr blocks @got have left the allocator. */
static void take_end(struct pool_node *pn, int nid, struct hpmmap_account *account,
		     unsigned long nr, unsigned long got)
{
	pn->nr_taking -= nr - got;
	if (unlikely(got != nr))
		hpmmap_account_take(account, nid, (long)(got - nr));
}

/* Runs that leave the allocator before their blocks are looked at. */
#define RUNS 8

/* Takes up to @nr blocks of one node, in as few runs as possible; returns how many. */
static unsigned long node_alloc(int nid, struct hpmmap_request *req, unsigned long nr, struct list_head *out)
{
	struct pool_node *pn = pool_node_find(nid);
	struct { struct hpmmap_block *blocks; unsigned long nr; } runs[RUNS];
	unsigned long got = 0, most, taken, unit, some;
	unsigned int n, i;

	if (!pn)
		return 0;
	do {
		spin_lock(&pn->lock);
		most = take_begin(pn, nid, req->account, nr - got);
		for (n = 0, taken = 0; n < RUNS && taken < most; n++) {
			runs[n].nr = run_alloc(pn, req, most - taken, &unit);
			if (!runs[n].nr)
				break;
			runs[n].blocks = block_of(pn, unit);
			taken += runs[n].nr;
			pn->nr_taking -= runs[n].nr;
		}
		take_end(pn, nid, req->account, most, taken);
		zeroer_hurry(pn);
		spin_unlock(&pn->lock);
		for (i = 0; i < n; i++) {
			some = req->whole && runs[i].nr == RUN_BLOCKS ?
			       take_whole(req->account, runs[i].blocks, out) : 0;
			got += some ?: take_run(pn, req->account, runs[i].blocks, runs[i].nr, out);
			if (runs[i].nr == RUN_BLOCKS)
				req->nr_large++;
			cond_resched();
		}
	} while (n && got < nr);
	hpmmap_pool_count_mapped(nid, got);
	return got;
}

/* One part in so many of what is free, or may be charged, is at hand on all CPUs together. */
#define STOCK_SHARE 64

/* A smaller stock is not worth it. */
#define STOCK_LEAST 4U

/* The most blocks of one kind that the stock of this CPU may hold; 0: none. */
static unsigned int stock_most(struct pool_node *pn, struct hpmmap_account *account)
{
	unsigned long least = STOCK_LEAST * STOCK_SHARE * num_online_cpus(), nr;

	nr = READ_ONCE(pn->buddy.nr_free);
	if (nr < least || READ_ONCE(pn->stops))
		return 0;
	nr = min(nr, hpmmap_account_room(account));
	return nr < least ? 0 : min(STOCK_LEAST * nr / least, (unsigned long)STOCK_MOST);
}

/*
 * Takes all blocks or none from the stock of this CPU, of node @nid or of the one nearest to
 * @place. Fills the stock if it has too few.
 */
static noinline bool alloc_at_hand(struct hpmmap_account *account, int nid,
				   const struct hpmmap_placement *place,
				   unsigned long nr, struct list_head *out)
{
	struct hpmmap_request req = {
		.account = account,
		.at_hand = true,
		.clean_only = stock_spare(account) >= nr,
	};
	struct pool_node *pn;
	unsigned int most;
	unsigned long n;
	LIST_HEAD(list);

	if (place)
		nid = hpmmap_placement_nearest(place);
	if (nid == NUMA_NO_NODE)
		return false;
	if (stock_take(account, nid, nr, !place, out))
		return true;
	pn = pool_node_find(nid);
	most = stock_most(pn, account);
	if (most < nr || !(place || READ_ONCE(pn->clean.nr_free)) ||
	    !down_read_trylock(&stocks_rwsem))
		return false;
	if (!hpmmap_account_charge(account, most)) {
		n = node_alloc(nid, &req, most, &list);
		if (n < most)
			hpmmap_account_refund(account, most - n);
		stock_fill(account, nid, most, &list);
		hpmmap_account_tally_unused(account, n);
		blocks_free(&list);
	}
	up_read(&stocks_rwsem);
	return stock_take(account, nid, nr, !place, out);
}

static unsigned long alloc_near(struct hpmmap_request *req, int nid,
				const nodemask_t *nodes, nodemask_t *tried,
				unsigned long nr, struct list_head *out)
{
	unsigned long got = 0;

	while (got < nr) {
		int n = hpmmap_pool_nearest(nid, nodes, tried);

		if (n == NUMA_NO_NODE)
			break;
		got += node_alloc(n, req, nr - got, out);
	}
	return got;
}

/**
 * hpmmap_pool_offer() - how many blocks could an account get now?
 * @account: the account
 * @nodes: nodes to take them from
 * @nr: number that is wanted
 *
 * Blocks kept for reuse are given back for it, as far as the account's limits allow.
 *
 * Return: @nr or less; another task may take them first.
 */
unsigned long hpmmap_pool_offer(struct hpmmap_account *account,
				const nodemask_t *nodes, unsigned long nr)
{
	struct hpmmap_payer *full;
	unsigned long free;

	if (hpmmap_account_free_all(account, nodes, true) < nr || hpmmap_account_full(account, nr))
		hpmmap_pool_gather();
	full = hpmmap_account_full(account, nr);
	if (full)
		reclaimer->reclaim(&node_states[N_POSSIBLE], full, nr);
	nr = min(nr, hpmmap_account_room(account));
	free = hpmmap_account_free_all(account, nodes, true);
	if (free < nr && reclaimer->kept())
		reclaimer->reclaim(nodes, NULL, nr - free);
	free = hpmmap_account_free_all(account, nodes, true);
	return min3(nr, free, hpmmap_account_room(account));
}

/**
 * hpmmap_pool_has_free() - could an account get blocks now?
 * @account: the account
 * @nodes: nodes to take them from
 * @nr: number of blocks
 *
 * Allocates nothing. If there are too few, blocks without a user and blocks kept for
 * reuse are given back first.
 *
 * May sleep.
 */
bool hpmmap_pool_has_free(struct hpmmap_account *account,
			  const nodemask_t *nodes, unsigned long nr)
{
	/* Such blocks count for limits, too. */
	if (hpmmap_account_free_all(account, nodes, true) < nr || hpmmap_account_full(account, nr))
		reclaimer->reap();
	return hpmmap_pool_offer(account, nodes, nr) == nr;
}

/* Takes as many of @nr blocks as there are, from a placement without turns. */
static unsigned long alloc_alike(struct hpmmap_request *req, unsigned long nr,
				 struct list_head *out)
{
	const struct hpmmap_placement *place = req->place;
	unsigned long got = 0;

	/* Mostly the nearest has enough. */
	if ((unsigned int)place->near < nr_node_ids && node_isset(place->near, place->preferred))
		got = node_alloc(place->near, req, nr, out);
	if (got < nr) {
		nodemask_t tried = NODE_MASK_NONE;

		got += alloc_near(req, place->near, &place->preferred, &tried, nr - got, out);
		got += alloc_near(req, place->near, &place->nodes, &tried, nr - got, out);
	}
	return got;
}

/*
 * The blocks of a large request for slots before the first gigabyte that it covers: they are taken apart,
 * so that the gigabytes are contiguous.
 */
static unsigned long head_of(const struct hpmmap_request *req)
{
	unsigned long head;

	if (!req->large || req->slot == NO_SLOT)
		return 0;
	head = ALIGN(req->slot, RUN_BLOCKS) - req->slot;
	return req->nr >= head + RUN_BLOCKS ? head : 0;
}

static unsigned long alloc_in_turn(struct hpmmap_request *req,
				   struct list_head *out)
{
	unsigned long slot = req->slot == NO_SLOT ? 0 : req->slot, got = 0;
	const struct hpmmap_placement *place = req->place;

	while (got < req->nr) {
		unsigned long want, n;
		nodemask_t tried = NODE_MASK_NONE;
		int nid;

		nid = hpmmap_placement_turn(place, slot + got, req->nr - got,
					    &want);
		n = node_alloc(nid, req, want, out);
		if (n < want)
			n += alloc_near(req, nid, &place->nodes, &tried,
					want - n, out);
		got += n;
		if (n < want)
			break;
	}
	return got;
}

/* Emptying the stocks uncharges their blocks, so a refused charge is tried again. */
static int charge(struct hpmmap_account *account, unsigned long nr)
{
	int ret = hpmmap_account_charge(account, nr);

	return ret && hpmmap_pool_gather() ? hpmmap_account_charge(account, nr) : ret;
}

/* Takes all blocks or none. */
static bool try_alloc(struct hpmmap_request *req, struct list_head *out)
{
	const struct hpmmap_placement *place = req->place;
	unsigned long free, head = head_of(req), n;

	if (req->nr <= STOCK_MOST && !place->in_turn && stock_is_asked(req->account) &&
	    alloc_at_hand(req->account, NUMA_NO_NODE, place, req->nr, out)) {
		req->left = hpmmap_pool_count_free(&place->nodes);
		return true;
	}
	free = hpmmap_account_free_all(req->account, &place->nodes, false);
	/* Single blocks in stocks may be missing from whole gigabytes. */
	if ((free < req->nr || (req->large && req->nr >> LARGE_ORDER)) && hpmmap_pool_gather())
		free = hpmmap_account_free_all(req->account, &place->nodes, false);
	/* A request that cannot succeed must not take blocks from others. */
	if (free < req->nr || charge(req->account, req->nr))
		return false;
	req->nr_large = 0;
	req->nr_gigabytes = req->large ? (req->nr - head) >> LARGE_ORDER : 0;
	if (place->in_turn) {
		n = alloc_in_turn(req, out);
	} else {
		n = head ? alloc_alike(req, head, out) : 0;
		if (n == head)
			n += alloc_alike(req, req->nr - head, out);
	}
	if (n == req->nr) {
		hpmmap_account_tally(req->account, n, stock_spare(req->account));
		req->left = free - n;
		return true;
	}
	hpmmap_account_tally_unused(req->account, n);
	hpmmap_account_refund(req->account, req->nr - n);
	hpmmap_pool_free_unused(out);
	return false;
}

/* Other tasks may get the blocks that were taken back, so it is tried again. */
#define RECLAIM_TRIES 8

/*
 * Takes back blocks that are kept for reuse, if that can help; returns whether to try again. Those
 * that others were promised do not help, so the @last try takes back all.
 */
static bool reclaim(const struct hpmmap_request *req, bool last)
{
	unsigned long free = hpmmap_account_free_all(req->account, &req->place->nodes, false);

	if (free >= req->nr) {
		struct hpmmap_payer *full;

		/* A limit was in the way. If it is not any more, nothing need be taken back. */
		full = hpmmap_account_full(req->account, req->nr);
		if (!full)
			return true;
		return reclaimer->reclaim(&node_states[N_POSSIBLE], full,
					  req->nr);
	}
	if (free + reclaimer->kept() < req->nr)
		return false;
	return reclaimer->reclaim(&req->place->nodes, NULL, last ? ULONG_MAX : req->nr - free);
}

/* Only blocks that are being zeroed were missing: they are taken and zeroed here. */
static bool alloc_being_zeroed(struct hpmmap_request *req, struct list_head *out)
{
	nodemask_t nodes = req->place->nodes;
	u64 since = get_cycles();
	bool done;

	if (hpmmap_account_free_all(req->account, &nodes, true) < req->nr ||
	    hpmmap_account_full(req->account, req->nr))
		return false;
	hpmmap_pool_launder_stop(&nodes);
	req->waited_zeroing = get_cycles() - since;
	done = try_alloc(req, out);
	hpmmap_pool_launder_go(&nodes);
	return done;
}

/*
 * Adds blocks to @out, in contiguous runs where possible; all their pages are stale. Sets the
 * out members of @req. May sleep. Returns 0, or -ENOMEM and no block if there are not enough.
 */
int hpmmap_pool_alloc(struct hpmmap_request *req, struct list_head *out)
{
	nodemask_t nodes = req->place->nodes;
	unsigned long slot = req->slot;
	struct hpmmap_block *block;
	bool done, more, stops;
	unsigned int nr = 0;
	LIST_HEAD(got);
	u64 since;
	int i;

	if (!req->nr)
		return 0;
	/* Blocks that are being zeroed may be missing from whole gigabytes, too. */
	stops = req->large && req->nr >> LARGE_ORDER && hpmmap_pool_count_out(&nodes) &&
		hpmmap_account_free_all(req->account, &nodes, true) >= req->nr &&
		!hpmmap_account_full(req->account, req->nr);
	if (stops)
		hpmmap_pool_launder_stop(&nodes);
	done = try_alloc(req, &got);
	if (stops)
		hpmmap_pool_launder_go(&nodes);
	for (i = 0, more = true; i < RECLAIM_TRIES && more && !done; i++) {
		more = reclaimer->reap_one();
		done = try_alloc(req, &got);
	}
	since = get_cycles();
	for (i = 0; i < RECLAIM_TRIES && !done; i++) {
		if (!reclaim(req, i == RECLAIM_TRIES - 1) || fatal_signal_pending(current))
			break;
		done = try_alloc(req, &got);
	}
	if (i)
		req->waited_reclaim = get_cycles() - since;
	if (!done)
		done = alloc_being_zeroed(req, &got);
	if (!done) {
		req->refused_by = hpmmap_account_full(req->account, req->nr);
		return -ENOMEM;
	}
	if (slot != NO_SLOT)
		list_for_each_entry(block, &got, link) {
			slot = hpmmap_block_place(block, slot);
			hpmmap_every(&nr, WITHOUT_PAUSE);
		}
	list_splice_tail(&got, out);
	return 0;
}

/*
 * A block of @nodes, near @nid first, to replace another of that account, which is given up
 * next: limits do not count. All of it is stale; NULL if there is none.
 */
struct hpmmap_block *hpmmap_pool_alloc_instead(struct hpmmap_account *account,
					       int nid, const nodemask_t *nodes)
{
	struct hpmmap_request req = { .account = account };
	nodemask_t tried = NODE_MASK_NONE;
	struct hpmmap_block *block;
	LIST_HEAD(one);

	if (!alloc_near(&req, nid, nodes, &tried, 1, &one)) {
		nodes_clear(tried);
		if (!hpmmap_pool_gather() || !alloc_near(&req, nid, nodes, &tried, 1, &one))
			return NULL;
	}
	hpmmap_account_charge_anyway(account, 1);
	block = list_first_entry(&one, struct hpmmap_block, link);
	list_del_init(&block->link);
	return block;
}

/*
 * The same for a block that replaces none, if the account's limits allow it. Blocks kept for
 * reuse are not taken back for it.
 */
struct hpmmap_block *hpmmap_pool_alloc_more(struct hpmmap_account *account,
					    int nid, const nodemask_t *nodes)
{
	struct hpmmap_block *block;

	if (charge(account, 1))
		return NULL;
	block = hpmmap_pool_alloc_instead(account, nid, nodes);
	hpmmap_account_refund(account, 1);
	/* No block is given up for it, so the job may hold more than before. */
	if (block)
		hpmmap_account_tally(account, 0, stock_spare(account));
	return block;
}

/*
 * A clean block of node @nid to replace another of that account, which is given up next:
 * limits do not count. All of it is stale; NULL if there is none or the user soils too much.
 */
struct hpmmap_block *hpmmap_pool_alloc_clean(struct hpmmap_account *account,
					     int nid)
{
	struct hpmmap_request req = { .account = account };
	struct pool_node *pn = pool_node_find(nid);
	struct hpmmap_block *block = NULL;
	unsigned long unit, nr;
	LIST_HEAD(one);

	if (soils_too_much(pn, *owed_of(pn, account), account) ||
	    (stock_is_asked(account) && alloc_at_hand(account, nid, NULL, 1, &one)))
		goto out;
	spin_lock(&pn->lock);
	nr = take_begin(pn, nid, account, 1);
	if (nr && pn->clean.nr_free &&
	    !soils_too_much(pn, *owed_of(pn, account), account) &&
	    run_alloc(pn, &req, 1, &unit)) {
		block = block_of(pn, unit);
		pn->nr_taking--;
	}
	take_end(pn, nid, account, nr, !!block);
	spin_unlock(&pn->lock);
	if (block && take_run(pn, account, block, 1, &one)) {
		hpmmap_pool_count_mapped(nid, 1);
		hpmmap_account_charge_anyway(account, 1);
	}
out:
	block = list_first_entry_or_null(&one, struct hpmmap_block, link);
	if (block)
		list_del_init(&block->link);
	return block;
}
