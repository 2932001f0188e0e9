// SPDX-License-Identifier: GPL-2.0
/*
 * Entries of 1 GB, over 512 folios of 2 MB that follow each other.
 *
 * Such an entry has a reference to each of its folios, so what a block's references say
 * stays true: a block without others is mapped nowhere. It is in no reverse map. The core
 * knows entries of this size only of devices, so some of its functions are redirected for
 * mappings of ours, from before the first entry is made until the module is unloaded:
 *
 * - zap_huge_pud() gives the references back, after the TLB is flushed.
 * - __split_huge_pud() makes 512 entries of 2 MB with the same contents. The core's drops
 *   the entry.
 * - vma_adjust_trans_huge() drops an entry that a mapping's new border would cut. The core
 *   looks for entries of 2 MB there, and would take the gigabyte for their table.
 * - __get_user_pages() is called for 2 MB at most at once. The core takes all references to
 *   the first folio of an entry, which is right only within a folio. It walks lockless tables
 *   elsewhere: entries are special, so gup_fast() leaves them to the slow path.
 * - change_huge_pud(), for the protection of a userfaultfd, warns: the entry is split.
 * - folio_walk_start(), of move_pages(2), finds no page of a special entry, which is split
 *   before. Kernels with vm_ops->find_normal_page do without.
 *
 * An address space that exists before the functions are redirected may have a task in one of
 * them. A job's programs are executed after that.
 */
#include <linux/ftrace.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pagemap.h>
#include <linux/smp.h>

#include "hook.h"
#include "hpmmap.h"
#include "mem/block/nodes.h"
#include "as/own/ctx.h"
#include "as/map/gigabyte.h"
#include "as/map/vma.h"
#include "trace.h"

/* Off until they have proved themselves on more than emulated hosts. For launches from then on. */
static bool allowed;
module_param_named(gigabytes, allowed, bool, 0644);
MODULE_PARM_DESC(gigabytes, "--page-size 1G makes page-table entries of 1 GB (default: 0)");

#ifdef COMPAT_GIGABYTES

static pud_t *find_pud(struct mm_struct *mm, unsigned long addr)
{
	pgd_t *pgd = pgd_offset(mm, addr);
	p4d_t *p4d;

	if (pgd_none(*pgd) || pgd_bad(*pgd))
		return NULL;
	p4d = p4d_offset(pgd, addr);
	if (p4d_none(*p4d) || p4d_bad(*p4d))
		return NULL;
	return pud_offset(p4d, addr);
}

/* One that nobody may access (PROT_NONE) is not present. */
static bool is_leaf(pud_t pud)
{
	return pud_leaf(pud);
}

/**
 * hpmmap_gigabyte_find() - the entry of 1 GB at an address
 * @mm: address space, its mmap_lock held
 * @addr: the address
 *
 * Return: the entry, or NULL if the gigabyte is mapped by a table, or not at all.
 */
pud_t *hpmmap_gigabyte_find(struct mm_struct *mm, unsigned long addr)
{
	pud_t *pudp = find_pud(mm, addr);

	return pudp && is_leaf(READ_ONCE(*pudp)) ? pudp : NULL;
}

/* Counts memory that an entry of 1 GB maps, or -1: that it maps no more. */
static void count(struct mm_struct *mm, struct folio *first, int sign)
{
	long nr = sign * (long)(PUD_SIZE >> PAGE_SHIFT);

	compat_add_rss(mm, first, nr);
	mod_node_page_state(folio_pgdat(first), NR_FILE_MAPPED, nr);
}

/* The folios of an entry, whose struct pages follow each other. */
static struct folio *folio_of(pud_t pud, unsigned long i)
{
	return (struct folio *)(pfn_to_page(pud_pfn(pud)) + (i << SLOT_ORDER));
}

/* An entry is gone from the page table and all TLBs. */
static void release(struct mm_struct *mm, pud_t old)
{
	unsigned long i;

	count(mm, folio_of(old, 0), -1);
	for (i = 0; i < GIGABYTE_SLOTS; i++) {
		struct folio *folio = folio_of(old, i);

		/* A reference that is not counted is one too many, never one too few. */
		WRITE_ONCE(folio->private, NULL);
		smp_mb__before_atomic();
		folio_put(folio);
	}
}

/* Could a mapping have an entry of 1 GB at an address, if its blocks follow each other? */
bool hpmmap_gigabyte_may(struct vm_area_struct *vma, unsigned long addr)
{
	lockdep_assert_held(&vma->vm_mm->mmap_lock);
	return !(addr & ~PUD_MASK) && addr >= vma->vm_start && addr < vma->vm_end &&
	       vma->vm_end - addr >= PUD_SIZE && !userfaultfd_armed(vma);
}

/* Is an entry of 1 GB there, as its mapping allows? */
bool hpmmap_gigabyte_is_done(struct vm_area_struct *vma, unsigned long addr)
{
	pud_t *pudp = hpmmap_gigabyte_find(vma->vm_mm, addr);

	lockdep_assert_held(&vma->vm_mm->mmap_lock);
	return pudp && (pud_write(READ_ONCE(*pudp)) || !(vma->vm_flags & VM_WRITE));
}

/**
 * hpmmap_gigabyte_set() - map a gigabyte by one entry
 * @vma: accessible mapping of ours; hpmmap_gigabyte_may() holds for it
 * @addr: where
 * @first: its first folio; 511 others follow it, all of blocks that cannot leave their store
 *	now, with nothing stale, and in no other entry of 1 GB
 *
 * Return: false where there is something already, or no memory for tables.
 */
bool hpmmap_gigabyte_set(struct vm_area_struct *vma, unsigned long addr, struct folio *first)
{
	struct mm_struct *mm = vma->vm_mm;
	pud_t entry = pud_mkyoung(pud_mkhuge(pfn_pud(folio_pfn(first), vma->vm_page_prot)));
	pud_t *pudp = compat_pud_alloc(mm, addr);
	spinlock_t *ptl;
	unsigned long i;

	lockdep_assert_held(&mm->mmap_lock);
	if (!pudp || !pud_none(READ_ONCE(*pudp)))
		return false;
	entry = pud_mkspecial(entry);
	entry = vma->vm_flags & VM_WRITE ? pud_mkwrite(pud_mkdirty(entry)) :
					   pud_wrprotect(entry);
	ptl = pud_lock(mm, pudp);
	if (!pud_none(*pudp)) {
		spin_unlock(ptl);
		return false;
	}
	for (i = 0; i < GIGABYTE_SLOTS; i++) {
		struct folio *folio = folio_of(entry, i);

		folio_get(folio);
		/* As in release(). */
		smp_mb__after_atomic();
		WRITE_ONCE(folio->private, folio);
	}
	set_pud_at(mm, addr, pudp, entry);
	spin_unlock(ptl);
	count(mm, first, 1);
	return true;
}

/**
 * hpmmap_gigabytes_drop() - remove all entries of 1 GB in a range
 * @vma: mapping of ours; mmap_lock held
 * @start: first address
 * @end: end, within the mapping
 *
 * Faults, or the end of the call, map again what lies behind them.
 */
void hpmmap_gigabytes_drop(struct vm_area_struct *vma, unsigned long start, unsigned long end)
{
	unsigned long addr;

	lockdep_assert_held(&vma->vm_mm->mmap_lock);
	for (addr = ALIGN(start, PUD_SIZE); addr < end && end - addr >= PUD_SIZE; addr += PUD_SIZE)
		if (hpmmap_gigabyte_find(vma->vm_mm, addr))
			compat_zap(vma, addr, PUD_SIZE);
}

/*
 * Takes the right to write away, as hpmmap_pgmap_protect_run(), of all of a gigabyte. False
 * where no entry of 1 GB is.
 */
bool hpmmap_gigabyte_protect(struct mm_struct *mm, unsigned long addr)
{
	pud_t *pudp = hpmmap_gigabyte_find(mm, addr);
	spinlock_t *ptl;
	bool ret;

	mmap_assert_write_locked(mm);
	if (!pudp)
		return false;
	ptl = pud_lock(mm, pudp);
	ret = is_leaf(*pudp);
	if (ret)
		set_pud_at(mm, addr & PUD_MASK, pudp, pud_mkclean(pud_wrprotect(*pudp)));
	spin_unlock(ptl);
	return ret;
}

/*
 * Is a gigabyte, that begins with a folio, mapped by one entry, and does nobody refer to any of its
 * folios but that and the module? mmap_lock held.
 */
bool hpmmap_gigabyte_is_alone(struct mm_struct *mm, unsigned long addr, struct folio *first)
{
	pud_t *pudp = hpmmap_gigabyte_find(mm, addr);
	spinlock_t *ptl;
	unsigned long i;
	bool ret;

	if (!pudp)
		return false;
	ptl = pud_lock(mm, pudp);
	ret = is_leaf(*pudp) && pud_pfn(*pudp) == folio_pfn(first);
	for (i = 0; ret && i < GIGABYTE_SLOTS; i++)
		ret = folio_ref_count(folio_of(*pudp, i)) == 2;
	spin_unlock(ptl);
	return ret;
}

/* Gives the right to write back. Returns whether the entry was changed. */
bool hpmmap_gigabyte_unprotect(struct vm_area_struct *vma, unsigned long addr)
{
	pud_t *pudp = hpmmap_gigabyte_find(vma->vm_mm, addr);
	spinlock_t *ptl;
	bool ret;

	lockdep_assert_held(&vma->vm_mm->mmap_lock);
	if (!pudp || !(vma->vm_flags & VM_WRITE) || userfaultfd_armed(vma))
		return false;
	ptl = pud_lock(vma->vm_mm, pudp);
	ret = is_leaf(*pudp) && !pud_write(*pudp);
	if (ret)
		set_pud_at(vma->vm_mm, addr, pudp, pud_mkwrite(pud_mkdirty(*pudp)));
	spin_unlock(ptl);
	return ret;
}

/* 512 entries of 2 MB, as one of 1 GB was; it has been taken out of the page table. */
static void fill_table(struct vm_area_struct *vma, unsigned long addr, pud_t table, pud_t old)
{
	pgprot_t prot = __pgprot(pud_flags(old) & ~_PAGE_SPECIAL);
	unsigned long i;
	pmd_t *pmdp = pmd_offset(&table, addr);

	for (i = 0; i < GIGABYTE_SLOTS; i++) {
		struct folio *folio = folio_of(old, i);

		/* The reference stays that of the entry. As in release(): counted twice a pin would be missed. */
		WRITE_ONCE(folio->private, NULL);
		smp_mb();
		compat_add_rmap_2m(folio, vma);
		set_pmd_at(vma->vm_mm, addr + (i << SLOT_SHIFT), pmdp + i,
			   pfn_pmd(folio_pfn(folio), prot));
	}
	mod_node_page_state(folio_pgdat(folio_of(old, 0)), NR_FILE_MAPPED,
			    -(long)(PUD_SIZE >> PAGE_SHIFT));
}

/* An entry is to be made again. */
static void was_split(struct mm_struct *mm, unsigned long addr)
{
	struct hpmmap_ctx *ctx = hpmmap_ctx_get(mm);

	if (!ctx)
		return;
	atomic_long_inc(&ctx->stats.splits_1g);
	trace_hpmmap_gigabyte(ctx->id, addr, false);
	if (!queue_delayed_work(hpmmap_wq, &ctx->join.work,
				msecs_to_jiffies(READ_ONCE(ctx->join.delay_ms))))
		hpmmap_ctx_put(ctx);
}

static void split(struct vm_area_struct *vma, pud_t *pudp, unsigned long addr)
{
	struct mm_struct *mm = vma->vm_mm;
	pud_t table = __pud(0), old;
	spinlock_t *ptl;

	might_sleep();
	addr &= PUD_MASK;
	/* Without memory nothing of it stays mapped, and faults map it. */
	compat_pmd_alloc(mm, &table, addr);
	ptl = pud_lock(mm, pudp);
	old = *pudp;
	if (is_leaf(old)) {
		pudp_huge_get_and_clear(mm, addr, pudp);
		compat_flush_tlb_gigabyte(mm, addr, false);
		if (!pud_none(table)) {
			fill_table(vma, addr, table, old);
			/* A walk without locks finds it full. */
			smp_wmb();
			set_pud(pudp, table);
		}
	}
	spin_unlock(ptl);
	if (is_leaf(old) && pud_none(table))
		release(mm, old);
	else if (!is_leaf(old) && !pud_none(table))
		compat_pmd_free(mm, table);
	if (is_leaf(old))
		was_split(mm, addr);
}

/**
 * hpmmap_gigabyte_split() - map by entries of 2 MB what one of 1 GB maps
 * @vma: mapping of ours; mmap_lock held
 * @addr: an address in it
 *
 * Contents and rights stay. Does nothing where no entry of 1 GB is.
 */
void hpmmap_gigabyte_split(struct vm_area_struct *vma, unsigned long addr)
{
	pud_t *pudp = hpmmap_gigabyte_find(vma->vm_mm, addr);

	lockdep_assert_held(&vma->vm_mm->mmap_lock);
	if (pudp)
		split(vma, pudp, addr);
}

/* Could a table of entries be replaced by one entry: has it no table of 4 KB entries? */
static pud_t *find_table(struct mm_struct *mm, unsigned long addr)
{
	pud_t *pudp = find_pud(mm, addr);
	unsigned long i;
	pmd_t *pmdp;

	if (!pudp || pud_none(*pudp) || pud_leaf(*pudp) || pud_bad(*pudp))
		return NULL;
	pmdp = pmd_offset(pudp, addr);
	for (i = 0; i < GIGABYTE_SLOTS; i++)
		if (!pmd_none(pmdp[i]) && !pmd_leaf(pmdp[i]))
			return NULL;
	return pudp;
}

static void nothing(void *unused)
{
}

/**
 * hpmmap_gigabyte_join() - hpmmap_gigabyte_set() where entries of 2 MB are
 * @vma: as for that; mmap_lock held for writing
 * @addr: where
 * @first: the first folio of those that are mapped there
 *
 * Return: false where there is an entry or table of another kind.
 */
bool hpmmap_gigabyte_join(struct vm_area_struct *vma, unsigned long addr, struct folio *first)
{
	struct address_space *mapping = vma->vm_file->f_mapping;
	struct mm_struct *mm = vma->vm_mm;
	pud_t *pudp, old;
	spinlock_t *ptl;

	mmap_assert_write_locked(mm);
	/* No fault is under way, nor comes. */
	vma_start_write(vma);
	pudp = find_table(mm, addr);
	if (!pudp)
		return false;
	compat_zap(vma, addr, PUD_SIZE);
	/* unmap_mapping_range() walks tables without mmap_lock, gup_fast() without any. */
	i_mmap_lock_write(mapping);
	ptl = pud_lock(mm, pudp);
	old = *pudp;
	pud_clear(pudp);
	spin_unlock(ptl);
	compat_flush_tlb_gigabyte(mm, addr, true);
	smp_call_function(nothing, NULL, 1);
	i_mmap_unlock_write(mapping);
	compat_pmd_free(mm, old);
	return hpmmap_gigabyte_set(vma, addr, first);
}

/* Functions of the core. */

static noinline int handle_zap(struct mmu_gather *tlb, struct vm_area_struct *vma, pud_t *pudp,
			       unsigned long addr)
{
	struct mm_struct *mm = vma->vm_mm;
	spinlock_t *ptl = pud_lock(mm, pudp);
	pud_t old = *pudp;

	if (is_leaf(old))
		pudp_huge_get_and_clear(mm, addr, pudp);
	spin_unlock(ptl);
	if (!is_leaf(old))
		return 0;
	compat_flush_tlb_gigabyte(mm, addr, false);
	release(mm, old);
	return 1;
}

static noinline void handle_split(struct vm_area_struct *vma, pud_t *pudp, unsigned long addr)
{
	split(vma, pudp, addr);
}

/* Drops the entry that a border at an address would cut. */
static void drop(struct vm_area_struct *vma, unsigned long border)
{
	unsigned long addr = border & PUD_MASK;

	if (border != addr && addr >= vma->vm_start && vma->vm_end - addr >= PUD_SIZE &&
	    vma->vm_end > addr && hpmmap_gigabyte_find(vma->vm_mm, addr))
		compat_zap(vma, addr, PUD_SIZE);
}

static noinline void handle_adjust(struct vm_area_struct *vma, unsigned long start,
				   unsigned long end, unsigned long next)
{
	unsigned long border = end;
	struct vm_area_struct *after = compat_adjusted_next(vma, next, &border);

	drop(vma, start);
	drop(vma, end);
	if (after)
		drop(after, border);
	compat_vma_adjust(vma, start, end, next);
}

static noinline long handle_gup(struct mm_struct *mm, unsigned long start, unsigned long nr,
				unsigned int flags, struct page **pages, int *locked)
{
	unsigned long done = 0;
	long ret = 0;

	do {
		unsigned long addr = start + (done << PAGE_SHIFT);
		unsigned long some = min(nr - done, SLOT_PAGES - page_in_slot(addr));

		ret = compat_get_user_pages(mm, addr, some, flags, pages ? pages + done : NULL,
					    locked);
		if (ret > 0)
			done += ret;
		/* The core may have given mmap_lock up. */
		if (ret != some || (locked && !*locked))
			break;
	} while (done < nr);
	module_put(THIS_MODULE);
	return done ? done : ret;
}

/* For the protection of a userfaultfd, of which the core knows no entry of 1 GB: it looks again. */
static noinline int handle_change(struct mmu_gather *tlb, struct vm_area_struct *vma, pud_t *pudp,
				  unsigned long addr, pgprot_t prot, unsigned long flags)
{
	split(vma, pudp, addr);
	return 0;
}

#ifdef COMPAT_FOLIO_WALK
static noinline struct folio *handle_walk(struct folio_walk *fw, struct vm_area_struct *vma,
					  unsigned long addr, folio_walk_flags_t flags)
{
	hpmmap_gigabyte_split(vma, addr);
	return compat_folio_walk_start(fw, vma, addr, flags);
}
#endif

/* @vma: which argument the mapping is; -1: there is none, and the first is an address space */
static struct {
	const char *name;
	void *handler;
	int vma;
	unsigned long addr;
} functions[] = {
	{ "zap_huge_pud", handle_zap, 1 },
	{ "__split_huge_pud", handle_split, 0 },
	{ "vma_adjust_trans_huge", handle_adjust, 0 },
	{ "change_huge_pud", handle_change, 1 },
#ifdef COMPAT_FOLIO_WALK
	{ "folio_walk_start", handle_walk, 1 },
#endif
	{ "__get_user_pages", handle_gup, -1 },
};

static void notrace entry(unsigned long ip, unsigned long parent_ip, struct ftrace_ops *op,
			  struct ftrace_regs *fregs)
{
	const struct vm_area_struct *vma;
	unsigned int i = 0;

	while (ip - functions[i].addr > HPMMAP_ENTRY_OFFSET)
		if (++i == ARRAY_SIZE(functions))
			return;
	if (compat_is_own_text(parent_ip))
		return;
	if (functions[i].vma < 0) {
		if (compat_ftrace_arg(fregs, 2) == 1 ||
		    !hpmmap_ctx_has_gigabytes((void *)compat_ftrace_arg(fregs, 0)) ||
		    !try_module_get(THIS_MODULE))
			return;
	} else {
		/* The file of a mapping of ours keeps the module loaded. */
		vma = (void *)compat_ftrace_arg(fregs, functions[i].vma);
		if (!hpmmap_vma_is_ours(vma) ||
		    (functions[i].handler == handle_change &&
		     !(compat_ftrace_arg(fregs, 5) & COMPAT_CP_UFFD)))
			return;
	}
	compat_ftrace_set_ip(fregs, (unsigned long)functions[i].handler);
}

static struct ftrace_ops ops = { .func = entry, .flags = HPMMAP_GUARD_FLAGS };

/*
 * Protects installing. What has failed is not tried again: programs that run by then have address
 * spaces that are older than a second try.
 */
static DEFINE_MUTEX(begin_mutex);
static bool ready;
static int failed;

/**
 * hpmmap_gigabytes_begin() - entries of 1 GB may be made from here on
 *
 * Sleeps. For address spaces that do not exist yet.
 *
 * Return: 0; -EPERM where the administrator has not turned them on, -EOPNOTSUPP where the kernel,
 * or the CPU, lacks what they need, -EBUSY where another module or a live patch has one of the functions, or another errno: then there
 * are entries of 2 MB.
 */
int hpmmap_gigabytes_begin(void)
{
	int i, ret = 0;

	if (!READ_ONCE(allowed))
		return -EPERM;
	if (smp_load_acquire(&ready))
		return 0;
	if (!boot_cpu_has(X86_FEATURE_GBPAGES) || !compat_has_gigabytes())
		return -EOPNOTSUPP;
	mutex_lock(&begin_mutex);
	if (!ready && !failed) {
		unsigned long ips[ARRAY_SIZE(functions)];

		for (i = 0; i < ARRAY_SIZE(functions); i++) {
			functions[i].addr = compat_symbol(functions[i].name);
			ips[i] = functions[i].addr;
			if (!ips[i])
				failed = -EOPNOTSUPP;
		}
		if (!failed)
			failed = hpmmap_guard_install_all(&ops, ips, ARRAY_SIZE(ips));
		if (!failed)
			smp_store_release(&ready, true);
	}
	ret = failed;
	mutex_unlock(&begin_mutex);
	return ret;
}

/* "yes", "off", or what is in the way. Whether others have a function is known from the first try on. */
const char *hpmmap_gigabytes_possible(void)
{
	if (!boot_cpu_has(X86_FEATURE_GBPAGES))
		return "cpu";
	if (!compat_has_gigabytes())
		return "kernel";
	switch (READ_ONCE(failed)) {
	case 0:
		return READ_ONCE(allowed) ? "yes" : "off";
	case -EOPNOTSUPP:
		return "kernel";
	default:
		return "busy";
	}
}

void hpmmap_gigabytes_exit(void)
{
	if (ready)
		hpmmap_guard_remove(&ops);
}

#else

int hpmmap_gigabytes_begin(void)
{
	return -EOPNOTSUPP;
}
const char *hpmmap_gigabytes_possible(void) { return "kernel"; }
void hpmmap_gigabytes_exit(void) { }
pud_t *hpmmap_gigabyte_find(struct mm_struct *mm, unsigned long addr) { return NULL; }
bool hpmmap_gigabyte_may(struct vm_area_struct *vma, unsigned long addr) { return false; }
bool hpmmap_gigabyte_is_done(struct vm_area_struct *vma, unsigned long addr) { return false; }
bool hpmmap_gigabyte_set(struct vm_area_struct *vma, unsigned long addr, struct folio *first)
{
	return false;
}
bool hpmmap_gigabyte_protect(struct mm_struct *mm, unsigned long addr) { return false; }
bool hpmmap_gigabyte_is_alone(struct mm_struct *mm, unsigned long addr, struct folio *first)
{
	return false;
}
bool hpmmap_gigabyte_unprotect(struct vm_area_struct *vma, unsigned long addr) { return false; }
void hpmmap_gigabyte_split(struct vm_area_struct *vma, unsigned long addr) { }
void hpmmap_gigabytes_drop(struct vm_area_struct *vma, unsigned long start, unsigned long end) { }
bool hpmmap_gigabyte_join(struct vm_area_struct *vma, unsigned long addr, struct folio *first)
{
	return false;
}

#endif
