/* SPDX-License-Identifier: GPL-2.0 */
#ifndef HPMMAP_TESTS_IMAGE_FILLER_H
#define HPMMAP_TESTS_IMAGE_FILLER_H

#include <stdint.h>

#define FILLER_BYTES	((size_t)FILLER << 12)
#define FILLER_WORD(n)	((uint64_t)(n) * 1000003 + 7)

/* Of this object alone; see image_filler.S. */
#pragma GCC visibility push(hidden)
extern const char filler_text[];
extern const char filler_rodata[];
extern char filler_data[];
#pragma GCC visibility pop

#endif
