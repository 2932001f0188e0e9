// SPDX-License-Identifier: GPL-2.0
/*
 * Random sequences of calls, guided by their coverage of the kernel.
 *
 * Registered workers of two ordinary users make up sequences, "programs", of calls
 * for memory that the module hooks, of those it does not see, and of those that work
 * on the memory of another process: userfaultfd, io_uring, process_madvise,
 * process_vm_writev, move_pages, /proc/PID/mem. Each runs in a child of the
 * worker, spread over three actors: the child itself, a thread of it, and a child of
 * its own. Programs that reach new edges of the kernel's code (KCOV) are kept and
 * varied further. Without KCOV all are new.
 *
 * A failure is a problem that the kernel reports. Besides, no program may end a worker,
 * outlive SIGKILL, or change memory that it does not name: the worker's, and some of
 * the child's, are compared after each.
 *
 * Before it runs, each program is written to a file of the worker, in a ring of the
 * last ones, which survives a crash of the machine: --print FILE shows them,
 * --replay FILE runs them again, one after the other.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <grp.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <linux/kcov.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "hpmmap.h"

#define PAGE		4096UL
#define BLOCK		(2UL << 20)
/* Where the calls work; the kernel would choose this place for nobody. */
#define WINDOW		0x100000000000UL
#define WINDOW_BYTES	(12 * BLOCK)
/* Mapped when a program begins. */
#define MAPPED_BYTES	(8 * BLOCK)
/* Memory that no call may change, before it. */
#define CANARY_BYTES	(2 * BLOCK)
#define CANARY		(WINDOW - 4 * BLOCK)
#define MAX_CALLS	20
#define MAX_WORKERS	8
#define CORPUS		2048
#define EDGES		(1U << 20)
#define COVER_WORDS	(64UL << 10)
#define RING		64
#define NR_FDS		8
/* The range is in the memory that no call changes. */
#define NAMES_CANARY	128
/* A program that waits, for a userfaultfd that nobody serves, is ended. */
#define PROGRAM_MS	600
/* On a busy machine with a slow kernel a process may take so long to end. */
#define KILL_SECONDS	120

#ifndef UFFD_FEATURE_WP_ASYNC
#define UFFD_FEATURE_WP_ASYNC	(1 << 15)
#endif
#ifndef UFFD_FEATURE_WP_UNPOPULATED
#define UFFD_FEATURE_WP_UNPOPULATED (1 << 13)
#endif
#define SYS_MSEAL	462
#define SYS_CACHESTAT	451

enum {
	ACTOR_MAIN,
	ACTOR_THREAD,
	ACTOR_CHILD,
	NR_ACTORS,
};

/* What an argument stands for: how it is made up, and varied. */
enum kind {
	NONE,
	ADDR,	/* offset in the window */
	LEN,
	PROT,
	MAPF,	/* flags of mmap */
	REMAPF,
	ADVICE,
	FD,	/* slot in the table of descriptors */
	UFFD,	/* the same, most often where a userfaultfd is */
	URING,	/* the same, an io_uring */
	MODE,	/* of UFFDIO_REGISTER */
	WHO,	/* another process */
	BITS,	/* some bits */
	ANY,
};

enum op {
	OP_MMAP, OP_MUNMAP, OP_MPROTECT, OP_PKEY_MPROTECT, OP_MREMAP, OP_MADVISE, OP_BRK,
	OP_MLOCK, OP_MUNLOCK, OP_MLOCKALL, OP_MBIND, OP_SET_MEMPOLICY, OP_MOVE_PAGES, OP_MIGRATE_PAGES,
	OP_REMAP_FILE_PAGES, OP_MSYNC, OP_MINCORE, OP_WRITE, OP_READ, OP_PIPE_WRITE, OP_PIPE_READ,
	OP_VMSPLICE, OP_CLOSE, OP_FORK, OP_VFORK, OP_CLONE_VM, OP_SPAWN, OP_EXEC, OP_KILL,
	OP_VM_READV, OP_VM_WRITEV, OP_PROCESS_MADVISE, OP_PROC_MEM, OP_PROC_READ, OP_CLEAR_REFS, OP_GETFD,
	OP_UFFD, OP_UFFD_REGISTER, OP_UFFD_UNREGISTER, OP_UFFD_PROTECT, OP_UFFD_COPY, OP_UFFD_ZERO, OP_UFFD_READ,
	OP_URING, OP_URING_MADVISE, OP_URING_RW, OP_URING_BUFFERS,
	OP_LAUNCH, OP_INFO, OP_POOL, OP_LIMIT, OP_PRCTL, OP_RLIMIT, OP_SHM, OP_MEMFD, OP_SEAL, OP_SLEEP,
	NR_OPS,
};

static const struct {
	const char *name;
	unsigned int weight;
	enum kind kinds[6];
} ops[NR_OPS] = {
	[OP_MMAP] = { "mmap", 24, { ADDR, LEN, PROT, MAPF, FD } },
	[OP_MUNMAP] = { "munmap", 10, { ADDR, LEN } },
	[OP_MPROTECT] = { "mprotect", 10, { ADDR, LEN, PROT } },
	[OP_PKEY_MPROTECT] = { "pkey_mprotect", 1, { ADDR, LEN, PROT, BITS } },
	[OP_MREMAP] = { "mremap", 12, { ADDR, LEN, LEN, REMAPF, ADDR } },
	[OP_MADVISE] = { "madvise", 12, { ADDR, LEN, ADVICE } },
	[OP_BRK] = { "brk", 4, { LEN, BITS } },
	[OP_MLOCK] = { "mlock2", 4, { ADDR, LEN, BITS } },
	[OP_MUNLOCK] = { "munlock", 3, { ADDR, LEN, BITS } },
	[OP_MLOCKALL] = { "mlockall", 1, { BITS } },
	[OP_MBIND] = { "mbind", 3, { ADDR, LEN, BITS, BITS, BITS } },
	[OP_SET_MEMPOLICY] = { "set_mempolicy", 1, { BITS, BITS } },
	[OP_MOVE_PAGES] = { "move_pages", 2, { WHO, ADDR, BITS, BITS } },
	[OP_MIGRATE_PAGES] = { "migrate_pages", 1, { WHO, BITS } },
	[OP_REMAP_FILE_PAGES] = { "remap_file_pages", 1, { ADDR, LEN, ANY } },
	[OP_MSYNC] = { "msync", 1, { ADDR, LEN, BITS } },
	[OP_MINCORE] = { "mincore", 1, { ADDR, LEN } },
	[OP_WRITE] = { "write", 24, { ADDR, LEN, BITS } },
	[OP_READ] = { "read", 8, { ADDR, LEN, BITS } },
	[OP_PIPE_WRITE] = { "pipe-write", 3, { ADDR, LEN } },
	[OP_PIPE_READ] = { "pipe-read", 3, { ADDR, LEN } },
	[OP_VMSPLICE] = { "vmsplice", 4, { ADDR, LEN, BITS } },
	[OP_CLOSE] = { "close", 3, { FD } },
	[OP_FORK] = { "fork", 8, { BITS, ADDR, LEN } },
	[OP_VFORK] = { "vfork", 1, { BITS } },
	[OP_CLONE_VM] = { "clone-vm", 2, { BITS } },
	[OP_SPAWN] = { "spawn", 2, { BITS } },
	[OP_EXEC] = { "execve", 1, { BITS } },
	[OP_KILL] = { "kill", 2, { BITS } },
	[OP_VM_READV] = { "process_vm_readv", 3, { WHO, ADDR, LEN } },
	[OP_VM_WRITEV] = { "process_vm_writev", 3, { WHO, ADDR, LEN } },
	[OP_PROCESS_MADVISE] = { "process_madvise", 5, { WHO, ADDR, LEN, ADVICE } },
	[OP_PROC_MEM] = { "proc-mem", 3, { WHO, ADDR, LEN, BITS } },
	[OP_PROC_READ] = { "proc-read", 3, { WHO, BITS } },
	[OP_CLEAR_REFS] = { "clear_refs", 1, { WHO, BITS } },
	[OP_GETFD] = { "pidfd_getfd", 3, { WHO, FD, FD } },
	[OP_UFFD] = { "userfaultfd", 5, { UFFD, BITS } },
	[OP_UFFD_REGISTER] = { "uffd-register", 8, { UFFD, ADDR, LEN, MODE } },
	[OP_UFFD_UNREGISTER] = { "uffd-unregister", 4, { UFFD, ADDR, LEN, BITS } },
	[OP_UFFD_PROTECT] = { "uffd-writeprotect", 4, { UFFD, ADDR, LEN, BITS } },
	[OP_UFFD_COPY] = { "uffd-copy", 4, { UFFD, ADDR, ADDR, LEN, BITS } },
	[OP_UFFD_ZERO] = { "uffd-zeropage", 2, { UFFD, ADDR, LEN, BITS } },
	[OP_UFFD_READ] = { "uffd-read", 1, { UFFD } },
	[OP_URING] = { "io_uring", 3, { URING, BITS } },
	[OP_URING_MADVISE] = { "uring-madvise", 5, { URING, ADDR, LEN, ADVICE, BITS } },
	[OP_URING_RW] = { "uring-rw", 4, { URING, ADDR, LEN, FD, BITS } },
	[OP_URING_BUFFERS] = { "uring-buffers", 4, { URING, ADDR, LEN, BITS } },
	[OP_LAUNCH] = { "ioctl-launch", 3, { BITS, BITS, BITS } },
	[OP_INFO] = { "ioctl-info", 1, { BITS } },
	[OP_POOL] = { "ioctl-pool", 1, { BITS, ANY, LEN } },
	[OP_LIMIT] = { "ioctl-limit", 1, { ANY, ANY } },
	[OP_PRCTL] = { "prctl", 2, { BITS, BITS, ADDR, LEN } },
	[OP_RLIMIT] = { "setrlimit", 1, { BITS, LEN } },
	[OP_SHM] = { "shmat", 1, { ADDR, LEN, BITS } },
	[OP_MEMFD] = { "memfd", 2, { FD, LEN } },
	[OP_SEAL] = { "mseal", 1, { ADDR, LEN } },
	[OP_SLEEP] = { "sleep", 2, { BITS } },
};

struct call {
	uint8_t op, actor, pad[6];
	uint64_t a[6];
};

struct program {
	uint64_t number, seed;
	uint32_t worker, nr;
	struct call calls[MAX_CALLS];
};

/* Linux's memory, which the workers and all their children share. */
static struct shared {
	uint32_t deadline_passed;
	uint32_t corpus_lock, nr_corpus;
	uint64_t programs, edges, kept, ended;
	struct program corpus[CORPUS];
	uint8_t edge[EDGES];
	struct worker {
		/* Of the actors of the program that runs. */
		pid_t pid[NR_ACTORS];
		uint32_t mismatch;
		struct mailbox {
			uint32_t full;
			struct call call;
		} mailbox[NR_ACTORS];
	} worker[MAX_WORKERS];
} *shared;

static struct {
	uint64_t seed;
	unsigned int seconds, workers;
	int worker, shared_fd, kcov_fd, ring_fd;
	const char *dir, *replay, *print;
} opt = { .seed = 1, .seconds = 60, .workers = 4, .worker = -1, .kcov_fd = -1, .ring_fd = -1 };

static struct worker *me;
static uint64_t *cover;
static char self_path[PATH_MAX];
static uint64_t rng;

static uint64_t next(void)
{
	rng ^= rng >> 12;
	rng ^= rng << 25;
	rng ^= rng >> 27;
	return rng * 0x2545f4914f6cdd1dULL;
}

static unsigned int rnd(unsigned int n)
{
	return next() % n;
}

static bool one_in(unsigned int n)
{
	return rnd(n) == 0;
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

static void sleep_ms(unsigned int ms)
{
	struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000L };

	nanosleep(&t, NULL);
}

/* ---- Programs ----------------------------------------------------------------- */

static const int prots[] = {
	PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE, PROT_READ, PROT_NONE, PROT_WRITE,
	PROT_READ | PROT_EXEC, PROT_READ | PROT_WRITE | PROT_EXEC, PROT_READ | PROT_GROWSDOWN,
};

#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)
static const unsigned int map_flags[] = {
	ANON | MAP_FIXED, ANON | MAP_FIXED, ANON | MAP_FIXED, ANON | MAP_FIXED | MAP_NORESERVE,
	ANON | MAP_FIXED | MAP_POPULATE, ANON | MAP_FIXED | 0x4000000 /* MAP_UNINITIALIZED */,
	ANON | MAP_FIXED_NOREPLACE, ANON, ANON | MAP_FIXED | MAP_GROWSDOWN | MAP_STACK,
	ANON | MAP_FIXED | MAP_LOCKED, ANON | MAP_HUGETLB | MAP_FIXED, ANON | MAP_32BIT,
	MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, MAP_PRIVATE | MAP_FIXED, MAP_SHARED | MAP_FIXED,
};

static const unsigned int advices[] = {
	MADV_DONTNEED, MADV_DONTNEED, MADV_FREE, MADV_DONTFORK, MADV_DOFORK, MADV_WIPEONFORK, MADV_KEEPONFORK,
	MADV_MERGEABLE, MADV_UNMERGEABLE, MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_COLD, MADV_PAGEOUT, MADV_WILLNEED,
	MADV_POPULATE_READ, MADV_POPULATE_WRITE, 24 /* DONTNEED_LOCKED */, 25 /* COLLAPSE */, MADV_REMOVE,
	MADV_SEQUENTIAL, MADV_DONTDUMP, MADV_HWPOISON, 101 /* SOFT_OFFLINE */, HPMMAP_MADV_REUSE, 102,
};

static uint64_t some_address(void)
{
	uint64_t at = rnd(WINDOW_BYTES / BLOCK) * BLOCK;

	switch (rnd(6)) {
	case 0: case 1: return at;
	case 2: return at + PAGE;
	case 3: return at + BLOCK - PAGE;
	case 4: return at + rnd(512) * PAGE;
	default: return one_in(8) ? at + rnd(BLOCK) : at + 256 * PAGE;
	}
}

static uint64_t some_length(void)
{
	switch (rnd(8)) {
	case 0: return PAGE;
	case 1: return (1 + rnd(8)) * PAGE;
	case 2: case 3: return BLOCK;
	case 4: return (1 + rnd(4)) * BLOCK;
	case 5: return BLOCK + rnd(512) * PAGE;
	case 6: return (1 + rnd(511)) * PAGE;
	default: return one_in(4) ? next() >> rnd(64) : BLOCK / 2;
	}
}

#define PICK(list) ((list)[rnd(sizeof(list) / sizeof((list)[0]))])

static uint64_t make_up(enum kind kind)
{
	switch (kind) {
	case ADDR: return some_address();
	case LEN: return some_length();
	case PROT: return PICK(prots);
	case MAPF: return PICK(map_flags);
	case REMAPF: return rnd(8);
	case ADVICE: return one_in(40) ? rnd(30) : PICK(advices);
	case FD: return rnd(NR_FDS);
	case UFFD: return one_in(3) ? rnd(NR_FDS) : 0;
	case URING: return one_in(3) ? rnd(NR_FDS) : 1;
	/* Write-protection alone is what memory of the module can be registered for. */
	case MODE: return (one_in(2) ? UFFDIO_REGISTER_MODE_WP : 1 + rnd(7)) | (one_in(4) ? NAMES_CANARY : 0);
	case WHO: return rnd(16);
	case BITS: return rnd(256);
	case ANY: return next() >> rnd(64);
	case NONE: break;
	}
	return 0;
}

static unsigned int some_op(void)
{
	static unsigned int sum;
	unsigned int n, i;

	if (!sum)
		for (i = 0; i < NR_OPS; i++)
			sum += ops[i].weight;
	n = rnd(sum);
	for (i = 0; n >= ops[i].weight; i++)
		n -= ops[i].weight;
	return i;
}

static void make_call(struct call *call)
{
	memset(call, 0, sizeof(*call));
	call->op = some_op();
	call->actor = one_in(3) ? 1 + rnd(2) : ACTOR_MAIN;
	for (int i = 0; i < 6; i++)
		call->a[i] = make_up(ops[call->op].kinds[i]);
}

static void insert_call(struct program *p, unsigned int at, const struct call *call)
{
	if (p->nr == MAX_CALLS)
		return;
	memmove(p->calls + at + 1, p->calls + at, (p->nr - at) * sizeof(*call));
	p->calls[at] = *call;
	p->nr++;
}

static void vary_call(struct call *call)
{
	unsigned int n = rnd(7), other = rnd(6);

	if (n == 6) {
		call->actor = rnd(NR_ACTORS);
	} else if (one_in(4)) {
		/* The same place as another argument, or near. */
		call->a[n] = call->a[other] + (one_in(2) ? 0 : PAGE);
	} else {
		call->a[n] = make_up(ops[call->op].kinds[n]);
	}
}

static void vary(struct program *p, const struct program *other)
{
	struct call call;
	unsigned int at;

	for (unsigned int n = 1 + rnd(4); n; n--) {
		at = rnd(p->nr);
		switch (rnd(8)) {
		case 0: case 1:
			make_call(&call);
			insert_call(p, rnd(p->nr + 1), &call);
			break;
		case 2:
			if (p->nr > 2)
				memmove(p->calls + at, p->calls + at + 1, (--p->nr - at) * sizeof(call));
			break;
		case 3:
			call = p->calls[at];
			insert_call(p, at, &call);
			break;
		case 4:
			/* The end of another one. */
			for (at = rnd(other->nr); at < other->nr && p->nr < MAX_CALLS; at++)
				p->calls[p->nr++] = other->calls[at];
			break;
		default:
			vary_call(&p->calls[at]);
		}
	}
}

static void lock_corpus(void)
{
	/* Its holder may be killed together with its worker only at the end. */
	while (__atomic_exchange_n(&shared->corpus_lock, 1, __ATOMIC_ACQUIRE))
		sched_yield();
}

static void unlock_corpus(void)
{
	__atomic_store_n(&shared->corpus_lock, 0, __ATOMIC_RELEASE);
}

static void next_program(struct program *p)
{
	struct program other;
	unsigned int nr = __atomic_load_n(&shared->nr_corpus, __ATOMIC_ACQUIRE);

	if (nr < 4 || one_in(4)) {
		p->nr = 3 + rnd(MAX_CALLS - 3);
		for (unsigned int i = 0; i < p->nr; i++)
			make_call(&p->calls[i]);
		return;
	}
	lock_corpus();
	*p = shared->corpus[rnd(nr)];
	other = shared->corpus[rnd(nr)];
	unlock_corpus();
	vary(p, &other);
}

static void keep(const struct program *p)
{
	unsigned int at;

	lock_corpus();
	at = shared->nr_corpus < CORPUS ? shared->nr_corpus : rnd(CORPUS);
	shared->corpus[at] = *p;
	if (shared->nr_corpus < CORPUS)
		__atomic_store_n(&shared->nr_corpus, shared->nr_corpus + 1, __ATOMIC_RELEASE);
	unlock_corpus();
	__atomic_add_fetch(&shared->kept, 1, __ATOMIC_RELAXED);
}

static void print_program(const struct program *p)
{
	static const char *const actors[] = { "main", "thread", "child" };

	printf("program %llu of worker %u\n", (unsigned long long)p->number, p->worker);
	for (unsigned int i = 0; i < p->nr; i++) {
		const struct call *call = &p->calls[i];

		printf("  %-6s %s", actors[call->actor % NR_ACTORS], ops[call->op % NR_OPS].name);
		for (int n = 0; n < 6 && ops[call->op % NR_OPS].kinds[n] != NONE; n++)
			printf(" %#llx", (unsigned long long)call->a[n]);
		printf("\n");
	}
}

/* ---- Calls -------------------------------------------------------------------- */

static int fds[NR_FDS] = { -1, -1, -1, -1, -1, -1, -1, -1 };
static int pipe_fd[2] = { -1, -1 };
static __thread sigjmp_buf *recover;

static void on_fault(int sig)
{
	if (recover)
		siglongjmp(*recover, sig);
	_exit(128 + sig);
}

static void *at(uint64_t offset)
{
	return (void *)(WINDOW + offset % WINDOW_BYTES);
}

/* So that nothing reaches beyond the window, but for a length that is nonsense. */
static size_t within(uint64_t offset, uint64_t length)
{
	offset %= WINDOW_BYTES;
	return length <= WINDOW_BYTES && offset + length > WINDOW_BYTES ? WINDOW_BYTES - offset : length;
}

/* The same where what is changed would be this process's own. */
static size_t bounded(uint64_t offset, uint64_t length)
{
	offset %= WINDOW_BYTES;
	return length > WINDOW_BYTES - offset ? WINDOW_BYTES - offset : length;
}

static int take_fd(uint64_t slot, int fd)
{
	slot %= NR_FDS;
	if (fd >= 0) {
		if (fds[slot] >= 0)
			close(fds[slot]);
		fds[slot] = fd;
	}
	return fd;
}

static int fd_of(uint64_t slot)
{
	return fds[slot % NR_FDS];
}

/* A process: one of this program, the worker, or one of another worker's. */
static pid_t who(uint64_t n)
{
	const struct worker *other = &shared->worker[(n / 4) % opt.workers];

	switch (n % 4) {
	case 0: return me->pid[ACTOR_MAIN];
	case 1: return me->pid[ACTOR_CHILD] ?: getppid();
	case 2: return getppid();
	default: return other->pid[n & 8 ? ACTOR_CHILD : ACTOR_MAIN] ?: getpid();
	}
}

/* Every so many bytes: all would take too long. */
static void touch(uint64_t offset, uint64_t length, uint64_t how, bool write)
{
	size_t step = how & 1 ? PAGE : how & 2 ? 16 * PAGE : BLOCK / 2;
	volatile uint8_t *p = at(offset);
	volatile size_t i;
	sigjmp_buf here;

	length = bounded(offset, length);
	for (i = 0; i < length; i += step) {
		if (sigsetjmp(here, 1)) {
			/* The next page may be there. */
			recover = NULL;
			if (how & 4)
				return;
			continue;
		}
		recover = &here;
		if (write)
			p[i] = how;
		else
			(void)p[i];
		recover = NULL;
	}
}

static int clone_child(void *arg)
{
	sleep_ms(*(int *)arg);
	return 0;
}

static void do_clone_vm(unsigned int how)
{
	static char stacks[NR_ACTORS][16384] __attribute__((aligned(16)));
	static int ms;
	static unsigned int turn;
	int flags = CLONE_VM | (how & 1 ? SIGCHLD : 0) | (how & 2 ? CLONE_VFORK : 0) | (how & 4 ? CLONE_FILES : 0);

	ms = how % 20;
	clone(clone_child, stacks[turn++ % NR_ACTORS] + 16384, flags, &ms);
}

static void do_fork(const struct call *c)
{
	pid_t pid = c->a[0] & 1 ? fork() : syscall(SYS_fork);

	if (pid)
		return;
	touch(c->a[1], c->a[2], c->a[0] >> 1, true);
	if (c->a[0] & 16)
		munmap(at(c->a[1]), bounded(c->a[1], c->a[2]));
	if (c->a[0] & 32)
		sleep_ms(c->a[0] & 64 ? 50 : 2000);
	_exit(0);
}

static void do_exec(unsigned int how)
{
	char *const argv[] = { self_path, "--idle", how & 4 ? "x" : NULL, NULL }, *const envp[] = { NULL };

	execve(how & 3 ? self_path : "/bin/true", argv, envp);
}

static void do_spawn(unsigned int how)
{
	pid_t pid = how & 1 ? fork() : vfork();

	if (!pid) {
		do_exec(how >> 1);
		_exit(1);
	}
	if (pid > 0 && how & 64) {
		sleep_ms(how % 16);
		kill(pid, SIGKILL);
	}
}

static void do_vm_rw(const struct call *c, bool write)
{
	static char buffer[256 << 10];
	size_t length = c->a[2] % sizeof(buffer) + 1;
	struct iovec local = { buffer, length }, remote = { at(c->a[1]), bounded(c->a[1], length) };

	if (write)
		process_vm_writev(who(c->a[0]), &local, 1, &remote, 1, 0);
	else
		process_vm_readv(who(c->a[0]), &local, 1, &remote, 1, 0);
}

static int open_pidfd(pid_t pid)
{
	return syscall(SYS_pidfd_open, pid, 0);
}

static void do_process_madvise(const struct call *c)
{
	struct iovec v[2] = {
		{ at(c->a[1]), within(c->a[1], c->a[2]) },
		{ at(c->a[2]), BLOCK },
	};
	int fd = open_pidfd(who(c->a[0]));

	syscall(SYS_process_madvise, fd, v, 1 + (c->a[2] & 1), (int)c->a[3], 0);
	close(fd);
}

static int open_proc(pid_t pid, const char *file, int flags)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, file);
	return open(path, flags | O_CLOEXEC);
}

static void do_proc_mem(const struct call *c)
{
	int fd = open_proc(who(c->a[0]), "mem", O_RDWR);
	static char buffer[64 << 10];
	size_t length = bounded(c->a[1], c->a[2] % sizeof(buffer) + 1);

	if (c->a[3] & 1)
		pwrite(fd, buffer, length, (off_t)at(c->a[1]));
	else
		pread(fd, buffer, length, (off_t)at(c->a[1]));
	close(fd);
}

static void do_proc_read(const struct call *c)
{
	static const char *const files[] = {
		"smaps", "numa_maps", "maps", "smaps_rollup", "status", "pagemap", "oom_score", "stat",
	};
	static char buffer[64 << 10];
	int fd = open_proc(who(c->a[0]), files[c->a[1] % 8], O_RDONLY);

	pread(fd, buffer, sizeof(buffer), c->a[1] % 8 == 5 ? (off_t)(WINDOW / PAGE * 8) : 0);
	close(fd);
}

static void do_clear_refs(const struct call *c)
{
	int fd = open_proc(who(c->a[0]), "clear_refs", O_WRONLY);
	char digit = '1' + c->a[1] % 5;

	write(fd, &digit, 1);
	close(fd);
}

static void do_getfd(const struct call *c)
{
	int fd = open_pidfd(who(c->a[0]));

	/* The same number: the table begins alike in all actors. */
	take_fd(c->a[2], syscall(SYS_pidfd_getfd, fd, fd_of(c->a[1]), 0));
	close(fd);
}

static void do_uffd(const struct call *c)
{
	static const uint64_t features[] = {
		0, UFFD_FEATURE_SIGBUS, UFFD_FEATURE_WP_ASYNC | UFFD_FEATURE_WP_UNPOPULATED, UFFD_FEATURE_SIGBUS,
		UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_UNMAP,
		UFFD_FEATURE_EVENT_FORK, UFFD_FEATURE_SIGBUS | UFFD_FEATURE_THREAD_ID, UFFD_FEATURE_WP_ASYNC,
	};
	struct uffdio_api api = { .api = UFFD_API, .features = features[c->a[1] % 8] };
	int fd = syscall(SYS_userfaultfd, O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		return;
	ioctl(fd, UFFDIO_API, &api);
	take_fd(c->a[0], fd);
}

static struct uffdio_range uffd_range(uint64_t offset, uint64_t length)
{
	return (struct uffdio_range){ (uintptr_t)at(offset) & -PAGE, within(offset, length) & -PAGE };
}

static void do_uffd_register(const struct call *c)
{
	struct uffdio_register arg = {
		.range = uffd_range(c->a[1], c->a[2]), .mode = c->a[3] & 7,
	};

	/* What is not changed by it may be named, too. */
	if (c->a[3] & NAMES_CANARY)
		arg.range = (struct uffdio_range){ CANARY + (c->a[1] & (BLOCK - PAGE)), PAGE };
	ioctl(fd_of(c->a[0]), UFFDIO_REGISTER, &arg);
}

static void do_uffd_unregister(const struct call *c)
{
	struct uffdio_range arg = uffd_range(c->a[1], c->a[2]);

	if (c->a[3] & NAMES_CANARY)
		arg = (struct uffdio_range){ CANARY + (c->a[1] & (BLOCK - PAGE)), PAGE };
	ioctl(fd_of(c->a[0]), UFFDIO_UNREGISTER, &arg);
}

static void do_uffd_protect(const struct call *c)
{
	struct uffdio_writeprotect arg = { .range = uffd_range(c->a[1], c->a[2]), .mode = c->a[3] & 3 };

	ioctl(fd_of(c->a[0]), UFFDIO_WRITEPROTECT, &arg);
}

static void do_uffd_copy(const struct call *c)
{
	struct uffdio_copy arg = {
		.dst = (uintptr_t)at(c->a[1]) & -PAGE, .src = (uintptr_t)at(c->a[2]) & -PAGE,
		.len = bounded(c->a[1], c->a[3]) & -PAGE, .mode = c->a[4] & 3,
	};

	ioctl(fd_of(c->a[0]), UFFDIO_COPY, &arg);
}

static void do_uffd_zero(const struct call *c)
{
	struct uffdio_zeropage arg = { .range = uffd_range(c->a[1], c->a[2]), .mode = c->a[3] & 1 };

	arg.range.len = bounded(c->a[1], c->a[2]) & -PAGE;
	ioctl(fd_of(c->a[0]), UFFDIO_ZEROPAGE, &arg);
}

/* The same for all rings. */
static unsigned int uring_tail;

static void do_uring(const struct call *c)
{
	struct io_uring_params params = { .flags = c->a[1] & 1 ? IORING_SETUP_SQPOLL : 0, .sq_thread_idle = 20 };
	int fd = syscall(SYS_io_uring_setup, 4, &params);

	if (fd < 0)
		return;
	uring_tail = params.sq_off.tail;
	take_fd(c->a[0], fd);
}

/* One request, by a mapping of the rings that lasts as long as it. */
static void uring_submit(int fd, const struct io_uring_sqe *request)
{
	struct io_uring_sqe *sqes;
	char *ring = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, IORING_OFF_SQ_RING);

	if (ring == MAP_FAILED)
		return;
	sqes = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, IORING_OFF_SQES);
	if (sqes != MAP_FAILED) {
		/* The list of entries stays as it is: the first one, always. */
		sqes[0] = *request;
		__atomic_add_fetch((uint32_t *)(ring + uring_tail), 1, __ATOMIC_RELEASE);
		syscall(SYS_io_uring_enter, fd, 1, 0, IORING_ENTER_SQ_WAKEUP, NULL, 0);
		munmap(sqes, PAGE);
	}
	munmap(ring, PAGE);
}

static void do_uring_madvise(const struct call *c)
{
	struct io_uring_sqe sqe = {
		.opcode = IORING_OP_MADVISE, .flags = c->a[4] & 1 ? IOSQE_ASYNC : 0, .fd = -1,
		.addr = (uintptr_t)at(c->a[1]), .len = within(c->a[1], c->a[2]), .fadvise_advice = c->a[3],
	};

	uring_submit(fd_of(c->a[0]), &sqe);
}

static void do_uring_rw(const struct call *c)
{
	static const uint8_t opcodes[] = {
		IORING_OP_READ, IORING_OP_WRITE, IORING_OP_READ_FIXED, IORING_OP_WRITE_FIXED,
	};
	struct io_uring_sqe sqe = {
		.opcode = opcodes[c->a[4] % 4], .flags = c->a[4] & 4 ? IOSQE_ASYNC : 0,
		.fd = c->a[4] & 8 ? pipe_fd[c->a[4] & 1] : fd_of(c->a[3]),
		.addr = (uintptr_t)at(c->a[1]), .len = bounded(c->a[1], c->a[2]),
	};

	uring_submit(fd_of(c->a[0]), &sqe);
}

static void do_uring_buffers(const struct call *c)
{
	struct iovec v[2] = {
		{ at(c->a[1]), bounded(c->a[1], c->a[2]) }, { at(c->a[1] + BLOCK), PAGE },
	};

	if (c->a[3] & 3)
		syscall(SYS_io_uring_register, fd_of(c->a[0]), IORING_REGISTER_BUFFERS, v, 1 + (c->a[3] & 1));
	else
		syscall(SYS_io_uring_register, fd_of(c->a[0]), IORING_UNREGISTER_BUFFERS, NULL, 0);
}

static int device(void)
{
	return open(HPMMAP_DEVICE_PATH, O_RDWR | O_CLOEXEC);
}

static void do_launch(const struct call *c)
{
	uint64_t mask = c->a[1] & 4 ? 3 : c->a[1];
	struct hpmmap_launch arg = {
		.size = sizeof(arg), .flags = c->a[0] & 31, .page_size = c->a[1] & 8 ? HPMMAP_LARGE_BYTES : 0,
		.nodemask = c->a[1] & 1 ? (uintptr_t)&mask : 0, .nodemask_bits = c->a[1] & 1 ? 64 : 0,
	};
	int fd = device();
	pid_t pid = c->a[2] & 1 ? fork() : 0;

	if (pid <= 0)
		ioctl(fd, HPMMAP_IOC_LAUNCH, &arg);
	if (!pid && c->a[2] & 1) {
		do_exec(c->a[2] >> 1);
		_exit(1);
	}
	/* The job stays as long as the file. */
	if (c->a[2] & 64)
		take_fd(c->a[2], fd);
	else
		close(fd);
}

static void do_pool(const struct call *c)
{
	static struct hpmmap_pool_range ranges[64];
	struct hpmmap_pool_list list = {
		.size = sizeof(list), .ranges = c->a[0] & 4 ? WINDOW : (uintptr_t)ranges, .nr = c->a[0] % 64,
	};
	struct hpmmap_pool_remove change = { .size = sizeof(change), .start = c->a[1], .length = c->a[2] };
	int fd = device();

	if (c->a[0] & 1)
		ioctl(fd, HPMMAP_IOC_POOL_LIST, &list);
	else
		ioctl(fd, c->a[0] & 2 ? HPMMAP_IOC_POOL_ADD : HPMMAP_IOC_POOL_REMOVE, &change);
	close(fd);
}

static void do_ioctl(unsigned long command, void *arg)
{
	int fd = device();

	ioctl(fd, command, arg);
	close(fd);
}

static void do_prctl(const struct call *c)
{
	switch (c->a[0] % 4) {
	case 0: prctl(PR_SET_THP_DISABLE, c->a[1] & 1, 0, 0, 0); break;
	case 1: prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, at(c->a[2]), within(c->a[2], c->a[3]), "guided"); break;
	case 2: prctl(PR_SET_DUMPABLE, c->a[1] & 1); break;
	default: prctl(67 /* PR_SET_MEMORY_MERGE */, c->a[1] & 1, 0, 0, 0);
	}
}

static void do_rlimit(const struct call *c)
{
	static const int which[] = { RLIMIT_AS, RLIMIT_DATA, RLIMIT_MEMLOCK, RLIMIT_STACK };
	int resource = which[c->a[0] % 4];
	struct rlimit limit;

	/* The hard one stays, for the next call. */
	getrlimit(resource, &limit);
	limit.rlim_cur = c->a[0] & 4 ? limit.rlim_max : c->a[1] + (256UL << 20);
	setrlimit(resource, &limit);
}

static void do_shm(const struct call *c)
{
	int id = shmget(IPC_PRIVATE, c->a[1] % (4 * BLOCK) + 1, IPC_CREAT | 0600);

	if (id < 0)
		return;
	shmat(id, at(c->a[0]), SHM_RND | (c->a[2] & 1 ? SHM_REMAP : 0));
	shmctl(id, IPC_RMID, NULL);
}

static void do_move_pages(const struct call *c)
{
	void *pages[8];
	int nodes[8], status[8];

	for (int i = 0; i < 8; i++) {
		pages[i] = at(c->a[1] + i * (c->a[2] & 1 ? PAGE : BLOCK));
		nodes[i] = c->a[2] & 2;
	}
	syscall(SYS_move_pages, who(c->a[0]), 8, pages, c->a[3] & 1 ? nodes : NULL, status, 2);
}

static void do_brk(const struct call *c)
{
	uintptr_t end = syscall(SYS_brk, 0);

	syscall(SYS_brk, c->a[1] & 1 ? end + c->a[0] % (4 * BLOCK) : end - c->a[0] % (2 * BLOCK));
}

/* SIGKILL, to what belongs to this program only. */
static void do_kill(unsigned int how)
{
	pid_t pid = me->pid[how & 1 ? ACTOR_CHILD : ACTOR_MAIN];

	if (pid && one_in(2))
		kill(pid, how & 2 ? SIGKILL : SIGSTOP);
	if (pid && !(how & 2))
		kill(pid, SIGCONT);
}

static void do_call(const struct call *c)
{
	void *p = at(c->a[0]);
	size_t length = within(c->a[0], c->a[1]);
	uint64_t mask = c->a[3];

	switch ((enum op)c->op) {
	case OP_MMAP:
		/* Without MAP_FIXED it may go anywhere but there. */
		mmap(c->a[3] & (MAP_FIXED | MAP_FIXED_NOREPLACE) ? p : NULL,
		     c->a[1] > (64UL << 20) && one_in(2) ? c->a[1] : bounded(c->a[0], c->a[1]), c->a[2], c->a[3],
		     c->a[3] & MAP_ANONYMOUS ? -1 : fd_of(c->a[4]), 0);
		break;
	case OP_MUNMAP: munmap(p, bounded(c->a[0], c->a[1])); break;
	case OP_MPROTECT: mprotect(p, length, c->a[2]); break;
	case OP_PKEY_MPROTECT: syscall(SYS_pkey_mprotect, p, length, c->a[2], c->a[3] & 1 ? -1 : (int)c->a[3] & 15); break;
	case OP_MREMAP:
		mremap(p, bounded(c->a[0], c->a[1]), bounded(c->a[4], c->a[2]), c->a[3], at(c->a[4]));
		break;
	case OP_MADVISE: madvise(p, length, c->a[2]); break;
	case OP_BRK: do_brk(c); break;
	case OP_MLOCK: mlock2(p, length, c->a[2] & 1); break;
	case OP_MUNLOCK:
		if (c->a[2] % 8)
			munlock(p, length);
		else
			munlockall();
		break;
	case OP_MLOCKALL: mlockall(1 + c->a[0] % 7); break;
	case OP_MBIND: syscall(SYS_mbind, p, length, c->a[2] % 7, &mask, 8, c->a[4] & 7); break;
	case OP_SET_MEMPOLICY:
		mask = c->a[1];
		syscall(SYS_set_mempolicy, c->a[0] % 7, &mask, 8);
		break;
	case OP_MOVE_PAGES: do_move_pages(c); break;
	case OP_MIGRATE_PAGES:
		mask = 1 + c->a[1] % 3;
		syscall(SYS_migrate_pages, who(c->a[0]), 8, &mask, &mask);
		break;
	case OP_REMAP_FILE_PAGES: syscall(SYS_remap_file_pages, p, length, 0, c->a[2], 0); break;
	case OP_MSYNC: msync(p, length, c->a[2] & 7); break;
	case OP_MINCORE: {
		static unsigned char status[WINDOW_BYTES / PAGE + 1];

		mincore(p, bounded(c->a[0], c->a[1]), status);
		break;
	}
	case OP_WRITE: touch(c->a[0], c->a[1], c->a[2], true); break;
	case OP_READ: touch(c->a[0], c->a[1], c->a[2], false); break;
	case OP_PIPE_WRITE: write(pipe_fd[1], p, bounded(c->a[0], c->a[1])); break;
	case OP_PIPE_READ: read(pipe_fd[0], p, bounded(c->a[0], c->a[1])); break;
	case OP_VMSPLICE: {
		struct iovec v = { p, bounded(c->a[0], c->a[1]) };

		vmsplice(pipe_fd[1], &v, 1, (c->a[2] & 1 ? SPLICE_F_GIFT : 0) | SPLICE_F_NONBLOCK);
		break;
	}
	case OP_CLOSE:
		close(fd_of(c->a[0]));
		fds[c->a[0] % NR_FDS] = -1;
		break;
	case OP_FORK: do_fork(c); break;
	case OP_VFORK:
		if (!vfork())
			_exit(0);
		break;
	case OP_CLONE_VM: do_clone_vm(c->a[0]); break;
	case OP_SPAWN: do_spawn(c->a[0]); break;
	case OP_EXEC: do_exec(c->a[0]); break;
	case OP_KILL: do_kill(c->a[0]); break;
	case OP_VM_READV: do_vm_rw(c, false); break;
	case OP_VM_WRITEV: do_vm_rw(c, true); break;
	case OP_PROCESS_MADVISE: do_process_madvise(c); break;
	case OP_PROC_MEM: do_proc_mem(c); break;
	case OP_PROC_READ: do_proc_read(c); break;
	case OP_CLEAR_REFS: do_clear_refs(c); break;
	case OP_GETFD: do_getfd(c); break;
	case OP_UFFD: do_uffd(c); break;
	case OP_UFFD_REGISTER: do_uffd_register(c); break;
	case OP_UFFD_UNREGISTER: do_uffd_unregister(c); break;
	case OP_UFFD_PROTECT: do_uffd_protect(c); break;
	case OP_UFFD_COPY: do_uffd_copy(c); break;
	case OP_UFFD_ZERO: do_uffd_zero(c); break;
	case OP_UFFD_READ: {
		struct uffd_msg message;

		read(fd_of(c->a[0]), &message, sizeof(message));
		break;
	}
	case OP_URING: do_uring(c); break;
	case OP_URING_MADVISE: do_uring_madvise(c); break;
	case OP_URING_RW: do_uring_rw(c); break;
	case OP_URING_BUFFERS: do_uring_buffers(c); break;
	case OP_LAUNCH: do_launch(c); break;
	case OP_INFO: {
		struct hpmmap_info info = { .size = c->a[0] };

		do_ioctl(HPMMAP_IOC_INFO, &info);
		break;
	}
	case OP_POOL: do_pool(c); break;
	case OP_LIMIT: {
		struct hpmmap_limit_set limit = { .size = sizeof(limit), .uid = c->a[0], .bytes = c->a[1] };

		do_ioctl(HPMMAP_IOC_LIMIT_SET, &limit);
		break;
	}
	case OP_PRCTL: do_prctl(c); break;
	case OP_RLIMIT: do_rlimit(c); break;
	case OP_SHM: do_shm(c); break;
	case OP_MEMFD: {
		int fd = memfd_create("guided", 0);

		ftruncate(fd, c->a[1] % (8 * BLOCK));
		take_fd(c->a[0], fd);
		break;
	}
	case OP_SEAL: syscall(SYS_MSEAL, p, bounded(c->a[0], c->a[1]), 0); break;
	case OP_SLEEP: sleep_ms(c->a[0] % 8); break;
	case NR_OPS: break;
	}
}

/* ---- Actors ------------------------------------------------------------------- */

static void futex_wait(uint32_t *word, uint32_t value)
{
	struct timespec timeout = { .tv_nsec = 100000000 };

	syscall(SYS_futex, word, FUTEX_WAIT, value, &timeout, NULL, 0);
}

static void serve(unsigned int actor)
{
	struct mailbox *box = &me->mailbox[actor];

	for (;;) {
		while (!__atomic_load_n(&box->full, __ATOMIC_ACQUIRE))
			futex_wait(&box->full, 0);
		do_call(&box->call);
		__atomic_store_n(&box->full, 0, __ATOMIC_RELEASE);
		syscall(SYS_futex, &box->full, FUTEX_WAKE, 1, NULL, NULL, 0);
	}
}

static void *serve_thread(void *arg)
{
	(void)arg;
	serve(ACTOR_THREAD);
	return NULL;
}

/* The actor goes on by itself; only the call before has to be done, or hangs. */
static void hand_over(const struct call *call)
{
	struct mailbox *box = &me->mailbox[call->actor];

	for (int tries = 0; __atomic_load_n(&box->full, __ATOMIC_ACQUIRE); tries++) {
		if (tries == 3)
			return;
		futex_wait(&box->full, 1);
	}
	box->call = *call;
	__atomic_store_n(&box->full, 1, __ATOMIC_RELEASE);
	syscall(SYS_futex, &box->full, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static bool uses(const struct program *p, unsigned int actor)
{
	for (unsigned int i = 0; i < p->nr; i++)
		if (p->calls[i].actor % NR_ACTORS == actor)
			return true;
	return false;
}

static uint64_t canary_word(size_t i)
{
	return i * 0x9e3779b97f4a7c15ULL ^ 0x68706d6d61704343ULL;
}

static void canary_make(void)
{
	uint64_t *p = mmap((void *)CANARY, CANARY_BYTES, PROT_READ | PROT_WRITE, ANON | MAP_FIXED_NOREPLACE, -1, 0);

	if (p == MAP_FAILED)
		err(1, "mmap");
	for (size_t i = 0; i < CANARY_BYTES / 8; i++)
		p[i] = canary_word(i);
}

/* Some words of every page: all would take longer than the program. */
static bool canary_is_whole(void)
{
	const volatile uint64_t *p = (void *)CANARY;

	for (size_t i = 0; i < CANARY_BYTES / 8; i += 256)
		if (p[i] != canary_word(i))
			return false;
	return true;
}

/* In a process of its own, the leader of a group. */
static void run_program(const struct program *p)
{
	static const struct sigaction action = { .sa_handler = on_fault, .sa_flags = SA_NODEFER };
	/* Most of them so that nobody waits for one who serves it. */
	static const uint8_t features[] = { 1, 2, 3, 6, 7, 5 };
	struct call setup = { .op = OP_UFFD, .a = { 0, features[p->number % sizeof(features)] } };
	pthread_t thread;
	sigjmp_buf here;

	setpgid(0, 0);
	me->pid[ACTOR_MAIN] = getpid();
	rng = p->seed | 1;
	sigaction(SIGSEGV, &action, NULL);
	sigaction(SIGBUS, &action, NULL);
	if (pipe2(pipe_fd, O_NONBLOCK))
		err(1, "pipe2");
	/* The child works on this process's memory by them. */
	do_call(&setup);
	setup = (struct call){ .op = OP_URING, .a = { 1, p->number & 1 } };
	do_call(&setup);
	setup = (struct call){ .op = OP_MEMFD, .a = { 2, 4 * BLOCK } };
	do_call(&setup);
	setup = (struct call){ .op = OP_MMAP, .a = { 0, MAPPED_BYTES, PROT_READ | PROT_WRITE, ANON | MAP_FIXED } };
	do_call(&setup);
	touch(0, MAPPED_BYTES, 0, true);
	if (uses(p, ACTOR_CHILD)) {
		pid_t pid = fork();

		if (!pid)
			serve(ACTOR_CHILD);
		me->pid[ACTOR_CHILD] = pid > 0 ? pid : 0;
	}
	if (uses(p, ACTOR_THREAD) && pthread_create(&thread, NULL, serve_thread, NULL))
		_exit(0);
	if (cover) {
		__atomic_store_n(&cover[0], 0, __ATOMIC_RELAXED);
		ioctl(opt.kcov_fd, KCOV_ENABLE, KCOV_TRACE_PC);
	}
	for (unsigned int i = 0; i < p->nr; i++) {
		if (p->calls[i].actor % NR_ACTORS == ACTOR_MAIN)
			do_call(&p->calls[i]);
		else
			hand_over(&p->calls[i]);
	}
	if (cover)
		ioctl(opt.kcov_fd, KCOV_DISABLE, 0);
	if (sigsetjmp(here, 1))
		_exit(0);
	recover = &here;
	if (!canary_is_whole())
		me->mismatch = 1;
	_exit(0);
}

/* ---- Workers ------------------------------------------------------------------ */

/* Whether a program has reached what none has before. */
static bool has_news(void)
{
	uint64_t nr, last = 0;
	bool news = false;

	if (!cover)
		return false;
	nr = __atomic_load_n(&cover[0], __ATOMIC_RELAXED);
	if (nr >= COVER_WORDS)
		nr = COVER_WORDS - 1;
	for (uint64_t i = 1; i <= nr; i++) {
		uint64_t edge = cover[i] ^ last >> 1;
		uint8_t *seen = &shared->edge[(edge * 0x9e3779b97f4a7c15ULL) >> 44];

		last = cover[i];
		if (!*seen && !__atomic_exchange_n(seen, 1, __ATOMIC_RELAXED)) {
			__atomic_add_fetch(&shared->edges, 1, __ATOMIC_RELAXED);
			news = true;
		}
	}
	return news;
}

static void log_program(const struct program *p)
{
	if (opt.ring_fd >= 0 && pwrite(opt.ring_fd, p, sizeof(*p), p->number % RING * sizeof(*p)) != sizeof(*p))
		err(1, "the log of programs");
}

/* Waits for all of a program: orphans come to the worker. False if they do not end. */
static bool end_program(pid_t leader)
{
	int64_t end = now_ms() + PROGRAM_MS, killed = 0;
	pid_t pid;

	for (;;) {
		pid = waitpid(-1, NULL, WNOHANG);
		if (pid < 0)
			return true;
		if (pid == leader)
			end = 0;
		if (now_ms() >= end) {
			killed = killed ?: now_ms();
			kill(-leader, SIGKILL);
			kill(-leader, SIGCONT);
		}
		if (killed && now_ms() > killed + KILL_SECONDS * 1000)
			return false;
		if (!pid)
			sleep_ms(2);
	}
}

static void one_program(struct program *p)
{
	pid_t pid;

	memset(me->mailbox, 0, sizeof(me->mailbox));
	memset(me->pid, 0, sizeof(me->pid));
	log_program(p);
	pid = fork();
	if (pid < 0) {
		/* For want of memory, it may be. */
		sleep_ms(20);
		return;
	}
	if (!pid)
		run_program(p);
	setpgid(pid, pid);
	if (!end_program(pid)) {
		print_program(p);
		errx(1, "FAIL: seed %llu: a program does not end by SIGKILL", (unsigned long long)opt.seed);
	}
	if (me->mismatch || !canary_is_whole()) {
		print_program(p);
		errx(1, "FAIL: seed %llu: memory of %s has other contents", (unsigned long long)opt.seed,
		     me->mismatch ? "the program that it did not name" : "the worker");
	}
	if (has_news())
		keep(p);
	__atomic_add_fetch(&shared->programs, 1, __ATOMIC_RELAXED);
}

static void map_shared(void)
{
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, opt.shared_fd, 0);
	if (shared == MAP_FAILED)
		err(1, "mmap");
}

static void prepare(void)
{
	map_shared();
	me = &shared->worker[opt.worker];
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	signal(SIGPIPE, SIG_IGN);
	if (opt.kcov_fd >= 0) {
		if (ioctl(opt.kcov_fd, KCOV_INIT_TRACE, COVER_WORDS))
			err(1, "KCOV_INIT_TRACE");
		cover = mmap(NULL, COVER_WORDS * 8, PROT_READ | PROT_WRITE, MAP_SHARED, opt.kcov_fd, 0);
		if (cover == MAP_FAILED)
			err(1, "mmap of KCOV");
	}
	canary_make();
}

static int work(void)
{
	static struct program p;

	prepare();
	rng = (opt.seed + 1) * 0x9e3779b97f4a7c15ULL + opt.worker * 0x517cc1b727220a95ULL;
	for (uint64_t number = 0; !__atomic_load_n(&shared->deadline_passed, __ATOMIC_RELAXED); number++) {
		next_program(&p);
		p.number = number;
		p.worker = opt.worker;
		p.seed = next();
		one_program(&p);
	}
	__atomic_add_fetch(&shared->ended, 1, __ATOMIC_RELAXED);
	return 0;
}

static int by_number(const void *a, const void *b)
{
	const struct program *x = a, *y = b;

	return x->number < y->number ? -1 : x->number > y->number;
}

/* What is in a ring, in order. */
static unsigned int load(const char *path, struct program *programs)
{
	int fd = open(path, O_RDONLY);
	unsigned int nr = 0;

	if (fd < 0)
		err(1, "%s", path);
	while (nr < RING && read(fd, &programs[nr], sizeof(*programs)) == sizeof(*programs)) {
		if (programs[nr].nr && programs[nr].nr <= MAX_CALLS)
			nr++;
	}
	close(fd);
	qsort(programs, nr, sizeof(*programs), by_number);
	return nr;
}

static int replay(void)
{
	static struct program programs[RING];
	unsigned int nr = load(opt.replay ?: opt.print, programs);

	for (unsigned int i = 0; opt.print && i < nr; i++)
		print_program(&programs[i]);
	if (opt.print)
		return 0;
	opt.shared_fd = memfd_create("guided-shared", 0);
	if (opt.shared_fd < 0 || ftruncate(opt.shared_fd, sizeof(*shared)))
		err(1, "shared memory");
	opt.worker = 0;
	opt.workers = 1;
	prepare();
	for (unsigned int i = 0; i < nr; i++)
		one_program(&programs[i]);
	printf("%u programs\n", nr);
	return 0;
}

/* ---- Start -------------------------------------------------------------------- */

static const char *const launch_options[] = { "--image", "--placement=first-touch", NULL, "--page-size=1G" };
static const unsigned int users[] = { 2001, 2002 };

/* A worker: a user's job. What is opened for it, it could not open. */
static pid_t start(unsigned int n)
{
	const struct group *group = getgrnam("hpmmap");
	const char *option = launch_options[n % 4];
	char args[5][32], path[PATH_MAX];
	int ring = -1, kcov;
	pid_t pid;

	if (opt.dir) {
		snprintf(path, sizeof(path), "%s/programs.%u", opt.dir, n);
		ring = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
		if (ring < 0)
			err(1, "%s", path);
	}
	kcov = open("/sys/kernel/debug/kcov", O_RDWR);
	pid = fork();
	if (pid < 0)
		err(1, "fork");
	if (pid) {
		close(ring);
		close(kcov);
		return pid;
	}
	if (!group || setgroups(1, &group->gr_gid) || setgid(users[n % 2]) || setuid(users[n % 2]))
		err(1, "becoming user %u of group hpmmap", users[n % 2]);
	snprintf(args[0], sizeof(args[0]), "--worker=%u", n);
	snprintf(args[1], sizeof(args[1]), "--descriptors=%d,%d,%d", opt.shared_fd, kcov, ring);
	snprintf(args[2], sizeof(args[2]), "--seed=%llu", (unsigned long long)opt.seed);
	snprintf(args[3], sizeof(args[3]), "--workers=%u", opt.workers);
	if (option)
		execlp("hpmmap", "hpmmap", "run", option, "--", self_path, args[0], args[1], args[2], args[3], NULL);
	else
		execlp("hpmmap", "hpmmap", "run", "--", self_path, args[0], args[1], args[2], args[3], NULL);
	err(1, "hpmmap");
}

static void say(unsigned int seconds)
{
	printf("%5u s: %llu programs, %llu edges, %llu kept\n", seconds, (unsigned long long)shared->programs,
	       (unsigned long long)shared->edges, (unsigned long long)shared->kept);
	fflush(stdout);
}

static int drive(void)
{
	int64_t from = now_ms();
	unsigned int said = 0, left;
	bool guided = access("/sys/kernel/debug/kcov", F_OK) == 0;
	int status, failed = 0;

	opt.shared_fd = memfd_create("guided-shared", 0);
	if (opt.shared_fd < 0 || ftruncate(opt.shared_fd, sizeof(*shared)))
		err(1, "shared memory");
	map_shared();
	for (unsigned int n = 0; n < opt.workers; n++)
		start(n);
	for (left = opt.workers; left; sleep_ms(200)) {
		unsigned int seconds = (now_ms() - from) / 1000;

		if (seconds >= opt.seconds)
			__atomic_store_n(&shared->deadline_passed, 1, __ATOMIC_RELAXED);
		if (seconds >= said + 30)
			say(said = seconds);
		while (left && waitpid(-1, &status, WNOHANG) > 0) {
			left--;
			if (status) {
				fprintf(stderr, "FAIL: a worker ended with status %#x\n", (unsigned int)status);
				failed = 1;
				__atomic_store_n(&shared->deadline_passed, 1, __ATOMIC_RELAXED);
			}
		}
	}
	say((now_ms() - from) / 1000);
	if (!shared->programs || (guided && !shared->edges)) {
		fprintf(stderr, "FAIL: nothing was run, or its way not seen\n");
		failed = 1;
	}
	if (!failed)
		printf("HPMMAP-FUZZ-PASS guided: seed %llu\n", (unsigned long long)opt.seed);
	return failed;
}

/* What exec leads to: some memory, and the end. */
static int idle(bool forks)
{
	char *p = mmap(NULL, 6 * BLOCK, PROT_READ | PROT_WRITE, ANON, -1, 0);

	if (p != MAP_FAILED)
		for (size_t i = 0; i < 6 * BLOCK; i += BLOCK / 2)
			p[i] = 1;
	if (forks)
		fork();
	sleep_ms(10);
	return 0;
}

static void usage(void)
{
	fprintf(stderr, "usage: guided [--seed N] [--seconds N] [--workers N] [--log DIR]\n"
			"       guided --print FILE | --replay FILE\n");
	exit(2);
}

static void parse(int argc, char **argv)
{
	static const struct option options[] = {
		{ "seed", required_argument, NULL, 's' },
		{ "seconds", required_argument, NULL, 'd' },
		{ "workers", required_argument, NULL, 'n' },
		{ "log", required_argument, NULL, 'l' },
		{ "print", required_argument, NULL, 'p' },
		{ "replay", required_argument, NULL, 'r' },
		{ "worker", required_argument, NULL, 'w' },
		{ "descriptors", required_argument, NULL, 'f' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 's': opt.seed = strtoull(optarg, NULL, 0); break;
		case 'd': opt.seconds = atoi(optarg); break;
		case 'n': opt.workers = atoi(optarg); break;
		case 'l': opt.dir = optarg; break;
		case 'p': opt.print = optarg; break;
		case 'r': opt.replay = optarg; break;
		case 'w': opt.worker = atoi(optarg); break;
		case 'f':
			if (sscanf(optarg, "%d,%d,%d", &opt.shared_fd, &opt.kcov_fd, &opt.ring_fd) != 3)
				usage();
			break;
		default: usage();
		}
	}
	if (optind != argc || opt.workers < 1 || opt.workers > MAX_WORKERS || opt.worker >= MAX_WORKERS)
		usage();
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "--idle"))
		return idle(argc > 2);
	if (readlink("/proc/self/exe", self_path, sizeof(self_path) - 1) < 0)
		err(1, "/proc/self/exe");
	parse(argc, argv);
	if (opt.replay || opt.print)
		return replay();
	return opt.worker < 0 ? drive() : work();
}
