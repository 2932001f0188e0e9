#!/bin/bash
# Random address-space calls on a part of a gigabyte that one entry maps: the same natively and under HPMMAP.
# takes: 30
# machine: gigabytes
# pool: 3584M
# timeout: 240
# tier: newest  the calls are the same on every kernel, and tables of 6.1 are those of fuzz_space
# paths: kernel/mem/ kernel/as/ kernel/call/ kernel/task/fork.* tests/fuzz/common.h tests/fuzz/space.c
. "$(dirname "$0")/../guest/lib.sh"

ops=100
! longer || ops=400
RUN_OPTIONS=(--page-size 1G)
fuzz_twins --gigabytes --seed 1 --ops $ops
fuzz_twins --gigabytes --seed 2 --ops $ops
fuzz_twins --gigabytes --seed 3 --ops $((ops / 2)) --threads 2
