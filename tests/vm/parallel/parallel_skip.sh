#!/bin/bash
# Some hooked calls are left to Linux: other processes must not be harmed by that. Launches of two users look
# for each other's words, alone and beside the fuzzers, whose own findings do not count.
# machine: skipping
# pool: 1G
# timeout: 400
# scales: yes
# tier: parallel  only CPUs that run at once tell anything new
. "$(dirname "$0")/../guest/parallel.sh"

fuzzers=$HPMMAP_ROOT/build/tests-fuzz
parameters=/sys/module/hpmmap/parameters
board=/tmp/board
[ -e $parameters/skip_hooks ] || skip "the module is no debug build"

# skipping RATE: of 1000 hooked calls.
skipping() {
	echo "$1" >$parameters/skip_hooks
}

mkdir -p /tmp/skip
mount -t hpmmap -o size=64M,mode=1777 none /tmp/skip
trap 'skipping 0; umount -l /tmp/skip; sysctl -q debug.exception-trace=1' EXIT
# Neither forks nor locked memory without end.
ulimit -u 400 -c 0 -l 65536

# Those that look: one user, and another one.
started=()
strangers() {
	rm -f $board
	install -m 666 /dev/null $board
	MEMBER_ID=2001 as_member "$fuzzers/strangers" --seed "$seed" --seconds "$1" --workers 2 $board -- hpmmap run -- &
	started+=($!)
	MEMBER_ID=2002 as_member "$fuzzers/strangers" --seed $((seed + 1)) --seconds "$1" --workers 2 $board -- hpmmap run --strict -- &
	started+=($!)
}
# Beside them, a third user; what a fuzzer says of its own memory is forgotten.
beside() {
	MEMBER_ID=2003 as_member timeout --kill-after=5 15 hpmmap run -- "$@" >/tmp/beside.log 2>&1 || true
}
nobody_saw() {
	local pid
	for pid in "${started[@]}"; do
		wait "$pid" || fail "somebody has seen a stranger's memory"
	done
	started=()
	# What a fuzzer was killed with.
	pkill -KILL -u 2001,2002,2003 || true
	ipcrm --all=shm || true
	expect_pool_free
}

rounds=0
until is_over; do
	sysctl -q debug.exception-trace=0
	for rate in 3 30 150; do
		! is_over || break
		echo "seed $seed, $rate of 1000"
		skipping $rate
		strangers 25
		nobody_saw
		seed=$((seed + 2))
	done
	echo "seed $seed, beside fuzzers"
	skipping 5
	strangers 40
	beside "$fuzzers/space" --scarce --seed "$seed" --ops 60 --threads 2
	beside "$fuzzers/stale" --scarce --seed "$seed" --ops 300
	beside "$fuzzers/shared" --seed "$seed" --ops 100 --touchers 2 /tmp/skip
	rm -rf /tmp/skip/*
	nobody_saw
	if longer && ! is_over; then
		# It has users of its own.
		(guided 15) || true
	fi
	skipping 0
	expect_pool_free
	seed=$((seed + 2)) rounds=$((rounds + 1))
done
echo "$rounds rounds, $(cat $parameters/hooks_skipped) hooks skipped"
