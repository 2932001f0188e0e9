// SPDX-License-Identifier: GPL-2.0
/*
 * How much of an address space is mapped, and by which entries.
 */
#include <linux/delay.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>

#include "hpmmap.h"
#include "as/mapped.h"
#include "as/pgmap.h"
#include "as/vma.h"

/* Entries that are looked at without letting go of mmap_lock. */
#define COUNT_AT_ONCE 512

/* Pages of zeros that are everybody's are special. */
static unsigned long count_ptes(pmd_t *pmdp, unsigned long start,
				unsigned long end)
{
	unsigned long addr, n = 0;
	pte_t *ptep;
	pmd_t pmd;

	rcu_read_lock();
	ptep = hpmmap_pgmap_peek(pmdp, start, &pmd);
	for (addr = start; ptep && addr < end; addr += PAGE_SIZE, ptep++) {
		pte_t pte = ptep_get(ptep);

		if (pte_present(pte) && !pte_special(pte))
			n++;
	}
	rcu_read_unlock();
	return n << PAGE_SHIFT;
}

/*
 * Whether a mapping of Linux is where memory of ours should be. The program's bss,
 * which execve has made, and what is left of the stack to grow are not.
 */
static bool stands_in(const struct vm_area_struct *vma)
{
	const struct mm_struct *mm = vma->vm_mm;

	return vma_is_anonymous((struct vm_area_struct *)vma) &&
	       !(vma->vm_flags & VM_GROWSDOWN) &&
	       (vma->vm_start < mm->start_code || vma->vm_end > mm->start_brk);
}

/* Counts some of what lies from @start on; returns how far, 0 at the end. */
static unsigned long count_some(struct mm_struct *mm, unsigned long start,
				struct hpmmap_mapped *mapped)
{
	struct vm_area_struct *vma;
	unsigned long addr, next;
	VMA_ITERATOR(vmi, mm, start);
	int left = COUNT_AT_ONCE;

	for_each_vma(vmi, vma) {
		bool ours = hpmmap_vma_is_ours(vma);

		if (!left--)
			return max(start, vma->vm_start);
		if (!ours && !stands_in(vma))
			continue;
		for (addr = max(start, vma->vm_start); addr < vma->vm_end;
		     addr = next) {
			pmd_t *pmdp = hpmmap_pgmap_pmd(mm, addr);

			if (!left--)
				return addr;
			/* Without a table of 2 MB entries there is nothing. */
			next = min(vma->vm_end, pmdp ?
				   (addr & SLOT_MASK) + SLOT_SIZE :
				   (addr & PUD_MASK) + PUD_SIZE);
			switch (hpmmap_pgmap_kind(pmdp)) {
			case HPMMAP_ENTRY_2M:
				*(ours ? &mapped->bytes_2m :
					 &mapped->bytes_linux) += next - addr;
				break;
			case HPMMAP_ENTRY_TABLE:
				*(ours ? &mapped->bytes_4k :
					 &mapped->bytes_linux) +=
					count_ptes(pmdp, addr, next);
				break;
			case HPMMAP_ENTRY_NONE:
				break;
			}
		}
	}
	return 0;
}

/* How long somebody who looks tries to get mmap_lock, in steps of 1 ms. */
#define COUNT_WAIT_STEPS 100

/* Never sleeps in the lock: who holds it may do so for as long as a server is away. */
static int count_lock(struct mm_struct *mm)
{
	int i;

	for (i = 0; !mmap_read_trylock(mm); i++) {
		if (fatal_signal_pending(current))
			return -EINTR;
		if (i == COUNT_WAIT_STEPS)
			return -EAGAIN;
		usleep_range(1000, 1100);
	}
	return 0;
}

/**
 * hpmmap_mapped_count() - how much is mapped by which entries
 * @mm: address space; its mmap_lock is taken again and again, so that nobody
 *	who looks is in the way of who maps
 * @mapped: out
 *
 * Return: 0, -EAGAIN where somebody has held mmap_lock too long, or -EINTR for
 * a process that is being killed.
 */
int hpmmap_mapped_count(struct mm_struct *mm, struct hpmmap_mapped *mapped)
{
	unsigned long addr = 0;
	int ret;

	*mapped = (struct hpmmap_mapped) {};
	do {
		ret = count_lock(mm);
		if (ret)
			return ret;
		addr = count_some(mm, addr, mapped);
		mmap_read_unlock(mm);
		if (fatal_signal_pending(current))
			return -EINTR;
		cond_resched();
	} while (addr);
	return 0;
}
