// SPDX-License-Identifier: GPL-2.0
/*
 * minicg: conjugate gradients on an explicit sparse matrix, as HPCCG does it.
 *
 * The matrix is that of a 27-point stencil on N x N x N points a rank: 27 on the
 * diagonal, -1 for each neighbour. The right-hand side is such that the solution
 * is 1 everywhere. The ranks have slabs in z and exchange planes.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "app.h"

/* A solve has ended when the residual has fallen to this part of the first. */
#define TOLERANCE	1e-12
/* Of the true residual, to the right-hand side, and of the largest error. */
#define MOST_RESIDUAL	1e-11
#define MOST_ERROR	1e-8

struct matrix {
	size_t rows;
	size_t *start;		/* rows + 1: where each begins */
	int *column;		/* into a vector with a halo */
	double *value;
};

struct problem {
	struct planes planes;
	size_t plane;		/* points of one */
	size_t points;		/* of this rank */
	struct matrix a;
	double *b;		/* right-hand side */
	double *x, *p;		/* with a plane at both ends that belongs to the neighbours */
	double *r, *ap;
	double *sums;		/* of each plane */
};

static int clip(int i, int n)
{
	return i < 0 ? 0 : i >= n ? n - 1 : i;
}

static void matrix_build(struct problem *q, int n)
{
	struct matrix *a = &q->a;
	size_t entry = 0, row = 0;

	a->rows = q->points;
	a->start = app_alloc(a->rows + 1, sizeof(*a->start));
	a->column = app_alloc(a->rows * 27, sizeof(*a->column));
	a->value = app_alloc(a->rows * 27, sizeof(*a->value));
	for (int z = 0; z < q->planes.count; z++) {
		int global = q->planes.first + z;
		int from = clip(global - 1, q->planes.total) - global, to = clip(global + 1, q->planes.total) - global;

		for (int y = 0; y < n; y++) {
			for (int x = 0; x < n; x++, row++) {
				a->start[row] = entry;
				for (int k = z + from; k <= z + to; k++)
					for (int j = clip(y - 1, n); j <= clip(y + 1, n); j++)
						for (int i = clip(x - 1, n); i <= clip(x + 1, n); i++) {
							a->column[entry] = ((k + 1) * n + j) * n + i;
							a->value[entry++] = i == x && j == y && k == z ? 27 : -1;
						}
				q->b[row] = 27 - (double)(entry - a->start[row] - 1);
			}
		}
	}
	a->start[row] = entry;
}

/* @y = A @x, after the halo of @x has been filled. */
static void multiply(struct problem *q, double *x, double *y)
{
	const struct matrix *a = &q->a;

	planes_halo(&q->planes, x, q->plane);
	for (size_t row = 0; row < a->rows; row++) {
		double sum = 0;

		for (size_t i = a->start[row]; i < a->start[row + 1]; i++)
			sum += a->value[i] * x[a->column[i]];
		y[row] = sum;
	}
}

static double dot(struct problem *q, const double *u, const double *v)
{
	for (int z = 0; z < q->planes.count; z++) {
		size_t at = z * q->plane;
		double sum = 0;

		for (size_t i = at; i < at + q->plane; i++)
			sum += u[i] * v[i];
		q->sums[z] = sum;
	}
	return planes_sum(&q->planes, q->sums);
}

/* From the same numbers each time; returns the square of the residual's norm. */
static double solve_begins(struct problem *q, uint64_t seed)
{
	size_t offset = q->planes.first * q->plane;

	for (size_t i = 0; i < q->points; i++)
		q->x[q->plane + i] = uniform(seed, offset + i);
	multiply(q, q->x, q->ap);
	for (size_t i = 0; i < q->points; i++)
		q->r[i] = q->b[i] - q->ap[i];
	memcpy(q->p + q->plane, q->r, q->points * sizeof(*q->r));
	return dot(q, q->r, q->r);
}

/* Returns the square of the residual's norm. */
static double step(struct problem *q, double rr)
{
	double *x = q->x + q->plane, *p = q->p + q->plane, alpha, beta, next;

	multiply(q, q->p, q->ap);
	alpha = rr / dot(q, p, q->ap);
	for (size_t i = 0; i < q->points; i++) {
		x[i] += alpha * p[i];
		q->r[i] -= alpha * q->ap[i];
	}
	next = dot(q, q->r, q->r);
	beta = next / rr;
	for (size_t i = 0; i < q->points; i++)
		p[i] = q->r[i] + beta * p[i];
	return next;
}

static struct result verify(struct problem *q, const double *x)
{
	struct result result;
	uint64_t *hashes = app_alloc(q->planes.count, sizeof(*hashes));
	double error = 0, largest;

	memcpy(q->x + q->plane, x, q->points * sizeof(*x));
	multiply(q, q->x, q->ap);
	for (size_t i = 0; i < q->points; i++) {
		q->r[i] = q->b[i] - q->ap[i];
		error = fmax(error, fabs(x[i] - 1));
	}
	for (int z = 0; z < q->planes.count; z++)
		hashes[z] = hash(HASH_START, x + z * q->plane, q->plane * sizeof(*x));
	result.residual = sqrt(dot(q, q->r, q->r) / dot(q, q->b, q->b));
	result.checksum = planes_hash(&q->planes, hashes);
	MPI_Allreduce(&error, &largest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	result.verified = result.residual <= MOST_RESIDUAL && largest <= MOST_ERROR;
	free(hashes);
	return result;
}

static struct result run(const struct options *options)
{
	int n = options->size;
	struct problem q = {
		.planes = planes_make(options->strong ? n : n * app_ranks, false),
		.plane = (size_t)n * n,
	};
	struct result result;
	double rr, first, *solved;
	bool whole = false;

	q.points = q.planes.count * q.plane;
	q.b = app_alloc(q.points, sizeof(*q.b));
	q.r = app_alloc(q.points, sizeof(*q.r));
	q.ap = app_alloc(q.points, sizeof(*q.ap));
	q.x = calloc(q.points + 2 * q.plane, sizeof(*q.x));
	q.p = calloc(q.points + 2 * q.plane, sizeof(*q.p));
	if (!q.x || !q.p)
		app_die("no memory for the vectors");
	solved = app_alloc(q.points, sizeof(*solved));
	q.sums = app_alloc(q.planes.count, sizeof(*q.sums));
	matrix_build(&q, n);

	rr = first = solve_begins(&q, options->seed);
	for (int i = 0; i < options->iterations; i++) {
		rr = step(&q, rr);
		if (sqrt(rr) > TOLERANCE * sqrt(first))
			continue;
		memcpy(solved, q.x + q.plane, q.points * sizeof(*solved));
		whole = true;
		rr = first = solve_begins(&q, options->seed);
	}
	app_loop_ends();
	if (!whole)
		memcpy(solved, q.x + q.plane, q.points * sizeof(*solved));
	result = verify(&q, solved);

	free(q.a.start);
	free(q.a.column);
	free(q.a.value);
	free(q.b);
	free(q.r);
	free(q.ap);
	free(q.x);
	free(q.p);
	free(solved);
	free(q.sums);
	planes_free(&q.planes);
	return result;
}

static double bytes(double n)
{
	/* Entries, starts of rows, six vectors of which two have a halo. */
	return n * n * n * (27 * 12 + 8 + 6 * 8) + 4 * n * n * 8;
}

static int most_ranks(const struct options *options)
{
	return options->strong ? options->size : 1 << 16;
}

int main(int argc, char **argv)
{
	static const struct app app = {
		.name = "minicg",
		.about = "Conjugate gradients on an explicit matrix of a 27-point stencil, as HPCCG does it.",
		.size_unit = "points in each direction",
		.default_size = 40,
		.least_size = 4,
		.most_size = 1024,
		.iterations_unit = "iterations of conjugate gradients; a solve that has ended starts anew",
		.default_iterations = 150,
		.bytes = bytes,
		.most_ranks = most_ranks,
		.run = run,
	};

	return app_main(&app, argc, argv);
}
