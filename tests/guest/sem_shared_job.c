// SPDX-License-Identifier: GPL-2.0
/*
 * Shared memory without a name in a file system: mappings with MAP_SHARED and MAP_ANONYMOUS,
 * memfds, System V's segments. In a launch all of it is pool memory, unless the launch has
 * --shared linux.
 */
#include "shared.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static bool pools(void)
{
	const char *shared = getenv("HPMMAP_TEST_SHARED");

	return registered() && !(shared && strcmp(shared, "linux") == 0);
}

/* Free memory of the pools, where any of this comes from them. */
static uint64_t pool_free(void)
{
	return registered() ? pool_value("free_bytes") : 0;
}

/* So much has been taken from the pools, or nothing of it. */
static void expect_taken(uint64_t before, size_t bytes)
{
	uint64_t now = pool_free();

	if (!registered())
		return;
	if (pools() ? before - now < bytes : before > now && before - now >= bytes)
		FAIL("of %zu KB %lld KB come from the pools", bytes >> 10, (long long)(before - now) >> 10);
}

static void expect_back(uint64_t before)
{
	if (registered())
		await_pool_free(before - MB(4));
}

static void touch_eager(char *p, size_t len)
{
	check_eager(p, len);
	watch_begin();
	for (size_t at = 0; at < len; at += PAGE)
		*(volatile char *)(p + at) = p[at];
	EXPECT_EAGER(p, len);
}

/* ---- Without a file -------------------------------------------------------------- */

static void anonymous(void)
{
	uint64_t before = pool_free();
	struct vma vma;
	pid_t pid;
	char *p;

	p = map_flags(NULL, MB(8), RW, MAP_SHARED | MAP_ANONYMOUS);
	expect_taken(before, MB(8));
	touch_eager(p, MB(8));
	verify_zero(p, MB(8));
	CHECK(vma_at(p, &vma));
	CHECK_EQ(vma.perms[3], 's');
	if (strcmp(vma.name, "/dev/zero (deleted)") != 0)
		FAIL("it is called %s", vma.name);
	fill(p, MB(8), 1);
	pid = fork_child();
	if (pid == 0) {
		verify(p, MB(8), 1, 0);
		fill(p, MB(8), 2);
		if (fork_child() == 0) {
			fill(p + MB(4), MB(4), 3);
			_exit(0);
		}
		CHECK(wait(NULL) > 0);
		_exit(0);
	}
	expect_success(pid);
	verify(p, MB(4), 2, 0);
	verify(p + MB(4), MB(4), 3, 0);
	unmap(p + MB(2) + PAGE, MB(1));
	verify(p + MB(3) + PAGE, PAGE, 2, MB(3) + PAGE);
	unmap(p, MB(8));
	expect_back(before);
}

/* A block is too much for each, unless all that a job has is to come from the pools. */
static void small_ones(void)
{
	bool strict = pools() && context_value("strict") == 1;
	uint64_t before = pool_free();
	char *p[16];
	pid_t pid;

	for (int i = 0; i < 16; i++) {
		p[i] = map_flags(NULL, KB(256), RW, MAP_SHARED | MAP_ANONYMOUS);
		fill(p[i], KB(256), i);
	}
	if (pools())
		CHECK_EQ(before - pool_free() >= MB(32), strict);
	pid = fork_child();
	if (pid == 0) {
		verify(p[3], KB(256), 3, 0);
		fill(p[3], KB(256), 99);
		_exit(0);
	}
	expect_success(pid);
	verify(p[3], KB(256), 99, 0);
	for (int i = 0; i < 16; i++)
		unmap(p[i], KB(256));
}

/* A child has it for longer. */
static void outlives_the_parent(void)
{
	char *p = map_flags(NULL, MB(4), RW, MAP_SHARED | MAP_ANONYMOUS);
	pid_t pid = fork_child();

	if (pid == 0) {
		pid_t child = fork_child();

		if (child == 0) {
			/* Whoever has forked it has gone. */
			while (getppid() != 1 && !p[PAGE])
				usleep(1000);
			while (!p[PAGE])
				usleep(1000);
			fill(p + MB(2), MB(2), 5);
			__atomic_store_n(p, 1, __ATOMIC_SEQ_CST);
			_exit(0);
		}
		_exit(0);
	}
	expect_success(pid);
	__atomic_store_n(p + PAGE, 1, __ATOMIC_SEQ_CST);
	for (int i = 0; !__atomic_load_n(p, __ATOMIC_SEQ_CST); i++) {
		if (i == 20000)
			FAIL("the grandchild does not write");
		usleep(1000);
	}
	verify(p + MB(2), MB(2), 5, 0);
	unmap(p, MB(4));
}

static void odd_ones(void)
{
	static const int flags[] = {
		0, MAP_NORESERVE, MAP_POPULATE, MAP_LOCKED, MAP_STACK,
	};
	char *room = free_range(MB(8)), *p;
	uint64_t before = pool_free();

	for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
		p = map_flags(NULL, MB(3) + PAGE, RW, MAP_SHARED | MAP_ANONYMOUS | flags[i]);
		verify_zero(p, MB(3) + PAGE);
		fill(p, MB(3), i);
		if (fork_child() == 0) {
			verify(p, MB(3), i, 0);
			p[MB(3)] = 7;
			_exit(0);
		}
		CHECK(wait(NULL) > 0);
		CHECK_EQ(p[MB(3)], 7);
		unmap(p, MB(3) + PAGE);
	}
	/* Where something is already, and at no multiple of anything. */
	map_flags(room, MB(8), RW, ANON | MAP_FIXED_NOREPLACE);
	fill(room, MB(8), 1);
	p = map_flags(room + MB(1) + PAGE, MB(4), RW, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED);
	verify_zero(p, MB(4));
	fill(p, MB(4), 2);
	verify(room, MB(1) + PAGE, 1, 0);
	verify(p + MB(4), MB(3) - PAGE, 1, MB(5) + PAGE);
	unmap(room, MB(8));
	p = map_flags(NULL, MB(2), PROT_NONE, MAP_SHARED | MAP_ANONYMOUS);
	CHECK_READ_SEGV(p, SEGV_ACCERR);
	CHECK_OK(mprotect(p, MB(2), RW));
	verify_zero(p, MB(2));
	unmap(p, MB(2));
	p = map_flags(NULL, MB(2), PROT_READ, MAP_SHARED | MAP_ANONYMOUS);
	verify_zero(p, MB(2));
	CHECK_WRITE_SEGV(p, SEGV_ACCERR);
	CHECK_OK(mprotect(p, MB(2), RW));
	fill(p, MB(2), 3);
	unmap(p, MB(2));
	CHECK_ERR(mmap(NULL, 0, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0), EINVAL);
	CHECK_ERR(mmap(NULL, SIZE_MAX - 5, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0), ENOMEM);
	CHECK_ERR(mmap(NULL, TB(200), RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0), ENOMEM);
	expect_back(before);
}

/* ---- Memfds ------------------------------------------------------------------------ */

static void memfds(void)
{
	char path[64], name[64], text[16];
	uint64_t before = pool_free();
	int fd, again;
	pid_t pid;
	char *p;

	fd = memfd_create("some name", MFD_CLOEXEC);
	CHECK_OK(fd);
	CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
	CHECK_EQ(size_of(fd), 0);
	CHECK_OK(ftruncate(fd, (off_t)MB(8)));
	expect_taken(before, MB(8));
	p = map_shared(fd, MB(8));
	touch_eager(p, MB(8));
	verify_zero(p, MB(8));
	fill(p, MB(8), 1);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	CHECK_OK(readlink(path, memset(name, 0, sizeof(name)), sizeof(name) - 1));
	if (strcmp(name, "/memfd:some name (deleted)") != 0)
		FAIL("it is called %s", name);
	/* Whom it is given to. */
	again = open(path, O_RDWR | O_CLOEXEC);
	CHECK_OK(again);
	verify_file(again, MB(1), MB(7), 1, MB(1));
	pid = fork_child();
	if (pid == 0) {
		unmap(p, MB(8));
		verify_file(fd, 0, MB(8), 1, 0);
		write_at(again, "child", 5, MB(6));
		_exit(0);
	}
	expect_success(pid);
	CHECK(memcmp(p + MB(6), "child", 5) == 0);
	close(fd);
	write_at(again, "grown", 5, MB(9));
	CHECK_EQ(size_of(again), MB(9) + 5);
	read_at(again, text, 5, MB(9));
	CHECK(memcmp(text, "grown", 5) == 0);
	CHECK_OK(fallocate(again, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)MB(1)));
	verify_zero(p, MB(1));
	close(again);
	verify(p + MB(1), MB(4), 1, MB(1));
	unmap(p, MB(8));
	expect_back(before);
}

static void seals(void)
{
	int fd = memfd_create("plain", MFD_CLOEXEC);
	char *p;

	CHECK_OK(fd);
	CHECK_EQ(fcntl(fd, F_GET_SEALS), F_SEAL_SEAL);
	CHECK_ERR(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), EPERM);
	close(fd);
	fd = memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	CHECK_OK(fd);
	CHECK_EQ(fcntl(fd, F_GET_SEALS), 0);
	CHECK_OK(ftruncate(fd, (off_t)MB(4)));
	p = map_shared(fd, MB(4));
	fill(p, MB(4), 1);
	CHECK_ERR(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), EBUSY);
	CHECK_OK(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW));
	CHECK_ERR(ftruncate(fd, (off_t)MB(2)), EPERM);
	CHECK_ERR(ftruncate(fd, (off_t)MB(6)), EPERM);
	unmap(p, MB(4));
	CHECK_OK(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));
	CHECK_ERR(pwrite(fd, "x", 1, 0), EPERM);
	CHECK_ERR(mmap(NULL, MB(4), RW, MAP_SHARED, fd, 0), EPERM);
	verify_file(fd, 0, MB(4), 1, 0);
	close(fd);
}

static void memfds_that_are_wrong(void)
{
	struct rlimit limit, old;
	char name[260];

	memset(name, 'n', sizeof(name));
	name[250] = '\0';
	CHECK_ERR(memfd_create(name, 0), EINVAL);
	name[249] = '\0';
	close(memfd_create(name, 0));
	CHECK_ERR(memfd_create("x", 0x800), EINVAL);
	CHECK_ERR(syscall(SYS_memfd_create, (char *)8, 0), EFAULT);
	CHECK_OK(getrlimit(RLIMIT_NOFILE, &old));
	limit = old;
	limit.rlim_cur = 3;
	CHECK_OK(setrlimit(RLIMIT_NOFILE, &limit));
	CHECK_ERR(memfd_create("x", 0), EMFILE);
	CHECK_OK(setrlimit(RLIMIT_NOFILE, &old));
}

/* The file of a descriptor. */
static ino_t file_of(int fd)
{
	struct stat st;

	CHECK_OK(fstat(fd, &st));
	return st.st_ino;
}

/*
 * More than the pools could ever have: of Linux, which gives it none before it is touched,
 * with --strict, too. An error where others have the file.
 */
static bool too_large(int fd)
{
	if (ftruncate(fd, (off_t)TB(1)) == 0)
		return true;
	CHECK(pools());
	CHECK_EQ(errno, ENOSPC);
	CHECK_EQ(size_of(fd), 0);
	return false;
}

/* Too large for the pools: of whom others have all have the same file then. */
static void too_large_for_the_pools(void)
{
	int fd, again, flags;
	char path[64], *p;

	fd = memfd_create("mine", MFD_CLOEXEC);
	CHECK_OK(fd);
	CHECK_OK(fcntl(fd, F_SETFL, O_APPEND));
	CHECK(too_large(fd));
	CHECK_EQ(size_of(fd), TB(1));
	CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
	flags = fcntl(fd, F_GETFL);
	CHECK_EQ(flags & (O_APPEND | O_ACCMODE), O_APPEND | O_RDWR);
	p = mmap(NULL, MB(2), RW, MAP_SHARED, fd, MB(512 << 10) - PAGE);
	CHECK(p != MAP_FAILED);
	fill(p, MB(2), 1);
	verify(p, MB(2), 1, 0);
	unmap(p, MB(2));
	CHECK_OK(ftruncate(fd, 0));
	CHECK_EQ(write(fd, "text", 4), 4);
	CHECK_EQ(size_of(fd), 4);
	close(fd);
	fd = memfd_create("by two", 0);
	CHECK_OK(fd);
	again = dup(fd);
	CHECK_OK(again);
	too_large(fd);
	CHECK_EQ(file_of(fd), file_of(again));
	close(again);
	close(fd);
	/* Opened once more, it is another description of the same file. */
	fd = memfd_create("opened", 0);
	CHECK_OK(fd);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, O_RDWR | O_CLOEXEC);
	CHECK_OK(again);
	too_large(fd);
	CHECK_EQ(file_of(fd), file_of(again));
	CHECK_EQ(size_of(fd), size_of(again));
	close(again);
	close(fd);
}

/* What was set of a memfd before it has a size holds afterwards, whoever's memory it is. */
static void set_before_the_size(void)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	int fd = memfd_create("set", 0);
	struct stat st;
	pid_t pid;

	CHECK_OK(fd);
	CHECK_OK(fchmod(fd, 0640));
	CHECK_EQ(lseek(fd, 5, SEEK_SET), 5);
	CHECK_OK(fcntl(fd, F_SETFL, O_NONBLOCK));
	too_large(fd);
	CHECK_OK(fstat(fd, &st));
	CHECK_EQ(st.st_mode & 07777, 0640);
	CHECK_EQ(lseek(fd, 0, SEEK_CUR), 5);
	CHECK_EQ(fcntl(fd, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
	close(fd);
	fd = memfd_create("locked", 0);
	CHECK_OK(fd);
	CHECK_OK(fcntl(fd, F_SETLK, &lock));
	too_large(fd);
	pid = fork_child();
	if (pid == 0) {
		CHECK_OK(fcntl(fd, F_GETLK, &lock));
		CHECK_EQ(lock.l_type, F_WRLCK);
		_exit(0);
	}
	expect_success(pid);
	close(fd);
}

/*
 * Somebody goes through the inodes of all file systems while the last memfds there are go: he may
 * have the last reference to one. Whoever closes them comes in between as often as possible.
 */
static void gone_while_looked_at(void)
{
	enum { MANY = 2000, ROUNDS = 40 };
	const struct sched_param first = { .sched_priority = 1 }, other = { 0 };
	int caches = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);
	struct rlimit limit, old;
	static int fds[MANY];
	cpu_set_t all, one;
	pid_t pid;
	int i;

	if (caches < 0)
		SKIP("drop_caches: %s", errno_name(errno));
	/* It is not to be told of in the log each time. */
	CHECK_EQ(write(caches, "4", 1), 1);
	/* Fewer others. */
	CHECK_EQ(pwrite(caches, "3", 1, 0), 1);
	CHECK_OK(getrlimit(RLIMIT_NOFILE, &old));
	limit = (struct rlimit) { MANY + 100, old.rlim_max > MANY + 100 ? old.rlim_max : MANY + 100 };
	CHECK_OK(setrlimit(RLIMIT_NOFILE, &limit));
	CPU_ZERO(&one);
	CPU_SET(0, &one);
	CHECK_OK(sched_getaffinity(0, sizeof(all), &all));
	CHECK_OK(sched_setaffinity(0, sizeof(one), &one));
	pid = fork_child();
	if (pid == 0)
		for (;;)
			CHECK_EQ(pwrite(caches, "1", 1, 0), 1);
	CHECK_OK(sched_setscheduler(0, SCHED_FIFO, &first));
	for (int round = 0; round < ROUNDS; round++) {
		for (i = 0; i < MANY; i++)
			CHECK_OK(fds[i] = memfd_create("many", MFD_CLOEXEC));
		usleep((useconds_t)(round * 7919 % 40000));
		for (i = 0; i < MANY; i++)
			close(fds[i]);
		/* There are no others before he comes to that reference. */
		usleep(40000);
	}
	CHECK_OK(sched_setscheduler(0, SCHED_OTHER, &other));
	CHECK_OK(sched_setaffinity(0, sizeof(all), &all));
	CHECK_OK(kill(pid, SIGKILL));
	for (i = 0; waitpid(pid, NULL, WNOHANG) == 0; i++) {
		if (i == 3000)
			FAIL("who goes through the inodes does not end");
		usleep(10000);
	}
	CHECK_OK(setrlimit(RLIMIT_NOFILE, &old));
	close(caches);
}

/* A program that has no other place than that runs. */
static void executed(void)
{
	int from = open("/bin/true", O_RDONLY | O_CLOEXEC), fd = memfd_create("program", MFD_CLOEXEC);
	static char piece[KB(64)];
	int to_parent[2], to_child[2];
	ssize_t n;
	pid_t pid;

	CHECK_OK(from);
	CHECK_OK(fd);
	CHECK_OK(pipe2(to_parent, O_CLOEXEC));
	CHECK_OK(pipe2(to_child, O_CLOEXEC));
	while ((n = read(from, piece, sizeof(piece))) > 0)
		CHECK_EQ(write(fd, piece, (size_t)n), n);
	close(from);
	pid = fork_child();
	if (pid == 0) {
		char path[32], *argv[] = { "program", NULL };
		int read_only;

		/* As long as somebody may write to it, it is busy. */
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		read_only = open(path, O_RDONLY | O_CLOEXEC);
		CHECK_OK(read_only);
		CHECK_ERR(fexecve(read_only, argv, environ), ETXTBSY);
		_exit(0);
	}
	expect_success(pid);
	pid = fork_child();
	if (pid == 0) {
		char path[32], *argv[] = { "program", NULL };
		int read_only;

		snprintf(path, sizeof(path), "/proc/%d/fd/%d", getppid(), fd);
		read_only = open(path, O_RDONLY | O_CLOEXEC);
		CHECK_OK(read_only);
		close(fd);
		tell(to_parent[1]);
		await(to_child[0]);
		fexecve(read_only, argv, environ);
		FAIL("fexecve: %s", errno_name(errno));
	}
	await(to_parent[0]);
	close(fd);
	tell(to_child[1]);
	expect_success(pid);
	for (int i = 0; i < 2; i++) {
		close(to_parent[i]);
		close(to_child[i]);
	}
}

/* ---- System V ------------------------------------------------------------------------- */

static void segments(void)
{
	uint64_t before = pool_free();
	struct shmid_ds ds;
	pid_t pid;
	char *p, *q;
	int id;

	id = shmget(IPC_PRIVATE, MB(8), IPC_CREAT | 0600);
	CHECK_OK(id);
	expect_taken(before, MB(8));
	p = shmat(id, NULL, 0);
	CHECK_OK(p);
	touch_eager(p, MB(8));
	verify_zero(p, MB(8));
	fill(p, MB(8), 1);
	q = shmat(id, NULL, SHM_RDONLY);
	CHECK_OK(q);
	verify(q, MB(8), 1, 0);
	CHECK_WRITE_SEGV(q, SEGV_ACCERR);
	CHECK_OK(shmctl(id, SHM_LOCK, NULL));
	CHECK_OK(shmctl(id, SHM_UNLOCK, NULL));
	CHECK_OK(shmctl(id, IPC_STAT, &ds));
	CHECK_EQ(ds.shm_nattch, 2);
	CHECK_EQ(ds.shm_segsz, MB(8));
	pid = fork_child();
	if (pid == 0) {
		CHECK_OK(shmdt(p));
		CHECK_OK(shmdt(q));
		CHECK_READ_SEGV(p, SEGV_MAPERR);
		q = shmat(id, p, 0);
		CHECK(q == p);
		fill(q, MB(8), 2);
		_exit(0);
	}
	expect_success(pid);
	verify(p, MB(8), 2, 0);
	CHECK_OK(shmctl(id, IPC_RMID, NULL));
	verify(q, MB(8), 2, 0);
	CHECK_OK(shmdt(q));
	CHECK_OK(shmdt(p));
	CHECK_ERR(shmctl(id, IPC_STAT, &ds), EINVAL);
	CHECK_ERR(shmdt(p), EINVAL);
	expect_back(before);
}

/* Found by its key; its size is that of who has made it. */
static void keys(void)
{
	key_t key = 0x48500000 | getpid();
	int id = shmget(key, MB(3), IPC_CREAT | IPC_EXCL | 0600);

	CHECK_OK(id);
	CHECK_ERR(shmget(key, MB(3), IPC_CREAT | IPC_EXCL | 0600), EEXIST);
	CHECK_EQ(shmget(key, MB(1), 0), id);
	CHECK_EQ(shmget(key, MB(3), IPC_CREAT), id);
	CHECK_ERR(shmget(key, MB(4), 0), EINVAL);
	CHECK_ERR(shmget(key + 1, MB(1), 0), ENOENT);
	CHECK_ERR(shmget(IPC_PRIVATE, 0, IPC_CREAT), EINVAL);
	CHECK_OK(shmctl(id, IPC_RMID, NULL));
}

/* Made by a process that has gone. */
static void outlives_its_maker(void)
{
	uint64_t before = pool_free();
	int fd[2], id;
	pid_t pid;
	char *p;

	CHECK_OK(pipe(fd));
	pid = fork_child();
	if (pid == 0) {
		id = shmget(IPC_PRIVATE, MB(4), IPC_CREAT | 0600);
		CHECK_OK(id);
		p = shmat(id, NULL, 0);
		CHECK_OK(p);
		fill(p, MB(4), 9);
		CHECK_EQ(write(fd[1], &id, sizeof(id)), sizeof(id));
		_exit(0);
	}
	expect_success(pid);
	CHECK_EQ(read(fd[0], &id, sizeof(id)), sizeof(id));
	expect_taken(before, MB(4));
	p = shmat(id, NULL, 0);
	CHECK_OK(p);
	verify(p, MB(4), 9, 0);
	CHECK_OK(shmdt(p));
	CHECK_OK(shmctl(id, IPC_RMID, NULL));
	expect_back(before);
	close(fd[0]);
	close(fd[1]);
}

/* Asked for in huge pages, of which there are none. */
static void huge_segments(void)
{
	CHECK_ERR(shmget(IPC_PRIVATE, MB(4), IPC_CREAT | SHM_HUGETLB | 0600), ENOMEM);
}

/* Over memory of the process's own, which in a job is of the pools. */
static void attached_over_others(void)
{
	char *room = map_flags(free_range(MB(8)), MB(8), RW, ANON | MAP_FIXED_NOREPLACE), *p;
	int id = shmget(IPC_PRIVATE, MB(2), IPC_CREAT | 0600);

	CHECK_OK(id);
	fill(room, MB(8), 1);
	CHECK_ERR(shmat(id, room + MB(2), 0), EINVAL);
	p = shmat(id, room + MB(2), SHM_REMAP);
	CHECK(p == room + MB(2));
	verify_zero(p, MB(2));
	fill(p, MB(2), 2);
	verify(room, MB(2), 1, 0);
	verify(room + MB(4), MB(4), 1, MB(4));
	CHECK_OK(shmdt(p));
	CHECK_OK(shmctl(id, IPC_RMID, NULL));
	verify(room, MB(2), 1, 0);
	verify(room + MB(4), MB(4), 1, MB(4));
	unmap(room, MB(8));
}

int main(void)
{
	static const struct test tests[] = {
		T(anonymous),
		T(small_ones),
		T(outlives_the_parent),
		T(odd_ones),
		T(memfds),
		T(seals),
		T(memfds_that_are_wrong),
		T(too_large_for_the_pools),
		T(set_before_the_size),
		T(gone_while_looked_at),
		T(executed),
		T(segments),
		T(keys),
		T(outlives_its_maker),
		T(huge_segments),
		T(attached_over_others),
	};

	/* What shared.h promises of hpmmapfs holds for what is of the pools. */
	if (setenv("HPMMAP_TEST_FS", pools() ? "hpmmap" : "tmpfs", 1) != 0)
		return 1;
	return RUN_GROUP("sem_shared_job", tests);
}
