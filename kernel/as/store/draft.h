/* SPDX-License-Identifier: GPL-2.0 */
/* Copies of shared blocks, a few pages at a time. */
#ifndef _HPMMAP_AS_STORE_DRAFT_H
#define _HPMMAP_AS_STORE_DRAFT_H

#include "mem/block/block.h"
#include "as/own/ctx.h"

/* Some pages of a slot. */
struct hpmmap_pages {
	unsigned int first;	/* the first one */
	unsigned int nr;	/* how many */
};

bool hpmmap_draft_begin(struct hpmmap_block *own, struct hpmmap_block *behind, bool part);
bool hpmmap_draft_inherit(struct hpmmap_ctx *child, struct hpmmap_block *own,
			  struct hpmmap_block *from);
bool hpmmap_draft_may_move(const struct hpmmap_block *own, unsigned int page);
bool hpmmap_draft_is_full(const struct hpmmap_ctx *ctx,
			  const struct hpmmap_block *own, unsigned int page,
			  bool write, bool pins);
void hpmmap_draft_move(struct hpmmap_ctx *ctx, struct hpmmap_block *to,
		       struct hpmmap_block *own);
bool hpmmap_draft_copy(struct hpmmap_ctx *ctx, struct hpmmap_block *own,
		       unsigned int page, bool write, struct hpmmap_pages *range);
struct hpmmap_block *hpmmap_draft_go_back(struct hpmmap_ctx *ctx,
					  unsigned long slot,
					  struct hpmmap_block *own);
struct hpmmap_block *hpmmap_draft_complete(struct hpmmap_ctx *ctx,
					   unsigned long slot,
					   struct hpmmap_block *own);

#endif /* _HPMMAP_AS_STORE_DRAFT_H */
