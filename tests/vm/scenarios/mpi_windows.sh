#!/bin/bash
# MPI over windows: collectives in place with Open MPI and MPICH, 2, 4 and 8 ranks.
# pool: 1G
# timeout: 600
# takes: 200
# machine: apps
# windows: yes
# tier: all  8 ranks take minutes; mpi asks less of both libraries
# paths: lib/ tests/vm/programs/mpi_windows.c kernel/xpmem.* kernel/as/view/attach.* kernel/as/map/window.*
. "$(dirname "$0")/../guest/lib.sh"

program=$HPMMAP_ROOT/build/tests-vm/mpi_windows
libraries=$HPMMAP_ROOT/build/lib
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR=/tmp
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1

# run RANKS COMMAND...: all results are right.
run() {
	local ranks=$1 got
	shift
	got=$("$@" 2>&1) || fail "$* says: $got"
	[ "$got" = "$ranks ranks, 0 failures" ] || fail "$* says: $got"
	echo "$(date +%T) $*"
}

# Collectives in place, of both MPI libraries.
collectives() {
	for ranks in 2 4; do
		run $ranks hpmmap run -- mpirun.openmpi --mca btl self,vader --mca pml ob1 \
			-x LD_PRELOAD="$libraries/openmpi/libhpmmap_mpi.so" -x HPMMAP_MPI_MIN_BYTES="$1" -n $ranks "$program.openmpi" $((1 << 20))
		run $ranks hpmmap run -- mpirun.mpich -genv LD_PRELOAD "$libraries/mpich/libhpmmap_mpi.so" \
			-genv HPMMAP_MPI_MIN_BYTES "$1" -n $ranks "$program.mpich" $((1 << 20))
	done
	expect_pool_free
}

# libhpmmap's ranks, from Fortran, by the environment of both.
for mpi in openmpi mpich; do
	got=$(hpmmap run -- mpirun.$mpi -n 3 "$HPMMAP_ROOT/build/tests-vm/ranks" 2>&1 | sort) || fail "$mpi: $got"
	[ "$got" = $'rank 0 right\nrank 1 right\nrank 2 right' ] || fail "$mpi: $got"
done

collectives 1
# Four times as many ranks as there are CPUs.
run 8 hpmmap run -- mpirun.openmpi --mca btl self,vader --mca pml ob1 \
	-x LD_PRELOAD="$libraries/openmpi/libhpmmap_mpi.so" -x HPMMAP_MPI_MIN_BYTES=1 -n 8 "$program.openmpi" $((1 << 20)) 4096
run 8 hpmmap run -- mpirun.mpich -genv LD_PRELOAD "$libraries/mpich/libhpmmap_mpi.so" \
	-genv HPMMAP_MPI_MIN_BYTES 1 -n 8 "$program.mpich" $((1 << 20)) 4096
expect_pool_free
# Ranks that are not registered have windows onto ordinary memory.
run 2 mpirun.openmpi --mca btl self,vader --mca pml ob1 -x LD_PRELOAD="$libraries/openmpi/libhpmmap_mpi.so" \
	-x HPMMAP_MPI_MIN_BYTES=1 -n 2 "$program.openmpi" $((1 << 20))
