/* SPDX-License-Identifier: GPL-2.0 */
/* Handlers of system calls. */
#ifndef _HPMMAP_CALL_HANDLE_H
#define _HPMMAP_CALL_HANDLE_H

#include <linux/ptrace.h>

#include "as/ctx.h"
#include "hook.h"

struct kernel_clone_args;

long hpmmap_sys_mmap(const struct pt_regs *regs);
long hpmmap_sys_munmap(const struct pt_regs *regs);
long hpmmap_sys_mprotect(const struct pt_regs *regs);
long hpmmap_sys_pkey_mprotect(const struct pt_regs *regs);
long hpmmap_sys_mremap(const struct pt_regs *regs);
long hpmmap_sys_madvise(const struct pt_regs *regs);
long hpmmap_sys_brk(const struct pt_regs *regs);
long hpmmap_sys_mlock(const struct pt_regs *regs);
long hpmmap_sys_mlock2(const struct pt_regs *regs);
long hpmmap_sys_munlock(const struct pt_regs *regs);
long hpmmap_sys_munlockall(const struct pt_regs *regs);
long hpmmap_sys_mbind(const struct pt_regs *regs);
long hpmmap_sys_move_pages(const struct pt_regs *regs);
long hpmmap_sys_migrate_pages(const struct pt_regs *regs);
long hpmmap_sys_remap_file_pages(const struct pt_regs *regs);
pid_t hpmmap_kernel_clone(struct kernel_clone_args *args);
void hpmmap_fork_copied(struct list_head *events);
long hpmmap_userfaultfd_ioctl(struct file *file, unsigned int cmd,
			      unsigned long arg);

/* Of a handler: hpmmap_range_unwatch(), then once more. No call returns it. */
#define HPMMAP_REDO (-EPROBE_DEFER)

/* A handler with the caller's context, under ctx->ops. */
typedef long (*hpmmap_handler_t)(struct hpmmap_ctx *ctx,
				 enum hpmmap_call call,
				 const struct pt_regs *regs);
long hpmmap_handle(enum hpmmap_call call, const struct pt_regs *regs,
		   hpmmap_handler_t handler);
long hpmmap_handle_if_ours(enum hpmmap_call call, const struct pt_regs *regs,
			   hpmmap_handler_t handler);
long hpmmap_ops_lock(struct hpmmap_ctx *ctx);
void hpmmap_ops_unlock(struct hpmmap_ctx *ctx);

bool hpmmap_range_has_ours(struct hpmmap_ctx *ctx, unsigned long start,
			   unsigned long end);
bool hpmmap_range_is_watched(unsigned long start, unsigned long end);
long hpmmap_range_unwatch(unsigned long start, unsigned long end);
long hpmmap_replacing_begin(struct hpmmap_ctx *ctx);
void hpmmap_replacing_end(struct hpmmap_ctx *ctx);
void hpmmap_range_changed_after(struct hpmmap_ctx *ctx, unsigned long start,
				unsigned long end, bool ours);
bool hpmmap_data_exceeds_limit(struct hpmmap_ctx *ctx, unsigned long start,
			       unsigned long len, unsigned long prot);
unsigned long hpmmap_map_fresh(struct hpmmap_ctx *ctx, unsigned long addr,
			       unsigned long len, unsigned long prot,
			       unsigned long flags, bool fixed,
			       struct list_head *ahead);
unsigned long hpmmap_find_place(struct hpmmap_ctx *ctx,
				const struct hpmmap_placement *place,
				unsigned long hint, unsigned long len,
				unsigned long flags, unsigned long align,
				unsigned long phase);
bool hpmmap_linux_may_help(struct hpmmap_ctx *ctx, unsigned long nr);

#endif /* _HPMMAP_CALL_HANDLE_H */
