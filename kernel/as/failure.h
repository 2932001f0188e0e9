/* SPDX-License-Identifier: GPL-2.0 */
/* Memory errors in the pools, for who uses them. */
#ifndef _HPMMAP_AS_FAILURE_H
#define _HPMMAP_AS_FAILURE_H

#include <linux/types.h>

struct hpmmap_block;

/**
 * struct hpmmap_failure_files - blocks that are the memory of files
 * @tell: a page that was marked is in no page table afterwards, and who has to know does;
 *	false if its block is none of a file
 * @exchange: put another block in the place of one of a file, if nobody refers to it
 */
struct hpmmap_failure_files {
	bool (*tell)(struct hpmmap_block *block, unsigned long pfn, int flags);
	void (*exchange)(struct hpmmap_block *block);
};

void hpmmap_failure_set_files(const struct hpmmap_failure_files *ops);
int hpmmap_failure_init(void);
void hpmmap_failure_exit(void);

#endif /* _HPMMAP_AS_FAILURE_H */
