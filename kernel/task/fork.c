// SPDX-License-Identifier: GPL-2.0
/*
 * fork: the child gets everything the parent has, before it runs (as/life/snapshot.c).
 *
 * Every fork comes by kernel_clone(), whatever the system call; the hook there
 * says whose fork it is, for vm_ops->open is also called for what others split.
 * It keeps the parent's other threads from changing mappings meanwhile.
 */
#include <uapi/linux/sched.h>

#include "hpmmap.h"
#include "as/own/ctx.h"
#include "as/own/stats.h"
#include "as/map/file.h"
#include "as/map/range.h"
#include "as/change/commit.h"
#include "as/life/life.h"
#include "as/life/share.h"
#include "as/life/snapshot.h"
#include "call/step/extent.h"
#include "task/fork.h"

/* All that may fail but for copies: what has begun has a context for a child. */
static int fork_prepare(struct hpmmap_ctx *ctx)
{
	struct hpmmap_ctx *child = hpmmap_ctx_alloc(ctx->job);

	if (!child)
		return -ENOMEM;
	if (hpmmap_share_begin(ctx, child)) {
		hpmmap_ctx_put_now(child);
		return -ENOMEM;
	}
	child->heap_end = ctx->heap_end;
	child->heap_start = ctx->heap_start;
	child->shared_linux = READ_ONCE(ctx->shared_linux);
	hpmmap_extents_copy(child, ctx);
	child->image = ctx->image;
	child->image_bytes = ctx->image_bytes;
	child->stats.program = ctx->stats.program;
	child->stats.forked = true;
	ctx->fork.child = child;
	WRITE_ONCE(ctx->fork.task, current);
	return 0;
}

/* The address space has been copied, or never will be. */
static void fork_finish(struct hpmmap_ctx *ctx)
{
	WRITE_ONCE(ctx->fork.task, NULL);
	/* What was copied. */
	hpmmap_vma_repair_split(ctx);
	if (ctx->fork.child->mm)
		hpmmap_ctx_put(ctx->fork.child);
	else
		hpmmap_ctx_put_now(ctx->fork.child);
	ctx->fork.child = NULL;
	hpmmap_ops_unlock(ctx);
}

/*
 * Stands in for dup_userfaultfd_complete(), which is called when a fork has copied the
 * address space. From there on the fork may wait: for a reader of these events, for a
 * debugger, with CLONE_VFORK for the child. The other threads can go on.
 */
void hpmmap_fork_copied(struct list_head *events)
{
	struct hpmmap_ctx *ctx = hpmmap_ctx_get(current->mm);

	if (ctx) {
		if (hpmmap_is_forking(ctx))
			fork_finish(ctx);
		hpmmap_ctx_put(ctx);
	}
	compat_fork_copied(events);
}

static pid_t handle_fork(struct hpmmap_ctx *ctx, struct kernel_clone_args *args)
{
	pid_t ret = hpmmap_ops_lock(ctx);

	if (ret)
		return ret;
	/* The child gets the count of its parent's pages. */
	hpmmap_range_count_again(ctx);
	ret = fork_prepare(ctx);
	if (ret) {
		hpmmap_ops_unlock(ctx);
		return ret;
	}
	ret = compat_kernel_clone(args);
	/* It may not have come so far, or the kernel has no userfaultfd. */
	if (hpmmap_is_forking(ctx))
		fork_finish(ctx);
	/* A child that came to nothing may have a context already. */
	if (ret < 0)
		hpmmap_reap_soon();
	return ret;
}

/* kernel_clone() of a registered process. */
pid_t hpmmap_kernel_clone(struct kernel_clone_args *args)
{
	struct hpmmap_ctx *ctx;
	pid_t ret;

	/* The same address space. */
	if (args->flags & CLONE_VM)
		return compat_kernel_clone(args);
	ctx = hpmmap_ctx_get(current->mm);
	if (!ctx)
		return compat_kernel_clone(args);
	ret = handle_fork(ctx, args);
	hpmmap_ctx_put(ctx);
	return ret;
}

/* Runs in the child before its first instruction. */
static void start_child(struct callback_head *work)
{
	struct hpmmap_ctx *ctx = container_of(work, struct hpmmap_ctx,
					      start_work);

	if (ctx->doomed) {
		send_sig(SIGKILL, current, 1);
	} else if (current->mm == ctx->mm && !(current->flags & PF_EXITING)) {
		mutex_lock(&ctx->ops);
		if (!mmap_write_lock_killable(ctx->mm)) {
			hpmmap_vma_own_file(ctx);
			mmap_write_unlock(ctx->mm);
		}
		hpmmap_count_held(ctx);
		WRITE_ONCE(ctx->shown, true);
		mutex_unlock(&ctx->ops);
	}
	hpmmap_ctx_put(ctx);
}

/*
 * A child is about to run; called in its parent, with preemption disabled. The child cannot
 * be killed here: it kills itself in its first work. Returns false if it may still be given
 * a context.
 */
bool hpmmap_fork_child(struct task_struct *child)
{
	struct hpmmap_ctx *ctx;

	if (!child->mm || child->mm == current->mm)
		return true;
	ctx = hpmmap_ctx_get(child->mm);
	if (!ctx)
		return false;
	if (ctx->doomed)
		pr_warn_ratelimited("no memory for child %d of %d, which is killed\n",
				    child->pid, current->pid);
	ctx->pid = child->tgid;
	WRITE_ONCE(ctx->owner.mm, child->mm);
	init_task_work(&ctx->start_work, start_child);
	if (task_work_add(child, &ctx->start_work, TWA_RESUME))
		hpmmap_ctx_put(ctx);
	return true;
}
