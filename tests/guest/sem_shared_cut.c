// SPDX-License-Identifier: GPL-2.0
/* Files of hpmmapfs that become smaller or are punched while other processes touch their mappings. */
#include "shared.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define AREA		MB(8)
#define KEPT		MB(2)
#define WORDS_APART	(PAGE / sizeof(uint64_t))

static struct race {
	_Atomic uint32_t phase;		/* odd: those who touch write */
	_Atomic uint32_t at_rest[4];	/* the even phase that each has seen */
	_Atomic uint32_t end;
	_Atomic uint64_t killed;	/* touches that ended in SIGBUS */
	_Atomic uint64_t touches;
} *race;

static __thread sigjmp_buf back;

static void on_bus(int sig)
{
	(void)sig;
	siglongjmp(back, 1);
}

/* Reads and writes behind the end, over and over; a signal is no failure. */
static void touch_behind(char *p, unsigned int me)
{
	volatile uint64_t *words = (void *)p;
	volatile uint64_t n = me * 7919 + 1;

	while (!race->end) {
		uint32_t phase = race->phase;

		if (!(phase & 1)) {
			race->at_rest[me] = phase;
			sched_yield();
			continue;
		}
		if (sigsetjmp(back, 1) != 0) {
			race->killed++;
			continue;
		}
		for (int i = 0; i < 64; i++) {
			size_t page = (n = n * 6364136223846793005ULL + 1442695040888963407ULL) >> 33;

			page = KEPT / PAGE + page % ((AREA - KEPT) / PAGE);
			if (i & 1)
				words[page * WORDS_APART] = n | 1;
			else
				(void)words[page * WORDS_APART + 1];
			race->touches++;
		}
	}
}

struct toucher {
	char *p;
	unsigned int me;
};

static void *touch_in_thread(void *arg)
{
	struct toucher *toucher = arg;

	touch_behind(toucher->p, toucher->me);
	return NULL;
}

static void set_phase(uint32_t phase, unsigned int touchers)
{
	race->phase = phase;
	for (unsigned int i = 0; !(phase & 1) && i < touchers; i++)
		for (int n = 0; race->at_rest[i] != phase; n++) {
			if (n == 60000)
				FAIL("who touches pages does not come to rest");
			pause_ms(1);
		}
}

/* Nothing is left of what is behind the end, for whoever has it mapped, and nothing comes back. */
static void cut_and_grow(int fd, char *p, char *other, unsigned int touchers, unsigned int rounds)
{
	uint32_t phase = 0;

	for (unsigned int i = 0; i < rounds; i++) {
		int second;

		set_phase(++phase, touchers);
		pause_ms(3 + i % 5);
		CHECK_OK(ftruncate(fd, i % 3 == 1 ? (off_t)KEPT - 100 : (off_t)KEPT));
		/* Its blocks are somebody else's now. */
		second = new_file("second", AREA);
		pause_ms(2);
		if (i % 4 == 3) {
			/* Over and over while they touch it. */
			for (int n = 0; n < 10; n++) {
				CHECK_OK(ftruncate(fd, (off_t)AREA));
				CHECK_OK(ftruncate(fd, (off_t)KEPT));
			}
		}
		set_phase(++phase, touchers);
		verify_file_zero(second, 0, AREA);
		for (size_t at = KEPT; at < AREA; at += KB(256) + PAGE) {
			CHECK_BUS(p + at);
			CHECK_BUS(other + at);
		}
		CHECK_OK(ftruncate(fd, (off_t)AREA));
		verify_zero(p + KEPT, AREA - KEPT);
		verify_zero(other + KEPT, AREA - KEPT);
		verify_file_zero(fd, KEPT, AREA - KEPT);
		p[KEPT + 8] = 1;
		CHECK_EQ(other[KEPT + 8], 1);
		p[KEPT + 8] = 0;
		verify_file_zero(second, 0, AREA);
		close(second);
		CHECK_OK(unlink(in_fs("second")));
	}
}

static void cut_beside(bool processes)
{
	struct sigaction action = { .sa_handler = on_bus, .sa_flags = SA_NODEFER };
	struct toucher touchers[3];
	pthread_t threads[3];
	char *p, *other;
	pid_t pids[3];
	int fd;

	fs_mount("size=48M");
	race = mmap(NULL, PAGE, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK_OK(race);
	fd = new_file("a", AREA);
	p = map_shared(fd, AREA);
	/* In pages of 4 KB. */
	other = (char *)free_range(AREA + MB(4)) + PAGE;
	CHECK(mmap(other, AREA, RW, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0) == other);
	for (unsigned int i = 0; i < 3; i++) {
		touchers[i] = (struct toucher){ i == 2 ? other : p, i };
		if (processes) {
			pids[i] = fork_child();
			if (pids[i] == 0) {
				CHECK_OK(sigaction(SIGBUS, &action, NULL));
				touch_behind(touchers[i].p, i);
				_exit(0);
			}
		}
	}
	if (!processes) {
		/* The probes of the test put the handler away for moments, so it has a process of its own. */
		pid_t pid = fork_child();

		if (pid == 0) {
			CHECK_OK(sigaction(SIGBUS, &action, NULL));
			for (unsigned int i = 0; i < 3; i++)
				threads[i] = start_thread(touch_in_thread, &touchers[i]);
			for (unsigned int i = 0; i < 3; i++)
				join_thread(threads[i]);
			_exit(0);
		}
		pids[0] = pid;
	}
	cut_and_grow(fd, p, other, 3, 8);
	race->end = 1;
	for (unsigned int i = 0; i < (processes ? 3 : 1); i++)
		expect_success(pids[i]);
	CHECK(race->touches > 1000);
	CHECK(race->killed > 0);
	unmap(p, AREA);
	unmap(other, AREA);
	unmap(race, PAGE);
	fs_end_with(fd, "a");
}

static void cut_beside_threads(void)
{
	cut_beside(false);
}

static void cut_beside_processes(void)
{
	cut_beside(true);
}

/* Punched while others fork, write and read: what is read is zero or was written here; all of them can be killed. */
static void punched_beside_others(void)
{
	pid_t pids[6];
	char *p;
	int fd;

	fs_mount("size=32M");
	fd = new_file("a", MB(8));
	p = map_shared(fd, MB(8));
	for (size_t i = 0; i < ARRAY_SIZE(pids); i++) {
		pids[i] = fork_child();
		if (pids[i])
			continue;
		for (uint64_t n = i;; n++) {
			volatile uint64_t *word = (void *)(p + n * 8191 * 8 % MB(8));
			uint64_t got;

			switch (i) {
			case 0:
			case 1:
				*word = 0x5a00 + i;
				break;
			case 2:
				got = *word;
				if (got != 0 && got != 0x5a00 && got != 0x5a01)
					FAIL("somebody else's %#llx", (unsigned long long)got);
				break;
			case 3:
				CHECK_OK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
						   (off_t)(n * PAGE * 37 % MB(7)), (off_t)(n % 3 * MB(1) / 2 + 8)));
				break;
			case 4:
				if (fork_child() == 0) {
					*word = 0x5a00;
					CHECK_OK(madvise(p, MB(8), MADV_DONTNEED));
					*word = 0x5a01;
					_exit(0);
				}
				CHECK(wait(NULL) > 0);
				break;
			default:
				unmap(p + MB(2), MB(3));
				CHECK(mmap(p + MB(2), MB(3), RW, MAP_SHARED | MAP_FIXED, fd, (off_t)MB(2)) != MAP_FAILED);
				CHECK_OK(mprotect(p + PAGE, PAGE, PROT_READ));
				CHECK_OK(mprotect(p, MB(8), RW));
			}
		}
	}
	pause_ms(1500);
	for (size_t i = 0; i < ARRAY_SIZE(pids); i++) {
		int status;

		/* None has found anything wrong so far. */
		CHECK_EQ(waitpid(pids[i], &status, WNOHANG), 0);
		CHECK_OK(kill(pids[i], SIGKILL));
	}
	for (size_t i = 0; i < ARRAY_SIZE(pids); i++)
		expect_signal(pids[i], SIGKILL);
	/* A child of a child may be ending. */
	for (uint64_t *word = (void *)p; (char *)word < p + MB(8); word++)
		if (*word && *word != 0x5a00 && *word != 0x5a01)
			FAIL("somebody else's %#llx at %#zx", (unsigned long long)*word, (size_t)((char *)word - p));
	unmap(p, MB(8));
	fs_end_with(fd, "a");
}

static void *punch(void *arg)
{
	for (size_t n = 0; n < 1000; n++)
		CHECK_OK(fallocate(*(int *)arg, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 8, PAGE));
	return NULL;
}

/* A word that is zeroed while it is written to is zero, or what was written, and no mixture. */
static void words_are_zeroed_whole(void)
{
	volatile uint64_t *words;
	pthread_t thread;
	uint64_t got;
	int fd;

	fs_mount("size=4M");
	fd = new_file("a", MB(2));
	words = (void *)map_shared(fd, MB(2));
	thread = start_thread(punch, &fd);
	for (uint64_t n = 1; pthread_tryjoin_np(thread, NULL); n++)
		for (size_t i = 0; i < 2 * PAGE / sizeof(*words); i++) {
			got = words[i];
			words[i] = n % 2 ? 0x1111111111111111 : 0x2222222222222222;
			if (got && got != 0x1111111111111111 && got != 0x2222222222222222)
				FAIL("%#llx was never written", (unsigned long long)got);
		}
	unmap((void *)words, MB(2));
	fs_end_with(fd, "a");
}

static _Atomic bool punched_enough;

/* Each thread has words of its own: what it reads was written by it, or is zero. */
static void *touch_holes(void *arg)
{
	volatile uint64_t *words = arg;
	uint64_t me = (uintptr_t)arg % PAGE + 1;

	for (uint64_t n = 1; !punched_enough; n++)
		for (size_t at = 0; at < MB(8) / sizeof(*words); at += SLOT / sizeof(*words) / 4) {
			uint64_t got = words[at];

			if (got && got >> 32 != me)
				FAIL("%#llx is another's", (unsigned long long)got);
			words[at] = me << 32 | n;
		}
	return NULL;
}

/* Holes are filled by several threads while they are punched and the file is cut; none of the memory is lost. */
static void holes_beside_threads(void)
{
	pthread_t threads[4];
	char *p, *q;
	int fd;

	skip_unless_of_pools();
	fs_mount("size=64M");
	fd = new_file("a", MB(16));
	p = map_shared(fd, MB(8));
	q = map_shared(fd, MB(16));
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		threads[i] = start_thread(touch_holes, (i % 2 ? p : q) + 8 * i);
	for (size_t n = 0; n < 1500; n++) {
		CHECK_OK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(n % 4 * MB(2)),
				   (off_t)((n / 4 % 4 + 1) * MB(2))));
		if (n % 8 == 0)
			CHECK_OK(ftruncate(fd, (off_t)MB(8 + n % 7)));
		if (n % 9 == 0)
			CHECK_OK(madvise(q, MB(8), MADV_DONTNEED));
		if (n % 100 == 0)
			q[MB(7)] = q[MB(7)];
	}
	punched_enough = true;
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		join_thread(threads[i]);
	unmap(p, MB(8));
	unmap(q, MB(16));
	CHECK_OK(fallocate(fd, 0, 0, (off_t)MB(16)));
	expect_held(fd, MB(16));
	await_fs_free(MB(48));
	CHECK_EQ(fs_free(), MB(48));
	fs_end_with(fd, "a");
}

#define ROUNDS 100

static pthread_barrier_t hole_is_there;

static void *touch_each_hole(void *arg)
{
	volatile char *p = arg;

	for (int i = 0; i < ROUNDS; i++) {
		pthread_barrier_wait(&hole_is_there);
		p[KB(64)]++;
		pthread_barrier_wait(&hole_is_there);
	}
	return NULL;
}

/* There is room for one block only, and several threads fill the same hole: none gets SIGBUS. */
static void one_hole_for_threads(void)
{
	pthread_t threads[3];
	char *p;
	int fd;

	skip_unless_of_pools();
	fs_mount("size=2M");
	fd = new_file("a", MB(2));
	p = map_shared(fd, MB(2));
	CHECK_EQ(pthread_barrier_init(&hole_is_there, NULL, ARRAY_SIZE(threads) + 1), 0);
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		threads[i] = start_thread(touch_each_hole, p);
	for (int i = 0; i < ROUNDS; i++) {
		CHECK_OK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)MB(2)));
		pthread_barrier_wait(&hole_is_there);
		pthread_barrier_wait(&hole_is_there);
	}
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		join_thread(threads[i]);
	pthread_barrier_destroy(&hole_is_there);
	unmap(p, MB(2));
	fs_end_with(fd, "a");
}

/* Of threads that map, touch and unmap at the same time, and of many mappings at once. */
static void *map_and_unmap(void *arg)
{
	int fd = *(int *)arg;

	for (size_t i = 0; i < 150; i++) {
		size_t off = i * 7 % 8 * MB(1), len = (i % 5 + 1) * MB(1) / 2;
		char *p = map_file(fd, len, i % 3 ? RW : PROT_READ, MAP_SHARED, off);

		for (size_t at = 0; at < len; at += PAGE)
			CHECK_EQ(*(uint64_t *)(void *)(p + at), (off + at) / PAGE + 1);
		unmap(p, len);
	}
	return NULL;
}

static void mapped_by_many(void)
{
	pthread_t threads[4];
	char *p, *all[400];
	int fd;

	fs_any();
	fd = new_file("a", MB(10));
	p = map_shared(fd, MB(10));
	for (size_t at = 0; at < MB(10); at += PAGE)
		*(uint64_t *)(void *)(p + at) = at / PAGE + 1;
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		threads[i] = start_thread(map_and_unmap, &fd);
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		join_thread(threads[i]);
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		all[i] = map_shared(fd, i % 2 ? MB(2) : PAGE);
		all[i][8] = (char)i;
		CHECK_EQ(p[8], (char)i);
	}
	CHECK_OK(ftruncate(fd, 0));
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		if (i % 37 == 0)
			CHECK_BUS(all[i]);
		unmap(all[i], i % 2 ? MB(2) : PAGE);
	}
	unmap(p, MB(10));
	fs_end_with(fd, "a");
}

/*
 * What a pipe has of a file that was cut counts until it is read, and no longer: who wants the
 * room then has it, unless what looks at all pinned blocks from time to time is at it just then.
 */
static void room_of_pinned(void)
{
	int a, fd[2], had = 0;
	char to[KB(4)], *p;

	skip_unless_of_pools();
	fs_mount("size=4M");
	CHECK_OK(pipe(fd));
	a = new_file("a", 0);
	for (int i = 0; i < 8; i++) {
		CHECK_OK(ftruncate(a, (off_t)MB(4)));
		p = map_shared(a, MB(4));
		fill(p, MB(4), 1);
		CHECK_EQ(vmsplice(fd[1], &(struct iovec){ p + MB(2), KB(4) }, 1, 0), KB(4));
		unmap(p, MB(4));
		CHECK_OK(ftruncate(a, 0));
		CHECK_ERR(ftruncate(a, (off_t)MB(4)), ENOSPC);
		CHECK_EQ(read(fd[0], to, sizeof(to)), KB(4));
		verify(to, KB(4), 1, MB(2));
		if (ftruncate(a, (off_t)MB(4)) == 0) {
			had++;
			CHECK_OK(ftruncate(a, 0));
		} else {
			CHECK_EQ(errno, ENOSPC);
		}
		await_fs_free(MB(4));
	}
	if (had < 5)
		FAIL("of 8 times the room was there at once %d times", had);
	close(fd[0]);
	close(fd[1]);
	fs_end_with(a, "a");
}

int main(void)
{
	static const struct test tests[] = {
		T(cut_beside_threads),
		T(cut_beside_processes),
		T(punched_beside_others),
		T(words_are_zeroed_whole),
		T(holes_beside_threads),
		T(one_hole_for_threads),
		T(mapped_by_many),
		T(room_of_pinned),
	};

	return RUN_GROUP("sem_shared_cut", tests);
}
