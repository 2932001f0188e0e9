/* SPDX-License-Identifier: GPL-2.0 */
/* Hooks: functions of the kernel that the module stands in for. */
#ifndef _HPMMAP_HOOK_H
#define _HPMMAP_HOOK_H

#include <linux/types.h>

struct file;
struct ftrace_ops;
struct mm_struct;
struct pt_regs;

/* A function of the kernel that is hooked. */
struct hpmmap_hook {
	const char *symbol;	/* its name */
	void *handler;		/* what stands in for it */
	unsigned long orig;	/* its address, 0 where the kernel lacks it */
	bool optional;		/* the kernel may lack it */
};
enum hpmmap_call {
	HPMMAP_CALL_MMAP,
	HPMMAP_CALL_MUNMAP,
	HPMMAP_CALL_MPROTECT,
	HPMMAP_CALL_PKEY_MPROTECT,
	HPMMAP_CALL_MREMAP,
	HPMMAP_CALL_MADVISE,
	HPMMAP_CALL_BRK,
	HPMMAP_CALL_MLOCK,
	HPMMAP_CALL_MLOCK2,
	HPMMAP_CALL_MUNLOCK,
	HPMMAP_CALL_MUNLOCKALL,
	HPMMAP_CALL_MBIND,
	HPMMAP_CALL_REMAP_FILE_PAGES,
	HPMMAP_CALL_CLONE,
	HPMMAP_CALL_FORK_COPIED,
	HPMMAP_CALL_USERFAULTFD,
	HPMMAP_CALL_MEMFD_CREATE,
	HPMMAP_CALL_MEMFD_FCNTL,
	HPMMAP_CALL_FTRUNCATE,
	HPMMAP_CALL_FALLOCATE,
	HPMMAP_CALL_SHMGET,
	HPMMAP_CALL_SHM_FILE,
	HPMMAP_NR_CALLS,
	/* And 32-bit entries, which are not called by their number here. */
	HPMMAP_NR_HOOKS = HPMMAP_NR_CALLS + 13
};

/* Whose calls are hooked. */
struct hpmmap_hooked {
	/* Is a call of this address space? Called by ftrace: notrace, any context. */
	bool (*is_meant)(struct mm_struct *mm);
	/* The same of a fork of the caller, whose address space is not meant. */
	bool (*forks)(void);
	/* The hooks are about to be installed; 0 or an errno. */
	int (*start)(void);
	void (*stop)(void);	/* they are removed */
};

int hpmmap_hook_init(struct hpmmap_hook *table,
		     const struct hpmmap_hooked *whose);
void hpmmap_hook_exit(void);
int hpmmap_hook_get(void);
bool hpmmap_hook_get_another(void);
void hpmmap_hook_put(void);
bool hpmmap_hook_active(void);

/* For functions that the module stands in for from its beginning to its end, of all processes. */
#define HPMMAP_GUARD_FLAGS \
	(FTRACE_OPS_FL_IPMODIFY | FTRACE_OPS_FL_PERMANENT | FTRACE_OPS_FL_DYNAMIC)
/* How far behind the start of a function its tracer is called: behind the ENDBR of IBT. */
#define HPMMAP_ENTRY_OFFSET 8
int hpmmap_guard_install(struct ftrace_ops *ops, const char *function);
int hpmmap_guard_install_all(struct ftrace_ops *ops, unsigned long *ips, unsigned int nr);
void hpmmap_guard_remove(struct ftrace_ops *ops);

long hpmmap_call_orig(enum hpmmap_call call, const struct pt_regs *regs);
long hpmmap_madvise(unsigned long start, unsigned long len, int advice);
long hpmmap_call_userfaultfd(struct file *file, unsigned int cmd, unsigned long arg);

#endif /* _HPMMAP_HOOK_H */
