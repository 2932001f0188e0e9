// SPDX-License-Identifier: GPL-2.0
/*
 * What /sys/kernel/hpmmap/nodes shows: see the UAPI header.
 */
#include <linux/kobject.h>
#include <linux/sysfs.h>

#include "hpmmap.h"
#include "sysfs.h"
#include "mem/pool.h"
#include "mem/show.h"

#define ATTR_RO(_name) \
	static struct kobj_attribute _name##_attr = __ATTR_RO(_name)

#define NODE_ATTR(_file, _field) \
	static ssize_t _file##_show(struct kobject *kobj, \
				    struct kobj_attribute *attr, char *buf) \
	{ \
		struct hpmmap_node_stat stat; \
		int nid; \
		\
		if (sscanf(kobject_name(kobj), "node%d", &nid) != 1) \
			return -ENODEV; \
		hpmmap_pool_node_stat(nid, &stat); \
		return sysfs_emit(buf, "%llu\n", stat._field); \
	} \
	ATTR_RO(_file)

NODE_ATTR(total_bytes, total);
NODE_ATTR(free_bytes, free);
NODE_ATTR(clean_bytes, clean);
NODE_ATTR(largest_free_bytes, largest);
NODE_ATTR(pinned_bytes, pinned);
NODE_ATTR(bad_bytes, bad);

static struct attribute *node_attrs[] = {
	&total_bytes_attr.attr,
	&free_bytes_attr.attr,
	&clean_bytes_attr.attr,
	&largest_free_bytes_attr.attr,
	&pinned_bytes_attr.attr,
	&bad_bytes_attr.attr,
	NULL,
};
ATTRIBUTE_GROUPS(node);

static const struct kobj_type node_ktype = {
	.release = hpmmap_pool_node_free,
	.sysfs_ops = &kobj_sysfs_ops,
	.default_groups = node_groups,
};

/* A node's pool is there: its directory, whose name says which. */
int hpmmap_node_show(struct kobject *kobj, int nid)
{
	return kobject_init_and_add(kobj, (struct kobj_type *)&node_ktype,
				    hpmmap_sysfs_dir(HPMMAP_DIR_NODES),
				    "node%d", nid);
}
