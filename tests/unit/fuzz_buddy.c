// SPDX-License-Identifier: GPL-2.0
/*
 * libFuzzer target: the input chooses the operations and their arguments; the
 * allocator must do what the model does.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "model.h"

struct input {
	const uint8_t *data;
	size_t left;
};

static unsigned long pick(void *arg, unsigned long n)
{
	struct input *input = arg;
	unsigned long value = 0;

	for (unsigned long range = 1; range < n && input->left; range <<= 8) {
		value = value << 8 | *input->data++;
		input->left--;
	}
	return value % n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input input = { data, size };
	struct model m;
	bool same = true;

	model_init(&m);
	m.pick = pick;
	m.pick_arg = &input;
	while (same && input.left)
		same = model_step(&m, pick(&input, MODEL_NR_OPS));
	if (!same || !model_compare(&m)) {
		fprintf(stderr, "%s\n", m.failure);
		abort();
	}
	model_exit(&m);
	return 0;
}
