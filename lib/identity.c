// SPDX-License-Identifier: LGPL-2.1-or-later
/* Which rank of which job a process is, as its launcher says in the environment. */
#define _GNU_SOURCE
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

static int number(const char *variable)
{
	const char *text = getenv(variable);
	char *end;
	long value;

	if (!text || !*text)
		return -1;
	value = strtol(text, &end, 10);
	/* Slurm writes 4(x2) if two nodes have four ranks each. */
	return value >= 0 && value < INT_MAX && (*end == '\0' || *end == '(' || *end == ',') ? (int)value : -1;
}

/* A name that is too long, or has a slash, is one with a hash of the whole in place of its end. */
static bool set_name(struct identity *who, const char *launcher, const char *job_id, const char *step)
{
	char hash[18], name[512];
	size_t most = IDENTITY_NAME - IDENTITY_PREFIX, length;

	if (!job_id)
		return false;
	/* A PMIx namespace has at most 255 characters. */
	length = (size_t)snprintf(name, sizeof(name), "%s.%s.%s", launcher, job_id, step ? step : "0");
	if (length >= sizeof(name))
		return false;
	if (length > most || strchr(name, '/')) {
		snprintf(hash, sizeof(hash), ".%016llx", (unsigned long long)hash_bytes(HASH_START, name, length));
		name[length > most - strlen(hash) ? most - strlen(hash) : length] = '\0';
		strcat(name, hash);
		for (char *at = name; (at = strchr(at, '/'));)
			*at = '_';
	}
	strcpy(who->name, name);
	return true;
}

/* Reads a file of a process. *nr becomes its bytes; 0 follows them. NULL: it cannot be read, or is empty. */
static char *read_proc(int pid, const char *name, size_t *nr)
{
	size_t room = 4096;
	char path[64], *text = NULL;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	file = fopen(path, "re");
	*nr = 0;
	while (file) {
		char *more = realloc(text, room + 1);

		if (!more)
			break;
		text = more;
		*nr += fread(text + *nr, 1, room - *nr, file);
		if (*nr < room)
			break;
		room *= 2;
	}
	if (file)
		fclose(file);
	if (*nr) {
		text[*nr] = '\0';
		return text;
	}
	free(text);
	return NULL;
}

/* Was the process started as a rank, so that it is a wrapper of ranks? */
static bool is_rank(int pid)
{
	static const char variable[] = "MPI_LOCALRANKID=";
	size_t nr;
	char *all = read_proc(pid, "environ", &nr);
	bool is = false;

	for (char *at = all; at && at < all + nr && !is; at += strlen(at) + 1)
		is = !strncmp(at, variable, sizeof(variable) - 1);
	free(all);
	return is;
}

/* The parent of a process; 0 if it is unknown, or if the process is Hydra's, which may run in a rank of another job. */
static int parent_of_wrapper(int pid)
{
	size_t nr;
	char *stat = read_proc(pid, "stat", &nr), *name = stat ? strchr(stat, '(') : NULL, *end = stat ? strrchr(stat, ')') : NULL;
	int parent = 0;

	if (!name || !end || !strncmp(name + 1, "hydra_", 6) || sscanf(end, ") %*c %d", &parent) != 1)
		parent = 0;
	free(stat);
	return parent;
}

/* The process of Hydra that starts the ranks of a host: behind all that have been put around the rank. */
static int launcher_pid(void)
{
	int pid = getppid(), parent;

	while (pid > 1) {
		parent = parent_of_wrapper(pid);
		if (!parent || !is_rank(pid))
			return pid;
		pid = parent;
	}
	return getppid();
}

/*
 * Other users could make the table of a job before its ranks do if they knew its name. So a hash of bytes that the ranks
 * share and other users cannot read stands for the step. Returns text, or NULL if there are no such bytes.
 */
static const char *hide(const void *bytes, size_t nr, char text[17])
{
	if (!nr)
		return NULL;
	snprintf(text, 17, "%016llx", (unsigned long long)hash_bytes(HASH_START, bytes, nr));
	return text;
}

/* MPICH's mpiexec does not name the job: the process that starts the ranks of a host does, and where its memory is. */
static bool name_hydra(struct identity *who)
{
	char parent[16], hidden[17], *auxv;
	int pid = launcher_pid();
	bool named;
	size_t nr;

	snprintf(parent, sizeof(parent), "%d", pid);
	auxv = read_proc(pid, "auxv", &nr);
	named = set_name(who, "hydra", parent, hide(auxv, nr, hidden));
	free(auxv);
	return named;
}

bool identity_from_environment(struct identity *who)
{
	const char *key = getenv("OMPI_MCA_orte_precondition_transports");
	char hidden[17];

	/* Open MPI. mpirun draws a random key for each job. */
	who->rank = number("OMPI_COMM_WORLD_LOCAL_RANK");
	who->size = number("OMPI_COMM_WORLD_LOCAL_SIZE");
	who->everywhere = number("OMPI_COMM_WORLD_SIZE");
	if (who->rank >= 0 && set_name(who, "ompi", getenv("PMIX_NAMESPACE"), hide(key, key ? strlen(key) : 0, hidden)))
		return true;
	who->rank = number("MPI_LOCALRANKID");
	who->size = number("MPI_LOCALNRANKS");
	who->everywhere = number("PMI_SIZE");
	if (who->rank >= 0 && name_hydra(who))
		return true;
	who->rank = number("SLURM_LOCALID");
	who->size = number("SLURM_STEP_TASKS_PER_NODE");
	who->everywhere = number("SLURM_STEP_NUM_TASKS");
	return who->rank >= 0 && set_name(who, "slurm", getenv("SLURM_JOB_ID"), getenv("SLURM_STEP_ID"));
}

bool identity_is_launched(void)
{
	int openmpi = number("OMPI_COMM_WORLD_LOCAL_RANK"), mpich = number("MPI_LOCALRANKID");

	return (openmpi >= 0 && number("OMPI_COMM_WORLD_SIZE") != 1) || (mpich >= 0 && number("PMI_SIZE") != 1) ||
	       number("PMI_SIZE") > 1;
}
