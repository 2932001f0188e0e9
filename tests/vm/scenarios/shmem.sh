#!/bin/bash
# OpenSHMEM over windows: every function, by registered PEs and by PEs that are not, and how jobs end.
# pool: 1G
# timeout: 300
# takes: 50
# windows: yes
# tier: newest  the library uses what every kernel that is tested has
# paths: lib/shmem/ lib/libhpmmap_shmem.map lib/hpmmap_shmem.pc.in lib/table.c lib/identity.c lib/window.c tests/vm/programs/shmem/ kernel/xpmem.* kernel/as/view/attach.* kernel/as/map/window.*
. "$(dirname "$0")/../guest/lib.sh"

programs=$HPMMAP_ROOT/build/tests-vm/shmem
export SHMEM_SYMMETRIC_SIZE=48M

# pes NUMBER COMMAND...: the PEs of a job, started by hand. Their output; the status is that of the last to fail.
job=0
pes() {
	local size=$1 rank status=0 pids=()
	shift
	job=$((job + 1))
	for ((rank = 0; rank < size; rank++)); do
		PMIX_NAMESPACE=job$job OMPI_COMM_WORLD_LOCAL_RANK=$rank OMPI_COMM_WORLD_LOCAL_SIZE=$size \
			OMPI_COMM_WORLD_SIZE=$size "$@" &
		pids+=($!)
	done
	for rank in "${pids[@]}"; do
		wait "$rank" || status=$?
	done
	return $status
}

# right NUMBER COMMAND...: no failures.
right() {
	local size=$1 got
	got=$(pes "$@" 2>&1) || fail "$*: $got"
	[ "$got" = "$size PEs, 0 failures" ] || fail "$*: $got"
	echo "$(date +%T) $*"
}

# ends STATUS PATTERN CASE...: how four registered PEs end.
ends() {
	local want=$1 pattern=$2 got status=0
	shift 2
	got=$(pes 4 hpmmap run -- "$programs/ends" "$@" 2>&1) || status=$?
	[ $status = "$want" ] || fail "ends $*: status $status instead of $want: $got"
	grep -qE "$pattern" <<<"$got" || fail "ends $*: $got"
}

# way WAY COMMAND...: how PEs reach each other.
way() {
	local way=$1 got
	shift
	got=$(SHMEM_DEBUG=1 pes 2 "$@" "$programs/steps" 2>&1) || fail "$got"
	[ "$(grep -cE "^shmem: PE [01] of 2: .*, by $way\$" <<<"$got")" = 2 ] || fail "not by $way: $got"
	echo "$got"
}

steps=$(way windows hpmmap run --)
echo "$steps"
# A put of 8 bytes, with its arguments and its return.
for call in "shmem_long_p, heap" "shmem_long_p, variable" "shmem_putmem, heap"; do
	n=$(sed -n "s/^$call: //p" <<<"$steps")
	[ "$n" -gt 5 ] && [ "$n" -le 20 ] || fail "$call takes $n instructions"
done
way windows env
way 'shared memory' hpmmap run -- env HPMMAP_SHMEM_WINDOWS=0

for program in rma sync collective; do
	right 2 hpmmap run -- "$programs/$program"
done
# More PEs than CPUs. The unit tests have up to 8 PEs of all programs.
right 4 hpmmap run -- "$programs/sync"
got=$(pes 3 hpmmap run -- "$programs/fortran" | sort)
[ "$got" = $'PE 0 right\nPE 1 right\nPE 2 right' ] || fail "$got"
expect_pool_free
# Windows onto ordinary memory, and shared memory of the pools.
right 2 "$programs/sync"
right 2 hpmmap run -- env HPMMAP_SHMEM_WINDOWS=0 "$programs/sync"

ends 1 'shmem_long_p: PE 1: there is no PE 4: there are PEs 0 to 3' pe
ends 1 'PE [023]: PE 1 has ended without shmem_finalize' killed
ends 1 'PE 3: PE 1 has ended without shmem_finalize' killed-later
ends 7 '' global-exit 7
ends 0 '4 PEs, 0 failures' fork
expect_pool_free
! ls /dev/shm/hpmmap-*shmem* 2>/dev/null || fail "a table is left"
