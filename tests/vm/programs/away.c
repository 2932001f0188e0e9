// SPDX-License-Identifier: GPL-2.0
/*
 * A program whose file is on a server that does not answer: execve finds what it needs,
 * and a read of the middle waits. SIGKILL ends it.
 *
 *   away COMMAND...	as root; COMMAND is given the program as a further argument.
 *			Says "ended" or, after ten seconds, "stays".
 *   away --window	A process reads another one's memory by /proc/PID/mem, and waits with
 *			its mmap_lock held; a third one touches memory of it by a window.
 *			Says the same of the third, and whether a worker of the module waits
 *			for it; or "sees nothing" if windows do not show ordinary memory.
 *   away --calls	The same for calls of such a process: names those that wait and
 *			would not on Linux, and those that SIGKILL does not end.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <linux/fuse.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hpmmap_xpmem.h"

#define DIRECTORY	"/mnt"
#define PROGRAM		DIRECTORY "/program"
/* Who reads from here to there is not answered: the middle of what nobody needs. */
#define AWAY		(1UL << 20)
#define THERE		(2UL << 20)

static volatile char ballast[2 << 20] = { 1 };

static struct stat program;
static int source;
/* Somebody waits; of both processes. */
static volatile bool *waits;

static struct fuse_attr attributes(uint64_t node)
{
	bool is_root = node == FUSE_ROOT_ID;

	return (struct fuse_attr){
		.ino = node,
		.size = is_root ? 0 : (uint64_t)program.st_size,
		.nlink = 1,
		.mode = is_root ? S_IFDIR | 0755 : S_IFREG | 0755,
		.blksize = 4096,
	};
}

/* Returns the length of the answer; 0 for none. */
static size_t answer(const struct fuse_in_header *in, const void *arg, struct fuse_out_header *out)
{
	void *res = out + 1;
	size_t len = 0;

	switch (in->opcode) {
	case FUSE_INIT: {
		const struct fuse_init_in *init = arg;

		*(struct fuse_init_out *)res = (struct fuse_init_out){
			.major = FUSE_KERNEL_VERSION,
			.minor = init->minor < FUSE_KERNEL_MINOR_VERSION ?
				 init->minor : FUSE_KERNEL_MINOR_VERSION,
			/* Otherwise nobody who waits for a page can be killed. */
			.flags = FUSE_ASYNC_READ,
			.max_readahead = 64 << 10,
			.max_write = 4096,
			.max_background = 16,
			.congestion_threshold = 12,
		};
		len = sizeof(struct fuse_init_out);
		break;
	}
	case FUSE_LOOKUP:
		*(struct fuse_entry_out *)res = (struct fuse_entry_out){
			.nodeid = 2,
			.attr_valid = 1000,
			.entry_valid = 1000,
			.attr = attributes(2),
		};
		len = sizeof(struct fuse_entry_out);
		break;
	case FUSE_GETATTR:
		*(struct fuse_attr_out *)res = (struct fuse_attr_out){
			.attr_valid = 1000,
			.attr = attributes(in->nodeid),
		};
		len = sizeof(struct fuse_attr_out);
		break;
	case FUSE_OPEN:
		*(struct fuse_open_out *)res = (struct fuse_open_out){ .fh = 1 };
		len = sizeof(struct fuse_open_out);
		break;
	case FUSE_READ: {
		const struct fuse_read_in *rd = arg;
		ssize_t got;

		if (rd->offset < THERE && rd->offset + rd->size > AWAY) {
			*waits = true;
			return 0;
		}
		got = pread(source, res, rd->size, (off_t)rd->offset);
		if (got < 0)
			err(1, "read");
		len = (size_t)got;
		break;
	}
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
		return 0;
	case FUSE_FLUSH:
	case FUSE_RELEASE:
		break;
	default:
		out->error = -ENOSYS;
	}
	return sizeof(*out) + len;
}

static void serve(int fuse)
{
	static char in[1 << 20], out[1 << 20];
	struct fuse_out_header *header = (void *)out;

	for (;;) {
		ssize_t got = read(fuse, in, sizeof(in));

		if (got < 0 && errno != EINTR && errno != ENOENT)
			exit(0);
		if (got <= 0)
			continue;
		memset(header, 0, sizeof(*header));
		header->unique = ((struct fuse_in_header *)in)->unique;
		header->len = (uint32_t)answer((void *)in, in + sizeof(struct fuse_in_header),
					       header);
		if (header->len && write(fuse, out, header->len) < 0 && errno != ENOENT)
			err(1, "answer");
	}
}

/* Returns the server. */
static pid_t mount_program(void)
{
	char options[64];
	pid_t server;
	int fuse;

	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		err(1, "namespace");
	fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (fuse < 0)
		err(1, "/dev/fuse");
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", fuse);
	if (mount("away", DIRECTORY, "fuse", MS_NOSUID | MS_NODEV, options))
		err(1, "mount");
	server = fork();
	if (server < 0)
		err(1, "fork");
	if (!server) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		serve(fuse);
	}
	close(fuse);
	return server;
}

static bool ends_in(pid_t pid, unsigned int seconds, int *status)
{
	for (unsigned int i = 0; i < seconds * 50; i++) {
		if (waitpid(pid, status, WNOHANG) == pid)
			return true;
		usleep(20000);
	}
	return false;
}

static bool ends_within(pid_t pid, unsigned int seconds)
{
	return ends_in(pid, seconds, NULL);
}

static void command(int argc, char **argv)
{
	char *words[argc + 1];
	pid_t pid;

	memcpy(words, argv + 1, (size_t)(argc - 1) * sizeof(*words));
	words[argc - 1] = PROGRAM;
	words[argc] = NULL;
	pid = fork();
	if (!pid) {
		execvp(words[0], words);
		err(1, "%s", words[0]);
	}
	while (!*waits)
		if (ends_within(pid, 1))
			errx(1, "it has not waited");
	/* Where it waits for good. */
	usleep(500000);
	kill(pid, SIGKILL);
	puts(ends_within(pid, 10) ? "ended" : "stays");
}

/* ---- Who reads a process's memory, and waits -------------------------------- */

static volatile char *program_map(void)
{
	int fd = open(PROGRAM, O_RDONLY | O_CLOEXEC);
	char *at = mmap(NULL, THERE, PROT_READ, MAP_PRIVATE, fd, 0);

	/* One page at a time. */
	if (at == MAP_FAILED || madvise(at, THERE, MADV_RANDOM))
		err(1, "mmap");
	return at;
}

static void read_and_wait(pid_t target, off_t at)
{
	char path[32], byte;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/mem", target);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		err(1, "%s", path);
	/* The end of the server is an answer, too. */
	if (pread(fd, &byte, 1, at) < 0 && errno != EIO)
		err(1, "%s", path);
}

/* Somebody reads a page of @target that nobody else waits for. */
static void start_reader(pid_t target, volatile char *at)
{
	pid_t pid;

	*waits = false;
	pid = fork();
	if (!pid) {
		read_and_wait(target, (off_t)at);
		_exit(0);
	}
	while (!*waits)
		if (ends_within(pid, 1))
			errx(1, "who reads has not waited");
	/* Where it waits for good. */
	usleep(200000);
}

/* ---- A window onto a process that waits --------------------------------- */

static long xpmem(unsigned long what, void *argument)
{
	static int fd = -1;
	long ret;

	if (fd < 0)
		fd = open("/dev/xpmem", O_RDWR | O_CLOEXEC);
	ret = ioctl(fd, what, argument);
	if (ret < 0)
		err(1, "/dev/xpmem");
	return ret;
}

/* Publishes all of its memory. */
static void target(volatile int64_t *segid)
{
	struct xpmem_cmd_make make = {
		.size = XPMEM_ABI_MAXADDR_SIZE,
		.permit_type = XPMEM_ABI_PERMIT_MODE,
		.permit_value = 0600,
	};

	xpmem(XPMEM_CMD_MAKE, &make);
	*segid = make.segid;
	pause();
}

/* Touches memory of Linux that the target has. */
static void viewer(int64_t segid)
{
	struct xpmem_cmd_get get = {
		.segid = segid,
		.flags = XPMEM_ABI_RDWR,
		.permit_type = XPMEM_ABI_PERMIT_MODE,
	};
	struct xpmem_cmd_attach attach = {
		.offset = (uintptr_t)ballast & -4096L,
		.size = 4096,
	};

	xpmem(XPMEM_CMD_GET, &get);
	attach.apid = get.apid;
	xpmem(XPMEM_CMD_ATTACH, &attach);
	(void)*(volatile char *)(uintptr_t)attach.vaddr;
}

/* Is a worker in the module now? */
static bool worker_is_busy(void)
{
	static char text[4096];
	bool busy = false;
	glob_t found;

	if (glob("/proc/[0-9]*/stack", 0, NULL, &found))
		err(1, "/proc");
	for (size_t i = 0; i < found.gl_pathc && !busy; i++) {
		FILE *file = fopen(found.gl_pathv[i], "r");
		size_t len = file ? fread(text, 1, sizeof(text) - 1, file) : 0;

		text[len] = '\0';
		busy = strstr(text, "[hpmmap]") && strstr(text, "worker_thread");
		if (file)
			fclose(file);
	}
	globfree(&found);
	return busy;
}

static bool worker_waits(void)
{
	for (int i = 0; i < 20; i++) {
		if (!worker_is_busy())
			return false;
		usleep(100000);
	}
	return true;
}

static void window(void)
{
	volatile int64_t *segid = (volatile void *)(waits + sizeof(*segid));
	volatile char *at = program_map() + AWAY;
	pid_t published, looking;
	int status;

	published = fork();
	if (!published) {
		target(segid);
		_exit(0);
	}
	while (!*segid)
		if (ends_within(published, 1))
			errx(1, "it has not published its memory");
	start_reader(published, at);
	looking = fork();
	if (!looking) {
		viewer(*segid);
		_exit(0);
	}
	if (ends_in(looking, 1, &status)) {
		if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGBUS)
			errx(1, "mmap_lock is not held");
		puts("sees nothing");
	} else {
		if (worker_waits())
			puts("a worker waits");
		kill(looking, SIGKILL);
		puts(ends_within(looking, 10) ? "ended" : "stays");
	}
	kill(published, SIGKILL);
}

/* ---- Calls of a process that somebody reads ------------------------------ */

#define BLOCK	(2UL << 20)
#define FEW	(64UL << 10)
/* It takes some ten milliseconds to copy that. */
#define MANY	(96UL << 20)

/* Inherited by all who call. */
static volatile char *inherited;
/* Two blocks with contents, of the caller's own. */
static volatile char *own;
/* And so few pages that they have no block. */
static volatile char *few;
/* It has them; of both processes. */
static volatile bool *ready;

static volatile char *memory_make(size_t size)
{
	char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		err(1, "mmap");
	memset(at, 1, size);
	return at;
}

static void discard_blocks(void)
{
	if (madvise((char *)own, 2 * BLOCK, MADV_DONTNEED))
		err(1, "MADV_DONTNEED");
	for (size_t i = 0; i < 2 * BLOCK; i += 4096)
		if (own[i])
			errx(1, "byte %zu has contents", i);
}

static void discard_pages(void)
{
	if (madvise((char *)few, FEW, MADV_DONTNEED))
		err(1, "MADV_DONTNEED");
	for (size_t i = 0; i < FEW; i += 4096)
		if (few[i])
			errx(1, "byte %zu of a few pages has contents", i);
}

static void store_all(void)
{
	for (size_t i = 0; i < 2 * BLOCK; i += 4096)
		inherited[i] = 2;
}

static void map_reservation(void)
{
	mmap((char *)own, 2 * BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS |
	     MAP_FIXED | MAP_NORESERVE, -1, 0);
}

static void map_anew(void)
{
	mmap((char *)own, BLOCK + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS |
	     MAP_FIXED, -1, 0);
}

static void move(void)
{
	mremap((char *)own, BLOCK, BLOCK, MREMAP_MAYMOVE | MREMAP_FIXED, (char *)own + BLOCK);
}

static void grow_heap(void)
{
	(void)sbrk(16 << 20);
}

static void wipe(void)
{
	madvise((char *)own, BLOCK, MADV_WIPEONFORK);
}

static void merge(void)
{
	madvise((char *)own, BLOCK, MADV_MERGEABLE);
}

static const struct call {
	const char *name;
	void (*call)(void);
	/* It has mmap_lock for writing on Linux, too. */
	bool waits;
} calls[] = {
	{ "MADV_DONTNEED of blocks", discard_blocks, false },
	{ "MADV_DONTNEED of pages", discard_pages, false },
	{ "a store after a fork", store_all, false },
	{ "mmap of a reservation", map_reservation, true },
	{ "mmap", map_anew, true },
	{ "mremap", move, true },
	{ "brk", grow_heap, true },
	{ "MADV_WIPEONFORK", wipe, true },
	{ "MADV_MERGEABLE", merge, true },
};

/* Calls when it may. */
static void caller(const struct call *call, int may)
{
	char go;

	own = memory_make(2 * BLOCK);
	few = memory_make(FEW);
	*ready = true;
	if (read(may, &go, 1) != 1)
		err(1, "pipe");
	call->call();
}

static void call_beside_reader(const struct call *call, volatile char *at)
{
	pid_t target;
	int may[2];
	bool ended;

	*ready = false;
	if (pipe(may))
		err(1, "pipe");
	target = fork();
	if (!target) {
		caller(call, may[0]);
		_exit(0);
	}
	while (!*ready)
		if (ends_within(target, 1))
			errx(1, "%s: it has ended", call->name);
	start_reader(target, at);
	if (write(may[1], "", 1) != 1)
		err(1, "pipe");
	ended = ends_within(target, call->waits ? 1 : 5);
	if (ended && call->waits)
		errx(1, "%s: mmap_lock is not held", call->name);
	if (!ended && !call->waits)
		printf("%s waits\n", call->name);
	if (!ended) {
		kill(target, SIGKILL);
		if (!ends_within(target, 10))
			printf("%s stays\n", call->name);
	}
	close(may[0]);
	close(may[1]);
}

static bool is_mapped(volatile char *at)
{
	return !msync((char *)at, 4096, MS_ASYNC);
}

/* By a process of its own that shares the address space. Returns when that has ended. */
static void call_beside(int (*call)(void *argument), void *argument, volatile pid_t *calling)
{
	static char stack[64 << 10] __attribute__((aligned(16)));

	*calling = clone(call, stack + sizeof(stack), CLONE_VM | SIGCHLD, argument);
	if (*calling < 0 || waitpid(*calling, NULL, 0) != *calling)
		err(1, "clone");
	*calling = 0;
}

/* Where the call has not waited, who reads comes later. */
static void expect_many(volatile char *at)
{
	while (!*waits)
		usleep(1000);
	for (size_t i = 0; i < MANY; i += 4096)
		if (at[i] != 1)
			errx(1, "byte %zu is lost", i);
}

static int move_many(void *to)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	*ready = true;
	mremap((char *)own, MANY, MANY, MREMAP_MAYMOVE | MREMAP_FIXED, to);
	return 0;
}

/*
 * A process of the same address space moves what is copied, and is killed while it waits
 * for who reads. What it has moved is there, sooner or later.
 */
static void survivor_of_move(volatile pid_t *calling)
{
	volatile char *to = mmap(NULL, MANY + BLOCK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
				 -1, 0);

	own = memory_make(MANY);
	/* Its pages are not where they were in their blocks. */
	to += 4096;
	if (((uintptr_t)to ^ (uintptr_t)own) % BLOCK == 0)
		to += 4096;
	call_beside(move_many, (void *)to, calling);
	if (is_mapped(own))
		to = own;
	else if (!is_mapped(to))
		errx(1, "what is moved is nowhere");
	expect_many(to);
}

/* A process that moves what it shares with another one is killed while it waits for a reader. */
static void kill_who_moves(volatile char *at, pid_t server)
{
	volatile pid_t *calling = (volatile void *)(waits + 64);
	pid_t surviving, pid;
	int status;

	*waits = *ready = false;
	surviving = fork();
	if (!surviving) {
		survivor_of_move(calling);
		_exit(0);
	}
	while (!*ready)
		;
	usleep(10000);
	start_reader(surviving, at);
	pid = *calling;
	if (pid)
		kill(pid, SIGKILL);
	for (int i = 0; *calling && i < 500; i++)
		usleep(20000);
	if (*calling)
		puts("who calls stays");
	kill(server, SIGKILL);
	if (!ends_in(surviving, 20, &status) || status) {
		puts("something is lost");
		kill(surviving, SIGKILL);
	}
}

static void all_calls(pid_t server)
{
	volatile char *at = program_map() + AWAY;

	inherited = memory_make(2 * BLOCK);
	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++)
		call_beside_reader(&calls[i], at + i * 4096);
	kill_who_moves(at + 512 * 1024, server);
	puts("done");
}

int main(int argc, char **argv)
{
	bool has_window = argc == 2 && strcmp(argv[1], "--window") == 0;
	bool has_calls = argc == 2 && strcmp(argv[1], "--calls") == 0;
	pid_t server;

	if (argc < 2)
		return ballast[0] != 1;
	setvbuf(stdout, NULL, _IOLBF, 0);
	source = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	if (source < 0 || fstat(source, &program))
		err(1, "/proc/self/exe");
	waits = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (waits == MAP_FAILED)
		err(1, "mmap");
	ready = waits + 1;
	server = mount_program();
	if (has_window)
		window();
	else if (has_calls)
		all_calls(server);
	else
		command(argc, argv);
	/* That is an answer to all. */
	kill(server, SIGKILL);
	return 0;
}
