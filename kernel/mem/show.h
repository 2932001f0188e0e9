/* SPDX-License-Identifier: GPL-2.0 */
/* What sysfs shows of the nodes' pools. */
#ifndef _HPMMAP_MEM_SHOW_H
#define _HPMMAP_MEM_SHOW_H

struct kobject;

int hpmmap_node_show(struct kobject *kobj, int nid);

#endif /* _HPMMAP_MEM_SHOW_H */
