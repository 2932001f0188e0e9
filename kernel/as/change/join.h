/* SPDX-License-Identifier: GPL-2.0 */
/* Entries of 1 GB that were split. */
#ifndef _HPMMAP_AS_CHANGE_JOIN_H
#define _HPMMAP_AS_CHANGE_JOIN_H

int hpmmap_joins_init(void);
void hpmmap_joins_exit(void);
void hpmmap_join_init(struct hpmmap_ctx *ctx);
void hpmmap_join_range(struct mm_struct *mm, unsigned long start, unsigned long end, bool all);
void hpmmap_join_cancel(struct hpmmap_ctx *ctx);
bool hpmmap_join_now(struct hpmmap_ctx *ctx, unsigned long addr, bool *vain);

#endif /* _HPMMAP_AS_CHANGE_JOIN_H */
