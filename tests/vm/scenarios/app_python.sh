#!/bin/bash
# Python with NumPy: linear algebra, sorting, growing arrays, threads, forked workers.
# takes: 25
# machine: apps
# pool: 1G
# timeout: 120
# scales: yes
# tier: newest  what programs see of a kernel, the test programs ask on every one
# paths: tests/vm/programs/apps/numeric.py kernel/call/mremap.* kernel/call/step/remap.* tests/vm/guest/apps.sh
. "$(dirname "$0")/../guest/apps.sh"

export OPENBLAS_NUM_THREADS=2 PYTHONDONTWRITEBYTECODE=1
same python /usr/bin/python3 "$APPS/numeric.py" "$SCALE"
took python3 200
cat "$WORK/python"
