/* SPDX-License-Identifier: GPL-2.0 */
/* Unmapping, for the heap. */
#ifndef _HPMMAP_CALL_MMAP_H
#define _HPMMAP_CALL_MMAP_H

#include "hook.h"

struct hpmmap_ctx;

long hpmmap_handle_munmap(struct hpmmap_ctx *ctx, enum hpmmap_call call,
			  const struct pt_regs *regs);

#endif /* _HPMMAP_CALL_MMAP_H */
