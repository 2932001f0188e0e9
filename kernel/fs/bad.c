// SPDX-License-Identifier: GPL-2.0
/*
 * Memory errors in files.
 *
 * The folio of a block tells whose it is while it is locked: a file stays at least until it has
 * locked and given up its last block. So no reference to an inode is needed, which could be the
 * last one while its file system is being unmounted.
 */
#include "hpmmap.h"
#include "mem/block/block.h"
#include "as/map/file.h"
#include "as/life/failure.h"
#include "fs/space.h"

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

/* A page of a file. */
struct place {
	struct address_space *mapping;
	pgoff_t pgoff;
};

/* The lowest address of a page in an address space. */
static unsigned long place_of(struct mm_struct *mm, void *data)
{
	const struct place *place = data;
	unsigned long found = 0, addr;
	struct vm_area_struct *vma;
	struct rb_node *node;

	i_mmap_assert_locked(place->mapping);
	for (node = rb_first_cached(&place->mapping->i_mmap); node; node = rb_next(node)) {
		vma = rb_entry(node, struct vm_area_struct, shared.rb);
		addr = vma->vm_start + ((place->pgoff - vma->vm_pgoff) << PAGE_SHIFT);
		if (vma->vm_mm == mm && place->pgoff >= vma->vm_pgoff &&
		    place->pgoff - vma->vm_pgoff < vma_pages(vma) && (!found || addr < found))
			found = addr;
	}
	return found;
}

/* See hpmmap_failure_file_t. */
bool hpmmap_fs_fail(struct hpmmap_block *block, unsigned long pfn, int flags)
{
	struct inode *inode;

	folio_lock(block->folio);
	inode = file_of(block);
	if (inode) {
		struct place place = {
			.mapping = inode->i_mapping,
			.pgoff = block->folio->index + (pfn & (SLOT_PAGES - 1)),
		};

		pr_err("memory error at %#llx, node %d, in a file of %s, inode %lu\n",
		       (u64)PFN_PHYS(pfn), block->nid, inode->i_sb->s_id, (unsigned long)inode->i_ino);
		hpmmap_fs_unmap_block(inode, block);
		/* A task that wants memory may need the lock, and this wants none. */
		i_mmap_lock_read(inode->i_mapping);
		hpmmap_failure_tell(flags, place_of, &place);
		i_mmap_unlock_read(inode->i_mapping);
	}
	folio_unlock(block->folio);
	return inode;
}
