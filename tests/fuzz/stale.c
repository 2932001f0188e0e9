// SPDX-License-Identifier: GPL-2.0
/*
 * Does a process ever see what it has not written?
 *
 * Calls mmap, munmap, brk, mremap, madvise and fork at random, with and without
 * MAP_UNINITIALIZED, and reads every byte that it gets. Without the flag it
 * must be zero. With the flag it may also be what this process itself wrote
 * to memory with the flag; of its parent, only what the child can still see.
 * Then it writes to all of it, so that it would be recognised elsewhere, and
 * now and then checks that it is still there.
 *
 * With --neighbour it does nothing but dirty as much memory as it can get, with
 * words that no process may ever find, until it is killed.
 *
 * Each process has a sequence of its own that follows from the seed and its
 * place in the family, independent of the others. No code here allocates memory
 * unknown to the model; the model is static data, which is ordinary memory.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common.h"
#include "hpmmap.h"

#ifndef MAP_UNINITIALIZED
#define MAP_UNINITIALIZED	0x4000000
#endif

#define PAGE		4096UL
#define SLOT_PAGES	512U
#define ANON_FLAGS	(MAP_PRIVATE | MAP_ANONYMOUS)
#define RW		(PROT_READ | PROT_WRITE)

/* Not a multiple of a slot, so that what lies behind shares its last one. */
#define ARENA_BASE	0x1000000000UL
#define ARENA_PAGES	(24 * SLOT_PAGES + 72)
#define HEAP_PAGES	(4 * SLOT_PAGES)

#define MAX_DEPTH	2
#define MAX_KIDS	2
#define KID_OPS		60

/*
 * A word tells whose it is and when it was written: the kind in the upper
 * byte, then 16 bits of the process, 24 of the operation, 16 of the page.
 */
#define KIND_FLAGGED	0xf1ULL
#define KIND_PLAIN	0x9eULL
#define KIND_NEIGHBOUR	0xeeULL

/* Of one page. What is mapped and has no stamp reads as zero. */
struct page {
	uint32_t stamp;
	uint16_t owner;		/* who wrote it: this process or an ancestor */
	bool mapped;
	bool flagged;
	bool plain;		/* written while it had no flag */
};

/* What a process may find besides its own: of whom, written before when. */
struct ancestor {
	uint16_t id;
	uint32_t stamp;
};

static struct page pages[ARENA_PAGES];
static struct page heap[HEAP_PAGES];
static unsigned char *heap_base;
static size_t heap_pages;

static uint64_t rng;
static uint16_t self_id;
static uint32_t stamp;
static unsigned int depth;
static struct ancestor ancestors[MAX_DEPTH];
/* Has it given up anything that it had from its parent? */
static bool gave_up_inherited;
static bool registered;
static pid_t kids[MAX_KIDS];
static unsigned int nr_kids;

static uint64_t seed = 1;
static unsigned int current_op;
static char path[32] = "0";
static unsigned int nr_forks;

/* For the summary: what was looked at, and how much had old contents. */
static uint64_t plain_pages, flagged_pages, reused_pages, nr_flags_given;

static _Noreturn void fail(const char *fmt, ...)
{
	char head[128];
	va_list args;

	snprintf(head, sizeof(head), "stale: seed %" PRIu64 ", process %s, operation %u: ", seed, path,
		 current_op);
	va_start(args, fmt);
	complain(head, fmt, args);
	va_end(args);
	_exit(1);
}

static uint64_t next(void)
{
	return step(&rng);
}

static unsigned int below(unsigned int n)
{
	return (unsigned int)(next() % n);
}

static unsigned char *address(unsigned int page)
{
	return (unsigned char *)ARENA_BASE + page * PAGE;
}

static uint64_t word_of(const struct page *page, unsigned int index)
{
	return (page->plain ? KIND_PLAIN : KIND_FLAGGED) << 56 |
	       (uint64_t)page->owner << 40 | (uint64_t)page->stamp << 16 |
	       (index & 0xffff);
}

/* ---- Looking and writing ---------------------------------------------- */

static void expect_zero(const unsigned char *at, const char *what)
{
	const uint64_t *p = (const void *)at;

	for (size_t n = 0; n < PAGE / sizeof(*p); n++)
		if (p[n] != 0)
			fail("%s: not zero at %p: %#" PRIx64, what,
			     (const void *)&p[n], p[n]);
}

/* May a word be found in memory that this process got with the flag? */
static bool own_word(uint64_t word)
{
	uint16_t id = (uint16_t)(word >> 40);
	uint32_t when = (uint32_t)(word >> 16) & 0xffffff;

	if (word >> 56 != KIND_FLAGGED)
		return false;
	if (id == self_id)
		return when <= stamp;
	if (!gave_up_inherited)
		return false;
	for (unsigned int i = 0; i < depth; i++)
		if (ancestors[i].id == id)
			return when <= ancestors[i].stamp;
	return false;
}

static void expect_own(const unsigned char *at, const char *what)
{
	const uint64_t *p = (const void *)at;
	uint64_t known = 0;
	bool old = false;

	for (size_t n = 0; n < PAGE / sizeof(*p); n++) {
		if (p[n] == 0)
			continue;
		if (p[n] != known && !own_word(p[n]))
			fail("%s: foreign word at %p: %#" PRIx64, what,
			     (const void *)&p[n], p[n]);
		known = p[n];
		old = true;
	}
	reused_pages += old;
}

/* What is in a page that stays must be what was written last. */
static void expect_kept(const struct page *page, unsigned int index,
			const unsigned char *at, const char *what)
{
	const uint64_t *p = (const void *)at;
	uint64_t want = word_of(page, index);

	if (page->stamp == 0) {
		expect_zero(at, what);
		return;
	}
	for (size_t n = 0; n < PAGE / sizeof(*p); n++)
		if (p[n] != want)
			fail("%s: lost at %p: %#" PRIx64 ", not %#" PRIx64, what,
			     (const void *)&p[n], p[n], want);
}

static void write_page(struct page *page, unsigned int index, unsigned char *at)
{
	uint64_t *p = (void *)at;
	uint64_t word;

	page->stamp = stamp;
	page->owner = self_id;
	page->plain = !page->flagged;
	word = word_of(page, index);
	for (size_t n = 0; n < PAGE / sizeof(*p); n++)
		p[n] = word;
}

static void write_range(unsigned int first, unsigned int nr)
{
	stamp++;
	for (unsigned int i = first; i < first + nr; i++)
		write_page(&pages[i], i, address(i));
}

/* New memory: look at every byte of it, then make it recognisable. */
static void take(unsigned int first, unsigned int nr, bool flagged, const char *what)
{
	for (unsigned int i = first; i < first + nr; i++) {
		if (flagged)
			expect_own(address(i), what);
		else
			expect_zero(address(i), what);
		pages[i] = (struct page){ .mapped = true, .flagged = flagged };
	}
	*(flagged ? &flagged_pages : &plain_pages) += nr;
	write_range(first, nr);
}

static void forget(unsigned int first, unsigned int nr)
{
	for (unsigned int i = first; i < first + nr; i++) {
		if (pages[i].mapped && pages[i].owner != self_id)
			gave_up_inherited = true;
		pages[i] = (struct page){ 0 };
	}
}

static void look(unsigned int first, unsigned int nr, const char *what)
{
	for (unsigned int i = first; i < first + nr; i++)
		if (pages[i].mapped)
			expect_kept(&pages[i], i, address(i), what);
}

/* ---- Operations ---------------------------------------------------------- */

/* Mostly a few pages, sometimes slots, seldom many. */
static unsigned int length(void)
{
	switch (below(12)) {
	case 0:
		return SLOT_PAGES * (1 + below(2));
	case 1:
		return SLOT_PAGES - 4 + below(9);
	case 2:
		return 1 + below(3 * SLOT_PAGES);
	case 3:
	case 4:
	case 5:
		return 1 + below(100);
	default:
		return 1 + below(12);
	}
}

static unsigned int place(unsigned int nr)
{
	unsigned int first = below(ARENA_PAGES - nr + 1);

	/* Often where a slot begins, or where the last range ended. */
	if (below(4) == 0)
		first -= first % SLOT_PAGES;
	return first;
}

static void op_map(void)
{
	unsigned int nr = length(), first = place(nr);
	bool flagged = below(2);
	int flags = ANON_FLAGS | MAP_FIXED | (flagged ? MAP_UNINITIALIZED : 0);
	int way = (int)below(8);
	void *got;

	if (way == 0)
		flags |= MAP_POPULATE;
	if (way == 1)
		flags |= MAP_NORESERVE;
	look(first, nr, "before mmap");
	forget(first, nr);
	got = mmap(address(first), nr * PAGE, way == 2 ? PROT_NONE : RW, flags, -1, 0);
	if (got != address(first))
		fail("mmap: %s", strerrorname_np(errno));
	if (way == 2 && mprotect(got, nr * PAGE, RW) != 0)
		fail("mprotect: %s", strerrorname_np(errno));
	take(first, nr, flagged, flagged ? "mmap with the flag" : "mmap");
}

static void op_unmap(void)
{
	unsigned int nr = length(), first = place(nr);

	look(first, nr, "before munmap");
	if (munmap(address(first), nr * PAGE) != 0)
		fail("munmap: %s", strerrorname_np(errno));
	forget(first, nr);
}

/* The longest range from first on that is one mapping for mremap, up to nr. */
static unsigned int alike(unsigned int first, unsigned int nr)
{
	unsigned int i = first;

	while (i < first + nr && i < ARENA_PAGES && pages[i].mapped &&
	       pages[i].flagged == pages[first].flagged)
		i++;
	return i - first;
}

/* To another place; it may get longer or shorter on the way. */
static void op_move(void)
{
	unsigned int old_nr, new_nr, kept, to, from = place(1);
	struct page moved[3 * SLOT_PAGES];
	unsigned int origin[3 * SLOT_PAGES];
	bool flagged;

	old_nr = alike(from, length());
	if (old_nr == 0)
		return;
	if (old_nr > 3 * SLOT_PAGES)
		old_nr = 3 * SLOT_PAGES;
	new_nr = below(3) ? old_nr : length();
	if (new_nr > 3 * SLOT_PAGES)
		new_nr = 3 * SLOT_PAGES;
	to = place(new_nr);
	if (to < from + old_nr && from < to + new_nr)
		return;
	flagged = pages[from].flagged;
	kept = old_nr < new_nr ? old_nr : new_nr;
	look(from, old_nr, "before mremap");
	for (unsigned int i = 0; i < kept; i++) {
		moved[i] = pages[from + i];
		origin[i] = from + i;
	}
	if (mremap(address(from), old_nr * PAGE, new_nr * PAGE,
		   MREMAP_MAYMOVE | MREMAP_FIXED, address(to)) == MAP_FAILED) {
		/*
		 * Two mappings that only look like one; the target is gone then, and so is
		 * what it was to get shorter by.
		 */
		if (errno != EFAULT && errno != EINVAL)
			fail("mremap: %s", strerrorname_np(errno));
		if (munmap(address(to), new_nr * PAGE) != 0 ||
		    (kept < old_nr &&
		     munmap(address(from + kept), (old_nr - kept) * PAGE) != 0))
			fail("munmap: %s", strerrorname_np(errno));
		forget(to, new_nr);
		forget(from + kept, old_nr - kept);
		look(from, kept, "after mremap has failed");
		return;
	}
	forget(to, new_nr);
	forget(from, old_nr);
	for (unsigned int i = 0; i < kept; i++) {
		pages[to + i] = moved[i];
		expect_kept(&moved[i], origin[i], address(to + i), "moved by mremap");
	}
	/* It grows by zeros, with the flag, too. */
	for (unsigned int i = kept; i < new_nr; i++) {
		expect_zero(address(to + i), "grown by mremap");
		pages[to + i] = (struct page){ .mapped = true, .flagged = flagged };
	}
	write_range(to, new_nr);
}

static void op_resize(void)
{
	unsigned int new_nr, old_nr, first = place(1);
	bool flagged;

	old_nr = alike(first, length());
	if (old_nr == 0)
		return;
	new_nr = length();
	if (first + new_nr > ARENA_PAGES)
		return;
	flagged = pages[first].flagged;
	if (mremap(address(first), old_nr * PAGE, new_nr * PAGE, 0) == MAP_FAILED) {
		if (errno != ENOMEM && errno != EFAULT && errno != EINVAL)
			fail("mremap: %s", strerrorname_np(errno));
		look(first, old_nr, "after mremap has failed");
		return;
	}
	if (new_nr < old_nr)
		forget(first + new_nr, old_nr - new_nr);
	look(first, new_nr < old_nr ? new_nr : old_nr, "resized by mremap");
	for (unsigned int i = first + old_nr; i < first + new_nr; i++) {
		expect_zero(address(i), "grown by mremap");
		pages[i] = (struct page){ .mapped = true, .flagged = flagged };
	}
	write_range(first, new_nr);
}

static void op_advise(void)
{
	unsigned int nr, first = place(1);
	int advice = below(3) ? MADV_DONTNEED : MADV_FREE;

	nr = alike(first, length());
	if (nr == 0)
		return;
	if (madvise(address(first), nr * PAGE, advice) != 0)
		fail("madvise: %s", strerrorname_np(errno));
	for (unsigned int i = first; i < first + nr; i++) {
		const uint64_t *p = (const void *)address(i);

		if (advice == MADV_DONTNEED) {
			expect_zero(address(i), "MADV_DONTNEED");
			pages[i].stamp = 0;
		} else if (*p == 0) {
			expect_zero(address(i), "MADV_FREE");
			pages[i].stamp = 0;
		} else {
			expect_kept(&pages[i], i, address(i), "MADV_FREE");
		}
	}
	/* Sometimes it stays empty for a while. */
	if (advice == MADV_FREE || below(2))
		write_range(first, nr);
}

static void op_flag(void)
{
	unsigned int nr, first = place(1);

	nr = alike(first, length());
	if (nr == 0)
		return;
	if (madvise(address(first), nr * PAGE, HPMMAP_MADV_REUSE) != 0) {
		/* Where the pools were exhausted it is memory of Linux. */
		if (errno != EINVAL)
			fail("HPMMAP_MADV_REUSE: %s", strerrorname_np(errno));
		return;
	}
	nr_flags_given++;
	look(first, nr, "after HPMMAP_MADV_REUSE");
	for (unsigned int i = first; i < first + nr; i++)
		pages[i].flagged = true;
	/* What was written without the flag may come back from here on. */
	write_range(first, nr);
}

static void op_brk(void)
{
	size_t want = below(HEAP_PAGES + 1);
	unsigned char *end = heap_base + want * PAGE;

	for (size_t i = 0; i < heap_pages; i++)
		expect_kept(&heap[i], (unsigned int)i, heap_base + i * PAGE, "heap");
	if ((unsigned char *)syscall(SYS_brk, end) != end)
		fail("brk: %zu pages", want);
	stamp++;
	for (size_t i = heap_pages; i < want; i++) {
		expect_zero(heap_base + i * PAGE, "brk");
		heap[i] = (struct page){ .mapped = true };
		write_page(&heap[i], (unsigned int)i, heap_base + i * PAGE);
		plain_pages++;
	}
	heap_pages = want;
}

static void op_look(void)
{
	unsigned int nr = length(), first = place(nr);

	look(first, nr, "some time later");
}

static void reap(unsigned int kid)
{
	int status;

	if (waitpid(kids[kid], &status, 0) != kids[kid])
		fail("waitpid: %s", strerrorname_np(errno));
	if (status != 0)
		fail("a child ended with status %#x", (unsigned int)status);
	kids[kid] = kids[--nr_kids];
}

static void run(unsigned int nr_ops);

static void op_fork(void)
{
	uint64_t kid_rng = next() | 1;
	uint16_t id = (uint16_t)(next() | 1);
	size_t len;
	pid_t pid;

	if (depth == MAX_DEPTH)
		return;
	if (nr_kids == MAX_KIDS)
		reap(below(MAX_KIDS));
	nr_forks++;
	pid = fork();
	if (pid < 0)
		fail("fork: %s", strerrorname_np(errno));
	if (pid > 0) {
		kids[nr_kids++] = pid;
		/* What is written from now on is later than the child. */
		stamp++;
		return;
	}
	len = strlen(path);
	snprintf(path + len, sizeof(path) - len, ".%u", nr_forks);
	ancestors[depth++] = (struct ancestor){ .id = self_id, .stamp = stamp };
	rng = kid_rng;
	/* No number twice on the way down: the bit of the depth differs. */
	self_id = (uint16_t)((id & ~7U) | 1U << depth);
	nr_kids = nr_forks = 0;
	gave_up_inherited = false;
	look(0, ARENA_PAGES, "in the child");
	run(KID_OPS);
	_exit(0);
}

static void run(unsigned int nr_ops)
{
	static const struct {
		void (*call)(void);
		unsigned int weight;
	} ops[] = {
		{ op_map, 38 }, { op_unmap, 22 }, { op_move, 8 }, { op_resize, 8 },
		{ op_advise, 8 }, { op_flag, 5 }, { op_brk, 2 }, { op_look, 8 },
		{ op_fork, 1 },
	};

	for (current_op = 1; current_op <= nr_ops; current_op++) {
		unsigned int at = below(100);
		size_t i = 0;

		while (at >= ops[i].weight)
			at -= ops[i++].weight;
		ops[i].call();
	}
	while (nr_kids > 0)
		reap(0);
	look(0, ARENA_PAGES, "at the end");
}

/* ---- Neighbours ------------------------------------------------------------ */

static _Noreturn void be_a_neighbour(size_t bytes)
{
	uint64_t word = KIND_NEIGHBOUR << 56 | (uint64_t)getpid();

	for (;;) {
		int flags = ANON_FLAGS | (below(2) ? MAP_UNINITIALIZED : 0);
		size_t len = (1 + below((unsigned int)(bytes / PAGE))) * PAGE;
		uint64_t *p = mmap(NULL, len, RW, flags, -1, 0);

		if (p == MAP_FAILED)
			fail("mmap of a neighbour: %s", strerrorname_np(errno));
		for (size_t n = 0; n < len / sizeof(*p); n++)
			p[n] = word;
		if (munmap(p, len) != 0)
			fail("munmap of a neighbour: %s", strerrorname_np(errno));
		/* Its memory must have gone through other hands in between. */
		usleep(20000);
	}
}

/* As the module answers: EINVAL is plain Linux. */
static bool is_registered(void)
{
	void *p = mmap(NULL, PAGE, RW, ANON_FLAGS, -1, 0);
	bool ours;

	if (p == MAP_FAILED)
		fail("mmap: %s", strerrorname_np(errno));
	ours = madvise(p, PAGE, HPMMAP_MADV_REUSE) == 0;
	if (!ours && errno != EINVAL)
		fail("HPMMAP_MADV_REUSE: %s", strerrorname_np(errno));
	munmap(p, PAGE);
	return ours;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "seed", required_argument, NULL, 's' },
		{ "ops", required_argument, NULL, 'o' },
		{ "expect", required_argument, NULL, 'e' },
		{ "neighbour", required_argument, NULL, 'n' },
		{ "scarce", no_argument, NULL, 'c' },
		{ 0 },
	};
	unsigned long nr_ops = 1000, neighbour = 0;
	bool scarce = false;
	const char *expect = NULL;
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 's':
			seed = number(optarg);
			break;
		case 'o':
			nr_ops = number(optarg);
			break;
		case 'e':
			expect = optarg;
			break;
		case 'n':
			neighbour = number(optarg);
			break;
		case 'c':
			scarce = true;
			break;
		default:
			fprintf(stderr, "usage: stale [--seed N] [--ops N] [--expect native|registered] [--scarce]\n"
				"       stale --neighbour BYTES\n");
			return 2;
		}
	}
	rng = (seed + 1) * 0x9e3779b97f4a7c15ULL;
	self_id = 1;
	if (neighbour) {
		rng += (uint64_t)getpid();
		be_a_neighbour(neighbour);
	}
	registered = is_registered();
	if (expect && strcmp(expect, registered ? "registered" : "native") != 0) {
		fprintf(stderr, "stale: this process is %s, not %s\n",
			registered ? "registered, with reuse" : "not registered, or there is no reuse",
			expect);
		return 1;
	}
	heap_base = (unsigned char *)(((uintptr_t)sbrk(0) + PAGE - 1) & ~(PAGE - 1));
	if ((unsigned char *)syscall(SYS_brk, heap_base) != heap_base)
		fail("brk");
	run((unsigned int)nr_ops);
	printf("stale: seed %" PRIu64 ", %lu operations: %" PRIu64 " pages without the flag, %"
	       PRIu64 " with it, %" PRIu64 " of them with old contents\n", seed, nr_ops,
	       plain_pages, flagged_pages, reused_pages);
	/* Where there may be no pool, nothing is kept. */
	if (registered && !scarce && (reused_pages == 0 || nr_flags_given == 0))
		fail("nothing was ever reused, or given the flag");
	return fflush(stdout) == 0 ? 0 : 1;
}
