// SPDX-License-Identifier: GPL-2.0
/*
 * Files whose contents go to one of Linux.
 *
 * Meanwhile a file is frozen: nothing of it is mapped, and who touches a mapping of it
 * waits; who writes to it by a call waits for i_rwsem.
 */
#include <linux/delay.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/sched/signal.h>
#include <linux/shmem_fs.h>

#include "hpmmap.h"
#include "mem/block.h"
#include "as/thaws.h"
#include "fs/files.h"
#include "fs/space.h"

/* How long faults that have begun may refer to a block, in steps of 1 ms. */
#define GONE_STEPS 20

/* Of all files: it ends soon, and seldom begins. */
static struct hpmmap_thaws thaws = HPMMAP_THAWS_INIT(thaws);

/* For hpmmap_fs_thaw_wait(), to be asked before hpmmap_fs_is_frozen(). */
int hpmmap_fs_thaws(void)
{
	return hpmmap_thaws_seen(&thaws);
}

/**
 * hpmmap_fs_thaw_wait() - a fault in a file that is frozen
 * @vmf: the fault
 * @seen: hpmmap_fs_thaws() before it was found so
 *
 * Return: as hpmmap_thaws_wait().
 */
vm_fault_t hpmmap_fs_thaw_wait(struct vm_fault *vmf, int seen)
{
	struct inode *inode = file_inode(vmf->vma->vm_file);

	return hpmmap_thaws_wait(&thaws, seen, &hpmmap_fs_inode(inode)->nr_impatient, vmf);
}

/* For good only with the folio of a block locked; the caller looks at hpmmap_fs_thaws() before. */
bool hpmmap_fs_is_frozen(struct inode *inode)
{
	return READ_ONCE(hpmmap_fs_inode(inode)->frozen);
}

/* From here on who maps the block finds the file frozen. */
static int unmap_one(struct inode *inode, unsigned long index)
{
	struct hpmmap_block *block = hpmmap_fs_block_lock(inode, index, false);

	if (IS_ERR_OR_NULL(block))
		return PTR_ERR_OR_ZERO(block);
	hpmmap_fs_unmap_block(inode, block);
	hpmmap_fs_block_unlock(block);
	return 0;
}

/* Nobody refers to its blocks any more: faults that have come for them are soon gone. */
static int wait_unpinned(struct inode *inode)
{
	struct hpmmap_fs_inode *info = hpmmap_fs_inode(inode);
	unsigned int steps = GONE_STEPS;
	unsigned long i;

	for (i = 0; i < info->nr; i++) {
		struct hpmmap_block *block = xa_load(&info->blocks, i);

		while (hpmmap_block_is_pinned(block)) {
			if (!steps--)
				return -EBUSY;
			usleep_range(1000, 1100);
		}
		if (fatal_signal_pending(current))
			return -EINTR;
		cond_resched();
	}
	return 0;
}

/**
 * hpmmap_fs_freeze() - nobody changes a file until hpmmap_fs_thaw()
 * @inode: the file, i_rwsem held until then
 *
 * Return: 0; -EBUSY where somebody refers to its memory, -EINTR for who is being killed, and
 * it is not frozen.
 */
int hpmmap_fs_freeze(struct inode *inode)
{
	struct hpmmap_fs_inode *info = hpmmap_fs_inode(inode);
	unsigned long i;
	int ret = 0;

	lockdep_assert_held_write(&inode->i_rwsem);
	atomic_set(&info->nr_impatient, 0);
	WRITE_ONCE(info->frozen, true);
	for (i = 0; i < info->nr && !ret; i++) {
		ret = fatal_signal_pending(current) ? -EINTR : unmap_one(inode, i);
		cond_resched();
	}
	if (!ret)
		ret = wait_unpinned(inode);
	if (ret)
		hpmmap_fs_thaw(inode);
	return ret;
}

/* Undoes hpmmap_fs_freeze(). */
void hpmmap_fs_thaw(struct inode *inode)
{
	lockdep_assert_held_write(&inode->i_rwsem);
	WRITE_ONCE(hpmmap_fs_inode(inode)->frozen, false);
	hpmmap_thaws_tell(&thaws);
}

/* One page; without @zeros only if it is not zero. */
static int copy_one(struct hpmmap_block *block, pgoff_t pgoff, void *buf,
		     struct address_space *to, bool zeros)
{
	int ret = hpmmap_block_read(block, pgoff & (SLOT_PAGES - 1), buf);
	struct page *page;

	if (ret < 0 || !(ret || zeros))
		return ret;
	page = shmem_read_mapping_page(to, pgoff);
	/* Tmpfs has several words for it. */
	if (IS_ERR(page))
		return PTR_ERR(page) == -EINTR ? -EINTR : -ENOMEM;
	if (ret)
		memcpy(page_address(page), buf, PAGE_SIZE);
	set_page_dirty(page);
	put_page(page);
	return 0;
}

/**
 * hpmmap_fs_copy() - copy a file that is frozen
 * @file: the file
 * @to: of a file of Linux's shared memory, of the same size and empty; charged to who calls
 * @refs: how often it is referred to: who comes for it meanwhile is not kept waiting
 * @zeros: pages of zeros are there, too; otherwise they are missing
 *
 * Return: 0; -EBUSY where there are more references, -EFAULT where a memory error is,
 * -ENOMEM, or -EINTR for who is being killed.
 */
int hpmmap_fs_copy(struct file *file, struct address_space *to, unsigned long refs, bool zeros)
{
	struct inode *inode = file_inode(file);
	unsigned long pgoff, pages = hpmmap_fs_pages(inode);
	void *buf = (void *)__get_free_page(GFP_KERNEL);
	int ret = buf ? 0 : -ENOMEM;

	lockdep_assert_held_write(&inode->i_rwsem);
	for (pgoff = 0; pgoff < pages && !ret; pgoff++) {
		ret = copy_one(xa_load(&hpmmap_fs_inode(inode)->blocks,
				       pgoff >> SLOT_ORDER), pgoff, buf, to, zeros);
		if (fatal_signal_pending(current))
			ret = -EINTR;
		else if (!ret && file_count(file) > refs)
			ret = -EBUSY;
		cond_resched();
	}
	free_page((unsigned long)buf);
	return ret;
}
