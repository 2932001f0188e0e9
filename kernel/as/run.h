/* SPDX-License-Identifier: GPL-2.0 */
/* Mapping whole slots. */
#ifndef _HPMMAP_AS_RUN_H
#define _HPMMAP_AS_RUN_H

#include <linux/types.h>

struct hpmmap_block;
struct hpmmap_ctx;
struct list_head;
struct vm_area_struct;

unsigned long hpmmap_store_map_run(struct hpmmap_ctx *ctx,
				   struct vm_area_struct *vma,
				   unsigned long start, unsigned long end,
				   struct list_head *blocks);

#endif /* _HPMMAP_AS_RUN_H */
