// SPDX-License-Identifier: GPL-2.0
/*
 * The store of a context: which block stands behind which 2 MB slot.
 *
 * The slot number is the virtual address divided by 2 MB, always: a mapping
 * that moves takes its blocks to their new slots. A block stays in the store
 * as long as a mapping of ours covers any part of its slot; which of its
 * pages have a meaning for that mapping, its stale bits say.
 */
#include <linux/pagemap.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "hpmmap.h"

/* The part of [start, end) that lies in a slot, as pages of the slot. */
static void clip(unsigned long slot, unsigned long start, unsigned long end,
		 unsigned int *first, unsigned int *nr)
{
	unsigned long lo = max(start, slot << SLOT_SHIFT);
	unsigned long hi = min(end, (slot + 1) << SLOT_SHIFT);

	*first = page_in_slot(lo);
	*nr = (hi - lo) >> PAGE_SHIFT;
}

/* Block behind a slot, or NULL. */
struct hpmmap_block *hpmmap_store_load(struct hpmmap_ctx *ctx,
				       unsigned long slot)
{
	return xa_load(&ctx->store, slot);
}

/* Slots of [start, end) without a block. */
unsigned long hpmmap_store_missing(struct hpmmap_ctx *ctx, unsigned long start,
				   unsigned long end)
{
	return slot_of(end - 1) - slot_of(start) + 1 -
	       hpmmap_store_count(ctx, start, end);
}

/* Slots of [start, end) with a block. */
unsigned long hpmmap_store_count(struct hpmmap_ctx *ctx, unsigned long start,
				 unsigned long end)
{
	struct hpmmap_block *block;
	unsigned long slot, n = 0;

	xa_for_each_range(&ctx->store, slot, block, slot_of(start),
			  slot_of(end - 1))
		n++;
	return n;
}

/* How many blocks of a list are looked at for the one that is meant. */
#define TAKE_LOOKS 8

/* The block of a list that was allocated for a slot, or another. */
static struct hpmmap_block *list_take(struct list_head *blocks,
				      unsigned long slot)
{
	struct hpmmap_block *block, *found = NULL;
	int looks = TAKE_LOOKS;

	list_for_each_entry(block, blocks, link) {
		if (block->slot == slot)
			found = block;
		if (found || !--looks)
			break;
	}
	if (!found)
		found = list_first_entry(blocks, struct hpmmap_block, link);
	list_del_init(&found->link);
	return found;
}

/*
 * From @blocks, the pools or, if @or_linux, Linux; for a mapping, or NULL if
 * there is none yet.
 */
static struct hpmmap_block *block_take(struct hpmmap_ctx *ctx,
				       struct vm_area_struct *vma,
				       unsigned long slot,
				       struct list_head *blocks, bool or_linux)
{
	LIST_HEAD(one);

	if (!blocks || list_empty(blocks)) {
		struct hpmmap_placement place;

		hpmmap_placement_get(ctx->job, vma, &place);
		if (hpmmap_pool_alloc(ctx->job, &place, slot, 1, &one)) {
			if (!or_linux)
				return NULL;
			hpmmap_count_fallback(ctx, SLOT_SIZE);
			return hpmmap_block_alloc_linux();
		}
		blocks = &one;
	}
	return list_take(blocks, slot);
}

static void block_put_back(struct hpmmap_ctx *ctx, struct hpmmap_block *block)
{
	if (block->folio)
		atomic_long_inc(&ctx->nr_held);
	hpmmap_block_release(ctx, block);
}

static int store_insert(struct hpmmap_ctx *ctx, unsigned long slot,
			struct hpmmap_block *block)
{
	int ret;

	lockdep_assert_held(&ctx->lock);
	ret = xa_err(xa_store(&ctx->store, slot, block, GFP_KERNEL));
	if (ret)
		return ret;
	hpmmap_block_attach(block, ctx->file->f_mapping, slot);
	return 0;
}

/* The block of a slot; a new one if there is none. NULL without memory. */
static struct hpmmap_block *store_get(struct hpmmap_ctx *ctx,
				      struct vm_area_struct *vma,
				      unsigned long slot,
				      struct list_head *blocks, bool or_linux)
{
	struct hpmmap_block *block = xa_load(&ctx->store, slot);

	lockdep_assert_held(&ctx->lock);
	if (block)
		return block;
	block = block_take(ctx, vma, slot, blocks, or_linux);
	if (!block)
		return NULL;
	if (store_insert(ctx, slot, block)) {
		block_put_back(ctx, block);
		return NULL;
	}
	if (block->folio)
		atomic_long_inc(&ctx->nr_held);
	return block;
}

/**
 * hpmmap_store_commit() - make sure that a range has memory of the pools
 * @ctx: the context; mmap_lock held, or nobody else uses it yet
 * @vma: the mapping, or NULL if there is none yet
 * @start: first address, page aligned
 * @end: end, page aligned, in the same slot
 * @blocks: blocks to use first, or NULL
 *
 * Pages without a meaning read as zero afterwards; the others are unchanged.
 * A slot that has memory of Linux gets no more of it.
 *
 * Return: the slot's block, or NULL if it has none.
 */
struct hpmmap_block *hpmmap_store_commit(struct hpmmap_ctx *ctx,
					 struct vm_area_struct *vma,
					 unsigned long start,
					 unsigned long end,
					 struct list_head *blocks)
{
	struct hpmmap_block *block;
	unsigned int first, nr;

	clip(slot_of(start), start, end, &first, &nr);
	mutex_lock(&ctx->lock);
	block = store_get(ctx, vma, slot_of(start), blocks, false);
	if (block && block->folio)
		hpmmap_block_fill(ctx, block, first, nr);
	mutex_unlock(&ctx->lock);
	return block;
}

/**
 * hpmmap_store_reserve() - make sure that a slot has a block
 * @ctx: the context; mmap_lock held, or nobody else uses it yet
 * @vma: the mapping, or NULL if there is none yet
 * @slot: the slot
 * @blocks: blocks to use first, or NULL
 *
 * Its contents are not made ready: that is left to the first touch.
 */
void hpmmap_store_reserve(struct hpmmap_ctx *ctx, struct vm_area_struct *vma,
			  unsigned long slot, struct list_head *blocks)
{
	mutex_lock(&ctx->lock);
	store_get(ctx, vma, slot, blocks, false);
	mutex_unlock(&ctx->lock);
}

/**
 * hpmmap_store_put() - another block for a slot that has one
 * @ctx: the context, its lock held
 * @slot: the slot
 * @block: its new block; what becomes of the old one is the caller's business
 */
void hpmmap_store_put(struct hpmmap_ctx *ctx, unsigned long slot,
		      struct hpmmap_block *block)
{
	/* Needs no memory, for there is an entry. */
	store_insert(ctx, slot, block);
}

/**
 * hpmmap_store_page() - the page for a fault
 * @ctx: the context
 * @vma: the mapping; mmap_lock held
 * @addr: faulting address
 * @committed: out: false if memory had to be found first
 *
 * In a block of the pools the whole part of the slot that the mapping covers
 * is made ready: the core may map all of it with one entry. Where the pools
 * are exhausted it is a page of Linux.
 *
 * Whole blocks are cleared without ctx->lock, so that threads that touch memory
 * first do not wait for each other; the lock of the folio stands for it.
 *
 * Return: the page with a reference, or NULL without memory.
 */
struct page *hpmmap_store_page(struct hpmmap_ctx *ctx,
			       struct vm_area_struct *vma, unsigned long addr,
			       bool *committed)
{
	unsigned long slot = slot_of(addr);
	unsigned int first = page_in_slot(addr), nr = 1;
	struct hpmmap_block *block;
	struct page *page = NULL;
	bool clear = false;

	mutex_lock(&ctx->lock);
	*committed = xa_load(&ctx->store, slot);
	block = store_get(ctx, vma, slot, NULL, true);
	if (!block)
		goto out;
	if (block->folio)
		clip(slot, vma->vm_start, vma->vm_end, &first, &nr);
	if (find_next_bit(block->stale, first + nr, first) < first + nr)
		*committed = false;
	if (block->folio && nr == SLOT_PAGES &&
	    bitmap_full(block->stale, SLOT_PAGES)) {
		if (ctx->job->first_touch)
			block = hpmmap_policy_touch(ctx, vma, block);
		clear = folio_trylock(block->folio);
		if (clear)
			bitmap_zero(block->stale, SLOT_PAGES);
	}
	if (hpmmap_block_fill(ctx, block, first, nr))
		goto out;
	page = hpmmap_block_page(block, page_in_slot(addr));
	get_page(page);
out:
	mutex_unlock(&ctx->lock);
	if (clear) {
		hpmmap_block_zero(block);
		folio_unlock(block->folio);
	} else if (page) {
		folio_wait_locked(page_folio(page));
	}
	return page;
}

/**
 * hpmmap_store_is_pinned() - would a new mapping share a pinned block?
 * @ctx: the context
 * @start: start of a range about to be mapped anew
 * @end: its end
 *
 * A slot that the range covers wholly gets another block if need be; one that
 * it covers in part cannot.
 */
bool hpmmap_store_is_pinned(struct hpmmap_ctx *ctx, unsigned long start,
			    unsigned long end)
{
	unsigned long slots[] = { slot_of(start), slot_of(end - 1) };
	bool ret = false;
	int i;

	mutex_lock(&ctx->lock);
	for (i = 0; i < ARRAY_SIZE(slots) && !ret; i++) {
		struct hpmmap_block *block = xa_load(&ctx->store, slots[i]);
		unsigned int first, nr;

		clip(slots[i], start, end, &first, &nr);
		/* What is stale nobody has seen since it was given out. */
		if (block && nr < SLOT_PAGES &&
		    find_next_zero_bit(block->stale, first + nr, first) <
		    first + nr)
			ret = !hpmmap_block_wait_unpinned(block);
	}
	mutex_unlock(&ctx->lock);
	return ret;
}

/* Nothing of a range stays mapped by page tables of ours. */
static void zap_ours(struct hpmmap_ctx *ctx, unsigned long start,
		     unsigned long end)
{
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, ctx->mm, start);

	mmap_assert_write_locked(ctx->mm);
	for_each_vma_range(vmi, vma, end) {
		unsigned long lo = max(start, vma->vm_start);

		if (hpmmap_vma_is_ours(vma))
			compat_zap(vma, lo, min(end, vma->vm_end) - lo);
	}
}

/* Does a page of the range have contents? */
static bool has_contents(struct hpmmap_ctx *ctx, unsigned long start,
			 unsigned long end)
{
	struct hpmmap_block *block;
	unsigned long slot;

	xa_for_each_range(&ctx->store, slot, block, slot_of(start),
			  slot_of(end - 1)) {
		unsigned int first, nr;

		clip(slot, start, end, &first, &nr);
		if (find_next_zero_bit(block->stale, first + nr, first) <
		    first + nr)
			return true;
	}
	return false;
}

/**
 * hpmmap_store_renew() - a new mapping is made: what was there means nothing
 * @ctx: the context, ctx->ops held
 * @start: start of the new mapping
 * @end: its end
 *
 * A stale page is never mapped, so what faults have mapped since the mapping
 * was made goes, too. A wholly covered slot whose old block somebody still
 * refers to loses it.
 */
void hpmmap_store_renew(struct hpmmap_ctx *ctx, unsigned long start,
			unsigned long end)
{
	struct hpmmap_block *block;
	unsigned long slot;

	/* A fault from here on finds no contents, but makes zeros. */
	if (!has_contents(ctx, start, end))
		return;
	mmap_write_lock(ctx->mm);
	zap_ours(ctx, start, end);
	mutex_lock(&ctx->lock);
	xa_for_each_range(&ctx->store, slot, block, slot_of(start),
			  slot_of(end - 1)) {
		unsigned int first, nr;

		clip(slot, start, end, &first, &nr);
		if (nr == SLOT_PAGES && !hpmmap_block_idle(block)) {
			xa_erase(&ctx->store, slot);
			hpmmap_block_release(ctx, block);
		} else {
			bitmap_set(block->stale, first, nr);
		}
		cond_resched();
	}
	mutex_unlock(&ctx->lock);
	mmap_write_unlock(ctx->mm);
}

static int discard_slot(struct hpmmap_ctx *ctx, unsigned long slot,
			unsigned long start, unsigned long end,
			bool accessible, bool *wait)
{
	struct hpmmap_block *block;
	unsigned int first, nr;
	int ret = 0;

	clip(slot, start, end, &first, &nr);
	mutex_lock(&ctx->lock);
	block = xa_load(&ctx->store, slot);
	/* What nobody has touched yet has nothing to lose. */
	if (hpmmap_policy_defers(ctx, block, slot << SLOT_SHIFT,
				 (slot + 1) << SLOT_SHIFT))
		block = NULL;
	/* Input and output under way sees the old contents, for a moment. */
	if (block && *wait)
		*wait = hpmmap_block_wait_unpinned(block);
	if (block) {
		bitmap_set(block->stale, first, nr);
		if (accessible)
			ret = hpmmap_block_fill(ctx, block, first, nr);
	}
	mutex_unlock(&ctx->lock);
	return ret;
}

/**
 * hpmmap_store_discard() - contents of a range are not wanted any more
 * @ctx: the context; mmap_lock held
 * @start: first address
 * @end: end
 * @accessible: the program can read it: it has to read as zero at once, and
 *	stays mapped. Otherwise nothing of it is mapped.
 *
 * Return: 0, -ENOMEM, or -EINTR if the caller is being killed.
 */
int hpmmap_store_discard(struct hpmmap_ctx *ctx, unsigned long start,
			 unsigned long end, bool accessible)
{
	struct hpmmap_block *block;
	bool wait = true;
	unsigned long slot;
	int ret = 0;

	xa_for_each_range(&ctx->store, slot, block, slot_of(start),
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

static bool slot_is_mapped(struct hpmmap_ctx *ctx, unsigned long slot)
{
	unsigned long addr = slot << SLOT_SHIFT;
	unsigned long end = addr + SLOT_SIZE;
	struct vm_area_struct *vma;

	mmap_assert_locked(ctx->mm);
	while (addr < end) {
		vma = find_vma_intersection(ctx->mm, addr, end);
		if (!vma)
			return false;
		if (hpmmap_vma_is_ours(vma))
			return true;
		addr = vma->vm_end;
	}
	return false;
}

/**
 * hpmmap_store_reconcile() - take back the blocks of unmapped slots
 * @ctx: the context, ctx->ops held
 * @start: start of a range in which mappings went
 * @end: its end
 */
void hpmmap_store_reconcile(struct hpmmap_ctx *ctx, unsigned long start,
			    unsigned long end)
{
	struct hpmmap_block *block;
	unsigned long slot;

	mmap_read_lock(ctx->mm);
	mutex_lock(&ctx->lock);
	xa_for_each_range(&ctx->store, slot, block, slot_of(start),
			  slot_of(end - 1)) {
		cond_resched();
		if (slot_is_mapped(ctx, slot))
			continue;
		xa_erase(&ctx->store, slot);
		hpmmap_block_release(ctx, block);
	}
	mutex_unlock(&ctx->lock);
	mmap_read_unlock(ctx->mm);
}

/* Copies what lies in one slot both before and after; returns its length. */
static unsigned long move_piece(struct hpmmap_ctx *ctx, unsigned long from,
				unsigned long to, unsigned long len,
				struct list_head *blocks, int *ret)
{
	struct hpmmap_block *src = xa_load(&ctx->store, slot_of(from));
	struct hpmmap_block *dst;

	cond_resched();
	len = min3(len, SLOT_SIZE - (from & ~SLOT_MASK),
		   SLOT_SIZE - (to & ~SLOT_MASK));
	if (!src)
		return len;
	if (len == SLOT_SIZE) {
		/* The block itself moves, and its pins with it. */
		dst = xa_load(&ctx->store, slot_of(to));
		*ret = store_insert(ctx, slot_of(to), src);
		if (*ret)
			return len;
		xa_erase(&ctx->store, slot_of(from));
		if (dst)
			hpmmap_block_release(ctx, dst);
		return len;
	}
	dst = store_get(ctx, NULL, slot_of(to), blocks, true);
	if (dst)
		hpmmap_block_copy(ctx, dst, page_in_slot(to), src,
				  page_in_slot(from), len >> PAGE_SHIFT);
	else
		*ret = -ENOMEM;
	return len;
}

/**
 * hpmmap_store_move() - contents of a range go to another
 * @ctx: the context, ctx->ops held
 * @from: old start
 * @to: new start; the range is new and stale
 * @len: length
 * @blocks: blocks to use first
 *
 * Whole slots move without a copy where both addresses are equal modulo 2 MB.
 * Nothing of either range is mapped by page tables afterwards.
 *
 * Return: 0 or -ENOMEM.
 */
int hpmmap_store_move(struct hpmmap_ctx *ctx, unsigned long from,
		      unsigned long to, unsigned long len,
		      struct list_head *blocks)
{
	int ret = 0;

	mmap_write_lock(ctx->mm);
	zap_ours(ctx, from, from + len);
	zap_ours(ctx, to, to + len);
	mutex_lock(&ctx->lock);
	while (len && !ret) {
		unsigned long n = move_piece(ctx, from, to, len, blocks, &ret);

		from += n;
		to += n;
		len -= n;
	}
	mutex_unlock(&ctx->lock);
	mmap_write_unlock(ctx->mm);
	return ret;
}

/**
 * hpmmap_store_snapshot() - copy a range for a child
 * @parent: whose contents; its mmap_lock is held
 * @child: who gets them; not running yet
 * @start: start of a mapping
 * @end: its end
 * @blocks: blocks to use first
 *
 * Without memory the child is doomed.
 */
void hpmmap_store_snapshot(struct hpmmap_ctx *parent, struct hpmmap_ctx *child,
			   unsigned long start, unsigned long end,
			   struct list_head *blocks)
{
	struct hpmmap_block *src, *dst;
	unsigned long slot;

	mutex_lock(&parent->lock);
	mutex_lock_nested(&child->lock, SINGLE_DEPTH_NESTING);
	xa_for_each_range(&parent->store, slot, src, slot_of(start),
			  slot_of(end - 1)) {
		unsigned int first, nr;

		clip(slot, start, end, &first, &nr);
		if (find_next_zero_bit(src->stale, first + nr, first) >=
		    first + nr)
			continue;
		dst = store_get(child, NULL, slot, blocks, true);
		if (!dst) {
			child->doomed = true;
			break;
		}
		hpmmap_block_copy(child, dst, first, src, first, nr);
		cond_resched();
	}
	mutex_unlock(&child->lock);
	mutex_unlock(&parent->lock);
}

/**
 * hpmmap_store_replace() - another block for a slot, with the same contents
 * @ctx: the context, ctx->ops held
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

	mmap_write_lock(ctx->mm);
	mutex_lock(&ctx->lock);
	old = xa_load(&ctx->store, slot);
	if (!old)
		goto out;
	if (*wait)
		*wait = hpmmap_block_wait_unpinned(old);
	zap_ours(ctx, slot << SLOT_SHIFT, (slot + 1) << SLOT_SHIFT);
	if (!hpmmap_block_idle(old))
		goto out;
	hpmmap_block_copy(ctx, fresh, 0, old, 0, SLOT_PAGES);
	hpmmap_store_put(ctx, slot, fresh);
	atomic_long_inc(&ctx->nr_held);
	hpmmap_block_release(ctx, old);
	done = true;
out:
	mutex_unlock(&ctx->lock);
	mmap_write_unlock(ctx->mm);
	return done;
}

/**
 * hpmmap_store_release_all() - the address space is gone
 * @ctx: nobody can find it any more, so no lock is needed
 */
void hpmmap_store_release_all(struct hpmmap_ctx *ctx)
{
	struct hpmmap_block *block;
	unsigned long slot;

	xa_for_each(&ctx->store, slot, block) {
		xa_erase(&ctx->store, slot);
		hpmmap_block_release(ctx, block);
	}
}
