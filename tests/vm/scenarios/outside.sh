#!/bin/bash
# The kernel's own tests of memory (tests/outside): what passes natively passes under hpmmap run.
# machine: apps
# pool: 1G
# timeout: 1500
# tier: all  five minutes on each kernel
# paths: tests/outside/
. "$(dirname "$0")/../guest/lib.sh"

# Its options change what these tests find.
! is_debug_kernel || skip "the records are of the stock kernels"
[ -e "$HPMMAP_ROOT/build/outside/built" ] || skip "tests/outside/build.sh has not been run"
exec bash "$HPMMAP_ROOT/tests/outside/run.sh"
