// SPDX-License-Identifier: GPL-2.0
/*
 * The one place where a change of an address space is sequenced: what has to be so before
 * mappings are changed, and what follows for the blocks behind them.
 *
 * Before: slots that a new mapping covers in part are the context's own, and not pinned. After:
 * what means nothing any more is stale, blocks of slots that no mapping covers have gone, and
 * everything that is accessible is mapped, also beside the range, where the core drops an entry
 * of 2 MB when a part of it changes.
 */
#include "hpmmap.h"
#include "mem/block/block.h"
#include "as/own/ctx.h"
#include "as/own/reuse.h"
#include "as/map/pgmap.h"
#include "as/map/range.h"
#include "as/map/vma.h"
#include "as/store/store.h"
#include "as/store/unmap.h"
#include "as/change/change.h"
#include "as/change/commit.h"
#include "as/change/discard.h"
#include "as/change/few.h"

/*
 * Slots that a range covers in part have blocks of the context's own afterwards;
 * those covered wholly can lose theirs. Returns 0, or -ENOMEM and nothing changed
 * for the program.
 */
static int own_edges(struct hpmmap_ctx *ctx, unsigned long start,
		     unsigned long end)
{
	unsigned long slots[] = { slot_of(start), slot_of(end - 1) };
	struct hpmmap_block *block;
	int ret = 0, i;

	if (!xa_marked(&ctx->store.blocks, SLOT_SHARED))
		return 0;
	mmap_read_lock(ctx->mm);
	for (i = 0; i < ARRAY_SIZE(slots) && !ret; i++) {
		unsigned int first, nr;

		slot_clip(slots[i], start, end, &first, &nr);
		if (nr == SLOT_PAGES || !hpmmap_slot_is_marked(ctx, slots[i]))
			continue;
		mutex_lock(&ctx->lock);
		block = hpmmap_store_own(ctx, NULL, slots[i], NULL, 0, 0);
		mutex_unlock(&ctx->lock);
		if (block)
			hpmmap_vma_slot_owned(ctx, slots[i]);
		else
			ret = -ENOMEM;
	}
	mmap_read_unlock(ctx->mm);
	return ret;
}

/* Below a mapping it is sure that the tables stay. */
static bool has_pages(struct hpmmap_ctx *ctx, unsigned long addr)
{
	struct vm_area_struct *vma = vma_lookup(ctx->mm, addr);

	return vma && hpmmap_vma_is_ours(vma) &&
	       hpmmap_pgmap_slot(ctx->mm, addr) == HPMMAP_ENTRY_TABLE;
}

/*
 * Mappings of a range are about to be changed. Sets c->intact: where a slot is mapped page
 * by page the core changes nothing beyond the range. c->ctx->ops is held.
 */
void hpmmap_change_begin(struct hpmmap_change *c)
{
	struct hpmmap_ctx *ctx = c->ctx;

	lockdep_assert_held(&ctx->ops);
	c->intact = 0;
	if (!((c->start | c->end) & ~SLOT_MASK) || c->start >= c->end)
		return;
	mmap_read_lock(ctx->mm);
	if (c->start & ~SLOT_MASK && has_pages(ctx, c->start))
		c->intact |= HPMMAP_END_FIRST;
	if (c->intact && c->end - c->start == PAGE_SIZE)
		c->intact = HPMMAP_END_BOTH;
	else if (c->end & ~SLOT_MASK && has_pages(ctx, c->end - 1))
		c->intact |= HPMMAP_END_LAST;
	mmap_read_unlock(ctx->mm);
}

/*
 * A range is about to be mapped anew. Sets c->blank and c->ours. c->ctx->ops is held.
 *
 * Returns 0; -ENOMEM where it cannot be, and nothing is changed for the program: there is
 * no memory for a copy of what is shared, or what lies beside it in a slot is pinned, and
 * stays so.
 */
int hpmmap_change_begin_new(struct hpmmap_change *c)
{
	bool part = (c->start | c->end) & ~SLOT_MASK, fresh = true;

	lockdep_assert_held(&c->ctx->ops);
	c->blank = false;
	c->ours = c->replaces &&
		  hpmmap_range_has_ours(c->ctx, c->start, c->end);
	/* What is copied there may be a few pages. */
	if (part && own_edges(c->ctx, c->start, c->end))
		return -ENOMEM;
	if (!c->few)
		hpmmap_few_end(c->ctx, c->start, c->end, false);
	if (part && hpmmap_store_is_pinned(c->ctx, c->start, c->end, true, &fresh))
		return -ENOMEM;
	c->blank = !fresh;
	return 0;
}

/*
 * A mapping of ours is about to move away from c. Returns 0; -ENOMEM as
 * hpmmap_change_begin_new(). What is pinned moves, too. c->ctx->ops is held.
 */
int hpmmap_change_begin_move(struct hpmmap_change *c)
{
	lockdep_assert_held(&c->ctx->ops);
	return own_edges(c->ctx, c->start, c->end);
}

/*
 * The contents behind a new mapping become stale; before a thread can touch them. c->ctx->ops is
 * held.
 */
void hpmmap_change_renew(struct hpmmap_change *c)
{
	lockdep_assert_held(&c->ctx->ops);
	if (c->renewed)
		return;
	if (!c->empty) {
		hpmmap_store_renew(c->ctx, c->start, c->end, c->lazy);
		hpmmap_reuse_renew(c->ctx, c->start, c->end, c->reuse);
	}
	c->renewed = true;
}

/* What a commit of the range has done: its slots as far as its mappings go. */
static void mappings_extend(struct hpmmap_ctx *ctx, unsigned long *start,
			    unsigned long *end)
{
	struct vm_area_struct *vma;

	if (!((*start | *end) & ~SLOT_MASK))
		return;
	mmap_read_lock(ctx->mm);
	vma = vma_lookup(ctx->mm, *start);
	if (vma)
		*start = max(vma->vm_start, *start & SLOT_MASK);
	vma = vma_lookup(ctx->mm, *end - 1);
	if (vma)
		*end = min(vma->vm_end, ALIGN(*end, SLOT_SIZE));
	mmap_read_unlock(ctx->mm);
}

/* Maps again what lies beside a range, in the slots of both ends. */
static void repair_ends(struct hpmmap_change *c, unsigned long start,
			unsigned long end)
{
	if (!((start | end) & ~SLOT_MASK))
		return;
	if (!(c->intact & HPMMAP_END_FIRST))
		hpmmap_vma_repair(c->ctx, start & SLOT_MASK, start, &c->vain);
	if (!(c->intact & HPMMAP_END_LAST))
		hpmmap_vma_repair(c->ctx, end, ALIGN(end, SLOT_SIZE), &c->vain);
}

/* What has memory there, and beside it. */
static void repair(struct hpmmap_change *c)
{
	unsigned long start = c->start, end = c->end;

	if (!(c->intact & HPMMAP_END_FIRST))
		start &= SLOT_MASK;
	if (!(c->intact & HPMMAP_END_LAST))
		end = ALIGN(end, SLOT_SIZE);
	hpmmap_vma_repair(c->ctx, start, end, &c->vain);
}

static void commit(struct hpmmap_change *c, struct list_head *blocks)
{
	unsigned long start = c->start, end = c->end;

	hpmmap_vma_commit(c->ctx, start, end, blocks, &c->vain);
	mappings_extend(c->ctx, &start, &end);
	repair_ends(c, start, end);
}

static void settle_fresh(struct hpmmap_change *c, struct list_head *blocks)
{
	WARN_ON_ONCE(!c->renewed);
	if (!c->lazy)
		hpmmap_vma_commit(c->ctx, c->start, c->end, blocks, &c->vain);
	if (c->reuse)
		hpmmap_reuse_set(c->ctx, c->start, c->end);
	if (c->replaces)
		repair_ends(c, c->start, c->end);
}

/*
 * A range has been changed, and this is what has become of it. @blocks: to use first for
 * what gets memory, or NULL. c->ctx->ops is held. Everything is mapped when it returns
 * except what is lazy, and what the pools have no block for: that is left to faults.
 *
 * Returns, of HPMMAP_GONE, whether there were blocks of ours.
 */
bool hpmmap_change_settle(struct hpmmap_change *c, enum hpmmap_outcome outcome,
			  struct list_head *blocks)
{
	bool ours = false;

	lockdep_assert_held(&c->ctx->ops);
	switch (outcome) {
	case HPMMAP_NOTHING:
		repair_ends(c, c->start, c->end);
		break;
	case HPMMAP_FAILED:
		hpmmap_store_take_back(c->ctx, c->start, c->end, false);
		fallthrough;
	case HPMMAP_KEPT:
		if (c->lazy)
			repair(c);
		else
			commit(c, blocks);
		break;
	case HPMMAP_GONE:
		ours = hpmmap_store_take_back(c->ctx, c->start, c->end, true);
		repair_ends(c, c->start, c->end);
		break;
	case HPMMAP_CUT:
		hpmmap_store_take_back(c->ctx, c->start, c->end, false);
		repair_ends(c, c->start, c->end);
		break;
	case HPMMAP_FRESH:
		settle_fresh(c, blocks);
		break;
	}
	return ours;
}

/*
 * Linux is about to replace what may be ours. Sets c->ours. c->ctx->ops is not held, nor during
 * Linux's call, which may have to wait for another thread's. A slot that was found to be ours is
 * not mapped anew until hpmmap_change_settle_apart(). Returns 0, or an errno that restarts the
 * call.
 */
long hpmmap_change_begin_apart(struct hpmmap_change *c)
{
	long ret;

	lockdep_assert_not_held(&c->ctx->ops);
	if (!hpmmap_range_has_ours(c->ctx, c->start, c->end))
		return 0;
	ret = hpmmap_ops_lock(c->ctx);
	if (ret)
		return ret;
	atomic_inc(&c->ctx->nr_replacing);
	hpmmap_ops_unlock(c->ctx);
	c->ours = true;
	return 0;
}

/* A new hugetlb mapping ends with its last page, of 1 GB at most, whatever length was asked for. */
static void to_its_end(struct hpmmap_change *c)
{
	struct vm_area_struct *vma;

	mmap_read_lock(c->ctx->mm);
	vma = vma_lookup(c->ctx->mm, c->start);
	if (vma && is_vm_hugetlb_page(vma))
		c->end = max(c->end, vma->vm_end);
	mmap_read_unlock(c->ctx->mm);
}

/*
 * Linux has changed mappings without ctx->ops. @outcome: HPMMAP_CUT, also where there was
 * nothing of ours: another thread may have mapped memory there meanwhile, which is gone;
 * HPMMAP_KEPT, of what has memory; or HPMMAP_NOTHING, where Linux was not called.
 */
void hpmmap_change_settle_apart(struct hpmmap_change *c,
				enum hpmmap_outcome outcome)
{
	bool any = outcome == HPMMAP_KEPT || c->ours;

	lockdep_assert_not_held(&c->ctx->ops);
	if (c->ours)
		atomic_dec(&c->ctx->nr_replacing);
	if (outcome == HPMMAP_NOTHING)
		return;
	if (outcome == HPMMAP_CUT)
		to_its_end(c);
	if (!any && !hpmmap_store_has_orphans(c->ctx, c->start, c->end))
		return;
	/* What Linux has done is to be completed: only a task that is being killed need not. */
	if (mutex_lock_killable(&c->ctx->ops))
		return;
	c->lazy = true;
	hpmmap_change_settle(c, outcome, NULL);
	hpmmap_ops_unlock(c->ctx);
}
