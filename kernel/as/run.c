// SPDX-License-Identifier: GPL-2.0
/*
 * The way of most memory: whole slots, each mapped by one entry.
 */
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/sched/signal.h>

#include "hpmmap.h"
#include "mem/block.h"
#include "as/ctx.h"
#include "as/pgmap.h"
#include "as/run.h"
#include "as/store.h"

/* Mapped at once at most. */
#define RUN_SLOTS 512UL

/* The block of a slot of a run, a new one of @blocks if there is none. */
static struct hpmmap_block *run_block(struct hpmmap_ctx *ctx,
				      struct xa_state *xas, unsigned long slot,
				      bool shared, struct list_head *blocks)
{
	struct hpmmap_block *block;

	lockdep_assert_held(&ctx->lock);
	rcu_read_lock();
	/* Nobody else changes the tree: the next slot is mostly in the same node. */
	if (xas_valid(xas) && xas->xa_index + 1 == slot) {
		block = xas_next(xas);
	} else {
		xas_set(xas, slot);
		block = xas_load(xas);
	}
	if (block && shared && xas_get_mark(xas, SLOT_SHARED))
		block = ERR_PTR(-EBUSY);
	rcu_read_unlock();
	if (block)
		return IS_ERR(block) || !block->folio ||
		       hpmmap_block_is_hurt(block) ? NULL : block;
	if (!blocks || list_empty(blocks))
		return NULL;
	block = hpmmap_list_take(blocks, xas->xa_index);
	do {
		xas_lock(xas);
		xas_store(xas, block);
		xas_unlock(xas);
	} while (xas_nomem(xas, GFP_KERNEL));
	if (xas_error(xas)) {
		list_add(&block->link, blocks);
		return NULL;
	}
	hpmmap_block_attach(block, ctx->file->f_mapping, xas->xa_index);
	hpmmap_store_gained(ctx, block);
	return block;
}

/**
 * hpmmap_store_map_run() - commit whole slots and map them by one entry each
 * @ctx: the context, ctx->ops held; mmap_lock held
 * @vma: mapping that can be mapped so
 * @start: of a slot
 * @end: of a slot, within the mapping
 * @blocks: blocks for slots that have none
 *
 * The way of most memory, without the core's fault path. It ends where
 * anything is out of the ordinary.
 *
 * Return: the end of what is committed and mapped.
 */
unsigned long hpmmap_store_map_run(struct hpmmap_ctx *ctx,
				   struct vm_area_struct *vma,
				   unsigned long start, unsigned long end,
				   struct list_head *blocks)
{
	XA_STATE(xas, &ctx->store, slot_of(start));
	struct folio *folio = NULL;
	unsigned long addr, nr = 0;
	pmd_t *pmdp = NULL;
	bool shared, inserted;

	lockdep_assert_held(&ctx->ops);
	lockdep_assert_held(&ctx->mm->mmap_lock);
	/* Others want the lock, too. */
	end = min(end, start + RUN_SLOTS * SLOT_SIZE);
	mutex_lock(&ctx->lock);
	shared = xa_marked(&ctx->store, SLOT_SHARED);
	for (addr = start; addr < end; addr += SLOT_SIZE) {
		struct hpmmap_block *block;

		if (fatal_signal_pending(current))
			break;
		if (!pmdp || !(addr & ~PUD_MASK))
			pmdp = hpmmap_pgmap_pmd(ctx->mm, addr);
		else
			pmdp++;
		if (!pmdp)
			break;
		if (hpmmap_pgmap_is_done(vma, pmdp))
			continue;
		if (!pmd_none(READ_ONCE(*pmdp)))
			break;
		block = run_block(ctx, &xas, slot_of(addr), shared, blocks);
		if (!block)
			break;
		if (!bitmap_empty(block->stale, SLOT_PAGES))
			hpmmap_block_fill(&ctx->owner, block, 0, SLOT_PAGES);
		/* A fault may be clearing it. */
		folio_lock(block->folio);
		inserted = !hpmmap_block_is_hurt(block) &&
			   hpmmap_pgmap_insert_2m(vma, addr, pmdp,
						  block->folio);
		folio_unlock(block->folio);
		if (!inserted)
			break;
		folio = block->folio;
		nr += SLOT_PAGES;
		cond_resched();
	}
	if (folio) {
		compat_add_rss(ctx->mm, folio, nr);
		atomic_long_add(nr / SLOT_PAGES, &ctx->stats.entries_2m);
	}
	mutex_unlock(&ctx->lock);
	return addr;
}
