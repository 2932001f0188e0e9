// SPDX-License-Identifier: GPL-2.0
/*
 * memfd_create(2) and shmget(2): they make a file of the pools, which any process can have then,
 * registered or not, and for longer than the job lasts. Where the pools have too little it is
 * Linux's, unless the job is strict; a memfd gets its memory only with its size, so another file
 * takes its place then.
 */
#include <linux/dcache.h>
#include <linux/fdtable.h>
#include <linux/ipc.h>
#include <linux/shm.h>
#include <linux/shmem_fs.h>
#include <linux/syscalls.h>
#include <uapi/linux/memfd.h>
#include <uapi/linux/shm.h>

#include "hook.h"
#include "hpmmap.h"
#include "mem/block/account.h"
#include "mem/block/nodes.h"
#include "as/own/ctx.h"
#include "as/own/reserve.h"
#include "as/own/stats.h"
#include "as/map/policy.h"
#include "fs/files.h"
#include "call/step/handle.h"
#include "call/sys.h"

#define MEMFD_PREFIX "memfd:"
#define MEMFD_NAME_MAX (NAME_MAX - (sizeof(MEMFD_PREFIX) - 1))

/* Seals and pages of hugetlb are Linux's. */
static bool memfd_is_plain(unsigned long flags)
{
	unsigned long known = MFD_CLOEXEC;

#ifdef MFD_EXEC
	known |= MFD_EXEC;
	if (flags & MFD_EXEC)
		return !(flags & ~known);
#endif
	return !(flags & ~known) && !compat_memfd_noexec(task_active_pid_ns(current));
}

/* Returns a descriptor or an errno, -EFAULT and -EINVAL for what Linux will refuse, too. */
static long memfd_new(const char __user *uname, unsigned long flags)
{
	char *own = strndup_user(uname, MEMFD_NAME_MAX + 1), *name;
	struct file *file;
	long fd;

	if (IS_ERR(own))
		return PTR_ERR(own);
	name = kasprintf(GFP_KERNEL, MEMFD_PREFIX "%s", own);
	kfree(own);
	if (!name)
		return -ENOMEM;
	fd = get_unused_fd_flags(flags & MFD_CLOEXEC ? O_CLOEXEC : 0);
	if (fd < 0)
		goto out;
	file = hpmmap_fs_file(name, 0, false);
	if (IS_ERR(file)) {
		put_unused_fd(fd);
		fd = PTR_ERR(file);
	} else {
		fd_install(fd, file);
	}
out:
	kfree(name);
	return fd;
}

static long handle_memfd_create(struct hpmmap_ctx *ctx, enum hpmmap_call call,
				const struct pt_regs *regs)
{
	bool wanted = !READ_ONCE(ctx->shared_linux) &&
		      memfd_is_plain((unsigned int)regs->si), room;
	struct hpmmap_placement place;
	long ret;

	hpmmap_placement_get(ctx->job, NULL, &place);
	room = wanted && (ctx->job->strict || hpmmap_could_reserve(ctx, &place));
	if (room) {
		ret = memfd_new((const char __user *)regs->di, (unsigned int)regs->si);
		if (ret >= 0 || ret == -EMFILE)
			return ret;
	}
	ret = hpmmap_call_orig(call, regs);
	/* How large it will be is not known. */
	if (ret >= 0 && wanted && !room)
		hpmmap_count_fallback(ctx, HPMMAP_FALLBACK_MMAP, PAGE_SIZE);
	return ret;
}

long hpmmap_sys_memfd_create(const struct pt_regs *regs)
{
	return hpmmap_handle(HPMMAP_CALL_MEMFD_CREATE, regs, handle_memfd_create);
}

/* Stands in for memfd_fcntl(): a memfd of the pools was made without MFD_ALLOW_SEALING. */
long hpmmap_memfd_fcntl(struct file *file, unsigned int cmd, unsigned long arg)
{
	if (!hpmmap_fs_is_internal(file))
		return compat_memfd_fcntl(file, cmd, arg);
	return cmd == F_GET_SEALS ? F_SEAL_SEAL : -EPERM;
}

/*
 * Is it more than the pools, or a limit, could ever give? Such a file is address space: the
 * program will write a part of it.
 */
static bool is_sparse(struct hpmmap_ctx *ctx, unsigned long bytes)
{
	struct hpmmap_account *account = hpmmap_account_get(&ctx->owner.account);
	struct hpmmap_placement place;
	unsigned long most;

	hpmmap_placement_get(ctx->job, NULL, &place);
	most = min(hpmmap_account_limit(account), hpmmap_pool_count_all(&place.nodes));
	hpmmap_account_put(account);
	return DIV_ROUND_UP(bytes, SLOT_SIZE) > most;
}

/* Descriptions may say so, and what they say is kept; Linux's file knows no O_DIRECT everywhere. */
#define KEPT_FLAGS (O_APPEND | O_NONBLOCK | O_NOATIME)

/* What was set of a memfd: its owner and mode, its flags, its position. */
static void inherit(struct file *file, const struct file *old)
{
	const struct inode *from = file_inode(old);
	struct inode *inode = file_inode(file);

	inode->i_mode = from->i_mode;
	inode->i_uid = from->i_uid;
	inode->i_gid = from->i_gid;
	file->f_mode |= FMODE_LSEEK | FMODE_PREAD | FMODE_PWRITE;
	file->f_flags |= O_LARGEFILE | (old->f_flags & KEPT_FLAGS);
	/* What reads and writes of it look at. */
	file->f_iocb_flags = iocb_flags(file);
	file->f_pos = old->f_pos;
}

/*
 * A descriptor has @file in place of @old. False, and nothing has changed, where there is any other
 * reference to that, or to its name, or a lock: it would be another file from then on. It becomes
 * one for a thread that comes for it at this moment.
 */
static bool fd_exchange(unsigned int fd, struct file *old, struct file *file)
{
	struct files_struct *files = current->files;
	struct inode *inode = file_inode(old);
	bool done;

	spin_lock(&files->file_lock);
	/* The caller has one, and the table: no other call is inside the file. */
	done = files_lookup_fd_locked(files, fd) == old &&
	       file_count(old) == 2 && d_count(old->f_path.dentry) == 1 &&
	       !READ_ONCE(inode->i_flctx) && !inode->i_blocks && !i_size_read(inode);
	if (done) {
		inherit(file, old);
		rcu_assign_pointer(files_fdtable(files)->fd[fd], get_file(file));
	}
	spin_unlock(&files->file_lock);
	return done;
}

/* A memfd of the caller's alone that could not get memory becomes one of Linux's. */
static bool memfd_becomes_linux(unsigned int fd)
{
	struct file *old = fget(fd), *file;
	bool done = false;

	if (!old)
		return false;
	if (hpmmap_fs_is_internal(old) && !file_inode(old)->i_blocks &&
	    !(~old->f_mode & (FMODE_READ | FMODE_WRITE))) {
		file = shmem_file_setup(old->f_path.dentry->d_name.name, 0, COMPAT_NORESERVE);
		if (!IS_ERR(file)) {
			done = fd_exchange(fd, old, file);
			fput(file);
		}
	}
	if (done)
		filp_close(old, current->files);
	fput(old);
	return done;
}

/* A call that gives a file its size. */
static long size_call(enum hpmmap_call call, const struct pt_regs *regs, unsigned long bytes)
{
	long ret = hpmmap_call_orig(call, regs);
	struct hpmmap_ctx *ctx;

	if (likely(ret != -ENOSPC))
		return ret;
	ctx = hpmmap_ctx_get(current->mm);
	if (!ctx)
		return ret;
	if ((!ctx->job->strict || is_sparse(ctx, bytes)) && memfd_becomes_linux(regs->di)) {
		ret = hpmmap_call_orig(call, regs);
		if (!ret)
			hpmmap_count_fallback(ctx, HPMMAP_FALLBACK_MMAP,
					      PAGE_ALIGN(bytes));
	}
	hpmmap_ctx_put(ctx);
	return ret;
}

long hpmmap_sys_ftruncate(const struct pt_regs *regs)
{
	return size_call(HPMMAP_CALL_FTRUNCATE, regs, regs->si);
}

long hpmmap_sys_fallocate(const struct pt_regs *regs)
{
	return size_call(HPMMAP_CALL_FALLOCATE, regs, regs->dx + regs->r10);
}

/* The file of a segment that shmget(2) is about to make. */
struct segment {
	struct list_head link;		/* in the list */
	struct task_struct *task;	/* the caller */
	struct file *file;		/* the file; NULL once it was taken */
};

static LIST_HEAD(segments);
static DEFINE_SPINLOCK(segments_lock);

/* The file of a segment: made before, without the lock that all segments have in common. */
struct file *hpmmap_shm_file(const char *name, loff_t size, unsigned long flags)
{
	struct file *file = NULL;
	struct segment *segment;

	spin_lock(&segments_lock);
	list_for_each_entry(segment, &segments, link)
		if (segment->task == current && str_has_prefix(name, "SYSV"))
			swap(file, segment->file);
	spin_unlock(&segments_lock);
	return file ? file : compat_shm_file(name, size, flags);
}

/* A segment of a file that was made for it. */
static long segment_new(const struct pt_regs *regs, struct file *file)
{
	struct segment segment = { .task = current, .file = file };
	long ret;

	spin_lock(&segments_lock);
	list_add(&segment.link, &segments);
	spin_unlock(&segments_lock);
	ret = hpmmap_call_orig(HPMMAP_CALL_SHMGET, regs);
	spin_lock(&segments_lock);
	list_del(&segment.link);
	spin_unlock(&segments_lock);
	/* There was one already, or a limit of Linux was in the way. */
	if (segment.file)
		fput(segment.file);
	return ret;
}

/* Is there a segment already, or is a new one not for the pools? */
static bool segment_is_there(const struct pt_regs *regs, long *ret)
{
	unsigned int flags = regs->dx;
	struct pt_regs look = *regs;

	if ((int)regs->di == IPC_PRIVATE)
		return false;
	look.dx &= ~(unsigned long)(IPC_CREAT | IPC_EXCL);
	*ret = flags & IPC_CREAT ? hpmmap_call_orig(HPMMAP_CALL_SHMGET, &look) : 0;
	if (*ret == -ENOENT)
		return false;
	/* Linux knows what it means that there is one. */
	*ret = hpmmap_call_orig(HPMMAP_CALL_SHMGET, regs);
	return true;
}

static long handle_shmget(struct hpmmap_ctx *ctx, enum hpmmap_call call,
			  const struct pt_regs *regs)
{
	unsigned long size = regs->si;
	struct file *file;
	char name[16];
	long ret;

	/* What is only reserved, or of hugetlb, or cannot be right, is Linux's. */
	if (READ_ONCE(ctx->shared_linux) || regs->dx & (SHM_NORESERVE | SHM_HUGETLB) ||
	    !size || size > TASK_SIZE)
		return hpmmap_call_orig(call, regs);
	if (segment_is_there(regs, &ret))
		return ret;
	snprintf(name, sizeof(name), "SYSV%08x", (int)regs->di);
	file = hpmmap_fs_file(name, size, true);
	if (!IS_ERR(file))
		return segment_new(regs, file);
	if (PTR_ERR(file) == -EINTR)
		return -EINTR;
	if (ctx->job->strict) {
		hpmmap_count_failure(ctx);
		return -ENOMEM;
	}
	ret = hpmmap_call_orig(call, regs);
	if (ret >= 0)
		hpmmap_count_fallback(ctx, HPMMAP_FALLBACK_MMAP, PAGE_ALIGN(size));
	return ret;
}

long hpmmap_sys_shmget(const struct pt_regs *regs)
{
	return hpmmap_handle(HPMMAP_CALL_SHMGET, regs, handle_shmget);
}
