// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Tables: the ranks of a host find each other in shared memory.
 *
 * The first rank makes the table under the job's name. The last one to join removes the name, and so does
 * a rank that gives up. If signals end all ranks that have joined before the last one comes, the name
 * stays. Such a table is a leftover: the next job of that name makes it anew. A rank without others needs no name.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

/* When a process began; 0: unknown. Handlers of signals may call it. */
static uint64_t start_of(pid_t pid)
{
	char path[32], text[512], *at;
	ssize_t nr;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	nr = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[nr < 0 ? 0 : nr] = '\0';
	/* It is the 22nd word. The second one ends with the last parenthesis. */
	at = strrchr(text, ')');
	for (int word = 2; at && word < 22; word++)
		at = strchr(at + 1, ' ');
	return at ? strtoull(at, NULL, 10) : 0;
}

/* A rank that was killed and that its launcher has not waited for yet has ended, too. */
static bool is_alive(const struct member *member)
{
	struct pollfd exits = { .events = POLLIN };
	uint64_t start;
	bool alive;

	if (member->state != MEMBER_HERE)
		return false;
	exits.fd = (int)syscall(SYS_pidfd_open, member->pid, 0);
	if (exits.fd < 0)
		return errno != ESRCH;
	alive = poll(&exits, 1, 0) == 0;
	close(exits.fd);
	if (!alive)
		return false;
	/* Another process may have its number now. */
	start = start_of(member->pid);
	return !start || !member->start || start == member->start;
}

int table_missing(struct table *table)
{
	for (uint32_t i = 0; i < table->size; i++)
		if (table->member[i].state != MEMBER_ABSENT && !is_alive(&table->member[i]))
			return (int)i;
	return -1;
}

static bool is_named(int fd, const char *path)
{
	struct stat open_one, named;

	return fstat(fd, &open_one) == 0 && stat(path, &named) == 0 && open_one.st_ino == named.st_ino;
}

/*
 * Returns the job's table, locked: a new one, or one in which ranks wait. NULL with *again: it was
 * a leftover or has just been removed, so try once more.
 */
static struct table *open_table(const char *name, const char *path, uint32_t size, size_t bytes, int *fd, bool *again)
{
	/* A table of another version differs in its first word. */
	uint32_t layout = 0x48504d00 + (uint32_t)(bytes % 251);
	struct table *table;
	struct stat st;
	int err;

	*again = false;
	*fd = shm_open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (*fd < 0)
		return NULL;
	if (fstat(*fd, &st) != 0)
		goto close;
	/* Not a table that another user has put there, and may have locked. */
	if (st.st_uid != geteuid()) {
		errno = EACCES;
		goto close;
	}
	if (flock(*fd, LOCK_EX) != 0 || fstat(*fd, &st) != 0)
		goto close;
	*again = !is_named(*fd, path);
	if (*again)
		goto close;
	/* Room for all of it: later there would be SIGBUS. */
	err = st.st_size == 0 ? posix_fallocate(*fd, 0, (off_t)bytes) : 0;
	*again = st.st_size != 0 && st.st_size != (off_t)bytes;
	if (err || *again) {
		shm_unlink(name);
		errno = err;
		goto close;
	}
	table = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	if (table == MAP_FAILED)
		goto close;
	if (!table->layout) {
		table->layout = layout;
		table->size = size;
	}
	if (table->layout == layout && table_missing(table) < 0) {
		if (table->size == size)
			return table;
		errno = EINVAL;
	} else {
		*again = true;
		shm_unlink(name);
	}
	munmap(table, bytes);
close:
	close(*fd);
	return NULL;
}

/* Enters this rank into the locked table. */
static int enter_table(struct table *table, int rank, int (*enter)(struct table *table, int rank))
{
	struct member *member = &table->member[rank];

	if (member->state != MEMBER_ABSENT) {
		errno = EEXIST;
		return -1;
	}
	if (enter(table, rank) != 0)
		return -1;
	member->pid = getpid();
	member->start = start_of(member->pid);
	member->state = MEMBER_HERE;
	table->nr_joined++;
	return 0;
}

/* The table of a job of one rank. */
static struct table *table_alone(size_t bytes, int (*enter)(struct table *table, int rank))
{
	struct table *table = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	int err;

	if (table == MAP_FAILED)
		return NULL;
	table->size = 1;
	if (enter_table(table, 0, enter) == 0)
		return table;
	err = errno;
	munmap(table, bytes);
	errno = err;
	return NULL;
}

static int wait_for_all(struct table *table)
{
	const struct timespec step = { .tv_nsec = 2 * 1000 * 1000 };
	time_t end = time(NULL) + HPMMAP_JOB_SECONDS;

	while (table->nr_joined < table->size) {
		if (table_missing(table) >= 0)
			errno = ESRCH;
		else if (time(NULL) > end)
			errno = ETIMEDOUT;
		else {
			nanosleep(&step, NULL);
			continue;
		}
		return -1;
	}
	return 0;
}

struct table *table_join(const struct identity *who, size_t bytes, int (*enter)(struct table *table, int rank))
{
	char name[IDENTITY_NAME + 64], path[IDENTITY_NAME + 80];
	struct table *table;
	int fd, ret, err;
	bool again;

	if (who->size == 1)
		return table_alone(bytes, enter);
	snprintf(name, sizeof(name), "/hpmmap-%u-%s", (unsigned int)geteuid(), who->name);
	snprintf(path, sizeof(path), "/dev/shm%s", name);
	do {
		table = open_table(name, path, (uint32_t)who->size, bytes, &fd, &again);
	} while (!table && again);
	if (!table)
		return NULL;
	ret = enter_table(table, who->rank, enter);
	err = errno;
	/* All have joined, or the rank made the table but could not enter it: no other rank has to wait for it. */
	if (table->nr_joined == (ret == 0 ? table->size : 0))
		shm_unlink(name);
	flock(fd, LOCK_UN);
	if (ret == 0) {
		ret = wait_for_all(table);
		err = errno;
		if (ret != 0) {
			table->member[who->rank].state = MEMBER_LEFT;
			/* Whoever comes yet makes another one. Names change only under the lock. */
			if (flock(fd, LOCK_EX) == 0 && is_named(fd, path))
				shm_unlink(name);
		}
	}
	/* The mapping keeps the file open. */
	close(fd);
	if (ret == 0)
		return table;
	munmap(table, bytes);
	errno = err;
	return NULL;
}

static void wake_all(struct barrier *barrier)
{
	syscall(SYS_futex, &barrier->round, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void table_leave(struct table *table, int rank)
{
	table->member[rank].state = MEMBER_LEFT;
	wake_all(&table->all);
}

int barrier_wait(struct table *table, struct barrier *barrier, uint32_t size, uint32_t spins)
{
	struct timespec step = { .tv_nsec = 100 * 1000 * 1000 };
	uint32_t round = barrier->round;

	/* memcpy() may have used non-temporal stores. */
	__builtin_ia32_sfence();
	if (atomic_fetch_add(&barrier->nr_arrived, 1) + 1 == size) {
		barrier->nr_arrived = 0;
		barrier->round = round + 1;
		wake_all(barrier);
		return 0;
	}
	for (uint32_t i = 0; i < spins && barrier->round == round; i++)
		__builtin_ia32_pause();
	while (barrier->round == round) {
		syscall(SYS_futex, &barrier->round, FUTEX_WAIT, round, &step, NULL, 0);
		if (barrier->round == round && table_missing(table) >= 0 && barrier->round == round) {
			errno = ESRCH;
			return -1;
		}
		step = (struct timespec){ .tv_sec = 1 };
	}
	return 0;
}
