/* SPDX-License-Identifier: GPL-2.0 */
/* Jobs: what one launch asked for. */
#ifndef _HPMMAP_AS_OWN_JOB_H
#define _HPMMAP_AS_OWN_JOB_H

#include "as/own/counters.h"

struct hpmmap_tally;

/* A region of each program; @blocks: for the first one, protected by the job's lock. */
struct hpmmap_laid {
	struct hpmmap_region r;
	struct list_head blocks;
};

/**
 * struct hpmmap_job - what one launch asked for; immutable but for its counters
 * @refs: members, contexts, and the file it was launched by
 * @id: number shown to user space
 * @account: who launched it
 * @tally: blocks it holds; counts by itself
 * @large: place memory in 1 GB runs
 * @gigabytes: and map them by one entry; set before a program runs
 * @interleave: where no memory policy says otherwise, the nodes take turns
 * @eager_stacks: stacks have all their memory at once
 * @shared_linux: shared memory without a name stays Linux's
 * @first_touch: who touches a block first decides on its node
 * @static_bytes: what each program has laid out before it runs, a multiple of the page size
 * @laid: regions of each program, @nr_laid of them; set before it has a process
 * @only: patterns of programs that are registered, or NULL for all; set before it has
 *	a process
 * @nodes: nodes whose pools may be used, whatever a memory policy says
 * @nr_members: processes that belong to it
 * @nr_members_total: the same, and those that are gone
 * @nr_programs: that they have executed, by what became of them
 * @lock: protects the members that follow, and @totals
 * @contexts: those that are in use
 * @totals: what is known of its memory
 * @gone: in the list of jobs to be freed
 */
struct hpmmap_job {
	refcount_t refs;
	u64 id;
	struct hpmmap_account *account;
	struct hpmmap_tally *tally;
	bool strict;
	bool no_inherit;
	bool interleave;
	bool first_touch;
	bool large;
	bool gigabytes;
	bool image;
	bool eager_stacks;
	bool shared_linux;
	unsigned long static_bytes;
	struct hpmmap_laid *laid;
	unsigned int nr_laid;
	char *only;
	nodemask_t nodes;
	struct hpmmap_totals *totals;

	atomic_long_t nr_members;
	atomic_long_t nr_members_total;
	atomic_long_t nr_programs[HPMMAP_NR_PROGRAM_KINDS];
	spinlock_t lock;
	struct list_head contexts;
	struct kobject kobj;
	struct llist_node gone;
};

struct hpmmap_job *hpmmap_job_alloc(const struct hpmmap_launch *arg,
				    const nodemask_t *nodes);
struct hpmmap_job *hpmmap_job_get(struct hpmmap_job *job);
void hpmmap_job_put(struct hpmmap_job *job);
void hpmmap_job_drop_regions(struct hpmmap_job *job);
void hpmmap_job_join(struct hpmmap_job *job);
void hpmmap_job_leave(struct hpmmap_job *job);
void hpmmap_jobs_exit(void);

#endif /* _HPMMAP_AS_OWN_JOB_H */
