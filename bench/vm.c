// SPDX-License-Identifier: GPL-2.0
/*
 * bench-vm: the work of `hpmmap bench vm`, as a program of the host and as the first process of a
 * virtual machine. It reads lines "WORKLOAD 4k|2m BYTES ROUNDS" and answers each in three steps, so
 * that its caller can read counters in between: "@s" once the memory is filled, "@w" once the work is
 * done, each followed by an empty line of the caller, and then the figures as JSON. Lines that do not
 * begin with @ are the kernel's.
 */
#define _GNU_SOURCE
#include <err.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
#include <x86intrin.h>

#define LARGE_PAGE	(2UL << 20)
#define SMALL_PAGE	4096UL
/* HPCC's generator. */
#define POLYNOMIAL	7
/* Updates between two switches, and the mappings that exist at a time. */
#define UPDATES	64

struct work {
	bool large;
	size_t bytes;
	uint64_t rounds;
	uint64_t *memory;
	/* The other process of `switches`. */
	int to[2], from[2];
	pid_t pid;
	uint64_t random, result;
};

struct workload {
	const char *name;
	void (*set_up)(struct work *work);
	void (*run)(struct work *work);
	/* Computes the result, which is the same wherever it runs. */
	void (*end)(struct work *work);
};

static void *map(const struct work *work)
{
	size_t room = work->bytes + LARGE_PAGE;
	char *memory = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uintptr_t at = ((uintptr_t)memory + LARGE_PAGE - 1) & ~(LARGE_PAGE - 1);

	if (memory == MAP_FAILED)
		err(1, "mmap of %zu bytes", room);
	/* Refused by a kernel without huge pages, whose figures say so. */
	madvise((void *)at, work->bytes, work->large ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	return (void *)at;
}

static uint64_t next_random(uint64_t *random)
{
	*random = *random << 1 ^ ((int64_t)*random < 0 ? POLYNOMIAL : 0);
	return *random;
}

static uint64_t digest(const void *memory, size_t bytes)
{
	const uint64_t *words = memory;
	uint64_t sum = 0;

	for (size_t i = 0; i < bytes / sizeof(*words); i++)
		sum = (sum << 5 | sum >> 59) ^ words[i];
	return sum;
}

static void end_with_digest(struct work *work)
{
	work->result = digest(work->memory, work->bytes);
}

/* ---- random: HPCC's RandomAccess ------------------------------------------------ */

static void random_set_up(struct work *work)
{
	work->memory = map(work);
	for (size_t i = 0; i < work->bytes / sizeof(uint64_t); i++)
		work->memory[i] = i;
	work->random = 1;
}

static void update(struct work *work, uint64_t updates)
{
	uint64_t mask = work->bytes / sizeof(uint64_t) - 1;

	while (updates--) {
		uint64_t number = next_random(&work->random);

		work->memory[number & mask] ^= number;
	}
}

static void random_run(struct work *work)
{
	update(work, work->rounds);
}

/* ---- stream: HPCC's STREAM triad ------------------------------------------------ */

static void stream_set_up(struct work *work)
{
	size_t n = work->bytes / sizeof(double) / 4;
	double *a = map(work);

	work->memory = (uint64_t *)a;
	for (size_t i = 0; i < n; i++) {
		a[i] = 0;
		a[n + i] = (double)i;
		a[2 * n + i] = 2;
	}
}

static void stream_run(struct work *work)
{
	size_t n = work->bytes / sizeof(double) / 4;
	double *a = (double *)work->memory, *b = a + n, *c = b + n;

	for (uint64_t round = 0; round < work->rounds; round++)
		for (size_t i = 0; i < n; i++)
			a[i] = b[i] + (double)(round + 3) * c[i];
}

/* ---- lu: what HPL does, in one block -------------------------------------------- */

static size_t lu_order(const struct work *work)
{
	size_t n = 1;

	while ((n + 1) * (n + 1) * sizeof(double) <= work->bytes)
		n++;
	return n;
}

static void lu_set_up(struct work *work)
{
	work->memory = map(work);
	memset(work->memory, 0, work->bytes);
}

static void lu_run(struct work *work)
{
	size_t n = lu_order(work);
	double *a = (double *)work->memory;

	for (uint64_t round = 0; round < work->rounds; round++) {
		uint64_t random = round + 1;

		for (size_t i = 0; i < n * n; i++)
			a[i] = (double)(next_random(&random) >> 40) / (1 << 23) - 1;
		/* Rows of the largest pivot come first. */
		for (size_t k = 0; k < n; k++) {
			size_t pivot = k;

			for (size_t i = k + 1; i < n; i++)
				if (__builtin_fabs(a[i * n + k]) > __builtin_fabs(a[pivot * n + k]))
					pivot = i;
			for (size_t j = 0; pivot != k && j < n; j++) {
				double kept = a[k * n + j];

				a[k * n + j] = a[pivot * n + j];
				a[pivot * n + j] = kept;
			}
			for (size_t i = k + 1; i < n; i++) {
				double factor = a[i * n + k] /= a[k * n + k];

				for (size_t j = k + 1; j < n; j++)
					a[i * n + j] -= factor * a[k * n + j];
			}
		}
	}
}

/* ---- switches: two processes take turns ------------------------------------------ */

static void must(ssize_t done, const char *what)
{
	if (done <= 0)
		err(1, "%s", what);
}

static _Noreturn void answer(struct work *work)
{
	char letter;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	random_set_up(work);
	must(write(work->from[1], "s", 1), "write");
	for (;;) {
		must(read(work->to[0], &letter, 1), "read");
		if (letter == 'q')
			break;
		update(work, UPDATES);
		must(write(work->from[1], &letter, 1), "write");
	}
	end_with_digest(work);
	must(write(work->from[1], &work->result, sizeof(work->result)), "write");
	_exit(0);
}

static void switches_set_up(struct work *work)
{
	char letter;

	if (pipe(work->to) || pipe(work->from))
		err(1, "pipe");
	/* Each has half of the memory. */
	work->bytes /= 2;
	work->pid = fork();
	if (work->pid < 0)
		err(1, "fork");
	if (!work->pid)
		answer(work);
	random_set_up(work);
	must(read(work->from[0], &letter, 1), "read");
}

static void switches_run(struct work *work)
{
	char letter = 'u';

	for (uint64_t round = 0; round < work->rounds; round++) {
		update(work, UPDATES);
		must(write(work->to[1], &letter, 1), "write");
		must(read(work->from[0], &letter, 1), "read");
	}
}

static void switches_end(struct work *work)
{
	uint64_t other;

	must(write(work->to[1], "q", 1), "write");
	must(read(work->from[0], &other, sizeof(other)), "read");
	if (waitpid(work->pid, NULL, 0) != work->pid)
		err(1, "waitpid");
	end_with_digest(work);
	if (work->result != other)
		errx(1, "the two processes have different results: %#" PRIx64 " and %#" PRIx64, work->result, other);
	for (int i = 0; i < 2; i++) {
		close(work->to[i]);
		close(work->from[i]);
	}
}

/* ---- mappings: memory comes and goes ---------------------------------------------- */

static void mappings_set_up(struct work *work)
{
	work->memory = map(work);
}

static void mappings_run(struct work *work)
{
	for (uint64_t round = 1; round <= work->rounds; round++) {
		char *memory = (char *)work->memory;

		for (size_t at = 0; at < work->bytes; at += SMALL_PAGE) {
			uint64_t *word = (uint64_t *)(void *)(memory + at);

			work->result += *word + round;
			*word = at;
		}
		if (madvise(memory, work->bytes, MADV_DONTNEED))
			err(1, "madvise");
	}
}

static void no_end(struct work *work)
{
	(void)work;
}

static const struct workload workloads[] = {
	{ "random", random_set_up, random_run, end_with_digest },
	{ "stream", stream_set_up, stream_run, end_with_digest },
	{ "lu", lu_set_up, lu_run, end_with_digest },
	{ "switches", switches_set_up, switches_run, switches_end },
	{ "mappings", mappings_set_up, mappings_run, no_end },
};

/* The value of a line of a file of /proc in bytes; 0 without it. */
static uint64_t kilobytes(const char *path, const char *name)
{
	FILE *file = fopen(path, "re");
	uint64_t value = 0;
	char line[256];

	while (file && fgets(line, sizeof(line), file))
		if (!strncmp(line, name, strlen(name)))
			value = strtoull(line + strlen(name), NULL, 10);
	if (file)
		fclose(file);
	return value << 10;
}

static bool await(char *line, size_t size)
{
	return fgets(line, (int)size, stdin);
}

static void perform(const struct workload *workload, struct work *work)
{
	uint64_t begin, set_up, run, tables, huge;
	char line[16];

	begin = __rdtsc();
	workload->set_up(work);
	set_up = __rdtsc() - begin;
	puts("@s");
	if (!await(line, sizeof(line)))
		exit(1);
	begin = __rdtsc();
	workload->run(work);
	run = __rdtsc() - begin;
	tables = kilobytes("/proc/self/status", "VmPTE:");
	huge = kilobytes("/proc/self/smaps_rollup", "AnonHugePages:");
	puts("@w");
	if (!await(line, sizeof(line)))
		exit(1);
	workload->end(work);
	printf("@{\"set_up\": %" PRIu64 ", \"run\": %" PRIu64 ", \"table_bytes\": %" PRIu64 ", \"huge_bytes\": %" PRIu64
	       ", \"result\": \"%016" PRIx64 "\"}\n", set_up, run, tables, huge, work->result);
	munmap(work->memory, work->bytes);
}

/* As the first process of a machine. */
static void begin_as_init(void)
{
	static const char *const dirs[] = { "proc", "sysfs" };
	struct termios raw;
	FILE *thp;

	for (size_t i = 0; i < 2; i++) {
		char path[16];

		snprintf(path, sizeof(path), "/%s", dirs[i]);
		mkdir(path, 0755);
		if (mount(dirs[i], path, dirs[i], 0, NULL))
			err(1, "mount %s", path);
	}
	thp = fopen("/sysfs/kernel/mm/transparent_hugepage/enabled", "we");
	if (thp && (fputs("madvise", thp) < 0 || fclose(thp)))
		err(1, "transparent_hugepage");
	if (!tcgetattr(0, &raw)) {
		cfmakeraw(&raw);
		tcsetattr(0, TCSANOW, &raw);
	}
}

int main(void)
{
	bool is_init = getpid() == 1;
	char line[128], name[16], pages[8];

	setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
	if (is_init)
		begin_as_init();
	puts("@r");
	while (await(line, sizeof(line))) {
		const struct workload *workload = NULL;
		struct work work = { 0 };

		if (sscanf(line, "%15s %7s %zu %" SCNu64, name, pages, &work.bytes, &work.rounds) != 4)
			errx(2, "'%s' is no work", line);
		work.large = !strcmp(pages, "2m");
		for (size_t i = 0; i < sizeof(workloads) / sizeof(*workloads); i++)
			if (!strcmp(name, workloads[i].name))
				workload = &workloads[i];
		if (!workload || !work.rounds || work.bytes < SMALL_PAGE || (work.bytes & (work.bytes - 1)))
			errx(2, "'%s' is no work", line);
		perform(workload, &work);
	}
	if (is_init)
		reboot(RB_AUTOBOOT);
	return 0;
}
