// SPDX-License-Identifier: GPL-2.0
/*
 * Signals for memory errors, as Linux has them: BUS_MCEERR_AR for the current task if it cannot
 * go on, BUS_MCEERR_AO for processes that asked for early signals.
 */
#include <linux/mm.h>
#include <linux/sched/signal.h>

#include "hpmmap.h"
#include "as/tell.h"

/* Which thread of a process to tell at once; under RCU. */
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

/**
 * hpmmap_tell_add() - tell the processes that have a bad page
 * @tell: the error
 * @mm: their address space; the caller keeps it from being freed
 * @addr: where the page is there
 */
void hpmmap_tell_add(struct hpmmap_tell *tell, struct mm_struct *mm, unsigned long addr)
{
	struct task_struct *process, *t;

	/* It has one signal of the kind at a time: the first place is what it is told. */
	if (tell->flags & MF_ACTION_REQUIRED && mm == current->mm) {
		if (!tell->forced) {
			name(tell, current);
			compat_force_sig_mceerr((void __user *)addr, PAGE_SHIFT);
		}
		tell->forced = true;
		return;
	}
	rcu_read_lock();
	for_each_process(process) {
		t = READ_ONCE(process->mm) == mm ? early_thread(process) : NULL;
		if (!t)
			continue;
		name(tell, t);
		send_sig_mceerr(BUS_MCEERR_AO, (void __user *)addr, PAGE_SHIFT, t);
	}
	rcu_read_unlock();
	cond_resched();
}

/* All have been told. */
void hpmmap_tell_end(const struct hpmmap_tell *tell)
{
	if (tell->told > HPMMAP_NAMED_MOST)
		pr_err("and to %u more\n", tell->told - HPMMAP_NAMED_MOST);
}
