/* SPDX-License-Identifier: GPL-2.0 */
/* Blocks: the memory behind one slot of an address space. */
#ifndef _HPMMAP_MEM_BLOCK_BLOCK_H
#define _HPMMAP_MEM_BLOCK_BLOCK_H

#include <linux/srcu.h>

#include "mem/block/linux_page.h"

struct hpmmap_holder;

/* Serializes the handling of memory errors, during which no memory leaves the pools. */
extern struct mutex hpmmap_poison_mutex;

/*
 * Held while contents of blocks are read or written that may be found bad: the reader checks the
 * marks within it. Linux unmaps a bad page from its own tables only after all such readers are
 * done.
 */
extern struct srcu_struct hpmmap_touch_srcu;

/*
 * Zeroes words of 8 bytes that another CPU may be writing to. A word that is written meanwhile
 * is zero afterwards or has the value written. memset() and clear_page() write single bytes on
 * CPUs with ERMS, so a word could become half of each.
 */
static inline void hpmmap_clear_words(void *addr, size_t nr)
{
	memset64(addr, 0, nr);
}

/* The owner of blocks, as this room sees it. */
struct hpmmap_owner {
	/*
	 * Account that new blocks are charged to; hpmmap_charged() updates it. Holds a reference;
	 * other tasks use hpmmap_account_get().
	 */
	struct hpmmap_account __rcu *account;
	/* Of the file that its blocks are pages of; immutable. */
	struct address_space *mapping;
	/* Ordinary pages are charged to its memory cgroup; NULL: to the caller's. */
	struct mm_struct *mm;
	atomic_long_t nr_linux_pages;	/* ordinary pages that stand in for its blocks */
	atomic_long_t nr_few_pages;	/* ordinary pages in slots that need only a few */
	atomic_long_t nr_few_blocks;	/* the blocks of these */
	atomic_long_t nr_cleared;	/* pages that were zeroed for it */
};

/**
 * struct hpmmap_draft - a copy of a block that is not complete (as/store/draft.c)
 * @behind: the block that it copies
 * @part: no single mapping covered its slot when the draft was begun
 * @stuck: it has ordinary pages, since the pools had no block
 * @reads: pages that were copied by an access that only reads
 * @left: one bit a page: it was not copied yet. Never set for a stale page: that is the
 *	draft's own, as in any block.
 */
struct hpmmap_draft {
	struct hpmmap_block *behind;
	bool part;
	bool stuck;
	unsigned int reads;
	DECLARE_BITMAP(left, SLOT_PAGES);
};

/**
 * enum hpmmap_block_state - the state of a pool block
 * @HPMMAP_BLOCK_FREE: in the buddy allocator, in a CPU's stock and charged (mem/pool/stock.c), or
 *	in a run; nothing else refers to it
 * @HPMMAP_BLOCK_HELD: charged to an account; on a caller's list or in a store
 * @HPMMAP_BLOCK_PINNED: given up by its holder, still charged, and waiting on
 *	the pinned list until the last other reference is dropped
 * @HPMMAP_BLOCK_BAD: it has a memory error; never handed out
 */
enum hpmmap_block_state {
	HPMMAP_BLOCK_FREE,
	HPMMAP_BLOCK_HELD,
	HPMMAP_BLOCK_PINNED,
	HPMMAP_BLOCK_BAD,
};

/**
 * struct hpmmap_block - the memory behind one 2 MB slot of an address space
 *
 * Four cache lines; a call that hands a block out or takes it back needs the first two.
 *
 * @link: in a list of its owner (unused while in a store)
 * @grave: list of blocks of ordinary memory whose pages are gone
 * @folio: the order-9 folio of a pool block; NULL for ordinary memory.
 *	Immutable.
 * @pages: NULL for a pool block; otherwise SLOT_PAGES pointers to order-0
 *	ordinary pages, NULL where none was needed yet. Protected by ctx->lock.
 * @account: charged for a pool block that is not in the buddy allocator
 * @holder: has given it up, while it is PINNED
 * @sharers: the contexts that share it (as/own/family.c)
 * @slot: its slot while in a store, protected by ctx->lock; on a list from
 *	hpmmap_pool_alloc() the slot it is meant for, or NO_SLOT
 * @nid: node of a pool block. Immutable.
 * @zeroed: its stale pages are zero
 * @few: its ordinary pages do not stand in for a pool block: a few pages need no
 *	block (as/change/few.c). Protected by ctx->lock.
 * @spare: its pages come from this node if that has some to spare; NUMA_NO_NODE:
 *	from any node. Protected as @few.
 * @bad: it must not be handed out again; protected by node->lock
 * @lost: its contents are lost: they were copied from a block with a memory error.
 *	Protected as @stale.
 * @run: it stands for all blocks of its gigabyte, see RUN_BLOCKS
 * @users: number of stores it is in. With more than one it must not change, and no
 *	page-table entry is writable (see share.c).
 * @state: changed only by block_set_state()
 * @stale: one bit a page: the contents do not belong to the current mapping and
 *	must be cleared before they are visible. Protected by ctx->lock.
 * @reuse: pool block, one bit a page: the contents belong to the process that has the
 *	block, which may see them again. Valid only for the context @reuse_id.
 *	Protected as @stale.
 * @has: ordinary memory, one bit for each of @pages
 * @reuse_id: id of the context that keeps it for reuse, or 0
 * @draft: NULL, or the copy that is not complete; protected as @stale
 * @gone: for its slot, the discard that last made each page zero; protected as
 *	@stale
 */
struct hpmmap_block {
	union {
		struct list_head link;
		struct llist_node grave;
	};
	struct folio *folio;
	struct hpmmap_account *account;
	unsigned long slot;
	atomic_t users;
	enum hpmmap_block_state state;
	int nid;
	int spare;
	bool zeroed;
	bool few;
	bool bad;
	bool lost;
	bool run;
	DECLARE_BITMAP(stale, SLOT_PAGES) ____cacheline_aligned;
	union {
		DECLARE_BITMAP(reuse, SLOT_PAGES);
		DECLARE_BITMAP(has, SLOT_PAGES);
	};
	u64 reuse_id;
	struct page **pages;
	union {
		struct hpmmap_holder *holder;
		atomic64_t sharers;
	};
	struct hpmmap_draft *draft;
	struct hpmmap_gone {
		u64 discard;
		unsigned int first;
		unsigned int nr;
	} gone;
} ____cacheline_aligned;

/*
 * Does the block have a memory error? Then all its contents are lost: no page of it may be touched
 * or mapped. Errors in ordinary pages are not looked for.
 */
static inline bool hpmmap_block_is_hurt(const struct hpmmap_block *block)
{
	return block->lost || (block->folio && folio_test_has_hwpoisoned(block->folio));
}

/* Clears all of these bits, in two steps: what becomes of one bitmap_zero() is dearer. */
static inline void hpmmap_pages_clear(unsigned long *bits)
{
	bitmap_zero(bits, SLOT_PAGES / 2);
	bitmap_zero(bits + BITS_TO_LONGS(SLOT_PAGES / 2), SLOT_PAGES / 2);
}

/*
 * All of a pool block is zero, and may be seen so. One with a memory error is exchanged for
 * another when it is to mean something.
 */
static inline void hpmmap_block_show(struct hpmmap_block *block)
{
	if (!hpmmap_block_is_hurt(block))
		hpmmap_pages_clear(block->stale);
}

/* Is there one in it, or in what is behind a draft? The store is locked. */
static inline bool hpmmap_block_is_lost(const struct hpmmap_block *block)
{
	return hpmmap_block_is_hurt(block) ||
	       (unlikely(block->draft) && hpmmap_block_is_hurt(block->draft->behind));
}

/* The pages of a block of ordinary memory; the block may be in the course of being freed. */
#define hpmmap_for_each_linux_page(_block, _i, _page) \
	for_each_set_bit(_i, (_block)->has, SLOT_PAGES) \
		if (((_page) = READ_ONCE((_block)->pages[_i])))

/* The owner's counter for the ordinary pages of this block. */
static inline atomic_long_t *hpmmap_block_count(struct hpmmap_owner *owner,
						const struct hpmmap_block *block)
{
	return block->few ? &owner->nr_few_pages : &owner->nr_linux_pages;
}

/* The most pages of a slot that needs only a few. */
#define HPMMAP_FEW_IN_SLOT 64

/* Does the slot need only a few pages? A draft does not count: it copies a block with more. */
static inline bool hpmmap_block_is_few(const struct hpmmap_block *block)
{
	return block->few && !block->draft;
}

/* The node of a block; for a draft of ordinary pages, that of the block it copies. */
static inline int hpmmap_block_nid(const struct hpmmap_block *block)
{
	return block->draft && !block->folio ? block->draft->behind->nid : block->nid;
}

/* Does it have all pages that its mappings need, without a fault? */
static inline bool hpmmap_block_is_whole(const struct hpmmap_block *block)
{
	return block->folio || block->few;
}

/* Are all of these bits, one a page, as given? What bitmap_full() and bitmap_empty() call is dearer. */
static inline bool hpmmap_pages_are(const unsigned long *bits, bool set)
{
	unsigned long other = 0;
	unsigned int i;

#pragma GCC unroll 8
	for (i = 0; i < BITS_TO_LONGS(SLOT_PAGES); i++)
		other |= set ? ~bits[i] : bits[i];
	return !other;
}

static inline bool hpmmap_block_is_shared(const struct hpmmap_block *block)
{
	/* A task that finds itself the last user sees all writes of the others. */
	return atomic_read_acquire(&block->users) > 1;
}

static inline bool hpmmap_block_has_stale(struct hpmmap_block *block, unsigned int first,
		      unsigned int nr)
{
	return find_next_bit(block->stale, first + nr, first) < first + nr;
}

static inline bool hpmmap_block_has_contents(struct hpmmap_block *block, unsigned int first,
		      unsigned int nr)
{
	return find_next_zero_bit(block->stale, first + nr, first) < first + nr;
}

/*
 * A run: the blocks of a clean gigabyte, handed out, held and given back as one. The first has @run,
 * @account and @slot, a multiple of RUN_BLOCKS, for all of them. The rest stays as it was while they
 * were free, and means nothing: before anything looks at one of them the run is unfolded.
 */
#define RUN_BLOCKS (1UL << LARGE_ORDER)

void hpmmap_run_unfold(struct hpmmap_block *first);

/*
 * Tells an element of a list which slot it is for. A run that would not begin where it has to is
 * unfolded. Returns the slot for the next one.
 */
static inline unsigned long hpmmap_block_place(struct hpmmap_block *block, unsigned long slot)
{
	if (unlikely(block->run) && slot % RUN_BLOCKS)
		hpmmap_run_unfold(block);
	block->slot = slot;
	return slot + (unlikely(block->run) ? RUN_BLOCKS : 1);
}

/* list_add_tail() of a block in no list, for one of many: it does not look whether the list is sound. */
static inline void hpmmap_block_append(struct hpmmap_block *block, struct list_head *list)
{
	block->link = (struct list_head) { .next = list, .prev = list->prev };
	list->prev->next = &block->link;
	list->prev = &block->link;
}

bool hpmmap_block_linux_idle(const struct hpmmap_block *block);

/* Does only the module refer to a block that is in no page table that may still change? */
static inline bool hpmmap_block_idle(const struct hpmmap_block *block)
{
	return block->folio ? folio_ref_count(block->folio) == 1 :
			      hpmmap_block_linux_idle(block);
}

/* Entries of 1 GB that map a folio of 2 MB, anywhere. Each has a reference, and is in no reverse map. */
static inline atomic_long_t *hpmmap_folio_gigabytes(struct folio *folio)
{
	return (atomic_long_t *)&folio->private;
}

void hpmmap_block_prepare(struct hpmmap_block *block, unsigned long pfn, int nid);
void hpmmap_block_attach_linux(struct hpmmap_block *block, struct address_space *mapping);
int hpmmap_block_write(struct hpmmap_block *block, unsigned int i, const void *from);
int hpmmap_block_fill(struct hpmmap_owner *owner, struct hpmmap_block *block,
		      unsigned int first, unsigned int nr);
bool hpmmap_block_zero_unless(struct hpmmap_block *block, spinlock_t *lock, const bool *stop);
void hpmmap_block_zero(struct hpmmap_block *block);
bool hpmmap_block_clean(struct hpmmap_block *block);
void hpmmap_block_clear(struct hpmmap_owner *owner, struct hpmmap_block *block);
void hpmmap_block_set_stale(struct hpmmap_block *block, unsigned int first, unsigned int nr);
int hpmmap_block_copy(struct hpmmap_owner *owner, struct hpmmap_block *to,
		      unsigned int to_page, struct hpmmap_block *from,
		      unsigned int from_page, unsigned int nr);
struct page *hpmmap_block_page(struct hpmmap_block *block, unsigned int i);
bool hpmmap_block_is_zero(struct hpmmap_block *block, unsigned int i);
int hpmmap_block_read(struct hpmmap_block *block, unsigned int i, void *buf);
bool hpmmap_block_is_pinned(struct hpmmap_block *block);
void hpmmap_block_reset(struct hpmmap_block *block);

/* Sets the file offset of a block: shared futexes and core dumps look at a page's mapping and index. */
static inline void hpmmap_block_attach(struct hpmmap_block *block,
				       struct address_space *mapping, unsigned long slot)
{
	block->slot = slot;
	if (likely(block->folio)) {
		block->folio->mapping = mapping;
		block->folio->index = slot << SLOT_ORDER;
	} else {
		hpmmap_block_attach_linux(block, mapping);
	}
}

#endif /* _HPMMAP_MEM_BLOCK_BLOCK_H */
