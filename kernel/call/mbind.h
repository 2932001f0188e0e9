/* SPDX-License-Identifier: GPL-2.0 */
/* On which node memory lies, and moving it. */
#ifndef _HPMMAP_CALL_MBIND_H
#define _HPMMAP_CALL_MBIND_H

#include <linux/nodemask.h>

struct hpmmap_ctx;

bool hpmmap_nodes_read(unsigned long max, unsigned long from,
		       nodemask_t *nodes);

#endif /* _HPMMAP_CALL_MBIND_H */
