// SPDX-License-Identifier: GPL-2.0
/*
 * Slurm: srun, sbatch and salloc --hpmmap[=WORDS] run tasks under HPMMAP. A batch job holds at
 * most the pool memory that it was granted as the generic resource "hpmmap". This counts for
 * all programs in its cgroup, however they use the pools. Programs outside of it have the
 * limits of the user and of their slice. See docs/slurm.md.
 *
 * If something fails, the user gets one line, and the task runs with ordinary memory. Nothing
 * here fails a task or drains a host.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "plugin.h"

SPANK_PLUGIN(hpmmap, 1);

#define OPTION_WORDS \
	"strict,page-size=1G,node=N[-M][+...],placement=interleave|first-touch,stacks=eager,static=SIZE,no-inherit,image,report,isolate,no"
/* The default of users who do not want to give the option each time. */
#define VARIABLE "SLURM_HPMMAP"
#define MAX_WORDS 256
#define MAX_NODES 1024

/**
 * struct wishes - the option, parsed
 * @on: tasks are to run under HPMMAP
 * @report: print a line about each task at its end
 * @isolate: make the job's CPUs a partition; holds without @on, too
 * @flags: HPMMAP_LAUNCH_F_*
 * @page_size: in bytes; 0: the module's default
 * @static_bytes: size of the static region, a multiple of the page size; 0: none
 * @nodes: mask of NUMA nodes; all zero: all nodes
 */
struct wishes {
	bool on;
	bool report;
	bool isolate;
	uint32_t flags;
	uint64_t page_size;
	uint64_t static_bytes;
	uint64_t nodes[MAX_NODES / 64];
};

static struct wishes wishes;
/* The option was given, so the variable and the site's default do not count. */
static bool is_given;
/* The user asked by the option or the variable; false: only the site's default asks. */
static bool is_asked;
/* In slurmstepd: one open device for each local task, which keeps its launch readable. */
static int *devices;
static uint32_t nr_devices;

/**
 * struct shared - memory that slurmstepd and its tasks share
 * @has_none: the job may hold nothing; slurmstepd writes it before tasks go on
 * @jobs: the launch of each local task, written by the task
 */
struct shared {
	bool has_none;
	uint64_t jobs[];
};

static volatile struct shared *shared;

static bool parse_number(const char **text, uint64_t *value)
{
	char *end;

	if (!isdigit((unsigned char)**text))
		return false;
	errno = 0;
	*value = strtoull(*text, &end, 10);
	*text = end;
	return errno == 0;
}

/* Parses N, N-M, or several of these with a plus between them: a comma would end the word. */
static bool parse_nodes(const char *text, uint64_t *mask)
{
	do {
		uint64_t first, last;

		if (!parse_number(&text, &first))
			return false;
		last = first;
		if (*text == '-' && (text++, !parse_number(&text, &last)))
			return false;
		if (last < first || last >= MAX_NODES)
			return false;
		for (; first <= last; first++)
			mask[first / 64] |= 1ULL << (first % 64);
	} while (*text++ == '+');
	return text[-1] == '\0';
}

/* Parses a number of bytes, or one with K, M, G or T behind it. */
static bool parse_size(const char *text, uint64_t *bytes)
{
	static const char units[] = "KMGT";
	const char *unit;

	if (!parse_number(&text, bytes))
		return false;
	unit = *text ? strchr(units, toupper((unsigned char)*text)) : NULL;
	if (unit) {
		unsigned int shift = 10 * (unit - units + 1);

		if (*bytes > UINT64_MAX >> shift)
			return false;
		*bytes <<= shift;
		text++;
	}
	return !*text && *bytes && *bytes <= HPMMAP_LAUNCH_STATIC_MAX_BYTES;
}

static bool parse_word(const char *word, struct wishes *w)
{
	static const struct {
		const char *word;
		uint32_t flag;
	} words[] = {
		{ "strict", HPMMAP_LAUNCH_F_STRICT },
		{ "no-inherit", HPMMAP_LAUNCH_F_NO_INHERIT },
		{ "image", HPMMAP_LAUNCH_F_IMAGE },
		{ "placement=interleave", HPMMAP_LAUNCH_F_INTERLEAVE },
		{ "placement=first-touch", HPMMAP_LAUNCH_F_FIRST_TOUCH },
		{ "placement=local", 0 },
		{ "stacks=eager", HPMMAP_LAUNCH_F_EAGER_STACKS },
		{ "yes", 0 },
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (!strcmp(word, words[i].word)) {
			w->flags |= words[i].flag;
			return true;
		}
	}
	if (!strcmp(word, "no"))
		w->on = false;
	else if (!strcmp(word, "report"))
		w->report = true;
	else if (!strcmp(word, "isolate"))
		w->isolate = true;
	else if (!strcasecmp(word, "page-size=1G"))
		w->page_size = HPMMAP_LARGE_BYTES;
	else if (!strcasecmp(word, "page-size=2M"))
		w->page_size = HPMMAP_BLOCK_BYTES;
	else if (!strncmp(word, "static=", 7))
		return parse_size(word + 7, &w->static_bytes);
	else if (!strncmp(word, "node=", 5))
		return parse_nodes(word + 5, w->nodes);
	else
		return false;
	return true;
}

/* Makes text from the user fit for a log. */
static void make_printable(char *text)
{
	for (; *text; text++)
		if (!isprint((unsigned char)*text))
			*text = '?';
}

/* Parses words with commas between them. False: one is wrong, and a message is in wrong. */
static bool parse_words(const char *text, struct wishes *w, char *wrong)
{
	char words[MAX_WORDS], *word, *rest = words;
	const uint32_t both = HPMMAP_LAUNCH_F_INTERLEAVE |
			      HPMMAP_LAUNCH_F_FIRST_TOUCH;
	uint64_t page_size;

	*w = (struct wishes){ .on = true };
	if (!text)
		return true;
	if (snprintf(words, sizeof(words), "%s", text) >= (int)sizeof(words)) {
		snprintf(wrong, MAX_WORDS, "it is too long");
		return false;
	}
	while ((word = strsep(&rest, ","))) {
		if (*word && !parse_word(word, w)) {
			make_printable(word);
			snprintf(wrong, MAX_WORDS, "'%.100s' is none of %s",
				 word, OPTION_WORDS);
			return false;
		}
	}
	if ((w->flags & both) == both ||
	    (w->flags & HPMMAP_LAUNCH_F_FIRST_TOUCH &&
	     (w->page_size == HPMMAP_LARGE_BYTES || w->static_bytes))) {
		snprintf(wrong, MAX_WORDS,
			 "placement=first-touch goes with none of interleave, page-size=1G and static");
		return false;
	}
	page_size = w->page_size ? w->page_size : HPMMAP_BLOCK_BYTES;
	w->static_bytes = (w->static_bytes + page_size - 1) & -page_size;
	return true;
}

static int option_given(int val, const char *text, int remote)
{
	char wrong[MAX_WORDS];
	struct wishes given;

	(void)val;
	(void)remote;
	if (text && !strcmp(text, "(null)"))
		text = NULL;
	if (!parse_words(text, &given, wrong)) {
		slurm_error("--hpmmap: %s", wrong);
		return -1;
	}
	wishes = given;
	is_given = is_asked = true;
	return 0;
}

static struct spank_option option = {
	.name = "hpmmap",
	.arginfo = "words",
	.usage = "run tasks with memory of HPMMAP's pools: " OPTION_WORDS,
	.has_arg = 2,
	.val = 0,
	.cb = option_given,
};

/* Is this word among the plugin's arguments in plugstack.conf? */
static bool site_says(int ac, char **av, const char *word)
{
	for (int i = 0; i < ac; i++)
		if (!strcmp(av[i], word))
			return true;
	return false;
}

/* Returns the first unknown argument in plugstack.conf, or NULL. */
static const char *site_mistake(int ac, char **av)
{
	for (int i = 0; i < ac; i++)
		if (strcmp(av[i], "default") && strncmp(av[i], "default=", 8) &&
		    strcmp(av[i], "hold=all") && strcmp(av[i], "isolate=yes"))
			return av[i];
	return NULL;
}

int slurm_spank_init(spank_t sp, int ac, char **av)
{
	spank_context_t context = spank_context();

	/* slurmd logs it once. */
	if (context == S_CTX_SLURMD && site_mistake(ac, av))
		slurm_error("hpmmap: plugstack.conf: '%s' is none of default[=words], hold=all, isolate=yes",
			    site_mistake(ac, av));
	if (context == S_CTX_LOCAL || context == S_CTX_ALLOCATOR ||
	    context == S_CTX_REMOTE)
		return spank_option_register(sp, &option) == ESPANK_SUCCESS ? 0 : -1;
	return 0;
}

/* Without the option, the user's variable decides, then plugstack.conf. */
static void take_default(spank_t sp, int ac, char **av)
{
	char text[MAX_WORDS], wrong[MAX_WORDS];
	const char *words = NULL;
	struct wishes said;

	if (spank_getenv(sp, VARIABLE, text, sizeof(text)) == ESPANK_SUCCESS) {
		words = text;
		is_asked = true;
	} else {
		for (int i = 0; i < ac; i++) {
			if (!strcmp(av[i], "default"))
				words = "yes";
			else if (!strncmp(av[i], "default=", 8))
				words = av[i] + 8;
		}
	}
	if (!words)
		return;
	if (parse_words(words, &said, wrong))
		wishes = said;
	else
		say("%s: %s; tasks run with ordinary memory", VARIABLE, wrong);
}

/* In slurmstepd, as the user: a user who may not open the device cannot use the pools. */
int slurm_spank_user_init(spank_t sp, int ac, char **av)
{
	uint32_t step;

	if (!spank_remote(sp))
		return 0;
	if (!is_given)
		take_default(sp, ac, av);
	/* The step of the job's prolog (extern) has no task of the user. */
	if (spank_get_item(sp, S_JOB_STEPID, &step) == ESPANK_SUCCESS &&
	    step == SLURM_EXTERN_CONT)
		wishes.on = false;
	if (!wishes.on)
		return 0;
	if (spank_get_item(sp, S_JOB_LOCAL_TASK_COUNT, &nr_devices) != ESPANK_SUCCESS) {
		wishes.on = false;
		return 0;
	}
	devices = calloc(nr_devices, sizeof(*devices));
	shared = mmap(NULL, sizeof(*shared) + nr_devices * sizeof(shared->jobs[0]),
		      PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (!devices || shared == MAP_FAILED) {
		shared = NULL;
		wishes.on = false;
		return 0;
	}
	for (uint32_t i = 0; i < nr_devices; i++) {
		devices[i] = open(HPMMAP_DEVICE_PATH, O_RDWR | O_CLOEXEC);
		if (devices[i] >= 0)
			continue;
		say("cannot open " HPMMAP_DEVICE_PATH ": %s; tasks run with ordinary memory",
		    errno == ENOENT ? "the module is not loaded" : strerror(errno));
		wishes.on = false;
		break;
	}
	return 0;
}

/* A job that may hold nothing is not registered. The user is told only after asking for HPMMAP. */
static void take_held(enum held held)
{
	if (held == HELD_SOME || !wishes.on || !shared)
		return;
	shared->has_none = true;
	if (held == HELD_NONE && is_asked)
		say("the job was granted no --gres=hpmmap of 2M or more, so it may hold no pool memory here; tasks run with ordinary memory");
}

static void isolate_job(pid_t pid, uint32_t job, bool is_allowed)
{
	int cgroup;

	if (!is_allowed) {
		say("the job's CPUs are not isolated: this site does not allow it (isolate=yes is not in plugstack.conf)");
		return;
	}
	cgroup = job_cgroup(pid, job, NULL);
	isolate(cgroup, job);
	if (cgroup >= 0)
		close(cgroup);
}

/*
 * In slurmstepd, as root, before any task goes on. Also in the extern step, which has no task but
 * whose cgroup adopts other processes. Without the module there is nothing to limit.
 */
int slurm_spank_task_post_fork(spank_t sp, int ac, char **av)
{
	struct holding how = {
		.all = site_says(ac, av, "hold=all"),
		.is_wished = wishes.on,
	};
	static bool is_held;
	pid_t pid;
	int device;

	if (is_held || spank_get_item(sp, S_JOB_ID, &how.job) != ESPANK_SUCCESS)
		return 0;
	is_held = true;
	if (spank_get_item(sp, S_TASK_PID, &pid) != ESPANK_SUCCESS)
		pid = getpid();
	if (wishes.isolate)
		isolate_job(pid, how.job, site_says(ac, av, "isolate=yes"));
	device = open(HPMMAP_DEVICE_PATH, O_RDWR | O_CLOEXEC);
	if (device < 0)
		return 0;
	take_held(hold(device, pid, &how));
	close(device);
	return 0;
}

/* Tells OpenMP to bind threads, unless the user has said how. */
static void bind_threads(spank_t sp)
{
	static const char *const variables[] = {
		"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY",
	};
	char text[2];

	for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
		if (spank_getenv(sp, variables[i], text, sizeof(text)) != ESPANK_ENV_NOEXIST)
			return;
	spank_setenv(sp, "OMP_PROC_BIND", "spread", 0);
	spank_setenv(sp, "OMP_PLACES", "threads", 0);
}

/* In a partition the kernel moves nothing between CPUs, so tasks and threads have their own. */
static void settle_in(spank_t sp)
{
	uint32_t job, nr_tasks;
	int task, cgroup;

	if (spank_get_item(sp, S_JOB_ID, &job) != ESPANK_SUCCESS ||
	    spank_get_item(sp, S_TASK_ID, &task) != ESPANK_SUCCESS || task < 0 ||
	    spank_get_item(sp, S_JOB_LOCAL_TASK_COUNT, &nr_tasks) != ESPANK_SUCCESS)
		return;
	cgroup = job_cgroup(getpid(), job, NULL);
	if (cgroup < 0)
		return;
	if (is_isolated(cgroup)) {
		spread(task, nr_tasks);
		bind_threads(sp);
	}
	close(cgroup);
}

/* In the task, as the user, just before execve. */
int slurm_spank_task_init(spank_t sp, int ac, char **av)
{
	struct hpmmap_launch launch = {
		.size = sizeof(launch),
		.flags = wishes.flags,
		.page_size = wishes.page_size,
		.static_bytes = wishes.static_bytes,
	};
	int task;

	(void)ac;
	(void)av;
	settle_in(sp);
	if (!wishes.on || !shared || shared->has_none ||
	    spank_get_item(sp, S_TASK_ID, &task) != ESPANK_SUCCESS || task < 0 ||
	    (uint32_t)task >= nr_devices)
		return 0;
	for (size_t i = 0; i < sizeof(wishes.nodes) / sizeof(wishes.nodes[0]); i++) {
		if (wishes.nodes[i]) {
			launch.nodemask = (uintptr_t)wishes.nodes;
			launch.nodemask_bits = MAX_NODES;
		}
	}
	if (!ioctl(devices[task], HPMMAP_IOC_LAUNCH, &launch)) {
		shared->jobs[task] = launch.job_id;
		return 0;
	}
	say("task %d runs with ordinary memory: %s", task,
	    errno == ENODEV ? "there is no pool on these nodes" :
	    errno == ENOMEM ? "the pools, or what the job may hold of them, are used up" :
	    strerror(errno));
	return 0;
}

/* Returns a value of a launch's file stat, or 0. */
static unsigned long long value_of(const char *stat, const char *name)
{
	size_t length = strlen(name);
	const char *line = stat;

	while (line) {
		if (!strncmp(line, name, length) && line[length] == ' ')
			return strtoull(line + length, NULL, 10);
		line = strchr(line, '\n');
		line = line ? line + 1 : NULL;
	}
	return 0;
}

static void report(uint32_t task, uint64_t id)
{
	char path[96], stat[8192];
	FILE *file;
	size_t length;

	snprintf(path, sizeof(path), HPMMAP_SYSFS_PATH "/jobs/%llu/stat",
		 (unsigned long long)id);
	file = fopen(path, "re");
	if (!file)
		return;
	length = fread(stat, 1, sizeof(stat) - 1, file);
	stat[length] = '\0';
	fclose(file);
	say("task %u: peak %llu MB of the pools, %llu page faults, %llu fallbacks to ordinary memory, %llu calls refused",
	    task, value_of(stat, "peak_bytes") >> 20, value_of(stat, "faults"),
	    value_of(stat, "fallbacks_mmap") + value_of(stat, "fallbacks_brk") +
	    value_of(stat, "fallbacks_exec") + value_of(stat, "fallbacks_block"),
	    value_of(stat, "refusals") + value_of(stat, "failures"));
}

/* In slurmstepd, when a task has ended. Closing the device ends the launch. */
int slurm_spank_task_exit(spank_t sp, int ac, char **av)
{
	uint32_t global;
	int task;

	(void)ac;
	(void)av;
	if (!wishes.on || spank_get_item(sp, S_TASK_ID, &task) != ESPANK_SUCCESS ||
	    task < 0 || (uint32_t)task >= nr_devices)
		return 0;
	if (wishes.report && shared->jobs[task] &&
	    spank_get_item(sp, S_TASK_GLOBAL_ID, &global) == ESPANK_SUCCESS)
		report(global, shared->jobs[task]);
	close(devices[task]);
	devices[task] = -1;
	return 0;
}
