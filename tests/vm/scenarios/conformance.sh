#!/bin/bash
# The conformance cases observe the same natively and under hpmmap run, or a documented difference.
# takes: 100
# machine: programs
# timeout: 600
# pool: 2G
# tier: newest  conformance_few asks most of it on the others
# paths: kernel/as/ kernel/call/ kernel/task/ kernel/fs/ tests/conformance/
. "$(dirname "$0")/../guest/lib.sh"

cases=$HPMMAP_ROOT/tests/conformance
records=${HPMMAP_CONFORMANCE_RECORDS:-$HPMMAP_ROOT/build/conformance/records/${HPMMAP_CONFORMANCE_LABEL:-$HPMMAP_KVER}}
rm -rf "$records"
mkdir -p "$records"

# For the cases about MAP_HUGETLB; and many of the others end in a SIGSEGV, which is no news.
sysctl -q vm.nr_hugepages=4 debug.exception-trace=0
# Clearing huge pages takes most of the native run otherwise; it changes nothing that is observed.
thp=/sys/kernel/mm/transparent_hugepage/enabled
thp_was=$(sed 's/.*\[\(.*\)\].*/\1/' $thp)
echo never >$thp
# Files that are shared are of hpmmapfs there; natively they are Linux's.
export HPMMAP_CONFORMANCE_DIR=/tmp/conformance-files
mkdir -p $HPMMAP_CONFORMANCE_DIR
mount -t hpmmap -o mode=1777 none $HPMMAP_CONFORMANCE_DIR
restore() {
	umount -l $HPMMAP_CONFORMANCE_DIR
	sysctl -q vm.nr_hugepages=0 debug.exception-trace=1
	echo "$thp_was" >$thp
}
trap restore EXIT

# All ways of running take much longer than the part that tells most, and this longer than what a change needs.
case "${HPMMAP_CONFORMANCE:-}" in
all) ways=(--all) large=1 ;;
few) ways=(--few) large= ;;
'') ways=() large=1 && longer || ways=(--some) ;;
*) fail "HPMMAP_CONFORMANCE is '$HPMMAP_CONFORMANCE': all, few, or nothing" ;;
esac

# Only some, by patterns such as mremap/*.
read -ra some <<<"${HPMMAP_CONFORMANCE_CASES:-}"

# timed RECORD ARGUMENT OF RUN.SH...
timed() {
	local record=$1 started=$SECONDS
	shift
	"$cases/run.sh" "$records/$record.jsonl" "$@"
	echo "$record: $((SECONDS - started)) s"
}
timed native "${ways[@]}" ${large:+--big} "${some[@]}" --
timed hpmmap "${ways[@]}" "${some[@]}" -- hpmmap run --
[ -z "$large" ] || timed hpmmap-1g "${ways[@]}" --only-big "${some[@]}" -- hpmmap run --page-size 1G --
"$cases/records.py" compare "$records"
