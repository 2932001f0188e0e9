/* SPDX-License-Identifier: GPL-2.0 */
/* The pool of a node, as the files of this folder see it. */
#ifndef _HPMMAP_MEM_BLOCK_NODE_H
#define _HPMMAP_MEM_BLOCK_NODE_H

#include "mem/block/account.h"
#include "mem/block/block.h"
#include "mem/block/buddy.h"
#include "mem/block/payer.h"

#define SECTION_BLOCKS (1UL << (SECTION_SIZE_BITS - SLOT_SHIFT))
#define CHUNK_SECTIONS (HPMMAP_BUDDY_CHUNK_UNITS / SECTION_BLOCKS)

/* Bits of a user ID that tell users apart in @owed. */
#define OWED_BITS 8

/* One GB of physical memory. */
struct pool_chunk {
	struct hpmmap_buddy_chunk buddy;	/* the allocator's part */
	struct hpmmap_buddy_chunk clean;	/* the clean blocks' part */
	struct list_head link;			/* in the list of the node */
	unsigned int nr_sections;		/* its sections that are in the pool */
	unsigned int pinned[CHUNK_SECTIONS];	/* number of pinned blocks in each section */
	/* Its blocks, on the node of their memory; zero for sections that are not in the pool. */
	struct hpmmap_block *blocks;
};

/**
 * struct pool_node - the pool of one NUMA node
 * @lock: protects the members that follow, the state of free blocks, and the
 *	number of pinned blocks of each section
 * @buddy: its blocks; chunks come and go under hpmmap_pool_mutex too
 * @clean: which of the free blocks are clean
 * @nr_doomed: blocks in use that become bad when they are freed
 * @nr_bad: bad blocks
 * @chunks: all chunks, those with free blocks that are not clean first
 * @nr_pinned: blocks that are pinned
 * @nr_out: free blocks that a task has taken out of the allocator to zero them
 * @laundries: these blocks, one struct laundry for each such task
 * @stops: while this is not 0, no free block leaves the allocator to be zeroed
 * @nr_soiled: free blocks that are not clean and that @zeroer should zero
 * @hurry: jiffies since which clean blocks have been short; 0: they are not. After a second
 *	@zeroer adds to @nr_soiled the blocks that live processes gave up
 * @owed: for each user, the blocks that its processes gave up, not clean, and that have
 *	not been zeroed since
 * @nr_owed: sum of @owed; at most the number of free blocks that are not clean
 * @nr_promises: payers with a promise of this node
 * @unclaimed: free blocks that only those get to whom they are promised (account.c)
 * @nr_taking: free blocks that are about to leave the allocator, held already
 * @zeroer: thread that zeroes blocks, while the pool has memory. Protected by
 *	hpmmap_pool_mutex.
 * @work: @zeroer waits here
 * @kobj: in sysfs
 */
struct pool_node {
	spinlock_t lock;
	struct hpmmap_buddy buddy;
	struct hpmmap_buddy clean;
	unsigned long nr_doomed;
	unsigned long nr_bad;
	struct list_head chunks;
	unsigned long nr_pinned;
	unsigned long nr_out;
	struct list_head laundries;
	unsigned int stops;
	unsigned long nr_soiled;
	unsigned long hurry;
	unsigned int owed[1 << OWED_BITS];
	unsigned long nr_owed;
	unsigned int nr_promises;
	long unclaimed;
	unsigned long nr_taking;
	struct task_struct *zeroer;
	wait_queue_head_t work;
	struct kobject kobj;
};

extern struct pool_node *pool_nodes[MAX_NUMNODES];

static inline void block_set_state(struct hpmmap_block *block, enum hpmmap_block_state state)
{
	WRITE_ONCE(block->state, state);
}

/* Does only the module refer to it? No page table maps it, no store has it. */
static inline bool has_no_user(const struct hpmmap_block *block)
{
	return folio_ref_count(block->folio) == 1 && !atomic_read(&block->users);
}

/* Makes a free block bad: it is never handed out again. */
static inline void block_retire(struct pool_node *pn, struct hpmmap_block *block)
{
	lockdep_assert_held(&pn->lock);
	block_set_state(block, HPMMAP_BLOCK_BAD);
	block->zeroed = false;
	pn->nr_doomed--;
	pn->nr_bad++;
}

static inline struct pool_chunk *chunk_of(struct pool_node *pn, unsigned long unit)
{
	struct hpmmap_buddy_chunk *bc;

	bc = hpmmap_buddy_chunk_find(&pn->buddy, unit);
	return bc ? container_of(bc, struct pool_chunk, buddy) : NULL;
}

static inline struct hpmmap_block *block_of(struct pool_node *pn, unsigned long unit)
{
	struct pool_chunk *chunk = chunk_of(pn, unit);

	return &chunk->blocks[unit % HPMMAP_BUDDY_CHUNK_UNITS];
}

static inline unsigned long unit_of(const struct hpmmap_block *block)
{
	return folio_pfn(block->folio) >> SLOT_ORDER;
}

/* The number of pinned blocks of a section. */
static inline unsigned int *pinned_of(struct pool_node *pn, unsigned long unit)
{
	struct pool_chunk *chunk = chunk_of(pn, unit);

	return &chunk->pinned[unit % HPMMAP_BUDDY_CHUNK_UNITS / SECTION_BLOCKS];
}

static inline struct pool_node *pool_node_find(int nid)
{
	return smp_load_acquire(&pool_nodes[nid]);
}

/* Free blocks, with those that are being zeroed; promises are kept out of these. */
static inline long nr_for_promises(const struct pool_node *pn)
{
	lockdep_assert_held(&pn->lock);
	return pn->buddy.nr_free + pn->nr_out - pn->nr_taking;
}

/* Free blocks that are not clean. */
static inline unsigned long nr_unclean(const struct pool_node *pn)
{
	return pn->buddy.nr_free - pn->clean.nr_free;
}

/* The blocks that an account's user owes. Users may share a counter: it costs zeroing only. */
static inline unsigned int *owed_of(struct pool_node *pn, const struct hpmmap_account *account)
{
	return &pn->owed[hash_32(__kuid_val(hpmmap_account_user(account)->uid), OWED_BITS)];
}

bool block_quarantine(struct pool_node *pn, struct hpmmap_block *block);

/*
 * Free: a block in the pool, and one that leaves it, is nobody's. Only the module refers to it,
 * so no page table maps it, and no store has it. Otherwise it is never handed out again, and
 * the module stays: Linux must not have the memory either.
 */
static inline bool is_nobodys(struct pool_node *pn, struct hpmmap_block *block)
{
	return likely(has_no_user(block)) || !block_quarantine(pn, block);
}

/* The same of all blocks of a run. Their users do not change meanwhile: plain reads are cheaper. */
static inline bool run_is_nobodys(const struct hpmmap_block *first)
{
	unsigned long i;
	int others = 0;

#pragma GCC unroll 16
	for (i = 0; i < RUN_BLOCKS; i++)
		others |= (folio_ref_count(hpmmap_folio_nth(first->folio, i)) - 1) |
			  first[i].users.counter;
	return !others;
}

/* Blocks of a list that are looked at without a pause. */
#define WITHOUT_PAUSE 256

extern struct rw_semaphore stocks_rwsem;

void blocks_free(struct list_head *list);

/* Most blocks of one kind, clean or not, that a CPU has at hand (stock.c). */
#define STOCK_MOST 32U

bool stock_is_asked(const struct hpmmap_account *account);
bool stock_take(struct hpmmap_account *account, int nid, unsigned long nr, bool clean,
		struct list_head *out);
void stock_fill(struct hpmmap_account *account, int nid, unsigned int most, struct list_head *list);
bool stock_is_full(struct list_head *list);
void stock_put(struct list_head *list, bool displace);
unsigned int stock_spare(struct hpmmap_account *account);
void stocks_take_all(bool unclean, struct list_head *out);
unsigned int unclean_take(struct pool_node *pn, unsigned long nr, bool yields, unsigned long *unit);
void owed_trim(struct pool_node *pn);
void zeroer_add(struct pool_node *pn, unsigned long nr);
void zeroer_hurry(struct pool_node *pn);
int zeroer_start(struct pool_node *pn, int nid);
void zeroer_stop(struct pool_node *pn);

#endif /* _HPMMAP_MEM_BLOCK_NODE_H */
