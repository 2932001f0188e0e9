// SPDX-License-Identifier: GPL-2.0
/*
 * Count the instructions of OpenSHMEM's calls: steps. PE 0 runs under a tracer that executes it instruction by
 * instruction between two breakpoints. What is counted begins with the arguments and ends with the return.
 */
#include <err.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define CASES(X) \
	X("nothing", ) \
	X("shmem_long_p, heap", shmem_long_p(heap, 1, pe)) \
	X("shmem_long_p, variable", shmem_long_p(&variable, 1, pe)) \
	X("shmem_long_put, heap", shmem_long_put(heap, &local, 1, pe)) \
	X("shmem_put64, heap", shmem_put64(heap, &local, 1, pe)) \
	X("shmem_putmem, heap", shmem_putmem(heap, &local, 8, pe)) \
	X("shmem_long_g, heap", shmem_long_g(heap, pe)) \
	X("shmem_long_atomic_fetch_add, heap", shmem_long_atomic_fetch_add(heap, 1, pe)) \
	X("shmem_fence", shmem_fence()) \
	X("shmem_quiet", shmem_quiet())

#define NAME(name, call)	name,
static const char *const names[] = { CASES(NAME) };
static long variable;

static int count(pid_t pid)
{
	int status, nr = 0;
	long steps;

	while (waitpid(pid, &status, 0) == pid && WIFSTOPPED(status)) {
		int sig = WSTOPSIG(status);

		if (sig != SIGTRAP) {
			ptrace(PTRACE_CONT, pid, NULL, (void *)(long)sig);
			continue;
		}
		/* The first breakpoint of a pair; -1: the second one is an instruction, too. */
		for (steps = -1;; steps++) {
			siginfo_t info;

			if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) != 0 || waitpid(pid, &status, 0) != pid)
				err(1, "cannot step");
			if (ptrace(PTRACE_GETSIGINFO, pid, NULL, &info) != 0)
				err(1, "cannot look");
			/* A breakpoint is not a step. */
			if (info.si_code == SI_KERNEL)
				break;
		}
		printf("%s: %ld\n", names[nr++], steps + 1);
		ptrace(PTRACE_CONT, pid, NULL, NULL);
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int main(int argc, char **argv)
{
	const char *rank = getenv("OMPI_COMM_WORLD_LOCAL_RANK");
	long *heap, local = 5;
	int pe;

	(void)argc;
	if (rank && !strcmp(rank, "0") && !getenv("STEPS_TRACED")) {
		pid_t child;

		setenv("STEPS_TRACED", "1", 1);
		child = fork();
		if (child == 0) {
			execv("/proc/self/exe", argv);
			err(1, "exec");
		}
		if (ptrace(PTRACE_SEIZE, child, NULL, NULL) != 0)
			err(1, "cannot trace");
		return count(child);
	}
	begin();
	heap = shmem_malloc(64);
	pe = npes - 1;
#define RUN(name, call) \
	do { \
		__asm__ volatile("int3" ::: "memory"); \
		call; \
		__asm__ volatile("int3" ::: "memory"); \
	} while (0);
	if (me == 0) {
		CASES(RUN)
		CHECK(shmem_long_g(heap, pe) == 6);
	}
	shmem_barrier_all();
	return end();
}
