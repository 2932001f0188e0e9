// SPDX-License-Identifier: GPL-2.0
/*
 * A virtual machine whose memory is one entry of 1 GB. It reads and writes a word of each page all the
 * time, while its host splits the entry, waits until it is joined, discards and unmaps parts of it,
 * forks, and gives the memory to others: it never sees their words, and they keep theirs. Usage:
 * gigabyte_kvm; ends with 77 where there is no /dev/kvm.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define GB	(1UL << 30)
#define MB	(1UL << 20)
#define PAGE	4096UL
#define A	((char *)(16UL << 40))
/* Its code is below. */
#define FIRST	(16 * MB)
#define RW	(PROT_READ | PROT_WRITE)

#define CHECK(what) do { if (!(what)) errx(1, "line %d: not %s", __LINE__, #what); } while (0)

/* Each word is 0 or of this machine. Port 0x20: all of them were; 0x10: one was not. */
static const uint8_t code[] = {
	0xbe, 0x00, 0x00, 0x00, 0x01,		/* start: mov esi, FIRST */
	0x8b, 0x06,				/* next: mov eax, [esi] */
	0x85, 0xc0, 0x74, 0x0c,			/* test eax, eax; jz good */
	0x89, 0xc1, 0xc1, 0xe9, 0x18,		/* mov ecx, eax; shr ecx, 24 */
	0x83, 0xf9, 0x7a, 0x74, 0x02,		/* cmp ecx, 0x7a; je good */
	0xe6, 0x10,				/* out 0x10, al */
	0x8d, 0x83, 0x00, 0x00, 0x00, 0x7a,	/* good: lea eax, [ebx + 0x7a000000] */
	0x89, 0x06,				/* mov [esi], eax */
	0x81, 0xc6, 0x00, 0x10, 0x00, 0x00,	/* add esi, PAGE */
	0x81, 0xfe, 0x00, 0x00, 0x00, 0x40,	/* cmp esi, GB */
	0x72, 0xd8, 0x43, 0xe6, 0x20,		/* jb next; inc ebx; out 0x20, al */
	0xeb, 0xce,				/* jmp start */
};

static int cpu;
static struct kvm_run *run;
static volatile unsigned long rounds;

static void *machine(void *arg)
{
	struct kvm_regs regs;

	for (;;) {
		/* Where nothing is mapped it is tried again. */
		if (ioctl(cpu, KVM_RUN, 0)) {
			usleep(1000);
			continue;
		}
		CHECK(run->exit_reason == KVM_EXIT_IO);
		if (run->io.port == 0x20) {
			rounds++;
			continue;
		}
		CHECK(!ioctl(cpu, KVM_GET_REGS, &regs));
		errx(1, "the machine sees %#llx at %#llx", regs.rax, regs.rsi);
	}
	return arg;
}

static void start(void)
{
	struct kvm_userspace_memory_region memory = { .memory_size = GB, .userspace_addr = (uintptr_t)A };
	struct kvm_regs regs = { .rip = PAGE, .rflags = 2 };
	int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC), vm;
	struct kvm_sregs sregs;
	pthread_t thread;

	if (kvm < 0)
		exit(77);
	vm = ioctl(kvm, KVM_CREATE_VM, 0);
	CHECK(!ioctl(vm, KVM_SET_USER_MEMORY_REGION, &memory));
	cpu = ioctl(vm, KVM_CREATE_VCPU, 0);
	run = mmap(NULL, (size_t)ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0), RW, MAP_SHARED, cpu, 0);
	CHECK(run != MAP_FAILED && !ioctl(cpu, KVM_GET_SREGS, &sregs));
	/* 32 bits, without page tables. */
	sregs.ds.base = sregs.cs.base = 0;
	sregs.ds.limit = sregs.cs.limit = UINT32_MAX;
	sregs.ds.g = sregs.ds.db = sregs.cs.g = sregs.cs.db = 1;
	sregs.cs.selector = 8;
	sregs.ss = sregs.es = sregs.ds;
	sregs.cr0 |= 1;
	CHECK(!ioctl(cpu, KVM_SET_SREGS, &sregs) && !ioctl(cpu, KVM_SET_REGS, &regs));
	CHECK(!pthread_create(&thread, NULL, machine, NULL));
}

static void map(char *at, size_t len)
{
	CHECK(mmap(at, len, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
}

/* The machine goes through all of its memory. */
static void await_round(void)
{
	unsigned long want = rounds + 2;

	for (int i = 0; rounds < want; i++) {
		CHECK(i < 6000);
		usleep(10000);
	}
}

/* Of all jobs. */
static long counted(const char *name)
{
	char line[128], want[64];
	long n = 0, one;
	FILE *pipe = popen("cat /sys/kernel/hpmmap/jobs/*/stat", "r");

	snprintf(want, sizeof(want), "%s %%ld", name);
	while (pipe && fgets(line, sizeof(line), pipe))
		n += sscanf(line, want, &one) == 1 ? one : 0;
	CHECK(pipe && !pclose(pipe));
	return n;
}

/* Takes what is free, and keeps its own words. */
static void be_another(char *at)
{
	map(at, 2 * GB);
	for (size_t off = 0; off < 2 * GB; off += PAGE)
		*(volatile uint32_t *)(void *)(at + off) = 0x5ec2e7;
	sleep(1);
	for (size_t off = 0; off < 2 * GB; off += PAGE)
		CHECK(*(volatile uint32_t *)(void *)(at + off) == 0x5ec2e7);
}

static void in_child(void (*fn)(char *), char *arg, void (*meanwhile)(void))
{
	pid_t pid = fork();
	int status;

	CHECK(pid >= 0);
	if (!pid) {
		fn(arg);
		_exit(0);
	}
	meanwhile();
	CHECK(waitpid(pid, &status, 0) == pid && !status);
}

static void see_snapshot(char *at)
{
	for (int i = 0; i < 2; i++, usleep(300000))
		for (size_t off = FIRST; off < GB; off += PAGE) {
			uint32_t word = *(volatile uint32_t *)(void *)(at + off);

			CHECK(!word || word >> 24 == 0x7a);
		}
}

static void nothing(void) { }

int main(void)
{
	long joins;

	map(A, GB);
	memcpy(A + PAGE, code, sizeof(code));
	CHECK(counted("entries_1g") == 1);
	start();
	await_round();
	joins = counted("joins_1g");
	CHECK(!system("cat /proc/$PPID/smaps >/dev/null"));
	CHECK(counted("splits_1g") == 1);
	await_round();
	for (int i = 0; i < 100 && counted("joins_1g") == joins; i++)
		usleep(100000);
	CHECK(counted("joins_1g") == joins + 1);
	await_round();
	for (size_t i = 0; i < 4; i++) {
		CHECK(!madvise(A + (100 + 6 * i) * MB + i * PAGE, 3 * MB, MADV_DONTNEED));
		await_round();
	}
	CHECK(!munmap(A + 200 * MB, 16 * MB));
	in_child(be_another, A + 8 * GB, nothing);
	map(A + 200 * MB, 16 * MB);
	await_round();
	in_child(see_snapshot, A, await_round);
	await_round();
	CHECK(!munmap(A, GB));
	be_another(A + 8 * GB);
	puts("as it should be");
	_exit(0);
}
