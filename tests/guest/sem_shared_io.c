// SPDX-License-Identifier: GPL-2.0
/* Files of hpmmapfs, and other users of their memory: I/O, pipes, devices, other processes, core dumps. */
#include "ring.h"
#include "shared.h"

#include <elf.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- read and write ---------------------------------------------------------- */

static void reads_and_writes(void)
{
	static const size_t places[] = { 0, 8, PAGE - 8, PAGE, MB(1), MB(2) - 8, MB(2), MB(3) + 16 };
	static const size_t sizes[] = { 8, PAGE, PAGE + 8, KB(64), MB(1) + 24, MB(2), MB(4) + 8 };
	char *from = map_anon(MB(8)), *to = map_anon(MB(8)), *p;
	struct iovec vec[3];
	int fd, again;

	fs_any();
	fd = new_file("a", 0);
	fill(from, MB(8), 7);
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		for (size_t k = 0; k < ARRAY_SIZE(sizes); k++) {
			size_t at = places[i], len = sizes[k];

			CHECK_OK(ftruncate(fd, 0));
			CHECK_EQ(pwrite(fd, from, len, (off_t)at), len);
			CHECK_EQ(size_of(fd), at + len);
			CHECK_EQ(pread(fd, to, MB(8), (off_t)at), len);
			CHECK(memcmp(from, to, len) == 0);
			verify_file_zero(fd, 0, at < KB(64) ? at : KB(64));
			CHECK_EQ(pread(fd, to, 8, (off_t)(at + len)), 0);
		}
	}
	CHECK_OK(ftruncate(fd, 0));
	again = open(in_fs("a"), O_RDWR | O_APPEND | O_CLOEXEC);
	CHECK_OK(again);
	CHECK_EQ(write(again, from, MB(1)), MB(1));
	CHECK_EQ(pwrite(again, from + MB(1), MB(2), 0), MB(2));
	verify_file(fd, 0, MB(3), 7, 0);
	close(again);
	vec[0] = (struct iovec){ to, 8 };
	vec[1] = (struct iovec){ to + MB(4), MB(2) };
	vec[2] = (struct iovec){ to + 8, MB(1) };
	CHECK_EQ(preadv(fd, vec, 3, 0), MB(3));
	verify(to, 8, 7, 0);
	verify(to + MB(4), MB(2), 7, 8);
	verify(to + 8, MB(1) - 8, 7, MB(2) + 8);
	CHECK_EQ(pwritev2(fd, vec, 1, -1, RWF_APPEND), 8);
	CHECK_EQ(size_of(fd), MB(3) + 8);

	/* From and to the file's own memory. */
	CHECK_OK(ftruncate(fd, (off_t)MB(8)));
	p = map_shared(fd, MB(8));
	fill(p, MB(8), 9);
	CHECK_EQ(pwrite(fd, p, MB(2), (off_t)MB(4) + PAGE), MB(2));
	verify(p + MB(4) + PAGE, MB(2), 9, 0);
	CHECK_EQ(pread(fd, p + MB(6) + 8 * PAGE, MB(1), 8), MB(1));
	verify(p + MB(6) + 8 * PAGE, MB(1), 9, 8);
	/* Onto itself, and growing it meanwhile. */
	CHECK_EQ(pwrite(fd, p, MB(1), 0), MB(1));
	verify(p, MB(4), 9, 0);
	CHECK_EQ(pwrite(fd, p, MB(4), (off_t)MB(14)), MB(4));
	verify_file(fd, MB(14), MB(4), 9, 0);
	unmap(p, MB(8));
	CHECK_OK(fsync(fd));
	CHECK_OK(fdatasync(fd));
	CHECK_OK(sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE) == 0 || errno == EINVAL ? 0 : -1);
	close(fd);
	CHECK_OK(unlink(in_fs("a")));
	unmap(from, MB(8));
	unmap(to, MB(8));
	fs_end();
}

static void copied_within_the_kernel(void)
{
	loff_t in, out;
	int a, b, other, fd[2], sockets[2];
	char *to = map_anon(MB(1));
	size_t done;
	pid_t pid;

	fs_any();
	a = new_file("a", MB(4));
	b = new_file("b", 0);
	other = memfd_create("other", MFD_CLOEXEC);
	CHECK_OK(other);
	fill(to, MB(1), 1);
	for (size_t at = 0; at < MB(4); at += MB(1))
		write_at(a, to, MB(1), at);
	for (in = 0, out = 0; out < (loff_t)MB(3);) {
		ssize_t n = copy_file_range(a, &in, b, &out, MB(3) - (size_t)out, 0);

		if (n <= 0)
			FAIL("copy_file_range: %s", errno_name(errno));
	}
	CHECK_EQ(size_of(b), MB(3));
	verify_file(b, 0, MB(1), 1, 0);
	verify_file(b, MB(2), MB(1), 1, 0);
	/* Out of the file system and back. */
	in = 0;
	for (done = 0; done < MB(2);) {
		ssize_t n = sendfile(other, a, &in, MB(2) - done);

		if (n <= 0)
			FAIL("sendfile: %s", errno_name(errno));
		done += (size_t)n;
	}
	verify_file(other, MB(1), MB(1), 1, 0);
	CHECK_OK(ftruncate(b, 0));
	CHECK_OK(lseek(b, (off_t)PAGE, SEEK_SET));
	for (in = 0; in < (loff_t)MB(2);)
		if (sendfile(b, other, &in, MB(2) - (size_t)in) <= 0)
			FAIL("sendfile: %s", errno_name(errno));
	CHECK_EQ(size_of(b), MB(2) + PAGE);
	verify_file_zero(b, 0, PAGE);
	verify_file(b, PAGE, MB(1), 1, 0);

	CHECK_OK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
	pid = fork_child();
	if (pid == 0) {
		for (in = 0; in < (loff_t)MB(1);)
			if (sendfile(sockets[1], a, &in, MB(1) - (size_t)in) <= 0)
				FAIL("sendfile: %s", errno_name(errno));
		_exit(0);
	}
	for (done = 0; done < MB(1);) {
		ssize_t n = read(sockets[0], to + done, MB(1) - done);

		CHECK(n > 0);
		done += (size_t)n;
	}
	expect_success(pid);
	verify(to, MB(1), 1, 0);

	/* By a pipe, both ways. */
	CHECK_OK(pipe(fd));
	CHECK_OK(ftruncate(b, 0));
	for (in = 8, out = 16, done = 0; done < KB(512);) {
		ssize_t n = splice(a, &in, fd[1], NULL, KB(40), 0), m;

		if (n <= 0)
			FAIL("splice from the file: %s", errno_name(errno));
		for (; n > 0; n -= m, done += (size_t)m) {
			m = splice(fd[0], NULL, b, &out, (size_t)n, 0);
			if (m <= 0)
				FAIL("splice to the file: %s", errno_name(errno));
		}
	}
	verify_file(b, 16, KB(512), 1, 8);
	/* At its end there is nothing. */
	in = (loff_t)MB(4);
	CHECK_EQ(splice(a, &in, fd[1], NULL, KB(4), 0), 0);
	for (int i = 0; i < 2; i++) {
		close(fd[i]);
		close(sockets[i]);
	}
	close(a);
	close(b);
	close(other);
	CHECK_OK(unlink(in_fs("a")));
	CHECK_OK(unlink(in_fs("b")));
	unmap(to, MB(1));
	fs_end();
}

/* ---- Pinned blocks ------------------------------------------------------------- */

static void read_pipe(int fd, char *to, size_t len)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = read(fd, to + done, len - done);

		CHECK(n > 0);
		done += (size_t)n;
	}
}

/* What a pipe holds of a file that was cut counts until it is read, and is nobody else's. */
static void cut_while_in_a_pipe(void)
{
	char to[KB(32)], *p, *q;
	int a, b, fd[2];

	skip_unless_of_pools();
	for (int way = 0; way < 4; way++) {
		fs_mount("size=16M");
		a = new_file("a", MB(8));
		b = new_file("b", 0);
		p = map_shared(a, MB(8));
		fill(p, MB(8), 1);
		CHECK_OK(pipe(fd));
		CHECK_EQ(vmsplice(fd[1], &(struct iovec){ p + MB(5), KB(32) }, 1, 0), KB(32));
		switch (way) {
		case 0:
			CHECK_OK(ftruncate(a, (off_t)MB(2)));
			break;
		case 1:
			CHECK_OK(ftruncate(a, (off_t)MB(2)));
			unmap(p, MB(8));
			break;
		case 2:
			unmap(p, MB(8));
			close(a);
			CHECK_OK(unlink(in_fs("a")));
			break;
		default:
			CHECK_OK(ftruncate(a, (off_t)MB(5) + KB(16)));
			CHECK_OK(ftruncate(a, (off_t)MB(2)));
		}
		/* Of 16 MB one block is in the pipe. */
		CHECK_ERR(ftruncate(b, way == 2 ? (off_t)MB(16) : (off_t)MB(14)), ENOSPC);
		CHECK_EQ(fs_free(), way == 2 ? MB(14) : MB(12));
		CHECK_OK(ftruncate(b, way == 2 ? (off_t)MB(14) : (off_t)MB(12)));
		q = map_shared(b, MB(12));
		verify_zero(q, MB(12));
		fill(q, MB(12), 2);
		read_pipe(fd[0], to, sizeof(to));
		if (way < 3)
			verify(to, sizeof(to), 1, MB(5));
		else
			verify(to, KB(16), 1, MB(5));
		verify(q, MB(12), 2, 0);
		await_fs_free(MB(2));
		CHECK_OK(ftruncate(b, way == 2 ? (off_t)MB(16) : (off_t)MB(14)));
		verify_file_zero(b, way == 2 ? MB(14) : MB(12), MB(2));
		unmap(q, MB(12));
		close(fd[0]);
		close(fd[1]);
		close(b);
		CHECK_OK(unlink(in_fs("b")));
		if (way == 0 || way == 3)
			unmap(p, MB(8));
		if (way != 2) {
			close(a);
			CHECK_OK(unlink(in_fs("a")));
		}
		fs_end();
	}
}

/* The same by splice of the file itself, which has no mapping at all. */
static void cut_while_spliced(void)
{
	char to[KB(16)], *q;
	loff_t at = (loff_t)MB(3);
	int a, b, fd[2];
	ssize_t n;

	fs_mount("size=16M");
	a = new_file("a", MB(4));
	q = map_shared(a, MB(4));
	memset(q, 1, MB(4));
	unmap(q, MB(4));
	CHECK_OK(pipe(fd));
	n = splice(a, &at, fd[1], NULL, KB(16), 0);
	CHECK(n > 0);
	CHECK_OK(ftruncate(a, 0));
	b = new_file("b", MB(8));
	q = map_shared(b, MB(8));
	verify_zero(q, MB(8));
	memset(q, 0xee, MB(8));
	read_pipe(fd[0], to, (size_t)n);
	/* What it was, or nothing, but not what is another file's. */
	for (ssize_t i = 0; i < n; i++)
		CHECK((unsigned char)to[i] != 0xee);
	for (size_t i = 0; i < MB(8); i++)
		CHECK((unsigned char)q[i] == 0xee);
	unmap(q, MB(8));
	/* With a pipe that nobody reads, and no file any more. */
	CHECK_OK(ftruncate(a, (off_t)MB(4)));
	at = 0;
	CHECK(splice(a, &at, fd[1], NULL, KB(16), 0) > 0);
	close(a);
	CHECK_OK(unlink(in_fs("a")));
	close(fd[0]);
	close(fd[1]);
	fs_end_with(b, "b");
}

/* It has nothing any more by the time that who reads has a page to read into. */
struct reader {
	int fd;
	char *to;
	ssize_t n;
};

static void *read_page(void *arg)
{
	struct reader *r = arg;

	r->n = pread(r->fd, r->to, PAGE, 0);
	if (r->n < 0)
		r->n = -errno;
	return NULL;
}

static void cut_while_it_is_read(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct uffdio_zeropage zero = { 0 };
	struct reader r = { 0 };
	struct uffd_msg msg;
	pthread_t thread;
	int uffd;

	uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	if (uffd < 0)
		SKIP("userfaultfd: %s", errno_name(errno));
	fs_any();
	r.fd = new_file("read", PAGE);
	r.to = map_flags(NULL, PAGE, RW, ANON);
	CHECK_OK(ioctl(uffd, UFFDIO_API, &api));
	reg.range.start = zero.range.start = (uintptr_t)r.to;
	reg.range.len = zero.range.len = PAGE;
	CHECK_OK(ioctl(uffd, UFFDIO_REGISTER, &reg));
	thread = start_thread(read_page, &r);
	CHECK_EQ(read(uffd, &msg, sizeof(msg)), sizeof(msg));
	CHECK_OK(ftruncate(r.fd, 0));
	CHECK_OK(ioctl(uffd, UFFDIO_ZEROPAGE, &zero));
	join_thread(thread);
	/* tmpfs has read it before. */
	CHECK(r.n == 0 || (r.n == PAGE && !fs_of_pools()));
	close(uffd);
	unmap(r.to, PAGE);
	close(r.fd);
	CHECK_OK(unlink(in_fs("read")));
	fs_end();
}

/* Zeroed in place while somebody refers to it: it is the same memory afterwards. */
static void punched_while_pinned(void)
{
	char to[KB(16)], *p;
	int a, fd[2];

	fs_mount("size=16M");
	a = new_file("a", MB(4));
	p = map_shared(a, MB(4));
	fill(p, MB(4), 1);
	CHECK_OK(pipe(fd));
	CHECK_EQ(vmsplice(fd[1], &(struct iovec){ p + MB(2), KB(16) }, 1, 0), KB(16));
	CHECK_OK(fallocate(a, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)MB(4)));
	verify_zero(p, MB(4));
	CHECK_EQ(held(a), fs_of_pools() ? MB(4) : held(a));
	fill(p, MB(4), 2);
	read_pipe(fd[0], to, sizeof(to));
	verify(to, sizeof(to), 1, MB(2));
	verify(p, MB(4), 2, 0);
	close(fd[0]);
	close(fd[1]);
	unmap(p, MB(4));
	fs_end_with(a, "a");
}

/*
 * A folio with as many references as if the page cache had it, and with one entry, the core would split
 * for advice about a part of it, and unmap it for that.
 */
static void advice_for_a_part(void)
{
	int a, fds[3][2];
	char *p;

	fs_mount("size=16M");
	a = new_file("a", MB(4));
	p = map_shared(a, MB(4));
	fill(p, MB(4), 1);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		CHECK_OK(pipe(fds[i]));
		CHECK_OK(fcntl(fds[i][1], F_SETPIPE_SZ, MB(1)));
	}
	for (size_t n = 0; n < SLOT / PAGE + 8; n++) {
		struct iovec page = { p + n % (SLOT / PAGE) * PAGE, PAGE };

		CHECK_EQ(vmsplice(fds[n / (MB(1) / PAGE)][1], &page, 1, 0), PAGE);
		if (n < SLOT / PAGE - 8)
			continue;
		CHECK_OK(madvise(p + PAGE, PAGE, MADV_COLD));
		if (!(pagemap_entry(p) >> 63))
			FAIL("%zu pins: it is not mapped any more", n + 1);
	}
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		close(fds[i][0]);
		close(fds[i][1]);
	}
	verify(p, MB(4), 1, 0);
	unmap(p, MB(4));
	fs_end_with(a, "a");
}

/* A pin that lasts: before a fork, over it, and when the file has gone. */
static void fixed_buffers(void)
{
	struct io_uring_sqe sqe = { .opcode = IORING_OP_READ_FIXED, .len = MB(1) };
	int a, b, file;
	struct iovec vec;
	struct ring ring;
	char *p, *q;
	pid_t pid;

	if (!ring_open(&ring))
		SKIP("io_uring_setup: %s", errno_name(errno));
	fs_mount("size=16M");
	file = memfd_create("data", MFD_CLOEXEC);
	CHECK_OK(file);
	q = map_anon(MB(1));
	fill(q, MB(1), 5);
	write_at(file, q, MB(1), 0);
	unmap(q, MB(1));
	a = new_file("a", MB(8));
	p = map_shared(a, MB(8));
	vec = (struct iovec){ p, MB(8) };
	if (syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_BUFFERS, &vec, 1)) {
		/* Linux 6.1 refuses all file mappings but those of its own shared memory. */
		if (errno != EOPNOTSUPP && errno != ENOMEM)
			FAIL("IORING_REGISTER_BUFFERS: %s", errno_name(errno));
		note("fixed buffers: %s", errno_name(errno));
	} else {
		sqe.fd = file;
		sqe.addr = (uintptr_t)p + MB(3);
		CHECK_EQ(ring_run(&ring, &sqe), MB(1));
		verify(p + MB(3), MB(1), 5, 0);
		/* Shared is shared, pinned or not. */
		pid = fork_child();
		if (pid == 0) {
			memset(p + MB(3), 7, MB(1));
			_exit(0);
		}
		expect_success(pid);
		CHECK_EQ(p[MB(3)], 7);
		CHECK_EQ(ring_run(&ring, &sqe), MB(1));
		verify(p + MB(3), MB(1), 5, 0);
		CHECK_OK(ftruncate(a, 0));
		b = new_file("b", 0);
		if (fs_of_pools()) {
			/* All 8 MB are the device's. */
			CHECK_EQ(fs_free(), MB(8));
			CHECK_ERR(ftruncate(b, (off_t)MB(10)), ENOSPC);
		}
		CHECK_OK(ftruncate(b, (off_t)MB(8)));
		q = map_shared(b, MB(8));
		memset(q, 3, MB(8));
		CHECK_EQ(ring_run(&ring, &sqe), MB(1));
		for (size_t i = 0; i < MB(8); i++)
			CHECK_EQ(q[i], 3);
		CHECK_BUS(p + MB(3));
		CHECK_OK(syscall(SYS_io_uring_register, ring.fd, IORING_UNREGISTER_BUFFERS, NULL, 0));
		await_fs_free(MB(8));
		CHECK_OK(ftruncate(b, (off_t)MB(16)));
		verify_file_zero(b, MB(8), MB(8));
		unmap(q, MB(8));
		close(b);
		CHECK_OK(unlink(in_fs("b")));
	}
	unmap(p, MB(8));
	close(a);
	close(file);
	CHECK_OK(unlink(in_fs("a")));
	ring_close(&ring);
	fs_end();
}

static void direct_transfers(const char *path, char *p, size_t len)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_DIRECT, 0600);

	CHECK_OK(fd);
	fill(p, len, 3);
	watch_begin();
	write_at(fd, p, len, 0);
	EXPECT_EAGER(p, len);
	memset(p, 0, len);
	watch_begin();
	read_at(fd, p, len, 0);
	EXPECT_EAGER(p, len);
	verify(p, len, 3, 0);
	read_at(fd, p + MB(2) - PAGE, 2 * PAGE, PAGE);
	verify(p + MB(2) - PAGE, 2 * PAGE, 3, PAGE);
	close(fd);
}

/* To and from a file system with O_DIRECT, in the memory of a mapping; and a file of ours opened so. */
static void direct_io(void)
{
	char dir[] = "/tmp/hpmmap-direct-XXXXXX", path[64];
	int fd, status;
	char *p;
	pid_t pid;

	fs_any();
	fd = new_file("a", MB(8));
	p = map_shared(fd, MB(8));
	fill(p, MB(8), 1);
	close(fd);
	fd = open(in_fs("a"), O_RDWR | O_DIRECT | O_CLOEXEC);
	if (fd >= 0) {
		char *q = map_anon(MB(4));

		read_at(fd, q, MB(4), MB(2));
		verify(q, MB(4), 1, MB(2));
		fill(q, MB(4), 2);
		write_at(fd, q, MB(4), MB(4));
		verify(p + MB(4), MB(4), 2, 0);
		unmap(q, MB(4));
		close(fd);
	} else {
		CHECK_EQ(errno, EINVAL);
		CHECK(!fs_of_pools());
	}
	CHECK_OK(unlink(in_fs("a")));
	if (geteuid() != 0 ||
	    system("command -v mkfs.ext4 >/dev/null && modprobe -q loop && modprobe -q ext4 && test -e /dev/loop-control") != 0) {
		unmap(p, MB(8));
		fs_end();
		SKIP("a file system for O_DIRECT needs root, mkfs.ext4 and a loop device");
	}
	CHECK(mkdtemp(dir) != NULL);
	shell("truncate -s 64M %s/image && mkfs.ext4 -q %s/image && mkdir %s/mnt", dir, dir, dir);
	shell("mount -o loop %s/image %s/mnt", dir, dir);
	snprintf(path, sizeof(path), "%s/mnt/data", dir);
	pid = fork_child();
	if (pid == 0) {
		direct_transfers(path, p, MB(8));
		_exit(0);
	}
	status = wait_child(pid);
	shell("umount %s/mnt && rm -r %s", dir, dir);
	CHECK_EQ(status, 0);
	verify(p, MB(2) - PAGE, 3, 0);
	unmap(p, MB(8));
	fs_end();
}

/* ---- Others that look ------------------------------------------------------------- */

static void other_processes(void)
{
	char *p, *to = map_anon(MB(2)), path[64];
	struct iovec local = { to, MB(2) }, remote;
	int fd, mem, down[2], up[2];
	pid_t pid;
	long word;

	fs_any();
	fd = new_file("a", MB(8));
	CHECK_OK(pipe(down));
	CHECK_OK(pipe(up));
	p = map_shared(fd, MB(8));
	fill(p, MB(8), 1);
	pid = fork_child();
	if (pid == 0) {
		CHECK_OK(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
		tell(up[1]);
		await(down[0]);
		_exit(0);
	}
	await(up[0]);
	unmap(p, MB(8));
	remote = (struct iovec){ p + MB(1), MB(2) };
	CHECK_EQ(process_vm_readv(pid, &local, 1, &remote, 1, 0), MB(2));
	verify(to, MB(2), 1, MB(1));
	fill(to, MB(2), 2);
	CHECK_EQ(process_vm_writev(pid, &local, 1, &remote, 1, 0), MB(2));
	verify_file(fd, MB(1), MB(2), 2, 0);
	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	mem = open(path, O_RDWR | O_CLOEXEC);
	CHECK_OK(mem);
	CHECK_EQ(pread(mem, to, PAGE, (off_t)(uintptr_t)(p + MB(4))), PAGE);
	verify(to, PAGE, 1, MB(4));
	CHECK_EQ(pwrite(mem, "poked", 6, (off_t)(uintptr_t)(p + MB(5))), 6);
	read_at(fd, to, 6, MB(5));
	CHECK(strcmp(to, "poked") == 0);
	CHECK_OK(ptrace(PTRACE_ATTACH, pid, NULL, NULL));
	CHECK(waitpid(pid, NULL, 0) == pid);
	errno = 0;
	word = ptrace(PTRACE_PEEKDATA, pid, p + MB(5), NULL);
	CHECK_EQ(errno, 0);
	CHECK(memcmp(&word, "poked", 6) == 0);
	CHECK_OK(ptrace(PTRACE_POKEDATA, pid, p + MB(6), 0x1234L));
	CHECK_OK(ptrace(PTRACE_DETACH, pid, NULL, NULL));
	read_at(fd, &word, sizeof(word), MB(6));
	CHECK_EQ(word, 0x1234);
	/* Behind the end there is nothing to be had. */
	CHECK_OK(ftruncate(fd, (off_t)MB(2)));
	CHECK_EQ(process_vm_readv(pid, &local, 1, &remote, 1, 0), MB(1));
	remote.iov_base = p + MB(4);
	CHECK_ERR(process_vm_readv(pid, &local, 1, &remote, 1, 0), EFAULT);
	errno = 0;
	CHECK(pread(mem, to, PAGE, (off_t)(uintptr_t)(p + MB(4))) == -1 && errno == EIO);
	close(mem);
	tell(down[1]);
	expect_success(pid);
	for (int i = 0; i < 2; i++) {
		close(up[i]);
		close(down[i]);
	}
	close(fd);
	unmap(to, MB(2));
	CHECK_OK(unlink(in_fs("a")));
	fs_end();
}

/* A debugger writes to read-only memory by a copy, and a shared mapping has none. */
static void read_only_for_debuggers(void)
{
	char *p;
	int fd, mem;

	fs_any();
	fd = new_file("a", MB(2));
	p = map_file(fd, MB(2), PROT_READ, MAP_SHARED, 0);
	mem = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	CHECK_OK(mem);
	errno = 0;
	CHECK(pwrite(mem, "x", 1, (off_t)(uintptr_t)p) == -1 && (errno == EIO || errno == EFAULT));
	verify_zero(p, MB(2));
	unmap(p, MB(2));
	/* A private one has. */
	p = map_file(fd, MB(2), PROT_READ, MAP_PRIVATE, 0);
	if (pwrite(mem, "x", 1, (off_t)(uintptr_t)p) == 1)
		CHECK_EQ(p[0], 'x');
	unmap(p, MB(2));
	verify_file_zero(fd, 0, MB(2));
	close(mem);
	fs_end_with(fd, "a");
}

/* All pages are there, and of a file. */
static void check_pagemap(const char *p, size_t len)
{
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	uint64_t entry;

	CHECK_OK(fd);
	for (size_t at = 0; at < len; at += PAGE) {
		CHECK_EQ(pread(fd, &entry, 8, (off_t)((uintptr_t)(p + at) / PAGE * 8)), 8);
		CHECK(entry >> 63);
		CHECK(entry >> 61 & 1);
	}
	close(fd);
}

static void what_proc_tells(void)
{
	struct vma vma;
	int fd, refs;
	char *p;

	fs_any();
	fd = new_file("a", MB(4));
	p = map_shared(fd, MB(4));
	CHECK(vma_at(p, &vma));
	CHECK_EQ(vma.perms[3], 's');
	CHECK(strcmp(vma.name, in_fs("a")) == 0);
	stamp(p, MB(4), 1);
	check_pagemap(p, MB(4));
	/* References may be forgotten, memory may not. */
	refs = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
	CHECK_OK(refs);
	CHECK_EQ(write(refs, "1", 1), 1);
	CHECK_EQ(write(refs, "4", 1), 1);
	close(refs);
	verify_stamp(p, MB(4), 1);
	stamp(p, MB(4), 2);
	check_pagemap(p, MB(4));
	verify_stamp(p, MB(4), 2);
	unmap(p, MB(4));
	fs_end_with(fd, "a");
}

static void locks_on_files(void)
{
	struct flock lock = { .l_type = F_WRLCK, .l_len = 100 };
	int fd, other;
	pid_t pid;

	fs_any();
	fd = new_file("a", PAGE);
	other = open(in_fs("a"), O_RDWR | O_CLOEXEC);
	CHECK_OK(other);
	CHECK_OK(flock(fd, LOCK_EX));
	CHECK_ERR(flock(other, LOCK_EX | LOCK_NB), EWOULDBLOCK);
	CHECK_OK(flock(fd, LOCK_UN));
	CHECK_OK(fcntl(fd, F_SETLK, &lock));
	pid = fork_child();
	if (pid == 0) {
		CHECK_ERR(fcntl(other, F_SETLK, &lock), EAGAIN);
		_exit(0);
	}
	expect_success(pid);
	close(other);
	fs_end_with(fd, "a");
}

/* ---- Core dumps ---------------------------------------------------------------------- */

static void core_dump(void)
{
	static const char pattern[] = "/proc/sys/kernel/core_pattern";
	char dir[] = "/tmp/hpmmap-core-XXXXXX", saved[256] = "", path[128];
	struct rlimit limit;
	const Elf64_Phdr *head;
	const Elf64_Ehdr *elf;
	struct stat st;
	int fd, file, status, found = 0;
	char *p, *core;
	pid_t pid;

	fd = open(pattern, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		SKIP("the core pattern cannot be changed");
	CHECK_OK(getrlimit(RLIMIT_CORE, &limit));
	if (limit.rlim_max != RLIM_INFINITY && geteuid() != 0)
		SKIP("the hard limit RLIMIT_CORE is not unlimited");
	CHECK(read(fd, saved, sizeof(saved) - 1) > 0);
	CHECK_EQ(pwrite(fd, "core\n", 5, 0), 5);
	CHECK(mkdtemp(dir) != NULL);
	fs_any();
	file = new_file("a", MB(6));
	p = map_shared(file, MB(8));
	fill(p, MB(6), 4);
	pid = fork_child();
	if (pid == 0) {
		int filter = open("/proc/self/coredump_filter", O_WRONLY | O_CLOEXEC);

		/* With what is shared and of files. */
		CHECK_EQ(write(filter, "0x3f", 4), 4);
		limit.rlim_cur = limit.rlim_max = RLIM_INFINITY;
		CHECK_OK(setrlimit(RLIMIT_CORE, &limit));
		CHECK_OK(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
		CHECK_OK(chdir(dir));
		abort();
	}
	status = wait_child(pid);
	CHECK_EQ(pwrite(fd, saved, strlen(saved), 0), strlen(saved));
	close(fd);
	if (!WIFSIGNALED(status) || !WCOREDUMP(status))
		FAIL("the child ends with status %#x, without a core", (unsigned int)status);
	snprintf(path, sizeof(path), "%s/core", dir);
	if (access(path, R_OK) != 0)
		snprintf(path, sizeof(path), "%s/core.%d", dir, pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK_OK(fd);
	CHECK_OK(fstat(fd, &st));
	core = map_file(fd, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, 0);
	elf = (const void *)core;
	CHECK(memcmp(elf->e_ident, ELFMAG, SELFMAG) == 0);
	head = (const void *)(core + elf->e_phoff);
	for (size_t i = 0; i < elf->e_phnum; i++) {
		if (head[i].p_type != PT_LOAD || head[i].p_vaddr != (uintptr_t)p)
			continue;
		CHECK(head[i].p_filesz >= MB(6));
		verify(core + head[i].p_offset, MB(6), 4, 0);
		found++;
	}
	CHECK_EQ(found, 1);
	unmap(core, (size_t)st.st_size);
	close(fd);
	CHECK_OK(unlink(path));
	CHECK_OK(rmdir(dir));
	unmap(p, MB(8));
	fs_end_with(file, "a");
}

int main(void)
{
	static const struct test tests[] = {
		T(reads_and_writes),
		T(copied_within_the_kernel),
		T(cut_while_in_a_pipe),
		T(cut_while_spliced),
		T(cut_while_it_is_read),
		T(punched_while_pinned),
		T(advice_for_a_part),
		T(fixed_buffers),
		T(direct_io),
		T(other_processes),
		T(read_only_for_debuggers),
		T(what_proc_tells),
		T(locks_on_files),
		T(core_dump),
	};

	return RUN_GROUP("sem_shared_io", tests);
}
