/* SPDX-License-Identifier: GPL-2.0 */
/* Ranges that nobody reaches while their contents go elsewhere. */
#ifndef _HPMMAP_AS_FREEZE_H
#define _HPMMAP_AS_FREEZE_H

#include <linux/mm.h>

#include "as/ctx.h"

/**
 * hpmmap_frozen_covers() - is some of a slot frozen?
 * @ctx: the context; mmap_lock held, and while it is the answer stays the same
 * @vma: a mapping of it: only as far as it has a part of the slot; NULL: all of the slot
 * @addr: any address of the slot
 *
 * If so nothing of that may be mapped by page tables: the core may map all that a mapping
 * has of a slot with one entry.
 */
static inline bool hpmmap_frozen_covers(struct hpmmap_ctx *ctx,
					const struct vm_area_struct *vma,
					unsigned long addr)
{
	unsigned long start = addr & SLOT_MASK, end = start + SLOT_SIZE;
	unsigned int nr = ctx->frozen.nr;

	lockdep_assert_held(&ctx->mm->mmap_lock);
	if (likely(!nr))
		return false;
	if (vma) {
		start = max(start, vma->vm_start);
		end = min(end, vma->vm_end);
	}
	while (nr--)
		if (start < ctx->frozen.ranges[nr].end &&
		    end > ctx->frozen.ranges[nr].start)
			return true;
	return false;
}

/*
 * For who looks up afresh what is there: no more where nothing is left to be done but the thaw,
 * which a worker does.
 */
static inline bool hpmmap_frozen_still(struct hpmmap_ctx *ctx,
				       const struct vm_area_struct *vma,
				       unsigned long addr)
{
	return unlikely(hpmmap_frozen_covers(ctx, vma, addr)) &&
	       !smp_load_acquire(&ctx->late.thaw);
}

int hpmmap_freeze(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end);
int hpmmap_freeze_moving(struct hpmmap_ctx *ctx, unsigned long from,
			 unsigned long from_len, unsigned long to,
			 unsigned long to_len);
void hpmmap_thaw(struct hpmmap_ctx *ctx);
vm_fault_t hpmmap_frozen_wait(struct hpmmap_ctx *ctx, int seen, struct vm_fault *vmf);
bool hpmmap_frozen_access(struct hpmmap_ctx *ctx, struct vm_area_struct *vma,
			  unsigned long addr, bool write);

#endif /* _HPMMAP_AS_FREEZE_H */
