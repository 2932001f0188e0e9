#!/bin/bash
# What the conformance cases observe natively and under hpmmap run is the same, or documented.
# timeout: 600
# pool: 2G
. "$(dirname "$0")/../guest/lib.sh"

cases=$HPMMAP_ROOT/tests/conformance
records=$HPMMAP_ROOT/build/conformance/records/${HPMMAP_CONFORMANCE_LABEL:-$HPMMAP_KVER}
rm -rf "$records"
mkdir -p "$records"
# Both ways find the same: some huge pages of Linux, and THP as the kernel has it by default.
sysctl -q vm.nr_hugepages=4

started=$SECONDS
timed() {
	echo "$1: $((SECONDS - started)) s"
	started=$SECONDS
}
"$cases/run.sh" "$records/native.jsonl" --big --
timed native
"$cases/run.sh" "$records/hpmmap.jsonl" -- hpmmap run --
timed 'hpmmap run'
"$cases/run.sh" "$records/hpmmap-1g.jsonl" --only-big -- hpmmap run --page-size 1G --
timed 'hpmmap run --page-size 1G'
sysctl -q vm.nr_hugepages=0
"$cases/records.py" compare "$records"
