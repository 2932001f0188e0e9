/* SPDX-License-Identifier: GPL-2.0 */
/* Moving blocks to other nodes, and first touch. */
#ifndef _HPMMAP_AS_CHANGE_PLACE_H
#define _HPMMAP_AS_CHANGE_PLACE_H

/* How the block of a slot lies. */
enum hpmmap_look {
	LOOK_RIGHT,	/* where it should */
	LOOK_WRONG,	/* elsewhere */
	LOOK_OTHERS,	/* elsewhere, but others have a part of the slot, too */
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
bool hpmmap_slot_is_deferred(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end);
bool hpmmap_policy_defers(struct hpmmap_ctx *ctx, struct hpmmap_block *block,
			  unsigned long start, unsigned long end);
struct hpmmap_block *hpmmap_policy_touch(struct hpmmap_ctx *ctx,
					 struct vm_area_struct *vma,
					 struct hpmmap_block *block);

#endif /* _HPMMAP_AS_CHANGE_PLACE_H */
