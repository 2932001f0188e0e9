// SPDX-License-Identifier: GPL-2.0
/*
 * Pools: offline memory, per NUMA node, and the guard that keeps it offline.
 *
 * Memory comes and goes in sections, the smallest unit Linux can set online.
 * A section is known to the guard before its state is looked at, so that it
 * cannot be set online between the look and the use.
 */
#include <linux/ioport.h>
#include <linux/log2.h>
#include <linux/memory.h>
#include <linux/memory_hotplug.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/suspend.h>
#include <linux/topology.h>
#include <linux/uaccess.h>

#include "buddy.h"
#include "hpmmap.h"
#include "trace.h"

#define SECTION_BLOCKS (1UL << (SECTION_SIZE_BITS - SLOT_SHIFT))

/**
 * enum section_state - a section the module knows
 * @SECTION_ADDING: being taken over; guarded, nothing of it handed out
 * @SECTION_ACTIVE: guarded, its blocks are in the pool
 * @SECTION_ONLINING: not ours: Linux is about to set it online
 */
enum section_state {
	SECTION_ADDING,
	SECTION_ACTIVE,
	SECTION_ONLINING,
};

struct section {
	enum section_state state;
	int nid;
	u32 flags;
};

/**
 * struct pool_chunk - one GB of physical memory
 * @buddy: the allocator's part
 * @nr_sections: sections of it that are in the pool
 * @blocks: its blocks; those of sections not in the pool are zero
 */
struct pool_chunk {
	struct hpmmap_buddy_chunk buddy;
	unsigned int nr_sections;
	struct hpmmap_block blocks[HPMMAP_BUDDY_CHUNK_UNITS];
};

/**
 * struct pool_node - the pool of one NUMA node
 * @lock: protects @buddy and the state of its free blocks
 * @buddy: its blocks; chunks come and go under hpmmap_pool_mutex too
 * @kobj: in sysfs
 */
struct pool_node {
	spinlock_t lock;
	struct hpmmap_buddy buddy;
	struct kobject kobj;
};

/* Protects the sections, and chunks coming and going. */
static DEFINE_MUTEX(hpmmap_pool_mutex);
static DEFINE_XARRAY(sections);
/* A node's pool exists from its first section until the module goes. */
static struct pool_node *pool_nodes[MAX_NUMNODES];
/* Where the next interleaved block comes from. */
static atomic_t interleave_next = ATOMIC_INIT(0);

u64 hpmmap_section_bytes(void)
{
	return 1ULL << SECTION_SIZE_BITS;
}

static void block_set_state(struct hpmmap_block *block,
			    enum hpmmap_block_state state)
{
	WRITE_ONCE(block->state, state);
}

static struct pool_chunk *chunk_of(struct pool_node *pn, unsigned long unit)
{
	struct hpmmap_buddy_chunk *bc;

	bc = hpmmap_buddy_chunk_find(&pn->buddy, unit);
	return bc ? container_of(bc, struct pool_chunk, buddy) : NULL;
}

static struct hpmmap_block *block_of(struct pool_node *pn, unsigned long unit)
{
	struct pool_chunk *chunk = chunk_of(pn, unit);

	return &chunk->blocks[unit % HPMMAP_BUDDY_CHUNK_UNITS];
}

static unsigned long unit_of(const struct hpmmap_block *block)
{
	return folio_pfn(block->folio) >> SLOT_ORDER;
}

/* Sections. */

static int section_set(unsigned long nr, enum section_state state, int nid,
		       u32 flags)
{
	struct section *s = kzalloc(sizeof(*s), GFP_KERNEL);
	int ret;

	lockdep_assert_held(&hpmmap_pool_mutex);
	if (!s)
		return -ENOMEM;
	s->state = state;
	s->nid = nid;
	s->flags = flags;
	ret = xa_insert(&sections, nr, s, GFP_KERNEL);
	if (ret)
		kfree(s);
	return ret;
}

static void section_forget(unsigned long nr)
{
	lockdep_assert_held(&hpmmap_pool_mutex);
	kfree(xa_erase(&sections, nr));
}

static void sections_forget(unsigned long nr, unsigned long end)
{
	for (; nr < end; nr++)
		section_forget(nr);
}

static int range_check(u64 start, u64 length)
{
	u64 end;

	if (!length || !IS_ALIGNED(start | length, hpmmap_section_bytes()) ||
	    check_add_overflow(start, length, &end) ||
	    end > 1ULL << MAX_PHYSMEM_BITS)
		return -EINVAL;
	return 0;
}

static int resource_is_driver_managed(struct resource *res, void *arg)
{
	return !!(res->flags & IORESOURCE_SYSRAM_DRIVER_MANAGED);
}

/* Memory of a driver (virtio-mem, dax) may be unplugged while it is offline. */
static bool section_is_driver_managed(unsigned long nr)
{
	u64 start = PFN_PHYS(section_nr_to_pfn(nr));

	return walk_iomem_res_desc(IORES_DESC_NONE,
				   IORESOURCE_SYSTEM_RAM | IORESOURCE_BUSY,
				   start, start + hpmmap_section_bytes() - 1,
				   NULL, resource_is_driver_managed) > 0;
}

/*
 * With memmap_on_memory a memory block holds its own struct pages, which must
 * not be handed out. Struct pages that live elsewhere are in online memory.
 */
static bool section_holds_memmap(unsigned long nr)
{
	void *map = pfn_to_page(section_nr_to_pfn(nr));
	void *end = map + PAGES_PER_SECTION * sizeof(struct page);

	for (; map < end; map += PAGE_SIZE)
		if (!pfn_to_online_page(PHYS_PFN(slow_virt_to_phys(map))))
			return true;
	return false;
}

/* Does a machine check say that a page of the page block is bad? */
static bool pages_are_poisoned(unsigned long pfn, unsigned long nr)
{
	for (; nr; nr--, pfn++) {
		struct page *page = pfn_to_page(pfn);

		if (!PagePoisoned(page) && PageHWPoison(page))
			return true;
	}
	return false;
}

/* The node of a section that is there and wholly offline, or an errno. */
static int section_node(unsigned long nr)
{
	unsigned long pfn = section_nr_to_pfn(nr);
	unsigned long end = pfn + PAGES_PER_SECTION;
	int nid;

	for (; pfn < end; pfn += pageblock_nr_pages) {
		if (!pfn_valid(pfn))
			return -ENXIO;
		if (pfn_to_online_page(pfn))
			return -EBUSY;
		if (pages_are_poisoned(pfn, pageblock_nr_pages))
			return -ENXIO;
		cond_resched();
	}
	if (section_is_driver_managed(nr) || section_holds_memmap(nr))
		return -ENXIO;
	nid = memory_add_physaddr_to_nid(PFN_PHYS(section_nr_to_pfn(nr)));
	return nid < 0 || nid >= MAX_NUMNODES ? -ENXIO : nid;
}

static struct pool_node *pool_node_get(int nid)
{
	struct pool_node *pn = pool_nodes[nid];

	lockdep_assert_held(&hpmmap_pool_mutex);
	if (pn)
		return pn;
	pn = kzalloc(sizeof(*pn), GFP_KERNEL);
	if (!pn)
		return NULL;
	spin_lock_init(&pn->lock);
	hpmmap_buddy_init(&pn->buddy);
	if (hpmmap_sysfs_node_add(&pn->kobj, nid)) {
		kobject_put(&pn->kobj);
		return NULL;
	}
	/* Pairs with the reads without the mutex. */
	smp_store_release(&pool_nodes[nid], pn);
	return pn;
}

/* The last reference to a node's kobject is gone. */
void hpmmap_pool_node_free(struct kobject *kobj)
{
	kfree(container_of(kobj, struct pool_node, kobj));
}

static struct pool_node *pool_node_find(int nid)
{
	return smp_load_acquire(&pool_nodes[nid]);
}

/* The chunk of a section, made if there is none. */
static struct pool_chunk *chunk_get(struct pool_node *pn, unsigned long unit)
{
	struct pool_chunk *chunk = chunk_of(pn, unit);

	lockdep_assert_held(&hpmmap_pool_mutex);
	if (chunk)
		return chunk;
	chunk = kvzalloc(sizeof(*chunk), GFP_KERNEL);
	if (!chunk)
		return NULL;
	spin_lock(&pn->lock);
	hpmmap_buddy_chunk_insert(&pn->buddy, &chunk->buddy,
				  unit / HPMMAP_BUDDY_CHUNK_UNITS);
	spin_unlock(&pn->lock);
	return chunk;
}

static void chunk_put(struct pool_node *pn, struct pool_chunk *chunk)
{
	lockdep_assert_held(&hpmmap_pool_mutex);
	if (chunk->nr_sections)
		return;
	spin_lock(&pn->lock);
	hpmmap_buddy_chunk_remove(&pn->buddy, &chunk->buddy);
	spin_unlock(&pn->lock);
	kvfree(chunk);
}

/* Everything of it that can fail, and the struct pages. */
static int section_prepare(unsigned long nr)
{
	struct section *s = xa_load(&sections, nr);
	unsigned long pfn = section_nr_to_pfn(nr);
	unsigned long unit = pfn >> SLOT_ORDER;
	struct pool_chunk *chunk;
	struct pool_node *pn;
	unsigned long i;

	pn = pool_node_get(s->nid);
	if (!pn)
		return -ENOMEM;
	chunk = chunk_get(pn, unit);
	if (!chunk)
		return -ENOMEM;
	for (i = 0; i < SECTION_BLOCKS; i++) {
		struct hpmmap_block *block;

		block = &chunk->blocks[(unit + i) % HPMMAP_BUDDY_CHUNK_UNITS];
		hpmmap_block_prepare(block, pfn + i * SLOT_PAGES, s->nid);
		bitmap_fill(block->stale, SLOT_PAGES);
	}
	chunk->nr_sections++;
	__module_get(THIS_MODULE);
	return 0;
}

/* Its blocks can be handed out from here on. */
static void section_activate(unsigned long nr)
{
	struct section *s = xa_load(&sections, nr);
	struct pool_node *pn = pool_nodes[s->nid];

	s->state = SECTION_ACTIVE;
	spin_lock(&pn->lock);
	hpmmap_buddy_add(&pn->buddy, section_nr_to_pfn(nr) >> SLOT_ORDER,
			 SECTION_BLOCKS);
	spin_unlock(&pn->lock);
}

/* Undoes section_prepare(); its blocks are not in the allocator. */
static void section_drop(unsigned long nr)
{
	struct section *s = xa_load(&sections, nr);
	unsigned long unit = section_nr_to_pfn(nr) >> SLOT_ORDER;
	struct pool_node *pn = pool_nodes[s->nid];
	struct pool_chunk *chunk = chunk_of(pn, unit);

	memset(&chunk->blocks[unit % HPMMAP_BUDDY_CHUNK_UNITS], 0,
	       SECTION_BLOCKS * sizeof(chunk->blocks[0]));
	chunk->nr_sections--;
	chunk_put(pn, chunk);
	section_forget(nr);
	module_put(THIS_MODULE);
}

/* All or nothing; @busy and @pinned in bytes where it is nothing. */
static int sections_remove(unsigned long first, unsigned long end, u64 *busy,
			   u64 *pinned)
{
	unsigned long nr, i;
	int ret = 0;

	*busy = 0;
	*pinned = 0;
	for (nr = first; nr < end; nr++) {
		struct section *s = xa_load(&sections, nr);

		if (!s || s->state != SECTION_ACTIVE)
			return -ENOENT;
	}

	for (nr = first; nr < end; nr++) {
		struct section *s = xa_load(&sections, nr);
		struct pool_node *pn = pool_nodes[s->nid];
		unsigned long unit = section_nr_to_pfn(nr) >> SLOT_ORDER;

		spin_lock(&pn->lock);
		ret = hpmmap_buddy_remove(&pn->buddy, unit, SECTION_BLOCKS);
		spin_unlock(&pn->lock);
		if (ret)
			break;
	}
	if (!ret) {
		for (nr = first; nr < end; nr++)
			section_drop(nr);
		return 0;
	}

	while (nr-- > first) {
		struct section *s = xa_load(&sections, nr);
		struct pool_node *pn = pool_nodes[s->nid];

		spin_lock(&pn->lock);
		hpmmap_buddy_add(&pn->buddy,
				 section_nr_to_pfn(nr) >> SLOT_ORDER,
				 SECTION_BLOCKS);
		spin_unlock(&pn->lock);
	}
	for (nr = first; nr < end; nr++) {
		struct section *s = xa_load(&sections, nr);
		unsigned long unit = section_nr_to_pfn(nr) >> SLOT_ORDER;

		for (i = 0; i < SECTION_BLOCKS; i++) {
			switch (READ_ONCE(block_of(pool_nodes[s->nid],
						   unit + i)->state)) {
			case HPMMAP_BLOCK_HELD:
				*busy += SLOT_SIZE;
				break;
			case HPMMAP_BLOCK_PINNED:
				*pinned += SLOT_SIZE;
				break;
			case HPMMAP_BLOCK_FREE:
				break;
			}
		}
	}
	return ret;
}

/**
 * hpmmap_pool_add() - take offline memory into the pools
 * @start: physical address
 * @length: in bytes
 * @node: in: expected node or NUMA_NO_NODE; out: the node
 * @flags: HPMMAP_POOL_F_*, kept for whoever gives it back
 *
 * Return: 0 or an errno of HPMMAP_IOC_POOL_ADD; all or nothing.
 */
int hpmmap_pool_add(u64 start, u64 length, int *node, u32 flags)
{
	unsigned long first = pfn_to_section_nr(PHYS_PFN(start));
	unsigned long end = pfn_to_section_nr(PHYS_PFN(start + length));
	int want = *node;
	unsigned long nr;
	int ret;

	ret = range_check(start, length);
	if (ret)
		return ret;

	mutex_lock(&hpmmap_pool_mutex);
	for (nr = first; nr < end; nr++) {
		struct section *s = xa_load(&sections, nr);

		ret = section_set(nr, SECTION_ADDING, NUMA_NO_NODE, flags);
		if (ret == -EBUSY && s->state != SECTION_ONLINING)
			ret = -EEXIST;
		if (ret) {
			sections_forget(first, nr);
			goto out;
		}
	}
	for (nr = first; nr < end; nr++) {
		struct section *s = xa_load(&sections, nr);

		ret = section_node(nr);
		if (ret < 0)
			goto err_forget;
		s->nid = ret;
		*node = ret;
		if (want == NUMA_NO_NODE)
			want = ret;
		if (ret != want) {
			ret = -EXDEV;
			goto err_forget;
		}
	}
	for (nr = first; nr < end; nr++) {
		ret = section_prepare(nr);
		if (ret) {
			sections_forget(nr, end);
			while (nr-- > first)
				section_drop(nr);
			goto out;
		}
	}
	for (nr = first; nr < end; nr++)
		section_activate(nr);
	trace_hpmmap_pool_add(start, length, *node);
	ret = 0;
	goto out;

err_forget:
	sections_forget(first, end);
out:
	mutex_unlock(&hpmmap_pool_mutex);
	return ret;
}

/**
 * hpmmap_pool_remove() - let memory be set online again
 * @start: physical address
 * @length: in bytes
 * @busy: out: bytes in use
 * @pinned: out: bytes given up but pinned
 *
 * Return: 0 or an errno of HPMMAP_IOC_POOL_REMOVE; all or nothing.
 */
int hpmmap_pool_remove(u64 start, u64 length, u64 *busy, u64 *pinned)
{
	int ret = range_check(start, length);

	if (ret)
		return ret;
	/* What dead processes held counts as free. */
	hpmmap_reap();

	mutex_lock(&hpmmap_pool_mutex);
	ret = sections_remove(pfn_to_section_nr(PHYS_PFN(start)),
			      pfn_to_section_nr(PHYS_PFN(start + length)),
			      busy, pinned);
	mutex_unlock(&hpmmap_pool_mutex);
	if (!ret)
		trace_hpmmap_pool_remove(start, length);
	return ret;
}

static u64 section_pinned_bytes(struct pool_node *pn, unsigned long unit)
{
	u64 bytes = 0;
	unsigned long i;

	for (i = 0; i < SECTION_BLOCKS; i++)
		if (READ_ONCE(block_of(pn, unit + i)->state) ==
		    HPMMAP_BLOCK_PINNED)
			bytes += SLOT_SIZE;
	return bytes;
}

/**
 * hpmmap_pool_list() - copy the list of ranges to user space
 * @ranges: array of user space
 * @nr: in: its length; out: number of ranges there are
 */
int hpmmap_pool_list(struct hpmmap_pool_range __user *ranges, u32 *nr)
{
	struct hpmmap_pool_range *buf;
	u32 room = *nr, n = 0;
	unsigned long index;
	struct section *s;
	int ret = 0;

	hpmmap_reap();
	mutex_lock(&hpmmap_pool_mutex);
	xa_for_each(&sections, index, s)
		n += s->state == SECTION_ACTIVE;
	room = min(room, n);
	buf = kvcalloc(room, sizeof(*buf), GFP_KERNEL);
	if (!buf && room) {
		mutex_unlock(&hpmmap_pool_mutex);
		return -ENOMEM;
	}
	n = 0;
	xa_for_each(&sections, index, s) {
		struct hpmmap_pool_range range = {
			.start = PFN_PHYS(section_nr_to_pfn(index)),
			.length = hpmmap_section_bytes(),
			.node = s->nid,
			.flags = s->flags,
		};
		unsigned long unit = section_nr_to_pfn(index) >> SLOT_ORDER;
		struct pool_node *pn;

		if (s->state != SECTION_ACTIVE || n++ >= room)
			continue;
		pn = pool_nodes[s->nid];
		spin_lock(&pn->lock);
		range.free_bytes = SLOT_SIZE *
			(u64)hpmmap_buddy_count_free(&pn->buddy, unit,
						     SECTION_BLOCKS);
		spin_unlock(&pn->lock);
		range.pinned_bytes = section_pinned_bytes(pn, unit);
		buf[n - 1] = range;
	}
	mutex_unlock(&hpmmap_pool_mutex);
	/* Not under the mutex: user memory may take its time. */
	if (room && copy_to_user(ranges, buf, room * sizeof(*buf)))
		ret = -EFAULT;
	kvfree(buf);
	*nr = n;
	return ret;
}

bool hpmmap_pool_has(const nodemask_t *nodes)
{
	int nid;

	for_each_node_mask(nid, *nodes) {
		struct pool_node *pn = pool_node_find(nid);

		if (pn && READ_ONCE(pn->buddy.nr_total))
			return true;
	}
	return false;
}

/**
 * hpmmap_pool_node_stat() - size and use of one node's pool
 * @nid: the node
 * @stat: out, in bytes
 */
void hpmmap_pool_node_stat(int nid, struct hpmmap_node_stat *stat)
{
	struct pool_node *pn = pool_node_find(nid);
	unsigned long index;
	struct section *s;
	int largest;

	memset(stat, 0, sizeof(*stat));
	mutex_lock(&hpmmap_pool_mutex);
	spin_lock(&pn->lock);
	stat->total = (u64)pn->buddy.nr_total << SLOT_SHIFT;
	stat->free = (u64)pn->buddy.nr_free << SLOT_SHIFT;
	largest = hpmmap_buddy_largest(&pn->buddy);
	spin_unlock(&pn->lock);
	if (largest >= 0)
		stat->largest = (u64)SLOT_SIZE << largest;
	xa_for_each(&sections, index, s)
		if (s->state == SECTION_ACTIVE && s->nid == nid)
			stat->pinned += section_pinned_bytes(pn,
				section_nr_to_pfn(index) >> SLOT_ORDER);
	mutex_unlock(&hpmmap_pool_mutex);
}

/* Allocation. */

static void take_run(struct pool_node *pn, struct hpmmap_user *user,
		     unsigned long unit, unsigned long nr,
		     struct list_head *out)
{
	struct hpmmap_block *blocks = block_of(pn, unit);
	unsigned long i;

	lockdep_assert_held(&pn->lock);
	for (i = 0; i < nr; i++) {
		block_set_state(&blocks[i], HPMMAP_BLOCK_HELD);
		blocks[i].user = user;
		list_add_tail(&blocks[i].link, out);
	}
}

/*
 * Up to @nr blocks of one node in as few runs as possible, for a @large job
 * whole gigabytes first; returns how many.
 */
static unsigned long node_alloc(int nid, struct hpmmap_user *user,
				unsigned long nr, struct list_head *out)
{
	struct pool_node *pn = pool_node_find(nid);
	unsigned long got = 0;
	unsigned long unit;

	if (!pn)
		return 0;
	spin_lock(&pn->lock);
	while (got < nr) {
		int order = hpmmap_buddy_largest(&pn->buddy);

		if (order < 0)
			break;
		order = min_t(int, order, ilog2(nr - got));
		if (hpmmap_buddy_alloc(&pn->buddy, order, &unit))
			break;
		take_run(pn, user, unit, 1UL << order, out);
		got += 1UL << order;
		cond_resched_lock(&pn->lock);
	}
	spin_unlock(&pn->lock);
	return got;
}

/* The node of @nodes nearest to @nid that is not in @tried, or NUMA_NO_NODE. */
static int next_nearest(int nid, const nodemask_t *nodes, nodemask_t *tried)
{
	int best = NUMA_NO_NODE, n;

	for_each_node_mask(n, *nodes) {
		if (node_isset(n, *tried) || !pool_node_find(n))
			continue;
		if (best == NUMA_NO_NODE ||
		    node_distance(nid, n) < node_distance(nid, best))
			best = n;
	}
	if (best != NUMA_NO_NODE)
		node_set(best, *tried);
	return best;
}

static unsigned long alloc_near(struct hpmmap_job *job, int nid,
				unsigned long nr, struct list_head *out)
{
	nodemask_t tried = NODE_MASK_NONE;
	unsigned long got = 0;

	while (got < nr) {
		int n = next_nearest(nid, &job->nodes, &tried);

		if (n == NUMA_NO_NODE)
			break;
		got += node_alloc(n, job->user, nr - got, out);
	}
	return got;
}

/* Free blocks on the nodes of a job; a hint without the locks. */
static unsigned long free_blocks(struct hpmmap_job *job)
{
	unsigned long n = 0;
	int nid;

	for_each_node_mask(nid, job->nodes) {
		struct pool_node *pn = pool_node_find(nid);

		if (pn)
			n += READ_ONCE(pn->buddy.nr_free);
	}
	return n;
}

/* Could a job get at least one block now? */
bool hpmmap_pool_has_free(struct hpmmap_job *job)
{
	hpmmap_reap();
	return free_blocks(job) && hpmmap_user_has_room(job->user);
}

static unsigned long alloc_interleaved(struct hpmmap_job *job,
				       unsigned long nr, struct list_head *out)
{
	unsigned long step = job->large ? 1UL << LARGE_ORDER : 1;
	unsigned long got = 0;

	while (got < nr) {
		unsigned int turn = atomic_inc_return(&interleave_next);
		unsigned long want = min(step, nr - got), n;
		nodemask_t having = NODE_MASK_NONE;
		int nid;

		for_each_node_mask(nid, job->nodes)
			if (pool_node_find(nid))
				node_set(nid, having);
		if (nodes_empty(having))
			break;
		nid = first_node(having);
		for (turn %= nodes_weight(having); turn; turn--)
			nid = next_node(nid, having);
		n = alloc_near(job, nid, want, out);
		got += n;
		if (n < want)
			break;
	}
	return got;
}

/**
 * hpmmap_pool_alloc() - blocks for a job
 * @job: whose policy and user
 * @nr: how many
 * @out: list they are added to, in runs that are contiguous where possible;
 *	all their pages are stale
 *
 * May sleep.
 *
 * Return: 0, or -ENOMEM and nothing where there are not enough.
 */
int hpmmap_pool_alloc(struct hpmmap_job *job, unsigned long nr,
		      struct list_head *out)
{
	bool reaped = false;
	LIST_HEAD(got);

	if (!nr)
		return 0;
	for (;;) {
		unsigned long n = 0;

		/* A request that cannot succeed takes nothing from others. */
		if (free_blocks(job) >= nr &&
		    !hpmmap_user_charge(job->user, nr)) {
			n = job->interleave ?
			    alloc_interleaved(job, nr, &got) :
			    alloc_near(job, numa_node_id(), nr, &got);
			if (n == nr)
				break;
			hpmmap_user_uncharge(job->user, nr - n);
			hpmmap_pool_free_list(&got);
		}
		if (reaped)
			return -ENOMEM;
		hpmmap_reap();
		reaped = true;
	}
	trace_hpmmap_alloc(job->id, nr);
	list_splice_tail(&got, out);
	return 0;
}

/**
 * hpmmap_pool_free() - take a block back
 * @block: a pool block to which only the module refers
 */
void hpmmap_pool_free(struct hpmmap_block *block)
{
	struct pool_node *pn = pool_node_find(block->nid);

	hpmmap_user_uncharge(block->user, 1);
	block->user = NULL;
	block_set_state(block, HPMMAP_BLOCK_FREE);
	spin_lock(&pn->lock);
	hpmmap_buddy_free(&pn->buddy, unit_of(block), 0);
	spin_unlock(&pn->lock);
}

/* Blocks that were allocated and never shown to anybody. */
void hpmmap_pool_free_list(struct list_head *list)
{
	struct hpmmap_block *block, *tmp;

	list_for_each_entry_safe(block, tmp, list, link) {
		list_del_init(&block->link);
		bitmap_fill(block->stale, SLOT_PAGES);
		hpmmap_pool_free(block);
	}
}

/* The guard. */

static int memory_going_online(unsigned long first, unsigned long end)
{
	unsigned long nr;

	for (nr = first; nr < end; nr++) {
		int ret = section_set(nr, SECTION_ONLINING, NUMA_NO_NODE, 0);

		if (ret) {
			sections_forget(first, nr);
			if (ret == -EBUSY)
				pr_info("section %lu is in a pool and stays offline; see hpmmap-pool-remove(1)\n",
					nr);
			return ret;
		}
	}
	return 0;
}

static void memory_online_done(unsigned long first, unsigned long end)
{
	unsigned long nr;

	for (nr = first; nr < end; nr++) {
		struct section *s = xa_load(&sections, nr);

		if (s && s->state == SECTION_ONLINING)
			section_forget(nr);
	}
}

static int guard_notify(struct notifier_block *nb, unsigned long action,
			 void *data)
{
	struct memory_notify *arg = data;
	unsigned long first = pfn_to_section_nr(arg->start_pfn);
	unsigned long end = pfn_to_section_nr(arg->start_pfn + arg->nr_pages +
					      PAGES_PER_SECTION - 1);
	int ret = 0;

	mutex_lock(&hpmmap_pool_mutex);
	switch (action) {
	case MEM_GOING_ONLINE:
		ret = memory_going_online(first, end);
		break;
	case MEM_ONLINE:
	case MEM_CANCEL_ONLINE:
		memory_online_done(first, end);
		break;
	}
	mutex_unlock(&hpmmap_pool_mutex);
	return notifier_from_errno(ret);
}

static struct notifier_block memory_nb = {
	.notifier_call = guard_notify,
};

/* An image for hibernation leaves offline memory out. */
static int pm_notify(struct notifier_block *nb, unsigned long action,
		     void *data)
{
	nodemask_t all = NODE_MASK_ALL;

	if (action == PM_HIBERNATION_PREPARE && hpmmap_pool_has(&all)) {
		pr_warn("hibernation would lose the pools; remove them first\n");
		return notifier_from_errno(-EBUSY);
	}
	return NOTIFY_DONE;
}

static struct notifier_block pm_nb = {
	.notifier_call = pm_notify,
};

int hpmmap_pool_init(void)
{
	int ret = register_memory_notifier(&memory_nb);

	if (ret)
		return ret;
	ret = register_pm_notifier(&pm_nb);
	if (ret)
		unregister_memory_notifier(&memory_nb);
	return ret;
}

/* Memory in a pool keeps the module loaded, so the pools are empty here. */
void hpmmap_pool_exit(void)
{
	unsigned long index;
	struct section *s;
	int nid;

	unregister_pm_notifier(&pm_nb);
	unregister_memory_notifier(&memory_nb);
	xa_for_each(&sections, index, s)
		kfree(s);
	xa_destroy(&sections);
	for (nid = 0; nid < MAX_NUMNODES; nid++) {
		if (!pool_nodes[nid])
			continue;
		kobject_put(&pool_nodes[nid]->kobj);
	}
}
