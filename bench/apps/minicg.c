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

#include "cg.h"

/* Of the true residual, to the right-hand side, and of the largest error. */
#define MOST_RESIDUAL	1e-11
#define MOST_ERROR	1e-8

struct problem {
	struct matrix a;
	uint64_t seed;
};

static int clip(int i, int n)
{
	return i < 0 ? 0 : i >= n ? n - 1 : i;
}

/* The matrix, and the right-hand side that belongs to a solution of 1. */
static void build(struct problem *problem, struct cg *cg, int n)
{
	struct matrix *a = &problem->a;
	size_t entry = 0, row = 0;

	matrix_make(a, cg->points, cg->points * 27);
	for (int z = 0; z < cg->planes.count; z++) {
		int global = cg->planes.first + z;
		int below = z - (global > 0), above = z + (global < cg->planes.total - 1);

		for (int y = 0; y < n; y++) {
			for (int x = 0; x < n; x++, row++) {
				a->start[row] = entry;
				for (int k = below; k <= above; k++)
					for (int j = clip(y - 1, n); j <= clip(y + 1, n); j++)
						for (int i = clip(x - 1, n); i <= clip(x + 1, n); i++) {
							a->column[entry] = ((k + 1) * n + j) * n + i;
							a->value[entry++] = i == x && j == y && k == z ? 27 : -1;
						}
				cg->b[row] = 27 - (double)(entry - a->start[row] - 1);
			}
		}
	}
	a->start[row] = entry;
}

static void multiply(const struct cg *cg, const double *x, double *y)
{
	const struct problem *problem = cg->problem;

	matrix_multiply(&problem->a, x, y);
}

/* The same numbers each time, and for any number of ranks. */
static void start(struct cg *cg)
{
	const struct problem *problem = cg->problem;
	size_t offset = cg->planes.first * cg->plane;

	for (size_t i = 0; i < cg->points; i++)
		cg->x[cg->plane + i] = uniform(problem->seed, offset + i);
}

static struct result run(const struct options *options)
{
	int n = options->size;
	struct problem problem = { .seed = options->seed };
	struct cg cg = { .multiply = multiply, .start = start, .problem = &problem };
	struct result result = { 0 };
	double error = 0, largest;

	cg_make(&cg, options->strong ? n : n * app_ranks, (size_t)n * n);
	cg.b = app_alloc(cg.points, sizeof(*cg.b));
	build(&problem, &cg, n);
	cg_begin(&cg);
	cg_iterate(&cg, options->iterations);
	app_loop_ends();

	for (size_t i = 0; i < cg.points; i++)
		error = fmax(error, fabs(cg.solved[i] - 1));
	MPI_Allreduce(&error, &largest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	result.residual = cg_residual(&cg, &result.checksum);
	result.verified = cg.ended && result.residual <= MOST_RESIDUAL && largest <= MOST_ERROR;
	matrix_free(&problem.a);
	free(cg.b);
	cg_free(&cg);
	return result;
}

static double bytes(double n)
{
	/* Entries, starts of rows, six vectors of which two have a halo. */
	return n * n * n * (27 * 12 + 8 + 6 * 8) + 4 * n * n * 8;
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
		.most_ranks = app_ranks_by_size,
		.run = run,
	};

	return app_main(&app, argc, argv);
}
