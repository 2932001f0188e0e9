// SPDX-License-Identifier: GPL-2.0
/*
 * Which of the nodes of a placement comes first.
 */
#include <linux/nodemask.h>

#include "hpmmap.h"
#include "mem/nodes.h"
#include "mem/placement.h"

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
	nodemask_t pools;

	hpmmap_pool_nodes(&pools);
	nodes_and(pools, pools, place->preferred);
	if (nodes_empty(pools))
		return;
	place->preferred = pools;
	place->in_turn = true;
}
