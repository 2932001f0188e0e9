/* SPDX-License-Identifier: GPL-2.0 */
/* Pools: the blocks of each node, and handing them out. */
#ifndef _HPMMAP_MEM_POOL_POOL_H
#define _HPMMAP_MEM_POOL_POOL_H

#include "mem/block/block.h"

/* A request for blocks, and its outcome. */
struct hpmmap_request {
	struct hpmmap_account *account;		/* account that is charged */
	const struct hpmmap_placement *place;	/* nodes to take them from */
	/*
	 * The slot that the first block is for, the others being for those that follow; or
	 * NO_SLOT.
	 */
	unsigned long slot;
	unsigned long nr;			/* number of blocks */
	bool large;				/* in runs of 1 GB where possible */
	bool whole;				/* clean ones of these as runs */
	/* For a CPU's stock: no block that another user has soiled. */
	bool at_hand;
	bool clean_only;			/* and none that is not clean */
	unsigned long nr_gigabytes;		/* out: number of gigabytes of a large request */
	unsigned long nr_large;			/* out: number of runs of 1 GB */
	unsigned long left;			/* out: free blocks that are left on those nodes */
	/* Out, after -ENOMEM: the payer whose limit refused it, or NULL. */
	struct hpmmap_payer *refused_by;
	/* Out: ticks spent on taking blocks back from others, or 0. */
	u64 waited_reclaim;
	/* Out: ticks spent on waiting for another task's zeroing, or 0. */
	u64 waited_zeroing;
};

/**
 * struct hpmmap_reclaimer - takes back blocks that are held but not needed
 * @reap: give back all blocks without a user
 * @reap_one: give back a bounded part of these; true if another try is worth it
 * @kept: number of blocks that @reclaim could give back
 * @reclaim: give back up to @nr kept blocks of some nodes that count for a payer or,
 *	if it is NULL, for any; returns their number
 */
struct hpmmap_reclaimer {
	void (*reap)(void);
	bool (*reap_one)(void);
	unsigned long (*kept)(void);
	unsigned long (*reclaim)(const nodemask_t *nodes,
				 struct hpmmap_payer *payer, unsigned long nr);
};

/* Blocks that were free but had a user; they are never handed out again. */
extern atomic_long_t hpmmap_pool_quarantined;

void hpmmap_pool_set_reclaimer(const struct hpmmap_reclaimer *r);
void hpmmap_pool_reclaim_all(void);

void hpmmap_pool_exit(void);
bool hpmmap_pool_gather(void);
bool hpmmap_pool_has_free(struct hpmmap_account *account,
			  const nodemask_t *nodes, unsigned long nr);
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
bool hpmmap_pool_free_run(struct hpmmap_block *first, bool soiled);
bool hpmmap_pool_is_sound(int nid);
void hpmmap_pool_retire(struct hpmmap_block *block);
int hpmmap_pool_clear(struct hpmmap_owner *owner, struct list_head *list,
		      unsigned long first, unsigned long end);
void hpmmap_pool_launder(int nid, unsigned long nr);
void hpmmap_pool_soiled(int nid, unsigned long nr);
void hpmmap_pool_launder_stop(nodemask_t *nodes);
void hpmmap_pool_launder_go(const nodemask_t *nodes);

/* For section.c: all calls are for one section. */

/* Protects the sections, and the pools' metadata while they are made and freed. */
extern struct mutex hpmmap_pool_mutex;

/* Bytes by their use. */
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
