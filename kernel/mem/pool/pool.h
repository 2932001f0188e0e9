/* SPDX-License-Identifier: GPL-2.0 */
/* Pools: the blocks of each node, and handing them out. */
#ifndef _HPMMAP_MEM_POOL_POOL_H
#define _HPMMAP_MEM_POOL_POOL_H

#include <linux/kobject.h>
#include <linux/mmzone.h>
#include <linux/mutex.h>
#include <linux/nodemask.h>

#include "hpmmap.h"
#include "mem/block/block.h"

struct hpmmap_account;
struct hpmmap_payer;
struct hpmmap_placement;

/**
 * struct hpmmap_request - what is asked of the pools, and what came of it
 * @account: who is charged
 * @place: where from
 * @slot: the slot that the first block is for, the others being for those that
 *	follow; or NO_SLOT
 * @nr: how many
 * @large: in runs of 1 GB where possible
 * @at_hand: to have some at hand: none that others have soiled
 * @clean_only: and none that is not clean
 * @nr_large: out: how many runs of 1 GB they are
 * @left: out: free blocks that were left on those nodes
 * @refused_by: out, where there were not enough: whose limit refused, or NULL
 * @waited_reclaim: out: ticks that taking back from others took, or 0
 * @waited_zeroing: out: ticks that somebody else's zeroing took, or 0
 */
struct hpmmap_request {
	struct hpmmap_account *account;
	const struct hpmmap_placement *place;
	unsigned long slot;
	unsigned long nr;
	bool large;
	bool at_hand;
	bool clean_only;
	unsigned long nr_large;
	unsigned long left;
	struct hpmmap_payer *refused_by;
	u64 waited_reclaim;
	u64 waited_zeroing;
};

/**
 * struct hpmmap_reclaimer - who may hold blocks that nobody needs
 * @reap: give back what nobody refers to any more, all of it
 * @reap_one: a bounded part of that; true if another try is worth it
 * @kept: blocks that could be given back besides
 * @reclaim: give back up to @nr of those of some nodes, that count for a payer or,
 *	if it is NULL, for anybody; returns how many there were
 */
struct hpmmap_reclaimer {
	void (*reap)(void);
	bool (*reap_one)(void);
	unsigned long (*kept)(void);
	unsigned long (*reclaim)(const nodemask_t *nodes,
				 struct hpmmap_payer *payer, unsigned long nr);
};

/* Blocks that were found in use though they were free, and are not handed out again. */
extern atomic_long_t hpmmap_pool_quarantined;

void hpmmap_pool_set_reclaimer(const struct hpmmap_reclaimer *r);
void hpmmap_pool_reclaim_all(void);

void hpmmap_pool_exit(void);
bool hpmmap_pool_gather(void);
bool hpmmap_pool_has_free(struct hpmmap_account *account,
			  const nodemask_t *nodes);
unsigned long hpmmap_pool_offer(struct hpmmap_account *account,
				const nodemask_t *nodes, unsigned long nr);
bool hpmmap_pool_at_hand(struct hpmmap_account __rcu *const *from, struct hpmmap_request *req,
			 struct list_head *out);
int hpmmap_pool_alloc(struct hpmmap_request *req, struct list_head *out);
struct hpmmap_block *hpmmap_pool_alloc_instead(struct hpmmap_account *account,
					       int nid,
					       const nodemask_t *nodes);
struct hpmmap_block *hpmmap_pool_alloc_more(struct hpmmap_account *account,
					    int nid, const nodemask_t *nodes);
struct hpmmap_block *hpmmap_pool_alloc_clean(struct hpmmap_account *account,
					     int nid);
void hpmmap_pool_count_mapped(int nid, long nr);
void hpmmap_pool_set_pinned(struct hpmmap_block *block);
void hpmmap_pool_free(struct list_head *list);
void hpmmap_pool_free_unused(struct list_head *list);
void hpmmap_pool_retire(struct hpmmap_block *block);
int hpmmap_pool_clear(struct hpmmap_owner *owner, struct list_head *list,
		      unsigned long first, unsigned long end);
void hpmmap_pool_launder(int nid, unsigned long nr);
void hpmmap_pool_soiled(int nid, unsigned long nr);
void hpmmap_pool_launder_stop(nodemask_t *nodes);
void hpmmap_pool_launder_go(const nodemask_t *nodes);

/* For section.c: all calls are for one section. */

/* Protects the sections, and the metadata of the pools coming and going. */
extern struct mutex hpmmap_pool_mutex;

/* Bytes by what they are used for. */
struct pool_use {
	u64 free;
	u64 busy;
	u64 pinned;
	u64 bad;
};

int hpmmap_pool_prepare(int nid, unsigned long unit);
void hpmmap_pool_drop(int nid, unsigned long unit);
void hpmmap_pool_activate(int nid, unsigned long unit);
int hpmmap_pool_deactivate(int nid, unsigned long unit);
struct hpmmap_block *hpmmap_pool_block(int nid, unsigned long pfn);
void hpmmap_pool_use(int nid, unsigned long unit, struct pool_use *use);

#endif /* _HPMMAP_MEM_POOL_POOL_H */
