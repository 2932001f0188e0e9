// SPDX-License-Identifier: GPL-2.0
/*
 * The NUMA nodes that have a pool, the amount in each, and the order of a placement.
 */
#include "hpmmap.h"
#include "mem/block/node.h"
#include "mem/block/nodes.h"

/* A node's pool exists from its first section until the module is unloaded. */
struct pool_node *pool_nodes[MAX_NUMNODES];

struct workqueue_struct *hpmmap_wq;

int hpmmap_wq_init(void)
{
	hpmmap_wq = alloc_workqueue("hpmmap", WQ_UNBOUND, 0);
	return hpmmap_wq ? 0 : -ENOMEM;
}

/* No work is queued any more, but some may be about to return. */
void hpmmap_wq_exit(void)
{
	destroy_workqueue(hpmmap_wq);
}

/*
 * The node nearest to @nid that has a pool, of those in @nodes and not in @tried, to which it
 * is added; or NUMA_NO_NODE.
 */
int hpmmap_pool_nearest(int nid, const nodemask_t *nodes, nodemask_t *tried)
{
	int best = NUMA_NO_NODE, n;

	/* Usually it is the node itself. */
	if ((unsigned int)nid < nr_node_ids && node_isset(nid, *nodes) &&
	    !node_isset(nid, *tried) && pool_node_find(nid)) {
		node_set(nid, *tried);
		return nid;
	}
	hpmmap_for_each_node(n, *nodes) {
		if (node_isset(n, *tried) || !pool_node_find(n))
			continue;
		if (best == NUMA_NO_NODE || node_distance(nid, n) < node_distance(nid, best))
			best = n;
	}
	if (best != NUMA_NO_NODE)
		node_set(best, *tried);
	return best;
}

/* Sums up blocks of some nodes; a hint, since no lock is held. */
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
/* Free blocks that are being zeroed. */
COUNT(out, nr_out)

/*
 * The node whose turn a slot is, by its number, of a placement with turns. @left: slots in the
 * range from there on. @nr: out, or NULL: slots in the same turn.
 */
int hpmmap_placement_turn(const struct hpmmap_placement *place,
			  unsigned long slot, unsigned long left,
			  unsigned long *nr)
{
	unsigned long run = 1, sum = 0;
	int nid;

	if (place->large && left >> LARGE_ORDER && IS_ALIGNED(slot, 1UL << LARGE_ORDER)) {
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
	/* The weights have been lowered meanwhile. */
	return first_node(place->preferred);
}

/* Makes one node the preferred one, if it may be used; otherwise none. */
void hpmmap_placement_prefer(struct hpmmap_placement *place, int nid)
{
	nodes_clear(place->preferred);
	if (nid != NUMA_NO_NODE && node_isset(nid, place->nodes))
		node_set(nid, place->preferred);
}

/* Returns the node nearest to the caller among those that have a pool. */
int hpmmap_placement_nearest(const struct hpmmap_placement *place)
{
	nodemask_t tried = NODE_MASK_NONE;

	return hpmmap_pool_nearest(place->near, &place->preferred, &tried);
}

/* Makes the preferred nodes take turns, if one of them has a pool. */
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
