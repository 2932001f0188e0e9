/* SPDX-License-Identifier: GPL-2.0 */
/* Which nodes have a pool, and how much is in it. */
#ifndef _HPMMAP_MEM_NODES_H
#define _HPMMAP_MEM_NODES_H

#include <linux/nodemask.h>

bool hpmmap_pool_has(const nodemask_t *nodes);
int hpmmap_pool_nearest(int nid, const nodemask_t *nodes, nodemask_t *tried);
void hpmmap_pool_nodes(nodemask_t *nodes);
unsigned long hpmmap_pool_count_free(const nodemask_t *nodes);
unsigned long hpmmap_pool_count_all(void);

#endif /* _HPMMAP_MEM_NODES_H */
