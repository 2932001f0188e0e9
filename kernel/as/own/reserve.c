// SPDX-License-Identifier: GPL-2.0
/*
 * Asking the pools for an address space, and counting what came of it.
 */
#include "hpmmap.h"
#include "mem/block/account.h"
#include "mem/block/nodes.h"
#include "mem/pool/pool.h"
#include "as/own/ctx.h"
#include "as/own/reserve.h"
#include "as/own/stats.h"
#include "trace.h"

/*
 * The account that is charged for what an address space gets now, with a reference for the
 * caller: that of the calling user and cgroup if it is the caller's address space,
 * otherwise the last one that was charged. NULL without memory: then the caller gets
 * nothing. May sleep.
 */
struct hpmmap_account *hpmmap_charged(struct hpmmap_ctx *ctx)
{
	struct hpmmap_account *account = hpmmap_account_get(&ctx->owner.account);

	if (current->mm != ctx->mm || current->flags & PF_KTHREAD ||
	    likely(hpmmap_account_is_current(account)))
		return account;
	hpmmap_account_put(account);
	account = hpmmap_account_get_current(ctx->job->tally);
	if (account)
		hpmmap_account_set(&ctx->owner.account, account);
	return account;
}

/*
 * Could an address space get at least one block from @place now? A limit that is in the way
 * counts as having refused a request. May sleep.
 */
bool hpmmap_could_reserve(struct hpmmap_ctx *ctx, const struct hpmmap_placement *place)
{
	struct hpmmap_account *account = hpmmap_charged(ctx);
	struct hpmmap_payer *full;
	bool ret;

	if (!account)
		return false;
	ret = hpmmap_pool_has_free(account, &place->nodes, 1);
	full = ret ? NULL : hpmmap_account_full(account, 1);
	if (full)
		hpmmap_count_limited(ctx->job, full);
	hpmmap_account_put(account);
	return ret;
}

/*
 * Adds @nr blocks for an address space to @out, in runs that are contiguous where possible;
 * all their pages are stale. They are charged to hpmmap_charged(). @slot: the slot that the
 * first one is for, the others being for those that follow; or NO_SLOT. @whole: runs may be among
 * them, where the job has entries of 1 GB. May sleep.
 *
 * Returns 0, or -ENOMEM and nothing where there are not enough.
 */
int hpmmap_reserve(struct hpmmap_ctx *ctx, const struct hpmmap_placement *place,
		   unsigned long slot, unsigned long nr, bool whole, struct list_head *out)
{
	struct hpmmap_request req = {
		.place = place,
		.slot = slot,
		.nr = nr,
		.large = ctx->job->large || place->large,
		.whole = whole && ctx->job->gigabytes,
	};
	int ret;

	if (!nr)
		return 0;
	if (hpmmap_pool_at_hand(&ctx->owner.account, &req, out))
		goto out;
	req.account = hpmmap_charged(ctx);
	if (!req.account)
		return -ENOMEM;
	ret = hpmmap_pool_alloc(&req, out);
	/* The payer that refused is there as long as the account. */
	if (ret && req.refused_by)
		hpmmap_count_limited(ctx->job, req.refused_by);
	hpmmap_account_put(req.account);
	if (unlikely(req.waited_reclaim))
		hpmmap_count_stall(ctx->job, HPMMAP_STALL_RECLAIM,
				   req.waited_reclaim);
	if (unlikely(req.waited_zeroing))
		hpmmap_count_stall(ctx->job, HPMMAP_STALL_ZEROING,
				   req.waited_zeroing);
	if (ret)
		return ret;
out:
	hpmmap_count_lowest(ctx->job, req.left);
	if (unlikely(req.nr_gigabytes))
		hpmmap_count_large(ctx->job, req.nr_gigabytes, req.nr_large);
	trace_hpmmap_alloc(ctx->job->id, nr);
	return 0;
}
