/* SPDX-License-Identifier: GPL-2.0 */
/* Pages with memory errors. */
#ifndef _HPMMAP_MEM_POISON_H
#define _HPMMAP_MEM_POISON_H

#include <linux/jump_label.h>

DECLARE_STATIC_KEY_FALSE(hpmmap_poison_key);

/* Has there been a memory error in a pool? */
static inline bool hpmmap_poison_seen(void)
{
	return static_branch_unlikely(&hpmmap_poison_key);
}

void hpmmap_poison_lock(void);
void hpmmap_poison_unlock(void);
int hpmmap_poison_touch(void);
void hpmmap_poison_untouch(int cookie);
void hpmmap_poison_wait(void);
void hpmmap_poison_begin(void);

#endif /* _HPMMAP_MEM_POISON_H */
