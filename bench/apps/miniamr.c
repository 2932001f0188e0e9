// SPDX-License-Identifier: GPL-2.0
/*
 * miniamr: a mesh that is refined and coarsened, all of it in memory of malloc.
 *
 * A quantity diffuses along a ring of N blocks a rank. A block is a cube of 10, 20,
 * 40 or 80 cells in each direction, finer where one of the objects is that move
 * along the ring. Every 5 steps blocks are refined, coarsened and shared out
 * anew; every step allocates the new state of each block and the faces it
 * exchanges with its neighbours, and frees the old. What flows through a face
 * between coarse and fine cells is computed on the fine ones by both sides, so the
 * quantity is conserved.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "app.h"

#define CELLS		10	/* of the coarsest level, in each direction */
#define LEVELS		4
#define REGRID		5
#define BLOCKS_OBJECT	8	/* blocks for each object */
/* In units of the finest cell's size: what a cell gives to a neighbour in a step. */
#define NUMBER		0.1
#define MOST_LOSS	1e-11

enum { LOW, HIGH };

struct block {
	int cells;
	double *u;		/* NULL where it is another rank's */
	double *face[2];	/* own, at both ends */
	double *beyond[2];	/* those of the neighbours */
};

struct object {
	double place, speed, radius;
};

struct mesh {
	int count;
	struct block *blocks;
	int *owner;
	struct object *objects;
	int nr_objects;
	struct planes planes;	/* the blocks that ranks have, for sums */
	double *sums;
	MPI_Request *requests;
	int nr_requests;
};

static size_t volume(int cells)
{
	return (size_t)cells * cells * cells;
}

static bool is_mine(const struct mesh *mesh, int b)
{
	return mesh->owner[b] == app_rank;
}

static int neighbour(const struct mesh *mesh, int b, int side)
{
	return (b + (side == LOW ? mesh->count - 1 : 1)) % mesh->count;
}

/* Cells of a block by how far it is from the nearest object. */
static int cells_wanted(const struct mesh *mesh, int b, int step)
{
	int level = 0;

	for (int o = 0; o < mesh->nr_objects; o++) {
		const struct object *object = &mesh->objects[o];
		double away = fmod(fabs(object->place + object->speed * step - (b + 0.5)), mesh->count);

		away = fmin(away, mesh->count - away);
		for (int l = LEVELS - 1; l > level; l--)
			if (away < object->radius * (LEVELS - l))
				level = l;
	}
	return CELLS << level;
}

static void objects_make(struct mesh *mesh, uint64_t seed)
{
	mesh->nr_objects = (mesh->count + BLOCKS_OBJECT - 1) / BLOCKS_OBJECT;
	mesh->objects = app_alloc(mesh->nr_objects, sizeof(*mesh->objects));
	for (int o = 0; o < mesh->nr_objects; o++)
		mesh->objects[o] = (struct object){
			.place = mesh->count * uniform(seed, 3 * o),
			/* A block within 5 to 50 steps, in either direction. */
			.speed = (uniform(seed, 3 * o + 1) < 0.5 ? -1 : 1) * (0.02 + 0.18 * uniform(seed, 3 * o + 1)),
			.radius = 0.4 + 0.8 * uniform(seed, 3 * o + 2),
		};
}

/* Neighbouring blocks to one rank, the same number of cells to all as far as that goes. */
static void share_out(const struct mesh *mesh, const int *cells, int *owner)
{
	double all = 0, before = 0;

	for (int b = 0; b < mesh->count; b++)
		all += volume(cells[b]);
	for (int b = 0; b < mesh->count; b++) {
		owner[b] = (before + volume(cells[b]) / 2.0) / all * app_ranks;
		before += volume(cells[b]);
	}
}

/* For the sums over blocks. */
static void blocks_of_ranks(struct mesh *mesh)
{
	struct planes *planes = &mesh->planes;

	memset(planes->counts, 0, app_ranks * sizeof(*planes->counts));
	for (int b = mesh->count - 1; b >= 0; b--) {
		planes->counts[mesh->owner[b]]++;
		planes->firsts[mesh->owner[b]] = b;
	}
	planes->first = planes->firsts[app_rank];
	planes->count = planes->counts[app_rank];
}

static void resize(struct block *block, int cells)
{
	double *old = block->u, *u = app_alloc(volume(cells), sizeof(*u));
	int from = block->cells;

	if (cells > from) {
		int part = cells / from;

		for (int k = 0; k < cells; k++)
			for (int j = 0; j < cells; j++)
				for (int i = 0; i < cells; i++)
					u[((size_t)k * cells + j) * cells + i] =
						old[((size_t)(k / part) * from + j / part) * from + i / part];
	} else {
		int part = from / cells;

		memset(u, 0, volume(cells) * sizeof(*u));
		for (int k = 0; k < from; k++)
			for (int j = 0; j < from; j++)
				for (int i = 0; i < from; i++)
					u[((size_t)(k / part) * cells + j / part) * cells + i / part] +=
						old[((size_t)k * from + j) * from + i] / volume(part);
	}
	free(old);
	block->u = u;
	block->cells = cells;
}

static void wait_all(struct mesh *mesh)
{
	MPI_Waitall(mesh->nr_requests, mesh->requests, MPI_STATUSES_IGNORE);
	mesh->nr_requests = 0;
}

static void migrate(struct mesh *mesh, const int *owner)
{
	for (int b = 0; b < mesh->count; b++) {
		struct block *block = &mesh->blocks[b];
		int size = volume(block->cells);

		if (owner[b] == mesh->owner[b])
			continue;
		if (is_mine(mesh, b)) {
			MPI_Isend(block->u, size, MPI_DOUBLE, owner[b], b, MPI_COMM_WORLD,
				  &mesh->requests[mesh->nr_requests++]);
		} else if (owner[b] == app_rank) {
			block->u = app_alloc(size, sizeof(*block->u));
			MPI_Irecv(block->u, size, MPI_DOUBLE, mesh->owner[b], b, MPI_COMM_WORLD,
				  &mesh->requests[mesh->nr_requests++]);
		}
	}
	wait_all(mesh);
	for (int b = 0; b < mesh->count; b++) {
		if (is_mine(mesh, b) && owner[b] != app_rank) {
			free(mesh->blocks[b].u);
			mesh->blocks[b].u = NULL;
		}
		mesh->owner[b] = owner[b];
	}
	blocks_of_ranks(mesh);
}

/* Every rank knows the cells and the owners of all blocks. */
static void regrid(struct mesh *mesh, int step)
{
	int *cells = app_alloc(mesh->count, sizeof(*cells)), *owner = app_alloc(mesh->count, sizeof(*owner));

	for (int b = 0; b < mesh->count; b++) {
		cells[b] = cells_wanted(mesh, b, step);
		if (cells[b] != mesh->blocks[b].cells && is_mine(mesh, b))
			resize(&mesh->blocks[b], cells[b]);
		mesh->blocks[b].cells = cells[b];
	}
	share_out(mesh, cells, owner);
	migrate(mesh, owner);
	free(cells);
	free(owner);
}

static double *face_of(const struct block *block, int side)
{
	int n = block->cells;
	double *face = app_alloc((size_t)n * n, sizeof(*face));

	for (size_t row = 0; row < (size_t)n * n; row++)
		face[row] = block->u[row * n + (side == LOW ? 0 : n - 1)];
	return face;
}

/* The face @side of block @b is known by this number, wherever it is. */
static int tag(int b, int side)
{
	return 2 * b + side;
}

static void exchange(struct mesh *mesh)
{
	for (int b = 0; b < mesh->count; b++) {
		if (!is_mine(mesh, b))
			continue;
		for (int side = LOW; side <= HIGH; side++)
			mesh->blocks[b].face[side] = face_of(&mesh->blocks[b], side);
	}
	for (int b = 0; b < mesh->count; b++) {
		struct block *block = &mesh->blocks[b];

		for (int side = LOW; is_mine(mesh, b) && side <= HIGH; side++) {
			int other = neighbour(mesh, b, side);
			int size = mesh->blocks[other].cells * mesh->blocks[other].cells;

			block->beyond[side] = app_alloc(size, sizeof(double));
			if (is_mine(mesh, other)) {
				memcpy(block->beyond[side], mesh->blocks[other].face[!side], size * sizeof(double));
				continue;
			}
			MPI_Irecv(block->beyond[side], size, MPI_DOUBLE, mesh->owner[other], tag(other, !side),
				  MPI_COMM_WORLD, &mesh->requests[mesh->nr_requests++]);
			MPI_Isend(block->face[side], block->cells * block->cells, MPI_DOUBLE, mesh->owner[other],
				  tag(b, side), MPI_COMM_WORLD, &mesh->requests[mesh->nr_requests++]);
		}
	}
	wait_all(mesh);
}

/* What comes through each cell of a face with @n x @n cells from one with @m x @m. */
static double *flows(const double *own, int n, const double *beyond, int m)
{
	/* Times 2: the distance of the centres is half the sum of the sizes. */
	double part = 2.0 * n / (1.0 / n + 1.0 / m), *flow = app_alloc((size_t)n * n, sizeof(*flow));

	for (int k = 0; k < n; k++)
		for (int j = 0; j < n; j++) {
			double here = own[k * n + j], sum = 0;
			int ratio = m > n ? m / n : 1;

			for (int c = k * ratio; c < (k + 1) * ratio; c++)
				for (int b = j * ratio; b < (j + 1) * ratio; b++)
					sum += beyond[m > n ? c * m + b : c / (n / m) * m + b / (n / m)] - here;
			flow[k * n + j] = sum * part / (ratio * ratio);
		}
	return flow;
}

/* The new state in new memory; y and z are periodic within a block. */
static void advance(struct mesh *mesh, int b)
{
	struct block *block = &mesh->blocks[b];
	int n = block->cells, finest = CELLS << (LEVELS - 1);
	double time = NUMBER / ((double)finest * finest), inner = (double)n * n, *flow[2];
	const double *u = block->u;
	double *next = app_alloc(volume(n), sizeof(*next));

	for (int side = LOW; side <= HIGH; side++)
		flow[side] = flows(block->face[side], n, block->beyond[side],
				   mesh->blocks[neighbour(mesh, b, side)].cells);
	for (int k = 0; k < n; k++)
		for (int j = 0; j < n; j++) {
			const double *row = u + ((size_t)k * n + j) * n;
			const double *south = u + ((size_t)k * n + (j + n - 1) % n) * n;
			const double *north = u + ((size_t)k * n + (j + 1) % n) * n;
			const double *below = u + ((size_t)((k + n - 1) % n) * n + j) * n;
			const double *above = u + ((size_t)((k + 1) % n) * n + j) * n;

			for (int i = 0; i < n; i++) {
				double sum = south[i] + north[i] + below[i] + above[i] - 4 * row[i];
				double edge = 0;

				if (i)
					sum += row[i - 1] - row[i];
				else
					edge += flow[LOW][k * n + j];
				if (i < n - 1)
					sum += row[i + 1] - row[i];
				else
					edge += flow[HIGH][k * n + j];
				next[((size_t)k * n + j) * n + i] = row[i] + time * (sum * inner + edge);
			}
		}
	free(block->u);
	block->u = next;
	for (int side = LOW; side <= HIGH; side++) {
		free(flow[side]);
		free(block->beyond[side]);
	}
}

static void step(struct mesh *mesh)
{
	exchange(mesh);
	for (int b = 0; b < mesh->count; b++)
		if (is_mine(mesh, b))
			advance(mesh, b);
	for (int b = 0; b < mesh->count; b++)
		for (int side = LOW; is_mine(mesh, b) && side <= HIGH; side++)
			free(mesh->blocks[b].face[side]);
}

/* Of all blocks; a block's size is 1. */
static double quantity(struct mesh *mesh)
{
	for (int b = 0; b < mesh->planes.count; b++) {
		const struct block *block = &mesh->blocks[mesh->planes.first + b];
		double sum = 0;

		for (size_t i = 0; i < volume(block->cells); i++)
			sum += block->u[i];
		mesh->sums[b] = sum / volume(block->cells);
	}
	return planes_sum(&mesh->planes, mesh->sums);
}

/* What diffuses stays between the least and the largest of its values at first: 1 and 2. */
static bool within_bounds(const struct mesh *mesh)
{
	int fine = 1, all;

	for (int b = 0; b < mesh->count; b++)
		for (size_t i = 0; is_mine(mesh, b) && i < volume(mesh->blocks[b].cells); i++)
			if (!(mesh->blocks[b].u[i] >= 1 && mesh->blocks[b].u[i] <= 2))
				fine = 0;
	MPI_Allreduce(&fine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
	return all;
}

static uint64_t checksum(struct mesh *mesh)
{
	uint64_t *hashes = app_alloc(mesh->planes.count, sizeof(*hashes)), all;

	for (int b = 0; b < mesh->planes.count; b++) {
		const struct block *block = &mesh->blocks[mesh->planes.first + b];

		hashes[b] = hash(HASH_START, block->u, volume(block->cells) * sizeof(*block->u));
	}
	all = planes_hash(&mesh->planes, hashes);
	free(hashes);
	return all;
}

static void mesh_make(struct mesh *mesh, uint64_t seed)
{
	int *cells = app_alloc(mesh->count, sizeof(*cells));

	mesh->blocks = app_zeroed(mesh->count, sizeof(*mesh->blocks));
	mesh->owner = app_alloc(mesh->count, sizeof(*mesh->owner));
	mesh->sums = app_alloc(mesh->count, sizeof(*mesh->sums));
	/* At most two for each face. */
	mesh->requests = app_alloc(4 * (size_t)mesh->count, sizeof(*mesh->requests));
	mesh->planes = planes_make(mesh->count, true);
	objects_make(mesh, seed);
	for (int b = 0; b < mesh->count; b++)
		cells[b] = mesh->blocks[b].cells = cells_wanted(mesh, b, 0);
	share_out(mesh, cells, mesh->owner);
	free(cells);
	blocks_of_ranks(mesh);
	for (int b = 0; b < mesh->count; b++) {
		struct block *block = &mesh->blocks[b];

		if (!is_mine(mesh, b))
			continue;
		block->u = app_alloc(volume(block->cells), sizeof(*block->u));
		for (size_t i = 0; i < volume(block->cells); i++)
			block->u[i] = 1 + uniform(seed + 1, (uint64_t)b * volume(CELLS << LEVELS) + i);
	}
}

static void mesh_free(struct mesh *mesh)
{
	for (int b = 0; b < mesh->count; b++)
		free(mesh->blocks[b].u);
	free(mesh->blocks);
	free(mesh->owner);
	free(mesh->sums);
	free(mesh->requests);
	free(mesh->objects);
	planes_free(&mesh->planes);
}

static struct result run(const struct options *options)
{
	struct mesh mesh = { .count = options->strong ? options->size : options->size * app_ranks };
	struct result result = { 0 };
	double before;

	mesh_make(&mesh, options->seed);
	before = quantity(&mesh);
	for (int i = 0; i < options->iterations; i++) {
		if (i && i % REGRID == 0)
			regrid(&mesh, i);
		step(&mesh);
	}
	app_loop_ends();

	result.residual = fabs(quantity(&mesh) - before) / before;
	result.checksum = checksum(&mesh);
	result.verified = result.residual <= MOST_LOSS && within_bounds(&mesh);
	mesh_free(&mesh);
	return result;
}

static double bytes(double n)
{
	/* At the peak two blocks of each finer level for an object; a new block beside its old one. */
	return n / BLOCKS_OBJECT * 2 * 8 * (volume(20) + volume(40) + volume(80)) + n * 8 * volume(10) +
	       8 * volume(80);
}

int main(int argc, char **argv)
{
	static const struct app app = {
		.name = "miniamr",
		.about = "Blocks of a mesh that is refined and coarsened, allocated and freed all the time.",
		.size_unit = "blocks of the mesh",
		.default_size = 32,
		.least_size = 2,
		.most_size = 1 << 17,
		.iterations_unit = "time steps",
		.default_iterations = 100,
		.bytes = bytes,
		.most_ranks = app_ranks_by_size,
		.run = run,
	};

	return app_main(&app, argc, argv);
}
