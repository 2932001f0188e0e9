// SPDX-License-Identifier: GPL-2.0
/*
 * The 32-bit entry (int 0x80) of a 64-bit process.
 *
 * A call of it whose arguments are those of the 64-bit call is that call. Linux chooses
 * addresses below 4 GB there, by in_32bit_syscall(); MAP_32BIT does the same for what the
 * module chooses (see hpmmap_find_place()), and means nothing to Linux in such a call.
 */
#include <asm/unistd.h>

#include "hpmmap.h"
#include "call/sys.h"

static long (*const handlers[])(const struct pt_regs *regs) = {
	[__NR_ia32_brk] = hpmmap_sys_brk,
	[__NR_ia32_mmap] = hpmmap_sys_mmap,
	[__NR_ia32_munmap] = hpmmap_sys_munmap,
	[__NR_ia32_mprotect] = hpmmap_sys_mprotect,
	[__NR_ia32_mlock] = hpmmap_sys_mlock,
	[__NR_ia32_munlock] = hpmmap_sys_munlock,
	[__NR_ia32_munlockall] = hpmmap_sys_munlockall,
	[__NR_ia32_mremap] = hpmmap_sys_mremap,
	[__NR_ia32_mmap2] = hpmmap_sys_mmap,
	[__NR_ia32_madvise] = hpmmap_sys_madvise,
	[__NR_ia32_remap_file_pages] = hpmmap_sys_remap_file_pages,
	[__NR_ia32_mlock2] = hpmmap_sys_mlock2,
	[__NR_ia32_pkey_mprotect] = hpmmap_sys_pkey_mprotect,
};

/* Which call it is, says its number, as it does to the kernel. */
long hpmmap_sys_ia32(const struct pt_regs *regs)
{
	u32 nr = regs->orig_ax, a[6] = { regs->bx, regs->cx, regs->dx,
					 regs->si, regs->di, regs->bp };
	struct pt_regs args = *regs;

	if (nr >= ARRAY_SIZE(handlers) || !handlers[nr])
		return -ENOSYS;
	if (nr == __NR_ia32_mmap &&
	    copy_from_user(a, (void __user *)(unsigned long)a[0], sizeof(a)))
		return -EFAULT;
	args.di = a[0];
	args.si = a[1];
	args.dx = a[2];
	args.r10 = a[3];
	args.r8 = a[4];
	args.r9 = a[5];
	if (nr == __NR_ia32_mmap2)
		args.r9 <<= PAGE_SHIFT;
	if (nr == __NR_ia32_mmap || nr == __NR_ia32_mmap2)
		args.r10 |= MAP_32BIT;
	return handlers[nr](&args);
}
