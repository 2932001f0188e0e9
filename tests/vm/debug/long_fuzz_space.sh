#!/bin/bash
# Five minutes of random address-space calls: one process, several threads,
# pools that are too small.
# pool: 1G
# timeout: 600
. "$(dirname "$0")/../guest/lib.sh"

# Each seed is printed before it is used, and brought to an end: here 1500 calls take
# two minutes, and more with threads.
seed=$HPMMAP_SEED
space=$HPMMAP_ROOT/build/tests-fuzz/space
hpmmap run -- "$space" --expect registered --seed "$seed" --ops 500 --seconds 120
expect_pool_free
hpmmap run -- "$space" --expect registered --seed $((seed + 100000)) --ops 150 --threads 4 --seconds 90
expect_pool_free
# What natively was never refused may be refused here, and must change nothing.
set_pool 128M
hpmmap run --strict -- "$space" --expect registered --scarce --seed $((seed + 200000)) --ops 200 --threads 2 --seconds 45
expect_pool_free
hpmmap run -- "$space" --expect registered --seed $((seed + 300000)) --ops 200 --threads 2 --seconds 45
