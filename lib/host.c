// SPDX-License-Identifier: LGPL-2.1-or-later
/* The page that a guest shares with its host. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hpmmap_host.h"
#include "internal.h"

#define AT(field, offset) \
	_Static_assert(offsetof(struct hpmmap_host_page, field) == (offset), "the format is fixed")
AT(host.sequence, 0xc);
AT(host.flags, 0x10);
AT(host.updated, 0x18);
AT(host.nested, 0x20);
AT(host.nr_ranges, 0x38);
AT(host.ranges, 0x80);
AT(host.devices, 0x4e0);
AT(host.vcpus, 0x520);
AT(guest, 0x800);
AT(guest.timer, 0x80c);
AT(guest.boot, 0x810);
AT(guest.critical, 0x840);
_Static_assert(sizeof(struct hpmmap_host_page) == 4096, "a page");

#define DEVICES		"/sys/bus/pci/devices/"
/* Red Hat's ivshmem. */
#define ALIAS		"pci:v00001AF4d00001110"
/* The number of one section that has begun. */
#define BEGUN		0x10000u
#define DEPTH		0xffffu

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Set once, by hpmmap_host_open(), and never unmapped. */
static struct hpmmap_host_page *host_page;

/* Reads the beginning of a small file as a text. Returns its length, 0 on failure. */
static size_t read_text(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? 0 : read(fd, text, size - 1);

	if (fd >= 0)
		close(fd);
	text[got < 0 ? 0 : got] = 0;
	return got < 0 ? 0 : (size_t)got;
}

/* Maps a page that an agent has written to. Returns an errno. */
static int map_resource(const char *path, struct hpmmap_host_page **found)
{
	struct hpmmap_host_page *page;
	int err = 0, fd = open(path, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return errno;
	page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		err = errno;
	close(fd);
	if (err)
		return err;
	if (memcmp(&page->host.magic, "HPMMAPVM", 8) != 0)
		err = ENODEV;
	else if (page->host.version != HPMMAP_HOST_VERSION)
		err = EPROTO;
	if (err)
		munmap(page, sizeof(*page));
	else
		*found = page;
	return err;
}

/* Clears what programs of an earlier boot have left. Returns an errno. */
static int adopt(struct hpmmap_guest_part *guest)
{
	uint64_t boot = 0, before = __atomic_load_n(&guest->boot, __ATOMIC_ACQUIRE);
	char id[40];

	if (read_text("/proc/sys/kernel/random/boot_id", id, sizeof(id)) < sizeof(boot))
		return EIO;
	memcpy(&boot, id, sizeof(boot));
	if (before == boot ||
	    !__atomic_compare_exchange_n(&guest->boot, &before, boot, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return 0;
	__atomic_store_n(&guest->timer, 0, __ATOMIC_RELAXED);
	for (size_t i = 0; i < HPMMAP_HOST_VCPUS; i++)
		__atomic_store_n(&guest->critical[i], 0, __ATOMIC_RELAXED);
	guest->version = HPMMAP_HOST_VERSION;
	memcpy(&guest->magic, "HPMMAPGU", 8);
	return 0;
}

/* Returns an errno. */
static int open_first(void)
{
	char path[sizeof(DEVICES) + 64], alias[64];
	struct hpmmap_host_page *page = NULL;
	int err = ENODEV;
	glob_t found;

	if (glob(DEVICES "*", 0, NULL, &found) != 0)
		return ENODEV;
	for (size_t i = 0; i < found.gl_pathc && !page; i++) {
		snprintf(path, sizeof(path), "%s/modalias", found.gl_pathv[i]);
		if (!read_text(path, alias, sizeof(alias)) || strncmp(alias, ALIAS, strlen(ALIAS)) != 0)
			continue;
		snprintf(path, sizeof(path), "%s/resource2", found.gl_pathv[i]);
		err = map_resource(path, &page);
	}
	globfree(&found);
	if (!err)
		err = adopt(&page->guest);
	if (!err)
		__atomic_store_n(&host_page, page, __ATOMIC_RELEASE);
	return err;
}

PUBLIC int hpmmap_host_open(void)
{
	int err = 0;

	pthread_mutex_lock(&lock);
	if (!host_page)
		err = open_first();
	pthread_mutex_unlock(&lock);
	if (!err)
		return 0;
	errno = err;
	return -1;
}

static struct hpmmap_guest_part *guest_part(void)
{
	struct hpmmap_host_page *page = __atomic_load_n(&host_page, __ATOMIC_ACQUIRE);

	if (!page)
		errno = ENOTCONN;
	return page ? &page->guest : NULL;
}

PUBLIC int hpmmap_critical_begin(void)
{
	struct hpmmap_guest_part *guest = guest_part();
	int cpu = sched_getcpu();

	if (!guest)
		return -1;
	if (cpu < 0 || cpu >= HPMMAP_HOST_VCPUS) {
		errno = ERANGE;
		return -1;
	}
	__atomic_fetch_add(&guest->critical[cpu], BEGUN + 1, __ATOMIC_SEQ_CST);
	return cpu;
}

/* Takes one off the count in the lower bits, unless that is 0 since another boot has begun. */
static void take_one(uint32_t *word, uint32_t bits)
{
	uint32_t old = __atomic_load_n(word, __ATOMIC_RELAXED);

	while ((old & bits) &&
	       !__atomic_compare_exchange_n(word, &old, old - 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		;
}

PUBLIC void hpmmap_critical_end(int section)
{
	struct hpmmap_guest_part *guest = section < 0 || section >= HPMMAP_HOST_VCPUS ? NULL : guest_part();

	if (guest)
		take_one(&guest->critical[section], DEPTH);
}

PUBLIC int hpmmap_timer_sensitive(int on)
{
	struct hpmmap_guest_part *guest = guest_part();

	if (!guest)
		return -1;
	if (on)
		__atomic_fetch_add(&guest->timer, 1, __ATOMIC_SEQ_CST);
	else
		take_one(&guest->timer, UINT32_MAX);
	return 0;
}
