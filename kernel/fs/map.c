// SPDX-License-Identifier: GPL-2.0
/*
 * Mappings of files of a mounted file system.
 *
 * The memory is there, so a shared mapping is filled at once: when the thread that has mapped it
 * returns to its program, since a truncation finds a mapping only when mmap(2) is done with it.
 * By entries of 2 MB where address and offset agree modulo 2 MB and all of a block is within the
 * mapping and the file; by entries of 4 KB elsewhere. What is missing afterwards (in a child,
 * after MADV_DONTNEED or the like) takes a fault for 2 MB. Gigabytes that were filled get one entry
 * each then, where the job has such entries, or the file system was mounted with pagesize=1G.
 *
 * A hole that was punched is filled by a fault only: whoever gave its memory up wants that.
 *
 * Each entry is made with the folio of its block locked, see space.c.
 */
#include <linux/task_work.h>

#include "hpmmap.h"
#include "mem/block/block.h"
#include "as/map/gigabyte.h"
#include "as/map/pgmap.h"
#include "as/map/vma.h"
#include "as/change/join.h"
#include "fs/space.h"

/* Slots that are filled before others get a chance to have mmap_lock. */
#define FILL_BATCH 512

/* Does a mapping show the file itself? Also if it may only be read. */
static bool is_shared(const struct vm_area_struct *vma)
{
	return vma->vm_flags & VM_MAYSHARE;
}

/* May entries be written here, or has the core more to do than that? */
static bool is_ordinary(struct vm_area_struct *vma)
{
	return is_shared(vma) && !(vma->vm_flags & VM_LOCKED) && !userfaultfd_armed(vma);
}

/* The start of the slot with an address, if that can be one entry. */
static bool maps_2m(struct vm_area_struct *vma, unsigned long addr, unsigned long pgoff,
		    unsigned long pages)
{
	unsigned long start = addr & SLOT_MASK;

	return IS_ENABLED(CONFIG_TRANSPARENT_HUGEPAGE) &&
	       !((pgoff - (addr >> PAGE_SHIFT)) & (SLOT_PAGES - 1)) &&
	       round_down(pgoff, SLOT_PAGES) + SLOT_PAGES <= pages &&
	       vma->vm_start <= start && vma->vm_end - SLOT_SIZE >= start &&
	       compat_vma_maps_2m(vma);
}

/*
 * Maps pages of a locked block by entries of 4 KB: all that are in the file, the mapping and
 * the table of the fault.
 */
static void map_pages(struct vm_fault *vmf, struct hpmmap_block *block, unsigned long pages,
		      bool write)
{
	struct vm_area_struct *vma = vmf->vma;
	unsigned long addr = vmf->address & PAGE_MASK;
	unsigned long lo = max(vma->vm_start, addr & PMD_MASK);
	unsigned long hi = min(vma->vm_end, (addr & PMD_MASK) + PMD_SIZE);
	unsigned long first = round_down(vmf->pgoff, SLOT_PAGES);
	unsigned long end = min(first + SLOT_PAGES, pages);
	unsigned long back = min(vmf->pgoff - first, (addr - lo) >> PAGE_SHIFT);
	unsigned long ahead = min(end - vmf->pgoff, (hi - addr) >> PAGE_SHIFT);

	hpmmap_pgmap_insert_locked(vmf, addr - back * PAGE_SIZE, block,
				   vmf->pgoff - first - back, back + ahead, write);
}

/*
 * Makes the entries for a fault in a mapping that is shared; true if there is nothing left to
 * do for the core.
 */
static bool map_shared(struct vm_fault *vmf, struct hpmmap_block *block, unsigned long pages)
{
	struct vm_area_struct *vma = vmf->vma;

	if (pmd_none(READ_ONCE(*vmf->pmd)) && maps_2m(vma, vmf->address, vmf->pgoff, pages)) {
		if (hpmmap_pgmap_insert_2m(vma, vmf->address & SLOT_MASK, vmf->pmd,
					   block->folio, true))
			compat_add_rss(vma->vm_mm, block->folio, SLOT_PAGES);
		return true;
	}
	map_pages(vmf, block, pages, vma->vm_flags & VM_WRITE);
	/* Something else than nothing is where a page should be: the core knows what. */
	return !(vmf->flags & FAULT_FLAG_ORIG_PTE_VALID) || pte_none(vmf->orig_pte);
}

static vm_fault_t fs_fault(struct vm_fault *vmf)
{
	struct inode *inode = file_inode(vmf->vma->vm_file);
	unsigned long index = vmf->pgoff >> SLOT_ORDER, pages;
	struct hpmmap_block *block;
	vm_fault_t ret = VM_FAULT_LOCKED;

	/* KVM's asynchronous faults would fill holes for root; the vCPU touches the page itself then. */
	do {
		block = hpmmap_fs_block_lock(inode, index, vmf->flags & FAULT_FLAG_RETRY_NOWAIT);
	} while (!block && vmf->pgoff < hpmmap_fs_pages(inode) && current->mm &&
		 !hpmmap_fs_fill(inode, index, index + 1));
	if (!block || block == ERR_PTR(-EINTR))
		return VM_FAULT_SIGBUS;
	if (IS_ERR(block))
		return VM_FAULT_RETRY;
	pages = hpmmap_fs_pages(inode);
	if (vmf->pgoff >= pages || folio_ref_count(block->folio) <= 0) {
		ret = VM_FAULT_SIGBUS;
	} else if (hpmmap_block_is_hurt(block)) {
		ret = VM_FAULT_HWPOISON;
	} else if (is_ordinary(vmf->vma)) {
		if (map_shared(vmf, block, pages))
			ret = VM_FAULT_NOPAGE;
	} else if (!is_shared(vmf->vma) && !(vmf->flags & FAULT_FLAG_WRITE) &&
		   !maps_2m(vmf->vma, vmf->address, vmf->pgoff, pages) &&
		   !userfaultfd_armed(vmf->vma) && !(vmf->vma->vm_flags & VM_LOCKED)) {
		/* Of a private mapping, until it is written to. */
		map_pages(vmf, block, pages, false);
	}
	if (ret != VM_FAULT_LOCKED) {
		hpmmap_fs_block_unlock(block);
		return ret;
	}
	/* The core would map what is behind the end of the file, too. */
	if (!maps_2m(vmf->vma, vmf->address, vmf->pgoff, pages) && !hpmmap_pgmap_table(vmf)) {
		/* An entry of 2 MB was taken away just now: once more. */
		hpmmap_fs_block_unlock(block);
		return VM_FAULT_NOPAGE;
	}
	vmf->page = folio_page(block->folio, vmf->pgoff & (SLOT_PAGES - 1));
	return ret;
}

/* One slot that needs nothing but an entry of 2 MB; false where it needs anything else. */
static bool fill_2m(struct vm_area_struct *vma, unsigned long addr)
{
	struct inode *inode = file_inode(vma->vm_file);
	unsigned long pgoff = linear_page_index(vma, addr);
	struct hpmmap_block *block;
	bool done = false;
	pmd_t *pmdp;

	if (hpmmap_pgmap_slot(vma->vm_mm, addr) == HPMMAP_ENTRY_1G)
		return true;
	pmdp = hpmmap_pgmap_pmd(vma->vm_mm, addr);
	if (!pmdp)
		return false;
	if (hpmmap_pgmap_kind(pmdp) != HPMMAP_ENTRY_NONE)
		return hpmmap_pgmap_kind(pmdp) == HPMMAP_ENTRY_2M;
	if (!is_ordinary(vma) || !maps_2m(vma, addr, pgoff, hpmmap_fs_pages(inode)))
		return false;
	block = hpmmap_fs_block_lock(inode, pgoff >> SLOT_ORDER, false);
	if (IS_ERR_OR_NULL(block))
		return false;
	/* Now it cannot become smaller any more. */
	if (maps_2m(vma, addr, pgoff, hpmmap_fs_pages(inode)) && !hpmmap_block_is_hurt(block)) {
		if (hpmmap_pgmap_insert_2m(vma, addr & SLOT_MASK, pmdp, block->folio, true))
			compat_add_rss(vma->vm_mm, block->folio, SLOT_PAGES);
		done = true;
	}
	hpmmap_fs_block_unlock(block);
	return done;
}

/*
 * Fills a part of a mapping, a batch at most, up to the end of the file. Returns where it has
 * stopped.
 */
static unsigned long fill_some(struct vm_area_struct *vma, unsigned long start, unsigned long end)
{
	unsigned int flags = FAULT_FLAG_REMOTE, batch = FILL_BATCH;
	unsigned long addr, next;

	if (vma->vm_flags & VM_WRITE)
		flags |= FAULT_FLAG_WRITE;
	for (addr = start; addr < end && batch--; addr = next) {
		unsigned long pgoff = linear_page_index(vma, addr);
		unsigned long in_block = SLOT_PAGES - (pgoff & (SLOT_PAGES - 1));

		/* No table, and no block, is left in one go. */
		next = min3(end, (addr & PMD_MASK) + PMD_SIZE, addr + in_block * PAGE_SIZE);
		if (fatal_signal_pending(current) ||
		    pgoff >= hpmmap_fs_pages(file_inode(vma->vm_file)))
			return end;
		if (!hpmmap_fs_is_hole(file_inode(vma->vm_file), pgoff >> SLOT_ORDER) &&
		    !fill_2m(vma, addr) &&
		    handle_mm_fault(vma, addr, flags, NULL) & VM_FAULT_OOM)
			return end;
		cond_resched();
	}
	return addr;
}

/**
 * struct fill - a range of the current process to be filled
 * @work: when it returns to its program
 * @mm: its address space, kept allocated
 * @file: what was mapped there
 * @start: first address
 * @end: end
 */
struct fill {
	struct callback_head work;
	struct mm_struct *mm;
	struct file *file;
	unsigned long start;
	unsigned long end;
};

/* The next accessible mapping of the file in the range. mmap_lock held. */
static struct vm_area_struct *next_vma(struct fill *fill)
{
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, fill->mm, fill->start);

	for_each_vma_range(vmi, vma, fill->end)
		/* Segments of System V have other operations, and files of their own. */
		if (vma->vm_file && file_inode(vma->vm_file) == file_inode(fill->file) &&
		    is_shared(vma) && vma->vm_flags & (VM_READ | VM_WRITE | VM_EXEC))
			return vma;
	return NULL;
}

static void fill_free(struct fill *fill)
{
	mmdrop(fill->mm);
	fput(fill->file);
	kfree(fill);
}

static void fill_work(struct callback_head *work)
{
	struct fill *fill = container_of(work, struct fill, work);
	unsigned long from = fill->start;
	struct vm_area_struct *vma = NULL;

	if (current->mm != fill->mm || current->flags & PF_EXITING)
		goto out;
	do {
		if (mmap_read_lock_killable(fill->mm))
			break;
		vma = next_vma(fill);
		if (vma) {
			unsigned long start = max(fill->start, vma->vm_start);

			fill->start = fill_some(vma, start, min(fill->end, vma->vm_end));
		}
		mmap_read_unlock(fill->mm);
	} while (vma && fill->start < fill->end && !fatal_signal_pending(current));
	hpmmap_join_range(fill->mm, from, fill->end, hpmmap_fs_is_1g(file_inode(fill->file)->i_sb));
out:
	fill_free(fill);
}

/* Without memory for it each 2 MB take a fault. mmap_lock held. */
static void fill_soon(struct vm_area_struct *vma, unsigned long start, unsigned long end)
{
	struct fill *fill;

	if (current->mm != vma->vm_mm || current->flags & (PF_KTHREAD | PF_EXITING) ||
	    !is_shared(vma))
		return;
	fill = kmalloc(sizeof(*fill), GFP_KERNEL_ACCOUNT);
	if (!fill)
		return;
	init_task_work(&fill->work, fill_work);
	mmgrab(vma->vm_mm);
	fill->mm = vma->vm_mm;
	fill->file = get_file(vma->vm_file);
	fill->start = start;
	fill->end = end;
	if (task_work_add(current, &fill->work, TWA_RESUME))
		fill_free(fill);
}

/* What was not accessible was not filled. */
static int fs_mprotect(struct vm_area_struct *vma, unsigned long start, unsigned long end,
		       unsigned long newflags)
{
	const unsigned long access = VM_READ | VM_WRITE | VM_EXEC;

	if (!(vma->vm_flags & access) && newflags & access)
		fill_soon(vma, start, end);
	return 0;
}

/* A mapping has moved, and may have become longer. */
static int fs_mremap(struct vm_area_struct *vma)
{
	fill_soon(vma, vma->vm_start, vma->vm_end);
	return 0;
}

static const struct vm_operations_struct vm_ops = {
	.fault = fs_fault,
	COMPAT_FIND_NORMAL_PAGE(hpmmap_gigabyte_page)
	.mprotect = fs_mprotect,
	.mremap = fs_mremap,
};

/* A file is being mapped. */
int hpmmap_fs_mmap(struct file *file, struct vm_area_struct *vma)
{
	file_accessed(file);
	vma->vm_ops = &vm_ops;
	/* What is locked the core fills by itself. */
	if (vma->vm_flags & (VM_READ | VM_WRITE | VM_EXEC) && !(vma->vm_flags & VM_LOCKED))
		fill_soon(vma, vma->vm_start, vma->vm_end);
	return 0;
}
