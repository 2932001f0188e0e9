// SPDX-License-Identifier: GPL-2.0
/*
 * Whole gigabytes of files of hpmmapfs, of shared memory and of windows. With --page-size 1G, on Linux
 * 6.12 and newer, each is mapped by one entry; those of files of a mount with pagesize=1G in every process.
 */
#include "shared.h"
#include "xpmem.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_process_mrelease
#define SYS_process_mrelease 448
#endif
#ifndef UFFD_FEATURE_WP_ASYNC
#define UFFD_FEATURE_WP_ASYNC (1 << 15)
#endif

/* ---- Entries, and what is behind them ---------------------------------------------- */

enum kind { MEMFD, FS, FS_1G, SEGMENT, KINDS };

static struct {
	enum kind kind;
	size_t len;
	int id;
} memory;

/* Can a file system be mounted with pagesize=1G? */
static bool mounts_1g(void)
{
	char text[8] = "";
	FILE *f;

	if (!fs_of_pools() || geteuid() != 0)
		return false;
	f = fopen("/sys/kernel/hpmmap/gigabytes", "re");
	CHECK(f && fgets(text, sizeof(text), f));
	fclose(f);
	return strcmp(text, "yes\n") == 0;
}

/*
 * Launched with --page-size 1G where there are entries of 1 GB? From 6.18 on the kernel asks the operations
 * of a mapping for the page of such an entry: those of a segment do not know it, so segments have none.
 */
static bool wanted(void)
{
	int major = 0, minor = 0, version;
	struct utsname name;

	if (memory.kind == FS_1G)
		return maps_2m() && mounts_1g();
	CHECK_OK(uname(&name));
	CHECK_EQ(sscanf(name.release, "%d.%d", &major, &minor), 2);
	version = major * 100 + minor;
	return registered() && getenv("HPMMAP_TEST_GIGABYTES") && maps_2m() && version >= 612 &&
	       (memory.kind != SEGMENT || version < 618);
}

static uint64_t value(const char *name)
{
	char path[64];
	uint64_t got;
	FILE *f;

	if (!wanted())
		return 0;
	if (registered())
		return job_value(name);
	snprintf(path, sizeof(path), "/sys/kernel/hpmmap/shared/%s", name);
	f = fopen(path, "re");
	CHECK(f && fscanf(f, "%" SCNu64, &got) == 1);
	fclose(f);
	return got;
}

static void expect_more(const char *name, uint64_t before, uint64_t nr)
{
	uint64_t got = value(name) - before;

	if (wanted() && got != nr)
		FAIL("%s: %llu more, not %llu (kind of memory %d)", name, (unsigned long long)got,
		     (unsigned long long)nr, memory.kind);
}

/* At least so many within some seconds. */
static void await_more(const char *name, uint64_t before, uint64_t nr)
{
	for (int i = 0; i < 200 && wanted() && value(name) - before < nr; i++)
		pause_ms(100);
	if (wanted() && value(name) - before < nr)
		FAIL("%s: not %llu more", name, (unsigned long long)nr);
}

/* It looks like an entry of a table, in the first and another word of each slot. */
static uint64_t word(size_t off, uint64_t seed)
{
	return (off / 8 * 0x9e3779b97f4a7c15ULL + seed) << 12 | 0xe7;
}

static size_t next_word(size_t off)
{
	return off % SLOT ? off - off % SLOT + SLOT : off + PAGE * 7 + 8;
}

/* From one offset to another of what is mapped at @at. */
static void put(char *at, size_t from, size_t to, uint64_t seed)
{
	for (size_t o = from; o < to; o = next_word(o))
		*(volatile uint64_t *)(void *)(at + o) = word(o, seed);
}

static void kept(const char *at, size_t from, size_t to, uint64_t seed)
{
	for (size_t o = from; o < to; o = next_word(o)) {
		uint64_t got = *(const volatile uint64_t *)(const void *)(at + o);

		if (got != word(o, seed))
			FAIL("at %#zx: %#llx, not %#llx", o, (unsigned long long)got,
			     (unsigned long long)word(o, seed));
	}
}

/* ---- Kinds of memory ----------------------------------------------------------------- */

static void make(enum kind kind, size_t len)
{
	memory.kind = kind;
	memory.len = len;
	switch (kind) {
	case MEMFD:
		memory.id = memfd_create("gigabytes", MFD_CLOEXEC);
		CHECK_OK(memory.id);
		CHECK_OK(ftruncate(memory.id, (off_t)len));
		break;
	case FS:
	case FS_1G:
		fs_mount(kind == FS_1G && mounts_1g() ? "size=3G,pagesize=1G" : "size=3G");
		memory.id = new_file("gigabytes", len);
		break;
	default:
		memory.id = shmget(IPC_PRIVATE, len, 0600);
		CHECK_OK(memory.id);
	}
}

/* All of it, where the kernel likes; each gigabyte by one entry, no matter what was soiled before. */
static char *map(void)
{
	uint64_t before = value("entries_1g");
	char *at = memory.kind == SEGMENT ? shmat(memory.id, NULL, 0) :
					    mmap(NULL, memory.len, RW, MAP_SHARED, memory.id, 0);

	CHECK_OK(at);
	if (wanted())
		CHECK_EQ((uintptr_t)at % GB(1), 0);
	expect_more("entries_1g", before, memory.len / GB(1));
	return at;
}

static void unmap_all(char *at)
{
	if (memory.kind == SEGMENT)
		CHECK_OK(shmdt(at));
	else
		unmap(at, memory.len);
}

static void drop(void)
{
	if (memory.kind == SEGMENT) {
		CHECK_OK(shmctl(memory.id, IPC_RMID, NULL));
	} else if (memory.kind == FS || memory.kind == FS_1G) {
		fs_end_with(memory.id, "gigabytes");
	} else {
		close(memory.id);
	}
}

/* Of a process that is not registered one kind is of interest. */
static enum kind first_kind(void)
{
	return registered() || !mounts_1g() ? MEMFD : FS_1G;
}

static enum kind end_of_kinds(void)
{
	return first_kind() == FS_1G ? FS_1G + 1 : KINDS;
}

#define EACH_KIND(_len)	for (enum kind k = (make(first_kind(), _len), first_kind()); k < end_of_kinds(); drop(), \
			     (void)(++k < end_of_kinds() && (make(k, _len), 0)))

/* ---- Mappings ------------------------------------------------------------------------ */

static void anonymous(void)
{
	uint64_t before = value("entries_1g"), splits = value("splits_1g");
	char *at;
	pid_t pid;

	at = mmap(NULL, GB(1), RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(at != MAP_FAILED);
	expect_more("entries_1g", before, 1);
	CHECK_TOUCH(at, GB(1));
	verify_zero(at, MB(4));
	put(at, 0, GB(1), 1);
	pid = fork_child();
	if (!pid) {
		kept(at, 0, GB(1), 1);
		put(at, MB(512), GB(1), 2);
		_exit(0);
	}
	expect_success(pid);
	kept(at, 0, MB(512), 1);
	kept(at, MB(512), GB(1), 2);
	expect_more("splits_1g", splits, 0);
	unmap(at, GB(1));
	CHECK_READ_SEGV(at, SEGV_MAPERR);
}

static void parts(void)
{
	EACH_KIND(GB(1)) {
		char *at = map();
		uint64_t splits = value("splits_1g");

		CHECK_TOUCH(at, GB(1));
		put(at, 0, GB(1), 1);
		/* Holes. */
		unmap(at + MB(100), MB(3));
		CHECK_READ_SEGV(at + MB(102), SEGV_MAPERR);
		expect_more("splits_1g", splits, 1);
		kept(at, 0, MB(100), 1);
		kept(at, MB(104), GB(1), 1);
		unmap_all(at);
		if (memory.kind == SEGMENT)
			unmap(at, GB(1));
		at = map();
		kept(at, 0, GB(1), 1);
		/* Rights of a part. */
		CHECK_OK(mprotect(at + MB(10), MB(1), PROT_READ));
		CHECK_WRITE_SEGV(at + MB(10), SEGV_ACCERR);
		kept(at, 0, GB(1), 1);
		put(at, MB(12), GB(1), 2);
		expect_more("splits_1g", splits, 2);
		CHECK_OK(mprotect(at, GB(1), RW));
		put(at, 0, MB(12), 2);
		unmap(at, GB(1));
		/* Something else over a part of it, and MADV_DONTNEED of another. */
		at = map();
		map_flags(at + MB(8), MB(8), RW, ANON | MAP_FIXED);
		CHECK_EQ(at[MB(9)], 0);
		CHECK_OK(madvise(at + MB(100), MB(101), MADV_DONTNEED));
		kept(at, 0, MB(8), 2);
		kept(at, MB(16), GB(1), 2);
		unmap(at, GB(1));
	}
}

static void all_of_it(void)
{
	EACH_KIND(GB(1)) {
		char *at = map();
		uint64_t splits = value("splits_1g");

		put(at, 0, GB(1), 1);
		CHECK_OK(mprotect(at, GB(1), PROT_READ));
		CHECK_WRITE_SEGV(at + MB(500), SEGV_ACCERR);
		kept(at, 0, GB(1), 1);
		CHECK_OK(mprotect(at, GB(1), RW));
		put(at, 0, GB(1), 2);
		CHECK_OK(mprotect(at, GB(1), PROT_NONE));
		CHECK_READ_SEGV(at, SEGV_ACCERR);
		CHECK_OK(mprotect(at, GB(1), RW));
		kept(at, 0, GB(1), 2);
		unmap(at, GB(1));
		at = map();
		CHECK_OK(madvise(at, GB(1), MADV_DONTNEED));
		kept(at, 0, GB(1), 2);
		unmap(at, GB(1));
		expect_more("splits_1g", splits, 0);
	}
}

/* A part moves away from an entry, a whole one moves, and one comes back to where it was. */
static void moves(void)
{
	char *to = (char *)TB(20);

	EACH_KIND(GB(2)) {
		char *at = map();

		put(at, 0, GB(2), 1);
		CHECK(mremap(at + MB(600), MB(10), MB(10), MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
		CHECK_READ_SEGV(at + MB(600), SEGV_MAPERR);
		kept(at, 0, MB(600), 1);
		kept(at, MB(610), GB(2), 1);
		kept(to - MB(600), MB(600), MB(610), 1);
		unmap(to, MB(10));
		unmap(at, GB(2));
		at = map();
		CHECK(mremap(at + GB(1), GB(1), GB(1), MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
		kept(to - GB(1), GB(1), GB(2), 1);
		/* It merges with what has stayed. */
		CHECK(mremap(to, GB(1), GB(1), MREMAP_MAYMOVE | MREMAP_FIXED, at + GB(1)) == at + GB(1));
		kept(at, 0, GB(2), 1);
		CHECK_READ_SEGV(to, SEGV_MAPERR);
		/* Shrinks. */
		CHECK(mremap(at, GB(2), GB(2) - MB(300), 0) == at);
		kept(at, 0, GB(2) - MB(300), 1);
		unmap(at, GB(2));
	}
}

/* ---- Files that change, and other processes --------------------------------------------- */

static void cut_files(void)
{
	for (enum kind k = first_kind(); k <= FS_1G; k++) {
		int go[2], done[2];
		char *at;
		pid_t pid;

		make(k, GB(1));
		CHECK_OK(pipe(go));
		CHECK_OK(pipe(done));
		pid = fork_child();
		if (!pid) {
			at = map();
			put(at, 0, GB(1), 1);
			tell(done[1]);
			await(go[0]);
			kept(at, 0, MB(500), 1);
			CHECK_EQ(probe_read(at + MB(500) + PAGE).sig, SIGBUS);
			CHECK_EQ(probe_read(at + GB(1) - PAGE).sig, SIGBUS);
			_exit(0);
		}
		await(done[0]);
		at = map();
		kept(at, 0, GB(1), 1);
		CHECK_OK(fallocate(memory.id, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, MB(600), MB(5)));
		verify_zero(at + MB(600), MB(5));
		kept(at, 0, MB(600), 1);
		kept(at, MB(606), GB(1), 1);
		CHECK_OK(ftruncate(memory.id, (off_t)(MB(500) + PAGE)));
		kept(at, 0, MB(500), 1);
		CHECK_EQ(probe_write(at + MB(500) + PAGE).sig, SIGBUS);
		tell(go[1]);
		expect_success(pid);
		/* What comes is zero, and larger by more than it lacked. */
		CHECK_OK(ftruncate(memory.id, (off_t)(GB(1) + MB(8))));
		kept(at, 0, MB(500), 1);
		CHECK_EQ(at[MB(700)], 0);
		unmap(at, GB(1));
		drop();
	}
}

static void others_read_and_write(void)
{
	EACH_KIND(GB(1)) {
		char *at = map(), *mine = map_anon(MB(8));
		struct iovec local = { mine, MB(7) }, remote = { at + SLOT - PAGE, MB(7) };
		uint64_t splits = value("splits_1g");
		pid_t pid;

		put(at, 0, GB(1), 1);
		pid = fork_child();
		if (!pid) {
			CHECK_EQ(process_vm_readv(getppid(), &local, 1, &remote, 1, 0), MB(7));
			kept(mine - (SLOT - PAGE), SLOT, SLOT - PAGE + MB(7), 1);
			remote.iov_base = at + MB(500);
			CHECK_EQ(process_vm_writev(getppid(), &local, 1, &remote, 1, 0), MB(7));
			/* It has it mapped, too. */
			kept(at, 0, MB(500), 1);
			_exit(0);
		}
		expect_success(pid);
		kept(at, MB(508), GB(1), 1);
		expect_more("splits_1g", splits, 0);
		unmap(mine, MB(8));
		unmap(at, GB(1));
	}
}

static void ends(void)
{
	EACH_KIND(GB(1)) {
		char *at = map();

		put(at, 0, GB(1), 1);
		for (int i = 0; i < 2; i++) {
			int ready[2];
			pid_t pid;

			CHECK_OK(pipe(ready));
			pid = fork_child();
			if (!pid) {
				kept(map(), 0, GB(1), 1);
				tell(ready[1]);
				if (i)
					_exit(0);
				pause();
			}
			await(ready[0]);
			if (i) {
				expect_success(pid);
			} else {
				CHECK_OK(kill(pid, SIGKILL));
				expect_signal(pid, SIGKILL);
			}
			close(ready[0]);
			close(ready[1]);
		}
		kept(at, 0, GB(1), 1);
		unmap(at, GB(1));
	}
}

/* Mapped by one entry, by a process that may never write to it. */
static const char *map_readonly(void)
{
	uint64_t before = value("entries_1g");
	char name[32], *at;
	int fd = -1;

	snprintf(name, sizeof(name), "/proc/self/fd/%d", memory.id);
	if (memory.kind != SEGMENT)
		CHECK_OK(fd = open(name, O_RDONLY | O_CLOEXEC));
	at = memory.kind == SEGMENT ? shmat(memory.id, NULL, SHM_RDONLY) :
				      mmap(NULL, GB(1), PROT_READ, MAP_SHARED, fd, 0);
	CHECK_OK(at);
	expect_more("entries_1g", before, 1);
	return at;
}

/* process_mrelease(2) takes entries out of such a mapping, as out of private memory. */
static void released(void)
{
	EACH_KIND(GB(1)) {
		char *at = map();
		int ready[2], fd;
		pid_t pid;

		put(at, 0, GB(1), 1);
		CHECK_OK(pipe(ready));
		pid = fork_child();
		if (!pid) {
			kept(map_readonly(), 0, GB(1), 1);
			tell(ready[1]);
			pause();
		}
		await(ready[0]);
		fd = (int)syscall(SYS_pidfd_open, pid, 0);
		CHECK_OK(fd);
		CHECK_OK(kill(pid, SIGKILL));
		/* It may have ended by then. */
		if (syscall(SYS_process_mrelease, fd, 0U) != 0)
			CHECK_EQ(errno, ESRCH);
		expect_signal(pid, SIGKILL);
		close(fd);
		close(ready[0]);
		close(ready[1]);
		kept(at, 0, GB(1), 1);
		unmap(at, GB(1));
	}
}

/* A pipe has pages of a file that was cut off. */
static void pins(void)
{
	for (enum kind k = first_kind(); k <= FS_1G; k++) {
		static char got[64 << 10];
		struct iovec vec;
		uint64_t splits;
		int fd[2];
		char *at;

		make(k, GB(1));
		at = map();
		put(at, 0, GB(1), 1);
		splits = value("splits_1g");
		CHECK_OK(pipe(fd));
		vec = (struct iovec){ at + 77 * SLOT, 8 * PAGE };
		CHECK_EQ(vmsplice(fd[1], &vec, 1, 0), 8 * PAGE);
		expect_more("splits_1g", splits, 0);
		unmap(at, GB(1));
		CHECK_OK(ftruncate(memory.id, 0));
		CHECK_OK(ftruncate(memory.id, (off_t)GB(1)));
		at = mmap(NULL, GB(1), RW, MAP_SHARED, memory.id, 0);
		CHECK(at != MAP_FAILED);
		put(at, 0, GB(1), 3);
		CHECK_EQ(read(fd[0], got, sizeof(got)), 8 * PAGE);
		kept(got - 77 * SLOT, 77 * SLOT, 77 * SLOT + 8 * PAGE, 1);
		unmap(at, GB(1));
		close(fd[0]);
		close(fd[1]);
		drop();
	}
}

static void joined_again(void)
{
	EACH_KIND(GB(1)) {
		char *at = map();
		uint64_t joins = value("joins_1g"), splits = value("splits_1g");
		struct vma vma;

		put(at, 0, GB(1), 1);
		CHECK(vma_at(at, &vma));
		shell("cat /proc/%d/smaps >/dev/null", getpid());
		expect_more("splits_1g", splits, 1);
		await_more("joins_1g", joins, 1);
		CHECK_TOUCH(at, GB(1));
		kept(at, 0, GB(1), 1);
		unmap(at, GB(1));
	}
}

/* ---- A mount with pagesize=1G -------------------------------------------------------------- */

/* What programs that look for huge pages find, and what mmap(2) promises them. */
static void as_hugetlbfs(void)
{
	struct statfs fs;
	struct stat st;
	uint64_t before;
	char *at;
	int fd;

	if (!mounts_1g())
		SKIP("no mount with pagesize=1G");
	make(FS_1G, 0);
	fd = memory.id;
	CHECK_OK(statfs(fs_dir(), &fs));
	CHECK_EQ(fs.f_type, 0x958458f6);
	CHECK_EQ(fs.f_bsize, GB(1));
	CHECK_EQ(fs.f_blocks, 3);
	CHECK_OK(fstat(fd, &st));
	CHECK_EQ(st.st_blksize, SLOT);
	CHECK_OK(mount("none", fs_dir(), NULL, MS_REMOUNT, "size=3G,pagesize=1G"));
	CHECK_ERR(mount("none", fs_dir(), NULL, MS_REMOUNT, "pagesize=2M"), EINVAL);
	CHECK_ERR(mount("none", fs_dir(), "hpmmap", 0, "pagesize=4M"), EINVAL);
	/* Larger than the mount, then than the file. */
	CHECK_ERR(mmap(NULL, GB(4), RW, MAP_SHARED, fd, 0), ENOMEM);
	CHECK_OK(fstat(fd, &st));
	CHECK_EQ(st.st_size, 0);
	before = value("entries_1g");
	at = mmap(NULL, GB(1), RW, MAP_SHARED, fd, 0);
	CHECK_OK(at);
	CHECK_OK(fstat(fd, &st));
	CHECK_EQ(st.st_size, GB(1));
	expect_more("entries_1g", before, 1);
	CHECK_TOUCH(at, GB(1));
	unmap(at, GB(1));
	/* Copies would be ordinary memory. */
	CHECK_ERR(mmap(NULL, GB(1), RW, MAP_PRIVATE, fd, 0), EOPNOTSUPP);
	/* One that only reads does not make it larger. */
	at = mmap(NULL, GB(2), PROT_READ, MAP_SHARED, fd, 0);
	CHECK_OK(at);
	CHECK_EQ(at[0], 0);
	CHECK_EQ(probe_read(at + GB(1)).sig, SIGBUS);
	unmap(at, GB(2));
	drop();
}

/* Memory that was written to and given back a moment ago is contiguous, too. */
static void again_and_again(void)
{
	for (int i = 0; i < 4; i++) {
		char *at;

		make(FS_1G, GB(1));
		at = map();
		verify_zero(at, MB(4));
		put(at, 0, GB(1), 1);
		unmap(at, GB(1));
		drop();
	}
}

static void *read_event(void *arg)
{
	struct uffd_msg msg;

	CHECK_EQ(read(*(int *)arg, &msg, sizeof(msg)), sizeof(msg));
	CHECK_EQ(msg.event, UFFD_EVENT_FORK);
	close((int)msg.arg.fork.ufd);
	return NULL;
}

/* What a userfaultfd protects a child gets with its page tables. */
static void registered_beside_a_child(void)
{
	pthread_t reader;
	char *at;
	pid_t pid;
	int fd;

	make(MEMFD, GB(1));
	at = map();
	put(at, 0, GB(1), 1);
	fd = uffd_open(UFFD_FEATURE_WP_ASYNC | UFFD_FEATURE_EVENT_FORK);
	if (fd < 0 || uffd_register(fd, at, GB(1), UFFDIO_REGISTER_MODE_WP))
		SKIP("no userfaultfd for such memory");
	reader = start_thread(read_event, &fd);
	pid = fork_child();
	if (!pid) {
		kept(at, 0, GB(1), 1);
		put(at, 0, MB(100), 2);
		_exit(0);
	}
	join_thread(reader);
	expect_success(pid);
	kept(at, 0, MB(100), 2);
	kept(at, MB(100), GB(1), 1);
	close(fd);
	unmap(at, GB(1));
	drop();
}

/* ---- Windows ---------------------------------------------------------------------------- */

enum { WRITE = 1, HOLE, READ_ONLY, FORK, LEAVE };

static void target(int fd, int answer)
{
	char *p = mmap((void *)TB(16), GB(1), RW, ANON | MAP_FIXED_NOREPLACE, -1, 0);
	xpmem_segid_t id;
	char what;
	pid_t pid;

	CHECK(p != MAP_FAILED);
	put(p, 0, GB(1), 1);
	id = xpmem_make(p, GB(1), XPMEM_PERMIT_MODE, (void *)0600);
	CHECK_OK(id);
	CHECK_EQ(write(answer, &id, sizeof(id)), sizeof(id));
	while (read(fd, &what, 1) == 1 && what != LEAVE) {
		if (what == WRITE)
			put(p, MB(512), GB(1), 2);
		else if (what == HOLE)
			unmap(p + MB(64), MB(2));
		else if (what == READ_ONLY)
			CHECK_OK(mprotect(p, MB(32), PROT_READ));
		if (what == FORK) {
			pid = fork_child();
			if (!pid) {
				kept(p, MB(66), MB(512), 3);
				_exit(0);
			}
			put(p, MB(512), GB(1), 4);
			expect_success(pid);
		}
		tell(answer);
	}
	_exit(0);
}

static void request(int fd, int answer, char what)
{
	CHECK_EQ(write(fd, &what, 1), 1);
	await(answer);
}

static void windows(void)
{
	uint64_t before, splits;
	struct xpmem_addr from = { 0 };
	xpmem_segid_t id;
	int to[2], back[2];
	char *at, leave = LEAVE;
	pid_t pid;

	if (access("/dev/xpmem", R_OK | W_OK))
		SKIP("no /dev/xpmem");
	await_clean();
	CHECK_OK(pipe(to));
	CHECK_OK(pipe(back));
	pid = fork_child();
	if (!pid)
		target(to[0], back[1]);
	CHECK_EQ(read(back[0], &id, sizeof(id)), sizeof(id));
	from.apid = xpmem_get(id, XPMEM_RDWR, XPMEM_PERMIT_MODE, NULL);
	CHECK_OK(from.apid);
	before = value("joins_1g");
	at = xpmem_attach(from, GB(1), NULL);
	CHECK_OK(at);
	CHECK_EQ(*(volatile uint64_t *)(void *)at, word(0, 1));
	await_more("joins_1g", before, 1);
	CHECK_TOUCH(at, GB(1));
	splits = value("splits_1g");
	kept(at, 0, GB(1), 1);
	request(to[1], back[0], WRITE);
	kept(at, MB(512), GB(1), 2);
	put(at, 0, MB(512), 3);
	expect_more("splits_1g", splits, 0);
	request(to[1], back[0], HOLE);
	CHECK_EQ(probe_read(at + MB(65)).sig, SIGBUS);
	kept(at, 0, MB(64), 3);
	kept(at, MB(66), MB(512), 3);
	request(to[1], back[0], READ_ONLY);
	CHECK_EQ(probe_write(at + MB(5)).sig, SIGBUS);
	kept(at, 0, MB(64), 3);
	request(to[1], back[0], FORK);
	kept(at, MB(512), GB(1), 4);
	kept(at, MB(66), MB(512), 3);
	CHECK_EQ(write(to[1], &leave, 1), 1);
	expect_success(pid);
	CHECK_EQ(probe_read(at + MB(700)).sig, SIGBUS);
	CHECK_OK(xpmem_detach(at));
	CHECK_OK(xpmem_release(from.apid));
}

int main(void)
{
	static const struct test tests[] = {
		T(anonymous),
		T(parts),
		T(all_of_it),
		T(moves),
		T(cut_files),
		T(others_read_and_write),
		T(ends),
		T(released),
		T(pins),
		T(joined_again),
		T(as_hugetlbfs),
		T(again_and_again),
		T(registered_beside_a_child),
		T(windows),
	};

	return getenv("HPMMAP_TEST_ONLY") ? RUN_GROUP("sem_gigabyte_files", tests) :
					    run_each(tests, ARRAY_SIZE(tests));
}
