/* SPDX-License-Identifier: GPL-2.0 */
/* What is mapped in a range. */
#ifndef _HPMMAP_AS_RANGE_H
#define _HPMMAP_AS_RANGE_H

#include <linux/types.h>

struct hpmmap_ctx;
struct mm_struct;

bool hpmmap_mm_has_ours(struct mm_struct *mm, unsigned long start,
			unsigned long end);
bool hpmmap_range_has_ours(struct hpmmap_ctx *ctx, unsigned long start,
			   unsigned long end);
bool hpmmap_range_is_watched(unsigned long start, unsigned long end);
bool hpmmap_range_is_mapped(struct hpmmap_ctx *ctx, unsigned long start,
			    unsigned long end);
void hpmmap_range_kill_if_lost(struct hpmmap_ctx *ctx, unsigned long start,
			       unsigned long end);
long hpmmap_range_unwatch(unsigned long start, unsigned long end);
bool hpmmap_range_is_taken(struct hpmmap_ctx *ctx, unsigned long start,
			   unsigned long end);

#endif /* _HPMMAP_AS_RANGE_H */
