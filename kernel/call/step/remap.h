/* SPDX-License-Identifier: GPL-2.0 */
/* A mapping of ours that mremap(2) is about. */
#ifndef _HPMMAP_CALL_STEP_REMAP_H
#define _HPMMAP_CALL_STEP_REMAP_H

#include <linux/mempolicy.h>
#include <linux/mm_types.h>

#include "mem/block/nodes.h"

struct hpmmap_ctx;

/**
 * struct hpmmap_remap - one call
 * @addr: old address
 * @old_len: old length, page aligned
 * @new_len: new length, page aligned
 * @flags: MREMAP_*
 * @new_addr: new address, where it is given
 * @prot: PROT_* of the mapping
 * @map_flags: MAP_* that a new mapping needs to be like it
 * @place: where memory for it comes from
 * @bound: mbind(2) set a policy for it
 * @policy: which
 * @pkey: its protection key
 * @sealed: by mseal(2)
 * @grows: it is a stack, whose memory waits until it is touched
 * @vm_flags: its flags
 * @vm_end: its end
 */
struct hpmmap_remap {
	unsigned long addr;
	unsigned long old_len;
	unsigned long new_len;
	unsigned long flags;
	unsigned long new_addr;
	unsigned long prot;
	unsigned long map_flags;
	struct hpmmap_placement place;
	bool bound;
	struct mempolicy policy;
	int pkey;
	bool sealed;
	bool grows;
	vm_flags_t vm_flags;
	unsigned long vm_end;
};

long hpmmap_remap_copy_advice(struct hpmmap_ctx *ctx, const struct hpmmap_remap *r,
			      unsigned long addr, unsigned long len);
long hpmmap_remap_copy_lock(struct hpmmap_ctx *ctx, const struct hpmmap_remap *r,
			    unsigned long addr, unsigned long len);
long hpmmap_remap_move(struct hpmmap_ctx *ctx, const struct hpmmap_remap *r,
		       unsigned long to);
typedef long (*hpmmap_remap_move_t)(struct hpmmap_ctx *ctx, const struct hpmmap_remap *r,
				    unsigned long to);
long hpmmap_remap_anywhere(struct hpmmap_ctx *ctx, const struct hpmmap_remap *r,
			   hpmmap_remap_move_t move);
bool hpmmap_remap_is_mixed(struct hpmmap_ctx *ctx, const struct hpmmap_remap *r);
long hpmmap_remap_mixed(struct hpmmap_ctx *ctx, const struct hpmmap_remap *r);

#endif /* _HPMMAP_CALL_STEP_REMAP_H */
