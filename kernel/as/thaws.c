// SPDX-License-Identifier: GPL-2.0
/*
 * Who waits until something is not frozen any more.
 */
#include <linux/delay.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>

#include "hpmmap.h"
#include "as/thaws.h"

/*
 * Faults that may not let go of mmap_lock, and wait 1 ms each while somebody wants it
 * for writing; the copier may be behind him.
 */
#define IMPATIENT_MOST 100

/* A debugger who cannot wait has another way to where that is. */
static bool comes_by_access(struct vm_fault *vmf)
{
	return vmf->flags & FAULT_FLAG_REMOTE && vmf->vma->vm_ops->access;
}

/*
 * Who keeps mmap_lock, and needs the page: a futex, which comes again until the page is
 * there, with mmap_lock free in between. Others come again with it held.
 */
static vm_fault_t wait_impatient(atomic_t *nr, struct vm_fault *vmf)
{
	struct mm_struct *mm = vmf->vma->vm_mm;

	if (comes_by_access(vmf) || fatal_signal_pending(current) ||
	    (mmap_lock_is_contended(mm) && atomic_inc_return(nr) > IMPATIENT_MOST))
		return VM_FAULT_SIGBUS;
	usleep_range(1000, 1100);
	return VM_FAULT_NOPAGE;
}

/**
 * hpmmap_thaws_wait() - a fault in what is frozen
 * @thaws: when that ends
 * @seen: hpmmap_thaws_seen() before it was found frozen
 * @nr_impatient: faults that kept mmap_lock from who wanted it, since it was frozen
 * @vmf: the fault
 *
 * Return: VM_FAULT_RETRY, mostly when it is not frozen any more; for who keeps mmap_lock
 * VM_FAULT_SIGBUS, if it is a debugger who then comes by vm_operations->access, and
 * VM_FAULT_NOPAGE after a moment, for others.
 */
vm_fault_t hpmmap_thaws_wait(struct hpmmap_thaws *thaws, int seen, atomic_t *nr_impatient,
			     struct vm_fault *vmf)
{
	if (!(vmf->flags & FAULT_FLAG_ALLOW_RETRY))
		return wait_impatient(nr_impatient, vmf);
	if (vmf->flags & FAULT_FLAG_RETRY_NOWAIT)
		return VM_FAULT_RETRY;
	compat_fault_unlock(vmf);
	/* What is frozen next is another matter. */
	wait_event_killable(thaws->wait, atomic_read(&thaws->nr) != seen);
	return VM_FAULT_RETRY;
}

/* Who has waited touches it again. */
void hpmmap_thaws_tell(struct hpmmap_thaws *thaws)
{
	/* What has ended is seen by who sees the new number. */
	atomic_inc_return(&thaws->nr);
	wake_up_all(&thaws->wait);
}
