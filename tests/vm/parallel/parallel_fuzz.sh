#!/bin/bash
# The fuzzers side by side: address spaces with threads and children, random ioctls that
# take the pools away and give them back, readers of every byte beside neighbours.
# machine: parallel
# pool: 1G
# timeout: 360
# scales: yes
# tier: parallel  only CPUs that run at once tell anything new
. "$(dirname "$0")/../guest/parallel.sh"

fuzzers=$HPMMAP_ROOT/build/tests-fuzz

# What an ordinary user may lock is less than the fuzzer may want.
ulimit -l unlimited

# at_once "STATUS..." COMMAND...: one of those that run at once; what it may end with beside 0.
started=()
at_once() {
	local allowed=" 0 $1 "
	shift
	(
		status=0
		"$@" || status=$?
		[[ $allowed == *" $status "* ]] || { echo "FAIL: status $status: $*" >&2; exit 1; }
	) &
	started+=($!)
}
all_pass() {
	local pid
	for pid in "${started[@]}"; do
		wait "$pid" || fail "one of those at once has failed"
	done
	started=()
	expect_pool_free
}

rounds=0
until is_over; do
	echo "seed $seed"
	at_once '' hpmmap run -- "$fuzzers/space" --expect registered --seed "$seed" --ops 150 --threads 3
	at_once '' as_member hpmmap run --image -- "$fuzzers/space" --expect registered --seed $((seed + 1)) --ops 150 --threads 2
	all_pass
	at_once '' hpmmap run -- "$fuzzers/stale" --expect registered --seed "$seed" --ops 2000
	at_once '' as_member hpmmap run -- "$fuzzers/stale" --expect registered --seed $((seed + 1)) --ops 2000
	all_pass
	# While there is no pool at all, nothing is launched.
	at_once 125 hpmmap run -- "$fuzzers/space" --expect registered --scarce --seed "$seed" --ops 100 --threads 2
	at_once '' "$fuzzers/ioctls" --seed "$seed" --ops 400
	all_pass
	seed=$((seed + 2)) rounds=$((rounds + 1))
done
echo "$rounds rounds"
