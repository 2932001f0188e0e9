// SPDX-License-Identifier: GPL-2.0
/*
 * A new program before its first instruction: where its heap starts, and the memory of
 * its main stack.
 */
#include <linux/mman.h>
#include <linux/resource.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/task_stack.h>
#include <linux/uaccess.h>

#include "hpmmap.h"
#include "mem/block.h"
#include "mem/pool.h"
#include "as/change.h"
#include "as/counters.h"
#include "as/ctx.h"
#include "as/file.h"
#include "as/fit.h"
#include "as/job.h"
#include "as/stats.h"
#include "as/store.h"
#include "task/start.h"

/* The part of the main stack that is mapped at once, RLIMIT_STACK allowing. */
#define STACK_BYTES (8UL << 20)

/**
 * hpmmap_start_heap() - where the heap of a new program starts
 * @ctx: its context
 *
 * In the next 2 MB that the program has nothing of, behind some room for small
 * mappings, and as random as the break was, modulo 512 KB. Left alone where something is in
 * the way.
 */
void hpmmap_start_heap(struct hpmmap_ctx *ctx)
{
	struct mm_struct *mm = ctx->mm;
	unsigned long start = ALIGN(mm->brk, SLOT_SIZE);

	/* As prctl(2) does it, arg_lock says where it is: nothing is mapped. */
	mmap_read_lock(mm);
	if (mm->start_brk == mm->brk && start < TASK_SIZE - SLOT_SIZE &&
	    !find_vma_intersection(mm, PAGE_ALIGN(mm->brk),
				   start + SLOT_SIZE)) {
		ctx->heap_slot = start;
		start += BESIDE_HEAP_BYTES;
		if (current->flags & PF_RANDOMIZE)
			start += PAGE_ALIGN(mm->brk) % BESIDE_HEAP_BYTES;
		spin_lock(&mm->arg_lock);
		mm->start_brk = start;
		mm->brk = start;
		spin_unlock(&mm->arg_lock);
		ctx->heap_end = start;
	}
	mmap_read_unlock(mm);
}

/**
 * struct stack - the main stack as execve left it
 * @start: where ours starts
 * @top: end
 * @sp: lowest address with contents
 * @prot: PROT_*
 */
struct stack {
	unsigned long start;
	unsigned long top;
	unsigned long sp;
	unsigned long prot;
};

static bool stack_find(struct mm_struct *mm, struct stack *s)
{
	unsigned long size = min(rlimit(RLIMIT_STACK), STACK_BYTES) & PAGE_MASK;
	struct vm_area_struct *vma;
	unsigned long bottom = 0;

	s->sp = current_user_stack_pointer() & PAGE_MASK;
	mmap_read_lock(mm);
	vma = vma_lookup(mm, s->sp);
	if (vma && vma->vm_flags & VM_GROWSDOWN && !vma->vm_file) {
		bottom = vma->vm_start;
		s->top = vma->vm_end;
		s->prot = PROT_READ | PROT_WRITE;
		if (vma->vm_flags & VM_EXEC)
			s->prot |= PROT_EXEC;
	}
	mmap_read_unlock(mm);
	/* The lowest page of what is allowed stays Linux's and can grow. */
	if (!bottom || size < 2 * PAGE_SIZE || s->top < size)
		return false;
	s->start = s->top - size + PAGE_SIZE;
	return s->start <= s->sp;
}

static int stack_copy(struct hpmmap_ctx *ctx, const struct stack *s)
{
	void *buf = (void *)__get_free_page(GFP_KERNEL);
	struct hpmmap_block *block;
	unsigned long addr;
	int ret = 0;

	if (!buf)
		return -ENOMEM;
	for (addr = s->sp; !ret && addr < s->top; addr += PAGE_SIZE) {
		block = hpmmap_store_load(ctx, slot_of(addr));
		if (!block)
			ret = -ENOMEM;
		else if (copy_from_user(buf, (void __user *)addr, PAGE_SIZE))
			ret = -EFAULT;
		else
			ret = hpmmap_block_write(block, page_in_slot(addr),
						 buf);
	}
	free_page((unsigned long)buf);
	return ret;
}

/**
 * hpmmap_start_stack() - the memory of a new program's main stack becomes ours
 * @ctx: its context, ctx->ops held
 *
 * It keeps its addresses. Below it a page of Linux's stack mapping stays and grows
 * as ever.
 */
void hpmmap_start_stack(struct hpmmap_ctx *ctx)
{
	struct mm_struct *mm = ctx->mm;
	unsigned long ret = -ENOMEM, given, addr, next;
	struct hpmmap_change c = { .ctx = ctx };
	LIST_HEAD(blocks);
	struct stack s;

	if (!stack_find(mm, &s))
		return;
	c.start = s.start;
	c.end = s.top;
	given = s.start;
	if (!ctx->job->eager_stacks)
		given = hpmmap_stack_given(s.start, s.sp);
	if (hpmmap_policy_alloc(ctx, given, s.top, &blocks)) {
		hpmmap_count_fallback(ctx, HPMMAP_FALLBACK_EXEC,
				      s.top - s.start);
		return;
	}
	if (clear_user((void __user *)(s.start - PAGE_SIZE), 1))
		goto out;
	for (addr = given; addr < s.top; addr = next) {
		next = min(s.top, (addr & SLOT_MASK) + SLOT_SIZE);
		hpmmap_store_commit(ctx, NULL, addr, next, &blocks, NULL);
	}
	if (stack_copy(ctx, &s))
		goto out;
	ret = hpmmap_vma_map(ctx, s.start, s.top - s.start, s.prot, MAP_FIXED);
out:
	if (IS_ERR_VALUE(ret))
		hpmmap_count_fallback(ctx, HPMMAP_FALLBACK_EXEC,
				      s.top - s.start);
	hpmmap_change_settle(&c, IS_ERR_VALUE(ret) ? HPMMAP_CUT : HPMMAP_KEPT,
			     NULL);
	hpmmap_pool_free_unused(&blocks);
}
