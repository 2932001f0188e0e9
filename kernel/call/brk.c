// SPDX-License-Identifier: GPL-2.0
/*
 * brk: the heap.
 */
#include "hook.h"
#include "hpmmap.h"
#include "mem/block/nodes.h"
#include "as/own/ctx.h"
#include "as/own/stats.h"
#include "as/map/policy.h"
#include "as/map/range.h"
#include "as/change/change.h"
#include "as/change/fit.h"
#include "call/step/extent.h"
#include "call/step/fresh.h"
#include "call/step/handle.h"
#include "call/sys.h"

/* Memory of Linux for a part of the heap, which may be empty. */
static bool heap_map_linux(struct hpmmap_ctx *ctx, unsigned long start,
			   unsigned long end)
{
	unsigned long ret;

	if (start == end)
		return true;
	ret = vm_mmap(NULL, start, end - start, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, 0);
	if (ret == -ENOMEM)
		hpmmap_count_failure(ctx);
	return !IS_ERR_VALUE(ret);
}

/* What the pools have of it, from its start on, and Linux's memory for the rest. */
static bool heap_grow_short(struct hpmmap_ctx *ctx,
			    const struct hpmmap_placement *place,
			    unsigned long start, unsigned long end)
{
	unsigned long mid = hpmmap_short_end(ctx, place, start, end);

	/* Linux's first: what it refuses costs nothing then. */
	if (!heap_map_linux(ctx, mid, end))
		return false;
	/* Another process may have been quicker. */
	if (mid > start &&
	    IS_ERR_VALUE(hpmmap_map_where_fit(ctx, place, start, mid - start,
					      PROT_READ | PROT_WRITE, 0, false, NULL))) {
		if (!heap_map_linux(ctx, start, mid)) {
			vm_munmap(mid, end - mid);
			return false;
		}
		mid = start;
	}
	if (mid < end)
		hpmmap_count_fallback(ctx, HPMMAP_FALLBACK_BRK, end - mid);
	return true;
}

/* False where it cannot be: nothing was changed then. */
static bool heap_grow(struct hpmmap_ctx *ctx, unsigned long start,
		      unsigned long end)
{
	struct hpmmap_placement place;
	unsigned long ret;

	/* As on Linux, a page stays free above the break. */
	if (hpmmap_data_exceeds_limit(ctx, 0, end - start, PROT_WRITE) ||
	    hpmmap_range_is_taken(ctx, start, end + PAGE_SIZE))
		return false;
	hpmmap_placement_get(ctx->job, NULL, &place);
	ret = hpmmap_map_where_fit(ctx, &place, start, end - start,
			    PROT_READ | PROT_WRITE, 0, false, NULL);
	if (ret == -ENOMEM && !ctx->job->strict)
		return heap_grow_short(ctx, &place, start, end);
	return !IS_ERR_VALUE(ret);
}

/*
 * The heap is mapped up to the page of the break, and its last slot by entries of
 * 4 KB until the break leaves it. Returns the new break, or the old one where
 * it cannot be.
 */
static unsigned long heap_set(struct hpmmap_ctx *ctx, unsigned long brk)
{
	struct mm_struct *mm = ctx->mm;
	unsigned long old = mm->brk, old_end = ctx->heap_end;
	unsigned long end = PAGE_ALIGN(brk);
	long ret = 0;
	bool done;

	if (brk < mm->start_brk || brk > TASK_SIZE - SLOT_SIZE ||
	    check_data_rlimit(rlimit(RLIMIT_DATA), brk, mm->start_brk, mm->end_data,
			      mm->start_data))
		return old;
	/* What is mapped below it is called heap. */
	ctx->heap_end = end;
	if (end != old_end)
		ret = hpmmap_extent_brk(ctx, old_end, end);
	if (ret != HPMMAP_NO_ANSWER)
		done = !ret;
	else
		done = end > old_end ? heap_grow(ctx, old_end, end) :
				       !hpmmap_unmap(ctx, end, old_end - end);
	if (!done) {
		ctx->heap_end = old_end;
		return old;
	}
	/* As prctl(2) does it: a reader of the address space is not waited for. */
	mmap_read_lock(mm);
	spin_lock(&mm->arg_lock);
	mm->brk = brk;
	spin_unlock(&mm->arg_lock);
	mmap_read_unlock(mm);
	return brk;
}

/* The break is where others have put it (prctl(2), int 0x80): Linux's from then on. */
static long brk_linux(struct hpmmap_ctx *ctx, const struct pt_regs *regs)
{
	struct hpmmap_change c = HPMMAP_CHANGE(ctx, 0, PAGE_ALIGN(ctx->mm->brk));
	unsigned long brk = hpmmap_call_orig(HPMMAP_CALL_BRK, regs);

	ctx->heap_end = 0;
	c.start = PAGE_ALIGN(brk);
	if (c.start < c.end)
		hpmmap_change_settle(&c, HPMMAP_CUT, NULL);
	return brk;
}

static long handle_brk(struct hpmmap_ctx *ctx, enum hpmmap_call call,
		       const struct pt_regs *regs)
{
	return ctx->heap_end && ctx->heap_end == PAGE_ALIGN(ctx->mm->brk) ?
	       heap_set(ctx, regs->di) : brk_linux(ctx, regs);
}

static long brk_apart(struct hpmmap_ctx *ctx, enum hpmmap_call call,
		      const struct pt_regs *regs)
{
	unsigned long brk = regs->di, old = READ_ONCE(ctx->mm->brk);

	/* Ordinary memory may be part of the heap. */
	if (brk >= READ_ONCE(ctx->mm->start_brk) && brk < old)
		hpmmap_range_unwatch(PAGE_ALIGN(brk), PAGE_ALIGN(old));
	return hpmmap_handle_in(ctx, call, regs, handle_brk);
}

long hpmmap_sys_brk(const struct pt_regs *regs)
{
	return hpmmap_handle(HPMMAP_CALL_BRK, regs, brk_apart);
}
