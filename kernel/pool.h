/* SPDX-License-Identifier: GPL-2.0 */
/* Between pool.c and section.c: all calls are for one section. */
#ifndef _HPMMAP_POOL_H
#define _HPMMAP_POOL_H

#include <linux/mmzone.h>
#include <linux/mutex.h>

#include "hpmmap.h"

#define SECTION_BLOCKS (1UL << (SECTION_SIZE_BITS - SLOT_SHIFT))

/* Protects the sections, and the metadata of the pools coming and going. */
extern struct mutex hpmmap_pool_mutex;

/* Bytes by what they are used for. */
struct pool_use {
	u64 free;
	u64 busy;
	u64 pinned;
	u64 bad;
};

int hpmmap_pool_prepare(int nid, unsigned long unit);
void hpmmap_pool_drop(int nid, unsigned long unit);
void hpmmap_pool_activate(int nid, unsigned long unit);
int hpmmap_pool_deactivate(int nid, unsigned long unit);
struct hpmmap_block *hpmmap_pool_block(int nid, unsigned long pfn);
void hpmmap_pool_use(int nid, unsigned long unit, struct pool_use *use);

#endif /* _HPMMAP_POOL_H */
