#!/bin/bash
# Other CPUs are not interrupted for each slot: not at all if an entry allows more than before, and once
# for a whole range that is discarded.
# pool: 512M
# timeout: 60
# takes: 10
# paths: kernel/as/ kernel/call/madvise.c tests/vm/programs/forks.c
. "$(dirname "$0")/../guest/lib.sh"

# What is discarded is exchanged for clean blocks.
is_clean() { [ "$(pool_bytes free_bytes)" = "$(pool_bytes clean_bytes)" ]; }
within 20 is_clean || fail "the pool does not become clean"

hpmmap run -- "$HPMMAP_ROOT/build/tests-vm/forks" flushes 64 2 | tee /tmp/flushes
awk '$1 == "own" && ($2 > 16 || $4 > 16) || $1 == "discarded" && $2 > 8 { bad = 1 } END { exit bad || NR != 2 }' /tmp/flushes ||
	fail "other CPUs were interrupted too often"
expect_pool_free
