#!/bin/bash
# Bcast, allreduce and alltoall of 64 KB and more over two hosts with two ranks each take fewer instructions than the MPI library alone.
# pool: 512M
# timeout: 900
# takes: 200
# machine: vm
# tier: all  it counts instructions for minutes; mpi_hosts asks for the results
# paths: lib/ tests/vm/programs/mpi_cost.c tests/vm/guest/hosts.sh
. "$(dirname "$0")/../guest/lib.sh"
. "$(dirname "$0")/../guest/hosts.sh"

! is_debug_kernel || skip "instructions of a debug kernel tell nothing"

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR=/tmp
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1
# The emulator counts each round of a repeated string instruction, one for each byte. The guest's kernel uses none for bytes.
export GLIBC_TUNABLES=glibc.cpu.x86_rep_movsb_threshold=1073741824
SIZES='65536 262144 1048576'

# All ranks, and the kernel for them, are on the one CPU, so what passes is what all of them execute.
cost() { # OPTIONS OF MPIRUN...
	hpmmap run --strict -- "$HPMMAP_ROOT/tests/vm/guest/hosts.sh" openmpi n1:2,n2:2 "$@" -n 4 "$HPMMAP_ROOT/build/tests-vm/mpi_cost.openmpi" 8 $SIZES
}

hosts_make 2
before=$(cost) || fail "$before"
after=$(cost -x LD_PRELOAD="$HPMMAP_ROOT/build/lib/openmpi/libhpmmap_mpi.so") || fail "$after"
hosts_remove
paste -d' ' <(echo "$before") <(echo "$after") | awk '{
	printf "%s of %d: %.1f thousand instructions instead of %.1f\n", $1, $2, $6, $3
	if ($1 ~ /^(bcast|allreduce|alltoall)$/ && $2 >= 65536) {
		compared++
		if ($6 >= $3)
			more = more " " $1 " of " $2
	}
} END {
	if (more || compared != 9) {
		print "FAILED: " compared " compared; not fewer:" more
		exit 1
	}
}' || fail 'not all take fewer instructions'
