/* SPDX-License-Identifier: GPL-2.0 */
/* Accounts: the user and the cgroup that blocks are charged to. */
#ifndef _HPMMAP_MEM_BLOCK_ACCOUNT_H
#define _HPMMAP_MEM_BLOCK_ACCOUNT_H

#include <linux/atomic.h>
#include <linux/refcount.h>
#include <linux/uidgid.h>

struct hpmmap_account;
struct hpmmap_payer;

/**
 * struct hpmmap_tally - counts the blocks of a job, each once
 * @refs: held by the job and by accounts
 * @held: blocks charged now
 * @peak: the highest @held so far
 */
struct hpmmap_tally {
	refcount_t refs;
	atomic_long_t held;
	atomic_long_t peak;
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
void hpmmap_account_peak(struct hpmmap_account *account, unsigned long spare);
void hpmmap_account_tally(struct hpmmap_account *account, unsigned long nr,
			  unsigned long spare);
void hpmmap_account_tally_unused(struct hpmmap_account *account,
				 unsigned long nr);
void hpmmap_account_refund(struct hpmmap_account *account, unsigned long nr);
void hpmmap_account_uncharge(struct hpmmap_account *account, unsigned long nr);
struct hpmmap_payer *hpmmap_account_full(struct hpmmap_account *account,
					 unsigned long nr);
unsigned long hpmmap_account_room(struct hpmmap_account *account);
unsigned long hpmmap_account_limit(const struct hpmmap_account *account);
bool hpmmap_account_counts_for(struct hpmmap_account *account,
			       struct hpmmap_payer *payer);
kuid_t hpmmap_account_uid(const struct hpmmap_account *account);
atomic_t *hpmmap_account_jobs(struct hpmmap_account *account);
atomic_t *hpmmap_account_idle_jobs(struct hpmmap_account *account);

#endif /* _HPMMAP_MEM_BLOCK_ACCOUNT_H */
