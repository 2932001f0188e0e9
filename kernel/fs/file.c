// SPDX-License-Identifier: GPL-2.0
/*
 * Reading and writing files, and their size.
 *
 * A call that asks for memory gets all of it first, or fails and changes nothing.
 */
#include <linux/fs.h>
#include <linux/falloc.h>
#include <linux/splice.h>
#include <linux/uio.h>

#include "hpmmap.h"
#include "mem/block/block.h"
#include "as/map/file.h"
#include "as/map/range.h"
#include "as/map/vma.h"
#include "fs/space.h"

/* Copied without a pause. */
#define PIECE (256UL << 10)

static int fs_open(struct inode *inode, struct file *file)
{
	/* Reads and writes copy from and to the memory itself. */
	file->f_mode |= FMODE_CAN_ODIRECT;
	return generic_file_open(inode, file);
}

/*
 * Copies between a file and the caller's memory, as much as goes at once. That memory may be of
 * the very block, or wait for another task, so it is made accessible first if it is not.
 *
 * Returns how much; 0 where the file has no memory to be written to; -EAGAIN to be called again; -EFAULT;
 * -EIO where a memory error is.
 */
static ssize_t copy_piece(struct inode *inode, loff_t pos, size_t len, struct iov_iter *iter,
			  bool write)
{
	struct hpmmap_block *block = hpmmap_fs_block_get(inode, pos >> SLOT_SHIFT);
	size_t at = pos & ~SLOT_MASK, left, done = 0;
	int cookie;
	void *addr;
	bool bad;

	len = min3(len, SLOT_SIZE - at, PIECE);
	if (!block)
		return write ? 0 : iov_iter_zero(len, iter) ?: -EFAULT;
	addr = folio_address(block->folio) + at;
	cookie = srcu_read_lock(&hpmmap_touch_srcu);
	bad = hpmmap_block_is_hurt(block);
	if (likely(!bad)) {
		pagefault_disable();
		done = write ? copy_from_iter(addr, len, iter) : copy_to_iter(addr, len, iter);
		pagefault_enable();
	}
	srcu_read_unlock(&hpmmap_touch_srcu, cookie);
	folio_put(block->folio);
	if (bad)
		return -EIO;
	if (done)
		return done;
	if (!user_backed_iter(iter))
		return -EFAULT;
	left = write ? fault_in_iov_iter_readable(iter, len) :
		       fault_in_iov_iter_writeable(iter, len);
	return left == len ? -EFAULT : -EAGAIN;
}

/*
 * Copies as much as there is memory for, and where the file is read as much as its size has, which may
 * become less meanwhile. Returns how much, or an errno.
 */
static ssize_t copy_all(struct inode *inode, loff_t pos, struct iov_iter *iter, bool write)
{
	ssize_t done = 0, ret = 0;

	while (iov_iter_count(iter)) {
		loff_t len = iov_iter_count(iter);

		if (!write)
			len = min(len, i_size_read(inode) - pos - done);
		if (len <= 0)
			return done;
		ret = -EINTR;
		if (!fatal_signal_pending(current))
			ret = copy_piece(inode, pos + done, len, iter, write);
		cond_resched();
		if (ret == -EAGAIN)
			continue;
		if (ret <= 0)
			break;
		done += ret;
	}
	return done ? done : ret;
}

static ssize_t fs_read_iter(struct kiocb *iocb, struct iov_iter *to)
{
	ssize_t ret = copy_all(file_inode(iocb->ki_filp), iocb->ki_pos, to, false);

	if (ret > 0)
		iocb->ki_pos += ret;
	file_accessed(iocb->ki_filp);
	return ret;
}

static ssize_t fs_write_locked(struct kiocb *iocb, struct iov_iter *from)
{
	struct inode *inode = file_inode(iocb->ki_filp);
	unsigned long had = hpmmap_fs_inode(inode)->nr;
	loff_t size = i_size_read(inode);
	loff_t pos, end;
	ssize_t ret;

	ret = generic_write_checks(iocb, from);
	if (ret <= 0)
		return ret;
	pos = iocb->ki_pos;
	end = pos + iov_iter_count(from);
	ret = hpmmap_fs_grow(inode, hpmmap_fs_blocks(end)) ?:
	      hpmmap_fs_fill(inode, pos >> SLOT_SHIFT, hpmmap_fs_blocks(end));
	if (!ret)
		ret = file_modified(iocb->ki_filp);
	if (!ret && pos + iov_iter_count(from) > size)
		hpmmap_fs_zero_tail(inode, pos);
	if (!ret)
		ret = copy_all(inode, pos, from, true);
	end = ret > 0 ? pos + ret : 0;
	if (end > size)
		i_size_write(inode, end);
	hpmmap_fs_cut(inode, max(had, hpmmap_fs_blocks(i_size_read(inode))));
	if (ret > 0)
		iocb->ki_pos = end;
	return ret;
}

static ssize_t fs_write_iter(struct kiocb *iocb, struct iov_iter *from)
{
	struct inode *inode = file_inode(iocb->ki_filp);
	ssize_t ret;

	if (down_write_killable(&inode->i_rwsem))
		return -EINTR;
	ret = fs_write_locked(iocb, from);
	inode_unlock(inode);
	return ret;
}

/* A file that has the memory for it becomes larger. */
static void fs_extend(struct inode *inode, loff_t size)
{
	hpmmap_fs_zero_tail(inode, size);
	i_size_write(inode, size);
}

static long fallocate_locked(struct file *file, int mode, loff_t offset, loff_t end)
{
	struct inode *inode = file_inode(file);
	bool larger = !(mode & FALLOC_FL_KEEP_SIZE) && end > i_size_read(inode);
	unsigned long had = hpmmap_fs_inode(inode)->nr;
	long ret = 0;

	/* RLIMIT_FSIZE holds for memory beyond the size, too, as on tmpfs. */
	if (!(mode & FALLOC_FL_PUNCH_HOLE)) {
		ret = inode_newsize_ok(inode, end);
		if (!ret)
			ret = hpmmap_fs_grow(inode, hpmmap_fs_blocks(end)) ?:
			      hpmmap_fs_fill(inode, offset >> SLOT_SHIFT, hpmmap_fs_blocks(end));
	}
	if (!ret)
		ret = file_modified(file);
	if (!ret && mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))
		ret = hpmmap_fs_zero(inode, offset, end, mode & FALLOC_FL_PUNCH_HOLE &&
				     !READ_ONCE(hpmmap_fs_of(inode->i_sb)->keeps));
	if (ret)
		hpmmap_fs_cut(inode, had);
	else if (larger)
		fs_extend(inode, end);
	return ret;
}

static long fs_fallocate(struct file *file, int mode, loff_t offset, loff_t len)
{
	struct inode *inode = file_inode(file);
	long ret;

	switch (mode & ~FALLOC_FL_KEEP_SIZE) {
	case 0:
	case FALLOC_FL_PUNCH_HOLE:
	case FALLOC_FL_ZERO_RANGE:
		break;
	default:
		return -EOPNOTSUPP;
	}
	if (down_write_killable(&inode->i_rwsem))
		return -EINTR;
	ret = fallocate_locked(file, mode, offset, offset + len);
	inode_unlock(inode);
	return ret;
}

static int fs_setattr(compat_idmap *idmap, struct dentry *dentry, struct iattr *attr)
{
	struct inode *inode = d_inode(dentry);
	int ret;

	ret = setattr_prepare(idmap, dentry, attr);
	if (ret)
		return ret;
	if (attr->ia_valid & ATTR_SIZE) {
		/* truncate(2) leaves it to the file system. */
		if (attr->ia_size != i_size_read(inode)) {
			attr->ia_valid |= ATTR_MTIME | ATTR_CTIME;
			attr->ia_mtime = attr->ia_ctime = current_time(inode);
		}
		if (attr->ia_size > i_size_read(inode)) {
			ret = hpmmap_fs_grow(inode, hpmmap_fs_blocks(attr->ia_size));
			if (ret)
				return ret;
			fs_extend(inode, attr->ia_size);
		} else {
			hpmmap_fs_shrink(inode, attr->ia_size);
		}
	}
	setattr_copy(idmap, inode, attr);
	return 0;
}

static const struct inode_operations inode_ops = {
	.setattr = fs_setattr,
};

/*
 * Address and offset agree modulo 2 MB from 2 MB on, and modulo 1 GB from there on where there may be
 * entries of 1 GB. mmap_lock held.
 */
static unsigned long fs_get_unmapped_area(struct file *file, unsigned long addr,
					  unsigned long len, unsigned long pgoff,
					  unsigned long flags)
{
	unsigned long offset = pgoff << PAGE_SHIFT, at;

	if (!addr && !(flags & MAP_FIXED) && len >= PUD_SIZE &&
	    (hpmmap_fs_is_1g(file_inode(file)->i_sb) || hpmmap_ctx_has_gigabytes(current->mm))) {
		at = hpmmap_range_hole(0, len, flags, PUD_SIZE, offset);
		if (!((at ^ offset) & ~PUD_MASK))
			return at;
	}
#ifdef CONFIG_TRANSPARENT_HUGEPAGE
	return thp_get_unmapped_area(file, addr, len, pgoff, flags);
#else
	return compat_get_unmapped_area(addr, len, flags);
#endif
}

/*
 * With pagesize= a file grows with a mapping that may write to it, as one of hugetlbfs does. Programs
 * rely on mmap(2) to fail where there is not enough memory: QEMU goes on when ftruncate(2) has failed.
 * A call that has i_rwsem may wait for mmap_lock, which is held here. A private mapping would get small
 * pages of ordinary memory, beside those of the file.
 */
static int fs_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct inode *inode = file_inode(file);
	loff_t end = ((loff_t)vma->vm_pgoff << PAGE_SHIFT) + (vma->vm_end - vma->vm_start);
	int ret = 0;

	if (!hpmmap_fs_of(inode->i_sb)->page_size || !(vma->vm_flags & VM_WRITE))
		return hpmmap_fs_mmap(file, vma);
	if (!(vma->vm_flags & VM_SHARED)) {
		pr_notice_ratelimited("%*pE: writes to a file of a mount with pagesize= by a private mapping; QEMU needs share=on, libvirt <access mode='shared'/>\n",
				      (int)strlen(current->comm), current->comm);
		return -EOPNOTSUPP;
	}
	if (end > i_size_read(inode)) {
		if (!inode_trylock(inode))
			return -EAGAIN;
		if (end > i_size_read(inode)) {
			ret = inode_newsize_ok(inode, end) ?:
			      hpmmap_fs_grow(inode, hpmmap_fs_blocks(end));
			if (!ret) {
				fs_extend(inode, end);
				compat_inode_touch(inode, ATTR_MTIME | ATTR_CTIME);
			}
		}
		inode_unlock(inode);
	}
	return ret == -ENOSPC ? -ENOMEM : ret ?: hpmmap_fs_mmap(file, vma);
}

static const struct file_operations file_ops = {
	.owner = THIS_MODULE,
	.open = fs_open,
	.llseek = generic_file_llseek,
	.read_iter = fs_read_iter,
	.write_iter = fs_write_iter,
	.splice_read = COMPAT_SPLICE_READ,
	.splice_write = iter_file_splice_write,
	.mmap = fs_mmap,
	.get_unmapped_area = fs_get_unmapped_area,
	.fallocate = fs_fallocate,
	.fsync = noop_fsync,
};

/* An inode is that of a file. */
void hpmmap_fs_file_init(struct inode *inode)
{
	inode->i_op = &inode_ops;
	inode->i_fop = &file_ops;
	hpmmap_file_mapping_init(inode->i_mapping, &hpmmap_fs_aops);
}
