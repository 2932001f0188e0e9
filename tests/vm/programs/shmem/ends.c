// SPDX-License-Identifier: GPL-2.0
/*
 * How OpenSHMEM programs end: ends CASE. PE 1 does what is wrong, while the others wait for it in one way or
 * another, or compute.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static long variable;
static long lock;
/* A window onto a PE that has ended is SIGBUS, shared memory stays: by windows only. */
static bool puts_all_the_time;
/* Waits are loops of the program's own. */
static bool tests_all_the_time;

static void test_in_each_way(void)
{
	size_t index;

	if (me == 0)
		while (shmem_test_lock(&lock))
			;
	else if (me == 2)
		while (!shmem_long_test(&variable, SHMEM_CMP_NE, 0))
			;
	else if (me == 3)
		while (shmem_long_test_any(&variable, 1, NULL, SHMEM_CMP_NE, 0) == SIZE_MAX)
			;
	else
		while (!shmem_long_test_some(&variable, 1, &index, NULL, SHMEM_CMP_NE, 0))
			;
}

/* Until the library or a signal ends this PE. */
static void wait_in_each_way(void)
{
	if (tests_all_the_time)
		test_in_each_way();
	else if (me == 0)
		shmem_barrier_all();
	else if (puts_all_the_time)
		for (;;)
			shmem_long_p(&variable, 0, 1);
	else if (me == 2)
		shmem_long_wait_until(&variable, SHMEM_CMP_NE, 0);
	else
		shmem_set_lock(&lock);
	printf("PE %d: the wait ended\n", me);
	exit(3);
}

static void wrong_call(const char *what)
{
	long local = 0, *heap = shmem_malloc(64);

	puts_all_the_time = !strcmp(what, "killed-later");
	tests_all_the_time = !strcmp(what, "killed-tests");
	/* For those that wait for the lock. */
	if (me == 1)
		shmem_set_lock(&lock);
	shmem_barrier_all();
	if (me != 1)
		wait_in_each_way();
	if (!strcmp(what, "pe"))
		shmem_long_p(&variable, 1, npes);
	else if (!strcmp(what, "negative-pe"))
		shmem_long_g(&variable, -1);
	else if (!strcmp(what, "address"))
		shmem_long_p(&local, 1, 0);
	else if (!strcmp(what, "beyond"))
		shmem_putmem(heap, heap, ((size_t)64 << 20) + 1, 0);
	else if (!strcmp(what, "wraps"))
		shmem_long_put(heap, heap, ((size_t)1 << 61) + 2, 0);
	else if (!strcmp(what, "stride"))
		shmem_long_iput(heap + 1, heap, -1, 1, 2, 0);
	else if (!strcmp(what, "stride-wraps"))
		shmem_long_iget(heap, heap, 1, (ptrdiff_t)1 << 61, 9, 0);
	else if (!strcmp(what, "reduce-wraps"))
		shmem_long_sum_reduce(SHMEM_TEAM_WORLD, heap, heap, ((size_t)1 << 61) + 2);
	else if (!strcmp(what, "free"))
		shfree(heap + 1);
	else if (!strcmp(what, "context"))
		shmem_ctx_long_p(SHMEM_CTX_INVALID, &variable, 1, 0);
	else if (!strcmp(what, "set"))
		shmem_barrier(0, 0, npes + 1, &lock);
	else if (!strcmp(what, "killed") || !strcmp(what, "killed-tests"))
		raise(SIGKILL);
	else if (!strcmp(what, "killed-later"))
		usleep(300000), raise(SIGKILL);
	else if (!strcmp(what, "exits"))
		exit(0);
	printf("%s is no case, or had no effect\n", what);
	exit(4);
}

static void slowly(void)
{
	usleep(50000);
}

static long pids[256];

/* PE 0 ends while the exit handlers of PE 1 run. */
static void wait_for_the_end_of_others(void)
{
	for (int i = 0; me == 1 && i < 600 && kill((pid_t)pids[0], 0) == 0; i++)
		usleep(100000);
	if (me == 1)
		puts(kill((pid_t)pids[0], 0) == 0 ? "PE 0 waits" : "PE 0 has ended");
}

static void *put_for_ever(void *unused)
{
	(void)unused;
	for (;;)
		shmem_long_p(&variable, 1, 0);
	return NULL;
}

/* Exit handlers take some time, while another thread goes on. */
static void global_exit_of_threads(int status)
{
	pthread_t thread;

	shmem_barrier_all();
	if (me == 1) {
		atexit(slowly);
		pthread_create(&thread, NULL, put_for_ever, NULL);
		usleep(100000);
		printf("flushed at exit\n");
		shmem_global_exit(status);
	}
	shmem_barrier_all();
}

/* Neither memory of other PEs nor the table stays, and variables keep their values. */
static void finalizes(void)
{
	char line[512];
	FILE *maps;

	variable = me + 1;
	shmem_barrier_all();
	shmem_finalize();
	maps = fopen("/proc/self/maps", "r");
	while (fgets(line, sizeof(line), maps))
		if (strstr(line, "memfd:hpmmap_shmem") || strstr(line, "/dev/shm/"))
			printf("PE %d: %s", me, line);
	printf("%ld\n", variable);
	exit(0);
}

static void global_exit(int status)
{
	shmem_barrier_all();
	if (me == 1)
		shmem_global_exit(status);
	if (me == 0)
		shmem_barrier_all();
	/* Computes. */
	for (;;)
		usleep(1000);
}

/* A child has its own variables, those of the time of fork(2), and is no PE. */
static void forks(void)
{
	long before = me + 1;
	int status = 0;
	pid_t child;

	variable = before;
	shmem_barrier_all();
	child = fork();
	if (child == 0) {
		if (variable != before)
			_exit(7);
		variable = 99;
		if (shmem_n_pes() != 0)
			_exit(5);
		shmem_long_p(&variable, 1, 0);
		_exit(6);
	}
	variable = before + 1000;
	waitpid(child, &status, 0);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1, "%d", status);
	CHECK(variable == before + 1000);
	shmem_barrier_all();
	CHECK(shmem_long_g(&variable, (me + 1) % npes) == (me + 1) % npes + 1001);
	exit(end());
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	if (!strcmp(what, "no-init"))
		shmem_long_p(&variable, 1, 0);
	if (!strcmp(what, "start-pes")) {
		start_pes(0);
		shmem_long_p(&variable, 7, (_my_pe() + 1) % _num_pes());
		shmem_barrier_all();
		printf("%ld\n", variable);
		return 0;
	}
	/* What runs at exit does not wait for the others. */
	if (strcmp(what, "fork") && strcmp(what, "exits"))
		atexit(shmem_finalize);
	/* The parent's next stores come before the child's first ones. */
	if (!strcmp(what, "fork"))
		pthread_atfork(NULL, NULL, slowly);
	begin();
	if (!strcmp(what, "global-exit"))
		global_exit(argc > 2 ? atoi(argv[2]) : 0);
	if (!strcmp(what, "threads"))
		global_exit_of_threads(7);
	if (!strcmp(what, "fork"))
		forks();
	if (!strcmp(what, "finalize"))
		finalizes();
	if (!strcmp(what, "slow-exit")) {
		shmem_long_p(&pids[me], getpid(), 1);
		atexit(wait_for_the_end_of_others);
		shmem_barrier_all();
		if (me == 1)
			shmem_long_p(&variable, 1, npes);
		shmem_barrier_all();
	}
	if (!strcmp(what, "sizes"))
		shmem_malloc(me == 1 ? 100 : 200);
	wrong_call(what);
	return 0;
}
