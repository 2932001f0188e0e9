// SPDX-License-Identifier: GPL-2.0
/*
 * Accounts: who is charged for blocks, and how much they may hold.
 *
 * Pool memory is a resource of its own, as hugetlb's is. Payers are users, and
 * cgroups of the unified hierarchy but for its root. An account is one user
 * and one cgroup; what is charged to it counts for both, and for all cgroups
 * above. Which it is is asked whenever an address space gets blocks (as/reserve.c);
 * a block stays charged to who got it, and so does what takes its place, whoever has
 * it in the end.
 *
 * A payer is there as long as somebody is charged, runs in it or has given it a
 * limit. A limit goes with its cgroup.
 *
 * An account also belongs to a tally, that of a job: what is charged to all of its
 * accounts, each block once, and the most that it ever was. Its line is written to
 * where those of the payers are, which are shared by as many.
 */
#include <linux/cgroup.h>
#include <linux/cred.h>
#include <linux/hashtable.h>
#include <linux/math64.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/uaccess.h>
#include <linux/user_namespace.h>

#include "hpmmap.h"
#include "mem/account.h"
#include "mem/nodes.h"

/* In blocks. */
#define LIMIT_NONE ULONG_MAX
#define LIMIT_DEFAULT (ULONG_MAX - 1)	/* follow default_limit */

/* Of all pool memory, what a user may hold where nothing else was said. */
#define DEFAULT_PERCENT 50

/**
 * struct rule - a limit as it was set
 * @value: bytes, HPMMAP_LIMIT_NONE or HPMMAP_LIMIT_INHERIT
 * @percent: or rather, if not 0, a share of all pool memory
 */
struct rule {
	u64 value;
	unsigned int percent;
};

/**
 * struct hpmmap_payer - a user or a cgroup
 * @refs: accounts, cgroups below, and the table if there is a rule
 * @node: in the table
 * @ruled: in the list of cgroups with a rule
 * @parent: the cgroup above, unless that is the root; holds a reference
 * @cgroup: holds a reference; NULL for a user
 * @uid: of a user
 * @held: blocks charged
 * @limit: what follows from @rule
 * @rule: protected by payers_lock
 * @nr_jobs: jobs of a user, those included that only a file keeps
 */
struct hpmmap_payer {
	refcount_t refs;
	struct hlist_node node;
	struct list_head ruled;
	struct hpmmap_payer *parent;
	struct cgroup *cgroup;
	kuid_t uid;
	atomic_long_t held;
	unsigned long limit;
	struct rule rule;
	atomic_t nr_jobs;
};

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

static DEFINE_HASHTABLE(payers, 8);
static DEFINE_HASHTABLE(accounts, 8);
static LIST_HEAD(ruled_groups);
static unsigned int nr_ruled;
/* Protects all of these; references may go to zero without it. */
static DEFINE_SPINLOCK(payers_lock);

static struct rule default_rule = { .percent = DEFAULT_PERCENT };
/* What follows from it. */
static unsigned long default_limit;

static unsigned long payer_key(kuid_t uid, struct cgroup *cgroup)
{
	return cgroup ? (unsigned long)cgroup : __kuid_val(uid);
}

/* With a reference for the caller, or NULL. */
static struct hpmmap_payer *payer_find(kuid_t uid, struct cgroup *cgroup)
{
	struct hpmmap_payer *p;

	lockdep_assert_held(&payers_lock);
	hash_for_each_possible(payers, p, node, payer_key(uid, cgroup))
		if (p->cgroup == cgroup && (cgroup || uid_eq(p->uid, uid)) &&
		    refcount_inc_not_zero(&p->refs))
			return p;
	return NULL;
}

static void payer_put(struct hpmmap_payer *p)
{
	while (p && refcount_dec_and_test(&p->refs)) {
		struct hpmmap_payer *parent = p->parent;

		spin_lock(&payers_lock);
		hash_del(&p->node);
		spin_unlock(&payers_lock);
		if (p->cgroup)
			cgroup_put(p->cgroup);
		kfree(p);
		p = parent;
	}
}

/* In blocks. */
static unsigned long rule_limit(const struct rule *rule, unsigned long inherited)
{
	if (rule->percent)
		return div_u64((u64)hpmmap_pool_count_all() * rule->percent, 100);
	switch (rule->value) {
	case HPMMAP_LIMIT_NONE:
		return LIMIT_NONE;
	case HPMMAP_LIMIT_INHERIT:
		return inherited;
	default:
		return rule->value >> SLOT_SHIFT;
	}
}

static void payer_update(struct hpmmap_payer *p)
{
	bool ordinary = !p->cgroup && !uid_eq(p->uid, GLOBAL_ROOT_UID);

	lockdep_assert_held(&payers_lock);
	WRITE_ONCE(p->limit, rule_limit(&p->rule, ordinary ? LIMIT_DEFAULT :
							     LIMIT_NONE));
}

static bool is_ruled(const struct hpmmap_payer *p)
{
	return p->rule.percent || p->rule.value != HPMMAP_LIMIT_INHERIT;
}

/* The payer has a limit of its own no more; returns whether it had. */
static bool rule_drop(struct hpmmap_payer *p)
{
	bool ret = is_ruled(p);

	lockdep_assert_held(&payers_lock);
	p->rule = (struct rule) { .value = HPMMAP_LIMIT_INHERIT };
	payer_update(p);
	if (!list_empty(&p->ruled)) {
		list_del_init(&p->ruled);
		WRITE_ONCE(nr_ruled, nr_ruled - 1);
	}
	return ret;
}

/*
 * Linux tells nobody of the end of a cgroup. So with each that comes two are
 * looked at that have a limit, and in the end it goes with them.
 */
static void ruled_sweep(unsigned int nr)
{
	struct hpmmap_payer *p;

	while (nr--) {
		spin_lock(&payers_lock);
		p = list_first_entry_or_null(&ruled_groups, struct hpmmap_payer,
					     ruled);
		if (p) {
			list_move_tail(&p->ruled, &ruled_groups);
			if (READ_ONCE(p->cgroup->self.flags) & CSS_ONLINE ||
			    !rule_drop(p))
				p = NULL;
		}
		spin_unlock(&payers_lock);
		payer_put(p);
	}
}

/*
 * Made if there is none; takes over the caller's reference to @parent. With a
 * reference for the caller; NULL without memory.
 */
static struct hpmmap_payer *payer_get(kuid_t uid, struct cgroup *cgroup,
				      struct hpmmap_payer *parent)
{
	struct hpmmap_payer *fresh = kzalloc(sizeof(*fresh), GFP_KERNEL), *p;

	if (!fresh) {
		payer_put(parent);
		return NULL;
	}
	refcount_set(&fresh->refs, 1);
	INIT_LIST_HEAD(&fresh->ruled);
	fresh->uid = uid;
	fresh->cgroup = cgroup;
	fresh->parent = parent;
	fresh->rule.value = HPMMAP_LIMIT_INHERIT;

	spin_lock(&payers_lock);
	p = payer_find(uid, cgroup);
	if (!p) {
		p = fresh;
		payer_update(p);
		if (cgroup)
			css_get(&cgroup->self);
		hash_add(payers, &p->node, payer_key(uid, cgroup));
	}
	spin_unlock(&payers_lock);
	if (p != fresh) {
		kfree(fresh);
		payer_put(parent);
	} else if (cgroup) {
		ruled_sweep(2);
	}
	return p;
}

/* Those above it first. The root, for which there is none, is not asked for. */
static struct hpmmap_payer *group_get(struct cgroup *cgroup)
{
	struct hpmmap_payer *p = NULL;
	int level;

	for (level = 1; level <= cgroup->level; level++) {
		p = payer_get(INVALID_UID, cgroup_ancestor(cgroup, level), p);
		if (!p)
			return NULL;
	}
	return p;
}

/* With a reference for the caller. */
static struct cgroup *current_cgroup_get(void)
{
	struct cgroup *cgroup;

	rcu_read_lock();
	do {
		cgroup = task_dfl_cgroup(current);
		cpu_relax();
	} while (!css_tryget(&cgroup->self));
	rcu_read_unlock();
	return cgroup;
}

/*
 * Who somebody is. In a user namespace that somebody has made for himself, with
 * user IDs of /etc/subuid say, that is who made it: otherwise a limit would be
 * as many as he has IDs. Where root has made it, it is the ID there.
 */
static kuid_t uid_of(const struct cred *cred)
{
	struct user_namespace *ns = cred->user_ns;

	if (ns == &init_user_ns)
		return cred->uid;
	while (ns->parent != &init_user_ns)
		ns = ns->parent;
	return uid_eq(ns->owner, GLOBAL_ROOT_UID) ? cred->uid : ns->owner;
}

/*
 * Who is charged: whose process it is, not in whose name it does something at this
 * moment. A read of an overlayfs is done with the credentials of who has mounted it,
 * and the memory it goes to is touched meanwhile. The kernel's own threads of a
 * process have those of the moment in which they were made.
 */
static kuid_t charged_uid(void)
{
	kuid_t uid;

	if (likely(!compat_is_worker(current)))
		return uid_of(current_real_cred());
	rcu_read_lock();
	uid = uid_of(__task_cred(current->group_leader));
	rcu_read_unlock();
	return uid;
}

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
	struct hpmmap_account *fresh = kzalloc(sizeof(*fresh), GFP_KERNEL), *a;
	unsigned long key = (unsigned long)user ^ (unsigned long)group ^
			    (unsigned long)tally;

	if (!fresh)
		goto out;
	refcount_set(&fresh->refs, 1);
	fresh->user = user;
	fresh->group = group;
	spin_lock(&payers_lock);
	hash_for_each_possible(accounts, a, node, key)
		if (a->user == user && a->group == group && a->tally == tally &&
		    refcount_inc_not_zero(&a->refs))
			goto found;
	refcount_inc(&tally->refs);
	fresh->tally = tally;
	hash_add(accounts, &fresh->node, key);
	spin_unlock(&payers_lock);
	return fresh;

found:
	spin_unlock(&payers_lock);
	kfree(fresh);
	fresh = a;
out:
	payer_put(user);
	payer_put(group);
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
	struct cgroup *cgroup = current_cgroup_get();
	struct hpmmap_payer *user, *group = NULL;
	struct hpmmap_account *ret = NULL;

	user = payer_get(charged_uid(), NULL, NULL);
	if (!user)
		goto out;
	if (cgroup->level) {
		group = group_get(cgroup);
		if (!group) {
			payer_put(user);
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
 * @account: the account
 */
bool hpmmap_account_is_current(const struct hpmmap_account *account)
{
	struct cgroup *cgroup;
	bool ret;

	if (!uid_eq(account->user->uid, charged_uid()))
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
	spin_lock(&payers_lock);
	hash_del(&account->node);
	spin_unlock(&payers_lock);
	payer_put(account->user);
	payer_put(account->group);
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

static unsigned long limit_of(struct hpmmap_payer *p)
{
	unsigned long limit = READ_ONCE(p->limit);

	return limit == LIMIT_DEFAULT ? READ_ONCE(default_limit) : limit;
}

static bool payer_charge(struct hpmmap_payer *p, unsigned long nr)
{
	unsigned long limit = limit_of(p);
	long held = atomic_long_read(&p->held);

	do {
		if (held > limit || nr > limit - held)
			return false;
	} while (!atomic_long_try_cmpxchg(&p->held, &held, held + nr));
	return true;
}

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
		if (!payer_charge(p, nr))
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

/**
 * hpmmap_account_tally() - blocks that were charged have been found
 * @account: the account
 * @nr: how many
 */
void hpmmap_account_tally(struct hpmmap_account *account, unsigned long nr)
{
	struct hpmmap_tally *t = account->tally;
	long held = atomic_long_add_return(nr, &t->held);
	long peak = atomic_long_read(&t->peak);

	while (held > peak && !atomic_long_try_cmpxchg(&t->peak, &peak, held))
		;
}

/* The same where they are given back at once: no peak. */
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

	for_each_payer(account, p) {
		unsigned long limit = limit_of(p);
		unsigned long held = atomic_long_read(&p->held);

		if (held > limit || nr > limit - held)
			return p;
	}
	return NULL;
}

/* How many blocks could be charged to an account, as far as limits go? */
unsigned long hpmmap_account_room(struct hpmmap_account *account)
{
	unsigned long room = ULONG_MAX;
	struct hpmmap_payer *p;

	for_each_payer(account, p) {
		unsigned long limit = limit_of(p);
		unsigned long held = atomic_long_read(&p->held);

		room = min(room, limit - min(held, limit));
	}
	return room;
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

/**
 * hpmmap_payer_kind() - whose limit it is
 * @payer: of an account that the caller refers to
 * @id: out: number of a cgroup
 */
enum hpmmap_limited hpmmap_payer_kind(struct hpmmap_payer *payer, u64 *id)
{
	if (payer->cgroup) {
		*id = cgroup_id(payer->cgroup);
		return HPMMAP_LIMITED_CGROUP;
	}
	return READ_ONCE(payer->limit) == LIMIT_DEFAULT ?
	       HPMMAP_LIMITED_DEFAULT : HPMMAP_LIMITED_USER;
}

/* Takes over the caller's reference. */
static void payer_rule(struct hpmmap_payer *p, const struct rule *rule)
{
	unsigned int refs = 1;

	spin_lock(&payers_lock);
	/* The table's reference. */
	refs += rule_drop(p);
	p->rule = *rule;
	payer_update(p);
	if (is_ruled(p)) {
		refs--;
		if (p->cgroup) {
			list_add_tail(&p->ruled, &ruled_groups);
			WRITE_ONCE(nr_ruled, nr_ruled + 1);
		}
	}
	spin_unlock(&payers_lock);
	while (refs--)
		payer_put(p);
}

static int cgroup_rule(int fd, const struct rule *rule)
{
	struct cgroup *cgroup = cgroup_get_from_fd(fd);
	struct hpmmap_payer *p;
	int ret = -EINVAL;

	if (IS_ERR(cgroup))
		return PTR_ERR(cgroup) == -ENOENT ? -ENOENT : -EBADF;
	if (cgroup->level) {
		p = group_get(cgroup);
		ret = p ? 0 : -ENOMEM;
		if (p)
			payer_rule(p, rule);
	}
	cgroup_put(cgroup);
	return ret;
}

static int user_rule(kuid_t uid, const struct rule *rule)
{
	struct hpmmap_payer *p = payer_get(uid, NULL, NULL);

	if (!p)
		return -ENOMEM;
	payer_rule(p, rule);
	return 0;
}

/**
 * hpmmap_limit_set() - set how much somebody may hold
 * @arg: what was asked for; checked
 *
 * Return: 0 or an errno of HPMMAP_IOC_LIMIT_SET.
 */
int hpmmap_limit_set(const struct hpmmap_limit_set *arg)
{
	bool percent = arg->flags & HPMMAP_LIMIT_F_PERCENT;
	struct rule rule = {
		.value = percent ? 0 : arg->bytes,
		.percent = percent ? arg->bytes : 0,
	};

	if (arg->flags & HPMMAP_LIMIT_F_CGROUP)
		return cgroup_rule(arg->cgroup_fd, &rule);
	if (!(arg->flags & HPMMAP_LIMIT_F_DEFAULT))
		return user_rule(make_kuid(&init_user_ns, arg->uid), &rule);
	spin_lock(&payers_lock);
	default_rule = rule;
	WRITE_ONCE(default_limit, rule_limit(&rule, LIMIT_NONE));
	spin_unlock(&payers_lock);
	return 0;
}

/* The pools have become larger or smaller. */
void hpmmap_limits_update(void)
{
	struct hpmmap_payer *p;
	int bkt;

	spin_lock(&payers_lock);
	WRITE_ONCE(default_limit, rule_limit(&default_rule, LIMIT_NONE));
	hash_for_each(payers, bkt, p, node)
		payer_update(p);
	spin_unlock(&payers_lock);
}

/* In bytes; 0 where there is none. */
u64 hpmmap_limit_default(void)
{
	unsigned long limit = READ_ONCE(default_limit);

	return limit == LIMIT_NONE ? 0 : (u64)limit << SLOT_SHIFT;
}

static u64 limit_bytes(unsigned long limit)
{
	return limit == LIMIT_NONE ? HPMMAP_LIMIT_NONE : (u64)limit << SLOT_SHIFT;
}

static void entry_fill(struct hpmmap_limit_entry *entry, const struct rule *rule)
{
	entry->rule = rule->percent ?: rule->value;
	if (rule->percent)
		entry->flags |= HPMMAP_LIMIT_F_PERCENT;
}

/* Others' limits are not shown to who may not set them. */
static bool may_see(struct hpmmap_payer *p, struct cgroup *own, bool all)
{
	if (all)
		return true;
	return p->cgroup ? cgroup_is_descendant(own, p->cgroup) :
			   uid_eq(p->uid, charged_uid());
}

/* Fills @room entries; returns how many there are. */
static u32 entries_fill(struct hpmmap_limit_entry *entries, u32 room,
			struct cgroup *own, bool all)
{
	struct hpmmap_payer *p;
	u32 n = 0;
	int bkt;

	spin_lock(&payers_lock);
	if (n++ < room) {
		entries[0].flags = HPMMAP_LIMIT_F_DEFAULT;
		entries[0].limit_bytes = limit_bytes(default_limit);
		entry_fill(&entries[0], &default_rule);
	}
	hash_for_each(payers, bkt, p, node) {
		if (!may_see(p, own, all) || n++ >= room)
			continue;
		if (p->cgroup) {
			entries[n - 1].flags = HPMMAP_LIMIT_F_CGROUP;
			entries[n - 1].cgroup_id = cgroup_id(p->cgroup);
		} else {
			entries[n - 1].uid = from_kuid(&init_user_ns, p->uid);
		}
		entries[n - 1].limit_bytes = limit_bytes(limit_of(p));
		entries[n - 1].held_bytes =
			(u64)atomic_long_read(&p->held) << SLOT_SHIFT;
		entry_fill(&entries[n - 1], &p->rule);
	}
	spin_unlock(&payers_lock);
	return n;
}

/**
 * hpmmap_limit_list() - copy the list of limits to user space
 * @entries: array of user space
 * @nr: in: its length; out: number of entries there are
 * @all: those of others, too
 *
 * Return: 0, -ENOMEM or -EFAULT.
 */
int hpmmap_limit_list(struct hpmmap_limit_entry __user *entries, u32 *nr,
		      bool all)
{
	struct cgroup *own = current_cgroup_get();
	struct hpmmap_limit_entry *buf;
	u32 room = *nr;
	int ret = 0;

	if (all)
		ruled_sweep(READ_ONCE(nr_ruled));
	room = min(room, entries_fill(NULL, 0, own, all));
	buf = kvcalloc(room, sizeof(*buf), GFP_KERNEL);
	if (!buf && room) {
		ret = -ENOMEM;
		goto out;
	}
	*nr = entries_fill(buf, room, own, all);
	room = min(room, *nr);
	if (room && copy_to_user(entries, buf, room * sizeof(*buf)))
		ret = -EFAULT;
	kvfree(buf);
out:
	cgroup_put(own);
	return ret;
}

/* Nobody is charged any more: what is left has a limit. */
void hpmmap_accounts_exit(void)
{
	struct rule none = { .value = HPMMAP_LIMIT_INHERIT };
	struct hpmmap_payer *p;
	struct hlist_node *tmp;
	int bkt;

	/* A cgroup may be freed with one below it. */
restart:
	hash_for_each_safe(payers, bkt, tmp, p, node) {
		if (!is_ruled(p))
			continue;
		refcount_inc(&p->refs);
		payer_rule(p, &none);
		goto restart;
	}
}
