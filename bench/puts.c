// SPDX-License-Identifier: GPL-2.0
/*
 * puts: what OpenSHMEM's put costs, in instructions, beside a copy by the kernel.
 *
 * PE 0 puts 8 bytes to 1 MB into the memory of PE 1, which sleeps meanwhile, by
 * shmem_putmem and by process_vm_writev(2). Prints a line of JSON for each. A figure is the
 * mean of the second round: the first one finds caches empty. Time is the time stamp
 * counter, which counts instructions in a guest as README.md says.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
#include <x86intrin.h>

#include <shmem.h>

#define LARGEST	(1UL << 20)
#define COPIED	(8 * LARGEST)
#define ROUNDS	1000UL

static long pid, done;
static char *there;

static void by_shmem(char *to, const char *from, size_t bytes)
{
	shmem_putmem(to, from, bytes, 1);
}

static void by_kernel(char *to, const char *from, size_t bytes)
{
	struct iovec local = { (char *)from, bytes }, remote = { there, bytes };

	(void)to;
	if (process_vm_writev(pid, &local, 1, &remote, 1, 0) != (ssize_t)bytes) {
		fprintf(stderr, "puts: process_vm_writev: %s\n", strerror(errno));
		shmem_global_exit(1);
	}
}

static void measure(const char *way, void (*put)(char *, const char *, size_t), char *to, char *from, size_t bytes)
{
	unsigned long nr = COPIED / bytes < ROUNDS ? COPIED / bytes : ROUNDS;
	unsigned int aux;
	uint64_t cost = 0;

	memset(from, ++*from, bytes);
	for (int round = 0; round < 2; round++) {
		uint64_t start = __rdtscp(&aux);

		for (unsigned long i = 0; i < nr; i++)
			put(to, from, bytes);
		cost = __rdtscp(&aux) - start;
	}
	/* It has arrived, up to its last byte. */
	if (shmem_char_g(to, 1) != *from || shmem_char_g(to + bytes - 1, 1) != *from) {
		fprintf(stderr, "puts: %zu bytes by %s have not arrived\n", bytes, way);
		shmem_global_exit(1);
	}
	printf("{\"way\": \"%s\", \"bytes\": %zu, \"instructions\": %.1f}\n", way, bytes, (double)cost / nr);
}

int main(void)
{
	char *heap, *from;

	shmem_init();
	if (shmem_n_pes() != 2) {
		fprintf(stderr, "puts: there are %d PEs, not 2\n", shmem_n_pes());
		shmem_global_exit(2);
	}
	heap = shmem_malloc(LARGEST);
	from = malloc(LARGEST);
	if (!heap || !from) {
		fprintf(stderr, "puts: no memory\n");
		shmem_global_exit(1);
	}
	memset(heap, 0, LARGEST);
	memset(from, 0, LARGEST);
	pid = getpid();
	there = heap;
	shmem_barrier_all();
	if (shmem_my_pe() == 0) {
		long addr;

		pid = shmem_long_g(&pid, 1);
		shmem_getmem(&addr, &there, sizeof(addr), 1);
		there = (char *)addr;
		for (size_t bytes = 8; bytes <= LARGEST; bytes *= bytes < 64 << 10 ? 8 : 4) {
			measure("shmem", by_shmem, heap, from, bytes);
			measure("kernel", by_kernel, heap, from, bytes);
		}
		shmem_long_p(&done, 1, 1);
	} else {
		/* It takes no instruction from what is measured. */
		while (!shmem_long_test(&done, SHMEM_CMP_EQ, 1))
			usleep(100000);
	}
	shmem_barrier_all();
	shmem_free(heap);
	shmem_finalize();
	return 0;
}
