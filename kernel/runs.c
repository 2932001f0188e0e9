// SPDX-License-Identifier: GPL-2.0
/*
 * Where memory lies, for devices: pinned, so that it stays there.
 */
#include <linux/atomic.h>
#include <linux/capability.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "runs.h"

/* Pages that are pinned or unpinned before others may run. */
#define SOME_PAGES (PAGE_SIZE / sizeof(struct page *))

/* In 16 MB: 2 TB of separate blocks. */
#define MOST_RUNS (1UL << 20)

/**
 * struct pins - one range that is pinned; it does not change once it is in a list
 * @node: in the list of its file
 * @mm: whose pinned_vm it is counted in, with a reference to the struct
 * @nr_pages: how many are counted there
 * @nr: how many runs there are
 * @room: how many of them @runs can have; pages of others are not pinned
 * @runs: which memory
 */
struct pins {
	struct llist_node node;
	struct mm_struct *mm;
	unsigned long nr_pages;
	u32 nr;
	u32 room;
	struct hpmmap_run *runs;
};

static void run_unpin(const struct hpmmap_run *run)
{
	unsigned long pfn = PHYS_PFN(run->address), left = run->length >> PAGE_SHIFT, some;

	for (; left; left -= some, pfn += some) {
		some = min(left, SOME_PAGES);
		unpin_user_page_range_dirty_lock(pfn_to_page(pfn), some, true);
		cond_resched();
	}
}

static void pins_free(struct pins *pins)
{
	u32 i;

	for (i = 0; i < min(pins->nr, pins->room); i++)
		run_unpin(&pins->runs[i]);
	atomic64_sub(pins->nr_pages, &pins->mm->pinned_vm);
	mmdrop(pins->mm);
	kvfree(pins->runs);
	kfree(pins);
}

/* Takes over the pin of a page. One without room is only counted. */
static void pins_add(struct pins *pins, struct page *page, u64 *end)
{
	u64 address = PFN_PHYS(page_to_pfn(page));
	bool begins = address != *end;

	pins->nr += begins;
	*end = address + PAGE_SIZE;
	if (pins->nr > pins->room) {
		unpin_user_page(page);
		return;
	}
	if (begins)
		pins->runs[pins->nr - 1] = (struct hpmmap_run){ .address = address };
	pins->runs[pins->nr - 1].length += PAGE_SIZE;
}

static int pins_fill(struct pins *pins, unsigned long start, struct page **pages)
{
	unsigned long left = pins->nr_pages;
	u64 end = U64_MAX;
	int i, nr;

	for (; left; left -= nr, start += (unsigned long)nr << PAGE_SHIFT) {
		if (fatal_signal_pending(current))
			return -EINTR;
		nr = pin_user_pages_fast(start, min(left, SOME_PAGES),
					 FOLL_WRITE | FOLL_LONGTERM, pages);
		if (nr <= 0)
			return nr ?: -EFAULT;
		for (i = 0; i < nr; i++)
			pins_add(pins, pages[i], &end);
		cond_resched();
	}
	return 0;
}

/* As for RDMA: all of it counts, pinned before or not. */
static struct pins *pins_alloc(unsigned long nr_pages, u32 room)
{
	struct pins *pins = kzalloc(sizeof(*pins), GFP_KERNEL_ACCOUNT);

	if (!pins)
		return NULL;
	pins->mm = current->mm;
	mmgrab(pins->mm);
	pins->nr_pages = nr_pages;
	pins->room = min3((unsigned long)room, nr_pages, MOST_RUNS);
	pins->runs = kvmalloc_array(pins->room, sizeof(*pins->runs), GFP_KERNEL_ACCOUNT);
	if ((atomic64_add_return(nr_pages, &pins->mm->pinned_vm) <=
	     rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT || capable(CAP_IPC_LOCK)) && pins->runs)
		return pins;
	pins_free(pins);
	return NULL;
}

/**
 * hpmmap_runs_pin() - pin memory of the calling process, and tell where it is
 * @arg: of HPMMAP_IOC_RUNS
 * @list: where the pins are kept
 * @nr: out: how many runs there are
 *
 * Return: 0 or an errno of HPMMAP_IOC_RUNS; then nothing stays pinned.
 */
int hpmmap_runs_pin(const struct hpmmap_runs *arg, struct llist_head *list, u32 *nr)
{
	struct page **pages = (struct page **)__get_free_page(GFP_KERNEL);
	struct pins *pins = pages ? pins_alloc(arg->length >> PAGE_SHIFT, arg->nr) : NULL;
	int ret = -ENOMEM;

	if (!pins)
		goto out;
	ret = pins_fill(pins, arg->start, pages);
	if (!ret)
		*nr = pins->nr;
	if (!ret && pins->nr > pins->room)
		ret = -EMSGSIZE;
	if (!ret && copy_to_user(u64_to_user_ptr(arg->runs), pins->runs,
				 pins->nr * sizeof(*pins->runs)))
		ret = -EFAULT;
	if (ret)
		pins_free(pins);
	else
		llist_add(&pins->node, list);
out:
	free_page((unsigned long)pages);
	return ret;
}

/* All that a list has. Sleeps. */
void hpmmap_runs_unpin(struct llist_head *list)
{
	struct pins *pins, *next;

	llist_for_each_entry_safe(pins, next, llist_del_all(list), node)
		pins_free(pins);
}
