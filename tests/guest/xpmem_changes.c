// SPDX-License-Identifier: GPL-2.0
/* Windows while their target changes: holes, growth, all calls, fork, execve, its end; and other users of windows. */
#include "peer.h"

#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/userfaultfd.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define AREA	MB(32)
/* Of a window: as much on either side of the area. */
#define AROUND	MB(32)
#define WINDOW	(AROUND + AREA + AROUND)

enum {
	MAP = 1, MAP_RESERVED, UNMAP, DISCARD, PROTECT_R, PROTECT_NONE, PROTECT_RW, MOVE, FILL, FILLED, SET, BYTE,
	GROW_BREAK, SHRINK_BREAK, HAND_BACK, EXECUTE, END,
};

/* ---- Roles ----------------------------------------------------------- */

/* A userfaultfd for missing pages of a range, which is memory of Linux then. */
static int watch(char *at, size_t len)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = {
		.range = { (uintptr_t)at, len },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);

	CHECK_OK(fd);
	CHECK_OK(ioctl(fd, UFFDIO_API, &api));
	CHECK_OK(ioctl(fd, UFFDIO_REGISTER, &reg));
	return fd;
}

/* Says where its area and its segment are, then does to the area at some offset what it hears. */
static void changes(int fd)
{
	char *room = free_range(WINDOW), *p = map_flags(room + AROUND, AREA, RW, ANON | MAP_FIXED_NOREPLACE);
	uint64_t what;

	fill(p, AREA, 1);
	say(fd, (uintptr_t)p);
	say(fd, (uint64_t)make_all(0600));
	while ((what = hear(fd)) != END) {
		char *at = p + (int64_t)hear(fd);
		size_t len = hear(fd);
		uint64_t result = 0;

		switch (what) {
		case MAP:
			map_flags(at, len, RW, ANON | MAP_FIXED);
			break;
		case MAP_RESERVED:
			map_flags(at, len, RW, ANON | MAP_FIXED | MAP_NORESERVE);
			break;
		case UNMAP:
			unmap(at, len);
			break;
		case DISCARD:
			CHECK_OK(madvise(at, len, MADV_DONTNEED));
			break;
		case PROTECT_R:
			CHECK_OK(mprotect(at, len, PROT_READ));
			break;
		case PROTECT_NONE:
			CHECK_OK(mprotect(at, len, PROT_NONE));
			break;
		case PROTECT_RW:
			CHECK_OK(mprotect(at, len, RW));
			break;
		case MOVE:
			/* To the other end of the room. */
			CHECK(mremap(at, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, p + AREA + AROUND - len) != MAP_FAILED);
			break;
		case FILL:
			fill(at, len, 2);
			break;
		case FILLED:
			verify(at, len, 3, 0);
			break;
		case SET:
			*at = (char)len;
			break;
		case BYTE:
			result = (unsigned char)*at;
			break;
		case GROW_BREAK:
			result = (uintptr_t)sbrk((intptr_t)len);
			memset((void *)result, 4, len);
			break;
		case SHRINK_BREAK:
			CHECK(sbrk(-(intptr_t)len) != (void *)-1);
			break;
		case HAND_BACK:
			CHECK_OK(close(watch(at, len)));
			break;
		case EXECUTE:
			say(fd, 0);
			execlp("sleep", "sleep", "100", NULL);
			FAIL("sleep: %s", errno_name(errno));
		default:
			FAIL("asked for %llu", (unsigned long long)what);
		}
		say(fd, result);
	}
}

static char data[KB(64)] __attribute__((aligned(4096))) = { 1 };
static char bss[KB(64)] __attribute__((aligned(4096)));
static const char constants[KB(64)] __attribute__((aligned(4096))) = { 3 };

/* Says where memory of Linux is, and its segment; then changes and tells bytes. */
static void images(int fd)
{
	char *shared = mmap(NULL, MB(4), RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	char stack[KB(64)] = { 4 };
	char *at;

	CHECK(shared != MAP_FAILED);
	shared[0] = 5;
	bss[0] = 2;
	say(fd, (uintptr_t)data);
	say(fd, (uintptr_t)bss);
	say(fd, (uintptr_t)constants);
	say(fd, (uintptr_t)stack);
	say(fd, (uintptr_t)shared);
	say(fd, (uintptr_t)images);
	say(fd, (uint64_t)make_all(0600));
	while ((at = (char *)(uintptr_t)hear(fd))) {
		uint64_t value = hear(fd);

		if (value)
			*(volatile char *)at = (char)value;
		say(fd, (unsigned char)*(volatile char *)at);
	}
}

/* Attaches the other one's area, and says where; ends when told. */
static void looks_back(int fd)
{
	xpmem_apid_t apid = get_right((xpmem_segid_t)hear(fd), XPMEM_RDWR);
	char *mine = map_anon(AREA), *w = attach_at(apid, hear(fd), AREA);
	uint64_t rounds;

	fill(mine, AREA, 7);
	say(fd, (uintptr_t)w);
	say(fd, (uintptr_t)mine);
	say(fd, (uint64_t)make_all(0600));
	rounds = hear(fd);
	for (uint64_t i = 0; i < rounds; i++) {
		size_t off = i * 5 % 16 * MB(2);

		memset(w + off + MB(1), (int)i, PAGE);
		CHECK_OK(madvise(mine + off, MB(2), MADV_DONTNEED));
		mine[off] = 1;
	}
	say(fd, 0);
	hear(fd);
}

/*
 * Waits until somebody waits for a page that it has not given, then has a window in its
 * place, and lets him go on. Says in the end whether that was touched.
 */
static void becomes_viewer(int fd)
{
	char *at = map_anon(MB(2)), *other = map_anon(MB(2));
	struct xpmem_addr addr = { .offset = (off_t)(uintptr_t)other };
	int uffd = watch(at, MB(2));
	struct uffdio_range all = { (uintptr_t)at, MB(2) };
	xpmem_segid_t segid = make_all(0600);
	struct uffd_msg msg;

	other[0] = 6;
	addr.apid = get_right(segid, XPMEM_RDWR);
	say(fd, (uintptr_t)at);
	say(fd, (uint64_t)segid);
	CHECK_EQ(read(uffd, &msg, sizeof(msg)), sizeof(msg));
	unmap(at, MB(2));
	CHECK(xpmem_attach(addr, MB(2), at) == at);
	CHECK_OK(ioctl(uffd, UFFDIO_WAKE, &all));
	hear(fd);
	say(fd, pagemap_entry(at) >> 63);
	CHECK_EQ(at[0], 6);
	hear(fd);
}

/* A child with its parent's window: it is a target itself, and would have another window. */
static void inherits(int fd)
{
	static char data[PAGE] __attribute__((aligned(PAGE))) = { 7 };
	xpmem_apid_t apid = get_right(make_all(0600), XPMEM_RDWR);
	char *w = attach_at(apid, (uintptr_t)data, PAGE);
	pid_t pid;

	CHECK_OK(madvise(w, PAGE, MADV_DOFORK));
	pid = fork_child();
	if (pid) {
		expect_success(pid);
		return;
	}
	say(fd, (uintptr_t)data);
	say(fd, (uint64_t)make_all(0600));
	apid = get_right((xpmem_segid_t)hear(fd), XPMEM_RDWR);
	CHECK(xpmem_attach((struct xpmem_addr){ apid, (off_t)hear(fd) }, PAGE, NULL) == (void *)-1);
	say(fd, (uint64_t)errno);
	CHECK_SIGBUS(w);
	CHECK_OK(munmap(w, PAGE));
	say(fd, (uintptr_t)attach_at(apid, (uint64_t)hear(fd), PAGE)[0]);
	hear(fd);
	_exit(0);
}

const struct role roles[] = {
	{ "becomes_viewer", becomes_viewer },
	{ "changes", changes },
	{ "images", images },
	{ "inherits", inherits },
	{ "looks_back", looks_back },
	{ NULL, NULL },
};

/* ---- A target that does what it is told --------------------------------- */

static struct target {
	struct peer peer;
	xpmem_apid_t apid;
	xpmem_segid_t segid;
	/* Its area, in its own address space and in the window. */
	uint64_t area;
	char *w;
} target;

static void target_start(void)
{
	need_xpmem();
	target.peer = peer_start("changes");
	target.area = hear(target.peer.fd);
	target.segid = (xpmem_segid_t)hear(target.peer.fd);
	target.apid = get_right(target.segid, XPMEM_RDWR);
	target.w = attach_at(target.apid, target.area - AROUND, WINDOW) + AROUND;
	CHECK_EQ(((uintptr_t)target.w ^ target.area) & (SLOT - 1), 0);
	verify(target.w, AREA, 1, 0);
}

static uint64_t order(uint64_t what, int64_t off, uint64_t len)
{
	say(target.peer.fd, what);
	say(target.peer.fd, (uint64_t)off);
	return ask(&target.peer, len);
}

static void target_end(void)
{
	say(target.peer.fd, END);
	peer_end(&target.peer);
	CHECK_SIGBUS(target.w);
	CHECK_EQ(xpmem_detach(target.w), 0);
	CHECK_EQ(xpmem_release(target.apid), 0);
}

/* ---- Tests ------------------------------------------------------------- */

static void holes_and_growth(void)
{
	target_start();
	CHECK_SIGBUS(target.w - 1);
	CHECK_SIGBUS(target.w - MB(16));
	CHECK_SIGBUS(target.w + AREA);
	order(MAP, -(int64_t)MB(16), MB(16));
	order(FILL, -(int64_t)MB(16), MB(16));
	verify(target.w - MB(16), MB(16), 2, 0);
	fill(target.w - MB(16), MB(16), 3);
	order(FILLED, -(int64_t)MB(16), MB(16));
	/* A few pages behind the area. */
	order(MAP, AREA, KB(12));
	order(FILL, AREA, KB(12));
	verify(target.w + AREA, KB(12), 2, 0);
	CHECK_SIGBUS(target.w + AREA + KB(12));
	verify(target.w, AREA, 1, 0);
	target_end();
}
PAIR(holes_and_growth)

static void unmapped(void)
{
	target_start();
	order(UNMAP, MB(4), MB(4));
	CHECK_SIGBUS(target.w + MB(4));
	CHECK_SIGBUS(target.w + MB(8) - 1);
	verify(target.w, MB(4), 1, 0);
	verify(target.w + MB(8), AREA - MB(8), 1, MB(8));
	/* A page in the middle of a slot. */
	order(UNMAP, MB(12) + 3 * PAGE, PAGE);
	CHECK_SIGBUS(target.w + MB(12) + 3 * PAGE);
	verify(target.w + MB(12), 3 * PAGE, 1, MB(12));
	verify(target.w + MB(12) + 4 * PAGE, MB(2), 1, MB(12) + 4 * PAGE);
	target.w[MB(12)] = 77;
	CHECK_EQ(order(BYTE, MB(12), 0), 77);
	/* What comes to its place is seen, and nothing of what was. */
	order(MAP, MB(4), MB(4));
	verify_zero(target.w + MB(4), MB(4));
	order(MAP, MB(12), MB(2));
	verify_zero(target.w + MB(12), MB(2));
	target.w[MB(13)] = 78;
	CHECK_EQ(order(BYTE, MB(13), 0), 78);
	target_end();
}
PAIR(unmapped)

static void discarded(void)
{
	target_start();
	order(DISCARD, MB(4), MB(4));
	verify_zero(target.w + MB(4), MB(4));
	order(DISCARD, MB(12) + PAGE, 2 * PAGE);
	verify_zero(target.w + MB(12) + PAGE, 2 * PAGE);
	verify(target.w + MB(12), PAGE, 1, MB(12));
	verify(target.w + MB(12) + 3 * PAGE, MB(2), 1, MB(12) + 3 * PAGE);
	fill(target.w + MB(4), MB(4), 3);
	order(FILLED, MB(4), MB(4));
	target_end();
}
PAIR(discarded)

static void protected(void)
{
	target_start();
	order(PROTECT_R, MB(4), MB(4));
	verify(target.w + MB(4), MB(4), 1, MB(4));
	CHECK_READONLY(target.w + MB(4));
	CHECK_READONLY(target.w + MB(8) - 1);
	order(PROTECT_NONE, MB(6), MB(2));
	CHECK_SIGBUS(target.w + MB(6));
	CHECK_READONLY(target.w + MB(6) - 1);
	/* Pages of a slot. */
	order(PROTECT_R, MB(12) + PAGE, PAGE);
	CHECK_READONLY(target.w + MB(12) + PAGE);
	verify(target.w + MB(12), MB(2), 1, MB(12));
	CHECK_EQ(probe_write(target.w + MB(12)).sig, 0);
	CHECK_EQ(probe_write(target.w + MB(12) + 2 * PAGE).sig, 0);
	order(PROTECT_RW, MB(4), MB(4));
	verify(target.w + MB(4), MB(4), 1, MB(4));
	fill(target.w + MB(4), MB(4), 3);
	order(FILLED, MB(4), MB(4));
	target_end();
}
PAIR(protected)

static void moved(void)
{
	target_start();
	order(MOVE, MB(4), MB(4));
	CHECK_SIGBUS(target.w + MB(4));
	CHECK_SIGBUS(target.w + MB(8) - 1);
	verify(target.w + AREA + AROUND - MB(4), MB(4), 1, MB(4));
	fill(target.w + AREA + AROUND - MB(4), MB(4), 3);
	order(FILLED, AREA + AROUND - MB(4), MB(4));
	/* Pages out of a slot. */
	order(MOVE, MB(12) + PAGE, 2 * PAGE);
	CHECK_SIGBUS(target.w + MB(12) + PAGE);
	verify(target.w + MB(12), PAGE, 1, MB(12));
	verify(target.w + MB(12) + 3 * PAGE, MB(2), 1, MB(12) + 3 * PAGE);
	verify(target.w + AREA + AROUND - 2 * PAGE, 2 * PAGE, 1, MB(12) + PAGE);
	target_end();
}
PAIR(moved)

static void reserved(void)
{
	target_start();
	order(MAP_RESERVED, AREA, MB(16));
	target.w[AREA + MB(5)] = 5;
	CHECK_EQ(order(BYTE, AREA + MB(5), 0), 5);
	CHECK_EQ(order(BYTE, AREA + MB(5) + 1, 0), 0);
	CHECK_EQ(target.w[AREA + MB(9)], 0);
	order(SET, AREA + MB(9), 6);
	CHECK_EQ(target.w[AREA + MB(9)], 6);
	target_end();
}
PAIR(reserved)

static void heap(void)
{
	uint64_t old;
	char *w;

	target_start();
	old = order(GROW_BREAK, 0, MB(8)) & ~(PAGE - 1);
	w = attach_at(target.apid, old, MB(8));
	CHECK_EQ(w[MB(4)], 4);
	CHECK_EQ(w[MB(8) - PAGE], 4);
	w[MB(3)] = 5;
	order(SHRINK_BREAK, 0, MB(8));
	CHECK_SIGBUS(w + MB(4));
	CHECK_EQ(order(GROW_BREAK, 0, MB(8)) & ~(PAGE - 1), old);
	CHECK_EQ(w[MB(4)], 4);
	CHECK_EQ(xpmem_detach(w), 0);
	target_end();
}
PAIR(heap)

static void of_gone(void)
{
	CHECK_SIGBUS(target.w);
	CHECK_SIGBUS(target.w + MB(5));
	CHECK_ERR(xpmem_get(target.segid, XPMEM_RDWR, XPMEM_PERMIT_MODE, NULL), ENOENT);
	CHECK_EQ(xpmem_detach(target.w), 0);
	CHECK_EQ(xpmem_release(target.apid), 0);
	close(target.peer.fd);
}

static void killed(void)
{
	target_start();
	CHECK_OK(kill(target.peer.pid, SIGKILL));
	expect_signal(target.peer.pid, SIGKILL);
	of_gone();
}
PAIR(killed)

static void executes(void)
{
	char byte;

	target_start();
	order(EXECUTE, 0, 0);
	/* Its end of the connection goes with execve. */
	CHECK_EQ(read(target.peer.fd, &byte, 1), 0);
	/* That closes files late, in the new address space. */
	for (int i = 0; i < 1000; i++) {
		xpmem_apid_t apid = xpmem_get(target.segid, XPMEM_RDWR, XPMEM_PERMIT_MODE, NULL);

		if (apid <= 0)
			break;
		CHECK_EQ(xpmem_release(apid), 0);
		usleep(10000);
	}
	of_gone();
	CHECK_OK(kill(target.peer.pid, SIGKILL));
	expect_signal(target.peer.pid, SIGKILL);
}
PAIR(executes)

static void memory_of_linux(void)
{
	struct peer peer;
	xpmem_apid_t apid;
	uint64_t at[6];
	char *w;

	need_xpmem();
	peer = peer_start("images");
	for (size_t i = 0; i < ARRAY_SIZE(at); i++)
		at[i] = hear(peer.fd);
	apid = get_right((xpmem_segid_t)hear(peer.fd), XPMEM_RDWR);
	/* data, bss, constants, stack, shared memory, text */
	for (size_t i = 0; i < ARRAY_SIZE(at); i++) {
		uint64_t first = at[i] & ~(PAGE - 1);
		bool readonly = i == 2 || i == 5;

		w = attach_at(apid, first, KB(64) + PAGE) + (at[i] - first);
		if (i < 5)
			CHECK_EQ(*w, i == 0 ? 1 : i == 1 ? 2 : i == 2 ? 3 : i == 3 ? 4 : 5);
		else
			CHECK_EQ(*w, *(char *)images);
		if (readonly) {
			CHECK_READONLY(w);
		} else {
			*w = 50;
			say(peer.fd, at[i]);
			CHECK_EQ(ask(&peer, 0), 50);
			say(peer.fd, at[i] + KB(60));
			ask(&peer, 60);
			CHECK_EQ(w[KB(60)], 60);
			/* Once it is there already. */
			say(peer.fd, at[i] + KB(60));
			ask(&peer, 61);
			CHECK_EQ(w[KB(60)], 61);
		}
		CHECK_EQ(xpmem_detach(w), 0);
	}
	say(peer.fd, 0);
	peer_end(&peer);
}
PAIR(memory_of_linux)

/*
 * Who has windows that it did not attach itself has no notifier registered for it: all of
 * its locks would be taken for that, the windows' among them.
 */
static void inherited(void)
{
	static char data[PAGE] __attribute__((aligned(PAGE))) = { 8 };
	struct peer peer;
	xpmem_apid_t apid;
	uint64_t at;
	char *w;

	need_xpmem();
	peer = peer_start("inherits");
	at = hear(peer.fd);
	apid = get_right((xpmem_segid_t)hear(peer.fd), XPMEM_RDWR);
	w = attach_at(apid, at, PAGE);
	CHECK_SIGBUS(w);
	say(peer.fd, (uint64_t)make_all(0600));
	CHECK_EQ(ask(&peer, (uintptr_t)data), EBUSY);
	/* Without the window it is like any other. */
	CHECK_EQ(ask(&peer, (uintptr_t)data), 8);
	CHECK_EQ(*w, 7);
	say(peer.fd, 0);
	peer_end(&peer);
}
SAME(inherited)

/* A window onto a window shows nothing. */
static void window_onto_window(void)
{
	char *mine = map_anon(AREA), *v;
	struct peer peer;
	uint64_t theirs;

	need_xpmem();
	fill(mine, AREA, 1);
	peer = peer_start("looks_back");
	say(peer.fd, (uint64_t)make_all(0600));
	say(peer.fd, (uintptr_t)mine);
	theirs = hear(peer.fd);
	hear(peer.fd);
	v = attach_at(get_right((xpmem_segid_t)hear(peer.fd), XPMEM_RDWR), theirs, AREA);
	CHECK_SIGBUS(v);
	CHECK_EQ(xpmem_detach(v), 0);
	ask(&peer, 0);
	say(peer.fd, 0);
	peer_end(&peer);
	unmap(mine, AREA);
}
PAIR(window_onto_window)

/* Two processes with windows onto each other fault in them while both change what they have. */
static void onto_each_other(void)
{
	char *mine = map_anon(AREA), *v;
	struct peer peer;
	uint64_t theirs;

	need_xpmem();
	memset(mine, 0, AREA);
	peer = peer_start("looks_back");
	say(peer.fd, (uint64_t)make_all(0600));
	say(peer.fd, (uintptr_t)mine);
	hear(peer.fd);
	theirs = hear(peer.fd);
	v = attach_at(get_right((xpmem_segid_t)hear(peer.fd), XPMEM_RDWR), theirs, AREA);
	verify(v, AREA, 7, 0);
	say(peer.fd, 300);
	for (int i = 0; i < 300; i++) {
		size_t off = i * 7 % 16 * MB(2);

		v[off + MB(1)] = 5;
		CHECK_OK(madvise(mine + off, MB(2), MADV_DONTNEED));
		mine[off] = 1;
	}
	hear(peer.fd);
	for (size_t off = 0; off < AREA; off += MB(2)) {
		CHECK_EQ(mine[off], 1);
		CHECK_EQ(v[off], 1);
	}
	say(peer.fd, 0);
	peer_end(&peer);
	unmap(mine, AREA);
}
PAIR(onto_each_other)

/* ---- Who else looks at a window ------------------------------------------ */

/* Whether others can pin what is in the window: memory of the pools. */
static bool pinnable(void)
{
	return registered() != other_kind;
}

static void other_process_reads(void)
{
	static char buffer[KB(64)];
	struct iovec local = { buffer, sizeof(buffer) }, remote;
	pid_t child;

	target_start();
	remote = (struct iovec){ target.w + MB(4), sizeof(buffer) };
	if (!pinnable()) {
		CHECK_ERR(process_vm_readv(getpid(), &local, 1, &remote, 1, 0), EFAULT);
		target_end();
		return;
	}
	child = fork_child();
	if (child == 0) {
		CHECK_EQ(process_vm_readv(getppid(), &local, 1, &remote, 1, 0), sizeof(buffer));
		verify(buffer, sizeof(buffer), 1, MB(4));
		fill(buffer, sizeof(buffer), 3);
		CHECK_EQ(process_vm_writev(getppid(), &local, 1, &remote, 1, 0), sizeof(buffer));
		_exit(0);
	}
	expect_success(child);
	order(FILLED, MB(4), sizeof(buffer));
	target_end();
}
PAIR(other_process_reads)

static void spliced(void)
{
	static char buffer[PAGE];
	struct iovec piece;
	int fds[2];

	target_start();
	CHECK_OK(pipe(fds));
	piece = (struct iovec){ target.w + MB(4), PAGE };
	if (!pinnable()) {
		CHECK_ERR(vmsplice(fds[1], &piece, 1, 0), EEXIST);
	} else {
		CHECK_EQ(vmsplice(fds[1], &piece, 1, 0), PAGE);
		/* The page is there for the pipe, whatever becomes of the target, and not for the window. */
		CHECK_OK(kill(target.peer.pid, SIGKILL));
		expect_signal(target.peer.pid, SIGKILL);
		CHECK_SIGBUS(target.w + MB(4));
		CHECK_EQ(read(fds[0], buffer, PAGE), PAGE);
		verify(buffer, PAGE, 1, MB(4));
	}
	close(fds[0]);
	close(fds[1]);
	if (pinnable())
		of_gone();
	else
		target_end();
}
PAIR(spliced)

/* A block device of its own, because not every file system has O_DIRECT. */
static int open_direct(void)
{
	char image[] = "/tmp/hpmmap-xpmem-XXXXXX", command[128], device[64] = "";
	int fd = mkostemp(image, O_CLOEXEC);
	FILE *out;

	CHECK_OK(fd);
	CHECK_OK(ftruncate(fd, MB(16)));
	close(fd);
	snprintf(command, sizeof(command), "modprobe -q loop; losetup --find --show %s", image);
	out = popen(command, "re");
	CHECK(out);
	if (!fgets(device, sizeof(device), out) || pclose(out) != 0)
		device[0] = '\0';
	CHECK_OK(unlink(image));
	if (!device[0])
		return -1;
	device[strcspn(device, "\n")] = '\0';
	fd = open(device, O_RDWR | O_DIRECT | O_CLOEXEC);
	/* Goes when the file is closed. */
	snprintf(command, sizeof(command), "losetup --detach %s", device);
	CHECK_EQ(system(command), 0);
	CHECK_OK(fd);
	return fd;
}

static void direct_io(void)
{
	int fd;

	if (geteuid() != 0)
		SKIP("a loop device needs root");
	need_xpmem();
	fd = open_direct();
	if (fd < 0)
		SKIP("there is no loop device");
	target_start();
	if (!pinnable()) {
		CHECK_EQ(pwrite(fd, target.w + MB(4), MB(4), 0), -1);
	} else {
		CHECK_EQ(pwrite(fd, target.w + MB(4), MB(4), 0), MB(4));
		/* Into memory that the target has never touched. */
		order(MAP, AREA, MB(4));
		CHECK_EQ(pread(fd, target.w + AREA, MB(4), 0), MB(4));
		verify(target.w + AREA, MB(4), 1, MB(4));
		CHECK_EQ(order(BYTE, AREA + MB(2), 0), (unsigned char)target.w[MB(6)]);
	}
	close(fd);
	target_end();
}
PAIR(direct_io)

/* A long-term pin; Linux 6.1 refuses those of files. */
static void fixed_buffers(void)
{
	struct io_uring_params params = { 0 };
	struct iovec piece;
	int ring;

	target_start();
	ring = (int)syscall(SYS_io_uring_setup, 4, &params);
	CHECK_OK(ring);
	piece = (struct iovec){ target.w + MB(4), MB(4) };
	if (syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, &piece, 1) != 0) {
		if (pinnable() && errno != EOPNOTSUPP)
			FAIL("IORING_REGISTER_BUFFERS: %s", errno_name(errno));
	} else if (!pinnable()) {
		FAIL("memory of Linux was pinned");
	} else {
		/* Pinned memory stays what the target has. */
		target.w[MB(4)] = 9;
		CHECK_EQ(order(BYTE, MB(4), 0), 9);
	}
	close(ring);
	target_end();
}
PAIR(fixed_buffers)

static void need_userfaultfd(void)
{
	if (geteuid() != 0)
		SKIP("userfaultfd for what the kernel touches needs root");
}

/*
 * A fault in a window never waits within another one: who keeps chains of windows that
 * appear while they are waited for would use up the stack of the kernel.
 */
static void window_appears_meanwhile(void)
{
	xpmem_apid_t apid;
	struct peer peer;
	uint64_t at;
	char *w;

	need_xpmem();
	need_userfaultfd();
	peer = peer_start("becomes_viewer");
	at = hear(peer.fd);
	apid = get_right((xpmem_segid_t)hear(peer.fd), XPMEM_RDWR);
	w = attach_at(apid, at, PAGE);
	CHECK_EQ(probe_read(w).sig, SIGBUS);
	CHECK_EQ(ask(&peer, 0), false);
	say(peer.fd, 0);
	peer_end(&peer);
	CHECK_EQ(xpmem_detach(w), 0);
	CHECK_EQ(xpmem_release(apid), 0);
}
PAIR(window_appears_meanwhile)

/* What is written through a window while part of its target's memory becomes Linux's is not lost. */
static void neighbour_is_handed_back(void)
{
	need_userfaultfd();
	target_start();
	for (unsigned int i = 0; i < 12; i++) {
		char *w;

		order(MAP, 0, AREA);
		order(FILL, 0, AREA);
		w = attach_at(target.apid, target.area, AREA);
		say(target.peer.fd, HAND_BACK);
		say(target.peer.fd, 0);
		say(target.peer.fd, MB(16));
		/* Nothing of it was mapped, and this would map all that is beside it. */
		usleep(i * 3000);
		CHECK_EQ(w[MB(24)], target.w[MB(24)]);
		fill(w, MB(16), 3);
		hear(target.peer.fd);
		order(FILLED, 0, MB(16));
		CHECK_EQ(xpmem_detach(w), 0);
	}
	target_end();
}
SAME(neighbour_is_handed_back)

/* ---- Threads ----------------------------------------------------------------- */

static atomic_bool done;
static __thread sigjmp_buf after_bus;

static void on_bus(int sig)
{
	(void)sig;
	siglongjmp(after_bus, 1);
}

/* Whatever the target does: its bytes, zero, or SIGBUS. */
static void *touches(void *arg)
{
	volatile unsigned int seed = (unsigned int)(uintptr_t)arg;

	while (!done) {
		unsigned int next = seed;
		const volatile char *p = target.w + rand_r(&next) % AREA;

		seed = next;
		if (sigsetjmp(after_bus, 1) == 0)
			(void)*p;
	}
	return NULL;
}

static void faults_beside_changes(void)
{
	struct sigaction action = { .sa_handler = on_bus }, old;
	pthread_t threads[2];

	target_start();
	done = false;
	CHECK_OK(sigaction(SIGBUS, &action, &old));
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		threads[i] = start_thread(touches, (void *)(i + 1));
	for (int i = 0; i < 30; i++) {
		size_t off = i % 8 * MB(4);

		order(UNMAP, off, MB(3));
		order(MAP, off, MB(4));
		order(PROTECT_R, off + PAGE, MB(2));
		order(DISCARD, off, MB(4));
		order(PROTECT_RW, off, MB(4));
	}
	done = true;
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		join_thread(threads[i]);
	CHECK_OK(sigaction(SIGBUS, &old, NULL));
	verify_zero(target.w, AREA);
	fill(target.w, AREA, 3);
	order(FILLED, 0, AREA);
	target_end();
}
PAIR(faults_beside_changes)

static const struct test tests[] = {
	T_PAIR(holes_and_growth),
	T_PAIR(unmapped),
	T_PAIR(discarded),
	T_PAIR(protected),
	T_PAIR(moved),
	T_PAIR(reserved),
	T_PAIR(heap),
	T_PAIR(killed),
	T_PAIR(executes),
	T_PAIR(memory_of_linux),
	T_SAME(inherited),
	T_PAIR(window_onto_window),
	T_PAIR(onto_each_other),
	T_PAIR(other_process_reads),
	T_PAIR(spliced),
	T_PAIR(direct_io),
	T_PAIR(fixed_buffers),
	T_PAIR(window_appears_meanwhile),
	T_SAME(neighbour_is_handed_back),
	T_PAIR(faults_beside_changes),
};

int main(int argc, char **argv)
{
	peer_main(argc, argv);
	return RUN_GROUP("xpmem_changes", tests);
}
