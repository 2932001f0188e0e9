/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The allocator next to a naive model of it: an array with the state of each
 * unit that is scanned from one end to the other. Every operation runs on
 * both; the first difference is the failure.
 */
#ifndef _MODEL_H
#define _MODEL_H

#include "mem/block/buddy.h"

/* The chunks the model knows: neighbours, lone ones, and the very last. */
#define MODEL_CHUNKS	6

enum model_op {
	MODEL_CHUNK_INSERT,
	MODEL_CHUNK_REMOVE,
	MODEL_ADD,
	MODEL_REMOVE,
	MODEL_ALLOC,
	MODEL_ALLOC_UNLIKE,
	MODEL_FREE,		/* units that are allocated */
	MODEL_FREE_ANY,		/* any block, in any state */
	MODEL_TAKE,
	MODEL_FREE_RANGE,
	MODEL_COUNT,
	MODEL_NR_OPS
};

enum model_state { ABSENT, FREE, USED };

/* Where the choices come from; a number below @n, which is not 0. */
typedef unsigned long (*model_pick_fn)(void *arg, unsigned long n);

#define MODEL_MAX_ERRNO	64

struct model {
	struct hpmmap_buddy buddy;
	struct hpmmap_buddy_chunk *chunk[MODEL_CHUNKS];	/* NULL: not there */
	unsigned char state[MODEL_CHUNKS][HPMMAP_BUDDY_CHUNK_UNITS];

	model_pick_fn pick;
	void *pick_arg;

	/* How often each operation gave each errno, and each order a block. */
	unsigned long seen[MODEL_NR_OPS][MODEL_MAX_ERRNO];
	unsigned long allocated[HPMMAP_BUDDY_MAX_ORDER + 1];

	char failure[256];	/* what differed */
};

/* The caller sets m->pick and m->pick_arg before the first step. */
void model_init(struct model *m);
void model_exit(struct model *m);

/* Runs one operation on both; false: they differ, see m->failure. */
bool model_step(struct model *m, enum model_op op);

/* Compares everything there is, private members included. */
bool model_compare(struct model *m);

#endif /* _MODEL_H */
