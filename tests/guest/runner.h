/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Runs the tests of a program one after the other in its own process, unchanged:
 * no test library, no signal handlers, no children. So it works for all kinds of
 * programs, also static ones.
 */
#ifndef HPMMAP_TESTS_RUNNER_H
#define HPMMAP_TESTS_RUNNER_H

#include <stddef.h>

struct test {
	const char *name;
	void (*run)(void);
};

/* Runs all tests; returns the number that failed. */
int runner_run(const char *group, const struct test *tests, size_t nr);

/*
 * End the running test. Only from the thread and the process that called
 * runner_run(); check_failed() and SKIP() of common.h take care of that.
 */
_Noreturn void runner_fail(const char *file, int line);
_Noreturn void runner_skip(const char *file, int line);

#endif
