/* SPDX-License-Identifier: GPL-2.0 */
/* The handlers of system calls, for the table of hooks. */
#ifndef _HPMMAP_CALL_SYS_H
#define _HPMMAP_CALL_SYS_H

long hpmmap_sys_mmap(const struct pt_regs *regs);
long hpmmap_sys_munmap(const struct pt_regs *regs);
long hpmmap_sys_mprotect(const struct pt_regs *regs);
long hpmmap_sys_pkey_mprotect(const struct pt_regs *regs);
long hpmmap_sys_mremap(const struct pt_regs *regs);
long hpmmap_sys_madvise(const struct pt_regs *regs);
long hpmmap_sys_brk(const struct pt_regs *regs);
long hpmmap_sys_mlock(const struct pt_regs *regs);
long hpmmap_sys_mlock2(const struct pt_regs *regs);
long hpmmap_sys_munlock(const struct pt_regs *regs);
long hpmmap_sys_munlockall(const struct pt_regs *regs);
long hpmmap_sys_mbind(const struct pt_regs *regs);
long hpmmap_sys_remap_file_pages(const struct pt_regs *regs);
long hpmmap_sys_memfd_create(const struct pt_regs *regs);
long hpmmap_sys_ftruncate(const struct pt_regs *regs);
long hpmmap_sys_fallocate(const struct pt_regs *regs);
long hpmmap_sys_shmget(const struct pt_regs *regs);
long hpmmap_sys_ia32(const struct pt_regs *regs);
long hpmmap_memfd_fcntl(struct file *file, unsigned int cmd, unsigned long arg);
long hpmmap_userfaultfd_ioctl(struct file *file, unsigned int cmd, unsigned long arg);
struct file *hpmmap_shm_file(const char *name, loff_t size, unsigned long flags);

#endif /* _HPMMAP_CALL_SYS_H */
