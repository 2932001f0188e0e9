// SPDX-License-Identifier: GPL-2.0
/*
 * madvise: what is ours of a range, and Linux does its part.
 */
#include <linux/mmu_context.h>

#include "hook.h"
#include "hpmmap.h"
#include "as/own/ctx.h"
#include "as/own/reuse.h"
#include "as/map/range.h"
#include "as/map/vma.h"
#include "as/change/change.h"
#include "as/change/discard.h"
#include "as/change/handback.h"
#include "call/step/extent.h"
#include "call/step/handle.h"
#include "call/sys.h"

/*
 * mseal(2): what the caller may not write to it may not discard either. Linux asks private memory
 * alone, which ours is not to it.
 */
static bool keeps_contents(const struct vm_area_struct *vma)
{
	return hpmmap_vma_is_ours(vma) && compat_vma_is_sealed(vma) &&
	       (!(vma->vm_flags & VM_WRITE) ||
		!arch_vma_access_permitted((struct vm_area_struct *)vma, true, false, false));
}

static bool range_keeps_contents(struct hpmmap_ctx *ctx, unsigned long start,
				 unsigned long end)
{
	return hpmmap_range_next(ctx->mm, &start, &end, keeps_contents);
}

/*
 * Discards what is ours of a range. Returns 1 if some of the range is not,
 * -ENOMEM if some is not mapped, else 0.
 */
static long discard_ours(struct hpmmap_ctx *ctx, unsigned long start,
			 unsigned long end, bool locked_too)
{
	struct vm_area_struct *vma;
	unsigned long addr = start, lo;
	bool others = false, hole = false;
	long ret = 0;

	mmap_read_lock(ctx->mm);
	while (addr < end &&
	       (vma = find_vma_intersection(ctx->mm, addr, end))) {
		hole |= vma->vm_start > addr;
		lo = max(addr, vma->vm_start);
		addr = vma->vm_end;
		if (!hpmmap_vma_is_ours(vma)) {
			others = true;
			continue;
		}
		if (vma->vm_flags & VM_LOCKED && !locked_too) {
			ret = -EINVAL;
			break;
		}
		if (keeps_contents(vma)) {
			ret = -EPERM;
			break;
		}
		addr = min3(end, addr, (lo & SLOT_MASK) + HPMMAP_AT_ONCE_BYTES);
		/* A stale page is never mapped. */
		if (!hpmmap_vma_is_accessible(vma))
			compat_zap(vma, lo, addr - lo);
		ret = hpmmap_store_discard(ctx, lo, addr,
					   hpmmap_vma_is_accessible(vma));
		if (ret)
			break;
		hpmmap_mmap_read_yield(ctx->mm);
	}
	mmap_read_unlock(ctx->mm);
	if (ret)
		return ret;
	if (others)
		return 1;
	return hole || addr < end ? -ENOMEM : 0;
}

/* Is a hint wrong for a mapping? */
static bool refuses_hint(struct vm_area_struct *vma, int advice)
{
	if (advice == HPMMAP_MADV_REUSE)
		return !hpmmap_vma_is_ours(vma);
	if (advice == MADV_FREE && !hpmmap_vma_is_ours(vma) && !vma_is_anonymous(vma))
		return true;
	return vma->vm_flags & VM_LOCKED && advice != MADV_COLLAPSE;
}

/* A hint about what is ours: 0, -EINVAL where it is wrong, or -ENOMEM where nothing is mapped. */
static long hint_ours(struct hpmmap_ctx *ctx, unsigned long start,
		      unsigned long end, int advice)
{
	struct vm_area_struct *vma;
	unsigned long addr = start;
	VMA_ITERATOR(vmi, ctx->mm, start);
	long ret = 0;

	mmap_read_lock(ctx->mm);
	for_each_vma_range(vmi, vma, end) {
		if (refuses_hint(vma, advice)) {
			ret = -EINVAL;
			break;
		}
		if (vma->vm_start > addr)
			ret = -ENOMEM;
		addr = vma->vm_end;
	}
	mmap_read_unlock(ctx->mm);
	return !ret && addr < end ? -ENOMEM : ret;
}

static long handle_madvise(struct hpmmap_ctx *ctx, enum hpmmap_call call,
			   const struct pt_regs *regs)
{
	unsigned long start = regs->di, end = start + PAGE_ALIGN(regs->si);
	struct hpmmap_change c = HPMMAP_CHANGE(ctx, start, end, .lazy = true);
	int advice = regs->dx;
	long ret;

	if (!hpmmap_range_has_ours(ctx, start, end))
		return hpmmap_call_orig(call, regs);
	if ((advice == MADV_FREE || advice == MADV_DONTFORK || advice == MADV_GUARD_INSTALL) &&
	    range_keeps_contents(ctx, start, end))
		return -EPERM;
	switch (advice) {
	case MADV_FREE:
	case MADV_COLD:
	case MADV_PAGEOUT:
	case MADV_COLLAPSE:
		/* Our memory is there, and it stays. */
		return hint_ours(ctx, start, end, advice);
	case HPMMAP_MADV_REUSE:
		/* It flags what is mapped. */
		ret = hint_ours(ctx, start, end, advice);
		if (!ret)
			hpmmap_reuse_set(ctx, start, end);
		return ret;
	default:
		ret = hpmmap_call_orig(call, regs);
		/* Linux keeps the contents of files behind a guard. */
		if (!ret && advice == MADV_GUARD_INSTALL) {
			hpmmap_discard_begin(ctx);
			discard_ours(ctx, start, end, true);
		}
		hpmmap_change_settle(&c, HPMMAP_KEPT, NULL);
		return ret;
	}
}

static long madvise_discard(struct hpmmap_ctx *ctx, const struct pt_regs *regs)
{
	unsigned long start = regs->di, end = start + PAGE_ALIGN(regs->si);
	/* No mapping is cut. */
	struct hpmmap_change c = HPMMAP_CHANGE(ctx, start, end, .intact = HPMMAP_END_BOTH,
					       .lazy = true);
	long ret = hpmmap_ops_lock(ctx);

	if (ret)
		return ret;
	hpmmap_discard_begin(ctx);
	/* Memory that is not given back now is zeroed. */
	hpmmap_store_refresh(ctx, start, end);
	hpmmap_store_drop_linux(ctx, start, end);
	ret = discard_ours(ctx, start, end, (int)regs->dx == MADV_DONTNEED_LOCKED);
	hpmmap_change_settle(&c, HPMMAP_KEPT, NULL);
	hpmmap_ops_unlock(ctx);
	if (ret <= 0)
		return ret;
	/* Linux does its part, which finds ours discarded already. */
	ret = hpmmap_call_orig(HPMMAP_CALL_MADVISE, regs);
	hpmmap_change_settle_apart(&c, HPMMAP_KEPT);
	return ret;
}

static long madvise_apart(struct hpmmap_ctx *ctx, enum hpmmap_call call,
			  const struct pt_regs *regs)
{
	struct hpmmap_change c = HPMMAP_CHANGE(ctx, regs->di, regs->di + PAGE_ALIGN(regs->si));
	long ret;

	if (offset_in_page(c.start) || c.end <= c.start ||
	    !hpmmap_range_has_ours(ctx, c.start, c.end))
		return hpmmap_call_orig(call, regs);
	ret = hpmmap_extent_madvise(ctx, c.start, c.end, regs->dx);
	if (ret != HPMMAP_NO_ANSWER)
		return ret;
	switch ((int)regs->dx) {
	case MADV_DONTNEED:
	case MADV_DONTNEED_LOCKED:
		return madvise_discard(ctx, regs);
	case MADV_HWPOISON:
	case MADV_SOFT_OFFLINE:
		/* Not under ctx->ops: see as/life/failure.c. */
		return hpmmap_call_orig(call, regs);
	case MADV_WILLNEED:
	case MADV_POPULATE_READ:
	case MADV_POPULATE_WRITE:
		/* Others' memory may have to be found by other threads. */
		ret = hpmmap_call_orig(call, regs);
		hpmmap_change_settle_apart(&c, HPMMAP_KEPT);
		return ret;
	case MADV_REMOVE:
		/* It is not for private memory. */
		return range_keeps_contents(ctx, c.start, c.end) ? -EPERM : -EINVAL;
	case MADV_MERGEABLE:
		/* It is advice: what is sealed stays, and is not merged. */
		ret = IS_ENABLED(CONFIG_KSM) ?
		      hpmmap_handback(ctx, c.start, c.end, true, false) : 0;
		return ret ?: hpmmap_call_orig(call, regs);
	case MADV_WIPEONFORK:
		/* Only private memory can be wiped. */
		return hpmmap_handback(ctx, c.start, c.end, false, false) ?:
		       hpmmap_call_orig(call, regs);
	default:
		return hpmmap_handle_in(ctx, call, regs, handle_madvise);
	}
}

long hpmmap_sys_madvise(const struct pt_regs *regs)
{
	return hpmmap_handle(HPMMAP_CALL_MADVISE, regs, madvise_apart);
}
