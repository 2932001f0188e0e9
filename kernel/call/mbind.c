// SPDX-License-Identifier: GPL-2.0
/*
 * What mbind(2) means for memory that is there already.
 *
 * A block is moved to where the new policy wants it. Where others have a part of
 * its slot, whose memory is to stay, what is bound becomes memory of Linux; so it
 * does where the pools have nothing left on the nodes it is bound to.
 */
#include <linux/capability.h>
#include <linux/mempolicy.h>
#include <linux/sched/signal.h>
#include <linux/uaccess.h>

#include "hook.h"
#include "hpmmap.h"
#include "mem/account.h"
#include "mem/block.h"
#include "mem/placement.h"
#include "mem/pool.h"
#include "as/ctx.h"
#include "as/handback.h"
#include "as/policy.h"
#include "as/store.h"
#include "as/vma.h"
#include "call/handle.h"
#include "call/mbind.h"

#define ABOUT_PAGES (MPOL_MF_STRICT | MPOL_MF_MOVE | MPOL_MF_MOVE_ALL)

/**
 * struct bind - a call of mbind(2)
 * @regs: its arguments, without flags that are about pages
 * @flags: its flags
 * @named: the nodes it names
 * @bound: no others are allowed
 */
struct bind {
	struct pt_regs regs;
	unsigned long flags;
	nodemask_t named;
	bool bound;
};

/**
 * enum look - how the block of a slot lies
 * @LOOK_RIGHT: where it should
 * @LOOK_WRONG: elsewhere
 * @LOOK_OTHERS: elsewhere, but others have a part of the slot, too
 */
enum look {
	LOOK_RIGHT,
	LOOK_WRONG,
	LOOK_OTHERS,
};

static bool block_is_right(const struct hpmmap_placement *place,
			   struct hpmmap_block *block)
{
	unsigned int i;

	if (block->folio)
		return hpmmap_placement_is_right(place, block->slot,
						 block->nid);
	for (i = 0; i < SLOT_PAGES; i++)
		if (block->pages[i] &&
		    !hpmmap_placement_is_right(place, block->slot,
					       page_to_nid(block->pages[i])))
			return false;
	return true;
}

/*
 * Would others in the slot of [start, end) object to a block where @place says?
 * What has no policy of its own may be where a thread's policy wanted it:
 * @unbound is whether that counts.
 */
static bool others_object(struct hpmmap_ctx *ctx, unsigned long start,
			  unsigned long end,
			  const struct hpmmap_placement *place, bool unbound)
{
	unsigned long slot = slot_of(start);
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, ctx->mm, slot << SLOT_SHIFT);

	mmap_assert_locked(ctx->mm);
	for_each_vma_range(vmi, vma, (slot + 1) << SLOT_SHIFT) {
		struct hpmmap_placement its;

		if (!hpmmap_vma_is_ours(vma) ||
		    (max(vma->vm_start, slot << SLOT_SHIFT) >= start &&
		     min(vma->vm_end, (slot + 1) << SLOT_SHIFT) <= end))
			continue;
		if (!vma_policy(vma) && !unbound)
			continue;
		if (!vma_policy(vma))
			return true;
		hpmmap_placement_get(ctx->job, vma, &its);
		if (its.in_turn != place->in_turn ||
		    !nodes_subset(place->preferred, its.preferred))
			return true;
	}
	return false;
}

/*
 * How the block of a slot lies for the mapping of ours in [start, end); if not
 * right, @place is how it should, and @charged whether it is of the pools.
 */
static enum look slot_look(struct hpmmap_ctx *ctx, unsigned long start,
			   unsigned long end, struct hpmmap_placement *place,
			   bool *charged)
{
	enum look look = LOOK_RIGHT;
	struct hpmmap_block *block;
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, ctx->mm, start);

	mmap_read_lock(ctx->mm);
	mutex_lock(&ctx->lock);
	block = hpmmap_store_load(ctx, slot_of(start));
	for_each_vma_range(vmi, vma, end) {
		if (!block)
			break;
		/* No policy of its own is content with what there is. */
		if (!hpmmap_vma_is_ours(vma) || !vma_policy(vma))
			continue;
		hpmmap_placement_get(ctx->job, vma, place);
		if (block_is_right(place, block))
			break;
		look = others_object(ctx, start, end, place, true) ?
		       LOOK_OTHERS : LOOK_WRONG;
		*charged = block->folio && block->account == ctx->owner.account;
		break;
	}
	mutex_unlock(&ctx->lock);
	mmap_read_unlock(ctx->mm);
	return look;
}

/* Memory of Linux counts for no limit, so what takes its place has to ask. */
static struct hpmmap_block *block_instead(struct hpmmap_ctx *ctx,
					  const struct hpmmap_placement *place,
					  bool charged)
{
	struct hpmmap_account *account = ctx->owner.account;
	struct hpmmap_block *block;

	if (!charged && hpmmap_account_charge(account, 1))
		return NULL;
	block = hpmmap_pool_alloc_instead(account, place->near,
					  &place->preferred);
	if (!charged)
		hpmmap_account_uncharge(account, 1);
	return block;
}

static bool slot_correct(struct hpmmap_ctx *ctx, unsigned long slot,
			 struct hpmmap_placement *place, bool charged,
			 bool *wait)
{
	struct hpmmap_block *block;
	LIST_HEAD(one);

	if (place->in_turn) {
		int nid = hpmmap_placement_turn(place, slot, 1, NULL);

		init_nodemask_of_node(&place->preferred, nid);
	}
	block = block_instead(ctx, place, charged);
	if (!block)
		return false;
	if (hpmmap_store_replace(ctx, slot, block, wait))
		return true;
	list_add(&block->link, &one);
	hpmmap_pool_free_list(&one);
	return false;
}

/**
 * hpmmap_policy_move() - move the block of a slot to a node
 * @ctx: the caller's context, ctx->ops not held
 * @addr: an address of the slot
 * @nid: the node
 * @all: whatever mbind(2) said about others in the slot
 *
 * Return: whether it is there now.
 */
bool hpmmap_policy_move(struct hpmmap_ctx *ctx, unsigned long addr, int nid,
			bool all)
{
	unsigned long start = addr & SLOT_MASK, end = start + SLOT_SIZE;
	struct hpmmap_placement place = { .near = nid };
	bool charged, may, done = false, wait = true;
	struct hpmmap_block *block;
	struct vm_area_struct *vma;

	init_nodemask_of_node(&place.nodes, nid);
	place.preferred = place.nodes;
	if (!node_isset(nid, ctx->job->nodes) || hpmmap_ops_lock(ctx))
		return false;
	mmap_read_lock(ctx->mm);
	mutex_lock(&ctx->lock);
	block = hpmmap_store_load(ctx, slot_of(addr));
	vma = vma_lookup(ctx->mm, addr);
	may = block && (all || (vma && hpmmap_vma_is_ours(vma) &&
				!others_object(ctx, max(start, vma->vm_start),
					       min(end, vma->vm_end), &place,
					       false)));
	charged = block && block->folio && block->account == ctx->owner.account;
	mutex_unlock(&ctx->lock);
	mmap_read_unlock(ctx->mm);
	if (may) {
		done = slot_correct(ctx, slot_of(addr), &place, charged, &wait);
		hpmmap_vma_repair(ctx, start, end);
	}
	hpmmap_ops_unlock(ctx);
	return done;
}

/**
 * hpmmap_slot_node() - where the block of a slot lies
 * @ctx: the context
 * @slot: the slot
 * @shared: out: whether it is shared since a fork
 *
 * Return: its node, NUMA_NO_NODE where there is none, or nobody has seen it.
 */
int hpmmap_slot_node(struct hpmmap_ctx *ctx, unsigned long slot, bool *shared)
{
	struct hpmmap_block *block;
	int nid = NUMA_NO_NODE;

	mutex_lock(&ctx->lock);
	block = hpmmap_store_load(ctx, slot);
	if (block && block->folio && !bitmap_full(block->stale, SLOT_PAGES)) {
		nid = block->nid;
		*shared = hpmmap_block_is_shared(block);
	}
	mutex_unlock(&ctx->lock);
	return nid;
}

/* Is the block of a slot on one of these nodes? */
static bool slot_is_on(struct hpmmap_ctx *ctx, unsigned long slot,
		       const nodemask_t *nodes)
{
	struct hpmmap_block *block;
	bool ret;

	mutex_lock(&ctx->lock);
	block = hpmmap_store_load(ctx, slot);
	ret = !block || (block->folio && node_isset(block->nid, *nodes));
	mutex_unlock(&ctx->lock);
	return ret;
}

/**
 * hpmmap_policy_place() - move what lies where its mapping does not want it
 * @ctx: the caller's context, ctx->ops held
 * @start: first address
 * @end: end
 *
 * What was moved is not mapped afterwards.
 *
 * Return: false if some is on a node where it must not be.
 */
bool hpmmap_policy_place(struct hpmmap_ctx *ctx, unsigned long start,
			 unsigned long end)
{
	struct hpmmap_placement place;
	bool charged = false, wait = true, ret = true;
	unsigned long next;

	for (; start < end && !fatal_signal_pending(current); start = next) {
		start = hpmmap_store_next(ctx, start, end);
		if (start == end)
			break;
		next = min(end, (start & SLOT_MASK) + SLOT_SIZE);
		switch (slot_look(ctx, start, next, &place, &charged)) {
		case LOOK_RIGHT:
			break;
		case LOOK_WRONG:
			if (slot_correct(ctx, slot_of(start), &place, charged,
					 &wait))
				break;
			fallthrough;
		case LOOK_OTHERS:
			ret &= slot_is_on(ctx, slot_of(start), &place.nodes);
			break;
		}
		cond_resched();
	}
	return ret;
}

/**
 * hpmmap_page_node() - where a page lies
 * @ctx: the context
 * @addr: any address
 * @shared: out: whether it is shared since a fork
 *
 * Return: its node, NUMA_NO_NODE if it is not ours or was not placed yet.
 */
int hpmmap_page_node(struct hpmmap_ctx *ctx, unsigned long addr, bool *shared)
{
	unsigned int i = page_in_slot(addr);
	struct hpmmap_block *block;
	struct page *page = NULL;
	int nid = NUMA_NO_NODE;

	mutex_lock(&ctx->lock);
	block = hpmmap_store_load(ctx, slot_of(addr));
	if (block && !test_bit(i, block->stale))
		page = hpmmap_block_page(block, i);
	if (page) {
		nid = page_to_nid(page);
		*shared = hpmmap_block_is_shared(block);
	}
	mutex_unlock(&ctx->lock);
	return nid;
}

static int range_is_misplaced(struct hpmmap_ctx *ctx, const struct bind *b,
			      unsigned long start, unsigned long end,
			      bool shared_too, void *buf)
{
	bool shared = false;
	int ret = 0;

	for (; !ret && start < end; start += PAGE_SIZE) {
		int nid;

		start = hpmmap_store_next(ctx, start, end);
		if (start == end)
			break;
		if (slot_is_on(ctx, slot_of(start), &b->named)) {
			start = (start | ~SLOT_MASK) & PAGE_MASK;
			continue;
		}
		nid = hpmmap_page_node(ctx, start, &shared);
		if (nid != NUMA_NO_NODE && !node_isset(nid, b->named) &&
		    (shared_too || !shared))
			ret = hpmmap_handback_read(ctx, start, buf) != 0;
		if (fatal_signal_pending(current))
			ret = -EINTR;
		cond_resched();
	}
	return ret;
}

/*
 * Is there a page with contents on a node that the call does not name? Memory is
 * there before it is touched: what is zero counts as not touched. Returns 1, 0
 * or an errno.
 */
static int is_misplaced(struct hpmmap_ctx *ctx, const struct bind *b,
			unsigned long start, unsigned long end, bool shared_too)
{
	void *buf = (void *)__get_free_page(GFP_KERNEL);
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, ctx->mm, start);
	int ret = 0;

	if (!buf)
		return -ENOMEM;
	mmap_read_lock(ctx->mm);
	for_each_vma_range(vmi, vma, end) {
		/* A hole is Linux's to refuse. */
		if (vma->vm_start > start)
			break;
		if (hpmmap_vma_is_ours(vma))
			ret = range_is_misplaced(ctx, b, start,
						 min(end, vma->vm_end),
						 shared_too, buf);
		if (ret)
			break;
		start = vma->vm_end;
	}
	mmap_read_unlock(ctx->mm);
	free_page((unsigned long)buf);
	return ret;
}

/* MPOL_MF_MOVE_ALL: what is shared with others is copied, to the right node. */
static void slot_own(struct hpmmap_ctx *ctx, unsigned long addr)
{
	struct vm_area_struct *vma;

	mmap_read_lock(ctx->mm);
	vma = vma_lookup(ctx->mm, addr);
	if (vma && hpmmap_vma_is_ours(vma) &&
	    xa_get_mark(&ctx->store, slot_of(addr), SLOT_SHARED))
		hpmmap_store_reserve(ctx, vma, slot_of(addr), NULL);
	mmap_read_unlock(ctx->mm);
}

/*
 * What stays where it should not: -EIO where the caller wants to know, -ENOMEM
 * where it may not be touched there.
 */
static long bind_left(struct hpmmap_ctx *ctx, const struct bind *b,
		      unsigned long start, unsigned long end)
{
	int ret = is_misplaced(ctx, b, start, end, b->flags & MPOL_MF_MOVE_ALL);

	if (ret < 0)
		return ret;
	if (ret)
		return b->flags & MPOL_MF_STRICT ? -EIO : 0;
	return b->bound && ctx->job->strict &&
	       !xa_get_mark(&ctx->store, slot_of(start), SLOT_SHARED) &&
	       !slot_is_on(ctx, slot_of(start), &b->named) ? -ENOMEM : 0;
}

/* Is what cannot be moved as it is to be memory of Linux? */
static bool wants_linux(struct hpmmap_ctx *ctx, const struct bind *b,
			unsigned long slot, enum look look)
{
	if (!b->bound && !(b->flags & ABOUT_PAGES))
		return false;
	if (slot_is_on(ctx, slot, &b->named))
		return false;
	/* A copy that a write makes will be right. */
	return look == LOOK_OTHERS ||
	       (!ctx->job->strict &&
		!xa_get_mark(&ctx->store, slot, SLOT_SHARED));
}

/* Will a first touch decide on the block of a slot that is covered wholly? */
static bool slot_is_deferred(struct hpmmap_ctx *ctx, unsigned long start,
			     unsigned long end)
{
	struct hpmmap_block *block;
	bool ret;

	mutex_lock(&ctx->lock);
	block = hpmmap_store_load(ctx, slot_of(start));
	ret = block && hpmmap_policy_defers(ctx, block, start, end);
	mutex_unlock(&ctx->lock);
	return ret;
}

/* Returns whether the part of a slot is right now, or will be. */
static bool slot_bind(struct hpmmap_ctx *ctx, const struct bind *b,
		      unsigned long start, unsigned long end, bool *wait,
		      enum look *look)
{
	struct hpmmap_placement place;
	bool charged = false;

	*look = slot_look(ctx, start, end, &place, &charged);
	if (*look != LOOK_RIGHT && b->flags & MPOL_MF_MOVE_ALL) {
		slot_own(ctx, start);
		*look = slot_look(ctx, start, end, &place, &charged);
	}
	if (*look == LOOK_WRONG &&
	    slot_correct(ctx, slot_of(start), &place, charged, wait))
		return true;
	return *look == LOOK_RIGHT || slot_is_deferred(ctx, start, end);
}

/* A range whose memory is to be Linux's, which keeps the policy for each page. */
static long bind_apart(struct hpmmap_ctx *ctx, const struct bind *b,
		       unsigned long start, unsigned long end)
{
	long ret;

	if (start == end)
		return 0;
	ret = hpmmap_handback_bound(ctx, start, end, &b->regs);
	if (!ret || fatal_signal_pending(current))
		return ret;
	return bind_left(ctx, b, start, end);
}

/* Moves what is ours of a range to where the new policy wants it. */
static long bind_ours(struct hpmmap_ctx *ctx, const struct bind *b,
		      unsigned long start, unsigned long end)
{
	unsigned long next, apart = start, apart_end = start;
	bool wait = true;
	long ret = 0, left;
	enum look look;

	for (; start < end; start = next) {
		if (fatal_signal_pending(current))
			return -EINTR;
		start = hpmmap_store_next(ctx, start, end);
		if (start == end)
			break;
		next = min(end, (start & SLOT_MASK) + SLOT_SIZE);
		cond_resched();
		if (slot_bind(ctx, b, start, next, &wait, &look))
			continue;
		if (wants_linux(ctx, b, slot_of(start), look)) {
			if (apart_end == start) {
				apart_end = next;
				continue;
			}
			left = bind_apart(ctx, b, apart, apart_end);
			apart = start;
			apart_end = next;
		} else {
			left = bind_left(ctx, b, start, next);
		}
		if (!ret)
			ret = left;
	}
	left = bind_apart(ctx, b, apart, apart_end);
	return ret ? ret : left;
}

/* The call as it is, for what is not ours of the range. */
static long bind_others(struct hpmmap_ctx *ctx, const struct pt_regs *regs,
			unsigned long start, unsigned long end)
{
	struct pt_regs part = *regs;
	long ret = 0;

	while (!ret && start < end) {
		struct vm_area_struct *vma;
		unsigned long lo = end, hi = end;
		VMA_ITERATOR(vmi, ctx->mm, start);

		mmap_read_lock(ctx->mm);
		for_each_vma_range(vmi, vma, end) {
			if (hpmmap_vma_is_ours(vma))
				continue;
			lo = max(start, vma->vm_start);
			hi = min(end, vma->vm_end);
			break;
		}
		mmap_read_unlock(ctx->mm);
		part.di = lo;
		part.si = hi - lo;
		if (lo < hi)
			ret = hpmmap_call_orig(HPMMAP_CALL_MBIND, &part);
		start = hi;
	}
	return ret;
}

/**
 * hpmmap_nodes_read() - the nodes that a call names
 * @max: one more than there are bits
 * @from: address of the bits, or 0
 * @nodes: out
 *
 * Return: false where Linux will not understand it.
 */
bool hpmmap_nodes_read(unsigned long max, unsigned long from, nodemask_t *nodes)
{
	unsigned long nr = max - 1, *last;

	nodes_clear(*nodes);
	if (!nr || !from)
		return true;
	if (nr > PAGE_SIZE * BITS_PER_BYTE)
		return false;
	nr = min_t(unsigned long, nr, MAX_NUMNODES);
	if (copy_from_user(nodes_addr(*nodes), (void __user *)from,
			   BITS_TO_LONGS(nr) * sizeof(long)))
		return false;
	last = &nodes_addr(*nodes)[BIT_WORD(nr - 1)];
	*last &= BITMAP_LAST_WORD_MASK(nr);
	return true;
}

/* -EIO, unless something else is wrong with the call, which Linux says. */
static long refuse(const struct pt_regs *regs)
{
	struct pt_regs nowhere = *regs;
	long ret;

	/* Nothing is ever mapped there: -EFAULT comes last. */
	nowhere.di = TASK_SIZE_MAX;
	nowhere.si = PAGE_SIZE;
	ret = hpmmap_call_orig(HPMMAP_CALL_MBIND, &nowhere);
	return ret == -EFAULT ? -EIO : ret;
}

/*
 * Linux keeps the policy. Whether memory of ours follows it is decided here:
 * it is there before the call, so it has to be moved even where the flags do
 * not ask for it.
 */
static long handle_mbind(struct hpmmap_ctx *ctx, enum hpmmap_call call,
			 const struct pt_regs *regs)
{
	unsigned long start = regs->di, end = start + PAGE_ALIGN(regs->si);
	int mode = regs->dx & ~(unsigned long)MPOL_MODE_FLAGS;
	struct bind b = { .regs = *regs, .flags = regs->r9 };
	long ret = 0;

	/* What cannot be right is Linux's to refuse. */
	if (offset_in_page(start) || end <= start || end > TASK_SIZE ||
	    b.flags & ~(unsigned long)MPOL_MF_VALID ||
	    (b.flags & MPOL_MF_MOVE_ALL && !capable(CAP_SYS_NICE)) ||
	    !hpmmap_nodes_read(regs->r8, regs->r10, &b.named) ||
	    !hpmmap_range_has_ours(ctx, start, end))
		return hpmmap_call_orig(call, regs);
	b.regs.r9 &= ~(unsigned long)ABOUT_PAGES;
	b.bound = mode == MPOL_BIND;
	if (mode == MPOL_DEFAULT)
		b.flags &= ~(unsigned long)MPOL_MF_STRICT;
	if ((b.flags & ABOUT_PAGES) == MPOL_MF_STRICT)
		ret = is_misplaced(ctx, &b, start, end, true);
	if (ret)
		return ret > 0 ? refuse(regs) : ret;
	ret = hpmmap_call_orig(call, &b.regs);
	if (!ret)
		ret = bind_ours(ctx, &b, start, end);
	hpmmap_vma_repair(ctx, start & SLOT_MASK, ALIGN(end, SLOT_SIZE));
	if (!ret && b.flags & ABOUT_PAGES)
		ret = bind_others(ctx, regs, start, end);
	return ret;
}

long hpmmap_sys_mbind(const struct pt_regs *regs)
{
	return hpmmap_handle_if_ours(HPMMAP_CALL_MBIND, regs, handle_mbind);
}
