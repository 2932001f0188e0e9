// SPDX-License-Identifier: GPL-2.0
#include "shared.h"

#include <ctype.h>
#include <fcntl.h>
#include <grp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

static char dir[PATH_MAX];
static bool mounted;
static size_t free_at_start;

static bool kernel_has_it(void)
{
	FILE *f = fopen("/proc/filesystems", "re");
	char line[64];
	bool found = false;

	while (f && !found && fgets(line, sizeof(line), f))
		found = strcmp(line, "nodev\thpmmap\n") == 0;
	if (f)
		fclose(f);
	return found;
}

bool fs_of_pools(void)
{
	const char *which = getenv("HPMMAP_TEST_FS");
	static int known = -1;

	if (which)
		return strcmp(which, "hpmmap") == 0;
	if (known < 0)
		known = kernel_has_it();
	return known;
}

void skip_unless_of_pools(void)
{
	if (!fs_of_pools())
		SKIP("only hpmmapfs promises that");
}

static void leave_last(void)
{
	if (mounted) {
		umount2(dir, MNT_DETACH);
		rmdir(dir);
	}
	mounted = false;
	dir[0] = '\0';
}

static bool try_mount(const char *options)
{
	const char *type = fs_of_pools() ? "hpmmap" : "tmpfs";

	leave_last();
	snprintf(dir, sizeof(dir), "/tmp/hpmmap-shared-XXXXXX");
	if (!mkdtemp(dir))
		FAIL("%s: %s", dir, errno_name(errno));
	if (mount("none", dir, type, 0, options) == 0) {
		mounted = true;
		free_at_start = fs_free();
		return true;
	}
	if (errno != EPERM)
		FAIL("mount -t %s -o %s: %s", type, options, errno_name(errno));
	rmdir(dir);
	dir[0] = '\0';
	return false;
}

void fs_mount(const char *options)
{
	if (!try_mount(options))
		SKIP("mounting needs privileges");
}

void fs_any(void)
{
	const char *given = getenv("HPMMAP_TEST_DIR");

	if (!given && try_mount("size=256M,mode=1777"))
		return;
	if (!given && fs_of_pools())
		SKIP("mounting needs privileges, and HPMMAP_TEST_DIR is not set");
	snprintf(dir, sizeof(dir), "%s/shared-XXXXXX", given ? given : "/dev/shm");
	if (!mkdtemp(dir))
		FAIL("%s: %s", dir, errno_name(errno));
}

void fs_end(void)
{
	if (!mounted) {
		CHECK_OK(rmdir(dir));
	} else {
		await_fs_free(free_at_start);
		CHECK_OK(umount(dir));
		mounted = false;
		CHECK_OK(rmdir(dir));
	}
	dir[0] = '\0';
}

void fs_end_with(int fd, const char *name)
{
	close(fd);
	CHECK_OK(unlink(in_fs(name)));
	fs_end();
}

const char *fs_dir(void)
{
	return dir;
}

const char *in_fs(const char *name)
{
	static char text[4][PATH_MAX + 32];
	static unsigned int next;
	char *path = text[next++ % 4];

	snprintf(path, sizeof(text[0]), "%s/%s", dir, name);
	return path;
}

/* ---- Files ------------------------------------------------------------- */

int new_file(const char *name, size_t size)
{
	int fd = open(in_fs(name), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	CHECK_OK(fd);
	if (size)
		CHECK_OK(ftruncate(fd, (off_t)size));
	return fd;
}

size_t held(int fd)
{
	struct stat st;

	CHECK_OK(fstat(fd, &st));
	return (size_t)st.st_blocks * 512;
}

void expect_held(int fd, size_t want)
{
	if (fs_of_pools())
		CHECK_EQ(held(fd), want);
}

size_t size_of(int fd)
{
	struct stat st;

	CHECK_OK(fstat(fd, &st));
	return (size_t)st.st_size;
}

size_t fs_free(void)
{
	struct statfs fs;

	CHECK_OK(statfs(dir, &fs));
	return (size_t)fs.f_bfree * (size_t)fs.f_bsize;
}

void await_fs_free(size_t want)
{
	for (int i = 0; i < 400; i++) {
		if (fs_free() >= want)
			return;
		pause_ms(50);
	}
	FAIL("%zu KB of the file system are free, not %zu KB", fs_free() >> 10, want >> 10);
}

void *map_file(int fd, size_t len, int prot, int flags, size_t off)
{
	void *p = mmap(NULL, len, prot, flags, fd, (off_t)off);

	if (p == MAP_FAILED)
		FAIL("mmap of a file, %#zx at %#zx: %s", len, off, errno_name(errno));
	return p;
}

char *map_shared(int fd, size_t len)
{
	return map_file(fd, len, RW, MAP_SHARED, 0);
}

void write_at(int fd, const void *p, size_t len, size_t at)
{
	const char *from = p;

	while (len) {
		ssize_t n = pwrite(fd, from, len, (off_t)at);

		if (n <= 0)
			FAIL("pwrite(%#zx at %#zx): %s", len, at, errno_name(errno));
		from += n;
		at += (size_t)n;
		len -= (size_t)n;
	}
}

void read_at(int fd, void *p, size_t len, size_t at)
{
	char *to = p;

	while (len) {
		ssize_t n = pread(fd, to, len, (off_t)at);

		if (n <= 0)
			FAIL("pread(%#zx at %#zx): %s", len, at, n ? errno_name(errno) : "the end");
		to += n;
		at += (size_t)n;
		len -= (size_t)n;
	}
}

/* Data of Linux, so that nothing here takes memory of the pools. */
static char piece[KB(64)];

void verify_file(int fd, size_t at, size_t len, uint64_t seed, size_t off)
{
	for (size_t done = 0; done < len;) {
		size_t n = len - done < sizeof(piece) ? len - done : sizeof(piece);

		read_at(fd, piece, n, at + done);
		verify(piece, n, seed, off + done);
		done += n;
	}
}

void verify_file_zero(int fd, size_t at, size_t len)
{
	for (size_t done = 0; done < len;) {
		size_t n = len - done < sizeof(piece) ? len - done : sizeof(piece);

		read_at(fd, piece, n, at + done);
		for (size_t i = 0; i < n; i++)
			if (piece[i])
				FAIL("the file is not zero at %#zx: %#x", at + done + i,
				     (unsigned char)piece[i]);
		done += n;
	}
}

/* ---- Mappings ---------------------------------------------------------- */

static size_t kb_of(const char *line, const char *field)
{
	size_t n = strlen(field);

	return strncmp(line, field, n) == 0 && line[n] == ':' ? strtoul(line + n + 1, NULL, 10) : 0;
}

void check_eager(const void *addr, size_t len)
{
	uintptr_t from = (uintptr_t)addr, to = from + len, start, end;
	size_t rss = 0, large = 0, size = 0, want = 0;
	bool inside = false;
	char line[512];
	FILE *f;

	if (!fs_of_pools())
		return;
	f = fopen("/proc/self/smaps", "re");
	CHECK(f != NULL);
	while (fgets(line, sizeof(line), f)) {
		if (isxdigit((unsigned char)*line) && sscanf(line, "%lx-%lx ", &start, &end) == 2) {
			inside = start < to && from < end;
			if (inside) {
				uintptr_t first = round_to(start, SLOT), last = end & ~(SLOT - 1);

				size += end - start;
				want += maps_2m() && last > first ? last - first : 0;
			}
		}
		if (!inside)
			continue;
		rss += kb_of(line, "Rss") << 10;
		large += (kb_of(line, "FilePmdMapped") + kb_of(line, "ShmemPmdMapped")) << 10;
	}
	fclose(f);
	CHECK(size >= len);
	CHECK_EQ(rss, size);
	CHECK_EQ(large, want);
}

void watch_none(const void *addr, size_t len, const char *file, int line)
{
	size_t user, kernel;

	watch_end();
	if (!fs_of_pools() || !watch_available())
		return;
	user = watch_user_faults(addr, len);
	kernel = watch_kernel_faults(addr, len);
	if (user || kernel)
		check_failed(file, line, "%zu user and %zu kernel page faults in %p+%#zx, not 0",
			     user, kernel, addr, len);
}

void become_other_user(void)
{
	CHECK_OK(setgroups(0, NULL));
	CHECK_OK(setresgid(OTHER_USER, OTHER_USER, OTHER_USER));
	CHECK_OK(setresuid(OTHER_USER, OTHER_USER, OTHER_USER));
}
