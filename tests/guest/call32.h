/* SPDX-License-Identifier: GPL-2.0 */
/*
 * System calls by the 32-bit entry, int $0x80, which a 64-bit program may use as well.
 * Addresses have to be below 4 GB.
 */
#ifndef HPMMAP_TEST_CALL32_H
#define HPMMAP_TEST_CALL32_H

#include <stddef.h>
#include <stdint.h>

#define CALL32_FORK		2
#define CALL32_BRK		45
#define CALL32_MUNMAP		91
#define CALL32_MPROTECT		125
#define CALL32_MLOCK		150
#define CALL32_MUNLOCK		151
#define CALL32_MREMAP		163
#define CALL32_MMAP2		192
#define CALL32_MADVISE		219

/* Returns what the kernel does: an errno is negative. */
static inline long call32(long nr, uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e)
{
	int result;

	/* The sixth argument, the offset of mmap2, is 0. */
	__asm__ volatile("mov %%rbp, %%r12\n\txor %%ebp, %%ebp\n\tint $0x80\n\tmov %%r12, %%rbp"
			 : "=a"(result)
			 : "a"((int)nr), "b"((uint32_t)a), "c"((uint32_t)b), "d"((uint32_t)c), "S"((uint32_t)d),
			   "D"((uint32_t)e)
			 : "memory", "cc", "r8", "r9", "r10", "r11", "r12");
	/* An address may lie in the upper half of 4 GB. */
	return result < 0 && result >= -4095 ? result : (long)(uint32_t)result;
}

#endif
