// SPDX-License-Identifier: GPL-2.0
/*
 * What messages between ranks of MPI cost: messages ROUNDS PATTERN:BYTES[,BYTES...]...
 *
 * In a guest that counts instructions and has one CPU, that is what all ranks, and the kernel for them, have
 * executed. Prints a line for each pattern and size: thousands of instructions for a message or, of a collective,
 * for a call of all ranks. Patterns and messages are those of the Intel MPI Benchmarks 2.3 (pingpong, sendrecv, exchange
 * and the collectives), of the message rate of OSU (rate), and of a halo in two dimensions (halo). What arrives is checked at its
 * ends. The last line has the page tables (VmPTE) of all ranks in KB, beyond what they had before the first message.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <x86intrin.h>

/* What is set up when a buffer is first used is not counted. */
#define UNCOUNTED	2
/* Messages under way at once in the pattern rate. */
#define WINDOW		16
#define MOST_PEERS	4
#define TAG		1

static int rank, ranks;
static char *from, *to;

__attribute__((noreturn)) static void die(const char *what)
{
	fprintf(stderr, "messages: %s\n", what);
	MPI_Abort(MPI_COMM_WORLD, 1);
	abort();
}

/* The first and the last byte tell who sent a part of a message, and in which round. */
static char mark_of(int round, int sender)
{
	return (char)(3 * round + 7 * sender + 1);
}

static void put(char *part, int bytes, char mark)
{
	if (bytes)
		part[0] = part[bytes - 1] = mark;
}

static void check(const char *part, int bytes, char mark)
{
	if (bytes && (part[0] != mark || part[bytes - 1] != mark))
		die("another message has come");
}

static void pingpong(int bytes, int round)
{
	if (rank > 1)
		return;
	put(from, bytes, mark_of(round, rank));
	if (rank == 0)
		MPI_Send(from, bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
	MPI_Recv(to, bytes, MPI_BYTE, !rank, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	check(to, bytes, mark_of(round, !rank));
	if (rank == 1)
		MPI_Send(from, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
}

/* All ranks form a ring: each sends to the next one and receives from the one before. */
static void sendrecv(int bytes, int round)
{
	int above = (rank + 1) % ranks, below = (rank + ranks - 1) % ranks;

	put(from, bytes, mark_of(round, rank));
	MPI_Sendrecv(from, bytes, MPI_BYTE, above, TAG, to, bytes, MPI_BYTE, below, TAG, MPI_COMM_WORLD,
		     MPI_STATUS_IGNORE);
	check(to, bytes, mark_of(round, below));
}

/* To all of @peers and from them, at once. */
static void swap_with(const int *peers, int count, int bytes, int round)
{
	MPI_Request requests[2 * MOST_PEERS];

	put(from, bytes, mark_of(round, rank));
	for (int i = 0; i < count; i++)
		/* Between two ranks that meet twice messages stay in order: both ends have the same bytes. */
		MPI_Irecv(to + (size_t)i * bytes, bytes, MPI_BYTE, peers[i], TAG, MPI_COMM_WORLD, &requests[i]);
	for (int i = 0; i < count; i++)
		MPI_Isend(from, bytes, MPI_BYTE, peers[i], TAG, MPI_COMM_WORLD, &requests[count + i]);
	MPI_Waitall(2 * count, requests, MPI_STATUSES_IGNORE);
	for (int i = 0; i < count; i++)
		check(to + (size_t)i * bytes, bytes, mark_of(round, peers[i]));
}

static void exchange(int bytes, int round)
{
	const int peers[] = { (rank + ranks - 1) % ranks, (rank + 1) % ranks };

	swap_with(peers, 2, bytes, round);
}

/* The ranks form a torus of two dimensions, as square as their number allows. */
static void halo(int bytes, int round)
{
	static int sides[2];

	if (!sides[0])
		MPI_Dims_create(ranks, 2, sides);

	int row = rank / sides[1], column = rank % sides[1];
	const int peers[MOST_PEERS] = {
		(row + sides[0] - 1) % sides[0] * sides[1] + column,
		(row + 1) % sides[0] * sides[1] + column,
		row * sides[1] + (column + sides[1] - 1) % sides[1],
		row * sides[1] + (column + 1) % sides[1],
	};

	swap_with(peers, MOST_PEERS, bytes, round);
}

/* Pairs: the lower half of the ranks sends, each to one of the upper half, many messages at once. */
static void rate(int bytes, int round)
{
	MPI_Request requests[WINDOW];
	int half = ranks / 2, receives = rank >= half, peer = receives ? rank - half : rank + half;
	char last;

	put(from, bytes, mark_of(round, rank));
	for (int i = 0; i < WINDOW; i++)
		if (receives)
			MPI_Irecv(to + (size_t)i * bytes, bytes, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &requests[i]);
		else
			MPI_Isend(from, bytes, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &requests[i]);
	MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
	/* The sender does not run ahead. */
	if (receives) {
		for (int i = 0; i < WINDOW; i++)
			check(to + (size_t)i * bytes, bytes, mark_of(round, peer));
		MPI_Send(&last, 0, MPI_BYTE, peer, TAG + 1, MPI_COMM_WORLD);
	} else {
		MPI_Recv(&last, 0, MPI_BYTE, peer, TAG + 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	}
}

static void barrier(int bytes, int round)
{
	(void)bytes;
	(void)round;
	MPI_Barrier(MPI_COMM_WORLD);
}

static void bcast(int bytes, int round)
{
	if (rank == 0)
		put(to, bytes, mark_of(round, 0));
	MPI_Bcast(to, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
	check(to, bytes, mark_of(round, 0));
}

static void sums(int bytes, int round, int everywhere)
{
	int32_t *numbers = (int32_t *)from, *results = (int32_t *)to;
	int count = bytes / (int)sizeof(*numbers), last = count - 1;
	int32_t want = round * ranks + ranks * (ranks - 1) / 2;

	numbers[0] = numbers[last] = round + rank;
	if (everywhere)
		MPI_Allreduce(numbers, results, count, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD);
	else
		MPI_Reduce(numbers, results, count, MPI_INT32_T, MPI_SUM, 0, MPI_COMM_WORLD);
	if ((everywhere || rank == 0) && (results[0] != want || results[last] != want))
		die("another sum has come");
}

static void reduce(int bytes, int round)
{
	sums(bytes, round, 0);
}

static void allreduce(int bytes, int round)
{
	sums(bytes, round, 1);
}

static void alltoall(int bytes, int round)
{
	for (int i = 0; i < ranks; i++)
		put(from + (size_t)i * bytes, bytes, mark_of(round, rank));
	MPI_Alltoall(from, bytes, MPI_BYTE, to, bytes, MPI_BYTE, MPI_COMM_WORLD);
	for (int i = 0; i < ranks; i++)
		check(to + (size_t)i * bytes, bytes, mark_of(round, i));
}

/* Messages of a round: constant, for each rank, or for each pair of ranks. */
static const struct pattern {
	const char *name;
	void (*round)(int bytes, int round);
	int messages, each_rank, each_pair;
	int least_bytes;
} patterns[] = {
	{ "pingpong", pingpong, 2, 0, 0, 0 },
	{ "sendrecv", sendrecv, 0, 1, 0, 0 },
	{ "exchange", exchange, 0, 2, 0, 0 },
	{ "halo", halo, 0, MOST_PEERS, 0, 0 },
	{ "rate", rate, 0, 0, WINDOW, 0 },
	{ "barrier", barrier, 1, 0, 0, 0 },
	{ "bcast", bcast, 1, 0, 0, 0 },
	{ "reduce", reduce, 1, 0, 0, sizeof(int32_t) },
	{ "allreduce", allreduce, 1, 0, 0, sizeof(int32_t) },
	{ "alltoall", alltoall, 1, 0, 0, 0 },
};

static const struct pattern *pattern_find(const char *name)
{
	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++)
		if (!strcmp(patterns[i].name, name))
			return &patterns[i];
	return NULL;
}

static void measure(const struct pattern *pattern, int bytes, int rounds)
{
	int messages = pattern->messages + pattern->each_rank * ranks + pattern->each_pair * (ranks / 2);
	uint64_t begin = 0;

	for (int round = -UNCOUNTED; round < rounds; round++) {
		if (round == 0) {
			MPI_Barrier(MPI_COMM_WORLD);
			begin = __rdtsc();
		}
		pattern->round(bytes, round);
	}
	/* All ranks have ended. */
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		printf("%s %d %.1f\n", pattern->name, bytes, (double)(__rdtsc() - begin) / rounds / messages / 1000);
}

static long page_tables_kb(void)
{
	FILE *status = fopen("/proc/self/status", "re");
	long mine = 0, all = 0;
	char line[256];

	if (!status)
		die("/proc/self/status");
	while (fgets(line, sizeof(line), status))
		if (!strncmp(line, "VmPTE:", 6))
			mine = atol(line + 6);
	fclose(status);
	MPI_Allreduce(&mine, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	return all;
}

static char *filled(size_t bytes)
{
	char *buffer = malloc(bytes);

	if (!buffer)
		die("no memory");
	memset(buffer, 0, bytes);
	return buffer;
}

/* Calls @what for each PATTERN:BYTES of @words. */
static void each(char **words, void (*what)(const struct pattern *, int, int), int rounds)
{
	for (; *words; words++) {
		char *copy = strdup(*words), *bytes = strchr(copy, ':'), *rest = NULL;
		const struct pattern *pattern;

		if (!bytes)
			die("PATTERN:BYTES[,BYTES...]");
		*bytes++ = 0;
		pattern = pattern_find(copy);
		if (!pattern)
			die("there is no such pattern");
		for (char *one = strtok_r(bytes, ",", &rest); one; one = strtok_r(NULL, ",", &rest)) {
			if (atoi(one) < pattern->least_bytes)
				die("too few bytes for this pattern");
			what(pattern, atoi(one), rounds);
		}
		free(copy);
	}
}

static size_t most;

static void look(const struct pattern *pattern, int bytes, int rounds)
{
	size_t parts = pattern->round == rate ? WINDOW : pattern->round == alltoall ? (size_t)ranks : MOST_PEERS;

	(void)rounds;
	if (parts * bytes > most)
		most = parts * bytes;
}

int main(int argc, char **argv)
{
	long tables;
	int rounds;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	rounds = argc < 3 ? 0 : atoi(argv[1]);
	if (rounds < 1 || ranks % 2)
		die("an even number of ranks: messages ROUNDS PATTERN:BYTES[,BYTES...]...");
	each(argv + 2, look, rounds);
	from = filled(most + 1);
	to = filled(most + 1);
	tables = page_tables_kb();
	each(argv + 2, measure, rounds);
	tables = page_tables_kb() - tables;
	if (rank == 0)
		printf("tables 0 %ld\n", tables);
	free(from);
	free(to);
	MPI_Finalize();
	return 0;
}
