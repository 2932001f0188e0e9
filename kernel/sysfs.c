// SPDX-License-Identifier: GPL-2.0
/*
 * /sys/kernel/hpmmap: its directories. What is in them, those show whose it is.
 */
#include "hpmmap.h"
#include "sysfs.h"

static const char * const names[HPMMAP_NR_DIRS] = {
	[HPMMAP_DIR_NODES] = "nodes",
	[HPMMAP_DIR_JOBS] = "jobs",
	[HPMMAP_DIR_WINDOWS] = "windows",
	[HPMMAP_DIR_SHARED] = "shared",
};

static struct kobject *root;
static struct kobject *dirs[HPMMAP_NR_DIRS];

struct kobject *hpmmap_sysfs_dir(enum hpmmap_dir dir)
{
	return dirs[dir];
}

/* Makes the directories. @attrs: files of the first one. Returns 0 or -ENOMEM. */
int hpmmap_sysfs_init(const struct attribute * const *attrs)
{
	int i;

	root = kobject_create_and_add("hpmmap", kernel_kobj);
	if (!root)
		return -ENOMEM;
	for (i = 0; i < HPMMAP_NR_DIRS; i++) {
		dirs[i] = kobject_create_and_add(names[i], root);
		if (!dirs[i])
			goto err;
	}
	if (!sysfs_create_files(root, attrs))
		return 0;
err:
	hpmmap_sysfs_exit();
	return -ENOMEM;
}

void hpmmap_sysfs_exit(void)
{
	int i;

	for (i = HPMMAP_NR_DIRS - 1; i >= 0; i--)
		kobject_put(dirs[i]);
	kobject_put(root);
}
