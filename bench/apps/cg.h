/* SPDX-License-Identifier: GPL-2.0 */
/* Conjugate gradients on planes of points; matrices in compressed rows. */
#ifndef CG_H
#define CG_H

#include "app.h"

struct cg {
	struct planes planes;
	size_t plane;		/* points of one */
	size_t points;		/* of this rank */
	double *b;		/* right-hand side; NULL for 0 */
	double *x, *p;		/* with a plane at both ends that belongs to the neighbours */
	double *r, *ap;
	double *solved;		/* result of the last solve that has ended */
	double *sums;		/* of each plane */
	bool ended;		/* whether there is one */
	double first, rr;	/* squares of the residual's norm: at the start, now */
	/* @y = A @x; the halo of @x is filled before. */
	void (*multiply)(const struct cg *cg, const double *x, double *y);
	/* What a solve begins with: fills x. */
	void (*start)(struct cg *cg);
	const void *problem;	/* of these two */
};

struct matrix {
	size_t rows;
	size_t *start;		/* rows + 1: where each begins */
	int *column;		/* into a vector with a halo */
	double *value;
};

void cg_make(struct cg *cg, int planes, size_t plane);
void cg_free(struct cg *cg);
void cg_begin(struct cg *cg);
/* So many iterations; a solve that has ended starts anew. */
void cg_iterate(struct cg *cg, int iterations);
double cg_dot(struct cg *cg, const double *u, const double *v);
/* The true residual of the last solution, to the right-hand side or to what it was at first, and its checksum. */
double cg_residual(struct cg *cg, uint64_t *checksum);

void matrix_make(struct matrix *matrix, size_t rows, size_t most_entries);
void matrix_free(struct matrix *matrix);
void matrix_multiply(const struct matrix *matrix, const double *x, double *y);

#endif
