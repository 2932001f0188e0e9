// SPDX-License-Identifier: GPL-2.0
/*
 * Hooks: a table of system calls and who stands in for them. No policy here.
 *
 * ftrace redirects the call of a registered process to its handler. The hooks
 * are there while somebody is registered, all of them or none.
 */
#include <linux/ftrace.h>
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>

#include "hpmmap.h"

#define HOOK(call, sym, fn) \
	[call] = { .symbol = "__x64_sys_" sym, .handler = fn }

static struct hpmmap_hook hooks[HPMMAP_NR_CALLS] = {
	HOOK(HPMMAP_CALL_MMAP, "mmap", hpmmap_sys_mmap),
	HOOK(HPMMAP_CALL_MUNMAP, "munmap", hpmmap_sys_munmap),
	HOOK(HPMMAP_CALL_MPROTECT, "mprotect", hpmmap_sys_mprotect),
	HOOK(HPMMAP_CALL_PKEY_MPROTECT, "pkey_mprotect",
	     hpmmap_sys_pkey_mprotect),
	HOOK(HPMMAP_CALL_MREMAP, "mremap", hpmmap_sys_mremap),
	HOOK(HPMMAP_CALL_MADVISE, "madvise", hpmmap_sys_madvise),
	HOOK(HPMMAP_CALL_BRK, "brk", hpmmap_sys_brk),
	HOOK(HPMMAP_CALL_MLOCK, "mlock", hpmmap_sys_mlock),
	HOOK(HPMMAP_CALL_MLOCK2, "mlock2", hpmmap_sys_mlock2),
	HOOK(HPMMAP_CALL_MUNLOCK, "munlock", hpmmap_sys_munlock),
	HOOK(HPMMAP_CALL_MBIND, "mbind", hpmmap_sys_mbind),
	HOOK(HPMMAP_CALL_CLONE, "clone", hpmmap_sys_clone),
	HOOK(HPMMAP_CALL_CLONE3, "clone3", hpmmap_sys_clone3),
	HOOK(HPMMAP_CALL_FORK, "fork", hpmmap_sys_fork),
	HOOK(HPMMAP_CALL_VFORK, "vfork", hpmmap_sys_vfork),
};

/* Protects installing and removing. */
static DEFINE_MUTEX(hpmmap_hook_mutex);
/* Contexts and members; above zero while the hooks are installed. */
static refcount_t hook_refs = REFCOUNT_INIT(0);
/* References given up and not yet taken off hook_refs. */
static atomic_t puts_pending = ATOMIC_INIT(0);

static void put_work_fn(struct work_struct *work);
static DECLARE_WORK(put_work, put_work_fn);

/*
 * The call of a registered process that does not come from this module
 * continues in the handler.
 */
static void notrace hook_entry(unsigned long ip, unsigned long parent_ip,
			       struct ftrace_ops *ops,
			       struct ftrace_regs *fregs)
{
	const struct hpmmap_hook *hook = ops->private;

	if (!hpmmap_ctx_exists(current->mm) ||
	    within_module(parent_ip, THIS_MODULE))
		return;
	compat_ftrace_set_ip(fregs, (unsigned long)hook->handler);
}

/**
 * hpmmap_call_orig() - the system call as Linux has it
 * @call: which
 * @regs: its arguments
 */
noinline long hpmmap_call_orig(enum hpmmap_call call,
			       const struct pt_regs *regs)
{
	long (*orig)(const struct pt_regs *regs) = (void *)hooks[call].orig;
	long ret = orig(regs);

	barrier();
	return ret;
}

static int hook_install(struct hpmmap_hook *hook)
{
	int ret;

	hook->ops = kzalloc(sizeof(*hook->ops), GFP_KERNEL);
	if (!hook->ops)
		return -ENOMEM;
	hook->ops->func = hook_entry;
	hook->ops->private = hook;
	/* PERMANENT: kernel.ftrace_enabled=0 may not take half of them away. */
	hook->ops->flags = FTRACE_OPS_FL_IPMODIFY | FTRACE_OPS_FL_PERMANENT |
			   FTRACE_OPS_FL_DYNAMIC;
	ret = ftrace_set_filter_ip(hook->ops, hook->orig, 0, 0);
	if (!ret)
		ret = register_ftrace_function(hook->ops);
	if (ret) {
		pr_err("%s cannot be hooked (%d)%s\n", hook->symbol, ret,
		       ret == -EBUSY ? ": a live patch or another module holds it" :
		       "");
		ftrace_free_filter(hook->ops);
		kfree(hook->ops);
		hook->ops = NULL;
	}
	return ret;
}

static void hook_remove(struct hpmmap_hook *hook)
{
	if (unregister_ftrace_function(hook->ops))
		pr_err("%s stays hooked\n", hook->symbol);
	ftrace_free_filter(hook->ops);
	kfree(hook->ops);
	hook->ops = NULL;
}

static void hooks_remove(int n)
{
	while (n--)
		hook_remove(&hooks[n]);
	synchronize_rcu_tasks();
}

static int hooks_install(void)
{
	int i, ret;

	ret = hpmmap_probes_register();
	if (ret)
		return ret;
	for (i = 0; i < HPMMAP_NR_CALLS; i++) {
		ret = hook_install(&hooks[i]);
		if (ret) {
			hooks_remove(i);
			hpmmap_probes_unregister();
			return ret;
		}
	}
	return 0;
}

/**
 * hpmmap_hook_get() - keep the hooks installed, and the module loaded
 *
 * Sleeps, and takes hpmmap_hook_mutex, only if they are not installed.
 *
 * Return: 0, or an errno if they cannot be.
 */
int hpmmap_hook_get(void)
{
	int ret = 0;

	if (refcount_inc_not_zero(&hook_refs))
		return 0;
	mutex_lock(&hpmmap_hook_mutex);
	if (!refcount_inc_not_zero(&hook_refs)) {
		if (!try_module_get(THIS_MODULE)) {
			ret = -ENODEV;
		} else {
			ret = hooks_install();
			if (ret)
				module_put(THIS_MODULE);
			else
				refcount_set(&hook_refs, 1);
		}
	}
	mutex_unlock(&hpmmap_hook_mutex);
	return ret;
}

/**
 * hpmmap_hook_get_another() - hpmmap_hook_get() for any context
 *
 * Return: false if the hooks are not installed.
 */
bool hpmmap_hook_get_another(void)
{
	return refcount_inc_not_zero(&hook_refs);
}

static void put_work_fn(struct work_struct *work)
{
	int n = atomic_xchg(&puts_pending, 0);

	mutex_lock(&hpmmap_hook_mutex);
	while (n--) {
		if (!refcount_dec_and_test(&hook_refs))
			continue;
		hooks_remove(HPMMAP_NR_CALLS);
		hpmmap_probes_unregister();
		module_put(THIS_MODULE);
	}
	mutex_unlock(&hpmmap_hook_mutex);
}

/**
 * hpmmap_hook_put() - undo hpmmap_hook_get()
 *
 * May be called from any context: the last one is left to a worker.
 */
void hpmmap_hook_put(void)
{
	if (refcount_dec_not_one(&hook_refs))
		return;
	atomic_inc(&puts_pending);
	schedule_work(&put_work);
}

bool hpmmap_hook_active(void)
{
	return refcount_read(&hook_refs);
}

int hpmmap_hook_init(void)
{
	int i;

	for (i = 0; i < HPMMAP_NR_CALLS; i++) {
		hooks[i].orig = compat_symbol(hooks[i].symbol);
		if (!hooks[i].orig) {
			pr_err("this kernel has no %s\n", hooks[i].symbol);
			return -ENOENT;
		}
	}
	return 0;
}

/* The worker may still be about to return. */
void hpmmap_hook_exit(void)
{
	flush_work(&put_work);
}
