#!/bin/bash
# Random ioctls, malformed and correct, beside launches and changing pools.
# pool: 512M
# timeout: 180
# paths: kernel/mem/ kernel/chardev.* kernel/as/own/job.* tests/fuzz/common.h tests/fuzz/ioctls.c
. "$(dirname "$0")/../guest/lib.sh"

fuzzers=$HPMMAP_ROOT/build/tests-fuzz
"$fuzzers/ioctls" --seed 1 --ops 600
as_member "$fuzzers/ioctls" --seed 2 --ops 600
expect_pool_free
