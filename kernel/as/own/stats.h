/* SPDX-License-Identifier: GPL-2.0 */
/* Counting. */
#ifndef _HPMMAP_AS_OWN_STATS_H
#define _HPMMAP_AS_OWN_STATS_H

#include <linux/timex.h>

#include "mem/block/block.h"
#include "as/own/counters.h"
#include "as/own/ctx.h"

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

/* Contiguous blocks, from @block on, have got slots that follow each other; ctx->lock held. */
static inline void hpmmap_count_placed(struct hpmmap_ctx *ctx, const struct hpmmap_block *block,
				       unsigned long nr)
{
	unsigned long pfn = folio_pfn(block->folio);
	struct hpmmap_stats *stats = &ctx->stats;

	lockdep_assert_held(&ctx->lock);
	ctx->placed[block->nid] += nr;
	if (block->nid != numa_node_id())
		stats->remote += nr;
	/* A run goes on while both the address and the memory follow those of the block before. */
	if (block->slot != stats->run_slot || pfn != stats->run_pfn)
		stats->runs++;
	stats->run_slot = block->slot + nr;
	stats->run_pfn = pfn + nr * SLOT_PAGES;
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
