// SPDX-License-Identifier: GPL-2.0
/*
 * Random sequences of address-space calls against a model.
 *
 * The program keeps a model of some address ranges: of each page what it is,
 * what may be done with it and what it contains. It calls mmap, munmap,
 * mprotect, mremap, madvise, brk, mlock and fork at random, writes and reads
 * in several ways, and compares. It also writes down what each call returned,
 * addresses as offsets: the same seed has to give the same logs on plain Linux
 * and under HPMMAP.
 *
 * A child goes on with a sequence of its own while its parent does, and both
 * must find their own contents; so do the child's children. The model lies in
 * a private mapping of a file, which HPMMAP leaves to Linux: fork copies the
 * model by Linux's means, whatever happens to what it describes.
 *
 * What is not tried, because the answer of Linux depends on how it has merged
 * mappings, or because docs/differences.md says that it differs: mremap across
 * mappings, and with MREMAP_DONTUNMAP; access above the break;
 * mprotect in the heap without --heap-protect; mappings that can only be
 * written; advice that ends in an error after it was taken for a part of its
 * range. With --region nothing is accessed where nothing is mapped: a static region stays accessible.
 *
 * Nothing here allocates memory behind the model's back: no malloc, no stdio.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common.h"

#define PAGE		4096UL
#define WORDS		(PAGE / sizeof(uint64_t))
#define SLOT_PAGES	512U

#define RW		(PROT_READ | PROT_WRITE)
#define ANON_FLAGS	(MAP_PRIVATE | MAP_ANONYMOUS)

/*
 * Where the spaces lie: far from what Linux chooses by itself, one behind the
 * other. Their size is not a multiple of 2 MB, so that neighbours share blocks.
 */
#define ARENA_BASE	0x1000000000UL
/* With --region: so far above the break. There a static region is free longest. */
#define ARENA_ABOVE	(64UL << 20)
#define ARENA_PAGES	(8 * SLOT_PAGES + 40)
#define NR_FLOATS	5
#define FLOAT_PAGES	(3 * SLOT_PAGES)
#define HEAP_PAGES	(3 * SLOT_PAGES)
#define FILE_PAGES	SLOT_PAGES
/* With --gigabytes each has one, which begins with the arena. */
#define GIGABYTE	(1UL << 30)

#define MAX_THREADS	8
#define MAX_DEPTH	3
#define MAX_KIDS	3
#define CHILD_OPS	60
#define SYNC_EVERY	48

enum kind {
	NOTHING,	/* not mapped */
	ANON,		/* private anonymous memory */
	FILE_PRIVATE,	/* private mapping of the test file */
	SHARED,		/* shared anonymous memory; written once only */
};

enum page_flag {
	LOCKED = 1,
	DONTFORK = 2,
	WIPEONFORK = 4,
};

/*
 * Pages of one gen that lie side by side are one mapping on Linux, too. The
 * content is what tag stands for, but for one word.
 */
struct page {
	uint64_t tag;
	uint64_t poke;
	uint32_t gen;
	uint16_t poke_at;	/* index + 1; 0: no such word */
	uint16_t file_page;
	uint8_t kind;
	uint8_t prot;
	uint8_t flags;
};

struct region {
	char name;
	char *base;
	unsigned int nr;
	unsigned int max;
	struct page *pages;
};

struct kid {
	pid_t pid;
	int release;	/* pipe to write to, so that it goes on; -1: none */
};

struct space {
	uint64_t rng;
	uint32_t gen;
	unsigned int op;
	unsigned int depth;
	unsigned int nr_forks;
	bool silent;
	pid_t parent;	/* in a child */
	char path[64];
	const char *op_name;
	struct region arena;
	struct region floats[NR_FLOATS];
	struct region heap;
	bool has_heap;
	struct kid kids[MAX_KIDS];
	unsigned int nr_kids;
	int log_fd;
	size_t log_len;
	char log[32768];
	char buffer[4 * PAGE];
	struct page pages[ARENA_PAGES + NR_FLOATS * FLOAT_PAGES + HEAP_PAGES];
};

/* Two counters in different blocks; the first is never less, nor 2 more. */
struct ticker {
	_Atomic uint64_t *first;
	_Atomic uint64_t *second;
	_Atomic bool stop;
};

static struct {
	uint64_t seed;
	unsigned int ops;
	unsigned int threads;
	unsigned int seconds;
	const char *log_dir;
	const char *expect;
	bool scarce;
	bool fork;
	bool trace;
	bool wipe;
	bool heap_protect;
	bool gigabytes;
	bool region;
	/* The first operations are done without a full look at everything. */
	unsigned int sync_from;
} opt = { .seed = 1, .ops = 1000, .threads = 1, .fork = true, .wipe = true };

static struct space *spaces;
static int test_file;
static struct ticker ticker;

static __thread struct space *self;
static __thread sigjmp_buf probe_return;
static __thread volatile sig_atomic_t probing;
static __thread volatile int probe_code;

/* ---- Reports --------------------------------------------------------- */

static void log_flush(struct space *s)
{
	size_t done = 0;

	while (s->log_fd >= 0 && done < s->log_len) {
		ssize_t n = write(s->log_fd, s->log + done, s->log_len - done);

		if (n <= 0)
			break;
		done += (size_t)n;
	}
	s->log_len = 0;
}

__attribute__((format(printf, 2, 3)))
static void say(struct space *s, const char *fmt, ...)
{
	char line[256];
	va_list args;
	int len, head;

	if (s->silent || (s->log_fd < 0 && !opt.trace))
		return;
	head = snprintf(line, sizeof(line), "%u %s ", s->op, s->op_name);
	va_start(args, fmt);
	len = vsnprintf(line + head, sizeof(line) - (size_t)head - 1, fmt, args);
	va_end(args);
	len = head + len < (int)sizeof(line) - 1 ? head + len : (int)sizeof(line) - 2;
	line[len++] = '\n';
	if (opt.trace && dprintf(2, "%s: %.*s", s->path, len, line) < 0)
		return;
	if (s->log_fd < 0)
		return;
	if (s->log_len + (size_t)len > sizeof(s->log))
		log_flush(s);
	memcpy(s->log + s->log_len, line, (size_t)len);
	s->log_len += (size_t)len;
}

__attribute__((format(printf, 2, 3), noreturn))
static void die(struct space *s, const char *fmt, ...)
{
	char text[256];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	log_flush(s);
	dprintf(2, "FAIL: --seed %llu --ops %u --threads %u: process %s, operation %u (%s): %s\n",
		(unsigned long long)opt.seed, opt.ops, opt.threads, s->path, s->op,
		s->op_name, text);
	_exit(1);
}

static const char *errno_text(int err)
{
	const char *name = err ? strerrorname_np(err) : "ok";

	return name ? name : "unknown errno";
}

/* ---- Random choices -------------------------------------------------- */

static uint64_t next(struct space *s)
{
	s->rng ^= s->rng >> 12;
	s->rng ^= s->rng << 25;
	s->rng ^= s->rng >> 27;
	return s->rng * 0x2545f4914f6cdd1dULL;
}

/* 0 .. n-1 */
static unsigned int rnd(struct space *s, unsigned int n)
{
	return (unsigned int)((next(s) >> 33) % n);
}

static bool one_in(struct space *s, unsigned int n)
{
	return rnd(s, n) == 0;
}

struct range {
	struct region *r;
	unsigned int first;
	unsigned int nr;
};

static char *addr_of(const struct region *r, unsigned int page)
{
	return r->base + page * PAGE;
}

static char *range_addr(const struct range *g)
{
	return addr_of(g->r, g->first);
}

static struct page *range_pages(const struct range *g)
{
	return g->r->pages + g->first;
}

/* Lengths and positions that matter: few pages, slot edges, whole slots. */
static struct range pick_in(struct space *s, struct region *r)
{
	unsigned int nr = r->nr, first, n;

	switch (rnd(s, 8)) {
	case 0:
	case 1:
	case 2:
		n = 1 + rnd(s, 6);
		first = rnd(s, nr);
		break;
	case 3:
	case 4:
		n = 2 + rnd(s, 12);
		first = SLOT_PAGES * (1 + rnd(s, 1 + nr / SLOT_PAGES)) - 1 - rnd(s, 6);
		break;
	case 5:
		n = SLOT_PAGES * (1 + rnd(s, 3));
		first = SLOT_PAGES * rnd(s, 1 + nr / SLOT_PAGES);
		break;
	case 6:
		n = SLOT_PAGES * (1 + rnd(s, 2)) + rnd(s, 5) - 2;
		first = SLOT_PAGES * rnd(s, 1 + nr / SLOT_PAGES) + rnd(s, 3);
		break;
	default:
		n = 1 + rnd(s, 1400);
		first = rnd(s, nr);
		break;
	}
	if (first >= nr)
		first = rnd(s, nr);
	if (n > nr - first)
		n = nr - first;
	return (struct range){ r, first, n };
}

static struct range pick_arena(struct space *s)
{
	return pick_in(s, &s->arena);
}

/* Any region with pages. */
static struct range pick(struct space *s)
{
	unsigned int choice = rnd(s, 10);

	if (choice == 0 && s->has_heap && s->heap.nr)
		return pick_in(s, &s->heap);
	if (choice <= 2) {
		struct region *r = &s->floats[rnd(s, NR_FLOATS)];

		if (r->nr)
			return pick_in(s, r);
	}
	return pick_arena(s);
}

/* What pages have to be to be chosen. */
static bool page_has(const struct page *p, int prot, unsigned int kinds)
{
	return kinds & 1U << p->kind && (p->prot & prot) == prot;
}

#define ANY_KIND	(1U << ANON | 1U << FILE_PRIVATE | 1U << SHARED)
#define OWN_KIND	(1U << ANON | 1U << FILE_PRIVATE)

/* Up to max pages side by side that all have it; false if none was found. */
static bool pick_with(struct space *s, struct range *g, unsigned int max,
		      int prot, unsigned int kinds)
{
	for (int i = 0; i < 12; i++) {
		struct range all = pick(s);
		unsigned int n = 0, from = rnd(s, all.nr);

		while (from < all.nr && !page_has(range_pages(&all) + from, prot, kinds))
			from++;
		while (n < max && from + n < all.nr &&
		       page_has(range_pages(&all) + from + n, prot, kinds))
			n++;
		if (n) {
			*g = (struct range){ all.r, all.first + from, 1 + rnd(s, n) };
			return true;
		}
	}
	return false;
}

static int pick_prot(struct space *s)
{
	static const int prots[] = {
		RW, RW, RW, RW, RW, PROT_READ, PROT_READ, PROT_NONE, PROT_NONE,
		PROT_READ | PROT_EXEC, RW | PROT_EXEC,
	};

	return prots[rnd(s, sizeof(prots) / sizeof(prots[0]))];
}

/* ---- The model ------------------------------------------------------- */

static uint64_t tag_word(uint64_t tag, unsigned int i)
{
	return tag ? (tag + i) * 0x9e3779b97f4a7c15ULL : 0;
}

static uint64_t page_word(const struct page *p, unsigned int i)
{
	return p->poke_at == i + 1 ? p->poke : tag_word(p->tag, i);
}

static uint64_t file_tag(unsigned int page)
{
	return 0xf11e000000000001ULL + page * 0x10000ULL;
}

static void page_fill(struct page *p, uint64_t tag)
{
	p->tag = tag;
	p->poke_at = 0;
}

/* As it reads before anything was written to it. */
static void page_reset(struct page *p)
{
	if (p->kind != SHARED)
		page_fill(p, p->kind == FILE_PRIVATE ? file_tag(p->file_page) : 0);
}

static unsigned int range_count(const struct range *g, unsigned int kind)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < g->nr; i++)
		n += range_pages(g)[i].kind == kind;
	return n;
}

/* Pages before the first hole. */
static unsigned int mapped_prefix(const struct range *g)
{
	unsigned int n = 0;

	while (n < g->nr && range_pages(g)[n].kind != NOTHING)
		n++;
	return n;
}

static bool has_flag(const struct range *g, unsigned int flags)
{
	for (unsigned int i = 0; i < g->nr; i++)
		if (range_pages(g)[i].flags & flags)
			return true;
	return false;
}

static void set_new(struct space *s, const struct range *g, enum kind kind,
		    int prot, unsigned int flags, unsigned int file_page)
{
	s->gen++;
	for (unsigned int i = 0; i < g->nr; i++) {
		struct page *p = range_pages(g) + i;

		*p = (struct page){
			.gen = s->gen, .kind = (uint8_t)kind, .prot = (uint8_t)prot,
			.flags = (uint8_t)flags, .file_page = (uint16_t)(file_page + i),
		};
		page_reset(p);
	}
}

static void set_unmapped(const struct range *g)
{
	memset(range_pages(g), 0, g->nr * sizeof(struct page));
}

/* Something about the mappings of these pages changed. */
static void set_changed(struct space *s, const struct range *g, unsigned int nr)
{
	uint32_t old = 0;

	for (unsigned int i = 0; i < nr; i++) {
		struct page *p = range_pages(g) + i;

		if (!i || p->gen != old)
			s->gen++;
		old = p->gen;
		p->gen = s->gen;
	}
}

/* ---- Looking at memory ------------------------------------------------ */

static void signal_handler(int sig, siginfo_t *info, void *context)
{
	(void)context;
	if (!probing) {
		if (self)
			die(self, "SIG%s code %d at %p", sigabbrev_np(sig),
			    info->si_code, info->si_addr);
		_exit(1);
	}
	probe_code = sig == SIGSEGV ? info->si_code : 100 + sig;
	siglongjmp(probe_return, 1);
}

enum access { READ, WRITE, EXECUTE };

/* 0, si_code of the SIGSEGV, or 100 and the number of another signal. */
static int probe(char *addr, enum access access)
{
	volatile uint64_t *p = (void *)addr;

	probe_code = 0;
	probing = 1;
	if (sigsetjmp(probe_return, 1) == 0) {
		if (access == READ)
			(void)*p;
		else if (access == WRITE)
			*p = *p;
		else
			((void (*)(void))addr)();
	}
	probing = 0;
	return probe_code;
}

static void verify_words(struct space *s, const struct page *p, const char *addr,
			 const uint64_t *words, unsigned int step)
{
	for (unsigned int i = 0; i < WORDS; i += step) {
		uint64_t got = ((const volatile uint64_t *)words)[i];

		if (got != page_word(p, i))
			die(s, "content of %p, word %u: %#llx, not %#llx", addr, i,
			    (unsigned long long)got, (unsigned long long)page_word(p, i));
	}
}

static void verify_page(struct space *s, const struct region *r, unsigned int page,
			unsigned int step)
{
	const struct page *p = r->pages + page;
	const char *addr = addr_of(r, page);

	if (p->kind == NOTHING || !p->prot)
		return;
	verify_words(s, p, addr, (const uint64_t *)addr, step);
	if (p->poke_at && step > 1) {
		uint64_t got = ((const volatile uint64_t *)addr)[p->poke_at - 1];

		if (got != p->poke)
			die(s, "content of %p, word %u: %#llx, not %#llx", addr,
			    p->poke_at - 1U, (unsigned long long)got,
			    (unsigned long long)p->poke);
	}
}

static void verify_region(struct space *s, const struct region *r, unsigned int step)
{
	for (unsigned int i = 0; i < r->nr; i++)
		verify_page(s, r, i, step);
}

static void verify_all(struct space *s, unsigned int step)
{
	verify_region(s, &s->arena, step);
	for (unsigned int i = 0; i < NR_FLOATS; i++)
		verify_region(s, &s->floats[i], step);
	if (s->has_heap)
		verify_region(s, &s->heap, step);
}

/* ---- Changing memory --------------------------------------------------- */

static void fill_words(uint64_t *words, uint64_t tag)
{
	for (unsigned int i = 0; i < WORDS; i++)
		words[i] = tag_word(tag, i);
}

static void write_pages(struct space *s, const struct range *g)
{
	for (unsigned int i = 0; i < g->nr; i++) {
		struct page *p = range_pages(g) + i;

		page_fill(p, next(s) | 1);
		fill_words((uint64_t *)addr_of(g->r, g->first + i), p->tag);
	}
}

/* One word; the page is otherwise as its tag says. */
static void poke_page(struct space *s, const struct range *g)
{
	volatile uint64_t *words = (void *)range_addr(g);
	struct page *p = range_pages(g);

	if (p->poke_at)
		words[p->poke_at - 1] = tag_word(p->tag, p->poke_at - 1U);
	p->poke_at = (uint16_t)(1 + rnd(s, WORDS));
	p->poke = next(s);
	words[p->poke_at - 1] = p->poke;
}

/* ---- What calls return -------------------------------------------------- */

/* Compares with what the model expects; true if the call has succeeded. */
static bool check(struct space *s, long ret, int want)
{
	int got = ret == -1 ? errno : 0;

	if (got == want)
		return !got;
	/* The pools may be exhausted: then nothing has changed. */
	if (opt.scarce && got == ENOMEM)
		return false;
	die(s, "it returned %s, not %s", errno_text(got), errno_text(want));
}

static void say_range(struct space *s, const struct range *g, int a, int b, long ret)
{
	say(s, "%c+%u %u pages %#x %#x: %s", g->r->name, g->first, g->nr,
	    (unsigned int)a, (unsigned int)b, errno_text(ret == -1 ? errno : 0));
}

/* ---- Operations ---------------------------------------------------------- */

static int pick_map_flags(struct space *s)
{
	int flags = 0;

	if (one_in(s, 8))
		flags |= MAP_NORESERVE;
	if (one_in(s, 8))
		flags |= MAP_POPULATE;
	if (one_in(s, 10))
		flags |= MAP_LOCKED;
	if (one_in(s, 10))
		flags |= MAP_STACK;
	return flags;
}

static void op_mmap_fixed(struct space *s)
{
	struct range g = pick_arena(s);
	int prot = pick_prot(s), flags = pick_map_flags(s);
	void *p = mmap(range_addr(&g), g.nr * PAGE, prot, ANON_FLAGS | MAP_FIXED | flags,
		       -1, 0);

	say_range(s, &g, prot, flags, (long)p);
	if (check(s, (long)p, 0))
		set_new(s, &g, ANON, prot, flags & MAP_LOCKED ? LOCKED : 0, 0);
}

/* The arena is a part of it, and of nothing else of the gigabyte is anything known. */
static void op_mmap_gigabyte(struct space *s)
{
	struct range g = { &s->arena, 0, s->arena.nr };
	void *p = mmap(s->arena.base, GIGABYTE, RW, ANON_FLAGS | MAP_FIXED, -1, 0);

	say_range(s, &g, RW, 0, (long)p);
	if (check(s, (long)p, 0))
		set_new(s, &g, ANON, RW, 0, 0);
}

static void op_mmap_noreplace(struct space *s)
{
	struct range g = pick_arena(s);
	int prot = pick_prot(s);
	bool taken = range_count(&g, NOTHING) != g.nr;
	void *p = mmap(range_addr(&g), g.nr * PAGE, prot,
		       ANON_FLAGS | MAP_FIXED_NOREPLACE, -1, 0);

	say_range(s, &g, prot, 0, (long)p);
	if (check(s, (long)p, taken ? EEXIST : 0))
		set_new(s, &g, ANON, prot, 0, 0);
}

static struct region *free_float(struct space *s)
{
	for (unsigned int i = 0; i < NR_FLOATS; i++)
		if (!s->floats[i].nr)
			return &s->floats[i];
	return NULL;
}

/* A mapping at an address that Linux chooses. */
static struct range set_float(struct region *r, void *addr, unsigned int nr)
{
	r->base = addr;
	r->nr = nr;
	return (struct range){ r, 0, nr };
}

static void op_mmap_hint(struct space *s)
{
	struct range g = pick_arena(s);
	bool taken = range_count(&g, NOTHING) != g.nr;
	struct region *f = free_float(s);
	void *p;

	if (g.nr > FLOAT_PAGES || !f)
		return;
	p = mmap(range_addr(&g), g.nr * PAGE, RW, ANON_FLAGS, -1, 0);
	say(s, "%c+%u %u pages: %s", g.r->name, g.first, g.nr, errno_text(p == MAP_FAILED ? errno : 0));
	if (!check(s, (long)p, 0))
		return;
	if ((p == range_addr(&g)) == taken)
		die(s, "%p was %s, and the mapping is at %p", range_addr(&g),
		    taken ? "taken" : "free", p);
	if (taken)
		g = set_float(f, p, g.nr);
	set_new(s, &g, ANON, RW, 0, 0);
}

static void op_mmap_any(struct space *s)
{
	struct region *f = free_float(s);
	unsigned int nr = one_in(s, 2) ? 1 + rnd(s, 8) : 1 + rnd(s, FLOAT_PAGES);
	int prot = pick_prot(s), flags = pick_map_flags(s);
	struct range g;
	void *p;

	/* Linux might choose a part of the arena that has left the region. */
	if (opt.region)
		prot = RW, flags = 0;
	if (!f)
		return;
	p = mmap(NULL, nr * PAGE, prot, ANON_FLAGS | flags, -1, 0);
	say(s, "%u pages %#x %#x: %s", nr, (unsigned int)prot, (unsigned int)flags,
	    errno_text(p == MAP_FAILED ? errno : 0));
	if (!check(s, (long)p, 0))
		return;
	g = set_float(f, p, nr);
	set_new(s, &g, ANON, prot, flags & MAP_LOCKED ? LOCKED : 0, 0);
}

static void op_mmap_file(struct space *s)
{
	struct range g = pick_arena(s);
	unsigned int from;
	int prot = pick_prot(s);
	void *p;

	if (g.nr > FILE_PAGES)
		g.nr = FILE_PAGES;
	from = rnd(s, FILE_PAGES - g.nr + 1);
	p = mmap(range_addr(&g), g.nr * PAGE, prot, MAP_PRIVATE | MAP_FIXED, test_file,
		 (off_t)(from * PAGE));
	say_range(s, &g, prot, (int)from, (long)p);
	if (check(s, (long)p, 0))
		set_new(s, &g, FILE_PRIVATE, prot, 0, from);
}

static void op_mmap_shared(struct space *s)
{
	struct range g = pick_arena(s);
	void *p;

	if (g.nr > 64)
		g.nr = 64;
	p = mmap(range_addr(&g), g.nr * PAGE, RW, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED,
		 -1, 0);
	say_range(s, &g, RW, 0, (long)p);
	if (!check(s, (long)p, 0))
		return;
	set_new(s, &g, SHARED, RW, 0, 0);
	write_pages(s, &g);
}

static void op_munmap(struct space *s)
{
	struct range g = pick_arena(s);
	long ret = munmap(range_addr(&g), g.nr * PAGE);

	say_range(s, &g, 0, 0, ret);
	if (check(s, ret, 0))
		set_unmapped(&g);
}

/* As a whole: what Linux places in a hole would not be the model's. */
static void op_munmap_float(struct space *s)
{
	struct region *f = &s->floats[rnd(s, NR_FLOATS)];
	struct range g = { f, 0, f->nr };
	long ret;

	if (!f->nr)
		return;
	ret = munmap(f->base, f->nr * PAGE);
	say_range(s, &g, 0, 0, ret);
	if (!check(s, ret, 0))
		return;
	set_unmapped(&g);
	f->nr = 0;
}

static void op_mprotect(struct space *s)
{
	struct range g = pick(s);
	unsigned int nr = mapped_prefix(&g);
	int prot = pick_prot(s);
	long ret;

	if (g.r == &s->heap && !opt.heap_protect)
		return;
	/* Whether a part has changed could not be told from the errno. */
	if (opt.scarce && nr < g.nr) {
		if (!nr)
			return;
		g.nr = nr;
	}
	if (one_in(s, 6))
		ret = syscall(SYS_pkey_mprotect, range_addr(&g), g.nr * PAGE, prot, -1);
	else
		ret = mprotect(range_addr(&g), g.nr * PAGE, prot);
	say_range(s, &g, prot, 0, ret);
	if (!check(s, ret, nr < g.nr ? ENOMEM : 0) && opt.scarce)
		return;
	for (unsigned int i = 0; i < nr; i++)
		range_pages(&g)[i].prot = (uint8_t)prot;
	set_changed(s, &g, nr);
}

/* A part of what is certainly one mapping, and no hole right behind it. */
static bool pick_run(struct space *s, struct range *g)
{
	struct range all = pick(s);
	unsigned int lo = all.first + rnd(s, all.nr), hi = lo, run_lo, run_hi;
	struct page *pages = all.r->pages;

	if (all.r == &s->heap || pages[lo].kind == NOTHING)
		return false;
	while (lo && pages[lo - 1].gen == pages[hi].gen)
		lo--;
	while (hi + 1 < all.r->nr && pages[hi + 1].gen == pages[lo].gen)
		hi++;
	run_lo = lo;
	run_hi = hi + 1;
	if (!one_in(s, 3) && all.r == &s->arena) {
		struct range part = pick_arena(s);

		/* A part of it, of some typical shape. */
		if (part.nr < run_hi - run_lo) {
			run_lo += rnd(s, run_hi - run_lo - part.nr);
			run_hi = run_lo + part.nr;
		}
	}
	*g = (struct range){ all.r, run_lo, run_hi - run_lo };
	return true;
}

static void op_mremap_shrink(struct space *s)
{
	struct range g = pick_arena(s), gone;
	unsigned int keep = rnd(s, g.nr) + 1;
	void *p = mremap(range_addr(&g), g.nr * PAGE, keep * PAGE, 0);

	say_range(s, &g, (int)keep, 0, (long)p);
	/* Linux looks only at the first page, and not at all if nothing shrinks. */
	if (!check(s, (long)p, range_pages(&g)->kind == NOTHING ? EFAULT : 0))
		return;
	gone = (struct range){ g.r, g.first + keep, g.nr - keep };
	if (gone.nr)
		set_unmapped(&gone);
}

/* Copies the description of pages that move. */
static void model_move(struct space *s, const struct range *from, const struct range *to)
{
	unsigned int n = from->nr < to->nr ? from->nr : to->nr;
	struct page like = *range_pages(from);

	s->gen++;
	memmove(range_pages(to), range_pages(from), n * sizeof(struct page));
	for (unsigned int i = 0; i < to->nr; i++) {
		struct page *p = range_pages(to) + i;

		if (i >= n) {
			*p = like;
			page_fill(p, 0);
		}
		p->gen = s->gen;
	}
}

/* The end of the run, with a hole behind: there it certainly ends on Linux. */
static bool pick_run_end(struct space *s, struct range *g)
{
	struct page *pages;

	if (!pick_run(s, g) || g->r != &s->arena)
		return false;
	pages = g->r->pages;
	if (pages[g->first].kind != ANON)
		return false;
	while (g->first + g->nr < g->r->nr &&
	       pages[g->first + g->nr].gen == pages[g->first].gen)
		g->nr++;
	return g->first + g->nr < g->r->nr;
}

static void op_mremap_grow(struct space *s)
{
	bool may_move = one_in(s, 2) && !opt.region, room;
	struct region *f = free_float(s);
	struct range g, more, to;
	unsigned int add;
	void *p;

	if (!pick_run_end(s, &g))
		return;
	add = 1 + rnd(s, one_in(s, 2) ? 8 : 700);
	more = (struct range){ g.r, g.first + g.nr, add };
	if (more.first + add > g.r->nr)
		return;
	room = range_count(&more, NOTHING) == add;
	if (may_move && !room && (!f || g.nr + add > FLOAT_PAGES))
		return;
	p = mremap(range_addr(&g), g.nr * PAGE, (g.nr + add) * PAGE,
		   may_move ? MREMAP_MAYMOVE : 0);
	say_range(s, &g, (int)add, may_move, (long)p);
	if (!check(s, (long)p, room || may_move ? 0 : ENOMEM))
		return;
	if (room != (p == range_addr(&g)))
		die(s, "%u pages at %p: it went to %p although there was %sroom behind it",
		    g.nr, range_addr(&g), p, room ? "" : "no ");
	if (room) {
		for (unsigned int i = 0; i < add; i++) {
			range_pages(&more)[i] = *range_pages(&g);
			page_fill(range_pages(&more) + i, 0);
		}
		return;
	}
	to = set_float(f, p, g.nr + add);
	model_move(s, &g, &to);
	set_unmapped(&g);
}

static bool overlap(const struct range *a, const struct range *b)
{
	return a->r == b->r && a->first < b->first + b->nr && b->first < a->first + a->nr;
}

static void op_mremap_fixed(struct space *s)
{
	struct range g, to = pick_arena(s);
	int flags = MREMAP_MAYMOVE | MREMAP_FIXED;
	unsigned int nr;
	void *p;

	if (!pick_run(s, &g))
		return;
	/* Of what Linux chose the place for, all or nothing. */
	if (g.r != &s->arena && g.nr != g.r->nr)
		return;
	nr = g.nr;
	/* Where the slots stay whole, or anywhere. */
	if (one_in(s, 2))
		to.first = (to.first & ~(SLOT_PAGES - 1)) + (g.first & (SLOT_PAGES - 1));
	if (one_in(s, 3) && range_pages(&g)->kind == ANON)
		nr = 1 + rnd(s, 2 * g.nr);
	if (to.first + nr > to.r->nr)
		return;
	to.nr = nr;
	/* Moved, and what it had at once: only the errno is of interest. */
	if (overlap(&g, &to)) {
		p = mremap(range_addr(&g), g.nr * PAGE, nr * PAGE, flags, range_addr(&to));
		say_range(s, &g, (int)to.first, (int)nr, (long)p);
		check(s, (long)p, EINVAL);
		return;
	}
	p = mremap(range_addr(&g), g.nr * PAGE, nr * PAGE, flags, range_addr(&to));
	say_range(s, &g, (int)to.first, (int)nr, (long)p);
	if (!check(s, (long)p, 0))
		return;
	model_move(s, &g, &to);
	set_unmapped(&g);
	if (g.r != &s->arena)
		g.r->nr = 0;
}

/* One kind or nothing locked, so that no error comes after a part was done. */
static bool is_plain(const struct range *g)
{
	return !has_flag(g, LOCKED) || range_count(g, range_pages(g)->kind) == g->nr;
}

static void op_dontneed(struct space *s)
{
	bool locked_too = one_in(s, 5), hole = false;
	struct range g = pick(s);
	unsigned int i;
	int want = 0;
	long ret;

	if (!is_plain(&g))
		return;
	ret = madvise(range_addr(&g), g.nr * PAGE,
		      locked_too ? MADV_DONTNEED_LOCKED : MADV_DONTNEED);
	say_range(s, &g, locked_too, 0, ret);
	for (i = 0; i < g.nr && !want; i++) {
		struct page *p = range_pages(&g) + i;

		if (p->kind == NOTHING)
			hole = true;
		else if (p->flags & LOCKED && !locked_too)
			want = EINVAL;
		else
			page_reset(p);
	}
	check(s, ret, want ? want : hole ? ENOMEM : 0);
}

/* The contents afterwards are the old ones or none: they are written at once. */
static void op_free(struct space *s)
{
	struct range g;
	long ret;

	if (!pick_with(s, &g, 40, RW, 1U << ANON))
		return;
	if (has_flag(&g, LOCKED))
		return;
	ret = madvise(range_addr(&g), g.nr * PAGE, MADV_FREE);
	say_range(s, &g, 0, 0, ret);
	check(s, ret, 0);
	write_pages(s, &g);
}

/* What changes no content; the errno is for the comparison of the logs. */
static void op_advice(struct space *s)
{
	static const int advices[] = {
		MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED, MADV_HUGEPAGE,
		MADV_NOHUGEPAGE, MADV_DONTDUMP, MADV_DODUMP, MADV_COLD, MADV_PAGEOUT,
		MADV_POPULATE_READ, MADV_POPULATE_WRITE, MADV_REMOVE,
	};
	int advice = advices[rnd(s, sizeof(advices) / sizeof(advices[0]))];
	struct range g = pick(s);
	unsigned int nr = mapped_prefix(&g);
	long ret;

	if (range_count(&g, ANON) != nr || !nr || has_flag(&g, LOCKED))
		return;
	if (one_in(s, 4) || advice == MADV_REMOVE)
		g.nr = nr;
	ret = madvise(range_addr(&g), g.nr * PAGE, advice);
	say_range(s, &g, advice, 0, ret);
	set_changed(s, &g, g.nr);
}

static void op_inherit(struct space *s)
{
	static const struct {
		int advice;
		unsigned int set;
		unsigned int clear;
	} choices[] = {
		{ MADV_DONTFORK, DONTFORK, 0 },
		{ MADV_DOFORK, 0, DONTFORK },
		{ MADV_WIPEONFORK, WIPEONFORK, 0 },
		{ MADV_KEEPONFORK, 0, WIPEONFORK },
	};
	unsigned int choice = rnd(s, opt.wipe ? 4 : 2);
	struct range g = pick(s);
	bool hole = false;
	int want = 0;
	long ret;

	if (g.r == &s->heap)
		return;
	/* Linux stops at the first mapping that is not private and anonymous. */
	if (choice == 2 && range_count(&g, ANON) + range_count(&g, NOTHING) != g.nr)
		return;
	ret = madvise(range_addr(&g), g.nr * PAGE, choices[choice].advice);
	say_range(s, &g, choices[choice].advice, 0, ret);
	for (unsigned int i = 0; i < g.nr; i++) {
		struct page *p = range_pages(&g) + i;

		if (p->kind == NOTHING) {
			hole = true;
			continue;
		}
		p->flags |= (uint8_t)choices[choice].set;
		p->flags &= (uint8_t)~choices[choice].clear;
	}
	if (hole)
		want = ENOMEM;
	check(s, ret, want);
	set_changed(s, &g, g.nr);
}

static void op_mlock(struct space *s)
{
	struct range g = pick(s);
	unsigned int nr = mapped_prefix(&g), how = rnd(s, 4);
	bool lock = how < 2, hidden = false;
	long ret;

	if (how == 0)
		ret = mlock(range_addr(&g), g.nr * PAGE);
	else if (how == 1)
		ret = mlock2(range_addr(&g), g.nr * PAGE, MLOCK_ONFAULT);
	else
		ret = munlock(range_addr(&g), g.nr * PAGE);
	say_range(s, &g, (int)how, 0, ret);
	for (unsigned int i = 0; i < nr; i++) {
		struct page *p = range_pages(&g) + i;

		if (lock)
			p->flags |= LOCKED;
		else
			p->flags &= (uint8_t)~LOCKED;
		hidden |= !p->prot;
	}
	set_changed(s, &g, nr);
	/* What cannot be accessed cannot be populated either. */
	check(s, ret, nr < g.nr || (how == 0 && hidden) ? ENOMEM : 0);
}

static void op_brk(struct space *s)
{
	unsigned long bytes, old = s->heap.nr;
	struct range g;
	char *want, *got;

	if (!s->has_heap)
		return;
	bytes = one_in(s, 2) ? rnd(s, HEAP_PAGES * PAGE) :
			       (s->heap.nr + rnd(s, 16)) * PAGE - rnd(s, 8) * PAGE / 2;
	if (bytes > HEAP_PAGES * PAGE)
		return;
	want = s->heap.base + bytes;
	got = (char *)syscall(SYS_brk, want);
	say(s, "%lu: %s", bytes, got == want ? "ok" : "refused");
	if (got != want) {
		if (opt.scarce)
			return;
		die(s, "%lu bytes of heap are refused", bytes);
	}
	s->heap.nr = (unsigned int)((bytes + PAGE - 1) / PAGE);
	if (s->heap.nr > old) {
		g = (struct range){ &s->heap, (unsigned int)old, s->heap.nr - (unsigned int)old };
		set_new(s, &g, ANON, RW, 0, 0);
	} else {
		memset(s->heap.pages + s->heap.nr, 0,
		       (old - s->heap.nr) * sizeof(struct page));
	}
}

static void op_write(struct space *s)
{
	struct range g;

	if (!pick_with(s, &g, one_in(s, 6) ? 600 : 12, RW, OWN_KIND))
		return;
	write_pages(s, &g);
	say_range(s, &g, 0, 0, 0);
}

static void op_poke(struct space *s)
{
	for (int i = 0; i < 12; i++) {
		struct range g;

		if (!pick_with(s, &g, 1, RW, OWN_KIND))
			return;
		poke_page(s, &g);
	}
	say(s, "done");
}

/* The kernel writes on behalf of a call, and by way of another view. */
static void op_kernel_write(struct space *s)
{
	struct range g;
	struct iovec local, remote;
	uint64_t tag = next(s) | 1;
	ssize_t n = -1;
	unsigned int how = rnd(s, 3);
	int fd;

	/* A debugger may write to what the program may only read. */
	if (!pick_with(s, &g, 1, how == 1 ? PROT_READ : RW, OWN_KIND))
		return;
	fill_words((uint64_t *)s->buffer, tag);
	if (how == 0) {
		local = (struct iovec){ s->buffer, PAGE };
		remote = (struct iovec){ range_addr(&g), PAGE };
		n = process_vm_writev(getpid(), &local, 1, &remote, 1, 0);
	} else if (how == 1) {
		fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
		if (fd >= 0) {
			n = pwrite(fd, s->buffer, PAGE, (off_t)range_addr(&g));
			close(fd);
		}
	} else {
		int ends[2];

		if (pipe2(ends, O_CLOEXEC) == 0) {
			if (write(ends[1], s->buffer, PAGE) == PAGE)
				n = read(ends[0], range_addr(&g), PAGE);
			close(ends[0]);
			close(ends[1]);
		}
	}
	say_range(s, &g, (int)how, (int)n, 0);
	if (n != (ssize_t)PAGE)
		die(s, "way %u wrote %zd bytes: %s", how, n, errno_text(errno));
	page_fill(range_pages(&g), tag);
}

/* The kernel reads; what the program may not read it shows to a debugger. */
static void op_kernel_read(struct space *s)
{
	struct iovec local, remote;
	unsigned int how = rnd(s, 3);
	struct range g;
	ssize_t n = -1;
	int fd;

	if (!pick_with(s, &g, 1, how == 1 ? PROT_NONE : PROT_READ, ANY_KIND))
		return;
	memset(s->buffer, 0x5a, PAGE);
	if (how == 0) {
		local = (struct iovec){ s->buffer, PAGE };
		remote = (struct iovec){ range_addr(&g), PAGE };
		n = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
	} else if (how == 1) {
		fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
		if (fd >= 0) {
			n = pread(fd, s->buffer, PAGE, (off_t)range_addr(&g));
			close(fd);
		}
	} else {
		int ends[2];

		if (pipe2(ends, O_CLOEXEC) == 0) {
			if (write(ends[1], range_addr(&g), PAGE) == PAGE)
				n = read(ends[0], s->buffer, PAGE);
			close(ends[0]);
			close(ends[1]);
		}
	}
	say_range(s, &g, (int)how, (int)n, 0);
	if (n != (ssize_t)PAGE)
		die(s, "way %u read %zd bytes: %s", how, n, errno_text(errno));
	verify_words(s, range_pages(&g), range_addr(&g), (uint64_t *)s->buffer, 1);
}

static void op_verify(struct space *s)
{
	struct range g = pick(s);

	for (unsigned int i = 0; i < g.nr; i++)
		verify_page(s, g.r, g.first + i, g.nr < 32 ? 1 : 37);
	say_range(s, &g, 0, 0, 0);
}

static int expected_code(const struct page *p, enum access access)
{
	static const int need[] = {
		PROT_READ | PROT_WRITE | PROT_EXEC, PROT_WRITE, PROT_EXEC,
	};

	if (p->kind == NOTHING)
		return SEGV_MAPERR;
	return p->prot & need[access] ? 0 : SEGV_ACCERR;
}

static void op_probe(struct space *s)
{
	for (int i = 0; i < 6; i++) {
		struct range g = pick(s);
		struct page *p = range_pages(&g);
		enum access access = rnd(s, 3);
		int want = expected_code(p, access), got;

		if (opt.region && want == SEGV_MAPERR)
			continue;
		/* Code only where there is some; the end of a page is as good. */
		if ((access == EXECUTE && !want) || (access == WRITE && p->kind == SHARED))
			access = READ, want = expected_code(p, READ);
		got = probe(range_addr(&g), access);
		say(s, "%c+%u %d: %d", g.r->name, g.first, access, got);
		if (got != want)
			die(s, "access %d to %p: %d, not %d", access, range_addr(&g), got, want);
	}
}

/* mov $value, %eax; ret */
static void op_code(struct space *s)
{
	uint32_t value = (uint32_t)next(s);
	struct range g;
	struct page *p;
	uint64_t *word;
	uint32_t got;

	if (!pick_with(s, &g, 1, RW | PROT_EXEC, OWN_KIND))
		return;
	poke_page(s, &g);
	p = range_pages(&g);
	p->poke = 0xb8 | (uint64_t)value << 8 | 0xc3ULL << 40;
	word = (uint64_t *)range_addr(&g) + p->poke_at - 1;
	*(volatile uint64_t *)word = p->poke;
	got = ((uint32_t (*)(void))word)();
	say_range(s, &g, 0, 0, 0);
	if (got != value)
		die(s, "code at %p returned %#x, not %#x", (void *)word, got, value);
}

static void op_msync(struct space *s)
{
	struct range g = pick(s);
	int flags = one_in(s, 2) ? MS_SYNC : MS_ASYNC;
	long ret;

	if (opt.region && range_count(&g, NOTHING))
		return;
	ret = msync(range_addr(&g), g.nr * PAGE, flags);
	say_range(s, &g, 0, 0, ret);
	check(s, ret, range_count(&g, NOTHING) ? ENOMEM : 0);
}

static void op_mbind(struct space *s)
{
	unsigned long nodes = 1;
	struct range g = pick(s);
	unsigned int nr = mapped_prefix(&g);
	int mode = rnd(s, 3);	/* MPOL_DEFAULT, MPOL_PREFERRED, MPOL_BIND */
	long ret;

	if (nr < g.nr)
		return;
	ret = syscall(SYS_mbind, range_addr(&g), g.nr * PAGE, mode, mode ? &nodes : NULL,
		      mode ? 2 : 0, 0);
	say_range(s, &g, mode, 0, ret);
	check(s, ret, 0);
	set_changed(s, &g, nr);
}

/* ---- fork ------------------------------------------------------------------ */

static void run_ops(struct space *s, unsigned int nr);
static void reap_all(struct space *s);

/* What fork does to the child's copy. */
static void model_fork(struct space *s)
{
	struct region *regions[NR_FLOATS + 2] = { &s->arena, &s->heap };

	for (unsigned int i = 0; i < NR_FLOATS; i++)
		regions[i + 2] = &s->floats[i];
	for (unsigned int i = 0; i < NR_FLOATS + 2; i++) {
		struct region *r = regions[i];
		bool hole = false;

		for (unsigned int j = 0; j < r->nr; j++) {
			struct page *p = r->pages + j;

			if (p->flags & DONTFORK) {
				memset(p, 0, sizeof(*p));
				hole = true;
				continue;
			}
			if (p->flags & WIPEONFORK)
				page_reset(p);
			p->flags &= (uint8_t)~LOCKED;
		}
		/* Before Linux places something else in the hole. */
		if (hole && r != &s->arena) {
			if (munmap(r->base, r->nr * PAGE))
				die(s, "munmap: %s", errno_text(errno));
			memset(r->pages, 0, r->nr * sizeof(struct page));
			r->nr = 0;
		}
	}
}

static void log_open(struct space *s)
{
	char name[PATH_MAX];

	s->log_len = 0;
	if (s->log_fd >= 0)
		close(s->log_fd);
	s->log_fd = -1;
	if (!opt.log_dir || s->silent)
		return;
	snprintf(name, sizeof(name), "%s/%llu-%s", opt.log_dir,
		 (unsigned long long)opt.seed, s->path);
	s->log_fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (s->log_fd < 0)
		die(s, "%s: %s", name, errno_text(errno));
}

static void check_ticker(struct space *s)
{
	uint64_t first, second;

	if (!ticker.first)
		return;
	first = atomic_load(ticker.first);
	second = atomic_load(ticker.second);
	if (first < second || first > second + 1)
		die(s, "the snapshot is not of one moment: %llu and %llu",
		    (unsigned long long)first, (unsigned long long)second);
}

/* Only the calling thread goes on in the child. */
static void child_begin(struct space *s, bool silent)
{
	size_t len = strlen(s->path);

	/* Who is killed takes all its children along. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != s->parent)
		_exit(1);
	s->silent = silent;
	s->depth++;
	snprintf(s->path + len, sizeof(s->path) - len, ".%u", s->nr_forks);
	s->nr_forks = 0;
	s->nr_kids = 0;
	log_open(s);
	model_fork(s);
	check_ticker(s);
}

__attribute__((noreturn))
static void child_end(struct space *s)
{
	verify_all(s, 1);
	reap_all(s);
	log_flush(s);
	_exit(0);
}

static void reap(struct space *s, struct kid *kid)
{
	int status;

	if (kid->release >= 0) {
		if (write(kid->release, "", 1) != 1)
			die(s, "a child does not read its pipe");
		close(kid->release);
	}
	while (waitpid(kid->pid, &status, 0) < 0)
		if (errno != EINTR)
			die(s, "waitpid: %s", errno_text(errno));
	if (status)
		die(s, "child %d ended with status %#x", kid->pid, (unsigned int)status);
}

static void reap_first(struct space *s)
{
	reap(s, &s->kids[0]);
	s->nr_kids--;
	memmove(s->kids, s->kids + 1, s->nr_kids * sizeof(s->kids[0]));
}

static void reap_all(struct space *s)
{
	while (s->nr_kids)
		reap_first(s);
}

/* The caller's sequence does not depend on what the child does. */
static pid_t do_fork(struct space *s)
{
	uint64_t child_rng = next(s) | 1;
	pid_t pid;

	log_flush(s);
	s->nr_forks++;
	s->parent = getpid();
	pid = fork();
	if (pid == 0)
		s->rng = child_rng;
	if (pid < 0 && !(opt.scarce && errno == ENOMEM))
		die(s, "fork: %s", errno_text(errno));
	return pid;
}

/* A child with a life of its own, beside its parent's. */
static void op_fork(struct space *s)
{
	unsigned int ops = 1 + rnd(s, CHILD_OPS);
	pid_t pid;

	if (s->depth >= MAX_DEPTH)
		return;
	if (s->nr_kids == MAX_KIDS)
		reap_first(s);
	pid = do_fork(s);
	if (pid == 0) {
		child_begin(s, s->silent);
		run_ops(s, ops);
		child_end(s);
	}
	say(s, "%s", pid < 0 ? "refused" : "ok");
	if (pid > 0)
		s->kids[s->nr_kids++] = (struct kid){ pid, -1 };
}

/* A child that keeps its snapshot until much has happened to its parent. */
static void op_fork_holder(struct space *s)
{
	int ends[2];
	pid_t pid;
	char byte;

	if (s->depth >= MAX_DEPTH)
		return;
	if (s->nr_kids == MAX_KIDS)
		reap_first(s);
	if (pipe2(ends, O_CLOEXEC))
		die(s, "pipe: %s", errno_text(errno));
	pid = do_fork(s);
	if (pid == 0) {
		child_begin(s, s->silent);
		close(ends[1]);
		if (read(ends[0], &byte, 1) != 1)
			_exit(1);
		child_end(s);
	}
	close(ends[0]);
	say(s, "%s", pid < 0 ? "refused" : "ok");
	if (pid > 0)
		s->kids[s->nr_kids++] = (struct kid){ pid, ends[1] };
	else
		close(ends[1]);
}

/* A child that is killed in the middle of something. */
static void op_fork_killed(struct space *s)
{
	struct timespec delay = { .tv_nsec = rnd(s, 8) * 1000000L };
	int status;
	pid_t pid;

	if (s->depth >= MAX_DEPTH)
		return;
	pid = do_fork(s);
	if (pid == 0) {
		child_begin(s, true);
		for (;;) {
			run_ops(s, 100);
			reap_all(s);
		}
	}
	say(s, "%s", pid < 0 ? "refused" : "ok");
	if (pid < 0)
		return;
	nanosleep(&delay, NULL);
	kill(pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			die(s, "waitpid: %s", errno_text(errno));
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
		die(s, "the child ended with status %#x before it was killed", (unsigned int)status);
}

/* A child writes to its parent's memory, or the parent to its child's. */
static void op_fork_remote(struct space *s)
{
	bool to_parent = one_in(s, 2);
	struct iovec local, remote;
	uint64_t tag = next(s) | 1;
	pid_t pid, parent = getpid();
	int ready[2], go[2], status;
	struct range g, all;
	ssize_t n;
	char byte = 0;

	if (s->depth >= MAX_DEPTH || !pick_with(s, &g, 1, RW, OWN_KIND))
		return;
	all = (struct range){ g.r, 0, g.r == &s->arena ? 0 : g.r->nr };
	if (has_flag(&all, DONTFORK) || has_flag(&g, DONTFORK | WIPEONFORK))
		return;
	if (pipe2(ready, O_CLOEXEC) || pipe2(go, O_CLOEXEC))
		die(s, "pipe: %s", errno_text(errno));
	fill_words((uint64_t *)s->buffer, tag);
	local = (struct iovec){ s->buffer, PAGE };
	remote = (struct iovec){ range_addr(&g), PAGE };
	pid = do_fork(s);
	if (pid == 0) {
		child_begin(s, true);
		if (to_parent) {
			n = process_vm_writev(parent, &local, 1, &remote, 1, 0);
			/* The parent itself is being killed. */
			if (n < 0 && errno == ESRCH)
				_exit(1);
			if (n != (ssize_t)PAGE)
				die(s, "writing to the parent: %zd %s", n, errno_text(errno));
		} else if (write(ready[1], &byte, 1) != 1 || read(go[0], &byte, 1) != 1) {
			_exit(1);
		} else {
			page_fill(range_pages(&g), tag);
		}
		verify_page(s, g.r, g.first, 1);
		_exit(0);
	}
	if (pid > 0 && !to_parent) {
		if (read(ready[0], &byte, 1) != 1)
			die(s, "the child does not get ready");
		n = process_vm_writev(pid, &local, 1, &remote, 1, 0);
		if (n != (ssize_t)PAGE)
			die(s, "writing to the child: %zd %s", n, errno_text(errno));
		if (write(go[1], &byte, 1) != 1)
			die(s, "the child does not read");
	}
	close(ready[0]);
	close(ready[1]);
	close(go[0]);
	close(go[1]);
	say_range(s, &g, to_parent, 0, 0);
	if (pid < 0)
		return;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			die(s, "waitpid: %s", errno_text(errno));
	if (status)
		die(s, "the child ended with status %#x", (unsigned int)status);
	if (to_parent)
		page_fill(range_pages(&g), tag);
	verify_page(s, g.r, g.first, 1);
}

/* The same address space for a moment, and then another program. */
static void op_spawn(struct space *s)
{
	char *const argv[] = { "true", NULL }, *const envp[] = { NULL };
	int status = 0, ret = 0;
	pid_t pid;

	if (one_in(s, 3)) {
		ret = posix_spawn(&pid, "/bin/true", NULL, NULL, argv, envp);
	} else {
		pid = vfork();
		if (pid == 0)
			_exit(0);
		ret = pid < 0 ? errno : 0;
	}
	say(s, "%s", errno_text(ret));
	if (ret) {
		if (opt.scarce)
			return;
		die(s, "it returned %s", errno_text(ret));
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			die(s, "waitpid: %s", errno_text(errno));
	if (status && !opt.scarce)
		die(s, "the child ended with status %#x", (unsigned int)status);
}

/* ---- Sequences --------------------------------------------------------------- */

static const struct operation {
	const char *name;
	void (*run)(struct space *s);
	unsigned int weight;
	bool forks;
} operations[] = {
	{ "mmap-fixed", op_mmap_fixed, 14, false },
	{ "mmap-noreplace", op_mmap_noreplace, 4, false },
	{ "mmap-hint", op_mmap_hint, 3, false },
	{ "mmap-any", op_mmap_any, 4, false },
	{ "mmap-file", op_mmap_file, 3, false },
	{ "mmap-shared", op_mmap_shared, 2, false },
	{ "munmap", op_munmap, 9, false },
	{ "munmap-float", op_munmap_float, 2, false },
	{ "mprotect", op_mprotect, 12, false },
	{ "mremap-shrink", op_mremap_shrink, 3, false },
	{ "mremap-grow", op_mremap_grow, 6, false },
	{ "mremap-fixed", op_mremap_fixed, 10, false },
	{ "dontneed", op_dontneed, 9, false },
	{ "free", op_free, 2, false },
	{ "advice", op_advice, 5, false },
	{ "inherit", op_inherit, 4, false },
	{ "mlock", op_mlock, 6, false },
	{ "brk", op_brk, 6, false },
	{ "write", op_write, 24, false },
	{ "poke", op_poke, 8, false },
	{ "kernel-write", op_kernel_write, 6, false },
	{ "kernel-read", op_kernel_read, 6, false },
	{ "verify", op_verify, 10, false },
	{ "probe", op_probe, 8, false },
	{ "code", op_code, 3, false },
	{ "msync", op_msync, 1, false },
	{ "mbind", op_mbind, 1, false },
	{ "fork", op_fork, 6, true },
	{ "fork-holder", op_fork_holder, 4, true },
	{ "fork-killed", op_fork_killed, 1, true },
	{ "fork-remote", op_fork_remote, 4, true },
	{ "spawn", op_spawn, 1, true },
};
static const struct operation gigabyte = { "mmap-gigabyte", op_mmap_gigabyte, 0, false };
#define NR_OPERATIONS (sizeof(operations) / sizeof(operations[0]))

static const struct operation *pick_operation(struct space *s)
{
	static unsigned int sum;
	unsigned int total = sum, at;

	if (!total) {
		for (unsigned int i = 0; i < NR_OPERATIONS; i++)
			total += operations[i].weight;
		sum = total;
	}
	at = rnd(s, total);
	for (unsigned int i = 0; ; i++) {
		if (at < operations[i].weight)
			return &operations[i];
		at -= operations[i].weight;
	}
}

static void run_ops(struct space *s, unsigned int nr)
{
	for (unsigned int i = 0; i < nr; i++) {
		/* There is not so much memory that children might have gigabytes of their own. */
		const struct operation *operation = opt.gigabytes && !s->depth && one_in(s, 16) ?
						    &gigabyte : pick_operation(s);

		s->op++;
		if (operation->forks && !opt.fork)
			continue;
		s->op_name = operation->name;
		operation->run(s);
		if (i % SYNC_EVERY == SYNC_EVERY - 1 || s->op >= opt.sync_from) {
			s->op_name = "look at everything";
			verify_all(s, 97);
		}
	}
	s->op_name = "end";
}

/* Everything is given back; nothing of it may be left. */
static void tear_down(struct space *s)
{
	s->op_name = "tear-down";
	if (munmap(s->arena.base, opt.gigabytes ? GIGABYTE : s->arena.nr * PAGE))
		die(s, "munmap: %s", errno_text(errno));
	for (unsigned int i = 0; i < NR_FLOATS; i++) {
		struct region *f = &s->floats[i];

		if (f->nr && munmap(f->base, f->nr * PAGE))
			die(s, "munmap: %s", errno_text(errno));
	}
}

static void *thread_main(void *arg)
{
	struct space *s = arg;

	self = s;
	run_ops(s, opt.ops);
	reap_all(s);
	s->op_name = "end";
	verify_all(s, 1);
	tear_down(s);
	log_flush(s);
	return NULL;
}

static void *ticker_main(void *arg)
{
	(void)arg;
	while (!atomic_load(&ticker.stop)) {
		uint64_t n = atomic_load(ticker.first) + 1;

		atomic_store(ticker.first, n);
		atomic_store(ticker.second, n);
	}
	return NULL;
}

static char *arena_base = (char *)ARENA_BASE;

static void region_init(struct region *r, char name, struct page *pages, unsigned int max)
{
	memset(pages, 0, max * sizeof(*pages));
	*r = (struct region){ .name = name, .pages = pages, .max = max };
}

static void space_init(struct space *s, unsigned int index)
{
	struct page *pages = s->pages;

	s->rng = (opt.seed + 1) * 0x9e3779b97f4a7c15ULL ^ (index + 1) * 0xd1342543de82ef95ULL;
	s->rng |= 1;
	s->gen = 0;
	s->op = 0;
	s->depth = 0;
	s->nr_forks = 0;
	s->nr_kids = 0;
	s->silent = false;
	s->op_name = "start";
	s->has_heap = index == 0;
	snprintf(s->path, sizeof(s->path), "%u", index);
	region_init(&s->arena, 'a', pages, ARENA_PAGES);
	s->arena.base = arena_base + index * (opt.gigabytes ? GIGABYTE : ARENA_PAGES * PAGE);
	s->arena.nr = ARENA_PAGES;
	pages += ARENA_PAGES;
	for (unsigned int i = 0; i < NR_FLOATS; i++) {
		region_init(&s->floats[i], (char)('A' + i), pages, FLOAT_PAGES);
		pages += FLOAT_PAGES;
	}
	region_init(&s->heap, 'h', pages, HEAP_PAGES);
	log_open(s);
}

/* After the threads were made: the library may have used the heap for them. */
static void heap_init(struct space *s, char *base)
{
	s->heap.base = base;
	if ((char *)syscall(SYS_brk, base) != base)
		die(s, "the heap cannot start at %p", base);
}

static pthread_barrier_t start_line;

static void *thread_start(void *arg)
{
	pthread_barrier_wait(&start_line);
	return thread_main(arg);
}

static void run_seed(char *heap_base)
{
	pthread_t threads[MAX_THREADS], tick;
	bool with_ticker = opt.threads > 1;

	if (opt.region)
		arena_base = (char *)((syscall(SYS_brk, 0) + ARENA_ABOVE) & -(SLOT_PAGES * PAGE));
	for (unsigned int i = 0; i < opt.threads; i++)
		space_init(&spaces[i], i);
	self = &spaces[0];
	pthread_barrier_init(&start_line, NULL, opt.threads);
	if (with_ticker) {
		char *pair = mmap(NULL, 2 * SLOT_PAGES * PAGE, RW, ANON_FLAGS, -1, 0);

		if (pair == MAP_FAILED)
			die(self, "mmap: %s", errno_text(errno));
		ticker.second = (void *)pair;
		ticker.first = (void *)(pair + SLOT_PAGES * PAGE);
		ticker.stop = false;
		if (pthread_create(&tick, NULL, ticker_main, NULL))
			die(self, "a thread cannot be made");
	}
	for (unsigned int i = 1; i < opt.threads; i++)
		if (pthread_create(&threads[i], NULL, thread_start, &spaces[i]))
			die(self, "a thread cannot be made");
	if (!heap_base)
		heap_base = (char *)(((uintptr_t)syscall(SYS_brk, 0) + PAGE - 1) & ~(PAGE - 1));
	heap_init(&spaces[0], heap_base);
	thread_start(&spaces[0]);
	for (unsigned int i = 1; i < opt.threads; i++)
		pthread_join(threads[i], NULL);
	if (with_ticker) {
		atomic_store(&ticker.stop, true);
		pthread_join(tick, NULL);
		munmap((void *)ticker.second, 2 * SLOT_PAGES * PAGE);
		ticker.first = NULL;
	}
	pthread_barrier_destroy(&start_line);
	syscall(SYS_brk, heap_base);
	for (unsigned int i = 0; i < opt.threads; i++)
		if (spaces[i].log_fd >= 0)
			close(spaces[i].log_fd);
}

/* ---- Start -------------------------------------------------------------------- */

static void fatal(const char *what)
{
	dprintf(2, "FAIL: %s: %s\n", what, errno_text(errno));
	_exit(1);
}

/* In a mapping of a file, which HPMMAP leaves to Linux. */
static void spaces_alloc(void)
{
	size_t size = opt.threads * sizeof(struct space);
	int fd = memfd_create("model", MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, (off_t)size))
		fatal("memfd");
	spaces = mmap(NULL, size, RW, MAP_PRIVATE, fd, 0);
	if (spaces == MAP_FAILED)
		fatal("mmap of the model");
	close(fd);
	for (unsigned int i = 0; i < opt.threads; i++)
		spaces[i].log_fd = -1;
}

static void test_file_make(void)
{
	static uint64_t words[WORDS];

	test_file = memfd_create("content", MFD_CLOEXEC);
	if (test_file < 0)
		fatal("memfd");
	for (unsigned int i = 0; i < FILE_PAGES; i++) {
		fill_words(words, file_tag(i));
		if (write(test_file, words, PAGE) != (ssize_t)PAGE)
			fatal("writing the test file");
	}
}

/* Whether memory is HPMMAP's has to be as the caller thinks. */
static void check_expectation(void)
{
	static char maps[65536];
	size_t len = 0;
	ssize_t n;
	void *p = mmap(NULL, PAGE, RW, ANON_FLAGS, -1, 0);
	char *line;
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	bool ours = false;

	if (p == MAP_FAILED || fd < 0)
		fatal("looking at /proc/self/maps");
	while (len < sizeof(maps) - 1 && (n = read(fd, maps + len, sizeof(maps) - 1 - len)) > 0)
		len += (size_t)n;
	close(fd);
	/* Shared, as no private mapping of Linux is; it may have been merged with a neighbour. */
	for (line = maps; line && !ours; line = strchr(line, '\n')) {
		unsigned long start, end;
		char perms[5];

		line += *line == '\n';
		ours = sscanf(line, "%lx-%lx %4s", &start, &end, perms) == 3 &&
		       (unsigned long)p - start < end - start && perms[3] == 's';
	}
	munmap(p, PAGE);
	if (strcmp(opt.expect, "registered") && strcmp(opt.expect, "native")) {
		dprintf(2, "space: --expect %s: it must be registered or native\n", opt.expect);
		_exit(2);
	}
	if (ours != !strcmp(opt.expect, "registered")) {
		dprintf(2, "FAIL: the process is %sregistered\n", ours ? "" : "not ");
		_exit(1);
	}
}

static void usage(void)
{
	dprintf(2, "usage: space [--seed N] [--ops N] [--threads N] [--seconds N] [--log DIR]\n"
		   "             [--expect registered|native] [--scarce] [--no-fork] [--no-wipe]\n"
		   "             [--heap-protect] [--gigabytes] [--region] [--trace] [--look-from OP]\n");
	_exit(2);
}

static void parse(int argc, char **argv)
{
	static const struct option options[] = {
		{ "seed", required_argument, NULL, 's' },
		{ "ops", required_argument, NULL, 'o' },
		{ "threads", required_argument, NULL, 't' },
		{ "seconds", required_argument, NULL, 'd' },
		{ "log", required_argument, NULL, 'l' },
		{ "expect", required_argument, NULL, 'e' },
		{ "look-from", required_argument, NULL, 'L' },
		{ "scarce", no_argument, NULL, 'c' },
		{ "no-fork", no_argument, NULL, 'f' },
		{ "no-wipe", no_argument, NULL, 'w' },
		{ "heap-protect", no_argument, NULL, 'H' },
		{ "gigabytes", no_argument, NULL, 'G' },
		{ "region", no_argument, NULL, 'R' },
		{ "trace", no_argument, NULL, 'T' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	opt.sync_from = UINT_MAX;
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 's': opt.seed = number(optarg); break;
		case 'o': opt.ops = (unsigned int)number(optarg); break;
		case 't': opt.threads = (unsigned int)number(optarg); break;
		case 'd': opt.seconds = (unsigned int)number(optarg); break;
		case 'l': opt.log_dir = optarg; break;
		case 'e': opt.expect = optarg; break;
		case 'L': opt.sync_from = (unsigned int)number(optarg); break;
		case 'c': opt.scarce = true; break;
		case 'f': opt.fork = false; break;
		case 'w': opt.wipe = false; break;
		case 'H': opt.heap_protect = true; break;
		case 'G': opt.gigabytes = true; break;
		case 'R': opt.region = true; break;
		case 'T': opt.trace = true; break;
		default: usage();
		}
	}
	if (optind != argc)
		usage();
	if (opt.threads < 1 || opt.threads > MAX_THREADS) {
		dprintf(2, "space: --threads %u: from 1 to %d\n", opt.threads, MAX_THREADS);
		_exit(2);
	}
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_flags = SA_SIGINFO | SA_NODEFER };
	time_t end;
	char *heap_base = NULL;
	unsigned int rounds = 0;

	parse(argc, argv);
	action.sa_sigaction = signal_handler;
	sigaction(SIGSEGV, &action, NULL);
	sigaction(SIGBUS, &action, NULL);
	sigaction(SIGILL, &action, NULL);
	if (opt.expect)
		check_expectation();
	spaces_alloc();
	test_file_make();
	end = time(NULL) + (time_t)opt.seconds;
	do {
		dprintf(1, "seed %llu\n", (unsigned long long)opt.seed);
		run_seed(heap_base);
		heap_base = spaces[0].heap.base;
		opt.seed++;
		rounds++;
	} while (opt.seconds && time(NULL) < end);
	dprintf(1, "HPMMAP-FUZZ-PASS space: %u seeds of %u operations\n", rounds, opt.ops);
	return 0;
}
