// SPDX-License-Identifier: GPL-2.0
/*
 * userfaultfd(2): memory that it watches or moves has to be ordinary memory.
 */
#include "hook.h"
#include "hpmmap.h"
#include "as/own/ctx.h"
#include "as/map/range.h"
#include "as/change/handback.h"
#include "call/step/extent.h"
#include "call/sys.h"

/* Is there memory of ours in a range of another address space? */
static bool other_has_ours(struct mm_struct *mm, unsigned long start,
			   unsigned long end)
{
	bool ret;

	if (!hpmmap_ctx_exists(mm) || !mmget_not_zero(mm))
		return false;
	if (mmap_read_lock_killable(mm)) {
		mmput_async(mm);
		return true;
	}
	ret = hpmmap_range_first_ours(mm, start, end);
	mmap_read_unlock(mm);
	/* The last user may be the caller. */
	mmput_async(mm);
	return ret;
}

/*
 * Private memory in a range of the address space that a userfaultfd is of. @zeros: pages of
 * zeros are to be resident.
 */
static long before_use(struct file *file, unsigned long start,
		       unsigned long end, bool zeros)
{
	struct mm_struct *mm = compat_userfaultfd_mm(file, hpmmap_ctx_exists);
	struct hpmmap_ctx *ctx;
	long ret;

	if (offset_in_page(start | end) || end <= start || end > TASK_SIZE)
		return 0;
	/* As any mapping of a file that is shared. */
	if (mm != current->mm)
		return mm && other_has_ours(mm, start, end) ? -EINVAL : 0;
	ctx = hpmmap_ctx_get(mm);
	if (!ctx)
		return 0;
	ret = hpmmap_range_has_ours(ctx, start, end) ?
	      hpmmap_extent_leave(ctx, start, end) ?:
	      hpmmap_handback(ctx, start, end, false, zeros) : 0;
	hpmmap_ctx_put(ctx);
	return ret;
}

/* Linux reads the argument again, and refuses what is wrong with it. */
static long before_register(struct file *file, void __user *arg)
{
	struct uffdio_register reg;
	unsigned long start, end;
	bool zeros;

	if (copy_from_user(&reg, arg, offsetof(struct uffdio_register, ioctls)))
		return 0;
	if (!reg.mode || reg.mode & ~UFFD_API_REGISTER_MODES)
		return 0;
	start = reg.range.start;
	end = start + reg.range.len;
	/*
	 * Whether the program has touched a page of zeros is not known. With MISSING it counts
	 * as missing, so that every fault is an event; otherwise as resident.
	 */
	zeros = !(reg.mode & UFFDIO_REGISTER_MODE_MISSING);
	/* Only what is shared can have pages that are not mapped, and that Linux refuses here. */
	return reg.mode & UFFDIO_REGISTER_MODE_MINOR ? 0 : before_use(file, start, end, zeros);
}

/* What its address space shares from now on is ordinary memory, which a userfaultfd can watch. */
static void opened(struct file *file)
{
	struct mm_struct *mm = compat_userfaultfd_mm(file, hpmmap_ctx_exists);
	struct hpmmap_ctx *ctx = mm ? hpmmap_ctx_get(mm) : NULL;

	if (!ctx)
		return;
	WRITE_ONCE(ctx->shared_linux, true);
	hpmmap_ctx_put(ctx);
}

/* Stands in for userfaultfd_ioctl(); the userfaultfd may be another address space's. */
long hpmmap_userfaultfd_ioctl(struct file *file, unsigned int cmd,
			      unsigned long arg)
{
	unsigned long start, end;
	long ret = 0;

	if (cmd == UFFDIO_REGISTER)
		ret = before_register(file, (void __user *)arg);
	else if (compat_uffd_move_source(cmd, (void __user *)arg, &start, &end))
		ret = before_use(file, start, end, true);
	ret = ret ? ret : hpmmap_call_userfaultfd(file, cmd, arg);
	if (cmd == UFFDIO_API && !ret)
		opened(file);
	return ret;
}
