// SPDX-License-Identifier: GPL-2.0
/*
 * A job for 'hpmmap trace': like a molecular dynamics code it allocates its
 * lists anew every few steps, and has a mesh of small pieces that grows.
 *
 *   rebuild STEPS MEGABYTES
 *
 * Prints when the first step was over, by CLOCK_MONOTONIC.
 */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LISTS	12
#define KEPT	3
#define PIECE	512

struct piece {
	struct piece *next;
	double values[PIECE / sizeof(double) - 1];
};

static double *lists[LISTS];
static size_t lengths[LISTS];
static struct piece *mesh;

static void *get(size_t bytes)
{
	void *p = malloc(bytes);

	if (!p)
		errx(1, "no memory for %zu bytes", bytes);
	return p;
}

/* All but a few lists, in sizes that vary from step to step. */
static void rebuild(int step, size_t bytes)
{
	for (int i = step % KEPT; i < LISTS; i += KEPT) {
		size_t mine = bytes / LISTS / 2 * (1 + (step + i) % 3);

		free(lists[i]);
		lists[i] = get(mine);
		lengths[i] = mine / sizeof(double);
		for (size_t k = 0; k < lengths[i]; k++)
			lists[i][k] = (double)(k ^ step);
	}
}

static void refine(size_t bytes)
{
	for (size_t i = 0; i < bytes / PIECE; i++) {
		struct piece *piece = get(sizeof(*piece));

		memset(piece->values, 1, sizeof(piece->values));
		piece->next = mesh;
		mesh = piece;
	}
}

static double compute(void)
{
	double sum = 0;

	for (int i = 0; i < LISTS; i++)
		for (size_t k = 0; k < lengths[i]; k += 8)
			sum += lists[i][k];
	for (struct piece *piece = mesh; piece; piece = piece->next)
		sum += piece->values[0];
	return sum;
}

int main(int argc, char **argv)
{
	int steps = argc == 3 ? atoi(argv[1]) : 0;
	size_t bytes = argc == 3 ? strtoul(argv[2], NULL, 10) << 20 : 0;
	double sum = 0;

	if (steps < 1 || bytes < 1 << 20) {
		fprintf(stderr, "usage: rebuild STEPS MEGABYTES\n");
		return 2;
	}
	for (int step = 0; step < steps; step++) {
		struct timespec now;

		for (int part = 0; part < (step ? 1 : KEPT); part++)
			rebuild(step + part, bytes);
		refine(bytes / 4 / steps);
		sum += compute();
		if (step == 0) {
			clock_gettime(CLOCK_MONOTONIC, &now);
			printf("start-up was over at @%ld.%09ld\n", (long)now.tv_sec, now.tv_nsec);
			fflush(stdout);
		}
	}
	printf("sum %g\n", sum);
	return 0;
}
