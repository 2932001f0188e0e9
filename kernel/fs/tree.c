// SPDX-License-Identifier: GPL-2.0
/*
 * Directories of a mounted file system, and what is in them: as ramfs, for all of it is in
 * Linux's cache of names.
 */
#include <linux/namei.h>

#include "hpmmap.h"
#include "fs/space.h"

static const struct inode_operations dir_ops;

/*
 * A new inode with one reference, in a directory or (NULL) in none, or NULL without memory
 * or where the limit is reached. @mode: with its type. @dev: of a device.
 */
struct inode *hpmmap_fs_new(struct super_block *sb, compat_idmap *idmap,
			    struct inode *dir, umode_t mode, dev_t dev)
{
	struct inode *inode;

	if (!hpmmap_fs_charge_inode(hpmmap_fs_of(sb)))
		return NULL;
	/* Uncharged when it is evicted. */
	inode = new_inode(sb);
	if (!inode) {
		hpmmap_fs_uncharge_inode(hpmmap_fs_of(sb));
		return NULL;
	}
	inode->i_ino = get_next_ino();
	/* Programs make buffers of that size, whatever pagesize= is. */
	inode->i_blkbits = SLOT_SHIFT;
	inode_init_owner(idmap, inode, dir, mode);
	compat_inode_touch(inode, ATTR_ATIME | ATTR_MTIME | ATTR_CTIME);
	switch (mode & S_IFMT) {
	case S_IFREG:
		hpmmap_fs_file_init(inode);
		break;
	case S_IFDIR:
		inode->i_op = &dir_ops;
		inode->i_fop = &simple_dir_operations;
		/* For its "." entry. */
		inc_nlink(inode);
		break;
	case S_IFLNK:
		inode->i_op = &simple_symlink_inode_operations;
		break;
	default:
		init_special_inode(inode, mode, dev);
		break;
	}
	return inode;
}

/* It stays until it is unlinked, or the file system is unmounted. */
static void name(struct inode *dir, struct dentry *dentry, struct inode *inode)
{
	compat_d_keep(dentry, inode);
	compat_inode_touch(dir, ATTR_MTIME | ATTR_CTIME);
}

static int fs_mknod(compat_idmap *idmap, struct inode *dir, struct dentry *dentry,
		    umode_t mode, dev_t dev)
{
	struct inode *inode = hpmmap_fs_new(dir->i_sb, idmap, dir, mode, dev);

	if (!inode)
		return -ENOSPC;
	name(dir, dentry, inode);
	return 0;
}

static int fs_create(compat_idmap *idmap, struct inode *dir, struct dentry *dentry,
		     umode_t mode COMPAT_CREATE_EXCL)
{
	return fs_mknod(idmap, dir, dentry, mode | S_IFREG, 0);
}

static compat_mkdir_t fs_mkdir(compat_idmap *idmap, struct inode *dir,
			       struct dentry *dentry, umode_t mode)
{
	int ret = fs_mknod(idmap, dir, dentry, mode | S_IFDIR, 0);

	if (!ret)
		inc_nlink(dir);
	return compat_mkdir_ret(ret);
}

static int fs_symlink(compat_idmap *idmap, struct inode *dir, struct dentry *dentry,
		      const char *target)
{
	char *link = kstrdup(target, GFP_KERNEL_ACCOUNT);
	struct inode *inode;

	if (!link)
		return -ENOSPC;
	inode = hpmmap_fs_new(dir->i_sb, idmap, dir, S_IFLNK | 0777, 0);
	if (!inode) {
		kfree(link);
		return -ENOSPC;
	}
	/* Freed with the inode. */
	inode->i_link = link;
	inode->i_size = strlen(link);
	name(dir, dentry, inode);
	return 0;
}

static int fs_link(struct dentry *old, struct inode *dir, struct dentry *dentry)
{
	struct hpmmap_fs *fs = hpmmap_fs_of(dir->i_sb);
	bool further = d_inode(old)->i_nlink;
	int ret;

	if (further && !hpmmap_fs_charge_inode(fs))
		return -ENOSPC;
	ret = simple_link(old, dir, dentry);
	if (ret && further)
		hpmmap_fs_uncharge_inode(fs);
	return ret;
}

/* A file has lost a name: the last one goes with the inode. */
static void unname(struct inode *inode)
{
	if (!S_ISDIR(inode->i_mode) && inode->i_nlink)
		hpmmap_fs_uncharge_inode(hpmmap_fs_of(inode->i_sb));
}

static int fs_unlink(struct inode *dir, struct dentry *dentry)
{
	simple_unlink(dir, dentry);
	unname(d_inode(dentry));
	return 0;
}

static int fs_rename(compat_idmap *idmap, struct inode *old_dir, struct dentry *old,
		     struct inode *new_dir, struct dentry *new, unsigned int flags)
{
	bool replaces = d_really_is_positive(new);
	int ret = simple_rename(idmap, old_dir, old, new_dir, new, flags);

	if (!ret && replaces && !(flags & RENAME_EXCHANGE))
		unname(d_inode(new));
	return ret;
}

static int fs_tmpfile(compat_idmap *idmap, struct inode *dir, struct file *file, umode_t mode)
{
	struct inode *inode = hpmmap_fs_new(dir->i_sb, idmap, dir, mode, 0);

	if (!inode)
		return -ENOSPC;
	d_tmpfile(file, inode);
	return finish_open_simple(file, 0);
}

static const struct inode_operations dir_ops = {
	.create = fs_create,
	.lookup = simple_lookup,
	.link = fs_link,
	.unlink = fs_unlink,
	.symlink = fs_symlink,
	.mkdir = fs_mkdir,
	.rmdir = simple_rmdir,
	.mknod = fs_mknod,
	.rename = fs_rename,
	.tmpfile = fs_tmpfile,
};
