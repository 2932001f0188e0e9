// SPDX-License-Identifier: GPL-2.0
/*
 * Windows, seen from their target: one object for each address space that others have mapped
 * parts of. All these mappings hang on its address_space, by the addresses of the target, so a
 * range is taken away from all of them by one call, which never meets the target's own entries.
 * attach.c and view.c make them.
 *
 * What an entry of a window shows is right as long as it is there: it is made with the target's
 * mmap_lock, and for memory of ours with ctx->lock. A change of what is behind an address holds
 * the first for writing, or the second, and takes the entry away first. For ordinary memory a
 * notifier tells that.
 *
 * Behind it all stands that each entry has a reference to its block, so that a block that is
 * given up returns to its pool only when the entry has gone.
 */
#include <linux/hashtable.h>

#include "hpmmap.h"
#include "sysfs.h"
#include "as/own/ctx.h"
#include "as/map/file.h"
#include "as/map/gigabyte.h"
#include "as/map/range.h"
#include "as/map/window.h"

static DEFINE_HASHTABLE(windows, 8);
static DEFINE_MUTEX(windows_lock);

atomic_long_t hpmmap_window_counts[HPMMAP_NR_WINDOW_COUNTS];

/* Waits for notifiers that are under way. */
static void free_work_fn(struct work_struct *work)
{
	struct hpmmap_window *win = container_of(work, struct hpmmap_window, free);

	if (win->notified)
		mmu_interval_notifier_remove(&win->notifier);
	xa_destroy(&win->foreign);
	mmdrop(win->mm);
	kfree(win);
	hpmmap_file_window_end();
}

static struct hpmmap_window *window_find(struct mm_struct *mm)
{
	struct hpmmap_window *win;

	lockdep_assert_held(&windows_lock);
	hash_for_each_possible(windows, win, link, (unsigned long)mm)
		if (win->mm == mm)
			return win;
	return NULL;
}

static struct hpmmap_window *window_alloc(struct mm_struct *mm)
{
	struct hpmmap_window *win = kzalloc(sizeof(*win), GFP_KERNEL_ACCOUNT);
	int ret;

	if (!win)
		return ERR_PTR(-ENOMEM);
	ret = hpmmap_file_window_mapping(&win->mapping);
	if (ret) {
		kfree(win);
		return ERR_PTR(ret);
	}
	refcount_set(&win->refs, 1);
	mmgrab(mm);
	win->mm = mm;
	spin_lock_init(&win->lock);
	INIT_LIST_HEAD(&win->viewers);
	mutex_init(&win->viewers_lock);
	xa_init_flags(&win->foreign, XA_FLAGS_ACCOUNT);
	INIT_WORK(&win->free, free_work_fn);
	return win;
}

/*
 * The window of an address space that the caller uses, with a reference for
 * hpmmap_window_put(), or an ERR_PTR.
 */
struct hpmmap_window *hpmmap_window_get(struct mm_struct *mm)
{
	struct hpmmap_window *win, *fresh = NULL;

	for (;;) {
		mutex_lock(&windows_lock);
		win = window_find(mm);
		if (win) {
			refcount_inc(&win->refs);
		} else if (fresh) {
			hash_add(windows, &fresh->link, (unsigned long)mm);
			swap(win, fresh);
		}
		mutex_unlock(&windows_lock);
		if (win)
			break;
		fresh = window_alloc(mm);
		if (IS_ERR(fresh))
			return fresh;
	}
	if (fresh)
		free_work_fn(&fresh->free);
	return win;
}

void hpmmap_window_put(struct hpmmap_window *win)
{
	if (!refcount_dec_and_mutex_lock(&win->refs, &windows_lock))
		return;
	hash_del(&win->link);
	mutex_unlock(&windows_lock);
	queue_work(hpmmap_wq, &win->free);
}

/*
 * Changes of a context's memory concern a window from here on. ctx->lock and its mmap_lock
 * are held, and nothing of it is in the window yet. The context has a reference until it is
 * freed itself: an address space may get a context later than a window.
 */
void hpmmap_window_bind(struct hpmmap_window *win, struct hpmmap_ctx *ctx)
{
	lockdep_assert_held(&ctx->lock);
	if (likely(READ_ONCE(ctx->window) == win))
		return;
	refcount_inc(&win->refs);
	if (cmpxchg(&ctx->window, NULL, win))
		hpmmap_window_put(win);
}

/*
 * Takes a range of the target's addresses out of a window. May sleep, but waits for no
 * process.
 */
void hpmmap_window_revoke(struct hpmmap_window *win, unsigned long start, unsigned long end)
{
	hpmmap_window_count(HPMMAP_WINDOW_REVOKED, 1);
	hpmmap_gigabyte_unmap(&win->mapping, start, end - start, 1);
}

/* @viewer is about to have entries for ordinary pages, until hpmmap_window_unview(). */
void hpmmap_window_view(struct hpmmap_window *win, struct hpmmap_viewer *viewer)
{
	if (likely(!list_empty_careful(&viewer->link)))
		return;
	mutex_lock(&win->viewers_lock);
	if (list_empty(&viewer->link))
		list_add(&viewer->link, &win->viewers);
	mutex_unlock(&win->viewers_lock);
}

/* Its mappings are gone, and no TLB has anything of them. */
void hpmmap_window_unview(struct hpmmap_window *win, struct hpmmap_viewer *viewer)
{
	mutex_lock(&win->viewers_lock);
	list_del_init(&viewer->link);
	mutex_unlock(&win->viewers_lock);
}

/*
 * An unmapping of a window takes its entries away, then the mapping out of i_mmap, and flushes
 * the TLBs at last. In between a revocation does not find it, and an entry for an ordinary page
 * has no reference that would keep the page.
 */
static void flush_viewers(struct hpmmap_window *win)
{
	struct hpmmap_viewer *viewer;

	mutex_lock(&win->viewers_lock);
	list_for_each_entry(viewer, &win->viewers, link)
		compat_flush_tlb_mm(viewer->mm);
	mutex_unlock(&win->viewers_lock);
}

/*
 * Something becomes of the target's memory. That of ours is not told here. Pages are
 * looked at one by one: a window of the target's own is never among them, so windows
 * onto each other do not meet here.
 */
static bool notifier_invalidate(struct mmu_interval_notifier *notifier,
				const struct mmu_notifier_range *range,
				unsigned long seq)
{
	struct hpmmap_window *win = container_of(notifier, struct hpmmap_window, notifier);
	unsigned long first = range->start >> PAGE_SHIFT;
	unsigned long last = (range->end - 1) >> PAGE_SHIFT, found = first;
	void *entry;

	spin_lock(&win->lock);
	mmu_interval_set_seq(notifier, seq);
	spin_unlock(&win->lock);
	/* A fault from here on finds the number changed; an entry made before is found. */
	if (!xa_find(&win->foreign, &found, last, XA_PRESENT))
		return true;
	if (!mmu_notifier_range_blockable(range))
		return false;
	/* Tells the notifiers of viewers; to lockdep these are those of the target. */
	lockdep_off();
	hpmmap_window_revoke(win, range->start, range->end);
	lockdep_on();
	flush_viewers(win);
	xa_for_each_range(&win->foreign, found, entry, first, last) {
		xa_erase(&win->foreign, found);
		cond_resched();
	}
	return true;
}

static const struct mmu_interval_notifier_ops notifier_ops = {
	.invalidate = notifier_invalidate,
};

/* A request to be told what becomes of a target's memory. */
struct watch {
	/*
	 * A task that takes all locks of an address space stops at any signal, and one that faults
	 * in the kernel cannot handle it; to a worker they mean nothing.
	 */
	struct work_struct work;
	struct hpmmap_window *win;
	int ret;
};

/* The task that asks holds the target's mmap_lock meanwhile. */
static void watch_work_fn(struct work_struct *work)
{
	struct watch *watch = container_of(work, struct watch, work);
	struct hpmmap_window *win = watch->win;

	/* Of mmap_lock lockdep knows only that another task holds it. */
	lockdep_off();
	watch->ret = mmu_interval_notifier_insert_locked(&win->notifier, win->mm, 0,
							 TASK_SIZE_MAX, &notifier_ops);
	lockdep_on();
	if (!watch->ret)
		smp_store_release(&win->notified, true);
}

/*
 * The window is told from here on what becomes of the target's ordinary memory. That makes
 * forks of the target cost more, so it is left until there is such a page. The caller uses
 * the target's address space, and holds no mmap_lock. A target may keep its mmap_lock for
 * ever: the caller waits for it, not a worker that others need, too.
 *
 * Returns 0, -EINTR if the caller is being killed, -EBUSY where the target has windows that
 * it has inherited, or another errno.
 */
int hpmmap_window_watch(struct hpmmap_window *win)
{
	struct watch watch = { .win = win };
	bool vain = false;

	if (smp_load_acquire(&win->notified))
		return 0;
	/* A queued writer would be in the way of the target's own threads, and of its end. */
	while (!hpmmap_mmap_write_lock_soon(win->mm, &vain)) {
		if (fatal_signal_pending(current))
			return -EINTR;
		vain = false;
	}
	if (!win->notified) {
		INIT_WORK_ONSTACK(&watch.work, watch_work_fn);
		queue_work(hpmmap_wq, &watch.work);
		flush_work(&watch.work);
		destroy_work_on_stack(&watch.work);
	}
	mmap_write_unlock(win->mm);
	return watch.ret;
}

void hpmmap_grant_put(struct hpmmap_grant *grant)
{
	while (grant && refcount_dec_and_test(&grant->refs)) {
		struct hpmmap_grant *parent = grant->parent;

		grant->free(grant);
		grant = parent;
	}
}

/*
 * Attachments that rest on a grant, or on one that rests on it, are not to show anything
 * any more. A touch of them is answered by SIGBUS once the caller has taken away what is
 * mapped: by hpmmap_window_revoke(), after which others are mapped again by a fault, or by
 * unmapping them.
 */
void hpmmap_grant_end(struct hpmmap_grant *grant)
{
	WRITE_ONCE(grant->revoked, true);
	/* Pairs with that of recheck(): a fault now sees it, or its entry is found. */
	smp_mb();
}

/* Is nothing that rests on a grant to show anything? */
bool hpmmap_grant_is_revoked(const struct hpmmap_grant *grant)
{
	for (; grant; grant = grant->parent)
		if (READ_ONCE(grant->revoked))
			return true;
	return false;
}

#define WINDOW_ATTR(_file, _what) \
	HPMMAP_ATTR(_file, "%ld", atomic_long_read(&hpmmap_window_counts[_what]))

WINDOW_ATTR(attachments, HPMMAP_WINDOW_ATTACHMENTS);
WINDOW_ATTR(attached_bytes, HPMMAP_WINDOW_BYTES);
WINDOW_ATTR(faults, HPMMAP_WINDOW_FAULTS);
WINDOW_ATTR(retries, HPMMAP_WINDOW_RETRIES);
WINDOW_ATTR(entries_2m, HPMMAP_WINDOW_ENTRIES_2M);
WINDOW_ATTR(entries_4k, HPMMAP_WINDOW_ENTRIES_4K);
WINDOW_ATTR(entries_linux, HPMMAP_WINDOW_ENTRIES_LINUX);
WINDOW_ATTR(revoked, HPMMAP_WINDOW_REVOKED);
WINDOW_ATTR(pools_only, HPMMAP_WINDOW_POOLS_ONLY);

static const struct attribute *window_attrs[] = {
	&attachments_attr.attr,
	&attached_bytes_attr.attr,
	&faults_attr.attr,
	&retries_attr.attr,
	&entries_2m_attr.attr,
	&entries_4k_attr.attr,
	&entries_linux_attr.attr,
	&revoked_attr.attr,
	&pools_only_attr.attr,
	NULL,
};

int hpmmap_windows_init(void)
{
	return sysfs_create_files(hpmmap_sysfs_dir(HPMMAP_DIR_WINDOWS), window_attrs);
}

/* Windows keep the module loaded, so there are none left. */
void hpmmap_windows_exit(void)
{
	sysfs_remove_files(hpmmap_sysfs_dir(HPMMAP_DIR_WINDOWS), window_attrs);
}
