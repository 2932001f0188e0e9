// SPDX-License-Identifier: GPL-2.0
/*
 * What /sys/kernel/hpmmap/nodes shows: see docs/sysfs.md.
 */
#include <linux/slab.h>

#include "hpmmap.h"
#include "sysfs.h"
#include "mem/buddy.h"
#include "mem/node.h"
#include "mem/show.h"

/* @_blocks of the pool @pn; @_all: of those that CPUs have at hand, too. */
#define NODE_ATTR(_file, _all, _blocks) \
	static ssize_t _file##_show(struct kobject *kobj, \
				    struct kobj_attribute *attr, char *buf) \
	{ \
		struct pool_node *pn = container_of(kobj, struct pool_node, kobj); \
		u64 nr; \
		\
		if (_all) \
			hpmmap_pool_gather(); \
		spin_lock(&pn->lock); \
		nr = _blocks; \
		spin_unlock(&pn->lock); \
		return sysfs_emit(buf, "%llu\n", nr << SLOT_SHIFT); \
	} \
	static struct kobj_attribute _file##_attr = __ATTR_RO(_file)

NODE_ATTR(total_bytes, false, pn->buddy.nr_total);
NODE_ATTR(free_bytes, true, pn->buddy.nr_free + pn->nr_out);
NODE_ATTR(clean_bytes, true, pn->clean.nr_free);
/* Where nothing is free the order is -1. */
NODE_ATTR(largest_free_bytes, true, 1ULL << (hpmmap_buddy_largest(&pn->buddy) + 1) >> 1);
NODE_ATTR(pinned_bytes, false, pn->nr_pinned);
NODE_ATTR(bad_bytes, false, pn->nr_bad);

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

/* The last reference to a node's kobject is gone. */
static void node_free(struct kobject *kobj)
{
	kfree(container_of(kobj, struct pool_node, kobj));
}

static const struct kobj_type node_ktype = {
	.release = node_free,
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
