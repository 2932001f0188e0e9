// SPDX-License-Identifier: GPL-2.0
/*
 * A neighbour that uses memory as a parallel build does: short processes, each
 * with a heap of its own size that it grows and fills, and a file it writes. Or a
 * command, over and over. Ends with the process that started it, and everything
 * it has started ends with it: all are in its process group.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "noise.h"

/* Files are this part of the memory. */
#define FILE_SHARE	8
#define PIECE		(256UL << 10)

static void end(int signal)
{
	(void)signal;
	kill(0, SIGKILL);
}

/* What one compiler does. */
static void compile(size_t most, uint64_t seed)
{
	uint64_t state = seed;
	/* From a quarter of it up to all. */
	size_t pieces = (most / 4 + next_random(&state) % (most - most / 4)) / PIECE + 1;
	FILE *file = tmpfile();

	if (!file)
		die("tmpfile");
	for (size_t i = 0; i < pieces; i++) {
		char *piece = malloc(PIECE);

		if (!piece)
			die("malloc");
		for (size_t at = 0; at < PIECE; at += 64)
			piece[at] = next_random(&state);
		if (i % FILE_SHARE == 0 && fwrite(piece, PIECE, 1, file) != 1)
			die("temporary file");
	}
	_exit(0);
}

static pid_t start(size_t bytes, uint64_t number, const char *command)
{
	pid_t parent = getpid(), pid = fork();

	if (pid < 0)
		die("fork");
	if (pid)
		return pid;
	signal(SIGTERM, SIG_DFL);
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)
		_exit(1);
	if (!command)
		compile(bytes, number);
	execl("/bin/sh", "sh", "-c", command, NULL);
	die("/bin/sh");
}

void neighbour(size_t bytes, unsigned int processes, const char *command)
{
	const struct timespec moment = { .tv_nsec = 10000000 };
	pid_t parent = getppid();
	uint64_t number = 0;
	int status;

	if (setpgid(0, 0))
		die("setpgid");
	signal(SIGTERM, end);
	if (prctl(PR_SET_PDEATHSIG, SIGTERM) || getppid() != parent)
		die("the process that started this has ended");
	for (unsigned int i = 0; i < (command ? 1 : processes); i++)
		start(bytes / processes, number++, command);
	while (waitpid(-1, &status, 0) > 0) {
		if (!WIFEXITED(status) || WEXITSTATUS(status)) {
			fprintf(stderr, "bench-noise: the neighbour's %s ended with status %d\n",
				command ? "command" : "process",
				WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
			kill(0, SIGKILL);
		}
		nanosleep(&moment, NULL);
		start(bytes / processes, number++, command);
	}
	die("waitpid");
}
