/* SPDX-License-Identifier: GPL-2.0 */
/* Handlers of system calls. */
#ifndef _HPMMAP_CALL_STEP_HANDLE_H
#define _HPMMAP_CALL_STEP_HANDLE_H

#include "as/own/ctx.h"
#include "hook.h"

/* What stands in for a system call; with the caller's context. */
typedef long (*hpmmap_handler_t)(struct hpmmap_ctx *ctx,
				 enum hpmmap_call call,
				 const struct pt_regs *regs);
long hpmmap_handle_in(struct hpmmap_ctx *ctx, enum hpmmap_call call,
		      const struct pt_regs *regs, hpmmap_handler_t handler);
long hpmmap_handle(enum hpmmap_call call, const struct pt_regs *regs,
		   hpmmap_handler_t handler);
long hpmmap_handle_if_ours(enum hpmmap_call call, const struct pt_regs *regs,
			   hpmmap_handler_t handler);

long hpmmap_unmap(struct hpmmap_ctx *ctx, unsigned long start, unsigned long len);
bool hpmmap_data_exceeds_limit(struct hpmmap_ctx *ctx, unsigned long start,
			       unsigned long len, unsigned long prot);
bool hpmmap_linux_may_help(struct hpmmap_ctx *ctx, unsigned long nr);

#endif /* _HPMMAP_CALL_STEP_HANDLE_H */
