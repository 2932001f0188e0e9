// SPDX-License-Identifier: GPL-2.0
/*
 * A range that is frozen: nothing of it is mapped by page tables, and a thread that touches it
 * waits. So contents can go elsewhere, which may take long, without mmap_lock held all the time.
 *
 * Entries are made under ctx->lock (as/store/entry.c), which is also what a range is frozen under. So
 * mmap_lock need not be held for writing, and a process that is being killed can thaw at once.
 */
#include "hpmmap.h"
#include "as/own/ctx.h"
#include "as/store/freeze.h"
#include "as/store/zap.h"

/*
 * Faults that may not let go of mmap_lock, and wait 1 ms each while another thread wants it for
 * writing; the thread that copies may be behind that one.
 */
#define IMPATIENT_MOST 100

/*
 * Freezes a range whose contents are copied, are to go, or come (@moving: it is not known yet
 * what a page has); nothing need be mapped there yet. ctx->ops is held until hpmmap_thaw(). From
 * here on the contents cannot be reached, except for reads by vm_operations of what does not
 * come. What is mapped there in place of it is frozen, too. Returns 0, or -EINTR if the caller is
 * being killed.
 */
int hpmmap_freeze(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end, bool moving)
{
	lockdep_assert_held(&ctx->ops);
	if (mmap_read_lock_killable(ctx->mm))
		return -EINTR;
	mutex_lock(&ctx->lock);
	ctx->frozen.start = start;
	ctx->frozen.end = end;
	ctx->frozen.moving = moving;
	WRITE_ONCE(ctx->frozen.by, current);
	atomic_set(&ctx->frozen.nr_impatient, 0);
	hpmmap_range_zap(ctx, start, end);
	mutex_unlock(&ctx->lock);
	mmap_read_unlock(ctx->mm);
	return 0;
}

/* Undoes hpmmap_freeze(). Threads that have waited touch the range again. */
void hpmmap_thaw(struct hpmmap_ctx *ctx)
{
	lockdep_assert_held(&ctx->ops);
	mutex_lock(&ctx->lock);
	ctx->frozen.end = 0;
	WRITE_ONCE(ctx->frozen.by, NULL);
	WRITE_ONCE(ctx->frozen.nr, ctx->frozen.nr + 1);
	mutex_unlock(&ctx->lock);
	wake_up_all(&ctx->frozen.wait);
}

/*
 * A thread that keeps mmap_lock, and needs the page: a futex, which comes again until the page is
 * there, with mmap_lock free in between. Others come again with it held.
 */
static vm_fault_t wait_impatient(struct hpmmap_ctx *ctx, struct vm_fault *vmf)
{
	/* A debugger that cannot wait has another way to where that is. */
	if ((vmf->flags & FAULT_FLAG_REMOTE && vmf->vma->vm_ops->access) ||
	    fatal_signal_pending(current) ||
	    (mmap_lock_is_contended(vmf->vma->vm_mm) &&
	     atomic_inc_return(&ctx->frozen.nr_impatient) > IMPATIENT_MOST))
		return VM_FAULT_SIGBUS;
	usleep_range(1000, 1100);
	return VM_FAULT_NOPAGE;
}

/*
 * A fault in what is frozen; @seen is ctx->frozen.nr from when it was found so. ctx->lock
 * is not held.
 *
 * Returns VM_FAULT_RETRY, mostly when it is not frozen any more; for a thread that keeps
 * mmap_lock VM_FAULT_SIGBUS, if it is a debugger, which then comes by
 * vm_operations->access, and VM_FAULT_NOPAGE after a moment, for others. VM_FAULT_SIGBUS
 * for the thread that has frozen it.
 */
vm_fault_t hpmmap_frozen_wait(struct hpmmap_ctx *ctx, unsigned int seen, struct vm_fault *vmf)
{
	/* Linux fills what is locked when it maps it: the caller does, after the thaw. */
	if (READ_ONCE(ctx->frozen.by) == current)
		return VM_FAULT_SIGBUS;
	if (!(vmf->flags & FAULT_FLAG_ALLOW_RETRY))
		return wait_impatient(ctx, vmf);
	if (vmf->flags & FAULT_FLAG_RETRY_NOWAIT)
		return VM_FAULT_RETRY;
	compat_fault_unlock(vmf);
	/* What is frozen next is another matter. */
	wait_event_killable(ctx->frozen.wait, READ_ONCE(ctx->frozen.nr) != seen);
	return VM_FAULT_RETRY;
}
