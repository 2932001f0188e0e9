/* SPDX-License-Identifier: GPL-2.0 */
/* Shared by the plugins: the marker that a program executes, and the file they write to. */
#ifndef RECORDER_H
#define RECORDER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "marker.h"

#define EXPORT		__attribute__((visibility("default")))
#define ADDRESS_MASK	((UINT64_C(1) << 48) - 1)

/* Is an instruction a marker? Which, is in *number then. */
static inline bool is_marker(const uint8_t *bytes, size_t size, uint32_t *number)
{
	uint32_t magic;

	if (size != MARKER_BYTES || memcmp(bytes, "\x0f\x1f\x84\x00", 4))
		return false;
	memcpy(&magic, bytes + 4, sizeof(magic));
	*number = magic & MARKER_NUMBER;
	return (magic & ~MARKER_NUMBER) == MARKER_MAGIC;
}

/* The file of a plugin's only argument, out=FILE; NULL after a message. */
static inline FILE *recorder_open(const char *plugin, int argc, char **argv)
{
	FILE *out;

	if (argc != 1 || strncmp(argv[0], "out=", 4)) {
		fprintf(stderr, "%s: the only argument is out=FILE\n", plugin);
		return NULL;
	}
	out = fopen(argv[0] + 4, "wb");
	if (!out)
		perror(argv[0] + 4);
	return out;
}

#endif
