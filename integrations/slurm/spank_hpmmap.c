// SPDX-License-Identifier: GPL-2.0
/*
 * Slurm: srun, sbatch and salloc --hpmmap[=WORDS] run tasks under HPMMAP, and a job holds
 * no more of the pools than the generic resource "hpmmap" it was granted, in whatever way
 * its programs come to them. See docs/slurm.md.
 *
 * What cannot be done is told in one line, and the task runs all the same, with memory of
 * Linux: nothing here fails a task, or a node.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

#include "uapi/hpmmap.h"

SPANK_PLUGIN(hpmmap, 1);

#define OPTION_WORDS \
	"strict,page-size=1G,node=N[-M][+...],placement=interleave|first-touch,stacks=eager,no-inherit,image,report,no"
/* For who wants it without an option. */
#define VARIABLE "SLURM_HPMMAP"
#define MAX_WORDS 256
#define MAX_NODES 1024
#define CGROUPS "/sys/fs/cgroup"

/**
 * struct wishes - what the option says
 * @on: it is wanted at all
 * @report: a line about each task at its end
 * @flags: HPMMAP_LAUNCH_F_*
 * @page_size: in bytes; 0: the module's
 * @nodes: mask; all zero: all
 */
struct wishes {
	bool on;
	bool report;
	uint32_t flags;
	uint64_t page_size;
	uint64_t nodes[MAX_NODES / 64];
};

static struct wishes wishes;
/* The option was given: the variable and the site's default do not count. */
static bool is_given;
/* The user asked for it, by the option or the variable: it is not only the site's default. */
static bool is_asked;
/* In slurmstepd: of each local task the device, by which its job stays to be read. */
static int *devices;
static uint32_t nr_devices;

/**
 * struct shared - what slurmstepd and its tasks tell each other
 * @has_none: the job may hold nothing, and the user was told; written before tasks go on
 * @jobs: what each local task became, written by itself
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

/* N, N-M, and several of these with a plus between them: a comma ends the word. */
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
	else if (!strcasecmp(word, "page-size=1G"))
		w->page_size = HPMMAP_LARGE_BYTES;
	else if (!strcasecmp(word, "page-size=2M"))
		w->page_size = HPMMAP_BLOCK_BYTES;
	else if (!strncmp(word, "node=", 5))
		return parse_nodes(word + 5, w->nodes);
	else
		return false;
	return true;
}

/* It goes to logs, and may be anything. */
static void make_printable(char *text)
{
	for (; *text; text++)
		if (!isprint((unsigned char)*text))
			*text = '?';
}

/* Words with commas between them; false, and which one, where one is wrong. */
static bool parse_words(const char *text, struct wishes *w, char *wrong)
{
	char words[MAX_WORDS], *word, *rest = words;
	const uint32_t both = HPMMAP_LAUNCH_F_INTERLEAVE |
			      HPMMAP_LAUNCH_F_FIRST_TOUCH;

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
	     w->page_size == HPMMAP_LARGE_BYTES)) {
		snprintf(wrong, MAX_WORDS,
			 "placement=first-touch goes neither with interleave nor with page-size=1G");
		return false;
	}
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

/* What stands behind the plugin in plugstack.conf. */
static bool site_says(int ac, char **av, const char *word)
{
	for (int i = 0; i < ac; i++)
		if (!strcmp(av[i], word))
			return true;
	return false;
}

/* The first of what stands there and is no word of ours, or NULL. */
static const char *site_mistake(int ac, char **av)
{
	for (int i = 0; i < ac; i++)
		if (strcmp(av[i], "default") && strncmp(av[i], "default=", 8) &&
		    strcmp(av[i], "hold=all"))
			return av[i];
	return NULL;
}

int slurm_spank_init(spank_t sp, int ac, char **av)
{
	spank_context_t context = spank_context();

	/* In the log of slurmd, once. */
	if (context == S_CTX_SLURMD && site_mistake(ac, av))
		slurm_error("hpmmap: plugstack.conf: '%s' is neither default[=words] nor hold=all",
			    site_mistake(ac, av));
	if (context == S_CTX_LOCAL || context == S_CTX_ALLOCATOR ||
	    context == S_CTX_REMOTE)
		return spank_option_register(sp, &option) == ESPANK_SUCCESS ? 0 : -1;
	return 0;
}

/* A line for the user. */
#define say(...) slurm_spank_log("hpmmap: " __VA_ARGS__)

/* Without an option: what the user's environment says, or else plugstack.conf. */
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
		say("%s: %s; tasks run with memory of Linux", VARIABLE, wrong);
}

/* In slurmstepd, as the user: who may not open the device cannot have it. */
int slurm_spank_user_init(spank_t sp, int ac, char **av)
{
	uint32_t step;

	if (!spank_remote(sp))
		return 0;
	if (!is_given)
		take_default(sp, ac, av);
	/* That of the job's prolog has no task of the user's. */
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
		say("cannot open " HPMMAP_DEVICE_PATH ": %s; tasks run with memory of Linux",
		    errno == ENOENT ? "the module is not loaded" : strerror(errno));
		wishes.on = false;
		break;
	}
	return 0;
}

/* What follows a name of the resource: "gres:hpmmap:32G", with "/" and "=", "hpmmap(CNT:2048)". */
static uint64_t granted_by(const char *tres)
{
	static const char name[] = "hpmmap", count[] = "(CNT:";
	const char *at = tres;

	while (at && (at = strstr(at, name))) {
		const char *rest = at + sizeof(name) - 1;
		static const char units[] = "KMGT";
		const char *unit;
		uint64_t value;

		at = rest;
		if (!strncmp(rest, count, sizeof(count) - 1))
			rest += sizeof(count) - 1;
		else if (*rest == ':' || *rest == '=')
			rest++;
		else
			continue;
		if (!parse_number(&rest, &value))
			continue;
		unit = *rest ? strchr(units, toupper((unsigned char)*rest)) : NULL;
		return unit ? value << (10 * (unit - units + 1)) : value;
	}
	return 0;
}

/* Which of a job's nodes this is, as far as names tell; -1: none of them. */
static int node_index(const char *nodes, const char *name)
{
	__auto_type list = slurm_hostlist_create(nodes);
	int index = list ? slurm_hostlist_find(list, name) : -1;

	if (list)
		slurm_hostlist_destroy(list);
	return index;
}

/*
 * What was allocated on this node, however it was asked for; where that is not told, what
 * was asked for on each. On a node that is known by another name, the most of any node.
 */
static uint64_t granted_here(const job_info_t *job)
{
	char name[256] = "";
	uint64_t bytes = 0;
	int index;

	gethostname(name, sizeof(name) - 1);
	name[strcspn(name, ".")] = '\0';
	index = node_index(job->nodes, name);
	if (index >= 0 && (uint32_t)index < job->gres_detail_cnt)
		return granted_by(job->gres_detail_str[index]);
	for (uint32_t i = 0; i < job->gres_detail_cnt; i++) {
		uint64_t there = granted_by(job->gres_detail_str[i]);

		bytes = there > bytes ? there : bytes;
	}
	return bytes ? bytes : granted_by(job->tres_per_node);
}

/* What the job was granted on this node, in bytes; false: Slurm does not tell. */
static bool granted(uint32_t job, uint64_t *bytes)
{
	job_info_msg_t *info = NULL;
	bool found = false;

	if (slurm_load_job(&info, job, SHOW_DETAIL) != SLURM_SUCCESS)
		return false;
	/* Asked for one of an array, or of a heterogeneous job, Slurm may tell of all of them. */
	for (uint32_t i = 0; i < info->record_count; i++) {
		if (info->job_array[i].job_id != job)
			continue;
		*bytes = granted_here(&info->job_array[i]);
		found = true;
	}
	slurm_free_job_info_msg(info);
	return found;
}

/* Of a line of /proc/PID/cgroup, cut behind the job's own cgroup: its path, or NULL. */
static const char *job_path(char *line, uint32_t job)
{
	char name[32], *found;

	line[strcspn(line, "\n")] = '\0';
	if (strncmp(line, "0::", 3))
		return NULL;
	snprintf(name, sizeof(name), "/job_%u", job);
	for (found = strstr(line, name); found; found = strstr(found + 1, name)) {
		char *end = found + strlen(name);

		if (*end == '/' || *end == '\0') {
			*end = '\0';
			return line + 3;
		}
	}
	return NULL;
}

/* The cgroup of a job that a process is in, with all its steps on this node; opened. */
static int job_cgroup(pid_t pid, uint32_t job)
{
	char name[64], line[4096], path[4200];
	const char *found = NULL;
	FILE *file;

	snprintf(name, sizeof(name), "/proc/%d/cgroup", pid);
	file = fopen(name, "re");
	if (!file)
		return -1;
	while (!found && fgets(line, sizeof(line), file))
		found = job_path(line, job);
	fclose(file);
	if (!found)
		return -1;
	snprintf(path, sizeof(path), CGROUPS "%s", found);
	return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* The limit that an earlier step, or the administrator, has given the cgroup. */
static uint64_t limit_of(int device, int cgroup)
{
	struct hpmmap_limit_list list = { .size = sizeof(list) };
	uint64_t limit = HPMMAP_LIMIT_INHERIT;
	struct hpmmap_limit_entry *entries;
	struct stat stat;
	uint32_t room;

	if (fstat(cgroup, &stat) || ioctl(device, HPMMAP_IOC_LIMIT_LIST, &list))
		return limit;
	/* Others may come. */
	room = list.nr + 64;
	entries = calloc(room, sizeof(*entries));
	if (!entries)
		return limit;
	list.entries = (uintptr_t)entries;
	list.nr = room;
	if (ioctl(device, HPMMAP_IOC_LIMIT_LIST, &list))
		list.nr = 0;
	for (uint32_t i = 0; i < list.nr && i < room; i++)
		if (entries[i].flags & HPMMAP_LIMIT_F_CGROUP &&
		    entries[i].cgroup_id == stat.st_ino)
			limit = entries[i].rule;
	free(entries);
	return limit;
}

static bool set_limit(int device, int cgroup, uint64_t bytes)
{
	struct hpmmap_limit_set limit = {
		.size = sizeof(limit),
		.flags = HPMMAP_LIMIT_F_CGROUP,
		.cgroup_fd = cgroup,
		.bytes = bytes - bytes % HPMMAP_BLOCK_BYTES,
	};

	return !ioctl(device, HPMMAP_IOC_LIMIT_SET, &limit);
}

/* What is asked of the controller once: it has more to do than to answer every step. */
static uint64_t limit_by_grant(int device, int cgroup, uint32_t job, bool hold_all)
{
	uint64_t bytes = 0;

	if (!granted(job, &bytes)) {
		say("the job is not held to what it was granted, which Slurm's controller does not tell");
		return HPMMAP_LIMIT_INHERIT;
	}
	if (!bytes && !hold_all)
		return HPMMAP_LIMIT_INHERIT;
	if (cgroup >= 0 && set_limit(device, cgroup, bytes))
		return bytes;
	say("the job is not held to the %llu MB it was granted: %s",
	    (unsigned long long)(bytes >> 20), cgroup >= 0 ? strerror(errno) :
	    "it has no cgroup of its own (proctrack/cgroup, cgroup v2)");
	return HPMMAP_LIMIT_INHERIT;
}

/* The job holds no more than it was granted, with all its steps and tasks on this node. */
static void hold(int device, pid_t pid, uint32_t job, bool hold_all)
{
	int cgroup = job_cgroup(pid, job);
	uint64_t limit = HPMMAP_LIMIT_INHERIT;

	if (cgroup >= 0)
		limit = limit_of(device, cgroup);
	if (limit == HPMMAP_LIMIT_INHERIT)
		limit = limit_by_grant(device, cgroup, job, hold_all);
	if (cgroup >= 0)
		close(cgroup);
	if (limit || !wishes.on || !shared)
		return;
	shared->has_none = true;
	say("the job was granted no --gres=hpmmap, and has none of the pools here; tasks run with memory of Linux");
}

/*
 * In slurmstepd, as root, before any task goes on; in the step of the job's prolog, whose
 * cgroup others are adopted into, with no task. Without the module there is nothing to hold.
 */
int slurm_spank_task_post_fork(spank_t sp, int ac, char **av)
{
	static bool is_held;
	uint32_t job;
	pid_t pid;
	int device;

	if (is_held || spank_get_item(sp, S_JOB_ID, &job) != ESPANK_SUCCESS)
		return 0;
	is_held = true;
	if (spank_get_item(sp, S_TASK_PID, &pid) != ESPANK_SUCCESS)
		pid = getpid();
	device = open(HPMMAP_DEVICE_PATH, O_RDWR | O_CLOEXEC);
	if (device < 0)
		return 0;
	hold(device, pid, job, site_says(ac, av, "hold=all"));
	close(device);
	return 0;
}

/* In the task, as the user, just before execve. */
int slurm_spank_task_init(spank_t sp, int ac, char **av)
{
	struct hpmmap_launch launch = {
		.size = sizeof(launch),
		.flags = wishes.flags,
		.page_size = wishes.page_size,
	};
	int task;

	(void)ac;
	(void)av;
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
	say("task %d runs with memory of Linux: %s", task,
	    errno == ENODEV ? "there is no pool on these nodes" :
	    errno == ENOMEM ? "the pools, or what the job may hold of them, are used up" :
	    strerror(errno));
	return 0;
}

/* A value of a job's file stat; the file may be gone. */
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
	say("task %u: peak %llu MB of the pools, %llu page faults, %llu calls with memory of Linux instead, %llu refused",
	    task, value_of(stat, "peak_bytes") >> 20, value_of(stat, "faults"),
	    value_of(stat, "fallbacks_mmap") + value_of(stat, "fallbacks_brk") +
	    value_of(stat, "fallbacks_exec") + value_of(stat, "fallbacks_block"),
	    value_of(stat, "refusals") + value_of(stat, "failures"));
}

/* In slurmstepd, when a task has ended. The job goes with the device. */
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

static bool kill_group(int cgroup)
{
	int file = openat(cgroup, "cgroup.kill", O_WRONLY | O_CLOEXEC);
	bool done = file >= 0 && write(file, "1", 1) == 1;

	if (file >= 0)
		close(file);
	return done;
}

/* The process that a context in sysfs is of; 0: it is gone. */
static pid_t pid_of(const char *context)
{
	char path[96];
	FILE *file;
	int pid = 0;

	snprintf(path, sizeof(path), HPMMAP_SYSFS_PATH "/contexts/%.32s/pid", context);
	file = fopen(path, "re");
	if (!file)
		return 0;
	if (fscanf(file, "%d", &pid) != 1)
		pid = 0;
	fclose(file);
	return pid;
}

/*
 * On the node, as root, when a job has ended. Its processes are gone by then, but where
 * slurmstepd itself was killed: Slurm knows no more of them, and they would hold memory of
 * the pools that is granted to others next.
 */
int slurm_spank_job_epilog(spank_t sp, int ac, char **av)
{
	struct dirent *entry;
	uint32_t job;
	DIR *contexts;

	(void)ac;
	(void)av;
	if (spank_get_item(sp, S_JOB_ID, &job) != ESPANK_SUCCESS)
		return 0;
	contexts = opendir(HPMMAP_SYSFS_PATH "/contexts");
	while (contexts && (entry = readdir(contexts))) {
		pid_t pid = pid_of(entry->d_name);
		int cgroup = pid ? job_cgroup(pid, job) : -1;

		if (cgroup < 0)
			continue;
		slurm_error("hpmmap: job %u has ended, process %d of it has not and holds memory of the pools: %s",
			    job, pid, kill_group(cgroup) ? "killed" : strerror(errno));
		close(cgroup);
	}
	if (contexts)
		closedir(contexts);
	return 0;
}
