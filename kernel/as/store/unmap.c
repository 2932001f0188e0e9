// SPDX-License-Identifier: GPL-2.0
/*
 * Taking back the blocks of slots that are unmapped, or of a process that is gone.
 */
#include "hpmmap.h"
#include "mem/block/block.h"
#include "mem/pool/pool.h"
#include "as/own/ctx.h"
#include "as/own/release.h"
#include "as/own/reuse.h"
#include "as/map/vma.h"
#include "as/map/window.h"
#include "as/store/store.h"
#include "as/store/unmap.h"
#include "as/store/zap.h"
#include "trace.h"

/* Blocks whose slots are looked at without a pause. */
#define RECONCILE_BATCH 64

/* Blocks that are given back at once. */
#define RELEASE_BATCH 512

/*
 * Whether a mapping of ours covers a part of a slot. @next is the first mapping
 * that ends after the slot's start, or NULL, if it ends after the start of a
 * slot before; it is kept up to date for slots that follow each other.
 */
static bool slot_is_mapped(struct hpmmap_ctx *ctx, unsigned long slot,
			   struct vm_area_struct **next, bool *known)
{
	unsigned long start = slot << SLOT_SHIFT, end = start + SLOT_SIZE;
	struct vm_area_struct *vma = *next;
	VMA_ITERATOR(vmi, ctx->mm, start);

	mmap_assert_locked(ctx->mm);
	if (!*known || (vma && vma->vm_end <= start)) {
		vma = vma_find(&vmi, ULONG_MAX);
		*next = vma;
		*known = true;
	}
	if (!vma || vma->vm_start >= end || hpmmap_vma_is_ours(vma))
		return vma && vma->vm_start < end;
	for_each_vma_range(vmi, vma, end)
		if (hpmmap_vma_is_ours(vma))
			return true;
	return false;
}

/*
 * What was unmapped of a slot that stays means nothing any more. What is pinned, shared or to be
 * reused keeps its contents until something is mapped there.
 */
static void discard_unmapped(struct hpmmap_ctx *ctx, unsigned long slot,
			     struct hpmmap_block *block, unsigned long start,
			     unsigned long end)
{
	unsigned int first, nr;

	lockdep_assert_held(&ctx->lock);
	if (!block->folio || block->reuse_id == ctx->id ||
	    hpmmap_block_is_shared(block) || hpmmap_block_is_pinned(block))
		return;
	slot_clip(slot, start, end, &first, &nr);
	hpmmap_block_set_stale(block, first, nr);
}

/* Are there blocks of a range that nothing maps, which hpmmap_store_take_back() would find? */
bool hpmmap_store_has_orphans(struct hpmmap_ctx *ctx, unsigned long start,
			      unsigned long end)
{
	struct vm_area_struct *next = NULL;
	struct hpmmap_block *block;
	bool known = false, ret = false;
	unsigned long slot;

	if (hpmmap_store_next(ctx, start, end) == end)
		return false;
	mmap_read_lock(ctx->mm);
	mutex_lock(&ctx->lock);
	hpmmap_for_each_block(ctx, slot, block, slot_of(start),
			  slot_of(end - 1)) {
		ret = !slot_is_mapped(ctx, slot, &next, &known);
		if (ret || fatal_signal_pending(current))
			break;
		cond_resched();
	}
	mutex_unlock(&ctx->lock);
	mmap_read_unlock(ctx->mm);
	return ret;
}

/* Empties the slots from @slot to @end, by as few changes of the tree as possible. */
static void slots_erase(struct hpmmap_ctx *ctx, unsigned long slot, unsigned long end)
{
	XA_STATE(xas, &ctx->store.blocks, slot);
	unsigned long order;

	lockdep_assert_held(&ctx->store.blocks.xa_lock);
	for (; slot < end; slot += 1UL << order) {
		order = IS_ENABLED(CONFIG_XARRAY_MULTI) ?
			min_t(unsigned long, __ffs(slot | XA_CHUNK_SIZE), ilog2(end - slot)) : 0;
		xas_set_order(&xas, slot, order);
		xas_store(&xas, NULL);
	}
}

/*
 * Takes back the blocks of slots that no mapping covers any more. @unmapped: nothing of ours is
 * mapped in the range. ctx->ops is held. Returns how many went.
 */
unsigned long hpmmap_store_take_back(struct hpmmap_ctx *ctx, unsigned long start,
				     unsigned long end, bool unmapped)
{
	struct hpmmap_block *block, *tmp;
	struct vm_area_struct *next = NULL;
	XA_STATE(xas, &ctx->store.blocks, slot_of(start));
	unsigned long batch = 0, nr = 0, from = 0, to = 0;
	unsigned int looked = 0;
	bool known = false;
	LIST_HEAD(reuse);
	LIST_HEAD(freed);
	LIST_HEAD(gone);

	lockdep_assert_held(&ctx->ops);
	mmap_read_lock(ctx->mm);
	mutex_lock(&ctx->lock);
	/* The mappings are gone: a window does not get again what was behind them. */
	hpmmap_window_zap(ctx, start & SLOT_MASK, ALIGN(end, SLOT_SIZE));
	if (unmapped)
		nr = hpmmap_runs_release(ctx, start, end);
	hpmmap_store(ctx, slot_of(start), slot_of(end - 1));
	xas_lock(&xas);
	xas_for_each(&xas, block, slot_of(end - 1)) {
		unsigned long slot = xas.xa_index;
		bool kept;

		if (!(unmapped && slot << SLOT_SHIFT >= start &&
		      (slot + 1) << SLOT_SHIFT <= end) &&
		    slot_is_mapped(ctx, slot, &next, &known)) {
			if (unmapped && !xas_get_mark(&xas, SLOT_SHARED))
				discard_unmapped(ctx, slot, block, start, end);
			goto pause;
		}
		if (!hpmmap_block_idle(block)) {
			/* What is still mapped is unmapped, which sleeps. */
			xas_set(&xas, slot);
			xas_unlock(&xas);
			hpmmap_slot_unmap(ctx, slot, block);
			xas_lock(&xas);
			xas_load(&xas);
		}
		kept = block->reuse_id && hpmmap_reuse_forget(ctx, block);
		nr++;
		if (!hpmmap_block_is_shared(block)) {
			hpmmap_block_append(block, kept ? &reuse : &gone);
			if (slot_of(start) == slot_of(end - 1)) {
				xas_store(&xas, NULL);
				break;
			}
			/* Those that follow each other leave the store together. */
			if (slot != to) {
				slots_erase(ctx, from, to);
				from = slot;
			}
			to = slot + 1;
			goto pause;
		}
		/*
		 * Its link is not this context's alone: it is given up one by one, without the
		 * lock of the tree.
		 */
		xas_store(&xas, NULL);
		xas_set(&xas, slot + 1);
		xas_unlock(&xas);
		hpmmap_block_release_to(ctx, block, &freed);
		xas_lock(&xas);
pause:
		/* All slots of a node of the tree in one batch. */
		if ((slot + 1) % RECONCILE_BATCH && ++batch < RECONCILE_BATCH)
			continue;
		batch = 0;
		slots_erase(ctx, from, to);
		from = to;
		/* Not xas_pause(): a node may have gone with its last entry. */
		xas_set(&xas, slot + 1);
		xas_unlock(&xas);
		cond_resched();
		xas_lock(&xas);
	}
	if (from < to)
		slots_erase(ctx, from, to);
	xas_unlock(&xas);
	list_for_each_entry_safe(block, tmp, &reuse, link) {
		list_del(&block->link);
		if (!hpmmap_reuse_keep(ctx, block))
			list_add_tail(&block->link, &gone);
		hpmmap_every(&looked, RECONCILE_BATCH);
	}
	hpmmap_block_release_list(ctx, &gone);
	mutex_unlock(&ctx->lock);
	mmap_read_unlock(ctx->mm);
	list_splice(&gone, &freed);
	hpmmap_pool_free(&freed);
	return nr;
}

/* The first @nr of a list that are not zero go to another. */
static unsigned int unclean_split(struct list_head *blocks, unsigned int nr,
				struct list_head *unclean)
{
	struct hpmmap_block *block, *tmp;
	unsigned int n = 0;

	list_for_each_entry_safe(block, tmp, blocks, link) {
		if (n == nr)
			break;
		if (block->zeroed)
			continue;
		list_move_tail(&block->link, unclean);
		n++;
	}
	return n;
}

/* Blocks that are taken out of a store at once. */
#define TAKE_BATCH 32

/*
 * Some blocks leave a store, of those without a mark from *slot on; how many. The others are first,
 * for they are found without a look at each slot between: a child that ends soon has no more.
 */
static unsigned int take_some(struct hpmmap_ctx *ctx, unsigned long *slot,
			      struct hpmmap_block **taken)
{
	xa_mark_t mark = xa_marked(&ctx->store.blocks, SLOT_SHARED) ? SLOT_SHARED : SLOT_FEW;
	bool marked = xa_marked(&ctx->store.blocks, mark);
	XA_STATE(xas, &ctx->store.blocks, marked ? 0 : *slot);
	struct hpmmap_block *block;
	unsigned int nr = 0;

	if (xa_empty(&ctx->store.blocks))
		return 0;
	xas_lock(&xas);
	block = marked ? xas_find_marked(&xas, ULONG_MAX, mark) : xas_find(&xas, ULONG_MAX);
	while (block) {
		xas_store(&xas, NULL);
		taken[nr++] = block;
		if (nr == TAKE_BATCH)
			break;
		block = marked ? xas_next_marked(&xas, ULONG_MAX, mark) :
				 xas_next_entry(&xas, ULONG_MAX);
	}
	if (!marked)
		*slot = xas.xa_index;
	xas_unlock(&xas);
	return nr;
}

/* Zeroes what is not zero of a block that is about to be given up, if it is little. */
static bool clean(struct hpmmap_block *block)
{
	if (!block->folio || block->draft || hpmmap_block_is_shared(block) ||
	    !hpmmap_block_idle(block) || !hpmmap_block_clean(block))
		return false;
	trace_hpmmap_zero(block->nid, 1);
	cond_resched();
	return true;
}

/*
 * The address space is gone, and its context without users, so no lock is needed. @nr_zero: how
 * many blocks to zero before they are given back. It may have hundreds of thousands.
 */
void hpmmap_store_release_all(struct hpmmap_ctx *ctx, unsigned int nr_zero)
{
	struct hpmmap_block *block, *taken[TAKE_BATCH];
	unsigned long slot = 0, n = 0;
	unsigned int nr, i;
	LIST_HEAD(unclean);
	LIST_HEAD(freed);

	hpmmap_runs_release(ctx, 0, TASK_SIZE_MAX);
	while ((nr = take_some(ctx, &slot, taken))) {
		for (i = 0; i < nr; i++) {
			if (nr_zero && clean(taken[i]))
				nr_zero--;
			hpmmap_block_release_to(ctx, taken[i], &freed);
		}
		n += nr;
		if (n < RELEASE_BATCH)
			continue;
		n = 0;
		nr_zero -= unclean_split(&freed, nr_zero, &unclean);
		hpmmap_pool_free(&freed);
		cond_resched();
	}
	unclean_split(&freed, nr_zero, &unclean);
	hpmmap_pool_free(&freed);
	hpmmap_reuse_exit(ctx);
	list_for_each_entry(block, &unclean, link) {
		hpmmap_block_zero(block);
		block->zeroed = true;
		hpmmap_ctx_soil(ctx, block->nid, -1);
		trace_hpmmap_zero(block->nid, 1);
	}
	hpmmap_pool_free(&unclean);
}
