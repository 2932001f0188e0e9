// SPDX-License-Identifier: GPL-2.0
/*
 * Sections: memory that comes from Linux and goes back, and the guard that
 * keeps it offline in between.
 *
 * Memory moves in sections, the smallest unit that Linux can set online. The guard
 * knows a section before its state is checked, so that it cannot be set online
 * between the check and the use.
 */
#include <linux/ioport.h>
#include <linux/memory.h>
#include <linux/memory_hotplug.h>
#include <linux/suspend.h>

#include "hook.h"
#include "hpmmap.h"
#include "mem/block/block.h"
#include "mem/block/nodes.h"
#include "mem/block/payer.h"
#include "mem/block/promise.h"
#include "mem/pool/pool.h"
#include "mem/pool/section.h"

/* The state of a section that the module knows. */
enum section_state {
	SECTION_ADDING,	/* being taken over; guarded, none of it handed out */
	SECTION_ACTIVE,	/* guarded, its blocks are in the pool */
	SECTION_BAD,	/* given back but guarded, since it has a memory error */
};

struct section {
	enum section_state state;
	int nid;
	u32 flags;
	struct rcu_head rcu;
};

DEFINE_MUTEX(hpmmap_pool_mutex);
static DEFINE_XARRAY(sections);

u64 hpmmap_section_bytes(void)
{
	return 1ULL << SECTION_SIZE_BITS;
}

static unsigned long first_unit(unsigned long nr)
{
	return section_nr_to_pfn(nr) >> SLOT_ORDER;
}

/*
 * Inserts a section; from here on it cannot be set online. -EEXIST: the module knows it already;
 * -ENXIO: it is bad.
 */
static int section_insert(unsigned long nr, u32 flags)
{
	struct section *s = xa_load(&sections, nr);
	int ret;

	lockdep_assert_held(&hpmmap_pool_mutex);
	if (s)
		return s->state == SECTION_BAD ? -ENXIO : -EEXIST;
	s = kzalloc(sizeof(*s), GFP_KERNEL);
	if (!s)
		return -ENOMEM;
	s->state = SECTION_ADDING;
	s->nid = NUMA_NO_NODE;
	s->flags = flags;
	ret = xa_insert(&sections, nr, s, GFP_KERNEL);
	if (ret)
		kfree(s);
	return ret;
}

static void section_forget(unsigned long nr)
{
	struct section *s = xa_erase(&sections, nr);

	lockdep_assert_held(&hpmmap_pool_mutex);
	/* The guard may still read it. */
	kfree_rcu(s, rcu);
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

/* Is removal_entry() hooked? */
static bool removal_is_guarded;

/*
 * virtio-mem unplugs parts of offline memory without asking. Memory of dax/kmem (CXL, HBM) is
 * removed only as a whole, which is refused as for online memory, so Linux keeps it.
 */
static int resource_may_be_unplugged(struct resource *res, void *arg)
{
	struct resource *its = res->parent ? res->parent->child : NULL;

	if (!(res->flags & IORESOURCE_SYSRAM_DRIVER_MANAGED))
		return 0;
	/* This is a copy without a name. No memory is added or removed meanwhile. */
	while (its && its->end < res->start)
		its = its->sibling;
	return !removal_is_guarded || !its || !its->name || strcmp(its->name, "System RAM (kmem)");
}

static bool section_may_be_unplugged(unsigned long nr)
{
	u64 start = PFN_PHYS(section_nr_to_pfn(nr));

	return walk_iomem_res_desc(IORES_DESC_NONE,
				   IORESOURCE_SYSTEM_RAM | IORESOURCE_BUSY,
				   start, start + hpmmap_section_bytes() - 1,
				   NULL, resource_may_be_unplugged) > 0;
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

/* Is a page of the page block marked bad by a machine check? */
static bool pages_are_poisoned(unsigned long pfn, unsigned long nr)
{
	for (; nr; nr--, pfn++) {
		struct page *page = pfn_to_page(pfn);

		if (!PagePoisoned(page) && PageHWPoison(page))
			return true;
	}
	return false;
}

/* The node of a section that exists and is wholly offline, or an errno. */
static int section_node(unsigned long nr)
{
	unsigned long pfn = section_nr_to_pfn(nr);
	unsigned long end = pfn + PAGES_PER_SECTION;
	struct memory_block *mem;
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
	if (section_may_be_unplugged(nr) || section_holds_memmap(nr))
		return -ENXIO;
	/* dax/kmem may put memory on another node than that of its address. */
	mem = compat_find_memory_block(nr);
	nid = mem ? mem->nid : NUMA_NO_NODE;
	if (mem)
		put_device(&mem->dev);
	return nid < 0 || nid >= MAX_NUMNODES ? -ENXIO : nid;
}

/* Takes back a section whose blocks are not in the allocator. */
static void section_drop(unsigned long nr)
{
	struct section *s = xa_load(&sections, nr);

	hpmmap_pool_drop(s->nid, first_unit(nr));
	section_forget(nr);
	module_put(THIS_MODULE);
}

static bool is_in_pool(unsigned long nr, unsigned long end)
{
	struct section *s;

	/* Bad pages have left the pool, so the memory may be replaced. */
	xa_for_each_range(&sections, nr, s, nr, end - 1)
		if (s->state != SECTION_BAD)
			return true;
	return false;
}

/*
 * Firmware may request memory back (ACPI eject), and Linux checks only that it is offline. An eject
 * begins by setting memory blocks offline, once more if need be: so memory blocks that are in a
 * pool, even in part, are marked so that this fails. Caller holds device_hotplug_lock, as all code
 * does that changes these bits.
 */
static void devices_update(unsigned long nr, unsigned long end)
{
	unsigned long per_block = memory_block_size_bytes() >> SECTION_SIZE_BITS;

	for (nr = rounddown(nr, per_block); nr < end; nr += per_block) {
		struct memory_block *mem = compat_find_memory_block(nr);

		if (!mem)
			continue;
		compat_disable_offline(&mem->dev, is_in_pool(nr, nr + per_block));
		put_device(&mem->dev);
	}
}

/*
 * Gives back a section whose blocks are all free or bad; with a bad one it stays offline. Returns
 * its bad bytes.
 */
static u64 section_give_back(unsigned long nr)
{
	struct section *s = xa_load(&sections, nr);
	struct pool_use use = {};

	hpmmap_pool_use(s->nid, first_unit(nr), &use);
	if (!use.bad) {
		section_drop(nr);
		return 0;
	}
	hpmmap_pool_drop(s->nid, first_unit(nr));
	WRITE_ONCE(s->state, SECTION_BAD);
	pr_warn("section %lu of node %d leaves the pool and stays offline: memory errors\n",
		nr, s->nid);
	module_put(THIS_MODULE);
	return use.bad;
}

/* All or nothing. @use gets the bytes that are in the way, or bad. */
static int sections_remove(unsigned long first, unsigned long end,
			   struct pool_use *use)
{
	unsigned long nr;
	struct section *s;
	int ret = 0;

	for (nr = first; nr < end; nr++) {
		s = xa_load(&sections, nr);
		if (!s || s->state != SECTION_ACTIVE)
			return -ENOENT;
	}
	for (nr = first; nr < end && !ret; nr++) {
		s = xa_load(&sections, nr);
		ret = hpmmap_pool_deactivate(s->nid, first_unit(nr));
	}
	if (!ret) {
		for (nr = first; nr < end; nr++)
			use->bad += section_give_back(nr);
		return 0;
	}

	/* The section that failed is still active. */
	for (nr--; nr-- > first; ) {
		s = xa_load(&sections, nr);
		hpmmap_pool_activate(s->nid, first_unit(nr));
	}
	for (nr = first; nr < end; nr++) {
		s = xa_load(&sections, nr);
		hpmmap_pool_use(s->nid, first_unit(nr), use);
	}
	return ret;
}

/*
 * Takes offline memory into the pools, all of it or nothing. @node: in: the expected one or
 * NUMA_NO_NODE; out: the node. @flags: HPMMAP_POOL_F_*, kept for the caller that gives it
 * back. Returns 0 or an errno of HPMMAP_IOC_POOL_ADD.
 */
int hpmmap_pool_add(u64 start, u64 length, int *node, u32 flags)
{
	unsigned long first = pfn_to_section_nr(PHYS_PFN(start));
	unsigned long end = pfn_to_section_nr(PHYS_PFN(start + length));
	int want = *node;
	struct section *s;
	unsigned long nr;
	int ret;

	ret = range_check(start, length);
	if (ret)
		return ret;

	/* No memory is being set online or offline meanwhile. */
	compat_hotplug_lock();
	mutex_lock(&hpmmap_pool_mutex);
	for (nr = first; nr < end; nr++) {
		ret = section_insert(nr, flags);
		if (ret) {
			sections_forget(first, nr);
			goto out;
		}
	}
	for (nr = first; nr < end; nr++) {
		ret = section_node(nr);
		if (ret < 0)
			goto err_forget;
		s = xa_load(&sections, nr);
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
		/* Everything that can fail. */
		ret = hpmmap_pool_prepare(want, first_unit(nr));
		if (ret) {
			sections_forget(nr, end);
			while (nr-- > first)
				section_drop(nr);
			goto out;
		}
		__module_get(THIS_MODULE);
	}
	for (nr = first; nr < end; nr++) {
		s = xa_load(&sections, nr);
		s->state = SECTION_ACTIVE;
		hpmmap_pool_activate(want, first_unit(nr));
	}
	devices_update(first, end);
	ret = 0;
	goto out;

err_forget:
	sections_forget(first, end);
out:
	hpmmap_limits_update();
	mutex_unlock(&hpmmap_pool_mutex);
	compat_hotplug_unlock();
	if (!ret)
		hpmmap_pool_launder(*node, length >> SLOT_SHIFT);
	return ret;
}

/*
 * Lets memory be set online again, all of it or nothing. Out, in bytes: @busy: in use;
 * @pinned: given up but pinned; @bad: of bad blocks, whose sections stay offline. Returns 0 or
 * an errno of HPMMAP_IOC_POOL_REMOVE.
 */
int hpmmap_pool_remove(u64 start, u64 length, u64 *busy, u64 *pinned, u64 *bad)
{
	unsigned long first = pfn_to_section_nr(PHYS_PFN(start));
	unsigned long end = pfn_to_section_nr(PHYS_PFN(start + length));
	nodemask_t nodes = node_states[N_POSSIBLE];
	struct pool_use use = {};
	int ret = range_check(start, length);

	if (ret)
		return ret;
	/* Blocks of ended processes, and blocks kept for reuse, count as free. */
	hpmmap_pool_reclaim_all();

	hpmmap_pool_launder_stop(&nodes);
	hpmmap_pool_gather();
	compat_hotplug_lock();
	/* No memory error in one of the pages is being handled meanwhile. */
	mutex_lock(&hpmmap_poison_mutex);
	mutex_lock(&hpmmap_pool_mutex);
	ret = sections_remove(first, end, &use);
	if (!ret)
		devices_update(first, end);
	hpmmap_limits_update();
	mutex_unlock(&hpmmap_pool_mutex);
	mutex_unlock(&hpmmap_poison_mutex);
	compat_hotplug_unlock();
	hpmmap_pool_launder_go(&nodes);
	*busy = use.busy;
	*pinned = use.pinned;
	*bad = use.bad;
	return ret;
}

/* Each element has @size bytes in user space. */
static int ranges_to_user(void __user *to, u32 size,
			  const struct hpmmap_pool_range *buf, u32 nr)
{
	u32 known = min_t(u32, size, sizeof(*buf));

	for (; nr; nr--, buf++, to += size)
		if (copy_to_user(to, buf, known) ||
		    clear_user(to + known, size - known))
			return -EFAULT;
	return 0;
}

/*
 * Copies the list of ranges to user space, to an array of elements of @size bytes. @nr: in:
 * its length; out: how many ranges there are. Returns 0, -ENOMEM, -EFAULT, or -EINTR for a
 * process that is being killed.
 */
int hpmmap_pool_list(void __user *ranges, u32 size, u32 *nr)
{
	nodemask_t nodes = node_states[N_POSSIBLE];
	struct hpmmap_pool_range *buf;
	u32 room = *nr, n = 0;
	unsigned long index;
	struct section *s;
	int ret;

	/* A task that adds memory may hold it for long. */
	if (mutex_lock_killable(&hpmmap_pool_mutex))
		return -EINTR;
	xa_for_each(&sections, index, s)
		n += s->state == SECTION_ACTIVE;
	room = min(room, n);
	buf = kvcalloc(room, sizeof(*buf), GFP_KERNEL);
	if (!buf && room) {
		mutex_unlock(&hpmmap_pool_mutex);
		return -ENOMEM;
	}
	n = 0;
	hpmmap_pool_launder_stop(&nodes);
	hpmmap_pool_gather();
	xa_for_each(&sections, index, s) {
		struct pool_use use = {};

		if (s->state != SECTION_ACTIVE || n++ >= room)
			continue;
		hpmmap_pool_use(s->nid, first_unit(index), &use);
		buf[n - 1] = (struct hpmmap_pool_range) {
			.start = PFN_PHYS(section_nr_to_pfn(index)),
			.length = hpmmap_section_bytes(),
			.free_bytes = use.free,
			.pinned_bytes = use.pinned,
			.bad_bytes = use.bad,
			.node = s->nid,
			.flags = s->flags,
		};
	}
	hpmmap_pool_launder_go(&nodes);
	mutex_unlock(&hpmmap_pool_mutex);
	/* Without the mutex: an access to user memory may block. */
	ret = ranges_to_user(ranges, size, buf, room);
	kvfree(buf);
	*nr = n;
	return ret;
}

/* Is the page frame in a section that the module knows? For any context. */
bool hpmmap_section_is_known(unsigned long pfn)
{
	return xa_load(&sections, pfn_to_section_nr(pfn));
}

/* The pool block of a page frame, or NULL; true as long as hpmmap_poison_mutex is held. */
struct hpmmap_block *hpmmap_section_block(unsigned long pfn)
{
	struct hpmmap_block *block = NULL;
	struct section *s;

	mutex_lock(&hpmmap_pool_mutex);
	s = xa_load(&sections, pfn_to_section_nr(pfn));
	if (s && s->state == SECTION_ACTIVE)
		block = hpmmap_pool_block(s->nid, pfn);
	mutex_unlock(&hpmmap_pool_mutex);
	return block;
}

/*
 * Undoes a simulated memory error in a page of a section that has left its pool. After the
 * last one the section can be set online. Returns 0, or -EBUSY if it is not such a page.
 */
int hpmmap_section_mend(unsigned long pfn)
{
	unsigned long nr = pfn_to_section_nr(pfn);
	struct section *s;
	int ret = -EBUSY;

	mutex_lock(&hpmmap_pool_mutex);
	s = xa_load(&sections, nr);
	if (s && s->state == SECTION_BAD && TestClearPageHWPoison(pfn_to_page(pfn))) {
		compat_count_poison(pfn, -1);
		if (!pages_are_poisoned(section_nr_to_pfn(nr), PAGES_PER_SECTION))
			section_forget(nr);
		ret = 0;
	}
	mutex_unlock(&hpmmap_pool_mutex);
	return ret;
}

/*
 * The guard. Linux initialises the struct pages of memory it sets online
 * before it asks its notifiers, so a veto comes too late for blocks in use:
 * online_pages() itself is not entered for a section of ours.
 */

static noinline int bad_refused(unsigned long pfn)
{
	pr_info("section %lu stays offline: memory errors\n",
		pfn_to_section_nr(pfn));
	return -EHWPOISON;
}

static noinline int online_refused(unsigned long pfn)
{
	pr_info("section %lu is in a pool and stays offline; see hpmmap-pool-remove(1)\n",
		pfn_to_section_nr(pfn));
	return -EBUSY;
}

static void notrace guard_entry(unsigned long ip, unsigned long parent_ip,
				struct ftrace_ops *op,
				struct ftrace_regs *fregs)
{
	unsigned long pfn = compat_ftrace_arg(fregs, 0);
	unsigned long nr = pfn_to_section_nr(pfn);
	unsigned long end = pfn_to_section_nr(pfn + compat_ftrace_arg(fregs, 1) +
					      PAGES_PER_SECTION - 1);

	rcu_read_lock();
	for (; nr < end; nr++) {
		struct section *s = xa_load(&sections, nr);

		if (!s)
			continue;
		compat_ftrace_set_ip(fregs, READ_ONCE(s->state) == SECTION_BAD ?
				     (unsigned long)bad_refused :
				     (unsigned long)online_refused);
		break;
	}
	rcu_read_unlock();
}

static noinline int removal_refused(u64 start, u64 size)
{
	pr_info("memory at %#llx is in a pool and cannot be removed; see hpmmap-pool-remove(1)\n",
		start);
	return -EBUSY;
}

/* Under the lock that hpmmap_pool_add() takes, so memory that is removed is not being added. */
static void notrace removal_entry(unsigned long ip, unsigned long parent_ip,
				  struct ftrace_ops *op, struct ftrace_regs *fregs)
{
	u64 start = compat_ftrace_arg(fregs, 0), size = compat_ftrace_arg(fregs, 1);

	rcu_read_lock();
	if (is_in_pool(pfn_to_section_nr(PHYS_PFN(start)),
		       pfn_to_section_nr(PHYS_PFN(start + size - 1)) + 1))
		compat_ftrace_set_ip(fregs, (unsigned long)removal_refused);
	rcu_read_unlock();
}

static struct ftrace_ops guard_ops = { .func = guard_entry, .flags = HPMMAP_GUARD_FLAGS };
static struct ftrace_ops removal_ops = { .func = removal_entry, .flags = HPMMAP_GUARD_FLAGS };

/* A hibernation image does not contain offline memory. */
static int pm_notify(struct notifier_block *nb, unsigned long action,
		     void *data)
{
	nodemask_t all = NODE_MASK_ALL;

	if (action == PM_HIBERNATION_PREPARE && hpmmap_pool_count_all(&all)) {
		pr_warn("hibernation would lose the pools; remove them first\n");
		return notifier_from_errno(-EBUSY);
	}
	return NOTIFY_DONE;
}

static struct notifier_block pm_nb = {
	.notifier_call = pm_notify,
};

int hpmmap_section_init(void)
{
	int ret = hpmmap_guard_install(&guard_ops, "online_pages");

	if (ret)
		return ret;
	ret = register_pm_notifier(&pm_nb);
	if (ret)
		hpmmap_guard_remove(&guard_ops);
	else
		removal_is_guarded = !hpmmap_guard_install(&removal_ops, "try_remove_memory");
	return ret;
}

/*
 * Memory in a pool keeps the module loaded, so the pools are empty here. Memory with errors is left
 * to Linux.
 */
void hpmmap_section_exit(void)
{
	struct section *s;
	unsigned long nr;

	/* Memory errors may have taken all that was promised. */
	hpmmap_promises_sweep(true);
	unregister_pm_notifier(&pm_nb);
	if (removal_is_guarded)
		hpmmap_guard_remove(&removal_ops);
	hpmmap_guard_remove(&guard_ops);
	xa_for_each(&sections, nr, s)
		kfree(s);
	xa_destroy(&sections);
}
