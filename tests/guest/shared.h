/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tests of files whose memory several processes map: files of hpmmapfs if the module is loaded
 * and has it, otherwise of tmpfs. Promises of hpmmapfs alone (no holes, ENOSPC before a file
 * grows, no page faults, 2 MB entries) are checked on hpmmapfs only.
 *
 * HPMMAP_TEST_FS is hpmmap or tmpfs if it must be one of them. HPMMAP_TEST_DIR is a directory
 * of the file system, for users that may not mount.
 */
#ifndef HPMMAP_TESTS_SHARED_H
#define HPMMAP_TESTS_SHARED_H

#include "common.h"

#include <limits.h>

/* Is it hpmmapfs? */
bool fs_of_pools(void);
void skip_unless_of_pools(void);
/*
 * Mounts a file system of the test's own; skips where that is not permitted. What a
 * test before has left mounted is taken away first, whether it is in use or not.
 */
void fs_mount(const char *options);
/* Some file system of this kind: one of its own if possible, 256 MB. */
void fs_any(void);
/* It must not be in use any more, and gives all its memory back. */
void fs_end(void);
/* After a file of it, which goes before. */
void fs_end_with(int fd, const char *name);
/* Where it is. */
const char *fs_dir(void);
/* "DIR/NAME", in one of four buffers that are used in turn. */
const char *in_fs(const char *name);

/* A new file of a size. */
int new_file(const char *name, size_t size);
/* Its memory as stat tells it. */
size_t held(int fd);
/* On hpmmapfs; tmpfs gives memory page by page. */
void expect_held(int fd, size_t want);
size_t size_of(int fd);
/* Free memory as statfs tells it. */
size_t fs_free(void);
/* What was given up comes back, but perhaps not at once. */
void await_fs_free(size_t want);

void *map_file(int fd, size_t len, int prot, int flags, size_t off);
char *map_shared(int fd, size_t len);

void write_at(int fd, const void *p, size_t len, size_t at);
void read_at(int fd, void *p, size_t len, size_t at);
/* By pread: the file has at this place what fill() has made of the seed, from its byte off on. */
void verify_file(int fd, size_t at, size_t len, uint64_t seed, size_t off);
void verify_file_zero(int fd, size_t at, size_t len);

/* hpmmapfs only: all of it is mapped, whole slots by 2 MB entries. */
void check_eager(const void *addr, size_t len);
/* Ends the watch; hpmmapfs only: no fault in the range, whoever the process is. */
void watch_none(const void *addr, size_t len, const char *file, int line);
#define EXPECT_EAGER(addr, len)	watch_none(addr, len, __FILE__, __LINE__)

#define CHECK_BUS(addr) do {						\
	CHECK_EQ(probe_read(addr).sig, SIGBUS);				\
	CHECK_EQ(probe_write(addr).sig, SIGBUS);			\
} while (0)

/* Another user, without any privileges. */
#define OTHER_USER	2001
void become_other_user(void);

static inline size_t round_to(size_t n, size_t unit)
{
	return (n + unit - 1) / unit * unit;
}

#endif
