// SPDX-License-Identifier: GPL-2.0
/*
 * Memory errors in the pools.
 *
 * A machine check, the firmware, an administrator or madvise(2) tells memory_failure() of an
 * error, and soft_offline_page() of memory that may fail soon. Both refuse memory that is
 * offline, so the functions here stand in for them for pages of the pools. Linux handles its
 * own pages, those that stand in for pages of ours included.
 *
 * An error takes a whole block. The bad page is marked as Linux marks its own, the block is
 * taken out of all page tables, every later access to it is answered by SIGBUS, and it is
 * retired when its users give it up.
 */
#include <linux/oom.h>

#include "hook.h"
#include "hpmmap.h"
#include "mem/block/account.h"
#include "mem/block/block.h"
#include "mem/pool/pinned.h"
#include "mem/pool/pool.h"
#include "mem/pool/section.h"
#include "as/own/ctx.h"
#include "as/own/reuse.h"
#include "as/map/gigabyte.h"
#include "as/map/window.h"
#include "as/store/store.h"
#include "as/store/zap.h"
#include "as/change/commit.h"
#include "as/life/failure.h"
#include "as/life/life.h"

/* How long soft offline waits for a block to be free, in steps of 10 ms. */
#define MOVE_STEPS 50

/* How long to wait for mmap_lock where only the mapping tells whose file it is, in steps of 1 ms. */
#define UNMAP_STEPS 8

/* So many of the processes that an error concerns are named. */
#define NAMED_MOST 16

/* Those whose blocks are in no store. */
static hpmmap_failure_file_t *file_fail;

/* Before there are files, and when there are none any more: NULL. */
void hpmmap_failure_set_files(hpmmap_failure_file_t *fn)
{
	file_fail = fn;
}

/* The thread of a process that wants early signals, or NULL; under RCU. */
static struct task_struct *early_thread(struct task_struct *process)
{
	struct task_struct *t;

	for_each_thread(process, t)
		if (t->flags & PF_MCE_PROCESS ? t->flags & PF_MCE_EARLY :
						compat_early_kill())
			return t;
	return NULL;
}

/*
 * Tells processes of a memory error, as Linux does. @where: the address of the bad page in
 * an address space, which is only compared; 0: it is not there; called under RCU, with
 * @data. hpmmap_poison_mutex is held.
 *
 * BUS_MCEERR_AO goes to processes that asked for early signals. A task that cannot go on
 * gets BUS_MCEERR_AR when it tries the access again.
 */
void hpmmap_failure_tell(int flags, unsigned long (*where)(struct mm_struct *mm, void *data),
			 void *data)
{
	struct task_struct *process, *t;
	unsigned int told = 0;
	unsigned long addr;

	rcu_read_lock();
	for_each_process(process) {
		struct mm_struct *mm;

		t = early_thread(process);
		mm = t ? READ_ONCE(t->mm) : NULL;
		if (!mm || (flags & MF_ACTION_REQUIRED && mm == current->mm))
			continue;
		addr = where(mm, data);
		if (!addr)
			continue;
		if (told++ < NAMED_MOST)
			pr_err("sending SIGBUS to %s:%d for a memory error\n", t->comm,
			       task_pid_nr(t));
		send_sig_mceerr(BUS_MCEERR_AO, (void __user *)addr, SLOT_SHIFT, t);
	}
	rcu_read_unlock();
	if (told > NAMED_MOST)
		pr_err("and to %u more\n", told - NAMED_MOST);
}

/* The slot of a context whose block, or what is behind its draft, is @block; or NO_SLOT. */
static unsigned long slot_with(struct hpmmap_ctx *ctx, const struct hpmmap_block *block)
{
	XA_STATE(xas, &ctx->store.blocks, 0);
	unsigned long found;
	struct hpmmap_block *other;
	unsigned int looks = 0;

	/* What is in the store stays: a task that ends takes it out with the store's lock alone. */
	mutex_lock(&ctx->lock);
	found = hpmmap_runs_find(ctx, block);
	xas_lock(&xas);
	xas_for_each(&xas, other, found == NO_SLOT ? ULONG_MAX : 0) {
		if (other == block || (other->draft && other->draft->behind == block)) {
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

/*
 * Nothing of a slot stays mapped, nor in a window, and nothing will be: its block is marked.
 * mmap_lock may be held for long, and is only tried.
 */
static void slot_unmap(struct hpmmap_ctx *ctx, unsigned long slot)
{
	unsigned long start = slot << SLOT_SHIFT;
	bool done = false;
	int i;

	/* A task that found the block good has mapped it by then. */
	mutex_lock(&ctx->lock);
	mutex_unlock(&ctx->lock);
	hpmmap_window_zap(ctx, start, start + SLOT_SIZE);
	/* By the file, and by the mapping: that of a new child may be of its parent's file. */
	hpmmap_gigabyte_unmap(ctx->file->f_mapping, start, SLOT_SIZE, 0);
	if (!mmget_not_zero(ctx->mm))
		return;
	for (i = 0; i < UNMAP_STEPS && !done; i++) {
		done = mmap_read_trylock(ctx->mm);
		if (done) {
			/* The mappings of a fork that failed are not to be looked at. */
			if (!check_stable_address_space(ctx->mm))
				hpmmap_range_zap(ctx, start, start + SLOT_SIZE);
			mmap_read_unlock(ctx->mm);
		} else {
			usleep_range(1000, 1100);
			hpmmap_gigabyte_unmap(ctx->file->f_mapping, start, SLOT_SIZE, 0);
		}
	}
	mmput_async(ctx->mm);
}

static unsigned long ctx_where(struct mm_struct *mm, void *data)
{
	const struct hpmmap_ctx *ctx = hpmmap_ctx_find_rcu(mm);

	return ctx ? READ_ONCE(ctx->failed) : 0;
}

/* No page table has a block that was marked, and processes that have to know do. */
static void block_tell(struct hpmmap_block *block, unsigned long pfn, int flags)
{
	struct hpmmap_ctx *ctx;
	unsigned long nr = 0;

	if (file_fail && file_fail(block, pfn, flags))
		return;
	pr_err("memory error at %#llx, node %d, section %lu: its block of 2 MB is given up\n",
	       (u64)PFN_PHYS(pfn), block->nid, pfn_to_section_nr(pfn));
	hpmmap_for_each_ctx(ctx) {
		unsigned long slot = slot_with(ctx, block);

		WRITE_ONCE(ctx->failed, slot == NO_SLOT ? 0 : (slot << SLOT_SHIFT) +
			   ((pfn & (SLOT_PAGES - 1)) << PAGE_SHIFT));
		if (slot != NO_SLOT) {
			slot_unmap(ctx, slot);
			if (nr++ < NAMED_MOST)
				pr_err("  job %llu, process %d, user %u\n", ctx->job->id, ctx->pid,
				       from_kuid(&init_user_ns,
						 hpmmap_account_uid_at(&ctx->owner.account)));
		}
		cond_resched();
	}
	if (nr > NAMED_MOST)
		pr_err("  and %lu more\n", nr - NAMED_MOST);
	hpmmap_failure_tell(flags, ctx_where, NULL);
}

/* From here on no task begins to read or write the block of a page. */
static void page_mark(struct page *page, unsigned long pfn)
{
	struct folio *folio = page_folio(page);

	/* A task that maps it looks at the marks under this lock. */
	folio_lock(folio);
	SetPageHWPoison(page);
	folio_set_has_hwpoisoned(folio);
	folio_unlock(folio);
	compat_count_poison(pfn, 1);
}

/* An error in a block of the pools: 0 (contained) or -EHWPOISON (known already). */
static int block_failed(struct hpmmap_block *block, unsigned long pfn, int flags)
{
	struct page *page = pfn_to_page(pfn);
	int ret = -EHWPOISON;

	if (!PageHWPoison(page)) {
		page_mark(page, pfn);
		hpmmap_pool_retire(block);
		block_tell(block, pfn, flags);
		ret = 0;
	}
	/* Tasks that read the block go on until then. */
	synchronize_srcu(&hpmmap_touch_srcu);
	if (flags & MF_COUNT_INCREASED)
		put_page(page);
	return ret;
}

/* Moves what a context has in a block to another one, unless it is busy, or shares the block. */
static void try_move(struct hpmmap_ctx *ctx, struct hpmmap_block *block)
{
	unsigned long slot = hpmmap_runs_find(ctx, block);
	struct hpmmap_block *fresh = NULL;
	bool wait = true;

	if (slot == NO_SLOT) {
		slot = READ_ONCE(block->slot);
		if (slot == NO_SLOT || xa_load(&ctx->store.blocks, slot) != block ||
		    hpmmap_block_is_shared(block))
			return;
	}
	if (!mmget_not_zero(ctx->mm))
		return;
	if (!mutex_trylock(&ctx->ops))
		goto out;
	if (compat_mmap_write_trylock(ctx->mm)) {
		if (hpmmap_store_load(ctx, slot) == block && !hpmmap_block_is_shared(block) &&
		    !check_stable_address_space(ctx->mm))
			fresh = hpmmap_pool_alloc_instead(block->account, block->nid,
							  &ctx->job->nodes);
		if (fresh && !hpmmap_store_replace(ctx, slot, fresh, &wait))
			hpmmap_store_put_back(ctx, fresh);
		mmap_write_downgrade(ctx->mm);
		if (fresh)
			hpmmap_vma_slot_owned(ctx, slot);
		mmap_read_unlock(ctx->mm);
	}
	hpmmap_ops_unlock(ctx);
out:
	mmput_async(ctx->mm);
}

/* A block whose contents are still good is free soon: its users notice nothing. */
static int block_evacuate(struct hpmmap_block *block, unsigned long pfn)
{
	nodemask_t node = nodemask_of_node(block->nid);
	struct hpmmap_ctx *ctx;
	int i;

	hpmmap_reap();
	hpmmap_reuse_reclaim(&node, NULL, ULONG_MAX);
	hpmmap_pool_retire(block);
	for (i = 0; i < MOVE_STEPS; i++) {
		hpmmap_for_each_ctx(ctx)
			try_move(ctx, block);
		hpmmap_pinned_poll();
		if (READ_ONCE(block->state) == HPMMAP_BLOCK_BAD) {
			page_mark(pfn_to_page(pfn), pfn);
			pr_info("memory taken out of use at %#llx, node %d, section %lu\n",
				(u64)PFN_PHYS(pfn), block->nid, pfn_to_section_nr(pfn));
			return 0;
		}
		if (fatal_signal_pending(current))
			break;
		msleep(10);
	}
	return -EBUSY;
}

/*
 * A block that may fail soon is to be taken out of use. -EBUSY if it is shared or pinned, or its
 * process is busy: then it is retired when it is given up.
 */
static int block_fails_soon(struct hpmmap_block *block, unsigned long pfn, int flags)
{
	struct page *page = pfn_to_page(pfn);

	/* It would look like a pin; the block stays ours. */
	if (flags & MF_COUNT_INCREASED)
		put_page(page);
	if (!compat_soft_offlines())
		return -EOPNOTSUPP;
	return PageHWPoison(page) ? 0 : block_evacuate(block, pfn);
}

/* For memory that is known to mem/pool/section.c; Linux answers if it has left its pool since. */
static int answer(unsigned long pfn, int flags,
		  int (*ours)(struct hpmmap_block *block, unsigned long pfn, int flags),
		  int (*others)(unsigned long pfn, int flags))
{
	struct hpmmap_block *block;
	int ret = 0;

	mutex_lock(&hpmmap_poison_mutex);
	block = hpmmap_section_block(pfn);
	if (block)
		ret = ours(block, pfn, flags);
	mutex_unlock(&hpmmap_poison_mutex);
	if (!block)
		ret = others(pfn, flags);
	module_put(THIS_MODULE);
	return ret;
}

/* Stands in for memory_failure(). */
static noinline int hpmmap_memory_failure(unsigned long pfn, int flags)
{
	return answer(pfn, flags, block_failed, compat_memory_failure);
}

/* Stands in for soft_offline_page(). */
static noinline int hpmmap_soft_offline(unsigned long pfn, int flags)
{
	return answer(pfn, flags, block_fails_soon, compat_soft_offline);
}

/* unpoison_memory() for the same memory: of errors that were simulated, once it has left its pool. */
static noinline int hpmmap_unpoison(unsigned long pfn)
{
	int ret = hpmmap_section_mend(pfn);

	module_put(THIS_MODULE);
	return ret;
}

/* A function of Linux that does not see memory that is known to mem/pool/section.c. */
struct entry {
	struct ftrace_ops ops;	/* what ftrace knows of it */
	const char *name;	/* the function */
	void *handler;		/* stands in for it */
	bool guarded;		/* it does */
};

static void notrace poison_entry(unsigned long ip, unsigned long parent_ip,
				 struct ftrace_ops *op,
				 struct ftrace_regs *fregs)
{
	const struct entry *e = container_of(op, struct entry, ops);

	/* Where Linux is to stop at a memory error, it does. */
	if (!compat_recovers_memory() || compat_is_own_text(parent_ip) ||
	    !hpmmap_section_is_known(compat_ftrace_arg(fregs, 0)))
		return;
	/* The handler's, which may sleep. */
	if (try_module_get(THIS_MODULE))
		compat_ftrace_set_ip(fregs, (unsigned long)e->handler);
}

#define ENTRY(_name, _handler) { \
	.ops = { .func = poison_entry, .flags = HPMMAP_GUARD_FLAGS }, \
	.name = _name, \
	.handler = _handler, \
}

static struct entry entries[] = {
	ENTRY("memory_failure", hpmmap_memory_failure),
	ENTRY("soft_offline_page", hpmmap_soft_offline),
	ENTRY("unpoison_memory", hpmmap_unpoison),
};

/*
 * Stands in for Linux's handling of memory errors; without it errors in the pools are as
 * those in other offline memory. Returns 0, also where it is impossible: the kernel log
 * tells.
 */
int hpmmap_failure_init(void)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(entries) && IS_ENABLED(CONFIG_MEMORY_FAILURE); i++)
		entries[i].guarded = !hpmmap_guard_install(&entries[i].ops, entries[i].name);
	return 0;
}

void hpmmap_failure_exit(void)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(entries); i++)
		if (entries[i].guarded)
			hpmmap_guard_remove(&entries[i].ops);
}
