// SPDX-License-Identifier: GPL-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "runner.h"

static void trampoline(void **state)
{
	const struct test *test = *state;

	test->run();
}

int runner_run(const char *group, const struct test *tests, size_t nr)
{
	struct CMUnitTest *table = calloc(nr, sizeof(*table));
	const char *only = getenv("HPMMAP_TEST_ONLY");
	int failed;

	if (!table)
		return 1;
	for (size_t i = 0; i < nr; i++) {
		table[i].name = tests[i].name;
		table[i].test_func = trampoline;
		table[i].initial_state = (void *)&tests[i];
	}
	if (only)
		cmocka_set_test_filter(only);
	failed = _cmocka_run_group_tests(group, table, nr, NULL, NULL);
	free(table);
	return failed;
}

void runner_fail(const char *file, int line)
{
	_fail(file, line);
	abort();
}

void runner_skip(const char *file, int line)
{
	_skip(file, line);
	abort();
}
