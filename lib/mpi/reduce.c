// SPDX-License-Identifier: LGPL-2.1-or-later
/* Reductions: which the library does, and the chunk that each rank does of one. */
#include "group.h"

/* ---- Types and operations ----------------------------------------------- */

/* A user's operation may do anything with the memory of another process. */
#define ARITHMETIC	0x01	/* MPI_SUM, MPI_PROD */
#define ORDER		0x02	/* MPI_MAX, MPI_MIN */
#define BITS		0x04	/* MPI_BAND, MPI_BOR, MPI_BXOR */
#define LOGIC		0x08	/* MPI_LAND, MPI_LOR, MPI_LXOR */

static unsigned int class_of(MPI_Op op)
{
	if (op == MPI_SUM || op == MPI_PROD)
		return ARITHMETIC;
	if (op == MPI_MAX || op == MPI_MIN)
		return ORDER;
	if (op == MPI_BAND || op == MPI_BOR || op == MPI_BXOR)
		return BITS;
	return op == MPI_LAND || op == MPI_LOR || op == MPI_LXOR ? LOGIC : 0;
}

static bool is_among(MPI_Datatype type, const MPI_Datatype *types, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		if (type == types[i])
			return true;
	return false;
}

#define IS_AMONG(type, ...) \
	is_among(type, (const MPI_Datatype[]){ __VA_ARGS__ }, \
		 sizeof((MPI_Datatype[]){ __VA_ARGS__ }) / sizeof(MPI_Datatype))

/* As MPI 3.1 has it, section 5.9.2. */
static unsigned int classes_of(MPI_Datatype type)
{
	if (type == MPI_DATATYPE_NULL)
		return 0;
	if (IS_AMONG(type, MPI_DOUBLE, MPI_FLOAT, MPI_LONG_DOUBLE, MPI_REAL, MPI_DOUBLE_PRECISION, MPI_REAL4, MPI_REAL8))
		return ARITHMETIC | ORDER;
	if (IS_AMONG(type, MPI_INT, MPI_LONG, MPI_SHORT, MPI_LONG_LONG, MPI_UNSIGNED, MPI_UNSIGNED_LONG,
		     MPI_UNSIGNED_SHORT, MPI_UNSIGNED_LONG_LONG, MPI_SIGNED_CHAR, MPI_UNSIGNED_CHAR, MPI_INT8_T,
		     MPI_INT16_T, MPI_INT32_T, MPI_INT64_T, MPI_UINT8_T, MPI_UINT16_T, MPI_UINT32_T, MPI_UINT64_T))
		return ARITHMETIC | ORDER | BITS | LOGIC;
	if (IS_AMONG(type, MPI_AINT, MPI_OFFSET, MPI_COUNT, MPI_INTEGER, MPI_INTEGER1, MPI_INTEGER2, MPI_INTEGER4, MPI_INTEGER8))
		return ARITHMETIC | ORDER | BITS;
	if (IS_AMONG(type, MPI_C_FLOAT_COMPLEX, MPI_C_DOUBLE_COMPLEX, MPI_C_LONG_DOUBLE_COMPLEX, MPI_COMPLEX, MPI_DOUBLE_COMPLEX))
		return ARITHMETIC;
	if (IS_AMONG(type, MPI_C_BOOL, MPI_LOGICAL))
		return LOGIC;
	return type == MPI_BYTE ? BITS : 0;
}

bool is_reducible(MPI_Op op, MPI_Datatype type)
{
	return class_of(op) & classes_of(type);
}

/* ---- Chunks ---------------------------------------------------------------- */

/* Elements: no two ranks write to a cache line, and the MPI library's vectors are as without chunks. */
#define CHUNK_UNIT	((size_t)64)

/* The elements that one rank reduces. */
struct chunk {
	size_t off;
	size_t bytes;
	int count;
};

static struct chunk chunk_of(const struct group *group, int rank, int count, size_t size)
{
	size_t n = (size_t)group->size, first = (size_t)count * (size_t)rank / n & -CHUNK_UNIT;
	size_t end = rank + 1 == group->size ? (size_t)count : (size_t)count * ((size_t)rank + 1) / n & -CHUNK_UNIT;

	return (struct chunk){ first * size, (end - first) * size, (int)(end - first) };
}

/* Reduces the chunks of all other ranks into dest. */
static void reduce_chunk(const struct group *group, struct chunk chunk, void *dest, int but, MPI_Datatype type, MPI_Op op)
{
	for (int i = 1; i <= group->size; i++) {
		int rank = (group->rank + i) % group->size;

		if (rank != but)
			PMPI_Reduce_local(at(group, rank, part_of(group, rank)->send) + chunk.off, dest, chunk.count, type, op);
	}
}

void reduce_into(const struct group *group, int to, int count, MPI_Datatype type, MPI_Op op)
{
	const struct part *theirs = part_of(group, to), *own = part_of(group, group->rank);
	struct chunk chunk = chunk_of(group, group->rank, count, size_of(type));
	char *dest = at(group, to, theirs->recv) + chunk.off;

	if (theirs->send == theirs->recv) {
		reduce_chunk(group, chunk, dest, to, type, op);
	} else {
		copy(dest, (const char *)own->send + chunk.off, chunk.bytes);
		reduce_chunk(group, chunk, dest, group->rank, type, op);
	}
}

void reduce_own(const struct group *group, void *recv, int count, MPI_Datatype type, MPI_Op op)
{
	const struct part *own = part_of(group, group->rank);
	struct chunk chunk = chunk_of(group, group->rank, count, size_of(type));
	char *dest = (char *)recv + chunk.off;

	if (own->send != recv)
		copy(dest, (const char *)own->send + chunk.off, chunk.bytes);
	reduce_chunk(group, chunk, dest, group->rank, type, op);
}

void copy_chunks(const struct group *group, void *recv, int count, MPI_Datatype type)
{
	for (int i = 1; i < group->size; i++) {
		int rank = (group->rank + i) % group->size;
		struct chunk chunk = chunk_of(group, rank, count, size_of(type));

		copy((char *)recv + chunk.off, at(group, rank, part_of(group, rank)->recv) + chunk.off, chunk.bytes);
	}
}
