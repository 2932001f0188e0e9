// SPDX-License-Identifier: LGPL-2.1-or-later
/* Windows: XPMEM's segments, rights and attachments, one right for each window. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "internal.h"
#include "xpmem.h"

/* A window that is attached. */
struct window {
	struct window *next;
	void *address;
	xpmem_apid_t apid;
};

static pthread_mutex_t windows_lock = PTHREAD_MUTEX_INITIALIZER;
static struct window *windows;

PUBLIC int64_t hpmmap_publish(void *start, size_t bytes, unsigned int mode)
{
	return xpmem_make(start, bytes, XPMEM_PERMIT_MODE, (void *)(uintptr_t)mode);
}

PUBLIC int hpmmap_unpublish(int64_t id)
{
	return xpmem_remove(id);
}

void *attach_at(int64_t id, size_t offset, size_t bytes, unsigned int flags, void *at)
{
	struct xpmem_addr from = { .offset = (off_t)offset };
	struct window *window;
	void *address;
	int err;

	if (flags & ~HPMMAP_ATTACH_READONLY) {
		errno = EINVAL;
		return NULL;
	}
	window = malloc(sizeof(*window));
	if (!window)
		return NULL;
	from.apid = xpmem_get(id, flags & HPMMAP_ATTACH_READONLY ? XPMEM_RDONLY : XPMEM_RDWR, XPMEM_PERMIT_MODE, NULL);
	if (from.apid == -1) {
		free(window);
		return NULL;
	}
	address = xpmem_attach(from, bytes, at);
	if (address == (void *)-1) {
		err = errno;
		xpmem_release(from.apid);
		free(window);
		errno = err;
		return NULL;
	}
	window->address = address;
	window->apid = from.apid;
	pthread_mutex_lock(&windows_lock);
	window->next = windows;
	windows = window;
	pthread_mutex_unlock(&windows_lock);
	return address;
}

PUBLIC void *hpmmap_attach(int64_t id, size_t offset, size_t bytes, unsigned int flags)
{
	return attach_at(id, offset, bytes, flags, NULL);
}

PUBLIC int hpmmap_detach(void *address)
{
	struct window **at, *window;

	pthread_mutex_lock(&windows_lock);
	for (at = &windows; *at && (*at)->address != address;)
		at = &(*at)->next;
	window = *at;
	if (window)
		*at = window->next;
	pthread_mutex_unlock(&windows_lock);
	if (!window) {
		errno = EINVAL;
		return -1;
	}
	xpmem_detach(window->address);
	xpmem_release(window->apid);
	free(window);
	return 0;
}

bool is_readable(const void *address)
{
	int ends[2];
	bool is;

	if (!address || pipe(ends) != 0)
		return false;
	is = write(ends[1], address, 1) == 1;
	close(ends[0]);
	close(ends[1]);
	return is;
}

/* A child has no windows of its parent. */
static void before_fork(void)
{
	pthread_mutex_lock(&windows_lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&windows_lock);
}

static void in_child(void)
{
	while (windows) {
		struct window *window = windows;

		windows = window->next;
		free(window);
	}
	pthread_mutex_unlock(&windows_lock);
}

static __attribute__((constructor)) void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork, in_child);
}
