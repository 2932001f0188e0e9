/* SPDX-License-Identifier: GPL-2.0 */
/* A mapping of ours that mremap(2) is about. */
#ifndef _HPMMAP_CALL_STEP_REMAP_H
#define _HPMMAP_CALL_STEP_REMAP_H

#include "mem/block/nodes.h"

/* A call of mremap(2). */
struct hpmmap_remap {
	unsigned long addr;		/* old address */
	unsigned long old_len;		/* old length, page aligned */
	unsigned long new_len;		/* new length, page aligned */
	unsigned long flags;		/* MREMAP_* */
	unsigned long new_addr;		/* new address, where it is given */
	unsigned long prot;		/* PROT_* of the mapping */
	unsigned long map_flags;	/* MAP_* that a new mapping needs to be like it */
	struct hpmmap_placement place;	/* where memory for it comes from */
	bool bound;			/* mbind(2) set a policy for it */
	struct mempolicy policy;	/* which */
	int pkey;			/* its protection key */
	bool sealed;			/* by mseal(2) */
	bool grows;			/* it is a stack, whose memory waits until it is touched */
	vm_flags_t vm_flags;		/* its flags */
	unsigned long vm_end;		/* its end */
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
