// SPDX-License-Identifier: GPL-2.0
/*
 * Drafts. A process that writes to a little of a block that is shared since a fork gets a block
 * of its own, but only the pages that it touches are copied. The shared block stays behind the
 * draft for the others, which are mapped by nothing. A draft begins with ordinary pages, as long
 * as there are a few: a block for each would be most of what a process holds that forks, or has
 * been forked.
 *
 * A draft stands in the store, marked as a shared block is: code that changes it, or needs all of
 * it to be there, gets it by hpmmap_store_own(), which settles it. What is read through
 * hpmmap_block_page() is right at any time. A draft is never shared, and what is behind one is
 * never written to, even if it is left to one context alone.
 *
 * Several mappings may have a part of the slot each, and some of it may be in none. What is in
 * none is copied with the rest at most, and never mapped: such entries would never be taken away,
 * and would keep the block, and the module, for good. A draft follows what was mapped when its
 * slot was shared: whatever is mapped there later finds the slot settled (own_edges() of
 * change.c), and what is unmapped keeps its page in the draft until then.
 */
#include "hpmmap.h"
#include "mem/block/block.h"
#include "as/own/ctx.h"
#include "as/own/release.h"
#include "as/own/reuse.h"
#include "as/own/stats.h"
#include "as/store/draft.h"
#include "as/store/store.h"
#include "as/store/zap.h"

/*
 * Pages that are copied one by one: the whole block is no more than half as much
 * again.
 */
#define COPIED_MOST (SLOT_PAGES * 2 / 3)

/*
 * Of these, as many may be ordinary pages: a quarter of a slot. Scattered writes while a child
 * saves a snapshot come to that, and no further. Of a slot that is mapped in part (the ends of
 * heaps and stacks, what is small) all of it: it is never mapped by one entry, some of it is in
 * no mapping, and more is never touched.
 */
#define LINUX_MOST (SLOT_PAGES / 4)
#define LINUX_MOST_OF_PART SLOT_PAGES

/*
 * What is only read is copied as well, since nothing else can be mapped beside pages that may be
 * written to. After many reads the whole block is copied; not of a slot that is mapped in part,
 * as long as it has ordinary pages.
 */
#define READS_MOST 16

/*
 * There what is only read is copied with what lies around it, as Linux maps files: twice as
 * much each other time, up to so many pages. A child that ends or executes a program soon reads
 * two or three, and all that is copied is copied again for each of the next children.
 */
#define READ_AROUND 16U

/*
 * Makes a draft of a shared block. @own: new, from a pool, or for a few ordinary pages. @part: no
 * one mapping covers the slot. The caller's use of @behind is the draft's now. Returns false
 * without memory.
 */
bool hpmmap_draft_begin(struct hpmmap_block *own, struct hpmmap_block *behind, bool part)
{
	struct hpmmap_draft *draft = kzalloc(sizeof(*draft), GFP_KERNEL_ACCOUNT);

	if (!draft)
		return false;
	draft->behind = behind;
	draft->part = part;
	bitmap_complement(draft->left, behind->stale, SLOT_PAGES);
	bitmap_copy(own->stale, behind->stale, SLOT_PAGES);
	own->draft = draft;
	return true;
}

/* Pages with contents in the draft itself. */
static unsigned int nr_copied(const struct hpmmap_block *own)
{
	VM_WARN_ON_ONCE(bitmap_intersects(own->draft->left, own->stale, SLOT_PAGES));
	return SLOT_PAGES - bitmap_weight(own->draft->left, SLOT_PAGES) -
	       bitmap_weight(own->stale, SLOT_PAGES);
}

/* Copies them to another block; false without memory, never if it is of the pools. */
static bool copy_copied(struct hpmmap_ctx *ctx, struct hpmmap_block *to,
			struct hpmmap_block *own)
{
	DECLARE_BITMAP(others, SLOT_PAGES);
	unsigned int i;

	bitmap_or(others, own->draft->left, own->stale, SLOT_PAGES);
	for_each_clear_bit(i, others, SLOT_PAGES)
		if (hpmmap_block_copy(&ctx->owner, to, i, own, i, 1))
			return false;
	return true;
}

/* Of a draft with more a child gets no copies. */
#define INHERITED_MOST 16

/*
 * Makes a draft for a child, of the same block and with the same pages as its parent's (@from).
 * @own: new, for a few ordinary pages. The locks of both contexts are held. Returns false where
 * @from has to be settled, and @own is no draft.
 */
bool hpmmap_draft_inherit(struct hpmmap_ctx *child, struct hpmmap_block *own,
			  struct hpmmap_block *from)
{
	struct hpmmap_block *behind = from->draft->behind;

	lockdep_assert_held(&child->lock);
	if (!from->few || !from->draft->part || from->draft->stuck ||
	    nr_copied(from) > INHERITED_MOST || hpmmap_block_is_hurt(from) ||
	    hpmmap_block_is_hurt(behind) || !hpmmap_draft_begin(own, behind, true))
		return false;
	bitmap_copy(own->draft->left, from->draft->left, SLOT_PAGES);
	if (copy_copied(child, own, from))
		return true;
	kfree(own->draft);
	own->draft = NULL;
	return false;
}

/* How many of them may be pages of Linux. */
static unsigned int linux_most(const struct hpmmap_draft *draft)
{
	return draft->part ? LINUX_MOST_OF_PART : LINUX_MOST;
}

static int copy_pages(struct hpmmap_ctx *ctx, struct hpmmap_block *own,
		      unsigned int first, unsigned int nr)
{
	struct hpmmap_draft *draft = own->draft;
	unsigned int i = first;
	int ret;

	for_each_set_bit_from(i, draft->left, first + nr) {
		ret = hpmmap_block_copy(&ctx->owner, own, i, draft->behind, i, 1);
		if (ret)
			return ret;
		clear_bit(i, draft->left);
		atomic_long_inc(&ctx->nr_copied);
	}
	return 0;
}

/*
 * Would it be of use to move a draft to a block, for a page that is to be copied, if it was
 * not? The lock of its context is held.
 */
bool hpmmap_draft_may_move(const struct hpmmap_block *own, unsigned int page)
{
	return own->few && !own->draft->stuck && test_bit(page, own->draft->left) &&
	       hpmmap_block_is_shared(own->draft->behind);
}

/*
 * Is @page to be copied, and has a draft of ordinary pages no room for it? See
 * hpmmap_store_widen(). @write: it will be written to. @pins: it will be pinned. ctx->lock
 * is held.
 */
bool hpmmap_draft_is_full(const struct hpmmap_ctx *ctx,
			  const struct hpmmap_block *own, unsigned int page,
			  bool write, bool pins)
{
	const struct hpmmap_draft *draft = own->draft;

	lockdep_assert_held(&ctx->lock);
	return hpmmap_draft_may_move(own, page) &&
	       (pins || nr_copied(own) >= linux_most(draft) ||
		(!write && !draft->part && draft->reads >= READS_MOST) ||
		!hpmmap_block_may_be_few(&ctx->owner, 1, 0));
}

/* The draft @own, which is in no page table, moves to a new block of the pools. ctx->lock is held. */
void hpmmap_draft_move(struct hpmmap_ctx *ctx, struct hpmmap_block *to,
		       struct hpmmap_block *own)
{
	lockdep_assert_held(&ctx->lock);
	copy_copied(ctx, to, own);
	bitmap_copy(to->stale, own->stale, SLOT_PAGES);
	swap(to->draft, own->draft);
}

/* Writes to one page after the other get half as many ahead as there are before. */
static unsigned int nr_ahead(const struct hpmmap_block *own, unsigned int page,
			     unsigned int most)
{
	const struct hpmmap_draft *draft = own->draft;
	unsigned int before = page, nr;

	while (before && !test_bit(before - 1, draft->left) &&
	       !test_bit(before - 1, own->stale))
		before--;
	nr = clamp((page - before) / 2, 1U, most);
	/* Where it cannot move to a block no more than has to be. */
	if (!own->folio && (draft->stuck || nr_copied(own) >= linux_most(draft)))
		nr = 1;
	else if (!own->folio)
		nr = min(nr, linux_most(draft) - nr_copied(own));
	return min_t(unsigned int, nr,
		     find_next_zero_bit(draft->left, SLOT_PAGES, page) - page);
}

/* Is what lies around a page to be copied with it? Narrows @range to that, if so. */
static bool goes_around(struct hpmmap_ctx *ctx, const struct hpmmap_block *own,
			unsigned int page, struct hpmmap_pages *range)
{
	unsigned int around = 1U << min_t(unsigned int, (own->draft->reads - 1) / 2,
					  ilog2(READ_AROUND));
	unsigned int lo = max(range->first, round_down(page, around));
	unsigned int hi = min(range->first + range->nr,
			      round_down(page, around) + around);

	if (own->folio || !own->draft->part || own->draft->stuck ||
	    nr_copied(own) + around > linux_most(own->draft) ||
	    !hpmmap_block_may_be_few(&ctx->owner, around, 0))
		return false;
	range->first = lo;
	range->nr = hi - lo;
	return true;
}

/*
 * A page of a draft is touched. @range: what the mapping has of the slot; out: what of that
 * may be mapped, @page at least; pages of it that are still behind the draft are not
 * mapped. ctx->lock is held, and hpmmap_draft_is_full() was asked. Returns false where the
 * draft is to be settled.
 */
bool hpmmap_draft_copy(struct hpmmap_ctx *ctx, struct hpmmap_block *own,
		       unsigned int page, bool write, struct hpmmap_pages *range)
{
	unsigned int most = range->first + range->nr - page;
	struct hpmmap_draft *draft = own->draft;

	lockdep_assert_held(&ctx->lock);
	/* What is pinned cannot go back yet. */
	if (!hpmmap_block_is_shared(draft->behind) &&
	    (own->folio || !hpmmap_block_is_pinned(own)))
		return false;
	/* Nothing is made ready in a draft. */
	if (test_bit(page, own->stale))
		return false;
	/* It has others, perhaps, that are not mapped. */
	if (!own->folio && !test_bit(page, draft->left))
		return true;
	if (test_bit(page, draft->left)) {
		/* Otherwise all of it would be Linux's. */
		if (own->folio && (nr_copied(own) >= COPIED_MOST ||
				   (!write && ++draft->reads > READS_MOST)))
			return false;
		draft->reads += !own->folio && !write;
		if (!write && goes_around(ctx, own, page, range) &&
		    !copy_pages(ctx, own, range->first, range->nr))
			return true;
	}
	range->first = page;
	range->nr = 1;
	if (test_bit(page, draft->left))
		range->nr = nr_ahead(own, page, most);
	return !copy_pages(ctx, own, range->first, range->nr);
}

/* The slot has its block, and does not need @given any more. */
static void draft_end(struct hpmmap_ctx *ctx, unsigned long slot,
		      struct hpmmap_block *own, struct hpmmap_block *given)
{
	xa_clear_mark(&ctx->store.blocks, slot, SLOT_SHARED);
	/* What is mapped in part is mapped so, whatever comes. */
	if (!own->draft->part)
		xa_set_mark(&ctx->store.blocks, slot, SLOT_SPLIT);
	kfree(own->draft);
	own->draft = NULL;
	hpmmap_block_release(ctx, given);
}

/*
 * The few pages of a draft that were copied go back to the block behind it, which is the
 * context's alone, if their copies have no reference but of page tables. Then the slot is
 * not marked any more, and some of its pages may be mapped. ctx->lock and mmap_lock are
 * held.
 *
 * Returns the block that was behind the draft; NULL if that cannot be, or it is cheaper to
 * complete the draft.
 */
struct hpmmap_block *hpmmap_draft_go_back(struct hpmmap_ctx *ctx,
					  unsigned long slot,
					  struct hpmmap_block *own)
{
	struct hpmmap_block *behind = own->draft->behind;

	lockdep_assert_held(&ctx->lock);
	lockdep_assert_held(&ctx->mm->mmap_lock);
	/* A block that is given up must not be taken into use again. */
	if ((own->folio && nr_copied(own) > SLOT_PAGES / 2) ||
	    READ_ONCE(behind->bad))
		return NULL;
	/* A pin that comes at the same time finds the entry gone, or is found. */
	hpmmap_slot_zap(ctx, slot);
	if (hpmmap_block_is_pinned(own) || !copy_copied(ctx, behind, own))
		return NULL;
	/* Cannot fail: there is an entry. */
	hpmmap_slot_set(ctx, slot, behind);
	hpmmap_block_attach(behind, ctx->file->f_mapping, slot);
	hpmmap_reuse_forget(ctx, own);
	draft_end(ctx, slot, own, own);
	return behind;
}

/*
 * Copies what there is to copy yet of a draft; of one of ordinary pages only if it cannot
 * move to a block. Then the slot is not marked any more, and some of its pages may be
 * mapped. ctx->lock and mmap_lock are held. Returns @own; NULL without memory, and the
 * draft is as it was.
 */
struct hpmmap_block *hpmmap_draft_complete(struct hpmmap_ctx *ctx,
					   unsigned long slot,
					   struct hpmmap_block *own)
{
	lockdep_assert_held(&ctx->lock);
	lockdep_assert_held(&ctx->mm->mmap_lock);
	own->spare = NUMA_NO_NODE;
	if (copy_pages(ctx, own, 0, SLOT_PAGES))
		return NULL;
	if (own->few) {
		hpmmap_block_few_end(&ctx->owner, own);
		hpmmap_count_fallback(ctx, HPMMAP_FALLBACK_BLOCK, SLOT_SIZE);
	}
	draft_end(ctx, slot, own, own->draft->behind);
	return own;
}
