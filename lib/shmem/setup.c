// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Setup and exit: the PEs of a host meet in a table (../table.c), and each makes its heap and its
 * variables visible to the others.
 *
 * Where all PEs can use /dev/xpmem, heap and variables stay private memory, and the others have windows
 * onto them. Otherwise both are a memfd, which the others map: the heap is made in it, and the
 * program's variables are copied into it and mapped over themselves. In either way every symmetric address
 * of another PE is the own one plus a number.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

#define PAGE		((uintptr_t)4096)
#define BLOCK		((uintptr_t)2 << 20)
#define GB		((uintptr_t)1 << 30)
/* Where windows lie: above programs at fixed addresses, below libhpmmap's windows. */
#define WINDOWS_START	(1024 * GB)
#define WINDOWS_END	(16 * 1024 * GB)
#define HEAP_DEFAULT	"64M"
/* Looks at a word before a PE yields, if each PE has a CPU. */
#define SPINS		2000
#define NR_PARTS	8
#define ENDED		"PE %d has ended without shmem_finalize(), so this PE ends, too"

struct self self;

/* The writable parts of the program, page by page, without what is read-only after relocation. */
static struct {
	uintptr_t start;
	uintptr_t bytes;
	/* While they are copied. */
	void *copy;
} part[NR_PARTS];
static int nr_parts;
static uint64_t build;
/* The variables are a memfd, which a child must not share. */
static bool image_is_shared;
/* Guards the copies. */
static pthread_mutex_t copies_lock = PTHREAD_MUTEX_INITIALIZER;
static bool finalizes_at_exit;

/* ---- Ends ------------------------------------------------------------------ */

/* Functions that the program has given to atexit(3) find no job. If they or other threads need one: no further line. */
static _Atomic bool is_leaving;

/* Of the thread that runs exit handlers. They may fail, too: the first status counts. */
static __thread int leaving;

/* Other threads stop here until the exit handlers have run. */
static __attribute__((noreturn)) void leave(int status)
{
	if (atomic_exchange(&is_leaving, true)) {
		if (leaving)
			_exit(leaving - 1);
		for (;;)
			pause();
	}
	leaving = (status & 0xff) + 1;
	/* The other PEs do not wait for the exit handlers. */
	if (self.shared)
		table_leave(&self.shared->table, self.me);
	finalizes_at_exit = false;
	self.npes = 0;
	exit(status);
}

void die(const char *what, const char *format, ...)
{
	char text[512];
	va_list args;

	if (is_leaving)
		leave(1);
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	what += *what == 'p';
	if (self.npes)
		dprintf(STDERR_FILENO, "%s: PE %d: %s\n", what, self.me, text);
	else
		dprintf(STDERR_FILENO, "%s: %s\n", what, text);
	leave(1);
}

void die_with(int pe)
{
	int status = self.shared->exiting;

	if (status)
		leave(status - 1);
	die("shmem", ENDED, pe);
}

void die_of_address(const char *what, const void *ptr, size_t bytes, int pe)
{
	need_init(what);
	if ((uint32_t)pe >= self.npes)
		die(what, "there is no PE %d: there are PEs 0 to %u", pe, self.npes - 1);
	die(what,
	    "%zu bytes at %p are not symmetric: not in the heap (%p, %zu bytes), and no variables of the program (%p, %zu bytes)",
	    bytes, ptr, (void *)self.heap, self.heap_bytes, (void *)self.image, self.image_bytes);
}

/* Once a second a look at whether all PEs live. */
void wait_step(uint32_t *step)
{
	static _Atomic time_t looked;
	time_t now;

	if (++*step <= self.spins) {
		__builtin_ia32_pause();
		return;
	}
	sched_yield();
	now = time(NULL);
	if (now != looked) {
		int pe = table_missing(&self.shared->table);

		looked = now;
		if (pe >= 0)
			die_with(pe);
	}
}

void barrier_all(void)
{
	if (barrier_wait(&self.shared->table, &self.shared->table.all, self.npes, self.spins) != 0)
		die_with(table_missing(&self.shared->table));
}

/* Another PE has called shmem_global_exit(). */
static void on_term(int sig)
{
	int status = self.shared ? self.shared->exiting : 0;

	if (status)
		_exit(status - 1);
	signal(sig, SIG_DFL);
	raise(sig);
}

/* A window onto a PE that has ended: as in a wait for it. Its memory goes some time before it has ended. */
static void on_bus(int sig)
{
	const struct timespec step = { .tv_nsec = 10 * 1000 * 1000 };

	if (is_leaving)
		leave(1);
	for (int i = 0; i < 100 && self.npes; i++) {
		int status = self.shared->exiting, pe = table_missing(&self.shared->table);

		if (status)
			_exit(status - 1);
		if (pe >= 0) {
			dprintf(STDERR_FILENO, "shmem: PE %d: " ENDED "\n", self.me, pe);
			_exit(1);
		}
		nanosleep(&step, NULL);
	}
	signal(sig, SIG_DFL);
}

API(void, global_exit, (int status))
{
	const struct timespec step = { .tv_nsec = 10 * 1000 * 1000 };
	struct table *table;
	int nobody = 0;

	need_init(__func__);
	table = &self.shared->table;
	if (atomic_compare_exchange_strong(&self.shared->exiting, &nobody, (status & 0xff) + 1)) {
		/* PEs that wait see it and end by themselves. */
		table_leave(table, self.me);
		for (int i = 0; i < 20; i++)
			nanosleep(&step, NULL);
		for (uint32_t i = 0; i < self.npes; i++)
			if ((int)i != self.me && table->member[i].state == MEMBER_HERE)
				kill(table->member[i].pid, SIGTERM);
	}
	leave(status);
}

/* ---- Variables ------------------------------------------------------------- */

/* Takes the build ID from notes, if they have it. */
static void find_build(uintptr_t notes, size_t bytes)
{
	for (size_t at = 0; at + sizeof(ElfW(Nhdr)) <= bytes;) {
		const ElfW(Nhdr) *note = (const void *)(notes + at);
		const char *name = (const char *)(note + 1);
		size_t name_bytes = (note->n_namesz + 3) & ~3u;

		if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && !memcmp(name, "GNU", 4))
			build = hash_bytes(HASH_START, name + name_bytes, note->n_descsz);
		at += sizeof(*note) + name_bytes + ((note->n_descsz + 3) & ~3u);
	}
}

static int find_parts(struct dl_phdr_info *info, size_t size, void *unused)
{
	uintptr_t relro = 0, end;

	(void)size;
	(void)unused;
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_GNU_RELRO)
			relro = (info->dlpi_addr + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz) & -PAGE;
	for (int i = 0; i < info->dlpi_phnum && nr_parts < NR_PARTS; i++) {
		const ElfW(Phdr) *header = &info->dlpi_phdr[i];
		uintptr_t start = (info->dlpi_addr + header->p_vaddr) & -PAGE;

		if (header->p_type == PT_NOTE)
			find_build(info->dlpi_addr + header->p_vaddr, header->p_memsz);
		if (header->p_type != PT_LOAD || !(header->p_flags & PF_W))
			continue;
		end = (info->dlpi_addr + header->p_vaddr + header->p_memsz + PAGE - 1) & -PAGE;
		if (start < relro && relro <= end)
			start = relro;
		if (start == end)
			continue;
		part[nr_parts].start = start;
		part[nr_parts++].bytes = end - start;
	}
	/* The first object is the program. */
	return 1;
}

static void find_image(void)
{
	nr_parts = 0;
	dl_iterate_phdr(find_parts, NULL);
	if (!nr_parts)
		return;
	self.image = part[0].start;
	self.image_bytes = part[nr_parts - 1].start + part[nr_parts - 1].bytes - self.image;
}

/* Maps the variables over themselves, as memory of the file from offset on. */
static bool share_image(int fd, off_t offset)
{
	for (int i = 0; i < nr_parts; i++) {
		off_t at = offset + (off_t)(part[i].start - self.image);

		for (uintptr_t done = 0; done < part[i].bytes;) {
			ssize_t n = pwrite(fd, (void *)(part[i].start + done), part[i].bytes - done, at + (off_t)done);

			if (n <= 0)
				return false;
			done += (uintptr_t)n;
		}
		if (mmap((void *)part[i].start, part[i].bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, at) ==
		    MAP_FAILED)
			return false;
	}
	image_is_shared = true;
	return true;
}

static void copy_image(void)
{
	for (int i = 0; i < nr_parts && image_is_shared; i++) {
		part[i].copy = mmap(NULL, part[i].bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (part[i].copy != MAP_FAILED)
			memcpy(part[i].copy, (void *)part[i].start, part[i].bytes);
	}
}

/* Makes them private again, with what copy_image() found in them. */
static void take_image_back(void)
{
	for (int i = 0; i < nr_parts && image_is_shared; i++)
		if (part[i].copy == MAP_FAILED ||
		    mremap(part[i].copy, part[i].bytes, part[i].bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
			   (void *)part[i].start) == MAP_FAILED) {
			dprintf(STDERR_FILENO, "shmem: no memory for a private copy of the program's variables (%zu bytes)\n",
				part[i].bytes);
			_exit(127);
		}
	image_is_shared = false;
}

/* The child's copy is made here: what the parent stores after fork(2) is not the child's. */
static void before_fork(void)
{
	pthread_mutex_lock(&copies_lock);
	copy_image();
}

static void after_fork(void)
{
	for (int i = 0; i < nr_parts && image_is_shared; i++)
		if (part[i].copy != MAP_FAILED)
			munmap(part[i].copy, part[i].bytes);
	pthread_mutex_unlock(&copies_lock);
}

/* A child is no PE. */
static void in_child(void)
{
	take_image_back();
	memset(&self, 0, sizeof(self));
	finalizes_at_exit = false;
	pthread_mutex_unlock(&copies_lock);
}

/* Before the program's handlers: so before_fork() runs after them, and in_child() before them. */
static __attribute__((constructor)) void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork, in_child);
}

/* ---- Memory of the others --------------------------------------------------- */

/* Returns true if all PEs have answered so. */
static bool all_are(bool well)
{
	bool all = true;

	self.shared->access[self.me].is_well = well;
	barrier_all();
	for (uint32_t i = 0; i < self.npes; i++)
		all = all && self.shared->access[i].is_well;
	/* Before somebody's next answer. */
	barrier_all();
	return all;
}

static struct access *mine(void)
{
	return &self.shared->access[self.me];
}

/*
 * Attaches what a PE has published, and has at start itself. Kernels may refuse windows onto ordinary memory: try it.
 *
 * There are no windows onto windows, so libhpmmap_mpi must not take one for memory that other ranks can see in place.
 * As long as there is room, windows lie where no process has a zone (../space.c): from *next on, congruent as the kernel
 * places them.
 */
static uintptr_t attach(int64_t id, uintptr_t start, uintptr_t bytes, uintptr_t *next)
{
	uintptr_t align = bytes >= GB ? GB : BLOCK, at = *next + ((start - *next) & (align - 1));
	void *window = NULL;

	if (id < 0)
		return 0;
	errno = EEXIST;
	for (; !window && errno == EEXIST && at + bytes <= WINDOWS_END; at += GB)
		window = attach_at(id, 0, bytes, 0, (void *)at);
	*next = window ? (uintptr_t)window + bytes : at;
	if (!window)
		window = hpmmap_attach(id, 0, bytes, 0);
	if (window && is_readable(window))
		return (uintptr_t)window;
	if (window)
		hpmmap_detach(window);
	return 0;
}

/* Memory of another PE. *delta is 0 for the own one, and if there is none. */
static void let_go(uintptr_t own, uintptr_t *delta, uintptr_t bytes, bool is_window)
{
	void *at = (void *)(own + *delta);

	if (*delta && is_window)
		hpmmap_detach(at);
	else if (*delta)
		munmap(at, bytes);
	*delta = 0;
}

static void let_all_go(bool windows)
{
	for (uint32_t i = 0; i < self.npes; i++) {
		let_go(self.heap, &self.heap_delta[i], self.heap_bytes, windows);
		let_go(self.image, &self.image_delta[i], self.image_bytes, windows);
	}
	if (!windows)
		return;
	hpmmap_unpublish(mine()->heap_id);
	hpmmap_unpublish(mine()->image_id);
}

/* At a multiple of 2 MB, so the same alignments are possible in all heaps. */
static void map_heap(int flags, int fd)
{
	void *room = mmap(NULL, self.heap_bytes + BLOCK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uintptr_t start = ((uintptr_t)room + BLOCK - 1) & -BLOCK, before = start - (uintptr_t)room;

	if (room == MAP_FAILED || mmap((void *)start, self.heap_bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0) ==
				  MAP_FAILED)
		die("shmem_init", "no memory for a heap of %zu bytes (SHMEM_SYMMETRIC_SIZE): %s", self.heap_bytes,
		    strerror(errno));
	if (before)
		munmap(room, before);
	munmap((void *)(start + self.heap_bytes), BLOCK - before);
	self.heap = start;
}

/* Returns false at all PEs if one of them cannot. */
static bool use_windows(void)
{
	uintptr_t next = WINDOWS_START;
	bool well = true;

	map_heap(MAP_PRIVATE | MAP_ANONYMOUS, -1);
	mine()->heap = self.heap;
	mine()->image = self.image;
	mine()->heap_id = hpmmap_publish((void *)self.heap, self.heap_bytes, 0600);
	mine()->image_id = hpmmap_publish((void *)self.image, self.image_bytes, 0600);
	barrier_all();
	for (uint32_t i = 0; i < self.npes && well; i++) {
		struct access *one = &self.shared->access[i];
		uintptr_t at;

		if ((int)i == self.me)
			continue;
		at = attach(one->heap_id, one->heap, self.heap_bytes, &next);
		well = at != 0;
		self.heap_delta[i] = at ? at - self.heap : 0;
		at = well ? attach(one->image_id, one->image, self.image_bytes, &next) : 0;
		well = at != 0;
		self.image_delta[i] = at ? at - self.image : 0;
	}
	if (all_are(well))
		return true;
	let_all_go(true);
	munmap((void *)self.heap, self.heap_bytes);
	return false;
}

static uintptr_t map_file(int fd, uintptr_t bytes, off_t offset)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);

	if (at == MAP_FAILED)
		die("shmem_init", "cannot map %zu bytes: %s", bytes, strerror(errno));
	return (uintptr_t)at;
}

static void use_files(void)
{
	struct access *me = mine();
	char path[64];

	me->fd = memfd_create("hpmmap_shmem", MFD_CLOEXEC);
	if (me->fd < 0 || ftruncate(me->fd, (off_t)(self.heap_bytes + self.image_bytes)) != 0)
		die("shmem_init", "no memory for a heap of %zu bytes (SHMEM_SYMMETRIC_SIZE): %s", self.heap_bytes,
		    strerror(errno));
	map_heap(MAP_SHARED, me->fd);
	if (!share_image(me->fd, (off_t)self.heap_bytes))
		die("shmem_init", "cannot share the program's variables: %s", strerror(errno));
	barrier_all();
	for (uint32_t i = 0; i < self.npes; i++) {
		int fd;

		if ((int)i == self.me)
			continue;
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", self.shared->table.member[i].pid, self.shared->access[i].fd);
		fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd < 0)
			die("shmem_init", "cannot open the memory of PE %u, %s: %s", i, path, strerror(errno));
		self.heap_delta[i] = map_file(fd, self.heap_bytes, 0) - self.heap;
		self.image_delta[i] = map_file(fd, self.image_bytes, (off_t)self.heap_bytes) - self.image;
		close(fd);
	}
	barrier_all();
	close(me->fd);
}

/* ---- Start ------------------------------------------------------------------- */

static const char *setting(const char *name)
{
	char old[64];
	const char *value;

	snprintf(old, sizeof(old), "SHMEM_%s", name);
	value = getenv(old);
	if (value)
		return value;
	snprintf(old, sizeof(old), "SMA_%s", name);
	return getenv(old);
}

static size_t heap_size(void)
{
	static const char suffixes[] = "kmgt";
	const char *text = setting("SYMMETRIC_SIZE"), *suffix;
	double bytes;
	char *end;

	if (!text)
		text = HEAP_DEFAULT;
	bytes = strtod(text, &end);
	suffix = *end ? strchr(suffixes, *end | 0x20) : NULL;
	for (int i = 0; suffix && i <= suffix - suffixes; i++)
		bytes *= 1024;
	end += suffix != NULL;
	if (*end || !(bytes > 0) || bytes > 0x1p46)
		die("shmem_init", "SHMEM_SYMMETRIC_SIZE is '%s': a size such as 64M or 1.5G, at most 64T", text);
	return ((size_t)bytes + (bytes > (double)(size_t)bytes) + BLOCK - 1) & -BLOCK;
}

static void who_am_i(struct identity *who)
{
	struct identity named;

	if (identity_from_environment(&named) && named.size > 0) {
		if (named.everywhere > named.size)
			die("shmem_init",
			    "%d of the job's %d PEs are on other hosts, and this library reaches one host only: start all PEs on one, or link with another OpenSHMEM",
			    named.everywhere - named.size, named.everywhere);
		if (named.size > MOST_PES || named.rank >= named.size)
			die("shmem_init", "PE %d of %d: at most %d PEs", named.rank, named.size, MOST_PES);
		/* A table apart from that of hpmmap_job_join(). */
		strcat(strcpy(who->name, "shmem."), named.name);
		who->rank = named.rank;
		who->size = named.size;
		return;
	}
	if (identity_is_launched())
		die("shmem_init",
		    "a launcher has started this PE, but says neither its job nor how many PEs are on this host: PMIX_NAMESPACE and OMPI_COMM_WORLD_LOCAL_SIZE, or MPI_LOCALRANKID and MPI_LOCALNRANKS, are not set; for one PE unset OMPI_COMM_WORLD_LOCAL_RANK, MPI_LOCALRANKID and PMI_SIZE");
	*who = (struct identity){ .name = "shmem.alone", .size = 1 };
}

static int enter(struct table *table, int rank)
{
	struct access *me = &((struct shared *)table)->access[rank];
	const char *windows = getenv("HPMMAP_SHMEM_WINDOWS");

	me->heap_bytes = self.heap_bytes;
	me->image_bytes = self.image_bytes;
	me->build = build;
	me->heap_id = -1;
	me->image_id = -1;
	me->is_well = !(windows && strcmp(windows, "0") == 0) && access("/dev/xpmem", R_OK | W_OK) == 0;
	return 0;
}

static void print_settings(void)
{
	if (setting("VERSION"))
		fprintf(stderr, "%s: OpenSHMEM %d.%d\n", SHMEM_VENDOR_STRING, SHMEM_MAJOR_VERSION, SHMEM_MINOR_VERSION);
	if (setting("INFO"))
		fprintf(stderr,
			"SHMEM_SYMMETRIC_SIZE   bytes of each PE's heap, with k, m, g or t; " HEAP_DEFAULT " by default; here %zu\n"
			"SHMEM_VERSION          print the version\n"
			"SHMEM_INFO             print this\n"
			"SHMEM_DEBUG            print how each PE reaches the others; compare arguments of allocations\n"
			"HPMMAP_SHMEM_WINDOWS   0: shared memory, although there is /dev/xpmem\n",
			self.heap_bytes);
}

static void at_exit(void)
{
	if (finalizes_at_exit)
		pshmem_finalize();
}

/* Unless the program has a handler of its own. */
static void handle(int sig, void (*handler)(int))
{
	struct sigaction old;

	if (sigaction(sig, NULL, &old) == 0 && old.sa_handler == SIG_DFL)
		signal(sig, handler);
}

static void once(void)
{
	atexit(at_exit);
	handle(SIGTERM, on_term);
	handle(SIGBUS, on_bus);
}

API(void, init, (void))
{
	static pthread_once_t first = PTHREAD_ONCE_INIT;
	struct identity who;
	struct table *table;
	bool windows = true;

	if (self.npes)
		return;
	who_am_i(&who);
	self.heap_bytes = heap_size();
	find_image();
	table = table_join(&who, sizeof(struct shared), enter);
	if (!table)
		die("shmem_init", "PE %d of %d, /dev/shm/hpmmap-%u-%s: %s", who.rank, who.size, geteuid(), who.name,
		    errno == ESRCH     ? "a PE has ended" :
		    errno == ETIMEDOUT ? "a PE has not called shmem_init() within 120 seconds" :
		    errno == EEXIST    ? "another process has this number" :
		    errno == EACCES    ? "this table is another user's" :
					 strerror(errno));
	pthread_once(&first, once);
	self.shared = (struct shared *)table;
	self.me = who.rank;
	self.spins = sysconf(_SC_NPROCESSORS_ONLN) >= who.size ? SPINS : 0;
	self.debugs = setting("DEBUG") != NULL;
	self.npes = (uint32_t)who.size;
	self.heap_bytes = self.shared->access[0].heap_bytes;
	for (uint32_t i = 0; i < self.npes; i++) {
		windows = windows && self.shared->access[i].is_well;
		if (self.shared->access[i].image_bytes != self.image_bytes || self.shared->access[i].build != build)
			die("shmem_init", "PE %u runs another program", i);
	}
	/* Before somebody's next answer. */
	barrier_all();
	self.has_windows = windows && use_windows();
	if (!self.has_windows)
		use_files();
	if (heap_init() != 0)
		die("shmem_init", "%s", strerror(errno));
	teams_init();
	if (self.me == 0)
		print_settings();
	if (self.debugs)
		fprintf(stderr, "shmem: PE %d of %u: %zu bytes of heap at %p, variables at %p, by %s\n", self.me, self.npes,
			self.heap_bytes, (void *)self.heap, (void *)self.image,
			self.has_windows ? "windows" : "shared memory");
	barrier_all();
}

API(int, init_thread, (int requested, int *provided))
{
	(void)requested;
	pshmem_init();
	*provided = SHMEM_THREAD_MULTIPLE;
	return 0;
}

API(void, query_thread, (int *provided))
{
	*provided = SHMEM_THREAD_MULTIPLE;
}

API(void, finalize, (void))
{
	struct table *table;

	if (!self.npes)
		return;
	table = &self.shared->table;
	finalizes_at_exit = false;
	barrier_all();
	let_all_go(self.has_windows);
	munmap((void *)self.heap, self.heap_bytes);
	pthread_mutex_lock(&copies_lock);
	copy_image();
	take_image_back();
	pthread_mutex_unlock(&copies_lock);
	self.npes = 0;
	self.shared = NULL;
	table_leave(table, self.me);
	munmap(table, sizeof(struct shared));
}

PUBLIC void start_pes(int npes)
{
	(void)npes;
	pshmem_init();
	finalizes_at_exit = true;
}

/* ---- Queries ----------------------------------------------------------------- */

API(int, my_pe, (void))
{
	return self.me;
}

API(int, n_pes, (void))
{
	return (int)self.npes;
}

PUBLIC int _my_pe(void)
{
	return self.me;
}

PUBLIC int _num_pes(void)
{
	return (int)self.npes;
}

API(int, pe_accessible, (int pe))
{
	return (uint32_t)pe < self.npes;
}

API(int, addr_accessible, (const void *addr, int pe))
{
	return (uint32_t)pe < self.npes && ((uintptr_t)addr - self.heap < self.heap_bytes ||
					    (uintptr_t)addr - self.image < self.image_bytes);
}

API(void *, ptr, (const void *dest, int pe))
{
	return pshmem_addr_accessible(dest, pe) ? there(__func__, dest, 1, pe) : NULL;
}

API(void, info_get_version, (int *major, int *minor))
{
	*major = SHMEM_MAJOR_VERSION;
	*minor = SHMEM_MINOR_VERSION;
}

API(void, info_get_name, (char *name))
{
	strcpy(name, SHMEM_VENDOR_STRING);
}

API(void, pcontrol, (int level, ...))
{
	(void)level;
}
