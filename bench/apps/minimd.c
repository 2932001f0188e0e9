// SPDX-License-Identifier: GPL-2.0
/*
 * minimd: molecular dynamics with neighbour lists that are rebuilt, as miniMD and
 * CoMD do it.
 *
 * Atoms of a Lennard-Jones liquid, at first on a face-centred cubic lattice of
 * N x N x N cells a rank, in a periodic box that is cut into bins a little wider
 * than the potential reaches. The ranks have slabs of bins in z. Every 20 steps,
 * or when an atom has moved far, atoms go to the rank they are in, are sorted by
 * bins, and the lists of neighbours are freed and made anew. Positions are never
 * shifted by the box for a neighbour, and atoms in a bin are in the order of their
 * numbers: so all sums are the same for any number of ranks.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "app.h"

/*
 * Of the lattice: the cube root of 4 atoms over a density of 0.8442. Not computed,
 * because the library's functions do not give the same digits on every machine.
 */
#define CELL		1.6795961913825073
#define TEMPERATURE	1.44
#define CUTOFF		2.5
#define SKIN		0.3
#define TIME_STEP	0.005
#define REBUILD		20
/* Of the largest change of the energy to the energy, and of the mean momentum. */
#define MOST_DRIFT	1e-3
#define MOST_MOMENTUM	1e-11

struct atom {
	double x[3], v[3];
	int64_t id;
};

/* The neighbours of all atoms in one plane of bins. */
struct list {
	int *neighbour;
	size_t count, room;
};

struct system {
	struct planes planes;	/* of bins */
	int cells[3], bins[3];
	double box[3];
	struct atom *atoms;	/* sorted by bins */
	size_t count;
	double (*x)[3];		/* of these and then of the neighbours' planes below and above */
	double (*f)[3];
	double (*old)[3];	/* at the last rebuild */
	size_t low, high;	/* atoms in the planes below and above */
	size_t bottom, top;	/* own atoms in the first plane and in the last */
	int *start;		/* where each bin begins in x; a plane more at each end */
	int *end;
	struct list *lists;	/* of each own plane */
	int *neighbours_end;	/* for each atom, in the list of its plane */
	double *sums;
	double potential;
};

static int bin_of(const struct system *s, double x, int d)
{
	int bin = x * s->bins[d] / s->box[d];

	return bin < s->bins[d] ? bin : s->bins[d] - 1;
}

/* Into the box, which they may have left since the last rebuild. */
static void wrap(struct system *s)
{
	for (size_t i = 0; i < s->count; i++)
		for (int d = 0; d < 3; d++) {
			double *x = &s->atoms[i].x[d];

			if (*x < 0)
				*x += s->box[d];
			if (*x >= s->box[d])
				*x -= s->box[d];
		}
}

/* Sends @bytes of @data to @to; returns what came from @from, allocated. */
static void *exchange(const void *data, size_t bytes, int to, int from, size_t *came)
{
	uint64_t mine = bytes, theirs;
	void *received;

	if (bytes > 1 << 30)
		app_die("a message of %zu bytes is too large", bytes);
	MPI_Sendrecv(&mine, 1, MPI_UINT64_T, to, 3, &theirs, 1, MPI_UINT64_T, from, 3, MPI_COMM_WORLD,
		     MPI_STATUS_IGNORE);
	received = app_alloc(theirs, 1);
	MPI_Sendrecv(data, bytes, MPI_BYTE, to, 4, received, theirs, MPI_BYTE, from, 4, MPI_COMM_WORLD,
		     MPI_STATUS_IGNORE);
	*came = theirs;
	return received;
}

/* To the ranks in whose planes they are now: that is a neighbour's, no farther. */
static void migrate(struct system *s)
{
	struct atom *down = app_alloc(s->count, sizeof(*down)), *up = app_alloc(s->count, sizeof(*up));
	struct atom *from_above, *from_below, *all;
	size_t stay = 0, go_down = 0, go_up = 0, n_above, n_below;

	for (size_t i = 0; i < s->count; i++) {
		int plane = bin_of(s, s->atoms[i].x[2], 2), last = s->planes.first + s->planes.count - 1;

		if (plane >= s->planes.first && plane <= last)
			s->atoms[stay++] = s->atoms[i];
		else if ((plane + 1) % s->planes.total == s->planes.first)
			down[go_down++] = s->atoms[i];
		else if (plane == (last + 1) % s->planes.total)
			up[go_up++] = s->atoms[i];
		else
			app_die("atom %ld has left for plane %d", (long)s->atoms[i].id, plane);
	}
	from_above = exchange(down, go_down * sizeof(*down), s->planes.below, s->planes.above, &n_above);
	from_below = exchange(up, go_up * sizeof(*up), s->planes.above, s->planes.below, &n_below);
	s->count = stay + (n_above + n_below) / sizeof(*all);
	all = app_alloc(s->count, sizeof(*all));
	memcpy(all, s->atoms, stay * sizeof(*all));
	memcpy(all + stay, from_above, n_above);
	memcpy((char *)(all + stay) + n_above, from_below, n_below);
	free(down);
	free(up);
	free(from_above);
	free(from_below);
	free(s->atoms);
	s->atoms = all;
}

/* Of an own atom; the plane below is the first. */
static size_t bin_index(const struct system *s, const struct atom *atom)
{
	int plane = bin_of(s, atom->x[2], 2) - s->planes.first + 1;

	return ((size_t)plane * s->bins[1] + bin_of(s, atom->x[1], 1)) * s->bins[0] + bin_of(s, atom->x[0], 0);
}

/* By bins, and by number in each. */
static void sort(struct system *s)
{
	size_t plane = (size_t)s->bins[0] * s->bins[1], bins = plane * (s->planes.count + 2), at = 0;
	struct atom *sorted = app_alloc(s->count, sizeof(*sorted));

	free(s->start);
	free(s->end);
	s->start = app_zeroed(bins, sizeof(*s->start));
	s->end = app_zeroed(bins, sizeof(*s->end));
	for (size_t i = 0; i < s->count; i++)
		s->end[bin_index(s, &s->atoms[i])]++;
	for (size_t b = plane; b < bins - plane; b++) {
		s->start[b] = at;
		at += s->end[b];
		s->end[b] = s->start[b];
	}
	for (size_t i = 0; i < s->count; i++) {
		size_t b = bin_index(s, &s->atoms[i]);
		int place = s->end[b]++;

		for (; place > s->start[b] && sorted[place - 1].id > s->atoms[i].id; place--)
			sorted[place] = sorted[place - 1];
		sorted[place] = s->atoms[i];
	}
	free(s->atoms);
	s->atoms = sorted;
	s->bottom = s->end[2 * plane - 1];
	s->top = s->count - s->start[bins - 2 * plane];
}

/* The numbers of atoms in the bins around those of this rank. */
static void halo_bins(struct system *s)
{
	size_t plane = (size_t)s->bins[0] * s->bins[1], top = plane * s->planes.count;
	int *sizes = app_alloc(plane * (s->planes.count + 2), sizeof(*sizes));
	int at = s->count;

	for (size_t b = plane; b < plane + top; b++)
		sizes[b] = s->end[b] - s->start[b];
	MPI_Sendrecv(sizes + plane, plane, MPI_INT, s->planes.below, 5, sizes + top + plane, plane, MPI_INT,
		     s->planes.above, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	MPI_Sendrecv(sizes + top, plane, MPI_INT, s->planes.above, 6, sizes, plane, MPI_INT, s->planes.below, 6,
		     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	for (size_t b = 0; b < plane; b++) {
		s->start[b] = at;
		s->end[b] = at += sizes[b];
	}
	s->low = at - s->count;
	for (size_t b = plane + top; b < 2 * plane + top; b++) {
		s->start[b] = at;
		s->end[b] = at += sizes[b];
	}
	s->high = at - s->count - s->low;
	free(sizes);
}

/* Positions of own atoms, and of those in the planes around. */
static void halo(struct system *s)
{
	size_t low = s->count, high = s->count + s->low;

	for (size_t i = 0; i < s->count; i++)
		memcpy(s->x[i], s->atoms[i].x, sizeof(s->x[i]));
	MPI_Sendrecv(s->x, 3 * s->bottom, MPI_DOUBLE, s->planes.below, 7, s->x + high, 3 * s->high, MPI_DOUBLE,
		     s->planes.above, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	MPI_Sendrecv(s->x + s->count - s->top, 3 * s->top, MPI_DOUBLE, s->planes.above, 8, s->x + low,
		     3 * s->low, MPI_DOUBLE, s->planes.below, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* From @b to @a, the nearest of its images; returns the square of the distance. */
static inline double distance(const struct system *s, const double *a, const double *b, double *between)
{
	double square = 0;

	for (int d = 0; d < 3; d++) {
		double one = a[d] - b[d];

		if (one > s->box[d] / 2)
			one -= s->box[d];
		else if (one < -s->box[d] / 2)
			one += s->box[d];
		between[d] = one;
		square += one * one;
	}
	return square;
}

static void list_add(struct list *list, int neighbour)
{
	if (list->count == list->room) {
		list->room = list->room ? 2 * list->room : 1024;
		list->neighbour = realloc(list->neighbour, list->room * sizeof(*list->neighbour));
		if (!list->neighbour)
			app_die("no memory for %zu neighbours", list->room);
	}
	list->neighbour[list->count++] = neighbour;
}

/* Those of the atoms in one bin. */
static void list_bin(struct system *s, struct list *list, int k, int j, int i)
{
	int nx = s->bins[0], ny = s->bins[1], bin = (k * ny + j) * nx + i;
	double between[3];

	for (int a = s->start[bin]; a < s->end[bin]; a++) {
		for (int around = 0; around < 27; around++) {
			int c = k + around / 9 - 1, b = (j + around / 3 % 3 - 1 + ny) % ny;
			int other = (c * ny + b) * nx + (i + around % 3 - 1 + nx) % nx;

			for (int n = s->start[other]; n < s->end[other]; n++)
				if (n != a && distance(s, s->x[a], s->x[n], between) <
						      (CUTOFF + SKIN) * (CUTOFF + SKIN))
					list_add(list, n);
		}
		s->neighbours_end[a] = list->count;
	}
}

static void lists_free(struct system *s)
{
	for (int plane = 0; plane < s->planes.count; plane++)
		free(s->lists[plane].neighbour);
	memset(s->lists, 0, s->planes.count * sizeof(*s->lists));
	free(s->neighbours_end);
}

static void lists_build(struct system *s)
{
	lists_free(s);
	s->neighbours_end = app_alloc(s->count, sizeof(*s->neighbours_end));
	for (int plane = 0; plane < s->planes.count; plane++)
		for (int j = 0; j < s->bins[1]; j++)
			for (int i = 0; i < s->bins[0]; i++)
				list_bin(s, &s->lists[plane], plane + 1, j, i);
}

static void rebuild(struct system *s)
{
	size_t all;

	wrap(s);
	migrate(s);
	sort(s);
	halo_bins(s);
	all = s->count + s->low + s->high;
	free(s->x);
	free(s->f);
	free(s->old);
	s->x = app_alloc(all, sizeof(*s->x));
	s->f = app_alloc(s->count, sizeof(*s->f));
	s->old = app_alloc(s->count, sizeof(*s->old));
	halo(s);
	memcpy(s->old, s->x, s->count * sizeof(*s->old));
	lists_build(s);
}

/* Own atoms in a plane begin where the first of its bins does. */
static int plane_start(const struct system *s, int plane)
{
	return plane == s->planes.count ? (int)s->count : s->start[(size_t)s->bins[0] * s->bins[1] * (plane + 1)];
}

/* Forces, and the potential, which is 0 where it is cut off. */
static void forces(struct system *s)
{
	const double end = 1 / (CUTOFF * CUTOFF * CUTOFF * CUTOFF * CUTOFF * CUTOFF), shift = 4 * end * (end - 1);

	for (int plane = 0; plane < s->planes.count; plane++) {
		const struct list *list = &s->lists[plane];
		size_t n = 0;
		double sum = 0;

		for (int i = plane_start(s, plane); i < plane_start(s, plane + 1); i++) {
			double force[3] = { 0 }, between[3];

			for (; n < (size_t)s->neighbours_end[i]; n++) {
				double square = distance(s, s->x[i], s->x[list->neighbour[n]], between);
				double inverse, sixth, factor;

				if (square >= CUTOFF * CUTOFF)
					continue;
				inverse = 1 / square;
				sixth = inverse * inverse * inverse;
				factor = 48 * sixth * (sixth - 0.5) * inverse;
				for (int d = 0; d < 3; d++)
					force[d] += factor * between[d];
				sum += 0.5 * (4 * sixth * (sixth - 1) - shift);
			}
			memcpy(s->f[i], force, sizeof(force));
		}
		s->sums[plane] = sum;
	}
	s->potential = planes_sum(&s->planes, s->sums);
}

static double kinetic(struct system *s)
{
	for (int plane = 0; plane < s->planes.count; plane++) {
		double sum = 0;

		for (int i = plane_start(s, plane); i < plane_start(s, plane + 1); i++)
			for (int d = 0; d < 3; d++)
				sum += 0.5 * s->atoms[i].v[d] * s->atoms[i].v[d];
		s->sums[plane] = sum;
	}
	return planes_sum(&s->planes, s->sums);
}

static double momentum(struct system *s, int d)
{
	for (int plane = 0; plane < s->planes.count; plane++) {
		double sum = 0;

		for (int i = plane_start(s, plane); i < plane_start(s, plane + 1); i++)
			sum += s->atoms[i].v[d];
		s->sums[plane] = sum;
	}
	return planes_sum(&s->planes, s->sums);
}

static int64_t total_atoms(const struct system *s)
{
	int64_t mine = s->count, all;

	MPI_Allreduce(&mine, &all, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
	return all;
}

static void kick(struct system *s)
{
	for (size_t i = 0; i < s->count; i++)
		for (int d = 0; d < 3; d++)
			s->atoms[i].v[d] += 0.5 * TIME_STEP * s->f[i][d];
}

/* Whether an atom has gone half the skin since the last rebuild. */
static bool drift(struct system *s)
{
	double farthest = 0, all, between[3];

	for (size_t i = 0; i < s->count; i++) {
		for (int d = 0; d < 3; d++)
			s->atoms[i].x[d] += TIME_STEP * s->atoms[i].v[d];
		farthest = fmax(farthest, distance(s, s->atoms[i].x, s->old[i], between));
	}
	MPI_Allreduce(&farthest, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	return all >= SKIN * SKIN / 4;
}

/* The atoms of the lattice that are in planes of this rank. */
static void lattice(struct system *s, uint64_t seed)
{
	static const double basis[4][3] = { { 0.25, 0.25, 0.25 }, { 0.75, 0.75, 0.25 }, { 0.75, 0.25, 0.75 },
					    { 0.25, 0.75, 0.75 } };
	size_t room = 0;

	for (int pass = 0; pass < 2; pass++) {
		s->count = 0;
		for (int k = 0; k < s->cells[2]; k++)
			for (int b = 0; b < 4; b++) {
				double z = (k + basis[b][2]) * CELL;
				int plane = bin_of(s, z, 2) - s->planes.first;

				if (plane < 0 || plane >= s->planes.count)
					continue;
				for (int at = 0; at < s->cells[0] * s->cells[1]; at++) {
					int j = at / s->cells[0], i = at % s->cells[0];
					struct atom *atom = s->atoms + s->count++;
					int64_t id = ((int64_t)k * s->cells[0] * s->cells[1] + at) * 4 + b;

					if (!pass)
						continue;
					*atom = (struct atom){
						.x = { (i + basis[b][0]) * CELL,
						       (j + basis[b][1]) * CELL, z },
						.id = id,
					};
					for (int d = 0; d < 3; d++)
						atom->v[d] = uniform(seed, 3 * id + d) - 0.5;
				}
			}
		if (!pass) {
			room = s->count;
			s->atoms = app_alloc(room, sizeof(*s->atoms));
		}
	}
}

/* At rest as a whole, with the temperature it starts from. */
static void thermalise(struct system *s, int64_t atoms)
{
	double scale;

	for (int d = 0; d < 3; d++) {
		double mean = momentum(s, d) / atoms;

		for (size_t i = 0; i < s->count; i++)
			s->atoms[i].v[d] -= mean;
	}
	scale = sqrt(1.5 * TEMPERATURE * atoms / kinetic(s));
	for (size_t i = 0; i < s->count; i++)
		for (int d = 0; d < 3; d++)
			s->atoms[i].v[d] *= scale;
}

static uint64_t checksum(struct system *s)
{
	uint64_t *hashes = app_alloc(s->planes.count, sizeof(*hashes)), all;

	for (int plane = 0; plane < s->planes.count; plane++) {
		int from = plane_start(s, plane);

		hashes[plane] = hash(HASH_START, s->atoms + from,
				     (plane_start(s, plane + 1) - from) * sizeof(*s->atoms));
	}
	all = planes_hash(&s->planes, hashes);
	free(hashes);
	return all;
}

static int bins_along(double length)
{
	return length / (CUTOFF + SKIN);
}

static struct result run(const struct options *options)
{
	struct system s = { .cells = { options->size, options->size,
				       options->strong ? options->size : options->size * app_ranks } };
	double energy, furthest = 0, most = 0;
	struct result result = { 0 };
	int64_t atoms;
	int since = 0;

	for (int d = 0; d < 3; d++) {
		s.box[d] = s.cells[d] * CELL;
		s.bins[d] = bins_along(s.box[d]);
	}
	s.planes = planes_make(s.bins[2], true);
	s.lists = app_zeroed(s.planes.count, sizeof(*s.lists));
	s.sums = app_alloc(s.planes.count, sizeof(*s.sums));
	lattice(&s, options->seed);
	atoms = total_atoms(&s);
	rebuild(&s);
	thermalise(&s, atoms);
	forces(&s);
	energy = s.potential + kinetic(&s);
	for (int i = 0; i < options->iterations; i++) {
		bool far;

		kick(&s);
		far = drift(&s);
		if (far || ++since == REBUILD) {
			rebuild(&s);
			since = 0;
		} else {
			halo(&s);
		}
		forces(&s);
		kick(&s);
		furthest = fmax(furthest, fabs(s.potential + kinetic(&s) - energy));
	}
	app_loop_ends();

	for (int d = 0; d < 3; d++)
		most = fmax(most, fabs(momentum(&s, d)) / atoms);
	result.residual = furthest / fabs(energy);
	result.checksum = checksum(&s);
	/* Not a number is not verified. */
	result.verified = result.residual <= MOST_DRIFT && most <= MOST_MOMENTUM && total_atoms(&s) == atoms &&
			  atoms == (int64_t)4 * s.cells[0] * s.cells[1] * s.cells[2];
	lists_free(&s);
	free(s.lists);
	free(s.sums);
	free(s.start);
	free(s.end);
	free(s.x);
	free(s.f);
	free(s.old);
	free(s.atoms);
	planes_free(&s.planes);
	return result;
}

static double bytes(double n)
{
	/* Atoms, twice while they are sorted; positions, forces; 78 neighbours in lists with half as much room. */
	return 4 * n * n * n * (2 * 56 + 3 * 24 + 78 * 4 * 1.5);
}

/* Each needs a plane of bins. */
static int most_ranks(const struct options *options)
{
	return options->strong ? bins_along(options->size * CELL) : 1 << 16;
}

int main(int argc, char **argv)
{
	static const struct app app = {
		.name = "minimd",
		.about = "Molecular dynamics with neighbour lists that are rebuilt, as miniMD and CoMD do it.",
		.size_unit = "cells of 4 atoms in each direction",
		.default_size = 16,
		.least_size = 6,
		.most_size = 400,
		.iterations_unit = "time steps",
		.default_iterations = 100,
		.bytes = bytes,
		.most_ranks = most_ranks,
		.run = run,
	};

	return app_main(&app, argc, argv);
}
