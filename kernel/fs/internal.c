// SPDX-License-Identifier: GPL-2.0
/*
 * Files that no mount has: what a registered process shares without naming it.
 */
#include <linux/mount.h>

#include "hpmmap.h"
#include "as/map/file.h"
#include "fs/files.h"
#include "fs/space.h"

static struct inode *new_inode_of(struct vfsmount *mnt, loff_t size, bool private)
{
	struct inode *inode;
	int ret = 0;

	inode = hpmmap_fs_new(mnt->mnt_sb, compat_nop_idmap, NULL, S_IFREG | 0777, 0);
	if (!inode)
		return ERR_PTR(-ENOMEM);
	if (private)
		inode->i_flags |= S_PRIVATE;
	clear_nlink(inode);
	inode_lock(inode);
	if (size)
		ret = hpmmap_fs_grow(inode, hpmmap_fs_blocks(size));
	if (!ret)
		i_size_write(inode, size);
	inode_unlock(inode);
	if (!ret)
		return inode;
	iput(inode);
	return ERR_PTR(ret);
}

/*
 * A file without a name, open for reading and writing. @name: what mappings of it are
 * called. @size: it gets memory for that, for which the caller pays. @private: no security
 * module is asked about it. The caller keeps the module loaded while this runs.
 *
 * Returns the file or an ERR_PTR: -ENOSPC where the pools or a limit have too little,
 * -EINTR for a task that is being killed, -ENOMEM.
 */
struct file *hpmmap_fs_file(const char *name, loff_t size, bool private)
{
	struct vfsmount *mnt = hpmmap_fs_pin();
	struct inode *inode;
	struct file *file;

	if (IS_ERR(mnt))
		return ERR_CAST(mnt);
	inode = new_inode_of(mnt, size, private);
	if (IS_ERR(inode)) {
		hpmmap_fs_unpin();
		return ERR_CAST(inode);
	}
	/* From here on the inode keeps the file system. */
	hpmmap_fs_inode(inode)->pins = true;
	/* Given back by the last fput(). */
	__module_get(THIS_MODULE);
	file = alloc_file_pseudo(inode, mnt, name, O_RDWR | O_LARGEFILE, inode->i_fop);
	if (IS_ERR(file)) {
		/* No file keeps the file system while the inode goes. */
		hpmmap_fs_inode(inode)->pins = false;
		iput(inode);
		hpmmap_fs_unpin();
		module_put(THIS_MODULE);
		return file;
	}
	file->f_mode |= FMODE_LSEEK | FMODE_PREAD | FMODE_PWRITE | FMODE_CAN_ODIRECT;
	return file;
}

/* Is it one of these? */
bool hpmmap_fs_is_internal(const struct file *file)
{
	return file->f_mapping->a_ops == &hpmmap_fs_aops &&
	       hpmmap_fs_inode(file_inode(file))->pins;
}
