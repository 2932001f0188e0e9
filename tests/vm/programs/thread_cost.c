// SPDX-License-Identifier: GPL-2.0
/*
 * thread_cost THREADS KB: what mmap, a touch of each 2 MB and munmap cost
 * together while so many threads do it, in ticks of the time stamp counter,
 * which are instructions in a guest that counts them; then the same for a
 * change of protection of one page and back. Large pages where Linux has them.
 */
#include <err.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <x86intrin.h>

#define ROUNDS	100
#define MOST	16

static pthread_barrier_t line;
static size_t len;

static void map_once(void)
{
	char *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		err(1, "mmap");
	for (size_t off = 0; off < len; off += 2UL << 20)
		((volatile char *)p)[off] = 1;
	if (munmap(p, len))
		err(1, "munmap");
}

static void *worker(void *arg)
{
	char *p = mmap(NULL, 4UL << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)arg;
	if (p == MAP_FAILED)
		err(1, "mmap");
	for (size_t off = 0; off < 4UL << 20; off += 4096)
		((volatile char *)p)[off] = 1;
	map_once();
	pthread_barrier_wait(&line);
	for (int n = 0; n < ROUNDS; n++)
		map_once();
	pthread_barrier_wait(&line);
	for (int n = 0; n < ROUNDS; n++)
		if (mprotect(p + (2UL << 20), 4096, PROT_READ) ||
		    mprotect(p + (2UL << 20), 4096, PROT_READ | PROT_WRITE))
			err(1, "mprotect");
	pthread_barrier_wait(&line);
	return NULL;
}

int main(int argc, char **argv)
{
	int threads = argc == 3 ? atoi(argv[1]) : 0;
	pthread_t thread[MOST];
	uint64_t t[3];

	if (threads < 1 || threads > MOST)
		errx(2, "usage: thread_cost THREADS KB");
	len = (size_t)atoi(argv[2]) << 10;
	pthread_barrier_init(&line, NULL, (unsigned int)threads + 1);
	for (int i = 0; i < threads; i++)
		if (pthread_create(&thread[i], NULL, worker, NULL))
			errx(1, "pthread_create");
	for (int i = 0; i < 3; i++) {
		pthread_barrier_wait(&line);
		t[i] = __rdtsc();
	}
	for (int i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	printf("%lu %lu\n", (t[1] - t[0]) / (ROUNDS * (unsigned long)threads),
	       (t[2] - t[1]) / (2 * ROUNDS * (unsigned long)threads));
	return 0;
}
