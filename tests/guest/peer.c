// SPDX-License-Identifier: GPL-2.0
#include "peer.h"

#include <fcntl.h>
#include <grp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

bool other_kind;

static _Noreturn void play(const char *name, int fd)
{
	for (const struct role *role = roles; role->name; role++) {
		if (strcmp(role->name, name) == 0) {
			role->play(fd);
			_exit(0);
		}
	}
	FAIL("there is no role \"%s\"", name);
}

/* Says of which kind it is, and goes if that is not the one that is wanted. */
static _Noreturn void introduce(const char *name, int fd)
{
	say(fd, registered());
	if (!hear(fd))
		_exit(0);
	play(name, fd);
}

void peer_main(int argc, char **argv)
{
	int fd;

	if (argc != 4 || strcmp(argv[1], "--role") != 0)
		return;
	fd = atoi(argv[3]);
	CHECK_OK(fcntl(fd, F_SETFD, FD_CLOEXEC));
	introduce(argv[2], fd);
}

static _Noreturn void execute(const char *name, int fd)
{
	char self[256], number[16];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	CHECK(n > 0);
	self[n] = '\0';
	snprintf(number, sizeof(number), "%d", fd);
	CHECK_OK(fcntl(fd, F_SETFD, 0));
	if (registered())
		execl(self, self, "--role", name, number, NULL);
	else
		execlp("hpmmap", "hpmmap", "run", "--", self, "--role", name, number, NULL);
	FAIL("cannot be executed: %s", errno_name(errno));
}

struct peer peer_start(const char *role)
{
	struct peer peer;
	bool wanted;
	int fds[2];

	CHECK_OK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
	peer.pid = fork_child();
	if (peer.pid == 0) {
		close(fds[0]);
		/* Who has failed leaves nobody behind. */
		alarm(120);
		if (other_kind)
			execute(role, fds[1]);
		introduce(role, fds[1]);
	}
	close(fds[1]);
	peer.fd = fds[0];
	wanted = (hear(peer.fd) != registered()) == other_kind;
	say(peer.fd, wanted);
	if (!wanted) {
		peer_end(&peer);
		SKIP("with --no-inherit children are not registered, without it what they execute is, too");
	}
	return peer;
}

void peer_end(struct peer *peer)
{
	close(peer->fd);
	expect_success(peer->pid);
}

void say(int fd, uint64_t value)
{
	CHECK_EQ(send(fd, &value, sizeof(value), MSG_NOSIGNAL), sizeof(value));
}

uint64_t hear(int fd)
{
	uint64_t value;
	ssize_t n = recv(fd, &value, sizeof(value), MSG_WAITALL);

	if (n == 0)
		FAIL("the other one has gone");
	CHECK_EQ(n, sizeof(value));
	return value;
}

uint64_t ask(struct peer *peer, uint64_t value)
{
	say(peer->fd, value);
	return hear(peer->fd);
}

void need_root(void)
{
	if (geteuid() != 0)
		SKIP("becoming another user needs root");
}

void become_user(void)
{
	struct stat st;

	CHECK_OK(stat("/dev/xpmem", &st));
	CHECK_OK(setgroups(1, &st.st_gid));
	CHECK_OK(setresgid(USER, USER, USER));
	CHECK_OK(setresuid(USER, USER, USER));
}

void need_xpmem(void)
{
	if (access(HPMMAP_SYSFS_PATH, F_OK) != 0)
		SKIP("the module is not loaded");
	CHECK_EQ(xpmem_version(), 0x26005);
}

xpmem_segid_t make_all(int mode)
{
	xpmem_segid_t segid = xpmem_make(NULL, XPMEM_MAXADDR_SIZE, XPMEM_PERMIT_MODE, (void *)(uintptr_t)mode);

	if (segid <= 0)
		FAIL("xpmem_make: %s", errno_name(errno));
	return segid;
}

xpmem_apid_t get_right(xpmem_segid_t segid, int flags)
{
	xpmem_apid_t apid = xpmem_get(segid, flags, XPMEM_PERMIT_MODE, NULL);

	if (apid <= 0)
		FAIL("xpmem_get: %s", errno_name(errno));
	return apid;
}

char *attach_at(xpmem_apid_t apid, uint64_t address, size_t len)
{
	struct xpmem_addr addr = { apid, (off_t)address };
	void *got = xpmem_attach(addr, len, NULL);

	if (got == (void *)-1)
		FAIL("xpmem_attach(%#llx, %#zx): %s", (unsigned long long)address, len, errno_name(errno));
	return got;
}
