// SPDX-License-Identifier: GPL-2.0
/* Reading about memory in /proc, and writing through it. */
#include "conf.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

CASE(proc_maps, ranges_and_permissions, 4, 0)
{
	ret("mprotect", mprotect(U(r, 1), r->unit, PROT_READ));
	ret("mprotect", mprotect(U(r, 2), PAGE, PROT_NONE));
	ret("munmap", munmap(U(r, 3), r->unit));
	maps(r, U(r, -1), r->unit * 6);
	say("vmas=%d", vma_count(r->base, r->unit * 4));
}

CASE(proc_maps, name_and_sharing, 1, 0)
{
	struct vma vma;

	if (vma_at(r->base, &vma))
		say("%s %s", vma.perms, vma.name[0] ? vma.name : "(no name)");
}

CASE(proc_maps, name_of_the_stack, 0, ONCE | ALONE)
{
	struct vma vma = { 0 };

	if (vma_at(&vma, &vma))
		say("%s %s", vma.perms, vma.name[0] ? vma.name : "(no name)");
}

CASE(proc_maps, name_of_the_heap, 0, ONCE | ALONE)
{
	struct vma vma;

	if (vma_at(sbrk(MB(4)) + MB(2), &vma))
		say("%s %s", vma.perms, vma.name[0] ? vma.name : "(no name)");
}

static void sizes(struct run *r, const char *const *fields)
{
	for (; *fields; fields++)
		say("%s=%s", *fields,
		    in_units(r, (long)smaps_field(r->base,
						  r->unit * r->units,
						  *fields)));
}

CASE(proc_smaps, sizes_when_filled, 4, 0)
{
	static const char *const fields[] = {
		"Size", "Rss", "Pss", "Swap", NULL,
	};

	touch(r->base, r->unit * 4);
	sizes(r, fields);
}

CASE(proc_smaps, sizes_of_parts, 4, 0)
{
	static const char *const fields[] = { "Size", "Rss", "Pss", NULL };

	touch(r->base, r->unit * 4);
	ret("mprotect", mprotect(U(r, 1), r->unit, PROT_READ));
	ret("munmap", munmap(U(r, 2), r->unit));
	sizes(r, fields);
}

CASE(proc_smaps, rss_not_touched, 4, BARE)
{
	static const char *const fields[] = { "Size", "Rss", NULL };

	at(r, "mmap", map(r->base, r->unit * 4, RW, MAP_FIXED_NOREPLACE));
	sizes(r, fields);
}

CASE(proc_smaps, rss_of_a_reservation, 4, BARE)
{
	static const char *const fields[] = { "Size", "Rss", NULL };

	at(r, "mmap", map(r->base, r->unit * 4, PROT_NONE, MAP_NORESERVE |
			  MAP_FIXED_NOREPLACE));
	sizes(r, fields);
}

CASE(proc_smaps, private_and_anonymous, 4, 0)
{
	static const char *const fields[] = {
		"Private_Dirty", "Anonymous", NULL,
	};

	touch(r->base, r->unit * 4);
	sizes(r, fields);
}

CASE(proc_smaps, vm_flags, 4, 0)
{
	vm_flags(U(r, 0), "rd wr ex mr mw me lo io sr rr dc de ac nr ht dd sd hg nh mg um uw");
}

CASE(proc_smaps, rollup, 4, 0)
{
	char text[4096];

	say("read=%d", get("/proc/self/smaps_rollup", text, sizeof(text)));
	say("rss=%d", strstr(text, "Rss:") != NULL);
}

CASE(proc_status, sizes, 4, 0)
{
	size_t size = status_field("VmSize");
	size_t lck = status_field("VmLck");

	ret("mlock", mlock(U(r, 0), r->unit));
	at(r, "mmap", map(spot(r, 0), r->unit * 2, RW, MAP_FIXED));
	say("VmSize=%s", in_units(r, (long)(status_field("VmSize") - size)));
	say("VmLck=%s", in_units(r, (long)(status_field("VmLck") - lck)));
	munmap(spot(r, 0), r->unit * 2);
	say("VmSize=%s", in_units(r, (long)(status_field("VmSize") - size)));
}

/* The counters of a thread reach the process late: look at the difference. */
CASE(proc_status, rss_follows, 0, ONCE | ALONE)
{
	size_t before = status_field("VmRSS"), with;
	char *p = map(NULL, MB(64), RW, 0);

	for (size_t off = 0; off < MB(64); off += PAGE)
		p[off] = 1;
	with = status_field("VmRSS");
	say("mapped=%d", with >= before + MB(63) && with <= before + MB(66));
	munmap(p, MB(64));
	say("unmapped=%d", status_field("VmRSS") <= before + MB(2));
}

CASE(proc_status, rss_is_anonymous, 0, ONCE | ALONE)
{
	size_t anon = status_field("RssAnon"), file = status_field("RssFile");
	size_t data = status_field("VmData");
	char *p = map(NULL, MB(64), RW, 0);

	for (size_t off = 0; off < MB(64); off += PAGE)
		p[off] = 1;
	say("RssAnon=%d", status_field("RssAnon") >= anon + MB(60));
	say("RssFile=%d", status_field("RssFile") >= file + MB(60));
	say("VmData=%d", status_field("VmData") >= data + MB(60));
}

static void pagemap(struct run *r, char *addr, size_t len, uint64_t bit)
{
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	size_t n = 0, zero = 0;
	uint64_t entry;

	for (size_t off = 0; off < len; off += PAGE) {
		if (pread(fd, &entry, 8,
			  (off_t)((uintptr_t)(addr + off) / PAGE * 8)) != 8)
			break;
		n += !!(entry & bit);
		zero += !entry;
	}
	close(fd);
	say("pages=%s empty=%s", in_units(r, (long)(n * PAGE)),
	    in_units(r, (long)(zero * PAGE)));
}

CASE(proc_pagemap, present, 3, 0)
{
	touch(r->base, r->unit * 3);
	pagemap(r, r->base, r->unit * 3, 1ULL << 63);
	ret("munmap", munmap(U(r, 1), r->unit));
	pagemap(r, r->base, r->unit * 3, 1ULL << 63);
}

CASE(proc_pagemap, no_access, 3, 0)
{
	touch(r->base, r->unit * 3);
	ret("mprotect", mprotect(U(r, 1), r->unit, PROT_NONE));
	pagemap(r, r->base, r->unit * 3, 1ULL << 63);
}

CASE(proc_pagemap, file_bit, 3, 0)
{
	touch(r->base, r->unit * 3);
	pagemap(r, r->base, r->unit * 3, 1ULL << 61);
}

CASE(proc_pagemap, soft_dirty, 3, 0)
{
	touch(r->base, r->unit * 3);
	if (!put("/proc/self/clear_refs", "4"))
		NOT_RUN("clear_refs: %s", errno_name(errno));
	pagemap(r, r->base, r->unit * 3, 1ULL << 55);
	fill_pages(r, U(r, 1), r->unit, 0);
	pagemap(r, r->base, PAGE, 1ULL << 55);
	pagemap(r, U(r, 1), PAGE, 1ULL << 55);
	content(r, r->base, r->unit * 3);
}

CASE(proc_clear_refs, keeps_content, 3, 0)
{
	for (int what = 1; what <= 6; what++) {
		char text[] = { (char)('0' + what), '\0' };

		say("%d=%d", what, put("/proc/self/clear_refs", text));
	}
	content(r, r->base, r->unit * 3);
}

CASE(proc_numa_maps, pages, 3, 0)
{
	FILE *file = fopen("/proc/self/numa_maps", "re");
	unsigned long pages = 0, start;
	char line[1024], *node;

	if (!file)
		NOT_RUN("no numa_maps");
	touch(r->base, r->unit * 3);
	while (fgets(line, sizeof(line), file)) {
		start = strtoul(line, NULL, 16);
		if (start < (uintptr_t)r->base ||
		    start >= (uintptr_t)U(r, 3))
			continue;
		node = strstr(line, " N0=");
		if (node)
			pages += strtoul(node + 4, NULL, 10);
		say("policy=%.7s", strchr(line, ' ') + 1);
	}
	fclose(file);
	say("pages=%s", in_units(r, (long)(pages * PAGE)));
}

/* ---- Into memory from outside ---------------------------------------------- */

enum { OPEN, READ_ONLY, CLOSED, EXECUTABLE, POKED };

static void poked_arena(struct run *r)
{
	ret("read", mprotect(U(r, READ_ONLY), r->unit, PROT_READ));
	ret("none", mprotect(U(r, CLOSED), r->unit, PROT_NONE));
	ret("exec", mprotect(U(r, EXECUTABLE), r->unit,
			     PROT_READ | PROT_EXEC));
}

/* Opens all again and shows what has become of it. */
static void poked_content(struct run *r)
{
	maps(r, r->base, r->unit * POKED);
	ret("open", mprotect(r->base, r->unit * POKED, RW));
	for (int i = 0; i < POKED; i++) {
		uint64_t *word = (uint64_t *)(void *)(U(r, i) + 64);

		say("%s", *word == 0x1234 ? "poked" : "kept");
		/* The pattern, to see the rest. */
		word[0] = word[1] - 1;
	}
	content(r, r->base, r->unit * POKED);
}

CASE(poke, proc_self_mem, 4, 0)
{
	int fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	uint64_t value = 0x1234, got;

	poked_arena(r);
	for (int i = 0; i < POKED; i++) {
		off_t where = (off_t)(uintptr_t)(U(r, i) + 64);

		got = 0;
		ret("read", pread(fd, &got, 8, where));
		say("same=%d", got && got != value);
		ret("write", pwrite(fd, &value, 8, where));
		ret("read", pread(fd, &got, 8, where));
		say("poked=%d", got == value);
	}
	poked_content(r);
}

CASE(poke, proc_mem_across_pieces, 4, 0)
{
	static char buffer[MB(8)];
	int fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	size_t len = r->unit * 4;

	poked_arena(r);
	say("read=%s", in_units(r, pread(fd, buffer, len,
					 (off_t)(uintptr_t)r->base)));
	ret("munmap", munmap(U(r, 3), r->unit));
	say("read=%s", in_units(r, pread(fd, buffer, len,
					 (off_t)(uintptr_t)r->base)));
	ret("hole", pread(fd, buffer, PAGE, (off_t)(uintptr_t)U(r, 3)));
}

CASE(poke, process_vm_writev, 4, 0)
{
	uint64_t value = 0x1234;

	poked_arena(r);
	for (int i = 0; i < POKED; i++) {
		struct iovec local = { &value, 8 };
		struct iovec remote = { U(r, i) + 64, 8 };

		ret("write", process_vm_writev(getpid(), &local, 1, &remote,
					       1, 0));
	}
	poked_content(r);
}

CASE(poke, process_vm_readv, 4, 0)
{
	static char buffer[MB(8)];
	struct iovec local = { buffer, r->unit * 4 };
	struct iovec remote = { r->base, r->unit * 4 };

	say("all=%s", in_units(r, process_vm_readv(getpid(), &local, 1,
						   &remote, 1, 0)));
	content(r, buffer, r->unit * 4);
	poked_arena(r);
	say("some=%s", in_units(r, process_vm_readv(getpid(), &local, 1,
						    &remote, 1, 0)));
	remote.iov_base = U(r, 9);
	ret("hole", process_vm_readv(getpid(), &local, 1, &remote, 1, 0));
}

/* The tracer is a child that attaches to the thread of the case. */
static void traced(struct run *r, void (*pokes)(struct run *r, pid_t tid))
{
	pid_t tid = gettid(), pid;
	int status;

	fflush(stdout);
	pid = sub_process();
	if (pid == 0) {
		if (ptrace(PTRACE_ATTACH, tid, NULL, NULL) != 0) {
			say("attach=%s", errno_name(errno));
			_exit(1);
		}
		if (waitpid(tid, &status, __WALL) == tid)
			pokes(r, tid);
		ptrace(PTRACE_DETACH, tid, NULL, NULL);
		_exit(0);
	}
	ended("tracer", pid);
}

static void pokes_words(struct run *r, pid_t tid)
{
	for (int i = 0; i < POKED; i++) {
		void *where = U(r, i) + 64;

		errno = 0;
		ret("poke", ptrace(PTRACE_POKEDATA, tid, where, 0x1234L));
		errno = 0;
		say("peek=%d", ptrace(PTRACE_PEEKDATA, tid, where, NULL) ==
		    0x1234);
		if (errno)
			say("%s", errno_name(errno));
	}
	ret("hole", ptrace(PTRACE_POKEDATA, tid, U(r, 9), 1L));
	errno = 0;
	ret("hole", ptrace(PTRACE_PEEKDATA, tid, U(r, 9), NULL));
}

CASE(poke, ptrace, 4, 0)
{
	poked_arena(r);
	traced(r, pokes_words);
	poked_content(r);
}

static void pokes_file(struct run *r, pid_t tid)
{
	uint64_t value = 0x1234;
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/mem", tid);
	fd = open(path, O_RDWR | O_CLOEXEC);
	for (int i = 0; i < POKED; i++)
		ret("write", pwrite(fd, &value, 8,
				    (off_t)(uintptr_t)(U(r, i) + 64)));
}

CASE(poke, proc_pid_mem, 4, 0)
{
	poked_arena(r);
	traced(r, pokes_file);
	poked_content(r);
}

static void pokes_vm(struct run *r, pid_t tid)
{
	uint64_t value = 0x1234;

	for (int i = 0; i < POKED; i++) {
		struct iovec local = { &value, 8 };
		struct iovec remote = { U(r, i) + 64, 8 };

		ret("write", process_vm_writev(tid, &local, 1, &remote, 1, 0));
	}
}

CASE(poke, process_vm_from_outside, 4, 0)
{
	poked_arena(r);
	traced(r, pokes_vm);
	poked_content(r);
}

/* A breakpoint in code of the arena, as a debugger sets it. */
static void pokes_breakpoint(struct run *r, pid_t tid)
{
	errno = 0;
	ret("poke", ptrace(PTRACE_POKETEXT, tid, U(r, 0),
			   (long)0xc300000007b8));
}

CASE(poke, code, 1, 0)
{
	static const unsigned char code[] = { 0xb8, 5, 0, 0, 0, 0xc3 };
	int (*fn)(void) = (int (*)(void))(void *)U(r, 0);

	memcpy(U(r, 0), code, sizeof(code));
	ret("exec", mprotect(U(r, 0), r->unit, PROT_READ | PROT_EXEC));
	say("code=%d", fn());
	traced(r, pokes_breakpoint);
	say("code=%d", fn());
}
