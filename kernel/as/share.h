/* SPDX-License-Identifier: GPL-2.0 */
/* Sharing of blocks since a fork. */
#ifndef _HPMMAP_AS_SHARE_H
#define _HPMMAP_AS_SHARE_H

#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/workqueue.h>

#include "as/ctx.h"

/**
 * struct hpmmap_family - contexts that may share blocks
 * @refs: its contexts, and the work if it is queued
 * @lock: held while entries are made writable again; only ever tried
 * @kin: contexts, by ctx->kin; protected by families_lock
 * @nr: how many; protected by families_lock
 * @alone: a block was left to one of them alone, and nobody has looked yet
 * @pinned: such a block is pinned; the next one who is gone looks again
 * @work: looks after those that were busy
 * @again_ms: how long it waits
 * @rcu: frees it
 */
struct hpmmap_family {
	refcount_t refs;
	struct mutex lock;
	struct list_head kin;
	unsigned long nr;
	bool alone;
	bool pinned;
	struct delayed_work work;
	unsigned int again_ms;
	struct rcu_head rcu;
};

int hpmmap_share_begin(struct hpmmap_ctx *parent, struct hpmmap_ctx *child);
void hpmmap_share_leave(struct hpmmap_ctx *ctx);
void hpmmap_share_gone(struct hpmmap_ctx *ctx, bool here);

/**
 * hpmmap_share_alone() - a block that @ctx gave up is left to another alone
 * @ctx: the context
 */
static inline void hpmmap_share_alone(struct hpmmap_ctx *ctx)
{
	WRITE_ONCE(ctx->family->alone, true);
}

#endif /* _HPMMAP_AS_SHARE_H */
