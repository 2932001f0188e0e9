// SPDX-License-Identifier: GPL-2.0
/* Other users of memory in the kernel: I/O, other processes, /proc. */
#include "common.h"
#include "ring.h"

#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/userfaultfd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static void make_dir(char *dir, size_t len)
{
	const char *tmp = getenv("TMPDIR");

	CHECK((size_t)snprintf(dir, len, "%s/hpmmap-sem-io-XXXXXX",
			       tmp ? tmp : "/tmp") < len);
	if (!mkdtemp(dir))
		FAIL("%s: %s", dir, errno_name(errno));
}

/* Is the program there and can it be run at all? */
static bool have(const char *program)
{
	char command[128];

	snprintf(command, sizeof(command), "command -v %s >/dev/null", program);
	return system(command) == 0;
}

/* ---- Files --------------------------------------------------------------- */

static void write_all(int fd, const char *p, size_t len, off_t at)
{
	while (len) {
		ssize_t n = pwrite(fd, p, len, at);

		if (n <= 0)
			FAIL("pwrite(%#zx at %lld): %s", len, (long long)at,
			     errno_name(errno));
		p += n;
		at += n;
		len -= (size_t)n;
	}
}

static void read_all(int fd, char *p, size_t len, off_t at)
{
	while (len) {
		ssize_t n = pread(fd, p, len, at);

		if (n <= 0)
			FAIL("pread(%#zx at %lld): %s", len, (long long)at,
			     errno_name(errno));
		p += n;
		at += n;
		len -= (size_t)n;
	}
}

static const struct piece {
	size_t off;
	size_t len;
} pieces[] = {
	{ 0, MB(2) },
	{ PAGE, PAGE },
	{ MB(1), MB(2) },
	{ MB(2) - PAGE, 2 * PAGE },
	{ MB(1) + PAGE, MB(5) },
	{ 0, MB(8) },
};

/* Reads into and writes from memory that nobody has touched before. */
static void transfer(int fd)
{
	for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
		const struct piece *piece = &pieces[i];
		char *from = map_anon(MB(8));
		char *to = map_anon(MB(8));
		char *zero = map_anon(MB(8));

		fill(from, MB(8), i);
		write_all(fd, from + piece->off, piece->len, 0);
		watch_begin();
		read_all(fd, to + piece->off, piece->len, 0);
		EXPECT_NO_FAULTS(to, MB(8));
		verify(to + piece->off, piece->len, i, piece->off);
		verify_zero(to, piece->off);
		verify_zero(to + piece->off + piece->len,
			    MB(8) - piece->off - piece->len);
		watch_begin();
		write_all(fd, zero + piece->off, piece->len, 0);
		EXPECT_NO_FAULTS(zero, MB(8));
		read_all(fd, to + piece->off, piece->len, 0);
		verify_zero(to, MB(8));
		check_2m(to, MB(8));
		unmap(from, MB(8));
		unmap(to, MB(8));
		unmap(zero, MB(8));
	}
}

static void buffered_files(void)
{
	char dir[PATH_MAX];
	char path[PATH_MAX + 8];
	int fd;

	make_dir(dir, sizeof(dir));
	snprintf(path, sizeof(path), "%s/data", dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	CHECK_OK(fd);
	transfer(fd);
	close(fd);
	CHECK_OK(unlink(path));
	CHECK_OK(rmdir(dir));
}

/* An ext4 of its own, because not every file system has O_DIRECT. */
static void direct_io(void)
{
	char dir[PATH_MAX];
	char path[PATH_MAX + 16];
	int fd, error, status = 0;

	if (geteuid() != 0)
		SKIP("mounting a file system for O_DIRECT needs root");
	if (!have("mkfs.ext4"))
		SKIP("there is no mkfs.ext4 (package e2fsprogs)");
	if (system("modprobe -q loop; modprobe -q ext4; test -e /dev/loop-control") != 0)
		SKIP("there is no loop device");
	make_dir(dir, sizeof(dir));
	shell("truncate -s 64M %s/image && mkfs.ext4 -q %s/image && mkdir %s/mnt",
	      dir, dir, dir);
	shell("mount -o loop %s/image %s/mnt", dir, dir);
	snprintf(path, sizeof(path), "%s/mnt/data", dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_DIRECT, 0600);
	error = errno;
	if (fd >= 0) {
		pid_t pid = fork_child();

		/* In a child, so that the file system is unmounted either way. */
		if (pid == 0) {
			transfer(fd);
			_exit(0);
		}
		close(fd);
		status = wait_child(pid);
	}
	snprintf(path, sizeof(path), "%s/mnt", dir);
	CHECK_OK(umount(path));
	shell("rm -r %s", dir);
	if (fd < 0)
		FAIL("opening a file with O_DIRECT: %s", errno_name(error));
	if (status != 0)
		FAIL("direct I/O failed in the child (status %#x)",
		     (unsigned int)status);
}

/* Memory that somebody holds on to is not in the way of new mappings beside it. */
static void beside_pinned_pages(void)
{
	char *pinned = map_anon(KB(64));
	char *beside = map_anon(KB(64));
	char *to = map_anon(KB(16));
	int fd[2];

	fill(pinned, KB(64), 1);
	fill(beside, KB(64), 2);
	CHECK_OK(pipe(fd));
	CHECK_EQ(vmsplice(fd[1], &(struct iovec){ pinned, KB(16) }, 1, 0), KB(16));
	unmap(beside, KB(64));
	for (unsigned int i = 0; i < 4; i++) {
		char *p = map_anon(KB(64));

		CHECK_TOUCH(p, KB(64));
		verify_zero(p, KB(64));
		fill(p, KB(64), 3 + i);
		p = mremap(p, KB(64), KB(256), MREMAP_MAYMOVE);
		CHECK(p != MAP_FAILED);
		CHECK_TOUCH(p, KB(256));
		verify(p, KB(64), 3 + i, 0);
		verify_zero(p + KB(64), KB(192));
		unmap(p, KB(256));
	}
	CHECK_EQ(read(fd[0], to, KB(16)), KB(16));
	verify(to, KB(16), 1, 0);
	verify(pinned, KB(64), 1, 0);
	close(fd[0]);
	close(fd[1]);
	unmap(pinned, KB(64));
	unmap(to, KB(16));
}

/* What somebody holds on to is not in a new mapping, though it was discarded before. */
static void discarded_while_pinned(void)
{
	char *slot = free_range(MB(2)), *p;
	char *to = map_anon(KB(16));
	int fd[2];

	map_flags(slot, KB(64), RW, ANON | MAP_FIXED_NOREPLACE);
	fill(slot, KB(64), 1);
	p = slot + KB(128);
	map_flags(p, KB(64), RW, ANON | MAP_FIXED_NOREPLACE);
	memset(p, 1, KB(64));
	CHECK_OK(pipe(fd));
	CHECK_EQ(vmsplice(fd[1], &(struct iovec){ p, KB(16) }, 1, 0), KB(16));
	CHECK_OK(mprotect(p, KB(64), PROT_NONE));
	CHECK_OK(madvise(p, KB(64), MADV_DONTNEED));
	unmap(p, KB(64));
	map_flags(p, KB(64), RW, ANON | MAP_FIXED_NOREPLACE);
	verify_zero(p, KB(64));
	memset(p, 2, KB(64));
	CHECK_EQ(read(fd[0], to, KB(16)), KB(16));
	for (size_t i = 0; i < KB(16); i++)
		CHECK(to[i] != 2);
	verify(slot, KB(64), 1, 0);
	close(fd[0]);
	close(fd[1]);
	unmap(slot, MB(2));
	unmap(to, KB(16));
}

/* What is pinned of a slot that has a few pages of Linux does not spread them. */
static void beside_a_pinned_tail(void)
{
	char *p = map_flags(free_range(MB(8)), SLOT + PAGE, RW, ANON), *q;
	char *to = map_anon(PAGE);
	uint64_t few;
	int fd[2];

	fill(p, SLOT + PAGE, 1);
	CHECK_OK(pipe(fd));
	CHECK_EQ(vmsplice(fd[1], &(struct iovec){ p + SLOT, PAGE }, 1, 0), PAGE);
	few = registered() ? context_value("few_bytes") + context_value("linux_bytes") : 0;
	q = map_flags(p + SLOT + PAGE, KB(512), RW, ANON);
	CHECK_TOUCH(q, KB(512));
	fill(q, KB(512), 2);
	if (registered())
		CHECK_EQ(context_value("few_bytes") + context_value("linux_bytes"), few);
	/* There is no choice here; all of it is there at the call. */
	unmap(q, KB(512));
	q = map_flags(p + SLOT + PAGE, KB(512), RW, ANON | MAP_FIXED_NOREPLACE);
	CHECK_TOUCH(q, KB(512));
	verify_zero(q, KB(512));
	fill(q, KB(512), 3);
	CHECK_EQ(read(fd[0], to, PAGE), PAGE);
	CHECK(memcmp(to, p + SLOT, PAGE) == 0);
	close(fd[0]);
	close(fd[1]);
	verify(p, SLOT + PAGE, 1, 0);
	verify(q, KB(512), 3, 0);
	unmap(p, SLOT + PAGE);
	unmap(q, KB(512));
	unmap(to, PAGE);
}

static void pipes_and_vmsplice(void)
{
	char *from = map_anon(MB(2));
	char *to = map_anon(MB(2));
	int fd[2];

	fill(from, MB(2), 1);
	CHECK_OK(pipe(fd));
	for (size_t off = 0; off < MB(2); off += KB(32)) {
		struct iovec vec = { from + off, KB(32) };

		CHECK_EQ(vmsplice(fd[1], &vec, 1, 0), KB(32));
		watch_begin();
		for (size_t n = 0; n < KB(32);) {
			ssize_t got = read(fd[0], to + off + n, KB(32) - n);

			CHECK(got > 0);
			n += (size_t)got;
		}
		EXPECT_NO_FAULTS(to, MB(2));
	}
	verify(to, MB(2), 1, 0);

	/* Pages in a pipe outlive their mapping. */
	CHECK_EQ(vmsplice(fd[1], &(struct iovec){ from + MB(1), KB(16) }, 1, 0), KB(16));
	unmap(from, MB(2));
	from = map_anon(MB(2));
	fill(from, MB(2), 2);
	for (size_t n = 0; n < KB(16);) {
		ssize_t got = read(fd[0], to + n, KB(16) - n);

		CHECK(got > 0);
		n += (size_t)got;
	}
	verify(to, KB(16), 1, MB(1));
	verify(from, MB(2), 2, 0);
	close(fd[0]);
	close(fd[1]);
	unmap(from, MB(2));
	unmap(to, MB(2));
}

/* ---- io_uring -------------------------------------------------------------- */

static void ring_transfer(struct ring *ring, int file, char *p, uint8_t write_op,
			  uint8_t read_op)
{
	struct io_uring_sqe sqe = {
		.opcode = write_op,
		.fd = file,
		.addr = (uintptr_t)p + MB(1),
		.len = MB(1) + KB(64),
	};

	fill(p, MB(4), write_op);
	CHECK_EQ(ring_run(ring, &sqe), MB(1) + KB(64));
	memset(p, 0, MB(4));
	sqe.opcode = read_op;
	watch_begin();
	CHECK_EQ(ring_run(ring, &sqe), MB(1) + KB(64));
	EXPECT_NO_FAULTS(p, MB(4));
	verify(p + MB(1), MB(1) + KB(64), write_op, MB(1));
	verify_zero(p, MB(1));
}

static void io_uring_buffers(void)
{
	struct iovec vec = { .iov_len = MB(4) };
	char *p = map_anon(MB(4));
	struct ring ring;
	int file;

	if (!ring_open(&ring))
		SKIP("io_uring_setup: %s", errno_name(errno));
	file = memfd_create("data", MFD_CLOEXEC);
	CHECK_OK(file);
	ring_transfer(&ring, file, p, IORING_OP_WRITE, IORING_OP_READ);

	vec.iov_base = p;
	if (syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_BUFFERS, &vec, 1)) {
		/* Linux 6.1 refuses shared file mappings as fixed buffers. */
		if (!registered() || errno != EOPNOTSUPP)
			FAIL("IORING_REGISTER_BUFFERS: %s", errno_name(errno));
		note("fixed buffers of io_uring: EOPNOTSUPP, as documented");
	} else {
		ring_transfer(&ring, file, p, IORING_OP_WRITE_FIXED,
			      IORING_OP_READ_FIXED);
		/* Pinned until the ring is gone, whatever becomes of the range. */
		unmap(p, MB(4));
		p = map_anon(MB(4));
		verify_zero(p, MB(4));
	}
	CHECK_TOUCH(p, MB(4));
	close(file);
	ring_close(&ring);
	unmap(p, MB(4));
}

/* ---- Other processes --------------------------------------------------------- */

struct peer {
	pid_t pid;
	int to_child[2];
	int to_parent[2];
};

/* In the child: true. The child runs after the parent's start_peer(). */
static bool fork_peer(struct peer *peer)
{
	CHECK_OK(pipe(peer->to_child));
	CHECK_OK(pipe(peer->to_parent));
	peer->pid = fork_child();
	return peer->pid == 0;
}

static void end_peer(struct peer *peer)
{
	expect_success(peer->pid);
	for (int i = 0; i < 2; i++) {
		close(peer->to_child[i]);
		close(peer->to_parent[i]);
	}
}

static void process_vm(void)
{
	char *p = map_anon(MB(4));
	char *mine = map_anon(MB(4));
	struct iovec local, remote;
	struct peer peer;

	fill(p, MB(4), 1);
	if (fork_peer(&peer)) {
		fill(p, MB(4), 2);
		tell(peer.to_parent[1]);
		await(peer.to_child[0]);
		verify(p, MB(1) + 16, 2, 0);
		verify(p + MB(1) + 16, MB(2), 3, 0);
		verify(p + MB(3) + 16, MB(1) - 16, 2, MB(3) + 16);
		_exit(0);
	}
	await(peer.to_parent[0]);
	/* The peer shares it until it is written to. */
	memset(mine, 0, MB(4));
	local = (struct iovec){ mine, MB(4) };
	remote = (struct iovec){ p, MB(4) };
	watch_begin();
	CHECK_EQ(process_vm_readv(peer.pid, &local, 1, &remote, 1, 0), MB(4));
	EXPECT_NO_FAULTS(mine, MB(4));
	verify(mine, MB(4), 2, 0);
	verify(p, MB(4), 1, 0);
	fill(mine, MB(2), 3);
	local = (struct iovec){ mine, MB(2) };
	remote = (struct iovec){ p + MB(1) + 16, MB(2) };
	CHECK_EQ(process_vm_writev(peer.pid, &local, 1, &remote, 1, 0), MB(2));
	tell(peer.to_child[1]);
	end_peer(&peer);
	verify(p, MB(4), 1, 0);
	/* Addresses that are not there. */
	remote = (struct iovec){ NULL, PAGE };
	CHECK_ERR(process_vm_readv(getpid(), &local, 1, &remote, 1, 0), EFAULT);
	unmap(p, MB(4));
	unmap(mine, MB(4));
}

/* A stopped and traced child that checks the words afterwards. */
static pid_t traced_child(const uint64_t *word, size_t nr, uint64_t want)
{
	int status;
	pid_t pid = fork_child();

	if (pid == 0) {
		CHECK_OK(ptrace(PTRACE_TRACEME, 0, NULL, NULL));
		raise(SIGSTOP);
		for (size_t i = 0; i < nr; i++)
			CHECK_EQ(word[i * PAGE / sizeof(*word)], want);
		_exit(0);
	}
	status = wait_child(pid);
	if (!WIFSTOPPED(status) && WIFEXITED(status))
		SKIP("PTRACE_TRACEME is not permitted here");
	CHECK(WIFSTOPPED(status));
	return pid;
}

static void ptrace_peek_and_poke(void)
{
	char *p = map_anon(MB(2));
	uint64_t *word = (uint64_t *)(void *)(p + MB(1));
	pid_t pid;

	for (size_t i = 0; i < 4; i++)
		word[i * PAGE / 8] = 0x1111;
	pid = traced_child(word, 4, 0x2222);
	for (size_t i = 0; i < 4; i++) {
		uint64_t *at = &word[i * PAGE / 8];

		errno = 0;
		CHECK_EQ(ptrace(PTRACE_PEEKDATA, pid, at, NULL), 0x1111);
		CHECK_EQ(errno, 0);
		CHECK_OK(ptrace(PTRACE_POKEDATA, pid, at, (void *)0x2222));
		CHECK_EQ(ptrace(PTRACE_PEEKDATA, pid, at, NULL), 0x2222);
		CHECK_EQ(*at, 0x1111);
	}
	CHECK_OK(ptrace(PTRACE_DETACH, pid, NULL, NULL));
	expect_success(pid);
	unmap(p, MB(2));
}

/* A debugger may write what the program may not; or is told that it cannot. */
static void ptrace_into_read_only_pages(void)
{
	char *p = map_anon(MB(2));
	uint64_t *word = (uint64_t *)(void *)(p + MB(1));
	pid_t pid;

	*word = 0x1111;
	CHECK_OK(mprotect(p, MB(2), PROT_READ));
	pid = traced_child(word, 0, 0);
	errno = 0;
	CHECK_OK(ptrace(PTRACE_POKEDATA, pid, word, (void *)0x2222));
	CHECK_EQ(ptrace(PTRACE_PEEKDATA, pid, word, NULL), 0x2222);
	CHECK_EQ(*word, 0x1111);
	CHECK_OK(ptrace(PTRACE_DETACH, pid, NULL, NULL));
	expect_success(pid);
	unmap(p, MB(2));
}

static void proc_pid_mem(void)
{
	char *p = map_anon(MB(4));
	char *mine = map_anon(MB(4));
	char path[64];
	pid_t pid;
	int fd;

	for (size_t off = 0; off < MB(4); off += PAGE)
		*(uint64_t *)(void *)(p + off) = 0x1111;
	pid = traced_child((uint64_t *)(void *)(p + MB(1)), 512, 0x2222);
	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	fd = open(path, O_RDWR | O_CLOEXEC);
	CHECK_OK(fd);
	read_all(fd, mine, MB(4), (off_t)(uintptr_t)p);
	for (size_t off = 0; off < MB(4); off += PAGE) {
		CHECK_EQ(*(uint64_t *)(void *)(mine + off), 0x1111);
		*(uint64_t *)(void *)(mine + off) = 0x2222;
	}
	write_all(fd, mine + MB(1), MB(2), (off_t)(uintptr_t)(p + MB(1)));
	CHECK_ERR(pread(fd, mine, 8, 0), EIO);
	close(fd);
	CHECK_EQ(*(uint64_t *)(void *)(p + MB(1)), 0x1111);
	CHECK_OK(ptrace(PTRACE_DETACH, pid, NULL, NULL));
	expect_success(pid);
	unmap(p, MB(4));
	unmap(mine, MB(4));
}

/* ---- Calls about memory --------------------------------------------------------- */

static void mincore_tells_what_is_mapped(void)
{
	unsigned char vec[MB(4) / PAGE];
	char *p = map_anon(MB(4));

	if (!registered())
		stamp(p, MB(4), 1);
	memset(vec, 0, sizeof(vec));
	CHECK_OK(mincore(p, MB(4), vec));
	for (size_t i = 0; i < sizeof(vec); i++)
		CHECK_EQ(vec[i] & 1, 1);
	CHECK_ERR(mincore(p + 1, PAGE, vec), EINVAL);
	unmap(p + MB(1), PAGE);
	CHECK_ERR(mincore(p, MB(2), vec), ENOMEM);
	CHECK_OK(mincore(p + MB(1) + PAGE, MB(3) - PAGE, vec));
	for (size_t i = 0; i < (MB(3) - PAGE) / PAGE; i++)
		CHECK_EQ(vec[i] & 1, 1);
	unmap(p, MB(4));
}

static void locking(void)
{
	char *p = map_anon(MB(4));
	char *q;

	fill(p, MB(4), 1);
	if (mlock(p + PAGE, MB(3)) != 0)
		SKIP("mlock of 3 MB: %s", errno_name(errno));
	CHECK_TOUCH(p, MB(4));
	CHECK_OK(munlock(p + MB(1), MB(1)));
	CHECK_TOUCH(p, MB(4));
	CHECK_OK(munlock(p, MB(4)));
	CHECK_EQ(vma_count(p, MB(4)), 1);
	check_2m(p, MB(4));
	verify(p, MB(4), 1, 0);
	CHECK_OK(mlock2(p, MB(4), MLOCK_ONFAULT));
	CHECK_TOUCH(p, MB(4));
	CHECK_OK(munlock(p, MB(4)));
	unmap(p + MB(1), PAGE);
	CHECK_ERR(mlock(p, MB(2)), ENOMEM);
	CHECK_OK(munlock(p, MB(1)));
	verify(p, MB(1), 1, 0);
	unmap(p, MB(4));

	if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0)
		SKIP("mlockall: %s", errno_name(errno));
	q = map_anon(MB(3));
	CHECK_TOUCH(q, MB(3));
	CHECK_OK(munlockall());
	verify_zero(q + 8, PAGE - 8);
	unmap(q, MB(3));
}

static void msync_has_nothing_to_do(void)
{
	char *p = map_anon(MB(4));

	fill(p, MB(4), 1);
	CHECK_OK(msync(p, MB(4), MS_SYNC));
	CHECK_OK(msync(p + PAGE, PAGE, MS_ASYNC));
	CHECK_OK(msync(p, MB(4), MS_SYNC | MS_INVALIDATE));
	CHECK_ERR(msync(p, MB(4), MS_SYNC | MS_ASYNC), EINVAL);
	CHECK_ERR(msync(p + 1, PAGE, MS_SYNC), EINVAL);
	unmap(p + MB(1), PAGE);
	CHECK_ERR(msync(p, MB(2), MS_SYNC), ENOMEM);
	verify(p, MB(1), 1, 0);
	unmap(p, MB(4));
}

static void policy_call(const char *what, long result)
{
	if (result != 0)
		FAIL("%s: %s", what, errno_name(errno));
}

static void memory_policy(void)
{
	enum { DEFAULT, PREFERRED, BIND, INTERLEAVE };
	unsigned long node0 = 1;
	char *p = map_anon(MB(4));
	char *q;

	fill(p, MB(4), 1);
	if (syscall(SYS_set_mempolicy, BIND, &node0, 64) != 0 && errno == ENOSYS)
		SKIP("this kernel has no memory policies");
	policy_call("set_mempolicy", syscall(SYS_set_mempolicy, BIND, &node0, 64));
	q = map_anon(MB(2));
	CHECK_TOUCH(q, MB(2));
	unmap(q, MB(2));
	policy_call("set_mempolicy", syscall(SYS_set_mempolicy, DEFAULT, NULL, 0));
	policy_call("mbind", syscall(SYS_mbind, p, MB(4), BIND, &node0, 64, 0));
	policy_call("mbind", syscall(SYS_mbind, p + MB(1), PAGE, PREFERRED, &node0, 64, 0));
	policy_call("mbind", syscall(SYS_mbind, p, MB(4), INTERLEAVE, &node0, 64, 0));
	CHECK_TOUCH(p, MB(4));
	verify(p, MB(4), 1, 0);
	policy_call("mbind", syscall(SYS_mbind, p, MB(4), DEFAULT, NULL, 0, 0));
	CHECK_ERR(syscall(SYS_mbind, p + 1, PAGE, BIND, &node0, 64, 0), EINVAL);
	CHECK_TOUCH(p, MB(4));
	check_2m(p, MB(4));
	unmap(p, MB(4));
}

static void userfaultfd_is_honest(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	char *p = map_anon(MB(2));
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		SKIP("userfaultfd: %s", errno_name(errno));
	CHECK_OK(ioctl(fd, UFFDIO_API, &api));
	fill(p, MB(2), 1);
	reg.range.start = (uintptr_t)p;
	reg.range.len = MB(2);
	CHECK_OK(ioctl(fd, UFFDIO_REGISTER, &reg));
	verify(p, MB(2), 1, 0);
	close(fd);
	CHECK_TOUCH(p, MB(2));
	unmap(p, MB(2));
}

/* ---- /proc ------------------------------------------------------------------------ */

static void proc_files(void)
{
	static const char *const files[] = {
		"maps", "smaps", "smaps_rollup", "numa_maps", "status", "statm", "stat",
		"auxv", "limits", "oom_score",
	};
	char *p = map_anon(MB(4));
	struct vma vma;

	stamp(p, MB(4), 1);
	CHECK_OK(mprotect(p + MB(1), PAGE, PROT_READ));
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		char path[64], buf[4096];
		size_t total = 0;
		ssize_t n;
		int fd;

		snprintf(path, sizeof(path), "/proc/self/%s", files[i]);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0 && errno == ENOENT)
			continue;
		CHECK_OK(fd);
		while ((n = read(fd, buf, sizeof(buf))) > 0)
			total += (size_t)n;
		if (n < 0)
			FAIL("%s: %s", path, errno_name(errno));
		CHECK(total > 0);
		close(fd);
	}
	CHECK_TOUCH(p, MB(1));
	CHECK(vma_at(p, &vma));
	CHECK(vma.start <= (uintptr_t)p && vma.end == (uintptr_t)p + MB(1));
	CHECK(strncmp(vma.perms, "rw-", 3) == 0);
	CHECK(vma_at(p + MB(1), &vma));
	CHECK(strncmp(vma.perms, "r--", 3) == 0);
	CHECK_EQ(vma.end - vma.start, PAGE);
	verify_stamp(p, MB(4), 1);
	unmap(p, MB(4));
}

static void pagemap(void)
{
	const uint64_t present = 1ULL << 63;
	uint64_t entry[MB(3) / PAGE];
	char *p = map_anon(MB(3));
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

	CHECK_OK(fd);
	stamp(p, MB(3), 1);
	read_all(fd, (char *)entry, sizeof(entry), (off_t)((uintptr_t)p / PAGE * 8));
	for (size_t i = 0; i < ARRAY_SIZE(entry); i++)
		CHECK(entry[i] & present);
	unmap(p + MB(1), PAGE);
	read_all(fd, (char *)entry, sizeof(entry), (off_t)((uintptr_t)p / PAGE * 8));
	CHECK_EQ(entry[MB(1) / PAGE], 0);
	CHECK(entry[MB(1) / PAGE + 1] & present);
	CHECK_TOUCH(p, MB(1));
	close(fd);
	unmap(p, MB(3));
}

static size_t vm_rss(void)
{
	char text[128];
	unsigned long size = 0, rss = 0;
	int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
	ssize_t n;

	CHECK_OK(fd);
	n = read(fd, text, sizeof(text) - 1);
	CHECK(n > 0);
	text[n] = '\0';
	close(fd);
	CHECK_EQ(sscanf(text, "%lu %lu", &size, &rss), 2);
	return rss * PAGE;
}

static void resident_size_follows(void)
{
	size_t before = vm_rss();
	char *p = map_anon(MB(32));

	stamp(p, MB(32), 1);
	CHECK(vm_rss() >= before + MB(31));
	unmap(p, MB(32));
	CHECK(vm_rss() <= before + MB(2));
}

/* ---- Core dumps ---------------------------------------------------------------------- */

#define CORE_PATTERN	"/proc/sys/kernel/core_pattern"

static bool set_core_pattern(const char *pattern)
{
	int fd = open(CORE_PATTERN, O_WRONLY | O_CLOEXEC);
	bool done;

	if (fd < 0)
		return false;
	done = write(fd, pattern, strlen(pattern)) == (ssize_t)strlen(pattern);
	close(fd);
	return done;
}

/* The memory at addr as the core has it, or NULL. */
static const char *in_core(const char *core, size_t len, const void *addr, size_t want)
{
	const Elf64_Ehdr *elf = (const void *)core;
	const Elf64_Phdr *head;

	CHECK(len > sizeof(*elf) && memcmp(elf->e_ident, ELFMAG, SELFMAG) == 0);
	CHECK(elf->e_phoff + elf->e_phnum * sizeof(*head) <= len);
	head = (const void *)(core + elf->e_phoff);
	for (size_t i = 0; i < elf->e_phnum; i++) {
		uint64_t off = (uintptr_t)addr - head[i].p_vaddr;

		if (head[i].p_type != PT_LOAD || (uintptr_t)addr < head[i].p_vaddr ||
		    off + want > head[i].p_filesz)
			continue;
		CHECK(head[i].p_offset + off + want <= len);
		return core + head[i].p_offset + off;
	}
	return NULL;
}

static void check_core(const char *path, char *const *place, size_t nr,
		       const char *left_out, bool has_private)
{
	struct stat stat;
	char *core;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	CHECK_OK(fd);
	CHECK_OK(fstat(fd, &stat));
	core = mmap(NULL, (size_t)stat.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	CHECK_OK(core);
	for (size_t i = 0; i < nr; i++) {
		const char *found = in_core(core, (size_t)stat.st_size, place[i],
					    KB(64));

		if (!found != !has_private)
			FAIL("the core has %s memory for %p", found ? "the" : "no", place[i]);
		if (found)
			verify(found, KB(64), 700 + i, 0);
	}
	CHECK(in_core(core, (size_t)stat.st_size, left_out, PAGE) == NULL);
	unmap(core, (size_t)stat.st_size);
	close(fd);
}

/* Of a process with this coredump_filter, if it is not NULL. */
static void dump_core(const char *filter, bool has_private)
{
	static const char core_pattern[] = "core\n";
	char saved[256] = "";
	char dir[PATH_MAX];
	char path[PATH_MAX + 8];
	char on_stack[KB(64)];
	char *mapping = map_anon(MB(4));
	char *secret = map_anon(MB(2));
	char *place[4] = {
		mapping, mapping + MB(2) - 4 * PAGE, malloc(KB(64)), on_stack,
	};
	struct rlimit limit;
	int status, fd;
	ssize_t n;
	pid_t pid;

	CHECK(place[2] != NULL);
	CHECK_OK(getrlimit(RLIMIT_CORE, &limit));
	if (limit.rlim_max != RLIM_INFINITY && geteuid() != 0)
		SKIP("the hard limit RLIMIT_CORE is not unlimited");
	fd = open(CORE_PATTERN, O_RDONLY | O_CLOEXEC);
	CHECK_OK(fd);
	n = read(fd, saved, sizeof(saved) - 1);
	close(fd);
	CHECK(n > 0);
	if (strcmp(saved, core_pattern) != 0 && !set_core_pattern(core_pattern))
		SKIP("the core pattern is \"%.*s\" and cannot be changed",
		     (int)strcspn(saved, "\n"), saved);
	make_dir(dir, sizeof(dir));
	for (size_t i = 0; i < ARRAY_SIZE(place); i++)
		fill(place[i], KB(64), 700 + i);
	fill(secret, MB(2), 1);
	CHECK_OK(madvise(secret, MB(2), MADV_DONTDUMP));
	pid = fork_child();
	if (pid == 0) {
		limit.rlim_cur = limit.rlim_max = RLIM_INFINITY;
		CHECK_OK(setrlimit(RLIMIT_CORE, &limit));
		CHECK_OK(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
		CHECK_OK(chdir(dir));
		fd = open("/proc/self/coredump_filter", O_WRONLY | O_CLOEXEC);
		CHECK(!filter || write(fd, filter, strlen(filter)) > 0);
		abort();
	}
	status = wait_child(pid);
	set_core_pattern(saved);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	CHECK(WCOREDUMP(status));
	snprintf(path, sizeof(path), "%s/core", dir);
	if (access(path, R_OK) != 0)
		snprintf(path, sizeof(path), "%s/core.%d", dir, pid);
	check_core(path, place, ARRAY_SIZE(place), secret, has_private);
	CHECK_OK(unlink(path));
	CHECK_OK(rmdir(dir));
	free(place[2]);
	unmap(mapping, MB(4));
	unmap(secret, MB(2));
}

static void core_dump_has_the_memory(void)
{
	dump_core(NULL, true);
}

/* Bit 0, whatever bit 1 (shared memory without a file) says. */
static void core_dump_obeys_the_filter(void)
{
	dump_core("0x1", true);
	dump_core("0x32", false);
}

int main(void)
{
	static const struct test tests[] = {
		T(buffered_files),
		T(direct_io),
		T(beside_a_pinned_tail),
		T(pipes_and_vmsplice),
		T(beside_pinned_pages),
		T(discarded_while_pinned),
		T(io_uring_buffers),
		T(process_vm),
		T(ptrace_peek_and_poke),
		T(ptrace_into_read_only_pages),
		T(proc_pid_mem),
		T(mincore_tells_what_is_mapped),
		T(locking),
		T(msync_has_nothing_to_do),
		T(memory_policy),
		T(userfaultfd_is_honest),
		T(proc_files),
		T(pagemap),
		T(resident_size_follows),
		T(core_dump_has_the_memory),
		T(core_dump_obeys_the_filter),
	};

	return RUN_GROUP("sem_io", tests);
}
