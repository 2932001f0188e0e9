// SPDX-License-Identifier: GPL-2.0
/*
 * Ordinary pages that stand in for a pool block, or for a few pages of one.
 */
#include <linux/memcontrol.h>

#include "hpmmap.h"
#include "mem/block/block.h"
#include "mem/block/linux_page.h"

/* For pages that Linux has to spare: nothing is reclaimed for them, not even by kswapd. */
#define GFP_SPARE (__GFP_NOWARN | __GFP_ACCOUNT)

/* The most pages of one owner in slots that need only a few. */
#define FEW_PAGES 4096
#define FEW_SLOTS 1024

/*
 * Arrays for block->pages. They have no page when they come and go, so they need not be zeroed each
 * time that a child with a few pages begins.
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

/* A block for ordinary pages, without any yet, or NULL. @spare: as in struct hpmmap_block. */
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

/* Linux may keep a reference for good to an ordinary page with a memory error. */
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
 * As on Linux the page is charged to the memory cgroup of the mm, not to that of the task that
 * touches it (a debugger). A child that is being made has no mm yet: its parent's is charged.
 * Without this, a thread of the kernel would charge no cgroup, whatever mm it uses.
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

/* Allocates a zeroed page for a place without one, or returns NULL. */
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

/* Drops a block's reference to its page. */
static void page_put(struct page *page)
{
	hpmmap_folio_detach(page_folio(page));
	put_page(page);
	compat_commit(-1);
}

/* Gives back an ordinary page that is stale and in no page table. */
static void page_drop(struct hpmmap_owner *owner, struct hpmmap_block *block, unsigned int i)
{
	struct page *page = block->pages[i];

	clear_bit(i, block->has);
	block->pages[i] = NULL;
	page_put(page);
	atomic_long_dec(hpmmap_block_count(owner, block));
}

/*
 * Gives back the pages of a block of ordinary memory that only the module refers to;
 * hpmmap_block_bury() follows.
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

/* Frees the structs of blocks that hpmmap_block_empty() has emptied. */
void hpmmap_block_bury(struct llist_head *graves)
{
	struct hpmmap_block *block, *tmp;

	llist_for_each_entry_safe(block, tmp, llist_del_all(graves), grave) {
		kmem_cache_free(arrays, block->pages);
		kfree(block);
	}
}

/*
 * Makes @nr stale pages of ordinary memory read as zero. The owner's store has the block and
 * is locked. No page is allocated: the first touch does that.
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

/*
 * Gives @nr stale pages of a block of ordinary memory back to Linux, unless they have other
 * references. The owner's store has the block and is locked; no page table has the pages.
 */
void hpmmap_block_drop_linux(struct hpmmap_owner *owner, struct hpmmap_block *block,
			     unsigned int first, unsigned int nr)
{
	unsigned int i = first;

	for_each_set_bit_from(i, block->has, first + nr)
		if (hpmmap_linux_page_idle(block->pages[i]))
			page_drop(owner, block, i);
}

/*
 * May an owner have so many more ordinary pages in place of blocks? @slots: that have no such
 * pages yet, and that the pages are in.
 */
bool hpmmap_block_may_be_few(const struct hpmmap_owner *owner, unsigned long pages,
			     unsigned long slots)
{
	return atomic_long_read(&owner->nr_few_pages) + pages <= FEW_PAGES &&
	       atomic_long_read(&owner->nr_few_blocks) + slots <= FEW_SLOTS;
}

/* The few pages of a block stand in for a pool block. The owner's store has it and is locked. */
void hpmmap_block_few_end(struct hpmmap_owner *owner, struct hpmmap_block *block)
{
	unsigned int nr = bitmap_weight(block->has, SLOT_PAGES);

	atomic_long_sub(nr, &owner->nr_few_pages);
	atomic_long_add(nr, &owner->nr_linux_pages);
	atomic_long_dec(&owner->nr_few_blocks);
	block->few = false;
	block->spare = NUMA_NO_NODE;
}
