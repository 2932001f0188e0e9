/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Shared by the programs leak_*: a munmap(2) of pool memory that stops between the end of Linux's
 * part and the moment when the module takes the blocks back.
 *
 * Layout, below 4 GB so that the 32-bit entry can name it:
 *
 *	low	memory of ours, one slot, which grows over the target
 *	target	memory of ours
 *	first	a page of Linux's, which a userfaultfd watches when the call has looked for such
 *	second	a page of Linux's, which it watches from the start
 *
 * A call that unmaps the three upper ones stops until the event of each watched page has been
 * read: for the second before it unmaps anything, for the first when all of it is unmapped.
 */
#ifndef HPMMAP_TEST_LEAK_H
#define HPMMAP_TEST_LEAK_H

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "call32.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY	1
#endif

#define PAGE		4096UL
#define SLOT		(2UL << 20)
#define LOW		((unsigned char *)0x40000000UL)
#define TARGET		(LOW + SLOT)
#define RW		(PROT_READ | PROT_WRITE)

/* The longest that anything here may take, in ms. */
#define PATIENCE_MS	20000

struct slow_munmap {
	size_t len;		/* of the target */
	int uffd;
	pthread_t thread;
	int error;
};

static inline double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static inline unsigned char *first_page(const struct slow_munmap *s)
{
	return TARGET + s->len;
}

static inline unsigned char *second_page(const struct slow_munmap *s)
{
	return first_page(s) + 2 * PAGE;
}

static inline void map_ours(unsigned char *addr, size_t len)
{
	void *p = mmap(addr, len, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	if (p != addr)
		err(2, "mmap of %zu bytes at %p", len, (void *)addr);
}

static inline void map_linux(unsigned char *addr)
{
	long p = call32(CALL32_MMAP2, (uintptr_t)addr, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
			(uintptr_t)-1);

	if (p != (long)(uintptr_t)addr)
		errx(2, "int 0x80 mmap2 at %p: %ld", (void *)addr, p);
}

static inline int uffd_open(void)
{
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_EVENT_UNMAP };
	/* Of one that blocks, poll(2) tells nothing. */
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);

	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) != 0)
		err(2, "userfaultfd");
	return fd;
}

static inline void uffd_watch(int fd, unsigned char *page)
{
	struct uffdio_register reg = {
		.range = { (uintptr_t)page, PAGE },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};

	if (ioctl(fd, UFFDIO_REGISTER, &reg) != 0)
		err(2, "UFFDIO_REGISTER");
}

/* Waits until a call has stopped for a watched page. */
static inline void uffd_wait(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	if (poll(&p, 1, PATIENCE_MS) != 1 || p.revents != POLLIN)
		errx(2, "munmap does not wait for a monitor");
}

/* Lets it go on. */
static inline void uffd_read(int fd)
{
	struct uffd_msg msg;

	if (read(fd, &msg, sizeof(msg)) != sizeof(msg) || msg.event != UFFD_EVENT_UNMAP)
		err(2, "userfaultfd: event %d", msg.event);
}

static inline void *slow_munmap_thread(void *arg)
{
	struct slow_munmap *s = arg;

	s->error = munmap(TARGET, s->len + 3 * PAGE) ? errno : 0;
	return NULL;
}

/* A munmap(2) of the target by another thread has stopped: it is not mapped any more. */
static inline void slow_munmap_begin(struct slow_munmap *s, const pthread_attr_t *attr)
{
	map_linux(first_page(s));
	map_linux(second_page(s));
	s->uffd = uffd_open();
	uffd_watch(s->uffd, second_page(s));
	if (pthread_create(&s->thread, attr, slow_munmap_thread, s))
		errx(2, "pthread_create");
	uffd_wait(s->uffd);
	uffd_watch(s->uffd, first_page(s));
	uffd_read(s->uffd);
	uffd_wait(s->uffd);
}

/* The rest of the call. It still runs when this returns. */
static inline void slow_munmap_go_on(struct slow_munmap *s)
{
	uffd_read(s->uffd);
}

static inline void slow_munmap_end(struct slow_munmap *s)
{
	pthread_join(s->thread, NULL);
	close(s->uffd);
	if (s->error)
		errx(2, "munmap: %s", strerror(s->error));
}

/*
 * Grows the low mapping over the target by the 32-bit entry. Another thread does it, which is there
 * before the munmap stops: a call that waits for the munmap must not keep its monitor waiting.
 */
struct grower {
	size_t len;
	pthread_t thread;
	volatile bool begin, done;
	volatile int error;
};

static inline void *grower_thread(void *arg)
{
	struct grower *g = arg;
	long p;

	while (!g->begin)
		usleep(200);
	p = call32(CALL32_MREMAP, (uintptr_t)LOW, SLOT, SLOT + g->len, 0, 0);
	g->error = p == (long)(uintptr_t)LOW ? 0 : p < 0 ? (int)-p : EFAULT;
	g->done = true;
	return NULL;
}

static inline void grower_start(struct grower *g, const pthread_attr_t *attr)
{
	if (pthread_create(&g->thread, attr, grower_thread, g))
		errx(2, "pthread_create");
}

/* Returns 0, EAGAIN where the call waits for the munmap, or why it is refused: nothing can leak then. */
static inline int grower_grow(struct grower *g)
{
	double end = now() + 1;

	g->begin = true;
	while (!g->done && now() < end)
		usleep(200);
	return g->done ? g->error : EAGAIN;
}

static inline void grower_end(struct grower *g)
{
	pthread_join(g->thread, NULL);
}

#endif
