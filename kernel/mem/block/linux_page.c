// SPDX-License-Identifier: GPL-2.0
/*
 * Pages of Linux that stand in for a block of the pools, or for a few pages of one.
 */
#include <linux/memcontrol.h>
#include <linux/page-flags.h>
#include <linux/pagemap.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "hpmmap.h"
#include "mem/block/block.h"
#include "mem/block/linux_page.h"

/* What Linux has to spare: nothing is reclaimed for it, not by kswapd either. */
#define GFP_SPARE (__GFP_NOWARN | __GFP_ACCOUNT)

/* Most that one has in slots with no more than a few. */
#define FEW_PAGES 4096
#define FEW_SLOTS 1024

/*
 * Arrays for block->pages, without a page when they come and go: they are not zeroed each time that
 * a child with a few pages begins.
 */
static struct kmem_cache *arrays;

static void array_init(void *array)
{
	memset(array, 0, SLOT_PAGES * sizeof(struct page *));
}

int hpmmap_linux_page_init(void)
{
	arrays = kmem_cache_create("hpmmap_pages", SLOT_PAGES * sizeof(struct page *), 0,
				   SLAB_ACCOUNT, array_init);
	return arrays ? 0 : -ENOMEM;
}

void hpmmap_linux_page_exit(void)
{
	kmem_cache_destroy(arrays);
}

/**
 * hpmmap_block_alloc_linux() - a block that will be filled with Linux's memory
 * @spare: only with what Linux has to spare on a node, see there; or NUMA_NO_NODE
 *
 * Return: the block, without any page yet, or NULL.
 */
struct hpmmap_block *hpmmap_block_alloc_linux(int spare)
{
	gfp_t gfp = spare == NUMA_NO_NODE ? GFP_KERNEL_ACCOUNT : GFP_SPARE;
	struct hpmmap_block *block = kzalloc(sizeof(*block), gfp);

	if (!block)
		return NULL;
	block->pages = kmem_cache_alloc(arrays, gfp);
	if (!block->pages) {
		kfree(block);
		return NULL;
	}
	block->spare = spare;
	block->nid = NUMA_NO_NODE;
	block->state = HPMMAP_BLOCK_HELD;
	atomic_set(&block->users, 1);
	bitmap_fill(block->stale, SLOT_PAGES);
	INIT_LIST_HEAD(&block->link);
	return block;
}

/* Nothing of its use by a context remains. */
void hpmmap_folio_detach(struct folio *folio)
{
	folio->mapping = NULL;
	if (folio_test_dirty(folio))
		folio_clear_dirty(folio);
	if (folio_test_referenced(folio))
		folio_clear_referenced(folio);
	if (folio_test_active(folio))
		folio_clear_active(folio);
}

/* Of a page of Linux with a memory error Linux may keep a reference for good. */
bool hpmmap_linux_page_idle(struct page *page)
{
	return page_ref_count(page) == 1 || PageHWPoison(page);
}

static struct page *page_alloc(int spare)
{
	if (spare == NUMA_NO_NODE)
		return alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
	return alloc_pages_node(spare, GFP_SPARE | __GFP_THISNODE | __GFP_ZERO, 0);
}

/*
 * As on Linux it is charged to the memory cgroup of whose memory it is, not of who
 * touches it (a debugger). A child that is being made has none yet: its parent's. What
 * a thread of the kernel allocates would be charged to nobody, whichever mm it uses.
 */
static struct page *charged_alloc(struct hpmmap_owner *owner, int spare)
{
	struct mm_struct *mm = READ_ONCE(owner->mm);
	struct mem_cgroup *memcg, *old;
	struct page *page;

	if (likely(!mm || (!(current->flags & PF_KTHREAD) &&
			   (!current->mm || mm == current->mm))))
		return page_alloc(spare);
	memcg = get_mem_cgroup_from_mm(mm);
	old = set_active_memcg(memcg);
	page = page_alloc(spare);
	set_active_memcg(old);
	mem_cgroup_put(memcg);
	return page;
}

/* A page of zeros for a block that has none there, or NULL. */
struct page *hpmmap_linux_page_alloc(struct hpmmap_owner *owner,
				     struct hpmmap_block *block, unsigned int i)
{
	struct page *page = charged_alloc(owner, block->spare);

	if (!page)
		return NULL;
	page_folio(page)->mapping = owner->mapping;
	page_folio(page)->index = (block->slot << SLOT_ORDER) + i;
	SetPageUptodate(page);
	block->pages[i] = page;
	set_bit(i, block->has);
	atomic_long_inc(hpmmap_block_count(owner, block));
	compat_commit(1);
	return page;
}

/* A block has a page no more. */
static void page_put(struct page *page)
{
	hpmmap_folio_detach(page_folio(page));
	put_page(page);
	compat_commit(-1);
}

/* A page of Linux that is stale, and in no page table, goes back. */
static void page_drop(struct hpmmap_owner *owner, struct hpmmap_block *block, unsigned int i)
{
	struct page *page = block->pages[i];

	clear_bit(i, block->has);
	block->pages[i] = NULL;
	page_put(page);
	atomic_long_dec(hpmmap_block_count(owner, block));
}

/**
 * hpmmap_block_empty() - nobody has a block of Linux's memory any more
 * @block: to which only the module refers; for hpmmap_block_bury()
 */
void hpmmap_block_empty(struct hpmmap_block *block)
{
	struct page *page;
	unsigned int i;

	hpmmap_for_each_linux_page(block, i, page) {
		WRITE_ONCE(block->pages[i], NULL);
		page_put(page);
	}
}

/**
 * hpmmap_block_bury() - free what is left of blocks
 * @graves: those from hpmmap_block_empty()
 */
void hpmmap_block_bury(struct llist_head *graves)
{
	struct hpmmap_block *block, *tmp;

	llist_for_each_entry_safe(block, tmp, llist_del_all(graves), grave) {
		kmem_cache_free(arrays, block->pages);
		kfree(block);
	}
}

/**
 * hpmmap_block_clear_linux() - pages of a block of Linux's memory read as zero
 * @owner: whose store it is in, locked
 * @block: the block
 * @first: first page
 * @nr: number of pages, all of them stale
 *
 * Where it has no page it gets none: the first touch brings one.
 */
void hpmmap_block_clear_linux(struct hpmmap_owner *owner,
			      struct hpmmap_block *block, unsigned int first,
			      unsigned int nr)
{
	unsigned int i = first;

	for_each_set_bit_from(i, block->has, first + nr) {
		if (PageHWPoison(block->pages[i]))
			continue;
		hpmmap_clear_words(page_address(block->pages[i]), PAGE_SIZE / sizeof(u64));
		atomic_long_inc(&owner->nr_cleared);
		clear_bit(i, block->stale);
	}
}

/**
 * hpmmap_block_drop_linux() - give pages back to Linux
 * @owner: whose store it is in, locked
 * @block: a block of Linux's memory
 * @first: first page
 * @nr: number of pages, all of them stale and in no page table
 *
 * What somebody still refers to stays.
 */
void hpmmap_block_drop_linux(struct hpmmap_owner *owner, struct hpmmap_block *block,
			     unsigned int first, unsigned int nr)
{
	unsigned int i = first;

	for_each_set_bit_from(i, block->has, first + nr)
		if (hpmmap_linux_page_idle(block->pages[i]))
			page_drop(owner, block, i);
}

/**
 * hpmmap_block_may_be_few() - may more be pages of Linux although the pools have blocks?
 * @owner: whose
 * @pages: how many more
 * @slots: in so many slots that have none yet
 */
bool hpmmap_block_may_be_few(const struct hpmmap_owner *owner, unsigned long pages,
			     unsigned long slots)
{
	return atomic_long_read(&owner->nr_few_pages) + pages <= FEW_PAGES &&
	       atomic_long_read(&owner->nr_few_blocks) + slots <= FEW_SLOTS;
}

/**
 * hpmmap_block_few_end() - the few pages of a block stand in for one of the pools
 * @owner: whose store it is in, locked
 * @block: the block
 */
void hpmmap_block_few_end(struct hpmmap_owner *owner, struct hpmmap_block *block)
{
	unsigned int nr = bitmap_weight(block->has, SLOT_PAGES);

	atomic_long_sub(nr, &owner->nr_few_pages);
	atomic_long_add(nr, &owner->nr_linux_pages);
	atomic_long_dec(&owner->nr_few_blocks);
	block->few = false;
	block->spare = NUMA_NO_NODE;
}
