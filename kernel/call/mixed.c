// SPDX-License-Identifier: GPL-2.0
/*
 * mremap of what is the pools' in part and Linux's in part: one mapping to the program, which
 * the pools had too little for.
 */
#include <linux/mm.h>
#include <linux/mman.h>

#include "hook.h"
#include "hpmmap.h"
#include "as/change.h"
#include "as/ctx.h"
#include "as/range.h"
#include "as/stats.h"
#include "as/vma.h"
#include "call/fresh.h"
#include "call/mixed.h"
#include "call/remap.h"

/*
 * Is all of a range one mapping of ours, and behind it one of Linux's like it? That
 * is what becomes of one call that the pools have too little for.
 */
bool hpmmap_remap_is_mixed(struct hpmmap_ctx *ctx, const struct hpmmap_remap *r)
{
	struct vm_area_struct *vma;
	bool ret;

	mmap_read_lock(ctx->mm);
	vma = vma_lookup(ctx->mm, r->vm_end);
	ret = vma && vma_is_anonymous(vma) &&
	      vma->vm_end - r->addr >= min(r->old_len, r->new_len) &&
	      !((vma->vm_flags ^ r->vm_flags) & VM_ACCESS_FLAGS) &&
	      !(vma->vm_flags & (VM_SHARED | VM_GROWSDOWN));
	mmap_read_unlock(ctx->mm);
	return ret && !hpmmap_range_is_watched(r->vm_end, r->addr + r->old_len);
}

/* Linux's part of a mixed one, from @from to @to or, if that is 0, in place. */
static long remap_rest(unsigned long from, unsigned long old_len,
		       unsigned long new_len, unsigned long to)
{
	const struct pt_regs regs = {
		.di = from,
		.si = old_len,
		.dx = new_len,
		.r10 = to ? MREMAP_MAYMOVE | MREMAP_FIXED : 0,
		.r8 = to,
	};

	return hpmmap_call_orig(HPMMAP_CALL_MREMAP, &regs);
}

/* What is ours of a range goes: where there is room, others may be by now. */
static void unmap_ours(struct hpmmap_ctx *ctx, unsigned long start,
		       unsigned long end)
{
	struct hpmmap_change c = HPMMAP_CHANGE(ctx, start, end);
	unsigned long lo = start, hi = end;

	lockdep_assert_held(&ctx->ops);
	for (; hpmmap_range_next(ctx->mm, &lo, &hi, hpmmap_vma_is_ours); lo = hi, hi = end)
		if (vm_munmap(lo, hi - lo))
			break;
	hpmmap_change_settle(&c, HPMMAP_CUT, NULL);
}

/* Linux's part goes back to where it was, if nobody is there now. */
static void move_rest_back(struct hpmmap_ctx *ctx, const struct hpmmap_remap *r,
			   unsigned long from, unsigned long new_rest)
{
	unsigned long old_rest = r->addr + r->old_len - r->vm_end;
	struct hpmmap_change c = HPMMAP_CHANGE(ctx, r->vm_end, r->vm_end + old_rest);
	long ret;

	hpmmap_range_discount(ctx, from, new_rest);
	ret = hpmmap_map_fresh(ctx, c.start, old_rest, PROT_NONE, MAP_NORESERVE, false, NULL);
	if (!IS_ERR_VALUE(ret))
		ret = remap_rest(from, new_rest, old_rest, c.start);
	if (IS_ERR_VALUE(ret))
		hpmmap_contents_lost();
	hpmmap_range_count_again(ctx);
	hpmmap_change_settle(&c, HPMMAP_CUT, NULL);
}

/*
 * Moves Linux's part of a mixed one. What it shrinks by may be anything, ours as
 * well: that goes first.
 */
static long move_rest(struct hpmmap_ctx *ctx, struct hpmmap_remap *r, unsigned long to)
{
	unsigned long nr_ours = r->vm_end - r->addr;
	long ret;

	if (r->old_len > r->new_len) {
		ret = hpmmap_remap_unmap(ctx, r->addr + r->new_len,
					 r->old_len - r->new_len);
		if (ret)
			return ret;
		r->old_len = r->new_len;
	}
	return remap_rest(r->vm_end, r->old_len - nr_ours,
			  r->new_len - nr_ours, to + nr_ours);
}

/*
 * Both parts move, Linux's first, to a place that is taken before, so that nobody
 * else is there.
 */
static long move_mixed(struct hpmmap_ctx *ctx, const struct hpmmap_remap *r,
		       unsigned long to)
{
	unsigned long nr_ours = r->vm_end - r->addr;
	unsigned long new_rest = r->new_len - nr_ours;
	struct hpmmap_remap whole = *r, part = *r;
	struct hpmmap_change c = HPMMAP_CHANGE(ctx, to + nr_ours, to + r->new_len);
	long ret;

	hpmmap_remap_discount(ctx, r);
	ret = hpmmap_map_fresh(ctx, to, r->new_len, PROT_NONE, MAP_NORESERVE,
			       r->flags & MREMAP_FIXED, NULL);
	if (!IS_ERR_VALUE(ret)) {
		ret = move_rest(ctx, &whole, to);
		if (IS_ERR_VALUE(ret))
			unmap_ours(ctx, to, to + r->new_len);
	}
	hpmmap_range_count_again(ctx);
	if (IS_ERR_VALUE(ret))
		return ret;
	hpmmap_change_settle(&c, HPMMAP_CUT, NULL);
	part.old_len = nr_ours;
	part.new_len = nr_ours;
	part.flags = MREMAP_MAYMOVE | MREMAP_FIXED;
	ret = hpmmap_remap_move(ctx, &part, to);
	if (!IS_ERR_VALUE(ret))
		return ret;
	unmap_ours(ctx, to, to + r->new_len);
	move_rest_back(ctx, &whole, to + nr_ours, new_rest);
	hpmmap_range_kill_if_lost(ctx, r->addr, r->addr + whole.old_len);
	return ret;
}

/* Nothing of it is done where Linux can let its own part grow. */
long hpmmap_remap_mixed(struct hpmmap_ctx *ctx, const struct hpmmap_remap *r)
{
	unsigned long nr_ours = r->vm_end - r->addr;
	long ret;

	if (r->flags & MREMAP_FIXED)
		return move_mixed(ctx, r, r->new_addr);
	ret = remap_rest(r->vm_end, r->old_len - nr_ours, r->new_len - nr_ours,
			 0);
	if (!IS_ERR_VALUE(ret)) {
		hpmmap_count_fallback(ctx, HPMMAP_FALLBACK_MMAP,
				      r->new_len - r->old_len);
		return r->addr;
	}
	if (ret != -ENOMEM || !(r->flags & MREMAP_MAYMOVE))
		return ret;
	ret = hpmmap_remap_anywhere(ctx, r, move_mixed);
	if (!IS_ERR_VALUE(ret))
		hpmmap_count_fallback(ctx, HPMMAP_FALLBACK_MMAP,
				      r->new_len - r->old_len);
	return ret;
}
