// SPDX-License-Identifier: GPL-2.0
/*
 * hpmmap_runs(): what it tells is what /proc/self/pagemap says, and memory stays out of use
 * until its descriptor is closed. As root, registered with policy strict. Usage: runs [MB]
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hpmmap_window.h"

#define PAGE	4096UL
#define MOST	4096

#define CHECK(what) do { if (!(what)) errx(1, "line %d: not %s", __LINE__, #what); } while (0)
#define CHECK_FAILS(call, want) do {							\
	int fd_ = (call);								\
	if (fd_ != -1 || errno != (want))						\
		errx(1, "line %d: %s: %s, not %s", __LINE__, #call,			\
		     fd_ == -1 ? strerrorname_np(errno) : "success", #want);		\
} while (0)

static struct hpmmap_physical runs[MOST];
static size_t bytes = 16UL << 20;

/* A number of a file, after a name. */
static uint64_t number(const char *path, const char *name)
{
	FILE *file = fopen(path, "r");
	uint64_t value = 0;
	char line[256];

	if (!file)
		err(1, "%s", path);
	while (fgets(line, sizeof(line), file))
		if (!strncmp(line, name, strlen(name)))
			value = strtoull(line + strlen(name), NULL, 10);
	fclose(file);
	return value;
}

static uint64_t pinned(void)
{
	return number("/proc/self/status", "VmPin:") * 1024;
}

/* Of the pool: what is in no process any more, but pinned. */
static uint64_t waiting(void)
{
	return number("/sys/kernel/hpmmap/nodes/node0/pinned_bytes", "");
}

static void expect_waiting(uint64_t want)
{
	for (int i = 0; i < 200 && waiting() != want; i++)
		usleep(50 * 1000);
	if (waiting() != want)
		errx(1, "%llu bytes of the pool are pinned, not %llu", (unsigned long long)waiting(),
		     (unsigned long long)want);
}

static char *map(size_t size, int prot)
{
	char *p = mmap(NULL, size, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		err(1, "mmap");
	if (prot & PROT_WRITE)
		memset(p, 0x5a, size);
	return p;
}

static uint64_t physical(const char *p)
{
	static int fd = -1;
	uint64_t entry;

	if (fd < 0)
		fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	CHECK(pread(fd, &entry, 8, (uintptr_t)p / PAGE * 8) == 8);
	return (entry & ((1ULL << 55) - 1)) * PAGE;
}

/* Of the job, of which there is one. */
static uint64_t counted(const char *name)
{
	char path[64];

	snprintf(path, sizeof(path), "/sys/kernel/hpmmap/jobs/%llu/stat",
		 (unsigned long long)number("/proc/hpmmap", "job "));
	return number(path, name);
}

/* Between the pages that are looked at: all, or one in 2 MB. */
static size_t stride(void)
{
	return bytes > 64UL << 20 ? 512 : 1;
}

/* Are the runs, as long as they can be, those of the range? */
static void check_runs(const char *p, size_t size, size_t nr)
{
	size_t page = 0;

	for (size_t i = 0; i < nr; i++) {
		CHECK(runs[i].bytes && runs[i].bytes % PAGE == 0);
		CHECK(!i || runs[i - 1].address + runs[i - 1].bytes != runs[i].address);
		for (uint64_t at = 0; at < runs[i].bytes; at += PAGE, page++) {
			CHECK(page < size / PAGE);
			CHECK(page % stride() || physical(p + page * PAGE) == runs[i].address + at);
		}
	}
	CHECK(page == size / PAGE);
}

static bool is_in_runs(uint64_t address, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		if (address - runs[i].address < runs[i].bytes)
			return true;
	return false;
}

static void unmapped(void)
{
	uint64_t before = counted("placed_runs");
	char *p = map(bytes, PROT_READ | PROT_WRITE), *q;
	uint64_t placed = counted("placed_runs") - before;
	size_t nr = MOST;
	int fd = hpmmap_runs(p, bytes, runs, &nr);

	if (fd < 0)
		err(1, "hpmmap_runs");
	/* A look into pagemap makes some. */
	CHECK(pinned() == bytes && counted("splits_1g") == 0);
	/* The first one may go on where that before has ended. */
	CHECK(placed == nr || placed + 1 == nr);
	CHECK(nr >= 1 && nr <= bytes >> 21);
	printf("%zu MB in %zu runs\n", bytes >> 20, nr);
	check_runs(p, bytes, nr);
	CHECK(waiting() == 0);
	munmap(p, bytes);
	expect_waiting(bytes);
	/* It is nobody else's, nor this process's again. */
	q = map(bytes, PROT_READ | PROT_WRITE);
	for (size_t at = 0; at < bytes; at += stride() * PAGE)
		CHECK(!is_in_runs(physical(q + at), nr));
	munmap(q, bytes);
	CHECK(waiting() == bytes && pinned() == bytes);
	close(fd);
	CHECK(pinned() == 0);
	expect_waiting(0);
}

static void too_small(void)
{
	size_t half = bytes / 2, nr = 0, many;
	char *p = map(bytes, PROT_READ | PROT_WRITE);
	int fd;

	/* Blocks of one half alone need not follow those of the other. */
	munmap(p + half, 2UL << 20);
	map(2UL << 20, PROT_READ | PROT_WRITE);
	CHECK(mmap(p + half, 2UL << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
	      p + half);
	CHECK_FAILS(hpmmap_runs(p, bytes, NULL, &nr), EMSGSIZE);
	CHECK(nr >= 1 && pinned() == 0);
	many = nr;
	memset(runs, 0xff, sizeof(runs));
	nr = many - 1;
	CHECK_FAILS(hpmmap_runs(p, bytes, runs, &nr), EMSGSIZE);
	CHECK(nr == many && runs[0].address == UINT64_MAX && pinned() == 0);
	fd = hpmmap_runs(p, bytes, runs, &nr);
	CHECK(fd >= 0 && nr == many && runs[nr].address == UINT64_MAX);
	check_runs(p, bytes, nr);
	/* Once more: both count. */
	nr = MOST;
	close(fd);
	fd = hpmmap_runs(p, bytes, runs, &nr);
	close(hpmmap_runs(p, bytes, runs, &nr));
	CHECK(fd >= 0 && pinned() == bytes);
	munmap(p, bytes);
	expect_waiting(bytes);
	close(fd);
	expect_waiting(0);
}

static void refused(void)
{
	char *p = map(4 * PAGE, PROT_READ | PROT_WRITE), *q = map(PAGE, PROT_READ);
	size_t nr = MOST;

	CHECK_FAILS(hpmmap_runs(p + 1, PAGE, runs, &nr), EINVAL);
	CHECK_FAILS(hpmmap_runs(p, 0, runs, &nr), EINVAL);
	CHECK_FAILS(hpmmap_runs(q, PAGE, runs, &nr), EFAULT);
	CHECK_FAILS(hpmmap_runs(p, PAGE, (void *)8, &nr), EFAULT);
	munmap(p + 2 * PAGE, PAGE);
	CHECK_FAILS(hpmmap_runs(p, 4 * PAGE, runs, &nr), EFAULT);
	CHECK_FAILS(hpmmap_runs((void *)(UINTPTR_MAX - PAGE + 1), PAGE, runs, &nr), EINVAL);
	CHECK_FAILS(hpmmap_runs((void *)(UINTPTR_MAX / 2 + 1), PAGE, runs, &nr), EFAULT);
	CHECK(pinned() == 0);
	expect_waiting(0);
}

static void ordinary(void)
{
	char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd_create("runs", 0), 0);
	static char __attribute__((aligned(4096))) own[PAGE];
	size_t nr = MOST;
	int fd;

	CHECK_FAILS(hpmmap_runs(p, bytes, runs, &nr), EFAULT);
	own[0] = 1;
	fd = hpmmap_runs(own, PAGE, runs, &nr);
	CHECK(fd >= 0 && nr == 1 && pinned() == PAGE);
	check_runs(own, PAGE, nr);
	close(fd);
}

/* A child keeps what its parent, which is killed, has pinned. */
static void killed(void)
{
	int hold[2], ready[2], status;
	char word;
	pid_t pid;

	CHECK(!pipe(hold) && !pipe(ready));
	pid = fork();
	if (!pid) {
		char *p = map(bytes, PROT_READ | PROT_WRITE);
		size_t nr = MOST;

		close(hold[1]);
		CHECK(hpmmap_runs(p, bytes, runs, &nr) >= 0);
		if (!fork()) {
			munmap(p, bytes);
			CHECK(write(ready[1], "", 1) == 1);
			CHECK(read(hold[0], &word, 1) == 0);
			_exit(0);
		}
		pause();
	}
	close(hold[0]);
	CHECK(read(ready[0], &word, 1) == 1);
	CHECK(waiting() == 0);
	kill(pid, SIGKILL);
	CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
	expect_waiting(bytes);
	close(hold[1]);
	expect_waiting(0);
}

static void without(int capability)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];

	CHECK(!syscall(SYS_capget, &header, data));
	data[0].effective &= ~(1U << capability);
	CHECK(!syscall(SYS_capset, &header, data));
}

static void limited(void)
{
	struct rlimit limit = { bytes / 2, bytes / 2 };
	char *p = map(bytes, PROT_READ | PROT_WRITE);
	size_t nr = MOST;
	int fd;

	CHECK(!setrlimit(RLIMIT_MEMLOCK, &limit));
	fd = hpmmap_runs(p, bytes, runs, &nr);
	CHECK(fd >= 0);
	close(fd);
	without(CAP_IPC_LOCK);
	nr = MOST;
	CHECK_FAILS(hpmmap_runs(p, bytes, runs, &nr), ENOMEM);
	fd = hpmmap_runs(p, bytes / 2, runs, &nr);
	CHECK(fd >= 0);
	CHECK_FAILS(hpmmap_runs(p, PAGE, runs, &nr), ENOMEM);
	close(fd);
	without(CAP_SYS_RAWIO);
	CHECK_FAILS(hpmmap_runs(p, PAGE, runs, &nr), EPERM);
	CHECK(pinned() == 0);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		bytes = strtoul(argv[1], NULL, 10) << 20;
	unmapped();
	too_small();
	refused();
	ordinary();
	killed();
	limited();
	puts("all as it should be");
	return 0;
}
