// SPDX-License-Identifier: GPL-2.0
/*
 * fork: the child gets a copy of everything before it runs.
 *
 * Linux would share the memory, for to it our mappings are shared ones. So
 * the blocks are copied while the address space is duplicated, in
 * vm_ops->open, which cannot fail: the clone hook finds the memory first and
 * keeps the parent's other threads from mapping more meanwhile.
 *
 * As on Linux, the snapshot is of one moment: if the parent has other
 * threads, their access to a mapping is taken away before it is copied, and
 * who needs it waits for mmap_lock until the fork is done.
 */
#include <linux/sched/signal.h>
#include <linux/uaccess.h>
#include <uapi/linux/sched.h>

#include "hpmmap.h"

/* Blocks of mappings that the child will have. */
static unsigned long count_inherited(struct hpmmap_ctx *ctx)
{
	unsigned long n = 0, last = ULONG_MAX;
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, ctx->mm, 0);

	mmap_read_lock(ctx->mm);
	for_each_vma(vmi, vma) {
		unsigned long first = slot_of(vma->vm_start);

		if (!hpmmap_vma_is_ours(vma) || vma->vm_flags & VM_DONTCOPY)
			continue;
		n += hpmmap_store_count(ctx, vma->vm_start, vma->vm_end);
		if (first == last && hpmmap_store_load(ctx, first))
			n--;
		last = slot_of(vma->vm_end - 1);
	}
	mmap_read_unlock(ctx->mm);
	return n;
}

static int fork_prepare(struct hpmmap_ctx *ctx)
{
	struct hpmmap_ctx *child = hpmmap_ctx_alloc(ctx->job);
	struct hpmmap_placement place;

	if (!child)
		return -ENOMEM;
	hpmmap_placement_get(ctx->job, NULL, &place);
	if (hpmmap_pool_alloc(ctx->job, &place, NO_SLOT, count_inherited(ctx),
			      &ctx->fork.blocks) && ctx->job->strict) {
		hpmmap_ctx_put(child);
		return -ENOMEM;
	}
	ctx->fork.child = child;
	ctx->fork.failed = NULL;
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
	if (has_other_threads(ctx->mm))
		populate(ctx);
	if (ctx->fork.child)
		hpmmap_ctx_put(ctx->fork.child);
	ctx->fork.child = NULL;
	ctx->fork.task = NULL;
	hpmmap_pool_free_list(&ctx->fork.blocks);
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
	child->heap_end = parent->heap_end;
	refcount_inc(&child->refs);
	hpmmap_ctx_publish(child, mm);
	return child;
}

/**
 * hpmmap_fork_open() - a mapping of the caller was duplicated for its child
 * @vma: the child's; both mmap_locks are held for writing
 */
void hpmmap_fork_open(struct vm_area_struct *vma)
{
	struct hpmmap_ctx *parent = hpmmap_ctx_get(current->mm);
	struct hpmmap_ctx *child;
	bool mine;

	if (!parent)
		return;
	child = child_ctx_get(parent, vma->vm_mm);
	if (!child) {
		parent->fork.failed = vma->vm_mm;
		goto out;
	}
	if (has_other_threads(current->mm)) {
		struct vm_area_struct *own;

		own = find_vma(current->mm, vma->vm_start);
		compat_zap(own, own->vm_start, own->vm_end - own->vm_start);
	}
	mine = parent->fork.task == current;
	hpmmap_store_snapshot(parent, child, vma->vm_start, vma->vm_end,
			      mine ? &parent->fork.blocks : NULL);
	hpmmap_ctx_put(child);
out:
	hpmmap_ctx_put(parent);
}

/* Runs in the child before its first instruction. */
static void populate_child(struct callback_head *work)
{
	struct hpmmap_ctx *ctx = container_of(work, struct hpmmap_ctx,
					      populate_work);

	if (current->mm == ctx->mm && !(current->flags & PF_EXITING)) {
		mutex_lock(&ctx->ops);
		populate(ctx);
		hpmmap_sysfs_ctx_add(ctx);
		mutex_unlock(&ctx->ops);
	}
	hpmmap_ctx_put(ctx);
}

/**
 * hpmmap_fork_child() - a child is about to run
 * @child: it; called in its parent, with preemption disabled
 *
 * Return: whether it has a context of its own.
 */
bool hpmmap_fork_child(struct task_struct *child)
{
	struct hpmmap_ctx *parent, *ctx;

	if (!child->mm || child->mm == current->mm)
		return true;
	parent = hpmmap_ctx_get(current->mm);
	if (!parent)
		return false;
	ctx = hpmmap_ctx_get(child->mm);
	if (parent->fork.failed == child->mm || (ctx && ctx->doomed)) {
		parent->fork.failed = NULL;
		pr_warn_ratelimited("no memory for child %d of %d, which is killed\n",
				    child->pid, current->pid);
		send_sig(SIGKILL, child, 1);
	}
	hpmmap_ctx_put(parent);
	if (!ctx)
		return false;
	ctx->pid = child->tgid;
	init_task_work(&ctx->populate_work, populate_child);
	if (task_work_add(child, &ctx->populate_work, TWA_RESUME))
		hpmmap_ctx_put(ctx);
	return true;
}
