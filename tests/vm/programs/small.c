// SPDX-License-Identifier: GPL-2.0
/*
 * A program with threads that do nothing.
 *
 *   small THREADS
 *
 * Prints "ready" and waits to be killed.
 */
#include <err.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void *idle(void *arg)
{
	pause();
	return arg;
}

int main(int argc, char **argv)
{
	int threads = argc == 2 ? atoi(argv[1]) : 0;
	pthread_t thread;

	while (threads-- > 0)
		if (pthread_create(&thread, NULL, idle, NULL))
			errx(1, "pthread_create");
	puts("ready");
	fflush(stdout);
	pause();
	return 0;
}
