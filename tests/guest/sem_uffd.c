// SPDX-License-Identifier: GPL-2.0
/*
 * userfaultfd: in one's own memory, in that of others, and with a monitor that
 * needs calls of its own. As an ordinary user where Linux lets one.
 */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef UFFD_FEATURE_WP_ASYNC
#define UFFD_FEATURE_WP_ASYNC (1 << 15)
#endif

#define NOBODY 65534

static void become_nobody(void)
{
	CHECK_OK(syscall(SYS_setresgid, NOBODY, NOBODY, NOBODY));
	CHECK_OK(syscall(SYS_setresuid, NOBODY, NOBODY, NOBODY));
}

/* -1 where this kernel has not the features. */
static int uffd_open(uint64_t features)
{
	struct uffdio_api api = { .api = UFFD_API, .features = features };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);

	if (fd < 0)
		SKIP("userfaultfd: %s", errno_name(errno));
	if (ioctl(fd, UFFDIO_API, &api) != 0) {
		close(fd);
		return -1;
	}
	return fd;
}

static int uffd_register(int fd, void *addr, size_t len, uint64_t mode)
{
	struct uffdio_register reg = {
		.range = { (uintptr_t)addr, len },
		.mode = mode,
	};

	return ioctl(fd, UFFDIO_REGISTER, &reg);
}

static int uffd_unregister(int fd, void *addr, size_t len)
{
	struct uffdio_range range = { (uintptr_t)addr, len };

	return ioctl(fd, UFFDIO_UNREGISTER, &range);
}

/* ---- Memory of another process -------------------------------------------------- */

/* What is done to the memory of another process must not be done by half. */
static void touch_registration(int fd, char *p)
{
	static const uint64_t modes[] = {
		UFFDIO_REGISTER_MODE_WP,
		UFFDIO_REGISTER_MODE_MISSING,
		UFFDIO_REGISTER_MODE_MINOR,
	};

	for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
		uffd_register(fd, p + MB(3), PAGE, modes[i]);
		uffd_unregister(fd, p + MB(3), PAGE);
		uffd_register(fd, p + SLOT, SLOT, modes[i]);
		uffd_unregister(fd, p + SLOT + MB(1), PAGE);
		uffd_unregister(fd, p, MB(8));
	}
}

enum there { SAME, OTHER, NOTHING, NO_NEIGHBOUR };

static void the_child_at(char *p, enum there there)
{
	if (there == OTHER)
		stamp(p, MB(8), 99);
	if (there == NOTHING)
		unmap(p, MB(8));
	/* No tables below the address either. */
	if (there == NO_NEIGHBOUR)
		unmap((char *)((uintptr_t)p & ~(uintptr_t)(GB(1) - 1)), GB(1));
}

static void child_registers_in_parent(uint64_t features, enum there there)
{
	int fd = uffd_open(features);
	char *p, *quiet;
	pid_t child;

	if (fd < 0)
		return;
	/* In a gigabyte where there is nothing else. */
	quiet = free_range(GB(3));
	p = (char *)(((uintptr_t)quiet + GB(2)) & ~(uintptr_t)(GB(1) - 1));
	p = map_flags(p, MB(8), RW, ANON | MAP_FIXED_NOREPLACE);
	stamp(p, MB(8), 1);
	child = fork_child();
	if (!child) {
		the_child_at(p, there);
		touch_registration(fd, p);
		_exit(0);
	}
	expect_success(child);
	verify_stamp(p, MB(8), 1);
	stamp(p, MB(8), 2);
	/* Once more, with the block of the child gone. */
	child = fork_child();
	if (!child) {
		verify_stamp(p, MB(8), 2);
		_exit(0);
	}
	expect_success(child);
	verify_stamp(p, MB(8), 2);
	unmap(p, MB(8));
	close(fd);
}

static void parent_registers_in_child(uint64_t features)
{
	char *p = map_anon(MB(8));
	int to_child[2], to_parent[2], fd = -1, status;
	pid_t child;
	char c = 0;

	stamp(p, MB(4), 1);
	stamp(p + MB(4), MB(4), 1);
	CHECK_OK(pipe(to_child));
	CHECK_OK(pipe(to_parent));
	/* Its userfaultfd comes by way of a table of files that both have. */
	child = (pid_t)syscall(SYS_clone, 0x400 /* CLONE_FILES */ | SIGCHLD, 0, 0, 0, 0);
	CHECK_OK(child);
	if (!child) {
		default_signals();
		stamp(p, MB(8), 3);
		fd = uffd_open(features);
		CHECK_EQ(write(to_parent[1], &fd, sizeof(fd)), sizeof(fd));
		CHECK_EQ(read(to_child[0], &c, 1), 1);
		verify_stamp(p, MB(8), 3);
		stamp(p, MB(8), 4);
		verify_stamp(p, MB(8), 4);
		_exit(0);
	}
	CHECK_EQ(read(to_parent[0], &fd, sizeof(fd)), sizeof(fd));
	if (fd >= 0)
		touch_registration(fd, p);
	verify_stamp(p, MB(4), 1);
	unmap(p, MB(4));
	if (fd >= 0)
		touch_registration(fd, p);
	CHECK_EQ(write(to_child[1], &c, 1), 1);
	status = wait_child(child);
	CHECK(WIFEXITED(status));
	CHECK_EQ(WEXITSTATUS(status), 0);
	verify_stamp(p + MB(4), MB(4), 1);
	unmap(p + MB(4), MB(4));
	if (fd >= 0)
		close(fd);
	for (int i = 0; i < 2; i++) {
		close(to_child[i]);
		close(to_parent[i]);
	}
}

static const uint64_t feature_sets[] = {
	0,
	UFFD_FEATURE_WP_ASYNC,
	UFFD_FEATURE_WP_ASYNC | UFFD_FEATURE_EVENT_UNMAP,
};

static void others_as_nobody(void *arg)
{
	(void)arg;
	become_nobody();
	for (size_t i = 0; i < ARRAY_SIZE(feature_sets); i++) {
		for (enum there there = SAME; there <= NO_NEIGHBOUR; there++)
			child_registers_in_parent(feature_sets[i], there);
		parent_registers_in_child(feature_sets[i]);
	}
}

static void registrations_in_another_process(void)
{
	in_child(others_as_nobody, NULL);
}

int main(void)
{
	static const struct test tests[] = {
		T(registrations_in_another_process),
	};

	return RUN_GROUP("sem_uffd", tests);
}
