// SPDX-License-Identifier: GPL-2.0
/*
 * What /sys/kernel/hpmmap/nodes shows: see the UAPI header.
 */
#include <linux/kobject.h>
#include <linux/slab.h>
#include <linux/sysfs.h>

#include "hpmmap.h"
#include "sysfs.h"
#include "mem/buddy.h"
#include "mem/node.h"
#include "mem/show.h"

struct node_stat {
	u64 total;
	u64 free;
	u64 clean;
	u64 largest;
	u64 pinned;
	u64 bad;
};

static void stat_get(int nid, struct node_stat *stat)
{
	struct pool_node *pn = pool_node_find(nid);
	int largest;

	*stat = (struct node_stat) {};
	/* Its files are there a moment earlier. */
	if (!pn)
		return;
	spin_lock(&pn->lock);
	stat->total = (u64)pn->buddy.nr_total << SLOT_SHIFT;
	stat->free = (u64)(pn->buddy.nr_free + pn->nr_out) << SLOT_SHIFT;
	stat->clean = (u64)pn->clean.nr_free << SLOT_SHIFT;
	stat->pinned = (u64)pn->nr_pinned << SLOT_SHIFT;
	stat->bad = (u64)pn->nr_bad << SLOT_SHIFT;
	largest = hpmmap_buddy_largest(&pn->buddy);
	spin_unlock(&pn->lock);
	stat->largest = largest < 0 ? 0 : (u64)SLOT_SIZE << largest;
}

#define ATTR_RO(_name) \
	static struct kobj_attribute _name##_attr = __ATTR_RO(_name)

#define NODE_ATTR(_file, _field) \
	static ssize_t _file##_show(struct kobject *kobj, \
				    struct kobj_attribute *attr, char *buf) \
	{ \
		struct node_stat stat; \
		int nid; \
		\
		if (sscanf(kobject_name(kobj), "node%d", &nid) != 1) \
			return -ENODEV; \
		stat_get(nid, &stat); \
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
