// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that Linux gets back, for calls that need anonymous memory of its own: a registration
 * with a userfaultfd, MADV_MERGEABLE, MADV_WIPEONFORK; and for mbind(2), see mbind.c.
 *
 * The contents are copied to a new private mapping elsewhere, which then takes the place of ours
 * in one step. Meanwhile nothing of the range is mapped, and a touch waits: what was copied does
 * not change any more. Pages of zeros are not copied: they are missing afterwards as they are in
 * fresh memory, or the zero page.
 */
#include <linux/pkeys.h>

#include "hook.h"
#include "hpmmap.h"
#include "mem/block/block.h"
#include "as/own/ctx.h"
#include "as/own/release.h"
#include "as/own/stats.h"
#include "as/map/range.h"
#include "as/map/vma.h"
#include "as/store/freeze.h"
#include "as/store/store.h"
#include "as/change/change.h"
#include "as/change/handback.h"

/* What madvise(2) sets of a mapping, and can be set of a private one. */
#define ADVICE_FLAGS (VM_DONTCOPY | VM_DONTDUMP | VM_SEQ_READ | VM_RAND_READ | \
		      VM_HUGEPAGE | VM_NOHUGEPAGE)

#ifdef CONFIG_ARCH_HAS_PKEYS
#define PKEY_FLAGS ARCH_VM_PKEY_FLAGS
#else
#define PKEY_FLAGS VM_NONE
#endif

/* What one mapping of ours has of the range. */
struct piece {
	unsigned long start;	/* first address */
	unsigned long end;	/* end */
	vm_flags_t vm_flags;	/* of the mapping */
	bool sealed;		/* by mseal(2) */
};

/* The first piece of [start, end); false if there is none. */
static bool piece_find(struct hpmmap_ctx *ctx, unsigned long start,
		       unsigned long end, struct piece *p)
{
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, ctx->mm, start);
	bool found = false;

	mmap_read_lock(ctx->mm);
	for_each_vma_range(vmi, vma, end) {
		found = hpmmap_vma_is_ours(vma);
		if (!found)
			continue;
		p->start = max(start, vma->vm_start);
		p->end = min(end, vma->vm_end);
		p->vm_flags = vma->vm_flags;
		p->sealed = compat_vma_is_sealed(vma);
		break;
	}
	mmap_read_unlock(ctx->mm);
	return found;
}

static size_t piece_len(const struct piece *p)
{
	return p->end - p->start;
}

/*
 * A device, a pipe or another process would keep the old pages. False for a task that is being
 * killed, too: nothing is copied for it.
 */
static bool is_pinned(struct hpmmap_ctx *ctx, const struct piece *p)
{
	struct hpmmap_block *block;
	unsigned long slot;
	bool pinned = false;

	mutex_lock(&ctx->lock);
	hpmmap_for_each_block(ctx, slot, block, slot_of(p->start),
			  slot_of(p->end - 1)) {
		/* What is shared is not written to. */
		pinned = !hpmmap_block_is_shared(block) &&
			 !hpmmap_block_wait_unpinned(ctx, block);
		if (pinned || fatal_signal_pending(current))
			break;
		cond_resched();
	}
	mutex_unlock(&ctx->lock);
	return pinned;
}

/*
 * What a page has, which nothing else need know to be there. Returns 1 if it has contents,
 * now in @buf, 0 if it is zero, or -EFAULT after a memory error.
 */
int hpmmap_handback_read(struct hpmmap_ctx *ctx, unsigned long addr, void *buf)
{
	struct hpmmap_block *block;
	int ret = 0;

	mutex_lock(&ctx->lock);
	block = hpmmap_store_load(ctx, slot_of(addr));
	/* A fault of another thread may be clearing it. */
	if (block && block->folio)
		folio_wait_locked(block->folio);
	if (block)
		ret = hpmmap_block_read(block, page_in_slot(addr), buf);
	mutex_unlock(&ctx->lock);
	return ret;
}

/* @zeros: a page of zeros is read, so that the zero page is there. */
static int contents_copy(struct hpmmap_ctx *ctx, const struct piece *p,
			 unsigned long to, bool zeros)
{
	unsigned long addr = p->start;
	u8 *buf = (void *)__get_free_page(GFP_KERNEL);
	int ret = 0;

	if (!buf)
		return -ENOMEM;
	for (; !ret; addr += PAGE_SIZE) {
		if (addr < p->end)
			addr = hpmmap_store_next(ctx, addr, p->end);
		if (addr >= p->end)
			break;
		ret = hpmmap_handback_read(ctx, addr, buf);
		if (ret > 0)
			ret = copy_to_user((void __user *)(to + addr - p->start),
					   buf, PAGE_SIZE) ? -ENOMEM : 0;
		else if (!ret && zeros)
			ret = get_user(*buf, (u8 __user *)(to + addr - p->start)) ? -ENOMEM : 0;
		if (fatal_signal_pending(current))
			ret = -EINTR;
		cond_resched();
	}
	free_page((unsigned long)buf);
	return ret;
}

/* Sets flags of a mapping that is [to, to + len) and nothing else. */
static bool flags_mod(struct hpmmap_ctx *ctx, unsigned long to, size_t len,
		      vm_flags_t set, vm_flags_t clear)
{
	struct vm_area_struct *vma;
	bool alone;

	if (mmap_write_lock_killable(ctx->mm))
		return false;
	vma = vma_lookup(ctx->mm, to);
	alone = vma && vma_is_anonymous(vma) && vma->vm_start == to &&
		vma->vm_end == to + len;
	if (alone)
		compat_vm_flags_mod(vma, set, clear);
	mmap_write_unlock(ctx->mm);
	return alone;
}

/* A private mapping of zeros, of which each page is on its own. */
static unsigned long place_make(struct hpmmap_ctx *ctx, const struct piece *p)
{
	static const int advice[] = {
		MADV_NOHUGEPAGE, MADV_DONTDUMP, MADV_SEQUENTIAL,
	};
	size_t len = piece_len(p);
	unsigned long flags = MAP_PRIVATE | MAP_ANONYMOUS, to;
	int i;

	if (p->vm_flags & VM_NORESERVE)
		flags |= MAP_NORESERVE;
	to = vm_mmap(NULL, 0, len, PROT_READ | PROT_WRITE, flags, 0);
	if (IS_ERR_VALUE(to))
		return to;
	/* An advice keeps it from its neighbours: one that they do not have. */
	for (i = 0; i < ARRAY_SIZE(advice); i++) {
		hpmmap_madvise(to, len, advice[i]);
		if (flags_mod(ctx, to, len, VM_NOHUGEPAGE, 0))
			return to;
		if (fatal_signal_pending(current))
			break;
	}
	vm_munmap(to, len);
	return -ENOMEM;
}

static long place_protect(const struct piece *p, unsigned long to,
			  unsigned long prot)
{
	struct pt_regs regs = { .di = to, .si = piece_len(p), .dx = prot };
	unsigned int was = hpmmap_rights_keep();
	long ret = hpmmap_call_orig(HPMMAP_CALL_MPROTECT, &regs);

	current->personality = was;
	return ret;
}

/*
 * Protection, key and advice, as the piece has them. pkey_mprotect(2) refuses a
 * key that is free by now, or Linux's own for what may only be executed;
 * mprotect(2) keeps the one that the mapping has, when it changes something.
 */
static long place_finish(struct hpmmap_ctx *ctx, const struct piece *p,
			 unsigned long to)
{
	size_t len = piece_len(p);
	long ret = 0;

	if (p->vm_flags & PKEY_FLAGS) {
		ret = place_protect(p, to, PROT_NONE);
		if (!ret && !flags_mod(ctx, to, len, p->vm_flags & PKEY_FLAGS,
				       PKEY_FLAGS))
			ret = -ENOMEM;
	}
	if (!ret)
		ret = place_protect(p, to, hpmmap_vma_prot(p->vm_flags));
	if (ret)
		return ret;
	return flags_mod(ctx, to, len, p->vm_flags & ADVICE_FLAGS,
			 ADVICE_FLAGS) ? 0 : -ENOMEM;
}

/* In one step for all other threads. */
static long place_move(struct hpmmap_ctx *ctx, const struct piece *p,
		       unsigned long to)
{
	struct pt_regs regs = {
		.di = to,
		.si = piece_len(p),
		.dx = piece_len(p),
		.r10 = MREMAP_MAYMOVE | MREMAP_FIXED,
		.r8 = p->start,
	};
	long ret = hpmmap_call_orig(HPMMAP_CALL_MREMAP, &regs);

	if (!IS_ERR_VALUE(ret))
		return 0;
	hpmmap_range_kill_if_lost(ctx, p->start, p->end);
	return ret;
}

/* mbind(2) for a place before it has contents. */
static long place_bind(const struct piece *p, unsigned long to,
		       const struct pt_regs *mbind)
{
	struct pt_regs regs;

	if (!mbind)
		return 0;
	regs = *mbind;
	regs.di = to;
	regs.si = piece_len(p);
	/* mlockall(2): it has its pages already. */
	if (current->mm->def_flags & VM_LOCKED)
		regs.r9 |= MPOL_MF_MOVE;
	return hpmmap_call_orig(HPMMAP_CALL_MBIND, &regs);
}

static long piece_hand_back(struct hpmmap_ctx *ctx, const struct piece *p,
			    const struct pt_regs *mbind, bool zeros)
{
	struct pt_regs regs = {
		.di = p->start,
		.si = piece_len(p),
		.dx = p->vm_flags & VM_LOCKONFAULT ? MLOCK_ONFAULT : 0,
	};
	struct hpmmap_change c = HPMMAP_CHANGE(ctx, p->start, p->end, .lazy = true);
	unsigned long to;
	long ret;

	if (p->sealed)
		return -EPERM;
	to = place_make(ctx, p);
	if (IS_ERR_VALUE(to))
		return to;
	ret = place_bind(p, to, mbind);
	if (!ret)
		ret = hpmmap_freeze(ctx, p->start, p->end, false);
	if (!ret) {
		ret = is_pinned(ctx, p) ? -EBUSY : contents_copy(ctx, p, to, zeros);
		if (!ret)
			ret = place_finish(ctx, p, to);
		if (!ret)
			ret = place_move(ctx, p, to);
		hpmmap_thaw(ctx);
	}
	if (ret) {
		vm_munmap(to, piece_len(p));
		hpmmap_change_settle(&c, HPMMAP_FAILED, NULL);
		return ret;
	}
	hpmmap_change_settle(&c, HPMMAP_CUT, NULL);
	hpmmap_count_fallback(ctx, HPMMAP_FALLBACK_ASKED, piece_len(p));
	if (p->vm_flags & VM_LOCKED)
		ret = hpmmap_call_orig(HPMMAP_CALL_MLOCK2, &regs);
	return ret;
}

/*
 * As hpmmap_handback(), with what mbind(2) is told except the range, or NULL for none.
 * ctx->ops is held.
 */
long hpmmap_handback_bound(struct hpmmap_ctx *ctx, unsigned long start,
			   unsigned long end, const struct pt_regs *mbind,
			   bool skip_sealed, bool zeros)
{
	struct piece p;
	long ret = 0;

	lockdep_assert_held(&ctx->ops);
	for (; !ret && start < end && piece_find(ctx, start, end, &p);
	     start = p.end)
		if (!p.sealed || !skip_sealed)
			ret = piece_hand_back(ctx, &p, mbind, zeros);
	return ret;
}

/*
 * Memory of ours becomes anonymous memory of Linux. Contents, protection and advice stay; a
 * policy of mbind(2) does not. @skip_sealed: what is sealed stays as it is, without an
 * error. @zeros: pages of zeros are resident, too. ctx->ops is not held.
 *
 * Returns 0; -EBUSY where a block is pinned, -EPERM for what is sealed, -ENOMEM, or an
 * errno that restarts the call. A part may have been handed back then.
 */
long hpmmap_handback(struct hpmmap_ctx *ctx, unsigned long start,
		     unsigned long end, bool skip_sealed, bool zeros)
{
	long ret;

	lockdep_assert_not_held(&ctx->ops);
	ret = hpmmap_ops_lock(ctx);
	if (ret)
		return ret;
	ret = hpmmap_handback_bound(ctx, start, end, NULL, skip_sealed, zeros);
	hpmmap_ops_unlock(ctx);
	return ret;
}
