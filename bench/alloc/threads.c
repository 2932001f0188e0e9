// SPDX-License-Identifier: GPL-2.0
/* Threads of one process that map, touch and unmap at the same time. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "worker.h"

#define MOST_THREADS	1024

struct thread {
	pthread_t id;
	const struct task *task;
	void *place;
	uint64_t start_ns, end_ns;
	uint64_t cpu_ns;	/* on a CPU; spinning on a lock is part of it */
	uint64_t run_delay_ns;	/* ready to run, but no CPU was free */
	uint64_t voluntary;	/* switches: it slept, here on a lock of the kernel */
	uint64_t involuntary;
};

static pthread_barrier_t barrier;

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

static void *run(void *arg)
{
	struct thread *t = arg;
	size_t size = t->task->size;
	uint64_t cpu, delay;
	struct rusage before, after;

	pthread_barrier_wait(&barrier);
	read_usage(&cpu, &delay, &before);
	t->start_ns = now_ns();
	for (unsigned int i = 0; i < t->task->rounds; i++) {
		volatile char *p = region_map(t->task->method, size, t->place);

		for (size_t at = 0; at < size; at += SMALL_PAGE)
			p[at] = 1;
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
	pthread_barrier_wait(&barrier);
	return NULL;
}

void threads_run(const struct task *task)
{
	static struct thread threads[MOST_THREADS];
	uint64_t first = UINT64_MAX, last = 0, cpu = 0, delay = 0, busy = 0;
	uint64_t voluntary = 0, involuntary = 0;
	size_t span = task->size + LARGE_PAGE;
	char *places;

	if (task->threads > MOST_THREADS) {
		fprintf(stderr, "bench-alloc: --threads %u: at most %u\n", task->threads, MOST_THREADS);
		exit(2);
	}
	if (pthread_barrier_init(&barrier, NULL, task->threads + 1))
		die("pthread_barrier_init");
	for (unsigned int i = 0; i < task->threads; i++) {
		threads[i].task = task;
		if (pthread_create(&threads[i].id, NULL, run, &threads[i]))
			die("pthread_create");
	}
	/* A place for each, now that their stacks have theirs. */
	places = region_place(task->method, span * task->threads);
	for (unsigned int i = 0; places && i < task->threads; i++)
		threads[i].place = places + i * (span & ~(LARGE_PAGE - 1));
	/* Start, and end. */
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	for (unsigned int i = 0; i < task->threads; i++) {
		struct thread *t = &threads[i];

		if (pthread_join(t->id, NULL))
			die("pthread_join");
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
	       ", \"involuntary_switches\": %" PRIu64 "}\n",
	       task->threads, (uint64_t)task->threads * task->rounds * (task->size / SMALL_PAGE), last - first,
	       cpu, delay, minus(busy, cpu + delay), voluntary, involuntary);
}
