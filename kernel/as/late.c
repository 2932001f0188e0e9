// SPDX-License-Identifier: GPL-2.0
/*
 * mmap_lock for writing, where somebody may read the address space for as long as he likes
 * (/proc/PID/mem, at a file whose server is away).
 *
 * Calls that change mappings wait for him until they are killed, as on Linux. What need not be
 * done is tried for a moment. What has to be, and who was to do it is killed or cannot wait, a
 * worker tries from time to time: others may have the address space, too.
 */
#include <linux/delay.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/workqueue.h>

#include "hpmmap.h"
#include "as/ctx.h"
#include "as/file.h"
#include "as/late.h"
#include "as/thaws.h"

/* The pauses between tries, each twice the one before: 8 ms in all. */
#define SOON_FIRST_US 8U
#define SOON_LAST_US 4096U

/* How soon a worker tries again: first, and last. */
#define LATE_FIRST_MS 4
#define LATE_LAST_MS 1024

/**
 * hpmmap_mmap_write_lock_soon() - mmap_lock for writing, for what need not be done
 * @mm: the address space
 * @vain: do not try for long; set when that was in vain
 *
 * Calls that change no mapping do not wait for who reads the address space on Linux.
 *
 * Return: whether it is held.
 */
bool hpmmap_mmap_write_lock_soon(struct mm_struct *mm, bool *vain)
{
	unsigned long us = SOON_FIRST_US;

	while (!compat_mmap_write_trylock(mm)) {
		if (us > SOON_LAST_US || fatal_signal_pending(current))
			*vain = true;
		if (*vain)
			return false;
		usleep_range(us, us + us / 2);
		us *= 2;
	}
	return true;
}

/**
 * hpmmap_late_undo() - do at once what a worker would do
 * @ctx: the context; mmap_lock held for writing
 *
 * Before something of that kind begins: what has been begun since is not to be undone.
 */
void hpmmap_late_undo(struct hpmmap_ctx *ctx)
{
	struct mm_struct *mm = ctx->mm;

	mmap_assert_write_locked(mm);
	if (ctx->late.count) {
		WRITE_ONCE(mm->total_vm, mm->total_vm + ctx->discount.total);
		ctx->discount.total = 0;
		WRITE_ONCE(ctx->late.count, false);
	}
	if (ctx->late.thaw) {
		WRITE_ONCE(ctx->frozen.nr, 0);
		WRITE_ONCE(ctx->late.thaw, false);
		hpmmap_thaws_tell(&ctx->frozen.thaws);
	}
}

static bool is_anything_left(const struct hpmmap_ctx *ctx)
{
	return READ_ONCE(ctx->late.thaw) || READ_ONCE(ctx->late.count) ||
	       READ_ONCE(ctx->late.files);
}

static void late_work_fn(struct work_struct *work)
{
	struct hpmmap_ctx *ctx = container_of(to_delayed_work(work),
					      struct hpmmap_ctx, late.work);
	/* Calls may wait for a thaw with it. */
	bool ops = READ_ONCE(ctx->late.files) && mutex_trylock(&ctx->ops);
	bool vain = false;
	unsigned int ms;

	if (hpmmap_mmap_write_lock_soon(ctx->mm, &vain)) {
		hpmmap_late_undo(ctx);
		if (ops) {
			hpmmap_vma_own_file(ctx);
			WRITE_ONCE(ctx->late.files, false);
		}
		mmap_write_unlock(ctx->mm);
	}
	if (ops)
		mutex_unlock(&ctx->ops);
	/* Of an address space that is being torn down only who looks at it is left. */
	if (!atomic_read(&ctx->mm->mm_users))
		WRITE_ONCE(ctx->late.files, false);
	/* With the same reference, unless it was queued anew. */
	ms = clamp(2 * READ_ONCE(ctx->late.ms), LATE_FIRST_MS, LATE_LAST_MS);
	WRITE_ONCE(ctx->late.ms, ms);
	if (!is_anything_left(ctx) ||
	    !queue_delayed_work(hpmmap_wq, &ctx->late.work, msecs_to_jiffies(ms)))
		hpmmap_ctx_put(ctx);
}

static void late_queue(struct hpmmap_ctx *ctx)
{
	lockdep_assert_held(&ctx->ops);
	WRITE_ONCE(ctx->late.ms, 0);
	refcount_inc(&ctx->refs);
	/* It goes on with one reference. */
	if (mod_delayed_work(hpmmap_wq, &ctx->late.work, 0))
		hpmmap_ctx_put(ctx);
}

void hpmmap_late_init(struct hpmmap_ctx *ctx)
{
	INIT_DELAYED_WORK(&ctx->late.work, late_work_fn);
}

/* Who has frozen ranges is killed before he could thaw them. ctx->ops held. */
void hpmmap_late_thaw(struct hpmmap_ctx *ctx)
{
	/* Who finds that sees all that was done in them. */
	smp_store_release(&ctx->late.thaw, true);
	hpmmap_thaws_tell(&ctx->frozen.thaws);
	late_queue(ctx);
}

/* What was discounted is not counted until then: who did that is killed. ctx->ops held. */
void hpmmap_late_count(struct hpmmap_ctx *ctx)
{
	WRITE_ONCE(ctx->late.count, true);
	late_queue(ctx);
}

/**
 * hpmmap_late_own_file() - hpmmap_vma_own_file(), soon or later
 * @ctx: the context of a new child, ctx->ops held
 *
 * A child does not wait for who reads its address space.
 */
void hpmmap_late_own_file(struct hpmmap_ctx *ctx)
{
	bool vain = false;

	if (hpmmap_mmap_write_lock_soon(ctx->mm, &vain)) {
		hpmmap_vma_own_file(ctx);
		mmap_write_unlock(ctx->mm);
	} else {
		WRITE_ONCE(ctx->late.files, true);
		late_queue(ctx);
	}
}
