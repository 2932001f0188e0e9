// SPDX-License-Identifier: GPL-2.0
/*
 * Payers: the users and cgroups that blocks count for, and how many they may hold.
 *
 * Pool memory is a resource of its own, as hugetlb's is. Cgroups are those of the
 * unified hierarchy, without its root.
 *
 * A payer exists while an account refers to it or it has a limit or a promise. Both end
 * with its cgroup.
 */
#include <linux/cgroup.h>
#include <linux/hashtable.h>
#include <linux/math64.h>
#include <linux/user_namespace.h>

#include "hpmmap.h"
#include "mem/block/nodes.h"
#include "mem/block/payer.h"

/* In blocks. */
#define LIMIT_NONE ULONG_MAX
#define LIMIT_DEFAULT (ULONG_MAX - 1)	/* follow default_limit */

/* Of cgroups below the root. */
#define MOST_LEVELS 64

/* The share of all pool memory that a user may hold unless a limit is set. */
#define DEFAULT_PERCENT 50

/* A user may have as many cgroups as jobs, and every call that gets blocks looks payers up here. */
static DEFINE_HASHTABLE(payers, 12);
static u32 nr_payers;
static LIST_HEAD(ruled_groups);
static unsigned int nr_ruled;
/* Protects all of these; references may become zero without it. */
static DEFINE_SPINLOCK(payers_lock);

static struct hpmmap_rule default_rule = { .percent = DEFAULT_PERCENT };
/* In blocks, from default_rule. */
static unsigned long default_limit;

static unsigned long payer_key(kuid_t uid, struct cgroup *cgroup)
{
	return cgroup ? (unsigned long)cgroup : __kuid_val(uid);
}

/* Returns the payer with a reference for the caller, or NULL. */
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

/* May be called with any spinlock held. Also puts the parents that it was the last reference to. */
void hpmmap_payer_put(struct hpmmap_payer *p)
{
	while (p && refcount_dec_and_test(&p->refs)) {
		struct hpmmap_payer *parent = p->parent;

		spin_lock(&payers_lock);
		hash_del(&p->node);
		WRITE_ONCE(nr_payers, nr_payers - 1);
		spin_unlock(&payers_lock);
		if (p->cgroup)
			cgroup_put(p->cgroup);
		hpmmap_payer_put(p->user);
		kfree_rcu(p, rcu);
		p = parent;
	}
}

/* In blocks. */
static unsigned long rule_limit(const struct hpmmap_rule *rule, unsigned long inherited)
{
	if (rule->percent)
		return div_u64((u64)hpmmap_pool_count_all(&node_states[N_POSSIBLE]) *
			       rule->percent, 100);
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
	WRITE_ONCE(p->limit, rule_limit(&p->rule, ordinary ? LIMIT_DEFAULT : LIMIT_NONE));
}

static bool is_ruled(const struct hpmmap_payer *p)
{
	return p->rule.percent || p->rule.value != HPMMAP_LIMIT_INHERIT;
}

/* Removes the payer's own limit; returns whether it had one. */
static bool rule_drop(struct hpmmap_payer *p)
{
	bool ret = is_ruled(p);

	lockdep_assert_held(&payers_lock);
	p->rule = (struct hpmmap_rule) { .value = HPMMAP_LIMIT_INHERIT };
	payer_update(p);
	if (!list_empty(&p->ruled)) {
		list_del_init(&p->ruled);
		WRITE_ONCE(nr_ruled, nr_ruled - 1);
	}
	return ret;
}

/*
 * The kernel does not tell when a cgroup ends. So each new payer looks at two cgroups with a limit,
 * and the limit of one that has ended goes.
 */
static void ruled_sweep(unsigned int nr)
{
	struct hpmmap_payer *p;

	while (nr--) {
		spin_lock(&payers_lock);
		p = list_first_entry_or_null(&ruled_groups, struct hpmmap_payer, ruled);
		if (p) {
			list_move_tail(&p->ruled, &ruled_groups);
			if (READ_ONCE(p->cgroup->self.flags) & CSS_ONLINE || !rule_drop(p))
				p = NULL;
		}
		spin_unlock(&payers_lock);
		hpmmap_payer_put(p);
	}
}

static struct hpmmap_payer *payer_alloc(kuid_t uid, struct hpmmap_payer *parent)
{
	struct hpmmap_payer *p;

	p = kzalloc(struct_size(p, claims, nr_node_ids), GFP_KERNEL_ACCOUNT);
	if (!p)
		return NULL;
	refcount_set(&p->refs, 1);
	INIT_LIST_HEAD(&p->ruled);
	INIT_LIST_HEAD(&p->promise);
	p->uid = uid;
	p->parent = parent;
	p->rule.value = HPMMAP_LIMIT_INHERIT;
	return p;
}

/* Makes the payer of a launch, for its promise only; returns NULL if there is no memory. */
struct hpmmap_payer *hpmmap_payer_get_launch(u64 launch, struct hpmmap_payer *user,
					     struct hpmmap_payer *group)
{
	struct hpmmap_payer *p = payer_alloc(user->uid, group);

	if (!p)
		return NULL;
	p->launch = launch;
	p->user = user;
	refcount_inc(&user->refs);
	if (group)
		refcount_inc(&group->refs);
	spin_lock(&payers_lock);
	WRITE_ONCE(nr_payers, nr_payers + 1);
	spin_unlock(&payers_lock);
	return p;
}

/*
 * Finds or makes a payer; takes over the caller's reference to @parent. Returns it with a reference
 * for the caller, or NULL if there is no memory.
 */
struct hpmmap_payer *hpmmap_payer_get(kuid_t uid, struct cgroup *cgroup,
				      struct hpmmap_payer *parent)
{
	struct hpmmap_payer *fresh = payer_alloc(uid, parent), *p;

	if (!fresh) {
		hpmmap_payer_put(parent);
		return NULL;
	}
	fresh->cgroup = cgroup;
	spin_lock(&payers_lock);
	p = payer_find(uid, cgroup);
	if (!p) {
		p = fresh;
		payer_update(p);
		if (cgroup)
			css_get(&cgroup->self);
		hash_add(payers, &p->node, payer_key(uid, cgroup));
		WRITE_ONCE(nr_payers, nr_payers + 1);
	}
	spin_unlock(&payers_lock);
	if (p != fresh) {
		kfree(fresh);
		hpmmap_payer_put(parent);
	} else if (cgroup) {
		ruled_sweep(2);
	}
	return p;
}

/* Makes the payers of its ancestors first. Not called for the root, which has no payer. */
struct hpmmap_payer *hpmmap_payer_get_group(struct cgroup *cgroup)
{
	struct hpmmap_payer *p = NULL;
	int level;

	for (level = 1; level <= cgroup->level; level++) {
		p = hpmmap_payer_get(INVALID_UID, cgroup_ancestor(cgroup, level), p);
		if (!p)
			return NULL;
	}
	return p;
}

/*
 * The cgroup that the caller's blocks are charged to, under RCU. In a deeper hierarchy that is an
 * ancestor of the caller's, as some counts visit all levels with spinlocks held.
 */
struct cgroup *hpmmap_current_cgroup(void)
{
	struct cgroup *cgroup = task_dfl_cgroup(current);

	return cgroup_ancestor(cgroup, min(cgroup->level, MOST_LEVELS));
}

/* The same, with a reference for the caller. */
struct cgroup *hpmmap_current_cgroup_get(void)
{
	struct cgroup *cgroup;

	rcu_read_lock();
	do {
		cgroup = hpmmap_current_cgroup();
		cpu_relax();
	} while (!css_tryget(&cgroup->self));
	rcu_read_unlock();
	return cgroup;
}

/*
 * The user of credentials. In a user namespace made by an ordinary user, the maker counts (with the
 * IDs of /etc/subuid a user would otherwise have many limits). In one that root has made, the ID in
 * the initial namespace counts.
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
 * The user that is charged is the owner of the process, not the user whose credentials the task has
 * taken on. For example, a read of an overlayfs has the credentials of the mounter while it faults
 * on the caller's memory. A worker of the kernel has the credentials of the time it was made, so
 * its process counts. So does that whose memory a thread of the kernel has, as vhost's before Linux
 * 6.4; where that has ended, a user that is nobody.
 */
kuid_t hpmmap_charged_uid(void)
{
	const struct task_struct *task = current;
	kuid_t uid;

	rcu_read_lock();
	if (compat_is_worker(current))
		task = current->group_leader;
	else if (current->flags & PF_KTHREAD && current->mm)
		task = rcu_dereference(current->mm->owner);
	uid = task ? uid_of(__task_cred(task)) : INVALID_UID;
	rcu_read_unlock();
	return uid;
}

/* In blocks. */
unsigned long hpmmap_payer_limit(const struct hpmmap_payer *p)
{
	unsigned long limit = READ_ONCE(p->limit);

	return limit == LIMIT_DEFAULT ? READ_ONCE(default_limit) : limit;
}

/* The number of blocks that its own limit still allows. */
unsigned long hpmmap_payer_room(struct hpmmap_payer *p)
{
	unsigned long limit = hpmmap_payer_limit(p);
	unsigned long held = atomic_long_read(&p->held);

	return limit - min(held, limit);
}

/* Charges blocks, unless the payer's own limit forbids it. */
bool hpmmap_payer_charge(struct hpmmap_payer *p, unsigned long nr)
{
	unsigned long limit = hpmmap_payer_limit(p);
	long held = atomic_long_read(&p->held);

	do {
		if (held > limit || nr > limit - held)
			return false;
	} while (!atomic_long_try_cmpxchg(&p->held, &held, held + nr));
	return true;
}

/* Whose limit it is; the caller refers to an account of @payer. @id: out: of the cgroup, if it is one. */
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
static void payer_rule(struct hpmmap_payer *p, const struct hpmmap_rule *rule)
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
		hpmmap_payer_put(p);
}

/*
 * The payer that a command names, with a reference for the caller, or an errno of
 * HPMMAP_IOC_LIMIT_SET. @flags: HPMMAP_LIMIT_F_CGROUP, with the directory @fd; or 0 for a user.
 */
struct hpmmap_payer *hpmmap_payer_get_named(u32 flags, u32 uid, int fd)
{
	struct hpmmap_payer *p = ERR_PTR(-EINVAL);
	struct cgroup *cgroup;

	if (!(flags & HPMMAP_LIMIT_F_CGROUP))
		return hpmmap_payer_get(make_kuid(&init_user_ns, uid), NULL, NULL) ?:
		       ERR_PTR(-ENOMEM);
	cgroup = cgroup_get_from_fd(fd);
	if (IS_ERR(cgroup))
		return ERR_PTR(PTR_ERR(cgroup) == -ENOENT ? -ENOENT : -EBADF);
	if (cgroup->level && cgroup->level <= MOST_LEVELS)
		p = hpmmap_payer_get_group(cgroup) ?: ERR_PTR(-ENOMEM);
	cgroup_put(cgroup);
	return p;
}

/*
 * Sets the limit of a user or a cgroup, as a checked @arg says. Returns 0 or an errno of
 * HPMMAP_IOC_LIMIT_SET.
 */
int hpmmap_limit_set(const struct hpmmap_limit_set *arg)
{
	bool percent = arg->flags & HPMMAP_LIMIT_F_PERCENT;
	struct hpmmap_rule rule = {
		.value = percent ? 0 : arg->bytes,
		.percent = percent ? arg->bytes : 0,
	};
	struct hpmmap_payer *p;

	if (!(arg->flags & HPMMAP_LIMIT_F_DEFAULT)) {
		p = hpmmap_payer_get_named(arg->flags, arg->uid, arg->cgroup_fd);
		if (IS_ERR(p))
			return PTR_ERR(p);
		payer_rule(p, &rule);
		return 0;
	}
	spin_lock(&payers_lock);
	default_rule = rule;
	WRITE_ONCE(default_limit, rule_limit(&rule, LIMIT_NONE));
	spin_unlock(&payers_lock);
	return 0;
}

/*
 * Calls @chain for each chain of payers, under payers_lock. Launches and forks of all users wait
 * for that lock, so it is released between chains.
 */
static void for_each_chain(void (*chain)(struct hlist_head *head, void *data), void *data)
{
	unsigned int bkt;

	for (bkt = 0; bkt < HASH_SIZE(payers); bkt++) {
		if (hlist_empty(&payers[bkt]))
			continue;
		spin_lock(&payers_lock);
		chain(&payers[bkt], data);
		spin_unlock(&payers_lock);
		cond_resched();
	}
}

static void chain_update(struct hlist_head *head, void *data)
{
	struct hpmmap_payer *p;

	hlist_for_each_entry(p, head, node)
		payer_update(p);
}

/* Updates the limits after the pools have become larger or smaller. May sleep. */
void hpmmap_limits_update(void)
{
	spin_lock(&payers_lock);
	WRITE_ONCE(default_limit, rule_limit(&default_rule, LIMIT_NONE));
	spin_unlock(&payers_lock);
	for_each_chain(chain_update, NULL);
}

/* In bytes; 0: there is no default limit. */
u64 hpmmap_limit_default(void)
{
	unsigned long limit = READ_ONCE(default_limit);

	return limit == LIMIT_NONE ? 0 : (u64)limit << SLOT_SHIFT;
}

static u64 limit_bytes(unsigned long limit)
{
	return limit == LIMIT_NONE ? HPMMAP_LIMIT_NONE : (u64)limit << SLOT_SHIFT;
}

static void entry_fill(struct hpmmap_limit_entry *entry, const struct hpmmap_rule *rule)
{
	entry->rule = rule->percent ?: rule->value;
	if (rule->percent)
		entry->flags |= HPMMAP_LIMIT_F_PERCENT;
}

/* A list of limits. */
struct listing {
	struct hpmmap_limit_entry *entries;	/* array for the list */
	u32 room;				/* its length */
	u32 nr;					/* number of limits, which may exceed @room */
};

static struct hpmmap_limit_entry *entry_next(struct listing *list)
{
	return list->nr++ < list->room ? &list->entries[list->nr - 1] : NULL;
}

static void list_default(struct listing *list)
{
	struct hpmmap_limit_entry *entry = entry_next(list);

	if (!entry)
		return;
	spin_lock(&payers_lock);
	entry->flags = HPMMAP_LIMIT_F_DEFAULT;
	entry->limit_bytes = limit_bytes(default_limit);
	entry_fill(entry, &default_rule);
	spin_unlock(&payers_lock);
}

static void list_payer(struct listing *list, struct hpmmap_payer *p)
{
	struct hpmmap_limit_entry *entry = entry_next(list);

	lockdep_assert_held(&payers_lock);
	if (!entry)
		return;
	if (p->cgroup) {
		entry->flags = HPMMAP_LIMIT_F_CGROUP;
		entry->cgroup_id = cgroup_id(p->cgroup);
	} else {
		entry->uid = from_kuid(&init_user_ns, p->uid);
	}
	entry->limit_bytes = limit_bytes(hpmmap_payer_limit(p));
	entry->held_bytes = (u64)atomic_long_read(&p->held) << SLOT_SHIFT;
	entry_fill(entry, &p->rule);
}

static void chain_list(struct hlist_head *head, void *data)
{
	struct hpmmap_payer *p;

	hlist_for_each_entry(p, head, node)
		list_payer(data, p);
}

/*
 * Lists the limits shown to callers that may not set any: the caller's own limits, and those of the
 * cgroup @own and its ancestors.
 */
static void list_own(struct listing *list, struct cgroup *own)
{
	int level;

	for (level = 0; level <= own->level; level++) {
		struct cgroup *cgroup = level ? cgroup_ancestor(own, level) : NULL;
		kuid_t uid = cgroup ? INVALID_UID : hpmmap_charged_uid();
		struct hpmmap_payer *p;

		spin_lock(&payers_lock);
		p = payer_find(uid, cgroup);
		if (p)
			list_payer(list, p);
		spin_unlock(&payers_lock);
		hpmmap_payer_put(p);
	}
}

/*
 * Copies the list of limits to user space: the caller's, or @all. @nr: in: room for as many
 * @entries; out: how many there are. Returns 0, -ENOMEM or -EFAULT.
 */
int hpmmap_limit_list(struct hpmmap_limit_entry __user *entries, u32 *nr, bool all)
{
	struct cgroup *own = hpmmap_current_cgroup_get();
	struct listing list = {};
	u32 room = *nr;
	int ret = 0;

	if (all)
		ruled_sweep(READ_ONCE(nr_ruled));
	list.room = min(room, 1 + (all ? READ_ONCE(nr_payers) : 1 + (u32)own->level));
	list.entries = kvcalloc(list.room, sizeof(*list.entries), GFP_KERNEL);
	if (!list.entries && list.room) {
		ret = -ENOMEM;
		goto out;
	}
	list_default(&list);
	if (all)
		for_each_chain(chain_list, &list);
	else
		list_own(&list, own);
	/* If the caller had room, limits that were set meanwhile are left out. */
	*nr = list.room < room ? min(list.room, list.nr) : list.nr;
	list.room = min(list.room, list.nr);
	if (list.room && copy_to_user(entries, list.entries, list.room * sizeof(*list.entries)))
		ret = -EFAULT;
	kvfree(list.entries);
out:
	cgroup_put(own);
	return ret;
}

/* No account is left, so all remaining payers have a limit. */
void hpmmap_limits_exit(void)
{
	struct hpmmap_rule none = { .value = HPMMAP_LIMIT_INHERIT };
	struct hpmmap_payer *p;
	struct hlist_node *tmp;
	int bkt;

	/* Freeing a cgroup's payer may free its parent's, so the walk starts anew. */
restart:
	hash_for_each_safe(payers, bkt, tmp, p, node) {
		if (!is_ruled(p))
			continue;
		refcount_inc(&p->refs);
		payer_rule(p, &none);
		goto restart;
	}
}
