/* SPDX-License-Identifier: GPL-2.0 */
/* Giving memory to mappings. */
#ifndef _HPMMAP_AS_CHANGE_COMMIT_H
#define _HPMMAP_AS_CHANGE_COMMIT_H

bool hpmmap_vma_remap_slot(struct hpmmap_ctx *ctx, unsigned long slot, bool nowait);
void hpmmap_vma_slot_owned(struct hpmmap_ctx *ctx, unsigned long slot);
bool hpmmap_vma_collapse_soon(struct hpmmap_ctx *ctx,
			      const struct vm_fault *vmf);
void hpmmap_vma_commit(struct hpmmap_ctx *ctx, unsigned long start,
		       unsigned long end, struct list_head *blocks, bool *vain);
void hpmmap_vma_repair_split(struct hpmmap_ctx *ctx);
void hpmmap_vma_repair(struct hpmmap_ctx *ctx, unsigned long start,
		       unsigned long end, bool *vain);

#endif /* _HPMMAP_AS_CHANGE_COMMIT_H */
