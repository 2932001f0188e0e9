#!/bin/bash
# The mini-applications, 2 ranks, natively and registered: the same results, and no page fault in pool memory.
# takes: 65
# machine: apps
# pool: 1G
# timeout: 240
# tier: all  app_mpi runs MPI, too, and looks at more calls
# paths: bench/apps/ tests/vm/guest/apps.sh
. "$(dirname "$0")/../guest/apps.sh"

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl=self,vader,tcp OMPI_MCA_pml=ob1
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1 TMPDIR=/tmp
echo 1 >"$TRACE/events/hpmmap/hpmmap_fault/enable"

# What is the same in every run.
filter() {
	python3 -c '
import json, sys

report = json.load(sys.stdin)
assert report["verified"] and report["ranks"] == 2, report
print(*(report[name] for name in ("app", "size", "iterations", "residual", "checksum")))'
}

member() {
	python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$WORK/$1.raw" "$2"
}

mini() {
	local name=$1 mib=$2
	shift 2
	run_once "$name.native" mpirun.openmpi -n 2 "$HPMMAP_ROOT/build/bench/apps/$name" --json "$@"
	same_as "$name.native" "$name" mpirun.openmpi -n 2 "${REGISTERED[@]}" "$HPMMAP_ROOT/build/bench/apps/$name" --json "$@"
	cat "$WORK/$name"
	took "$name" "$mib" 2
	! grep -E "$name-.* hpmmap_fault:" "$TRACE/trace" || fail "$name: page faults in pool memory"
	echo "$name: natively $(member "$name.native" minflt) minor faults, registered $(member "$name" minflt);" \
		"$(member "$name.native" seconds) s, $(member "$name" seconds) s"
}

# minife has its solver.
! longer || mini minicg 8 --size 16 --iterations 70
mini minife 8 --size 8 --iterations 140
mini minimd 8 --size 6 --iterations 21
mini miniamr 16 --size 4 --iterations 6
