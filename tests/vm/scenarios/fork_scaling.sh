#!/bin/bash
# The extra cost of a fork, in instructions: a pinned page costs no more than the copy of its block,
# and the cost does not grow with the number of living relatives.
# machine: icount
# pool: 640M
# timeout: 300
# tier: newest  it is the module's own code
# paths: kernel/as/ kernel/task/fork.* tests/vm/programs/forks.c
. "$(dirname "$0")/../guest/lib.sh"

! is_debug_kernel || skip "instructions of a debug kernel tell nothing"

for relatives in 8 32; do
	hpmmap run -- "$HPMMAP_ROOT/build/tests-vm/forks" costs 256 $relatives | tee /tmp/costs.$relatives
done
# cost WHAT [RELATIVES]
cost() { awk -v name="$1" '$1 == name { print $2 }' "/tmp/costs.${2:-8}"; }

# To copy 2 MB, and to zero the copy when the child is gone.
copy=600000
[ "$(cost pinned)" -le $(($(cost alone) * 13 / 10 + copy)) ] || fail "a pinned page costs a fork $(($(cost pinned) - $(cost alone)))"
[ "$(cost pinned+thread)" -le $(($(cost thread) * 13 / 10 + copy)) ] || fail "a pinned page costs a fork beside a thread $(($(cost pinned+thread) - $(cost thread)))"
[ "$(cost faults)" = 0 ] || fail "$(cost faults) page faults after the child is gone"
more=$(($(cost relatives 32) - $(cost relatives)))
[ $more -le $(($(cost alone) * 3 / 10)) ] || fail "24 more relatives cost a fork $more"
expect_pool_free
