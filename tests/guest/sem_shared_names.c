// SPDX-License-Identifier: GPL-2.0
/* Files of hpmmapfs: their names, permissions and times. */
#include "shared.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void links(void)
{
	struct stat st;
	size_t all;
	int fd;
	char *p;

	fs_mount("size=64M");
	all = fs_free();
	fd = new_file("a", MB(4));
	p = map_shared(fd, MB(4));
	fill(p, MB(4), 1);
	unmap(p, MB(4));
	CHECK_OK(link(in_fs("a"), in_fs("b")));
	CHECK_OK(link(in_fs("b"), in_fs("c")));
	CHECK_ERR(link(in_fs("b"), in_fs("c")), EEXIST);
	CHECK_OK(fstat(fd, &st));
	CHECK_EQ(st.st_nlink, 3);
	CHECK_OK(unlink(in_fs("a")));
	CHECK_OK(unlink(in_fs("c")));
	CHECK_ERR(unlink(in_fs("c")), ENOENT);
	close(fd);
	fd = open(in_fs("b"), O_RDWR | O_CLOEXEC);
	CHECK_OK(fd);
	verify_file(fd, 0, MB(4), 1, 0);
	/* It goes with the last of name, file and mapping. */
	p = map_shared(fd, MB(4));
	CHECK_OK(unlink(in_fs("b")));
	CHECK_OK(fstat(fd, &st));
	CHECK_EQ(st.st_nlink, 0);
	write_at(fd, "more", 4, MB(6));
	verify(p, MB(4), 1, 0);
	close(fd);
	verify(p, MB(4), 1, 0);
	CHECK(fs_free() < all);
	unmap(p, MB(4));
	fs_end();
}

static void renames(void)
{
	int a, b;

	fs_mount("size=64M");
	a = new_file("a", MB(4));
	b = new_file("b", MB(8));
	write_at(a, "a", 1, 0);
	write_at(b, "b", 1, 0);
	CHECK_ERR(renameat2(AT_FDCWD, in_fs("a"), AT_FDCWD, in_fs("b"), RENAME_NOREPLACE), EEXIST);
	CHECK_OK(renameat2(AT_FDCWD, in_fs("a"), AT_FDCWD, in_fs("b"), RENAME_EXCHANGE));
	close(a);
	a = open(in_fs("b"), O_RDONLY | O_CLOEXEC);
	CHECK_OK(a);
	CHECK_EQ(size_of(a), MB(4));
	/* What is replaced is gone when nobody has it any more. */
	CHECK_OK(rename(in_fs("b"), in_fs("a")));
	CHECK_EQ(size_of(b), MB(8));
	verify_file_zero(b, 1, MB(8) - 1);
	close(b);
	if (fs_of_pools())
		await_fs_free(MB(60));
	CHECK_ERR(open(in_fs("b"), O_RDONLY | O_CLOEXEC), ENOENT);
	CHECK_OK(mkdir(in_fs("d"), 0755));
	CHECK_OK(mkdir(in_fs("d/e"), 0755));
	CHECK_OK(rename(in_fs("a"), in_fs("d/e/a")));
	CHECK_ERR(rename(in_fs("d"), in_fs("d/e/d")), EINVAL);
	CHECK_ERR(rmdir(in_fs("d")), ENOTEMPTY);
	CHECK_OK(mkdir(in_fs("g"), 0755));
	CHECK_ERR(rename(in_fs("d/e/a"), in_fs("g")), EISDIR);
	CHECK_ERR(rename(in_fs("g"), in_fs("d/e/a")), ENOTDIR);
	CHECK_OK(rmdir(in_fs("g")));
	CHECK_ERR(unlink(in_fs("d")), EISDIR);
	CHECK_OK(rename(in_fs("d/e"), in_fs("f")));
	CHECK_OK(rmdir(in_fs("d")));
	CHECK_OK(unlink(in_fs("f/a")));
	CHECK_OK(rmdir(in_fs("f")));
	verify_file_zero(a, 1, MB(4) - 1);
	close(a);
	fs_end();
}

/* The upper layer of an overlayfs cannot be here. */
static void whiteouts(void)
{
	if (!fs_of_pools())
		SKIP("tmpfs has them");
	fs_any();
	close(new_file("a", 0));
	CHECK_ERR(renameat2(AT_FDCWD, in_fs("a"), AT_FDCWD, in_fs("b"), RENAME_WHITEOUT), EINVAL);
	CHECK_ERR(access(in_fs("b"), F_OK), ENOENT);
	CHECK_OK(unlink(in_fs("a")));
	fs_end();
}

static void without_a_name(void)
{
	char path[64];
	int fd;

	fs_mount("size=64M");
	fd = open(fs_dir(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	CHECK_OK(fd);
	CHECK_OK(ftruncate(fd, (off_t)MB(4)));
	write_at(fd, "x", 1, 0);
	expect_held(fd, MB(4));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	CHECK_OK(linkat(AT_FDCWD, path, AT_FDCWD, in_fs("named"), AT_SYMLINK_FOLLOW));
	close(fd);
	fd = open(in_fs("named"), O_RDWR | O_CLOEXEC);
	CHECK_OK(fd);
	CHECK_EQ(size_of(fd), MB(4));
	close(fd);
	CHECK_OK(unlink(in_fs("named")));
	/* Never named, it goes with its last file. */
	fd = open(fs_dir(), O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
	CHECK_OK(fd);
	CHECK_OK(ftruncate(fd, (off_t)MB(64)));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	CHECK_ERR(linkat(AT_FDCWD, path, AT_FDCWD, in_fs("named"), AT_SYMLINK_FOLLOW), ENOENT);
	close(fd);
	fs_end();
}

static void other_names(void)
{
	char text[64], name[300];
	struct dirent *entry;
	struct stat st;
	int fd, nr = 0;
	DIR *all;

	fs_any();
	CHECK_OK(symlink("somewhere/else", in_fs("s")));
	CHECK_EQ(readlink(in_fs("s"), text, sizeof(text)), 14);
	CHECK(memcmp(text, "somewhere/else", 14) == 0);
	CHECK_ERR(open(in_fs("s"), O_RDWR | O_CREAT | O_CLOEXEC, 0600), ENOENT);
	CHECK_OK(mkfifo(in_fs("f"), 0600));
	fd = open(in_fs("f"), O_RDWR | O_CLOEXEC);
	CHECK_OK(fd);
	CHECK_EQ(write(fd, "x", 1), 1);
	CHECK_EQ(read(fd, text, 1), 1);
	close(fd);
	CHECK_OK(mkdir(in_fs("d"), 0750));
	CHECK_OK(stat(in_fs("d"), &st));
	CHECK_EQ(st.st_nlink, 2);
	CHECK_ERR(mkdir(in_fs("d"), 0750), EEXIST);
	CHECK_ERR(open(in_fs("d"), O_RDWR | O_CLOEXEC), EISDIR);
	memset(name, 'n', sizeof(name));
	name[256] = '\0';
	CHECK_ERR(open(in_fs(name), O_RDWR | O_CREAT | O_CLOEXEC, 0600), ENAMETOOLONG);
	name[255] = '\0';
	fd = open(in_fs(name), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	CHECK_OK(fd);
	close(fd);
	CHECK_ERR(open(in_fs(name), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600), EEXIST);
	all = opendir(fs_dir());
	CHECK(all != NULL);
	while ((entry = readdir(all)))
		nr += entry->d_name[0] != '.';
	CHECK_EQ(nr, 4);
	/* Read while names go. */
	rewinddir(all);
	CHECK_OK(unlink(in_fs(name)));
	CHECK_OK(unlink(in_fs("s")));
	for (nr = 0; (entry = readdir(all)); nr++)
		;
	CHECK(nr >= 4);
	closedir(all);
	CHECK_OK(unlink(in_fs("f")));
	CHECK_OK(rmdir(in_fs("d")));
	fs_end();
}

static void rights(void)
{
	struct stat st;
	pid_t pid;
	int fd;

	if (geteuid() != 0)
		SKIP("to become somebody else needs root");
	fs_mount("size=64M,mode=1777");
	CHECK_OK(stat(fs_dir(), &st));
	CHECK_EQ(st.st_mode, S_IFDIR | 01777);
	fd = new_file("root's", MB(2));
	CHECK_OK(fchmod(fd, 0640));
	CHECK_OK(mkdir(in_fs("group"), 0777));
	CHECK_OK(chown(in_fs("group"), 0, 77));
	CHECK_OK(chmod(in_fs("group"), 02777));
	pid = fork_child();
	if (pid == 0) {
		become_other_user();
		CHECK_ERR(open(in_fs("root's"), O_RDONLY), EACCES);
		CHECK_ERR(open(in_fs("root's"), O_WRONLY | O_TRUNC), EACCES);
		CHECK_ERR(truncate(in_fs("root's"), 0), EACCES);
		CHECK_ERR(unlink(in_fs("root's")), EPERM);
		CHECK_ERR(chmod(in_fs("root's"), 0777), EPERM);
		CHECK_ERR(rename(in_fs("root's"), in_fs("mine")), EPERM);
		fd = new_file("other's", MB(2));
		CHECK_OK(fstat(fd, &st));
		CHECK_EQ(st.st_uid, OTHER_USER);
		CHECK_EQ(st.st_gid, OTHER_USER);
		CHECK_EQ(st.st_mode, S_IFREG | 0600);
		CHECK_ERR(fchown(fd, 0, 0), EPERM);
		fd = new_file("group/other's", 0);
		CHECK_OK(fstat(fd, &st));
		CHECK_EQ(st.st_gid, 77);
		CHECK_OK(unlink(in_fs("group/other's")));
		CHECK_ERR(mount("none", fs_dir(), "hpmmap", 0, "size=2M"), EPERM);
		CHECK_ERR(umount(fs_dir()), EPERM);
		_exit(0);
	}
	expect_success(pid);
	/* Who writes to a program takes away that it runs as somebody else. */
	CHECK_OK(chmod(in_fs("other's"), 06777));
	pid = fork_child();
	if (pid == 0) {
		become_other_user();
		fd = open(in_fs("other's"), O_RDWR | O_CLOEXEC);
		CHECK_OK(fd);
		write_at(fd, "x", 1, 0);
		CHECK_OK(fstat(fd, &st));
		CHECK_EQ(st.st_mode & 06000, 0);
		CHECK_OK(fchmod(fd, 06777));
		CHECK_OK(ftruncate(fd, 1));
		CHECK_OK(fstat(fd, &st));
		CHECK_EQ(st.st_mode & 06000, 0);
		_exit(0);
	}
	expect_success(pid);
	close(fd);
	CHECK_OK(rmdir(in_fs("group")));
	CHECK_OK(unlink(in_fs("root's")));
	CHECK_OK(unlink(in_fs("other's")));
	fs_end();
}

static struct timespec changed(int fd)
{
	struct stat st;

	CHECK_OK(fstat(fd, &st));
	return st.st_mtim;
}

static bool later(struct timespec a, struct timespec b)
{
	return a.tv_sec > b.tv_sec || (a.tv_sec == b.tv_sec && a.tv_nsec > b.tv_nsec);
}

static void times(void)
{
	struct timespec set[2] = { { 1000, 5 }, { 2000, 7 } }, last;
	struct stat st;
	int fd;

	fs_any();
	fd = new_file("a", MB(2));
	CHECK_OK(futimens(fd, set));
	CHECK_OK(fstat(fd, &st));
	CHECK_EQ(st.st_atim.tv_sec, 1000);
	CHECK_EQ(st.st_mtim.tv_sec, 2000);
	CHECK_EQ(st.st_mtim.tv_nsec, 7);
	last = changed(fd);
	write_at(fd, "x", 1, 0);
	CHECK(later(changed(fd), last));
	CHECK_OK(futimens(fd, set));
	CHECK_OK(ftruncate(fd, 1));
	CHECK(later(changed(fd), set[1]));
	CHECK_OK(futimens(fd, set));
	CHECK_OK(fallocate(fd, 0, 0, (off_t)MB(4)));
	CHECK(later(changed(fd), set[1]));
	fs_end_with(fd, "a");
}

int main(void)
{
	static const struct test tests[] = {
		T(links),
		T(renames),
		T(whiteouts),
		T(without_a_name),
		T(other_names),
		T(rights),
		T(times),
	};

	return RUN_GROUP("sem_shared_names", tests);
}
