/* SPDX-License-Identifier: GPL-2.0 */
/* Who is told of a memory error. */
#ifndef _HPMMAP_AS_TELL_H
#define _HPMMAP_AS_TELL_H

#include <linux/types.h>

struct mm_struct;

/* So many of those whom an error concerns are named. */
#define HPMMAP_NAMED_MOST 16

struct hpmmap_tell_place;

/**
 * struct hpmmap_tell - who is to be told of one error
 * @flags: MF_*
 * @room: for how many places there is room
 * @nr: how many have been added since the last were told
 * @told: how many processes were told
 * @places: where the page is
 */
struct hpmmap_tell {
	int flags;
	unsigned int room;
	unsigned int nr;
	unsigned int told;
	struct hpmmap_tell_place *places;
};

void hpmmap_tell_begin(struct hpmmap_tell *tell, unsigned long nr, int flags);
void hpmmap_tell_add(struct hpmmap_tell *tell, struct mm_struct *mm,
		     unsigned long addr);
void hpmmap_tell_all(struct hpmmap_tell *tell);
void hpmmap_tell_end(struct hpmmap_tell *tell);

#endif /* _HPMMAP_AS_TELL_H */
