#!/bin/bash
# Random address-space calls in a static region: the same natively and under HPMMAP, but for what such a region gives up.
# takes: 30
# pool: 1536M
# timeout: 240
# tier: newest  sem_static asks the same on each kernel
# paths: kernel/call/ kernel/task/image.c kernel/task/fork.c tests/fuzz/common.h tests/fuzz/space.c
. "$(dirname "$0")/../guest/lib.sh"

ops=300
! longer || ops=4000
RUN_OPTIONS=(--static 512M)
fuzz_twins --region --seed 1 --ops $ops
fuzz_twins --region --seed 2 --ops $ops
fuzz_twins --region --seed 3 --ops $((ops / 2)) --threads 2
