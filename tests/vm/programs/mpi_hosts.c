// SPDX-License-Identifier: GPL-2.0
/*
 * Collectives, each compared with the MPI library's own (PMPI_): mpi_hosts ROUNDS LARGEST [SEED [one-thread]].
 *
 * Each round is chosen by a seed that all ranks share: communicator, collective, number of bytes up to
 * LARGEST, type, operation, root, in place. Each rank chooses by itself where its memory is, whether it
 * describes it by a derived type, and by MPI_BOTTOM. Then error handlers, a user's operation, an intercommunicator, and
 * threads on communicators of their own.
 */
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define NR_COMMS	6
#define NR_THREADS	3
#define STATIC_BYTES	(64 << 10)
/* In none of the zones that other ranks have windows onto. */
#define HIDDEN		((char *)(1UL << 40))
#define HIDDEN_BYTES	(8 << 20)

static int rank, ranks, failures;
static MPI_Comm comms[NR_COMMS];
static char statics[2][STATIC_BYTES];

/* ---- Chance ---------------------------------------------------------------- */

/* One for all ranks, one for each. */
struct chance {
	uint64_t together;
	uint64_t apart;
};

static uint32_t next(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*state >> 33);
}

static int below(uint64_t *state, int n)
{
	return (int)(next(state) % (uint32_t)n);
}

/* ---- Buffers --------------------------------------------------------------- */

/* Two buffers of the same contents: for the MPI library, and for what is tested. */
struct buffer {
	char *expected;
	char *got;
	size_t bytes;
	char *memory[2];
};

static struct buffer buffer_of(struct chance *chance, size_t bytes, int may_be_static)
{
	struct buffer buffer = { .bytes = bytes };

	buffer.memory[0] = malloc(bytes + 64);
	buffer.memory[1] = malloc(bytes + 64);
	buffer.expected = buffer.memory[0];
	buffer.got = buffer.memory[1] + 8 * below(&chance->apart, 8);
	if (may_be_static >= 0 && bytes <= STATIC_BYTES && below(&chance->apart, 3) == 0)
		buffer.got = statics[may_be_static];
	else if (may_be_static >= 0 && bytes <= HIDDEN_BYTES && below(&chance->apart, 5) == 0)
		buffer.got = HIDDEN + may_be_static * HIDDEN_BYTES;
	for (size_t i = 0; i < bytes; i++)
		buffer.expected[i] = (char)next(&chance->apart);
	memcpy(buffer.got, buffer.expected, bytes);
	return buffer;
}

static void check_and_free(struct buffer *buffer, const char *what, int is_significant)
{
	if (is_significant && memcmp(buffer->expected, buffer->got, buffer->bytes) != 0 && failures++ < 20) {
		size_t i = 0;

		while (buffer->expected[i] == buffer->got[i])
			i++;
		printf("rank %d of %d: %s: byte %zu of %zu is wrong\n", rank, ranks, what, i, buffer->bytes);
	}
	free(buffer->memory[0]);
	free(buffer->memory[1]);
}

/* Elements of 16 bytes of which 8 are data, or contiguous ones of 8: the same data to MPI. */
struct layout {
	MPI_Datatype type;
	int per_block;	/* elements of the type for 8 * count bytes of data, divided by count */
	size_t spread;	/* bytes of memory for each of data */
	int is_derived;
};

static MPI_Datatype gaps, pairs;

static struct layout layout_of(struct chance *chance)
{
	switch (below(&chance->apart, 6)) {
	case 0:
		return (struct layout){ gaps, 1, 2, 1 };
	case 1:
		return (struct layout){ pairs, 1, 1, 1 };
	default:
		return (struct layout){ MPI_INT64_T, 1, 1, 0 };
	}
}

/* The elements at an address, for MPI_BOTTOM; one such block follows the other. */
static MPI_Datatype absolute(const char *where, int count, const struct layout *layout)
{
	MPI_Datatype blocks, type;
	MPI_Aint address;

	MPI_Get_address(where, &address);
	MPI_Type_create_hindexed(1, &count, &address, layout->type, &blocks);
	MPI_Type_create_resized(blocks, 0, (MPI_Aint)((size_t)count * 8 * layout->spread), &type);
	MPI_Type_commit(&type);
	MPI_Type_free(&blocks);
	return type;
}

/* ---- Collectives ------------------------------------------------------------- */

static void one_bcast(struct chance *chance, MPI_Comm comm, int count, int root)
{
	struct layout layout = layout_of(chance);
	struct buffer buffer = buffer_of(chance, (size_t)count * 8 * layout.spread, 0);

	PMPI_Bcast(buffer.expected, count, layout.type, root, comm);
	if (count && below(&chance->apart, 6) == 0) {
		MPI_Datatype type = absolute(buffer.got, count, &layout);

		MPI_Bcast(MPI_BOTTOM, 1, type, root, comm);
		MPI_Type_free(&type);
	} else {
		MPI_Bcast(buffer.got, count, layout.type, root, comm);
	}
	check_and_free(&buffer, "MPI_Bcast", 1);
}

static void one_reduction(struct chance *chance, MPI_Comm comm, int count, int root, int all)
{
	static const struct {
		MPI_Datatype type;
		size_t size;
	} types[] = { { MPI_INT64_T, 8 }, { MPI_INT, 4 }, { MPI_UNSIGNED_CHAR, 1 }, { MPI_UINT16_T, 2 }, { MPI_LONG, 8 } };
	const MPI_Op ops[] = { MPI_SUM, MPI_PROD, MPI_MAX, MPI_MIN, MPI_BAND, MPI_BOR, MPI_BXOR, MPI_LAND, MPI_LOR, MPI_LXOR };
	int t = below(&chance->together, sizeof(types) / sizeof(types[0]));
	MPI_Op op = ops[below(&chance->together, sizeof(ops) / sizeof(ops[0]))];
	int in_place = below(&chance->together, 3) == 0, n = count * 8 / (int)types[t].size, me;
	struct buffer from = buffer_of(chance, (size_t)count * 8, 0), to = buffer_of(chance, (size_t)count * 8, 1);

	MPI_Comm_rank(comm, &me);
	/* Open MPI 4.1 saturates some of these sums and wraps others around, as its vectors divide them. */
	if (types[t].size < 4 && op == MPI_SUM)
		op = MPI_MAX;
	if (all) {
		PMPI_Allreduce(in_place ? MPI_IN_PLACE : from.expected, to.expected, n, types[t].type, op, comm);
		MPI_Allreduce(in_place ? MPI_IN_PLACE : from.got, to.got, n, types[t].type, op, comm);
	} else {
		/* MPICH 4.0.2 crashes of it for another root. */
		in_place = in_place && me == root && root == 0;
		PMPI_Reduce(in_place ? MPI_IN_PLACE : from.expected, to.expected, n, types[t].type, op, root, comm);
		MPI_Reduce(in_place ? MPI_IN_PLACE : from.got, to.got, n, types[t].type, op, root, comm);
	}
	check_and_free(&from, all ? "what is sent by MPI_Allreduce" : "what is sent by MPI_Reduce", 1);
	check_and_free(&to, all ? "MPI_Allreduce" : "MPI_Reduce", all || me == root);
}

/* No order of additions is the same for all ways, but all ranks have the same result, and each time. */
static void one_of_doubles(struct chance *chance, MPI_Comm comm, int count)
{
	double *from = malloc((size_t)count * 8 + 8), *to[2], *first = malloc((size_t)count * 8 + 8);

	for (int i = 0; i < count; i++)
		from[i] = (double)next(&chance->apart) / (1 + (double)next(&chance->apart));
	for (int i = 0; i < 2; i++) {
		to[i] = malloc((size_t)count * 8 + 8);
		MPI_Allreduce(from, to[i], count, MPI_DOUBLE, MPI_SUM, comm);
	}
	if (count)
		memcpy(first, to[0], (size_t)count * 8);
	PMPI_Bcast(first, count, MPI_DOUBLE, 0, comm);
	if ((memcmp(first, to[0], (size_t)count * 8) || memcmp(to[0], to[1], (size_t)count * 8)) && failures++ < 20)
		printf("rank %d of %d: MPI_Allreduce of doubles differs\n", rank, ranks);
	free(from);
	free(to[0]);
	free(to[1]);
	free(first);
}

/* From everybody to everybody or the root, a block for each rank or the same for all. */
static void one_exchange(struct chance *chance, MPI_Comm comm, int count, int root, char kind)
{
	struct layout out = layout_of(chance), in = layout_of(chance);
	int in_place = below(&chance->together, 4) == 0, me, n, blocks;
	struct buffer from, to;

	MPI_Comm_rank(comm, &me);
	MPI_Comm_size(comm, &n);
	blocks = kind == 't' ? n : 1;
	from = buffer_of(chance, (size_t)count * 8 * out.spread * (size_t)blocks, 0);
	to = buffer_of(chance, (size_t)count * 8 * in.spread * (size_t)n, 1);
	if (kind == 'g')
		in_place = in_place && me == root;
#define CALL(X, which, recv, recv_count, recv_type) \
	(kind == 't' ? X##Alltoall(in_place ? MPI_IN_PLACE : from.which, count, out.type, recv, recv_count, recv_type, comm) : \
	 kind == 'a' ? X##Allgather(in_place ? MPI_IN_PLACE : from.which, count, out.type, recv, recv_count, recv_type, comm) : \
		       X##Gather(in_place ? MPI_IN_PLACE : from.which, count, out.type, me == root ? recv : NULL, \
				 recv_count, recv_type, root, comm))
	/* Open MPI 4.1 allows no derived type in place. */
	if (kind == 't' && in_place)
		in = (struct layout){ MPI_INT64_T, 1, 1, 0 };
	CALL(PMPI_, expected, to.expected, count, in.type);
	if (count && !in_place && below(&chance->apart, 3) == 0) {
		MPI_Datatype type = absolute(to.got, count, &in);

		CALL(MPI_, got, MPI_BOTTOM, 1, type);
		MPI_Type_free(&type);
	} else {
		CALL(MPI_, got, to.got, count, in.type);
	}
#undef CALL
	check_and_free(&from, "what is sent", 1);
	check_and_free(&to, kind == 't' ? "MPI_Alltoall" : kind == 'a' ? "MPI_Allgather" : "MPI_Gather", kind != 'g' || me == root);
}

static void one_alltoallv(struct chance *chance, MPI_Comm comm, int count)
{
	struct layout out = layout_of(chance), in = layout_of(chance);
	struct buffer from, to;
	int me, n, *numbers, *send, *send_at, *recv, *recv_at, seed = (int)next(&chance->together) & 0xffff;

	MPI_Comm_rank(comm, &me);
	MPI_Comm_size(comm, &n);
	numbers = malloc(4 * (size_t)n * sizeof(int));
	send = numbers;
	send_at = send + n;
	recv = send_at + n;
	recv_at = recv + n;
	for (int i = 0; i < n; i++) {
		send[i] = (int)((uint32_t)(seed + me * 31 + i * 7) * 2654435761u >> 16) % (count + 1);
		recv[i] = (int)((uint32_t)(seed + i * 31 + me * 7) * 2654435761u >> 16) % (count + 1);
		send_at[i] = (n - 1 - i) * count;
		recv_at[i] = ((i + 1) % n) * count;
	}
	from = buffer_of(chance, (size_t)(count * n) * 8 * out.spread, 0);
	to = buffer_of(chance, (size_t)(count * n) * 8 * in.spread, 1);
	PMPI_Alltoallv(from.expected, send, send_at, out.type, to.expected, recv, recv_at, in.type, comm);
	MPI_Alltoallv(from.got, send, send_at, out.type, to.got, recv, recv_at, in.type, comm);
	check_and_free(&from, "what is sent by MPI_Alltoallv", 1);
	check_and_free(&to, "MPI_Alltoallv", 1);
	free(numbers);
}

static void one_round(struct chance *chance, MPI_Comm comm, int largest)
{
	int n, count, root, kind = below(&chance->together, 10);

	MPI_Comm_size(comm, &n);
	/* As many of each magnitude, and none. */
	count = below(&chance->together, 8) ? (largest / 8) >> below(&chance->together, 14) : 0;
	count = count ? 1 + below(&chance->together, count) : 0;
	root = below(&chance->together, n);
	switch (kind) {
	case 0:
		MPI_Barrier(comm);
		break;
	case 1:
	case 2:
		one_bcast(chance, comm, count, root);
		break;
	case 3:
	case 4:
		one_reduction(chance, comm, count, root, kind == 3);
		break;
	case 5:
		one_of_doubles(chance, comm, count);
		break;
	case 6:
		one_alltoallv(chance, comm, count);
		break;
	default:
		one_exchange(chance, comm, count, root, "atg"[kind - 7]);
		break;
	}
}

/* ---- What is not done in place --------------------------------------------------- */

static void check(int is_right, const char *what)
{
	if (!is_right && failures++ < 20)
		printf("rank %d of %d: %s is wrong\n", rank, ranks, what);
}

static void handler(MPI_Comm *comm, int *code, ...)
{
	(void)comm;
	(void)code;
	failures += 1000;
}

static int handled;

static void counts(MPI_Comm *comm, int *code, ...)
{
	(void)comm;
	(void)code;
	handled++;
}

/* A call with wrong arguments calls the communicator's handler, and the next one is right. */
static void errors(MPI_Comm comm, int largest)
{
	int count = largest / 8, n;
	int64_t *from = calloc((size_t)count, 8), *to = calloc((size_t)count, 8);
	MPI_Errhandler is_right, counting;

	MPI_Comm_create_errhandler(handler, &is_right);
	MPI_Comm_create_errhandler(counts, &counting);
	MPI_Comm_size(comm, &n);
	MPI_Comm_set_errhandler(comm, counting);
	handled = 0;
	check(MPI_Bcast(from, count, MPI_INT64_T, n, comm) != MPI_SUCCESS, "a root that is no rank");
	check(MPI_Reduce(from, to, count, MPI_INT64_T, MPI_SUM, -7, comm) != MPI_SUCCESS, "a root below 0");
	check(MPI_Allreduce(from, to, count, MPI_DOUBLE, MPI_BAND, comm) != MPI_SUCCESS, "MPI_BAND of MPI_DOUBLE");
	check(MPI_Bcast(from, count, MPI_DATATYPE_NULL, 0, comm) != MPI_SUCCESS, "MPI_DATATYPE_NULL");
	check(handled == 4, "the number of errors that were handled");
	MPI_Comm_set_errhandler(comm, is_right);
	for (int i = 0; i < count; i++)
		from[i] = i;
	MPI_Allreduce(from, to, count, MPI_INT64_T, MPI_SUM, comm);
	check(to[count - 1] == (int64_t)(count - 1) * n, "MPI_Allreduce after errors");
	MPI_Comm_set_errhandler(comm, MPI_ERRORS_ARE_FATAL);
	MPI_Errhandler_free(&is_right);
	MPI_Errhandler_free(&counting);
	free(from);
	free(to);
}

/* Associative, not commutative: matrices of 2 by 2, modulo 2^32. */
static void product(void *in, void *inout, int *count, MPI_Datatype *type)
{
	(void)type;
	for (int i = 0; i < *count; i++) {
		const uint32_t *a = (const uint32_t *)in + 4 * i;
		uint32_t *b = (uint32_t *)inout + 4 * i;
		uint32_t c[4] = { a[0] * b[0] + a[1] * b[2], a[0] * b[1] + a[1] * b[3], a[2] * b[0] + a[3] * b[2],
				  a[2] * b[1] + a[3] * b[3] };

		memcpy(b, c, sizeof(c));
	}
}

static void user_operation(MPI_Comm comm)
{
	enum { COUNT = 4096 };
	uint32_t (*mine)[4] = malloc(COUNT * 16), (*all)[4] = malloc(COUNT * 16);
	MPI_Datatype matrix;
	MPI_Op op;
	int me, n, is_right = 1;

	MPI_Comm_rank(comm, &me);
	MPI_Comm_size(comm, &n);
	MPI_Type_contiguous(4, MPI_UINT32_T, &matrix);
	MPI_Type_commit(&matrix);
	MPI_Op_create(product, 0, &op);
	for (int i = 0; i < COUNT; i++)
		for (int j = 0; j < 4; j++)
			mine[i][j] = (uint32_t)(i * 4 + j + me * 17 + 1);
	MPI_Allreduce(mine, all, COUNT, matrix, op, comm);
	for (int i = 0; i < COUNT && is_right; i++) {
		uint32_t expected[4], next_one[4];
		int one = 1;

		for (int r = n - 1; r >= 0; r--) {
			for (int j = 0; j < 4; j++)
				next_one[j] = (uint32_t)(i * 4 + j + r * 17 + 1);
			if (r == n - 1)
				memcpy(expected, next_one, sizeof(expected));
			else
				product(next_one, expected, &one, NULL);
		}
		is_right = memcmp(expected, all[i], sizeof(expected)) == 0;
	}
	check(is_right, "a user's operation that is not commutative");
	MPI_Op_free(&op);
	MPI_Type_free(&matrix);
	free(mine);
	free(all);
}

static void intercommunicator(int largest)
{
	int count = largest / 8, side = rank % 2, members, root;
	int64_t *data = malloc((size_t)count * 8);
	MPI_Comm half, inter;

	if (ranks < 2)
		return;
	MPI_Comm_split(MPI_COMM_WORLD, side, rank, &half);
	MPI_Comm_size(half, &members);
	MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - side, 3, &inter);
	for (int i = 0; i < count; i++)
		data[i] = rank == 0 ? i : -1;
	root = side ? 0 : rank == 0 ? MPI_ROOT : MPI_PROC_NULL;
	MPI_Bcast(data, count, MPI_INT64_T, root, inter);
	check(data[count - 1] == (side || rank == 0 ? count - 1 : -1), "MPI_Bcast between two groups");
	MPI_Barrier(inter);
	MPI_Comm_free(&inter);
	MPI_Comm_free(&half);
	free(data);
}

/* ---- Threads --------------------------------------------------------------------- */

struct thread {
	pthread_t thread;
	MPI_Comm comm;
	struct chance chance;
	int rounds;
	int largest;
};

/* All first uses at once, too. */
static void *rounds_of(void *argument)
{
	struct thread *thread = argument;

	for (int i = 0; i < thread->rounds; i++) {
		int64_t mine[1024], all[1024];
		int me, n, count = 1 + below(&thread->chance.together, 1024);

		MPI_Comm_rank(thread->comm, &me);
		MPI_Comm_size(thread->comm, &n);
		for (int j = 0; j < count; j++)
			mine[j] = j + me;
		MPI_Allreduce(mine, all, count, MPI_INT64_T, MPI_SUM, thread->comm);
		if (all[count - 1] != (int64_t)(count - 1) * n + (int64_t)n * (n - 1) / 2)
			__atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
		MPI_Bcast(all, count, MPI_INT64_T, i % n, thread->comm);
		MPI_Barrier(thread->comm);
	}
	return NULL;
}

static void threads(uint64_t seed, int rounds, int largest)
{
	struct thread thread[NR_THREADS];

	for (int i = 0; i < NR_THREADS; i++) {
		thread[i] = (struct thread){ .chance = { seed + (uint64_t)i, 0 }, .rounds = rounds, .largest = largest };
		MPI_Comm_dup(MPI_COMM_WORLD, &thread[i].comm);
	}
	for (int i = 0; i < NR_THREADS; i++)
		pthread_create(&thread[i].thread, NULL, rounds_of, &thread[i]);
	for (int i = 0; i < NR_THREADS; i++)
		pthread_join(thread[i].thread, NULL);
	for (int i = 0; i < NR_THREADS; i++)
		MPI_Comm_free(&thread[i].comm);
}

int main(int argc, char **argv)
{
	int rounds, largest, total, provided;
	struct chance chance;
	uint64_t seed;

	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (argc < 3) {
		fprintf(stderr, "mpi_hosts ROUNDS LARGEST [SEED [one-thread]]\n");
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	rounds = atoi(argv[1]);
	largest = atoi(argv[2]);
	seed = argc > 3 ? strtoull(argv[3], NULL, 0) : 1;
	chance = (struct chance){ seed, seed * 1000 + (uint64_t)rank + 1 };
	MPI_Type_create_resized(MPI_INT64_T, 0, 16, &gaps);
	MPI_Type_commit(&gaps);
	MPI_Type_contiguous(1, MPI_INT64_T, &pairs);
	MPI_Type_commit(&pairs);

	if (mmap(HIDDEN, 2 * HIDDEN_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != HIDDEN) {
		perror("mmap");
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	comms[0] = MPI_COMM_WORLD;
	MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]);
	/* Backwards; every other rank; all but the first; halves. */
	MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &comms[2]);
	MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &comms[3]);
	MPI_Comm_split(MPI_COMM_WORLD, rank == 0, (rank * 7) % 5, &comms[4]);
	MPI_Comm_split(MPI_COMM_WORLD, rank < ranks / 2, rank, &comms[5]);
	for (int i = 0; i < rounds; i++) {
		one_round(&chance, comms[below(&chance.together, NR_COMMS)], largest);
		/* Another communicator, which may have the same address or number. */
		if (i % 16 == 15) {
			MPI_Comm_free(&comms[1]);
			MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]);
		}
	}
	errors(comms[1], largest);
	user_operation(MPI_COMM_WORLD);
	user_operation(comms[2]);
	intercommunicator(largest);
	if (provided == MPI_THREAD_MULTIPLE && argc < 5)
		threads(seed, rounds / 10, largest);
	MPI_Comm_disconnect(&comms[1]);
	for (int i = 2; i < NR_COMMS; i++)
		MPI_Comm_free(&comms[i]);
	MPI_Type_free(&gaps);
	MPI_Type_free(&pairs);
	PMPI_Allreduce(&failures, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		printf("%d ranks, %d failures\n", ranks, total);
	MPI_Finalize();
	return total != 0;
}
