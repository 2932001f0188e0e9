// SPDX-License-Identifier: GPL-2.0
/*
 * Asking the pools for an address space, and counting what came of it.
 */
#include "hpmmap.h"
#include "mem/placement.h"
#include "mem/pool.h"
#include "as/counters.h"
#include "as/ctx.h"
#include "as/reserve.h"
#include "as/stats.h"
#include "trace.h"

/**
 * hpmmap_reserve() - blocks for an address space
 * @ctx: its context, whose account is charged
 * @place: where from
 * @slot: the slot that the first one is for, the others being for those that
 *	follow; or NO_SLOT
 * @nr: how many
 * @out: list they are added to, in runs that are contiguous where possible;
 *	all their pages are stale
 *
 * May sleep.
 *
 * Return: 0, or -ENOMEM and nothing where there are not enough.
 */
int hpmmap_reserve(struct hpmmap_ctx *ctx, const struct hpmmap_placement *place,
		   unsigned long slot, unsigned long nr, struct list_head *out)
{
	struct hpmmap_request req = {
		.account = ctx->owner.account,
		.place = place,
		.slot = slot,
		.nr = nr,
		.large = ctx->job->large,
	};
	int ret;

	if (!nr)
		return 0;
	ret = hpmmap_pool_alloc(&req, out);
	if (unlikely(req.waited_reclaim))
		hpmmap_count_stall(ctx->job, HPMMAP_STALL_RECLAIM,
				   req.waited_reclaim);
	if (unlikely(req.waited_zeroing))
		hpmmap_count_stall(ctx->job, HPMMAP_STALL_ZEROING,
				   req.waited_zeroing);
	if (ret) {
		if (req.refused_by)
			hpmmap_count_limited(ctx->job, req.refused_by);
		return ret;
	}
	hpmmap_count_lowest(ctx->job, req.left);
	if (unlikely(req.large && nr >> LARGE_ORDER))
		hpmmap_count_large(ctx->job, nr >> LARGE_ORDER, req.nr_large);
	trace_hpmmap_alloc(ctx->job->id, nr);
	return 0;
}
