// SPDX-License-Identifier: GPL-2.0
/* execve(2), the stack and the heap of a new program. */
#include "common.h"

#include <alloca.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <unistd.h>

extern char **environ;

#define SELF	"/proc/self/exe"

/* Nothing of these programs depends on the runner: they are children. */
static void program_must_be_registered(void)
{
	const char *want = getenv("SEM_EXEC_REGISTERED");

	CHECK(want != NULL);
	CHECK_EQ(registered(), atoi(want));
}

/* Becomes the named program of this file; only in a child. */
static _Noreturn void become(const char *program, const char *arg)
{
	char *const argv[] = { "sem_exec", (char *)program, (char *)arg, NULL };

	CHECK_OK(setenv("SEM_EXEC_REGISTERED", registered() ? "1" : "0", 1));
	execve(SELF, argv, environ);
	FAIL("execve(" SELF "): %s", errno_name(errno));
}

static void run_program(const char *program, const char *arg)
{
	pid_t pid = fork_child();

	if (pid == 0)
		become(program, arg);
	expect_success(pid);
}

static void become_with_stack(rlim_t bytes, const char *program)
{
	struct rlimit limit;
	pid_t pid = fork_child();

	if (pid == 0) {
		CHECK_OK(getrlimit(RLIMIT_STACK, &limit));
		if (limit.rlim_max != RLIM_INFINITY &&
		    (bytes == RLIM_INFINITY || bytes > limit.rlim_max))
			SKIP("the hard limit RLIMIT_STACK is too low");
		limit.rlim_cur = bytes;
		CHECK_OK(setrlimit(RLIMIT_STACK, &limit));
		become(program, NULL);
	}
	expect_success(pid);
}

/* ---- Arguments and environment ---------------------------------------- */

#define NR_ARGS		8
#define NR_ENVS		8
#define STRING_BYTES	KB(64)

static char letter(size_t i, size_t n)
{
	return (char)('a' + (i * 7 + n) % 26);
}

static char *long_string(const char *prefix, size_t i)
{
	size_t start = strlen(prefix);
	char *text = malloc(STRING_BYTES);

	CHECK(text != NULL);
	memcpy(text, prefix, start);
	for (size_t n = start; n < STRING_BYTES - 1; n++)
		text[n] = letter(i, n);
	text[STRING_BYTES - 1] = '\0';
	return text;
}

static void check_string(const char *text, const char *prefix, size_t i)
{
	size_t start = strlen(prefix);

	CHECK(strncmp(text, prefix, start) == 0);
	CHECK_EQ(strlen(text), STRING_BYTES - 1);
	for (size_t n = start; n < STRING_BYTES - 1; n++)
		if (text[n] != letter(i, n))
			FAIL("%s%zu: character %zu is wrong", prefix, i, n);
}

static void program_arguments(int argc, char **argv)
{
	char **env = environ;

	program_must_be_registered();
	CHECK_EQ(argc, 2 + NR_ARGS);
	CHECK(argv[argc] == NULL);
	/* The kernel's layout: argc in front of argv, envp behind it. */
	CHECK_EQ(((long *)argv)[-1], argc);
	CHECK_EQ((uintptr_t)&argv[-1] % 16, 0);
	CHECK(env == argv + argc + 1);
	for (size_t i = 0; i < NR_ARGS; i++)
		check_string(argv[2 + i], "", i);
	for (size_t i = 0; i < NR_ENVS; i++)
		check_string(env[i], "LONG=", i);
	CHECK(strncmp(env[NR_ENVS], "SEM_EXEC_REGISTERED=", 20) == 0);
	CHECK(env[NR_ENVS + 1] == NULL);
	CHECK((void *)argv[2] > (void *)argv);
}

static void megabyte_of_arguments(void)
{
	char *argv[3 + NR_ARGS] = { "sem_exec", "arguments" };
	char *env[2 + NR_ENVS] = { NULL };
	char state[64];
	pid_t pid;

	snprintf(state, sizeof(state), "SEM_EXEC_REGISTERED=%d", registered());
	for (size_t i = 0; i < NR_ARGS; i++)
		argv[2 + i] = long_string("", i);
	for (size_t i = 0; i < NR_ENVS; i++)
		env[i] = long_string("LONG=", i);
	env[NR_ENVS] = state;
	pid = fork_child();
	if (pid == 0) {
		execve(SELF, argv, env);
		FAIL("execve: %s", errno_name(errno));
	}
	expect_success(pid);
	for (size_t i = 0; i < NR_ARGS; i++)
		free(argv[2 + i]);
	for (size_t i = 0; i < NR_ENVS; i++)
		free(env[i]);
}

static void too_many_arguments(void)
{
	enum { NR = 200 };
	char *text = long_string("", 0);
	pid_t pid = fork_child();

	if (pid == 0) {
		char *argv[NR + 1];

		for (size_t i = 0; i < NR; i++)
			argv[i] = text;
		argv[NR] = NULL;
		/* 12 MB; a quarter of an 8 MB stack is the limit. */
		CHECK_OK(setrlimit(RLIMIT_STACK, &(struct rlimit){ MB(8), MB(8) }));
		CHECK_ERR(execve(SELF, argv, environ), E2BIG);
		_exit(0);
	}
	expect_success(pid);
	free(text);
}

/* ---- Chains of programs ----------------------------------------------- */

static void program_chain(const char *arg)
{
	long left = strtol(arg, NULL, 10);
	char text[24];
	char *p;

	program_must_be_registered();
	p = map_anon(MB(3));
	verify_zero(p, MB(3));
	fill(p, MB(3), (uint64_t)left);
	p = sbrk(MB(1));
	CHECK_OK(p);
	verify_zero(p, MB(1));
	memset(p, 0xff, MB(1));
	if (left == 0)
		return;
	snprintf(text, sizeof(text), "%ld", left - 1);
	become("chain", text);
}

static void exec_in_a_loop(void)
{
	run_program("chain", "12");
}

static void *exec_in_thread(void *arg)
{
	become("chain", arg);
}

static _Noreturn void *wait_forever(void *arg)
{
	(void)arg;
	for (;;)
		pause();
}

/* The other threads end, and the program starts as if alone. */
static void exec_from_a_thread(void)
{
	pid_t pid = fork_child();

	if (pid == 0) {
		for (int i = 0; i < 3; i++)
			start_thread(wait_forever, NULL);
		start_thread(exec_in_thread, "1");
		wait_forever(NULL);
	}
	expect_success(pid);
}

static void program_environment(void)
{
	const char *execfn = (const char *)getauxval(AT_EXECFN);

	program_must_be_registered();
	CHECK(strcmp(getenv("SEM_EXEC_TEST"), "the value = 1") == 0);
	CHECK(getenv("PATH") == NULL || strlen(getenv("PATH")) > 0);
	CHECK(execfn != NULL && strcmp(execfn, SELF) == 0);
	CHECK_EQ(getauxval(AT_PAGESZ), PAGE);
	CHECK(getauxval(AT_SYSINFO_EHDR) != 0);
	CHECK(getauxval(AT_RANDOM) != 0);
	CHECK_EQ((uintptr_t)__builtin_frame_address(0) % 16, 0);
}

static void environment_is_intact(void)
{
	CHECK_OK(setenv("SEM_EXEC_TEST", "the value = 1", 1));
	run_program("environment", NULL);
	CHECK_OK(unsetenv("SEM_EXEC_TEST"));
}

static char *stack_top;

/* ---- Layout ------------------------------------------------------------ */

static void expect_name(const void *addr, const char *name)
{
	struct vma vma;

	if (!vma_at(addr, &vma))
		FAIL("/proc/self/maps has nothing at %p for %s", addr, name);
	CHECK(strncmp(vma.perms, "rw", 2) == 0);
	if (strcmp(vma.name, name) != 0)
		FAIL("%p is in %lx-%lx \"%s\", not %s", addr, vma.start, vma.end,
		     vma.name, name);
}

static void program_layout(void)
{
	int local = 1;
	char *heap = sbrk(KB(64));
	void *small = malloc(100);

	program_must_be_registered();
	CHECK_OK(heap);
	CHECK(small != NULL);
	expect_name(heap, "[heap]");
	expect_name(small, "[heap]");
	expect_name(&local, "[stack]");
	expect_name(map_anon(MB(4)), "");
	expect_name(map_anon(PAGE), "");
	/* A slot that was cut, and is one mapping again. */
	CHECK_OK(sbrk(MB(6)));
	heap = (char *)(((uintptr_t)sbrk(0) - MB(3)) & -SLOT);
	CHECK_OK(mprotect(heap + PAGE, PAGE, PROT_READ));
	expect_name(heap, "[heap]");
	CHECK_OK(mprotect(heap + PAGE, PAGE, RW));
	expect_name(heap, "[heap]");
	check_2m(heap, SLOT);
	/* The stack lies above the heap and above what mmap hands out. */
	CHECK((void *)&local > (void *)heap);
	CHECK((void *)&local > map_anon(MB(2)));
	free(small);
}

#define KPF_LRU 5

/* What execve has mapped of the stack is there, and on no list of what is reclaimed. */
static void program_stack_is_held(void)
{
	int fd = open("/proc/kpageflags", O_RDONLY | O_CLOEXEC);
	struct vma vma;

	CHECK(vma_at(stack_top, &vma));
	CHECK(vma.end - vma.start >= KB(128) && vma.end - vma.start <= KB(256));
	for (uintptr_t at = vma.start; at < vma.end; at += PAGE) {
		uint64_t entry = pagemap_entry((void *)at), flags;

		CHECK(entry >> 63 & 1);
		if (fd >= 0 && pread(fd, &flags, sizeof(flags), (off_t)((entry & ((1UL << 55) - 1)) * sizeof(flags))) ==
		    sizeof(flags))
			CHECK(!(flags >> KPF_LRU & 1));
	}
	close(fd);
}

static void stack_is_held(void)
{
	if (!registered())
		SKIP("Linux populates no stack");
	run_program("stack-is-held", NULL);
}

static void child_layout(void *arg)
{
	int local;

	(void)arg;
	expect_name(sbrk(0) - 1, "[heap]");
	CHECK_OK(sbrk(MB(4)));
	expect_name(sbrk(0) - 1, "[heap]");
	expect_name(&local, "[stack]");
	expect_name(map_anon(MB(4)), "");
}

static void heap_and_stack_are_listed(void)
{
	run_program("layout", NULL);
	in_child(child_layout, NULL);
}

extern char end[];

static void program_break(void)
{
	char line[1024], *at;
	unsigned long first = 0;
	FILE *stat = fopen("/proc/self/stat", "r");

	program_must_be_registered();
	CHECK(stat && fgets(line, sizeof(line), stat));
	fclose(stat);
	/* The third field is the one behind the name, and 47 is start_brk. */
	at = strtok(strrchr(line, ')') + 1, " ");
	for (int i = 3; at && i < 47; i++)
		at = strtok(NULL, " ");
	CHECK(at && sscanf(at, "%lu", &first) == 1);
	CHECK_EQ(first, ((uintptr_t)end + PAGE - 1) & -PAGE);
	CHECK((char *)sbrk(0) >= end);
	CHECK_OK(sbrk(MB(3)));
	fill(sbrk(0) - MB(3), MB(3), 1);
	verify(sbrk(0) - MB(3), MB(3), 1, 0);
}

/* Programs that dump themselves, or manage their heap from the end of the image, need that. */
static void heap_follows_the_image(void)
{
	pid_t pid = fork_child();

	if (pid == 0) {
		CHECK_OK(personality(ADDR_NO_RANDOMIZE));
		become("break", NULL);
	}
	expect_success(pid);
}

static void program_pthread_attr(void)
{
	struct rlimit limit;
	pthread_attr_t attr;
	size_t size, guard;
	void *addr;
	char local;

	CHECK_OK(getrlimit(RLIMIT_STACK, &limit));
	CHECK_EQ(pthread_getattr_np(pthread_self(), &attr), 0);
	CHECK_EQ(pthread_attr_getstack(&attr, &addr, &size), 0);
	CHECK_EQ(pthread_attr_getguardsize(&attr, &guard), 0);
	CHECK_EQ((uintptr_t)addr % PAGE, 0);
	CHECK((void *)&local >= addr);
	CHECK((void *)&local < (void *)((char *)addr + size));
	CHECK(size >= KB(64));
	if (limit.rlim_cur != RLIM_INFINITY)
		CHECK(size <= limit.rlim_cur);
	pthread_attr_destroy(&attr);
}

static void main_thread_attributes(void)
{
	become_with_stack(MB(8), "pthread-attr");
	become_with_stack(MB(64), "pthread-attr");
}

/* ---- Stack depth -------------------------------------------------------- */


static size_t depth_of(const void *addr)
{
	return (size_t)(stack_top - (const char *)addr);
}

/* Uses the stack down to the depth, page by page, and checks it on return. */
static unsigned int __attribute__((noinline)) descend(size_t depth, unsigned int n)
{
	volatile unsigned int frame[2 * PAGE / sizeof(unsigned int)];
	unsigned int below = 0;

	frame[0] = n;
	frame[PAGE / sizeof(unsigned int)] = n + 1;
	if (depth_of((const void *)frame) < depth)
		below = descend(depth, n + 1);
	CHECK_EQ(frame[0], n);
	CHECK_EQ(frame[PAGE / sizeof(unsigned int)], n + 1);
	return below + frame[0];
}

static void program_deep(size_t depth)
{
	program_must_be_registered();
	descend(depth, 0);
	/* Memory that is not part of the stack still works next to it. */
	fill(map_anon(MB(4)), MB(4), 1);
	descend(depth, 5);
}

/* The first access is far below everything used so far. */
static void program_far(void)
{
	char *p = alloca(MB(6));
	struct totals before;

	program_must_be_registered();
	CHECK_EQ(((volatile char *)p)[0], 0);
	((volatile char *)p)[0] = 1;
	before = totals_now();
	stamp(p, MB(6), 1);
	/* It is memory of Linux. */
	CHECK_EQ(totals_now().user, before.user);
	watch_begin();
	stamp(p, MB(6), 1);
	EXPECT_NO_FAULTS(p, MB(6));
	verify_stamp(p, MB(6), 1);
}

static void seven_of_eight_mb(void)
{
	become_with_stack(MB(8), "deep-7");
	become_with_stack(MB(8), "far");
}

static void forty_of_64_mb(void)
{
	become_with_stack(MB(64), "deep-40");
}

static void unlimited_stack(void)
{
	become_with_stack(RLIM_INFINITY, "deep-16");
}

static void tiny_stack(void)
{
	become_with_stack(KB(512), "chain-0");
}

/* The limit at the time of the fault counts, not that of the start. */
static void program_raised_limit(void)
{
	struct rlimit limit;

	CHECK_OK(getrlimit(RLIMIT_STACK, &limit));
	limit.rlim_cur = MB(32);
	CHECK_OK(setrlimit(RLIMIT_STACK, &limit));
	descend(MB(24), 0);
}

static void limit_raised_at_run_time(void)
{
	become_with_stack(MB(8), "raised-limit");
}

static void overflow_handler(int sig, siginfo_t *info, void *context)
{
	size_t depth = depth_of(info->si_addr);

	(void)context;
	if (sig != SIGSEGV)
		_exit(CHILD_FAILED);
	/* The limit counts from the top of the stack, which is a little above. */
	if (depth < MB(8) - MB(1) || depth > MB(8) + KB(64)) {
		note("overflow at a depth of %zu KB", depth >> 10);
		_exit(CHILD_FAILED);
	}
	_exit(42);
}

static void program_overflow(bool handled)
{
	program_must_be_registered();
	if (handled) {
		stack_t stack = { .ss_size = KB(64) };
		struct sigaction action = {
			.sa_flags = SA_SIGINFO | SA_ONSTACK,
			.sa_sigaction = overflow_handler,
		};

		stack.ss_sp = map_anon(KB(64));
		CHECK_OK(sigaltstack(&stack, NULL));
		CHECK_OK(sigaction(SIGSEGV, &action, NULL));
		CHECK_OK(sigaction(SIGBUS, &action, NULL));
	}
	descend(GB(1), 0);
}

static void overflow(const char *program, int code, int sig)
{
	pid_t pid = fork_child();

	if (pid == 0) {
		CHECK_OK(setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 }));
		CHECK_OK(setrlimit(RLIMIT_STACK, &(struct rlimit){ MB(8), MB(8) }));
		become(program, NULL);
	}
	if (sig)
		expect_signal(pid, sig);
	else
		expect_exit(pid, code);
}

static void overflow_is_sigsegv(void)
{
	overflow("overflow", 0, SIGSEGV);
}

static void overflow_on_the_alternate_stack(void)
{
	overflow("overflow-handled", 42, 0);
}

/* A forked child has a stack of its own that behaves alike. */
static void overflow_in_a_forked_child(void)
{
	pid_t pid = fork_child();

	if (pid == 0) {
		CHECK_OK(setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 }));
		CHECK_OK(setrlimit(RLIMIT_STACK, &(struct rlimit){ MB(8), MB(8) }));
		descend(GB(1), 0);
		_exit(0);
	}
	expect_signal(pid, SIGSEGV);
}

static void *small_stack_overflow(void *arg)
{
	(void)arg;
	stack_top = __builtin_frame_address(0);
	descend(GB(1), 0);
	return NULL;
}

static void overflow_of_a_thread_hits_its_guard(void)
{
	pid_t pid = fork_child();

	if (pid == 0) {
		CHECK_OK(setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 }));
		pthread_join(start_thread(small_stack_overflow, NULL), NULL);
		_exit(0);
	}
	expect_signal(pid, SIGSEGV);
}

static int run_named_program(int argc, char **argv)
{
	const char *name = argv[1];

	if (strcmp(name, "arguments") == 0)
		program_arguments(argc, argv);
	else if (strcmp(name, "chain") == 0)
		program_chain(argv[2]);
	else if (strcmp(name, "chain-0") == 0)
		program_chain("0");
	else if (strcmp(name, "environment") == 0)
		program_environment();
	else if (strcmp(name, "layout") == 0)
		program_layout();
	else if (strcmp(name, "break") == 0)
		program_break();
	else if (strcmp(name, "pthread-attr") == 0)
		program_pthread_attr();
	else if (strcmp(name, "deep-7") == 0)
		program_deep(MB(7));
	else if (strcmp(name, "deep-16") == 0)
		program_deep(MB(16));
	else if (strcmp(name, "deep-40") == 0)
		program_deep(MB(40));
	else if (strcmp(name, "far") == 0)
		program_far();
	else if (strcmp(name, "raised-limit") == 0)
		program_raised_limit();
	else if (strcmp(name, "stack-is-held") == 0)
		program_stack_is_held();
	else if (strcmp(name, "overflow") == 0)
		program_overflow(false);
	else if (strcmp(name, "overflow-handled") == 0)
		program_overflow(true);
	else
		FAIL("no program is named \"%s\"", name);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		T(megabyte_of_arguments),
		T(too_many_arguments),
		T(exec_in_a_loop),
		T(exec_from_a_thread),
		T(environment_is_intact),
		T(heap_and_stack_are_listed),
		T(stack_is_held),
		T(heap_follows_the_image),
		T(main_thread_attributes),
		T(seven_of_eight_mb),
		T(forty_of_64_mb),
		T(unlimited_stack),
		T(tiny_stack),
		T(limit_raised_at_run_time),
		T(overflow_is_sigsegv),
		T(overflow_on_the_alternate_stack),
		T(overflow_in_a_forked_child),
		T(overflow_of_a_thread_hits_its_guard),
	};

	stack_top = (char *)argv;
	if (argc > 1)
		return run_named_program(argc, argv);
	return RUN_GROUP("sem_exec", tests);
}
