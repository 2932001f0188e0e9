// SPDX-License-Identifier: GPL-2.0
/*
 * One rank alone finds an error in a collective across hosts: mpi_errors.
 *
 * Each rank in turn has no memory for the library's buffer, sends fewer elements than it receives, or has a type that is
 * not committed. Without memory all results are right, as the MPI library makes them. All ranks whose data is wrong get
 * the other errors, none waits, and the next call is right.
 */
#include <dlfcn.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum kind { BCAST, REDUCE, ALLREDUCE, ALLGATHER, GATHER, ALLTOALL, NR_KINDS };
static const char *const names[] = { "MPI_Bcast", "MPI_Reduce", "MPI_Allreduce", "MPI_Allgather", "MPI_Gather", "MPI_Alltoall" };
enum fault { NONE, NO_MEMORY, FEWER, NOT_COMMITTED, NR_FAULTS };
static const char *const faults[] = { "no error", "no memory", "fewer elements", "a type that is not committed" };

/* Of each rank. */
#define MOST_COUNT	(160 << 10)
#define MOST_RANKS	8
/* In none of the zones that other ranks have windows onto. */
#define HIDDEN		((int64_t *)(1UL << 40))

static int rank, ranks, failures;
static MPI_Datatype gaps, not_committed;
static int64_t *from, *to;
/* Allocations of the library fail. */
static int refuse, refused;

void *calloc(size_t n, size_t size)
{
	static void *(*next)(size_t, size_t);
	Dl_info caller;

	if (refuse && dladdr(__builtin_return_address(0), &caller) && strstr(caller.dli_fname, "/libhpmmap_mpi.so")) {
		refused++;
		return NULL;
	}
	if (!next)
		next = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "calloc");
	return next(n, size);
}

static int64_t value(int of, int for_rank, int i)
{
	return of * 1000003 + for_rank * 10007 + i;
}

/* A call, in which the bad rank has a fault. */
struct call {
	enum kind kind;
	enum fault fault;
	MPI_Comm comm;
	int count;
	int root;
	int bad;
};

static int is_bad(const struct call *call, enum fault fault)
{
	return rank == call->bad && call->fault == fault;
}

static int make(const struct call *call)
{
	int count = call->count, fewer = count - is_bad(call, FEWER);
	/* What is not contiguous, or not seen by others, needs memory. */
	int spread = is_bad(call, NO_MEMORY) && call->kind != REDUCE && call->kind != ALLREDUCE ? 2 : 1;
	MPI_Datatype type = is_bad(call, NOT_COMMITTED) ? not_committed : spread == 2 ? gaps : MPI_INT64_T;
	int64_t *send = is_bad(call, NO_MEMORY) && spread == 1 ? HIDDEN : from;

	for (int i = 0; i < count * (call->kind == ALLTOALL ? ranks : 1); i++)
		send[spread * i] = value(rank, i / count, i % count);
	memset(to, 0, (size_t)count * (size_t)ranks * 8);
	switch (call->kind) {
	case BCAST:
		if (rank != call->root)
			memset(send, 0, (size_t)count * 8 * (size_t)spread);
		return MPI_Bcast(send, count, type, call->root, call->comm);
	case REDUCE:
		return MPI_Reduce(send, to, count, MPI_INT64_T, MPI_SUM, call->root, call->comm);
	case ALLREDUCE:
		return MPI_Allreduce(send, to, count, MPI_INT64_T, MPI_SUM, call->comm);
	case ALLGATHER:
		return MPI_Allgather(send, fewer, type, to, count, MPI_INT64_T, call->comm);
	case GATHER:
		return MPI_Gather(send, fewer, type, to, count, MPI_INT64_T, call->root, call->comm);
	default:
		return MPI_Alltoall(send, fewer, type, to, count, MPI_INT64_T, call->comm);
	}
}

static int is_right(const struct call *call)
{
	int spread = is_bad(call, NO_MEMORY) ? 2 : 1, reduces = call->kind == REDUCE || call->kind == ALLREDUCE;

	if ((call->kind == REDUCE || call->kind == GATHER) && rank != call->root)
		return 1;
	for (int i = 0; i < call->count; i++) {
		if (call->kind == BCAST && from[spread * i] != value(call->root, 0, i))
			return 0;
		if (reduces && to[i] != (int64_t)ranks * (ranks - 1) / 2 * 1000003 + (int64_t)ranks * i)
			return 0;
		for (int r = 0; r < ranks && call->kind >= ALLGATHER; r++)
			if (to[r * call->count + i] != value(r, call->kind == ALLTOALL ? rank : 0, i))
				return 0;
	}
	return 1;
}

static void check(int is_well, const struct call *call, const char *what)
{
	if (!is_well && failures++ < 20)
		printf("rank %d of %d: %s, %d elements, root %d: %s of rank %d: %s\n", rank, ranks, names[call->kind],
		       call->count, call->root, faults[call->fault], call->bad, what);
}

static void try(struct call call)
{
	int err, class = MPI_SUCCESS;
	/* Only the root gets the data of the bad rank, and only the root knows how long it must be. */
	int must_hear = call.kind != GATHER || rank == call.root || (call.fault != FEWER && rank == call.bad);

	refuse = is_bad(&call, NO_MEMORY);
	refused = 0;
	err = make(&call);
	refuse = 0;
	if (err != MPI_SUCCESS)
		MPI_Error_class(err, &class);
	if (call.fault == NO_MEMORY || call.fault == NONE) {
		check(err == MPI_SUCCESS, &call, "an error");
		check(is_right(&call), &call, "a wrong result");
		check(!is_bad(&call, NO_MEMORY) || refused, &call, "no memory was asked for");
	} else {
		check(!must_hear || class == (call.fault == FEWER ? MPI_ERR_TRUNCATE : MPI_ERR_TYPE), &call, "not its error");
	}
	if (call.fault != NONE) {
		call.fault = NONE;
		err = make(&call);
		check(err == MPI_SUCCESS && is_right(&call), &call, "the next call is wrong");
	}
}

static int can_have(enum kind kind, enum fault fault)
{
	if (fault == FEWER)
		return kind >= ALLGATHER;
	return fault != NOT_COMMITTED || (kind != REDUCE && kind != ALLREDUCE);
}

/* Each rank with the fault; on communicators of their own if the first call tells. */
static void all_ranks(enum kind kind, enum fault fault, int count)
{
	struct call call = { .kind = kind, .fault = fault, .count = count, .comm = MPI_COMM_NULL };

	for (int i = 0; i < ranks; i++) {
		if (call.comm == MPI_COMM_NULL) {
			MPI_Comm_dup(MPI_COMM_WORLD, &call.comm);
			MPI_Comm_set_errhandler(call.comm, MPI_ERRORS_RETURN);
		}
		call.bad = (i + kind) % ranks;
		/* Only the root's data can be wrong for all. */
		call.root = kind == BCAST && fault == NOT_COMMITTED ? call.bad : i / 2;
		try(call);
		if (fault == NO_MEMORY || i + 1 == ranks)
			MPI_Comm_free(&call.comm);
	}
}

int main(int argc, char **argv)
{
	/*
	 * Ranks have all memory after the first call of few elements, and agree in each call of many. More of
	 * Alltoall is left to the MPI library.
	 */
	static const int few = 1000, many[] = {
		[BCAST] = MOST_COUNT, [REDUCE] = MOST_COUNT, [ALLREDUCE] = MOST_COUNT,
		[ALLGATHER] = 64 << 10, [GATHER] = 64 << 10, [ALLTOALL] = 16 << 10,
	};
	int total;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (ranks > MOST_RANKS) {
		fprintf(stderr, "mpi_errors: %d ranks at most\n", MOST_RANKS);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	MPI_Type_create_resized(MPI_INT64_T, 0, 16, &gaps);
	MPI_Type_commit(&gaps);
	MPI_Type_contiguous(1, MPI_INT64_T, &not_committed);
	from = malloc((size_t)MOST_COUNT * MOST_RANKS * 16);
	to = malloc((size_t)MOST_COUNT * MOST_RANKS * 8);
	if (!from || !to || mmap(HIDDEN, (size_t)MOST_COUNT * MOST_RANKS * 8, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != HIDDEN) {
		perror("mpi_errors");
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	for (enum kind kind = 0; kind < NR_KINDS; kind++)
		for (enum fault fault = NO_MEMORY; fault < NR_FAULTS; fault++)
			if (can_have(kind, fault)) {
				all_ranks(kind, fault, few);
				all_ranks(kind, fault, many[kind]);
			}
	MPI_Type_free(&gaps);
	MPI_Type_free(&not_committed);
	PMPI_Allreduce(&failures, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		printf("%d ranks, %d failures\n", ranks, total);
	MPI_Finalize();
	return total != 0;
}
