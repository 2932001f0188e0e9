/* SPDX-License-Identifier: GPL-2.0 */
/* Calls in the static region. */
#ifndef _HPMMAP_CALL_STEP_EXTENT_H
#define _HPMMAP_CALL_STEP_EXTENT_H

struct hpmmap_remap;

/* The call goes its ordinary way: none of its range is the region's. No call returns it. */
#define HPMMAP_NO_ANSWER (-ENOLINK)

long hpmmap_extent_leave(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end);
long hpmmap_extent_mmap(struct hpmmap_ctx *ctx, const struct pt_regs *regs);
long hpmmap_extent_munmap(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end);
long hpmmap_extent_madvise(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end, int advice);
long hpmmap_extent_mremap(struct hpmmap_ctx *ctx, const struct hpmmap_remap *r);
long hpmmap_extent_brk(struct hpmmap_ctx *ctx, unsigned long old_end, unsigned long end);
void hpmmap_extents_copy(struct hpmmap_ctx *to, struct hpmmap_ctx *from);

#endif /* _HPMMAP_CALL_STEP_EXTENT_H */
