// SPDX-License-Identifier: GPL-2.0
/*
 * Entries of 1 GB that were split, by a task that reads smaps for instance, are joined again
 * by a worker. It waits for no lock. Where entries are split again and again it comes less
 * often: a gigabyte of a monitored process stays in entries of 2 MB.
 */
#include <linux/mm.h>
#include <linux/oom.h>
#include <linux/sched/mm.h>
#include <linux/workqueue.h>

#include "hpmmap.h"
#include "mem/block/nodes.h"
#include "as/own/ctx.h"
#include "as/map/gigabyte.h"
#include "as/map/pgmap.h"
#include "as/map/vma.h"
#include "as/store/entry.h"
#include "as/change/join.h"

/* How long after a split, at first and at most. */
#define FIRST_MS 1000
#define LAST_MS 60000

/* Gigabytes that are looked at while mmap_lock is held. */
#define LOOKS 64

static bool is_candidate(struct vm_area_struct *vma)
{
	return hpmmap_vma_is_ours(vma) && hpmmap_vma_is_accessible(vma) &&
	       !(vma->vm_flags & (VM_LOCKED | VM_NOHUGEPAGE));
}

/*
 * Joins one gigabyte at least, or looks at LOOKS, from *addr on. Returns whether there may be more.
 * @later: set where one may be joined some time.
 */
static bool join_some(struct hpmmap_ctx *ctx, unsigned long *addr, bool *later)
{
	unsigned int looks = LOOKS;
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, ctx->mm, *addr);

	mmap_assert_write_locked(ctx->mm);
	for_each_vma(vmi, vma) {
		unsigned long at = ALIGN(max(*addr, vma->vm_start), PUD_SIZE);

		for (; is_candidate(vma) && hpmmap_gigabyte_may(vma, at); at += PUD_SIZE) {
			int ret = 0;

			*addr = at + PUD_SIZE;
			if (hpmmap_pgmap_slot(ctx->mm, at) == HPMMAP_ENTRY_2M)
				ret = hpmmap_entry_join(ctx, vma, at);
			*later |= ret == -EAGAIN;
			if (!--looks)
				return true;
		}
	}
	return false;
}

static void join_work_fn(struct work_struct *work)
{
	struct hpmmap_ctx *ctx = container_of(to_delayed_work(work), struct hpmmap_ctx, join.work);
	unsigned int delay = ctx->join.delay_ms;
	bool later = false, more = true;
	unsigned long addr = 0;

	/* The next split is looked at after twice the time, or as soon as this one. */
	WRITE_ONCE(ctx->join.delay_ms, min(2 * delay, (unsigned int)LAST_MS));
	if (!mmget_not_zero(ctx->mm)) {
		hpmmap_ctx_put(ctx);
		return;
	}
	later = !compat_maps_2m(ctx->mm) || !mutex_trylock(&ctx->ops);
	if (!later) {
		while (more && compat_mmap_write_trylock(ctx->mm)) {
			/* One that ends is not to wait for this. */
			more = !check_stable_address_space(ctx->mm) &&
			       atomic_read(&ctx->mm->mm_users) > 1 &&
			       join_some(ctx, &addr, &later);
			mmap_write_unlock(ctx->mm);
			cond_resched();
		}
		later |= more;
		hpmmap_ops_unlock(ctx);
	}
	mmput_async(ctx->mm);
	if (!later || !queue_delayed_work(hpmmap_wq, &ctx->join.work,
					  msecs_to_jiffies(delay)))
		hpmmap_ctx_put(ctx);
}

/* A new context. */
void hpmmap_join_init(struct hpmmap_ctx *ctx)
{
	INIT_DELAYED_WORK(&ctx->join.work, join_work_fn);
	ctx->join.delay_ms = FIRST_MS;
}

/* Nobody uses the address space any more. */
void hpmmap_join_cancel(struct hpmmap_ctx *ctx)
{
	if (cancel_delayed_work(&ctx->join.work))
		hpmmap_ctx_put(ctx);
}
