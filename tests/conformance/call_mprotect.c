// SPDX-License-Identifier: GPL-2.0
/* mprotect, protection keys, mseal, and the results of accesses. */
#include "conf.h"

#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef SYS_mseal
#define SYS_mseal	462
#endif

/* The pages that are tried have a RET first. */
static void plant(struct run *r)
{
	for (size_t u = 0; u < r->units; u++)
		*(unsigned char *)U(r, (double)u) = RET_INSTRUCTION;
}

static void protects(struct run *r, double from, double to, int prot)
{
	ret("mprotect", mprotect(U(r, from), (size_t)(U(r, to) - U(r, from)),
				 prot));
	maps(r, U(r, -1), r->unit * ((double)r->units + 2));
}

/* The middle of three units, and how its neighbours are then. */
static void middle(struct run *r, int prot)
{
	plant(r);
	protects(r, 1, 2, prot);
	try("left", U(r, 0), "rwx");
	try("middle", U(r, 1), "rwx");
	try("last", U(r, 2) - 1, "rw");
	try("right", U(r, 2), "rwx");
	protects(r, 1, 2, RW);
	content(r, U(r, 0), r->unit * 3);
}

CASE(mprotect, none, 3, BIG)
{
	middle(r, PROT_NONE);
}

CASE(mprotect, read, 3, BIG)
{
	middle(r, PROT_READ);
}

CASE(mprotect, write, 3, 0)
{
	middle(r, PROT_WRITE);
}

CASE(mprotect, exec, 3, 0)
{
	middle(r, PROT_EXEC);
}

CASE(mprotect, read_write, 3, 0)
{
	middle(r, RW);
}

CASE(mprotect, read_exec, 3, 0)
{
	middle(r, PROT_READ | PROT_EXEC);
}

CASE(mprotect, write_exec, 3, 0)
{
	middle(r, PROT_WRITE | PROT_EXEC);
}

CASE(mprotect, read_write_exec, 3, BIG)
{
	middle(r, RW | PROT_EXEC);
}

CASE(mprotect, guard_pages, 3, 0)
{
	ret("low", mprotect(U(r, 0), PAGE, PROT_NONE));
	ret("high", mprotect(U(r, 3) - PAGE, PAGE, PROT_NONE));
	try("low", U(r, 0) + PAGE - 1, "rw");
	try("high", U(r, 3) - PAGE, "rw");
	content(r, U(r, 0), r->unit * 3);
	ret("low", mprotect(U(r, 0), PAGE, RW));
	ret("high", mprotect(U(r, 3) - PAGE, PAGE, RW));
	content(r, U(r, 0), r->unit * 3);
	say("vmas=%d", vma_count(r->base, r->unit * 3));
}

CASE(mprotect, every_second_piece, 4, 0)
{
	size_t piece = r->unit > PAGE ? 32 * PAGE : PAGE;

	for (size_t off = 0; off < r->unit * 4; off += 2 * piece)
		if (mprotect(r->base + off, piece, PROT_READ) != 0)
			say("mprotect=%s", errno_name(errno));
	say("vmas=%d", vma_count(r->base, r->unit * 4));
	try("first", U(r, 0), "rw");
	content(r, U(r, 0), r->unit * 4);
	protects(r, 0, 4, RW);
	say("vmas=%d", vma_count(r->base, r->unit * 4));
}

CASE(mprotect, over_a_hole, 4, 0)
{
	ret("munmap", munmap(U(r, 2), r->unit));
	protects(r, 0, 4, PROT_READ);
	try("before", U(r, 0), "rw");
	try("after", U(r, 3), "rw");
}

CASE(mprotect, from_a_hole, 4, 0)
{
	ret("munmap", munmap(U(r, 1), r->unit));
	protects(r, 1, 4, PROT_READ);
}

CASE(mprotect, into_a_hole, 4, 0)
{
	protects(r, 3, 5, PROT_READ);
	protects(r, 0, 4, RW);
}

CASE(mprotect, none_of_it_mapped, 4, BARE)
{
	protects(r, 0, 4, PROT_READ);
}

CASE(mprotect, over_others, 4, 0)
{
	int fd = memfd(r, r->unit, 500);

	at(r, "file", mmap(U(r, 1), r->unit, PROT_READ, MAP_PRIVATE |
			   MAP_FIXED, fd, 0));
	at(r, "shared", mmap(U(r, 2), r->unit, RW, MAP_SHARED | MAP_FIXED, fd,
			     0));
	protects(r, 0, 4, PROT_READ);
	protects(r, 0, 4, RW);
	content(r, r->base, r->unit * 4);
}

CASE(mprotect, refused_in_the_middle, 4, 0)
{
	int fd = memfd(r, r->unit, 500), ro;
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ro = open(path, O_RDONLY | O_CLOEXEC);
	protects(r, 0, 4, PROT_READ);
	at(r, "file", mmap(U(r, 2), r->unit, PROT_READ, MAP_SHARED | MAP_FIXED,
			   ro, 0));
	protects(r, 0, 4, RW);
	content(r, r->base, r->unit * 4);
}

CASE(mprotect, errors, 3, ONCE)
{
	ret("unaligned", mprotect(U(r, 0) + 1, r->unit, PROT_READ));
	ret("no_length", mprotect(U(r, 0), 0, PROT_NONE));
	ret("too_long", mprotect(U(r, 0), -PAGE, PROT_READ));
	ret("wraps", mprotect(U(r, 0), SIZE_MAX, PROT_READ));
	ret("kernel", mprotect((void *)(1UL << 63), PAGE, PROT_READ));
	ret("bit_7", mprotect(U(r, 0), r->unit, 0x80));
	ret("sem", mprotect(U(r, 0), r->unit, 0x8 | RW));
	ret("down", mprotect(U(r, 0), r->unit, RW | PROT_GROWSDOWN));
	ret("up", mprotect(U(r, 0), r->unit, RW | PROT_GROWSUP));
	ret("both", mprotect(U(r, 0), r->unit,
			     RW | PROT_GROWSUP | PROT_GROWSDOWN));
	ret("rounded", mprotect(U(r, 1), 1, PROT_READ));
	maps(r, r->base, r->unit * 3);
	content(r, r->base, r->unit * 3);
}

CASE(mprotect, grows_down, 4, BARE)
{
	at(r, "mmap", map(U(r, 1), r->unit * 3, RW, MAP_GROWSDOWN |
			  MAP_FIXED_NOREPLACE));
	ret("mprotect", mprotect(U(r, 2), r->unit,
				 PROT_READ | PROT_GROWSDOWN));
	maps(r, r->base, r->unit * 4);
}

CASE(mprotect, main_stack, 0, ONCE | ALONE)
{
	char *page = (char *)((uintptr_t)__builtin_frame_address(0) &
			      ~(PAGE - 1));
	char *low = page - 64 * PAGE;
	struct vma vma;

	*(volatile char *)low = 1;
	ret("exec", mprotect(page, PAGE, RW | PROT_EXEC | PROT_GROWSDOWN));
	say("here=%.3s", vma_at(page, &vma) ? vma.perms : "?");
	say("below=%.3s", vma_at(low, &vma) ? vma.perms : "?");
	*(unsigned char *)low = RET_INSTRUCTION;
	try("low", low, "rwx");
}

CASE(mprotect, reads_back_after_many, 4, 0)
{
	static const int prots[] = { PROT_NONE, PROT_READ, RW, PROT_EXEC, RW };

	for (int i = 0; i < 5; i++)
		for (int u = 0; u < 4; u++)
			if (mprotect(U(r, u), r->unit,
				     prots[(i + u) % 5]) != 0)
				say("mprotect=%s", errno_name(errno));
	maps(r, r->base, r->unit * 4);
	ret("mprotect", mprotect(r->base, r->unit * 4, RW));
	content(r, r->base, r->unit * 4);
	say("vmas=%d", vma_count(r->base, r->unit * 4));
}

CASE(mprotect, self_modifying, 3, 0)
{
	for (int i = 0; i < 3; i++) {
		unsigned char code[] = { 0xb8, 0, 0, 0, 0, RET_INSTRUCTION };
		int (*fn)(void) = (int (*)(void))(void *)U(r, i);

		code[1] = (unsigned char)(i + 40);
		ret("rw", mprotect(U(r, i), r->unit, RW));
		memcpy(U(r, i), code, sizeof(code));
		ret("rx", mprotect(U(r, i), r->unit, PROT_READ | PROT_EXEC));
		say("code=%d", fn());
	}
}

/* ---- Protection keys ---------------------------------------------------- */

static int new_key(unsigned int rights)
{
	int key = pkey_alloc(0, rights);

	if (key < 0)
		not_run("no protection keys: %s", errno_name(errno));
	return key;
}

CASE(pkey, errors, 3, ONCE)
{
	int key = new_key(0);

	if (key < 0)
		return;
	ret("alloc_flags", pkey_alloc(1, 0));
	ret("alloc_rights", pkey_alloc(0, 8));
	ret("not_allocated", pkey_mprotect(U(r, 0), r->unit, RW, 15));
	ret("16", pkey_mprotect(U(r, 0), r->unit, RW, 16));
	ret("-1", pkey_mprotect(U(r, 0), r->unit, PROT_READ, -1));
	ret("-2", pkey_mprotect(U(r, 0), r->unit, PROT_READ, -2));
	ret("unaligned", pkey_mprotect(U(r, 0) + 1, r->unit, RW, key));
	ret("hole", pkey_mprotect(U(r, 2), r->unit * 2, RW, key));
	ret("free", pkey_free(key));
	ret("free_twice", pkey_free(key));
	ret("freed", pkey_mprotect(U(r, 0), r->unit, RW, key));
	maps(r, r->base, r->unit * 3);
	content(r, r->base, r->unit * 3);
}

CASE(pkey, protects_the_middle, 3, 0)
{
	int key = new_key(0);

	if (key < 0)
		return;
	ret("pkey_mprotect", pkey_mprotect(U(r, 1), r->unit, RW, key));
	try("open", U(r, 1), "rw");
	pkey_set(key, PKEY_DISABLE_WRITE);
	try("no_write", U(r, 1), "rw");
	pkey_set(key, PKEY_DISABLE_ACCESS);
	try("no_access", U(r, 1), "rw");
	try("left", U(r, 0), "rw");
	try("right", U(r, 2), "rw");
	say("key=%zu", smaps_field(U(r, 1), r->unit, "ProtectionKey") >> 10);
	pkey_set(key, 0);
	content(r, U(r, 0), r->unit * 3);
}

CASE(pkey, of_the_kernel_too, 3, 0)
{
	int key = new_key(0);
	int fds[2];

	if (key < 0)
		return;
	ret("pipe", pipe(fds));
	ret("pkey_mprotect", pkey_mprotect(U(r, 1), r->unit, RW, key));
	pkey_set(key, PKEY_DISABLE_ACCESS);
	ret("write", write(fds[1], U(r, 1), 8));
	ret("write", write(fds[1], U(r, 0), 8));
	ret("read", read(fds[0], U(r, 1), 8));
	pkey_set(key, 0);
	content(r, U(r, 1), r->unit);
}

CASE(pkey, kept_by_mprotect, 3, 0)
{
	int key = new_key(PKEY_DISABLE_WRITE);

	if (key < 0)
		return;
	ret("pkey_mprotect", pkey_mprotect(U(r, 1), r->unit, RW, key));
	ret("mprotect", mprotect(U(r, 0), r->unit * 3, PROT_READ));
	try("read", U(r, 1), "rw");
	ret("mprotect", mprotect(U(r, 0), r->unit * 3, RW));
	try("write", U(r, 1), "rw");
	try("left", U(r, 0), "rw");
	ret("key_0", pkey_mprotect(U(r, 1), r->unit, RW, 0));
	try("key_0", U(r, 1), "rw");
}

CASE(pkey, kept_by_mremap, 3, 0)
{
	int key = new_key(PKEY_DISABLE_WRITE);

	if (key < 0)
		return;
	ret("pkey_mprotect", pkey_mprotect(U(r, 1), r->unit, RW, key));
	at(r, "mremap", mremap(U(r, 1), r->unit, r->unit * 2, MREMAP_MAYMOVE |
			       MREMAP_FIXED, spot(r, 0)));
	try("moved", spot(r, 0), "rw");
	try("grown", spot(r, 0) + r->unit, "rw");
	say("key=%zu", smaps_field(spot(r, 0), r->unit * 2, "ProtectionKey") >> 10);
}

CASE(pkey, dropped_by_mmap, 3, 0)
{
	int key = new_key(PKEY_DISABLE_ACCESS);

	if (key < 0)
		return;
	ret("pkey_mprotect", pkey_mprotect(U(r, 1), r->unit, RW, key));
	at(r, "mmap", map(U(r, 1), r->unit, RW, MAP_FIXED));
	try("new", U(r, 1), "rw");
	content(r, r->base, r->unit * 3);
}

CASE(pkey, inherited_by_fork, 3, 0)
{
	int key = new_key(0);
	pid_t pid;

	if (key < 0)
		return;
	ret("pkey_mprotect", pkey_mprotect(U(r, 1), r->unit, RW, key));
	pkey_set(key, PKEY_DISABLE_WRITE);
	pid = sub_process();
	if (pid == 0) {
		try("sub", U(r, 1), "rw");
		pkey_set(key, 0);
		try("sub", U(r, 1), "rw");
		_exit(0);
	}
	ended("sub", pid);
	try("parent", U(r, 1), "rw");
}

CASE(pkey, discarded_content, 3, 0)
{
	int key = new_key(0);

	if (key < 0)
		return;
	ret("pkey_mprotect", pkey_mprotect(U(r, 1), r->unit, RW, key));
	pkey_set(key, PKEY_DISABLE_ACCESS);
	ret("madvise", madvise(U(r, 0), r->unit * 3, MADV_DONTNEED));
	try("closed", U(r, 1), "r");
	pkey_set(key, 0);
	content(r, r->base, r->unit * 3);
}

/* ---- mseal ------------------------------------------------------------------ */

CASE(mseal, keeps_the_mapping, 3, 0)
{
	if (ret("mseal", syscall(SYS_mseal, U(r, 1), r->unit, 0)) != 0)
		return;
	ret("munmap", munmap(U(r, 1), r->unit));
	ret("munmap_all", munmap(U(r, 0), r->unit * 3));
	ret("mprotect", mprotect(U(r, 1), r->unit, PROT_READ));
	ret("mprotect_all", mprotect(U(r, 0), r->unit * 3, PROT_READ));
	at(r, "mmap", map(U(r, 1), r->unit, RW, MAP_FIXED));
	at(r, "shrink", mremap(U(r, 1), r->unit, r->unit / 2 + PAGE / 2, 0));
	at(r, "move", mremap(U(r, 1), r->unit, r->unit, MREMAP_MAYMOVE |
			     MREMAP_FIXED, spot(r, 0)));
	maps(r, r->base, r->unit * 3);
	maps(r, spot(r, 0), r->unit);
	content(r, r->base, r->unit * 3);
}

CASE(mseal, discarding_read_only_memory, 3, 0)
{
	int key;

	ret("mprotect", mprotect(U(r, 1), r->unit, PROT_READ));
	if (ret("mseal", syscall(SYS_mseal, U(r, 1), r->unit, 0)) != 0)
		return;
	ret("madvise", madvise(U(r, 1), r->unit, MADV_DONTNEED));
	ret("free", madvise(U(r, 1), r->unit, MADV_FREE));
	ret("dontfork", madvise(U(r, 1), r->unit, MADV_DONTFORK));
	ret("wipeonfork", madvise(U(r, 1), r->unit, MADV_WIPEONFORK));
	ret("remove", madvise(U(r, 1), r->unit, MADV_REMOVE));
	ret("guard", madvise(U(r, 1), r->unit, MADV_GUARD_INSTALL));
	ret("mergeable", madvise(U(r, 1), r->unit, MADV_MERGEABLE));
	content(r, r->base, r->unit * 3);
	key = new_key(0);
	if (key < 0)
		return;
	ret("pkey_mprotect", pkey_mprotect(U(r, 2), r->unit, RW, key));
	ret("mseal", syscall(SYS_mseal, U(r, 2), r->unit, 0));
	pkey_set(key, PKEY_DISABLE_WRITE);
	ret("kept", madvise(U(r, 2), r->unit, MADV_DONTNEED));
	content(r, r->base, r->unit * 3);
	pkey_set(key, 0);
	ret("discarded", madvise(U(r, 2), r->unit, MADV_DONTNEED));
	content(r, r->base, r->unit * 3);
}

CASE(mseal, errors, 3, ONCE)
{
	ret("unaligned", syscall(SYS_mseal, U(r, 1) + 1, r->unit, 0));
	ret("flags", syscall(SYS_mseal, U(r, 1), r->unit, 1));
	ret("no_length", syscall(SYS_mseal, U(r, 1), 0, 0));
	ret("hole", syscall(SYS_mseal, U(r, 2), r->unit * 2, 0));
	ret("wraps", syscall(SYS_mseal, U(r, 2), -PAGE, 0));
}

/* ---- Access that is not allowed ------------------------------------------- */

CASE(access, holes, 3, 0)
{
	ret("munmap", munmap(U(r, 1), r->unit));
	try("before", U(r, 1) - 1, "rw");
	try("first", U(r, 1), "rwx");
	try("last", U(r, 2) - 1, "rwx");
	try("after", U(r, 2), "rw");
	try("end", U(r, 3), "rwx");
	try("below", U(r, 0) - 1, "rwx");
}

CASE(access, protected, 3, 0)
{
	plant(r);
	try("data", U(r, 1), "x");
	ret("read", mprotect(U(r, 1), r->unit, PROT_READ));
	try("read", U(r, 1), "rwx");
	ret("none", mprotect(U(r, 1), r->unit, PROT_NONE));
	try("none", U(r, 1), "rwx");
	try("last", U(r, 2) - 1, "rwx");
}

CASE(access, across_a_boundary, 3, 0)
{
	volatile uint64_t *word = (uint64_t *)(void *)(U(r, 1) - 4);

	*word = 0x1122334455667788;
	say("word=%llx", (unsigned long long)*word);
	ret("none", mprotect(U(r, 1), r->unit, PROT_NONE));
	try("last", U(r, 1) - 1, "rw");
	try("next", U(r, 1), "rw");
}

CASE(access, signal_kills, 3, 0)
{
	pid_t pid;

	ret("read", mprotect(U(r, 1), r->unit, PROT_READ));
	pid = sub_process();
	if (pid == 0) {
		*(volatile char *)U(r, 1) = 1;
		_exit(0);
	}
	ended("sub", pid);
	content(r, r->base, r->unit * 3);
}

CASE(access, system_calls, 3, 0)
{
	int fd = memfd(r, r->unit * 3, 500);
	size_t len = r->unit * 3;

	ret("none", mprotect(U(r, 1), r->unit, PROT_NONE));
	say("pread=%s", in_units(r, pread(fd, U(r, 0), len, 0)));
	ret("pread", pread(fd, U(r, 1), len, 0));
	say("pwrite=%s", in_units(r, pwrite(fd, U(r, 0), len, 0)));
	ret("pwrite", pwrite(fd, U(r, 1), len, 0));
	ret("read", mprotect(U(r, 1), r->unit, PROT_READ));
	say("pread=%s", in_units(r, pread(fd, U(r, 0), len, 0)));
	say("pwrite=%s", in_units(r, pwrite(fd, U(r, 0), len, 0)));
	ret("munmap", munmap(U(r, 1), r->unit));
	say("pread=%s", in_units(r, pread(fd, U(r, 0), len, 0)));
	ret("pread", pread(fd, U(r, 1), len, 0));
	ret("write", write(fd, U(r, 1), 1));
	content(r, r->base, len);
}

CASE(access, vectors, 4, 0)
{
	int fd = memfd(r, r->unit * 4, 500);
	struct iovec part[] = {
		{ U(r, 3), r->unit }, { U(r, 1), r->unit }, { U(r, 0), PAGE },
	};

	say("preadv=%s", in_units(r, preadv(fd, part, 3, 0)));
	content(r, r->base, r->unit * 4);
	ret("read", mprotect(U(r, 1), r->unit, PROT_READ));
	say("preadv=%s", in_units(r, preadv(fd, part, 3, PAGE)));
	say("pwritev=%s", in_units(r, pwritev(fd, part, 3, PAGE)));
	content(r, r->base, r->unit * 4);
}
