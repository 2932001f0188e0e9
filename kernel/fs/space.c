// SPDX-License-Identifier: GPL-2.0
/*
 * The memory of files.
 *
 * A file gets no holes by itself: its size, rounded up to 2 MB, is memory of the pools from the moment
 * on in which it has that size, all of it zero. So a touch never asks for memory, and is never charged
 * for it; the process that makes the file larger is. Only FALLOC_FL_PUNCH_HOLE makes holes, of whole
 * blocks, where the mount has them given back. A touch of a hole fills it, and is charged for it.
 *
 * A page is mapped with its folio locked, after a look at the size and at whether the block is
 * still the file's. A file becomes smaller in this order: its size is set, then each folio behind
 * it is locked, taken out of all page tables and out of the file. So it is not mapped afterwards.
 * A pinned block goes the way of all pinned blocks then, and counts for the user that got it and
 * for the file system until it is back in its pool.
 *
 * Calls that change how much memory a file has are serialised by i_rwsem of its inode.
 */
#include "hpmmap.h"
#include "mem/block/account.h"
#include "mem/block/block.h"
#include "mem/block/nodes.h"
#include "mem/pool/pinned.h"
#include "mem/pool/pool.h"
#include "as/own/ctx.h"
#include "as/own/reserve.h"
#include "as/map/gigabyte.h"
#include "as/map/policy.h"
#include "as/map/vma.h"
#include "fs/space.h"

/* Blocks that are given back to the pools at once. */
#define FREE_BATCH 512

atomic_long_t hpmmap_fs_counts[HPMMAP_FS_NR_COUNTS];

/* In the index of a file: memory that was given back, which a fault may fill at any moment. */
#define HOLE xa_mk_value(0)

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

static bool try_charge(struct hpmmap_fs *fs, unsigned long nr, bool charge)
{
	bool ret;

	spin_lock(&fs->lock);
	ret = nr <= fs->limit && fs->used <= fs->limit - nr;
	if (ret && charge)
		fs->used += nr;
	spin_unlock(&fs->lock);
	return ret;
}

/*
 * So many blocks more, if the size of the file system allows it: without those that were
 * pinned until just now. Without @charge: would it? May sleep.
 */
static bool fs_charge(struct hpmmap_fs *fs, unsigned long nr, bool charge)
{
	if (likely(try_charge(fs, nr, charge)))
		return true;
	hpmmap_pinned_poll_some();
	return try_charge(fs, nr, charge);
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

/* Its holder has i_rwsem, or the lock of the blocks. */
static struct hpmmap_block *block_at(struct inode *inode, unsigned long index)
{
	void *entry = xa_load(&hpmmap_fs_inode(inode)->blocks, index);

	return entry == HOLE ? NULL : entry;
}

/* Was memory of a file given back here? */
bool hpmmap_fs_is_hole(struct inode *inode, unsigned long index)
{
	return xa_load(&hpmmap_fs_inode(inode)->blocks, index) == HOLE;
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
	block = block_at(inode, index);
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

/* So many blocks more, or less. */
static void count_blocks(struct inode *inode, long nr)
{
	inode_add_bytes(inode, (loff_t)nr << SLOT_SHIFT);
	atomic_long_add(nr, &hpmmap_fs_counts[HPMMAP_FS_BLOCKS]);
}

static void set_nr(struct inode *inode, unsigned long nr)
{
	struct hpmmap_fs_inode *info = hpmmap_fs_inode(inode);

	atomic_long_add(!!nr - !!info->nr, &hpmmap_fs_counts[HPMMAP_FS_FILES]);
	info->nr = nr;
}

/* Blocks that are charged to the caller; for a registered process as its job says. */
static int reserve(struct super_block *sb, unsigned long index, unsigned long nr,
		   struct list_head *out)
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
	place.large |= hpmmap_fs_is_1g(sb);
	if (ctx) {
		ret = hpmmap_reserve(ctx, &place, index, nr, false, out);
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

/*
 * No mapping has a block of a file afterwards, until its folio is unlocked, which is locked. Each
 * entry has a reference; where it is counted may change at this moment.
 */
void hpmmap_fs_unmap_block(struct inode *inode, struct hpmmap_block *block)
{
	if (!hpmmap_block_idle(block))
		hpmmap_gigabyte_unmap(inode->i_mapping, (loff_t)block->folio->index << PAGE_SHIFT,
				      SLOT_SIZE, 0);
}

/*
 * Takes blocks out of a file, whose size ends before them, or leaves holes. i_rwsem is held, or
 * nothing else has the file any more. Returns how many.
 */
static unsigned long cut_range(struct inode *inode, unsigned long from, unsigned long to,
			       void *left)
{
	struct hpmmap_fs_inode *info = hpmmap_fs_inode(inode);
	struct hpmmap_fs *fs = hpmmap_fs_of(inode->i_sb);
	unsigned long i, nr = 0, all = 0;
	LIST_HEAD(freed);

	for (i = from; i < to; i++) {
		/* A fault may fill a hole, and takes no block out. */
		struct hpmmap_block *block = xa_cmpxchg(&info->blocks, i, HOLE, left, GFP_NOWAIT);

		cond_resched();
		if (!block || block == HOLE)
			continue;
		all++;
		folio_lock(block->folio);
		hpmmap_fs_unmap_block(inode, block);
		/* Where something is already it takes no memory. */
		xa_store(&info->blocks, i, left, GFP_NOWAIT);
		give_up(inode, block, &freed, &nr);
		if (nr < FREE_BATCH)
			continue;
		free_blocks(fs, &freed, nr);
		nr = 0;
	}
	free_blocks(fs, &freed, nr);
	return all;
}

/*
 * Takes from a file all but @nr blocks; its size ends before what goes. i_rwsem is held, or
 * nothing else has the file any more.
 */
void hpmmap_fs_cut(struct inode *inode, unsigned long nr)
{
	unsigned long before = hpmmap_fs_inode(inode)->nr;

	if (nr >= before)
		return;
	count_blocks(inode, -cut_range(inode, nr, before, NULL));
	set_nr(inode, nr);
}

/* The index did not take a block. A memory error may have found the file by it, and has the lock. */
static void detach(struct hpmmap_block *block, struct list_head *blocks)
{
	folio_lock(block->folio);
	hpmmap_folio_detach(block->folio);
	folio_unlock(block->folio);
	list_add(&block->link, blocks);
}

/* Blocks that came to nothing. */
static void give_back(struct hpmmap_fs *fs, struct list_head *blocks)
{
	unsigned long nr = 0;
	struct list_head *block;

	list_for_each(block, blocks)
		nr++;
	hpmmap_pool_free_unused(blocks);
	fs_uncharge(fs, nr);
}

/*
 * Cleared blocks for a file, for its slots from @index on, charged to the caller. Returns 0, or -ENOSPC
 * or -EINTR.
 */
static int get_blocks(struct inode *inode, unsigned long index, unsigned long nr,
		      struct list_head *out)
{
	struct hpmmap_fs *fs = hpmmap_fs_of(inode->i_sb);
	struct hpmmap_block *block;
	int ret;

	do {
		/* Others could not have what is charged for a request that the pools refuse. */
		if (!fs_charge(fs, nr, false))
			return -ENOSPC;
		ret = reserve(inode->i_sb, index, nr, out);
		if (ret)
			return fatal_signal_pending(current) ? -EINTR : -ENOSPC;
		if (!fs_charge(fs, nr, true)) {
			hpmmap_pool_free_unused(out);
			return -ENOSPC;
		}
		ret = hpmmap_pool_clear(&fs->owner, out, NO_SLOT, NO_SLOT);
		/* Clearing takes long. After this an error is found at the first touch. */
		list_for_each_entry(block, out, link)
			ret = ret ?: hpmmap_block_is_hurt(block) ? -EAGAIN : 0;
		if (ret)
			give_back(fs, out);
	} while (ret == -EAGAIN);
	return ret;
}

/* Puts all blocks of a list behind those that a file has. */
static int insert(struct inode *inode, struct list_head *blocks)
{
	struct hpmmap_fs_inode *info = hpmmap_fs_inode(inode);
	struct hpmmap_block *block, *tmp;
	unsigned long at = info->nr;

	list_for_each_entry_safe(block, tmp, blocks, link) {
		list_del_init(&block->link);
		hpmmap_block_attach(block, inode->i_mapping, at);
		if (xa_err(xa_store(&info->blocks, at, block, GFP_KERNEL_ACCOUNT))) {
			detach(block, blocks);
			goto err_undo;
		}
		at++;
		cond_resched();
	}
	count_blocks(inode, at - info->nr);
	set_nr(inode, at);
	return 0;

err_undo:
	give_back(hpmmap_fs_of(inode->i_sb), blocks);
	cut_range(inode, info->nr, at, NULL);
	return -ENOMEM;
}

/*
 * Gives a file @nr blocks, if it has less, charged to the caller. The size stays. i_rwsem
 * is held. Returns 0, or -ENOSPC, -ENOMEM or -EINTR, and nothing has changed.
 */
int hpmmap_fs_grow(struct inode *inode, unsigned long nr)
{
	struct hpmmap_fs_inode *info = hpmmap_fs_inode(inode);
	LIST_HEAD(blocks);

	lockdep_assert_held_write(&inode->i_rwsem);
	if (nr <= info->nr)
		return 0;
	return get_blocks(inode, info->nr, nr - info->nr, &blocks) ?: insert(inode, &blocks);
}

/*
 * Gives memory to the holes of a part of a file, charged to the caller: a fault with mmap_lock, or
 * with i_rwsem. Returns 0, or -ENOSPC or -EINTR, and nothing has changed.
 */
int hpmmap_fs_fill(struct inode *inode, unsigned long from, unsigned long to)
{
	struct hpmmap_fs_inode *info = hpmmap_fs_inode(inode);
	unsigned long at, nr = 0;
	struct hpmmap_block *block;
	LIST_HEAD(blocks);
	int ret;

	/* Two tasks that fill the same hole would need room for two blocks. */
	if (mutex_lock_killable(&info->holes))
		return -EINTR;
	for (at = from; at < to; at++, cond_resched())
		nr += hpmmap_fs_is_hole(inode, at);
	ret = nr ? get_blocks(inode, from, nr, &blocks) : 0;
	if (!nr || ret)
		goto out;
	for (nr = 0; from < to && !list_empty(&blocks); from++, cond_resched()) {
		if (!hpmmap_fs_is_hole(inode, from))
			continue;
		block = list_first_entry(&blocks, struct hpmmap_block, link);
		list_del_init(&block->link);
		hpmmap_block_attach(block, inode->i_mapping, from);
		/* A truncation may have ended it. */
		if (xa_cmpxchg(&info->blocks, from, HOLE, block, GFP_NOWAIT) == HOLE) {
			nr++;
			continue;
		}
		detach(block, &blocks);
	}
	count_blocks(inode, nr);
	give_back(hpmmap_fs_of(inode->i_sb), &blocks);
out:
	mutex_unlock(&info->holes);
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
	struct hpmmap_block *block = block_at(inode, size >> SLOT_SHIFT);

	lockdep_assert_held_write(&inode->i_rwsem);
	if (end && pos > size && block)
		zero_part(block, end, round_up(end, PAGE_SIZE));
}

/* A file becomes smaller, or gives up what it has beyond its size. i_rwsem is held. */
void hpmmap_fs_shrink(struct inode *inode, loff_t size)
{
	loff_t behind = round_up(size, PAGE_SIZE);
	struct hpmmap_block *block;

	lockdep_assert_held_write(&inode->i_rwsem);
	i_size_write(inode, size);
	hpmmap_gigabyte_unmap(inode->i_mapping, behind, 0, 1);
	block = size & ~SLOT_MASK ? block_at(inode, size >> SLOT_SHIFT) : NULL;
	if (block) {
		/* A fault that maps it now has looked at the old size. */
		folio_lock(block->folio);
		if (behind & ~SLOT_MASK)
			hpmmap_gigabyte_unmap(inode->i_mapping, behind,
					      round_up(behind, SLOT_SIZE) - behind, 0);
		zero_part(block, size & ~SLOT_MASK, SLOT_SIZE);
		folio_unlock(block->folio);
	}
	hpmmap_fs_cut(inode, hpmmap_fs_blocks(size));
	/* Copies of private mappings, that were made meanwhile. */
	hpmmap_gigabyte_unmap(inode->i_mapping, behind, 0, 1);
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
 * A part of a file becomes zero, as far as it has memory: in place, or if @punch by giving whole blocks
 * back, the last one of the file too. i_rwsem is held. Returns 0, or when some of it may be zero -EINTR for
 * a task that is being killed, or -EIO where a memory error is.
 */
int hpmmap_fs_zero(struct inode *inode, loff_t start, loff_t end, bool punch)
{
	loff_t first;
	int ret = 0;

	lockdep_assert_held_write(&inode->i_rwsem);
	end = min_t(loff_t, end, (loff_t)hpmmap_fs_inode(inode)->nr << SLOT_SHIFT);
	if (punch && end >= i_size_read(inode))
		end = round_up(end, SLOT_SIZE);
	first = round_up(min(start, end), SLOT_SIZE);
	/* Most of it by one walk of the mappings. */
	if (punch && first + SLOT_SIZE <= end)
		hpmmap_gigabyte_unmap(inode->i_mapping, first, round_down(end - first, SLOT_SIZE), 0);
	while (start < end && !ret) {
		unsigned long index = start >> SLOT_SHIFT, whole = 0;
		loff_t next = min_t(loff_t, end, (loff_t)(index + 1) << SLOT_SHIFT);

		if (fatal_signal_pending(current))
			return -EINTR;
		if (punch && !(start & ~SLOT_MASK))
			whole = min_t(u64, slot_of(end - start), FREE_BATCH);
		if (whole) {
			next = start + ((loff_t)whole << SLOT_SHIFT);
			/* What a fault fills has been freed before. */
			mutex_lock(&hpmmap_fs_inode(inode)->holes);
			count_blocks(inode, -cut_range(inode, index, index + whole, HOLE));
			mutex_unlock(&hpmmap_fs_inode(inode)->holes);
		} else {
			ret = zero_in(inode, index, start & ~SLOT_MASK,
				      next - ((loff_t)index << SLOT_SHIFT));
		}
		start = next;
		cond_resched();
	}
	return ret;
}
