// SPDX-License-Identifier: GPL-2.0
/* Families: contexts that may share blocks since a fork. What is done for them: share.c. */
#include <linux/jiffies.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "hpmmap.h"
#include "as/family.h"

static DEFINE_SPINLOCK(families_lock);

/**
 * hpmmap_family_new() - a family without contexts
 * @work: looks after it
 *
 * Return: the family with a reference for the caller; NULL without memory.
 */
struct hpmmap_family *hpmmap_family_new(work_func_t work)
{
	struct hpmmap_family *family = kzalloc(sizeof(*family), GFP_KERNEL_ACCOUNT);

	if (!family)
		return NULL;
	refcount_set(&family->refs, 1);
	mutex_init(&family->lock);
	INIT_LIST_HEAD(&family->kin);
	INIT_DELAYED_WORK(&family->work, work);
	family->again_ms = FAMILY_SOON_MS;
	return family;
}

void hpmmap_family_put(struct hpmmap_family *family)
{
	if (refcount_dec_and_test(&family->refs))
		kfree_rcu(family, rcu);
}

/**
 * hpmmap_family_join() - a context belongs to a family from here on
 * @family: the family; a reference is taken
 * @ctx: the context
 */
void hpmmap_family_join(struct hpmmap_family *family, struct hpmmap_ctx *ctx)
{
	refcount_inc(&family->refs);
	spin_lock(&families_lock);
	ctx->family = family;
	list_add(&ctx->kin, &family->kin);
	family->nr++;
	spin_unlock(&families_lock);
}

/**
 * hpmmap_family_leave() - a context shares nothing any more
 * @ctx: about to be freed
 */
void hpmmap_family_leave(struct hpmmap_ctx *ctx)
{
	struct hpmmap_family *family = ctx->family;
	bool queued;

	if (!family)
		return;
	spin_lock(&families_lock);
	list_del(&ctx->kin);
	queued = !--family->nr && cancel_delayed_work(&family->work);
	spin_unlock(&families_lock);
	if (queued)
		hpmmap_family_put(family);
	hpmmap_family_put(family);
}

/**
 * hpmmap_family_queue() - a worker looks after a family
 * @family: the family
 * @ms: how soon
 *
 * Not for a family without contexts: nothing else keeps the module loaded.
 */
void hpmmap_family_queue(struct hpmmap_family *family, unsigned int ms)
{
	bool queued = false;

	refcount_inc(&family->refs);
	spin_lock(&families_lock);
	if (family->nr)
		queued = queue_delayed_work(hpmmap_wq, &family->work,
					    msecs_to_jiffies(ms));
	spin_unlock(&families_lock);
	if (!queued)
		hpmmap_family_put(family);
}

/**
 * hpmmap_family_alone() - a block that a context gave up is left to another alone
 * @ctx: the context that gave it up
 *
 * Who ends looks after it. No worker before that: while it looks at a process that
 * ends, its parent may learn of that too early.
 */
void hpmmap_family_alone(struct hpmmap_ctx *ctx)
{
	WRITE_ONCE(ctx->family->alone, true);
}

/**
 * hpmmap_family_next() - the next context of a family to look at
 * @family: the family
 *
 * Return: the context with a reference; NULL if it is being freed.
 */
struct hpmmap_ctx *hpmmap_family_next(struct hpmmap_family *family)
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
