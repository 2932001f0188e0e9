// SPDX-License-Identifier: GPL-2.0
/*
 * EP of the NAS Parallel Benchmarks (D. H. Bailey et al., RNR-94-007): pairs of Gaussian numbers by the polar method of
 * Marsaglia, counted by rings. Ranks meet at the end only.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "app.h"
#include "npb.h"

/* Pairs that are made at a time: 2 to this power. */
#define BLOCK	16
#define RINGS	10
#define SEED	271828183ULL
#define LEAST	24
#define ACCURACY	1e-8

/* Sums of both numbers, for 2^24 (class S) and 2^25 (W) pairs. */
static const double known[][2] = {
	{ -3.247834652034740e3, -6.958407078382297e3 },
	{ -2.863319731645753e3, -6.320053679109499e3 },
};

/* Adds both sums and the rings of a block of pairs. */
static void count_block(uint64_t block, double *numbers, double sums[2 + RINGS])
{
	npb_fill(npb_after(SEED, block * (2UL << BLOCK)), numbers, 2UL << BLOCK);
	for (size_t i = 0; i < 1UL << BLOCK; i++) {
		double x = 2 * numbers[2 * i] - 1, y = 2 * numbers[2 * i + 1] - 1, t = x * x + y * y;

		if (t > 1)
			continue;
		t = sqrt(-2 * log(t) / t);
		sums[0] += x * t;
		sums[1] += y * t;
		sums[2 + (int)fmax(fabs(x * t), fabs(y * t))]++;
	}
}

static struct result run(const struct options *options)
{
	uint64_t blocks = 1ULL << (options->size - BLOCK);
	double *numbers = app_alloc(2UL << BLOCK, sizeof(*numbers));
	/* Both sums, and the rings. */
	double mine[2 + RINGS], all[2 + RINGS];
	struct result result = { 0 };

	for (int again = 0; again < options->iterations; again++) {
		memset(mine, 0, sizeof(mine));
		for (uint64_t block = app_rank; block < blocks; block += app_ranks)
			count_block(block, numbers, mine);
		MPI_Allreduce(mine, all, 2 + RINGS, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	}
	app_loop_ends();
	free(numbers);
	for (int i = 0; i < 2; i++) {
		double want = known[options->size - LEAST][i];

		result.residual = fmax(result.residual, fabs((all[i] - want) / want));
	}
	result.verified = result.residual <= ACCURACY;
	/* The sums depend on the number of ranks in their last digits, the rings do not. */
	result.checksum = hash(HASH_START, all + 2, RINGS * sizeof(*all));
	return result;
}

static double bytes(double size)
{
	(void)size;
	return (2UL << BLOCK) * sizeof(double);
}

static int most_ranks(const struct options *options)
{
	return 1 << (options->size - BLOCK);
}

int main(int argc, char **argv)
{
	static const struct app app = {
		.name = "ep",
		.about = "Pairs of Gaussian numbers, as EP of the NAS Parallel Benchmarks makes them.",
		.size_unit = "power of two of the pairs of all ranks: 24 is class S, 25 W",
		.default_size = LEAST,
		.least_size = LEAST,
		.most_size = LEAST + 1,
		.iterations_unit = "runs",
		.default_iterations = 1,
		.bytes = bytes,
		.most_ranks = most_ranks,
		.run = run,
	};

	return app_main(&app, argc, argv);
}
