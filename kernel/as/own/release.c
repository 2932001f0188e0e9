// SPDX-License-Identifier: GPL-2.0
/*
 * Giving up blocks. One that is pinned (by a device, a pipe) waits until
 * the last reference has gone (mem/pool/pinned.c); then it is free.
 */
#include "hpmmap.h"
#include "mem/block/block.h"
#include "mem/pool/pinned.h"
#include "mem/pool/pool.h"
#include "as/own/ctx.h"
#include "as/own/family.h"
#include "as/own/release.h"
#include "as/own/stats.h"

/* How long a call waits for pins, in steps of 1 ms. */
#define PIN_WAIT_STEPS 10

/*
 * Waits a moment for the pins of a block, which may be mapped, to go. References that are
 * neither the module's nor a page table's are pins, or last for microseconds only (a
 * lockless page-table walk, a batch of mlock). Returns whether there is none left.
 */
bool hpmmap_block_wait_unpinned(struct hpmmap_ctx *ctx,
				struct hpmmap_block *block)
{
	u64 since = get_cycles();
	int i;

	if (!hpmmap_block_is_pinned(block))
		return true;
	for (i = 0; i < PIN_WAIT_STEPS; i++) {
		usleep_range(1000, 1100);
		if (!hpmmap_block_is_pinned(block))
			break;
	}
	hpmmap_count_stall(ctx->job, HPMMAP_STALL_PINS,
			   get_cycles() - since);
	return i < PIN_WAIT_STEPS;
}

/* Of a pool block: is it clean once all of it is stale? */
static bool all_zero(const struct hpmmap_block *block)
{
	return block->zeroed && bitmap_full(block->stale, SLOT_PAGES);
}

/* It has no user any more. */
static void give_up(struct hpmmap_ctx *ctx, struct hpmmap_block *block,
		    struct list_head *freed)
{
	if (block->folio) {
		hpmmap_block_reset(block);
		list_add_tail(&block->link, freed);
	} else {
		hpmmap_block_empty(block);
		llist_add(&block->grave, &ctx->graves);
	}
}

/*
 * Gives up a block of a context that is in no store any more; not to be used afterwards. It
 * goes back to its pool at once, or when the last pin has gone; a shared one stays with the
 * others.
 */
void hpmmap_block_release(struct hpmmap_ctx *ctx, struct hpmmap_block *block)
{
	LIST_HEAD(freed);

	hpmmap_block_release_to(ctx, block, &freed);
	hpmmap_pool_free(&freed);
}

/* Gives up one of many blocks: it is added to @freed if hpmmap_pool_free() can have it. */
void hpmmap_block_release_to(struct hpmmap_ctx *ctx, struct hpmmap_block *block, struct list_head *freed)
{
	if (unlikely(block->draft)) {
		struct hpmmap_block *behind = block->draft->behind;

		kfree(block->draft);
		block->draft = NULL;
		hpmmap_block_release_to(ctx, behind, freed);
	}
	if (hpmmap_family_unshare(ctx, block)) {
		atomic_long_dec(&ctx->nr_held);
		return;
	}
	if (block->folio) {
		atomic_long_dec(&ctx->nr_held);
	} else {
		atomic_long_sub(bitmap_weight(block->has, SLOT_PAGES),
				hpmmap_block_count(&ctx->owner, block));
		if (block->few)
			atomic_long_dec(&ctx->owner.nr_few_blocks);
	}

	if (hpmmap_block_idle(block)) {
		if (block->folio && !all_zero(block))
			hpmmap_ctx_soil(ctx, block->nid, 1);
		give_up(ctx, block, freed);
		return;
	}
	refcount_inc(&ctx->refs);
	atomic_long_inc(&ctx->nr_pinned);
	hpmmap_pinned_add(block, &ctx->holder);
}

/*
 * Gives up many blocks of a context that no other has; ctx->lock is held. @list: out: those of
 * them that hpmmap_pool_free() can have.
 */
void hpmmap_block_release_list(struct hpmmap_ctx *ctx, struct list_head *list)
{
	struct hpmmap_block *block, *tmp;
	unsigned int looked = 0;
	LIST_HEAD(freed);
	long nr = 0;

	lockdep_assert_held(&ctx->lock);
	list_for_each_entry_safe(block, tmp, list, link) {
		hpmmap_every(&looked, SLOT_PAGES);
		if (unlikely(!block->folio || block->draft || !hpmmap_block_idle(block))) {
			list_del(&block->link);
			hpmmap_block_release_to(ctx, block, &freed);
			continue;
		}
		HPMMAP_ASSERT(!hpmmap_block_is_shared(block));
		hpmmap_block_reset(block);
		if (!block->zeroed)
			atomic_long_inc(&ctx->soiled[block->nid]);
		nr++;
	}
	/* Of all nodes at once: a context that is torn down hands them over. */
	hpmmap_ctx_soil(ctx, 0, 0);
	atomic_long_sub(nr, &ctx->nr_held);
	list_splice(&freed, list);
}

/* The pins of a block that was given up have gone. */
static void pinned_back(struct hpmmap_holder *holder, struct hpmmap_block *block)
{
	struct hpmmap_ctx *ctx = container_of(holder, struct hpmmap_ctx, holder);
	bool soiled = block->folio && !all_zero(block);
	int nid = block->nid;
	LIST_HEAD(freed);

	give_up(ctx, block, &freed);
	hpmmap_pool_free(&freed);
	/* It is free before a worker may be asked to zero it. */
	if (soiled)
		hpmmap_ctx_soil(ctx, nid, 1);
	atomic_long_dec(&ctx->nr_pinned);
	hpmmap_ctx_put(ctx);
}

/* A new context has given up nothing yet. */
void hpmmap_release_init(struct hpmmap_ctx *ctx)
{
	ctx->holder.back = pinned_back;
}
