// SPDX-License-Identifier: GPL-2.0
/*
 * mlock, mlock2, munlock and munlockall: they only cut mappings in pieces.
 *
 * An mremap under way relies on what is locked: it is not unlocked then.
 */
#include <linux/mm.h>

#include "hook.h"
#include "hpmmap.h"
#include "as/commit.h"
#include "as/ctx.h"
#include "as/range.h"
#include "call/handle.h"
#include "call/sys.h"

/* Populates what is not there yet, others' memory, too. */
static long lock_range(enum hpmmap_call call, const struct pt_regs *regs)
{
	unsigned long start = regs->di & PAGE_MASK;
	unsigned long end = PAGE_ALIGN(regs->di + regs->si);
	struct hpmmap_ctx *ctx = hpmmap_ctx_get(current->mm);
	long ret = hpmmap_call_orig(call, regs);

	if (!ctx)
		return ret;
	if (end > start && end < TASK_SIZE &&
	    hpmmap_range_has_ours(ctx, start, end))
		hpmmap_repair_after(ctx, start, end);
	hpmmap_ctx_put(ctx);
	return ret;
}

long hpmmap_sys_mlock(const struct pt_regs *regs)
{
	return lock_range(HPMMAP_CALL_MLOCK, regs);
}

long hpmmap_sys_mlock2(const struct pt_regs *regs)
{
	return lock_range(HPMMAP_CALL_MLOCK2, regs);
}

static long handle_munlock(struct hpmmap_ctx *ctx, enum hpmmap_call call,
			   const struct pt_regs *regs)
{
	unsigned long start = regs->di, end = start + regs->si;
	long ret = hpmmap_call_orig(call, regs);

	if (end > start && end < TASK_SIZE)
		hpmmap_vma_repair(ctx, start & SLOT_MASK,
				  ALIGN(end, SLOT_SIZE));
	return ret;
}

long hpmmap_sys_munlock(const struct pt_regs *regs)
{
	return hpmmap_handle_if_ours(HPMMAP_CALL_MUNLOCK, regs, handle_munlock);
}

static long handle_munlockall(struct hpmmap_ctx *ctx, enum hpmmap_call call,
			      const struct pt_regs *regs)
{
	return hpmmap_call_orig(call, regs);
}

long hpmmap_sys_munlockall(const struct pt_regs *regs)
{
	return hpmmap_handle(HPMMAP_CALL_MUNLOCKALL, regs, handle_munlockall);
}
