// SPDX-License-Identifier: GPL-2.0
/*
 * Accounts: what blocks are charged to.
 *
 * An account is one user and one cgroup. Its blocks count for both, and for all
 * ancestors of the cgroup (mem/block/payer.c). The account is determined whenever an
 * address space gets blocks (as/own/reserve.c). A block stays charged to it, and so does
 * a block that takes its place, even if another process holds it in the end.
 *
 * An account also belongs to the tally of a job, which counts the blocks of all its
 * accounts, each once, and their peak. The tally's cache line is written where those of
 * the payers are, which as many CPUs share.
 *
 * Promises. Free blocks of a NUMA node that were promised and are not claimed yet leave the
 * allocator only for whom they were promised to. A block counts for the promises of one
 * chain: that of its launch, then those of its cgroup and all above, or, if none of these
 * cgroups has one of this node, that of its user. A promise within another one is taken out
 * of it: so what is not claimed of a chain is that of its last member, whose @inner has the
 * others. docs/design/limits.md says why this is exact.
 */
#include <linux/cgroup.h>
#include <linux/hashtable.h>

#include "hpmmap.h"
#include "mem/block/account.h"
#include "mem/block/node.h"
#include "mem/block/nodes.h"
#include "mem/block/payer.h"

/* A user and a cgroup, for one tally. */
struct hpmmap_account {
	refcount_t refs;		/* held by contexts, jobs, and blocks charged to it */
	struct hlist_node node;		/* in the table */
	struct hpmmap_payer *user;	/* holds a reference */
	struct hpmmap_payer *group;	/* holds a reference; NULL for the root of the hierarchy */
	struct hpmmap_tally *tally;	/* holds a reference */
	/* Frees it after readers that found it, see hpmmap_account_get(). */
	struct rcu_head rcu;
	/* Blocks of each NUMA node that are charged to it, protected by the node's lock. */
	long on_node[];
};

/* For many users, cgroups and jobs: every call that gets blocks looks its account up here. */
static DEFINE_HASHTABLE(accounts, 12);
/* Protects the table; references may become zero without it. */
static DEFINE_SPINLOCK(accounts_lock);

/* An empty tally with one reference, or NULL. */
struct hpmmap_tally *hpmmap_tally_alloc(void)
{
	struct hpmmap_tally *t = kzalloc(sizeof(*t), GFP_KERNEL_ACCOUNT);

	if (t)
		refcount_set(&t->refs, 1);
	return t;
}

/* May be called with any spinlock held. */
void hpmmap_tally_put(struct hpmmap_tally *t)
{
	if (!refcount_dec_and_test(&t->refs))
		return;
	hpmmap_payer_put(t->launch);
	kfree(t);
}

/* Takes over the caller's references to payers; NULL if there is no memory. */
static struct hpmmap_account *account_of(struct hpmmap_payer *user, struct hpmmap_payer *group,
					 struct hpmmap_tally *tally)
{
	struct hpmmap_account *a, *fresh = kzalloc(struct_size(fresh, on_node, nr_node_ids),
						   GFP_KERNEL_ACCOUNT);
	unsigned long key = (unsigned long)user ^ (unsigned long)group ^
			    (unsigned long)tally;

	if (!fresh)
		goto out;
	refcount_set(&fresh->refs, 1);
	fresh->user = user;
	fresh->group = group;
	spin_lock(&accounts_lock);
	hash_for_each_possible(accounts, a, node, key)
		if (a->user == user && a->group == group && a->tally == tally &&
		    refcount_inc_not_zero(&a->refs))
			goto found;
	refcount_inc(&tally->refs);
	fresh->tally = tally;
	hash_add(accounts, &fresh->node, key);
	spin_unlock(&accounts_lock);
	return fresh;

found:
	spin_unlock(&accounts_lock);
	kfree(fresh);
	fresh = a;
out:
	hpmmap_payer_put(user);
	hpmmap_payer_put(group);
	return fresh;
}

/*
 * The account for blocks that the caller gets now for a job with @tally, by its user ID and
 * cgroup. With a reference for the caller; NULL without memory.
 */
struct hpmmap_account *hpmmap_account_get_current(struct hpmmap_tally *tally)
{
	struct cgroup *cgroup = hpmmap_current_cgroup_get();
	struct hpmmap_payer *user, *group = NULL;
	struct hpmmap_account *ret = NULL;

	user = hpmmap_payer_get(hpmmap_charged_uid(), NULL, NULL);
	if (!user)
		goto out;
	if (cgroup->level) {
		group = hpmmap_payer_get_group(cgroup);
		if (!group) {
			hpmmap_payer_put(user);
			goto out;
		}
	}
	ret = account_of(user, group, tally);
out:
	cgroup_put(cgroup);
	return ret;
}

/* Would blocks that the caller gets now be charged to it? A reference or RCU keeps the account. */
bool hpmmap_account_is_current(const struct hpmmap_account *account)
{
	struct cgroup *cgroup;
	bool ret;

	if (!uid_eq(account->user->uid, hpmmap_charged_uid()))
		return false;
	rcu_read_lock();
	cgroup = hpmmap_current_cgroup();
	ret = (cgroup->level ? cgroup : NULL) == (account->group ? account->group->cgroup : NULL);
	rcu_read_unlock();
	return ret;
}

static void account_put_many(struct hpmmap_account *account, unsigned long nr)
{
	if (!refcount_sub_and_test(nr, &account->refs))
		return;
	spin_lock(&accounts_lock);
	hash_del(&account->node);
	spin_unlock(&accounts_lock);
	hpmmap_payer_put(account->user);
	hpmmap_payer_put(account->group);
	hpmmap_tally_put(account->tally);
	kfree_rcu(account, rcu);
}

/* The account that a pointer with a reference points to, with another reference for the caller. */
struct hpmmap_account *hpmmap_account_get(struct hpmmap_account __rcu *const *from)
{
	struct hpmmap_account *account;

	rcu_read_lock();
	do {
		account = rcu_dereference(*from);
	} while (!refcount_inc_not_zero(&account->refs));
	rcu_read_unlock();
	return account;
}

/* Lets a pointer point to another account, which gets a reference; that to the old one is put. */
void hpmmap_account_set(struct hpmmap_account __rcu **at, struct hpmmap_account *account)
{
	refcount_inc(&account->refs);
	hpmmap_account_put(unrcu_pointer(xchg(at, RCU_INITIALIZER(account))));
}

/* The user of the account that a pointer points to. */
kuid_t hpmmap_account_uid_at(struct hpmmap_account __rcu *const *from)
{
	struct hpmmap_account *account = hpmmap_account_get(from);
	kuid_t uid = account->user->uid;

	hpmmap_account_put(account);
	return uid;
}

/* May be called with any spinlock held. */
void hpmmap_account_put(struct hpmmap_account *account)
{
	account_put_many(account, 1);
}

/* The user, the cgroup and its ancestors. */
#define for_each_payer(_account, _p) \
	for (_p = (_account)->user; _p; \
	     _p = _p->cgroup ? _p->parent : (_account)->group)

/*
 * Charges blocks to an account, to which each holds a reference then. The caller passes as
 * many to hpmmap_account_tally(), hpmmap_account_tally_unused() or hpmmap_account_refund().
 * Returns 0, or -ENOMEM if a limit forbids it.
 */
int hpmmap_account_charge(struct hpmmap_account *account, unsigned long nr)
{
	struct hpmmap_payer *p, *done;

	for_each_payer(account, p)
		if (!hpmmap_payer_charge(p, nr))
			goto err_undo;
	refcount_add(nr, &account->refs);
	return 0;

err_undo:
	for_each_payer(account, done) {
		if (done == p)
			break;
		atomic_long_sub(nr, &done->held);
	}
	return -ENOMEM;
}

/* The job has, or just had, all blocks of its tally but @spare unused ones: updates the peak. */
void hpmmap_account_peak(struct hpmmap_account *account, unsigned long spare)
{
	struct hpmmap_tally *t = account->tally;
	long held = atomic_long_read(&t->held) - (long)spare;
	long peak = atomic_long_read(&t->peak);

	while (held > peak && !atomic_long_try_cmpxchg(&t->peak, &peak, held))
		;
}

/*
 * Counts charged blocks that were found. @spare: blocks of the account that the caller knows
 * to be unused.
 */
void hpmmap_account_tally(struct hpmmap_account *account, unsigned long nr, unsigned long spare)
{
	atomic_long_add(nr, &account->tally->held);
	hpmmap_account_peak(account, spare);
}

/* The same for blocks that are given back at once or not in use: the peak does not change. */
void hpmmap_account_tally_unused(struct hpmmap_account *account, unsigned long nr)
{
	atomic_long_add(nr, &account->tally->held);
}

/* Charges without regard to limits and the peak: the caller gives up as many next. */
void hpmmap_account_charge_anyway(struct hpmmap_account *account, unsigned long nr)
{
	struct hpmmap_payer *p;

	if (!nr)
		return;
	for_each_payer(account, p)
		atomic_long_add(nr, &p->held);
	atomic_long_add(nr, &account->tally->held);
	refcount_add(nr, &account->refs);
}

/* Undoes the charge of blocks that were not found. */
void hpmmap_account_refund(struct hpmmap_account *account, unsigned long nr)
{
	struct hpmmap_payer *p;

	for_each_payer(account, p)
		atomic_long_sub(nr, &p->held);
	account_put_many(account, nr);
}

/* May be called with any spinlock held; it may free the account. */
void hpmmap_account_uncharge(struct hpmmap_account *account, unsigned long nr)
{
	if (!nr)
		return;
	atomic_long_sub(nr, &account->tally->held);
	hpmmap_account_refund(account, nr);
}

/*
 * The payer whose limit forbids to charge so many blocks, which lives as long as the account;
 * or NULL.
 */
struct hpmmap_payer *hpmmap_account_full(struct hpmmap_account *account, unsigned long nr)
{
	struct hpmmap_payer *p;

	for_each_payer(account, p)
		if (nr > hpmmap_payer_room(p))
			return p;
	return NULL;
}

/* The number of blocks that the limits still allow. */
unsigned long hpmmap_account_room(struct hpmmap_account *account)
{
	unsigned long room = ULONG_MAX;
	struct hpmmap_payer *p;

	for_each_payer(account, p)
		room = min(room, hpmmap_payer_room(p));
	return room;
}

/* The lowest of the account's limits, in blocks. */
unsigned long hpmmap_account_limit(const struct hpmmap_account *account)
{
	unsigned long limit = ULONG_MAX;
	struct hpmmap_payer *p;

	for_each_payer(account, p)
		limit = min(limit, hpmmap_payer_limit(p));
	return limit;
}

static long unclaimed(const struct hpmmap_claim *c)
{
	return max3((long)c->promised - c->held, c->inner, 0L);
}

/* The last part of a chain of promises. */
static struct hpmmap_payer *chain_of(struct hpmmap_payer *user, struct hpmmap_payer *group, int nid)
{
	struct hpmmap_payer *p;

	for (p = group; p; p = p->parent)
		if (p->claims[nid].promised)
			return group;
	return user;
}

/* Is the promise of a launch taken out of that of a payer? */
bool hpmmap_launch_is_within(const struct hpmmap_payer *launch, const struct hpmmap_payer *of, int nid)
{
	const struct hpmmap_payer *p = chain_of(launch->user, launch->parent, nid);

	while (p && p != of)
		p = p->parent;
	return p;
}

/* The promise of the account's launch, if it has one of this node. */
static struct hpmmap_payer *launch_of(const struct hpmmap_account *account, int nid)
{
	struct hpmmap_payer *launch = READ_ONCE(account->tally->launch);

	return launch && launch->claims[nid].promised ? launch : NULL;
}

/* The chain of an account's blocks; behind its @launch that of the launching process. */
static struct hpmmap_payer *chain_behind(const struct hpmmap_account *account,
					 const struct hpmmap_payer *launch, int nid)
{
	return launch ? chain_of(launch->user, launch->parent, nid) :
			chain_of(account->user, account->group, nid);
}

#define for_each_claim(_p, _launch, _chain) \
	for (_p = (_launch) ?: (_chain); _p; _p = _p == (_launch) ? (_chain) : _p->parent)

/* Adds blocks to what is held of all promises of a chain, or only of the @first. */
static void chain_add(struct hpmmap_payer *launch, struct hpmmap_payer *chain, int nid,
		      long nr, bool first)
{
	struct hpmmap_payer *p;
	long more = 0;

	for_each_claim(p, launch, chain) {
		struct hpmmap_claim *c = &p->claims[nid];
		long before = unclaimed(c);

		c->inner += more;
		c->held += nr;
		more = unclaimed(c) - before;
		if (first)
			nr = 0;
	}
	pool_nodes[nid]->unclaimed += more;
}

/* Free blocks of a node, whose lock is held, are the account's now; @nr below 0: no longer. */
void hpmmap_account_take(struct hpmmap_account *account, int nid, long nr)
{
	struct pool_node *pn = pool_nodes[nid];
	struct hpmmap_payer *launch;

	account->on_node[nid] += nr;
	if (likely(!pn->nr_promises))
		return;
	launch = launch_of(account, nid);
	chain_add(launch, chain_behind(account, launch, nid), nid, nr, false);
	HPMMAP_ASSERT(pn->nr_bad || pn->nr_doomed || nr_for_promises(pn) >= pn->unclaimed);
}

/*
 * How many of the free blocks of a node, whose lock is held, may an account take? With @out including
 * those that are being zeroed, which it can take back.
 */
unsigned long hpmmap_account_free(struct hpmmap_account *account, int nid, bool out)
{
	struct pool_node *pn = pool_nodes[nid];
	unsigned long nr = pn->buddy.nr_free + (out ? pn->nr_out : 0);
	struct hpmmap_payer *p, *launch;
	long own;

	lockdep_assert_held(&pn->lock);
	if (likely(!pn->nr_promises))
		return nr;
	own = max(nr_for_promises(pn) - pn->unclaimed, 0L);
	launch = launch_of(account, nid);
	for_each_claim(p, launch, chain_behind(account, launch, nid))
		own += unclaimed(&p->claims[nid]) - p->claims[nid].inner;
	return min_t(unsigned long, nr, own);
}

/* The same for several nodes; a hint, since their locks are released. */
unsigned long hpmmap_account_free_all(struct hpmmap_account *account, const nodemask_t *nodes,
				      bool out)
{
	unsigned long nr = 0;
	int nid;

	hpmmap_for_each_node(nid, *nodes) {
		struct pool_node *pn = pool_node_find(nid);

		if (!pn)
			continue;
		/* Promises may be counted anew at this moment. */
		if (likely(!out && !READ_ONCE(pn->nr_promises))) {
			nr += READ_ONCE(pn->buddy.nr_free);
			continue;
		}
		spin_lock(&pn->lock);
		nr += hpmmap_account_free(account, nid, out);
		spin_unlock(&pn->lock);
	}
	return nr;
}

static void chain_reset(struct hpmmap_payer *launch, struct hpmmap_payer *chain, int nid)
{
	struct hpmmap_payer *p;

	for_each_claim(p, launch, chain) {
		p->claims[nid].held = p->claims[nid].promised;
		p->claims[nid].inner = 0;
	}
}

/*
 * Counts anew what is held of the promises of a node, whose lock is held; @promised: all payers
 * with a promise. Promises decide which chain a block counts for, so each change counts anew.
 */
void hpmmap_accounts_recount(int nid, struct list_head *promised)
{
	struct pool_node *pn = pool_nodes[nid];
	struct hpmmap_payer *p, *launch;
	struct hpmmap_account *a;
	int bkt;

	lockdep_assert_held(&pn->lock);
	pn->nr_promises = 0;
	pn->unclaimed = 0;
	spin_lock(&accounts_lock);
	/* Nothing is promised of what is held: a promise counts from where it is added. */
	hash_for_each(accounts, bkt, a, node) {
		chain_reset(a->tally->launch, a->user, nid);
		chain_reset(NULL, a->group, nid);
	}
	list_for_each_entry(p, promised, promise) {
		chain_reset(p, p->user, nid);
		chain_reset(NULL, p->parent, nid);
		pn->nr_promises += !!p->claims[nid].promised;
	}
	list_for_each_entry(p, promised, promise)
		chain_add(p->launch ? p : NULL,
			  p->launch ? chain_of(p->user, p->parent, nid) : p, nid,
			  -(long)p->claims[nid].promised, true);
	hash_for_each(accounts, bkt, a, node) {
		if (!a->on_node[nid] || !pn->nr_promises)
			continue;
		launch = launch_of(a, nid);
		chain_add(launch, chain_behind(a, launch, nid), nid, a->on_node[nid], false);
	}
	spin_unlock(&accounts_lock);
}

/* The payer for a promise to the account's launch, with a reference for the caller, or an errno. */
struct hpmmap_payer *hpmmap_account_launch(struct hpmmap_account *account, u64 launch)
{
	struct hpmmap_tally *t = account->tally;
	struct hpmmap_payer *fresh;

	if (!READ_ONCE(t->launch)) {
		fresh = hpmmap_payer_get_launch(launch, account->user, account->group);
		if (fresh && cmpxchg(&t->launch, NULL, fresh))
			hpmmap_payer_put(fresh);
	}
	fresh = READ_ONCE(t->launch);
	if (!fresh)
		return ERR_PTR(-ENOMEM);
	refcount_inc(&fresh->refs);
	return fresh;
}

/* Do the account's blocks count for this payer? */
bool hpmmap_account_counts_for(struct hpmmap_account *account, struct hpmmap_payer *payer)
{
	struct hpmmap_payer *p;

	for_each_payer(account, p)
		if (p == payer)
			return true;
	return false;
}

struct hpmmap_payer *hpmmap_account_user(const struct hpmmap_account *account)
{
	return account->user;
}
