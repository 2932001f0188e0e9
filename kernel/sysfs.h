/* SPDX-License-Identifier: GPL-2.0 */
/* /sys/kernel/hpmmap. */
#ifndef _HPMMAP_SYSFS_H
#define _HPMMAP_SYSFS_H

/* A file of one line that every user may read. */
#define HPMMAP_ATTR(_file, _format, _value) \
	static ssize_t _file##_show(struct kobject *kobj, \
				    struct kobj_attribute *attr, char *buf) \
	{ \
		return sysfs_emit(buf, _format "\n", _value); \
	} \
	static struct kobj_attribute _file##_attr = __ATTR_RO(_file)

enum hpmmap_dir {
	HPMMAP_DIR_NODES,
	HPMMAP_DIR_JOBS,
	HPMMAP_DIR_WINDOWS,
	HPMMAP_DIR_SHARED,
	HPMMAP_NR_DIRS
};

struct kobject *hpmmap_sysfs_dir(enum hpmmap_dir dir);
int hpmmap_sysfs_init(const struct attribute * const *attrs);
void hpmmap_sysfs_exit(void);

#endif /* _HPMMAP_SYSFS_H */
