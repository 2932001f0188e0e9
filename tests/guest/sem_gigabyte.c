// SPDX-License-Identifier: GPL-2.0
/*
 * Mappings of whole gigabytes. With --page-size 1G, on Linux 6.12 and newer, each is mapped by
 * one entry.
 *
 * Their contents look like entries of page tables: whatever takes an entry of 1 GB for a table
 * changes them, or worse.
 */
#include "call32.h"
#include "common.h"
#include "ring.h"

#include <elf.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/userfaultfd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_mseal
#define SYS_mseal 462
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef UFFD_FEATURE_WP_ASYNC
#define UFFD_FEATURE_WP_ASYNC (1 << 15)
#endif

/* Where there is nothing else, and a second place of as much. */
#define A	((char *)TB(16))
#define B	((char *)TB(24))
/* Where calls by int $0x80 come to. */
#define LOW	((char *)GB(1))

/* ---- Entries ------------------------------------------------------------------ */

static void read_file(const char *path, char *text, size_t len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	CHECK_OK(fd);
	n = read(fd, text, len - 1);
	CHECK(n >= 0);
	text[n] = '\0';
	close(fd);
}

/* Launched with --page-size 1G where there are entries of 1 GB? */
static bool wanted(void)
{
	static int answer = -1;
	int major = 0, minor = 0;
	struct utsname name;

	if (answer >= 0)
		return answer;
	CHECK_OK(uname(&name));
	CHECK_EQ(sscanf(name.release, "%d.%d", &major, &minor), 2);
	answer = registered() && getenv("HPMMAP_TEST_GIGABYTES") && maps_2m() &&
		 major * 100 + minor >= 612;
	return answer;
}

static uint64_t made(void)
{
	return job_value("entries_1g");
}

static uint64_t splits(void)
{
	return wanted() ? job_value("splits_1g") : 0;
}

static uint64_t splits_before;

/* No entry was split since start() or owner(). */
static void expect_whole(const char *what)
{
	uint64_t n = splits() - splits_before;

	if (n)
		FAIL("%s: %llu entries of 1 GB were split", what, (unsigned long long)n);
}

/* ---- Contents ----------------------------------------------------------------- */

/* An entry of a table, or of 2 MB, as the CPU would see it; of memory that there is. */
static uint64_t forged(uint64_t seed, size_t off)
{
	uint64_t n = (off / 8 + 1) * 0x9e3779b97f4a7c15ULL + seed * 0x100000001b3ULL;
	uint64_t frame = GB(4) + (n >> 40) % (GB(1) / PAGE) * PAGE;

	return n >> 39 & 1 ? (frame & ~(SLOT - 1)) | 0xe7 : frame | 0x67;
}

/* The first page, which would be the table, has more words than the others. */
static size_t next_word(size_t off)
{
	return off % GB(1) < PAGE ? off + 8 : off + PAGE;
}

/* All of it is at off of what has the contents of this seed. */
static void put(char *at, size_t len, size_t off, uint64_t seed)
{
	for (size_t o = off; o < off + len; o = next_word(o))
		*(volatile uint64_t *)(void *)(at + (o - off)) = forged(seed, o);
}

/* All near the ends of a range, beside which something was done, and in between some of each block. */
static size_t next_look(size_t o, size_t from, size_t to)
{
	bool near = o % GB(1) < PAGE || o < from + SLOT || o + SLOT + 7 * PAGE >= to;

	return near ? next_word(o) : o + 7 * PAGE;
}

static void expect(const char *at, size_t len, size_t off, uint64_t seed)
{
	for (size_t o = off; o < off + len; o = next_look(o, off, off + len)) {
		uint64_t got = *(const volatile uint64_t *)(const void *)(at + (o - off));

		if (got != forged(seed, o))
			FAIL("at %#zx: %#llx, not %#llx", o, (unsigned long long)got,
			     (unsigned long long)forged(seed, o));
	}
}

/* The same at A, from one offset to another. */
static void kept(size_t from, size_t to)
{
	expect(A + from, to - from, from, 1);
}

static uint64_t joins(void)
{
	return wanted() ? job_value("joins_1g") : 0;
}

static void kept_without_faults(size_t from, size_t to)
{
	watch_begin();
	kept(from, to);
	for (size_t o = from; o < to; o = next_look(o, from, to))
		*(volatile char *)(A + o) = A[o];
	EXPECT_NO_FAULTS(A + from, to - from);
}

#define TRIES 2

/* Ordinary memory: a block might lie where a gigabyte would. */
static char buffer[MB(16)];

/* How many there were, and whether the last is mapped by entries of 1 GB. */
static unsigned int starts;
static bool whole;

static char *map_at(char *at, unsigned int nr)
{
	uint64_t got, before;

	/* What a test that failed has left. */
	unmap(at, GB(2));
	for (int i = 0; ; i++) {
		before = registered() ? made() : 0;
		map_flags(at, GB(nr), RW, ANON | MAP_FIXED_NOREPLACE);
		got = registered() ? made() - before : 0;
		if (!wanted() || got == nr || i == TRIES)
			break;
		unmap(at, GB(nr));
		await_clean();
	}
	/*
	 * Later a block of this process may lie in each gigabyte that is free, and from the first Linux
	 * may not have given more than one as a whole.
	 */
	if (got != nr && wanted() && (starts || got))
		note("%llu of %u gigabytes by one entry", (unsigned long long)got, nr);
	else
		CHECK_EQ(got, wanted() ? nr : 0);
	starts++;
	whole = got == nr;
	return at;
}

/* At A, with contents. */
static void start(unsigned int nr)
{
	map_at(A, nr);
	put(A, GB(nr), 0, 1);
	splits_before = splits();
}

static void end(void)
{
	unmap(A, GB(4));
}

/* ---- What is there at once ---------------------------------------------------- */

static void all_there_without_faults(void)
{
	map_at(A, 2);
	CHECK_TOUCH(A, GB(2));
	verify_zero(A, GB(1));
	put(A, GB(2), 0, 1);
	kept(0, GB(2));
	unmap(A, GB(2));
	CHECK_READ_SEGV(A, SEGV_MAPERR);
	/* The same memory, with nothing of before. */
	map_at(A, 1);
	verify_zero(A, GB(1));
	end();
}

static void one_that_was_there_before(void)
{
	start(2);
	map_flags(A, GB(1), RW, ANON | MAP_FIXED);
	kept(GB(1), GB(2));
	for (size_t off = 0; off < GB(1); off += PAGE)
		CHECK_EQ(*(uint64_t *)(void *)(A + off), 0);
	end();
}

static void the_heap_and_parts_around(void)
{
	/* Whole gigabytes only are mapped so: before and behind them is more. */
	map_flags(A + MB(3), GB(1) + MB(1020), RW, ANON | MAP_FIXED_NOREPLACE);
	CHECK_TOUCH(A + MB(3), GB(1) + MB(1020));
	put(A + MB(3), GB(1) + MB(1020), MB(3), 1);
	kept(MB(3), GB(2) - MB(1));
	unmap(A + MB(3), MB(5));
	kept_without_faults(MB(8), GB(2) - MB(1));
	end();
}

/* ---- Others who read and write ------------------------------------------------ */

struct link {
	int to_child[2];
	int to_parent[2];
};

static void open_link(struct link *link)
{
	CHECK_OK(pipe2(link->to_child, O_CLOEXEC));
	CHECK_OK(pipe2(link->to_parent, O_CLOEXEC));
}

static void close_link(struct link *link)
{
	close(link->to_child[0]);
	close(link->to_child[1]);
	close(link->to_parent[0]);
}

/* await() fails if the child has ended. */
static pid_t fork_linked(struct link *link)
{
	pid_t pid;

	open_link(link);
	pid = fork_child();
	if (pid) {
		close(link->to_parent[1]);
		link->to_parent[1] = -1;
	}
	return pid;
}

/* A process with a gigabyte of its own, which waits until it is told. */
static pid_t owner(struct link *link)
{
	pid_t pid = fork_linked(link);

	if (!pid) {
		start(1);
		tell(link->to_parent[1]);
		await(link->to_child[0]);
		kept(SLOT * 4, GB(1) - SLOT * 4);
		_exit(0);
	}
	await(link->to_parent[0]);
	starts++;
	splits_before = splits();
	return pid;
}

static void end_owner(struct link *link, pid_t pid)
{
	tell(link->to_child[1]);
	expect_success(pid);
	close_link(link);
}

static void other_processes(void)
{
	char *mine = buffer;
	struct iovec local = { mine, MB(7) }, remote = { A + SLOT - PAGE, MB(7) };
	struct link link;
	pid_t pid = owner(&link);
	void *pages[2] = { A + SLOT, A + GB(1) / 2 };
	int status[2] = { -1, -1 };

	CHECK_EQ(process_vm_readv(pid, &local, 1, &remote, 1, 0), MB(7));
	expect(mine, MB(7), SLOT - PAGE, 1);
	put(mine, MB(7), SLOT - PAGE, 2);
	/* Beyond the first folio nothing of it stays. */
	remote.iov_len = local.iov_len = 2 * PAGE;
	CHECK_EQ(process_vm_writev(pid, &local, 1, &remote, 1, 0), 2 * PAGE);
	memset(mine, 0, MB(8));
	CHECK_EQ(process_vm_readv(pid, &local, 1, &remote, 1, 0), 2 * PAGE);
	expect(mine, 2 * PAGE, SLOT - PAGE, 2);
	expect_whole("process_vm_readv(2) and process_vm_writev(2)");
	CHECK_EQ(syscall(SYS_move_pages, pid, 2UL, pages, NULL, status, 0), 0);
	CHECK(status[0] >= 0 && status[1] >= 0);
	end_owner(&link, pid);
}

static void debuggers(void)
{
	char *mine = buffer, path[64];
	char *word = A + SLOT;
	struct link link;
	pid_t pid = owner(&link);
	int fd;

	if (ptrace(PTRACE_ATTACH, pid, NULL, NULL) != 0) {
		kill(pid, SIGKILL);
		SKIP("PTRACE_ATTACH: %s", errno_name(errno));
	}
	wait_child(pid);
	errno = 0;
	CHECK_EQ(ptrace(PTRACE_PEEKDATA, pid, word, NULL), (long)forged(1, SLOT));
	CHECK_EQ(errno, 0);
	CHECK_OK(ptrace(PTRACE_POKEDATA, pid, word, (void *)forged(3, SLOT)));
	CHECK_EQ(ptrace(PTRACE_PEEKDATA, pid, word, NULL), (long)forged(3, SLOT));
	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	fd = open(path, O_RDWR | O_CLOEXEC);
	CHECK_OK(fd);
	CHECK_EQ(pread(fd, mine, MB(4), (off_t)(uintptr_t)(A + SLOT + PAGE)), MB(4));
	expect(mine, MB(4), SLOT + PAGE, 1);
	put(mine, 2 * PAGE, SLOT - PAGE, 4);
	CHECK_EQ(pwrite(fd, mine, 2 * PAGE, (off_t)(uintptr_t)(A + SLOT - PAGE)), 2 * PAGE);
	memset(mine, 0, 2 * PAGE);
	CHECK_EQ(pread(fd, mine, 2 * PAGE, (off_t)(uintptr_t)(A + SLOT - PAGE)), 2 * PAGE);
	expect(mine, 2 * PAGE, SLOT - PAGE, 4);
	close(fd);
	expect_whole("ptrace(2) and /proc/PID/mem");
	CHECK_OK(ptrace(PTRACE_DETACH, pid, NULL, NULL));
	end_owner(&link, pid);
}

static void direct_io(void)
{
	int fd;

	if (geteuid() != 0 || system("modprobe -q brd rd_nr=1 rd_size=32768") != 0)
		SKIP("there is no RAM disk");
	fd = open("/dev/ram0", O_RDWR | O_DIRECT | O_CLOEXEC);
	CHECK_OK(fd);
	start(2);
	/* Over the borders of blocks, and of the gigabyte. */
	CHECK_EQ(pwrite(fd, A + SLOT - KB(64), MB(7), 0), MB(7));
	CHECK_EQ(pwrite(fd, A + GB(1) - MB(1), MB(2), MB(8)), MB(2));
	memset(A + MB(512) - KB(64), 0, MB(7));
	CHECK_EQ(pread(fd, A + MB(512) - KB(64), MB(7), 0), MB(7));
	expect(A + MB(512) - KB(64), MB(7), SLOT - KB(64), 1);
	CHECK_EQ(pread(fd, A + MB(801) + PAGE, MB(2), MB(8)), MB(2));
	expect(A + MB(801) + PAGE, MB(2), GB(1) - MB(1), 1);
	kept(0, MB(512) - KB(64));
	kept(GB(1), GB(2));
	expect_whole("O_DIRECT");
	end();
	close(fd);
	shell("modprobe -r brd");
}

/* Pages in a pipe stay what they were, whatever becomes of the mapping. */
static void pages_in_pipes(void)
{
	size_t off = SLOT - 2 * PAGE, len = 4 * PAGE;
	struct iovec vec = { A + off, len };
	char *to = buffer;
	int fd[2];
	pid_t pid;

	CHECK_OK(pipe(fd));
	start(1);
	CHECK_EQ(vmsplice(fd[1], &vec, 1, 0), len);
	expect_whole("vmsplice(2)");
	end();
	/* Who gets all that is free does not get these. */
	map_flags(A, GB(2), RW, ANON | MAP_FIXED_NOREPLACE);
	put(A, GB(2), 0, 9);
	CHECK_EQ(read(fd[0], to, len), len);
	expect(to, len, off, 1);
	end();

	pid = fork_child();
	if (!pid) {
		start(1);
		CHECK_EQ(vmsplice(fd[1], &vec, 1, 0), len);
		raise(SIGKILL);
	}
	expect_signal(pid, SIGKILL);
	map_flags(A, GB(2), RW, ANON | MAP_FIXED_NOREPLACE);
	put(A, GB(2), 0, 9);
	CHECK_EQ(read(fd[0], to, len), len);
	expect(to, len, off, 1);
	end();
	close(fd[0]);
	close(fd[1]);
}

/* Skips where it is not permitted. */
static void need_ring(struct ring *ring)
{
	if (!ring_open(ring))
		SKIP("io_uring_setup: %s", errno_name(errno));
}

static void fixed_buffers(void)
{
	struct iovec vec = { A + SLOT - KB(64), MB(64) };
	struct io_uring_sqe sqe = {
		.opcode = IORING_OP_WRITE_FIXED,
		.addr = (uintptr_t)vec.iov_base,
		.len = MB(1),
	};
	char *mine = buffer;
	struct ring ring;
	int fd = memfd_create("data", MFD_CLOEXEC);

	CHECK_OK(fd);
	need_ring(&ring);
	start(1);
	if (syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_BUFFERS, &vec, 1)) {
		/* Linux 6.1 refuses shared file mappings as fixed buffers. */
		if (!registered() || errno != EOPNOTSUPP)
			FAIL("IORING_REGISTER_BUFFERS: %s", errno_name(errno));
		end();
		SKIP("fixed buffers: EOPNOTSUPP");
	}
	sqe.fd = fd;
	CHECK_EQ(ring_run(&ring, &sqe), MB(1));
	sqe.opcode = IORING_OP_READ_FIXED;
	sqe.addr += MB(32);
	CHECK_EQ(ring_run(&ring, &sqe), MB(1));
	expect(A + SLOT - KB(64) + MB(32), MB(1), SLOT - KB(64), 1);
	expect_whole("fixed buffers");
	kept(0, MB(32));
	end();
	/* Pinned, and mapped no more. */
	map_flags(A, GB(2), RW, ANON | MAP_FIXED_NOREPLACE);
	put(A, GB(2), 0, 9);
	sqe.opcode = IORING_OP_WRITE_FIXED;
	sqe.addr -= MB(32);
	CHECK_EQ(ring_run(&ring, &sqe), MB(1));
	CHECK_EQ(pread(fd, mine, MB(1), 0), MB(1));
	expect(mine, MB(1), SLOT - KB(64), 1);
	sqe.opcode = IORING_OP_READ_FIXED;
	CHECK_EQ(ring_run(&ring, &sqe), MB(1));
	expect(A, GB(2), 0, 9);
	end();
	ring_close(&ring);
	close(fd);
}

/* The first of a core, which has the lowest addresses first. */
static void core_dumps(void)
{
	char dir[] = "/tmp/sem-gigabyte-XXXXXX", path[64], *core = buffer;
	struct rlimit limit = { sizeof(buffer), RLIM_INFINITY };
	const Elf64_Ehdr *elf = (const void *)core;
	const Elf64_Phdr *head;
	pid_t pid;
	int fd;

	read_file("/proc/sys/kernel/core_pattern", path, sizeof(path));
	if (strcmp(path, "core\n"))
		SKIP("the core pattern is %s", path);
	CHECK(mkdtemp(dir));
	splits_before = splits();
	pid = fork_child();
	if (!pid) {
		start(1);
		CHECK_OK(chdir(dir));
		CHECK_OK(setrlimit(RLIMIT_CORE, &limit));
		abort();
	}
	expect_signal(pid, SIGABRT);
	expect_whole("a core dump");
	snprintf(path, sizeof(path), "%s/core", dir);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK_OK(fd);
	CHECK(read(fd, core, sizeof(buffer)) > (ssize_t)MB(8));
	head = (const void *)(core + elf->e_phoff);
	while (head->p_vaddr != (uintptr_t)A)
		CHECK(++head < (const Elf64_Phdr *)(const void *)(core + elf->e_phoff) + elf->e_phnum);
	expect(core + head->p_offset, MB(6), 0, 1);
	close(fd);
	shell("rm -r %s", dir);
}

static void *wait_for_word(void *arg)
{
	/* Not a private one: it has a key of the page. */
	CHECK_OK(syscall(SYS_futex, arg, FUTEX_WAIT, 1, NULL, NULL, 0));
	return NULL;
}

static void futexes(void)
{
	uint32_t *word;
	pthread_t thread;
	long woken = 0;

	start(1);
	word = (uint32_t *)(void *)(A + MB(77) + 3 * PAGE + 64);
	*word = 1;
	thread = start_thread(wait_for_word, word);
	while (!woken) {
		woken = syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
		CHECK_OK(woken);
		pause_ms(1);
	}
	join_thread(thread);
	kept(0, GB(1));
	end();
}

/* ---- Children ------------------------------------------------------------------- */

static uint64_t *some_word(size_t off)
{
	return (uint64_t *)(void *)(A + off + 8);
}

/* Writes into blocks that are far from each other, and beside the contents. */
static void scribble(uint64_t value)
{
	for (size_t off = SLOT; off < GB(1); off += 64 * SLOT)
		*some_word(off) = value;
}

static void expect_scribbles(uint64_t value)
{
	for (size_t off = SLOT; off < GB(1); off += 64 * SLOT)
		CHECK_EQ(*some_word(off), value);
}

static void child_reads(void *arg)
{
	(void)arg;
	kept(0, GB(1));
	expect_scribbles(5);
}

static void child_writes(void *arg)
{
	child_reads(arg);
	scribble(6);
	expect_scribbles(6);
	kept(0, GB(1));
}

static void child_shares(void *arg)
{
	const uint64_t *before = arg;

	if (registered())
		CHECK(pool_value("free_bytes") + MB(128) > *before);
}

static void children_read_and_write(void)
{
	uint64_t before;

	start(1);
	scribble(5);
	before = registered() ? pool_value("free_bytes") : 0;
	in_child(child_shares, &before);
	in_child(child_reads, NULL);
	/* As it was before the fork. */
	kept_without_faults(0, GB(1));
	expect_whole("a child that only reads");
	in_child(child_writes, NULL);
	expect_scribbles(5);
	scribble(7);
	expect_scribbles(7);
	kept(0, GB(1));
	end();
}

static void parent_writes_while_a_child_lives(void)
{
	struct link link;
	pid_t pid;

	start(1);
	scribble(5);
	for (int round = 0; round < 2; round++) {
		pid = fork_linked(&link);
		if (!pid) {
			tell(link.to_parent[1]);
			await(link.to_child[0]);
			child_writes(NULL);
			_exit(0);
		}
		await(link.to_parent[0]);
		scribble(8);
		expect_scribbles(8);
		tell(link.to_child[1]);
		expect_success(pid);
		expect_scribbles(8);
		kept(0, GB(1));
		scribble(5);
		close_link(&link);
	}
	end();
}

static void child_writes_to_its_parent(void *arg)
{
	uint64_t word = 99, *at = (void *)(A + SLOT * 9);
	struct iovec local = { &word, sizeof(word) }, remote = { at, sizeof(word) };

	(void)arg;
	CHECK_EQ(process_vm_writev(getppid(), &local, 1, &remote, 1, 0), sizeof(word));
	CHECK(*at != word);
}

static void others_write_while_a_child_lives(void)
{
	start(1);
	in_child(child_writes_to_its_parent, NULL);
	CHECK_EQ(*(uint64_t *)(void *)(A + SLOT * 9), 99);
	put(A + SLOT * 9, PAGE, SLOT * 9, 1);
	kept(0, GB(1));
	end();
}

static void all_of_it_is_copied(void)
{
	struct link link;
	pid_t pid;

	start(1);
	pid = fork_linked(&link);
	if (!pid) {
		await(link.to_child[0]);
		kept(0, GB(1));
		put(A, GB(1), 0, 4);
		expect(A, GB(1), 0, 4);
		_exit(0);
	}
	put(A, GB(1), 0, 3);
	tell(link.to_child[1]);
	expect(A, GB(1), 0, 3);
	expect_success(pid);
	expect(A, GB(1), 0, 3);
	end();
	close_link(&link);
}

static void children_that_leave(void)
{
	pid_t pid;

	start(1);
	scribble(5);
	pid = fork_child();
	if (!pid) {
		execl("/bin/true", "true", NULL);
		_exit(1);
	}
	expect_success(pid);
	kept(0, GB(1));
	pid = fork_child();
	if (!pid)
		for (;;)
			scribble(6);
	pause_ms(30);
	CHECK_OK(kill(pid, SIGKILL));
	expect_signal(pid, SIGKILL);
	expect_scribbles(5);
	scribble(6);
	kept(0, GB(1));
	end();
}

static void grandchildren(void)
{
	struct link link;
	pid_t pid;

	start(1);
	scribble(5);
	pid = fork_linked(&link);
	if (!pid) {
		pid_t grandchild = fork_child();

		if (!grandchild) {
			await(link.to_child[0]);
			child_writes(NULL);
			tell(link.to_parent[1]);
			_exit(0);
		}
		scribble(9);
		kept(0, GB(1));
		_exit(0);
	}
	expect_success(pid);
	scribble(8);
	/* It is the only one that has the memory then. */
	end();
	tell(link.to_child[1]);
	await(link.to_parent[0]);
	close_link(&link);
}

/* ---- Parts ------------------------------------------------------------------------ */

static void holes(void)
{
	static const struct {
		size_t off;
		size_t len;
	} parts[] = {
		{ 4 * SLOT, SLOT },
		{ 7 * SLOT + PAGE, PAGE },
		{ GB(1) - SLOT, 2 * SLOT },
		{ 0, PAGE },
		{ GB(2) - PAGE, PAGE },
		{ 0, GB(1) },
	};

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		size_t off = parts[i].off, behind = off + parts[i].len;

		start(2);
		/* The CPU has the entry at hand. */
		kept(off, off + PAGE);
		unmap(A + off, parts[i].len);
		CHECK_READ_SEGV(A + off, SEGV_MAPERR);
		CHECK_READ_SEGV(A + behind - 1, SEGV_MAPERR);
		kept_without_faults(0, off);
		kept_without_faults(behind, GB(2));
		/* It comes back as zeros. */
		map_flags(A + off, parts[i].len, RW, ANON | MAP_FIXED_NOREPLACE);
		CHECK_EQ(*(uint64_t *)(void *)(A + off), 0);
		CHECK_EQ(*(uint64_t *)(void *)(A + behind - PAGE), 0);
		kept(0, off);
		kept(behind, GB(2));
		end();
	}
}

static void mapped_over(void)
{
	int fd = memfd_create("data", MFD_CLOEXEC);
	size_t off = GB(1) + 3 * SLOT, len = SLOT + PAGE;

	CHECK_OK(fd);
	/* It may be memory of the pools. */
	CHECK_OK(ftruncate(fd, (off_t)PAGE));
	start(2);
	map_flags(A + off, len, RW, ANON | MAP_FIXED);
	CHECK_EQ(*(uint64_t *)(void *)(A + off), 0);
	kept_without_faults(0, off);
	kept_without_faults(off + len, GB(2));
	CHECK_OK(mmap(A + 8 * SLOT + PAGE, PAGE, RW, MAP_SHARED | MAP_FIXED, fd, 0));
	A[8 * SLOT + PAGE] = 1;
	kept(0, 8 * SLOT + PAGE);
	kept(8 * SLOT + 2 * PAGE, off);
	end();
	start(1);
	CHECK_OK(ftruncate(fd, (off_t)GB(1)));
	CHECK_OK(mmap(A, GB(1), RW, MAP_SHARED | MAP_FIXED, fd, 0));
	CHECK_EQ(*(uint64_t *)(void *)(A + 8 * SLOT), 0);
	end();
	close(fd);
}

/* It goes with the last mapping; -1 where there is not so much. */
static int segment(size_t len)
{
	int id = shmget(IPC_PRIVATE, len, 0600);

	if (id != -1) {
		CHECK(shmat(id, B, 0) == B);
		CHECK_OK(shmctl(id, IPC_RMID, NULL));
	}
	return id;
}

static void segments_over(void)
{
	char *at = A + 6 * SLOT + PAGE;
	int id = segment(SLOT + 2 * PAGE);

	CHECK_OK(id);
	start(1);
	CHECK(shmat(id, at, SHM_REMAP) == at);
	*at = 3;
	kept(0, 6 * SLOT + PAGE);
	kept(7 * SLOT + 3 * PAGE, GB(1));
	end();
	CHECK_OK(shmdt(B));
	id = segment(GB(1));
	if (id != -1) {
		start(1);
		CHECK(shmat(id, A, SHM_REMAP) == A);
		CHECK_EQ(*(uint64_t *)(void *)(A + SLOT), 0);
		end();
		CHECK_OK(shmdt(B));
	}
}

static void protections(void)
{
	static const struct {
		size_t off;
		size_t len;
	} parts[] = {
		{ 8 * SLOT, SLOT }, { 8 * SLOT + PAGE, PAGE }, { 0, PAGE }, { GB(1) - PAGE, PAGE },
	};

	start(2);
	CHECK_OK(mprotect(A, GB(1), PROT_READ));
	watch_begin();
	kept(0, GB(1));
	EXPECT_NO_FAULTS(A, GB(1));
	CHECK_WRITE_SEGV(A + SLOT, SEGV_ACCERR);
	CHECK_OK(mprotect(A, GB(1), RW));
	kept_without_faults(0, GB(2));
	expect_whole("mprotect(2) of all");
	CHECK_OK(mprotect(A, GB(1), PROT_NONE));
	CHECK_READ_SEGV(A, SEGV_ACCERR);
	kept(GB(1), GB(2));
	CHECK_OK(mprotect(A, GB(1), RW));
	kept(0, GB(2));
	/* Nor are its blocks lost. */
	CHECK_OK(mprotect(A, GB(1), PROT_NONE));
	end();
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		size_t off = parts[i].off, behind = off + parts[i].len;

		start(2);
		CHECK_OK(mprotect(A + off, parts[i].len, PROT_READ));
		CHECK_WRITE_SEGV(A + off, SEGV_ACCERR);
		CHECK_WRITE_SEGV(A + behind - 1, SEGV_ACCERR);
		kept_without_faults(0, off);
		kept_without_faults(behind, GB(2));
		kept(0, GB(2));
		CHECK_OK(mprotect(A + off, parts[i].len, PROT_NONE));
		CHECK_READ_SEGV(A + off, SEGV_ACCERR);
		CHECK_OK(mprotect(A + off, parts[i].len, RW));
		kept(0, GB(2));
		end();
	}
}

/* The border of two mappings moves: nobody is asked whether a mapping may be split. */
static void borders_move(void)
{
	start(2);
	CHECK_OK(mprotect(A + GB(1), GB(1), PROT_READ));
	CHECK_OK(mprotect(A + GB(1), PAGE, RW));
	kept(0, GB(2));
	CHECK_TOUCH(A, GB(1) + PAGE);
	CHECK_WRITE_SEGV(A + GB(1) + PAGE, SEGV_ACCERR);
	CHECK_OK(mprotect(A + GB(1), PAGE, PROT_READ));
	CHECK_WRITE_SEGV(A + GB(1), SEGV_ACCERR);
	end();
	start(2);
	CHECK_OK(mprotect(A + GB(1), GB(1), PROT_READ));
	CHECK_OK(mprotect(A + GB(1) - PAGE, PAGE, PROT_READ));
	CHECK_WRITE_SEGV(A + GB(1) - PAGE, SEGV_ACCERR);
	kept(0, GB(2));
	CHECK_TOUCH(A, GB(1) - PAGE);
	end();
	/* What is mapped beside it grows into nothing of it. */
	start(1);
	map_flags(A + GB(1), PAGE, RW, ANON | MAP_FIXED_NOREPLACE);
	map_flags(A - PAGE, PAGE, RW, ANON | MAP_FIXED_NOREPLACE);
	CHECK_OK(mprotect(A - PAGE, PAGE, PROT_READ));
	CHECK_OK(mprotect(A, PAGE, PROT_READ));
	kept(0, GB(1));
	unmap(A - PAGE, PAGE);
	end();
}

/* The same by calls that no hook sees. */
static void borders_move_by_advice(void)
{
	struct io_uring_sqe sqe = {
		.opcode = IORING_OP_MADVISE,
		.addr = (uintptr_t)(A + GB(1)),
		.len = PAGE,
		.fadvise_advice = MADV_RANDOM,
	};
	struct ring ring;

	need_ring(&ring);
	start(2);
	CHECK_OK(madvise(A, GB(1), MADV_RANDOM));
	CHECK_EQ(ring_run(&ring, &sqe), 0);
	kept(0, GB(2));
	sqe.addr = (uintptr_t)(A + GB(1) - PAGE);
	sqe.fadvise_advice = MADV_NORMAL;
	CHECK_EQ(ring_run(&ring, &sqe), 0);
	CHECK_OK(madvise(A + GB(1), PAGE, MADV_NORMAL));
	kept(0, GB(2));
	end();
	ring_close(&ring);
}

/* Calls that cut a mapping for a page of it. */
static void cuts(void)
{
	for (int how = 0; how < 4; how++) {
		char *at = A + GB(1) / 2 + PAGE;
		unsigned long node0 = 1;

		start(1);
		if (how == 0)
			syscall(SYS_mbind, at, PAGE, 1 /* PREFERRED */, &node0, 64UL, 0U);
		if (how == 1)
			syscall(450 /* set_mempolicy_home_node */, at, PAGE, 0UL, 0UL);
		if (how == 2)
			syscall(SYS_remap_file_pages, at, PAGE, 0UL, 1UL, 0UL);
		if (how == 3)
			prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, at, PAGE, "name");
		kept(0, GB(1) / 2);
		kept(GB(1) / 2 + 2 * PAGE, GB(1));
		end();
	}
}

/* ---- Seals ------------------------------------------------------------------------- */

/* What is sealed stays until the process ends. */
static void seal_a_page(void *arg)
{
	size_t off = *(const size_t *)arg;

	start(2);
	if (syscall(SYS_mseal, A + off, PAGE, 0UL))
		SKIP("mseal(2): %s", errno_name(errno));
	kept(0, GB(2));
	CHECK_ERR(mprotect(A + off, PAGE, PROT_READ), EPERM);
	CHECK_OK(mprotect(A + off + PAGE, PAGE, PROT_READ));
	kept(0, GB(2));
	CHECK_ERR(munmap(A, GB(2)), EPERM);
	kept(0, GB(2));
}

static void seal_beside_a_sealed_one(void *arg)
{
	(void)arg;
	start(2);
	if (syscall(SYS_mseal, A, GB(1), 0UL))
		SKIP("mseal(2): %s", errno_name(errno));
	CHECK_OK(syscall(SYS_mseal, A + GB(1), PAGE, 0UL));
	kept(0, GB(2));
	CHECK_OK(mprotect(A + GB(1) + PAGE, PAGE, PROT_READ));
	kept(0, GB(2));
}

static void seals(void)
{
	static const size_t offs[] = { 2 * PAGE, GB(1) - PAGE, GB(1) };

	for (; starts < ARRAY_SIZE(offs); starts++)
		in_child(seal_a_page, (void *)&offs[starts]);
	in_child(seal_beside_a_sealed_one, NULL);
}

/* ---- Moves --------------------------------------------------------------------------- */

static void *moved(char *from, size_t len, char *to, int flags)
{
	return mremap(from, len, len, MREMAP_MAYMOVE | MREMAP_FIXED | flags, to);
}

static void moves_of_all(void)
{
	char *to[] = { B, B + GB(4) + 6 * SLOT, B + GB(9) + 2 * PAGE };
	char *from = A;

	start(1);
	for (size_t i = 0; i < ARRAY_SIZE(to); i++) {
		CHECK(moved(from, GB(1), to[i], 0) == to[i]);
		expect(to[i], GB(1), 0, 1);
		CHECK_READ_SEGV(from, SEGV_MAPERR);
		from = to[i];
	}
	unmap(from, GB(1));
	start(1);
	CHECK(mremap(A, GB(1), GB(2), 0) == A);
	kept(0, GB(1));
	CHECK_TOUCH(A + GB(1), GB(1));
	CHECK(mremap(A, GB(2), GB(1) / 2, 0) == A);
	kept(0, GB(1) / 2);
	CHECK_READ_SEGV(A + GB(1) / 2, SEGV_MAPERR);
	end();
	start(1);
	if (moved(A, GB(1), B, MREMAP_DONTUNMAP) == B) {
		expect(B, GB(1), 0, 1);
		CHECK_EQ(*(uint64_t *)(void *)(A + SLOT), 0);
		unmap(B, GB(1));
	}
	end();
}

static void moves_of_parts(void)
{
	start(1);
	CHECK(moved(A + 4 * SLOT, 4 * SLOT, B, 0) == B);
	expect(B, 4 * SLOT, 4 * SLOT, 1);
	kept_without_faults(0, 4 * SLOT);
	kept_without_faults(8 * SLOT, GB(1));
	CHECK(moved(A + MB(200) + PAGE, 2 * PAGE, B + GB(1), 0) == B + GB(1));
	expect(B + GB(1), 2 * PAGE, MB(200) + PAGE, 1);
	kept(MB(202), GB(1));
	unmap(B, GB(2));
	end();
	/* The first page, which would be a table. */
	start(1);
	CHECK(moved(A, SLOT, B, 0) == B);
	expect(B, SLOT, 0, 1);
	kept(SLOT, GB(1));
	unmap(B, GB(1));
	end();
	/* Into a gigabyte. */
	start(1);
	map_flags(B, 2 * SLOT, RW, ANON | MAP_FIXED_NOREPLACE);
	put(B, 2 * SLOT, 0, 2);
	CHECK(moved(B, 2 * SLOT, A + 5 * SLOT, 0) == A + 5 * SLOT);
	expect(A + 5 * SLOT, 2 * SLOT, 0, 2);
	kept(0, 5 * SLOT);
	kept(7 * SLOT, GB(1));
	end();
}

/* ---- Advice ---------------------------------------------------------------------------- */

static void discards(void)
{
	static const size_t lens[] = { PAGE, SLOT, 3 * SLOT + PAGE };

	for (size_t i = 0; i < ARRAY_SIZE(lens); i++) {
		start(1);
		CHECK_OK(madvise(A + SLOT, lens[i], MADV_DONTNEED));
		for (size_t off = 0; off < lens[i]; off += PAGE)
			CHECK_EQ(*(uint64_t *)(void *)(A + SLOT + off), 0);
		kept_without_faults(0, SLOT);
		kept_without_faults(SLOT + lens[i], GB(1));
		end();
	}
	start(1);
	CHECK_OK(madvise(A, GB(1), MADV_DONTNEED));
	for (size_t off = 0; off < GB(1); off += PAGE)
		CHECK_EQ(*(uint64_t *)(void *)(A + off), 0);
	put(A, GB(1), 0, 2);
	expect(A, GB(1), 0, 2);
	end();
}

static void discards_by_a_ring(void)
{
	static const size_t lens[] = { PAGE, 3 * SLOT, GB(1) - SLOT };
	struct io_uring_sqe sqe = {
		.opcode = IORING_OP_MADVISE,
		.fadvise_advice = MADV_DONTNEED,
	};
	struct ring ring;

	need_ring(&ring);
	for (size_t i = 0; i < ARRAY_SIZE(lens); i++) {
		start(1);
		sqe.addr = (uintptr_t)(A + SLOT);
		sqe.len = (uint32_t)lens[i];
		CHECK_EQ(ring_run(&ring, &sqe), 0);
		/* No hook sees it: of a job it may do nothing. */
		for (size_t off = 0; off < lens[i]; off += PAGE) {
			uint64_t got = *(uint64_t *)(void *)(A + SLOT + off);

			CHECK(!got || got == forged(1, SLOT + off));
		}
		kept(0, SLOT);
		kept(SLOT + lens[i], GB(1));
		end();
	}
	/* All, which no split precedes. */
	start(1);
	sqe.addr = (uintptr_t)A;
	sqe.len = GB(1);
	CHECK_EQ(ring_run(&ring, &sqe), 0);
	put(A, GB(1), 0, 2);
	expect(A, GB(1), 0, 2);
	end();
	ring_close(&ring);
}

static volatile bool discarding;

static void *discard_all(void *arg)
{
	struct io_uring_sqe sqe = {
		.opcode = IORING_OP_MADVISE,
		.addr = (uintptr_t)A,
		.len = GB(1),
		.fadvise_advice = MADV_DONTNEED,
	};

	while (discarding)
		CHECK_EQ(ring_run(arg, &sqe), 0);
	return NULL;
}

/* Entries go by calls that no hook sees, and others come at the same moment. */
static void discards_beside_new_entries(void)
{
	pthread_t threads[2];
	struct ring rings[2];

	need_ring(&rings[0]);
	CHECK(ring_open(&rings[1]));
	start(1);
	discarding = true;
	for (int i = 0; i < 2; i++)
		threads[i] = start_thread(discard_all, &rings[i]);
	/* It maps again what is unmapped. */
	for (int i = 0; i < 500; i++)
		madvise(A, GB(1), MADV_WILLNEED);
	discarding = false;
	for (int i = 0; i < 2; i++) {
		join_thread(threads[i]);
		ring_close(&rings[i]);
	}
	kept(0, GB(1));
	end();
}

static void other_advice(void)
{
	static const struct {
		size_t off;
		size_t len;
		int advice;
	} advice[] = {
		{ SLOT, SLOT, MADV_COLD },
		{ SLOT, SLOT, MADV_PAGEOUT },
		{ 0, GB(1), MADV_PAGEOUT },
		{ 0, GB(1), MADV_WILLNEED },
		{ SLOT, SLOT, MADV_HUGEPAGE },
		{ PAGE, PAGE, MADV_NOHUGEPAGE },
		{ SLOT, SLOT, MADV_MERGEABLE },
		{ PAGE, 2 * PAGE, MADV_DONTFORK },
		{ 0, GB(1), MADV_DONTFORK },
		{ 0, GB(1), MADV_DOFORK },
		{ PAGE, PAGE, MADV_DONTDUMP },
		{ SLOT, SLOT, MADV_COLLAPSE },
		{ 0, GB(1), MADV_POPULATE_READ },
		{ 0, GB(1), MADV_POPULATE_WRITE },
		{ 2 * PAGE, 2 * PAGE, MADV_RANDOM },
	};

	start(1);
	for (size_t i = 0; i < ARRAY_SIZE(advice); i++) {
		/* Not every kernel has each. */
		madvise(A + advice[i].off, advice[i].len, advice[i].advice);
		kept(0, GB(1));
	}
	end();
	/* Each the first. */
	for (size_t i = 0; i < ARRAY_SIZE(advice); i++) {
		start(1);
		madvise(A + advice[i].off, advice[i].len, advice[i].advice);
		kept(0, SLOT * 2);
		kept(GB(1) - SLOT, GB(1));
		end();
	}
}

static void advice_of_others(void)
{
	static const int advice[] = { MADV_COLD, MADV_PAGEOUT, MADV_WILLNEED, MADV_COLLAPSE };

	for (size_t i = 0; i < ARRAY_SIZE(advice); i++) {
		struct iovec vec[] = { { A + SLOT + PAGE, 3 * SLOT }, { A, GB(1) } };
		struct link link;
		pid_t pid = owner(&link);
		int fd = (int)syscall(SYS_pidfd_open, pid, 0);

		CHECK_OK(fd);
		for (size_t j = 0; j < ARRAY_SIZE(vec); j++)
			syscall(SYS_process_madvise, fd, &vec[j], 1UL, advice[i], 0U);
		close(fd);
		end_owner(&link, pid);
	}
}

static void locks(void)
{
	start(1);
	if (mlock(A + SLOT, SLOT) != 0) {
		end();
		SKIP("mlock of 2 MB: %s", errno_name(errno));
	}
	kept_without_faults(0, GB(1));
	CHECK_OK(munlock(A, GB(1)));
	end();
	start(1);
	CHECK_OK(mlock(A + PAGE, 2 * PAGE));
	kept_without_faults(0, GB(1));
	CHECK_OK(mlock(A, GB(1)));
	kept_without_faults(0, GB(1));
	CHECK_OK(munlock(A, GB(1)));
	end();
	start(1);
	CHECK_OK(mlock(A, GB(1)));
	kept_without_faults(0, GB(1));
	CHECK_OK(munlock(A + GB(1) / 2, PAGE));
	kept_without_faults(0, GB(1));
	end();
	start(1);
	CHECK_OK(mlock2(A + SLOT, SLOT, MLOCK_ONFAULT));
	kept(0, GB(1));
	end();
}

/* ---- Others who look ----------------------------------------------------------------- */

static void look(pid_t pid, const char *name)
{
	char path[64], text[4096];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	while ((n = read(fd, text, sizeof(text))) > 0)
		;
	CHECK_EQ(n, 0);
	close(fd);
}

static void clear_refs(pid_t pid, const char *what)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/clear_refs", pid);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	CHECK_OK(fd);
	CHECK_EQ(write(fd, what, 1), 1);
	close(fd);
}

static void look_at_pages(void)
{
	unsigned long node0 = 1;
	void *page = A + SLOT;
	int status = -1, node = -1;

	CHECK(pagemap_entry(A + SLOT + PAGE) >> 63);
	syscall(SYS_move_pages, 0, 1UL, &page, NULL, &status, 0);
	CHECK_EQ(status, 0);
	status = 0;
	syscall(SYS_move_pages, 0, 1UL, &page, &status, &status, 2);
	syscall(SYS_get_mempolicy, &node, NULL, 0UL, page, 3UL);
	syscall(SYS_mbind, A, GB(1), 2, &node0, 64UL, 3U);
	syscall(SYS_mbind, A + PAGE, PAGE, 2, &node0, 64UL, 0U);
	kept(0, GB(1));
}

static void looked_at(void)
{
	static const char *const files[] = { "smaps", "smaps_rollup", "numa_maps" };
	unsigned char *core = (unsigned char *)buffer;

	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		start(1);
		look(getpid(), "maps");
		look(getpid(), "statm");
		expect_whole("maps and statm");
		look(getpid(), files[i]);
		kept_without_faults(0, GB(1));
		end();
	}
	start(1);
	CHECK_OK(mincore(A, GB(1), core));
	for (size_t i = 0; i < GB(1) / PAGE; i++)
		CHECK_EQ(core[i] & 1, 1);
	kept_without_faults(0, GB(1));
	look_at_pages();
	end();
	for (const char *what = "134"; *what; what++) {
		struct link link;
		pid_t pid;

		start(1);
		clear_refs(getpid(), what);
		kept(0, GB(1));
		put(A, GB(1), 0, 2);
		expect(A, GB(1), 0, 2);
		end();
		pid = owner(&link);
		clear_refs(pid, what);
		look(pid, "smaps");
		end_owner(&link, pid);
	}
}

/* By itself, soon. */
static void joined_again(void)
{
	uint64_t before;

	if (!wanted())
		SKIP("there are no entries of 1 GB");
	for (int round = 0; round < 2; round++) {
		start(1);
		if (!whole)
			SKIP("there is no whole gigabyte any more");
		before = joins();
		look(getpid(), "smaps");
		CHECK_EQ(splits() - splits_before, 1);
		watch_begin();
		for (int i = 0; i < 100 && joins() == before; i++) {
			kept(0, GB(1));
			pause_ms(50);
		}
		EXPECT_NO_FAULTS(A, GB(1));
		CHECK_EQ(joins() - before, 1);
		kept_without_faults(0, GB(1));
		/* It is shared as one that was never split. */
		scribble(5);
		in_child(child_writes, NULL);
		kept(0, GB(1));
		end();
	}
}

/* With the rights of its own mapping, not those of a small one below. */
static void joined_above_a_small_mapping(void)
{
	uint64_t before;

	if (!wanted())
		SKIP("there are no entries of 1 GB");
	map_flags(A - MB(4), MB(2), RW, ANON | MAP_FIXED_NOREPLACE);
	start(1);
	if (!whole)
		SKIP("there is no whole gigabyte any more");
	CHECK_OK(mprotect(A, GB(1), PROT_READ));
	before = joins();
	look(getpid(), "smaps");
	for (int i = 0; i < 100 && joins() == before; i++)
		pause_ms(50);
	CHECK_EQ(joins() - before, 1);
	CHECK_WRITE_SEGV(A + SLOT, SEGV_ACCERR);
	kept(0, GB(1));
	end();
	unmap(A - MB(4), MB(2));
}

/* But not while a child shares it. */
static void shared_is_not_joined(void)
{
	uint64_t before;
	struct link link;
	pid_t pid;

	if (!wanted())
		SKIP("there are no entries of 1 GB");
	start(1);
	scribble(5);
	pid = fork_linked(&link);
	if (!pid) {
		await(link.to_child[0]);
		child_writes(NULL);
		_exit(0);
	}
	look(getpid(), "smaps");
	before = joins();
	pause_ms(2500);
	scribble(8);
	tell(link.to_child[1]);
	expect_success(pid);
	close_link(&link);
	/* What the parent has written to since the fork it has other blocks for. */
	expect_scribbles(8);
	kept(0, GB(1));
	CHECK_EQ(joins(), before);
	end();
}

/* ---- userfaultfd ----------------------------------------------------------------------- */

static const uint64_t modes[] = {
	UFFDIO_REGISTER_MODE_MISSING, UFFDIO_REGISTER_MODE_WP, UFFDIO_REGISTER_MODE_MINOR,
};

static void registered_parts(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
		int fd = uffd_open(0);
		pid_t pid;

		CHECK_OK(fd);
		start(1);
		uffd_register(fd, A + SLOT, SLOT, modes[i]);
		uffd_register(fd, A + MB(9) + PAGE, PAGE, modes[i]);
		kept(0, GB(1));
		close(fd);
		CHECK_TOUCH(A + MB(16), GB(1) - MB(16));
		end();
		/* By a process that is not the owner. */
		fd = uffd_open(0);
		start(1);
		pid = fork_child();
		if (!pid) {
			uffd_register(fd, A + SLOT, SLOT, modes[i]);
			uffd_register(fd, A + MB(9) + PAGE, PAGE, modes[i]);
			_exit(0);
		}
		expect_success(pid);
		kept(0, GB(1));
		close(fd);
		end();
	}
}

static void registered_as_a_whole(void)
{
	struct uffdio_writeprotect wp = {
		.range = { (uintptr_t)A, GB(1) },
		.mode = UFFDIO_WRITEPROTECT_MODE_WP,
	};
	int fd = uffd_open(UFFD_FEATURE_WP_ASYNC);

	for (int by_child = 1; fd >= 0 && by_child >= 0; by_child--) {
		pid_t pid = -1;

		start(1);
		if (by_child)
			pid = fork_child();
		/* All of a mapping, which is not cut for it. */
		if (pid <= 0 && !uffd_register(fd, A, GB(1), UFFDIO_REGISTER_MODE_WP))
			CHECK_OK(ioctl(fd, UFFDIO_WRITEPROTECT, &wp));
		if (!pid)
			_exit(0);
		if (by_child)
			expect_success(pid);
		kept(0, GB(1));
		put(A, GB(1), 0, 2);
		expect(A, GB(1), 0, 2);
		end();
	}
	close(fd);
	/* A new mapping of a registered range is no gigabyte. */
	fd = uffd_open(0);
	map_flags(A, GB(1), PROT_NONE, ANON | MAP_NORESERVE | MAP_FIXED_NOREPLACE);
	if (!uffd_register(fd, A + SLOT, SLOT, UFFDIO_REGISTER_MODE_WP)) {
		CHECK_OK(mprotect(A, GB(1), RW));
		put(A, GB(1), 0, 1);
		kept(0, GB(1));
	}
	close(fd);
	end();
}

/* ---- Calls without a hook --------------------------------------------------------------- */

static long low(long nr, size_t off, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e)
{
	return call32(nr, (uintptr_t)LOW + off, b, c, d, e);
}

_Noreturn static void try_entry(void)
{
	_exit(call32(20 /* getpid */, 0, 0, 0, 0, 0) != getpid());
}

static void start_low(unsigned int nr)
{
	map_at(LOW, nr);
	put(LOW, GB(nr), 0, 1);
}

static void low_kept(size_t from, size_t to)
{
	expect(LOW + from, to - from, from, 1);
}

static void low_kept_without_faults(size_t from, size_t to)
{
	watch_begin();
	low_kept(from, to);
	EXPECT_NO_FAULTS(LOW + from, to - from);
}

static void calls_without_a_hook(void)
{
	static const size_t lens[] = { PAGE, SLOT };
	pid_t pid = fork_child();

	if (!pid)
		try_entry();
	if (wait_child(pid))
		SKIP("this kernel has no int 0x80");
	for (size_t i = 0; i < ARRAY_SIZE(lens); i++) {
		size_t off = GB(1) / 2, behind = off + lens[i];

		start_low(1);
		CHECK_EQ(low(CALL32_MUNMAP, off, lens[i], 0, 0, 0), 0);
		low_kept_without_faults(0, off & ~(SLOT - 1));
		low_kept_without_faults((behind + SLOT - 1) & ~(SLOT - 1), GB(1));
		CHECK_READ_SEGV(LOW + off, SEGV_MAPERR);
		unmap(LOW, GB(1));

		start_low(1);
		CHECK_EQ(low(CALL32_MPROTECT, off, lens[i], PROT_READ, 0, 0), 0);
		low_kept(0, GB(1));
		CHECK_WRITE_SEGV(LOW + off, SEGV_ACCERR);
		CHECK_EQ(low(CALL32_MPROTECT, off, lens[i], PROT_NONE, 0, 0), 0);
		CHECK_READ_SEGV(LOW + off, SEGV_ACCERR);
		CHECK_EQ(low(CALL32_MPROTECT, off, lens[i], RW, 0, 0), 0);
		low_kept(0, GB(1));
		unmap(LOW, GB(1));

		start_low(1);
		CHECK_EQ(low(CALL32_MREMAP, off, lens[i], lens[i], MREMAP_MAYMOVE | MREMAP_FIXED, GB(3)), GB(3));
		expect((char *)GB(3), lens[i], off, 1);
		low_kept(0, off);
		low_kept(behind, GB(1));
		unmap((char *)GB(3), lens[i]);
		unmap(LOW, GB(1));

		start_low(1);
		CHECK_EQ(low(CALL32_MADVISE, off, lens[i], MADV_DONTNEED, 0, 0), 0);
		CHECK_EQ(low(CALL32_MLOCK, off, PAGE, 0, 0, 0), 0);
		low_kept(0, off);
		low_kept(behind, GB(1));
		unmap(LOW, GB(1));
	}
	/* All of it, and the border of two. */
	start_low(1);
	CHECK_EQ(low(CALL32_MREMAP, 0, GB(1), GB(1), MREMAP_MAYMOVE | MREMAP_FIXED, GB(2)), GB(2));
	expect((char *)GB(2), GB(1), 0, 1);
	CHECK_EQ(call32(CALL32_MUNMAP, GB(2), GB(1), 0, 0, 0), 0);
	CHECK_READ_SEGV((char *)GB(2), SEGV_MAPERR);
	start_low(2);
	CHECK_EQ(low(CALL32_MPROTECT, GB(1), GB(1), PROT_READ, 0, 0), 0);
	CHECK_EQ(low(CALL32_MPROTECT, GB(1), PAGE, RW, 0, 0), 0);
	low_kept(0, GB(2));
	CHECK_WRITE_SEGV(LOW + GB(1) + PAGE, SEGV_ACCERR);
	CHECK_EQ(low(CALL32_MPROTECT, GB(1) - PAGE, 2 * PAGE, PROT_READ, 0, 0), 0);
	low_kept(0, GB(2));
	unmap(LOW, GB(2));
}

/* ---- Ends ------------------------------------------------------------------------------- */

static void ends(void)
{
	uint64_t before = registered() ? pool_value("free_bytes") : 0;
	pid_t pid;

	for (int how = 0; how < 4; how++) {
		struct link link;

		pid = fork_linked(&link);
		if (!pid) {
			starts = how;
			start(how == 3 ? 2 : 1);
			tell(link.to_parent[1]);
			if (how == 0)
				exit(0);
			if (how == 1)
				execl("/bin/true", "true", NULL);
			for (;;)
				scribble(1);
		}
		await(link.to_parent[0]);
		if (how > 1) {
			CHECK_OK(kill(pid, SIGKILL));
			expect_signal(pid, SIGKILL);
		} else {
			expect_success(pid);
		}
		close_link(&link);
		if (registered())
			await_pool_free(before);
	}
}

/* ---- All at once -------------------------------------------------------------------------- */

/* Each does something to a part that nobody counts in: from 400 to 420 MB. */
static void op_nothing(void) { }
static void op_look(void) { look(getpid(), "smaps"); }
static void op_discard(void) { CHECK_OK(madvise(A + MB(401) + PAGE, 2 * PAGE, MADV_DONTNEED)); }
static void op_unmap(void) { unmap(A + MB(404), SLOT); }
static void op_lock(void) { CHECK(!mlock(A + MB(402), PAGE) || errno == ENOMEM || errno == EPERM); }
static void op_move(void) { CHECK(moved(A + MB(410), SLOT, A + MB(414), 0) == A + MB(414)); }
static void op_fork(void) { in_child(child_reads, NULL); }

static void op_protect(void)
{
	CHECK_OK(mprotect(A + MB(403) + PAGE, PAGE, PROT_READ));
	CHECK_OK(mprotect(A + MB(403), SLOT, RW));
}

static void op_read(void)
{
	char mine[2 * PAGE];
	struct iovec local = { mine, sizeof(mine) }, remote = { A + SLOT - PAGE, sizeof(mine) };

	for (int i = 0; i < 100; i++) {
		CHECK_EQ(process_vm_readv(getpid(), &local, 1, &remote, 1, 0), sizeof(mine));
		expect(mine, sizeof(mine), SLOT - PAGE, 1);
	}
}

_Noreturn static void look_for_ever(pid_t pid)
{
	char mine[2 * PAGE];
	struct iovec local = { mine, sizeof(mine) }, remote = { A + SLOT - PAGE, sizeof(mine) };

	for (;;) {
		for (int i = 0; i < 50; i++)
			process_vm_readv(pid, &local, 1, &remote, 1, 0);
		look(pid, "smaps");
		look(pid, "numa_maps");
	}
}

static void beside_writers(void)
{
	static void (*const ops[])(void) = {
		op_look, op_discard, op_protect, op_read, op_fork, op_unmap, op_lock, op_move, op_nothing,
	};
	pid_t self = getpid(), looks = 0;

	for (size_t round = 0; round < 2 * ARRAY_SIZE(ops); round++) {
		struct counting count[2];
		pthread_t threads[2];

		/* The second time beside a process that looks all the time. */
		if (round == ARRAY_SIZE(ops)) {
			looks = fork_child();
			if (!looks)
				look_for_ever(self);
		}
		start(1);
		scribble(5);
		threads[0] = count_start(&count[0], A + MB(1) + 16);
		threads[1] = count_start(&count[1], A + MB(900) + 16);
		ops[round % ARRAY_SIZE(ops)]();
		pause_ms(20);
		for (int i = 0; i < 2; i++)
			count_end(&count[i], threads[i]);
		kept(0, MB(400));
		kept(MB(420), GB(1));
		end();
	}
	CHECK_OK(kill(looks, SIGKILL));
	expect_signal(looks, SIGKILL);
}

/* ---- Gigabytes that are held as one -------------------------------------------------------- */

static uint64_t in_runs(void)
{
	return registered() ? context_value("run_bytes") : 0;
}

/* Starts with a gigabyte; false where it came in pieces. */
static bool start_as_one(void)
{
	start(1);
	CHECK_EQ(in_runs(), whole && wanted() ? GB(1) : 0);
	return in_runs();
}

static void elsewhere(void)
{
	map_flags(B, 2 * SLOT, RW, ANON | MAP_FIXED_NOREPLACE);
	CHECK_TOUCH(B, 2 * SLOT);
	CHECK_OK(madvise(B, PAGE, MADV_DONTNEED));
	unmap(B, 2 * SLOT);
}

static void op_access(void)
{
	CHECK_OK(mprotect(A, GB(1), PROT_NONE));
	CHECK_OK(mprotect(A, GB(1), RW));
}

static void op_over(void)
{
	map_flags(A + MB(406), SLOT, RW, ANON | MAP_FIXED);
}

static void runs(void)
{
	static const struct {
		void (*op)(void);
		bool stays;
	} ops[] = {
		{ op_nothing, true }, { elsewhere, true }, { op_look, true }, { op_read, true },
		{ op_access, false }, { op_discard, false }, { op_protect, false }, { op_unmap, false }, { op_move, false },
		{ op_over, false }, { op_fork, false },
	};
	uint64_t free = registered() ? pool_value("free_bytes") : 0;
	pid_t pid;

	skip_unless_registered();
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
		pid = fork_child();
		if (!pid) {
			starts = i;
			if (start_as_one()) {
				/* A child looks for these. */
				scribble(5);
				ops[i].op();
				if (in_runs() != (ops[i].stays ? GB(1) : 0))
					FAIL("operation %zu: %#llx bytes in runs", i, (unsigned long long)in_runs());
			}
			kept(0, MB(400));
			kept(MB(420), GB(1));
			/* What gives it back: munmap(2), or the end of the process. */
			if (i % 2) {
				end();
				CHECK_EQ(in_runs(), 0);
			}
			_exit(0);
		}
		expect_success(pid);
		await_pool_free(free);
		await_clean();
	}
}

/* A page at one end stays mapped, with all of its slot. */
static void runs_but_for_a_page(void)
{
	for (int last = 0; last < 2; last++) {
		char *page = A + (last ? GB(1) - PAGE : 0);

		start(1);
		memset(page, 0x5a, PAGE);
		unmap(last ? A : A + PAGE, GB(1) - PAGE);
		for (size_t i = 0; i < PAGE; i++)
			CHECK_EQ(page[i], 0x5a);
		unmap(page, PAGE);
	}
	start(1);
	memset(A, 0x5a, PAGE);
	CHECK(mremap(A, GB(1), PAGE, 0) == A);
	CHECK_EQ(A[0], 0x5a);
	CHECK_EQ(A[PAGE - 1], 0x5a);
	unmap(A, PAGE);
}

/* One block of it stays, the others go. */
static void runs_with_a_pin(void)
{
	uint64_t free = registered() ? pool_value("free_bytes") : 0;
	size_t off = 100 * SLOT + 3 * PAGE;
	struct iovec vec = { A + off, 2 * PAGE };
	int fd[2];

	skip_unless_registered();
	CHECK_OK(pipe(fd));
	start_as_one();
	CHECK_EQ(vmsplice(fd[1], &vec, 1, 0), vec.iov_len);
	end();
	CHECK_EQ(in_runs(), 0);
	await_pool_free(free - SLOT);
	CHECK_EQ(pool_value("pinned_bytes"), SLOT);
	map_flags(A, GB(2), RW, ANON | MAP_FIXED_NOREPLACE);
	put(A, GB(2), 0, 9);
	CHECK_EQ(read(fd[0], buffer, vec.iov_len), vec.iov_len);
	expect(buffer, vec.iov_len, off, 1);
	end();
	close(fd[0]);
	close(fd[1]);
	await_pool_free(free);
}

/* ---- Memory errors -------------------------------------------------------------------- */

/*
 * A page is lost, with its 2 MB in the pools; where it lies is in the kernel log. Or what has it goes
 * before anything touches it.
 */
static void memory_error(void)
{
	struct outcome got;
	size_t bad = 9 * SLOT + 5 * PAGE;
	const char *how = getenv("HPMMAP_TEST_POISON");

	if (!how)
		SKIP("not without HPMMAP_TEST_POISON");
	start_as_one();
	CHECK_OK(madvise(A + bad, PAGE, MADV_HWPOISON));
	if (!strcmp(how, "untouched")) {
		CHECK_EQ(in_runs(), whole && wanted() ? GB(1) : 0);
		end();
		return;
	}
	got = probe_read(A + bad + 72);
	CHECK_EQ(got.sig, SIGBUS);
	CHECK_EQ(got.code, BUS_MCEERR_AR);
	kept(0, 9 * SLOT);
	kept(10 * SLOT, GB(1));
	CHECK_TOUCH(A, 9 * SLOT);
	CHECK_EQ(in_runs(), 0);
	end();
	start(1);
	end();
}

int main(void)
{
	static const struct test tests[] = {
		T(all_there_without_faults),
		T(one_that_was_there_before),
		T(the_heap_and_parts_around),
		T(other_processes),
		T(debuggers),
		T(direct_io),
		T(pages_in_pipes),
		T(fixed_buffers),
		T(core_dumps),
		T(futexes),
		T(children_read_and_write),
		T(parent_writes_while_a_child_lives),
		T(others_write_while_a_child_lives),
		T(all_of_it_is_copied),
		T(children_that_leave),
		T(grandchildren),
		T(holes),
		T(mapped_over),
		T(segments_over),
		T(protections),
		T(borders_move),
		T(borders_move_by_advice),
		T(cuts),
		T(seals),
#define IN_FIRST 23
		T(moves_of_all),
		T(moves_of_parts),
		T(discards),
		T(discards_by_a_ring),
		T(discards_beside_new_entries),
		T(other_advice),
		T(advice_of_others),
		T(locks),
		T(looked_at),
		T(joined_again),
		T(joined_above_a_small_mapping),
		T(shared_is_not_joined),
		T(registered_parts),
		T(registered_as_a_whole),
		T(calls_without_a_hook),
		T(ends),
		T(beside_writers),
		T(runs),
		T(runs_but_for_a_page),
		T(runs_with_a_pin),
		T(memory_error),
	};

	/* As sem_gigabyte_moves it has the others: one item should not take too long. */
	if (!getenv("HPMMAP_TEST_ONLY"))
		return strcmp(program_invocation_short_name, "sem_gigabyte") ?
		       run_each(tests + IN_FIRST, ARRAY_SIZE(tests) - IN_FIRST) :
		       run_each(tests, IN_FIRST);
	return RUN_GROUP("sem_gigabyte", tests);
}
