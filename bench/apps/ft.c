// SPDX-License-Identifier: GPL-2.0
/*
 * FT of the NAS Parallel Benchmarks (D. H. Bailey et al., RNR-94-007): a partial differential equation in three dimensions
 * by Fourier transforms. Ranks have slabs in z; each transform exchanges all data by MPI_Alltoall, to slabs in x.
 */
#include <complex.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "app.h"
#include "npb.h"

#define EDGE	64
#define POINTS	((size_t)EDGE * EDGE * EDGE)
#define SEED	314159265ULL
#define ALPHA	1e-6
#define SUMMANDS	1024
#define MOST_STEPS	6
#define ACCURACY	1e-12

typedef double complex number;

/* Class S: the sums after each step. */
static const number known[MOST_STEPS] = {
	554.6087004964 + 484.5363331978 * I, 554.6385409189 + 486.5304269511 * I,
	554.6148406171 + 488.3910722336 * I, 554.5423607415 + 490.1273169046 * I,
	554.4255039624 + 491.7475857993 * I, 554.2683411902 + 493.2597244941 * I,
};

static number roots[EDGE / 2];
/* Planes of z, and of x after an exchange, of this rank. */
static int share, first;

/* One row of EDGE numbers in place; @sign -1 is the transform, 1 its inverse without the division. */
static void transform_row(number *row, int sign)
{
	for (int i = 1, j = 0; i < EDGE; i++) {
		int bit = EDGE / 2;

		for (; j & bit; bit >>= 1)
			j ^= bit;
		j ^= bit;
		if (i < j) {
			number other = row[i];

			row[i] = row[j];
			row[j] = other;
		}
	}
	for (int length = 2; length <= EDGE; length *= 2)
		for (int begin = 0; begin < EDGE; begin += length)
			for (int i = 0; i < length / 2; i++) {
				number root = roots[i * (EDGE / length)];
				number *low = &row[begin + i], *high = low + length / 2;
				number turned = *high * (sign < 0 ? root : conj(root));

				*high = *low - turned;
				*low += turned;
			}
}

/* All rows of numbers that lie @stride apart, in @outer blocks of @stride rows. */
static void transform_all(number *data, int outer, size_t stride, int sign)
{
	number row[EDGE];

	for (int block = 0; block < outer; block++)
		for (size_t i = 0; i < stride; i++) {
			number *at = data + block * EDGE * stride + i;

			for (int k = 0; k < EDGE; k++)
				row[k] = at[k * stride];
			transform_row(row, sign);
			for (int k = 0; k < EDGE; k++)
				at[k * stride] = row[k];
		}
}

/*
 * From slabs [z of this rank][y][x] to slabs [x of this rank][y][z], or back: the same movement. Made anew each time, as
 * memory for messages is in codes that do not keep it.
 */
static void exchange(number *data)
{
	size_t block = (size_t)share * share * EDGE, all = block * app_ranks;
	number *out = app_alloc(all, sizeof(*out)), *in = app_alloc(all, sizeof(*in));

	for (int to = 0; to < app_ranks; to++)
		for (int a = 0; a < share; a++)
			for (int y = 0; y < EDGE; y++)
				for (int b = 0; b < share; b++)
					out[to * block + ((size_t)b * EDGE + y) * share + a] =
						data[((size_t)a * EDGE + y) * EDGE + to * share + b];
	MPI_Alltoall(out, 2 * (int)block, MPI_DOUBLE, in, 2 * (int)block, MPI_DOUBLE, MPI_COMM_WORLD);
	for (int of = 0; of < app_ranks; of++)
		for (int b = 0; b < share; b++)
			for (int y = 0; y < EDGE; y++)
				memcpy(&data[((size_t)b * EDGE + y) * EDGE + of * share],
				       &in[of * block + ((size_t)b * EDGE + y) * share], share * sizeof(*data));
	free(out);
	free(in);
}

static int wave(int k)
{
	return k < EDGE / 2 ? k : k - EDGE;
}

static number sum_of(const number *u)
{
	double mine[2] = { 0 }, all[2];

	for (int j = 1; j <= SUMMANDS; j++) {
		int x = j % EDGE, y = 3 * j % EDGE, z = 5 * j % EDGE;

		if (z < first || z >= first + share)
			continue;
		mine[0] += creal(u[((size_t)(z - first) * EDGE + y) * EDGE + x]);
		mine[1] += cimag(u[((size_t)(z - first) * EDGE + y) * EDGE + x]);
	}
	MPI_Allreduce(mine, all, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	return (all[0] + all[1] * I) / POINTS;
}

static struct result run(const struct options *options)
{
	size_t mine;
	number *u0, *u1;
	double *factors;
	struct result result = { .verified = true };

	if (options->iterations > MOST_STEPS)
		app_die("--iterations %d: at most %d", options->iterations, MOST_STEPS);
	share = EDGE / app_ranks;
	first = app_rank * share;
	mine = (size_t)share * EDGE * EDGE;
	u0 = app_alloc(mine, sizeof(*u0));
	u1 = app_alloc(mine, sizeof(*u1));
	factors = app_alloc(mine, sizeof(*factors));
	for (int i = 0; i < EDGE / 2; i++)
		roots[i] = cexp(-2 * M_PI * I * i / EDGE);
	npb_fill(npb_after(SEED, (uint64_t)first * EDGE * EDGE * 2), (double *)u0, 2 * mine);
	/* Rows in x, in y, and after the exchange in z. */
	transform_all(u0, share * EDGE, 1, -1);
	transform_all(u0, share, EDGE, -1);
	exchange(u0);
	transform_all(u0, share * EDGE, 1, -1);
	for (int x = 0; x < share; x++)
		for (int y = 0; y < EDGE; y++)
			for (int z = 0; z < EDGE; z++) {
				int a = wave(first + x), b = wave(y), c = wave(z);

				factors[((size_t)x * EDGE + y) * EDGE + z] =
					exp(-4 * ALPHA * M_PI * M_PI * (a * a + b * b + c * c));
			}
	result.checksum = HASH_START;
	for (int step = 0; step < options->iterations; step++) {
		number sum;

		for (size_t i = 0; i < mine; i++)
			u1[i] = u0[i] *= factors[i];
		transform_all(u1, share * EDGE, 1, 1);
		exchange(u1);
		transform_all(u1, share, EDGE, 1);
		transform_all(u1, share * EDGE, 1, 1);
		sum = sum_of(u1);
		result.residual = fmax(result.residual, cabs((sum - known[step]) / known[step]));
		/* To the digits that are known: the last ones depend on the number of ranks. */
		long digits[2] = { lround(creal(sum) * 1e8), lround(cimag(sum) * 1e8) };
		result.checksum = hash(result.checksum, digits, sizeof(digits));
	}
	app_loop_ends();
	result.verified = result.residual <= ACCURACY;
	free(u0);
	free(u1);
	free(factors);
	return result;
}

static double bytes(double size)
{
	(void)size;
	/* Both fields, their factors, and messages. */
	return POINTS * (4 * sizeof(number) + sizeof(double)) / app_ranks;
}

static int most_ranks(const struct options *options)
{
	(void)options;
	/* Of powers of two; each has the same share. */
	return EDGE % app_ranks ? app_ranks - 1 : EDGE;
}

int main(int argc, char **argv)
{
	static const struct app app = {
		.name = "ft",
		.about = "Fourier transforms in three dimensions, as FT of the NAS Parallel Benchmarks has them, class S.",
		.size_unit = "points in each direction, of all ranks",
		.default_size = EDGE,
		.least_size = EDGE,
		.most_size = EDGE,
		.iterations_unit = "steps, up to 6",
		.default_iterations = MOST_STEPS,
		.bytes = bytes,
		.most_ranks = most_ranks,
		.run = run,
	};

	return app_main(&app, argc, argv);
}
