// SPDX-License-Identifier: GPL-2.0
/*
 * A 32-bit program without a C library: maps, writes, reads, unmaps, moves the
 * break; prints one character for each success.
 */
#define NR_EXIT		1
#define NR_WRITE	4
#define NR_BRK		45
#define NR_MUNMAP	91
#define NR_MPROTECT	125
#define NR_MREMAP	163
#define NR_MMAP2	192

static long call(long nr, long a, long b, long c, long d, long e)
{
	long result;

	/* The sixth argument, of mmap2, is the offset: 0. */
	__asm__ volatile("push %%ebp; xor %%ebp, %%ebp; int $0x80; pop %%ebp"
			 : "=a"(result)
			 : "a"(nr), "b"(a), "c"(b), "d"(c), "S"(d), "D"(e)
			 : "memory");
	return result;
}

static int failed(long result)
{
	return (unsigned long)result > -4096UL;
}

static void tell(int ok, char c)
{
	char text = ok ? c : '-';

	call(NR_WRITE, 1, (long)&text, 1, 0, 0);
}

static int is_zero(const char *p, long len)
{
	for (long i = 0; i < len; i++)
		if (p[i])
			return 0;
	return 1;
}

void _start(void)
{
	const long size = 4 << 20, rw = 3, private_anonymous = 0x22;
	long p = call(NR_MMAP2, 0, size, rw, private_anonymous, -1);
	long old, new;

	tell(!failed(p), 'm');
	tell(!failed(p) && is_zero((char *)p, size), 'z');
	*(volatile char *)(p + size / 2) = 1;
	tell(*(volatile char *)(p + size / 2) == 1, 'w');
	tell(call(NR_MPROTECT, p, 4096, 1, 0, 0) == 0, 'p');
	new = call(NR_MREMAP, p + 4096, size - 4096, size, 1, 0);
	tell(!failed(new) &&
	     *(volatile char *)(new + size / 2 - 4096) == 1, 'r');
	tell(call(NR_MUNMAP, p, 4096, 0, 0, 0) == 0, 'u');
	old = call(NR_BRK, 0, 0, 0, 0, 0);
	tell(call(NR_BRK, old + size, 0, 0, 0, 0) == old + size, 'b');
	tell(is_zero((char *)old, size), 'z');
	tell(1, '\n');
	call(NR_EXIT, 0, 0, 0, 0, 0);
	__builtin_unreachable();
}
