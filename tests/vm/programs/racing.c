// SPDX-License-Identifier: GPL-2.0
/*
 * One thread reads memory while another removes it and brings it back, a number of times, and in
 * each possible way. A native SIGSEGV is one here, too; the page is read again.
 */
#include <err.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define BYTES	(4UL << 20)
#define PAGE	4096UL

static char *memory;
static volatile bool begun, done;
static sigjmp_buf again;
static unsigned long nr_signals;

static void handler(int sig)
{
	(void)sig;
	nr_signals++;
	siglongjmp(again, 1);
}

static void *reader(void *unused)
{
	(void)unused;
	sigsetjmp(again, 1);
	begun = true;
	while (!done)
		for (size_t at = 0; at < BYTES && !done; at += PAGE)
			(void)*(volatile char *)(memory + at);
	return NULL;
}

int main(int argc, char **argv)
{
	long rounds = argc > 1 ? atol(argv[1]) : 100;
	struct sigaction action = { .sa_handler = handler };
	pthread_t thread;

	sigaction(SIGSEGV, &action, NULL);
	memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		err(1, "mmap");
	if (pthread_create(&thread, NULL, reader, NULL))
		errx(1, "pthread_create");
	while (!begun)
		;
	for (long i = 0; i < rounds; i++) {
		size_t at = (size_t)(i % 7) * 64 * PAGE, len = 64 * PAGE << i % 4;

		if (mprotect(memory + at, len, PROT_NONE) ||
		    mprotect(memory + at, len, PROT_READ | PROT_WRITE) ||
		    madvise(memory + at, len, MADV_DONTNEED) ||
		    mmap(memory + at, len, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
			err(1, "round %ld", i);
	}
	done = true;
	pthread_join(thread, NULL);
	printf("%lu signals\n", nr_signals);
	return 0;
}
