/* SPDX-License-Identifier: GPL-2.0 */
/* The snapshot of a fork. */
#ifndef _HPMMAP_AS_LIFE_SNAPSHOT_H
#define _HPMMAP_AS_LIFE_SNAPSHOT_H

bool hpmmap_is_forking(struct hpmmap_ctx *ctx);
void hpmmap_fork_open(struct vm_area_struct *vma);

#endif /* _HPMMAP_AS_LIFE_SNAPSHOT_H */
