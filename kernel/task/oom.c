// SPDX-License-Identifier: GPL-2.0
/*
 * The OOM killer: memory of the pools is no reason to kill a process.
 *
 * To Linux it is RSS, so that oom_badness() would choose jobs, whose death frees
 * nothing for it. What is the pools' is taken off, for the killer and for
 * /proc/PID/oom_score alike.
 */
#include <linux/ftrace.h>
#include <linux/oom.h>
#include <linux/rcupdate.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>

#include "hpmmap.h"
#include "as/ctx.h"
#include "task/oom.h"

/* With task_lock() held, which keeps the address space. */
static long pool_pages_of(struct mm_struct *mm)
{
	struct hpmmap_ctx *ctx;
	long pages = 0, mapped;

	rcu_read_lock();
	ctx = hpmmap_ctx_find_rcu(mm);
	if (ctx) {
		pages = (atomic_long_read(&ctx->nr_held) -
			 (long)READ_ONCE(ctx->reuse.nr)) << SLOT_ORDER;
		/* What of it is not mapped has not been counted. */
		mapped = get_mm_counter(mm, MM_FILEPAGES) -
			 atomic_long_read(&ctx->owner.nr_linux_pages) -
			 atomic_long_read(&ctx->owner.nr_few_pages);
		pages = clamp(pages, 0L, max(mapped, 0L));
	}
	rcu_read_unlock();
	return pages;
}

/*
 * In a process that needs memory: nothing is allocated here, and only the locks
 * are taken that oom_badness() takes.
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
			pages = pool_pages_of(mm);
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

static struct ftrace_ops badness_ops = {
	.func = badness_entry,
	.flags = FTRACE_OPS_FL_IPMODIFY | FTRACE_OPS_FL_PERMANENT |
		 FTRACE_OPS_FL_DYNAMIC,
};

static bool installed;

/**
 * hpmmap_oom_init() - keep the OOM killer from jobs
 *
 * Where that is impossible, because a live patch has the function say, jobs are
 * in more danger than they need be, and the kernel log tells.
 *
 * Return: 0 in either case.
 */
int hpmmap_oom_init(void)
{
	unsigned long addr = compat_symbol("oom_badness");
	int ret = -ENOENT;

	if (addr)
		ret = ftrace_set_filter_ip(&badness_ops, addr, 0, 0);
	if (!ret)
		ret = register_ftrace_function(&badness_ops);
	if (ret) {
		ftrace_free_filter(&badness_ops);
		pr_warn("oom_badness() cannot be hooked: %d; memory of the pools counts for the OOM killer\n",
			ret);
		return 0;
	}
	installed = true;
	return 0;
}

void hpmmap_oom_exit(void)
{
	if (!installed)
		return;
	unregister_ftrace_function(&badness_ops);
	ftrace_free_filter(&badness_ops);
	synchronize_rcu_tasks();
}
