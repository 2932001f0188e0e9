/* SPDX-License-Identifier: GPL-2.0 */
/* Asking the pools for an address space. */
#ifndef _HPMMAP_AS_OWN_RESERVE_H
#define _HPMMAP_AS_OWN_RESERVE_H

struct hpmmap_account *hpmmap_charged(struct hpmmap_ctx *ctx);
bool hpmmap_could_reserve(struct hpmmap_ctx *ctx, const struct hpmmap_placement *place);
int hpmmap_reserve(struct hpmmap_ctx *ctx, const struct hpmmap_placement *place,
		   unsigned long slot, unsigned long nr, bool whole, struct list_head *out);

#endif /* _HPMMAP_AS_OWN_RESERVE_H */
