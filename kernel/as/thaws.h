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
 * @wait: faults that wait for @nr to change
 */
struct hpmmap_thaws {
	atomic_t nr;
	wait_queue_head_t wait;
};

#define HPMMAP_THAWS_INIT(_name) { .wait = __WAIT_QUEUE_HEAD_INITIALIZER((_name).wait) }

static inline void hpmmap_thaws_init(struct hpmmap_thaws *thaws)
{
	atomic_set(&thaws->nr, 0);
	init_waitqueue_head(&thaws->wait);
}

/* For hpmmap_thaws_wait(), to be asked before it is looked whether something is frozen. */
static inline int hpmmap_thaws_seen(const struct hpmmap_thaws *thaws)
{
	int seen = atomic_read(&thaws->nr);

	smp_rmb();
	return seen;
}

void hpmmap_thaws_tell(struct hpmmap_thaws *thaws);
vm_fault_t hpmmap_thaws_wait(struct hpmmap_thaws *thaws, int seen, atomic_t *nr_impatient,
			     struct vm_fault *vmf);

#endif /* _HPMMAP_AS_THAWS_H */
