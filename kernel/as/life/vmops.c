// SPDX-License-Identifier: GPL-2.0
/*
 * What Linux asks of our mappings: faults, splits, changes of protection.
 *
 * There is no .close: kernels before 6.5 do not merge mappings that have one.
 */
#include "hpmmap.h"
#include "as/own/ctx.h"
#include "as/own/stats.h"
#include "as/map/file.h"
#include "as/map/gigabyte.h"
#include "as/map/policy.h"
#include "as/map/window.h"
#include "as/store/zap.h"
#include "as/change/fault.h"
#include "as/life/snapshot.h"
#include "trace.h"

static void fault_count(struct hpmmap_ctx *ctx, struct vm_fault *vmf,
			bool committed, enum hpmmap_fault why)
{
	if (vmf->flags & FAULT_FLAG_USER)
		atomic_long_inc(&ctx->nr_faults);
	else if (vmf->flags & FAULT_FLAG_ALLOW_RETRY &&
		 !(vmf->flags & FAULT_FLAG_RETRY_NOWAIT))
		atomic_long_inc(&ctx->nr_faults_kernel);
	else
		return;		/* hpmmap_entry_fill() */
	hpmmap_count_fault(ctx, vmf->address, why);
	hpmmap_count_held(ctx);
	trace_hpmmap_fault(ctx->id, vmf->address, vmf->flags, committed);
}

static vm_fault_t hpmmap_vm_fault(struct vm_fault *vmf)
{
	struct hpmmap_ctx *ctx = hpmmap_ctx_get(vmf->vma->vm_mm);
	enum hpmmap_fault why = HPMMAP_FAULT_UNMAPPED;
	bool committed = false;
	vm_fault_t ret;

	/* A child without a snapshot: this ends it. */
	if (!ctx)
		return VM_FAULT_SIGBUS;
	ret = hpmmap_store_fault(ctx, vmf, &committed, &why);
	if (!(ret & (VM_FAULT_ERROR | VM_FAULT_RETRY)))
		fault_count(ctx, vmf, committed, why);
	hpmmap_ctx_put(ctx);
	return ret;
}

/*
 * For debuggers: what the page table does not let them do. Linux would break
 * the copy-on-write of a private page; ours is private already.
 */
static int hpmmap_vm_access(struct vm_area_struct *vma, unsigned long addr,
			    void *buf, int len, int write)
{
	struct hpmmap_ctx *ctx = hpmmap_ctx_get(vma->vm_mm);
	int ret;

	if (!ctx)
		return -EIO;
	len = min_t(unsigned long, len, PAGE_SIZE - offset_in_page(addr));
	ret = hpmmap_store_access(ctx, vma, addr, buf, len, write);
	hpmmap_ctx_put(ctx);
	return ret ? ret : len;
}

/*
 * Only calls of the address space itself split its mappings: they map again
 * what the core drops for it. Others could by a userfaultfd, for one.
 */
static int hpmmap_vm_may_split(struct vm_area_struct *vma, unsigned long addr)
{
	return vma->vm_mm == current->mm ? 0 : -EINVAL;
}

/*
 * The core is about to make entries writable. What is shared has none then,
 * and gets none before the core is done: mmap_lock is held for writing. Nor do windows,
 * whatever becomes of the range.
 */
static int hpmmap_vm_mprotect(struct vm_area_struct *vma, unsigned long start,
			      unsigned long end, unsigned long newflags)
{
	struct hpmmap_ctx *ctx = hpmmap_ctx_get(vma->vm_mm);

	if (!ctx)
		return 0;
	hpmmap_window_zap(ctx, start, end);
	if (newflags & VM_WRITE)
		hpmmap_store_zap_shared(ctx, start, end);
	hpmmap_ctx_put(ctx);
	return 0;
}

/* A move that did not go through mremap.c would leave the contents behind. */
static int hpmmap_vm_mremap(struct vm_area_struct *vma)
{
	return -EINVAL;
}

/*
 * What mbind(2) set, for get_mempolicy(2) and numa_maps. Kernels before 6.8
 * take having this function for "no NUMA balancing, unless that policy asks
 * for it"; the others are kept away by the mapping's gfp mask.
 */
static struct mempolicy *hpmmap_vm_get_policy(COMPAT_GET_POLICY_ARGS)
{
	return vma->vm_policy;
}

static const struct vm_operations_struct vm_ops = {
	.open = hpmmap_fork_open,
	.may_split = hpmmap_vm_may_split,
	.mprotect = hpmmap_vm_mprotect,
	.mremap = hpmmap_vm_mremap,
	.fault = hpmmap_vm_fault,
	.access = hpmmap_vm_access,
	COMPAT_FIND_NORMAL_PAGE(hpmmap_gigabyte_page)
	.name = hpmmap_vma_dump_name,
	.get_policy = hpmmap_vm_get_policy,
	.set_policy = hpmmap_vm_set_policy,
};

int hpmmap_vmops_init(void)
{
	hpmmap_vm_ops = &vm_ops;
	return 0;
}
