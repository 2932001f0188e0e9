// SPDX-License-Identifier: GPL-2.0
/* mmap and munmap. */
#include "conf.h"

#include <fcntl.h>
#include <string.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MAP_UNINITIALIZED
#define MAP_UNINITIALIZED	0x4000000
#endif
#define MAP_HUGE_1GB		(30 << 26)

/* Where the kernel chooses the address. */
static void chosen(struct run *r, size_t len, int prot, int flags)
{
	char *p = at(r, "mmap", map(NULL, len, prot, flags));

	if (p == MAP_FAILED)
		return;
	say("page=%d", !((uintptr_t)p & (PAGE - 1)));
	maps(r, p, (len + PAGE - 1) & ~(PAGE - 1));
	content(r, p, len);
	if (prot & PROT_WRITE) {
		fill_pages(r, p, len & ~(PAGE - 1), 0);
		content(r, p, len & ~(PAGE - 1));
	}
	ret("munmap", munmap(p, len));
	maps(r, p, len & ~(PAGE - 1));
}

CASE(mmap, anywhere, 3, BARE | BIG)
{
	chosen(r, r->unit * 3, RW, 0);
}

CASE(mmap, read_only, 3, BARE)
{
	chosen(r, r->unit * 3, PROT_READ, 0);
}

CASE(mmap, noreserve, 3, BARE | BIG)
{
	chosen(r, r->unit * 3, RW, MAP_NORESERVE);
}

CASE(mmap, populate, 3, BARE)
{
	chosen(r, r->unit * 3, RW, MAP_POPULATE);
}

CASE(mmap, populate_nonblock, 3, BARE)
{
	chosen(r, r->unit * 3, RW, MAP_POPULATE | MAP_NONBLOCK);
}

CASE(mmap, stack_flag, 3, BARE)
{
	chosen(r, r->unit * 3, RW, MAP_STACK);
}

CASE(mmap, uninitialized, 3, BARE)
{
	chosen(r, r->unit * 3, RW, MAP_UNINITIALIZED);
}

CASE(mmap, ignored_flags, 3, BARE)
{
	chosen(r, r->unit * 3, RW, MAP_DENYWRITE | MAP_EXECUTABLE);
}

CASE(mmap, unknown_flag, 3, BARE)
{
	chosen(r, r->unit * 3, RW, 1 << 30);
}

CASE(mmap, sync_flag, 3, BARE)
{
	chosen(r, r->unit * 3, RW, MAP_SYNC);
}

CASE(mmap, length_is_rounded_up, 3, BARE)
{
	chosen(r, r->unit * 2 + 1, RW, 0);
}

CASE(mmap, locked, 3, BARE)
{
	char *p = at(r, "mmap", map(r->base, r->unit * 3, RW,
				    MAP_LOCKED | MAP_FIXED_NOREPLACE));

	if (p == MAP_FAILED)
		return;
	vm_flags(p, "lo lf");
	say("locked=%s", in_units(r, (long)smaps_locked(p, r->unit * 3)));
	content(r, p, r->unit * 3);
}

CASE(mmap, below_2g, 3, BARE)
{
	char *p = at(r, "mmap", map(NULL, r->unit * 3, RW, MAP_32BIT));

	say("low=%d", (uintptr_t)p + r->unit * 3 <= 1UL << 31);
	content(r, p, r->unit * 3);
}

CASE(mmap, hugetlb, 0, ONCE)
{
	char *p = at(r, "mmap", map(NULL, MB(4), RW, MAP_HUGETLB));

	if (p == MAP_FAILED)
		return;
	content(r, p, MB(4));
	fill_pages(r, p, MB(4), 0);
	content(r, p, MB(4));
	ret("part", munmap(p, PAGE));
	ret("munmap", munmap(p, MB(4)));
}

CASE(mmap, hugetlb_over_arena, 3, 0)
{
	at(r, "mmap", map(U(r, 1), r->unit, RW, MAP_HUGETLB | MAP_FIXED));
	maps(r, r->base, r->unit * 3);
	content(r, U(r, 0), r->unit);
	content(r, U(r, 2), r->unit);
}

CASE(mmap, hugetlb_1g, 0, ONCE)
{
	at(r, "mmap", map(NULL, GB(1), RW, MAP_HUGETLB | MAP_HUGE_1GB));
}

CASE(mmap, hint_is_taken_where_free, 3, BARE | BIG)
{
	at(r, "mmap", map(U(r, 0), r->unit * 3, RW, 0));
	content(r, r->base, r->unit * 3);
}

CASE(mmap, hint_off_a_page, 3, BARE)
{
	at(r, "mmap", map(U(r, 0) + 1, r->unit, RW, 0));
	at(r, "mmap", map(U(r, 2) - 1, r->unit, RW, 0));
}

CASE(mmap, hint_over_arena, 3, 0)
{
	at(r, "mmap", map(U(r, 1), r->unit, RW, 0));
	at(r, "mmap", map(U(r, 2.5), r->unit, RW, 0));
	content(r, r->base, r->unit * 3);
}

CASE(mmap, hint_low, 0, ONCE)
{
	for (uintptr_t hint = 1; hint < PAGE; hint += PAGE - 2) {
		char *p = map((void *)hint, PAGE, RW, 0);

		say("low=%d", (uintptr_t)p <= 65536);
	}
}

CASE(mmap, hint_beyond, 0, ONCE)
{
	at(r, "mmap", map((void *)(1UL << 47), PAGE, RW, 0));
	at(r, "mmap", map((void *)-1UL, PAGE, RW, 0));
	at(r, "mmap", map((void *)((1UL << 47) - PAGE), PAGE, RW, 0));
}

/* MAP_FIXED over a part of the arena, which has neighbours then. */
static void fixed(struct run *r, double from, double to, int prot, int flags)
{
	at(r, "mmap", map(U(r, from), (size_t)(U(r, to) - U(r, from)), prot,
			  flags | MAP_FIXED));
	maps(r, U(r, -1), r->unit * 6);
	content(r, U(r, -1), r->unit * 6);
}

CASE(mmap, fixed_start, 4, BIG)
{
	fixed(r, 0, 1, RW, 0);
}

CASE(mmap, fixed_middle, 4, BIG)
{
	fixed(r, 1, 3, RW, 0);
}

CASE(mmap, fixed_end, 4, 0)
{
	fixed(r, 3, 4, RW, 0);
}

CASE(mmap, fixed_all, 4, BIG)
{
	fixed(r, 0, 4, RW, 0);
}

CASE(mmap, fixed_beyond_both_ends, 4, 0)
{
	fixed(r, -1, 5, RW, 0);
}

CASE(mmap, fixed_across_one_end, 4, 0)
{
	fixed(r, 3, 5, RW, 0);
}

CASE(mmap, fixed_none, 4, BIG)
{
	fixed(r, 1, 2, PROT_NONE, 0);
	fixed(r, 1, 2, RW, 0);
}

CASE(mmap, fixed_noreserve, 4, 0)
{
	fixed(r, 1, 3, RW, MAP_NORESERVE);
}

CASE(mmap, fixed_read_only, 4, 0)
{
	fixed(r, 1, 3, PROT_READ, 0);
	try("middle", U(r, 1), "rw");
}

CASE(mmap, fixed_twice, 4, 0)
{
	fixed(r, 0, 2, RW, 0);
	fill_pages(r, U(r, 0), r->unit * 2, 100);
	fixed(r, 1, 3, RW, 0);
	fill_pages(r, U(r, 1), r->unit * 2, 200);
	fixed(r, 2, 4, RW, 0);
}

CASE(mmap, fixed_locked, 4, 0)
{
	fixed(r, 1, 3, RW, MAP_LOCKED);
}

CASE(mmap, fixed_pages_within, 2, 0)
{
	at(r, "mmap", map(U(r, 0), PAGE, RW, MAP_FIXED));
	at(r, "mmap", map(U(r, 2) - PAGE, PAGE, PROT_READ, MAP_FIXED));
	maps(r, r->base, r->unit * 2);
	content(r, r->base, r->unit * 2);
}

CASE(mmap, fixed_errors, 2, ONCE)
{
	at(r, "unaligned", map(U(r, 1) + 1, PAGE, RW, MAP_FIXED));
	at(r, "kernel", map((void *)-PAGE, PAGE, RW, MAP_FIXED));
	at(r, "wraps", map((void *)-PAGE, 2 * PAGE, RW, MAP_FIXED));
	at(r, "beyond", map((void *)((1UL << 47) - PAGE), 2 * PAGE, RW,
			    MAP_FIXED));
	at(r, "last", map((void *)((1UL << 47) - PAGE), PAGE, RW, MAP_FIXED));
	at(r, "too_long", map(U(r, 1), 1UL << 57, RW, MAP_FIXED));
	at(r, "longest", map(U(r, 1), -PAGE, RW, MAP_FIXED));
	at(r, "no_length", map(U(r, 1), 0, RW, MAP_FIXED));
	content(r, r->base, r->unit * 2);
}

CASE(mmap, fixed_at_zero, 0, ONCE | ALONE)
{
	char *p = map(NULL, PAGE, RW, MAP_FIXED);

	if (p == MAP_FAILED)
		say("mmap=%s", errno_name(errno));
	else
		say("mmap=%p", (void *)p);
}

CASE(mmap, noreplace, 4, BIG)
{
	int flags = MAP_FIXED_NOREPLACE;

	at(r, "all", map(U(r, 0), r->unit * 4, RW, flags));
	at(r, "middle", map(U(r, 1), r->unit, RW, flags));
	at(r, "across", map(U(r, 3), r->unit * 2, RW, flags));
	at(r, "around", map(U(r, -1), r->unit * 6, RW, flags));
	at(r, "after", map(U(r, 4), r->unit, RW, flags));
	at(r, "before", map(U(r, -1), r->unit, PROT_READ, flags));
	at(r, "unaligned", map(U(r, 6) + 1, r->unit, RW, flags));
	at(r, "both", map(U(r, 1), r->unit, RW, flags | MAP_FIXED));
	at(r, "none", map(U(r, 7), r->unit, PROT_NONE, flags));
	at(r, "over_none", map(U(r, 7), r->unit, RW, flags));
	maps(r, U(r, -1), r->unit * 9);
	content(r, U(r, 0), r->unit * 4);
}

CASE(mmap, bad_lengths, 0, ONCE)
{
	at(r, "zero", map(NULL, 0, RW, 0));
	at(r, "all", map(NULL, SIZE_MAX, RW, 0));
	at(r, "nearly", map(NULL, -PAGE, RW, 0));
	at(r, "half", map(NULL, 1UL << 63, RW, 0));
	at(r, "2^47", map(NULL, 1UL << 47, RW, MAP_NORESERVE));
	at(r, "2^48", map(NULL, 1UL << 48, PROT_NONE, MAP_NORESERVE));
}

CASE(mmap, bad_offsets, 0, ONCE)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS;

	at(r, "odd", mmap(NULL, PAGE, RW, flags, -1, 1));
	at(r, "page", mmap(NULL, PAGE, RW, flags, -1, PAGE));
	at(r, "large", mmap(NULL, PAGE, RW, flags, -1, 1L << 62));
	/* -PAGE is the last page there is: two have no room. */
	at(r, "last", mmap(NULL, PAGE, RW, flags, -1, -(long)PAGE));
	at(r, "beyond", mmap(NULL, 2 * PAGE, RW, flags, -1, -(long)PAGE));
	at(r, "fd", mmap(NULL, PAGE, RW, flags, 99, 0));
}

CASE(mmap, bad_types, 0, ONCE)
{
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);

	at(r, "none", mmap(NULL, PAGE, RW, MAP_ANONYMOUS, -1, 0));
	at(r, "both", mmap(NULL, PAGE, RW, MAP_ANONYMOUS | MAP_SHARED |
			   MAP_PRIVATE, -1, 0));
	at(r, "type_4", mmap(NULL, PAGE, RW, MAP_ANONYMOUS | 4, -1, 0));
	at(r, "no_fd", mmap(NULL, PAGE, RW, MAP_PRIVATE, -1, 0));
	at(r, "proc", mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0));
}

CASE(mmap, unknown_protection, 3, BARE)
{
	at(r, "0x100", map(U(r, 0), r->unit, 0x100, 0));
	at(r, "0x103", map(U(r, 1), r->unit, 0x103, 0));
	at(r, "growsdown", map(U(r, 2), r->unit, RW | PROT_GROWSDOWN, 0));
	maps(r, r->base, r->unit * 3);
}

CASE(mmap, every_protection, 8, BARE)
{
	for (int prot = 0; prot < 8; prot++)
		at(r, "mmap", map(U(r, prot), r->unit, prot, 0));
	maps(r, r->base, r->unit * 8);
	for (int prot = 0; prot < 8; prot++) {
		try("first", U(r, prot), "rw");
		try("last", U(r, prot + 1) - 1, "rw");
	}
	content(r, r->base, r->unit * 8);
}

CASE(mmap, grows_down, 6, BARE)
{
	at(r, "mmap", map(U(r, 4), r->unit, RW, MAP_GROWSDOWN |
			  MAP_FIXED_NOREPLACE));
	try("below", U(r, 4) - 8, "w");
	try("far_below", U(r, 3) - 8, "w");
	/* Linux leaves a gap of 256 pages below. */
	at(r, "near", map(U(r, 3) - 16 * PAGE, PAGE, RW, MAP_FIXED_NOREPLACE));
	try("stopped", U(r, 3) - PAGE - 8, "w");
	maps(r, U(r, 3) - 16 * PAGE, r->unit * 2 + 16 * PAGE);
	content(r, U(r, 4), r->unit);
	ret("munmap", munmap(U(r, 4), r->unit));
	maps(r, U(r, 3), r->unit * 3);
}

CASE(mmap, shared_anonymous_over_arena, 3, 0)
{
	pid_t pid;

	at(r, "mmap", mmap(U(r, 1), r->unit, RW, MAP_SHARED | MAP_ANONYMOUS |
			   MAP_FIXED, -1, 0));
	content(r, r->base, r->unit * 3);
	pid = sub_process();
	if (pid == 0) {
		fill_pages(r, U(r, 1), r->unit, 300);
		fill_pages(r, U(r, 2), r->unit, 300);
		_exit(0);
	}
	ended("sub", pid);
	content(r, r->base, r->unit * 3);
	at(r, "mmap", map(U(r, 1), r->unit, RW, MAP_FIXED));
	content(r, r->base, r->unit * 3);
}

CASE(mmap, file_private_over_arena, 3, 0)
{
	int fd = memfd(r, r->unit, 500);

	at(r, "mmap", mmap(U(r, 1), r->unit, RW, MAP_PRIVATE | MAP_FIXED, fd,
			   0));
	maps(r, U(r, -1), r->unit * 5);
	content(r, r->base, r->unit * 3);
	fill_pages(r, U(r, 1), r->unit, 700);
	at(r, "again", mmap(U(r, 2), r->unit, PROT_READ, MAP_PRIVATE |
			    MAP_FIXED, fd, 0));
	content(r, r->base, r->unit * 3);
	at(r, "back", map(U(r, 1), r->unit, RW, MAP_FIXED));
	content(r, r->base, r->unit * 3);
}

CASE(mmap, file_shared_over_arena, 3, 0)
{
	int fd = memfd(r, r->unit * 2, 500);

	at(r, "mmap", mmap(U(r, 0), r->unit, RW, MAP_SHARED | MAP_FIXED, fd,
			   (off_t)r->unit));
	fill_pages(r, U(r, 0), r->unit, 700);
	at(r, "again", mmap(U(r, 2), r->unit, PROT_READ, MAP_SHARED |
			    MAP_FIXED, fd, (off_t)r->unit));
	content(r, r->base, r->unit * 3);
	ret("truncate", ftruncate(fd, (off_t)r->unit));
	try("beyond", U(r, 0), "r");
	content(r, U(r, 1), r->unit);
}

CASE(mmap, file_refused_over_arena, 3, 0)
{
	int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);

	at(r, "write_only", mmap(U(r, 1), r->unit, RW, MAP_SHARED | MAP_FIXED,
				 fd, 0));
	at(r, "offset", mmap(U(r, 1), r->unit, RW, MAP_SHARED | MAP_FIXED,
			     memfd(r, r->unit, 0), 5));
	content(r, r->base, r->unit * 3);
}

CASE(mmap, dev_zero, 3, BARE)
{
	int fd = open("/dev/zero", O_RDWR | O_CLOEXEC);

	at(r, "mmap", mmap(r->base, r->unit * 3, RW, MAP_PRIVATE |
			   MAP_FIXED_NOREPLACE, fd, 0));
	content(r, r->base, r->unit * 3);
	fill_pages(r, U(r, 1), r->unit, 0);
	content(r, r->base, r->unit * 3);
}

CASE(mmap, neighbours_merge, 8, BARE)
{
	for (int i = 0; i < 8; i++)
		at(r, "mmap", map(U(r, i), r->unit, RW, MAP_FIXED_NOREPLACE));
	say("vmas=%d", vma_count(r->base, r->unit * 8));
	ret("mprotect", mprotect(U(r, 3), r->unit, PROT_READ));
	say("vmas=%d", vma_count(r->base, r->unit * 8));
	ret("mprotect", mprotect(U(r, 3), r->unit, RW));
	say("vmas=%d", vma_count(r->base, r->unit * 8));
}

CASE(mmap, reservation_by_pieces, 4, BARE)
{
	at(r, "reserve", map(r->base, GB(64), PROT_NONE, MAP_NORESERVE |
			     MAP_FIXED_NOREPLACE));
	ret("commit", mprotect(U(r, 1), r->unit, RW));
	at(r, "commit", map(U(r, 3), r->unit, RW, MAP_FIXED));
	content(r, r->base, r->unit * 5);
	fill_pages(r, U(r, 1), r->unit, 1);
	ret("decommit", mprotect(U(r, 1), r->unit, PROT_NONE));
	content(r, r->base, r->unit * 5);
	ret("commit", mprotect(U(r, 0), r->unit * 4, RW));
	content(r, r->base, r->unit * 5);
	ret("munmap", munmap(r->base, GB(64)));
	maps(r, r->base, GB(64));
}

CASE(mmap, sysv_shared_memory, 3, 0)
{
	int id = shmget(IPC_PRIVATE, r->unit, IPC_CREAT | 0600);
	bool fits = !((uintptr_t)U(r, 1) & (SHMLBA - 1));
	char *p;

	ret("shmget", id < 0 ? -1 : 0);
	if (!fits)
		say("off SHMLBA");
	p = at(r, "taken", shmat(id, U(r, 1), 0));
	p = at(r, "remap", shmat(id, U(r, 1), SHM_REMAP));
	content(r, r->base, r->unit * 3);
	if (p != MAP_FAILED)
		fill_pages(r, p, r->unit, 300);
	p = at(r, "anywhere", shmat(id, NULL, SHM_RDONLY));
	if (p != MAP_FAILED)
		content(r, p, r->unit);
	ret("shmdt", shmdt(U(r, 1)));
	maps(r, r->base, r->unit * 3);
	ret("shmctl", shmctl(id, IPC_RMID, NULL));
}

CASE(mmap, remap_file_pages, 3, 0)
{
	ret("same", syscall(SYS_remap_file_pages, U(r, 1), r->unit, 0,
			    (uintptr_t)U(r, 1) / PAGE, 0));
	ret("other", syscall(SYS_remap_file_pages, U(r, 1), r->unit, 0, 0, 0));
	maps(r, r->base, r->unit * 3);
	content(r, r->base, r->unit * 3);
}

/* ---- munmap ------------------------------------------------------------- */

static void unmaps(struct run *r, double from, double to)
{
	ret("munmap", munmap(U(r, from), (size_t)(U(r, to) - U(r, from))));
	maps(r, U(r, -1), r->unit * 6);
	content(r, U(r, 0), r->unit * 4);
}

CASE(munmap, start, 4, BIG)
{
	unmaps(r, 0, 1);
}

CASE(munmap, middle, 4, BIG)
{
	unmaps(r, 1, 3);
}

CASE(munmap, end, 4, BIG)
{
	unmaps(r, 3, 4);
}

CASE(munmap, all, 4, BIG)
{
	unmaps(r, 0, 4);
}

CASE(munmap, beyond_both_ends, 4, 0)
{
	unmaps(r, -1, 5);
}

CASE(munmap, one_page_at_each_end, 4, 0)
{
	ret("first", munmap(U(r, 0), PAGE));
	ret("last", munmap(U(r, 4) - PAGE, PAGE));
	maps(r, U(r, 0), r->unit * 4);
	content(r, U(r, 0), r->unit * 4);
}

CASE(munmap, holes_and_over_them, 4, 0)
{
	unmaps(r, 1, 2);
	unmaps(r, 3, 4);
	unmaps(r, 0, 4);
	unmaps(r, 0, 4);
}

CASE(munmap, over_several, 4, 0)
{
	ret("mprotect", mprotect(U(r, 1), r->unit, PROT_READ));
	at(r, "shared", mmap(U(r, 2), r->unit, RW, MAP_SHARED | MAP_ANONYMOUS |
			     MAP_FIXED, -1, 0));
	unmaps(r, 0.5 * (r->unit > PAGE), 4);
}

CASE(munmap, and_map_again, 4, BIG)
{
	unmaps(r, 1, 3);
	at(r, "mmap", map(U(r, 1), r->unit * 2, RW, MAP_FIXED_NOREPLACE));
	content(r, U(r, 0), r->unit * 4);
}

CASE(munmap, errors, 4, ONCE)
{
	ret("unaligned", munmap(U(r, 0) + 1, r->unit));
	ret("no_length", munmap(U(r, 0), 0));
	ret("too_long", munmap(U(r, 0), SIZE_MAX));
	ret("longest", munmap(U(r, 0), -PAGE));
	ret("2^57", munmap(U(r, 0), 1UL << 57));
	ret("kernel", munmap((void *)-PAGE, PAGE));
	ret("vsyscall", munmap((void *)0xffffffffff600000, PAGE));
	content(r, U(r, 0), r->unit * 4);
	ret("rounded", munmap(U(r, 0), r->unit - 1));
	maps(r, U(r, 0), r->unit * 4);
}

CASE(munmap, every_second_page, 2, 0)
{
	long failed = 0;

	for (size_t off = 0; off < r->unit * 2; off += 32 * PAGE)
		failed += munmap(r->base + off, PAGE) != 0;
	say("failed=%ld vmas=%d", failed, vma_count(r->base, r->unit * 2));
	content(r, r->base, r->unit * 2);
}

CASE(munmap, mapping_limit, 4, ALONE)
{
	char old[32];
	long cut = 0;

	if (!get("/proc/sys/vm/max_map_count", old, sizeof(old)) ||
	    !put("/proc/sys/vm/max_map_count", "60"))
		NOT_RUN("vm.max_map_count cannot be set");
	for (size_t off = PAGE; off < r->unit * 4; off += 2 * PAGE) {
		if (munmap(r->base + off, PAGE) != 0) {
			say("munmap=%s", errno_name(errno));
			break;
		}
		cut++;
	}
	say("some=%d", cut > 20);
	put("/proc/sys/vm/max_map_count", old);
	try("kept", r->base + (size_t)(cut * 2 + 1) * PAGE, "rw");
	ret("munmap", munmap(r->base, r->unit * 4));
	maps(r, r->base, r->unit * 4);
}
