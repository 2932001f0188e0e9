// SPDX-License-Identifier: GPL-2.0
/* mlock and its kin, mincore, msync, limits, overcommit. */
#include "conf.h"

#include <linux/capability.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static void locked(struct run *r)
{
	say("locked=%s", in_units(r, (long)smaps_locked(r->base, r->unit *
							r->units)));
}

CASE(mlock, all_and_part, 4, 0)
{
	ret("part", mlock(U(r, 1), r->unit));
	locked(r);
	ret("all", mlock(U(r, 0), r->unit * 4));
	locked(r);
	ret("munlock", munlock(U(r, 2), r->unit));
	locked(r);
	ret("munlock", munlock(U(r, 0), r->unit * 4));
	locked(r);
	maps(r, r->base, r->unit * 4);
	content(r, r->base, r->unit * 4);
	say("vmas=%d", vma_count(r->base, r->unit * 4));
}

CASE(mlock, errors, 4, ONCE)
{
	ret("odd", mlock(U(r, 0) + 1, PAGE));
	locked(r);
	ret("no_length", mlock(U(r, 0), 0));
	ret("wraps", mlock(U(r, 0), SIZE_MAX));
	ret("free", mlock(U(r, 4), r->unit));
	ret("munmap", munmap(U(r, 2), r->unit));
	ret("hole", mlock(U(r, 1), r->unit * 3));
	vm_flags(U(r, 1), "lo");
	vm_flags(U(r, 3), "lo");
	ret("unlock_hole", munlock(U(r, 0), r->unit * 4));
	ret("none", mprotect(U(r, 3), r->unit, PROT_NONE));
	ret("no_access", mlock(U(r, 3), r->unit));
}

CASE(mlock, mlock2, 4, 0)
{
	touch(r->base, r->unit * 4);
	ret("flags", mlock2(U(r, 0), r->unit, 2));
	ret("onfault", mlock2(U(r, 0), r->unit * 2, MLOCK_ONFAULT));
	vm_flags(U(r, 0), "lo lf");
	ret("mlock2", mlock2(U(r, 1), r->unit, 0));
	vm_flags(U(r, 1), "lo lf");
	locked(r);
	content(r, r->base, r->unit * 4);
}

CASE(mlock, discarded_when_unmapped, 4, 0)
{
	ret("mlock", mlock(U(r, 0), r->unit * 4));
	ret("munmap", munmap(U(r, 1), r->unit));
	locked(r);
	at(r, "mmap", map(U(r, 1), r->unit, RW, MAP_FIXED));
	vm_flags(U(r, 1), "lo");
	locked(r);
}

CASE(mlock, not_inherited, 4, 0)
{
	pid_t pid;

	ret("mlock", mlock(U(r, 0), r->unit * 4));
	pid = sub_process();
	if (pid == 0) {
		vm_flags(U(r, 0), "lo");
		locked(r);
		content(r, r->base, r->unit * 4);
		_exit(0);
	}
	ended("sub", pid);
	locked(r);
}

CASE(mlockall, errors, 0, ONCE)
{
	ret("none", mlockall(0));
	ret("onfault", mlockall(MCL_ONFAULT));
	ret("unknown", mlockall(8));
	ret("munlockall", munlockall());
}

CASE(mlockall, current, 4, 0)
{
	ret("mlockall", mlockall(MCL_CURRENT));
	locked(r);
	at(r, "later", map(U(r, 4), r->unit, RW, MAP_FIXED_NOREPLACE));
	vm_flags(U(r, 4), "lo");
	ret("munlockall", munlockall());
	locked(r);
	content(r, r->base, r->unit * 5);
}

CASE(mlockall, future, 4, 0)
{
	ret("mlockall", mlockall(MCL_FUTURE));
	vm_flags(U(r, 0), "lo");
	at(r, "mmap", map(U(r, 1), r->unit, RW, MAP_FIXED));
	vm_flags(U(r, 1), "lo");
	locked(r);
	at(r, "none", map(U(r, 4), r->unit, PROT_NONE, MAP_FIXED_NOREPLACE));
	vm_flags(U(r, 4), "lo");
	ret("open", mprotect(U(r, 4), r->unit, RW));
	at(r, "grow", mremap(U(r, 1), r->unit, r->unit * 2, MREMAP_MAYMOVE |
			     MREMAP_FIXED, spot(r, 0)));
	vm_flags(spot(r, 0), "lo");
	content(r, spot(r, 0), r->unit * 2);
	ret("sbrk", sbrk((intptr_t)r->unit) == (void *)-1 ? -1 : 0);
	ret("munlockall", munlockall());
	content(r, r->base, r->unit * 5);
}

CASE(mlockall, on_fault, 4, 0)
{
	ret("mlockall", mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT));
	vm_flags(U(r, 0), "lo lf");
	at(r, "mmap", map(U(r, 4), r->unit, RW, MAP_FIXED_NOREPLACE));
	vm_flags(U(r, 4), "lo lf");
	content(r, r->base, r->unit * 5);
}

/* ---- mincore, msync ------------------------------------------------------ */

static void resident(struct run *r, const char *name, char *addr, size_t len)
{
	static unsigned char vec[GB(1) / PAGE];
	size_t n = 0;

	memset(vec, 0xfe, len / PAGE);
	if (ret(name, mincore(addr, len, vec)) != 0)
		return;
	for (size_t i = 0; i < len / PAGE; i++)
		n += vec[i] & 1;
	say("resident=%s", in_units(r, (long)(n * PAGE)));
}

CASE(mincore, filled, 4, 0)
{
	touch(r->base, r->unit * 4);
	resident(r, "all", r->base, r->unit * 4);
	resident(r, "page", U(r, 1), PAGE);
}

CASE(mincore, not_touched, 4, BARE)
{
	at(r, "mmap", map(r->base, r->unit * 4, RW, MAP_FIXED_NOREPLACE));
	resident(r, "all", r->base, r->unit * 4);
}

CASE(mincore, reserved, 4, BARE)
{
	at(r, "mmap", map(r->base, r->unit * 4, PROT_NONE, MAP_NORESERVE |
			  MAP_FIXED_NOREPLACE));
	resident(r, "all", r->base, r->unit * 4);
}

CASE(mincore, discarded, 4, 0)
{
	touch(r->base, r->unit * 4);
	ret("madvise", madvise(U(r, 1), r->unit, MADV_DONTNEED));
	resident(r, "all", r->base, r->unit * 4);
}

CASE(mincore, no_access, 4, 0)
{
	touch(r->base, r->unit * 4);
	ret("mprotect", mprotect(U(r, 1), r->unit, PROT_NONE));
	resident(r, "all", r->base, r->unit * 4);
}

CASE(mincore, errors, 4, ONCE)
{
	unsigned char byte;

	ret("unaligned", mincore(U(r, 0) + 1, PAGE, &byte));
	ret("no_length", mincore(U(r, 0), 0, &byte));
	ret("wraps", mincore(U(r, 0), SIZE_MAX, &byte));
	ret("vector", mincore(U(r, 0), PAGE, (unsigned char *)1));
	ret("own_vector", mincore(U(r, 0), PAGE, (unsigned char *)U(r, 1)));
	ret("free", mincore(U(r, 4), PAGE, &byte));
	ret("munmap", munmap(U(r, 2), r->unit));
	resident(r, "hole", r->base, r->unit * 4);
}

CASE(msync, flags, 4, 0)
{
	for (int flags = 0; flags < 9; flags++)
		ret("msync", msync(U(r, 1), r->unit, flags));
	content(r, r->base, r->unit * 4);
}

CASE(msync, errors, 4, ONCE)
{
	ret("unaligned", msync(U(r, 0) + 1, PAGE, MS_SYNC));
	ret("no_length", msync(U(r, 0), 0, MS_SYNC));
	ret("wraps", msync(U(r, 0), SIZE_MAX, MS_SYNC));
	ret("free", msync(U(r, 4), PAGE, MS_SYNC));
	ret("munmap", munmap(U(r, 2), r->unit));
	ret("hole", msync(U(r, 0), r->unit * 4, MS_SYNC));
	ret("hole", msync(U(r, 0), r->unit * 4, MS_ASYNC));
	ret("mlock", mlock(U(r, 0), r->unit));
	ret("locked", msync(U(r, 0), r->unit, MS_INVALIDATE));
	content(r, r->base, r->unit * 4);
}

/* ---- Limits ----------------------------------------------------------------- */

static void limit(int what, size_t value)
{
	struct rlimit limit;

	getrlimit(what, &limit);
	limit.rlim_cur = value;
	if (setrlimit(what, &limit) != 0)
		say("setrlimit=%s", errno_name(errno));
}

/* What a limit that leaves room for two and a half units allows. */
static void within(struct run *r)
{
	at(r, "three", map(spot(r, 0), r->unit * 3, RW, MAP_FIXED));
	at(r, "two", map(spot(r, 0), r->unit * 2, RW, MAP_FIXED));
	at(r, "one_more", map(spot(r, 1), r->unit, RW, MAP_FIXED));
	at(r, "again", map(spot(r, 0), r->unit * 2, RW, MAP_FIXED));
	at(r, "read_only", map(spot(r, 2), r->unit, PROT_READ, MAP_FIXED));
	at(r, "none", map(spot(r, 3), r->unit, PROT_NONE, MAP_NORESERVE |
			  MAP_FIXED));
	at(r, "grow", mremap(spot(r, 0), r->unit * 2, r->unit * 3,
			     MREMAP_MAYMOVE));
	at(r, "arena", mremap(U(r, 0), r->unit * 4, r->unit * 8,
			      MREMAP_MAYMOVE));
	ret("munmap", munmap(spot(r, 0), r->unit * 2));
	at(r, "one", map(spot(r, 1), r->unit, RW, MAP_FIXED));
	ret("mprotect", mprotect(spot(r, 2), r->unit, RW));
	ret("sbrk", sbrk((intptr_t)r->unit * 4) == (void *)-1 ? -1 : 0);
	maps(r, spot(r, 1), r->unit);
	content(r, r->base, r->unit * 4);
}

CASE(rlimit_as, within, 4, 0)
{
	limit(RLIMIT_AS, status_field("VmSize") + r->unit * 5 / 2);
	within(r);
}

/* What moves counts once, and what is left where it was counts, too. */
static void moves(struct run *r)
{
	at(r, "move", mremap(U(r, 0), r->unit * 2, r->unit * 2,
			     MREMAP_MAYMOVE | MREMAP_FIXED, spot(r, 0)));
	at(r, "grow", mremap(spot(r, 0), r->unit * 2, r->unit * 3,
			     MREMAP_MAYMOVE | MREMAP_FIXED, spot(r, 4)));
	at(r, "too_far", mremap(spot(r, 4), r->unit * 3, r->unit * 4,
				MREMAP_MAYMOVE | MREMAP_FIXED, spot(r, 0)));
	at(r, "stays", mremap(U(r, 2), r->unit, r->unit, MREMAP_MAYMOVE |
			      MREMAP_DONTUNMAP, spot(r, 0)));
	at(r, "shrink", mremap(spot(r, 4), r->unit * 3, r->unit,
			       MREMAP_MAYMOVE | MREMAP_FIXED, spot(r, 0)));
	at(r, "mmap", map(spot(r, 8), r->unit * 2, RW, MAP_FIXED));
	maps(r, spot(r, 0), r->unit);
	content(r, spot(r, 0), r->unit);
	content(r, U(r, 2), r->unit * 2);
}

CASE(rlimit_as, moves, 4, 0)
{
	limit(RLIMIT_AS, status_field("VmSize") + r->unit * 3 / 2);
	moves(r);
}

CASE(rlimit_as, nothing_more, 4, 0)
{
	limit(RLIMIT_AS, PAGE);
	at(r, "mmap", map(spot(r, 0), PAGE, RW, MAP_FIXED));
	at(r, "none", map(spot(r, 0), PAGE, PROT_NONE, MAP_FIXED));
	at(r, "grow", mremap(U(r, 0), r->unit * 4, r->unit * 4 + PAGE,
			     MREMAP_MAYMOVE));
	at(r, "over", map(U(r, 1), PAGE, RW, MAP_FIXED));
	ret("sbrk", sbrk((intptr_t)r->unit) == (void *)-1 ? -1 : 0);
	ret("mprotect", mprotect(U(r, 1), r->unit, PROT_READ));
	ret("munmap", munmap(U(r, 2), r->unit));
	maps(r, r->base, r->unit * 4);
}

static void no_data(struct run *r)
{
	at(r, "mmap", map(spot(r, 0), r->unit, RW, MAP_FIXED));
	at(r, "read_only", map(spot(r, 0), r->unit, PROT_READ, MAP_FIXED));
	at(r, "none", map(spot(r, 1), r->unit, PROT_NONE, MAP_FIXED));
	at(r, "shared", mmap(spot(r, 2), r->unit, RW, MAP_SHARED |
			     MAP_ANONYMOUS | MAP_FIXED, -1, 0));
	ret("mprotect", mprotect(spot(r, 0), r->unit, RW));
	ret("mprotect", mprotect(spot(r, 1), r->unit, RW));
	at(r, "grow", mremap(U(r, 0), r->unit * 4, r->unit * 5,
			     MREMAP_MAYMOVE));
	at(r, "move", mremap(U(r, 3), r->unit, r->unit, MREMAP_MAYMOVE |
			     MREMAP_FIXED, spot(r, 3)));
	at(r, "over", map(U(r, 1), r->unit, RW, MAP_FIXED));
	ret("sbrk", sbrk((intptr_t)r->unit) == (void *)-1 ? -1 : 0);
	maps(r, r->base, r->unit * 5);
	maps(r, spot(r, 0), r->unit);
}

CASE(rlimit_data, nothing_more, 4, 0)
{
	limit(RLIMIT_DATA, PAGE);
	no_data(r);
}

/* Linux lets 0 pass, for Valgrind, if the hard limit does. */
CASE(rlimit_data, zero, 4, 0)
{
	limit(RLIMIT_DATA, 0);
	no_data(r);
}

CASE(rlimit_data, within, 4, ALONE)
{
	/* Found out by trying: what counts beside the arena differs. */
	size_t room = r->unit * 4;

	do {
		room += PAGE;
		limit(RLIMIT_DATA, room);
	} while (map(spot(r, 9), PAGE, RW, MAP_FIXED_NOREPLACE) == MAP_FAILED &&
		 room < GB(1));
	munmap(spot(r, 9), PAGE);
	limit(RLIMIT_DATA, room - PAGE + r->unit * 5 / 2);
	at(r, "three", map(spot(r, 0), r->unit * 3, RW, MAP_FIXED));
	at(r, "two", map(spot(r, 0), r->unit * 2, RW, MAP_FIXED));
	at(r, "one_more", map(spot(r, 1), r->unit, RW, MAP_FIXED));
	at(r, "again", map(spot(r, 0), r->unit * 2, RW, MAP_FIXED));
	at(r, "grow", mremap(spot(r, 0), r->unit * 2, r->unit * 3,
			     MREMAP_MAYMOVE));
	ret("read", mprotect(spot(r, 0), r->unit, PROT_READ));
	at(r, "one", map(spot(r, 1), r->unit, RW, MAP_FIXED));
	ret("write", mprotect(spot(r, 0), r->unit, RW));
	ret("munmap", munmap(spot(r, 1), r->unit));
	ret("write", mprotect(spot(r, 0), r->unit, RW));
	content(r, r->base, r->unit * 4);
}

static bool drop_lock_capability(void)
{
	struct __user_cap_header_struct head = {
		.version = _LINUX_CAPABILITY_VERSION_3,
	};
	struct __user_cap_data_struct data[2];

	if (syscall(SYS_capget, &head, data) != 0)
		return false;
	data[0].effective &= ~(1U << CAP_IPC_LOCK);
	return syscall(SYS_capset, &head, data) == 0;
}

CASE(rlimit_memlock, within, 4, 0)
{
	if (!drop_lock_capability())
		NOT_RUN("CAP_IPC_LOCK cannot be dropped");
	limit(RLIMIT_MEMLOCK, r->unit * 5 / 2);
	ret("two", mlock(U(r, 0), r->unit * 2));
	ret("again", mlock(U(r, 0), r->unit * 2));
	ret("three", mlock(U(r, 0), r->unit * 3));
	ret("one_more", mlock(U(r, 2), r->unit));
	at(r, "mmap", map(spot(r, 0), r->unit, RW, MAP_LOCKED | MAP_FIXED));
	at(r, "grow", mremap(U(r, 0), r->unit * 2, r->unit * 3, MREMAP_MAYMOVE));
	ret("munlock", munlock(U(r, 0), r->unit));
	at(r, "mmap", map(spot(r, 0), r->unit, RW, MAP_LOCKED | MAP_FIXED));
	content(r, r->base, r->unit * 4);
}

CASE(rlimit_memlock, moves, 4, 0)
{
	if (!drop_lock_capability())
		NOT_RUN("CAP_IPC_LOCK cannot be dropped");
	ret("mlock", mlock(U(r, 0), r->unit * 2));
	limit(RLIMIT_MEMLOCK, r->unit * 7 / 2);
	moves(r);
}

CASE(rlimit_memlock, all, 4, 0)
{
	if (!drop_lock_capability())
		NOT_RUN("CAP_IPC_LOCK cannot be dropped");
	limit(RLIMIT_MEMLOCK, r->unit * 5 / 2);
	ret("mlockall", mlockall(MCL_CURRENT));
	ret("future", mlockall(MCL_FUTURE));
	at(r, "two", map(spot(r, 0), r->unit * 2, RW, MAP_FIXED));
	at(r, "one_more", map(spot(r, 1), r->unit, RW, MAP_FIXED));
	ret("brk", sbrk((intptr_t)r->unit) == (void *)-1 ? -1 : 0);
}

CASE(rlimit_memlock, nothing, 4, 0)
{
	if (!drop_lock_capability())
		NOT_RUN("CAP_IPC_LOCK cannot be dropped");
	limit(RLIMIT_MEMLOCK, 0);
	ret("mlock", mlock(U(r, 0), PAGE));
	at(r, "mmap", map(spot(r, 0), PAGE, RW, MAP_LOCKED | MAP_FIXED));
	ret("mlockall", mlockall(MCL_CURRENT));
	ret("munlock", munlock(U(r, 0), PAGE));
}

/* Uses up the stack; what is below it depends on the recursion's end. */
__attribute__((noinline)) static void descend(volatile size_t *depth)
{
	volatile char frame[KB(16)];

	frame[0] = 1;
	*depth += sizeof(frame);
	if (*depth < GB(1))
		descend(depth);
	frame[1] = frame[0];
}

CASE(rlimit_stack, overflow, 0, ONCE | ALONE)
{
	volatile size_t *depth = mmap(NULL, PAGE, RW, MAP_SHARED |
				      MAP_ANONYMOUS, -1, 0);
	pid_t pid = sub_process();

	if (pid == 0)
		descend(depth);
	ended("sub", pid);
	say("seven_mb=%d nine_mb=%d", *depth > MB(7), *depth > MB(9));
}

extern void *__libc_stack_end;

/* Where a handler looks: at the fault's address, and at the stack in /proc/PID/maps. */
static void tell_fault(int sig, siginfo_t *info, void *context)
{
	uintptr_t here = (uintptr_t)info->si_addr;
	struct vma vma = { 0 };

	(void)context;
	vma_at(__libc_stack_end, &vma);
	say("signal=%d code=%d %s=%zu MB below=%d", sig, info->si_code, vma.name,
	    (vma.end - vma.start + KB(512)) / MB(1), here < vma.start && vma.start - here < KB(64));
	_exit(0);
}

CASE(rlimit_stack, where_it_ends, 0, ONCE | ALONE)
{
	const size_t size = KB(256);
	volatile size_t depth = 0;
	stack_t stack = {
		.ss_sp = map(NULL, size, RW, 0),
		.ss_size = size,
	};
	struct sigaction action = {
		.sa_sigaction = tell_fault,
		.sa_flags = SA_SIGINFO | SA_ONSTACK,
	};
	pid_t pid = sub_process();

	if (pid == 0) {
		sigaltstack(&stack, NULL);
		sigaction(SIGSEGV, &action, NULL);
		descend(&depth);
	}
	ended("sub", pid);
}

CASE(rlimit_stack, as_threads_see_it, 0, ONCE | ALONE)
{
	static const rlim_t limits[] = { MB(8), MB(64), GB(1) };
	pthread_attr_t attr;
	size_t size;
	void *low;

	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		limit(RLIMIT_STACK, limits[i]);
		if (pthread_getattr_np(pthread_self(), &attr) || pthread_attr_getstack(&attr, &low, &size))
			NOT_RUN("pthread_getattr_np");
		say("%zu", (size + MB(1) - 1) / MB(1));
		pthread_attr_destroy(&attr);
	}
}

CASE(rlimit_stack, raised, 0, ONCE | ALONE)
{
	volatile size_t *depth = mmap(NULL, PAGE, RW, MAP_SHARED |
				      MAP_ANONYMOUS, -1, 0);
	pid_t pid;

	limit(RLIMIT_STACK, MB(64));
	pid = sub_process();
	if (pid == 0)
		descend(depth);
	ended("sub", pid);
	say("sixty_mb=%d", *depth > MB(60));
}

CASE(rlimit_stack, lowered, 0, ONCE | ALONE)
{
	volatile size_t *depth = mmap(NULL, PAGE, RW, MAP_SHARED |
				      MAP_ANONYMOUS, -1, 0);
	pid_t pid;

	limit(RLIMIT_STACK, MB(1));
	pid = sub_process();
	if (pid == 0)
		descend(depth);
	ended("sub", pid);
	say("two_mb=%d", *depth > MB(2));
}

/* ---- Overcommit --------------------------------------------------------------- */

#define OVERCOMMIT "/proc/sys/vm/overcommit_memory"

static void overcommits(struct run *r, const char *mode)
{
	char old[32];

	if (!get(OVERCOMMIT, old, sizeof(old)) || !put(OVERCOMMIT, mode))
		NOT_RUN("vm.overcommit_memory cannot be set");
	at(r, "mb", map(spot(r, 0), MB(1), RW, MAP_FIXED_NOREPLACE));
	at(r, "tb", map(spot(r, 1), TB(1), RW, MAP_FIXED_NOREPLACE));
	at(r, "read_only", map(spot(r, 1), TB(1), PROT_READ,
			       MAP_FIXED_NOREPLACE));
	munmap(spot(r, 1), TB(1));
	at(r, "none", map(spot(r, 1), TB(1), PROT_NONE, MAP_FIXED_NOREPLACE));
	munmap(spot(r, 1), TB(1));
	at(r, "grow", mremap(spot(r, 0), MB(1), TB(1), MREMAP_MAYMOVE));
	put(OVERCOMMIT, old);
}

static void overcommits_reservation(struct run *r, const char *mode)
{
	char old[32];

	if (!get(OVERCOMMIT, old, sizeof(old)) || !put(OVERCOMMIT, mode))
		NOT_RUN("vm.overcommit_memory cannot be set");
	at(r, "noreserve", map(spot(r, 1), TB(1), RW, MAP_NORESERVE |
			       MAP_FIXED_NOREPLACE));
	munmap(spot(r, 1), TB(1));
	at(r, "none", map(spot(r, 1), TB(1), PROT_NONE, MAP_NORESERVE |
			  MAP_FIXED_NOREPLACE));
	ret("mprotect", mprotect(spot(r, 1), TB(1), RW));
	put(OVERCOMMIT, old);
}

CASE(overcommit, heuristic, 0, ONCE | ALONE)
{
	overcommits(r, "0");
}

CASE(overcommit, never, 0, ONCE | ALONE)
{
	overcommits(r, "2");
}

CASE(overcommit, heuristic_reservation, 0, ONCE | ALONE)
{
	overcommits_reservation(r, "0");
}

CASE(overcommit, never_reservation, 0, ONCE | ALONE)
{
	overcommits_reservation(r, "2");
}
