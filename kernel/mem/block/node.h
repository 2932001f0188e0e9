/* SPDX-License-Identifier: GPL-2.0 */
/* The pool of a node, as the files of this folder see it. */
#ifndef _HPMMAP_MEM_BLOCK_NODE_H
#define _HPMMAP_MEM_BLOCK_NODE_H

#include <linux/hash.h>
#include <linux/kobject.h>
#include <linux/list.h>
#include <linux/rwsem.h>
#include <linux/spinlock.h>
#include <linux/wait.h>

#include "hpmmap.h"
#include "mem/block/account.h"
#include "mem/block/block.h"
#include "mem/block/buddy.h"

#define SECTION_BLOCKS (1UL << (SECTION_SIZE_BITS - SLOT_SHIFT))
#define CHUNK_SECTIONS (HPMMAP_BUDDY_CHUNK_UNITS / SECTION_BLOCKS)

/* Users are told apart by so many bits of their ID. */
#define OWED_BITS 8

/**
 * struct pool_chunk - one GB of physical memory
 * @buddy: the allocator's part
 * @clean: the clean blocks' part
 * @link: in the list of the node
 * @nr_sections: sections of it that are in the pool
 * @pinned: blocks of each section that are pinned
 * @blocks: its blocks, on the node of their memory; those of sections not in the pool are zero
 */
struct pool_chunk {
	struct hpmmap_buddy_chunk buddy;
	struct hpmmap_buddy_chunk clean;
	struct list_head link;
	unsigned int nr_sections;
	unsigned int pinned[CHUNK_SECTIONS];
	struct hpmmap_block *blocks;
};

/**
 * struct pool_node - the pool of one NUMA node
 * @lock: protects the members that follow, the state of free blocks, and how
 *	many are pinned in each section
 * @buddy: its blocks; chunks come and go under hpmmap_pool_mutex too
 * @clean: which of the free blocks are clean
 * @nr_doomed: blocks that will be bad once nobody has them any more
 * @nr_bad: bad blocks
 * @chunks: all of them, those first that have free blocks which are not clean
 * @nr_pinned: blocks that are pinned
 * @nr_out: free blocks that are out of the allocator, being zeroed
 * @laundries: what they belong to, by the task that zeroes them
 * @stops: while this is not 0, no free block leaves the allocator to be zeroed
 * @nr_soiled: free blocks that are not clean and that @zeroer should zero
 * @hurry: since when clean blocks have been short, in jiffies; 0: they are not. After a second
 *	@zeroer adds to @nr_soiled what live processes gave up
 * @owed: by user, blocks that its processes gave up and that were not clean, as far as
 *	nobody has zeroed them
 * @nr_owed: all of those; no more than there are free blocks that are not clean
 * @zeroer: thread of the node; there while there is memory. Protected by
 *	hpmmap_pool_mutex.
 * @work: it waits here
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
	struct task_struct *zeroer;
	wait_queue_head_t work;
	struct kobject kobj;
};

extern struct pool_node *pool_nodes[MAX_NUMNODES];

static inline void block_set_state(struct hpmmap_block *block,
			    enum hpmmap_block_state state)
{
	WRITE_ONCE(block->state, state);
}

/* Does only the module refer to it, in no page table and no store? */
static inline bool has_no_user(const struct hpmmap_block *block)
{
	return folio_ref_count(block->folio) == 1 && !atomic_read(&block->users);
}

/* A block that nobody has any more, and nobody will. */
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

/* How many blocks of a section are pinned. */
static inline unsigned int *pinned_of(struct pool_node *pn, unsigned long unit)
{
	struct pool_chunk *chunk = chunk_of(pn, unit);

	return &chunk->pinned[unit % HPMMAP_BUDDY_CHUNK_UNITS / SECTION_BLOCKS];
}

static inline struct pool_node *pool_node_find(int nid)
{
	return smp_load_acquire(&pool_nodes[nid]);
}

/* Free blocks that are not clean. */
static inline unsigned long nr_unclean(const struct pool_node *pn)
{
	return pn->buddy.nr_free - pn->clean.nr_free;
}

/* What the user of an account owes; others may share it, which costs them no more. */
static inline unsigned int *owed_of(struct pool_node *pn,
				    const struct hpmmap_account *account)
{
	return &pn->owed[hash_32(__kuid_val(hpmmap_account_uid(account)),
				 OWED_BITS)];
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

/* Blocks of a list that are looked at without a pause. */
#define WITHOUT_PAUSE 256

extern struct rw_semaphore stocks_rwsem;

void blocks_free(struct list_head *list);

/* Most blocks of one kind, clean or not, that a CPU has at hand (stock.c). */
#define STOCK_MOST 32U

bool stock_is_asked(const struct hpmmap_account *account);
bool stock_take(struct hpmmap_account *account, int nid, unsigned long nr, bool clean,
		struct list_head *out);
void stock_fill(struct hpmmap_account *account, int nid, unsigned int most,
		struct list_head *list);
bool stock_is_full(struct list_head *list);
void stock_put(struct list_head *list, bool displace);
unsigned int stock_spare(struct hpmmap_account *account);
void stocks_take_all(bool unclean, struct list_head *out);
unsigned int unclean_take(struct pool_node *pn, unsigned long nr,
			  unsigned long *unit);
void owed_trim(struct pool_node *pn);
void zeroer_add(struct pool_node *pn, unsigned long nr);
void zeroer_hurry(struct pool_node *pn);
int zeroer_start(struct pool_node *pn, int nid);
void zeroer_stop(struct pool_node *pn);

#endif /* _HPMMAP_MEM_BLOCK_NODE_H */
