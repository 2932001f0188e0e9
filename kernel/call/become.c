// SPDX-License-Identifier: GPL-2.0
/*
 * Shared memory without a name that becomes Linux's: a memfd that could not get memory, and
 * what a userfaultfd is to watch.
 *
 * Another file takes the place of the one of the pools wherever that is known: in the
 * caller's table of files and in his mappings. If there is anybody else who has it (another
 * process, a segment of System V, a call that is under way), it stays what it is.
 */
#include <linux/anon_inodes.h>
#include <linux/dcache.h>
#include <linux/delay.h>
#include <linux/fdtable.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/sched/signal.h>
#include <linux/shmem_fs.h>
#include <linux/spinlock.h>

#include "hook.h"
#include "hpmmap.h"
#include "as/ctx.h"
#include "as/stats.h"
#include "fs/files.h"
#include "call/become.h"

#define BUSY_STEPS 10
#define BUSY_MS 10

/**
 * struct become - a file of the pools, and the one that takes its place
 * @old: the file, with a reference
 * @file: the one of Linux, with a reference
 * @blocker: one that gives no references
 * @ops: of mappings of @file
 * @nr_vmas: mappings of the caller that are to have the other one
 * @nr_fds: descriptors of his that have it now
 * @blocks: the blocker may have been seen
 * @zeros: pages of zeros are to be there, too
 */
struct become {
	struct file *old;
	struct file *file;
	struct file *blocker;
	const struct vm_operations_struct *ops;
	unsigned long nr_vmas;
	unsigned long nr_fds;
	bool blocks;
	bool zeros;
};

/*
 * Has nobody the file but the caller here, his mappings and so many descriptors? Locks are
 * the file's, and would go with it.
 */
static bool is_ours_alone(const struct become *b, unsigned long nr_fds)
{
	if (file_count(b->old) != 1 + b->nr_vmas + nr_fds)
		return false;
	/* Who opens it once more, or gives it a size, has a reference until that is done. */
	smp_rmb();
	return d_count(b->old->f_path.dentry) == 1 && !READ_ONCE(file_inode(b->old)->i_flctx);
}

/* Descriptions may say so, and what they say is kept; Linux's file knows no O_DIRECT everywhere. */
#define KEPT_FLAGS (O_APPEND | O_NONBLOCK | O_NOATIME)

/*
 * What was set of a file: its owner and mode, its flags, its position; and what futexes in it
 * go by, so that who waits at one is still woken.
 */
static void inherit(struct file *file, const struct file *old)
{
	const struct inode *from = file_inode(old);
	struct inode *inode = file_inode(file);

	inode->i_mode = from->i_mode;
	inode->i_uid = from->i_uid;
	inode->i_gid = from->i_gid;
	inode->i_flags |= from->i_flags & S_PRIVATE;
	atomic64_set(&inode->i_sequence, atomic64_read(&from->i_sequence));
	file->f_flags |= old->f_flags & KEPT_FLAGS;
	/* What reads and writes of it look at. */
	file->f_iocb_flags = iocb_flags(file);
	file->f_pos = old->f_pos;
}

/* Puts one file in the place of another in a table, file_lock held. Returns how often it was there. */
static unsigned long fds_replace(struct files_struct *files, struct file *old, struct file *file)
{
	struct fdtable *fdt = files_fdtable(files);
	unsigned long nr = 0;
	unsigned int fd;

	for (fd = find_first_bit(fdt->open_fds, fdt->max_fds); fd < fdt->max_fds;
	     fd = find_next_bit(fdt->open_fds, fdt->max_fds, fd + 1)) {
		if (rcu_access_pointer(fdt->fd[fd]) != old)
			continue;
		rcu_assign_pointer(fdt->fd[fd], file);
		nr++;
	}
	return nr;
}

/*
 * The other file for all descriptors of the caller's, with all that they are. False, and
 * nothing has changed, where somebody else has got the old one.
 *
 * Other threads take no lock to find a file: they take a reference, then look again whether
 * it is still there. While it is decided they find one that gives them none, and look again:
 * so either they are counted, or they find what stays.
 */
static bool fds_exchange(struct become *b)
{
	struct files_struct *files = current->files;
	unsigned long i;
	bool done;

	spin_lock(&files->file_lock);
	preempt_disable();
	b->blocks = true;
	b->nr_fds = fds_replace(files, b->old, b->blocker);
	smp_mb();
	done = is_ours_alone(b, b->nr_fds);
	if (done)
		inherit(b->file, b->old);
	for (i = 0; done && i < b->nr_fds; i++)
		get_file(b->file);
	fds_replace(files, b->blocker, done ? b->file : b->old);
	preempt_enable();
	spin_unlock(&files->file_lock);
	return done;
}

/* An empty file of Linux's, as large. */
static struct file *linux_file(const struct file *old)
{
	struct file *file = shmem_file_setup(old->f_path.dentry->d_name.name,
					     i_size_read(file_inode(old)), COMPAT_NORESERVE);

	if (IS_ERR(file))
		return ERR_PTR(-ENOMEM);
	file->f_mode |= FMODE_LSEEK | FMODE_PREAD | FMODE_PWRITE;
	file->f_flags |= O_LARGEFILE;
	return file;
}

/* Counts the caller's mappings; false if there is one that has to stay. mmap_lock held. */
static bool vmas_count(struct become *b)
{
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, current->mm, 0);

	b->nr_vmas = 0;
	for_each_vma(vmi, vma) {
		if (vma->vm_file != b->old)
			continue;
		/* Copies that have been written to stay where they are. */
		if (vma->anon_vma)
			return false;
		b->nr_vmas++;
	}
	return true;
}

/*
 * How often the file is referred to, if the caller has it alone; or an errno: -EAGAIN where
 * somebody else has it, who may have come for a moment only, or is a child about to execute.
 */
static long look(struct become *b)
{
	struct files_struct *files = current->files;
	unsigned long nr_fds;
	bool movable, alone;

	/* What may be done with the other one is more; and there are locks for good. */
	if (~b->old->f_mode & (FMODE_READ | FMODE_WRITE) ||
	    READ_ONCE(file_inode(b->old)->i_flctx))
		return -EBUSY;
	if (mmap_read_lock_killable(current->mm))
		return -EINTR;
	movable = vmas_count(b);
	spin_lock(&files->file_lock);
	nr_fds = fds_replace(files, b->old, b->old);
	alone = is_ours_alone(b, nr_fds);
	spin_unlock(&files->file_lock);
	mmap_read_unlock(current->mm);
	if (!movable)
		return -EBUSY;
	return alone ? 1 + b->nr_vmas + nr_fds : -EAGAIN;
}

/* All at once for everybody else. */
static int exchange(struct become *b)
{
	struct mm_struct *mm = current->mm;
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, mm, 0);
	int ret = -EAGAIN;

	if (mmap_write_lock_killable(mm))
		return -EINTR;
	if (!vmas_count(b) || !fds_exchange(b))
		goto out;
	for_each_vma(vmi, vma) {
		if (vma->vm_file != b->old)
			continue;
		compat_vma_set_file(vma, b->file);
		vma->vm_ops = b->ops;
	}
	ret = 0;
out:
	mmap_write_unlock(mm);
	return ret;
}

static int copy_and_exchange(struct become *b, unsigned long refs)
{
	struct inode *inode = file_inode(b->old);
	int ret = hpmmap_fs_freeze(inode);

	if (ret)
		return ret == -EBUSY ? -EAGAIN : ret;
	ret = hpmmap_fs_copy(b->old, b->file->f_mapping, refs, b->zeros);
	if (!ret)
		ret = exchange(b);
	hpmmap_fs_thaw(inode);
	/* Input and output is over at some time. */
	return ret == -EBUSY ? -EAGAIN : ret;
}

/* It is given up only when the call has returned. */
static const struct file_operations no_operations = {
	.owner = THIS_MODULE,
};

/* With the size that it has just now. */
static int become_locked(struct become *b)
{
	long refs = look(b);
	int ret;

	if (refs < 0)
		return refs;
	b->blocker = anon_inode_getfile("[hpmmap]", &no_operations, NULL, 0);
	if (IS_ERR(b->blocker))
		return -ENOMEM;
	b->file = linux_file(b->old);
	ret = PTR_ERR_OR_ZERO(b->file);
	compat_file_block(b->blocker);
	if (!ret)
		ret = copy_and_exchange(b, refs);
	/* Who has found it looks no more. */
	if (b->blocks)
		synchronize_rcu();
	compat_file_unblock(b->blocker);
	fput(b->blocker);
	return ret;
}

/* What is locked has its pages. */
static void fill_locked(const struct file *file)
{
	struct vm_area_struct *vma;
	unsigned long start = 0, end = 0;

	do {
		VMA_ITERATOR(vmi, current->mm, end);

		mmap_read_lock(current->mm);
		for_each_vma(vmi, vma)
			if (vma->vm_file == file && vma->vm_flags & VM_LOCKED &&
			    !(vma->vm_flags & VM_LOCKONFAULT))
				break;
		if (vma) {
			start = vma->vm_start;
			end = vma->vm_end;
		}
		mmap_read_unlock(current->mm);
		/* If there is something else by now, that is no harm. */
		if (vma)
			hpmmap_madvise(start, end - start, MADV_POPULATE_READ);
	} while (vma && !fatal_signal_pending(current));
}

/*
 * Returns 0; -EBUSY where it has to stay, -EAGAIN where somebody else has it, which may be over
 * soon, -EFAULT where a memory error is in it, -ENOMEM, or -EINTR for who is being killed: and
 * nothing has changed.
 */
static int become(struct file *old, bool zeros)
{
	struct inode *inode = file_inode(old);
	struct become b = { .old = old, .ops = compat_shmem_ops(), .zeros = zeros };
	int ret;

	if (!b.ops)
		return -EBUSY;
	if (down_write_killable(&inode->i_rwsem))
		return -EINTR;
	ret = become_locked(&b);
	inode_unlock(inode);
	if (!ret)
		fill_locked(b.file);
	while (!ret && b.nr_fds--)
		filp_close(old, current->files);
	if (!IS_ERR_OR_NULL(b.file))
		fput(b.file);
	return ret;
}

/**
 * hpmmap_become_linux() - a memfd that could not get memory becomes one of Linux's
 * @fd: descriptor of the caller's
 *
 * Return: false if it is none, has memory already, or somebody else has it, too: he would
 * keep the old one.
 */
bool hpmmap_become_linux(unsigned int fd)
{
	struct file *old = fget(fd);
	bool done;

	if (!old)
		return false;
	done = hpmmap_fs_is_internal(old) && !file_inode(old)->i_blocks && !become(old, false);
	fput(old);
	return done;
}

/* The next file of the pools without a name in a range of the caller's, with a reference. */
static struct file *next_file(unsigned long *start, unsigned long end)
{
	struct file *file = NULL;
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, current->mm, *start);

	mmap_read_lock(current->mm);
	for_each_vma_range(vmi, vma, end) {
		if (!vma->vm_file || !hpmmap_fs_is_internal(vma->vm_file))
			continue;
		file = get_file(vma->vm_file);
		*start = vma->vm_end;
		break;
	}
	mmap_read_unlock(current->mm);
	return file;
}

/* What a job has asked of Linux, if it is one. */
static void count(loff_t size)
{
	struct hpmmap_ctx *ctx = hpmmap_ctx_get(current->mm);

	if (!ctx)
		return;
	hpmmap_count_fallback(ctx, HPMMAP_FALLBACK_ASKED, PAGE_ALIGN(size));
	hpmmap_ctx_put(ctx);
}

/*
 * Waits a little for who looks at the file just now, or is about to fill a mapping of it: so
 * many times in one call.
 */
static int become_patiently(struct file *file, bool zeros, unsigned int *steps)
{
	int ret;

	while ((ret = become(file, zeros)) == -EAGAIN && *steps) {
		if (fatal_signal_pending(current))
			return -EINTR;
		--*steps;
		msleep(BUSY_MS);
	}
	return ret == -EAGAIN ? -EBUSY : ret;
}

/**
 * hpmmap_range_becomes_linux() - shared memory in a range becomes Linux's
 * @start: first address
 * @end: end
 * @zeros: pages of zeros are there afterwards, too
 *
 * All of each file that is mapped there, with its contents, wherever the caller has it. What
 * somebody else has, too, stays what it is.
 *
 * Return: 0; -EFAULT where a memory error is in it, -ENOMEM, or -EINTR for who is being
 * killed.
 */
int hpmmap_range_becomes_linux(unsigned long start, unsigned long end, bool zeros)
{
	struct file *file, *refused = NULL;
	unsigned int steps = BUSY_STEPS;
	int ret = 0;

	while (!ret && start < end && (file = next_file(&start, end))) {
		/* It has many mappings. */
		if (file != refused)
			ret = become_patiently(file, zeros, &steps);
		if (ret == -EBUSY) {
			swap(file, refused);
			ret = 0;
		} else if (!ret && file != refused) {
			count(i_size_read(file_inode(file)));
		}
		if (file)
			fput(file);
		if (fatal_signal_pending(current))
			ret = -EINTR;
		cond_resched();
	}
	if (refused)
		fput(refused);
	return ret;
}
