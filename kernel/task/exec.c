// SPDX-License-Identifier: GPL-2.0
/*
 * Members: processes that belong to a job, and what happens at execve.
 *
 * A member is a process (thread group), whatever program it runs; a context
 * is one of its address spaces. Membership begins with the launch ioctl, is
 * inherited over fork, survives execve and ends with the process.
 */
#include <linux/binfmts.h>
#include <linux/hashtable.h>
#include <linux/pid.h>
#include <linux/tracepoint.h>
#include <uapi/linux/sched.h>

#include "hook.h"
#include "hpmmap.h"
#include "mem/block/nodes.h"
#include "mem/pool/pool.h"
#include "as/own/ctx.h"
#include "as/own/job.h"
#include "as/own/stats.h"
#include "as/map/gigabyte.h"
#include "as/life/life.h"
#include "task/exec.h"
#include "task/fork.h"
#include "task/image.h"
#include "trace.h"

/* How long the end of a process waits for its other threads. */
#define THREADS_WAIT_MS 1000

/**
 * struct member - a process that belongs to a job
 * @refs: the hash and a work under way
 * @node: in the hash, among those that are expected or the former ones
 * @parent: of one that is expected: the task that forks
 * @tgid: the process; holds a reference
 * @job: which; holds a reference
 * @registers: programs it executes are registered
 * @work: gives the address space a context; runs in the process
 * @work_queued: @work is under way
 * @exit_work: takes its memory back before its parent learns of its end
 * @ctx: of the address space it uses or, while a work is under way, has left;
 *	joined, see hpmmap_ctx_join()
 * @execed: execve has queued @work, so heap and stack are new
 * @left_out: what it has executed is to be Linux's; this and the next ones are seen by
 *	the process itself only, which executes one program at a time
 * @asked: the program that its job's patterns were compared with last
 * @wanted: they match it
 */
struct member {
	refcount_t refs;
	struct hlist_node node;
	struct task_struct *parent;
	struct pid *tgid;
	struct hpmmap_job *job;
	bool registers;
	struct callback_head work;
	bool work_queued;
	bool execed;
	bool left_out;
	bool wanted;
	const struct linux_binprm *asked;
	struct callback_head exit_work;
	struct hpmmap_ctx *ctx;
};

static void members_work_fn(struct work_struct *work);
static DECLARE_WORK(members_work, members_work_fn);

static DEFINE_HASHTABLE(members, 14);
/* Children of forks under way, by parent; zeroed. */
static DEFINE_HASHTABLE(expected, 6);
/* Without references, to be freed. */
static HLIST_HEAD(former);
/* Protects all of these; raw, because the probes take it. */
static DEFINE_RAW_SPINLOCK(members_lock);

/* Takes over a reference of the hooks'. */
static void member_init(struct member *m, struct hpmmap_job *job, struct pid *tgid, bool registers)
{
	refcount_set(&m->refs, 1);
	m->tgid = get_pid(tgid);
	m->job = hpmmap_job_get(job);
	m->registers = registers;
	hpmmap_job_join(job);
}

/* May be called from any context: the last one is left to a worker. */
static void member_put(struct member *m)
{
	if (!refcount_dec_and_test(&m->refs))
		return;
	raw_spin_lock(&members_lock);
	hlist_add_head(&m->node, &former);
	/* Under the lock: once it is freed, the module may go. */
	schedule_work(&members_work);
	raw_spin_unlock(&members_lock);
}

/* A process is about to fork; 0 or -ENOMEM. Charged to its cgroup. */
static int child_expect(struct task_struct *parent)
{
	struct member *m = kzalloc(sizeof(*m), GFP_KERNEL_ACCOUNT);

	if (!m)
		return -ENOMEM;
	m->parent = parent;
	raw_spin_lock(&members_lock);
	hash_add(expected, &m->node, (unsigned long)parent);
	raw_spin_unlock(&members_lock);
	return 0;
}

/* The record for its child, or NULL where there is none any more. */
static struct member *child_take(struct task_struct *parent)
{
	struct member *m, *found = NULL;

	raw_spin_lock(&members_lock);
	hash_for_each_possible(expected, m, node, (unsigned long)parent)
		if (m->parent == parent) {
			hash_del(&m->node);
			found = m;
			break;
		}
	raw_spin_unlock(&members_lock);
	return found;
}

static notrace struct member *member_find_locked(struct pid *tgid)
{
	struct member *m;

	lockdep_assert_held(&members_lock);
	hash_for_each_possible(members, m, node, (unsigned long)tgid)
		if (m->tgid == tgid)
			return m;
	return NULL;
}

/*
 * Is there none by all means? Without the lock, which is one for the machine: who begins
 * or ends a membership is the process itself, or its parent before it runs.
 */
static notrace bool is_stranger(struct pid *tgid)
{
	return hlist_empty(&members[hash_min((unsigned long)tgid, HASH_BITS(members))]);
}

/*
 * Is the calling process a member? It stays one, and keeps the module loaded, until its
 * last thread ends or executes a program. Called by ftrace.
 */
notrace bool hpmmap_is_member(void)
{
	struct pid *tgid = task_tgid(current);
	bool ret;

	if (is_stranger(tgid))
		return false;
	raw_spin_lock(&members_lock);
	ret = member_find_locked(tgid);
	raw_spin_unlock(&members_lock);
	return ret;
}

static struct member *member_get(struct pid *tgid)
{
	struct member *m;

	if (is_stranger(tgid))
		return NULL;
	raw_spin_lock(&members_lock);
	m = member_find_locked(tgid);
	if (m)
		refcount_inc(&m->refs);
	raw_spin_unlock(&members_lock);
	return m;
}

/* With the hash's reference for the caller; NULL if the process was none. */
static struct member *member_remove(struct pid *tgid)
{
	struct member *m;

	if (is_stranger(tgid))
		return NULL;
	raw_spin_lock(&members_lock);
	m = member_find_locked(tgid);
	if (m) {
		hash_del(&m->node);
		hpmmap_job_leave(m->job);
	}
	raw_spin_unlock(&members_lock);
	return m;
}

/* Takes over the caller's reference; replaces an older membership. */
static void member_insert(struct member *m)
{
	struct member *old;

	raw_spin_lock(&members_lock);
	old = member_find_locked(m->tgid);
	if (old) {
		hash_del(&old->node);
		hpmmap_job_leave(old->job);
		/* The address space stays what it is. */
		m->ctx = old->ctx;
		old->ctx = NULL;
	}
	hash_add(members, &m->node, (unsigned long)m->tgid);
	raw_spin_unlock(&members_lock);
	if (old)
		member_put(old);
}

/*
 * Gives up what the address space held that the process has left. It may be
 * that of another process, still.
 */
static void member_leave(struct member *m)
{
	struct hpmmap_ctx *ctx;

	raw_spin_lock(&members_lock);
	ctx = m->ctx;
	m->ctx = NULL;
	raw_spin_unlock(&members_lock);
	if (ctx)
		hpmmap_ctx_leave(ctx);
}

/* After the last reference; no lock is held. */
static void member_free(struct member *m)
{
	member_leave(m);
	put_pid(m->tgid);
	hpmmap_job_put(m->job);
	kfree(m);
	hpmmap_hook_put();
}

static void members_work_fn(struct work_struct *work)
{
	struct hlist_node *tmp;
	HLIST_HEAD(gone);
	struct member *m;

	raw_spin_lock(&members_lock);
	hlist_move_list(&former, &gone);
	raw_spin_unlock(&members_lock);
	hlist_for_each_entry_safe(m, tmp, &gone, node)
		member_free(m);
}

/* The address space that the process uses from now on. */
static void member_join(struct member *m, struct hpmmap_ctx *ctx)
{
	refcount_inc(&ctx->refs);
	hpmmap_ctx_join(ctx);
	m->ctx = ctx;
}

static void count_program(struct hpmmap_job *job, enum hpmmap_program_kind kind)
{
	atomic_long_inc(&job->nr_programs[kind]);
}

/* Runs in the member before its first instruction of the new program. */
static void member_work(struct callback_head *work)
{
	struct member *m = container_of(work, struct member, work);
	struct mm_struct *mm = current->mm;
	bool execed = m->execed;
	struct hpmmap_ctx *ctx;

	m->work_queued = false;
	member_leave(m);
	if (!mm || current->flags & PF_EXITING || m->left_out || hpmmap_ctx_exists(mm))
		goto out;
	ctx = hpmmap_ctx_alloc(m->job);
	if (!ctx) {
		count_program(m->job, HPMMAP_PROGRAM_FAILED);
		pr_warn_ratelimited("no memory to register process %d\n", current->pid);
		if (m->job->strict || m->job->nr_laid)
			send_sig(SIGKILL, current, 1);
		goto out;
	}
	ctx->pid = current->tgid;
	ctx->stats.forked = !execed;
	mutex_lock(&ctx->ops);
	refcount_inc(&ctx->refs);
	hpmmap_ctx_publish(ctx, mm);
	WRITE_ONCE(ctx->owner.mm, mm);
	member_join(m, ctx);
	if (execed) {
		count_program(m->job, hpmmap_start_regions(ctx));
		hpmmap_start_static(ctx);
		hpmmap_start_heap(ctx);
		hpmmap_start_stack(ctx);
		if (ctx->image)
			hpmmap_image_setup(ctx);
	} else if (mm->brk == mm->start_brk) {
		ctx->heap_start = ctx->heap_end = PAGE_ALIGN(mm->brk);
	}
	hpmmap_count_held(ctx);
	WRITE_ONCE(ctx->shown, true);
	trace_hpmmap_register(ctx->id, ctx->job->id, ctx->pid);
	mutex_unlock(&ctx->ops);
	hpmmap_ctx_put(ctx);
out:
	member_put(m);
}

/* Takes over the caller's reference. */
static void member_queue_work(struct member *m, struct task_struct *task, bool execed)
{
	if (m->work_queued) {
		member_put(m);
		return;
	}
	m->work_queued = true;
	m->execed = execed;
	init_task_work(&m->work, member_work);
	if (task_work_add(task, &m->work, TWA_RESUME)) {
		m->work_queued = false;
		member_put(m);
	}
}

/*
 * Whether another thread may still be about to leave the address space: a task
 * that ends gives up its files right after that.
 */
static bool others_are_leaving(void)
{
	struct task_struct *other;
	bool ret = false;

	rcu_read_lock();
	for_each_thread(current, other)
		if (other != current && !READ_ONCE(other->exit_state) &&
		    READ_ONCE(other->files)) {
			ret = true;
			break;
		}
	rcu_read_unlock();
	return ret;
}

/*
 * Runs in a process that is no member any more and has left its address space: before its
 * parent is told of its end, or before the first instruction of another program. All other
 * threads are ending, and one of them may be the one that unmaps.
 */
static void member_exit(struct callback_head *work)
{
	struct member *m = container_of(work, struct member, exit_work);
	int i;

	for (i = 0; i < THREADS_WAIT_MS && others_are_leaving(); i++)
		usleep_range(1000, 1100);
	member_leave(m);
	/* The hash's reference. */
	if (refcount_dec_and_test(&m->refs))
		member_free(m);
}

/*
 * Tracepoints. They run with preemption disabled, on PREEMPT_RT too, where an
 * ordinary spinlock sleeps: no other lock than members_lock, nothing allocated
 * or freed, no signals.
 */

/* What becomes of a program that a member executes, if there is memory. */
static enum hpmmap_program_kind program_kind(const struct member *m,
					     const struct linux_binprm *bprm)
{
	if (!m->registers)
		return HPMMAP_PROGRAM_LEFT_OUT;
	if (bprm->secureexec)
		return HPMMAP_PROGRAM_SECURE;
	if (test_thread_flag(TIF_ADDR32))
		return HPMMAP_PROGRAM_32BIT;
	return HPMMAP_PROGRAM_REGISTERED;
}

static void probe_exec(void *data, struct task_struct *task, pid_t old_pid,
		       struct linux_binprm *bprm)
{
	struct member *m = member_get(task_tgid(task));
	enum hpmmap_program_kind kind;

	if (!m)
		return;
	kind = program_kind(m, bprm);
	if (kind != HPMMAP_PROGRAM_REGISTERED) {
		count_program(m->job, kind);
		member_put(m);
		m = member_remove(task_tgid(task));
		if (!m)
			return;
		/* Before the first instruction, as where it goes on as a member. */
		init_task_work(&m->exit_work, member_exit);
		if (task_work_add(task, &m->exit_work, TWA_RESUME))
			member_put(m);
		return;
	}
	/* A job that another thread has launched since knows nothing of it. */
	m->left_out = m->asked == bprm && !m->wanted;
	m->asked = NULL;
	if (m->left_out)
		count_program(m->job, HPMMAP_PROGRAM_LEFT_OUT);
	member_queue_work(m, task, true);
}

/*
 * The child of a member is one, too. Only of a fork that had begun before its process
 * became a member there is no record: the child is none, which the job counts.
 */
static void member_inherit(struct member *m, struct task_struct *child, bool needs_ctx)
{
	bool registers = m->registers && !m->job->no_inherit;
	struct hpmmap_ctx *ctx;
	struct member *c;

	if (!hpmmap_hook_get_another())
		return;
	c = child_take(current);
	if (!c) {
		hpmmap_hook_put();
		count_program(m->job, HPMMAP_PROGRAM_FAILED);
		/* It may have a context, which no process joins. */
		hpmmap_reap_soon();
		pr_warn_ratelimited("process %d is not registered: no hook saw its fork\n",
				    child->pid);
		return;
	}
	member_init(c, m->job, task_tgid(child), registers);
	/* Its own, or that of its parent. Not the last reference. */
	ctx = hpmmap_ctx_get(child->mm);
	if (ctx) {
		member_join(c, ctx);
		hpmmap_ctx_put(ctx);
	}
	refcount_inc(&c->refs);
	member_insert(c);
	if (needs_ctx && registers)
		member_queue_work(c, child, false);
	else
		member_put(c);
}

static void probe_fork(void *data, struct task_struct *parent, struct task_struct *child)
{
	bool has_ctx = hpmmap_fork_child(child);
	struct member *m;

	if (!thread_group_leader(child))
		return;
	m = member_get(task_tgid(parent));
	if (!m)
		return;
	member_inherit(m, child, !has_ctx && hpmmap_ctx_exists(parent->mm));
	member_put(m);
}

/*
 * Stands in for kernel_clone(). A child of a member is one, too. The probe cannot allocate
 * its record, so the parent brings it: a fork without memory for it fails, and nothing is
 * used up that others need.
 */
pid_t hpmmap_clone(struct kernel_clone_args *args)
{
	bool thread = args->flags & CLONE_THREAD;
	pid_t ret;

	if (!thread && child_expect(current))
		return -ENOMEM;
	ret = hpmmap_kernel_clone(args);
	/* It did not come to a child, or to one that is a member. */
	if (!thread)
		kfree(child_take(current));
	return ret;
}

static void probe_exit(void *data, struct task_struct *task)
{
	struct member *m;

	if (atomic_read(&task->signal->live))
		return;
	/* Every process with a context is a member. */
	m = member_remove(task_tgid(task));
	if (!m)
		return;
	init_task_work(&m->exit_work, member_exit);
	if (task_work_add(task, &m->exit_work, TWA_NONE))
		member_put(m);
}

static struct probe {
	const char *name;
	void *func;
	struct tracepoint *tp;
} probes[] = {
	{ "sched_process_exec", probe_exec },
	{ "sched_process_fork", probe_fork },
	{ "sched_process_exit", probe_exit },
};

static void probe_match(struct tracepoint *tp, void *data)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(probes); i++)
		if (!strcmp(tp->name, probes[i].name))
			probes[i].tp = tp;
}

static void probes_remove(int n)
{
	while (n--)
		tracepoint_probe_unregister(probes[n].tp, probes[n].func, NULL);
	tracepoint_synchronize_unregister();
}

/* Follows fork, execve and exit. Returns 0 or an errno; all or nothing. */
int hpmmap_probes_register(void)
{
	int i, ret;

	for_each_kernel_tracepoint(probe_match, NULL);
	for (i = 0; i < ARRAY_SIZE(probes); i++) {
		ret = probes[i].tp ?
		      tracepoint_probe_register(probes[i].tp, probes[i].func,
						NULL) : -ENOENT;
		if (ret) {
			pr_err_ratelimited("no tracepoint %s: %d\n",
					   probes[i].name, ret);
			probes_remove(i);
			return ret;
		}
	}
	return 0;
}

void hpmmap_probes_unregister(void)
{
	probes_remove(ARRAY_SIZE(probes));
	/* There are no members. */
	cancel_work_sync(&members_work);
}

/*
 * The caller is about to execute a program; of a script this is called once more with its
 * interpreter. A job's patterns are compared here, where that may take its time: the probe
 * cannot be preempted.
 */
void hpmmap_exec_begins(const struct linux_binprm *bprm)
{
	struct member *m;

	if (!hpmmap_hook_active())
		return;
	m = member_get(task_tgid(current));
	if (!m)
		return;
	if (m->job->only) {
		m->wanted = hpmmap_only_wants(m->job->only, bprm);
		m->asked = bprm;
	}
	member_put(m);
}

/*
 * Makes the calling process the first of a new job. @arg: checked. @only: patterns of
 * programs that are to be registered, or NULL; taken over. @jobp: out: the job, with a
 * reference for the caller. Returns 0 or an errno of HPMMAP_IOC_LAUNCH.
 */
int hpmmap_launch(const struct hpmmap_launch *arg, const nodemask_t *nodes,
		  char *only, struct hpmmap_job **jobp)
{
	struct hpmmap_job *job;
	struct member *m;
	int ret;

	ret = -ENODEV;
	if (!hpmmap_pool_count_all(nodes))
		goto err_only;
	job = hpmmap_job_alloc(arg, nodes);
	ret = PTR_ERR_OR_ZERO(job);
	if (ret)
		goto err_only;
	/* What cannot have entries of 1 GB has those of 2 MB. */
	job->gigabytes = job->large && !hpmmap_gigabytes_begin();
	job->only = only;
	ret = hpmmap_regions_get(job, arg);
	if (ret)
		goto out;
	ret = -ENOMEM;
	if (job->strict && !hpmmap_pool_has_free(job->account, &job->nodes,
						 max(1UL, slot_of(job->static_bytes))))
		goto out;
	ret = hpmmap_hook_get();
	if (ret)
		goto out;
	m = kzalloc(sizeof(*m), GFP_KERNEL_ACCOUNT);
	if (!m) {
		hpmmap_hook_put();
		ret = -ENOMEM;
		goto out;
	}
	member_init(m, job, task_tgid(current), true);
	member_insert(m);
	*jobp = job;
	return 0;

out:
	hpmmap_job_drop_regions(job);
	hpmmap_job_put(job);
	return ret;

err_only:
	kfree(only);
	return ret;
}

/*
 * Registers the calling process for its marked program, in a task work, before the
 * program's first instruction. In a job the launcher's options count, and the mark adds
 * that of the program image. @gigabytes: its address space may have entries of 1 GB. Returns 0
 * or an errno of HPMMAP_IOC_LAUNCH.
 */
int hpmmap_launch_marked(const struct hpmmap_launch *arg, bool gigabytes)
{
	struct hpmmap_ctx *ctx = hpmmap_ctx_get(current->mm);
	struct hpmmap_job *job;
	struct member *m;
	int ret;

	/* A member's own work is queued later, so it has run already. */
	if (ctx) {
		mutex_lock(&ctx->ops);
		if (arg->flags & HPMMAP_LAUNCH_F_IMAGE && !ctx->image) {
			ctx->image = true;
			hpmmap_image_setup(ctx);
		}
		mutex_unlock(&ctx->ops);
		hpmmap_ctx_put(ctx);
		return 0;
	}
	m = member_get(task_tgid(current));
	if (m) {
		member_put(m);
		return 0;
	}
	ret = hpmmap_launch(arg, &node_states[N_POSSIBLE], NULL, &job);
	if (ret)
		return ret;
	job->gigabytes &= gigabytes;
	hpmmap_job_put(job);
	m = member_get(task_tgid(current));
	if (m)
		member_queue_work(m, current, true);
	return 0;
}
