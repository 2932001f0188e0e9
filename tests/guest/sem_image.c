// SPDX-License-Identifier: GPL-2.0
/*
 * The program itself: contents and permissions of text, data and bss, and the
 * page faults it takes from main() on. Linked in several ways as image_*.
 *
 * HPMMAP_TEST_IMAGE=yes: launched with --image, so the program is in pool
 * memory and takes no fault at all.
 */
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <regex.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common.h"
#include "image_filler.h"

#define BSS_BYTES	MB(120)
/* Where it is touched: a few of its pages, for the record of faults is short. */
#define BSS_STEP	KB(64)

extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));
extern char **environ;

static char bss[BSS_BYTES];
static __thread int tls_data = 1234;
static __thread int tls_bss;
/* In a PIE relocated at start and read-only from then on. */
static const void *const pointers[] = { filler_text, filler_data, bss };

static bool image_expected(void)
{
	const char *image = getenv("HPMMAP_TEST_IMAGE");

	return image && !strcmp(image, "yes");
}

/* ---- Faults --------------------------------------------------------- */

static struct {
	long minor;
	long major;
	size_t user;
	size_t kernel;
	double result;
} run;

static int compare(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

/* Functions of libc and the vDSO that nothing has called before. */
static double use_libc(void)
{
	int numbers[] = { 3, 1, 2 };
	struct timespec now;
	char text[64];
	regex_t regex;
	double sum;

	qsort(numbers, ARRAY_SIZE(numbers), sizeof(*numbers), compare);
	snprintf(text, sizeof(text), "%.3f", numbers[0] + 0.25);
	sum = strtod(text, NULL);
	if (regcomp(&regex, "^([0-9]+)[.]25", REG_EXTENDED) == 0) {
		sum += regexec(&regex, text, 0, NULL, 0) == 0;
		regfree(&regex);
	}
	clock_gettime(CLOCK_MONOTONIC, &now);
	return sum + (now.tv_nsec < 0) + (time(NULL) == 0);
}

static size_t use_program(void)
{
	size_t wrong = 0;

	for (size_t n = 0; n < FILLER; n++) {
		volatile uint64_t *data = (uint64_t *)(filler_data + n * PAGE);

		((void (*)(void))(filler_text + n * PAGE))();
		wrong += *(volatile uint64_t *)(filler_rodata + n * PAGE) != FILLER_WORD(n);
		wrong += *data != FILLER_WORD(n);
		*data += 1;
	}
	for (size_t off = 0; off < sizeof(bss); off += BSS_STEP)
		wrong += bss[off]++ != 0;
	wrong += tls_data++ != 1234;
	wrong += tls_bss++ != 0;
	return wrong;
}

/* The first thing in main(). */
static void run_program(void)
{
	struct rusage before, after;
	size_t wrong;

	/* Linux counts what the call that grows the heap maps. */
	free(strdup(program_invocation_name));
	watch_begin();
	getrusage(RUSAGE_SELF, &before);
	wrong = use_program();
	run.result = use_libc() + wrong;
	getrusage(RUSAGE_SELF, &after);
	watch_end();
	run.minor = after.ru_minflt - before.ru_minflt;
	run.major = after.ru_majflt - before.ru_majflt;
	run.user = watch_user_faults(NULL, SIZE_MAX);
	run.kernel = watch_kernel_faults(NULL, SIZE_MAX);
}

static void run_without_faults(void)
{
	note("%ld minor, %ld major faults; recorded: %zu of the program, %zu of the kernel",
	     run.minor, run.major, run.user, run.kernel);
	/* 1.250 and a match. */
	CHECK(run.result == 2.25);
	if (image_expected()) {
		CHECK_EQ(run.minor, 0);
		CHECK_EQ(run.major, 0);
		CHECK_EQ(run.user, 0);
		CHECK_EQ(run.kernel, 0);
	} else {
		CHECK(run.minor + run.major > 0);
		CHECK(run.user > 0);
	}
}

/* ---- What execve made ----------------------------------------------- */

static const char *load_base(void)
{
	const ElfW(Phdr) *ph = (const void *)((const char *)&__ehdr_start +
					      __ehdr_start.e_phoff);

	while (ph->p_type != PT_LOAD)
		ph++;
	return (const char *)&__ehdr_start - (ph->p_vaddr - ph->p_offset);
}

static const ElfW(Phdr) *segment(int i)
{
	const ElfW(Phdr) *ph = (const void *)((const char *)&__ehdr_start +
					      __ehdr_start.e_phoff);

	return i < __ehdr_start.e_phnum ? ph + i : NULL;
}

static const ElfW(Phdr) *relro(void)
{
	const ElfW(Phdr) *ph;

	for (int i = 0; (ph = segment(i)); i++)
		if (ph->p_type == PT_GNU_RELRO)
			return ph;
	return NULL;
}

static bool in_relro(const char *addr)
{
	const ElfW(Phdr) *ph = relro();
	const char *start;

	if (!ph)
		return false;
	start = (const char *)((uintptr_t)(load_base() + ph->p_vaddr) & -PAGE);
	return addr >= start &&
	       addr < (const char *)((uintptr_t)(load_base() + ph->p_vaddr + ph->p_memsz) & -PAGE);
}

static bool is_pool(const struct vma *vma)
{
	return vma->perms[3] == 's' && !vma->name[0];
}

static void expect_page(const char *addr, unsigned int flags)
{
	char perms[] = {
		flags & PF_R ? 'r' : '-', flags & PF_W ? 'w' : '-',
		flags & PF_X ? 'x' : '-', 0,
	};
	struct vma vma;

	CHECK(vma_at(addr, &vma));
	if (strncmp(vma.perms, perms, 3) != 0)
		FAIL("%p is %s, not %s", addr, vma.perms, perms);
	if (image_expected() != is_pool(&vma))
		FAIL("%p is in a mapping of %s", addr, vma.name);
}

static void mappings(void)
{
	const ElfW(Phdr) *ph;
	int found = 0;

	for (int i = 0; (ph = segment(i)); i++) {
		const char *start = load_base() + ph->p_vaddr;
		const char *end = start + ph->p_memsz;

		if (ph->p_type != PT_LOAD)
			continue;
		found++;
		start = (const char *)((uintptr_t)start & -PAGE);
		for (; start < end; start += PAGE * 16)
			expect_page(start, in_relro(start) ? PF_R : ph->p_flags);
	}
	CHECK(found >= 2);
	if (!image_expected())
		return;
	check_2m(filler_text, FILLER_BYTES);
	check_2m(filler_rodata, FILLER_BYTES);
	check_2m(filler_data, FILLER_BYTES);
	check_2m(bss, sizeof(bss));
	CHECK(context_value("image_bytes") >= 3 * FILLER_BYTES + sizeof(bss));
	CHECK_EQ(context_value("fallbacks"), 0);
	/* More than a slot of each is covered whole, if it is aligned. */
	if (FILLER_BYTES >= 2 * SLOT)
		CHECK(mapped_2m_bytes() >= BSS_BYTES + 3 * SLOT);
}

static void links(void)
{
	char path[256], name[64];
	ssize_t len = readlink("/proc/self/exe", path, sizeof(path) - 1);

	CHECK(len > 0);
	path[len] = 0;
	snprintf(name, sizeof(name), "/%s", program_invocation_short_name);
	CHECK(strlen(path) > strlen(name));
	CHECK(!strcmp(path + strlen(path) - strlen(name), name));
	CHECK(getauxval(AT_PHDR) == (uintptr_t)segment(0));
	/* It runs: nobody may write to it. */
	CHECK_ERR(open("/proc/self/exe", O_WRONLY), ETXTBSY);
}

/* What nobody writes to is what the file says. */
static void contents(void)
{
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	static char page[KB(64)];
	const ElfW(Phdr) *ph;
	size_t compared = 0;

	CHECK_OK(fd);
	for (int i = 0; (ph = segment(i)); i++) {
		const char *start = load_base() + ph->p_vaddr;

		if (ph->p_type != PT_LOAD || ph->p_flags & PF_W)
			continue;
		for (size_t off = 0; off < ph->p_filesz; off += sizeof(page)) {
			size_t len = ph->p_filesz - off;

			if (len > sizeof(page))
				len = sizeof(page);
			CHECK_EQ(pread(fd, page, len, ph->p_offset + off), len);
			CHECK(!memcmp(page, start + off, len));
			compared += len;
		}
	}
	close(fd);
	CHECK(compared >= 2 * FILLER_BYTES);
	/* run_program() has added one to each page. */
	for (size_t n = 0; n < FILLER; n++) {
		CHECK_EQ(*(uint64_t *)(filler_data + n * PAGE), FILLER_WORD(n) + 1);
		verify_zero(filler_data + n * PAGE + 8, PAGE - 8);
	}
	for (size_t off = 0; off < sizeof(bss); off += BSS_STEP)
		CHECK_EQ(bss[off], 1);
	verify_zero(bss + 1, PAGE - 1);
	verify_zero(bss + sizeof(bss) - PAGE, PAGE);
	CHECK(pointers[0] == filler_text && pointers[1] == filler_data &&
	      pointers[2] == bss);
}

/* ---- Protection ----------------------------------------------------- */

static sigjmp_buf jump_back;
static siginfo_t jump_info;

static void jump_handler(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)context;
	jump_info = *info;
	siglongjmp(jump_back, 1);
}

static void expect_no_exec(const void *addr)
{
	struct sigaction action = { .sa_flags = SA_SIGINFO }, old;

	action.sa_sigaction = jump_handler;
	CHECK_OK(sigaction(SIGSEGV, &action, &old));
	if (sigsetjmp(jump_back, 1) == 0) {
		((void (*)(void))addr)();
		FAIL("%p can be executed", addr);
	}
	CHECK_OK(sigaction(SIGSEGV, &old, NULL));
	CHECK_EQ(jump_info.si_code, SEGV_ACCERR);
	CHECK(jump_info.si_addr == addr);
}

static void protection(void)
{
	const ElfW(Phdr) *ph = relro();

	CHECK_WRITE_SEGV((void *)filler_text, SEGV_ACCERR);
	CHECK_WRITE_SEGV((void *)(filler_text + FILLER_BYTES - 1), SEGV_ACCERR);
	CHECK_WRITE_SEGV((void *)filler_rodata, SEGV_ACCERR);
	CHECK_WRITE_SEGV((void *)pointers, SEGV_ACCERR);
	if (ph && in_relro(load_base() + ph->p_vaddr))
		CHECK_WRITE_SEGV((void *)(load_base() + ph->p_vaddr), SEGV_ACCERR);
	expect_no_exec(filler_rodata);
	expect_no_exec(filler_data);
	expect_no_exec(bss);
}

static void between_segments(void)
{
	const ElfW(Phdr) *ph;
	const char *end = NULL;
	struct vma vma;

	/* What no segment covers is not there, even where 2 MB would be. */
	for (int i = 0; (ph = segment(i)); i++) {
		const char *start = load_base() + ph->p_vaddr;

		if (ph->p_type != PT_LOAD)
			continue;
		start = (const char *)((uintptr_t)start & -PAGE);
		if (end && end < start && !vma_at(end, &vma))
			CHECK_READ_SEGV(end, SEGV_MAPERR);
		else if (end && end < start)
			CHECK_READ_SEGV(end, SEGV_ACCERR);
		end = load_base() + ph->p_vaddr + ph->p_memsz;
		end = (const char *)(((uintptr_t)end + PAGE - 1) & -PAGE);
	}
}

static void changed_text(void)
{
	static const unsigned char code[] = {
		0xf3, 0x0f, 0x1e, 0xfa,		/* endbr64 */
		0xb8, 42, 0, 0, 0,		/* mov $42, %eax */
		0xc3,				/* ret */
	};
	char *page = (char *)filler_text + 5 * PAGE;
	pid_t pid;

	CHECK_OK(mprotect(page, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC));
	memcpy(page, code, sizeof(code));
	CHECK_OK(mprotect(page, PAGE, PROT_READ | PROT_EXEC));
	CHECK_EQ(((int (*)(void))page)(), 42);
	CHECK_WRITE_SEGV(page, SEGV_ACCERR);
	CHECK_EQ(memcmp(page - PAGE, filler_text, PAGE), 0);
	CHECK_EQ(memcmp(page + PAGE, filler_text, PAGE), 0);

	/* A change in the child is the child's. */
	pid = fork_child();
	if (pid == 0) {
		CHECK_EQ(((int (*)(void))page)(), 42);
		CHECK_OK(mprotect(page, PAGE, RW));
		memcpy(page, filler_text, PAGE);
		CHECK_OK(mprotect(page, PAGE, PROT_READ | PROT_EXEC));
		((void (*)(void))page)();
		_exit(0);
	}
	expect_success(pid);
	CHECK_EQ(((int (*)(void))page)(), 42);
	CHECK_OK(mprotect(page, PAGE, RW));
	memcpy(page, filler_text, PAGE);
	CHECK_OK(mprotect(page, PAGE, PROT_READ | PROT_EXEC));
	if (image_expected())
		check_2m(filler_text, FILLER_BYTES);
}

/* ---- Processes and threads ------------------------------------------ */

static void forked(void)
{
	uint64_t *data = (uint64_t *)filler_data;
	int to_parent[2], to_child[2];
	pid_t pid;

	CHECK_OK(pipe(to_parent));
	CHECK_OK(pipe(to_child));
	pid = fork_child();
	if (pid == 0) {
		CHECK_EQ(data[0], FILLER_WORD(0) + 1);
		CHECK_EQ(bss[MB(100)], 1);
		data[0] = 77;
		bss[MB(100)] = 78;
		tell(to_parent[1]);
		await(to_child[0]);
		CHECK_EQ(data[0], 77);
		CHECK_EQ(bss[MB(100)], 78);
		CHECK_EQ(bss[MB(50)], 1);
		CHECK(!memcmp(filler_text, filler_text + PAGE, PAGE));
		_exit(0);
	}
	await(to_parent[0]);
	CHECK_EQ(data[0], FILLER_WORD(0) + 1);
	CHECK_EQ(bss[MB(100)], 1);
	bss[MB(50)] = 99;
	tell(to_child[1]);
	expect_success(pid);
	bss[MB(50)] = 1;
	CHECK_EQ(data[0], FILLER_WORD(0) + 1);
	CHECK_EQ(bss[MB(100)], 1);
	close(to_parent[0]);
	close(to_parent[1]);
	close(to_child[0]);
	close(to_child[1]);
}

/* Program of the chain: n more after this one. */
static int chain(int n)
{
	char rest[16];
	struct vma vma;

	if (use_program() || !vma_at(filler_text, &vma) ||
	    image_expected() != is_pool(&vma))
		return 1;
	if (n == 0)
		return 0;
	snprintf(rest, sizeof(rest), "%d", n - 1);
	execl("/proc/self/exe", program_invocation_name, "chain", rest, NULL);
	return 2;
}

static void executed(void)
{
	char *argv[] = { program_invocation_name, "chain", "3", NULL };
	pid_t pid;
	int error;

	pid = fork_child();
	if (pid == 0) {
		execv("/proc/self/exe", argv);
		_exit(3);
	}
	expect_success(pid);
	error = posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ);
	CHECK_EQ(error, 0);
	expect_success(pid);
	CHECK_EQ(bss[0], 1);
}

static void *thread_locals(void *arg)
{
	CHECK_EQ(tls_data, 1234);
	CHECK_EQ(tls_bss, 0);
	for (int i = 0; i < 1000; i++) {
		tls_data++;
		tls_bss--;
	}
	CHECK_EQ(tls_data, 2234);
	CHECK_EQ(tls_bss, -1000);
	return arg;
}

static void threads(void)
{
	pthread_t started[4];

	for (size_t i = 0; i < ARRAY_SIZE(started); i++)
		started[i] = start_thread(thread_locals, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(started); i++)
		join_thread(started[i]);
	CHECK_EQ(tls_data, 1235);
	CHECK_EQ(tls_bss, 1);
}

static void heap_after_bss(void)
{
	char *brk = sbrk(0);

	CHECK(brk >= bss + sizeof(bss) || brk < bss);
	CHECK(sbrk(MB(4)) == brk);
	CHECK_TOUCH(brk, MB(4));
	CHECK_OK(brk == sbrk(-MB(4)) - MB(4) ? 0 : -1);
}

#ifdef DYNAMIC
static void loaded_library(void)
{
	char path[256];
	ssize_t len = readlink("/proc/self/exe", path, sizeof(path) - 32);
	int (*sum)(void);
	void *lib;

	CHECK(len > 0);
	path[len] = 0;
	strcpy(strrchr(path, '/'), "/lib/image_lib.so");
	lib = dlopen(path, RTLD_LAZY);
	if (!lib)
		FAIL("%s", dlerror());
	sum = (int (*)(void))dlsym(lib, "image_lib_sum");
	CHECK(sum);
	watch_begin();
	CHECK_EQ(sum(), 42);
	watch_end();
	note("%zu faults", watch_user_faults(NULL, SIZE_MAX));
	if (image_expected())
		CHECK_EQ(watch_user_faults(NULL, SIZE_MAX), 0);
	else
		CHECK(watch_user_faults(NULL, SIZE_MAX) > 0);
	CHECK_EQ(dlclose(lib), 0);
}
#endif

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		T(run_without_faults),
		T(mappings),
		T(links),
		T(contents),
		T(protection),
		T(between_segments),
		T(changed_text),
		T(forked),
		T(executed),
		T(threads),
		T(heap_after_bss),
#ifdef DYNAMIC
		T(loaded_library),
#endif
	};

	if (argc == 3 && !strcmp(argv[1], "chain"))
		return chain(atoi(argv[2]));
	run_program();
	return RUN_GROUP(program_invocation_short_name, tests);
}
