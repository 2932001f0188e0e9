/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a test framework has to give. runner_cmocka.c has it from cmocka;
 * runner_static.c is for programs linked statically, because Debian ships
 * cmocka as a shared library only.
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
