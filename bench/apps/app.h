/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the mini-applications share: options, time and page faults from the end
 * of start-up on, sums that do not depend on the number of ranks, the report.
 */
#ifndef APP_H
#define APP_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct options {
	int size;
	int iterations;
	uint64_t seed;
	bool strong;
};

struct result {
	bool verified;
	double residual;
	uint64_t checksum;
	const char *json;	/* further members for --json, or NULL */
};

struct app {
	const char *name;
	const char *about;
	const char *size_unit;
	int default_size, least_size, most_size;
	const char *iterations_unit;
	int default_iterations;
	/* The default instead, where it depends on the size; or NULL. */
	int (*iterations_to_solve)(const struct options *options);
	/* Memory of a rank, about; README.md has the formula. */
	double (*bytes)(double size);
	/* How far the ranks must be able to share the problem out: at most so many. */
	int (*most_ranks)(const struct options *options);
	struct result (*run)(const struct options *options);
};

extern int app_rank, app_ranks;

int app_main(const struct app *app, int argc, char **argv);

/* most_ranks() where a rank has at least one of the problem's units; with weak scaling each has all of its own. */
int app_ranks_by_size(const struct options *options);

/* Stops the clock; what is done afterwards is verification. */
void app_loop_ends(void);

void *app_alloc(size_t count, size_t size);
void *app_zeroed(size_t count, size_t size);
__attribute__((noreturn, format(printf, 1, 2))) void app_die(const char *format, ...);

/*
 * A problem is cut into @total planes, of which each rank has @count in a row
 * from @first on. Sums go over whole planes first and then from the first plane
 * to the last, so that they are the same, bit for bit, for any number of ranks.
 */
struct planes {
	int total;
	int first;
	int count;
	int below, above;	/* ranks of the neighbours */
	int *counts, *firsts;	/* of all ranks */
	void *gathered;
};

struct planes planes_make(int total, bool periodic);
void planes_free(struct planes *planes);
double planes_sum(const struct planes *planes, const double *mine);
uint64_t planes_hash(const struct planes *planes, const uint64_t *mine);

/* Fills the planes around those of this rank: @data has one more at each end. */
void planes_halo(const struct planes *planes, double *data, size_t plane);

#define HASH_START	0xcbf29ce484222325ULL
uint64_t hash(uint64_t hash, const void *data, size_t bytes);

/* Reproducible numbers: of a position, from 0 up to 1. */
uint64_t mix(uint64_t x);
double uniform(uint64_t seed, uint64_t position);

#endif
