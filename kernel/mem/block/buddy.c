// SPDX-License-Identifier: GPL-2.0
/*
 * Buddy allocator for the 2 MB units of one NUMA node.
 *
 * Each chunk of 1 GB carries a tree that knows the largest free block below
 * every node down to the single units, so the tree never has to remember what
 * was allocated as one block: a block may be freed in pieces. The order of a
 * chunk is the order of its largest free block; nothing merges across chunks.
 *
 * An allocation takes the chunk with the smallest sufficient order and, inside
 * it, descends to the child with the smallest sufficient one, so that large
 * blocks stay whole as long as possible.
 */
#include "mem/block/buddy.h"

#define CHUNK_UNITS	HPMMAP_BUDDY_CHUNK_UNITS

/*
 * The index of the chunks is a digital search tree: the lowest bit of the
 * number selects the child of the root, the next bit the child of that, and
 * so on. Consecutive numbers spread evenly, no memory is needed besides the
 * chunks, and the depth is at most the number of bits of a chunk number.
 *
 * Returns the pointer that leads to chunk @nr, or the NULL pointer where it
 * would be linked.
 */
static struct hpmmap_buddy_chunk **chunk_link(struct hpmmap_buddy *b, unsigned long nr)
{
	struct hpmmap_buddy_chunk **link = &b->root;
	unsigned long bits = nr;

	while (*link && (*link)->nr != nr) {
		link = &(*link)->child[bits & 1];
		bits >>= 1;
	}
	return link;
}

/* Takes the chunk at @link out; a leaf below it, if any, takes its place. */
static void chunk_unlink(struct hpmmap_buddy_chunk **link)
{
	struct hpmmap_buddy_chunk **leaf = link;
	struct hpmmap_buddy_chunk *chunk = *link;
	struct hpmmap_buddy_chunk *heir;

	while ((*leaf)->child[0] || (*leaf)->child[1])
		leaf = &(*leaf)->child[!(*leaf)->child[0]];
	heir = *leaf;
	*leaf = NULL;
	if (heir == chunk)
		return;
	heir->child[0] = chunk->child[0];
	heir->child[1] = chunk->child[1];
	*link = heir;
}

static void bucket_insert(struct hpmmap_buddy *b, struct hpmmap_buddy_chunk *chunk)
{
	struct hpmmap_buddy_chunk **head = &b->bucket[chunk->tree[1]];

	chunk->next = *head;
	chunk->pprev = head;
	if (*head)
		(*head)->pprev = &chunk->next;
	*head = chunk;
	b->filled |= 1U << chunk->tree[1];
}

static void bucket_remove(struct hpmmap_buddy *b, struct hpmmap_buddy_chunk *chunk,
			  unsigned int bucket)
{
	*chunk->pprev = chunk->next;
	if (chunk->next)
		chunk->next->pprev = chunk->pprev;
	if (!b->bucket[bucket])
		b->filled &= ~(1U << bucket);
}

/* The value of a node of an order other than 0, from its children. */
static u8 node_value(const u8 *tree, unsigned int node, unsigned int order)
{
	u8 left = tree[2 * node];
	u8 right = tree[2 * node + 1];

	/* The children's order is one less, their value one more. */
	if (left == order && right == order)
		return order + 1;
	return left > right ? left : right;
}

/* A node has changed: what lies above it, from @order on, as far as that changes. */
static void tree_rise(u8 *tree, unsigned int node, unsigned int order)
{
	for (; (node /= 2); order++) {
		u8 value = node_value(tree, node, order);

		if (tree[node] == value)
			break;
		tree[node] = value;
	}
}

/*
 * The units from @lo to @hi have changed: all nodes above them, up to the order that is returned, of
 * which there is one. Nodes that have only such units below them are alike.
 */
static unsigned int tree_fill(u8 *tree, unsigned int lo, unsigned int hi, bool free)
{
	unsigned int order = 0, first, end;

	while (lo >> order != hi >> order) {
		order++;
		first = (lo + (1U << order) - 1) >> order;
		end = (hi + 1) >> order;
		if (first < end)
			memset(&tree[first], free ? order + 1 : 0, end - first);
		if (lo >> order < first)
			tree[lo >> order] = node_value(tree, lo >> order, order);
		if (hi >> order >= end)
			tree[hi >> order] = node_value(tree, hi >> order, order);
	}
	return order;
}

/*
 * Sets @nr units of @chunk from @first on to free or not free; all of them
 * must be the opposite before.
 */
static void chunk_set_free(struct hpmmap_buddy *b,
			   struct hpmmap_buddy_chunk *chunk, unsigned int first,
			   unsigned int nr, bool free)
{
	unsigned int lo = CHUNK_UNITS + first, order = 0;
	u8 root = chunk->tree[1];
	u8 *tree = chunk->tree;

	if (nr == 1) {
		tree[lo] = free;
	} else if (nr == CHUNK_UNITS && !free) {
		memset(tree, 0, sizeof(chunk->tree));
		lo = 1;
	} else {
		memset(&tree[lo], free, nr);
		order = tree_fill(tree, lo, lo + nr - 1, free);
	}
	tree_rise(tree, lo >> order, order + 1);
	if (tree[1] != root) {
		bucket_remove(b, chunk, root);
		bucket_insert(b, chunk);
	}
	if (free) {
		chunk->nr_free += nr;
		b->nr_free += nr;
	} else {
		chunk->nr_free -= nr;
		b->nr_free -= nr;
	}
}

/* Is one of @nr bytes, 0 or 1 each, @what? */
static bool has_one(const u8 *bytes, u8 what, unsigned int nr)
{
	const unsigned long without = what ? 0 : ~0UL / 0xff;
	unsigned long word;

	for (; nr >= sizeof(word); nr -= sizeof(word), bytes += sizeof(word)) {
		memcpy(&word, bytes, sizeof(word));
		if (word != without)
			return true;
	}
	for (; nr; nr--)
		if (*bytes++ == what)
			return true;
	return false;
}

static bool range_valid(unsigned long unit, unsigned long nr)
{
	return nr && unit < HPMMAP_BUDDY_NR_UNITS && nr <= HPMMAP_BUDDY_NR_UNITS - unit;
}

/* Number of units from @unit on that are in its chunk and before @end. */
static unsigned int span_units(unsigned long unit, unsigned long end)
{
	unsigned int in_chunk = CHUNK_UNITS - unit % CHUNK_UNITS;

	return end - unit < in_chunk ? end - unit : in_chunk;
}

/*
 * Are all units of a range present, and free or not? Returns 0, -EINVAL for what is no range, -ENOENT
 * where one is not present, else @other where one is not as it should be.
 */
static int range_check(const struct hpmmap_buddy *b, unsigned long unit, unsigned long nr,
		       bool free, int other)
{
	unsigned long end = unit + nr;
	unsigned int n;
	int ret = 0;

	if (!range_valid(unit, nr))
		return -EINVAL;
	for (; unit < end; unit += n) {
		const struct hpmmap_buddy_chunk *chunk = hpmmap_buddy_chunk_find(b, unit);
		unsigned int first = unit % CHUNK_UNITS;

		n = span_units(unit, end);
		if (!chunk || (chunk->nr_present < CHUNK_UNITS && has_one(&chunk->present[first], 0, n)))
			return -ENOENT;
		if ((free || chunk->nr_free) && has_one(&chunk->tree[CHUNK_UNITS + first], !free, n))
			ret = other;
	}
	return ret;
}

/* Sets the units of a range to free or not, with @present to present or not as well. */
static void range_set(struct hpmmap_buddy *b, unsigned long unit, unsigned long nr, bool free,
		      bool present)
{
	unsigned long end = unit + nr;
	unsigned int n;

	for (; unit < end; unit += n) {
		struct hpmmap_buddy_chunk *chunk = hpmmap_buddy_chunk_find(b, unit);

		n = span_units(unit, end);
		if (present) {
			memset(&chunk->present[unit % CHUNK_UNITS], free, n);
			chunk->nr_present += free ? n : -n;
			b->nr_total += free ? n : -(unsigned long)n;
		}
		chunk_set_free(b, chunk, unit % CHUNK_UNITS, n, free);
	}
}

/* An empty allocator. What the memory had before does not matter. */
void hpmmap_buddy_init(struct hpmmap_buddy *b)
{
	memset(b, 0, sizeof(*b));
}

/* The chunk of a unit, which need not be present; NULL if the allocator has none there. */
struct hpmmap_buddy_chunk *hpmmap_buddy_chunk_find(const struct hpmmap_buddy *b, unsigned long unit)
{
	/* chunk_link() changes nothing: the const is cast away only to share its code. */
	return *chunk_link((struct hpmmap_buddy *)b, unit / CHUNK_UNITS);
}

/*
 * Inserts chunk number @nr, without any unit present. Its memory belongs to the allocator
 * until hpmmap_buddy_chunk_remove(). Returns 0; -EINVAL if @nr is beyond the largest physical
 * address, or -EEXIST: then @chunk stays the caller's.
 */
int hpmmap_buddy_chunk_insert(struct hpmmap_buddy *b, struct hpmmap_buddy_chunk *chunk,
			      unsigned long nr)
{
	struct hpmmap_buddy_chunk **link;

	if (nr >= HPMMAP_BUDDY_NR_CHUNKS)
		return -EINVAL;
	link = chunk_link(b, nr);
	if (*link)
		return -EEXIST;
	memset(chunk, 0, sizeof(*chunk));
	chunk->nr = nr;
	*link = chunk;
	bucket_insert(b, chunk);
	return 0;
}

/* Takes a chunk out. Returns 0, and it is the caller's, or -EBUSY if a unit of it is present. */
int hpmmap_buddy_chunk_remove(struct hpmmap_buddy *b, struct hpmmap_buddy_chunk *chunk)
{
	if (chunk->nr_present)
		return -EBUSY;
	bucket_remove(b, chunk, chunk->tree[1]);
	chunk_unlink(chunk_link(b, chunk->nr));
	return 0;
}

/*
 * Makes @nr units present and free; they may span chunks. Returns 0, or nothing has changed:
 * -EINVAL if the range is empty or reaches beyond the largest physical address, -ENOENT if a
 * chunk is missing, -EEXIST if a unit is present (of these two, what the lower address has).
 */
int hpmmap_buddy_add(struct hpmmap_buddy *b, unsigned long unit, unsigned long nr)
{
	struct hpmmap_buddy_chunk *chunk;
	unsigned long end = unit + nr, u;
	unsigned int n;

	if (!range_valid(unit, nr))
		return -EINVAL;
	for (u = unit; u < end; u += n) {
		n = span_units(u, end);
		chunk = hpmmap_buddy_chunk_find(b, u);
		if (!chunk)
			return -ENOENT;
		if (has_one(&chunk->present[u % CHUNK_UNITS], 1, n))
			return -EEXIST;
	}
	range_set(b, unit, nr, true, true);
	return 0;
}

/*
 * Makes @nr free units not present; they may span chunks. A chunk without units stays. Returns
 * 0, or nothing has changed: -EINVAL as hpmmap_buddy_add(), -ENOENT if a unit is not present,
 * else -EBUSY if one is not free.
 */
int hpmmap_buddy_remove(struct hpmmap_buddy *b, unsigned long unit, unsigned long nr)
{
	int ret = range_check(b, unit, nr, true, -EBUSY);

	if (!ret)
		range_set(b, unit, nr, false, true);
	return ret;
}

/*
 * Allocates a block of 2^order units. @unit: out: the first one, a multiple of 2^order.
 * Returns 0, -EINVAL if @order is larger than HPMMAP_BUDDY_MAX_ORDER, or -ENOMEM.
 */
int hpmmap_buddy_alloc(struct hpmmap_buddy *b, unsigned int order, unsigned long *unit)
{
	struct hpmmap_buddy_chunk *chunk;
	unsigned int node = 1;
	unsigned int level;
	unsigned int first;

	if (order > HPMMAP_BUDDY_MAX_ORDER)
		return -EINVAL;
	if (!(b->filled >> (order + 1)))
		return -ENOMEM;
	chunk = b->bucket[__builtin_ctz(b->filled >> (order + 1)) + order + 1];

	for (level = HPMMAP_BUDDY_MAX_ORDER; level > order; level--) {
		/* Of a child that is too small, a large number. */
		u8 left = chunk->tree[2 * node] - order - 1;
		u8 right = chunk->tree[2 * node + 1] - order - 1;

		node = 2 * node + (right < left);
	}
	first = (node << order) - CHUNK_UNITS;
	chunk_set_free(b, chunk, first, 1U << order, false);
	*unit = chunk->nr * CHUNK_UNITS + first;
	return 0;
}

/*
 * Allocates units of @chunk, @nr at most, that follow each other and are not free in @other,
 * the chunk of that number of another allocator. @unit: out: the first one. Returns how many,
 * 0 if there is none.
 */
unsigned int hpmmap_buddy_alloc_unlike(struct hpmmap_buddy *b, struct hpmmap_buddy_chunk *chunk,
				       const struct hpmmap_buddy_chunk *other,
				       unsigned int nr, unsigned long *unit)
{
	const u8 *free = &chunk->tree[CHUNK_UNITS];
	const u8 *not = &other->tree[CHUNK_UNITS];
	unsigned int first = 0, end;

	while (first < CHUNK_UNITS && free[first] <= not[first])
		first++;
	for (end = first; end < CHUNK_UNITS && end - first < nr; end++)
		if (free[end] <= not[end])
			break;
	if (end == first)
		return 0;
	chunk_set_free(b, chunk, first, end - first, false);
	*unit = chunk->nr * CHUNK_UNITS + first;
	return end - first;
}

/* A block is a range within a chunk. */
static bool block_valid(unsigned long unit, unsigned int order)
{
	return order <= HPMMAP_BUDDY_MAX_ORDER &&
	       unit < HPMMAP_BUDDY_NR_UNITS && !(unit & ((1UL << order) - 1));
}

/*
 * Allocates the block of 2^order units from @unit on. Returns 0, or nothing has changed:
 * -EINVAL if @order is too large, or @unit not aligned to it or beyond the largest physical
 * address; -ENOENT if a unit is not present, else -EBUSY if one is not free.
 */
int hpmmap_buddy_take(struct hpmmap_buddy *b, unsigned long unit, unsigned int order)
{
	unsigned int first = unit % CHUNK_UNITS;
	struct hpmmap_buddy_chunk *chunk;

	if (!block_valid(unit, order))
		return -EINVAL;
	chunk = hpmmap_buddy_chunk_find(b, unit);
	if (!chunk)
		return -ENOENT;
	if (chunk->tree[(CHUNK_UNITS + first) >> order] != order + 1)
		return has_one(&chunk->present[first], 0, 1U << order) ? -ENOENT : -EBUSY;
	chunk_set_free(b, chunk, first, 1U << order, false);
	return 0;
}

/*
 * Frees @nr units, however they were allocated; they may span chunks. Returns 0, or nothing
 * has changed: -EINVAL as hpmmap_buddy_add(), -ENOENT if a unit is not present, else -EINVAL
 * if one is free.
 */
int hpmmap_buddy_free_range(struct hpmmap_buddy *b, unsigned long unit, unsigned long nr)
{
	int ret = range_check(b, unit, nr, false, -EINVAL);

	if (!ret)
		range_set(b, unit, nr, true, false);
	return ret;
}

/* The order of the largest free block; -1 if no unit is free. */
int hpmmap_buddy_largest(const struct hpmmap_buddy *b)
{
	return b->filled >> 1 ? 30 - __builtin_clz(b->filled) : -1;
}

/* Is each unit of a chunk present and free? */
bool hpmmap_buddy_chunk_is_free(const struct hpmmap_buddy_chunk *chunk)
{
	return chunk->tree[1] == HPMMAP_BUDDY_MAX_ORDER + 1;
}

/* Is a unit present and free? @unit: any value. */
bool hpmmap_buddy_is_free(const struct hpmmap_buddy *b, unsigned long unit)
{
	const struct hpmmap_buddy_chunk *chunk;

	chunk = hpmmap_buddy_chunk_find(b, unit);
	return chunk && chunk->tree[CHUNK_UNITS + unit % CHUNK_UNITS];
}

/*
 * How many units of a range are free? Some need not be present. 0 for a range that reaches
 * beyond the largest physical address.
 */
unsigned long hpmmap_buddy_count_free(const struct hpmmap_buddy *b,
				      unsigned long unit, unsigned long nr)
{
	const struct hpmmap_buddy_chunk *chunk;
	unsigned long end = unit + nr;
	unsigned long count = 0;
	unsigned int i, n;

	if (!range_valid(unit, nr))
		return 0;
	for (; unit < end; unit += n) {
		n = span_units(unit, end);
		chunk = hpmmap_buddy_chunk_find(b, unit);
		if (!chunk)
			continue;
		if (n == CHUNK_UNITS) {
			count += chunk->nr_free;
			continue;
		}
		for (i = 0; i < n; i++)
			count += chunk->tree[CHUNK_UNITS + unit % CHUNK_UNITS + i];
	}
	return count;
}
