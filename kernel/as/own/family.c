// SPDX-License-Identifier: GPL-2.0
/*
 * Families: contexts that may share blocks since a fork. What is done for them: share.c.
 *
 * A shared block knows the keys of the contexts that have it, xor'ed (block->sharers). When all
 * others have given it up, that is the key of the one that is left alone with it.
 */
#include "hpmmap.h"
#include "mem/block/block.h"
#include "as/own/family.h"

/* No xor of keys is likely to be another context's. */
static u64 key_of(const struct hpmmap_ctx *ctx)
{
	return ctx->id * GOLDEN_RATIO_64;
}

/*
 * A family without contexts, with a reference for the caller; @work looks after it. NULL
 * without memory.
 */
struct hpmmap_family *hpmmap_family_new(work_func_t work)
{
	struct hpmmap_family *family = kzalloc(sizeof(*family), GFP_KERNEL_ACCOUNT);

	if (!family)
		return NULL;
	refcount_set(&family->refs, 1);
	mutex_init(&family->lock);
	spin_lock_init(&family->lists);
	INIT_LIST_HEAD(&family->kin);
	INIT_LIST_HEAD(&family->alone);
	INIT_DELAYED_WORK(&family->work, work);
	family->again_ms = FAMILY_SOON_MS;
	return family;
}

void hpmmap_family_put(struct hpmmap_family *family)
{
	if (refcount_dec_and_test(&family->refs))
		kfree_rcu(family, rcu);
}

/* A context belongs to a family from here on, which gets a reference for it. */
void hpmmap_family_join(struct hpmmap_family *family, struct hpmmap_ctx *ctx)
{
	refcount_inc(&family->refs);
	spin_lock(&family->lists);
	ctx->family = family;
	list_add(&ctx->kin, &family->kin);
	family->nr++;
	spin_unlock(&family->lists);
}

/* A context that is about to be freed shares nothing any more. */
void hpmmap_family_leave(struct hpmmap_ctx *ctx)
{
	struct hpmmap_family *family = ctx->family;
	bool queued;

	if (!family)
		return;
	spin_lock(&family->lists);
	list_del(&ctx->kin);
	queued = !--family->nr && cancel_delayed_work(&family->work);
	spin_unlock(&family->lists);
	if (queued)
		hpmmap_family_put(family);
	hpmmap_family_put(family);
}

/*
 * A worker looks after a family in @ms. Not after a family without contexts: nothing else
 * keeps the module loaded.
 */
void hpmmap_family_queue(struct hpmmap_family *family, unsigned int ms)
{
	bool queued = false;

	refcount_inc(&family->refs);
	spin_lock(&family->lists);
	if (family->nr)
		queued = queue_delayed_work(hpmmap_wq, &family->work,
					    msecs_to_jiffies(ms));
	spin_unlock(&family->lists);
	if (!queued)
		hpmmap_family_put(family);
}

static struct hpmmap_ctx *find(struct list_head *list, u64 key)
{
	struct hpmmap_ctx *ctx;

	list_for_each_entry(ctx, list, kin)
		if (key_of(ctx) == key)
			return ctx;
	return NULL;
}

/*
 * A block is left to the context of a key alone. Without one of that key two gave the block up
 * at the same time, or one while a fork shared it: it may be any.
 */
static void left_alone(struct hpmmap_family *family, u64 key)
{
	struct hpmmap_ctx *ctx;

	spin_lock(&family->lists);
	ctx = find(&family->alone, key) ?: find(&family->kin, key);
	if (ctx)
		list_move(&ctx->kin, &family->alone);
	else
		list_splice_init(&family->kin, &family->alone);
	spin_unlock(&family->lists);
}

/* A child has a block of its parent, too; both contexts' locks are held. */
void hpmmap_family_share(const struct hpmmap_ctx *parent, const struct hpmmap_ctx *child,
			 struct hpmmap_block *block)
{
	if (!hpmmap_block_is_shared(block))
		atomic64_set(&block->sharers, key_of(parent));
	atomic64_xor(key_of(child), &block->sharers);
	atomic_inc(&block->users);
}

/*
 * A context gives a block up; the block is not to be used afterwards if others have it. If
 * it is left to another context alone, a process that ends looks after that: a worker could
 * still be at it when the parent of a process that ends learns of the end.
 *
 * Returns how many others have it.
 */
int hpmmap_family_unshare(const struct hpmmap_ctx *ctx, struct hpmmap_block *block)
{
	u64 key = key_of(ctx);
	int left;

	/* Not after it is given up: the others may have done so, too. */
	if (hpmmap_block_is_shared(block))
		key ^= atomic64_fetch_xor(key, &block->sharers);
	left = atomic_dec_return(&block->users);
	if (left == 1)
		left_alone(ctx->family, key);
	return left;
}

/* The context that a block was left to alone first, with a reference, or NULL. */
struct hpmmap_ctx *hpmmap_family_next(struct hpmmap_family *family)
{
	struct hpmmap_ctx *ctx = NULL;

	spin_lock(&family->lists);
	while (!ctx && !list_empty(&family->alone)) {
		ctx = list_last_entry(&family->alone, struct hpmmap_ctx, kin);
		list_move(&ctx->kin, &family->kin);
		WRITE_ONCE(ctx->again, false);
		if (!refcount_inc_not_zero(&ctx->refs))
			ctx = NULL;
	}
	spin_unlock(&family->lists);
	return ctx;
}

/* hpmmap_family_next() returns contexts with ctx->again, too. */
void hpmmap_family_again(struct hpmmap_family *family)
{
	struct hpmmap_ctx *ctx, *tmp;

	spin_lock(&family->lists);
	list_for_each_entry_safe(ctx, tmp, &family->kin, kin)
		if (READ_ONCE(ctx->again))
			list_move_tail(&ctx->kin, &family->alone);
	spin_unlock(&family->lists);
}
