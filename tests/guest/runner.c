// SPDX-License-Identifier: GPL-2.0
#include <fnmatch.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include "runner.h"

enum { RAN, FAILED, SKIPPED };

static jmp_buf end_of_test;

int runner_run(const char *group, const struct test *tests, size_t nr)
{
	static const char *const label[] = {
		[RAN] = "[       OK ]",
		[FAILED] = "[  FAILED  ]",
		[SKIPPED] = "[  SKIPPED ]",
	};
	const char *only = getenv("HPMMAP_TEST_ONLY");
	volatile int failed = 0;

	printf("[==========] %s: %zu test(s).\n", group, nr);
	for (volatile size_t i = 0; i < nr; i++) {
		volatile int result = RAN;
		int how;

		if (only && fnmatch(only, tests[i].name, 0) != 0)
			continue;
		printf("[ RUN      ] %s\n", tests[i].name);
		how = setjmp(end_of_test);
		if (how == 0)
			tests[i].run();
		else
			result = how;
		failed += result == FAILED;
		printf("%s %s\n", label[result], tests[i].name);
	}
	printf("[==========] %s: %d failed.\n", group, failed);
	return failed;
}

void runner_fail(const char *file, int line)
{
	printf("%s:%d: error: failure\n", file, line);
	longjmp(end_of_test, FAILED);
}

void runner_skip(const char *file, int line)
{
	(void)file;
	(void)line;
	longjmp(end_of_test, SKIPPED);
}
