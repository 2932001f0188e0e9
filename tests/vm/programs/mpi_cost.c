// SPDX-License-Identifier: GPL-2.0
/*
 * The cost of MPI's collectives: mpi_cost ROUNDS BYTES...
 *
 * In a guest that counts instructions and has one CPU the time between two barriers is what all ranks, and the
 * kernel for them, have executed. Prints a line for each collective and size, in thousands a call.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <x86intrin.h>

#define RANKS_MAX	64

static int rank, ranks;
static char *from, *to;

static void barrier(int bytes)
{
	(void)bytes;
	MPI_Barrier(MPI_COMM_WORLD);
}

static void bcast(int bytes)
{
	MPI_Bcast(from, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
}

static void reduce(int bytes)
{
	MPI_Reduce(from, to, bytes / 8, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
}

static void allreduce(int bytes)
{
	MPI_Allreduce(from, to, bytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static void allgather(int bytes)
{
	MPI_Allgather(from, bytes, MPI_BYTE, to, bytes, MPI_BYTE, MPI_COMM_WORLD);
}

static void gather(int bytes)
{
	MPI_Gather(from, bytes, MPI_BYTE, to, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
}

static void alltoall(int bytes)
{
	MPI_Alltoall(from, bytes, MPI_BYTE, to, bytes, MPI_BYTE, MPI_COMM_WORLD);
}

static void alltoallv(int bytes)
{
	static int counts[RANKS_MAX], displs[RANKS_MAX];

	for (int i = 0; i < ranks; i++) {
		counts[i] = bytes;
		displs[i] = i * bytes;
	}
	MPI_Alltoallv(from, counts, displs, MPI_BYTE, to, counts, displs, MPI_BYTE, MPI_COMM_WORLD);
}

static const struct {
	const char *name;
	void (*run)(int bytes);
} collectives[] = {
	{ "barrier", barrier }, { "bcast", bcast }, { "reduce", reduce }, { "allreduce", allreduce },
	{ "allgather", allgather }, { "gather", gather }, { "alltoall", alltoall }, { "alltoallv", alltoallv },
};

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 4;
	size_t largest = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	for (int i = 2; i < argc; i++)
		largest = strtoull(argv[i], NULL, 0) > largest ? strtoull(argv[i], NULL, 0) : largest;
	from = malloc(largest * (size_t)ranks + 64);
	to = malloc(largest * (size_t)ranks + 64);
	memset(from, 0, largest * (size_t)ranks + 64);
	memset(to, 0, largest * (size_t)ranks + 64);
	for (size_t c = 0; c < sizeof(collectives) / sizeof(collectives[0]); c++) {
		for (int i = 2; i < argc; i++) {
			int bytes = (int)strtoull(argv[i], NULL, 0);
			uint64_t begin;

			if (c == 0 && i > 2)
				break;
			/* What is set up at the first use is not counted. */
			collectives[c].run(bytes);
			MPI_Barrier(MPI_COMM_WORLD);
			begin = __rdtsc();
			for (int round = 0; round < rounds; round++)
				collectives[c].run(bytes);
			MPI_Barrier(MPI_COMM_WORLD);
			if (rank == 0)
				printf("%s %d %.1f\n", collectives[c].name, c ? bytes : 0,
				       (double)(__rdtsc() - begin) / rounds / 1000);
		}
	}
	MPI_Finalize();
	return 0;
}
