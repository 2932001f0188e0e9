// SPDX-License-Identifier: GPL-2.0
/*
 * Every rule that the header states for every ioctl, and every member that a
 * command refuses: one check each. The argument says what the caller is:
 * "root", or "member" for a user without CAP_SYS_ADMIN.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "hpmmap.h"

/* How many jobs without a process a user may have. */
#define IDLE_JOBS 1024

static int fd;
static int failures;

static void expect(const char *what, unsigned long request, void *arg, int want)
{
	int got = ioctl(fd, request, arg) == 0 ? 0 : errno;

	if (got == want)
		return;
	printf("%s: %s, not %s\n", what, got ? strerrorname_np(got) : "success",
	       want ? strerrorname_np(want) : "success");
	failures++;
}

/*
 * The rules for the struct itself, for a command that is otherwise right. As it
 * was first published it had @least bytes.
 */
static void check_struct_from(const char *name, unsigned long request,
			      const void *right, size_t least, size_t size,
			      size_t flags_at)
{
	unsigned char buffer[512] = { 0 };
	uint32_t *buffer_size = (uint32_t *)buffer;
	uint32_t flags = 1U << 31;
	char what[128];

	if (size + 16 > sizeof(buffer))
		errx(1, "%s: the struct is larger than this test knows", name);

	memcpy(buffer, right, size);
	*buffer_size = 0;
	snprintf(what, sizeof(what), "%s: size 0", name);
	expect(what, request, buffer, EINVAL);
	*buffer_size = 4;
	snprintf(what, sizeof(what), "%s: size 4", name);
	expect(what, request, buffer, EINVAL);
	*buffer_size = least - 1;
	snprintf(what, sizeof(what), "%s: one byte too small", name);
	expect(what, request, buffer, EINVAL);

	*buffer_size = size + 8;
	buffer[size + 7] = 1;
	snprintf(what, sizeof(what), "%s: a larger struct with unknown contents", name);
	expect(what, request, buffer, E2BIG);
	buffer[size + 7] = 0;
	/* Whatever lies there. */
	*buffer_size = 4097;
	snprintf(what, sizeof(what), "%s: more than 4096 bytes", name);
	expect(what, request, buffer, E2BIG);

	memcpy(buffer, right, size);
	memcpy(buffer + flags_at, &flags, sizeof(flags));
	snprintf(what, sizeof(what), "%s: unknown flag", name);
	expect(what, request, buffer, EOPNOTSUPP);

	snprintf(what, sizeof(what), "%s: wrong pointer", name);
	expect(what, request, (void *)8, EFAULT);
}

static void check_struct(const char *name, unsigned long request,
			 const void *right, size_t size, size_t flags_at)
{
	check_struct_from(name, request, right, size, size, flags_at);
}

static void check_info(void)
{
	struct hpmmap_info info = { .size = sizeof(info) };
	struct {
		struct hpmmap_info info;
		uint64_t unknown;
	} larger = { .info.size = sizeof(larger) };
	static union {
		struct hpmmap_info info;
		char bytes[8192];
	} largest;

	check_struct("INFO", HPMMAP_IOC_INFO, &info, sizeof(info),
		     offsetof(struct hpmmap_info, flags));
	expect("INFO", HPMMAP_IOC_INFO, &info, 0);
	if (info.abi_version != HPMMAP_ABI_VERSION || info.memory_block_bytes < HPMMAP_BLOCK_BYTES) {
		printf("INFO: version %u, memory block of %llu bytes\n", info.abi_version,
		       (unsigned long long)info.memory_block_bytes);
		failures++;
	}
	expect("INFO: a larger struct with zeros", HPMMAP_IOC_INFO, &larger, 0);
	largest.info.size = 4096;
	expect("INFO: 4096 bytes, zeros", HPMMAP_IOC_INFO, &largest, 0);
	largest.info.size = 4097;
	expect("INFO: 4097 bytes, zeros", HPMMAP_IOC_INFO, &largest, E2BIG);
	largest.info.size = sizeof(largest);
	expect("INFO: 8192 bytes, zeros", HPMMAP_IOC_INFO, &largest, E2BIG);
	info.__reserved = 1;
	expect("INFO: __reserved", HPMMAP_IOC_INFO, &info, EOPNOTSUPP);
	expect("unknown command", _IOWR(HPMMAP_IOC_MAGIC, 99, struct hpmmap_info), &info, ENOTTY);
	expect("command of another device", _IOWR('T', 1, struct hpmmap_info), &info, ENOTTY);
}

static void check_pool_add(bool root, uint64_t block)
{
	struct hpmmap_pool_add right = {
		.size = sizeof(right), .start = 0, .length = block, .node = -1,
	};
	struct hpmmap_pool_add add;

	if (!root) {
		expect("POOL_ADD without the capability", HPMMAP_IOC_POOL_ADD, &right, EPERM);
		return;
	}
	check_struct("POOL_ADD", HPMMAP_IOC_POOL_ADD, &right, sizeof(right),
		     offsetof(struct hpmmap_pool_add, flags));
#define REFUSED(change, want) do {						\
	add = right;								\
	change;									\
	expect("POOL_ADD: " #change, HPMMAP_IOC_POOL_ADD, &add, want);		\
} while (0)
	REFUSED(add.__reserved = 1, EOPNOTSUPP);
	REFUSED(add.start = 4096, EINVAL);
	REFUSED(add.length = 0, EINVAL);
	REFUSED(add.length = HPMMAP_BLOCK_BYTES, EINVAL);
	REFUSED(add.length = block + 1, EINVAL);
	REFUSED(add.start = -block, EINVAL);
	REFUSED(add.length = -block, EINVAL);
	/* The first block holds the start of the machine's memory: never offline. */
	REFUSED(add.start = 0, EBUSY);
	/* Far beyond the end of memory. */
	REFUSED(add.start = 1ULL << 45, ENXIO);
#undef REFUSED
}

static void check_pool_remove(bool root, uint64_t block)
{
	struct hpmmap_pool_remove right = {
		.size = sizeof(right), .start = 0, .length = block,
	};
	struct hpmmap_pool_remove remove;

	if (!root) {
		expect("POOL_REMOVE without the capability", HPMMAP_IOC_POOL_REMOVE, &right, EPERM);
		return;
	}
	check_struct_from("POOL_REMOVE", HPMMAP_IOC_POOL_REMOVE, &right,
			  offsetof(struct hpmmap_pool_remove, bad_bytes), sizeof(right),
			  offsetof(struct hpmmap_pool_remove, flags));
#define REFUSED(change, want) do {						\
	remove = right;								\
	change;									\
	expect("POOL_REMOVE: " #change, HPMMAP_IOC_POOL_REMOVE, &remove, want);	\
} while (0)
	REFUSED(remove.start = 4096, EINVAL);
	REFUSED(remove.length = 0, EINVAL);
	REFUSED(remove.length = block + 4096, EINVAL);
	REFUSED(remove.start = -block, EINVAL);
	REFUSED(remove.start = 0, ENOENT);
	REFUSED(remove.start = 1ULL << 45, ENOENT);
#undef REFUSED
}

static void check_pool_list(void)
{
	struct hpmmap_pool_range ranges[64];
	struct hpmmap_pool_list right = { .size = sizeof(right) };
	struct hpmmap_pool_list list;

	check_struct("POOL_LIST", HPMMAP_IOC_POOL_LIST, &right, sizeof(right),
		     offsetof(struct hpmmap_pool_list, flags));
	list = right;
	list.range_size = HPMMAP_POOL_RANGE_MIN_SIZE - 8;
	expect("POOL_LIST: too small an element", HPMMAP_IOC_POOL_LIST, &list, EINVAL);
	list.range_size = sizeof(struct hpmmap_pool_range) + 4;
	expect("POOL_LIST: a crooked element", HPMMAP_IOC_POOL_LIST, &list, EINVAL);
	list.range_size = 4096 + 8;
	expect("POOL_LIST: too large an element", HPMMAP_IOC_POOL_LIST, &list, EINVAL);
	list = right;
	expect("POOL_LIST: count", HPMMAP_IOC_POOL_LIST, &list, 0);
	if (list.nr < 1 || list.nr > 64) {
		printf("POOL_LIST: %u ranges\n", list.nr);
		failures++;
		return;
	}
	list.nr = 1;
	list.ranges = 8;
	expect("POOL_LIST: wrong pointer in it", HPMMAP_IOC_POOL_LIST, &list, EFAULT);

	/* Of larger elements, what the module does not know is zero. */
	memset(ranges, 0x5a, sizeof(ranges));
	list.nr = 1;
	list.ranges = (uintptr_t)ranges;
	list.range_size = 2 * sizeof(ranges[0]);
	expect("POOL_LIST: of large elements", HPMMAP_IOC_POOL_LIST, &list, 0);
	if (ranges[1].start || ranges[1].bad_bytes || ranges[2].start != 0x5a5a5a5a5a5a5a5aULL) {
		printf("POOL_LIST: wrong contents of a large element\n");
		failures++;
	}

	/* The smallest ones are those of the first version. */
	memset(ranges, 0x5a, sizeof(ranges));
	list.nr = 1;
	list.range_size = 0;
	expect("POOL_LIST: of small elements", HPMMAP_IOC_POOL_LIST, &list, 0);
	if (ranges[0].bad_bytes != 0x5a5a5a5a5a5a5a5aULL || !ranges[0].length) {
		printf("POOL_LIST: wrong contents of a small element\n");
		failures++;
	}

	/* No more than the array holds is written. */
	memset(ranges, 0x5a, sizeof(ranges));
	list.nr = 1;
	list.range_size = sizeof(ranges[0]);
	expect("POOL_LIST: of one", HPMMAP_IOC_POOL_LIST, &list, 0);
	if (ranges[1].start != 0x5a5a5a5a5a5a5a5aULL || ranges[0].length == 0 ||
	    ranges[0].free_bytes > ranges[0].length) {
		printf("POOL_LIST: wrong contents\n");
		failures++;
	}
}

static void check_launch(void)
{
	uint64_t words[16] = { 0 };
	struct hpmmap_region regions[2] = { { HPMMAP_BLOCK_BYTES, HPMMAP_BLOCK_BYTES, -1, 0 } };
	struct hpmmap_launch right = { .size = sizeof(right) };
	struct hpmmap_launch launch;

	check_struct_from("LAUNCH", HPMMAP_IOC_LAUNCH, &right,
			  offsetof(struct hpmmap_launch, only), sizeof(right),
			  offsetof(struct hpmmap_launch, flags));
#define REFUSED(change, want) do {						\
	launch = right;								\
	change;									\
	expect("LAUNCH: " #change, HPMMAP_IOC_LAUNCH, &launch, want);		\
} while (0)
	REFUSED(launch.__reserved = 1, EOPNOTSUPP);
	REFUSED(launch.nr_regions = 1, EINVAL);
	REFUSED(launch.regions = (uintptr_t)regions, EINVAL);
	REFUSED((launch.regions = 8, launch.nr_regions = 1), EFAULT);
	REFUSED((launch.regions = (uintptr_t)regions, launch.nr_regions = 1,
		 launch.flags = HPMMAP_LAUNCH_F_FIRST_TOUCH), EINVAL);
	REFUSED((launch.regions = (uintptr_t)regions, launch.nr_regions = HPMMAP_LAUNCH_MAX_REGIONS + 1), EINVAL);
	REFUSED((launch.only = (uintptr_t)"a\0b", launch.only_bytes = 3), EINVAL);
	REFUSED((launch.only = (uintptr_t)"a\0\0b", launch.only_bytes = 5), EINVAL);
	REFUSED((launch.only = (uintptr_t)"", launch.only_bytes = 1), EINVAL);
	REFUSED(launch.only = (uintptr_t)"a", EINVAL);
	REFUSED(launch.only_bytes = 2, EINVAL);
	REFUSED((launch.only = (uintptr_t)words, launch.only_bytes = HPMMAP_LAUNCH_ONLY_MAX_BYTES + 1),
		EINVAL);
	REFUSED((launch.only = 8, launch.only_bytes = 2), EFAULT);
	REFUSED(launch.page_size = 4096, EINVAL);
	REFUSED(launch.page_size = HPMMAP_BLOCK_BYTES + 1, EINVAL);
	REFUSED(launch.flags = HPMMAP_LAUNCH_F_FIRST_TOUCH | HPMMAP_LAUNCH_F_INTERLEAVE, EINVAL);
	REFUSED((launch.flags = HPMMAP_LAUNCH_F_FIRST_TOUCH, launch.page_size = HPMMAP_LARGE_BYTES),
		EINVAL);
	REFUSED(launch.static_bytes = HPMMAP_BLOCK_BYTES + 4096, EINVAL);
	REFUSED(launch.static_bytes = HPMMAP_LAUNCH_STATIC_MAX_BYTES + HPMMAP_BLOCK_BYTES, EINVAL);
	REFUSED((launch.static_bytes = HPMMAP_BLOCK_BYTES, launch.page_size = HPMMAP_LARGE_BYTES), EINVAL);
	REFUSED((launch.static_bytes = HPMMAP_BLOCK_BYTES, launch.flags = HPMMAP_LAUNCH_F_FIRST_TOUCH),
		EINVAL);
	REFUSED((launch.static_bytes = 1ULL << 40, launch.flags = HPMMAP_LAUNCH_F_STRICT), ENOMEM);
	REFUSED((launch.nodemask = (uintptr_t)words, launch.nodemask_bits = 1025), EINVAL);
	REFUSED((launch.nodemask = 8, launch.nodemask_bits = 64), EFAULT);
	REFUSED((launch.nodemask = (uintptr_t)words, launch.nodemask_bits = 64), ENODEV);
	words[15] = 1ULL << 63;
	REFUSED((launch.nodemask = (uintptr_t)words, launch.nodemask_bits = 1024), ENODEV);
#define BAD_REGION(change, want) do {									\
	regions[0] = (struct hpmmap_region) { 4 * HPMMAP_BLOCK_BYTES, HPMMAP_BLOCK_BYTES, -1, 0 };	\
	regions[1] = (struct hpmmap_region) { 8 * HPMMAP_BLOCK_BYTES, HPMMAP_BLOCK_BYTES, -1, 0 };	\
	change;												\
	REFUSED((launch.regions = (uintptr_t)regions, launch.nr_regions = 2), want);			\
} while (0)
	BAD_REGION(regions[1].__reserved = 1, EOPNOTSUPP);
	BAD_REGION(regions[1].start += 4096, EINVAL);
	BAD_REGION(regions[1].start = 0, EINVAL);
	BAD_REGION(regions[0].start = 0, EINVAL);
	BAD_REGION(regions[1].start = regions[0].start, EINVAL);
	BAD_REGION(regions[0].start = 16 * HPMMAP_BLOCK_BYTES, EINVAL);
	BAD_REGION(regions[0].length = 8 * HPMMAP_BLOCK_BYTES, EINVAL);
	BAD_REGION(regions[1].length = 0, EINVAL);
	BAD_REGION(regions[1].length += 4096, EINVAL);
	BAD_REGION(regions[1].length = -HPMMAP_BLOCK_BYTES, EINVAL);
	BAD_REGION(regions[1].length = -regions[1].start, EINVAL);
	BAD_REGION(regions[1].length = 1ULL << 57, EINVAL);
	BAD_REGION(regions[1].start = 1ULL << 63, EINVAL);
	BAD_REGION(regions[1].node = -2, EINVAL);
	BAD_REGION(regions[1].node = 1 << 20, EINVAL);
	BAD_REGION(regions[1].node = 0x7fffffff, EINVAL);
	/* The first one had its memory by then. */
	BAD_REGION(regions[1].length = 1ULL << 45, ENOMEM);
#undef BAD_REGION
#undef REFUSED
}

/* Jobs that have no process any more cannot be had without an end. */
static void check_idle_jobs(void)
{
	struct hpmmap_launch launch = { .size = sizeof(launch) };
	static int fds[IDLE_JOBS + 2];
	struct rlimit files = { IDLE_JOBS + 100, IDLE_JOBS + 100 };
	int nr, ret = 0;

	if (setrlimit(RLIMIT_NOFILE, &files))
		err(1, "setrlimit");
	/* Each takes the process from the last one, which its file keeps. */
	for (nr = 0; !ret && nr < IDLE_JOBS + 2; nr++) {
		fds[nr] = open(HPMMAP_DEVICE_PATH, O_RDWR | O_CLOEXEC);
		if (fds[nr] < 0)
			err(1, HPMMAP_DEVICE_PATH);
		ret = ioctl(fds[nr], HPMMAP_IOC_LAUNCH, &launch);
	}
	/* The last but one has the process, and there may be one of before. */
	if (!ret || errno != EAGAIN || nr < IDLE_JOBS + 1) {
		printf("LAUNCH: of %d the last: %s\n", nr, ret ? strerror(errno) : "success");
		failures++;
	}
	while (nr)
		close(fds[--nr]);
}

static void check_limit_set(bool root)
{
	struct hpmmap_limit_set right = {
		.size = sizeof(right), .uid = 60001, .bytes = HPMMAP_LIMIT_NONE,
	};
	struct hpmmap_limit_set limit;
	int cgroup;

	if (!root) {
		expect("LIMIT_SET without the capability", HPMMAP_IOC_LIMIT_SET, &right, EPERM);
		return;
	}
	check_struct("LIMIT_SET", HPMMAP_IOC_LIMIT_SET, &right, sizeof(right),
		     offsetof(struct hpmmap_limit_set, flags));
	cgroup = open("/sys/fs/cgroup", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (cgroup < 0)
		err(1, "/sys/fs/cgroup");
#define REFUSED(change, want) do {						\
	limit = right;								\
	change;									\
	expect("LIMIT_SET: " #change, HPMMAP_IOC_LIMIT_SET, &limit, want);	\
} while (0)
	REFUSED(limit.cgroup_fd = 1, EINVAL);
	REFUSED(limit.uid = ~0U, EINVAL);
	REFUSED(limit.bytes = HPMMAP_BLOCK_BYTES + 1, EINVAL);
	REFUSED(limit.flags = HPMMAP_LIMIT_F_DEFAULT, EINVAL);
	REFUSED((limit.flags = HPMMAP_LIMIT_F_DEFAULT, limit.uid = 0, limit.cgroup_fd = 1), EINVAL);
	REFUSED((limit.flags = HPMMAP_LIMIT_F_DEFAULT, limit.uid = 0,
		 limit.bytes = HPMMAP_LIMIT_INHERIT), EINVAL);
	REFUSED(limit.flags = HPMMAP_LIMIT_F_PERCENT, EINVAL);
	REFUSED((limit.flags = HPMMAP_LIMIT_F_PERCENT, limit.bytes = 0), EINVAL);
	REFUSED((limit.flags = HPMMAP_LIMIT_F_PERCENT, limit.bytes = 101), EINVAL);
	/* Of cgroups: a user as well, and files that are none. */
	REFUSED((limit.flags = HPMMAP_LIMIT_F_CGROUP, limit.cgroup_fd = cgroup), EINVAL);
	right.flags = HPMMAP_LIMIT_F_CGROUP;
	right.uid = 0;
	REFUSED((limit.flags |= HPMMAP_LIMIT_F_DEFAULT, limit.cgroup_fd = cgroup), EINVAL);
	REFUSED(limit.cgroup_fd = -1, EBADF);
	REFUSED(limit.cgroup_fd = 9999, EBADF);
	REFUSED(limit.cgroup_fd = fd, EBADF);
	/* The root can have none. */
	REFUSED(limit.cgroup_fd = cgroup, EINVAL);
#undef REFUSED
}

static void check_limit_list(bool root)
{
	struct hpmmap_limit_entry entries[2];
	struct hpmmap_limit_list right = { .size = sizeof(right) };
	struct hpmmap_limit_list list;

	check_struct("LIMIT_LIST", HPMMAP_IOC_LIMIT_LIST, &right, sizeof(right),
		     offsetof(struct hpmmap_limit_list, flags));
	list = right;
	list.__reserved = 1;
	expect("LIMIT_LIST: __reserved", HPMMAP_IOC_LIMIT_LIST, &list, EOPNOTSUPP);
	list = right;
	expect("LIMIT_LIST: count", HPMMAP_IOC_LIMIT_LIST, &list, 0);
	/* An ordinary user is told of the default and at most of himself. */
	if (list.nr < 1 || (!root && list.nr > 2)) {
		printf("LIMIT_LIST: %u entries\n", list.nr);
		failures++;
	}
	list.nr = 1;
	list.entries = 8;
	expect("LIMIT_LIST: wrong pointer in it", HPMMAP_IOC_LIMIT_LIST, &list, EFAULT);
	memset(entries, 0x5a, sizeof(entries));
	list.nr = 1;
	list.entries = (uintptr_t)entries;
	expect("LIMIT_LIST: of one", HPMMAP_IOC_LIMIT_LIST, &list, 0);
	if (entries[1].rule != 0x5a5a5a5a5a5a5a5aULL ||
	    entries[0].flags != (HPMMAP_LIMIT_F_DEFAULT | HPMMAP_LIMIT_F_PERCENT) ||
	    entries[0].rule != 50) {
		printf("LIMIT_LIST: wrong contents\n");
		failures++;
	}
}

static void check_promise_set(bool root)
{
	struct hpmmap_promise parts[2] = { { .node = 0, .bytes = HPMMAP_BLOCK_BYTES } };
	struct hpmmap_promise_set right = {
		.size = sizeof(right), .uid = 60001, .promises = (uintptr_t)parts, .nr = 1,
	};
	struct hpmmap_promise_set set;

	if (!root) {
		expect("PROMISE_SET without the capability", HPMMAP_IOC_PROMISE_SET, &right, EPERM);
		return;
	}
	check_struct("PROMISE_SET", HPMMAP_IOC_PROMISE_SET, &right, sizeof(right),
		     offsetof(struct hpmmap_promise_set, flags));
#define REFUSED(change, want) do {						\
	set = right;								\
	change;									\
	expect("PROMISE_SET: " #change, HPMMAP_IOC_PROMISE_SET, &set, want);	\
} while (0)
	REFUSED(set.flags = HPMMAP_LIMIT_F_DEFAULT, EOPNOTSUPP);
	REFUSED(set.flags = HPMMAP_PROMISE_F_LAUNCH, EINVAL);
	REFUSED((set.flags = HPMMAP_PROMISE_F_LAUNCH | HPMMAP_LIMIT_F_CGROUP, set.uid = 0), EINVAL);
	REFUSED((set.flags = HPMMAP_LIMIT_F_CGROUP, set.uid = 0, set.cgroup_fd = -1), EBADF);
	REFUSED(set.cgroup_fd = 1, EINVAL);
	REFUSED(set.uid = ~0U, EINVAL);
	REFUSED(set.nr = ~0U, EINVAL);
	REFUSED(set.promises = 8, EFAULT);
#define PART(change, want) do {			\
	parts[0].__reserved = 0;		\
	parts[0].node = 0;			\
	parts[0].bytes = HPMMAP_BLOCK_BYTES;	\
	REFUSED(parts[0].change, want);		\
} while (0)
	PART(__reserved = 1, EOPNOTSUPP);
	PART(node = -2, EINVAL);
	PART(node = 1023, ENXIO);
	PART(bytes++, EINVAL);
	PART(bytes = 1ULL << 63, EINVAL);
	PART(bytes = 1ULL << 61, ENOSPC);
	if (set.node != 0 || set.room_bytes % HPMMAP_BLOCK_BYTES || !set.room_bytes) {
		printf("PROMISE_SET: %llu bytes of NUMA node %d\n",
		       (unsigned long long)set.room_bytes, set.node);
		failures++;
	}
	PART(node = -1, 0);
	PART(node = 0, 0);
#undef PART
	REFUSED(set.nr = 0, 0);
#undef REFUSED
}

static void check_promise_list(bool root)
{
	struct hpmmap_promise part = { .bytes = HPMMAP_BLOCK_BYTES };
	struct hpmmap_promise_set set = {
		.size = sizeof(set), .uid = 60001, .promises = (uintptr_t)&part, .nr = 1,
	};
	struct hpmmap_promise_entry entry = { 0 };
	struct hpmmap_promise_list right = { .size = sizeof(right) }, list = right;

	check_struct("PROMISE_LIST", HPMMAP_IOC_PROMISE_LIST, &right, sizeof(right),
		     offsetof(struct hpmmap_promise_list, flags));
	list.__reserved = 1;
	expect("PROMISE_LIST: __reserved", HPMMAP_IOC_PROMISE_LIST, &list, EOPNOTSUPP);
	if (!root)
		return;
	expect("PROMISE_SET", HPMMAP_IOC_PROMISE_SET, &set, 0);
	list = right;
	list.nr = 1;
	list.entries = 8;
	expect("PROMISE_LIST: wrong pointer in it", HPMMAP_IOC_PROMISE_LIST, &list, EFAULT);
	list.nr = 1;
	list.entries = (uintptr_t)&entry;
	expect("PROMISE_LIST: of one", HPMMAP_IOC_PROMISE_LIST, &list, 0);
	if (list.nr != 1 || entry.uid != 60001 || entry.promised_bytes != part.bytes ||
	    entry.flags || entry.node || entry.held_bytes) {
		printf("PROMISE_LIST: wrong contents\n");
		failures++;
	}
	set.nr = 0;
	expect("PROMISE_SET: none", HPMMAP_IOC_PROMISE_SET, &set, 0);
}

static void check_runs(bool root)
{
	static char page[4096] __attribute__((aligned(4096)));
	struct hpmmap_run run;
	struct hpmmap_runs right = {
		.size = sizeof(right), .start = (uintptr_t)page, .length = sizeof(page),
		.runs = (uintptr_t)&run, .nr = 1,
	};
	struct hpmmap_runs runs;

	if (!root) {
		expect("RUNS without the capability", HPMMAP_IOC_RUNS, &right, EPERM);
		return;
	}
	check_struct("RUNS", HPMMAP_IOC_RUNS, &right, sizeof(right),
		     offsetof(struct hpmmap_runs, flags));
#define REFUSED(change, want) do {					\
	runs = right;							\
	change;								\
	expect("RUNS: " #change, HPMMAP_IOC_RUNS, &runs, want);		\
} while (0)
	REFUSED(runs.__reserved = 1, EOPNOTSUPP);
	REFUSED(runs.start++, EINVAL);
	REFUSED(runs.length++, EINVAL);
	REFUSED(runs.length = 0, EINVAL);
	REFUSED(runs.length = -runs.start, EINVAL);
	REFUSED(runs.length = 1ULL << 63, EFAULT);
	REFUSED(runs.start = 4096, EFAULT);
	REFUSED(runs.runs = 8, EFAULT);
	REFUSED(runs.nr = 0, EMSGSIZE);
	if (runs.nr != 1) {
		printf("RUNS: %u runs of one page\n", runs.nr);
		failures++;
	}
#undef REFUSED
	expect("RUNS", HPMMAP_IOC_RUNS, &right, 0);
	if (run.length != sizeof(page) || !run.address || run.address % sizeof(page)) {
		printf("RUNS: wrong contents\n");
		failures++;
	}
}

int main(int argc, char **argv)
{
	struct hpmmap_info info = { .size = sizeof(info) };
	bool root;

	if (argc != 2 || (strcmp(argv[1], "root") && strcmp(argv[1], "member")))
		errx(2, "usage: ioctls root|member");
	root = !strcmp(argv[1], "root");
	fd = open(HPMMAP_DEVICE_PATH, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		err(1, HPMMAP_DEVICE_PATH);
	if (ioctl(fd, HPMMAP_IOC_INFO, &info))
		err(1, "HPMMAP_IOC_INFO");

	check_info();
	check_pool_add(root, info.memory_block_bytes);
	check_pool_remove(root, info.memory_block_bytes);
	check_pool_list();
	check_launch();
	if (!root)
		check_idle_jobs();
	check_limit_set(root);
	check_limit_list(root);
	check_promise_set(root);
	check_promise_list(root);
	check_runs(root);
	if (mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) != MAP_FAILED) {
		printf("the device can be mapped\n");
		failures++;
	}
	printf("%s: %d failures\n", argv[1], failures);
	return failures != 0;
}
