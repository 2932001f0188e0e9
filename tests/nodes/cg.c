// SPDX-License-Identifier: GPL-2.0
/*
 * A program of MPI for nodes: conjugate gradients for Poisson's equation on a square whose rows
 * are spread over the ranks, and blocks that go round a ring. All is done once, to
 * load code and make connections, and then again, with memory that is allocated and given back
 * each time. Each rank prints the page faults of that, and fails if a result is wrong.
 *
 * cg SIDE BYTES: unknowns along a side; of each block
 */
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <mpi.h>

static int rank, ranks;

static double *allocate(size_t count)
{
	double *memory = calloc(count, sizeof(*memory));

	if (!memory) {
		fprintf(stderr, "rank %d: no memory for %zu numbers\n", rank, count);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	return memory;
}

static double sum(double mine)
{
	double all;

	MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	return all;
}

static double product(const double *a, const double *b, size_t count)
{
	double mine = 0;

	for (size_t i = 0; i < count; i++)
		mine += a[i] * b[i];
	return sum(mine);
}

/* The row before the first of a field and that after the last are of the neighbours. */
static void exchange(double *field, int side, int rows)
{
	int up = rank ? rank - 1 : MPI_PROC_NULL;
	int down = rank < ranks - 1 ? rank + 1 : MPI_PROC_NULL;

	MPI_Sendrecv(field + side, side, MPI_DOUBLE, up, 0, field + (size_t)(rows + 1) * side, side,
		     MPI_DOUBLE, down, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	MPI_Sendrecv(field + (size_t)rows * side, side, MPI_DOUBLE, down, 1, field, side,
		     MPI_DOUBLE, up, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* to = A field, both without the neighbours' rows in what is computed. */
static void apply(double *field, double *to, int side, int rows)
{
	exchange(field, side, rows);
	for (int y = 1; y <= rows; y++) {
		const double *row = field + (size_t)y * side;

		for (int x = 0; x < side; x++)
			to[(size_t)y * side + x] = 4 * row[x] - row[x - side] - row[x + side] -
						   (x ? row[x - 1] : 0) -
						   (x < side - 1 ? row[x + 1] : 0);
	}
}

/* The largest error of the solution, which is known. */
static double solve(int side)
{
	int first = (int)((long)side * rank / ranks);
	int rows = (int)((long)side * (rank + 1) / ranks) - first;
	size_t count = (size_t)rows * side, all = count + 2 * (size_t)side;
	double *known = allocate(all), *x = allocate(all), *r = allocate(all);
	double *p = allocate(all), *q = allocate(all);
	double rho, error = 0, worst;

	for (size_t i = 0; i < count; i++)
		known[side + i] = sin(0.01 * (double)(i + (size_t)first * side)) + (double)(i % 7);
	apply(known, r, side, rows);
	memcpy(p + side, r + side, count * sizeof(*p));
	rho = product(r + side, r + side, count);
	for (int step = 0; step < 20 * side && rho > 1e-20; step++) {
		double alpha, next;

		apply(p, q, side, rows);
		alpha = rho / product(p + side, q + side, count);
		for (size_t i = side; i < side + count; i++) {
			x[i] += alpha * p[i];
			r[i] -= alpha * q[i];
		}
		next = product(r + side, r + side, count);
		for (size_t i = side; i < side + count; i++)
			p[i] = r[i] + next / rho * p[i];
		rho = next;
	}
	for (size_t i = side; i < side + count; i++)
		error = fmax(error, fabs(x[i] - known[i]));
	MPI_Allreduce(&error, &worst, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	free(known);
	free(x);
	free(r);
	free(p);
	free(q);
	return worst;
}

/* A block goes once round; how many of its numbers are not what they were. */
static long ring(size_t bytes)
{
	size_t count = bytes / sizeof(double);
	double *out = allocate(count), *in = allocate(count), *swap;
	long wrong = 0;

	for (size_t i = 0; i < count; i++)
		out[i] = (double)(i ^ (size_t)rank);
	for (int hop = 0; hop < ranks; hop++) {
		MPI_Sendrecv(out, (int)count, MPI_DOUBLE, (rank + 1) % ranks, 2, in, (int)count, MPI_DOUBLE,
			     (rank + ranks - 1) % ranks, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		swap = out, out = in, in = swap;
	}
	for (size_t i = 0; i < count; i++)
		wrong += out[i] != (double)(i ^ (size_t)rank);
	free(out);
	free(in);
	return (long)sum((double)wrong);
}

static long faults(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_minflt + usage.ru_majflt;
}

int main(int argc, char **argv)
{
	char name[MPI_MAX_PROCESSOR_NAME];
	int side, length;
	size_t bytes;
	double error;
	long wrong, before, took;

	if (argc != 3)
		return 2;
	side = atoi(argv[1]);
	bytes = strtoul(argv[2], NULL, 10);
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	MPI_Get_processor_name(name, &length);
	/* What is freed is not kept for what comes. */
	mallopt(M_MMAP_THRESHOLD, 64 << 10);
	solve(side);
	ring(bytes);

	before = faults();
	error = solve(side);
	wrong = ring(bytes);
	took = faults() - before;

	printf("rank %d of %d on %s: %ld faults, error %g, %ld wrong\n", rank, ranks, name, took, error, wrong);
	fflush(stdout);
	MPI_Finalize();
	return error < 1e-6 && wrong == 0 ? 0 : 1;
}
