// SPDX-License-Identifier: GPL-2.0
/*
 * Memory errors as a program sees them. Needs root.
 *
 *   memory_error same LOG		what is the same natively and registered
 *   memory_error pool LOG		what only memory of the pools has: an error takes all 2 MB
 *   memory_error frames BYTES		print the page frames of so much memory
 *   memory_error avoid BYTES LOG	fail if so much memory has a page of LOG
 *   memory_error untouched BYTES	map so much, and touch it after a line of input
 *
 * LOG is a list of page frames: those that are made bad are added to it.
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
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_SOFT_OFFLINE
#define MADV_SOFT_OFFLINE 101
#endif
#ifndef MAP_UNINITIALIZED
#define MAP_UNINITIALIZED 0x4000000
#endif

#define PAGE	4096UL
#define LARGE	(2UL << 20)
#define PAGES	(LARGE / PAGE)
/* The page that becomes bad, and where it is touched. */
#define BAD	5UL
#define OFFSET	72UL
/* How many share a block; the kernel log names 16. */
#define SHARERS	30

static FILE *bad_log;
static int failures;

static sigjmp_buf jump;
static volatile sig_atomic_t armed;
static siginfo_t caught;

static void on_signal(int number, siginfo_t *info, void *context)
{
	(void)number;
	(void)context;
	caught = *info;
	if (armed)
		siglongjmp(jump, 1);
}

/* "none", or what the signal told; @base is where addresses are counted from. */
static const char *signal_text(const char *base)
{
	static char text[96];

	if (!caught.si_signo)
		return "none";
	snprintf(text, sizeof(text), "%s %s at %ld lsb %d", strsignal(caught.si_signo),
		 caught.si_code == BUS_MCEERR_AR ? "AR" : caught.si_code == BUS_MCEERR_AO ? "AO" : "?",
		 (long)((char *)caught.si_addr - base), caught.si_addr_lsb);
	return text;
}

static const char *touch(const char *base, size_t offset, bool write)
{
	volatile char *p = (volatile char *)base + offset;

	memset(&caught, 0, sizeof(caught));
	armed = 1;
	if (!sigsetjmp(jump, 1)) {
		if (write)
			*p = 1;
		else
			(void)*p;
	}
	armed = 0;
	return signal_text(base);
}

static void expect(bool right, const char *what)
{
	if (!right) {
		printf("WRONG: %s\n", what);
		failures++;
	}
}

static uint64_t frame_of(const void *address)
{
	/* Each time: a child's is not its parent's. */
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	uint64_t entry;

	if (pread(fd, &entry, sizeof(entry), (uintptr_t)address / PAGE * sizeof(entry)) != sizeof(entry))
		err(1, "/proc/self/pagemap");
	close(fd);
	return entry >> 63 ? entry & ((1ULL << 55) - 1) : 0;
}

static void note(uint64_t frame)
{
	fprintf(bad_log, "%llu\n", (unsigned long long)frame);
	fflush(bad_log);
}

/* Writes an address to one of Linux's files; returns 0 or an errno. */
static int tell(const char *file, uint64_t frame)
{
	char path[64], text[32];
	int fd, ret = 0;

	snprintf(path, sizeof(path), "/sys/devices/system/memory/%s", file);
	snprintf(text, sizeof(text), "0x%llx", (unsigned long long)frame * PAGE);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		err(1, "%s", path);
	if (write(fd, text, strlen(text)) < 0)
		ret = errno;
	close(fd);
	return ret;
}

static int destroy(const void *address)
{
	uint64_t frame = frame_of(address);

	if (!frame)
		errx(1, "the page is not there");
	note(frame);
	return tell("hard_offline_page", frame);
}

static char *map_at(char *address, size_t bytes, int flags)
{
	char *p = mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);

	if (p == MAP_FAILED)
		err(1, "mmap");
	return p;
}

/* A large page of its own, with contents. */
static char *fresh(void)
{
	char *p = map_at(NULL, 2 * LARGE, 0);

	p = (char *)(((uintptr_t)p + LARGE - 1) & ~(LARGE - 1));
	madvise(p, LARGE, MADV_HUGEPAGE);
	for (size_t i = 0; i < PAGES; i++)
		memset(p + i * PAGE, (int)(i * 7 + 1), PAGE);
	return p;
}

static bool is_lost(const char *p, size_t offset)
{
	return !strncmp(touch(p, offset, false), "Bus error AR", 12);
}

/* It has the contents of fresh(). */
static void expect_contents(const char *p, const char *what)
{
	for (size_t i = 0; i < PAGES; i++)
		if (p[i * PAGE] != (char)(i * 7 + 1) || p[i * PAGE + PAGE - 1] != (char)(i * 7 + 1))
			return expect(false, what);
}

/* Nothing of it can be touched. */
static void expect_lost(const char *p, const char *what)
{
	for (size_t i = 0; i < PAGES; i += 73)
		expect(is_lost(p, i * PAGE + OFFSET), what);
}

static void case_touch(void)
{
	char *p = fresh();
	uint64_t frame = frame_of(p + BAD * PAGE);

	printf("touch: answer %d\n", destroy(p + BAD * PAGE));
	printf("touch: read: %s\n", touch(p, BAD * PAGE + OFFSET, false));
	printf("touch: again: %s\n", touch(p, BAD * PAGE + OFFSET, false));
	printf("touch: write: %s\n", touch(p, BAD * PAGE + 8, true));
	printf("touch: it once more: answer %d\n", tell("hard_offline_page", frame));
	munmap(p, LARGE);
}

static void case_advice(void)
{
	char *p = fresh();
	int ret;

	note(frame_of(p + BAD * PAGE));
	memset(&caught, 0, sizeof(caught));
	ret = madvise(p + BAD * PAGE, PAGE, MADV_HWPOISON);
	printf("advice: answer %d errno %d\n", ret, ret ? errno : 0);
	printf("advice: read: %s\n", touch(p, BAD * PAGE + OFFSET, false));
	munmap(p, LARGE);
}

static void case_early(void)
{
	char *p = fresh();

	if (prctl(PR_MCE_KILL, PR_MCE_KILL_SET, PR_MCE_KILL_EARLY, 0, 0))
		err(1, "PR_MCE_KILL");
	memset(&caught, 0, sizeof(caught));
	printf("early: answer %d\n", destroy(p + BAD * PAGE));
	/* Of a block of the pools the signal says that 2 MB are lost. */
	expect(caught.si_addr_lsb == 12 || caught.si_addr_lsb == 21, "early: lsb");
	caught.si_addr_lsb = 0;
	printf("early: %s\n", signal_text(p));
	prctl(PR_MCE_KILL, PR_MCE_KILL_CLEAR, 0, 0, 0);
	munmap(p, LARGE);
}

static void case_kernel(void)
{
	char *p = fresh(), buf[16];
	struct iovec to = { buf, sizeof(buf) }, from = { p + BAD * PAGE, sizeof(buf) };
	int ends[2], fd;
	ssize_t n;

	destroy(p + BAD * PAGE);
	if (pipe(ends))
		err(1, "pipe");
	n = write(ends[1], p + BAD * PAGE, 16);
	printf("kernel: write %zd errno %d\n", n, n < 0 ? errno : 0);
	n = process_vm_readv(getpid(), &to, 1, &from, 1, 0);
	printf("kernel: process_vm_readv %zd errno %d\n", n, n < 0 ? errno : 0);
	fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	n = pread(fd, buf, sizeof(buf), (off_t)(uintptr_t)(p + BAD * PAGE));
	printf("kernel: read of mem %zd errno %d\n", n, n < 0 ? errno : 0);
	n = pwrite(fd, buf, sizeof(buf), (off_t)(uintptr_t)(p + BAD * PAGE));
	printf("kernel: write of mem %zd errno %d\n", n, n < 0 ? errno : 0);
	close(fd);
	close(ends[0]);
	close(ends[1]);
	munmap(p, LARGE);
}

/* What loses its meaning as a whole is good again, however that comes about. */
static void case_discard(void)
{
	static const int flags[] = { 0, MAP_NORESERVE, MAP_UNINITIALIZED };
	char *p = fresh();

	destroy(p + BAD * PAGE);
	if (madvise(p, LARGE, MADV_DONTNEED))
		err(1, "MADV_DONTNEED");
	printf("discard: read: %s\n", touch(p, BAD * PAGE + OFFSET, false));
	expect(!p[BAD * PAGE + OFFSET], "discard: zero");
	printf("discard: write: %s\n", touch(p, BAD * PAGE, true));
	munmap(p, LARGE);

	for (size_t i = 0; i < 3; i++) {
		p = fresh();
		destroy(p + BAD * PAGE);
		map_at(p, LARGE, MAP_FIXED | flags[i]);
		printf("discard: mapped anew %zu: %s\n", i, touch(p, BAD * PAGE + OFFSET, true));
		expect(!p[0] && !p[BAD * PAGE] && p[BAD * PAGE + OFFSET] == 1, "discard: zero of a new mapping");
		munmap(p, LARGE);
	}
}

/* The child's answers come before the parent's. */
static void wait_for(pid_t child, const char *what)
{
	int status;

	if (waitpid(child, &status, 0) != child)
		err(1, "waitpid");
	expect(WIFEXITED(status) && !WEXITSTATUS(status), what);
}

static void case_fork(void)
{
	int to_child[2], to_parent[2];
	char *p = fresh(), c;
	pid_t child;

	if (pipe(to_child) || pipe(to_parent))
		err(1, "pipe");
	fflush(stdout);
	child = fork();
	if (child < 0)
		err(1, "fork");
	if (!child) {
		failures = 0;
		if (write(to_parent[1], "r", 1) != 1 || read(to_child[0], &c, 1) != 1)
			err(1, "pipe");
		printf("fork: child reads: %s\n", touch(p, BAD * PAGE + OFFSET, false));
		printf("fork: child writes: %s\n", touch(p, BAD * PAGE, true));
		fflush(stdout);
		_exit(!!failures);
	}
	/* Mapped for reading, as it is shared. */
	(void)*(volatile char *)(p + BAD * PAGE);
	if (read(to_parent[0], &c, 1) != 1)
		err(1, "pipe");
	printf("fork: answer %d\n", destroy(p + BAD * PAGE));
	fflush(stdout);
	if (write(to_child[1], "g", 1) != 1)
		err(1, "pipe");
	wait_for(child, "fork: child");
	printf("fork: parent reads: %s\n", touch(p, BAD * PAGE + OFFSET, false));

	/* A child of who has the bad page. */
	fflush(stdout);
	child = fork();
	if (!child) {
		printf("fork: second child reads: %s\n", touch(p, BAD * PAGE + OFFSET, false));
		fflush(stdout);
		_exit(0);
	}
	wait_for(child, "fork: second child");
	printf("fork: parent in the end: %s\n", touch(p, BAD * PAGE + OFFSET, false));
	munmap(p, LARGE);
	close(to_child[0]);
	close(to_child[1]);
	close(to_parent[0]);
	close(to_parent[1]);
}

static void case_soft(void)
{
	char *p = fresh();
	uint64_t frame = frame_of(p + BAD * PAGE);
	int ret;

	note(frame);
	memset(&caught, 0, sizeof(caught));
	ret = madvise(p + BAD * PAGE, PAGE, MADV_SOFT_OFFLINE);
	printf("soft: answer %d errno %d: %s\n", ret, ret ? errno : 0, signal_text(p));
	printf("soft: read: %s\n", touch(p, BAD * PAGE + OFFSET, false));
	expect_contents(p, "soft: contents");
	expect(frame_of(p + BAD * PAGE) != frame, "soft: another page");
	munmap(p, LARGE);
}

static int run_same(void)
{
	case_touch();
	case_advice();
	case_early();
	case_kernel();
	case_discard();
	case_fork();
	case_soft();
	printf("failures: %d\n", failures);
	return !!failures;
}

/* All of a block is lost, for the kernel, too, and where its contents were copied. */
static void pool_whole(void)
{
	char *p = fresh(), *q, buf[16];
	int fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
	pid_t child;

	expect(!destroy(p + BAD * PAGE), "whole: answer");
	expect_lost(p, "whole: SIGBUS");
	expect(pread(fd, buf, sizeof(buf), (off_t)(uintptr_t)(p + 9 * PAGE)) < 0, "whole: read of mem");
	close(fd);
	/* A part alone is not good again, whatever it is. */
	expect(!madvise(p, PAGE, MADV_DONTNEED), "whole: MADV_DONTNEED of a part");
	expect_lost(p, "whole: after MADV_DONTNEED of a part");
	/* A part that is not inherited: the rest is copied. */
	expect(!madvise(p, PAGE, MADV_DONTFORK), "whole: MADV_DONTFORK");
	fflush(stdout);
	child = fork();
	if (!child) {
		failures = 0;
		expect(is_lost(p, 100 * PAGE), "whole: SIGBUS of a child");
		fflush(stdout);
		_exit(!!failures);
	}
	wait_for(child, "whole: child");
	q = mremap(p + 20 * PAGE, 16 * PAGE, 64 * PAGE, MREMAP_MAYMOVE);
	expect(q == MAP_FAILED && errno == EFAULT, "whole: mremap");
	munmap(p, LARGE);
}

/* Somebody else refers to a block: it is bad when they have gone. */
static void pool_pipe(void)
{
	char *p = fresh(), buf[PAGE];
	struct iovec page = { p + BAD * PAGE, PAGE };
	uint64_t frame = frame_of(p + BAD * PAGE);
	int ends[2];

	if (pipe(ends) || vmsplice(ends[1], &page, 1, 0) != (ssize_t)PAGE)
		err(1, "vmsplice");
	expect(tell("soft_offline_page", frame) == EBUSY, "pipe: soft offline answers EBUSY");
	expect_contents(p, "pipe: contents after it");
	note(frame);
	expect(!tell("hard_offline_page", frame), "pipe: hard offline");
	munmap(p, LARGE);
	if (read(ends[0], buf, PAGE) < 0 && errno != EFAULT && errno != EHWPOISON)
		err(1, "read of the pipe");
	close(ends[0]);
	close(ends[1]);
}

/* What a family shares is not moved, and an error takes it from all; the kernel log names some. */
static void pool_shared(void)
{
	pid_t children[SHARERS];
	char *p = fresh();
	uint64_t frame = frame_of(p + BAD * PAGE);
	time_t since;

	for (int i = 0; i < SHARERS; i++) {
		children[i] = fork();
		if (children[i] < 0)
			err(1, "fork");
		if (!children[i])
			for (;;)
				pause();
	}
	since = time(NULL);
	expect(tell("soft_offline_page", frame) == EBUSY, "shared: soft offline answers EBUSY");
	expect(time(NULL) - since < SHARERS / 2, "shared: the answer comes soon");
	expect(frame_of(p + BAD * PAGE) == frame, "shared: the page stays");
	expect_contents(p, "shared: contents after soft offline");
	note(frame);
	expect(!tell("hard_offline_page", frame), "shared: hard offline");
	expect_lost(p, "shared: SIGBUS");
	for (int i = 0; i < SHARERS; i++) {
		kill(children[i], SIGKILL);
		waitpid(children[i], NULL, 0);
	}
	munmap(p, LARGE);
}

/* Of what is copied page by page after a fork: the copy or what is behind it fails. */
static void pool_draft(void)
{
	char *behind = fresh(), *ahead = fresh(), c;
	int to_child[2], to_parent[2];
	pid_t child;

	if (pipe(to_child) || pipe(to_parent))
		err(1, "pipe");
	child = fork();
	if (!child) {
		failures = 0;
		behind[0] = ahead[0] = 1;
		if (write(to_parent[1], "r", 1) != 1 || read(to_child[0], &c, 1) != 1)
			err(1, "pipe");
		/* The kernel meets it first, then the program. */
		expect(write(to_parent[1], behind + BAD * PAGE, PAGE) < 0 && (errno == EFAULT || errno == EHWPOISON),
		       "draft: write(2) of what is lost");
		expect_lost(behind, "draft: signal of the child");
		expect(ahead[0] == 1 && ahead[PAGE] == (char)(7 + 1), "draft: contents of another one");
		fflush(stdout);
		_exit(!!failures);
	}
	if (read(to_parent[0], &c, 1) != 1)
		err(1, "pipe");
	/* Mapped for reading. */
	(void)*(volatile char *)(behind + BAD * PAGE);
	expect(!destroy(behind + BAD * PAGE), "draft: answer");
	if (write(to_child[1], "g", 1) != 1)
		err(1, "pipe");
	wait_for(child, "draft: child");
	expect_lost(behind, "draft: signal of the parent");
	expect_contents(ahead, "draft: contents that nobody else changed");
	munmap(behind, LARGE);
	munmap(ahead, LARGE);
	close(to_child[0]);
	close(to_child[1]);
	close(to_parent[0]);
	close(to_parent[1]);
}

/* What is kept for the process is not given to it again. */
static void pool_reuse(void)
{
	char *p = map_at(NULL, LARGE, MAP_UNINITIALIZED);
	uint64_t frame;

	memset(p, 1, LARGE);
	frame = frame_of(p + BAD * PAGE);
	munmap(p, LARGE);
	note(frame);
	expect(!tell("hard_offline_page", frame), "reuse: hard offline");
	p = map_at(NULL, LARGE, MAP_UNINITIALIZED);
	memset(p, 2, LARGE);
	expect(frame_of(p + BAD * PAGE) != frame, "reuse: another page");
	munmap(p, LARGE);
}

/* With the page locked, and with one reserved only. */
static void pool_others(void)
{
	char *p = fresh();

	if (mlock(p, LARGE))
		err(1, "mlock");
	destroy(p + BAD * PAGE);
	expect_lost(p, "locked: SIGBUS");
	expect(!mprotect(p, PAGE, PROT_READ) && !mprotect(p, PAGE, PROT_READ | PROT_WRITE), "locked: mprotect");
	expect_lost(p, "locked: SIGBUS after mprotect");
	munmap(p, LARGE);
}

/* What is lost is not given back to Linux as if it were there. */
static void pool_handback(void)
{
	char *p = fresh();

	destroy(p + BAD * PAGE);
	expect(madvise(p, LARGE, MADV_MERGEABLE) && errno == EFAULT, "handed back: EFAULT");
	expect_lost(p, "handed back: SIGBUS");
	munmap(p, LARGE);
}

static int run_pool(void)
{
	pool_handback();
	pool_whole();
	pool_pipe();
	pool_shared();
	pool_draft();
	pool_reuse();
	pool_others();
	return !!failures;
}

static bool in_log(uint64_t frame, const uint64_t *frames, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		if (frames[i] / PAGES == frame / PAGES)
			return true;
	return false;
}

static int run_frames(size_t bytes, const char *log)
{
	char *p = map_at(NULL, bytes, 0);
	static uint64_t frames[4096];
	unsigned long long frame;
	size_t nr = 0;

	if (log) {
		FILE *file = fopen(log, "re");

		if (!file)
			err(1, "%s", log);
		while (nr < 4096 && fscanf(file, "%llu", &frame) == 1)
			frames[nr++] = frame;
		fclose(file);
	}
	for (size_t done = 0; done < bytes; done += LARGE) {
		memset(p + done, 1, LARGE);
		if (!log)
			printf("%llu\n", (unsigned long long)frame_of(p + done));
		else if (in_log(frame_of(p + done), frames, nr))
			errx(1, "page frame %llu is of a bad block", (unsigned long long)frame_of(p + done));
	}
	return 0;
}

/* Of memory that nobody has touched nothing is lost. */
static int run_untouched(size_t bytes)
{
	char *p = map_at(NULL, bytes, 0);

	puts("mapped");
	fflush(stdout);
	getchar();
	for (size_t i = 0; i < bytes; i += PAGE)
		if (strcmp(touch(p, i + OFFSET, true), "none"))
			printf("WRONG: %s\n", signal_text(p)), failures++;
	return !!failures;
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO };

	if (argc < 3)
		errx(2, "see the source");
	if (!strcmp(argv[1], "frames"))
		return run_frames(strtoull(argv[2], NULL, 0), NULL);
	if (!strcmp(argv[1], "avoid"))
		return run_frames(strtoull(argv[2], NULL, 0), argv[3]);
	if (sigaction(SIGBUS, &action, NULL) || sigaction(SIGSEGV, &action, NULL))
		err(1, "sigaction");
	if (!strcmp(argv[1], "untouched"))
		return run_untouched(strtoull(argv[2], NULL, 0));
	bad_log = fopen(argv[2], "ae");
	if (!bad_log)
		err(1, "%s", argv[2]);
	return !strcmp(argv[1], "same") ? run_same() : run_pool();
}
