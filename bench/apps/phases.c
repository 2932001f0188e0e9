// SPDX-License-Identifier: GPL-2.0
/*
 * phases: memory that grows in phases, nearly all of what there is.
 *
 * In each phase one array is allocated at once and filled, as a finite element code
 * assembles its matrix, and as much again in blocks of 4 to 256 KB, as a mesh is
 * refined. Then a quarter of the blocks that were there is given back and made
 * anew in other sizes, and everything is updated once. How long the program is kept
 * at each first touch of a page, and in each call of malloc and free, is counted.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "app.h"

#define PAGE		4096UL
#define SLICE		(1UL << 20)	/* the unit of its data */
#define WORDS		(SLICE / sizeof(uint64_t))
#define LEAST_BLOCK	4096UL
#define BLOCK_SIZES	7		/* each twice the one before */
#define ANEW		4		/* one slice of so many, in each phase */
/* Whoever loses the CPU loses it for longer. */
#define LONG		30000
/* Of a histogram: buckets for each power of two. */
#define PARTS		32

struct stalls {
	uint64_t buckets[64 * PARTS];
	uint64_t count, total, worst;
};

/* One slice: words of a large array, or blocks of their own. */
struct slice {
	uint64_t *words;
	struct block {
		uint64_t *words;
		size_t count;
	} *blocks;
	int count;
	int generation, updates;
	uint64_t base;
};

static struct stalls touches, calls;
static int schedstat_fd = -1;
static uint64_t waited, last;
static char more[1024];

static uint64_t clock_now(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * 1000000000ULL + now.tv_nsec;
}

/* Time without a CPU so far; 0 where the kernel does not count it. */
static uint64_t waiting(void)
{
	unsigned long long run, wait;
	char text[96];
	ssize_t got;

	got = schedstat_fd < 0 ? -1 : pread(schedstat_fd, text, sizeof(text) - 1, 0);
	if (got <= 0)
		return 0;
	text[got] = '\0';
	return sscanf(text, "%llu %llu", &run, &wait) == 2 ? wait : 0;
}

static int bucket_of(uint64_t value)
{
	int power;

	if (value < PARTS)
		return value;
	power = 63 - __builtin_clzll(value);
	return (power - 4) * PARTS + (value >> (power - 5)) % PARTS;
}

/* The least value above all of a bucket. */
static uint64_t bucket_end(int bucket)
{
	int power = bucket / PARTS + 4;

	return bucket < PARTS ? bucket + 1ULL : (uint64_t)(PARTS + bucket % PARTS + 1) << (power - 5);
}

/* Time since the last call, less what it was without a CPU, as one of @stalls; of none if NULL. */
static void interval(struct stalls *stalls)
{
	uint64_t now = clock_now(CLOCK_MONOTONIC), took = now - last;

	last = now;
	if (took > LONG) {
		uint64_t wait = waiting(), since = wait - waited;

		waited = wait;
		took = took > since ? took - since : 0;
		last = clock_now(CLOCK_MONOTONIC);
	}
	if (!stalls)
		return;
	stalls->buckets[bucket_of(took)]++;
	stalls->count++;
	stalls->total += took;
	if (took > stalls->worst)
		stalls->worst = took;
}

static void *take(size_t bytes)
{
	void *memory;

	interval(NULL);
	memory = app_alloc(1, bytes);
	interval(&calls);
	return memory;
}

static void give(void *memory)
{
	interval(NULL);
	free(memory);
	interval(&calls);
}

static void fill(uint64_t *words, size_t count, uint64_t from)
{
	for (size_t i = 0; i < count;) {
		size_t here = (PAGE - ((uintptr_t)(words + i) & (PAGE - 1))) / sizeof(*words);
		size_t end = count - i < here ? count : i + here;

		interval(NULL);
		*(volatile uint64_t *)(words + i) = from + i;
		interval(&touches);
		for (; i < end; i++)
			words[i] = from + i;
	}
}

/* Blocks have whole pages. */
static uint64_t sum(const uint64_t *words, size_t count)
{
	uint64_t a = 0, b = 0, c = 0, d = 0;

	for (size_t i = 0; i < count; i += 4) {
		a += words[i];
		b += words[i + 1];
		c += words[i + 2];
		d += words[i + 3];
	}
	return a + b + c + d;
}

/* Blocks for a slice, which the seed, its number and the generation decide. */
static void refine(struct slice *slice, uint64_t seed, int number)
{
	uint64_t random = mix(seed ^ mix(number)) + slice->generation++;
	size_t left = SLICE, done = 0;

	slice->count = 0;
	slice->updates = 0;
	while (left) {
		size_t bytes = LEAST_BLOCK << mix(random + slice->count) % BLOCK_SIZES;
		struct block *block = &slice->blocks[slice->count++];

		if (bytes > left)
			bytes = left;
		block->count = bytes / sizeof(uint64_t);
		block->words = take(bytes);
		fill(block->words, block->count, slice->base + done);
		done += block->count;
		left -= bytes;
	}
}

static void coarsen(struct slice *slice)
{
	for (int b = 0; b < slice->count; b++)
		give(slice->blocks[b].words);
}

/* One word of each page is another, as when a step is computed. */
static void update(struct slice *slice)
{
	size_t step = PAGE / sizeof(uint64_t);

	slice->updates++;
	for (size_t i = 0; slice->words && i < WORDS; i += step)
		slice->words[i]++;
	for (int b = 0; b < slice->count; b++)
		for (size_t i = 0; i < slice->blocks[b].count; i += step)
			slice->blocks[b].words[i]++;
}

static uint64_t slice_sum(const struct slice *slice)
{
	uint64_t all = slice->words ? sum(slice->words, WORDS) : 0;

	for (int b = 0; b < slice->count; b++)
		all += sum(slice->blocks[b].words, slice->blocks[b].count);
	return all;
}

static uint64_t percentile(const struct stalls *stalls, double part)
{
	uint64_t before = 0;
	int bucket = 0;

	while (bucket < 64 * PARTS - 1 && (before += stalls->buckets[bucket]) < part * stalls->count)
		bucket++;
	return bucket_end(bucket) < stalls->worst ? bucket_end(bucket) : stalls->worst;
}

/* Of all ranks. */
static void gather(struct stalls *stalls)
{
	struct stalls all;

	memset(&all, 0, sizeof(all));
	MPI_Reduce(stalls->buckets, all.buckets, 64 * PARTS, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
	MPI_Reduce(&stalls->count, &all.count, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
	MPI_Reduce(&stalls->total, &all.total, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
	MPI_Reduce(&stalls->worst, &all.worst, 1, MPI_UINT64_T, MPI_MAX, 0, MPI_COMM_WORLD);
	*stalls = all;
}

/* Memory of this process by the size of its pages, as Linux has it: all, THP, hugetlbfs, mapped large from files. */
static void by_page_size(uint64_t bytes[4])
{
	static const struct {
		const char *name;
		int which;
	} lines[] = {
		{ "Rss:", 0 },
		{ "AnonHugePages:", 1 },
		{ "Shared_Hugetlb:", 2 },
		{ "Private_Hugetlb:", 2 },
		{ "FilePmdMapped:", 3 },
		{ "ShmemPmdMapped:", 3 },
	};
	FILE *file = fopen("/proc/self/smaps_rollup", "re");
	char line[256];

	while (file && fgets(line, sizeof(line), file))
		for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++)
			if (!strncmp(line, lines[i].name, strlen(lines[i].name)))
				bytes[lines[i].which] += strtoull(line + strlen(lines[i].name), NULL, 10) << 10;
	if (file)
		fclose(file);
}

static void tell_more(void)
{
	uint64_t mine[4] = { 0 }, all[4], before = clock_now(CLOCK_PROCESS_CPUTIME_ID), aside, most;

	by_page_size(mine);
	aside = clock_now(CLOCK_PROCESS_CPUTIME_ID) - before;
	MPI_Reduce(mine, all, 4, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
	MPI_Reduce(&aside, &most, 1, MPI_UINT64_T, MPI_MAX, 0, MPI_COMM_WORLD);
	gather(&touches);
	gather(&calls);
	snprintf(more, sizeof(more),
		 "\"touches\": {\"count\": %" PRIu64 ", \"p99_ns\": %" PRIu64 ", \"worst_ns\": %" PRIu64
		 ", \"total_ns\": %" PRIu64 "}, \"calls\": {\"count\": %" PRIu64 ", \"p99_ns\": %" PRIu64
		 ", \"worst_ns\": %" PRIu64 ", \"total_ns\": %" PRIu64 "}, \"pages\": {\"rss_bytes\": %" PRIu64
		 ", \"thp_bytes\": %" PRIu64 ", \"hugetlb_bytes\": %" PRIu64 ", \"file_bytes\": %" PRIu64
		 "}, \"aside_ns\": %" PRIu64,
		 touches.count, percentile(&touches, 0.99), touches.worst, touches.total, calls.count,
		 percentile(&calls, 0.99), calls.worst, calls.total, all[0], all[1], all[2], all[3], most);
}

/* Which phase a slice comes with, and whether it is part of the array: the same for any number of ranks. */
static int phase_of(const struct options *options, int number)
{
	return number % options->iterations;
}

static bool is_assembled(const struct options *options, int number)
{
	return number / options->iterations % 2 == 0;
}

static void grow(struct slice *slices, const struct planes *planes, const struct options *options, int phase)
{
	int assembled = 0;
	uint64_t *array;

	for (int s = 0, n = planes->first; s < planes->count; s++, n++)
		assembled += phase_of(options, n) == phase && is_assembled(options, n);
	array = assembled ? take(assembled * SLICE) : NULL;

	for (int s = 0, n = planes->first; s < planes->count; s++, n++) {
		if (phase_of(options, n) == phase && is_assembled(options, n)) {
			slices[s].words = array;
			array += WORDS;
			fill(slices[s].words, WORDS, slices[s].base);
		} else if (phase_of(options, n) == phase) {
			refine(&slices[s], options->seed, n);
		} else if (phase_of(options, n) < phase && slices[s].count &&
			   mix(n) % ANEW == (unsigned int)phase % ANEW) {
			coarsen(&slices[s]);
			refine(&slices[s], options->seed, n);
		}
	}
	for (int s = 0, n = planes->first; s < planes->count; s++, n++)
		if (phase_of(options, n) <= phase)
			update(&slices[s]);
}

static struct result run(const struct options *options)
{
	int total = options->strong ? options->size : options->size * app_ranks;
	int phases = options->iterations, most_blocks = SLICE / LEAST_BLOCK;
	struct planes planes = planes_make(total, false);
	struct slice *slices = app_zeroed(planes.count, sizeof(*slices));
	struct block *blocks = app_zeroed((size_t)planes.count * most_blocks, sizeof(*blocks));
	uint64_t *sums = app_zeroed(planes.count, sizeof(*sums));
	struct result result = { .json = more };
	uint64_t wrong = 0;

	/* Nothing of what follows but the data itself is touched for the first time. */
	memset(blocks, 1, (size_t)planes.count * most_blocks * sizeof(*blocks));
	for (int s = 0; s < planes.count; s++) {
		slices[s].base = mix(options->seed ^ mix(planes.first + s)) % SLICE;
		slices[s].blocks = blocks + (size_t)s * most_blocks;
	}
	memset(&touches, 0, sizeof(touches));
	memset(&calls, 0, sizeof(calls));
	schedstat_fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
	waited = waiting();
	last = clock_now(CLOCK_MONOTONIC);

	for (int phase = 0; phase < phases; phase++)
		grow(slices, &planes, options, phase);
	app_loop_ends();
	tell_more();

	for (int s = 0; s < planes.count; s++) {
		uint64_t filled = WORDS * slices[s].base + (uint64_t)WORDS * (WORDS - 1) / 2;

		sums[s] = slice_sum(&slices[s]);
		wrong += sums[s] != filled + SLICE / PAGE * (uint64_t)slices[s].updates;
	}
	MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
	result.residual = wrong;
	result.verified = !wrong;
	result.checksum = planes_hash(&planes, sums);
	return result;
}

static double bytes(double size)
{
	return size * SLICE;
}

static int most_ranks(const struct options *options)
{
	return options->strong ? options->size : 1 << 20;
}

int main(int argc, char **argv)
{
	static const struct app app = {
		.name = "phases",
		.about = "Memory that grows in phases: arrays that are assembled, and a mesh that is refined.",
		.size_unit = "megabytes of data",
		.default_size = 64,
		.least_size = 4,
		.most_size = 1 << 24,
		.iterations_unit = "phases",
		.default_iterations = 8,
		.most_ranks = most_ranks,
		.bytes = bytes,
		.run = run,
	};

	return app_main(&app, argc, argv);
}
