/* SPDX-License-Identifier: GPL-2.0 */
/* Taking back blocks. */
#ifndef _HPMMAP_AS_STORE_UNMAP_H
#define _HPMMAP_AS_STORE_UNMAP_H

bool hpmmap_store_has_orphans(struct hpmmap_ctx *ctx, unsigned long start,
			      unsigned long end);
unsigned long hpmmap_store_take_back(struct hpmmap_ctx *ctx, unsigned long start,
				     unsigned long end, bool unmapped);
void hpmmap_store_release_all(struct hpmmap_ctx *ctx, unsigned int nr_zero);

#endif /* _HPMMAP_AS_STORE_UNMAP_H */
