// SPDX-License-Identifier: GPL-2.0
/*
 * Preloaded into the ranks of an MPI program, it stands for the module where there is none, and makes hosts of one:
 * FAKE_HOSTS=N puts every N ranks on a host of their own.
 *
 * Windows show the variables of the program and of libhpmmap_mpi, and what malloc() returns, all of which are shared
 * memory here. They show neither stacks nor other mappings. With FAKE_POOLS_ONLY they show what malloc() returns alone, as
 * where a kernel refuses windows onto ordinary memory. Built with the compiler of an MPI library.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <malloc.h>
#include <mpi.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hpmmap_xpmem.h"

#define PAGE		((size_t)4096)
/* The file that has all of it, open in each rank under this number. */
#define SHARED_FD	900
#define ARENA_BYTES	((size_t)1 << 30)
#define CLASSES		32
/* The program and libhpmmap_mpi. Their variables are behind the arena in the file. */
#define OBJECTS		2
#define WINDOWS		256
#define VARIABLES_BYTES	(ARENA_BYTES / OBJECTS)

/* At the head of the arena, which is the head of the file. */
static struct arena {
	uintptr_t start;
	struct {
		uintptr_t start;
		size_t bytes;
	} variables[OBJECTS];
	pthread_mutex_t lock;
	size_t used;
	struct chunk *free[CLASSES];
} *arena;

/* Before the memory that malloc() returns. */
struct chunk {
	struct chunk *next;
	uint64_t class;
};

__attribute__((noreturn)) static void die(const char *what)
{
	dprintf(2, "fake_windows: %s: %m\n", what);
	_exit(1);
}

/* ---- Memory ------------------------------------------------------------------- */

/* Before any other constructor, and before the first allocation. */
static void make_arena(void)
{
	int fd = memfd_create("arena", 0);
	void *memory;

	if (fd < 0 || dup2(fd, SHARED_FD) < 0 || close(fd) || ftruncate(SHARED_FD, (off_t)(2 * ARENA_BYTES)))
		die("memfd_create");
	memory = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, SHARED_FD, 0);
	if (memory == MAP_FAILED)
		die("mmap");
	arena = memory;
	arena->start = (uintptr_t)memory;
	arena->used = PAGE;
	pthread_mutex_init(&arena->lock, NULL);
}

static void *allocate(size_t bytes)
{
	unsigned int class = bytes <= 16 ? 0 : 60 - (unsigned int)__builtin_clzl(bytes - 1);
	struct chunk *chunk;

	if (!arena)
		make_arena();
	if (bytes > ARENA_BYTES / 2) {
		errno = ENOMEM;
		return NULL;
	}
	pthread_mutex_lock(&arena->lock);
	chunk = arena->free[class];
	if (chunk) {
		arena->free[class] = chunk->next;
	} else {
		if (arena->used + sizeof(*chunk) + ((size_t)16 << class) > ARENA_BYTES)
			die("the arena is full");
		chunk = (struct chunk *)((char *)arena + arena->used);
		chunk->class = class;
		arena->used += sizeof(*chunk) + ((size_t)16 << class);
	}
	pthread_mutex_unlock(&arena->lock);
	return chunk + 1;
}

void *malloc(size_t bytes)
{
	return allocate(bytes);
}

void free(void *memory)
{
	struct chunk *chunk = (struct chunk *)memory - 1;

	/* Of a pointer that is aligned, the class is above all classes and next is the whole. */
	if (!memory)
		return;
	if (chunk->class >= CLASSES)
		chunk = chunk->next;
	pthread_mutex_lock(&arena->lock);
	chunk->next = arena->free[chunk->class];
	arena->free[chunk->class] = chunk;
	pthread_mutex_unlock(&arena->lock);
}

size_t malloc_usable_size(void *memory)
{
	struct chunk *chunk = (struct chunk *)memory - 1;

	if (!memory)
		return 0;
	if (chunk->class >= CLASSES)
		return ((size_t)16 << chunk->next->class) - (size_t)((char *)memory - (char *)(chunk->next + 1));
	return (size_t)16 << chunk->class;
}

void *calloc(size_t n, size_t size)
{
	size_t bytes;
	void *memory = __builtin_mul_overflow(n, size, &bytes) ? NULL : allocate(bytes);

	return memory ? memset(memory, 0, bytes) : NULL;
}

void *realloc(void *memory, size_t bytes)
{
	size_t had = malloc_usable_size(memory);
	void *more;

	if (memory && bytes <= had)
		return memory;
	more = allocate(bytes);
	if (more && memory)
		memcpy(more, memory, had);
	if (more)
		free(memory);
	return more;
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
	struct chunk *whole, *chunk;
	char *memory = allocate(bytes + alignment + sizeof(*chunk));

	if (!memory)
		return NULL;
	whole = (struct chunk *)memory - 1;
	memory = (char *)(((uintptr_t)memory + sizeof(*chunk) + alignment - 1) & -alignment);
	chunk = (struct chunk *)memory - 1;
	chunk->next = whole;
	chunk->class = CLASSES;
	return memory;
}

void *memalign(size_t alignment, size_t bytes)
{
	return aligned_alloc(alignment, bytes);
}

int posix_memalign(void **memory, size_t alignment, size_t bytes)
{
	*memory = aligned_alloc(alignment, bytes);
	return *memory ? 0 : ENOMEM;
}

/* Its variables, without what is read-only once it is linked. The first object is the program. */
static int share_variables(struct dl_phdr_info *info, size_t size, void *first)
{
	uintptr_t start = 0, end = 0, constant = 0;
	int i = !*(bool *)first;
	off_t at = (off_t)(ARENA_BYTES + (size_t)i * VARIABLES_BYTES);

	(void)size;
	*(bool *)first = false;
	if (i && !strstr(info->dlpi_name, "/libhpmmap_mpi.so"))
		return 0;
	for (int header = 0; header < info->dlpi_phnum; header++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[header];
		uintptr_t first = info->dlpi_addr + part->p_vaddr;

		if (part->p_type == PT_LOAD && part->p_flags & PF_W) {
			start = first;
			end = (first + part->p_memsz + PAGE - 1) & -PAGE;
		} else if (part->p_type == PT_GNU_RELRO) {
			constant = first + part->p_memsz;
		}
	}
	start = ((start > constant ? start : constant) + PAGE - 1) & -PAGE;
	if (pwrite(SHARED_FD, (void *)start, end - start, at) != (ssize_t)(end - start) ||
	    mmap((void *)start, end - start, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, SHARED_FD, at) == MAP_FAILED)
		die("variables");
	arena->variables[i].start = start;
	arena->variables[i].bytes = end - start;
	return 0;
}

static __attribute__((constructor)) void share(void)
{
	bool first = true;

	if (!arena)
		make_arena();
	dl_iterate_phdr(share_variables, &first);
}

/* ---- Windows -------------------------------------------------------------------- */

/* Ranks that share a host have windows; else the program has tested nothing, and fails. */
static int is_wanted, is_used;

static __attribute__((destructor)) void must_be_used(void)
{
	if (is_wanted && !is_used)
		die("no window was made");
}

/* What is attached, until it is detached. */
static struct {
	uint64_t vaddr;
	size_t size;
} windows[WINDOWS];
static pthread_mutex_t windows_lock = PTHREAD_MUTEX_INITIALIZER;

/* Changes the entry of one address; 0 is a free entry. */
static size_t change(uint64_t from, uint64_t to, size_t size)
{
	size_t had, i = 0;

	pthread_mutex_lock(&windows_lock);
	while (i < WINDOWS && windows[i].vaddr != from)
		i++;
	if (i == WINDOWS)
		die("no such window");
	had = windows[i].size;
	windows[i].vaddr = to;
	windows[i].size = size;
	pthread_mutex_unlock(&windows_lock);
	return had;
}

/* Shows what of another process's memory lies in the window. */
static void show(int fd, const struct xpmem_cmd_attach *window, uintptr_t start, size_t bytes, off_t at)
{
	if (start >= (uintptr_t)window->offset && start + bytes <= (uintptr_t)window->offset + window->size &&
	    mmap((void *)(window->vaddr + (start - (uintptr_t)window->offset)), bytes, PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_FIXED, fd, at) == MAP_FAILED)
		die("a window");
}

static int attach(struct xpmem_cmd_attach *window)
{
	struct arena theirs;
	char name[64];
	int fd;

	snprintf(name, sizeof(name), "/proc/%d/fd/%d", (int)window->apid, SHARED_FD);
	fd = open(name, O_RDWR | O_CLOEXEC);
	if (fd < 0 || pread(fd, &theirs, sizeof(theirs), 0) != sizeof(theirs))
		die(name);
	if (mmap((void *)window->vaddr, window->size, PROT_NONE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED)
		return -1;
	is_used = 1;
	change(0, window->vaddr, window->size);
	show(fd, window, theirs.start, ARENA_BYTES, 0);
	for (size_t i = 0; i < OBJECTS && !getenv("FAKE_POOLS_ONLY"); i++)
		show(fd, window, theirs.variables[i].start, theirs.variables[i].bytes, (off_t)(ARENA_BYTES + i * VARIABLES_BYTES));
	close(fd);
	return 0;
}

int open(const char *name, int flags, ...)
{
	static int (*next)(const char *, int, ...);
	va_list rest;
	int mode;

	va_start(rest, flags);
	mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0;
	va_end(rest);
	if (!next)
		next = dlsym(RTLD_NEXT, "open");
	return next(strcmp(name, "/dev/xpmem") ? name : "/dev/null", flags, mode);
}

int ioctl(int fd, unsigned long command, ...)
{
	static int (*next)(int, unsigned long, ...);
	va_list rest;
	void *arg;

	va_start(rest, command);
	arg = va_arg(rest, void *);
	va_end(rest);
	/* A segment and the right to it are the number of its process. */
	switch (command) {
	case XPMEM_CMD_MAKE:
		((struct xpmem_cmd_make *)arg)->segid = getpid();
		return 0;
	case XPMEM_CMD_GET:
		((struct xpmem_cmd_get *)arg)->apid = ((struct xpmem_cmd_get *)arg)->segid;
		return 0;
	case XPMEM_CMD_ATTACH:
		return attach(arg);
	case XPMEM_CMD_DETACH:
		return munmap(*(void **)arg, change(*(uint64_t *)arg, 0, 0));
	case XPMEM_CMD_RELEASE:
		return 0;
	}
	if (!next)
		next = dlsym(RTLD_NEXT, "ioctl");
	return next(fd, command, arg);
}

/* ---- Hosts ----------------------------------------------------------------------- */

int PMPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *part)
{
	const char *ranks = getenv("FAKE_HOSTS");
	int rank, size, err;

	(void)type;
	(void)info;
	PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
	err = PMPI_Comm_split(comm, ranks ? rank / atoi(ranks) : 0, key, part);
	if (err == MPI_SUCCESS) {
		PMPI_Comm_size(*part, &size);
		is_wanted |= size > 1;
	}
	return err;
}
