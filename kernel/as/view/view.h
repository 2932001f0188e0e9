/* SPDX-License-Identifier: GPL-2.0 */
/* Faults in windows. */
#ifndef _HPMMAP_AS_VIEW_VIEW_H
#define _HPMMAP_AS_VIEW_VIEW_H

#include "as/map/window.h"

/**
 * struct hpmmap_attachment - a mapping of a part of a window
 * @win: the window; holds a reference
 * @grant: what it rests on; holds a reference
 * @start: first address of the target's
 * @len: length
 * @readonly: no writes by it
 * @sees_linux: pages of Linux may be in it, see attach.c
 * @viewer: the address space that has it
 * @failed: where a thread, of such a start, has waited for a page of Linux in vain.
 *	Protected by the window's lock.
 *
 * The rest is immutable. It ends with its file, which the mappings keep, when they are gone
 * and no TLB has anything of them.
 */
struct hpmmap_attachment {
	struct hpmmap_window *win;
	struct hpmmap_grant *grant;
	unsigned long start;
	unsigned long len;
	bool readonly;
	bool sees_linux;
	struct hpmmap_viewer viewer;
	struct {
		const struct task_struct *task;
		u64 since;
		unsigned long va;
		vm_fault_t why;
	} failed;
};

extern const struct vm_operations_struct hpmmap_window_vm_ops;

static inline struct hpmmap_attachment *
hpmmap_attachment_of(const struct vm_area_struct *vma)
{
	return vma->vm_file->private_data;
}

bool hpmmap_vma_is_window(const struct vm_area_struct *vma);

#endif /* _HPMMAP_AS_VIEW_VIEW_H */
