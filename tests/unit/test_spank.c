// SPDX-License-Identifier: GPL-2.0
/* The plugin of Slurm: what users write, what Slurm tells of resources and cgroups. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../../integrations/slurm/spank_hpmmap.c"

/* Of Slurm, which loads the plugin. */
void slurm_error(const char *format, ...) { (void)format; }
void slurm_spank_log(const char *format, ...) { (void)format; }
static job_info_msg_t *told;
int slurm_load_job(job_info_msg_t **info, uint32_t job, uint16_t flags)
{
	(void)job, (void)flags;
	*info = told;
	return told ? SLURM_SUCCESS : SLURM_ERROR;
}
void slurm_free_job_info_msg(job_info_msg_t *info) { (void)info; }
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
spank_err_t spank_getenv(spank_t sp, const char *name, char *buf, int size)
{
	(void)sp, (void)name, (void)buf, (void)size;
	return ESPANK_ENV_NOEXIST;
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

	(void)state;
	told = &all;
	assert_int_equal(granted(7), 1 << 30);
	assert_int_equal(granted(8), 0);
	assert_int_equal(granted(9), 2 << 20);
	told = NULL;
	assert_int_equal(granted(7), 0);
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
	char path[4200];

	(void)state;
	assert_false(job_cgroup(getpid(), 4000000000u, path, sizeof(path)));
	assert_false(job_cgroup(-1, 1, path, sizeof(path)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(words_are_flags),
		cmocka_unit_test(nodes_are_a_mask),
		cmocka_unit_test(what_is_wrong_is_refused),
		cmocka_unit_test(the_grant_is_read),
		cmocka_unit_test(the_grant_is_that_of_the_job),
		cmocka_unit_test(values_are_found_by_whole_names),
		cmocka_unit_test(a_process_of_no_job_has_no_cgroup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
