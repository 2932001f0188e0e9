#!/bin/bash
# Files that several processes share: the fuzzer with touchers on two file systems, one with too little room,
# and files that are cut while they are touched.
# machine: parallel
# pool: 1G
# timeout: 360
# scales: yes
# tier: parallel  only CPUs that run at once tell anything new
# paths: kernel/fs/
. "$(dirname "$0")/../guest/parallel.sh"

fuzzer=$HPMMAP_ROOT/build/tests-fuzz/shared
cut=$HPMMAP_ROOT/build/tests/sem_shared_cut
mkdir -p /tmp/shared-1 /tmp/shared-2
mount -t hpmmap -o size=64M,mode=1777 none /tmp/shared-1
mount -t hpmmap -o size=16M,noholes,mode=1777 none /tmp/shared-2
# Behind it a signal for each page beyond the end of a file.
sysctl -q debug.exception-trace=0
trap 'umount -l /tmp/shared-1 /tmp/shared-2; sysctl -q debug.exception-trace=1' EXIT

rounds=0
until is_over; do
	echo "seed $seed"
	started=()
	"$fuzzer" --seed "$seed" --ops 300 --touchers 3 /tmp/shared-1 &
	started+=($!)
	as_member hpmmap run -- "$fuzzer" --seed $((seed + 1)) --ops 300 --touchers 2 --room $((16 * MIB)) /tmp/shared-2 &
	started+=($!)
	for pid in "${started[@]}"; do
		wait "$pid" || fail "one of the fuzzers has failed"
	done
	started=()
	"$cut" >/tmp/cut-1 &
	started+=($!)
	hpmmap run -- "$cut" >/tmp/cut-2 &
	started+=($!)
	for pid in "${started[@]}"; do
		wait "$pid" || { cat /tmp/cut-1 /tmp/cut-2; fail "a file that is cut while it is touched"; }
	done
	expect_pool_free
	seed=$((seed + 2)) rounds=$((rounds + 1))
done
echo "$rounds rounds"
