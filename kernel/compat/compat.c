// SPDX-License-Identifier: GPL-2.0
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/kallsyms.h>
#include <linux/kprobes.h>
#include <linux/memory.h>
#include <linux/mman.h>
#include <linux/percpu_counter.h>
#include <linux/static_call.h>
#include <linux/swap.h>
#include <linux/userfaultfd_k.h>
#include <asm/tlbflush.h>

#include "hpmmap.h"

/*
 * Functions of the kernel that are not exported. An indirect call would be
 * fatal on a processor with IBT, where only functions whose address the kernel
 * itself takes may be called so; static calls are direct ones.
 */
typedef unsigned long lookup_name_t(const char *name);
typedef void prep_compound_page_t(struct page *page, unsigned int order);
typedef void hotplug_lock_t(void);

DEFINE_STATIC_CALL_RET0(hpmmap_lookup_name, lookup_name_t);
DEFINE_STATIC_CALL_NULL(hpmmap_prep_compound_page, prep_compound_page_t);
DEFINE_STATIC_CALL_NULL(hpmmap_lock_device_hotplug, hotplug_lock_t);
DEFINE_STATIC_CALL_NULL(hpmmap_unlock_device_hotplug, hotplug_lock_t);
DEFINE_STATIC_CALL_NULL(hpmmap_get_online_mems, hotplug_lock_t);
DEFINE_STATIC_CALL_NULL(hpmmap_put_online_mems, hotplug_lock_t);

void compat_prep_compound_page(struct page *page, unsigned int order)
{
	static_call(hpmmap_prep_compound_page)(page, order);
}

void compat_hotplug_lock(void)
{
	/* Before 6.7 online_pages() takes the second only when it has begun. */
	static_call(hpmmap_lock_device_hotplug)();
	static_call(hpmmap_get_online_mems)();
}

void compat_hotplug_unlock(void)
{
	static_call(hpmmap_put_online_mems)();
	static_call(hpmmap_unlock_device_hotplug)();
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

#ifdef CONFIG_KASAN_GENERIC
typedef void unpoison_t(const void *address, size_t size);
DEFINE_STATIC_CALL_NULL(hpmmap_unpoison, unpoison_t);

void compat_kasan_unpoison(const void *address, size_t size)
{
	static_call(hpmmap_unpoison)(address, size);
}
#endif

unsigned long compat_symbol(const char *name)
{
	return static_call(hpmmap_lookup_name)(name);
}

/* add_mm_counter() needs what is not exported. */
void compat_add_rss(struct mm_struct *mm, struct folio *folio, long nr)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 8, 0)
	percpu_counter_add(&mm->rss_stat[mm_counter_file(folio)], nr);
#elif LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0)
	percpu_counter_add(&mm->rss_stat[mm_counter_file(&folio->page)], nr);
#else
	atomic_long_add(nr, &mm->rss_stat.count[mm_counter_file(&folio->page)]);
#endif
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
	compat_add_rss(vmf->vma->vm_mm, folio, nr);
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

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 8, 0)
#define RMAP_2M_NAME "folio_add_file_rmap_pmd"
typedef void add_rmap_2m_t(struct folio *folio, struct page *page,
			   struct vm_area_struct *vma);
#else
#define RMAP_2M_NAME "page_add_file_rmap"
typedef void add_rmap_2m_t(struct page *page, struct vm_area_struct *vma,
			   bool compound);
#endif
DEFINE_STATIC_CALL_NULL(hpmmap_add_rmap_2m, add_rmap_2m_t);

void compat_add_rmap_2m(struct folio *folio, struct vm_area_struct *vma)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 8, 0)
	static_call(hpmmap_add_rmap_2m)(folio, folio_page(folio, 0), vma);
#else
	static_call(hpmmap_add_rmap_2m)(folio_page(folio, 0), vma, true);
#endif
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 8, 0)
typedef void add_rmap_4k_t(struct folio *folio, struct page *page, int nr_pages,
			   struct vm_area_struct *vma);
DEFINE_STATIC_CALL_NULL(hpmmap_add_rmap_4k, add_rmap_4k_t);
#endif

void compat_add_rmap_4k(struct folio *folio, struct page *page,
			struct vm_area_struct *vma)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 8, 0)
	static_call(hpmmap_add_rmap_4k)(folio, page, 1, vma);
#else
	static_call(hpmmap_add_rmap_2m)(page, vma, false);
#endif
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
typedef bool isolate_t(struct folio *folio);
#define ISOLATED true
#else
typedef int isolate_t(struct folio *folio);
#define ISOLATED 0
#endif
typedef void lru_drain_t(void);
DEFINE_STATIC_CALL_RET0(hpmmap_isolate, isolate_t);
DEFINE_STATIC_CALL_NULL(hpmmap_lru_drain, lru_drain_t);

void compat_pages_isolate(struct page **pages, long nr)
{
	/* A new page waits in a batch of its CPU for being put on a list. */
	static_call(hpmmap_lru_drain)();
	for (; nr; nr--, pages++) {
		struct folio *folio = page_folio(*pages);

		/* The core may split a large one at any time, which needs its place in a list. */
		if (folio_test_large(folio) || static_call(hpmmap_isolate)(folio) != ISOLATED)
			continue;
		/* Of the list it was on; nobody frees a page with one of them. */
		folio_clear_active(folio);
		folio_clear_unevictable(folio);
		folio_put(folio);
	}
}

typedef vm_fault_t finish_fault_t(struct vm_fault *vmf);
DEFINE_STATIC_CALL_RET0(hpmmap_finish_fault, finish_fault_t);

vm_fault_t compat_finish_fault(struct vm_fault *vmf)
{
	return static_call(hpmmap_finish_fault)(vmf);
}

typedef void flush_tlb_t(struct mm_struct *mm, unsigned long start,
			 unsigned long end, unsigned int stride_shift,
			 bool freed_tables);
DEFINE_STATIC_CALL_NULL(hpmmap_flush_tlb, flush_tlb_t);

void compat_flush_tlb_mm(struct mm_struct *mm)
{
	static_call(hpmmap_flush_tlb)(mm, 0, TLB_FLUSH_ALL, 0, true);
}

#ifdef COMPAT_GIGABYTES
typedef int p4d_alloc_t(struct mm_struct *mm, pgd_t *pgd, unsigned long addr);
typedef int pud_alloc_t(struct mm_struct *mm, p4d_t *p4d, unsigned long addr);
typedef int pmd_alloc_t(struct mm_struct *mm, pud_t *pud, unsigned long addr);
typedef void vma_adjust_t(struct vm_area_struct *vma, unsigned long start, unsigned long end,
			  unsigned long next);
typedef long gup_t(struct mm_struct *mm, unsigned long start, unsigned long nr,
		   unsigned int flags, struct page **pages, int *locked);
DEFINE_STATIC_CALL_RET0(hpmmap_p4d_alloc, p4d_alloc_t);
DEFINE_STATIC_CALL_RET0(hpmmap_pud_alloc, pud_alloc_t);
DEFINE_STATIC_CALL_RET0(hpmmap_pmd_alloc, pmd_alloc_t);
DEFINE_STATIC_CALL_NULL(hpmmap_vma_adjust, vma_adjust_t);
DEFINE_STATIC_CALL_RET0(hpmmap_gup, gup_t);

static bool lacks_gigabytes;

bool compat_has_gigabytes(void)
{
	return !lacks_gigabytes;
}

pud_t *compat_pud_alloc(struct mm_struct *mm, unsigned long addr)
{
	pgd_t *pgd = pgd_offset(mm, addr);
	p4d_t *p4d;

	if (pgd_none(*pgd) && static_call(hpmmap_p4d_alloc)(mm, pgd, addr))
		return NULL;
	p4d = p4d_offset(pgd, addr);
	if (p4d_none(*p4d) && static_call(hpmmap_pud_alloc)(mm, p4d, addr))
		return NULL;
	return pud_offset(p4d, addr);
}

void compat_pmd_alloc(struct mm_struct *mm, pud_t *pudp, unsigned long addr)
{
	static_call(hpmmap_pmd_alloc)(mm, pudp, addr);
}

void compat_flush_tlb_gigabyte(struct mm_struct *mm, unsigned long addr, bool table)
{
	static_call(hpmmap_flush_tlb)(mm, addr, addr + PUD_SIZE, table ? PMD_SHIFT : PUD_SHIFT,
				      table);
}

noinline void compat_vma_adjust(struct vm_area_struct *vma, unsigned long start,
				unsigned long end, unsigned long next)
{
	static_call(hpmmap_vma_adjust)(vma, start, end, next);
	barrier();
}

noinline long compat_get_user_pages(struct mm_struct *mm, unsigned long start,
				    unsigned long nr, unsigned int flags,
				    struct page **pages, int *locked)
{
	long ret = static_call(hpmmap_gup)(mm, start, nr, flags, pages, locked);

	barrier();
	return ret;
}
#endif

/* Which mappings there are of a file. */
#ifdef HAVE_MAPPING_RMAP_TREE
#define TREE_INSERT_NAME "mapping_rmap_tree_insert"
#define TREE_REMOVE_NAME "mapping_rmap_tree_remove"
#define TREE_OF(_mapping) (_mapping)
typedef void vma_tree_t(struct vm_area_struct *vma,
			struct address_space *mapping);
#else
#define TREE_INSERT_NAME "vma_interval_tree_insert"
#define TREE_REMOVE_NAME "vma_interval_tree_remove"
#define TREE_OF(_mapping) (&(_mapping)->i_mmap)
typedef void vma_tree_t(struct vm_area_struct *vma, struct rb_root_cached *root);
#endif
DEFINE_STATIC_CALL_NULL(hpmmap_tree_insert, vma_tree_t);
DEFINE_STATIC_CALL_NULL(hpmmap_tree_remove, vma_tree_t);

void compat_vma_set_file(struct vm_area_struct *vma, struct file *file)
{
	struct file *old = vma->vm_file;
	struct address_space *mapping = old->f_mapping;

	mmap_assert_write_locked(vma->vm_mm);
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 4, 0)
	vma_start_write(vma);
#endif
	i_mmap_lock_write(mapping);
	static_call(hpmmap_tree_remove)(vma, TREE_OF(mapping));
	if (vma->vm_flags & VM_SHARED)
		mapping_unmap_writable(mapping);
	i_mmap_unlock_write(mapping);

	vma->vm_file = get_file(file);
	mapping = file->f_mapping;
	i_mmap_lock_write(mapping);
	if (vma->vm_flags & VM_SHARED)
		mapping_allow_writable(mapping);
	static_call(hpmmap_tree_insert)(vma, TREE_OF(mapping));
	i_mmap_unlock_write(mapping);
	fput(old);
}

typedef bool may_access_t(struct task_struct *task, unsigned int mode);
DEFINE_STATIC_CALL_RET0(hpmmap_may_access, may_access_t);

bool compat_ptrace_may_access(struct task_struct *task, unsigned int mode)
{
	return static_call(hpmmap_may_access)(task, mode);
}

/* By the number of the memory block, or of a section of it. */
#ifdef HAVE_MEMORY_BLOCK_GET
#define FIND_BLOCK_NAME "memory_block_get"
#else
#define FIND_BLOCK_NAME "find_memory_block"
#endif
typedef struct memory_block *find_block_t(unsigned long nr);
DEFINE_STATIC_CALL_RET0(hpmmap_find_block, find_block_t);

struct memory_block *compat_find_memory_block(unsigned long section_nr)
{
	unsigned long per_block = memory_block_size_bytes() >> SECTION_SIZE_BITS;

	return static_call(hpmmap_find_block)(IS_ENABLED(HAVE_MEMORY_BLOCK_GET) ?
					      section_nr / per_block : section_nr);
}

typedef long oom_badness_t(struct task_struct *task, unsigned long total);
DEFINE_STATIC_CALL_RET0(hpmmap_oom_badness, oom_badness_t);

/*
 * Who hooks these knows the caller by the return address: no jump in place of a
 * call.
 */
typedef pid_t kernel_clone_t(struct kernel_clone_args *args);
DEFINE_STATIC_CALL_RET0(hpmmap_kernel_clone_fn, kernel_clone_t);

noinline pid_t compat_kernel_clone(struct kernel_clone_args *args)
{
	pid_t ret = static_call(hpmmap_kernel_clone_fn)(args);

	barrier();
	return ret;
}

typedef void fork_copied_t(struct list_head *events);
DEFINE_STATIC_CALL_NULL(hpmmap_fork_copied_fn, fork_copied_t);

noinline void compat_fork_copied(struct list_head *events)
{
	static_call_cond(hpmmap_fork_copied_fn)(events);
	barrier();
}

typedef struct file *shm_file_t(const char *name, loff_t size, unsigned long flags);
DEFINE_STATIC_CALL_RET0(hpmmap_shm_file_fn, shm_file_t);

noinline struct file *compat_shm_file(const char *name, loff_t size, unsigned long flags)
{
	struct file *file = static_call(hpmmap_shm_file_fn)(name, size, flags);

	barrier();
	return file;
}

noinline long compat_oom_badness(struct task_struct *task, unsigned long total)
{
	long ret = static_call(hpmmap_oom_badness)(task, total);

	barrier();
	return ret;
}

#if defined(CONFIG_USERFAULTFD) && !defined(HAVE_UFFD_CTX)
/* Private to fs/userfaultfd.c before 6.9. */
struct userfaultfd_ctx {
	wait_queue_head_t fault_pending_wqh;
	wait_queue_head_t fault_wqh;
	wait_queue_head_t fd_wqh;
	wait_queue_head_t event_wqh;
	seqcount_spinlock_t refile_seq;
	refcount_t refcount;
	unsigned int flags;
	unsigned int features;
	bool released;
	atomic_t mmap_changing;
	struct mm_struct *mm;
};
#endif

struct mm_struct *compat_userfaultfd_mm(struct file *file)
{
#ifdef CONFIG_USERFAULTFD
	struct userfaultfd_ctx *ctx = file->private_data;

	return ctx->mm;
#else
	return NULL;
#endif
}

/* Private to mm/mmu_notifier.c. */
struct mmu_notifier_subscriptions {
	struct hlist_head list;
	bool has_itree;
	spinlock_t lock;
	unsigned long invalidate_seq;
	unsigned long active_invalidate_ranges;
	struct rb_root_cached itree;
	wait_queue_head_t wq;
	struct hlist_head deferred_list;
};

bool compat_interval_try_begin(struct mmu_interval_notifier *notifier,
			       unsigned long *seq)
{
	struct mmu_notifier_subscriptions *all = notifier->mm->notifier_subscriptions;
	bool ret;

	spin_lock(&all->lock);
	*seq = READ_ONCE(notifier->invalidate_seq);
	ret = *seq != all->invalidate_seq;
	spin_unlock(&all->lock);
	return ret;
}

int compat_interval_wait(struct mmu_interval_notifier *notifier)
{
	struct mmu_notifier_subscriptions *all = notifier->mm->notifier_subscriptions;
	unsigned long seq;

	if (compat_interval_try_begin(notifier, &seq))
		return 0;
	return wait_event_killable(all->wq, READ_ONCE(all->invalidate_seq) != seq);
}

bool compat_mm_knows_intervals(struct mm_struct *mm)
{
	struct mmu_notifier_subscriptions *all = smp_load_acquire(&mm->notifier_subscriptions);

	return all && READ_ONCE(all->has_itree);
}

static int *core_overcommit;
static long *core_total_swap;
static struct percpu_counter *core_committed;
static s32 *core_committed_batch;

bool compat_overcommits(void)
{
	return READ_ONCE(*core_overcommit) != OVERCOMMIT_NEVER;
}

bool compat_enough_memory(unsigned long pages)
{
	int mode = READ_ONCE(*core_overcommit);

	return !pages || mode == OVERCOMMIT_ALWAYS ||
	       (mode == OVERCOMMIT_GUESS &&
		pages <= totalram_pages() + READ_ONCE(*core_total_swap));
}

void compat_commit(long pages)
{
	percpu_counter_add_batch(core_committed, pages, READ_ONCE(*core_committed_batch));
}

static unsigned long *core_mmap_min_addr;

unsigned long compat_mmap_min_addr(void)
{
	return core_mmap_min_addr ? READ_ONCE(*core_mmap_min_addr) : CONFIG_DEFAULT_MMAP_MIN_ADDR;
}

/* A table of weights by node, under RCU, from 6.9 on; behind a bool from 6.16. */
static u8 __rcu **weights;
static unsigned int weights_offset;

static void weights_find(void)
{
	weights = (void *)compat_symbol("iw_table");
	if (weights)
		return;
	weights = (void *)compat_symbol("wi_state");
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

static int *core_early_kill, *core_recovery, *core_soft_offline;

bool compat_early_kill(void)
{
	return core_early_kill && READ_ONCE(*core_early_kill);
}

bool compat_recovers_memory(void)
{
	return !core_recovery || READ_ONCE(*core_recovery);
}

bool compat_soft_offlines(void)
{
	return !core_soft_offline || READ_ONCE(*core_soft_offline);
}

#ifdef HAVE_POISON_BY_PFN
typedef void poison_inc_t(unsigned long pfn);
typedef void poison_sub_t(unsigned long pfn, long nr);
DEFINE_STATIC_CALL_NULL(hpmmap_poison_inc, poison_inc_t);
DEFINE_STATIC_CALL_NULL(hpmmap_poison_sub, poison_sub_t);

void compat_count_poison(unsigned long pfn, long nr)
{
	if (nr < 0)
		static_call(hpmmap_poison_sub)(pfn, -nr);
	else
		static_call(hpmmap_poison_inc)(pfn);
}
#else
/* Before 6.2 memory blocks do not know their bad pages. */
static atomic_long_t *core_nr_poisoned;

void compat_count_poison(unsigned long pfn, long nr)
{
	atomic_long_add(nr, core_nr_poisoned);
}
#endif

typedef int memory_error_t(unsigned long pfn, int flags);
DEFINE_STATIC_CALL_RET0(hpmmap_memory_failure_fn, memory_error_t);
DEFINE_STATIC_CALL_RET0(hpmmap_soft_offline_fn, memory_error_t);

/*
 * Our hooks tell by the return address who calls. After a jump that is our caller's, which
 * function_graph may have replaced: it has to be a call.
 */
int compat_memory_failure(unsigned long pfn, int flags)
{
	int ret = static_call(hpmmap_memory_failure_fn)(pfn, flags);

	barrier();
	return ret;
}

int compat_soft_offline(unsigned long pfn, int flags)
{
	int ret = static_call(hpmmap_soft_offline_fn)(pfn, flags);

	barrier();
	return ret;
}

#define FUNCTION(_name, _call, ...) \
	{ _name, &STATIC_CALL_KEY(_call), STATIC_CALL_TRAMP_ADDR(_call), __VA_ARGS__ }

static const struct {
	const char *name;
	struct static_call_key *key;
	void *trampoline;
	bool *lacks;
} functions[] = {
#ifdef COMPAT_GIGABYTES
	FUNCTION("__p4d_alloc", hpmmap_p4d_alloc, &lacks_gigabytes),
	FUNCTION("__pud_alloc", hpmmap_pud_alloc, &lacks_gigabytes),
	FUNCTION("__pmd_alloc", hpmmap_pmd_alloc, &lacks_gigabytes),
	FUNCTION("vma_adjust_trans_huge", hpmmap_vma_adjust, &lacks_gigabytes),
	FUNCTION("__get_user_pages", hpmmap_gup, &lacks_gigabytes),
#endif
	FUNCTION("prep_compound_page", hpmmap_prep_compound_page),
	FUNCTION("lock_device_hotplug", hpmmap_lock_device_hotplug),
	FUNCTION("unlock_device_hotplug", hpmmap_unlock_device_hotplug),
	FUNCTION("get_online_mems", hpmmap_get_online_mems),
	FUNCTION("put_online_mems", hpmmap_put_online_mems),
#ifdef CONFIG_KASAN_GENERIC
	FUNCTION("__kasan_unpoison_range", hpmmap_unpoison),
#endif
	FUNCTION(SET_PTE_NAME, hpmmap_set_pte),
	FUNCTION(RMAP_2M_NAME, hpmmap_add_rmap_2m),
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 8, 0)
	FUNCTION("folio_add_file_rmap_ptes", hpmmap_add_rmap_4k),
#endif
	FUNCTION("folio_isolate_lru", hpmmap_isolate),
	FUNCTION("lru_add_drain", hpmmap_lru_drain),
	FUNCTION("finish_fault", hpmmap_finish_fault),
	FUNCTION("flush_tlb_mm_range", hpmmap_flush_tlb),
	FUNCTION(TREE_INSERT_NAME, hpmmap_tree_insert),
	FUNCTION(TREE_REMOVE_NAME, hpmmap_tree_remove),
	FUNCTION("ptrace_may_access", hpmmap_may_access),
	FUNCTION("oom_badness", hpmmap_oom_badness),
	FUNCTION("shmem_kernel_file_setup", hpmmap_shm_file_fn),
	FUNCTION("kernel_clone", hpmmap_kernel_clone_fn),
	FUNCTION(FIND_BLOCK_NAME, hpmmap_find_block),
#ifdef CONFIG_CMA
	FUNCTION(SET_PAGEBLOCK_NAME, hpmmap_set_pageblock),
#endif
#ifdef CONFIG_MEMORY_FAILURE
	FUNCTION("memory_failure", hpmmap_memory_failure_fn),
	FUNCTION("soft_offline_page", hpmmap_soft_offline_fn),
#ifdef HAVE_POISON_BY_PFN
	FUNCTION("num_poisoned_pages_inc", hpmmap_poison_inc),
	FUNCTION("num_poisoned_pages_sub", hpmmap_poison_sub),
#endif
#endif
};

static const struct {
	const char *name;
	void **address;
} variables[] = {
	{ "sysctl_overcommit_memory", (void **)&core_overcommit },
	{ "total_swap_pages", (void **)&core_total_swap },
	{ "vm_committed_as", (void **)&core_committed },
	{ "vm_committed_as_batch", (void **)&core_committed_batch },
#if defined(CONFIG_MEMORY_FAILURE) && !defined(HAVE_POISON_BY_PFN)
	{ "num_poisoned_pages", (void **)&core_nr_poisoned },
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

	weights_find();
	for (i = 0; i < ARRAY_SIZE(functions); i++) {
		void *func = (void *)compat_symbol(functions[i].name);

		if (!func && functions[i].lacks) {
			*functions[i].lacks = true;
			continue;
		}
		if (!func) {
			pr_err("this kernel has no %s()\n", functions[i].name);
			return -ENOENT;
		}
		__static_call_update(functions[i].key, functions[i].trampoline,
				     func);
	}
	/* Without CONFIG_USERFAULTFD there is none. */
	static_call_update(hpmmap_fork_copied_fn, (fork_copied_t *)
			   compat_symbol("dup_userfaultfd_complete"));
	core_mmap_min_addr = (void *)compat_symbol("mmap_min_addr");
	core_early_kill = (void *)compat_symbol("sysctl_memory_failure_early_kill");
	core_recovery = (void *)compat_symbol("sysctl_memory_failure_recovery");
	core_soft_offline = (void *)compat_symbol("sysctl_enable_soft_offline");
	for (i = 0; i < ARRAY_SIZE(variables); i++) {
		*variables[i].address =
			(void *)compat_symbol(variables[i].name);
		if (!*variables[i].address) {
			pr_err("this kernel has no %s\n", variables[i].name);
			return -ENOENT;
		}
	}
	return 0;
}
