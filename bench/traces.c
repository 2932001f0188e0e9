// SPDX-License-Identifier: GPL-2.0
/*
 * traces: what does malloc cost, with whatever allocator is loaded?
 *
 * Each trace is a sequence of malloc, calloc, realloc and free that follows
 * from its name alone. It writes to every page it gets, checks on free that
 * the contents are its own and after calloc that they are zero. The time stamp
 * counter is read around it; see bench/README.md for what that counts in a guest.
 *
 * Prints one JSON object for each trace; with --check only what is the same
 * in every run.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>
#include <x86intrin.h>

#define PAGE	4096UL
#define KB(n)	((size_t)(n) << 10)
#define MB(n)	((size_t)(n) << 20)

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))

/* What a trace holds; each thread has its own. */
struct work {
	uint64_t rng;
	uint64_t sum;		/* depends on every content that was seen */
	size_t live;
	size_t peak;
};

struct piece {
	unsigned char *p;
	size_t len;
	uint64_t mark;
};

static void die(const char *what)
{
	fprintf(stderr, "traces: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t next(struct work *w)
{
	w->rng ^= w->rng << 13;
	w->rng ^= w->rng >> 7;
	w->rng ^= w->rng << 17;
	return w->rng;
}

/* Between least and most, each power of two as likely as the next. */
static size_t size_between(struct work *w, size_t least, size_t most)
{
	unsigned int low = 63 - (unsigned int)__builtin_clzl(least);
	unsigned int high = 63 - (unsigned int)__builtin_clzl(most);
	size_t base = 1UL << (low + next(w) % (high - low + 1));
	size_t len = base + next(w) % base;

	if (len < least)
		len = least;
	return len > most ? most : len;
}

/* One word a page, and the last byte. */
static void mark_from(struct piece *piece, size_t from)
{
	for (size_t off = from; off + 8 <= piece->len; off += PAGE)
		memcpy(piece->p + off, &piece->mark, 8);
	piece->p[piece->len - 1] = (unsigned char)piece->mark;
}

static void expect_marks(struct work *w, const struct piece *piece, size_t len)
{
	uint64_t word;

	for (size_t off = 0; off + 8 < len; off += PAGE) {
		memcpy(&word, piece->p + off, 8);
		if (word != piece->mark) {
			fprintf(stderr, "traces: at %p+%#zx there is %#" PRIx64
				", not %#" PRIx64 "\n", (void *)piece->p, off,
				word, piece->mark);
			exit(1);
		}
		w->sum = w->sum * 31 + word;
	}
}

static void account(struct work *w, size_t more, size_t less)
{
	w->live += more;
	w->live -= less;
	if (w->live > w->peak)
		w->peak = w->live;
}

static void get(struct work *w, struct piece *piece, size_t len, bool zero)
{
	piece->len = len;
	piece->mark = next(w);
	piece->p = zero ? calloc(1, len) : malloc(len);
	if (!piece->p)
		die(zero ? "calloc" : "malloc");
	for (size_t off = 0; zero && off + 8 <= len; off += 128) {
		uint64_t word;

		memcpy(&word, piece->p + off, 8);
		if (word != 0) {
			fprintf(stderr, "traces: calloc(%zu) is not zero at %#zx\n",
				len, off);
			exit(1);
		}
	}
	mark_from(piece, 0);
	account(w, len, 0);
}

static void put(struct work *w, struct piece *piece)
{
	if (!piece->p)
		return;
	expect_marks(w, piece, piece->len);
	account(w, 0, piece->len);
	free(piece->p);
	piece->p = NULL;
}

static void resize(struct work *w, struct piece *piece, size_t len)
{
	size_t kept = len < piece->len ? len : piece->len;
	unsigned char *p = realloc(piece->p, len);

	if (!p)
		die("realloc");
	piece->p = p;
	expect_marks(w, piece, kept);
	account(w, len, piece->len);
	piece->len = len;
	mark_from(piece, (kept + PAGE - 1) / PAGE * PAGE);
}

static void put_all(struct work *w, struct piece *pieces, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		put(w, &pieces[i]);
}

/* ---- The traces -------------------------------------------------------- */

/* Objects of a tree: small, many, freed in another order than allocated. */
static void trace_small(struct work *w)
{
	enum { NR = 100000 };
	static struct piece pieces[NR];

	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < NR; i++)
			get(w, &pieces[i], 16 + next(w) % 496, next(w) % 8 == 0);
		for (size_t i = 0; i < NR; i++) {
			struct piece *piece = &pieces[next(w) % NR];

			put(w, piece);
			get(w, piece, 16 + next(w) % 496, false);
		}
		put_all(w, pieces, NR);
	}
}

/* Buffers about as large as those that glibc maps for themselves. */
static void trace_buffers(struct work *w)
{
	enum { NR = 24 };
	struct piece pieces[NR] = { 0 };

	for (int i = 0; i < 1500; i++) {
		struct piece *piece = &pieces[next(w) % NR];

		put(w, piece);
		get(w, piece, size_between(w, KB(100), MB(4)), next(w) % 4 == 0);
	}
	put_all(w, pieces, NR);
}

/* One buffer after the other: nothing else keeps its place. */
static void trace_temporary(struct work *w)
{
	struct piece piece = { 0 };

	for (int i = 0; i < 200; i++) {
		get(w, &piece, MB(4) << (i % 4), false);
		put(w, &piece);
	}
}

/* Patches of a mesh that is refined and coarsened. */
static void trace_amr(struct work *w)
{
	enum { NR = 160, STEPS = 80 };
	struct piece pieces[NR] = { 0 };

	for (int step = 0; step < STEPS; step++) {
		/* A front moves through the mesh: fine there, coarse elsewhere. */
		size_t front = (size_t)step * NR / STEPS;

		for (size_t i = 0; i < NR; i++) {
			size_t away = i > front ? i - front : front - i;

			if (next(w) % 4 != 0)
				continue;
			put(w, &pieces[i]);
			if (away < NR / 8)
				get(w, &pieces[i], size_between(w, KB(256), MB(12)), false);
			else
				get(w, &pieces[i], size_between(w, KB(4), KB(512)),
				    next(w) % 4 == 0);
		}
	}
	put_all(w, pieces, NR);
}

/* Vectors that grow by half of what they are. */
static void trace_vectors(struct work *w)
{
	for (int round = 0; round < 6; round++) {
		struct piece pieces[2] = { 0 };

		for (size_t i = 0; i < ARRAY_SIZE(pieces); i++)
			get(w, &pieces[i], KB(3), false);
		while (pieces[0].len < MB(48))
			for (size_t i = 0; i < ARRAY_SIZE(pieces); i++)
				resize(w, &pieces[i], pieces[i].len + pieces[i].len / 2);
		resize(w, &pieces[0], MB(5));
		put_all(w, pieces, ARRAY_SIZE(pieces));
	}
}

/* The heap grows and is given up, again and again. */
static void trace_heap(struct work *w)
{
	enum { NR = 500 };
	static struct piece pieces[NR];

	for (int round = 0; round < 12; round++) {
		for (size_t i = 0; i < NR; i++)
			get(w, &pieces[i], KB(40) + next(w) % KB(40), false);
		put_all(w, pieces, NR);
	}
}

static void *run_thread(void *arg)
{
	enum { NR = 1500 };
	struct work *w = arg;
	struct piece *pieces = calloc(NR, sizeof(*pieces));

	if (!pieces)
		die("calloc");
	for (int round = 0; round < 2; round++) {
		for (size_t i = 0; i < NR; i++)
			get(w, &pieces[i], size_between(w, 64, KB(16)), next(w) % 8 == 0);
		put_all(w, pieces, NR);
	}
	free(pieces);
	return NULL;
}

/* Teams of threads that come, allocate and go. */
static void trace_threads(struct work *w)
{
	enum { NR = 4 };

	for (int round = 0; round < 10; round++) {
		struct work own[NR] = { 0 };
		pthread_t thread[NR];

		for (size_t i = 0; i < NR; i++) {
			own[i].rng = next(w) | 1;
			errno = pthread_create(&thread[i], NULL, run_thread, &own[i]);
			if (errno)
				die("pthread_create");
		}
		for (size_t i = 0; i < NR; i++) {
			pthread_join(thread[i], NULL);
			w->sum = w->sum * 31 + own[i].sum;
			w->peak += own[i].peak / NR;
		}
	}
}

static const struct trace {
	const char *name;
	void (*run)(struct work *w);
} traces[] = {
	{ "small", trace_small },
	{ "buffers", trace_buffers },
	{ "temporary", trace_temporary },
	{ "amr", trace_amr },
	{ "vectors", trace_vectors },
	{ "heap", trace_heap },
	{ "threads", trace_threads },
};

static uint64_t field(const char *path, const char *name)
{
	char line[128];
	uint64_t value = 0;
	FILE *file = fopen(path, "r");

	if (!file)
		die(path);
	while (fgets(line, sizeof(line), file))
		if (strncmp(line, name, strlen(name)) == 0)
			value = strtoull(line + strlen(name) + 1, NULL, 10);
	fclose(file);
	return value;
}

static uint64_t page_faults(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (uint64_t)(usage.ru_minflt + usage.ru_majflt);
}

static void measure(const struct trace *trace, bool check)
{
	struct work work = { .rng = 0x9e3779b97f4a7c15ULL };
	uint64_t faults = page_faults();
	uint64_t start = __rdtsc();

	trace->run(&work);
	start = __rdtsc() - start;
	faults = page_faults() - faults;
	if (check) {
		printf("%s: %016" PRIx64 "\n", trace->name, work.sum);
		return;
	}
	printf("{\"trace\": \"%s\", \"cycles\": %" PRIu64 ", \"faults\": %" PRIu64
	       ", \"peak_kb\": %zu, \"hwm_kb\": %" PRIu64 ", \"rss_kb\": %" PRIu64 "}\n",
	       trace->name, start, faults, work.peak >> 10,
	       field("/proc/self/status", "VmHWM:"), field("/proc/self/status", "VmRSS:"));
}

int main(int argc, char **argv)
{
	bool check = false;
	int ran = 0;

	for (int i = 1; i < argc; i++) {
		bool known = strcmp(argv[i], "--check") == 0 || strcmp(argv[i], "--4k") == 0;

		if (strcmp(argv[i], "--check") == 0)
			check = true;
		if (strcmp(argv[i], "--4k") == 0 && prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0)
			die("PR_SET_THP_DISABLE");
		for (size_t t = 0; t < ARRAY_SIZE(traces); t++) {
			if (strcmp(argv[i], traces[t].name) != 0)
				continue;
			measure(&traces[t], check);
			known = true;
			ran++;
		}
		if (!known) {
			fprintf(stderr, "traces: there is no trace '%s'\n", argv[i]);
			return 2;
		}
	}
	for (size_t t = 0; ran == 0 && t < ARRAY_SIZE(traces); t++)
		measure(&traces[t], check);
	return fflush(stdout) == 0 ? 0 : 1;
}
