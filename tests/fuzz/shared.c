// SPDX-License-Identifier: GPL-2.0
/*
 * Files that several processes have mapped, against a model.
 *
 * Two processes and their children do random things with the same two files, one after
 * the other: they grow, cut and punch them, write and read in all ways, map them shared
 * and private, move and protect the mappings, fork, reach into each other's memory. The
 * model, which they share, has each file's size and bytes. Each process has its own
 * mappings, and what a private one has copied. After each call what it may have changed
 * is compared, every now and then everything.
 *
 * Whose turn it is follows from the seed, so the same seed does the same again. Beside
 * them --touchers read the files all the time, by mappings and otherwise, so that what
 * is cut is in use just then; they check nothing.
 *
 * With --room BYTES the file system has no more memory than that (hpmmapfs): what does
 * not fit must fail with ENOSPC and leave the file as it was, what fits must not.
 *
 * The model lies in a file of Linux, and what is private of a process in its static data.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common.h"

#define PAGE		4096UL
#define SLOT		(2UL << 20)
#define MB(n)		((size_t)(n) << 20)
#define RW		(PROT_READ | PROT_WRITE)

#define NR_FILES	2
#define FILE_BYTES	MB(12)
#define FILE_PAGES	(FILE_BYTES / PAGE)
#define NR_MAPS		6
#define MAP_BYTES	MB(8)
/* Of one map, where it is not left to the kernel. */
#define ROOM		MB(32)
#define ARENA		0x2000000000UL
#define NR_PLAYERS	6
#define NR_TOUCHERS	4
#define CHILD_OPS	30
#define BUFFER		MB(1)

/* Something another process may look at. */
struct window {
	pid_t pid;
	char *p;
	size_t len;
	size_t off;
	int file;
	bool writable;
};

static struct model {
	uint64_t rng;			/* whose turn it is */
	_Atomic uint32_t turn;
	bool plays[NR_PLAYERS];
	struct window windows[NR_PLAYERS];
	uint64_t op;			/* of all */
	_Atomic bool over;
	uint64_t nr_full, nr_bus, nr_forks, nr_calls;
	struct file {
		size_t size;
		uint64_t cut[FILE_PAGES];	/* when the page was last behind the end */
		unsigned char bytes[FILE_BYTES];
	} files[NR_FILES];
} *model;

struct map {
	char *p;
	size_t len;
	size_t off;
	int file;
	int prot;
	bool private;
	uint64_t copied[MAP_BYTES / PAGE];	/* when; 0: it is the file's page */
};

static struct map maps[NR_MAPS];
static unsigned char copies[NR_MAPS][MAP_BYTES];
static unsigned char buffer[BUFFER], second[BUFFER];
static int fds[NR_FILES];
static char paths[NR_FILES][4096];
static unsigned int player;
static uint64_t rng;
static struct child {
	pid_t pid;
	unsigned int player;
} children[2];

static uint64_t seed = 1;
static size_t room;
static bool trace;
static const char *op_name = "start";

static _Noreturn void fail(const char *fmt, ...)
{
	char head[128];
	va_list args;

	snprintf(head, sizeof(head), "shared: seed %" PRIu64 ", operation %" PRIu64 " (%s), player %u: ", seed,
		 model ? model->op : 0, op_name, player);
	va_start(args, fmt);
	complain(head, fmt, args);
	va_end(args);
	if (model)
		model->over = true;
	_exit(1);
}

static void tell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void tell(const char *fmt, ...)
{
	char text[300];
	va_list args;
	int n;

	model->nr_calls++;
	if (!trace)
		return;
	n = snprintf(text, sizeof(text), "%" PRIu64 " %u: ", model->op, player);
	va_start(args, fmt);
	n += vsnprintf(text + n, sizeof(text) - (size_t)n - 1, fmt, args);
	va_end(args);
	text[n++] = '\n';
	if (write(STDOUT_FILENO, text, (size_t)n) < 0)
		_exit(2);
}

static size_t below(size_t n)
{
	return (size_t)(step(&rng) % n);
}

static size_t up(size_t n, size_t unit)
{
	return (n + unit - 1) / unit * unit;
}

static size_t smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* ---- Whose turn it is ------------------------------------------------------- */

static void await_turn(void)
{
	struct timespec most = { .tv_sec = 1 };
	uint32_t now;

	while ((now = model->turn) != player) {
		if (model->over)
			_exit(0);
		syscall(SYS_futex, &model->turn, FUTEX_WAIT, now, &most, NULL, 0);
	}
	model->op++;
}

static void publish(void)
{
	struct window *mine = &model->windows[player];

	*mine = (struct window){ 0 };
	for (size_t i = 0; i < NR_MAPS && !mine->p; i++)
		if (maps[i].p && !maps[i].private && maps[i].prot & PROT_READ)
			*mine = (struct window){
				getpid(), maps[i].p, maps[i].len, maps[i].off, maps[i].file,
				maps[i].prot & PROT_WRITE,
			};
}

static void end_turn(bool for_good)
{
	uint32_t next;

	if (for_good) {
		model->plays[player] = false;
		model->windows[player] = (struct window){ 0 };
	} else {
		publish();
	}
	for (next = 0; next < NR_PLAYERS && !model->plays[next]; next++)
		;
	if (next < NR_PLAYERS)
		do
			next = (uint32_t)(step(&model->rng) % NR_PLAYERS);
		while (!model->plays[next]);
	model->turn = next;
	syscall(SYS_futex, &model->turn, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* ---- Accesses that may end in a signal ----------------------------------------- */

static sigjmp_buf back;
static volatile sig_atomic_t armed;
static volatile int caught;

static void on_signal(int sig)
{
	if (!armed)
		fail("SIG%s", sigabbrev_np(sig));
	caught = sig;
	siglongjmp(back, 1);
}

static void catch_signals(void)
{
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_NODEFER };

	sigaction(SIGSEGV, &action, NULL);
	sigaction(SIGBUS, &action, NULL);
}

/* What signal an access gives, or 0. */
static int access_at(volatile unsigned char *p, bool write, unsigned char value)
{
	caught = 0;
	armed = 1;
	if (sigsetjmp(back, 0) == 0) {
		if (write)
			*p = value;
		else
			(void)*p;
	}
	armed = 0;
	return caught;
}

/* ---- The model ----------------------------------------------------------------- */

static size_t needed(size_t size)
{
	return up(size, SLOT);
}

static size_t room_left(void)
{
	size_t used = 0;

	for (int i = 0; i < NR_FILES; i++)
		used += needed(model->files[i].size);
	return room - used;
}

static bool fits(int file, size_t size)
{
	size_t has = needed(model->files[file].size);

	return !room || needed(size) <= has || needed(size) - has <= room_left();
}

static void set_size(int file, size_t size)
{
	struct file *f = &model->files[file];

	if (size < f->size) {
		memset(f->bytes + size, 0, f->size - size);
		for (size_t page = up(size, PAGE) / PAGE; page < FILE_PAGES; page++)
			f->cut[page] = model->op;
	}
	f->size = size;
}

static void set_bytes(int file, size_t at, const void *bytes, size_t len)
{
	struct file *f = &model->files[file];

	if (at + len > f->size)
		set_size(file, at + len);
	memmove(f->bytes + at, bytes, len);
}

static void zero_bytes(int file, size_t at, size_t len)
{
	struct file *f = &model->files[file];

	if (at < f->size)
		memset(f->bytes + at, 0, smaller(len, f->size - at));
}

/* Has a private mapping a copy of its own of the page? */
static bool is_copied(const struct map *map, size_t page)
{
	size_t of_file = map->off / PAGE + page;

	return map->copied[page] && (of_file >= FILE_PAGES || map->copied[page] > model->files[map->file].cut[of_file]);
}

/* Where the page's bytes are, or NULL behind the end; how many count. */
static const unsigned char *page_of(const struct map *map, size_t page, size_t *count)
{
	const struct file *f = &model->files[map->file];
	size_t at = map->off + page * PAGE;

	*count = PAGE;
	if (at >= f->size)
		return NULL;
	if (is_copied(map, page))
		return copies[map - maps] + page * PAGE;
	*count = smaller(PAGE, f->size - at);
	return f->bytes + at;
}

static void differ(const char *what, const unsigned char *got, const unsigned char *want, size_t len, size_t at)
{
	for (size_t i = 0; i < len; i++)
		if (got[i] != want[i])
			fail("%s: at %#zx there is %#x, not %#x", what, at + i, got[i], want[i]);
}

static void look_at_page(const struct map *map, size_t page)
{
	const unsigned char *p = (const unsigned char *)map->p + page * PAGE, *want;
	size_t count;

	if (!(map->prot & PROT_READ))
		return;
	want = page_of(map, page, &count);
	if (!want) {
		if (access_at((unsigned char *)p, false, 0) != SIGBUS)
			fail("a page behind the end is there, at %#zx of file %d", map->off + page * PAGE, map->file);
		model->nr_bus++;
		return;
	}
	armed = 1;
	if (sigsetjmp(back, 0) != 0)
		fail("SIG%s at %#zx of file %d, which has %#zx bytes", sigabbrev_np(caught), map->off + page * PAGE,
		     map->file, model->files[map->file].size);
	if (memcmp(p, want, count) != 0)
		differ(map->private ? "private mapping" : "mapping", p, want, count, map->off + page * PAGE);
	armed = 0;
}

static void look_at_file(int file, size_t at, size_t len)
{
	struct file *f = &model->files[file];
	struct stat st;

	if (fstat(fds[file], &st) != 0)
		fail("fstat: %s", strerrorname_np(errno));
	if ((size_t)st.st_size != f->size)
		fail("file %d has %#zx bytes, not %#zx", file, (size_t)st.st_size, f->size);
	if (room && (size_t)st.st_blocks * 512 != needed(f->size))
		fail("file %d of %#zx bytes holds %#zx", file, f->size, (size_t)st.st_blocks * 512);
	while (len) {
		size_t want = smaller(len, BUFFER), have = at < f->size ? smaller(want, f->size - at) : 0;
		ssize_t n = pread(fds[file], buffer, want, (off_t)at);

		if (n != (ssize_t)have)
			fail("pread(%#zx at %#zx) gives %zd, not %zu", want, at, n, have);
		if (memcmp(buffer, f->bytes + at, have) != 0)
			differ("pread", buffer, f->bytes + at, have, at);
		if (have < want)
			break;
		at += have;
		len -= have;
	}
}

/* Some pages of all mappings, and what is around a place in the file. */
static void look_around(int file, size_t at, size_t len)
{
	size_t from = at > PAGE ? at - PAGE : 0;

	look_at_file(file, from, smaller(len + 2 * PAGE, 4 * BUFFER));
	for (size_t i = 0; i < NR_MAPS; i++) {
		struct map *map = &maps[i];

		if (!map->p)
			continue;
		for (int n = 0; n < 6; n++) {
			size_t page = below(map->len / PAGE);

			/* Mostly where something has happened. */
			if (map->file == file && n < 4) {
				size_t near = (n & 1 ? at : at + len) / PAGE;

				if (near < map->off / PAGE || near - map->off / PAGE >= map->len / PAGE)
					continue;
				page = near - map->off / PAGE;
			}
			look_at_page(map, page);
		}
	}
}

static void look_at_all(void)
{
	for (int i = 0; i < NR_FILES; i++)
		look_at_file(i, 0, FILE_BYTES);
	for (size_t i = 0; i < NR_MAPS; i++) {
		size_t page = 0, nr = maps[i].p ? maps[i].len / PAGE : 0;

		while (page < nr) {
			size_t count;

			look_at_page(&maps[i], page);
			/* Of the pages behind the end, some: each costs a signal. */
			page += page_of(&maps[i], page, &count) || page + 1 == nr ? 1 : smaller(97, nr - 1 - page);
		}
	}
}

/* ---- Choices --------------------------------------------------------------------- */

static size_t some_size(void)
{
	switch (below(6)) {
	case 0:
		return 0;
	case 1:
		return SLOT * below(FILE_BYTES / SLOT + 1);
	case 2:
		return PAGE * below(FILE_PAGES + 1);
	default:
		return below(FILE_BYTES + 1);
	}
}

static void some_range(size_t *at, size_t *len)
{
	*at = below(3) ? below(FILE_BYTES) : SLOT * below(FILE_BYTES / SLOT);
	*len = below(4) ? 1 + below(3 * PAGE) : below(3) ? 1 + below(BUFFER) : SLOT * (1 + below(2));
	*len = smaller(*len, FILE_BYTES - *at);
}

static void make_bytes(unsigned char *to, size_t len)
{
	uint64_t word = step(&rng) | 1;

	for (size_t i = 0; i + 8 <= len; i += 8, word += 0x9e3779b97f4a7c15ULL)
		memcpy(to + i, &word, 8);
	for (size_t i = len & ~7UL; i < len; i++)
		to[i] = (unsigned char)(word >> (i & 7) * 8);
}

/* Did a call that has to make a file larger do what it should? Then true. */
static bool grew(const char *what, int file, size_t size, bool done)
{
	int err = errno;

	if (done) {
		if (!fits(file, size))
			fail("%s: file %d grew to %#zx, and there is no room", what, file, size);
		return true;
	}
	if (err != ENOSPC)
		fail("%s: %s", what, strerrorname_np(err));
	if (fits(file, size))
		fail("%s: ENOSPC, file %d of %#zx to %#zx, %#zx are left", what, file, model->files[file].size, size,
		     room_left());
	model->nr_full++;
	look_at_file(file, 0, FILE_BYTES);
	return false;
}

/* What touchers hold on to for a moment is not free. */
#define PATIENTLY(call, file, size) ({					\
	long got_;							\
									\
	for (int tries_ = 0; ; tries_++) {				\
		got_ = (long)(call);					\
		if (got_ != -1 || errno != ENOSPC || !fits(file, size) || tries_ == 100) \
			break;						\
		usleep(20000);						\
	}								\
	got_;								\
})

/* ---- Operations on files ------------------------------------------------------------ */

static void op_truncate(void)
{
	int file = (int)below(NR_FILES);
	size_t size = some_size(), old = model->files[file].size;
	long got;

	tell("ftruncate %d %#zx -> %#zx", file, old, size);
	if (below(4))
		got = PATIENTLY(ftruncate(fds[file], (off_t)size), file, size);
	else
		got = PATIENTLY(truncate(paths[file], (off_t)size), file, size);
	if (grew("ftruncate", file, size, got == 0))
		set_size(file, size);
	look_around(file, smaller(size, old), 0);
	look_around(file, size > old ? size : old, 0);
}

static void op_allocate(void)
{
	int file = (int)below(NR_FILES);
	size_t at, len, end;
	long got;

	some_range(&at, &len);
	end = at + len > model->files[file].size ? at + len : model->files[file].size;
	tell("fallocate %d %#zx+%#zx", file, at, len);
	got = PATIENTLY(fallocate(fds[file], 0, (off_t)at, (off_t)len), file, end);
	if (grew("fallocate", file, end, got == 0))
		set_size(file, end);
	look_around(file, at, len);
}

static void op_punch(void)
{
	int file = (int)below(NR_FILES);
	size_t at, len;

	some_range(&at, &len);
	tell("punch %d %#zx+%#zx", file, at, len);
	if (fallocate(fds[file], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)len) != 0)
		fail("PUNCH_HOLE: %s", strerrorname_np(errno));
	zero_bytes(file, at, len);
	look_around(file, at, len);
}

static void op_zero(void)
{
	int file = (int)below(NR_FILES);
	bool keep = below(2);
	size_t at, len, end;
	long got;

	some_range(&at, &len);
	end = model->files[file].size;
	if (!keep && at + len > end)
		end = at + len;
	/* What it would do behind the end is not agreed on. */
	if (keep && at + len > end)
		return;
	tell("zero %d %#zx+%#zx keep %d", file, at, len, keep);
	got = PATIENTLY(fallocate(fds[file], FALLOC_FL_ZERO_RANGE | (keep ? FALLOC_FL_KEEP_SIZE : 0), (off_t)at, (off_t)len), file, end);
	if (got != 0 && errno == EOPNOTSUPP)
		return;
	if (grew("ZERO_RANGE", file, end, got == 0)) {
		set_size(file, end);
		zero_bytes(file, at, len);
	}
	look_around(file, at, len);
}

/* By a pipe, as much as fits. */
static ssize_t write_by_pipe(int file, const void *from, size_t len, size_t at)
{
	loff_t to = (loff_t)at;
	ssize_t n;
	int fd[2], err;

	if (pipe(fd) != 0)
		fail("pipe: %s", strerrorname_np(errno));
	if (write(fd[1], from, len) != (ssize_t)len)
		fail("a pipe does not take %zu bytes", len);
	n = splice(fd[0], NULL, fds[file], &to, len, 0);
	err = errno;
	close(fd[0]);
	close(fd[1]);
	errno = err;
	return n;
}

static void op_write(void)
{
	int file = (int)below(NR_FILES), way = (int)below(4);
	size_t at, len, end;
	const struct map *map = NULL;
	const unsigned char *from = buffer;
	ssize_t got;

	some_range(&at, &len);
	len = smaller(len, way == 1 ? 60000 : BUFFER);
	make_bytes(buffer, len);
	/* From memory of a mapping, perhaps the same file's. */
	if (way == 2)
		map = &maps[below(NR_MAPS)];
	if (map && map->p && map->prot & PROT_READ && !map->private) {
		size_t size = model->files[map->file].size, skip = below(map->len);

		if (map->off + skip >= size)
			return;
		len = smaller(smaller(len, map->len - skip), size - map->off - skip);
		from = (const unsigned char *)map->p + skip;
		/* What is read while it is written is not agreed on. */
		if (map->file == file && map->off + skip < at + len && at < map->off + skip + len)
			return;
		memcpy(buffer, model->files[map->file].bytes + map->off + skip, len);
	}
	end = at + len > model->files[file].size ? at + len : model->files[file].size;
	tell("write %d %#zx+%#zx way %d", file, at, len, way);
	if (way == 1)
		got = PATIENTLY(write_by_pipe(file, buffer, len, at), file, end);
	else if (way == 3 && len > 16)
		got = PATIENTLY(pwritev(fds[file], (struct iovec[]){ { buffer, 7 }, { buffer + 7, len - 7 } }, 2, (off_t)at), file, end);
	else
		got = PATIENTLY(pwrite(fds[file], from, len, (off_t)at), file, end);
	if (way == 1 && got > 0 && got < (ssize_t)len) {
		/* A pipe gives it piece by piece. */
		if (!fits(file, at + (size_t)got))
			fail("splice: file %d grew, and there is no room", file);
		set_bytes(file, at, buffer, (size_t)got);
		look_around(file, at, (size_t)got);
		return;
	}
	if (grew("write", file, end, got >= 0)) {
		if (got != (ssize_t)len)
			fail("of %zu bytes %zd were written", len, got);
		set_bytes(file, at, buffer, len);
	}
	look_around(file, at, len);
}

static void op_read(void)
{
	int file = (int)below(NR_FILES), fd[2];
	struct file *f = &model->files[file];
	size_t at, len;
	loff_t from;
	ssize_t n, m;

	some_range(&at, &len);
	if (below(2)) {
		tell("read %d %#zx+%#zx", file, at, len);
		look_at_file(file, at, len);
		return;
	}
	len = smaller(len, 60000);
	tell("splice from %d %#zx+%#zx", file, at, len);
	if (pipe(fd) != 0)
		fail("pipe: %s", strerrorname_np(errno));
	from = (loff_t)at;
	n = splice(fds[file], &from, fd[1], NULL, len, 0);
	if (n < 0 || (n == 0) != (at >= f->size) || (n > 0 && at + (size_t)n > f->size))
		fail("splice of %#zx at %#zx of %#zx gives %zd", len, at, f->size, n);
	for (ssize_t done = 0; done < n; done += m) {
		m = read(fd[0], second + done, (size_t)(n - done));
		if (m <= 0)
			fail("the pipe gives %zd", m);
	}
	differ("splice", second, f->bytes + at, (size_t)n, at);
	close(fd[0]);
	close(fd[1]);
}

static void op_copy(void)
{
	int from = (int)below(NR_FILES), to = (int)below(NR_FILES);
	struct file *f = &model->files[from];
	size_t at, len, end, src;
	loff_t in, out;
	ssize_t got;

	some_range(&at, &len);
	src = below(FILE_BYTES);
	if (src >= f->size)
		return;
	len = smaller(smaller(len, BUFFER), f->size - src);
	if (from == to && src < at + len && at < src + len)
		return;
	end = at + len > model->files[to].size ? at + len : model->files[to].size;
	in = (loff_t)src;
	out = (loff_t)at;
	tell("copy_file_range %d %#zx -> %d %#zx+%#zx", from, src, to, at, len);
	got = PATIENTLY(copy_file_range(fds[from], &in, fds[to], &out, len, 0), to, end);
	if (got > 0 && got < (ssize_t)len && fits(to, at + (size_t)got)) {
		len = (size_t)got;
		end = at + len > model->files[to].size ? at + len : model->files[to].size;
	}
	if (grew("copy_file_range", to, end, got > 0)) {
		memcpy(second, f->bytes + src, len);
		set_bytes(to, at, second, len);
	}
	look_around(to, at, len);
}

static void op_reopen(void)
{
	int file = (int)below(NR_FILES);

	tell("reopen %d", file);
	close(fds[file]);
	fds[file] = open(paths[file], O_RDWR | O_CLOEXEC);
	if (fds[file] < 0)
		fail("open: %s", strerrorname_np(errno));
	look_at_file(file, 0, PAGE);
}

/* ---- Operations on mappings ------------------------------------------------------------- */

static struct map *some_map(void)
{
	struct map *map = &maps[below(NR_MAPS)];

	return map->p ? map : NULL;
}

static char *place_of(const struct map *map, size_t off)
{
	char *base = (char *)ARENA + (size_t)(map - maps) * ROOM + below(2) * (ROOM / 2);

	return base + (below(2) ? off % SLOT : PAGE * below(SLOT / PAGE));
}

static void drop(struct map *map)
{
	if (munmap(map->p, map->len) != 0)
		fail("munmap: %s", strerrorname_np(errno));
	map->p = NULL;
}

static void op_map(void)
{
	struct map *map = &maps[below(NR_MAPS)];
	int flags;
	char *at = NULL;

	if (map->p)
		drop(map);
	map->file = (int)below(NR_FILES);
	map->private = below(5) == 0;
	map->len = PAGE * (1 + (below(2) ? below(MAP_BYTES / PAGE) : below(20)));
	if (below(3) == 0)
		map->len = SLOT * (1 + below(MAP_BYTES / SLOT));
	map->off = below(2) ? SLOT * below(FILE_BYTES / SLOT) : PAGE * below(FILE_PAGES);
	map->prot = below(4) ? RW : PROT_READ;
	flags = map->private ? MAP_PRIVATE : MAP_SHARED;
	/* What is private would be copied by it. */
	if (below(8) == 0 && !map->private)
		flags |= MAP_POPULATE;
	if (below(2)) {
		at = place_of(map, map->off);
		flags |= MAP_FIXED;
	}
	tell("mmap %d %#zx+%#zx prot %d flags %#x", map->file, map->off, map->len, (unsigned int)map->prot, (unsigned int)flags);
	map->p = mmap(at, map->len, map->prot, flags, fds[map->file], (off_t)map->off);
	if (map->p == MAP_FAILED)
		fail("mmap: %s", strerrorname_np(errno));
	memset(map->copied, 0, sizeof(map->copied));
	look_around(map->file, map->off, map->len);
}

static void op_unmap(void)
{
	struct map *map = some_map(), *rest = NULL;
	size_t from, nr;

	if (!map)
		return;
	nr = map->len / PAGE;
	from = below(nr);
	tell("munmap %#zx+%#zx from page %zu", map->off, map->len, from);
	if (below(3) == 0) {
		drop(map);
		return;
	}
	if (below(2)) {
		/* Its tail. */
		if (from == 0) {
			drop(map);
			return;
		}
		if (munmap(map->p + from * PAGE, map->len - from * PAGE) != 0)
			fail("munmap: %s", strerrorname_np(errno));
		map->len = from * PAGE;
	} else {
		for (size_t i = 0; i < NR_MAPS && !rest; i++)
			if (!maps[i].p)
				rest = &maps[i];
		if (!rest || from == 0 || from + 1 >= nr || map->private)
			return;
		/* A page in the middle. */
		if (munmap(map->p + from * PAGE, PAGE) != 0)
			fail("munmap: %s", strerrorname_np(errno));
		*rest = *map;
		rest->p += (from + 1) * PAGE;
		rest->off += (from + 1) * PAGE;
		rest->len -= (from + 1) * PAGE;
		map->len = from * PAGE;
		/* Not where the other's room is: it could be mapped over. */
		drop(rest);
		if (access_at((unsigned char *)map->p + map->len, false, 0) != SIGSEGV)
			fail("what was unmapped is there");
	}
	look_around(map->file, map->off + map->len - PAGE, PAGE);
}

static void op_protect(void)
{
	static const int prots[] = { RW, PROT_READ, PROT_NONE };
	struct map *map = some_map();
	size_t first, nr;
	int prot;

	if (!map)
		return;
	prot = prots[below(3)];
	first = below(map->len / PAGE);
	nr = 1 + below(map->len / PAGE - first);
	tell("mprotect %#zx+%#zx prot %d", first * PAGE, nr * PAGE, prot);
	if (mprotect(map->p + first * PAGE, nr * PAGE, prot) != 0)
		fail("mprotect: %s", strerrorname_np(errno));
	if (prot != RW && access_at((unsigned char *)map->p + first * PAGE, true, 0) != SIGSEGV)
		fail("what may not be written to was");
	if (prot == PROT_NONE && access_at((unsigned char *)map->p + (first + nr) * PAGE - 1, false, 0) != SIGSEGV)
		fail("what may not be read was");
	/* Then all of it is the same. */
	map->prot = below(4) ? RW : PROT_READ;
	if (mprotect(map->p, map->len, map->prot) != 0)
		fail("mprotect: %s", strerrorname_np(errno));
	look_around(map->file, map->off + first * PAGE, nr * PAGE);
}

static void op_remap(void)
{
	struct map *map = some_map();
	size_t len, pages;
	char *to, *got;

	if (!map)
		return;
	len = below(2) ? map->len : PAGE * (1 + below(MAP_BYTES / PAGE));
	pages = map->len / PAGE;
	to = place_of(map, map->off);
	tell("mremap %#zx+%#zx -> %#zx", map->off, map->len, len);
	if (below(2) && (to + len <= map->p || map->p + map->len <= to))
		got = mremap(map->p, map->len, len, MREMAP_MAYMOVE | MREMAP_FIXED, to);
	else
		got = mremap(map->p, map->len, len, MREMAP_MAYMOVE);
	if (got == MAP_FAILED) {
		/* Several mappings that look like one: what was at the new place is nobody's. */
		if (errno != EFAULT)
			fail("mremap: %s", strerrorname_np(errno));
	} else {
		map->p = got;
		map->len = len;
		for (size_t page = pages; page < len / PAGE; page++)
			map->copied[page] = 0;
	}
	look_around(map->file, map->off, map->len);
}

static void op_touch(void)
{
	struct map *map = some_map();

	for (int n = 0; map && n < 20; n++) {
		size_t at = below(map->len), page = at / PAGE, count;
		struct file *f = &model->files[map->file];
		const unsigned char *want = page_of(map, page, &count);
		unsigned char value = (unsigned char)below(256);
		bool writes = map->prot & PROT_WRITE && below(2);
		int sig;

		/* What is behind the end, and in its page, is not agreed on. */
		if (want && at % PAGE >= count)
			continue;
		sig = access_at((unsigned char *)map->p + at, writes, value);
		if (sig != (want ? 0 : SIGBUS))
			fail("touching %#zx of file %d with %#zx bytes gives signal %d", map->off + at, map->file, f->size, sig);
		model->nr_bus += sig == SIGBUS;
		if (!writes || !want)
			continue;
		if (!map->private) {
			f->bytes[map->off + at] = value;
			continue;
		}
		if (!is_copied(map, page)) {
			unsigned char *copy = copies[map - maps] + page * PAGE;

			memcpy(copy, want, count);
			/* Behind the end of the file: as it was. */
			memcpy(copy + count, map->p + page * PAGE + count, PAGE - count);
			map->copied[page] = model->op;
		}
		copies[map - maps][at] = value;
	}
	if (map)
		look_around(map->file, map->off, map->len);
}

/* Whole pages, by the kernel too: a read(2) into the mapping. */
static void op_fill(void)
{
	struct map *map = some_map();
	size_t at, len, size;

	if (!map || map->private || !(map->prot & PROT_WRITE))
		return;
	size = model->files[map->file].size;
	at = below(map->len);
	if (map->off + at >= size)
		return;
	len = smaller(smaller(1 + below(2 * BUFFER), BUFFER), smaller(map->len - at, size - map->off - at));
	make_bytes(second, len);
	tell("fill %d %#zx+%#zx", map->file, map->off + at, len);
	if (below(2)) {
		int fd[2];
		size_t part = smaller(len, 60000);

		if (pipe(fd) != 0)
			fail("pipe: %s", strerrorname_np(errno));
		if (write(fd[1], second, part) != (ssize_t)part || read(fd[0], map->p + at, part) != (ssize_t)part)
			fail("read into a mapping: %s", strerrorname_np(errno));
		close(fd[0]);
		close(fd[1]);
		len = part;
	} else {
		armed = 0;
		memcpy(map->p + at, second, len);
	}
	set_bytes(map->file, map->off + at, second, len);
	look_around(map->file, map->off + at, len);
}

static void op_advise(void)
{
	static const int advices[] = { MADV_DONTNEED, MADV_REMOVE, MADV_WILLNEED, MADV_COLD, MADV_PAGEOUT, MADV_POPULATE_READ };
	struct map *map = some_map();
	int which = advices[below(6)];
	size_t first, nr;

	if (!map)
		return;
	first = below(map->len / PAGE);
	nr = 1 + below(map->len / PAGE - first);
	tell("madvise %d %d %#zx+%#zx", which, map->file, map->off + first * PAGE, nr * PAGE);
	munlock(map->p, map->len);
	if (which == MADV_REMOVE && (map->private || !(map->prot & PROT_WRITE)))
		return;
	if (madvise(map->p + first * PAGE, nr * PAGE, which) != 0 &&
	    !(which == MADV_POPULATE_READ && errno == EFAULT && map->off + (first + nr) * PAGE > up(model->files[map->file].size, PAGE)))
		fail("madvise(%d): %s", which, strerrorname_np(errno));
	if (which == MADV_REMOVE)
		zero_bytes(map->file, map->off + first * PAGE, nr * PAGE);
	if (which == MADV_DONTNEED && map->private)
		for (size_t page = first; page < first + nr; page++)
			map->copied[page] = 0;
	look_around(map->file, map->off + first * PAGE, nr * PAGE);
}

static void op_lock(void)
{
	struct map *map = some_map();
	int got;

	if (!map)
		return;
	tell("mlock %d %#zx+%#zx", map->file, map->off, map->len);
	got = below(2) ? mlock(map->p, map->len) : munlock(map->p, map->len);
	/* Pages behind the end cannot be brought in. */
	if (got != 0 && errno != ENOMEM && errno != EFAULT && errno != EAGAIN)
		fail("mlock: %s", strerrorname_np(errno));
	/* Private pages may be copied by it, of the same bytes: from here on they may be either. */
	if (map->private) {
		munlock(map->p, map->len);
		drop(map);
		return;
	}
	look_around(map->file, map->off, map->len);
}

/* Into the memory of another player. */
static void op_reach(void)
{
	struct window *other = &model->windows[below(NR_PLAYERS)];
	struct iovec local, remote;
	size_t at, len, size;
	bool writes;
	ssize_t n;

	if (!other->p || other == &model->windows[player])
		return;
	at = below(other->len);
	size = model->files[other->file].size;
	if (other->off + at >= size)
		return;
	len = smaller(smaller(1 + below(BUFFER), other->len - at), size - other->off - at);
	writes = other->writable && below(2);
	local = (struct iovec){ second, len };
	remote = (struct iovec){ other->p + at, len };
	tell("process_vm %d %#zx+%#zx writes %d", other->file, other->off + at, len, writes);
	if (writes) {
		make_bytes(second, len);
		n = process_vm_writev(other->pid, &local, 1, &remote, 1, 0);
	} else {
		n = process_vm_readv(other->pid, &local, 1, &remote, 1, 0);
	}
	if (n < 0 && errno == EPERM)
		return;
	if (n != (ssize_t)len)
		fail("process_vm of %#zx bytes gives %zd: %s", len, n, n < 0 ? strerrorname_np(errno) : "");
	if (writes)
		set_bytes(other->file, other->off + at, second, len);
	else
		differ("process_vm_readv", second, model->files[other->file].bytes + other->off + at, len, other->off + at);
	look_around(other->file, other->off + at, len);
}

/* Waits for a child that has had its last turn; false if it goes on. */
static bool reap(struct child *child)
{
	int status;

	if (!child->pid)
		return true;
	if (model->plays[child->player])
		return false;
	if (waitpid(child->pid, &status, 0) != child->pid)
		fail("waitpid: %s", strerrorname_np(errno));
	if (status)
		fail("a child ended with status %#x", (unsigned int)status);
	child->pid = 0;
	return true;
}

static void play(unsigned long ops);

static void op_fork(void)
{
	unsigned int free_player = 0;
	uint64_t its_rng = step(&rng) | 1;
	struct child *child = &children[below(2)];

	if (!reap(child))
		return;
	while (free_player < NR_PLAYERS && model->plays[free_player])
		free_player++;
	if (free_player == NR_PLAYERS)
		return;
	tell("fork, player %u", free_player);
	model->plays[free_player] = true;
	model->nr_forks++;
	child->player = free_player;
	child->pid = fork();
	if (child->pid < 0)
		fail("fork: %s", strerrorname_np(errno));
	if (child->pid == 0) {
		player = free_player;
		rng = its_rng;
		memset(children, 0, sizeof(children));
		await_turn();
		look_at_all();
		end_turn(false);
		play(CHILD_OPS);
		_exit(0);
	}
}

static void op_look(void)
{
	tell("look");
	look_at_all();
}

static const struct {
	const char *name;
	void (*call)(void);
	unsigned int weight;
} ops[] = {
	{ "truncate", op_truncate, 14 }, { "allocate", op_allocate, 5 }, { "punch", op_punch, 5 },
	{ "zero", op_zero, 3 }, { "write", op_write, 12 }, { "read", op_read, 5 }, { "copy", op_copy, 3 },
	{ "reopen", op_reopen, 1 }, { "map", op_map, 14 }, { "unmap", op_unmap, 5 }, { "protect", op_protect, 5 },
	{ "remap", op_remap, 6 }, { "touch", op_touch, 8 }, { "fill", op_fill, 5 }, { "advise", op_advise, 3 },
	{ "lock", op_lock, 1 }, { "reach", op_reach, 3 }, { "fork", op_fork, 1 }, { "look", op_look, 1 },
};

static void play(unsigned long nr)
{
	for (unsigned long i = 0; i < nr; i++) {
		unsigned int at, which = 0;

		await_turn();
		at = (unsigned int)below(100);
		while (at >= ops[which].weight)
			at -= ops[which++].weight;
		op_name = ops[which].name;
		ops[which].call();
		end_turn(false);
	}
	await_turn();
	op_name = "end";
	look_at_all();
	/* Nobody waits for turns of others while it has the turn. */
	while (!reap(&children[0]) || !reap(&children[1])) {
		end_turn(false);
		await_turn();
	}
	end_turn(true);
}

/* ---- Beside them ----------------------------------------------------------------------------- */

static _Noreturn void be_a_toucher(unsigned int number)
{
	char *p[NR_FILES];
	struct iovec vec = { buffer, PAGE };
	int fd[2];

	rng = (seed + number + 100) * 0x9e3779b97f4a7c15ULL;
	player = 100 + number;
	catch_signals();
	for (int i = 0; i < NR_FILES; i++) {
		p[i] = mmap(NULL, FILE_BYTES, PROT_READ, MAP_SHARED, fds[i], 0);
		if (p[i] == MAP_FAILED)
			fail("mmap of a toucher: %s", strerrorname_np(errno));
	}
	if (pipe(fd) != 0)
		fail("pipe: %s", strerrorname_np(errno));
	while (!model->over) {
		int file = (int)below(NR_FILES);
		size_t page = below(FILE_PAGES);
		loff_t at = (loff_t)(page * PAGE);
		int sig;

		switch (below(4)) {
		case 0:
			if (pread(fds[file], buffer, 3 * PAGE, at) < 0)
				fail("pread of a toucher: %s", strerrorname_np(errno));
			break;
		case 1:
			vec.iov_base = p[file] + at;
			if (vmsplice(fd[1], &vec, 1, SPLICE_F_NONBLOCK) == PAGE && read(fd[0], buffer, PAGE) != PAGE)
				fail("a toucher's pipe: %s", strerrorname_np(errno));
			break;
		default:
			sig = access_at((unsigned char *)p[file] + at, false, 0);
			if (sig && sig != SIGBUS)
				fail("a toucher's SIG%s", sigabbrev_np(sig));
		}
	}
	_exit(0);
}

static void make_model(void)
{
	const char *tmp = getenv("TMPDIR");
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/shared-model-XXXXXX", tmp ? tmp : "/tmp");
	fd = mkstemp(path);
	if (fd < 0 || unlink(path) != 0 || ftruncate(fd, sizeof(*model)) != 0)
		fail("%s: %s", path, strerrorname_np(errno));
	model = mmap(NULL, sizeof(*model), RW, MAP_SHARED, fd, 0);
	if (model == MAP_FAILED)
		fail("mmap of the model: %s", strerrorname_np(errno));
	close(fd);
}

static int usage(void)
{
	fprintf(stderr, "usage: shared [--seed N] [--ops N] [--touchers N] [--room BYTES] [--trace] DIRECTORY\n");
	return 2;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "seed", required_argument, NULL, 's' },
		{ "ops", required_argument, NULL, 'o' },
		{ "touchers", required_argument, NULL, 't' },
		{ "room", required_argument, NULL, 'r' },
		{ "trace", no_argument, NULL, 'v' },
		{ 0 },
	};
	unsigned long nr_ops = 1000, touchers = 0;
	pid_t pids[2 + NR_TOUCHERS];
	int option, failed = 0;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 's':
			seed = number(optarg);
			break;
		case 'o':
			nr_ops = number(optarg);
			break;
		case 't':
			touchers = number(optarg);
			break;
		case 'r':
			room = number(optarg);
			break;
		case 'v':
			trace = true;
			break;
		default:
			return usage();
		}
	}
	if (optind + 1 != argc || touchers > NR_TOUCHERS)
		return usage();
	make_model();
	for (int i = 0; i < NR_FILES; i++) {
		snprintf(paths[i], sizeof(paths[i]), "%s/shared-%d", argv[optind], i);
		fds[i] = open(paths[i], O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (fds[i] < 0)
			fail("%s: %s", paths[i], strerrorname_np(errno));
	}
	model->rng = (seed + 1) * 0x9e3779b97f4a7c15ULL;
	model->plays[0] = model->plays[1] = true;
	model->turn = 0;
	catch_signals();
	fflush(stdout);
	for (unsigned int i = 0; i < 2 + touchers; i++) {
		pids[i] = fork();
		if (pids[i] < 0)
			fail("fork: %s", strerrorname_np(errno));
		if (pids[i] > 0)
			continue;
		if (i >= 2)
			be_a_toucher(i - 2);
		player = i;
		rng = (seed * 2 + i + 7) * 0x9e3779b97f4a7c15ULL;
		play(nr_ops);
		_exit(0);
	}
	for (unsigned int i = 0; i < 2 + touchers; i++) {
		int status;

		if (i == 2)
			model->over = true;
		if (waitpid(pids[i], &status, 0) != pids[i])
			fail("waitpid: %s", strerrorname_np(errno));
		if (status) {
			fprintf(stderr, "shared: process %u ended with status %#x\n", i, (unsigned int)status);
			model->over = true;
			failed = 1;
		}
	}
	for (int i = 0; i < NR_FILES; i++)
		if (unlink(paths[i]) != 0)
			fail("unlink: %s", strerrorname_np(errno));
	printf("shared: seed %" PRIu64 ", %" PRIu64 " operations, %" PRIu64 " calls, %" PRIu64 " forks, %" PRIu64
	       " pages behind the end, %" PRIu64 " times no room\n", seed, model->op, model->nr_calls, model->nr_forks,
	       model->nr_bus, model->nr_full);
	if (!failed && nr_ops >= 500 && (!model->nr_bus || !model->nr_forks || (room && !model->nr_full)))
		fail("not everything was tried");
	return failed || fflush(stdout) != 0;
}
