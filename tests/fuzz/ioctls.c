// SPDX-License-Identifier: GPL-2.0
/*
 * Random ioctls, malformed and correct, all at once.
 *
 * Some processes call every command with arguments that are right except for a
 * few members, with wrong sizes and pointers, and with unknown numbers, while
 * others take sections of memory out of the pools and put them in again, launch
 * jobs and read sysfs. Every errno must be one that the header lists for the
 * command, nothing may be written beyond the struct, and all sections must be in
 * the pools at the end. As an ordinary user (in the device's group) the
 * commands for the administrator must not get further than EPERM.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common.h"
#include "hpmmap.h"

#define PAGE		4096UL
#define MAX_SECTIONS	64
#define MAX_ENTRIES	4096
#define CANARY		0x5a
#define FIRST_UID	61000

static struct {
	uint64_t seed;
	unsigned int ops;
} opt = { .seed = 1, .ops = 2000 };

static int device;
static bool root;
static struct hpmmap_pool_range sections[MAX_SECTIONS];
static unsigned int nr_sections;
static uint64_t rng;
static const char *worker;
static char *self_path;

static uint64_t next(void)
{
	rng ^= rng >> 12;
	rng ^= rng << 25;
	rng ^= rng >> 27;
	return rng * 0x2545f4914f6cdd1dULL;
}

static unsigned int rnd(unsigned int n)
{
	return (unsigned int)((next() >> 33) % n);
}

static bool one_in(unsigned int n)
{
	return rnd(n) == 0;
}

/* ---- One command ------------------------------------------------------- */

/*
 * Errnos of a command beyond those of all: -1 ends the list.
 */
struct command {
	const char *name;
	unsigned int number;
	size_t size;
	bool admin;
	int errors[8];
};

static const struct command commands[] = {
	{ "INFO", HPMMAP_IOC_INFO, sizeof(struct hpmmap_info), false, { -1 } },
	{ "POOL_ADD", HPMMAP_IOC_POOL_ADD, sizeof(struct hpmmap_pool_add), true,
	  { EBUSY, EEXIST, ENXIO, EXDEV, -1 } },
	{ "POOL_REMOVE", HPMMAP_IOC_POOL_REMOVE, sizeof(struct hpmmap_pool_remove), true,
	  { ENOENT, EBUSY, ENOSPC, -1 } },
	{ "POOL_LIST", HPMMAP_IOC_POOL_LIST, sizeof(struct hpmmap_pool_list), false, { -1 } },
	{ "LAUNCH", HPMMAP_IOC_LAUNCH, sizeof(struct hpmmap_launch), false, { ENODEV, EBUSY, -1 } },
	{ "LIMIT_SET", HPMMAP_IOC_LIMIT_SET, sizeof(struct hpmmap_limit_set), true,
	  { EBADF, ENOENT, -1 } },
	{ "LIMIT_LIST", HPMMAP_IOC_LIMIT_LIST, sizeof(struct hpmmap_limit_list), false, { -1 } },
	{ "RUNS", HPMMAP_IOC_RUNS, sizeof(struct hpmmap_runs), true, { EMSGSIZE, -1 } },
	/* Everybody may for a launch. */
	{ "PROMISE_SET", HPMMAP_IOC_PROMISE_SET, sizeof(struct hpmmap_promise_set), false,
	  { EPERM, EBADF, ENOENT, ENOSPC, ENXIO, -1 } },
	{ "PROMISE_LIST", HPMMAP_IOC_PROMISE_LIST, sizeof(struct hpmmap_promise_list), false, { -1 } },
};
#define NR_COMMANDS (sizeof(commands) / sizeof(commands[0]))

union argument {
	uint32_t size;
	struct hpmmap_info info;
	struct hpmmap_pool_add add;
	struct hpmmap_pool_remove remove;
	struct hpmmap_pool_list list;
	struct hpmmap_launch launch;
	struct hpmmap_limit_set limit;
	struct hpmmap_limit_list limits;
	struct hpmmap_runs runs;
	struct hpmmap_promise_set promise;
	struct hpmmap_promise_list promises;
	uint64_t words[32];
	unsigned char bytes[256];
};

static uint64_t interesting(void)
{
	static const uint64_t values[] = {
		0, 1, 2, 7, 63, 64, 65, 4095, 4096, 4097, HPMMAP_BLOCK_BYTES - 1,
		HPMMAP_BLOCK_BYTES, HPMMAP_LARGE_BYTES, 1ULL << 27, 3ULL << 27, 1ULL << 31,
		1ULL << 32, (1ULL << 32) - 1, 1ULL << 46, 1ULL << 52, 1ULL << 63, ~0ULL, ~0ULL << 27,
		~0ULL - 4095, 0xffff888000000000ULL, 0x7ffffffff000ULL,
	};

	return one_in(4) ? next() : values[rnd(sizeof(values) / sizeof(values[0]))];
}

/* Something that is right at this moment, or was a moment ago. */
static void fill_right(const struct command *c, union argument *arg)
{
	const struct hpmmap_pool_range *section = &sections[rnd(nr_sections)];
	/* Room for all there can be, however large spoil() says that one is. */
	static char ranges[MAX_SECTIONS * PAGE] __attribute__((aligned(PAGE)));
	static struct hpmmap_limit_entry entries[MAX_ENTRIES];
	static struct hpmmap_promise_entry promised[MAX_ENTRIES];
	static struct hpmmap_promise parts[8];
	static struct hpmmap_region regions[2];
	static uint64_t nodes[16] = { 1 };

	memset(arg, 0, sizeof(*arg));
	arg->size = (uint32_t)c->size;
	switch (c->number) {
	case HPMMAP_IOC_POOL_ADD:
		arg->add.start = section->start;
		arg->add.length = section->length;
		arg->add.node = one_in(2) ? section->node : -1;
		arg->add.flags = section->flags;
		break;
	case HPMMAP_IOC_POOL_REMOVE:
		arg->remove.start = section->start;
		arg->remove.length = section->length * (1 + rnd(2));
		break;
	case HPMMAP_IOC_POOL_LIST:
		arg->list.nr = rnd(9);
		arg->list.ranges = (uintptr_t)ranges;
		break;
	case HPMMAP_IOC_LAUNCH:
		arg->launch.flags = rnd(8);
		arg->launch.page_size = one_in(2) ? 0 : HPMMAP_BLOCK_BYTES << 9 * rnd(2);
		if (one_in(2)) {
			arg->launch.nodemask = (uintptr_t)nodes;
			arg->launch.nodemask_bits = 1 + rnd(1024);
		}
		if (one_in(4)) {
			arg->launch.regions = (uintptr_t)regions;
			arg->launch.nr_regions = 1 + rnd(2);
			for (unsigned int i = 0; i < 2; i++)
				regions[i] = (struct hpmmap_region) {
					.start = one_in(8) ? interesting() : (1 + 2 * i) * HPMMAP_LARGE_BYTES,
					.length = one_in(8) ? interesting() : rnd(16) * HPMMAP_BLOCK_BYTES,
					.node = (int)rnd(3) - 1,
				};
		}
		break;
	case HPMMAP_IOC_LIMIT_SET:
		arg->limit.uid = FIRST_UID + rnd(16);
		arg->limit.bytes = one_in(2) ? HPMMAP_LIMIT_NONE : rnd(64) * HPMMAP_BLOCK_BYTES;
		if (one_in(4)) {
			arg->limit.flags = HPMMAP_LIMIT_F_PERCENT;
			arg->limit.bytes = rnd(102);
		}
		break;
	case HPMMAP_IOC_LIMIT_LIST:
		arg->limits.nr = rnd(9);
		arg->limits.entries = (uintptr_t)entries;
		break;
	case HPMMAP_IOC_RUNS:
		arg->runs.start = (uintptr_t)ranges;
		arg->runs.length = PAGE * rnd(9);
		arg->runs.nr = rnd(9);
		arg->runs.runs = (uintptr_t)ranges;
		break;
	case HPMMAP_IOC_PROMISE_SET:
		arg->promise.uid = FIRST_UID + rnd(16);
		if (one_in(3)) {
			arg->promise.flags = HPMMAP_PROMISE_F_LAUNCH;
			arg->promise.uid = 0;
		}
		arg->promise.nr = rnd(3);
		arg->promise.promises = (uintptr_t)parts;
		for (unsigned int i = 0; i < 8; i++) {
			parts[i].node = (int)rnd(3) - 1;
			parts[i].bytes = rnd(32) * HPMMAP_BLOCK_BYTES;
		}
		break;
	case HPMMAP_IOC_PROMISE_LIST:
		arg->promises.nr = rnd(9);
		arg->promises.entries = (uintptr_t)promised;
		break;
	}
}

static void spoil(const struct command *c, union argument *arg)
{
	for (unsigned int n = rnd(3); n; n--) {
		unsigned int at = 1 + rnd((unsigned int)(c->size / 4) - 1);

		if (one_in(2))
			((uint32_t *)arg->bytes)[at] = (uint32_t)interesting();
		else
			arg->words[at / 2] = at / 2 ? interesting() :
					     (uint32_t)interesting() | (uint64_t)arg->size << 32;
	}
	if (one_in(6))
		arg->size = one_in(2) ? rnd(200) : (uint32_t)interesting();
}

/* The default limit is for everybody, and other users' promises last: not to be played with. */
static bool is_harmful(const struct command *c, const union argument *arg)
{
	if (c->number == HPMMAP_IOC_PROMISE_SET)
		return arg->promise.flags != HPMMAP_PROMISE_F_LAUNCH &&
		       arg->promise.uid - FIRST_UID >= 16;
	return c->number == HPMMAP_IOC_LIMIT_SET &&
	       (arg->limit.flags & HPMMAP_LIMIT_F_DEFAULT ||
		arg->limit.uid - FIRST_UID >= 16);
}

static bool is_known(const struct command *c, int error)
{
	static const int common[] = { E2BIG, EINVAL, EOPNOTSUPP, EFAULT, ENOMEM, -1 };

	if (c->admin && !root)
		return error == EPERM;
	for (unsigned int i = 0; common[i] >= 0; i++)
		if (error == common[i])
			return true;
	for (unsigned int i = 0; c->errors[i] >= 0; i++)
		if (error == c->errors[i])
			return true;
	return false;
}

static void call_right_place(const struct command *c, union argument *arg)
{
	unsigned char buffer[512];
	size_t size = arg->size;
	int error;

	memset(buffer, CANARY, sizeof(buffer));
	memcpy(buffer, arg, sizeof(*arg));
	/* Only what the struct is said to have may be written. */
	memset(buffer + sizeof(*arg), CANARY, sizeof(buffer) - sizeof(*arg));
	error = ioctl(device, c->number, buffer) ? errno : 0;
	if (error && !is_known(c, error))
		errx(1, "FAIL: seed %llu, %s: %s returned %s", (unsigned long long)opt.seed,
		     worker, c->name, strerrorname_np(error));
	if (!error && c->admin && !root)
		errx(1, "FAIL: an ordinary user may do %s", c->name);
	if (size > c->size)
		size = c->size;
	for (size_t i = size; i < sizeof(buffer); i++)
		if (buffer[i] != (i < sizeof(*arg) ? arg->bytes[i] : CANARY))
			errx(1, "FAIL: seed %llu, %s: %s with size %u wrote byte %zu",
			     (unsigned long long)opt.seed, worker, c->name, arg->size, i);
}

/* The struct lies where it cannot be read, or not as a whole. */
static void call_wrong_place(const struct command *c, const union argument *arg, char *two_pages)
{
	char *place;
	int error;

	switch (rnd(5)) {
	case 0:
		place = (char *)interesting();
		break;
	case 1:
		place = two_pages + PAGE;
		break;
	default:
		/* The second page cannot be accessed. */
		place = two_pages + PAGE - 1 - rnd((unsigned int)c->size);
		memcpy(place, arg, (size_t)(two_pages + PAGE - place));
		break;
	}
	error = ioctl(device, c->number, place) ? errno : 0;
	if (error && !is_known(c, error))
		errx(1, "FAIL: seed %llu, %s: %s at %p returned %s", (unsigned long long)opt.seed,
		     worker, c->name, place, strerrorname_np(error));
}

static void call_wrong_number(union argument *arg)
{
	unsigned int number = one_in(2) ? (unsigned int)next() :
			      _IOC(rnd(4), HPMMAP_IOC_MAGIC, rnd(256), rnd(512));
	int error;

	for (unsigned int i = 0; i < NR_COMMANDS; i++)
		if (_IOC_TYPE(number) == HPMMAP_IOC_MAGIC && _IOC_NR(number) == _IOC_NR(commands[i].number))
			return;
	/* Linux answers these itself for every file. */
	if (_IOC_TYPE(number) == 'T' || _IOC_TYPE(number) == 'f' || _IOC_TYPE(number) == 'X')
		return;
	error = ioctl(device, number, arg) ? errno : 0;
	if (error != ENOTTY)
		errx(1, "FAIL: seed %llu, %s: number %#x returned %s", (unsigned long long)opt.seed,
		     worker, number, error ? strerrorname_np(error) : "success");
}

/* ---- Workers ------------------------------------------------------------- */

static void work_malformed(void)
{
	char *two_pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	union argument arg;

	if (two_pages == MAP_FAILED || mprotect(two_pages + PAGE, PAGE, PROT_NONE))
		err(1, "mmap");
	for (unsigned int i = 0; i < opt.ops; i++) {
		const struct command *c = &commands[rnd(NR_COMMANDS)];

		fill_right(c, &arg);
		spoil(c, &arg);
		if (is_harmful(c, &arg))
			continue;
		switch (rnd(8)) {
		case 0:
			call_wrong_number(&arg);
			break;
		case 1:
			call_wrong_place(c, &arg, two_pages);
			break;
		default:
			call_right_place(c, &arg);
			break;
		}
	}
}

static void work_pools(void)
{
	union argument arg;

	for (unsigned int i = 0; i < opt.ops / 2; i++) {
		const struct command *c = &commands[1 + rnd(2)];

		fill_right(c, &arg);
		call_right_place(c, &arg);
	}
}

static int launched(void)
{
	size_t size = 5 * HPMMAP_BLOCK_BYTES;
	char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	/* The pools may be empty, and the job strict. */
	if (p == MAP_FAILED)
		return errno == ENOMEM ? 0 : 1;
	memset(p, 1, size);
	if (fork() == 0)
		_exit(p[size - 1] != 1);
	return wait(NULL) < 0;
}

static void work_launch(void)
{
	char *const argv[] = { self_path, "launched", NULL }, *const envp[] = { NULL };
	union argument arg;
	int status;

	for (unsigned int i = 0; i < opt.ops / 40 + 1; i++) {
		pid_t pid = fork();

		if (pid < 0)
			err(1, "fork");
		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			fill_right(&commands[4], &arg);
			call_right_place(&commands[4], &arg);
			if (one_in(4))
				_exit(0);
			execve(self_path, argv, envp);
			_exit(1);
		}
		if (one_in(8)) {
			struct timespec delay = { .tv_nsec = rnd(30) * 1000000L };

			nanosleep(&delay, NULL);
			kill(pid, SIGKILL);
		}
		while (waitpid(pid, &status, 0) < 0)
			if (errno != EINTR)
				err(1, "waitpid");
		/* A strict job without memory is killed. */
		if (status && !(WIFSIGNALED(status) && (WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGSEGV)))
			errx(1, "FAIL: seed %llu: a launched program ended with status %#x",
			     (unsigned long long)opt.seed, (unsigned int)status);
	}
}

static void work_read(void)
{
	static const char *const files[] = {
		"version", "user_limit_bytes", "hooks_active", "nodes/node0/total_bytes",
		"nodes/node0/free_bytes", "nodes/node0/largest_free_bytes", "nodes/node0/pinned_bytes",
	};
	char path[128], text[128];

	for (unsigned int i = 0; i < opt.ops / 2; i++) {
		unsigned int n = rnd(sizeof(files) / sizeof(files[0]));
		int fd;

		snprintf(path, sizeof(path), "%s/%s", HPMMAP_SYSFS_PATH, files[n]);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		/* A node without a pool has no directory. */
		if (fd < 0) {
			if (errno != ENOENT || n < 3)
				err(1, "FAIL: %s", path);
			continue;
		}
		if (read(fd, text, sizeof(text)) <= 0 && errno != ENODEV)
			err(1, "FAIL: %s", path);
		close(fd);
	}
}

static const struct {
	const char *name;
	void (*run)(void);
	bool admin;
} workers[] = {
	{ "malformed 1", work_malformed, false },
	{ "malformed 2", work_malformed, false },
	{ "pools", work_pools, true },
	{ "launch", work_launch, false },
	{ "read", work_read, false },
};
#define NR_WORKERS (sizeof(workers) / sizeof(workers[0]))

/* ---- Start ------------------------------------------------------------------ */

static unsigned int list(struct hpmmap_pool_range *ranges)
{
	struct hpmmap_pool_list arg = {
		.size = sizeof(arg), .ranges = (uintptr_t)ranges, .nr = MAX_SECTIONS,
		.range_size = sizeof(*ranges),
	};

	if (ioctl(device, HPMMAP_IOC_POOL_LIST, &arg))
		err(1, "FAIL: HPMMAP_IOC_POOL_LIST");
	if (arg.nr > MAX_SECTIONS)
		errx(1, "%u sections: this program knows %d", arg.nr, MAX_SECTIONS);
	return arg.nr;
}

/* Every section that was there has to be there, or to be able to be. */
static void restore(void)
{
	struct hpmmap_pool_range now[MAX_SECTIONS];
	unsigned int nr = list(now), n;

	for (unsigned int uid = FIRST_UID; uid < FIRST_UID + 16; uid++) {
		struct hpmmap_promise_set arg = { .size = sizeof(arg), .uid = uid };

		if (ioctl(device, HPMMAP_IOC_PROMISE_SET, &arg))
			err(1, "FAIL: HPMMAP_IOC_PROMISE_SET");
	}
	for (unsigned int i = 0; i < nr_sections; i++) {
		struct hpmmap_pool_add arg = {
			.size = sizeof(arg), .start = sections[i].start,
			.length = sections[i].length, .node = sections[i].node,
			.flags = sections[i].flags,
		};

		for (n = 0; n < nr && now[n].start != sections[i].start; n++)
			;
		if (n == nr && ioctl(device, HPMMAP_IOC_POOL_ADD, &arg))
			err(1, "FAIL: the section at %#llx cannot be added again",
			    (unsigned long long)arg.start);
	}
	for (unsigned int uid = FIRST_UID; uid < FIRST_UID + 16; uid++) {
		struct hpmmap_limit_set arg = {
			.size = sizeof(arg), .uid = uid, .bytes = HPMMAP_LIMIT_INHERIT,
		};

		if (ioctl(device, HPMMAP_IOC_LIMIT_SET, &arg))
			err(1, "FAIL: HPMMAP_IOC_LIMIT_SET");
	}
	if (list(now) != nr_sections)
		errx(1, "FAIL: there are %u sections, there were %u", list(now), nr_sections);
}

static void parse(int argc, char **argv)
{
	static const struct option options[] = {
		{ "seed", required_argument, NULL, 's' },
		{ "ops", required_argument, NULL, 'o' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 's')
			opt.seed = number(optarg);
		else if (c == 'o')
			opt.ops = (unsigned int)number(optarg);
		else
			exit(2);
	}
	if (optind != argc)
		errx(2, "usage: ioctls [--seed N] [--ops N]");
}

int main(int argc, char **argv)
{
	pid_t pids[NR_WORKERS] = { 0 };
	bool failed = false;

	if (argc == 2 && !strcmp(argv[1], "launched"))
		return launched();
	parse(argc, argv);
	self_path = realpath("/proc/self/exe", NULL);
	device = open(HPMMAP_DEVICE_PATH, O_RDWR | O_CLOEXEC);
	if (device < 0 || !self_path)
		err(1, HPMMAP_DEVICE_PATH);
	root = geteuid() == 0;
	nr_sections = list(sections);
	if (!nr_sections)
		errx(1, "there must be a pool");
	for (unsigned int i = 0; i < NR_WORKERS; i++) {
		if (workers[i].admin && !root)
			continue;
		pids[i] = fork();
		if (pids[i] < 0)
			err(1, "fork");
		if (pids[i] == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			worker = workers[i].name;
			rng = ((opt.seed + 1) * 0x9e3779b97f4a7c15ULL ^ (i + 1) * 0xd1342543de82ef95ULL) | 1;
			workers[i].run();
			exit(0);
		}
	}
	for (unsigned int i = 0; i < NR_WORKERS; i++) {
		int status = 0;

		if (pids[i] && (waitpid(pids[i], &status, 0) != pids[i] || status)) {
			warnx("FAIL: seed %llu: worker '%s' ended with status %#x",
			      (unsigned long long)opt.seed, workers[i].name, (unsigned int)status);
			failed = true;
		}
	}
	if (failed)
		return 1;
	if (root)
		restore();
	printf("HPMMAP-FUZZ-PASS ioctls: seed %llu, %u operations as %s\n",
	       (unsigned long long)opt.seed, opt.ops, root ? "root" : "user");
	return 0;
}
