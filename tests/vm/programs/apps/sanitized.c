// SPDX-License-Identifier: GPL-2.0
/*
 * What sanitizers look at: work without a mistake, or one mistake. The
 * sanitizers reserve terabytes for their shadow memory, wherever they want it.
 *
 *   sanitized work|overflow|freed|leak|race
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MB(n) ((size_t)(n) << 20)
#define THREADS 4

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static uint64_t sum(const unsigned char *p, size_t len)
{
	uint64_t hash = 14695981039346656037UL;

	for (size_t i = 0; i < len; i += 64)
		hash = (hash ^ p[i]) * 1099511628211UL;
	return hash;
}

/* Pieces that grow, so that realloc() moves them. */
static void *work_thread(void *arg)
{
	unsigned char *p = NULL;
	size_t len;

	for (len = 4096; len <= MB(4); len *= 2) {
		p = realloc(p, len);
		if (!p)
			die("realloc");
		memset(p + len / 2, (int)(uintptr_t)arg, len / 2);
		if (len == 4096)
			memset(p, 1, len / 2);
	}
	*(uint64_t *)p = sum(p, MB(4));
	return p;
}

static void work(void)
{
	pthread_t thread[THREADS];
	unsigned char *p;
	uint64_t all = 0;
	int status;

	for (uintptr_t i = 0; i < THREADS; i++)
		if (pthread_create(&thread[i], NULL, work_thread, (void *)i))
			die("pthread_create");
	for (int i = 0; i < THREADS; i++) {
		void *result;

		pthread_join(thread[i], &result);
		all = all * 31 + *(uint64_t *)result;
		free(result);
	}
	printf("threads %016lx\n", all);

	p = mmap(NULL, MB(8), PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		die("mmap");
	memset(p, 3, MB(8));
	if (mprotect(p + MB(3), 4096, PROT_READ) ||
	    madvise(p + MB(5), 8192, MADV_DONTNEED) ||
	    munmap(p + MB(7), MB(1)))
		die("mprotect, madvise or munmap");
	printf("mapping %016lx\n", sum(p, MB(7)));
	fflush(stdout);
	if (fork() == 0) {
		p[0] = 7;
		printf("child %016lx\n", sum(p, MB(7)));
		fflush(stdout);
		_exit(0);
	}
	wait(&status);
	printf("parent %016lx, child's status %d\n", sum(p, MB(7)), status);
}

static void overflow(volatile char *p)
{
	p[100] = 1;
}

static __attribute__((noinline)) void leak(void)
{
	void *volatile p = malloc(MB(5));

	p = NULL;
	(void)p;
}

/* What is left of it on the stack would be a reference to the leak checker. */
static __attribute__((noinline)) void scrub(void)
{
	volatile char room[16 << 10];

	memset((void *)room, 0, sizeof(room));
}

static long raced;
static atomic_int turn;

/*
 * In this order, which the sanitizer cannot know. Without sleep: a report would
 * say whether there was one.
 */
static void *race(void *arg)
{
	while (atomic_load_explicit(&turn, memory_order_relaxed) == 0)
		sched_yield();
	raced++;
	return arg;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	pthread_t thread;
	char *p;

	if (!strcmp(what, "work")) {
		work();
	} else if (!strcmp(what, "overflow")) {
		p = malloc(100);
		overflow(p);
		free(p);
	} else if (!strcmp(what, "freed")) {
		p = malloc(MB(3));
		memset(p, 1, MB(3));
		free(p);
		overflow(p + MB(2));
	} else if (!strcmp(what, "leak")) {
		leak();
		scrub();
	} else if (!strcmp(what, "race")) {
		if (pthread_create(&thread, NULL, race, NULL))
			die("pthread_create");
		raced++;
		atomic_store_explicit(&turn, 1, memory_order_relaxed);
		pthread_join(thread, NULL);
		printf("raced %ld\n", raced);
	} else {
		fprintf(stderr, "usage: sanitized work|overflow|freed|leak|race\n");
		return 2;
	}
	return 0;
}
