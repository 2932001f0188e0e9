/* SPDX-License-Identifier: GPL-2.0 */
/* Families of contexts that may share blocks. */
#ifndef _HPMMAP_AS_OWN_FAMILY_H
#define _HPMMAP_AS_OWN_FAMILY_H

#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

#include "as/own/ctx.h"

/* How soon a worker comes first. */
#define FAMILY_SOON_MS 1

/**
 * struct hpmmap_family - contexts that may share blocks
 * @refs: its contexts, and the work if it is queued
 * @lock: held while entries are made writable again; only ever tried
 * @lists: protects @kin, @alone and @nr
 * @kin: contexts, by ctx->kin
 * @alone: those instead that a block was left to alone since they were looked at
 * @nr: how many contexts there are
 * @pinned: such a block is pinned: the next process that ends looks again
 * @work: looks again at those that were busy
 * @again_ms: how long it waits
 * @rcu: frees it
 */
struct hpmmap_family {
	refcount_t refs;
	struct mutex lock;
	spinlock_t lists;
	struct list_head kin;
	struct list_head alone;
	unsigned long nr;
	bool pinned;
	struct delayed_work work;
	unsigned int again_ms;
	struct rcu_head rcu;
};

struct hpmmap_family *hpmmap_family_new(work_func_t work);
void hpmmap_family_put(struct hpmmap_family *family);
void hpmmap_family_join(struct hpmmap_family *family, struct hpmmap_ctx *ctx);
void hpmmap_family_leave(struct hpmmap_ctx *ctx);
void hpmmap_family_queue(struct hpmmap_family *family, unsigned int ms);
void hpmmap_family_share(const struct hpmmap_ctx *parent, const struct hpmmap_ctx *child,
			 struct hpmmap_block *block);
int hpmmap_family_unshare(const struct hpmmap_ctx *ctx, struct hpmmap_block *block);
struct hpmmap_ctx *hpmmap_family_next(struct hpmmap_family *family);
void hpmmap_family_again(struct hpmmap_family *family);

#endif /* _HPMMAP_AS_OWN_FAMILY_H */
