/* SPDX-License-Identifier: GPL-2.0 */
/* Memory errors in the pools. */
#ifndef _HPMMAP_AS_LIFE_FAILURE_H
#define _HPMMAP_AS_LIFE_FAILURE_H

/*
 * For a block that was marked: if a file has it, it is in no page table afterwards, and
 * processes that have to know do. False if no file has it.
 */
typedef bool hpmmap_failure_file_t(struct hpmmap_block *block, unsigned long pfn, int flags);

void hpmmap_failure_set_files(hpmmap_failure_file_t *fn);
void hpmmap_failure_tell(int flags, unsigned long (*where)(struct mm_struct *mm, void *data),
			 void *data);
int hpmmap_failure_init(void);
void hpmmap_failure_exit(void);

#endif /* _HPMMAP_AS_LIFE_FAILURE_H */
