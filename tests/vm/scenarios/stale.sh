#!/bin/bash
# No process sees data of another one: 1,500 random calls, 10,000 in the longer runs; every
# byte they return is read, while neighbours dirty the rest of the pool.
# pool: 256M
# timeout: 240
# takes: 25
# scales: yes
# paths: kernel/mem/ kernel/as/ kernel/call/ tests/fuzz/common.h tests/fuzz/stale.c
. "$(dirname "$0")/../guest/lib.sh"

stale=$HPMMAP_ROOT/build/tests-fuzz/stale
neighbours=()
for _ in 1 2; do
	hpmmap run -- "$stale" --neighbour $((48 * MIB)) &
	neighbours+=($!)
done
for pid in "${neighbours[@]}"; do
	within 60 is_registered "$pid" || fail "a neighbour does not register"
done

ops=1500
! longer || ops=10000
for seed in $(seq "${HPMMAP_TEST_SCALE:-1}"); do
	hpmmap run -- "$stale" --seed "$seed" --ops $ops --expect registered
done

for pid in "${neighbours[@]}"; do
	is_registered "$pid" || fail "a neighbour is gone"
	kill "$pid"
	wait "$pid" || true
done
expect_pool_free
