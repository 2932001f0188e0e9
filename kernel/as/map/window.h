/* SPDX-License-Identifier: GPL-2.0 */
/* Windows: mappings of another address space's memory, seen from their target. */
#ifndef _HPMMAP_AS_MAP_WINDOW_H
#define _HPMMAP_AS_MAP_WINDOW_H

#include "as/own/ctx.h"

/* An address space that may have entries for ordinary pages. */
struct hpmmap_viewer {
	struct list_head link;	/* in the window's list; empty as long as there are none */
	struct mm_struct *mm;	/* the address space; mmgrab()bed */
};

/**
 * struct hpmmap_window - an address space that others have mapped parts of
 * @refs: attachments, segments, and the target's context
 * @link: in the hash; protected by its lock
 * @mm: the target; mmgrab()bed. Its address is the identity of the window.
 * @mapping: all attachments' mappings hang on it, by the target's addresses. No page does.
 * @notifier: tells what becomes of the target's memory that is Linux's; inserted with
 *	the first page of it that is mapped
 * @notified: it was inserted; set with the target's mmap_lock held for writing
 * @lock: protects the sequence number of @notifier, and what is mapped under it
 * @viewers: those that may have entries for such pages
 * @viewers_lock: protects @viewers. Taken by notifiers: nothing is allocated under it.
 * @foreign: page numbers of the target's whose pages are Linux's and may be mapped
 * @free: after the last reference
 */
struct hpmmap_window {
	refcount_t refs;
	struct hlist_node link;
	struct mm_struct *mm;
	struct address_space mapping;
	struct mmu_interval_notifier notifier;
	bool notified;
	spinlock_t lock;
	struct list_head viewers;
	struct mutex viewers_lock;
	struct xarray foreign;
	struct work_struct free;
};

/* What is counted of all windows since the module was loaded. */
enum hpmmap_window_count {
	HPMMAP_WINDOW_ATTACHMENTS,	/* attachments that there are */
	HPMMAP_WINDOW_BYTES,		/* their length */
	HPMMAP_WINDOW_FAULTS,		/* faults, each tried again counted as another */
	HPMMAP_WINDOW_RETRIES,		/* of those, tried again since the target's mmap_lock was taken */
	HPMMAP_WINDOW_ENTRIES_2M,	/* entries of 2 MB that were made */
	HPMMAP_WINDOW_ENTRIES_4K,	/* of 4 KB for memory of the pools, or what stands in for it */
	HPMMAP_WINDOW_ENTRIES_LINUX,	/* of 4 KB for ordinary memory */
	HPMMAP_WINDOW_REVOKED,		/* ranges that were taken out of windows */
	HPMMAP_WINDOW_POOLS_ONLY,	/* attachments that show pool memory only */
	HPMMAP_NR_WINDOW_COUNTS
};

extern atomic_long_t hpmmap_window_counts[HPMMAP_NR_WINDOW_COUNTS];

static inline void hpmmap_window_count(enum hpmmap_window_count what, long nr)
{
	atomic_long_add(nr, &hpmmap_window_counts[what]);
}

/* What attachments rest on. */
struct hpmmap_grant {
	/* Attachments, and the object that it is part of. */
	refcount_t refs;
	/* What it rests on itself, or NULL; holds a reference. */
	struct hpmmap_grant *parent;
	/* It is not given any more; set once, by hpmmap_grant_end(). */
	bool revoked;
	void (*free)(struct hpmmap_grant *grant);	/* after the last reference */
};

void hpmmap_grant_put(struct hpmmap_grant *grant);
void hpmmap_grant_end(struct hpmmap_grant *grant);
bool hpmmap_grant_is_revoked(const struct hpmmap_grant *grant);
struct hpmmap_window *hpmmap_window_get(struct mm_struct *mm);
void hpmmap_window_put(struct hpmmap_window *win);
void hpmmap_window_bind(struct hpmmap_window *win, struct hpmmap_ctx *ctx);
int hpmmap_window_watch(struct hpmmap_window *win);
void hpmmap_window_view(struct hpmmap_window *win, struct hpmmap_viewer *viewer);
void hpmmap_window_unview(struct hpmmap_window *win, struct hpmmap_viewer *viewer);
void hpmmap_window_revoke(struct hpmmap_window *win, unsigned long start, unsigned long end);
int hpmmap_windows_init(void);
void hpmmap_windows_exit(void);

/*
 * Blocks of a range change: no window keeps the old ones mapped. ctx->lock is held, or
 * mmap_lock for writing: a fault that maps them anew holds both. Or they cannot be mapped any
 * more.
 */
static inline void hpmmap_window_zap(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end)
{
	struct hpmmap_window *win = READ_ONCE(ctx->window);

	if (unlikely(win))
		hpmmap_window_revoke(win, start, end);
}

#endif /* _HPMMAP_AS_MAP_WINDOW_H */
