// SPDX-License-Identifier: GPL-2.0
/*
 * What mbind(2) means for memory that is there already.
 *
 * A block is moved to where the new policy wants it. Where others have a part of
 * its slot, whose memory is to stay, what is bound becomes memory of Linux; so it
 * does where the pools have nothing left on the nodes it is bound to.
 */
#include "hook.h"
#include "hpmmap.h"
#include "mem/block/block.h"
#include "mem/block/nodes.h"
#include "as/own/ctx.h"
#include "as/map/range.h"
#include "as/map/vma.h"
#include "as/store/store.h"
#include "as/change/change.h"
#include "as/change/few.h"
#include "as/change/handback.h"
#include "as/change/place.h"
#include "call/step/handle.h"
#include "call/sys.h"

#define ABOUT_PAGES (MPOL_MF_STRICT | MPOL_MF_MOVE | MPOL_MF_MOVE_ALL)

/* A call of mbind(2). */
struct bind {
	struct pt_regs regs;	/* its arguments, without flags that are about pages */
	unsigned long flags;	/* its flags */
	nodemask_t named;	/* the nodes it names */
	bool bound;		/* no others are allowed */
};

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
		if (hpmmap_slot_is_on(ctx, slot_of(start), &b->named)) {
			start = (start | ~SLOT_MASK) & PAGE_MASK;
			continue;
		}
		nid = hpmmap_page_node(ctx, start, &shared);
		if (nid != NUMA_NO_NODE && !node_isset(nid, b->named) && (shared_too || !shared))
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
	unsigned long next;
	int ret = 0;

	if (!buf)
		return -ENOMEM;
	mmap_read_lock(ctx->mm);
	/* A hole is Linux's to refuse. */
	for (; !ret && start < end && (vma = vma_lookup(ctx->mm, start)); start = next) {
		next = min(end, vma->vm_end);
		if (!hpmmap_vma_is_ours(vma))
			continue;
		next = min(next, (start & SLOT_MASK) + HPMMAP_AT_ONCE_BYTES);
		ret = range_is_misplaced(ctx, b, start, next, shared_too, buf);
		hpmmap_mmap_read_yield(ctx->mm);
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
	    xa_get_mark(&ctx->store.blocks, slot_of(addr), SLOT_SHARED))
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
	       !xa_get_mark(&ctx->store.blocks, slot_of(start), SLOT_SHARED) &&
	       !hpmmap_slot_is_on(ctx, slot_of(start), &b->named) ? -ENOMEM : 0;
}

/* Does memory that cannot be moved as it is become ordinary memory? */
static bool wants_linux(struct hpmmap_ctx *ctx, const struct bind *b,
			unsigned long slot, enum hpmmap_look look)
{
	if (!b->bound && !(b->flags & ABOUT_PAGES))
		return false;
	if (hpmmap_slot_is_on(ctx, slot, &b->named))
		return false;
	/* A copy that a write makes will be right. */
	return look == LOOK_OTHERS ||
	       (!ctx->job->strict &&
		!xa_get_mark(&ctx->store.blocks, slot, SLOT_SHARED));
}

/* Returns whether the part of a slot is right now, or will be. */
static bool slot_bind(struct hpmmap_ctx *ctx, const struct bind *b,
		      unsigned long start, unsigned long end, bool *wait,
		      enum hpmmap_look *look)
{
	struct hpmmap_placement place;

	*look = hpmmap_slot_look(ctx, start, end, &place);
	if (*look != LOOK_RIGHT && b->flags & MPOL_MF_MOVE_ALL) {
		slot_own(ctx, start);
		*look = hpmmap_slot_look(ctx, start, end, &place);
	}
	if (*look == LOOK_WRONG &&
	    hpmmap_slot_correct(ctx, slot_of(start), &place, wait))
		return true;
	return *look == LOOK_RIGHT || hpmmap_slot_is_deferred(ctx, start, end);
}

/* A range whose memory is to be Linux's, which keeps the policy for each page. */
static long bind_apart(struct hpmmap_ctx *ctx, const struct bind *b,
		       unsigned long start, unsigned long end)
{
	long ret;

	if (start == end)
		return 0;
	ret = hpmmap_handback_bound(ctx, start, end, &b->regs, false, false);
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
	enum hpmmap_look look;

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

static bool is_linux(const struct vm_area_struct *vma)
{
	return !hpmmap_vma_is_ours(vma);
}

/* The call as it is, for what is not ours of the range. */
static long bind_others(struct hpmmap_ctx *ctx, const struct pt_regs *regs,
			unsigned long start, unsigned long end)
{
	struct pt_regs part = *regs;
	unsigned long next = end;
	long ret = 0;

	while (!ret && hpmmap_range_next(ctx->mm, &start, &next, is_linux)) {
		part.di = start;
		part.si = next - start;
		ret = hpmmap_call_orig(HPMMAP_CALL_MBIND, &part);
		start = next;
		next = end;
	}
	return ret;
}

/*
 * The nodes that the call names: @max is one more than there are bits at @from.
 * False where Linux will not understand it.
 */
static bool nodes_read(unsigned long max, unsigned long from, nodemask_t *nodes)
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
static long handle_mbind(struct hpmmap_ctx *ctx, enum hpmmap_call call, const struct pt_regs *regs)
{
	unsigned long start = regs->di, end = start + PAGE_ALIGN(regs->si);
	int mode = regs->dx & ~(unsigned long)MPOL_MODE_FLAGS;
	struct bind b = { .regs = *regs, .flags = (unsigned int)regs->r9 };
	struct hpmmap_change c = HPMMAP_CHANGE(ctx, start, end, .lazy = true);
	long ret = 0;

	/* What cannot be right is Linux's to refuse. */
	if (offset_in_page(start) || end <= start || end > TASK_SIZE ||
	    b.flags & ~(unsigned long)MPOL_MF_VALID ||
	    (b.flags & MPOL_MF_MOVE_ALL && !capable(CAP_SYS_NICE)) ||
	    !nodes_read(regs->r8, regs->r10, &b.named) ||
	    !hpmmap_range_has_ours(ctx, start, end))
		return hpmmap_call_orig(call, regs);
	/* What is bound has blocks: pages of Linux follow who is first. */
	hpmmap_few_end(ctx, start, end, false);
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
	hpmmap_change_settle(&c, HPMMAP_KEPT, NULL);
	if (!ret && b.flags & ABOUT_PAGES)
		ret = bind_others(ctx, regs, start, end);
	return ret;
}

/*
 * What the call names is read once before ctx->ops is taken: where a page has to be
 * brought first (userfaultfd, FUSE), another thread may have to map memory for it.
 */
long hpmmap_sys_mbind(const struct pt_regs *regs)
{
	unsigned long nr = regs->r8 - 1;

	if (nr && nr <= PAGE_SIZE * BITS_PER_BYTE)
		fault_in_readable((void __user *)regs->r10,
				  BITS_TO_LONGS(nr) * sizeof(long));
	return hpmmap_handle_if_ours(HPMMAP_CALL_MBIND, regs, handle_mbind);
}
