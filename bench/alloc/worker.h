/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The worker of `hpmmap bench alloc`: does one pattern of one size by one
 * method, and prints what it cost as a line of JSON.
 */
#ifndef WORKER_H
#define WORKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <x86intrin.h>

#define SMALL_PAGE	(4UL << 10)
#define LARGE_PAGE	(2UL << 20)

/* How memory is asked for. */
struct method {
	const char *name;
	int mmap_flags;		/* on top of MAP_PRIVATE | MAP_ANONYMOUS */
	int advice;		/* for madvise before the first touch; -1: none */
	bool populate;		/* fill within the call, before the first touch */
	bool reuse;		/* may have old contents of this process */
	bool dirty;		/* of a pool without clean blocks */
	bool no_thp;		/* none for the allocators either */
	bool untouched;		/* mapped and unmapped, no more; pattern map */
	bool file;		/* shared, of a file whose pages are there */
};

/*
 * Times are in ticks of the time stamp counter; those of touching without the
 * cost of a touch that finds its page.
 */
struct figures {
	uint64_t map;
	uint64_t touch;
	uint64_t unmap;
	uint64_t loop;		/* what was taken off touch */
	uint64_t worst_touch;
	uint64_t worst_call;
	uint64_t calls;		/* to the kernel, or to the allocator */
	uint64_t touched_pages;
	uint64_t faults;
	/* Peaks, beyond what there was before. */
	uint64_t page_table_bytes;
	uint64_t resident_bytes;
	uint64_t held_bytes;	/* memory of the pools, mapped or not */
	uint64_t base_bytes;	/* resident or held before */
	uint64_t cleared_bytes;	/* zeroed by the module within calls */
};

struct task {
	const struct method *method;
	size_t size;
	unsigned int rounds;
	unsigned int threads;
};

/* Serialised, so that nothing before it is still to be counted. */
static inline uint64_t ticks(void)
{
	unsigned int aux;

	return __rdtscp(&aux);
}

static inline uint64_t minus(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

/* figures.c */

extern struct figures figures;

/* @call, its time added to the member @phase of the figures. */
#define TIMED(phase, call)						\
({									\
	uint64_t start_ = ticks();					\
	__auto_type result_ = (call);					\
									\
	account(&figures.phase, ticks() - start_);			\
	result_;							\
})

void account(uint64_t *phase, uint64_t cost);
void touch_new(void *p, size_t size);
void figures_begin(void);
void wait_for_tick(void);
int64_t tasks_ns(void);
void figures_peak(void);
void figures_end(void);
const char *fault_counter_name(void);
int64_t pool_bytes(const char *file);
void wait_for_clean_pools(void);
__attribute__((noreturn)) void die(const char *what);

/* memory.c */

const struct method *method_find(const char *name);
void method_list(void);
void region_prepare(const struct method *m, size_t size);
void *region_map(const struct method *m, size_t size, void *place);
void region_ready(const struct method *m, void *p, size_t size);
void region_reuse(const struct method *m, void *p, size_t size);
void *region_place(const struct method *m, size_t size);
bool reuse_is_offered(void);
void make_pool_dirty(void);

/* patterns.c */

void crowd_prepare(void);
void pattern_map(const struct task *task);
void pattern_cycle(const struct task *task);
void pattern_brk(const struct task *task);
void pattern_mremap(const struct task *task);
void stacks_prepare(void);
void pattern_stacks(const struct task *task);

/* traces.c */

void pattern_amr(const struct task *task);
void pattern_amr_malloc(const struct task *task);
void pattern_malloc(const struct task *task);
void traces_prepare(void);

/* threads.c */

void threads_run(const struct task *task, bool processes);

#endif
