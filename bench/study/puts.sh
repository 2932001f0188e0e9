#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Runs in a guest that counts instructions as nanoseconds. Puts of OpenSHMEM from the memory of a pool into that of another rank, and
# copies by the kernel. Prints a line of JSON for each: way, bytes, instructions.
set -euo pipefail

# The emulator counts each round of a repeated string instruction: one for each byte here.
export GLIBC_TUNABLES=glibc.cpu.x86_rep_movsb_threshold=1073741824
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR=/tmp
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
hpmmap pool add --node 0 --size 512M --leave 256M >/dev/null
mpirun.openmpi -n 2 hpmmap run --strict -- build/bench/puts
hpmmap pool remove --all >/dev/null
