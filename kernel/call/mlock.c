// SPDX-License-Identifier: GPL-2.0
/*
 * mlock, mlock2, munlock and munlockall: they only cut mappings in pieces.
 *
 * An mremap under way relies on what is locked: it is not unlocked then.
 */
#include <linux/mm.h>

#include "hook.h"
#include "hpmmap.h"
#include "as/change.h"
#include "as/ctx.h"
#include "as/range.h"
#include "as/vma.h"
#include "call/handle.h"
#include "call/sys.h"

/* How often a range is locked whose mappings are replaced meanwhile. */
#define LOCK_TRIES 3

/*
 * Is a range that mlock(2) has locked so still? Another thread's call may just have put
 * a mapping in the place of one, like that was before.
 */
static bool stays_locked(const struct hpmmap_change *c)
{
	struct mm_struct *mm = c->ctx->mm;
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, mm, c->start);
	bool ret = true;

	if (hpmmap_ops_lock(c->ctx))
		return true;
	mmap_read_lock(mm);
	for_each_vma_range(vmi, vma, c->end)
		if (vma_is_anonymous(vma) || hpmmap_vma_is_ours(vma))
			ret = ret && vma->vm_flags & VM_LOCKED;
	mmap_read_unlock(mm);
	hpmmap_ops_unlock(c->ctx);
	return ret;
}

/* Populates what is not there yet, others' memory, too. */
static long lock_range(enum hpmmap_call call, const struct pt_regs *regs)
{
	struct hpmmap_ctx *ctx = hpmmap_ctx_get(current->mm);
	struct hpmmap_change c = HPMMAP_CHANGE(ctx, regs->di & PAGE_MASK,
					       PAGE_ALIGN(regs->di + regs->si));
	unsigned int tries = LOCK_TRIES;
	bool ours;
	long ret;

	if (!ctx)
		return hpmmap_call_orig(call, regs);
	ours = c.end > c.start && c.end < TASK_SIZE &&
	       hpmmap_range_has_ours(ctx, c.start, c.end);
	do {
		ret = hpmmap_call_orig(call, regs);
	} while (ours && !ret && --tries && !stays_locked(&c));
	if (ours)
		hpmmap_change_settle_apart(&c, HPMMAP_KEPT);
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
	return hpmmap_call_orig(call, regs);
}

long hpmmap_sys_munlockall(const struct pt_regs *regs)
{
	return hpmmap_handle(HPMMAP_CALL_MUNLOCKALL, regs, handle_munlockall);
}
