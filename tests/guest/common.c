// SPDX-License-Identifier: GPL-2.0
#include "common.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <linux/userfaultfd.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static pid_t group_pid;
static pid_t group_tid;
static atomic_int thread_failures;
static atomic_bool has_forked;

/* ---- Checks --------------------------------------------------------- */

const char *errno_name(int err)
{
	const char *name = strerrorname_np(err);

	return name ? name : "errno 0";
}

static void say(const char *prefix, const char *file, int line,
		const char *fmt, va_list args)
{
	char text[1024];
	size_t len = 0;
	int n;

	if (file)
		n = snprintf(text, sizeof(text), "%s%s:%d: ", prefix, file, line);
	else
		n = snprintf(text, sizeof(text), "%s", prefix);
	if (n > 0)
		len = (size_t)n;
	n = vsnprintf(text + len, sizeof(text) - len - 1, fmt, args);
	if (n > 0)
		len += (size_t)n;
	if (len > sizeof(text) - 2)
		len = sizeof(text) - 2;
	text[len++] = '\n';
	fflush(stdout);
	if (write(STDOUT_FILENO, text, len) < 0)
		_exit(CHILD_FAILED);
}

void note(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	say("note: ", NULL, 0, fmt, args);
	va_end(args);
}

void check_failed(const char *file, int line, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	say("", file, line, fmt, args);
	va_end(args);
	if (getpid() != group_pid)
		_exit(CHILD_FAILED);
	if (gettid() != group_tid) {
		atomic_fetch_add(&thread_failures, 1);
		pthread_exit(NULL);
	}
	runner_fail(file, line);
}

void check_skip(const char *file, int line, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	say("skipped: ", NULL, 0, fmt, args);
	va_end(args);
	if (getpid() != group_pid)
		_exit(CHILD_SKIPPED);
	runner_skip(file, line);
}

/* ---- Groups and processes ------------------------------------------- */

int run_group(const char *group, const struct test *tests, size_t nr)
{
	const char *expect = getenv("HPMMAP_TEST_EXPECT");
	const char *state = registered() ? "registered" : "native";
	int failed;

	setvbuf(stdout, NULL, _IOLBF, 0);
	group_pid = getpid();
	group_tid = gettid();
	printf("HPMMAP-TEST-INFO %s %s faults-by-address=%s\n", group, state,
	       watch_available() ? "yes" : "no");
	if (expect && strcmp(expect, state) != 0) {
		printf("%s: HPMMAP_TEST_EXPECT is \"%s\", the process is %s\n",
		       group, expect, state);
		return 1;
	}
	failed = runner_run(group, tests, nr);
	if (failed)
		return 1;
	if (!getenv("HPMMAP_TEST_ONLY"))
		printf("HPMMAP-TEST-PASS %s\n", group);
	return fflush(stdout) == 0 ? 0 : 1;
}

int run_each(const struct test *tests, size_t nr)
{
	char *argv[] = { program_invocation_short_name, NULL };
	int status, failed = 0;
	pid_t pid;

	/* This process has blocks, too, which come from where others are not clean. */
	if (registered() && !getenv("HPMMAP_TEST_CLEAN")) {
		await_clean();
		CHECK_OK(setenv("HPMMAP_TEST_CLEAN", "1", 1));
		CHECK_OK(execv("/proc/self/exe", argv));
	}
	for (size_t i = 0; i < nr; i++) {
		await_clean();
		CHECK_OK(setenv("HPMMAP_TEST_ONLY", tests[i].name, 1));
		CHECK_EQ(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ), 0);
		status = waitpid(pid, &status, 0) == pid ? status : -1;
		failed += status != 0;
	}
	if (!failed)
		printf("HPMMAP-TEST-PASS %s\n", argv[0]);
	return !!failed;
}

pid_t fork_child(void)
{
	pid_t pid;

	fflush(stdout);
	has_forked = true;
	pid = fork();
	CHECK_OK(pid);
	return pid;
}

int wait_child(pid_t pid)
{
	int status;
	pid_t got;

	do {
		got = waitpid(pid, &status, 0);
	} while (got == -1 && errno == EINTR);
	CHECK_EQ(got, pid);
	return status;
}

static void describe(int status, char *text, size_t len)
{
	if (WIFSIGNALED(status))
		snprintf(text, len, "was killed by SIG%s",
			 sigabbrev_np(WTERMSIG(status)));
	else
		snprintf(text, len, "left with status %d", WEXITSTATUS(status));
}

void expect_success(pid_t pid)
{
	int status = wait_child(pid);
	char what[64];

	if (WIFEXITED(status) && WEXITSTATUS(status) == CHILD_SKIPPED)
		SKIP("by the child process");
	describe(status, what, sizeof(what));
	if (status != 0)
		FAIL("child %s, not with status 0", what);
}

void expect_exit(pid_t pid, int code)
{
	int status = wait_child(pid);
	char what[64];

	describe(status, what, sizeof(what));
	if (!WIFEXITED(status) || WEXITSTATUS(status) != code)
		FAIL("child %s, not with status %d", what, code);
}

void expect_signal(pid_t pid, int sig)
{
	int status = wait_child(pid);
	char what[64];

	describe(status, what, sizeof(what));
	if (!WIFSIGNALED(status) || WTERMSIG(status) != sig)
		FAIL("child %s, not by SIG%s", what, sigabbrev_np(sig));
}

void in_child(void (*fn)(void *arg), void *arg)
{
	pid_t pid = fork_child();

	if (pid == 0) {
		fn(arg);
		_exit(0);
	}
	expect_success(pid);
}

pthread_t start_thread(void *(*fn)(void *arg), void *arg)
{
	pthread_t thread;
	int err = pthread_create(&thread, NULL, fn, arg);

	if (err)
		FAIL("pthread_create: %s", errno_name(err));
	return thread;
}

void join_thread(pthread_t thread)
{
	CHECK_EQ(pthread_join(thread, NULL), 0);
	if (atomic_exchange(&thread_failures, 0) != 0)
		FAIL("a check failed in a thread (see above)");
}

uint64_t pagemap_entry(const void *at)
{
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	uint64_t entry;

	CHECK_OK(fd);
	CHECK_EQ(pread(fd, &entry, sizeof(entry), (off_t)((uintptr_t)at / PAGE * sizeof(entry))), sizeof(entry));
	close(fd);
	return entry;
}

static void *count_up(void *arg)
{
	struct counting *c = arg;

	for (; !c->stop; *c->word = ++c->n)
		CHECK_EQ(*c->word, c->n);
	return NULL;
}

/* From 1 on: a page of zeros may be none. */
pthread_t count_start(struct counting *c, void *word)
{
	c->word = word;
	c->stop = false;
	*c->word = c->n = 1;
	return start_thread(count_up, c);
}

void count_end(struct counting *c, pthread_t thread)
{
	c->stop = true;
	join_thread(thread);
	CHECK_EQ(*c->word, c->n);
}

void await(int fd)
{
	char byte;

	CHECK_EQ(read(fd, &byte, 1), 1);
}

void tell(int fd)
{
	CHECK_EQ(write(fd, "x", 1), 1);
}

/* ---- Memory --------------------------------------------------------- */

void *map_flags(void *addr, size_t len, int prot, int flags)
{
	void *got = mmap(addr, len, prot, flags, -1, 0);

	if (got == MAP_FAILED)
		FAIL("mmap(%p, %#zx, %#x, %#x): %s", addr, len,
		     (unsigned int)prot, (unsigned int)flags, errno_name(errno));
	if ((flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) && got != addr)
		FAIL("mmap fixed at %p came out at %p", addr, got);
	return got;
}

void *map_anon(size_t len)
{
	return map_flags(NULL, len, RW, ANON);
}

void unmap(void *addr, size_t len)
{
	if (munmap(addr, len) != 0)
		FAIL("munmap(%p, %#zx): %s", addr, len, errno_name(errno));
}

void *free_range(size_t len)
{
	char *raw = is_static() ? map_anon(len + SLOT) :
		    map_flags(NULL, len + SLOT, PROT_NONE, ANON | MAP_NORESERVE);

	unmap(raw, len + SLOT);
	return (void *)(((uintptr_t)raw + SLOT - 1) & ~(SLOT - 1));
}

static uint64_t word(uint64_t seed, size_t n)
{
	uint64_t x = (n + 1) * 0x9e3779b97f4a7c15ULL + seed;

	return (x ^ (x >> 29)) | 1;
}

void fill(void *addr, size_t len, uint64_t seed)
{
	uint64_t *p = addr;

	for (size_t n = 0; n < len / sizeof(*p); n++)
		p[n] = word(seed, n);
}

void verify(const void *addr, size_t len, uint64_t seed, size_t off)
{
	const volatile uint64_t *p = addr;
	size_t base = off / sizeof(*p);

	for (size_t n = 0; n < len / sizeof(*p); n++)
		if (p[n] != word(seed, base + n))
			FAIL("content lost at %p+%#zx: %#llx, not %#llx", addr,
			     n * sizeof(*p), (unsigned long long)p[n],
			     (unsigned long long)word(seed, base + n));
}

void verify_zero(const void *addr, size_t len)
{
	const volatile uint64_t *p = addr;

	for (size_t n = 0; n < len / sizeof(*p); n++)
		if (p[n] != 0)
			FAIL("not zero at %p+%#zx: %#llx", addr,
			     n * sizeof(*p), (unsigned long long)p[n]);
}

void stamp(void *addr, size_t len, uint64_t seed)
{
	for (size_t off = 0; off < len; off += PAGE)
		*(volatile uint64_t *)((char *)addr + off) = word(seed, off);
}

void verify_stamp(const void *addr, size_t len, uint64_t seed)
{
	for (size_t off = 0; off < len; off += PAGE) {
		uint64_t got = *(const volatile uint64_t *)((const char *)addr + off);

		if (got != word(seed, off))
			FAIL("content lost at %p+%#zx: %#llx, not %#llx", addr,
			     off, (unsigned long long)got,
			     (unsigned long long)word(seed, off));
	}
}

static __thread sigjmp_buf probe_return;
static __thread struct outcome probe_outcome;

static void probe_handler(int sig, siginfo_t *info, void *context)
{
	(void)context;
	probe_outcome.sig = sig;
	probe_outcome.code = info->si_code;
	probe_outcome.addr = info->si_addr;
	siglongjmp(probe_return, 1);
}

static struct outcome probe(void *addr, bool write)
{
	struct sigaction action = { .sa_flags = SA_SIGINFO };
	struct sigaction old_segv, old_bus;
	volatile char *p = addr;

	action.sa_sigaction = probe_handler;
	sigemptyset(&action.sa_mask);
	CHECK_OK(sigaction(SIGSEGV, &action, &old_segv));
	CHECK_OK(sigaction(SIGBUS, &action, &old_bus));
	memset(&probe_outcome, 0, sizeof(probe_outcome));
	if (sigsetjmp(probe_return, 1) == 0) {
		char byte = *p;

		if (write)
			*p = byte;
	}
	CHECK_OK(sigaction(SIGSEGV, &old_segv, NULL));
	CHECK_OK(sigaction(SIGBUS, &old_bus, NULL));
	return probe_outcome;
}

struct outcome probe_read(const void *addr)
{
	return probe((void *)addr, false);
}

struct outcome probe_write(void *addr)
{
	return probe(addr, true);
}

void expect_segv(struct outcome got, int code, const void *addr,
		 const char *file, int line)
{
	/* What is free in a static region stays accessible. */
	if (got.sig == 0 && code == SEGV_MAPERR && in_region(addr))
		return;
	if (got.sig == 0)
		check_failed(file, line, "access to %p went through, not SIGSEGV",
			     addr);
	if (got.sig != SIGSEGV || got.code != code || got.addr != addr)
		check_failed(file, line,
			     "access to %p: SIG%s code %d at %p, not SIGSEGV code %d",
			     addr, sigabbrev_np(got.sig), got.code, got.addr, code);
}

/* ---- Static region -------------------------------------------------- */

bool is_static(void)
{
	return getenv("HPMMAP_TEST_STATIC") != NULL;
}

/* The heap begins where the region does. */
bool in_region(const void *addr)
{
	static uintptr_t start;
	char text[1024] = "", *at;
	int fd;

	if (!is_static())
		return false;
	if (!start) {
		fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
		if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
			FAIL("/proc/self/stat: %s", errno_name(errno));
		close(fd);
		at = strrchr(text, ')');
		/* The 47th field; behind the bracket is the third. */
		for (int i = 2; at && i < 47; i++)
			at = strchr(at + 1, ' ');
		start = at ? strtoul(at, NULL, 10) : 0;
		CHECK(start);
	}
	return (uintptr_t)addr - start < strtoul(getenv("HPMMAP_TEST_STATIC"), NULL, 10);
}

void skip_unless_static(void)
{
	if (!is_static())
		SKIP("there is no static region");
}

/* ---- /proc and sysfs ------------------------------------------------ */

struct lines {
	int fd;
	size_t pos;
	size_t len;
	char buf[8192];
};

/* The next line without its newline, or NULL at the end. */
static char *next_line(struct lines *lines)
{
	for (;;) {
		char *start = lines->buf + lines->pos;
		char *end = memchr(start, '\n', lines->len - lines->pos);
		ssize_t got;

		if (end) {
			*end = '\0';
			lines->pos = (size_t)(end - lines->buf) + 1;
			return start;
		}
		memmove(lines->buf, start, lines->len - lines->pos);
		lines->len -= lines->pos;
		lines->pos = 0;
		if (lines->len == sizeof(lines->buf))
			FAIL("a line of /proc is longer than %zu bytes",
			     sizeof(lines->buf));
		got = read(lines->fd, lines->buf + lines->len,
			   sizeof(lines->buf) - lines->len);
		if (got < 0)
			FAIL("reading /proc: %s", errno_name(errno));
		if (got == 0)
			return NULL;
		lines->len += (size_t)got;
	}
}

static void open_lines(struct lines *lines, const char *path)
{
	lines->pos = 0;
	lines->len = 0;
	lines->fd = open(path, O_RDONLY | O_CLOEXEC);
	if (lines->fd < 0)
		FAIL("%s: %s", path, errno_name(errno));
}

/* True if the line is the first one of a VMA. */
static bool parse_vma(const char *line, struct vma *vma)
{
	char *end;
	int name_at = 0;

	memset(vma, 0, sizeof(*vma));
	vma->start = strtoull(line, &end, 16);
	if (end == line || *end != '-')
		return false;
	if (sscanf(end + 1, "%lx %7s %*s %*s %*s %n", &vma->end, vma->perms,
		   &name_at) < 2 || name_at == 0)
		FAIL("not a line of /proc/PID/maps: %s", line);
	snprintf(vma->name, sizeof(vma->name), "%s", end + 1 + name_at);
	return true;
}

static bool overlaps(const struct vma *vma, const void *addr, size_t len)
{
	uintptr_t start = (uintptr_t)addr;

	return vma->start < start + len && start < vma->end;
}

bool vma_at(const void *addr, struct vma *out)
{
	struct lines lines;
	bool found = false;
	char *line;

	open_lines(&lines, "/proc/self/maps");
	while (!found && (line = next_line(&lines)) != NULL)
		found = parse_vma(line, out) && overlaps(out, addr, 1);
	close(lines.fd);
	return found;
}

int vma_count(const void *addr, size_t len)
{
	struct lines lines;
	struct vma vma;
	int count = 0;
	char *line;

	open_lines(&lines, "/proc/self/maps");
	while ((line = next_line(&lines)) != NULL)
		count += parse_vma(line, &vma) && overlaps(&vma, addr, len);
	close(lines.fd);
	return count;
}

size_t mapped_bytes(void)
{
	struct lines lines;
	struct vma vma;
	size_t sum = 0;
	char *line;

	open_lines(&lines, "/proc/self/maps");
	while ((line = next_line(&lines)) != NULL)
		if (parse_vma(line, &vma) && vma.start < 1UL << 56)
			sum += vma.end - vma.start;
	close(lines.fd);
	return sum;
}

/* "Field:   123 kB" in bytes; false if the line is about something else. */
static bool parse_field(const char *line, const char *field, size_t *bytes)
{
	size_t len = strlen(field);

	if (strncmp(line, field, len) != 0 || line[len] != ':')
		return false;
	*bytes = strtoull(line + len + 1, NULL, 10) << 10;
	return true;
}

size_t meminfo(const char *field)
{
	struct lines lines;
	bool found = false;
	size_t bytes = 0;
	char *line;

	open_lines(&lines, "/proc/meminfo");
	while (!found && (line = next_line(&lines)) != NULL)
		found = parse_field(line, field, &bytes);
	close(lines.fd);
	if (!found)
		FAIL("/proc/meminfo has no %s", field);
	return bytes;
}

bool maps_2m(void)
{
	return access("/sys/kernel/mm/transparent_hugepage", F_OK) == 0;
}

static void check_vma_2m(const struct vma *vma)
{
	uintptr_t first = (vma->start + SLOT - 1) & ~(SLOT - 1);
	uintptr_t last = vma->end & ~(SLOT - 1);
	size_t want = last > first && maps_2m() ? last - first : 0;

	if (vma->rss_bytes != vma->end - vma->start)
		FAIL("%lx-%lx %s %s: %zu KB of %zu KB are mapped", vma->start,
		     vma->end, vma->perms, vma->name, vma->rss_bytes >> 10,
		     (vma->end - vma->start) >> 10);
	if (vma->pmd_bytes != want)
		FAIL("%lx-%lx %s %s: %zu KB by 2 MB entries, not %zu KB",
		     vma->start, vma->end, vma->perms, vma->name,
		     vma->pmd_bytes >> 10, want >> 10);
}

void check_2m(const void *addr, size_t len)
{
	static const char *const pmd_fields[] = {
		"AnonHugePages", "ShmemPmdMapped", "FilePmdMapped",
	};
	struct vma vma = { 0 }, next;
	struct lines lines;
	bool inside = false;
	int found = 0;
	char *line;

	/* smaps has one line for all of a static region. */
	if (!registered() || in_region(addr))
		return;
	open_lines(&lines, "/proc/self/smaps");
	while ((line = next_line(&lines)) != NULL) {
		size_t bytes;

		if (isxdigit((unsigned char)*line) && parse_vma(line, &next)) {
			if (inside)
				check_vma_2m(&vma);
			vma = next;
			inside = overlaps(&vma, addr, len);
			found += inside;
			continue;
		}
		if (parse_field(line, "Rss", &bytes))
			vma.rss_bytes = bytes;
		for (size_t i = 0; i < ARRAY_SIZE(pmd_fields); i++)
			if (parse_field(line, pmd_fields[i], &bytes))
				vma.pmd_bytes += bytes;
	}
	if (inside)
		check_vma_2m(&vma);
	close(lines.fd);
	if (!found)
		FAIL("/proc/self/smaps has nothing at %p", addr);
}

/* A decimal integer in a file; false if the file cannot be read. */
static bool read_integer(const char *path, uint64_t *value)
{
	char text[32];
	ssize_t got;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	got = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (got <= 0)
		return false;
	text[got] = '\0';
	*value = strtoull(text, NULL, 10);
	return true;
}

/* A value of a process's context; false where it has none. */
static bool value_of(pid_t process, const char *name, uint64_t *value)
{
	size_t len = strlen(name);
	struct lines lines;
	bool found = false;
	long pid = 0;
	char *line;

	if (access(HPMMAP_CONTEXTS_PATH, F_OK) != 0)
		return false;
	open_lines(&lines, HPMMAP_CONTEXTS_PATH);
	while (!found && (line = next_line(&lines)) != NULL) {
		if (strncmp(line, "id ", 3) == 0)
			pid = 0;
		if (strncmp(line, "pid ", 4) == 0)
			pid = strtol(line + 4, NULL, 10);
		found = pid == process && strncmp(line, name, len) == 0 && line[len] == ' ';
		if (found)
			*value = strtoull(line + len, NULL, 10);
	}
	close(lines.fd);
	return found;
}

bool registered(void)
{
	uint64_t pid;

	return value_of(getpid(), "pid", &pid);
}

void await_apart(pid_t pid)
{
	uint64_t unused;

	for (int i = 0; i < 10000 && value_of(pid, "pid", &unused); i++)
		usleep(1000);
}

void skip_unless_registered(void)
{
	if (!registered())
		SKIP("the process is not registered with HPMMAP");
}

uint64_t context_value(const char *name)
{
	uint64_t value;

	if (!value_of(getpid(), name, &value))
		FAIL("%s: the process is not registered, or this is not shown", name);
	return value;
}

uint64_t job_value(const char *name)
{
	size_t len = strlen(name);
	struct lines lines;
	uint64_t value = 0;
	char path[96], *line;

	snprintf(path, sizeof(path), HPMMAP_SYSFS_PATH "/jobs/%llu/stat",
		 (unsigned long long)context_value("job"));
	open_lines(&lines, path);
	while ((line = next_line(&lines)))
		if (strncmp(line, name, len) == 0 && line[len] == ' ')
			value = strtoull(line + len, NULL, 10);
	close(lines.fd);
	return value;
}

uint64_t mapped_2m_bytes(void)
{
	struct lines lines;
	uint64_t sum = 0;
	size_t bytes;
	char *line;

	open_lines(&lines, "/proc/self/smaps");
	while ((line = next_line(&lines)))
		if (parse_field(line, "FilePmdMapped", &bytes))
			sum += bytes;
	close(lines.fd);
	return sum;
}

uint64_t pool_value(const char *file)
{
	DIR *nodes = opendir(HPMMAP_SYSFS_PATH "/nodes");
	struct dirent *entry;
	uint64_t sum = 0;

	if (!nodes)
		FAIL(HPMMAP_SYSFS_PATH "/nodes: %s", errno_name(errno));
	while ((entry = readdir(nodes)) != NULL) {
		char path[160];
		uint64_t value;

		if (strncmp(entry->d_name, "node", 4) != 0 ||
		    strlen(entry->d_name) > 32)
			continue;
		snprintf(path, sizeof(path), HPMMAP_SYSFS_PATH "/nodes/%.32s/%s",
			 entry->d_name, file);
		if (!read_integer(path, &value))
			FAIL("%s: %s", path, errno_name(errno));
		sum += value;
	}
	closedir(nodes);
	return sum;
}

void await_clean(void)
{
	uint64_t before = 0, clean;

	for (int i = 0, same = 0; registered() && i < 1200 && same < 40; i++) {
		clean = pool_value("clean_bytes");
		if (clean == pool_value("free_bytes"))
			break;
		same = clean == before ? same + 1 : 0;
		before = clean;
		pause_ms(50);
	}
}

void await_pool_free(uint64_t want)
{
	uint64_t got = 0;

	for (int i = 0; i < 300; i++) {
		got = pool_value("free_bytes");
		if (got >= want)
			return;
		pause_ms(100);
	}
	FAIL("the pools have %llu bytes free, not %llu",
	     (unsigned long long)got, (unsigned long long)want);
}

void pause_ms(long ms)
{
	nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 }, NULL);
}

void shell(const char *fmt, ...)
{
	char command[512];
	va_list args;
	int status;

	va_start(args, fmt);
	vsnprintf(command, sizeof(command), fmt, args);
	va_end(args);
	status = system(command);
	if (status != 0)
		FAIL("\"%s\" ended with status %#x", command, (unsigned int)status);
}

/* ---- Page faults ---------------------------------------------------- */

/* The sample records are 16 bytes each; a full ring reports records lost. */
#define RING_BYTES	KB(256)

static __thread struct watch {
	pid_t tid;
	int fd;
	struct perf_event_mmap_page *ring;
	uint64_t begin;
	uint64_t end;
} watch = { .fd = -1 };

static int open_perf(bool exclude_kernel)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_SW_PAGE_FAULTS,
		.sample_period = 1,
		.sample_type = PERF_SAMPLE_ADDR,
		.disabled = 1,
		.exclude_kernel = exclude_kernel,
		.exclude_hv = 1,
	};

	return (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1,
			    PERF_FLAG_FD_CLOEXEC);
}

/* A forked child has neither the parent's ring nor its event. */
static bool watch_open(void)
{
	if (watch.tid == gettid())
		return watch.fd >= 0;
	if (watch.fd >= 0)
		close(watch.fd);
	watch.tid = gettid();
	watch.ring = NULL;
	watch.fd = open_perf(false);
	if (watch.fd < 0)
		watch.fd = open_perf(true);
	if (watch.fd < 0)
		return false;
	watch.ring = mmap(NULL, PAGE + RING_BYTES, RW, MAP_SHARED, watch.fd, 0);
	if (watch.ring == MAP_FAILED) {
		close(watch.fd);
		watch.fd = -1;
		return false;
	}
	return true;
}

bool watch_available(void)
{
	return watch_open();
}

void watch_begin(void)
{
	if (!watch_open())
		return;
	watch.begin = __atomic_load_n(&watch.ring->data_head, __ATOMIC_ACQUIRE);
	watch.end = watch.begin;
	__atomic_store_n(&watch.ring->data_tail, watch.begin, __ATOMIC_RELEASE);
	CHECK_OK(ioctl(watch.fd, PERF_EVENT_IOC_ENABLE, 0));
}

void watch_end(void)
{
	if (!watch_open())
		return;
	CHECK_OK(ioctl(watch.fd, PERF_EVENT_IOC_DISABLE, 0));
	watch.end = __atomic_load_n(&watch.ring->data_head, __ATOMIC_ACQUIRE);
}

static void ring_copy(void *to, uint64_t pos, size_t len)
{
	const char *data = (const char *)watch.ring + PAGE;

	for (size_t i = 0; i < len; i++)
		((char *)to)[i] = data[(pos + i) & (RING_BYTES - 1)];
}

/* The first fault address is kept for the message of a failure. */
static size_t count_faults(const void *addr, size_t len, unsigned int mode,
			   uint64_t *first)
{
	uint64_t start = (uintptr_t)addr;
	uint64_t pos = watch.begin;
	size_t count = 0;

	if (!watch_open())
		FAIL("page faults cannot be recorded here");
	while (pos < watch.end) {
		struct perf_event_header header;
		uint64_t where;

		ring_copy(&header, pos, sizeof(header));
		if (header.type == PERF_RECORD_LOST && registered())
			FAIL("more page faults than the record holds (%zu)",
			     RING_BYTES / 16);
		if (header.type == PERF_RECORD_SAMPLE) {
			ring_copy(&where, pos + sizeof(header), sizeof(where));
			if ((header.misc & PERF_RECORD_MISC_CPUMODE_MASK) == mode &&
			    where >= start && where - start < len) {
				if (count++ == 0)
					*first = where;
			}
		}
		pos += header.size;
	}
	return count;
}

size_t watch_user_faults(const void *addr, size_t len)
{
	uint64_t first;

	return count_faults(addr, len, PERF_RECORD_MISC_USER, &first);
}

size_t watch_kernel_faults(const void *addr, size_t len)
{
	uint64_t first;

	return count_faults(addr, len, PERF_RECORD_MISC_KERNEL, &first);
}

void watch_expect_none(const void *addr, size_t len, const char *file, int line)
{
	uint64_t first = 0;
	size_t user, kernel;

	watch_end();
	/* A fork leaves all of a static region shared, what is mapped later, too. */
	if (!registered() || !watch_available() || (has_forked && in_region(addr)))
		return;
	user = count_faults(addr, len, PERF_RECORD_MISC_USER, &first);
	kernel = count_faults(addr, len, PERF_RECORD_MISC_KERNEL, &first);
	if (user || kernel)
		check_failed(file, line,
			     "%zu user and %zu kernel page faults in %p+%#zx, first at +%#llx; not 0",
			     user, kernel, addr, len,
			     (unsigned long long)(first - (uintptr_t)addr));
}

void check_touch(void *addr, size_t len, const char *file, int line)
{
	volatile char *p = addr;

	watch_begin();
	for (size_t off = 0; off < len; off += PAGE)
		p[off] = p[off];
	watch_expect_none(addr, len, file, line);
}

struct totals totals_now(void)
{
	struct totals now = { 0, 0 };

	if (registered()) {
		now.user = context_value("faults");
		now.kernel = context_value("faults_kernel");
	}
	return now;
}

int uffd_open(uint64_t features)
{
	struct uffdio_api api = { .api = UFFD_API, .features = features };
	int flags = O_CLOEXEC | (geteuid() ? UFFD_USER_MODE_ONLY : 0);
	int fd = (int)syscall(SYS_userfaultfd, flags);

	if (fd < 0)
		SKIP("userfaultfd: %s", errno_name(errno));
	if (ioctl(fd, UFFDIO_API, &api) != 0) {
		close(fd);
		return -1;
	}
	return fd;
}

int uffd_register(int fd, void *addr, size_t len, uint64_t mode)
{
	struct uffdio_register reg = {
		.range = { (uintptr_t)addr, len },
		.mode = mode,
	};

	return ioctl(fd, UFFDIO_REGISTER, &reg);
}
