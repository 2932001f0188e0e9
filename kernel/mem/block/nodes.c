// SPDX-License-Identifier: GPL-2.0
/*
 * Which nodes have a pool, how much is in it, and which of a placement comes first.
 */
#include <linux/nodemask.h>
#include <linux/topology.h>
#include <linux/workqueue.h>

#include "hpmmap.h"
#include "mem/block/node.h"
#include "mem/block/nodes.h"

/* A node's pool exists from its first section until the module goes. */
struct pool_node *pool_nodes[MAX_NUMNODES];

struct workqueue_struct *hpmmap_wq;

int hpmmap_wq_init(void)
{
	hpmmap_wq = alloc_workqueue("hpmmap", WQ_UNBOUND, 0);
	return hpmmap_wq ? 0 : -ENOMEM;
}

/* Nobody queues anything any more; works may be about to return. */
void hpmmap_wq_exit(void)
{
	destroy_workqueue(hpmmap_wq);
}

/**
 * hpmmap_pool_nearest() - the nearest node that has a pool
 * @nid: nearest to this one
 * @nodes: of these
 * @tried: but not one of these; the node is added
 *
 * Return: the node, or NUMA_NO_NODE.
 */
int hpmmap_pool_nearest(int nid, const nodemask_t *nodes, nodemask_t *tried)
{
	int best = NUMA_NO_NODE, n;

	/* Mostly itself. */
	if ((unsigned int)nid < nr_node_ids && node_isset(nid, *nodes) &&
	    !node_isset(nid, *tried) && pool_node_find(nid)) {
		node_set(nid, *tried);
		return nid;
	}
	hpmmap_for_each_node(n, *nodes) {
		if (node_isset(n, *tried) || !pool_node_find(n))
			continue;
		if (best == NUMA_NO_NODE ||
		    node_distance(nid, n) < node_distance(nid, best))
			best = n;
	}
	if (best != NUMA_NO_NODE)
		node_set(best, *tried);
	return best;
}

/* Blocks on some nodes; a hint without the locks. */
#define COUNT(_name, _field) \
	unsigned long hpmmap_pool_count_##_name(const nodemask_t *nodes) \
	{ \
		unsigned long n = 0; \
		int nid; \
		\
		hpmmap_for_each_node(nid, *nodes) \
			if (pool_node_find(nid)) \
				n += READ_ONCE(pool_node_find(nid)->_field); \
		return n; \
	}

COUNT(all, buddy.nr_total)
COUNT(free, buddy.nr_free)
/* Free ones that are being zeroed. */
COUNT(out, nr_out)

/**
 * hpmmap_placement_turn() - whose turn it is
 * @place: with turns
 * @slot: the slot, whose number says whose
 * @left: length of the range that starts there, in slots
 * @nr: out: how many slots have the same turn, if the caller wants to know
 */
int hpmmap_placement_turn(const struct hpmmap_placement *place,
			  unsigned long slot, unsigned long left,
			  unsigned long *nr)
{
	unsigned long run = 1, sum = 0;
	int nid;

	if (place->large && left >> LARGE_ORDER &&
	    IS_ALIGNED(slot, 1UL << LARGE_ORDER)) {
		run = 1UL << LARGE_ORDER;
		slot >>= LARGE_ORDER;
	}
	if (nr)
		*nr = run;
	hpmmap_for_each_node(nid, place->preferred)
		sum += place->weighted ? compat_interleave_weight(nid) : 1;
	slot %= sum;
	hpmmap_for_each_node(nid, place->preferred) {
		sum = place->weighted ? compat_interleave_weight(nid) : 1;
		if (slot < sum)
			return nid;
		slot -= sum;
	}
	/* The weights were lowered meanwhile. */
	return first_node(place->preferred);
}

/* Use one node first, if it may be used, or none. */
void hpmmap_placement_prefer(struct hpmmap_placement *place, int nid)
{
	nodes_clear(place->preferred);
	if (nid != NUMA_NO_NODE && node_isset(nid, place->nodes))
		node_set(nid, place->preferred);
}

/* Of the nodes that have a pool, the nearest to the caller. */
int hpmmap_placement_nearest(const struct hpmmap_placement *place)
{
	nodemask_t tried = NODE_MASK_NONE;

	return hpmmap_pool_nearest(place->near, &place->preferred, &tried);
}

/* Takes turns at the preferred nodes, if one of them has a pool. */
void hpmmap_placement_take_turns(struct hpmmap_placement *place)
{
	nodemask_t pools = place->preferred;
	int nid;

	hpmmap_for_each_node(nid, place->preferred)
		if (!pool_node_find(nid))
			node_clear(nid, pools);
	if (nodes_empty(pools))
		return;
	place->preferred = pools;
	place->in_turn = true;
}
