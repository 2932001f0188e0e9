// SPDX-License-Identifier: GPL-2.0
/*
 * Print the cost of a child of a small process until it has been waited for: of one that ends at
 * once, and of one that executes a program. Medians in ticks of the time stamp counter, which are
 * instructions in a guest that counts them.
 */
#include <err.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <x86intrin.h>

#define ROUNDS	100
#define SMALL	65536

static uint64_t samples[ROUNDS];

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void child(char *program)
{
	pid_t pid = program ? vfork() : fork();
	int status;

	if (pid < 0)
		err(1, "fork");
	if (!pid) {
		if (program)
			execl(program, program, (char *)NULL);
		_exit(program != NULL);
	}
	if (waitpid(pid, &status, 0) != pid || status)
		errx(1, "a child ended with %#x", status);
}

static unsigned long long median(char *program)
{
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t start = __rdtsc();

		child(program);
		samples[i] = __rdtsc() - start;
	}
	qsort(samples, ROUNDS, sizeof(*samples), compare);
	return samples[ROUNDS / 2];
}

int main(int argc, char **argv)
{
	char *small = malloc(SMALL);
	unsigned long long forked, executed;

	if (argc != 2 || !small)
		errx(1, "usage: fork_cost PROGRAM");
	memset(small, 1, SMALL);
	forked = median(NULL);
	executed = median(argv[1]);
	printf("%llu %llu\n", forked, executed);
	free(small);
	return 0;
}
