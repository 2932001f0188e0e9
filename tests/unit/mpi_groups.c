// SPDX-License-Identifier: GPL-2.0
/*
 * What libhpmmap_mpi does to communicators beside collectives: mpi_groups CASE.
 *
 * Each case prints nothing but what is wrong, and rank 0 a last line.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ELEMENTS	2048

static int rank, failures;
static int from[ELEMENTS], to[ELEMENTS];

static void check(int is_well, const char *what, long value)
{
	if (!is_well && failures++ < 20)
		printf("rank %d: %s: %ld\n", rank, what, value);
}

/* Variables, and memory of malloc(), from the root. */
static void pools(void)
{
	int *memory = calloc(ELEMENTS, sizeof(*memory));

	from[5] = memory[5] = rank == 0 ? 9 : 0;
	MPI_Bcast(from, ELEMENTS, MPI_INT, 0, MPI_COMM_WORLD);
	MPI_Bcast(memory, ELEMENTS, MPI_INT, 0, MPI_COMM_WORLD);
	check(from[5] == 9, "a variable", from[5]);
	check(memory[5] == 9, "memory", memory[5]);
	free(memory);
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";
	int total;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (!strcmp(name, "pools"))
		pools();
	else
		check(0, "there is no such case", 0);
	PMPI_Allreduce(&failures, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		printf("%d failures\n", total);
	MPI_Finalize();
	return total != 0;
}
