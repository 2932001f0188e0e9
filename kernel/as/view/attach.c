// SPDX-License-Identifier: GPL-2.0
/*
 * Attachments: how mappings of another address space's memory are made and end. What they show is
 * in view.c.
 *
 * A notifier tells what becomes of ordinary memory that a window shows. It may be called with a
 * lock of the page held, the i_mmap_rwsem of its file or that of its anon_vma, and takes the
 * entries of all that have the window away under the i_mmap_rwsem of the window's mappings. A
 * task that registers a notifier takes all such locks of its address space (mm_take_all_locks()),
 * first those of files, by address: with a window among its mappings it may have the window's and
 * wait for the page's, while the notifier has the page's and waits for the window's.
 *
 * So mm_take_all_locks() fails for an address space with windows. The notifiers that windows onto
 * it need take all locks once in its life: that is done before it has a window. Others are
 * refused, which are few: KVM, devices that follow page tables.
 */
#include "hook.h"
#include "hpmmap.h"
#include "as/own/ctx.h"
#include "as/map/file.h"
#include "as/map/range.h"
#include "as/map/vma.h"
#include "as/map/window.h"
#include "as/store/store.h"
#include "as/change/join.h"
#include "as/view/attach.h"
#include "as/view/view.h"

/* How often an address is looked for, if others map something there meanwhile. */
#define PLACE_TRIES 8

/* Has an address space windows? Its mmap_lock is held for writing. */
static notrace bool has_windows(struct mm_struct *mm)
{
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, mm, 0);

	if (likely(!atomic_long_read(&hpmmap_window_counts[HPMMAP_WINDOW_ATTACHMENTS])))
		return false;
	for_each_vma(vmi, vma)
		if (hpmmap_vma_is_window(vma))
			return true;
	return false;
}

/* Stands in for mm_take_all_locks() there. */
static noinline int refuse(void)
{
	return -EBUSY;
}

static void notrace take_locks_entry(unsigned long ip, unsigned long parent_ip,
				     struct ftrace_ops *op, struct ftrace_regs *fregs)
{
	if (has_windows((struct mm_struct *)compat_ftrace_arg(fregs, 0)))
		compat_ftrace_set_ip(fregs, (unsigned long)refuse);
}

static struct ftrace_ops take_locks_ops = {
	.func = take_locks_entry,
	.flags = HPMMAP_GUARD_FLAGS,
};

/* May windows show ordinary memory? */
static bool see_linux;

/*
 * The current process is about to have a window: notifiers can be registered for it without all
 * of its locks from here on. Returns 0; -EBUSY where it has windows that it did not attach itself,
 * but inherited (MADV_DOFORK); -EINTR if it is being killed, -ERESTARTNOINTR where it has a signal
 * to see to first, or -ENOMEM.
 */
static int viewer_begin(void)
{
	struct mmu_interval_notifier notifier;
	struct mm_struct *mm = current->mm;
	int ret;

	if (compat_mm_knows_intervals(mm))
		return 0;
	if (mmap_write_lock_killable(mm))
		return -EINTR;
	ret = mmu_interval_notifier_insert_locked(&notifier, mm, 0, PAGE_SIZE,
						  &compat_interval_nothing);
	mmap_write_unlock(mm);
	if (!ret)
		mmu_interval_notifier_remove(&notifier);
	/* A task that takes all locks stops at any signal. */
	return ret == -EINTR && !fatal_signal_pending(current) ? -ERESTARTNOINTR : ret;
}

static int window_mmap(struct file *file, struct vm_area_struct *vma)
{
	const struct hpmmap_attachment *att = file->private_data;
	unsigned long start = vma->vm_pgoff << PAGE_SHIFT;

	/* Not only hpmmap_attach() comes here: remap_file_pages(2) maps it again. */
	if (!(vma->vm_flags & VM_SHARED) || start < att->start ||
	    vma->vm_end - vma->vm_start > att->start + att->len - start ||
	    start >= att->start + att->len)
		return -EINVAL;
	if (att->readonly && vma->vm_flags & VM_WRITE)
		return -EACCES;
	/*
	 * VM_DONTEXPAND also keeps mappings with different vm_ops from being merged, and
	 * mlock(2), khugepaged and, but for some kernels, userfaultfd away.
	 */
	compat_vm_flags_mod(vma, VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP,
			    att->readonly ? VM_MAYWRITE : 0);
	vma->vm_ops = &hpmmap_window_vm_ops;
	return 0;
}

/* It cannot be opened: mappings are made by the module only. */
static int window_open(struct inode *inode, struct file *file)
{
	return -EACCES;
}

static void attachment_free(struct hpmmap_attachment *att)
{
	hpmmap_window_count(HPMMAP_WINDOW_ATTACHMENTS, -1);
	hpmmap_window_count(HPMMAP_WINDOW_POOLS_ONLY, att->sees_linux ? 0 : -1);
	hpmmap_window_count(HPMMAP_WINDOW_BYTES, -(long)att->len);
	hpmmap_window_unview(att->win, &att->viewer);
	mmdrop(att->viewer.mm);
	hpmmap_grant_put(att->grant);
	hpmmap_window_put(att->win);
	kfree(att);
}

static int window_release(struct inode *inode, struct file *file)
{
	attachment_free(file->private_data);
	hpmmap_file_window_end();
	return 0;
}

static const struct file_operations window_fops = {
	.owner = THIS_MODULE,
	.open = window_open,
	.mmap = window_mmap,
	.release = window_release,
	.fsync = noop_fsync,
};

static struct hpmmap_attachment *attachment_alloc(struct hpmmap_window *win,
					   struct hpmmap_grant *grant,
					   unsigned long start, unsigned long len,
					   bool readonly)
{
	struct hpmmap_attachment *att = kzalloc(sizeof(*att), GFP_KERNEL_ACCOUNT);

	if (!att)
		return NULL;
	refcount_inc(&win->refs);
	att->win = win;
	refcount_inc(&grant->refs);
	att->grant = grant;
	att->start = start;
	att->len = len;
	att->readonly = readonly;
	att->sees_linux = see_linux;
	INIT_LIST_HEAD(&att->viewer.link);
	mmgrab(current->mm);
	att->viewer.mm = current->mm;
	hpmmap_window_count(HPMMAP_WINDOW_ATTACHMENTS, 1);
	hpmmap_window_count(HPMMAP_WINDOW_POOLS_ONLY, att->sees_linux ? 0 : 1);
	hpmmap_window_count(HPMMAP_WINDOW_BYTES, len);
	return att;
}

/*
 * Where the target's address and that of the window are equal modulo 2 MB, so that one
 * entry can map what one entry maps there; of a large one modulo 1 GB, so that the blocks
 * of a gigabyte have one table.
 */
static unsigned long place(struct file *file, unsigned long start, unsigned long len,
			   unsigned long prot)
{
	unsigned long align = len >= PUD_SIZE ? PUD_SIZE : SLOT_SIZE;
	unsigned long at = -ENOMEM, ret = -EEXIST;
	int tries;

	for (tries = 0; ret == -EEXIST && tries < PLACE_TRIES; tries++) {
		at = hpmmap_range_find_hole(0, len, MAP_SHARED, align,
					  start & (align - 1));
		if (IS_ERR_VALUE(at))
			return at;
		ret = vm_mmap(file, at, len, prot, MAP_SHARED | MAP_NORESERVE |
			      MAP_FIXED_NOREPLACE, start);
	}
	return ret;
}

/* What there is at @addr is mapped, and what can be mapped with it. */
static int populate_one(const struct hpmmap_attachment *att, unsigned long addr)
{
	struct mm_struct *mm = current->mm;
	struct vm_area_struct *vma;
	vm_fault_t ret;

	do {
		if (mmap_read_lock_killable(mm))
			return -EINTR;
		vma = vma_lookup(mm, addr);
		/* Another thread may have done anything. */
		if (!vma || !hpmmap_vma_is_window(vma) || hpmmap_attachment_of(vma) != att) {
			mmap_read_unlock(mm);
			return -EINVAL;
		}
		ret = handle_mm_fault(vma, addr, FAULT_FLAG_REMOTE |
				      FAULT_FLAG_ALLOW_RETRY | FAULT_FLAG_KILLABLE,
				      NULL);
		if (!(ret & (VM_FAULT_RETRY | VM_FAULT_COMPLETED)))
			mmap_read_unlock(mm);
		if (fatal_signal_pending(current))
			return -EINTR;
		cond_resched();
	} while (ret & VM_FAULT_RETRY);
	return 0;
}

/* Maps what the target has of the pools; nothing is committed for it, and none may fail. */
static void populate(const struct hpmmap_attachment *att, unsigned long addr)
{
	struct mm_struct *mm = att->win->mm;
	struct hpmmap_ctx *ctx = hpmmap_ctx_get(mm);
	unsigned long va = att->start, end = att->start + att->len, here;

	if (!ctx)
		return;
	while ((va = hpmmap_store_next(ctx, va, end)) < end) {
		here = addr + (va - att->start);
		if (populate_one(att, here))
			break;
		/* With it came all of the gigabyte that can be mapped by entries of 2 MB. */
		va += min((here & PUD_MASK) + PUD_SIZE - here, end - va);
		if (va >= end)
			break;
	}
	hpmmap_ctx_put(ctx);
	hpmmap_join_range(current->mm, addr, addr + att->len, false);
}

/*
 * Maps a part of a window, page aligned and not empty, into the caller's address space.
 * @grant: allows it. @at: where; 0: where the module likes. @flags: HPMMAP_ATTACH_*.
 * Nothing need be there: a touch of what the target does not have is answered by SIGBUS.
 *
 * Returns the address, -EEXIST where something is mapped at @at, -EBUSY as viewer_begin(),
 * or another errno of mmap(2).
 */
unsigned long hpmmap_attach(struct hpmmap_window *win, struct hpmmap_grant *grant,
			    unsigned long start, unsigned long len,
			    unsigned long at, unsigned int flags)
{
	bool readonly = flags & HPMMAP_ATTACH_READONLY;
	unsigned long prot = PROT_READ | (readonly ? 0 : PROT_WRITE), addr;
	struct hpmmap_attachment *att;
	struct file *file;
	int ret = viewer_begin();

	if (ret)
		return ret;
	att = attachment_alloc(win, grant, start, len, readonly);
	if (!att)
		return -ENOMEM;
	file = hpmmap_file_window(&window_fops, &win->mapping);
	if (IS_ERR(file)) {
		attachment_free(att);
		return PTR_ERR(file);
	}
	file->private_data = att;
	if (at)
		addr = vm_mmap(file, at, len, prot, MAP_SHARED | MAP_NORESERVE |
			       MAP_FIXED_NOREPLACE, start);
	else
		addr = place(file, start, len, prot);
	if (!IS_ERR_VALUE(addr) && flags & HPMMAP_ATTACH_POPULATE)
		populate(att, addr);
	/* The mappings keep it. */
	fput(file);
	return addr;
}

/* Does a window rest on @grant, or on one that has ended if that is NULL? */
static bool rests_on(struct vm_area_struct *vma, const struct hpmmap_grant *grant)
{
	const struct hpmmap_grant *its = hpmmap_attachment_of(vma)->grant;

	return grant ? its == grant : READ_ONCE(its->revoked);
}

/*
 * A mapping of the caller's in a range that is of @file, or rests on @grant if that is NULL. Returns
 * 1, 0 where there is none, or -EINTR.
 */
static int find_attached(unsigned long *addr, unsigned long *end,
			 const struct file *file, const struct hpmmap_grant *grant)
{
	struct mm_struct *mm = current->mm;
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, mm, *addr);
	int found = 0;

	if (mmap_read_lock_killable(mm))
		return -EINTR;
	for_each_vma_range(vmi, vma, *end) {
		if (!hpmmap_vma_is_window(vma) ||
		    (file ? vma->vm_file != file : !rests_on(vma, grant)))
			continue;
		*addr = vma->vm_start;
		*end = vma->vm_end;
		found = 1;
		break;
	}
	mmap_read_unlock(mm);
	return found;
}

static int detach_range(unsigned long start, unsigned long end, const struct file *file,
			const struct hpmmap_grant *grant)
{
	unsigned long stop = end;
	int ret = 0;

	while (start < end && (ret = find_attached(&start, &stop, file, grant)) > 0) {
		ret = vm_munmap(start, stop - start);
		if (ret)
			return ret;
		start = stop;
		stop = end;
		cond_resched();
	}
	return ret;
}

/*
 * Unmaps the caller's attachment at an address. Returns 0, also where nothing is mapped;
 * -EINVAL where something else is, or an errno of munmap(2).
 */
int hpmmap_detach(unsigned long addr)
{
	struct mm_struct *mm = current->mm;
	const struct hpmmap_attachment *att;
	struct vm_area_struct *vma;
	struct file *file = NULL;
	unsigned long start = 0;
	int ret = 0;

	if (mmap_read_lock_killable(mm))
		return -EINTR;
	vma = vma_lookup(mm, addr);
	if (vma && hpmmap_vma_is_window(vma)) {
		file = get_file(vma->vm_file);
		start = vma->vm_start + hpmmap_attachment_of(vma)->start -
			(vma->vm_pgoff << PAGE_SHIFT);
	} else if (vma) {
		ret = -EINVAL;
	}
	mmap_read_unlock(mm);
	if (!file)
		return ret;
	/* It may be in pieces. */
	att = file->private_data;
	ret = detach_range(start, start + att->len, file, NULL);
	fput(file);
	return ret;
}

/*
 * Unmaps the caller's attachments that rest on a grant, not through another one; NULL: on
 * any that has ended. Returns 0 or an errno of munmap(2).
 */
int hpmmap_detach_all(const struct hpmmap_grant *grant)
{
	return detach_range(0, TASK_SIZE_MAX, NULL, grant);
}

/* Return: 0, also where mm_take_all_locks() cannot be guarded, and windows show the pools only. */
int hpmmap_viewers_init(void)
{
	see_linux = compat_has_special_pages() &&
		    !hpmmap_guard_install(&take_locks_ops, "mm_take_all_locks");
	return 0;
}

void hpmmap_viewers_exit(void)
{
	if (see_linux)
		hpmmap_guard_remove(&take_locks_ops);
}
