/* SPDX-License-Identifier: GPL-2.0 */
/* A new program before its first instruction. */
#ifndef _HPMMAP_TASK_IMAGE_H
#define _HPMMAP_TASK_IMAGE_H

#include "as/own/job.h"

void hpmmap_image_setup(struct hpmmap_ctx *ctx);
int hpmmap_regions_get(struct hpmmap_job *job, const struct hpmmap_launch *arg);
enum hpmmap_program_kind hpmmap_start_regions(struct hpmmap_ctx *ctx);
void hpmmap_start_static(struct hpmmap_ctx *ctx);
void hpmmap_start_heap(struct hpmmap_ctx *ctx);
void hpmmap_start_stack(struct hpmmap_ctx *ctx);

#endif /* _HPMMAP_TASK_IMAGE_H */
