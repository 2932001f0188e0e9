/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tests in which processes have windows onto each other: the test itself attaches, and
 * a peer beside it, which plays a role, is the target.
 *
 * A role is a function that exchanges numbers with the test.
 * The peer is a child, or where other_kind is set a program of its own that is registered
 * if the test's process is not, and the other way round.
 */
#ifndef HPMMAP_TESTS_PEER_H
#define HPMMAP_TESTS_PEER_H

#include "common.h"
#include "xpmem.h"

/* An ordinary user, for become_user(). */
#define USER	2001

struct role {
	const char *name;
	void (*play)(int fd);
};

struct peer {
	pid_t pid;
	int fd;
};

/* All of them, ended by an entry without a name. */
extern const struct role roles[];
extern bool other_kind;

/* main() calls it first: does not return in a process that plays a role. */
void peer_main(int argc, char **argv);
struct peer peer_start(const char *role);
/* Ends it; it must not have failed. */
void peer_end(struct peer *peer);

void say(int fd, uint64_t value);
uint64_t hear(int fd);
/* Tells it what to do next, and hears what came of it. */
uint64_t ask(struct peer *peer, uint64_t value);

void need_root(void);
/* For good, and in the group that may open the device. Not dumpable, as the kernel leaves it. */
void become_user(void);

/* Skips where the module is not loaded. */
void need_xpmem(void);
/* The whole address space, for those with this mode. */
xpmem_segid_t make_all(int mode);
xpmem_apid_t get_right(xpmem_segid_t segid, int flags);
/* With a segment of the whole address space. */
char *attach_at(xpmem_apid_t apid, uint64_t address, size_t len);

#define CHECK_SIGBUS(addr) do {						\
	CHECK_EQ(probe_read(addr).sig, SIGBUS);				\
	CHECK_EQ(probe_write(addr).sig, SIGBUS);			\
} while (0)

#define CHECK_READONLY(addr) do {					\
	CHECK_EQ(probe_read(addr).sig, 0);				\
	CHECK_EQ(probe_write(addr).sig, SIGBUS);			\
} while (0)

/* A test with a peer of its own kind, and one more of the other. */
#define SAME(name)							\
	static void name##_same(void) { other_kind = false; name(); }
#define PAIR(name)							\
	SAME(name)							\
	static void name##_other(void) { other_kind = true; name(); }
#define T_SAME(name)	T(name##_same)
#define T_PAIR(name)	T(name##_same), T(name##_other)

#endif
