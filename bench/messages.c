// SPDX-License-Identifier: GPL-2.0
/*
 * What a message between two ranks of MPI costs: messages ROUNDS BYTES...
 *
 * In a guest that counts instructions and has one CPU, that is what both ranks, and the kernel for them, have
 * executed: half of a message there and one back, each checked at its ends. Prints a line for each
 * size, in thousands.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <x86intrin.h>

/* What is set up when a buffer is first used is not counted. */
#define UNCOUNTED 2

static int rank;

static void die(const char *what)
{
	fprintf(stderr, "messages: %s\n", what);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static void there_and_back(char *from, char *to, int bytes, char mark)
{
	if (rank == 0) {
		from[0] = from[bytes - 1] = mark;
		MPI_Send(from, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
		MPI_Recv(to, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		if (to[0] != (char)(mark + 1) || to[bytes - 1] != (char)(mark + 1))
			die("another message came back");
	} else {
		MPI_Recv(to, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		if (to[0] != mark || to[bytes - 1] != mark)
			die("another message came");
		from[0] = from[bytes - 1] = (char)(mark + 1);
		MPI_Send(from, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
	}
}

static void measure(char *from, char *to, int bytes, int rounds)
{
	uint64_t begin = 0;

	for (int round = -UNCOUNTED; round < rounds; round++) {
		if (round == 0)
			begin = __rdtsc();
		there_and_back(from, to, bytes, (char)(3 * round));
	}
	if (rank == 0)
		printf("%d %.1f\n", bytes, (double)(__rdtsc() - begin) / rounds / 2 / 1000);
}

static char *filled(size_t bytes)
{
	char *buffer = malloc(bytes);

	if (!buffer)
		die("no memory");
	memset(buffer, 0, bytes);
	return buffer;
}

int main(int argc, char **argv)
{
	size_t largest = 0;
	char *from, *to;
	int ranks;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (argc < 3 || ranks != 2)
		die("two ranks: messages ROUNDS BYTES...");
	for (int i = 2; i < argc; i++)
		if (strtoull(argv[i], NULL, 0) > largest)
			largest = strtoull(argv[i], NULL, 0);
	from = filled(largest);
	to = filled(largest);
	for (int i = 2; i < argc; i++)
		measure(from, to, (int)strtoull(argv[i], NULL, 0), atoi(argv[1]));
	free(from);
	free(to);
	MPI_Finalize();
	return 0;
}
