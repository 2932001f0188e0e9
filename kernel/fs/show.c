// SPDX-License-Identifier: GPL-2.0
/*
 * What /sys/kernel/hpmmap/shared shows: see the UAPI header.
 */
#include <linux/kobject.h>
#include <linux/sysfs.h>

#include "hpmmap.h"
#include "sysfs.h"
#include "fs/show.h"
#include "fs/space.h"

#define SHARED_ATTR(_file, _what, _shift) \
	static ssize_t _file##_show(struct kobject *kobj, \
				    struct kobj_attribute *attr, char *buf) \
	{ \
		u64 nr = atomic_long_read(&hpmmap_fs_counts[_what]); \
		\
		return sysfs_emit(buf, "%llu\n", nr << (_shift)); \
	} \
	static struct kobj_attribute _file##_attr = __ATTR_RO(_file)

SHARED_ATTR(mounts, HPMMAP_FS_MOUNTS, 0);
SHARED_ATTR(files, HPMMAP_FS_FILES, 0);
SHARED_ATTR(held_bytes, HPMMAP_FS_BLOCKS, SLOT_SHIFT);
SHARED_ATTR(pinned_bytes, HPMMAP_FS_PINNED, SLOT_SHIFT);

static const struct attribute *shared_attrs[] = {
	&mounts_attr.attr,
	&files_attr.attr,
	&held_bytes_attr.attr,
	&pinned_bytes_attr.attr,
	NULL,
};

int hpmmap_fs_show_init(void)
{
	return sysfs_create_files(hpmmap_sysfs_dir(HPMMAP_DIR_SHARED), shared_attrs);
}

void hpmmap_fs_show_exit(void)
{
	sysfs_remove_files(hpmmap_sysfs_dir(HPMMAP_DIR_SHARED), shared_attrs);
}
