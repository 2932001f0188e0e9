// SPDX-License-Identifier: GPL-2.0
/*
 * Print the cost of one mmap, munmap and brk: the median in ticks of the time
 * stamp counter, which are instructions in a guest that counts them.
 */
#include <err.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <x86intrin.h>

#define ROUNDS	4001

static uint64_t samples[3][ROUNDS];

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static uint64_t median(uint64_t *values)
{
	qsort(values, ROUNDS, sizeof(*values), compare);
	return values[ROUNDS / 2];
}

int main(void)
{
	uintptr_t end = syscall(SYS_brk, 0);

	/* brk grows a heap that is there, and the samples take no fault. */
	end = syscall(SYS_brk, end + 65536);
	for (int n = 0; n < 3; n++)
		for (int i = 0; i < ROUNDS; i++)
			samples[n][i] = 1;

	for (int i = 0; i < ROUNDS; i++) {
		uint64_t t0, t1, t2, t3;
		void *p;

		t0 = __rdtsc();
		p = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		t1 = __rdtsc();
		if (p == MAP_FAILED)
			err(1, "mmap");
		if (munmap(p, 65536))
			err(1, "munmap");
		t2 = __rdtsc();
		if ((uintptr_t)syscall(SYS_brk, end + 4096) != end + 4096)
			errx(1, "brk");
		t3 = __rdtsc();
		syscall(SYS_brk, end);
		samples[0][i] = t1 - t0;
		samples[1][i] = t2 - t1;
		samples[2][i] = t3 - t2;
	}
	printf("%llu %llu %llu\n", (unsigned long long)median(samples[0]),
	       (unsigned long long)median(samples[1]), (unsigned long long)median(samples[2]));
	return 0;
}
