// SPDX-License-Identifier: GPL-2.0
/*
 * shared_errors FILE FRAMES: memory errors in a file that two processes have mapped. Writes
 * the page frames that it has made bad to FRAMES. Prints the errors that it finds.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE		4096UL
#define BYTES		(8UL << 20)
#define BLOCK_PAGES	512UL
/* How many are told of an error; the kernel log names 16. */
#define TOLD		40

static int fd;
static unsigned char *memory;
static FILE *frames;
static unsigned int wrong;

#define WRONG(...) do { printf("WRONG, line %d: ", __LINE__); printf(__VA_ARGS__); puts(""); wrong++; } while (0)
#define EXPECT(cond) do { if (!(cond)) WRONG("not true: %s (%s)", #cond, strerror(errno)); } while (0)

static sigjmp_buf back;
static volatile siginfo_t info;

static void on_bus(int sig, siginfo_t *got, void *context)
{
	(void)sig;
	(void)context;
	info = *got;
	siglongjmp(back, 1);
}

/* Does a touch end as that of a page with a memory error? */
static bool is_bad(volatile unsigned char *p, bool write)
{
	memset((void *)&info, 0, sizeof(info));
	if (sigsetjmp(back, 1) == 0) {
		if (write)
			*p = 1;
		else
			(void)*p;
		return false;
	}
	if (info.si_code != BUS_MCEERR_AR || info.si_addr != p || info.si_addr_lsb != 12)
		WRONG("the signal has code %d, address %p for %p, lsb %d", info.si_code, info.si_addr, (void *)p, info.si_addr_lsb);
	return true;
}

static unsigned char pattern(size_t page)
{
	return (unsigned char)(page * 7 + 1);
}

static void fill(void)
{
	for (size_t page = 0; page < BYTES / PAGE; page++)
		memset(memory + page * PAGE, pattern(page), PAGE);
}

static unsigned long long frame_at(const unsigned char *p)
{
	int map = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	uint64_t entry;

	(void)*(volatile const unsigned char *)p;
	if (map < 0 || pread(map, &entry, 8, (off_t)((uintptr_t)p / PAGE) * 8) != 8 || !(entry >> 63))
		err(1, "pagemap");
	close(map);
	return entry & ((1ULL << 55) - 1);
}

/* The page frame of a page, which is about to be spoilt. */
static unsigned long long frame_of(size_t page)
{
	unsigned long long entry = frame_at(memory + page * PAGE);

	fprintf(frames, "%llu\n", (unsigned long long)entry);
	fflush(frames);
	return entry;
}

static void spoil(size_t page)
{
	frame_of(page);
	/* Linux from 6.11 on tells the caller at once. */
	if (sigsetjmp(back, 1) == 0 && madvise(memory + page * PAGE, PAGE, MADV_HWPOISON) != 0)
		err(1, "MADV_HWPOISON");
}

static void offline(unsigned long long frame)
{
	int to = open("/sys/devices/system/memory/hard_offline_page", O_WRONLY | O_CLOEXEC);

	if (to < 0 || dprintf(to, "0x%llx", frame * PAGE) < 0)
		err(1, "hard_offline_page");
	close(to);
}

/* Nobody is told of it who has not asked. */
static void spoil_quietly(size_t page)
{
	offline(frame_of(page));
}

/* All but the block of a page have what was written there. */
static void check_others(size_t bad)
{
	for (size_t page = 0; page < BYTES / PAGE; page++)
		if (page / BLOCK_PAGES != bad / BLOCK_PAGES && (memory[page * PAGE] != pattern(page) || memory[page * PAGE + PAGE - 1] != pattern(page)))
			WRONG("page %zu has %d, not %d", page, memory[page * PAGE], pattern(page));
}

static void in_child(void (*fn)(size_t page), size_t page)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		wrong = 0;
		fn(page);
		fflush(stdout);
		_exit(wrong != 0);
	}
	if (waitpid(pid, &status, 0) != pid || status)
		WRONG("the child ends with status %#x", (unsigned int)status);
}

static void child_sees(size_t page)
{
	unsigned char *again = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	unsigned char *copy = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);

	EXPECT(is_bad(memory + page * PAGE, false));
	EXPECT(is_bad(again + page * PAGE, true));
	EXPECT(is_bad(copy + page * PAGE, false));
	EXPECT(is_bad(copy + page * PAGE, true));
	/* So is the rest of the block, and no more. */
	EXPECT(is_bad(again + (page + 1) * PAGE, false));
	EXPECT(is_bad(copy + (page - 1) * PAGE, true));
	EXPECT(!is_bad(again + (page - BLOCK_PAGES) * PAGE, false));
	EXPECT(!is_bad(copy + (page + BLOCK_PAGES) * PAGE, true));
}

static void read_and_written(size_t page)
{
	unsigned char *to = malloc(8 * PAGE);
	struct iovec local = { to, PAGE }, remote = { memory + page * PAGE, PAGE };
	off_t at = (off_t)(page * PAGE), block = (off_t)(page / BLOCK_PAGES * BLOCK_PAGES * PAGE);
	int null = open("/dev/zero", O_RDWR | O_CLOEXEC), pipes[2];
	ssize_t n;

	EXPECT(pread(fd, to, PAGE, at) == -1 && errno == EIO);
	n = pread(fd, to, 4 * PAGE, block - (off_t)(2 * PAGE));
	EXPECT(n == (ssize_t)(2 * PAGE));
	EXPECT(pwrite(fd, to, 10, at + 5) == -1 && errno == EIO);
	n = pwrite(fd, memory + (size_t)block - 2 * PAGE, PAGE, block - (off_t)(2 * PAGE));
	EXPECT(n == (ssize_t)PAGE);
	EXPECT(process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == -1 && errno == EFAULT);
	EXPECT(read(null, memory + page * PAGE, PAGE) == -1 && errno == EFAULT);
	EXPECT(pipe(pipes) == 0);
	EXPECT(write(pipes[1], memory + page * PAGE, 10) == -1 && errno == EFAULT);
	close(pipes[0]);
	close(pipes[1]);
	close(null);
	free(to);
}

/* Has mapped the file twice, and wants to know at once: of either place. */
static void wants_to_know(size_t page, int ready)
{
	unsigned char *again = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);
	struct timespec limit = { .tv_sec = 100 };
	siginfo_t got = { 0 };
	sigset_t bus;

	prctl(PR_SET_NAME, "told");
	EXPECT(again != MAP_FAILED);
	EXPECT(prctl(PR_MCE_KILL, PR_MCE_KILL_SET, PR_MCE_KILL_EARLY, 0, 0) == 0);
	sigemptyset(&bus);
	sigaddset(&bus, SIGBUS);
	sigprocmask(SIG_BLOCK, &bus, NULL);
	EXPECT(write(ready, "r", 1) == 1);
	EXPECT(sigtimedwait(&bus, &got, &limit) == SIGBUS);
	if (got.si_code != BUS_MCEERR_AO || got.si_addr_lsb != 21 ||
	    (got.si_addr != memory + page * PAGE && got.si_addr != again + page * PAGE))
		WRONG("the signal has code %d, address %p, lsb %d", got.si_code, got.si_addr, got.si_addr_lsb);
}

/* Many who have it are all told, and the kernel log names some. */
static void many_are_told(size_t page)
{
	pid_t children[TOLD];
	int pipes[2], status;
	char c;

	if (pipe(pipes))
		err(1, "pipe");
	fflush(stdout);
	for (size_t i = 0; i < TOLD; i++) {
		children[i] = fork();
		if (children[i] == 0) {
			wrong = 0;
			wants_to_know(page, pipes[1]);
			fflush(stdout);
			_exit(wrong != 0);
		}
	}
	for (size_t i = 0; i < TOLD; i++)
		if (read(pipes[0], &c, 1) != 1)
			err(1, "pipe");
	spoil_quietly(page);
	for (size_t i = 0; i < TOLD; i++)
		if (waitpid(children[i], &status, 0) != children[i] || status)
			WRONG("child %zu ends with status %#x", i, (unsigned int)status);
	close(pipes[0]);
	close(pipes[1]);
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_sigaction = on_bus, .sa_flags = SA_SIGINFO };
	size_t bad = BLOCK_PAGES + 77;

	if (argc != 3)
		errx(2, "usage: shared_errors FILE FRAMES");
	frames = fopen(argv[2], "we");
	fd = open(argv[1], O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (!frames || fd < 0 || ftruncate(fd, BYTES))
		err(1, "%s", argv[1]);
	memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		err(1, "mmap");
	sigaction(SIGBUS, &action, NULL);

	/* One page of it, for everybody. */
	fill();
	spoil(bad);
	EXPECT(is_bad(memory + bad * PAGE, false));
	EXPECT(is_bad(memory + bad * PAGE + 9, true));
	in_child(child_sees, bad);
	in_child(read_and_written, bad);
	check_others(bad);

	/* It is lost until the file gives it up. */
	EXPECT(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(bad * PAGE), PAGE) == -1 && errno == EIO);
	EXPECT(is_bad(memory + bad * PAGE, false));

	/* What is cut and grows again is good. */
	spoil(5);
	spoil(3 * BLOCK_PAGES);
	EXPECT(is_bad(memory + 5 * PAGE, false));
	EXPECT(ftruncate(fd, 0) == 0);
	EXPECT(ftruncate(fd, BYTES) == 0);
	for (size_t at = 0; at < BYTES; at += 512)
		if (memory[at])
			WRONG("not zero at %zu", at);

	/* The last page of a file that ends within it. */
	fill();
	EXPECT(ftruncate(fd, (off_t)(BYTES - 100)) == 0);
	spoil(BYTES / PAGE - 1);
	EXPECT(is_bad(memory + BYTES - PAGE, false));
	EXPECT(ftruncate(fd, (off_t)BYTES) == 0);
	EXPECT(is_bad(memory + BYTES - PAGE, false));
	check_others(BYTES / PAGE - 1);
	EXPECT(ftruncate(fd, (off_t)(BYTES - BLOCK_PAGES * PAGE)) == 0);
	EXPECT(ftruncate(fd, (off_t)BYTES) == 0);
	EXPECT(!is_bad(memory + BYTES - PAGE, true) && memory[BYTES - 1] == 0);

	fill();
	many_are_told(3 * BLOCK_PAGES - 1);

	/* And the file goes with an error in it. */
	spoil(BLOCK_PAGES + 1);
	EXPECT(is_bad(memory + (BLOCK_PAGES + 1) * PAGE, true));
	if (unlink(argv[1]))
		err(1, "unlink");
	printf("%u wrong\n", wrong);
	return wrong != 0;
}
