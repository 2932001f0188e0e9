/* SPDX-License-Identifier: GPL-2.0 */
/* mmap_lock for writing, where somebody may read the address space for as long as he likes. */
#ifndef _HPMMAP_AS_LATE_H
#define _HPMMAP_AS_LATE_H

#include <linux/types.h>

struct hpmmap_ctx;
struct mm_struct;

bool hpmmap_mmap_write_lock_soon(struct mm_struct *mm, bool *vain);
void hpmmap_late_init(struct hpmmap_ctx *ctx);
void hpmmap_late_thaw(struct hpmmap_ctx *ctx);
void hpmmap_late_count(struct hpmmap_ctx *ctx);
void hpmmap_late_own_file(struct hpmmap_ctx *ctx);
void hpmmap_late_undo(struct hpmmap_ctx *ctx);

#endif /* _HPMMAP_AS_LATE_H */
