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

/* Slurm's daemons export names of their own, which would come before ours. */
#pragma GCC visibility push(hidden)

/* A line for the user. */
#define say(...) slurm_spank_log("hpmmap: " __VA_ARGS__)

/* grant.c: the grant of a job on this host, in bytes; false: Slurm did not answer in time. */
bool granted_in_time(uint32_t job, uint64_t *bytes);

/*
 * cgroup.c: the cgroup of a job that a process is in, with all its steps on this node; opened,
 * or -1. With a node, only where it is that of this node's slurmd.
 */
int job_cgroup(pid_t pid, uint32_t job, const char *node);

/**
 * enum held - what a job may have of the pools on this node
 * @HELD_SOME: what its limits leave
 * @HELD_NONE: nothing, as it was granted nothing
 * @HELD_UNTOLD: nothing, as long as nobody tells what it was granted
 */
enum held { HELD_SOME, HELD_NONE, HELD_UNTOLD };

/**
 * struct holding - cgroup.c: whom to hold, and how
 * @all: those that were granted nothing, too: hold=all
 * @is_wished: the user wants HPMMAP for this step
 */
struct holding {
	uint32_t job;
	bool all;
	bool is_wished;
};

/* The job holds no more than it was granted, with all its steps and tasks on this node. */
enum held hold(int device, pid_t pid, const struct holding *how);

#pragma GCC visibility pop

#endif
