// SPDX-License-Identifier: GPL-2.0
/*
 * Contents that are not wanted any more, though the mapping stays or comes.
 */
#include "hpmmap.h"
#include "mem/block/block.h"
#include "mem/pool/pool.h"
#include "as/own/ctx.h"
#include "as/own/release.h"
#include "as/own/reuse.h"
#include "as/map/vma.h"
#include "as/store/store.h"
#include "as/store/zap.h"
#include "as/change/commit.h"
#include "as/change/discard.h"
#include "as/change/place.h"

/* Does a page of the part of a slot have contents, or all of it pins? */
static bool slot_has_contents(struct hpmmap_block *block, unsigned long slot,
			      unsigned long start, unsigned long end)
{
	unsigned int first, nr;

	slot_clip(slot, start, end, &first, &nr);
	return hpmmap_block_has_contents(block, first, nr) ||
	       (nr == SLOT_PAGES && !hpmmap_block_idle(block));
}

static bool has_contents(struct hpmmap_ctx *ctx, unsigned long start,
			 unsigned long end)
{
	unsigned long slot = slot_of(start), last = slot_of(end - 1);
	struct hpmmap_block *block;

	if (slot == last) {
		block = hpmmap_store_load(ctx, slot);
		return block && slot_has_contents(block, slot, start, end);
	}
	hpmmap_for_each_block(ctx, slot, block, slot, last) {
		if (slot_has_contents(block, slot, start, end))
			return true;
		cond_resched();
	}
	return false;
}

/*
 * A new mapping is made: what was there means nothing. @lazy: it is a reservation, and has
 * no memory yet. ctx->ops is held.
 *
 * A stale page is never mapped, so what faults have mapped since the mapping was made goes,
 * too. A wholly covered slot whose old block is pinned loses it, and so does each that a
 * reservation covers: that is how programs give memory back that they have reserved.
 */
void hpmmap_store_renew(struct hpmmap_ctx *ctx, unsigned long start,
			unsigned long end, bool lazy)
{
	struct hpmmap_block *block;
	unsigned long slot;

	lockdep_assert_held(&ctx->ops);
	/* A fault from here on finds no contents, but makes zeros. */
	if (!(lazy ? hpmmap_store_count(ctx, start, end) :
		     has_contents(ctx, start, end)))
		return;
	mmap_read_lock(ctx->mm);
	mutex_lock(&ctx->lock);
	hpmmap_range_zap(ctx, start, end);
	hpmmap_for_each_block(ctx, slot, block, slot_of(start),
			  slot_of(end - 1)) {
		unsigned int first, nr;

		cond_resched();
		slot_clip(slot, start, end, &first, &nr);
		if (nr == SLOT_PAGES && (lazy || hpmmap_block_is_shared(block) ||
					 block->draft || block->few ||
					 !hpmmap_block_idle(block))) {
			hpmmap_slot_set(ctx, slot, NULL);
			hpmmap_reuse_forget(ctx, block);
			hpmmap_block_release(ctx, block);
			continue;
		}
		/* Made its own before, see hpmmap_change_begin_new(). */
		block = hpmmap_store_own(ctx, NULL, slot, NULL, first, nr);
		if (block)
			hpmmap_block_set_stale(block, first, nr);
		else
			send_sig(SIGKILL, current, 1);
		if (block && block->few)
			hpmmap_block_drop_linux(&ctx->owner, block, first, nr);
	}
	mutex_unlock(&ctx->lock);
	mmap_read_unlock(ctx->mm);
}

/*
 * Contents are about to be discarded. ctx->ops is held until all of it is done. A thread
 * that has seen zeros may write there, while the rest is being discarded. So what is zeros
 * by one step of it is left alone by the next.
 */
void hpmmap_discard_begin(struct hpmmap_ctx *ctx)
{
	static atomic64_t last;

	lockdep_assert_held(&ctx->ops);
	/* Of all contexts: a block may come from another one. */
	ctx->discard = atomic64_inc_return(&last);
}

/* Mappings of a slot come one after another: all between them is gone, or not ours. */
static void set_gone(struct hpmmap_ctx *ctx, struct hpmmap_block *block,
		     unsigned int first, unsigned int nr)
{
	if (block->gone.discard != ctx->discard)
		block->gone.first = first;
	block->gone.discard = ctx->discard;
	block->gone.nr = first + nr - block->gone.first;
}

/* Pinned ordinary pages stay, and are not zeros yet. */
static bool has_linux(struct hpmmap_block *block, unsigned int first, unsigned int nr)
{
	return find_next_bit(block->has, first + nr, first) < first + nr;
}

static bool is_gone(struct hpmmap_ctx *ctx, const struct hpmmap_block *block,
		    unsigned int first, unsigned int nr)
{
	return block->gone.discard == ctx->discard && first >= block->gone.first &&
	       first + nr <= block->gone.first + block->gone.nr;
}

/* Whole slots of one mapping; false where no clean block is left, or the caller is being killed. */
static bool refresh_slots(struct hpmmap_ctx *ctx, unsigned long start,
			  unsigned long end)
{
	struct hpmmap_block *block, *clean;
	bool mapped = true;
	unsigned long slot;

	lockdep_assert_held(&ctx->lock);
	hpmmap_for_each_block(ctx, slot, block, slot_of(start),
			  slot_of(end - 1)) {
		if (!block->folio || hpmmap_slot_is_marked(ctx, slot) ||
		    block->reuse_id == ctx->id ||
		    bitmap_full(block->stale, SLOT_PAGES)) {
			cond_resched();
			continue;
		}
		clean = hpmmap_pool_alloc_clean(block->account, block->nid);
		if (!clean)
			return false;
		/* All at once: each time other CPUs may have to flush their TLBs. */
		if (mapped)
			hpmmap_range_zap(ctx, slot << SLOT_SHIFT, end);
		mapped = false;
		if (!hpmmap_block_idle(block)) {
			hpmmap_store_put_back(ctx, clean);
			continue;
		}
		set_gone(ctx, clean, 0, SLOT_PAGES);
		hpmmap_store_insert(ctx, slot, clean);
		hpmmap_store_gained(ctx, clean);
		hpmmap_block_release(ctx, block);
		cond_resched();
		if (fatal_signal_pending(current))
			return false;
	}
	return true;
}

/*
 * Clean blocks for slots of a range that is about to be discarded, which is cheaper than to
 * zero them. Only as far as whole slots are mapped, accessible and not locked, and there
 * are clean blocks on their nodes; not for what is pinned, nor for what is to be kept for
 * reuse. They are not mapped then: hpmmap_change_settle() maps them. ctx->ops is held since
 * hpmmap_discard_begin().
 */
void hpmmap_store_refresh(struct hpmmap_ctx *ctx, unsigned long start,
			  unsigned long end)
{
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, ctx->mm, start);

	lockdep_assert_held(&ctx->ops);
	if (ALIGN(start, SLOT_SIZE) + SLOT_SIZE > end)
		return;
	mmap_read_lock(ctx->mm);
	mutex_lock(&ctx->lock);
	for_each_vma_range(vmi, vma, end) {
		unsigned long lo = ALIGN(max(start, vma->vm_start), SLOT_SIZE);
		unsigned long hi = min(end, vma->vm_end) & SLOT_MASK;

		if (!hpmmap_vma_is_ours(vma) || vma->vm_flags & VM_LOCKED ||
		    !hpmmap_vma_is_accessible(vma) || compat_vma_is_sealed(vma))
			break;
		if (lo < hi && !refresh_slots(ctx, lo, hi))
			break;
	}
	mutex_unlock(&ctx->lock);
	mmap_read_unlock(ctx->mm);
}

static void drop_linux_range(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end)
{
	struct hpmmap_block *block;
	unsigned long slot;
	bool mapped = true;

	hpmmap_for_each_block(ctx, slot, block, slot_of(start),
			  slot_of(end - 1)) {
		unsigned int first, nr;

		if (block->folio || block->draft)
			continue;
		if (mapped)
			hpmmap_range_zap(ctx, max(start, slot << SLOT_SHIFT), end);
		mapped = false;
		slot_clip(slot, start, end, &first, &nr);
		hpmmap_block_set_stale(block, first, nr);
		hpmmap_block_drop_linux(&ctx->owner, block, first, nr);
		if (!has_linux(block, first, nr))
			set_gone(ctx, block, first, nr);
		if (fatal_signal_pending(current))
			return;
		cond_resched();
	}
}

/*
 * Gives back ordinary pages of a range that is about to be discarded. What is locked stays.
 * ctx->ops is held since hpmmap_discard_begin().
 */
void hpmmap_store_drop_linux(struct hpmmap_ctx *ctx, unsigned long start,
			     unsigned long end)
{
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, ctx->mm, start);

	lockdep_assert_held(&ctx->ops);
	if (!atomic_long_read(&ctx->owner.nr_linux_pages) &&
	    !atomic_long_read(&ctx->owner.nr_few_pages))
		return;
	mmap_read_lock(ctx->mm);
	mutex_lock(&ctx->lock);
	for_each_vma_range(vmi, vma, end) {
		/* hpmmap_store_discard() answers for these. */
		if (hpmmap_vma_is_ours(vma) &&
		    (vma->vm_flags & VM_LOCKED || compat_vma_is_sealed(vma)))
			break;
		if (hpmmap_vma_is_ours(vma))
			drop_linux_range(ctx, max(start, vma->vm_start),
					 min(end, vma->vm_end));
	}
	mutex_unlock(&ctx->lock);
	mmap_read_unlock(ctx->mm);
}

static int discard_slot(struct hpmmap_ctx *ctx, unsigned long slot,
			unsigned long start, unsigned long end,
			bool accessible, bool *wait)
{
	struct hpmmap_block *block;
	unsigned int first, nr;
	bool owned, pinned;
	int ret = 0;

	slot_clip(slot, start, end, &first, &nr);
	mutex_lock(&ctx->lock);
	block = hpmmap_store_load(ctx, slot);
	owned = hpmmap_slot_is_marked(ctx, slot);
	/* What was not touched yet has nothing to lose. */
	if (block && (is_gone(ctx, block, first, nr) ||
		      hpmmap_policy_defers(ctx, block, slot << SLOT_SHIFT,
					   (slot + 1) << SLOT_SHIFT)))
		block = NULL;
	if (block) {
		block = hpmmap_store_own(ctx, NULL, slot, NULL, first, nr);
		ret = block ? 0 : -ENOMEM;
	}
	/* Input and output under way sees the old contents, for a moment. */
	pinned = block && (*wait ? !hpmmap_block_wait_unpinned(ctx, block) :
				   hpmmap_block_is_pinned(block));
	*wait &= !pinned;
	if (block) {
		hpmmap_block_set_stale(block, first, nr);
		/* What is pinned is zeros from now on: see hpmmap_store_is_pinned(). */
		if ((accessible || pinned) && block->folio)
			ret = hpmmap_block_fill(&ctx->owner, block, first, nr);
		else if (accessible || pinned)
			hpmmap_block_clear_linux(&ctx->owner, block, first, nr);
	}
	mutex_unlock(&ctx->lock);
	if (owned && block)
		hpmmap_vma_slot_owned(ctx, slot);
	return ret;
}

/*
 * Contents of a range are not wanted any more. @accessible: the program can read it: it has
 * to read as zero at once, and stays mapped. Otherwise nothing of it is mapped. ctx->ops is
 * held since hpmmap_discard_begin(), and mmap_lock. Returns 0, -ENOMEM, or -EINTR if the
 * caller is being killed.
 */
int hpmmap_store_discard(struct hpmmap_ctx *ctx, unsigned long start,
			 unsigned long end, bool accessible)
{
	struct hpmmap_block *block;
	bool wait = true;
	unsigned long slot;
	int ret = 0;

	lockdep_assert_held(&ctx->ops);
	lockdep_assert_held(&ctx->mm->mmap_lock);
	hpmmap_for_each_block(ctx, slot, block, slot_of(start),
			  slot_of(end - 1)) {
		ret = discard_slot(ctx, slot, start, end, accessible, &wait);
		if (ret)
			break;
		if (fatal_signal_pending(current))
			return -EINTR;
		cond_resched();
	}
	return ret;
}
