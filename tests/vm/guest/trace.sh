# shellcheck shell=bash
# Shared by the scenarios of hpmmap trace: an empty working directory, and
# transparent huge pages and reserved pages as the program "faults" expects them.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

faults=$HPMMAP_ROOT/build/tests-vm/faults
dir=/tmp/trace
rm -rf $dir
mkdir $dir
cd $dir

thp=/sys/kernel/mm/transparent_hugepage/enabled
was=$(sed 's/.*\[\(.*\)\].*/\1/' $thp 2>/dev/null) || skip "this kernel has no transparent huge pages"
trap 'cd /; rm -rf $dir; echo "$was" >$thp; echo 0 >/proc/sys/vm/nr_hugepages' EXIT
echo madvise >$thp
echo 2 >/proc/sys/vm/nr_hugepages
mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing

# check TRACE OUTPUT HOW: against what the program says.
check() { python3 "$HPMMAP_ROOT/tests/vm/guest/check_trace.py" "$@"; }

# has_faults TRACE: are there some in the file, which is still written? By its size: a report takes longer.
has_faults() { [ "$(stat --format %s "$1")" -gt 3000 ]; }

# kill_recorder [OPTION...]: a recorder that is killed leaves a file that says so.
kill_recorder() {
	local recorder
	hpmmap trace record "$@" -q -o cut -- "$faults" forever >/dev/null &
	recorder=$!
	within 30 has_faults cut || fail "nothing is recorded"
	! declare -F while_recorded >/dev/null || while_recorded
	kill -9 $recorder
	wait $recorder || true
	pkill -9 -f "^$faults forever"
	hpmmap trace report cut | grep 'The recorder was killed' >/dev/null || fail "the report does not say that the recorder was killed"
}
