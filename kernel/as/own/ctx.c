// SPDX-License-Identifier: GPL-2.0
/*
 * Contexts: HPMMAP's half of an address space, found by its mm. How one begins
 * and ends is in life.c.
 */
#include <linux/hashtable.h>

#include "hpmmap.h"
#include "mem/pool/pool.h"
#include "as/own/ctx.h"
#include "as/own/stats.h"

/*
 * Each call of each process of the machine goes along a chain while the hooks are in:
 * one user may have as many contexts as processes.
 */
static DEFINE_HASHTABLE(contexts, 15);
/* The same by number, and what protects all of it. */
static LIST_HEAD(in_order);
static u64 last_id;
static DEFINE_SPINLOCK(contexts_lock);

/* From here on it is found, or not any more. */
void hpmmap_ctx_hash(struct hpmmap_ctx *ctx)
{
	spin_lock(&contexts_lock);
	hash_add_rcu(contexts, &ctx->node, (unsigned long)ctx->mm);
	ctx->id = ++last_id;
	list_add_tail_rcu(&ctx->next, &in_order);
	spin_unlock(&contexts_lock);
}

void hpmmap_ctx_unhash(struct hpmmap_ctx *ctx)
{
	spin_lock(&contexts_lock);
	hash_del_rcu(&ctx->node);
	list_del_rcu(&ctx->next);
	spin_unlock(&contexts_lock);
}

/* Context of an address space, in an RCU section of the caller's. */
notrace struct hpmmap_ctx *hpmmap_ctx_find_rcu(struct mm_struct *mm)
{
	struct hpmmap_ctx *ctx;

	hash_for_each_possible_rcu(contexts, ctx, node, (unsigned long)mm)
		if (ctx->mm == mm)
			return ctx;
	return NULL;
}

/*
 * Is this address space (NULL: of a kernel thread) registered? Cheap enough for every
 * hooked system call of every process.
 */
notrace bool hpmmap_ctx_exists(struct mm_struct *mm)
{
	bool ret;

	rcu_read_lock();
	ret = mm && hpmmap_ctx_find_rcu(mm);
	rcu_read_unlock();
	return ret;
}

/* May an address space have entries of 1 GB? As cheap. */
notrace bool hpmmap_ctx_has_gigabytes(struct mm_struct *mm)
{
	const struct hpmmap_ctx *ctx;
	bool ret;

	rcu_read_lock();
	ctx = hpmmap_ctx_find_rcu(mm);
	ret = ctx && ctx->job->gigabytes;
	rcu_read_unlock();
	return ret;
}

/* The context of an address space with a reference for the caller, or NULL. */
struct hpmmap_ctx *hpmmap_ctx_get(struct mm_struct *mm)
{
	struct hpmmap_ctx *ctx;

	rcu_read_lock();
	ctx = hpmmap_ctx_find_rcu(mm);
	if (ctx && !refcount_inc_not_zero(&ctx->refs))
		ctx = NULL;
	rcu_read_unlock();
	return ctx;
}

/* With any lock held: the last one leaves it to a worker, see life.c. */
void hpmmap_ctx_put(struct hpmmap_ctx *ctx)
{
	if (refcount_dec_and_test(&ctx->refs))
		queue_work(hpmmap_wq, &ctx->bury);
}

/* The first one behind @pos with a number of at least @id, with a reference; or NULL. */
static struct hpmmap_ctx *first_behind(struct hpmmap_ctx *pos, u64 id)
{
	list_for_each_entry_continue_rcu(pos, &in_order, next)
		if (pos->id >= id && refcount_inc_not_zero(&pos->refs))
			return pos;
	return NULL;
}

/*
 * The first of the contexts with a number of at least @id, with a reference for the caller,
 * or NULL.
 */
struct hpmmap_ctx *hpmmap_ctx_from(u64 id)
{
	struct hpmmap_ctx *found;

	rcu_read_lock();
	found = first_behind(list_entry(&in_order, struct hpmmap_ctx, next), id);
	rcu_read_unlock();
	return found;
}

/* The one after it; the caller's reference to @ctx is put. */
struct hpmmap_ctx *hpmmap_ctx_next(struct hpmmap_ctx *ctx)
{
	struct hpmmap_ctx *pos = ctx, *found;

	rcu_read_lock();
	/* What leaves the list now has its place in it until the section ends. */
	if (hlist_unhashed_lockless(&ctx->node))
		pos = list_entry(&in_order, struct hpmmap_ctx, next);
	found = first_behind(pos, ctx->id + 1);
	rcu_read_unlock();
	hpmmap_ctx_put(ctx);
	return found;
}

/* The workers of the pools zero what a context that is gone gave up. */
static void hand_over_soiled(struct hpmmap_ctx *ctx)
{
	int nid;

	for_each_online_node(nid) {
		long nr = atomic_long_xchg(&ctx->soiled[nid], 0);

		if (nr > 0)
			hpmmap_pool_soiled(nid, nr);
	}
}

/*
 * A context has given up @nr blocks of a node that are not zero; less than 0: they were
 * zeroed since. They are not zeroed as long as the context lives: it may get them again.
 */
void hpmmap_ctx_soil(struct hpmmap_ctx *ctx, int nid, long nr)
{
	atomic_long_add(nr, &ctx->soiled[nid]);
	/* Pairs with that of hpmmap_ctx_torn(): one of both hands them over. */
	smp_mb__after_atomic();
	if (READ_ONCE(ctx->torn))
		hand_over_soiled(ctx);
}

/* A context has given up all its blocks except pinned and shared ones, which come later. */
void hpmmap_ctx_torn(struct hpmmap_ctx *ctx)
{
	WRITE_ONCE(ctx->torn, true);
	smp_mb();
	hand_over_soiled(ctx);
}

/*
 * Waits until no other call of the caller's address space is under way. Returns 0, or an
 * errno that restarts the call, where there is a signal.
 */
long hpmmap_ops_lock(struct hpmmap_ctx *ctx)
{
	u64 since;
	int ret;

	/* A lock that is free is had without a look at signals. */
	if (unlikely(fatal_signal_pending(current)))
		return -ERESTARTNOINTR;
	if (likely(!mutex_is_locked(&ctx->ops)))
		return mutex_lock_interruptible(&ctx->ops) ?
		       -ERESTARTNOINTR : 0;
	since = get_cycles();
	ret = mutex_lock_interruptible(&ctx->ops);
	hpmmap_count_stall(ctx->job, HPMMAP_STALL_CALLS,
			   get_cycles() - since);
	return ret ? -ERESTARTNOINTR : 0;
}

void hpmmap_ops_unlock(struct hpmmap_ctx *ctx)
{
	hpmmap_count_held(ctx);
	if (unlikely(!llist_empty(&ctx->graves)))
		hpmmap_block_bury(&ctx->graves);
	mutex_unlock(&ctx->ops);
}
