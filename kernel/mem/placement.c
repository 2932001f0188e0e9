// SPDX-License-Identifier: GPL-2.0
/*
 * Where the nodes of a placement take turns.
 */
#include <linux/nodemask.h>

#include "hpmmap.h"
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
	for_each_node_mask(nid, place->preferred)
		sum += place->weighted ? compat_interleave_weight(nid) : 1;
	slot %= sum;
	for_each_node_mask(nid, place->preferred) {
		sum = place->weighted ? compat_interleave_weight(nid) : 1;
		if (slot < sum)
			return nid;
		slot -= sum;
	}
	/* The weights were lowered meanwhile. */
	return first_node(place->preferred);
}
