// SPDX-License-Identifier: GPL-2.0
/* fork, userfaultfd, io_uring, seccomp, namespaces, NUMA, signals. */
#include "conf.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/io_uring.h>
#include <linux/mempolicy.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- fork and its kin ------------------------------------------------------ */

CASE(fork, both_write, 4, BIG)
{
	int to_child[2], to_parent[2];
	pid_t pid;

	if (pipe(to_child) != 0 || pipe(to_parent) != 0)
		NOT_RUN("pipe: %s", errno_name(errno));
	pid = sub_process();
	if (pid == 0) {
		fill_pages(r, U(r, 1), r->unit, 300);
		tell(to_parent[1]);
		await(to_child[0]);
		content(r, r->base, r->unit * 4);
		_exit(0);
	}
	await(to_parent[0]);
	content(r, r->base, r->unit * 4);
	fill_pages(r, U(r, 2), r->unit, 600);
	tell(to_child[1]);
	ended("sub", pid);
	content(r, r->base, r->unit * 4);
}

CASE(fork, parent_first, 4, 0)
{
	int to_child[2];
	pid_t pid;

	if (pipe(to_child) != 0)
		NOT_RUN("pipe: %s", errno_name(errno));
	pid = sub_process();
	if (pid == 0) {
		await(to_child[0]);
		content(r, r->base, r->unit * 4);
		maps(r, r->base, r->unit * 4);
		_exit(0);
	}
	fill_pages(r, U(r, 0), r->unit * 2, 600);
	munmap(U(r, 2), r->unit);
	mprotect(U(r, 3), r->unit, PROT_NONE);
	tell(to_child[1]);
	ended("sub", pid);
	maps(r, r->base, r->unit * 4);
}

CASE(fork, child_changes_its_mappings, 4, BIG)
{
	pid_t pid = sub_process();

	if (pid == 0) {
		ret("munmap", munmap(U(r, 0), r->unit));
		at(r, "mmap", map(U(r, 1), r->unit, RW, MAP_FIXED));
		ret("mprotect", mprotect(U(r, 2), r->unit, PROT_READ));
		at(r, "mremap", mremap(U(r, 3), r->unit, r->unit,
				       MREMAP_MAYMOVE | MREMAP_FIXED,
				       spot(r, 0)));
		maps(r, r->base, r->unit * 4);
		content(r, r->base, r->unit * 4);
		content(r, spot(r, 0), r->unit);
		_exit(0);
	}
	ended("sub", pid);
	maps(r, r->base, r->unit * 4);
	content(r, r->base, r->unit * 4);
}

CASE(fork, parent_changes_its_mappings, 4, 0)
{
	int to_child[2];
	pid_t pid;

	if (pipe(to_child) != 0)
		NOT_RUN("pipe: %s", errno_name(errno));
	pid = sub_process();
	if (pid == 0) {
		await(to_child[0]);
		content(r, r->base, r->unit * 4);
		_exit(0);
	}
	at(r, "mremap", mremap(U(r, 0), r->unit, r->unit, MREMAP_MAYMOVE |
			       MREMAP_FIXED, spot(r, 0)));
	ret("madvise", madvise(U(r, 1), r->unit, MADV_DONTNEED));
	at(r, "mmap", map(U(r, 2), r->unit, RW, MAP_FIXED));
	fill_pages(r, U(r, 2), r->unit, 900);
	content(r, r->base, r->unit * 4);
	content(r, spot(r, 0), r->unit);
	tell(to_child[1]);
	ended("sub", pid);
}

CASE(fork, generations, 3, 0)
{
	pid_t pid = sub_process();

	if (pid == 0) {
		fill_pages(r, U(r, 0), r->unit, 300);
		pid = sub_process();
		if (pid == 0) {
			fill_pages(r, U(r, 1), r->unit, 600);
			pid = sub_process();
			if (pid == 0) {
				fill_pages(r, U(r, 2), r->unit, 900);
				content(r, r->base, r->unit * 3);
				_exit(3);
			}
			ended("third", pid);
			content(r, r->base, r->unit * 3);
			_exit(2);
		}
		ended("second", pid);
		content(r, r->base, r->unit * 3);
		_exit(1);
	}
	ended("first", pid);
	content(r, r->base, r->unit * 3);
}

CASE(fork, of_every_protection, 4, 0)
{
	pid_t pid;

	ret("read", mprotect(U(r, 0), r->unit, PROT_READ));
	ret("none", mprotect(U(r, 1), r->unit, PROT_NONE));
	ret("munmap", munmap(U(r, 2), r->unit));
	pid = sub_process();
	if (pid == 0) {
		maps(r, r->base, r->unit * 4);
		try("read", U(r, 0) + 64, "rwx");
		try("none", U(r, 1) + 64, "rwx");
		try("hole", U(r, 2) + 64, "rwx");
		ret("open", mprotect(U(r, 0), r->unit * 2, RW));
		content(r, r->base, r->unit * 4);
		_exit(0);
	}
	ended("sub", pid);
}

CASE(fork, killed_child, 4, 0)
{
	pid_t pid = sub_process();

	if (pid == 0) {
		fill_pages(r, r->base, r->unit * 4, 300);
		raise(SIGKILL);
	}
	ended("sub", pid);
	content(r, r->base, r->unit * 4);
}

struct cloned {
	struct run *r;
	char stack[KB(64)] __attribute__((aligned(16)));
};

static int shares_memory(void *arg)
{
	struct cloned *c = arg;
	struct run *r = c->r;

	fill_pages(r, U(r, 1), r->unit, 300);
	at(r, "child_mmap", map(U(r, 4), r->unit, RW, MAP_FIXED_NOREPLACE));
	fill_pages(r, U(r, 4), r->unit, 600);
	ret("child_munmap", munmap(U(r, 0), r->unit));
	ret("child_mprotect", mprotect(U(r, 2), r->unit, PROT_READ));
	return 7;
}

static void clones(struct run *r, int flags)
{
	static struct cloned c;
	pid_t pid;

	c.r = r;
	pid = clone(shares_memory, c.stack + sizeof(c.stack),
		    flags | SIGCHLD, &c);
	ended("sub", pid);
	maps(r, r->base, r->unit * 5);
	content(r, r->base, r->unit * 5);
}

CASE(clone, process_that_shares_memory, 4, 0)
{
	clones(r, CLONE_VM);
}

CASE(clone, vfork, 4, 0)
{
	clones(r, CLONE_VM | CLONE_VFORK);
}

CASE(clone, errors, 1, ONCE)
{
	ret("sighand", syscall(SYS_clone, CLONE_SIGHAND, 0, 0, 0, 0));
	ret("thread", syscall(SYS_clone, CLONE_THREAD, 0, 0, 0, 0));
	ret("clone3", syscall(SYS_clone3, NULL, 0));
	content(r, r->base, r->unit);
}

/* ---- userfaultfd -------------------------------------------------------------- */

static int uffd(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) != 0)
		return -1;
	return fd;
}

static void registers(struct run *r, char *addr, size_t len, uint64_t mode)
{
	struct uffdio_register reg = {
		.range = { (uintptr_t)addr, len },
		.mode = mode,
	};
	int fd = uffd();

	if (fd < 0)
		NOT_RUN("userfaultfd: %s", errno_name(errno));
	ret("register", ioctl(fd, UFFDIO_REGISTER, &reg));
	close(fd);
	content(r, r->base, r->unit * 3);
	fill_pages(r, U(r, 1), r->unit, 300);
	content(r, r->base, r->unit * 3);
}

CASE(userfaultfd, missing, 3, 0)
{
	registers(r, U(r, 1), r->unit, UFFDIO_REGISTER_MODE_MISSING);
}

CASE(userfaultfd, write_protect, 3, 0)
{
	registers(r, U(r, 1), r->unit, UFFDIO_REGISTER_MODE_WP);
}

CASE(userfaultfd, minor, 3, 0)
{
	registers(r, U(r, 1), r->unit, UFFDIO_REGISTER_MODE_MINOR);
}

static void *writes_a_byte(void *arg)
{
	*(char *)arg = 7;
	return NULL;
}

/* A page that the program has written zeros to is there, and can be protected. */
CASE(userfaultfd, protected_zeros, 3, 0)
{
	struct uffdio_register reg = {
		.range = { (uintptr_t)U(r, 1), r->unit },
		.mode = UFFDIO_REGISTER_MODE_WP,
	};
	struct uffdio_writeprotect protect = {
		.range = reg.range,
		.mode = UFFDIO_WRITEPROTECT_MODE_WP,
	};
	int fd = uffd();
	struct pollfd event = { .fd = fd, .events = POLLIN };
	pthread_t thread;

	if (fd < 0)
		NOT_RUN("userfaultfd: %s", errno_name(errno));
	memset(U(r, 1), 0, r->unit);
	ret("register", ioctl(fd, UFFDIO_REGISTER, &reg));
	ret("protect", ioctl(fd, UFFDIO_WRITEPROTECT, &protect));
	pthread_create(&thread, NULL, writes_a_byte, U(r, 2) - PAGE);
	say("event=%d", poll(&event, 1, 5000));
	protect.mode = 0;
	ret("allow", ioctl(fd, UFFDIO_WRITEPROTECT, &protect));
	pthread_join(thread, NULL);
	say("written=%d", U(r, 2)[-PAGE]);
	close(fd);
	content(r, U(r, 1), r->unit - PAGE);
}

CASE(userfaultfd, hole, 3, ONCE)
{
	registers(r, U(r, 9), r->unit, UFFDIO_REGISTER_MODE_MISSING);
}

/* Memory of others in a registered process. */
CASE(userfaultfd, of_shared_memory, 3, 0)
{
	struct uffdio_zeropage zero = {
		.range = { (uintptr_t)U(r, 1), r->unit },
	};
	struct uffdio_register reg = {
		.range = { (uintptr_t)U(r, 1), r->unit },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	int fd = uffd();

	if (fd < 0)
		NOT_RUN("userfaultfd: %s", errno_name(errno));
	at(r, "shared", mmap(U(r, 1), r->unit, RW, MAP_SHARED | MAP_ANONYMOUS |
			     MAP_FIXED, -1, 0));
	ret("register", ioctl(fd, UFFDIO_REGISTER, &reg));
	ret("zeropage", ioctl(fd, UFFDIO_ZEROPAGE, &zero));
	content(r, r->base, r->unit * 3);
	close(fd);
}

/* ---- io_uring ------------------------------------------------------------------- */

struct ring {
	int fd;
	struct io_uring_params params;
	char *sq;
	struct io_uring_sqe *sqes;
};

static bool ring_open(struct ring *ring)
{
	struct io_uring_params *p = &ring->params;

	memset(ring, 0, sizeof(*ring));
	ring->fd = (int)syscall(SYS_io_uring_setup, 4, p);
	if (ring->fd < 0)
		return false;
	ring->sq = mmap(NULL, PAGE, RW, MAP_SHARED | MAP_POPULATE, ring->fd,
			IORING_OFF_SQ_RING);
	ring->sqes = mmap(NULL, PAGE, RW, MAP_SHARED | MAP_POPULATE, ring->fd,
			  IORING_OFF_SQES);
	return ring->sq != MAP_FAILED && (void *)ring->sqes != MAP_FAILED &&
	       p->features & IORING_FEAT_SINGLE_MMAP;
}

/* One request, waited for; its result or minus an errno. */
static int ring_do(struct ring *ring, const struct io_uring_sqe *sqe)
{
	struct io_uring_params *p = &ring->params;
	_Atomic unsigned int *sq_tail = (void *)(ring->sq + p->sq_off.tail);
	unsigned int mask = *(unsigned int *)(void *)(ring->sq + p->sq_off.ring_mask);
	unsigned int *array = (void *)(ring->sq + p->sq_off.array);
	_Atomic unsigned int *cq_head = (void *)(ring->sq + p->cq_off.head);
	unsigned int cq_mask = *(unsigned int *)(void *)(ring->sq + p->cq_off.ring_mask);
	struct io_uring_cqe *cqes = (void *)(ring->sq + p->cq_off.cqes);
	unsigned int tail = *sq_tail, head = *cq_head;
	int result;

	ring->sqes[tail & mask] = *sqe;
	array[tail & mask] = tail & mask;
	atomic_store(sq_tail, tail + 1);
	if (syscall(SYS_io_uring_enter, ring->fd, 1, 1, IORING_ENTER_GETEVENTS,
		    NULL, 0) != 1)
		return -errno;
	result = cqes[head & cq_mask].res;
	atomic_store(cq_head, head + 1);
	return result;
}

static void said(struct run *r, const char *name, int result)
{
	if (result < 0)
		say("%s=%s", name, errno_name(-result));
	else
		say("%s=%s", name, in_units(r, result));
}

static bool ring_register(struct ring *ring, char *addr, size_t len)
{
	struct iovec buffer = { addr, len };

	return ret("register", syscall(SYS_io_uring_register, ring->fd,
				       IORING_REGISTER_BUFFERS, &buffer, 1)) == 0;
}

#define NEED_RING(ring) do {						\
	if (!ring_open(ring))						\
		NOT_RUN("io_uring: %s", errno_name(errno));		\
} while (0)

CASE(io_uring, fixed_buffers, 3, 0)
{
	int fd = memfd(r, r->unit, 500);
	struct io_uring_sqe sqe = {
		.opcode = IORING_OP_READ_FIXED,
		.fd = fd,
		.addr = (uintptr_t)U(r, 1),
		.len = (unsigned int)r->unit,
	};
	struct ring ring;

	NEED_RING(&ring);
	if (!ring_register(&ring, U(r, 0), r->unit * 3))
		return;
	said(r, "read", ring_do(&ring, &sqe));
	content(r, r->base, r->unit * 3);
	sqe.opcode = IORING_OP_WRITE_FIXED;
	sqe.addr = (uintptr_t)U(r, 2);
	said(r, "write", ring_do(&ring, &sqe));
	sqe.addr = (uintptr_t)U(r, 3);
	said(r, "outside", ring_do(&ring, &sqe));
	ret("unregister", syscall(SYS_io_uring_register, ring.fd,
				  IORING_UNREGISTER_BUFFERS, NULL, 0));
}

CASE(io_uring, buffer_is_unmapped, 3, 0)
{
	int fd = memfd(r, r->unit, 500);
	struct io_uring_sqe sqe = {
		.opcode = IORING_OP_WRITE_FIXED,
		.fd = fd,
		.addr = (uintptr_t)U(r, 1),
		.len = (unsigned int)r->unit,
	};
	struct ring ring;

	NEED_RING(&ring);
	if (!ring_register(&ring, U(r, 1), r->unit))
		return;
	ret("munmap", munmap(U(r, 1), r->unit));
	said(r, "write", ring_do(&ring, &sqe));
	/* The file has what the memory had. */
	at(r, "mmap", mmap(U(r, 1), r->unit, RW, MAP_SHARED | MAP_FIXED, fd,
			   0));
	content(r, r->base, r->unit * 3);
	close(ring.fd);
}

CASE(io_uring, bad_buffers, 3, ONCE)
{
	struct ring ring;

	NEED_RING(&ring);
	ring_register(&ring, U(r, 9), r->unit);
	ret("read", mprotect(U(r, 1), r->unit, PROT_READ));
	ring_register(&ring, U(r, 1), r->unit);
	ret("none", mprotect(U(r, 2), r->unit, PROT_NONE));
	ring_register(&ring, U(r, 2), r->unit);
}

CASE(io_uring, plain_buffers, 3, 0)
{
	int fd = memfd(r, r->unit, 500);
	struct io_uring_sqe sqe = {
		.opcode = IORING_OP_READ,
		.fd = fd,
		.addr = (uintptr_t)U(r, 1),
		.len = (unsigned int)r->unit,
	};
	struct ring ring;

	NEED_RING(&ring);
	said(r, "read", ring_do(&ring, &sqe));
	content(r, r->base, r->unit * 3);
	ret("read", mprotect(U(r, 1), r->unit, PROT_READ));
	said(r, "read", ring_do(&ring, &sqe));
	sqe.opcode = IORING_OP_WRITE;
	said(r, "write", ring_do(&ring, &sqe));
}

CASE(io_uring, madvise_dontneed, 3, 0)
{
	struct io_uring_sqe sqe = {
		.opcode = IORING_OP_MADVISE,
		.addr = (uintptr_t)U(r, 1),
		.len = (unsigned int)r->unit,
		.fadvise_advice = MADV_DONTNEED,
	};
	struct ring ring;

	NEED_RING(&ring);
	said(r, "madvise", ring_do(&ring, &sqe));
	content(r, r->base, r->unit * 3);
}

/* ---- seccomp ------------------------------------------------------------------- */

/* From now on the call has this outcome; all others are allowed. */
static bool filter(unsigned int call, unsigned int outcome)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, outcome),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { ARRAY_SIZE(code), code };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) == 0;
}

static void all_calls(struct run *r)
{
	at(r, "mmap", map(U(r, 4), r->unit, RW, MAP_FIXED_NOREPLACE));
	ret("mprotect", mprotect(U(r, 1), r->unit, PROT_READ));
	ret("madvise", madvise(U(r, 2), r->unit, MADV_DONTNEED));
	at(r, "mremap", mremap(U(r, 3), r->unit, r->unit, MREMAP_MAYMOVE |
			       MREMAP_FIXED, spot(r, 0)));
	ret("munmap", munmap(U(r, 0), r->unit));
	ret("brk", sbrk((intptr_t)r->unit) == (void *)-1 ? -1 : 0);
	maps(r, r->base, r->unit * 5);
	content(r, r->base, r->unit * 5);
}

CASE(seccomp, allows, 4, 0)
{
	if (!filter(SYS_uselib, SECCOMP_RET_ERRNO | EPERM))
		NOT_RUN("seccomp: %s", errno_name(errno));
	all_calls(r);
}

#define REFUSES(name, call)						\
	CASE(seccomp, refuses_##name, 4, 0) {				\
		if (!filter(call, SECCOMP_RET_ERRNO | EXFULL))		\
			NOT_RUN("seccomp: %s", errno_name(errno));	\
		all_calls(r);						\
	}

REFUSES(mmap, SYS_mmap)
REFUSES(munmap, SYS_munmap)
REFUSES(mprotect, SYS_mprotect)
REFUSES(mremap, SYS_mremap)
REFUSES(madvise, SYS_madvise)
REFUSES(brk, SYS_brk)

static volatile int sys_signal, sys_code, sys_call;

static void on_sys(int sig, siginfo_t *info, void *context)
{
	(void)context;
	sys_signal = sig;
	sys_code = info->si_code;
	sys_call = info->si_syscall;
}

CASE(seccomp, traps, 4, 0)
{
	struct sigaction action = { .sa_flags = SA_SIGINFO };

	action.sa_sigaction = on_sys;
	sigaction(SIGSYS, &action, NULL);
	if (!filter(SYS_mprotect, SECCOMP_RET_TRAP))
		NOT_RUN("seccomp: %s", errno_name(errno));
	mprotect(U(r, 1), r->unit, PROT_READ);
	say("signal=%s code=%d call=%d", sigabbrev_np(sys_signal), sys_code,
	    sys_call);
	maps(r, r->base, r->unit * 4);
}

CASE(seccomp, kills, 4, 0)
{
	pid_t pid = sub_process();

	if (pid == 0) {
		filter(SYS_munmap, SECCOMP_RET_KILL_PROCESS);
		munmap(U(r, 1), r->unit);
		_exit(0);
	}
	ended("sub", pid);
	content(r, r->base, r->unit * 4);
}

/* ---- Namespaces -------------------------------------------------------------------- */

CASE(namespaces, new_process_namespace, 4, 0)
{
	pid_t pid;

	ret("unshare", unshare(CLONE_NEWPID));
	pid = sub_process();
	if (pid == 0) {
		all_calls(r);
		_exit(0);
	}
	ended("sub", pid);
	content(r, r->base, r->unit * 4);
}

CASE(namespaces, new_user_namespace, 4, 0)
{
	pid_t pid = sub_process();

	if (pid == 0) {
		ret("unshare", unshare(CLONE_NEWUSER | CLONE_NEWNS |
				       CLONE_NEWNET | CLONE_NEWIPC));
		all_calls(r);
		pid = sub_process();
		if (pid == 0) {
			content(r, r->base, r->unit * 5);
			_exit(0);
		}
		ended("second", pid);
		_exit(0);
	}
	ended("sub", pid);
}

/* ---- NUMA calls -------------------------------------------------------------------- */

CASE(numa, move_pages_query, 3, 0)
{
	void *pages[] = { U(r, 0), U(r, 1), U(r, 3) - 1, U(r, 3) };
	int status[4] = { 99, 99, 99, 99 };

	ret("move_pages", syscall(SYS_move_pages, 0, 4UL, pages, NULL, status,
				  0));
	for (int i = 0; i < 4; i++)
		say("%d", status[i]);
}

CASE(numa, move_pages_here, 3, 0)
{
	void *pages[] = { U(r, 0), U(r, 1) };
	int nodes[] = { 0, 0 };
	int status[] = { 99, 99 };

	ret("move_pages", syscall(SYS_move_pages, 0, 2UL, pages, nodes, status,
				  MPOL_MF_MOVE));
	say("%d %d", status[0], status[1]);
	content(r, r->base, r->unit * 3);
}

CASE(numa, migrate_pages, 3, 0)
{
	unsigned long node = 1;

	ret("migrate_pages", syscall(SYS_migrate_pages, 0, 64UL, &node,
				     &node));
	content(r, r->base, r->unit * 3);
}

CASE(numa, node_of_an_address, 3, 0)
{
	int node = 99;

	ret("get_mempolicy", syscall(SYS_get_mempolicy, &node, NULL, 0UL,
				     U(r, 1), MPOL_F_NODE | MPOL_F_ADDR));
	say("node=%d", node);
}

CASE(numa, mbind, 3, 0)
{
	unsigned long node0 = 1;
	int mode = 99;

	ret("bind", syscall(SYS_mbind, U(r, 1), r->unit, MPOL_BIND, &node0,
			    64UL, 0));
	ret("get", syscall(SYS_get_mempolicy, &mode, NULL, 0UL, U(r, 1),
			   MPOL_F_ADDR));
	say("mode=%d", mode);
	ret("strict", syscall(SYS_mbind, U(r, 1), r->unit, MPOL_BIND, &node0,
			      64UL, MPOL_MF_STRICT | MPOL_MF_MOVE));
	ret("hole", syscall(SYS_mbind, U(r, 2), r->unit * 2, MPOL_BIND, &node0,
			    64UL, 0));
	ret("default", syscall(SYS_mbind, U(r, 0), r->unit * 3, MPOL_DEFAULT,
			       NULL, 0UL, 0));
	content(r, r->base, r->unit * 3);
}

/* ---- Calls of 32 bits in a 64-bit program ------------------------------------ */

static long call32(long nr, void *a, size_t b, long c)
{
	long result;

	__asm__ volatile("int $0x80"
			 : "=a"(result)
			 : "a"(nr), "b"(a), "c"(b), "d"(c)
			 : "memory", "r8", "r9", "r10", "r11");
	result = (int)result;
	if (result >= 0)
		return result;
	errno = (int)-result;
	return -1;
}

enum { MUNMAP_32 = 91, MPROTECT_32 = 125, MADVISE_32 = 219 };

static char *low_arena(struct run *r)
{
	char *p = map(NULL, r->unit * 3, RW, MAP_32BIT);

	if (p == MAP_FAILED)
		say("mmap=%s", errno_name(errno));
	else
		fill_pages(r, p, r->unit * 3, 0);
	return p;
}

CASE(int80, munmap, 3, BARE)
{
	char *p = low_arena(r);

	ret("munmap", call32(MUNMAP_32, p + r->unit, r->unit, 0));
	maps(r, p, r->unit * 3);
	content(r, p, r->unit * 3);
	ret("again", map(p + r->unit, r->unit, RW, MAP_FIXED_NOREPLACE) ==
	    p + r->unit);
	content(r, p, r->unit * 3);
}

CASE(int80, mprotect, 3, BARE)
{
	char *p = low_arena(r);

	ret("mprotect", call32(MPROTECT_32, p + r->unit, r->unit, PROT_READ));
	try("middle", p + r->unit, "rwx");
	ret("mprotect", call32(MPROTECT_32, p + r->unit, r->unit, PROT_NONE));
	try("middle", p + r->unit, "rwx");
	ret("mprotect", call32(MPROTECT_32, p, r->unit * 3, RW));
	maps(r, p, r->unit * 3);
	content(r, p, r->unit * 3);
}

CASE(int80, mprotect_after_fork, 3, BARE)
{
	char *p = low_arena(r);
	int to_child[2];
	pid_t pid;

	if (pipe(to_child) != 0)
		NOT_RUN("pipe: %s", errno_name(errno));
	ret("mprotect", mprotect(p, r->unit * 3, PROT_READ));
	pid = sub_process();
	if (pid == 0) {
		await(to_child[0]);
		content(r, p, r->unit * 3);
		_exit(0);
	}
	ret("mprotect", call32(MPROTECT_32, p + r->unit, r->unit, RW));
	fill_pages(r, p + r->unit, r->unit, 300);
	tell(to_child[1]);
	ended("sub", pid);
	content(r, p, r->unit * 3);
}

CASE(int80, madvise, 3, BARE)
{
	char *p = low_arena(r);

	ret("dontneed", call32(MADVISE_32, p + r->unit, r->unit,
			       MADV_DONTNEED));
	content(r, p, r->unit * 3);
}

/* ---- Signals ------------------------------------------------------------------------ */

static void on_usr(int sig)
{
	(void)sig;
	sys_signal = __builtin_frame_address(0) >= (void *)0x200000000000;
}

CASE(signal, stack_in_the_arena, 4, 0)
{
	stack_t stack = {
		.ss_sp = U(r, 0),
		.ss_size = r->unit * 4,
	};
	struct sigaction action = {
		.sa_handler = on_usr,
		.sa_flags = SA_ONSTACK,
	};
	pid_t pid;

	ret("sigaltstack", sigaltstack(&stack, NULL));
	sigaction(SIGUSR1, &action, NULL);
	raise(SIGUSR1);
	say("on_it=%d", sys_signal);
	ret("mprotect", mprotect(U(r, 0), r->unit * 4, PROT_READ));
	pid = sub_process();
	if (pid == 0) {
		raise(SIGUSR1);
		_exit(0);
	}
	ended("sub", pid);
}
