// SPDX-License-Identifier: GPL-2.0
/*
 * The store of a context: which block stands behind which 2 MB slot.
 *
 * The slot number is the virtual address divided by 2 MB, always: a mapping
 * that moves takes its blocks to their new slots. A block stays in the store
 * as long as a mapping of ours covers any part of its slot; which of its
 * pages have a meaning for that mapping, its stale bits say.
 */
#include <linux/oom.h>
#include <linux/pagemap.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "hpmmap.h"
#include "mem/block.h"
#include "mem/placement.h"
#include "mem/poison.h"
#include "mem/pool.h"
#include "as/counters.h"
#include "as/ctx.h"
#include "as/pgmap.h"
#include "as/policy.h"
#include "as/release.h"
#include "as/reserve.h"
#include "as/reuse.h"
#include "as/stats.h"
#include "as/store.h"
#include "as/vma.h"
#include "task/fork.h"
#include "trace.h"

/* Block behind a slot, or NULL. */
struct hpmmap_block *hpmmap_store_load(struct hpmmap_ctx *ctx,
				       unsigned long slot)
{
	return xa_load(&ctx->store, slot);
}

/* First address of [start, end) whose slot has a block, or @end. */
unsigned long hpmmap_store_next(struct hpmmap_ctx *ctx, unsigned long start,
				unsigned long end)
{
	unsigned long slot = slot_of(start);

	if (!xa_find(&ctx->store, &slot, slot_of(end - 1), XA_PRESENT))
		return end;
	return max(start, slot << SLOT_SHIFT);
}

/* Slots of [start, end) without a block. */
unsigned long hpmmap_store_missing(struct hpmmap_ctx *ctx, unsigned long start,
				   unsigned long end)
{
	return slot_of(end - 1) - slot_of(start) + 1 -
	       hpmmap_store_count(ctx, start, end);
}

/* Slots of [start, end) whose block is shared, or was. */
unsigned long hpmmap_store_count_shared(struct hpmmap_ctx *ctx,
					unsigned long start, unsigned long end)
{
	struct hpmmap_block *block;
	unsigned long slot = slot_of(start), n = 0;

	for (block = xa_find(&ctx->store, &slot, slot_of(end - 1), SLOT_SHARED);
	     block; block = xa_find_after(&ctx->store, &slot,
					  slot_of(end - 1), SLOT_SHARED))
		n++;
	return n;
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

static bool has_stale(struct hpmmap_block *block, unsigned int first,
		      unsigned int nr)
{
	return find_next_bit(block->stale, first + nr, first) < first + nr;
}

static bool has_fresh(struct hpmmap_block *block, unsigned int first,
		      unsigned int nr)
{
	return find_next_zero_bit(block->stale, first + nr, first) < first + nr;
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
 * there is none yet. @from: what will be copied to it, or NULL.
 */
static struct hpmmap_block *block_take(struct hpmmap_ctx *ctx,
				       struct vm_area_struct *vma,
				       unsigned long slot,
				       const struct hpmmap_block *from,
				       struct list_head *blocks, bool or_linux)
{
	LIST_HEAD(one);

	if (!blocks || list_empty(blocks)) {
		struct hpmmap_placement place;

		if (from)
			hpmmap_placement_copy(ctx, vma, slot, from, &place);
		else
			hpmmap_placement_get(ctx->job, vma, &place);
		if (hpmmap_reserve(ctx, &place, slot, 1, &one)) {
			if (!or_linux)
				return NULL;
			hpmmap_count_fallback(ctx, HPMMAP_FALLBACK_BLOCK,
					      SLOT_SIZE);
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

/* Whether the first touch will decide where the block of a slot lies. */
static bool awaits_touch(struct hpmmap_ctx *ctx, struct hpmmap_block *block)
{
	return ctx->job->first_touch && block->folio &&
	       bitmap_full(block->stale, SLOT_PAGES);
}

/* A block of the pools has got a slot. */
static void count_gained(struct hpmmap_ctx *ctx, struct hpmmap_block *block)
{
	atomic_long_inc(&ctx->nr_held);
	if (!awaits_touch(ctx, block))
		hpmmap_count_placed(ctx, block->nid);
}

/* A block is about to get contents. */
static int fill(struct hpmmap_ctx *ctx, struct hpmmap_block *block,
		unsigned int first, unsigned int nr)
{
	if (awaits_touch(ctx, block))
		hpmmap_count_placed(ctx, block->nid);
	return hpmmap_block_fill(&ctx->owner, block, first, nr);
}

static int store_insert(struct hpmmap_ctx *ctx, unsigned long slot,
			struct hpmmap_block *block)
{
	int ret;

	lockdep_assert_held(&ctx->lock);
	ret = xa_err(xa_store(&ctx->store, slot, block, GFP_KERNEL));
	if (ret)
		return ret;
	if (hpmmap_block_is_shared(block)) {
		xa_set_mark(&ctx->store, slot, SLOT_SHARED);
		return 0;
	}
	xa_clear_mark(&ctx->store, slot, SLOT_SHARED);
	hpmmap_block_attach(block, ctx->file->f_mapping, slot);
	return 0;
}

/* A block leaves the store; returns whether it is to be kept for reuse. */
static bool forget_reuse(struct hpmmap_ctx *ctx, struct hpmmap_block *block)
{
	if (block->reuse_id != ctx->id)
		return false;
	block->reuse_id = 0;
	ctx->reuse.nr_mapped--;
	return true;
}

/*
 * Tries to make the block of a marked slot the context's own without a copy:
 * the others have given it up. What they handed to somebody else (a pipe, a
 * device that still reads it) must not change; only pins that can be nobody's
 * but the context's own follow it.
 */
static bool store_adopt(struct hpmmap_ctx *ctx, unsigned long slot,
			struct hpmmap_block *block)
{
	lockdep_assert_held(&ctx->lock);
	if (hpmmap_block_is_shared(block) ||
	    (hpmmap_block_is_pinned(block) &&
	     (READ_ONCE(block->foreign_pin) ||
	      !folio_maybe_dma_pinned(block->folio) ||
	      !compat_mm_has_pinned(ctx->mm))))
		return false;
	block->foreign_pin = false;
	xa_clear_mark(&ctx->store, slot, SLOT_SHARED);
	hpmmap_block_attach(block, ctx->file->f_mapping, slot);
	return true;
}

static bool is_marked(struct hpmmap_ctx *ctx, unsigned long slot)
{
	return xa_get_mark(&ctx->store, slot, SLOT_SHARED);
}

/* Nothing of a slot stays mapped by page tables. */
static void zap_slot(struct hpmmap_ctx *ctx, unsigned long slot)
{
	unsigned long start = slot << SLOT_SHIFT, end = start + SLOT_SIZE;
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, ctx->mm, start);

	for_each_vma_range(vmi, vma, end) {
		unsigned long lo = max(start, vma->vm_start);

		/* Only below a mapping is it sure that the tables stay. */
		if (hpmmap_vma_is_ours(vma) &&
		    hpmmap_pgmap_slot(ctx->mm, start) != HPMMAP_ENTRY_NONE)
			compat_zap(vma, lo, min(end, vma->vm_end) - lo);
	}
}

/*
 * The block of a slot, which may be changed afterwards: of a shared one, a
 * copy without the @skip_nr pages from @skip on. NULL where there is none, or
 * without memory. If the slot was marked, hpmmap_vma_slot_owned() is due.
 */
static struct hpmmap_block *store_own(struct hpmmap_ctx *ctx,
				      struct vm_area_struct *vma,
				      unsigned long slot,
				      struct list_head *blocks,
				      unsigned int skip, unsigned int skip_nr)
{
	struct hpmmap_block *block = xa_load(&ctx->store, slot), *own;
	unsigned int end = skip + skip_nr;

	lockdep_assert_held(&ctx->lock);
	if (!block || !is_marked(ctx, slot) || store_adopt(ctx, slot, block))
		return block;

	own = block_take(ctx, vma, slot, block, blocks, true);
	if (!own)
		return NULL;
	own->slot = slot;
	/* Reads see the old block until here, the new one from there on. */
	zap_slot(ctx, slot);
	if (hpmmap_block_copy(&ctx->owner, own, 0, block, 0, skip) ||
	    hpmmap_block_copy(&ctx->owner, own, end, block, end, SLOT_PAGES - end)) {
		block_put_back(ctx, own);
		return NULL;
	}
	/* Cannot fail: there is an entry. */
	store_insert(ctx, slot, own);
	if (own->folio)
		count_gained(ctx, own);
	atomic_long_inc(&ctx->nr_copied);
	forget_reuse(ctx, block);
	hpmmap_block_release(ctx, block);
	return own;
}

/**
 * hpmmap_store_own_edges() - get ready to change a range
 * @ctx: the context, ctx->ops held
 * @start: first address
 * @end: end
 *
 * Slots that the range covers in part have blocks of the context's own
 * afterwards; those covered wholly can lose theirs.
 *
 * Return: 0, or -ENOMEM and nothing changed for the program.
 */
int hpmmap_store_own_edges(struct hpmmap_ctx *ctx, unsigned long start,
			   unsigned long end)
{
	unsigned long slots[] = { slot_of(start), slot_of(end - 1) };
	struct hpmmap_block *block;
	int ret = 0, i;

	if (!xa_marked(&ctx->store, SLOT_SHARED))
		return 0;
	mmap_read_lock(ctx->mm);
	for (i = 0; i < ARRAY_SIZE(slots) && !ret; i++) {
		unsigned int first, nr;

		slot_clip(slots[i], start, end, &first, &nr);
		if (nr == SLOT_PAGES || !is_marked(ctx, slots[i]))
			continue;
		mutex_lock(&ctx->lock);
		block = store_own(ctx, NULL, slots[i], NULL, 0, 0);
		mutex_unlock(&ctx->lock);
		if (block)
			hpmmap_vma_slot_owned(ctx, slots[i], block);
		else
			ret = -ENOMEM;
	}
	mmap_read_unlock(ctx->mm);
	return ret;
}

/**
 * hpmmap_store_zap_shared() - unmap the slots of a range that are shared
 * @ctx: the context; mmap_lock held
 * @start: first address
 * @end: end
 */
void hpmmap_store_zap_shared(struct hpmmap_ctx *ctx, unsigned long start,
			     unsigned long end)
{
	unsigned long slot = slot_of(start), last = slot_of(end - 1);

	if (!xa_find(&ctx->store, &slot, last, SLOT_SHARED))
		return;
	do {
		zap_slot(ctx, slot);
		cond_resched();
	} while (xa_find_after(&ctx->store, &slot, last, SLOT_SHARED));
}

/**
 * hpmmap_store_adopt() - a slot's block may be shared no more
 * @ctx: a context, not only the caller's; mmap_lock held
 * @slot: a marked slot
 *
 * Waits for nobody.
 *
 * Return: the block if it is the context's own now, NULL if it is shared still;
 * ERR_PTR(-EBUSY) if it is pinned, ERR_PTR(-EAGAIN) if somebody has the context's
 * lock.
 */
struct hpmmap_block *hpmmap_store_adopt(struct hpmmap_ctx *ctx,
					unsigned long slot)
{
	struct hpmmap_block *block;

	if (!mutex_trylock(&ctx->lock))
		return ERR_PTR(-EAGAIN);
	block = xa_load(&ctx->store, slot);
	if (block && (!is_marked(ctx, slot) || hpmmap_block_is_shared(block)))
		block = NULL;
	if (block && !store_adopt(ctx, slot, block))
		block = ERR_PTR(-EBUSY);
	mutex_unlock(&ctx->lock);
	return block;
}

/*
 * The block of a slot, to be changed; a new one, for what @from has or for
 * zeros, if there is none. NULL without memory.
 */
static struct hpmmap_block *store_get(struct hpmmap_ctx *ctx,
				      struct vm_area_struct *vma,
				      unsigned long slot,
				      const struct hpmmap_block *from,
				      struct list_head *blocks, bool or_linux)
{
	struct hpmmap_block *block = xa_load(&ctx->store, slot);

	lockdep_assert_held(&ctx->lock);
	if (block)
		return store_own(ctx, vma, slot, blocks, 0, 0);
	block = block_take(ctx, vma, slot, from, blocks, or_linux);
	if (!block)
		return NULL;
	if (store_insert(ctx, slot, block)) {
		block_put_back(ctx, block);
		return NULL;
	}
	if (block->folio)
		count_gained(ctx, block);
	return block;
}

/**
 * hpmmap_store_commit() - make sure that a range has memory of the pools
 * @ctx: the context; mmap_lock held, or nobody else uses it yet
 * @vma: the mapping, or NULL if there is none yet
 * @start: first address, page aligned
 * @end: end, page aligned, in the same slot
 * @blocks: blocks to use first, or NULL
 * @how: out, or NULL; where it is HPMMAP_COMMIT_SHARED the block may be
 *	replaced at any time, otherwise it stays while mmap_lock is held
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
					 struct list_head *blocks,
					 enum hpmmap_commit *how)
{
	enum hpmmap_commit done = HPMMAP_COMMIT_OWN;
	struct hpmmap_block *block;
	unsigned int first, nr;

	slot_clip(slot_of(start), start, end, &first, &nr);
	mutex_lock(&ctx->lock);
	block = xa_load(&ctx->store, slot_of(start));
	if (block && hpmmap_block_is_shared(block) &&
	    !has_stale(block, first, nr)) {
		done = HPMMAP_COMMIT_SHARED;
	} else {
		if (is_marked(ctx, slot_of(start)))
			done = HPMMAP_COMMIT_OWNED_NOW;
		block = store_get(ctx, vma, slot_of(start), NULL, blocks,
				  false);
		if (block && block->folio)
			fill(ctx, block, first, nr);
	}
	mutex_unlock(&ctx->lock);
	if (how)
		*how = done;
	return block;
}

/*
 * A shared block is mapped read-only where one entry can map all of it. What
 * is mapped by 4 KB entries is copied on the first access, whatever it is.
 */
static bool share_readable(struct hpmmap_ctx *ctx, struct vm_fault *vmf,
			   struct hpmmap_block *block)
{
	unsigned long start = vmf->address & SLOT_MASK;

	return !(vmf->flags & FAULT_FLAG_WRITE) &&
	       hpmmap_block_is_shared(block) && !hpmmap_block_is_hurt(block) &&
	       vmf->vma->vm_start <= start &&
	       vmf->vma->vm_end - SLOT_SIZE >= start &&
	       !has_stale(block, 0, SLOT_PAGES) &&
	       hpmmap_pgmap_insert_readonly(vmf, block->folio);
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
	store_get(ctx, vma, slot, NULL, blocks, false);
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
 * hpmmap_store_fault() - the page for a fault
 * @ctx: the context; mmap_lock held
 * @vmf: the fault; vmf->page is set, with a reference
 * @committed: out: false if memory had to be found first
 * @why: out: why it was not mapped
 *
 * In a block of the pools the whole part of the slot that the mapping covers
 * is made ready: the core may map all of it with one entry. Where the pools
 * are exhausted it is a page of Linux.
 *
 * Whole blocks are cleared without ctx->lock, so that threads that touch memory
 * first do not wait for each other; the lock of the folio stands for it.
 *
 * A block that was shared until now is not mapped by the core alone: it maps
 * one page where the slot has a table of 4 KB entries.
 *
 * Return: 0, VM_FAULT_NOPAGE (it is mapped), VM_FAULT_OOM, VM_FAULT_HWPOISON
 * where the contents are lost, or VM_FAULT_RETRY for a fault that must not wait.
 */
vm_fault_t hpmmap_store_fault(struct hpmmap_ctx *ctx, struct vm_fault *vmf,
			      bool *committed, enum hpmmap_fault *why)
{
	unsigned long slot = slot_of(vmf->address);
	unsigned int first = page_in_slot(vmf->address), nr = 1;
	vm_fault_t ret = VM_FAULT_OOM;
	struct hpmmap_block *block;
	bool owned = false, clear = false;

	if (!(vmf->flags & FAULT_FLAG_RETRY_NOWAIT))
		mutex_lock(&ctx->lock);
	else if (!mutex_trylock(&ctx->lock))
		return VM_FAULT_RETRY;
	block = xa_load(&ctx->store, slot);
	*committed = block;
	*why = block ? HPMMAP_FAULT_UNMAPPED : HPMMAP_FAULT_RESERVED;
	if (is_marked(ctx, slot))
		*why = HPMMAP_FAULT_FORK;
	if (block && share_readable(ctx, vmf, block)) {
		atomic_long_inc(&ctx->stats.entries_2m);
		ret = VM_FAULT_NOPAGE;
		goto out;
	}
	owned = is_marked(ctx, slot);
	block = store_get(ctx, vmf->vma, slot, NULL, NULL, true);
	if (!block)
		goto out;
	if (block->folio)
		slot_clip(slot, vmf->vma->vm_start, vmf->vma->vm_end, &first, &nr);
	if (has_stale(block, first, nr)) {
		*committed = false;
		if (!owned)
			*why = ctx->job->first_touch ?
			       HPMMAP_FAULT_FIRST_TOUCH : HPMMAP_FAULT_RESERVED;
	}
	if (!owned && !block->folio)
		*why = HPMMAP_FAULT_LINUX;
	if (!owned && block->folio && nr == SLOT_PAGES &&
	    bitmap_full(block->stale, SLOT_PAGES)) {
		if (ctx->job->first_touch)
			block = hpmmap_policy_touch(ctx, vmf->vma, block);
		clear = !block->zeroed && folio_trylock(block->folio);
		if (clear) {
			if (ctx->job->first_touch)
				hpmmap_count_placed(ctx, block->nid);
			bitmap_zero(block->stale, SLOT_PAGES);
			atomic_long_add(SLOT_PAGES, &ctx->owner.nr_cleared);
		}
	}
	if (fill(ctx, block, first, nr))
		goto out;
	if (hpmmap_block_is_lost(block, page_in_slot(vmf->address))) {
		ret = VM_FAULT_HWPOISON;
		goto out;
	}
	if (owned) {
		ret = VM_FAULT_NOPAGE;
		goto out;
	}
	vmf->page = hpmmap_block_page(block, page_in_slot(vmf->address));
	get_page(vmf->page);
	ret = 0;
out:
	mutex_unlock(&ctx->lock);
	if (owned && block)
		hpmmap_vma_slot_owned(ctx, slot, block);
	if (clear) {
		hpmmap_block_zero(block);
		folio_unlock(block->folio);
	} else if (!ret) {
		folio_wait_locked(page_folio(vmf->page));
	}
	return ret;
}

/**
 * hpmmap_store_access() - copy from or to a page, whatever its protection
 * @ctx: the context; mmap_lock held
 * @vma: the mapping
 * @addr: address
 * @buf: kernel memory
 * @len: length; all of it lies in one page
 * @write: to the page
 *
 * Return: 0, -ENOMEM, -EHWPOISON where the contents are lost, or -EINTR if the
 * caller is being killed.
 */
int hpmmap_store_access(struct hpmmap_ctx *ctx, struct vm_area_struct *vma,
			unsigned long addr, void *buf, size_t len, bool write)
{
	unsigned int i = page_in_slot(addr);
	struct hpmmap_block *block;
	int ret = -ENOMEM, cookie;
	bool owned = false;
	void *p;

	if (mutex_lock_killable(&ctx->lock))
		return -EINTR;
	block = xa_load(&ctx->store, slot_of(addr));
	if (!write && (!block || test_bit(i, block->stale))) {
		memset(buf, 0, len);
		ret = 0;
		goto out;
	}
	if (write) {
		owned = is_marked(ctx, slot_of(addr));
		block = store_get(ctx, vma, slot_of(addr), NULL, NULL, true);
	}
	if (!block || fill(ctx, block, i, 1))
		goto out;
	/* A fault may be clearing it. */
	if (block->folio)
		folio_wait_locked(block->folio);
	cookie = hpmmap_poison_touch();
	p = page_address(hpmmap_block_page(block, i)) + offset_in_page(addr);
	ret = -EHWPOISON;
	if (hpmmap_block_is_lost(block, i)) {
		;
	} else if (write) {
		memcpy(p, buf, len);
		ret = 0;
	} else if (!copy_mc_to_kernel(buf, p, len)) {
		ret = 0;
	} else {
		memory_failure_queue(page_to_pfn(hpmmap_block_page(block, i)),
				     0);
	}
	hpmmap_poison_untouch(cookie);
out:
	mutex_unlock(&ctx->lock);
	if (owned && block)
		hpmmap_vma_slot_owned(ctx, slot_of(addr), block);
	return ret;
}

/**
 * hpmmap_store_is_pinned() - would a new mapping share a pinned block?
 * @ctx: the context
 * @start: start of a range about to be mapped anew
 * @end: its end
 * @wait: wait a moment for pins to go
 *
 * A slot that the range covers wholly gets another block if need be; one that
 * it covers in part cannot.
 */
bool hpmmap_store_is_pinned(struct hpmmap_ctx *ctx, unsigned long start,
			    unsigned long end, bool wait)
{
	unsigned long slots[] = { slot_of(start), slot_of(end - 1) };
	bool ret = false;
	int i;

	if (!((start | end) & ~SLOT_MASK))
		return false;
	mutex_lock(&ctx->lock);
	for (i = 0; i < ARRAY_SIZE(slots) && !ret; i++) {
		struct hpmmap_block *block = xa_load(&ctx->store, slots[i]);
		unsigned int first, nr;

		slot_clip(slots[i], start, end, &first, &nr);
		/* What is stale nobody has seen since it was given out. */
		if (block && nr < SLOT_PAGES && has_fresh(block, first, nr))
			ret = wait ? !hpmmap_block_wait_unpinned(ctx, block) :
				     hpmmap_block_is_pinned(block);
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

/* Does a page of the range have contents, or a slot of it somebody's pins? */
static bool has_contents(struct hpmmap_ctx *ctx, unsigned long start,
			 unsigned long end)
{
	struct hpmmap_block *block;
	unsigned long slot;

	xa_for_each_range(&ctx->store, slot, block, slot_of(start),
			  slot_of(end - 1)) {
		unsigned int first, nr;

		slot_clip(slot, start, end, &first, &nr);
		if (has_fresh(block, first, nr) ||
		    (nr == SLOT_PAGES && !hpmmap_block_idle(block)))
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

		slot_clip(slot, start, end, &first, &nr);
		if (nr == SLOT_PAGES && (hpmmap_block_is_shared(block) ||
					 !hpmmap_block_idle(block))) {
			xa_erase(&ctx->store, slot);
			forget_reuse(ctx, block);
			hpmmap_block_release(ctx, block);
			continue;
		}
		/* Made its own before, see hpmmap_store_own_edges(). */
		block = store_own(ctx, NULL, slot, NULL, first, nr);
		if (block)
			hpmmap_block_set_stale(block, first, nr);
		else
			send_sig(SIGKILL, current, 1);
		cond_resched();
	}
	mutex_unlock(&ctx->lock);
	mmap_write_unlock(ctx->mm);
}

/* Whole slots of one mapping; false where there is no clean block left. */
static bool refresh_slots(struct hpmmap_ctx *ctx, unsigned long start,
			  unsigned long end)
{
	struct hpmmap_block *block, *clean;
	unsigned long slot;

	lockdep_assert_held(&ctx->lock);
	xa_for_each_range(&ctx->store, slot, block, slot_of(start),
			  slot_of(end - 1)) {
		/* What takes its place is charged for it, without being asked. */
		if (!block->folio || is_marked(ctx, slot) ||
		    block->account != ctx->owner.account ||
		    block->reuse_id == ctx->id ||
		    bitmap_full(block->stale, SLOT_PAGES))
			continue;
		zap_slot(ctx, slot);
		if (!hpmmap_block_idle(block))
			continue;
		clean = hpmmap_pool_alloc_clean(ctx->owner.account, block->nid);
		if (!clean)
			return false;
		hpmmap_store_put(ctx, slot, clean);
		count_gained(ctx, clean);
		hpmmap_block_release(ctx, block);
		cond_resched();
	}
	return true;
}

/**
 * hpmmap_store_refresh() - clean blocks for slots whose contents will go
 * @ctx: the context, ctx->ops held
 * @start: first address of a range that is about to be discarded
 * @end: its end
 *
 * That is cheaper than to zero them. Only as far as whole slots are mapped,
 * accessible and not locked, and there are clean blocks on their nodes; not
 * for what somebody else refers to, nor for what is to be kept for reuse.
 * hpmmap_vma_repair() is due.
 */
void hpmmap_store_refresh(struct hpmmap_ctx *ctx, unsigned long start,
			  unsigned long end)
{
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, ctx->mm, start);

	if (ALIGN(start, SLOT_SIZE) + SLOT_SIZE > end)
		return;
	mmap_write_lock(ctx->mm);
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
	mmap_write_unlock(ctx->mm);
}

static void drop_linux_range(struct hpmmap_ctx *ctx, struct vm_area_struct *vma,
			     unsigned long start, unsigned long end)
{
	struct hpmmap_block *block;
	unsigned long slot;

	xa_for_each_range(&ctx->store, slot, block, slot_of(start),
			  slot_of(end - 1)) {
		unsigned int first, nr;

		if (block->folio)
			continue;
		slot_clip(slot, start, end, &first, &nr);
		compat_zap(vma, max(start, slot << SLOT_SHIFT),
			   (unsigned long)nr << PAGE_SHIFT);
		hpmmap_block_set_stale(block, first, nr);
		hpmmap_block_drop_linux(&ctx->owner, block, first, nr);
		if (fatal_signal_pending(current))
			return;
		cond_resched();
	}
}

/**
 * hpmmap_store_drop_linux() - give back pages of Linux whose contents will go
 * @ctx: the context, ctx->ops held
 * @start: first address of a range that is about to be discarded
 * @end: its end
 *
 * Who discards gives memory back, where it is Linux's as well. What is locked
 * stays.
 */
void hpmmap_store_drop_linux(struct hpmmap_ctx *ctx, unsigned long start,
			     unsigned long end)
{
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, ctx->mm, start);

	if (!atomic_long_read(&ctx->owner.nr_linux_pages) ||
	    mmap_write_lock_killable(ctx->mm))
		return;
	mutex_lock(&ctx->lock);
	for_each_vma_range(vmi, vma, end) {
		/* hpmmap_store_discard() answers for these. */
		if (hpmmap_vma_is_ours(vma) &&
		    (vma->vm_flags & VM_LOCKED || compat_vma_is_sealed(vma)))
			break;
		if (hpmmap_vma_is_ours(vma))
			drop_linux_range(ctx, vma, max(start, vma->vm_start),
					 min(end, vma->vm_end));
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
	bool owned;
	int ret = 0;

	slot_clip(slot, start, end, &first, &nr);
	mutex_lock(&ctx->lock);
	block = xa_load(&ctx->store, slot);
	owned = is_marked(ctx, slot);
	/* What nobody has touched yet has nothing to lose. */
	if (hpmmap_policy_defers(ctx, block, slot << SLOT_SHIFT,
				 (slot + 1) << SLOT_SHIFT))
		block = NULL;
	if (block) {
		block = store_own(ctx, NULL, slot, NULL, first, nr);
		ret = block ? 0 : -ENOMEM;
	}
	/* Input and output under way sees the old contents, for a moment. */
	if (block && *wait)
		*wait = hpmmap_block_wait_unpinned(ctx, block);
	if (block) {
		hpmmap_block_set_stale(block, first, nr);
		if (accessible && block->folio)
			ret = hpmmap_block_fill(&ctx->owner, block, first, nr);
		else if (accessible)
			hpmmap_block_clear_linux(&ctx->owner, block, first, nr);
	}
	mutex_unlock(&ctx->lock);
	if (owned && block)
		hpmmap_vma_slot_owned(ctx, slot, block);
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

/* Blocks whose slots are looked at without a pause. */
#define RECONCILE_BATCH 64

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

	mmap_assert_locked(ctx->mm);
	if (!*known || (vma && vma->vm_end <= start)) {
		vma = find_vma(ctx->mm, start);
		*next = vma;
		*known = true;
	}
	for (; vma && vma->vm_start < end; vma = find_vma(ctx->mm, vma->vm_end))
		if (hpmmap_vma_is_ours(vma))
			return true;
	return false;
}

/**
 * hpmmap_store_has_orphans() - are there blocks that nothing maps?
 * @ctx: the context
 * @start: first address
 * @end: end
 *
 * Return: whether hpmmap_store_reconcile() would find some.
 */
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
	xa_for_each_range(&ctx->store, slot, block, slot_of(start),
			  slot_of(end - 1)) {
		ret = !slot_is_mapped(ctx, slot, &next, &known);
		if (ret || fatal_signal_pending(current))
			break;
		cond_resched();
	}
	mmap_read_unlock(ctx->mm);
	return ret;
}

/* @unmapped: nothing of ours is mapped in the range. Returns how many went. */
static unsigned long take_back(struct hpmmap_ctx *ctx, unsigned long start,
			       unsigned long end, bool unmapped)
{
	struct hpmmap_block *block, *tmp;
	struct vm_area_struct *next = NULL;
	XA_STATE(xas, &ctx->store, slot_of(start));
	unsigned long batch = 0, nr = 0;
	bool known = false;
	LIST_HEAD(reuse);
	LIST_HEAD(freed);
	LIST_HEAD(gone);

	mmap_read_lock(ctx->mm);
	mutex_lock(&ctx->lock);
	xas_lock(&xas);
	xas_for_each(&xas, block, slot_of(end - 1)) {
		unsigned long slot = xas.xa_index;
		bool kept;

		if (!(unmapped && slot << SLOT_SHIFT >= start &&
		      (slot + 1) << SLOT_SHIFT <= end) &&
		    slot_is_mapped(ctx, slot, &next, &known))
			goto pause;
		kept = forget_reuse(ctx, block);
		xas_store(&xas, NULL);
		nr++;
		/* Its link is not this context's alone. */
		if (hpmmap_block_is_shared(block))
			hpmmap_block_release_to(ctx, block, &freed);
		else
			list_add_tail(&block->link, kept ? &reuse : &gone);
pause:
		if (++batch % RECONCILE_BATCH)
			continue;
		/* Not xas_pause(): a node may have gone with its last entry. */
		xas_set(&xas, slot + 1);
		xas_unlock(&xas);
		cond_resched();
		xas_lock(&xas);
	}
	xas_unlock(&xas);
	list_for_each_entry_safe(block, tmp, &reuse, link) {
		list_del(&block->link);
		if (!hpmmap_reuse_keep(ctx, block))
			list_add_tail(&block->link, &gone);
	}
	list_for_each_entry_safe(block, tmp, &gone, link) {
		list_del(&block->link);
		hpmmap_block_release_to(ctx, block, &freed);
	}
	mutex_unlock(&ctx->lock);
	mmap_read_unlock(ctx->mm);
	hpmmap_pool_free(&freed);
	return nr;
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
	take_back(ctx, start, end, false);
}

/**
 * hpmmap_store_unmapped() - take back the blocks of a range
 * @ctx: the context, ctx->ops held
 * @start: start of a range in which nothing of ours is mapped since
 * @end: its end
 *
 * Return: whether there were some.
 */
bool hpmmap_store_unmapped(struct hpmmap_ctx *ctx, unsigned long start,
			   unsigned long end)
{
	return take_back(ctx, start, end, true);
}

/* Mapped at once at most. */
#define RUN_SLOTS 512UL

/* The block of a slot of a run, a new one of @blocks if there is none. */
static struct hpmmap_block *run_block(struct hpmmap_ctx *ctx,
				      struct xa_state *xas, bool shared,
				      struct list_head *blocks)
{
	struct hpmmap_block *block;

	lockdep_assert_held(&ctx->lock);
	rcu_read_lock();
	block = xas_load(xas);
	if (block && shared && xas_get_mark(xas, SLOT_SHARED))
		block = ERR_PTR(-EBUSY);
	rcu_read_unlock();
	if (block)
		return IS_ERR(block) || !block->folio ||
		       hpmmap_block_is_hurt(block) ? NULL : block;
	if (!blocks || list_empty(blocks))
		return NULL;
	block = list_take(blocks, xas->xa_index);
	do {
		xas_lock(xas);
		xas_store(xas, block);
		xas_unlock(xas);
	} while (xas_nomem(xas, GFP_KERNEL));
	if (xas_error(xas)) {
		list_add(&block->link, blocks);
		return NULL;
	}
	hpmmap_block_attach(block, ctx->file->f_mapping, xas->xa_index);
	count_gained(ctx, block);
	return block;
}

/**
 * hpmmap_store_map_run() - commit whole slots and map them by one entry each
 * @ctx: the context, ctx->ops held; mmap_lock held
 * @vma: mapping that can be mapped so
 * @start: of a slot
 * @end: of a slot, within the mapping
 * @blocks: blocks for slots that have none
 *
 * The way of most memory, without the core's fault path. It ends where
 * anything is out of the ordinary.
 *
 * Return: the end of what is committed and mapped.
 */
unsigned long hpmmap_store_map_run(struct hpmmap_ctx *ctx,
				   struct vm_area_struct *vma,
				   unsigned long start, unsigned long end,
				   struct list_head *blocks)
{
	XA_STATE(xas, &ctx->store, slot_of(start));
	struct folio *folio = NULL;
	unsigned long addr, nr = 0;
	pmd_t *pmdp = NULL;
	bool shared, inserted;

	/* Others want the lock, too. */
	end = min(end, start + RUN_SLOTS * SLOT_SIZE);
	mutex_lock(&ctx->lock);
	shared = xa_marked(&ctx->store, SLOT_SHARED);
	for (addr = start; addr < end; addr += SLOT_SIZE) {
		struct hpmmap_block *block;

		if (fatal_signal_pending(current))
			break;
		if (!pmdp || !(addr & ~PUD_MASK))
			pmdp = hpmmap_pgmap_pmd(ctx->mm, addr);
		else
			pmdp++;
		if (!pmdp)
			break;
		if (hpmmap_pgmap_is_done(vma, pmdp))
			continue;
		if (!pmd_none(READ_ONCE(*pmdp)))
			break;
		xas_set(&xas, slot_of(addr));
		block = run_block(ctx, &xas, shared, blocks);
		if (!block)
			break;
		if (!bitmap_empty(block->stale, SLOT_PAGES))
			hpmmap_block_fill(&ctx->owner, block, 0, SLOT_PAGES);
		/* A fault may be clearing it. */
		folio_lock(block->folio);
		inserted = !hpmmap_block_is_hurt(block) &&
			   hpmmap_pgmap_insert_2m(vma, addr, pmdp,
						  block->folio);
		folio_unlock(block->folio);
		if (!inserted)
			break;
		folio = block->folio;
		nr += SLOT_PAGES;
		cond_resched();
	}
	if (folio) {
		compat_add_rss(ctx->mm, folio, nr);
		atomic_long_add(nr / SLOT_PAGES, &ctx->stats.entries_2m);
	}
	mutex_unlock(&ctx->lock);
	return addr;
}

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
	src = xa_load(&ctx->store, slot_of(from));
	if (len == SLOT_SIZE) {
		/* The block itself moves, and its pins with it. */
		dst = xa_load(&ctx->store, slot_of(to));
		*ret = store_insert(ctx, slot_of(to), src);
		if (*ret)
			return len;
		if (is_marked(ctx, slot_of(from)))
			xa_set_mark(&ctx->store, slot_of(to), SLOT_SHARED);
		xa_erase(&ctx->store, slot_of(from));
		if (dst) {
			forget_reuse(ctx, dst);
			hpmmap_block_release(ctx, dst);
		}
		return len;
	}
	dst = store_get(ctx, NULL, slot_of(to), NULL, blocks, true);
	/* If both are in one slot, it may have another block now. */
	src = xa_load(&ctx->store, slot_of(from));
	*ret = dst ? hpmmap_block_copy(&ctx->owner, dst, page_in_slot(to), src,
				       page_in_slot(from), len >> PAGE_SHIFT) :
		     -ENOMEM;
	if (!*ret)
		move_reuse(ctx, from, to, len, src, dst);
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
 * Return: 0, -ENOMEM, or -EINTR if the only process that has the address space is
 * being killed.
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
		unsigned long n;

		/* The contents are nobody else's. */
		if (fatal_signal_pending(current) &&
		    atomic_read(&ctx->mm->mm_users) <= get_nr_threads(current)) {
			ret = -EINTR;
			break;
		}
		n = move_piece(ctx, from, to, len, blocks, &ret);

		from += n;
		to += n;
		len -= n;
	}
	mutex_unlock(&ctx->lock);
	mmap_write_unlock(ctx->mm);
	return ret;
}

/*
 * Can the child have the same block, until one of them writes? Not what a
 * device may write to, nor what only one of them sees a part of.
 */
static bool can_share(struct hpmmap_ctx *parent, struct vm_area_struct *vma,
		      unsigned long slot, struct hpmmap_block *block)
{
	unsigned long start = slot << SLOT_SHIFT, end = start + SLOT_SIZE;
	struct vm_area_struct *other;
	VMA_ITERATOR(vmi, parent->mm, start);

	if (!block->folio)
		return false;
	if (vma->vm_start > start || vma->vm_end < end)
		for_each_vma_range(vmi, other, end)
			if (hpmmap_vma_is_ours(other) &&
			    other->vm_flags & (VM_DONTCOPY | VM_WIPEONFORK))
				return false;
	return true;
}

/*
 * Takes the parent's right to write away and shares the block. A pin that
 * comes at the same time finds the entry changed, or is found here.
 */
static bool share_slot(struct hpmmap_ctx *parent, struct hpmmap_ctx *child,
		       struct vm_area_struct *vma, unsigned long slot,
		       struct hpmmap_block *block)
{
	unsigned long start = max(vma->vm_start, slot << SLOT_SHIFT);
	unsigned long end = min(vma->vm_end, (slot + 1) << SLOT_SHIFT);

	/* There is a second mapping in the slot. */
	if (xa_load(&child->store, slot) == block)
		return true;
	if (end - start == SLOT_SIZE)
		hpmmap_pgmap_protect(vma, start);
	else
		zap_slot(parent, slot);
	if (hpmmap_block_is_pinned(block)) {
		/* Others may have it since an earlier fork. */
		if (!is_marked(parent, slot))
			hpmmap_pgmap_unprotect(vma, start, block->folio);
		return false;
	}
	atomic_inc(&block->users);
	if (store_insert(child, slot, block)) {
		atomic_dec(&block->users);
		child->doomed = true;
		return true;
	}
	atomic_long_inc(&child->nr_held);
	xa_set_mark(&parent->store, slot, SLOT_SHARED);
	/* Nobody's offset. */
	block->folio->mapping = NULL;
	return true;
}

/**
 * hpmmap_store_snapshot() - give a child the contents of a mapping
 * @parent: whose contents; its mmap_lock is held for writing
 * @child: who gets them; not running yet
 * @vma: mapping of the parent
 *
 * Blocks are shared where that is possible and copied otherwise. Without
 * memory the child is doomed.
 */
void hpmmap_store_snapshot(struct hpmmap_ctx *parent, struct hpmmap_ctx *child,
			   struct vm_area_struct *vma)
{
	struct hpmmap_block *src, *dst;
	unsigned long slot;

	mutex_lock(&parent->lock);
	mutex_lock_nested(&child->lock, SINGLE_DEPTH_NESTING);
	xa_for_each_range(&parent->store, slot, src, slot_of(vma->vm_start),
			  slot_of(vma->vm_end - 1)) {
		unsigned int first, nr;

		slot_clip(slot, vma->vm_start, vma->vm_end, &first, &nr);
		if (!has_fresh(src, first, nr))
			continue;
		dst = xa_load(&child->store, slot);
		if ((!dst || dst == src) && can_share(parent, vma, slot, src) &&
		    share_slot(parent, child, vma, slot, src))
			continue;
		if (fatal_signal_pending(current)) {
			child->doomed = true;
			break;
		}
		hpmmap_fork_copies(parent, vma);
		dst = store_get(child, vma, slot, src, NULL, true);
		if (!dst || hpmmap_block_copy(&child->owner, dst, first, src, first,
					      nr)) {
			child->doomed = true;
			break;
		}
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
		*wait = hpmmap_block_wait_unpinned(ctx, old);
	zap_ours(ctx, slot << SLOT_SHIFT, (slot + 1) << SLOT_SHIFT);
	if ((is_marked(ctx, slot) && !store_adopt(ctx, slot, old)) ||
	    !hpmmap_block_idle(old) ||
	    hpmmap_block_copy(&ctx->owner, fresh, 0, old, 0, SLOT_PAGES))
		goto out;
	hpmmap_store_put(ctx, slot, fresh);
	count_gained(ctx, fresh);
	forget_reuse(ctx, old);
	hpmmap_block_release(ctx, old);
	done = true;
out:
	mutex_unlock(&ctx->lock);
	mmap_write_unlock(ctx->mm);
	return done;
}

/* Of the pools if there is one, otherwise of Linux. */
static struct hpmmap_block *take_instead(struct hpmmap_ctx *ctx,
					 struct hpmmap_block *old)
{
	struct hpmmap_block *block;

	block = hpmmap_pool_alloc_instead(ctx->owner.account, old->nid,
					  &ctx->job->nodes);
	if (block)
		return block;
	hpmmap_count_fallback(ctx, HPMMAP_FALLBACK_BLOCK, SLOT_SIZE);
	return hpmmap_block_alloc_linux();
}

/**
 * hpmmap_store_exchange() - another block for a slot, that of a bad one
 * @ctx: the context, ctx->ops held
 * @slot: the slot
 * @old: its block
 *
 * The contents stay; what is shared with others stays shared with none.
 *
 * Return: 0, -EBUSY (somebody but page tables refers to it), -ENOMEM, -EINTR, or
 * -EAGAIN if the slot has another block by now.
 */
int hpmmap_store_exchange(struct hpmmap_ctx *ctx, unsigned long slot,
			  struct hpmmap_block *old)
{
	struct hpmmap_block *fresh = NULL;
	int ret = -EAGAIN;

	/* Another process may hold it for long. */
	if (ctx->mm != current->mm && rwsem_is_locked(&ctx->mm->mmap_lock))
		return -EBUSY;
	if (mmap_write_lock_killable(ctx->mm))
		return -EINTR;
	mutex_lock(&ctx->lock);
	/* Of a fork that failed, the mappings are not to be looked at. */
	if (xa_load(&ctx->store, slot) != old ||
	    check_stable_address_space(ctx->mm))
		goto out;
	ret = -ENOMEM;
	fresh = take_instead(ctx, old);
	if (!fresh)
		goto out;
	fresh->slot = slot;
	ret = -EBUSY;
	if (!hpmmap_block_wait_unpinned(ctx, old))
		goto out;
	zap_ours(ctx, slot << SLOT_SHIFT, (slot + 1) << SLOT_SHIFT);
	/* A pin that came at the same time found the entry gone, or is found. */
	if (hpmmap_block_is_pinned(old))
		goto out;
	ret = hpmmap_block_copy(&ctx->owner, fresh, 0, old, 0, SLOT_PAGES);
	if (ret)
		goto out;
	store_insert(ctx, slot, fresh);
	if (fresh->folio)
		count_gained(ctx, fresh);
	forget_reuse(ctx, old);
	hpmmap_block_release(ctx, old);
	fresh = NULL;
out:
	if (fresh)
		block_put_back(ctx, fresh);
	mutex_unlock(&ctx->lock);
	mmap_write_unlock(ctx->mm);
	return ret;
}

/* A bad page of a range that is about to be given a meaning again? */
static bool wants_heal(struct hpmmap_block *block, unsigned long slot,
		       unsigned long start, unsigned long end)
{
	unsigned int first, nr, i;

	if (!block->folio || !hpmmap_block_is_hurt(block))
		return false;
	slot_clip(slot, start, end, &first, &nr);
	i = first;
	for_each_set_bit_from(i, block->stale, first + nr)
		if (PageHWPoison(hpmmap_block_page(block, i)))
			return true;
	return false;
}

/**
 * hpmmap_store_heal() - get ready to give a range memory
 * @ctx: the context, ctx->ops held
 * @start: first address
 * @end: end
 *
 * Where the contents of a page with a memory error mean nothing any more, its
 * block is exchanged for a good one. Not if somebody has pinned it.
 */
void hpmmap_store_heal(struct hpmmap_ctx *ctx, unsigned long start,
		       unsigned long end)
{
	struct hpmmap_block *block;
	unsigned long slot;

	xa_for_each_range(&ctx->store, slot, block, slot_of(start),
			  slot_of(end - 1)) {
		if (wants_heal(block, slot, start, end))
			hpmmap_store_exchange(ctx, slot, block);
		cond_resched();
	}
}

/* Blocks of a store that is gone are given back so many at once. */
#define RELEASE_BATCH 512

/* The first @nr of a list that are not zero go to another. */
static unsigned int dirty_split(struct list_head *blocks, unsigned int nr,
				struct list_head *dirty)
{
	struct hpmmap_block *block, *tmp;
	unsigned int n = 0;

	list_for_each_entry_safe(block, tmp, blocks, link) {
		if (n == nr)
			break;
		if (block->zeroed)
			continue;
		list_move_tail(&block->link, dirty);
		n++;
	}
	return n;
}

/**
 * hpmmap_store_release_all() - the address space is gone
 * @ctx: nobody uses it any more, so no lock is needed
 * @nr_zero: how many blocks to zero before they are given back
 *
 * It may have hundreds of thousands of blocks.
 */
void hpmmap_store_release_all(struct hpmmap_ctx *ctx, unsigned int nr_zero)
{
	struct hpmmap_block *block;
	unsigned long slot, n = 0;
	LIST_HEAD(dirty);
	LIST_HEAD(freed);

	xa_for_each(&ctx->store, slot, block) {
		xa_erase(&ctx->store, slot);
		hpmmap_block_release_to(ctx, block, &freed);
		if (++n % RELEASE_BATCH)
			continue;
		nr_zero -= dirty_split(&freed, nr_zero, &dirty);
		hpmmap_pool_free(&freed);
		cond_resched();
	}
	dirty_split(&freed, nr_zero, &dirty);
	hpmmap_pool_free(&freed);
	hpmmap_reuse_exit(ctx);
	list_for_each_entry(block, &dirty, link) {
		hpmmap_block_zero(block);
		block->zeroed = true;
		hpmmap_ctx_soil(ctx, block->nid, -1);
		trace_hpmmap_zero(block->nid, 1);
	}
	hpmmap_pool_free(&dirty);
}
