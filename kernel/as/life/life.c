// SPDX-License-Identifier: GPL-2.0
/*
 * The life of a context, from its publication until its address space has no user (mm_users is
 * zero), however the process ended. Linux tears the mappings down on its own; the blocks are
 * taken back when only the module still refers to them.
 *
 * The last process that leaves an address space takes the blocks back itself, before its parent
 * learns of its end. It waits for bounded times only: if another task still uses the address
 * space, the context becomes an orphan, which a worker looks at from time to time, as does an
 * allocation that finds the pools empty.
 */
#include "hook.h"
#include "hpmmap.h"
#include "mem/block/account.h"
#include "mem/pool/pinned.h"
#include "mem/pool/pool.h"
#include "as/own/ctx.h"
#include "as/own/family.h"
#include "as/own/job.h"
#include "as/own/release.h"
#include "as/own/reuse.h"
#include "as/own/stats.h"
#include "as/map/file.h"
#include "as/map/window.h"
#include "as/store/unmap.h"
#include "as/change/join.h"
#include "as/life/life.h"
#include "as/life/share.h"

/* How soon to look again at orphans in use: first, and last. */
#define REAP_FIRST_MS 1
#define REAP_LAST_MS 1000

/*
 * How long a task that only looks at an address space is waited for, and one that was the last to
 * do so, and takes it apart.
 */
#define LOOK_WAIT_MS 8
#define APART_WAIT_MS 100

/* Orphans that are looked at without a pause, and by an allocation at most. */
#define REAP_BATCH 64
#define REAP_LOOKS 16

/* Without a process that is a member. Raw, because the probes take the lock. */
static LIST_HEAD(orphans);
static unsigned long nr_orphans;
static DEFINE_RAW_SPINLOCK(orphans_lock);

static void reap_work_fn(struct work_struct *work);
static DECLARE_DELAYED_WORK(reap_work, reap_work_fn);
static unsigned int reap_ms = REAP_FIRST_MS;

/* After the last reference. */
static void ctx_free(struct hpmmap_ctx *ctx)
{
	hpmmap_family_leave(ctx);
	if (ctx->window)
		hpmmap_window_put(ctx->window);
	xa_destroy(&ctx->store.blocks);
	xa_destroy(&ctx->store.runs);
	mtree_destroy(&ctx->region.extents);
	hpmmap_block_bury(&ctx->graves);
	if (ctx->mm)
		mmdrop(ctx->mm);
	hpmmap_file_put(ctx);
	hpmmap_account_put(rcu_access_pointer(ctx->owner.account));
	hpmmap_job_put(ctx->job);
	kfree_rcu(ctx, rcu);
	hpmmap_hook_put();
}

/* The last reference may have been given up with locks held. */
static void bury_work_fn(struct work_struct *work)
{
	ctx_free(container_of(work, struct hpmmap_ctx, bury));
}

/*
 * A context that is not of any address space yet, with one reference, or NULL. It is
 * charged to the caller. The hooks must be active and stay so until hpmmap_ctx_publish() or
 * hpmmap_ctx_put_now().
 */
struct hpmmap_ctx *hpmmap_ctx_alloc(struct hpmmap_job *job)
{
	struct hpmmap_account *account;
	struct hpmmap_ctx *ctx;

	ctx = kzalloc(struct_size(ctx, placed, nr_node_ids) +
		      array_size(nr_node_ids, sizeof(*ctx->soiled)),
		      GFP_KERNEL_ACCOUNT);
	if (!ctx)
		return NULL;
	ctx->soiled = (atomic_long_t *)&ctx->placed[nr_node_ids];
	ctx->file = hpmmap_file_alloc();
	if (IS_ERR(ctx->file)) {
		kfree(ctx);
		return NULL;
	}
	ctx->owner.mapping = ctx->file->f_mapping;
	account = hpmmap_account_get_current(job->tally);
	if (!account)
		goto err_file;
	RCU_INIT_POINTER(ctx->owner.account, account);
	if (hpmmap_hook_get())
		goto err_account;
	refcount_set(&ctx->refs, 1);
	hpmmap_release_init(ctx);
	ctx->job = hpmmap_job_get(job);
	ctx->shared_linux = job->shared_linux;
	ctx->image = job->image;
	mutex_init(&ctx->ops);
	mutex_init(&ctx->lock);
	init_waitqueue_head(&ctx->frozen.wait);
	mutex_init(&ctx->store.breaking);
	xa_init_flags(&ctx->store.blocks, XA_FLAGS_ACCOUNT);
	xa_init_flags(&ctx->store.runs, XA_FLAGS_ACCOUNT);
	mt_init_flags(&ctx->region.extents, MT_FLAGS_ALLOC_RANGE);
	INIT_LIST_HEAD(&ctx->orphan);
	INIT_WORK(&ctx->bury, bury_work_fn);
	hpmmap_reuse_init(ctx);
	hpmmap_join_init(ctx);
	return ctx;

err_account:
	hpmmap_account_put(account);
err_file:
	hpmmap_file_put(ctx);
	kfree(ctx);
	return NULL;
}

/*
 * Gives up a reference where no lock is held. If it is the last one, the context is freed
 * at once: what a process that registers or forks in vain costs is charged to that process.
 */
void hpmmap_ctx_put_now(struct hpmmap_ctx *ctx)
{
	if (refcount_dec_and_test(&ctx->refs))
		ctx_free(ctx);
}

/*
 * A context becomes that of an address space that has none, and can be given one by the
 * caller only. The hash takes over the caller's reference. The context is an orphan until a
 * process joins it.
 */
void hpmmap_ctx_publish(struct hpmmap_ctx *ctx, struct mm_struct *mm)
{
	mmgrab(mm);
	ctx->mm = mm;
	hpmmap_stats_begin(ctx);
	hpmmap_ctx_hash(ctx);
	raw_spin_lock(&orphans_lock);
	list_add_tail(&ctx->orphan, &orphans);
	nr_orphans++;
	raw_spin_unlock(&orphans_lock);
}

/*
 * A process that is a member, and keeps the address space in use, uses it until
 * hpmmap_ctx_leave(). May be called from any context.
 */
void hpmmap_ctx_join(struct hpmmap_ctx *ctx)
{
	raw_spin_lock(&orphans_lock);
	if (!ctx->nr_procs++) {
		list_del_init(&ctx->orphan);
		nr_orphans--;
	}
	raw_spin_unlock(&orphans_lock);
}

/*
 * Takes back what an address space without users held. The caller has made sure
 * that nobody else does. @own: it was the caller's own until now. In either case
 * no lock is held that others need.
 */
static void tear_down(struct hpmmap_ctx *ctx, bool own)
{
	hpmmap_ctx_unhash(ctx);
	hpmmap_join_cancel(ctx);
	hpmmap_window_zap(ctx, 0, TASK_SIZE_MAX);
	hpmmap_store_release_all(ctx, own ? HPMMAP_EXIT_ZEROES : 0);
	hpmmap_ctx_torn(ctx);
	hpmmap_stats_fold(ctx);
	hpmmap_share_gone(ctx, own);
	/* The hash's reference. */
	hpmmap_ctx_put(ctx);
}

/*
 * It has no user, and nothing is mapped in it any more. Its last user takes it apart, which may
 * be a task that only looked at it; the blocks have references of that until it is done.
 */
static bool is_taken_apart(struct mm_struct *mm)
{
	VMA_ITERATOR(vmi, mm, 0);
	bool ret;

	if (atomic_read(&mm->mm_users) || !mmap_read_trylock(mm))
		return false;
	/* Locked for writing from the first table that is freed to the last mapping. */
	ret = !vma_next(&vmi);
	mmap_read_unlock(mm);
	return ret;
}

/* Waits a moment for that, if only the caller is a member. */
static void await_taken_apart(struct hpmmap_ctx *ctx)
{
	struct mm_struct *mm = ctx->mm;
	int i;

	/* A relative that ends at the same time, say; see share.c. */
	for (i = 0; i < APART_WAIT_MS; i++) {
		if (READ_ONCE(ctx->nr_procs) > 1 || is_taken_apart(mm) ||
		    (i >= LOOK_WAIT_MS && atomic_read(&mm->mm_users)))
			break;
		usleep_range(1000, 1100);
	}
}

/*
 * A process does not use an address space any more; the reference becomes the callee's.
 * Called in the process, or in a worker if it could not be there. After the last process
 * all that the context held is in the pools, unless another task still looks at the address
 * space and is not done within some milliseconds.
 */
void hpmmap_ctx_leave(struct hpmmap_ctx *ctx)
{
	bool last, dead;

	await_taken_apart(ctx);
	raw_spin_lock(&orphans_lock);
	last = !--ctx->nr_procs;
	dead = last && is_taken_apart(ctx->mm);
	if (last && !dead) {
		list_add_tail(&ctx->orphan, &orphans);
		nr_orphans++;
	}
	raw_spin_unlock(&orphans_lock);
	if (dead)
		tear_down(ctx, true);
	else if (last)
		hpmmap_reap_soon();
	hpmmap_ctx_put_now(ctx);
}

/*
 * Takes one without users out of at most @looks orphans, or NULL.
 * How many were looked at is taken off @looks.
 */
static struct hpmmap_ctx *orphan_take(unsigned long *looks)
{
	struct hpmmap_ctx *ctx, *found = NULL;

	lockdep_assert_held(&orphans_lock);
	while (*looks && !list_empty(&orphans)) {
		ctx = list_first_entry(&orphans, struct hpmmap_ctx, orphan);
		--*looks;
		if (is_taken_apart(ctx->mm)) {
			list_del_init(&ctx->orphan);
			nr_orphans--;
			found = ctx;
			break;
		}
		list_move_tail(&ctx->orphan, &orphans);
	}
	return found;
}

/* All of them; returns whether some are in use. */
static bool reap_orphans(void)
{
	unsigned long left = READ_ONCE(nr_orphans);

	while (left) {
		unsigned long looks = min(left, (unsigned long)REAP_BATCH);
		struct hpmmap_ctx *ctx;

		left -= looks;
		raw_spin_lock(&orphans_lock);
		ctx = orphan_take(&looks);
		raw_spin_unlock(&orphans_lock);
		left += looks;
		if (ctx)
			tear_down(ctx, false);
		else if (looks)
			break;
		cond_resched();
	}
	return READ_ONCE(nr_orphans);
}

/*
 * Takes back what nothing refers to any more: of address spaces without users, and blocks
 * whose pins have gone. May sleep, but waits for no process.
 */
void hpmmap_reap(void)
{
	reap_orphans();
	hpmmap_pinned_poll();
}

/*
 * A part of that, for an allocation that found none: looks at a bounded number of orphans
 * and blocks only, and not at all while others do. Returns whether the memory of an address
 * space came back.
 */
static bool reap_one(void)
{
	unsigned long looks = REAP_LOOKS;
	struct hpmmap_ctx *ctx;

	hpmmap_pinned_poll_some();
	if (!READ_ONCE(nr_orphans) || !raw_spin_trylock(&orphans_lock))
		return false;
	ctx = orphan_take(&looks);
	raw_spin_unlock(&orphans_lock);
	if (!ctx)
		return false;
	tear_down(ctx, false);
	return true;
}

static void reap_work_fn(struct work_struct *work)
{
	unsigned int ms = READ_ONCE(reap_ms);

	/* A task reads its /proc files, say. */
	if (!reap_orphans())
		return;
	WRITE_ONCE(reap_ms, min(2 * ms, (unsigned int)REAP_LAST_MS));
	queue_delayed_work(hpmmap_wq, &reap_work, msecs_to_jiffies(ms));
}

/* An orphan may have lost its last user. May be called from any context. */
void hpmmap_reap_soon(void)
{
	WRITE_ONCE(reap_ms, REAP_FIRST_MS);
	mod_delayed_work(hpmmap_wq, &reap_work, 0);
}

static const struct hpmmap_reclaimer reclaimer = {
	.reap = hpmmap_reap,
	.reap_one = reap_one,
	.kept = hpmmap_reuse_kept,
	.reclaim = hpmmap_reuse_reclaim,
};

int hpmmap_life_init(void)
{
	hpmmap_pool_set_reclaimer(&reclaimer);
	return 0;
}

/* As for hpmmap_wq_exit(): it may be about to return. */
void hpmmap_life_exit(void)
{
	cancel_delayed_work_sync(&reap_work);
}
