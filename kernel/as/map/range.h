/* SPDX-License-Identifier: GPL-2.0 */
/* What is mapped in a range. */
#ifndef _HPMMAP_AS_MAP_RANGE_H
#define _HPMMAP_AS_MAP_RANGE_H

/* Whose mappings are in a range. */
enum hpmmap_range_what {
	HPMMAP_RANGE_LINUX,	/* none, or only Linux's */
	HPMMAP_RANGE_OURS,	/* one of ours, and nothing else */
	HPMMAP_RANGE_MIXED,	/* some of ours, and maybe others */
};

/* What a call works on before hpmmap_mmap_read_yield(). */
#define HPMMAP_AT_ONCE_BYTES (16 * SLOT_SIZE)

/* Others may have mmap_lock, which is held for reading, if they want it. */
static inline void hpmmap_mmap_read_yield(struct mm_struct *mm)
{
	if (!mmap_lock_is_contended(mm))
		return;
	mmap_read_unlock(mm);
	mmap_read_lock(mm);
}

bool hpmmap_mmap_write_lock_soon(struct mm_struct *mm, bool *vain);
enum hpmmap_range_what hpmmap_range_look(struct hpmmap_ctx *ctx, unsigned long start,
					 unsigned long end);
struct vm_area_struct *hpmmap_range_first_ours(struct mm_struct *mm, unsigned long start,
					       unsigned long end);
bool hpmmap_range_has_ours(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end);
bool hpmmap_range_next(struct mm_struct *mm, unsigned long *start, unsigned long *end,
		       bool (*is_it)(const struct vm_area_struct *vma));
bool hpmmap_range_is_watched(unsigned long start, unsigned long end);
void hpmmap_contents_lost(void);
void hpmmap_range_kill_if_lost(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end);
long hpmmap_range_unwatch(unsigned long start, unsigned long end);
bool hpmmap_range_is_taken(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end);
unsigned long hpmmap_range_hole(unsigned long hint, unsigned long len, unsigned long flags,
				unsigned long align, unsigned long phase);
unsigned long hpmmap_range_find_hole(unsigned long hint, unsigned long len,
				     unsigned long flags, unsigned long align,
				     unsigned long phase);
void hpmmap_range_discount(struct hpmmap_ctx *ctx, unsigned long start, unsigned long len);
void hpmmap_range_count_again(struct hpmmap_ctx *ctx);

#endif /* _HPMMAP_AS_MAP_RANGE_H */
