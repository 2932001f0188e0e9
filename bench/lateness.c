// SPDX-License-Identifier: GPL-2.0
/*
 * lateness COMMAND...: runs COMMAND, and prints how late the timer of a thread of the
 * highest real-time priority was at most meanwhile, in microseconds: on a kernel that
 * is preemptible (preempt=full) the longest time for which interrupts or preemption
 * were off.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PERIOD_NS 50000
#define SECOND_NS 1000000000LL

static atomic_bool done;
static long long worst;

static long long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * SECOND_NS + t.tv_nsec;
}

static void *watch(void *arg)
{
	long long next = now();

	(void)arg;
	while (!done) {
		struct timespec t;
		long long late;

		next += PERIOD_NS;
		t = (struct timespec){ next / SECOND_NS, next % SECOND_NS };
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
		late = now() - next;
		if (late > worst)
			worst = late;
		/* What was missed was one time. */
		if (late > 0)
			next += late;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	struct sched_param first = { .sched_priority = 99 };
	pthread_attr_t attr;
	pthread_t thread;
	int status, ret;
	pid_t pid;

	if (argc < 2) {
		fprintf(stderr, "usage: lateness COMMAND...\n");
		return 2;
	}
	mlockall(MCL_CURRENT | MCL_FUTURE);
	pthread_attr_init(&attr);
	pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED);
	pthread_attr_setschedpolicy(&attr, SCHED_FIFO);
	pthread_attr_setschedparam(&attr, &first);
	pid = fork();
	if (!pid) {
		execvp(argv[1], argv + 1);
		perror(argv[1]);
		_exit(127);
	}
	ret = pthread_create(&thread, &attr, watch, NULL);
	if (pid < 0 || ret) {
		fprintf(stderr, "lateness: %s\n", strerror(ret));
		return 1;
	}
	waitpid(pid, &status, 0);
	done = 1;
	pthread_join(thread, NULL);
	printf("%lld.%03lld\n", worst / 1000, worst % 1000);
	return WIFEXITED(status) && !WEXITSTATUS(status) ? 0 : 1;
}
