// SPDX-License-Identifier: GPL-2.0
/*
 * Preloaded in front of libhpmmap_jemalloc: a Linux that knows reuse in its worst form.
 * Memory with MAP_UNINITIALIZED is full of junk; accesses after munmap, or where nothing
 * is mapped, fault as usual.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "hpmmap.h"

#define MAP_UNINITIALIZED	0x4000000

void *mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	static void *(*next)(void *, size_t, int, int, int, off_t);
	void *p;

	if (!next)
		next = (void *(*)(void *, size_t, int, int, int, off_t))dlsym(RTLD_NEXT, "mmap");
	p = next(addr, len, prot, flags, fd, off);
	if (p != MAP_FAILED && (flags & MAP_UNINITIALIZED) && (prot & PROT_WRITE))
		memset(p, 0xa5, len);
	return p;
}

int madvise(void *addr, size_t len, int advice)
{
	static int (*next)(void *, size_t, int);

	if (!next)
		next = (int (*)(void *, size_t, int))dlsym(RTLD_NEXT, "madvise");
	if (advice != HPMMAP_MADV_REUSE)
		return next(addr, len, advice);
	if ((uintptr_t)addr % 4096 == 0)
		return 0;
	errno = EINVAL;
	return -1;
}
