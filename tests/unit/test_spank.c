// SPDX-License-Identifier: GPL-2.0
/* The plugin of Slurm: what users write, what Slurm tells of resources and cgroups. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* The device's calls are answered here. */
#include <sys/ioctl.h>
#define ioctl fake_ioctl
static int fake_ioctl(int fd, unsigned long request, void *arg);
#include "../../integrations/slurm/spank_hpmmap.c"

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
void slurm_free_job_info_msg(job_info_msg_t *info) { (void)info; }
static const char *hosts;
hostlist_t slurm_hostlist_create(const char *list)
{
	hosts = list;
	return list ? (hostlist_t)&hosts : NULL;
}
void slurm_hostlist_destroy(hostlist_t list) { (void)list; }
int slurm_hostlist_find(hostlist_t list, const char *name)
{
	int index = 0;

	(void)list;
	for (const char *at = hosts; at; index++) {
		size_t length = strcspn(at, ",");

		if (length == strlen(name) && !strncmp(at, name, length))
			return index;
		at = at[length] ? at + length + 1 : NULL;
	}
	return -1;
}
int spank_remote(spank_t sp) { return sp != NULL; }
spank_context_t spank_context(void) { return S_CTX_ERROR; }
spank_err_t spank_option_register(spank_t sp, struct spank_option *one)
{
	(void)sp, (void)one;
	return ESPANK_SUCCESS;
}
spank_err_t spank_get_item(spank_t sp, spank_item_t item, ...)
{
	(void)sp, (void)item;
	return ESPANK_ERROR;
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
		{ "gres:hpmmap", 0 },
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
	char *details[] = { "hpmmap(CNT:2097152)", "", "hpmmap(CNT:8388608)" };
	char nodes[300], name[256];
	job_info_t job = {
		.nodes = nodes,
		.gres_detail_cnt = 3,
		.gres_detail_str = details,
		.tres_per_node = "gres:hpmmap:1G",
	};

	(void)state;
	assert_int_equal(gethostname(name, sizeof(name)), 0);
	name[strcspn(name, ".")] = '\0';
	snprintf(nodes, sizeof(nodes), "%s,b,c", name);
	assert_int_equal(granted_here(&job), 2 << 20);
	snprintf(nodes, sizeof(nodes), "a,%s,c", name);
	assert_int_equal(granted_here(&job), 0);
	/* Known by another name. */
	snprintf(nodes, sizeof(nodes), "a,b,c");
	assert_int_equal(granted_here(&job), 8 << 20);
	job.gres_detail_cnt = 0;
	assert_int_equal(granted_here(&job), 1 << 30);
}

/* What the module has of limits. */
static struct hpmmap_limit_entry limits[2];
static uint32_t nr_limits;
static struct hpmmap_limit_set limit_given;
static unsigned int limits_given;
static int limit_error;

static int fake_ioctl(int fd, unsigned long request, void *arg)
{
	struct hpmmap_limit_list *list = arg;

	(void)fd;
	if (request == HPMMAP_IOC_LIMIT_SET) {
		limit_given = *(struct hpmmap_limit_set *)arg;
		limits_given++;
		errno = limit_error;
		return limit_error ? -1 : 0;
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
	limits_given = lines_said = times_asked = 0;
	limit_error = 0;
}

static void a_job_is_held_to_its_grant(void **state)
{
	(void)state;
	grant("gres:hpmmap:5M");
	assert_int_equal(limit_by_grant(-1, 3, 7, false), 5 << 20);
	assert_int_equal(limit_given.bytes, 4 << 20);
	assert_int_equal(limit_given.flags, HPMMAP_LIMIT_F_CGROUP);
	assert_int_equal(limit_given.cgroup_fd, 3);
	assert_int_equal(lines_said, 0);
	/* Not possible: one line, and no more than that. */
	limit_error = ENOENT;
	assert_true(limit_by_grant(-1, 3, 7, false) == HPMMAP_LIMIT_INHERIT);
	assert_int_equal(lines_said, 1);
	assert_true(limit_by_grant(-1, -1, 7, false) == HPMMAP_LIMIT_INHERIT);
	assert_int_equal(lines_said, 2);
	assert_int_equal(limits_given, 2);
}

static void strangers_are_held_where_the_site_says(void **state)
{
	char *words[] = { "default=strict", "hold=all" };

	(void)state;
	grant(NULL);
	assert_true(limit_by_grant(-1, 3, 7, false) == HPMMAP_LIMIT_INHERIT);
	assert_int_equal(limits_given, 0);
	assert_int_equal(limit_by_grant(-1, 3, 7, true), 0);
	assert_int_equal(limits_given, 1);
	assert_int_equal(limit_given.bytes, 0);
	assert_int_equal(lines_said, 0);
	/* Nobody knows: nobody is held. */
	told = NULL;
	assert_true(limit_by_grant(-1, 3, 7, true) == HPMMAP_LIMIT_INHERIT);
	assert_int_equal(limits_given, 1);
	assert_int_equal(lines_said, 1);
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
	nr_limits = 0;
	assert_true(limit_of(-1, cgroup) == HPMMAP_LIMIT_INHERIT);
	close(cgroup);
}

static void the_cgroup_is_that_of_the_job(void **state)
{
	static const struct {
		const char *line, *path;
	} cases[] = {
		{ "0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0\n",
		  "/system.slice/slurmstepd.scope/job_12" },
		{ "0::/a/job_12\n", "/a/job_12" },
		{ "0::/a/job_123/job_12/b\n", "/a/job_123/job_12" },
		{ "0::/a/job_123/step_0\n", NULL },
		{ "0::/a/xjob_12/step_0\n", NULL },
		{ "4:memory:/slurm/uid_0/job_12/step_0\n", NULL },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char line[128];
		const char *path;

		snprintf(line, sizeof(line), "%s", cases[i].line);
		path = job_path(line, 12);
		if (!path != !cases[i].path || (path && strcmp(path, cases[i].path)))
			fail_msg("%s: %s", cases[i].line, path ? path : "none");
	}
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
	(void)state;
	assert_int_equal(job_cgroup(getpid(), 4000000000u), -1);
	assert_int_equal(job_cgroup(-1, 1), -1);
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
		cmocka_unit_test(strangers_are_held_where_the_site_says),
		cmocka_unit_test(a_limit_that_is_there_stays),
		cmocka_unit_test(the_cgroup_is_that_of_the_job),
		cmocka_unit_test(values_are_found_by_whole_names),
		cmocka_unit_test(a_process_of_no_job_has_no_cgroup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
