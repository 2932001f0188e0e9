// SPDX-License-Identifier: GPL-2.0
/*
 * What mmap, munmap, mprotect, madvise and brk mean for a registered process.
 *
 * Each handler stands in for a system call. It runs under ctx->ops, so that
 * no other hooked call of the address space sees it half done. Memory is
 * found before anything is changed: a call that fails has changed nothing.
 *
 * What Linux does with memory of its own may have to wait for another thread
 * (a userfaultfd's monitor, FUSE) that maps memory first: that happens without
 * ctx->ops. Blocks that are left over then are taken back afterwards.
 */
#include <linux/mman.h>
#include <linux/mmu_context.h>
#include <linux/resource.h>
#include <linux/sched/signal.h>
#include <linux/syscalls.h>
#include <linux/userfaultfd_k.h>

#include "hook.h"
#include "hpmmap.h"
#include "mem/block.h"
#include "mem/buddy.h"
#include "mem/placement.h"
#include "mem/pool.h"
#include "as/counters.h"
#include "as/ctx.h"
#include "as/handback.h"
#include "as/policy.h"
#include "as/reserve.h"
#include "as/reuse.h"
#include "as/stats.h"
#include "as/store.h"
#include "as/vma.h"
#include "call/handle.h"
#include "task/image.h"

/* Alignment of a mapping that holds at least one whole unit of it. */
static unsigned long placement_align(struct hpmmap_ctx *ctx, unsigned long len)
{
	if (ctx->job->large && len >= HPMMAP_LARGE_BYTES)
		return HPMMAP_LARGE_BYTES;
	return len >= SLOT_SIZE ? SLOT_SIZE : PAGE_SIZE;
}

/* Where the main stack is, if it is ours; mmap_lock held. */
static void find_stack(struct mm_struct *mm, unsigned long *start,
		       unsigned long *end)
{
	struct vm_area_struct *vma = vma_lookup(mm, mm->start_stack);

	*start = *end = mm->start_stack;
	for (; vma && hpmmap_vma_is_ours(vma); vma = vma_lookup(mm, *end))
		*end = vma->vm_end;
	while ((vma = vma_lookup(mm, *start - 1)) && hpmmap_vma_is_ours(vma))
		*start = vma->vm_start;
}

/**
 * hpmmap_data_exceeds_limit() - would a mapping exceed RLIMIT_DATA?
 * @ctx: the caller's context
 * @start: its address, where it replaces what is there; otherwise 0
 * @len: its length
 * @prot: its PROT_*
 *
 * The limit is about private writable memory but the main stack; ours is
 * shared memory to Linux, which does not count it.
 */
bool hpmmap_data_exceeds_limit(struct hpmmap_ctx *ctx, unsigned long start,
			       unsigned long len, unsigned long prot)
{
	unsigned long limit = rlimit(RLIMIT_DATA), bytes;
	unsigned long stack_start, stack_end;
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, ctx->mm, 0);

	if (limit == RLIM_INFINITY || !(prot & PROT_WRITE))
		return false;
	/* As Linux does, for Valgrind. */
	if (!limit)
		limit = rlimit_max(RLIMIT_DATA);
	mmap_read_lock(ctx->mm);
	find_stack(ctx->mm, &stack_start, &stack_end);
	bytes = (ctx->mm->data_vm << PAGE_SHIFT) + len;
	for_each_vma(vmi, vma) {
		if (!hpmmap_vma_is_ours(vma) || !(vma->vm_flags & VM_WRITE) ||
		    (vma->vm_start >= stack_start && vma->vm_end <= stack_end))
			continue;
		bytes += vma->vm_end - vma->vm_start;
		/* What is replaced does not count twice. */
		if (start && vma->vm_start < start + len &&
		    vma->vm_end > start)
			bytes -= min(vma->vm_end, start + len) -
				 max(vma->vm_start, start);
	}
	mmap_read_unlock(ctx->mm);
	return bytes > limit;
}

/**
 * hpmmap_ops_lock() - wait until no other call of the address space is under way
 * @ctx: the caller's context
 *
 * Return: 0, or an errno that restarts the call, where there is a signal.
 */
long hpmmap_ops_lock(struct hpmmap_ctx *ctx)
{
	u64 since;
	int ret;

	/* A lock that is free is had without a look at signals. */
	if (unlikely(fatal_signal_pending(current)))
		return -ERESTARTNOINTR;
	if (likely(!mutex_is_locked(&ctx->ops)))
		return mutex_lock_interruptible(&ctx->ops) ?
		       -ERESTARTNOINTR : 0;
	since = get_cycles();
	ret = mutex_lock_interruptible(&ctx->ops);
	hpmmap_count_stall(ctx->job, HPMMAP_STALL_CALLS,
			   get_cycles() - since);
	return ret ? -ERESTARTNOINTR : 0;
}

void hpmmap_ops_unlock(struct hpmmap_ctx *ctx)
{
	hpmmap_count_held(ctx);
	mutex_unlock(&ctx->ops);
}

/* One more than enum hpmmap_timed; 0 for calls whose time is not taken. */
static const u8 timed[HPMMAP_NR_CALLS] = {
	[HPMMAP_CALL_MUNMAP] = HPMMAP_TIMED_MUNMAP + 1,
	[HPMMAP_CALL_MREMAP] = HPMMAP_TIMED_MREMAP + 1,
	[HPMMAP_CALL_BRK] = HPMMAP_TIMED_BRK + 1,
};

/**
 * hpmmap_linux_may_help() - may pages of Linux stand in for blocks?
 * @ctx: the caller's context
 * @nr: how many blocks there are not
 *
 * Not with policy strict, nor where Linux itself would not promise so much.
 */
bool hpmmap_linux_may_help(struct hpmmap_ctx *ctx, unsigned long nr)
{
	return !ctx->job->strict && compat_enough_memory(nr << SLOT_ORDER);
}

/**
 * hpmmap_handle() - run a handler for the caller
 * @call: the system call
 * @regs: its arguments
 * @handler: runs under ctx->ops
 *
 * Return: what the handler returns; an errno that restarts the call where a
 * signal came while another one was under way.
 */
long hpmmap_handle(enum hpmmap_call call, const struct pt_regs *regs,
		   hpmmap_handler_t handler)
{
	struct hpmmap_ctx *ctx = hpmmap_ctx_get(current->mm);
	u64 since = get_cycles();
	long ret;

	if (!ctx)
		return hpmmap_call_orig(call, regs);
	ret = hpmmap_ops_lock(ctx);
	if (!ret) {
		ret = handler(ctx, call, regs);
		if (timed[call])
			hpmmap_count_call(ctx, timed[call] - 1, since);
		hpmmap_ops_unlock(ctx);
	}
	hpmmap_ctx_put(ctx);
	return ret;
}

/* Is a mapping of a range ours? */
bool hpmmap_range_has_ours(struct hpmmap_ctx *ctx, unsigned long start,
			   unsigned long end)
{
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, ctx->mm, start);
	bool ret = false;

	mmap_read_lock(ctx->mm);
	for_each_vma_range(vmi, vma, end) {
		ret = hpmmap_vma_is_ours(vma);
		if (ret)
			break;
	}
	mmap_read_unlock(ctx->mm);
	return ret;
}

/**
 * hpmmap_handle_if_ours() - hpmmap_handle(), where a range is ours
 * @call: a system call about the range of its first two arguments
 * @regs: its arguments
 * @handler: runs under ctx->ops
 *
 * If nothing of the range is ours, the call waits for nobody and keeps nobody
 * waiting: it may take long (a file is read), or need calls of another thread.
 *
 * Return: what the handler or the call returns.
 */
long hpmmap_handle_if_ours(enum hpmmap_call call, const struct pt_regs *regs,
			   hpmmap_handler_t handler)
{
	unsigned long start = regs->di & PAGE_MASK;
	unsigned long end = PAGE_ALIGN(regs->di + regs->si);
	struct hpmmap_ctx *ctx = hpmmap_ctx_get(current->mm);
	bool ours;

	if (!ctx)
		return hpmmap_call_orig(call, regs);
	ours = end > start && hpmmap_range_has_ours(ctx, start, end);
	hpmmap_ctx_put(ctx);
	return ours ? hpmmap_handle(call, regs, handler) :
		      hpmmap_call_orig(call, regs);
}

/* What Linux has done is to be completed: only who is being killed need not. */
static bool ops_lock_after(struct hpmmap_ctx *ctx)
{
	return !mutex_lock_killable(&ctx->ops);
}

static void repair_after(struct hpmmap_ctx *ctx, unsigned long start,
			 unsigned long end)
{
	if (!ops_lock_after(ctx))
		return;
	hpmmap_vma_repair(ctx, start & SLOT_MASK, ALIGN(end, SLOT_SIZE));
	hpmmap_ops_unlock(ctx);
}

/**
 * hpmmap_range_changed_after() - Linux has changed mappings without ctx->ops
 * @ctx: the caller's context, ctx->ops not held
 * @start: start of what it has changed, page aligned
 * @end: its end
 * @ours: some of it was ours before; otherwise another thread may have mapped
 *	memory of ours there meanwhile, which is gone
 */
void hpmmap_range_changed_after(struct hpmmap_ctx *ctx, unsigned long start,
				unsigned long end, bool ours)
{
	if (!ours && !hpmmap_store_has_orphans(ctx, start, end))
		return;
	if (!ops_lock_after(ctx))
		return;
	hpmmap_vma_range_changed(ctx, start, end);
	hpmmap_ops_unlock(ctx);
}

/* The next mapping of Linux's that a userfaultfd watches; false if there is none. */
static bool find_watched(unsigned long *start, unsigned long *end)
{
	struct mm_struct *mm = current->mm;
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, mm, *start);
	bool found = false;

	mmap_read_lock(mm);
	for_each_vma_range(vmi, vma, *end) {
		if (hpmmap_vma_is_ours(vma) || !userfaultfd_armed(vma))
			continue;
		*start = max(*start, vma->vm_start);
		*end = min(*end, vma->vm_end);
		found = true;
		break;
	}
	mmap_read_unlock(mm);
	return found;
}

/* Does a userfaultfd watch any of the caller's range? */
bool hpmmap_range_is_watched(unsigned long start, unsigned long end)
{
	return find_watched(&start, &end);
}

/**
 * hpmmap_range_unwatch() - unmap what a userfaultfd watches
 * @start: start of a range of the caller that is about to be unmapped
 * @end: its end
 *
 * Its monitor is told, and may have to map memory before it listens: so
 * ctx->ops is not held. The place stays taken, by a mapping without access.
 *
 * Return: 0, or an errno of mmap(2): who unmaps it next would fail, too.
 */
long hpmmap_range_unwatch(unsigned long start, unsigned long end)
{
	unsigned long lo = start, hi = end, ret;

	while (lo < end && find_watched(&lo, &hi)) {
		if (fatal_signal_pending(current))
			return -EINTR;
		ret = vm_mmap(NULL, lo, hi - lo, PROT_NONE, MAP_PRIVATE |
			      MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, 0);
		if (IS_ERR_VALUE(ret))
			return ret;
		lo = hi;
		hi = end;
	}
	return 0;
}

/**
 * hpmmap_replacing_begin() - Linux is about to replace memory of ours
 * @ctx: the caller's context, ctx->ops not held, nor during Linux's call
 *
 * Meanwhile nobody maps a slot anew who has found it to be ours.
 *
 * Return: 0, and hpmmap_replacing_end() is due; or an errno that restarts the
 * call.
 */
long hpmmap_replacing_begin(struct hpmmap_ctx *ctx)
{
	long ret = hpmmap_ops_lock(ctx);

	if (ret)
		return ret;
	atomic_inc(&ctx->nr_replacing);
	hpmmap_ops_unlock(ctx);
	return 0;
}

void hpmmap_replacing_end(struct hpmmap_ctx *ctx)
{
	atomic_dec(&ctx->nr_replacing);
}

/* mmap */

/* Flags that a mapping of ours may have; others are Linux's business. */
#define OUR_MAP_FLAGS (MAP_TYPE | MAP_FIXED | MAP_FIXED_NOREPLACE | \
		       MAP_ANONYMOUS | MAP_NORESERVE | MAP_POPULATE | \
		       MAP_NONBLOCK | MAP_STACK | MAP_LOCKED | MAP_32BIT | \
		       MAP_DENYWRITE | MAP_EXECUTABLE | MAP_UNINITIALIZED)

/* What vm_mmap() is told. */
#define PASSED_MAP_FLAGS (MAP_NORESERVE | MAP_LOCKED)

static bool mmap_is_ours(unsigned long addr, unsigned long len,
			 unsigned long flags)
{
	return (flags & MAP_TYPE) == MAP_PRIVATE && flags & MAP_ANONYMOUS &&
	       !(flags & ~OUR_MAP_FLAGS) && PAGE_ALIGN(len) &&
	       PAGE_ALIGN(len) < TASK_SIZE &&
	       !(flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) &&
		 (offset_in_page(addr) || addr > TASK_SIZE - PAGE_ALIGN(len)));
}

/* No memory until it is committed by mprotect(2) or mapped over. */
static bool is_reservation(unsigned long prot, unsigned long flags)
{
	return !(prot & (PROT_READ | PROT_WRITE | PROT_EXEC)) ||
	       (flags & (MAP_NORESERVE | MAP_POPULATE)) == MAP_NORESERVE;
}

/*
 * Clears the blocks for the slots that a range covers wholly, before any lock
 * that others wait for is taken. Returns 0 or -EINTR if the caller is being
 * killed, and the call has to end with nothing changed.
 */
static int blocks_clear(struct hpmmap_ctx *ctx, unsigned long start,
			 unsigned long end, struct list_head *blocks)
{
	struct hpmmap_block *block;

	/* Those will be cleared by who touches them. */
	if (ctx->job->first_touch)
		return 0;
	list_for_each_entry(block, blocks, link) {
		if (fatal_signal_pending(current))
			return -EINTR;
		if (block->slot >= slot_of(start + SLOT_SIZE - 1) &&
		    block->slot < slot_of(end) &&
		    bitmap_full(block->stale, SLOT_PAGES))
			hpmmap_block_clear(&ctx->owner, block);
	}
	return 0;
}

/* Will a new mapping find a block in a slot, and keep it? */
static bool slot_is_kept(struct hpmmap_ctx *ctx, unsigned long slot)
{
	return hpmmap_store_load(ctx, slot) &&
	       !xa_get_mark(&ctx->store, slot, SLOT_SHARED);
}

/*
 * Blocks for the slots of a new mapping that have none. They take those of
 * @ahead first, slots covered in part only what was kept for reuse, from the
 * end. Where the place is not @fixed, no whole slot has a block.
 */
static int blocks_find(struct hpmmap_ctx *ctx, unsigned long start,
		       unsigned long end, bool fixed, struct list_head *ahead,
		       struct list_head *blocks)
{
	unsigned long addr = start, next;
	struct hpmmap_block *block, *last;
	int ret = 0;

	for (; !ret && addr < end && ahead && !list_empty(ahead); addr = next) {
		unsigned int first = page_in_slot(addr), nr;

		next = min(end, (addr & SLOT_MASK) + SLOT_SIZE);
		nr = (next - addr) >> PAGE_SHIFT;
		if ((fixed || nr < SLOT_PAGES) &&
		    slot_is_kept(ctx, slot_of(addr)))
			continue;
		block = list_first_entry(ahead, struct hpmmap_block, link);
		if (nr < SLOT_PAGES) {
			last = list_last_entry(ahead, struct hpmmap_block,
					       link);
			if (!bitmap_empty(last->reuse, SLOT_PAGES))
				block = last;
			if (bitmap_empty(block->reuse, SLOT_PAGES)) {
				ret = hpmmap_policy_alloc(ctx, addr, next,
							  blocks);
				continue;
			}
			/* Around the mapping nothing has a meaning. */
			hpmmap_block_set_stale(block, 0, first);
			hpmmap_block_set_stale(block, first + nr,
					       SLOT_PAGES - first - nr);
		}
		block->slot = slot_of(addr);
		list_move_tail(&block->link, blocks);
	}
	if (!ret)
		ret = hpmmap_policy_alloc(ctx, addr, end, blocks);
	if (ret)
		hpmmap_pool_free_list(blocks);
	return ret;
}

static bool range_is_taken(struct hpmmap_ctx *ctx, unsigned long start,
			   unsigned long end)
{
	bool ret;

	mmap_read_lock(ctx->mm);
	ret = find_vma_intersection(ctx->mm, start, end);
	mmap_read_unlock(ctx->mm);
	return ret;
}

/* For a range that is not mapped yet. */
static void store_commit_range(struct hpmmap_ctx *ctx, unsigned long start,
			       unsigned long end, struct list_head *blocks)
{
	unsigned long next;

	for (; start < end && !fatal_signal_pending(current); start = next) {
		struct hpmmap_block *block;

		next = min(end, (start & SLOT_MASK) + SLOT_SIZE);
		/* hpmmap_store_commit() wants it, or that nobody else is there. */
		mmap_read_lock(ctx->mm);
		block = hpmmap_store_load(ctx, slot_of(start));
		if (hpmmap_policy_defers(ctx, block, start, next))
			hpmmap_store_reserve(ctx, NULL, slot_of(start), blocks);
		else
			hpmmap_store_commit(ctx, NULL, start, next, blocks,
					    NULL);
		mmap_read_unlock(ctx->mm);
		cond_resched();
	}
}

/* May it have old contents of the process, and is it kept afterwards? */
static bool wants_reuse(unsigned long prot, unsigned long flags)
{
	return flags & MAP_UNINITIALIZED && !is_reservation(prot, flags);
}

static void renew(struct hpmmap_ctx *ctx, unsigned long start,
		  unsigned long end, unsigned long prot, unsigned long flags)
{
	hpmmap_store_renew(ctx, start, end);
	if (wants_reuse(prot, flags))
		hpmmap_reuse_see(ctx, start, end);
	else
		hpmmap_reuse_clear(ctx, start, end);
}

/* MAP_POPULATE is a touch by the caller. */
static void touch_range(unsigned long addr, unsigned long len,
			unsigned long prot)
{
	struct pt_regs regs = {
		.di = addr,
		.si = len,
		.dx = prot & PROT_WRITE ? MADV_POPULATE_WRITE :
					  MADV_POPULATE_READ,
	};

	hpmmap_call_orig(HPMMAP_CALL_MADVISE, &regs);
}

/**
 * hpmmap_map_fresh() - a new mapping of zeros, all of it mapped
 * @ctx: the caller's context, ctx->ops held
 * @addr: address, page aligned
 * @len: length, a multiple of the page size
 * @prot: PROT_*
 * @flags: MAP_* as given to mmap(2)
 * @fixed: replace what is there; otherwise that is -EEXIST
 * @ahead: blocks that need no clearing, to use first, or NULL
 *
 * Return: @addr or an errno. -ENOMEM: nothing was changed.
 */
unsigned long hpmmap_map_fresh(struct hpmmap_ctx *ctx, unsigned long addr,
			       unsigned long len, unsigned long prot,
			       unsigned long flags, bool fixed,
			       struct list_head *ahead)
{
	bool locked = flags & MAP_LOCKED || ctx->mm->def_flags & VM_LOCKED;
	bool empty = addr >= ctx->hole.start && addr + len <= ctx->hole.end;
	bool reservation = is_reservation(prot, flags);
	unsigned long ret;
	LIST_HEAD(blocks);

	if (hpmmap_store_own_edges(ctx, addr, addr + len) ||
	    hpmmap_store_is_pinned(ctx, addr, addr + len, true))
		return -ENOMEM;
	if (!reservation &&
	    blocks_find(ctx, addr, addr + len, fixed, ahead, &blocks)) {
		if (ctx->job->strict)
			hpmmap_count_refusal(ctx);
		return -ENOMEM;
	}
	ret = blocks_clear(ctx, addr, addr + len, &blocks);
	if (ret)
		goto out;
	/*
	 * Known to the store first where nothing can be lost: Linux maps
	 * what is to be locked at once.
	 */
	if (!fixed && locked) {
		if (range_is_taken(ctx, addr, addr + len)) {
			ctx->hole.end = 0;
			ret = -EEXIST;
			goto out;
		}
		renew(ctx, addr, addr + len, prot, flags);
		if (!reservation)
			store_commit_range(ctx, addr, addr + len, &blocks);
	}
	ret = hpmmap_vma_map(ctx, addr, len, prot, (flags & PASSED_MAP_FLAGS) |
			     (fixed ? MAP_FIXED : MAP_FIXED_NOREPLACE));
	if (IS_ERR_VALUE(ret)) {
		/* A mapping to be replaced may be gone nevertheless. */
		hpmmap_store_reconcile(ctx, addr, addr + len);
	} else {
		if (!empty && (fixed || !locked))
			renew(ctx, addr, addr + len, prot, flags);
		if (!reservation)
			hpmmap_vma_commit(ctx, addr, addr + len, &blocks);
		if (wants_reuse(prot, flags))
			hpmmap_reuse_set(ctx, addr, addr + len);
		if (ctx->job->first_touch && flags & MAP_POPULATE)
			touch_range(addr, len, prot);
	}
	/* A mapping may have been cut at both ends. */
	if (fixed)
		hpmmap_vma_repair_ends(ctx, addr, addr + len, 0);
out:
	hpmmap_pool_free_list(&blocks);
	return ret;
}

/* Whether the last munmap was where Linux looks for a place, too. */
static bool hole_is_usual(struct hpmmap_ctx *ctx)
{
	return ctx->hole.start >= READ_ONCE(ctx->mm->brk) &&
	       ctx->hole.end <= ctx->mm->mmap_base;
}

/**
 * hpmmap_find_place() - where a mapping may go
 * @ctx: the caller's context, ctx->ops held
 * @place: where its memory should come from
 * @hint: where it should be, or 0
 * @len: its length
 * @flags: of mmap
 * @align: a power of two
 * @phase: distance to a multiple of @align
 *
 * Not in a slot whose old contents a device still uses, nor in one of another
 * node than its policy wants, if there is room.
 *
 * Return: an address, or an errno.
 */
unsigned long hpmmap_find_place(struct hpmmap_ctx *ctx,
				const struct hpmmap_placement *place,
				unsigned long hint, unsigned long len,
				unsigned long flags, unsigned long align,
				unsigned long phase)
{
	unsigned long addr, whole;

	addr = hpmmap_vma_find_hole(hint, len, flags, align, phase);
	if (IS_ERR_VALUE(addr) ||
	    (!hpmmap_store_is_pinned(ctx, addr, addr + len, false) &&
	     /* A hint is kept where a policy is no more than advice. */
	     hpmmap_policy_fits(ctx, place, addr, addr + len,
				hint && addr == hint)))
		return addr;
	hint = len < SLOT_SIZE && !(flags & MAP_32BIT) ?
	       hpmmap_policy_apart(ctx, place, len) : 0;
	if (hint && hpmmap_vma_find_hole(hint, len, flags, align, 0) == hint &&
	    !hpmmap_store_is_pinned(ctx, hint, hint + len, false))
		return hint;
	whole = hpmmap_vma_find_hole(0, ALIGN(len, SLOT_SIZE), flags,
				     max(align, SLOT_SIZE), 0);
	if (IS_ERR_VALUE(whole))
		return addr;
	if (len < SLOT_SIZE)
		hpmmap_policy_begin_apart(ctx, place, whole + len);
	return whole;
}

/* hpmmap_map_fresh(), but -ENOMEM where a policy forbids the node of a slot. */
static unsigned long map_where_fit(struct hpmmap_ctx *ctx,
				   const struct hpmmap_placement *place,
				   unsigned long addr, unsigned long len,
				   unsigned long prot, unsigned long flags,
				   bool fixed, struct list_head *ahead)
{
	if (!hpmmap_policy_fits(ctx, place, addr, addr + len, true))
		return -ENOMEM;
	return hpmmap_map_fresh(ctx, addr, len, prot, flags, fixed, ahead);
}

/* A hole found may be gone when it is used: others map files meanwhile. */
#define HOLE_TRIES 16

static unsigned long mmap_ours(struct hpmmap_ctx *ctx, unsigned long addr,
			       unsigned long len, unsigned long prot,
			       unsigned long flags, struct list_head *ahead)
{
	unsigned long align = placement_align(ctx, len);
	struct hpmmap_placement place;
	unsigned long ret = -ENOMEM;
	int i;

	hpmmap_placement_get(ctx->job, NULL, &place);
	if (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE))
		return map_where_fit(ctx, &place, addr, len, prot, flags,
				     !(flags & MAP_FIXED_NOREPLACE), ahead);

	for (i = 0; i < HOLE_TRIES; i++) {
		/* What was unmapped last Linux would choose, too, mostly. */
		if (!addr && len == ctx->hole.end - ctx->hole.start &&
		    IS_ALIGNED(ctx->hole.start, align) &&
		    hole_is_usual(ctx) && !(flags & MAP_32BIT))
			addr = ctx->hole.start;
		else
			addr = hpmmap_find_place(ctx, &place, addr & PAGE_MASK,
						 len, flags, align, 0);
		if (IS_ERR_VALUE(addr))
			return addr;
		ret = map_where_fit(ctx, &place, addr, len, prot, flags, false,
				    ahead);
		if (ret != -EEXIST)
			return ret;
		addr = 0;
	}
	return ret == -EEXIST ? -ENOMEM : ret;
}

/*
 * Linux's mapping, with its lowest page left to grow and ours above. Growth
 * is as it is on Linux, page by page.
 */
static long mmap_growsdown(struct hpmmap_ctx *ctx, const struct pt_regs *regs)
{
	unsigned long len = PAGE_ALIGN(regs->si);
	long ret = hpmmap_call_orig(HPMMAP_CALL_MMAP, regs);
	unsigned long fresh = 0;

	if (IS_ERR_VALUE(ret)) {
		/* What was to be replaced may be gone nevertheless. */
		if (regs->r10 & MAP_FIXED)
			hpmmap_vma_range_changed(ctx, regs->di, regs->di + len);
		return ret;
	}
	hpmmap_vma_range_changed(ctx, ret, ret + len);
	if (len > PAGE_SIZE)
		fresh = hpmmap_map_fresh(ctx, ret + PAGE_SIZE, len - PAGE_SIZE,
					 regs->dx, regs->r10 & OUR_MAP_FLAGS,
					 true, NULL);
	/* Without memory it stays Linux's. */
	return IS_ERR_VALUE(fresh) && fresh != -ENOMEM ? fresh : ret;
}

/* Linux's mapping may replace some of ours. Without ctx->ops. */
static long mmap_linux(struct hpmmap_ctx *ctx, const struct pt_regs *regs)
{
	unsigned long addr = regs->di, end = addr + PAGE_ALIGN(regs->si);
	bool fixed = regs->r10 & MAP_FIXED && !offset_in_page(addr) &&
		     end > addr;
	bool ours = fixed && hpmmap_range_has_ours(ctx, addr, end);
	struct pt_regs with_flags = *regs;
	long ret = ours ? hpmmap_replacing_begin(ctx) : 0;

	if (ret)
		return ret;
	if (hpmmap_image_wants_populated(ctx, regs->r10))
		with_flags.r10 |= MAP_POPULATE;
	ret = hpmmap_call_orig(HPMMAP_CALL_MMAP, &with_flags);
	if (ours)
		hpmmap_replacing_end(ctx);
	/* Even if it failed. */
	if (fixed)
		hpmmap_range_changed_after(ctx, addr, end, ours);
	return ret;
}

/*
 * Clearing is nearly all of the work, and needs neither the address nor any
 * lock: so many threads can map at once.
 */
static void mmap_ahead(struct hpmmap_ctx *ctx, const struct pt_regs *regs,
		       struct list_head *ahead)
{
	unsigned long nr = slot_of(PAGE_ALIGN(regs->si)), flags = regs->r10;
	struct hpmmap_placement place;
	struct hpmmap_block *block;
	LIST_HEAD(clean);

	if (!mmap_is_ours(regs->di, regs->si, flags) ||
	    offset_in_page(regs->r9) || is_reservation(regs->dx, flags) ||
	    ctx->job->first_touch || !(nr || wants_reuse(regs->dx, flags)))
		return;
	hpmmap_placement_get(ctx->job, NULL, &place);
	if (wants_reuse(regs->dx, flags)) {
		/* For a slot covered in part, too. */
		hpmmap_reuse_take(ctx, &place,
				  slot_of(PAGE_ALIGN(regs->si) + SLOT_SIZE - 1),
				  ahead);
		list_for_each_entry(block, ahead, link)
			if (nr)
				nr--;
	}
	/* The address says whose turn it is, or what is there already. */
	if (place.in_turn || flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) ||
	    hpmmap_reserve(ctx, &place, NO_SLOT, nr, &clean))
		return;
	list_for_each_entry(block, &clean, link) {
		if (fatal_signal_pending(current))
			break;
		hpmmap_block_clear(&ctx->owner, block);
	}
	/* What is not cleared nobody takes: the call ends. */
	list_splice_tail(&clean, ahead);
}

/* @without: out: the pools have too little for it. */
static long handle_mmap(struct hpmmap_ctx *ctx, const struct pt_regs *regs,
			struct list_head *ahead, bool *without)
{
	unsigned long addr = regs->di, len = PAGE_ALIGN(regs->si);
	unsigned long prot = regs->dx, flags = regs->r10;
	long ret;

	if (!(flags & MAP_GROWSDOWN) &&
	    hpmmap_data_exceeds_limit(ctx, flags & MAP_FIXED ? addr : 0, len,
				      prot))
		return -ENOMEM;
	if (flags & MAP_FIXED && hpmmap_range_is_watched(addr, addr + len))
		return HPMMAP_REDO;
	if (flags & MAP_GROWSDOWN)
		return mmap_growsdown(ctx, regs);
	ret = mmap_ours(ctx, addr, len, prot, flags, ahead);
	*without = ret == -ENOMEM;
	return ret;
}

static long mmap_locked(struct hpmmap_ctx *ctx, const struct pt_regs *regs,
			struct list_head *ahead, bool *without)
{
	u64 since = get_cycles();
	long ret;

	for (;;) {
		ret = hpmmap_ops_lock(ctx);
		if (ret)
			return ret;
		ret = handle_mmap(ctx, regs, ahead, without);
		hpmmap_count_call(ctx, HPMMAP_TIMED_MMAP, since);
		hpmmap_ops_unlock(ctx);
		if (ret != HPMMAP_REDO)
			return ret;
		if (signal_pending(current))
			return -ERESTARTNOINTR;
		ret = hpmmap_range_unwatch(regs->di, regs->di +
					   PAGE_ALIGN(regs->si));
		if (ret)
			return ret;
		cond_resched();
	}
}

long hpmmap_sys_mmap(const struct pt_regs *regs)
{
	struct hpmmap_ctx *ctx = hpmmap_ctx_get(current->mm);
	bool without = false;
	LIST_HEAD(ahead);
	long ret;

	if (!ctx)
		return hpmmap_call_orig(HPMMAP_CALL_MMAP, regs);
	if (!mmap_is_ours(regs->di, regs->si, regs->r10 & ~MAP_GROWSDOWN) ||
	    offset_in_page(regs->r9)) {
		ret = mmap_linux(ctx, regs);
		hpmmap_ctx_put(ctx);
		return ret;
	}
	mmap_ahead(ctx, regs, &ahead);
	ret = mmap_locked(ctx, regs, &ahead, &without);
	hpmmap_reuse_return(ctx, &ahead);
	hpmmap_pool_free_list(&ahead);
	if (without && !ctx->job->strict) {
		ret = mmap_linux(ctx, regs);
		if (!IS_ERR_VALUE(ret))
			hpmmap_count_fallback(ctx, HPMMAP_FALLBACK_MMAP,
					      PAGE_ALIGN(regs->si));
	}
	hpmmap_ctx_put(ctx);
	return ret;
}

/* munmap */

static long handle_munmap(struct hpmmap_ctx *ctx, enum hpmmap_call call,
			  const struct pt_regs *regs)
{
	unsigned long start = regs->di, end = start + PAGE_ALIGN(regs->si);
	unsigned int intact = hpmmap_vma_intact_ends(ctx, start, end);
	long ret = hpmmap_call_orig(call, regs);

	if (!ret) {
		bool ours = hpmmap_store_unmapped(ctx, start, end);

		hpmmap_vma_repair_ends(ctx, start, end, intact);
		if (ours && start && !((start | end) & ~SLOT_MASK)) {
			ctx->hole.start = start;
			ctx->hole.end = end;
		}
	} else if (ret == -ENOMEM) {
		/* A mapping was cut at one end and not at the other. */
		hpmmap_vma_repair_ends(ctx, start, end, intact);
	}
	return ret;
}

/* Nothing of it is ours, but another thread may map there at this moment. */
static long munmap_linux(struct hpmmap_ctx *ctx, const struct pt_regs *regs)
{
	unsigned long start = regs->di, end = start + PAGE_ALIGN(regs->si);
	long ret = hpmmap_call_orig(HPMMAP_CALL_MUNMAP, regs);

	if (!ret)
		hpmmap_range_changed_after(ctx, start, end, false);
	return ret;
}

long hpmmap_sys_munmap(const struct pt_regs *regs)
{
	unsigned long start = regs->di, end = start + PAGE_ALIGN(regs->si);
	struct hpmmap_ctx *ctx;
	long ret;

	/* What cannot be right is Linux's to refuse. */
	if (offset_in_page(start) || end <= start || end > TASK_SIZE)
		return hpmmap_call_orig(HPMMAP_CALL_MUNMAP, regs);
	ctx = hpmmap_ctx_get(current->mm);
	if (!ctx)
		return hpmmap_call_orig(HPMMAP_CALL_MUNMAP, regs);
	if (hpmmap_range_has_ours(ctx, start, end)) {
		hpmmap_range_unwatch(start, end);
		ret = hpmmap_handle(HPMMAP_CALL_MUNMAP, regs, handle_munmap);
	} else {
		ret = munmap_linux(ctx, regs);
	}
	hpmmap_ctx_put(ctx);
	return ret;
}

/* mprotect, pkey_mprotect */

/*
 * PROT_GROWSDOWN means down to the start of a mapping that grows down. Of such
 * a one only the lowest page is Linux's, see mmap_growsdown() and stack_setup().
 * Returns the new start, or @start where there is none.
 */
static unsigned long growsdown_start(struct hpmmap_ctx *ctx,
				     unsigned long start, unsigned long end)
{
	unsigned long addr = start;
	struct vm_area_struct *vma;

	mmap_read_lock(ctx->mm);
	vma = find_vma_intersection(ctx->mm, start, end);
	while (vma && hpmmap_vma_is_ours(vma)) {
		addr = vma->vm_start;
		vma = find_vma_intersection(ctx->mm, addr - PAGE_SIZE, addr);
	}
	if (vma && vma->vm_flags & VM_GROWSDOWN)
		start = vma->vm_start;
	mmap_read_unlock(ctx->mm);
	return start;
}

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

/* Linux promises nothing for what is not reserved. */
static bool mprotect_linux_may_help(struct hpmmap_ctx *ctx, unsigned long start,
				    unsigned long end)
{
	unsigned long missing, unreserved = 0;

	missing = hpmmap_vma_count_missing(ctx, start, end, &unreserved);
	return hpmmap_linux_may_help(ctx, missing - unreserved);
}

/* What a commit of a range has done: its slots as far as its mappings go. */
static void mappings_extend(struct hpmmap_ctx *ctx, unsigned long *start,
			    unsigned long *end)
{
	struct vm_area_struct *vma;

	mmap_read_lock(ctx->mm);
	vma = vma_lookup(ctx->mm, *start);
	if (vma)
		*start = max(vma->vm_start, *start & SLOT_MASK);
	vma = vma_lookup(ctx->mm, *end - 1);
	if (vma)
		*end = min(vma->vm_end, ALIGN(*end, SLOT_SIZE));
	mmap_read_unlock(ctx->mm);
}

static long handle_mprotect(struct hpmmap_ctx *ctx, enum hpmmap_call call,
			    const struct pt_regs *regs)
{
	unsigned long start = regs->di, len = PAGE_ALIGN(regs->si);
	unsigned long prot = regs->dx, end = start + len;
	bool commit = prot & (PROT_READ | PROT_WRITE | PROT_EXEC);
	struct pt_regs args = *regs;
	unsigned int intact;
	bool exhausted;
	LIST_HEAD(blocks);
	long ret;

	/* A range that cannot be right is Linux's to refuse. */
	if (offset_in_page(start) || !len || end <= start || end > TASK_SIZE)
		return hpmmap_call_orig(call, regs);
	if ((prot & (PROT_GROWSDOWN | PROT_GROWSUP)) == PROT_GROWSDOWN) {
		args.di = growsdown_start(ctx, start, end);
		if (args.di != start) {
			start = args.di;
			args.si = end - start;
			args.dx = prot & ~PROT_GROWSDOWN;
		}
	}
	if (mprotect_exceeds_limit(ctx, start, end, prot))
		return -ENOMEM;
	exhausted = commit &&
		    hpmmap_policy_alloc_mapped(ctx, start, end, &blocks);
	if (exhausted && !mprotect_linux_may_help(ctx, start, end)) {
		hpmmap_count_refusal(ctx);
		return -ENOMEM;
	}
	ret = blocks_clear(ctx, start, end, &blocks);
	if (ret) {
		hpmmap_pool_free_list(&blocks);
		return ret;
	}
	intact = hpmmap_vma_intact_ends(ctx, start, end);
	ret = hpmmap_call_orig(call, &args);
	/* An error may come after a part of the range was changed. */
	if (exhausted)
		hpmmap_vma_repair(ctx, start, end);
	else if (commit)
		hpmmap_vma_commit(ctx, start, end, &blocks);
	if (commit)
		mappings_extend(ctx, &start, &end);
	hpmmap_vma_repair_ends(ctx, start, end, intact);
	hpmmap_pool_free_list(&blocks);
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

/* madvise */

/* mseal(2): what the caller may not write to it may not discard either. */
static bool keeps_contents(struct vm_area_struct *vma)
{
	return compat_vma_is_sealed(vma) &&
	       (!(vma->vm_flags & VM_WRITE) ||
		!arch_vma_access_permitted(vma, true, false, false));
}

/* Linux asks private memory alone, which ours is not to it. */
static bool range_keeps_contents(struct hpmmap_ctx *ctx, unsigned long start,
				 unsigned long end)
{
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, ctx->mm, start);
	bool ret = false;

	mmap_read_lock(ctx->mm);
	for_each_vma_range(vmi, vma, end) {
		ret = hpmmap_vma_is_ours(vma) && keeps_contents(vma);
		if (ret)
			break;
	}
	mmap_read_unlock(ctx->mm);
	return ret;
}

static bool advice_discards(int advice)
{
	return advice == MADV_FREE || advice == MADV_REMOVE ||
	       advice == MADV_DONTFORK || advice == MADV_WIPEONFORK;
}

/*
 * Discards what is ours of a range. Returns 1 if some of the range is not,
 * -ENOMEM if some is not mapped, else 0.
 */
static long discard_ours(struct hpmmap_ctx *ctx, unsigned long start,
			 unsigned long end, bool locked_too)
{
	struct vm_area_struct *vma;
	unsigned long addr = start, lo, hi;
	VMA_ITERATOR(vmi, ctx->mm, start);
	bool others = false, hole = false;
	long ret = 0;

	mmap_read_lock(ctx->mm);
	for_each_vma_range(vmi, vma, end) {
		hole |= vma->vm_start > addr;
		addr = vma->vm_end;
		if (!hpmmap_vma_is_ours(vma)) {
			others = true;
			continue;
		}
		if (vma->vm_flags & VM_LOCKED && !locked_too) {
			ret = -EINVAL;
			break;
		}
		if (keeps_contents(vma)) {
			ret = -EPERM;
			break;
		}
		lo = max(start, vma->vm_start);
		hi = min(end, vma->vm_end);
		/* A stale page is never mapped. */
		if (!hpmmap_vma_is_accessible(vma))
			compat_zap(vma, lo, hi - lo);
		ret = hpmmap_store_discard(ctx, lo, hi,
					   hpmmap_vma_is_accessible(vma));
		if (ret)
			break;
	}
	mmap_read_unlock(ctx->mm);
	if (ret)
		return ret;
	if (others)
		return 1;
	return hole || addr < end ? -ENOMEM : 0;
}

/* A hint about what is ours: 0, -EINVAL where it is locked, or -ENOMEM. */
static long hint_ours(struct hpmmap_ctx *ctx, unsigned long start,
		      unsigned long end, bool locked_too)
{
	struct vm_area_struct *vma;
	unsigned long addr = start;
	VMA_ITERATOR(vmi, ctx->mm, start);
	long ret = 0;

	mmap_read_lock(ctx->mm);
	for_each_vma_range(vmi, vma, end) {
		if (vma->vm_flags & VM_LOCKED && !locked_too) {
			ret = -EINVAL;
			break;
		}
		if (vma->vm_start > addr)
			ret = -ENOMEM;
		addr = vma->vm_end;
	}
	mmap_read_unlock(ctx->mm);
	return !ret && addr < end ? -ENOMEM : ret;
}

/* Flags what is mapped: 0, -EINVAL where it is not ours, or -ENOMEM. */
static long reuse_ours(struct hpmmap_ctx *ctx, unsigned long start,
		       unsigned long end)
{
	struct vm_area_struct *vma;
	unsigned long addr = start;
	VMA_ITERATOR(vmi, ctx->mm, start);
	long ret = 0;

	mmap_read_lock(ctx->mm);
	for_each_vma_range(vmi, vma, end) {
		if (vma->vm_start > addr) {
			ret = -ENOMEM;
			break;
		}
		if (!hpmmap_vma_is_ours(vma)) {
			ret = -EINVAL;
			break;
		}
		addr = vma->vm_end;
	}
	mmap_read_unlock(ctx->mm);
	if (!ret && addr < end)
		ret = -ENOMEM;
	if (!ret)
		hpmmap_reuse_set(ctx, start, end);
	return ret;
}

static long madvise_ours(struct hpmmap_ctx *ctx, const struct pt_regs *regs,
		       unsigned long start, unsigned long end, int advice)
{
	long ret;

	if (advice_discards(advice) && range_keeps_contents(ctx, start, end))
		return -EPERM;
	switch (advice) {
	case MADV_FREE:
	case MADV_COLD:
	case MADV_PAGEOUT:
	case MADV_COLLAPSE:
		/* Our memory is there, and it stays. */
		return hint_ours(ctx, start, end, advice == MADV_COLLAPSE);
	case HPMMAP_MADV_REUSE:
		return reuse_ours(ctx, start, end);
	case MADV_WIPEONFORK:
	case MADV_KEEPONFORK:
		ret = hpmmap_vma_wipe_on_fork(ctx, start, end,
					      advice == MADV_WIPEONFORK);
		hpmmap_vma_repair(ctx, start & SLOT_MASK,
				  ALIGN(end, SLOT_SIZE));
		return ret;
	case MADV_REMOVE:
		/* Not for private memory. */
		return -EINVAL;
	default:
		ret = hpmmap_call_orig(HPMMAP_CALL_MADVISE, regs);
		/* Linux keeps the contents of files behind a guard. */
		if (!ret && advice == MADV_GUARD_INSTALL)
			discard_ours(ctx, start, end, true);
		hpmmap_vma_repair(ctx, start & SLOT_MASK,
				  ALIGN(end, SLOT_SIZE));
		return ret;
	}
}

static long handle_madvise(struct hpmmap_ctx *ctx, enum hpmmap_call call,
			   const struct pt_regs *regs)
{
	unsigned long start = regs->di, end = start + PAGE_ALIGN(regs->si);

	if (!hpmmap_range_has_ours(ctx, start, end))
		return hpmmap_call_orig(call, regs);
	return madvise_ours(ctx, regs, start, end, regs->dx);
}

static long madvise_discard(struct hpmmap_ctx *ctx, const struct pt_regs *regs)
{
	unsigned long start = regs->di, end = start + PAGE_ALIGN(regs->si);
	long ret = hpmmap_ops_lock(ctx);

	if (ret)
		return ret;
	hpmmap_store_refresh(ctx, start, end);
	hpmmap_store_drop_linux(ctx, start, end);
	ret = discard_ours(ctx, start, end, regs->dx == MADV_DONTNEED_LOCKED);
	hpmmap_vma_repair(ctx, start, end);
	hpmmap_ops_unlock(ctx);
	if (ret <= 0)
		return ret;
	/* Linux does its part, which finds ours discarded already. */
	ret = hpmmap_call_orig(HPMMAP_CALL_MADVISE, regs);
	repair_after(ctx, start, end);
	return ret;
}

static long madvise_with_ours(struct hpmmap_ctx *ctx,
			      const struct pt_regs *regs)
{
	long ret;

	switch ((int)regs->dx) {
	case MADV_DONTNEED:
	case MADV_DONTNEED_LOCKED:
		return madvise_discard(ctx, regs);
	case MADV_HWPOISON:
	case MADV_SOFT_OFFLINE:
		/* Not under ctx->ops: see poison.c, where Linux's answer ends. */
		return hpmmap_call_orig(HPMMAP_CALL_MADVISE, regs);
	case MADV_WILLNEED:
	case MADV_POPULATE_READ:
	case MADV_POPULATE_WRITE:
		/* Others' memory may have to be found by other threads. */
		ret = hpmmap_call_orig(HPMMAP_CALL_MADVISE, regs);
		repair_after(ctx, regs->di, regs->di + PAGE_ALIGN(regs->si));
		return ret;
	case MADV_MERGEABLE:
		ret = IS_ENABLED(CONFIG_KSM) ?
		      hpmmap_handback(ctx, regs->di, regs->di +
				      PAGE_ALIGN(regs->si)) : 0;
		return ret ? ret : hpmmap_call_orig(HPMMAP_CALL_MADVISE, regs);
	default:
		return hpmmap_handle(HPMMAP_CALL_MADVISE, regs, handle_madvise);
	}
}

long hpmmap_sys_madvise(const struct pt_regs *regs)
{
	unsigned long start = regs->di, end = start + PAGE_ALIGN(regs->si);
	struct hpmmap_ctx *ctx = hpmmap_ctx_get(current->mm);
	long ret;

	if (!ctx)
		return hpmmap_call_orig(HPMMAP_CALL_MADVISE, regs);
	if (!offset_in_page(start) && end > start &&
	    hpmmap_range_has_ours(ctx, start, end))
		ret = madvise_with_ours(ctx, regs);
	else
		ret = hpmmap_call_orig(HPMMAP_CALL_MADVISE, regs);
	hpmmap_ctx_put(ctx);
	return ret;
}

/* mlock, mlock2, munlock: they only cut mappings in pieces. */

/* Populates what is not there yet, others' memory, too. */
static long lock_range(enum hpmmap_call call, const struct pt_regs *regs)
{
	unsigned long start = regs->di & PAGE_MASK;
	unsigned long end = PAGE_ALIGN(regs->di + regs->si);
	struct hpmmap_ctx *ctx = hpmmap_ctx_get(current->mm);
	long ret = hpmmap_call_orig(call, regs);

	if (!ctx)
		return ret;
	if (end > start && end < TASK_SIZE &&
	    hpmmap_range_has_ours(ctx, start, end))
		repair_after(ctx, start, end);
	hpmmap_ctx_put(ctx);
	return ret;
}

long hpmmap_sys_mlock(const struct pt_regs *regs)
{
	return lock_range(HPMMAP_CALL_MLOCK, regs);
}

long hpmmap_sys_mlock2(const struct pt_regs *regs)
{
	return lock_range(HPMMAP_CALL_MLOCK2, regs);
}

/* An mremap under way relies on what is locked: it is not unlocked then. */

static long handle_munlock(struct hpmmap_ctx *ctx, enum hpmmap_call call,
			   const struct pt_regs *regs)
{
	unsigned long start = regs->di, end = start + regs->si;
	long ret = hpmmap_call_orig(call, regs);

	if (end > start && end < TASK_SIZE)
		hpmmap_vma_repair(ctx, start & SLOT_MASK,
				  ALIGN(end, SLOT_SIZE));
	return ret;
}

long hpmmap_sys_munlock(const struct pt_regs *regs)
{
	return hpmmap_handle_if_ours(HPMMAP_CALL_MUNLOCK, regs, handle_munlock);
}

static long handle_munlockall(struct hpmmap_ctx *ctx, enum hpmmap_call call,
			      const struct pt_regs *regs)
{
	return hpmmap_call_orig(call, regs);
}

long hpmmap_sys_munlockall(const struct pt_regs *regs)
{
	return hpmmap_handle(HPMMAP_CALL_MUNLOCKALL, regs, handle_munlockall);
}

/* As of all private memory: not for ours. */
long hpmmap_sys_remap_file_pages(const struct pt_regs *regs)
{
	struct hpmmap_ctx *ctx = hpmmap_ctx_get(current->mm);
	unsigned long start = regs->di & PAGE_MASK;
	bool ours = ctx && hpmmap_range_has_ours(ctx, start, start + PAGE_SIZE);

	if (ctx)
		hpmmap_ctx_put(ctx);
	return ours ? -EINVAL :
		      hpmmap_call_orig(HPMMAP_CALL_REMAP_FILE_PAGES, regs);
}

/* brk */

static void set_brk(struct mm_struct *mm, unsigned long brk)
{
	mmap_write_lock(mm);
	mm->brk = brk;
	mmap_write_unlock(mm);
}

static bool brk_exceeds_limit(struct mm_struct *mm, unsigned long brk)
{
	return check_data_rlimit(rlimit(RLIMIT_DATA), brk, mm->start_brk,
				 mm->end_data, mm->start_data);
}

/* False where it cannot be: nothing was changed then. */
static bool heap_grow(struct hpmmap_ctx *ctx, unsigned long start,
		      unsigned long end)
{
	struct hpmmap_placement place;
	unsigned long ret;

	/* As on Linux, a page stays free above the break. */
	if (hpmmap_data_exceeds_limit(ctx, 0, end - start, PROT_WRITE) ||
	    range_is_taken(ctx, start, end + PAGE_SIZE))
		return false;
	hpmmap_placement_get(ctx->job, NULL, &place);
	ret = map_where_fit(ctx, &place, start, end - start,
			    PROT_READ | PROT_WRITE, 0, false, NULL);
	if (ret == -ENOMEM && !ctx->job->strict) {
		ret = vm_mmap(NULL, start, end - start, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
			      0);
		if (!IS_ERR_VALUE(ret))
			hpmmap_count_fallback(ctx, HPMMAP_FALLBACK_BRK,
					      end - start);
	}
	return !IS_ERR_VALUE(ret);
}

static bool heap_shrink(struct hpmmap_ctx *ctx, unsigned long start,
			unsigned long end)
{
	const struct pt_regs regs = { .di = start, .si = end - start };

	return !handle_munmap(ctx, HPMMAP_CALL_MUNMAP, &regs);
}

/*
 * The heap is mapped up to the page of the break, and its last slot by entries of
 * 4 KB until the break leaves it. Returns the new break, or the old one where
 * it cannot be.
 */
static unsigned long heap_set(struct hpmmap_ctx *ctx, unsigned long brk)
{
	struct mm_struct *mm = ctx->mm;
	unsigned long old = mm->brk, old_end = ctx->heap_end;
	unsigned long end = PAGE_ALIGN(brk);
	bool done = true;

	if (brk < mm->start_brk || brk > TASK_SIZE - SLOT_SIZE ||
	    brk_exceeds_limit(mm, brk))
		return old;
	/* What is mapped below it is called heap. */
	ctx->heap_end = end;
	if (end > old_end)
		done = heap_grow(ctx, old_end, end);
	else if (end < old_end)
		done = heap_shrink(ctx, end, old_end);
	if (!done) {
		ctx->heap_end = old_end;
		return old;
	}
	set_brk(mm, brk);
	return brk;
}

/* The break is where others have put it (prctl(2), int 0x80): Linux's from then on. */
static long brk_linux(struct hpmmap_ctx *ctx, const struct pt_regs *regs)
{
	unsigned long old = PAGE_ALIGN(ctx->mm->brk);
	unsigned long brk = hpmmap_call_orig(HPMMAP_CALL_BRK, regs);

	ctx->heap_end = 0;
	if (PAGE_ALIGN(brk) < old)
		hpmmap_vma_range_changed(ctx, PAGE_ALIGN(brk), old);
	return brk;
}

static long handle_brk(struct hpmmap_ctx *ctx, enum hpmmap_call call,
		       const struct pt_regs *regs)
{
	return ctx->heap_end && ctx->heap_end == PAGE_ALIGN(ctx->mm->brk) ?
	       heap_set(ctx, regs->di) : brk_linux(ctx, regs);
}

/* Memory of Linux may be part of the heap. */
static void heap_unwatch(unsigned long brk)
{
	struct mm_struct *mm = current->mm;
	unsigned long old = READ_ONCE(mm->brk);

	if (brk >= READ_ONCE(mm->start_brk) && brk < old)
		hpmmap_range_unwatch(PAGE_ALIGN(brk), PAGE_ALIGN(old));
}

long hpmmap_sys_brk(const struct pt_regs *regs)
{
	heap_unwatch(regs->di);
	return hpmmap_handle(HPMMAP_CALL_BRK, regs, handle_brk);
}
