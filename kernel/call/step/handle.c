// SPDX-License-Identifier: GPL-2.0
/*
 * Handlers of system calls, and what they have in common.
 *
 * Each handler stands in for a system call. It runs under ctx->ops, so that
 * no other hooked call of the address space sees it half done. Memory is
 * found before anything is changed: a call that fails has changed nothing.
 *
 * What Linux does with memory of its own may have to wait for another thread
 * (a userfaultfd's monitor, FUSE) that maps memory first: that happens without
 * ctx->ops. Blocks that are left over then are taken back afterwards.
 */
#include "hook.h"
#include "hpmmap.h"
#include "as/own/ctx.h"
#include "as/own/stats.h"
#include "as/map/range.h"
#include "as/map/vma.h"
#include "as/change/change.h"
#include "call/step/extent.h"
#include "call/step/handle.h"

/* What would count as data of a process with a mapping that is made now, in bytes. */
static unsigned long data_after(struct hpmmap_ctx *ctx, unsigned long start,
				unsigned long len)
{
	struct vm_area_struct *vma;
	unsigned long bytes;
	VMA_ITERATOR(vmi, ctx->mm, 0);

	mmap_read_lock(ctx->mm);
	bytes = (ctx->mm->data_vm << PAGE_SHIFT) + len;
	for_each_vma(vmi, vma) {
		if (!hpmmap_vma_is_ours(vma) || !(vma->vm_flags & VM_WRITE))
			continue;
		bytes += vma->vm_end - vma->vm_start;
		/* What is replaced does not count twice. */
		if (start && vma->vm_start < start + len &&
		    vma->vm_end > start)
			bytes -= min(vma->vm_end, start + len) -
				 max(vma->vm_start, start);
	}
	mmap_read_unlock(ctx->mm);
	return bytes;
}

/*
 * Would a mapping exceed RLIMIT_DATA? @start: its address, where it replaces what is there;
 * otherwise 0. The limit is about private writable memory; ours is shared memory to Linux,
 * which does not count it.
 */
bool hpmmap_data_exceeds_limit(struct hpmmap_ctx *ctx, unsigned long start,
			       unsigned long len, unsigned long prot)
{
	unsigned long limit = rlimit(RLIMIT_DATA);

	if (limit == RLIM_INFINITY || !(prot & PROT_WRITE))
		return false;
	/* As Linux does, for Valgrind. */
	if (!limit)
		limit = rlimit_max(RLIMIT_DATA);
	return data_after(ctx, start, len) > limit;
}

/* One more than enum hpmmap_timed; 0 for calls whose time is not taken. */
static const u8 timed[HPMMAP_NR_CALLS] = {
	[HPMMAP_CALL_MUNMAP] = HPMMAP_TIMED_MUNMAP + 1,
	[HPMMAP_CALL_MREMAP] = HPMMAP_TIMED_MREMAP + 1,
	[HPMMAP_CALL_BRK] = HPMMAP_TIMED_BRK + 1,
};

/*
 * May ordinary pages stand in for @nr blocks? Not with policy strict, nor where Linux
 * itself would not promise so much.
 */
bool hpmmap_linux_may_help(struct hpmmap_ctx *ctx, unsigned long nr)
{
	return !ctx->job->strict && compat_enough_memory(nr << SLOT_ORDER);
}

/*
 * Runs a handler for the caller under ctx->ops. Returns what it returns, or an errno that
 * restarts the call, where a signal came while another one was under way.
 */
long hpmmap_handle_in(struct hpmmap_ctx *ctx, enum hpmmap_call call,
		      const struct pt_regs *regs, hpmmap_handler_t handler)
{
	u64 since = get_cycles();
	long ret = hpmmap_ops_lock(ctx);

	if (ret)
		return ret;
	ret = handler(ctx, call, regs);
	if (timed[call])
		hpmmap_count_call(ctx, timed[call] - 1, since);
	hpmmap_ops_unlock(ctx);
	return ret;
}

/* Runs a handler without ctx->ops; the call itself where the caller has no context. */
long hpmmap_handle(enum hpmmap_call call, const struct pt_regs *regs,
		   hpmmap_handler_t handler)
{
	struct hpmmap_ctx *ctx = hpmmap_ctx_get(current->mm);
	long ret;

	if (!ctx)
		return hpmmap_call_orig(call, regs);
	ret = handler(ctx, call, regs);
	hpmmap_ctx_put(ctx);
	return ret;
}

/*
 * hpmmap_handle_in() for a call about the range of its first two arguments, if any of it is
 * ours. If not, the call waits for no other call and keeps none waiting: it may take long
 * (a file is read), or need calls of another thread.
 */
long hpmmap_handle_if_ours(enum hpmmap_call call, const struct pt_regs *regs,
			   hpmmap_handler_t handler)
{
	unsigned long start = regs->di & PAGE_MASK;
	unsigned long end = PAGE_ALIGN(regs->di + regs->si);
	struct hpmmap_ctx *ctx = hpmmap_ctx_get(current->mm);
	long ret = 0;
	bool ours;

	if (!ctx)
		return hpmmap_call_orig(call, regs);
	ours = end > start && hpmmap_range_has_ours(ctx, start, end);
	if (ours)
		ret = hpmmap_extent_leave(ctx, start, end) ?:
		      hpmmap_handle_in(ctx, call, regs, handler);
	hpmmap_ctx_put(ctx);
	return ours ? ret : hpmmap_call_orig(call, regs);
}

/*
 * munmap(2) of a range that may be ours in part, under ctx->ops; what lies beside it in its slots
 * stays mapped.
 */
long hpmmap_unmap(struct hpmmap_ctx *ctx, unsigned long start, unsigned long len)
{
	struct hpmmap_change c = HPMMAP_CHANGE(ctx, start, start + PAGE_ALIGN(len));
	const struct pt_regs regs = { .di = start, .si = len };
	long ret;

	hpmmap_change_begin(&c);
	ret = hpmmap_call_orig(HPMMAP_CALL_MUNMAP, &regs);
	if (!ret) {
		if (hpmmap_change_settle(&c, HPMMAP_GONE, NULL) && c.start &&
		    !((c.start | c.end) & ~SLOT_MASK)) {
			ctx->hole.start = c.start;
			ctx->hole.end = c.end;
		}
	} else {
		/* A mapping may have been cut at one end and not at the other. */
		hpmmap_change_settle(&c, HPMMAP_NOTHING, NULL);
	}
	return ret;
}
