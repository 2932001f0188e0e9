/* SPDX-License-Identifier: GPL-2.0 */
/* A new program before its first instruction. */
#ifndef _HPMMAP_TASK_IMAGE_H
#define _HPMMAP_TASK_IMAGE_H

#include <linux/types.h>

struct hpmmap_ctx;

void hpmmap_image_setup(struct hpmmap_ctx *ctx);
void hpmmap_start_heap(struct hpmmap_ctx *ctx);
void hpmmap_start_stack(struct hpmmap_ctx *ctx);

#endif /* _HPMMAP_TASK_IMAGE_H */
