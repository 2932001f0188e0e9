// SPDX-License-Identifier: GPL-2.0
/*
 * Another block for a slot, with the same contents.
 */
#include <linux/mm.h>
#include <linux/oom.h>
#include <linux/sched/signal.h>

#include "hpmmap.h"
#include "mem/account.h"
#include "mem/block.h"
#include "mem/pool.h"
#include "as/counters.h"
#include "as/ctx.h"
#include "as/draft.h"
#include "as/exchange.h"
#include "as/range.h"
#include "as/release.h"
#include "as/reserve.h"
#include "as/reuse.h"
#include "as/stats.h"
#include "as/store.h"
#include "as/zap.h"

/**
 * hpmmap_store_replace() - another block for a slot, with the same contents
 * @ctx: the context, ctx->ops and mmap_lock held, that for writing
 * @slot: the slot
 * @fresh: the block; all of it is stale
 * @wait: wait a moment for pins to go; false when that was in vain
 *
 * Nothing of the slot is mapped afterwards.
 *
 * Return: whether it was done. A block that somebody else refers to stays.
 */
bool hpmmap_store_replace(struct hpmmap_ctx *ctx, unsigned long slot,
			  struct hpmmap_block *fresh, bool *wait)
{
	struct hpmmap_block *old;
	bool done = false;

	lockdep_assert_held(&ctx->ops);
	mmap_assert_write_locked(ctx->mm);
	mutex_lock(&ctx->lock);
	old = xa_load(&ctx->store, slot);
	if (old && old->draft)
		old = hpmmap_store_own(ctx, NULL, slot, NULL, 0, 0);
	if (!old)
		goto out;
	if (*wait)
		*wait = hpmmap_block_wait_unpinned(ctx, old);
	hpmmap_range_zap(ctx, slot << SLOT_SHIFT, (slot + 1) << SLOT_SHIFT);
	if ((hpmmap_slot_is_marked(ctx, slot) && !hpmmap_store_adopt_locked(ctx, slot, old)) ||
	    !hpmmap_block_idle(old) ||
	    hpmmap_block_copy(&ctx->owner, fresh, 0, old, 0, SLOT_PAGES))
		goto out;
	hpmmap_store_insert(ctx, slot, fresh);
	hpmmap_store_gained(ctx, fresh);
	hpmmap_reuse_forget(ctx, old);
	hpmmap_block_release(ctx, old);
	done = true;
out:
	mutex_unlock(&ctx->lock);
	return done;
}

/*
 * Of the pools if there is one, otherwise of Linux. What others share stays theirs, so
 * that it is one more.
 */
static struct hpmmap_block *take_instead(struct hpmmap_ctx *ctx,
					 struct hpmmap_block *old)
{
	struct hpmmap_block *block;

	if (hpmmap_block_is_shared(old)) {
		struct hpmmap_account *account = hpmmap_charged(ctx);

		block = account ? hpmmap_pool_alloc_more(account, old->nid,
							 &ctx->job->nodes) : NULL;
		if (account)
			hpmmap_account_put(account);
	} else {
		block = hpmmap_pool_alloc_instead(old->account, old->nid,
						  &ctx->job->nodes);
	}
	if (block)
		return block;
	hpmmap_count_fallback(ctx, HPMMAP_FALLBACK_BLOCK, SLOT_SIZE);
	return hpmmap_block_alloc_linux(NUMA_NO_NODE);
}

/**
 * hpmmap_store_exchange() - another block for a slot, that of a bad one
 * @ctx: the context, ctx->ops and mmap_lock held, that for writing
 * @slot: the slot
 * @old: its block, or what is behind the draft that it has
 *
 * The contents stay; what is shared with others stays shared with none.
 *
 * Return: 0, -EBUSY (somebody but page tables refers to it), -ENOMEM, or -EAGAIN if the
 * slot has another block by now.
 */
int hpmmap_store_exchange(struct hpmmap_ctx *ctx, unsigned long slot,
			  struct hpmmap_block *old)
{
	struct hpmmap_block *fresh = NULL, *now;
	int ret = -EAGAIN;

	lockdep_assert_held(&ctx->ops);
	mmap_assert_write_locked(ctx->mm);
	mutex_lock(&ctx->lock);
	/* Of a fork that failed, the mappings are not to be looked at. */
	if (check_stable_address_space(ctx->mm))
		goto out;
	now = xa_load(&ctx->store, slot);
	if (now && now->draft && now->draft->behind == old) {
		ret = -ENOMEM;
		if (now->few)
			now = hpmmap_store_widen(ctx, NULL, slot, now);
		if (now && !now->folio && hpmmap_block_is_pinned(now))
			ret = -EBUSY;
		else if (now && hpmmap_draft_complete(ctx, slot, now))
			ret = 0;
		goto out;
	}
	if (now != old)
		goto out;
	ret = -ENOMEM;
	fresh = take_instead(ctx, old);
	if (!fresh)
		goto out;
	fresh->slot = slot;
	ret = -EBUSY;
	if (!hpmmap_block_wait_unpinned(ctx, old))
		goto out;
	hpmmap_range_zap(ctx, slot << SLOT_SHIFT, (slot + 1) << SLOT_SHIFT);
	/* A pin that came at the same time found the entry gone, or is found. */
	if (hpmmap_block_is_pinned(old))
		goto out;
	ret = hpmmap_block_copy(&ctx->owner, fresh, 0, old, 0, SLOT_PAGES);
	if (ret)
		goto out;
	hpmmap_store_insert(ctx, slot, fresh);
	if (fresh->folio)
		hpmmap_store_gained(ctx, fresh);
	hpmmap_reuse_forget(ctx, old);
	hpmmap_block_release(ctx, old);
	fresh = NULL;
out:
	if (fresh)
		hpmmap_store_put_back(ctx, fresh);
	mutex_unlock(&ctx->lock);
	return ret;
}

/* A bad page of a range that is about to be given a meaning again? */
static bool wants_heal(struct hpmmap_ctx *ctx, struct hpmmap_block *block,
		       unsigned long slot, unsigned long start, unsigned long end)
{
	unsigned int first, nr, i;
	bool ret = false;

	if (!block->folio || !hpmmap_block_is_hurt(block))
		return false;
	slot_clip(slot, start, end, &first, &nr);
	i = first;
	mutex_lock(&ctx->lock);
	if (hpmmap_store_load(ctx, slot) == block)
		for_each_set_bit_from(i, block->stale, first + nr)
			ret |= PageHWPoison(hpmmap_block_page(block, i));
	mutex_unlock(&ctx->lock);
	return ret;
}

/**
 * hpmmap_store_heal() - get ready to give a range memory
 * @ctx: the context, ctx->ops held
 * @start: first address
 * @end: end
 * @vain: as hpmmap_mmap_write_lock_soon(); NULL: for a call that waits for who reads the
 *	address space on Linux, too
 *
 * Where the contents of a page with a memory error mean nothing any more, its
 * block is exchanged for a good one. Not if somebody has pinned it.
 *
 * Return: whether one was: nothing of its slot is mapped then.
 */
bool hpmmap_store_heal(struct hpmmap_ctx *ctx, unsigned long start,
		       unsigned long end, bool *vain)
{
	struct hpmmap_block *block;
	unsigned long slot;
	bool healed = false;

	lockdep_assert_held(&ctx->ops);
	xa_for_each_range(&ctx->store, slot, block, slot_of(start),
			  slot_of(end - 1)) {
		if (wants_heal(ctx, block, slot, start, end) &&
		    (vain ? hpmmap_mmap_write_lock_soon(ctx->mm, vain) :
			    !mmap_write_lock_killable(ctx->mm))) {
			/* What has failed may have unmapped it, too. */
			hpmmap_store_exchange(ctx, slot, block);
			mmap_write_unlock(ctx->mm);
			healed = true;
		}
		cond_resched();
	}
	return healed;
}
