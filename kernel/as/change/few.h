/* SPDX-License-Identifier: GPL-2.0 */
/* Slots that only a few pages are asked for of. */
#ifndef _HPMMAP_AS_CHANGE_FEW_H
#define _HPMMAP_AS_CHANGE_FEW_H

#include "as/own/ctx.h"

bool hpmmap_few_begin(struct hpmmap_ctx *ctx, unsigned long start,
		      unsigned long end);
bool hpmmap_few_begin_tail(struct hpmmap_ctx *ctx, unsigned long start,
			   unsigned long end);
void hpmmap_few_end(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end,
		    bool full);

#endif /* _HPMMAP_AS_CHANGE_FEW_H */
