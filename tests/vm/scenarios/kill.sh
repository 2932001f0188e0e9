#!/bin/bash
# kill -9 at any moment of a launch gives all memory back.
# takes: 20
# pool: 512M
# timeout: 240
# paths: kernel/as/ kernel/task/
. "$(dirname "$0")/../guest/lib.sh"

rounds=8
! longer || rounds=15

# Starts, maps, unmaps, forks and executes without end.
work='
while :; do
	/bin/true
	(head -c 20000000 /dev/zero | tail -c 1 >/dev/null) &
	sort -S 30M /usr/share/common-licenses/* >/dev/null
	wait
done'

for round in $(seq $rounds); do
	setsid hpmmap run -- bash -c "$work" &
	job=$!
	sleep "$((RANDOM % 3)).$((RANDOM % 10))$((RANDOM % 10))"
	# The whole job at once on even rounds, the first process alone before on odd ones.
	[ $((round % 2)) = 0 ] || kill -KILL $job
	pkill -KILL --session $job || true
	wait $job 2>/dev/null || true
	# Children started between the two kills.
	while pkill -KILL --session $job; do sleep 0.1; done
	expect_pool_free
done

# Just started: within exec and registration.
for round in $(seq $rounds); do
	hpmmap run -- /bin/true &
	job=$!
	sleep "0.0$((RANDOM % 10))$((RANDOM % 10))"
	kill -KILL $job 2>/dev/null || true
	wait $job 2>/dev/null || true
done
expect_pool_free
