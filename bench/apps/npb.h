/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The numbers of the NAS Parallel Benchmarks: x' = 5^13 x modulo 2^46, as fractions of 2^46.
 */
#ifndef NPB_H
#define NPB_H

#include <stddef.h>
#include <stdint.h>

#define NPB_FACTOR	1220703125ULL
#define NPB_MASK	((1ULL << 46) - 1)

/* The number @steps after @x. */
static inline uint64_t npb_after(uint64_t x, uint64_t steps)
{
	for (uint64_t factor = NPB_FACTOR; steps; steps >>= 1) {
		if (steps & 1)
			x = x * factor & NPB_MASK;
		factor = factor * factor & NPB_MASK;
	}
	return x;
}

/* The @count numbers that follow @x. */
static inline void npb_fill(uint64_t x, double *numbers, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		x = x * NPB_FACTOR & NPB_MASK;
		numbers[i] = (double)x * 0x1p-46;
	}
}

#endif
