/* SPDX-License-Identifier: GPL-2.0 */
/* Families of contexts that may share blocks. */
#ifndef _HPMMAP_AS_FAMILY_H
#define _HPMMAP_AS_FAMILY_H

#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/workqueue.h>

#include "as/ctx.h"

/* How soon a worker comes first. */
#define FAMILY_SOON_MS 1

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

struct hpmmap_family *hpmmap_family_new(work_func_t work);
void hpmmap_family_put(struct hpmmap_family *family);
void hpmmap_family_join(struct hpmmap_family *family, struct hpmmap_ctx *ctx);
void hpmmap_family_leave(struct hpmmap_ctx *ctx);
void hpmmap_family_queue(struct hpmmap_family *family, unsigned int ms);
void hpmmap_family_alone(struct hpmmap_ctx *ctx);
struct hpmmap_ctx *hpmmap_family_next(struct hpmmap_family *family);

#endif /* _HPMMAP_AS_FAMILY_H */
