/* SPDX-License-Identifier: GPL-2.0 */
/* Moving blocks to other nodes. */
#ifndef _HPMMAP_AS_PLACE_H
#define _HPMMAP_AS_PLACE_H

#include <linux/types.h>

struct hpmmap_ctx;
struct hpmmap_placement;

/**
 * enum hpmmap_look - how the block of a slot lies
 * @LOOK_RIGHT: where it should
 * @LOOK_WRONG: elsewhere
 * @LOOK_OTHERS: elsewhere, but others have a part of the slot, too
 */
enum hpmmap_look {
	LOOK_RIGHT,
	LOOK_WRONG,
	LOOK_OTHERS,
};

enum hpmmap_look hpmmap_slot_look(struct hpmmap_ctx *ctx, unsigned long start,
			   unsigned long end, struct hpmmap_placement *place);
bool hpmmap_slot_correct(struct hpmmap_ctx *ctx, unsigned long slot,
			 struct hpmmap_placement *place, bool *wait);
bool hpmmap_slot_is_on(struct hpmmap_ctx *ctx, unsigned long slot,
		       const nodemask_t *nodes);
bool hpmmap_policy_place(struct hpmmap_ctx *ctx, unsigned long start,
			 unsigned long end);
int hpmmap_page_node(struct hpmmap_ctx *ctx, unsigned long addr, bool *shared);

#endif /* _HPMMAP_AS_PLACE_H */
