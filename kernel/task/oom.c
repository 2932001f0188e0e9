// SPDX-License-Identifier: GPL-2.0
/*
 * The OOM killer: memory of the pools is no reason to kill a process.
 *
 * To Linux it is RSS, so that oom_badness() would choose processes that map it, whose
 * death frees nothing. It is taken off, for the killer and for /proc/PID/oom_score alike.
 * Ordinary pages that stand in for blocks count, mapped or not.
 */
#include <linux/oom.h>

#include "hook.h"
#include "hpmmap.h"
#include "as/own/ctx.h"
#include "as/map/vma.h"
#include "task/exec.h"

/* So many mappings of a process are looked at. */
#define MAPPINGS_MOST 512

/*
 * Pages of the pools that a mm may have mapped: blocks of its own, files, windows. Where
 * mmap_lock is taken, what a registered process has mapped is all taken for such.
 */
static long pages_of_pools(struct mm_struct *mm, struct hpmmap_ctx *ctx)
{
	int left = MAPPINGS_MOST;
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, mm, 0);
	long pages = 0;

	if (ctx)
		pages = (atomic_long_read(&ctx->nr_held) -
			 (long)READ_ONCE(ctx->reuse.nr)) << SLOT_ORDER;
	if (get_mm_counter(mm, MM_FILEPAGES) < SLOT_PAGES)
		return pages;
	if (!mmap_read_trylock(mm))
		return ctx ? LONG_MAX : 0;
	for_each_vma(vmi, vma) {
		if (!left--)
			break;
		if (vma->vm_file && !hpmmap_vma_is_ours(vma) &&
		    vma->vm_file->f_op->owner == THIS_MODULE)
			pages += vma_pages(vma);
	}
	mmap_read_unlock(mm);
	return pages;
}

/*
 * How many pages fewer than its RSS the end of a mm frees; less than 0 where it frees
 * more. task_lock() keeps the mm.
 *
 * RssFile has the memory of the pools, and of the ordinary pages that stand in for blocks
 * those that are mapped. These all count, mapped or not.
 */
static long pages_not_freed(struct mm_struct *mm)
{
	struct hpmmap_ctx *ctx = hpmmap_ctx_find_rcu(mm);
	long pages = get_mm_counter(mm, MM_FILEPAGES);

	if (ctx)
		pages -= atomic_long_read(&ctx->owner.nr_linux_pages) +
			 atomic_long_read(&ctx->owner.nr_few_pages);
	return min(pages, pages_of_pools(mm, ctx));
}

/*
 * In a process that needs memory: nothing is allocated here, task_lock() is taken as in
 * oom_badness(), and mmap_lock only tried.
 */
static noinline long badness_without_pools(struct task_struct *task,
					   unsigned long total)
{
	long points = compat_oom_badness(task, total);
	struct task_struct *t;
	long pages = 0;

	if (points == LONG_MIN)
		return points;
	rcu_read_lock();
	for_each_thread(task, t) {
		struct mm_struct *mm;

		task_lock(t);
		mm = t->mm;
		if (mm)
			pages = pages_not_freed(mm);
		task_unlock(t);
		if (mm)
			break;
	}
	rcu_read_unlock();
	return max(points - pages, LONG_MIN + 1);
}

static void notrace badness_entry(unsigned long ip, unsigned long parent_ip,
				  struct ftrace_ops *op,
				  struct ftrace_regs *fregs)
{
	if (!compat_is_own_text(parent_ip))
		compat_ftrace_set_ip(fregs,
				     (unsigned long)badness_without_pools);
}

static struct ftrace_ops badness_ops = { .func = badness_entry, .flags = HPMMAP_GUARD_FLAGS };
static bool installed;

/*
 * Keeps the OOM killer from jobs. Where that is impossible, because a live patch has the
 * function say, memory of the pools counts for the OOM killer, and the kernel log tells.
 * Returns 0 in either case.
 */
int hpmmap_oom_init(void)
{
	installed = !hpmmap_guard_install(&badness_ops, "oom_badness");
	return 0;
}

void hpmmap_oom_exit(void)
{
	if (installed)
		hpmmap_guard_remove(&badness_ops);
}
