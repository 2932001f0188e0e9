// SPDX-License-Identifier: GPL-2.0
/*
 * Where memory lies, for devices: pinned, so that it stays there.
 */
#include "hpmmap.h"
#include "runs.h"

/* In 16 MB: 2 TB of separate blocks. */
#define MOST_RUNS (1UL << 20)

/* One range that is pinned; it does not change once it is in a list. */
struct pins {
	struct llist_node node;		/* in the list of its file */
	/* Whose pinned_vm it is counted in, with a reference to the struct. */
	struct mm_struct *mm;
	unsigned long nr_pages;		/* how many are counted there */
	u32 nr;				/* how many runs there are */
	/* How many of them @runs can have; pages of others are not pinned. */
	u32 room;
	struct hpmmap_run *runs;	/* which memory */
};

static void pins_free(struct pins *pins)
{
	u32 i;

	for (i = 0; i < min(pins->nr, pins->room); i++) {
		unsigned long pfn = PHYS_PFN(pins->runs[i].address), some;
		unsigned long end = pfn + (pins->runs[i].length >> PAGE_SHIFT);

		for (; pfn < end; pfn += some) {
			some = min(end - pfn, SLOT_PAGES);
			unpin_user_page_range_dirty_lock(pfn_to_page(pfn), some, true);
			cond_resched();
		}
	}
	atomic64_sub(pins->nr_pages, &pins->mm->pinned_vm);
	mmdrop(pins->mm);
	kvfree(pins->runs);
	kfree(pins);
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

static int pins_fill(struct pins *pins, unsigned long start)
{
	unsigned long left = pins->nr_pages;
	u64 end = U64_MAX;
	int i, nr;

	for (; left; left -= nr, start += (unsigned long)nr << PAGE_SHIFT) {
		struct page *pages[64];

		if (fatal_signal_pending(current))
			return -EINTR;
		nr = pin_user_pages_fast(start, min(left, ARRAY_SIZE(pages)),
					 FOLL_WRITE | FOLL_LONGTERM, pages);
		if (nr <= 0)
			return nr ?: -EFAULT;
		for (i = 0; i < nr; i++) {
			u64 address = PFN_PHYS(page_to_pfn(pages[i]));
			bool begins = address != end;

			end = address + PAGE_SIZE;
			pins->nr += begins;
			if (pins->nr > pins->room) {
				unpin_user_page(pages[i]);
				continue;
			}
			if (begins)
				pins->runs[pins->nr - 1] = (struct hpmmap_run){ address, 0 };
			pins->runs[pins->nr - 1].length += PAGE_SIZE;
		}
		cond_resched();
	}
	return 0;
}

/*
 * Pins memory of the calling process, kept in @list, and tells where it is. Returns 0, or an
 * errno of HPMMAP_IOC_RUNS: then nothing stays pinned.
 */
int hpmmap_runs_pin(struct hpmmap_runs *arg, struct llist_head *list)
{
	struct pins *pins = pins_alloc(arg->length >> PAGE_SHIFT, arg->nr);
	int ret = pins ? pins_fill(pins, arg->start) : -ENOMEM;

	if (!ret) {
		arg->nr = pins->nr;
		if (pins->nr > pins->room)
			ret = -EMSGSIZE;
		else if (copy_to_user(u64_to_user_ptr(arg->runs), pins->runs,
				      pins->nr * sizeof(*pins->runs)))
			ret = -EFAULT;
	}
	if (!ret)
		llist_add(&pins->node, list);
	else if (pins)
		pins_free(pins);
	return ret;
}

/* All that a list has. Sleeps. */
void hpmmap_runs_unpin(struct llist_head *list)
{
	struct pins *pins, *next;

	llist_for_each_entry_safe(pins, next, llist_del_all(list), node)
		pins_free(pins);
}
