// SPDX-License-Identifier: GPL-2.0
#include <dirent.h>
#include <fnmatch.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runner.h"

enum { RAN, FAILED, SKIPPED };

static jmp_buf end_of_test;

/* What a process has started, and what that has. */
static void kill_descendants(pid_t of)
{
	char path[300];
	struct dirent *entry;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", of);
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		int child;
		FILE *f;

		snprintf(path, sizeof(path), "/proc/%d/task/%s/children", of, entry->d_name);
		f = fopen(path, "re");
		while (f && fscanf(f, "%d", &child) == 1) {
			kill_descendants(child);
			kill(child, SIGKILL);
		}
		if (f)
			fclose(f);
	}
	if (dir)
		closedir(dir);
}

/* A child of a test that failed would wait for it for ever, and who waits for all to end, too. */
static void end_what_is_left(void)
{
	kill_descendants(getpid());
	while (waitpid(-1, NULL, 0) > 0)
		;
}

/* One of the names in HPMMAP_TEST_GIVEN_UP? */
static bool is_given_up(const char *name)
{
	const char *names = getenv("HPMMAP_TEST_GIVEN_UP");
	size_t len = strlen(name);

	for (const char *at = names; at && (at = strstr(at, name)); at += len)
		if ((at == names || at[-1] == ' ') && (!at[len] || at[len] == ' '))
			return true;
	return false;
}

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
		if (is_given_up(tests[i].name)) {
			printf("%s %s, which the options give up\n", label[SKIPPED], tests[i].name);
			continue;
		}
		printf("[ RUN      ] %s\n", tests[i].name);
		how = setjmp(end_of_test);
		if (how == 0)
			tests[i].run();
		else
			result = how;
		failed += result == FAILED;
		if (result == FAILED)
			end_what_is_left();
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
