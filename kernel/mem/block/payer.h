/* SPDX-License-Identifier: GPL-2.0 */
/* Payers: the users and cgroups that blocks count for, and how many they may hold. */
#ifndef _HPMMAP_MEM_BLOCK_PAYER_H
#define _HPMMAP_MEM_BLOCK_PAYER_H

#include <linux/uidgid.h>

struct cgroup;

/* A limit as it was set. */
struct hpmmap_rule {
	u64 value;		/* bytes, HPMMAP_LIMIT_NONE or HPMMAP_LIMIT_INHERIT */
	unsigned int percent;	/* if not 0, it replaces @value: a share of all pool memory */
};

/* What a payer was promised of a NUMA node; protected by the node's lock. */
struct hpmmap_claim {
	unsigned long promised;	/* blocks that it gets whenever it asks for them */
	long held;		/* blocks that count for the promise; see hpmmap_account_take() */
	long inner;		/* promises within this one that are not claimed yet */
};

/* A user or a cgroup, or the promise of a launch. */
struct hpmmap_payer {
	/* Held by accounts, child cgroups, and the table if there is a rule. */
	refcount_t refs;
	struct hlist_node node;		/* in the table */
	struct list_head ruled;		/* in the list of cgroups with a rule */
	struct list_head promise;	/* in the list of payers with a promise */
	/*
	 * The parent cgroup, unless that is the root, or the cgroup of a launch; holds a
	 * reference.
	 */
	struct hpmmap_payer *parent;
	struct hpmmap_payer *user;	/* the user of a launch; holds a reference */
	u64 launch;			/* number of the launch, or 0 */
	bool own;			/* its promise is out of those that it is within */
	struct cgroup *cgroup;		/* holds a reference; NULL for a user */
	kuid_t uid;			/* of a user */
	atomic_long_t held;		/* blocks charged */
	unsigned long limit;		/* in blocks, from @rule */
	struct hpmmap_rule rule;	/* protected by payers_lock */
	/* Jobs of a user, with those that only an open file keeps. */
	atomic_t nr_jobs;
	atomic_t nr_idle_jobs;		/* jobs among them without a process */
	/* For hpmmap_account_is_current(), where only RCU keeps the account. */
	struct rcu_head rcu;
	struct hpmmap_claim claims[];	/* by NUMA node */
};

/* The limit that refused a request. */
enum hpmmap_limited {
	HPMMAP_LIMITED_USER,	/* the user's */
	HPMMAP_LIMITED_DEFAULT,	/* the default for users without one of their own */
	HPMMAP_LIMITED_CGROUP,	/* that of the cgroup or an ancestor */
	HPMMAP_NR_LIMITED
};

struct hpmmap_payer *hpmmap_payer_get(kuid_t uid, struct cgroup *cgroup,
				      struct hpmmap_payer *parent);
struct hpmmap_payer *hpmmap_payer_get_group(struct cgroup *cgroup);
struct hpmmap_payer *hpmmap_payer_get_launch(u64 launch, struct hpmmap_payer *user,
					     struct hpmmap_payer *group);
struct hpmmap_payer *hpmmap_payer_get_named(u32 flags, u32 uid, int fd);
void hpmmap_payer_put(struct hpmmap_payer *p);
unsigned long hpmmap_payer_limit(const struct hpmmap_payer *p);
unsigned long hpmmap_payer_room(struct hpmmap_payer *p);
bool hpmmap_payer_charge(struct hpmmap_payer *p, unsigned long nr);
enum hpmmap_limited hpmmap_payer_kind(struct hpmmap_payer *payer, u64 *id);
struct cgroup *hpmmap_current_cgroup(void);
struct cgroup *hpmmap_current_cgroup_get(void);
kuid_t hpmmap_charged_uid(void);
int hpmmap_limit_set(const struct hpmmap_limit_set *arg);
int hpmmap_limit_list(struct hpmmap_limit_entry __user *entries, u32 *nr, bool all);
void hpmmap_limits_update(void);
u64 hpmmap_limit_default(void);
void hpmmap_limits_exit(void);

#endif /* _HPMMAP_MEM_BLOCK_PAYER_H */
