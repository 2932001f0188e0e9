// SPDX-License-Identifier: GPL-2.0
/*
 * bench-noise: the programs that `hpmmap bench noise` starts. bench/README.md
 * describes what they do and print.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "noise.h"

__attribute__((noreturn)) static void usage(void)
{
	fputs("usage: bench-noise detour --variant plain|touch|fresh --method NAME --hz N --cpu N\n"
	      "                   [--size BYTES] [--milliseconds N] [--factor N]\n"
	      "       bench-noise access --mode dependent|independent|triad --method NAME --hz N\n"
	      "                   [--cpu N]... [--size BYTES] [--accesses N] [--rounds N]\n"
	      "       bench-noise neighbour [--size BYTES] [--processes N] [--command COMMAND] [--cpu N]...\n"
	      "methods:", stderr);
	method_list();
	fputc('\n', stderr);
	exit(2);
}

static uint64_t number(const char *option, const char *text, uint64_t least)
{
	char *end;
	unsigned long long n;

	errno = 0;
	n = strtoull(text, &end, 10);
	if (errno || n < least || end == text || *end || *text == '-') {
		fprintf(stderr, "bench-noise: %s %s: must be a whole number of at least %ju\n", option, text,
			(uintmax_t)least);
		exit(2);
	}
	return n;
}

/* The place of @text among @words. */
static unsigned int one_of(const char *text, const char *const *words)
{
	for (unsigned int i = 0; words[i]; i++)
		if (!strcmp(words[i], text))
			return i;
	usage();
}

uint64_t faults_since(const struct rusage *before)
{
	struct rusage after;

	if (!strcmp(fault_counter_name(), "perf"))
		return figures.faults;
	if (getrusage(RUSAGE_SELF, &after))
		die("getrusage");
	return after.ru_minflt + after.ru_majflt - before->ru_minflt - before->ru_majflt;
}

int main(int argc, char **argv)
{
	static const char *const verbs[] = { "detour", "access", "neighbour", NULL };
	static const char *const variants[] = { "plain", "touch", "fresh", NULL };
	static const char *const modes[] = { "independent", "dependent", "triad", NULL };
	static const struct option options[] = {
		{ "variant", required_argument, NULL, 'v' },
		{ "mode", required_argument, NULL, 'o' },
		{ "method", required_argument, NULL, 'm' },
		{ "cpu", required_argument, NULL, 'c' },
		{ "hz", required_argument, NULL, 'h' },
		{ "size", required_argument, NULL, 's' },
		{ "milliseconds", required_argument, NULL, 't' },
		{ "factor", required_argument, NULL, 'f' },
		{ "accesses", required_argument, NULL, 'a' },
		{ "rounds", required_argument, NULL, 'r' },
		{ "processes", required_argument, NULL, 'p' },
		{ "command", required_argument, NULL, 'C' },
		{ 0 },
	};
	struct job job = { .size = 64UL << 20 };
	struct detour_job detours = { .milliseconds = 1000, .factor = 9 };
	struct access_job accesses = { .accesses = 1 << 20, .rounds = 3 };
	unsigned int processes = 1, verb;
	const char *command = NULL;
	bool pinned = false;
	cpu_set_t cpus;
	int c;

	CPU_ZERO(&cpus);
	if (argc < 2)
		usage();
	verb = one_of(argv[1], verbs);
	optind = 2;
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 'v':
			detours.variant = one_of(optarg, variants);
			break;
		case 'o':
			accesses.mode = one_of(optarg, modes);
			break;
		case 'm':
			job.method = method_find(optarg);
			if (!job.method)
				usage();
			break;
		case 'c':
			detours.cpu = number("--cpu", optarg, 0);
			if (detours.cpu < CPU_SETSIZE)
				CPU_SET(detours.cpu, &cpus);
			pinned = true;
			break;
		case 'h':
			job.hz = number("--hz", optarg, 1);
			break;
		case 's':
			job.size = number("--size", optarg, 1);
			break;
		case 't':
			detours.milliseconds = number("--milliseconds", optarg, 1);
			break;
		case 'f':
			detours.factor = number("--factor", optarg, 2);
			break;
		case 'a':
			accesses.accesses = number("--accesses", optarg, 1);
			break;
		case 'r':
			accesses.rounds = number("--rounds", optarg, 1);
			break;
		case 'p':
			processes = number("--processes", optarg, 1);
			break;
		case 'C':
			command = optarg;
			break;
		default:
			usage();
		}
	}
	if (optind != argc || (verb != 2 && (!job.method || !job.hz)))
		usage();
	if (job.size % SMALL_PAGE) {
		fprintf(stderr, "bench-noise: --size %zu: must be a multiple of %lu\n", job.size, SMALL_PAGE);
		return 2;
	}
	if (pinned && sched_setaffinity(0, sizeof(cpus), &cpus))
		die("sched_setaffinity");
	detours.job = accesses.job = job;
	if (verb == 0)
		detour(&detours);
	else if (verb == 1)
		access_run(&accesses);
	else
		neighbour(job.size, processes, command);
	return 0;
}
