// SPDX-License-Identifier: GPL-2.0
/*
 * Handing out blocks. Taking them back: free.c.
 *
 * Clean blocks are handed out first, unless the user has left too many that are
 * not. Before a request fails, those who may hold what nobody needs are asked to
 * give it back: the reclaimer, as shrinkers are. A few blocks come from the stock of the CPU
 * (stock.c), as long as there is so much that nobody else misses them.
 */
#include <linux/list.h>
#include <linux/log2.h>
#include <linux/sched/signal.h>
#include <linux/spinlock.h>
#include <linux/timex.h>

#include "hpmmap.h"
#include "mem/block/account.h"
#include "mem/block/block.h"
#include "mem/block/buddy.h"
#include "mem/block/node.h"
#include "mem/block/nodes.h"
#include "mem/pool/pool.h"

/* Set once, before anybody asks. */
static const struct hpmmap_reclaimer *reclaimer;

/**
 * hpmmap_pool_set_reclaimer() - whom to ask when there is too little
 * @r: those who hold memory
 */
void hpmmap_pool_set_reclaimer(const struct hpmmap_reclaimer *r)
{
	reclaimer = r;
}

/* Takes back all that nobody needs. */
void hpmmap_pool_reclaim_all(void)
{
	reclaimer->reap();
	reclaimer->reclaim(&node_states[N_POSSIBLE], NULL, ULONG_MAX);
}

/* Blocks of a run that has left the allocator, so that no lock is needed; how many there are. */
static unsigned long take_run(struct pool_node *pn, struct hpmmap_account *account,
			      struct hpmmap_block *blocks, unsigned long nr,
			      struct list_head *out)
{
	unsigned long i, got = 0;

	for (i = 0; i < nr; i++) {
		if (unlikely(!is_nobodys(pn, &blocks[i]))) {
			spin_lock(&pn->lock);
			block_retire(pn, &blocks[i]);
			spin_unlock(&pn->lock);
			continue;
		}
		got++;
		block_set_state(&blocks[i], HPMMAP_BLOCK_HELD);
		blocks[i].account = account;
		blocks[i].slot = NO_SLOT;
		atomic_set(&blocks[i].users, 1);
		list_add_tail(&blocks[i].link, out);
	}
	return got;
}

/*
 * Has a user, who owes so much, made blocks unclean that others need clean: more than it
 * may hold, or some where half of what is free is not clean, and not to be so soon?
 */
static bool soils_too_much(const struct pool_node *pn, unsigned int owed,
			   const struct hpmmap_account *account)
{
	return owed &&
	       (nr_unclean(pn) > pn->buddy.nr_free / 2 + pn->nr_soiled ||
		owed > hpmmap_account_limit(account));
}

/* A user gets blocks that are not clean, and zeroes them. */
static void owed_pay(struct pool_node *pn, unsigned int *owed, unsigned long nr)
{
	nr = min_t(unsigned long, nr, *owed);
	*owed -= nr;
	pn->nr_owed -= nr;
	owed_trim(pn);
}

/*
 * The largest run of at most @nr free blocks, and how many there are: of clean ones, unless
 * the user soils too much, or only others have a whole gigabyte for a large job.
 */
static unsigned long run_alloc(struct pool_node *pn,
			       const struct hpmmap_request *req,
			       unsigned long nr, unsigned long *unit)
{
	unsigned int *owed = owed_of(pn, req->account);
	int most = min_t(int, ilog2(nr), LARGE_ORDER), any, clean, order;
	unsigned long i;
	bool whole;

	lockdep_assert_held(&pn->lock);
	/* What one entry maps may have to be zeroed. */
	whole = req->large && most == LARGE_ORDER && hpmmap_buddy_largest(&pn->buddy) >= most;
	if (!whole && pn->clean.nr_free && soils_too_much(pn, *owed, req->account)) {
		i = unclean_take(pn, min_t(unsigned long, nr, *owed), unit);
		owed_pay(pn, owed, i);
		if (i)
			return i;
	}
	any = hpmmap_buddy_largest(&pn->buddy);
	clean = hpmmap_buddy_largest(&pn->clean);
	if (any < 0)
		return 0;
	if (clean >= 0 && (!whole || clean >= most)) {
		order = min(clean, most);
		hpmmap_buddy_alloc(&pn->clean, order, unit);
		hpmmap_buddy_take(&pn->buddy, *unit, order);
		return 1UL << order;
	}
	order = min(any, most);
	/* What others have soiled is theirs to pay for, unless it is handed out. */
	if (req->at_hand)
		order = *owed ? min(order, ilog2(*owed)) : -1;
	if (order < 0)
		return 0;
	nr = nr_unclean(pn);
	hpmmap_buddy_alloc(&pn->buddy, order, unit);
	if (clean >= 0)
		for (i = 0; i < 1UL << order; i++)
			hpmmap_buddy_take(&pn->clean, *unit + i, 0);
	owed_pay(pn, owed, nr - nr_unclean(pn));
	return 1UL << order;
}

/* Runs that leave the allocator before their blocks are looked at. */
#define RUNS 8

/*
 * Up to @nr blocks of one node in as few runs as possible; returns how many.
 */
static unsigned long node_alloc(int nid, struct hpmmap_request *req,
				unsigned long nr, struct list_head *out)
{
	struct pool_node *pn = pool_node_find(nid);
	struct { struct hpmmap_block *blocks; unsigned long nr; } runs[RUNS];
	unsigned int n, i;
	unsigned long got = 0, taken, unit;

	if (!pn)
		return 0;
	do {
		spin_lock(&pn->lock);
		for (n = 0, taken = got; n < RUNS && taken < nr; n++) {
			runs[n].nr = run_alloc(pn, req, nr - taken, &unit);
			if (!runs[n].nr)
				break;
			runs[n].blocks = block_of(pn, unit);
			taken += runs[n].nr;
		}
		zeroer_hurry(pn);
		spin_unlock(&pn->lock);
		for (i = 0; i < n; i++) {
			got += take_run(pn, req->account, runs[i].blocks, runs[i].nr, out);
			if (runs[i].nr == 1UL << LARGE_ORDER)
				req->nr_large++;
			cond_resched();
		}
	} while (n && got < nr);
	hpmmap_pool_count_mapped(nid, got);
	return got;
}

/* One part in so many of what is free, or may be charged, is at hand on all CPUs together. */
#define STOCK_SHARE 64

/* Fewer blocks are not worth it. */
#define STOCK_LEAST 4U

/* How many blocks of one kind this CPU may have at hand; 0: none. */
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
 * From the stock of this CPU, if it is of the node @nid, or that nearest to @place; it is filled
 * where it has too little. All of them, or none.
 */
static noinline bool alloc_at_hand(struct hpmmap_account *account, int nid,
				   const struct hpmmap_placement *place,
				   unsigned long nr, struct list_head *out)
{
	struct hpmmap_request req = { .account = account, .at_hand = true };
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

/* Free blocks with those that are being zeroed, which an allocation takes back. */
static unsigned long count_to_come(const nodemask_t *nodes)
{
	unsigned long nr_out = hpmmap_pool_count_out(nodes), nr;

	/* What came back, or left, between two looks is counted by one of them. */
	smp_rmb();
	nr = hpmmap_pool_count_free(nodes);
	smp_rmb();
	return nr + max(nr_out, hpmmap_pool_count_out(nodes));
}

/**
 * hpmmap_pool_offer() - how many blocks could somebody get now?
 * @account: who
 * @nodes: where from
 * @nr: how many are wanted
 *
 * What is kept for reuse is given back for it, as far as a limit lets him have it.
 *
 * Return: @nr, or less; others may be quicker.
 */
unsigned long hpmmap_pool_offer(struct hpmmap_account *account,
				const nodemask_t *nodes, unsigned long nr)
{
	struct hpmmap_payer *full;
	unsigned long free;

	if (count_to_come(nodes) < nr || hpmmap_account_full(account, nr))
		hpmmap_pool_gather();
	full = hpmmap_account_full(account, nr);
	if (full)
		reclaimer->reclaim(&node_states[N_POSSIBLE], full, nr);
	nr = min(nr, hpmmap_account_room(account));
	free = count_to_come(nodes);
	if (free < nr && reclaimer->kept())
		reclaimer->reclaim(nodes, NULL, nr - free);
	return min3(nr, count_to_come(nodes), hpmmap_account_room(account));
}

/**
 * hpmmap_pool_has_free() - could somebody get at least one block now?
 * @account: who
 * @nodes: where from
 *
 * Nothing is allocated for it. What nobody refers to any more is given back before, and
 * what is kept for reuse, where there would be none.
 *
 * May sleep.
 */
bool hpmmap_pool_has_free(struct hpmmap_account *account,
			  const nodemask_t *nodes)
{
	/* It counts for limits, too. */
	if (!count_to_come(nodes) || hpmmap_account_full(account, 1))
		reclaimer->reap();
	return hpmmap_pool_offer(account, nodes, 1);
}

/* As alloc_alike(), where the nearest node has too little: up to @nr blocks. */
static noinline unsigned long alloc_farther(struct hpmmap_request *req, unsigned long nr,
					    struct list_head *out)
{
	const struct hpmmap_placement *place = req->place;
	nodemask_t tried = NODE_MASK_NONE;
	unsigned long got;

	got = alloc_near(req, place->near, &place->preferred, &tried, nr, out);
	return got + alloc_near(req, place->near, &place->nodes, &tried, nr - got, out);
}

/* As many as there are of those that one kind of placement treats alike. */
static unsigned long alloc_alike(struct hpmmap_request *req,
				 struct list_head *out)
{
	const struct hpmmap_placement *place = req->place;
	unsigned long got = 0;

	if ((unsigned int)place->near < nr_node_ids && node_isset(place->near, place->preferred))
		got = node_alloc(place->near, req, req->nr, out);
	return got == req->nr ? got : got + alloc_farther(req, req->nr - got, out);
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

/* Limits are asked again where stocks are charged. */
static int charge(struct hpmmap_account *account, unsigned long nr)
{
	int ret = hpmmap_account_charge(account, nr);

	return ret && hpmmap_pool_gather() ? hpmmap_account_charge(account, nr) : ret;
}

/* All of them, or none. */
static bool try_alloc(struct hpmmap_request *req, struct list_head *out)
{
	const struct hpmmap_placement *place = req->place;
	unsigned long free, n;

	if (req->nr <= STOCK_MOST && !place->in_turn && stock_is_asked(req->account) &&
	    alloc_at_hand(req->account, NUMA_NO_NODE, place, req->nr, out)) {
		req->left = hpmmap_pool_count_free(&place->nodes);
		return true;
	}
	free = hpmmap_pool_count_free(&place->nodes);
	/* Whole gigabytes may miss single blocks. */
	if ((free < req->nr || (req->large && req->nr >> LARGE_ORDER)) && hpmmap_pool_gather())
		free = hpmmap_pool_count_free(&place->nodes);
	/* A request that cannot succeed takes nothing from others. */
	if (free < req->nr || charge(req->account, req->nr))
		return false;
	req->nr_large = 0;
	n = place->in_turn ? alloc_in_turn(req, out) : alloc_alike(req, out);
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

/* Others may get what was taken back. */
#define RECLAIM_TRIES 8

/*
 * Takes back what processes keep for reuse, if that can be of help; returns
 * whether to try again.
 */
static bool reclaim(const struct hpmmap_request *req)
{
	unsigned long free = hpmmap_pool_count_free(&req->place->nodes);

	if (free >= req->nr) {
		struct hpmmap_payer *full;

		/* It is a limit that is in the way, or was: then nobody has to give. */
		full = hpmmap_account_full(req->account, req->nr);
		if (!full)
			return true;
		return reclaimer->reclaim(&node_states[N_POSSIBLE], full,
					  req->nr);
	}
	if (free + reclaimer->kept() < req->nr)
		return false;
	return reclaimer->reclaim(&req->place->nodes, NULL, req->nr - free);
}

/* Only what is being zeroed at this moment was missing: it is zeroed here. */
static bool alloc_being_zeroed(struct hpmmap_request *req, struct list_head *out)
{
	nodemask_t nodes = req->place->nodes;
	u64 since = get_cycles();
	bool done;

	if (count_to_come(&nodes) < req->nr ||
	    hpmmap_account_full(req->account, req->nr))
		return false;
	hpmmap_pool_launder_stop(&nodes);
	req->waited_zeroing = get_cycles() - since;
	done = try_alloc(req, out);
	hpmmap_pool_launder_go(&nodes);
	return done;
}

/**
 * hpmmap_pool_alloc() - blocks for somebody
 * @req: what is asked for; what came of it is entered, too
 * @out: list they are added to, in runs that are contiguous where possible;
 *	all their pages are stale
 *
 * May sleep.
 *
 * Return: 0, or -ENOMEM and nothing where there are not enough.
 */
int hpmmap_pool_alloc(struct hpmmap_request *req, struct list_head *out)
{
	unsigned long slot = req->slot;
	struct hpmmap_block *block;
	unsigned int nr = 0;
	LIST_HEAD(got);
	bool done, more;
	u64 since;
	int i;

	if (!req->nr)
		return 0;
	done = try_alloc(req, &got);
	for (i = 0, more = true; i < RECLAIM_TRIES && more && !done; i++) {
		more = reclaimer->reap_one();
		done = try_alloc(req, &got);
	}
	since = get_cycles();
	for (i = 0; i < RECLAIM_TRIES && !done; i++) {
		if (!reclaim(req) || fatal_signal_pending(current))
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
			block->slot = slot++;
			hpmmap_every(&nr, WITHOUT_PAUSE);
		}
	list_splice_tail(&got, out);
	return 0;
}

/**
 * hpmmap_pool_alloc_instead() - a block that takes the place of another
 * @account: that of the other, which is given up next, so that no limit is in the way
 * @nid: the node nearest to which it should be
 * @nodes: where from, and from nowhere else
 *
 * Return: the block, all of it stale, or NULL where there is none.
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

/**
 * hpmmap_pool_alloc_more() - a block that takes the place of none
 * @account: who is charged, as far as limits allow it
 * @nid: the node nearest to which it should be
 * @nodes: where from, and from nowhere else
 *
 * It takes nothing back for it.
 *
 * Return: the block, all of it stale, or NULL where there is none.
 */
struct hpmmap_block *hpmmap_pool_alloc_more(struct hpmmap_account *account,
					    int nid, const nodemask_t *nodes)
{
	struct hpmmap_block *block;

	if (charge(account, 1))
		return NULL;
	block = hpmmap_pool_alloc_instead(account, nid, nodes);
	hpmmap_account_refund(account, 1);
	/* Nothing is given up for it, so the job may hold more than before. */
	if (block)
		hpmmap_account_tally(account, 0, stock_spare(account));
	return block;
}

/**
 * hpmmap_pool_alloc_clean() - a clean block that takes the place of another
 * @account: that of the other, which is given up next, so that no limit is in the way
 * @nid: the node it has to lie on
 *
 * Return: the block, all of it stale, or NULL where there is none, or the user soils
 * too much.
 */
struct hpmmap_block *hpmmap_pool_alloc_clean(struct hpmmap_account *account,
					     int nid)
{
	struct hpmmap_request req = { .account = account };
	struct pool_node *pn = pool_node_find(nid);
	struct hpmmap_block *block = NULL;
	unsigned long unit;
	LIST_HEAD(one);

	if (soils_too_much(pn, *owed_of(pn, account), account) ||
	    (stock_is_asked(account) && alloc_at_hand(account, nid, NULL, 1, &one)))
		goto out;
	spin_lock(&pn->lock);
	if (pn->clean.nr_free &&
	    !soils_too_much(pn, *owed_of(pn, account), account) &&
	    run_alloc(pn, &req, 1, &unit))
		block = block_of(pn, unit);
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

