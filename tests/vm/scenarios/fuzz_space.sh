#!/bin/bash
# Random address-space calls behave as the model, and the same natively and under
# HPMMAP. The seeds are fixed; make check-debug uses others.
# takes: 20
# pool: 512M
# timeout: 240
# paths: kernel/mem/ kernel/as/ kernel/call/ kernel/task/fork.* tests/fuzz/common.h tests/fuzz/space.c
. "$(dirname "$0")/../guest/lib.sh"

ops=150
! longer || ops=400
fuzz_twins --seed 1 --heap-protect --ops $ops
fuzz_twins --seed 2 --heap-protect --ops $ops
fuzz_twins --seed 3 --heap-protect --ops $((ops / 2)) --threads 3
