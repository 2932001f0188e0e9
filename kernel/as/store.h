/* SPDX-License-Identifier: GPL-2.0 */
/* The store of a context: which block stands behind which slot. */
#ifndef _HPMMAP_AS_STORE_H
#define _HPMMAP_AS_STORE_H

#include <linux/mm.h>

#include "mem/block.h"
#include "as/ctx.h"

/* Mark of a slot in the store whose block is shared, or was until lately. */
#define SLOT_SHARED XA_MARK_0

/**
 * enum hpmmap_commit - what a slot's block is after a commit
 * @HPMMAP_COMMIT_OWN: the context's own, as it was
 * @HPMMAP_COMMIT_OWNED_NOW: the context's own, shared before
 * @HPMMAP_COMMIT_SHARED: shared
 */
enum hpmmap_commit {
	HPMMAP_COMMIT_OWN,
	HPMMAP_COMMIT_OWNED_NOW,
	HPMMAP_COMMIT_SHARED,
};
struct hpmmap_block *hpmmap_store_load(struct hpmmap_ctx *ctx,
				       unsigned long slot);
unsigned long hpmmap_store_next(struct hpmmap_ctx *ctx, unsigned long start,
				unsigned long end);
unsigned long hpmmap_store_missing(struct hpmmap_ctx *ctx, unsigned long start,
				   unsigned long end);
unsigned long hpmmap_store_count(struct hpmmap_ctx *ctx, unsigned long start,
				 unsigned long end);
unsigned long hpmmap_store_count_shared(struct hpmmap_ctx *ctx,
					unsigned long start,
					unsigned long end);
struct hpmmap_block *hpmmap_store_commit(struct hpmmap_ctx *ctx,
					 struct vm_area_struct *vma,
					 unsigned long start,
					 unsigned long end,
					 struct list_head *blocks,
					 enum hpmmap_commit *how);
unsigned long hpmmap_store_map_run(struct hpmmap_ctx *ctx,
				   struct vm_area_struct *vma,
				   unsigned long start, unsigned long end,
				   struct list_head *blocks);
void hpmmap_store_renew(struct hpmmap_ctx *ctx, unsigned long start,
			unsigned long end);
bool hpmmap_store_is_pinned(struct hpmmap_ctx *ctx, unsigned long start,
			    unsigned long end, bool wait);
void hpmmap_store_refresh(struct hpmmap_ctx *ctx, unsigned long start,
			  unsigned long end);
void hpmmap_store_drop_linux(struct hpmmap_ctx *ctx, unsigned long start,
			     unsigned long end);
int hpmmap_store_discard(struct hpmmap_ctx *ctx, unsigned long start,
			 unsigned long end, bool accessible);
bool hpmmap_store_unmapped(struct hpmmap_ctx *ctx, unsigned long start,
			   unsigned long end);
bool hpmmap_store_has_orphans(struct hpmmap_ctx *ctx, unsigned long start,
			      unsigned long end);
void hpmmap_store_reconcile(struct hpmmap_ctx *ctx, unsigned long start,
			    unsigned long end);
int hpmmap_store_move(struct hpmmap_ctx *ctx, unsigned long from,
		      unsigned long to, unsigned long len,
		      struct list_head *blocks);
void hpmmap_store_snapshot(struct hpmmap_ctx *parent, struct hpmmap_ctx *child,
			   struct vm_area_struct *vma);
void hpmmap_store_put(struct hpmmap_ctx *ctx, unsigned long slot,
		      struct hpmmap_block *block);
void hpmmap_store_reserve(struct hpmmap_ctx *ctx, struct vm_area_struct *vma,
			  unsigned long slot, struct list_head *blocks);
bool hpmmap_store_replace(struct hpmmap_ctx *ctx, unsigned long slot,
			  struct hpmmap_block *fresh, bool *wait);
int hpmmap_store_exchange(struct hpmmap_ctx *ctx, unsigned long slot,
			  struct hpmmap_block *old);
void hpmmap_store_heal(struct hpmmap_ctx *ctx, unsigned long start,
		       unsigned long end);
vm_fault_t hpmmap_store_fault(struct hpmmap_ctx *ctx, struct vm_fault *vmf,
			      bool *committed, enum hpmmap_fault *why);
int hpmmap_store_access(struct hpmmap_ctx *ctx, struct vm_area_struct *vma,
			unsigned long addr, void *buf, size_t len, bool write);
int hpmmap_store_own_edges(struct hpmmap_ctx *ctx, unsigned long start,
			   unsigned long end);
void hpmmap_store_zap_shared(struct hpmmap_ctx *ctx, unsigned long start,
			     unsigned long end);
struct hpmmap_block *hpmmap_store_adopt(struct hpmmap_ctx *ctx,
					unsigned long slot);
void hpmmap_store_release_all(struct hpmmap_ctx *ctx, unsigned int nr_zero);

#endif /* _HPMMAP_AS_STORE_H */
