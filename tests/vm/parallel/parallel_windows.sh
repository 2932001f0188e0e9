#!/bin/bash
# Windows onto other processes: their test programs repeatedly, and a storm of targets, viewers, forks, moves
# and discards of one user beside another user's, whose data no process sees.
# machine: parallel-windows
# pool: 1G
# timeout: 400
# scales: yes
# tier: parallel  only CPUs that run at once tell anything new
# paths: kernel/xpmem.* kernel/as/ tests/fuzz/strangers.c tests/guest/xpmem_changes.c tests/guest/xpmem_windows.c
. "$(dirname "$0")/../guest/parallel.sh"

programs=$HPMMAP_ROOT/build/tests
fuzzers=$HPMMAP_ROOT/build/tests-fuzz
board=/tmp/board
ulimit -u 400 -c 0
sysctl -q debug.exception-trace=0
trap 'sysctl -q debug.exception-trace=1' EXIT

# at_once LOG COMMAND...: one of those that run at once.
started=() logs=()
at_once() {
	local log=$1
	shift
	"$@" >"$log" 2>&1 &
	started+=($!)
	logs+=("$log")
}
all_pass() {
	local i
	for i in "${!started[@]}"; do
		wait "${started[$i]}" || { cat "${logs[$i]}"; fail "one of those at once has failed"; }
	done
	started=() logs=()
	expect_pool_free
}
# pass PROGRAM [OPTION...]: of hpmmap run.
pass() {
	local program=$1
	shift
	HPMMAP_TEST_AT_ONCE=1 HPMMAP_TEST_EXPECT=registered HPMMAP_TEST_POLICY=fallback HPMMAP_TEST_IMAGE=no \
		hpmmap run "$@" -- "$programs/$program"
}

rounds=0
until is_over; do
	echo "seed $seed"
	rm -f $board
	install -m 666 /dev/null $board
	at_once /tmp/storm-1 as_member "$fuzzers/strangers" --windows --seed "$seed" --seconds 20 --workers 3 $board -- hpmmap run --
	MEMBER_ID=2002 at_once /tmp/storm-2 as_member "$fuzzers/strangers" --windows --seed $((seed + 1)) --seconds 20 --workers 2 $board -- hpmmap run --
	all_pass
	cat /tmp/storm-1
	at_once /tmp/changes pass xpmem_changes
	at_once /tmp/windows pass xpmem_windows --no-inherit
	all_pass
	seed=$((seed + 2)) rounds=$((rounds + 1))
done
echo "$rounds rounds"
