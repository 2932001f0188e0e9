/* SPDX-License-Identifier: GPL-2.0 */
/* Memory that is placed by who touches it first. */
#ifndef _HPMMAP_AS_TOUCH_H
#define _HPMMAP_AS_TOUCH_H

#include <linux/mm.h>

struct hpmmap_block;
struct hpmmap_ctx;

bool hpmmap_policy_defers(struct hpmmap_ctx *ctx, struct hpmmap_block *block,
			  unsigned long start, unsigned long end);
struct hpmmap_block *hpmmap_policy_touch(struct hpmmap_ctx *ctx,
					 struct vm_area_struct *vma,
					 struct hpmmap_block *block);

#endif /* _HPMMAP_AS_TOUCH_H */
