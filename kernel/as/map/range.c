// SPDX-License-Identifier: GPL-2.0
/*
 * What is mapped in a range, by whom it is watched, and where there is room.
 */
#include "hook.h"
#include "hpmmap.h"
#include "as/own/ctx.h"
#include "as/map/range.h"
#include "as/map/vma.h"

/* Hints below vm.mmap_min_addr are rounded up to it; this is its usual value. */
#define LOWEST_HINT 65536UL

/* The pauses between tries for mmap_lock, each twice the one before: 8 ms in all. */
#define SOON_FIRST_US 8U
#define SOON_LAST_US 4096U

/*
 * mmap_lock for writing, for what need not be done. @vain: do not try for long; set when
 * that was in vain. Returns whether it is held.
 *
 * Calls that change no mapping do not wait on Linux for a task that reads the address space
 * for as long as it likes (/proc/PID/mem, at a file whose server is away). Those that do
 * change mappings wait for it until they are killed.
 */
bool hpmmap_mmap_write_lock_soon(struct mm_struct *mm, bool *vain)
{
	unsigned long us = SOON_FIRST_US;

	while (!compat_mmap_write_trylock(mm)) {
		if (us > SOON_LAST_US || fatal_signal_pending(current))
			*vain = true;
		if (*vain)
			return false;
		usleep_range(us, us + us / 2);
		us *= 2;
	}
	return true;
}

/* The first mapping of ours in a range, or NULL. mmap_lock held. */
struct vm_area_struct *hpmmap_range_first_ours(struct mm_struct *mm, unsigned long start,
					       unsigned long end)
{
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, mm, start);

	lockdep_assert_held(&mm->mmap_lock);
	for_each_vma_range(vmi, vma, end)
		if (hpmmap_vma_is_ours(vma))
			return vma;
	return NULL;
}

/* Whose mappings are in a range? */
enum hpmmap_range_what hpmmap_range_look(struct hpmmap_ctx *ctx,
					 unsigned long start, unsigned long end)
{
	enum hpmmap_range_what what = HPMMAP_RANGE_LINUX;
	struct vm_area_struct *vma;

	mmap_read_lock(ctx->mm);
	/* Mostly it is one mapping: that is the cheaper look. */
	vma = vma_lookup(ctx->mm, start);
	if (!vma || vma->vm_end < end || !hpmmap_vma_is_ours(vma))
		vma = hpmmap_range_first_ours(ctx->mm, start, end);
	if (vma)
		what = vma->vm_start <= start && vma->vm_end >= end ?
		       HPMMAP_RANGE_OURS : HPMMAP_RANGE_MIXED;
	mmap_read_unlock(ctx->mm);
	return what;
}

/* Is a mapping of a range ours? */
bool hpmmap_range_has_ours(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end)
{
	return hpmmap_range_look(ctx, start, end) != HPMMAP_RANGE_LINUX;
}

/*
 * The next mapping of a kind in a range: @start and @end become its own, as far as it lies
 * in the range. Returns false if there is none, and the range is as it was. mmap_lock is
 * not held.
 */
bool hpmmap_range_next(struct mm_struct *mm, unsigned long *start, unsigned long *end,
		       bool (*is_it)(const struct vm_area_struct *vma))
{
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, mm, *start);

	mmap_read_lock(mm);
	for_each_vma_range(vmi, vma, *end) {
		if (!is_it(vma))
			continue;
		*start = max(*start, vma->vm_start);
		*end = min(*end, vma->vm_end);
		break;
	}
	mmap_read_unlock(mm);
	return vma;
}

/* A call of the current process has lost contents for want of memory: it cannot go on. */
void hpmmap_contents_lost(void)
{
	/* It had memory, but not the time. */
	if (fatal_signal_pending(current))
		return;
	pr_warn_ratelimited("no memory for process %d, which is killed\n", current->pid);
	send_sig(SIGKILL, current, 1);
}

/*
 * A call of the caller has failed that was to replace a range, all of which was mapped
 * before. Linux first unmaps what it replaces, and may have no memory then. A process whose
 * contents are gone that way is killed.
 */
void hpmmap_range_kill_if_lost(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end)
{
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, ctx->mm, start);

	mmap_read_lock(ctx->mm);
	for_each_vma_range(vmi, vma, end) {
		if (vma->vm_start > start)
			break;
		start = vma->vm_end;
	}
	mmap_read_unlock(ctx->mm);
	if (start < end)
		hpmmap_contents_lost();
}

static bool is_watched(const struct vm_area_struct *vma)
{
	return !hpmmap_vma_is_ours(vma) && userfaultfd_armed((struct vm_area_struct *)vma);
}

/* Does a userfaultfd watch any of the caller's range? */
bool hpmmap_range_is_watched(unsigned long start, unsigned long end)
{
	return hpmmap_range_next(current->mm, &start, &end, is_watched);
}

/*
 * Unmaps what a userfaultfd watches in a range of the caller that is about to be unmapped.
 * Its monitor is told, and may have to map memory before it listens, so ctx->ops is not
 * held. The place stays taken, by a mapping without access. Returns 0 or an errno of
 * mmap(2): the unmapping would fail, too.
 */
long hpmmap_range_unwatch(unsigned long start, unsigned long end)
{
	unsigned long lo = start, hi = end, ret;

	while (lo < end && hpmmap_range_next(current->mm, &lo, &hi, is_watched)) {
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

/* Is anything mapped in a range? */
bool hpmmap_range_is_taken(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end)
{
	bool ret;

	mmap_read_lock(ctx->mm);
	ret = find_vma_intersection(ctx->mm, start, end);
	mmap_read_unlock(ctx->mm);
	return ret;
}

/* hpmmap_range_find_hole() with mmap_lock held. */
unsigned long hpmmap_range_hole(unsigned long hint, unsigned long len, unsigned long flags,
				unsigned long align, unsigned long phase)
{
	unsigned long pad = align - PAGE_SIZE;
	unsigned long addr;

	if (len + pad < len)
		return -ENOMEM;
	if (hint && hint < LOWEST_HINT)
		hint = LOWEST_HINT;
	addr = hint ? compat_get_unmapped_area(hint, len, flags) : 0;
	if (!hint || addr != hint)
		addr = compat_get_unmapped_area(0, len + pad, flags);
	if (IS_ERR_VALUE(addr) && pad) {
		addr = compat_get_unmapped_area(0, len, flags);
		pad = 0;
	}
	if (IS_ERR_VALUE(addr) || addr == hint || !pad)
		return addr;
	/* The highest fitting address: what is left over stays in one piece. */
	return addr + pad - ((addr + pad - phase) & (align - 1));
}

/*
 * Chooses an address: a multiple of @align, a power of two, plus @phase. @hint: what the
 * caller would like, or 0. Returns it or an errno. It may be taken when it is used.
 */
unsigned long hpmmap_range_find_hole(unsigned long hint, unsigned long len,
				     unsigned long flags, unsigned long align,
				     unsigned long phase)
{
	unsigned long addr;

	if (mmap_read_lock_killable(current->mm))
		return -EINTR;
	addr = hpmmap_range_hole(hint, len, flags, align, phase);
	mmap_read_unlock(current->mm);
	return addr;
}

/*
 * A range does not count against RLIMIT_AS until hpmmap_range_count_again(): something
 * takes its place, and is mapped before it goes. Not for a task that is being killed.
 * ctx->ops is held.
 */
void hpmmap_range_discount(struct hpmmap_ctx *ctx, unsigned long start, unsigned long len)
{
	struct mm_struct *mm = ctx->mm;
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, mm, start);
	unsigned long total = 0;

	lockdep_assert_held(&ctx->ops);
	if (mmap_write_lock_killable(mm))
		return;
	/* An earlier call was killed before it could do so. */
	WRITE_ONCE(mm->total_vm, mm->total_vm + ctx->discount.total);
	/* A call without a hook may have changed it: what is there. */
	for_each_vma_range(vmi, vma, start + len)
		total += (min(vma->vm_end, start + len) - max(vma->vm_start, start)) >> PAGE_SHIFT;
	ctx->discount.total = total;
	ctx->discount.locked = mm->locked_vm;
	WRITE_ONCE(mm->total_vm, mm->total_vm - total);
	mmap_write_unlock(mm);
}

/*
 * What was discounted counts again. ctx->ops is held. mlockall(2) looks at how much is
 * mapped: a thread that has locked more meanwhile than the process may could do so because
 * something was not counted, and nothing is locked then. A call that is killed while it
 * waits leaves it to the next.
 */
void hpmmap_range_count_again(struct hpmmap_ctx *ctx)
{
	unsigned long most = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;
	const struct pt_regs none = {};
	struct mm_struct *mm = ctx->mm;
	bool too_much;

	lockdep_assert_held(&ctx->ops);
	if (!ctx->discount.total)
		return;
	if (mmap_write_lock_killable(mm))
		return;
	too_much = mm->locked_vm > most && mm->locked_vm > ctx->discount.locked;
	WRITE_ONCE(mm->total_vm, mm->total_vm + ctx->discount.total);
	ctx->discount.total = 0;
	mmap_write_unlock(mm);
	if (unlikely(too_much) && !capable(CAP_IPC_LOCK))
		hpmmap_call_orig(HPMMAP_CALL_MUNLOCKALL, &none);
}
