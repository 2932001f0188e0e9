/* SPDX-License-Identifier: GPL-2.0 */
/* Sections: offline memory that the pools take over. */
#ifndef _HPMMAP_MEM_POOL_SECTION_H
#define _HPMMAP_MEM_POOL_SECTION_H

int hpmmap_section_init(void);
void hpmmap_section_exit(void);
int hpmmap_pool_add(u64 start, u64 length, int *node, u32 flags);
int hpmmap_pool_remove(u64 start, u64 length, u64 *busy, u64 *pinned, u64 *bad);
int hpmmap_pool_list(void __user *ranges, u32 size, u32 *nr);
u64 hpmmap_section_bytes(void);
bool hpmmap_section_is_known(unsigned long pfn);
struct hpmmap_block *hpmmap_section_block(unsigned long pfn);
int hpmmap_section_mend(unsigned long pfn);

#endif /* _HPMMAP_MEM_POOL_SECTION_H */
