/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Conformance cases: each writes its observations, in words that do not depend on
 * addresses. The observations of a native run and of one under HPMMAP are compared
 * afterwards (records.py); a case checks nothing itself.
 *
 * A case works on an *arena*: a number of units of memory at a fixed address,
 * filled with a pattern that tells each page's origin. The size and alignment
 * of a unit, and the kind of process, vary from run to run.
 */
#ifndef HPMMAP_TESTS_CONF_H
#define HPMMAP_TESTS_CONF_H

#include "common.h"

#define RET_INSTRUCTION	0xc3

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL	102
#define MADV_GUARD_REMOVE	103
#endif

enum conf_flags {
	BARE = 1,	/* the arena's addresses are free, nothing is mapped */
	ONCE = 2,	/* sizes do not matter: one alignment is enough */
	BIG = 4,	/* also with units of 256 MB, in an arena of 1 GB */
	ALONE = 8,	/* in the main process only */
};

struct run {
	char *base;		/* of the arena */
	size_t unit;
	size_t units;
};

struct conf_case {
	const char *call;
	const char *name;
	unsigned int units;
	unsigned int flags;
	void (*fn)(struct run *r);
};

/* Defines a case; it is found by its being in a section of its own. */
#define CASE(call_, name_, units_, flags_)				\
	static void call_##__##name_(struct run *r);			\
	static const struct conf_case desc_##call_##__##name_ = {	\
		#call_, #name_, units_, flags_, call_##__##name_	\
	};								\
	static const struct conf_case *const ref_##call_##__##name_	\
		__attribute__((section("conf_cases"), used)) =		\
		&desc_##call_##__##name_;				\
	static void call_##__##name_(struct run *r __attribute__((unused)))

/* ---- What was observed ---------------------------------------------- */

/* Adds words to the observation; from any process or thread of the case. */
void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The case cannot be run here. */
void not_run(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
#define NOT_RUN(...) do { not_run(__VA_ARGS__); return; } while (0)

/* The result of a call that returns -1 and sets errno; passes it on. */
long ret(const char *name, long result);
/* The same for a call that returns an address: its place in the arena. */
char *at(struct run *r, const char *name, void *result);
/* Permissions of the range, as /proc/self/maps has them. */
void maps(struct run *r, const char *addr, size_t len);
/* What the pages of the range hold: their origin in the arena, zeros, ... */
void content(struct run *r, const char *addr, size_t len);
/*
 * Tries to read (r), write (w) and execute (x) a byte. A RET must be there to
 * be executed; it is what w writes.
 */
void try(const char *name, char *addr, const char *how);
/* How a child ended. */
void ended(const char *name, pid_t pid);
/* A field of smaps, in bytes, summed over the mappings within the range. */
size_t smaps_field(const char *addr, size_t len, const char *field);
/* What is resident of locked mappings, likewise. */
size_t smaps_locked(const char *addr, size_t len);
/* Those of the flags (pairs of letters) that smaps shows at the address. */
void vm_flags(const char *addr, const char *wanted);
/* A field of /proc/self/status in bytes. */
size_t status_field(const char *field);
/* In units, as the observation has offsets. */
const char *in_units(struct run *r, long bytes);

/* ---- Things to do ---------------------------------------------------- */

/* The address of unit n of the arena. */
static inline char *U(struct run *r, double n)
{
	return r->base + (long)((double)r->unit * n);
}

/* Addresses far from the arena and each other; nothing is mapped there. */
char *spot(struct run *r, int n);
/* mmap() with MAP_PRIVATE | MAP_ANONYMOUS and these flags. */
void *map(void *addr, size_t len, int prot, int flags);
/* As the arena is filled; numbers the pages as those from this unit on. */
void fill_pages(struct run *r, char *addr, size_t len, size_t origin);
/* Writes to every page, and changes nothing. */
void touch(char *addr, size_t len);
pid_t sub_process(void);
/* A memfd with len bytes of pattern, likewise. */
int memfd(struct run *r, size_t len, size_t origin);
/* Writes text to a file of /proc; false if that is not possible. */
bool put(const char *path, const char *text);
/* Reads the start of a file as a string; false if it cannot. */
bool get(const char *path, char *text, size_t len);

#endif
