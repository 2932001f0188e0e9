// SPDX-License-Identifier: GPL-2.0
/*
 * Jobs (what one launch asked for) and users (who is charged).
 *
 * A user's record is made on first use and kept until the module goes: limits
 * outlive the jobs of a user, and there are few users.
 */
#include <linux/cred.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/user_namespace.h>

#include "hpmmap.h"

#define LIMIT_DEFAULT ULONG_MAX		/* follow default_limit */
#define LIMIT_NONE (ULONG_MAX - 1)

/**
 * struct hpmmap_user - what one user holds
 * @link: in the table of users
 * @uid: immutable
 * @held: blocks charged
 * @limit: in blocks, or LIMIT_*
 * @nr_jobs: jobs, those included that only a file keeps
 */
struct hpmmap_user {
	struct list_head link;
	kuid_t uid;
	atomic_long_t held;
	unsigned long limit;
	atomic_t nr_jobs;
};

/* As many as there can be processes, unless an administrator allows more. */
#define MOST_JOBS 32768

static LIST_HEAD(users);
static DEFINE_SPINLOCK(users_lock);
static unsigned long default_limit = LIMIT_NONE;
static atomic64_t next_job_id = ATOMIC64_INIT(0);

static struct hpmmap_user *user_find(kuid_t uid)
{
	struct hpmmap_user *user;

	lockdep_assert_held(&users_lock);
	list_for_each_entry(user, &users, link)
		if (uid_eq(user->uid, uid))
			return user;
	return NULL;
}

/**
 * hpmmap_user_get() - record of a user, made if there is none
 * @uid: the user
 *
 * Return: the record, valid until the module goes; NULL without memory.
 */
struct hpmmap_user *hpmmap_user_get(kuid_t uid)
{
	struct hpmmap_user *fresh, *user;

	fresh = kzalloc(sizeof(*fresh), GFP_KERNEL);
	if (!fresh)
		return NULL;
	fresh->uid = uid;
	fresh->limit = LIMIT_DEFAULT;

	spin_lock(&users_lock);
	user = user_find(uid);
	if (!user) {
		user = fresh;
		fresh = NULL;
		list_add(&user->link, &users);
	}
	spin_unlock(&users_lock);
	kfree(fresh);
	return user;
}

static unsigned long user_limit(struct hpmmap_user *user)
{
	unsigned long limit = READ_ONCE(user->limit);

	return limit == LIMIT_DEFAULT ? READ_ONCE(default_limit) : limit;
}

/**
 * hpmmap_user_charge() - charge blocks to a user
 * @user: the user
 * @nr_blocks: how many
 *
 * Return: 0, or -ENOMEM where the user's limit does not allow it.
 */
int hpmmap_user_charge(struct hpmmap_user *user, unsigned long nr_blocks)
{
	unsigned long limit = user_limit(user);
	long held = atomic_long_read(&user->held);

	do {
		if (held > limit || nr_blocks > limit - held)
			return -ENOMEM;
	} while (!atomic_long_try_cmpxchg(&user->held, &held,
					  held + nr_blocks));
	return 0;
}

/* Without asking for the limit: as many are given up next. */
void hpmmap_user_charge_anyway(struct hpmmap_user *user,
			       unsigned long nr_blocks)
{
	atomic_long_add(nr_blocks, &user->held);
}

void hpmmap_user_uncharge(struct hpmmap_user *user, unsigned long nr_blocks)
{
	atomic_long_sub(nr_blocks, &user->held);
}

/* Could so many blocks be charged? */
bool hpmmap_user_has_room(struct hpmmap_user *user, unsigned long nr_blocks)
{
	unsigned long limit = user_limit(user);
	unsigned long held = atomic_long_read(&user->held);

	return held <= limit && nr_blocks <= limit - held;
}

kuid_t hpmmap_user_uid(const struct hpmmap_user *user)
{
	return user->uid;
}

/**
 * hpmmap_user_limit_set() - set how much a user may hold
 * @uid: the user, ignored with @dflt
 * @dflt: set the limit of all users without one of their own
 * @bytes: multiple of the block size, or HPMMAP_LIMIT_NONE
 *
 * Return: 0 or -ENOMEM.
 */
int hpmmap_user_limit_set(kuid_t uid, bool dflt, u64 bytes)
{
	unsigned long limit = bytes == HPMMAP_LIMIT_NONE ?
			      LIMIT_NONE : bytes >> SLOT_SHIFT;
	struct hpmmap_user *user;

	if (dflt) {
		WRITE_ONCE(default_limit, limit);
		return 0;
	}
	user = hpmmap_user_get(uid);
	if (!user)
		return -ENOMEM;
	WRITE_ONCE(user->limit, limit);
	return 0;
}

/* In bytes; 0 where there is none. */
u64 hpmmap_user_default_limit(void)
{
	unsigned long limit = READ_ONCE(default_limit);

	return limit == LIMIT_NONE ? 0 : (u64)limit << SLOT_SHIFT;
}

void hpmmap_users_exit(void)
{
	struct hpmmap_user *user, *tmp;

	list_for_each_entry_safe(user, tmp, &users, link)
		kfree(user);
}

/*
 * Who is charged. In a user namespace that somebody has made for himself, with
 * user IDs of /etc/subuid say, that is who made it: otherwise a limit would be
 * as many as he has IDs. Where root has made it, it is the ID there.
 */
static kuid_t charged_uid(void)
{
	struct user_namespace *ns = current_user_ns();

	if (ns == &init_user_ns)
		return current_uid();
	while (ns->parent != &init_user_ns)
		ns = ns->parent;
	return uid_eq(ns->owner, GLOBAL_ROOT_UID) ? current_uid() : ns->owner;
}

/**
 * hpmmap_job_alloc() - a job of the calling user
 * @arg: what was asked for; checked
 * @nodes: nodes it may use; not empty
 *
 * Return: the job with one reference, or -ENOMEM or -EAGAIN.
 */
struct hpmmap_job *hpmmap_job_alloc(const struct hpmmap_launch *arg,
				    const nodemask_t *nodes)
{
	struct hpmmap_user *user = hpmmap_user_get(charged_uid());
	struct hpmmap_job *job;
	int ret = -ENOMEM;

	if (!user)
		return ERR_PTR(-ENOMEM);
	if (atomic_inc_return(&user->nr_jobs) > MOST_JOBS) {
		ret = -EAGAIN;
		goto err_count;
	}
	job = kzalloc(sizeof(*job), GFP_KERNEL_ACCOUNT);
	if (!job)
		goto err_count;
	job->user = user;
	job->totals = hpmmap_stats_alloc();
	if (!job->totals)
		goto err_free;
	refcount_set(&job->refs, 1);
	spin_lock_init(&job->lock);
	mutex_init(&job->read_lock);
	INIT_LIST_HEAD(&job->contexts);
	job->id = atomic64_inc_return(&next_job_id);
	job->strict = arg->flags & HPMMAP_LAUNCH_F_STRICT;
	job->no_inherit = arg->flags & HPMMAP_LAUNCH_F_NO_INHERIT;
	job->interleave = arg->flags & HPMMAP_LAUNCH_F_INTERLEAVE;
	job->image = arg->flags & HPMMAP_LAUNCH_F_IMAGE;
	job->first_touch = arg->flags & HPMMAP_LAUNCH_F_FIRST_TOUCH;
	job->large = arg->page_size == HPMMAP_LARGE_BYTES;
	job->nodes = *nodes;
	ret = hpmmap_stats_job_add(job);
	if (ret) {
		kobject_put(&job->kobj);
		return ERR_PTR(ret);
	}
	return job;

err_free:
	kfree(job);
err_count:
	atomic_dec(&user->nr_jobs);
	return ERR_PTR(ret);
}

/* The last reference to a job's kobject is gone. */
void hpmmap_job_free(struct kobject *kobj)
{
	struct hpmmap_job *job = container_of(kobj, struct hpmmap_job, kobj);

	atomic_dec(&job->user->nr_jobs);
	kfree(job->totals);
	kfree(job);
}

static LLIST_HEAD(gone);

/* Waits for who reads a job's files, and takes locks in it. */
static void gone_work_fn(struct work_struct *work)
{
	struct hpmmap_job *job, *tmp;

	llist_for_each_entry_safe(job, tmp, llist_del_all(&gone), gone) {
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
	llist_add(&job->gone, &gone);
	schedule_work(&gone_work);
}

/* Members, contexts and files keep the module loaded, so no job is in use. */
void hpmmap_jobs_exit(void)
{
	flush_work(&gone_work);
}
