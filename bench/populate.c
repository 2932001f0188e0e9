// SPDX-License-Identifier: GPL-2.0
/*
 * A library for LD_PRELOAD: all memory that the program maps from now on is filled in the call, as with MAP_POPULATE.
 *
 * The calls of malloc within the C library go past a library that wraps mmap(2), and brk(2) has no such flag; a process
 * whose later mappings are locked has all of them filled (mlockall(2)). Needs RLIMIT_MEMLOCK without a limit, or CAP_IPC_LOCK.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

__attribute__((constructor)) static void populate(void)
{
	if (!mlockall(MCL_FUTURE))
		return;
	fprintf(stderr, "populate: mlockall: %s\n", strerror(errno));
	_exit(127);
}
