/* SPDX-License-Identifier: GPL-2.0 */
/* On which node memory lies, and moving it. */
#ifndef _HPMMAP_CALL_MBIND_H
#define _HPMMAP_CALL_MBIND_H

#include <linux/nodemask.h>

struct hpmmap_ctx;

bool hpmmap_policy_place(struct hpmmap_ctx *ctx, unsigned long start,
			 unsigned long end);

bool hpmmap_policy_move(struct hpmmap_ctx *ctx, unsigned long addr, int nid,
			bool all);
int hpmmap_slot_node(struct hpmmap_ctx *ctx, unsigned long slot, bool *shared);
int hpmmap_page_node(struct hpmmap_ctx *ctx, unsigned long addr, bool *shared);
bool hpmmap_nodes_read(unsigned long max, unsigned long from,
		       nodemask_t *nodes);

#endif /* _HPMMAP_CALL_MBIND_H */
