// SPDX-License-Identifier: GPL-2.0
/* madvise and process_madvise. */
#include "conf.h"

#include <linux/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED	24
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE		25
#endif

static void sub_content(struct run *r)
{
	pid_t pid = sub_process();

	if (pid == 0) {
		maps(r, r->base, r->unit * r->units);
		content(r, r->base, r->unit * r->units);
		_exit(0);
	}
	ended("sub", pid);
}

/* What every advice is asked. */
static void advises(struct run *r, int advice)
{
	ret("middle", madvise(U(r, 1), r->unit, advice));
	maps(r, r->base, r->unit * 3);
	content(r, r->base, r->unit * 3);
	sub_content(r);
	fill_pages(r, U(r, 1), r->unit, 300);
	ret("page", madvise(U(r, 1), PAGE, advice));
	ret("all", madvise(U(r, 0), r->unit * 3, advice));
	content(r, r->base, r->unit * 3);
}

/* And what it answers where it cannot be taken. */
static void refuses(struct run *r, int advice)
{
	ret("unaligned", madvise(U(r, 0) + 1, PAGE, advice));
	ret("no_length", madvise(U(r, 0), 0, advice));
	ret("wraps", madvise(U(r, 0), SIZE_MAX, advice));
	ret("far", madvise(U(r, 9), r->unit, advice));
	ret("munmap", munmap(U(r, 1), r->unit));
	ret("hole", madvise(U(r, 0), r->unit * 3, advice));
	content(r, r->base, r->unit * 3);
}

#define ADVICE(name, advice, flags)					\
	CASE(madvise, name, 3, flags) { advises(r, advice); }		\
	CASE(madvise, name##_errors, 3, ONCE) { refuses(r, advice); }

ADVICE(normal, MADV_NORMAL, 0)
ADVICE(random, MADV_RANDOM, 0)
ADVICE(sequential, MADV_SEQUENTIAL, 0)
ADVICE(willneed, MADV_WILLNEED, 0)
ADVICE(dontneed, MADV_DONTNEED, BIG)
ADVICE(free, MADV_FREE, BIG)
ADVICE(remove, MADV_REMOVE, 0)
ADVICE(dontfork, MADV_DONTFORK, 0)
ADVICE(dofork, MADV_DOFORK, 0)
ADVICE(mergeable, MADV_MERGEABLE, 0)
ADVICE(unmergeable, MADV_UNMERGEABLE, 0)
ADVICE(hugepage, MADV_HUGEPAGE, 0)
ADVICE(nohugepage, MADV_NOHUGEPAGE, 0)
ADVICE(dontdump, MADV_DONTDUMP, 0)
ADVICE(dodump, MADV_DODUMP, 0)
ADVICE(wipeonfork, MADV_WIPEONFORK, 0)
ADVICE(keeponfork, MADV_KEEPONFORK, 0)
ADVICE(cold, MADV_COLD, 0)
ADVICE(pageout, MADV_PAGEOUT, 0)
ADVICE(populate_read, MADV_POPULATE_READ, 0)
ADVICE(populate_write, MADV_POPULATE_WRITE, 0)
ADVICE(dontneed_locked, MADV_DONTNEED_LOCKED, 0)
ADVICE(collapse, MADV_COLLAPSE, 0)
ADVICE(guard_install, MADV_GUARD_INSTALL, 0)
ADVICE(unknown, 77, 0)

CASE(madvise, no_such_advice, 1, ONCE)
{
	static const int none[] = { -1, 5, 6, 7, 26, 50, 99, 104, 1 << 20 };

	for (size_t i = 0; i < ARRAY_SIZE(none); i++)
		ret("madvise", madvise(U(r, 0), r->unit, none[i]));
}

CASE(madvise, dontneed_pages, 3, 0)
{
	ret("first", madvise(U(r, 0), PAGE, MADV_DONTNEED));
	ret("last", madvise(U(r, 3) - PAGE, PAGE, MADV_DONTNEED));
	ret("across", madvise(U(r, 1) + r->unit / 2 / PAGE * PAGE, r->unit,
			      MADV_DONTNEED));
	content(r, r->base, r->unit * 3);
}

CASE(madvise, dontneed_read_only, 3, 0)
{
	ret("mprotect", mprotect(U(r, 0), r->unit, PROT_READ));
	ret("mprotect", mprotect(U(r, 1), r->unit, PROT_NONE));
	ret("madvise", madvise(U(r, 0), r->unit * 3, MADV_DONTNEED));
	ret("mprotect", mprotect(U(r, 0), r->unit * 3, RW));
	content(r, r->base, r->unit * 3);
}

CASE(madvise, dontneed_of_locked, 3, 0)
{
	ret("mlock", mlock(U(r, 1), r->unit));
	ret("dontneed", madvise(U(r, 0), r->unit * 3, MADV_DONTNEED));
	content(r, r->base, r->unit * 3);
	ret("locked", madvise(U(r, 0), r->unit * 3, MADV_DONTNEED_LOCKED));
	content(r, r->base, r->unit * 3);
	ret("free", madvise(U(r, 1), r->unit, MADV_FREE));
	ret("cold", madvise(U(r, 1), r->unit, MADV_COLD));
	ret("pageout", madvise(U(r, 1), r->unit, MADV_PAGEOUT));
}

CASE(madvise, dontneed_over_others, 4, 0)
{
	at(r, "file", mmap(U(r, 1), r->unit, RW, MAP_PRIVATE | MAP_FIXED,
			   memfd(r, r->unit, 500), 0));
	fill_pages(r, U(r, 1), r->unit, 700);
	at(r, "shared", mmap(U(r, 2), r->unit, RW, MAP_SHARED | MAP_ANONYMOUS |
			     MAP_FIXED, -1, 0));
	fill_pages(r, U(r, 2), r->unit, 700);
	ret("madvise", madvise(U(r, 0), r->unit * 4, MADV_DONTNEED));
	content(r, r->base, r->unit * 4);
}

CASE(madvise, dontneed_then_write, 3, BIG)
{
	ret("madvise", madvise(U(r, 1), r->unit, MADV_DONTNEED));
	fill_pages(r, U(r, 1), r->unit, 300);
	content(r, r->base, r->unit * 3);
}

CASE(madvise, free_then_write, 3, 0)
{
	ret("madvise", madvise(U(r, 0), r->unit * 3, MADV_FREE));
	fill_pages(r, U(r, 1), r->unit, 300);
	content(r, U(r, 1), r->unit);
}

CASE(madvise, fork_advice_is_undone, 3, 0)
{
	ret("dontfork", madvise(U(r, 1), r->unit, MADV_DONTFORK));
	vm_flags(U(r, 1), "dc");
	ret("dofork", madvise(U(r, 0), r->unit * 3, MADV_DOFORK));
	vm_flags(U(r, 1), "dc");
	sub_content(r);
	say("vmas=%d", vma_count(r->base, r->unit * 3));
}

CASE(madvise, wipe_advice_is_undone, 3, 0)
{
	ret("wipe", madvise(U(r, 1), r->unit, MADV_WIPEONFORK));
	vm_flags(U(r, 1), "wf");
	ret("keep", madvise(U(r, 0), r->unit * 3, MADV_KEEPONFORK));
	vm_flags(U(r, 1), "wf");
	sub_content(r);
}

CASE(madvise, wipe_in_every_generation, 3, 0)
{
	pid_t pid;

	ret("wipe", madvise(U(r, 1), r->unit, MADV_WIPEONFORK));
	pid = sub_process();
	if (pid == 0) {
		fill_pages(r, U(r, 1), r->unit, 300);
		vm_flags(U(r, 1), "wf");
		sub_content(r);
		_exit(0);
	}
	ended("sub", pid);
	content(r, r->base, r->unit * 3);
}

CASE(madvise, remove_of_shared, 3, 0)
{
	at(r, "shared", mmap(U(r, 1), r->unit, RW, MAP_SHARED | MAP_ANONYMOUS |
			     MAP_FIXED, -1, 0));
	fill_pages(r, U(r, 1), r->unit, 300);
	ret("madvise", madvise(U(r, 1), r->unit, MADV_REMOVE));
	content(r, r->base, r->unit * 3);
}

CASE(madvise, populate_protected, 3, 0)
{
	ret("mprotect", mprotect(U(r, 1), r->unit, PROT_READ));
	ret("read", madvise(U(r, 0), r->unit * 3, MADV_POPULATE_READ));
	ret("write", madvise(U(r, 0), r->unit * 3, MADV_POPULATE_WRITE));
	ret("mprotect", mprotect(U(r, 1), r->unit, PROT_NONE));
	ret("read", madvise(U(r, 0), r->unit * 3, MADV_POPULATE_READ));
	content(r, r->base, r->unit * 3);
}

CASE(madvise, populate_new, 3, BARE)
{
	at(r, "mmap", map(r->base, r->unit * 3, RW, MAP_NORESERVE |
			  MAP_FIXED_NOREPLACE));
	ret("madvise", madvise(r->base, r->unit * 3, MADV_POPULATE_WRITE));
	content(r, r->base, r->unit * 3);
}

CASE(madvise, flags_in_smaps, 3, 0)
{
	static const int advice[] = {
		MADV_SEQUENTIAL, MADV_RANDOM, MADV_DONTDUMP, MADV_NOHUGEPAGE,
	};

	for (size_t i = 0; i < ARRAY_SIZE(advice); i++) {
		ret("madvise", madvise(U(r, 1), r->unit, advice[i]));
		vm_flags(U(r, 0), "sr rr dc dd hg nh");
		vm_flags(U(r, 1), "sr rr dc dd hg nh");
	}
}

/* ---- From another place ----------------------------------------------------- */

static void process_advises(struct run *r, int advice)
{
	struct iovec part[] = { { U(r, 0), r->unit }, { U(r, 2), r->unit } };
	int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
	long n;

	if (self < 0)
		NOT_RUN("pidfd_open: %s", errno_name(errno));
	n = syscall(SYS_process_madvise, self, part, 2, advice, 0);
	if (n < 0)
		say("process_madvise=%s", errno_name(errno));
	else
		say("process_madvise=%s", in_units(r, n));
	content(r, r->base, r->unit * 3);
}

CASE(process_madvise, cold, 3, 0)
{
	process_advises(r, MADV_COLD);
}

CASE(process_madvise, pageout, 3, 0)
{
	process_advises(r, MADV_PAGEOUT);
}

CASE(process_madvise, willneed, 3, 0)
{
	process_advises(r, MADV_WILLNEED);
}

CASE(process_madvise, collapse, 3, 0)
{
	process_advises(r, MADV_COLLAPSE);
}

CASE(process_madvise, dontneed, 3, 0)
{
	process_advises(r, MADV_DONTNEED);
}

CASE(prctl, name_of_memory, 3, 0)
{
	ret("prctl", prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, U(r, 1), r->unit,
			   "named"));
	content(r, r->base, r->unit * 3);
}

CASE(prctl, no_thp, 3, ALONE)
{
	ret("prctl", prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0));
	at(r, "mmap", map(U(r, 3), r->unit, RW, MAP_FIXED_NOREPLACE));
	content(r, r->base, r->unit * 4);
	ret("mprotect", mprotect(U(r, 1), r->unit, PROT_READ));
	ret("madvise", madvise(U(r, 2), r->unit, MADV_DONTNEED));
	content(r, r->base, r->unit * 4);
}

CASE(prctl, read_implies_exec, 4, 0)
{
	ret("personality", personality(READ_IMPLIES_EXEC) < 0 ? -1 : 0);
	at(r, "mmap", map(U(r, 4), r->unit, RW, MAP_FIXED_NOREPLACE));
	at(r, "over", map(U(r, 1), r->unit, PROT_READ, MAP_FIXED));
	at(r, "write", map(U(r, 2), r->unit, PROT_WRITE, MAP_FIXED));
	ret("mprotect", mprotect(U(r, 3), r->unit, PROT_READ));
	maps(r, r->base, r->unit * 5);
	ret("brk", sbrk((intptr_t)r->unit) == (void *)-1 ? -1 : 0);
	maps(r, (char *)sbrk(0) - PAGE, PAGE);
	content(r, r->base, r->unit * 5);
}

CASE(prctl, rights_that_stay, 4, 0)
{
	ret("personality", personality(READ_IMPLIES_EXEC) < 0 ? -1 : 0);
	ret("mlock", mlock(U(r, 1), PAGE));
	ret("munlock", munlock(U(r, 1), PAGE));
	ret("wipeonfork", madvise(U(r, 3), r->unit, MADV_WIPEONFORK));
	maps(r, r->base, r->unit * 4);
	at(r, "mremap", mremap(U(r, 0), r->unit * 2, r->unit * 2, MREMAP_MAYMOVE | MREMAP_FIXED, U(r, 5)));
	maps(r, r->base, r->unit * 7);
	content(r, U(r, 5), r->unit * 2);
}

CASE(prctl, memory_merge, 3, ALONE)
{
	ret("prctl", prctl(67, 1, 0, 0, 0));
	at(r, "mmap", map(U(r, 3), r->unit, RW, MAP_FIXED_NOREPLACE));
	content(r, r->base, r->unit * 4);
}
