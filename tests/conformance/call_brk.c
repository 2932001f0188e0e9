// SPDX-License-Identifier: GPL-2.0
/* brk and sbrk. The C library's own use of the heap is over before. */
#include "conf.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Sets the break; says where it is relative to the start. */
static char *set(struct run *r, const char *name, char *start, char *want)
{
	char *got = (char *)syscall(SYS_brk, want);

	say("%s=%s%s", name, got == want ? "" : "not:",
	    in_units(r, got - start));
	return got;
}

static char *now(void)
{
	char *start = (char *)syscall(SYS_brk, 0);

	/* At a page, so that pages of pattern fit. */
	return (char *)syscall(SYS_brk, (char *)(((uintptr_t)start + PAGE - 1) &
						 ~(PAGE - 1)));
}

CASE(brk, grow, 0, 0)
{
	char *start = now();

	set(r, "brk", start, start + r->unit * 4);
	content(r, start, r->unit * 4);
	fill_pages(r, start, r->unit * 4, 0);
	content(r, start, r->unit * 4);
}

CASE(brk, shrink_and_grow, 0, 0)
{
	char *start = now();

	set(r, "grow", start, start + r->unit * 4);
	fill_pages(r, start, r->unit * 4, 0);
	set(r, "shrink", start, start + r->unit);
	set(r, "grow", start, start + r->unit * 4);
	content(r, start, r->unit * 4);
	set(r, "none", start, start);
	set(r, "grow", start, start + r->unit);
	content(r, start, r->unit);
}

CASE(brk, odd_sizes, 0, 0)
{
	char *start = now();

	set(r, "odd", start, start + r->unit + 123);
	fill_pages(r, start, r->unit, 0);
	set(r, "one_more", start, start + r->unit + 124);
	set(r, "one_less", start, start + r->unit - 1);
	set(r, "again", start, start + r->unit + 123);
	content(r, start, r->unit);
}

CASE(brk, stays_where_it_cannot_go, 0, ONCE)
{
	char *start = now();

	set(r, "below", start, start - GB(64));
	set(r, "one", start, (char *)1);
	set(r, "kernel", start, (char *)-PAGE);
	set(r, "huge", start, start + TB(64));
	ret("sbrk", (long)sbrk((intptr_t)TB(64)));
	set(r, "still", start, start + PAGE);
}

CASE(brk, beyond_the_break, 0, ONCE)
{
	char *start = now();

	set(r, "brk", start, start + MB(2) + PAGE);
	try("inside", start + MB(2) + PAGE - 1, "rw");
	try("beyond", start + MB(2) + PAGE, "rw");
	try("far_beyond", start + MB(2) + PAGE + MB(4), "rw");
}

CASE(brk, wall_above, 0, 0)
{
	char *start = now();
	char *wall = (char *)(((uintptr_t)start + MB(64)) & ~(MB(2) - 1));

	ret("wall", map(wall, PAGE, RW, MAP_FIXED_NOREPLACE) == wall);
	set(r, "below", start, start + r->unit);
	ret("over", (char *)syscall(SYS_brk, wall + PAGE) == start + r->unit);
	fill_pages(r, start, r->unit, 0);
	ret("munmap", munmap(wall, PAGE));
	ret("over", (char *)syscall(SYS_brk, wall + PAGE) == wall + PAGE);
	content(r, start, r->unit);
}

CASE(brk, protected_piece, 0, 0)
{
	char *start = now();

	set(r, "brk", start, start + r->unit * 4);
	fill_pages(r, start, r->unit * 4, 0);
	ret("mprotect", mprotect(start + r->unit, r->unit, PROT_READ));
	maps(r, start, r->unit * 4);
	try("piece", start + r->unit, "rw");
	set(r, "shrink", start, start + r->unit * 2);
	set(r, "grow", start, start + r->unit * 4);
	maps(r, start, r->unit * 4);
	content(r, start, r->unit * 4);
	set(r, "shrink", start, start);
	set(r, "grow", start, start + r->unit * 4);
	maps(r, start, r->unit * 4);
	content(r, start, r->unit * 4);
}

CASE(brk, unmapped_piece, 0, 0)
{
	char *start = now();

	set(r, "brk", start, start + r->unit * 4);
	fill_pages(r, start, r->unit * 4, 0);
	ret("munmap", munmap(start + r->unit, r->unit));
	content(r, start, r->unit * 4);
	set(r, "shrink", start, start + r->unit / 2 / PAGE * PAGE);
	set(r, "grow", start, start + r->unit * 4);
	maps(r, start, r->unit * 4);
}

CASE(brk, fixed_mapping_on_the_heap, 0, 0)
{
	char *start = now();

	set(r, "brk", start, start + r->unit * 4);
	fill_pages(r, start, r->unit * 4, 0);
	ret("mmap", map(start + r->unit, r->unit, PROT_READ, MAP_FIXED) ==
	    start + r->unit);
	maps(r, start, r->unit * 4);
	content(r, start, r->unit * 4);
}

CASE(brk, advice_on_the_heap, 0, 0)
{
	char *start = now();

	set(r, "brk", start, start + r->unit * 4);
	fill_pages(r, start, r->unit * 4, 0);
	ret("dontneed", madvise(start + r->unit, r->unit, MADV_DONTNEED));
	ret("mlock", mlock(start + r->unit * 2, r->unit));
	content(r, start, r->unit * 4);
}

CASE(brk, moved_piece, 0, 0)
{
	char *start = now();

	set(r, "brk", start, start + r->unit * 4);
	fill_pages(r, start, r->unit * 4, 0);
	at(r, "mremap", mremap(start + r->unit, r->unit, r->unit,
			       MREMAP_MAYMOVE | MREMAP_FIXED, spot(r, 0)));
	content(r, spot(r, 0), r->unit);
	maps(r, start, r->unit * 4);
	set(r, "same", start, start + r->unit * 4);
}

CASE(brk, forked, 0, 0)
{
	char *start = now();
	pid_t pid;

	set(r, "brk", start, start + r->unit * 2);
	fill_pages(r, start, r->unit * 2, 0);
	pid = sub_process();
	if (pid == 0) {
		set(r, "sub", start, start + r->unit * 4);
		content(r, start, r->unit * 4);
		set(r, "sub", start, start + r->unit);
		fill_pages(r, start, r->unit, 300);
		_exit(0);
	}
	ended("sub", pid);
	content(r, start, r->unit * 2);
	set(r, "grow", start, start + r->unit * 3);
	content(r, start, r->unit * 3);
}

CASE(brk, is_not_executable, 0, ONCE)
{
	char *start = now();

	set(r, "brk", start, start + PAGE);
	*(unsigned char *)start = RET_INSTRUCTION;
	try("heap", start, "rwx");
}
