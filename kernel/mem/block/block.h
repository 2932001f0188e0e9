/* SPDX-License-Identifier: GPL-2.0 */
/* Blocks: the memory behind one slot of an address space. */
#ifndef _HPMMAP_MEM_BLOCK_BLOCK_H
#define _HPMMAP_MEM_BLOCK_BLOCK_H

#include <linux/atomic.h>
#include <linux/bitmap.h>
#include <linux/cache.h>
#include <linux/llist.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/spinlock_types.h>
#include <linux/srcu.h>
#include <linux/string.h>

#include "hpmmap.h"
#include "mem/block/linux_page.h"

struct hpmmap_account;
struct hpmmap_holder;

/* One memory error after the other, while no memory leaves the pools. */
extern struct mutex hpmmap_poison_mutex;

/*
 * Held while memory of blocks is read or written that may turn out to be bad: marks are looked
 * at within it. Linux may unmap a bad page from its own tables, but not before all who have it
 * by then are done.
 */
extern struct srcu_struct hpmmap_touch_srcu;

/**
 * hpmmap_clear_words() - zero memory that somebody may be writing to
 * @addr: where, aligned to a word
 * @nr: words of 8 bytes
 *
 * Who writes a word meanwhile finds it zero afterwards, or what he wrote. memset() and
 * clear_page() write bytes where the CPU is good at that (ERMS), and half a word of each
 * may be left.
 */
static inline void hpmmap_clear_words(void *addr, size_t nr)
{
	memset64(addr, 0, nr);
}

/**
 * struct hpmmap_owner - whose blocks they are, as far as that matters here
 * @account: who is charged for what it gets, as far as is known: hpmmap_charged() asks, and
 *	changes it. Holds a reference; for others there is hpmmap_account_get()
 * @mapping: of the file that its blocks stand for; immutable
 * @mm: whose memory cgroup is charged for pages of Linux; NULL: the caller's
 * @nr_linux_pages: pages of Linux that stand in for its blocks
 * @nr_few_pages: those where no more than a few are needed
 * @nr_few_blocks: the blocks of these
 * @nr_cleared: pages that were zeroed for it
 */
struct hpmmap_owner {
	struct hpmmap_account __rcu *account;
	struct address_space *mapping;
	struct mm_struct *mm;
	atomic_long_t nr_linux_pages;
	atomic_long_t nr_few_pages;
	atomic_long_t nr_few_blocks;
	atomic_long_t nr_cleared;
};

/**
 * struct hpmmap_draft - a copy of a block that is not complete (as/store/draft.c)
 * @behind: what it is a copy of
 * @part: no one mapping covered its slot when it was begun
 * @stuck: of pages of Linux, since the pools had no block
 * @reads: pages that were copied though they were only read
 * @left: one bit a page: it was not copied yet. Of what is stale it is never set: that is
 *	the draft's own, as it is that of any block.
 */
struct hpmmap_draft {
	struct hpmmap_block *behind;
	bool part;
	bool stuck;
	unsigned int reads;
	DECLARE_BITMAP(left, SLOT_PAGES);
};

/**
 * enum hpmmap_block_state - where a block of a pool is
 * @HPMMAP_BLOCK_FREE: in the buddy allocator, or at hand for a CPU and charged (mem/pool/stock.c);
 *	nobody else refers to it
 * @HPMMAP_BLOCK_HELD: charged to an account; on a caller's list or in a store
 * @HPMMAP_BLOCK_PINNED: given up by its holder, still charged, and waiting on
 *	the pinned list for somebody else's references to go
 * @HPMMAP_BLOCK_BAD: a memory error is in it; nobody's, and never handed out
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
 * @link: list of whoever owns it (unused while in a store)
 * @grave: list of those of Linux's memory that have none any more
 * @folio: the order-9 folio of a pool block; NULL for Linux's memory.
 *	Immutable.
 * @pages: NULL for a pool block; otherwise SLOT_PAGES pointers to order-0
 *	pages of Linux, NULL where none was needed yet. Protected by ctx->lock.
 * @account: who is charged for a pool block that is not in the buddy allocator
 * @holder: who has given it up while it is PINNED
 * @sharers: of one that is shared: which contexts have it (as/own/family.c)
 * @slot: its slot while in a store, protected by ctx->lock; on a list from
 *	hpmmap_pool_alloc() the one it is meant for, or NO_SLOT
 * @nid: node of a pool block. Immutable.
 * @zeroed: those of its pages that are stale are zero
 * @few: pages of Linux that do not stand in for a block of the pools: it would be
 *	too much for them (as/change/few.c). Protected by ctx->lock.
 * @spare: node that its pages come from if there are some to spare; NUMA_NO_NODE:
 *	they come from where they can be had. Protected as @few.
 * @bad: it is not to be handed out any more; protected by node->lock
 * @lost: its contents are lost: they were copied from a block with a memory error.
 *	Protected as @stale.
 * @users: stores it is in. With more than one, nobody may change it, and no
 *	entry of a page table lets anybody write to it (see share.c).
 * @state: changed only by block_set_state()
 * @stale: one bit a page: the content means nothing to the current mapping and
 *	has to be cleared before anybody sees it. Protected by ctx->lock.
 * @reuse: of a pool block, one bit a page: the content is of the process that has the
 *	block, and it may see it again. Means something only to the context @reuse_id.
 *	Protected as @stale.
 * @has: of a block of Linux's memory, one bit for each of @pages
 * @reuse_id: id of the context that keeps it for reuse, or 0
 * @draft: NULL, or what there is to copy yet; protected as @stale
 * @gone: of its slot: which discard has made zeros of which pages last; protected as
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
 * Is there a memory error in it? Then all its contents are lost: nobody may touch or map any
 * page of it. Errors in pages of Linux are not looked for.
 */
static inline bool hpmmap_block_is_hurt(const struct hpmmap_block *block)
{
	return block->lost || (block->folio && folio_test_has_hwpoisoned(block->folio));
}

/*
 * All of a pool block is zero, and may be seen so. One with a memory error is exchanged for
 * another when it is to mean something.
 */
static inline void hpmmap_block_show(struct hpmmap_block *block)
{
	if (!hpmmap_block_is_hurt(block))
		bitmap_zero(block->stale, SLOT_PAGES);
}

/* Is there one in it, or in what is behind a draft? The store is locked. */
static inline bool hpmmap_block_is_lost(const struct hpmmap_block *block)
{
	return hpmmap_block_is_hurt(block) ||
	       (unlikely(block->draft) && hpmmap_block_is_hurt(block->draft->behind));
}

/* The pages of a block of Linux's memory, which may be being given up. */
#define hpmmap_for_each_linux_page(_block, _i, _page) \
	for_each_set_bit(_i, (_block)->has, SLOT_PAGES) \
		if (((_page) = READ_ONCE((_block)->pages[_i])))

/* Where pages of Linux in a block are counted. */
static inline atomic_long_t *hpmmap_block_count(struct hpmmap_owner *owner,
						const struct hpmmap_block *block)
{
	return block->few ? &owner->nr_few_pages : &owner->nr_linux_pages;
}

/* Most pages of a slot that has no more than a few. */
#define HPMMAP_FEW_IN_SLOT 64

/* Needs a slot no more than a few pages? A draft of them is a copy of more. */
static inline bool hpmmap_block_is_few(const struct hpmmap_block *block)
{
	return block->few && !block->draft;
}

/* Where it lies, or will; of a draft of Linux's pages what that is a copy of does. */
static inline int hpmmap_block_nid(const struct hpmmap_block *block)
{
	return block->draft && !block->folio ? block->draft->behind->nid : block->nid;
}

/* Has it all pages that its mappings ask for, without a touch? */
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
	/* Who finds it alone sees what the others wrote before they left. */
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

bool hpmmap_block_linux_idle(const struct hpmmap_block *block);

/* Does only the module refer to a block, in no page table that may still change? */
static inline bool hpmmap_block_idle(const struct hpmmap_block *block)
{
	return block->folio ? folio_ref_count(block->folio) == 1 :
			      hpmmap_block_linux_idle(block);
}

/* Is a folio of 2 MB mapped by an entry of 1 GB? It holds a reference, and is in no reverse map. */
static inline bool hpmmap_folio_in_gigabyte(const struct folio *folio)
{
	return READ_ONCE(folio->private);
}

void hpmmap_block_prepare(struct hpmmap_block *block, unsigned long pfn,
			  int nid);
void hpmmap_block_attach(struct hpmmap_block *block,
			 struct address_space *mapping, unsigned long slot);
int hpmmap_block_write(struct hpmmap_block *block, unsigned int i,
		       const void *from);
int hpmmap_block_fill(struct hpmmap_owner *owner, struct hpmmap_block *block,
		      unsigned int first, unsigned int nr);
bool hpmmap_block_zero_unless(struct hpmmap_block *block, spinlock_t *lock, const bool *stop);
void hpmmap_block_zero(struct hpmmap_block *block);
bool hpmmap_block_clean(struct hpmmap_block *block);
void hpmmap_block_clear(struct hpmmap_owner *owner, struct hpmmap_block *block);
void hpmmap_block_set_stale(struct hpmmap_block *block, unsigned int first,
			    unsigned int nr);
int hpmmap_block_copy(struct hpmmap_owner *owner, struct hpmmap_block *to,
		      unsigned int to_page, struct hpmmap_block *from,
		      unsigned int from_page, unsigned int nr);
void hpmmap_block_detach(struct hpmmap_block *block);
struct page *hpmmap_block_page(struct hpmmap_block *block, unsigned int i);
bool hpmmap_block_is_zero(struct hpmmap_block *block, unsigned int i);
int hpmmap_block_read(struct hpmmap_block *block, unsigned int i, void *buf);
bool hpmmap_block_is_pinned(struct hpmmap_block *block);
void hpmmap_block_reset(struct hpmmap_block *block);
void hpmmap_block_free(struct hpmmap_block *block, struct list_head *freed);

#endif /* _HPMMAP_MEM_BLOCK_BLOCK_H */
