// SPDX-License-Identifier: GPL-2.0
/*
 * mmap, munmap and remap_file_pages of a registered process.
 */
#include "hook.h"
#include "hpmmap.h"
#include "mem/block/block.h"
#include "mem/block/nodes.h"
#include "mem/pool/pool.h"
#include "as/own/ctx.h"
#include "as/own/reserve.h"
#include "as/own/reuse.h"
#include "as/own/stats.h"
#include "as/map/policy.h"
#include "as/map/range.h"
#include "as/map/vma.h"
#include "as/change/change.h"
#include "as/change/fit.h"
#include "fs/files.h"
#include "call/step/extent.h"
#include "call/step/fresh.h"
#include "call/step/handle.h"
#include "call/sys.h"

/* Alignment of a mapping that holds at least one whole unit of it. */
static unsigned long placement_align(struct hpmmap_ctx *ctx, unsigned long len)
{
	if (ctx->job->large && len >= HPMMAP_LARGE_BYTES)
		return HPMMAP_LARGE_BYTES;
	return len >= SLOT_SIZE ? SLOT_SIZE : PAGE_SIZE;
}

/* Flags that a mapping of ours may have; others, MAP_GROWSDOWN too, are Linux's business. */
#define OUR_MAP_FLAGS (MAP_TYPE | MAP_FIXED | MAP_FIXED_NOREPLACE | \
		       MAP_ANONYMOUS | MAP_NORESERVE | MAP_POPULATE | \
		       MAP_NONBLOCK | MAP_STACK | MAP_LOCKED | MAP_32BIT | \
		       MAP_DENYWRITE | MAP_EXECUTABLE | MAP_UNINITIALIZED)

static bool mmap_is_ours(unsigned long addr, unsigned long len, unsigned long flags)
{
	return (flags & MAP_TYPE) == MAP_PRIVATE && flags & MAP_ANONYMOUS &&
	       !(flags & ~OUR_MAP_FLAGS) && PAGE_ALIGN(len) &&
	       PAGE_ALIGN(len) < TASK_SIZE &&
	       !(flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) &&
		 (offset_in_page(addr) || addr > TASK_SIZE - PAGE_ALIGN(len)));
}

/* Whether the last munmap was where Linux looks for a place, too. */
static bool hole_is_usual(struct hpmmap_ctx *ctx)
{
	return ctx->hole.start >= READ_ONCE(ctx->mm->brk) &&
	       ctx->hole.end <= ctx->mm->mmap_base;
}

/* A hole found may be gone when it is used: others map files meanwhile. */
#define HOLE_TRIES 16

static unsigned long mmap_ours(struct hpmmap_ctx *ctx,
			       const struct hpmmap_placement *place,
			       unsigned long addr, unsigned long len,
			       unsigned long prot, unsigned long flags,
			       struct list_head *ahead)
{
	unsigned long align = placement_align(ctx, len);
	/* A stack is used from its end. */
	unsigned long phase = hpmmap_wants_stack(ctx, flags) ? -len & (align - 1) : 0;
	unsigned long ret = -ENOMEM;
	int i;

	if (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE))
		return hpmmap_map_where_fit(ctx, place, addr, len, prot, flags,
				     !(flags & MAP_FIXED_NOREPLACE), ahead);

	for (i = 0; i < HOLE_TRIES; i++) {
		/* What was unmapped last Linux would choose, too, mostly. */
		if (!addr && len == ctx->hole.end - ctx->hole.start &&
		    IS_ALIGNED(ctx->hole.start, align) &&
		    hole_is_usual(ctx) && !(flags & MAP_32BIT))
			addr = ctx->hole.start;
		else
			addr = hpmmap_find_place(ctx, place, addr & PAGE_MASK,
						 len, flags, align, phase);
		if (IS_ERR_VALUE(addr))
			return addr;
		ret = hpmmap_map_where_fit(ctx, place, addr, len, prot, flags, false, ahead);
		if (ret != -EEXIST)
			return ret;
		addr = 0;
	}
	return ret == -EEXIST ? -ENOMEM : ret;
}

/*
 * Is a mapping of a file made in advance, with the program image?
 *
 * MAP_DENYWRITE has no other meaning any more: only the dynamic linker maps shared objects
 * with it.
 */
static bool wants_populated(struct hpmmap_ctx *ctx, unsigned long flags)
{
	return ctx->image && (flags & MAP_TYPE) == MAP_PRIVATE &&
	       flags & MAP_DENYWRITE && !(flags & MAP_ANONYMOUS);
}

/* A mapping of @file, or ordinary memory, which may replace some of ours. Without ctx->ops. */
static long mmap_apart(struct hpmmap_ctx *ctx, const struct pt_regs *regs, struct file *file)
{
	struct hpmmap_change c = HPMMAP_CHANGE(ctx, regs->di, regs->di + PAGE_ALIGN(regs->si));
	bool fixed = regs->r10 & MAP_FIXED && !offset_in_page(c.start) && c.end > c.start;
	struct pt_regs with_flags = *regs;
	long ret = fixed ? hpmmap_change_begin_apart(&c) : 0;

	if (ret)
		return ret;
	if (wants_populated(ctx, regs->r10))
		with_flags.r10 |= MAP_POPULATE;
	ret = file ? vm_mmap(file, regs->di, regs->si, regs->dx,
			     regs->r10 & ~MAP_ANONYMOUS, 0) :
		     hpmmap_call_orig(HPMMAP_CALL_MMAP, &with_flags);
	/* Even if it failed. */
	if (fixed)
		hpmmap_change_settle_apart(&c, HPMMAP_CUT);
	return ret;
}

/* Is a mapping for the process and its children to come from the pools? Not if a block is too much. */
static bool wants_shared(struct hpmmap_ctx *ctx, const struct pt_regs *regs)
{
	unsigned long flags = regs->r10;

	return !READ_ONCE(ctx->shared_linux) && flags & MAP_ANONYMOUS &&
	       (flags & MAP_TYPE) == MAP_SHARED &&
	       !(flags & (MAP_HUGETLB | MAP_GROWSDOWN)) && !offset_in_page(regs->r9) &&
	       !hpmmap_is_reservation(regs->dx, flags) && PAGE_ALIGN(regs->si) - 1 < TASK_SIZE &&
	       (ctx->job->strict || regs->si > HPMMAP_FEW_IN_SLOT * PAGE_SIZE);
}

/* It is a file of its own, under the name that Linux gives it. */
static long mmap_shared(struct hpmmap_ctx *ctx, const struct pt_regs *regs)
{
	struct file *file;
	long ret;

	file = hpmmap_fs_file("dev/zero", PAGE_ALIGN(regs->si), true);
	if (!IS_ERR(file)) {
		ret = mmap_apart(ctx, regs, file);
		fput(file);
	} else if (PTR_ERR(file) == -EINTR) {
		return -EINTR;
	} else if (ctx->job->strict) {
		hpmmap_count_failure(ctx);
		ret = -ENOMEM;
	} else {
		ret = mmap_apart(ctx, regs, NULL);
		if (!IS_ERR_VALUE(ret))
			hpmmap_count_fallback(ctx, HPMMAP_FALLBACK_MMAP, PAGE_ALIGN(regs->si));
	}
	return ret;
}

/*
 * Clearing is nearly all of the work, and needs neither the address nor any
 * lock: so many threads can map at once.
 */
static void mmap_ahead(struct hpmmap_ctx *ctx, const struct pt_regs *regs,
		       const struct hpmmap_placement *place,
		       struct list_head *ahead)
{
	unsigned long nr = slot_of(PAGE_ALIGN(regs->si)), flags = regs->r10;
	struct hpmmap_block *block;
	LIST_HEAD(clean);

	if (hpmmap_is_reservation(regs->dx, flags) || ctx->job->first_touch || hpmmap_wants_stack(ctx, flags) ||
	    !(nr || hpmmap_wants_reuse(regs->dx, flags)))
		return;
	if (hpmmap_wants_reuse(regs->dx, flags)) {
		/* For a slot covered in part, too. */
		hpmmap_reuse_take(ctx, place,
				  slot_of(PAGE_ALIGN(regs->si) + SLOT_SIZE - 1),
				  ahead);
		list_for_each_entry(block, ahead, link)
			if (nr)
				nr--;
	}
	/* The address says whose turn it is, or what is there already. */
	if (place->in_turn || flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) ||
	    hpmmap_reserve(ctx, place, NO_SLOT, nr, true, &clean))
		return;
	hpmmap_pool_clear(&ctx->owner, &clean, NO_SLOT, NO_SLOT);
	/* What is not cleared is not taken: the call ends. */
	list_splice_tail(&clean, ahead);
}

/*
 * Maps memory of the pools. @asked: as @regs, without an address that was chosen for it. @without:
 * out: the pools have too little.
 */
static long mmap_pools(struct hpmmap_ctx *ctx, const struct pt_regs *asked,
		       const struct pt_regs *regs, bool *without)
{
	unsigned long addr = regs->di, len = PAGE_ALIGN(regs->si);
	unsigned long prot = regs->dx, flags = regs->r10;
	struct hpmmap_placement place;
	LIST_HEAD(ahead);
	long ret = 0;
	u64 since;

	hpmmap_placement_get(ctx->job, NULL, &place);
	mmap_ahead(ctx, asked, &place, &ahead);
	since = get_cycles();
	if (flags & MAP_FIXED && !(flags & MAP_FIXED_NOREPLACE))
		ret = hpmmap_range_unwatch(addr, addr + len);
	ret = ret ?: hpmmap_ops_lock(ctx);
	if (!ret) {
		ret = -ENOMEM;
		if (!hpmmap_data_exceeds_limit(ctx, flags & MAP_FIXED ? addr : 0, len, prot)) {
			ret = mmap_ours(ctx, &place, addr, len, prot, flags, &ahead);
			*without = ret == -ENOMEM;
		}
		hpmmap_count_call(ctx, HPMMAP_TIMED_MMAP, since);
		hpmmap_ops_unlock(ctx);
	}
	if (unlikely(!list_empty(&ahead))) {
		hpmmap_reuse_return(ctx, &ahead);
		hpmmap_pool_free_unused(&ahead);
	}
	return ret;
}

/* Others may get what there was just now. */
#define SHORT_TRIES 4

/*
 * Where a mapping goes that the pools have too little for, and how far they reach.
 * Returns an address or an errno.
 */
static unsigned long short_place(struct hpmmap_ctx *ctx,
				 const struct pt_regs *regs, unsigned long *mid)
{
	unsigned long addr = regs->di, len = PAGE_ALIGN(regs->si);
	struct hpmmap_placement place;
	long ret = hpmmap_ops_lock(ctx);

	if (ret)
		return ret;
	hpmmap_placement_get(ctx->job, NULL, &place);
	if (!(regs->r10 & (MAP_FIXED | MAP_FIXED_NOREPLACE)))
		addr = hpmmap_find_place(ctx, &place, addr & PAGE_MASK, len,
					 regs->r10, placement_align(ctx, len), 0);
	if (!IS_ERR_VALUE(addr))
		*mid = hpmmap_short_end(ctx, &place, addr, addr + len);
	hpmmap_ops_unlock(ctx);
	return addr;
}

/*
 * Of a mapping that the pools have too little for, what they have, from its start on,
 * and Linux's memory for the rest: two mappings side by side. Linux's first: what it
 * refuses has changed nothing then, and took nothing of the pools. -ENOMEM where
 * that cannot be, -EAGAIN where another task was quicker.
 */
static long mmap_short(struct hpmmap_ctx *ctx, const struct pt_regs *regs)
{
	struct pt_regs asked = *regs, part = *regs, rest = *regs;
	bool fixed = (regs->r10 & (MAP_FIXED | MAP_FIXED_NOREPLACE)) == MAP_FIXED, without = false;
	unsigned long addr, mid = 0;
	long ret;

	addr = short_place(ctx, regs, &mid);
	if (IS_ERR_VALUE(addr))
		return addr;
	if (mid == addr)
		return -ENOMEM;
	rest.di = mid;
	rest.si = addr + PAGE_ALIGN(regs->si) - mid;
	if (!fixed)
		rest.r10 |= MAP_FIXED_NOREPLACE;
	if (rest.si) {
		ret = mmap_apart(ctx, &rest, NULL);
		if (IS_ERR_VALUE(ret))
			return ret == -EEXIST ? -EAGAIN : ret;
	}
	asked.si = part.si = mid - addr;
	part.di = addr;
	if (!fixed)
		part.r10 |= MAP_FIXED_NOREPLACE;
	ret = mmap_pools(ctx, &asked, &part, &without);
	if (!IS_ERR_VALUE(ret)) {
		if (rest.si)
			hpmmap_count_fallback(ctx, HPMMAP_FALLBACK_MMAP, rest.si);
		return addr;
	}
	/*
	 * Where something is replaced, nothing may be left open until all is Linux's, and
	 * what is there already may have been written to.
	 */
	if (fixed && ret == -ENOMEM) {
		ret = mmap_apart(ctx, &part, NULL);
		if (!IS_ERR_VALUE(ret))
			hpmmap_count_fallback(ctx, HPMMAP_FALLBACK_MMAP, PAGE_ALIGN(regs->si));
	}
	if (fixed)
		return ret;
	if (rest.si)
		vm_munmap(rest.di, rest.si);
	return ret == -ENOMEM || ret == -EEXIST ? -EAGAIN : ret;
}

/* As much of the pools as they have, and Linux's for the rest. */
static long mmap_without(struct hpmmap_ctx *ctx, const struct pt_regs *regs)
{
	long ret = -EAGAIN;
	int i;

	for (i = 0; i < SHORT_TRIES && ret == -EAGAIN; i++)
		ret = mmap_short(ctx, regs);
	if (ret != -ENOMEM && ret != -EAGAIN)
		return ret;
	ret = mmap_apart(ctx, regs, NULL);
	if (!IS_ERR_VALUE(ret))
		hpmmap_count_fallback(ctx, HPMMAP_FALLBACK_MMAP, PAGE_ALIGN(regs->si));
	else if (ret == -ENOMEM)
		hpmmap_count_failure(ctx);
	return ret;
}

static long handle_mmap(struct hpmmap_ctx *ctx, enum hpmmap_call call, const struct pt_regs *regs)
{
	bool ours = mmap_is_ours(regs->di, regs->si, regs->r10) && !offset_in_page(regs->r9);
	bool without = false;
	long ret;

	ret = ours ? hpmmap_extent_mmap(ctx, regs) : HPMMAP_NO_ANSWER;
	if (ret != HPMMAP_NO_ANSWER)
		return ret;
	ret = regs->r10 & (MAP_FIXED | MAP_FIXED_NOREPLACE) ?
	      hpmmap_extent_leave(ctx, regs->di, regs->di + PAGE_ALIGN(regs->si)) : 0;
	if (ret)
		return ret;
	if (!ours)
		return wants_shared(ctx, regs) ? mmap_shared(ctx, regs) :
						 mmap_apart(ctx, regs, NULL);
	ret = mmap_pools(ctx, regs, regs, &without);
	return without && !ctx->job->strict ? mmap_without(ctx, regs) : ret;
}

long hpmmap_sys_mmap(const struct pt_regs *regs)
{
	return hpmmap_handle(HPMMAP_CALL_MMAP, regs, handle_mmap);
}

static long handle_munmap(struct hpmmap_ctx *ctx, enum hpmmap_call call, const struct pt_regs *regs)
{
	return hpmmap_unmap(ctx, regs->di, regs->si);
}

/* Nothing of it is ours, but another thread may map there at this moment. */
static long munmap_linux(struct hpmmap_ctx *ctx, const struct pt_regs *regs)
{
	struct hpmmap_change c = HPMMAP_CHANGE(ctx, regs->di, regs->di + PAGE_ALIGN(regs->si));
	long ret = hpmmap_call_orig(HPMMAP_CALL_MUNMAP, regs);

	if (!ret)
		hpmmap_change_settle_apart(&c, HPMMAP_CUT);
	return ret;
}

static long munmap_apart(struct hpmmap_ctx *ctx, enum hpmmap_call call, const struct pt_regs *regs)
{
	unsigned long start = regs->di, end = start + PAGE_ALIGN(regs->si);
	enum hpmmap_range_what what;
	long ret;

	/* What cannot be right is Linux's to refuse. */
	if (offset_in_page(start) || end <= start || end > TASK_SIZE)
		return hpmmap_call_orig(call, regs);
	ret = hpmmap_extent_munmap(ctx, start, end);
	if (ret != HPMMAP_NO_ANSWER)
		return ret;
	what = hpmmap_range_look(ctx, start, end);
	if (what == HPMMAP_RANGE_MIXED)
		hpmmap_range_unwatch(start, end);
	return what == HPMMAP_RANGE_LINUX ? munmap_linux(ctx, regs) :
	       hpmmap_handle_in(ctx, call, regs, handle_munmap);
}

long hpmmap_sys_munmap(const struct pt_regs *regs)
{
	return hpmmap_handle(HPMMAP_CALL_MUNMAP, regs, munmap_apart);
}

/* As of all private memory: not for ours. */
static long handle_remap_file_pages(struct hpmmap_ctx *ctx, enum hpmmap_call call,
				    const struct pt_regs *regs)
{
	unsigned long start = regs->di & PAGE_MASK;

	return hpmmap_range_has_ours(ctx, start, start + PAGE_SIZE) ? -EINVAL :
	       hpmmap_call_orig(call, regs);
}

long hpmmap_sys_remap_file_pages(const struct pt_regs *regs)
{
	return hpmmap_handle(HPMMAP_CALL_REMAP_FILE_PAGES, regs, handle_remap_file_pages);
}
