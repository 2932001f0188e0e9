// SPDX-License-Identifier: GPL-2.0
/*
 * Stocks: free blocks that each CPU has at hand.
 *
 * The lock of a node, the payers and the tally of a job are shared by all CPUs. The blocks of a
 * stock are charged to the account that its CPU serves, and counted as held, so that a call that
 * takes some, or puts some there, writes to nothing that others use. For everybody but the
 * allocator they are free.
 *
 * Whoever finds too little elsewhere, or a limit in the way, or shows a figure, empties all
 * stocks before: hpmmap_pool_gather().
 */
#include <linux/list.h>
#include <linux/percpu.h>
#include <linux/spinlock.h>

#include "hpmmap.h"
#include "mem/block/account.h"
#include "mem/block/block.h"
#include "mem/block/node.h"
#include "mem/pool/pool.h"

/* So many calls in a row, and then a stock is filled for an account. */
#define ASKED_LEAST 4

/* How often all stocks were emptied; some are not counted. */
static unsigned int nr_gathered;

/**
 * struct stock - what one CPU has at hand
 * @lock: protects all of it
 * @blocks: clean ones, and others, in the order in which they came
 * @nr: how many
 * @account: who all of them are charged to; there while there are some
 * @nid: node of all of them
 * @most: so many of one kind stay when some are given up, twice as many after a fill; 0: none
 *	is put here
 * @unclean_left: so many that are not clean are handed out before the node is asked again
 * @least: the fewest there were since the tally of @account was last told
 * @asking: who asked last, not under the lock; only compared
 * @asked: how often without another between, and without a change of @asked_at
 * @asked_at: what nr_gathered was
 */
struct stock {
	spinlock_t lock;
	struct list_head blocks[2];
	unsigned int nr[2];
	struct hpmmap_account *account;
	int nid;
	unsigned int most;
	unsigned int unclean_left;
	unsigned int least;
	const struct hpmmap_account *asking;
	unsigned int asked;
	unsigned int asked_at;
};

static DEFINE_PER_CPU_ALIGNED(struct stock, stocks) = {
	.lock = __SPIN_LOCK_UNLOCKED(stocks.lock),
};

static unsigned int stock_nr(const struct stock *s)
{
	return READ_ONCE(s->nr[0]) + READ_ONCE(s->nr[1]);
}

static void stock_empty(struct stock *s, int unclean, struct list_head *out)
{
	lockdep_assert_held(&s->lock);
	if (!s->nr[unclean])
		return;
	hpmmap_account_peak(s->account, s->least);
	list_splice_tail_init(&s->blocks[unclean], out);
	WRITE_ONCE(s->nr[unclean], 0);
	s->least = stock_nr(s);
}

/*
 * Is the stock of this CPU worth a look? To fill it is dearer than a call without it, and pays
 * with the calls that follow.
 */
bool stock_is_asked(const struct hpmmap_account *account)
{
	struct stock *s = raw_cpu_ptr(&stocks);
	unsigned int now = READ_ONCE(nr_gathered);

	/* If it goes wrong it has been a hint. */
	if (s->asking != account || s->asked_at != now) {
		s->asking = account;
		s->asked_at = now;
		s->asked = 0;
	}
	return ++s->asked > ASKED_LEAST;
}

/* So many blocks from the stock of this CPU, or none; with @clean only clean ones. */
bool stock_take(struct hpmmap_account *account, int nid, unsigned long nr, bool clean,
		struct list_head *out)
{
	struct stock *s = raw_cpu_ptr(&stocks);
	struct hpmmap_block *block;
	unsigned long i = 0;
	int unclean;
	LIST_HEAD(got);

	spin_lock(&s->lock);
	unclean = s->nr[0] < nr;
	if (s->account != account || s->nid != nid || s->nr[unclean] < nr ||
	    (unclean && (clean || s->unclean_left < nr)))
		goto none;
	list_for_each_entry(block, &s->blocks[unclean], link) {
		/* Whoever empties the stock finds out whether that lasts. */
		if (unlikely(block->bad || !has_no_user(block)))
			goto none;
		if (++i == nr)
			break;
	}
	list_cut_position(&got, &s->blocks[unclean], &block->link);
	list_for_each_entry(block, &got, link) {
		block_set_state(block, HPMMAP_BLOCK_HELD);
		block->slot = NO_SLOT;
		atomic_set(&block->users, 1);
	}
	WRITE_ONCE(s->nr[unclean], s->nr[unclean] - nr);
	if (unclean)
		s->unclean_left -= nr;
	s->least = min(s->least, stock_nr(s));
	if (!stock_nr(s))
		hpmmap_account_peak(account, 0);
	spin_unlock(&s->lock);
	list_splice_tail(&got, out);
	return true;

none:
	spin_unlock(&s->lock);
	return false;
}

static void stock_add(struct stock *s, struct hpmmap_block *block)
{
	int unclean = !block->zeroed;

	lockdep_assert_held(&s->lock);
	block_set_state(block, HPMMAP_BLOCK_FREE);
	list_move_tail(&block->link, &s->blocks[unclean]);
	WRITE_ONCE(s->nr[unclean], s->nr[unclean] + 1);
}

/*
 * More blocks for the stock of this CPU, which may keep @most of one kind. On the list are those
 * that have to leave for them then. The tally learns of the blocks afterwards.
 */
void stock_fill(struct hpmmap_account *account, int nid, unsigned int most,
		struct list_head *list)
{
	struct stock *s = raw_cpu_ptr(&stocks);
	struct hpmmap_block *block, *tmp;
	LIST_HEAD(leave);
	bool other;
	int kind;

	spin_lock(&s->lock);
	if (!s->account) {
		INIT_LIST_HEAD(&s->blocks[0]);
		INIT_LIST_HEAD(&s->blocks[1]);
	}
	other = s->account != account || s->nid != nid;
	for (kind = 0; kind < 2; kind++)
		if (other || s->nr[kind] >= most)
			stock_empty(s, kind, &leave);
	WRITE_ONCE(s->account, account);
	s->nid = nid;
	WRITE_ONCE(s->most, most);
	s->unclean_left = 0;
	list_for_each_entry_safe(block, tmp, list, link) {
		atomic_set(&block->users, 0);
		if (unlikely(block->bad))
			continue;
		s->unclean_left += !block->zeroed;
		s->least++;
		stock_add(s, block);
	}
	spin_unlock(&s->lock);
	list_splice(&leave, list);
}

/* Would something have to leave the stock of this CPU for blocks that are given up? A hint. */
bool stock_is_full(struct list_head *list)
{
	const struct hpmmap_block *block = list_first_entry(list, struct hpmmap_block, link);
	struct stock *s = raw_cpu_ptr(&stocks);

	return READ_ONCE(s->account) == block->account &&
	       READ_ONCE(s->nr[!block->zeroed]) >= READ_ONCE(s->most);
}

/*
 * Blocks that were given up, for the stock of this CPU. On the list are those that it does not
 * take then, and with @displace what leaves it for the others.
 */
void stock_put(struct list_head *list, bool displace)
{
	struct stock *s = raw_cpu_ptr(&stocks);
	struct hpmmap_block *block, *tmp;
	unsigned int nr = 0;
	LIST_HEAD(leave);

	block = list_first_entry(list, struct hpmmap_block, link);
	if (!READ_ONCE(s->most) || READ_ONCE(s->account) != block->account)
		return;
	list_for_each_entry(block, list, link)
		if (++nr > STOCK_MOST)
			return;
	spin_lock(&s->lock);
	list_for_each_entry_safe(block, tmp, list, link) {
		int unclean = !block->zeroed;

		if (block->account != s->account || block->nid != s->nid || !s->most ||
		    block->bad || block->state != HPMMAP_BLOCK_HELD || !has_no_user(block))
			continue;
		if (s->nr[unclean] >= s->most && displace)
			stock_empty(s, unclean, &leave);
		if (s->nr[unclean] < s->most)
			stock_add(s, block);
	}
	spin_unlock(&s->lock);
	list_splice(&leave, list);
}

/* How many blocks of the tally of an account are in the stock of this CPU; a hint. */
unsigned int stock_spare(struct hpmmap_account *account)
{
	struct stock *s = raw_cpu_ptr(&stocks);

	return READ_ONCE(s->account) == account ? stock_nr(s) : 0;
}

/*
 * Empties all stocks: with @unclean of what is not clean, otherwise of everything, and nothing is
 * put there until they are filled.
 */
void stocks_take_all(bool unclean, struct list_head *out)
{
	int cpu;

	if (!unclean)
		WRITE_ONCE(nr_gathered, nr_gathered + 1);
	for_each_possible_cpu(cpu) {
		struct stock *s = per_cpu_ptr(&stocks, cpu);

		if (!READ_ONCE(s->nr[1]) && (unclean || !READ_ONCE(s->most)))
			continue;
		spin_lock(&s->lock);
		stock_empty(s, 1, out);
		if (!unclean) {
			stock_empty(s, 0, out);
			WRITE_ONCE(s->most, 0);
		}
		spin_unlock(&s->lock);
	}
}
