/* SPDX-License-Identifier: GPL-2.0 */
/* How much of an address space is mapped. */
#ifndef _HPMMAP_AS_MAPPED_H
#define _HPMMAP_AS_MAPPED_H

struct mm_struct;

/**
 * struct hpmmap_mapped - how much of an address space is mapped
 * @bytes_2m: of mappings of ours, by entries of 2 MB
 * @bytes_4k: the same by entries of 4 KB
 * @bytes_linux: of anonymous mappings of Linux, where ours should be
 */
struct hpmmap_mapped {
	unsigned long bytes_2m;
	unsigned long bytes_4k;
	unsigned long bytes_linux;
};

int hpmmap_mapped_count(struct mm_struct *mm, struct hpmmap_mapped *mapped);

#endif /* _HPMMAP_AS_MAPPED_H */
