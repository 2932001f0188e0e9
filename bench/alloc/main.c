// SPDX-License-Identifier: GPL-2.0
/*
 * bench-alloc: what does it cost to get memory, touch every page of it and
 * give it back?
 *
 * `hpmmap bench alloc` starts one process of this program for each method,
 * size, pattern and repetition. Time is the time stamp counter. In a guest
 * with one CPU and `-icount shift=0` that grows by one with each instruction
 * executed, in kernel and user mode, and the figures are counts of
 * instructions. bench/README.md describes what is printed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "worker.h"

static const struct pattern {
	const char *name;
	void (*run)(const struct task *task);
	bool allocator;
	/* Before it is measured. */
	void (*prepare)(void);
} patterns[] = {
	{ "map", pattern_map, false, NULL },
	{ "crowded", pattern_map, false, crowd_prepare },
	{ "cycle", pattern_cycle, false, NULL },
	{ "brk", pattern_brk, false, NULL },
	{ "mremap", pattern_mremap, false, NULL },
	{ "stacks", pattern_stacks, false, stacks_prepare },
	{ "amr", pattern_amr, false, traces_prepare },
	{ "amr-malloc", pattern_amr_malloc, true, traces_prepare },
	{ "malloc", pattern_malloc, true, traces_prepare },
	{ "threads", NULL, false, NULL },
	{ "processes", NULL, false, NULL },
};

static const struct pattern *pattern_find(const char *name)
{
	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++)
		if (!strcmp(patterns[i].name, name))
			return &patterns[i];
	return NULL;
}

__attribute__((noreturn)) static void usage(void)
{
	fputs("usage: bench-alloc --method NAME [--pattern NAME] [--size BYTES] [--rounds N] [--threads N]\n"
	      "                   [--preload LIBRARY[:LIBRARY]]\n"
	      "methods:", stderr);
	method_list();
	fputs("\npatterns:", stderr);
	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++)
		fprintf(stderr, " %s", patterns[i].name);
	fputc('\n', stderr);
	exit(2);
}

static uint64_t number(const char *option, const char *text)
{
	char *end;
	unsigned long long n;

	errno = 0;
	n = strtoull(text, &end, 10);
	if (errno || !n || *end || *text == '-') {
		fprintf(stderr, "bench-alloc: %s %s: must be a whole number above 0\n", option, text);
		exit(2);
	}
	return n;
}

/* The dynamic linker goes on without a library that it cannot load. */
static void require_loaded(char *libraries)
{
	for (char *name = strtok(libraries, ":"); name; name = strtok(NULL, ":")) {
		if (!dlopen(name, RTLD_LAZY | RTLD_NOLOAD)) {
			fprintf(stderr, "bench-alloc: %s was not loaded\n", name);
			exit(1);
		}
	}
}

/*
 * Starts over, if need be, with the same addresses in every process and with
 * another allocator, which must be there from the start.
 */
static void settle(char *libraries, char **argv)
{
	const char *now = getenv("LD_PRELOAD");
	int persona = personality(0xffffffff);
	bool again = false;

	if (persona < 0)
		die("personality");
	if (!(persona & ADDR_NO_RANDOMIZE)) {
		if (personality(persona | ADDR_NO_RANDOMIZE) < 0)
			die("personality");
		again = true;
	}
	if (libraries && (!now || strcmp(now, libraries))) {
		if (setenv("LD_PRELOAD", libraries, 1))
			die("setenv");
		again = true;
	}
	if (again) {
		execv("/proc/self/exe", argv);
		die("execv");
	}
	if (libraries)
		require_loaded(strdup(libraries));
}

/* Code that nobody has run yet takes page faults that are not the pattern's. */
static void read_program(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned long start, end;
	char line[512], perms[5];

	if (!maps)
		die("/proc/self/maps");
	while (fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx %4s", &start, &end, perms) == 3 && perms[0] == 'r' &&
		    perms[1] == '-' && perms[3] == 'p' && strchr(line, '/'))
			/* What cannot be had so (before Linux 5.14) comes by itself. */
			madvise((void *)start, end - start, MADV_POPULATE_READ);
	fclose(maps);
}

/* The first call sets up lists and page tables that then stay. */
static void warm_up(const struct pattern *pattern, const struct task *task)
{
	struct task small = *task;

	read_program();
	small.rounds = 1;
	if (small.size > LARGE_PAGE)
		small.size = LARGE_PAGE;
	figures_begin();
	if (!pattern->allocator)
		pattern_map(&small);
	figures_peak();
	figures_end();
}

static void print_figures(const struct pattern *pattern, const struct task *task, int64_t clean)
{
	const struct figures *f = &figures;
	char clean_text[32] = "null", tasks_text[32] = "null";
	int64_t tasks = tasks_ns();
	static char line[2048];
	struct timespec cpu;
	int n;

	if (clean >= 0)
		snprintf(clean_text, sizeof(clean_text), "%" PRId64, clean);
	if (tasks >= 0)
		snprintf(tasks_text, sizeof(tasks_text), "%" PRId64, tasks);
	/* Last, because only the end of the process follows. */
	if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu))
		die("clock_gettime");
	n = snprintf(line, sizeof(line),
		     "{\"pattern\": \"%s\", \"method\": \"%s\", \"size_bytes\": %zu, \"map\": %" PRIu64
		     ", \"touch\": %" PRIu64 ", \"unmap\": %" PRIu64 ", \"total\": %" PRIu64 ", \"loop\": %" PRIu64
		     ", \"worst_touch\": %" PRIu64 ", \"worst_call\": %" PRIu64 ", \"calls\": %" PRIu64
		     ", \"touched_pages\": %" PRIu64 ", \"faults\": %" PRIu64 ", \"fault_counter\": \"%s\""
		     ", \"page_table_bytes\": %" PRIu64 ", \"resident_bytes\": %" PRIu64
		     ", \"held_bytes\": %" PRIu64 ", \"base_bytes\": %" PRIu64
		     ", \"cleared_bytes\": %" PRIu64 ", \"clean_bytes\": %s, \"cpu_ns\": %" PRIu64
		     ", \"tasks_ns\": %s}\n",
		     pattern->name, task->method->name, task->size, f->map, f->touch, f->unmap,
		     f->map + f->touch + f->unmap, f->loop, f->worst_touch, f->worst_call, f->calls,
		     f->touched_pages, f->faults, fault_counter_name(), f->page_table_bytes, f->resident_bytes,
		     f->held_bytes, f->base_bytes, f->cleared_bytes, clean_text,
		     (uint64_t)cpu.tv_sec * 1000000000 + cpu.tv_nsec, tasks_text);
	if (write(STDOUT_FILENO, line, n) != n)
		die("write");
	_exit(0);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "method", required_argument, NULL, 'm' },
		{ "pattern", required_argument, NULL, 'p' },
		{ "size", required_argument, NULL, 's' },
		{ "rounds", required_argument, NULL, 'r' },
		{ "threads", required_argument, NULL, 't' },
		{ "preload", required_argument, NULL, 'l' },
		{ 0 },
	};
	const struct pattern *pattern = &patterns[0];
	struct task task = { .size = 128UL << 20, .rounds = 8, .threads = 1 };
	char *libraries = NULL;
	int64_t clean;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 'm':
			task.method = method_find(optarg);
			if (!task.method)
				usage();
			break;
		case 'p':
			pattern = pattern_find(optarg);
			if (!pattern)
				usage();
			break;
		case 's':
			task.size = number("--size", optarg);
			break;
		case 'r':
			task.rounds = number("--rounds", optarg);
			break;
		case 't':
			task.threads = number("--threads", optarg);
			break;
		case 'l':
			libraries = optarg;
			break;
		default:
			usage();
		}
	}
	if (!task.method || optind != argc)
		usage();
	if (task.size % SMALL_PAGE) {
		fprintf(stderr, "bench-alloc: --size %zu: must be a multiple of %lu\n", task.size, SMALL_PAGE);
		return 2;
	}
	if (pattern->allocator && task.method->no_thp && prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0))
		die("prctl(PR_SET_THP_DISABLE)");
	settle(libraries, argv);
	if (task.method->reuse && !reuse_is_offered()) {
		puts("{\"left_out\": \"this module does not offer reuse\"}");
		return 0;
	}
	wait_for_clean_pools();
	if (!pattern->run) {
		if (task.method->dirty)
			make_pool_dirty();
		threads_run(&task, !strcmp(pattern->name, "processes"));
		return 0;
	}

	region_prepare(task.method, task.size);
	warm_up(pattern, &task);
	if (task.method->dirty)
		make_pool_dirty();
	if (pattern->prepare)
		pattern->prepare();
	clean = pool_bytes("clean_bytes");
	figures_begin();
	wait_for_tick();
	pattern->run(&task);
	figures_end();
	print_figures(pattern, &task, clean);
}
