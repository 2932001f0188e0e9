// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that is shared: by files, natively of tmpfs and under HPMMAP of hpmmapfs, by memfds, by mappings
 * without a file, by System V's segments.
 */
#include "conf.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define HPMMAPFS	0x48504d46

/* How the arena is made. */
enum kind { A_FILE, A_MEMFD, ANONYMOUS, SYSTEM_V };

/* The scenario has mounted it; natively it is Linux's. */
static int open_file(struct run *r)
{
	const char *dir = getenv("HPMMAP_CONFORMANCE_DIR");
	struct statfs fs;
	char path[128];
	int fd;

	if (!registered() || !dir)
		return memfd_create("arena", MFD_CLOEXEC);
	snprintf(path, sizeof(path), "%s/%d", dir, getpid());
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || unlink(path) != 0 || fstatfs(fd, &fs) != 0)
		say("%s: %s", path, errno_name(errno));
	else if (fs.f_type != HPMMAPFS)
		say("%s is not hpmmapfs", path);
	(void)r;
	return fd;
}

/* All units of it shared, and filled. Returns the file, or -1 where there is none. */
static int share(struct run *r, enum kind kind)
{
	size_t len = r->units * r->unit;
	int fd = -1, id;

	switch (kind) {
	case A_FILE:
	case A_MEMFD:
		fd = kind == A_FILE ? open_file(r) : memfd_create("arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		if (fd < 0 || ftruncate(fd, (off_t)len) != 0)
			say("file: %s", errno_name(errno));
		at(r, "mmap", mmap(r->base, len, RW, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0));
		break;
	case ANONYMOUS:
		at(r, "mmap", mmap(r->base, len, RW, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
		break;
	case SYSTEM_V:
		id = shmget(IPC_PRIVATE, len, IPC_CREAT | 0600);
		at(r, "shmat", shmat(id, r->base, 0));
		ret("rmid", shmctl(id, IPC_RMID, NULL));
		break;
	}
	fill_pages(r, r->base, len, 0);
	return fd;
}

/* One case for each kind. */
#define EACH(name_, units_, flags_)					\
	static void each_##name_(struct run *r, enum kind kind);	\
	CASE(shared_file, name_, units_, (flags_) | BARE)		\
	{								\
		each_##name_(r, A_FILE);				\
	}								\
	CASE(shared_memfd, name_, units_, (flags_) | BARE)		\
	{								\
		each_##name_(r, A_MEMFD);				\
	}								\
	CASE(shared_anonymous, name_, units_, (flags_) | BARE)		\
	{								\
		each_##name_(r, ANONYMOUS);				\
	}								\
	CASE(shared_system_v, name_, units_, (flags_) | BARE)		\
	{								\
		each_##name_(r, SYSTEM_V);				\
	}								\
	static void each_##name_(struct run *r, enum kind kind)

EACH(written_by_a_child, 3, 0)
{
	pid_t pid;

	share(r, kind);
	pid = sub_process();
	if (pid == 0) {
		fill_pages(r, U(r, 1), r->unit, 100);
		if (fork() == 0) {
			fill_pages(r, U(r, 2), r->unit, 200);
			_exit(0);
		}
		wait(NULL);
		content(r, r->base, r->unit * 3);
		_exit(0);
	}
	ended("sub", pid);
	content(r, r->base, r->unit * 3);
}

EACH(protected, 4, 0)
{
	share(r, kind);
	ret("read", mprotect(U(r, 1), r->unit, PROT_READ));
	ret("none", mprotect(U(r, 2), r->unit, PROT_NONE));
	maps(r, r->base, r->unit * 4);
	try("first", U(r, 1) - 1, "rw");
	try("read", U(r, 1), "rw");
	try("none", U(r, 2), "rw");
	try("last", U(r, 3), "rw");
	ret("all", mprotect(r->base, r->unit * 4, RW));
	try("again", U(r, 2), "rw");
	maps(r, r->base, r->unit * 4);
}

EACH(cut, 4, 0)
{
	int fd = share(r, kind);

	ret("munmap", munmap(U(r, 1), r->unit * 2));
	maps(r, r->base, r->unit * 4);
	content(r, r->base, r->unit * 4);
	try("hole", U(r, 1), "r");
	if (fd >= 0) {
		at(r, "again", mmap(U(r, 1), r->unit, RW, MAP_SHARED | MAP_FIXED, fd, (off_t)r->unit * 2));
		content(r, r->base, r->unit * 4);
	}
	at(r, "private", map(U(r, 2), r->unit, RW, MAP_FIXED));
	content(r, r->base, r->unit * 4);
	ret("munmap", munmap(r->base, r->unit * 4));
}

EACH(moved, 4, 0)
{
	share(r, kind);
	at(r, "move", mremap(r->base, r->unit * 4, r->unit * 4, MREMAP_MAYMOVE | MREMAP_FIXED, spot(r, 0)));
	content(r, spot(r, 0), r->unit * 4);
	try("old", r->base, "r");
	at(r, "middle", mremap(spot(r, 0) + r->unit, r->unit, r->unit, MREMAP_MAYMOVE | MREMAP_FIXED, r->base));
	content(r, r->base, r->unit);
	content(r, spot(r, 0), r->unit * 4);
	at(r, "shrink", mremap(spot(r, 0) + r->unit * 2, r->unit * 2, r->unit, 0));
	content(r, spot(r, 0), r->unit * 4);
	/* One more mapping of the same. */
	at(r, "twice", mremap(r->base, 0, r->unit, MREMAP_MAYMOVE | MREMAP_FIXED, U(r, 6)));
	fill_pages(r, U(r, 6), r->unit, 60);
	content(r, r->base, r->unit);
}

EACH(grown, 2, 0)
{
	share(r, kind);
	at(r, "grow", mremap(r->base, r->unit * 2, r->unit * 4, MREMAP_MAYMOVE | MREMAP_FIXED, spot(r, 0)));
	maps(r, spot(r, 0), r->unit * 4);
	content(r, spot(r, 0), r->unit * 4);
	try("behind", spot(r, 0) + r->unit * 2, "rw");
}

EACH(advised, 4, 0)
{
	pid_t pid;

	share(r, kind);
	ret("dontneed", madvise(U(r, 0), r->unit * 4, MADV_DONTNEED));
	content(r, r->base, r->unit * 4);
	ret("remove", madvise(U(r, 1), r->unit, MADV_REMOVE));
	content(r, r->base, r->unit * 4);
	ret("free", madvise(U(r, 0), r->unit, MADV_FREE));
	ret("wipeonfork", madvise(U(r, 0), r->unit, MADV_WIPEONFORK));
	ret("cold", madvise(U(r, 0), r->unit, MADV_COLD));
	ret("pageout", madvise(U(r, 0), r->unit, MADV_PAGEOUT));
	ret("willneed", madvise(U(r, 0), r->unit * 4, MADV_WILLNEED));
	ret("populate", madvise(U(r, 0), r->unit * 4, MADV_POPULATE_WRITE));
	ret("dontfork", madvise(U(r, 2), r->unit, MADV_DONTFORK));
	pid = sub_process();
	if (pid == 0) {
		content(r, r->base, r->unit * 4);
		try("not", U(r, 2), "r");
		_exit(0);
	}
	ended("sub", pid);
	content(r, r->base, r->unit * 4);
}

EACH(locked, 3, 0)
{
	share(r, kind);
	ret("mlock", mlock(U(r, 1), r->unit));
	say("locked=%s", in_units(r, (long)smaps_locked(r->base, r->unit * 3)));
	ret("munlock", munlock(U(r, 1), r->unit));
	say("locked=%s", in_units(r, (long)smaps_locked(r->base, r->unit * 3)));
	content(r, r->base, r->unit * 3);
	ret("msync", msync(r->base, r->unit * 3, MS_SYNC));
	ret("invalidate", msync(r->base, r->unit * 3, MS_INVALIDATE));
}

/* By the kernel, and by another process. */
EACH(read_into, 3, 0)
{
	struct iovec local, remote;
	size_t half = r->unit / 2;
	int fd[2];
	pid_t pid;

	share(r, kind);
	if (pipe(fd) != 0)
		return;
	ret("write", write(fd[1], U(r, 0), PAGE) - (long)PAGE);
	ret("read", read(fd[0], U(r, 1), PAGE) - (long)PAGE);
	content(r, r->base, r->unit * 3);
	pid = sub_process();
	if (pid == 0) {
		pause();
		_exit(0);
	}
	local = (struct iovec){ U(r, 0), half / PAGE ? half : PAGE };
	remote = (struct iovec){ U(r, 2), local.iov_len };
	ret("writev", process_vm_writev(pid, &local, 1, &remote, 1, 0) - (long)local.iov_len);
	content(r, r->base, r->unit * 3);
	kill(pid, SIGKILL);
	ended("sub", pid);
	close(fd[0]);
	close(fd[1]);
}

EACH(woken_by_a_child, 1, 0)
{
	struct timespec most = { .tv_sec = 60 };
	uint32_t *word;
	pid_t pid;

	share(r, kind);
	word = (uint32_t *)(void *)r->base;
	*word = 7;
	pid = sub_process();
	if (pid == 0) {
		__atomic_store_n(word, 8, __ATOMIC_SEQ_CST);
		while (syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0) == 0 &&
		       __atomic_load_n(word, __ATOMIC_SEQ_CST) != 9)
			usleep(1000);
		_exit(0);
	}
	while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == 7)
		if (syscall(SYS_futex, word, FUTEX_WAIT, 7, &most, NULL, 0) != 0 && errno != EAGAIN && errno != EINTR)
			say("futex=%s", errno_name(errno));
	__atomic_store_n(word, 9, __ATOMIC_SEQ_CST);
	ended("sub", pid);
	say("word=%u", *word);
}

EACH(limits, 2, ONCE)
{
	struct rlimit limit;

	getrlimit(RLIMIT_DATA, &limit);
	limit.rlim_cur = MB(1);
	ret("setrlimit", setrlimit(RLIMIT_DATA, &limit));
	/* Shared memory is no data. */
	share(r, kind);
	content(r, r->base, r->unit * 2);
	at(r, "private", map(U(r, 4), MB(2), RW, MAP_FIXED_NOREPLACE));
}

/* ---- With a file ---------------------------------------------------------------- */

#define WITH_FILE(name_, units_, flags_)				\
	static void with_##name_(struct run *r, enum kind kind);	\
	CASE(shared_file, name_, units_, (flags_) | BARE)		\
	{								\
		with_##name_(r, A_FILE);				\
	}								\
	CASE(shared_memfd, name_, units_, (flags_) | BARE)		\
	{								\
		with_##name_(r, A_MEMFD);				\
	}								\
	static void with_##name_(struct run *r, enum kind kind)

WITH_FILE(truncated, 4, 0)
{
	int fd = share(r, kind);

	ret("shrink", ftruncate(fd, (off_t)r->unit * 2));
	content(r, r->base, r->unit * 2);
	try("inside", U(r, 2) - 1, "rw");
	try("behind", U(r, 2), "rw");
	try("last", U(r, 4) - 1, "rw");
	ret("grow", ftruncate(fd, (off_t)r->unit * 4));
	content(r, U(r, 2), r->unit * 2);
	fill_pages(r, U(r, 3), r->unit, 30);
	content(r, U(r, 2), r->unit * 2);
	ret("in_a_page", ftruncate(fd, (off_t)r->unit * 3 + 5));
	try("its_page", U(r, 3) + PAGE - 1, "r");
	try("next_page", U(r, 3) + PAGE, "r");
	ret("none", ftruncate(fd, 0));
	try("nothing", U(r, 0), "rw");
}

WITH_FILE(punched, 4, 0)
{
	int fd = share(r, kind);

	ret("punch", fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)r->unit, (off_t)r->unit * 2));
	content(r, r->base, r->unit * 4);
	fill_pages(r, U(r, 2), r->unit, 20);
	content(r, r->base, r->unit * 4);
	ret("no_keep", fallocate(fd, FALLOC_FL_PUNCH_HOLE, 0, PAGE));
	ret("collapse", fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 0, (off_t)r->unit));
	ret("allocate", fallocate(fd, 0, 0, (off_t)r->unit * 5));
	say("size=%s", in_units(r, lseek(fd, 0, SEEK_END)));
}

WITH_FILE(private_copies, 4, 0)
{
	int fd = share(r, kind);
	char *p = spot(r, 0);
	pid_t pid;

	at(r, "private", mmap(p, r->unit * 4, RW, MAP_PRIVATE | MAP_FIXED_NOREPLACE, fd, 0));
	content(r, p, r->unit * 4);
	fill_pages(r, p + r->unit, r->unit, 10);
	content(r, p, r->unit * 4);
	content(r, r->base, r->unit * 4);
	pid = sub_process();
	if (pid == 0) {
		fill_pages(r, p + r->unit * 2, r->unit, 50);
		content(r, p, r->unit * 4);
		_exit(0);
	}
	ended("sub", pid);
	content(r, p, r->unit * 4);
	ret("dontneed", madvise(p, r->unit * 4, MADV_DONTNEED));
	content(r, p, r->unit * 4);
}

WITH_FILE(read_and_written, 3, 0)
{
	int fd = share(r, kind);

	/* From the mapping into the file behind it, and back. */
	ret("pwrite", pwrite(fd, U(r, 0), r->unit, (off_t)r->unit) - (long)r->unit);
	content(r, r->base, r->unit * 3);
	ret("pread", pread(fd, U(r, 2), r->unit, 0) - (long)r->unit);
	content(r, r->base, r->unit * 3);
	ret("beyond", pwrite(fd, U(r, 0), PAGE, (off_t)r->unit * 4) - (long)PAGE);
	say("size=%s", in_units(r, lseek(fd, 0, SEEK_END)));
	ret("end", pread(fd, U(r, 0), PAGE, (off_t)r->unit * 8));
}

WITH_FILE(errors, 1, ONCE)
{
	int fd = share(r, kind);

	at(r, "odd", mmap(NULL, PAGE, RW, MAP_SHARED, fd, 1));
	at(r, "no_length", mmap(NULL, 0, RW, MAP_SHARED, fd, 0));
	at(r, "sync", mmap(NULL, PAGE, RW, MAP_SHARED_VALIDATE | 0x80000, fd, 0));
	at(r, "growsdown", mmap(NULL, PAGE, RW, MAP_SHARED | MAP_GROWSDOWN, fd, 0));
	ret("negative", ftruncate(fd, -1));
	ret("no_length", fallocate(fd, 0, 0, 0));
	ret("before", lseek(fd, -1, SEEK_SET));
}

CASE(shared_memfd, sealed, 2, BARE | ONCE)
{
	int fd = share(r, A_MEMFD);

	ret("write", fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));
	ret("shrink", fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK));
	ret("shrinks", ftruncate(fd, (off_t)r->unit));
	ret("grows", ftruncate(fd, (off_t)r->unit * 3));
	ret("grow", fcntl(fd, F_ADD_SEALS, F_SEAL_GROW));
	ret("grows", ftruncate(fd, (off_t)r->unit * 4));
	ret("beyond", pwrite(fd, "x", 1, (off_t)r->unit * 4));
	ret("future", fcntl(fd, F_ADD_SEALS, 0x10 /* F_SEAL_FUTURE_WRITE */));
	try("old", r->base, "rw");
	at(r, "new", mmap(NULL, r->unit, RW, MAP_SHARED, fd, 0));
	at(r, "only_read", mmap(NULL, r->unit, PROT_READ, MAP_SHARED, fd, 0));
	ret("pwrite", pwrite(fd, "x", 1, 0));
	ret("punch", fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE));
	ret("munmap", munmap(r->base, r->unit * 2));
	ret("seal", fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL));
	ret("again", fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK));
	say("seals=%#x", (unsigned int)fcntl(fd, F_GET_SEALS));
}

/* ---- System V -------------------------------------------------------------------- */

CASE(shared_system_v, attached_twice, 2, BARE)
{
	int id = shmget(IPC_PRIVATE, r->unit * 2, IPC_CREAT | 0600);
	struct shmid_ds ds;

	at(r, "shmat", shmat(id, r->base, 0));
	at(r, "twice", shmat(id, spot(r, 0), SHM_RDONLY));
	fill_pages(r, r->base, r->unit * 2, 4);
	content(r, spot(r, 0), r->unit * 2);
	try("read_only", spot(r, 0), "rw");
	ret("writable", mprotect(spot(r, 0), r->unit, RW));
	ret("stat", shmctl(id, IPC_STAT, &ds));
	say("nattch=%lu size=%s", (unsigned long)ds.shm_nattch, in_units(r, (long)ds.shm_segsz));
	ret("shmdt", shmdt(spot(r, 0)));
	ret("not_there", shmdt(spot(r, 0)));
	at(r, "odd", shmat(id, r->base + r->unit * 4 + 8, 0));
	at(r, "taken", shmat(id, r->base, 0));
	at(r, "remap", shmat(id, r->base, SHM_REMAP));
	content(r, r->base, r->unit * 2);
	ret("rmid", shmctl(id, IPC_RMID, NULL));
	content(r, r->base, r->unit * 2);
	ret("munmap", munmap(r->base, r->unit));
	content(r, U(r, 1), r->unit);
	ret("shmdt", shmdt(r->base));
	ret("gone", shmctl(id, IPC_STAT, &ds));
}

CASE(shared_system_v, inherited, 2, BARE)
{
	int id = shmget(IPC_PRIVATE, r->unit * 2, IPC_CREAT | 0600);
	struct shmid_ds ds;
	pid_t pid;

	at(r, "shmat", shmat(id, r->base, 0));
	pid = sub_process();
	if (pid == 0) {
		shmctl(id, IPC_STAT, &ds);
		say("nattch=%lu", (unsigned long)ds.shm_nattch);
		fill_pages(r, r->base, r->unit * 2, 9);
		ret("shmdt", shmdt(r->base));
		_exit(0);
	}
	ended("sub", pid);
	content(r, r->base, r->unit * 2);
	shmctl(id, IPC_STAT, &ds);
	say("nattch=%lu", (unsigned long)ds.shm_nattch);
	ret("shmdt", shmdt(r->base));
	shmctl(id, IPC_STAT, &ds);
	say("nattch=%lu", (unsigned long)ds.shm_nattch);
	ret("rmid", shmctl(id, IPC_RMID, NULL));
}

CASE(shared_system_v, errors, 1, BARE | ONCE)
{
	int id;

	ret("empty", shmget(IPC_PRIVATE, 0, IPC_CREAT | 0600));
	ret("missing", shmget(0x7357, r->unit, 0600));
	id = shmget(0x7357, r->unit, IPC_CREAT | IPC_EXCL | 0600);
	ret("exclusive", shmget(0x7357, r->unit, IPC_CREAT | IPC_EXCL | 0600));
	ret("larger", shmget(0x7357, r->unit * 2, 0600));
	ret("same", shmget(0x7357, r->unit, 0600) == id ? 0 : -1);
	ret("rmid", shmctl(id, IPC_RMID, NULL));
	ret("again", shmctl(id, IPC_RMID, NULL));
	ret("nothing", shmdt(r->base));
}
