// SPDX-License-Identifier: GPL-2.0
/*
 * Memory errors in the pools.
 *
 * Whoever learns of one, a machine check, the firmware, an administrator or
 * madvise(2), tells memory_failure(), and soft_offline_page() of memory that may
 * fail soon. For memory that is offline these only say that it is not theirs, so
 * they are not entered for pages of ours: the functions here stand in for them. What is
 * Linux's is handled by Linux; if it is a page that stands in for ours, it is unmapped then.
 *
 * A bad page is marked as Linux marks its own and taken out of all page tables.
 * Who touches it gets SIGBUS from then on; the other pages of its block stay in
 * use, by entries of 4 KB, until their users give them up. Then the block is bad.
 */
#include <linux/delay.h>
#include <linux/ftrace.h>
#include <linux/memory_hotplug.h>
#include <linux/module.h>
#include <linux/oom.h>
#include <linux/pagemap.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>

#include "hpmmap.h"
#include "mem/account.h"
#include "mem/block.h"
#include "mem/pinned.h"
#include "mem/poison.h"
#include "mem/pool.h"
#include "mem/section.h"
#include "as/commit.h"
#include "as/ctx.h"
#include "as/exchange.h"
#include "as/failure.h"
#include "as/life.h"
#include "as/reuse.h"
#include "as/store.h"
#include "as/tell.h"
#include "as/vma.h"
#include "as/window.h"

/* How long to wait for all who are in the way, in steps of 10 ms. */
#define BUSY_STEPS 50

/* The same for mmap_lock where only the mapping tells whose file it is. */
#define UNMAP_STEPS 8

/* How long to move contents: thousands may share a block. */
#define MOVE_MS 5000

/* How long to wait for a free block that is being zeroed, in steps of 1 ms. */
#define ZERO_STEPS 1000

/* The call of the tracer lies at the start, behind the ENDBR of IBT. */
#define MAX_ENTRY_OFFSET 8

/* An error was real: nothing is good again. Protected by hpmmap_poison_lock(). */
static bool seen_real;

static bool guarded;

/* Those whose blocks are in no store. */
static const struct hpmmap_failure_files *files;

/**
 * struct use - where a block is
 * @ctx: the context, with a reference
 * @slot: the slot
 * @sees: the page that failed has contents for it
 */
struct use {
	struct hpmmap_ctx *ctx;
	unsigned long slot;
	bool sees;
};

static bool is_behind(const struct hpmmap_block *draft,
		      const struct hpmmap_block *block)
{
	return draft->draft && draft->draft->behind == block;
}

/*
 * The slot of a context's store that has a block: the likely one, or any, also one
 * with a draft of it.
 */
static unsigned long slot_with(struct hpmmap_ctx *ctx,
			       struct hpmmap_block *block, bool any)
{
	unsigned long slot = READ_ONCE(block->slot), found = NO_SLOT;
	XA_STATE(xas, &ctx->store, 0);
	struct hpmmap_block *other;
	unsigned int looks = 0;

	if (slot != NO_SLOT && hpmmap_store_load(ctx, slot) == block)
		return slot;
	if (!any)
		return NO_SLOT;
	/* What is in the store stays: who ends takes it out with the store's lock alone. */
	mutex_lock(&ctx->lock);
	xas_lock(&xas);
	xas_for_each(&xas, other, ULONG_MAX) {
		if (other == block || is_behind(other, block)) {
			found = xas.xa_index;
			break;
		}
		if (++looks % XA_CHECK_SCHED)
			continue;
		/* Not xas_pause(): a node may have gone with its last entry. */
		xas_set(&xas, xas.xa_index + 1);
		xas_unlock(&xas);
		cond_resched();
		xas_lock(&xas);
	}
	xas_unlock(&xas);
	mutex_unlock(&ctx->lock);
	return found;
}

static bool has_use(const struct use *uses, unsigned long nr, const struct hpmmap_ctx *ctx)
{
	while (nr)
		if (uses[--nr].ctx == ctx)
			return true;
	return false;
}

/* All stores that a block is in; for uses_put(). NULL without memory. */
static struct use *uses_get(struct hpmmap_block *block, unsigned long *nr)
{
	unsigned long most = atomic_read(&block->users), slot;
	struct use *uses = kvcalloc(most + 1, sizeof(*uses), GFP_KERNEL);
	struct hpmmap_ctx *ctx;
	int any;

	*nr = 0;
	/* A store is searched only if some are missing. */
	for (any = 0; any < 2 && uses && *nr < most; any++)
		hpmmap_for_each_ctx(ctx) {
			slot = *nr == most || has_use(uses, *nr, ctx) ? NO_SLOT :
			       slot_with(ctx, block, any);
			if (slot == NO_SLOT)
				continue;
			refcount_inc(&ctx->refs);
			uses[(*nr)++] = (struct use) { ctx, slot, false };
			cond_resched();
		}
	return uses;
}

static void uses_put(struct use *uses, unsigned long nr)
{
	while (nr)
		hpmmap_ctx_put(uses[--nr].ctx);
	kvfree(uses);
}

/* Does a page have contents for who uses its block? A draft may have others. */
static bool use_sees(const struct use *use, unsigned long pfn)
{
	unsigned int i = pfn & (SLOT_PAGES - 1);
	struct hpmmap_block *block;
	bool ret;

	mutex_lock(&use->ctx->lock);
	/* As in slot_with(): a draft goes when it is out of the store. */
	xa_lock(&use->ctx->store);
	block = hpmmap_store_load(use->ctx, use->slot);
	ret = block && !test_bit(i, block->stale) &&
	      hpmmap_block_page(block, i) == pfn_to_page(pfn);
	xa_unlock(&use->ctx->store);
	mutex_unlock(&use->ctx->lock);
	return ret;
}

/* Maps what is left of a slot, so that nobody takes a fault for each page. */
static void use_remap(const struct use *use, struct hpmmap_block *block)
{
	bool mine;

	mutex_lock(&use->ctx->lock);
	mine = hpmmap_store_load(use->ctx, use->slot) == block &&
	       !block->draft && !hpmmap_block_is_shared(block);
	mutex_unlock(&use->ctx->lock);
	if (mine)
		hpmmap_vma_slot_owned(use->ctx, use->slot);
}

/*
 * Nobody has the page of an address mapped afterwards, nor in a window, and nobody will have.
 * mmap_lock may be held for long, and is only tried. @use, if not NULL, is mapped again but
 * for that page.
 */
static void addr_unmap(struct hpmmap_ctx *ctx, unsigned long addr, const struct use *use,
		       struct hpmmap_block *block)
{
	struct vm_area_struct *vma;
	int i;

	/* Who found the page good has mapped it by then. */
	mutex_lock(&ctx->lock);
	mutex_unlock(&ctx->lock);
	hpmmap_window_zap(ctx, addr, addr + PAGE_SIZE);
	/* By its file, and by its mapping while that may be another file's. */
	unmap_mapping_range(ctx->file->f_mapping, addr, PAGE_SIZE, 0);
	if (!mmget_not_zero(ctx->mm))
		return;
	for (i = 0; !mmap_read_trylock(ctx->mm); i++) {
		if (i == UNMAP_STEPS)
			goto busy;
		usleep_range(1000, 1100);
		unmap_mapping_range(ctx->file->f_mapping, addr, PAGE_SIZE, 0);
	}
	/* Of a fork that failed, the mappings are not to be looked at. */
	if (!check_stable_address_space(ctx->mm)) {
		/* A new child has mappings of its parent's file. */
		vma = vma_lookup(ctx->mm, addr);
		if (vma && hpmmap_vma_is_ours(vma) && vma->vm_file != ctx->file)
			compat_zap(vma, addr, PAGE_SIZE);
		if (use)
			use_remap(use, block);
	}
	mmap_read_unlock(ctx->mm);
busy:
	mmput_async(ctx->mm);
}

static unsigned long use_addr(const struct use *use, unsigned long pfn)
{
	return (use->slot << SLOT_SHIFT) +
	       ((pfn & (SLOT_PAGES - 1)) << PAGE_SHIFT);
}

/* Tells those who use a page that has contents for them. */
static void uses_tell(const struct use *uses, unsigned long nr, unsigned long pfn,
		      int flags)
{
	struct hpmmap_tell tell = { .flags = flags };

	for (; nr; nr--, uses++)
		if (uses->sees)
			hpmmap_tell_add(&tell, uses->ctx->mm, use_addr(uses, pfn));
	hpmmap_tell_end(&tell);
}

static void report(struct hpmmap_block *block, unsigned long pfn,
		   const char *what, const struct use *uses, unsigned long nr)
{
	u64 address = PFN_PHYS(pfn);
	unsigned long n;

	pr_err("%s at %#llx, node %d, section %lu; processes that use its block of 2 MB, which is given up: %lu\n",
	       what, address, block->nid, pfn_to_section_nr(pfn), nr);
	for (n = 0; n < min(nr, HPMMAP_NAMED_MOST + 0UL); n++, uses++)
		pr_err("  job %llu, process %d, user %u\n",
		       uses->ctx->job->id, uses->ctx->pid,
		       from_kuid(&init_user_ns,
				 hpmmap_account_uid_at(&uses->ctx->owner.account)));
	if (nr > n)
		pr_err("  and %lu more\n", nr - n);
}

/* Before there are files, and when there are none any more: NULL. */
void hpmmap_failure_set_files(const struct hpmmap_failure_files *ops)
{
	files = ops;
}

/* From here on nobody begins to touch a page. */
static void page_mark(struct page *page, unsigned long pfn)
{
	struct folio *folio = page_folio(page);

	/* Who maps a page looks at the marks under this lock. */
	folio_lock(folio);
	SetPageHWPoison(page);
	folio_set_has_hwpoisoned(folio);
	folio_unlock(folio);
	compat_count_poison(pfn, 1);
}

/* Nobody has a page mapped afterwards that was marked, and who has to know does. */
static int block_tell(struct hpmmap_block *block, unsigned long pfn, int flags)
{
	unsigned long nr, n;
	struct use *uses;

	if (files && files->tell(block, pfn, flags))
		return 0;
	uses = uses_get(block, &nr);
	if (!uses)
		return -ENOMEM;
	for (n = 0; n < nr; n++) {
		uses[n].sees = use_sees(&uses[n], pfn);
		addr_unmap(uses[n].ctx, use_addr(&uses[n], pfn), &uses[n], block);
		cond_resched();
	}
	report(block, pfn, "memory error", uses, nr);
	uses_tell(uses, nr, pfn, flags);
	uses_put(uses, nr);
	return 0;
}

static int block_fail(struct hpmmap_block *block, unsigned long pfn, int flags)
{
	int ret;

	page_mark(pfn_to_page(pfn), pfn);
	hpmmap_pool_retire(block);
	/* Before anything is waited for: who reads it goes on until then. */
	ret = block_tell(block, pfn, flags);
	hpmmap_poison_wait();
	return ret;
}

enum entry {
	ENTRY_MEMORY_FAILURE,
	ENTRY_SOFT_OFFLINE,
	ENTRY_UNPOISON,
	NR_ENTRIES
};

static unsigned long linux_functions[NR_ENTRIES];

/**
 * hpmmap_memory_failure() - memory_failure() for memory that is known to mem/section.c
 * @pfn: page frame
 * @flags: MF_*
 *
 * Return: 0 (contained), -EHWPOISON (known already), or an errno.
 */
static noinline int hpmmap_memory_failure(unsigned long pfn, int flags)
{
	struct page *page = pfn_to_page(pfn);
	struct hpmmap_block *block;
	int ret = 0;

	/* Takes locks of CPU hotplug, outside of which is that of memory. */
	hpmmap_poison_begin();
	hpmmap_poison_lock();
	switch (hpmmap_section_block(pfn, &block)) {
	case HPMMAP_WHOSE_LINUX:
		/* It was given back at this moment. */
		hpmmap_poison_unlock();
		ret = compat_memory_failure(pfn, flags);
		goto out;
	case HPMMAP_WHOSE_NOBODYS:
		/* It may have been replaced. */
		if (!pfn_valid(pfn))
			ret = -ENXIO;
		else if (!PageHWPoison(page))
			page_mark(page, pfn);
		hpmmap_poison_wait();
		break;
	case HPMMAP_WHOSE_POOL:
		if (!PageHWPoison(page))
			ret = block_fail(block, pfn, flags);
		else if (flags & MF_ACTION_REQUIRED)
			ret = block_tell(block, pfn, flags) ?: -EHWPOISON;
		else
			ret = -EHWPOISON;
		break;
	}
	if (!(flags & MF_SW_SIMULATED))
		seen_real = true;
	if (flags & MF_COUNT_INCREASED)
		put_page(page);
	hpmmap_poison_unlock();
out:
	module_put(THIS_MODULE);
	return ret;
}

/* Where a page stands in for one of ours, if it still does in that mapping. */
static bool page_stands_at(struct page *page, const struct address_space *mapping,
			   unsigned long *addr)
{
	struct folio *folio = page_folio(page);
	bool ret;

	if (!get_page_unless_zero(page))
		return false;
	/* Linux has marked it without this lock: who found it good under it has mapped it by then. */
	folio_lock(folio);
	ret = folio->mapping == mapping;
	*addr = folio->index << PAGE_SHIFT;
	folio_unlock(folio);
	put_page(page);
	return ret;
}

/*
 * A page of Linux that stands in for one of ours Linux has marked, and left mapped, as it is
 * on none of its lists. Its mapping, which may be anything by now, is compared only.
 */
static void linux_page_unmap(unsigned long pfn)
{
	struct page *page = pfn_to_online_page(pfn);
	const struct address_space *mapping;
	struct hpmmap_ctx *ctx;
	unsigned long addr;

	if (!page || !PageHWPoison(page))
		return;
	mapping = READ_ONCE(page_folio(page)->mapping);
	/* Of anonymous memory it has bits that no file's has. */
	if (!mapping || !IS_ALIGNED((unsigned long)mapping, sizeof(long)))
		return;
	hpmmap_for_each_ctx(ctx) {
		if (ctx->file->f_mapping == mapping && page_stands_at(page, mapping, &addr))
			addr_unmap(ctx, addr, NULL, NULL);
		cond_resched();
	}
}

/* memory_failure() for all other memory. */
static noinline int linux_memory_failure(unsigned long pfn, int flags)
{
	int ret = compat_memory_failure(pfn, flags);

	linux_page_unmap(pfn);
	module_put(THIS_MODULE);
	return ret;
}

/* One try: who has a lock of the context may have it for long. */
static int try_exchange(struct hpmmap_ctx *ctx, unsigned long slot,
			struct hpmmap_block *block)
{
	int ret = -EBUSY;

	if (!mutex_trylock(&ctx->ops))
		return ret;
	if (compat_mmap_write_trylock(ctx->mm)) {
		ret = hpmmap_store_exchange(ctx, slot, block);
		mmap_write_unlock(ctx->mm);
	}
	mutex_unlock(&ctx->ops);
	return ret;
}

/*
 * Moves what a context has in a block to another one. @steps is what is left of the
 * time to wait. -EAGAIN: the context gives it up by itself.
 */
static int use_exchange(const struct use *use, struct hpmmap_block *block,
			int *steps)
{
	struct hpmmap_ctx *ctx = use->ctx;
	int ret;

	if (!mmget_not_zero(ctx->mm))
		return -EAGAIN;
	for (;;) {
		ret = try_exchange(ctx, use->slot, block);
		if (ret != -EBUSY || --*steps < 0 || fatal_signal_pending(current))
			break;
		msleep(10);
	}
	if (!ret && mmap_read_trylock(ctx->mm)) {
		block = hpmmap_store_load(ctx, use->slot);
		if (block)
			use_remap(use, block);
		mmap_read_unlock(ctx->mm);
	}
	mmput_async(ctx->mm);
	return ret;
}

/*
 * The same for all; whether the block may be gone then. Who keeps one from going keeps
 * the block: then nobody waits for the others. Other errors wait meanwhile.
 */
static bool uses_exchange(const struct use *uses, unsigned long nr,
			  struct hpmmap_block *block)
{
	unsigned long until = jiffies + msecs_to_jiffies(MOVE_MS);
	int steps = BUSY_STEPS, ret;

	for (; nr; nr--, uses++) {
		ret = use_exchange(uses, block, &steps);
		if (ret && ret != -EAGAIN)
			return false;
		if (nr > 1 && time_after(jiffies, until))
			return false;
		cond_resched();
	}
	return true;
}

static bool block_is_gone(struct hpmmap_block *block)
{
	int i;

	for (i = 0; i < ZERO_STEPS; i++) {
		enum hpmmap_block_state state;

		hpmmap_pinned_poll();
		state = hpmmap_pool_state(block);
		if (state == HPMMAP_BLOCK_BAD)
			return true;
		if (fatal_signal_pending(current) ||
		    (i >= BUSY_STEPS && state != HPMMAP_BLOCK_FREE))
			break;
		/* A reference may be somebody's who only looks. */
		usleep_range(1000, 1100);
	}
	return false;
}

/* The same for a page that is still good: nobody may notice. */
static int block_evacuate(struct hpmmap_block *block, unsigned long pfn)
{
	nodemask_t node = nodemask_of_node(block->nid);
	bool was_bad = block->bad;
	struct use *uses;
	unsigned long nr;
	bool gone;

	hpmmap_reap();
	hpmmap_reuse_reclaim(&node, NULL, ULONG_MAX);
	hpmmap_pool_retire(block);
	uses = uses_get(block, &nr);
	if (!uses) {
		if (!was_bad)
			hpmmap_pool_unretire(block);
		return -ENOMEM;
	}
	gone = uses_exchange(uses, nr, block);
	if (gone && files)
		files->exchange(block);
	if (!gone || !block_is_gone(block)) {
		uses_put(uses, nr);
		if (!was_bad)
			hpmmap_pool_unretire(block);
		return -EBUSY;
	}
	page_mark(pfn_to_page(pfn), pfn);
	hpmmap_poison_wait();
	report(block, pfn, "memory taken out of use", uses, nr);
	uses_put(uses, nr);
	return 0;
}

/**
 * hpmmap_soft_offline() - soft_offline_page() for the same memory
 * @pfn: page frame
 * @flags: MF_*
 *
 * Return: 0, -EBUSY (somebody but page tables refers to it), or an errno.
 */
static noinline int hpmmap_soft_offline(unsigned long pfn, int flags)
{
	struct page *page = pfn_to_page(pfn);
	struct hpmmap_block *block;
	int ret = 0;

	hpmmap_poison_begin();
	hpmmap_poison_lock();
	switch (hpmmap_section_block(pfn, &block)) {
	case HPMMAP_WHOSE_LINUX:
		hpmmap_poison_unlock();
		ret = compat_soft_offline(pfn, flags);
		goto out;
	case HPMMAP_WHOSE_NOBODYS:
		break;
	case HPMMAP_WHOSE_POOL:
		/* It would look like a pin; the block stays ours. */
		if (flags & MF_COUNT_INCREASED)
			put_page(page);
		if (!compat_soft_offlines())
			ret = -EOPNOTSUPP;
		else if (!PageHWPoison(page))
			ret = block_evacuate(block, pfn);
		break;
	}
	hpmmap_poison_unlock();
out:
	module_put(THIS_MODULE);
	return ret;
}

/* Of a block that nobody has. */
static int block_unpoison(struct hpmmap_block *block, struct page *page)
{
	if (hpmmap_pool_state(block) != HPMMAP_BLOCK_BAD)
		return -EBUSY;
	ClearPageHWPoison(page);
	hpmmap_block_mend(block);
	if (!hpmmap_block_is_hurt(block))
		hpmmap_pool_unretire(block);
	return 0;
}

/**
 * hpmmap_unpoison() - unpoison_memory() for the same memory
 * @pfn: page frame
 *
 * As on Linux: only before an error was real, and while nobody uses the page.
 *
 * Return: 0, -EBUSY, or -EOPNOTSUPP.
 */
static noinline int hpmmap_unpoison(unsigned long pfn)
{
	struct page *page = pfn_to_page(pfn);
	struct hpmmap_block *block;
	enum hpmmap_whose whose;
	int ret = -EBUSY;

	hpmmap_poison_lock();
	whose = hpmmap_section_block(pfn, &block);
	if (seen_real)
		ret = -EOPNOTSUPP;
	else if (!pfn_valid(pfn) || !PageHWPoison(page))
		ret = -EBUSY;
	else if (whose == HPMMAP_WHOSE_POOL)
		ret = block_unpoison(block, page);
	else if (whose == HPMMAP_WHOSE_NOBODYS)
		ret = 0;
	if (!ret)
		compat_count_poison(pfn, -1);
	if (!ret && whose == HPMMAP_WHOSE_NOBODYS) {
		ClearPageHWPoison(page);
		hpmmap_section_mended(pfn);
	}
	hpmmap_poison_unlock();
	module_put(THIS_MODULE);
	return ret;
}

/*
 * @handler: for memory that is known to mem/section.c
 * @linux_handler: for all other, or NULL
 */
static const struct {
	const char *name;
	void *handler;
	void *linux_handler;
} entries[NR_ENTRIES] = {
	[ENTRY_MEMORY_FAILURE] = { "memory_failure", hpmmap_memory_failure,
				   linux_memory_failure },
	[ENTRY_SOFT_OFFLINE] = { "soft_offline_page", hpmmap_soft_offline },
	[ENTRY_UNPOISON] = { "unpoison_memory", hpmmap_unpoison },
};

static void notrace poison_entry(unsigned long ip, unsigned long parent_ip,
				 struct ftrace_ops *op,
				 struct ftrace_regs *fregs)
{
	void *handler;
	int i;

	/* Where Linux is to stop at a memory error, it does. */
	if (!compat_recovers_memory() || compat_is_own_text(parent_ip))
		return;
	for (i = 0; i < NR_ENTRIES; i++) {
		if (ip - linux_functions[i] > MAX_ENTRY_OFFSET)
			continue;
		handler = hpmmap_section_is_known(compat_ftrace_arg(fregs, 0)) ?
			  entries[i].handler : entries[i].linux_handler;
		/* The handler's, which may sleep. */
		if (handler && try_module_get(THIS_MODULE))
			compat_ftrace_set_ip(fregs, (unsigned long)handler);
		return;
	}
}

static struct ftrace_ops poison_ops = {
	.func = poison_entry,
	.flags = FTRACE_OPS_FL_IPMODIFY | FTRACE_OPS_FL_PERMANENT |
		 FTRACE_OPS_FL_DYNAMIC,
};

static int entries_find(void)
{
	int ret = compat_poison_init(), i;

	for (i = 0; i < NR_ENTRIES && !ret; i++) {
		linux_functions[i] = compat_symbol(entries[i].name);
		if (!linux_functions[i])
			return -ENOENT;
		ret = ftrace_set_filter_ip(&poison_ops, linux_functions[i], 0,
					   0);
	}
	return ret;
}

/**
 * hpmmap_failure_init() - stand in for Linux's handling of memory errors
 *
 * Without it errors in the pools are as those in other offline memory.
 *
 * Return: 0, also where it is impossible: the kernel log tells.
 */
int hpmmap_failure_init(void)
{
	int ret;

	if (!IS_ENABLED(CONFIG_MEMORY_FAILURE))
		return 0;
	ret = entries_find();
	if (!ret)
		ret = register_ftrace_function(&poison_ops);
	guarded = !ret;
	if (guarded)
		return 0;
	ftrace_free_filter(&poison_ops);
	pr_warn("memory errors in the pools will not be contained: %d\n", ret);
	return 0;
}

void hpmmap_failure_exit(void)
{
	if (!guarded)
		return;
	unregister_ftrace_function(&poison_ops);
	ftrace_free_filter(&poison_ops);
	synchronize_rcu_tasks();
	guarded = false;
}
