#!/bin/bash
# What the conformance cases observe natively and under hpmmap run is the same, or documented.
# timeout: 600
# pool: 2G
. "$(dirname "$0")/../guest/lib.sh"

cases=$HPMMAP_ROOT/tests/conformance
records=$HPMMAP_ROOT/build/conformance/records/${HPMMAP_CONFORMANCE_LABEL:-$HPMMAP_KVER}
rm -rf "$records"
mkdir -p "$records"
# For the cases about MAP_HUGETLB; and many of the others end in a SIGSEGV, which is no news.
sysctl -q vm.nr_hugepages=4 debug.exception-trace=0

# All ways of running take much longer than the part that tells most.
ways=()
[ "${HPMMAP_CONFORMANCE:-}" != all ] || ways=(--all)

started=$SECONDS
timed() {
	echo "$1: $((SECONDS - started)) s"
	# All ways of running take much longer than the part that tells most.
ways=()
[ "${HPMMAP_CONFORMANCE:-}" != all ] || ways=(--all)

started=$SECONDS
}
"$cases/run.sh" "$records/native.jsonl" "${ways[@]}" --big --
timed native
"$cases/run.sh" "$records/hpmmap.jsonl" "${ways[@]}" -- hpmmap run --
timed 'hpmmap run'
"$cases/run.sh" "$records/hpmmap-1g.jsonl" "${ways[@]}" --only-big -- hpmmap run --page-size 1G --
timed 'hpmmap run --page-size 1G'
sysctl -q vm.nr_hugepages=0 debug.exception-trace=1
"$cases/records.py" compare "$records"
