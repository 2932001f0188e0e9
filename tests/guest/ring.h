/* SPDX-License-Identifier: GPL-2.0 */
/* The part of io_uring that registers buffers and runs one operation at a time. */
#ifndef HPMMAP_TESTS_RING_H
#define HPMMAP_TESTS_RING_H

#include "common.h"

#include <linux/io_uring.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct ring {
	int fd;
	struct io_uring_params params;
	char *sq;
	char *cq;
	struct io_uring_sqe *sqes;
};

static inline void *ring_map(const struct ring *ring, size_t len, off_t what)
{
	void *p = mmap(NULL, len, RW, MAP_SHARED | MAP_POPULATE, ring->fd, what);

	CHECK_OK(p);
	return p;
}

/* False where it is not permitted, with errno. */
static inline bool ring_open(struct ring *ring)
{
	memset(ring, 0, sizeof(*ring));
	ring->fd = (int)syscall(SYS_io_uring_setup, 4, &ring->params);
	if (ring->fd < 0)
		return false;
	ring->sq = ring_map(ring, PAGE, IORING_OFF_SQ_RING);
	ring->cq = ring_map(ring, PAGE, IORING_OFF_CQ_RING);
	ring->sqes = ring_map(ring, 4 * sizeof(*ring->sqes), IORING_OFF_SQES);
	return true;
}

static inline void ring_close(struct ring *ring)
{
	unmap(ring->sq, PAGE);
	unmap(ring->cq, PAGE);
	unmap(ring->sqes, 4 * sizeof(*ring->sqes));
	close(ring->fd);
}

static inline uint32_t *ring_word(char *base, uint32_t off)
{
	return (void *)(base + off);
}

/* Returns the operation's result. */
static inline int ring_run(struct ring *ring, const struct io_uring_sqe *sqe)
{
	uint32_t *tail = ring_word(ring->sq, ring->params.sq_off.tail);
	uint32_t *array = ring_word(ring->sq, ring->params.sq_off.array);
	uint32_t *cq_head = ring_word(ring->cq, ring->params.cq_off.head);
	uint32_t *cq_tail = ring_word(ring->cq, ring->params.cq_off.tail);
	uint32_t slot = *tail & (ring->params.sq_entries - 1);
	struct io_uring_cqe *cqes = (void *)(ring->cq + ring->params.cq_off.cqes);
	int result;

	ring->sqes[slot] = *sqe;
	array[slot] = slot;
	__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
	CHECK_EQ(syscall(SYS_io_uring_enter, ring->fd, 1, 1, IORING_ENTER_GETEVENTS,
			 NULL, 0), 1);
	CHECK(__atomic_load_n(cq_tail, __ATOMIC_ACQUIRE) != *cq_head);
	result = cqes[*cq_head & (ring->params.cq_entries - 1)].res;
	__atomic_store_n(cq_head, *cq_head + 1, __ATOMIC_RELEASE);
	return result;
}

#endif
