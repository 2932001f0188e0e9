// SPDX-License-Identifier: GPL-2.0
/*
 * Parallel loops, tasks, private arrays on the threads' stacks, memory that one
 * thread allocates and another frees; prints digests. Argument: scale.
 */
#include <err.h>
#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long fibonacci(int n)
{
	long a, b;

	if (n < 2)
		return n;
#pragma omp task shared(a) if (n > 12)
	a = fibonacci(n - 1);
#pragma omp task shared(b) if (n > 12)
	b = fibonacci(n - 2);
#pragma omp taskwait
	return a + b;
}

static void *allocate(size_t size)
{
	void *memory = malloc(size);

	if (!memory)
		err(1, "no memory");
	return memory;
}

/* Each row by one thread, so that rounding is the same for any number. */
static void matrices(int n)
{
	double *a = allocate(n * n * sizeof(*a)), *b = allocate(n * n * sizeof(*b));
	double *c = allocate(n * n * sizeof(*c)), trace = 0;
	int i, j, k;

#pragma omp parallel for private(j)
	for (i = 0; i < n; i++)
		for (j = 0; j < n; j++) {
			a[i * n + j] = sin(i + j);
			b[i * n + j] = cos(i - j);
		}
#pragma omp parallel for private(j, k) schedule(dynamic, 4)
	for (i = 0; i < n; i++)
		for (j = 0; j < n; j++) {
			double sum = 0;

			for (k = 0; k < n; k++)
				sum += a[i * n + k] * b[k * n + j];
			c[i * n + j] = sum;
		}
	for (i = 0; i < n; i++)
		trace += c[i * n + i];
	printf("trace %d: %.17g\n", n, trace);
	free(a);
	free(b);
	free(c);
}

/* A round: all allocate, then each frees what its neighbour allocated. */
static void exchange(int rounds)
{
	int threads = omp_get_max_threads();
	unsigned char **pieces = allocate(threads * sizeof(*pieces));
	uint64_t sum = 0;

#pragma omp parallel reduction(+:sum)
	{
		int me = omp_get_thread_num(), i;
		unsigned char local[256 << 10];

		memset(local, me, sizeof(local));
		for (i = 0; i < rounds; i++) {
			size_t size = 1000 + (size_t)(me + i) % 7 * 100000;
			unsigned char *other;

			pieces[me] = allocate(size);
			memset(pieces[me], me + i, size);
#pragma omp barrier
			other = pieces[(me + 1) % threads];
			sum += other[0] + other[999] + local[i % sizeof(local)];
#pragma omp barrier
			free(other);
		}
	}
	printf("exchange: %ju\n", (uintmax_t)sum);
	free(pieces);
}

int main(int argc, char **argv)
{
	int scale = argc > 1 ? atoi(argv[1]) : 1;
	long result = 0, count = 0;
	int i;

	printf("%d threads\n", omp_get_max_threads());
	matrices(60 * scale);
	exchange(60 * scale);
#pragma omp parallel
#pragma omp single
	result = fibonacci(20);
	printf("fibonacci: %ld\n", result);
#pragma omp parallel for reduction(+:count) schedule(guided)
	for (i = 0; i < 500000 * scale; i++)
		count += (long)i * i % 7;
	printf("count: %ld\n", count);
	/* Teams of other sizes: threads come and go. */
	for (i = 1; i <= 8; i++) {
		long all = 0;

#pragma omp parallel num_threads(i) reduction(+:all)
		all += omp_get_thread_num() + 1;
		printf("team of %d: %ld\n", i, all);
	}
	return 0;
}
