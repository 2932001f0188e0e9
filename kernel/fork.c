// SPDX-License-Identifier: GPL-2.0
/*
 * fork: the child gets everything the parent has, before it runs.
 *
 * Linux would share the memory for good, for to it our mappings are shared
 * ones. So the child gets a store of its own while the address space is
 * duplicated, in vm_ops->open: with the same blocks, which from then on
 * nobody writes to (share.c), or with copies where that cannot be.
 *
 * The clone hook keeps the parent's other threads from changing mappings
 * meanwhile. As on Linux, the snapshot is of one moment: where a mapping is
 * copied, the access of other threads to it is taken away first, and who
 * needs it waits for mmap_lock until the fork is done.
 */
#include <linux/sched/signal.h>
#include <linux/uaccess.h>
#include <uapi/linux/sched.h>

#include "hpmmap.h"

static int fork_prepare(struct hpmmap_ctx *ctx)
{
	ctx->fork.child = hpmmap_ctx_alloc(ctx->job);
	if (!ctx->fork.child)
		return -ENOMEM;
	ctx->fork.failed = NULL;
	ctx->fork.repair = false;
	ctx->fork.task = current;
	return 0;
}

/* Map everything of @ctx that has memory. */
static void populate(struct hpmmap_ctx *ctx)
{
	struct hpmmap_block *block;
	unsigned long slot;

	xa_for_each(&ctx->store, slot, block)
		hpmmap_vma_repair(ctx, slot << SLOT_SHIFT,
				  (slot + 1) << SLOT_SHIFT);
}

static bool has_other_threads(struct mm_struct *mm)
{
	return atomic_read(&mm->mm_users) > 1;
}

static void fork_finish(struct hpmmap_ctx *ctx)
{
	if (ctx->fork.repair)
		populate(ctx);
	if (ctx->fork.child)
		hpmmap_ctx_put(ctx->fork.child);
	ctx->fork.child = NULL;
	ctx->fork.task = NULL;
}

static long handle_fork(struct hpmmap_ctx *ctx, enum hpmmap_call call,
			const struct pt_regs *regs)
{
	long ret = fork_prepare(ctx);

	if (ret)
		return ret;
	ret = hpmmap_call_orig(call, regs);
	fork_finish(ctx);
	/* A child that came to nothing may have a context already. */
	if (ret < 0)
		hpmmap_reap_soon();
	return ret;
}

static long do_fork(enum hpmmap_call call, const struct pt_regs *regs,
		    u64 flags)
{
	/* The same address space. */
	if (flags & CLONE_VM)
		return hpmmap_call_orig(call, regs);
	return hpmmap_handle(call, regs, handle_fork);
}

long hpmmap_sys_clone(const struct pt_regs *regs)
{
	return do_fork(HPMMAP_CALL_CLONE, regs, regs->di);
}

long hpmmap_sys_clone3(const struct pt_regs *regs)
{
	const struct clone_args __user *args = (void __user *)regs->di;
	u64 flags;

	/*
	 * Linux reads it again, and says what is wrong with it. If it changes
	 * meanwhile, memory is found in hpmmap_fork_open() or not at all.
	 */
	if (get_user(flags, &args->flags))
		flags = CLONE_VM;
	return do_fork(HPMMAP_CALL_CLONE3, regs, flags);
}

long hpmmap_sys_fork(const struct pt_regs *regs)
{
	return do_fork(HPMMAP_CALL_FORK, regs, 0);
}

long hpmmap_sys_vfork(const struct pt_regs *regs)
{
	return do_fork(HPMMAP_CALL_VFORK, regs, CLONE_VM | CLONE_VFORK);
}

/*
 * The child's context, published for @mm; NULL without memory. With a
 * reference for the caller.
 */
static struct hpmmap_ctx *child_ctx_get(struct hpmmap_ctx *parent,
					struct mm_struct *mm)
{
	struct hpmmap_ctx *child = hpmmap_ctx_get(mm);

	if (child)
		return child;
	if (parent->fork.task == current) {
		child = parent->fork.child;
		parent->fork.child = NULL;
	} else {
		/* A 32-bit call, say: not by way of the hooks. */
		child = hpmmap_ctx_alloc(parent->job);
	}
	if (!child)
		return NULL;
	if (hpmmap_share_begin(parent, child)) {
		hpmmap_ctx_put(child);
		return NULL;
	}
	child->heap_end = parent->heap_end;
	child->image = parent->image;
	child->image_bytes = parent->image_bytes;
	/* Not by way of the hooks: an mremap may be under way. */
	if (parent->fork.task != current)
		WRITE_ONCE(mm->total_vm,
			   mm->total_vm + parent->discount.total);
	refcount_inc(&child->refs);
	hpmmap_ctx_publish(child, mm);
	return child;
}

/**
 * hpmmap_fork_copies() - a block of a mapping is about to be copied
 * @parent: the caller's context
 * @vma: the parent's mapping; mmap_lock held for writing
 */
void hpmmap_fork_copies(struct hpmmap_ctx *parent, struct vm_area_struct *vma)
{
	parent->fork.repair = true;
	if (has_other_threads(vma->vm_mm))
		compat_zap(vma, vma->vm_start, vma->vm_end - vma->vm_start);
}

/**
 * hpmmap_fork_open() - a mapping of the caller was duplicated for its child
 * @vma: the child's; both mmap_locks are held for writing
 */
void hpmmap_fork_open(struct vm_area_struct *vma)
{
	struct hpmmap_ctx *parent = hpmmap_ctx_get(current->mm);
	struct hpmmap_ctx *child;

	if (!parent)
		return;
	child = child_ctx_get(parent, vma->vm_mm);
	if (!child) {
		parent->fork.failed = vma->vm_mm;
	} else {
		if (!(vma->vm_flags & VM_WIPEONFORK))
			hpmmap_store_snapshot(parent, child,
					      find_vma(current->mm,
						       vma->vm_start));
		hpmmap_ctx_put(child);
	}
	hpmmap_ctx_put(parent);
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
		hpmmap_vma_own_file(ctx);
		hpmmap_count_held(ctx);
		hpmmap_sysfs_ctx_add(ctx);
		mutex_unlock(&ctx->ops);
	}
	hpmmap_ctx_put(ctx);
}

/**
 * hpmmap_fork_child() - a child is about to run
 * @child: it; called in its parent, with preemption disabled
 *
 * Here the child cannot be killed. It kills itself in its first work, and one
 * that did not even get a context cannot access what it inherited.
 *
 * Return: false if it may still be given a context.
 */
bool hpmmap_fork_child(struct task_struct *child)
{
	struct hpmmap_ctx *parent, *ctx;
	bool failed;

	if (!child->mm || child->mm == current->mm)
		return true;
	parent = hpmmap_ctx_get(current->mm);
	if (!parent)
		return false;
	ctx = hpmmap_ctx_get(child->mm);
	failed = parent->fork.failed == child->mm;
	if (failed) {
		parent->fork.failed = NULL;
		if (ctx)
			ctx->doomed = true;
	}
	if (failed || (ctx && ctx->doomed))
		pr_warn_ratelimited("no memory for child %d of %d, which is killed\n",
				    child->pid, current->pid);
	hpmmap_ctx_put(parent);
	if (!ctx)
		return failed;
	ctx->pid = child->tgid;
	init_task_work(&ctx->start_work, start_child);
	if (task_work_add(child, &ctx->start_work, TWA_RESUME))
		hpmmap_ctx_put(ctx);
	return true;
}
