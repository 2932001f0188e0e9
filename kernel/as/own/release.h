/* SPDX-License-Identifier: GPL-2.0 */
/* Giving up blocks, and those that are pinned. */
#ifndef _HPMMAP_AS_OWN_RELEASE_H
#define _HPMMAP_AS_OWN_RELEASE_H

bool hpmmap_block_wait_unpinned(struct hpmmap_ctx *ctx,
				struct hpmmap_block *block);
void hpmmap_block_release(struct hpmmap_ctx *ctx, struct hpmmap_block *block);
void hpmmap_block_release_to(struct hpmmap_ctx *ctx, struct hpmmap_block *block,
			     struct list_head *freed);
void hpmmap_block_release_list(struct hpmmap_ctx *ctx, struct list_head *list);
void hpmmap_release_init(struct hpmmap_ctx *ctx);

#endif /* _HPMMAP_AS_OWN_RELEASE_H */
