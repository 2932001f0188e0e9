// SPDX-License-Identifier: GPL-2.0
/*
 * What move_pages(2) and migrate_pages(2) of a registered process about itself
 * mean for memory of ours: whole blocks move, with their contents.
 *
 * Linux answers for its own memory, and for what is wrong with a call. Nothing
 * is read from the caller's memory under ctx->ops.
 */
#include <linux/capability.h>
#include <linux/cpuset.h>
#include <linux/mempolicy.h>
#include <linux/sched/signal.h>
#include <linux/uaccess.h>

#include "hook.h"
#include "hpmmap.h"
#include "as/ctx.h"
#include "as/place.h"
#include "as/range.h"
#include "as/store.h"
#include "call/mbind.h"
#include "call/sys.h"

static bool is_self(pid_t pid)
{
	return !pid || pid == task_tgid_vnr(current);
}

/* Can the caller's memory be moved there, as far as Linux is concerned? */
static bool node_is_usable(int nid)
{
	bool ret;

	if (nid < 0 || nid >= MAX_NUMNODES || !node_state(nid, N_MEMORY))
		return false;
	task_lock(current);
	ret = node_isset(nid, cpuset_current_mems_allowed);
	task_unlock(current);
	return ret;
}

/* move_pages */

/**
 * struct move - a call of move_pages(2)
 * @pages: addresses
 * @nodes: where to, or NULL
 * @status: out
 * @nr: how many
 * @shared_too: what is shared with others, too
 */
struct move {
	void __user * __user *pages;
	int __user *nodes;
	int __user *status;
	unsigned long nr;
	bool shared_too;
};

/* Moves the blocks, each to where the first of its pages that is named shall go. */
static void blocks_move(struct hpmmap_ctx *ctx, const struct move *m)
{
	struct xarray done;
	bool vain = false;
	unsigned long i;

	/* Of as many as the caller has blocks, and for as long as it likes. */
	xa_init_flags(&done, XA_FLAGS_ACCOUNT);
	for (i = 0; i < m->nr && !fatal_signal_pending(current); i++) {
		bool shared = false;
		void __user *page;
		int to, nid;

		/* Linux stops there, too. */
		if (get_user(page, m->pages + i) ||
		    get_user(to, m->nodes + i) || !node_is_usable(to))
			break;
		nid = hpmmap_page_node(ctx, (unsigned long)page, &shared);
		if (nid == NUMA_NO_NODE ||
		    xa_load(&done, slot_of((unsigned long)page)))
			continue;
		if (xa_err(xa_store(&done, slot_of((unsigned long)page),
				    xa_mk_value(1), GFP_KERNEL)))
			break;
		if (nid != to && (!shared || m->shared_too))
			hpmmap_policy_move(ctx, (unsigned long)page, to, false, &vain);
		cond_resched();
	}
	xa_destroy(&done);
}

/* What the caller is told of a page of ours; @theirs: what Linux says. */
static int page_status(const struct move *m, int nid, int to, bool shared,
		       int theirs)
{
	if (nid == NUMA_NO_NODE)
		return m->nodes ? -ENOENT : theirs;
	if (!m->nodes || nid == to)
		return nid;
	return shared && !m->shared_too ? -EACCES : -EBUSY;
}

static long tell_status(struct hpmmap_ctx *ctx, const struct move *m)
{
	unsigned long i;

	for (i = 0; i < m->nr; i++) {
		int to = NUMA_NO_NODE, theirs, status, nid;
		unsigned long addr;
		bool shared = false;
		void __user *page;

		if (fatal_signal_pending(current))
			return -EINTR;
		cond_resched();
		if (get_user(page, m->pages + i) ||
		    get_user(theirs, m->status + i) ||
		    (m->nodes && get_user(to, m->nodes + i)))
			return -EFAULT;
		addr = (unsigned long)page & PAGE_MASK;
		if (addr >= TASK_SIZE ||
		    !hpmmap_range_has_ours(ctx, addr, addr + PAGE_SIZE))
			continue;
		nid = hpmmap_page_node(ctx, addr, &shared);
		status = page_status(m, nid, to, shared, theirs);
		if (status != theirs && put_user(status, m->status + i))
			return -EFAULT;
	}
	return 0;
}

long hpmmap_sys_move_pages(const struct pt_regs *regs)
{
	const struct move m = {
		.nr = regs->si,
		.pages = (void __user *)regs->dx,
		.nodes = (void __user *)regs->r10,
		.status = (void __user *)regs->r8,
		.shared_too = regs->r9 & MPOL_MF_MOVE_ALL,
	};
	struct hpmmap_ctx *ctx;
	long ret, told;

	/* What cannot be right is Linux's to refuse. */
	if (!is_self(regs->di) || in_compat_syscall() ||
	    (int)regs->r9 & ~(MPOL_MF_MOVE | MPOL_MF_MOVE_ALL) ||
	    (m.shared_too && !capable(CAP_SYS_NICE)))
		return hpmmap_call_orig(HPMMAP_CALL_MOVE_PAGES, regs);
	ctx = hpmmap_ctx_get(current->mm);
	if (!ctx)
		return hpmmap_call_orig(HPMMAP_CALL_MOVE_PAGES, regs);
	if (m.nodes)
		blocks_move(ctx, &m);
	ret = hpmmap_call_orig(HPMMAP_CALL_MOVE_PAGES, regs);
	if (ret >= 0) {
		told = tell_status(ctx, &m);
		if (told)
			ret = told;
	}
	hpmmap_ctx_put(ctx);
	return ret;
}

/* migrate_pages */

/* Where memory of a node goes, as Linux pairs them. */
static int migration_target(const nodemask_t *from, const nodemask_t *to,
			    int nid)
{
	if (!node_isset(nid, *from) ||
	    (nodes_weight(*from) != nodes_weight(*to) && node_isset(nid, *to)))
		return nid;
	return node_remap(nid, *from, *to);
}

/* Returns how many pages stay where they should not, or an errno. */
static long blocks_migrate(struct hpmmap_ctx *ctx, const nodemask_t *from,
			   const nodemask_t *to)
{
	unsigned long addr = 0;
	long nr_left = 0;
	bool vain = false;

	for (;; addr = (addr | ~SLOT_MASK) + 1) {
		bool shared = false;
		int nid, target;

		if (fatal_signal_pending(current))
			return -EINTR;
		cond_resched();
		addr = hpmmap_store_next(ctx, addr, TASK_SIZE_MAX);
		if (addr >= TASK_SIZE_MAX)
			return min_t(long, nr_left, INT_MAX);
		nid = hpmmap_slot_node(ctx, slot_of(addr), &shared);
		/* What is shared Linux skips, too. */
		if (nid == NUMA_NO_NODE || shared)
			continue;
		target = migration_target(from, to, nid);
		if (target != nid && node_is_usable(target) &&
		    !hpmmap_policy_move(ctx, addr, target, true, &vain))
			nr_left += SLOT_PAGES;
	}
}

long hpmmap_sys_migrate_pages(const struct pt_regs *regs)
{
	long ret = hpmmap_call_orig(HPMMAP_CALL_MIGRATE_PAGES, regs), left;
	struct hpmmap_ctx *ctx;
	nodemask_t from, to;

	if (ret < 0 || !is_self(regs->di) ||
	    !hpmmap_nodes_read(regs->si, regs->dx, &from) ||
	    !hpmmap_nodes_read(regs->si, regs->r10, &to) || nodes_empty(to))
		return ret;
	ctx = hpmmap_ctx_get(current->mm);
	if (!ctx)
		return ret;
	left = blocks_migrate(ctx, &from, &to);
	hpmmap_ctx_put(ctx);
	return left < 0 ? left : min_t(long, ret + left, INT_MAX);
}
