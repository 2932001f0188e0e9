/* SPDX-License-Identifier: GPL-2.0 */
/* Shared by the programs that test libhpmmap_shmem: checks that are counted, and one line at the end. */
#ifndef SHMEM_CHECK_H
#define SHMEM_CHECK_H

#include <shmem.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int me, npes;
static long failures;

#define CHECK(what, ...) \
	do { \
		if (!(what) && ++failures <= 5) { \
			fprintf(stderr, "PE %d: %s:%d: %s: ", me, __FILE__, __LINE__, #what); \
			fprintf(stderr, " " __VA_ARGS__); \
			fprintf(stderr, "\n"); \
		} \
	} while (0)

static inline void begin(void)
{
	shmem_init();
	me = shmem_my_pe();
	npes = shmem_n_pes();
}

/* PE 0 prints the sum of all failures. */
static inline int end(void)
{
	static long all[256];

	shmem_long_put(&all[me], &failures, 1, 0);
	shmem_barrier_all();
	for (int i = 1; i < npes && me == 0; i++)
		all[0] += all[i];
	if (me == 0)
		printf("%d PEs, %ld failures\n", npes, all[0]);
	shmem_finalize();
	return failures != 0;
}

#endif
