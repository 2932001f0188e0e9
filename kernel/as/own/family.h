/* SPDX-License-Identifier: GPL-2.0 */
/* Families of contexts that may share blocks. */
#ifndef _HPMMAP_AS_OWN_FAMILY_H
#define _HPMMAP_AS_OWN_FAMILY_H

#include "as/own/ctx.h"

/* How soon a worker comes first. */
#define FAMILY_SOON_MS 1

/* Contexts that may share blocks. */
struct hpmmap_family {
	refcount_t refs;		/* its contexts, and the work if it is queued */
	/* Held while entries are made writable again; only ever tried. */
	struct mutex lock;
	spinlock_t lists;		/* protects @kin, @alone and @nr */
	struct list_head kin;		/* contexts, by ctx->kin */
	/* Those instead that a block was left to alone since they were looked at. */
	struct list_head alone;
	unsigned long nr;		/* how many contexts there are */
	/* Such a block is pinned: the next process that ends looks again. */
	bool pinned;
	struct delayed_work work;	/* looks again at those that were busy */
	unsigned int again_ms;		/* how long it waits */
	struct rcu_head rcu;		/* frees it */
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
