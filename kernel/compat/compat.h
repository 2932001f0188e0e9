/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Every difference between the supported kernels. What the headers declare tells them apart
 * (HAVE_*: kernel/Kbuild), never a version: distributions take later code into older kernels.
 */
#ifndef _HPMMAP_COMPAT_H
#define _HPMMAP_COMPAT_H

#include <linux/device.h>
#include <linux/fs.h>
#include <linux/ftrace.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/mmu_notifier.h>
#include <linux/module.h>
#include <linux/page_table_check.h>
#include <linux/pagewalk.h>
#include <linux/pid_namespace.h>
#include <linux/sched/coredump.h>
#ifdef HAVE_TASK_EXEC_STATE
#include <linux/sched/exec_state.h>
#endif
#include <linux/sched/mm.h>
#include <linux/sched/task.h>
#include <linux/uaccess.h>
#include <linux/userfaultfd_k.h>

#ifndef VMA_ITERATOR
#error "hpmmap needs VMAs in a maple tree: Linux 6.1 or newer, or a distribution's kernel with its mm/"
#endif
#ifndef CONFIG_X86_64
#error "hpmmap needs x86-64"
#endif
#ifndef CONFIG_MEMORY_HOTREMOVE
#error "hpmmap needs CONFIG_MEMORY_HOTREMOVE: the pools are memory set offline"
#endif
#ifndef CONFIG_DYNAMIC_FTRACE_WITH_ARGS
#error "hpmmap needs CONFIG_DYNAMIC_FTRACE_WITH_ARGS to hook system calls"
#endif
#ifndef CONFIG_MMU_NOTIFIER
#error "hpmmap needs CONFIG_MMU_NOTIFIER for windows onto memory of Linux"
#endif
#if !defined(CONFIG_KPROBES) || !defined(CONFIG_KALLSYMS)
#error "hpmmap needs CONFIG_KPROBES and CONFIG_KALLSYMS to find functions"
#endif

/* Exported by all kernels; some declare it in a private header. */
int vfs_path_lookup(struct dentry *dentry, struct vfsmount *mnt,
		    const char *name, unsigned int flags, struct path *path);

/* Where the traced function continues. */
static __always_inline void compat_ftrace_set_ip(struct ftrace_regs *fregs, unsigned long ip)
{
#ifdef ftrace_regs_set_instruction_pointer
	ftrace_regs_set_instruction_pointer(fregs, ip);
#else
	ftrace_instruction_pointer_set(fregs, ip);
#endif
}

/* The traced function's argument @n, the first being 0; at most 1 before 6.6. */
static __always_inline unsigned long compat_ftrace_arg(struct ftrace_regs *fregs, unsigned int n)
{
#ifdef ftrace_regs_get_argument
	return ftrace_regs_get_argument(fregs, n);
#else
	return n ? fregs->regs.si : fregs->regs.di;
#endif
}

/* How a mount shows users. */
#ifdef HAVE_CREATE_IDMAP
typedef struct mnt_idmap compat_idmap;
#define compat_nop_idmap &nop_mnt_idmap
#else
typedef struct user_namespace compat_idmap;
#define compat_nop_idmap &init_user_ns
#endif

/* Sets times of an inode to now: @which are ATTR_ATIME, ATTR_MTIME, ATTR_CTIME. Their fields were renamed. */
static inline void compat_inode_touch(struct inode *inode, unsigned int which)
{
	struct timespec64 now = current_time(inode);
	const struct iattr attr = {
		.ia_valid = which, .ia_atime = now, .ia_mtime = now, .ia_ctime = now,
	};

	setattr_copy(compat_nop_idmap, inode, &attr);
}

/* What inode_operations.mkdir returns: an errno, or a dentry or ERR_PTR(). */
typedef typeof(((struct inode_operations *)NULL)->mkdir(NULL, NULL, NULL, 0)) compat_mkdir_t;
#define compat_mkdir_ret(_ret) ((compat_mkdir_t)(long)(_ret))

/* By way of read_iter, to pages of the pipe's own. */
#ifdef HAVE_COPY_SPLICE_READ
#define COMPAT_SPLICE_READ copy_splice_read
#else
#define COMPAT_SPLICE_READ generic_file_splice_read
#endif

/* Does vm.memfd_noexec change what memfd_create(2) makes without MFD_EXEC and MFD_NOEXEC_SEAL? */
static inline bool compat_memfd_noexec(struct pid_namespace *ns)
{
#if defined(HAVE_PIDNS_MEMFD_NOEXEC)
	return pidns_memfd_noexec_scope(ns) > 0;
#elif defined(HAVE_MEMFD_NOEXEC) && defined(CONFIG_SYSCTL) && defined(CONFIG_MEMFD_CREATE)
	return READ_ONCE(ns->memfd_noexec_scope) > 0;
#else
	return false;
#endif
}

/* Called with mmap_lock held. */
static inline unsigned long compat_get_unmapped_area(unsigned long addr, unsigned long len,
						     unsigned long flags)
{
	mmap_assert_locked(current->mm);
#if defined(HAVE_MM_GET_UNMAPPED_AREA_FILE)
	return mm_get_unmapped_area(NULL, addr, len, 0, flags);
#elif defined(HAVE_MM_GET_UNMAPPED_AREA_MM)
	return mm_get_unmapped_area(current->mm, NULL, addr, len, 0, flags);
#else
	return current->mm->get_unmapped_area(NULL, addr, len, 0, flags);
#endif
}

/* Takes a range of one mapping out of the page tables; mmap_lock held. */
static inline void compat_zap(struct vm_area_struct *vma, unsigned long start, unsigned long len)
{
	mmap_assert_locked(vma->vm_mm);
#if defined(HAVE_ZAP_VMA_RANGE)
	zap_vma_range(vma, start, len);
#elif defined(HAVE_ZAP_PAGE_RANGE)
	zap_page_range(vma, start, len);
#else
	zap_page_range_single(vma, start, len, NULL);
#endif
}

/* The address space that a userfaultfd watches, if @knows it; or NULL. */
struct mm_struct *compat_userfaultfd_mm(const struct file *file,
					bool (*knows)(struct mm_struct *mm));

/* mmap_lock for writing, where it is free: some kernels have no function of their own for it. */
static inline bool compat_mmap_write_trylock(struct mm_struct *mm)
{
#ifdef HAVE_MMAP_WRITE_TRYLOCK
	return mmap_write_trylock(mm);
#else
	if (!down_write_trylock(&mm->mmap_lock))
		return false;
#ifdef HAVE_MM_LOCK_SEQCOUNT
	mm_lock_seqcount_begin(mm);
#endif
	return true;
#endif
}

/* A fault gives up what it holds, to be tried again. */
static inline void compat_fault_unlock(struct vm_fault *vmf)
{
#ifdef HAVE_VMA_LOCK
	if (vmf->flags & FAULT_FLAG_VMA_LOCK) {
		vma_end_read(vmf->vma);
		return;
	}
#endif
	mmap_read_unlock(vmf->vma->vm_mm);
}

/* Has an address space this flag, MMF_*? */
static inline bool compat_mm_flag(const struct mm_struct *mm, int flag)
{
#ifdef MMF_DISABLE_THP_COMPLETELY
	return mm_flags_test(flag, mm);
#else
	return test_bit(flag, &mm->flags);
#endif
}

#ifdef HAVE_INODE_JUST_DROP
#define compat_drop_inode inode_just_drop
#else
#define compat_drop_inode generic_delete_inode
#endif

/* Names of a file system that has nothing else stay until they are removed. */
#ifdef HAVE_D_MAKE_PERSISTENT
#define compat_kill_super kill_anon_super
#else
#define compat_kill_super kill_litter_super
#endif

static inline void compat_d_keep(struct dentry *dentry, struct inode *inode)
{
#ifdef HAVE_D_MAKE_PERSISTENT
	d_make_persistent(dentry, inode);
#else
	d_instantiate(dentry, inode);
	dget(dentry);
#endif
}

/* For shmem_file_setup(): nothing is accounted in advance. */
#ifdef HAVE_SHMEM_VMA_FLAGS
#define COMPAT_NORESERVE mk_vma_flags(VMA_NORESERVE_BIT)
#else
#define COMPAT_NORESERVE VM_NORESERVE
#endif

/* The last argument of inode_operations.create. */
#ifdef HAVE_CREATE_EXCL
#define COMPAT_CREATE_EXCL , bool excl
#else
#define COMPAT_CREATE_EXCL
#endif

/* May a device not be set offline? */
static inline void compat_disable_offline(struct device *dev, bool disable)
{
#ifdef HAVE_DEV_FLAGS
	if (disable)
		dev_set_offline_disabled(dev);
	else
		dev_clear_offline_disabled(dev);
#else
	dev->offline_disabled = disable;
#endif
}

/* May a thread, of a process with this address space, be traced by its own user? */
static inline bool compat_is_dumpable(struct task_struct *thread, struct mm_struct *mm)
{
#ifdef HAVE_TASK_EXEC_STATE
	bool ret;

	rcu_read_lock();
	ret = rcu_dereference(thread->exec_state)->dumpable == TASK_DUMPABLE_OWNER;
	rcu_read_unlock();
	return ret;
#else
	return get_dumpable(mm) == SUID_DUMP_USER;
#endif
}

/* Clears, then sets flags; mmap_lock held for writing. */
static inline void compat_vm_flags_mod(struct vm_area_struct *vma, vm_flags_t set, vm_flags_t clear)
{
	mmap_assert_write_locked(vma->vm_mm);
#ifdef HAVE_VM_FLAGS_MOD
	vm_flags_mod(vma, set, clear & ~set);
#else
	vma->vm_flags = (vma->vm_flags & ~clear) | set;
#endif
}

/* UFFDIO_MOVE, of Linux 6.8: what it moves, if that can be read. */
static inline bool compat_uffd_move_source(unsigned int cmd, const void __user *arg,
					   unsigned long *start,
					   unsigned long *end)
{
#ifdef UFFDIO_MOVE
	struct uffdio_move move;

	if (cmd != UFFDIO_MOVE || copy_from_user(&move, arg, offsetof(struct uffdio_move, move)))
		return false;
	*start = move.src;
	*end = move.src + move.len;
	return true;
#else
	return false;
#endif
}

/* A thread of a process that the kernel made for itself: io_uring's, since 6.4 vhost's. */
static inline bool compat_is_worker(const struct task_struct *task)
{
#ifdef PF_USER_WORKER
	return task->flags & PF_USER_WORKER;
#else
	return task->flags & PF_IO_WORKER;
#endif
}

/* mseal(2), of Linux 6.10. */
static inline bool compat_vma_is_sealed(const struct vm_area_struct *vma)
{
#ifdef VM_SEALED
	return vma->vm_flags & VM_SEALED;
#else
	return false;
#endif
}

/* MPOL_WEIGHTED_INTERLEAVE; kernels before 6.9 never have it. */
#define COMPAT_MPOL_WEIGHTED_INTERLEAVE 6

/* Blocks of a node in its turn. */
unsigned int compat_interleave_weight(int nid);

#ifdef HAVE_GET_POLICY_ILX
#define COMPAT_GET_POLICY_ARGS \
	struct vm_area_struct *vma, unsigned long addr, pgoff_t *ilx
#else
#define COMPAT_GET_POLICY_ARGS \
	struct vm_area_struct *vma, unsigned long addr
#endif

/* The work queue of schedule_work(), which was renamed. */
#ifdef HAVE_SYSTEM_PERCPU_WQ
#define compat_wq system_percpu_wq
#else
#define compat_wq system_wq
#endif

/* Since 6.13; for mappings of files, and so for ours, since 6.15. Elsewhere Linux knows no such advice. */
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL (-1)
#endif

/* Since 6.4, with LAM. */
#ifndef untagged_addr_remote
#define untagged_addr_remote(mm, addr) (addr)
#endif

/* Page-table levels; leaf tests were renamed once. */
#ifndef pmd_leaf
#define pmd_leaf pmd_large
#endif

/*
 * Could the core map 2 MB of this address space with one entry? Never where it
 * is built without transparent huge pages, as with PREEMPT_RT.
 */
static inline bool compat_maps_2m(struct mm_struct *mm)
{
#ifndef CONFIG_TRANSPARENT_HUGEPAGE
	return false;
#elif defined(MMF_DISABLE_THP_COMPLETELY)
	return !compat_mm_flag(mm, MMF_DISABLE_THP_COMPLETELY);
#else
	return !compat_mm_flag(mm, MMF_DISABLE_THP);
#endif
}

/* Would the core map a whole block of a mapping by one entry? */
static inline bool compat_vma_maps_2m(const struct vm_area_struct *vma)
{
#ifdef HAVE_VMA_THP_DISABLED
	if (vma->vm_flags & VM_NOHUGEPAGE)
		return false;
#endif
	return compat_maps_2m(vma->vm_mm);
}

/* The core calls release_folio() of all folios of a file before it splits one; not before 6.6, without entries of 1 GB. */
static inline void compat_release_always(struct address_space *mapping)
{
#ifdef HAVE_RELEASE_ALWAYS
	mapping_set_release_always(mapping);
#endif
}

/* Does fork(2) copy the page tables of a shared mapping of a file, so that the child has its entries? */
static inline bool compat_copies_tables(struct vm_area_struct *vma)
{
#ifdef VM_COPY_ON_FORK
	if (vma->vm_flags & VM_COPY_ON_FORK)
		return true;
#endif
	return vma->anon_vma || userfaultfd_armed(vma);
}

/* What struct kobj_type's get_ownership() is given. */
#ifdef HAVE_CONST_OWNERSHIP
typedef const struct kobject compat_ownership_kobject;
#else
typedef struct kobject compat_ownership_kobject;
#endif

/*
 * Page-table entries that refer to a folio of a file. Without _large_mapcount the kernel's own function is
 * not exported. Before _nr_pages_mapped an entry of 2 MB counts at each page, too.
 */
static inline int compat_folio_mapcount(struct folio *folio)
{
#ifdef HAVE_LARGE_MAPCOUNT
	return folio_mapcount(folio);
#else
	long i, nr = folio_nr_pages(folio), ret = 0;
	int entire = 0;

	if (folio_test_large(folio))
		entire = folio_entire_mapcount(folio);
	for (i = 0; i < nr; i++)
		ret += atomic_read(&folio_page(folio, i)->_mapcount) + 1;
	return ret + entire - (IS_ENABLED(HAVE_NR_PAGES_MAPPED) ? 0 : entire * nr);
#endif
}

/* Is an entry protected by a userfaultfd? */
static inline bool compat_pmd_uffd_wp(pmd_t pmd)
{
#ifdef HAVE_PMD_UFFD
	return pmd_uffd(pmd);
#else
	return pmd_uffd_wp(pmd);
#endif
}

/* pte_mkwrite() for a mapping that is no shadow stack: some kernels want the VMA. */
#define compat_pmd_mkwrite(_pmd) pmd_set_flags(_pmd, _PAGE_RW)
#define compat_pte_mkwrite(_pte) pte_set_flags(_pte, _PAGE_RW)

/*
 * A page of another process, with a reference: how many, or an errno. mmap_lock of @mm
 * is held; without @locked it stays so.
 */
static inline long compat_gup_remote(struct mm_struct *mm, unsigned long addr,
				     unsigned int gup_flags, struct page **page,
				     int *locked)
{
#ifdef HAVE_GUP_VMAS
	return get_user_pages_remote(mm, addr, 1, gup_flags, page, NULL, locked);
#else
	return get_user_pages_remote(mm, addr, 1, gup_flags, page, locked);
#endif
}

/* Has an address space a process yet? Always, to a kernel that does not tell. */
static inline bool compat_mm_is_owned(struct mm_struct *mm)
{
#ifdef CONFIG_MEMCG
	return READ_ONCE(mm->owner);
#else
	return true;
#endif
}

/*
 * mmu_interval_read_begin() without a wait: false where something is being changed. Who
 * wants to wait for that, killably, holds no lock.
 */
bool compat_interval_try_begin(struct mmu_interval_notifier *notifier, unsigned long *seq);
int compat_interval_wait(struct mmu_interval_notifier *notifier);

/* Of a notifier that nothing concerns. */
extern const struct mmu_interval_notifier_ops compat_interval_nothing;

/* Can such a notifier be inserted without all locks of the address space? For ever, then. */
bool compat_mm_knows_intervals(struct mm_struct *mm);

/*
 * May a mapping of a file have entries for pages that are somebody else's? Since 6.18
 * the core takes them for bad ones, and so do checks of page tables.
 */
#ifdef HAVE_FIND_SPECIAL_PAGE
#define COMPAT_FIND_SPECIAL_PAGE(_fn) .find_special_page = _fn,
static inline bool compat_has_special_pages(void)
{
#ifdef CONFIG_PAGE_TABLE_CHECK
	return static_branch_likely(&page_table_check_disabled);
#else
	return true;
#endif
}
#else
#define COMPAT_FIND_SPECIAL_PAGE(_fn)
static inline bool compat_has_special_pages(void)
{
	return false;
}
#endif

/* Functions of the kernel that are not exported; after compat_init(). */
void compat_prep_compound_page(struct page *page, unsigned int order);
void compat_hotplug_lock(void);
void compat_hotplug_unlock(void);

/* To KASAN, memory that was free when it went offline may not be accessed. */
#ifdef CONFIG_KASAN_GENERIC
void compat_kasan_unpoison(const void *address, size_t size);
#else
static inline void compat_kasan_unpoison(const void *address, size_t size)
{
}
#endif

/*
 * Memory that went offline is isolated. With CONFIG_CMA that forbids long-term
 * pins, and who wants one tries to migrate the page for ever. Setting it online
 * makes it isolated again.
 */
void compat_pageblock_init(struct page *page);

/*
 * An entry of 2 MB is about to be set, with its lock held. The caller counts it by
 * compat_add_rss().
 */
void compat_add_rmap_2m(struct folio *folio, struct vm_area_struct *vma);

/* The counterpart, of kernels with entries of 1 GB. */
void compat_remove_rmap_2m(struct folio *folio, struct vm_area_struct *vma);

/* The same for entries of 4 KB, of @nr pages. */
void compat_add_rmap_4k(struct folio *folio, struct page *page, unsigned int nr,
			struct vm_area_struct *vma);

/* Count memory of files like @folio that an address space has mapped. */
void compat_add_rss(struct mm_struct *mm, struct folio *folio, long nr_pages);

/*
 * The entry for a fault, as the core makes it after .fault: of vmf->page, which is locked and has a
 * reference for it.
 *
 * Return: 0, and the reference is the entry's; VM_FAULT_NOPAGE where there is one already, or
 * VM_FAULT_OOM.
 */
vm_fault_t compat_finish_fault(struct vm_fault *vmf);

/* Takes small pages that the caller has references to off the lists of what is reclaimed and moved. */
void compat_pages_isolate(struct page **pages, long nr);

/* All of it, on all CPUs. */
void compat_flush_tlb_mm(struct mm_struct *mm);

/* Entries of 1 GB for memory that is no device's, and in no folio of 1 GB. */
#if defined(CONFIG_TRANSPARENT_HUGEPAGE) && defined(CONFIG_HAVE_ARCH_TRANSPARENT_HUGEPAGE_PUD) && \
	defined(CONFIG_ARCH_SUPPORTS_PUD_PFNMAP) && \
	(defined(CONFIG_FIND_NORMAL_PAGE) || !defined(HAVE_NORMAL_PAGE_PUD))
#define COMPAT_GIGABYTES

/* Since 6.18 the core asks for the page of a special entry, and takes it for a bad one otherwise. */
#ifdef CONFIG_FIND_NORMAL_PAGE
#define COMPAT_FIND_NORMAL_PAGE(_fn) .find_normal_page = _fn,
#define compat_finds_normal_page(_vma) ((_vma)->vm_ops->find_normal_page)
#else
#define COMPAT_FIND_NORMAL_PAGE(_fn)
#define compat_finds_normal_page(_vma) true
#endif

/* Has the kernel all functions that they need? */
bool compat_has_gigabytes(void);

/* The entry of a gigabyte, with tables above it; NULL without memory. */
pud_t *compat_pud_alloc(struct mm_struct *mm, unsigned long addr);

/* A table of entries of 2 MB in @pudp, which is none; otherwise it stays as it is. */
void compat_pmd_alloc(struct mm_struct *mm, pud_t *pudp, unsigned long addr);

/* Frees such a table that nobody has seen. */
static inline void compat_pmd_free(struct mm_struct *mm, pud_t pud)
{
	mm_dec_nr_pmds(mm);
#ifdef HAVE_PAGETABLE_DTOR
	pagetable_dtor(virt_to_ptdesc(pud_pgtable(pud)));
	__free_page(virt_to_page(pud_pgtable(pud)));
#else
	pagetable_pmd_dtor(virt_to_ptdesc(pud_pgtable(pud)));
	pagetable_free(virt_to_ptdesc(pud_pgtable(pud)));
#endif
}

/* Of change_protection()'s flags: a userfaultfd's own. */
#ifdef MM_CP_UFFD_WP_ALL
#ifdef MM_CP_UFFD_RWP_ALL
#define COMPAT_CP_UFFD (MM_CP_UFFD_WP_ALL | MM_CP_UFFD_RWP_ALL)
#else
#define COMPAT_CP_UFFD MM_CP_UFFD_WP_ALL
#endif
#else
#define COMPAT_CP_UFFD (~0UL)
#endif

/* Where the core looks for the page of an entry, and none tells it that of a special one. */
#if defined(HAVE_FOLIO_WALK) && !defined(CONFIG_FIND_NORMAL_PAGE)
#define COMPAT_FOLIO_WALK
struct folio *compat_folio_walk_start(struct folio_walk *fw, struct vm_area_struct *vma,
				      unsigned long addr, folio_walk_flags_t flags);
#endif

/* What one entry of 1 GB had, or the table in its place, on all CPUs. */
void compat_flush_tlb_gigabyte(struct mm_struct *mm, unsigned long addr, bool table);

/*
 * Before and after an entry of 1 GB becomes a table, or the other way round: in between KVM and
 * others map nothing of the gigabyte, and forget what they have. May sleep.
 */
void compat_notify_gigabyte(struct mm_struct *mm, unsigned long addr, bool begin);

/* The kernel's own, whoever redirects them. */
void compat_vma_adjust(struct vm_area_struct *vma, unsigned long start, unsigned long end,
		       unsigned long next);
struct vm_area_struct *compat_copy_vma(struct vm_area_struct **vmap, unsigned long to,
				       unsigned long len, pgoff_t pgoff, unsigned long fifth,
				       unsigned long sixth, unsigned long seventh);
long compat_get_user_pages(struct mm_struct *mm, unsigned long start, unsigned long nr,
			   unsigned int flags, struct page **pages, int *locked);

/* Of its arguments: the mapping behind whose start moves, or NULL, and in *border where to. */
static inline struct vm_area_struct *compat_adjusted_next(const struct vm_area_struct *vma,
							  unsigned long next,
							  unsigned long *border)
{
#ifdef HAVE_ADJUST_NEXT_VMA
	return (struct vm_area_struct *)next;
#else
	struct vm_area_struct *after = (long)next > 0 ? find_vma(vma->vm_mm, vma->vm_end) : NULL;

	if (after)
		*border = after->vm_start + next;
	return after;
#endif
}
#else
#define COMPAT_FIND_NORMAL_PAGE(_fn)
#endif

/* Tell which file a mapping is of; mmap_lock held for writing. */
void compat_vma_set_file(struct vm_area_struct *vma, struct file *file);

/*
 * Is this an address of the module's code? within_module() looks at everything
 * else that a module has, too.
 */
static __always_inline bool compat_is_own_text(unsigned long addr)
{
#ifdef HAVE_MOD_MEM_TYPE
	const struct module_memory *text = &THIS_MODULE->mem[MOD_TEXT];
	unsigned long base = (unsigned long)text->base, size = text->size;
#else
	const struct module_layout *core = &THIS_MODULE->core_layout;
	unsigned long base = (unsigned long)core->base, size = core->text_size;
#endif

	return addr - base < size;
}

/* Does Linux's overcommit policy let a process have more than there is, if it asks to? */
bool compat_overcommits(void);

/* Would it let a process have so much more, of which Committed_AS has nothing? */
bool compat_enough_memory(unsigned long pages);

/* So many pages more in Committed_AS; less than 0: as many less. */
void compat_commit(long pages);

/* vm.mmap_min_addr, or what a security module asks for if that is more */
unsigned long compat_mmap_min_addr(void);

/* What /proc asks before it tells of another process: PTRACE_MODE_*. */
bool compat_ptrace_may_access(struct task_struct *task, unsigned int mode);

/* The memory block of a section, with a reference, or NULL. */
struct memory_block *compat_find_memory_block(unsigned long section_nr);

/* The kernel's own, whoever hooks it. */
long compat_oom_badness(struct task_struct *task, unsigned long total);

/*
 * The kernel's own, whoever hooks them. Not by their addresses: of functions that
 * Linux never calls so, it removes what a processor with IBT wants to find there.
 */
pid_t compat_kernel_clone(struct kernel_clone_args *args);
void compat_fork_copied(struct list_head *events);
long compat_memfd_fcntl(struct file *file, unsigned int cmd, unsigned long arg);
struct file *compat_shm_file(const char *name, loff_t size, unsigned long flags);
int compat_memory_failure(unsigned long pfn, int flags);
int compat_soft_offline(unsigned long pfn, int flags);

/* Count a page with a memory error, in all and in its memory block, or -1: one less. */
void compat_count_poison(unsigned long pfn, long nr);

/* vm.memory_failure_early_kill, memory_failure_recovery, enable_soft_offline */
bool compat_early_kill(void);
bool compat_recovers_memory(void);
bool compat_soft_offlines(void);

int compat_init(void);

/* Address of a kernel symbol's first instruction, or 0. After compat_init(). */
unsigned long compat_symbol(const char *name);

#endif /* _HPMMAP_COMPAT_H */
