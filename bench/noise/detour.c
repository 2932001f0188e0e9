// SPDX-License-Identifier: GPL-2.0
/*
 * The selfish detour benchmark: a loop that does nothing but read the time stamp
 * counter (and, in two of the variants, touch memory). A round that takes much
 * longer than usual is a detour: something else had the CPU.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "noise.h"

#define CALIBRATION	(1 << 20)
/* Rounds of more ticks than this count as so many when the usual one is looked for. */
#define LONG_ROUND	(1 << 14)
#define BUCKETS		48
#define SLICES		200
/* With memory: shorter ones are misses of the cache and of the TLB. */
#define LEAST_NS	1000
/* Memory of the variant fresh is taken and given back in parts of this size. */
#define PART		LARGE_PAGE

static struct {
	uint64_t usual, threshold;	/* ticks */
	uint64_t rounds, detours, lost, longest;
	uint64_t calls, in_calls, longest_call;
	uint64_t buckets[BUCKETS];	/* by powers of two of nanoseconds */
	uint64_t slices[SLICES];	/* the longest in each part of the time */
	uint64_t begin, length;
} found;

static void record(const struct job *job, uint64_t now, uint64_t round)
{
	uint64_t lost = round - found.usual, ns = nanoseconds(job, lost);
	uint64_t slice = (now - found.begin) * SLICES / found.length;
	unsigned int bucket = ns ? 63 - __builtin_clzll(ns) : 0;

	found.detours++;
	found.lost += lost;
	if (lost > found.longest)
		found.longest = lost;
	found.buckets[bucket < BUCKETS ? bucket : BUCKETS - 1]++;
	if (slice >= SLICES)
		slice = SLICES - 1;
	if (lost > found.slices[slice])
		found.slices[slice] = lost;
}

/*
 * The loop. @memory, if there is any, is written to at one page after the other.
 * Returns when it has been gone through once, or at @end.
 */
static __attribute__((noinline)) void spin(const struct job *job, volatile char *memory, size_t size,
					       uint64_t end)
{
	uint64_t last = ticks(), now = last;

	for (size_t at = 0; now < end && at < size; at += SMALL_PAGE) {
		if (memory)
			memory[at] = 1;
		now = ticks();
		found.rounds++;
		if (now - last > found.threshold) {
			record(job, now, now - last);
			/* What recording took is none. */
			now = ticks();
		}
		last = now;
	}
}

/*
 * What a round usually takes: the median. With memory the shortest one says
 * little, since most of the others miss a cache.
 */
static void calibrate(volatile char *memory, size_t size)
{
	static uint32_t rounds[LONG_ROUND + 1];
	uint64_t last = ticks(), now;
	size_t at = 0, seen = 0;

	for (int i = 0; i < CALIBRATION; i++) {
		if (memory) {
			memory[at] = 1;
			at = at + SMALL_PAGE < size ? at + SMALL_PAGE : 0;
		}
		now = ticks();
		rounds[now - last < LONG_ROUND ? now - last : LONG_ROUND]++;
		last = now;
	}
	found.usual = 1;
	for (size_t i = 0; i <= LONG_ROUND && (seen += rounds[i]) <= CALIBRATION / 2; i++)
		found.usual = i + 1;
}

static void timed(uint64_t start)
{
	uint64_t cost = ticks() - start;

	found.calls++;
	found.in_calls += cost;
	if (cost > found.longest_call)
		found.longest_call = cost;
}

/* All of the memory anew, in parts; the calls are timed apart. */
static void renew(const struct job *job, uint64_t end)
{
	size_t part = job->size < PART ? job->size : PART;

	for (size_t done = 0; done < job->size; done += part) {
		void *place = region_place(job->method, part), *p;
		uint64_t start = ticks();

		p = region_map(job->method, part, place);
		timed(start);
		spin(job, p, part, end);
		start = ticks();
		if (munmap(p, part))
			die("munmap");
		timed(start);
		if (ticks() >= end)
			return;
	}
}

void wait_for_start(void)
{
	char byte;

	if (write(STDOUT_FILENO, "ready\n", 6) != 6)
		die("write");
	/* Until the other end is closed, at the same moment for all. */
	while (read(STDIN_FILENO, &byte, 1) > 0)
		continue;
}

static void print_list(const char *name, const uint64_t *list, size_t count)
{
	printf(", \"%s\": [", name);
	for (size_t i = 0; i < count; i++)
		printf("%s%" PRIu64, i ? ", " : "", list[i]);
	putchar(']');
}

static void report(const struct detour_job *detours, uint64_t end, const struct rusage *before)
{
	const struct job *job = &detours->job;
	struct rusage after;

	if (getrusage(RUSAGE_SELF, &after))
		die("getrusage");
	for (int i = 0; i < SLICES; i++)
		found.slices[i] = nanoseconds(job, found.slices[i]);
	printf("{\"cpu\": %u, \"elapsed_ns\": %" PRIu64 ", \"rounds\": %" PRIu64 ", \"round_ps\": %" PRIu64
	       ", \"threshold_ns\": %" PRIu64 ", \"detours\": %" PRIu64 ", \"detour_ns\": %" PRIu64
	       ", \"longest_ns\": %" PRIu64 ", \"calls\": %" PRIu64 ", \"call_ns\": %" PRIu64
	       ", \"longest_call_ns\": %" PRIu64 ", \"faults\": %" PRIu64 ", \"fault_counter\": \"%s\""
	       ", \"preempted\": %ld",
	       detours->cpu, nanoseconds(job, end - found.begin), found.rounds,
	       nanoseconds(job, found.usual * 1000), nanoseconds(job, found.threshold), found.detours,
	       nanoseconds(job, found.lost), nanoseconds(job, found.longest), found.calls,
	       nanoseconds(job, found.in_calls), nanoseconds(job, found.longest_call), faults_since(before),
	       fault_counter_name(), after.ru_nivcsw - before->ru_nivcsw);
	print_list("histogram", found.buckets, BUCKETS);
	print_list("slices", found.slices, SLICES);
	puts("}");
	if (fflush(stdout))
		die("standard output");
}

void detour(const struct detour_job *detours)
{
	const struct job *job = &detours->job;
	/* Of the variant fresh a part is as good as all for calibration. */
	size_t size = detours->variant == FRESH && job->size > PART ? PART : job->size;
	struct rusage before;
	char *memory = NULL;
	uint64_t end;

	if (detours->variant != PLAIN) {
		memory = region_map(job->method, size, region_place(job->method, size));
		memset(memory, 1, size);
	}
	calibrate(memory, size);
	found.threshold = found.usual * detours->factor;
	if (memory && nanoseconds(job, found.threshold) < LEAST_NS)
		found.threshold = job->hz / (1000000000 / LEAST_NS) + 1;
	if (detours->variant == FRESH && munmap(memory, size))
		die("munmap");
	figures_begin();
	wait_for_start();
	if (getrusage(RUSAGE_SELF, &before))
		die("getrusage");
	found.length = (unsigned __int128)detours->milliseconds * job->hz / 1000;
	found.begin = ticks();
	end = found.begin + found.length;
	while (ticks() < end) {
		if (detours->variant == FRESH)
			renew(job, end);
		else
			spin(job, memory, detours->variant == PLAIN ? SIZE_MAX : size, end);
	}
	end = ticks();
	figures_end();
	report(detours, end, &before);
}
