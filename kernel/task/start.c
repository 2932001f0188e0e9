// SPDX-License-Identifier: GPL-2.0
/*
 * A new program before its first instruction: where its heap starts, and the memory of
 * its main stack.
 */
#include <linux/mempolicy.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/resource.h>
#include <linux/sched/signal.h>
#include <linux/uaccess.h>

#include "hook.h"
#include "hpmmap.h"
#include "as/ctx.h"
#include "as/fit.h"
#include "as/job.h"
#include "task/start.h"

/* What an eager stack has at once, RLIMIT_STACK allowing. */
#define STACK_BYTES (8UL << 20)

/**
 * hpmmap_start_heap() - where the heap of a new program starts
 * @ctx: its context
 *
 * Where Linux put it. A random break moves up to the next 2 MB that the program has nothing
 * of, behind room for small mappings: it is as random there, modulo 512 KB.
 */
void hpmmap_start_heap(struct hpmmap_ctx *ctx)
{
	struct mm_struct *mm = ctx->mm;
	unsigned long start = mm->brk, slot = ALIGN(start, SLOT_SIZE);

	mmap_read_lock(mm);
	/* Linux leaves a page before a break that it chose at random. */
	if (current->flags & PF_RANDOMIZE &&
	    !find_vma_intersection(mm, start - PAGE_SIZE, slot + SLOT_SIZE))
		start = slot + BESIDE_HEAP_BYTES + start % BESIDE_HEAP_BYTES;
	mmap_read_unlock(mm);
	/* The program does not run yet, so nothing changes it meanwhile. */
	mm->start_brk = mm->brk = start;
	ctx->heap_start = ctx->heap_end = start;
}

/*
 * Pages that are mapped, or get mapped, stay where they are: not where Linux wants to move
 * what it has, nor on a list of what is reclaimed. As far as there is memory.
 */
static void pages_hold(unsigned long start, unsigned long end)
{
	const struct mempolicy *pol = current->mempolicy;
	struct page *pages[16];
	long nr;

	/* Of nodes that have but movable memory nothing can be held. */
	if (pol && pol->mode == MPOL_BIND &&
	    !nodes_intersects(pol->nodes, node_states[N_NORMAL_MEMORY]))
		return;
	for (; start < end; start += nr << PAGE_SHIFT) {
		nr = min(ARRAY_SIZE(pages), (end - start) >> PAGE_SHIFT);
		nr = pin_user_pages_fast(start, nr, FOLL_WRITE | FOLL_LONGTERM, pages);
		if (nr <= 0)
			return;
		compat_pages_isolate(pages, nr);
		unpin_user_pages(pages, nr);
	}
}

/**
 * hpmmap_start_stack() - the main stack of a new program gets its memory
 * @ctx: its context, ctx->ops held
 *
 * It is Linux's mapping, with Linux's pages: it looks, counts, grows and ends as ever. All
 * that execve has mapped, 128 KB below what is on it, is there from the beginning; of a job
 * with eager stacks 8 MB, if the limits allow it.
 */
void hpmmap_start_stack(struct hpmmap_ctx *ctx)
{
	unsigned long size = min(rlimit(RLIMIT_STACK), STACK_BYTES) & PAGE_MASK;
	unsigned long start = 0, end = 0;
	struct vm_area_struct *vma;
	bool grow = false;

	mmap_read_lock(ctx->mm);
	vma = vma_lookup(ctx->mm, ctx->mm->start_stack);
	if (vma && vma->vm_flags & VM_GROWSDOWN) {
		start = vma->vm_start;
		end = vma->vm_end;
		grow = ctx->job->eager_stacks && end - start < size &&
		       !find_vma_intersection(ctx->mm, end - size, start);
	}
	mmap_read_unlock(ctx->mm);
	/* A write below it lets it grow, by small pages: large ones stay on the lists. */
	if (grow && !clear_user((void __user *)(end - size), 1)) {
		start = end - size;
		hpmmap_madvise(start, end - start, MADV_NOHUGEPAGE);
	}
	pages_hold(start, end);
}
