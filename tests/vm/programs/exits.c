// SPDX-License-Identifier: GPL-2.0
/*
 * Processes whose end could make other processes wait; for the scenario exits.
 *
 *   exits fill MB		fill so much memory, say "ready", and wait
 *   exits pin FIFO BLOCKS	leave a page of each of so many blocks in a pipe
 *   exits relatives ROUNDS	children end while their parent keeps its
 *				address space locked; how many do
 *   exits outlive		a process that shares the address space outlives
 *				the one that made it; says its PID
 *   exits storm CHILDREN	forks so often while nothing else runs on its CPU
 */
#include <err.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE	4096UL
#define BLOCK	(2UL << 20)

/* So many mappings that their duplication takes long beside all else. */
#define MAPPINGS 30000

static char *map(size_t bytes)
{
	char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		err(1, "mmap");
	return p;
}

static char *map_filled(size_t bytes)
{
	char *p = map(bytes);

	memset(p, 0x5a, bytes);
	return p;
}

static void say(const char *word)
{
	puts(word);
	fflush(stdout);
}

static void fill(size_t bytes)
{
	map_filled(bytes);
	say("ready");
	for (;;)
		pause();
}

static void pin(const char *fifo, unsigned int blocks)
{
	char *p = map_filled(blocks * BLOCK);
	int fd = open(fifo, O_RDWR);

	if (fd < 0 || fcntl(fd, F_SETPIPE_SZ, blocks * PAGE) < 0)
		err(1, "%s", fifo);
	for (unsigned int i = 0; i < blocks; i++) {
		struct iovec page = { p + i * BLOCK, PAGE };

		if (vmsplice(fd, &page, 1, SPLICE_F_NONBLOCK) != PAGE)
			err(1, "vmsplice of page %u", i);
	}
}

/* The relatives: */

static bool forking, done;
static unsigned int nr_forks;

/* Each fork holds mmap_lock of this process for as long as it copies mappings. */
static void *fork_on(void *arg)
{
	(void)arg;
	while (!__atomic_load_n(&done, __ATOMIC_SEQ_CST)) {
		pid_t pid;

		__atomic_add_fetch(&nr_forks, 1, __ATOMIC_SEQ_CST);
		__atomic_store_n(&forking, true, __ATOMIC_SEQ_CST);
		pid = fork();
		if (!pid)
			_exit(0);
		__atomic_store_n(&forking, false, __ATOMIC_SEQ_CST);
		if (pid < 0)
			err(1, "fork");
		waitpid(pid, NULL, 0);
	}
	return NULL;
}

/* Pages in turn readable or not, so that none is merged with the next. */
static void map_many(void)
{
	char *p = mmap(NULL, MAPPINGS * PAGE, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		err(1, "mmap");
	for (unsigned int i = 0; i < MAPPINGS; i += 2)
		if (mprotect(p + i * PAGE, PAGE, PROT_READ))
			err(1, "mprotect");
}

struct child {
	pid_t pid;
	int go;
	char *shared;
};

/* A block that this process shares with one child, and with no other. */
static struct child child_start(void)
{
	struct child child = { .shared = map_filled(BLOCK) };
	int fds[2];

	if (pipe2(fds, O_CLOEXEC))
		err(1, "pipe");
	child.go = fds[1];
	child.pid = fork();
	if (child.pid < 0)
		err(1, "fork");
	if (!child.pid) {
		char c;

		close(fds[1]);
		_exit(read(fds[0], &c, 1) != 1);
	}
	close(fds[0]);
	if (madvise(child.shared, BLOCK, MADV_DONTFORK))
		err(1, "madvise");
	return child;
}

/* Whether a child is gone before the fork is done at whose beginning it is told to. */
static bool child_ends_meanwhile(struct child child)
{
	unsigned int nr;
	int status;

	while (!__atomic_load_n(&forking, __ATOMIC_SEQ_CST))
		sched_yield();
	/* It is past its beginning. */
	usleep(5000);
	nr = __atomic_load_n(&nr_forks, __ATOMIC_SEQ_CST);
	if (write(child.go, "", 1) != 1 || waitpid(child.pid, &status, 0) != child.pid || status)
		errx(1, "a child ended with status %#x", status);
	return __atomic_load_n(&forking, __ATOMIC_SEQ_CST) &&
	       __atomic_load_n(&nr_forks, __ATOMIC_SEQ_CST) == nr;
}

/*
 * In a thread: the C library writes to its control block while it waits, which a fork
 * has copied long before it is done where it lies below the many mappings, as that of
 * the first thread does.
 */
static void *relatives(void *arg)
{
	const unsigned int rounds = *(unsigned int *)arg;
	struct child children[rounds];
	unsigned int meanwhile = 0;
	pthread_t thread;

	for (unsigned int i = 0; i < rounds; i++)
		children[i] = child_start();
	map_many();
	if (pthread_create(&thread, NULL, fork_on, NULL))
		errx(1, "pthread_create");
	for (unsigned int i = 0; i < rounds; i++)
		meanwhile += child_ends_meanwhile(children[i]);
	__atomic_store_n(&done, true, __ATOMIC_SEQ_CST);
	pthread_join(thread, NULL);
	for (unsigned int i = 0; i < rounds; i++)
		for (unsigned long at = 0; at < BLOCK; at += PAGE)
			if (children[i].shared[at]++ != 0x5a)
				errx(1, "wrong contents");
	printf("%u\n", meanwhile);
	return NULL;
}

static void relatives_in_a_thread(unsigned int rounds)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, relatives, &rounds) || pthread_join(thread, NULL))
		errx(1, "pthread_create");
}

static int outliver(void *arg)
{
	(void)arg;
	/* Who reads what the first one says waits for the end of it. */
	close(STDOUT_FILENO);
	for (;;)
		pause();
	return 0;
}

static void outlive(void)
{
	char *stack = map_filled(BLOCK);
	pid_t pid = clone(outliver, stack + BLOCK, CLONE_VM, NULL);

	if (pid < 0)
		err(1, "clone");
	printf("%d\n", pid);
	fflush(stdout);
}

static int leaver(void *arg)
{
	(void)arg;
	_exit(0);
}

/* The kernel's workers, which are ordinary threads, wait until all children are there. */
static void storm(unsigned int children)
{
	const size_t stack_bytes = 2 * PAGE;
	char *stacks = map_filled(children * stack_bytes);
	struct sched_param priority = { .sched_priority = 10 };
	cpu_set_t cpu;

	CPU_ZERO(&cpu);
	CPU_SET(0, &cpu);
	if (sched_setaffinity(0, sizeof(cpu), &cpu) || sched_setscheduler(0, SCHED_FIFO, &priority))
		err(1, "a CPU for itself");
	for (unsigned int i = 1; i <= children; i++)
		if (clone(leaver, stacks + i * stack_bytes, CLONE_VM | SIGCHLD, NULL) < 0)
			err(1, "clone");
	while (wait(NULL) > 0)
		;
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "fill"))
		fill(strtoul(argv[2], NULL, 0) << 20);
	else if (argc == 4 && !strcmp(argv[1], "pin"))
		pin(argv[2], strtoul(argv[3], NULL, 0));
	else if (argc == 3 && !strcmp(argv[1], "relatives"))
		relatives_in_a_thread(strtoul(argv[2], NULL, 0));
	else if (argc == 2 && !strcmp(argv[1], "outlive"))
		outlive();
	else if (argc == 3 && !strcmp(argv[1], "storm"))
		storm(strtoul(argv[2], NULL, 0));
	else
		errx(2, "usage: exits fill MB|pin FIFO BLOCKS|relatives ROUNDS|outlive|storm CHILDREN");
	return 0;
}
