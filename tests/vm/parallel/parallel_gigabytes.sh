#!/bin/bash
# Entries of 1 GB of two nodes: jobs whose threads write while others look and cut, the fuzzer, and jobs some
# of whose hooked calls run as Linux has them.
# machine: parallel-gigabytes
# pool: 0
# timeout: 500
# scales: yes
# tier: parallel  only CPUs that run at once tell anything new
# paths: kernel/as/map/gigabyte.* kernel/as/change/join.* kernel/as/store/entry.* tests/guest/sem_gigabyte.c tests/fuzz/space.c
. "$(dirname "$0")/../guest/parallel.sh"

space=$HPMMAP_ROOT/build/tests-fuzz/space
sem=$HPMMAP_ROOT/build/tests/sem_gigabyte
skip_hooks=/sys/module/hpmmap/parameters/skip_hooks
[ -e $skip_hooks ] || skip "the module is no debug build"
trap 'echo 0 >$skip_hooks; sysctl -q debug.exception-trace=1' EXIT
sysctl -q debug.exception-trace=0
ulimit -l unlimited -c 0
for node in 0 1; do
	hpmmap pool add --node $node --size 3G --up-to --leave 256M
done
hpmmap pool list

# job NODE COMMAND...
job() {
	local node=$1
	shift
	HPMMAP_TEST_AT_ONCE=1 HPMMAP_TEST_EXPECT=registered HPMMAP_TEST_GIGABYTES=yes hpmmap run --page-size 1G --node "$node" -- "$@"
}
# at_once COMMAND...
started=()
at_once() {
	"$@" >"/tmp/at-once-${#started[@]}" 2>&1 &
	started+=($!)
}
all_end() {
	local i
	for i in "${!started[@]}"; do
		wait "${started[$i]}" || [ "$1" = anyhow ] || { cat "/tmp/at-once-$i"; fail "seed $seed: one of those at once has failed"; }
	done
	started=()
	expect_pool_free
}

rounds=0
until is_over; do
	echo "seed $seed"
	HPMMAP_TEST_ONLY=beside_writers at_once job 0 "$sem"
	at_once job 1 "$space" --expect registered --gigabytes --seed "$seed" --ops 150
	all_end well
	# What they find in their own memory does not count then.
	echo 30 >$skip_hooks
	HPMMAP_TEST_ONLY='[b-m]*' at_once timeout --kill-after=5 40 hpmmap run --page-size 1G --node 0 -- "$sem"
	at_once timeout --kill-after=5 40 hpmmap run --page-size 1G --node 1 -- "$space" --scarce --gigabytes --seed "$seed" --ops 100
	all_end anyhow
	echo 0 >$skip_hooks
	HPMMAP_TEST_ONLY=all_there_without_faults at_once job 1 "$sem"
	all_end well
	seed=$((seed + 1)) rounds=$((rounds + 1))
done
echo "$rounds rounds"
hpmmap pool remove --all
