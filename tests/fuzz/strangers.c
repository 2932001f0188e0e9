// SPDX-License-Identifier: GPL-2.0
/*
 * Does a process ever see the words of a stranger?
 *
 *   strangers [--windows] [--seed N] --seconds N --workers N BOARD -- COMMAND...
 *
 * Workers, each started by COMMAND (hpmmap run --), fill memory with words that name their
 * writer, and do random things to it in two threads and in children: the calls that the module
 * hooks, the same by int $0x80, userfaultfd with and without a monitor, process_madvise,
 * io_uring's madvise, windows onto each other. The driver kills some of them. With --windows
 * most of it is windows, and what happens to their targets.
 *
 * Each process reads all that it can: what its page tables map, what a fault gives it, the
 * windows. A word may be the reader's own, of an ancestor from before the fork, or, in a window,
 * of the target or the target's ancestors. Other damage does not count: a process may lose its contents,
 * its mappings and its life, as happens if hooks are skipped.
 *
 * Several drivers, of several users, share BOARD, a file in which they note the writers and
 * the findings. Status 1 if a word was foreign, also to another driver.
 */
#include <err.h>
#include <fcntl.h>
#include <getopt.h>
#include <linux/io_uring.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>

#include "call32.h"
#include "common.h"
#include "hpmmap_xpmem.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY	1
#endif
#ifndef SYS_process_madvise
#define SYS_process_madvise	440
#endif

#define PAGE		4096UL
#define SLOT		(2UL << 20)
#define RW		(PROT_READ | PROT_WRITE)
#define ANON		(MAP_PRIVATE | MAP_ANONYMOUS)
/* Where all calls work: below 4 GB, so that the 32-bit entry can name it. */
#define ARENA		0x40000000UL
#define ARENA_SLOTS	12
#define ARENA_END	(ARENA + ARENA_SLOTS * SLOT)
#define HEAP_MOST	(3 * SLOT)
#define VIEWS		2
#define VIEW_BYTES	(2 * SLOT)

#define MAX_DEPTH	3
#define MAX_KIDS	3
#define LIFE_SECONDS	12

/* ---- Who is who -------------------------------------------------------- */

/* A word: TAG in the upper 16 bits, 24 bits who, 24 when: how often that one had forked. */
#define TAG		0x51c7ULL
#define ENTRIES		4096

struct process {
	_Atomic uint32_t id;
	uint32_t ancestors[MAX_DEPTH];
	pid_t pid;
	uid_t uid;
	_Atomic int64_t segid;
};

struct board {
	_Atomic uint32_t ids;
	_Atomic uint64_t calls, words, forks, views, viewed, foreign;
	struct process processes[ENTRIES];
};

static struct board *board;
static uint32_t self_id, ancestors[MAX_DEPTH];
static _Atomic uint32_t generation;
static uint32_t seen_until[MAX_DEPTH];
static unsigned int depth;
static bool windows;
static double end;
static int xpmem = -1, pagemap = -1;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void complain_of(const char *fmt, ...)
{
	char head[64];
	va_list args;

	snprintf(head, sizeof(head), "strangers: process %u, %d of user %d: ", self_id, getpid(), getuid());
	va_start(args, fmt);
	complain(head, fmt, args);
	va_end(args);
}

static struct process *process_of(uint32_t id)
{
	struct process *p = &board->processes[id % ENTRIES];

	return p->id == id ? p : NULL;
}

/* A new address space begins; its parent's words are known until now. */
static void become(bool child)
{
	struct process *p;

	if (child) {
		ancestors[depth] = self_id;
		seen_until[depth++] = generation;
	}
	self_id = ++board->ids & 0xffffff;
	generation = 1;
	p = &board->processes[self_id % ENTRIES];
	p->id = 0;
	p->segid = 0;
	memcpy(p->ancestors, ancestors, sizeof(ancestors));
	p->pid = getpid();
	p->uid = getuid();
	p->id = self_id;
	if (pagemap >= 0)
		close(pagemap);
	pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	if (xpmem >= 0)
		close(xpmem);
	xpmem = open("/dev/xpmem", O_RDWR | O_CLOEXEC);
}

static uint64_t own_word(void)
{
	return TAG << 48 | (uint64_t)self_id << 24 | generation;
}

static bool is_own(uint64_t word)
{
	uint32_t id = word >> 24 & 0xffffff, when = word & 0xffffff;

	if (word >> 48 != TAG || id == self_id)
		return true;
	for (unsigned int i = 0; i < depth; i++)
		if (id == ancestors[i])
			return when <= seen_until[i];
	return false;
}

/* Of a window onto a process that may be gone by now. */
static bool is_of(uint64_t word, uint32_t target, const uint32_t *its)
{
	uint32_t id = word >> 24 & 0xffffff;

	if (word >> 48 != TAG || id == target)
		return true;
	for (unsigned int i = 0; i < MAX_DEPTH; i++)
		if (id && id == its[i])
			return true;
	return false;
}

static void foreign(uint64_t word, uintptr_t at, const char *where)
{
	struct process *p = process_of(word >> 24 & 0xffffff);

	if (board->foreign++ < 20)
		complain_of("FOREIGN word %#llx in %s at %#lx: of process %u, user %d", (unsigned long long)word, where,
			    (unsigned long)at, (unsigned int)(word >> 24 & 0xffffff), p ? (int)p->uid : -1);
}

/* ---- Access that may fail ---------------------------------------------- */

static __thread sigjmp_buf escape;
static __thread volatile bool may_fail;

static void on_fault(int sig)
{
	if (may_fail)
		siglongjmp(escape, 1);
	signal(sig, SIG_DFL);
	raise(sig);
}

/* Words of a page that are read and written. */
static const unsigned int offsets[] = { 0, 8, 1024, 2040, 3072, 4088 };
#define OFFSETS (sizeof(offsets) / sizeof(offsets[0]))

static void write_page(uintptr_t at)
{
	uint64_t word = own_word();

	if (!sigsetjmp(escape, 1)) {
		may_fail = true;
		for (unsigned int i = 0; i < OFFSETS; i++)
			*(volatile uint64_t *)(at + offsets[i]) = word;
	}
	may_fail = false;
}

static bool read_page(uintptr_t at, uint64_t *words)
{
	volatile bool done = false;

	if (!sigsetjmp(escape, 1)) {
		may_fail = true;
		for (unsigned int i = 0; i < OFFSETS; i++)
			words[i] = *(volatile uint64_t *)(at + offsets[i]);
		done = true;
	}
	may_fail = false;
	return done;
}

static void look_at(uintptr_t at, const char *where)
{
	uint64_t words[OFFSETS];

	if (!read_page(at, words))
		return;
	board->words += OFFSETS;
	for (unsigned int i = 0; i < OFFSETS; i++)
		if (!is_own(words[i]))
			foreign(words[i], at + offsets[i], where);
}

/* Of each block some pages: what the page tables map; every now and then what a fault gives, too. */
static void scan(uintptr_t start, uintptr_t stop, const char *where, unsigned int faults)
{
	static __thread uint64_t entries[SLOT / PAGE];
	unsigned int first = (unsigned int)(start + faults) % 4;

	for (uintptr_t at = start; at < stop; at += sizeof(entries) / 8 * PAGE) {
		unsigned int nr = sizeof(entries) / 8;

		if (pread(pagemap, entries, sizeof(entries), (off_t)(at / PAGE * 8)) != (ssize_t)sizeof(entries))
			return;
		for (unsigned int i = first; i < nr && at + i * PAGE < stop; i += 4)
			if (entries[i] >> 63 || (faults && i % 64 == faults % 64))
				look_at(at + i * PAGE, where);
	}
}

/* ---- Calls ------------------------------------------------------------- */

struct actor {
	uint64_t rng;
	int uffd, monitored;
	int ring;
	pid_t kids[MAX_KIDS];
	struct {
		void *at;
		int64_t apid;
		uint32_t target;
		uint32_t its[MAX_DEPTH];
	} views[VIEWS];
	unsigned char *heap;
};

static unsigned int below(struct actor *a, unsigned int n)
{
	return (unsigned int)(step(&a->rng) % n);
}

/* Mostly whole slots. */
static void range(struct actor *a, uintptr_t *at, size_t *len)
{
	unsigned int slot = below(a, ARENA_SLOTS);

	*at = ARENA + slot * SLOT;
	*len = (1 + below(a, ARENA_SLOTS - slot < 5 ? ARENA_SLOTS - slot : 5)) * SLOT;
	if (below(a, 4) == 0) {
		size_t skip = below(a, 512) * PAGE;

		*at += skip;
		*len -= skip;
		if (below(a, 2))
			*len = (1 + below(a, 16)) * PAGE;
	}
	if (*at + *len > ARENA_END)
		*len = ARENA_END - *at;
}

static int some_prot(struct actor *a)
{
	static const int prots[] = { RW, RW, RW, RW, PROT_READ, PROT_NONE, RW | PROT_EXEC };

	return prots[below(a, sizeof(prots) / sizeof(prots[0]))];
}

static int some_advice(struct actor *a)
{
	/* With those of Linux after 5.13 by number. */
	static const int advice[] = {
		MADV_DONTNEED, MADV_DONTNEED, MADV_DONTNEED, MADV_FREE, MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_DONTFORK,
		MADV_DOFORK, MADV_WIPEONFORK, MADV_KEEPONFORK, 20, 21, 22, 23, 24, 25, MADV_REMOVE, MADV_MERGEABLE,
	};

	return advice[below(a, sizeof(advice) / sizeof(advice[0]))];
}

static void do_map(struct actor *a, bool narrow)
{
	int flags = ANON | (below(a, 3) ? MAP_FIXED : MAP_FIXED_NOREPLACE);
	uintptr_t at;
	size_t len;

	range(a, &at, &len);
	if (below(a, 6) == 0)
		flags |= MAP_NORESERVE;
	if (below(a, 8) == 0)
		flags |= MAP_POPULATE;
	if (narrow)
		call32(CALL32_MMAP2, at, len, (uintptr_t)some_prot(a), (uintptr_t)flags, (uintptr_t)-1);
	else
		mmap((void *)at, len, some_prot(a), flags, -1, 0);
}

static void do_remap(struct actor *a, bool narrow)
{
	uintptr_t at, to;
	size_t len, new_len;
	int flags = 0;

	range(a, &at, &len);
	range(a, &to, &new_len);
	switch (below(a, 4)) {
	case 0:
		/* In place. */
		new_len = len + (1 + below(a, 3)) * SLOT;
		break;
	case 1:
		flags = MREMAP_MAYMOVE | MREMAP_FIXED;
		new_len = len;
		break;
	case 2:
		flags = MREMAP_MAYMOVE | MREMAP_FIXED | (below(a, 3) ? 0 : MREMAP_DONTUNMAP);
		break;
	}
	if (to + new_len > ARENA_END)
		new_len = ARENA_END - to;
	if (narrow)
		call32(CALL32_MREMAP, at, len, new_len, (uintptr_t)flags, to);
	else
		syscall(SYS_mremap, at, len, new_len, flags, to);
}

static void do_advice(struct actor *a, unsigned int how)
{
	int advice = some_advice(a);
	uintptr_t at;
	size_t len;

	range(a, &at, &len);
	if (how == 0) {
		madvise((void *)at, len, advice);
	} else if (how == 1) {
		call32(CALL32_MADVISE, at, len, (uintptr_t)advice, 0, 0);
	} else {
		struct iovec iov = { (void *)at, len };
		int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

		syscall(SYS_process_madvise, fd, &iov, 1, advice, 0);
		close(fd);
	}
}

/* One operation, in a ring that is made for it: the kernel's threads do it. */
static void do_ring_advice(struct actor *a)
{
	struct io_uring_params params = { 0 };
	int fd = (int)syscall(SYS_io_uring_setup, 2, &params);
	size_t sq_len, sqe_len = params.sq_entries * sizeof(struct io_uring_sqe);
	struct io_uring_sqe *sqe;
	uintptr_t at;
	size_t len;
	char *sq;

	if (fd < 0)
		return;
	range(a, &at, &len);
	sq_len = params.sq_off.array + params.sq_entries * 4;
	sq = mmap(NULL, sq_len, RW, MAP_SHARED | MAP_POPULATE, fd, IORING_OFF_SQ_RING);
	sqe = mmap(NULL, sqe_len, RW, MAP_SHARED | MAP_POPULATE, fd, IORING_OFF_SQES);
	if (sq != MAP_FAILED && sqe != MAP_FAILED) {
		sqe->opcode = IORING_OP_MADVISE;
		sqe->flags = below(a, 2) ? IOSQE_ASYNC : 0;
		sqe->addr = at;
		sqe->len = (uint32_t)len;
		sqe->fadvise_advice = (uint32_t)some_advice(a);
		*(uint32_t *)(sq + params.sq_off.array) = 0;
		__atomic_store_n((uint32_t *)(sq + params.sq_off.tail), 1, __ATOMIC_RELEASE);
		syscall(SYS_io_uring_enter, fd, 1, below(a, 2), IORING_ENTER_GETEVENTS, NULL, 0);
	}
	if (sq != MAP_FAILED)
		munmap(sq, sq_len);
	if (sqe != MAP_FAILED)
		munmap(sqe, sqe_len);
	close(fd);
}

/* Answers what it hears with words of its own, and takes its time to hear of what is unmapped. */
static void *monitor(void *arg)
{
	int fd = (int)(intptr_t)arg;
	struct uffd_msg msg;

	for (;;) {
		struct pollfd p = { .fd = fd, .events = POLLIN };

		if (now() > end)
			break;
		if (poll(&p, 1, 200) < 0 || p.revents & (POLLERR | POLLHUP | POLLNVAL))
			break;
		if (!(p.revents & POLLIN))
			continue;
		if (msg.event)
			usleep((useconds_t)(now() * 1e6) % 3000);
		if (read(fd, &msg, sizeof(msg)) != (ssize_t)sizeof(msg))
			continue;
		if (msg.event == UFFD_EVENT_PAGEFAULT) {
			static uint64_t page[512];
			uintptr_t at = msg.arg.pagefault.address & ~(PAGE - 1);
			struct uffdio_copy copy = { .dst = at, .src = (uintptr_t)page, .len = PAGE };
			struct uffdio_writeprotect wp = { .range = { at, PAGE } };

			page[0] = own_word();
			if (msg.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WP)
				ioctl(fd, UFFDIO_WRITEPROTECT, &wp);
			else if (ioctl(fd, UFFDIO_COPY, &copy))
				ioctl(fd, UFFDIO_WAKE, &copy);
		}
	}
	close(fd);
	return NULL;
}

static void do_uffd(struct actor *a)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { 0 };
	uintptr_t at;
	size_t len;

	range(a, &at, &len);
	if (a->uffd < 0) {
		pthread_t thread;

		a->monitored = below(a, 2) != 0;
		/* Without a monitor a fault is a signal. */
		api.features = a->monitored ? UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMAP |
					      UFFD_FEATURE_EVENT_REMOVE : UFFD_FEATURE_SIGBUS;
		a->uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
		if (a->uffd < 0)
			return;
		if (ioctl(a->uffd, UFFDIO_API, &api) ||
		    (a->monitored && pthread_create(&thread, NULL, monitor, (void *)(intptr_t)a->uffd))) {
			close(a->uffd);
			a->uffd = -1;
			return;
		}
		if (a->monitored)
			pthread_detach(thread);
	}
	reg.range.start = at;
	reg.range.len = len;
	reg.mode = (below(a, 2) ? UFFDIO_REGISTER_MODE_MISSING : 0) | (below(a, 2) ? UFFDIO_REGISTER_MODE_WP : 0);
	if (below(a, 3) == 0) {
		ioctl(a->uffd, UFFDIO_UNREGISTER, &reg.range);
	} else if (below(a, 3)) {
		ioctl(a->uffd, UFFDIO_REGISTER, &reg);
	} else {
		struct uffdio_writeprotect wp = { .range = reg.range, .mode = below(a, 2) };

		ioctl(a->uffd, UFFDIO_WRITEPROTECT, &wp);
	}
	/* The monitor's, from then on. */
	if (below(a, 8) == 0) {
		if (!a->monitored)
			close(a->uffd);
		else
			ioctl(a->uffd, UFFDIO_UNREGISTER, &(struct uffdio_range){ ARENA, ARENA_END - ARENA });
		a->uffd = a->monitored ? a->uffd : -1;
	}
}

static void do_heap(struct actor *a, bool narrow)
{
	uintptr_t base = (uintptr_t)a->heap;
	uintptr_t brk = base + below(a, HEAP_MOST / PAGE) * PAGE;

	if (narrow && brk < UINT32_MAX)
		call32(CALL32_BRK, brk, 0, 0, 0, 0);
	else
		syscall(SYS_brk, brk);
	for (uintptr_t at = base; at < brk; at += 16 * PAGE) {
		look_at(at, "the heap");
		write_page(at);
	}
}

static void publish(void)
{
	struct xpmem_cmd_make make = {
		.size = XPMEM_ABI_MAXADDR_SIZE,
		.permit_type = XPMEM_ABI_PERMIT_MODE,
		.permit_value = 0600,
	};
	struct process *p = process_of(self_id);

	if (p && !p->segid && ioctl(xpmem, XPMEM_CMD_MAKE, &make) == 0)
		p->segid = make.segid;
}

static void unview(struct actor *a, unsigned int i)
{
	uint64_t at = (uintptr_t)a->views[i].at;

	if (below(a, 2))
		ioctl(xpmem, XPMEM_CMD_DETACH, &at);
	else
		ioctl(xpmem, XPMEM_CMD_RELEASE, &a->views[i].apid);
	munmap(a->views[i].at, VIEW_BYTES);
	a->views[i].at = NULL;
}

/* A window onto somebody else's arena, or what can be seen in one. */
static void do_view(struct actor *a)
{
	unsigned int i = below(a, VIEWS);
	uint64_t words[OFFSETS];

	if (!a->views[i].at) {
		struct process *p = &board->processes[below(a, (board->ids < ENTRIES ? board->ids : ENTRIES - 1) + 1)];
		struct xpmem_cmd_get get = { .segid = p->segid, .flags = XPMEM_ABI_RDWR,
					     .permit_type = XPMEM_ABI_PERMIT_MODE };
		struct xpmem_cmd_attach attach = { .offset = (int64_t)(ARENA + below(a, ARENA_SLOTS - 2) * SLOT),
						   .size = VIEW_BYTES, .flags = below(a, 2) ? XPMEM_ABI_POPULATE : 0 };
		uint32_t id = p->id;

		if (!id || !get.segid || ioctl(xpmem, XPMEM_CMD_GET, &get))
			return;
		attach.apid = get.apid;
		memcpy(a->views[i].its, p->ancestors, sizeof(ancestors));
		/* It may be another process's entry by now. */
		if (p->segid != get.segid || p->id != id || ioctl(xpmem, XPMEM_CMD_ATTACH, &attach)) {
			ioctl(xpmem, XPMEM_CMD_RELEASE, &get.apid);
			return;
		}
		if (p->uid != getuid())
			complain_of("a window onto process %u of user %d", id, (int)p->uid);
		a->views[i].at = (void *)(uintptr_t)attach.vaddr;
		a->views[i].apid = get.apid;
		a->views[i].target = id;
		board->views++;
	}
	for (uintptr_t at = (uintptr_t)a->views[i].at, stop = at + VIEW_BYTES; at < stop; at += (1 + below(a, 24)) * PAGE) {
		if (!read_page(at, words))
			continue;
		board->viewed += OFFSETS;
		for (unsigned int k = 0; k < OFFSETS; k++)
			if (!is_of(words[k], a->views[i].target, a->views[i].its))
				foreign(words[k], at + offsets[k], "a window");
		if (below(a, 4) == 0 && !sigsetjmp(escape, 1)) {
			may_fail = true;
			/* As if the target had written it at first. */
			*(volatile uint64_t *)at = TAG << 48 | (uint64_t)a->views[i].target << 24;
		}
		may_fail = false;
	}
	if (below(a, 3) == 0)
		unview(a, i);
}

static void live(uint64_t seed);

static void do_fork(struct actor *a)
{
	for (unsigned int i = 0; i < MAX_KIDS; i++) {
		int status;

		if (a->kids[i] && waitpid(a->kids[i], &status, WNOHANG) == a->kids[i])
			a->kids[i] = 0;
		if (a->kids[i])
			continue;
		if (depth == MAX_DEPTH)
			return;
		a->kids[i] = fork();
		if (a->kids[i] == 0) {
			become(true);
			live(step(&a->rng) ^ self_id);
			_exit(0);
		}
		if (a->kids[i] < 0)
			a->kids[i] = 0;
		else
			board->forks++;
		/* What is written from here on the child must not see. */
		generation++;
		return;
	}
	kill(a->kids[below(a, MAX_KIDS)], SIGKILL);
}

static void touch(struct actor *a)
{
	uintptr_t at;
	size_t len;

	range(a, &at, &len);
	for (size_t i = 0; i < len; i += (1 + below(a, 32)) * PAGE) {
		look_at(at + i, "what is touched");
		write_page(at + i);
	}
}

static void one_call(struct actor *a)
{
	bool narrow = below(a, 3) == 0;
	uintptr_t at;
	size_t len;

	board->calls++;
	range(a, &at, &len);
	if (windows && below(a, 3)) {
		publish();
		do_view(a);
		return;
	}
	switch (below(a, 20)) {
	case 0 ... 2:
		do_map(a, narrow && below(a, 2));
		break;
	case 3 ... 4:
		if (narrow)
			call32(CALL32_MUNMAP, at, len, 0, 0, 0);
		else
			munmap((void *)at, len);
		break;
	case 5:
		if (narrow)
			call32(CALL32_MPROTECT, at, len, (uintptr_t)some_prot(a), 0, 0);
		else
			mprotect((void *)at, len, some_prot(a));
		break;
	case 6 ... 8:
		do_remap(a, narrow);
		break;
	case 9:
		do_advice(a, below(a, 3));
		break;
	case 10:
		do_ring_advice(a);
		break;
	case 11:
		do_heap(a, narrow);
		break;
	case 12:
		if (narrow)
			call32(below(a, 2) ? CALL32_MLOCK : CALL32_MUNLOCK, at, len, 0, 0, 0);
		else if (below(a, 2))
			syscall(SYS_mlock2, at, len, below(a, 2));
		else
			munlock((void *)at, len);
		break;
	case 13:
		/* Two threads share a userfaultfd of a process that is not watched at all times. */
		if (!windows)
			do_uffd(a);
		break;
	case 14 ... 15:
		do_fork(a);
		break;
	case 16:
		publish();
		do_view(a);
		break;
	default:
		touch(a);
		break;
	}
}

static void *act(void *arg)
{
	struct actor a = { .rng = (uint64_t)(uintptr_t)arg | 1, .uffd = -1 };
	double stop = now() + LIFE_SECONDS * (below(&a, 100) + 20) / 100.0;

	a.heap = sbrk(0);
	if (stop > end)
		stop = end;
	while (now() < stop) {
		one_call(&a);
		if (below(&a, 4) == 0)
			touch(&a);
		if (below(&a, 8) == 0)
			scan(ARENA, ARENA_END, "the arena", below(&a, 3) ? 0 : 1 + below(&a, 63));
	}
	for (unsigned int i = 0; i < MAX_KIDS; i++)
		if (a.kids[i])
			kill(a.kids[i], SIGKILL);
	return NULL;
}

/* Two threads, for some seconds; the end of the first is that of the process. */
static void live(uint64_t seed)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, act, (void *)(uintptr_t)(seed * 3 + 1)) == 0)
		pthread_detach(thread);
	act((void *)(uintptr_t)(seed * 5 + 3));
}

static void worker(uint64_t seed)
{
	struct sigaction action = { .sa_handler = on_fault, .sa_flags = SA_NODEFER };

	sigaction(SIGSEGV, &action, NULL);
	sigaction(SIGBUS, &action, NULL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	become(false);
	live(seed);
	_exit(0);
}

/* ---- The driver -------------------------------------------------------- */

/* @command, then this program as a worker. */
static pid_t start(char **command, int words, const char *path, uint64_t seed)
{
	static char self[512];
	char *argv[words + 8], number[32], until[32];
	pid_t pid;
	int n = 0;

	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		err(2, "/proc/self/exe");
	snprintf(number, sizeof(number), "%llu", (unsigned long long)seed);
	snprintf(until, sizeof(until), "%f", end);
	for (int i = 0; i < words; i++)
		argv[n++] = command[i];
	argv[n++] = self;
	argv[n++] = "--worker";
	argv[n++] = until;
	argv[n++] = "--seed";
	argv[n++] = number;
	if (windows)
		argv[n++] = "--windows";
	argv[n++] = (char *)path;
	argv[n] = NULL;
	pid = fork();
	if (pid < 0)
		err(2, "fork");
	if (pid)
		return pid;
	setpgid(0, 0);
	execvp(argv[0], argv);
	err(2, "%s", argv[0]);
}

static int drive(unsigned int workers, char **command, int words, const char *path, uint64_t seed)
{
	pid_t pids[workers];
	unsigned int started = 0, killed = 0, crashed = 0;
	uint64_t rng = seed | 1;

	memset(pids, 0, sizeof(pids));
	/* Those whose parents are killed. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	while (now() < end) {
		int status;
		pid_t pid;

		for (unsigned int i = 0; i < workers; i++)
			if (!pids[i]) {
				pids[i] = start(command, words, path, step(&rng));
				started++;
			}
		usleep(100000 + step(&rng) % 400000);
		if (step(&rng) % 12 == 0) {
			/* One of them, or one and all of its children. */
			pid = pids[step(&rng) % workers];
			kill(step(&rng) % 2 ? pid : -pid, SIGKILL);
			killed++;
		}
		while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
			for (unsigned int i = 0; i < workers; i++)
				if (pids[i] == pid) {
					crashed += WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL;
					kill(-pid, SIGKILL);
					pids[i] = 0;
				}
	}
	for (unsigned int i = 0; i < workers; i++)
		if (pids[i])
			kill(-pids[i], SIGKILL);
	while (waitpid(-1, NULL, 0) > 0)
		;
	printf("strangers: user %d: %u workers, %u kills, %u crashes; of all users %llu calls, %llu forks, %llu words read, "
	       "%llu windows with %llu words, %llu foreign\n",
	       getuid(), started, killed, crashed, (unsigned long long)board->calls, (unsigned long long)board->forks,
	       (unsigned long long)board->words, (unsigned long long)board->views, (unsigned long long)board->viewed,
	       (unsigned long long)board->foreign);
	return board->foreign != 0;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "windows", no_argument, NULL, 'W' },
		{ "seed", required_argument, NULL, 's' },
		{ "seconds", required_argument, NULL, 't' },
		{ "workers", required_argument, NULL, 'n' },
		{ "worker", required_argument, NULL, 'w' },
		{ NULL, 0, NULL, 0 },
	};
	unsigned int workers = 2;
	bool is_worker = false;
	uint64_t seed = 1;
	const char *path;
	int c, fd;

	while ((c = getopt_long(argc, argv, "+", options, NULL)) != -1) {
		switch (c) {
		case 'W':
			windows = true;
			break;
		case 's':
			seed = number(optarg);
			break;
		case 't':
			end = now() + (double)number(optarg);
			break;
		case 'n':
			workers = (unsigned int)number(optarg);
			break;
		case 'w':
			is_worker = true;
			end = atof(optarg);
			break;
		default:
			return 2;
		}
	}
	if (optind >= argc || end == 0)
		errx(2, "usage: strangers [--windows] [--seed N] --seconds N --workers N BOARD -- COMMAND...");
	path = argv[optind++];
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		err(2, "%s", path);
	/* Whoever comes first makes it as large as it has to be. */
	if (ftruncate(fd, sizeof(struct board)))
		err(2, "%s", path);
	board = mmap(NULL, sizeof(struct board), RW, MAP_SHARED, fd, 0);
	if (board == MAP_FAILED)
		err(2, "%s", path);
	if (is_worker)
		worker(seed);
	if (optind < argc && strcmp(argv[optind], "--") == 0)
		optind++;
	return drive(workers, argv + optind, argc - optind, path, seed);
}
