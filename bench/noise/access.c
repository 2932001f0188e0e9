// SPDX-License-Identifier: GPL-2.0
/*
 * Random accesses to an array, one number in each cache line. Dependent: each
 * number is the index of the next, and all of them are one cycle; a read has to
 * wait for the one before. Independent: updates at random places, as GUPS does
 * them. Triad: the loop of that name of STREAM (J. D. McCalpin), an access is an
 * element: two numbers are read and one is written, 24 bytes as STREAM counts.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "noise.h"

#define LINE	64
#define SEED	0x48504d4d4150ULL

static void fill(uint64_t *array, uint64_t lines)
{
	for (uint64_t i = 0; i < lines; i++)
		array[i * (LINE / 8)] = i;
}

/* Every line once, in one cycle through all (Sattolo's shuffle). */
static void make_cycle(uint64_t *array, uint64_t lines)
{
	uint64_t state = SEED;

	fill(array, lines);
	for (uint64_t i = lines - 1; i > 0; i--) {
		/* Below i; the product is the number's share of it. */
		uint64_t j = ((unsigned __int128)next_random(&state) * i) >> 64;
		uint64_t kept = array[i * (LINE / 8)];

		array[i * (LINE / 8)] = array[j * (LINE / 8)];
		array[j * (LINE / 8)] = kept;
	}
}

static __attribute__((noinline)) uint64_t follow(const uint64_t *array, uint64_t at, uint64_t accesses)
{
	while (accesses--)
		at = array[at * (LINE / 8)];
	return at;
}

static __attribute__((noinline)) void update(uint64_t *array, uint64_t mask, uint64_t accesses)
{
	uint64_t state = SEED;

	while (accesses--) {
		uint64_t number = next_random(&state);

		array[(number & mask) * (LINE / 8)] ^= number;
	}
}

/* Elements of each of the three arrays. */
static uint64_t triad_length(const struct job *job)
{
	return job->size / sizeof(double) / 4;
}

static __attribute__((noinline, optimize("O3"))) void triad(double *restrict a, const double *restrict b,
							    const double *restrict c, uint64_t n, uint64_t accesses)
{
	while (accesses) {
		uint64_t end = accesses < n ? accesses : n;

		for (uint64_t i = 0; i < end; i++)
			a[i] = b[i] + 3.0 * c[i];
		accesses -= end;
	}
}

/* As after a pass: a further one changes nothing. */
static void fill_triad(double *a, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		a[n + i] = (double)i;
		a[2 * n + i] = 2;
	}
	triad(a, a + n, a + 2 * n, n, n);
}

static uint64_t digest(const uint64_t *array, uint64_t lines)
{
	uint64_t sum = 0;

	for (uint64_t i = 0; i < lines; i++)
		sum = sum * 31 + array[i * (LINE / 8)];
	return sum;
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

void access_run(const struct access_job *accesses)
{
	const struct job *job = &accesses->job;
	uint64_t lines = job->size / LINE, n = triad_length(job), at = 0, before, set_up, start, faults, *rounds;
	struct rusage usage;
	uint64_t *array;
	double *a;

	/* Updates need a mask. */
	if (lines & (lines - 1)) {
		fprintf(stderr, "bench-noise: --size %zu: must be a power of two\n", job->size);
		exit(2);
	}
	rounds = calloc(accesses->rounds, sizeof(*rounds));
	if (!rounds)
		die("calloc");
	start = ticks();
	array = region_map(job->method, job->size, region_place(job->method, job->size));
	a = (double *)array;
	if (accesses->mode == DEPENDENT)
		make_cycle(array, lines);
	else if (accesses->mode == INDEPENDENT)
		fill(array, lines);
	else
		fill_triad(a, n);
	set_up = ticks() - start;
	before = digest(array, lines);
	wait_for_start();
	figures_begin();
	if (getrusage(RUSAGE_SELF, &usage))
		die("getrusage");
	for (unsigned int round = 0; round < accesses->rounds; round++) {
		start = ticks();
		if (accesses->mode == DEPENDENT)
			at = follow(array, at, accesses->accesses);
		else if (accesses->mode == INDEPENDENT)
			update(array, lines - 1, accesses->accesses);
		else
			triad(a, a + n, a + 2 * n, n, accesses->accesses);
		rounds[round] = ticks() - start;
	}
	figures_end();
	faults = faults_since(&usage);
	/* The same updates a second time undo them; an odd number of rounds needs one more. */
	if (accesses->mode == INDEPENDENT && accesses->rounds % 2)
		update(array, lines - 1, accesses->accesses);
	if (digest(array, lines) != before) {
		fputs("bench-noise: the array is not what it was: memory has been corrupted\n", stderr);
		exit(1);
	}
	qsort(rounds, accesses->rounds, sizeof(*rounds), compare);
	printf("{\"accesses\": %" PRIu64 ", \"set_up_ns\": %" PRIu64 ", \"least_ns\": %" PRIu64
	       ", \"median_ns\": %" PRIu64 ", \"most_ns\": %" PRIu64 ", \"faults\": %" PRIu64
	       ", \"fault_counter\": \"%s\", \"last\": %" PRIu64 "}\n",
	       accesses->accesses, nanoseconds(job, set_up), nanoseconds(job, rounds[0]),
	       nanoseconds(job, rounds[accesses->rounds / 2]), nanoseconds(job, rounds[accesses->rounds - 1]),
	       faults, fault_counter_name(), at);
	free(rounds);
}
