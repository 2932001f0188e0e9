// SPDX-License-Identifier: GPL-2.0
/*
 * Memory errors in files.
 *
 * Whose block it is says its folio, as long as that is locked: a file is there at least until
 * it has locked and given up its last block. No reference to an inode is needed for it, which
 * could be the last one while its file system is being unmounted.
 */
#include <linux/delay.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/sched/signal.h>

#include "hpmmap.h"
#include "mem/block.h"
#include "as/failure.h"
#include "as/tell.h"
#include "fs/space.h"

/* How long to wait for who writes to the file, or refers to the block, in steps of 10 ms. */
#define BUSY_STEPS 50

/*
 * The file of a locked block, or NULL. The lock keeps files only: what a context has
 * may lose its mapping at this moment, whose inode is freed by RCU.
 */
static struct inode *file_of(struct hpmmap_block *block)
{
	struct address_space *mapping;
	struct inode *inode = NULL;

	rcu_read_lock();
	mapping = READ_ONCE(block->folio->mapping);
	if (mapping && mapping->a_ops == &hpmmap_fs_aops)
		inode = mapping->host;
	rcu_read_unlock();
	return inode;
}

/**
 * struct told - who is told of an error
 * @pgoff: the page of the file
 * @tell: where in which address spaces
 */
struct told {
	pgoff_t pgoff;
	struct hpmmap_tell tell;
};

static void tell_vma(struct vm_area_struct *vma, void *data)
{
	struct told *told = data;
	pgoff_t pgoff = told->pgoff;

	if (pgoff >= vma->vm_pgoff && pgoff - vma->vm_pgoff < vma_pages(vma))
		hpmmap_tell_add(&told->tell, vma->vm_mm, vma->vm_start +
				((pgoff - vma->vm_pgoff) << PAGE_SHIFT));
}

/* Tells all who have mapped a page of a file. */
static void mappings_tell(struct address_space *mapping, pgoff_t pgoff, int flags)
{
	struct told told = { .pgoff = pgoff, .tell.flags = flags };

	/* No mapping goes until it is unlocked, nor its address space. */
	i_mmap_lock_read(mapping);
	compat_for_each_vma_of(mapping, tell_vma, &told);
	i_mmap_unlock_read(mapping);
	hpmmap_tell_end(&told.tell);
}

static bool bad_tell(struct hpmmap_block *block, unsigned long pfn, int flags)
{
	struct inode *inode;
	pgoff_t pgoff;

	folio_lock(block->folio);
	inode = file_of(block);
	if (inode) {
		pgoff = block->folio->index + (pfn & (SLOT_PAGES - 1));
		pr_err("memory error at %#llx, node %d, in a file of %s, inode %lu\n",
		       (u64)PFN_PHYS(pfn), block->nid, inode->i_sb->s_id, (unsigned long)inode->i_ino);
		unmap_mapping_range(inode->i_mapping, (loff_t)pgoff << PAGE_SHIFT,
				    PAGE_SIZE, 0);
		mappings_tell(inode->i_mapping, pgoff, flags);
	}
	folio_unlock(block->folio);
	return inode;
}

/* One try; true if the block is none of a file any more. */
static bool try_exchange(struct hpmmap_block *block)
{
	struct hpmmap_block *fresh = NULL;
	struct inode *inode;
	bool done;

	folio_lock(block->folio);
	inode = file_of(block);
	done = !inode;
	/* Who writes by a call has it; who writes otherwise has the block mapped, or pinned. */
	if (inode && inode_trylock(inode)) {
		done = !hpmmap_fs_exchange(inode, block, SLOT_PAGES, 0, &fresh);
		inode_unlock(inode);
	}
	/* From here on the inode may be gone. */
	folio_unlock(fresh ? fresh->folio : block->folio);
	return done;
}

static void bad_exchange(struct hpmmap_block *block)
{
	int i;

	for (i = 0; i < BUSY_STEPS && !try_exchange(block); i++) {
		if (fatal_signal_pending(current))
			break;
		msleep(10);
	}
}

const struct hpmmap_failure_files hpmmap_fs_failure = {
	.tell = bad_tell,
	.exchange = bad_exchange,
};
