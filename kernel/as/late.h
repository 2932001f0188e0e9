/* SPDX-License-Identifier: GPL-2.0 */
/* mmap_lock for writing, where somebody may read the address space for as long as he likes. */
#ifndef _HPMMAP_AS_LATE_H
#define _HPMMAP_AS_LATE_H

#include <linux/types.h>

struct hpmmap_ctx;
struct mm_struct;

bool hpmmap_late_is_needed(struct mm_struct *mm);
bool hpmmap_late_again(struct hpmmap_ctx *ctx, long ret, unsigned int *us);
bool hpmmap_mmap_write_lock_soon(struct mm_struct *mm, bool *vain);
void hpmmap_late_init(struct hpmmap_ctx *ctx);
void hpmmap_late_thaw(struct hpmmap_ctx *ctx);
void hpmmap_late_count(struct hpmmap_ctx *ctx);
void hpmmap_late_own_file(struct hpmmap_ctx *ctx);
void hpmmap_late_undo(struct hpmmap_ctx *ctx);

/* A step of a call, tried again as hpmmap_late_again() says; its value. */
#define hpmmap_late_step(_ctx, _step) ({ \
	unsigned int _us = 0; \
	long _ret; \
 \
	do { \
		_ret = (_step); \
	} while (hpmmap_late_again(_ctx, _ret, &_us)); \
	_ret; \
})

#endif /* _HPMMAP_AS_LATE_H */
