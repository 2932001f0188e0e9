/* SPDX-License-Identifier: GPL-2.0 */
/* Who waits until something is not frozen any more. */
#ifndef _HPMMAP_AS_THAWS_H
#define _HPMMAP_AS_THAWS_H

#include <linux/atomic.h>
#include <linux/mm.h>
#include <linux/wait.h>

/**
 * struct hpmmap_thaws - what can be frozen, again and again
 * @nr: how often that has ended
 * @nr_impatient: faults that kept mmap_lock from who wanted it, since it was frozen last
 * @wait: faults that wait for @nr to change
 */
struct hpmmap_thaws {
	atomic_t nr;
	atomic_t nr_impatient;
	wait_queue_head_t wait;
};

#define HPMMAP_THAWS_INIT(_name) { .wait = __WAIT_QUEUE_HEAD_INITIALIZER((_name).wait) }

static inline void hpmmap_thaws_init(struct hpmmap_thaws *thaws)
{
	atomic_set(&thaws->nr, 0);
	atomic_set(&thaws->nr_impatient, 0);
	init_waitqueue_head(&thaws->wait);
}

void hpmmap_thaws_tell(struct hpmmap_thaws *thaws);
vm_fault_t hpmmap_thaws_wait(struct hpmmap_thaws *thaws, int seen, struct vm_fault *vmf);

#endif /* _HPMMAP_AS_THAWS_H */
