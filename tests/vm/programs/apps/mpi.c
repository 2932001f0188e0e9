// SPDX-License-Identifier: GPL-2.0
/*
 * Collectives, messages of all sizes, one-sided transfers and a heat equation;
 * rank 0 prints digests. Argument: scale.
 */
#include <err.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static int rank, ranks;

static void *allocate(size_t size)
{
	void *memory = calloc(1, size);

	if (!memory)
		err(1, "rank %d: no memory", rank);
	return memory;
}

static uint64_t digest(const void *data, size_t size)
{
	const unsigned char *byte = data;
	uint64_t hash = 14695981039346656037ULL;

	while (size--)
		hash = (hash ^ *byte++) * 1099511628211ULL;
	return hash;
}

/* The digests of all ranks, in one. */
static void show(const char *title, const void *data, size_t size)
{
	uint64_t mine = digest(data, size);
	uint64_t *all = allocate(ranks * sizeof(*all));

	MPI_Gather(&mine, 1, MPI_UINT64_T, all, 1, MPI_UINT64_T, 0,
		   MPI_COMM_WORLD);
	if (!rank)
		printf("%s: %016jx\n", title,
		       (uintmax_t)digest(all, ranks * sizeof(*all)));
	free(all);
}

/* Around the ring, from a few bytes to megabytes: every protocol there is. */
static void ring(void)
{
	int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
	char title[64];
	int size, i;

	for (size = 8; size <= 4 << 20; size *= 8) {
		unsigned char *out = allocate(size), *in = allocate(size);

		for (i = 0; i < size; i++)
			out[i] = i * 7 + rank;
		MPI_Sendrecv(out, size, MPI_BYTE, right, 1, in, size, MPI_BYTE,
			     left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		snprintf(title, sizeof(title), "ring %d", size);
		show(title, in, size);
		free(out);
		free(in);
	}
}

static void collectives(void)
{
	const int n = 1 << 14;
	long *in = allocate(n * ranks * sizeof(*in));
	long *out = allocate(n * ranks * sizeof(*out));
	int i;

	for (i = 0; i < n * ranks; i++)
		in[i] = (long)i * (rank + 1);
	MPI_Alltoall(in, n, MPI_LONG, out, n, MPI_LONG, MPI_COMM_WORLD);
	show("alltoall", out, n * ranks * sizeof(*out));
	MPI_Allreduce(in, out, n, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	show("allreduce", out, n * sizeof(*out));
	MPI_Allgather(in, n, MPI_LONG, out, n, MPI_LONG, MPI_COMM_WORLD);
	show("allgather", out, n * ranks * sizeof(*out));
	MPI_Bcast(out, n * ranks, MPI_LONG, ranks - 1, MPI_COMM_WORLD);
	show("bcast", out, n * ranks * sizeof(*out));
	free(in);
	free(out);
}

/* Every rank writes into the memory of the next. */
static void one_sided(void)
{
	const int n = 1 << 16;
	long *window, *out = allocate(n * sizeof(*out));
	MPI_Win win;
	int i;

	MPI_Win_allocate(n * sizeof(*window), sizeof(*window), MPI_INFO_NULL,
			 MPI_COMM_WORLD, &window, &win);
	for (i = 0; i < n; i++)
		out[i] = i * 3 + rank;
	MPI_Win_fence(0, win);
	MPI_Put(out, n, MPI_LONG, (rank + 1) % ranks, 0, n, MPI_LONG, win);
	MPI_Win_fence(0, win);
	show("put", window, n * sizeof(*window));
	MPI_Win_free(&win);
	free(out);
}

/* Rows are spread over the ranks; each sends its borders to its neighbours. */
static void heat(int scale)
{
	const int n = 256, rows = n / ranks;
	int up = rank ? rank - 1 : MPI_PROC_NULL;
	int down = rank < ranks - 1 ? rank + 1 : MPI_PROC_NULL;
	double *now = allocate((rows + 2) * n * sizeof(*now));
	double *next = allocate((rows + 2) * n * sizeof(*next));
	double *all = allocate(n * n * sizeof(*all)), sum = 0, *swap;
	int step, i, j;

	for (i = 1; i <= rows; i++)
		for (j = 0; j < n; j++)
			now[i * n + j] = (rank * rows + i) * j % 97;
	for (step = 0; step < 20 * scale; step++) {
		MPI_Sendrecv(now + n, n, MPI_DOUBLE, up, 2,
			     now + (rows + 1) * n, n, MPI_DOUBLE, down, 2,
			     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Sendrecv(now + rows * n, n, MPI_DOUBLE, down, 3,
			     now, n, MPI_DOUBLE, up, 3,
			     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		for (i = 1; i <= rows; i++)
			for (j = 1; j < n - 1; j++)
				next[i * n + j] = now[i * n + j] * 0.6 + 0.1 *
					(now[(i - 1) * n + j] +
					 now[(i + 1) * n + j] +
					 now[i * n + j - 1] +
					 now[i * n + j + 1]);
		swap = now;
		now = next;
		next = swap;
	}
	show("heat", now, (rows + 2) * n * sizeof(*now));
	MPI_Gather(now + n, rows * n, MPI_DOUBLE, all, rows * n, MPI_DOUBLE, 0,
		   MPI_COMM_WORLD);
	for (i = 0; i < n * n; i++)
		sum += all[i];
	if (!rank)
		printf("heat: %.17g\n", sum);
	free(now);
	free(next);
	free(all);
}

int main(int argc, char **argv)
{
	int scale = argc > 1 ? atoi(argv[1]) : 1;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (!rank)
		printf("%d ranks\n", ranks);
	ring();
	collectives();
	one_sided();
	heat(scale);
	MPI_Finalize();
	return 0;
}
