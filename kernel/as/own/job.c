// SPDX-License-Identifier: GPL-2.0
/*
 * Jobs: what one launch asked for.
 */
#include "hpmmap.h"
#include "sysfs.h"
#include "mem/block/account.h"
#include "mem/block/payer.h"
#include "mem/block/promise.h"
#include "mem/pool/pool.h"
#include "as/own/job.h"
#include "as/own/stats.h"

/* As many as there can be processes, unless an administrator allows more. */
#define MOST_JOBS 32768

/* And without a process, kept by a file: most of their memory counts for no cgroup. */
#define MOST_IDLE_JOBS 1024

static atomic64_t next_job_id = ATOMIC64_INIT(0);

/* Gives back the memory of regions that no program has taken. */
void hpmmap_job_drop_regions(struct hpmmap_job *job)
{
	while (job->nr_laid)
		hpmmap_pool_free_unused(&job->laid[--job->nr_laid].blocks);
}

/* The last reference to a job's kobject is gone. */
static void job_free(struct kobject *kobj)
{
	struct hpmmap_job *job = container_of(kobj, struct hpmmap_job, kobj);

	hpmmap_job_drop_regions(job);
	kfree(job->laid);
	atomic_dec(&hpmmap_account_user(job->account)->nr_jobs);
	hpmmap_account_put(job->account);
	hpmmap_tally_put(job->tally);
	kfree(job->totals);
	kfree(job->only);
	kfree(job);
}

/* The directory and its files belong to the user that launched the job. */
static void job_ownership(compat_ownership_kobject *kobj, kuid_t *uid,
			  kgid_t *gid)
{
	*uid = hpmmap_account_user(container_of(kobj, struct hpmmap_job, kobj)->account)->uid;
}

static const struct kobj_type job_ktype = {
	.release = job_free,
	.get_ownership = job_ownership,
	.sysfs_ops = &kobj_sysfs_ops,
	.default_groups = hpmmap_stats_groups,
};

/*
 * A job of the calling user, with one reference. @arg: checked. @nodes: that it may use; not
 * empty. An ERR_PTR is -ENOMEM or -EAGAIN.
 */
struct hpmmap_job *hpmmap_job_alloc(const struct hpmmap_launch *arg,
				    const nodemask_t *nodes)
{
	struct hpmmap_tally *tally = hpmmap_tally_alloc();
	struct hpmmap_account *account;
	struct hpmmap_job *job;
	int ret = -ENOMEM;

	if (!tally)
		return ERR_PTR(-ENOMEM);
	account = hpmmap_account_get_current(tally);
	if (!account)
		goto err_tally;
	if (atomic_inc_return(&hpmmap_account_user(account)->nr_jobs) > MOST_JOBS ||
	    atomic_read(&hpmmap_account_user(account)->nr_idle_jobs) >= MOST_IDLE_JOBS) {
		ret = -EAGAIN;
		goto err_count;
	}
	job = kzalloc(sizeof(*job), GFP_KERNEL_ACCOUNT);
	if (!job)
		goto err_count;
	job->account = account;
	job->tally = tally;
	job->totals = hpmmap_stats_alloc();
	if (!job->totals)
		goto err_free;
	refcount_set(&job->refs, 1);
	spin_lock_init(&job->lock);
	INIT_LIST_HEAD(&job->contexts);
	job->id = atomic64_inc_return(&next_job_id);
	job->strict = arg->flags & HPMMAP_LAUNCH_F_STRICT;
	job->no_inherit = arg->flags & HPMMAP_LAUNCH_F_NO_INHERIT;
	job->interleave = arg->flags & HPMMAP_LAUNCH_F_INTERLEAVE;
	job->image = arg->flags & HPMMAP_LAUNCH_F_IMAGE;
	job->first_touch = arg->flags & HPMMAP_LAUNCH_F_FIRST_TOUCH;
	job->eager_stacks = arg->flags & HPMMAP_LAUNCH_F_EAGER_STACKS;
	job->shared_linux = arg->flags & HPMMAP_LAUNCH_F_SHARED_LINUX;
	job->large = arg->page_size == HPMMAP_LARGE_BYTES;
	job->static_bytes = arg->static_bytes;
	job->nodes = *nodes;
	ret = kobject_init_and_add(&job->kobj, (struct kobj_type *)&job_ktype,
				   hpmmap_sysfs_dir(HPMMAP_DIR_JOBS), "%llu",
				   job->id);
	if (ret) {
		kobject_put(&job->kobj);
		return ERR_PTR(ret);
	}
	atomic_inc(&hpmmap_account_user(account)->nr_idle_jobs);
	return job;

err_free:
	kfree(job);
err_count:
	atomic_dec(&hpmmap_account_user(account)->nr_jobs);
	hpmmap_account_put(account);
err_tally:
	hpmmap_tally_put(tally);
	return ERR_PTR(ret);
}

/* One process more. In any context, as the next one. */
void hpmmap_job_join(struct hpmmap_job *job)
{
	if (atomic_long_inc_return(&job->nr_members) == 1)
		atomic_dec(&hpmmap_account_user(job->account)->nr_idle_jobs);
	atomic_long_inc(&job->nr_members_total);
}

void hpmmap_job_leave(struct hpmmap_job *job)
{
	if (!atomic_long_dec_return(&job->nr_members))
		atomic_inc(&hpmmap_account_user(job->account)->nr_idle_jobs);
}

static LLIST_HEAD(gone);

/* Waits for tasks that read the files of a job, and take locks in it. */
static void gone_work_fn(struct work_struct *work)
{
	struct hpmmap_job *job, *tmp;

	/* What CPUs have at hand for it keeps its cgroup. */
	hpmmap_pool_gather();
	llist_for_each_entry_safe(job, tmp, llist_del_all(&gone), gone) {
		hpmmap_promise_end(job->tally);
		kobject_del(&job->kobj);
		kobject_put(&job->kobj);
	}
}
static DECLARE_WORK(gone_work, gone_work_fn);

struct hpmmap_job *hpmmap_job_get(struct hpmmap_job *job)
{
	refcount_inc(&job->refs);
	return job;
}

/* With any lock held: the last one is left to a worker. */
void hpmmap_job_put(struct hpmmap_job *job)
{
	if (!refcount_dec_and_test(&job->refs))
		return;
	atomic_dec(&hpmmap_account_user(job->account)->nr_idle_jobs);
	llist_add(&job->gone, &gone);
	schedule_work(&gone_work);
}

/* Members, contexts and files keep the module loaded, so no job is in use. */
void hpmmap_jobs_exit(void)
{
	flush_work(&gone_work);
}
