// SPDX-License-Identifier: GPL-2.0
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "app.h"

int app_rank, app_ranks;

static double began, seconds;
static uint64_t minor_before, major_before;
/* Minor faults, major faults; of the loop. */
static uint64_t faults[2];
static uint64_t peak;

void app_die(const char *format, ...)
{
	va_list args;

	fprintf(stderr, "%s: rank %d: ", program_invocation_short_name, app_rank);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	MPI_Abort(MPI_COMM_WORLD, 1);
	abort();
}

void *app_alloc(size_t count, size_t size)
{
	size_t bytes;
	void *memory = NULL;

	if (!__builtin_mul_overflow(count, size, &bytes))
		memory = malloc(bytes ? bytes : 1);
	if (!memory)
		app_die("no memory for %zu times %zu bytes", count, size);
	return memory;
}

void *app_zeroed(size_t count, size_t size)
{
	void *memory = calloc(count ? count : 1, size);

	if (!memory)
		app_die("no memory for %zu times %zu bytes", count, size);
	return memory;
}

uint64_t hash(uint64_t hash, const void *data, size_t bytes)
{
	const unsigned char *byte = data;

	while (bytes--)
		hash = (hash ^ *byte++) * 0x100000001b3ULL;
	return hash;
}

/* The finaliser of splitmix64. */
uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ULL;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

double uniform(uint64_t seed, uint64_t position)
{
	return (double)(mix(mix(seed) ^ position) >> 11) * 0x1p-53;
}

static int planes_first(int total, int rank)
{
	return (long)total * rank / app_ranks;
}

struct planes planes_make(int total, bool periodic)
{
	struct planes planes = {
		.total = total,
		.first = planes_first(total, app_rank),
		.below = app_rank - 1,
		.above = app_rank + 1,
		.counts = app_alloc(app_ranks, sizeof(int)),
		.firsts = app_alloc(app_ranks, sizeof(int)),
		.gathered = app_alloc(total, sizeof(double)),
	};

	planes.count = planes_first(total, app_rank + 1) - planes.first;
	for (int rank = 0; rank < app_ranks; rank++) {
		planes.firsts[rank] = planes_first(total, rank);
		planes.counts[rank] = planes_first(total, rank + 1) - planes.firsts[rank];
	}
	if (planes.below < 0)
		planes.below = periodic ? app_ranks - 1 : MPI_PROC_NULL;
	if (planes.above == app_ranks)
		planes.above = periodic ? 0 : MPI_PROC_NULL;
	return planes;
}

void planes_free(struct planes *planes)
{
	free(planes->counts);
	free(planes->firsts);
	free(planes->gathered);
}

double planes_sum(const struct planes *planes, const double *mine)
{
	double *all = planes->gathered, sum = 0;

	MPI_Allgatherv(mine, planes->count, MPI_DOUBLE, all, planes->counts, planes->firsts, MPI_DOUBLE,
		       MPI_COMM_WORLD);
	for (int i = 0; i < planes->total; i++)
		sum += all[i];
	return sum;
}

uint64_t planes_hash(const struct planes *planes, const uint64_t *mine)
{
	uint64_t *all = planes->gathered;

	MPI_Allgatherv(mine, planes->count, MPI_UINT64_T, all, planes->counts, planes->firsts, MPI_UINT64_T,
		       MPI_COMM_WORLD);
	return hash(HASH_START, all, planes->total * sizeof(*all));
}

void planes_halo(const struct planes *planes, double *data, size_t plane)
{
	double *top = data + planes->count * plane;

	if (plane > INT_MAX)
		app_die("planes of %zu numbers are too large for a message", plane);
	MPI_Sendrecv(data + plane, plane, MPI_DOUBLE, planes->below, 1, top + plane, plane, MPI_DOUBLE,
		     planes->above, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	MPI_Sendrecv(top, plane, MPI_DOUBLE, planes->above, 2, data, plane, MPI_DOUBLE, planes->below, 2,
		     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Of a line of /proc/self/status, in bytes; 0 without one. */
static uint64_t status_bytes(const char *name)
{
	FILE *file = fopen("/proc/self/status", "re");
	uint64_t bytes = 0;
	char line[256];

	if (!file)
		app_die("/proc/self/status: %s", strerror(errno));
	while (fgets(line, sizeof(line), file))
		if (!strncmp(line, name, strlen(name)))
			bytes = strtoull(line + strlen(name), NULL, 10) << 10;
	fclose(file);
	return bytes;
}

static struct rusage usage(void)
{
	struct rusage now;

	if (getrusage(RUSAGE_SELF, &now))
		app_die("getrusage: %s", strerror(errno));
	return now;
}

/* For who watches from outside. */
static void tell(const char *file)
{
	int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

	if (fd < 0)
		app_die("%s: %s", file, strerror(errno));
	close(fd);
}

static void start_up_ends(const char *file)
{
	struct rusage now;

	/* The first barrier sets up connections and shared memory. */
	MPI_Barrier(MPI_COMM_WORLD);
	if (file && !app_rank)
		tell(file);
	now = usage();
	minor_before = now.ru_minflt;
	major_before = now.ru_majflt;
	began = MPI_Wtime();
}

void app_loop_ends(void)
{
	struct rusage now;
	uint64_t mine[2];

	MPI_Barrier(MPI_COMM_WORLD);
	seconds = MPI_Wtime() - began;
	now = usage();
	mine[0] = now.ru_minflt - minor_before;
	mine[1] = now.ru_majflt - major_before;
	MPI_Reduce(mine, faults, 2, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
	mine[0] = status_bytes("VmHWM:") + status_bytes("HugetlbPages:");
	MPI_Reduce(mine, &peak, 1, MPI_UINT64_T, MPI_MAX, 0, MPI_COMM_WORLD);
}

static void report(const struct app *app, const struct options *options, const struct result *result, bool json)
{
	if (json)
		printf("{\"app\": \"%s\", \"ranks\": %d, \"size\": %d, \"iterations\": %d, \"seconds\": %.6f, "
		       "\"verified\": %s, \"residual\": %.6e, \"checksum\": \"%016" PRIx64 "\", \"minflt\": %" PRIu64
		       ", \"majflt\": %" PRIu64 ", \"rss_peak_bytes\": %" PRIu64 "%s%s}\n",
		       app->name, app_ranks, options->size, options->iterations, seconds,
		       result->verified ? "true" : "false", result->residual, result->checksum, faults[0],
		       faults[1], peak, result->json ? ", " : "", result->json ? result->json : "");
	else
		printf("%s: %d rank%s, size %d, %d iterations: %.3f s\n"
		       "%s; residual %.3e, checksum %016" PRIx64 "\n"
		       "page faults after start-up: %" PRIu64 " minor, %" PRIu64 " major; largest rank %.1f MB\n",
		       app->name, app_ranks, app_ranks == 1 ? "" : "s", options->size, options->iterations,
		       seconds, result->verified ? "verified" : "NOT VERIFIED", result->residual,
		       result->checksum, faults[0], faults[1], (double)peak / (1 << 20));
	if (fflush(stdout))
		app_die("standard output: %s", strerror(errno));
}

static int default_iterations(const struct app *app, const struct options *options)
{
	return app->iterations_to_solve ? app->iterations_to_solve(options) : app->default_iterations;
}

static void help(const struct app *app, const struct options *options)
{
	printf("usage: %s [OPTION]...\n%s\nRun it alone or by mpirun.\n\n"
	       "  --size N        %s, of each rank (default %d, at least %d)\n"
	       "  --memory BYTES  the size with which a rank has about that much; K, M, G may follow\n"
	       "  --strong        the size is of all ranks together, not of each\n"
	       "  --iterations N  %s (default %d)\n"
	       "  --seed N        of the numbers it starts from (default 1)\n"
	       "  --started FILE  make this file when start-up ends\n"
	       "  --json          report as a line of JSON\n"
	       "  --help          this\n\n"
	       "Exit status: 0 if the result was verified, 1 if not, 2 for wrong options.\n",
	       app->name, app->about, app->size_unit, app->default_size, app->least_size, app->iterations_unit,
	       default_iterations(app, options));
}

struct parsed {
	struct options options;
	bool json, help;
	const char *started;
	char wrong[160];
};

static uint64_t number(struct parsed *parsed, const char *option, const char *text, uint64_t least, uint64_t most,
		       bool units)
{
	static const char letters[] = "KMG";
	unsigned long long n;
	const char *letter;
	char *end;

	errno = 0;
	n = strtoull(text, &end, 10);
	letter = units && *end ? strchr(letters, *end & ~0x20) : NULL;
	if (letter && *letter) {
		int shift = 10 * (letter - letters + 1);

		if (n > ULLONG_MAX >> shift)
			errno = ERANGE;
		n <<= shift;
		end++;
	}
	if (errno || end == text || *end || *text < '0' || *text > '9' || n < least || n > most)
		snprintf(parsed->wrong, sizeof(parsed->wrong), "%s %.40s: must be a whole number from %" PRIu64 " to %"
			 PRIu64, option, text, least, most);
	return n;
}

/* The largest size whose memory is not more. */
static int size_for(const struct app *app, double bytes, struct parsed *parsed)
{
	int low = app->least_size, high = app->most_size;

	if (app->bytes(low) > bytes)
		snprintf(parsed->wrong, sizeof(parsed->wrong), "--memory %.0f: the least size, %d, needs %.0f bytes",
			 bytes, low, app->bytes(low));
	while (low < high) {
		int middle = low + (high - low + 1) / 2;

		if (app->bytes(middle) <= bytes)
			low = middle;
		else
			high = middle - 1;
	}
	return low;
}

static void parse(const struct app *app, int argc, char **argv, struct parsed *parsed)
{
	static const struct option known[] = {
		{ "size", required_argument, NULL, 's' },
		{ "memory", required_argument, NULL, 'm' },
		{ "strong", no_argument, NULL, 'S' },
		{ "iterations", required_argument, NULL, 'i' },
		{ "seed", required_argument, NULL, 'r' },
		{ "started", required_argument, NULL, 'b' },
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	struct options *options = &parsed->options;
	uint64_t bytes;
	int c;

	opterr = 0;
	while (!*parsed->wrong && (c = getopt_long(argc, argv, "", known, NULL)) != -1) {
		switch (c) {
		case 's':
			options->size = number(parsed, "--size", optarg, app->least_size, app->most_size,
					       false);
			break;
		case 'm':
			bytes = number(parsed, "--memory", optarg, 1, 1ULL << 60, true);
			if (!*parsed->wrong)
				options->size = size_for(app, bytes, parsed);
			break;
		case 'S':
			options->strong = true;
			break;
		case 'i':
			options->iterations = number(parsed, "--iterations", optarg, 1, INT_MAX, false);
			break;
		case 'r':
			options->seed = number(parsed, "--seed", optarg, 0, UINT64_MAX, false);
			break;
		case 'b':
			parsed->started = optarg;
			break;
		case 'j':
			parsed->json = true;
			break;
		case 'h':
			parsed->help = true;
			return;
		default:
			snprintf(parsed->wrong, sizeof(parsed->wrong),
				 "%.60s: no such option, or it needs a value; see --help", argv[optind - 1]);
		}
	}
	if (!*parsed->wrong && optind < argc)
		snprintf(parsed->wrong, sizeof(parsed->wrong), "%.60s: no argument is expected; see --help",
			 argv[optind]);
}

/*
 * MPI_Finalize of Open MPI 4.1 unloads code that a thread of PMIx may have been
 * asked to run (open-mpi/ompi issue 10117). It has run what it was asked for, if
 * it gets a moment.
 */
static void finalize(void)
{
	const struct timespec moment = { .tv_nsec = 50000000 };

	nanosleep(&moment, NULL);
	MPI_Finalize();
}

int app_ranks_by_size(const struct options *options)
{
	return options->strong ? options->size : 1 << 16;
}

int app_main(const struct app *app, int argc, char **argv)
{
	struct parsed parsed = {
		.options = { .size = app->default_size, .seed = 1 },
	};
	struct result result;
	int most;

	parse(app, argc, argv, &parsed);
	/* Without mpirun no daemon of Open MPI is needed; under it this means nothing. */
	setenv("OMPI_MCA_ess_singleton_isolated", "1", 0);
	/* Also to complain: once, not by every rank. */
	if (MPI_Init(&argc, &argv) != MPI_SUCCESS)
		return 1;
	MPI_Comm_rank(MPI_COMM_WORLD, &app_rank);
	MPI_Comm_size(MPI_COMM_WORLD, &app_ranks);
	if (!parsed.options.iterations)
		parsed.options.iterations = default_iterations(app, &parsed.options);
	most = app->most_ranks(&parsed.options);
	if (!*parsed.wrong && !parsed.help && app_ranks > most)
		snprintf(parsed.wrong, sizeof(parsed.wrong), "--size %d is for at most %d ranks, there are %d",
			 parsed.options.size, most, app_ranks);
	if (parsed.help || *parsed.wrong) {
		if (!app_rank && parsed.help)
			help(app, &parsed.options);
		else if (!app_rank)
			fprintf(stderr, "%s: %s\n", app->name, parsed.wrong);
		finalize();
		return parsed.help ? 0 : 2;
	}

	start_up_ends(parsed.started);
	result = app->run(&parsed.options);
	if (!app_rank)
		report(app, &parsed.options, &result, parsed.json);
	MPI_Bcast(&result.verified, sizeof(result.verified), MPI_BYTE, 0, MPI_COMM_WORLD);
	finalize();
	return result.verified ? 0 : 1;
}
