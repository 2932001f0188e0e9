// SPDX-License-Identifier: GPL-2.0
/*
 * Contents that move to other addresses.
 */
#include "hpmmap.h"
#include "mem/block/block.h"
#include "as/own/ctx.h"
#include "as/own/release.h"
#include "as/own/reuse.h"
#include "as/map/window.h"
#include "as/store/move.h"
#include "as/store/store.h"
#include "as/store/zap.h"

/* Pages that were copied are kept when they are unmapped as they were before. */
static void move_reuse(struct hpmmap_ctx *ctx, unsigned long from,
		       unsigned long to, unsigned long len,
		       struct hpmmap_block *src, struct hpmmap_block *dst)
{
	unsigned int i, nr = len >> PAGE_SHIFT;

	if (src->reuse_id != ctx->id || !dst->folio)
		return;
	hpmmap_reuse_mark(ctx, dst);
	for (i = 0; i < nr; i++)
		if (test_bit(page_in_slot(from) + i, src->reuse) &&
		    !test_bit(page_in_slot(to) + i, dst->stale))
			set_bit(page_in_slot(to) + i, dst->reuse);
}

/*
 * Copies what lies in one slot both before and after, or leaves out slots
 * without a block; returns the length.
 */
static unsigned long move_piece(struct hpmmap_ctx *ctx, unsigned long from,
				unsigned long to, unsigned long len,
				struct list_head *blocks, int *ret)
{
	unsigned long skip = hpmmap_store_next(ctx, from, from + len) - from;
	struct hpmmap_block *src, *dst;

	if (skip)
		return skip;
	cond_resched();
	len = min3(len, SLOT_SIZE - (from & ~SLOT_MASK),
		   SLOT_SIZE - (to & ~SLOT_MASK));
	src = hpmmap_store_load(ctx, slot_of(from));
	if (len == SLOT_SIZE) {
		/* The block itself moves, and its pins with it. */
		dst = hpmmap_store_load(ctx, slot_of(to));
		*ret = hpmmap_store_insert(ctx, slot_of(to), src);
		if (*ret)
			return len;
		if (hpmmap_slot_is_marked(ctx, slot_of(from)))
			xa_set_mark(&ctx->store.blocks, slot_of(to), SLOT_SHARED);
		hpmmap_slot_set(ctx, slot_of(from), NULL);
		if (dst) {
			hpmmap_reuse_forget(ctx, dst);
			hpmmap_block_release(ctx, dst);
		}
		return len;
	}
	dst = hpmmap_store_get(ctx, NULL, slot_of(to), NULL, blocks, true);
	/* If both are in one slot, it may have another block now. */
	src = hpmmap_store_load(ctx, slot_of(from));
	*ret = dst ? hpmmap_block_copy(&ctx->owner, dst, page_in_slot(to), src,
				       page_in_slot(from), len >> PAGE_SHIFT) :
		     -ENOMEM;
	if (!*ret)
		move_reuse(ctx, from, to, len, src, dst);
	return len;
}

/*
 * What is copied at once, with mmap_lock and ctx->lock held, which takes some
 * milliseconds; and what it counts to move a block.
 */
#define COPY_MOST (16UL << 20)
#define BLOCK_COUNTS (16UL << 10)

/*
 * Is the caller's process, the only one of the address space, being killed? One of its threads
 * may be dumping core: that needs the contents.
 */
static bool is_needless(const struct hpmmap_ctx *ctx)
{
	return fatal_signal_pending(current) && READ_ONCE(ctx->nr_procs) == 1 &&
	       !READ_ONCE(current->signal->core_state);
}

/*
 * Contents of a range go to another, which is new, stale and frozen; @blocks are used
 * first. ctx->ops is held. Whole slots move without a copy where both addresses are equal
 * modulo 2 MB. Nothing is mapped in the old range, so tasks that only look at the address
 * space do not wait for copies.
 *
 * Returns 0, -ENOMEM, or -EINTR if the process is being killed and no other process has the
 * address space.
 */
int hpmmap_store_move(struct hpmmap_ctx *ctx, unsigned long from,
		      unsigned long to, unsigned long len,
		      struct list_head *blocks)
{
	int ret = 0;

	lockdep_assert_held(&ctx->ops);
	/* Without a mapping a window does not get again what was there. */
	hpmmap_window_zap(ctx, from, from + len);
	while (len && !ret) {
		unsigned long n, copied = 0;

		mmap_read_lock(ctx->mm);
		mutex_lock(&ctx->lock);
		while (len && copied < COPY_MOST && !ret) {
			n = move_piece(ctx, from, to, len, blocks, &ret);
			copied += n < SLOT_SIZE ? n : BLOCK_COUNTS;
			from += n;
			to += n;
			len -= n;
		}
		mutex_unlock(&ctx->lock);
		mmap_read_unlock(ctx->mm);
		if (len && !ret && is_needless(ctx))
			ret = -EINTR;
	}
	return ret;
}
