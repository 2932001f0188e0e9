/* SPDX-License-Identifier: GPL-2.0 */
/* Which nodes have a pool, and how much is in it. */
#ifndef _HPMMAP_MEM_NODES_H
#define _HPMMAP_MEM_NODES_H

#include <linux/nodemask.h>

/* for_each_node_mask() goes on to the nodes that a kernel could have at most. */
#define hpmmap_for_each_node(nid, mask) \
	for_each_set_bit(nid, nodes_addr(mask), nr_node_ids)

int hpmmap_pool_nearest(int nid, const nodemask_t *nodes, nodemask_t *tried);
void hpmmap_pool_nodes(nodemask_t *nodes);
unsigned long hpmmap_pool_count_free(const nodemask_t *nodes);
unsigned long hpmmap_pool_count_all(const nodemask_t *nodes);
unsigned long hpmmap_pool_count_out(const nodemask_t *nodes);

#endif /* _HPMMAP_MEM_NODES_H */
