#!/bin/bash
# Physical addresses for devices: they are right, and memory stays in place and out of use until the
# descriptor is closed, whatever becomes of the mapping and the process.
# takes: 15
# timeout: 120
# paths: kernel/runs.* kernel/chardev.* lib/runs.c tests/vm/programs/runs.c
. "$(dirname "$0")/../guest/lib.sh"

runs=$HPMMAP_ROOT/build/tests-vm/runs
hpmmap run --strict -- "$runs"
expect_pool_free
hpmmap run --strict --page-size 1G -- "$runs" 64
expect_pool_free
