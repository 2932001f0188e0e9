/* SPDX-License-Identifier: GPL-2.0 */
/* Placements: where memory should come from. */
#ifndef _HPMMAP_MEM_PLACEMENT_H
#define _HPMMAP_MEM_PLACEMENT_H

#include <linux/nodemask.h>

/**
 * struct hpmmap_placement - where memory should come from
 * @nodes: nodes that may be used
 * @preferred: those of them to use first
 * @near: of either, the nearest to this node first
 * @in_turn: the @preferred nodes take turns, by the number of the slot
 * @weighted: they have different shares
 * @large: a turn is 1 GB where that fits
 */
struct hpmmap_placement {
	nodemask_t nodes;
	nodemask_t preferred;
	int near;
	bool in_turn;
	bool weighted;
	bool large;
};

int hpmmap_placement_turn(const struct hpmmap_placement *place,
			  unsigned long slot, unsigned long left,
			  unsigned long *nr);
void hpmmap_placement_prefer(struct hpmmap_placement *place, int nid);
int hpmmap_placement_nearest(const struct hpmmap_placement *place);
void hpmmap_placement_take_turns(struct hpmmap_placement *place);

#endif /* _HPMMAP_MEM_PLACEMENT_H */
