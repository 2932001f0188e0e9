// SPDX-License-Identifier: GPL-2.0
/*
 * minife: finite elements with a sparse matrix that is built half-way, as miniFE
 * does it.
 *
 * The Laplace equation on a box of N x N x N hexahedral elements a rank. The first
 * half of the iterations applies the elements' matrix element by element and needs
 * vectors only. Then the matrix is allocated, at once, assembled by quadrature of
 * every element, and used for the other half. The values at the boundary are
 * those of a trilinear harmonic function, which these elements represent exactly:
 * it is the solution at every node.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cg.h"

/* Of the true residual, and of the largest error to the largest value. */
#define MOST_RESIDUAL	1e-10
#define MOST_ERROR	1e-7

struct problem {
	int n;			/* elements in x and y */
	int layers;		/* of elements, in z */
	int m;			/* nodes in x and y */
	double element[8][8];
	struct matrix a;
	uint64_t seed;
};

static double exact(const struct problem *problem, int i, int j, int k)
{
	double h = 1.0 / problem->n, x = i * h, y = j * h, z = k * h;

	return 1 + x + 2 * y + 3 * z + x * y * z;
}

static bool is_boundary(const struct problem *problem, int i, int j, int k)
{
	return !i || !j || !k || i == problem->n || j == problem->n || k == problem->layers;
}

/* Stiffness of a cube with sides of @h, by 2 x 2 x 2 points of Gauss. */
static void integrate(double h, double element[8][8])
{
	static const double point[2] = { 0.5 - 0.28867513459481287, 0.5 + 0.28867513459481287 };

	memset(element, 0, 64 * sizeof(double));
	for (int q = 0; q < 8; q++) {
		double at[3] = { point[q & 1], point[q >> 1 & 1], point[q >> 2] }, gradient[8][3];

		for (int v = 0; v < 8; v++) {
			double shape[3], slope[3];

			for (int d = 0; d < 3; d++) {
				bool high = v >> d & 1;

				shape[d] = high ? at[d] : 1 - at[d];
				slope[d] = high ? 1 / h : -1 / h;
			}
			gradient[v][0] = slope[0] * shape[1] * shape[2];
			gradient[v][1] = shape[0] * slope[1] * shape[2];
			gradient[v][2] = shape[0] * shape[1] * slope[2];
		}
		for (int v = 0; v < 8; v++)
			for (int w = 0; w < 8; w++)
				for (int d = 0; d < 3; d++)
					element[v][w] += gradient[v][d] * gradient[w][d] * h * h * h / 8;
	}
}

/* Layers of elements that touch nodes of this rank. */
static int first_layer(const struct cg *cg)
{
	return cg->planes.first > 0 ? cg->planes.first - 1 : 0;
}

static int last_layer(const struct cg *cg, const struct problem *problem)
{
	int last = cg->planes.first + cg->planes.count - 1;

	return last < problem->layers ? last : problem->layers - 1;
}

/* Where node @v of the element is in a vector with a halo. */
static size_t corner(const struct cg *cg, const struct problem *problem, int i, int j, int k, int v)
{
	size_t m = problem->m;

	return ((k + (v >> 2) - cg->planes.first + 1) * m + j + (v >> 1 & 1)) * m + i + (v & 1);
}

/*
 * Element by element. The result is 0 at the boundary, so that the values there,
 * which are right from the start, stay as they are.
 */
static void multiply_elements(const struct cg *cg, const double *x, double *y)
{
	const struct problem *problem = cg->problem;
	size_t low = cg->plane, high = cg->plane + cg->points, row = 0;

	memset(y, 0, cg->points * sizeof(*y));
	for (int k = first_layer(cg); k <= last_layer(cg, problem); k++)
		for (int j = 0; j < problem->n; j++)
			for (int i = 0; i < problem->n; i++) {
				size_t at[8];
				double in[8];

				for (int v = 0; v < 8; v++) {
					at[v] = corner(cg, problem, i, j, k, v);
					in[v] = x[at[v]];
				}
				for (int v = 0; v < 8; v++) {
					double sum = 0;

					if (at[v] < low || at[v] >= high)
						continue;
					for (int w = 0; w < 8; w++)
						sum += problem->element[v][w] * in[w];
					y[at[v] - low] += sum;
				}
			}
	for (int k = 0; k < cg->planes.count; k++)
		for (int j = 0; j < problem->m; j++)
			for (int i = 0; i < problem->m; i++, row++)
				if (is_boundary(problem, i, j, cg->planes.first + k))
					y[row] = 0;
}

static void multiply_matrix(const struct cg *cg, const double *x, double *y)
{
	const struct problem *problem = cg->problem;

	matrix_multiply(&problem->a, x, y);
}

/* The structure: a row has the nodes of all elements around its node. */
static void structure(struct problem *problem, const struct cg *cg)
{
	struct matrix *a = &problem->a;
	int m = problem->m;
	size_t entry = 0, row = 0;

	matrix_make(a, cg->points, cg->points * 27);
	for (int k = 0; k < cg->planes.count; k++) {
		int global = cg->planes.first + k;
		int below = k - (global > 0), above = k + (global < problem->layers);

		for (int j = 0; j < m; j++)
			for (int i = 0; i < m; i++) {
				a->start[row++] = entry;
				for (int c = below; c <= above; c++)
					for (int b = j ? j - 1 : 0; b <= j + 1 && b < m; b++)
						for (int d = i ? i - 1 : 0; d <= i + 1 && d < m; d++)
							a->column[entry++] = ((c + 1) * m + b) * m + d;
			}
	}
	a->start[row] = entry;
	memset(a->value, 0, entry * sizeof(*a->value));
}

static double *entry_of(struct matrix *a, size_t row, int column)
{
	size_t low = a->start[row], high = a->start[row + 1];

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (a->column[middle] < column)
			low = middle + 1;
		else
			high = middle;
	}
	return &a->value[low];
}

static void assemble(struct problem *problem, const struct cg *cg)
{
	size_t low = cg->plane, high = cg->plane + cg->points;

	for (int k = first_layer(cg); k <= last_layer(cg, problem); k++)
		for (int j = 0; j < problem->n; j++)
			for (int i = 0; i < problem->n; i++) {
				double element[8][8];

				integrate(1.0 / problem->n, element);
				for (int v = 0; v < 8; v++) {
					size_t row = corner(cg, problem, i, j, k, v);

					if (row < low || row >= high)
						continue;
					for (int w = 0; w < 8; w++)
						*entry_of(&problem->a, row - low, corner(cg, problem, i, j, k, w)) +=
							element[v][w];
				}
			}
}

/*
 * Puts the values at the boundary into the right-hand side and takes its columns
 * out; its rows become those of the unit matrix.
 */
static void impose_boundary(struct problem *problem, struct cg *cg)
{
	struct matrix *a = &problem->a;
	int m = problem->m;
	size_t row = 0;

	for (int k = 0; k < cg->planes.count; k++)
		for (int j = 0; j < m; j++)
			for (int i = 0; i < m; i++, row++) {
				int global = cg->planes.first + k;
				bool fixed = is_boundary(problem, i, j, global);

				cg->b[row] = fixed ? exact(problem, i, j, global) : 0;
				for (size_t e = a->start[row]; e < a->start[row + 1]; e++) {
					int c = a->column[e], z = c / (m * m) - 1 + cg->planes.first;
					int y = c / m % m, x = c % m;

					if (fixed)
						a->value[e] = x == i && y == j && z == global;
					else if (is_boundary(problem, x, y, z)) {
						cg->b[row] -= a->value[e] * exact(problem, x, y, z);
						a->value[e] = 0;
					}
				}
			}
}

/* The right values at the boundary, numbers of the seed inside. */
static void start(struct cg *cg)
{
	const struct problem *problem = cg->problem;
	size_t row = 0, offset = cg->planes.first * cg->plane;

	for (int k = 0; k < cg->planes.count; k++)
		for (int j = 0; j < problem->m; j++)
			for (int i = 0; i < problem->m; i++, row++)
				cg->x[cg->plane + row] = is_boundary(problem, i, j, cg->planes.first + k) ?
					exact(problem, i, j, cg->planes.first + k) :
					uniform(problem->seed, offset + row);
}

/* Of the last solution, to the largest value. */
static double largest_error(const struct cg *cg)
{
	const struct problem *problem = cg->problem;
	double mine = 0, all;
	size_t row = 0;

	for (int k = 0; k < cg->planes.count; k++)
		for (int j = 0; j < problem->m; j++)
			for (int i = 0; i < problem->m; i++, row++)
				mine = fmax(mine, fabs(cg->solved[row] - exact(problem, i, j, cg->planes.first + k)));
	MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	return all / exact(problem, problem->n, problem->n, problem->layers);
}

static struct result run(const struct options *options)
{
	int n = options->size, first_half = options->iterations / 2;
	struct problem problem = {
		.n = n,
		.layers = options->strong ? n : n * app_ranks,
		.m = n + 1,
		.seed = options->seed,
	};
	struct cg cg = { .multiply = multiply_elements, .start = start, .problem = &problem };
	struct result result = { 0 };
	bool ended;

	cg_make(&cg, problem.layers + 1, (size_t)problem.m * problem.m);
	integrate(1.0 / n, problem.element);
	cg_begin(&cg);
	cg_iterate(&cg, first_half);
	ended = cg.ended && largest_error(&cg) <= MOST_ERROR;

	structure(&problem, &cg);
	assemble(&problem, &cg);
	cg.b = app_alloc(cg.points, sizeof(*cg.b));
	impose_boundary(&problem, &cg);
	cg.multiply = multiply_matrix;
	cg.ended = false;
	cg_begin(&cg);
	cg_iterate(&cg, options->iterations - first_half);
	app_loop_ends();

	result.residual = cg_residual(&cg, &result.checksum);
	result.verified = ended && cg.ended && result.residual <= MOST_RESIDUAL &&
			  largest_error(&cg) <= MOST_ERROR;
	matrix_free(&problem.a);
	free(cg.b);
	cg_free(&cg);
	return result;
}

static double bytes(double n)
{
	double plane = (n + 1) * (n + 1);

	/* As minicg, for nodes. */
	return plane * (n + 1) * (27 * 12 + 8 + 6 * 8) + 4 * plane * 8;
}

static int most_ranks(const struct options *options)
{
	return options->strong ? options->size + 1 : 1 << 16;
}

/* A solve needs the more iterations the more elements there are from end to end. */
static int iterations_to_solve(const struct options *options)
{
	return 2 * (40 + 4 * options->size * (options->strong ? 1 : app_ranks));
}

int main(int argc, char **argv)
{
	static const struct app app = {
		.name = "minife",
		.about = "Finite elements whose matrix is assembled half-way through the run, as miniFE does it.",
		.size_unit = "elements in each direction",
		.default_size = 30,
		.least_size = 4,
		.most_size = 1024,
		.iterations_unit = "iterations of conjugate gradients, half without the matrix, half with it",
		.iterations_to_solve = iterations_to_solve,
		.bytes = bytes,
		.most_ranks = most_ranks,
		.run = run,
	};

	return app_main(&app, argc, argv);
}
