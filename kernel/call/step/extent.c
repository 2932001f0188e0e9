// SPDX-License-Identifier: GPL-2.0
/*
 * Calls in the static region, one mapping that was there before the program ran: they change
 * which extents of it are in use, and no page table. See docs/design/static.md.
 *
 * The kernel writes to the region through the program's own mapping, so it can write only where
 * the program could: safety does not depend on the extents. A call that has no answer here takes
 * its range out of the region first, and so does one that finds the range changed by a call
 * without a hook.
 */
#include <linux/maple_tree.h>

#include "hook.h"
#include "hpmmap.h"
#include "as/own/ctx.h"
#include "as/own/stats.h"
#include "as/map/vma.h"
#include "as/change/change.h"
#include "call/step/extent.h"
#include "call/step/fresh.h"
#include "call/step/remap.h"

/* What a part is: free, the program's, or not the region's any more, for good. */
#define FREE	BIT(0)
#define USED	BIT(1)
#define LEFT	BIT(2)

/* What may differ from the region's mapping: what is locked is as resident as the rest. */
#define HARMLESS_FLAGS (VM_LOCKED | VM_LOCKONFAULT | VM_SOFTDIRTY)

/* An extent that the caller has just got; @clean: all of it is zero. */
struct claim {
	unsigned long start;
	unsigned long end;
	bool clean;
};

static bool touches(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end)
{
	return start < ctx->region.end && end > ctx->region.start;
}

static bool contains(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end)
{
	return start >= ctx->region.start && end <= ctx->region.end && start < end;
}

/* What a range begins with, and in @next where that ends. */
static unsigned int run(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end, unsigned long *next)
{
	MA_STATE(mas, &ctx->region.extents, start, start);
	void *entry;

	mas_lock(&mas);
	entry = mas_walk(&mas);
	mas_unlock(&mas);
	*next = min(end - 1, mas.last) + 1;
	return entry ? xa_to_value(entry) : FREE;
}

/* All that a range consists of, and in @used how much of it is used. */
static unsigned int runs(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end, unsigned long *used)
{
	unsigned int all = 0, one;
	unsigned long next;

	for (*used = 0; start < end; start = next) {
		one = run(ctx, start, end, &next);
		cond_resched();
		all |= one;
		*used += one == USED ? next - start : 0;
	}
	return all;
}

/* Is a range mapped as the region was? */
static bool is_plain(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end)
{
	struct vm_area_struct *vma;
	bool ret;

	mmap_read_lock(ctx->mm);
	vma = vma_lookup(ctx->mm, start);
	ret = vma && vma->vm_end >= end && hpmmap_vma_is_ours(vma) && !vma_policy(vma) &&
	      !((vma->vm_flags ^ ctx->region.flags) & ~HARMLESS_FLAGS);
	mmap_read_unlock(ctx->mm);
	return ret;
}

/* Is all of a range the region's, and one of @what? @used: out: how much of it is used. */
static bool is_all(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end,
		   unsigned int what, unsigned long *used)
{
	return contains(ctx, start, end) && !(runs(ctx, start, end, used) & ~what) &&
	       is_plain(ctx, start, end);
}

/*
 * May a change of a range make two parts more? As many as Linux allows mappings; all are counted only
 * when there may be too many. A part as a whole may change always.
 */
static bool has_room(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end)
{
	typeof(ctx->region) *r = &ctx->region;
	MA_STATE(mas, &r->extents, start, start);
	unsigned long addr, next;

	if (unlikely(r->parts >= DEFAULT_MAX_MAP_COUNT))
		for (r->parts = 0, addr = r->start; addr < r->end; addr = next) {
			run(ctx, addr, r->end, &next);
			r->parts++;
			cond_resched();
		}
	r->parts += 2;
	if (likely(r->parts <= DEFAULT_MAX_MAP_COUNT))
		return true;
	mas_lock(&mas);
	mas_walk(&mas);
	mas_unlock(&mas);
	return mas.index == start && mas.last == end - 1;
}

/* A range within the region, of which @used is used, becomes @what; -ENOMEM: nothing has changed. */
static int set(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end, unsigned int what,
	       unsigned long used)
{
	void *entry = what == FREE ? NULL : xa_mk_value(what);
	unsigned long from = start, to = end;
	typeof(ctx->region) *r = &ctx->region;
	MA_STATE(mas, &r->extents, start - 1, start - 1);

	lockdep_assert_held(&ctx->ops);
	/* It is one part with those of its kind beside it, which a maple tree does not join. */
	if (entry) {
		mas_lock(&mas);
		if (mas_walk(&mas) == entry)
			from = mas.index;
		mas_set(&mas, end);
		if (mas_walk(&mas) == entry)
			to = mas.last + 1;
		mas_unlock(&mas);
	}
	if (!has_room(ctx, start, end) ||
	    mtree_store_range(&r->extents, from, to - 1, entry, GFP_KERNEL_ACCOUNT))
		return -ENOMEM;
	WRITE_ONCE(r->used, r->used - used + (what == USED ? end - start : 0));
	if (end > r->clean_start && start <= r->clean_start)
		r->clean_start = end;
	else if (end > r->clean_start && start < r->clean_end)
		r->clean_end = start;
	return 0;
}

/*
 * A free range for mmap(2), or 0: a clean one first. The lower half is left to the heap as long as
 * the upper one has room.
 */
static unsigned long find(struct hpmmap_ctx *ctx, unsigned long len)
{
	typeof(ctx->region) *r = &ctx->region;
	unsigned long half = (r->end - r->start) / 2;
	MA_STATE(mas, &r->extents, 0, 0);
	bool found;

	if (len >= r->end - r->start)
		return 0;
	if (r->clean_end >= max(r->start + half, r->clean_start) + len)
		return r->clean_end - len;
	mas_lock(&mas);
	found = len < half && !mas_empty_area_rev(&mas, r->start + half, r->end - 1, len);
	if (!found) {
		mas_set(&mas, 0);
		found = !mas_empty_area_rev(&mas, r->start, r->end - 1, len);
	}
	mas_unlock(&mas);
	return found ? mas.index : 0;
}

/*
 * What of a range is the region's leaves it. Free parts are unmapped, so that the call finds what
 * it would find natively. Returns 0 or an errno.
 */
static long leave(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end)
{
	unsigned long next;
	long ret = 0;

	start = max(start & PAGE_MASK, ctx->region.start);
	end = min(PAGE_ALIGN(end), ctx->region.end);
	for (; start < end && !ret; start = next) {
		unsigned int was = run(ctx, start, end, &next);
		struct hpmmap_change c = HPMMAP_CHANGE(ctx, start, next);

		if (was == LEFT)
			continue;
		ret = set(ctx, start, next, LEFT, was == USED ? next - start : 0);
		/* Something else may be there by now. */
		if (!ret && was == FREE && is_plain(ctx, start, next)) {
			hpmmap_change_begin(&c);
			ret = vm_munmap(start, next - start);
			hpmmap_change_settle(&c, ret ? HPMMAP_NOTHING : HPMMAP_GONE, NULL);
		}
	}
	return ret;
}

/* The same for a call that is not answered here, without ctx->ops; only SIGKILL ends the wait for it. */
long hpmmap_extent_leave(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end)
{
	long ret;

	if (likely(!touches(ctx, start, end)))
		return 0;
	if (mutex_lock_killable(&ctx->ops))
		return -ERESTARTNOINTR;
	ret = leave(ctx, start, end);
	hpmmap_ops_unlock(ctx);
	return ret;
}

static long no_answer(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end)
{
	return leave(ctx, start, end) ?: HPMMAP_NO_ANSWER;
}

/* A range, of which @used is used, is used from now on, with what is in it. */
static int claim(struct hpmmap_ctx *ctx, struct claim *c, unsigned long start, unsigned long end,
		 unsigned long used)
{
	*c = (struct claim) {
		.start = start,
		.end = end,
		.clean = start >= ctx->region.clean_start && end <= ctx->region.clean_end,
	};
	return set(ctx, start, end, USED, used);
}

/* Any free range; -ENOMEM where there is none under strict, else HPMMAP_NO_ANSWER. */
static long claim_any(struct hpmmap_ctx *ctx, struct claim *c, unsigned long len)
{
	unsigned long addr;

	while ((addr = find(ctx, len))) {
		if (is_plain(ctx, addr, addr + len))
			return claim(ctx, c, addr, addr + len, 0);
		/* It stays mapped: it may be the program's. */
		if (set(ctx, addr, addr + len, LEFT, 0))
			return -ENOMEM;
		cond_resched();
	}
	if (!ctx->job->strict)
		return HPMMAP_NO_ANSWER;
	hpmmap_count_refusal(ctx);
	return -ENOMEM;
}

static int clear(unsigned long start, unsigned long end)
{
	unsigned long next;

	for (; start < end; start = next) {
		next = min(end, start + SLOT_SIZE);
		if (fatal_signal_pending(current))
			return -EINTR;
		if (clear_user((void __user *)start, next - start))
			return -EFAULT;
		cond_resched();
	}
	return 0;
}

/* Makes a claim zero from @from on. Needs no lock. */
static int claim_clear(const struct claim *c, unsigned long from)
{
	return c->clean ? 0 : clear(from, c->end);
}

/* By way of a page of the kernel's. */
static int copy(unsigned long to, unsigned long from, unsigned long len)
{
	void *buf = (void *)__get_free_page(GFP_KERNEL);
	int ret = buf ? 0 : -ENOMEM;

	for (; !ret && len; to += PAGE_SIZE, from += PAGE_SIZE, len -= PAGE_SIZE) {
		if (fatal_signal_pending(current))
			ret = -EINTR;
		else if (copy_from_user(buf, (void __user *)from, PAGE_SIZE) ||
			 copy_to_user((void __user *)to, buf, PAGE_SIZE))
			ret = -EFAULT;
		cond_resched();
	}
	free_page((unsigned long)buf);
	return ret;
}

/* A call that has begun at @since has its answer; ctx->ops is released. */
static long end_call(struct hpmmap_ctx *ctx, enum hpmmap_timed call, u64 since, long ret)
{
	if (ret != HPMMAP_NO_ANSWER)
		hpmmap_count_call(ctx, call, since);
	hpmmap_ops_unlock(ctx);
	return ret;
}

/* ctx->ops is held. */
static long mmap_claim(struct hpmmap_ctx *ctx, const struct pt_regs *regs, struct claim *c)
{
	unsigned long addr = regs->di & PAGE_MASK, end = addr + PAGE_ALIGN(regs->si);
	bool keeps = regs->r10 & MAP_FIXED_NOREPLACE, fixed = keeps || regs->r10 & MAP_FIXED;
	unsigned long used;

	if (is_all(ctx, addr, end, fixed && !keeps ? FREE | USED : FREE, &used))
		return claim(ctx, c, addr, end, used);
	/* An address that is free natively is taken there, too. */
	if (fixed || (addr && !(runs(ctx, addr, end, &used) & USED)))
		return no_answer(ctx, addr, end);
	return claim_any(ctx, c, end - addr);
}

/* Without an address in the region only if none is asked for. */
static bool mmap_is_meant(struct hpmmap_ctx *ctx, const struct pt_regs *regs)
{
	unsigned long addr = regs->di & PAGE_MASK, flags = regs->r10;

	return ctx->region.end && regs->dx == (PROT_READ | PROT_WRITE) &&
	       !(current->personality & READ_IMPLIES_EXEC) &&
	       !(flags & (MAP_NORESERVE | MAP_STACK | MAP_LOCKED | MAP_32BIT)) &&
	       !(ctx->mm->def_flags & VM_LOCKED) && !in_32bit_syscall() &&
	       (addr ? contains(ctx, addr, addr + PAGE_ALIGN(regs->si)) :
		       !(flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)));
}

/* mmap(2) of private anonymous memory. */
long hpmmap_extent_mmap(struct hpmmap_ctx *ctx, const struct pt_regs *regs)
{
	bool dirty = hpmmap_wants_reuse(regs->dx, regs->r10) && !ctx->stats.forked;
	struct claim c;
	int tries = 4;
	u64 since;
	long ret;

	if (!mmap_is_meant(ctx, regs))
		return HPMMAP_NO_ANSWER;
	do {
		since = get_cycles();
		ret = hpmmap_ops_lock(ctx);
		if (ret)
			return ret;
		ret = end_call(ctx, HPMMAP_TIMED_MMAP, since, mmap_claim(ctx, regs, &c));
		if (ret)
			return ret;
		ret = dirty ? 0 : claim_clear(&c, c.start);
		if (ret != -EFAULT)
			return ret ?: c.start;
		ret = hpmmap_extent_leave(ctx, c.start, c.end);
	} while (!ret && --tries);
	return ret ?: -ENOMEM;
}

/* A range becomes free. */
static long give_back(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end)
{
	unsigned long used;

	return is_all(ctx, start, end, FREE | USED, &used) ? set(ctx, start, end, FREE, used) :
							     no_answer(ctx, start, end);
}

/* munmap(2). */
long hpmmap_extent_munmap(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end)
{
	u64 since = get_cycles();
	long ret;

	if (!touches(ctx, start, end))
		return HPMMAP_NO_ANSWER;
	ret = hpmmap_ops_lock(ctx);
	return ret ?: end_call(ctx, HPMMAP_TIMED_MUNMAP, since, give_back(ctx, start, end));
}

static bool is_hint(int advice)
{
	switch (advice) {
	case MADV_NORMAL ... MADV_WILLNEED:
	case MADV_FREE:
	case MADV_HUGEPAGE ... MADV_NOHUGEPAGE:
	case MADV_COLD ... MADV_POPULATE_WRITE:
	case MADV_COLLAPSE:
	case HPMMAP_MADV_REUSE:
		return true;
	default:
		return false;
	}
}

/* madvise(2): hints mean nothing, and what is discarded is zeroed, but not what is locked. */
long hpmmap_extent_madvise(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end, int advice)
{
	bool discard = advice == MADV_DONTNEED || advice == MADV_DONTNEED_LOCKED;
	unsigned long used;
	long ret;

	if (!touches(ctx, start, end))
		return HPMMAP_NO_ANSWER;
	ret = hpmmap_ops_lock(ctx);
	if (ret)
		return ret;
	if (!(discard || is_hint(advice)) || READ_ONCE(ctx->mm->locked_vm) ||
	    !is_all(ctx, start, end, USED, &used))
		ret = no_answer(ctx, start, end);
	hpmmap_ops_unlock(ctx);
	if (!ret && discard)
		ret = clear(start, end);
	return ret != -EFAULT ? ret : hpmmap_extent_leave(ctx, start, end) ?: HPMMAP_NO_ANSWER;
}

/* Where an extent is to be, an address or an errno. @c: what is new of it. ctx->ops is held. */
static long remap_claim(struct hpmmap_ctx *ctx, const struct hpmmap_remap *r, struct claim *c)
{
	unsigned long end = r->addr + r->old_len, new_end = r->addr + r->new_len, used;
	/* An ordinary mapping may grow into what is free behind it, too. */
	bool may_grow = contains(ctx, end, new_end) && !(runs(ctx, end, new_end, &used) & USED);
	unsigned long last = may_grow ? new_end : end;
	long ret;

	*c = (struct claim) {};
	if (r->flags & (MREMAP_FIXED | MREMAP_DONTUNMAP) || !is_all(ctx, r->addr, end, USED, &used))
		return no_answer(ctx, r->addr, last);
	if (r->new_len <= r->old_len)
		ret = new_end == end ? 0 : give_back(ctx, new_end, end);
	else if (is_all(ctx, end, new_end, FREE, &used))
		ret = claim(ctx, c, end, new_end, 0);
	else
		ret = r->flags & MREMAP_MAYMOVE ? claim_any(ctx, c, r->new_len) : -ENOMEM;
	if (ret)
		return ret == HPMMAP_NO_ANSWER ? no_answer(ctx, r->addr, last) : ret;
	return c->end == c->start + r->new_len ? c->start : r->addr;
}

/* Gives a range back at the end of a call that cannot be restarted. On failure the range stays in use. */
static void drop(struct hpmmap_ctx *ctx, unsigned long start, unsigned long end)
{
	if (mutex_lock_killable(&ctx->ops))
		return;
	give_back(ctx, start, end);
	hpmmap_ops_unlock(ctx);
}

/* mremap(2). */
long hpmmap_extent_mremap(struct hpmmap_ctx *ctx, const struct hpmmap_remap *r)
{
	unsigned long from = r->addr, old_end = from + r->old_len;
	u64 since = get_cycles();
	struct claim c;
	long ret, to;

	ret = r->flags & MREMAP_FIXED ?
	      hpmmap_extent_leave(ctx, r->new_addr, r->new_addr + r->new_len) : 0;
	if (ret || !touches(ctx, from, old_end))
		return ret ?: HPMMAP_NO_ANSWER;
	ret = hpmmap_ops_lock(ctx);
	if (ret)
		return ret;
	to = end_call(ctx, HPMMAP_TIMED_MREMAP, since, remap_claim(ctx, r, &c));
	if (IS_ERR_VALUE(to) || !c.end)
		return to;
	ret = to == from ? claim_clear(&c, c.start) :
	      copy(to, from, r->old_len) ?: claim_clear(&c, to + r->old_len);
	if (ret == -EFAULT)
		return hpmmap_extent_leave(ctx, c.start, c.end) ?: ret;
	if (ret)
		drop(ctx, c.start, c.end);
	else if (to != from)
		drop(ctx, from, old_end);
	return ret ?: to;
}

/* brk(2): the heap's end moves. ctx->ops is held. Returns 0, or an errno where it stays. */
long hpmmap_extent_brk(struct hpmmap_ctx *ctx, unsigned long old_end, unsigned long end)
{
	unsigned long used;
	struct claim c;
	long ret;

	if (!ctx->region.end || ctx->heap_start != ctx->region.start)
		return HPMMAP_NO_ANSWER;
	if (end < old_end)
		return give_back(ctx, end, old_end);
	if (!contains(ctx, old_end, end) || runs(ctx, old_end, end, &used) & USED)
		return -ENOMEM;
	/* Above an ordinary heap a page stays free; and the region cannot be executed. */
	if (!is_all(ctx, old_end, end, FREE, &used) || current->personality & READ_IMPLIES_EXEC)
		return no_answer(ctx, old_end, end + PAGE_SIZE);
	ret = claim(ctx, &c, old_end, end, 0) ?: claim_clear(&c, old_end);
	return ret == -EFAULT ? leave(ctx, old_end, end) ?: ret : ret;
}

/*
 * The region of the child @to, whose address space is being copied. Without memory for it the child
 * has none: its mapping is one like others.
 */
void hpmmap_extents_copy(struct hpmmap_ctx *to, struct hpmmap_ctx *from)
{
	unsigned long start = from->region.start, end = from->region.end, next;
	struct maple_tree extents = to->region.extents;

	lockdep_assert_held(&from->ops);
	to->region = from->region;
	to->region.extents = extents;
	for (; start < end; start = next) {
		unsigned int what = run(from, start, end, &next);

		if (what != FREE && mtree_store_range(&to->region.extents, start, next - 1,
						      xa_mk_value(what), GFP_KERNEL_ACCOUNT))
			to->region.start = to->region.end = to->region.used = end = 0;
		cond_resched();
	}
}
