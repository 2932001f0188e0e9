// SPDX-License-Identifier: GPL-2.0
/*
 * mlock, mlock2, munlock and munlockall: they only cut mappings in pieces.
 *
 * An mremap under way relies on what is locked: it is not unlocked then.
 */
#include "hook.h"
#include "hpmmap.h"
#include "as/own/ctx.h"
#include "as/map/range.h"
#include "as/change/change.h"
#include "call/step/extent.h"
#include "call/step/handle.h"
#include "call/sys.h"

/* Populates what is not there yet, others' memory, too. */
static long lock_range(struct hpmmap_ctx *ctx, enum hpmmap_call call,
		       const struct pt_regs *regs)
{
	struct hpmmap_change c = HPMMAP_CHANGE(ctx, regs->di & PAGE_MASK,
					       PAGE_ALIGN(regs->di + regs->si));
	bool ours = c.end > c.start && c.end < TASK_SIZE &&
		    hpmmap_range_has_ours(ctx, c.start, c.end);
	long ret = ours ? hpmmap_extent_leave(ctx, c.start, c.end) : 0;

	ret = ret ?: hpmmap_call_orig(call, regs);
	if (ours)
		hpmmap_change_settle_apart(&c, HPMMAP_KEPT);
	return ret;
}

long hpmmap_sys_mlock(const struct pt_regs *regs)
{
	return hpmmap_handle(HPMMAP_CALL_MLOCK, regs, lock_range);
}

long hpmmap_sys_mlock2(const struct pt_regs *regs)
{
	return hpmmap_handle(HPMMAP_CALL_MLOCK2, regs, lock_range);
}

static long handle_munlock(struct hpmmap_ctx *ctx, enum hpmmap_call call,
			   const struct pt_regs *regs)
{
	struct hpmmap_change c = HPMMAP_CHANGE(ctx, regs->di & PAGE_MASK,
					       PAGE_ALIGN(regs->di + regs->si), .lazy = true);
	long ret = hpmmap_call_orig(call, regs);

	if (c.end > c.start && c.end < TASK_SIZE)
		hpmmap_change_settle(&c, HPMMAP_KEPT, NULL);
	return ret;
}

long hpmmap_sys_munlock(const struct pt_regs *regs)
{
	return hpmmap_handle_if_ours(HPMMAP_CALL_MUNLOCK, regs, handle_munlock);
}

static long handle_munlockall(struct hpmmap_ctx *ctx, enum hpmmap_call call,
			      const struct pt_regs *regs)
{
	long ret = hpmmap_ops_lock(ctx);

	if (ret)
		return ret;
	ret = hpmmap_call_orig(call, regs);
	hpmmap_ops_unlock(ctx);
	return ret;
}

long hpmmap_sys_munlockall(const struct pt_regs *regs)
{
	return hpmmap_handle(HPMMAP_CALL_MUNLOCKALL, regs, handle_munlockall);
}
