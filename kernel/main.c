// SPDX-License-Identifier: GPL-2.0
#include <linux/module.h>

#include "hook.h"
#include "hpmmap.h"
#include "sysfs.h"
#include "mem/account.h"
#include "mem/pool.h"
#include "mem/section.h"
#include "as/ctx.h"
#include "as/failure.h"
#include "as/job.h"
#include "as/release.h"
#include "task/mark.h"
#include "task/oom.h"
#include "chardev.h"

static int __init hpmmap_init(void)
{
	int ret;

	ret = compat_init();
	if (ret)
		return ret;
	ret = hpmmap_ctx_init();
	if (ret)
		return ret;
	ret = hpmmap_hook_init();
	if (ret)
		goto err_ctx;
	ret = hpmmap_sysfs_init();
	if (ret)
		goto err_hook;
	ret = hpmmap_section_init();
	if (ret)
		goto err_sysfs;
	hpmmap_failure_init();
	ret = hpmmap_chardev_init();
	if (ret)
		goto err_section;
	hpmmap_oom_init();
	hpmmap_mark_init();
	return 0;

err_section:
	hpmmap_failure_exit();
	hpmmap_section_exit();
err_sysfs:
	hpmmap_sysfs_exit();
err_hook:
	hpmmap_hook_exit();
err_ctx:
	hpmmap_ctx_exit();
	return ret;
}

static void __exit hpmmap_exit(void)
{
	hpmmap_mark_exit();
	hpmmap_oom_exit();
	hpmmap_chardev_exit();
	hpmmap_pinned_exit();
	hpmmap_failure_exit();
	hpmmap_section_exit();
	hpmmap_pool_exit();
	hpmmap_jobs_exit();
	hpmmap_sysfs_exit();
	hpmmap_hook_exit();
	hpmmap_ctx_exit();
	hpmmap_accounts_exit();
}

module_init(hpmmap_init);
module_exit(hpmmap_exit);

MODULE_DESCRIPTION("Memory of offlined blocks, mapped eagerly with large pages, for HPC jobs");
MODULE_AUTHOR("The HPMMAP developers");
MODULE_LICENSE("GPL");
MODULE_VERSION(HPMMAP_VERSION);
