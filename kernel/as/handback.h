/* SPDX-License-Identifier: GPL-2.0 */
/* Memory that Linux gets back. */
#ifndef _HPMMAP_AS_HANDBACK_H
#define _HPMMAP_AS_HANDBACK_H

#include <linux/mm.h>

#include "as/ctx.h"

struct file;

/**
 * hpmmap_handback_covers() - is some of a mapping being handed back?
 * @ctx: the mapping's context
 * @vma: the mapping; mmap_lock held
 *
 * If so nothing of it may be mapped by page tables.
 */
static inline bool hpmmap_handback_covers(struct hpmmap_ctx *ctx,
					  struct vm_area_struct *vma)
{
	unsigned long end = READ_ONCE(ctx->handback.end);

	lockdep_assert_held(&vma->vm_mm->mmap_lock);
	return end && vma->vm_start < end &&
	       vma->vm_end > ctx->handback.start;
}

long hpmmap_handback(struct hpmmap_ctx *ctx, unsigned long start,
		     unsigned long end, bool skip_sealed);
long hpmmap_handback_bound(struct hpmmap_ctx *ctx, unsigned long start,
			   unsigned long end, const struct pt_regs *mbind);
int hpmmap_handback_read(struct hpmmap_ctx *ctx, unsigned long addr, void *buf);
vm_fault_t hpmmap_handback_wait(struct hpmmap_ctx *ctx, struct vm_fault *vmf);
long hpmmap_userfaultfd_ioctl(struct file *file, unsigned int cmd,
			      unsigned long arg);

#endif /* _HPMMAP_AS_HANDBACK_H */
