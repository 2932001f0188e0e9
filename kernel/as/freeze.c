// SPDX-License-Identifier: GPL-2.0
/*
 * Ranges that are frozen: nothing of them is mapped by page tables, and who touches them
 * waits. So contents can go elsewhere, which may take long, without mmap_lock held all
 * the time.
 */
#include <linux/mm.h>

#include "hpmmap.h"
#include "as/ctx.h"
#include "as/freeze.h"
#include "as/late.h"
#include "as/thaws.h"
#include "as/zap.h"

static void add(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end)
{
	unsigned int nr = ctx->frozen.nr;

	lockdep_assert_held(&ctx->ops);
	mmap_assert_write_locked(ctx->mm);
	hpmmap_range_zap(ctx, start, end);
	ctx->frozen.ranges[nr].start = start;
	ctx->frozen.ranges[nr].end = end;
	WRITE_ONCE(ctx->frozen.by, current);
	atomic_set(&ctx->frozen.nr_impatient, 0);
	WRITE_ONCE(ctx->frozen.nr, nr + 1);
}

/**
 * hpmmap_freeze() - freeze a range whose contents are copied, or are to go
 * @ctx: the caller's context, ctx->ops held until hpmmap_thaw()
 * @start: first address
 * @end: end
 *
 * From here on nobody reaches the contents, but who reads by vm_operations. What is mapped
 * there in place of it is frozen, too.
 *
 * Return: 0, or -EINTR if the caller is being killed.
 */
int hpmmap_freeze(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end)
{
	return hpmmap_freeze_moving(ctx, start, end - start, 0, 0);
}

/**
 * hpmmap_freeze_moving() - freeze where contents move from, and where they move to
 * @ctx: the caller's context, ctx->ops held until hpmmap_thaw()
 * @from: old start
 * @from_len: length of what moves
 * @to: new start, where nothing of that need be mapped yet
 * @to_len: new length; 0 where nothing moves
 *
 * Nobody can tell where a page is meanwhile, and nobody reads it.
 *
 * Return: 0, or -EINTR if the caller is being killed.
 */
int hpmmap_freeze_moving(struct hpmmap_ctx *ctx, unsigned long from,
			 unsigned long from_len, unsigned long to,
			 unsigned long to_len)
{
	if (mmap_write_lock_killable(ctx->mm))
		return -EINTR;
	hpmmap_late_undo(ctx);
	ctx->frozen.moving = to_len;
	add(ctx, from, from + from_len);
	if (to_len)
		add(ctx, to, to + to_len);
	mmap_write_unlock(ctx->mm);
	return 0;
}

/**
 * hpmmap_thaw() - undo hpmmap_freeze() or hpmmap_freeze_moving()
 * @ctx: the caller's context; mmap_lock not held
 *
 * Who has waited touches the range again. Who has looked at a slot under mmap_lock, and is
 * about to map the block that it had, still finds it frozen: such a one is waited for. Who is
 * being killed leaves that to a worker; for all others it is thawed.
 */
void hpmmap_thaw(struct hpmmap_ctx *ctx)
{
	lockdep_assert_held(&ctx->ops);
	WRITE_ONCE(ctx->frozen.by, NULL);
	if (mmap_write_lock_killable(ctx->mm)) {
		hpmmap_late_thaw(ctx);
		return;
	}
	WRITE_ONCE(ctx->frozen.nr, 0);
	mmap_write_unlock(ctx->mm);
	hpmmap_thaws_tell(&ctx->frozen.thaws);
}

/**
 * hpmmap_frozen_wait() - a fault in what is frozen
 * @ctx: its context
 * @seen: hpmmap_thaws_seen() of it, when mmap_lock was held and it was frozen
 * @vmf: the fault
 *
 * Return: VM_FAULT_SIGBUS for who has frozen it; otherwise as hpmmap_thaws_wait().
 */
vm_fault_t hpmmap_frozen_wait(struct hpmmap_ctx *ctx, int seen, struct vm_fault *vmf)
{
	/* Linux fills what is locked when it maps it: who maps does, after the thaw. */
	if (READ_ONCE(ctx->frozen.by) == current)
		return VM_FAULT_SIGBUS;
	/* It has just been left to a worker: that is not waited for. */
	if (smp_load_acquire(&ctx->late.thaw))
		seen--;
	return hpmmap_thaws_wait(&ctx->frozen.thaws, seen, &ctx->frozen.nr_impatient, vmf);
}

/* May vm_operations read, or write, at an address of a mapping? mmap_lock held. */
bool hpmmap_frozen_access(struct hpmmap_ctx *ctx, struct vm_area_struct *vma,
			  unsigned long addr, bool write)
{
	return !hpmmap_frozen_still(ctx, vma, addr) ||
	       (!write && !ctx->frozen.moving);
}
