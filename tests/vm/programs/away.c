// SPDX-License-Identifier: GPL-2.0
/*
 * A program whose file is on a server that is away: execve finds what it needs, and
 * whoever reads the middle waits. SIGKILL ends it.
 *
 *   away COMMAND...	as root; COMMAND is given the program as a further argument.
 *			Says "ended" or, after ten seconds, "stays".
 *   away --window	A process waits with its mmap_lock held, and another one touches
 *			memory of it by a window. Says the same of that one, and whether a
 *			worker of the module waits for it.
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
/* Who cannot read a page lets go of its mmap_lock, and keeps it when it tries again. */
static bool fails_first;

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
			if (fails_first) {
				fails_first = false;
				out->error = -EIO;
				break;
			}
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

static bool ends_within(pid_t pid, unsigned int seconds)
{
	for (unsigned int i = 0; i < seconds * 50; i++) {
		if (waitpid(pid, NULL, WNOHANG) == pid)
			return true;
		usleep(20000);
	}
	return false;
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

/* Publishes all of its memory, then waits. */
static void target(volatile int64_t *segid)
{
	struct xpmem_cmd_make make = {
		.size = XPMEM_ABI_MAXADDR_SIZE,
		.permit_type = XPMEM_ABI_PERMIT_MODE,
		.permit_value = 0600,
	};
	int fd = open(PROGRAM, O_RDONLY | O_CLOEXEC);
	volatile char *at = mmap(NULL, THERE, PROT_READ, MAP_PRIVATE, fd, 0);

	/* One page at a time. */
	if (at == MAP_FAILED || madvise((char *)at, THERE, MADV_RANDOM))
		err(1, "mmap");
	xpmem(XPMEM_CMD_MAKE, &make);
	*segid = make.segid;
	(void)at[AWAY];
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
	pid_t waiting, looking;

	waiting = fork();
	if (!waiting) {
		target(segid);
		_exit(0);
	}
	while (!*waits)
		if (ends_within(waiting, 1))
			errx(1, "it has not waited");
	looking = fork();
	if (!looking) {
		viewer(*segid);
		_exit(0);
	}
	if (ends_within(looking, 1))
		errx(1, "mmap_lock is not held");
	if (worker_waits())
		puts("a worker waits");
	kill(looking, SIGKILL);
	puts(ends_within(looking, 10) ? "ended" : "stays");
}

int main(int argc, char **argv)
{
	bool has_window = argc == 2 && strcmp(argv[1], "--window") == 0;
	pid_t server;

	if (argc < 2)
		return ballast[0] != 1;
	fails_first = has_window;
	source = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	if (source < 0 || fstat(source, &program))
		err(1, "/proc/self/exe");
	waits = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (waits == MAP_FAILED)
		err(1, "mmap");
	server = mount_program();
	if (has_window)
		window();
	else
		command(argc, argv);
	/* That is an answer to all. */
	kill(server, SIGKILL);
	return 0;
}
