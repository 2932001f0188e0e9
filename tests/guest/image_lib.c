// SPDX-License-Identifier: GPL-2.0
/* A shared library that sem_image.c loads while it runs. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "image_filler.h"

int image_lib_sum(void);

static char bss[1 << 20];
static __thread int tls = 40;
/* Relocated when it is loaded, read-only then. */
static const char *const texts[] = { filler_text, filler_rodata };

/* Uses all of the library; 42 if everything is as it should be. */
int image_lib_sum(void)
{
	int wrong = 0;

	for (size_t n = 0; n < FILLER; n++) {
		uint64_t *data = (uint64_t *)(filler_data + (n << 12));

		((void (*)(void))(filler_text + (n << 12)))();
		wrong += *(uint64_t *)(filler_rodata + (n << 12)) != FILLER_WORD(n);
		wrong += *data != FILLER_WORD(n);
		++*data;
		--*data;
	}
	for (size_t off = 0; off < sizeof(bss); off += 4096)
		wrong += bss[off]++ != bss[sizeof(bss) - 1];
	memset(bss, 0, sizeof(bss));
	wrong += texts[0] != filler_text || texts[1] != filler_rodata;
	/* Bound at this call. */
	return tls + abs(-2) + wrong;
}
