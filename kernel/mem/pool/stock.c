// SPDX-License-Identifier: GPL-2.0
/*
 * Stocks: free blocks at hand for each CPU.
 *
 * The lock of a node, the payers and the tally of a job are shared by all CPUs. The blocks of a
 * stock are already charged to the account that its CPU serves and counted as held. So a call
 * that takes some, or puts some there, writes to nothing that other CPUs use. Outside of the
 * allocator they count as free.
 *
 * A task that finds too few blocks or too low a limit, or that reports figures, first empties
 * all stocks: hpmmap_pool_gather().
 */
#include "hpmmap.h"
#include "mem/block/account.h"
#include "mem/block/block.h"
#include "mem/block/node.h"
#include "mem/block/nodes.h"
#include "mem/pool/pool.h"

/* A stock is filled for an account after this many calls in a row. */
#define ASKED_LEAST 4

/* How often each block that is not clean is handed out before the node is asked for clean ones. */
#define UNCLEAN_TURNS 10

/* How often all stocks were emptied; a few are missed. */
static unsigned int nr_gathered;

/* The stock of one CPU. */
struct stock {
	spinlock_t lock;			/* protects all of it */
	struct list_head blocks[2];		/* clean ones, and others, in order of arrival */
	unsigned int nr[2];			/* number of each */
	/* All of them are charged to it; it exists while there are blocks. */
	struct hpmmap_account *account;
	int nid;				/* node of all of them */
	/*
	 * Keep this many of one kind when some are given up, twice as many after a fill; 0: put
	 * none here.
	 */
	unsigned int most;
	/* Hand out this many that are not clean before the node is asked again. */
	unsigned int unclean_left;
	/* The fewest blocks since the tally of @account was last told. */
	unsigned int least;
	/* Account of the last call, not under the lock; only compared. */
	const struct hpmmap_account *asking;
	/* Calls in a row for @asking, without a change of @asked_at. */
	unsigned int asked;
	unsigned int asked_at;			/* nr_gathered at these calls */
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
 * Is it worth to look at this CPU's stock? To fill it costs more than a call without it, and pays
 * only with the calls that follow.
 */
bool stock_is_asked(const struct hpmmap_account *account)
{
	struct stock *s = raw_cpu_ptr(&stocks);
	unsigned int now = READ_ONCE(nr_gathered);

	/* A race only makes the hint wrong. */
	if (s->asking != account || s->asked_at != now) {
		s->asking = account;
		s->asked_at = now;
		s->asked = 0;
	}
	return ++s->asked > ASKED_LEAST;
}

/* Takes @nr blocks from the stock of this CPU, or none; with @clean only clean ones. */
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
		/* The task that empties the stock finds out whether that lasts. */
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

/*
 * hpmmap_pool_alloc() from the stock of this CPU alone, for the account that is somewhere, if it is
 * the caller's; or nothing. It does not sleep, and writes to no cache line that other CPUs write to:
 * RCU keeps the account, without a reference.
 */
bool hpmmap_pool_at_hand(struct hpmmap_account __rcu *const *from, struct hpmmap_request *req,
			 struct list_head *out)
{
	const struct hpmmap_placement *place = req->place;
	const struct stock *s = raw_cpu_ptr(&stocks);
	unsigned long slot = req->slot, nr = req->nr;
	struct hpmmap_account *account;
	struct hpmmap_block *block;
	LIST_HEAD(got);
	bool taken;

	rcu_read_lock();
	account = rcu_dereference(*from);
	taken = s->asking == account && READ_ONCE(s->account) == account &&
		(READ_ONCE(s->nr[0]) >= nr || READ_ONCE(s->unclean_left) >= nr) &&
		!place->in_turn && hpmmap_account_is_current(account) &&
		stock_take(account, hpmmap_placement_nearest(place), nr, false, &got);
	rcu_read_unlock();
	if (!taken)
		return false;
	list_for_each_entry(block, &got, link)
		block->slot = slot == NO_SLOT ? NO_SLOT : slot++;
	list_splice_tail(&got, out);
	req->left = hpmmap_pool_count_free(&place->nodes);
	return true;
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
 * Adds blocks to the stock of this CPU, which may keep @most of one kind. On return the list has
 * the blocks that had to leave for them. The caller tells the tally afterwards.
 */
void stock_fill(struct hpmmap_account *account, int nid, unsigned int most,
		struct list_head *list)
{
	struct stock *s = raw_cpu_ptr(&stocks);
	struct hpmmap_block *block, *tmp;
	LIST_HEAD(leave);
	bool other, clean = false;
	int kind;

	spin_lock(&s->lock);
	if (!s->account) {
		INIT_LIST_HEAD(&s->blocks[0]);
		INIT_LIST_HEAD(&s->blocks[1]);
	}
	other = s->account != account || s->nid != nid;
	for (kind = 0; kind < 2; kind++)
		if (other || (!list_empty(list) && s->nr[kind] >= most))
			stock_empty(s, kind, &leave);
	WRITE_ONCE(s->account, account);
	s->nid = nid;
	WRITE_ONCE(s->most, most);
	list_for_each_entry_safe(block, tmp, list, link) {
		atomic_set(&block->users, 0);
		if (unlikely(block->bad))
			continue;
		clean |= block->zeroed;
		s->least++;
		stock_add(s, block);
	}
	s->unclean_left = clean ? 0 : UNCLEAN_TURNS * s->nr[1];
	spin_unlock(&s->lock);
	list_splice(&leave, list);
}

/* Would @most blocks hold all that is given up? Otherwise the next call asks the node anyway. */
static bool is_short(struct list_head *list, unsigned int most)
{
	struct list_head *pos;
	unsigned int nr = 0;

	list_for_each(pos, list)
		if (++nr > most)
			return false;
	return true;
}

/* Would blocks have to leave the stock of this CPU for blocks that are given up? A hint. */
bool stock_is_full(struct list_head *list)
{
	const struct hpmmap_block *block = list_first_entry(list, struct hpmmap_block, link);
	struct stock *s = raw_cpu_ptr(&stocks);
	unsigned int most = READ_ONCE(s->most);

	return READ_ONCE(s->account) == block->account &&
	       READ_ONCE(s->nr[!block->zeroed]) >= most && is_short(list, most);
}

/*
 * Puts blocks that were given up into the stock of this CPU. On return the list has those that it
 * did not take and, with @displace, those that left it for the others.
 */
void stock_put(struct list_head *list, bool displace)
{
	struct stock *s = raw_cpu_ptr(&stocks);
	struct hpmmap_block *block, *tmp;
	LIST_HEAD(leave);

	block = list_first_entry(list, struct hpmmap_block, link);
	if (READ_ONCE(s->account) != block->account || !is_short(list, READ_ONCE(s->most)))
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

/* The number of blocks in the stock of this CPU that belong to the account's tally; a hint. */
unsigned int stock_spare(struct hpmmap_account *account)
{
	struct stock *s = raw_cpu_ptr(&stocks);

	return READ_ONCE(s->account) == account ? stock_nr(s) : 0;
}

/*
 * Empties all stocks: with @unclean only of blocks that are not clean; otherwise of all, and none
 * is put there until they are filled again.
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
