/* SPDX-License-Identifier: GPL-2.0 */
/* Mounted file systems, and the memory of their files. */
#ifndef _HPMMAP_FS_SPACE_H
#define _HPMMAP_FS_SPACE_H

#include <linux/shmem_fs.h>

#include "mem/block/block.h"
#include "mem/pool/pinned.h"

#define HPMMAP_FS_MAGIC 0x48504d46
#define HPMMAP_FS_NO_LIMIT ULONG_MAX

/**
 * struct hpmmap_fs - a mounted file system
 * @refs: the super block, and blocks that are pinned
 * @holder: of those
 * @lock: protects what follows
 * @inode_limit: inodes and further names that it may have, or HPMMAP_FS_NO_LIMIT
 * @inodes: how many it has
 * @limit: blocks it may have, or HPMMAP_FS_NO_LIMIT
 * @used: blocks it has: those of its files, and those that files gave up and that
 *	are pinned
 * @keeps: FALLOC_FL_PUNCH_HOLE leaves files their memory, zeroed
 * @page_size: what statfs(2) says, as hugetlbfs; 0: it is a file system of its own kind
 * @owner: whose blocks they are, as far as zeroing counts that
 */
struct hpmmap_fs {
	refcount_t refs;
	struct hpmmap_holder holder;
	spinlock_t lock;
	unsigned long inode_limit;
	unsigned long inodes;
	unsigned long limit;
	unsigned long used;
	bool keeps;
	unsigned long page_size;
	struct hpmmap_owner owner;
};

/**
 * struct hpmmap_fs_inode - a file, and its memory
 * @blocks: number (offset / 2 MB) -> struct hpmmap_block or a hole, from 0 to @nr. A block is
 *	taken out with its folio locked, and with the lock of @blocks; so a task that finds
 *	one gets a reference in time, and looks again when it has locked the folio.
 * @nr: how many blocks and holes there are. Protected by i_rwsem of the inode; the size is @nr blocks
 *	at most.
 * @holes: held while holes are made or filled; within mmap_lock and i_rwsem
 * @pins: it keeps the file system that is mounted for files without a name
 * @linux_info: its inode, within what Linux's own shared memory has: the calls of System V's shared
 *	memory take each file that is not hugetlb's for one of those
 */
struct hpmmap_fs_inode {
	struct xarray blocks;
	unsigned long nr;
	struct mutex holes;
	bool pins;
	struct shmem_inode_info linux_info;
};

enum hpmmap_fs_count {
	HPMMAP_FS_MOUNTS,
	HPMMAP_FS_FILES,	/* that have memory */
	HPMMAP_FS_BLOCKS,	/* of files */
	HPMMAP_FS_PINNED,	/* that files gave up, and that are pinned */
	HPMMAP_FS_NR_COUNTS
};

extern atomic_long_t hpmmap_fs_counts[HPMMAP_FS_NR_COUNTS];

static inline struct hpmmap_fs_inode *hpmmap_fs_inode(struct inode *inode)
{
	return container_of(inode, struct hpmmap_fs_inode, linux_info.vfs_inode);
}

static inline struct hpmmap_fs *hpmmap_fs_of(const struct super_block *sb)
{
	return sb->s_fs_info;
}

/* Pages that may be touched. */
static inline unsigned long hpmmap_fs_pages(const struct inode *inode)
{
	return DIV_ROUND_UP(i_size_read(inode), PAGE_SIZE);
}

static inline unsigned long hpmmap_fs_blocks(loff_t size)
{
	return DIV_ROUND_UP(size, SLOT_SIZE);
}

int hpmmap_fs_space_init(void);
void hpmmap_fs_space_exit(void);
struct hpmmap_fs *hpmmap_fs_alloc(void);
void hpmmap_fs_put(struct hpmmap_fs *fs);
bool hpmmap_fs_charge_inode(struct hpmmap_fs *fs);
void hpmmap_fs_uncharge_inode(struct hpmmap_fs *fs);
struct hpmmap_block *hpmmap_fs_block_get(struct inode *inode, unsigned long index);
struct hpmmap_block *hpmmap_fs_block_lock(struct inode *inode, unsigned long index,
					  bool nowait);
void hpmmap_fs_block_unlock(struct hpmmap_block *block);
int hpmmap_fs_grow(struct inode *inode, unsigned long nr);
bool hpmmap_fs_is_hole(struct inode *inode, unsigned long index);
int hpmmap_fs_fill(struct inode *inode, unsigned long from, unsigned long to);
void hpmmap_fs_cut(struct inode *inode, unsigned long nr);
void hpmmap_fs_unmap_block(struct inode *inode, struct hpmmap_block *block);
void hpmmap_fs_zero_tail(struct inode *inode, loff_t pos);
void hpmmap_fs_shrink(struct inode *inode, loff_t size);
int hpmmap_fs_zero(struct inode *inode, loff_t start, loff_t end, bool punch);

/* Of the other files of this floor. */
struct inode *hpmmap_fs_new(struct super_block *sb, compat_idmap *idmap,
			    struct inode *dir, umode_t mode, dev_t dev);
void hpmmap_fs_file_init(struct inode *inode);
int hpmmap_fs_mmap(struct file *file, struct vm_area_struct *vma);
bool hpmmap_fs_fail(struct hpmmap_block *block, unsigned long pfn, int flags);
struct vfsmount *hpmmap_fs_pin(void);
void hpmmap_fs_unpin(void);

#endif /* _HPMMAP_FS_SPACE_H */
