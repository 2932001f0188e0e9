// SPDX-License-Identifier: GPL-2.0
/*
 * Calls of a 64-bit process by the 32-bit entry, int 0x80: they do what the 64-bit calls do, and
 * give addresses below 4 GB.
 */
#include "common.h"

#include <stdlib.h>
#include <unistd.h>

/* Numbers of i386. */
enum {
	IA32_GETPID = 20,
	IA32_BRK = 45,
	IA32_MMAP = 90,
	IA32_MUNMAP = 91,
	IA32_MPROTECT = 125,
	IA32_MLOCK = 150,
	IA32_MUNLOCK = 151,
	IA32_MREMAP = 163,
	IA32_MMAP2 = 192,
	IA32_MADVISE = 219,
};

/* Returns what the call does: -4095 to -1 is an error, all else is below 4 GB. */
static long ia32(long nr, uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e,
		 uintptr_t f)
{
	register uintptr_t sixth asm("r12") = f;

	asm volatile("sub $128, %%rsp\n\t"
		     "push %%rbp\n\t"
		     "mov %%r12, %%rbp\n\t"
		     "int $0x80\n\t"
		     "pop %%rbp\n\t"
		     "add $128, %%rsp"
		     : "+a"(nr)
		     : "b"(a), "c"(b), "d"(c), "S"(d), "D"(e), "r"(sixth)
		     : "memory", "cc", "r8", "r9", "r10", "r11");
	return (uint32_t)nr > -4096U ? (int32_t)nr : (long)(uint32_t)nr;
}

static char *map32(void *at, size_t len, int flags)
{
	long ret = ia32(IA32_MMAP2, (uintptr_t)at, len, RW, ANON | flags, -1, 0);

	if (ret < 0)
		FAIL("mmap2 of %zu bytes: %s", len, errno_name(-ret));
	return (char *)ret;
}

static void unmap32(char *p, size_t len)
{
	CHECK_EQ(ia32(IA32_MUNMAP, (uintptr_t)p, len, 0, 0, 0, 0), 0);
	CHECK_EQ(vma_count(p, len), 0);
}

static uint64_t pool_free(void)
{
	return registered() ? pool_value("free_bytes") : 0;
}

static void all_is_back(uint64_t before)
{
	if (registered())
		await_pool_free(before);
}

static void mapped_and_unmapped(void)
{
	static const size_t lens[] = { PAGE, KB(64), MB(1), MB(2), MB(5), MB(16) };
	uint64_t before = pool_free();

	for (size_t i = 0; i < ARRAY_SIZE(lens); i++) {
		char *p = map32(NULL, lens[i], 0);

		CHECK_TOUCH(p, lens[i]);
		fill(p, lens[i], i);
		verify(p, lens[i], i, 0);
		if (lens[i] >= SLOT)
			check_2m(p, lens[i]);
		unmap32(p, lens[i]);
	}
	all_is_back(before);
}

/* mmap(2) of old: its arguments are in memory. */
static void mapped_by_the_old_call(void)
{
	uint64_t before = pool_free();
	uint32_t *args = (uint32_t *)map32(NULL, PAGE, 0);
	char *p;

	args[1] = MB(4);
	args[2] = RW;
	args[3] = ANON;
	args[4] = -1;
	p = (char *)ia32(IA32_MMAP, (uintptr_t)args, 0, 0, 0, 0, 0);
	CHECK_OK(p);
	CHECK_TOUCH(p, MB(4));
	unmap32(p, MB(4));
	unmap32((char *)args, PAGE);
	CHECK_EQ(ia32(IA32_MMAP, (uintptr_t)args, 0, 0, 0, 0, 0), -EFAULT);
	all_is_back(before);
}

static void protected_and_discarded(void)
{
	char *p = map32(NULL, MB(4), 0);

	fill(p, MB(4), 1);
	CHECK_EQ(ia32(IA32_MPROTECT, (uintptr_t)p, MB(2), PROT_READ, 0, 0, 0), 0);
	CHECK_WRITE_SEGV(p, SEGV_ACCERR);
	verify(p, MB(4), 1, 0);
	CHECK_EQ(ia32(IA32_MPROTECT, (uintptr_t)p, MB(2), RW, 0, 0, 0), 0);
	CHECK_EQ(ia32(IA32_MLOCK, (uintptr_t)p, PAGE, 0, 0, 0, 0), 0);
	CHECK_EQ(ia32(IA32_MUNLOCK, (uintptr_t)p, PAGE, 0, 0, 0, 0), 0);
	CHECK_EQ(ia32(IA32_MADVISE, (uintptr_t)p + PAGE, MB(2), MADV_DONTNEED, 0, 0, 0), 0);
	verify(p, PAGE, 1, 0);
	verify_zero(p + PAGE, MB(2));
	verify(p + PAGE + MB(2), MB(2) - PAGE, 1, PAGE + MB(2));
	unmap32(p, MB(4));
}

static void grown_in_place_and_moved(void)
{
	uint64_t before = pool_free();
	char *p = map32(NULL, MB(12), 0), *q;

	unmap32(p + MB(4), MB(8));
	fill(p, MB(4), 2);
	CHECK_EQ(ia32(IA32_MREMAP, (uintptr_t)p, MB(4), MB(8), 0, 0, 0), (long)(uintptr_t)p);
	CHECK_TOUCH(p + MB(4), MB(4));
	verify(p, MB(4), 2, 0);
	verify_zero(p + MB(4), MB(4) - PAGE);
	fill(p, MB(8), 3);
	/* Something is in its way. */
	q = map32(p + MB(8), PAGE, MAP_FIXED);
	CHECK_EQ(ia32(IA32_MREMAP, (uintptr_t)p, MB(8), MB(12), 0, 0, 0), -ENOMEM);
	unmap32(p + KB(64), MB(8) - KB(64));
	p[KB(64) - 1] = 1;
	q = map32(p + KB(64), PAGE, MAP_FIXED);
	p = (char *)ia32(IA32_MREMAP, (uintptr_t)p, KB(64), MB(1), MREMAP_MAYMOVE, 0, 0);
	CHECK_OK(p);
	CHECK((uintptr_t)p + MB(1) <= GB(4));
	verify(p, KB(60), 3, 0);
	p = (char *)ia32(IA32_MREMAP, (uintptr_t)p, MB(1), MB(6), MREMAP_MAYMOVE, 0, 0);
	CHECK((uintptr_t)p + MB(6) <= GB(4));
	verify(p, KB(60), 3, 0);
	CHECK_TOUCH(p, MB(6));
	unmap32(p, MB(6));
	unmap32(q, PAGE);
	unmap32(q - KB(64) + MB(8), PAGE);
	all_is_back(before);
}

/* The heap lies where no 32-bit call reaches it. */
static void break_is_told(void)
{
	char *before = sbrk(0);

	CHECK_EQ((uint32_t)ia32(IA32_BRK, 0, 0, 0, 0, 0, 0), (uint32_t)(uintptr_t)before);
	CHECK_EQ((uint32_t)ia32(IA32_BRK, MB(1), 0, 0, 0, 0, 0), (uint32_t)(uintptr_t)before);
	CHECK(sbrk(0) == before);
}

_Noreturn static void try_entry(void)
{
	_exit(ia32(IA32_GETPID, 0, 0, 0, 0, 0, 0) != getpid());
}

int main(void)
{
	static const struct test tests[] = {
		T(mapped_and_unmapped),
		T(mapped_by_the_old_call),
		T(protected_and_discarded),
		T(grown_in_place_and_moved),
		T(break_is_told),
	};
	pid_t pid = fork();

	if (!pid)
		try_entry();
	/* ia32_emulation=0, or a kernel without it: SIGSEGV. */
	if (wait_child(pid)) {
		puts("SKIP: this kernel has no int 0x80");
		return 77;
	}
	return RUN_GROUP("sem_ia32", tests);
}
