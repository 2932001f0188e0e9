// SPDX-License-Identifier: GPL-2.0
/*
 * crowd PROCESSES PIPES: what a node with many processes goes through, while
 * lateness looks.
 *
 * Makes PROCESSES children that wait and touch nothing, forks beside them, fills
 * PIPES pipes with pages of different blocks of 2 MB, which are unmapped then, lets
 * all pipes go, and ends all children at once. Built without anything that writes in
 * a child: each would copy its parent's memory.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCK (2UL << 20)

/* Pages a pipe holds, by default. */
#define PIPE_PAGES 16

/* Forks beside the others. */
#define FORKS 100

static void die(const char *what)
{
	perror(what);
	exit(1);
}

/* fork(2), and the child waits for its end. */
static pid_t child_waiting(void)
{
	long ret = SYS_fork;

	__asm__ volatile("syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 2f\n"
			 "1:\tmov %1, %%eax\n\t"
			 "syscall\n\t"
			 "jmp 1b\n"
			 "2:"
			 : "+a"(ret)
			 : "i"(SYS_pause)
			 : "rcx", "r11", "memory");
	if (ret < 0) {
		errno = -ret;
		die("fork");
	}
	return ret;
}

static void fork_some(void)
{
	int i;

	for (i = 0; i < FORKS; i++) {
		pid_t pid = child_waiting();

		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
}

/* Each page of a pipe pins a block. */
static void pin(int (*pipes)[2], long nr)
{
	size_t len = nr * PIPE_PAGES * BLOCK;
	char *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0), *at = p;
	long i;
	int j;

	if (p == MAP_FAILED)
		die("mmap");
	for (i = 0; i < nr; i++) {
		if (pipe(pipes[i]))
			die("pipe");
		for (j = 0; j < PIPE_PAGES; j++, at += BLOCK) {
			struct iovec page = { .iov_base = at, .iov_len = 4096 };

			*at = 1;
			if (vmsplice(pipes[i][1], &page, 1, 0) != 4096)
				die("vmsplice");
		}
	}
	munmap(p, len);
}

int main(int argc, char **argv)
{
	struct rlimit files = { 1 << 16, 1 << 16 };
	long nr = argc > 1 ? atol(argv[1]) : 0, nr_pipes = argc > 2 ? atol(argv[2]) : 0, i;
	int (*pipes)[2];
	pid_t *pids;

	if (argc != 3 || nr < 0 || nr_pipes < 0) {
		fprintf(stderr, "usage: crowd PROCESSES PIPES\n");
		return 2;
	}
	setrlimit(RLIMIT_NOFILE, &files);
	pids = calloc(nr + 1, sizeof(*pids));
	pipes = calloc(nr_pipes + 1, sizeof(*pipes));
	if (!pids || !pipes)
		die("calloc");
	for (i = 0; i < nr; i++)
		pids[i] = child_waiting();
	fork_some();
	if (nr_pipes) {
		pin(pipes, nr_pipes);
		fork_some();
		usleep(200000);
		for (i = 0; i < nr_pipes; i++) {
			close(pipes[i][0]);
			close(pipes[i][1]);
		}
		usleep(200000);
	}
	for (i = 0; i < nr; i++)
		kill(pids[i], SIGKILL);
	for (i = 0; i < nr; i++)
		waitpid(pids[i], NULL, 0);
	usleep(500000);
	return 0;
}
