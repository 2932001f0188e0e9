/* SPDX-License-Identifier: GPL-2.0 */
/* Reuse: memory that a process gives up and may get again. */
#ifndef _HPMMAP_AS_OWN_REUSE_H
#define _HPMMAP_AS_OWN_REUSE_H

/* Memory of a process that it gave up and may get again. */
struct hpmmap_reuse {
	spinlock_t lock;		/* protects @blocks, @nr and @account */
	struct list_head *blocks;	/* lists by node; NULL until something is to be kept */
	unsigned long nr;		/* how many blocks they have */
	/*
	 * That all of them are charged to, NULL where that is not the same; means something while
	 * @nr is not 0.
	 */
	struct hpmmap_account *account;
	/* Blocks in the store that are to be kept; this and @peak are protected by ctx->lock. */
	unsigned long nr_mapped;
	unsigned long peak;		/* the largest @nr_mapped ever */
	struct list_head link;		/* in the list of contexts that keep something (reuse.c) */
};

void hpmmap_reuse_init(struct hpmmap_ctx *ctx);
void hpmmap_reuse_exit(struct hpmmap_ctx *ctx);
void hpmmap_reuse_mark(struct hpmmap_ctx *ctx, struct hpmmap_block *block);
bool hpmmap_reuse_keep(struct hpmmap_ctx *ctx, struct hpmmap_block *block);
void hpmmap_reuse_take(struct hpmmap_ctx *ctx,
		       const struct hpmmap_placement *place, unsigned long nr,
		       struct list_head *out);
void hpmmap_reuse_return(struct hpmmap_ctx *ctx, struct list_head *blocks);
unsigned long hpmmap_reuse_kept(void);
unsigned long hpmmap_reuse_reclaim(const nodemask_t *nodes,
				   struct hpmmap_payer *payer, unsigned long nr);
void hpmmap_reuse_renew(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end,
			bool see);
void hpmmap_reuse_set(struct hpmmap_ctx *ctx, unsigned long start,
		      unsigned long end);
bool hpmmap_reuse_forget(struct hpmmap_ctx *ctx, struct hpmmap_block *block);

#endif /* _HPMMAP_AS_OWN_REUSE_H */
