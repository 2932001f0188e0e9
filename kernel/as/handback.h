/* SPDX-License-Identifier: GPL-2.0 */
/* Memory that Linux gets back. */
#ifndef _HPMMAP_AS_HANDBACK_H
#define _HPMMAP_AS_HANDBACK_H

#include <linux/mm.h>

struct file;
struct hpmmap_ctx;

long hpmmap_handback(struct hpmmap_ctx *ctx, unsigned long start,
		     unsigned long end);
long hpmmap_handback_bound(struct hpmmap_ctx *ctx, unsigned long start,
			   unsigned long end, const struct pt_regs *mbind);
int hpmmap_handback_read(struct hpmmap_ctx *ctx, unsigned long addr, void *buf);
bool hpmmap_handback_covers(struct hpmmap_ctx *ctx, struct vm_area_struct *vma);
vm_fault_t hpmmap_handback_wait(struct hpmmap_ctx *ctx, struct vm_fault *vmf);
long hpmmap_userfaultfd_ioctl(struct file *file, unsigned int cmd,
			      unsigned long arg);

#endif /* _HPMMAP_AS_HANDBACK_H */
