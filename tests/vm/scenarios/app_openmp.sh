#!/bin/bash
# OpenMP: loops, tasks, large arrays on the stacks, teams of several sizes.
# machine: apps
# pool: 1G
# timeout: 120
# scales: yes
# tier: newest  what programs see of a kernel, the test programs ask on every one
# paths: tests/vm/programs/apps/openmp.c tests/vm/guest/apps.sh
. "$(dirname "$0")/../guest/apps.sh"

export OMP_NUM_THREADS=4 OMP_WAIT_POLICY=passive
same openmp "$BUILT/openmp" "$SCALE"
took openmp 24
OMP_STACKSIZE=3M same openmp-stacks "$BUILT/openmp" "$SCALE"
took openmp 24
cat "$WORK/openmp"
