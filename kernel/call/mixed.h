/* SPDX-License-Identifier: GPL-2.0 */
/* Mappings that are the pools' in part and Linux's in part. */
#ifndef _HPMMAP_CALL_MIXED_H
#define _HPMMAP_CALL_MIXED_H

#include <linux/types.h>

struct hpmmap_ctx;
struct hpmmap_remap;

bool hpmmap_remap_is_mixed(struct hpmmap_ctx *ctx, const struct hpmmap_remap *r);
long hpmmap_remap_mixed(struct hpmmap_ctx *ctx, const struct hpmmap_remap *r);

#endif /* _HPMMAP_CALL_MIXED_H */
