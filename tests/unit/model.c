// SPDX-License-Identifier: GPL-2.0
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "model.h"

#define UNITS	HPMMAP_BUDDY_CHUNK_UNITS

static const unsigned long chunk_nr[MODEL_CHUNKS] = {
	0, 1, 2, 5, 64, HPMMAP_BUDDY_NR_CHUNKS - 1
};

__attribute__((format(printf, 2, 3)))
static bool fail(struct model *m, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(m->failure, sizeof(m->failure), format, args);
	va_end(args);
	return false;
}

static unsigned long pick(struct model *m, unsigned long n)
{
	return m->pick(m->pick_arg, n);
}

void model_init(struct model *m)
{
	/* Not zeros: hpmmap_buddy_init() must not depend on them. */
	memset(m, 0xa5, sizeof(*m));
	hpmmap_buddy_init(&m->buddy);
	memset(m->chunk, 0, sizeof(m->chunk));
	memset(m->state, ABSENT, sizeof(m->state));
	memset(m->seen, 0, sizeof(m->seen));
	memset(m->allocated, 0, sizeof(m->allocated));
	m->failure[0] = '\0';
}

void model_exit(struct model *m)
{
	for (int i = 0; i < MODEL_CHUNKS; i++)
		free(m->chunk[i]);
}

/* The state of a unit, or NULL where there is no chunk. */
static unsigned char *state_of(struct model *m, unsigned long unit)
{
	for (int i = 0; i < MODEL_CHUNKS; i++) {
		if (m->chunk[i] && chunk_nr[i] == unit / UNITS)
			return &m->state[i][unit % UNITS];
	}
	return NULL;
}

static bool all_free(const unsigned char *state, unsigned int nr)
{
	for (unsigned int i = 0; i < nr; i++) {
		if (state[i] != FREE)
			return false;
	}
	return true;
}

/* Order of the largest aligned free block of 2^order units, or -1. */
static int scan_largest(const unsigned char *state, int order)
{
	unsigned int nr = 1U << order;

	for (; order >= 0; order--) {
		for (unsigned int i = 0; i < nr; i += 1U << order) {
			if (all_free(&state[i], 1U << order))
				return order;
		}
	}
	return -1;
}

static int model_largest(const struct model *m)
{
	int largest = -1;

	for (int i = 0; i < MODEL_CHUNKS; i++) {
		int order = scan_largest(m->state[i], HPMMAP_BUDDY_MAX_ORDER);

		if (order > largest)
			largest = order;
	}
	return largest;
}

static unsigned long model_count(const struct model *m, int first, int last)
{
	unsigned long count = 0;

	for (int i = 0; i < MODEL_CHUNKS; i++) {
		for (unsigned int u = 0; u < UNITS; u++)
			count += m->state[i][u] >= first && m->state[i][u] <= last;
	}
	return count;
}

static bool compare_counters(struct model *m)
{
	unsigned long nr_total = model_count(m, FREE, USED);
	unsigned long nr_free = model_count(m, FREE, FREE);
	int largest = model_largest(m);

	if (m->buddy.nr_total != nr_total)
		return fail(m, "total units: %lu, model: %lu",
			    m->buddy.nr_total, nr_total);
	if (m->buddy.nr_free != nr_free)
		return fail(m, "free units: %lu, model: %lu",
			    m->buddy.nr_free, nr_free);
	if (hpmmap_buddy_largest(&m->buddy) != largest)
		return fail(m, "largest order: %d, model: %d",
			    hpmmap_buddy_largest(&m->buddy), largest);
	return true;
}

static bool compare_chunk(struct model *m, int i)
{
	const struct hpmmap_buddy_chunk *chunk = m->chunk[i];
	const unsigned char *state = m->state[i];
	unsigned int nr_present = 0, nr_free = 0;

	for (unsigned int u = 0; u < UNITS; u++) {
		nr_present += state[u] != ABSENT;
		nr_free += state[u] == FREE;
		if (chunk->present[u] != (state[u] != ABSENT))
			return fail(m, "chunk %lu: unit %u: present is %u",
				    chunk->nr, u, chunk->present[u]);
	}
	if (chunk->nr_present != nr_present || chunk->nr_free != nr_free)
		return fail(m, "chunk %lu: %u present, %u free, model: %u, %u",
			    chunk->nr, chunk->nr_present, chunk->nr_free,
			    nr_present, nr_free);
	for (int order = 0; order <= HPMMAP_BUDDY_MAX_ORDER; order++) {
		for (unsigned int u = 0; u < UNITS; u += 1U << order) {
			unsigned int node = (UNITS + u) >> order;
			int value = scan_largest(&state[u], order) + 1;

			if (chunk->tree[node] != value)
				return fail(m, "chunk %lu: node %u is %u, model: %d",
					    chunk->nr, node, chunk->tree[node],
					    value);
		}
	}
	return true;
}

bool model_compare(struct model *m)
{
	unsigned int in_buckets = 0, in_model = 0;

	if (!compare_counters(m))
		return false;
	for (int i = 0; i < MODEL_CHUNKS; i++) {
		struct hpmmap_buddy_chunk *found;

		found = hpmmap_buddy_chunk_find(&m->buddy, chunk_nr[i] * UNITS);
		if (found != m->chunk[i])
			return fail(m, "chunk %lu is not found as inserted",
				    chunk_nr[i]);
		if (!found)
			continue;
		in_model++;
		if (!compare_chunk(m, i))
			return false;
	}
	for (unsigned int v = 0; v < HPMMAP_BUDDY_MAX_ORDER + 2; v++) {
		struct hpmmap_buddy_chunk **link = &m->buddy.bucket[v];

		for (; *link; link = &(*link)->next) {
			if ((*link)->pprev != link)
				return fail(m, "chunk %lu: list is broken",
					    (*link)->nr);
			if ((*link)->tree[1] != v)
				return fail(m, "chunk %lu of value %u is in bucket %u",
					    (*link)->nr, (*link)->tree[1], v);
			if (++in_buckets > in_model)
				return fail(m, "more chunks in buckets than there are");
		}
	}
	if (in_buckets != in_model)
		return fail(m, "%u chunks in buckets of %u", in_buckets,
			    in_model);
	return true;
}

static bool compare_result(struct model *m, enum model_op op, int err,
			   int expected, unsigned long a, unsigned long b)
{
	static const char * const name[MODEL_NR_OPS] = {
		"chunk_insert", "chunk_remove", "add", "remove", "alloc",
		"alloc_unlike", "free", "free", "take", "free_range",
		"count_free"
	};

	if (err != expected)
		return fail(m, "%s(%lu, %lu) gives %d, model: %d", name[op], a,
			    b, err, expected);
	m->seen[op][-err]++;
	return true;
}

static bool step_chunk_insert(struct model *m)
{
	int i = pick(m, MODEL_CHUNKS);
	bool beyond = pick(m, 16) == 0;
	unsigned long nr = beyond ? HPMMAP_BUDDY_NR_CHUNKS + pick(m, 2) :
			   chunk_nr[i];
	int expected = beyond ? -EINVAL : m->chunk[i] ? -EEXIST : 0;
	struct hpmmap_buddy_chunk *chunk = malloc(sizeof(*chunk));
	int err;

	if (!chunk)
		return fail(m, "out of memory");
	memset(chunk, 0xa5, sizeof(*chunk));
	err = hpmmap_buddy_chunk_insert(&m->buddy, chunk, nr);
	if (err)
		free(chunk);
	else
		m->chunk[i] = chunk;
	return compare_result(m, MODEL_CHUNK_INSERT, err, expected, nr, 0);
}

static bool step_chunk_remove(struct model *m)
{
	int i = pick(m, MODEL_CHUNKS);
	int expected = 0;
	int err;

	if (!m->chunk[i])
		return true;
	for (unsigned int u = 0; u < UNITS; u++) {
		if (m->state[i][u] != ABSENT)
			expected = -EBUSY;
	}
	err = hpmmap_buddy_chunk_remove(&m->buddy, m->chunk[i]);
	if (!err) {
		free(m->chunk[i]);
		m->chunk[i] = NULL;
	}
	return compare_result(m, MODEL_CHUNK_REMOVE, err, expected, chunk_nr[i],
			      0);
}

/* A range; half of the time one that is in @state from end to end. */
static void pick_range(struct model *m, unsigned char state,
		       unsigned long *unit, unsigned long *nr)
{
	int i = pick(m, MODEL_CHUNKS);
	unsigned int first = pick(m, UNITS);
	unsigned int end;

	*unit = chunk_nr[i] * UNITS + first;
	switch (pick(m, 16)) {
	case 0:
		*nr = 1 + pick(m, 3 * UNITS);
		break;
	case 1:
		*nr = pick(m, 4) ? 1 : 0;
		break;
	case 2:		/* over the end of all units, or wrapped */
		*unit = HPMMAP_BUDDY_NR_UNITS - 1 + pick(m, 2);
		*nr = pick(m, 2) ? 2 : -1UL;
		break;
	case 3:
	case 4:		/* a chunk */
		*unit -= first;
		*nr = UNITS;
		break;
	case 5:
	case 6:
	case 7:		/* a memory section of 128 MB */
		*unit -= first % 64;
		*nr = 64;
		break;
	default:	/* all or the last part of a run in @state */
		while (first < UNITS - 1 && m->state[i][first] != state)
			first++;
		if (pick(m, 2)) {
			while (first && m->state[i][first - 1] == state)
				first--;
		}
		for (end = first; end < UNITS && m->state[i][end] == state;)
			end++;
		*unit = chunk_nr[i] * UNITS + first;
		*nr = end > first ? end - first : 1;
	}
}

static bool in_space(unsigned long unit, unsigned long nr)
{
	return unit < HPMMAP_BUDDY_NR_UNITS &&
	       nr <= HPMMAP_BUDDY_NR_UNITS - unit;
}

static bool step_add(struct model *m)
{
	unsigned long unit, nr;
	int expected = 0;
	int err;

	pick_range(m, ABSENT, &unit, &nr);
	if (!nr || !in_space(unit, nr))
		expected = -EINVAL;
	for (unsigned long u = unit; !expected && u < unit + nr; u++) {
		if (!state_of(m, u))
			expected = -ENOENT;
		else if (*state_of(m, u) != ABSENT)
			expected = -EEXIST;
	}
	for (unsigned long u = unit; !expected && u < unit + nr; u++)
		*state_of(m, u) = FREE;
	err = hpmmap_buddy_add(&m->buddy, unit, nr);
	return compare_result(m, MODEL_ADD, err, expected, unit, nr);
}

static bool step_remove(struct model *m)
{
	unsigned long unit, nr;
	int expected = 0;
	int err;

	pick_range(m, FREE, &unit, &nr);
	if (!nr || !in_space(unit, nr))
		expected = -EINVAL;
	for (unsigned long u = unit;
	     (!expected || expected == -EBUSY) && u < unit + nr; u++) {
		if (!state_of(m, u) || *state_of(m, u) == ABSENT)
			expected = -ENOENT;
		else if (*state_of(m, u) == USED)
			expected = -EBUSY;
	}
	for (unsigned long u = unit; !expected && u < unit + nr; u++)
		*state_of(m, u) = ABSENT;
	err = hpmmap_buddy_remove(&m->buddy, unit, nr);
	return compare_result(m, MODEL_REMOVE, err, expected, unit, nr);
}

/* Where in a chunk a block must come from, by the rule of best fit. */
static unsigned int best_fit(const unsigned char *state, int order)
{
	unsigned int first = 0;

	for (int level = HPMMAP_BUDDY_MAX_ORDER - 1; level >= order; level--) {
		unsigned int half = 1U << level;
		int left = scan_largest(&state[first], level);
		int right = scan_largest(&state[first + half], level);

		if (left < order || (right >= order && right < left))
			first += half;
	}
	return first;
}

static bool step_alloc(struct model *m)
{
	unsigned int order = pick(m, HPMMAP_BUDDY_MAX_ORDER + 2);
	int best = HPMMAP_BUDDY_MAX_ORDER + 1;
	unsigned long unit = -1UL;
	int expected, err, i;

	for (i = 0; i < MODEL_CHUNKS; i++) {
		int largest = scan_largest(m->state[i], HPMMAP_BUDDY_MAX_ORDER);

		if (largest >= (int)order && largest < best)
			best = largest;
	}
	expected = order > HPMMAP_BUDDY_MAX_ORDER ? -EINVAL :
		   best > HPMMAP_BUDDY_MAX_ORDER ? -ENOMEM : 0;
	err = hpmmap_buddy_alloc(&m->buddy, order, &unit);
	if (!compare_result(m, MODEL_ALLOC, err, expected, order, 0))
		return false;
	if (err)
		return unit == -1UL ||
		       fail(m, "alloc(%u) fails but writes the unit", order);

	for (i = 0; i < MODEL_CHUNKS; i++) {
		if (m->chunk[i] && chunk_nr[i] == unit / UNITS)
			break;
	}
	if (i == MODEL_CHUNKS)
		return fail(m, "alloc(%u): unit %lu is in no chunk", order,
			    unit);
	if (scan_largest(m->state[i], HPMMAP_BUDDY_MAX_ORDER) != best)
		return fail(m, "alloc(%u): chunk %lu is not the best fit",
			    order, chunk_nr[i]);
	if (unit % UNITS != best_fit(m->state[i], order))
		return fail(m, "alloc(%u): unit %lu of chunk %lu, model: %u",
			    order, unit % UNITS, chunk_nr[i],
			    best_fit(m->state[i], order));
	if (unit % (1UL << order))
		return fail(m, "alloc(%u): unit %lu is not aligned", order,
			    unit);
	for (unsigned long u = unit; u < unit + (1UL << order); u++) {
		if (*state_of(m, u) != FREE)
			return fail(m, "alloc(%u): unit %lu is not free", order,
				    u);
		*state_of(m, u) = USED;
	}
	m->allocated[order]++;
	return true;
}

/* The other chunk has some of the free units, as the tree of clean blocks has. */
static bool step_alloc_unlike(struct model *m)
{
	unsigned int nr = 1 + pick(m, 2 * UNITS), one_in = 1 + pick(m, 4);
	int i = pick(m, MODEL_CHUNKS);
	struct hpmmap_buddy_chunk other;
	unsigned char *state = m->state[i];
	unsigned int first = 0, n = 0, got;
	unsigned long unit = -1UL;

	if (!m->chunk[i])
		return true;
	memset(&other, 0, sizeof(other));
	for (unsigned int u = 0; u < UNITS; u++)
		other.tree[UNITS + u] = state[u] == FREE && !pick(m, one_in);
	for (unsigned int u = 0; u < UNITS && n < nr; u++) {
		if (state[u] == FREE && !other.tree[UNITS + u]) {
			if (!n++)
				first = u;
			state[u] = USED;
		} else if (n) {
			break;
		}
	}
	got = hpmmap_buddy_alloc_unlike(&m->buddy, m->chunk[i], &other, nr,
					&unit);
	if (got != n)
		return fail(m, "alloc_unlike(%u) gives %u, model: %u", nr, got, n);
	if (unit != (n ? chunk_nr[i] * UNITS + first : -1UL))
		return fail(m, "alloc_unlike(%u): unit %lu of chunk %lu, model: %u",
			    nr, unit, chunk_nr[i], first);
	return compare_result(m, MODEL_ALLOC_UNLIKE, n ? 0 : -ENOMEM,
			      n ? 0 : -ENOMEM, nr, 0);
}

static bool free_block(struct model *m, enum model_op op, unsigned long unit,
		       unsigned int order)
{
	unsigned long nr = 1UL << order;
	int expected = 0;
	int err;

	if (!in_space(unit, nr))
		expected = -EINVAL;
	for (unsigned long u = unit; !expected && u < unit + nr; u++) {
		if (!state_of(m, u) || *state_of(m, u) == ABSENT)
			expected = -ENOENT;
	}
	for (unsigned long u = unit; !expected && u < unit + nr; u++) {
		if (*state_of(m, u) == FREE)
			expected = -EINVAL;
	}
	for (unsigned long u = unit; !expected && u < unit + nr; u++)
		*state_of(m, u) = FREE;
	err = hpmmap_buddy_free_range(&m->buddy, unit, nr);
	return compare_result(m, op, err, expected, unit, order);
}

/* Frees the largest block of allocated units around one, or a piece of it. */
static bool step_free(struct model *m)
{
	int i = pick(m, MODEL_CHUNKS);
	unsigned int u = pick(m, UNITS);
	unsigned int order, max;

	while (u < UNITS - 1 && m->state[i][u] != USED)
		u++;
	if (m->state[i][u] != USED)
		return true;
	for (max = 0; max < HPMMAP_BUDDY_MAX_ORDER; max++) {
		unsigned int nr = 2U << max;
		unsigned int first = u - u % nr;
		unsigned int n = 0;

		while (n < nr && m->state[i][first + n] == USED)
			n++;
		if (n < nr)
			break;
	}
	order = pick(m, 2) ? max : pick(m, max + 1);
	u -= u % (1U << order);
	return free_block(m, MODEL_FREE, chunk_nr[i] * UNITS + u, order);
}

static bool step_free_any(struct model *m)
{
	unsigned int order = pick(m, HPMMAP_BUDDY_MAX_ORDER + 2);
	unsigned long unit = chunk_nr[pick(m, MODEL_CHUNKS)] * UNITS +
			     pick(m, UNITS);

	if (pick(m, 4))
		unit -= unit % (1UL << order);
	if (pick(m, 16) == 0)
		unit += HPMMAP_BUDDY_NR_UNITS;
	return free_block(m, MODEL_FREE_ANY, unit, order);
}

/* Units of a state become units of the other, or what is expected instead. */
static int change(struct model *m, unsigned long unit, unsigned long nr,
		  unsigned char from, int wrong)
{
	unsigned char to = from == FREE ? USED : FREE;

	for (unsigned long u = unit; u < unit + nr; u++)
		if (!state_of(m, u) || *state_of(m, u) == ABSENT)
			return -ENOENT;
	for (unsigned long u = unit; u < unit + nr; u++)
		if (*state_of(m, u) != from)
			return wrong;
	for (unsigned long u = unit; u < unit + nr; u++)
		*state_of(m, u) = to;
	return 0;
}

static bool step_take(struct model *m)
{
	unsigned int order = pick(m, HPMMAP_BUDDY_MAX_ORDER + 2);
	unsigned long unit = chunk_nr[pick(m, MODEL_CHUNKS)] * UNITS +
			     pick(m, UNITS);
	int expected, err;

	if (pick(m, 2))
		order = pick(m, 2);
	if (pick(m, 8))
		unit -= unit % (1UL << order);
	if (pick(m, 16) == 0)
		unit += HPMMAP_BUDDY_NR_UNITS;
	if (order > HPMMAP_BUDDY_MAX_ORDER || !in_space(unit, 1) ||
	    unit % (1UL << order))
		expected = -EINVAL;
	else
		expected = change(m, unit, 1UL << order, FREE, -EBUSY);
	err = hpmmap_buddy_take(&m->buddy, unit, order);
	return compare_result(m, MODEL_TAKE, err, expected, unit, order);
}

static bool step_free_range(struct model *m)
{
	unsigned long unit, nr;
	int expected, err;

	pick_range(m, USED, &unit, &nr);
	expected = nr && in_space(unit, nr) ?
		   change(m, unit, nr, USED, -EINVAL) : -EINVAL;
	err = hpmmap_buddy_free_range(&m->buddy, unit, nr);
	return compare_result(m, MODEL_FREE_RANGE, err, expected, unit, nr);
}

static bool step_count(struct model *m)
{
	unsigned long expected = 0;
	unsigned long unit, nr, count;
	unsigned char *state;

	pick_range(m, FREE, &unit, &nr);
	for (unsigned long u = unit; in_space(unit, nr) && u < unit + nr; u++) {
		state = state_of(m, u);
		expected += state && *state == FREE;
	}
	count = hpmmap_buddy_count_free(&m->buddy, unit, nr);
	if (count != expected)
		return fail(m, "count_free(%lu, %lu) gives %lu, model: %lu",
			    unit, nr, count, expected);
	state = state_of(m, unit);
	if (hpmmap_buddy_is_free(&m->buddy, unit) != (state && *state == FREE))
		return fail(m, "is_free(%lu) is wrong", unit);
	m->seen[MODEL_COUNT][0]++;
	return true;
}

bool model_step(struct model *m, enum model_op op)
{
	static bool (* const step[MODEL_NR_OPS])(struct model *m) = {
		step_chunk_insert, step_chunk_remove, step_add, step_remove,
		step_alloc, step_alloc_unlike, step_free, step_free_any,
		step_take, step_free_range, step_count
	};

	return step[op](m) && compare_counters(m);
}
