// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Collectives. A barrier says that all sources are ready, each PE reads what it needs where it is, and a barrier
 * says that all have read. Nothing is packed or copied twice.
 */
#include "internal.h"

/* Bytes of a part of a reduction that is computed at a time. */
#define PART	4096

/* ---- Barriers ------------------------------------------------------------------ */

static struct team *need_team(const char *what, shmem_team_t handle)
{
	need_init(what);
	if (handle == SHMEM_TEAM_INVALID)
		die(what, "the team is SHMEM_TEAM_INVALID");
	return team_of(handle);
}

/* Puts and gets are complete when they return, so these are the same. */
API(void, barrier_all, (void))
{
	need_init(__func__);
	barrier_all();
}

API(void, sync_all, (void))
{
	need_init(__func__);
	barrier_all();
}

API(int, team_sync, (shmem_team_t team))
{
	team_barrier(need_team(__func__, team));
	return 0;
}

API(void, barrier, (int PE_start, int logPE_stride, int PE_size, long *pSync))
{
	(void)pSync;
	team_barrier(active_set(__func__, PE_start, logPE_stride, PE_size));
}

API(void, sync, (int PE_start, int logPE_stride, int PE_size, long *pSync))
{
	(void)pSync;
	team_barrier(active_set(__func__, PE_start, logPE_stride, PE_size));
}

/* ---- Moves ---------------------------------------------------------------------- */

/* A call: sizes in bytes, strides in elements of unit bytes. */
struct call {
	const char *what;
	struct team *team;
	char *dest;
	const char *source;
	size_t nelems;
	size_t unit;
};

/* Where this PE sees the source, from an offset on, of the i-th PE of the team. */
static const char *source_of(const struct call *call, int i, size_t offset, size_t bytes)
{
	return there(call->what, call->source + offset, bytes, world_pe(call->team, i));
}

static void broadcast(const struct call *call, int root, bool to_root)
{
	size_t bytes = span(call->nelems, 1, 1, call->unit);

	if (root < 0 || root >= call->team->size)
		die(call->what, "there is no PE %d in the team: it has PEs 0 to %d", root, call->team->size - 1);
	team_barrier(call->team);
	if ((to_root || call->team->me != root) && call->dest != source_of(call, root, 0, bytes))
		memmove(call->dest, source_of(call, root, 0, bytes), bytes);
	team_barrier(call->team);
}

/* The place of a symmetric object: the same number at all PEs. */
#define IN_IMAGE	((uint64_t)1 << 63)
static uint64_t place_of(const char *ptr)
{
	uintptr_t offset = (uintptr_t)ptr - self.heap;

	return offset < self.heap_bytes ? offset : IN_IMAGE | ((uintptr_t)ptr - self.image);
}

static const char *at_place(uint64_t place)
{
	return (const char *)(place & IN_IMAGE ? self.image + (place & ~IN_IMAGE) : self.heap + place);
}

/* A PE without elements need not know where the others have theirs. */
static void collect(struct call *call)
{
	struct slot *slot = call->team->slot;
	uint64_t *words = slot->word;
	char *to = call->dest;

	words[call->team->me] = span(call->nelems, 1, 1, call->unit);
	if (call->nelems)
		slot->source = place_of(call->source);
	team_barrier(call->team);
	if (!call->nelems)
		call->source = at_place(slot->source);
	for (int i = 0; i < call->team->size; i++) {
		memcpy(to, source_of(call, i, 0, words[i]), words[i]);
		to += words[i];
	}
	team_barrier(call->team);
}

static void fcollect(const struct call *call)
{
	size_t bytes = span(call->nelems, 1, 1, call->unit);

	team_barrier(call->team);
	/* PEs begin at different sources. */
	for (int n = 0; n < call->team->size; n++) {
		int i = (call->team->me + n) % call->team->size;

		memcpy(call->dest + (size_t)i * bytes, source_of(call, i, 0, bytes), bytes);
	}
	team_barrier(call->team);
}

static void alltoalls(const struct call *call, ptrdiff_t dst, ptrdiff_t sst)
{
	size_t unit = call->unit, nelems = call->nelems, bytes = span(nelems, sst, dst, unit);
	size_t offset = (size_t)call->team->me * nelems * (size_t)sst * unit;
	bool packed = dst == 1 && sst == 1;

	/* Sizes that wrap end here, those beyond the object below. */
	source_of(call, call->team->me, 0, bytes);
	team_barrier(call->team);
	for (int n = 0; n < call->team->size && nelems; n++) {
		int i = (call->team->me + n) % call->team->size;
		const char *from = source_of(call, i, offset, bytes);
		char *to = call->dest + (size_t)i * nelems * (size_t)dst * unit;

		if (packed)
			memcpy(to, from, nelems * unit);
		for (size_t at = 0; at < nelems && !packed; at++)
			memcpy(to + at * (size_t)dst * unit, from + at * (size_t)sst * unit, unit);
	}
	team_barrier(call->team);
}

#define CALL(TEAM, unit)	&(struct call){ __func__, TEAM, (char *)dest, (const char *)source, nelems, unit }
#define OF_TEAM			need_team(__func__, team)
#define OF_SET			active_set(__func__, PE_start, logPE_stride, PE_size)

#define MOVES(name, bits, T, unit) \
	API(int, name##broadcast##bits, (shmem_team_t team, T *dest, const T *source, size_t nelems, int root)) \
	{ \
		broadcast(CALL(OF_TEAM, unit), root, true); \
		return 0; \
	} \
	API(int, name##collect##bits, (shmem_team_t team, T *dest, const T *source, size_t nelems)) \
	{ \
		collect(CALL(OF_TEAM, unit)); \
		return 0; \
	} \
	API(int, name##fcollect##bits, (shmem_team_t team, T *dest, const T *source, size_t nelems)) \
	{ \
		fcollect(CALL(OF_TEAM, unit)); \
		return 0; \
	} \
	API(int, name##alltoall##bits, (shmem_team_t team, T *dest, const T *source, size_t nelems)) \
	{ \
		alltoalls(CALL(OF_TEAM, unit), 1, 1); \
		return 0; \
	} \
	API(int, name##alltoalls##bits, \
	    (shmem_team_t team, T *dest, const T *source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems)) \
	{ \
		alltoalls(CALL(OF_TEAM, unit), dst, sst); \
		return 0; \
	}
#define TYPED_MOVES(name, T, ...)	MOVES(name##_, , T, sizeof(T))
SHMEMI_RMA(TYPED_MOVES, )
SHMEMI_RMA_ALIASES(TYPED_MOVES, )
MOVES(, mem, void, 1)

#define OLD_MOVES(bits) \
	API(void, broadcast##bits, \
	    (void *dest, const void *source, size_t nelems, int PE_root, SHMEMI_SET, long *pSync)) \
	{ \
		(void)pSync; \
		broadcast(CALL(OF_SET, bits / 8), PE_root, false); \
	} \
	API(void, collect##bits, (void *dest, const void *source, size_t nelems, SHMEMI_SET, long *pSync)) \
	{ \
		(void)pSync; \
		collect(CALL(OF_SET, bits / 8)); \
	} \
	API(void, fcollect##bits, (void *dest, const void *source, size_t nelems, SHMEMI_SET, long *pSync)) \
	{ \
		(void)pSync; \
		fcollect(CALL(OF_SET, bits / 8)); \
	} \
	API(void, alltoall##bits, (void *dest, const void *source, size_t nelems, SHMEMI_SET, long *pSync)) \
	{ \
		(void)pSync; \
		alltoalls(CALL(OF_SET, bits / 8), 1, 1); \
	} \
	API(void, alltoalls##bits, \
	    (void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems, SHMEMI_SET, long *pSync)) \
	{ \
		(void)pSync; \
		alltoalls(CALL(OF_SET, bits / 8), dst, sst); \
	}
OLD_MOVES(32)
OLD_MOVES(64)

/* ---- Reductions ------------------------------------------------------------------ */

typedef void combine_fn(void *to, const void *from, size_t nelems);

/*
 * Each PE reduces a share of the elements of all sources, in the order of the PEs, then copies the shares of
 * the others. So all PEs have the same result, also in floating point. dest may be source: a PE writes
 * only elements of its share before all have read theirs.
 */
static void reduce(const struct call *call, combine_fn *combine)
{
	size_t unit = call->unit, size = (size_t)call->team->size, me = (size_t)call->team->me;
	size_t first = call->nelems * me / size, end = call->nelems * (me + 1) / size;
	char part[PART] __attribute__((aligned(64)));

	source_of(call, call->team->me, 0, span(call->nelems, 1, 1, unit));
	team_barrier(call->team);
	while (first < end) {
		size_t nelems = end - first < PART / unit ? end - first : PART / unit, offset = first * unit;

		memcpy(part, source_of(call, 0, offset, nelems * unit), nelems * unit);
		for (int i = 1; i < call->team->size; i++)
			combine(part, source_of(call, i, offset, nelems * unit), nelems);
		memcpy(call->dest + offset, part, nelems * unit);
		first += nelems;
	}
	team_barrier(call->team);
	for (size_t i = 0; i < size; i++) {
		size_t from = call->nelems * i / size * unit, bytes = call->nelems * (i + 1) / size * unit - from;

		if (i != me && bytes)
			memcpy(call->dest + from, there(call->what, call->dest + from, bytes, world_pe(call->team, (int)i)),
			       bytes);
	}
	team_barrier(call->team);
}

#define DO_and(a, b)	((a) & (b))
#define DO_or(a, b)	((a) | (b))
#define DO_xor(a, b)	((a) ^ (b))
#define DO_max(a, b)	((a) > (b) ? (a) : (b))
#define DO_min(a, b)	((a) < (b) ? (a) : (b))
#define DO_sum(a, b)	((a) + (b))
#define DO_prod(a, b)	((a) * (b))

#define COMBINE(name, T, op) \
	static void combine_##name##_##op(void *to, const void *from, size_t nelems) \
	{ \
		const T *b = from; \
		T *a = to; \
		for (size_t i = 0; i < nelems; i++) \
			a[i] = (T)DO_##op(a[i], b[i]); \
	}
#define REDUCE(name, T, op) \
	API(int, name##_##op##_reduce, (shmem_team_t team, T *dest, const T *source, size_t nelems)) \
	{ \
		reduce(CALL(OF_TEAM, sizeof(T)), combine_##name##_##op); \
		return 0; \
	}
#define TO_ALL(name, T, op) \
	API(void, name##_##op##_to_all, \
	    (T *dest, const T *source, int nreduce, SHMEMI_SET, T *pWrk, long *pSync)) \
	{ \
		size_t nelems = nreduce < 0 ? 0 : (size_t)nreduce; \
		(void)pWrk; \
		(void)pSync; \
		reduce(CALL(OF_SET, sizeof(T)), combine_##name##_##op); \
	}
#define BOTH(name, T, op)	COMBINE(name, T, op) REDUCE(name, T, op)
#define OLD(name, T, op)	COMBINE(name, T, op) TO_ALL(name, T, op)

#define BITWISE(op) \
	SHMEMI_AND(BOTH, op) \
	SHMEMI_AND_ALIASES(BOTH, op) \
	SHMEMI_AND_TO_ALL(OLD, op)
#define ORDERED(op) \
	SHMEMI_RMA(BOTH, op) \
	SHMEMI_RMA_ALIASES(BOTH, op) \
	SHMEMI_MAX_TO_ALL(TO_ALL, op)
#define ARITHMETIC(op) \
	SHMEMI_SUM(BOTH, op) \
	SHMEMI_RMA_ALIASES(BOTH, op) \
	SHMEMI_SUM_TO_ALL(TO_ALL, op)
BITWISE(and)
BITWISE(or)
BITWISE(xor)
ORDERED(max)
ORDERED(min)
ARITHMETIC(sum)
ARITHMETIC(prod)
