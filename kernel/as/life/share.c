// SPDX-License-Identifier: GPL-2.0
/*
 * Sharing: after fork, parent and child have the same blocks until one of them writes.
 *
 * A shared block is in several stores and never changes. No page table permits writes to it, so a
 * write is a fault, which copies the block for the writer (store.c). A context that is left alone
 * with a block may write to it again: when a process is gone, its family's entries are made
 * writable before its parent learns of its end, so that a parent that waits for its child takes
 * no faults for it afterwards. Drafts are settled by a worker, or the next fault: a process that
 * forks again before goes on with them.
 *
 * A process that is gone waits for no other: what a relative keeps locked at that moment is left
 * to a work of the family, which does not wait either, but comes back. All of them together are
 * given a moment.
 *
 * A family is all that descend by fork from one execve.
 */
#include <linux/oom.h>

#include "hpmmap.h"
#include "mem/block/block.h"
#include "as/own/ctx.h"
#include "as/own/family.h"
#include "as/store/draft.h"
#include "as/store/entry.h"
#include "as/store/store.h"
#include "as/change/commit.h"
#include "as/life/share.h"

/*
 * How often slots of a relative are looked at without letting go of its mmap_lock,
 * HPMMAP_RESTORE_MOST at a time.
 */
#define RESTORE_BATCHES 2

/*
 * How long a process waits for all others together when it is gone, in steps of
 * 1 ms: while they copy blocks or one of them looks after the family, which emulated
 * CPUs take their time for, and while their mappings are locked.
 */
#define COPY_WAIT_STEPS 100
#define LOCK_WAIT_STEPS 8

/* How soon a worker settles the drafts of a process that is left alone. */
#define DRAFTS_MS 20

/* What may still be waited for, in steps, and whether drafts are settled. */
struct patience {
	unsigned int copies;
	unsigned int locks;
	bool drafts;
};

/* How soon the worker comes back at last. */
#define AGAIN_LAST_MS 200

static void family_work_fn(struct work_struct *work);

/*
 * A child, not running yet, may get blocks of its parent, whose ctx->ops is held. Returns 0
 * or -ENOMEM.
 */
int hpmmap_share_begin(struct hpmmap_ctx *parent, struct hpmmap_ctx *child)
{
	struct hpmmap_family *family;

	lockdep_assert_held(&parent->ops);
	if (!parent->family) {
		family = hpmmap_family_new(family_work_fn);
		if (!family)
			return -ENOMEM;
		hpmmap_family_join(family, parent);
		hpmmap_family_put(family);
	}
	hpmmap_family_join(parent->family, child);
	return 0;
}

/* Whether there is something of *steps left, and 1 ms has passed. */
static bool wait_a_moment(unsigned int *steps)
{
	if (!*steps)
		return false;
	--*steps;
	usleep_range(1000, 1100);
	return true;
}

/*
 * The same for the slots that hpmmap_entry_restore() has left. Those that are to be mapped
 * afterwards stay in @slots; returns how many.
 */
static unsigned int settle(struct hpmmap_ctx *ctx, unsigned long *slots,
			   unsigned int nr, bool *pinned)
{
	unsigned int i, left = 0;

	for (i = 0; i < nr; i++) {
		struct hpmmap_block *block = hpmmap_store_load(ctx, slots[i]);
		bool part = true, done;

		if (!block->draft) {
			done = hpmmap_store_adopt_locked(ctx, slots[i], block);
		} else {
			part = block->draft->part;
			done = hpmmap_store_go_back(ctx, slots[i], block) ||
			       /* One of pages of Linux is not completed: it is looked at again. */
			       (block->folio && hpmmap_draft_complete(ctx, slots[i], block));
		}
		*pinned |= !done;
		/* What was a draft, and can be mapped by one entry, is left to a fault. */
		if (done && part)
			slots[left++] = slots[i];
	}
	return left;
}

/*
 * Lets a context write again to what it is alone with, in slots from *slot on,
 * for a while. @drafts: NULL, or out: there are drafts, which stay as they are. Returns
 * -EBUSY where its mappings are locked, -EAGAIN where its blocks are, 0 at the end, otherwise 1.
 */
static int restore_some(struct hpmmap_ctx *ctx, unsigned long *slot, bool *drafts,
			bool *flush, bool *pinned)
{
	unsigned long slots[HPMMAP_RESTORE_MOST];
	unsigned int nr, i;
	int ret = 1;

	if (!mmap_read_trylock(ctx->mm))
		return -EBUSY;
	for (i = 0; i < RESTORE_BATCHES && ret == 1; i++) {
		/* Of a fork that failed, the mappings are not to be looked at. */
		ret = check_stable_address_space(ctx->mm) ? 0 : -EAGAIN;
		if (!ret || !mutex_trylock(&ctx->lock))
			break;
		ret = hpmmap_entry_restore(ctx, slot, slots, &nr, drafts, flush);
		nr = settle(ctx, slots, nr, pinned);
		mutex_unlock(&ctx->lock);
		while (nr--)
			*flush |= hpmmap_vma_remap_slot(ctx, slots[nr], true);
	}
	mmap_read_unlock(ctx->mm);
	return ret;
}

/* Returns whether the context was busy. */
static bool restore(struct hpmmap_family *family, struct hpmmap_ctx *ctx,
		    struct patience *patience)
{
	bool flush = false, pinned = false, drafts = false;
	unsigned long slot = 0;
	int ret;

	/*
	 * An address space without users may still be taken apart, with its
	 * references to the blocks: the task that ends looks again when it is done.
	 */
	if (!xa_marked(&ctx->store.blocks, SLOT_SHARED) || !mmget_not_zero(ctx->mm))
		return false;
	do {
		ret = restore_some(ctx, &slot, patience->drafts ? NULL : &drafts, &flush, &pinned);
		cond_resched();
		if ((ret == -EAGAIN && wait_a_moment(&patience->copies)) ||
		    (ret == -EBUSY && wait_a_moment(&patience->locks)))
			ret = 1;
	} while (ret > 0);
	/* Once, so that its threads do not take a fault for each slot that they have read. */
	if (flush)
		compat_flush_tlb_mm(ctx->mm);
	mmput_async(ctx->mm);
	if (ret || pinned || drafts)
		WRITE_ONCE(ctx->again, true);
	if (pinned)
		WRITE_ONCE(family->pinned, true);
	if (drafts)
		hpmmap_family_queue(family, DRAFTS_MS);
	return ret;
}

/*
 * Lets those of a family write again to what they were left alone with. Waits for another task
 * that does so if it may: it is to be done when a parent learns of the end. Returns whether there
 * is something left for the worker.
 */
static bool family_restore(struct hpmmap_family *family, struct patience patience)
{
	struct hpmmap_ctx *ctx;
	unsigned long nr;
	bool left = false;

	while (!mutex_trylock(&family->lock))
		if (!wait_a_moment(&patience.copies))
			return true;
	for (nr = READ_ONCE(family->nr); nr && (ctx = hpmmap_family_next(family)); nr--) {
		left |= ctx->mm && restore(family, ctx, &patience);
		hpmmap_ctx_put(ctx);
	}
	mutex_unlock(&family->lock);
	/* Relatives that copy leave blocks alone, one after the other. */
	return left || !list_empty_careful(&family->alone);
}

static void family_work_fn(struct work_struct *work)
{
	struct hpmmap_family *family = container_of(to_delayed_work(work),
						    struct hpmmap_family, work);

	hpmmap_family_again(family);
	if (family_restore(family, (struct patience) { .drafts = true })) {
		family->again_ms = min(2 * family->again_ms,
				       (unsigned int)AGAIN_LAST_MS);
		hpmmap_family_queue(family, family->again_ms);
	} else {
		family->again_ms = FAMILY_SOON_MS;
	}
	hpmmap_family_put(family);
}

/*
 * A context has given up everything. @here: the caller holds no lock, and looks after the
 * relatives at once; all that was given up before has been looked at when it returns, if
 * none of them had anything locked. Waits for bounded times only; a worker does the rest.
 */
void hpmmap_share_gone(struct hpmmap_ctx *ctx, bool here)
{
	const struct patience patience = {
		.copies = COPY_WAIT_STEPS,
		.locks = LOCK_WAIT_STEPS,
	};
	struct hpmmap_family *family = ctx->family;

	if (!family)
		return;
	if (xchg(&family->pinned, false))
		hpmmap_family_again(family);
	if (!list_empty_careful(&family->alone) &&
	    (!here || family_restore(family, patience)))
		hpmmap_family_queue(family, FAMILY_SOON_MS);
}
