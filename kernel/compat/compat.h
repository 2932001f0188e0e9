/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Every difference between the supported kernels. Features are probed by what
 * the headers define; versions are compared only where they define nothing.
 */
#ifndef _HPMMAP_COMPAT_H
#define _HPMMAP_COMPAT_H

#include <linux/ftrace.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/version.h>

#ifdef CONFIG_PREEMPT_RT
#error "the tracepoint probes take sleeping locks: PREEMPT_RT is not supported"
#endif

/* Where the traced function continues. */
static __always_inline void compat_ftrace_set_ip(struct ftrace_regs *fregs,
						 unsigned long ip)
{
#ifdef ftrace_regs_set_instruction_pointer
	ftrace_regs_set_instruction_pointer(fregs, ip);
#else
	ftrace_instruction_pointer_set(fregs, ip);
#endif
}

/* The traced function's argument @n, the first being 0; at most 1. */
static __always_inline unsigned long compat_ftrace_arg(struct ftrace_regs *fregs,
						       unsigned int n)
{
#ifdef ftrace_regs_get_argument
	return ftrace_regs_get_argument(fregs, n);
#else
	return n ? fregs->regs.si : fregs->regs.di;
#endif
}

/* Called with mmap_lock held. */
static inline unsigned long compat_get_unmapped_area(unsigned long addr,
						     unsigned long len,
						     unsigned long flags)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
	return mm_get_unmapped_area(current->mm, NULL, addr, len, 0, flags);
#else
	return current->mm->get_unmapped_area(NULL, addr, len, 0, flags);
#endif
}

/* Takes a range of one mapping out of the page tables; mmap_lock held. */
static inline void compat_zap(struct vm_area_struct *vma, unsigned long start,
			      unsigned long len)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	zap_page_range_single(vma, start, len, NULL);
#else
	zap_page_range(vma, start, len);
#endif
}

/* MPOL_WEIGHTED_INTERLEAVE; kernels before 6.9 never have it. */
#define COMPAT_MPOL_WEIGHTED_INTERLEAVE 6

/* Blocks of a node in its turn. */
unsigned int compat_interleave_weight(int nid);

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 7, 0)
#define COMPAT_GET_POLICY_ARGS \
	struct vm_area_struct *vma, unsigned long addr, pgoff_t *ilx
#else
#define COMPAT_GET_POLICY_ARGS \
	struct vm_area_struct *vma, unsigned long addr
#endif

/* Page-table levels; leaf tests were renamed once. */
#ifndef pmd_leaf
#define pmd_leaf pmd_large
#endif

/*
 * Entries of all page tables that refer to a folio of a file. Before 6.7 the
 * function is not exported, and an entry of 2 MB counts at each page, too.
 */
static inline int compat_folio_mapcount(struct folio *folio)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 7, 0)
	return folio_mapcount(folio);
#else
	long i, nr = folio_nr_pages(folio), ret = 0;
	int entire = 0;

	if (folio_test_large(folio))
		entire = folio_entire_mapcount(folio);
	for (i = 0; i < nr; i++)
		ret += atomic_read(&folio_page(folio, i)->_mapcount) + 1;
	return ret - entire * nr + entire;
#endif
}

/*
 * Functions of the kernel that are not exported. Resolved once by
 * compat_init(); never NULL afterwards.
 */
extern void (*compat_prep_compound_page)(struct page *page, unsigned int order);
extern void (*compat_get_online_mems)(void);
extern void (*compat_put_online_mems)(void);

/*
 * Install entries for @nr none entries from vmf->pte on, with vmf->ptl held;
 * @folio is locked. References and counters are taken care of.
 */
void compat_set_ptes(struct vm_fault *vmf, struct folio *folio,
		     struct page *page, unsigned int nr, unsigned long addr);

int compat_init(void);

/* Address of a kernel symbol's first instruction, or 0. After compat_init(). */
unsigned long compat_symbol(const char *name);

#endif /* _HPMMAP_COMPAT_H */
