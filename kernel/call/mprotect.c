// SPDX-License-Identifier: GPL-2.0
/*
 * mprotect and pkey_mprotect: what becomes accessible gets its memory.
 */
#include "hook.h"
#include "hpmmap.h"
#include "mem/pool/pool.h"
#include "as/own/ctx.h"
#include "as/own/stats.h"
#include "as/map/vma.h"
#include "as/store/store.h"
#include "as/change/change.h"
#include "as/change/few.h"
#include "as/change/fit.h"
#include "call/step/fresh.h"
#include "call/step/handle.h"
#include "call/sys.h"

/* Would what becomes writable exceed RLIMIT_DATA? */
static bool mprotect_exceeds_limit(struct hpmmap_ctx *ctx, unsigned long start,
				   unsigned long end, unsigned long prot)
{
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, ctx->mm, start);
	unsigned long bytes = 0;

	if (rlimit(RLIMIT_DATA) == RLIM_INFINITY || !(prot & PROT_WRITE))
		return false;
	mmap_read_lock(ctx->mm);
	for_each_vma_range(vmi, vma, end)
		if (hpmmap_vma_is_ours(vma) && !(vma->vm_flags & VM_WRITE))
			bytes += min(end, vma->vm_end) -
				 max(start, vma->vm_start);
	mmap_read_unlock(ctx->mm);
	return bytes && hpmmap_data_exceeds_limit(ctx, 0, bytes, prot);
}

/* For the blocks that a commit of a range needs. Linux promises nothing for what is not reserved. */
static bool mprotect_linux_may_help(struct hpmmap_ctx *ctx, unsigned long start,
				    unsigned long end)
{
	unsigned long n = 0, unreserved = 0, last = ULONG_MAX;
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, ctx->mm, start);

	lockdep_assert_held(&ctx->ops);
	mmap_read_lock(ctx->mm);
	for_each_vma_range(vmi, vma, end) {
		unsigned long lo = max(start, vma->vm_start);
		unsigned long hi = min(end, vma->vm_end), nr;

		if (!hpmmap_vma_is_ours(vma))
			continue;
		lo = max(lo, hpmmap_vma_given(ctx, vma));
		if (lo >= hi)
			continue;
		nr = hpmmap_store_missing(ctx, lo, hi);
		/* Two mappings in one slot need one block. */
		if (last == slot_of(lo) &&
		    !hpmmap_store_load(ctx, slot_of(lo)))
			nr--;
		last = slot_of(hi - 1);
		n += nr;
		if (vma->vm_flags & VM_NORESERVE)
			unreserved += nr;
	}
	mmap_read_unlock(ctx->mm);
	return hpmmap_linux_may_help(ctx, n - unreserved);
}

static long handle_mprotect(struct hpmmap_ctx *ctx, enum hpmmap_call call,
			    const struct pt_regs *regs)
{
	unsigned long start = regs->di, len = PAGE_ALIGN(regs->si);
	unsigned long prot = regs->dx, end = start + len;
	bool commit = prot & (PROT_READ | PROT_WRITE | PROT_EXEC);
	struct hpmmap_change c;
	LIST_HEAD(blocks);
	long ret;

	/* A range that cannot be right is Linux's to refuse. */
	if (offset_in_page(start) || !len || end <= start || end > TASK_SIZE)
		return hpmmap_call_orig(call, regs);
	if (mprotect_exceeds_limit(ctx, start, end, prot))
		return -ENOMEM;
	if (commit && !hpmmap_few_begin(ctx, start, end))
		hpmmap_few_end(ctx, start, end, true);
	c = (struct hpmmap_change) { .ctx = ctx, .start = start, .end = end };
	if (commit && hpmmap_policy_alloc_mapped(ctx, start, end, &blocks)) {
		if (!mprotect_linux_may_help(ctx, start, end)) {
			hpmmap_count_refusal(ctx);
			return -ENOMEM;
		}
		/* Faults take what the pools have, slot by slot, then ordinary memory. */
		c.lazy = true;
	}
	ret = hpmmap_blocks_clear(ctx, start, end, &blocks);
	if (ret) {
		hpmmap_pool_free_unused(&blocks);
		return ret;
	}
	hpmmap_change_begin(&c);
	ret = hpmmap_call_orig(call, regs);
	/* An error may come after a part of the range was changed. */
	hpmmap_change_settle(&c, commit ? HPMMAP_KEPT : HPMMAP_NOTHING, &blocks);
	hpmmap_pool_free_unused(&blocks);
	return ret;
}

long hpmmap_sys_mprotect(const struct pt_regs *regs)
{
	return hpmmap_handle_if_ours(HPMMAP_CALL_MPROTECT, regs,
				     handle_mprotect);
}

long hpmmap_sys_pkey_mprotect(const struct pt_regs *regs)
{
	return hpmmap_handle_if_ours(HPMMAP_CALL_PKEY_MPROTECT, regs,
				     handle_mprotect);
}
