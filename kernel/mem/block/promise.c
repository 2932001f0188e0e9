// SPDX-License-Identifier: GPL-2.0
/*
 * Promises: setting and clearing them. account.c keeps them.
 */
#include <linux/cgroup.h>

#include "hpmmap.h"
#include "mem/block/account.h"
#include "mem/block/node.h"
#include "mem/block/payer.h"
#include "mem/block/promise.h"

/* Payers with a promise; each entry holds a reference. */
static LIST_HEAD(promised);
/*
 * Protects the list, and orders changes. Requests for blocks wait for it: nothing is taken back,
 * and no memory of users touched, with it held.
 */
static DEFINE_MUTEX(promises_mutex);

/*
 * Promises a payer @nr blocks of a node in all. Returns @nr, or how many can be kept, and then
 * nothing has changed; @own: out of promises that it is within. With @dry nothing changes.
 */
static unsigned long promise(struct hpmmap_payer *p, int nid, unsigned long nr, bool own, bool dry)
{
	struct pool_node *pn = pool_node_find(nid);
	struct hpmmap_claim *c = &p->claims[nid];
	unsigned long before, lack = 0;
	long most, after;

	lockdep_assert_held(&promises_mutex);
	if (!pn)
		return 0;
	spin_lock(&pn->lock);
	/* There is nothing to take it out of. */
	if (own && !pn->nr_promises) {
		spin_unlock(&pn->lock);
		return 0;
	}
	before = c->promised;
	most = nr_for_promises(pn);
	if (own)
		most = min(most, pn->unclaimed);
	c->promised = nr;
	hpmmap_accounts_recount(nid, &promised);
	/* What the launch holds hides its promise only until it is given up. */
	after = pn->unclaimed + (own ? min_t(long, c->held, nr) : 0);
	if (nr > before && after > most)
		lack = min_t(unsigned long, nr, after - most);
	if (lack || dry) {
		c->promised = before;
		hpmmap_accounts_recount(nid, &promised);
	}
	spin_unlock(&pn->lock);
	return nr - lack;
}

/* What launches were promised out of a promise of a node, which becomes less, is promised no more. */
static void launches_end(const struct hpmmap_payer *of, int nid)
{
	struct hpmmap_payer *p;

	list_for_each_entry(p, &promised, promise)
		if (p->own && p->claims[nid].promised && hpmmap_launch_is_within(p, of, nid))
			promise(p, nid, 0, false, false);
}

/* Takes back what was promised beyond @nr of each node, with @undo before anybody knew of it. */
static void promise_lower(struct hpmmap_payer *p, const unsigned long *nr, bool undo)
{
	bool any = false;
	int nid;

	for (nid = 0; nid < nr_node_ids; nid++) {
		if (p->claims[nid].promised > nr[nid]) {
			if (!undo)
				launches_end(p, nid);
			promise(p, nid, nr[nid], false, false);
		}
		any |= p->claims[nid].promised;
	}
	if (any || list_empty(&p->promise))
		return;
	list_del_init(&p->promise);
	hpmmap_payer_put(p);
}

/* Spreads a promise of @left blocks evenly, as far as it can be kept; returns what is left. */
static unsigned long promise_spread(struct hpmmap_payer *p, unsigned long left, bool own,
				    unsigned long *nr)
{
	unsigned int pass, nodes = 0;
	int nid;

	for (nid = 0; nid < nr_node_ids; nid++)
		nodes += promise(p, nid, 1, own, true);
	for (pass = 0; pass < 2; pass++)
		for (nid = 0; nid < nr_node_ids && left; nid++) {
			unsigned long room = promise(p, nid, nr[nid] + left, own, true);

			room -= min(room, nr[nid]);
			if (!pass && room && nodes) {
				room = min(room, DIV_ROUND_UP(left, nodes));
				nodes--;
			}
			nr[nid] += room;
			left -= room;
		}
	return left;
}

/* Reads what is promised of each node; @arg->promises of one element for node -1 is spread. */
static int promise_read(struct hpmmap_promise_set *arg, unsigned long *nr)
{
	struct hpmmap_promise __user *from = u64_to_user_ptr(arg->promises);
	u32 i;

	for (i = 0; i < arg->nr; i++) {
		struct hpmmap_promise one;

		if (copy_from_user(&one, &from[i], sizeof(one)))
			return -EFAULT;
		if (one.__reserved)
			return -EOPNOTSUPP;
		if (!IS_ALIGNED(one.bytes, HPMMAP_BLOCK_BYTES) || one.bytes >> 62 ||
		    (one.node < 0 ? one.node != NUMA_NO_NODE || arg->nr > 1 :
				    one.node < nr_node_ids && nr[one.node]))
			return -EINVAL;
		if (one.node >= (int)nr_node_ids || (one.node >= 0 && !pool_node_find(one.node)))
			return -ENXIO;
		arg->node = one.node;
		if (one.node >= 0)
			nr[one.node] = one.bytes >> SLOT_SHIFT;
		else
			arg->room_bytes = one.bytes;
	}
	return 0;
}

/*
 * May a launch hold @nr blocks of each node, with what others of its user, or of one of its
 * cgroups, are promised? What nobody may take would be kept from everybody.
 */
static bool is_within_limits(const struct hpmmap_payer *launch, const unsigned long *nr)
{
	const struct hpmmap_payer *of, *p;
	unsigned long sum;
	int nid;

	for (of = launch->user; of; of = of == launch->user ? launch->parent : of->parent) {
		sum = 0;
		list_for_each_entry(p, &promised, promise) {
			bool counts = p->own && (!of->cgroup ? p->user == of : p->parent &&
				      cgroup_is_descendant(p->parent->cgroup, of->cgroup));

			for (nid = 0; nid < nr_node_ids && (counts || p == launch); nid++)
				sum += p == launch ? nr[nid] : p->claims[nid].promised;
		}
		if (sum > hpmmap_payer_limit(of))
			return false;
	}
	return true;
}

/*
 * Promises a payer memory, in place of what it was promised; with @own only out of the promises
 * that it is within. @arg is checked, except for what it points to. Returns 0 or an errno of
 * HPMMAP_IOC_PROMISE_SET.
 */
int hpmmap_promise_set(struct hpmmap_payer *p, struct hpmmap_promise_set *arg, bool own)
{
	unsigned long *nr, *before, left, kept;
	int nid, ret;

	nr = kcalloc(nr_node_ids, 2 * sizeof(*nr), GFP_KERNEL);
	if (!nr)
		return -ENOMEM;
	before = nr + nr_node_ids;
	ret = promise_read(arg, nr);
	if (ret)
		goto out;
	mutex_lock(&promises_mutex);
	if (list_empty(&p->promise)) {
		refcount_inc(&p->refs);
		list_add_tail(&p->promise, &promised);
	}
	for (nid = 0; nid < nr_node_ids; nid++)
		before[nid] = p->claims[nid].promised;
	if (arg->nr && arg->node < 0) {
		left = promise_spread(p, arg->room_bytes >> SLOT_SHIFT, own, nr);
		arg->room_bytes -= left << SLOT_SHIFT;
		ret = left ? -ENOSPC : 0;
	}
	/* First more, then less: so an error changes nothing. */
	for (nid = 0; nid < nr_node_ids && !ret; nid++) {
		if (nr[nid] <= before[nid])
			continue;
		if (own && !is_within_limits(p, nr)) {
			ret = -EDQUOT;
			break;
		}
		kept = promise(p, nid, nr[nid], own, false);
		if (kept == nr[nid])
			continue;
		arg->node = nid;
		arg->room_bytes = kept << SLOT_SHIFT;
		ret = -ENOSPC;
	}
	if (!ret)
		p->own = own;
	promise_lower(p, ret ? before : nr, ret);
	mutex_unlock(&promises_mutex);
out:
	kfree(nr);
	return ret;
}

static void promise_drop(struct hpmmap_payer *p)
{
	static const unsigned long none[MAX_NUMNODES];

	promise_lower(p, none, false);
}

/* The promise of a launch ends with it. */
void hpmmap_promise_end(struct hpmmap_tally *tally)
{
	if (!tally->launch)
		return;
	mutex_lock(&promises_mutex);
	promise_drop(tally->launch);
	mutex_unlock(&promises_mutex);
}

/*
 * Drops promises of cgroups that have ended, since the kernel does not tell of it, or @all. Called
 * before a request is refused, a figure shown, or memory promised. Returns whether there was one.
 */
bool hpmmap_promises_sweep(bool all)
{
	struct hpmmap_payer *p, *tmp;
	bool ret = false;

	if (list_empty_careful(&promised))
		return false;
	mutex_lock(&promises_mutex);
	list_for_each_entry_safe(p, tmp, &promised, promise) {
		if (!all && (!p->cgroup || READ_ONCE(p->cgroup->self.flags) & CSS_ONLINE))
			continue;
		promise_drop(p);
		ret = true;
	}
	mutex_unlock(&promises_mutex);
	return ret;
}

/* May the caller see it without CAP_SYS_ADMIN? */
static bool is_own(const struct hpmmap_payer *p)
{
	bool ret;

	if (!p->cgroup)
		return uid_eq(p->uid, hpmmap_charged_uid());
	rcu_read_lock();
	ret = cgroup_is_descendant(task_dfl_cgroup(current), p->cgroup);
	rcu_read_unlock();
	return ret;
}

static void entry_fill(struct hpmmap_promise_entry *entry, const struct hpmmap_payer *p, int nid)
{
	const struct hpmmap_claim *c = &p->claims[nid];

	entry->flags = p->cgroup ? HPMMAP_LIMIT_F_CGROUP :
		       p->launch ? HPMMAP_PROMISE_F_LAUNCH : 0;
	entry->uid = p->cgroup ? 0 : from_kuid(&init_user_ns, p->uid);
	entry->id = p->cgroup ? cgroup_id(p->cgroup) : p->launch;
	entry->node = nid;
	entry->promised_bytes = (u64)c->promised << SLOT_SHIFT;
	entry->held_bytes = (u64)c->held << SLOT_SHIFT;
}

/* What was counted step by step is what a count of everything says. */
static void check(int nid)
{
#ifdef HPMMAP_DEBUG
	struct pool_node *pn = pool_node_find(nid);
	long before;

	if (!pn)
		return;
	spin_lock(&pn->lock);
	before = pn->unclaimed;
	hpmmap_accounts_recount(nid, &promised);
	HPMMAP_ASSERT(before == pn->unclaimed);
	spin_unlock(&pn->lock);
#endif
}

/* HPMMAP_IOC_PROMISE_LIST; @all: not only what concerns the caller. */
int hpmmap_promise_list(struct hpmmap_promise_entry __user *entries, u32 *nr, bool all)
{
	u32 room = min(*nr, 1U << 16), n = 0;
	struct hpmmap_promise_entry *buf;
	struct hpmmap_payer *p;
	int nid, ret = 0;

	buf = kvcalloc(room, sizeof(*buf), GFP_KERNEL);
	if (!buf && room)
		return -ENOMEM;
	mutex_lock(&promises_mutex);
	for (nid = 0; nid < nr_node_ids; nid++)
		check(nid);
	list_for_each_entry(p, &promised, promise)
		for (nid = 0; nid < nr_node_ids && (all || is_own(p)); nid++)
			if (p->claims[nid].promised && n++ < room)
				entry_fill(&buf[n - 1], p, nid);
	mutex_unlock(&promises_mutex);
	if (copy_to_user(entries, buf, min(n, room) * sizeof(*buf)))
		ret = -EFAULT;
	kvfree(buf);
	*nr = n;
	return ret;
}
