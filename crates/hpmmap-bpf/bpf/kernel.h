/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The parts of the kernel's types that the programs read. libbpf finds their offsets in the running
 * kernel (CO-RE), so only the names must be right.
 */
#ifndef HPMMAP_BPF_KERNEL_H
#define HPMMAP_BPF_KERNEL_H

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct super_block {
	unsigned int s_dev;
};

struct inode {
	unsigned long i_ino;
	struct super_block *i_sb;
};

struct qstr {
	const unsigned char *name;
};

struct dentry {
	struct qstr d_name;
};

struct path {
	struct dentry *dentry;
};

struct file {
	struct inode *f_inode;
	struct path f_path;
};

struct task_struct;

struct mm_struct {
	unsigned long *pgd;
	unsigned long start_brk;
	unsigned long brk;
	unsigned long start_stack;
	struct task_struct *owner;
};

struct vm_area_struct {
	unsigned long vm_start;
	unsigned long vm_end;
	unsigned long vm_flags;
	struct mm_struct *vm_mm;
	const void *vm_ops;
	struct file *vm_file;
};

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	atomic_t live;
};

struct task_struct {
	int pid;
	int tgid;
	unsigned long min_flt;
	unsigned long maj_flt;
	struct signal_struct *signal;
	char comm[16];
};

#pragma clang attribute pop

/* The values are taken from the running kernel, too. */
enum vm_fault_reason {
	VM_FAULT_OOM = 0x1,
	VM_FAULT_SIGBUS = 0x2,
	VM_FAULT_MAJOR = 0x4,
	VM_FAULT_HWPOISON = 0x10,
	VM_FAULT_HWPOISON_LARGE = 0x20,
	VM_FAULT_SIGSEGV = 0x40,
	VM_FAULT_RETRY = 0x400,
	VM_FAULT_FALLBACK = 0x800,
};

enum fault_flag {
	FAULT_FLAG_WRITE = 1 << 0,
	FAULT_FLAG_TRIED = 1 << 5,
	FAULT_FLAG_USER = 1 << 6,
	FAULT_FLAG_INSTRUCTION = 1 << 8,
};

/* Macros of the kernel that are also visible to user space (/proc/PID/smaps). */
#define VM_SHARED	0x00000008UL
#define VM_HUGETLB	0x00400000UL

/* Entries of x86-64 page tables. */
#define ENTRY_PRESENT	(1ULL << 0)
#define ENTRY_WRITABLE	(1ULL << 1)
#define ENTRY_LEAF	(1ULL << 7)
/* Of an entry that is not present: protected by NUMA balancing. */
#define ENTRY_PROTNONE	(1ULL << 8)
#define ENTRY_ADDRESS	0x000ffffffffff000ULL
/* The type of swap of an entry that is not present. */
#define ENTRY_SWAP_TYPE(entry)	((entry) >> 59)
/* Types from here on do not stand for swap, in any configuration of the kernel. */
#define SWAP_TYPES_MIN	22

#endif
