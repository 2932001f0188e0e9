// SPDX-License-Identifier: GPL-2.0
/*
 * One rank alone finds an error in a collective across hosts: mpi_errors.
 *
 * Each rank in turn has no memory for the library's buffer, sends fewer elements than it receives, or makes another
 * mistake. Without memory all results are right, as the MPI library makes them. All ranks whose data is wrong get the
 * other errors, none waits, and the next barrier and calls are right.
 *
 * Only a rank that is not the first of its host has another length or root than the others: between hosts the MPI library
 * may wait for ever. For the same reason a rank with a mistake in MPI_Alltoallv exchanges nothing with other hosts.
 */
#include <dlfcn.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum kind { BCAST, REDUCE, ALLREDUCE, ALLGATHER, GATHER, ALLTOALL, ALLTOALLV, NR_KINDS };
static const char *const names[] = { "MPI_Bcast", "MPI_Reduce", "MPI_Allreduce", "MPI_Allgather", "MPI_Gather", "MPI_Alltoall",
				     "MPI_Alltoallv" };
enum fault { NONE, NO_MEMORY, FEWER, NOT_COMMITTED, QUARTER, FOUR_TIMES, ROOT, NEGATIVE, NEGATIVE_HERE, NO_COUNTS, NR_FAULTS };
static const struct {
	const char *name;
	int class;
} faults[] = {
	[NONE] = { "no error", MPI_SUCCESS },
	[NO_MEMORY] = { "no memory", MPI_SUCCESS },
	[FEWER] = { "fewer elements", MPI_ERR_TRUNCATE },
	[NOT_COMMITTED] = { "a type that is not committed", MPI_ERR_TYPE },
	[QUARTER] = { "a quarter of the length", MPI_ERR_TRUNCATE },
	[FOUR_TIMES] = { "four times the length", MPI_ERR_TRUNCATE },
	[ROOT] = { "a root that is no rank", MPI_ERR_ROOT },
	[NEGATIVE] = { "a negative number for another host", MPI_ERR_COUNT },
	[NEGATIVE_HERE] = { "a negative number from itself", MPI_ERR_COUNT },
	[NO_COUNTS] = { "no numbers", MPI_ERR_ARG },
};

/* Of each rank. */
#define MOST_COUNT	(160 << 10)
#define ALLTOALL_COUNT	(16 << 10)
#define MOST_RANKS	8
/* In none of the zones that other ranks have windows onto. */
#define HIDDEN		((int64_t *)(1UL << 40))

static int rank, ranks, failures;
static MPI_Datatype gaps, not_committed;
static int64_t *from, *to;
/* The first rank on the host of each. */
static int first[MOST_RANKS];
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

static int is_reduction(enum kind kind)
{
	return kind == REDUCE || kind == ALLREDUCE;
}

static int is_to_each(enum kind kind)
{
	return kind == ALLTOALL || kind == ALLTOALLV;
}

static int alltoallv(const struct call *call)
{
	static int counts[2][MOST_RANKS], displs[MOST_RANKS];

	for (int r = 0; r < ranks; r++) {
		int nothing = call->fault != NONE && (rank == call->bad || r == call->bad) && first[r] != first[rank];

		counts[0][r] = counts[1][r] = nothing ? 0 : call->count;
		displs[r] = r * call->count;
		if (is_bad(call, NEGATIVE) && first[r] != first[rank])
			counts[0][r] = -1;
	}
	if (is_bad(call, NEGATIVE_HERE))
		counts[1][rank] = -1;
	return MPI_Alltoallv(from, is_bad(call, NO_COUNTS) ? NULL : counts[0], displs,
			     is_bad(call, NOT_COMMITTED) ? not_committed : MPI_INT64_T, to, counts[1], displs, MPI_INT64_T, call->comm);
}

static int make(const struct call *call)
{
	int count = is_bad(call, QUARTER) ? call->count / 4 : is_bad(call, FOUR_TIMES) ? call->count * 4 : call->count;
	int fewer = count - is_bad(call, FEWER), root = is_bad(call, ROOT) ? ranks : call->root;
	/* What is not contiguous, or not seen by others, needs memory. */
	int spread = is_bad(call, NO_MEMORY) && !is_reduction(call->kind) ? 2 : 1;
	MPI_Datatype type = is_bad(call, NOT_COMMITTED) ? not_committed : spread == 2 ? gaps : MPI_INT64_T;
	int64_t *send = is_bad(call, NO_MEMORY) && spread == 1 ? HIDDEN : from;

	for (int i = 0; i < count * (is_to_each(call->kind) ? ranks : 1); i++)
		send[spread * i] = value(rank, i / count, i % count);
	memset(to, 0, (size_t)count * (size_t)ranks * 8);
	switch (call->kind) {
	case BCAST:
		if (rank != call->root)
			memset(send, 0, (size_t)count * 8 * (size_t)spread);
		return MPI_Bcast(send, count, type, root, call->comm);
	case REDUCE:
		return MPI_Reduce(send, to, count, MPI_INT64_T, MPI_SUM, root, call->comm);
	case ALLREDUCE:
		return MPI_Allreduce(send, to, count, MPI_INT64_T, MPI_SUM, call->comm);
	case ALLGATHER:
		return MPI_Allgather(send, fewer, type, to, count, MPI_INT64_T, call->comm);
	case GATHER:
		return MPI_Gather(send, fewer, type, to, count, MPI_INT64_T, root, call->comm);
	case ALLTOALL:
		return MPI_Alltoall(send, fewer, type, to, count, MPI_INT64_T, call->comm);
	default:
		return alltoallv(call);
	}
}

static int is_right(const struct call *call)
{
	int spread = is_bad(call, NO_MEMORY) ? 2 : 1;

	if ((call->kind == REDUCE || call->kind == GATHER) && rank != call->root)
		return 1;
	for (int i = 0; i < call->count; i++) {
		if (call->kind == BCAST && from[spread * i] != value(call->root, 0, i))
			return 0;
		if (is_reduction(call->kind) && to[i] != (int64_t)ranks * (ranks - 1) / 2 * 1000003 + (int64_t)ranks * i)
			return 0;
		for (int r = 0; r < ranks && call->kind >= ALLGATHER; r++)
			if (to[r * call->count + i] != value(r, is_to_each(call->kind) ? rank : 0, i))
				return 0;
	}
	return 1;
}

static void check(int is_well, const struct call *call, const char *what)
{
	if (!is_well && failures++ < 20)
		printf("rank %d of %d: %s, %d elements, root %d: %s of rank %d: %s\n", rank, ranks, names[call->kind],
		       call->count, call->root, faults[call->fault].name, call->bad, what);
}

/* Must this rank get the error? */
static int must_hear(const struct call *call)
{
	/* Only the root gets the data of the bad rank, and only the root knows how long it must be. */
	if (call->fault == FEWER || (call->fault == NOT_COMMITTED && call->kind != ALLTOALLV))
		return call->kind != GATHER || rank == call->root || (call->fault != FEWER && rank == call->bad);
	return first[rank] == first[call->bad] || call->kind == ALLGATHER || call->kind == ALLTOALL;
}

static void must_be_right(const struct call *call, const char *what)
{
	struct call right = *call;
	int err;

	right.fault = NONE;
	err = make(&right);
	check(err == MPI_SUCCESS && is_right(&right), call, what);
}

static void try(struct call call)
{
	int err, class = MPI_SUCCESS;

	refuse = is_bad(&call, NO_MEMORY);
	refused = 0;
	err = make(&call);
	refuse = 0;
	if (err != MPI_SUCCESS)
		MPI_Error_class(err, &class);
	if (call.fault == NO_MEMORY) {
		check(err == MPI_SUCCESS, &call, "an error");
		check(is_right(&call), &call, "a wrong result");
		check(!is_bad(&call, NO_MEMORY) || refused, &call, "no memory was asked for");
	} else if (must_hear(&call)) {
		check(class == faults[call.fault].class, &call, "not its error");
	} else if (call.kind == ALLTOALLV) {
		check(err == MPI_SUCCESS, &call, "an error on another host");
	}
	check(MPI_Barrier(call.comm) == MPI_SUCCESS, &call, "the barrier fails");
	must_be_right(&call, "the next call is wrong");
	if (call.fault == FOUR_TIMES) {
		call.count *= 4;
		must_be_right(&call, "a larger call is wrong");
	}
}

static int can_have(enum kind kind, enum fault fault)
{
	switch (fault) {
	case FEWER:
		return kind >= ALLGATHER && kind != ALLTOALLV;
	case NOT_COMMITTED:
		return !is_reduction(kind);
	case ROOT:
		return kind == BCAST || kind == REDUCE || kind == GATHER;
	case NEGATIVE:
	case NEGATIVE_HERE:
	case NO_COUNTS:
		return kind == ALLTOALLV;
	default:
		return kind != ALLTOALLV;
	}
}

/* Each rank with the fault; on communicators of their own if it matters which memory the ranks have. */
static void all_ranks(enum kind kind, enum fault fault, int count)
{
	struct call call = { .kind = kind, .fault = fault, .count = count, .comm = MPI_COMM_NULL };
	int differs = fault == QUARTER || fault == FOUR_TIMES;

	for (int i = 0; i < ranks; i++) {
		if (call.comm == MPI_COMM_NULL) {
			MPI_Comm_dup(MPI_COMM_WORLD, &call.comm);
			MPI_Comm_set_errhandler(call.comm, MPI_ERRORS_RETURN);
		}
		call.bad = (i + kind) % ranks;
		/* Only the root's data can be wrong for all. */
		call.root = kind == BCAST && fault == NOT_COMMITTED ? call.bad : i / 2;
		/* After this call either the bad rank alone or all others but it need more memory than ever before. */
		call.count = differs ? count / 4 : count;
		if (differs)
			must_be_right(&call, "the first call is wrong");
		call.count = fault == FOUR_TIMES ? count / 4 : count;
		if ((!differs && fault != ROOT) || first[call.bad] != call.bad)
			try(call);
		if (fault == NO_MEMORY || differs || i + 1 == ranks)
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
		[ALLGATHER] = 64 << 10, [GATHER] = 64 << 10, [ALLTOALL] = ALLTOALL_COUNT, [ALLTOALLV] = ALLTOALL_COUNT,
	};
	MPI_Comm host;
	int total;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (ranks > MOST_RANKS) {
		fprintf(stderr, "mpi_errors: %d ranks at most\n", MOST_RANKS);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	PMPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
	total = rank;
	PMPI_Bcast(&total, 1, MPI_INT, 0, host);
	PMPI_Allgather(&total, 1, MPI_INT, first, 1, MPI_INT, MPI_COMM_WORLD);
	PMPI_Comm_free(&host);
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
