// SPDX-License-Identifier: GPL-2.0
/*
 * A virtual machine whose memory is that of a program: KVM without a VMM. Under HPMMAP its nested
 * entries are as large as the program's, and follow whatever becomes of its mappings. So they are without
 * HPMMAP where the memory is a file of a mount with pagesize=1G.
 *
 * The guest has flat segments and no page tables: its addresses are offsets into its memory.
 */
#include "common.h"

#include <fcntl.h>
#include <linux/kvm.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* The guest's memory, at a multiple of 1 GB as the guest's address 0 is. */
#define A	((char *)TB(16))
#define SIZE	GB(1)
/* Where its code is, and in each page the word that it uses. */
#define CODE	PAGE
#define WORD	0x800u
#define STATS	"/sys/kernel/debug/kvm"
#define SYSFS	"/sys/kernel/hpmmap"

/*
 * Writes, or reads, one word of each page from %esi to %edi: (its address & %ebp) ^ %ebx.
 * %edx: how many words differ.
 */
extern const char guest_code[], guest_read[], guest_code_end[];
__asm__(".pushsection .rodata\n"
	".code32\n"
	"guest_code:\n"
	"1:	mov	%esi, %eax\n"
	"	and	%ebp, %eax\n"
	"	xor	%ebx, %eax\n"
	"	mov	%eax, (%esi)\n"
	"	add	%ecx, %esi\n"
	"	cmp	%edi, %esi\n"
	"	jb	1b\n"
	"	hlt\n"
	"guest_read:\n"
	"1:	mov	%esi, %eax\n"
	"	and	%ebp, %eax\n"
	"	xor	%ebx, %eax\n"
	"	cmp	%eax, (%esi)\n"
	"	je	2f\n"
	"	inc	%edx\n"
	"2:	add	%ecx, %esi\n"
	"	cmp	%edi, %esi\n"
	"	jb	1b\n"
	"	hlt\n"
	"guest_code_end:\n"
	".code64\n"
	".popsection\n");

struct vm {
	int kvm, fd, cpu;
	struct kvm_run *run;
	size_t run_size;
};

static void set_memory(struct vm *vm, uint32_t flags)
{
	struct kvm_userspace_memory_region region = {
		.flags = flags, .memory_size = SIZE, .userspace_addr = (uintptr_t)A,
	};

	CHECK_OK(ioctl(vm->fd, KVM_SET_USER_MEMORY_REGION, &region));
}

static void set_segment(struct kvm_segment *segment, bool code)
{
	*segment = (struct kvm_segment){
		.limit = UINT32_MAX, .selector = code ? 8 : 16, .type = code ? 11 : 3,
		.present = 1, .db = 1, .s = 1, .g = 1,
	};
}

static struct vm vm_start(void)
{
	struct kvm_sregs sregs;
	struct vm vm;

	vm.kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	if (vm.kvm < 0)
		SKIP("/dev/kvm: %s", errno_name(errno));
	vm.fd = ioctl(vm.kvm, KVM_CREATE_VM, 0);
	CHECK_OK(vm.fd);
	set_memory(&vm, 0);
	vm.cpu = ioctl(vm.fd, KVM_CREATE_VCPU, 0);
	CHECK_OK(vm.cpu);
	vm.run_size = (size_t)ioctl(vm.kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
	vm.run = mmap(NULL, vm.run_size, RW, MAP_SHARED, vm.cpu, 0);
	CHECK_OK(vm.run);
	CHECK_OK(ioctl(vm.cpu, KVM_GET_SREGS, &sregs));
	set_segment(&sregs.cs, true);
	set_segment(&sregs.ds, false);
	sregs.es = sregs.ss = sregs.ds;
	sregs.cr0 |= 1;
	CHECK_OK(ioctl(vm.cpu, KVM_SET_SREGS, &sregs));
	memcpy(A + CODE, guest_code, (size_t)(guest_code_end - guest_code));
	return vm;
}

static void vm_end(struct vm *vm)
{
	unmap(vm->run, vm->run_size);
	close(vm->cpu);
	close(vm->fd);
	close(vm->kvm);
}

/* Returns 0, or the errno that stops the guest. @bad: how many words differ. */
static int run(struct vm *vm, bool read, size_t from, size_t to, uint32_t mask, uint32_t seed, uint64_t *bad)
{
	struct kvm_regs regs = {
		.rip = CODE + (read ? (size_t)(guest_read - guest_code) : 0),
		.rflags = 2, .rsi = from + WORD, .rdi = to, .rcx = PAGE, .rbx = seed, .rbp = mask,
	};
	int ret;

	CHECK_OK(ioctl(vm->cpu, KVM_SET_REGS, &regs));
	do
		ret = ioctl(vm->cpu, KVM_RUN, 0);
	while (ret < 0 && errno == EINTR);
	if (ret < 0)
		return errno;
	/* With shadow paging the instruction is emulated, and finds nothing. */
	if (vm->run->exit_reason == KVM_EXIT_MMIO || vm->run->exit_reason == KVM_EXIT_INTERNAL_ERROR) {
		vm->run->immediate_exit = 1;
		ioctl(vm->cpu, KVM_RUN, 0);
		vm->run->immediate_exit = 0;
		return EFAULT;
	}
	CHECK_EQ(vm->run->exit_reason, KVM_EXIT_HLT);
	CHECK_OK(ioctl(vm->cpu, KVM_GET_REGS, &regs));
	CHECK_EQ(regs.rsi, to + WORD);
	*bad = regs.rdx;
	return 0;
}

/* The guest writes, or expects, what put() does. */
static void guest_puts(struct vm *vm, size_t from, size_t to, uint32_t seed)
{
	uint64_t bad;

	CHECK_EQ(run(vm, false, from, to, UINT32_MAX, seed, &bad), 0);
}

static void guest_expects(struct vm *vm, size_t from, size_t to, uint32_t seed)
{
	uint64_t bad;

	CHECK_EQ(run(vm, true, from, to, UINT32_MAX, seed, &bad), 0);
	CHECK_EQ(bad, 0);
}

static void guest_expects_zero(struct vm *vm, size_t from, size_t to)
{
	uint64_t bad;

	CHECK_EQ(run(vm, true, from, to, 0, 0, &bad), 0);
	CHECK_EQ(bad, 0);
}

static void guest_has_nothing(struct vm *vm, size_t from)
{
	uint64_t bad;

	CHECK_EQ(run(vm, true, from, from + PAGE, UINT32_MAX, 0, &bad), EFAULT);
	CHECK_EQ(run(vm, false, from, from + PAGE, UINT32_MAX, 0, &bad), EFAULT);
}

static volatile uint32_t *word_at(const char *memory, size_t off)
{
	return (volatile uint32_t *)(uintptr_t)(memory + off + WORD);
}

/* @memory: where the guest's address @from is. */
static void put(char *memory, size_t from, size_t to, uint32_t seed)
{
	for (size_t off = from; off < to; off += PAGE)
		*word_at(memory, off - from) = (uint32_t)(off + WORD) ^ seed;
}

static void expect(const char *memory, size_t from, size_t to, uint32_t seed)
{
	for (size_t off = from; off < to; off += PAGE)
		CHECK_EQ(*word_at(memory, off - from), (uint32_t)(off + WORD) ^ seed);
}

/* ---- Entries ------------------------------------------------------------------ */

/* Is the memory mapped by one entry? */
static bool whole;

/* Memory that was given back a moment ago comes in pieces until it is zeroed. */
static void map_memory(void)
{
	uint64_t before = registered() ? context_value("entries_1g") : 0;

	for (int i = 0; registered() && i < 100 && pool_value("clean_bytes") != pool_value("free_bytes"); i++)
		pause_ms(50);
	unmap(A, SIZE);
	map_flags(A, SIZE, RW, ANON | MAP_FIXED_NOREPLACE);
	whole = registered() && context_value("entries_1g") != before;
}

static uint64_t number_in(const char *dir, const char *name)
{
	char path[96], text[32] = "";
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK_OK(fd);
	CHECK(read(fd, text, sizeof(text) - 1) > 0);
	close(fd);
	return strtoull(text, NULL, 10);
}

/* Nested entries of all virtual machines, of which there is one. */
static uint64_t nested(const char *size)
{
	char name[16];

	snprintf(name, sizeof(name), "pages_%s", size);
	return number_in(STATS, name);
}

static void expect_nested(uint64_t by_1g, uint64_t by_2m)
{
	if (!maps_2m())
		return;
	CHECK_EQ(nested("1g"), by_1g);
	CHECK_EQ(nested("2m"), by_2m);
	CHECK_EQ(nested("4k"), 0);
}

/* A reader of smaps splits an entry of 1 GB. */
static void split(void)
{
	uint64_t before = whole ? job_value("splits_1g") : 0;

	shell("cat /proc/%d/smaps >/dev/null", getpid());
	if (whole)
		CHECK(job_value("splits_1g") > before);
}

static void await_joined(void)
{
	uint64_t before = whole ? job_value("joins_1g") : 0;

	for (int i = 0; whole && i < 200 && job_value("joins_1g") == before; i++)
		pause_ms(50);
	CHECK(!whole || job_value("joins_1g") != before);
}

static void all_by_the_largest_entries(void)
{
	struct vm vm;

	map_memory();
	vm = vm_start();
	watch_begin();
	guest_puts(&vm, 0, SIZE, 1);
	watch_end();
	EXPECT_NO_FAULTS(A, SIZE);
	if (whole)
		expect_nested(1, 0);
	else if (registered())
		expect_nested(0, SIZE / SLOT);
	expect(A, 0, SIZE, 1);
	put(A, 0, SIZE, 2);
	guest_expects(&vm, 0, SIZE, 2);
	vm_end(&vm);
	unmap(A, SIZE);
	if (registered())
		await_pool_free(pool_value("total_bytes") - context_value("held_bytes"));
}

/* The memory stays in place, and the guest goes on. Whether KVM maps 1 GB afterwards depends on when it is accessed. */
static void splits_and_joins(void)
{
	struct vm vm;

	map_memory();
	if (registered() && !whole && context_value("page_size") != SLOT)
		SKIP("there is no whole gigabyte, or no entry of 1 GB");
	vm = vm_start();
	guest_puts(&vm, 0, SIZE, 3);
	for (int round = 0; round < 2; round++) {
		split();
		guest_expects(&vm, 0, SIZE, 3);
		put(A + MB(100), MB(100), MB(110), 4);
		guest_expects(&vm, MB(100), MB(110), 4);
		guest_puts(&vm, MB(100), MB(110), 3);
		expect(A, 0, SIZE, 3);
		await_joined();
		guest_expects(&vm, 0, SIZE, 3);
		guest_puts(&vm, MB(200), MB(210), 5);
		expect(A + MB(200), MB(200), MB(210), 5);
		guest_puts(&vm, MB(200), MB(210), 3);
	}
	vm_end(&vm);
	unmap(A, SIZE);
}

/* ---- Mappings change under it --------------------------------------------------- */

static void changed(struct vm *vm, char *at, size_t len)
{
	size_t from = (size_t)(at - A), to = from + len;

	/* Unmapped, and mapped anew. */
	unmap(at, len);
	guest_has_nothing(vm, from);
	guest_has_nothing(vm, to - PAGE);
	map_flags(at, len, RW, ANON | MAP_FIXED_NOREPLACE);
	guest_expects_zero(vm, from, to);
	put(at, from, to, 7);
	guest_expects(vm, from, to, 7);
	/* Mapped over. */
	map_flags(at, len, RW, ANON | MAP_FIXED);
	guest_expects_zero(vm, from, to);
	guest_puts(vm, from, to, 8);
	expect(at, from, to, 8);
	/* Punched. */
	CHECK_OK(madvise(at, len, MADV_DONTNEED));
	guest_expects_zero(vm, from, to);
	guest_puts(vm, from, to, 9);
	expect(at, from, to, 9);
	/* Moved away and back. */
	CHECK(mremap(at, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, (char *)TB(24)) == (char *)TB(24));
	guest_has_nothing(vm, from);
	put((char *)TB(24), from, to, 10);
	CHECK(mremap((char *)TB(24), len, len, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at);
	guest_expects(vm, from, to, 10);
	/* Protected. */
	CHECK_OK(mprotect(at, len, PROT_NONE));
	guest_has_nothing(vm, from);
	CHECK_OK(mprotect(at, len, RW));
	guest_expects(vm, from, to, 10);
	guest_puts(vm, from, to, 3);
	expect(at, from, to, 3);
}

static void parts_change(void)
{
	static const struct { size_t from, len; } parts[] = {
		{ MB(100), MB(2) }, { MB(301), MB(3) }, { MB(500) + PAGE, PAGE }, { MB(700), MB(200) },
	};
	struct vm vm;

	map_memory();
	vm = vm_start();
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		size_t from = parts[i].from, to = from + parts[i].len;

		guest_puts(&vm, 0, SIZE, 3);
		changed(&vm, A + from, parts[i].len);
		guest_expects(&vm, 0, SIZE, 3);
		expect(A, 0, from, 3);
		expect(A + to, to, SIZE, 3);
		if (i + 1 < ARRAY_SIZE(parts))
			map_memory();
		memcpy(A + CODE, guest_code, (size_t)(guest_code_end - guest_code));
	}
	vm_end(&vm);
	unmap(A, SIZE);
}

/* The guest has no code either, until it is there again. */
static void all_of_it_changes(void)
{
	struct vm vm;

	map_memory();
	vm = vm_start();
	guest_puts(&vm, 0, SIZE, 3);
	unmap(A, SIZE);
	guest_has_nothing(&vm, MB(3));
	map_memory();
	memcpy(A + CODE, guest_code, (size_t)(guest_code_end - guest_code));
	guest_expects_zero(&vm, MB(2), SIZE);
	guest_puts(&vm, 0, SIZE, 4);
	if (whole)
		expect_nested(1, 0);
	expect(A, 0, SIZE, 4);
	vm_end(&vm);
	unmap(A, SIZE);
}

/* The border of two mappings moves into the gigabyte: mprotect(2) merges a part with the one beside it. */
static void borders_move(void)
{
	struct vm vm;

	map_memory();
	map_flags(A + SIZE, SLOT, PROT_READ, ANON | MAP_FIXED_NOREPLACE);
	vm = vm_start();
	guest_puts(&vm, 0, SIZE, 3);
	CHECK_OK(mprotect(A + SIZE - PAGE, PAGE, PROT_READ));
	guest_expects(&vm, 0, SIZE, 3);
	CHECK_OK(mprotect(A + SIZE - PAGE, PAGE, RW));
	CHECK_OK(madvise(A + SIZE - MB(4), MB(2), MADV_DONTNEED));
	guest_expects_zero(&vm, SIZE - MB(4), SIZE - MB(2));
	guest_expects(&vm, 0, SIZE - MB(4), 3);
	guest_expects(&vm, SIZE - MB(2), SIZE, 3);
	vm_end(&vm);
	unmap(A, SIZE + SLOT);
}

/* Only pages that the guest has written since are dirty. */
static void dirty_pages(void)
{
	static uint64_t bitmap[SIZE / PAGE / 64];
	struct kvm_dirty_log log = { .dirty_bitmap = bitmap };
	struct vm vm;

	map_memory();
	vm = vm_start();
	guest_puts(&vm, 0, SIZE, 3);
	set_memory(&vm, KVM_MEM_LOG_DIRTY_PAGES);
	guest_puts(&vm, MB(64), MB(64) + 3 * PAGE, 4);
	CHECK_OK(ioctl(vm.fd, KVM_GET_DIRTY_LOG, &log));
	for (size_t i = 0; i < ARRAY_SIZE(bitmap); i++)
		CHECK_EQ(bitmap[i], i == MB(64) / PAGE / 64 ? 7 : 0);
	set_memory(&vm, 0);
	guest_expects(&vm, MB(64), MB(64) + 3 * PAGE, 4);
	guest_puts(&vm, 0, SIZE, 5);
	expect(A, 0, SIZE, 5);
	vm_end(&vm);
	unmap(A, SIZE);
}

/* ---- A file of a mount with pagesize=1G ------------------------------------------- */

static const char dir[] = "/tmp/kvm-memory", file[] = "/tmp/kvm-memory/ram";

/* The file, mapped by one entry, without a size before. */
static int map_file(void)
{
	int fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	CHECK_OK(fd);
	CHECK(mmap(A, SIZE, RW, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0) == A);
	return fd;
}

static void of_a_mount(void)
{
	uint64_t joins, splits;
	struct vm vm;
	pid_t pid;
	int fd;

	mkdir(dir, 0700);
	if (mount("none", dir, "hpmmap", 0, "pagesize=1G"))
		SKIP("no mount with pagesize=1G: %s", errno_name(errno));
	fd = map_file();
	vm = vm_start();
	watch_begin();
	guest_puts(&vm, 0, SIZE, 1);
	watch_end();
	EXPECT_NO_FAULTS(A, SIZE);
	expect_nested(1, 0);
	expect(A, 0, SIZE, 1);
	if (!registered()) {
		splits = number_in(SYSFS, "shared/splits_1g");
		joins = number_in(SYSFS, "shared/joins_1g");
		split();
		CHECK_EQ(number_in(SYSFS, "shared/splits_1g"), splits + 1);
		guest_expects(&vm, 0, SIZE, 1);
		for (int i = 0; i < 400 && number_in(SYSFS, "shared/joins_1g") == joins; i++)
			pause_ms(50);
		CHECK_EQ(number_in(SYSFS, "shared/joins_1g"), joins + 1);
	}
	guest_expects(&vm, 0, SIZE, 1);
	/* The file is cut off: the guest loses that, and keeps what is before. */
	CHECK_OK(ftruncate(fd, (off_t)MB(512)));
	guest_has_nothing(&vm, MB(512));
	guest_has_nothing(&vm, SIZE - PAGE);
	guest_expects(&vm, 0, MB(512), 1);
	CHECK_OK(ftruncate(fd, (off_t)SIZE));
	guest_expects_zero(&vm, MB(512), SIZE);
	vm_end(&vm);
	unmap(A, SIZE);
	close(fd);
	CHECK_OK(unlink(file));
	/* Killed while the guest runs. */
	pid = fork_child();
	if (!pid) {
		uint64_t bad;

		map_file();
		vm = vm_start();
		for (;;)
			run(&vm, false, 0, SIZE, UINT32_MAX, 3, &bad);
	}
	pause_ms(1500);
	CHECK_OK(kill(pid, SIGKILL));
	expect_signal(pid, SIGKILL);
	CHECK_OK(unlink(file));
	CHECK_OK(umount(dir));
	CHECK_OK(rmdir(dir));
}

/* ---- Processes ------------------------------------------------------------------ */

/* What the parent, and its guest, write after the fork is not the child's. */
static void forks(void)
{
	int go[2], done[2];
	struct vm vm;
	pid_t pid;

	map_memory();
	vm = vm_start();
	guest_puts(&vm, 0, SIZE, 3);
	CHECK_OK(pipe(go));
	CHECK_OK(pipe(done));
	pid = fork_child();
	if (!pid) {
		await(go[0]);
		expect(A, 0, SIZE, 3);
		put(A + MB(20), MB(20), MB(24), 6);
		tell(done[1]);
		await(go[0]);
		_exit(0);
	}
	guest_puts(&vm, MB(2), MB(16), 4);
	put(A + MB(300), MB(300), MB(310), 5);
	guest_expects(&vm, MB(300), MB(310), 5);
	tell(go[1]);
	await(done[0]);
	guest_expects(&vm, MB(2), MB(16), 4);
	guest_expects(&vm, MB(16), MB(300), 3);
	tell(go[1]);
	expect_success(pid);
	guest_puts(&vm, 0, SIZE, 7);
	expect(A, 0, SIZE, 7);
	for (int i = 0; i < 2; i++) {
		close(go[i]);
		close(done[i]);
	}
	vm_end(&vm);
	unmap(A, SIZE);
}

/* The pools get the memory back, whatever the guest is doing. */
static void killed(void)
{
	uint64_t before = registered() ? pool_value("free_bytes") : 0;

	for (int round = 0; round < 4; round++) {
		pid_t pid = fork_child();
		uint64_t bad;

		if (!pid) {
			struct vm vm;

			map_memory();
			vm = vm_start();
			for (;;)
				run(&vm, round & 1, 0, SIZE, UINT32_MAX, 3, &bad);
		}
		pause_ms(300 + 400 * round);
		CHECK_OK(kill(pid, SIGKILL));
		expect_signal(pid, SIGKILL);
		if (registered())
			await_pool_free(before);
	}
}

int main(void)
{
	static const struct test tests[] = {
		T(all_by_the_largest_entries),
		T(splits_and_joins),
		T(parts_change),
		T(all_of_it_changes),
		T(borders_move),
		T(dirty_pages),
		T(of_a_mount),
		T(forks),
		T(killed),
	};

	if (!getuid() && (system("modprobe -q kvm_amd || modprobe -q kvm_intel") ||
			  system("mountpoint -q /sys/kernel/debug || mount -t debugfs none /sys/kernel/debug")))
		note("without KVM or its statistics");
	return RUN_GROUP("kvm_memory", tests);
}
