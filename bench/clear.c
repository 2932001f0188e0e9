// SPDX-License-Identifier: GPL-2.0
/*
 * How fast the CPU of this machine zeroes memory: clear [SIZE...]
 *
 * For each size in bytes (default: 2 MB and 1 GB) the methods that a kernel has: "rep stosb"
 * and "rep stosq" (Linux's clear_page() and memset()), 16-byte streaming stores and,
 * where the CPU has them, 32-byte ones (kernel/mem/block/block.c takes the widest there are). Prints GB/s, the best and the
 * median of some runs over at least 1 GB, in memory that the caches do not hold.
 */
#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define RUNS	7
#define ARENA	(1UL << 30)

static void stosb(char *p, size_t len)
{
	__asm__ volatile("rep stosb" : "+D" (p), "+c" (len) : "a" (0) : "memory");
}

static void stosq(char *p, size_t len)
{
	len /= 8;
	__asm__ volatile("rep stosq" : "+D" (p), "+c" (len) : "a" (0) : "memory");
}

static void stream16(char *p, size_t len)
{
	const __m128i zero = _mm_setzero_si128();

	for (char *end = p + len; p < end; p += 64) {
		_mm_stream_si128((__m128i *)p, zero);
		_mm_stream_si128((__m128i *)(p + 16), zero);
		_mm_stream_si128((__m128i *)(p + 32), zero);
		_mm_stream_si128((__m128i *)(p + 48), zero);
	}
	_mm_sfence();
}

__attribute__((target("avx"))) static void stream32(char *p, size_t len)
{
	const __m256i zero = _mm256_setzero_si256();

	for (char *end = p + len; p < end; p += 64) {
		_mm256_stream_si256((__m256i *)p, zero);
		_mm256_stream_si256((__m256i *)(p + 32), zero);
	}
	_mm_sfence();
}

static const struct {
	const char *name;
	void (*clear)(char *p, size_t len);
	int needs_avx;
} methods[] = {
	{ "rep stosb", stosb, 0 },
	{ "rep stosq", stosq, 0 },
	{ "movntdq, 16 bytes", stream16, 0 },
	{ "vmovntdq, 32 bytes", stream32, 1 },
};

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void measure(char *arena, size_t size, size_t method)
{
	double rate[RUNS];

	for (int run = 0; run < RUNS; run++) {
		double start = seconds();

		for (size_t off = 0; off + size <= ARENA; off += size)
			methods[method].clear(arena + off, size);
		rate[run] = (double)(ARENA / size * size) / 1e9 / (seconds() - start);
		if (arena[size - 1] || arena[0]) {
			fprintf(stderr, "clear: %s left something\n", methods[method].name);
			exit(1);
		}
		memset(arena, 1, ARENA);
	}
	qsort(rate, RUNS, sizeof(rate[0]), by_value);
	printf("%-20s %10zu KB %7.2f %7.2f\n", methods[method].name, size >> 10, rate[RUNS - 1],
	       rate[RUNS / 2]);
}

int main(int argc, char **argv)
{
	static const size_t defaults[] = { 2UL << 20, 1UL << 30 };
	char *arena = aligned_alloc(2UL << 20, ARENA);
	size_t n = argc > 1 ? (size_t)argc - 1 : 2;

	if (!arena) {
		perror("clear: 1 GB");
		return 1;
	}
	madvise(arena, ARENA, MADV_HUGEPAGE);
	memset(arena, 1, ARENA);
	printf("%-20s %13s %7s %7s\n", "Method, GB/s", "Size", "best", "median");
	for (size_t i = 0; i < n; i++) {
		size_t size = argc > 1 ? strtoul(argv[i + 1], NULL, 0) : defaults[i];

		if (size < 64 || size > ARENA || size % 64) {
			fprintf(stderr, "clear: '%s': give a multiple of 64 from 64 to 1 GB (%lu)\n",
				argv[i + 1], ARENA);
			return 2;
		}
		for (size_t m = 0; m < sizeof(methods) / sizeof(methods[0]); m++)
			if (!methods[m].needs_avx || __builtin_cpu_supports("avx"))
				measure(arena, size, m);
	}
	return 0;
}
