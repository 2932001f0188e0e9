/* SPDX-License-Identifier: GPL-2.0 */
/* Exchanging blocks. */
#ifndef _HPMMAP_AS_EXCHANGE_H
#define _HPMMAP_AS_EXCHANGE_H

#include <linux/types.h>

struct hpmmap_block;
struct hpmmap_ctx;

bool hpmmap_store_replace(struct hpmmap_ctx *ctx, unsigned long slot,
			  struct hpmmap_block *fresh, bool *wait);
int hpmmap_store_exchange(struct hpmmap_ctx *ctx, unsigned long slot,
			  struct hpmmap_block *old);
bool hpmmap_store_heal(struct hpmmap_ctx *ctx, unsigned long start,
		       unsigned long end, bool *vain);

#endif /* _HPMMAP_AS_EXCHANGE_H */
