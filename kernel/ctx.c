// SPDX-License-Identifier: GPL-2.0
/*
 * Contexts: HPMMAP's half of an address space, found by its mm.
 *
 * A context lives from its publication until nobody uses the address space
 * (mm_users is zero), however the process ended. Linux tears the mappings
 * down on its own; the blocks are taken back when only the module still
 * refers to them.
 */
#include <linux/hashtable.h>
#include <linux/rcupdate.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "hpmmap.h"
#include "trace.h"

/* How soon to look again at an address space that somebody still uses. */
#define REAP_MS 20

static DEFINE_HASHTABLE(contexts, 10);
static DEFINE_SPINLOCK(contexts_lock);
static DEFINE_MUTEX(reap_mutex);
/* Torn down, and to be taken out of sysfs; protected by reap_mutex. */
static LIST_HEAD(dead);
static atomic64_t next_ctx_id = ATOMIC64_INIT(0);
static void reap_work_fn(struct work_struct *work);
static DECLARE_DELAYED_WORK(reap_work, reap_work_fn);

/**
 * hpmmap_ctx_alloc() - a context that is not of any address space yet
 * @job: its policy
 *
 * What it gets is charged to who calls. The hooks must be active and stay so
 * until hpmmap_ctx_publish() or hpmmap_ctx_put().
 *
 * Return: the context with one reference, or NULL.
 */
struct hpmmap_ctx *hpmmap_ctx_alloc(struct hpmmap_job *job)
{
	struct hpmmap_ctx *ctx;

	ctx = kzalloc(struct_size(ctx, placed, nr_node_ids), GFP_KERNEL);
	if (!ctx)
		return NULL;
	ctx->file = hpmmap_file_alloc();
	if (IS_ERR(ctx->file)) {
		kfree(ctx);
		return NULL;
	}
	ctx->account = hpmmap_account_get_current();
	if (!ctx->account)
		goto err_file;
	if (hpmmap_hook_get())
		goto err_account;
	refcount_set(&ctx->refs, 1);
	ctx->id = atomic64_inc_return(&next_ctx_id);
	ctx->job = hpmmap_job_get(job);
	ctx->image = job->image;
	mutex_init(&ctx->ops);
	mutex_init(&ctx->lock);
	init_waitqueue_head(&ctx->handback.wait);
	xa_init(&ctx->store);
	hpmmap_reuse_init(ctx);
	hpmmap_stats_init(&ctx->stats);
	return ctx;

err_account:
	hpmmap_account_put(ctx->account);
err_file:
	hpmmap_file_put(ctx);
	kfree(ctx);
	return NULL;
}

/**
 * hpmmap_ctx_publish() - make a context that of an address space
 * @ctx: from hpmmap_ctx_alloc(); the hash takes over the caller's reference
 * @mm: an address space that has none; nobody else can give it one now
 */
void hpmmap_ctx_publish(struct hpmmap_ctx *ctx, struct mm_struct *mm)
{
	mmgrab(mm);
	ctx->mm = mm;
	spin_lock(&contexts_lock);
	hash_add_rcu(contexts, &ctx->node, (unsigned long)mm);
	spin_unlock(&contexts_lock);
	hpmmap_stats_begin(ctx);
}

/* Whether the address space of a context may still have users. */
bool hpmmap_ctx_is_published(const struct hpmmap_ctx *ctx)
{
	return !hlist_unhashed_lockless(&ctx->node);
}

static struct hpmmap_ctx *ctx_find(struct mm_struct *mm)
{
	struct hpmmap_ctx *ctx;

	hash_for_each_possible_rcu(contexts, ctx, node, (unsigned long)mm)
		if (ctx->mm == mm)
			return ctx;
	return NULL;
}

/* Context of an address space, in an RCU section of the caller's. */
struct hpmmap_ctx *hpmmap_ctx_find_rcu(struct mm_struct *mm)
{
	return ctx_find(mm);
}

/**
 * hpmmap_ctx_exists() - is this address space registered?
 * @mm: the caller's, or NULL for a kernel thread
 *
 * Cheap enough for every hooked system call of every process.
 */
notrace bool hpmmap_ctx_exists(struct mm_struct *mm)
{
	bool ret;

	rcu_read_lock();
	ret = mm && ctx_find(mm);
	rcu_read_unlock();
	return ret;
}

/**
 * hpmmap_ctx_get() - context of an address space
 * @mm: whose
 *
 * Return: the context with a reference for the caller, or NULL.
 */
struct hpmmap_ctx *hpmmap_ctx_get(struct mm_struct *mm)
{
	struct hpmmap_ctx *ctx;

	rcu_read_lock();
	ctx = ctx_find(mm);
	if (ctx && !refcount_inc_not_zero(&ctx->refs))
		ctx = NULL;
	rcu_read_unlock();
	return ctx;
}

void hpmmap_ctx_put(struct hpmmap_ctx *ctx)
{
	if (!refcount_dec_and_test(&ctx->refs))
		return;
	hpmmap_share_leave(ctx);
	xa_destroy(&ctx->store);
	if (ctx->mm)
		mmdrop(ctx->mm);
	hpmmap_file_put(ctx);
	hpmmap_account_put(ctx->account);
	hpmmap_job_put(ctx->job);
	kfree_rcu(ctx, rcu);
	hpmmap_hook_put();
}

/**
 * hpmmap_ctx_list() - all contexts there are
 * @nr: out: how many
 *
 * Return: an array for kvfree(), with a reference to each; NULL without memory.
 */
struct hpmmap_ctx **hpmmap_ctx_list(unsigned long *nr)
{
	struct hpmmap_ctx **list, *ctx;
	unsigned long room = 64;
	int bkt;

	for (;;) {
		list = kvmalloc_array(room, sizeof(*list), GFP_KERNEL);
		if (!list)
			return NULL;
		*nr = 0;
		rcu_read_lock();
		hash_for_each_rcu(contexts, bkt, ctx, node) {
			if (*nr == room)
				break;
			if (refcount_inc_not_zero(&ctx->refs))
				list[(*nr)++] = ctx;
		}
		rcu_read_unlock();
		if (*nr < room)
			return list;
		/* There may be more than fit. */
		while (*nr)
			hpmmap_ctx_put(list[--*nr]);
		kvfree(list);
		room *= 4;
	}
}

/* Returns whether a process ended whose address space somebody still uses. */
static bool reap_dead(void)
{
	struct hpmmap_ctx *ctx;
	struct hlist_node *tmp;
	bool left = false;
	LIST_HEAD(gone);
	int bkt;

	lockdep_assert_held(&reap_mutex);
	spin_lock(&contexts_lock);
	hash_for_each_safe(contexts, bkt, tmp, ctx, node) {
		if (atomic_read(&ctx->mm->mm_users)) {
			left |= READ_ONCE(ctx->ended);
			continue;
		}
		hash_del_rcu(&ctx->node);
		list_add(&ctx->dying, &gone);
	}
	spin_unlock(&contexts_lock);

	list_for_each_entry(ctx, &gone, dying) {
		hpmmap_store_release_all(ctx);
		hpmmap_pool_soiled(atomic_long_xchg(&ctx->nr_soiled, 0));
		hpmmap_stats_fold(ctx);
		hpmmap_share_gone(ctx);
	}
	list_splice(&gone, &dead);
	return left;
}

/**
 * hpmmap_reap() - take back what dead address spaces held
 *
 * May sleep. When it returns, every block that nobody can reach any more is
 * in its pool.
 */
void hpmmap_reap(void)
{
	bool more;

	mutex_lock(&reap_mutex);
	reap_dead();
	hpmmap_pinned_poll();
	more = !list_empty(&dead);
	mutex_unlock(&reap_mutex);
	if (more)
		hpmmap_reap_soon();
}

static void reap_work_fn(struct work_struct *work)
{
	struct hpmmap_ctx *ctx, *tmp;
	LIST_HEAD(buried);
	bool left;

	mutex_lock(&reap_mutex);
	left = reap_dead();
	list_replace_init(&dead, &buried);
	mutex_unlock(&reap_mutex);
	/* Waits for readers, who take mmap_lock: only here, with no lock held. */
	list_for_each_entry_safe(ctx, tmp, &buried, dying) {
		hpmmap_sysfs_ctx_del(ctx);
		hpmmap_ctx_put(ctx);
	}
	/* Somebody reads its /proc files, say. */
	if (left)
		schedule_delayed_work(&reap_work, msecs_to_jiffies(REAP_MS));
}

/**
 * hpmmap_reap_soon() - an address space may have lost its last user
 *
 * May be called from any context.
 */
void hpmmap_reap_soon(void)
{
	mod_delayed_work(compat_wq, &reap_work, 0);
}

/**
 * hpmmap_ctx_mark_ended() - a process has exited or executed another program
 * @pid: the process
 *
 * May be called from any context.
 *
 * Return: its family, with a reference for the caller, or NULL.
 */
struct hpmmap_family *hpmmap_ctx_mark_ended(pid_t pid)
{
	struct hpmmap_family *family = NULL;
	struct hpmmap_ctx *ctx;
	int bkt;

	rcu_read_lock();
	hash_for_each_rcu(contexts, bkt, ctx, node)
		if (ctx->pid == pid && !ctx->ended) {
			WRITE_ONCE(ctx->ended, true);
			if (!family)
				family = hpmmap_family_get(ctx);
		}
	rcu_read_unlock();
	hpmmap_reap_soon();
	return family;
}

/* Contexts keep the module loaded, so there are none left here. */
void hpmmap_ctx_exit(void)
{
	cancel_delayed_work_sync(&reap_work);
}
