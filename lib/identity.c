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

static bool set_name(struct identity *who, const char *launcher, const char *job_id, const char *step)
{
	int n;

	if (!job_id)
		return false;
	n = snprintf(who->name, sizeof(who->name), "%s.%s.%s", launcher, job_id, step ? step : "0");
	return n > 0 && (size_t)n < sizeof(who->name) && !strchr(who->name, '/');
}

bool identity_from_environment(struct identity *who)
{
	char parent[16];

	/* Open MPI */
	who->rank = number("OMPI_COMM_WORLD_LOCAL_RANK");
	who->size = number("OMPI_COMM_WORLD_LOCAL_SIZE");
	who->everywhere = number("OMPI_COMM_WORLD_SIZE");
	if (who->rank >= 0 && set_name(who, "ompi", getenv("PMIX_NAMESPACE"), NULL))
		return true;
	/*
	 * MPICH's mpiexec does not name the job: use the PID of the process that starts the ranks
	 * of a node.
	 */
	who->rank = number("MPI_LOCALRANKID");
	who->size = number("MPI_LOCALNRANKS");
	who->everywhere = number("PMI_SIZE");
	snprintf(parent, sizeof(parent), "%d", (int)getppid());
	if (who->rank >= 0 && set_name(who, "hydra", parent, NULL))
		return true;
	who->rank = number("SLURM_LOCALID");
	who->size = number("SLURM_STEP_TASKS_PER_NODE");
	who->everywhere = number("SLURM_STEP_NUM_TASKS");
	return who->rank >= 0 && set_name(who, "slurm", getenv("SLURM_JOB_ID"), getenv("SLURM_STEP_ID"));
}
