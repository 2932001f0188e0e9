/* SPDX-License-Identifier: GPL-2.0 */
/* Counting. */
#ifndef _HPMMAP_AS_OWN_STATS_H
#define _HPMMAP_AS_OWN_STATS_H

#include <linux/topology.h>
#include <linux/timex.h>

#include "as/own/counters.h"
#include "as/own/ctx.h"

struct hpmmap_job;

extern const struct attribute_group *hpmmap_stats_groups[];

struct hpmmap_totals *hpmmap_stats_alloc(void);
void hpmmap_stats_peak(struct hpmmap_job *job, long nr);
void hpmmap_stats_begin(struct hpmmap_ctx *ctx);
void hpmmap_stats_fold(struct hpmmap_ctx *ctx);
void hpmmap_count_fault(struct hpmmap_ctx *ctx, unsigned long addr,
			enum hpmmap_fault why);
void hpmmap_count_fallback(struct hpmmap_ctx *ctx, enum hpmmap_fallback what,
			   unsigned long bytes);
void hpmmap_count_refusal(struct hpmmap_ctx *ctx);
void hpmmap_count_failure(struct hpmmap_ctx *ctx);
void hpmmap_count_stall(struct hpmmap_job *job, enum hpmmap_stall what,
			s64 ticks);
void hpmmap_count_lowest(struct hpmmap_job *job, unsigned long nr);
void hpmmap_count_large(struct hpmmap_job *job, unsigned long nr,
			unsigned long had);
void hpmmap_count_limited(struct hpmmap_job *job, struct hpmmap_payer *payer);

/* A block has got a slot; ctx->lock held. */
static inline void hpmmap_count_placed(struct hpmmap_ctx *ctx, int nid)
{
	lockdep_assert_held(&ctx->lock);
	ctx->placed[nid]++;
	if (nid != numa_node_id())
		ctx->stats.remote++;
}

/* A context may hold more than before. */
static inline void hpmmap_count_held(struct hpmmap_ctx *ctx)
{
	long nr = atomic_long_read(&ctx->nr_held);

	if (unlikely(nr > READ_ONCE(ctx->job->totals->peak_one)))
		hpmmap_stats_peak(ctx->job, nr);
}

void hpmmap_calls_count(struct hpmmap_ctx *ctx);

/* A call that began at @since is done; ctx->ops held. */
static inline void hpmmap_count_call(struct hpmmap_ctx *ctx,
				     enum hpmmap_timed call, u64 since)
{
	struct hpmmap_calls *calls = &ctx->stats.calls;

	lockdep_assert_held(&ctx->ops);
	calls->call[calls->nr] = call;
	/* The counters of two CPUs may differ. */
	calls->ticks[calls->nr] = max_t(s64, get_cycles() - since, 0);
	/* Who reads the job's counters finds them complete. */
	smp_store_release(&calls->nr, calls->nr + 1);
	if (unlikely(calls->nr == HPMMAP_CALLS_KEPT))
		hpmmap_calls_count(ctx);
}

#endif /* _HPMMAP_AS_OWN_STATS_H */
