// SPDX-License-Identifier: GPL-2.0
/*
 * The cost of fork, and of its after-effects, for a process with many blocks.
 *
 *   forks costs BLOCKS RELATIVES    nanoseconds of vfork, and of fork, _exit and wait: alone; with a
 *                                   thread; with a page that a pipe has pinned, without and with the
 *                                   thread; with RELATIVES children that live on. Then the page
 *                                   faults of writing to each block after the last fork but one
 *   forks flushes BLOCKS THREADS    TLB shoot-downs that other CPUs receive while memory is discarded,
 *                                   and while a page of each block is that a living child has unmapped
 */
#include <err.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BLOCK (2UL << 20)
#define TRIES 6
#define THREADS_MOST 16

static volatile char *memory;
static long blocks;
static volatile int stop, reading;

static long now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000L + ts.tv_nsec;
}

static long faults(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_minflt;
}

static void write_blocks(long nr)
{
	for (long i = 0; i < nr; i++)
		memory[i * BLOCK]++;
}

static void end(pid_t pid)
{
	int status;

	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		errx(1, "a child ended badly");
}

static long cost_vfork(void)
{
	long before = now();
	pid_t pid = vfork();

	if (!pid)
		_exit(0);
	end(pid);
	return now() - before;
}

static long cost_fork(void)
{
	long before = now();
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	end(pid);
	return now() - before;
}

/* The least of some, each after @nr blocks were written to. */
static long least(long (*cost)(void), long nr)
{
	long min = 0;

	for (int i = 0; i < TRIES; i++) {
		long this;

		write_blocks(nr);
		this = cost();
		if (!min || this < min)
			min = this;
	}
	return min;
}

static void *idle(void *unused)
{
	while (!stop)
		pause();
	return unused;
}

static void no_action(int sig)
{
	(void)sig;
}

static void costs(int relatives)
{
	struct iovec page = { .iov_base = (char *)memory + blocks / 2 * BLOCK, .iov_len = 4096 };
	pid_t pids[relatives];
	pthread_t thread;
	long before;
	int pipes[2];

	printf("vfork %ld\n", least(cost_vfork, blocks));
	printf("alone %ld\n", least(cost_fork, blocks));
	signal(SIGUSR1, no_action);
	if (pthread_create(&thread, NULL, idle, NULL))
		errx(1, "pthread_create");
	printf("thread %ld\n", least(cost_fork, blocks));
	if (pipe(pipes) || vmsplice(pipes[1], &page, 1, 0) != 4096)
		err(1, "vmsplice");
	printf("pinned+thread %ld\n", least(cost_fork, blocks));
	stop = 1;
	while (pthread_kill(thread, SIGUSR1) == 0 && pthread_tryjoin_np(thread, NULL))
		usleep(1000);
	printf("pinned %ld\n", least(cost_fork, blocks));
	/* The stack takes its faults first: where it is in its pages is random. */
	write_blocks(0);
	faults();
	before = faults();
	write_blocks(blocks);
	printf("faults %ld\n", faults() - before);
	close(pipes[0]);
	close(pipes[1]);
	for (int i = 0; i < relatives; i++) {
		pids[i] = fork();
		if (!pids[i])
			pause();
	}
	/* What the parent writes to in between it shares with each child alone. */
	printf("relatives %ld\n", least(cost_fork, 1));
	for (int i = 0; i < relatives; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
}

/* Shoot-downs that all CPUs have received. */
static long shootdowns(void)
{
	FILE *file = fopen("/proc/interrupts", "r");
	char line[4096], *at;
	long sum = 0;

	while (file && fgets(line, sizeof(line), file)) {
		if (!(at = strstr(line, "TLB:")))
			continue;
		for (at += 4;; sum += strtol(at, &at, 10)) {
			at += strspn(at, " ");
			if (*at < '0' || *at > '9')
				break;
		}
	}
	if (!file || fclose(file))
		err(1, "/proc/interrupts");
	return sum;
}

/* A thread that waits for a fault runs on no CPU, which then is not interrupted. */
static void *spin(void *unused)
{
	unsigned long sum = 0;

	while (!stop)
		for (long i = 0; i < blocks && !stop && reading; i++)
			sum += memory[i * BLOCK + 64];
	return sum == 1 ? NULL : unused;
}

static void flushes(int nr)
{
	pthread_t threads[THREADS_MOST];
	int ready[2], done[2];
	long before, faulted;
	char byte = 0;
	pid_t pid;

	if (pipe(ready) || pipe(done))
		err(1, "pipe");
	for (int i = 0; i < nr; i++)
		if (pthread_create(&threads[i], NULL, spin, NULL))
			errx(1, "pthread_create");
	usleep(200000);
	before = shootdowns();
	if (madvise((void *)memory, blocks * BLOCK, MADV_DONTNEED))
		err(1, "madvise");
	printf("discarded %ld\n", shootdowns() - before);
	for (size_t i = 0; i < blocks * BLOCK; i += 4096)
		if (memory[i])
			errx(1, "what was discarded is there");
	pid = fork();
	if (!pid) {
		if (munmap((void *)memory, blocks * BLOCK) || write(ready[1], &byte, 1) != 1 || read(done[0], &byte, 1) != 1)
			_exit(1);
		_exit(0);
	}
	if (read(ready[0], &byte, 1) != 1)
		err(1, "read");
	reading = 1;
	usleep(200000);
	before = shootdowns();
	faulted = faults();
	for (long i = 0; i < blocks; i++)
		if (madvise((void *)(memory + i * BLOCK), 4096, MADV_DONTNEED))
			err(1, "madvise");
	write_blocks(blocks);
	printf("own %ld faults %ld\n", shootdowns() - before, faults() - faulted);
	if (write(done[1], &byte, 1) != 1)
		err(1, "write");
	end(pid);
	stop = 1;
	for (int i = 0; i < nr; i++)
		pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
	long arg = argc == 4 ? atol(argv[3]) : 0;

	if (argc != 4 || arg < 0 || (blocks = atol(argv[2])) < 1)
		errx(2, "usage: forks costs|flushes BLOCKS RELATIVES|THREADS");
	memory = mmap(NULL, blocks * BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		err(1, "mmap");
	write_blocks(blocks);
	if (!strcmp(argv[1], "costs"))
		costs(arg);
	else
		flushes(arg < THREADS_MOST ? arg : THREADS_MOST);
	return 0;
}
