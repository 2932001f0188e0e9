// SPDX-License-Identifier: GPL-2.0
/*
 * Hooks: mechanism only. main.c says which functions are hooked, what stands in for them and
 * whose calls are meant.
 *
 * ftrace redirects the call of a registered process to its handler. The hooks are there while a
 * process is registered, all of them or none.
 *
 * unregister_ftrace_function() waits under ftrace_lock until each task has slept or left the
 * kernel, and any user can make a call that does neither for a minute. A launch would wait for
 * that. So what the first launch registers stays until the module is unloaded: the filter of the
 * ops brings the hooks and takes them away, and waits for no task.
 */
#include <linux/fs.h>
#include <linux/static_call.h>

#include "hook.h"
#include "hpmmap.h"

/* HPMMAP_NR_HOOKS of them. */
static struct hpmmap_hook *hooks;
static const struct hpmmap_hooked *hooked;

/* Asked at each call of each process: a direct call. */
typedef bool is_meant_t(struct mm_struct *mm);
DEFINE_STATIC_CALL_RET0(hpmmap_is_meant, is_meant_t);
typedef bool forks_t(void);
DEFINE_STATIC_CALL_RET0(hpmmap_forks, forks_t);

/* How long the hooks stay without a registered process: the next job may come. */
#define LINGER_MS 3000

/* How long it is not tried again where a live patch holds a function: an attempt is costly. */
#define HELD_MS 1000

/* How often, and how long it pauses, where BPF is changing a trampoline. */
#define PEER_TRIES 20
#define PEER_PAUSE_MS 2

/* The calls are redirected. */
static bool installed;
/* They could not be, until when it is not tried again. */
static u64 held_until;

/* BPF programs of these functions are asked to go along; -EAGAIN where that fails. */
static int register_ops(struct ftrace_ops *ops)
{
	int i, ret = register_ftrace_function(ops);

	for (i = 1; i < PEER_TRIES && ret == -EAGAIN; i++) {
		msleep(PEER_PAUSE_MS);
		ret = register_ftrace_function(ops);
	}
	return ret;
}

/* False, and it stays, only after a failure of ftrace itself. */
static bool unregister_ops(struct ftrace_ops *ops)
{
	if (!unregister_ftrace_function(ops))
		return true;
	pr_err("functions of the kernel stay hooked, and the module loaded\n");
	__module_get(THIS_MODULE);
	return false;
}

/* Protects installing and removing. Nothing under it waits for each task. */
static DEFINE_MUTEX(hpmmap_hook_mutex);
/* Contexts and members; the module stays loaded while there are any. */
static refcount_t hook_refs = REFCOUNT_INIT(0);
/* References given up and not yet taken off hook_refs. */
static atomic_t puts_pending = ATOMIC_INIT(0);

static void put_work_fn(struct work_struct *work);
static DECLARE_WORK(put_work, put_work_fn);
static void remove_work_fn(struct work_struct *work);
static DECLARE_DELAYED_WORK(remove_work, remove_work_fn);

#ifdef HPMMAP_DEBUG
/* How many of 1000 hooked calls of registered processes are left to Linux. */
static unsigned int skip_hooks;
module_param(skip_hooks, uint, 0600);
/* All 32-bit calls are. */
static bool skip_ia32;
module_param(skip_ia32, bool, 0600);
static unsigned int hooks_skipped;
module_param(hooks_skipped, uint, 0400);

/* Nothing in here can be traced. */
static __always_inline bool is_skipped(int hook)
{
	static unsigned int nr;
	u64 x;

	if (READ_ONCE(skip_ia32) && hook >= HPMMAP_NR_CALLS)
		return true;
	if (likely(!READ_ONCE(skip_hooks)))
		return false;
	x = (rdtsc() ^ xadd(&nr, 1)) * 0x9e3779b97f4a7c15;
	if ((x >> 32) % 1000 >= READ_ONCE(skip_hooks))
		return false;
	xadd(&hooks_skipped, 1);
	return true;
}
#else
static __always_inline bool is_skipped(int hook)
{
	return false;
}
#endif

/*
 * The call of a registered process that does not come from this module
 * continues in the handler.
 */
static void notrace hook_entry(unsigned long ip, unsigned long parent_ip,
			       struct ftrace_ops *op,
			       struct ftrace_regs *fregs)
{
	int i;

	if (!static_call(hpmmap_is_meant)(current->mm) &&
	    (ip - hooks[HPMMAP_CALL_CLONE].orig > HPMMAP_ENTRY_OFFSET ||
	     !static_call(hpmmap_forks)()))
		return;
	if (compat_is_own_text(parent_ip))
		return;
	for (i = 0; i < HPMMAP_NR_HOOKS; i++) {
		/* This kernel may lack it: then it is 0. */
		if (ip - hooks[i].orig > HPMMAP_ENTRY_OFFSET)
			continue;
		if (is_skipped(i))
			return;
		compat_ftrace_set_ip(fregs, (unsigned long)hooks[i].handler);
		return;
	}
}

/* PERMANENT: kernel.ftrace_enabled=0 may not take the hooks away. */
static struct ftrace_ops calls = { .func = hook_entry, .flags = HPMMAP_GUARD_FLAGS };

/* @calls is registered, with whatever filter. */
static bool registered;

/*
 * The functions again. Only a registration asks BPF programs to go along, so this is registered
 * once more when a filter has redirected them: that asks, and fails.
 */
static struct ftrace_ops asking = {
	.func = hook_entry,
	.flags = FTRACE_OPS_FL_IPMODIFY | FTRACE_OPS_FL_DYNAMIC,
};

/* The only function that is redirected while no process is registered: no filter means all. */
static noinline void parking(void)
{
	barrier();
}

static int hooks_park(void)
{
	return ftrace_set_filter_ip(&calls, (unsigned long)parking, 0, 1);
}

static int hooks_redirect(void)
{
	unsigned long ips[HPMMAP_NR_HOOKS];
	unsigned int i, nr = 0;
	int ret;

	/* The functions that this kernel has. */
	for (i = 0; i < HPMMAP_NR_HOOKS; i++)
		if (hooks[i].orig)
			ips[nr++] = hooks[i].orig;
	ret = ftrace_set_filter_ips(&calls, ips, nr, 0, 1);
	if (ret)
		return ret;
	if (!registered) {
		ret = register_ops(&calls);
		registered = !ret;
		return ret;
	}
	ret = register_ops(&asking);
	if (ret == -EBUSY)
		return 0;
	if (!ret)
		unregister_ftrace_function(&asking);
	/* Without memory for that the next launch is the next try. */
	hooks_park();
	return ret ?: -EIO;
}

/* The system call as Linux has it. */
noinline long hpmmap_call_orig(enum hpmmap_call call,
			       const struct pt_regs *regs)
{
	long (*orig)(const struct pt_regs *regs) = (void *)hooks[call].orig;
	long ret = orig(regs);

	barrier();
	return ret;
}

/* madvise(2), as Linux has it. */
long hpmmap_madvise(unsigned long start, unsigned long len, int advice)
{
	const struct pt_regs regs = { .di = start, .si = len, .dx = advice };

	return hpmmap_call_orig(HPMMAP_CALL_MADVISE, &regs);
}

/* userfaultfd_ioctl(), as Linux has it. */
noinline long hpmmap_call_userfaultfd(struct file *file, unsigned int cmd, unsigned long arg)
{
	long (*orig)(struct file *file, unsigned int cmd, unsigned long arg) =
		(void *)hooks[HPMMAP_CALL_USERFAULTFD].orig;
	long ret = orig(file, cmd, arg);

	barrier();
	return ret;
}

/* A task may still be in hook_entry(); it finds nothing registered. */
static void hooks_remove(void)
{
	lockdep_assert_held(&hpmmap_hook_mutex);
	/* Without memory for the filter. */
	if (hooks_park()) {
		mod_delayed_work(compat_wq, &remove_work,
				 msecs_to_jiffies(LINGER_MS));
		return;
	}
	hooked->stop();
	WRITE_ONCE(installed, false);
}

static int hooks_install(void)
{
	int ret;

	lockdep_assert_held(&hpmmap_hook_mutex);
	if (get_jiffies_64() < held_until)
		return -EBUSY;
	ret = hooked->start();
	if (ret)
		return ret;
	ret = hooks_redirect();
	if (!ret) {
		WRITE_ONCE(installed, true);
		return 0;
	}
	if (ret == -EBUSY)
		held_until = get_jiffies_64() + msecs_to_jiffies(HELD_MS);
	pr_err_ratelimited("system calls cannot be hooked: %d%s\n", ret,
			   ret == -EBUSY ?
			   ", a live patch or another module holds one" : "");
	hooked->stop();
	return ret;
}

/*
 * Keeps the hooks installed, and the module loaded. Sleeps, and takes hpmmap_hook_mutex,
 * only if they are not installed. Returns 0, -EINTR for a process that is being killed, or
 * an errno if they cannot be installed.
 */
int hpmmap_hook_get(void)
{
	int ret = 0;

	if (refcount_inc_not_zero(&hook_refs))
		return 0;
	if (mutex_lock_killable(&hpmmap_hook_mutex))
		return -EINTR;
	if (!refcount_inc_not_zero(&hook_refs)) {
		if (!try_module_get(THIS_MODULE)) {
			ret = -ENODEV;
		} else {
			ret = installed ? 0 : hooks_install();
			if (ret)
				module_put(THIS_MODULE);
			else
				refcount_set(&hook_refs, 1);
		}
	}
	mutex_unlock(&hpmmap_hook_mutex);
	return ret;
}

/* hpmmap_hook_get() for any context. Returns false if the hooks are not installed. */
bool hpmmap_hook_get_another(void)
{
	return refcount_inc_not_zero(&hook_refs);
}

static void put_work_fn(struct work_struct *work)
{
	int n = atomic_xchg(&puts_pending, 0);
	bool last = false;

	mutex_lock(&hpmmap_hook_mutex);
	while (n--)
		last |= refcount_dec_and_test(&hook_refs);
	if (last)
		mod_delayed_work(compat_wq, &remove_work,
				 msecs_to_jiffies(LINGER_MS));
	mutex_unlock(&hpmmap_hook_mutex);
	if (last)
		module_put(THIS_MODULE);
}

static void remove_work_fn(struct work_struct *work)
{
	mutex_lock(&hpmmap_hook_mutex);
	if (installed && !refcount_read(&hook_refs))
		hooks_remove();
	mutex_unlock(&hpmmap_hook_mutex);
}

/*
 * Undoes hpmmap_hook_get(). May be called from any context: the last one is left to a
 * worker.
 */
void hpmmap_hook_put(void)
{
	if (refcount_dec_not_one(&hook_refs))
		return;
	atomic_inc(&puts_pending);
	schedule_work(&put_work);
}

/* Are system calls hooked? They are a moment longer than needed. */
bool hpmmap_hook_active(void)
{
	return READ_ONCE(installed);
}

/*
 * Finds the functions of a table of HPMMAP_NR_HOOKS hooks. @whose: whose calls are hooked,
 * and what comes and goes with the hooks. Returns 0 or an errno.
 */
int hpmmap_hook_init(struct hpmmap_hook *table,
		     const struct hpmmap_hooked *whose)
{
	int i, ret;

	hooks = table;
	hooked = whose;
	static_call_update(hpmmap_is_meant, whose->is_meant);
	static_call_update(hpmmap_forks, whose->forks);
	for (i = 0; i < HPMMAP_NR_HOOKS; i++) {
		hooks[i].orig = compat_symbol(hooks[i].symbol);
		if (!hooks[i].orig && hooks[i].optional)
			continue;
		if (!hooks[i].orig) {
			pr_err("this kernel has no %s\n", hooks[i].symbol);
			ret = -ENOENT;
			goto err_filter;
		}
		ret = ftrace_set_filter_ip(&asking, hooks[i].orig, 0, 0);
		if (ret) {
			pr_err("%s cannot be hooked: %d\n", hooks[i].symbol,
			       ret);
			goto err_filter;
		}
	}
	return 0;

err_filter:
	ftrace_free_filter(&asking);
	return ret;
}

/* No process is registered. The workers may still be about to return. */
void hpmmap_hook_exit(void)
{
	flush_work(&put_work);
	cancel_delayed_work_sync(&remove_work);
	mutex_lock(&hpmmap_hook_mutex);
	if (registered)
		registered = !unregister_ops(&calls);
	if (installed)
		hooked->stop();
	mutex_unlock(&hpmmap_hook_mutex);
	/* A task may have counted, and queued it only after the first one. */
	synchronize_rcu_tasks();
	flush_work(&put_work);
	cancel_delayed_work_sync(&remove_work);
	ftrace_free_filter(&asking);
	if (!registered)
		ftrace_free_filter(&calls);
}

/*
 * Stands in for one function until hpmmap_guard_remove(). @ops: with a callback, and
 * HPMMAP_GUARD_FLAGS. Returns 0, or an errno, and the kernel log tells.
 */
int hpmmap_guard_install(struct ftrace_ops *ops, const char *function)
{
	unsigned long addr = compat_symbol(function);
	int ret = addr ? hpmmap_guard_install_all(ops, &addr, 1) : -ENOENT;

	if (ret)
		pr_err("%s() cannot be guarded: %d\n", function, ret);
	return ret;
}

/* The same for functions of which the addresses are known, all of them or none. */
int hpmmap_guard_install_all(struct ftrace_ops *ops, unsigned long *ips, unsigned int nr)
{
	int ret = ftrace_set_filter_ips(ops, ips, nr, 0, 0);

	if (!ret)
		ret = register_ops(ops);
	if (ret)
		ftrace_free_filter(ops);
	return ret;
}

void hpmmap_guard_remove(struct ftrace_ops *ops)
{
	if (unregister_ops(ops))
		ftrace_free_filter(ops);
	synchronize_rcu_tasks();
}
