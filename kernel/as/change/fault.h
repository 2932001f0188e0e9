/* SPDX-License-Identifier: GPL-2.0 */
/* Faults. */
#ifndef _HPMMAP_AS_CHANGE_FAULT_H
#define _HPMMAP_AS_CHANGE_FAULT_H

#include "as/own/counters.h"

vm_fault_t hpmmap_store_fault(struct hpmmap_ctx *ctx, struct vm_fault *vmf,
			      bool *committed, enum hpmmap_fault *why);
int hpmmap_store_access(struct hpmmap_ctx *ctx, struct vm_area_struct *vma,
			unsigned long addr, void *buf, size_t len, bool write);

#endif /* _HPMMAP_AS_CHANGE_FAULT_H */
