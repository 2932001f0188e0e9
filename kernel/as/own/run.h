/* SPDX-License-Identifier: GPL-2.0 */
/* Runs in a store, and the one way to its single blocks. */
#ifndef _HPMMAP_AS_OWN_RUN_H
#define _HPMMAP_AS_OWN_RUN_H

#include "as/own/ctx.h"

bool hpmmap_run_add(struct hpmmap_ctx *ctx, struct hpmmap_block *first);
void hpmmap_runs_break(struct hpmmap_ctx *ctx, unsigned long from, unsigned long to);
unsigned long hpmmap_runs_release(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end);
unsigned long hpmmap_runs_count(struct hpmmap_ctx *ctx, unsigned long from, unsigned long to);
unsigned long hpmmap_runs_find(struct hpmmap_ctx *ctx, const struct hpmmap_block *block);

static inline bool hpmmap_has_runs(const struct hpmmap_ctx *ctx)
{
	return unlikely(!xa_empty(&ctx->store.runs));
}

/* The run that begins at a slot, or NULL. ctx->ops and ctx->lock are held. */
static inline struct hpmmap_block *hpmmap_run_load(struct hpmmap_ctx *ctx, unsigned long slot)
{
	return slot % RUN_BLOCKS ? NULL : xa_load(&ctx->store.runs, slot / RUN_BLOCKS);
}

/*
 * The blocks of a store, for a look at slots @from to @to: no run has one of these afterwards. ctx->ops
 * or ctx->lock is held, so none comes. May sleep.
 */
static inline struct xarray *hpmmap_store(struct hpmmap_ctx *ctx, unsigned long from,
					  unsigned long to)
{
	if (hpmmap_has_runs(ctx))
		hpmmap_runs_break(ctx, from, to);
	return &ctx->store.blocks;
}

#define hpmmap_for_each_block(_ctx, _slot, _block, _from, _to) \
	xa_for_each_range(hpmmap_store(_ctx, _from, _to), _slot, _block, _from, _to)

#endif /* _HPMMAP_AS_OWN_RUN_H */
