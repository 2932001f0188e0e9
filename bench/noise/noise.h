/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The worker of `hpmmap bench noise`: looks for detours on one CPU, does random
 * accesses, or is the neighbour of one that does.
 */
#ifndef NOISE_H
#define NOISE_H

#include <sys/resource.h>

#include "../alloc/worker.h"

struct job {
	const struct method *method;
	size_t size;
	uint64_t hz;		/* ticks of the time stamp counter in a second */
};

/* Ticks as nanoseconds. */
static inline uint64_t nanoseconds(const struct job *job, uint64_t ticks)
{
	return (unsigned __int128)ticks * 1000000000 / job->hz;
}

/* A reproducible stream of numbers (splitmix64). */
static inline uint64_t next_random(uint64_t *state)
{
	uint64_t x = *state += 0x9e3779b97f4a7c15ULL;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

/* main.c */

/* Page faults since figures_begin(), or without perf since @before. */
uint64_t faults_since(const struct rusage *before);

/* detour.c */

enum variant { PLAIN, TOUCH, FRESH };

struct detour_job {
	struct job job;
	enum variant variant;
	unsigned int cpu;
	unsigned int milliseconds;
	unsigned int factor;	/* a detour takes longer than a usual round so many times */
};

void detour(const struct detour_job *job);

/* Says that it is ready; returns when standard input is closed. */
void wait_for_start(void);

/* access.c */

enum access_mode { INDEPENDENT, DEPENDENT, TRIAD };

struct access_job {
	struct job job;
	enum access_mode mode;
	uint64_t accesses;
	unsigned int rounds;
};

void access_run(const struct access_job *job);

/* neighbour.c */

__attribute__((noreturn)) void neighbour(size_t bytes, unsigned int processes, const char *command);

#endif
