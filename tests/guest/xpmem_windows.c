// SPDX-License-Identifier: GPL-2.0
/* XPMEM's interface: segments, rights, attachments, their owners and their ends. */
#include "peer.h"

#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define AREA	MB(8)

enum { FORK = 1, CHILD_SEES, CHILD_WRITES, CHILD_ENDS, SEES, WRITES, REMOVE, END };

static xpmem_segid_t make(void *at, size_t len, int mode)
{
	xpmem_segid_t segid = xpmem_make(at, len, XPMEM_PERMIT_MODE, (void *)(uintptr_t)mode);

	if (segid <= 0)
		FAIL("xpmem_make: %s", errno_name(errno));
	return segid;
}

/* ---- Roles ----------------------------------------------------------- */

/* A segment of filled memory; then says whether its memory is as the other one should have made it. */
static void one_segment(int fd)
{
	char *p = map_anon(AREA);
	xpmem_segid_t segid = make(p, AREA, 0600);

	fill(p, AREA, 1);
	say(fd, segid);
	hear(fd);
	verify(p, AREA, 2, 0);
	/* Seen by the other without a call. */
	fill(p, AREA, 3);
	say(fd, 0);
	hear(fd);
	CHECK_EQ(xpmem_remove(segid), 0);
	CHECK_ERR(xpmem_remove(segid), ENOENT);
}

static void two_segments(int fd)
{
	char *p = map_anon(AREA), *q = map_anon(AREA);

	fill(p, AREA, 1);
	fill(q, AREA, 2);
	say(fd, make(p, AREA, 0600));
	say(fd, make(q, AREA, 0600));
	hear(fd);
	verify(p, AREA, 3, 0);
	verify(q, AREA, 4, 0);
}

/* Forks a child that keeps what was there then. */
static void forks(int fd)
{
	char *p = map_anon(AREA);
	int down[2], up[2];
	pid_t child = 0;
	uint64_t what;
	char byte;

	memset(p, 1, AREA);
	CHECK_OK(pipe(down));
	CHECK_OK(pipe(up));
	say(fd, make(p, AREA, 0600));
	while ((what = hear(fd)) != END) {
		uint64_t off = hear(fd);

		switch (what) {
		case FORK:
			child = fork_child();
			while (child == 0) {
				uint64_t word[2];

				if (read(down[0], word, sizeof(word)) != sizeof(word))
					_exit(1);
				if (word[0] == CHILD_ENDS)
					_exit(0);
				if (word[0] == CHILD_WRITES)
					p[word[1]] = 9;
				byte = p[word[1]];
				if (write(up[1], &byte, 1) != 1)
					_exit(1);
			}
			say(fd, 0);
			break;
		case CHILD_SEES:
		case CHILD_WRITES:
			CHECK_EQ(write(down[1], (uint64_t[]){ what, off }, 16), 16);
			CHECK_EQ(read(up[0], &byte, 1), 1);
			say(fd, byte);
			break;
		case CHILD_ENDS:
			CHECK_EQ(write(down[1], (uint64_t[]){ what, off }, 16), 16);
			expect_success(child);
			say(fd, 0);
			break;
		case SEES:
			say(fd, p[off]);
			break;
		case WRITES:
			p[off] = 7;
			say(fd, 0);
			break;
		default:
			FAIL("asked for %llu", (unsigned long long)what);
		}
	}
}

/* A segment of the mode that it hears, of an ordinary user if that is not 0, until it is told. */
static void of_a_user(int fd)
{
	xpmem_segid_t segid;
	char *p;

	if (hear(fd)) {
		become_user();
		CHECK_OK(prctl(PR_SET_DUMPABLE, 1));
	}
	p = map_anon(AREA);
	fill(p, AREA, 1);
	segid = make(p, AREA, (int)hear(fd));
	say(fd, segid);
	while (hear(fd) == REMOVE)
		say(fd, (uint64_t)xpmem_remove(segid));
}

const struct role roles[] = {
	{ "one_segment", one_segment },
	{ "two_segments", two_segments },
	{ "forks", forks },
	{ "of_a_user", of_a_user },
	{ NULL, NULL },
};

/* ---- XPMEM's four kinds of test -------------------------------------- */

static void one_attachment(void)
{
	struct peer peer;
	xpmem_apid_t apid;
	char *w;

	need_xpmem();
	peer = peer_start("one_segment");
	apid = get_right((xpmem_segid_t)hear(peer.fd), XPMEM_RDWR);
	w = attach_at(apid, 0, AREA);
	verify(w, AREA, 1, 0);
	fill(w, AREA, 2);
	ask(&peer, 0);
	verify(w, AREA, 3, 0);
	CHECK_EQ(xpmem_detach(w), 0);
	CHECK_READ_SEGV(w, SEGV_MAPERR);
	CHECK_READ_SEGV(w + AREA - 1, SEGV_MAPERR);
	CHECK_EQ(xpmem_release(apid), 0);
	CHECK_ERR(xpmem_release(apid), ENOENT);
	say(peer.fd, 0);
	peer_end(&peer);
}
PAIR(one_attachment)

/* An instruction that reads a page, which makes a read-only entry of it, and writes to the same. */
static void read_and_written_at_once(void)
{
	struct peer peer;
	xpmem_apid_t apid;
	char *w, *from, *to;
	size_t len = 1;

	need_xpmem();
	peer = peer_start("one_segment");
	apid = get_right((xpmem_segid_t)hear(peer.fd), XPMEM_RDWR);
	w = attach_at(apid, 0, AREA);
	from = w + MB(3);
	to = from + 64;
	asm volatile("rep movsb" : "+S"(from), "+D"(to), "+c"(len) : : "memory");
	CHECK_EQ(w[MB(3) + 64], w[MB(3)]);
	fill(w, AREA, 2);
	ask(&peer, 0);
	verify(w, AREA, 3, 0);
	CHECK_EQ(xpmem_detach(w), 0);
	CHECK_EQ(xpmem_release(apid), 0);
	say(peer.fd, 0);
	peer_end(&peer);
}
PAIR(read_and_written_at_once)

static void two_attachments(void)
{
	struct peer peer;
	xpmem_apid_t apid;
	char *w, *v;

	need_xpmem();
	peer = peer_start("one_segment");
	apid = get_right((xpmem_segid_t)hear(peer.fd), XPMEM_RDWR);
	w = attach_at(apid, 0, AREA);
	/* Of the same memory, from the middle of a slot on. */
	v = attach_at(apid, MB(1), AREA - MB(1));
	verify(v, AREA - MB(1), 1, MB(1));
	verify(w, AREA, 1, 0);
	fill(w, AREA, 5);
	verify(v, AREA - MB(1), 5, MB(1));
	/* The end of one is not the other's. */
	CHECK_EQ(xpmem_detach(v), 0);
	CHECK_READ_SEGV(v, SEGV_MAPERR);
	verify(w, AREA, 5, 0);
	v = attach_at(apid, MB(2), PAGE);
	CHECK_EQ(memcmp(v, w + MB(2), PAGE), 0);
	fill(w, AREA, 2);
	ask(&peer, 0);
	CHECK_EQ(xpmem_detach(w), 0);
	CHECK_EQ(xpmem_detach(v), 0);
	CHECK_EQ(xpmem_release(apid), 0);
	say(peer.fd, 0);
	peer_end(&peer);
}
PAIR(two_attachments)

static void two_segments_attached(void)
{
	xpmem_apid_t first, second;
	struct peer peer;
	char *w, *v;

	need_xpmem();
	peer = peer_start("two_segments");
	first = get_right((xpmem_segid_t)hear(peer.fd), XPMEM_RDWR);
	second = get_right((xpmem_segid_t)hear(peer.fd), XPMEM_RDWR);
	CHECK(first != second);
	w = attach_at(first, 0, AREA);
	v = attach_at(second, 0, AREA);
	verify(w, AREA, 1, 0);
	verify(v, AREA, 2, 0);
	fill(w, AREA, 3);
	fill(v, AREA, 4);
	/* The attachments by a right end with it. */
	CHECK_EQ(xpmem_release(first), 0);
	CHECK_READ_SEGV(w, SEGV_MAPERR);
	verify(v, AREA, 4, 0);
	say(peer.fd, 0);
	peer_end(&peer);
	CHECK_EQ(xpmem_detach(v), 0);
}
PAIR(two_segments_attached)

static uint64_t ask2(struct peer *peer, uint64_t what, uint64_t off)
{
	say(peer->fd, what);
	return ask(peer, off);
}

/* A write through a window is the target's: its child keeps what was there. */
static void copy_on_write(void)
{
	struct peer peer;
	xpmem_apid_t apid;
	char *w;

	need_xpmem();
	peer = peer_start("forks");
	apid = get_right((xpmem_segid_t)hear(peer.fd), XPMEM_RDWR);
	w = attach_at(apid, 0, AREA);
	/* One slot with an entry from before, others without. */
	w[0] = 2;
	ask2(&peer, FORK, 0);
	for (size_t off = 1; off < AREA; off += MB(1)) {
		CHECK_EQ(w[off], 1);
		w[off] = 3;
		CHECK_EQ(ask2(&peer, SEES, off), 3);
		CHECK_EQ(ask2(&peer, CHILD_SEES, off), 1);
		CHECK_EQ(w[off], 3);
	}
	CHECK_EQ(ask2(&peer, CHILD_SEES, 0), 2);
	/* What the target writes is in the window, what the child writes is not. */
	ask2(&peer, WRITES, 100);
	CHECK_EQ(w[100], 7);
	CHECK_EQ(ask2(&peer, CHILD_SEES, 100), 1);
	CHECK_EQ(ask2(&peer, CHILD_WRITES, 200), 9);
	CHECK_EQ(w[200], 1);
	CHECK_EQ(ask2(&peer, SEES, 200), 1);
	/* And once it is alone again. */
	ask2(&peer, CHILD_ENDS, 0);
	w[300] = 4;
	CHECK_EQ(ask2(&peer, SEES, 300), 4);
	ask2(&peer, WRITES, 400);
	CHECK_EQ(w[400], 7);
	say(peer.fd, END);
	peer_end(&peer);
	CHECK_EQ(xpmem_detach(w), 0);
}
PAIR(copy_on_write)

/* Rights that mprotect(2) gives back are not more than there were. */
static void rights_come_back(void)
{
	struct peer peer;
	xpmem_apid_t apid;
	char *w;

	need_xpmem();
	peer = peer_start("forks");
	apid = get_right((xpmem_segid_t)hear(peer.fd), XPMEM_RDWR);
	w = attach_at(apid, 0, AREA);
	ask2(&peer, FORK, 0);
	/* Entries of what parent and child have in common. */
	for (size_t off = 0; off < AREA; off += PAGE)
		CHECK_EQ(w[off], 1);
	CHECK_OK(mprotect(w, AREA, PROT_READ));
	CHECK_EQ(probe_write(w).sig, SIGSEGV);
	CHECK_OK(mprotect(w, AREA, PROT_READ | PROT_WRITE));
	for (size_t off = 0; off < AREA; off += MB(1)) {
		w[off] = 3;
		CHECK_EQ(ask2(&peer, SEES, off), 3);
		CHECK_EQ(ask2(&peer, CHILD_SEES, off), 1);
	}
	ask2(&peer, CHILD_ENDS, 0);
	say(peer.fd, END);
	peer_end(&peer);
	CHECK_EQ(xpmem_detach(w), 0);
}
PAIR(rights_come_back)

/* ---- Who may ----------------------------------------------------------- */

/* What was not attached is not to be had by way of what was. */
static void stays_within_segment(void)
{
	char *p = map_anon(AREA), *w, *q;
	xpmem_segid_t segid;
	xpmem_apid_t apid;
	size_t page = (uintptr_t)p / PAGE;

	need_xpmem();
	fill(p, AREA, 1);
	segid = make(p + MB(2), MB(2), 0600);
	apid = get_right(segid, XPMEM_RDWR);
	w = attach_at(apid, 0, MB(2));
	verify(w, MB(2), 1, MB(2));
	/* Its own pages in another order it may have, others not. */
	CHECK_ERR(syscall(SYS_remap_file_pages, w, PAGE, 0, page, 0), EINVAL);
	CHECK_ERR(syscall(SYS_remap_file_pages, w, MB(2), 0, page + MB(2) / PAGE + 1, 0), EINVAL);
	CHECK_ERR(syscall(SYS_remap_file_pages, w, PAGE, 0, page + MB(4) / PAGE, 0), EINVAL);
	q = mremap(w, MB(2), MB(4), MREMAP_MAYMOVE);
	CHECK_EQ(q == MAP_FAILED, true);
	q = mremap(w, 0, MB(2), MREMAP_MAYMOVE);
	CHECK_EQ(q == MAP_FAILED, true);
	CHECK_EQ(xpmem_detach(w), 0);
	CHECK_EQ(xpmem_remove(segid), 0);
	unmap(p, AREA);
}
SAME(stays_within_segment)


static struct peer user_peer(bool user, int mode, xpmem_segid_t *segid)
{
	struct peer peer = peer_start("of_a_user");

	say(peer.fd, user);
	say(peer.fd, mode);
	*segid = (xpmem_segid_t)hear(peer.fd);
	return peer;
}

static void user_gets(void *arg)
{
	xpmem_segid_t segid = *(xpmem_segid_t *)arg;

	become_user();
	CHECK_ERR(xpmem_get(segid, XPMEM_RDWR, XPMEM_PERMIT_MODE, NULL), EACCES);
	CHECK_ERR(xpmem_get(segid, XPMEM_RDONLY, XPMEM_PERMIT_MODE, NULL), EACCES);
}

/* Open MPI makes all its segments with this mode. */
static void other_user_is_refused(void)
{
	xpmem_segid_t segid;
	struct peer peer;

	need_xpmem();
	need_root();
	peer = user_peer(false, 0666, &segid);
	in_child(user_gets, &segid);
	say(peer.fd, END);
	peer_end(&peer);
}
SAME(other_user_is_refused)

/* A right is of whom it was when he got it, and he must still be that one. */
static void attaches_as_another(void *arg)
{
	xpmem_apid_t apid = get_right(*(xpmem_segid_t *)arg, XPMEM_RDWR);
	struct xpmem_addr addr = { apid, 0 };

	CHECK_OK(setresuid(USER, USER, USER));
	CHECK_ERR(xpmem_attach(addr, PAGE, NULL), EACCES);
}

static void other_user_does_not_attach(void)
{
	xpmem_segid_t segid;
	struct peer peer;

	need_xpmem();
	need_root();
	peer = user_peer(false, 0666, &segid);
	in_child(attaches_as_another, &segid);
	say(peer.fd, END);
	peer_end(&peer);
}
SAME(other_user_does_not_attach)

struct asks {
	xpmem_segid_t segid;
	int flags;
	int err;
};

static void same_user_gets(void *arg)
{
	struct asks *asks = arg;

	become_user();
	if (asks->err)
		CHECK_ERR(xpmem_get(asks->segid, asks->flags, XPMEM_PERMIT_MODE, NULL), asks->err);
	else
		get_right(asks->segid, asks->flags);
}

static void mode_is_obeyed(void)
{
	static const struct {
		int mode;
		int read;
		int write;
	} cases[] = {
		{ 0600, 0, 0 }, { 0400, 0, EACCES }, { 0000, EACCES, EACCES },
		/* Of others' bits those of the owner do not come. */
		{ 0066, EACCES, EACCES },
	};

	need_xpmem();
	need_root();
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct asks asks;
		struct peer peer = user_peer(true, cases[i].mode, &asks.segid);

		asks.flags = XPMEM_RDONLY;
		asks.err = cases[i].read;
		in_child(same_user_gets, &asks);
		asks.flags = XPMEM_RDWR;
		asks.err = cases[i].write;
		in_child(same_user_gets, &asks);
		say(peer.fd, END);
		peer_end(&peer);
	}
}
SAME(mode_is_obeyed)

/* ---- Read-only ----------------------------------------------------------- */

static void readonly_refuses_writes(void)
{
	int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	xpmem_segid_t segid;
	xpmem_apid_t apid;
	struct peer peer;
	char *w;

	need_xpmem();
	CHECK(zero >= 0);
	peer = peer_start("one_segment");
	segid = (xpmem_segid_t)hear(peer.fd);
	apid = get_right(segid, XPMEM_RDONLY);
	w = attach_at(apid, 0, AREA);
	CHECK_WRITE_SEGV(w, SEGV_ACCERR);
	verify(w, AREA, 1, 0);
	CHECK_WRITE_SEGV(w + MB(3), SEGV_ACCERR);
	CHECK_ERR(mprotect(w, AREA, RW), EACCES);
	CHECK_ERR(read(zero, w, PAGE), EFAULT);
	CHECK_EQ(xpmem_detach(w), 0);
	/* A right to write beside it is not bound by it. */
	w = attach_at(get_right(segid, XPMEM_RDWR), 0, AREA);
	fill(w, AREA, 2);
	ask(&peer, 0);
	CHECK_EQ(xpmem_detach(w), 0);
	say(peer.fd, 0);
	peer_end(&peer);
	close(zero);
}
PAIR(readonly_refuses_writes)

/* ---- How it ends ----------------------------------------------------------- */

static void removed_is_revoked(void)
{
	xpmem_segid_t segid;
	xpmem_apid_t apid;
	struct peer peer;
	char *w;

	need_xpmem();
	peer = user_peer(false, 0600, &segid);
	apid = get_right(segid, XPMEM_RDWR);
	w = attach_at(apid, 0, AREA);
	verify(w, AREA, 1, 0);
	/* Only who has made it. */
	CHECK_ERR(xpmem_remove(segid), EACCES);
	verify(w, AREA, 1, 0);
	CHECK_EQ(ask(&peer, REMOVE), 0);
	CHECK_SIGBUS(w);
	CHECK_SIGBUS(w + AREA - 1);
	CHECK_ERR(xpmem_attach(((struct xpmem_addr){ apid, 0 }), PAGE, NULL), ENOENT);
	CHECK_ERR(xpmem_get(segid, XPMEM_RDWR, XPMEM_PERMIT_MODE, NULL), ENOENT);
	CHECK_EQ(xpmem_detach(w), 0);
	CHECK_EQ(xpmem_release(apid), 0);
	say(peer.fd, END);
	peer_end(&peer);
}
PAIR(removed_is_revoked)

static void detach_in_the_middle(void)
{
	struct peer peer;
	xpmem_apid_t apid;
	char *w, *mine = map_anon(MB(2));

	need_xpmem();
	peer = peer_start("one_segment");
	apid = get_right((xpmem_segid_t)hear(peer.fd), XPMEM_RDWR);
	w = attach_at(apid, 0, AREA);
	verify(w, AREA, 1, 0);
	CHECK_EQ(xpmem_detach(w + AREA / 2), 0);
	CHECK_READ_SEGV(w, SEGV_MAPERR);
	CHECK_READ_SEGV(w + AREA - 1, SEGV_MAPERR);
	/* Nothing there, and something else. */
	CHECK_EQ(xpmem_detach(w), 0);
	mine[0] = 5;
	CHECK_ERR(xpmem_detach(mine), EINVAL);
	CHECK_EQ(mine[0], 5);
	/* Of one with a hole, all that is left. */
	w = attach_at(apid, 0, AREA);
	unmap(w + MB(3), MB(1));
	verify(w, MB(3), 1, 0);
	CHECK_READ_SEGV(w + MB(3), SEGV_MAPERR);
	verify(w + MB(4), MB(4), 1, MB(4));
	CHECK_EQ(xpmem_detach(w + MB(6)), 0);
	CHECK_READ_SEGV(w, SEGV_MAPERR);
	CHECK_READ_SEGV(w + AREA - 1, SEGV_MAPERR);
	unmap(mine, MB(2));
	w = attach_at(apid, 0, AREA);
	fill(w, AREA, 2);
	ask(&peer, 0);
	say(peer.fd, 0);
	peer_end(&peer);
	CHECK_EQ(xpmem_detach(w), 0);
}
SAME(detach_in_the_middle)

static void does_not_move(void)
{
	struct peer peer;
	char *w, *to;

	need_xpmem();
	peer = peer_start("one_segment");
	w = attach_at(get_right((xpmem_segid_t)hear(peer.fd), XPMEM_RDWR), 0, AREA);
	to = free_range(2 * AREA);
	CHECK(mremap(w, AREA, AREA, MREMAP_MAYMOVE | MREMAP_FIXED, to) == MAP_FAILED);
	CHECK(mremap(w, AREA, 2 * AREA, MREMAP_MAYMOVE) == MAP_FAILED);
	verify(w, AREA, 1, 0);
	CHECK_READ_SEGV(to, SEGV_MAPERR);
	fill(w, AREA, 2);
	ask(&peer, 0);
	CHECK_EQ(xpmem_detach(w), 0);
	say(peer.fd, 0);
	peer_end(&peer);
}
SAME(does_not_move)

/* ---- Processes ----------------------------------------------------------- */

/* The child has neither the window nor the right; with its own device file it gets both. */
static void child_has_its_own(void)
{
	char *p = map_anon(AREA), *w;
	xpmem_segid_t segid;
	xpmem_apid_t apid;
	pid_t child;

	need_xpmem();
	fill(p, AREA, 1);
	segid = make(p, AREA, 0600);
	apid = get_right(segid, XPMEM_RDWR);
	/* A window onto oneself. */
	w = attach_at(apid, 0, AREA);
	CHECK(w != p);
	verify(w, AREA, 1, 0);
	child = fork_child();
	if (child == 0) {
		xpmem_segid_t own;
		char *v;

		CHECK_READ_SEGV(w, SEGV_MAPERR);
		/* Only copied: not the parent's. */
		fill(p, AREA, 9);
		CHECK_ERR(xpmem_attach(((struct xpmem_addr){ apid, 0 }), PAGE, NULL), EACCES);
		CHECK_ERR(xpmem_remove(segid), EACCES);
		v = attach_at(get_right(segid, XPMEM_RDWR), 0, AREA);
		verify(v, AREA, 1, 0);
		fill(v, AREA, 2);
		own = make(p, AREA, 0600);
		CHECK(own != segid);
		v = attach_at(get_right(own, XPMEM_RDWR), 0, AREA);
		verify(v, AREA, 9, 0);
		_exit(0);
	}
	expect_success(child);
	/* The child's end is nothing to the parent's. */
	verify(w, AREA, 2, 0);
	verify(p, AREA, 2, 0);
	fill(w, AREA, 3);
	verify(p, AREA, 3, 0);
	CHECK_EQ(xpmem_detach(w), 0);
	CHECK_EQ(xpmem_release(apid), 0);
	CHECK_EQ(xpmem_remove(segid), 0);
	unmap(p, AREA);
}
SAME(child_has_its_own)

static void ends_with_its_process(void)
{
	xpmem_segid_t segid;
	xpmem_apid_t apid;
	struct peer peer;
	char *w;

	need_xpmem();
	peer = user_peer(false, 0600, &segid);
	apid = get_right(segid, XPMEM_RDWR);
	w = attach_at(apid, 0, AREA);
	verify(w, AREA, 1, 0);
	say(peer.fd, END);
	peer_end(&peer);
	CHECK_SIGBUS(w);
	CHECK_ERR(xpmem_get(segid, XPMEM_RDWR, XPMEM_PERMIT_MODE, NULL), ENOENT);
	CHECK_ERR(xpmem_attach(((struct xpmem_addr){ apid, 0 }), PAGE, NULL), ENOENT);
	CHECK_EQ(xpmem_detach(w), 0);
	CHECK_EQ(xpmem_release(apid), 0);
}
PAIR(ends_with_its_process)

/* Programs close all files they do not know, and the library's is one. */
static void device_is_closed(void)
{
	char *p = map_anon(AREA);
	pid_t child;

	need_xpmem();
	child = fork_child();
	if (child == 0) {
		xpmem_segid_t segid = make(p, AREA, 0600);

		CHECK_OK(close_range(3, ~0U, 0));
		CHECK_ERR(xpmem_get(segid, XPMEM_RDWR, XPMEM_PERMIT_MODE, NULL), ENOENT);
		/* Its number is another file's by now. */
		CHECK(open("/dev/null", O_RDWR) >= 0);
		segid = make(p, AREA, 0600);
		p[5] = 5;
		CHECK_EQ(attach_at(get_right(segid, XPMEM_RDWR), 0, AREA)[5], 5);
		_exit(0);
	}
	expect_success(child);
	unmap(p, AREA);
}
SAME(device_is_closed)

static double seconds(void)
{
	struct timespec now;

	CHECK_OK(clock_gettime(CLOCK_MONOTONIC, &now));
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/*
 * The end of many segments, rights and attachments takes no longer than to make them: who exits
 * cannot be killed.
 */
static void many_end_at_once(void)
{
	enum { MANY = 2500 };
	char *p = map_anon(AREA), *w = NULL;
	pid_t child;

	need_xpmem();
	child = fork_child();
	if (child == 0) {
		double begun = seconds(), made, closed;

		for (int i = 0; i < MANY; i++) {
			xpmem_apid_t apid = get_right(make(p, AREA, 0600), XPMEM_RDWR);

			w = attach_at(apid, 0, PAGE);
		}
		made = seconds();
		CHECK_OK(close_range(3, ~0U, 0));
		closed = seconds();
		CHECK_EQ(probe_read(w).sig, SIGSEGV);
		if (closed - made > 4 * (made - begun))
			FAIL("made in %.2f s, and ended in %.2f s", made - begun, closed - made);
		_exit(0);
	}
	expect_success(child);
	unmap(p, AREA);
}
SAME(many_end_at_once)

/* ---- Arguments ----------------------------------------------------------- */

#define MODE(n)	((void *)(uintptr_t)(n))

static void wrong_arguments(void)
{
	char *p = map_anon(AREA), *w;
	const xpmem_segid_t none = 0x7fffffff;
	struct xpmem_addr addr = { 0, 0 };
	xpmem_segid_t segid;
	xpmem_apid_t apid;
	int fd;

	need_xpmem();
	CHECK_ERR(xpmem_make(p + 1, AREA, XPMEM_PERMIT_MODE, MODE(0600)), EINVAL);
	CHECK_ERR(xpmem_make(p, AREA - 1, XPMEM_PERMIT_MODE, MODE(0600)), EINVAL);
	CHECK_ERR(xpmem_make(p, 0, XPMEM_PERMIT_MODE, MODE(0600)), EINVAL);
	CHECK_ERR(xpmem_make(p, AREA, 0, MODE(0600)), EINVAL);
	CHECK_ERR(xpmem_make(p, AREA, XPMEM_PERMIT_MODE, MODE(01600)), EINVAL);
	segid = make(p, AREA, 0600);

	CHECK_ERR(xpmem_get(0, XPMEM_RDWR, XPMEM_PERMIT_MODE, NULL), EINVAL);
	CHECK_ERR(xpmem_get(-5, XPMEM_RDWR, XPMEM_PERMIT_MODE, NULL), EINVAL);
	CHECK_ERR(xpmem_get(none, XPMEM_RDWR, XPMEM_PERMIT_MODE, NULL), ENOENT);
	CHECK_ERR(xpmem_get(segid, 0, XPMEM_PERMIT_MODE, NULL), EINVAL);
	CHECK_ERR(xpmem_get(segid, 3, XPMEM_PERMIT_MODE, NULL), EINVAL);
	CHECK_ERR(xpmem_get(segid, XPMEM_RDWR, 0, NULL), EINVAL);
	/* As Open MPI calls it. */
	apid = xpmem_get(segid, XPMEM_RDWR, XPMEM_PERMIT_MODE, MODE(0666));
	CHECK(apid > 0);

	addr.apid = 0;
	CHECK_ERR(xpmem_attach(addr, PAGE, NULL), EINVAL);
	addr.apid = none;
	CHECK_ERR(xpmem_attach(addr, PAGE, NULL), ENOENT);
	addr.apid = apid;
	CHECK_ERR(xpmem_attach(addr, 0, NULL), EINVAL);
	CHECK_ERR(xpmem_attach(addr, AREA + 1, NULL), EINVAL);
	CHECK_ERR(xpmem_attach(addr, (size_t)-1, NULL), EINVAL);
	addr.offset = 1;
	CHECK_ERR(xpmem_attach(addr, PAGE, NULL), EINVAL);
	addr.offset = AREA;
	CHECK_ERR(xpmem_attach(addr, PAGE, NULL), EINVAL);
	addr.offset = -(off_t)PAGE;
	CHECK_ERR(xpmem_attach(addr, PAGE, NULL), EINVAL);
	addr.offset = 0;
	CHECK_ERR(xpmem_attach(addr, PAGE, p + 1), EINVAL);

	/* A size that is no multiple of a page is rounded up, and a free place is taken as it is given. */
	w = free_range(AREA);
	CHECK(xpmem_attach(addr, PAGE + 1, w) == w);
	w[2 * PAGE - 1] = 1;
	CHECK_EQ(p[2 * PAGE - 1], 1);
	CHECK_READ_SEGV(w + 2 * PAGE, SEGV_MAPERR);
	CHECK_EQ(xpmem_detach(w), 0);
	/* One that is not free stays what it is. */
	p[0] = 3;
	CHECK_ERR(xpmem_attach(addr, PAGE, p), EEXIST);
	CHECK_EQ(p[0], 3);

	CHECK_ERR(xpmem_remove(0), EINVAL);
	CHECK_ERR(xpmem_release(-1), EINVAL);
	CHECK_ERR(xpmem_remove(none), ENOENT);
	CHECK_ERR(xpmem_release(none), ENOENT);
	CHECK_EQ(xpmem_release(apid), 0);
	CHECK_ERR(xpmem_attach(addr, PAGE, NULL), ENOENT);
	CHECK_EQ(xpmem_remove(segid), 0);

	fd = open("/dev/xpmem", O_RDWR | O_CLOEXEC);
	CHECK(fd >= 0);
	CHECK_ERR(ioctl(fd, _IO('x', 9), 0), ENOTTY);
	CHECK_ERR(ioctl(fd, _IO('y', 0), 0), ENOTTY);
	CHECK_ERR(ioctl(fd, _IO('x', 1), 1), EFAULT);
	CHECK_ERR(ioctl(fd, _IO('x', 5), 1), EFAULT);
	/* They may do nothing. */
	CHECK_EQ(ioctl(fd, _IO('x', 7), 0), 0);
	CHECK_EQ(ioctl(fd, _IO('x', 8), 0), 0);
	close(fd);
	unmap(p, AREA);
}
SAME(wrong_arguments)

/* A segment of all there is, beyond what there is. */
static void size_is_clipped(void)
{
	char *p = map_anon(AREA), *w;
	xpmem_segid_t segid;
	xpmem_apid_t apid;

	need_xpmem();
	fill(p, AREA, 1);
	segid = make(p, XPMEM_MAXADDR_SIZE, 0600);
	apid = get_right(segid, XPMEM_RDWR);
	w = attach_at(apid, 0, AREA);
	verify(w, AREA, 1, 0);
	CHECK_ERR(xpmem_attach(((struct xpmem_addr){ apid, (off_t)1 << 57 }), PAGE, NULL), EINVAL);
	CHECK_EQ(xpmem_remove(segid), 0);
	CHECK_SIGBUS(w);
	CHECK_EQ(xpmem_detach(w), 0);
	unmap(p, AREA);
}
SAME(size_is_clipped)

static const struct test tests[] = {
	T_PAIR(one_attachment),
	T_PAIR(read_and_written_at_once),
	T_PAIR(two_attachments),
	T_PAIR(two_segments_attached),
	T_PAIR(copy_on_write),
	T_PAIR(rights_come_back),
	T_SAME(stays_within_segment),
	T_SAME(other_user_is_refused),
	T_SAME(other_user_does_not_attach),
	T_SAME(mode_is_obeyed),
	T_PAIR(readonly_refuses_writes),
	T_PAIR(removed_is_revoked),
	T_SAME(detach_in_the_middle),
	T_SAME(does_not_move),
	T_SAME(child_has_its_own),
	T_PAIR(ends_with_its_process),
	T_SAME(device_is_closed),
	T_SAME(many_end_at_once),
	T_SAME(wrong_arguments),
	T_SAME(size_is_clipped),
};

int main(int argc, char **argv)
{
	peer_main(argc, argv);
	return RUN_GROUP("xpmem_windows", tests);
}
