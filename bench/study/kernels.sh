#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Runs in a guest that counts instructions as nanoseconds: kernels.sh RANKS... EP and FT with pages of 4 KB and under HPMMAP. Prints a
# line of JSON for each: millions of instructions of all ranks, from the end of their start-up to the end of the computation.
set -euo pipefail

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR=/tmp
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_btl=self,vader OMPI_MCA_pml=ob1
hpmmap pool add --node 0 --size 1G --leave 256M >/dev/null
echo never >/sys/kernel/mm/transparent_hugepage/enabled
sleep 5

one() { # APP RANKS MANAGER COMMAND...
	local app=$1 ranks=$2 manager=$3 said
	shift 3
	said=$(mpirun.openmpi -n "$ranks" "$@" "build/bench/apps/$app" --strong --json)
	# It has said what it verified.
	python3 -c '
import json, sys
said = json.loads(sys.argv[1])
assert said["verified"], said
print(json.dumps({"app": said["app"], "manager": sys.argv[2], "ranks": said["ranks"], "instructions": said["seconds"] * 1e3,
    "faults": said["minflt"], "checksum": said["checksum"]}))' "$said" "$manager"
}

for ranks in "$@"; do
	for app in ep ft; do
		one $app "$ranks" 4k
		one $app "$ranks" hpmmap hpmmap run --strict --
	done
done
hpmmap pool remove --all >/dev/null
