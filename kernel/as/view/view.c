// SPDX-License-Identifier: GPL-2.0
/*
 * Faults in windows: in mappings of another address space's memory.
 *
 * A mapping has nothing of its own. A fault takes the target's mmap_lock for a moment, and maps
 * what the target has there: a whole slot by one entry of 2 MB, and with it those beside it, up
 * to a gigabyte, or as many entries of 4 KB as the slot has room for. The target need not notice,
 * and what it maps later is there as well, without a call. What it has not yet touched of a
 * reservation it gets, and is charged for, as if it had touched it. An entry has all that the
 * core gives its own (reference, reverse map, counters), so it can be pinned as any.
 *
 * Of ordinary memory the entries are special ones without a reference, a page each, which cannot
 * be pinned. The target's notifier takes them away.
 *
 * What the module writes here it writes under ctx->lock of the target, or under the window's
 * lock. The core must not do so after .fault has returned: the block could have been exchanged by
 * then.
 */
#include "hpmmap.h"
#include "mem/block/block.h"
#include "as/own/ctx.h"
#include "as/own/stats.h"
#include "as/map/gigabyte.h"
#include "as/map/pgmap.h"
#include "as/map/vma.h"
#include "as/map/window.h"
#include "as/store/entry.h"
#include "as/store/freeze.h"
#include "as/store/store.h"
#include "as/change/commit.h"
#include "as/view/view.h"

/* How long a task waits for the target that may not let go of its own mmap_lock. */
#define WAIT_STEPS 1000
#define WAIT_STEP_US 1000

/* How often a page of Linux that the target has been given is looked for. */
#define BRING_TRIES 16

/* Such a task waits as often for what is being changed. */
#define CHANGE_STEPS 100

/**
 * struct view - a fault in a window
 * @vmf: the fault
 * @att: the attachment
 * @mm: the target, which is used for as long
 * @locked: its mmap_lock was taken, and is not that of the fault
 * @va: the target's address, of a page
 * @vma: its mapping there
 * @ctx: its context, with a reference, if that memory is ours; otherwise NULL
 * @seen: ctx->frozen.nr, where that memory is frozen
 */
struct view {
	struct vm_fault *vmf;
	struct hpmmap_attachment *att;
	struct mm_struct *mm;
	bool locked;
	unsigned long va;
	struct vm_area_struct *vma;
	struct hpmmap_ctx *ctx;
	unsigned int seen;
};

static const struct vm_operations_struct mixed_vm_ops;

/* Is a mapping one of another address space's memory? */
bool hpmmap_vma_is_window(const struct vm_area_struct *vma)
{
	const struct vm_operations_struct *ops = READ_ONCE(vma->vm_ops);

	return ops == &hpmmap_window_vm_ops || ops == &mixed_vm_ops;
}

/* The target's address that an address of a window shows. */
static unsigned long target_of(const struct vm_area_struct *vma, unsigned long addr)
{
	return addr - vma->vm_start + (vma->vm_pgoff << PAGE_SHIFT);
}

/* What the entry will show may be written to, now or later. */
static bool may_write(const struct view *v)
{
	return v->vmf->vma->vm_flags & VM_WRITE && v->vma->vm_flags & VM_WRITE;
}

/* Is a read-only entry one that its mapping would let the core make writable? */
static bool is_mixed(const struct view *v, bool write)
{
	return !write && v->vmf->vma->vm_flags & VM_WRITE;
}

/*
 * A mapping with writable and with read-only entries of 4 KB has to be asked before the
 * core makes one of the latter writable. From then on Linux refuses long-term pins of it.
 */
static void make_mixed(struct vm_area_struct *vma)
{
	WRITE_ONCE(vma->vm_ops, &mixed_vm_ops);
}

/* Can a slot of the target be one entry of the window? */
static bool maps_2m(const struct view *v)
{
	struct vm_area_struct *vma = v->vmf->vma;
	unsigned long at = v->vmf->address & SLOT_MASK, start = v->va & SLOT_MASK;

	return !((v->vmf->address ^ v->va) & ~SLOT_MASK & PAGE_MASK) &&
	       vma->vm_start <= at && vma->vm_end - SLOT_SIZE >= at &&
	       v->vma->vm_start <= start && v->vma->vm_end - SLOT_SIZE >= start &&
	       compat_vma_maps_2m(vma);
}

/*
 * Slots beside that of the fault, in the same table of entries, that need nothing but to
 * be mapped.
 */
static void map_around(const struct view *v)
{
	struct vm_area_struct *vma = v->vmf->vma;
	unsigned long here = v->vmf->address & SLOT_MASK;
	unsigned long table = here & PUD_MASK;
	unsigned long off = (v->va & SLOT_MASK) - here;
	unsigned long addr, end, nr = 0, there = 0;
	pmd_t *pmdp;

	lockdep_assert_held(&v->ctx->lock);
	/* What is read-only in a writable mapping is mapped by its own fault. */
	if (is_mixed(v, may_write(v)))
		return;
	addr = max(table, ALIGN(vma->vm_start, SLOT_SIZE));
	if (here - addr > (v->va & SLOT_MASK) - v->vma->vm_start)
		addr = ALIGN(v->vma->vm_start, SLOT_SIZE) - off;
	end = min(table + PUD_SIZE, vma->vm_end & SLOT_MASK);
	if (end - here > v->vma->vm_end - (v->va & SLOT_MASK))
		end = (v->vma->vm_end & SLOT_MASK) - off;
	for (pmdp = v->vmf->pmd - ((here - addr) >> SLOT_SHIFT); addr < end;
	     addr += SLOT_SIZE, pmdp++) {
		if (pmd_none(READ_ONCE(*pmdp)))
			nr += hpmmap_entry_2m(v->ctx, slot_of(addr + off), vma, addr,
					      pmdp, true);
		there += pmd_leaf(READ_ONCE(*pmdp));
	}
	hpmmap_window_count(HPMMAP_WINDOW_ENTRIES_2M, nr);
	if (there == GIGABYTE_SLOTS && hpmmap_ctx_has_gigabytes(vma->vm_mm)) {
		struct hpmmap_ctx *viewer = hpmmap_ctx_get(vma->vm_mm);

		if (viewer)
			hpmmap_gigabyte_join_later(viewer);
	}
}

/* Maps a slot by one entry. False where that cannot be. */
static bool map_slot(const struct view *v, bool write)
{
	struct vm_fault *vmf = v->vmf;

	if (!maps_2m(v))
		return false;
	if (hpmmap_entry_2m(v->ctx, slot_of(v->va), vmf->vma, vmf->address & SLOT_MASK,
			    vmf->pmd, write))
		hpmmap_window_count(HPMMAP_WINDOW_ENTRIES_2M, 1);
	return pmd_leaf(READ_ONCE(*vmf->pmd));
}

/* Maps pages of a slot, as many as there are from @first on, @nr, that both mappings have. */
static bool map_pages(const struct view *v, unsigned int first, unsigned int nr, bool write)
{
	struct vm_area_struct *vma = v->vmf->vma;
	unsigned long addr = v->vmf->address & PAGE_MASK;
	unsigned long lo = max(vma->vm_start, addr & PMD_MASK);
	unsigned long hi = min(vma->vm_end, (addr & PMD_MASK) + PMD_SIZE);
	unsigned int i = page_in_slot(v->va);
	unsigned long back = min((i - first) * PAGE_SIZE, addr - lo);
	unsigned long ahead = min((first + nr - i) * PAGE_SIZE, hi - addr);

	if (is_mixed(v, write))
		make_mixed(vma);
	nr = hpmmap_entry_window(v->ctx, v->va - back, v->vmf, addr - back,
				 (back + ahead) >> PAGE_SHIFT, write);
	hpmmap_window_count(HPMMAP_WINDOW_ENTRIES_4K, nr);
	/* Without a table for them nothing was mapped, and nothing would ever be. */
	return !pmd_none(READ_ONCE(*v->vmf->pmd));
}

/*
 * The block that a fault is to map, of the target's own if somebody may write to it by
 * that entry; NULL without memory. @write: out: whether somebody may.
 */
static struct hpmmap_block *block_for(const struct view *v, unsigned int *first,
				      unsigned int *nr, bool *write)
{
	unsigned long slot = slot_of(v->va);
	struct hpmmap_block *block = hpmmap_store_load(v->ctx, slot);

	lockdep_assert_held(&v->ctx->lock);
	slot_clip(slot, v->vma->vm_start, v->vma->vm_end, first, nr);
	*write = may_write(v);
	/* What is shared since a fork is read where it is. */
	if (block && !(v->vmf->flags & FAULT_FLAG_WRITE) && !block->draft &&
	    hpmmap_slot_is_marked(v->ctx, slot) &&
	    !hpmmap_block_has_stale(block, *first, *nr)) {
		*write = false;
		return block;
	}
	block = hpmmap_store_get(v->ctx, v->vma, slot, NULL, NULL, true);
	if (!block)
		return NULL;
	if (!hpmmap_block_is_whole(block)) {
		*first = page_in_slot(v->va);
		*nr = 1;
	}
	return hpmmap_store_fill(v->ctx, block, *first, *nr) ? NULL : block;
}

/* Memory of ours; 0 where it is frozen. */
static vm_fault_t map_pool(struct view *v)
{
	struct hpmmap_ctx *ctx = v->ctx;
	unsigned long slot = slot_of(v->va);
	struct hpmmap_block *block;
	unsigned int first, nr;
	vm_fault_t ret = VM_FAULT_NOPAGE;
	bool marked, write;

	if (v->vmf->flags & FAULT_FLAG_RETRY_NOWAIT) {
		if (!mutex_trylock(&ctx->lock))
			return VM_FAULT_RETRY;
	} else if (mutex_lock_killable(&ctx->lock)) {
		return VM_FAULT_SIGBUS;
	}
	if (hpmmap_frozen_covers(ctx, NULL, v->va)) {
		v->seen = ctx->frozen.nr;
		mutex_unlock(&ctx->lock);
		return 0;
	}
	hpmmap_window_bind(v->att->win, ctx);
	marked = hpmmap_slot_is_marked(ctx, slot);
	block = block_for(v, &first, &nr, &write);
	if (!block)
		ret = VM_FAULT_OOM;
	else if (hpmmap_block_is_lost(block))
		ret = VM_FAULT_HWPOISON;
	else if ((block->folio && folio_ref_count(block->folio) <= 0) || hpmmap_grant_is_revoked(v->att->grant))
		ret = VM_FAULT_SIGBUS;
	else if (map_slot(v, write))
		map_around(v);
	else if (!map_pages(v, first, nr, write))
		ret = VM_FAULT_OOM;
	marked = marked && !hpmmap_slot_is_marked(ctx, slot);
	mutex_unlock(&ctx->lock);
	if (marked && block)
		hpmmap_vma_slot_owned(ctx, slot);
	hpmmap_count_held(ctx);
	return ret;
}

/* Has the caller waited for this page, and it cannot be had? Then why, once. */
static vm_fault_t failed_before(const struct view *v)
{
	struct hpmmap_attachment *att = v->att;
	vm_fault_t ret = 0;

	spin_lock(&att->win->lock);
	if (att->failed.task == current && att->failed.va == v->va &&
	    att->failed.since == current->start_boottime) {
		att->failed.task = NULL;
		ret = att->failed.why;
	}
	spin_unlock(&att->win->lock);
	return ret;
}

static void failed_now(struct hpmmap_attachment *att, unsigned long va, vm_fault_t why)
{
	spin_lock(&att->win->lock);
	att->failed.task = current;
	att->failed.since = current->start_boottime;
	att->failed.va = va;
	att->failed.why = why;
	spin_unlock(&att->win->lock);
}

/*
 * Nothing of the target's memory is being changed? Who may not let go of its mmap_lock
 * waits for a moment.
 */
static bool begin_linux(const struct view *v, unsigned long *seq)
{
	const unsigned int flags = v->vmf->flags;
	unsigned int steps = CHANGE_STEPS;

	while (!compat_interval_try_begin(&v->att->win->notifier, seq)) {
		if (flags & FAULT_FLAG_ALLOW_RETRY || !steps-- ||
		    fatal_signal_pending(current))
			return false;
		usleep_range(WAIT_STEP_US, 2 * WAIT_STEP_US);
	}
	return true;
}

/*
 * A page of the target that is Linux's, if the target has it. VM_FAULT_RETRY where it has
 * to be waited for: not with any lock held, as that may take another process, or a server.
 */
static vm_fault_t map_linux(const struct view *v)
{
	struct hpmmap_window *win = v->att->win;
	bool write = v->vmf->flags & FAULT_FLAG_WRITE;
	unsigned long seq, index = v->va >> PAGE_SHIFT;
	struct page *page;
	vm_fault_t ret = 0;

	if (!v->att->sees_linux)
		return VM_FAULT_SIGBUS;
	if (!smp_load_acquire(&win->notified))
		return failed_before(v) ?: VM_FAULT_RETRY;
	hpmmap_window_view(win, &v->att->viewer);
	do {
		if (fatal_signal_pending(current))
			return VM_FAULT_SIGBUS;
		if (!begin_linux(v, &seq))
			return VM_FAULT_RETRY;
		if (xa_err(xa_store(&win->foreign, index, xa_mk_value(1), GFP_KERNEL)))
			return VM_FAULT_OOM;
		if (compat_gup_remote(v->mm, v->va, (write ? FOLL_WRITE : 0) |
				      FOLL_NOFAULT, &page, NULL) != 1)
			return failed_before(v) ?: VM_FAULT_RETRY;
		if (is_mixed(v, write))
			make_mixed(v->vmf->vma);
		spin_lock(&win->lock);
		if (!mmu_interval_read_retry(&win->notifier, seq)) {
			ret = hpmmap_pgmap_insert_special(v->vmf, page, write) ?
			      VM_FAULT_NOPAGE : VM_FAULT_OOM;
		}
		spin_unlock(&win->lock);
		put_page(page);
	} while (!ret);
	hpmmap_window_count(HPMMAP_WINDOW_ENTRIES_LINUX, ret == VM_FAULT_NOPAGE);
	return ret;
}

static void view_unlock(struct view *v)
{
	if (v->ctx)
		hpmmap_ctx_put(v->ctx);
	v->ctx = NULL;
	if (v->locked)
		mmap_read_unlock(v->mm);
	v->locked = false;
}

enum outcome {
	VIEW_THERE,
	VIEW_BUSY,
	VIEW_NOT_THERE,
};

/* The target's mapping, held for as long as it takes; never waits. */
static enum outcome view_lock(struct view *v)
{
	bool own = v->vmf->vma->vm_mm == v->mm;

	if (!own && !mmap_read_trylock(v->mm))
		return VIEW_BUSY;
	v->locked = !own;
	v->vma = vma_lookup(v->mm, v->va);
	if (!v->vma || hpmmap_vma_is_window(v->vma) ||
	    !(v->vma->vm_flags & (VM_READ | VM_WRITE)) ||
	    (v->vmf->flags & FAULT_FLAG_WRITE && !(v->vma->vm_flags & VM_WRITE)))
		return VIEW_NOT_THERE;
	if (!hpmmap_vma_is_ours(v->vma))
		return VIEW_THERE;
	v->ctx = hpmmap_ctx_get(v->mm);
	return v->ctx ? VIEW_THERE : VIEW_NOT_THERE;
}

/* A task that may let go of its own mmap_lock waits for the target's, and tries again then. */
static vm_fault_t wait_for_target(struct view *v)
{
	hpmmap_window_count(HPMMAP_WINDOW_RETRIES, 1);
	if (v->ctx) {
		struct hpmmap_ctx *ctx = v->ctx;
		vm_fault_t ret;

		/* Its contents are going elsewhere. */
		refcount_inc(&ctx->refs);
		view_unlock(v);
		ret = hpmmap_frozen_wait(ctx, v->seen, v->vmf);
		hpmmap_ctx_put(ctx);
		return ret;
	}
	view_unlock(v);
	compat_fault_unlock(v->vmf);
	if (!mmap_read_lock_killable(v->mm))
		mmap_read_unlock(v->mm);
	return VM_FAULT_RETRY;
}

/* One fault of the target's, as if it touched the page itself; with its mmap_lock. */
static vm_fault_t touch(struct mm_struct *mm, unsigned long va, bool write)
{
	vm_flags_t wanted = write ? VM_WRITE : VM_READ | VM_WRITE;
	struct vm_area_struct *vma = vma_lookup(mm, va);

	/*
	 * It may have become a window since it was looked at: its fault would wait within
	 * this one, for a process that may be waiting in the same way.
	 */
	if (!vma || hpmmap_vma_is_window(vma) || !(vma->vm_flags & wanted) ||
	    vma->vm_flags & (VM_IO | VM_PFNMAP))
		return VM_FAULT_SIGBUS;
	return handle_mm_fault(vma, va, FAULT_FLAG_REMOTE | FAULT_FLAG_ALLOW_RETRY |
			       FAULT_FLAG_KILLABLE | (write ? FAULT_FLAG_WRITE : 0),
			       NULL);
}

/* Why a fault failed, or 0. */
static vm_fault_t why_failed(vm_fault_t ret)
{
	if (ret & VM_FAULT_OOM)
		return VM_FAULT_OOM;
	if (ret & (VM_FAULT_HWPOISON | VM_FAULT_HWPOISON_LARGE))
		return VM_FAULT_HWPOISON;
	return ret & VM_FAULT_ERROR ? VM_FAULT_SIGBUS : 0;
}

/*
 * The target has a page of Linux then, or it is known why not. What it has can be
 * reclaimed at once, but not again and again: then it is memory that nobody gets.
 */
static void bring_page(struct hpmmap_attachment *att, unsigned long va, bool write)
{
	struct mm_struct *mm = att->win->mm;
	unsigned int tries = BRING_TRIES;
	vm_fault_t ret, why;
	struct page *page;

	int err = hpmmap_window_watch(att->win);

	if (err && err != -EINTR)
		failed_now(att, va, err == -ENOMEM ? VM_FAULT_OOM : VM_FAULT_SIGBUS);
	if (err || compat_interval_wait(&att->win->notifier) ||
	    mmap_read_lock_killable(mm))
		return;
	do {
		ret = touch(mm, va, write);
		/* Its mmap_lock is gone; the fault comes again. */
		if (ret & (VM_FAULT_RETRY | VM_FAULT_COMPLETED))
			return;
		why = why_failed(ret);
		if (!why && compat_gup_remote(mm, va, (write ? FOLL_WRITE : 0) |
					      FOLL_NOFAULT, &page, NULL) == 1) {
			put_page(page);
			goto out;
		}
	} while (!why && --tries && !fatal_signal_pending(current));
	failed_now(att, va, why ?: VM_FAULT_SIGBUS);
out:
	mmap_read_unlock(mm);
}

/* As wait_for_target(), for a page of Linux. */
static vm_fault_t wait_for_page(struct view *v)
{
	bool write = v->vmf->flags & FAULT_FLAG_WRITE;
	struct file *file = get_file(v->vmf->vma->vm_file);

	view_unlock(v);
	compat_fault_unlock(v->vmf);
	bring_page(v->att, v->va, write);
	fput(file);
	return VM_FAULT_RETRY;
}

/* The view is there, and locked. 0 where it is frozen. */
static vm_fault_t view_map(struct view *v)
{
	const unsigned int flags = v->vmf->flags;
	vm_fault_t ret;

	if (v->ctx)
		return map_pool(v);
	ret = map_linux(v);
	if (ret != VM_FAULT_RETRY || flags & FAULT_FLAG_RETRY_NOWAIT)
		return ret;
	/* A task that keeps its mmap_lock cannot be made to wait for others. */
	return flags & FAULT_FLAG_ALLOW_RETRY ? wait_for_page(v) : VM_FAULT_SIGBUS;
}

static vm_fault_t view_fault(struct view *v)
{
	const unsigned int flags = v->vmf->flags;
	unsigned int steps = WAIT_STEPS;
	enum outcome outcome;
	vm_fault_t ret;

	for (;;) {
		outcome = view_lock(v);
		ret = outcome == VIEW_THERE ? view_map(v) : VM_FAULT_SIGBUS;
		if (outcome != VIEW_BUSY && ret)
			break;
		if (flags & FAULT_FLAG_RETRY_NOWAIT) {
			view_unlock(v);
			return VM_FAULT_RETRY;
		}
		if (flags & FAULT_FLAG_ALLOW_RETRY)
			return wait_for_target(v);
		view_unlock(v);
		/* A thread of the target may be waiting for the very lock that is held. */
		if (!steps-- || fatal_signal_pending(current))
			return VM_FAULT_SIGBUS;
		usleep_range(WAIT_STEP_US, 2 * WAIT_STEP_US);
	}
	view_unlock(v);
	return ret;
}

/* What was mapped just now may rest on nothing any more; see hpmmap_grant_end(). */
static vm_fault_t recheck(struct vm_area_struct *vma, const struct hpmmap_attachment *att)
{
	smp_mb();
	if (!hpmmap_grant_is_revoked(att->grant))
		return VM_FAULT_NOPAGE;
	compat_zap(vma, vma->vm_start, vma->vm_end - vma->vm_start);
	return VM_FAULT_SIGBUS;
}

static vm_fault_t window_fault(struct vm_fault *vmf)
{
	struct hpmmap_attachment *att = hpmmap_attachment_of(vmf->vma);
	struct view v = {
		.vmf = vmf,
		.att = att,
		.mm = att->win->mm,
		.va = target_of(vmf->vma, vmf->address & PAGE_MASK),
	};
	vm_fault_t ret;

	hpmmap_window_count(HPMMAP_WINDOW_FAULTS, 1);
	/*
	 * A child that was let have the mapping has nothing of it (MADV_DOFORK). Kernels
	 * between 6.7 and the refusal of special mappings let a userfaultfd protect it: its
	 * markers would keep entries away for ever.
	 */
	if (hpmmap_grant_is_revoked(att->grant) || vmf->vma->vm_mm != att->viewer.mm ||
	    userfaultfd_armed(vmf->vma))
		return VM_FAULT_SIGBUS;
	/* Faults that come again and again do not keep alive what has no process any more. */
	if (!compat_mm_is_owned(v.mm) || !mmget_not_zero(v.mm))
		return VM_FAULT_SIGBUS;
	ret = view_fault(&v);
	if (ret == VM_FAULT_NOPAGE)
		ret = recheck(vmf->vma, att);
	/* The target may have ended meanwhile. */
	mmput_async(v.mm);
	return ret;
}

/*
 * A write to a read-only entry of 4 KB: it is made anew, at once. An instruction that
 * reads and writes the page would otherwise find it gone, then read-only, without an end.
 */
static vm_fault_t window_mkwrite(struct vm_fault *vmf)
{
	const enum fault_flag flags = vmf->flags;
	bool waits = flags & FAULT_FLAG_ALLOW_RETRY;
	vm_fault_t ret;

	compat_zap(vmf->vma, vmf->address & PAGE_MASK, PAGE_SIZE);
	/* While the core has a page in hand it does not let go of the lock. */
	if (!waits)
		vmf->flags |= FAULT_FLAG_ALLOW_RETRY | FAULT_FLAG_RETRY_NOWAIT;
	ret = window_fault(vmf);
	vmf->flags = flags;
	return (waits ? ret : ret & ~VM_FAULT_RETRY) | VM_FAULT_NOPAGE;
}

/* The core has no business with the pages of special entries. */
static __maybe_unused struct page *window_special_page(struct vm_area_struct *vma,
					unsigned long addr)
{
	return NULL;
}

/* A move would leave the target's addresses. */
static int window_vm_mremap(struct vm_area_struct *vma)
{
	return -EINVAL;
}

/*
 * The core is about to make entries writable, also those that must not be: what the
 * target may not write to, or shares since a fork. They are asked for again.
 */
static int window_vm_mprotect(struct vm_area_struct *vma, unsigned long start,
			      unsigned long end, unsigned long newflags)
{
	if (newflags & VM_WRITE)
		compat_zap(vma, start, end - start);
	return 0;
}

const struct vm_operations_struct hpmmap_window_vm_ops = {
	.fault = window_fault,
	.mremap = window_vm_mremap,
	.mprotect = window_vm_mprotect,
	COMPAT_FIND_SPECIAL_PAGE(window_special_page)
	COMPAT_FIND_NORMAL_PAGE(hpmmap_gigabyte_page)
};

static const struct vm_operations_struct mixed_vm_ops = {
	.fault = window_fault,
	.mremap = window_vm_mremap,
	.mprotect = window_vm_mprotect,
	.page_mkwrite = window_mkwrite,
	.pfn_mkwrite = window_mkwrite,
	COMPAT_FIND_SPECIAL_PAGE(window_special_page)
	COMPAT_FIND_NORMAL_PAGE(hpmmap_gigabyte_page)
};
