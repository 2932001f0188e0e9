// SPDX-License-Identifier: GPL-2.0
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cg.h"

/* A solve has ended when the residual has fallen to this part of the first. */
#define TOLERANCE	1e-12

void cg_make(struct cg *cg, int planes, size_t plane)
{
	cg->planes = planes_make(planes, false);
	cg->plane = plane;
	cg->points = cg->planes.count * plane;
	cg->x = app_zeroed(cg->points + 2 * plane, sizeof(*cg->x));
	cg->p = app_zeroed(cg->points + 2 * plane, sizeof(*cg->p));
	cg->r = app_alloc(cg->points, sizeof(*cg->r));
	cg->ap = app_alloc(cg->points, sizeof(*cg->ap));
	cg->solved = app_alloc(cg->points, sizeof(*cg->solved));
	cg->sums = app_alloc(cg->planes.count, sizeof(*cg->sums));
}

void cg_free(struct cg *cg)
{
	free(cg->x);
	free(cg->p);
	free(cg->r);
	free(cg->ap);
	free(cg->solved);
	free(cg->sums);
	planes_free(&cg->planes);
}

double cg_dot(struct cg *cg, const double *u, const double *v)
{
	for (int z = 0; z < cg->planes.count; z++) {
		size_t at = z * cg->plane;
		double sum = 0;

		for (size_t i = at; i < at + cg->plane; i++)
			sum += u[i] * v[i];
		cg->sums[z] = sum;
	}
	return planes_sum(&cg->planes, cg->sums);
}

static void multiply(struct cg *cg, double *x, double *y)
{
	planes_halo(&cg->planes, x, cg->plane);
	cg->multiply(cg, x, y);
}

/* The residual of x. */
static void residual(struct cg *cg)
{
	multiply(cg, cg->x, cg->ap);
	for (size_t i = 0; i < cg->points; i++)
		cg->r[i] = (cg->b ? cg->b[i] : 0) - cg->ap[i];
}

void cg_begin(struct cg *cg)
{
	cg->start(cg);
	residual(cg);
	memcpy(cg->p + cg->plane, cg->r, cg->points * sizeof(*cg->r));
	cg->first = cg->rr = cg_dot(cg, cg->r, cg->r);
}

static void step(struct cg *cg)
{
	double *x = cg->x + cg->plane, *p = cg->p + cg->plane, alpha, beta, next;

	multiply(cg, cg->p, cg->ap);
	alpha = cg->rr / cg_dot(cg, p, cg->ap);
	for (size_t i = 0; i < cg->points; i++) {
		x[i] += alpha * p[i];
		cg->r[i] -= alpha * cg->ap[i];
	}
	next = cg_dot(cg, cg->r, cg->r);
	beta = next / cg->rr;
	for (size_t i = 0; i < cg->points; i++)
		p[i] = cg->r[i] + beta * p[i];
	cg->rr = next;
}

void cg_iterate(struct cg *cg, int iterations)
{
	while (iterations--) {
		step(cg);
		if (sqrt(cg->rr) > TOLERANCE * sqrt(cg->first))
			continue;
		memcpy(cg->solved, cg->x + cg->plane, cg->points * sizeof(*cg->solved));
		cg->ended = true;
		cg_begin(cg);
	}
	if (!cg->ended)
		memcpy(cg->solved, cg->x + cg->plane, cg->points * sizeof(*cg->solved));
}

double cg_residual(struct cg *cg, uint64_t *checksum)
{
	uint64_t *hashes = app_alloc(cg->planes.count, sizeof(*hashes));
	double to = cg->b ? cg_dot(cg, cg->b, cg->b) : cg->first;

	memcpy(cg->x + cg->plane, cg->solved, cg->points * sizeof(*cg->solved));
	residual(cg);
	for (int z = 0; z < cg->planes.count; z++)
		hashes[z] = hash(HASH_START, cg->solved + z * cg->plane, cg->plane * sizeof(*cg->solved));
	*checksum = planes_hash(&cg->planes, hashes);
	free(hashes);
	return sqrt(cg_dot(cg, cg->r, cg->r) / to);
}

void matrix_make(struct matrix *matrix, size_t rows, size_t most_entries)
{
	matrix->rows = rows;
	matrix->start = app_alloc(rows + 1, sizeof(*matrix->start));
	matrix->column = app_alloc(most_entries, sizeof(*matrix->column));
	matrix->value = app_alloc(most_entries, sizeof(*matrix->value));
}

void matrix_free(struct matrix *matrix)
{
	free(matrix->start);
	free(matrix->column);
	free(matrix->value);
}

void matrix_multiply(const struct matrix *matrix, const double *x, double *y)
{
	for (size_t row = 0; row < matrix->rows; row++) {
		double sum = 0;

		for (size_t i = matrix->start[row]; i < matrix->start[row + 1]; i++)
			sum += matrix->value[i] * x[matrix->column[i]];
		y[row] = sum;
	}
}
