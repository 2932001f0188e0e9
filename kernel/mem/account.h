/* SPDX-License-Identifier: GPL-2.0 */
/* Accounts: who is charged, and how much he may hold. */
#ifndef _HPMMAP_MEM_ACCOUNT_H
#define _HPMMAP_MEM_ACCOUNT_H

#include <linux/atomic.h>
#include <linux/refcount.h>
#include <linux/uidgid.h>

#include "uapi/hpmmap.h"

struct hpmmap_account;
struct hpmmap_payer;

/**
 * struct hpmmap_tally - blocks of a job, each counted once
 * @refs: the job, and accounts
 * @held: how many there are
 * @peak: the most there were at one moment
 */
struct hpmmap_tally {
	refcount_t refs;
	atomic_long_t held;
	atomic_long_t peak;
};

/**
 * enum hpmmap_limited - whose limit
 * @HPMMAP_LIMITED_USER: of the user
 * @HPMMAP_LIMITED_DEFAULT: of users without one of their own
 * @HPMMAP_LIMITED_CGROUP: of the cgroup, or one above
 */
enum hpmmap_limited {
	HPMMAP_LIMITED_USER,
	HPMMAP_LIMITED_DEFAULT,
	HPMMAP_LIMITED_CGROUP,
	HPMMAP_NR_LIMITED
};

struct hpmmap_tally *hpmmap_tally_alloc(void);
void hpmmap_tally_put(struct hpmmap_tally *t);
struct hpmmap_account *hpmmap_account_get_current(struct hpmmap_tally *tally);
bool hpmmap_account_is_current(const struct hpmmap_account *account);
struct hpmmap_account *hpmmap_account_get(struct hpmmap_account __rcu *const *from);
void hpmmap_account_set(struct hpmmap_account __rcu **at,
			struct hpmmap_account *account);
kuid_t hpmmap_account_uid_at(struct hpmmap_account __rcu *const *from);
void hpmmap_account_put(struct hpmmap_account *account);
int hpmmap_account_charge(struct hpmmap_account *account, unsigned long nr);
void hpmmap_account_charge_anyway(struct hpmmap_account *account,
				  unsigned long nr);
void hpmmap_account_tally(struct hpmmap_account *account, unsigned long nr);
void hpmmap_account_tally_unused(struct hpmmap_account *account,
				 unsigned long nr);
void hpmmap_account_refund(struct hpmmap_account *account, unsigned long nr);
void hpmmap_account_uncharge(struct hpmmap_account *account, unsigned long nr);
struct hpmmap_payer *hpmmap_account_full(struct hpmmap_account *account,
					 unsigned long nr);
unsigned long hpmmap_account_room(struct hpmmap_account *account);
bool hpmmap_account_counts_for(struct hpmmap_account *account,
			       struct hpmmap_payer *payer);
kuid_t hpmmap_account_uid(const struct hpmmap_account *account);
atomic_t *hpmmap_account_jobs(struct hpmmap_account *account);
enum hpmmap_limited hpmmap_payer_kind(struct hpmmap_payer *payer,
				      u64 *id);
int hpmmap_limit_set(const struct hpmmap_limit_set *arg);
int hpmmap_limit_list(struct hpmmap_limit_entry __user *entries, u32 *nr,
		      bool all);
void hpmmap_limits_update(void);
u64 hpmmap_limit_default(void);
void hpmmap_accounts_exit(void);

#endif /* _HPMMAP_MEM_ACCOUNT_H */
