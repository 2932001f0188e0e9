// SPDX-License-Identifier: GPL-2.0
/*
 * A new program before its first instruction: its regions, where its heap starts, the memory of its
 * main stack, and its image: text, data and bss in memory of the pools.
 *
 * execve has mapped the program as ever. Before its first instruction the mappings of the program's
 * file and its bss are read into blocks and replaced by mappings of ours: same addresses, contents
 * and permissions. What others share, the ELF interpreter and the vDSO, stays Linux's and is only
 * mapped in advance, as libraries are when the dynamic linker maps them (call/mmap.c).
 */
#include <linux/cpuset.h>
#include <linux/resource.h>

#include "hook.h"
#include "hpmmap.h"
#include "mem/block/block.h"
#include "mem/block/nodes.h"
#include "mem/pool/pool.h"
#include "as/own/ctx.h"
#include "as/own/job.h"
#include "as/own/reserve.h"
#include "as/own/stats.h"
#include "as/map/file.h"
#include "as/map/policy.h"
#include "as/map/range.h"
#include "as/map/vma.h"
#include "as/store/store.h"
#include "as/change/change.h"
#include "as/change/fit.h"
#include "call/step/fresh.h"
#include "call/step/handle.h"
#include "task/image.h"

/**
 * struct segment - a mapping that execve made for the program
 * @start: first address
 * @end: end
 * @prot: PROT_*
 * @empty: bss that was not written to yet
 */
struct segment {
	unsigned long start;
	unsigned long end;
	unsigned long prot;
	bool empty;
};

struct image {
	struct segment *segments;
	unsigned int nr;
};

/* bss follows what the file holds of its segment. */
static bool is_bss(const struct vm_area_struct *vma, const struct image *image)
{
	return !vma->vm_file && !vma->vm_ops && !(vma->vm_flags & VM_GROWSDOWN) && image->nr &&
	       image->segments[image->nr - 1].end == vma->vm_start;
}

/* Was what is read-only changed, by a debugger or a uprobe, which must find its page again? */
static bool is_patched(const struct vm_area_struct *vma)
{
	return !(vma->vm_flags & VM_WRITE) && vma->anon_vma;
}

static void image_find_locked(struct mm_struct *mm, struct image *image)
{
	struct vm_area_struct *vma = vma_lookup(mm, mm->start_code);
	struct inode *inode;
	VMA_ITERATOR(vmi, mm, 0);

	mmap_assert_locked(mm);
	if (!vma || !vma->vm_file)
		return;
	inode = file_inode(vma->vm_file);
	for_each_vma(vmi, vma) {
		bool of_file = vma->vm_file && file_inode(vma->vm_file) == inode &&
			       !(vma->vm_flags & VM_SHARED);

		if ((!of_file && !is_bss(vma, image)) || is_patched(vma) ||
		    !hpmmap_vma_is_accessible(vma))
			continue;
		image->segments[image->nr++] = (struct segment) {
			.start = vma->vm_start,
			.end = vma->vm_end,
			.prot = hpmmap_vma_prot(vma->vm_flags),
			.empty = !vma->vm_file && !vma->anon_vma,
		};
	}
}

/* The mappings to replace, in order of address. No other task changes them. */
static int image_find(struct mm_struct *mm, struct image *image)
{
	image->segments = kvcalloc(READ_ONCE(mm->map_count), sizeof(*image->segments), GFP_KERNEL);
	if (!image->segments)
		return -ENOMEM;
	mmap_read_lock(mm);
	image_find_locked(mm, image);
	mmap_read_unlock(mm);
	return 0;
}

static unsigned long image_bytes(const struct image *image)
{
	unsigned long bytes = 0;
	unsigned int i;

	for (i = 0; i < image->nr; i++)
		bytes += image->segments[i].end - image->segments[i].start;
	return bytes;
}

/* Segments may share a slot, and with it a block. */
static unsigned long image_missing(struct hpmmap_ctx *ctx, const struct image *image)
{
	unsigned long nr = 0, last = ULONG_MAX;
	unsigned int i;

	for (i = 0; i < image->nr; i++) {
		const struct segment *s = &image->segments[i];

		nr += hpmmap_store_missing(ctx, s->start, s->end);
		if (slot_of(s->start) == last && !hpmmap_store_load(ctx, last))
			nr--;
		last = slot_of(s->end - 1);
	}
	return nr;
}

/* Read at once, in bytes. */
#define READ_PIECE (64UL << 10)

/*
 * As the program itself would, whom a signal ends while it waits for a server; then
 * as a debugger, whatever the permissions are.
 */
static int piece_read(struct hpmmap_ctx *ctx, unsigned long addr, size_t len, void *buf)
{
	unsigned int first = page_in_slot(addr), i;
	struct hpmmap_block *block;
	int ret;

	if (copy_from_user(buf, (void __user *)addr, len)) {
		if (fatal_signal_pending(current))
			return -EINTR;
		if (access_process_vm(current, addr, buf, len, FOLL_FORCE) != len)
			return -EIO;
	}
	mutex_lock(&ctx->lock);
	block = hpmmap_store_load(ctx, slot_of(addr));
	ret = block ? 0 : -ENOMEM;
	for (i = 0; !ret && i < len >> PAGE_SHIFT; i++)
		ret = hpmmap_block_write(block, first + i, buf + i * PAGE_SIZE);
	mutex_unlock(&ctx->lock);
	return ret;
}

/* By way of @buf: reading may take long, and then a memory error has to wait. */
static int segment_read(struct hpmmap_ctx *ctx, const struct segment *s, struct list_head *blocks, void *buf)
{
	unsigned long addr, next, end;
	int ret;

	for (addr = s->start; addr < s->end; addr = next) {
		next = min(s->end, (addr & SLOT_MASK) + SLOT_SIZE);
		if (!hpmmap_store_commit(ctx, NULL, addr, next, blocks, NULL))
			return -ENOMEM;
		for (; addr < next; addr = end) {
			if (fatal_signal_pending(current))
				return -EINTR;
			cond_resched();
			end = s->empty ? next : min(next, addr + READ_PIECE);
			ret = s->empty ? 0 : piece_read(ctx, addr, end - addr, buf);
			if (ret)
				return ret;
		}
	}
	return 0;
}

/* What is replaced has the same contents, so any of them may be missing. */
static int image_replace(struct hpmmap_ctx *ctx, const struct image *image)
{
	unsigned long ret;
	unsigned int i;

	for (i = 0; i < image->nr; i++) {
		const struct segment *s = &image->segments[i];

		ret = hpmmap_vma_map(ctx, s->start, s->end - s->start, s->prot, MAP_FIXED);
		if (!IS_ERR_VALUE(ret)) {
			ctx->image_bytes += s->end - s->start;
			continue;
		}
		hpmmap_range_kill_if_lost(ctx, s->start, s->end);
		return ret;
	}
	return 0;
}

static int image_move(struct hpmmap_ctx *ctx, const struct image *image, struct list_head *blocks)
{
	void *buf = kvmalloc(READ_PIECE, GFP_KERNEL);
	struct hpmmap_placement place;
	unsigned int i;
	int ret;

	if (!buf)
		return -ENOMEM;
	hpmmap_placement_get(ctx->job, NULL, &place);
	ret = hpmmap_reserve(ctx, &place, NO_SLOT, image_missing(ctx, image), false, blocks);
	for (i = 0; i < image->nr && !ret; i++)
		ret = segment_read(ctx, &image->segments[i], blocks, buf);
	if (!ret)
		ret = image_replace(ctx, image);
	for (i = 0; i < image->nr; i++) {
		struct hpmmap_change c = HPMMAP_CHANGE(ctx, image->segments[i].start,
						       image->segments[i].end);

		hpmmap_change_settle(&c, ret ? HPMMAP_FAILED : HPMMAP_KEPT, NULL);
	}
	kvfree(buf);
	return ret;
}

/* Some of its pages need not exist. */
static void map_special(struct vm_area_struct *vma)
{
	unsigned long addr;

	for (addr = vma->vm_start; addr < vma->vm_end; addr += PAGE_SIZE)
		handle_mm_fault(vma, addr, FAULT_FLAG_REMOTE, NULL);
}

/* Linux's mappings of files, and the vDSO with its data. */
static void map_rest(struct mm_struct *mm)
{
	struct vm_area_struct *vma;
	unsigned long start, end = 0;
	unsigned long prot;
	bool file;

	for (;;) {
		mmap_read_lock(mm);
		vma = find_vma(mm, end);
		if (!vma)
			break;
		start = vma->vm_start;
		end = vma->vm_end;
		file = vma->vm_file && !hpmmap_vma_is_ours(vma);
		prot = hpmmap_vma_prot(vma->vm_flags);
		if (!vma->vm_file && vma->vm_ops)
			map_special(vma);
		mmap_read_unlock(mm);
		/* An error means that there is nothing to map, which is as good. */
		if (file)
			hpmmap_touch_range(start, end - start, prot);
	}
	mmap_read_unlock(mm);
}

/*
 * Moves a program that has not run yet to memory of the pools. What cannot be moved stays
 * as Linux mapped it, and is counted. ctx->ops is held.
 */
void hpmmap_image_setup(struct hpmmap_ctx *ctx)
{
	struct image image = {};
	LIST_HEAD(blocks);

	lockdep_assert_held(&ctx->ops);
	if (image_find(ctx->mm, &image) || image_move(ctx, &image, &blocks))
		hpmmap_count_fallback(ctx, HPMMAP_FALLBACK_EXEC, image_bytes(&image));
	hpmmap_pool_free_unused(&blocks);
	kvfree(image.segments);
	map_rest(ctx->mm);
}

/* Regions, heap and stack. */

/*
 * Takes the memory of a region for the calling task. A thread's policy does not move a bound one, as
 * after mbind(2), but its cpuset counts.
 */
static int region_take(struct hpmmap_job *job, struct hpmmap_account *account,
		       const struct hpmmap_region *r, struct list_head *blocks)
{
	struct hpmmap_placement place;
	struct hpmmap_request req = {
		.account = account,
		.place = &place,
		.slot = slot_of(r->start),
		.nr = slot_of(r->length),
		.large = job->large,
		.whole = job->gigabytes,
	};
	int ret;

	hpmmap_placement_get(job, NULL, &place);
	if (r->node != NUMA_NO_NODE) {
		/* A node with pool memory only is in no cpuset. */
		if (node_state(r->node, N_MEMORY) &&
		    !node_isset(r->node, cpuset_current_mems_allowed))
			return -EINVAL;
		place = (struct hpmmap_placement) { .nodes = nodemask_of_node(r->node) };
		place.preferred = place.nodes;
	}
	ret = hpmmap_pool_alloc(&req, blocks);
	if (ret && req.refused_by)
		hpmmap_count_limited(job, req.refused_by);
	if (!ret && req.nr_gigabytes)
		hpmmap_count_large(job, req.nr_gigabytes, req.nr_large);
	return ret;
}

/* @last: where the region before it ends. */
static bool region_is_valid(const struct hpmmap_job *job, const struct hpmmap_region *r, u64 last)
{
	u64 end = r->start + r->length;

	return !((r->start | end) & ~SLOT_MASK) && r->start >= last && end > r->start &&
	       end <= TASK_SIZE_MAX && r->node >= NUMA_NO_NODE && r->node < (int)MAX_NUMNODES &&
	       (r->node < 0 || node_isset(r->node, job->nodes));
}

/*
 * The regions of a launch, with memory for the first program, for hpmmap_job_drop_regions(). Returns 0
 * or its errno.
 */
int hpmmap_regions_get(struct hpmmap_job *job, const struct hpmmap_launch *arg)
{
	struct hpmmap_region __user *from = u64_to_user_ptr(arg->regions);
	u64 last = SLOT_SIZE;
	unsigned int i;
	int ret = 0;

	if (!arg->nr_regions)
		return 0;
	job->laid = kcalloc(arg->nr_regions, sizeof(*job->laid), GFP_KERNEL_ACCOUNT);
	if (!job->laid)
		return -ENOMEM;
	for (i = 0; i < arg->nr_regions; i++) {
		struct hpmmap_laid *l = &job->laid[i];

		if (copy_from_user(&l->r, from + i, sizeof(l->r)))
			return -EFAULT;
		if (l->r.__reserved)
			return -EOPNOTSUPP;
		if (!region_is_valid(job, &l->r, last))
			return -EINVAL;
		INIT_LIST_HEAD(&l->blocks);
		last = l->r.start + l->r.length;
	}
	while (!ret && job->nr_laid < arg->nr_regions) {
		struct hpmmap_laid *l = &job->laid[job->nr_laid++];

		ret = region_take(job, job->account, &l->r, &l->blocks);
	}
	return ret;
}

/* Maps and binds a region, from @blocks, or from new ones if there are none. Returns 0 or an errno. */
static long region_map(struct hpmmap_ctx *ctx, const struct hpmmap_region *r, struct list_head *blocks)
{
	struct mempolicy pol = { .mode = MPOL_BIND, .home_node = NUMA_NO_NODE };
	long ret = 0;

	if (list_empty(blocks))
		ret = region_take(ctx->job, rcu_dereference_protected(ctx->owner.account, true), r,
				  blocks);
	ret = ret ?: hpmmap_pool_clear(&ctx->owner, blocks, NO_SLOT, NO_SLOT);
	if (!ret && hpmmap_data_exceeds_limit(ctx, 0, r->length, PROT_WRITE))
		ret = -ENOMEM;
	if (!ret)
		ret = hpmmap_map_fresh(ctx, r->start, r->length, PROT_READ | PROT_WRITE, 0, false,
				       blocks);
	if (IS_ERR_VALUE(ret) || r->node == NUMA_NO_NODE)
		return IS_ERR_VALUE(ret) ? ret : 0;
	node_set(r->node, pol.nodes);
	pol.w.cpuset_mems_allowed = cpuset_current_mems_allowed;
	hpmmap_policy_set(ctx, r->start, r->length, &pol);
	return 0;
}

/* Maps the regions of a new program. Without one of them it is killed. ctx->ops is held. */
enum hpmmap_program_kind hpmmap_start_regions(struct hpmmap_ctx *ctx)
{
	struct list_head taken[HPMMAP_LAUNCH_MAX_REGIONS];
	struct hpmmap_job *job = ctx->job;
	u64 start = 0;
	unsigned int i;
	long ret = 0;

	/* One program gets all that the launch has taken. */
	spin_lock(&job->lock);
	for (i = 0; i < job->nr_laid; i++) {
		INIT_LIST_HEAD(&taken[i]);
		list_splice_init(&job->laid[i].blocks, &taken[i]);
	}
	spin_unlock(&job->lock);
	for (i = 0; i < job->nr_laid; i++) {
		if (!ret) {
			start = job->laid[i].r.start;
			ret = region_map(ctx, &job->laid[i].r, &taken[i]);
		}
		hpmmap_pool_free_unused(&taken[i]);
	}
	if (!ret)
		return HPMMAP_PROGRAM_REGISTERED;
	if (!fatal_signal_pending(current))
		pr_warn_ratelimited("process %d is killed: no region at %#llx: %s\n", current->pid,
				    start, ret == -EEXIST ? "not free" : "no memory");
	send_sig(SIGKILL, current, 1);
	return HPMMAP_PROGRAM_FAILED;
}

/*
 * Lays out the static region of a new program, if its job has one. Without memory for it the
 * program is killed or, in a job that is not strict, runs without. ctx->ops is held.
 */
void hpmmap_start_static(struct hpmmap_ctx *ctx)
{
	unsigned long len = ctx->job->static_bytes, addr = -ENOMEM;
	struct hpmmap_placement place;

	if (!len || fatal_signal_pending(current))
		return;
	hpmmap_placement_get(ctx->job, NULL, &place);
	if (!hpmmap_data_exceeds_limit(ctx, 0, len, PROT_WRITE))
		addr = hpmmap_find_place(ctx, &place, 0, len, MAP_PRIVATE | MAP_ANONYMOUS,
					 ctx->job->large ? HPMMAP_LARGE_BYTES : SLOT_SIZE, 0);
	if (!IS_ERR_VALUE(addr))
		addr = hpmmap_map_fresh(ctx, addr, len, PROT_READ | PROT_WRITE, 0, false, NULL);
	if (IS_ERR_VALUE(addr)) {
		hpmmap_count_refusal(ctx);
		pr_warn_ratelimited("no static region of %lu MB for process %d: %ld\n",
				    len >> 20, current->pid, (long)addr);
		if (ctx->job->strict)
			send_sig(SIGKILL, current, 1);
		return;
	}
	ctx->region.start = ctx->region.clean_start = addr;
	ctx->region.end = ctx->region.clean_end = addr + len;
	mmap_read_lock(ctx->mm);
	ctx->region.flags = vma_lookup(ctx->mm, addr)->vm_flags;
	mmap_read_unlock(ctx->mm);
}

/* What an eager stack has at once, RLIMIT_STACK allowing. */
#define STACK_BYTES (8UL << 20)

/*
 * Sets where the heap of a new program starts: in its static region, or where Linux put it. A
 * random break moves up to the next 2 MB that the program has nothing of, behind room for small
 * mappings: it is as random there, modulo 512 KB. For a job with memory by gigabytes these are the
 * last 2 MB of a gigabyte: the heap has all of the following ones.
 */
void hpmmap_start_heap(struct hpmmap_ctx *ctx)
{
	struct mm_struct *mm = ctx->mm;
	unsigned long start = mm->brk, slot = ALIGN(start, SLOT_SIZE);

	if (ctx->job->large)
		slot = ALIGN(slot + SLOT_SIZE, HPMMAP_LARGE_BYTES) - SLOT_SIZE;
	mmap_read_lock(mm);
	if (ctx->region.end)
		start = ctx->region.start;
	/* Linux leaves a page before a break that it chose at random. */
	else if (current->flags & PF_RANDOMIZE &&
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

	/* Nodes with movable memory only cannot hold pinned pages. */
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

/*
 * The main stack of a new program gets its memory. It is Linux's mapping, with ordinary
 * pages: it looks, counts, grows and ends as ever. All that execve has mapped, 128 KB below
 * what is on it, is there from the beginning; of a job with eager stacks 8 MB, if the
 * limits allow it. ctx->ops is held.
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
