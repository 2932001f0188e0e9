// SPDX-License-Identifier: GPL-2.0
/*
 * Does a child that has become another user see what its parent writes after the fork?
 *
 *   leak_child TRIALS
 *
 * A block that both share since the fork is to leave the child's store while the child's page
 * table still maps it: the child's munmap stops when Linux has unmapped the block, another
 * mapping of the child grows over it by int $0x80 and maps it again, then the module takes it
 * back. If it stays mapped, the parent takes it for its own and writes a secret in place.
 *
 * Status 1 if the child has seen or changed what is the parent's. Prints the number of trials,
 * of those in which the child's mapping grew, and of the slots that leaked.
 */
#include <stdio.h>
#include <sys/wait.h>

#include "leak.h"

#define SLOTS	4
#define LEN	(SLOTS * SLOT)
#define NOBODY	65534

/* Steps that parent and child take in turn, by a file that both have mapped. */
enum step { BEGUN, GONE, WRITTEN, READ };

struct board {
	volatile int step;
	volatile int error;	/* why the mapping does not grow */
	volatile unsigned int seen, changed;
};

static struct board *board;

static void wait_for(enum step step)
{
	double end = now() + PATIENCE_MS / 1000.0;

	while (board->step != (int)step) {
		if (now() > end)
			errx(2, "the other process does not come to step %d", step);
		usleep(500);
	}
}

static volatile uint64_t *word(unsigned int slot, unsigned int page)
{
	return (volatile uint64_t *)(TARGET + slot * SLOT + page * PAGE);
}

static uint64_t secret(unsigned int trial)
{
	return 0x5ec2e70000000000ULL | trial;
}

static uint64_t forged(unsigned int trial)
{
	return 0xf026ed0000000000ULL | trial;
}

static void child(unsigned int trial, bool late)
{
	struct slow_munmap s = { .len = LEN };
	struct grower g = { .len = LEN };
	uint64_t sum = 0;

	if (syscall(SYS_setresgid, NOBODY, NOBODY, NOBODY) || syscall(SYS_setresuid, NOBODY, NOBODY, NOBODY)) {
		/* Of an ordinary user it stays the same one. */
		if (errno != EPERM)
			err(2, "setresuid");
	}
	grower_start(&g, NULL);
	slow_munmap_begin(&s, NULL);
	board->error = grower_grow(&g);
	if (!board->error)
		for (unsigned int i = 0; i < SLOTS; i++)
			sum += *word(i, 1);
	slow_munmap_go_on(&s);
	slow_munmap_end(&s);
	grower_end(&g);
	board->step = GONE;
	wait_for(WRITTEN);
	if (!board->error) {
		for (unsigned int i = 0; i < SLOTS; i++)
			board->seen += *word(i, 1) == secret(trial);
		if (mprotect(TARGET, LEN, PROT_READ) == 0 && mprotect(TARGET, LEN, RW) == 0)
			for (unsigned int i = 0; i < SLOTS; i++)
				*word(i, 1) = forged(trial);
		/* Also what was not to be seen before. */
		for (unsigned int i = 0; late && i < SLOTS; i++)
			board->seen += *word(i, 3) == secret(trial);
	}
	board->step = READ;
	_exit(0);
}

static void trial(unsigned int n)
{
	int status;
	pid_t pid;

	map_ours(LOW, SLOT);
	map_ours(TARGET, LEN);
	for (unsigned int i = 0; i < SLOTS; i++)
		for (unsigned int page = 0; page < 512; page++)
			*word(i, page) = n;
	board->step = BEGUN;
	pid = fork();
	if (pid < 0)
		err(2, "fork");
	if (!pid)
		child(n, n % 2);
	wait_for(GONE);
	for (unsigned int i = 0; i < SLOTS; i++)
		*word(i, 1) = *word(i, 3) = secret(n);
	board->step = WRITTEN;
	wait_for(READ);
	if (waitpid(pid, &status, 0) != pid || status)
		errx(2, "the child has ended with status %#x", status);
	for (unsigned int i = 0; i < SLOTS; i++)
		board->changed += *word(i, 1) != secret(n);
	if (munmap(LOW, SLOT + LEN))
		err(2, "munmap");
}

int main(int argc, char **argv)
{
	unsigned int trials = argc == 2 ? (unsigned int)atoi(argv[1]) : 0, grown = 0;
	int fd = memfd_create("board", MFD_CLOEXEC);

	if (!trials)
		errx(2, "usage: leak_child TRIALS");
	if (fd < 0 || ftruncate(fd, PAGE))
		err(2, "memfd_create");
	board = mmap(NULL, PAGE, RW, MAP_SHARED, fd, 0);
	if (board == MAP_FAILED)
		err(2, "mmap");
	for (unsigned int n = 1; n <= trials; n++) {
		trial(n);
		grown += !board->error;
	}
	printf("leak_child: %u trials of %d slots, %u grew%s%s: %u slots seen, %u changed by the child\n", trials, SLOTS,
	       grown, board->error ? ", the last refused: " : "", board->error ? strerror(board->error) : "", board->seen,
	       board->changed);
	return board->seen || board->changed;
}
