// SPDX-License-Identifier: GPL-2.0
/*
 * Who is told of a memory error, as Linux has it: by BUS_MCEERR_AR the current task if it
 * cannot go on, by BUS_MCEERR_AO who asked for early signals.
 *
 * Thousands may have the page. So it is collected where, and all processes are looked at
 * once, not once for each place. One error is dealt with after the other, under
 * hpmmap_poison_lock().
 */
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/sort.h>

#include "hpmmap.h"
#include "as/tell.h"

/* What is told at once at most, as it is sorted; and where there is no memory. */
#define PLACES_MOST 65536UL
#define PLACES_FEW 64UL

/**
 * struct hpmmap_tell_place - where a page is
 * @mm: the address space
 * @addr: where it is there
 */
struct hpmmap_tell_place {
	struct mm_struct *mm;
	unsigned long addr;
};

/* Protected by hpmmap_poison_lock(). */
static struct hpmmap_tell_place few[PLACES_FEW];

static int place_cmp(const void *a, const void *b)
{
	const struct hpmmap_tell_place *x = a, *y = b;

	if (x->mm != y->mm)
		return x->mm < y->mm ? -1 : 1;
	return x->addr < y->addr ? -1 : x->addr > y->addr;
}

/* The first place of an address space, of sorted ones; tell->nr if it has none. */
static unsigned int first_of(const struct hpmmap_tell *tell,
			     const struct mm_struct *mm)
{
	unsigned int first = 0, end = tell->nr;

	while (first < end) {
		unsigned int mid = first + (end - first) / 2;

		if (tell->places[mid].mm < mm)
			first = mid + 1;
		else
			end = mid;
	}
	return first < tell->nr && tell->places[first].mm == mm ? first : tell->nr;
}

/* Whom of a process to tell at once; under RCU. */
static struct task_struct *early_thread(struct task_struct *process)
{
	struct task_struct *t;

	for_each_thread(process, t)
		if (t->flags & PF_MCE_PROCESS ? t->flags & PF_MCE_EARLY :
						compat_early_kill())
			return t;
	return NULL;
}

static void name(struct hpmmap_tell *tell, struct task_struct *t)
{
	if (tell->told++ < HPMMAP_NAMED_MOST)
		pr_err("sending SIGBUS to %s:%d for a memory error\n", t->comm,
		       task_pid_nr(t));
}

/* It has one signal of the kind at a time: the first place is what it is told. */
static void tell_current(struct hpmmap_tell *tell, unsigned int i)
{
	name(tell, current);
	compat_force_sig_mceerr((void __user *)tell->places[i].addr, PAGE_SHIFT);
}

static void tell_process(struct hpmmap_tell *tell, struct task_struct *process)
{
	struct mm_struct *mm = READ_ONCE(process->mm);
	unsigned int i = first_of(tell, mm);
	struct task_struct *t;

	/* Who cannot go on is told otherwise. */
	if (i == tell->nr || (tell->flags & MF_ACTION_REQUIRED && mm == current->mm))
		return;
	t = early_thread(process);
	if (!t)
		return;
	name(tell, t);
	for (; i < tell->nr && tell->places[i].mm == mm; i++)
		send_sig_mceerr(BUS_MCEERR_AO, (void __user *)tell->places[i].addr,
				PAGE_SHIFT, t);
}

/**
 * hpmmap_tell_begin() - a page has failed
 * @tell: what is filled in, until hpmmap_tell_end()
 * @nr: in how many places it may be
 * @flags: MF_*
 *
 * Without memory, or if there are more, it only takes longer. May wait for memory.
 */
void hpmmap_tell_begin(struct hpmmap_tell *tell, unsigned long nr, int flags)
{
	*tell = (struct hpmmap_tell) {
		.flags = flags,
		.room = clamp(nr, PLACES_FEW, PLACES_MOST),
	};
	if (tell->room > PLACES_FEW)
		tell->places = kvmalloc_array(tell->room, sizeof(*tell->places),
					      GFP_KERNEL | __GFP_NORETRY |
					      __GFP_NOWARN);
	if (!tell->places) {
		tell->places = few;
		tell->room = PLACES_FEW;
	}
}

/**
 * hpmmap_tell_add() - a place where the page is
 * @tell: the error
 * @mm: the address space; the caller keeps it from being freed until hpmmap_tell_all()
 * @addr: where it is there
 *
 * May tell those that were added before.
 */
void hpmmap_tell_add(struct hpmmap_tell *tell, struct mm_struct *mm,
		     unsigned long addr)
{
	if (tell->nr == tell->room)
		hpmmap_tell_all(tell);
	tell->places[tell->nr++] = (struct hpmmap_tell_place) { mm, addr };
}

/**
 * hpmmap_tell_all() - tell all who have the page in a place that was added
 * @tell: the error
 *
 * From here on the address spaces may go.
 */
void hpmmap_tell_all(struct hpmmap_tell *tell)
{
	struct task_struct *process;
	unsigned int i;

	sort(tell->places, tell->nr, sizeof(*tell->places), place_cmp, NULL);
	i = first_of(tell, current->mm);
	if (tell->flags & MF_ACTION_REQUIRED && i < tell->nr)
		tell_current(tell, i);
	rcu_read_lock();
	for_each_process(process)
		tell_process(tell, process);
	rcu_read_unlock();
	tell->nr = 0;
	cond_resched();
}

/* All have been told. */
void hpmmap_tell_end(struct hpmmap_tell *tell)
{
	if (tell->told > HPMMAP_NAMED_MOST)
		pr_err("and to %u more\n", tell->told - HPMMAP_NAMED_MOST);
	if (tell->places != few)
		kvfree(tell->places);
}
