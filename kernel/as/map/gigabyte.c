// SPDX-License-Identifier: GPL-2.0
/*
 * Entries of 1 GB, over 512 folios of 2 MB that follow each other.
 *
 * Such an entry has a reference to each of its folios, so what a block's references say
 * stays true: a block without others is mapped nowhere. It is in no reverse map; each folio has a
 * count of the entries that refer to it. An empty table is kept for each, for the entries of 2 MB that
 * it is split into, so a split needs no memory.
 *
 * An entry of 2 MB and one of 1 GB in its place are the same translation. Each takes the other's
 * place by one store: no access takes a fault, and no secondary MMU need be told.
 *
 * The core knows entries of this size only of devices, so some of its functions are redirected for
 * mappings of blocks, from before the first entry is made until the module is unloaded
 * (docs/design/gigabytes.md).
 *
 * An address space that exists before the functions are redirected may have a task in one of
 * them. A job's programs are executed after that. A mount with pagesize=1G is made after that, and each of
 * these functions is told a mapping, which is younger, except get_user_pages. That holds mmap_lock from its
 * beginning to its end, so none from before is under way once mmap(2) has had the lock for writing.
 */
#include <linux/mmu_context.h>
#include <linux/smp.h>

#include "hook.h"
#include "hpmmap.h"
#include "mem/block/nodes.h"
#include "as/own/ctx.h"
#include "as/map/gigabyte.h"
#include "as/map/vma.h"
#include "trace.h"

/* For launches and mounts from then on. */
static bool allowed = true;
module_param_named(gigabytes, allowed, bool, 0644);
MODULE_PARM_DESC(gigabytes, "--page-size 1G and pagesize=1G make page-table entries of 1 GB (default: 1)");

/*
 * The entry of an address's gigabyte, of whatever kind; NULL without a table for it. mmap_lock is
 * held.
 */
pud_t *hpmmap_gigabyte_pud(struct mm_struct *mm, unsigned long addr)
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

/* The entry of 1 GB at an address; NULL where a table, or nothing, maps it. mmap_lock is held. */
pud_t *hpmmap_gigabyte_find(struct mm_struct *mm, unsigned long addr)
{
	pud_t *pudp = hpmmap_gigabyte_pud(mm, addr);

	return pudp && hpmmap_is_gigabyte(READ_ONCE(*pudp)) ? pudp : NULL;
}

/* The same with the lock of the entry held; NULL: none is. */
pud_t *hpmmap_gigabyte_lock(struct mm_struct *mm, unsigned long addr, spinlock_t **ptlp)
{
	pud_t *pudp = hpmmap_gigabyte_find(mm, addr);

	*ptlp = NULL;
	if (likely(!pudp))
		return NULL;
	*ptlp = pud_lock(mm, pudp);
	if (hpmmap_is_gigabyte(*pudp))
		return pudp;
	spin_unlock(*ptlp);
	*ptlp = NULL;
	return NULL;
}

/* Has gigabytes joined after a while. The reference to the context is the work's then. */
void hpmmap_gigabyte_join_later(struct hpmmap_ctx *ctx)
{
	if (!queue_delayed_work(hpmmap_wq, &ctx->join.work,
				msecs_to_jiffies(READ_ONCE(ctx->join.delay_ms))))
		hpmmap_ctx_put(ctx);
}

atomic_long_t hpmmap_gigabyte_counts[HPMMAP_GIGABYTE_NR_COUNTS];

/* Told of splits in address spaces without a context. */
static void (*on_split)(struct mm_struct *mm);

/* Set before there can be entries. @fn may be called with spinlocks held. */
void hpmmap_gigabytes_on_split(void (*fn)(struct mm_struct *mm))
{
	on_split = fn;
}

#ifdef COMPAT_GIGABYTES

/* The functions of the core are redirected: there may be entries. */
static bool ready;

/* Address spaces that have, or had, entries; by hash. Set with mmap_lock held for writing, and never cleared. */
static DECLARE_BITMAP(have_entries, 1 << 12);

static unsigned int bit_of(const struct mm_struct *mm)
{
	return hash_ptr(mm, 12);
}

static struct folio *folio_of(pud_t pud, unsigned long i)
{
	return hpmmap_folio_nth((struct folio *)pfn_to_page(pud_pfn(pud)), i);
}

/*
 * Counts memory that an entry maps, beside the reverse map, or -1: that it maps no more. What several
 * processes may map by such entries is not counted: the core counts it once.
 */
static void count(const struct vm_area_struct *vma, pud_t entry, int sign)
{
	if (hpmmap_vma_is_ours(vma))
		mod_node_page_state(folio_pgdat(folio_of(entry, 0)), NR_FILE_MAPPED,
				    sign * (long)(PUD_SIZE >> PAGE_SHIFT));
}

/*
 * The empty tables that the entries of one table keep, one for each. The core has no use for this
 * field of a table's page, and wants it to be zero when the page is allocated and freed. The lock of the
 * entries protects it. The first word of each table is the next one.
 */
static unsigned long *kept_tables(pud_t *pudp)
{
	return &virt_to_ptdesc(pudp)->__page_mapping;
}

static void keep_table(pud_t *pudp, pud_t table)
{
	unsigned long *first = (unsigned long *)pud_pgtable(table);

	*first = *kept_tables(pudp);
	*kept_tables(pudp) = (unsigned long)first;
}

/* For an entry that goes. */
static pud_t take_table(pud_t *pudp)
{
	unsigned long *first = (unsigned long *)*kept_tables(pudp);

	*kept_tables(pudp) = *first;
	*first = 0;
	return __pud(_PAGE_TABLE | __pa(first));
}

/* An entry is gone from the page table and all TLBs, and so is its table. */
static void release(struct vm_area_struct *vma, pud_t old, pud_t table)
{
	struct mm_struct *mm = vma->vm_mm;
	struct folio *first = folio_of(old, 0);
	unsigned long i;

	compat_pmd_free(mm, table);
	compat_add_rss(mm, first, -(long)(PUD_SIZE >> PAGE_SHIFT));
	count(vma, old, -1);
#pragma GCC unroll 16
	for (i = 0; i < GIGABYTE_SLOTS; i++) {
		struct folio *folio = hpmmap_folio_nth(first, i);

		/* A reference that is not counted is one too many, never one too few. The module's stays. */
		atomic_long_dec(hpmmap_folio_gigabytes(folio));
		smp_mb__before_atomic();
		page_ref_dec(&folio->page);
	}
}

/* Does a mapping cover a gigabyte from its start? */
static bool covers(const struct vm_area_struct *vma, unsigned long addr)
{
	return addr >= vma->vm_start && addr < vma->vm_end && vma->vm_end - addr >= PUD_SIZE;
}

/* Could a mapping have an entry of 1 GB at an address, if its blocks follow each other? */
bool hpmmap_gigabyte_may(struct vm_area_struct *vma, unsigned long addr)
{
	lockdep_assert_held(&vma->vm_mm->mmap_lock);
	return !(addr & ~PUD_MASK) && covers(vma, addr) && !userfaultfd_armed(vma) &&
	       compat_finds_normal_page(vma);
}

/* Is an entry of 1 GB there, as its mapping allows? */
bool hpmmap_gigabyte_is_done(struct vm_area_struct *vma, unsigned long addr)
{
	pud_t *pudp = hpmmap_gigabyte_find(vma->vm_mm, addr);

	lockdep_assert_held(&vma->vm_mm->mmap_lock);
	return pudp && (pud_write(READ_ONCE(*pudp)) || !(vma->vm_flags & VM_WRITE));
}

/* Bits that may differ between an entry of 2 MB and that of 1 GB which takes its place. */
#define MAY_DIFFER (_PAGE_ACCESSED | _PAGE_DIRTY_BITS | _PAGE_SOFT_DIRTY | _PAGE_SPECIAL)

/* Is an entry of 2 MB another translation than its part of one of 1 GB? That becomes soft-dirty with it. */
static bool differs(pmd_t pmd, unsigned long i, pud_t *entry)
{
	if (pmd_soft_dirty(pmd))
		*entry = pud_mksoft_dirty(*entry);
	return pmd_pfn(pmd) != folio_pfn(folio_of(*entry, i)) ||
	       (pmd_flags(pmd) ^ pud_flags(*entry)) & ~MAY_DIFFER;
}

/*
 * Makes the entries of a table such that one of 1 GB can take their place: each is none, or the same
 * translation with the same rights. False where there are tables of 4 KB entries below.
 */
static bool align_table(struct vm_area_struct *vma, unsigned long addr, pud_t table, pud_t *entry)
{
	pmd_t *pmdp = pmd_offset(&table, addr);
	bool differ = false;
	unsigned long i;

	for (i = 0; i < GIGABYTE_SLOTS; i++) {
		if (pmd_none(pmdp[i]))
			continue;
		if (!pmd_leaf(pmdp[i]))
			return false;
		differ |= differs(pmdp[i], i, entry);
	}
	if (differ)
		compat_zap(vma, addr, PUD_SIZE);
	return true;
}

/*
 * The references of what an entry maps become its own: those of entries of 2 MB, new ones where
 * there are none: @joins, there may be some. Its folios become pages of @mapping; NULL: they stay
 * what they are. Returns how many references are new.
 */
static __always_inline long take_references(struct vm_area_struct *vma, unsigned long addr, pud_t table,
					    pud_t entry, struct address_space *mapping, bool joins)
{
	struct folio *first = folio_of(entry, 0);
	pmd_t *pmdp = pmd_offset(&table, addr);
	unsigned long i;
	long nr = 0;

#pragma GCC unroll 16
	for (i = 0; i < GIGABYTE_SLOTS; i++) {
		struct folio *folio = hpmmap_folio_nth(first, i);

		if (!joins || mapping) {
			folio->mapping = mapping;
			folio->index = (addr >> PAGE_SHIFT) + (i << SLOT_ORDER);
		}
		if (!joins || pmd_none(pmdp[i])) {
			folio_get(folio);
			nr++;
		} else {
			compat_remove_rmap_2m(folio, vma);
		}
		/* As in release(). */
		smp_mb__before_atomic();
		atomic_long_inc(hpmmap_folio_gigabytes(folio));
	}
	return nr;
}

static void nothing(void *unused)
{
}

/* A table is not in the page table any more, and becomes that of the entry in its place. */
static void empty_table(struct mm_struct *mm, unsigned long addr, pud_t table)
{
	pmd_t *pmdp = pmd_offset(&table, addr);
	unsigned long i;

	compat_flush_tlb_gigabyte(mm, addr, true);
	/* gup_fast() takes no lock. It runs on CPUs that use the address space. */
	on_each_cpu_mask(mm_cpumask(mm), nothing, NULL, 1);
	for (i = 0; i < GIGABYTE_SLOTS; i++)
		if (!pmd_none(pmdp[i]))
			pmdp_huge_get_and_clear(mm, addr + (i << SLOT_SHIFT), pmdp + i);
}

/*
 * An entry takes the place of a table; @joins: which has entries of 2 MB. Locks as for
 * hpmmap_gigabyte_set(), and i_mmap_rwsem of the mapping's file.
 */
static void replace_table(struct vm_area_struct *vma, unsigned long addr, pud_t *pudp, pud_t table,
			  pud_t entry, struct address_space *mapping, bool joins)
{
	struct mm_struct *mm = vma->vm_mm;
	spinlock_t *ptl;
	long nr;

	if (!test_bit(bit_of(mm), have_entries))
		set_bit(bit_of(mm), have_entries);
	ptl = pud_lock(mm, pudp);
	/* One loop for each, without a look at what is known. */
	nr = joins ? take_references(vma, addr, table, entry, mapping, true) :
		     take_references(vma, addr, table, entry, mapping, false);
	set_pud_at(mm, addr, pudp, entry);
	spin_unlock(ptl);
	compat_add_rss(mm, folio_of(entry, 0), nr * SLOT_PAGES);
	count(vma, entry, 1);
	if (joins)
		empty_table(mm, addr, table);
	/* Until here nothing splits this entry, and the others have theirs. */
	ptl = pud_lock(mm, pudp);
	keep_table(pudp, table);
	spin_unlock(ptl);
}

static pud_t entry_for(struct vm_area_struct *vma, unsigned long pfn, bool write)
{
	pud_t entry = pud_mkspecial(pud_mkyoung(pud_mkhuge(pfn_pud(pfn, vma->vm_page_prot))));

	return write ? pud_mkwrite(pud_mkdirty(entry)) : pud_wrprotect(entry);
}

/*
 * Maps a gigabyte by one entry, in an accessible mapping of ours for which hpmmap_gigabyte_may() holds.
 * @first: its first folio; 511 others follow it, all of blocks that cannot leave their store now, with
 * nothing stale. @mapping: that of the context's file, which they are pages of, by their addresses.
 *
 * mmap_lock is held for writing. Walks of the core that hold it for reading, or the lock of the
 * mapping or of the file alone, do not expect an entry where one was gone a moment ago, and would
 * take it for a table. Returns false where entries of 4 KB are, or without memory for tables.
 */
bool hpmmap_gigabyte_set(struct vm_area_struct *vma, unsigned long addr, struct folio *first,
			 struct address_space *mapping)
{
	struct address_space *file = vma->vm_file->f_mapping;
	pud_t entry = entry_for(vma, folio_pfn(first), vma->vm_flags & VM_WRITE), *pudp, table;
	struct mm_struct *mm = vma->vm_mm;
	bool joins;

	mmap_assert_write_locked(mm);
	vma_start_write(vma);
	pudp = compat_pud_alloc(mm, addr);
	if (!pudp || pud_leaf(*pudp))
		return false;
	table = *pudp;
	joins = !pud_none(table);
	if (!joins)
		compat_pmd_alloc(mm, &table, addr);
	if (pud_none(table) || (joins && !align_table(vma, addr, table, &entry)))
		return false;
	i_mmap_lock_write(file);
	replace_table(vma, addr, pudp, table, entry, mapping, joins);
	i_mmap_unlock_write(file);
	return true;
}

/* Is a table full of entries that one of 1 GB can take the place of? Which: out. */
static bool is_joinable(struct vm_area_struct *vma, unsigned long addr, pud_t table, pud_t *entry)
{
	pmd_t *pmdp;
	unsigned long i;

	if (pud_none(table) || pud_bad(table))
		return false;
	pmdp = pmd_offset(&table, addr);
	if (!IS_ALIGNED(pmd_pfn(*pmdp), GIGABYTE_SLOTS << SLOT_ORDER))
		return false;
	*entry = entry_for(vma, pmd_pfn(*pmdp), pmd_write(*pmdp));
	for (i = 0; i < GIGABYTE_SLOTS; i++)
		if (!pmd_present(pmdp[i]) || !pmd_leaf(pmdp[i]) || differs(pmdp[i], i, entry))
			return false;
	return true;
}

/* Calls of hpmmap_gigabyte_unmap() that are under way, by file. */
static atomic_t unmapping[16];

static atomic_t *unmapping_of(const struct address_space *mapping)
{
	return &unmapping[hash_ptr(mapping, ilog2(ARRAY_SIZE(unmapping)))];
}

/*
 * Maps by one entry what 512 of 2 MB map in a mapping of a file, or a window, as for
 * hpmmap_gigabyte_set(). What is behind the addresses does not matter: each entry of 2 MB has a
 * reference to its block, and whatever takes the block away finds the entry of 1 GB in its place by the
 * file's i_mmap. @ctx: NULL where there is none. @fresh: they were mapped just now. Returns 0; -EAGAIN
 * where it may be possible later, -EINVAL where something else is mapped.
 */
int hpmmap_gigabyte_join(struct hpmmap_ctx *ctx, struct vm_area_struct *vma, unsigned long addr,
			 bool fresh)
{
	struct address_space *file = vma->vm_file->f_mapping;
	pud_t *pudp, entry;
	int ret = -EINVAL;

	mmap_assert_write_locked(vma->vm_mm);
	vma_start_write(vma);
	/* Others have the file, too. */
	if (!i_mmap_trylock_write(file))
		return -EAGAIN;
	pudp = hpmmap_gigabyte_pud(vma->vm_mm, addr);
	if (atomic_read(unmapping_of(file))) {
		ret = -EAGAIN;
	} else if (pudp && is_joinable(vma, addr, *pudp, &entry)) {
		/* So that KVM maps the gigabyte by one entry, too. */
		compat_notify_gigabyte(vma->vm_mm, addr, true);
		replace_table(vma, addr, pudp, *pudp, entry, NULL, true);
		compat_notify_gigabyte(vma->vm_mm, addr, false);
		if (!ctx)
			atomic_long_inc(&hpmmap_gigabyte_counts[fresh ? HPMMAP_GIGABYTE_ENTRIES :
									HPMMAP_GIGABYTE_JOINS]);
		else
			atomic_long_inc(fresh ? &ctx->stats.entries_1g : &ctx->stats.joins_1g);
		trace_hpmmap_gigabyte(ctx ? ctx->id : 0, addr, true);
		ret = 0;
	}
	i_mmap_unlock_write(file);
	return ret;
}

/*
 * Takes the right to write away, as hpmmap_pgmap_protect_run(), of all of a gigabyte. False
 * where no entry of 1 GB is.
 */
bool hpmmap_gigabyte_protect(struct mm_struct *mm, unsigned long addr)
{
	spinlock_t *ptl;
	pud_t *pudp = hpmmap_gigabyte_lock(mm, addr, &ptl);

	mmap_assert_write_locked(mm);
	if (!pudp)
		return false;
	set_pud_at(mm, addr & PUD_MASK, pudp, pud_mkclean(pud_wrprotect(*pudp)));
	spin_unlock(ptl);
	return true;
}

/*
 * Is a gigabyte, that begins with a folio, mapped by one entry, and does nobody refer to any of its
 * folios but that and the module? mmap_lock held.
 */
bool hpmmap_gigabyte_is_alone(struct mm_struct *mm, unsigned long addr, struct folio *first)
{
	spinlock_t *ptl;
	pud_t *pudp = hpmmap_gigabyte_lock(mm, addr, &ptl);
	unsigned long i;
	bool ret;

	if (!pudp)
		return false;
	ret = pud_pfn(*pudp) == folio_pfn(first);
	for (i = 0; ret && i < GIGABYTE_SLOTS; i++)
		ret = folio_ref_count(folio_of(*pudp, i)) == 2;
	spin_unlock(ptl);
	return ret;
}

/* Gives the right to write back. Returns whether the entry was changed. */
bool hpmmap_gigabyte_unprotect(struct vm_area_struct *vma, unsigned long addr)
{
	spinlock_t *ptl;
	pud_t *pudp;
	bool ret;

	lockdep_assert_held(&vma->vm_mm->mmap_lock);
	if (!(vma->vm_flags & VM_WRITE) || userfaultfd_armed(vma))
		return false;
	pudp = hpmmap_gigabyte_lock(vma->vm_mm, addr, &ptl);
	if (!pudp)
		return false;
	ret = !pud_write(*pudp);
	if (ret)
		set_pud_at(vma->vm_mm, addr, pudp, pud_mkwrite(pud_mkdirty(*pudp)));
	spin_unlock(ptl);
	return ret;
}

/* 512 entries of 2 MB, as one of 1 GB is; in a table that is in no page table yet. */
static void fill_table(struct vm_area_struct *vma, unsigned long addr, pud_t old, pud_t table)
{
	pgprot_t prot = __pgprot(pud_flags(old) & ~_PAGE_SPECIAL);
	pmd_t *pmdp = pmd_offset(&table, addr);
	unsigned long i;

	for (i = 0; i < GIGABYTE_SLOTS; i++) {
		struct folio *folio = folio_of(old, i);

		/* The reference stays that of the entry. As in release(): counted twice a pin would be missed. */
		atomic_long_dec(hpmmap_folio_gigabytes(folio));
		smp_mb__after_atomic();
		compat_add_rmap_2m(folio, vma);
		set_pmd_at(vma->vm_mm, addr + (i << SLOT_SHIFT), pmdp + i,
			   pfn_pmd(folio_pfn(folio), prot));
	}
	count(vma, old, -1);
}

/* An entry is to be made again. */
static void was_split(struct mm_struct *mm, unsigned long addr)
{
	struct hpmmap_ctx *ctx = hpmmap_ctx_get(mm);

	atomic_long_inc(ctx ? &ctx->stats.splits_1g : &hpmmap_gigabyte_counts[HPMMAP_GIGABYTE_SPLITS]);
	trace_hpmmap_gigabyte(ctx ? ctx->id : 0, addr, false);
	if (!ctx) {
		on_split(mm);
		return;
	}
	WRITE_ONCE(ctx->join.split, true);
	hpmmap_gigabyte_join_later(ctx);
}

/*
 * Maps by entries of 2 MB what one of 1 GB maps, if one is at an address. Contents and rights stay.
 * mmap_lock is held, or the lock of the mapping, or its file's i_mmap_rwsem. May sleep.
 */
void hpmmap_gigabyte_split(struct vm_area_struct *vma, unsigned long addr)
{
	struct mm_struct *mm = vma->vm_mm;
	spinlock_t *ptl, *below;
	pud_t *pudp, table;

	if (!hpmmap_gigabyte_find(mm, addr))
		return;
	/*
	 * Whoever finds the table takes away and frees parts, and tells KVM of those alone: before there
	 * is one KVM must have forgotten the gigabyte, and it must not map all of it again until then.
	 */
	compat_notify_gigabyte(mm, addr, true);
	pudp = hpmmap_gigabyte_lock(mm, addr, &ptl);
	if (!pudp)
		goto out;
	addr &= PUD_MASK;
	table = take_table(pudp);
	fill_table(vma, addr, *pudp, table);
	/* Rights do not change before no TLB has the entry of 1 GB: it must not contradict others. */
	below = pmd_lockptr(mm, pmd_offset(&table, addr));
	if (below != ptl)
		spin_lock(below);
	/* A walk without locks finds it full. */
	smp_wmb();
	set_pud_at(mm, addr, pudp, table);
	compat_flush_tlb_gigabyte(mm, addr, false);
	if (below != ptl)
		spin_unlock(below);
	spin_unlock(ptl);
	was_split(mm, addr);
out:
	compat_notify_gigabyte(mm, addr, false);
}

/* Functions of the core. */

static noinline int handle_zap(struct mmu_gather *tlb, struct vm_area_struct *vma, pud_t *pudp,
			       unsigned long addr)
{
	struct mm_struct *mm = vma->vm_mm;
	pud_t old, table;
	spinlock_t *ptl;

	if (!hpmmap_gigabyte_lock(mm, addr, &ptl))
		return 0;
	old = pudp_huge_get_and_clear(mm, addr, pudp);
	table = take_table(pudp);
	spin_unlock(ptl);
	compat_flush_tlb_gigabyte(mm, addr, false);
	release(vma, old, table);
	return 1;
}

static noinline void handle_split(struct vm_area_struct *vma, pud_t *pudp, unsigned long addr)
{
	hpmmap_gigabyte_split(vma, addr);
}

/* Splits the entry that a border at an address would cut. */
static void cut(struct vm_area_struct *vma, unsigned long border)
{
	unsigned long addr = border & PUD_MASK;

	if (border != addr && covers(vma, addr))
		hpmmap_gigabyte_split(vma, addr);
}

/* For debuggers and others: the first page of an entry of 1 GB, which is special; its lock is held. */
struct page *hpmmap_gigabyte_page(struct vm_area_struct *vma, unsigned long addr)
{
	pud_t *pudp = hpmmap_gigabyte_find(vma->vm_mm, addr);

	return pudp ? pfn_to_page(pud_pfn(*pudp)) : NULL;
}

/* Splits what a border at a page of a file cuts, in mappings of a part of its tree. */
static void cut_file(struct rb_node *node, pgoff_t border)
{
	struct vm_area_struct *vma = rb_entry_safe(node, struct vm_area_struct, shared.rb);

	/* As deep as the tree, which has the last page below each node, and is sorted by the first. */
	if (!vma || vma->shared.rb_subtree_last < border)
		return;
	cut_file(node->rb_left, border);
	if (vma->vm_pgoff > border)
		return;
	if (border - vma->vm_pgoff < vma_pages(vma))
		cut(vma, vma->vm_start + ((border - vma->vm_pgoff) << PAGE_SHIFT));
	cut_file(node->rb_right, border);
}

/*
 * unmap_mapping_range() where entries of 1 GB may be: the core does not split without mmap_lock what the
 * range cuts. Until it is unmapped hpmmap_gigabyte_join() does nothing.
 */
void hpmmap_gigabyte_unmap(struct address_space *mapping, loff_t start, loff_t len, int even_cows)
{
	atomic_inc(unmapping_of(mapping));
	i_mmap_lock_read(mapping);
	if (ready) {
		cut_file(mapping->i_mmap.rb_root.rb_node, start >> PAGE_SHIFT);
		if (len)
			cut_file(mapping->i_mmap.rb_root.rb_node, (start + len) >> PAGE_SHIFT);
	}
	i_mmap_unlock_read(mapping);
	unmap_mapping_range(mapping, start, len, even_cows);
	atomic_dec(unmapping_of(mapping));
}

static noinline void handle_adjust(struct vm_area_struct *vma, unsigned long start,
				   unsigned long end, unsigned long next)
{
	unsigned long border = end;
	struct vm_area_struct *after = compat_adjusted_next(vma, next, &border);

	cut(vma, start);
	cut(vma, end);
	if (after)
		cut(after, border);
	compat_vma_adjust(vma, start, end, next);
}

/*
 * References to pages of one slot, as get_user_pages() takes them, if an entry of 1 GB maps it. The core's
 * look at such an entry without its lock, and again with it: where it is split in between they take the
 * table for an entry, and give out whatever page is there. So they never see one: returns 0 where they are
 * to look, and none is there then. None appears while mmap_lock is held.
 */
static unsigned long take_pages(struct mm_struct *mm, unsigned long addr, unsigned long nr,
				unsigned int flags, struct page **pages)
{
	struct vm_area_struct *vma = vma_lookup(mm, addr);
	/* One of both, if pages are asked for. */
	bool write = flags & FOLL_WRITE, pins = pages && !(flags & FOLL_GET), plain;
	struct folio *folio;
	spinlock_t *ptl;
	unsigned long i;
	pud_t *pudp;

	lockdep_assert_held(&mm->mmap_lock);
	if (!vma || !hpmmap_vma_shows_blocks(vma))
		return 0;
	pudp = hpmmap_gigabyte_lock(mm, addr, &ptl);
	if (!pudp)
		return 0;
	folio = folio_of(*pudp, (addr & ~PUD_MASK) >> SLOT_SHIFT);
	/* With as many references as a folio can count, the core refuses. */
	plain = !(flags & (FOLL_ANON | FOLL_SPLIT_PMD)) && !(vma->vm_flags & (VM_IO | VM_PFNMAP)) &&
		vma->vm_flags & (write ? VM_WRITE : VM_READ) &&
		(pud_write(*pudp) || !(write || pins)) && folio_ref_count(folio) > 0 &&
		arch_vma_access_permitted(vma, write, false, false);
	if (plain && pages) {
		folio_ref_add(folio, nr);
		if (pins) {
			atomic_add(nr, &folio->_pincount);
			node_stat_mod_folio(folio, NR_FOLL_PIN_ACQUIRED, nr);
		}
		for (i = 0; i < nr; i++)
			pages[i] = folio_page(folio, page_in_slot(addr) + i);
	}
	spin_unlock(ptl);
	if (!plain)
		hpmmap_gigabyte_split(vma, addr);
	return plain ? nr : 0;
}

static noinline long handle_gup(struct mm_struct *mm, unsigned long start, unsigned long nr,
				unsigned int flags, struct page **pages, int *locked)
{
	unsigned long done = 0;
	long ret = 0;

	start = untagged_addr_remote(mm, start);
	do {
		unsigned long addr = start + (done << PAGE_SHIFT);
		unsigned long some = min(nr - done, SLOT_PAGES - page_in_slot(addr));
		struct page **out = pages ? pages + done : NULL;

		if (fatal_signal_pending(current)) {
			ret = -EINTR;
			break;
		}
		cond_resched();
		ret = take_pages(mm, addr, some, flags, out) ?:
		      compat_get_user_pages(mm, addr, some, flags, out, locked);
		if (ret > 0)
			done += ret;
		/* The core may have given mmap_lock up. */
		if (ret != some || (locked && !*locked))
			break;
	} while (done < nr);
	module_put(THIS_MODULE);
	return done ? done : ret;
}

/*
 * A userfaultfd protects memory: the core knows no entry of 1 GB there, and looks again after the split. An
 * entry becomes inaccessible: it is dropped, since the core would find no page in it.
 */
static noinline int handle_change(struct mmu_gather *tlb, struct vm_area_struct *vma, pud_t *pudp,
				  unsigned long addr, pgprot_t prot, unsigned long flags)
{
	if (!(flags & COMPAT_CP_UFFD))
		return handle_zap(tlb, vma, pudp, addr);
	hpmmap_gigabyte_split(vma, addr);
	return 0;
}

/* A userfaultfd's fork copies page tables of all files. The core looks again, and finds a table. */
static noinline int handle_copy(struct mm_struct *to, struct mm_struct *from, pud_t *to_pudp,
				pud_t *from_pudp, unsigned long addr, struct vm_area_struct *vma)
{
	hpmmap_gigabyte_split(vma, addr);
	return -EAGAIN;
}

/* mremap(2) is about to move page tables: the core would take an entry of 1 GB for a table. */
static noinline struct vm_area_struct *handle_move(struct vm_area_struct **vmap, unsigned long to,
						   unsigned long len, pgoff_t pgoff,
						   unsigned long fifth, unsigned long sixth,
						   unsigned long seventh)
{
	struct vm_area_struct *vma = *vmap;
	unsigned long addr = vma->vm_start + ((pgoff - vma->vm_pgoff) << PAGE_SHIFT);
	unsigned long end = min(vma->vm_end, addr + len);

	for (; addr < end; addr = (addr & PUD_MASK) + PUD_SIZE)
		hpmmap_gigabyte_split(vma, addr);
	return compat_copy_vma(vmap, to, len, pgoff, fifth, sixth, seventh);
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
	{ "copy_huge_pud", handle_copy, 5 },
	{ "copy_vma", handle_move, 0 },
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
		if (!test_bit(bit_of((void *)compat_ftrace_arg(fregs, 0)), have_entries) ||
		    !try_module_get(THIS_MODULE))
			return;
	} else {
		/* The file of such a mapping keeps the module loaded. */
		vma = (void *)compat_ftrace_arg(fregs, functions[i].vma);
		if (functions[i].handler == handle_move)
			vma = *(struct vm_area_struct **)vma;
		if (!hpmmap_vma_shows_blocks(vma) ||
		    (functions[i].handler == handle_change &&
		     (compat_ftrace_arg(fregs, 5) & MM_CP_PROT_NUMA ||
		      (compat_ftrace_arg(fregs, 4) & _PAGE_PRESENT &&
		       !(compat_ftrace_arg(fregs, 5) & COMPAT_CP_UFFD)))))
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
static int failed;

/* AMD's erratum 383, of CPUs of 2007 to 2011: entries of two sizes for one address may be fatal. */
static bool can_cpu(void)
{
	return boot_cpu_has(X86_FEATURE_GBPAGES) && !boot_cpu_has_bug(X86_BUG_AMD_TLB_MMATCH);
}

/*
 * Entries of 1 GB may be made from here on, as far as the head of this file says. Sleeps. Returns 0;
 * -EPERM where the administrator has turned them off, -EOPNOTSUPP where the kernel,
 * or the CPU, lacks what they need, -EBUSY where another module or a live patch has one of the
 * functions, or another errno: then there are entries of 2 MB.
 */
int hpmmap_gigabytes_begin(void)
{
	int i, ret;

	if (!READ_ONCE(allowed))
		return -EPERM;
	if (smp_load_acquire(&ready))
		return 0;
	if (!can_cpu() || !compat_has_gigabytes())
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
	if (!can_cpu())
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
bool hpmmap_gigabyte_may(struct vm_area_struct *vma, unsigned long addr) { return false; }
bool hpmmap_gigabyte_is_done(struct vm_area_struct *vma, unsigned long addr) { return false; }
bool hpmmap_gigabyte_set(struct vm_area_struct *vma, unsigned long addr, struct folio *first,
			 struct address_space *mapping)
{
	return false;
}
int hpmmap_gigabyte_join(struct hpmmap_ctx *ctx, struct vm_area_struct *vma, unsigned long addr,
			 bool fresh)
{
	return -EINVAL;
}
void hpmmap_gigabyte_unmap(struct address_space *mapping, loff_t start, loff_t len, int even_cows)
{
	unmap_mapping_range(mapping, start, len, even_cows);
}
bool hpmmap_gigabyte_protect(struct mm_struct *mm, unsigned long addr) { return false; }
bool hpmmap_gigabyte_is_alone(struct mm_struct *mm, unsigned long addr, struct folio *first)
{
	return false;
}
bool hpmmap_gigabyte_unprotect(struct vm_area_struct *vma, unsigned long addr) { return false; }
void hpmmap_gigabyte_split(struct vm_area_struct *vma, unsigned long addr) { }
#endif
