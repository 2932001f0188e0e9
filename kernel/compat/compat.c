// SPDX-License-Identifier: GPL-2.0
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/kprobes.h>
#include <linux/mman.h>
#include <linux/swap.h>
#include <linux/percpu_counter.h>
#include <asm/tlbflush.h>

#include "hpmmap.h"

void (*compat_prep_compound_page)(struct page *page, unsigned int order);
void (*compat_get_online_mems)(void);
void (*compat_put_online_mems)(void);

/* What a file mapping of @mm maps; add_mm_counter() needs what is not exported. */
static void add_file_rss(struct mm_struct *mm, struct folio *folio, long nr)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 8, 0)
	percpu_counter_add(&mm->rss_stat[mm_counter_file(folio)], nr);
#elif LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0)
	percpu_counter_add(&mm->rss_stat[mm_counter_file(&folio->page)], nr);
#else
	atomic_long_add(nr, &mm->rss_stat.count[mm_counter_file(&folio->page)]);
#endif
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 6, 0)
#define SET_PTE_NAME "set_pte_range"
static void (*core_set_pte)(struct vm_fault *vmf, struct folio *folio,
		       struct page *page, unsigned int nr, unsigned long addr);

void compat_set_ptes(struct vm_fault *vmf, struct folio *folio,
		     struct page *page, unsigned int nr, unsigned long addr)
{
	folio_ref_add(folio, nr);
	core_set_pte(vmf, folio, page, nr, addr);
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 11, 0)
	add_file_rss(vmf->vma->vm_mm, folio, nr);
#endif
}
#else
#define SET_PTE_NAME "do_set_pte"
static void (*core_set_pte)(struct vm_fault *vmf, struct page *page,
		       unsigned long addr);

void compat_set_ptes(struct vm_fault *vmf, struct folio *folio,
		     struct page *page, unsigned int nr, unsigned long addr)
{
	folio_ref_add(folio, nr);
	for (; nr; nr--, page++, addr += PAGE_SIZE, vmf->pte++)
		core_set_pte(vmf, page, addr);
}
#endif

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 8, 0)
#define RMAP_2M_NAME "folio_add_file_rmap_pmd"
static void (*core_add_rmap_2m)(struct folio *folio, struct page *page,
				struct vm_area_struct *vma);
#else
#define RMAP_2M_NAME "page_add_file_rmap"
static void (*core_add_rmap_2m)(struct page *page, struct vm_area_struct *vma,
				bool compound);
#endif

void compat_add_rmap_2m(struct folio *folio, struct vm_area_struct *vma)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 8, 0)
	core_add_rmap_2m(folio, folio_page(folio, 0), vma);
#else
	core_add_rmap_2m(folio_page(folio, 0), vma, true);
#endif
	add_file_rss(vma->vm_mm, folio, HPAGE_PMD_NR);
}

static void (*core_flush_tlb)(struct mm_struct *mm, unsigned long start,
			      unsigned long end, unsigned int stride_shift,
			      bool freed_tables);

void compat_flush_tlb_mm(struct mm_struct *mm)
{
	core_flush_tlb(mm, 0, TLB_FLUSH_ALL, 0, true);
}

static void (*core_tree_insert)(struct vm_area_struct *vma,
				struct rb_root_cached *root);
static void (*core_tree_remove)(struct vm_area_struct *vma,
				struct rb_root_cached *root);

void compat_vma_set_file(struct vm_area_struct *vma, struct file *file)
{
	struct file *old = vma->vm_file;
	struct address_space *mapping = old->f_mapping;

	mmap_assert_write_locked(vma->vm_mm);
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 4, 0)
	vma_start_write(vma);
#endif
	i_mmap_lock_write(mapping);
	core_tree_remove(vma, &mapping->i_mmap);
	mapping_unmap_writable(mapping);
	i_mmap_unlock_write(mapping);

	vma->vm_file = get_file(file);
	mapping = file->f_mapping;
	i_mmap_lock_write(mapping);
	mapping_allow_writable(mapping);
	core_tree_insert(vma, &mapping->i_mmap);
	i_mmap_unlock_write(mapping);
	fput(old);
}

static int *core_overcommit;
static unsigned long (*core_commit_limit)(void);
static long *core_total_swap;

bool compat_enough_memory(unsigned long pages)
{
	switch (READ_ONCE(*core_overcommit)) {
	case OVERCOMMIT_ALWAYS:
		return true;
	case OVERCOMMIT_GUESS:
		return pages <= totalram_pages() + READ_ONCE(*core_total_swap);
	default:
		return vm_memory_committed() + pages < core_commit_limit();
	}
}

static unsigned long (*lookup_name)(const char *name);

/*
 * A kprobe tells the address of a function that is not exported. On kernels
 * with IBT it steps over the ENDBR at the start; an indirect call needs it.
 */
static unsigned long function_start(unsigned long addr)
{
#ifdef CONFIG_X86_KERNEL_IBT
	const u32 endbr64 = 0xfa1e0ff3;

	if (*(u32 *)(addr - sizeof(endbr64)) == endbr64)
		return addr - sizeof(endbr64);
#endif
	return addr;
}

unsigned long compat_symbol(const char *name)
{
	return lookup_name(name);
}

static const struct {
	const char *name;
	void **address;
} symbols[] = {
	{ "prep_compound_page", (void **)&compat_prep_compound_page },
	{ "get_online_mems", (void **)&compat_get_online_mems },
	{ "put_online_mems", (void **)&compat_put_online_mems },
	{ SET_PTE_NAME, (void **)&core_set_pte },
	{ RMAP_2M_NAME, (void **)&core_add_rmap_2m },
	{ "flush_tlb_mm_range", (void **)&core_flush_tlb },
	{ "vma_interval_tree_insert", (void **)&core_tree_insert },
	{ "vma_interval_tree_remove", (void **)&core_tree_remove },
	{ "sysctl_overcommit_memory", (void **)&core_overcommit },
	{ "total_swap_pages", (void **)&core_total_swap },
	{ "vm_commit_limit", (void **)&core_commit_limit },
};

int compat_init(void)
{
	struct kprobe kp = { .symbol_name = "kallsyms_lookup_name" };
	int ret, i;

	ret = register_kprobe(&kp);
	if (ret) {
		pr_err("no kprobe on %s: %d\n", kp.symbol_name, ret);
		return ret;
	}
	lookup_name = (void *)function_start((unsigned long)kp.addr);
	unregister_kprobe(&kp);

	for (i = 0; i < ARRAY_SIZE(symbols); i++) {
		*symbols[i].address = (void *)compat_symbol(symbols[i].name);
		if (!*symbols[i].address) {
			pr_err("this kernel has no %s\n", symbols[i].name);
			return -ENOENT;
		}
	}
	return 0;
}
