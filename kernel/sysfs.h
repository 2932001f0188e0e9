/* SPDX-License-Identifier: GPL-2.0 */
/* /sys/kernel/hpmmap. */
#ifndef _HPMMAP_SYSFS_H
#define _HPMMAP_SYSFS_H

#include <linux/kobject.h>

struct hpmmap_ctx;

struct kobject *hpmmap_sysfs_jobs(void);
int hpmmap_sysfs_init(void);
void hpmmap_sysfs_exit(void);
int hpmmap_sysfs_node_add(struct kobject *kobj, int nid);
void hpmmap_sysfs_ctx_add(struct hpmmap_ctx *ctx);
void hpmmap_sysfs_ctx_del(struct hpmmap_ctx *ctx);

#endif /* _HPMMAP_SYSFS_H */
