// SPDX-License-Identifier: GPL-2.0
/* The plugin of Slurm: users' options, Slurm's answers about resources, cgroups. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* The device's calls are answered here, and nobody is waited for as long. */
#include <pthread.h>
#include <sanitizer/lsan_interface.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#define ioctl fake_ioctl
static int fake_ioctl(int fd, unsigned long request, void *arg);
#define pthread_timedjoin_np(thread, result, until) fake_timedjoin(thread, until)
static int fake_timedjoin(pthread_t thread, const struct timespec *until);
#include "../../integrations/slurm/spank_hpmmap.c"
#include "../../integrations/slurm/grant.c"
/* A file with a number, or none. */
static const char *pool_files = "/proc/uptime";
#define POOL_FILES pool_files
#include "../../integrations/slurm/cgroup.c"
#include "../../integrations/slurm/isolate.c"
/* The epilog finds what a test has put in its working directory, and who is of the job. */
#undef HPMMAP_SYSFS_PATH
#define HPMMAP_SYSFS_PATH "sysfs"
#undef HPMMAP_CONTEXTS_PATH
#define HPMMAP_CONTEXTS_PATH "contexts"
#define job_cgroup(pid, job, node) fake_job_cgroup(pid, job)
static int fake_job_cgroup(pid_t pid, uint32_t job);
#define find_held_cgroup(job, node) fake_find_held_cgroup(job)
static int fake_find_held_cgroup(uint32_t job);
#define usleep(time) fake_sleep(time)
static void fake_sleep(unsigned int microseconds);
#include "../../integrations/slurm/epilog.c"
#undef job_cgroup
#undef find_held_cgroup

/* Of Slurm, which loads the plugin. */
static char error_said[512];
void slurm_error(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(error_said, sizeof(error_said), format, args);
	va_end(args);
}
static unsigned int lines_said;
void slurm_spank_log(const char *format, ...) { (void)format; lines_said++; }
static job_info_msg_t *told;
static unsigned int times_asked;
int slurm_load_job(job_info_msg_t **info, uint32_t job, uint16_t flags)
{
	(void)job, (void)flags;
	*info = told;
	times_asked++;
	return told ? SLURM_SUCCESS : SLURM_ERROR;
}
static _Atomic unsigned int times_told;
void slurm_free_job_info_msg(job_info_msg_t *info) { (void)info; times_told++; }
static node_info_msg_t *table;
int slurm_load_node(time_t since, node_info_msg_t **nodes, uint16_t flags)
{
	(void)since, (void)flags;
	*nodes = table;
	return table ? SLURM_SUCCESS : SLURM_ERROR;
}
void slurm_free_node_info_msg(node_info_msg_t *nodes) { (void)nodes; }
int spank_remote(spank_t sp) { return sp != NULL; }
spank_context_t spank_context(void) { return S_CTX_ERROR; }
spank_err_t spank_option_register(spank_t sp, struct spank_option *one)
{
	(void)sp, (void)one;
	return ESPANK_SUCCESS;
}
spank_err_t spank_get_item(spank_t sp, spank_item_t item, ...)
{
	va_list args;

	(void)sp;
	if (item != S_JOB_ID)
		return ESPANK_ERROR;
	va_start(args, item);
	*va_arg(args, uint32_t *) = 7;
	va_end(args);
	return ESPANK_SUCCESS;
}
spank_err_t spank_setenv(spank_t sp, const char *name, const char *value, int overwrite)
{
	(void)sp, (void)name, (void)value, (void)overwrite;
	return ESPANK_SUCCESS;
}
static const char *variable;
spank_err_t spank_getenv(spank_t sp, const char *name, char *buf, int size)
{
	(void)sp, (void)name;
	if (!variable)
		return ESPANK_ENV_NOEXIST;
	snprintf(buf, size, "%s", variable);
	return ESPANK_SUCCESS;
}

static struct wishes right(const char *text)
{
	char wrong[MAX_WORDS] = "";
	struct wishes w;

	if (!parse_words(text, &w, wrong))
		fail_msg("%s: %s", text, wrong);
	return w;
}

static void words_are_flags(void **state)
{
	struct wishes w = right(NULL);

	(void)state;
	assert_true(w.on && !w.flags && !w.page_size && !w.report);
	w = right("strict,page-size=1g,image,report,stacks=eager,no-inherit");
	assert_int_equal(w.flags, HPMMAP_LAUNCH_F_STRICT | HPMMAP_LAUNCH_F_IMAGE |
				  HPMMAP_LAUNCH_F_EAGER_STACKS | HPMMAP_LAUNCH_F_NO_INHERIT);
	assert_int_equal(w.page_size, HPMMAP_LARGE_BYTES);
	assert_true(w.report && w.on);
	assert_int_equal(right("placement=interleave").flags, HPMMAP_LAUNCH_F_INTERLEAVE);
	assert_int_equal(right("static=3M").static_bytes, 4 << 20);
	assert_int_equal(right("static=4194304").static_bytes, 4 << 20);
	assert_int_equal(right("static=3m,page-size=1G").static_bytes, 1 << 30);
	assert_false(right("strict,no").on);
	assert_true(right("").on && right("yes").on);
}

static void nodes_are_a_mask(void **state)
{
	struct wishes w = right("node=0-2+65,strict");

	(void)state;
	assert_int_equal(w.nodes[0], 7);
	assert_int_equal(w.nodes[1], 2);
	assert_int_equal(right("node=1023").nodes[15], 1ULL << 63);
}

static void what_is_wrong_is_refused(void **state)
{
	static const char *const texts[] = {
		"stric", "page-size=4K", "node=", "node=x", "node=1024", "node=3-1",
		"node=1+", "node=1,2", "node=-1", "placement=", "STRICT",
		"placement=interleave,placement=first-touch",
		"placement=first-touch,page-size=1G",
		"placement=first-touch,static=1G", "static=", "static=0", "static=4X", "static=65T",
		"static=99999999999999T",
	};
	char wrong[MAX_WORDS], text[2 * MAX_WORDS];
	struct wishes w;

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		*wrong = '\0';
		if (parse_words(texts[i], &w, wrong))
			fail_msg("%s is taken", texts[i]);
		assert_true(*wrong);
	}
	memset(text, ',', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	assert_false(parse_words(text, &w, wrong));
}

/* One wrong word: nothing of the others counts, and logs get no control characters. */
static void a_wrong_option_leaves_nothing(void **state)
{
	(void)state;
	wishes = (struct wishes){ 0 };
	assert_int_equal(option_given(0, "strict,no\nsense\033[1m", 1), -1);
	assert_false(wishes.on || wishes.flags || is_given || is_asked);
	assert_non_null(strstr(error_said, "'no?sense?[1m'"));
	assert_int_equal(option_given(0, "strict", 1), 0);
	assert_true(wishes.on && wishes.flags == HPMMAP_LAUNCH_F_STRICT && is_given && is_asked);
	wishes = (struct wishes){ 0 };
	is_given = is_asked = false;
}

static void the_variable_is_asked_for_and_the_default_is_not(void **state)
{
	char *words[] = { "default=strict" };

	(void)state;
	lines_said = 0;
	take_default(NULL, 1, words);
	assert_true(wishes.on && !is_asked);
	wishes = (struct wishes){ 0 };
	variable = "strict,nonsense";
	take_default(NULL, 1, words);
	assert_true(!wishes.on && !wishes.flags && is_asked);
	assert_int_equal(lines_said, 1);
	variable = "no";
	take_default(NULL, 1, words);
	assert_false(wishes.on);
	variable = NULL;
	is_asked = false;
}

/* Where the number of tasks is not to be had there is nothing to launch with. */
static void tasks_that_cannot_be_counted_run_with_memory_of_linux(void **state)
{
	char *words[] = { "default" };

	(void)state;
	assert_int_equal(slurm_spank_user_init((spank_t)words, 1, words), 0);
	assert_false(wishes.on);
	wishes.on = true;
	assert_int_equal(slurm_spank_task_init((spank_t)words, 1, words), 0);
	wishes.on = false;
}

static void the_grant_is_read(void **state)
{
	static const struct {
		const char *tres;
		uint64_t bytes;
	} cases[] = {
		{ NULL, 0 }, { "", 0 }, { "gres:gpu:2", 0 },
		{ "gres:hpmmap:32G", 32ULL << 30 },
		{ "gres/hpmmap:512M", 512ULL << 20 },
		{ "gres/gpu:2,gres/hpmmap=1T", 1ULL << 40 },
		{ "gres:hpmmap:4194304", 4 << 20 },
		{ "gres:nothpmmap,gres:hpmmap:2k", 2048 },
		{ "gres:nothpmmap:9G,gres:hpmmap:2k", 2048 },
		{ "gpu:hpmmap:3", 0 }, { "gres:gpu:hpmmap:3", 0 }, { "hpmmapper:3", 0 },
		{ "hpmmap:fast(CNT:4096)", 4096 },
		{ "hpmmap:fast:2M,gres/hpmmap:slow=3M", 5 << 20 },
		{ "gres:hpmmap:fast", 0 },
		{ "hpmmap:8192,gpu:1,hpmmap:4096", 12288 },
		{ "hpmmap:2P", 2ULL << 50 },
		{ "hpmmap:16383P", 16383ULL << 50 },
		{ "hpmmap:16384P", UINT64_MAX },
		{ "hpmmap:18446744073709551615K", UINT64_MAX },
		{ "hpmmap:99999999999999999999", UINT64_MAX },
		{ "hpmmap:16383P,hpmmap:16383P", UINT64_MAX },
		{ "gres:hpmmap", 0 }, { "hpmmap:-1", 0 },
		{ "hpmmap(CNT:67108864)", 64 << 20 },
		{ "gpu:2(IDX:0-1),hpmmap(CNT:4096)", 4096 },
		{ "hpmmap:8192(IDX:0-1)", 8192 },
		{ "hpmmap(CNT:", 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		if (granted_by(cases[i].tres) != cases[i].bytes)
			fail_msg("%s: %llu", cases[i].tres,
				 (unsigned long long)granted_by(cases[i].tres));
}

/* Of a heterogeneous job Slurm tells of all components, and each has its own grant. */
static void the_grant_is_that_of_the_job(void **state)
{
	job_info_t jobs[] = {
		{ .job_id = 7, .tres_per_node = "gres:hpmmap:1G" },
		{ .job_id = 8 },
		{ .job_id = 9, .tres_per_node = "gres:hpmmap:2M" },
	};
	job_info_msg_t all = { .record_count = 3, .job_array = jobs };

	uint64_t bytes;

	(void)state;
	told = &all;
	for (size_t i = 0; i < 3; i++) {
		assert_true(granted(jobs[i].job_id, &bytes));
		assert_int_equal(bytes, granted_by(jobs[i].tres_per_node));
	}
	assert_false(granted(10, &bytes));
	told = NULL;
	assert_false(granted(7, &bytes));
}

/* However it was asked for: of the whole node, say, or by each task. */
static void the_grant_is_what_was_allocated_here(void **state)
{
	char *details[] = { "hpmmap(CNT:2097152)", NULL, "hpmmap(CNT:8388608)" };
	char *same[] = { "hpmmap(CNT:4194304)", "hpmmap(CNT:4194304)", "hpmmap(CNT:4194304)" };
	/* Slurm's table: the job has its nodes 1, 3 and 4. */
	int32_t ranges[] = { 1, 1, 3, 4, -1 };
	node_info_t nodes[5] = { { .name = "n9" }, { .name = "n2" }, { .name = NULL }, { .name = "n10" }, { .name = "n1" } };
	node_info_msg_t all = { .record_count = 5, .node_array = nodes };
	char name[256];
	job_info_t job = {
		.nodes = "n1,n2,n10",
		.node_inx = ranges,
		.gres_detail_cnt = 3,
		.gres_detail_str = details,
		.tres_per_node = "gres:hpmmap:1G",
	};

	(void)state;
	assert_int_equal(gethostname(name, sizeof(name)), 0);
	table = &all;
	nodes[1].node_hostname = name;
	assert_int_equal(granted_here(&job), 2 << 20);
	nodes[1].node_hostname = NULL;
	nodes[3].name = name;
	assert_int_equal(granted_here(&job), 0);
	/* A name with dots is told from others that begin so. */
	assert_int_equal(node_index(&job, &all, "n1"), 2);
	nodes[3].name = "n1.of.it";
	assert_int_equal(node_index(&job, &all, "n1.of.it"), 1);
	/* Known by another name, or of a table that is not to be had, or is too short. */
	assert_int_equal(granted_here(&job), 8 << 20);
	all.record_count = 2;
	nodes[4].name = name;
	assert_int_equal(granted_here(&job), 8 << 20);
	table = NULL;
	assert_int_equal(granted_here(&job), 8 << 20);
	job.gres_detail_str = same;
	assert_int_equal(granted_here(&job), 4 << 20);
	job.gres_detail_cnt = 0;
	assert_int_equal(granted_here(&job), 1 << 30);
}

/* What the module has of limits. */
static struct hpmmap_limit_entry limits[2];
static uint32_t nr_limits;
static struct hpmmap_limit_set limit_given;
static unsigned int limits_given;
static int limit_error;
static bool is_late;
/* What the module can promise, and what it was asked for. */
static uint64_t promise_room = UINT64_MAX;
static uint64_t promised, promised_before_limit;
static int promise_error, promised_to;

static int fake_ioctl(int fd, unsigned long request, void *arg)
{
	struct hpmmap_limit_list *list = arg;

	(void)fd;
	if (request == HPMMAP_IOC_LIMIT_SET) {
		limit_given = *(struct hpmmap_limit_set *)arg;
		promised_before_limit = promised;
		limits_given++;
		errno = limit_error;
		return limit_error ? -1 : 0;
	}
	if (request == HPMMAP_IOC_PROMISE_SET) {
		struct hpmmap_promise_set *set = arg;
		const struct hpmmap_promise *part = (void *)(uintptr_t)set->promises;

		assert_int_equal(set->flags, HPMMAP_LIMIT_F_CGROUP);
		assert_int_equal(set->nr, 1);
		assert_int_equal(part->node, -1);
		promised_to = set->cgroup_fd;
		errno = promise_error ? promise_error : ENOSPC;
		if (promise_error || part->bytes > promise_room) {
			set->room_bytes = promise_room;
			return -1;
		}
		promised = part->bytes;
		return 0;
	}
	assert_int_equal(request, HPMMAP_IOC_LIMIT_LIST);
	for (uint32_t i = 0; i < nr_limits && i < list->nr; i++)
		((struct hpmmap_limit_entry *)(uintptr_t)list->entries)[i] = limits[i];
	list->nr = nr_limits;
	return 0;
}

/* Of one job, number 7, and what it was granted. */
static void grant(char *tres)
{
	static job_info_t job = { .job_id = 7 };
	static job_info_msg_t all = { .record_count = 1, .job_array = &job };

	job.tres_per_node = tres;
	told = &all;
	limits_given = lines_said = times_asked = times_told = 0;
	limit_error = promise_error = 0;
	promised = 0;
	is_late = false;
}

/* A thread that is left behind has to be done with what is Slurm's here before the test goes on. */
static int fake_timedjoin(pthread_t thread, const struct timespec *until)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	assert_in_range(until->tv_sec - now.tv_sec, 8, 10);
	while (is_late && !times_told)
		sched_yield();
	return is_late ? ETIMEDOUT : pthread_join(thread, NULL);
}

static const struct holding some = { .job = 7 };
static const struct holding wished = { .job = 7, .is_wished = true };
static const struct holding everybody = { .job = 7, .all = true };

static void a_job_is_held_to_its_grant(void **state)
{
	(void)state;
	grant("gres:hpmmap:5M");
	assert_int_equal(hold_to_grant(-1, 3, &some), HELD_SOME);
	assert_int_equal(limit_given.bytes, 4 << 20);
	assert_int_equal(limit_given.flags, HPMMAP_LIMIT_F_CGROUP);
	assert_int_equal(limit_given.cgroup_fd, 3);
	assert_int_equal(promised, 4 << 20);
	assert_int_equal(promised_to, 3);
	/* The limit is the mark for later steps that the promise is there. */
	assert_int_equal(promised_before_limit, 4 << 20);
	assert_int_equal(lines_said, 0);
	/* What cannot be promised is only a limit. */
	grant("gres:hpmmap:8M");
	promise_room = 6 << 20;
	assert_int_equal(hold_to_grant(-1, 3, &some), HELD_SOME);
	assert_int_equal(limit_given.bytes, 8 << 20);
	assert_int_equal(promised, 6 << 20);
	assert_int_equal(lines_said, 1);
	/* Its tasks are told that there is no pool. */
	grant("gres:hpmmap:8M");
	promise_room = 0;
	pool_files = "/none";
	assert_int_equal(hold_to_grant(-1, 3, &some), HELD_SOME);
	assert_int_equal(limit_given.bytes, 8 << 20);
	assert_int_equal(lines_said, 0);
	pool_files = "/proc/uptime";
	promise_room = UINT64_MAX;
	grant("gres:hpmmap:8M");
	promise_error = ENXIO;
	assert_int_equal(hold_to_grant(-1, 3, &some), HELD_SOME);
	assert_int_equal(limit_given.bytes, 8 << 20);
	assert_int_equal(lines_said, 1);
	grant("gres:hpmmap:5M");
	assert_int_equal(hold_to_grant(-1, 3, &some), HELD_SOME);
	/* Not possible: one line, and no more than that. */
	limit_error = ENOENT;
	assert_int_equal(hold_to_grant(-1, 3, &some), HELD_SOME);
	assert_int_equal(lines_said, 1);
	assert_int_equal(promised, 4 << 20);
	assert_int_equal(hold_to_grant(-1, -1, &some), HELD_SOME);
	assert_int_equal(lines_said, 2);
	assert_int_equal(limits_given, 2);
	/* Less than a block is nothing. */
	grant("gres:hpmmap:1M");
	assert_int_equal(hold_to_grant(-1, 3, &some), HELD_NONE);
	assert_int_equal(limit_given.bytes, 0);
}

/* A controller that does not answer is not waited for, and only who cares hears of it. */
static void a_job_starts_without_an_answer(void **state)
{
	(void)state;
	grant("gres:hpmmap:4M");
	is_late = true;
	/* The questions are the threads', for good. */
	__lsan_disable();
	assert_int_equal(hold_to_grant(-1, 3, &some), HELD_SOME);
	assert_int_equal(lines_said, 0);
	times_told = 0;
	assert_int_equal(hold_to_grant(-1, 3, &wished), HELD_SOME);
	__lsan_enable();
	assert_int_equal(lines_said, 1);
	assert_int_equal(limits_given, 0);
	grant("gres:hpmmap:4M");
	told = NULL;
	assert_int_equal(hold_to_grant(-1, 3, &some), HELD_SOME);
	assert_int_equal(lines_said, 0);
	assert_int_equal(hold_to_grant(-1, 3, &wished), HELD_SOME);
	assert_int_equal(lines_said, 1);
}

/* It is said to who asked for it, and not where the site's default did. */
static void who_has_none_is_not_launched(void **state)
{
	struct shared ours = { 0 };

	(void)state;
	shared = &ours;
	wishes.on = true;
	lines_said = 0;
	take_held(HELD_SOME);
	assert_false(ours.has_none);
	take_held(HELD_NONE);
	assert_true(ours.has_none);
	assert_int_equal(lines_said, 0);
	is_asked = true;
	take_held(HELD_NONE);
	assert_int_equal(lines_said, 1);
	ours.has_none = false;
	take_held(HELD_UNTOLD);
	assert_true(ours.has_none);
	assert_int_equal(lines_said, 1);
	shared = NULL;
	take_held(HELD_NONE);
	assert_int_equal(lines_said, 1);
	is_asked = wishes.on = false;
}

static void strangers_are_held_where_the_site_says(void **state)
{
	char *words[] = { "default=strict", "hold=all" };

	(void)state;
	grant(NULL);
	assert_int_equal(hold_to_grant(-1, 3, &some), HELD_SOME);
	assert_int_equal(limits_given, 0);
	assert_int_equal(hold_to_grant(-1, 3, &everybody), HELD_NONE);
	assert_int_equal(limits_given, 1);
	assert_int_equal(limit_given.bytes, 0);
	assert_int_equal(lines_said, 0);
	/* Nobody knows: it has none until somebody does. */
	told = NULL;
	limit_given.bytes = 1;
	assert_int_equal(hold_to_grant(-1, 3, &everybody), HELD_UNTOLD);
	assert_int_equal(limits_given, 2);
	assert_int_equal(limit_given.bytes, 0);
	assert_int_equal(lines_said, 1);
	assert_int_equal(hold_to_grant(-1, -1, &everybody), HELD_SOME);
	assert_int_equal(limits_given, 2);
	assert_int_equal(lines_said, 2);
	assert_true(site_says(2, words, "hold=all"));
	assert_false(site_says(1, words, "hold=all"));
	assert_null(site_mistake(2, words));
	words[0] = "hold=al";
	assert_string_equal(site_mistake(2, words), "hold=al");
}

/* The first step asks the controller; what an administrator has set stays. */
static void a_limit_that_is_there_stays(void **state)
{
	int cgroup = open("/proc", O_RDONLY | O_DIRECTORY);
	struct stat stat;

	(void)state;
	assert_int_equal(fstat(cgroup, &stat), 0);
	nr_limits = 2;
	limits[0] = (struct hpmmap_limit_entry){ .rule = 1, .uid = stat.st_ino };
	limits[1] = (struct hpmmap_limit_entry){
		.flags = HPMMAP_LIMIT_F_CGROUP,
		.cgroup_id = stat.st_ino,
		.rule = 6 << 20,
	};
	assert_int_equal(limit_of(-1, cgroup), 6 << 20);
	limits[1].cgroup_id++;
	assert_true(limit_of(-1, cgroup) == HPMMAP_LIMIT_INHERIT);
	limits[1].cgroup_id--;
	grant("gres:hpmmap:32M");
	assert_int_equal(hold_cgroup(-1, cgroup, &everybody), HELD_SOME);
	assert_int_equal(times_asked, 0);
	/* Of nothing: that of a step that was told nothing, if everybody is held. */
	limits[1].rule = 0;
	assert_int_equal(hold_cgroup(-1, cgroup, &some), HELD_NONE);
	assert_int_equal(times_asked, 0);
	assert_int_equal(hold_cgroup(-1, cgroup, &everybody), HELD_SOME);
	assert_int_equal(times_asked, 1);
	assert_int_equal(limit_given.bytes, 32 << 20);
	/* Another step has been faster: what it has done stays. */
	limits[1].rule = 32 << 20;
	limit_error = ENOMEM;
	assert_int_equal(hold_to_grant(-1, cgroup, &some), HELD_SOME);
	assert_int_equal(promised, 32 << 20);
	limits_given = 0;
	told = NULL;
	assert_int_equal(hold_to_grant(-1, cgroup, &everybody), HELD_SOME);
	assert_int_equal(limits_given, 0);
	/* The epilog ends no process of a job that was not. */
	assert_int_equal(if_held(-1, cgroup), cgroup);
	limits[1].rule = 0;
	assert_int_equal(if_held(-1, cgroup), -1);
	cgroup = open("/", O_RDONLY | O_DIRECTORY);
	nr_limits = 0;
	assert_true(limit_of(-1, cgroup) == HPMMAP_LIMIT_INHERIT);
	assert_int_equal(if_held(-1, cgroup), -1);
}

static void the_cgroup_is_that_of_the_job(void **state)
{
	static const struct {
		const char *line, *path;
	} cases[] = {
		{ "0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0\n",
		  "/system.slice/slurmstepd.scope/job_12" },
		{ "0::/system.slice/slurmstepd.scope/job_12\n",
		  "/system.slice/slurmstepd.scope/job_12" },
		{ "0::/system.slice/slurmstepd.scope/job_12/job_123/job_12\n",
		  "/system.slice/slurmstepd.scope/job_12" },
		{ "0::/system.slice/n1_slurmstepd.scope/job_12/step_0\n",
		  "/system.slice/n1_slurmstepd.scope/job_12" },
		{ "0::/system.slice/slurmstepd.scope/job_123/step_0\n", NULL },
		{ "0::/system.slice/slurmstepd.scope/job_123/job_12\n", NULL },
		{ "0::/system.slice/slurmstepd.scope/xjob_12/step_0\n", NULL },
		{ "0::/system.slice/slurmstepd.scope\n", NULL },
		{ "0::/system.slice/xslurmstepd.scope/job_12\n", NULL },
		{ "0::/system.slice/n2_slurmstepd.scope/job_12\n", NULL },
		{ "0::/system.slice/cron.service/job_12\n", NULL },
		/* What a user may make, and what is out of our sight. */
		{ "0::/user.slice/u/system.slice/slurmstepd.scope/job_12\n", NULL },
		{ "0::/a/job_12\n", NULL },
		{ "0::/../system.slice/slurmstepd.scope/job_12\n", NULL },
		{ "0::/system.slice/slurmstepd.scope/job_12/../../x\n", NULL },
		{ "0::\n", NULL }, { "\n", NULL }, { "", NULL },
		{ "4:memory:/slurm/uid_0/job_12/step_0\n", NULL },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char line[128];
		const char *path;

		snprintf(line, sizeof(line), "%s", cases[i].line);
		path = job_path(line, 12, "n1");
		if (!path != !cases[i].path || (path && strcmp(path, cases[i].path)))
			fail_msg("%s: %s", cases[i].line, path ? path : "none");
	}
	char any[] = "0::/system.slice/n2_slurmstepd.scope/job_12/step_0";

	assert_non_null(job_path(any, 12, NULL));
}

static void values_are_found_by_whole_names(void **state)
{
	static const char stat[] = "uid 7\nfaults_fork 3\nfaults 12\nheld_bytes 4096\n";

	(void)state;
	assert_int_equal(value_of(stat, "faults"), 12);
	assert_int_equal(value_of(stat, "held_bytes"), 4096);
	assert_int_equal(value_of(stat, "peak_bytes"), 0);
}

static void a_process_of_no_job_has_no_cgroup(void **state)
{
	char path[128];

	(void)state;
	job_cgroup_path(path, sizeof(path), 7, NULL);
	assert_string_equal(path, "/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7");
	job_cgroup_path(path, sizeof(path), 7, "n1");
	assert_string_equal(path, "/sys/fs/cgroup/system.slice/n1_slurmstepd.scope/job_7");
	assert_int_equal(find_held_cgroup(4000000000u, "n1"), -1);
	assert_int_equal(job_cgroup(getpid(), 4000000000u, NULL), -1);
	assert_int_equal(job_cgroup(-1, 1, NULL), -1);
}

/* A directory of files that look like a cgroup's. */
static void a_cgroup_is_of_cgroups_file_system(void **state)
{
	char directory[] = "/tmp/test_spank.XXXXXX", path[64];
	int fd, file;

	(void)state;
	assert_non_null(mkdtemp(directory));
	assert_int_equal(open_cgroup(directory), -1);
	assert_int_equal(open_cgroup("/tmp/nothing-of-this-name"), -1);
	fd = open(directory, O_RDONLY | O_DIRECTORY);
	assert_true(fd >= 0);
	assert_false(is_populated(fd));
	snprintf(path, sizeof(path), "%s/cgroup.events", directory);
	file = open(path, O_CREAT | O_RDWR, 0600);
	assert_int_equal(write(file, "populated 1\nfrozen 0\n", 21), 21);
	assert_true(is_populated(fd));
	assert_int_equal(pwrite(file, "populated 0\nfrozen 0\n", 21, 0), 21);
	assert_false(is_populated(fd));
	unlink(path);
	/* No link is followed. */
	snprintf(path, sizeof(path), "%s/cgroup.kill", directory);
	assert_int_equal(symlink("/dev/null", path), 0);
	assert_false(kill_group(fd));
	unlink(path);
	close(file);
	close(fd);
	rmdir(directory);
}

/* A process of the job, or of none; whether we are of it; how long it is until it is gone. */
static pid_t member;
static bool is_inside, has_cgroup;
static unsigned int sleeps, context_goes, group_goes;

static int fake_job_cgroup(pid_t pid, uint32_t job)
{
	bool is_member = job == 7 && (pid == getpid() ? is_inside : pid == member);

	return is_member ? open("group", O_RDONLY | O_DIRECTORY) : -1;
}

static int fake_find_held_cgroup(uint32_t job)
{
	return job == 7 && has_cgroup ? open("group", O_RDONLY | O_DIRECTORY) : -1;
}

static void put(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static void fake_sleep(unsigned int microseconds)
{
	assert_int_equal(microseconds, 100000);
	if (++sleeps == context_goes)
		put("contexts", "");
	if (sleeps == group_goes)
		put("group/cgroup.events", "populated 0\nfrozen 0\n");
}

static char directory_of_test[] = "/tmp/test_spank.XXXXXX";

/* A child that stays, and its context. */
static void leave_a_process(void)
{
	char text[32];

	member = fork();
	if (!member)
		for (;;)
			pause();
	assert_true(member > 0);
	strcpy(strrchr(directory_of_test, '.'), ".XXXXXX");
	assert_non_null(mkdtemp(directory_of_test));
	assert_int_equal(chdir(directory_of_test), 0);
	mkdir("group", 0700);
	snprintf(text, sizeof(text), "id 1\npid %d\n", member);
	put("contexts", text);
	put("group/cgroup.kill", "");
	put("group/cgroup.events", "populated 1\nfrozen 0\n");
	sleeps = context_goes = group_goes = 0;
	*error_said = '\0';
	is_inside = has_cgroup = false;
}

/* The same of a job with a grant, in whose cgroup nobody has a context. */
static void leave_a_process_without_memory(void)
{
	leave_a_process();
	has_cgroup = true;
	put("contexts", "");
}

/* Whether the child was killed, and all of the group were. */
static void forget_it(bool child_is_killed, bool group_is_killed)
{
	struct stat stat;
	int status = 0;

	if (!child_is_killed) {
		assert_int_equal(waitpid(member, NULL, WNOHANG), 0);
		kill(member, SIGKILL);
	}
	assert_int_equal(waitpid(member, &status, 0), member);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	assert_int_equal(lstat("group/cgroup.kill", &stat), 0);
	assert_int_equal(stat.st_size, group_is_killed ? 1 : 0);
	unlink("contexts");
	unlink("group/cgroup.kill");
	unlink("group/cgroup.events");
	rmdir("group");
	assert_int_equal(chdir("/"), 0);
	assert_int_equal(rmdir(directory_of_test), 0);
}

/* The epilog ends when nobody is left, as others are granted the memory next. */
static void the_epilog_waits_for_what_it_kills(void **state)
{
	(void)state;
	leave_a_process();
	context_goes = 2;
	group_goes = 4;
	slurm_spank_job_epilog(NULL, 0, NULL);
	assert_int_equal(sleeps, 4);
	assert_non_null(strstr(error_said, "holds pool memory: killed"));
	forget_it(false, true);
	/* Not for ever. */
	leave_a_process();
	slurm_spank_job_epilog(NULL, 0, NULL);
	assert_int_equal(sleeps, 100);
	assert_non_null(strstr(error_said, "still there"));
	forget_it(false, true);
}

/* A process without pool memory keeps the cgroup, and with it the promise. */
static void the_epilog_empties_the_cgroup_of_the_job(void **state)
{
	(void)state;
	leave_a_process_without_memory();
	group_goes = 12;
	slurm_spank_job_epilog(NULL, 0, NULL);
	assert_int_equal(sleeps, 12);
	assert_non_null(strstr(error_said, "left in its cgroup: killed"));
	forget_it(false, true);
	/* A slurmstepd goes by itself. */
	leave_a_process_without_memory();
	group_goes = 3;
	slurm_spank_job_epilog(NULL, 0, NULL);
	assert_int_equal(sleeps, 3);
	assert_string_equal(error_said, "");
	forget_it(false, false);
	/* The epilog's own one is not touched. */
	leave_a_process_without_memory();
	is_inside = true;
	slurm_spank_job_epilog(NULL, 0, NULL);
	assert_int_equal(sleeps, 0);
	forget_it(false, false);
}

/* With RunInJob; its slurmstepd is in the group, too. */
static void the_epilog_does_not_kill_itself(void **state)
{
	(void)state;
	leave_a_process();
	is_inside = true;
	context_goes = 2;
	slurm_spank_job_epilog(NULL, 0, NULL);
	assert_int_equal(sleeps, 2);
	forget_it(true, false);
}

static void a_process_of_another_job_is_not_killed(void **state)
{
	struct leftover left = { .job = 7, .is_ours = true, .cgroup = -1 };

	(void)state;
	leave_a_process();
	/* Its context is another's by now. */
	assert_false(kill_one(&left, 2, member));
	/* It has left the job since it was found. */
	left.job = 8;
	assert_false(kill_one(&left, 1, member));
	is_inside = true;
	slurm_spank_job_epilog(NULL, 0, NULL);
	forget_it(true, false);
	leave_a_process();
	put("contexts", "id 1\npid 1\n");
	slurm_spank_job_epilog(NULL, 0, NULL);
	assert_int_equal(sleeps, 0);
	assert_string_equal(error_said, "");
	forget_it(false, false);
}

static char *said_by(const char *script)
{
	static const char *const words[] = { "create", "slurm_7", "--of-cgroup", "/job_7", NULL };
	static char said[32];

	put("hpmmap", script);
	chmod("hpmmap", 0700);
	partition(words, said, sizeof(said));
	return said;
}

static void the_command_tells_why_not(void **state)
{
	char path[4096];

	(void)state;
	strcpy(strrchr(directory_of_test, '.'), ".XXXXXX");
	assert_non_null(mkdtemp(directory_of_test));
	assert_int_equal(chdir(directory_of_test), 0);
	snprintf(path, sizeof(path), "%s/hpmmap", directory_of_test);
	commands[0] = path;
	assert_string_equal(said_by("#!/bin/sh\necho ready\necho hpmmap: a warning >&2\n"), "");
	assert_string_equal(said_by("#!/bin/sh\necho hpmmap: $* >&2\nexit 1\n"), "hpmmap: partition create slurm_");
	assert_string_equal(reason("hpmmap: no"), "no");
	assert_string_equal(reason("no"), "no");
	assert_string_equal(said_by("#!/bin/sh\nexit 1\n"), "hpmmap partition failed");
	assert_string_equal(said_by("#!/bin/sh\nkill -9 $$\n"), "hpmmap partition failed");
	unlink("hpmmap");
	assert_int_equal(chdir("/"), 0);
	assert_int_equal(rmdir(directory_of_test), 0);
	/* A job without a cgroup, and a site that does not allow it. */
	lines_said = 0;
	isolate(-1, 7);
	isolate_job(getpid(), 7, false);
	assert_int_equal(lines_said, 2);
	assert_false(right("strict").isolate);
	assert_true(right("isolate").isolate && right("isolate").on);
	assert_true(right("no,isolate").isolate && !right("no,isolate").on);
}

static void names_of_others_stay(void **state)
{
	(void)state;
	assert_true(is_of_job("slurm_7") && is_of_job("slurm_70001"));
	assert_false(is_of_job("slurm_") || is_of_job("slurm_7a") || is_of_job("slurm_test") || is_of_job("quiet"));
}

/* CPUs of no machine have cores of their own. */
static void each_task_has_its_part(void **state)
{
	cpu_set_t all, part, sum;

	(void)state;
	CPU_ZERO(&all);
	for (int cpu = 1000; cpu < 1005; cpu++)
		CPU_SET(cpu, &all);
	for (unsigned int nr = 2; nr < 6; nr++) {
		CPU_ZERO(&sum);
		for (unsigned int task = 0; task < nr; task++) {
			part_of(&part, &all, task, nr);
			CPU_XOR(&sum, &sum, &part);
			assert_true(CPU_COUNT(&part) >= (int)(5 / nr));
		}
		assert_true(CPU_EQUAL(&sum, &all));
	}
	part_of(&part, &all, 7, 8);
	assert_int_equal(CPU_COUNT(&part), 1);
	CPU_ZERO(&all);
	part_of(&part, &all, 0, 2);
	assert_int_equal(CPU_COUNT(&part), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(words_are_flags),
		cmocka_unit_test(nodes_are_a_mask),
		cmocka_unit_test(what_is_wrong_is_refused),
		cmocka_unit_test(a_wrong_option_leaves_nothing),
		cmocka_unit_test(the_variable_is_asked_for_and_the_default_is_not),
		cmocka_unit_test(tasks_that_cannot_be_counted_run_with_memory_of_linux),
		cmocka_unit_test(the_grant_is_read),
		cmocka_unit_test(the_grant_is_that_of_the_job),
		cmocka_unit_test(the_grant_is_what_was_allocated_here),
		cmocka_unit_test(a_job_is_held_to_its_grant),
		cmocka_unit_test(a_job_starts_without_an_answer),
		cmocka_unit_test(who_has_none_is_not_launched),
		cmocka_unit_test(strangers_are_held_where_the_site_says),
		cmocka_unit_test(a_limit_that_is_there_stays),
		cmocka_unit_test(the_cgroup_is_that_of_the_job),
		cmocka_unit_test(values_are_found_by_whole_names),
		cmocka_unit_test(a_process_of_no_job_has_no_cgroup),
		cmocka_unit_test(a_cgroup_is_of_cgroups_file_system),
		cmocka_unit_test(the_epilog_waits_for_what_it_kills),
		cmocka_unit_test(the_epilog_empties_the_cgroup_of_the_job),
		cmocka_unit_test(the_epilog_does_not_kill_itself),
		cmocka_unit_test(a_process_of_another_job_is_not_killed),
		cmocka_unit_test(the_command_tells_why_not),
		cmocka_unit_test(names_of_others_stay),
		cmocka_unit_test(each_task_has_its_part),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
