// SPDX-License-Identifier: GPL-2.0
/*
 * MPI between ranks of a node: point to point with buffers of all kinds and sizes, and collectives, each
 * checked against what must come out. mpi_windows [LARGEST BYTES [LARGEST OF A COLLECTIVE]], 1 MB at least.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BSS_BYTES	(1 << 20)
#define RODATA_BYTES	(256 << 10)
#define STACK_BYTES	(128 << 10)

static int rank, ranks, failures;
static size_t largest = 16 << 20, most_together = 1 << 18;
static unsigned char bss[BSS_BYTES];
static const unsigned char rodata[RODATA_BYTES] = { 1, 2, 3 };

static void wrong(const char *what, size_t size)
{
	if (failures++ < 20)
		printf("rank %d of %d: %s of %zu is wrong\n", rank, ranks, what, size);
}

static unsigned char byte_of(size_t i, int seed)
{
	return (unsigned char)(i * 7 + i / 4096 + (size_t)seed * 31);
}

static void fill(void *buffer, size_t bytes, int seed)
{
	for (size_t i = 0; i < bytes; i++)
		((unsigned char *)buffer)[i] = byte_of(i, seed);
}

static int is_filled(const void *buffer, size_t bytes, int seed)
{
	for (size_t i = 0; i < bytes; i++)
		if (((const unsigned char *)buffer)[i] != byte_of(i, seed))
			return 0;
	return 1;
}

/* ---- Point to point ---------------------------------------------------- */

/* Everybody to the next one. */
static void pass_on(const void *from, void *to, size_t bytes)
{
	MPI_Sendrecv(from, (int)bytes, MPI_BYTE, (rank + 1) % ranks, 0, to, (int)bytes, MPI_BYTE,
		     (rank + ranks - 1) % ranks, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void point_to_point(void)
{
	unsigned char *from = malloc(largest + 64), *to = malloc(largest + 64), stack[STACK_BYTES];
	int before = (rank + ranks - 1) % ranks;

	for (int round = 0; round < 3; round++) {
		for (size_t bytes = 1; bytes <= largest; bytes *= 4) {
			size_t shift = round * 13;

			fill(from + shift, bytes, rank + round);
			memset(to, 0, bytes);
			pass_on(from + shift, to, bytes);
			if (!is_filled(to, bytes, before + round))
				wrong("a message", bytes);
		}
	}
	/* Buffers that come and go between messages, at the same addresses and others. */
	for (int round = 0; round < 6; round++) {
		size_t bytes = largest / 2 >> (round & 1);
		unsigned char *temporary = malloc(bytes);

		fill(temporary, bytes, rank + round);
		pass_on(temporary, to, bytes);
		if (!is_filled(to, bytes, before + round))
			wrong("a message from a buffer that is freed", bytes);
		free(temporary);
		temporary = malloc(bytes);
		pass_on(to, temporary, bytes);
		if (!is_filled(temporary, bytes, (before + ranks - 1) % ranks + round))
			wrong("a message into a new buffer", bytes);
		free(temporary);
	}
	fill(bss, sizeof(bss), rank);
	pass_on(bss, to, sizeof(bss));
	if (!is_filled(to, sizeof(bss), before))
		wrong("a message from bss", sizeof(bss));
	pass_on(to, bss, sizeof(bss));
	if (!is_filled(bss, sizeof(bss), (before + ranks - 1) % ranks))
		wrong("a message into bss", sizeof(bss));
	memset(to, 0, sizeof(rodata));
	pass_on(rodata, to, sizeof(rodata));
	if (memcmp(rodata, to, sizeof(rodata)) != 0)
		wrong("a message from rodata", sizeof(rodata));
	fill(stack, sizeof(stack), rank);
	pass_on(stack, to, sizeof(stack));
	if (!is_filled(to, sizeof(stack), before))
		wrong("a message from the stack", sizeof(stack));
	pass_on(to, stack, sizeof(stack));
	if (!is_filled(stack, sizeof(stack), (before + ranks - 1) % ranks))
		wrong("a message into the stack", sizeof(stack));
	free(from);
	free(to);
}

/* Every other int of a matrix, sent as it is and received contiguous. */
static void derived_types(void)
{
	const int n = 1 << 16;
	int *from = malloc(2 * n * sizeof(int)), *to = calloc(n, sizeof(int));
	int before = (rank + ranks - 1) % ranks;
	MPI_Datatype every_other;

	MPI_Type_vector(n, 1, 2, MPI_INT, &every_other);
	MPI_Type_commit(&every_other);
	for (int i = 0; i < 2 * n; i++)
		from[i] = i + rank;
	MPI_Sendrecv(from, 1, every_other, (rank + 1) % ranks, 1, to, n, MPI_INT, before, 1, MPI_COMM_WORLD,
		     MPI_STATUS_IGNORE);
	for (int i = 0; i < n; i++)
		if (to[i] != 2 * i + before) {
			wrong("a message of a derived type", (size_t)i);
			break;
		}
	/* The root's is derived, the others' is not; and the other way round. */
	for (int round = 0; round < 2; round++) {
		int derived = (rank == 0) == (round == 0);

		for (int i = 0; i < 2 * n; i++)
			from[i] = rank == 0 ? (derived ? i / 2 : i) : -1;
		MPI_Bcast(from, derived ? 1 : n, derived ? every_other : MPI_INT, 0, MPI_COMM_WORLD);
		for (int i = 0; i < n; i++)
			if (from[derived ? 2 * i : i] != i) {
				wrong("a broadcast of a derived type", (size_t)i);
				break;
			}
	}
	MPI_Type_free(&every_other);
	free(from);
	free(to);
}

/* ---- Collectives --------------------------------------------------------- */

static void broadcasts(MPI_Comm comm, size_t bytes)
{
	unsigned char *buffer = malloc(bytes);
	int me, n;

	MPI_Comm_rank(comm, &me);
	MPI_Comm_size(comm, &n);
	for (int root = 0; root < n; root++) {
		if (me == root)
			fill(buffer, bytes, root + 5);
		else
			memset(buffer, 0, bytes);
		MPI_Bcast(buffer, (int)bytes, MPI_BYTE, root, comm);
		if (!is_filled(buffer, bytes, root + 5))
			wrong("MPI_Bcast", bytes);
		/* The root's is free again when it returns. */
		if (me == root)
			memset(buffer, 0xff, bytes);
	}
	free(buffer);
}

/* Not commutative in what it is told, so that libraries keep the order of ranks. */
static void first_minus(void *in, void *inout, int *count, MPI_Datatype *type)
{
	(void)type;
	for (int i = 0; i < *count; i++)
		((int64_t *)inout)[i] = ((int64_t *)in)[i] * 3 - ((int64_t *)inout)[i];
}

static int64_t summand(size_t i, int r)
{
	return (int64_t)(i * 2654435761u) * (r + 1) - r;
}

static int64_t expected(MPI_Op op, size_t i, int n)
{
	int64_t value = summand(i, 0);

	for (int r = 1; r < n; r++) {
		int64_t next = summand(i, r);

		if (op == MPI_SUM)
			value = (int64_t)((uint64_t)value + (uint64_t)next);
		else if (op == MPI_MAX)
			value = next > value ? next : value;
		else if (op == MPI_MIN)
			value = next < value ? next : value;
		else
			value ^= next;
	}
	return value;
}

static void check_reduced(const char *what, const int64_t *got, MPI_Op op, size_t count, int n)
{
	for (size_t i = 0; i < count; i++)
		if (got[i] != expected(op, i, n)) {
			wrong(what, count * sizeof(*got));
			return;
		}
}

static void reductions(MPI_Comm comm, size_t bytes)
{
	const MPI_Op ops[] = { MPI_SUM, MPI_MAX, MPI_MIN, MPI_BXOR };
	size_t count = bytes / sizeof(int64_t) ? bytes / sizeof(int64_t) : 1;
	int64_t *from = malloc(count * sizeof(*from)), *to = malloc(count * sizeof(*to));
	int me, n;

	MPI_Comm_rank(comm, &me);
	MPI_Comm_size(comm, &n);
	for (size_t o = 0; o < sizeof(ops) / sizeof(ops[0]); o++) {
		int root = (int)o % n;

		for (size_t i = 0; i < count; i++)
			from[i] = summand(i, me);
		memset(to, 0, count * sizeof(*to));
		MPI_Allreduce(from, to, (int)count, MPI_INT64_T, ops[o], comm);
		check_reduced("MPI_Allreduce", to, ops[o], count, n);
		memset(to, 0x55, count * sizeof(*to));
		MPI_Reduce(from, to, (int)count, MPI_INT64_T, ops[o], root, comm);
		if (me == root)
			check_reduced("MPI_Reduce", to, ops[o], count, n);
		memcpy(to, from, count * sizeof(*to));
		MPI_Allreduce(MPI_IN_PLACE, to, (int)count, MPI_INT64_T, ops[o], comm);
		check_reduced("MPI_Allreduce in place", to, ops[o], count, n);
		for (size_t i = 0; i < count; i++)
			if (from[i] != summand(i, me)) {
				wrong("what was given to a reduction", count);
				break;
			}
		memcpy(to, from, count * sizeof(*to));
		/* Of another root, or where there is one rank, MPICH 4.0.2 crashes of it. */
		if (n == 1 || root != 0)
			continue;
		MPI_Reduce(me == root ? MPI_IN_PLACE : from, me == root ? to : NULL, (int)count, MPI_INT64_T, ops[o], root, comm);
		if (me == root)
			check_reduced("MPI_Reduce in place", to, ops[o], count, n);
	}
	free(from);
	free(to);
}

static void user_operation(void)
{
	const int count = 1 << 15;
	int64_t *from = malloc(count * sizeof(*from)), *to = malloc(count * sizeof(*to));
	MPI_Op op;

	MPI_Op_create(first_minus, 0, &op);
	for (int i = 0; i < count; i++)
		from[i] = i + rank;
	MPI_Allreduce(from, to, count, MPI_INT64_T, op, MPI_COMM_WORLD);
	/* Of the last two only the order can be told: the library may put brackets where it likes. */
	if (ranks == 2)
		for (int i = 0; i < count; i++)
			if (to[i] != (int64_t)i * 3 - (i + 1)) {
				wrong("MPI_Allreduce of a user's operation", (size_t)i);
				break;
			}
	MPI_Op_free(&op);
	free(from);
	free(to);
}

static void doubles(void)
{
	const int count = 1 << 16;
	double *from = malloc(count * sizeof(*from)), *to = malloc(count * sizeof(*to));

	for (int i = 0; i < count; i++)
		from[i] = i * 0.5 + rank;
	MPI_Allreduce(from, to, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	/* Exact: all are multiples of a half. */
	for (int i = 0; i < count; i++)
		if (to[i] != ranks * (i * 0.5) + ranks * (ranks - 1) / 2) {
			wrong("MPI_Allreduce of doubles", (size_t)i);
			break;
		}
	free(from);
	free(to);
}

static void gathers(MPI_Comm comm, size_t bytes)
{
	unsigned char *from = malloc(bytes), *to;
	int me, n;

	MPI_Comm_rank(comm, &me);
	MPI_Comm_size(comm, &n);
	to = malloc(bytes * (size_t)n);
	fill(from, bytes, me);
	MPI_Allgather(from, (int)bytes, MPI_BYTE, to, (int)bytes, MPI_BYTE, comm);
	for (int r = 0; r < n; r++)
		if (!is_filled(to + bytes * (size_t)r, bytes, r))
			wrong("MPI_Allgather", bytes);
	memset(to, 0, bytes * (size_t)n);
	fill(to + bytes * (size_t)me, bytes, me + 3);
	MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, to, (int)bytes, MPI_BYTE, comm);
	for (int r = 0; r < n; r++)
		if (!is_filled(to + bytes * (size_t)r, bytes, r + 3))
			wrong("MPI_Allgather in place", bytes);
	free(from);
	free(to);
}

static void alltoalls(MPI_Comm comm, size_t bytes)
{
	int me, n, *counts, *places, *from_counts, *from_places;
	unsigned char *from, *to;
	size_t most;

	MPI_Comm_rank(comm, &me);
	MPI_Comm_size(comm, &n);
	most = bytes * (size_t)n;
	from = malloc(most);
	to = malloc(most);
	for (int r = 0; r < n; r++)
		fill(from + bytes * (size_t)r, bytes, me * n + r);
	memset(to, 0, most);
	MPI_Alltoall(from, (int)bytes, MPI_BYTE, to, (int)bytes, MPI_BYTE, comm);
	for (int r = 0; r < n; r++)
		if (!is_filled(to + bytes * (size_t)r, bytes, r * n + me))
			wrong("MPI_Alltoall", bytes);
	memcpy(to, from, most);
	MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, to, (int)bytes, MPI_BYTE, comm);
	for (int r = 0; r < n; r++)
		if (!is_filled(to + bytes * (size_t)r, bytes, r * n + me))
			wrong("MPI_Alltoall in place", bytes);
	/* Each pair another size, also 0, in reversed order. */
	counts = malloc(4 * (size_t)n * sizeof(int));
	places = counts + n;
	from_counts = places + n;
	from_places = from_counts + n;
	for (int r = 0; r < n; r++) {
		counts[r] = (int)(bytes * (size_t)((me + r) % 3) / 2);
		from_counts[r] = (int)(bytes * (size_t)((me + r) % 3) / 2);
		places[r] = (int)(bytes * (size_t)(n - 1 - r));
		from_places[r] = (int)(bytes * (size_t)(n - 1 - r));
		fill(from + places[r], (size_t)counts[r], me + 2 * r);
	}
	memset(to, 0, most);
	MPI_Alltoallv(from, counts, places, MPI_BYTE, to, from_counts, from_places, MPI_BYTE, comm);
	for (int r = 0; r < n; r++)
		if (!is_filled(to + from_places[r], (size_t)from_counts[r], r + 2 * me))
			wrong("MPI_Alltoallv", (size_t)from_counts[r]);
	free(counts);
	free(from);
	free(to);
}

static void collectives(MPI_Comm comm, size_t most)
{
	for (size_t bytes = 1; bytes <= most; bytes *= 8) {
		broadcasts(comm, bytes);
		reductions(comm, bytes);
		gathers(comm, bytes / 2 + 1);
		alltoalls(comm, bytes / 2 + 1);
	}
	for (int i = 0; i < 20; i++)
		MPI_Barrier(comm);
}

/* The same for all ranks, which MPI_Wtime() need not be. */
static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Nobody is past a barrier before all have come. */
static void barriers(void)
{
	for (int late = 0; late < ranks; late++) {
		double came, went, last, first;

		if (rank == late)
			usleep(100000);
		came = now();
		MPI_Barrier(MPI_COMM_WORLD);
		went = now();
		MPI_Allreduce(&came, &last, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
		MPI_Allreduce(&went, &first, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
		/* CPUs of a guest agree on the time within that. */
		if (first < last - 0.005)
			wrong("MPI_Barrier", (size_t)late);
	}
}

/* What was sent before must arrive while all wait in a collective. */
static void progress(void)
{
	size_t bytes = largest / 4;
	unsigned char *from = malloc(bytes), *to = calloc(1, bytes);
	int64_t ones[16384], sums[16384];
	MPI_Request request;

	for (int i = 0; i < 16384; i++)
		ones[i] = i;
	fill(from, bytes, rank);
	/* Rank 0 has posted its receive and waits in the collective until rank 1 has sent. */
	if (ranks > 1) {
		if (rank == 0)
			MPI_Irecv(to, (int)bytes, MPI_BYTE, 1, 8, MPI_COMM_WORLD, &request);
		if (rank == 1)
			MPI_Send(from, (int)bytes, MPI_BYTE, 0, 8, MPI_COMM_WORLD);
		MPI_Allreduce(ones, sums, 16384, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
		if (rank == 0) {
			MPI_Wait(&request, MPI_STATUS_IGNORE);
			if (!is_filled(to, bytes, 1))
				wrong("a message to a rank that waits in a collective", bytes);
			memset(to, 0, bytes);
		}
	}
	for (int round = 0; round < 3; round++) {
		MPI_Isend(from, (int)bytes, MPI_BYTE, (rank + 1) % ranks, 7, MPI_COMM_WORLD, &request);
		/* Odd ones receive before they come to it, the others after. */
		if (rank & 1)
			MPI_Recv(to, (int)bytes, MPI_BYTE, (rank + ranks - 1) % ranks, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		if (round == 0)
			MPI_Barrier(MPI_COMM_WORLD);
		else if (round == 1)
			MPI_Allreduce(ones, sums, 16384, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
		else
			MPI_Bcast(ones, 16384, MPI_INT64_T, 0, MPI_COMM_WORLD);
		if (!(rank & 1))
			MPI_Recv(to, (int)bytes, MPI_BYTE, (rank + ranks - 1) % ranks, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		if (!is_filled(to, bytes, (rank + ranks - 1) % ranks))
			wrong("a message beside a collective", bytes);
		memset(to, 0, bytes);
	}
	free(from);
	free(to);
}

/* A child, and then windows as before. */
static void after_a_child(void)
{
	pid_t child = fork();

	if (child == 0) {
		bss[0] = 9;
		_exit(0);
	}
	if (waitpid(child, NULL, 0) != child)
		wrong("a child", 0);
	collectives(MPI_COMM_WORLD, most_together);
}

int main(int argc, char **argv)
{
	MPI_Comm half, twin;
	int total;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (argc > 1)
		largest = strtoull(argv[1], NULL, 0);
	/* Buffers have room for what is passed on from bss. */
	if (largest < BSS_BYTES)
		largest = BSS_BYTES;
	if (argc > 2)
		most_together = strtoull(argv[2], NULL, 0);
	point_to_point();
	derived_types();
	collectives(MPI_COMM_WORLD, argc > 2 ? most_together : largest / 4);
	MPI_Comm_dup(MPI_COMM_WORLD, &twin);
	collectives(twin, most_together);
	MPI_Comm_free(&twin);
	MPI_Comm_split(MPI_COMM_WORLD, rank & 1, -rank, &half);
	collectives(half, most_together);
	MPI_Comm_free(&half);
	collectives(MPI_COMM_SELF, most_together);
	user_operation();
	doubles();
	barriers();
	progress();
	after_a_child();
	MPI_Allreduce(&failures, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		printf("%d ranks, %d failures\n", ranks, total);
	MPI_Finalize();
	return total != 0;
}
