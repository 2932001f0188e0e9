// SPDX-License-Identifier: GPL-2.0
/*
 * Windows, seen from who has them: mappings of another address space's memory.
 *
 * A mapping has nothing of its own. Who touches it has the target's mmap_lock for a moment,
 * and gets what the target has there: a whole slot by one entry of 2 MB, and with it those
 * beside it, up to a gigabyte, or as many entries of 4 KB as the slot has room for. The
 * target need not notice, and what it maps later is there as well, without a call. What it
 * has not yet touched of a reservation it gets, and pays for, as if it had touched it. An
 * entry has all that the core gives its own (reference, reverse map, counters), so whoever
 * pins memory may pin that of a window.
 *
 * Of memory of Linux the entries are special ones without a reference, a page each, and the
 * target's notifier takes them away: nobody can pin these.
 *
 * What the module writes here it writes under ctx->lock of the target, or under the
 * window's lock. The core must not do so after .fault has returned: the block could have
 * been exchanged by then.
 */
#include <linux/delay.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/mmu_notifier.h>
#include <linux/pagemap.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "hpmmap.h"
#include "mem/block.h"
#include "as/attach.h"
#include "as/commit.h"
#include "as/counters.h"
#include "as/ctx.h"
#include "as/file.h"
#include "as/freeze.h"
#include "as/pgmap.h"
#include "as/stats.h"
#include "as/store.h"
#include "as/vma.h"
#include "as/window.h"

/* How long somebody waits for the target who may not let go of its own mmap_lock. */
#define WAIT_STEPS 1000
#define WAIT_STEP_US 1000

/* Who may not do so waits as often for what is being changed. */
#define CHANGE_STEPS 100

/* How often an address is looked for, if others map something there meanwhile. */
#define PLACE_TRIES 8

/**
 * struct attachment - a mapping of a part of a window
 * @win: the window; holds a reference
 * @grant: what it rests on; holds a reference
 * @start: first address of the target's
 * @len: length
 * @readonly: nobody writes by it
 * @viewer: the address space that has it
 * @failed: where a thread has waited for a page of Linux in vain. Protected by
 *	the window's lock.
 *
 * The rest is immutable. It ends with its file, which the mappings keep, when they are gone
 * and no TLB has anything of them.
 */
struct attachment {
	struct hpmmap_window *win;
	struct hpmmap_grant *grant;
	unsigned long start;
	unsigned long len;
	bool readonly;
	struct hpmmap_viewer viewer;
	struct {
		const struct task_struct *task;
		unsigned long va;
		vm_fault_t why;
	} failed;
};

/**
 * struct view - a fault in a window
 * @vmf: the fault
 * @att: the attachment
 * @mm: the target, which is used for as long
 * @locked: its mmap_lock was taken, and is not that of who faults
 * @va: the target's address, of a page
 * @vma: its mapping there
 * @ctx: its context, with a reference, if that memory is ours; otherwise NULL
 */
struct view {
	struct vm_fault *vmf;
	struct attachment *att;
	struct mm_struct *mm;
	bool locked;
	unsigned long va;
	struct vm_area_struct *vma;
	struct hpmmap_ctx *ctx;
};

static const struct vm_operations_struct window_vm_ops, mixed_vm_ops;

static bool is_window(const struct vm_area_struct *vma)
{
	const struct vm_operations_struct *ops = READ_ONCE(vma->vm_ops);

	return ops == &window_vm_ops || ops == &mixed_vm_ops;
}

static struct attachment *attachment_of(const struct vm_area_struct *vma)
{
	return vma->vm_file->private_data;
}

/**
 * hpmmap_grant_alloc() - something that attachments may rest on
 * @parent: what it rests on itself, or NULL
 *
 * Return: the grant with a reference for hpmmap_grant_put(), or NULL.
 */
struct hpmmap_grant *hpmmap_grant_alloc(struct hpmmap_grant *parent)
{
	struct hpmmap_grant *grant = kzalloc(sizeof(*grant), GFP_KERNEL_ACCOUNT);

	if (!grant)
		return NULL;
	refcount_set(&grant->refs, 1);
	if (parent)
		refcount_inc(&parent->refs);
	grant->parent = parent;
	return grant;
}

void hpmmap_grant_put(struct hpmmap_grant *grant)
{
	struct hpmmap_grant *parent;

	while (grant && refcount_dec_and_test(&grant->refs)) {
		parent = grant->parent;
		kfree(grant);
		grant = parent;
	}
}

/**
 * hpmmap_grant_end() - attachments are not to show anything any more
 * @grant: what they rest on, themselves or by another one
 *
 * Who touches them gets SIGBUS once what is mapped was taken away, which is the caller's to
 * do: by hpmmap_window_revoke(), after which others are mapped again by a fault, or by
 * unmapping them.
 */
void hpmmap_grant_end(struct hpmmap_grant *grant)
{
	WRITE_ONCE(grant->revoked, true);
	/* Pairs with that of recheck(): who maps something now sees it, or is found. */
	smp_mb();
}

static bool is_revoked(const struct attachment *att)
{
	const struct hpmmap_grant *grant;

	for (grant = att->grant; grant; grant = grant->parent)
		if (READ_ONCE(grant->revoked))
			return true;
	return false;
}

/* A part of a mapping of the window is to be the target's from @va on, by as much. */
static unsigned long target_of(const struct vm_area_struct *vma, unsigned long addr)
{
	return addr - vma->vm_start + (vma->vm_pgoff << PAGE_SHIFT);
}

/* Somebody may write to what the entry will show, now or later. */
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
	struct folio *folio = NULL;
	unsigned long addr, end, nr = 0;
	pmd_t *pmdp;

	lockdep_assert_held(&v->ctx->lock);
	/* What is read-only in a writable mapping is mapped by who comes to it. */
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
		struct hpmmap_block *block;

		if (!pmd_none(READ_ONCE(*pmdp)))
			continue;
		block = hpmmap_store_load(v->ctx, slot_of(addr + off));
		if (!block || !block->folio ||
		    hpmmap_slot_is_marked(v->ctx, slot_of(addr + off)) ||
		    !bitmap_empty(block->stale, SLOT_PAGES) ||
		    !folio_trylock(block->folio))
			continue;
		if (!hpmmap_block_is_hurt(block) &&
		    hpmmap_pgmap_insert_2m(vma, addr, pmdp, block->folio)) {
			folio = block->folio;
			nr++;
		}
		folio_unlock(block->folio);
	}
	if (folio)
		compat_add_rss(vma->vm_mm, folio, nr * SLOT_PAGES);
	hpmmap_window_count(HPMMAP_WINDOW_ENTRIES_2M, nr);
}

/* Maps a slot by one entry. False where that cannot be. */
static bool map_slot(const struct view *v, struct hpmmap_block *block, bool write)
{
	struct vm_fault *vmf = v->vmf;
	struct folio *folio = block->folio;
	bool made = false;

	if (!folio || !maps_2m(v) || hpmmap_block_has_stale(block, 0, SLOT_PAGES))
		return false;
	folio_lock(folio);
	if (hpmmap_block_is_hurt(block)) {
		;
	} else if (is_mixed(v, write)) {
		made = hpmmap_pgmap_insert_readonly(vmf, folio);
	} else if (hpmmap_pgmap_insert_2m(vmf->vma, vmf->address & SLOT_MASK,
					  vmf->pmd, folio)) {
		compat_add_rss(vmf->vma->vm_mm, folio, SLOT_PAGES);
		hpmmap_window_count(HPMMAP_WINDOW_ENTRIES_2M, 1);
		made = true;
	}
	folio_unlock(folio);
	return made || pmd_leaf(READ_ONCE(*vmf->pmd));
}

/* Maps pages of a slot, as many as there are from @first on, @nr, that both mappings have. */
static bool map_pages(const struct view *v, struct hpmmap_block *block,
		      unsigned int first, unsigned int nr, bool write)
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
	nr = hpmmap_pgmap_insert_pages(v->vmf, addr - back, block,
				       i - (back >> PAGE_SHIFT),
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

static vm_fault_t map_pool(const struct view *v)
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
	hpmmap_window_bind(v->att->win, ctx);
	marked = hpmmap_slot_is_marked(ctx, slot);
	block = block_for(v, &first, &nr, &write);
	if (!block)
		ret = VM_FAULT_OOM;
	else if (hpmmap_block_is_lost(block, page_in_slot(v->va)))
		ret = VM_FAULT_HWPOISON;
	else if (map_slot(v, block, write))
		map_around(v);
	else if (!map_pages(v, block, first, nr, write))
		ret = VM_FAULT_OOM;
	marked = marked && !hpmmap_slot_is_marked(ctx, slot);
	mutex_unlock(&ctx->lock);
	if (marked && block)
		hpmmap_vma_slot_owned(ctx, slot, block);
	hpmmap_count_held(ctx);
	return ret;
}

/* Has the caller waited for this page, and it cannot be had? Then why, once. */
static vm_fault_t failed_before(const struct view *v)
{
	struct attachment *att = v->att;
	vm_fault_t ret = 0;

	spin_lock(&att->win->lock);
	if (att->failed.task == current && att->failed.va == v->va) {
		att->failed.task = NULL;
		ret = att->failed.why;
	}
	spin_unlock(&att->win->lock);
	return ret;
}

static void failed_now(struct attachment *att, unsigned long va, long error)
{
	spin_lock(&att->win->lock);
	att->failed.task = current;
	att->failed.va = va;
	att->failed.why = error == -ENOMEM ? VM_FAULT_OOM :
			  error == -EHWPOISON ? VM_FAULT_HWPOISON : VM_FAULT_SIGBUS;
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

	if (!compat_has_special_pages())
		return VM_FAULT_SIGBUS;
	if (!smp_load_acquire(&win->notified))
		return VM_FAULT_RETRY;
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
	if (!v->vma || is_window(v->vma) ||
	    !(v->vma->vm_flags & (VM_READ | VM_WRITE)) ||
	    (v->vmf->flags & FAULT_FLAG_WRITE && !(v->vma->vm_flags & VM_WRITE)))
		return VIEW_NOT_THERE;
	if (!hpmmap_vma_is_ours(v->vma))
		return VIEW_THERE;
	v->ctx = hpmmap_ctx_get(v->mm);
	if (!v->ctx)
		return VIEW_NOT_THERE;
	return hpmmap_frozen_covers(v->ctx, NULL, v->va) ? VIEW_BUSY : VIEW_THERE;
}

/* Who may let go of its own mmap_lock waits for the target's, and tries again then. */
static vm_fault_t wait_for_target(struct view *v)
{
	hpmmap_window_count(HPMMAP_WINDOW_RETRIES, 1);
	if (v->ctx) {
		struct hpmmap_ctx *ctx = v->ctx;

		/* Its contents are going elsewhere. */
		refcount_inc(&ctx->refs);
		view_unlock(v);
		hpmmap_frozen_wait(ctx, v->vmf);
		hpmmap_ctx_put(ctx);
		return VM_FAULT_RETRY;
	}
	view_unlock(v);
	compat_fault_unlock(v->vmf);
	if (!mmap_read_lock_killable(v->mm))
		mmap_read_unlock(v->mm);
	return VM_FAULT_RETRY;
}

/* The target has a page of Linux then, or it is known why not. */
static void bring_page(struct attachment *att, unsigned long va, bool write)
{
	struct mm_struct *mm = att->win->mm;
	struct page *page;
	int locked = 1;
	long ret;

	if (hpmmap_window_watch(att->win) || compat_interval_wait(&att->win->notifier) ||
	    mmap_read_lock_killable(mm))
		return;
	ret = compat_gup_remote(mm, va, write ? FOLL_WRITE : 0, &page, &locked);
	if (ret == 1)
		put_page(page);
	else if (ret < 0 && ret != -EINTR && ret != -EAGAIN)
		failed_now(att, va, ret);
	if (locked)
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

/* The view is there, and locked. */
static vm_fault_t view_map(struct view *v)
{
	const unsigned int flags = v->vmf->flags;
	vm_fault_t ret;

	if (v->ctx)
		return map_pool(v);
	ret = map_linux(v);
	if (ret != VM_FAULT_RETRY || flags & FAULT_FLAG_RETRY_NOWAIT)
		return ret;
	/* Who keeps its mmap_lock cannot be made to wait for others. */
	return flags & FAULT_FLAG_ALLOW_RETRY ? wait_for_page(v) : VM_FAULT_SIGBUS;
}

static vm_fault_t view_fault(struct view *v)
{
	const unsigned int flags = v->vmf->flags;
	unsigned int steps = WAIT_STEPS;
	enum outcome outcome;
	vm_fault_t ret;

	while ((outcome = view_lock(v)) == VIEW_BUSY) {
		if (flags & FAULT_FLAG_RETRY_NOWAIT) {
			view_unlock(v);
			return VM_FAULT_RETRY;
		}
		if (flags & FAULT_FLAG_ALLOW_RETRY)
			return wait_for_target(v);
		view_unlock(v);
		/* Somebody of the target's may be waiting for the very lock that is held. */
		if (!steps-- || fatal_signal_pending(current))
			return VM_FAULT_SIGBUS;
		usleep_range(WAIT_STEP_US, 2 * WAIT_STEP_US);
	}
	ret = outcome == VIEW_THERE ? view_map(v) : VM_FAULT_SIGBUS;
	view_unlock(v);
	return ret;
}

/* What was mapped just now may rest on nothing any more; see hpmmap_grant_end(). */
static vm_fault_t recheck(struct vm_area_struct *vma, const struct attachment *att)
{
	smp_mb();
	if (!is_revoked(att))
		return VM_FAULT_NOPAGE;
	compat_zap(vma, vma->vm_start, vma->vm_end - vma->vm_start);
	return VM_FAULT_SIGBUS;
}

static vm_fault_t window_fault(struct vm_fault *vmf)
{
	struct attachment *att = attachment_of(vmf->vma);
	struct view v = {
		.vmf = vmf,
		.att = att,
		.mm = att->win->mm,
		.va = target_of(vmf->vma, vmf->address & PAGE_MASK),
	};
	vm_fault_t ret;

	hpmmap_window_count(HPMMAP_WINDOW_FAULTS, 1);
	/* A child that was let have the mapping has nothing of it (MADV_DOFORK). */
	if (is_revoked(att) || vmf->vma->vm_mm != att->viewer.mm)
		return VM_FAULT_SIGBUS;
	/* Who comes again and again does not keep alive what has no process any more. */
	if (!compat_mm_is_owned(v.mm) || !mmget_not_zero(v.mm))
		return VM_FAULT_SIGBUS;
	ret = view_fault(&v);
	if (ret == VM_FAULT_NOPAGE)
		ret = recheck(vmf->vma, att);
	/* The target may have ended meanwhile. */
	mmput_async(v.mm);
	return ret;
}

/* Somebody writes to a read-only entry of 4 KB: it is looked at again. */
static vm_fault_t window_mkwrite(struct vm_fault *vmf)
{
	compat_zap(vmf->vma, vmf->address & PAGE_MASK, PAGE_SIZE);
	return VM_FAULT_NOPAGE;
}

/* Special entries are of pages that are somebody else's business. */
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

static const struct vm_operations_struct window_vm_ops = {
	.fault = window_fault,
	.mremap = window_vm_mremap,
	.mprotect = window_vm_mprotect,
	COMPAT_FIND_SPECIAL_PAGE(window_special_page)
};

static const struct vm_operations_struct mixed_vm_ops = {
	.fault = window_fault,
	.mremap = window_vm_mremap,
	.mprotect = window_vm_mprotect,
	.page_mkwrite = window_mkwrite,
	.pfn_mkwrite = window_mkwrite,
	COMPAT_FIND_SPECIAL_PAGE(window_special_page)
};

static int window_mmap(struct file *file, struct vm_area_struct *vma)
{
	const struct attachment *att = file->private_data;
	unsigned long start = vma->vm_pgoff << PAGE_SHIFT;

	/* Not only hpmmap_attach() comes here: remap_file_pages(2) maps it again. */
	if (!(vma->vm_flags & VM_SHARED) || start < att->start ||
	    vma->vm_end - vma->vm_start > att->start + att->len - start ||
	    start >= att->start + att->len)
		return -EINVAL;
	if (att->readonly && vma->vm_flags & VM_WRITE)
		return -EACCES;
	/*
	 * VM_DONTEXPAND also keeps mappings with different vm_ops from being merged, and
	 * mlock(2), userfaultfd and khugepaged away.
	 */
	compat_vm_flags_mod(vma, VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP,
			    att->readonly ? VM_MAYWRITE : 0);
	vma->vm_ops = &window_vm_ops;
	return 0;
}

/* Nobody opens it: mappings are made by the module only. */
static int window_open(struct inode *inode, struct file *file)
{
	return -EACCES;
}

static void attachment_free(struct attachment *att)
{
	hpmmap_window_count(HPMMAP_WINDOW_ATTACHMENTS, -1);
	hpmmap_window_count(HPMMAP_WINDOW_BYTES, -(long)att->len);
	atomic_long_sub(att->len, &att->win->bytes);
	hpmmap_window_unview(att->win, &att->viewer);
	mmdrop(att->viewer.mm);
	hpmmap_grant_put(att->grant);
	hpmmap_window_put(att->win);
	kfree(att);
}

static int window_release(struct inode *inode, struct file *file)
{
	attachment_free(file->private_data);
	hpmmap_file_window_end();
	return 0;
}

static const struct file_operations window_fops = {
	.owner = THIS_MODULE,
	.open = window_open,
	.mmap = window_mmap,
	.release = window_release,
	.fsync = noop_fsync,
};

static struct attachment *attachment_alloc(struct hpmmap_window *win,
					   struct hpmmap_grant *grant,
					   unsigned long start, unsigned long len,
					   bool readonly)
{
	struct attachment *att = kzalloc(sizeof(*att), GFP_KERNEL_ACCOUNT);

	if (!att)
		return NULL;
	hpmmap_window_hold(win);
	att->win = win;
	refcount_inc(&grant->refs);
	att->grant = grant;
	att->start = start;
	att->len = len;
	att->readonly = readonly;
	INIT_LIST_HEAD(&att->viewer.link);
	mmgrab(current->mm);
	att->viewer.mm = current->mm;
	atomic_long_add(len, &win->bytes);
	hpmmap_window_count(HPMMAP_WINDOW_ATTACHMENTS, 1);
	hpmmap_window_count(HPMMAP_WINDOW_BYTES, len);
	return att;
}

/*
 * Where the target's address and that of the window are equal modulo 2 MB, so that one
 * entry can map what one entry maps there; of a large one modulo 1 GB, so that the blocks
 * of a gigabyte have one table.
 */
static unsigned long place(struct file *file, unsigned long start, unsigned long len,
			   unsigned long prot)
{
	unsigned long align = len >= PUD_SIZE ? PUD_SIZE : SLOT_SIZE;
	unsigned long at = -ENOMEM, ret = -EEXIST;
	int tries;

	for (tries = 0; ret == -EEXIST && tries < PLACE_TRIES; tries++) {
		at = hpmmap_vma_find_hole(0, len, MAP_SHARED, align,
					  start & (align - 1));
		if (IS_ERR_VALUE(at))
			return at;
		ret = vm_mmap(file, at, len, prot, MAP_SHARED | MAP_NORESERVE |
			      MAP_FIXED_NOREPLACE, start);
	}
	return ret;
}

/* What there is at @addr is mapped, and what can be mapped with it. */
static int populate_one(const struct attachment *att, unsigned long addr)
{
	struct mm_struct *mm = current->mm;
	struct vm_area_struct *vma;
	vm_fault_t ret;

	do {
		if (mmap_read_lock_killable(mm))
			return -EINTR;
		vma = vma_lookup(mm, addr);
		/* Another thread may have done anything. */
		if (!vma || !is_window(vma) || attachment_of(vma) != att) {
			mmap_read_unlock(mm);
			return -EINVAL;
		}
		ret = handle_mm_fault(vma, addr, FAULT_FLAG_REMOTE |
				      FAULT_FLAG_ALLOW_RETRY | FAULT_FLAG_KILLABLE,
				      NULL);
		if (!(ret & (VM_FAULT_RETRY | VM_FAULT_COMPLETED)))
			mmap_read_unlock(mm);
		if (fatal_signal_pending(current))
			return -EINTR;
		cond_resched();
	} while (ret & VM_FAULT_RETRY);
	return 0;
}

/* Maps what the target has of the pools; nothing is committed for it, and none may fail. */
static void populate(const struct attachment *att, unsigned long addr)
{
	struct mm_struct *mm = att->win->mm;
	struct hpmmap_ctx *ctx = hpmmap_ctx_get(mm);
	unsigned long va = att->start, end = att->start + att->len, here;

	if (!ctx)
		return;
	while ((va = hpmmap_store_next(ctx, va, end)) < end) {
		here = addr + (va - att->start);
		if (populate_one(att, here))
			break;
		/* With it came all of the gigabyte that can be mapped by entries of 2 MB. */
		va += min((here & PUD_MASK) + PUD_SIZE - here, end - va);
		if (va >= end)
			break;
	}
	hpmmap_ctx_put(ctx);
}

/**
 * hpmmap_attach() - map a part of a window into the caller's address space
 * @win: the window
 * @grant: what allows it
 * @start: first address of the target's, page aligned
 * @len: length, page aligned, not 0
 * @at: where; 0: where the module likes
 * @flags: HPMMAP_ATTACH_*
 *
 * Nothing need be there: who touches what the target does not have gets SIGBUS.
 *
 * Return: the address, -EEXIST where something is mapped at @at, or another errno of
 * mmap(2).
 */
unsigned long hpmmap_attach(struct hpmmap_window *win, struct hpmmap_grant *grant,
			    unsigned long start, unsigned long len,
			    unsigned long at, unsigned int flags)
{
	bool readonly = flags & HPMMAP_ATTACH_READONLY;
	unsigned long prot = PROT_READ | (readonly ? 0 : PROT_WRITE), addr;
	struct attachment *att;
	struct file *file;

	att = attachment_alloc(win, grant, start, len, readonly);
	if (!att)
		return -ENOMEM;
	file = hpmmap_file_window(&window_fops, &win->mapping);
	if (IS_ERR(file)) {
		attachment_free(att);
		return PTR_ERR(file);
	}
	file->private_data = att;
	if (at)
		addr = vm_mmap(file, at, len, prot, MAP_SHARED | MAP_NORESERVE |
			       MAP_FIXED_NOREPLACE, start);
	else
		addr = place(file, start, len, prot);
	if (!IS_ERR_VALUE(addr) && flags & HPMMAP_ATTACH_POPULATE)
		populate(att, addr);
	/* The mappings keep it. */
	fput(file);
	return addr;
}

/* A mapping of the caller's in a range that is of @file, or of @grant. */
static bool find_attached(unsigned long *addr, unsigned long *end,
			  const struct file *file, const struct hpmmap_grant *grant)
{
	struct mm_struct *mm = current->mm;
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, mm, *addr);
	bool found = false;

	if (mmap_read_lock_killable(mm))
		return false;
	for_each_vma_range(vmi, vma, *end) {
		if (!is_window(vma) || (file && vma->vm_file != file) ||
		    (grant && attachment_of(vma)->grant != grant))
			continue;
		*addr = vma->vm_start;
		*end = vma->vm_end;
		found = true;
		break;
	}
	mmap_read_unlock(mm);
	return found;
}

static int detach_range(unsigned long start, unsigned long end, const struct file *file,
			const struct hpmmap_grant *grant)
{
	unsigned long stop = end;
	int ret;

	while (start < end && find_attached(&start, &stop, file, grant)) {
		ret = vm_munmap(start, stop - start);
		if (ret)
			return ret;
		start = stop;
		stop = end;
		cond_resched();
	}
	return 0;
}

/**
 * hpmmap_detach() - unmap an attachment of the caller's
 * @addr: an address in it
 *
 * Return: 0, also where nothing is mapped; -EINVAL where something else is, or an errno of
 * munmap(2).
 */
int hpmmap_detach(unsigned long addr)
{
	struct mm_struct *mm = current->mm;
	const struct attachment *att;
	struct vm_area_struct *vma;
	struct file *file = NULL;
	unsigned long start = 0;
	int ret = 0;

	if (mmap_read_lock_killable(mm))
		return -EINTR;
	vma = vma_lookup(mm, addr);
	if (vma && is_window(vma)) {
		file = get_file(vma->vm_file);
		start = vma->vm_start + attachment_of(vma)->start -
			(vma->vm_pgoff << PAGE_SHIFT);
	} else if (vma) {
		ret = -EINVAL;
	}
	mmap_read_unlock(mm);
	if (!file)
		return ret;
	/* It may be in pieces. */
	att = file->private_data;
	ret = detach_range(start, start + att->len, file, NULL);
	fput(file);
	return ret;
}

/**
 * hpmmap_detach_grant() - unmap all of the caller's attachments that rest on a grant
 * @grant: the grant; not through another one
 *
 * Return: 0 or an errno of munmap(2).
 */
int hpmmap_detach_grant(const struct hpmmap_grant *grant)
{
	return detach_range(0, TASK_SIZE_MAX, NULL, grant);
}
