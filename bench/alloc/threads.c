// SPDX-License-Identifier: GPL-2.0
/* Threads of one process, or processes, that map, touch and unmap at the same time. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "worker.h"

#define MOST_THREADS	1024
/* Of the costs of touches: each power of two in so many parts. */
#define PARTS		16
#define BUCKETS		(48 * PARTS)

struct thread {
	pthread_t id;
	const struct task *task;
	void *place;
	uint64_t start_ns, end_ns;
	uint64_t cpu_ns;	/* on a CPU; spinning on a lock is part of it */
	uint64_t run_delay_ns;	/* ready to run, but no CPU was free */
	uint64_t voluntary;	/* switches: it slept, here on a lock of the kernel */
	uint64_t involuntary;
	uint32_t touches[BUCKETS];	/* how many cost so much */
};

/* What processes share. */
static struct shared {
	pthread_barrier_t barrier;
	struct thread threads[MOST_THREADS];
} *shared;

static uint64_t now_ns(void)
{
	struct timespec t;

	if (clock_gettime(CLOCK_MONOTONIC, &t))
		die("clock_gettime");
	return t.tv_sec * UINT64_C(1000000000) + t.tv_nsec;
}

static void read_usage(uint64_t *cpu, uint64_t *delay, struct rusage *usage)
{
	char text[128];
	int fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (n <= 0)
		die("/proc/thread-self/schedstat");
	close(fd);
	text[n] = 0;
	if (sscanf(text, "%" SCNu64 " %" SCNu64, cpu, delay) != 2)
		die("/proc/thread-self/schedstat");
	if (getrusage(RUSAGE_THREAD, usage))
		die("getrusage");
}

static unsigned int bucket_of(uint64_t cost)
{
	unsigned int power, bucket;

	if (cost < PARTS)
		return cost;
	power = 63 - __builtin_clzll(cost);
	bucket = (power - 3) * PARTS + (cost >> (power - 4)) % PARTS;
	return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

/* The least cost of a bucket. */
static uint64_t bucket_cost(unsigned int bucket)
{
	if (bucket < PARTS)
		return bucket;
	return (uint64_t)(PARTS + bucket % PARTS) << (bucket / PARTS - 1);
}

/* The cost that so many hundredths of the touches of @count threads do not exceed, but for what a bucket holds. */
static uint64_t touch_quantile(unsigned int count, unsigned int hundredths)
{
	uint64_t all = 0, seen = 0, want;

	for (unsigned int i = 0; i < count; i++)
		for (unsigned int b = 0; b < BUCKETS; b++)
			all += shared->threads[i].touches[b];
	want = (all * hundredths + 99) / 100;
	for (unsigned int b = 0; b < BUCKETS; b++) {
		for (unsigned int i = 0; i < count; i++)
			seen += shared->threads[i].touches[b];
		if (seen >= want)
			return bucket_cost(b);
	}
	return 0;
}

static void *run(void *arg)
{
	struct thread *t = arg;
	size_t size = t->task->size;
	uint64_t cpu, delay;
	struct rusage before, after;

	pthread_barrier_wait(&shared->barrier);
	read_usage(&cpu, &delay, &before);
	t->start_ns = now_ns();
	for (unsigned int i = 0; i < t->task->rounds; i++) {
		volatile char *p = region_map(t->task->method, size, t->place);

		for (size_t at = 0; at < size; at += SMALL_PAGE) {
			uint64_t start = ticks();

			p[at] = 1;
			t->touches[bucket_of(ticks() - start)]++;
		}
		if (munmap((void *)p, size))
			die("munmap");
	}
	t->end_ns = now_ns();
	read_usage(&t->cpu_ns, &t->run_delay_ns, &after);
	t->cpu_ns -= cpu;
	t->run_delay_ns -= delay;
	t->voluntary = after.ru_nvcsw - before.ru_nvcsw;
	t->involuntary = after.ru_nivcsw - before.ru_nivcsw;
	/* A thread that ends early must not take part in the others' figures. */
	pthread_barrier_wait(&shared->barrier);
	return NULL;
}

static void start_threads(const struct task *task)
{
	size_t span = task->size + LARGE_PAGE;
	char *places;

	for (unsigned int i = 0; i < task->threads; i++)
		if (pthread_create(&shared->threads[i].id, NULL, run, &shared->threads[i]))
			die("pthread_create");
	/* A place for each, now that their stacks have theirs. */
	places = region_place(task->method, span * task->threads);
	for (unsigned int i = 0; places && i < task->threads; i++)
		shared->threads[i].place = places + i * (span & ~(LARGE_PAGE - 1));
}

/* The kernel ends the processes with their parent, however it ends. */
static void start_processes(const struct task *task)
{
	pid_t parent = getpid();

	for (unsigned int i = 0; i < task->threads; i++) {
		struct thread *t = &shared->threads[i];
		pid_t pid = fork();

		if (pid < 0)
			die("fork");
		if (pid == 0) {
			if (prctl(PR_SET_PDEATHSIG, SIGKILL))
				die("prctl");
			/* It may have ended before. */
			if (getppid() != parent)
				_exit(1);
			t->place = region_place(task->method, task->size);
			run(t);
			_exit(0);
		}
	}
}

static void end_threads(const struct task *task)
{
	/* Start, and end. */
	pthread_barrier_wait(&shared->barrier);
	pthread_barrier_wait(&shared->barrier);
	for (unsigned int i = 0; i < task->threads; i++)
		if (pthread_join(shared->threads[i].id, NULL))
			die("pthread_join");
}

/* Waits at no barrier: a process that fails does not come to it. */
static void end_processes(const struct task *task)
{
	for (unsigned int i = 0; i < task->threads; i++) {
		int status;

		if (wait(&status) < 0 || status) {
			fputs("bench-alloc: a process has failed\n", stderr);
			exit(1);
		}
	}
}

static void print_sums(const struct task *task)
{
	uint64_t first = UINT64_MAX, last = 0, cpu = 0, delay = 0, busy = 0;
	uint64_t voluntary = 0, involuntary = 0;

	for (unsigned int i = 0; i < task->threads; i++) {
		struct thread *t = &shared->threads[i];

		first = t->start_ns < first ? t->start_ns : first;
		last = t->end_ns > last ? t->end_ns : last;
		busy += t->end_ns - t->start_ns;
		cpu += t->cpu_ns;
		delay += t->run_delay_ns;
		voluntary += t->voluntary;
		involuntary += t->involuntary;
	}
	printf("{\"threads\": %u, \"pages\": %" PRIu64 ", \"wall_ns\": %" PRIu64 ", \"cpu_ns\": %" PRIu64
	       ", \"run_delay_ns\": %" PRIu64 ", \"blocked_ns\": %" PRIu64 ", \"voluntary_switches\": %" PRIu64
	       ", \"involuntary_switches\": %" PRIu64,
	       task->threads, (uint64_t)task->threads * task->rounds * (task->size / SMALL_PAGE), last - first,
	       cpu, delay, minus(busy, cpu + delay), voluntary, involuntary);
	for (const unsigned int *part = (const unsigned int[]){ 10, 25, 50, 75, 90, 0 }; *part; part++)
		printf(", \"touch_p%u\": %" PRIu64, *part, touch_quantile(task->threads, *part));
	puts("}");
}

/* Threads of this process, or with @processes processes of one thread each. */
void threads_run(const struct task *task, bool processes)
{
	pthread_barrierattr_t attributes;

	if (task->threads > MOST_THREADS) {
		fprintf(stderr, "bench-alloc: --threads %u: at most %u\n", task->threads, MOST_THREADS);
		exit(2);
	}
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		die("shared memory");
	if (pthread_barrierattr_init(&attributes) ||
	    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED) ||
	    pthread_barrier_init(&shared->barrier, &attributes, task->threads + !processes))
		die("pthread_barrier_init");
	for (unsigned int i = 0; i < task->threads; i++) {
		shared->threads[i].task = task;
		/* So that no fault of this memory is measured. */
		memset(shared->threads[i].touches, 0, sizeof(shared->threads[i].touches));
	}
	if (processes) {
		start_processes(task);
		end_processes(task);
	} else {
		start_threads(task);
		end_threads(task);
	}
	print_sums(task);
}
