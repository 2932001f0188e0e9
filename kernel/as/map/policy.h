/* SPDX-License-Identifier: GPL-2.0 */
/* On which node memory lies. */
#ifndef _HPMMAP_AS_MAP_POLICY_H
#define _HPMMAP_AS_MAP_POLICY_H

#include "as/own/ctx.h"

void hpmmap_placement_get(struct hpmmap_job *job, struct vm_area_struct *vma,
			  struct hpmmap_placement *place);
void hpmmap_placement_copy(struct hpmmap_ctx *ctx, struct vm_area_struct *vma,
			   unsigned long slot, const struct hpmmap_block *from,
			   struct hpmmap_placement *place);
bool hpmmap_placement_is_right(const struct hpmmap_placement *place, unsigned long slot, int nid);
bool hpmmap_policy_copy(struct vm_area_struct *vma, struct mempolicy *pol);
int hpmmap_vm_set_policy(struct vm_area_struct *vma, struct mempolicy *fresh);
void hpmmap_policy_set(struct hpmmap_ctx *ctx, unsigned long start,
		       unsigned long len, const struct mempolicy *pol);

#endif /* _HPMMAP_AS_MAP_POLICY_H */
