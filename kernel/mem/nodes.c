// SPDX-License-Identifier: GPL-2.0
/*
 * Which nodes have a pool, and how much is in it.
 */
#include <linux/nodemask.h>
#include <linux/topology.h>

#include "hpmmap.h"
#include "mem/node.h"
#include "mem/nodes.h"

/* A node's pool exists from its first section until the module goes. */
struct pool_node *pool_nodes[MAX_NUMNODES];
/* Made by hpmmap_ctx_init(). */
struct workqueue_struct *hpmmap_wq;

/**
 * hpmmap_pool_nearest() - the nearest node that has a pool
 * @nid: nearest to this one
 * @nodes: of these
 * @tried: but not one of these; the node is added
 *
 * Return: the node, or NUMA_NO_NODE.
 */
int hpmmap_pool_nearest(int nid, const nodemask_t *nodes, nodemask_t *tried)
{
	int best = NUMA_NO_NODE, n;

	/* Mostly itself. */
	if ((unsigned int)nid < nr_node_ids && node_isset(nid, *nodes) &&
	    !node_isset(nid, *tried) && pool_node_find(nid)) {
		node_set(nid, *tried);
		return nid;
	}
	hpmmap_for_each_node(n, *nodes) {
		if (node_isset(n, *tried) || !pool_node_find(n))
			continue;
		if (best == NUMA_NO_NODE ||
		    node_distance(nid, n) < node_distance(nid, best))
			best = n;
	}
	if (best != NUMA_NO_NODE)
		node_set(best, *tried);
	return best;
}

/* Nodes that have had a pool. */
void hpmmap_pool_nodes(nodemask_t *nodes)
{
	int nid;

	nodes_clear(*nodes);
	for_each_online_node(nid)
		if (pool_node_find(nid))
			node_set(nid, *nodes);
}

/* Blocks on some nodes; a hint without the locks. */
#define COUNT(_name, _field) \
	unsigned long hpmmap_pool_count_##_name(const nodemask_t *nodes) \
	{ \
		unsigned long n = 0; \
		int nid; \
		\
		hpmmap_for_each_node(nid, *nodes) \
			if (pool_node_find(nid)) \
				n += READ_ONCE(pool_node_find(nid)->_field); \
		return n; \
	}

COUNT(all, buddy.nr_total)
COUNT(free, buddy.nr_free)
/* Free ones that are being zeroed. */
COUNT(out, nr_out)
