// SPDX-License-Identifier: GPL-2.0
/*
 * Entries of 1 GB that were split, by a task that reads smaps for instance, are joined again
 * by a worker. It waits for no lock. Where entries are split again and again it comes less
 * often: a gigabyte of a monitored process stays in entries of 2 MB. There is one worker for each
 * context, and one for all address spaces without one.
 */
#include <linux/oom.h>

#include "hpmmap.h"
#include "mem/block/nodes.h"
#include "as/own/ctx.h"
#include "as/map/gigabyte.h"
#include "as/map/pgmap.h"
#include "as/map/range.h"
#include "as/map/vma.h"
#include "as/store/entry.h"
#include "as/change/join.h"

/* How long after a split, at first and at most. */
#define FIRST_MS 1000
#define LAST_MS 60000
/* Where there is no context: at first; and the most address spaces that are remembered. */
#define OTHERS_MS 10000
#define OTHERS_MOST 1024

/* Gigabytes that are looked at while mmap_lock is held. */
#define LOOKS 64

/**
 * struct other - an address space without a context in which entries are to be joined
 * @link: in the list of them
 * @mm: it, with a reference
 */
struct other {
	struct list_head link;
	struct mm_struct *mm;
};

static DEFINE_SPINLOCK(others_lock);		/* protects both */
static LIST_HEAD(others);
static unsigned int nr_others;
/* The worker's: how long it waits, and when it was there last. */
static unsigned int others_ms = OTHERS_MS;
static unsigned long others_last;
static void others_work_fn(struct work_struct *work);
static DECLARE_DELAYED_WORK(others_work, others_work_fn);

/*
 * Entries are to be joined in an address space without a context. Without memory, or where there are too
 * many, they stay as they are.
 */
static void remember(struct mm_struct *mm)
{
	struct other *other;

	spin_lock(&others_lock);
	list_for_each_entry(other, &others, link)
		if (other->mm == mm) {
			/* Mostly it is split again at once. */
			list_move(&other->link, &others);
			goto out;
		}
	other = nr_others < OTHERS_MOST ? kmalloc(sizeof(*other), GFP_ATOMIC | __GFP_NOWARN) : NULL;
	if (other) {
		mmgrab(mm);
		other->mm = mm;
		list_add(&other->link, &others);
		nr_others++;
	}
out:
	spin_unlock(&others_lock);
	queue_delayed_work(hpmmap_wq, &others_work, msecs_to_jiffies(READ_ONCE(others_ms)));
}

static void forget(struct other *other)
{
	list_del(&other->link);
	mmdrop(other->mm);
	kfree(other);
}

/* Of an address space without entries of 1 GB (@all) those that have them everywhere. */
static bool is_candidate(struct vm_area_struct *vma, bool all)
{
	return (all ? hpmmap_vma_shows_blocks(vma) : hpmmap_vma_is_1g(vma)) &&
	       hpmmap_vma_is_accessible(vma) && !(vma->vm_flags & (VM_LOCKED | VM_NOHUGEPAGE));
}

static bool has_gigabytes(const struct hpmmap_ctx *ctx)
{
	return ctx && ctx->job->gigabytes;
}

/*
 * Maps by one entry a gigabyte that has its blocks, unless something is in the way. ctx->ops is
 * held. @vain: as hpmmap_mmap_write_lock_soon(); then it is joined later. Returns whether it is done.
 */
bool hpmmap_join_now(struct hpmmap_ctx *ctx, unsigned long addr, bool *vain)
{
	struct vm_area_struct *vma;
	bool done;

	if (!hpmmap_mmap_write_lock_soon(ctx->mm, vain)) {
		refcount_inc(&ctx->refs);
		hpmmap_gigabyte_join_later(ctx);
		return false;
	}
	vma = vma_lookup(ctx->mm, addr);
	done = vma && hpmmap_vma_is_ours(vma) && is_candidate(vma, true) &&
	       hpmmap_gigabyte_may(vma, addr) &&
	       !hpmmap_entry_1g(ctx, vma, addr);
	mmap_write_unlock(ctx->mm);
	return done;
}

/*
 * Looks at LOOKS gigabytes from *addr on, up to @end. Returns whether there may be more. @ctx: NULL
 * where there is none. @fresh: those of files and windows only, which are mapped just now; otherwise ctx->ops
 * is held. @later: set where one may be joined some time.
 */
static bool join_some(struct hpmmap_ctx *ctx, struct mm_struct *mm, unsigned long *addr,
		      unsigned long end, bool fresh, bool *later)
{
	unsigned int looks = LOOKS;
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, mm, *addr);

	mmap_assert_write_locked(mm);
	for_each_vma_range(vmi, vma, end) {
		unsigned long at = ALIGN(max(*addr, vma->vm_start), PUD_SIZE);
		bool ours = hpmmap_vma_is_ours(vma);

		for (; is_candidate(vma, has_gigabytes(ctx)) && hpmmap_gigabyte_may(vma, at) && at < end;
		     at += PUD_SIZE) {
			int ret = 0;

			*addr = at + PUD_SIZE;
			if (hpmmap_pgmap_slot(mm, at) == HPMMAP_ENTRY_2M && !(fresh && ours))
				ret = ours ? hpmmap_entry_1g(ctx, vma, at) :
					     hpmmap_gigabyte_join(ctx, vma, at, fresh);
			*later |= ret == -EAGAIN;
			if (!--looks)
				return true;
		}
	}
	return false;
}

/*
 * Maps by one entry each the gigabytes of files and windows that were filled in a range, if the address
 * space may have such entries, or each has them there (@all). Where mmap_lock is busy for long they are
 * joined later.
 */
void hpmmap_join_range(struct mm_struct *mm, unsigned long start, unsigned long end, bool all)
{
	struct hpmmap_ctx *ctx;
	bool more, later = false;

	if (end - start < PUD_SIZE)
		return;
	ctx = hpmmap_ctx_get(mm);
	more = (all || has_gigabytes(ctx)) && compat_maps_2m(mm);
	while (more && !fatal_signal_pending(current) && hpmmap_mmap_write_lock_soon(mm, &later)) {
		more = join_some(ctx, mm, &start, end, true, &later);
		mmap_write_unlock(mm);
		cond_resched();
	}
	if (!ctx && later)
		remember(mm);
	else if (later)
		hpmmap_gigabyte_join_later(ctx);
	else if (ctx)
		hpmmap_ctx_put(ctx);
}

/* All of an address space, which does not go meanwhile. Returns whether to try again. */
static bool join_all(struct hpmmap_ctx *ctx, struct mm_struct *mm)
{
	bool later = false, more = compat_maps_2m(mm);
	unsigned long addr = 0;

	while (more && compat_mmap_write_trylock(mm)) {
		/* One that ends is not to wait for this. */
		more = !check_stable_address_space(mm) && atomic_read(&mm->mm_users) > 1 &&
		       join_some(ctx, mm, &addr, TASK_SIZE_MAX, false, &later);
		mmap_write_unlock(mm);
		cond_resched();
	}
	return later || more;
}

static void join_work_fn(struct work_struct *work)
{
	struct hpmmap_ctx *ctx = container_of(to_delayed_work(work), struct hpmmap_ctx, join.work);
	unsigned int delay = READ_ONCE(ctx->join.delay_ms);
	bool later;

	if (!mmget_not_zero(ctx->mm)) {
		hpmmap_ctx_put(ctx);
		return;
	}
	later = !mutex_trylock(&ctx->ops);
	if (!later) {
		later = join_all(ctx, ctx->mm);
		hpmmap_ops_unlock(ctx);
	}
	mmput_async(ctx->mm);
	/* Where entries are split again and again, or something is in the way, it comes less often. */
	delay = xchg(&ctx->join.split, false) || later ? min(2 * delay, (unsigned int)LAST_MS) : FIRST_MS;
	WRITE_ONCE(ctx->join.delay_ms, delay);
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

/*
 * Address spaces without a context: the worker goes through those that were remembered since its last round. It
 * waits longer while one round follows the other.
 */
static void others_work_fn(struct work_struct *work)
{
	struct other *other, *next;
	LIST_HEAD(list);

	WRITE_ONCE(others_ms, time_before(jiffies, others_last + 2 * msecs_to_jiffies(others_ms)) ?
			      min(2 * others_ms, (unsigned int)LAST_MS) : OTHERS_MS);
	others_last = jiffies;
	spin_lock(&others_lock);
	list_splice_init(&others, &list);
	nr_others = 0;
	spin_unlock(&others_lock);
	list_for_each_entry_safe(other, next, &list, link) {
		if (mmget_not_zero(other->mm)) {
			if (join_all(NULL, other->mm))
				remember(other->mm);
			mmput_async(other->mm);
		}
		forget(other);
	}
}

int hpmmap_joins_init(void)
{
	hpmmap_gigabytes_on_split(remember);
	return 0;
}

/* There are no entries any more, but maybe address spaces that had some. */
void hpmmap_joins_exit(void)
{
	struct other *other, *next;

	cancel_delayed_work_sync(&others_work);
	list_for_each_entry_safe(other, next, &others, link)
		forget(other);
}

/* Nobody uses the address space any more. */
void hpmmap_join_cancel(struct hpmmap_ctx *ctx)
{
	if (cancel_delayed_work(&ctx->join.work))
		hpmmap_ctx_put(ctx);
}
