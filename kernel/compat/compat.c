// SPDX-License-Identifier: GPL-2.0
#include <linux/kprobes.h>

#include "hpmmap.h"

void (*compat_prep_compound_page)(struct page *page, unsigned int order);
void (*compat_get_online_mems)(void);
void (*compat_put_online_mems)(void);

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
	percpu_counter_add(&vmf->vma->vm_mm->rss_stat[mm_counter_file(folio)],
			   nr);
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

static unsigned long (*lookup_name)(const char *name);

/* A table of weights by node, under RCU, from 6.9 on; behind a bool from 6.16. */
static u8 __rcu **weights;
static unsigned int weights_offset;

static void weights_find(void)
{
	weights = (void *)lookup_name("iw_table");
	if (weights)
		return;
	weights = (void *)lookup_name("wi_state");
	weights_offset = sizeof(bool);
}

unsigned int compat_interleave_weight(int nid)
{
	u8 *table, weight = 0;

	rcu_read_lock();
	table = weights ? rcu_dereference(*weights) : NULL;
	if (table)
		weight = table[weights_offset + nid];
	rcu_read_unlock();
	return weight ? weight : 1;
}

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
} functions[] = {
	{ "prep_compound_page", (void **)&compat_prep_compound_page },
	{ "get_online_mems", (void **)&compat_get_online_mems },
	{ "put_online_mems", (void **)&compat_put_online_mems },
	{ SET_PTE_NAME, (void **)&core_set_pte },
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

	weights_find();
	for (i = 0; i < ARRAY_SIZE(functions); i++) {
		*functions[i].address = (void *)compat_symbol(functions[i].name);
		if (!*functions[i].address) {
			pr_err("this kernel has no %s()\n", functions[i].name);
			return -ENOENT;
		}
	}
	return 0;
}
