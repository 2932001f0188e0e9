/* SPDX-License-Identifier: GPL-2.0 */
/* Signals for memory errors. */
#ifndef _HPMMAP_AS_TELL_H
#define _HPMMAP_AS_TELL_H

#include <linux/types.h>

struct mm_struct;

/* So many of the processes that an error concerns are named. */
#define HPMMAP_NAMED_MOST 16

/**
 * struct hpmmap_tell - the signals of one error
 * @flags: MF_*, set by the caller; the rest is 0 at first
 * @told: how many were sent
 * @forced: the current task has got its own
 */
struct hpmmap_tell {
	int flags;
	unsigned int told;
	bool forced;
};

void hpmmap_tell_add(struct hpmmap_tell *tell, struct mm_struct *mm, unsigned long addr);
void hpmmap_tell_end(const struct hpmmap_tell *tell);

#endif /* _HPMMAP_AS_TELL_H */
