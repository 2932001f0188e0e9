// SPDX-License-Identifier: GPL-2.0
/*
 * The memory of files.
 *
 * A file has no holes: its size, rounded up to 2 MB, is memory of the pools from the moment on in
 * which it has that size, all of it zero. So a touch never asks for memory, and is never charged
 * for it; the process that makes the file larger is.
 *
 * A page is mapped with its folio locked, after a look at the size and at whether the block is
 * still the file's. A file becomes smaller in this order: its size is set, then each folio behind
 * it is locked, taken out of all page tables and out of the file. So it is not mapped afterwards.
 * A pinned block goes the way of all pinned blocks then, and counts for the user that got it and
 * for the file system until it is back in its pool.
 *
 * Calls that change how much memory a file has are serialised by i_rwsem of its inode.
 */
#include <linux/pagemap.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "hpmmap.h"
#include "mem/block/account.h"
#include "mem/block/block.h"
#include "mem/block/nodes.h"
#include "mem/pool/pinned.h"
#include "mem/pool/pool.h"
#include "as/own/ctx.h"
#include "as/own/reserve.h"
#include "as/map/policy.h"
#include "fs/space.h"

/* Blocks that are given back to the pools at once. */
#define FREE_BATCH 512

atomic_long_t hpmmap_fs_counts[HPMMAP_FS_NR_COUNTS];

/* Of all that no job pays for. */
static struct hpmmap_tally *nobodys;

int hpmmap_fs_space_init(void)
{
	nobodys = hpmmap_tally_alloc();
	return nobodys ? 0 : -ENOMEM;
}

void hpmmap_fs_space_exit(void)
{
	hpmmap_tally_put(nobodys);
}

static bool try_charge(struct hpmmap_fs *fs, unsigned long nr)
{
	bool ret;

	spin_lock(&fs->lock);
	ret = nr <= fs->limit && fs->used <= fs->limit - nr;
	if (ret)
		fs->used += nr;
	spin_unlock(&fs->lock);
	return ret;
}

/*
 * So many blocks more, if the size of the file system allows it: without those that were
 * pinned until just now. May sleep.
 */
static bool fs_charge(struct hpmmap_fs *fs, unsigned long nr)
{
	if (likely(try_charge(fs, nr)))
		return true;
	hpmmap_pinned_poll_some();
	return try_charge(fs, nr);
}

static void fs_uncharge(struct hpmmap_fs *fs, unsigned long nr)
{
	spin_lock(&fs->lock);
	fs->used -= nr;
	spin_unlock(&fs->lock);
}

/* Unpinned blocks, back to their pools; what is not zero is left to be zeroed. */
static void free_blocks(struct hpmmap_fs *fs, struct list_head *freed, unsigned long nr)
{
	struct hpmmap_block *block;
	unsigned int *soiled;
	int nid;

	if (!nr)
		return;
	soiled = kcalloc(nr_node_ids, sizeof(*soiled), GFP_KERNEL);
	list_for_each_entry(block, freed, link)
		if (soiled && !block->zeroed)
			soiled[block->nid]++;
	hpmmap_pool_free(freed);
	fs_uncharge(fs, nr);
	/* They are free before a worker may be asked to zero them. */
	for (nid = 0; soiled && nid < nr_node_ids; nid++)
		if (soiled[nid])
			hpmmap_pool_soiled(nid, soiled[nid]);
	kfree(soiled);
}

/* The pins of a block that a file gave up have gone. */
static void pinned_back(struct hpmmap_holder *holder, struct hpmmap_block *block)
{
	struct hpmmap_fs *fs = container_of(holder, struct hpmmap_fs, holder);
	LIST_HEAD(freed);

	hpmmap_block_reset(block);
	list_add_tail(&block->link, &freed);
	free_blocks(fs, &freed, 1);
	atomic_long_dec(&hpmmap_fs_counts[HPMMAP_FS_PINNED]);
	hpmmap_fs_put(fs);
}

/* A file system without files, with one reference, or NULL without memory. */
struct hpmmap_fs *hpmmap_fs_alloc(void)
{
	struct hpmmap_fs *fs = kzalloc(sizeof(*fs), GFP_KERNEL_ACCOUNT);

	if (!fs)
		return NULL;
	refcount_set(&fs->refs, 1);
	spin_lock_init(&fs->lock);
	fs->holder.back = pinned_back;
	fs->inode_limit = HPMMAP_FS_NO_LIMIT;
	fs->limit = HPMMAP_FS_NO_LIMIT;
	return fs;
}

void hpmmap_fs_put(struct hpmmap_fs *fs)
{
	if (refcount_dec_and_test(&fs->refs))
		kfree(fs);
}

/* One more inode, or one more name of an inode that has one; false where the limit is reached. */
bool hpmmap_fs_charge_inode(struct hpmmap_fs *fs)
{
	bool ret;

	spin_lock(&fs->lock);
	ret = fs->inodes < fs->inode_limit;
	fs->inodes += ret;
	spin_unlock(&fs->lock);
	return ret;
}

void hpmmap_fs_uncharge_inode(struct hpmmap_fs *fs)
{
	spin_lock(&fs->lock);
	fs->inodes--;
	spin_unlock(&fs->lock);
}

/*
 * A block of a file, with a reference to its folio, so that it does not go to another
 * owner; NULL where the file has none.
 */
struct hpmmap_block *hpmmap_fs_block_get(struct inode *inode, unsigned long index)
{
	struct xarray *blocks = &hpmmap_fs_inode(inode)->blocks;
	struct hpmmap_block *block;

	xa_lock(blocks);
	block = xa_load(blocks, index);
	if (block)
		folio_get(block->folio);
	xa_unlock(blocks);
	return block;
}

/*
 * The same with its folio locked, as long as which it stays the file's; for
 * hpmmap_fs_block_unlock(). An ERR_PTR: -EAGAIN where it would have had to wait and must
 * not (@nowait), -EINTR for a task that is being killed.
 */
struct hpmmap_block *hpmmap_fs_block_lock(struct inode *inode, unsigned long index,
					  bool nowait)
{
	struct hpmmap_block *block;

	for (;;) {
		block = hpmmap_fs_block_get(inode, index);
		if (!block)
			return NULL;
		if (!folio_trylock(block->folio) &&
		    (nowait || folio_lock_killable(block->folio))) {
			folio_put(block->folio);
			return ERR_PTR(nowait ? -EAGAIN : -EINTR);
		}
		if (block->folio->mapping == inode->i_mapping &&
		    block->folio->index == index << SLOT_ORDER)
			return block;
		hpmmap_fs_block_unlock(block);
	}
}

void hpmmap_fs_block_unlock(struct hpmmap_block *block)
{
	folio_unlock(block->folio);
	folio_put(block->folio);
}

static void count_blocks(struct inode *inode, unsigned long before)
{
	unsigned long nr = hpmmap_fs_inode(inode)->nr;

	inode_set_bytes(inode, (loff_t)nr << SLOT_SHIFT);
	atomic_long_add(nr - before, &hpmmap_fs_counts[HPMMAP_FS_BLOCKS]);
	atomic_long_add(!!nr - !!before, &hpmmap_fs_counts[HPMMAP_FS_FILES]);
}

/* Blocks that are charged to the caller; for a registered process as its job says. */
static int reserve(unsigned long index, unsigned long nr, struct list_head *out)
{
	struct hpmmap_placement place;
	struct hpmmap_request req = {
		.place = &place,
		.slot = index,
		.nr = nr,
		.large = nr >> LARGE_ORDER,
	};
	struct hpmmap_ctx *ctx = NULL;
	int ret;

	if (current->mm && !(current->flags & PF_KTHREAD))
		ctx = hpmmap_ctx_get(current->mm);
	hpmmap_placement_get(ctx ? ctx->job : NULL, NULL, &place);
	if (ctx) {
		ret = hpmmap_reserve(ctx, &place, index, nr, out);
		hpmmap_ctx_put(ctx);
		return ret;
	}
	req.account = hpmmap_account_get_current(nobodys);
	if (!req.account)
		return -ENOMEM;
	ret = hpmmap_pool_alloc(&req, out);
	hpmmap_account_put(req.account);
	return ret;
}

/* A block is the file's no more. Its folio is locked, and is not any more afterwards. */
static void give_up(struct inode *inode, struct hpmmap_block *block,
		    struct list_head *freed, unsigned long *nr)
{
	struct hpmmap_fs *fs = hpmmap_fs_of(inode->i_sb);

	block->folio->mapping = NULL;
	folio_unlock(block->folio);
	if (hpmmap_block_idle(block)) {
		hpmmap_block_reset(block);
		list_add_tail(&block->link, freed);
		++*nr;
		return;
	}
	refcount_inc(&fs->refs);
	atomic_long_inc(&hpmmap_fs_counts[HPMMAP_FS_PINNED]);
	hpmmap_pinned_add(block, &fs->holder);
}

/* No mapping has a block of a file afterwards, until its folio is unlocked, which is locked. */
void hpmmap_fs_unmap_block(struct inode *inode, struct hpmmap_block *block)
{
	if (compat_folio_mapcount(block->folio))
		unmap_mapping_range(inode->i_mapping,
				    (loff_t)block->folio->index << PAGE_SHIFT,
				    SLOT_SIZE, 0);
}

/* Takes the blocks from one on out of a file, whose size ends before them. */
static void cut_range(struct inode *inode, unsigned long from, unsigned long to)
{
	struct hpmmap_fs_inode *info = hpmmap_fs_inode(inode);
	struct hpmmap_fs *fs = hpmmap_fs_of(inode->i_sb);
	unsigned long i, nr = 0;
	LIST_HEAD(freed);

	for (i = from; i < to; i++) {
		struct hpmmap_block *block = xa_load(&info->blocks, i);

		if (!block)
			continue;
		folio_lock(block->folio);
		hpmmap_fs_unmap_block(inode, block);
		xa_erase(&info->blocks, i);
		give_up(inode, block, &freed, &nr);
		cond_resched();
		if (nr < FREE_BATCH)
			continue;
		free_blocks(fs, &freed, nr);
		nr = 0;
	}
	free_blocks(fs, &freed, nr);
}

/*
 * Takes from a file all but @nr blocks; its size ends before what goes. i_rwsem is held, or
 * nothing else has the file any more.
 */
void hpmmap_fs_cut(struct inode *inode, unsigned long nr)
{
	struct hpmmap_fs_inode *info = hpmmap_fs_inode(inode);
	unsigned long before = info->nr;

	if (nr >= before)
		return;
	cut_range(inode, nr, before);
	info->nr = nr;
	count_blocks(inode, before);
}

/* Puts all blocks of a list behind those that a file has. */
static int insert(struct inode *inode, struct list_head *blocks)
{
	struct hpmmap_fs_inode *info = hpmmap_fs_inode(inode);
	struct hpmmap_fs *fs = hpmmap_fs_of(inode->i_sb);
	unsigned long before = info->nr, at = before, left = 0;
	struct hpmmap_block *block, *tmp;

	list_for_each_entry_safe(block, tmp, blocks, link) {
		list_del_init(&block->link);
		hpmmap_block_attach(block, inode->i_mapping, at);
		if (xa_err(xa_store(&info->blocks, at, block, GFP_KERNEL_ACCOUNT))) {
			hpmmap_block_detach(block);
			list_add(&block->link, blocks);
			goto err_undo;
		}
		at++;
		cond_resched();
	}
	info->nr = at;
	count_blocks(inode, before);
	return 0;

err_undo:
	list_for_each_entry(block, blocks, link)
		left++;
	hpmmap_pool_free_unused(blocks);
	fs_uncharge(fs, left);
	cut_range(inode, before, at);
	return -ENOMEM;
}

/*
 * Gives a file @nr blocks, if it has less, charged to the caller. The size stays. i_rwsem
 * is held. Returns 0, or -ENOSPC, -ENOMEM or -EINTR, and nothing has changed.
 */
int hpmmap_fs_grow(struct inode *inode, unsigned long nr)
{
	struct hpmmap_fs_inode *info = hpmmap_fs_inode(inode);
	struct hpmmap_fs *fs = hpmmap_fs_of(inode->i_sb);
	LIST_HEAD(blocks);
	int ret;

	lockdep_assert_held_write(&inode->i_rwsem);
	if (nr <= info->nr)
		return 0;
	nr -= info->nr;
	if (!fs_charge(fs, nr))
		return -ENOSPC;
	ret = reserve(info->nr, nr, &blocks);
	if (ret) {
		fs_uncharge(fs, nr);
		return fatal_signal_pending(current) ? -EINTR : -ENOSPC;
	}
	ret = hpmmap_pool_clear(&fs->owner, &blocks, NO_SLOT, NO_SLOT);
	if (!ret)
		return insert(inode, &blocks);
	hpmmap_pool_free_unused(&blocks);
	fs_uncharge(fs, nr);
	return ret;
}

/* Word by word, as far as whole words are zeroed: another task may be writing to them. */
static void zero_words(void *addr, size_t len)
{
	size_t head = min_t(size_t, len, -(unsigned long)addr & (sizeof(u64) - 1));
	size_t words = (len - head) / sizeof(u64);

	memset(addr, 0, head);
	hpmmap_clear_words(addr + head, words);
	memset(addr + head + words * sizeof(u64), 0, len - head - words * sizeof(u64));
}

/* Writes zeros to a part of a block, if no memory error is in it. */
static void zero_part(struct hpmmap_block *block, size_t from, size_t to)
{
	int cookie = srcu_read_lock(&hpmmap_touch_srcu);

	if (likely(!hpmmap_block_is_hurt(block)))
		zero_words(folio_address(block->folio) + from, to - from);
	srcu_read_unlock(&hpmmap_touch_srcu, cookie);
}

/*
 * Makes what is behind the end of a file zero, before it becomes larger: a process that has
 * its last page mapped may have written there. @pos: where it is written to next, or what
 * its size will be. i_rwsem is held.
 */
void hpmmap_fs_zero_tail(struct inode *inode, loff_t pos)
{
	loff_t size = i_size_read(inode);
	size_t end = size & ~SLOT_MASK;

	lockdep_assert_held_write(&inode->i_rwsem);
	if (end && pos > size)
		zero_part(xa_load(&hpmmap_fs_inode(inode)->blocks, size >> SLOT_SHIFT), end,
			  round_up(end, PAGE_SIZE));
}

/* A file becomes smaller, or gives up what it has beyond its size. i_rwsem is held. */
void hpmmap_fs_shrink(struct inode *inode, loff_t size)
{
	loff_t behind = round_up(size, PAGE_SIZE);
	struct hpmmap_block *block;

	lockdep_assert_held_write(&inode->i_rwsem);
	i_size_write(inode, size);
	unmap_mapping_range(inode->i_mapping, behind, 0, 1);
	if (size & ~SLOT_MASK) {
		/* A fault that maps it now has looked at the old size. */
		block = xa_load(&hpmmap_fs_inode(inode)->blocks, size >> SLOT_SHIFT);
		folio_lock(block->folio);
		if (behind & ~SLOT_MASK)
			unmap_mapping_range(inode->i_mapping, behind,
					    round_up(behind, SLOT_SIZE) - behind, 0);
		zero_part(block, size & ~SLOT_MASK, SLOT_SIZE);
		folio_unlock(block->folio);
	}
	hpmmap_fs_cut(inode, hpmmap_fs_blocks(size));
	/* Copies of private mappings, that were made meanwhile. */
	unmap_mapping_range(inode->i_mapping, behind, 0, 1);
}

/* A part of one block. */
static int zero_in(struct inode *inode, unsigned long index, size_t from, size_t to)
{
	struct hpmmap_block *block = hpmmap_fs_block_lock(inode, index, false);
	int ret;

	if (IS_ERR_OR_NULL(block))
		return PTR_ERR_OR_ZERO(block);
	zero_part(block, from, to);
	ret = hpmmap_block_is_hurt(block) ? -EIO : 0;
	hpmmap_fs_block_unlock(block);
	return ret;
}

/*
 * Writes zeros to a part of a file that has memory, in place. i_rwsem is held. Returns 0,
 * or when some of it may be zero -EINTR for a task that is being killed, or -EIO where a
 * memory error is.
 */
int hpmmap_fs_zero(struct inode *inode, loff_t start, loff_t end)
{
	int ret = 0;

	lockdep_assert_held_write(&inode->i_rwsem);
	while (start < end && !ret) {
		loff_t next = min_t(loff_t, end, round_down(start, SLOT_SIZE) + SLOT_SIZE);

		if (fatal_signal_pending(current))
			return -EINTR;
		ret = zero_in(inode, start >> SLOT_SHIFT, start & ~SLOT_MASK,
			      next - round_down(start, SLOT_SIZE));
		start = next;
		cond_resched();
	}
	return ret;
}
