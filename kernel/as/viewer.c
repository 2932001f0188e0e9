// SPDX-License-Identifier: GPL-2.0
/*
 * Who has windows, as the kernel's notifiers see him.
 *
 * What becomes of memory of Linux that a window shows is told by a notifier, to which
 * somebody may come with a lock of the page's: the i_mmap_rwsem of its file, or that of its
 * anon_vma. There the entries of all who have the window are taken away, under the
 * i_mmap_rwsem of the window's mappings. Who registers a notifier takes all such locks of
 * his address space (mm_take_all_locks()), first those of files, by address: with a window
 * among his mappings he may have the window's and wait for the page's, while the other has
 * the page's and waits for the window's.
 *
 * So an address space with windows takes all locks no more. The notifiers that windows onto
 * it need take them once in its life: that is done before it has a window. Others are
 * refused, which are few: KVM, devices that follow page tables.
 */
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/sched/signal.h>

#include "hook.h"
#include "hpmmap.h"
#include "as/view.h"
#include "as/viewer.h"
#include "as/window.h"

/* Has an address space windows? Its mmap_lock is held for writing. Called by ftrace. */
static bool has_windows(unsigned long arg)
{
	struct mm_struct *mm = (struct mm_struct *)arg;
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, mm, 0);

	if (likely(!atomic_long_read(&hpmmap_window_counts[HPMMAP_WINDOW_ATTACHMENTS])))
		return false;
	for_each_vma(vmi, vma)
		if (hpmmap_vma_is_window(vma))
			return true;
	return false;
}

/* From the first window on, until the module goes. */
static int veto(void)
{
	int ret;

	/* What windows never show needs nothing. */
	if (!compat_has_special_pages())
		return 0;
	ret = hpmmap_veto_begin("mm_take_all_locks", has_windows);
	if (ret && ret != -EINTR)
		pr_warn_ratelimited("windows show no memory of Linux: mm_take_all_locks() cannot be hooked: %d\n",
				    ret);
	return ret == -EINTR ? ret : 0;
}

/* May a window show memory of Linux? */
bool hpmmap_viewers_see_linux(void)
{
	return compat_has_special_pages() && hpmmap_veto_active();
}

/* Nothing concerns it. */
static bool nothing_invalidate(struct mmu_interval_notifier *notifier,
			       const struct mmu_notifier_range *range,
			       unsigned long seq)
{
	return true;
}

static const struct mmu_interval_notifier_ops nothing_ops = {
	.invalidate = nothing_invalidate,
};

/**
 * hpmmap_viewer_begin() - the current process is about to have a window
 *
 * Notifiers can be registered for it without all of its locks from here on.
 *
 * Return: 0; -EBUSY where it has windows that it did not attach itself, but inherited
 * (MADV_DOFORK); -EINTR if it is being killed, -ERESTARTNOINTR where it has a signal to see
 * to first, or -ENOMEM.
 */
int hpmmap_viewer_begin(void)
{
	struct mmu_interval_notifier notifier;
	struct mm_struct *mm = current->mm;
	int ret = veto();

	if (ret || compat_mm_knows_intervals(mm))
		return ret;
	if (mmap_write_lock_killable(mm))
		return -EINTR;
	ret = mmu_interval_notifier_insert_locked(&notifier, mm, 0, PAGE_SIZE,
						  &nothing_ops);
	mmap_write_unlock(mm);
	if (!ret)
		mmu_interval_notifier_remove(&notifier);
	/* Whoever takes all locks stops at any signal. */
	return ret == -EINTR && !fatal_signal_pending(current) ? -ERESTARTNOINTR : ret;
}

/* There are no windows. */
void hpmmap_viewers_exit(void)
{
	hpmmap_veto_end();
}
