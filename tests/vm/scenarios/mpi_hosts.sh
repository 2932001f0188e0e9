#!/bin/bash
# Collectives across hosts: each compared with the MPI library's own, on two and three hosts within the guest.
# pool: 1G
# timeout: 900
# takes: 150
# machine: apps
# windows: yes
# tier: newest  the calls of MPI are the same on every kernel
# paths: lib/ tests/vm/programs/mpi_hosts.c tests/vm/programs/mpi_errors.c tests/vm/guest/hosts.sh kernel/xpmem.* kernel/as/view/attach.* kernel/as/map/window.*
. "$(dirname "$0")/../guest/lib.sh"
. "$(dirname "$0")/../guest/hosts.sh"

program=$HPMMAP_ROOT/build/tests-vm/mpi_hosts
libraries=$HPMMAP_ROOT/build/lib
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR=/tmp
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1

# run RANKS COMMAND...: all results are right, and windows were used.
run() {
	local ranks=$1 got before
	shift
	before=$(cat /sys/kernel/hpmmap/windows/faults)
	got=$("$@" 2>&1) || fail "$* says: $got"
	[ "$got" = "$ranks ranks, 0 failures" ] || fail "$* says: $got"
	[ "$before" != "$(cat /sys/kernel/hpmmap/windows/faults)" ] || fail "$*: no windows were used"
	echo "$(date +%T) $*"
}

# MIN_BYTES RANKS HOSTS ARGUMENTS..., of mpi_hosts
openmpi() {
	local least=$1 ranks=$2 hosts=$3
	shift 3
	run "$ranks" hpmmap run -- "$HPMMAP_ROOT/tests/vm/guest/hosts.sh" openmpi "$hosts" -x LD_PRELOAD="$libraries/openmpi/libhpmmap_mpi.so" \
		-x HPMMAP_MPI_MIN_BYTES="$least" ${MAP:+--map-by "$MAP"} -n "$ranks" "$program.openmpi" "$@"
}
mpich() {
	local least=$1 ranks=$2 hosts=$3
	shift 3
	run "$ranks" hpmmap run -- "$HPMMAP_ROOT/tests/vm/guest/hosts.sh" mpich "$hosts" -genv LD_PRELOAD "$libraries/mpich/libhpmmap_mpi.so" \
		-genv HPMMAP_MPI_MIN_BYTES "$least" -n "$ranks" "$program.mpich" "$@"
}

hosts_make 3
openmpi 1 4 n1:2,n2:2 60 300000 1
# Ranks by turns on the hosts.
MAP=node openmpi 0 4 n1:2,n2:2 40 300000 2
openmpi 1 5 n1:2,n2:2,n3:1 30 100000 3
mpich 1 4 n1:2,n2:2 30 300000 4
mpich 0 4 n1:1,n2:1 20 100000 5
mpich 1 5 n1:3,n2:1,n3:1 20 100000 6
expect_pool_free
# One rank alone has no memory, or makes a mistake.
program=$HPMMAP_ROOT/build/tests-vm/mpi_errors
openmpi 1 4 n1:2,n2:2
mpich 1 4 n1:2,n2:2
program=$HPMMAP_ROOT/build/tests-vm/mpi_hosts
# Ranks that are not registered.
run 4 "$HPMMAP_ROOT/tests/vm/guest/hosts.sh" openmpi n1:2,n2:2 -x LD_PRELOAD="$libraries/openmpi/libhpmmap_mpi.so" \
	-x HPMMAP_MPI_MIN_BYTES=1 -n 4 "$program.openmpi" 30 100000 7
hosts_remove
