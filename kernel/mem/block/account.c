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
 */
#include <linux/cgroup.h>
#include <linux/hashtable.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "hpmmap.h"
#include "mem/block/account.h"
#include "mem/block/payer.h"

/**
 * struct hpmmap_account - a user and a cgroup, for one tally
 * @refs: held by contexts, jobs, and blocks charged to it
 * @node: in the table
 * @user: holds a reference
 * @group: holds a reference; NULL for the root of the hierarchy
 * @tally: holds a reference
 * @rcu: frees it after readers that found it, see hpmmap_account_get()
 */
struct hpmmap_account {
	refcount_t refs;
	struct hlist_node node;
	struct hpmmap_payer *user;
	struct hpmmap_payer *group;
	struct hpmmap_tally *tally;
	struct rcu_head rcu;
};

/* For many users, cgroups and jobs: every call that gets blocks looks its account up here. */
static DEFINE_HASHTABLE(accounts, 12);
/* Protects the table; references may become zero without it. */
static DEFINE_SPINLOCK(accounts_lock);

/**
 * hpmmap_tally_alloc() - make an empty tally
 *
 * Return: the tally with one reference, or NULL.
 */
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
	if (refcount_dec_and_test(&t->refs))
		kfree(t);
}

/* Takes over the caller's references to payers; NULL if there is no memory. */
static struct hpmmap_account *account_of(struct hpmmap_payer *user,
					 struct hpmmap_payer *group,
					 struct hpmmap_tally *tally)
{
	struct hpmmap_account *fresh = kzalloc(sizeof(*fresh), GFP_KERNEL_ACCOUNT), *a;
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

/**
 * hpmmap_account_get_current() - the account for blocks that the caller gets now
 * @tally: tally of the job
 *
 * The current user ID and cgroup decide.
 *
 * Return: the account with a reference for the caller, or NULL if there is no memory.
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

/**
 * hpmmap_account_is_current() - would blocks that the caller gets now be charged to it?
 * @account: the account; a reference or RCU keeps it
 */
bool hpmmap_account_is_current(const struct hpmmap_account *account)
{
	struct cgroup *cgroup;
	bool ret;

	if (!uid_eq(account->user->uid, hpmmap_charged_uid()))
		return false;
	rcu_read_lock();
	cgroup = task_dfl_cgroup(current);
	ret = (cgroup->level ? cgroup : NULL) ==
	      (account->group ? account->group->cgroup : NULL);
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

/**
 * hpmmap_account_get() - get the account that a pointer points to
 * @from: the pointer, which holds a reference to its account
 *
 * Return: the account with a reference for the caller.
 */
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

/**
 * hpmmap_account_set() - let a pointer point to another account
 * @at: the pointer
 * @account: the new account, which gets a reference
 *
 * The reference to the old account is put.
 */
void hpmmap_account_set(struct hpmmap_account __rcu **at,
			struct hpmmap_account *account)
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

/**
 * hpmmap_account_charge() - charge blocks to an account
 * @account: the account; each block holds a reference to it from here on
 * @nr: number of blocks; the caller passes as many to hpmmap_account_tally(),
 *	hpmmap_account_tally_unused() or hpmmap_account_refund()
 *
 * Return: 0, or -ENOMEM if a limit forbids it.
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

/**
 * hpmmap_account_tally() - count charged blocks that were found
 * @account: the account
 * @nr: number of blocks
 * @spare: blocks of the account that the caller knows to be unused
 */
void hpmmap_account_tally(struct hpmmap_account *account, unsigned long nr,
			  unsigned long spare)
{
	atomic_long_add(nr, &account->tally->held);
	hpmmap_account_peak(account, spare);
}

/* The same for blocks that are given back at once or not in use: the peak does not change. */
void hpmmap_account_tally_unused(struct hpmmap_account *account,
				 unsigned long nr)
{
	atomic_long_add(nr, &account->tally->held);
}

/* Charges without regard to limits and the peak: the caller gives up as many next. */
void hpmmap_account_charge_anyway(struct hpmmap_account *account,
				  unsigned long nr)
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

/**
 * hpmmap_account_full() - is there a limit that forbids to charge blocks?
 * @account: the account
 * @nr: number of blocks
 *
 * Return: NULL if not, or the payer whose limit forbids it, which lives as long as the
 * account.
 */
struct hpmmap_payer *hpmmap_account_full(struct hpmmap_account *account,
					 unsigned long nr)
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

/* Do the account's blocks count for this payer? */
bool hpmmap_account_counts_for(struct hpmmap_account *account,
			       struct hpmmap_payer *payer)
{
	struct hpmmap_payer *p;

	for_each_payer(account, p)
		if (p == payer)
			return true;
	return false;
}

kuid_t hpmmap_account_uid(const struct hpmmap_account *account)
{
	return account->user->uid;
}

/* The number of jobs of its user. */
atomic_t *hpmmap_account_jobs(struct hpmmap_account *account)
{
	return &account->user->nr_jobs;
}

/* The number of these jobs that have no process. */
atomic_t *hpmmap_account_idle_jobs(struct hpmmap_account *account)
{
	return &account->user->nr_idle_jobs;
}
