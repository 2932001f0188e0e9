/* SPDX-License-Identifier: GPL-2.0 */
/* Payers: the users and cgroups that blocks count for, and how many they may hold. */
#ifndef _HPMMAP_MEM_BLOCK_PAYER_H
#define _HPMMAP_MEM_BLOCK_PAYER_H

#include <linux/atomic.h>
#include <linux/list.h>
#include <linux/rcupdate.h>
#include <linux/refcount.h>
#include <linux/uidgid.h>

#include "uapi/hpmmap.h"

struct cgroup;

/**
 * struct hpmmap_rule - a limit as it was set
 * @value: bytes, HPMMAP_LIMIT_NONE or HPMMAP_LIMIT_INHERIT
 * @percent: if not 0, it replaces @value: a share of all pool memory
 */
struct hpmmap_rule {
	u64 value;
	unsigned int percent;
};

/**
 * struct hpmmap_payer - a user or a cgroup
 * @refs: held by accounts, child cgroups, and the table if there is a rule
 * @node: in the table
 * @ruled: in the list of cgroups with a rule
 * @parent: the parent cgroup, unless that is the root; holds a reference
 * @cgroup: holds a reference; NULL for a user
 * @uid: of a user
 * @held: blocks charged
 * @limit: in blocks, from @rule
 * @rule: protected by payers_lock
 * @nr_jobs: jobs of a user, with those that only an open file keeps
 * @nr_idle_jobs: jobs among them without a process
 * @rcu: hpmmap_account_is_current() may look at it where only RCU keeps the account
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
	struct hpmmap_rule rule;
	atomic_t nr_jobs;
	atomic_t nr_idle_jobs;
	struct rcu_head rcu;
};

/**
 * enum hpmmap_limited - the limit that refused a request
 * @HPMMAP_LIMITED_USER: the user's
 * @HPMMAP_LIMITED_DEFAULT: the default for users without one of their own
 * @HPMMAP_LIMITED_CGROUP: that of the cgroup or an ancestor
 */
enum hpmmap_limited {
	HPMMAP_LIMITED_USER,
	HPMMAP_LIMITED_DEFAULT,
	HPMMAP_LIMITED_CGROUP,
	HPMMAP_NR_LIMITED
};

struct hpmmap_payer *hpmmap_payer_get(kuid_t uid, struct cgroup *cgroup,
				      struct hpmmap_payer *parent);
struct hpmmap_payer *hpmmap_payer_get_group(struct cgroup *cgroup);
void hpmmap_payer_put(struct hpmmap_payer *p);
unsigned long hpmmap_payer_limit(const struct hpmmap_payer *p);
unsigned long hpmmap_payer_room(struct hpmmap_payer *p);
bool hpmmap_payer_charge(struct hpmmap_payer *p, unsigned long nr);
enum hpmmap_limited hpmmap_payer_kind(struct hpmmap_payer *payer, u64 *id);
struct cgroup *hpmmap_current_cgroup_get(void);
kuid_t hpmmap_charged_uid(void);
int hpmmap_limit_set(const struct hpmmap_limit_set *arg);
int hpmmap_limit_list(struct hpmmap_limit_entry __user *entries, u32 *nr,
		      bool all);
void hpmmap_limits_update(void);
u64 hpmmap_limit_default(void);
void hpmmap_limits_exit(void);

#endif /* _HPMMAP_MEM_BLOCK_PAYER_H */
