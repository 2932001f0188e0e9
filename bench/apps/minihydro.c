// SPDX-License-Identifier: GPL-2.0
/*
 * A gas in two dimensions: finite volumes of first order, and the habit of HydroBench's first version
 * and of many hydrodynamics codes that each sweep allocates its work arrays and frees them.
 */
#include <math.h>
#include <stdlib.h>

#include "app.h"

#define FIELDS	4	/* density, both momenta, energy */
#define GAMMA	1.4
#define COURANT	0.4
#define MOST_CHANGE	1e-11

/* A ring of cells in each direction; rows are shared out among the ranks. */
struct gas {
	int n;
	struct planes rows;
	double *fields[FIELDS];	/* with a row at each end for the neighbours' */
};

static double pressure(const double u[FIELDS])
{
	return (GAMMA - 1) * (u[3] - (u[1] * u[1] + u[2] * u[2]) / (2 * u[0]));
}

/* Through the face between two cells, in the direction of the momentum @along (1 or 2): HLL. */
static void flux(const double l[FIELDS], const double r[FIELDS], int along, double f[FIELDS])
{
	double pl = pressure(l), pr = pressure(r), ul = l[along] / l[0], ur = r[along] / r[0];
	double cl = sqrt(GAMMA * pl / l[0]), cr = sqrt(GAMMA * pr / r[0]);
	double low = fmin(fmin(ul - cl, ur - cr), 0), high = fmax(fmax(ul + cl, ur + cr), 0);

	for (int k = 0; k < FIELDS; k++) {
		double fl = l[k] * ul, fr = r[k] * ur;

		if (k == along) {
			fl += pl;
			fr += pr;
		} else if (k == 3) {
			fl += pl * ul;
			fr += pr * ur;
		}
		f[k] = (high * fl - low * fr + low * high * (r[k] - l[k])) / (high - low);
	}
}

/* @dt: over the width of a cell. Fluxes of all faces are made first, in memory of this sweep. */
static void sweep(struct gas *gas, int along, double dt)
{
	size_t n = gas->n, cells = (gas->rows.count + 1) * n;
	double *fluxes[FIELDS];

	for (int k = 0; k < FIELDS; k++) {
		fluxes[k] = app_alloc(cells, sizeof(double));
		if (along == 2)
			planes_halo(&gas->rows, gas->fields[k], n);
	}
	for (int row = along == 2 ? 0 : 1; row <= gas->rows.count; row++)
		for (size_t i = 0; i < n; i++) {
			size_t at = row * n + i, next = along == 2 ? at + n : row * n + (i + 1) % n;
			double l[FIELDS], r[FIELDS], f[FIELDS];

			for (int k = 0; k < FIELDS; k++) {
				l[k] = gas->fields[k][at];
				r[k] = gas->fields[k][next];
			}
			flux(l, r, along, f);
			for (int k = 0; k < FIELDS; k++)
				fluxes[k][at] = f[k];
		}
	for (int k = 0; k < FIELDS; k++) {
		for (int row = 1; row <= gas->rows.count; row++)
			for (size_t i = 0; i < n; i++) {
				size_t at = row * n + i, before = along == 2 ? at - n : row * n + (i + n - 1) % n;

				gas->fields[k][at] -= dt * (fluxes[k][at] - fluxes[k][before]);
			}
		free(fluxes[k]);
	}
}

/* The largest step that is stable, over the width of a cell; the same for any number of ranks. */
static double step_of(const struct gas *gas)
{
	size_t n = gas->n;
	double fastest = 0, all;

	for (size_t at = n; at < (gas->rows.count + 1) * n; at++) {
		double u[FIELDS], c;

		for (int k = 0; k < FIELDS; k++)
			u[k] = gas->fields[k][at];
		c = sqrt(GAMMA * pressure(u) / u[0]);
		fastest = fmax(fastest, fmax(fabs(u[1]), fabs(u[2])) / u[0] + c);
	}
	MPI_Allreduce(&fastest, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	return COURANT / all;
}

static double total(const struct gas *gas, int k)
{
	double *sums = app_zeroed(gas->rows.count, sizeof(*sums)), sum;

	for (int row = 0; row < gas->rows.count; row++)
		for (int i = 0; i < gas->n; i++)
			sums[row] += gas->fields[k][(size_t)(row + 1) * gas->n + i];
	sum = planes_sum(&gas->rows, sums);
	free(sums);
	return sum;
}

static uint64_t checksum(const struct gas *gas)
{
	uint64_t *hashes = app_alloc(gas->rows.count, sizeof(*hashes)), all;

	for (int row = 0; row < gas->rows.count; row++) {
		hashes[row] = HASH_START;
		for (int k = 0; k < FIELDS; k++)
			hashes[row] = hash(hashes[row], &gas->fields[k][(size_t)(row + 1) * gas->n],
					   gas->n * sizeof(double));
	}
	all = planes_hash(&gas->rows, hashes);
	free(hashes);
	return all;
}

/* Gas at rest, denser and hotter in a square that differs a little from cell to cell. */
static void set(struct gas *gas, uint64_t seed)
{
	for (int row = 0; row < gas->rows.count; row++)
		for (int i = 0; i < gas->n; i++) {
			int y = gas->rows.first + row;
			bool inside = 4 * i >= gas->n && 2 * i < gas->n && 4 * y >= gas->rows.total && 2 * y < gas->rows.total;
			double density = inside ? 2 + uniform(seed, (uint64_t)y * gas->n + i) / 10 : 1;
			const double u[FIELDS] = { density, 0, 0, inside ? 10 : 2.5 };

			for (int k = 0; k < FIELDS; k++)
				gas->fields[k][(size_t)(row + 1) * gas->n + i] = u[k];
		}
}

static struct result run(const struct options *options)
{
	struct gas gas = { .n = options->size };
	struct result result = { .verified = true };
	double before[FIELDS];

	gas.rows = planes_make(options->strong ? options->size : options->size * app_ranks, true);
	for (int k = 0; k < FIELDS; k++)
		gas.fields[k] = app_zeroed((gas.rows.count + 2) * (size_t)gas.n, sizeof(double));
	set(&gas, options->seed);
	for (int k = 0; k < FIELDS; k++)
		before[k] = total(&gas, k);
	for (int step = 0; step < options->iterations; step++) {
		double dt = step_of(&gas);

		/* Both orders in turn. */
		sweep(&gas, step % 2 ? 2 : 1, dt);
		sweep(&gas, step % 2 ? 1 : 2, dt);
	}
	app_loop_ends();
	for (int k = 0; k < FIELDS; k++)
		/* Momenta are 0 in the sum: of the mass. */
		result.residual = fmax(result.residual, fabs(total(&gas, k) - before[k]) / (k == 3 ? before[3] : before[0]));
	for (size_t at = gas.n; at < (gas.rows.count + 1) * (size_t)gas.n; at++) {
		const double u[FIELDS] = { gas.fields[0][at], gas.fields[1][at], gas.fields[2][at], gas.fields[3][at] };

		if (!(u[0] > 0) || !(pressure(u) > 0))
			result.verified = false;
	}
	MPI_Allreduce(MPI_IN_PLACE, &result.verified, 1, MPI_C_BOOL, MPI_LAND, MPI_COMM_WORLD);
	result.verified = result.verified && result.residual <= MOST_CHANGE;
	result.checksum = checksum(&gas);
	for (int k = 0; k < FIELDS; k++)
		free(gas.fields[k]);
	planes_free(&gas.rows);
	return result;
}

static double bytes(double n)
{
	/* The fields, and the fluxes of a sweep. */
	return n * n * 2 * FIELDS * sizeof(double) + 3 * n * FIELDS * sizeof(double);
}

int main(int argc, char **argv)
{
	static const struct app app = {
		.name = "minihydro",
		.about = "Compressible gas in two dimensions, as CloverLeaf and HydroBench compute it; each sweep allocates its arrays.",
		.size_unit = "cells in each direction",
		.default_size = 200,
		.least_size = 4,
		.most_size = 20000,
		.iterations_unit = "time steps",
		.default_iterations = 100,
		.bytes = bytes,
		.most_ranks = app_ranks_by_size,
		.run = run,
	};

	return app_main(&app, argc, argv);
}
