// SPDX-License-Identifier: GPL-2.0
/*
 * Where a new mapping fits, and the blocks it needs.
 */
#include "hpmmap.h"
#include "mem/block/account.h"
#include "mem/block/block.h"
#include "mem/block/nodes.h"
#include "mem/pool/pool.h"
#include "as/own/ctx.h"
#include "as/own/reserve.h"
#include "as/map/file.h"
#include "as/map/policy.h"
#include "as/map/range.h"
#include "as/map/vma.h"
#include "as/store/store.h"
#include "as/change/fit.h"

/* Would a new mapping in a slot be placed as @place says? */
static bool slot_fits(struct hpmmap_ctx *ctx,
		      const struct hpmmap_placement *place, unsigned long slot,
		      bool strictly)
{
	unsigned long start = slot << SLOT_SHIFT;
	struct hpmmap_block *block = hpmmap_store_load(ctx, slot);
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, ctx->mm, start);

	lockdep_assert_held(&ctx->lock);
	if (block && !block->folio)
		return true;
	if (block && strictly)
		return node_isset(block->nid, place->nodes);
	if (block)
		return place->in_turn ?
		       hpmmap_placement_is_right(place, slot, block->nid) :
		       block->nid == hpmmap_placement_nearest(place);
	if (strictly)
		return true;
	/* It will get the block of what mbind(2) has bound there. */
	for_each_vma_range(vmi, vma, start + SLOT_SIZE)
		if (hpmmap_vma_is_ours(vma) && vma_policy(vma))
			return false;
	return true;
}

/*
 * May a new mapping whose memory should come from @place share slots with what is there? Other
 * mappings of a slot stay where they are, and so decide for all of it. @strictly: on any node that
 * is allowed (MPOL_BIND). ctx->ops is held.
 */
bool hpmmap_policy_fits(struct hpmmap_ctx *ctx,
			const struct hpmmap_placement *place,
			unsigned long start, unsigned long end, bool strictly)
{
	unsigned long slots[] = { slot_of(start), slot_of(end - 1) };
	bool ret = true;
	int i;

	lockdep_assert_held(&ctx->ops);
	if (nr_node_ids == 1 || !((start | end) & ~SLOT_MASK))
		return true;
	mmap_read_lock(ctx->mm);
	mutex_lock(&ctx->lock);
	for (i = 0; i < ARRAY_SIZE(slots) && ret; i++) {
		unsigned int first, nr;

		slot_clip(slots[i], start, end, &first, &nr);
		ret = nr == SLOT_PAGES ||
		      slot_fits(ctx, place, slots[i], strictly);
	}
	mutex_unlock(&ctx->lock);
	mmap_read_unlock(ctx->mm);
	return ret;
}

/*
 * A place for a small mapping in the heap's slot: the highest address that is free, or 0.
 * The linker and the C library map a few pages each, here and there, which would take a
 * block each. One page is left free at its start, and before the heap.
 */
static unsigned long place_beside_heap(struct hpmmap_ctx *ctx,
				       const struct hpmmap_placement *place,
				       unsigned long len)
{
	unsigned long start = max(ctx->heap_start & SLOT_MASK, compat_mmap_min_addr()) + PAGE_SIZE;
	unsigned long end = ctx->heap_start, addr = 0;
	MA_STATE(mas, &ctx->mm->mm_mt, 0, 0);

	if (len > BESIDE_HEAP_BYTES / 2 || end < start + len + PAGE_SIZE)
		return 0;
	mmap_read_lock(ctx->mm);
	/* There may be a hundred mappings with holes between them that are too small. */
	if (!mas_empty_area_rev(&mas, start, end - PAGE_SIZE - 1, len))
		addr = mas.last - len + 1;
	mmap_read_unlock(ctx->mm);
	return addr && hpmmap_policy_fits(ctx, place, addr, addr + len, false) ?
	       addr : 0;
}

/*
 * A place beside others that were put apart: where there may be room in a slot that was begun
 * for the same node by begin_apart(), or 0.
 */
static unsigned long place_apart(struct hpmmap_ctx *ctx, const struct hpmmap_placement *place,
				 unsigned long len)
{
	int nid = place->in_turn ? NUMA_NO_NODE : hpmmap_placement_nearest(place), i;

	for (i = 0; i < ARRAY_SIZE(ctx->apart.slots); i++) {
		unsigned long next = ctx->apart.slots[i].next;

		if (!(next & ~SLOT_MASK) || ctx->apart.slots[i].nid != nid ||
		    len > SLOT_SIZE - (next & ~SLOT_MASK) ||
		    !hpmmap_policy_fits(ctx, place, next, next + len, true))
			continue;
		ctx->apart.slots[i].next += len;
		return next;
	}
	return 0;
}

/* A slot of its own for a small mapping; others may follow behind its @end. */
static void begin_apart(struct hpmmap_ctx *ctx, const struct hpmmap_placement *place,
			unsigned long end)
{
	int nid = place->in_turn ? NUMA_NO_NODE : hpmmap_placement_nearest(place), i;

	for (i = 0; i < ARRAY_SIZE(ctx->apart.slots); i++)
		if (ctx->apart.slots[i].next && ctx->apart.slots[i].nid == nid)
			break;
	if (i == ARRAY_SIZE(ctx->apart.slots))
		i = ctx->apart.turn++ % ARRAY_SIZE(ctx->apart.slots);
	ctx->apart.slots[i].nid = nid;
	ctx->apart.slots[i].next = end;
}

static bool is_pinned(struct hpmmap_ctx *ctx, unsigned long addr, unsigned long len)
{
	bool fresh;

	return hpmmap_store_is_pinned(ctx, addr, addr + len, false, &fresh);
}

/*
 * Where a mapping may go whose memory should come from @place. @hint: where it should be,
 * or 0. @flags: of mmap. @phase: distance to a multiple of @align, a power of two. ctx->ops
 * is held.
 *
 * What is small goes where the heap has a block already, if there is room. Not in a slot
 * whose old contents a device still uses, nor in one of another node than its policy wants,
 * if there is room.
 *
 * Returns an address, or an errno.
 */
unsigned long hpmmap_find_place(struct hpmmap_ctx *ctx,
				const struct hpmmap_placement *place,
				unsigned long hint, unsigned long len,
				unsigned long flags, unsigned long align,
				unsigned long phase)
{
	unsigned long addr, whole;

	lockdep_assert_held(&ctx->ops);
	if (in_32bit_syscall())
		flags |= MAP_32BIT;
	if (!hint && len < SLOT_SIZE && align == PAGE_SIZE &&
	    !(flags & (MAP_32BIT | MAP_STACK))) {
		addr = place_beside_heap(ctx, place, len);
		if (addr && !is_pinned(ctx, addr, len))
			return addr;
	}
	addr = hpmmap_range_find_hole(hint, len, flags, align, phase);
	if (IS_ERR_VALUE(addr) ||
	    (!is_pinned(ctx, addr, len) &&
	     /* A hint is kept where a policy is no more than advice. */
	     hpmmap_policy_fits(ctx, place, addr, addr + len,
				hint && addr == hint)))
		return addr;
	hint = len < SLOT_SIZE && !(flags & MAP_32BIT) ?
	       place_apart(ctx, place, len) : 0;
	if (hint && hpmmap_range_find_hole(hint, len, flags, align, 0) == hint &&
	    !is_pinned(ctx, hint, len))
		return hint;
	whole = hpmmap_range_find_hole(0, ALIGN(len, SLOT_SIZE), flags,
				     max(align, SLOT_SIZE), 0);
	if (IS_ERR_VALUE(whole))
		return addr;
	if (len < SLOT_SIZE)
		begin_apart(ctx, place, whole + len);
	return whole;
}

/* The first slot of [slot, end) whose block a mapping can keep. */
static unsigned long next_kept(struct hpmmap_ctx *ctx, unsigned long slot,
			       unsigned long end, bool renew)
{
	/* A new mapping leaves what is shared to the others. */
	while (slot < end && xa_find(hpmmap_store(ctx, slot, end - 1), &slot, end - 1, XA_PRESENT) &&
	       renew && xa_get_mark(&ctx->store.blocks, slot, SLOT_SHARED))
		slot++;
	return slot < end && hpmmap_store_load(ctx, slot) ? slot : end;
}

/*
 * How far @nr blocks reach: @end, or the start of the first slot that there is none left for;
 * it may be below @start.
 */
static unsigned long reach(struct hpmmap_ctx *ctx, unsigned long start,
			   unsigned long end, unsigned long nr)
{
	unsigned long slot = slot_of(start), last = slot_of(end - 1) + 1;

	while (slot < last) {
		unsigned long next = next_kept(ctx, slot, last, true);

		if (next - slot > nr)
			return (slot + nr) << SLOT_SHIFT;
		nr -= next - slot;
		slot = next + 1;
	}
	return end;
}

/*
 * How far the pools reach that have too little for a new mapping. ctx->ops is held. Returns
 * the end of the part that they have memory for now: of a slot, or @end; @start where there
 * is no such part.
 */
unsigned long hpmmap_short_end(struct hpmmap_ctx *ctx,
			       const struct hpmmap_placement *place,
			       unsigned long start, unsigned long end)
{
	unsigned long nr = slot_of(end - 1) - slot_of(start) + 1;
	struct hpmmap_account *account;

	lockdep_assert_held(&ctx->ops);
	if (nr == 1)
		return start;
	account = hpmmap_charged(ctx);
	if (!account)
		return start;
	nr = hpmmap_pool_offer(account, &place->nodes, nr);
	hpmmap_account_put(account);
	return clamp(reach(ctx, start, end, nr), start, end);
}

/* Blocks for those slots of [slot, end) that have none to keep. */
static int alloc_missing(struct hpmmap_ctx *ctx,
			 const struct hpmmap_placement *place,
			 unsigned long slot, unsigned long end, bool renew,
			 struct list_head *out)
{
	while (slot < end) {
		unsigned long kept = next_kept(ctx, slot, end, renew);
		int ret = hpmmap_reserve(ctx, place, slot, kept - slot, true, out);

		if (ret)
			return ret;
		slot = kept + 1;
	}
	return 0;
}

/*
 * What is to be placed at its first touch may end up anywhere, so it is taken
 * from all nodes; slots that are covered in part are placed now.
 */
static int alloc_for_touch(struct hpmmap_ctx *ctx,
			   const struct hpmmap_placement *place,
			   unsigned long start, unsigned long end, bool renew,
			   struct list_head *out)
{
	unsigned long first = slot_of(start), last = slot_of(end - 1) + 1;
	unsigned long whole = slot_of(start + SLOT_SIZE - 1);
	unsigned long whole_end = max(whole, slot_of(end));
	struct hpmmap_placement spread = *place;
	int ret;

	if (!spread.in_turn)
		hpmmap_placement_take_turns(&spread);
	ret = alloc_missing(ctx, &spread, whole, whole_end, renew, out);
	if (!ret)
		ret = alloc_missing(ctx, place, first, min(whole, last), renew,
				    out);
	if (!ret)
		ret = alloc_missing(ctx, place, whole_end, last, renew, out);
	return ret;
}

/* For a mapping, or where @vma is NULL for a new one. */
static int alloc_range(struct hpmmap_ctx *ctx, struct vm_area_struct *vma,
		       unsigned long start, unsigned long end,
		       struct list_head *out)
{
	struct hpmmap_placement place;

	if (start >= end)
		return 0;
	hpmmap_placement_get(ctx->job, vma, &place);
	if (ctx->job->first_touch)
		return alloc_for_touch(ctx, &place, start, end, !vma, out);
	return alloc_missing(ctx, &place, slot_of(start), slot_of(end - 1) + 1,
			     !vma, out);
}

/*
 * Blocks for a new mapping, added to @out: one for each slot that has none, or a shared
 * one, which the mapping will not keep. ctx->ops is held. Returns 0, or -ENOMEM where there
 * are not enough: then @out is empty.
 */
int hpmmap_policy_alloc(struct hpmmap_ctx *ctx, unsigned long start,
			unsigned long end, struct list_head *out)
{
	unsigned long slot = slot_of(start);
	int ret;

	lockdep_assert_held(&ctx->ops);
	/* Of small ones, most. */
	if (slot == slot_of(end - 1) && hpmmap_store_load(ctx, slot) &&
	    !hpmmap_slot_is_marked(ctx, slot))
		return 0;
	ret = alloc_range(ctx, NULL, start, end, out);
	if (ret)
		hpmmap_pool_free_unused(out);
	return ret;
}

/*
 * The same that a commit of a range needs: one for each slot of a mapping of ours that has
 * none.
 */
int hpmmap_policy_alloc_mapped(struct hpmmap_ctx *ctx, unsigned long start,
			       unsigned long end, struct list_head *out)
{
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, ctx->mm, start);
	int ret = 0;

	lockdep_assert_held(&ctx->ops);
	mmap_read_lock(ctx->mm);
	for_each_vma_range(vmi, vma, end) {
		unsigned long hi = min(end, vma->vm_end);

		if (!hpmmap_vma_is_ours(vma))
			continue;
		ret = alloc_range(ctx, vma,
				  max(start, hpmmap_vma_given(ctx, vma)), hi,
				  out);
		if (ret)
			break;
		/* Two mappings in one slot need one block. */
		start = max(start, ALIGN(hi, SLOT_SIZE));
	}
	mmap_read_unlock(ctx->mm);
	if (ret)
		hpmmap_pool_free_unused(out);
	return ret;
}
