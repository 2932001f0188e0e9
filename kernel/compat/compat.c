// SPDX-License-Identifier: GPL-2.0
#include <linux/kallsyms.h>
#include <linux/kprobes.h>
#include <linux/memfd.h>
#include <linux/memory.h>
#include <linux/memory_hotplug.h>
#include <linux/oom.h>
#include <linux/page-isolation.h>
#include <linux/percpu_counter.h>
#include <linux/ptrace.h>
#include <linux/rmap.h>
#include <linux/static_call.h>
#include <linux/swap.h>
#include <asm/tlbflush.h>

#include "hpmmap.h"

/*
 * Functions of the kernel that are not exported, with the types that its headers declare. An indirect
 * call would be fatal on a processor with IBT, where only functions whose address the kernel
 * itself takes may be called so; static calls are direct ones.
 */
#define CORE_FUNCTION(_name) DEFINE_STATIC_CALL_NULL(hpmmap_##_name, _name)

CORE_FUNCTION(kallsyms_lookup_name);
CORE_FUNCTION(lock_device_hotplug);
CORE_FUNCTION(unlock_device_hotplug);
CORE_FUNCTION(get_online_mems);
CORE_FUNCTION(put_online_mems);
CORE_FUNCTION(finish_fault);
CORE_FUNCTION(ptrace_may_access);
CORE_FUNCTION(oom_badness);
CORE_FUNCTION(kernel_clone);
CORE_FUNCTION(dup_userfaultfd_complete);
CORE_FUNCTION(memfd_fcntl);

/* Some kernels do not declare these, or not to modules. */
typedef void prep_compound_page_t(struct page *page, unsigned int order);
typedef void lru_drain_t(void);
typedef void flush_tlb_t(struct mm_struct *mm, unsigned long start, unsigned long end,
			 unsigned int stride_shift, bool freed_tables);
DEFINE_STATIC_CALL_NULL(hpmmap_prep_compound_page, prep_compound_page_t);
DEFINE_STATIC_CALL_NULL(hpmmap_lru_add_drain, lru_drain_t);
DEFINE_STATIC_CALL_NULL(hpmmap_flush_tlb_mm_range, flush_tlb_t);

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
CORE_FUNCTION(init_pageblock_migratetype);
#else
CORE_FUNCTION(set_pageblock_migratetype);
#endif
#endif

void compat_pageblock_init(struct page *page)
{
#if defined(CONFIG_CMA) && defined(HAVE_INIT_PAGEBLOCK_MIGRATETYPE)
	static_call(hpmmap_init_pageblock_migratetype)(page, MIGRATE_UNMOVABLE, false);
#elif defined(CONFIG_CMA)
	static_call(hpmmap_set_pageblock_migratetype)(page, MIGRATE_UNMOVABLE);
#endif
}

#ifdef CONFIG_KASAN_GENERIC
CORE_FUNCTION(__kasan_unpoison_range);

void compat_kasan_unpoison(const void *address, size_t size)
{
	static_call(hpmmap___kasan_unpoison_range)(address, size);
}
#endif

unsigned long compat_symbol(const char *name)
{
	return static_call(hpmmap_kallsyms_lookup_name)(name);
}

/* add_mm_counter() and mm_counter_file() need what is not exported, or differ. */
void compat_add_rss(struct mm_struct *mm, struct folio *folio, long nr)
{
	int counter = folio_test_swapbacked(folio) ? MM_SHMEMPAGES : MM_FILEPAGES;

#ifdef HAVE_RSS_PERCPU
	percpu_counter_add(&mm->rss_stat[counter], nr);
#else
	atomic_long_add(nr, &mm->rss_stat.count[counter]);
#endif
}

#ifdef HAVE_FOLIO_RMAP
CORE_FUNCTION(folio_add_file_rmap_pmd);
CORE_FUNCTION(folio_add_file_rmap_ptes);

void compat_add_rmap_2m(struct folio *folio, struct vm_area_struct *vma)
{
	static_call(hpmmap_folio_add_file_rmap_pmd)(folio, folio_page(folio, 0), vma);
}

void compat_add_rmap_4k(struct folio *folio, struct page *page, unsigned int nr,
			struct vm_area_struct *vma)
{
	static_call(hpmmap_folio_add_file_rmap_ptes)(folio, page, nr, vma);
}
#else
CORE_FUNCTION(page_add_file_rmap);

void compat_add_rmap_2m(struct folio *folio, struct vm_area_struct *vma)
{
	static_call(hpmmap_page_add_file_rmap)(folio_page(folio, 0), vma, true);
}

void compat_add_rmap_4k(struct folio *folio, struct page *page, unsigned int nr,
			struct vm_area_struct *vma)
{
	while (nr--)
		static_call(hpmmap_page_add_file_rmap)(page++, vma, false);
}
#endif

/* An int, -EBUSY for a folio of no list, or a bool, false for one. Of both this is the low byte. */
typedef u8 isolate_t(struct folio *folio);
DEFINE_STATIC_CALL_NULL(hpmmap_folio_isolate_lru, isolate_t);
static u8 not_isolated;

static int isolate_try(void)
{
	struct page *page = alloc_page(GFP_KERNEL);

	if (!page)
		return -ENOMEM;
	not_isolated = static_call(hpmmap_folio_isolate_lru)(page_folio(page));
	__free_page(page);
	return 0;
}

void compat_pages_isolate(struct page **pages, long nr)
{
	/* A new page waits in a batch of its CPU for being put on a list. */
	static_call(hpmmap_lru_add_drain)();
	for (; nr; nr--, pages++) {
		struct folio *folio = page_folio(*pages);

		/* The core may split a large one at any time, which needs its place in a list. */
		if (folio_test_large(folio) || static_call(hpmmap_folio_isolate_lru)(folio) == not_isolated)
			continue;
		/* Of the list it was on; nobody frees a page with one of them. */
		folio_clear_active(folio);
		folio_clear_unevictable(folio);
		folio_put(folio);
	}
}

vm_fault_t compat_finish_fault(struct vm_fault *vmf)
{
	return static_call(hpmmap_finish_fault)(vmf);
}

void compat_flush_tlb_mm(struct mm_struct *mm)
{
	static_call(hpmmap_flush_tlb_mm_range)(mm, 0, TLB_FLUSH_ALL, 0, true);
}

#ifdef COMPAT_GIGABYTES
typedef void vma_adjust_t(struct vm_area_struct *vma, unsigned long start, unsigned long end,
			  unsigned long next);
typedef struct vm_area_struct *copy_vma_t(struct vm_area_struct **vmap, unsigned long to,
					  unsigned long len, pgoff_t pgoff, unsigned long fifth,
					  unsigned long sixth, unsigned long seventh);
typedef long gup_t(struct mm_struct *mm, unsigned long start, unsigned long nr,
		   unsigned int flags, struct page **pages, int *locked);
DEFINE_STATIC_CALL_RET0(hpmmap_p4d_alloc, __p4d_alloc);
DEFINE_STATIC_CALL_RET0(hpmmap_pud_alloc, __pud_alloc);
DEFINE_STATIC_CALL_RET0(hpmmap_pmd_alloc, __pmd_alloc);
DEFINE_STATIC_CALL_NULL(hpmmap_vma_adjust, vma_adjust_t);
DEFINE_STATIC_CALL_RET0(hpmmap_copy_vma, copy_vma_t);
DEFINE_STATIC_CALL_RET0(hpmmap_gup, gup_t);
DEFINE_STATIC_CALL_RET0(hpmmap_notify_start, __mmu_notifier_invalidate_range_start);
DEFINE_STATIC_CALL_NULL(hpmmap_notify_end, __mmu_notifier_invalidate_range_end);

DEFINE_STATIC_CALL_NULL(hpmmap_folio_remove_rmap_pmd, folio_remove_rmap_pmd);

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

void compat_remove_rmap_2m(struct folio *folio, struct vm_area_struct *vma)
{
	static_call(hpmmap_folio_remove_rmap_pmd)(folio, folio_page(folio, 0), vma);
}

void compat_flush_tlb_gigabyte(struct mm_struct *mm, unsigned long addr, bool table)
{
	static_call(hpmmap_flush_tlb_mm_range)(mm, addr, addr + PUD_SIZE, table ? PMD_SHIFT : PUD_SHIFT,
				      table);
}

void compat_notify_gigabyte(struct mm_struct *mm, unsigned long addr, bool begin)
{
	struct mmu_notifier_range range = {
		.mm = mm,
		.start = addr & PUD_MASK,
		.end = (addr & PUD_MASK) + PUD_SIZE,
		.flags = MMU_NOTIFIER_RANGE_BLOCKABLE,
		.event = MMU_NOTIFY_CLEAR,
	};

	if (mm_has_notifiers(mm) && begin)
		static_call(hpmmap_notify_start)(&range);
	else if (mm_has_notifiers(mm))
		static_call_cond(hpmmap_notify_end)(&range);
}

noinline void compat_vma_adjust(struct vm_area_struct *vma, unsigned long start,
				unsigned long end, unsigned long next)
{
	static_call(hpmmap_vma_adjust)(vma, start, end, next);
	barrier();
}

/* Kernels have five to seven arguments; those that they lack nothing looks at. */
noinline struct vm_area_struct *compat_copy_vma(struct vm_area_struct **vmap, unsigned long to,
						unsigned long len, pgoff_t pgoff,
						unsigned long fifth, unsigned long sixth,
						unsigned long seventh)
{
	struct vm_area_struct *vma = static_call(hpmmap_copy_vma)(vmap, to, len, pgoff, fifth, sixth,
								  seventh);

	barrier();
	return vma;
}

#ifdef COMPAT_FOLIO_WALK
DEFINE_STATIC_CALL_RET0(hpmmap_folio_walk_start, folio_walk_start);

noinline struct folio *compat_folio_walk_start(struct folio_walk *fw, struct vm_area_struct *vma,
					       unsigned long addr, folio_walk_flags_t flags)
{
	struct folio *folio = static_call(hpmmap_folio_walk_start)(fw, vma, addr, flags);

	barrier();
	return folio;
}
#endif

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
#define TREE_INSERT mapping_rmap_tree_insert
#define TREE_REMOVE mapping_rmap_tree_remove
#define TREE_OF(_mapping) (_mapping)
#else
#define TREE_INSERT vma_interval_tree_insert
#define TREE_REMOVE vma_interval_tree_remove
#define TREE_OF(_mapping) (&(_mapping)->i_mmap)
#endif
DEFINE_STATIC_CALL_NULL(hpmmap_tree_insert, TREE_INSERT);
DEFINE_STATIC_CALL_NULL(hpmmap_tree_remove, TREE_REMOVE);

void compat_vma_set_file(struct vm_area_struct *vma, struct file *file)
{
	struct file *old = vma->vm_file;
	struct address_space *mapping = old->f_mapping;

	mmap_assert_write_locked(vma->vm_mm);
#ifdef HAVE_VMA_LOCK
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

bool compat_ptrace_may_access(struct task_struct *task, unsigned int mode)
{
	return static_call(hpmmap_ptrace_may_access)(task, mode);
}

/* By the number of the memory block, or of a section of it. */
#ifdef HAVE_MEMORY_BLOCK_GET
#define FIND_BLOCK memory_block_get
#else
#define FIND_BLOCK find_memory_block
#endif
DEFINE_STATIC_CALL_NULL(hpmmap_find_block, FIND_BLOCK);

struct memory_block *compat_find_memory_block(unsigned long section_nr)
{
	unsigned long per_block = memory_block_size_bytes() >> SECTION_SIZE_BITS;

	return static_call(hpmmap_find_block)(IS_ENABLED(HAVE_MEMORY_BLOCK_GET) ?
					      section_nr / per_block : section_nr);
}

/*
 * Who hooks these knows the caller by the return address: no jump in place of a
 * call.
 */
noinline pid_t compat_kernel_clone(struct kernel_clone_args *args)
{
	pid_t ret = static_call(hpmmap_kernel_clone)(args);

	barrier();
	return ret;
}

noinline void compat_fork_copied(struct list_head *events)
{
	static_call_cond(hpmmap_dup_userfaultfd_complete)(events);
	barrier();
}

noinline long compat_memfd_fcntl(struct file *file, unsigned int cmd, unsigned long arg)
{
	long ret = static_call(hpmmap_memfd_fcntl)(file, cmd, arg);

	barrier();
	return ret;
}

/* Of late the flags are a structure of one word. */
typedef struct file *shm_file_t(const char *name, loff_t size, unsigned long flags);
DEFINE_STATIC_CALL_NULL(hpmmap_shmem_kernel_file_setup, shm_file_t);

noinline struct file *compat_shm_file(const char *name, loff_t size, unsigned long flags)
{
	struct file *file = static_call(hpmmap_shmem_kernel_file_setup)(name, size, flags);

	barrier();
	return file;
}

noinline long compat_oom_badness(struct task_struct *task, unsigned long total)
{
	long ret = static_call(hpmmap_oom_badness)(task, total);

	barrier();
	return ret;
}

/*
 * Its structure is private to fs/userfaultfd.c in some kernels. There each word of it that may be the
 * address space's is tried: no other pointer in it is one.
 */
struct mm_struct *compat_userfaultfd_mm(const struct file *file,
					bool (*knows)(struct mm_struct *mm))
{
#if defined(CONFIG_USERFAULTFD) && defined(HAVE_UFFD_CTX)
	const struct userfaultfd_ctx *ctx = file->private_data;

	return knows(ctx->mm) ? ctx->mm : NULL;
#else
	struct mm_struct *const *word = file->private_data;
	size_t nr = ksize(word) / sizeof(*word);

	for (; nr; nr--, word++)
		if (knows(READ_ONCE(*word)))
			return *word;
	return NULL;
#endif
}

/* Private to mm/mmu_notifier.c: subscriptions_check() compares it with what the kernel does. */
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

bool compat_interval_try_begin(struct mmu_interval_notifier *notifier, unsigned long *seq)
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

static bool nothing_invalidate(struct mmu_interval_notifier *notifier,
			       const struct mmu_notifier_range *range,
			       unsigned long seq)
{
	return true;
}

const struct mmu_interval_notifier_ops compat_interval_nothing = { .invalidate = nothing_invalidate };

/* Is the first notifier of the caller's address space where the structure says, and all else as in a new one? */
static int subscriptions_check(void)
{
	const struct mmu_notifier_subscriptions *all;
	struct mmu_interval_notifier notifier;
	bool known;
	int ret;

	/* A range that has no page, so that no change of the address space concerns it. */
	ret = mmu_interval_notifier_insert(&notifier, current->mm, 0, PAGE_SIZE,
					   &compat_interval_nothing);
	if (ret)
		return ret;
	all = current->mm->notifier_subscriptions;
	known = ksize(all) >= sizeof(*all) && all->has_itree &&
		all->invalidate_seq == notifier.invalidate_seq + 1 &&
		all->itree.rb_root.rb_node == &notifier.interval_tree.rb &&
		all->itree.rb_leftmost == &notifier.interval_tree.rb &&
		all->wq.head.next == &all->wq.head && all->wq.head.prev == &all->wq.head;
	mmu_interval_notifier_remove(&notifier);
	if (known)
		return 0;
	pr_err("this kernel's struct mmu_notifier_subscriptions is not as in Linux 6.1 to 7.3\n");
	return -ENOEXEC;
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
CORE_FUNCTION(num_poisoned_pages_inc);
CORE_FUNCTION(num_poisoned_pages_sub);

void compat_count_poison(unsigned long pfn, long nr)
{
	if (nr < 0)
		static_call(hpmmap_num_poisoned_pages_sub)(pfn, -nr);
	else
		static_call(hpmmap_num_poisoned_pages_inc)(pfn);
}
#else
/* Memory blocks do not know their bad pages. */
static atomic_long_t *core_nr_poisoned;

void compat_count_poison(unsigned long pfn, long nr)
{
	atomic_long_add(nr, core_nr_poisoned);
}
#endif

CORE_FUNCTION(memory_failure);
CORE_FUNCTION(soft_offline_page);

/*
 * Our hooks tell by the return address who calls. After a jump that is our caller's, which
 * function_graph may have replaced: it has to be a call.
 */
int compat_memory_failure(unsigned long pfn, int flags)
{
	int ret = static_call(hpmmap_memory_failure)(pfn, flags);

	barrier();
	return ret;
}

int compat_soft_offline(unsigned long pfn, int flags)
{
	int ret = static_call(hpmmap_soft_offline_page)(pfn, flags);

	barrier();
	return ret;
}

#define FUNCTION_AS(_name, _call, ...) \
	{ _name, &STATIC_CALL_KEY(_call), STATIC_CALL_TRAMP_ADDR(_call), __VA_ARGS__ }
#define FUNCTION(_name) FUNCTION_AS(#_name, hpmmap_##_name)

static const struct {
	const char *name;
	struct static_call_key *key;
	void *trampoline;
	bool *lacks;
} functions[] = {
#ifdef COMPAT_GIGABYTES
	FUNCTION_AS("__p4d_alloc", hpmmap_p4d_alloc, &lacks_gigabytes),
	FUNCTION_AS("__pud_alloc", hpmmap_pud_alloc, &lacks_gigabytes),
	FUNCTION_AS("__pmd_alloc", hpmmap_pmd_alloc, &lacks_gigabytes),
	FUNCTION_AS("vma_adjust_trans_huge", hpmmap_vma_adjust, &lacks_gigabytes),
	FUNCTION_AS("copy_vma", hpmmap_copy_vma, &lacks_gigabytes),
	FUNCTION_AS("__get_user_pages", hpmmap_gup, &lacks_gigabytes),
	FUNCTION_AS("__mmu_notifier_invalidate_range_start", hpmmap_notify_start, &lacks_gigabytes),
	FUNCTION_AS("__mmu_notifier_invalidate_range_end", hpmmap_notify_end, &lacks_gigabytes),
	FUNCTION_AS("folio_remove_rmap_pmd", hpmmap_folio_remove_rmap_pmd, &lacks_gigabytes),
#ifdef COMPAT_FOLIO_WALK
	FUNCTION_AS("folio_walk_start", hpmmap_folio_walk_start, &lacks_gigabytes),
#endif
#endif
	FUNCTION(prep_compound_page),
	FUNCTION(lock_device_hotplug),
	FUNCTION(unlock_device_hotplug),
	FUNCTION(get_online_mems),
	FUNCTION(put_online_mems),
#ifdef CONFIG_KASAN_GENERIC
	FUNCTION(__kasan_unpoison_range),
#endif
#ifdef HAVE_FOLIO_RMAP
	FUNCTION(folio_add_file_rmap_pmd),
	FUNCTION(folio_add_file_rmap_ptes),
#else
	FUNCTION(page_add_file_rmap),
#endif
	FUNCTION(folio_isolate_lru),
	FUNCTION(lru_add_drain),
	FUNCTION(finish_fault),
	FUNCTION(flush_tlb_mm_range),
	FUNCTION_AS(__stringify(TREE_INSERT), hpmmap_tree_insert),
	FUNCTION_AS(__stringify(TREE_REMOVE), hpmmap_tree_remove),
	FUNCTION(ptrace_may_access),
	FUNCTION(oom_badness),
	FUNCTION(shmem_kernel_file_setup),
	FUNCTION(kernel_clone),
	FUNCTION_AS(__stringify(FIND_BLOCK), hpmmap_find_block),
#if defined(CONFIG_CMA) && defined(HAVE_INIT_PAGEBLOCK_MIGRATETYPE)
	FUNCTION(init_pageblock_migratetype),
#elif defined(CONFIG_CMA)
	FUNCTION(set_pageblock_migratetype),
#endif
#ifdef CONFIG_MEMORY_FAILURE
	FUNCTION(memory_failure),
	FUNCTION(soft_offline_page),
#ifdef HAVE_POISON_BY_PFN
	FUNCTION(num_poisoned_pages_inc),
	FUNCTION(num_poisoned_pages_sub),
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
	static_call_update(hpmmap_kallsyms_lookup_name,
			   (typeof(&kallsyms_lookup_name))function_start(kp.addr));
	unregister_kprobe(&kp);

	weights = (void *)compat_symbol("iw_table");
	if (!weights) {
		weights = (void *)compat_symbol("wi_state");
		weights_offset = sizeof(bool);
	}
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
	/* Without CONFIG_USERFAULTFD and CONFIG_MEMFD_CREATE there are none, and no hooks. */
	static_call_update(hpmmap_dup_userfaultfd_complete, (typeof(&dup_userfaultfd_complete))
			   compat_symbol("dup_userfaultfd_complete"));
	static_call_update(hpmmap_memfd_fcntl,
			   (typeof(&memfd_fcntl))compat_symbol("memfd_fcntl"));
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
	ret = isolate_try();
	return ret ? ret : subscriptions_check();
}
