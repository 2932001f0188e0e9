/* SPDX-License-Identifier: GPL-2.0 */
/* Declarations that the files of the plugin share. Slurm's daemons load it: see docs/slurm.md. */
#ifndef HPMMAP_SLURM_PLUGIN_H
#define HPMMAP_SLURM_PLUGIN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

#include "uapi/hpmmap.h"

/* Slurm's daemons export names that would otherwise take precedence over these. */
#pragma GCC visibility push(hidden)

#define CGROUPS "/sys/fs/cgroup"

/* Prints a line for the user. */
#define say(...) slurm_spank_log("hpmmap: " __VA_ARGS__)

/* grant.c: returns the job's grant on this host in *bytes; false: Slurm did not answer in time. */
bool granted_in_time(uint32_t job, uint64_t *bytes);

/*
 * cgroup.c: opens the cgroup of the job, with all its steps on this host, if the process pid is in
 * it; -1 if not. With node, only below the scope of that node's slurmd.
 */
int job_cgroup(pid_t pid, uint32_t job, const char *node);

/* cgroup.c: opens the cgroup of a job that was held to its grant, with or without processes; -1: there is none. */
int find_held_cgroup(uint32_t job, const char *node);

/* cgroup.c: reads a short file of a cgroup; false: there is none, or the cgroup was removed. */
bool read_of_cgroup(int cgroup, const char *name, char *text, size_t room);

/*
 * cgroup.c: removes what Slurm has left of the cgroups of a job that has ended. As long as they have
 * CPUs, the kernel lets no other job have all of these as exclusive ones.
 */
void remove_job_cgroup(uint32_t job, const char *node);

/**
 * enum held - the pool memory that a batch job may hold on this host
 * @HELD_SOME: as much as its limits leave
 * @HELD_NONE: none, since it was granted none
 * @HELD_UNTOLD: none until Slurm tells its grant
 */
enum held { HELD_SOME, HELD_NONE, HELD_UNTOLD };

/**
 * struct holding - a batch job to be limited
 * @job: its number
 * @all: limit jobs without a grant to 0 (hold=all)
 * @is_wished: the user wants HPMMAP for this step
 */
struct holding {
	uint32_t job;
	bool all;
	bool is_wished;
};

/* cgroup.c: limits the job, with all its steps and tasks on this host, to its grant. */
enum held hold(int device, pid_t pid, const struct holding *how);

/*
 * isolate.c: makes the CPUs of the job's cgroup a partition. If that cannot be, the user gets a
 * line.
 */
void isolate(int cgroup, uint32_t job);

/* isolate.c: is the job's cgroup a partition whose CPUs the scheduler leaves alone? */
bool is_isolated(int cgroup);

/* isolate.c: undoes a job's partition if there is one. Its processes are killed. */
void end_isolation(uint32_t job);

/* isolate.c: undoes partitions without processes that are of other jobs than this one. */
void end_stale_isolations(uint32_t job);

/*
 * isolate.c: binds this process, one task of several on the host, to its part of the step's CPUs,
 * unless it is bound: in a partition the kernel moves no task from one CPU to another.
 */
void spread(unsigned int task, unsigned int nr_tasks);

#pragma GCC visibility pop

#endif
