/* SPDX-License-Identifier: GPL-2.0 */
/* Shared by the fuzzers. */
#ifndef HPMMAP_FUZZ_COMMON_H
#define HPMMAP_FUZZ_COMMON_H

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* The next of a sequence that follows from where it is, which is never 0. */
static inline uint64_t step(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state * 0x2545f4914f6cdd1dULL >> 11;
}

/* A line of error output by one write: processes and their children have one buffer. */
static inline void complain(const char *head, const char *fmt, va_list args)
{
	char text[640];
	int n = snprintf(text, sizeof(text), "%s", head);

	if ((size_t)n < sizeof(text) - 2)
		n += vsnprintf(text + n, sizeof(text) - (size_t)n - 1, fmt, args);
	if ((size_t)n > sizeof(text) - 2)
		n = sizeof(text) - 2;
	text[n++] = '\n';
	if (write(STDERR_FILENO, text, (size_t)n) < 0)
		_exit(2);
}

/* Of the command line. */
static inline uint64_t number(const char *text)
{
	unsigned long long n;
	char *end;

	errno = 0;
	n = strtoull(text, &end, 0);
	if (errno || end == text || *end) {
		fprintf(stderr, "%s: '%s' is not a number\n", program_invocation_short_name, text);
		_exit(2);
	}
	return n;
}

#endif
