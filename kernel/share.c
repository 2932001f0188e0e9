// SPDX-License-Identifier: GPL-2.0
/*
 * Sharing: after fork, parent and child have the same blocks until one of
 * them writes.
 *
 * A shared block is in several stores and never changes. No page table lets
 * anybody write to it, so a write is a fault, which copies the block for who
 * writes (store.c). Who is left alone with a block may write to it again: when
 * a process is gone, its family's entries are made writable before its parent
 * learns of its end, so that a parent that waits for its child takes no
 * faults for it afterwards.
 *
 * A family is everybody who descends by fork from one execve.
 */
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/oom.h>
#include <linux/rcupdate.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

#include "hpmmap.h"

/**
 * struct hpmmap_family - contexts that may share blocks
 * @refs: its contexts, and who looks after it
 * @lock: held while entries are made writable again
 * @kin: contexts, by ctx->kin; protected by families_lock
 * @nr: how many; protected by families_lock
 * @alone: a block was left to one of them alone, and nobody has looked yet
 * @pending: in the list of families for the worker; protected by
 *	families_lock; holds a reference
 * @rcu: for hpmmap_family_get()
 */
struct hpmmap_family {
	refcount_t refs;
	struct mutex lock;
	struct list_head kin;
	unsigned long nr;
	bool alone;
	struct list_head pending;
	struct rcu_head rcu;
};

static DEFINE_SPINLOCK(families_lock);
static LIST_HEAD(families_pending);

static void restore_work_fn(struct work_struct *work);
static DECLARE_WORK(restore_work, restore_work_fn);

/**
 * hpmmap_family_get() - the family of a context
 * @ctx: the context
 *
 * May be called from any context, under RCU.
 *
 * Return: the family with a reference for the caller, or NULL.
 */
struct hpmmap_family *hpmmap_family_get(struct hpmmap_ctx *ctx)
{
	struct hpmmap_family *family = READ_ONCE(ctx->family);

	if (family && !refcount_inc_not_zero(&family->refs))
		family = NULL;
	return family;
}

/* May be called from any context. */
void hpmmap_family_put(struct hpmmap_family *family)
{
	if (refcount_dec_and_test(&family->refs))
		kfree_rcu(family, rcu);
}

static void family_join(struct hpmmap_family *family, struct hpmmap_ctx *ctx)
{
	refcount_inc(&family->refs);
	spin_lock(&families_lock);
	ctx->family = family;
	list_add(&ctx->kin, &family->kin);
	family->nr++;
	spin_unlock(&families_lock);
}

/**
 * hpmmap_share_begin() - a child may get blocks of its parent
 * @parent: the parent; its mmap_lock is held for writing
 * @child: not running yet
 *
 * Return: 0 or -ENOMEM.
 */
int hpmmap_share_begin(struct hpmmap_ctx *parent, struct hpmmap_ctx *child)
{
	struct hpmmap_family *family;

	if (!parent->family) {
		family = kzalloc(sizeof(*family), GFP_KERNEL);
		if (!family)
			return -ENOMEM;
		refcount_set(&family->refs, 1);
		mutex_init(&family->lock);
		INIT_LIST_HEAD(&family->kin);
		INIT_LIST_HEAD(&family->pending);
		family_join(family, parent);
		hpmmap_family_put(family);
	}
	family_join(parent->family, child);
	return 0;
}

/**
 * hpmmap_share_leave() - a context shares nothing any more
 * @ctx: about to be freed
 */
void hpmmap_share_leave(struct hpmmap_ctx *ctx)
{
	struct hpmmap_family *family = ctx->family;

	if (!family)
		return;
	spin_lock(&families_lock);
	list_del(&ctx->kin);
	family->nr--;
	spin_unlock(&families_lock);
	hpmmap_family_put(family);
}

/**
 * hpmmap_share_alone() - a block that @ctx gave up is left to another alone
 * @ctx: the context
 */
void hpmmap_share_alone(struct hpmmap_ctx *ctx)
{
	WRITE_ONCE(ctx->family->alone, true);
}

/**
 * hpmmap_share_gone() - a context has given up everything
 * @ctx: the context
 *
 * A worker looks after the others, if nobody does before.
 */
void hpmmap_share_gone(struct hpmmap_ctx *ctx)
{
	struct hpmmap_family *family = ctx->family;

	if (!family || !READ_ONCE(family->alone))
		return;
	spin_lock(&families_lock);
	if (list_empty(&family->pending)) {
		refcount_inc(&family->refs);
		list_add(&family->pending, &families_pending);
	}
	spin_unlock(&families_lock);
	schedule_work(&restore_work);
}

/*
 * Lets a context write again to what it is alone with. Returns whether there is
 * more of that, which somebody else still refers to.
 */
static bool restore(struct hpmmap_ctx *ctx)
{
	bool flush = false, left = false;
	struct hpmmap_block *block;
	unsigned long slot;

	if (!xa_marked(&ctx->store, SLOT_SHARED) || !mmget_not_zero(ctx->mm))
		return false;
	mmap_read_lock(ctx->mm);
	/* Of a fork that failed, the mappings are not to be looked at. */
	if (check_stable_address_space(ctx->mm))
		goto out;
	xa_for_each_marked(&ctx->store, slot, block, SLOT_SHARED) {
		if (hpmmap_block_is_shared(block))
			continue;
		block = hpmmap_store_adopt(ctx, slot);
		if (block)
			flush |= hpmmap_vma_remap_slot(ctx, slot, block);
		else
			left = true;
		cond_resched();
	}
	if (flush)
		compat_flush_tlb_mm(ctx->mm);
out:
	mmap_read_unlock(ctx->mm);
	mmput_async(ctx->mm);
	return left;
}

/* The next one to look at, with a reference; NULL if it is being freed. */
static struct hpmmap_ctx *family_next(struct hpmmap_family *family)
{
	struct hpmmap_ctx *ctx;

	spin_lock(&families_lock);
	ctx = list_first_entry_or_null(&family->kin, struct hpmmap_ctx, kin);
	if (ctx) {
		list_move_tail(&ctx->kin, &family->kin);
		if (!refcount_inc_not_zero(&ctx->refs))
			ctx = NULL;
	}
	spin_unlock(&families_lock);
	return ctx;
}

/**
 * hpmmap_share_restore() - let a family write to what nobody shares any more
 * @family: the family
 *
 * When it returns, all that was given up before the call has been looked at.
 * Takes mmap_lock of the family's processes: to be called without any lock.
 */
void hpmmap_share_restore(struct hpmmap_family *family)
{
	bool left = false;
	unsigned long n;

	mutex_lock(&family->lock);
	n = xchg(&family->alone, false) ? READ_ONCE(family->nr) : 0;
	while (n--) {
		struct hpmmap_ctx *ctx = family_next(family);

		if (!ctx)
			continue;
		if (ctx->mm)
			left |= restore(ctx);
		hpmmap_ctx_put(ctx);
	}
	/*
	 * An address space without users may still be taken apart, with its
	 * references to the blocks: who ends looks again when it is done.
	 */
	if (left)
		WRITE_ONCE(family->alone, true);
	mutex_unlock(&family->lock);
}

static void restore_work_fn(struct work_struct *work)
{
	struct hpmmap_family *family;

	for (;;) {
		spin_lock(&families_lock);
		family = list_first_entry_or_null(&families_pending,
						  struct hpmmap_family,
						  pending);
		if (family)
			list_del_init(&family->pending);
		spin_unlock(&families_lock);
		if (!family)
			break;
		hpmmap_share_restore(family);
		hpmmap_family_put(family);
	}
}

/* Contexts keep the module loaded, so there are no families left. */
void hpmmap_share_exit(void)
{
	flush_work(&restore_work);
}
