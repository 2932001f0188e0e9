// SPDX-License-Identifier: GPL-2.0
#include <linux/kallsyms.h>
#include <linux/kprobes.h>
#include <linux/static_call.h>

#include "hpmmap.h"

/*
 * Functions of the kernel that are not exported. An indirect call would be
 * fatal on a processor with IBT, where only functions whose address the kernel
 * itself takes may be called so; static calls are direct ones.
 */
typedef unsigned long lookup_name_t(const char *name);
typedef void prep_compound_page_t(struct page *page, unsigned int order);
typedef void online_mems_t(void);

DEFINE_STATIC_CALL_RET0(hpmmap_lookup_name, lookup_name_t);
DEFINE_STATIC_CALL_NULL(hpmmap_prep_compound_page, prep_compound_page_t);
DEFINE_STATIC_CALL_NULL(hpmmap_get_online_mems, online_mems_t);
DEFINE_STATIC_CALL_NULL(hpmmap_put_online_mems, online_mems_t);

void compat_prep_compound_page(struct page *page, unsigned int order)
{
	static_call(hpmmap_prep_compound_page)(page, order);
}

void compat_get_online_mems(void)
{
	static_call(hpmmap_get_online_mems)();
}

void compat_put_online_mems(void)
{
	static_call(hpmmap_put_online_mems)();
}

#ifdef CONFIG_CMA
#ifdef HAVE_INIT_PAGEBLOCK_MIGRATETYPE
#define SET_PAGEBLOCK_NAME "init_pageblock_migratetype"
typedef void set_pageblock_t(struct page *page, enum migratetype migratetype,
			     bool isolate);
#else
#define SET_PAGEBLOCK_NAME "set_pageblock_migratetype"
typedef void set_pageblock_t(struct page *page, int migratetype);
#endif
DEFINE_STATIC_CALL_NULL(hpmmap_set_pageblock, set_pageblock_t);
#endif

void compat_pageblock_init(struct page *page)
{
#if defined(CONFIG_CMA) && defined(HAVE_INIT_PAGEBLOCK_MIGRATETYPE)
	static_call(hpmmap_set_pageblock)(page, MIGRATE_UNMOVABLE, false);
#elif defined(CONFIG_CMA)
	static_call(hpmmap_set_pageblock)(page, MIGRATE_UNMOVABLE);
#endif
}

unsigned long compat_symbol(const char *name)
{
	return static_call(hpmmap_lookup_name)(name);
}

#ifdef HAVE_SET_PTE_RANGE
#define SET_PTE_NAME "set_pte_range"
typedef void set_pte_t(struct vm_fault *vmf, struct folio *folio,
		       struct page *page, unsigned int nr, unsigned long addr);
DEFINE_STATIC_CALL_NULL(hpmmap_set_pte, set_pte_t);

void compat_set_ptes(struct vm_fault *vmf, struct folio *folio,
		     struct page *page, unsigned int nr, unsigned long addr)
{
	folio_ref_add(folio, nr);
	static_call(hpmmap_set_pte)(vmf, folio, page, nr, addr);
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 11, 0)
	percpu_counter_add(&vmf->vma->vm_mm->rss_stat[mm_counter_file(folio)],
			   nr);
#endif
}
#else
#define SET_PTE_NAME "do_set_pte"
typedef void set_pte_t(struct vm_fault *vmf, struct page *page,
		       unsigned long addr);
DEFINE_STATIC_CALL_NULL(hpmmap_set_pte, set_pte_t);

void compat_set_ptes(struct vm_fault *vmf, struct folio *folio,
		     struct page *page, unsigned int nr, unsigned long addr)
{
	folio_ref_add(folio, nr);
	for (; nr; nr--, page++, addr += PAGE_SIZE, vmf->pte++)
		static_call(hpmmap_set_pte)(vmf, page, addr);
}
#endif

#define FUNCTION(_name, _call) \
	{ _name, &STATIC_CALL_KEY(_call), STATIC_CALL_TRAMP_ADDR(_call) }

static const struct {
	const char *name;
	struct static_call_key *key;
	void *trampoline;
} functions[] = {
	FUNCTION("prep_compound_page", hpmmap_prep_compound_page),
	FUNCTION("get_online_mems", hpmmap_get_online_mems),
	FUNCTION("put_online_mems", hpmmap_put_online_mems),
	FUNCTION(SET_PTE_NAME, hpmmap_set_pte),
#ifdef CONFIG_CMA
	FUNCTION(SET_PAGEBLOCK_NAME, hpmmap_set_pageblock),
#endif
};

/* The first instruction of the function that contains @addr. */
static void *function_start(void *addr)
{
	char symbol[KSYM_SYMBOL_LEN];
	unsigned long offset = 0;
	const char *plus;

	sprint_symbol(symbol, (unsigned long)addr);
	plus = strchr(symbol, '+');
	if (plus)
		sscanf(plus, "+%lx", &offset);
	return addr - offset;
}

int compat_init(void)
{
	struct kprobe kp = { .symbol_name = "kallsyms_lookup_name" };
	int ret, i;

	/* A kprobe tells an address, behind the ENDBR that IBT wants. */
	ret = register_kprobe(&kp);
	if (ret) {
		pr_err("no kprobe on %s: %d\n", kp.symbol_name, ret);
		return ret;
	}
	static_call_update(hpmmap_lookup_name,
			   (lookup_name_t *)function_start(kp.addr));
	unregister_kprobe(&kp);

	for (i = 0; i < ARRAY_SIZE(functions); i++) {
		void *func = (void *)compat_symbol(functions[i].name);

		if (!func) {
			pr_err("this kernel has no %s()\n", functions[i].name);
			return -ENOENT;
		}
		__static_call_update(functions[i].key, functions[i].trampoline,
				     func);
	}
	return 0;
}
