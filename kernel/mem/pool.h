/* SPDX-License-Identifier: GPL-2.0 */
/* Pools: the blocks of each node, and handing them out. */
#ifndef _HPMMAP_MEM_POOL_H
#define _HPMMAP_MEM_POOL_H

#include <linux/kobject.h>
#include <linux/mmzone.h>
#include <linux/mutex.h>
#include <linux/nodemask.h>

#include "hpmmap.h"
#include "mem/block.h"

struct hpmmap_job;
struct hpmmap_placement;

struct hpmmap_node_stat {
	u64 total;
	u64 free;
	u64 clean;
	u64 largest;
	u64 pinned;
	u64 bad;
};
void hpmmap_pool_exit(void);
void hpmmap_pool_node_free(struct kobject *kobj);
void hpmmap_pool_node_stat(int nid, struct hpmmap_node_stat *stat);
bool hpmmap_pool_has(const nodemask_t *nodes);
bool hpmmap_pool_has_free(struct hpmmap_job *job);
unsigned long hpmmap_pool_count_free(const nodemask_t *nodes);
unsigned long hpmmap_pool_count_all(void);
void hpmmap_pool_nodes(nodemask_t *nodes);
int hpmmap_pool_nearest(int nid, const nodemask_t *nodes, nodemask_t *tried);
int hpmmap_pool_alloc(struct hpmmap_ctx *ctx,
		      const struct hpmmap_placement *place, unsigned long slot,
		      unsigned long nr, struct list_head *out);
unsigned long hpmmap_pool_alloc_instead(struct hpmmap_ctx *ctx, int nid,
					const nodemask_t *nodes,
					unsigned long nr,
					struct list_head *out);
struct hpmmap_block *hpmmap_pool_alloc_clean(struct hpmmap_ctx *ctx, int nid);
void hpmmap_pool_count_mapped(int nid, long nr);
void hpmmap_pool_set_pinned(struct hpmmap_block *block);
void hpmmap_pool_free(struct list_head *list);
void hpmmap_pool_free_list(struct list_head *list);
void hpmmap_pool_retire(struct hpmmap_block *block);
void hpmmap_pool_unretire(struct hpmmap_block *block);
enum hpmmap_block_state hpmmap_pool_state(struct hpmmap_block *block);
void hpmmap_pool_launder(int nid, unsigned long nr);
void hpmmap_pool_soiled(int nid, unsigned long nr);
int hpmmap_pool_launder_stop(bool killable);
void hpmmap_pool_launder_go(void);

/* For section.c: all calls are for one section. */

#define SECTION_BLOCKS (1UL << (SECTION_SIZE_BITS - SLOT_SHIFT))

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

#endif /* _HPMMAP_MEM_POOL_H */
