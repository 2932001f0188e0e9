// SPDX-License-Identifier: GPL-2.0
/*
 * Pools: the blocks of each NUMA node. section.c adds and removes their memory.
 */
#include "hpmmap.h"
#include "sysfs.h"
#include "mem/block/block.h"
#include "mem/block/buddy.h"
#include "mem/block/node.h"
#include "mem/pool/pool.h"

/*
 * The files of /sys/kernel/hpmmap/nodes/nodeN, see docs/sysfs.md: @_blocks of the pool @pn; @_all:
 * with the blocks in the stocks of CPUs.
 */
#define NODE_ATTR(_file, _all, _blocks) \
	static ssize_t _file##_show(struct kobject *kobj, \
				    struct kobj_attribute *attr, char *buf) \
	{ \
		struct pool_node *pn = container_of(kobj, struct pool_node, kobj); \
		u64 nr; \
		\
		if (_all) \
			hpmmap_pool_gather(); \
		spin_lock(&pn->lock); \
		nr = _blocks; \
		spin_unlock(&pn->lock); \
		return sysfs_emit(buf, "%llu\n", nr << SLOT_SHIFT); \
	} \
	static struct kobj_attribute _file##_attr = __ATTR_RO(_file)

NODE_ATTR(total_bytes, false, pn->buddy.nr_total);
NODE_ATTR(free_bytes, true, pn->buddy.nr_free + pn->nr_out);
NODE_ATTR(clean_bytes, true, pn->clean.nr_free);
/* If nothing is free the order is -1. */
NODE_ATTR(largest_free_bytes, true, 1ULL << (hpmmap_buddy_largest(&pn->buddy) + 1) >> 1);
NODE_ATTR(pinned_bytes, false, pn->nr_pinned);
NODE_ATTR(bad_bytes, false, pn->nr_bad);
NODE_ATTR(promised_bytes, true, pn->unclaimed);
NODE_ATTR(broken_bytes, true, max(pn->unclaimed - nr_for_promises(pn), 0L));

static struct attribute *node_attrs[] = {
	&total_bytes_attr.attr,
	&free_bytes_attr.attr,
	&clean_bytes_attr.attr,
	&largest_free_bytes_attr.attr,
	&pinned_bytes_attr.attr,
	&bad_bytes_attr.attr,
	&promised_bytes_attr.attr,
	&broken_bytes_attr.attr,
	NULL,
};
ATTRIBUTE_GROUPS(node);

/* Called when the last reference to a node's kobject is dropped. */
static void node_free(struct kobject *kobj)
{
	kfree(container_of(kobj, struct pool_node, kobj));
}

static const struct kobj_type node_ktype = {
	.release = node_free,
	.sysfs_ops = &kobj_sysfs_ops,
	.default_groups = node_groups,
};

static struct pool_node *pool_node_get(int nid)
{
	struct pool_node *pn = pool_nodes[nid];

	lockdep_assert_held(&hpmmap_pool_mutex);
	if (pn)
		return pn;
	pn = kzalloc(sizeof(*pn), GFP_KERNEL);
	if (!pn)
		return NULL;
	spin_lock_init(&pn->lock);
	hpmmap_buddy_init(&pn->buddy);
	hpmmap_buddy_init(&pn->clean);
	INIT_LIST_HEAD(&pn->chunks);
	INIT_LIST_HEAD(&pn->laundries);
	init_waitqueue_head(&pn->work);
	if (kobject_init_and_add(&pn->kobj, (struct kobj_type *)&node_ktype,
				 hpmmap_sysfs_dir(HPMMAP_DIR_NODES), "node%d", nid)) {
		kobject_put(&pn->kobj);
		return NULL;
	}
	/* Pairs with pool_node_find(), which does not take the mutex. */
	smp_store_release(&pool_nodes[nid], pn);
	return pn;
}

/* The block of a page frame of an active section. */
struct hpmmap_block *hpmmap_pool_block(int nid, unsigned long pfn)
{
	return block_of(pool_nodes[nid], pfn >> SLOT_ORDER);
}

/* The chunk of a section, made if there is none yet. */
static struct pool_chunk *chunk_get(struct pool_node *pn, int nid, unsigned long unit)
{
	struct pool_chunk *chunk = chunk_of(pn, unit);

	lockdep_assert_held(&hpmmap_pool_mutex);
	if (chunk)
		return chunk;
	chunk = kzalloc_node(sizeof(*chunk), GFP_KERNEL, nid);
	if (!chunk)
		return NULL;
	chunk->blocks = kvzalloc_node(HPMMAP_BUDDY_CHUNK_UNITS * sizeof(*chunk->blocks),
				      GFP_KERNEL, nid);
	if (!chunk->blocks) {
		kfree(chunk);
		return NULL;
	}
	spin_lock(&pn->lock);
	hpmmap_buddy_chunk_insert(&pn->buddy, &chunk->buddy,
				  unit / HPMMAP_BUDDY_CHUNK_UNITS);
	hpmmap_buddy_chunk_insert(&pn->clean, &chunk->clean,
				  unit / HPMMAP_BUDDY_CHUNK_UNITS);
	list_add(&chunk->link, &pn->chunks);
	spin_unlock(&pn->lock);
	return chunk;
}

static void chunk_put(struct pool_node *pn, struct pool_chunk *chunk)
{
	lockdep_assert_held(&hpmmap_pool_mutex);
	if (chunk->nr_sections)
		return;
	spin_lock(&pn->lock);
	hpmmap_buddy_chunk_remove(&pn->buddy, &chunk->buddy);
	hpmmap_buddy_chunk_remove(&pn->clean, &chunk->clean);
	list_del(&chunk->link);
	spin_unlock(&pn->lock);
	kvfree(chunk->blocks);
	kfree(chunk);
}

/*
 * Does everything that can fail to take in a section, from block @unit on. Its blocks are not
 * handed out yet. Returns 0, -ENOMEM, or -EINTR if the caller is being killed.
 */
int hpmmap_pool_prepare(int nid, unsigned long unit)
{
	struct pool_node *pn = pool_node_get(nid);
	struct pool_chunk *chunk;
	unsigned long i;
	int ret;

	if (!pn)
		return -ENOMEM;
	ret = zeroer_start(pn, nid);
	if (ret)
		return ret;
	chunk = chunk_get(pn, nid, unit);
	if (!chunk) {
		zeroer_stop(pn);
		return -ENOMEM;
	}
	for (i = 0; i < SECTION_BLOCKS; i++) {
		struct hpmmap_block *block;

		block = &chunk->blocks[(unit + i) % HPMMAP_BUDDY_CHUNK_UNITS];
		hpmmap_block_prepare(block, (unit + i) << SLOT_ORDER, nid);
		bitmap_fill(block->stale, SLOT_PAGES);
	}
	chunk->nr_sections++;
	return 0;
}

/* Undoes hpmmap_pool_prepare(); the blocks are not in the allocator. */
void hpmmap_pool_drop(int nid, unsigned long unit)
{
	struct pool_node *pn = pool_nodes[nid];
	struct pool_chunk *chunk = chunk_of(pn, unit);

	memset(&chunk->blocks[unit % HPMMAP_BUDDY_CHUNK_UNITS], 0,
	       SECTION_BLOCKS * sizeof(chunk->blocks[0]));
	chunk->nr_sections--;
	chunk_put(pn, chunk);
	zeroer_stop(pn);
}

/* Takes the section's bad blocks, which are not in the allocator, out of the counters. */
static void bad_take(struct pool_node *pn, unsigned long unit)
{
	unsigned long i;

	lockdep_assert_held(&pn->lock);
	for (i = 0; i < SECTION_BLOCKS; i++) {
		if (block_of(pn, unit + i)->state != HPMMAP_BLOCK_BAD)
			continue;
		hpmmap_buddy_take(&pn->buddy, unit + i, 0);
		if (hpmmap_buddy_is_free(&pn->clean, unit + i))
			hpmmap_buddy_take(&pn->clean, unit + i, 0);
		pn->nr_bad++;
	}
}

/* Undoes bad_take(). */
static void bad_give(struct pool_node *pn, unsigned long unit)
{
	unsigned long i;

	lockdep_assert_held(&pn->lock);
	for (i = 0; i < SECTION_BLOCKS; i++) {
		if (block_of(pn, unit + i)->state != HPMMAP_BLOCK_BAD)
			continue;
		hpmmap_buddy_free_range(&pn->buddy, unit + i, 1);
		pn->nr_bad--;
	}
}

/* Makes the blocks of a section available for allocation. */
void hpmmap_pool_activate(int nid, unsigned long unit)
{
	struct pool_node *pn = pool_nodes[nid];
	unsigned long i;

	spin_lock(&pn->lock);
	hpmmap_buddy_add(&pn->buddy, unit, SECTION_BLOCKS);
	hpmmap_buddy_add(&pn->clean, unit, SECTION_BLOCKS);
	for (i = 0; i < SECTION_BLOCKS; i++)
		if (!block_of(pn, unit + i)->zeroed)
			hpmmap_buddy_take(&pn->clean, unit + i, 0);
	bad_take(pn, unit);
	spin_unlock(&pn->lock);
}

/*
 * Undoes hpmmap_pool_activate(); -EBUSY: a block is neither free nor bad; -ENOSPC: a promise could
 * not be kept without it. Caller is between hpmmap_pool_launder_stop() and hpmmap_pool_launder_go().
 */
int hpmmap_pool_deactivate(int nid, unsigned long unit)
{
	struct pool_node *pn = pool_nodes[nid];
	unsigned long i, free;
	int ret;

	spin_lock(&pn->lock);
	free = hpmmap_buddy_count_free(&pn->buddy, unit, SECTION_BLOCKS);
	bad_give(pn, unit);
	ret = free && nr_for_promises(pn) - (long)free < pn->unclaimed ? -ENOSPC :
	      hpmmap_buddy_remove(&pn->buddy, unit, SECTION_BLOCKS);
	if (ret) {
		bad_take(pn, unit);
	} else {
		for (i = 0; i < SECTION_BLOCKS; i++)
			if (!hpmmap_buddy_is_free(&pn->clean, unit + i))
				hpmmap_buddy_free_range(&pn->clean, unit + i, 1);
		hpmmap_buddy_remove(&pn->clean, unit, SECTION_BLOCKS);
	}
	spin_unlock(&pn->lock);
	return ret;
}

/*
 * Adds the blocks of an active section, from @unit on, to @use, in bytes. Caller is between
 * hpmmap_pool_launder_stop() and hpmmap_pool_launder_go().
 */
void hpmmap_pool_use(int nid, unsigned long unit, struct pool_use *use)
{
	struct pool_node *pn = pool_nodes[nid];
	unsigned long free, pinned, bad = 0, i;

	spin_lock(&pn->lock);
	free = hpmmap_buddy_count_free(&pn->buddy, unit, SECTION_BLOCKS);
	pinned = *pinned_of(pn, unit);
	for (i = 0; i < SECTION_BLOCKS; i++)
		bad += block_of(pn, unit + i)->state == HPMMAP_BLOCK_BAD;
	spin_unlock(&pn->lock);
	use->free += free << SLOT_SHIFT;
	use->pinned += pinned << SLOT_SHIFT;
	use->bad += bad << SLOT_SHIFT;
	use->busy += (SECTION_BLOCKS - free - pinned - bad) << SLOT_SHIFT;
}

/* The pools have no memory any more. */
void hpmmap_pool_exit(void)
{
	int nid;

	for (nid = 0; nid < MAX_NUMNODES; nid++)
		if (pool_nodes[nid])
			kobject_put(&pool_nodes[nid]->kobj);
}
