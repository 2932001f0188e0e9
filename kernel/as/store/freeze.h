/* SPDX-License-Identifier: GPL-2.0 */
/* A range that cannot be reached while its contents are elsewhere. */
#ifndef _HPMMAP_AS_STORE_FREEZE_H
#define _HPMMAP_AS_STORE_FREEZE_H

#include "as/own/ctx.h"

/*
 * Is some of the slot of an address frozen? ctx->lock is held. @vma: only as far as this
 * mapping has a part of the slot; NULL: all of it. If so nothing of that may be mapped by page
 * tables: the core may map all that a mapping has of a slot with one entry.
 */
static inline bool hpmmap_frozen_covers(struct hpmmap_ctx *ctx,
					const struct vm_area_struct *vma,
					unsigned long addr)
{
	unsigned long start = addr & SLOT_MASK, end = start + SLOT_SIZE;

	lockdep_assert_held(&ctx->lock);
	if (likely(!ctx->frozen.end))
		return false;
	if (vma) {
		start = max(start, vma->vm_start);
		end = min(end, vma->vm_end);
	}
	return start < ctx->frozen.end && end > ctx->frozen.start;
}

int hpmmap_freeze(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end, bool moving);
void hpmmap_thaw(struct hpmmap_ctx *ctx);
vm_fault_t hpmmap_frozen_wait(struct hpmmap_ctx *ctx, unsigned int seen, struct vm_fault *vmf);

#endif /* _HPMMAP_AS_STORE_FREEZE_H */
