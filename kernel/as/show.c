// SPDX-License-Identifier: GPL-2.0
/*
 * What /sys/kernel/hpmmap/contexts shows: see the UAPI header.
 */
#include <linux/cred.h>
#include <linux/kobject.h>
#include <linux/pid_namespace.h>
#include <linux/ptrace.h>
#include <linux/sched/mm.h>
#include <linux/sched/task.h>
#include <linux/sysfs.h>

#include "hpmmap.h"
#include "sysfs.h"
#include "mem/account.h"
#include "as/ctx.h"
#include "as/mapped.h"
#include "as/show.h"

static struct hpmmap_ctx *ctx_of(struct kobject *kobj)
{
	return container_of(kobj, struct hpmmap_ctx, kobj);
}

/* Owner and root only. */
#define CTX_ATTR_OF(_file) \
	static struct kobj_attribute _file##_attr = \
		__ATTR_RO_MODE(_file, 0400)

#define CTX_ATTR(_file, _value) \
	static ssize_t _file##_show(struct kobject *kobj, \
				    struct kobj_attribute *attr, char *buf) \
	{ \
		struct hpmmap_ctx *ctx = ctx_of(kobj); \
		\
		return sysfs_emit(buf, "%llu\n", (u64)(_value)); \
	} \
	CTX_ATTR_OF(_file)

/*
 * As for /proc/PID/smaps, which tells the same. A process whose first thread has
 * ended has none either.
 */
static bool may_see_mapped(struct hpmmap_ctx *ctx)
{
	struct task_struct *task;
	bool ret = false;

	rcu_read_lock();
	task = pid_task(find_pid_ns(ctx->pid, &init_pid_ns), PIDTYPE_TGID);
	if (task)
		get_task_struct(task);
	rcu_read_unlock();
	if (!task)
		return false;
	if (READ_ONCE(task->mm) == ctx->mm)
		ret = compat_ptrace_may_access(task, PTRACE_MODE_READ_FSCREDS);
	put_task_struct(task);
	return ret;
}

static int count_mapped(struct hpmmap_ctx *ctx, struct hpmmap_mapped *mapped)
{
	int ret;

	*mapped = (struct hpmmap_mapped) {};
	if (!mmget_not_zero(ctx->mm))
		return 0;
	ret = may_see_mapped(ctx) ? hpmmap_mapped_count(ctx->mm, mapped) :
				    -EACCES;
	/* The last user may be the reader. */
	mmput_async(ctx->mm);
	return ret;
}

/* All that takes a walk of the page tables, so that it takes one. */
static ssize_t mapped_show(struct kobject *kobj, struct kobj_attribute *attr,
			   char *buf)
{
	struct hpmmap_mapped mapped;
	int ret = count_mapped(ctx_of(kobj), &mapped);

	return ret ?: sysfs_emit(buf, "mapped_2m_bytes %lu\nmapped_4k_bytes %lu\nmapped_linux_bytes %lu\n",
				 mapped.bytes_2m, mapped.bytes_4k,
				 mapped.bytes_linux);
}
CTX_ATTR_OF(mapped);

CTX_ATTR(pid, ctx->pid);
CTX_ATTR(job, ctx->job->id);
CTX_ATTR(uid, from_kuid(&init_user_ns, hpmmap_account_uid_at(&ctx->owner.account)));
CTX_ATTR(strict, ctx->job->strict);
CTX_ATTR(page_size, ctx->job->large ? HPMMAP_LARGE_BYTES : HPMMAP_BLOCK_BYTES);
CTX_ATTR(held_bytes, atomic_long_read(&ctx->nr_held) << SLOT_SHIFT);
CTX_ATTR(reuse_bytes, READ_ONCE(ctx->reuse.nr) << SLOT_SHIFT);
CTX_ATTR(image_bytes, READ_ONCE(ctx->image_bytes));
CTX_ATTR(linux_bytes, atomic_long_read(&ctx->owner.nr_linux_pages) << PAGE_SHIFT);
CTX_ATTR(few_bytes, atomic_long_read(&ctx->owner.nr_few_pages) << PAGE_SHIFT);
CTX_ATTR(fallbacks, atomic_long_read(&ctx->nr_fallbacks));
CTX_ATTR(faults, atomic_long_read(&ctx->nr_faults));
CTX_ATTR(faults_kernel, atomic_long_read(&ctx->nr_faults_kernel));
CTX_ATTR(pins_waiting, atomic_long_read(&ctx->nr_pinned));
CTX_ATTR(cleared_bytes, atomic_long_read(&ctx->owner.nr_cleared) << PAGE_SHIFT);
CTX_ATTR(fork_copied_bytes, atomic_long_read(&ctx->nr_copied) << PAGE_SHIFT);

static struct attribute *ctx_attrs[] = {
	&pid_attr.attr,
	&job_attr.attr,
	&uid_attr.attr,
	&strict_attr.attr,
	&page_size_attr.attr,
	&held_bytes_attr.attr,
	&reuse_bytes_attr.attr,
	&image_bytes_attr.attr,
	&mapped_attr.attr,
	&linux_bytes_attr.attr,
	&few_bytes_attr.attr,
	&fallbacks_attr.attr,
	&faults_attr.attr,
	&faults_kernel_attr.attr,
	&pins_waiting_attr.attr,
	&cleared_bytes_attr.attr,
	&fork_copied_bytes_attr.attr,
	NULL,
};
ATTRIBUTE_GROUPS(ctx);

static void ctx_kobj_release(struct kobject *kobj)
{
	hpmmap_ctx_put(ctx_of(kobj));
}

/* The directory and its files belong to who is charged. */
static void ctx_ownership(compat_ownership_kobject *kobj, kuid_t *uid,
			  kgid_t *gid)
{
	*uid = hpmmap_account_uid_at(&ctx_of((struct kobject *)kobj)->owner.account);
}

static const struct kobj_type ctx_ktype = {
	.release = ctx_kobj_release,
	.get_ownership = ctx_ownership,
	.sysfs_ops = &kobj_sysfs_ops,
	.default_groups = ctx_groups,
};

/**
 * hpmmap_ctx_show() - show a context
 * @ctx: published. Without memory it is not shown.
 */
void hpmmap_ctx_show(struct hpmmap_ctx *ctx)
{
	refcount_inc(&ctx->refs);
	if (kobject_init_and_add(&ctx->kobj, (struct kobj_type *)&ctx_ktype,
				 hpmmap_sysfs_dir(HPMMAP_DIR_CONTEXTS), "%llu", ctx->id))
		kobject_put(&ctx->kobj);
	else
		ctx->in_sysfs = true;
}

/* Undoes hpmmap_ctx_show(), if it was called. */
void hpmmap_ctx_hide(struct hpmmap_ctx *ctx)
{
	if (!ctx->in_sysfs)
		return;
	ctx->in_sysfs = false;
	kobject_del(&ctx->kobj);
	kobject_put(&ctx->kobj);
}
