/* SPDX-License-Identifier: GPL-2.0 */
/* The NUMA nodes that have a pool, the amount in each, and the order in which memory is taken. */
#ifndef _HPMMAP_MEM_BLOCK_NODES_H
#define _HPMMAP_MEM_BLOCK_NODES_H

/* for_each_node_mask() with a bound: it stops at the last node that the machine can have. */
#define hpmmap_for_each_node(nid, mask) \
	for_each_set_bit(nid, nodes_addr(mask), nr_node_ids)

int hpmmap_wq_init(void);
void hpmmap_wq_exit(void);
int hpmmap_pool_nearest(int nid, const nodemask_t *nodes, nodemask_t *tried);
unsigned long hpmmap_pool_count_free(const nodemask_t *nodes);
unsigned long hpmmap_pool_count_all(const nodemask_t *nodes);
unsigned long hpmmap_pool_count_out(const nodemask_t *nodes);

/* The nodes that memory comes from, and their order. */
struct hpmmap_placement {
	nodemask_t nodes;	/* nodes that may be used */
	nodemask_t preferred;	/* the nodes among them that are used first */
	int near;		/* within each set, the node nearest to this one comes first */
	bool in_turn;		/* the @preferred nodes take turns, by the number of the slot */
	bool weighted;		/* the turns have weights */
	bool large;		/* whole gigabytes, each of one turn, where that fits */
};

int hpmmap_placement_turn(const struct hpmmap_placement *place,
			  unsigned long slot, unsigned long left,
			  unsigned long *nr);
void hpmmap_placement_prefer(struct hpmmap_placement *place, int nid);
int hpmmap_placement_nearest(const struct hpmmap_placement *place);
void hpmmap_placement_take_turns(struct hpmmap_placement *place);

#endif /* _HPMMAP_MEM_BLOCK_NODES_H */
