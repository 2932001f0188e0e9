// SPDX-License-Identifier: GPL-2.0
/*
 * Asks slurmctld how much of the generic resource "hpmmap" a job was granted, and waits a bounded
 * time.
 */
#include <ctype.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "plugin.h"

#define NAME "hpmmap"
#define COUNT "(CNT:"
#define MAX_WAIT_SECONDS 10

static bool behind(const char **text, const char *prefix)
{
	size_t length = strlen(prefix);

	if (strncmp(*text, prefix, length))
		return false;
	*text += length;
	return true;
}

/* A number with its unit, in bytes. Above 64 bits: UINT64_MAX. */
static uint64_t amount(const char *text)
{
	static const char units[] = "KMGTP";
	unsigned long long value;
	const char *unit;
	unsigned int shift;
	char *end;

	if (!isdigit((unsigned char)*text))
		return 0;
	value = strtoull(text, &end, 10);
	unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
	shift = unit ? 10 * (unit - units + 1) : 0;
	return value > UINT64_MAX >> shift ? UINT64_MAX : value << shift;
}

/*
 * Parses one grant: "gres:hpmmap:32G", also with "/" and "=", or "hpmmap(CNT:2048)", each with or
 * without a type.
 */
static uint64_t granted_by_one(const char *text)
{
	size_t type;

	if (!behind(&text, "gres:"))
		behind(&text, "gres/");
	if (!behind(&text, NAME))
		return 0;
	type = *text == ':' ? 1 + strcspn(text + 1, ":=(,") : 0;
	if (type && (text[type] == ':' || text[type] == '=' ||
		     !strncmp(text + type, COUNT, strlen(COUNT))))
		text += type;
	if (behind(&text, COUNT) || behind(&text, ":") || behind(&text, "="))
		return amount(text);
	return 0;
}

/* Adds up all grants of a list with commas: each type has its own. */
static uint64_t granted_by(const char *tres)
{
	uint64_t sum = 0;

	while (tres) {
		uint64_t bytes = granted_by_one(tres);

		sum = bytes > UINT64_MAX - sum ? UINT64_MAX : sum + bytes;
		tres = strchr(tres, ',');
		tres = tres ? tres + 1 : NULL;
	}
	return sum;
}

static bool is_named(const node_info_t *node, const char *name)
{
	return (node->name && !strcmp(node->name, name)) ||
	       (node->node_hostname && !strcmp(node->node_hostname, name));
}

/*
 * The index of the named node among the job's nodes, in the order of Slurm's table; -1: none has
 * this name.
 */
static int node_index(const job_info_t *job, const node_info_msg_t *nodes, const char *name)
{
	const int32_t *range = job->node_inx;
	int index = 0;

	for (; range && range[0] >= 0 && range[1] >= 0; range += 2)
		for (int64_t at = range[0]; at <= range[1]; at++, index++)
			if (at < nodes->record_count && is_named(&nodes->node_array[at], name))
				return index;
	return -1;
}

/* The index of this node among the job's nodes; -1: Slurm knows it by another name. */
static int this_node(const job_info_t *job)
{
	node_info_msg_t *nodes = NULL;
	char name[256] = "";
	int index;

	if (slurm_load_node(0, &nodes, SHOW_ALL | SHOW_LOCAL) != SLURM_SUCCESS)
		return -1;
	gethostname(name, sizeof(name) - 1);
	index = node_index(job, nodes, name);
	name[strcspn(name, ".")] = '\0';
	if (index < 0)
		index = node_index(job, nodes, name);
	slurm_free_node_info_msg(nodes);
	return index;
}

static const char *detail(const job_info_t *job, uint32_t index)
{
	return job->gres_detail_str[index] ? job->gres_detail_str[index] : "";
}

/*
 * The grant on this node as allocated, however it was requested. Without details of the allocation:
 * the request for each node. If Slurm knows this node by another name: the largest grant on any
 * node.
 */
static uint64_t granted_here(const job_info_t *job)
{
	bool is_same = true;
	uint64_t bytes = 0;
	int index;

	for (uint32_t i = 0; i < job->gres_detail_cnt; i++) {
		uint64_t there = granted_by(detail(job, i));

		bytes = there > bytes ? there : bytes;
		is_same = is_same && !strcmp(detail(job, i), detail(job, 0));
	}
	index = is_same ? -1 : this_node(job);
	if (index >= 0 && (uint32_t)index < job->gres_detail_cnt)
		return granted_by(detail(job, index));
	return bytes ? bytes : granted_by(job->tres_per_node);
}

/* Returns the job's grant on this node in *bytes; false: Slurm did not tell. */
static bool granted(uint32_t job, uint64_t *bytes)
{
	job_info_msg_t *info = NULL;
	bool found = false;

	if (slurm_load_job(&info, job, SHOW_DETAIL) != SLURM_SUCCESS)
		return false;
	/* Slurm may return all jobs of an array or of a heterogeneous job. */
	for (uint32_t i = 0; i < info->record_count; i++) {
		if (info->job_array[i].job_id != job)
			continue;
		*bytes = granted_here(&info->job_array[i]);
		found = true;
	}
	slurm_free_job_info_msg(info);
	return found;
}

struct question {
	uint32_t job;
	uint64_t bytes;
	bool is_told;
};

static void *ask(void *arg)
{
	struct question *question = arg;

	question->is_told = granted(question->job, &question->bytes);
	return NULL;
}

/* Starts the thread with all signals blocked: Slurm's own threads handle them. */
static bool start(pthread_t *thread, struct question *question)
{
	sigset_t all, before;
	bool done;

	sigfillset(&all);
	if (pthread_sigmask(SIG_SETMASK, &all, &before))
		return false;
	done = !pthread_create(thread, NULL, ask, question);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return done;
}

/*
 * If slurmctld is gone, Slurm's calls wait minutes, in which no task starts. So a thread asks. If
 * it does not answer in time it is detached and keeps its question, which then must not be freed.
 */
bool granted_in_time(uint32_t job, uint64_t *bytes)
{
	struct question *question = calloc(1, sizeof(*question));
	struct timespec until;
	pthread_t thread;
	bool is_told;

	if (!question)
		return false;
	question->job = job;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += MAX_WAIT_SECONDS;
	if (!start(&thread, question)) {
		free(question);
		return false;
	}
	if (pthread_timedjoin_np(thread, NULL, &until)) {
		pthread_detach(thread);
		return false;
	}
	is_told = question->is_told;
	*bytes = question->bytes;
	free(question);
	return is_told;
}
