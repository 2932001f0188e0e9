// SPDX-License-Identifier: GPL-2.0

#include "hook.h"
#include "hpmmap.h"
#include "sysfs.h"
#include "mem/block/linux_page.h"
#include "mem/block/nodes.h"
#include "mem/block/payer.h"
#include "mem/pool/pinned.h"
#include "mem/pool/pool.h"
#include "mem/pool/section.h"
#include "as/own/ctx.h"
#include "as/own/job.h"
#include "as/own/show.h"
#include "as/map/file.h"
#include "as/map/gigabyte.h"
#include "as/map/window.h"
#include "as/change/join.h"
#include "as/life/failure.h"
#include "as/life/life.h"
#include "as/view/attach.h"
#include "fs/files.h"
#include "call/sys.h"
#include "task/exec.h"
#include "task/fork.h"
#include "chardev.h"

/* Files of /sys/kernel/hpmmap. */

HPMMAP_ATTR(version, "%s", HPMMAP_VERSION);
HPMMAP_ATTR(user_limit_bytes, "%llu", hpmmap_limit_default());
HPMMAP_ATTR(hooks_active, "%d", hpmmap_hook_active());
HPMMAP_ATTR(gigabytes, "%s", hpmmap_gigabytes_possible());
HPMMAP_ATTR(quarantined_blocks, "%ld", atomic_long_read(&hpmmap_pool_quarantined));

static const struct attribute *root_attrs[] = {
	&version_attr.attr,
	&quarantined_blocks_attr.attr,
	&user_limit_bytes_attr.attr,
	&hooks_active_attr.attr,
	&gigabytes_attr.attr,
	NULL,
};

#define HOOK(call, sym, fn) \
	[call] = { .symbol = "__x64_sys_" sym, .handler = fn }

/* Not a system call, but where several of them come by. */
#define HOOK_INNER(call, sym, fn, may_lack) \
	[call] = { .symbol = sym, .handler = fn, .optional = may_lack }

/* What a 64-bit process calls by int 0x80. */
#define HOOK_IA32(nr, sym) \
	HOOK_INNER(HPMMAP_NR_CALLS + nr, "__ia32_" sym, hpmmap_sys_ia32, true)

static struct hpmmap_hook hooks[HPMMAP_NR_HOOKS] = {
	HOOK(HPMMAP_CALL_MMAP, "mmap", hpmmap_sys_mmap),
	HOOK(HPMMAP_CALL_MUNMAP, "munmap", hpmmap_sys_munmap),
	HOOK(HPMMAP_CALL_MPROTECT, "mprotect", hpmmap_sys_mprotect),
	HOOK(HPMMAP_CALL_PKEY_MPROTECT, "pkey_mprotect", hpmmap_sys_pkey_mprotect),
	HOOK(HPMMAP_CALL_MREMAP, "mremap", hpmmap_sys_mremap),
	HOOK(HPMMAP_CALL_MADVISE, "madvise", hpmmap_sys_madvise),
	HOOK(HPMMAP_CALL_BRK, "brk", hpmmap_sys_brk),
	HOOK(HPMMAP_CALL_MLOCK, "mlock", hpmmap_sys_mlock),
	HOOK(HPMMAP_CALL_MLOCK2, "mlock2", hpmmap_sys_mlock2),
	HOOK(HPMMAP_CALL_MUNLOCK, "munlock", hpmmap_sys_munlock),
	HOOK(HPMMAP_CALL_MUNLOCKALL, "munlockall", hpmmap_sys_munlockall),
	HOOK(HPMMAP_CALL_MBIND, "mbind", hpmmap_sys_mbind),
	HOOK(HPMMAP_CALL_REMAP_FILE_PAGES, "remap_file_pages", hpmmap_sys_remap_file_pages),
	/* clone, clone3, fork, vfork, by way of int 0x80, too. */
	HOOK_INNER(HPMMAP_CALL_CLONE, "kernel_clone", hpmmap_clone, false),
	HOOK_INNER(HPMMAP_CALL_FORK_COPIED, "dup_userfaultfd_complete",
		   hpmmap_fork_copied, true),
	HOOK_INNER(HPMMAP_CALL_USERFAULTFD, "userfaultfd_ioctl", hpmmap_userfaultfd_ioctl, true),
	HOOK_INNER(HPMMAP_CALL_MEMFD_CREATE, "__x64_sys_memfd_create",
		   hpmmap_sys_memfd_create, true),
	HOOK_INNER(HPMMAP_CALL_MEMFD_FCNTL, "memfd_fcntl", hpmmap_memfd_fcntl, true),
	HOOK(HPMMAP_CALL_FTRUNCATE, "ftruncate", hpmmap_sys_ftruncate),
	HOOK(HPMMAP_CALL_FALLOCATE, "fallocate", hpmmap_sys_fallocate),
	HOOK_INNER(HPMMAP_CALL_SHMGET, "__x64_sys_shmget", hpmmap_sys_shmget, true),
	/* What makes the file of a segment, in the middle of shmget(2). */
	HOOK_INNER(HPMMAP_CALL_SHM_FILE, "shmem_kernel_file_setup", hpmmap_shm_file, true),
	HOOK_IA32(0, "sys_brk"),
	HOOK_IA32(1, "compat_sys_ia32_mmap"),
	HOOK_IA32(2, "sys_munmap"),
	HOOK_IA32(3, "sys_mprotect"),
	HOOK_IA32(4, "sys_mlock"),
	HOOK_IA32(5, "sys_munlock"),
	HOOK_IA32(6, "sys_munlockall"),
	HOOK_IA32(7, "sys_mremap"),
	HOOK_IA32(8, "sys_mmap_pgoff"),
	HOOK_IA32(9, "sys_madvise"),
	HOOK_IA32(10, "sys_remap_file_pages"),
	HOOK_IA32(11, "sys_mlock2"),
	HOOK_IA32(12, "sys_pkey_mprotect"),
};

static const struct hpmmap_hooked registered = {
	.is_meant = hpmmap_ctx_exists,
	.forks = hpmmap_is_member,
	.start = hpmmap_probes_register,
	.stop = hpmmap_probes_unregister,
};

static int hooks_init(void)
{
	return hpmmap_hook_init(hooks, &registered);
}

static int sysfs_dir_init(void)
{
	return hpmmap_sysfs_init(root_attrs);
}

static int mark_init(void)
{
	hpmmap_mark_init(hpmmap_chardev_may_open);
	return 0;
}

/*
 * In the order in which they begin, and end the other way round. Some are there
 * from the first use on.
 */
static const struct {
	int (*init)(void);
	void (*exit)(void);
} parts[] = {
	{ compat_init, NULL },
	{ NULL, hpmmap_limits_exit },
	{ hpmmap_wq_init, hpmmap_wq_exit },
	{ hpmmap_linux_page_init, hpmmap_linux_page_exit },
	{ hpmmap_life_init, hpmmap_life_exit },
	{ hpmmap_vmops_init, NULL },
	{ hooks_init, hpmmap_hook_exit },
	{ sysfs_dir_init, hpmmap_sysfs_exit },
	{ hpmmap_show_init, hpmmap_show_exit },
	{ hpmmap_viewers_init, hpmmap_viewers_exit },
	{ NULL, hpmmap_gigabytes_exit },
	{ hpmmap_joins_init, hpmmap_joins_exit },
	{ hpmmap_windows_init, hpmmap_windows_exit },
	{ NULL, hpmmap_jobs_exit },
	{ NULL, hpmmap_pool_exit },
	{ hpmmap_section_init, hpmmap_section_exit },
	{ hpmmap_failure_init, hpmmap_failure_exit },
	{ hpmmap_fs_init, hpmmap_fs_exit },
	{ NULL, hpmmap_pinned_exit },
	{ hpmmap_chardev_init, hpmmap_chardev_exit },
	{ hpmmap_xpmem_init, hpmmap_xpmem_exit },
	{ hpmmap_oom_init, hpmmap_oom_exit },
	{ mark_init, hpmmap_mark_exit },
};

/* The first @nr of them. */
static void parts_exit(size_t nr)
{
	while (nr--)
		if (parts[nr].exit)
			parts[nr].exit();
}

static int __init hpmmap_init(void)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(parts); i++) {
		int ret = parts[i].init ? parts[i].init() : 0;

		if (ret) {
			parts_exit(i);
			return ret;
		}
	}
	return 0;
}

static void __exit hpmmap_exit(void)
{
	parts_exit(ARRAY_SIZE(parts));
}

module_init(hpmmap_init);
module_exit(hpmmap_exit);

MODULE_DESCRIPTION("Memory of offlined blocks, mapped eagerly with large pages, for HPC jobs");
MODULE_AUTHOR("The HPMMAP developers");
MODULE_LICENSE("GPL");
MODULE_VERSION(HPMMAP_VERSION);
