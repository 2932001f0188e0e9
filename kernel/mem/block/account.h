/* SPDX-License-Identifier: GPL-2.0 */
/* Accounts: the user and the cgroup that blocks are charged to. */
#ifndef _HPMMAP_MEM_BLOCK_ACCOUNT_H
#define _HPMMAP_MEM_BLOCK_ACCOUNT_H

#include <linux/uidgid.h>

/* Counts the blocks of a job, each once. */
struct hpmmap_tally {
	refcount_t refs;		/* held by the job and by accounts */
	atomic_long_t held;		/* blocks charged now */
	atomic_long_t peak;		/* the highest @held so far */
	/* The payer for the promise of the launch, once it had one. */
	struct hpmmap_payer *launch;
};

struct hpmmap_tally *hpmmap_tally_alloc(void);
void hpmmap_tally_put(struct hpmmap_tally *t);
struct hpmmap_account *hpmmap_account_get_current(struct hpmmap_tally *tally);
bool hpmmap_account_is_current(const struct hpmmap_account *account);
struct hpmmap_account *hpmmap_account_get(struct hpmmap_account __rcu *const *from);
void hpmmap_account_set(struct hpmmap_account __rcu **at, struct hpmmap_account *account);
kuid_t hpmmap_account_uid_at(struct hpmmap_account __rcu *const *from);
void hpmmap_account_put(struct hpmmap_account *account);
int hpmmap_account_charge(struct hpmmap_account *account, unsigned long nr);
void hpmmap_account_charge_anyway(struct hpmmap_account *account, unsigned long nr);
void hpmmap_account_peak(struct hpmmap_account *account, unsigned long spare);
void hpmmap_account_tally(struct hpmmap_account *account, unsigned long nr, unsigned long spare);
void hpmmap_account_tally_unused(struct hpmmap_account *account, unsigned long nr);
void hpmmap_account_refund(struct hpmmap_account *account, unsigned long nr);
void hpmmap_account_uncharge(struct hpmmap_account *account, unsigned long nr);
struct hpmmap_payer *hpmmap_account_full(struct hpmmap_account *account, unsigned long nr);
unsigned long hpmmap_account_room(struct hpmmap_account *account);
unsigned long hpmmap_account_limit(const struct hpmmap_account *account);
bool hpmmap_account_counts_for(struct hpmmap_account *account, struct hpmmap_payer *payer);
unsigned long hpmmap_account_free(struct hpmmap_account *account, int nid, bool out);
unsigned long hpmmap_account_free_all(struct hpmmap_account *account, const nodemask_t *nodes,
				      bool out);
void hpmmap_account_take(struct hpmmap_account *account, int nid, long nr);
struct hpmmap_payer *hpmmap_account_launch(struct hpmmap_account *account, u64 launch);
bool hpmmap_launch_is_within(const struct hpmmap_payer *launch, const struct hpmmap_payer *of, int nid);
void hpmmap_accounts_recount(int nid, struct list_head *promised);
struct hpmmap_payer *hpmmap_account_user(const struct hpmmap_account *account);

#endif /* _HPMMAP_MEM_BLOCK_ACCOUNT_H */
