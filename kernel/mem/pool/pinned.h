/* SPDX-License-Identifier: GPL-2.0 */
/* Blocks that were given up, and that still have references. */
#ifndef _HPMMAP_MEM_POOL_PINNED_H
#define _HPMMAP_MEM_POOL_PINNED_H

/**
 * struct hpmmap_holder - has given up blocks that are pinned
 * @back: called for a block, on no list, once only the module refers to it; may sleep,
 *	and may free the holder
 */
struct hpmmap_holder {
	void (*back)(struct hpmmap_holder *holder, struct hpmmap_block *block);
};

void hpmmap_pinned_add(struct hpmmap_block *block, struct hpmmap_holder *holder);
void hpmmap_pinned_poll(void);
void hpmmap_pinned_poll_some(void);
void hpmmap_pinned_exit(void);

#endif /* _HPMMAP_MEM_POOL_PINNED_H */
