// SPDX-License-Identifier: GPL-2.0
/*
 * Asking the pools for an address space, and counting what came of it.
 */
#include "hpmmap.h"
#include "mem/account.h"
#include "mem/placement.h"
#include "mem/pool.h"
#include "as/counters.h"
#include "as/ctx.h"
#include "as/reserve.h"
#include "as/stats.h"
#include "trace.h"

/* Accounts are changed here, for a moment. */
static DEFINE_SPINLOCK(accounts_lock);

/*
 * The caller has another user ID or cgroup than when it was charged last. Others may look
 * at the account that was there until now, so it is kept.
 */
static void account_follow(struct hpmmap_ctx *ctx)
{
	struct hpmmap_account *now;
	unsigned int i;

	now = hpmmap_account_get_current(ctx->job->tally);
	if (!now)
		return;
	spin_lock(&accounts_lock);
	for (i = 0; i < HPMMAP_ACCOUNTS_MOST && ctx->accounts[i]; i++)
		if (ctx->accounts[i] == now)
			break;
	if (i < HPMMAP_ACCOUNTS_MOST) {
		WRITE_ONCE(ctx->owner.account, now);
		/* The reference is the context's, if it is a new one. */
		swap(ctx->accounts[i], now);
	}
	spin_unlock(&accounts_lock);
	if (now)
		hpmmap_account_put(now);
}

/**
 * hpmmap_charged() - who is charged for what an address space gets now
 * @ctx: its context
 *
 * The caller's user and cgroup, if it is his address space; those of the last one who
 * was, otherwise, and where there have been too many. May sleep.
 *
 * Return: the account; the context has a reference.
 */
struct hpmmap_account *hpmmap_charged(struct hpmmap_ctx *ctx)
{
	if (current->mm == ctx->mm && !(current->flags & PF_KTHREAD) &&
	    unlikely(!hpmmap_account_is_current(READ_ONCE(ctx->owner.account))))
		account_follow(ctx);
	return READ_ONCE(ctx->owner.account);
}

/**
 * hpmmap_reserve() - blocks for an address space
 * @ctx: its context; hpmmap_charged() is who pays
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
		.account = hpmmap_charged(ctx),
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
