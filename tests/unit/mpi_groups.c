// SPDX-License-Identifier: GPL-2.0
/*
 * What libhpmmap_mpi does to communicators beside collectives: mpi_groups CASE.
 *
 * Each case prints nothing but what is wrong, and rank 0 a last line. The library makes communicators of its own by
 * PMPI_Comm_split_type(), which are counted here.
 */
#include <dlfcn.h>
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ELEMENTS	2048
#define MOST		258
#define ROUNDS		8

static int rank, failures;
static int from[ELEMENTS], to[ELEMENTS];
static MPI_Comm own[MOST];
static int made, live;

int PMPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *part)
{
	int (*next)(MPI_Comm, int, int, MPI_Info, MPI_Comm *) =
		(int (*)(MPI_Comm, int, int, MPI_Info, MPI_Comm *))dlsym(RTLD_NEXT, "PMPI_Comm_split_type");
	int err = next(comm, type, key, info, part);

	made++;
	for (int i = 0; i < MOST && err == MPI_SUCCESS; i++)
		if (!own[i]) {
			own[i] = *part;
			live++;
			break;
		}
	return err;
}

int PMPI_Comm_free(MPI_Comm *comm)
{
	int (*next)(MPI_Comm *) = (int (*)(MPI_Comm *))dlsym(RTLD_NEXT, "PMPI_Comm_free");

	for (int i = 0; i < MOST && *comm; i++)
		if (own[i] == *comm) {
			own[i] = (MPI_Comm)0;
			live--;
			break;
		}
	return next(comm);
}

static void check(int is_well, const char *what, long value)
{
	if (!is_well && failures++ < 20)
		printf("rank %d: %s: %ld\n", rank, what, value);
}

static void sum(MPI_Comm comm)
{
	int size;

	MPI_Comm_size(comm, &size);
	for (int i = 0; i < ELEMENTS; i++)
		from[i] = i;
	MPI_Allreduce(from, to, ELEMENTS, MPI_INT, MPI_SUM, comm);
	check(to[7] == 7 * size, "a sum", to[7]);
}

static MPI_Comm used(void)
{
	MPI_Comm comm;

	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	sum(comm);
	return comm;
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

/* Each has a group, up to the most. */
static void many(void)
{
	static MPI_Comm comms[MOST];

	for (int i = 0; i < MOST; i++)
		comms[i] = used();
	check(made == 256, "groups", made);
	for (int i = 0; i < MOST; i++)
		MPI_Comm_free(&comms[i]);
	comms[0] = used();
	check(made == 257, "groups when others are free", made);
}

/* Rank 0 frees its communicator before rank 1 may. */
static void order(void)
{
	MPI_Comm comm = used();
	char token = 0;

	if (rank == 0)
		MPI_Comm_free(&comm);
	if (rank == 0)
		MPI_Send(&token, 1, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
	if (rank == 1)
		MPI_Recv(&token, 1, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	if (rank != 0)
		MPI_Comm_free(&comm);
}

/* As Fortran's functions of Open MPI do. */
static void by_pmpi(void)
{
	for (int i = 0; i < ROUNDS; i++) {
		MPI_Comm comm = used();

		PMPI_Comm_free(&comm);
		PMPI_Barrier(MPI_COMM_WORLD);
	}
	check(live <= 3, "groups that are left", live);
}

static int use(MPI_Comm comm, int key, void *value, void *unused)
{
	(void)key;
	(void)value;
	(void)unused;
	sum(comm);
	return MPI_SUCCESS;
}

/* A user's callback uses the communicator that is freed, which may or may not have a group. */
static void callback(void)
{
	int key;

	MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, use, &key, NULL);
	for (int i = 0; i < ROUNDS; i++) {
		MPI_Comm comm;

		MPI_Comm_dup(MPI_COMM_WORLD, &comm);
		if (i & 1)
			sum(comm);
		MPI_Comm_set_attr(comm, key, NULL);
		if (i & 2)
			sum(comm);
		MPI_Comm_free(&comm);
		PMPI_Barrier(MPI_COMM_WORLD);
	}
	check(live <= 3, "groups that are left", live);
}

static int called;

static void on_error(MPI_Comm *comm, int *err, ...)
{
	(void)comm;
	(void)err;
	called++;
}

static void *first_sum(void *comm)
{
	sum(*(MPI_Comm *)comm);
	return NULL;
}

/* A thread sets an error handler while another one is in the communicator's first call. */
static void handler(void)
{
	MPI_Errhandler mine;
	pthread_t thread;
	MPI_Comm comm;

	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	if (rank != 0) {
		sleep(2);
		sum(comm);
		return;
	}
	pthread_create(&thread, NULL, first_sum, &comm);
	sleep(1);
	MPI_Comm_create_errhandler(on_error, &mine);
	MPI_Comm_set_errhandler(comm, mine);
	pthread_join(thread, NULL);
	called = 0;
	MPI_Send(from, 1, MPI_INT, 99, 0, comm);
	check(called == 1, "calls of the error handler", called);
}

/* Between groups the root sends nothing, the other ranks of its group neither send nor receive: their types are none. */
static void inter(void)
{
	MPI_Datatype no = (MPI_Datatype)0;
	MPI_Comm half, both;
	int side = rank >= 2, me;

	MPI_Comm_split(MPI_COMM_WORLD, side, 0, &half);
	MPI_Comm_rank(half, &me);
	MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, side ? 0 : 2, 0, &both);
	from[3] = 3 + rank;
	if (side) {
		MPI_Gather(from, ELEMENTS / 4, MPI_INT, NULL, 0, no, 0, both);
	} else {
		int root = me == 0 ? MPI_ROOT : MPI_PROC_NULL;

		MPI_Gather(NULL, 0, no, me == 0 ? to : NULL, ELEMENTS / 4, me == 0 ? MPI_INT : no, root, both);
		check(me != 0 || to[3] == 5, "what is gathered", to[3]);
	}
	MPI_Comm_free(&both);
	MPI_Comm_free(&half);
}

/* Terabytes of addresses in which windows are. */
static int attached(void)
{
	unsigned long start, last = 0;
	char line[512];
	int n = 0;
	FILE *maps = fopen("/proc/self/maps", "r");

	while (maps && fgets(line, sizeof(line), maps)) {
		start = strtoul(line, NULL, 16) >> 40;
		n += start >= 16 && start < 85 && start != last;
		last = start;
	}
	if (maps)
		fclose(maps);
	return n;
}

/* Peers stay attached while a communicator needs them, also one that is new. */
static void disconnect(void)
{
	MPI_Comm one = used(), other = used();
	int ranks;

	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	MPI_Comm_disconnect(&one);
	check(attached() == ranks - 1, "peers", attached());
	sum(other);
	MPI_Comm_free(&other);
	other = used();
	MPI_Comm_disconnect(&other);
	PMPI_Barrier(MPI_COMM_WORLD);
	one = used();
	MPI_Comm_disconnect(&one);
	check(attached() == 0, "peers that are left", attached());
	one = used();
	MPI_Comm_free(&one);
}

static MPI_Comm kept;
/* Of rank 0, in MPI_Finalize(). */
static int sends_at_end;

static int at_end(MPI_Comm comm, int key, void *value, void *unused)
{
	(void)comm;
	(void)key;
	(void)value;
	(void)unused;
	if (sends_at_end && rank == 0)
		MPI_Send(from, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
	sum(kept);
	MPI_Comm_disconnect(&kept);
	return MPI_SUCCESS;
}

/* MPI_Finalize() calls at_end(). */
static void finalize(void)
{
	int key;

	MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_end, &key, NULL);
	MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
	kept = used();
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";
	int level, total;

	/* As Fortran's functions of Open MPI do. */
	if (!strcmp(name, "finalize-late"))
		PMPI_Init(&argc, &argv);
	else
		MPI_Init_thread(&argc, &argv, strcmp(name, "handler") ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE, &level);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (!strcmp(name, "pools"))
		pools();
	else if (!strcmp(name, "many"))
		many();
	else if (!strcmp(name, "order"))
		order();
	else if (!strcmp(name, "by-pmpi"))
		by_pmpi();
	else if (!strcmp(name, "callback"))
		callback();
	else if (!strcmp(name, "handler"))
		handler();
	else if (!strcmp(name, "inter"))
		inter();
	else if (!strcmp(name, "disconnect"))
		disconnect();
	else if (!strncmp(name, "finalize", strlen("finalize")))
		finalize();
	else
		check(0, "there is no such case", 0);
	PMPI_Allreduce(&failures, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		printf("%d failures\n", total);
	sends_at_end = !strcmp(name, "finalize");
	if (sends_at_end && rank == 1)
		MPI_Recv(to, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	MPI_Finalize();
	return total != 0;
}
