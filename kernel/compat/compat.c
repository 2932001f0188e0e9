// SPDX-License-Identifier: GPL-2.0
#include <linux/kprobes.h>

#include "hpmmap.h"

void (*compat_prep_compound_page)(struct page *page, unsigned int order);

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

int compat_init(void)
{
	struct kprobe kp = { .symbol_name = "kallsyms_lookup_name" };
	int ret;

	ret = register_kprobe(&kp);
	if (ret) {
		pr_err("no kprobe on %s: %d\n", kp.symbol_name, ret);
		return ret;
	}
	lookup_name = (void *)function_start((unsigned long)kp.addr);
	unregister_kprobe(&kp);

	compat_prep_compound_page = (void *)compat_symbol("prep_compound_page");
	if (!compat_prep_compound_page) {
		pr_err("this kernel has no prep_compound_page()\n");
		return -ENOENT;
	}
	return 0;
}
