// SPDX-License-Identifier: GPL-2.0
/*
 * Accounts: who is charged for blocks.
 *
 * An account is one user and one cgroup; what is charged to it counts for both, and
 * for all cgroups above (mem/block/payer.c). Which it is is asked whenever an address space
 * gets blocks (as/own/reserve.c); a block stays charged to who got it, and so does what
 * takes its place, whoever has it in the end.
 *
 * An account also belongs to a tally, that of a job: what is charged to all of its
 * accounts, each block once, and the most that it ever was. Its line is written to
 * where those of the payers are, which are shared by as many.
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
 * @refs: contexts, jobs, and blocks charged to it
 * @node: in the table
 * @user: holds a reference
 * @group: the same; NULL for the root of the hierarchy
 * @tally: holds a reference
 * @rcu: it may be looked for where it was found, see hpmmap_account_get()
 */
struct hpmmap_account {
	refcount_t refs;
	struct hlist_node node;
	struct hpmmap_payer *user;
	struct hpmmap_payer *group;
	struct hpmmap_tally *tally;
	struct rcu_head rcu;
};

/* As many as there are users, cgroups and jobs; everybody looks one up here. */
static DEFINE_HASHTABLE(accounts, 12);
/* Protects it; references may go to zero without it. */
static DEFINE_SPINLOCK(accounts_lock);

/**
 * hpmmap_tally_alloc() - a tally of nothing
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

/* With any spinlock held. */
void hpmmap_tally_put(struct hpmmap_tally *t)
{
	if (refcount_dec_and_test(&t->refs))
		kfree(t);
}

/* Takes over the caller's references to payers; NULL without memory. */
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
 * hpmmap_account_get_current() - who is charged for what the caller gets
 * @tally: of the job it is for
 *
 * By its user ID and its cgroup as they are now.
 *
 * Return: the account with a reference for the caller, or NULL without memory.
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
 * hpmmap_account_is_current() - would what the caller gets be charged to an account?
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
 * hpmmap_account_get() - the account that is somewhere
 * @from: where; it has a reference to each that comes there, as long as it is there
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
 * hpmmap_account_set() - another account for somewhere
 * @at: where
 * @account: gets a reference for it
 *
 * That to the old one is put.
 */
void hpmmap_account_set(struct hpmmap_account __rcu **at,
			struct hpmmap_account *account)
{
	refcount_inc(&account->refs);
	hpmmap_account_put(unrcu_pointer(xchg(at, RCU_INITIALIZER(account))));
}

/* Whose account it is that is somewhere. */
kuid_t hpmmap_account_uid_at(struct hpmmap_account __rcu *const *from)
{
	struct hpmmap_account *account = hpmmap_account_get(from);
	kuid_t uid = account->user->uid;

	hpmmap_account_put(account);
	return uid;
}

/* With any spinlock held. */
void hpmmap_account_put(struct hpmmap_account *account)
{
	account_put_many(account, 1);
}

/* The user, the cgroup, and those above it. */
#define for_each_payer(_account, _p) \
	for (_p = (_account)->user; _p; \
	     _p = _p->cgroup ? _p->parent : (_account)->group)

/**
 * hpmmap_account_charge() - charge blocks to an account
 * @account: the account; each of the blocks refers to it from here on
 * @nr: how many; as many are to be given to hpmmap_account_tally(),
 *	hpmmap_account_tally_unused() or hpmmap_account_refund()
 *
 * Return: 0, or -ENOMEM where a limit does not allow it.
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

/* A job has, or had a moment ago, what its tally says, and @spare of that were not in use. */
void hpmmap_account_peak(struct hpmmap_account *account, unsigned long spare)
{
	struct hpmmap_tally *t = account->tally;
	long held = atomic_long_read(&t->held) - (long)spare;
	long peak = atomic_long_read(&t->peak);

	while (held > peak && !atomic_long_try_cmpxchg(&t->peak, &peak, held))
		;
}

/**
 * hpmmap_account_tally() - blocks that were charged have been found
 * @account: the account
 * @nr: how many
 * @spare: how many it has that are not in use, for all that the caller knows
 */
void hpmmap_account_tally(struct hpmmap_account *account, unsigned long nr,
			  unsigned long spare)
{
	atomic_long_add(nr, &account->tally->held);
	hpmmap_account_peak(account, spare);
}

/* The same where they are given back at once, or not in use: no peak. */
void hpmmap_account_tally_unused(struct hpmmap_account *account,
				 unsigned long nr)
{
	atomic_long_add(nr, &account->tally->held);
}

/* Without asking for limits: as many are given up next, so this is no peak. */
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

/* Blocks that were charged and not found. */
void hpmmap_account_refund(struct hpmmap_account *account, unsigned long nr)
{
	struct hpmmap_payer *p;

	for_each_payer(account, p)
		atomic_long_sub(nr, &p->held);
	account_put_many(account, nr);
}

/* With any spinlock held; the account may be gone afterwards. */
void hpmmap_account_uncharge(struct hpmmap_account *account, unsigned long nr)
{
	if (!nr)
		return;
	atomic_long_sub(nr, &account->tally->held);
	hpmmap_account_refund(account, nr);
}

/**
 * hpmmap_account_full() - could so many blocks be charged?
 * @account: to this account
 * @nr: how many
 *
 * Return: NULL if so, or the payer whose limit is in the way; it stays as long as
 * the account.
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

/* How many blocks could be charged to an account, as far as limits go? */
unsigned long hpmmap_account_room(struct hpmmap_account *account)
{
	unsigned long room = ULONG_MAX;
	struct hpmmap_payer *p;

	for_each_payer(account, p)
		room = min(room, hpmmap_payer_room(p));
	return room;
}

/* The least of its limits, in blocks. */
unsigned long hpmmap_account_limit(const struct hpmmap_account *account)
{
	unsigned long limit = ULONG_MAX;
	struct hpmmap_payer *p;

	for_each_payer(account, p)
		limit = min(limit, hpmmap_payer_limit(p));
	return limit;
}

/* Does an account's memory count for a payer? */
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

/* How many jobs its user has. */
atomic_t *hpmmap_account_jobs(struct hpmmap_account *account)
{
	return &account->user->nr_jobs;
}

/* How many of them have no process. */
atomic_t *hpmmap_account_idle_jobs(struct hpmmap_account *account)
{
	return &account->user->nr_idle_jobs;
}
