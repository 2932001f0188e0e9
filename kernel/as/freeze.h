/* SPDX-License-Identifier: GPL-2.0 */
/* Ranges that nobody reaches while their contents go elsewhere. */
#ifndef _HPMMAP_AS_FREEZE_H
#define _HPMMAP_AS_FREEZE_H

#include <linux/mm.h>

#include "as/ctx.h"

/**
 * hpmmap_frozen_covers() - is some of a mapping frozen?
 * @ctx: the mapping's context
 * @vma: the mapping; mmap_lock held
 *
 * If so nothing of it may be mapped by page tables.
 */
static inline bool hpmmap_frozen_covers(struct hpmmap_ctx *ctx,
					struct vm_area_struct *vma)
{
	unsigned int nr = READ_ONCE(ctx->frozen.nr);

	lockdep_assert_held(&vma->vm_mm->mmap_lock);
	while (nr--)
		if (vma->vm_start < ctx->frozen.ranges[nr].end &&
		    vma->vm_end > ctx->frozen.ranges[nr].start)
			return true;
	return false;
}

int hpmmap_freeze(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end);
void hpmmap_freeze_moving(struct hpmmap_ctx *ctx, unsigned long from,
			  unsigned long to, unsigned long len);
void hpmmap_thaw(struct hpmmap_ctx *ctx);
vm_fault_t hpmmap_frozen_wait(struct hpmmap_ctx *ctx, struct vm_fault *vmf);
bool hpmmap_frozen_access(struct hpmmap_ctx *ctx, struct vm_area_struct *vma,
			  bool write);

#endif /* _HPMMAP_AS_FREEZE_H */
