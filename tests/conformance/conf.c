// SPDX-License-Identifier: GPL-2.0
/*
 * conformance: runs the cases and writes their observations, one line of JSON each.
 * Every run of a case is a program of its own, so that it can change its address space
 * freely.
 */
#include "conf.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#define REPORT_FD	3
#define REPORT_TEXT	15000
/* Where nothing else ever is: every address means the same in every run. */
#define ARENA		((char *)0x200000000000)
#define PATTERN		0xc0de000000000000ULL
#define WORDS		(PAGE / 8)
/* A run that takes longer than this is stuck, emulated CPUs or not. */
#define RUN_SECONDS	300

extern const struct conf_case *const __start_conf_cases[];
extern const struct conf_case *const __stop_conf_cases[];
extern char **environ;

/* In shared memory: survives a run that is killed. */
static struct report {
	unsigned int len;
	bool not_run;
	char text[REPORT_TEXT];
} *report;

static const char *const processes[] = { "main", "child", "thread" };

static const struct alignment {
	const char *name;
	size_t unit;
	size_t offset;
} alignments[] = {
	{ "any", KB(64), 0 },
	{ "4k", PAGE, KB(500) },
	{ "2m", MB(2), 0 },
	/* Every unit straddles a boundary of 2 MB. */
	{ "cross", MB(2), MB(1) + PAGE },
	{ "1g", MB(256), 0 },
};

/* ---- Observations ---------------------------------------------------- */

static void add(const char *fmt, va_list args)
{
	size_t room = sizeof(report->text) - report->len;
	int n = vsnprintf(report->text + report->len, room, fmt, args);

	if (n > 0)
		report->len += (size_t)n < room ? (size_t)n : room - 1;
}

static void append(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	add(fmt, args);
	va_end(args);
}

void say(const char *fmt, ...)
{
	va_list args;

	if (report->len)
		append(" ");
	va_start(args, fmt);
	add(fmt, args);
	va_end(args);
}

void not_run(const char *fmt, ...)
{
	va_list args;

	report->not_run = true;
	report->len = 0;
	va_start(args, fmt);
	add(fmt, args);
	va_end(args);
}

long ret(const char *name, long result)
{
	if (result == -1)
		say("%s=%s", name, errno_name(errno));
	else
		say("%s=%ld", name, result);
	return result;
}

const char *in_units(struct run *r, long bytes)
{
	static __thread char text[4][48];
	static __thread unsigned int next;
	char *s = text[next++ % 4];
	long unit = (long)r->unit;
	long n = bytes / unit, rest = bytes % unit;

	if (rest < 0) {
		rest += unit;
		n--;
	}
	if (rest)
		snprintf(s, sizeof(text[0]), "%ldu+%#lx", n, rest);
	else
		snprintf(s, sizeof(text[0]), "%ldu", n);
	return s;
}

char *at(struct run *r, const char *name, void *result)
{
	long offset = (char *)result - r->base;

	if (result == MAP_FAILED)
		say("%s=%s", name, errno_name(errno));
	else if (offset >= -(long)MB(1) && offset < 4096 * (long)r->unit)
		say("%s=%s", name, in_units(r, offset));
	else
		say("%s=elsewhere", name);
	return result;
}

/* Allocates nothing: a case may be at its limits. */
struct lines {
	int fd;
	size_t pos;
	size_t len;
	char buf[4096];
};

static void open_lines(struct lines *lines, const char *path)
{
	lines->fd = open(path, O_RDONLY | O_CLOEXEC);
	lines->pos = 0;
	lines->len = 0;
	if (lines->fd < 0)
		say("%s: %s", path, errno_name(errno));
}

/* The next line without its newline, or NULL after the last one. */
static char *next_line(struct lines *lines)
{
	char *line, *end;
	ssize_t got;

	for (;;) {
		line = lines->buf + lines->pos;
		end = memchr(line, '\n', lines->len - lines->pos);
		if (end)
			break;
		memmove(lines->buf, line, lines->len - lines->pos);
		lines->len -= lines->pos;
		lines->pos = 0;
		got = read(lines->fd, lines->buf + lines->len,
			   sizeof(lines->buf) - lines->len);
		if (got <= 0) {
			close(lines->fd);
			return NULL;
		}
		lines->len += (size_t)got;
	}
	*end = '\0';
	lines->pos = (size_t)(end - lines->buf) + 1;
	return line;
}

void maps(struct run *r, const char *addr, size_t len)
{
	const char *end = addr + len, *where = addr;
	char last[8] = "";
	struct lines lines;
	struct vma vma;
	char *line;

	open_lines(&lines, "/proc/self/maps");
	say("maps{");
	while ((line = next_line(&lines)) != NULL) {
		if (sscanf(line, "%lx-%lx %7s", &vma.start, &vma.end,
			   vma.perms) != 3)
			continue;
		if (vma.end <= (uintptr_t)where ||
		    vma.start >= (uintptr_t)end)
			continue;
		if (vma.start > (uintptr_t)where) {
			append("%s%s:hole", where > addr ? "," : "",
			       in_units(r, where - addr));
			strcpy(last, "hole");
			where = (char *)vma.start;
		}
		/* Shared or private is a matter of its own. */
		vma.perms[3] = '\0';
		if (strcmp(last, vma.perms) != 0) {
			append("%s%s:%s", where > addr ? "," : "",
			       in_units(r, where - addr), vma.perms);
			strcpy(last, vma.perms);
		}
		where = (char *)vma.end;
	}
	if (where < end && strcmp(last, "hole") != 0)
		append("%s%s:hole", where > addr ? "," : "",
		       in_units(r, where - addr));
	append("}");
}

size_t smaps_field(const char *addr, size_t len, const char *field)
{
	size_t sum = 0, n = strlen(field);
	uintptr_t start, end;
	struct lines lines;
	bool inside = false;
	char *line;

	open_lines(&lines, "/proc/self/smaps");
	while ((line = next_line(&lines)) != NULL) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			inside = start >= (uintptr_t)addr &&
				 end <= (uintptr_t)addr + len;
		else if (inside && strncmp(line, field, n) == 0 &&
			 line[n] == ':')
			sum += strtoul(line + n + 1, NULL, 10) << 10;
	}
	return sum;
}

size_t smaps_locked(const char *addr, size_t len)
{
	size_t sum = 0, rss = 0;
	uintptr_t start, end;
	struct lines lines;
	bool inside = false;
	char *line;

	open_lines(&lines, "/proc/self/smaps");
	while ((line = next_line(&lines)) != NULL) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			inside = start >= (uintptr_t)addr &&
				 end <= (uintptr_t)addr + len;
		else if (strncmp(line, "Rss:", 4) == 0)
			rss = strtoul(line + 4, NULL, 10) << 10;
		else if (inside && strncmp(line, "VmFlags:", 8) == 0 &&
			 strstr(line, " lo "))
			sum += rss;
	}
	return sum;
}

void vm_flags(const char *addr, const char *wanted)
{
	uintptr_t start, end;
	struct lines lines;
	bool inside = false;
	char *line;

	open_lines(&lines, "/proc/self/smaps");
	say("flags{");
	while ((line = next_line(&lines)) != NULL) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			inside = start <= (uintptr_t)addr &&
				 (uintptr_t)addr < end;
		else if (inside && strncmp(line, "VmFlags:", 8) == 0)
			for (const char *f = wanted; *f; f += f[2] ? 3 : 2) {
				char flag[] = { ' ', f[0], f[1], ' ', '\0' };

				if (strstr(line, flag))
					append("%.2s ", f);
			}
	}
	append("}");
}

size_t status_field(const char *field)
{
	size_t n = strlen(field), bytes = 0;
	struct lines lines;
	char *line;

	open_lines(&lines, "/proc/self/status");
	while ((line = next_line(&lines)) != NULL)
		if (strncmp(line, field, n) == 0 && line[n] == ':')
			bytes = strtoul(line + n + 1, NULL, 10) << 10;
	return bytes;
}

/* ---- Signals ---------------------------------------------------------- */

static __thread sigjmp_buf trap;
static __thread volatile bool armed;
static __thread volatile int trap_signal;
static __thread volatile int trap_code;
static __thread void *volatile trap_addr;

static void on_fault(int sig, siginfo_t *info, void *context)
{
	(void)context;
	if (!armed) {
		signal(sig, SIG_DFL);
		return;
	}
	trap_signal = sig;
	trap_code = info->si_code;
	trap_addr = info->si_addr;
	siglongjmp(trap, 1);
}

static void catch_faults(void)
{
	struct sigaction action = { .sa_flags = SA_SIGINFO | SA_NODEFER };

	action.sa_sigaction = on_fault;
	sigemptyset(&action.sa_mask);
	sigaction(SIGSEGV, &action, NULL);
	sigaction(SIGBUS, &action, NULL);
}

static const char *code_name(int sig, int code)
{
	static __thread char text[32];

	if (sig == SIGSEGV && code == SEGV_MAPERR)
		return "MAPERR";
	if (sig == SIGSEGV && code == SEGV_ACCERR)
		return "ACCERR";
	if (sig == SIGSEGV && code == SEGV_PKUERR)
		return "PKUERR";
	snprintf(text, sizeof(text), "SIG%s/%d", sigabbrev_np(sig), code);
	return text;
}

static void try_one(char *addr, char how)
{
	volatile unsigned char *p = (unsigned char *)addr;

	armed = true;
	if (sigsetjmp(trap, 0) == 0) {
		/* What is written can be executed afterwards. */
		if (how == 'r')
			(void)*p;
		else if (how == 'w')
			*p = RET_INSTRUCTION;
		else
			((void (*)(void))addr)();
		append("%c:ok", how);
	} else {
		append("%c:%s", how, code_name(trap_signal, trap_code));
		if (trap_addr != addr)
			append("@%+ld", (long)((char *)trap_addr - addr));
	}
	armed = false;
}

void try(const char *name, char *addr, const char *how)
{
	say("%s{", name);
	for (const char *h = how; *h; h++) {
		if (h > how)
			append(",");
		try_one(addr, *h);
	}
	append("}");
}

/* ---- Contents --------------------------------------------------------- */

static uint64_t pattern(size_t page, size_t word)
{
	return PATTERN | page << 12 | word;
}

/*
 * Of a unit larger than a page a part of the pages is looked at: three at each
 * end, and two of every 32, or of every 512 where it is a large one. Touching
 * and checking all of them would take most of the time there is.
 */
static size_t next_page(struct run *r, size_t offset)
{
	size_t stride = r->unit > MB(2) ? MB(2) : 32 * PAGE;
	size_t next = offset + PAGE, in_unit = next % r->unit;
	size_t tail = r->unit - 3 * PAGE;

	if (r->unit == PAGE || in_unit < 3 * PAGE || in_unit >= tail ||
	    in_unit % stride < 2 * PAGE)
		return next;
	in_unit += stride - in_unit % stride;
	return next - next % r->unit + (in_unit < tail ? in_unit : tail);
}

/* The words that are looked at: all of the pages at the ends of a unit. */
static size_t step(struct run *r, size_t offset)
{
	size_t in_unit = offset % r->unit;

	return in_unit == 0 || in_unit == r->unit - PAGE ? 1 : 73;
}

void fill_pages(struct run *r, char *addr, size_t len, size_t origin)
{
	for (size_t off = 0; off < len; off = next_page(r, off)) {
		uint64_t *word = (uint64_t *)(void *)(addr + off);

		for (size_t i = 0; i < WORDS; i += step(r, off))
			word[i] = pattern((origin * r->unit + off) / PAGE, i);
	}
}

void touch(char *addr, size_t len)
{
	for (volatile char *p = addr; p < addr + len; p += PAGE)
		*p = *p;
}

enum { ZERO = -1, OTHER = -2, FAULT = -3 };

/* The page's number in the arena, or one of the above. */
static long page_holds(struct run *r, const char *addr, size_t off)
{
	const volatile uint64_t *word = (const uint64_t *)(const void *)addr;
	uint64_t first;
	long page;

	armed = true;
	if (sigsetjmp(trap, 0) != 0) {
		armed = false;
		return FAULT - trap_code;
	}
	first = word[0];
	page = (long)(first >> 12 & 0xfffffff);
	if (first && first != pattern((size_t)page, 0)) {
		armed = false;
		return OTHER;
	}
	for (size_t i = 0; i < WORDS; i += step(r, off))
		if (word[i] != (first ? pattern((size_t)page, i) : 0))
			page = OTHER;
	armed = false;
	return page == OTHER ? OTHER : first ? page : ZERO;
}

void content(struct run *r, const char *addr, size_t len)
{
	long last = OTHER, delta = 0;
	bool first = true;

	say("content{");
	for (size_t off = 0; off < len; off = next_page(r, off)) {
		long what = page_holds(r, addr + off, off);
		long there = what >= 0 ? what - (long)(off / PAGE) : 0;
		bool same = !first && (what >= 0) == (last >= 0) &&
			    (what >= 0 ? there == delta : what == last);

		last = what;
		delta = there;
		if (same)
			continue;
		append("%s%s:", first ? "" : ",", in_units(r, (long)off));
		first = false;
		if (what >= 0)
			append("+%s", in_units(r, what * (long)PAGE));
		else if (what == ZERO)
			append("zero");
		else if (what == OTHER)
			append("other");
		else
			append("%s", code_name(trap_signal, trap_code));
	}
	append("}");
}

/* ---- Things to do ------------------------------------------------------ */

char *spot(struct run *r, int n)
{
	return r->base + (n + 1) * (64 * r->unit);
}

void *map(void *addr, size_t len, int prot, int flags)
{
	return mmap(addr, len, prot, MAP_PRIVATE | MAP_ANONYMOUS | flags,
		    -1, 0);
}

pid_t sub_process(void)
{
	pid_t pid = fork();

	if (pid < 0)
		say("fork=%s", errno_name(errno));
	return pid;
}

void ended(const char *name, pid_t pid)
{
	int status;

	if (pid < 0)
		return;
	if (waitpid(pid, &status, 0) != pid)
		say("%s=%s", name, errno_name(errno));
	else if (WIFSIGNALED(status))
		say("%s=SIG%s", name, sigabbrev_np(WTERMSIG(status)));
	else
		say("%s=exit%d", name, WEXITSTATUS(status));
}

int memfd(struct run *r, size_t len, size_t origin)
{
	int fd = memfd_create("conformance", MFD_CLOEXEC);
	char *p;

	if (fd < 0 || ftruncate(fd, (off_t)len) != 0)
		FAIL("memfd: %s", errno_name(errno));
	p = mmap(NULL, len, RW, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		FAIL("mapping a memfd: %s", errno_name(errno));
	fill_pages(r, p, len, origin);
	munmap(p, len);
	return fd;
}

bool put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool done = fd >= 0 &&
		    write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return done;
}

bool get(const char *path, char *text, size_t len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, len - 1);

	if (fd >= 0)
		close(fd);
	text[n < 0 ? 0 : n] = '\0';
	return n >= 0;
}

static bool is_ours(const char *addr)
{
	struct vma vma;

	/* Shared, and without the name of a file. */
	return vma_at(addr, &vma) && vma.perms[3] == 's' &&
	       (!vma.name[0] || vma.name[0] == '[');
}

/* Whether this process gets its memory from the pools. */
static bool in_pools(void)
{
	char *p = map(NULL, PAGE, RW, 0);
	bool ours = is_ours(p);

	munmap(p, PAGE);
	return ours;
}

/* ---- One run ------------------------------------------------------------ */

static void make_arena(struct run *r, const struct conf_case *c)
{
	char *p;

	if (c->flags & BARE || !r->units)
		return;
	p = map(r->base, r->unit * r->units, RW, MAP_FIXED_NOREPLACE);
	if (p != r->base) {
		say("there is no arena: %s", errno_name(errno));
		exit(1);
	}
	fill_pages(r, p, r->unit * r->units, 0);
	if (is_ours(p) != in_pools())
		say("not all the memory is of the pools");
}

struct job {
	const struct conf_case *conf_case;
	struct run *run;
};

static void *in_thread(void *arg)
{
	struct job *job = arg;

	job->conf_case->fn(job->run);
	return NULL;
}

static void run_process(const struct conf_case *c, struct run *r,
			const char *process)
{
	struct job job = { c, r };
	pthread_t thread;
	pid_t pid;

	if (strcmp(process, "main") == 0) {
		c->fn(r);
	} else if (strcmp(process, "thread") == 0) {
		if (pthread_create(&thread, NULL, in_thread, &job) != 0)
			say("pthread_create failed");
		else
			pthread_join(thread, NULL);
	} else {
		bool expected = in_pools();

		pid = sub_process();
		if (pid == 0) {
			if (in_pools() != expected)
				say("the child is not registered");
			c->fn(r);
			_exit(0);
		}
		ended("child", pid);
		if (r->units && !(c->flags & BARE))
			content(r, r->base, r->unit * r->units);
	}
}

/* argv: program, --one, the numbers of case, process and alignment, registered */
static int one(char **argv)
{
	const struct conf_case *c = __start_conf_cases[atoi(argv[2])];
	const struct alignment *a = &alignments[atoi(argv[4])];
	struct run r = {
		.base = ARENA + a->offset,
		.unit = a->unit,
		.units = c->units,
	};

	report = mmap(NULL, sizeof(*report), RW, MAP_SHARED, REPORT_FD, 0);
	if (report == MAP_FAILED)
		return 1;
	close(REPORT_FD);
	alarm(RUN_SECONDS);
	catch_faults();
	if (in_pools() != (argv[5][0] == '1'))
		say("the process is %sregistered", in_pools() ? "" : "not ");
	make_arena(&r, c);
	run_process(c, &r, processes[atoi(argv[3])]);
	return 0;
}

/* ---- All of them --------------------------------------------------------- */

static void print_text(const char *text)
{
	for (; *text; text++)
		if (*text == '"' || *text == '\\')
			printf("\\%c", *text);
		else
			putchar((unsigned char)*text < ' ' ? ' ' : *text);
}

/* Where the cases are run, if that is what matters; else NULL. */
static const char *place;

static void run_case(size_t number, size_t process, size_t alignment,
		     bool is_registered)
{
	const struct conf_case *c = __start_conf_cases[number];
	char numbers[3][24];
	char *argv[] = {
		"conformance", "--one", numbers[0], numbers[1], numbers[2],
		is_registered ? "1" : "0", NULL,
	};
	int status, err;
	pid_t pid;

	memset(report, 0, sizeof(*report));
	snprintf(numbers[0], sizeof(numbers[0]), "%zu", number);
	snprintf(numbers[1], sizeof(numbers[1]), "%zu", process);
	snprintf(numbers[2], sizeof(numbers[2]), "%zu", alignment);
	err = posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ);
	if (err || waitpid(pid, &status, 0) != pid) {
		say("the case cannot be started: %s", errno_name(err));
		status = 0;
	}
	if (WIFSIGNALED(status))
		say("and ended by SIG%s", sigabbrev_np(WTERMSIG(status)));
	else if (WEXITSTATUS(status))
		say("and ended with status %d", WEXITSTATUS(status));
	printf("{\"call\": \"%s\", \"case\": \"%s%s%s\", ",
	       place ? place : c->call, place ? c->call : "",
	       place ? "_" : "", c->name);
	printf("\"process\": \"%s\", \"align\": \"%s\", \"%s\": \"",
	       processes[process], alignments[alignment].name,
	       report->not_run ? "not_run" : "observed");
	print_text(report->text);
	printf("\"}\n");
	fflush(stdout);
}

/* patterns: of CALL/CASE, up to a NULL; none means all. */
static bool wanted(const struct conf_case *c, char **patterns)
{
	char name[128];

	snprintf(name, sizeof(name), "%s/%s", c->call, c->name);
	if (!*patterns)
		return true;
	for (; *patterns; patterns++)
		if (fnmatch(*patterns, name, 0) == 0)
			return true;
	return false;
}

/* What to run of what there is; see usage(). */
static bool big, only_big, all, some, few;

static bool applies(const struct conf_case *c, size_t process,
		    const struct alignment *a)
{
	bool once = strcmp(a->name, "any") == 0;
	bool large = strcmp(a->name, "1g") == 0;
	bool cross = strcmp(a->name, "cross") == 0;
	bool aligned = strcmp(a->name, "2m") == 0;
	bool alone = c->flags & ALONE;

	if (alone && process)
		return false;
	if (large)
		return c->flags & BIG && big && process == 0;
	if (once != !!(c->flags & ONCE))
		return false;
	if (few)
		return process == 0 && (once || cross);
	if (all || once)
		return true;
	/* Each alignment somewhere. */
	if (some)
		return cross == (process != 0 || alone);
	/* A child with small pieces and large ones, a thread with large ones. */
	return process == 0 || (process == 1 ? !aligned : cross);
}

static int usage(void)
{
	fprintf(stderr, "usage: conformance [OPTION...] [CALL/CASE...]\n"
		"  --all       every alignment in every kind of process\n"
		"  --some      each alignment in the main process, or in a child and a thread\n"
		"  --few       one alignment, in the main process\n"
		"  --big       also units of 256 MB, in the cases made for them\n"
		"  --only-big  these cases only\n"
		"  --as NAME   note the cases as those of a call of this name\n");
	return 2;
}

static bool option(char ***arg)
{
	const char *name = **arg;

	if (strcmp(name, "--all") == 0)
		all = true;
	else if (strcmp(name, "--some") == 0)
		some = true;
	else if (strcmp(name, "--few") == 0)
		few = true;
	else if (strcmp(name, "--big") == 0)
		big = true;
	else if (strcmp(name, "--only-big") == 0)
		big = only_big = true;
	else if (strcmp(name, "--as") == 0 && (*arg)[1])
		place = *++*arg;
	else
		return false;
	return true;
}

int main(int argc, char **argv)
{
	char **patterns = argv + 1;
	bool is_registered;
	struct utsname name;
	size_t runs = 0;
	int fd;

	if (argc == 6 && strcmp(argv[1], "--one") == 0)
		return one(argv);
	for (; *patterns && **patterns == '-'; patterns++)
		if (!option(&patterns))
			return usage();
	fd = memfd_create("report", 0);
	if (fd < 0 || ftruncate(fd, sizeof(*report)) != 0 ||
	    dup2(fd, REPORT_FD) != REPORT_FD) {
		perror("conformance: memfd");
		return 1;
	}
	report = mmap(NULL, sizeof(*report), RW, MAP_SHARED, REPORT_FD, 0);
	if (report == MAP_FAILED) {
		perror("conformance: mmap");
		return 1;
	}
	is_registered = in_pools();
	uname(&name);
	printf("{\"kernel\": \"%s\", \"registered\": %s}\n", name.release,
	       is_registered ? "true" : "false");
	fflush(stdout);
	for (size_t n = 0; &__start_conf_cases[n] < __stop_conf_cases; n++) {
		const struct conf_case *c = __start_conf_cases[n];

		if (!wanted(c, patterns) || (only_big && !(c->flags & BIG)))
			continue;
		for (size_t p = 0; p < ARRAY_SIZE(processes); p++)
			for (size_t a = 0; a < ARRAY_SIZE(alignments); a++)
				if (applies(c, p, &alignments[a])) {
					run_case(n, p, a, is_registered);
					runs++;
				}
	}
	printf("{\"end\": %zu}\n", runs);
	return fflush(stdout) == 0 ? 0 : 1;
}
