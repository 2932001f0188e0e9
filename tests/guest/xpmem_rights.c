// SPDX-License-Identifier: GPL-2.0
/* Windows onto processes that the caller may not trace, and onto those that it may. */
#include "peer.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

#define AREA		MB(4)
#define GROUP		2005
#define PROGRAM		"/tmp/xpmem_rights"
#define YAMA		"/proc/sys/kernel/yama/ptrace_scope"

enum { MAKE = 1, BECOME_USER, LOWER, RAISE, DUMPABLE, UNDUMPABLE, EXECUTE, AREA_AT, END };

/* ---- The target ------------------------------------------------------ */

/* Does what it is told, and says 0 or an errno; of MAKE it hears the mode, and says a segment or minus an errno. */
static void obeys(int fd)
{
	char *p = map_anon(AREA), number[16];
	int64_t ret;
	uint64_t what;

	fill(p, AREA, 1);
	while ((what = hear(fd)) != END) {
		ret = 0;
		switch (what) {
		case MAKE:
			ret = xpmem_make(p, AREA, XPMEM_PERMIT_MODE, (void *)(uintptr_t)hear(fd));
			ret = ret > 0 ? ret : -errno;
			break;
		case BECOME_USER:
			become_user();
			break;
		case LOWER:
			CHECK_OK(seteuid(USER));
			break;
		case RAISE:
			CHECK_OK(seteuid(0));
			break;
		case DUMPABLE:
		case UNDUMPABLE:
			CHECK_OK(prctl(PR_SET_DUMPABLE, what == DUMPABLE));
			break;
		case EXECUTE:
			snprintf(number, sizeof(number), "%d", fd);
			CHECK_OK(fcntl(fd, F_SETFD, 0));
			execl(PROGRAM, PROGRAM, "--role", "obeys", number, NULL);
			FAIL("cannot be executed: %s", errno_name(errno));
		case AREA_AT:
			ret = (int64_t)(uintptr_t)p;
			break;
		default:
			FAIL("told %llu", (unsigned long long)what);
		}
		say(fd, (uint64_t)ret);
	}
}

static void *obeys_in_thread(void *arg)
{
	obeys((int)(intptr_t)arg);
	_exit(0);
}

/* A process whose first thread has ended has an address space all the same. */
static void obeys_without_first(int fd)
{
	start_thread(obeys_in_thread, (void *)(intptr_t)fd);
	pthread_exit(NULL);
}

const struct role roles[] = {
	{ "obeys", obeys },
	{ "obeys_without_first", obeys_without_first },
	{ NULL, NULL },
};

static int64_t ask_make(struct peer *peer, int mode)
{
	say(peer->fd, MAKE);
	return (int64_t)ask(peer, (uint64_t)mode);
}

static xpmem_segid_t made(struct peer *peer, int mode)
{
	int64_t segid = ask_make(peer, mode);

	if (segid <= 0)
		FAIL("xpmem_make: %s", errno_name((int)-segid));
	return segid;
}

static struct peer target_start(void)
{
	need_xpmem();
	need_root();
	return peer_start("obeys");
}

static void target_end(struct peer *peer)
{
	say(peer->fd, END);
	peer_end(peer);
}

/* ---- The viewer ------------------------------------------------------ */

static void refused(xpmem_segid_t segid)
{
	CHECK_ERR(xpmem_get(segid, XPMEM_RDWR, XPMEM_PERMIT_MODE, NULL), EACCES);
	CHECK_ERR(xpmem_get(segid, XPMEM_RDONLY, XPMEM_PERMIT_MODE, NULL), EACCES);
}

static char *window(xpmem_segid_t segid)
{
	char *w = attach_at(get_right(segid, XPMEM_RDWR), 0, AREA);

	verify(w, AREA, 1, 0);
	return w;
}

struct view {
	struct peer *peer;
	xpmem_segid_t segid;
};

static int read_by_call(struct peer *peer)
{
	char byte;
	struct iovec to = { &byte, 1 }, from = { (void *)(uintptr_t)ask(peer, AREA_AT), 1 };

	return process_vm_readv(peer->pid, &to, 1, &from, 1, 0) == 1 ? 0 : errno;
}

/* What the kernel does not let the user read by a call is in no window. */
static void user_is_refused(void *arg)
{
	struct view *view = arg;

	become_user();
	CHECK_EQ(read_by_call(view->peer), EPERM);
	refused(view->segid);
}

/* ---- Programs that have more rights than their user -------------------- */

static void program_make(void (*give)(const char *path))
{
	struct statvfs fs;
	char command[512];

	snprintf(command, sizeof(command), "cp /proc/%d/exe %s", getpid(), PROGRAM);
	CHECK_EQ(system(command), 0);
	CHECK_OK(statvfs(PROGRAM, &fs));
	if (fs.f_flag & ST_NOSUID)
		SKIP("/tmp is mounted nosuid");
	give(PROGRAM);
}

static void give_group(const char *path)
{
	CHECK_OK(chown(path, 0, GROUP));
	CHECK_OK(chmod(path, 02755));
}

static void give_capability(const char *path)
{
	struct vfs_cap_data caps = {
		.magic_etc = VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE,
		.data[0].permitted = 1u << CAP_NET_RAW,
	};

	CHECK_OK(chmod(path, 0755));
	if (setxattr(path, "security.capability", &caps, sizeof(caps), 0) != 0)
		SKIP("a file in /tmp cannot have capabilities: %s", errno_name(errno));
}

static void program_has_more_rights(void (*give)(const char *path))
{
	struct peer peer = target_start();
	struct view view = { &peer, 0 };

	program_make(give);
	CHECK_EQ(ask(&peer, BECOME_USER), 0);
	say(peer.fd, EXECUTE);
	hear(peer.fd);
	say(peer.fd, true);
	CHECK_EQ(ask_make(&peer, 0666), -EACCES);
	/* The program may say that it has no secret; it has its rights all the same. */
	CHECK_EQ(ask(&peer, DUMPABLE), 0);
	view.segid = made(&peer, 0666);
	in_child(user_is_refused, &view);
	CHECK_OK(unlink(PROGRAM));
	target_end(&peer);
}

static void set_group_id_program(void)
{
	program_has_more_rights(give_group);
}
SAME(set_group_id_program)

static void program_with_capabilities(void)
{
	program_has_more_rights(give_capability);
}
SAME(program_with_capabilities)

static void daemon_lowers_its_user(void)
{
	struct peer peer = target_start();
	struct view view = { &peer, made(&peer, 0666) };

	CHECK_EQ(ask(&peer, LOWER), 0);
	CHECK_EQ(ask_make(&peer, 0600), -EACCES);
	in_child(user_is_refused, &view);
	CHECK_EQ(ask(&peer, DUMPABLE), 0);
	view.segid = made(&peer, 0600);
	in_child(user_is_refused, &view);
	CHECK_EQ(ask(&peer, RAISE), 0);
	in_child(user_is_refused, &view);
	target_end(&peer);
}
SAME(daemon_lowers_its_user)

/* ---- Rights that change ------------------------------------------------ */

static void sees_it_change(void *arg)
{
	struct view *view = arg;
	xpmem_apid_t apid;
	char *w;

	become_user();
	apid = get_right(view->segid, XPMEM_RDWR);
	w = attach_at(apid, 0, AREA);
	CHECK_EQ(ask(view->peer, UNDUMPABLE), 0);
	CHECK_EQ(read_by_call(view->peer), EPERM);
	refused(view->segid);
	CHECK_ERR(xpmem_attach(((struct xpmem_addr){ apid, 0 }), PAGE, NULL), EACCES);
	/* As a file of /proc/PID/mem stays open. */
	verify(w, AREA, 1, 0);
	CHECK_EQ(ask(view->peer, DUMPABLE), 0);
	CHECK_EQ(read_by_call(view->peer), 0);
	window(view->segid);
	attach_at(apid, 0, AREA);
}

static void target_gets_a_secret(void)
{
	struct peer peer = target_start();
	struct view view = { &peer, 0 };

	CHECK_EQ(ask(&peer, BECOME_USER), 0);
	CHECK_EQ(ask_make(&peer, 0600), -EACCES);
	CHECK_EQ(ask(&peer, DUMPABLE), 0);
	view.segid = made(&peer, 0600);
	in_child(sees_it_change, &view);
	/* Root may trace what is not dumpable. */
	CHECK_EQ(ask(&peer, UNDUMPABLE), 0);
	window(view.segid);
	target_end(&peer);
}
SAME(target_gets_a_secret)

/* CAP_IPC_OWNER, as for segments of System V. */
static void root_needs_no_mode(void)
{
	struct peer peer = target_start();

	for (int user = 0; user <= 1; user++) {
		window(made(&peer, 0400));
		window(made(&peer, 0200));
		window(made(&peer, 0));
		if (user)
			break;
		CHECK_EQ(ask(&peer, BECOME_USER), 0);
		CHECK_EQ(ask(&peer, DUMPABLE), 0);
	}
	target_end(&peer);
}
SAME(root_needs_no_mode)

static void user_does_not_get(void *arg)
{
	become_user();
	refused(((struct view *)arg)->segid);
}

static void user_attaches(void *arg)
{
	become_user();
	window(((struct view *)arg)->segid);
}

/* Until then it has its address space, and the user ID that it was started with. */
static void await_end_of_first(pid_t pid)
{
	char path[64], state;
	FILE *stat;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", pid, pid);
	do {
		usleep(1000);
		stat = fopen(path, "r");
		CHECK(stat && fscanf(stat, "%*d %*s %c", &state) == 1);
		fclose(stat);
	} while (state != 'Z');
}

static void first_thread_has_ended(void)
{
	struct view view;
	struct peer peer;

	need_xpmem();
	need_root();
	peer = peer_start("obeys_without_first");
	await_end_of_first(peer.pid);
	view = (struct view){ &peer, made(&peer, 0666) };
	window(view.segid);
	in_child(user_does_not_get, &view);
	CHECK_EQ(ask(&peer, BECOME_USER), 0);
	CHECK_EQ(ask(&peer, DUMPABLE), 0);
	view.segid = made(&peer, 0600);
	in_child(user_attaches, &view);
	target_end(&peer);
}
SAME(first_thread_has_ended)

/* ---- Yama -------------------------------------------------------------- */

static void set_scope(char scope)
{
	int fd = open(YAMA, O_WRONLY);

	CHECK_OK(fd);
	CHECK_EQ(write(fd, &scope, 1), 1);
	close(fd);
}

static void sibling_attaches(void *arg)
{
	struct view *view = arg;

	become_user();
	CHECK_EQ(read_by_call(view->peer), EPERM);
	window(view->segid);
}

/* Ranks of an MPI job are siblings: a segment is their agreement, for which Yama looks. */
static void yama_is_not_asked(void)
{
	struct peer peer = target_start();
	struct view view = { &peer, 0 };

	if (access(YAMA, W_OK) != 0)
		SKIP("there is no Yama");
	CHECK_EQ(ask(&peer, BECOME_USER), 0);
	CHECK_EQ(ask(&peer, DUMPABLE), 0);
	view.segid = made(&peer, 0600);
	set_scope('1');
	in_child(sibling_attaches, &view);
	set_scope('0');
	target_end(&peer);
}
SAME(yama_is_not_asked)

static const struct test tests[] = {
	T_SAME(set_group_id_program),
	T_SAME(program_with_capabilities),
	T_SAME(daemon_lowers_its_user),
	T_SAME(target_gets_a_secret),
	T_SAME(root_needs_no_mode),
	T_SAME(first_thread_has_ended),
	T_SAME(yama_is_not_asked),
};

int main(int argc, char **argv)
{
	peer_main(argc, argv);
	return RUN_GROUP("xpmem_rights", tests);
}
